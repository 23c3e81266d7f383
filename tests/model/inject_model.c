/* SPDX-License-Identifier: MIT
 *
 * The queue from outside (inject.h): submitters push while takers take their shares and
 * one who is about to sleep looks. Held:
 *   - every task is taken once, by whoever, and what was written before its push is seen
 *   - tasks of one submitter are taken in order
 *   - while a task stays in it, the queue does not look empty, also in the middle of a take
 */
#include "unit_test.h"

#include "model.h"
#include "model_lock.h"

#define weft__acquire  model_acquire
#define weft__release  model_release
#define weft__lock_try model_lock_try

#include "../../src/sched/inject.h"

#include <string.h>

enum { TASKS = 6 };

static weft__inject q;
static struct task {
    weft__slink link;
    int payload;
} task[TASKS];
static weft__a32 turn, taken_at[TASKS]; /* 0: not yet */

static void setup(void)
{
    memset(&q, 0, sizeof q);
    memset(task, 0, sizeof task);
    memset(taken_at, 0, sizeof taken_at);
    memset(&turn, 0, sizeof turn);
    model_name(&q, sizeof q, "queue");
    model_name(task, sizeof task, "task");
    model_name(taken_at, sizeof taken_at, "taken_at");
}

static void push(int i)
{
    task[i].payload = 100 + i;
    weft__inject_push(&q, &task[i].link);
}

static void push_two_at_once(int i)
{
    weft__fifo two;
    weft__fifo_init(&two);
    for (int k = i; k < i + 2; k++) {
        task[k].payload = 100 + k;
        weft__fifo_push(&two, &task[k].link);
    }
    weft__inject_push_all(&q, &two, 2);
}

static void take(uint32_t parts, uint32_t max)
{
    weft__fifo out;
    weft__fifo_init(&out);
    uint32_t n = weft__inject_take(&q, parts, max, &out);
    for (weft__slink *l; (l = weft__fifo_pop(&out)) != NULL; n--) {
        struct task *t = weft__container(l, struct task, link);
        int i = (int)(t - task);
        model_check(t->payload == 100 + i);
        model_check(atom_xchg_ar(&taken_at[i], atom_add_ar(&turn, 1u) + 1) == 0);
    }
    model_check(n == 0);
}

static void all_are_taken(int tasks)
{
    while (!weft__inject_empty(&q))
        take(1, 1);
    model_check(q.count.raw == 0 && weft__fifo_empty(&q.fifo));
    for (int i = 0; i < tasks; i++)
        model_check(taken_at[i].raw != 0);
}

/* --- two submitters, one taker: in order --- */

static void order_run(int t)
{
    if (t < 2) {
        push(2 * t);
        push(2 * t + 1);
    } else {
        take(2, 9);
        take(1, 9);
    }
}

static void order_check(void)
{
    all_are_taken(4);
    model_check(taken_at[0].raw < taken_at[1].raw && taken_at[2].raw < taken_at[3].raw);
}

/* --- a submitter, a batch, two takers --- */

static void batch_run(int t)
{
    if (t == 0)
        push(0);
    else if (t == 1)
        push_two_at_once(1);
    else
        take((uint32_t)t - 1, 9);
}

static void batch_check(void)
{
    all_are_taken(3);
}

/* --- a taker leaves one; who looks meanwhile must see that --- */

static void look_setup(void)
{
    setup();
    for (int i = 0; i < 3; i++)
        push(i);
}

static void look_run(int t)
{
    if (t == 0)
        take(2, 9);
    else if (t == 1)
        model_check(!weft__inject_empty(&q));
    else
        push(3);
}

static void look_check(void)
{
    all_are_taken(3);
}

static void explore(const char *name, int threads, void (*set)(void), void (*run)(int),
                    void (*check)(void))
{
    struct model_scenario s = {
        .name = name, .threads = threads, .setup = set, .run = run, .check = check};
    model_must_hold(&s);
}

static void tasks_leave_once_and_in_order(void **state)
{
    (void)state;
    explore("inject: 2 submitters, 1 taker", 3, setup, order_run, order_check);
    explore("inject: submitter, batch, 1 taker", 3, setup, batch_run, batch_check);
    explore("inject: submitter, batch, 2 takers", 4, setup, batch_run, batch_check);
}

static void it_never_looks_empty(void **state)
{
    (void)state;
    explore("inject: taker, looker", 2, look_setup, look_run, look_check);
    explore("inject: taker, looker, submitter", 3, look_setup, look_run, look_check);
}

int main(void)
{
    const struct CMUnitTest tests_[] = {
        cmocka_unit_test(tasks_leave_once_and_in_order),
        cmocka_unit_test(it_never_looks_empty),
    };
    return cmocka_run_group_tests(tests_, NULL, NULL);
}

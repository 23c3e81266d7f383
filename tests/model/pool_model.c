/* SPDX-License-Identifier: MIT
 *
 * A pool's ring: its owner pushes and takes from either end while one or two thieves take
 * the oldest; of 2 slots, so that it fills and wraps. Held:
 *   - every task that was pushed is taken once, by whoever
 *   - who takes a task sees what was written before its push (a race otherwise)
 *   - at rest the length is what is in it
 */
#include "unit_test.h"

#include "model.h"

#include "sched/pool.h"

enum { SLOTS = 2, TASKS = 4, THIEVES = 2 };

static weft__pool_ring ring;
static weft__aptr slots[SLOTS];
static weft_task tasks[TASKS];
static int payload[TASKS];
static weft__a32 taken[TASKS];
static int pushed; /* by the owner */
static weft_task *(*owner_takes)(weft__pool_ring *);

static void setup(void)
{
    memset(&ring, 0, sizeof ring);
    memset(slots, 0, sizeof slots);
    memset(payload, 0, sizeof payload);
    memset(taken, 0, sizeof taken);
    ring.size = SLOTS;
    ring.slots = slots;
    pushed = 0;
    model_name(&ring.top, sizeof ring.top, "top");
    model_name(&ring.bottom, sizeof ring.bottom, "bottom");
    model_name(slots, sizeof slots, "slots");
    model_name(payload, sizeof payload, "payload");
    model_name(taken, sizeof taken, "taken");
}

static void got(weft_task *t)
{
    if (!t)
        return;
    int i = (int)(t - tasks);
    model_check(payload[i] == 100 + i);
    model_check(atom_xchg_ar(&taken[i], 1u) == 0);
}

static void push(void)
{
    int i = pushed++;
    payload[i] = 100 + i;
    if (!weft__pool_ring_push(&ring, &tasks[i]))
        got(&tasks[i]); /* full: it stays with the owner */
}

static void owner(void)
{
    push();
    push();
    push(); /* full, unless a thief was here */
    got(owner_takes(&ring));
    push();
    got(owner_takes(&ring));
    got(owner_takes(&ring));
}

static void owner_and_thieves(int t)
{
    if (t == 0)
        owner();
    else
        got(weft__pool_ring_take_oldest(&ring));
}

static void check_all_once(void)
{
    unsigned left = 0;
    for (int i = 0; i < TASKS; i++)
        left += taken[i].raw == 0;
    model_check(left == weft__pool_ring_length(&ring));
    while (weft__pool_ring_length(&ring)) {
        weft_task *t = weft__pool_ring_take_oldest(&ring);
        model_check(t != NULL);
        got(t);
    }
    model_check(weft__pool_ring_take_newest(&ring) == NULL);
    for (int i = 0; i < TASKS; i++)
        model_check(taken[i].raw == 1);
}

static void explore(const char *name, weft_task *(*takes)(weft__pool_ring *), int thieves)
{
    struct model_scenario s = {.name = name,
                               .threads = 1 + thieves,
                               .setup = setup,
                               .run = owner_and_thieves,
                               .check = check_all_once};
    owner_takes = takes;
    model_must_hold(&s);
}

static void a_stack_and_thieves(void **state)
{
    (void)state;
    explore("pool ring, newest, 1 thief", weft__pool_ring_take_newest, 1);
    explore("pool ring, newest, 2 thieves", weft__pool_ring_take_newest, THIEVES);
}

static void a_queue_and_thieves(void **state)
{
    (void)state;
    explore("pool ring, oldest, 1 thief", weft__pool_ring_take_oldest, 1);
    explore("pool ring, oldest, 2 thieves", weft__pool_ring_take_oldest, THIEVES);
}

int main(void)
{
    const struct CMUnitTest tests_[] = {
        cmocka_unit_test(a_stack_and_thieves),
        cmocka_unit_test(a_queue_and_thieves),
    };
    return cmocka_run_group_tests(tests_, NULL, NULL);
}

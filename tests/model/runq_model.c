/* SPDX-License-Identifier: MIT
 *
 * A worker's ring (runq.h), of 4 slots: its owner pushes, takes from the head and takes
 * back from the tail, while one or two thieves grab half of it. Held:
 *   - every task that was pushed is taken once, by whoever
 *   - who takes a task sees what was written before its push (a race otherwise)
 *   - nobody is left counted as a thief
 */
#include "unit_test.h"

#include "model.h"

#include "sched/runq.h"

#include <string.h>

enum { TASKS = 6, THIEVES = 2 };

static weft__runq ring;
static int payload[TASKS]; /* a task is its place in here */
static weft__a32 taken[TASKS];
static int pushed; /* by the owner */
static void (*owner)(void);

static void setup(void)
{
    memset(&ring, 0, sizeof ring);
    memset(payload, 0, sizeof payload);
    memset(taken, 0, sizeof taken);
    pushed = 0;
    model_name(&ring.head, sizeof ring.head, "head");
    model_name(&ring.thieves, sizeof ring.thieves, "thieves");
    model_name(&ring.tail, sizeof ring.tail, "tail");
    model_name(ring.slots, sizeof ring.slots, "slots");
    model_name(payload, sizeof payload, "payload");
    model_name(taken, sizeof taken, "taken");
}

static void got(void *p)
{
    if (!p)
        return;
    int i = (int)((int *)p - payload);
    model_check(payload[i] == 100 + i);
    model_check(atom_xchg_ar(&taken[i], 1u) == 0);
}

static void push(void)
{
    int i = pushed++;
    payload[i] = 100 + i;
    if (!weft__runq_push(&ring, &payload[i]))
        got(&payload[i]); /* full: it stays with the owner */
}

static void take_back(int i)
{
    if (weft__runq_pop_tail(&ring, &payload[i]))
        got(&payload[i]);
}

/* The tail comes back to where a thief has read it, with another task in the slot. */
static void owner_replaces_the_last(void)
{
    push();
    push();
    take_back(1);
    push();
    take_back(2);
    push();
}

static void owner_takes_back_everything(void)
{
    push();
    push();
    push();
    take_back(2);
    take_back(1);
    take_back(0);
}

static void owner_uses_both_ends(void)
{
    push();
    push();
    got(weft__runq_pop(&ring));
    push();
    take_back(2);
    got(weft__runq_pop(&ring));
    take_back(1); /* gone */
}

static void owner_and_thieves(int t)
{
    if (t == 0) {
        owner();
        return;
    }
    void *batch[WEFT__RUNQ_SIZE];
    uint32_t n = weft__runq_grab(&ring, batch, WEFT__RUNQ_SIZE);
    for (uint32_t i = 0; i < n; i++)
        got(batch[i]);
}

static void check_all_once(void)
{
    model_check(ring.thieves.raw == 0);
    for (void *p; (p = weft__runq_pop(&ring)) != NULL;)
        got(p);
    for (int i = 0; i < pushed; i++)
        model_check(taken[i].raw == 1);
}

static void explore(const char *name, void (*does)(void), int thieves)
{
    struct model_scenario s = {.name = name,
                               .threads = 1 + thieves,
                               .setup = setup,
                               .run = owner_and_thieves,
                               .check = check_all_once};
    owner = does;
    model_must_hold(&s);
}

static void the_last_is_replaced(void **state)
{
    (void)state;
    explore("runq, last replaced, 1 thief", owner_replaces_the_last, 1);
    explore("runq, last replaced, 2 thieves", owner_replaces_the_last, THIEVES);
}

static void everything_is_taken_back(void **state)
{
    (void)state;
    explore("runq, all taken back, 1 thief", owner_takes_back_everything, 1);
    explore("runq, all taken back, 2 thieves", owner_takes_back_everything, THIEVES);
}

static void both_ends_are_used(void **state)
{
    (void)state;
    explore("runq, both ends, 1 thief", owner_uses_both_ends, 1);
    explore("runq, both ends, 2 thieves", owner_uses_both_ends, THIEVES);
}

int main(void)
{
    const struct CMUnitTest tests_[] = {
        cmocka_unit_test(the_last_is_replaced),
        cmocka_unit_test(everything_is_taken_back),
        cmocka_unit_test(both_ends_are_used),
    };
    return cmocka_run_group_tests(tests_, NULL, NULL);
}

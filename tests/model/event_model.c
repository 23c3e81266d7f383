/* SPDX-License-Identifier: MIT
 *
 * The event, and with it the waking of a whole queue. Held: nobody sleeps on what has
 * happened (a deadlock), and the last of those who waited may free the event at once,
 * although the setter has not returned yet (an access to freed memory).
 */
#include "model_wait.h"

#include "../../src/sync/event.c"
#include "../../src/sync/queue.c"

static weft_event *event;
static weft__a32 leaving;
static int waiters, outcome[MODEL_THREADS];
static weft_time deadline; /* of one thread; the others wait for ever */

static void setup(void)
{
    parkers_setup();
    leaving.raw = 0;
    memset(outcome, 0, sizeof outcome);
    model_check(weft_event_create(&event) == 0);
    model_name(event, sizeof *event, "event");
}

/* Threads 0.. wait, the next one sets, a further one cancels thread 0. */
static void waits_or_sets(int t)
{
    if (t == waiters) {
        model_check(weft_event_set(event) == 0);
    } else if (t > waiters) {
        weft__cancel(&parker[0]);
    } else {
        outcome[t] = weft_event_wait(event, t ? WEFT_NEVER : deadline);
        parker_leaves(t);
    }
}

static void check_passed(void)
{
    parkers_check(waiters);
    for (int t = 1; t < waiters; t++)
        model_check(outcome[t] == 0);
    model_check(outcome[0] == 0 || outcome[0] == -ETIMEDOUT || outcome[0] == -ECANCELED);
    model_check(weft_event_is_set(event));
    model_check(weft__queue_empty(&of(event)->queue));
}

static void last_one_frees(int t)
{
    if (t == waiters) {
        weft_event_set(event);
        return;
    }
    int r = weft_event_wait(event, t ? deadline : WEFT_NEVER);
    model_check(r == 0 || (t && r == -ETIMEDOUT));
    parker_leaves(t);
    if (atom_add_ar(&leaving, 1u) + 1 == (uint32_t)waiters)
        model_check(weft_event_destroy(event) == 0);
}

static void explore(const char *name, int threads, void (*run)(int), void (*check)(void), int bound)
{
    parkers_explore(name, threads, setup, run, check, bound);
}

static void set_meets_waiters(void **state)
{
    (void)state;
    deadline = MODEL_SOON;
    waiters = 1;
    explore("event, a waiter with a deadline, cancel", 3, waits_or_sets, check_passed, 0);
    waiters = 2;
    explore("event, 2 waiters, a deadline", 3, waits_or_sets, check_passed, 0);
    explore("event, 2 waiters, a deadline, cancel", 4, waits_or_sets, check_passed, 2);
}

static void waiter_frees(void **state)
{
    (void)state;
    waiters = 1;
    deadline = WEFT_NEVER;
    explore("event, the waiter frees", 2, last_one_frees, NULL, 0);
    waiters = 2;
    explore("event, the last of 2 waiters frees", 3, last_one_frees, NULL, 0);
    deadline = MODEL_SOON; /* the one that gives up may be the last to leave */
    explore("event, the last of 2 waiters frees, a deadline", 3, last_one_frees, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_meets_waiters),
        cmocka_unit_test(waiter_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

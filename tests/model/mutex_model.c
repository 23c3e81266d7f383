/* SPDX-License-Identifier: MIT
 *
 * weft_mutex between threads that wait for ever, with a deadline, or are cancelled.
 * Held: mutual exclusion (the plain counter would race), nobody is left waiting for a
 * free mutex (a deadlock), the mutex is free at the end, and who failed did not get it.
 */
#include "model_wait.h"

#include "../../src/sync/mutex.c"

static weft_mutex mutex;
static int counter;
static int outcome[MODEL_THREADS];
static int threads, lockers, rounds;
static unsigned by_case;   /* bits: this thread waits as a select case does */
static weft_time deadline; /* of thread 0; the others wait for ever */

static void setup(void)
{
    parkers_setup();
    memset(&mutex, 0, sizeof mutex);
    counter = 0;
    memset(outcome, 0, sizeof outcome);
    model_name(&mutex, sizeof mutex, "mutex");
}

/* As select's steps 2 to 4. */
static WEFT__NOINLINE int lock_by_case(weft_time limit)
{
    weft__wait_node node = {.arg = WEFT__MUTEX_CASE};
    return weft__wait_on(&weft__mutex_case_ops.base, &mutex, weft__mutex_lock(&mutex), &node,
                         limit);
}

static void lock_once(int t, weft_time limit)
{
    int r = by_case >> t & 1 ? lock_by_case(limit) : weft_mutex_lock(&mutex, limit);
    if (r == 0) {
        counter++;
        model_check(weft_mutex_locked(&mutex));
        model_check(weft_mutex_unlock(&mutex) == 0);
    } else if (!outcome[t]) {
        outcome[t] = r;
    }
}

static void locks(int t)
{
    if (t >= lockers) {
        weft__cancel(&parker[0]);
        return;
    }
    for (int i = 0; i < rounds; i++)
        lock_once(t, t ? WEFT_NEVER : deadline);
    parker_leaves(t);
}

static void check(void)
{
    int failed = 0;
    parkers_check(lockers);
    model_check(!weft_mutex_locked(&mutex) && weft_mutex_fini(&mutex) == 0);
    for (int t = 0; t < lockers; t++) {
        bool may_fail = t == 0 && (deadline != WEFT_NEVER || threads > lockers);
        model_check(outcome[t] == 0 ||
                    (may_fail && (outcome[t] == -ETIMEDOUT || outcome[t] == -ECANCELED)));
        failed += outcome[t] != 0;
    }
    model_check(counter == lockers * rounds - failed || (rounds > 1 && failed));
}

static void explore(const char *name, int bound, int jumps)
{
    const struct model_scenario s = {.name = name,
                                     .threads = threads,
                                     .setup = setup,
                                     .run = locks,
                                     .check = check,
                                     .on_switch = parkers_on_switch,
                                     .all = bound > 0,
                                     .preemptions = bound,
                                     .jumps = jumps};
    model_must_hold(&s);
}

static void two_threads(void **state)
{
    (void)state;
    threads = lockers = 2;
    rounds = 1;
    deadline = WEFT_NEVER;
    explore("mutex, 2 threads", 0, 0);
    deadline = MODEL_SOON;
    explore("mutex, 2 threads, a deadline", 0, 0);
    threads = 3;
    explore("mutex, 2 threads, a deadline, cancel", 0, 0);
}

static void three_threads(void **state)
{
    (void)state;
    threads = lockers = 3;
    rounds = 1;
    deadline = WEFT_NEVER;
    explore("mutex, 3 threads", 3, 0);
    deadline = MODEL_SOON;
    explore("mutex, 3 threads, a deadline", 3, 0);
    threads = 4;
    deadline = MODEL_SOON;
    explore("mutex, 3 threads, a deadline, cancel", 2, 0);
}

static void cases(void **state)
{
    (void)state;
    rounds = 1;
    for (by_case = 1; by_case < 4; by_case++) {
        threads = lockers = 2;
        deadline = WEFT_NEVER;
        explore("mutex, 2 threads, cases", 0, 0);
        deadline = MODEL_SOON;
        threads = 3;
        explore("mutex, 2 threads, cases, a deadline, cancel", 3, 0);
        threads = lockers = 3;
        explore("mutex, 3 threads, cases, a deadline", 2, 0);
        threads = lockers = 2;
        rounds = 2;
        deadline = WEFT_NEVER;
        explore("mutex, 2 threads twice, cases, starving", 2, 1);
        rounds = 1;
    }
    by_case = 0;
}

/* Time passes, so that a waiter that was passed over gets the mutex handed. */
static void starving(void **state)
{
    (void)state;
    threads = lockers = 2;
    rounds = 2;
    deadline = WEFT_NEVER;
    explore("mutex, 2 threads twice, starving", 3, 1);
    threads = lockers = 3;
    rounds = 1;
    explore("mutex, 3 threads, starving", 2, 1);
}

/* Who holds it last frees it, right after its own unlock. */
static weft_mutex *shared;
static int holders;

static void setup_shared(void)
{
    setup();
    holders = 0;
    model_check(weft_mutex_create(&shared) == 0);
    model_name(shared, sizeof *shared, "mutex");
}

static void lock_and_leave(int t)
{
    (void)t;
    model_check(weft_mutex_lock(shared, WEFT_NEVER) == 0);
    bool last = ++holders == threads;
    model_check(weft_mutex_unlock(shared) == 0);
    if (last)
        model_check(weft_mutex_destroy(shared) == 0);
}

static void check_left(void)
{
    model_check(holders == threads);
}

static void last_holder_frees(void **state)
{
    (void)state;
    struct model_scenario s = {.name = "mutex, 2 threads, the last frees",
                               .threads = 2,
                               .setup = setup_shared,
                               .run = lock_and_leave,
                               .check = check_left,
                               .on_switch = parkers_on_switch};
    threads = 2;
    model_must_hold(&s);
    s.name = "mutex, 3 threads, the last frees";
    s.threads = threads = 3;
    s.all = true;
    s.preemptions = 3;
    model_must_hold(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads), cmocka_unit_test(three_threads),     cmocka_unit_test(cases),
        cmocka_unit_test(starving),    cmocka_unit_test(last_holder_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

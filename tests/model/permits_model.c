/* SPDX-License-Identifier: MIT
 *
 * The semaphore (and so the read-write lock, which stands on the same permits). Held:
 * permits are neither lost nor made, nobody waits for what is there (a deadlock), and a
 * waiter that gives up passes on what it kept from those behind it.
 */
#include "model_wait.h"

#include "../../src/sync/permits.c"
#include "../../src/sync/queue.c"

static weft_semaphore semaphore;
static int outcome[MODEL_THREADS], threads, takers, givers, wants[2];
static weft_time deadline; /* of thread 0; the other waits for ever */

static void setup(void)
{
    parkers_setup();
    memset(outcome, 0, sizeof outcome);
    model_check(weft_semaphore_init(&semaphore, 0) == 0);
    model_name(&semaphore, sizeof semaphore, "semaphore");
}

/* Takers take and give back; givers add one each; a further thread cancels. */
static void take_or_give(int t)
{
    if (t < takers) {
        outcome[t] =
            weft_semaphore_acquire(&semaphore, (unsigned)wants[t], t ? WEFT_NEVER : deadline);
        if (outcome[t] == 0)
            model_check(weft_semaphore_release(&semaphore, (unsigned)wants[t]) == 0);
        parker_leaves(t);
    } else if (t < takers + givers) {
        model_check(weft_semaphore_release(&semaphore, 1) == 0);
    } else {
        weft__cancel(&parker[0]);
    }
}

static void check_permits(void)
{
    parkers_check(takers);
    model_check(weft_semaphore_available(&semaphore) == (unsigned)givers);
    model_check(weft__queue_empty(&of_semaphore(&semaphore)->queue));
    model_check(outcome[1] == 0);
    model_check(outcome[0] == 0 || outcome[0] == -ETIMEDOUT || outcome[0] == -ECANCELED);
}

static void explore(const char *name, int bound)
{
    parkers_explore(name, threads, setup, take_or_give, check_permits, bound);
}

static void one_taker(void **state)
{
    (void)state;
    takers = 1;
    givers = 2;
    threads = 3;
    wants[0] = 2;
    deadline = WEFT_NEVER;
    explore("semaphore, 1 wants 2, 2 give", 0);
    deadline = MODEL_SOON;
    explore("semaphore, 1 wants 2 with a deadline, 2 give", 0);
}

/* The first in the queue wants more than there is, and may leave. */
static void two_takers(void **state)
{
    (void)state;
    takers = 2;
    givers = 1; /* so the first cannot get what it wants */
    threads = 3;
    wants[0] = 2;
    wants[1] = 1;
    deadline = MODEL_SOON;
    explore("semaphore, wants of 2 with a deadline and 1, 1 gives", 0);
    givers = 2;
    threads = 4;
    explore("semaphore, wants of 2 with a deadline and 1, 2 give", 2);
    threads = 5;
    explore("semaphore, the same, cancel", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_taker),
        cmocka_unit_test(two_takers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

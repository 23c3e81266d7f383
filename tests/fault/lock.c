/* SPDX-License-Identifier: MIT
 *
 * The small lock keeps its promise when the kernel's futex wait returns for no reason
 * (EINTR, EAGAIN) or late: nobody enters twice, nobody is left asleep.
 */
#include "unit_test.h"

#include "base/lock.h"
#include "base/sys.h"
#include "harness.h"
#include "preload/preload.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define THREADS 4

static weft__lock lock;
static uint64_t counter; /* under lock */
static uint64_t rounds;

static void *add(void *argument)
{
    for (uint64_t i = 0; i < rounds; i++) {
        weft__acquire(&lock);
        uint64_t seen = counter;
        if (i % 64 == 0)
            sched_yield(); /* held long enough for others to go to sleep */
        counter = seen + 1;
        weft__release(&lock);
    }
    return argument;
}

static void contend_under(const struct preload_rule *rule)
{
    pthread_t t[THREADS];
    weft__lock_init(&lock);
    counter = 0;
    rounds = test_rounds(20000);
    assert_int_equal(preload_set(PRELOAD_FUTEX_WAIT, rule), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, add, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_int_equal(counter, THREADS * rounds);
    assert_int_equal(atom_load_rlx(&lock.word), 0);
    preload_reset();
}

static void interrupted_waits_go_on(void **state)
{
    (void)state;
    contend_under(&(struct preload_rule){.action = PRELOAD_FAIL, .error = EINTR, .every = 1});
    contend_under(&(struct preload_rule){.action = PRELOAD_FAIL, .error = EAGAIN, .every = 2});
}

static void late_sleepers_are_not_forgotten(void **state)
{
    (void)state;
    contend_under(
        &(struct preload_rule){.action = PRELOAD_DELAY, .ns = 200000, .every = 5, .times = 200});
}

static void the_fault_is_really_injected(void **state)
{
    (void)state;
    weft__a32 word = {.raw = 7};
    struct preload_rule rule = {.action = PRELOAD_FAIL, .error = EINTR};
    assert_int_equal(preload_set(PRELOAD_FUTEX_WAIT, &rule), 0);
    /* Would sleep for ever. */
    assert_int_equal(weft__sys_futex_wait(&word, 7, WEFT_NEVER), 0);
    assert_int_equal(preload_hits(PRELOAD_FUTEX_WAIT), 1);
    preload_reset();
}

int main(void)
{
    test_limit(60, "fault.lock");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fault_is_really_injected),
        cmocka_unit_test(interrupted_waits_go_on),
        cmocka_unit_test(late_sleepers_are_not_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

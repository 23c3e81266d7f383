/* SPDX-License-Identifier: MIT
 *
 * A mutex may be held across a suspension: tasks that lock, yield and unlock all end, on
 * one worker and on several; and a task that spawns far more children than any queue
 * holds, while it keeps the lock that each of them takes first, is not stopped by them.
 */
#include "unit_test.h"

#include "harness.h"
#include "weft/mutex.h"
#include "weft/runtime.h"
#include "weft/task.h"
#include "weft/waitgroup.h"

static weft_mutex lock;
static weft_waitgroup all;
static long inside, total;

static int lock_yield_unlock(void *arg)
{
    assert_int_equal(weft_mutex_lock(&lock, WEFT_NEVER), 0);
    assert_int_equal(inside++, 0);
    if (arg)
        assert_int_equal(weft_yield(), 0);
    inside--;
    total++;
    assert_int_equal(weft_mutex_unlock(&lock), 0);
    assert_int_equal(weft_waitgroup_done(&all), 0);
    return 0;
}

static void begin(void)
{
    inside = total = 0;
    assert_int_equal(weft_mutex_init(&lock), 0);
    assert_int_equal(weft_waitgroup_init(&all), 0);
}

static void held_across_yields(void **state)
{
    (void)state;
    test_limit(60, "held_across_yields");
    for (unsigned workers = 1; workers <= 3; workers++) {
        weft_runtime *rt;
        begin();
        assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(weft_waitgroup_add(&all, 1), 0);
            assert_int_equal(weft_spawn(rt, lock_yield_unlock, &lock, NULL, NULL), 0);
        }
        assert_int_equal(weft_waitgroup_wait(&all, WEFT_NEVER), 0);
        assert_int_equal(total, 100);
        weft_runtime_free(rt);
    }
}

static int spawn_under_the_lock(void *arg)
{
    long n = *(long *)arg;
    assert_int_equal(weft_mutex_lock(&lock, WEFT_NEVER), 0);
    for (long i = 0; i < n; i++) {
        assert_int_equal(weft_waitgroup_add(&all, 1), 0);
        assert_int_equal(weft_go(lock_yield_unlock, NULL), 0);
    }
    assert_int_equal(total, 0); /* nobody got past the lock */
    return weft_mutex_unlock(&lock);
}

static void spawner_keeps_the_lock(void **state)
{
    (void)state;
    test_limit(100, "spawner_keeps_the_lock");
    long n = test_sanitized() ? 2000 : 100000; /* each that waits for the lock has a stack */
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt;
        weft_task *t;
        int result = -1;
        begin();
        assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
        assert_int_equal(weft_spawn(rt, spawn_under_the_lock, &n, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
        assert_int_equal(result, 0);
        assert_int_equal(weft_waitgroup_wait(&all, WEFT_NEVER), 0);
        assert_int_equal(total, n);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_across_yields),
        cmocka_unit_test(spawner_keeps_the_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

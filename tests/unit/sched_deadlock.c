/* SPDX-License-Identifier: MIT
 *
 * Tasks that can only wait for each other are counted, and only then: not while one of
 * them sleeps, has a deadline, was promised a resume, or runs.
 */
#include "unit_test.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "harness.h"
#include "weft/channel.h"
#include "weft/driven.h"
#include "weft/event.h"
#include "weft/mutex.h"
#include "weft/runtime.h"
#include "weft/select.h"
#include "weft/stall.h"
#include "weft/task.h"

static weft_mutex a, b;
static weft_event never;
static atomic_int arrived;
static atomic_bool stop;

/* Two of them, the wrong way round. */
static int locks_both(void *arg)
{
    weft_mutex *first = arg, *second = first == &a ? &b : &a;
    assert_int_equal(weft_mutex_lock(first, WEFT_NEVER), 0);
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 2)
        if (weft_yield() != 0)
            break;
    int r = weft_mutex_lock(second, WEFT_NEVER);
    if (r == 0)
        weft_mutex_unlock(second);
    weft_mutex_unlock(first);
    return r;
}

static int waits(void *arg)
{
    return weft_event_wait(&never, *(weft_time *)arg);
}

static int sleeps(void *arg)
{
    return weft_sleep_until(*(weft_time *)arg);
}

static int suspends(void *arg)
{
    return weft_suspend(*(weft_time *)arg);
}

static int selects(void *arg)
{
    weft_select_case c = weft_case_event(&never);
    return weft_select(&c, 1, 0, *(weft_time *)arg);
}

static int runs(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        if (weft_yield() != 0)
            break;
    return 0;
}

static weft_runtime *begin(unsigned workers)
{
    weft_runtime *rt;
    atomic_store(&arrived, 0);
    atomic_store(&stop, false);
    weft_event_init(&never);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

/* Asks until the answer is `wanted`. */
static void must_become(weft_runtime *rt, int wanted)
{
    int n = -1;
    for (int i = 0; i < 60000 && (n = weft_runtime_deadlocked(rt)) != wanted; i++)
        test_sleep_ms(1);
    assert_int_equal(n, wanted);
}

static void who_waits_for_the_other_is_counted(void **state)
{
    weft_runtime *rt = begin(2);
    (void)state;
    assert_int_equal(weft_runtime_deadlocked(rt), 0); /* no tasks, no deadlock */
    assert_int_equal(weft_spawn(rt, locks_both, &a, NULL, NULL), 0);
    assert_int_equal(weft_spawn(rt, locks_both, &b, NULL, NULL), 0);
    must_become(rt, 2);
    assert_int_equal(weft_runtime_deadlocked(rt), 2);
    assert_int_equal(weft_runtime_shutdown(rt, weft_after(60 * WEFT_SEC)), 0);
    assert_int_equal(weft_runtime_deadlocked(rt), 0);
    weft_runtime_free(rt);
}

static void something_else_may_still_happen(void **state)
{
    static const struct {
        weft_fn fn;
        bool limited;
    } others[] = {
        {sleeps, true}, {waits, true}, {suspends, false}, {selects, false}, {runs, false}};
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        weft_time no_limit = WEFT_NEVER;
        weft_time limit = others[i].limited ? weft_after(3600 * WEFT_SEC) : WEFT_NEVER;
        weft_runtime *rt = begin(2);
        weft_task *t;
        assert_int_equal(weft_spawn(rt, waits, &no_limit, NULL, NULL), 0);
        must_become(rt, 1);
        assert_int_equal(weft_spawn(rt, others[i].fn, &limit, NULL, &t), 0);
        for (int k = 0; k < 30; k++) {
            assert_int_equal(weft_runtime_deadlocked(rt), 0);
            test_sleep_ms(1);
        }
        atomic_store(&stop, true);
        int cancelled = weft_task_cancel(t); /* the one that runs may have stopped by itself */
        assert_true(cancelled == 0 || (others[i].fn == runs && cancelled == -EALREADY));
        assert_int_equal(weft_task_join(t, weft_after(60 * WEFT_SEC), NULL), 0);
        weft_task_unref(t); /* it has ended, and the one that waits is alone again */
        must_become(rt, 1);
        weft_event_set(&never);
        weft_runtime_free(rt);
    }
}

static int echoes(void *arg)
{
    weft_channel **ch = arg;
    int item;
    while (weft_channel_recv(ch[0], &item, WEFT_NEVER) == 0)
        if (weft_channel_send(ch[1], &item, WEFT_NEVER) != 0)
            break;
    return 0;
}

static int asks(void *arg)
{
    weft_channel **ch = arg;
    int item = 0;
    while (!atomic_load(&stop))
        if (weft_channel_send(ch[0], &item, WEFT_NEVER) != 0 ||
            weft_channel_recv(ch[1], &item, WEFT_NEVER) != 0)
            break;
    weft_channel_close(ch[0]);
    return 0;
}

/* Two that hand over all the time are never both seen waiting. */
static void no_alarm_beside_work(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        weft_channel *ch[2];
        weft_task *t[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(weft_channel_new(sizeof(int), 0, NULL, &ch[i]), 0);
        assert_int_equal(weft_spawn(rt, echoes, ch, NULL, &t[0]), 0);
        assert_int_equal(weft_spawn(rt, asks, ch, NULL, &t[1]), 0);
        test_sleep_ms(10);
        uint64_t rounds = test_rounds(200000);
        for (uint64_t i = 0; i < rounds; i++)
            assert_int_equal(weft_runtime_deadlocked(rt), 0);
        atomic_store(&stop, true);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(weft_task_join(t[i], weft_after(60 * WEFT_SEC), NULL), 0);
            weft_task_unref(t[i]);
            weft_channel_unref(ch[i]);
        }
        weft_runtime_free(rt);
    }
}

static void bad_input_has_an_answer(void **state)
{
    weft_runtime *rt;
    weft_time no_limit = WEFT_NEVER;
    (void)state;
    assert_int_equal(weft_runtime_deadlocked(NULL), -EINVAL);
    assert_int_equal(weft_driven_new(NULL, &rt), 0);
    weft_event_init(&never);
    assert_int_equal(weft_spawn(rt, waits, &no_limit, NULL, NULL), 0);
    assert_int_equal(weft_runtime_deadlocked(rt), 0);
    assert_true(weft_driven_turn(rt, NULL) >= 0);
    assert_int_equal(weft_runtime_deadlocked(rt), 1);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_the_other_is_counted),
        cmocka_unit_test(something_else_may_still_happen),
        cmocka_unit_test(no_alarm_beside_work),
        cmocka_unit_test(bad_input_has_an_answer),
    };
    test_limit(60, "sched_deadlock");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * weft_block_on: a call into a runtime of either kind that ends at once, waits, is late,
 * is cancelled from above, is made from a wrong place or on a bad day. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "weft/driven.h"
#include "weft/event.h"
#include "weft/task.h"

static weft_runtime *host(const weft_runtime_options *options)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_driven_new(options, &rt), 0);
    return rt;
}

static weft_runtime *threads(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static int add_one(void *arg)
{
    return ++*(int *)arg;
}

static int sleep_twice(void *arg)
{
    int r = weft_sleep(2 * WEFT_MSEC);
    return r ? r : weft_sleep(2 * WEFT_MSEC) + add_one(arg);
}

static void calls(weft_runtime *rt)
{
    int n = 0, result = -1;
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(weft_block_on(rt, add_one, &n, WEFT_NEVER, &result), 0);
        assert_int_equal(result, i);
    }
    assert_int_equal(weft_block_on(rt, add_one, &n, WEFT_NEVER, NULL), 0);
    assert_int_equal(weft_block_on(rt, sleep_twice, &n, weft_after(50 * WEFT_SEC), &result), 0);
    assert_int_equal(result, 102);
    weft_runtime_stats s;
    do { /* with threads the last one may still be on its way out */
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
    } while (s.alive);
    assert_int_equal(s.finished, s.spawned);
}

static void a_call_runs_and_answers(void **state)
{
    (void)state;
    weft_runtime *rt = host(NULL);
    calls(rt);
    weft_runtime_free(rt);
    rt = threads(2);
    calls(rt);
    weft_runtime_free(rt);
}

/* What was ready before stays ready, what the call spawns runs when it waits. */
static int spawns_and_yields(void *arg)
{
    assert_int_equal(weft_go(add_one, arg), 0);
    while (*(int *)arg == 0)
        weft_yield();
    return 7;
}

static void others_run_while_it_waits(void **state)
{
    (void)state;
    weft_runtime *rt = host(NULL);
    int before = 0, child = 0, n = 0, result = 0;
    assert_int_equal(weft_driven_plan(rt, NULL, NULL), WEFT_PLAN_NEVER); /* armed */
    assert_int_equal(weft_spawn(rt, add_one, &before, NULL, NULL), 0);
    assert_int_equal(weft_block_on(rt, add_one, &n, WEFT_NEVER, NULL), 0);
    assert_int_equal(before, 0);
    assert_int_equal(weft_driven_plan(rt, NULL, NULL), WEFT_PLAN_NOW);
    assert_int_equal(weft_block_on(rt, spawns_and_yields, &child, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 7);
    assert_int_equal(before, 1);
    assert_int_equal(weft_driven_plan(rt, NULL, NULL), WEFT_PLAN_NEVER);
    weft_runtime_free(rt);
}

static weft_event gate;

static int wait_for_gate(void *arg)
{
    (void)arg;
    return weft_event_wait(&gate, WEFT_NEVER);
}

static void *open_gate(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    weft_event_set(&gate);
    return NULL;
}

static void woken_from(weft_runtime *rt)
{
    pthread_t t;
    int result = -1;
    gate = (weft_event)WEFT_EVENT_INIT;
    assert_int_equal(pthread_create(&t, NULL, open_gate, NULL), 0);
    assert_int_equal(weft_block_on(rt, wait_for_gate, NULL, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 0);
    pthread_join(t, NULL);
    weft_runtime_free(rt);
}

static void another_thread_wakes_it(void **state)
{
    (void)state;
    woken_from(host(NULL));
    woken_from(threads(1));
}

/* On the caller's stack, and used until the very end. */
struct late {
    int cancelled, cleaned;
};

static int clean_up_slowly(void *arg)
{
    struct late *l = arg;
    l->cancelled = weft_sleep_until(WEFT_NEVER) == -ECANCELED;
    weft_shield_enter();
    weft_sleep(5 * WEFT_MSEC);
    weft_shield_leave();
    l->cleaned = 1;
    return 0;
}

static void late(weft_runtime *rt, weft_time deadline)
{
    struct late l = {0, 0};
    int result = 55;
    assert_int_equal(weft_block_on(rt, clean_up_slowly, &l, deadline, &result), -ETIMEDOUT);
    assert_true(l.cancelled && l.cleaned);
    assert_int_equal(result, 55);
}

static void the_deadline_cancels_and_waits_for_the_end(void **state)
{
    (void)state;
    weft_runtime *rt[] = {host(NULL), threads(1)};
    for (int i = 0; i < 2; i++) {
        late(rt[i], weft_after(3 * WEFT_MSEC));
        late(rt[i], weft_now() - 1);
        late(rt[i], WEFT_TRY);
        weft_runtime_free(rt[i]);
    }
}

static int call_and_be_cancelled(void *arg)
{
    struct late l = {0, 0};
    int r = weft_block_on(arg, clean_up_slowly, &l, WEFT_NEVER, NULL);
    assert_true(l.cancelled && l.cleaned);
    return r;
}

static int cancel_in_a_moment(void *arg)
{
    weft_sleep(3 * WEFT_MSEC);
    assert_int_equal(weft_task_cancel(arg), 0);
    weft_task_unref(arg);
    return 0;
}

static void a_cancelled_caller_ends_it(void **state)
{
    (void)state;
    weft_runtime *inner[] = {host(NULL), threads(1)}, *outer = threads(2);
    for (int i = 0; i < 2; i++) {
        weft_task *t;
        int result = 0;
        assert_int_equal(weft_spawn(outer, call_and_be_cancelled, inner[i], NULL, &t), 0);
        weft_task *also = weft_task_ref(t);
        assert_int_equal(weft_spawn(outer, cancel_in_a_moment, also, NULL, NULL), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
        assert_int_equal(result, -ECANCELED);
        weft_task_unref(t);
        weft_runtime_free(inner[i]);
    }
    weft_runtime_free(outer);
}

static int inside(void *arg)
{
    int n = 0, result = 0;
    assert_int_equal(weft_block_on(arg, add_one, &n, WEFT_NEVER, &result), 0);
    assert_int_equal(weft_block_on(NULL, add_one, &n, WEFT_NEVER, &result), 0);
    return result;
}

static int into_another(void *arg)
{
    int n = 4, result = 0;
    assert_int_equal(weft_block_on(arg, add_one, &n, WEFT_NEVER, &result), 0);
    return result;
}

static int inside_its_host(void *arg)
{
    return weft_block_on(arg, add_one, NULL, WEFT_NEVER, NULL);
}

static int from_poll(weft_task *self, void *state)
{
    (void)self;
    weft_runtime **rt = state;
    assert_int_equal(weft_block_on(*rt, add_one, NULL, WEFT_NEVER, NULL), -EPERM);
    return 0;
}

static void nested_and_wrong_places(void **state)
{
    (void)state;
    weft_runtime *rt = threads(1), *driven = host(NULL);
    int result = 0;
    assert_int_equal(weft_block_on(rt, inside, rt, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 2);
    assert_int_equal(weft_block_on(driven, into_another, rt, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 5);
    assert_int_equal(weft_block_on(driven, inside_its_host, driven, WEFT_NEVER, &result), 0);
    assert_int_equal(result, -EDEADLK);
    assert_int_equal(weft_block_on(NULL, add_one, NULL, WEFT_NEVER, NULL), -EINVAL);
    assert_int_equal(weft_block_on(rt, NULL, NULL, WEFT_NEVER, NULL), -EINVAL);
    weft_task *t;
    assert_int_equal(weft_spawn_poll(rt, from_poll, &rt, sizeof rt, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
    weft_runtime_free(driven);
    weft_runtime_free(rt);
}

static void refused(weft_runtime *rt)
{
    int n = 0;
    weft_task *t;
    struct late l = {0, 0};
    assert_int_equal(weft_spawn(rt, clean_up_slowly, &l, NULL, &t), 0);
    assert_int_equal(weft_block_on(rt, add_one, &n, WEFT_NEVER, NULL), -EAGAIN);
    assert_int_equal(weft_runtime_shutdown(rt, WEFT_NEVER), 0);
    assert_int_equal(weft_block_on(rt, add_one, &n, WEFT_NEVER, NULL), -ESHUTDOWN);
    assert_int_equal(n, 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

static void caps_and_the_end_refuse_it(void **state)
{
    (void)state;
    refused(host(&(weft_runtime_options){.max_tasks = 1}));
    weft_runtime *rt;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1, .max_tasks = 1}, &rt),
                     0);
    refused(rt);
}

/* Several threads, one host-driven runtime: each call is answered or refused as busy. */
enum { CALLERS = 3, CALLS = 300 };

static int yield_some(void *arg)
{
    for (int i = 0; i < 3; i++)
        weft_yield();
    return add_one(arg);
}

static void *caller(void *rt)
{
    intptr_t answered = 0;
    for (int i = 0; i < CALLS; i++) {
        int n = 0, result = 0;
        int r = weft_block_on(rt, yield_some, &n, WEFT_NEVER, &result);
        assert_true(r == -EBUSY || (r == 0 && result == 1));
        answered += r == 0;
    }
    return (void *)answered;
}

static void threads_share_a_host(void **state)
{
    (void)state;
    weft_runtime *rt = host(NULL);
    pthread_t t[CALLERS];
    intptr_t sum = 0;
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, caller, rt), 0);
    for (int i = 0; i < CALLERS; i++) {
        void *answered;
        pthread_join(t[i], &answered);
        sum += (intptr_t)answered;
    }
    assert_true(sum > 0);
    weft_runtime_stats s;
    assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
    assert_int_equal(s.finished, sum);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_runs_and_answers),
        cmocka_unit_test(others_run_while_it_waits),
        cmocka_unit_test(another_thread_wakes_it),
        cmocka_unit_test(the_deadline_cancels_and_waits_for_the_end),
        cmocka_unit_test(a_cancelled_caller_ends_it),
        cmocka_unit_test(nested_and_wrong_places),
        cmocka_unit_test(caps_and_the_end_refuse_it),
        cmocka_unit_test(threads_share_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

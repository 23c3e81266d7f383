/* SPDX-License-Identifier: MIT
 *
 * Promises: await with a limit, all, race, any, with a predicate; which losers are
 * cancelled; the outcomes' errors and ids; from fibers and from plain threads. */
#include "unit_test.h"

#include <errno.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/channel.h"
#include "weft/promise.h"
#include "weft/runtime.h"

struct job {
    weft_time sleep;
    int result;
    bool stubborn; /* takes a moment to clean up */
    bool cleaned;
};

static int work(void *arg)
{
    struct job *j = arg;
    int r = j->sleep ? weft_sleep(j->sleep) : 0;
    if (j->stubborn) {
        weft_shield_enter();
        weft_sleep(5 * WEFT_MSEC);
        weft_shield_leave();
    }
    j->cleaned = true;
    return r ? r : j->result;
}

static void spawn_all(weft_runtime *rt, struct job *jobs, weft_task **t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(weft_spawn(rt, work, &jobs[i], NULL, &t[i]), 0);
}

static void drop_all(weft_task **t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weft_task_cancel(t[i]);
        assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(t[i]);
    }
}

/* Each test body runs on a plain thread, in a fiber among one worker, and among three. */
static void everywhere(int (*body)(void *rt))
{
    weft_runtime *rt;
    for (unsigned workers = 1; workers <= 3; workers += 2) {
        weft_task *t;
        assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
        body(rt);
        assert_int_equal(weft_spawn(rt, body, rt, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
}

static int await_body(void *rt)
{
    struct job j[2] = {{0, 7, false, false}, {WEFT_NEVER / 2, 0, true, false}};
    weft_task *t[2];
    int result = -1;
    spawn_all(rt, j, t, 2);
    assert_int_equal(weft_task_await(t[0], WEFT_NEVER, &result), 0);
    assert_int_equal(result, 7);
    assert_int_equal(weft_task_await(t[0], weft_now(), &result), 0); /* settled: no time-out */
    assert_int_equal(weft_task_await(t[1], WEFT_TRY, &result), -EAGAIN);
    assert_int_equal(weft_task_await(t[1], weft_after(2 * WEFT_MSEC), &result), -ETIMEDOUT);
    assert_int_equal(result, 7);
    /* It was cancelled and unwinds. */
    assert_int_equal(weft_task_cancel(t[1]), -EALREADY);
    assert_int_equal(weft_task_join(t[1], WEFT_NEVER, &result), 0);
    assert_int_equal(result, -ECANCELED);
    assert_true(j[1].cleaned);
    drop_all(t, 2);
    return 0;
}

static void await_cancels_at_the_deadline(void **state)
{
    (void)state;
    assert_int_equal(weft_task_await(NULL, WEFT_NEVER, NULL), -EINVAL);
    everywhere(await_body);
}

static int all_body(void *rt)
{
    struct job j[10];
    weft_task *t[10];
    weft_outcome out[10];
    for (int i = 0; i < 10; i++)
        j[i] = (struct job){i % 3 * WEFT_MSEC, i % 2 ? -i : i, false, false};
    spawn_all(rt, j, t, 10);
    assert_int_equal(weft_await_all(t, 10, 0, WEFT_NEVER, out), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(out[i].state, WEFT_OUTCOME_SETTLED);
        assert_int_equal(out[i].result, j[i].result);
        assert_int_equal(out[i].id, weft_task_id(t[i]));
    }
    drop_all(t, 10);

    j[3].sleep = WEFT_NEVER / 2;
    j[5].sleep = WEFT_NEVER / 2;
    spawn_all(rt, j, t, 10);
    assert_int_equal(weft_await_all(t, 10, WEFT_AWAIT_FAIL_FAST, weft_after(20 * WEFT_SEC), out),
                     -ECHILD);
    assert_int_equal(out[3].state, WEFT_OUTCOME_RUNNING);
    assert_int_equal(weft_await_all(t, 10, WEFT_AWAIT_CANCEL_REST, weft_after(30 * WEFT_MSEC), out),
                     -ETIMEDOUT);
    for (int i = 0; i < 10; i++)
        assert_true(out[i].state != WEFT_OUTCOME_RUNNING);
    assert_int_equal(out[3].state, WEFT_OUTCOME_CANCELLED);
    assert_int_equal(out[5].state, WEFT_OUTCOME_CANCELLED);
    assert_int_equal(weft_await_all(t, 10, 0, WEFT_NEVER, out), 0);
    assert_int_equal(out[3].result, -ECANCELED);
    drop_all(t, 10);
    return 0;
}

static void all_waits_for_each(void **state)
{
    (void)state;
    assert_int_equal(weft_await_all(NULL, 0, 0, WEFT_NEVER, NULL), 0);
    assert_int_equal(weft_await_all(NULL, 1, 0, WEFT_NEVER, NULL), -EINVAL);
    assert_int_equal(weft_await_all(NULL, 0, 64, WEFT_NEVER, NULL), -EINVAL);
    everywhere(all_body);
}

static int race_body(void *rt)
{
    struct job j[3] = {{WEFT_NEVER / 2, 0, false, false},
                       {WEFT_MSEC, -5, false, false},
                       {WEFT_NEVER / 2, 0, true, false}};
    weft_task *t[3];
    weft_outcome out[3];
    spawn_all(rt, j, t, 3);
    assert_int_equal(weft_await_race(t, 3, 0, WEFT_NEVER, out), 1);
    assert_int_equal(out[1].result, -5);
    assert_int_equal(out[0].state, WEFT_OUTCOME_RUNNING);
    /* The losers stay awaitable. */
    weft_task *losers[2] = {t[0], t[2]};
    assert_int_equal(weft_await_race(losers, 2, 0, WEFT_TRY, NULL), -EAGAIN);
    assert_int_equal(weft_await_race(t, 3, WEFT_AWAIT_CANCEL_REST, WEFT_NEVER, out), 1);
    assert_int_equal(out[0].state, WEFT_OUTCOME_CANCELLED);
    assert_int_equal(out[2].state, WEFT_OUTCOME_CANCELLED);
    assert_int_equal(weft_await_all(t, 3, 0, WEFT_NEVER, out), 0);
    assert_int_equal(out[0].result, -ECANCELED);
    assert_true(j[2].cleaned);
    drop_all(t, 3);
    return 0;
}

static void race_takes_the_first(void **state)
{
    (void)state;
    assert_int_equal(weft_await_race(NULL, 0, 0, WEFT_NEVER, NULL), -EINVAL);
    everywhere(race_body);
}

static bool is_even(int result, void *arg)
{
    ++*(int *)arg;
    return result % 2 == 0;
}

static int any_body(void *rt)
{
    enum { N = 12 }; /* more than lie on the stack */
    struct job j[N];
    weft_task *t[N];
    weft_outcome out[N];
    for (int i = 0; i < N; i++)
        j[i] = (struct job){i % 4 * WEFT_MSEC, -100 - i, false, false};
    spawn_all(rt, j, t, N);
    assert_int_equal(weft_await_any(t, N, 0, WEFT_NEVER, out), -ECHILD);
    for (int i = 0; i < N; i++) {
        assert_int_equal(out[i].result, -100 - i);
        assert_int_equal(out[i].id, weft_task_id(t[i]));
    }
    int asked = 0;
    assert_int_equal(weft_await_match(t, N, is_even, &asked, 0, WEFT_NEVER, NULL), 0);
    assert_int_equal(asked, 1);
    drop_all(t, N);

    j[7] = (struct job){8 * WEFT_MSEC, 3, false, false};
    j[2].sleep = WEFT_NEVER / 2;
    spawn_all(rt, j, t, N);
    assert_int_equal(weft_await_any(t, N, WEFT_AWAIT_CANCEL_REST, WEFT_NEVER, out), 7);
    assert_int_equal(out[7].result, 3);
    assert_int_equal(out[2].state, WEFT_OUTCOME_CANCELLED);
    drop_all(t, N);

    /* At a deadline: the errors so far, and who was cancelled. */
    j[7].sleep = WEFT_NEVER / 2;
    spawn_all(rt, j, t, N);
    assert_int_equal(weft_await_any(t, N, WEFT_AWAIT_CANCEL_REST, weft_after(40 * WEFT_MSEC), out),
                     -ETIMEDOUT);
    assert_int_equal(out[7].state, WEFT_OUTCOME_CANCELLED);
    assert_int_equal(out[2].state, WEFT_OUTCOME_CANCELLED);
    drop_all(t, N);
    return 0;
}

static void any_takes_the_first_fulfilled(void **state)
{
    (void)state;
    assert_int_equal(weft_await_match(NULL, 1, NULL, NULL, 0, WEFT_NEVER, NULL), -EINVAL);
    everywhere(any_body);
}

static int waits_for_both(void *arg)
{
    struct job slow = {WEFT_NEVER / 2, 0, false, false};
    weft_channel *ch = arg;
    weft_task *t;
    int item = 0;
    assert_int_equal(weft_spawn(NULL, work, &slow, NULL, &t), 0);
    weft_select_case cases[] = {weft_case_task(t), weft_case_recv(ch, &item)};
    assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 1);
    assert_int_equal(item, 9);
    weft_task_cancel(t);
    assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 0);
    assert_int_equal(cases[0].result, 0);
    weft_select_case none = weft_case_task(NULL);
    assert_int_equal(weft_select(&none, 1, 0, WEFT_TRY), -EINVAL);
    weft_task *self = weft_task_self();
    assert_int_equal(weft_await_race(&self, 1, 0, WEFT_NEVER, NULL), -EDEADLK);
    weft_task_unref(t);
    return 0;
}

static void tasks_are_select_cases(void **state)
{
    weft_channel *ch;
    weft_runtime *rt;
    weft_task *t;
    int item = 9;
    (void)state;
    assert_int_equal(weft_channel_new(sizeof(int), 0, NULL, &ch), 0);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    assert_int_equal(weft_spawn(rt, waits_for_both, ch, NULL, &t), 0);
    assert_int_equal(weft_channel_send(ch, &item, WEFT_NEVER), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
    weft_channel_unref(ch);
}

/* The limit and the end made to meet: exactly one of the two is the answer, and the
 * result says the same. */
static int meets_end(void *rt)
{
    uint64_t rounds = test_rounds(1500);
    for (uint64_t i = 0; i < rounds; i++) {
        struct job j = {60 * WEFT_USEC, 1, false, false};
        weft_task *t;
        int result = 99, final;
        assert_int_equal(weft_spawn(rt, work, &j, NULL, &t), 0);
        int r = weft_task_await(t, weft_after((weft_time)(40 + i % 50) * WEFT_USEC), &result);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &final), 0);
        if (r == 0)
            assert_int_equal(result, final);
        else
            assert_true(r == -ETIMEDOUT && result == 99);
        weft_task_unref(t);
    }
    return 0;
}

static void deadline_and_end_are_decided_once(void **state)
{
    (void)state;
    everywhere(meets_end);
}

int main(void)
{
    test_limit(50, "sched_promise");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(await_cancels_at_the_deadline),
        cmocka_unit_test(all_waits_for_each),
        cmocka_unit_test(race_takes_the_first),
        cmocka_unit_test(any_takes_the_first_fulfilled),
        cmocka_unit_test(tasks_are_select_cases),
        cmocka_unit_test(deadline_and_end_are_decided_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

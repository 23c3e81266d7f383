/* SPDX-License-Identifier: MIT
 *
 * Scopes: nothing outlives them, cancelling reaches everything inside and nothing else,
 * fail-fast, deadlines, owners that are cancelled, that forget to close, that are threads. */
#include "unit_test.h"

#include <errno.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/event.h"
#include "weft/runtime.h"
#include "weft/scope.h"

static weft__a32 started, cleaned;

static void reset(void)
{
    atom_store_rlx(&started, 0u);
    atom_store_rlx(&cleaned, 0u);
}

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

/* Runs `body` as a fiber on one worker and on three; its result must be 0. */
static void in_fibers(weft_fn body)
{
    for (unsigned workers = 1; workers <= 3; workers += 2) {
        weft_runtime *rt = runtime(workers);
        weft_task *t;
        int result = -1;
        reset();
        assert_int_equal(weft_spawn(rt, body, rt, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
        assert_int_equal(result, 0);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
}

/* Sleeps until cancelled, then takes a moment to clean up. */
static int sleeper(void *arg)
{
    (void)arg;
    atom_add_rlx(&started, 1u);
    int r = weft_sleep_until(WEFT_NEVER);
    weft_shield_enter();
    weft_sleep(2 * WEFT_MSEC);
    weft_shield_leave();
    atom_add_rlx(&cleaned, 1u);
    return r;
}

static int quick(void *arg)
{
    atom_add_rlx(&cleaned, 1u);
    return arg ? *(int *)arg : 0;
}

static int join_all_body(void *arg)
{
    static int failure = -7;
    weft_scope *s;
    weft_scope_report report;
    weft_task *t;
    (void)arg;
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_join(s, WEFT_NEVER), 0);
    assert_int_equal(atom_load_rlx(&cleaned), 100);
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_close(s, &report), 0);
    assert_int_equal(report.spawned, 101);
    assert_int_equal(report.failed, 0);

    /* Collecting: one failure cancels nobody. */
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    assert_int_equal(weft_scope_spawn(s, quick, &failure, NULL, &t), 0);
    assert_int_equal(weft_scope_join(s, WEFT_NEVER), 0);
    assert_false(weft_scope_is_cancelled(s));
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_close(s, &report), -7);
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.first_error, -7);
    assert_int_equal(report.first_error_id, weft_task_id(t));
    assert_int_equal(report.cancelled, 0);
    weft_task_unref(t);
    return 0;
}

static void closing_joins_all(void **state)
{
    (void)state;
    in_fibers(join_all_body);
}

static int has_grandchildren(void *arg)
{
    weft_scope *s;
    (void)arg;
    atom_add_rlx(&started, 1u);
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_scope_spawn(s, sleeper, NULL, NULL, NULL), 0);
    weft_sleep_until(WEFT_NEVER);
    int r = weft_scope_close(s, NULL);
    atom_add_rlx(&cleaned, 1u);
    return r;
}

static int outsider(void *arg)
{
    return weft_event_wait(arg, WEFT_NEVER);
}

static int tree_body(void *rt)
{
    weft_scope *s, *inner;
    weft_event stop = WEFT_EVENT_INIT;
    weft_task *out;
    int result = -1;
    assert_int_equal(weft_spawn(rt, outsider, &stop, NULL, &out), 0);
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_scope_spawn(s, has_grandchildren, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_open(NULL, &inner), 0);
    assert_int_equal(weft_scope_spawn(inner, sleeper, NULL, NULL, NULL), 0);
    while (atom_load_rlx(&started) != 111)
        weft_sleep(WEFT_MSEC);
    assert_int_equal(weft_scope_join(s, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_scope_join(s, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_scope_close(s, NULL), -EBUSY);
    weft_time begun = weft_now();
    assert_int_equal(weft_scope_cancel(s), 0);
    assert_int_equal(weft_scope_cancel(s), -EALREADY);
    assert_true(weft_scope_is_cancelled(inner));
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), -ECANCELED);
    assert_int_equal(weft_scope_spawn(inner, quick, NULL, NULL, NULL), -ECANCELED);
    assert_int_equal(weft_scope_close(inner, NULL), -ECANCELED);
    assert_int_equal(weft_scope_close(s, NULL), -ECANCELED);
    assert_true(test_sanitized() || weft_now() - begun < WEFT_SEC);
    assert_int_equal(atom_load_rlx(&cleaned), 111); /* each once, before close returned */
    assert_false(weft_cancelled());
    assert_false(weft_task_done(out));
    weft_event_set(&stop);
    assert_int_equal(weft_task_join(out, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 0);
    weft_task_unref(out);
    return 0;
}

static void cancelling_reaches_all_inside(void **state)
{
    (void)state;
    in_fibers(tree_body);
}

/* The owner computes; its children must not wait for it to look. */
static int busy_owner(void *arg)
{
    weft_scope *s;
    weft_shield_enter();
    weft_shield_leave();
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_scope_spawn(s, sleeper, NULL, NULL, NULL), 0);
    atom_add_rlx((weft__a32 *)arg, 1u);
    while (atom_load_rlx(&cleaned) != 10) {
        weft_shield_enter();
        weft_yield();
        weft_shield_leave();
    }
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), -ECANCELED);
    return weft_scope_close(s, NULL);
}

static int cancelled_owner_body(void *rt)
{
    weft__a32 ready = {0};
    weft_task *t;
    int result = 0;
    assert_int_equal(weft_spawn(rt, busy_owner, &ready, NULL, &t), 0);
    while (atom_load_rlx(&started) != 10)
        weft_sleep(WEFT_MSEC);
    assert_int_equal(weft_task_cancel(t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, -ECANCELED);
    weft_task_unref(t);
    return 0;
}

/* The same through the scope that the owner is a member of. */
static int cancelled_above_body(void *rt)
{
    weft__a32 ready = {0};
    weft_scope *s;
    (void)rt;
    reset();
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    assert_int_equal(weft_scope_spawn(s, busy_owner, &ready, NULL, NULL), 0);
    while (atom_load_rlx(&started) != 10)
        weft_sleep(WEFT_MSEC);
    assert_int_equal(weft_scope_cancel(s), 0);
    assert_int_equal(weft_scope_close(s, NULL), -ECANCELED);
    assert_int_equal(atom_load_rlx(&cleaned), 10);
    return 0;
}

static void cancelling_the_owner_reaches_its_scopes(void **state)
{
    (void)state;
    in_fibers(cancelled_owner_body);
    in_fibers(cancelled_above_body);
}

static int born_cancelled(void *arg)
{
    weft_scope *s;
    (void)arg;
    while (!weft_cancelled())
        weft_yield();
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), -ECANCELED);
    assert_int_equal(weft_scope_close(s, NULL), -ECANCELED);
    weft_shield_enter();
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_close(s, NULL), 0);
    weft_shield_leave();
    return 0;
}

static int clean_up_body(void *rt)
{
    weft_task *t;
    int result = -1;
    assert_int_equal(weft_spawn(rt, born_cancelled, NULL, NULL, &t), 0);
    weft_task_cancel(t);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 0);
    weft_task_unref(t);
    return 0;
}

static void scopes_for_clean_up_are_shielded(void **state)
{
    (void)state;
    in_fibers(clean_up_body);
}

static int fail_fast_body(void *arg)
{
    static int failure = -9;
    weft_scope *s;
    weft_scope_report report;
    (void)arg;
    assert_int_equal(weft_scope_open(&(weft_scope_options){.flags = WEFT_SCOPE_FAIL_FAST}, &s), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(weft_scope_spawn(s, sleeper, NULL, NULL, NULL), 0);
    while (atom_load_rlx(&started) != 5)
        weft_sleep(WEFT_MSEC);
    assert_int_equal(weft_scope_spawn(s, quick, &failure, NULL, NULL), 0);
    assert_int_equal(weft_scope_close(s, &report), -9);
    assert_int_equal(report.cancelled, -9);
    assert_int_equal(report.first_error, -9);
    assert_int_equal(report.failed, 6);
    assert_int_equal(atom_load_rlx(&cleaned), 6);
    return 0;
}

static void the_first_failure_cancels_the_rest(void **state)
{
    (void)state;
    in_fibers(fail_fast_body);
}

static int deadline_body(void *arg)
{
    weft_scope *s;
    weft_scope_report report;
    (void)arg;
    weft_time limit = weft_after(20 * WEFT_MSEC);
    assert_int_equal(weft_scope_open(&(weft_scope_options){.deadline = limit}, &s), 0);
    assert_int_equal(weft_scope_spawn(s, has_grandchildren, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_close(s, &report), -ETIMEDOUT);
    assert_true(weft_now() >= limit);
    assert_int_equal(report.cancelled, -ETIMEDOUT);
    assert_int_equal(atom_load_rlx(&cleaned), 11);

    /* One that is not reached leaves nothing behind. */
    limit = weft_after(3600 * WEFT_SEC);
    assert_int_equal(weft_scope_open(&(weft_scope_options){.deadline = limit}, &s), 0);
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_close(s, &report), 0);
    return 0;
}

static void a_deadline_cancels_all_inside(void **state)
{
    (void)state;
    in_fibers(deadline_body);
}

static int forgetful(void *arg)
{
    weft_scope *s;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_scope_open(NULL, &s), 0);
        assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), 0);
    }
    return arg ? 1 : 0;
}

static int forget_body(void *rt)
{
    weft_task *t;
    assert_int_equal(weft_spawn(rt, forgetful, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    assert_int_equal(atom_load_rlx(&cleaned), 3);
    weft_task_unref(t);
    return 0;
}

static void a_fiber_closes_what_it_forgot(void **state)
{
    (void)state;
    in_fibers(forget_body);
}

struct shared {
    weft_scope *scope;
    int depth;
};

static int spreads(void *arg)
{
    struct shared *s = arg;
    atom_add_rlx(&cleaned, 1u);
    for (int i = 0; s->depth && i < 2; i++) {
        struct shared *child = malloc(sizeof *child);
        *child = (struct shared){s->scope, s->depth - 1};
        assert_int_equal(weft_scope_spawn(s->scope, spreads, child, NULL, NULL), 0);
    }
    free(s);
    return 0;
}

static void threads_own_scopes(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    weft_scope *s, *inner;
    weft_scope_report report;
    reset();
    assert_int_equal(weft_scope_open(&(weft_scope_options){.deadline = 1}, &s), -EINVAL);
    assert_int_equal(weft_scope_open(&(weft_scope_options){.flags = 128}, &s), -EINVAL);
    assert_int_equal(weft_scope_open(NULL, NULL), -EINVAL);
    assert_int_equal(weft_scope_close(NULL, NULL), -EINVAL);
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    assert_int_equal(weft_scope_spawn(s, quick, NULL, NULL, NULL), -EINVAL); /* no runtime */
    assert_int_equal(weft_scope_close(s, NULL), 0);

    weft_scope_options o = {.runtime = rt};
    assert_int_equal(weft_scope_open(&o, &s), 0);
    struct shared *root = malloc(sizeof *root);
    *root = (struct shared){s, 8};
    assert_int_equal(weft_scope_spawn(s, spreads, root, NULL, NULL), 0);
    assert_int_equal(weft_scope_close(s, &report), 0);
    assert_int_equal(report.spawned, 511);
    assert_int_equal(atom_load_rlx(&cleaned), 511);

    assert_int_equal(weft_scope_open(&o, &s), 0);
    assert_int_equal(weft_scope_open(&o, &inner), 0);
    assert_int_equal(weft_scope_spawn(inner, sleeper, NULL, NULL, NULL), 0);
    assert_int_equal(weft_scope_cancel(s), 0);
    assert_int_equal(weft_scope_close(s, NULL), -EBUSY);
    assert_int_equal(weft_scope_close(inner, NULL), -ECANCELED);
    assert_int_equal(weft_scope_close(s, NULL), -ECANCELED);
    weft_runtime_free(rt);
}

static int not_the_owner(void *arg)
{
    return weft_scope_close(arg, NULL);
}

static int poll_member(weft_task *self, void *state)
{
    weft_scope *s;
    (void)state;
    assert_int_equal(weft_scope_open(NULL, &s), -EPERM);
    if (!weft_cancelled()) {
        weft_task_wake_at(self, weft_after(3600 * WEFT_SEC));
        return WEFT_PENDING;
    }
    atom_add_rlx(&cleaned, 1u);
    return -ECANCELED;
}

static int poll_body(void *rt)
{
    weft_scope *s;
    weft_task *t;
    int result = 0;
    (void)rt;
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(weft_scope_spawn_poll(s, poll_member, NULL, (size_t)i, NULL, NULL), 0);
    assert_int_equal(weft_scope_spawn(s, not_the_owner, s, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, -EPERM);
    weft_task_unref(t);
    assert_int_equal(weft_scope_spawn_poll(s, NULL, NULL, 0, NULL, NULL), -EINVAL);
    weft_scope_cancel(s);
    weft_scope_close(s, NULL);
    assert_int_equal(atom_load_rlx(&cleaned), 50);
    return 0;
}

static void poll_tasks_are_members(void **state)
{
    (void)state;
    in_fibers(poll_body);
}

/* Shutdown of a runtime whose tasks own scopes with members elsewhere. */
static weft_runtime *elsewhere;

static int owns_abroad(void *arg)
{
    weft_scope *s;
    (void)arg;
    assert_int_equal(weft_scope_open(&(weft_scope_options){.runtime = elsewhere}, &s), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_scope_spawn(s, sleeper, NULL, NULL, NULL), 0);
    return weft_scope_close(s, NULL);
}

static void shutdown_reaches_members_elsewhere(void **state)
{
    (void)state;
    reset();
    weft_runtime *rt = runtime(2);
    elsewhere = runtime(2);
    assert_int_equal(weft_spawn(rt, owns_abroad, NULL, NULL, NULL), 0);
    while (atom_load_rlx(&started) != 10)
        test_sleep_ms(1);
    assert_int_equal(weft_runtime_shutdown(rt, WEFT_NEVER), 0);
    assert_int_equal(atom_load_rlx(&cleaned), 10);
    weft_runtime_free(rt);
    weft_runtime_free(elsewhere);
}

/* Opening, spawning, ending and cancelling from all sides: whoever was started has ended
 * when the scope is closed, and who is cancelled is so at every depth. */
static int churn_leaf(void *arg)
{
    atom_add_rlx(&started, 1u);
    weft_sleep((weft_time)((uintptr_t)arg % 7) * 20 * WEFT_USEC);
    atom_add_rlx(&cleaned, 1u);
    return 0;
}

static int churn_branch(void *arg)
{
    uintptr_t n = (uintptr_t)arg;
    weft_scope *s;
    atom_add_rlx(&started, 1u);
    assert_int_equal(weft_scope_open(NULL, &s), 0);
    for (uintptr_t i = 0; i < 4; i++)
        if (weft_scope_spawn(s, n > 100 ? churn_branch : churn_leaf, (void *)(n / 2 + i), NULL,
                             NULL))
            break;
    int r = weft_scope_close(s, NULL);
    assert_true(r == 0 || r == -ECANCELED);
    if (r == -ECANCELED)
        assert_true(weft_cancelled()); /* only from above */
    atom_add_rlx(&cleaned, 1u);
    return r;
}

static int churn_body(void *rt)
{
    uint64_t rounds = test_rounds(400);
    (void)rt;
    for (uint64_t i = 0; i < rounds; i++) {
        weft_scope *s;
        weft_scope_options o = {.deadline = i % 3 ? 0 : weft_after((weft_time)(i % 40) * 10000)};
        reset();
        assert_int_equal(weft_scope_open(&o, &s), 0);
        for (uintptr_t k = 0; k < 3; k++)
            weft_scope_spawn(s, churn_branch, (void *)(uintptr_t)(300 + i % 7 + k), NULL, NULL);
        if (i % 3 == 1)
            weft_sleep((weft_time)(i % 50) * 5 * WEFT_USEC);
        if (i % 2)
            weft_scope_cancel(s);
        weft_scope_close(s, NULL);
        assert_int_equal(atom_load_acq(&started), atom_load_acq(&cleaned));
    }
    return 0;
}

static void nothing_outlives_a_scope(void **state)
{
    (void)state;
    in_fibers(churn_body);
}

/* Who spawns at the very moment of a cancel is refused, or its task is cancelled. */
static int waits_for_cancel(void *arg)
{
    (void)arg;
    return weft_sleep_until(WEFT_NEVER);
}

static int spawns_on(void *arg)
{
    int r;
    do {
        r = weft_scope_spawn(arg, waits_for_cancel, NULL, NULL, NULL);
        atom_add_rlx(&started, 1u);
    } while (!r && atom_load_rlx(&started) < 3000);
    return 0;
}

static void spawns_race_with_cancel(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(3);
    uint64_t rounds = test_rounds(600);
    for (uint64_t i = 0; i < rounds; i++) {
        weft_scope *s;
        reset();
        assert_int_equal(weft_scope_open(&(weft_scope_options){.runtime = rt}, &s), 0);
        for (int k = 0; k < 3; k++)
            assert_int_equal(weft_scope_spawn(s, spawns_on, s, NULL, NULL), 0);
        while (atom_load_rlx(&started) < i % 20)
            weft__relax();
        weft_scope_cancel(s);
        assert_int_equal(weft_scope_close(s, NULL), -ECANCELED);
    }
    weft_runtime_free(rt);
}

int main(void)
{
    test_limit(55, "sched_scope");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_joins_all),
        cmocka_unit_test(cancelling_reaches_all_inside),
        cmocka_unit_test(cancelling_the_owner_reaches_its_scopes),
        cmocka_unit_test(scopes_for_clean_up_are_shielded),
        cmocka_unit_test(the_first_failure_cancels_the_rest),
        cmocka_unit_test(a_deadline_cancels_all_inside),
        cmocka_unit_test(a_fiber_closes_what_it_forgot),
        cmocka_unit_test(threads_own_scopes),
        cmocka_unit_test(poll_tasks_are_members),
        cmocka_unit_test(shutdown_reaches_members_elsewhere),
        cmocka_unit_test(nothing_outlives_a_scope),
        cmocka_unit_test(spawns_race_with_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

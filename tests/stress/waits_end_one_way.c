/* SPDX-License-Identifier: MIT
 *
 * A wait ends in exactly one way, whatever meets it: many cancel kicks at a shielded wait
 * cost no wake; a join may be shared, repeated, limited and cancelled; each blocking call
 * on tasks and descriptors is ended by a cancellation, before it begins and in the middle,
 * again and again; an idle runtime starts what it is given. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

static weft_runtime *begin(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static int joined(weft_task *t)
{
    int result = INT32_MIN + 1;
    assert_int_equal(weft_task_join(t, weft_after(30 * WEFT_SEC), &result), 0);
    weft_task_unref(t);
    return result;
}

/* ---- Kicks at a shielded wait ---- */

static weft_channel *signals;
static weft__a32 stop;

static int counts_signals(void *arg)
{
    uint64_t n = *(uint64_t *)arg;
    weft_shield_enter();
    for (uint64_t i = 0; i < n; i++) {
        uint64_t got;
        int r = weft_channel_recv(signals, &got, weft_after(30 * WEFT_SEC));
        if (r || got != i)
            return r ? r : -EBADMSG;
    }
    weft_shield_leave();
    return weft_sleep(WEFT_NEVER); /* and now it is seen */
}

static void *kicks(void *arg)
{
    while (!atom_load_rlx(&stop))
        weft_task_cancel(arg);
    return NULL;
}

static void kicks_at_a_shielded_wait(void **state)
{
    (void)state;
    uint64_t n = test_rounds(30000);
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        weft_task *t;
        pthread_t kicker;
        atom_store_rlx(&stop, 0u);
        assert_int_equal(weft_channel_new(sizeof(uint64_t), workers - 1, NULL, &signals), 0);
        assert_int_equal(weft_spawn(rt, counts_signals, &n, NULL, &t), 0);
        test_sleep_ms(5);
        assert_int_equal(pthread_create(&kicker, NULL, kicks, t), 0);
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(weft_channel_send(signals, &i, weft_after(30 * WEFT_SEC)), 0);
        assert_int_equal(joined(t), -ECANCELED);
        atom_store_rlx(&stop, 1u);
        pthread_join(kicker, NULL);
        weft_runtime_free(rt);
        weft_channel_unref(signals);
    }
}

/* ---- Joins ---- */

static weft_event go_on = WEFT_EVENT_INIT;

static int ends_when_told(void *arg)
{
    int r = weft_event_wait(&go_on, WEFT_NEVER);
    return r ? r : (int)(intptr_t)arg;
}

static int joins(void *arg)
{
    int result = -1;
    int r = weft_task_join(arg, WEFT_NEVER, &result);
    return r ? r : result;
}

static void joins_are_shared_repeated_and_limited(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        weft_task *t, *joiner[4];
        int result = 77;
        weft_event_reset(&go_on);
        assert_int_equal(weft_spawn(rt, ends_when_told, (void *)5, NULL, &t), 0);
        for (int i = 0; i < 4; i++)
            assert_int_equal(weft_spawn(rt, joins, t, NULL, &joiner[i]), 0);
        assert_int_equal(weft_task_join(t, WEFT_TRY, &result), -EAGAIN);
        weft_time start = weft_now();
        assert_int_equal(weft_task_join(t, start + 30 * WEFT_MSEC, &result), -ETIMEDOUT);
        assert_true(weft_now() - start >= 30 * WEFT_MSEC);
        assert_int_equal(weft_task_join(t, start, &result), -ETIMEDOUT);
        assert_int_equal(result, 77);
        /* A joiner that is cancelled leaves the others and the task alone. */
        assert_int_equal(weft_task_cancel(joiner[0]), 0);
        assert_int_equal(joined(joiner[0]), -ECANCELED);
        assert_false(weft_task_done(t));
        weft_event_set(&go_on);
        for (int i = 1; i < 4; i++)
            assert_int_equal(joined(joiner[i]), 5);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(weft_task_join(t, i ? WEFT_TRY : WEFT_NEVER, &result), 0);
            assert_int_equal(result, 5);
        }
        assert_int_equal(weft_task_cancel(t), -EALREADY);
        assert_int_equal(weft_task_wake(t), 0);
        weft_task_unref(t);
        /* Never joined, and nobody holds it: gone all the same. */
        assert_int_equal(weft_spawn(rt, ends_when_told, NULL, NULL, &t), 0);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
    assert_int_equal(weft_task_join(NULL, WEFT_NEVER, NULL), -EINVAL);
    assert_int_equal(weft_task_cancel(NULL), -EINVAL);
    assert_int_equal(weft_task_wake(NULL), -EINVAL);
    assert_false(weft_task_done(NULL));
}

/* A limit and the end of the task meet: one of the two, and the truth. */
static int burns(void *arg)
{
    for (weft_time end = weft_now() + *(weft_time *)arg; weft_now() < end;)
        ;
    return 9;
}

static void a_join_meets_its_limit(void **state)
{
    (void)state;
    weft_runtime *rt = begin(2);
    uint64_t rounds = test_rounds(2000), late = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        weft_time length = 30 * WEFT_USEC;
        weft_task *t;
        int result = -1;
        assert_int_equal(weft_spawn(rt, burns, &length, NULL, &t), 0);
        int r = weft_task_join(t, weft_after((weft_time)(20 + i % 60) * WEFT_USEC), &result);
        if (r == -ETIMEDOUT) {
            late++;
            assert_int_equal(result, -1);
            assert_int_equal(weft_task_join(t, weft_after(30 * WEFT_SEC), &result), 0);
        } else {
            assert_int_equal(r, 0);
            assert_true(weft_task_done(t));
        }
        assert_int_equal(result, 9);
        weft_task_unref(t);
    }
    print_message("%llu of %llu ran into the limit\n", (unsigned long long)late,
                  (unsigned long long)rounds);
    weft_runtime_free(rt);
}

/* ---- Every blocking call on tasks and descriptors ---- */

static struct world {
    weft_fd *a, *b, *listener;
    weft_task *other;
    char full[1 << 16];
} w;

static int call_sleep(void)
{
    return weft_sleep(3600 * WEFT_SEC);
}
static int call_sleep_for_ever(void)
{
    return weft_sleep_until(WEFT_NEVER);
}
static int call_join(void)
{
    return weft_task_join(w.other, WEFT_NEVER, NULL);
}
static int call_read(void)
{
    char c;
    return (int)weft_fd_read(w.a, &c, 1, weft_after(3600 * WEFT_SEC));
}
static int call_write(void)
{
    ssize_t n;
    while ((n = weft_fd_write(w.a, w.full, sizeof w.full, WEFT_NEVER)) > 0)
        ;
    return (int)n;
}
static int call_wait_readable(void)
{
    return weft_fd_wait_readable(w.a, WEFT_NEVER);
}
static int call_accept(void)
{
    weft_fd *fd;
    return weft_tcp_accept(w.listener, WEFT_NEVER, &fd);
}
static int call_suspend(void)
{
    return weft_suspend(WEFT_NEVER);
}
static int call_select(void)
{
    weft_select_case c = weft_case_time(weft_after(3600 * WEFT_SEC));
    return weft_select(&c, 1, 0, WEFT_NEVER);
}

static int (*const calls[])(void) = {call_sleep,  call_sleep_for_ever, call_join,
                                     call_read,   call_write,          call_wait_readable,
                                     call_accept, call_suspend,        call_select};

static int is_cancelled_in(void *arg)
{
    int (*call)(void) = calls[(size_t)arg];
    for (int i = 0; i < 3; i++) { /* sticky */
        int r = call();
        if (r != -ECANCELED)
            return r ? r : -EBADMSG;
    }
    if (!weft_cancelled())
        return -EBADMSG;
    weft_shield_enter();
    int r = weft_sleep(WEFT_MSEC);
    weft_shield_leave();
    return r ? r : call() == -ECANCELED ? 0 : -EBADMSG;
}

static void a_cancellation_ends_every_call(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        weft_event_reset(&go_on);
        assert_int_equal(weft_unix_pair(&w.a, &w.b), 0);
        assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, &w.listener), 0);
        assert_int_equal(weft_spawn(rt, ends_when_told, NULL, NULL, &w.other), 0);
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            for (int middle = 0; middle < 2; middle++) {
                weft_task *t;
                assert_int_equal(weft_spawn(rt, is_cancelled_in, (void *)i, NULL, &t), 0);
                if (middle)
                    test_sleep_ms(5);
                assert_int_equal(weft_task_cancel(t), 0);
                int r = joined(t);
                if (r)
                    fail_msg("call %zu, %s: %s", i, middle ? "in the middle" : "before",
                             weft_strerror(r));
            }
        }
        weft_event_set(&go_on);
        joined(w.other);
        weft_runtime_free(rt);
        weft_fd_unref(w.a);
        weft_fd_unref(w.b);
        weft_fd_unref(w.listener);
    }
}

/* ---- A runtime that has just gone idle ---- */

static int says_so(void *arg)
{
    atom_store_rel((weft__a32 *)arg, 1u);
    return 0;
}

static void an_idle_runtime_starts_what_it_is_given(void **state)
{
    (void)state;
    uint64_t rounds = test_rounds(10000);
    for (unsigned workers = 1; workers <= 3; workers++) {
        weft_runtime *rt = begin(workers);
        for (uint64_t i = 0; i < rounds; i++) {
            weft__a32 ran = {0};
            unsigned flags = i % 5 == 0 ? WEFT_PINNED : i % 5 == 1 ? WEFT_HIGH : 0;
            weft_task *t;
            assert_int_equal(
                weft_spawn(rt, says_so, &ran, &(weft_spawn_options){.flags = flags}, &t), 0);
            assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), NULL), 0);
            assert_int_equal(atom_load_acq(&ran), 1);
            weft_task_unref(t);
            for (volatile uint64_t k = 0; k < i * 7 % 3000; k++)
                ;
        }
        weft_runtime_free(rt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kicks_at_a_shielded_wait),
        cmocka_unit_test(joins_are_shared_repeated_and_limited),
        cmocka_unit_test(a_join_meets_its_limit),
        cmocka_unit_test(a_cancellation_ends_every_call),
        cmocka_unit_test(an_idle_runtime_starts_what_it_is_given),
    };
    test_limit(110, "waits_end_one_way");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * What holds for every blocking call of the sync room, as a table over all of them:
 * a cancellation ends the wait and is sticky, a shield holds it off, WEFT_TRY and a
 * deadline in the past never suspend, a poll function may not block, and a call that
 * never has to wait still lets others run.
 */
#include "unit_test.h"

#include <errno.h>

#include "harness.h"
#include "weft/weft.h"

/* Everything here makes its caller wait, until `open` makes it ready. */
static struct world {
    weft_mutex mutex, cond_mutex;
    weft_rwlock rwlock;
    weft_semaphore semaphore;
    weft_event event;
    weft_waitgroup group;
    weft_value value;
    weft_barrier barrier;
    weft_cond cond;
    weft_once once;
    weft_channel *empty, *full, *meet;
    weft_watch *watch;
    weft_variable variable;
    weft_broadcast *broadcast;
    weft_subscriber subscriber;
    uint64_t seen;
    uint64_t item;
    bool cond_works;
} w;

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void close_world(void)
{
    memset(&w, 0, sizeof w);
    assert_int_equal(weft_mutex_lock(&w.mutex, WEFT_TRY), 0);
    assert_int_equal(weft_mutex_lock(&w.once.weft__mutex, WEFT_TRY), 0); /* somebody runs it */
    assert_int_equal(weft_rwlock_write(&w.rwlock, WEFT_TRY), 0);
    assert_int_equal(weft_waitgroup_add(&w.group, 1), 0);
    assert_int_equal(weft_barrier_init(&w.barrier, 2), 0);
    assert_int_equal(weft_channel_new(8, 1, NULL, &w.empty), 0);
    assert_int_equal(weft_watch_new(8, NULL, &w.watch), 0);
    assert_int_equal(weft_broadcast_new(8, 1, &w.broadcast), 0);
    assert_int_equal(weft_subscribe(w.broadcast, &w.subscriber), 0);
    assert_int_equal(weft_channel_new(8, 1, NULL, &w.full), 0);
    assert_int_equal(weft_channel_new(8, 0, NULL, &w.meet), 0);
    assert_int_equal(weft_channel_send(w.full, &w.item, WEFT_TRY), 0);
}

static void end_world(void)
{
    weft_watch_unref(w.watch);
    weft_unsubscribe(&w.subscriber);
    weft_broadcast_unref(w.broadcast);
    weft_channel_unref(w.empty);
    weft_channel_unref(w.full);
    weft_channel_unref(w.meet);
}

static int call_mutex(weft_time d)
{
    return weft_mutex_lock(&w.mutex, d);
}
static int call_read(weft_time d)
{
    return weft_rwlock_read(&w.rwlock, d);
}
static int call_write(weft_time d)
{
    return weft_rwlock_write(&w.rwlock, d);
}
static int call_semaphore(weft_time d)
{
    return weft_semaphore_acquire(&w.semaphore, 1, d);
}
static int call_event(weft_time d)
{
    return weft_event_wait(&w.event, d);
}
static int call_group(weft_time d)
{
    return weft_waitgroup_wait(&w.group, d);
}
static int call_value(weft_time d)
{
    return weft_value_wait(&w.value, d, NULL);
}
static int call_barrier(weft_time d)
{
    return weft_barrier_wait(&w.barrier, d);
}
static int call_once(weft_time d)
{
    return weft_once_do(&w.once, nothing, NULL, d);
}
static int call_cond(weft_time d)
{
    assert_int_equal(weft_mutex_lock(&w.cond_mutex, WEFT_TRY), 0);
    int r = weft_cond_wait(&w.cond, &w.cond_mutex, d);
    assert_true(weft_mutex_locked(&w.cond_mutex));
    assert_int_equal(weft_mutex_unlock(&w.cond_mutex), 0);
    return r;
}
static int call_send(weft_time d)
{
    return weft_channel_send(w.full, &w.item, d);
}
static int call_recv(weft_time d)
{
    return weft_channel_recv(w.empty, &w.item, d);
}
static int call_meet(weft_time d)
{
    return weft_channel_send(w.meet, &w.item, d);
}
static int call_send_batch(weft_time d)
{
    return weft_channel_send_batch(w.full, &w.item, 1, d);
}
static int call_recv_batch(weft_time d)
{
    return weft_channel_recv_batch(w.empty, &w.item, 1, d);
}
static int call_reserve(weft_time d)
{
    return weft_channel_reserve(w.full, d);
}
static int call_readable(weft_time d)
{
    return weft_channel_wait_ready(w.empty, WEFT_CHANNEL_READABLE, d);
}
static int call_writable(weft_time d)
{
    return weft_channel_wait_ready(w.full, WEFT_CHANNEL_WRITABLE, d);
}
static int call_watch(weft_time d)
{
    return weft_watch_wait(w.watch, &w.item, &w.seen, d);
}
static int call_variable(weft_time d)
{
    return weft_variable_wait(&w.variable, d, NULL);
}
static int call_change(weft_time d)
{
    return weft_variable_wait_change(&w.variable, &w.seen, d, NULL);
}
static int call_subscriber(weft_time d)
{
    return weft_subscriber_recv(&w.subscriber, &w.item, d);
}
static int call_select_locks(weft_time d)
{
    weft_select_case cases[] = {weft_case_mutex(&w.mutex), weft_case_read_lock(&w.rwlock),
                                weft_case_write_lock(&w.rwlock), weft_case_reserve(w.full),
                                weft_case_watch(w.watch, &w.item, &w.seen)};
    return weft_select(cases, 5, 0, d);
}
static int call_select(weft_time d)
{
    weft_select_case cases[] = {weft_case_recv(w.empty, &w.item), weft_case_send(w.full, &w.item),
                                weft_case_event(&w.event), weft_case_semaphore(&w.semaphore, 1)};
    return weft_select(cases, 4, 0, d);
}

static const struct {
    const char *name;
    int (*call)(weft_time deadline);
} calls[] = {
    {"mutex", call_mutex},
    {"read", call_read},
    {"write", call_write},
    {"semaphore", call_semaphore},
    {"event", call_event},
    {"group", call_group},
    {"value", call_value},
    {"barrier", call_barrier},
    {"once", call_once},
    {"cond", call_cond},
    {"send", call_send},
    {"recv", call_recv},
    {"meet", call_meet},
    {"send_batch", call_send_batch},
    {"recv_batch", call_recv_batch},
    {"reserve", call_reserve},
    {"readable", call_readable},
    {"writable", call_writable},
    {"watch", call_watch},
    {"variable", call_variable},
    {"change", call_change},
    {"subscriber", call_subscriber},
    {"select", call_select},
    {"select_locks", call_select_locks},
};
enum { CALLS = sizeof calls / sizeof *calls };

struct attempt {
    int (*call)(weft_time deadline);
    weft_time deadline;
    weft_event started;
    bool shielded;
};

static int attempt(void *arg)
{
    struct attempt *a = arg;
    if (a->shielded)
        weft_shield_enter();
    weft_event_set(&a->started);
    int r = a->call(a->deadline);
    if (a->shielded)
        weft_shield_leave();
    else if (r == -ECANCELED) {
        /* Sticky, but a try is not disturbed. */
        assert_int_equal(a->call(WEFT_NEVER), -ECANCELED);
        assert_int_equal(a->call(WEFT_TRY), -EAGAIN);
    }
    return r;
}

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime_options o = {.workers = workers};
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    return rt;
}

static void cancel_ends_every_wait(void **state)
{
    (void)state;
    for (int shielded = 0; shielded < 2; shielded++) {
        weft_runtime *rt = runtime(2);
        for (int i = 0; i < CALLS; i++) {
            close_world();
            struct attempt a = {.call = calls[i].call, .shielded = shielded != 0};
            /* Under a shield only the deadline ends it. */
            a.deadline = shielded ? weft_after(30 * WEFT_MSEC) : WEFT_NEVER;
            weft_task *t;
            int result = 1;
            assert_int_equal(weft_spawn(rt, attempt, &a, NULL, &t), 0);
            assert_int_equal(weft_event_wait(&a.started, WEFT_NEVER), 0);
            if (i % 2)
                test_sleep_ms(2); /* else the cancel meets it on its way */
            assert_int_equal(weft_task_cancel(t), 0);
            assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), &result), 0);
            if (result != (shielded ? -ETIMEDOUT : -ECANCELED))
                fail_msg("%s, shielded %d: %d", calls[i].name, shielded, result);
            weft_task_unref(t);
            end_world();
        }
        weft_runtime_free(rt);
    }
}

/* One fiber alone on its worker: the count of switches shows a suspension. */
static int never_suspends(void *arg)
{
    (void)arg;
    weft_runtime_stats before, after;
    for (int i = 0; i < CALLS; i++) {
        weft_yield(); /* a fresh budget, so that no call yields because of it */
        weft_runtime_get_stats(weft_runtime_current(), &before);
        int r = calls[i].call(WEFT_TRY);
        if (r != -EAGAIN)
            fail_msg("%s, try: %d", calls[i].name, r);
        r = calls[i].call(1);
        if (r != -ETIMEDOUT)
            fail_msg("%s, deadline in the past: %d", calls[i].name, r);
        weft_runtime_get_stats(weft_runtime_current(), &after);
        if (before.switches != after.switches)
            fail_msg("%s was suspended", calls[i].name);
    }
    return 0;
}

static void past_deadline_never_suspends(void **state)
{
    (void)state;
    close_world();
    assert_int_equal(weft_run(NULL, never_suspends, NULL, NULL), 0);
    end_world();
}

static int poll_body(weft_task *self, void *state)
{
    (void)self;
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        int r = calls[i].call(WEFT_NEVER);
        if (r != -EPERM)
            fail_msg("%s in a poll function: %d", calls[i].name, r);
        r = calls[i].call(WEFT_TRY);
        if (r != -EAGAIN)
            fail_msg("%s in a poll function, try: %d", calls[i].name, r);
    }
    return 7;
}

static void poll_function_may_not_block(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(1);
    weft_task *t;
    int result = 0;
    close_world();
    assert_int_equal(weft_spawn_poll(rt, poll_body, NULL, 0, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 7);
    weft_task_unref(t);
    weft_runtime_free(rt);
    end_world();
}

/* ---- What never has to wait lets others run ---- */

static void loop_mutex(void)
{
    assert_int_equal(weft_mutex_lock(&w.cond_mutex, WEFT_NEVER), 0);
    weft_mutex_unlock(&w.cond_mutex);
}
static void loop_semaphore(void)
{
    weft_semaphore_release(&w.semaphore, 1);
    assert_int_equal(weft_semaphore_acquire(&w.semaphore, 1, WEFT_NEVER), 0);
}
static void loop_channel(void)
{
    assert_int_equal(weft_channel_recv(w.full, &w.item, WEFT_NEVER), 0);
    assert_int_equal(weft_channel_send(w.full, &w.item, WEFT_NEVER), 0);
}
static void loop_event(void)
{
    weft_event_set(&w.event);
    assert_int_equal(weft_event_wait(&w.event, WEFT_NEVER), 0);
}
static void loop_group(void)
{
    weft_waitgroup empty = WEFT_WAITGROUP_INIT;
    assert_int_equal(weft_waitgroup_wait(&empty, WEFT_NEVER), 0);
}
static void loop_select(void)
{
    weft_select_case c = weft_case_time(1);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_NEVER), 0);
}
static void loop_once(void)
{
    static weft_once once = WEFT_ONCE_INIT;
    assert_int_equal(weft_once_do(&once, nothing, NULL, WEFT_NEVER), 0);
}

static void (*const loops[])(void) = {loop_mutex, loop_semaphore, loop_channel, loop_event,
                                      loop_group, loop_select,    loop_once};
enum { LOOPS = sizeof loops / sizeof *loops };

struct turns {
    void (*loop)(void);
    bool stop; /* one worker: no two touch it at once */
    int64_t limit;
};

static int busy(void *arg)
{
    struct turns *t = arg;
    while (!t->stop && test_now() < t->limit)
        t->loop();
    return t->stop ? 0 : -ETIMEDOUT;
}

static int other(void *arg)
{
    struct turns *t = arg;
    for (int i = 0; i < 10; i++)
        weft_yield();
    t->stop = true;
    return 0;
}

/* On the only worker, `other` gets its ten turns only if `busy` lets it. */
static int both(void *arg)
{
    struct turns *t = arg;
    weft_task *a, *b;
    int result = 1;
    assert_int_equal(weft_spawn(NULL, busy, t, NULL, &a), 0);
    assert_int_equal(weft_spawn(NULL, other, t, NULL, &b), 0);
    assert_int_equal(weft_task_join(a, WEFT_NEVER, &result), 0);
    assert_int_equal(weft_task_join(b, WEFT_NEVER, NULL), 0);
    weft_task_unref(a);
    weft_task_unref(b);
    return result;
}

static void ready_calls_let_others_run(void **state)
{
    (void)state;
    close_world();
    for (int i = 0; i < LOOPS; i++) {
        struct turns t = {.loop = loops[i], .limit = test_now() + 10 * WEFT_SEC};
        int result = 1;
        assert_int_equal(weft_run(NULL, both, &t, &result), 0);
        if (result)
            fail_msg("loop %d kept the worker to itself", i);
    }
    end_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_ends_every_wait),
        cmocka_unit_test(past_deadline_never_suspends),
        cmocka_unit_test(poll_function_may_not_block),
        cmocka_unit_test(ready_calls_let_others_run),
    };
    test_limit(60, "sync_calls");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

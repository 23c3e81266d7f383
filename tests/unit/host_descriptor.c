/* SPDX-License-Identifier: MIT
 *
 * Descriptors and wakers for things one can wait for: level semantics, each kind, the
 * pool, and freeing while the thing becomes ready on another thread. */
#include "unit_test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/descriptor.h"
#include "weft/driven.h"

static bool readable(weft_descriptor *d)
{
    struct pollfd p = {.fd = weft_descriptor_fd(d), .events = POLLIN};
    assert_true(p.fd >= 0);
    int n = poll(&p, 1, 0);
    assert_true(n >= 0);
    return n == 1;
}

static void bump(void *arg)
{
    atom_add_rlx((weft__a32 *)arg, 1u);
}

static weft_channel *channel(size_t capacity)
{
    weft_channel *ch;
    assert_int_equal(weft_channel_new(sizeof(int), capacity, NULL, &ch), 0);
    return ch;
}

static void send_one(weft_channel *ch, int item)
{
    assert_int_equal(weft_channel_send(ch, &item, WEFT_TRY), 0);
}

static int recv_one(weft_channel *ch)
{
    int item = -1;
    int r = weft_channel_recv(ch, &item, WEFT_TRY);
    return r ? r : item;
}

static void a_channels_descriptor_is_a_level(void **state)
{
    (void)state;
    weft_channel *ch = channel(4);
    weft_descriptor *a, *b;
    assert_int_equal(weft_descriptor_channel(NULL, ch, WEFT_CHANNEL_READABLE, NULL, &a), 0);
    assert_int_equal(weft_descriptor_channel(NULL, ch, WEFT_CHANNEL_READABLE, NULL, &b), 0);
    assert_false(readable(a));
    assert_int_equal(weft_descriptor_check(a), 0);
    send_one(ch, 7);
    send_one(ch, 8);
    assert_true(readable(a));
    assert_true(readable(b)); /* made when it was ready: readable at once */
    assert_int_equal(weft_descriptor_check(a), 1);
    assert_int_equal(weft_channel_wait_ready(ch, WEFT_CHANNEL_READABLE, WEFT_TRY), 0);
    assert_int_equal(weft_channel_length(ch), 2); /* nothing was taken */
    assert_int_equal(recv_one(ch), 7);
    assert_int_equal(weft_descriptor_check(a), 1);
    assert_true(readable(a)); /* until empty */
    assert_int_equal(recv_one(ch), 8);
    assert_int_equal(recv_one(ch), -EAGAIN); /* who comes too late */
    assert_int_equal(weft_descriptor_check(a), 0);
    assert_false(readable(a));
    assert_int_equal(weft_descriptor_check(b), 0);
    assert_false(readable(b));
    send_one(ch, 9); /* armed again */
    assert_true(readable(a) && readable(b));
    assert_int_equal(recv_one(ch), 9);
    assert_int_equal(weft_descriptor_check(a), 0);
    assert_int_equal(weft_channel_close(ch), 0);
    assert_true(readable(a));
    assert_int_equal(weft_descriptor_check(a), 1);
    weft_descriptor_free(a);
    weft_channel_unref(ch); /* b keeps it */
    assert_int_equal(weft_descriptor_check(b), 1);
    weft_descriptor_free(b);
}

static void room_in_a_channel(void **state)
{
    (void)state;
    weft_channel *ch = channel(1);
    weft_descriptor *d;
    assert_int_equal(weft_descriptor_channel(NULL, ch, WEFT_CHANNEL_WRITABLE, NULL, &d), 0);
    assert_true(readable(d));
    send_one(ch, 1);
    assert_int_equal(weft_descriptor_check(d), 0);
    assert_false(readable(d));
    assert_int_equal(recv_one(ch), 1);
    assert_true(readable(d));
    weft_descriptor_free(d);
    weft_channel_unref(ch);
}

static void the_waker_comes_once_per_arming(void **state)
{
    (void)state;
    weft__a32 woken = {0};
    weft_waker waker = {bump, &woken};
    weft_channel *ch = channel(4);
    weft_descriptor *d;
    assert_int_equal(weft_descriptor_channel(NULL, ch, WEFT_CHANNEL_READABLE, &waker, &d), 0);
    send_one(ch, 1);
    assert_int_equal(atom_load_rlx(&woken), 0); /* nobody has looked: nothing is armed */
    assert_int_equal(weft_descriptor_check(d), 1);
    assert_int_equal(recv_one(ch), 1);
    assert_int_equal(weft_descriptor_check(d), 0);
    assert_int_equal(weft_descriptor_check(d), 0);
    send_one(ch, 2);
    send_one(ch, 3);
    assert_int_equal(atom_load_rlx(&woken), 1);
    assert_int_equal(weft_descriptor_check(d), 1);
    assert_true(readable(d)); /* asked for late, right at once */
    assert_int_equal(recv_one(ch) + recv_one(ch), 5);
    assert_int_equal(weft_descriptor_check(d), 0);
    assert_false(readable(d));
    weft_descriptor_free(d); /* armed */
    send_one(ch, 4);
    assert_int_equal(atom_load_rlx(&woken), 1);
    weft_channel_unref(ch);
}

static int give_back(void *arg)
{
    return *(int *)arg;
}

static void every_kind_has_one(void **state)
{
    (void)state;
    weft_event event = WEFT_EVENT_INIT;
    weft_value value = WEFT_VALUE_INIT;
    weft_waitgroup group = WEFT_WAITGROUP_INIT;
    weft_runtime *rt;
    weft_task *task;
    int seven = 7;
    weft_descriptor *d[4];
    assert_int_equal(weft_driven_new(NULL, &rt), 0);
    assert_int_equal(weft_spawn(rt, give_back, &seven, NULL, &task), 0);
    assert_int_equal(weft_waitgroup_add(&group, 1), 0);
    assert_int_equal(weft_descriptor_event(NULL, &event, NULL, &d[0]), 0);
    assert_int_equal(weft_descriptor_value(NULL, &value, NULL, &d[1]), 0);
    assert_int_equal(weft_descriptor_waitgroup(NULL, &group, NULL, &d[2]), 0);
    assert_int_equal(weft_descriptor_task(NULL, task, NULL, &d[3]), 0);
    for (int i = 0; i < 4; i++)
        assert_false(readable(d[i]));
    weft_event_set(&event);
    weft_value_set(&value, &seven);
    weft_waitgroup_done(&group);
    assert_int_equal(weft_driven_turn(rt, NULL), 1);
    for (int i = 0; i < 4; i++) {
        assert_true(readable(d[i]));
        assert_int_equal(weft_descriptor_check(d[i]), 1);
    }
    weft_event_reset(&event);
    assert_true(readable(d[0])); /* stale until somebody looks */
    assert_int_equal(weft_descriptor_check(d[0]), 0);
    assert_false(readable(d[0]));
    for (int i = 0; i < 4; i++)
        weft_descriptor_free(d[i]);
    weft_task_unref(task);
    weft_runtime_free(rt);
}

static void the_pool_keeps_what_it_may(void **state)
{
    (void)state;
    weft_descriptor_pool *pool;
    weft_event set = WEFT_EVENT_INIT, unset = WEFT_EVENT_INIT;
    weft_descriptor *d[3];
    weft_event_set(&set);
    assert_int_equal(weft_descriptor_pool_new(2, &pool), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_descriptor_event(pool, &set, NULL, &d[i]), 0);
        assert_int_equal(weft_descriptor_pool_idle(pool), 0);
        assert_true(readable(d[i]));
    }
    for (int i = 0; i < 3; i++)
        weft_descriptor_free(d[i]);
    assert_int_equal(weft_descriptor_pool_idle(pool), 2);
    for (int i = 0; i < 2; i++) { /* what comes from the pool is not readable */
        assert_int_equal(weft_descriptor_event(pool, &unset, NULL, &d[i]), 0);
        assert_int_equal(weft_descriptor_pool_idle(pool), (unsigned)(2 - i));
        assert_false(readable(d[i]));
    }
    assert_int_equal(weft_descriptor_pool_idle(pool), 0);
    weft_descriptor_free(d[0]);
    weft_descriptor_pool_free(pool); /* before its last descriptor */
    weft_event_set(&unset);
    assert_true(readable(d[1]));
    weft_descriptor_free(d[1]);
}

struct setter {
    weft_event *event;
    weft__a32 quit;
};

static void *set_and_reset(void *arg)
{
    struct setter *s = arg;
    while (!atom_load_acq(&s->quit)) {
        weft_event_set(s->event);
        weft_event_reset(s->event);
        sched_yield();
    }
    return NULL;
}

struct witness {
    weft__a32 woken, over; /* over: free has returned */
};

static void be_late(void *arg)
{
    struct witness *w = arg;
    for (int i = 0; i < 3; i++)
        sched_yield();
    assert_int_equal(atom_load_acq(&w->over), 0);
    atom_add_rlx(&w->woken, 1u);
}

/* The waker belongs to the owner again when free has returned. */
static void free_waits_for_a_wake_in_progress(void **state)
{
    (void)state;
    test_limit(120, "host_descriptor");
    weft_event event = WEFT_EVENT_INIT;
    weft_descriptor_pool *pool;
    struct setter s = {.event = &event};
    pthread_t thread;
    uint64_t wakes = 0;
    assert_int_equal(weft_descriptor_pool_new(0, &pool), 0);
    assert_int_equal(pthread_create(&thread, NULL, set_and_reset, &s), 0);
    uint64_t rounds = test_rounds(20000);
    struct witness *all = calloc(rounds, sizeof *all);
    for (uint64_t i = 0; i < rounds; i++) {
        struct witness *w = &all[i];
        weft_waker waker = {be_late, w};
        weft_descriptor *d;
        assert_int_equal(weft_descriptor_event(pool, &event, &waker, &d), 0);
        if (i % 3 == 0)
            assert_true(weft_descriptor_fd(d) >= 0);
        unsigned armings = i % 3 == 0;
        for (int k = 0; k < 3; k++)
            armings += weft_descriptor_check(d) == 0;
        for (int k = 0; i % 8 == 0 && k < (int)(i / 8 % 6); k++)
            sched_yield();
        weft_descriptor_free(d);
        atom_store_rel(&w->over, 1u);
        assert_true(atom_load_rlx(&w->woken) <= armings);
        wakes += atom_load_rlx(&w->woken);
    }
    atom_store_rel(&s.quit, 1u);
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("%llu wakes in %llu rounds\n", (unsigned long long)wakes,
                  (unsigned long long)rounds);
    assert_true(weft_descriptor_pool_idle(pool) <= 1);
    weft_descriptor_pool_free(pool);
    free(all);
}

enum { ITEMS = 20000 };

static void *produce(void *arg)
{
    for (int i = 1; i <= ITEMS; i++)
        assert_int_equal(weft_channel_send(arg, &i, WEFT_NEVER), 0);
    weft_channel_close(arg);
    return NULL;
}

/* A loop that waits in poll() only: never a lost wake, everything arrives in order. */
static void a_poll_loop_loses_nothing(void **state)
{
    (void)state;
    test_limit(120, "host_descriptor");
    weft_channel *ch = channel(3);
    weft_descriptor *d;
    pthread_t thread;
    assert_int_equal(weft_descriptor_channel(NULL, ch, WEFT_CHANNEL_READABLE, NULL, &d), 0);
    struct pollfd p = {.fd = weft_descriptor_fd(d), .events = POLLIN};
    assert_int_equal(pthread_create(&thread, NULL, produce, ch), 0);
    int next = 1, r = 0;
    while (r != -EPIPE) {
        assert_int_equal(poll(&p, 1, 30000), 1);
        while (r != -EPIPE && weft_descriptor_check(d) == 1) {
            int item = 0;
            r = weft_channel_recv(ch, &item, WEFT_TRY);
            if (r == 0)
                assert_int_equal(item, next++);
        }
    }
    assert_int_equal(next, ITEMS + 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    weft_descriptor_free(d);
    weft_channel_unref(ch);
}

static void bad_input_has_an_answer(void **state)
{
    (void)state;
    weft_descriptor *d = NULL;
    weft_descriptor_pool *pool;
    weft_channel *ch = channel(1), *none = channel(0);
    assert_int_equal(weft_descriptor_channel(NULL, NULL, 1, NULL, &d), -EINVAL);
    assert_int_equal(weft_descriptor_channel(NULL, ch, 3, NULL, &d), -EINVAL);
    assert_int_equal(weft_descriptor_channel(NULL, ch, 1, NULL, NULL), -EINVAL);
    assert_int_equal(weft_descriptor_channel(NULL, none, 1, NULL, &d), -EINVAL);
    assert_int_equal(weft_descriptor_task(NULL, NULL, NULL, &d), -EINVAL);
    assert_int_equal(weft_descriptor_event(NULL, NULL, NULL, &d), -EINVAL);
    assert_int_equal(weft_descriptor_value(NULL, NULL, NULL, &d), -EINVAL);
    assert_int_equal(weft_descriptor_waitgroup(NULL, NULL, NULL, &d), -EINVAL);
    assert_null(d);
    assert_int_equal(weft_descriptor_check(NULL), -EINVAL);
    assert_int_equal(weft_descriptor_fd(NULL), -EINVAL);
    assert_null(weft_descriptor_free(NULL));
    assert_int_equal(weft_descriptor_pool_new(1, NULL), -EINVAL);
    assert_int_equal(weft_descriptor_pool_new(1u << 20, &pool), -EINVAL);
    assert_null(weft_descriptor_pool_free(NULL));
    assert_int_equal(weft_descriptor_pool_idle(NULL), 0);
    weft_channel_unref(ch);
    weft_channel_unref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_channels_descriptor_is_a_level),
        cmocka_unit_test(room_in_a_channel),
        cmocka_unit_test(the_waker_comes_once_per_arming),
        cmocka_unit_test(every_kind_has_one),
        cmocka_unit_test(the_pool_keeps_what_it_may),
        cmocka_unit_test(free_waits_for_a_wake_in_progress),
        cmocka_unit_test(a_poll_loop_loses_nothing),
        cmocka_unit_test(bad_input_has_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

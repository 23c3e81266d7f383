/* SPDX-License-Identifier: MIT
 *
 * A host with fibers of its own (examples/mini_host.h): values between its fibers and
 * weft's tasks, in one thread and between two, a cancellation that is ignored, sleeps,
 * and waits that are announced instead of looked for. */
#include "unit_test.h"

#include <pthread.h>

#include "../../examples/mini_host.h"
#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

struct loop {
    weft_runtime *rt;
    weft_host *host;
    mini_host mine;
};

static void open_loop(struct loop *l)
{
    test_limit(100, "host_fibers");
    *l = (struct loop){.mine = {.source = {.look = mini_look}}};
    l->mine.source.arg = &l->mine;
    assert_int_equal(weft_driven_new(NULL, &l->rt), 0);
    assert_int_equal(weft_host_new(l->rt, NULL, &l->host), 0);
    assert_int_equal(weft_host_add(l->host, &l->mine.source), 0);
}

static void close_loop(struct loop *l)
{
    assert_null(l->mine.first);
    weft_host_free(l->host);
    weft_runtime_free(l->rt);
}

static void run_until_empty(struct loop *l)
{
    while (weft_host_turn(l->host) >= 0 && l->mine.first)
        assert_int_equal(weft_host_wait(l->host, WEFT_NEVER), 0);
}

static weft_host_stats stats(const struct loop *l)
{
    weft_host_stats s;
    assert_int_equal(weft_host_get_stats(l->host, &s), 0);
    return s;
}

struct side {
    weft_channel *ch;
    int n, got;
};

static void produce(mini_fiber *self, void *arg)
{
    struct side *s = arg;
    for (int i = 0; i < s->n; i++)
        assert_int_equal(mini_send(self, s->ch, &i, WEFT_NEVER), 0);
    weft_channel_close(s->ch);
}

static void consume(mini_fiber *self, void *arg)
{
    struct side *s = arg;
    int item;
    while (mini_recv(self, s->ch, &item, WEFT_NEVER) == 0)
        assert_int_equal(item, s->got++);
}

static int consume_task(void *arg)
{
    struct side *s = arg;
    int item;
    while (weft_channel_recv(s->ch, &item, WEFT_NEVER) == 0)
        assert_int_equal(item, s->got++);
    return 0;
}

static void a_fiber_hands_over_to_a_task(void **state)
{
    (void)state;
    struct loop l;
    struct side s = {.n = (int)test_rounds(20000)};
    open_loop(&l);
    assert_int_equal(weft_channel_new(sizeof(int), 1, NULL, &s.ch), 0);
    assert_int_equal(weft_spawn(l.rt, consume_task, &s, NULL, NULL), 0);
    mini_spawn(&l.mine, produce, &s);
    run_until_empty(&l);
    while (weft_host_turn(l.host) > 0)
        ;
    assert_int_equal(s.got, s.n);
    /* Everything that happened was seen to happen: hardly a look was in vain. */
    assert_true(stats(&l).paced <= 10);
    close_loop(&l);
    weft_channel_unref(s.ch);
}

static void *producer_thread(void *arg)
{
    struct loop l;
    open_loop(&l);
    mini_spawn(&l.mine, produce, arg);
    run_until_empty(&l);
    close_loop(&l);
    return NULL;
}

static void fibers_of_two_threads(void **state)
{
    (void)state;
    struct loop l;
    struct side s = {.n = (int)test_rounds(2000)};
    pthread_t thread;
    open_loop(&l);
    assert_int_equal(weft_channel_new(sizeof(int), 1, NULL, &s.ch), 0);
    assert_int_equal(pthread_create(&thread, NULL, producer_thread, &s), 0);
    mini_spawn(&l.mine, consume, &s);
    run_until_empty(&l);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(s.got, s.n);
    close_loop(&l);
    weft_channel_unref(s.ch);
}

static int not_ready(void *on)
{
    (void)on;
    return 0;
}

struct stubborn {
    bool stop;
    unsigned resumed;
};

/* Catches every cancellation and waits again. */
static void ignore(mini_fiber *self, void *arg)
{
    struct stubborn *s = arg;
    while (!s->stop) {
        mini_wait(self, not_ready, NULL, WEFT_NEVER);
        s->resumed++;
    }
}

static void an_ignored_cancellation_does_not_hold_the_floor(void **state)
{
    (void)state;
    struct loop l;
    struct stubborn s = {false, 0};
    open_loop(&l);
    mini_fiber *f = mini_spawn(&l.mine, ignore, &s);
    assert_int_equal(weft_host_turn(l.host), 1);
    f->cancelled = true;
    weft_time start = weft_now();
    assert_int_equal(weft_host_run(l.host, start + 300 * WEFT_MSEC), -ETIMEDOUT);
    weft_time took = weft_now() - start;
    assert_true(s.resumed >= 2);
    /* One resume a turn, eight turns to the ceiling and one in 10 ms from then on. At the
     * floor it would be thousands. */
    assert_true(s.resumed <= 8 + (unsigned)(took / (10 * WEFT_MSEC)) + 3);
    s.stop = true;
    assert_true(weft_host_turn(l.host) >= 0);
    close_loop(&l);
}

struct nap {
    int n;
    weft_time duration, total;
    struct stubborn *other;
};

static void nap(mini_fiber *self, void *arg)
{
    struct nap *p = arg;
    weft_time begin = weft_now();
    for (int i = 0; i < p->n; i++) {
        weft_time start = weft_now();
        assert_int_equal(mini_sleep(self, p->duration), 0);
        assert_true(weft_now() - start >= p->duration); /* never early */
    }
    p->total = weft_now() - begin;
    p->other->stop = true;
    for (mini_fiber *f = self->host->first; f; f = f->next)
        f->cancelled = true;
}

static void a_sleep_is_a_known_deadline(void **state)
{
    (void)state;
    struct loop l;
    struct stubborn s = {false, 0};
    struct nap p = {.n = 10, .duration = 13 * WEFT_MSEC, .other = &s};
    open_loop(&l);
    mini_spawn(&l.mine, ignore, &s); /* is looked for all the while */
    mini_spawn(&l.mine, nap, &p);
    run_until_empty(&l);
    print_message("10 sleeps of 13 ms beside a waiting fiber: %.2f ms\n", (double)p.total / 1e6);
    assert_true(stats(&l).paced > 0);
    close_loop(&l);
}

struct announced {
    struct loop *l;
    struct side s;
};

static void consume_announced(mini_fiber *self, void *arg)
{
    struct announced *a = arg;
    int item;
    while (mini_recv_announced(self, a->l->host, a->s.ch, &item) == 0)
        assert_int_equal(item, a->s.got++);
}

static void *send_slowly(void *arg)
{
    struct announced *a = arg;
    for (int i = 0; i < a->s.n; i++) {
        if (i % 20 == 0)
            test_sleep_ms(3);
        assert_int_equal(weft_channel_send(a->s.ch, &i, WEFT_NEVER), 0);
    }
    weft_channel_close(a->s.ch);
    return NULL;
}

static void who_is_told_never_looks(void **state)
{
    (void)state;
    struct loop l;
    struct announced a = {.l = &l, .s = {.n = 1000}};
    pthread_t thread;
    open_loop(&l);
    assert_int_equal(weft_channel_new(sizeof(int), 4, NULL, &a.s.ch), 0);
    mini_spawn(&l.mine, consume_announced, &a);
    assert_int_equal(weft_host_turn(l.host), 1);
    assert_int_equal(pthread_create(&thread, NULL, send_slowly, &a), 0);
    run_until_empty(&l);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(a.s.got, a.s.n);
    assert_int_equal(stats(&l).paced, 0);
    close_loop(&l);
    weft_channel_unref(a.s.ch);
}

static int count(void *arg)
{
    atom_add_ar((weft__a32 *)arg, 1u);
    return 0;
}

struct sender {
    struct loop *l;
    weft__a32 ran;
};

static void *spawn_and_stop(void *arg)
{
    struct sender *s = arg;
    test_sleep_ms(20);
    assert_int_equal(weft_spawn(s->l->rt, count, &s->ran, NULL, NULL), 0);
    assert_int_equal(weft_host_stop(s->l->host), 0);
    return NULL;
}

/* Everybody waits, the pacer is at its ceiling of 20 s; a task arrives, and the stop. */
static void a_task_that_arrives_in_the_wait_has_its_turn(void **state)
{
    (void)state;
    struct loop l;
    struct stubborn s = {false, 0};
    open_loop(&l);
    weft_host_free(l.host);
    const weft_host_options slow = {.floor = 20 * WEFT_SEC, .ceiling = 20 * WEFT_SEC};
    assert_int_equal(weft_host_new(l.rt, &slow, &l.host), 0);
    assert_int_equal(weft_host_add(l.host, &l.mine.source), 0);
    mini_fiber *f = mini_spawn(&l.mine, ignore, &s);
    struct sender sender = {.l = &l};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, spawn_and_stop, &sender), 0);
    weft_time start = weft_now();
    assert_int_equal(weft_host_run(l.host, WEFT_NEVER), 0);
    assert_true(weft_now() - start < 15 * WEFT_SEC);
    assert_int_equal(atom_load_acq(&sender.ran), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    s.stop = f->cancelled = true;
    weft_host_turn(l.host);
    close_loop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fiber_hands_over_to_a_task),
        cmocka_unit_test(fibers_of_two_threads),
        cmocka_unit_test(an_ignored_cancellation_does_not_hold_the_floor),
        cmocka_unit_test(a_sleep_is_a_known_deadline),
        cmocka_unit_test(who_is_told_never_looks),
        cmocka_unit_test(a_task_that_arrives_in_the_wait_has_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

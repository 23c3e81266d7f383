/* The timer service as its reactor sees it, under a clock that the test holds: due
 * order, budgets and fairness, plans and wakes, intervals, cancellation in callbacks,
 * closing, limits. */
#include "unit_test.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>

#include "base/sys.h"
#include "weft/timer.h"

#define MS WEFT_MSEC

static weft_time virtual_now;

static weft_time virtual_clock(void *arg)
{
    (void)arg;
    return virtual_now;
}

/* All tests but those that ask for shards run twice: as for many threads, and local. */
static bool local;

static weft_timer_service *service_new(weft_timer_options o)
{
    weft_timer_service *v = NULL;
    o.clock = virtual_clock;
    o.local = local && o.shards <= 1;
    assert_int_equal(weft_timer_service_create(virtual_now, &o, &v), 0);
    return v;
}

static int64_t turn_at(weft_timer_service *v, weft_time now)
{
    virtual_now = now;
    return weft_timer_service_turn(v, now, NULL);
}

struct probe {
    weft_timer timer;
    weft_timer_service *service;
    int fired, result;
    int order;
    weft_time at;
    weft_timer *other;
    int other_answer;
    weft_time rearm;
};

static int order_counter;

static void note(weft_timer *t, void *arg, int result)
{
    struct probe *p = arg;
    assert_ptr_equal(t, &p->timer);
    p->fired++;
    p->result = result;
    p->order = ++order_counter;
    p->at = virtual_now;
}

static void probe_init(struct probe *p, weft_timer_service *v, weft_timer_fn fn, unsigned flags)
{
    memset(p, 0, sizeof *p);
    p->service = v;
    assert_int_equal(weft_timer_init(&p->timer, weft_timer_service_context(v), fn, p, flags), 0);
}

static void bad_input_gets_an_error(void **state)
{
    (void)state;
    weft_timer_service *v = NULL;
    weft_timer t;
    weft_waker hollow = {NULL, NULL};
    virtual_now = 0;
    memset(&t, 0, sizeof t);
    assert_int_equal(weft_timer_service_create(0, NULL, NULL), -EINVAL);
    weft_timer_options o = {.tick = 999};
    assert_int_equal(weft_timer_service_create(0, &o, &v), -EINVAL);
    o.tick = -1;
    assert_int_equal(weft_timer_service_create(0, &o, &v), -EINVAL);
    o = (weft_timer_options){.shards = 3};
    assert_int_equal(weft_timer_service_create(0, &o, &v), -EINVAL);
    o.shards = 128;
    assert_int_equal(weft_timer_service_create(0, &o, &v), -EINVAL);
    o = (weft_timer_options){.shards = 2, .local = true};
    assert_int_equal(weft_timer_service_create(0, &o, &v), -EINVAL);
    assert_null(v);
    assert_int_equal(weft_timer_service_turn(NULL, 0, NULL), -EINVAL);
    assert_int_equal(weft_timer_service_prepare_wait(NULL, NULL, NULL), -EINVAL);
    assert_int_equal(weft_timer_service_fd(NULL), -EINVAL);
    assert_int_equal(weft_timer_service_close(NULL), -EINVAL);
    weft_timer_service_destroy(NULL);
    assert_null(weft_timer_service_context(NULL));
    assert_null(weft_timer_context_unref(weft_timer_context_ref(NULL)));
    assert_true(weft_timer_context_now(NULL) == 0 && weft_timer_context_tick(NULL) == 0);
    assert_true(weft_timer_service_idle(NULL));
    assert_int_equal(weft_timer_service_pending(NULL), 0);

    v = service_new((weft_timer_options){0});
    weft_timer_context *c = weft_timer_service_context(v);
    assert_true(weft_timer_context_tick(c) == MS);
    assert_int_equal(weft_timer_service_prepare_wait(v, &hollow, NULL), -EINVAL);
    assert_int_equal(weft_timer_init(NULL, c, NULL, NULL, 0), -EINVAL);
    assert_int_equal(weft_timer_init(&t, NULL, NULL, NULL, 0), -EINVAL);
    assert_int_equal(weft_timer_init(&t, c, NULL, NULL, 2), -EINVAL);
    assert_int_equal(weft_timer_arm(&t, 5), -EINVAL); /* zeroed, not initialised */
    assert_int_equal(weft_timer_arm_after(&t, 5), -EINVAL);
    assert_int_equal(weft_timer_cancel(&t), -EINVAL);
    assert_int_equal(weft_timer_cancel_wait(&t, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_timer_poll(&t, NULL), -EINVAL);
    assert_int_equal(weft_timer_wait(&t, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_timer_arm(NULL, 5), -EINVAL);
    assert_int_equal(weft_timer_cancel(NULL), -EINVAL);
    assert_false(weft_timer_pending(NULL));
    assert_int_equal(weft_timer_sleep(NULL, 5), -EINVAL);
    assert_int_equal(weft_timer_init(&t, c, NULL, NULL, 0), 0);
    assert_int_equal(weft_timer_poll(&t, NULL), -EINVAL); /* never armed */
    assert_int_equal(weft_timer_wait(&t, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_timer_poll(&t, &hollow), -EINVAL);
    assert_int_equal(weft_timer_arm_every(&t, 0, 0, WEFT_INTERVAL_SKIP), -EINVAL);
    assert_int_equal(weft_timer_arm_every(&t, 0, 5, 3), -EINVAL);
    assert_int_equal(weft_timer_cancel(&t), 0);
    weft_timer_service_destroy(v);
}

/* Never early, in the order of ticks across shards, once each. */
static void a_jump_delivers_each_once_in_order(void **state)
{
    (void)state;
    uint64_t rng = 7;
    virtual_now = 12345;
    for (unsigned shards = 1; shards <= 4; shards *= 4) {
        weft_timer_service *v = service_new((weft_timer_options){.shards = shards});
        struct probe *p = calloc(1000, sizeof *p);
        weft_time deadline[1000], start = virtual_now;
        for (int i = 0; i < 1000; i++) {
            probe_init(&p[i], v, note, 0);
            deadline[i] = start + 1 + (weft_time)(weft__rand(&rng) % 3600000) * MS;
            assert_int_equal(weft_timer_arm(&p[i].timer, deadline[i]), 0);
        }
        assert_int_equal(weft_timer_service_pending(v), 1000);
        order_counter = 0;
        assert_int_equal(turn_at(v, start + 3600 * WEFT_SEC + MS), 1000);
        assert_true(weft_timer_service_idle(v));
        weft_time last = 0;
        for (int n = 1; n <= 1000; n++)
            for (int i = 0; i < 1000; i++)
                if (p[i].order == n) {
                    assert_int_equal(p[i].fired, 1);
                    assert_int_equal(p[i].result, 0);
                    assert_true((deadline[i] - start + MS - 1) / MS >= last);
                    last = (deadline[i] - start + MS - 1) / MS;
                }
        free(p);
        weft_timer_service_destroy(v);
    }
}

/* A relative delay counts from the clock at the call, not from the last turn. */
static void a_delay_counts_from_the_call(void **state)
{
    (void)state;
    struct probe p;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    probe_init(&p, v, note, 0);
    virtual_now = 300 * MS;
    assert_int_equal(weft_timer_arm_after(&p.timer, 200 * MS), 0);
    assert_int_equal(turn_at(v, 499 * MS), 0);
    assert_int_equal(turn_at(v, 500 * MS), 1);
    assert_int_equal(weft_timer_arm_after(&p.timer, WEFT_NEVER), 0);
    assert_int_equal(turn_at(v, WEFT_NEVER), 0);
    assert_int_equal(weft_timer_cancel(&p.timer), 1);
    assert_int_equal(weft_timer_arm(&p.timer, WEFT_NEVER), 0); /* at the end of the clock */
    assert_int_equal(turn_at(v, WEFT_NEVER), 0);
    assert_int_equal(weft_timer_cancel(&p.timer), 1);
    weft_timer_service_destroy(v);
}

static void re_arm_answers_what_was(void **state)
{
    (void)state;
    struct probe p;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    probe_init(&p, v, note, 0);
    assert_int_equal(weft_timer_arm(&p.timer, 10 * MS), 0);
    assert_int_equal(weft_timer_arm(&p.timer, 500 * MS), 1);
    assert_int_equal(turn_at(v, 100 * MS), 0);
    assert_int_equal(weft_timer_arm(&p.timer, 200 * MS), 1);
    assert_int_equal(turn_at(v, 200 * MS), 1);
    assert_int_equal(weft_timer_arm(&p.timer, 50 * MS), 0); /* past: immediate */
    assert_true(weft_timer_pending(&p.timer));
    assert_int_equal(weft_timer_arm(&p.timer, 60 * MS), 1);
    assert_int_equal(weft_timer_cancel(&p.timer), 1);
    assert_int_equal(weft_timer_cancel(&p.timer), 0);
    assert_int_equal(turn_at(v, 1000 * MS), 0);
    assert_int_equal(p.fired, 1);
    weft_timer_service_destroy(v);
}

static void cancel_other(weft_timer *t, void *arg, int result)
{
    struct probe *p = arg;
    note(t, arg, result);
    if (p->other)
        p->other_answer = weft_timer_cancel(p->other);
}

/* Both due in one turn: the first callback cancels the second, and wins. */
static void a_callback_cancels_what_is_due_with_it(void **state)
{
    (void)state;
    struct probe a, b;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){.shards = 1});
    probe_init(&a, v, cancel_other, 0);
    probe_init(&b, v, cancel_other, 0);
    a.other = &b.timer;
    b.other = &a.timer;
    weft_timer_arm(&a.timer, 10 * MS);
    weft_timer_arm(&b.timer, 10 * MS);
    assert_int_equal(turn_at(v, 10 * MS), 1);
    assert_int_equal(a.fired + b.fired, 1);
    assert_int_equal(a.other_answer + b.other_answer, 1);
    assert_false(weft_timer_pending(&a.timer) || weft_timer_pending(&b.timer));
    /* And again: the struck timer is as good as new. */
    weft_timer_arm(&a.timer, 20 * MS);
    weft_timer_arm(&b.timer, 21 * MS);
    b.other = NULL;
    a.other = NULL;
    assert_int_equal(turn_at(v, 30 * MS), 2);
    weft_timer_service_destroy(v);
}

static void re_arm_self(weft_timer *t, void *arg, int result)
{
    struct probe *p = arg;
    note(t, arg, result);
    if (result == 0)
        assert_int_equal(weft_timer_arm(t, p->rearm), 0);
}

/* Armed as past from inside an expiry: the next turn's, so that a turn ends. Time that
 * steps back does not matter. */
static void past_deadlines_fire_at_the_next_turn(void **state)
{
    (void)state;
    struct probe p;
    virtual_now = 1000 * MS;
    weft_timer_service *v = service_new((weft_timer_options){0});
    probe_init(&p, v, re_arm_self, 0);
    p.rearm = WEFT_TRY;
    weft_timer_arm(&p.timer, -5);
    for (int i = 1; i <= 1000; i++) {
        weft_time until;
        assert_int_equal(weft_timer_service_prepare_wait(v, NULL, &until), WEFT_WAIT_NOW);
        assert_true(until == WEFT_TRY);
        assert_int_equal(turn_at(v, (1000 - i % 2) * MS), 1);
        assert_int_equal(p.fired, i);
        p.rearm = i % 3 == 0 ? 1000 * MS : i % 3 == 1 ? 1000 * MS - 1 : 0;
    }
    weft_timer_service_destroy(v);
}

static void free_self(weft_timer *t, void *arg, int result)
{
    (void)result;
    int *count = *(int **)arg;
    (*count)++;
    weft_timer_cancel(t);
    free(arg);
}

struct owned {
    int *count;
    weft_timer timer;
};

static void a_callback_may_free_its_timer(void **state)
{
    (void)state;
    int count = 0;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    for (int i = 0; i < 200; i++) {
        struct owned *o = malloc(sizeof *o);
        o->count = &count;
        weft_timer_init(&o->timer, weft_timer_service_context(v), free_self, o, 0);
        if (i % 2)
            weft_timer_arm(&o->timer, i * MS);
        else
            weft_timer_arm_every(&o->timer, i * MS, MS, WEFT_INTERVAL_BURST);
    }
    assert_int_equal(turn_at(v, 99 * MS), 100);
    weft_timer_service_destroy(v);
    assert_int_equal(count, 200);
}

/* -- intervals ---------------------------------------------------------------------------- */

static void intervals_follow_their_policy(void **state)
{
    (void)state;
    struct probe burst, delay, skip;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){.shards = 1});
    probe_init(&burst, v, note, 0);
    probe_init(&delay, v, note, 0);
    probe_init(&skip, v, note, 0);
    weft_timer_arm_every(&burst.timer, 10 * MS, 10 * MS, WEFT_INTERVAL_BURST);
    weft_timer_arm_every(&delay.timer, 10 * MS, 10 * MS, WEFT_INTERVAL_DELAY);
    weft_timer_arm_every(&skip.timer, 10 * MS, 10 * MS, WEFT_INTERVAL_SKIP);
    for (int i = 1; i <= 5; i++)
        assert_int_equal(turn_at(v, i * 10 * MS), 3);
    /* A stall of 45 ms: one delivery each, then burst catches up, turn by turn. */
    assert_int_equal(turn_at(v, 95 * MS), 3);
    for (int i = 0; i < 10; i++)
        turn_at(v, 95 * MS);
    assert_int_equal(burst.fired, 9);
    assert_int_equal(delay.fired, 6);
    assert_int_equal(skip.fired, 6);
    turn_at(v, 100 * MS);
    assert_int_equal(burst.fired, 10);
    assert_int_equal(delay.fired, 6); /* 105 */
    assert_int_equal(skip.fired, 7);  /* 100: the schedule is kept */
    turn_at(v, 105 * MS);
    assert_int_equal(delay.fired, 7);
    /* An hour at once, in bounded turns. */
    weft_time hour = 3600 * WEFT_SEC;
    turn_at(v, hour);
    assert_int_equal(delay.fired, 8);
    assert_int_equal(skip.fired, 8);
    for (int i = 0; i < 400000 && burst.fired < 360000; i++)
        turn_at(v, hour);
    assert_int_equal(burst.fired, 360000);
    assert_int_equal(turn_at(v, hour), 0);
    assert_int_equal(weft_timer_cancel(&burst.timer), 1);
    assert_int_equal(weft_timer_cancel(&delay.timer), 1);
    assert_int_equal(weft_timer_cancel(&skip.timer), 1);
    assert_int_equal(turn_at(v, 2 * hour), 0);
    weft_timer_service_destroy(v);
}

static void an_interval_that_starts_at_once_owes_no_past(void **state)
{
    (void)state;
    struct probe p;
    virtual_now = 1000 * MS;
    weft_timer_service *v = service_new((weft_timer_options){0});
    probe_init(&p, v, note, 0);
    weft_timer_arm_every(&p.timer, WEFT_TRY, 10 * MS, WEFT_INTERVAL_BURST);
    for (int i = 0; i < 5; i++)
        turn_at(v, 1000 * MS);
    assert_int_equal(p.fired, 1);
    turn_at(v, 1010 * MS);
    assert_int_equal(p.fired, 2);
    weft_timer_service_destroy(v);
    assert_int_equal(p.result, -ESHUTDOWN);
}

static void stop_self(weft_timer *t, void *arg, int result)
{
    note(t, arg, result);
    if (((struct probe *)arg)->fired == 3)
        assert_int_equal(weft_timer_cancel(t), 0); /* its delivery has begun */
}

static void an_interval_ends_when_its_callback_says_so(void **state)
{
    (void)state;
    struct probe p, q;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    probe_init(&p, v, stop_self, 0);
    weft_timer_arm_every(&p.timer, MS, MS, WEFT_INTERVAL_SKIP);
    for (int i = 1; i < 10; i++)
        turn_at(v, i * MS);
    assert_int_equal(p.fired, 3);
    /* Re-armed as a one-shot in its callback: no interval any more. */
    probe_init(&q, v, re_arm_self, 0);
    q.rearm = 50 * MS;
    weft_timer_arm_every(&q.timer, 20 * MS, MS, WEFT_INTERVAL_SKIP);
    turn_at(v, 20 * MS);
    turn_at(v, 30 * MS);
    assert_int_equal(q.fired, 1);
    q.rearm = 1000 * MS;
    turn_at(v, 50 * MS);
    assert_int_equal(q.fired, 2);
    weft_timer_service_destroy(v);
}

static void an_interval_without_callback_waits_to_be_taken(void **state)
{
    (void)state;
    weft_timer t;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    weft_timer_init(&t, weft_timer_service_context(v), NULL, NULL, 0);
    weft_timer_arm_every(&t, 10 * MS, 10 * MS, WEFT_INTERVAL_SKIP);
    assert_int_equal(weft_timer_poll(&t, NULL), -EAGAIN);
    turn_at(v, 34 * MS);
    turn_at(v, 35 * MS);
    assert_int_equal(weft_timer_wait(&t, WEFT_TRY), 0); /* armed for 40 by this */
    assert_int_equal(weft_timer_wait(&t, WEFT_TRY), -EAGAIN);
    turn_at(v, 39 * MS);
    assert_int_equal(weft_timer_poll(&t, NULL), -EAGAIN);
    turn_at(v, 40 * MS);
    assert_int_equal(weft_timer_poll(&t, NULL), 0);
    turn_at(v, 60 * MS);
    assert_int_equal(weft_timer_cancel(&t), 0);     /* expired, not taken: too late */
    assert_int_equal(weft_timer_poll(&t, NULL), 0); /* seen, and the last */
    assert_int_equal(weft_timer_service_pending(v), 0);
    weft_timer_service_destroy(v);
}

/* -- budgets ------------------------------------------------------------------------------- */

static void a_turn_keeps_both_limits(void **state)
{
    (void)state;
    enum { N = 300 };
    struct probe *p = calloc(2 * N, sizeof *p);
    virtual_now = 100 * MS;
    weft_timer_service *v = service_new((weft_timer_options){.shards = 1});
    for (int i = 0; i < 2 * N; i++) {
        probe_init(&p[i], v, note, 0);
        weft_timer_arm(&p[i].timer, i < N ? 5 * MS : (200 + i % 5) * MS);
    }
    virtual_now = 300 * MS;
    weft_turn_budget b = {.immediate = 7, .entries = 100};
    int64_t n = weft_timer_service_turn(v, virtual_now, &b);
    assert_int_equal(n, 107);
    assert_int_equal(weft_timer_service_prepare_wait(v, NULL, NULL), WEFT_WAIT_NOW);
    b = (weft_turn_budget){.immediate = 1, .entries = 0};
    assert_int_equal(weft_timer_service_turn(v, virtual_now, &b), 1 + 200);
    b = (weft_turn_budget){.immediate = 0, .entries = 1};
    assert_int_equal(weft_timer_service_turn(v, virtual_now, &b), 292);
    assert_int_equal(weft_timer_service_prepare_wait(v, NULL, NULL), WEFT_WAIT_FOREVER);
    for (int i = 0; i < 2 * N; i++)
        assert_int_equal(p[i].fired, 1);
    free(p);
    weft_timer_service_destroy(v);
}

/* A thousand timers that arm themselves as due at once, for ever, starve nobody. */
static void immediate_timers_starve_no_waiting_one(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct probe *p = calloc(N, sizeof *p), ticker;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    for (int i = 0; i < N; i++) {
        probe_init(&p[i], v, re_arm_self, 0);
        p[i].rearm = WEFT_TRY;
        weft_timer_arm(&p[i].timer, WEFT_TRY);
    }
    probe_init(&ticker, v, note, 0);
    weft_timer_arm_every(&ticker.timer, 10 * MS, 10 * MS, WEFT_INTERVAL_SKIP);
    weft_turn_budget b = {.immediate = 16, .entries = 16};
    for (int i = 1; i <= 2000; i++) {
        virtual_now = i * MS;
        weft_timer_service_turn(v, virtual_now, &b);
    }
    assert_int_equal(ticker.fired, 200);
    for (int i = 0; i < N; i++)
        assert_in_range(p[i].fired, 31, 33); /* and each other neither */
    weft_timer_service_destroy(v);
    free(p);
}

/* -- plans ---------------------------------------------------------------------------------- */

static void count_wake(void *arg)
{
    (*(int *)arg)++;
}

static void only_an_earlier_timer_wakes_and_only_once(void **state)
{
    (void)state;
    struct probe a, b, c;
    int wakes = 0;
    weft_time until;
    weft_waker w = {count_wake, &wakes};
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    probe_init(&a, v, note, 0);
    probe_init(&b, v, note, 0);
    probe_init(&c, v, note, 0);
    assert_int_equal(weft_timer_service_prepare_wait(v, &w, &until), WEFT_WAIT_FOREVER);
    assert_true(until == WEFT_NEVER);
    weft_timer_arm(&a.timer, WEFT_NEVER);
    assert_int_equal(wakes, 0);
    weft_timer_arm(&a.timer, 100 * MS - 1);
    assert_int_equal(wakes, 1);
    weft_timer_arm(&b.timer, 50 * MS);
    assert_int_equal(wakes, 1); /* it is awake */
    weft_timer_cancel(&b.timer);
    assert_int_equal(weft_timer_service_prepare_wait(v, &w, &until), WEFT_WAIT_UNTIL);
    assert_true(until == 100 * MS);
    weft_timer_arm(&b.timer, 100 * MS - 2); /* the same tick: the plan stands */
    weft_timer_arm(&c.timer, 100 * MS);
    weft_timer_arm(&c.timer, 200 * MS);
    assert_int_equal(wakes, 1);
    weft_timer_arm(&c.timer, 99 * MS);
    assert_int_equal(wakes, 2);
    weft_timer_cancel(&c.timer); /* the plan goes on, to what is left */
    assert_int_equal(turn_at(v, 99 * MS), 0);
    weft_timer_arm(&c.timer, 1 * MS);
    assert_int_equal(wakes, 2); /* between turn and plan nobody is woken... */
    assert_int_equal(weft_timer_service_prepare_wait(v, &w, &until), WEFT_WAIT_NOW);
    assert_int_equal(turn_at(v, 99 * MS), 1); /* ...and nothing is missed */
    assert_int_equal(turn_at(v, 99 * MS), 0);
    assert_int_equal(weft_timer_service_prepare_wait(v, &w, &until), WEFT_WAIT_UNTIL);
    assert_true(until == 100 * MS);
    assert_int_equal(turn_at(v, 100 * MS), 2);
    weft_timer_service_destroy(v);
    assert_int_equal(wakes, 2);
}

static bool readable(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

static void the_descriptor_shows_the_wake(void **state)
{
    (void)state;
    struct probe a;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    int fd = weft_timer_service_fd(v);
    assert_true(fd >= 0);
    assert_int_equal(weft_timer_service_fd(v), fd);
    probe_init(&a, v, note, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_timer_service_prepare_wait(v, NULL, NULL), WEFT_WAIT_FOREVER);
        assert_false(readable(fd));
        weft_timer_arm(&a.timer, (i + 1) * MS);
        assert_true(readable(fd));
        assert_true(readable(fd));
        assert_int_equal(turn_at(v, (i + 1) * MS), 1);
        assert_false(readable(fd));
    }
    weft_timer_service_destroy(v);
}

static void milliseconds_round_up(void **state)
{
    (void)state;
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_NOW, 0, 5), 0);
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_FOREVER, 0, WEFT_NEVER), -1);
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_UNTIL, 0, 1), 1);
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_UNTIL, 0, MS), 1);
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_UNTIL, 0, MS + 1), 2);
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_UNTIL, 5, 5), 0);
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_UNTIL, 6, 5), 0);
    assert_int_equal(weft_wait_milliseconds(WEFT_WAIT_UNTIL, INT64_MIN, WEFT_NEVER - 1), INT32_MAX);
}

/* -- poll style -------------------------------------------------------------------------------- */

static void a_poller_is_woken_through_its_latest_waker(void **state)
{
    (void)state;
    int old = 0, new = 0;
    weft_waker first = {count_wake, &old}, second = {count_wake, &new};
    weft_timer t;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    weft_timer_init(&t, weft_timer_service_context(v), NULL, NULL, 0);
    weft_timer_arm(&t, 10 * MS);
    assert_int_equal(weft_timer_poll(&t, &first), -EAGAIN);
    assert_int_equal(weft_timer_poll(&t, &first), -EAGAIN);
    assert_int_equal(weft_timer_poll(&t, &second), -EAGAIN);
    weft_timer_arm(&t, 20 * MS); /* moved: the waker stays */
    assert_int_equal(turn_at(v, 19 * MS), 0);
    assert_int_equal(turn_at(v, 20 * MS), 1);
    assert_int_equal(old, 0);
    assert_int_equal(new, 1);
    assert_int_equal(weft_timer_poll(&t, &first), 0);
    assert_int_equal(weft_timer_poll(&t, &first), 0);
    weft_timer_arm(&t, 30 * MS);
    assert_int_equal(weft_timer_poll(&t, &first), -EAGAIN);
    assert_int_equal(weft_timer_cancel(&t), 1);
    assert_int_equal(old, 1);
    assert_int_equal(weft_timer_poll(&t, &first), -ECANCELED);
    weft_timer_arm(&t, 30 * MS);
    assert_int_equal(turn_at(v, 30 * MS), 1); /* nobody registered: nobody woken */
    assert_int_equal(old + new, 2);
    assert_int_equal(weft_timer_poll(&t, NULL), 0);
    weft_timer_arm(&t, 99 * MS);
    assert_int_equal(weft_timer_poll(&t, &second), -EAGAIN);
    weft_timer_service_close(v);
    assert_int_equal(new, 2);
    assert_int_equal(weft_timer_poll(&t, NULL), -ESHUTDOWN);
    weft_timer_service_destroy(v);
}

/* -- weak, cap, close -------------------------------------------------------------------------- */

static void weak_timers_keep_nothing_alive(void **state)
{
    (void)state;
    struct probe strong, weak;
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    probe_init(&strong, v, note, 0);
    probe_init(&weak, v, note, WEFT_TIMER_WEAK);
    weft_timer_arm_every(&weak.timer, MS, MS, WEFT_INTERVAL_SKIP);
    assert_true(weft_timer_service_idle(v));
    weft_timer_arm(&strong.timer, 3 * MS);
    for (int i = 1; i <= 2; i++) {
        assert_false(weft_timer_service_idle(v));
        turn_at(v, i * MS);
    }
    turn_at(v, 3 * MS);
    assert_true(weft_timer_service_idle(v));
    assert_int_equal(weft_timer_service_pending(v), 1);
    weft_timer_arm(&weak.timer, 0);
    weft_timer_arm(&weak.timer, 1000 * MS);
    weft_timer_cancel(&weak.timer);
    assert_true(weft_timer_service_idle(v));
    weft_timer_arm(&strong.timer, 0);
    assert_false(weft_timer_service_idle(v));
    weft_timer_service_destroy(v);
}

static void the_cap_refuses_and_recovers(void **state)
{
    (void)state;
    struct probe p[4];
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){.max_pending = 2});
    for (int i = 0; i < 4; i++)
        probe_init(&p[i], v, note, 0);
    for (int round = 1; round < 5; round++) {
        weft_time at = round * 10 * MS;
        assert_int_equal(weft_timer_arm(&p[0].timer, at), 0);
        assert_int_equal(weft_timer_arm_every(&p[1].timer, at, at, WEFT_INTERVAL_SKIP), 0);
        assert_int_equal(weft_timer_arm(&p[2].timer, at), -EAGAIN);
        assert_false(weft_timer_pending(&p[2].timer));
        assert_int_equal(weft_timer_arm(&p[0].timer, at), 1); /* moving needs no room */
        assert_int_equal(turn_at(v, at), 2);
        assert_int_equal(weft_timer_arm(&p[2].timer, at), 0); /* the interval keeps its place */
        assert_int_equal(weft_timer_arm(&p[3].timer, at), -EAGAIN);
        assert_int_equal(weft_timer_cancel(&p[1].timer), 1);
        assert_int_equal(weft_timer_cancel(&p[2].timer), 1);
    }
    weft_timer_service_destroy(v);
}

static void late_calls(weft_timer *t, void *arg, int result)
{
    struct probe *p = arg;
    note(t, arg, result);
    assert_int_equal(weft_timer_service_turn(p->service, virtual_now, NULL), -EBUSY);
    assert_int_equal(weft_timer_service_prepare_wait(p->service, NULL, NULL), -EBUSY);
    assert_int_equal(weft_timer_service_close(p->service), -EBUSY);
    assert_int_equal(weft_timer_cancel_wait(t, WEFT_NEVER), -EDEADLK);
    if (result)
        assert_int_equal(weft_timer_arm(t, 5), -ESHUTDOWN);
}

static void closing_ends_everything_with_its_own_code(void **state)
{
    (void)state;
    enum { N = 200 };
    struct probe *p = calloc(N, sizeof *p);
    uint64_t rng = 3;
    virtual_now = 50 * MS;
    weft_timer_service *v = service_new((weft_timer_options){0});
    weft_timer_context *c = weft_timer_context_ref(weft_timer_service_context(v));
    for (int i = 0; i < N; i++) {
        probe_init(&p[i], v, late_calls, 0);
        weft_time d = (weft_time)(weft__rand(&rng) >> (weft__rand(&rng) % 64) >> 1);
        if (i % 3)
            weft_timer_arm(&p[i].timer, i % 5 ? d : WEFT_NEVER);
        else
            weft_timer_arm_every(&p[i].timer, d, MS, WEFT_INTERVAL_BURST);
    }
    struct probe now;
    probe_init(&now, v, late_calls, 0);
    weft_timer_arm(&now.timer, 0);
    int64_t expired = turn_at(v, 51 * MS);
    assert_true(expired >= 1);
    assert_int_equal(now.result, 0);
    for (int i = 0; i < N; i++) {
        p[i].fired = 0;
        if (!weft_timer_pending(&p[i].timer))
            weft_timer_arm(&p[i].timer, 100 * MS);
    }
    assert_int_equal(weft_timer_service_close(v), N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(p[i].fired, 1);
        assert_int_equal(p[i].result, -ESHUTDOWN);
        assert_int_equal(weft_timer_arm(&p[i].timer, 5), -ESHUTDOWN);
    }
    assert_int_equal(weft_timer_service_close(v), -EALREADY);
    assert_int_equal(weft_timer_service_turn(v, 60 * MS, NULL), -ESHUTDOWN);
    assert_int_equal(weft_timer_service_prepare_wait(v, NULL, NULL), -ESHUTDOWN);
    weft_timer_service_destroy(v);
    weft_timer late; /* the context outlives its service */
    assert_int_equal(weft_timer_init(&late, c, note, NULL, 0), 0);
    assert_int_equal(weft_timer_arm(&late, 5), -ESHUTDOWN);
    assert_int_equal(weft_timer_cancel(&late), 0);
    assert_true(weft_timer_context_now(c) == virtual_now);
    weft_timer_context_unref(c);
    free(p);
}

/* A million timers put around what ends at once leave nothing behind, at no time. */
static void a_timer_allocates_nothing(void **state)
{
    (void)state;
    weft_timer t[100];
    virtual_now = 0;
    weft_timer_service *v = service_new((weft_timer_options){0});
    size_t before = mallinfo2().uordblks;
    for (int round = 0; round < 10000; round++) {
        for (int i = 0; i < 100; i++) {
            weft_timer_init(&t[i], weft_timer_service_context(v), NULL, NULL, 0);
            assert_int_equal(weft_timer_arm_after(&t[i], 3600 * WEFT_SEC), 0);
        }
        for (int i = 0; i < 100; i++)
            assert_int_equal(weft_timer_cancel(&t[i]), 1);
        if (round % 1000 == 0)
            turn_at(v, virtual_now + 1);
    }
    assert_int_equal(weft_timer_service_pending(v), 0);
    assert_int_equal(mallinfo2().uordblks, before);
    weft_timer_service_destroy(v);
}

static void any_tick_and_delay_fits_the_bounds(void **state)
{
    (void)state;
    static const weft_time ticks[] = {100000, 300000, 1000000, 1500000, 7000000, 10000000};
    static const weft_time delays[] = {0, 50000, 1000000, 9900000, 10000000, 33000000};
    for (int t = 0; t < 6; t++)
        for (int d = 0; d < 6; d++) {
            struct probe p;
            weft_time until;
            virtual_now = 777;
            weft_timer_service *v = service_new((weft_timer_options){.tick = ticks[t]});
            turn_at(v, virtual_now + 3 * ticks[t] / 2);
            weft_time start = virtual_now;
            probe_init(&p, v, note, 0);
            weft_timer_arm_after(&p.timer, delays[d]);
            int plan = weft_timer_service_prepare_wait(v, NULL, &until);
            if (plan == WEFT_WAIT_UNTIL)
                turn_at(v, until);
            else
                turn_at(v, virtual_now);
            assert_int_equal(p.fired, 1);
            assert_true(p.at >= start + delays[d] && p.at <= start + delays[d] + ticks[t]);
            weft_timer_service_destroy(v);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input_gets_an_error),
        cmocka_unit_test(a_jump_delivers_each_once_in_order),
        cmocka_unit_test(a_delay_counts_from_the_call),
        cmocka_unit_test(re_arm_answers_what_was),
        cmocka_unit_test(a_callback_cancels_what_is_due_with_it),
        cmocka_unit_test(past_deadlines_fire_at_the_next_turn),
        cmocka_unit_test(a_callback_may_free_its_timer),
        cmocka_unit_test(intervals_follow_their_policy),
        cmocka_unit_test(an_interval_that_starts_at_once_owes_no_past),
        cmocka_unit_test(an_interval_ends_when_its_callback_says_so),
        cmocka_unit_test(an_interval_without_callback_waits_to_be_taken),
        cmocka_unit_test(a_turn_keeps_both_limits),
        cmocka_unit_test(immediate_timers_starve_no_waiting_one),
        cmocka_unit_test(only_an_earlier_timer_wakes_and_only_once),
        cmocka_unit_test(the_descriptor_shows_the_wake),
        cmocka_unit_test(milliseconds_round_up),
        cmocka_unit_test(a_poller_is_woken_through_its_latest_waker),
        cmocka_unit_test(weak_timers_keep_nothing_alive),
        cmocka_unit_test(the_cap_refuses_and_recovers),
        cmocka_unit_test(closing_ends_everything_with_its_own_code),
        cmocka_unit_test(a_timer_allocates_nothing),
        cmocka_unit_test(any_tick_and_delay_fits_the_bounds),
    };
    int failed = cmocka_run_group_tests_name("shared", tests, NULL, NULL);
    local = true;
    return failed + cmocka_run_group_tests_name("local", tests, NULL, NULL);
}

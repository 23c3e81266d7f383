/* SPDX-License-Identifier: MIT
 *
 * Switching between tasks: yields, and pairs that exchange two single-shot messages.
 */
#include "bench.h"

#include "weft/value.h"
#include "weft/waitgroup.h"

enum { YIELDERS = 200, YIELDS = 1000, PAIRS = 1000 };

/* --- yield --- */

typedef struct yield_state {
    weft_waitgroup *wg;
    long left;
} yield_state;

static int yield_fiber(void *p)
{
    for (int i = 0; i < YIELDS; i++)
        weft_yield();
    weft_waitgroup_done(p);
    return 0;
}

/* A poll task yields by waking itself and returning. */
static int yield_poll(weft_task *self, void *p)
{
    yield_state *s = p;
    if (s->left-- > 0) {
        weft_task_wake(self);
        return WEFT_PENDING;
    }
    weft_waitgroup_done(s->wg);
    return 0;
}

static void run_yield(bench *b, bench_sample *out)
{
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_time t0 = weft_now();
    weft_waitgroup_add(&wg, YIELDERS);
    for (int i = 0; i < YIELDERS; i++) {
        yield_state s = {&wg, YIELDS};
        if (b->c->a)
            bench_go_poll(b->rt, yield_poll, &s, sizeof s);
        else
            bench_go(b->rt, yield_fiber, &wg);
    }
    bench_check(weft_waitgroup_wait(&wg, WEFT_NEVER) == 0, "wait for the yielders");
    out->ns = bench_ns(t0);
    out->n = YIELDERS * YIELDS;
}

static const bench_case yield_cases[] = {
    {.variant = "fiber/1w", .run = run_yield, .workers = 1, .flags = BENCH_INSIDE},
    {.variant = "fiber/2w", .run = run_yield, .workers = 2, .flags = BENCH_INSIDE},
    {.variant = "fiber/8w", .run = run_yield, .workers = 8, .flags = BENCH_INSIDE},
    {.variant = "fiber/64w", .run = run_yield, .workers = 64, .flags = BENCH_INSIDE},
    {.variant = "poll/1w", .run = run_yield, .workers = 1, .flags = BENCH_INSIDE, .a = 1},
    {.variant = "poll/2w", .run = run_yield, .workers = 2, .flags = BENCH_INSIDE, .a = 1},
};
BENCH_WORKLOAD(yield_many, "200 tasks yield 1,000 times each; ns per yield", yield_cases);

/* --- ping-pong --- */

typedef struct pair {
    weft_value ping, pong;
    weft_waitgroup *done;
} pair;

static int ponger(void *p)
{
    pair *x = p;
    int r = weft_value_wait(&x->ping, WEFT_NEVER, NULL);
    weft_value_set(&x->pong, p);
    return r;
}

/* All at once: the outer task owns the pair and starts the inner one. */
static int pinger(void *p)
{
    weft_waitgroup *done = p;
    pair x = {WEFT_VALUE_INIT, WEFT_VALUE_INIT, done};
    int r = weft_spawn(NULL, ponger, &x, NULL, NULL);
    weft_value_set(&x.ping, p);
    r |= weft_value_wait(&x.pong, WEFT_NEVER, NULL);
    bench_check(r == 0, "ping-pong");
    weft_waitgroup_done(done);
    return 0;
}

static int start_pingers(void *p)
{
    for (int i = 0; i < PAIRS; i++)
        bench_go(NULL, pinger, p);
    return 0;
}

static void run_all(bench *b, bench_sample *out)
{
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_time t0 = weft_now();
    weft_waitgroup_add(&wg, PAIRS);
    bench_go(b->rt, start_pingers, &wg);
    bench_check(weft_waitgroup_wait(&wg, WEFT_NEVER) == 0, "wait for the pairs");
    out->ns = bench_ns(t0);
    out->n = PAIRS;
}

static int seq_ponger(void *p)
{
    pair *x = p;
    int r = weft_value_wait(&x->ping, WEFT_NEVER, NULL);
    weft_value_set(&x->pong, p);
    weft_waitgroup_done(x->done);
    return r;
}

static int seq_pinger(void *p)
{
    pair *x = p;
    weft_value_set(&x->ping, p);
    int r = weft_value_wait(&x->pong, WEFT_NEVER, NULL);
    weft_waitgroup_done(x->done);
    return r;
}

/* One after the other: both tasks of a pair are spawned and awaited, then the next. */
static void run_seq(bench *b, bench_sample *out)
{
    weft_time t0 = weft_now();
    for (int i = 0; i < PAIRS; i++) {
        weft_waitgroup wg = WEFT_WAITGROUP_INIT;
        pair x = {WEFT_VALUE_INIT, WEFT_VALUE_INIT, &wg};
        weft_waitgroup_add(&wg, 2);
        bench_go(b->rt, seq_ponger, &x);
        bench_go(b->rt, seq_pinger, &x);
        bench_check(weft_waitgroup_wait(&wg, WEFT_NEVER) == 0, "wait for the pair");
    }
    out->ns = bench_ns(t0);
    out->n = PAIRS;
}

static const bench_case ping_pong_cases[] = {
    {.variant = "all/1w", .run = run_all, .workers = 1, .repeats = 25},
    {.variant = "all/2w", .run = run_all, .workers = 2, .repeats = 25},
    {.variant = "all/8w", .run = run_all, .workers = 8, .repeats = 25},
    {.variant = "all/64w", .run = run_all, .workers = 64, .repeats = 25},
    {.variant = "seq/1w", .run = run_seq, .workers = 1, .flags = BENCH_INSIDE},
    {.variant = "seq/2w", .run = run_seq, .workers = 2, .flags = BENCH_INSIDE},
};
BENCH_WORKLOAD(ping_pong, "1,000 pairs exchange two single-shot messages; ns per pair",
               ping_pong_cases);

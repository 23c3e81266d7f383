/* SPDX-License-Identifier: MIT
 *
 * Spawn and join: fork-join recursion, one task at a time, a runtime for one call, and
 * cancelling what is parked.
 */
#include "bench.h"

#include "weft/driven.h"
#include "weft/event.h"
#include "weft/waitgroup.h"

#include <stdlib.h>

/* --- fork_join: fib with a spawn in every call --- */

typedef struct fib {
    int n;
    long result;
} fib;

static int fib_fiber(void *p)
{
    fib *f = p;
    if (f->n < 2) {
        f->result = f->n;
        return 0;
    }
    fib left = {.n = f->n - 1}, right = {.n = f->n - 2};
    weft_task *t;
    int r = weft_spawn(NULL, fib_fiber, &left, NULL, &t);
    if (r)
        return r;
    r = fib_fiber(&right);
    int joined = weft_task_join(t, WEFT_NEVER, NULL);
    weft_task_unref(t);
    f->result = left.result + right.result;
    return r ? r : joined;
}

/* fib(n), and how many calls had n >= 2, that is, spawned. */
static long fib_of(long n)
{
    long a = 0, b = 1;
    while (n-- > 0) {
        long c = a + b;
        a = b;
        b = c;
    }
    return a;
}

static void run_fib(bench *b, bench_sample *out)
{
    int n = b->quick ? 25 : 30;
    fib f = {.n = n};
    weft_time t0 = weft_now();
    int r = fib_fiber(&f);
    out->ns = bench_ns(t0);
    out->n = (uint64_t)(fib_of(n + 1) - 1);
    bench_check(r == 0 && f.result == fib_of(n), "fib");
}

static const bench_case fib_cases[] = {
    {.variant = "1w", .run = run_fib, .workers = 1, .flags = BENCH_INSIDE, .repeats = 5},
    {.variant = "2w", .run = run_fib, .workers = 2, .flags = BENCH_INSIDE, .repeats = 5},
    {.variant = "8w", .run = run_fib, .workers = 8, .flags = BENCH_INSIDE, .repeats = 5},
    {.variant = "64w", .run = run_fib, .workers = 64, .flags = BENCH_INSIDE, .repeats = 5},
};
BENCH_WORKLOAD(fork_join, "fib(30) with a spawn in every call; ns per spawn", fib_cases);

/* --- block_on --- */

enum { JOINS = 200000, RUNS = 2000 };

static int nothing(void *p)
{
    (void)p;
    return 0;
}

static int nothing_poll(weft_task *self, void *state)
{
    (void)self;
    (void)state;
    return 0;
}

static void run_spawn_join(bench *b, bench_sample *out)
{
    int failed = 0;
    weft_time t0 = weft_now();
    for (int i = 0; i < JOINS; i++) {
        weft_task *t = NULL;
        failed |= b->c->a ? weft_spawn_poll(b->rt, nothing_poll, NULL, 0, NULL, &t)
                          : weft_spawn(b->rt, nothing, NULL, NULL, &t);
        failed |= weft_task_join(t, WEFT_NEVER, NULL);
        weft_task_unref(t);
    }
    out->ns = bench_ns(t0);
    out->n = JOINS;
    bench_check(!failed, "spawn and join");
}

/* A call into the caller's own runtime that need not wait. */
static void run_ready(bench *b, bench_sample *out)
{
    weft_runtime *rt;
    int failed = 0;
    (void)b;
    bench_check(weft_driven_new(NULL, &rt) == 0, "weft_driven_new");
    weft_time t0 = weft_now();
    for (int i = 0; i < JOINS; i++) {
        int result = 1;
        failed |= weft_block_on(rt, nothing, NULL, WEFT_NEVER, &result);
        failed |= result;
    }
    out->ns = bench_ns(t0);
    out->n = JOINS;
    bench_check(!failed, "each call ran");
    weft_runtime_free(rt);
}

/* A host's loop: one task is spawned, one turn runs it. */
static void run_turn(bench *b, bench_sample *out)
{
    weft_runtime *rt;
    int failed = 0, ran = 0;
    bench_check(weft_driven_new(NULL, &rt) == 0, "weft_driven_new");
    weft_time t0 = weft_now();
    for (int i = 0; i < JOINS; i++) {
        failed |= b->c->a ? weft_spawn_poll(rt, nothing_poll, NULL, 0, NULL, NULL)
                          : weft_spawn(rt, nothing, NULL, NULL, NULL);
        ran += weft_driven_turn(rt, NULL);
    }
    out->ns = bench_ns(t0);
    out->n = JOINS;
    bench_check(!failed && ran == JOINS, "each turn ran one task");
    weft_runtime_free(rt);
}

/* A runtime, one call in it, and gone again. */
static void run_runtime(bench *b, bench_sample *out)
{
    int failed = 0;
    (void)b;
    weft_time t0 = weft_now();
    for (int i = 0; i < RUNS; i++)
        failed |= weft_run(NULL, nothing, NULL, NULL);
    out->ns = bench_ns(t0);
    out->n = RUNS;
    bench_check(!failed, "weft_run");
}

static const bench_case block_on_cases[] = {
    {.variant = "ready", .run = run_ready},
    {.variant = "turn/fiber", .run = run_turn},
    {.variant = "turn/poll", .run = run_turn, .a = 1},
    {.variant = "spawn_join/fiber", .run = run_spawn_join, .workers = 1, .flags = BENCH_INSIDE},
    {.variant = "spawn_join/poll",
     .run = run_spawn_join,
     .workers = 1,
     .flags = BENCH_INSIDE,
     .a = 1},
    {.variant = "weft_run", .run = run_runtime},
};
BENCH_WORKLOAD(block_on, "spawn and join one task; a runtime for one call", block_on_cases);

/* --- cancel --- */

enum { PARKED = 10000 };

typedef struct parked {
    weft_event never;
    weft_waitgroup ready;
} parked;

static int park(void *p)
{
    parked *s = p;
    weft_waitgroup_done(&s->ready);
    return weft_event_wait(&s->never, WEFT_NEVER);
}

static void run_cancel(bench *b, bench_sample *out)
{
    parked s = {WEFT_EVENT_INIT, WEFT_WAITGROUP_INIT};
    weft_task **task = bench_alloc(PARKED * sizeof *task);
    int failed = 0, cancelled = 0;
    weft_waitgroup_add(&s.ready, PARKED);
    for (int i = 0; i < PARKED; i++)
        bench_check(weft_spawn(b->rt, park, &s, NULL, &task[i]) == 0, "weft_spawn");
    bench_check(weft_waitgroup_wait(&s.ready, WEFT_NEVER) == 0, "wait until parked");
    weft_yield();

    weft_time t0 = weft_now();
    for (int i = 0; i < PARKED; i++)
        failed |= weft_task_cancel(task[i]);
    for (int i = 0; i < PARKED; i++) {
        int result = 0;
        failed |= weft_task_join(task[i], WEFT_NEVER, &result);
        cancelled += result < 0;
    }
    out->ns = bench_ns(t0);
    out->n = PARKED;
    bench_check(!failed && cancelled == PARKED, "every task was cancelled");
    for (int i = 0; i < PARKED; i++)
        weft_task_unref(task[i]);
    free(task);
}

static const bench_case cancel_cases[] = {
    {.variant = "1w", .run = run_cancel, .workers = 1, .flags = BENCH_INSIDE},
    {.variant = "2w", .run = run_cancel, .workers = 2, .flags = BENCH_INSIDE},
};
BENCH_WORKLOAD(cancel, "cancel and join 10,000 parked fibers; ns per fiber", cancel_cases);

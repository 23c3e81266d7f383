/* SPDX-License-Identifier: MIT
 *
 * The timer service: what a timer costs whoever arms and cancels it, and the reactor
 * that delivers it. Set-up is not timed, counts are verified after the clock was read.
 *
 * Deadlines are absolute where the peers use a cached clock; "relative" reads the clock
 * for each timer, as tokio does. "poll" registers a waker, as tokio does; "local" is a
 * service that one thread has to itself, as libuv's loop.
 */
#include "bench.h"

#include "weft/timer.h"

#include <pthread.h>
#include <stdlib.h>

enum { SHARED = 0, LOCAL = 1, POLLED = 2, RELATIVE = 4, ONE_SHARD = 8 };

#define DAY (86400 * WEFT_SEC)

static long fired;

static void on_timer(weft_timer *t, void *arg, int result)
{
    (void)t;
    (void)arg;
    (void)result;
    fired++;
}

static void on_wake(void *arg)
{
    (*(long *)arg)++;
}

static weft_timer_service *service_new(long style, weft_time origin)
{
    weft_timer_options o = {.local = style & LOCAL, .shards = style & ONE_SHARD ? 1 : 0};
    weft_timer_service *v;
    bench_check(weft_timer_service_create(origin, &o, &v) == 0, "weft_timer_service_create");
    bench_check(weft_timer_service_turn(v, origin, NULL) == 0, "nothing is due");
    bench_check(weft_timer_service_prepare_wait(v, NULL, NULL) == WEFT_WAIT_FOREVER, "idle");
    return v;
}

static weft_timer *timers_new(weft_timer_context *c, long n, long style)
{
    weft_timer *t = bench_alloc((size_t)n * sizeof *t);
    for (long i = 0; i < n; i++)
        weft_timer_init(&t[i], c, style & POLLED ? NULL : on_timer, NULL, 0);
    return t;
}

static void arm_all(weft_timer *t, long n, long style, weft_time deadline)
{
    weft_waker w = {on_wake, &fired};
    if (style & RELATIVE)
        for (long i = 0; i < n; i++)
            weft_timer_arm_after(&t[i], DAY);
    else
        for (long i = 0; i < n; i++)
            weft_timer_arm(&t[i], deadline);
    if (style & POLLED)
        for (long i = 0; i < n; i++)
            weft_timer_poll(&t[i], &w);
}

static long rounds_for(const bench *b, long n)
{
    long total = b->quick ? 100000 : 400000;
    return n < total ? total / n : 1;
}

/* -- create, arm, cancel -------------------------------------------------------------- */

static void run_lifecycle(bench *b, bench_sample *out)
{
    long n = b->c->a, style = b->c->b, rounds = rounds_for(b, n), won = 0;
    weft_time now = weft_now();
    weft_timer_service *v = service_new(style, now);
    weft_timer_context *c = weft_timer_service_context(v);
    weft_timer *t = timers_new(c, n, style); /* memory that has been touched */
    weft_time t0 = weft_now();
    for (long r = 0; r < rounds; r++) {
        for (long i = 0; i < n; i++)
            weft_timer_init(&t[i], c, style & POLLED ? NULL : on_timer, NULL, 0);
        arm_all(t, n, style, now + DAY);
        for (long i = 0; i < n; i++)
            won += weft_timer_cancel(&t[i]);
    }
    out->ns = bench_ns(t0);
    out->n = (uint64_t)(n * rounds);
    bench_check(won == n * rounds, "every cancel won");
    bench_check(weft_timer_service_pending(v) == 0, "none is left");
    free(t);
    weft_timer_service_destroy(v);
}

static void run_part(bench *b, bench_sample *out, bool cancel)
{
    long n = b->c->a, rounds = rounds_for(b, n), won = 0, pending = 0;
    weft_time now = weft_now();
    weft_timer_service *v = service_new(SHARED, now);
    weft_timer *t = timers_new(weft_timer_service_context(v), n, SHARED);
    for (long r = 0; r < rounds; r++) {
        weft_time t0 = weft_now();
        arm_all(t, n, SHARED, now + DAY);
        weft_time t1 = weft_now();
        pending += (long)weft_timer_service_pending(v);
        weft_time t2 = weft_now();
        for (long i = 0; i < n; i++)
            won += weft_timer_cancel(&t[i]);
        out->ns = (r ? out->ns : 0) + (cancel ? bench_ns(t2) : (double)(t1 - t0));
    }
    out->n = (uint64_t)(n * rounds);
    bench_check(won == n * rounds && pending == n * rounds, "all were armed and cancelled");
    free(t);
    weft_timer_service_destroy(v);
}

static void run_register(bench *b, bench_sample *out)
{
    run_part(b, out, false);
}

static void run_cancel(bench *b, bench_sample *out)
{
    run_part(b, out, true);
}

#define SIZED(label, fn, n, style)                                                                 \
    {                                                                                              \
        .variant = label, .run = fn, .a = n, .b = style                                            \
    }
static const bench_case lifecycle_cases[] = {
    SIZED("64", run_lifecycle, 64, SHARED),
    SIZED("1024", run_lifecycle, 1024, SHARED),
    SIZED("100000", run_lifecycle, 100000, SHARED),
    SIZED("local/64", run_lifecycle, 64, LOCAL),
    SIZED("local/1024", run_lifecycle, 1024, LOCAL),
    SIZED("local/100000", run_lifecycle, 100000, LOCAL),
    SIZED("poll/64", run_lifecycle, 64, POLLED),
    SIZED("poll/1024", run_lifecycle, 1024, POLLED),
    SIZED("poll/100000", run_lifecycle, 100000, POLLED),
    SIZED("poll_relative/64", run_lifecycle, 64, POLLED | RELATIVE),
    SIZED("poll_relative/1024", run_lifecycle, 1024, POLLED | RELATIVE),
    SIZED("poll_relative/100000", run_lifecycle, 100000, POLLED | RELATIVE),
};
BENCH_WORKLOAD(timer_lifecycle, "create + arm + cancel of n timers; ns per timer", lifecycle_cases);

static const bench_case register_cases[] = {
    SIZED("64", run_register, 64, SHARED),
    SIZED("1024", run_register, 1024, SHARED),
    SIZED("100000", run_register, 100000, SHARED),
};
BENCH_WORKLOAD(timer_register, "arm n timers; ns per timer", register_cases);

static const bench_case cancel_cases[] = {
    SIZED("64", run_cancel, 64, SHARED),
    SIZED("1024", run_cancel, 1024, SHARED),
    SIZED("100000", run_cancel, 100000, SHARED),
};
BENCH_WORKLOAD(timer_cancel, "cancel n armed timers; ns per timer", cancel_cases);

/* -- expiry ------------------------------------------------------------------------------ */

/* One turn that finds all of them due; the clock is made up, so nobody sleeps. */
static void expire(bench *b, bench_sample *out, bool spread)
{
    long n = b->c->a, style = b->c->b;
    weft_time now = 1000 * WEFT_SEC;
    weft_timer_service *v = service_new(style, now);
    weft_timer *t = timers_new(weft_timer_service_context(v), n, style);
    weft_waker w = {on_wake, &fired};
    for (long i = 0; i < n; i++) {
        weft_time ms = spread ? 1 + (weft_time)(((uint64_t)i * 2654435761u >> 7) % 4096) : 150;
        weft_timer_arm(&t[i], now + ms * WEFT_MSEC);
        if (style & POLLED)
            weft_timer_poll(&t[i], &w);
    }
    fired = 0;
    weft_time t0 = weft_now();
    int64_t delivered = weft_timer_service_turn(v, now + 4110 * WEFT_MSEC, NULL);
    out->ns = bench_ns(t0);
    out->n = (uint64_t)n;
    bench_check(delivered == n && fired == n, "every timer fired once");
    bench_check(weft_timer_service_pending(v) == 0, "none is left");
    free(t);
    weft_timer_service_destroy(v);
}

static void run_expire_same(bench *b, bench_sample *out)
{
    expire(b, out, false);
}

static void run_expire_spread(bench *b, bench_sample *out)
{
    expire(b, out, true);
}

static const bench_case expiry_cases[] = {
    SIZED("same/1024", run_expire_same, 1024, SHARED),
    SIZED("same/100000", run_expire_same, 100000, SHARED),
    SIZED("spread/1024", run_expire_spread, 1024, SHARED),
    SIZED("spread/100000", run_expire_spread, 100000, SHARED),
    SIZED("poll/same/1024", run_expire_same, 1024, POLLED),
    SIZED("poll/same/100000", run_expire_same, 100000, POLLED),
    SIZED("poll/spread/1024", run_expire_spread, 1024, POLLED),
};
BENCH_WORKLOAD(timer_expiry, "deliver n due timers in one turn; ns per timer", expiry_cases);

/* -- several threads ----------------------------------------------------------------------- */

enum { BATCH = 64, THREADS_MAX = 8 };

typedef struct crowd {
    weft_timer_context *context;
    pthread_barrier_t start;
    long rounds;
} crowd;

typedef struct member {
    crowd *crowd;
    pthread_t thread;
    weft_time began, ended;
} member;

static void *crowd_member(void *arg)
{
    member *m = arg;
    crowd *c = m->crowd;
    weft_timer t[BATCH];
    long won = 0;
    pthread_barrier_wait(&c->start);
    m->began = weft_now();
    weft_time deadline = m->began + DAY;
    for (long r = 0; r < c->rounds; r++) {
        for (int i = 0; i < BATCH; i++)
            weft_timer_init(&t[i], c->context, on_timer, NULL, 0);
        for (int i = 0; i < BATCH; i++)
            weft_timer_arm(&t[i], deadline + (weft_time)i * WEFT_SEC);
        for (int i = 0; i < BATCH; i++)
            won += weft_timer_cancel(&t[i]);
    }
    m->ended = weft_now();
    bench_check(won == c->rounds * BATCH, "every cancel won");
    return NULL;
}

static void run_contended(bench *b, bench_sample *out)
{
    int n = (int)b->c->a;
    weft_timer_service *v = service_new(b->c->b, weft_now());
    member all[THREADS_MAX];
    weft_time began = WEFT_NEVER, ended = 0;
    crowd c = {.context = weft_timer_service_context(v)};
    c.rounds = (b->quick ? 4000 : 40000) / n;
    pthread_barrier_init(&c.start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        all[i] = (member){.crowd = &c};
        bench_check(pthread_create(&all[i].thread, NULL, crowd_member, &all[i]) == 0,
                    "pthread_create");
    }
    for (int i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        began = all[i].began < began ? all[i].began : began;
        ended = all[i].ended > ended ? all[i].ended : ended;
    }
    out->ns = (double)(ended - began); /* from the first start to the last end */
    out->n = (uint64_t)(n * c.rounds * BATCH);
    bench_check(weft_timer_service_pending(v) == 0, "none is left");
    pthread_barrier_destroy(&c.start);
    weft_timer_service_destroy(v);
}

static const bench_case contended_cases[] = {
    SIZED("1", run_contended, 1, SHARED),
    SIZED("2", run_contended, 2, SHARED),
    SIZED("4", run_contended, 4, SHARED),
    SIZED("8", run_contended, 8, SHARED),
    SIZED("one_lock/1", run_contended, 1, ONE_SHARD),
    SIZED("one_lock/2", run_contended, 2, ONE_SHARD),
    SIZED("one_lock/4", run_contended, 4, ONE_SHARD),
    SIZED("one_lock/8", run_contended, 8, ONE_SHARD),
};
BENCH_WORKLOAD(timer_contended, "lifecycle on one service from n threads; wall ns per timer",
               contended_cases);

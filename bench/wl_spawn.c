/* SPDX-License-Identifier: MIT
 *
 * Spawning: from a task, from a plain thread, from eight at once, and in a chain.
 * Every task counts itself in a wait group, which is also how the end is awaited.
 */
#include "bench.h"

#include "weft/event.h"
#include "weft/waitgroup.h"

#include <pthread.h>
#include <stdlib.h>

enum { TASKS = 100000, FLOODERS = 8, FLOOD = 1000000, SAMPLE_EVERY = 64 };
enum { FIBER, POLL };

static int fiber_done(void *wg)
{
    weft_waitgroup_done(wg);
    return 0;
}

static int poll_done(weft_task *self, void *state)
{
    (void)self;
    weft_waitgroup_done(*(weft_waitgroup **)state);
    return 0;
}

/* Spawns n tasks of the kind on b->rt and waits for all: in a task, or outside. */
static void run_spawn(bench *b, bench_sample *out)
{
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup *state = &wg;
    int failed = 0;
    weft_time t0 = weft_now();
    weft_waitgroup_add(&wg, TASKS);
    if (b->c->a == FIBER) {
        for (int i = 0; i < TASKS; i++)
            failed |= weft_spawn(b->rt, fiber_done, &wg, NULL, NULL);
    } else {
        for (int i = 0; i < TASKS; i++)
            failed |= weft_spawn_poll(b->rt, poll_done, &state, sizeof state, NULL, NULL);
    }
    bench_check(weft_waitgroup_wait(&wg, WEFT_NEVER) == 0, "wait for the spawned");
    out->ns = bench_ns(t0);
    out->n = TASKS;
    bench_check(!failed, "a spawn failed");
    bench_check(weft_waitgroup_count(&wg) == 0, "every task ran once");
}

static const bench_case local_cases[] = {
    {.variant = "fiber", .run = run_spawn, .workers = 1, .flags = BENCH_INSIDE, .a = FIBER},
    {.variant = "poll", .run = run_spawn, .workers = 1, .flags = BENCH_INSIDE, .a = POLL},
};
BENCH_WORKLOAD(spawn_local, "1 worker: a task spawns 100,000 empty tasks, waits for all",
               local_cases);

static const bench_case external_cases[] = {
    {.variant = "fiber", .run = run_spawn, .workers = 2, .a = FIBER},
    {.variant = "poll", .run = run_spawn, .workers = 2, .a = POLL},
};
BENCH_WORKLOAD(spawn_external, "2 workers: a plain thread spawns 100,000 empty tasks",
               external_cases);

static const bench_case internal_cases[] = {
    {.variant = "fiber", .run = run_spawn, .workers = 2, .flags = BENCH_INSIDE, .a = FIBER},
    {.variant = "poll", .run = run_spawn, .workers = 2, .flags = BENCH_INSIDE, .a = POLL},
    {.variant = "fiber/8w", .run = run_spawn, .workers = 8, .flags = BENCH_INSIDE, .a = FIBER},
    {.variant = "fiber/64w", .run = run_spawn, .workers = 64, .flags = BENCH_INSIDE, .a = FIBER},
};
BENCH_WORKLOAD(spawn_internal, "2 workers: a task spawns 100,000 empty tasks", internal_cases);

/* --- flood: eight spawners at once; one task in 64 notes how long it had to wait --- */

typedef struct flood {
    weft_runtime *rt;
    weft_waitgroup done;
    weft_event go;
    double *waited; /* us, one per sampled task */
    int each;
} flood;

typedef struct flood_task {
    flood *f;
    double *slot; /* NULL: not sampled */
    weft_time spawned;
} flood_task;

static int flood_poll(weft_task *self, void *state)
{
    flood_task *t = state;
    (void)self;
    if (t->slot)
        *t->slot = bench_ns(t->spawned) / 1e3;
    weft_waitgroup_done(&t->f->done);
    return 0;
}

typedef struct flooder {
    flood *f;
    int number;
    int failed;
} flooder;

static int flood_spawner(void *p)
{
    flooder *me = p;
    flood *f = me->f;
    if (weft_event_wait(&f->go, WEFT_NEVER))
        return -1;
    double *slot = f->waited + me->number * (f->each / SAMPLE_EVERY);
    for (int i = 0; i < f->each; i++) {
        flood_task t = {.f = f};
        if (i % SAMPLE_EVERY == SAMPLE_EVERY - 1) {
            t.slot = slot++;
            t.spawned = weft_now();
        }
        me->failed |= weft_spawn_poll(f->rt, flood_poll, &t, sizeof t, NULL, NULL);
    }
    return 0;
}

static void *flood_thread(void *p)
{
    flood_spawner(p);
    return NULL;
}

enum { OUTSIDE, FROM_INSIDE };

static void run_flood(bench *b, bench_sample *out)
{
    int each = (b->quick ? FLOOD / 10 : FLOOD) / FLOODERS / SAMPLE_EVERY * SAMPLE_EVERY;
    flood f = {.rt = b->rt, .each = each};
    flooder who[FLOODERS];
    pthread_t thread[FLOODERS];
    weft_task *task[FLOODERS];
    size_t samples = (size_t)(FLOODERS * each / SAMPLE_EVERY);
    f.waited = bench_alloc(samples * sizeof(double));
    weft_waitgroup_add(&f.done, FLOODERS * each);
    for (int i = 0; i < FLOODERS; i++) {
        who[i] = (flooder){.f = &f, .number = i};
        bench_check((b->c->a == OUTSIDE
                         ? pthread_create(&thread[i], NULL, flood_thread, &who[i])
                         : weft_spawn(b->rt, flood_spawner, &who[i], NULL, &task[i])) == 0,
                    "start a spawner");
    }
    weft_time t0 = weft_now();
    weft_event_set(&f.go);
    bench_check(weft_waitgroup_wait(&f.done, WEFT_NEVER) == 0, "wait for the flood");
    out->ns = bench_ns(t0);
    out->rss_mib = bench_rss() / 1048576.0;

    for (int i = 0; i < FLOODERS; i++) {
        if (b->c->a == OUTSIDE) {
            pthread_join(thread[i], NULL);
        } else {
            bench_check(weft_task_join(task[i], WEFT_NEVER, NULL) == 0, "join a spawner");
            weft_task_unref(task[i]);
        }
        bench_check(!who[i].failed, "a spawn failed");
    }
    out->n = (uint64_t)(FLOODERS * each);
    out->value = (double)out->n / out->ns * 1e3;
    out->p50_us = bench_percentile(f.waited, samples, 0.50);
    out->p90_us = bench_percentile(f.waited, samples, 0.90);
    out->p99_us = bench_percentile(f.waited, samples, 0.99);
    free(f.waited);
}

static const bench_case flood_cases[] = {
    {.variant = "outside",
     .run = run_flood,
     .unit = "M/s",
     .workers = 2,
     .repeats = 5,
     .a = OUTSIDE},
    {.variant = "inside",
     .run = run_flood,
     .unit = "M/s",
     .workers = 2,
     .repeats = 5,
     .a = FROM_INSIDE},
};
BENCH_WORKLOAD(spawn_flood, "8 threads or 8 tasks spawn 1,000,000 empty poll tasks", flood_cases);

/* --- chain: each task spawns the next --- */

typedef struct chain {
    weft_runtime *rt;
    weft_event end;
    long left;
    int failed;
} chain;

static int chain_link(void *p)
{
    chain *c = p;
    if (--c->left == 0)
        weft_event_set(&c->end);
    else
        c->failed |= weft_spawn(NULL, chain_link, c, NULL, NULL);
    return 0;
}

static int chain_poll(weft_task *self, void *state)
{
    chain *c = *(chain **)state;
    (void)self;
    if (--c->left == 0)
        weft_event_set(&c->end);
    else
        c->failed |= weft_spawn_poll(c->rt, chain_poll, &c, sizeof c, NULL, NULL);
    return 0;
}

static void run_chain(bench *b, bench_sample *out)
{
    chain c = {.rt = b->rt, .left = b->c->a};
    chain *state = &c;
    weft_time t0 = weft_now();
    if (b->c->b == FIBER)
        bench_go(b->rt, chain_link, &c);
    else
        bench_go_poll(b->rt, chain_poll, &state, sizeof state);
    bench_check(weft_event_wait(&c.end, WEFT_NEVER) == 0, "wait for the chain");
    out->ns = bench_ns(t0);
    out->n = (uint64_t)b->c->a;
    bench_check(c.left == 0 && !c.failed, "the chain is complete");
}

#define CHAIN(label, kind, depth, n)                                                               \
    {                                                                                              \
        .variant = label, .run = run_chain, .workers = n, .repeats = 25, .a = depth, .b = kind     \
    }
static const bench_case chain_cases[] = {
    CHAIN("fiber/1000/1w", FIBER, 1000, 1), CHAIN("fiber/10000/1w", FIBER, 10000, 1),
    CHAIN("fiber/1000/2w", FIBER, 1000, 2), CHAIN("fiber/10000/2w", FIBER, 10000, 2),
    CHAIN("poll/10000/1w", POLL, 10000, 1), CHAIN("poll/10000/2w", POLL, 10000, 2),
};
BENCH_WORKLOAD(chained_spawn, "each task spawns the next", chain_cases);

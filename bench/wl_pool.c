/* SPDX-License-Identifier: MIT
 *
 * The same three loads on the built-in queues and on each pool: tasks from outside, tasks
 * that give way all the time, and a tree that splits and joins.
 */
#include "bench.h"

#include "weft/pool.h"
#include "weft/waitgroup.h"

enum { BUILT_IN, SINGLE, COMPUTATIONAL, STEALABLE };
enum { SPAWN = 100000, YIELDERS = 100, YIELDS = 1000, DEPTH = 16 };

static weft_pool *pool;

static void setup(bench *b)
{
    int r = 0;
    pool = NULL;
    switch (b->c->a) {
    case SINGLE:
        r = weft_pool_new_single(&pool);
        break;
    case COMPUTATIONAL:
        r = weft_pool_new_computational(0, &pool);
        break;
    case STEALABLE:
        r = weft_pool_new_stealable(NULL, &pool);
        break;
    default:
        break;
    }
    bench_check(r == 0, "a pool");
    weft_runtime_options o = {.workers = 2, .pool = pool};
    bench_check(weft_runtime_new(&o, &b->rt) == 0, "a runtime");
}

static void teardown(bench *b)
{
    b->rt = weft_runtime_free(b->rt);
    pool = weft_pool_free(pool);
}

static int done(void *wg)
{
    weft_waitgroup_done(wg);
    return 0;
}

static void finish(weft_waitgroup *wg, weft_time t0, uint64_t n, bench_sample *out)
{
    bench_check(weft_waitgroup_wait(wg, WEFT_NEVER) == 0, "wait for all");
    out->ns = bench_ns(t0);
    out->n = n;
}

static void run_external(bench *b, bench_sample *out)
{
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, SPAWN);
    weft_time t0 = weft_now();
    for (int i = 0; i < SPAWN; i++)
        bench_go(b->rt, done, &wg);
    finish(&wg, t0, SPAWN, out);
}

static int yielder(void *wg)
{
    for (int i = 0; i < YIELDS; i++)
        weft_yield();
    return done(wg);
}

static void run_yield(bench *b, bench_sample *out)
{
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, YIELDERS);
    weft_time t0 = weft_now();
    for (int i = 0; i < YIELDERS; i++)
        bench_go(b->rt, yielder, &wg);
    finish(&wg, t0, (uint64_t)YIELDERS * YIELDS, out);
}

struct node {
    weft_waitgroup *wg;
    struct node *child; /* two */
};

static struct node nodes[(1 << (DEPTH + 1)) - 1];

static int split(void *arg)
{
    struct node *n = arg;
    for (int i = 0; n->child && i < 2; i++)
        weft_go(split, &n->child[i]);
    return done(n->wg);
}

static void run_tree(bench *b, bench_sample *out)
{
    const size_t count = sizeof nodes / sizeof nodes[0];
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, (int)count);
    for (size_t i = 0; i < count; i++)
        nodes[i] = (struct node){&wg, 2 * i + 2 < count ? &nodes[2 * i + 1] : NULL};
    weft_time t0 = weft_now();
    bench_go(b->rt, split, &nodes[0]);
    finish(&wg, t0, count, out);
}

#define ON(load, kind, number)                                                                     \
    {                                                                                              \
        .variant = #load "/" kind, .run = run_##load, .setup = setup, .teardown = teardown,        \
        .a = number                                                                                \
    }
#define ON_EACH(load)                                                                              \
    ON(load, "built_in", BUILT_IN), ON(load, "single", SINGLE),                                    \
        ON(load, "computational", COMPUTATIONAL), ON(load, "stealable", STEALABLE)

static const bench_case pool_cases[] = {ON_EACH(external), ON_EACH(yield), ON_EACH(tree)};
BENCH_WORKLOAD(pool, "2 workers: spawns from outside, yields, and a tree of tasks, on each pool",
               pool_cases);

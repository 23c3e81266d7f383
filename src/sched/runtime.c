/* SPDX-License-Identifier: MIT
 *
 * runtime.c -- weft/runtime.h: making, draining and ending a runtime.
 *
 * Shutdown in steps: 1 `closing` turns spawns away (a spawn from outside counts itself
 * before it looks, so either it sees `closing` or the count sees it); 2 every task is
 * cancelled; 3 the caller waits on `drained`, which a worker wakes that goes to sleep
 * and finds nothing alive. Free then sets `stop`, wakes every sleeper, joins.
 *
 * A forked child has the memory but no worker: a page that the kernel wipes on fork
 * tells, at the price of one load, in which of the two we are.
 */
#include "sched/census.h"
#include "sched/cpus.h"
#include "sched/extra.h"
#include "sched/worker.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weft/driven.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define MAX_WORKERS   1024u
#define DEFAULT_TASKS ((size_t)1 << 24)

/* ---- Making ---- */

static const unsigned char *alive_page_new(void)
{
    unsigned char *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK); /* older kernels: no check */
    *page = 1;
    return page;
}

/* What alive_page points to when there is no page, and for the handles that outlive the
 * runtime. */
static const unsigned char alive = 1, forked = 0;

static void give_page(struct weft_runtime *rt, const unsigned char *then)
{
    if (rt->alive_page != &alive)
        munmap((void *)(uintptr_t)rt->alive_page, (size_t)sysconf(_SC_PAGESIZE));
    rt->alive_page = then;
}

static void count_held(weft_task *t, void *arg)
{
    uint32_t refs = atom_load_rlx(&t->refs);
    /* Not done: the running task holds one itself. */
    bool held = refs & WEFT__TASK_DONE ? true : refs > 1;
    *(bool *)arg |= held && (t->flags & WEFT__TASK_HANDLE);
}

/* In a child: frees what nobody can have had in hand when the fork came. No lock is taken,
 * for its holder is not here, and no list walked that is changed with several stores.
 * Tasks that a handle may still name stay. */
static void runtime_forget(struct weft_runtime *rt)
{
    bool held = false;
    weft__lock_init(&rt->depot.lock);
    weft__task_each(&rt->depot, count_held, &held);
    if (rt->pool && rt->pool->ops->close)
        rt->pool->ops->close(rt->pool);
    weft__free(rt->worker);
    rt->worker = NULL;
    weft__stack_pool_discard(rt->stacks);
    give_page(rt, &forked);
    if (!held) {
        weft__task_depot_fini(&rt->depot);
        weft__free(rt);
    }
}

/* Last of all that may touch a task or wake one. */
static void close_pool(struct weft_runtime *rt)
{
    weft_pool *pool = rt->pool;
    rt->pool = NULL;
    if (!pool)
        return;
    WEFT__CHECK(pool->ops->length(pool) == 0);
    if (pool->ops->close)
        pool->ops->close(pool);
}

static void runtime_destroy(struct weft_runtime *rt)
{
    if (weft__forked(rt)) {
        runtime_forget(rt);
        return;
    }
    /* Somebody outside who woke one of the last tasks may be a few instructions behind. */
    while (atom_load_acq(&rt->visitors)) {
        weft__a32 never = {0};
        weft__sys_futex_wait(&never, 0, weft_after(20 * WEFT_USEC));
    }
    weft__driver *driver = atom_load_acq(&rt->driver);
    if (driver)
        driver->ops->free(driver);
    for (unsigned i = 0; rt->worker && i < rt->workers; i++)
        weft__worker_fini(&rt->worker[i]);
    close_pool(rt);
    weft__free(rt->worker);
    rt->worker = NULL;
    weft__driven_free(rt);
    weft__free(rt->census_table);
    if (rt->overflow_report)
        weft__overflow_uninstall();
    weft__stack_pool_free(rt->stacks);
    give_page(rt, &alive);
    /* Slots that a handle still holds keep the depot, and so the runtime, in memory. */
    if (weft__task_depot_orphan(&rt->depot)) {
        weft__task_depot_fini(&rt->depot);
        weft__free(rt);
    }
}

void weft__runtime_slot_free(struct weft_runtime *rt, weft_task *t)
{
    if (weft__forked(rt))
        return; /* it stays */
    if (weft__task_give(&rt->depot, t)) {
        weft__task_depot_fini(&rt->depot);
        weft__free(rt);
    }
}

/* How many places, for whom. */
struct places {
    unsigned permanent, own, all;
};

static const struct places one_place = {1, 1, 1};

static bool count_places(const weft_runtime_options *o, struct places *p)
{
    p->permanent = o && o->workers ? o->workers : weft__cpus(NULL);
    p->own = o && o->max_workers > p->permanent ? o->max_workers : p->permanent;
    if (o && o->no_workers)
        p->permanent = p->own = 0;
    uint64_t all = (uint64_t)p->own + (o ? o->lent_workers : 0);
    p->all = (unsigned)all;
    return all > 0 && all <= MAX_WORKERS && p->permanent <= MAX_WORKERS;
}

static int runtime_create(const weft_runtime_options *options, struct places places,
                          struct weft_runtime **ret)
{
    static const weft_runtime_options defaults;
    const weft_runtime_options *o = options ? options : &defaults;
    unsigned workers = places.all;
    if ((o->stack_size && o->stack_size < WEFT__STACK_MIN) || o->idle_timeout < 0)
        return -EINVAL;
    struct weft_runtime *rt = weft__aligned_alloc(WEFT__CACHE_LINE, sizeof *rt);
    if (!rt)
        return -ENOMEM;
    memset(rt, 0, sizeof *rt);
    rt->workers = rt->at_once = workers;
    if (workers > 1 && workers > weft__sys_cpus())
        rt->at_once = weft__sys_cpus();
    rt->permanent = places.permanent;
    rt->own_places = places.own;
    rt->solo = workers == 1 && !o->pool;
    rt->idle_timeout = o->idle_timeout ? o->idle_timeout : 10 * WEFT_SEC;
    rt->hooks = o->hooks;
    rt->census = o->census;
    rt->max_tasks = o->max_tasks;
    snprintf(rt->name, sizeof rt->name, "%.11s", o->name ? o->name : "weft");
    weft__idle_init(&rt->idle);
    weft__task_depot_init(&rt->depot, o->max_tasks ? SIZE_MAX : DEFAULT_TASKS);
    weft__list_init(&rt->drained);
    atom_store_rlx(&rt->keeper_until, (uint64_t)INT64_MIN);
    int r = weft__stack_pool_new(o->stack_size, &rt->stacks);
    if (r) {
        weft__free(rt);
        return r;
    }
    const unsigned char *page = alive_page_new();
    rt->alive_page = page ? page : &alive;
    rt->worker = weft__aligned_alloc(WEFT__CACHE_LINE, workers * sizeof *rt->worker);
    if (rt->census)
        rt->census_table = weft__calloc(1, sizeof *rt->census_table);
    rt->overflow_report = !o->keep_signals && weft__overflow_install() == 0;
    if (!page || !rt->worker) {
        rt->workers = 0;
        runtime_destroy(rt);
        return -ENOMEM;
    }
    r = o->pool && o->pool->ops->open ? o->pool->ops->open(o->pool, workers) : 0;
    rt->pool = r ? NULL : o->pool;
    for (unsigned i = 0; i < workers; i++)
        weft__worker_init(&rt->worker[i], rt, i);
    if (r)
        runtime_destroy(rt);
    else
        *ret = rt;
    return r;
}

int weft_runtime_new(const weft_runtime_options *options, weft_runtime **ret)
{
    struct weft_runtime *rt;
    struct places places = {0};
    if (!ret || !count_places(options, &places))
        return -EINVAL;
    int r = runtime_create(options, places, &rt);
    if (r)
        return r;
    r = weft__crew_start(rt);
    if (r) {
        weft__crew_stop(rt);
        runtime_destroy(rt);
        return r;
    }
    *ret = rt;
    return 0;
}

int weft_driven_new(const weft_runtime_options *options, weft_runtime **ret)
{
    struct weft_runtime *rt;
    if (!ret)
        return -EINVAL;
    int r = runtime_create(options, one_place, &rt);
    if (r)
        return r;
    r = weft__driven_new(rt);
    if (r)
        runtime_destroy(rt);
    else
        *ret = rt;
    return r;
}

/* ---- weft_run ---- */

struct run_main {
    weft_fn fn;
    void *arg;
    int result;
};

static int run_main(void *arg)
{
    struct run_main *m = arg;
    m->result = m->fn(m->arg);
    return m->result;
}

int weft_run(const weft_runtime_options *options, weft_fn fn, void *arg, int *ret_result)
{
    struct weft_runtime *rt;
    struct run_main m = {fn, arg, 0};
    if (!fn)
        return -EINVAL;
    if (weft__worker_self())
        return -EDEADLK;
    int r = runtime_create(options, one_place, &rt);
    if (r)
        return r;
    rt->own_places = 0; /* the place is lent by the caller */
    r = weft_spawn(rt, run_main, &m, &(weft_spawn_options){.name = "main"}, NULL);
    if (r == 0)
        weft__crew_lend(rt, WEFT_NEVER, true);
    runtime_destroy(rt);
    if (r == 0 && ret_result)
        *ret_result = m.result;
    return r;
}

/* ---- Draining ---- */

static int drained_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)n;
    (void)wakes;
    return weft__alive(object) ? -EAGAIN : 0;
}

static void drained_link(void *object, weft__wait_node *n)
{
    weft__list_push(&((struct weft_runtime *)object)->drained, &n->link);
}

static void drained_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops drained_ops = {"shutdown", drained_try, drained_link,
                                               drained_unlink};

/* By a worker that found no work; the seq-cst accesses of going to sleep and of
 * `closing` see to it that the last worker or the shutdown itself sees zero. */
void weft__drained_check(struct weft_runtime *rt)
{
    if (WEFT__LIKELY(!atom_load_sc(&rt->closing)) || weft__alive(rt))
        return;
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&rt->drained_lock);
    for (weft__link *l; (l = weft__list_pop(&rt->drained)) != NULL;) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        if (weft__node_claim(n, 0))
            weft__wakes_add(&wakes, n->parker);
    }
    weft__release(&rt->drained_lock);
    weft__wakes_run(&wakes);
}

static void cancel_one(weft_task *t, void *arg)
{
    (void)arg;
    if (weft__cancel(&t->parker))
        weft__cancel_inside(t); /* which may be tasks of another runtime */
}

int weft_runtime_shutdown(weft_runtime *rt, weft_time deadline)
{
    if (!rt)
        return -EINVAL;
    if (weft__forked(rt))
        return -ENXIO;
    weft__worker *w = weft__worker_self();
    if (w && w->rt == rt && deadline != WEFT_TRY)
        return -EDEADLK;
    atom_store_sc(&rt->closing, 1u);
    weft__task_each(&rt->depot, cancel_one, NULL);
    weft__wait_node n = {0};
    /* A spawn that was under way while we cancelled may have brought one more. */
    for (;;) {
        if (rt->driven) /* nobody else runs them */
            weft__driven_drain(rt, deadline);
        weft_time soon = weft_after(20 * WEFT_MSEC);
        weft_time until = deadline == WEFT_TRY || deadline < soon ? deadline : soon;
        int r = weft__wait_on(&drained_ops, rt, &rt->drained_lock, &n, until);
        if (r == 0) {
            weft__crew_send_home(rt);
            return 0;
        }
        if (r == -EPERM)
            return r;
        if (r == -ECANCELED || until == deadline) {
            uint64_t left = weft__alive(rt);
            return left > INT32_MAX ? INT32_MAX : (int)left;
        }
        weft__task_each(&rt->depot, cancel_one, NULL);
    }
}

/* A runtime whose workers are all lent may have none now: the caller runs what is left. */
static void finish_alone(weft_runtime *rt)
{
    while (rt->permanent == 0 && weft_runtime_shutdown(rt, WEFT_TRY) > 0)
        if (atom_load_acq(&rt->online) == 0 && weft__worker_self() == NULL)
            weft__crew_lend(rt, weft_after(20 * WEFT_MSEC), true);
        else
            weft__sleep(weft_after(WEFT_MSEC));
}

weft_runtime *weft_runtime_free(weft_runtime *rt)
{
    if (!rt)
        return NULL;
    weft__worker *w = weft__worker_self();
    WEFT__CHECK(!w || w->rt != rt); /* a worker cannot join itself */
    if (!weft__forked(rt)) {
        /* A poll function cannot wait as a task; its thread can, and has to in any case
         * while others are joined. */
        bool poll = atom_load_rlx(&weft__self()->cancel) & WEFT__NOPARK;
        weft__parker **slot = poll ? weft__self_slot(NULL) : NULL;
        finish_alone(rt);
        while (weft_runtime_shutdown(rt, WEFT_NEVER) != 0) {
            /* The caller is a cancelled task: shielded, for this must not be left half done. */
            weft__self()->shield++;
            int left = weft_runtime_shutdown(rt, WEFT_NEVER);
            weft__self()->shield--;
            if (left == 0)
                break;
        }
        if (!rt->driven)
            weft__crew_stop(rt);
        if (poll)
            weft__self_slot(slot);
    }
    runtime_destroy(rt);
    return NULL;
}

/* ---- Reading ---- */

unsigned weft_runtime_workers(const weft_runtime *rt)
{
    return rt ? atom_load_rlx(&rt->online) : 0;
}

int weft_runtime_get_stats(const weft_runtime *rt, weft_runtime_stats *ret)
{
    if (!rt || !ret)
        return -EINVAL;
    if (weft__forked(rt))
        return -ENXIO;
    weft_runtime_stats s = {0};
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *w = &rt->worker[i];
        s.finished += atom_load_acq(&w->finished);
        s.failed += atom_load_rlx(&w->failed);
        s.cancelled += atom_load_rlx(&w->cancelled);
        s.switches += atom_load_rlx(&w->tick);
        s.steals += atom_load_rlx(&w->steals);
        s.parks += atom_load_rlx(&w->parks);
        s.wakes += atom_load_rlx(&w->wakes);
        s.timers_armed += atom_load_rlx(&w->armed);
        s.timers_fired += atom_load_rlx(&w->fired);
    }
    /* Not spawned_outside, in which those count for a moment whom a shutdown turns away. Each
     * number is taken before its task can end, so none is missing for a `finished` read above. */
    s.spawned = atom_load_rlx(&rt->next_id);
    for (unsigned i = 0; i < rt->workers; i++)
        s.spawned += atom_load_acq(&rt->worker[i].spawned);
    s.rejected = atom_load_rlx(&rt->rejected);
    s.alive = s.spawned - s.finished;
    weft__stack_stats stacks;
    weft__stack_pool_stats(rt->stacks, &stacks);
    s.stacks = stacks.stacks_used + stacks.stacks_free;
    s.stacks_free = stacks.stacks_free;
    *ret = s;
    return 0;
}

int weft_runtime_trim(weft_runtime *rt, size_t keep)
{
    if (!rt)
        return -EINVAL;
    if (weft__forked(rt))
        return -ENXIO;
    weft__stack_pool_trim(rt->stacks, keep);
    return 0;
}

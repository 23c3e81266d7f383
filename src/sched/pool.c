/* SPDX-License-Identifier: MIT
 *
 * pool.c -- weft/pool.h: what all pools share, and the single queue.
 *
 * The guard. Which worker of which pool a thread is, is bound to the thread when it
 * begins to work for a runtime, and not derived from an argument: so a wrong thread
 * can't pass by naming the right number. Both are read anew at every check, for a fiber
 * moves from thread to thread; that is why the functions are not inlined.
 */
#include "sched/pool.h"

static _Thread_local const weft_pool *here_pool;
static _Thread_local unsigned here_worker;

WEFT__NOINLINE void weft__pool_bind(const weft_pool *pool, unsigned worker)
{
    __asm__ volatile("");
    here_pool = pool;
    here_worker = worker;
}

WEFT__NOINLINE void weft_pool_check(const weft_pool *pool, unsigned worker)
{
    __asm__ volatile("");
    if (WEFT__LIKELY(here_pool == pool && here_worker == worker))
        return;
    weft__panic(__FILE__, __LINE__,
                here_pool == pool ? "a pool was used in the name of another of its workers"
                                  : "a pool was used by a thread that is not its worker");
}

weft_task *weft_pool_next(const weft_task *task)
{
    weft__slink *next = task->parker.link.next;
    return next ? weft__task_of_link(next) : NULL;
}

void weft_pool_set_next(weft_task *task, weft_task *next)
{
    task->parker.link.next = next ? &next->parker.link : NULL;
}

size_t weft_pool_length(weft_pool *pool)
{
    return pool ? pool->ops->length(pool) : 0;
}

weft_pool *weft_pool_free(weft_pool *pool)
{
    if (pool && pool->ops->free)
        pool->ops->free(pool);
    return NULL;
}

int weft__pool_ring_init(weft__pool_ring *r, size_t capacity)
{
    uint64_t size = 1;
    while (size < capacity)
        size *= 2;
    atom_store_rlx(&r->top, 0u);
    atom_store_rlx(&r->bottom, 0u);
    r->size = size;
    r->slots = weft__calloc((size_t)size, sizeof *r->slots);
    return r->slots ? 0 : -ENOMEM;
}

void weft__pool_ring_fini(weft__pool_ring *r)
{
    weft__free(r->slots);
    r->slots = NULL;
}

/* ---- The single queue ---- */

struct single {
    weft_pool base;
    weft__a32 open;
    weft__pool_shared queue;
};

static struct single *single_of(weft_pool *pool)
{
    return weft__container(pool, struct single, base);
}

static int single_open(weft_pool *pool, unsigned workers)
{
    uint32_t closed = 0;
    (void)workers;
    return atom_cas_ar(&single_of(pool)->open, &closed, 1u) ? 0 : -EBUSY;
}

static void single_close(weft_pool *pool)
{
    weft__pool_shared_reset(&single_of(pool)->queue);
    atom_store_rel(&single_of(pool)->open, 0u); /* pairs with the swap of the next open */
}

static int single_push(weft_pool *pool, unsigned worker, weft_task *task, unsigned flags)
{
    (void)flags;
    if (worker != WEFT_POOL_OUTSIDE)
        weft_pool_check(pool, worker);
    weft__pool_shared_push(&single_of(pool)->queue, task);
    return 0;
}

static weft_task *single_pop(weft_pool *pool, unsigned worker, weft_time now)
{
    (void)now;
    weft_pool_check(pool, worker);
    return weft__pool_shared_pop(&single_of(pool)->queue);
}

/* There is nothing that pop does not see. */
static weft_task *single_steal(weft_pool *pool, unsigned worker)
{
    weft_pool_check(pool, worker);
    return NULL;
}

static size_t single_length(weft_pool *pool)
{
    return weft__pool_shared_length(&single_of(pool)->queue);
}

static void single_free(weft_pool *pool)
{
    WEFT__CHECK(!atom_load_acq(&single_of(pool)->open));
    weft__free(single_of(pool));
}

static const weft_pool_ops single_ops = {
    .open = single_open,
    .close = single_close,
    .push = single_push,
    .pop = single_pop,
    .steal = single_steal,
    .length = single_length,
    .free = single_free,
};

int weft_pool_new_single(weft_pool **ret)
{
    if (!ret)
        return -EINVAL;
    struct single *p = weft__aligned_alloc(WEFT__CACHE_LINE, sizeof *p);
    if (!p)
        return -ENOMEM;
    memset(p, 0, sizeof *p);
    p->base.ops = &single_ops;
    *ret = &p->base;
    return 0;
}

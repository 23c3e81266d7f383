/* SPDX-License-Identifier: MIT
 *
 * pool.h -- what the shipped pools share: who the calling thread is, a queue for all, and
 * a ring that its owner uses from either end.
 *
 * The ring after D. Chase, Y. Lev, "Dynamic Circular Work-Stealing Deque" (2005), with a
 * fixed size, and with sequentially consistent accesses in place of the fences of N. M. Lê
 * et al. (2013). Free-running 64-bit ends: they never wrap.
 *
 * Invariants: bottom - top <= size, but for the moment in which the owner, taking the
 * newest, has bottom at top - 1. Only the owner writes bottom and slots. A task is taken
 * by whoever moves top across it, or, if it is not the last, by the owner moving bottom;
 * a slot is read before the swap of top (a stale read is thrown away with a failed swap).
 *
 * Orders: the store of bottom in a push is step 1 of idle.h, and releases the slot to the
 * loads of bottom by thieves. The owner's store of bottom and load of top, taking the
 * newest, stand against a thief's swap of top after its load of bottom: one sees the other.
 */
#ifndef WEFT_SRC_POOL_H
#define WEFT_SRC_POOL_H

#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "sched/task.h"
#include "weft/pool.h"

#define WEFT__POOL_CAPACITY     ((size_t)4096)
#define WEFT__POOL_CAPACITY_MAX ((size_t)1 << 24)

/* pool.c: the calling thread works as `worker` of `pool` (NULL: of none) from here on. */
void weft__pool_bind(const weft_pool *pool, unsigned worker);

/* ---- A queue for all ---- */

typedef struct weft__pool_shared {
    weft__lock lock;
    weft__a32 count;
    weft__fifo fifo;
    weft__a64 arrived; /* pushes so far; written under the lock */
} WEFT__ALIGNED(WEFT__CACHE_LINE) weft__pool_shared;

static inline void weft__pool_shared_push(weft__pool_shared *q, weft_task *t)
{
    weft__acquire(&q->lock);
    weft__fifo_push(&q->fifo, &t->parker.link);
    atom_store_rlx(&q->arrived, atom_load_rlx(&q->arrived) + 1);
    atom_store_sc(&q->count, atom_load_rlx(&q->count) + 1); /* step 1 of idle.h */
    weft__release(&q->lock);
}

static inline weft_task *weft__pool_shared_pop(weft__pool_shared *q)
{
    if (atom_load_rlx(&q->count) == 0)
        return NULL;
    weft__acquire(&q->lock);
    weft__slink *l = weft__fifo_pop(&q->fifo);
    if (l)
        atom_store_rlx(&q->count, atom_load_rlx(&q->count) - 1);
    weft__release(&q->lock);
    return l ? weft__task_of_link(l) : NULL;
}

static inline size_t weft__pool_shared_length(const weft__pool_shared *q)
{
    return atom_load_sc(&q->count);
}

/* Forgets what is in it; takes no lock. */
static inline void weft__pool_shared_reset(weft__pool_shared *q)
{
    weft__lock_init(&q->lock);
    weft__fifo_init(&q->fifo);
    atom_store_rlx(&q->count, 0u);
}

/* ---- A worker's ring ---- */

typedef struct weft__pool_ring {
    weft__a64 top WEFT__ALIGNED(WEFT__CACHE_LINE);    /* the oldest */
    weft__a64 bottom WEFT__ALIGNED(WEFT__CACHE_LINE); /* behind the newest */
    uint64_t size;                                    /* a power of two */
    weft__aptr *slots;
} weft__pool_ring;

int weft__pool_ring_init(weft__pool_ring *r, size_t capacity); /* 0 or -ENOMEM */
void weft__pool_ring_fini(weft__pool_ring *r);

static inline size_t weft__pool_ring_length(const weft__pool_ring *r)
{
    uint64_t top = atom_load_sc(&r->top);
    uint64_t n = atom_load_sc(&r->bottom) - top;
    return n > r->size ? 0 : (size_t)n; /* the ends moved between the two loads */
}

/* Owner. False: full. */
static inline bool weft__pool_ring_push(weft__pool_ring *r, weft_task *t)
{
    uint64_t bottom = atom_load_rlx(&r->bottom);
    if (bottom - atom_load_acq(&r->top) >= r->size) /* pairs with the swap that freed a slot */
        return false;
    atom_store_rlx(&r->slots[bottom & (r->size - 1)], t);
    atom_store_sc(&r->bottom, bottom + 1);
    return true;
}

/* The oldest; any thread. NULL: empty. */
static inline weft_task *weft__pool_ring_take_oldest(weft__pool_ring *r)
{
    uint64_t top = atom_load_sc(&r->top);
    for (;;) {
        uint64_t n = atom_load_sc(&r->bottom) - top;
        if (n == 0 || n > r->size)
            return NULL;
        weft_task *t = atom_load_rlx(&r->slots[top & (r->size - 1)]);
        if (atom_cas_sc(&r->top, &top, top + 1))
            return t;
    }
}

/* Owner: the newest. NULL: empty. */
static inline weft_task *weft__pool_ring_take_newest(weft__pool_ring *r)
{
    uint64_t bottom = atom_load_rlx(&r->bottom);
    if (bottom == atom_load_rlx(&r->top)) /* only the owner makes it more */
        return NULL;
    atom_store_sc(&r->bottom, bottom - 1);
    uint64_t top = atom_load_sc(&r->top);
    weft_task *t = NULL;
    if (top < bottom) {
        t = atom_load_rlx(&r->slots[(bottom - 1) & (r->size - 1)]);
        if (top < bottom - 1)
            return t;
        if (!atom_cas_sc(&r->top, &top, top + 1)) /* the last one: a thief may be at it */
            t = NULL;
    }
    atom_store_sc(&r->bottom, bottom);
    return t;
}

#endif

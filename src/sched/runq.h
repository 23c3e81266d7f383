/* SPDX-License-Identifier: MIT
 *
 * runq.h -- a worker's bounded ring of ready tasks: one owner pushes at the tail,
 * the owner and thieves take from the head, a thief half of what is there. A joiner on
 * the owner takes back what it pushed last (pop_tail).
 *
 * After Go's runtime runq (D. Vyukov) and tokio's queue; the owner's end after A. Arora,
 * R. Blumofe, C. Plaxton, "Thread scheduling for multiprogrammed multiprocessors" (1998).
 * Capacity is a power of two; head and tail run freely and are compared by difference only.
 *
 * Invariants: tail - head <= capacity, but while pop_tail is at work tail may be head - 1;
 * only the owner writes tail and slots; a slot is taken by whoever moves head across it,
 * and is read before that compare-and-swap (a stale read is thrown away with the failed
 * swap).
 *
 * A thief takes many at once, so a tail that it has read may not shrink under it: it
 * counts itself in `thieves` first, and pop_tail, which lowers tail first and then looks,
 * gives up when there is one. Store, then load, on both sides, all seq-cst: either the
 * thief reads the lower tail, or the owner sees the thief, or the thief's swap of head.
 *
 * Orders: the tail store is seq-cst because it is also "work is there" of the sleep
 * protocol (idle.h); acquire loads of tail by thieves pair with it. The head swap
 * releases the slot; the owner's acquire load of head in push pairs with it.
 */
#ifndef WEFT_SRC_RUNQ_H
#define WEFT_SRC_RUNQ_H

#include "base/atomic.h"
#include "base/base.h"

#ifdef WEFT_MODEL
#define WEFT__RUNQ_SIZE 4u
#else
#define WEFT__RUNQ_SIZE 256u
#endif
#define WEFT__RUNQ_MASK (WEFT__RUNQ_SIZE - 1u)

typedef struct weft__runq {
    weft__a32 head;
    weft__a32 thieves;                                  /* at work */
    char pad[WEFT__CACHE_LINE - 2 * sizeof(weft__a32)]; /* thieves write head, the owner tail */
    weft__a32 tail;
    weft__aptr slots[WEFT__RUNQ_SIZE];
} weft__runq;

/* How many are in it; a snapshot for anyone but the owner. Seq-cst: the look of a
 * worker that is about to sleep. */
static inline uint32_t weft__runq_length(const weft__runq *q)
{
    uint32_t head = atom_load_sc(&q->head);
    uint32_t n = atom_load_sc(&q->tail) - head;
    return n > WEFT__RUNQ_SIZE ? 0 : n; /* head moved between the two loads */
}

/* Owner. False: full. */
static inline bool weft__runq_push(weft__runq *q, void *task)
{
    uint32_t tail = atom_load_rlx(&q->tail);
    if (WEFT__UNLIKELY(tail - atom_load_acq(&q->head) >= WEFT__RUNQ_SIZE))
        return false;
    atom_store_rlx(&q->slots[tail & WEFT__RUNQ_MASK], task);
    atom_store_sc(&q->tail, tail + 1);
    return true;
}

/* Owner. NULL: empty. */
static inline void *weft__runq_pop(weft__runq *q)
{
    uint32_t head = atom_load_acq(&q->head);
    for (;;) {
        if (head == atom_load_rlx(&q->tail))
            return NULL;
        void *task = atom_load_rlx(&q->slots[head & WEFT__RUNQ_MASK]);
        /* Fails only when a thief took something meanwhile. */
        if (atom_cas_ar(&q->head, &head, head + 1))
            return task;
    }
}

/* Owner: takes `task` off the tail if that is where it is. False: it is not, it has just
 * been stolen, or a thief is at work and might. */
static inline bool weft__runq_pop_tail(weft__runq *q, const void *task)
{
    uint32_t last = atom_load_rlx(&q->tail) - 1;
    if (last + 1 == atom_load_rlx(&q->head) ||
        atom_load_rlx(&q->slots[last & WEFT__RUNQ_MASK]) != task)
        return false;
    atom_store_sc(&q->tail, last);
    /* Pairs with grab; after a thief has counted itself out, its swap of head is seen. */
    if (WEFT__LIKELY(atom_load_sc(&q->thieves) == 0) &&
        WEFT__LIKELY((int32_t)(last - atom_load_acq(&q->head)) >= 0))
        return true;
    atom_store_sc(&q->tail, last + 1);
    return false;
}

/* Takes up to `max` (and at most half, rounded up) from the head into out[]; any
 * thread. 0: empty, or another thief was faster. */
static inline uint32_t weft__runq_grab(weft__runq *q, void **out, uint32_t max)
{
    /* A look first, so that an empty ring's line stays with its owner. */
    if (atom_load_rlx(&q->head) == atom_load_rlx(&q->tail))
        return 0;
    atom_add_sc(&q->thieves, 1u);
    uint32_t head = atom_load_acq(&q->head);
    uint32_t n = atom_load_sc(&q->tail) - head; /* pairs with pop_tail's store */
    if (n > WEFT__RUNQ_SIZE)
        n = 0;
    n -= n / 2;
    if (n > max)
        n = max;
    for (uint32_t i = 0; i < n; i++)
        out[i] = atom_load_rlx(&q->slots[(head + i) & WEFT__RUNQ_MASK]);
    if (n && !atom_cas_ar(&q->head, &head, head + n))
        n = 0;
    atom_sub_ar(&q->thieves, 1u); /* pairs with pop_tail's look */
    return n;
}

#endif

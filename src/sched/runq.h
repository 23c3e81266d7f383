/* SPDX-License-Identifier: MIT
 *
 * runq.h -- a worker's bounded ring of ready tasks: one owner pushes at the tail,
 * the owner and thieves take from the head, a thief half of what is there.
 *
 * After Go's runtime runq (D. Vyukov) and tokio's queue. Capacity is a power of two;
 * head and tail run freely and are compared by difference only.
 *
 * Invariants: tail - head <= capacity; only the owner writes tail and slots; a slot
 * is taken by whoever moves head across it, and is read before that compare-and-swap
 * (a stale read is thrown away with the failed swap).
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
    char pad[WEFT__CACHE_LINE - sizeof(weft__a32)]; /* thieves write head, the owner tail */
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

/* Takes up to `max` (and at most half, rounded up) from the head into out[]; any
 * thread. 0: empty, or another thief was faster. */
static inline uint32_t weft__runq_grab(weft__runq *q, void **out, uint32_t max)
{
    uint32_t head = atom_load_acq(&q->head);
    uint32_t n = atom_load_acq(&q->tail) - head;
    if (n == 0 || n > WEFT__RUNQ_SIZE)
        return 0;
    n -= n / 2;
    if (n > max)
        n = max;
    for (uint32_t i = 0; i < n; i++)
        out[i] = atom_load_rlx(&q->slots[(head + i) & WEFT__RUNQ_MASK]);
    return atom_cas_ar(&q->head, &head, head + n) ? n : 0;
}

#endif

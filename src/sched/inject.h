/* SPDX-License-Identifier: MIT
 *
 * inject.h -- the queue from outside: any thread adds, any worker takes its share.
 *
 * A submitter pays one read-modify-write on one line: it pushes onto a stack of links
 * (R. Treiber, 1986). A taker, under the lock, takes the whole stack at once, so there is
 * no ABA, turns it around and appends it to `fifo`: everything in there is older than
 * what is on the stack, so tasks leave in the order in which they came.
 *
 * Who may touch what
 *   newest        anybody; the links behind it belong to whoever took it down
 *   count, fifo   under `lock`; anybody may read count
 *
 * Invariant: while a task is in here, newest is not NULL or count is not 0, for one who
 * looks at newest first: a taker raises count before it takes the stack down.
 *
 * Orders: the push and the taker's stores are seq-cst, for the sleep protocol (idle.h);
 * the taker's exchange acquires what the pushes released.
 */
#ifndef WEFT_SRC_INJECT_H
#define WEFT_SRC_INJECT_H

#include "base/atomic.h"
#include "base/base.h"
#include "base/list.h"
#include "base/lock.h"

typedef struct weft__inject {
    weft__aptr newest; /* weft__slink * */
    char pad[WEFT__CACHE_LINE - sizeof(weft__aptr)];
    weft__lock lock;
    weft__a32 count; /* in fifo, or one more */
    weft__fifo fifo;
} weft__inject;

/* Whether there is nothing; good enough for a worker that is about to sleep. */
static inline bool weft__inject_empty(const weft__inject *q)
{
    return !atom_load_sc(&q->newest) && atom_load_sc(&q->count) == 0; /* in this order */
}

static inline void weft__inject_push(weft__inject *q, weft__slink *link)
{
    void *old = atom_load_rlx(&q->newest);
    do
        link->next = old;
    while (!atom_cas_sc(&q->newest, &old, link));
}

/* Under the lock: what has come goes to the end of the fifo; how many were and are in it. */
static inline uint32_t weft__inject_settle(weft__inject *q)
{
    uint32_t count = atom_load_rlx(&q->count);
    if (!atom_load_rlx(&q->newest))
        return count;
    atom_store_sc(&q->count, count + 1);
    weft__fifo came;
    weft__slink *l = atom_xchg_sc(&q->newest, NULL), *after = NULL;
    came.last = l;
    for (weft__slink *next; l; l = next, count++) {
        next = l->next;
        l->next = after;
        after = l;
    }
    came.first = after;
    weft__fifo_splice(&q->fifo, &came);
    return count;
}

/* All `n` of `tasks`, which is empty afterwards: a batch is worth the lock. */
static inline void weft__inject_push_all(weft__inject *q, weft__fifo *tasks, uint32_t n)
{
    weft__acquire(&q->lock);
    uint32_t count = weft__inject_settle(q);
    weft__fifo_splice(&q->fifo, tasks);
    atom_store_sc(&q->count, count + n);
    weft__release(&q->lock);
}

/* A fair share for one of `parts` takers, at most `max`, at the end of `out`. */
static inline uint32_t weft__inject_take(weft__inject *q, uint32_t parts, uint32_t max,
                                         weft__fifo *out)
{
    if (WEFT__LIKELY(weft__inject_empty(q)))
        return 0;
    weft__acquire(&q->lock);
    uint32_t count = weft__inject_settle(q);
    uint32_t share = count / parts + 1, n = 0;
    if (share > max)
        share = max;
    for (weft__slink *l; n < share && (l = weft__fifo_pop(&q->fifo)) != NULL; n++)
        weft__fifo_push(out, l);
    atom_store_rlx(&q->count, count - n);
    weft__release(&q->lock);
    return n;
}

#endif

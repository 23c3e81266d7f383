/* SPDX-License-Identifier: MIT
 *
 * queue.h -- what the objects of this room share: a queue of wait nodes that is
 * valid when all zero (so that objects need no initialiser), and the two ways to
 * wake from it.
 *
 * Everything here runs under the object's lock.
 */
#ifndef WEFT_SRC_SYNC_QUEUE_H
#define WEFT_SRC_SYNC_QUEUE_H

#include "wait/wait.h"

/* Claims per hold of the lock when a whole queue is woken: the lock stays short
 * for others however many wait. */
#ifdef WEFT_MODEL
#define WEFT__WAKE_BATCH 1
#else
#define WEFT__WAKE_BATCH 64
#endif

static inline weft__wait_node *weft__node_of(weft__link *l)
{
    return weft__container(l, weft__wait_node, link);
}

/* True also for a queue nobody has ever used (all zero). */
static inline bool weft__queue_empty(const weft__list *q)
{
    return !q->head.next || weft__list_empty(q);
}

static inline void weft__queue_push(weft__list *q, weft__wait_node *n)
{
    if (WEFT__UNLIKELY(!q->head.next))
        weft__list_init(q);
    weft__list_push(q, &n->link);
}

static inline void weft__queue_push_front(weft__list *q, weft__wait_node *n)
{
    if (WEFT__UNLIKELY(!q->head.next))
        weft__list_init(q);
    weft__list_push_front(q, &n->link);
}

/* Pops until a node could be claimed; its waiter will return `result`. The caller
 * owes it one unpark. NULL: nobody was left. Nodes whose wait ended otherwise are
 * dropped on the way; their owners find themselves unlinked. */
static inline weft__wait_node *weft__queue_claim(weft__list *q, int result)
{
    while (!weft__queue_empty(q)) {
        weft__wait_node *n = weft__node_of(weft__list_pop(q));
        if (WEFT__LIKELY(weft__node_claim(n, result)))
            return n;
    }
    return NULL;
}

/* Moves the whole queue to `to`, which lives on the waker's stack; the nodes stay
 * linked, so their owners can still take them out under the lock. */
static inline void weft__queue_take(weft__list *q, weft__list *to)
{
    weft__list_init(to);
    if (!weft__queue_empty(q))
        weft__list_splice(to, q);
}

/* Claims and unparks all of `taken`. Entered with the lock held, returns with it
 * released, and does not touch the lock's memory after the last waiter may run:
 * who waits for the last of them may free the object. */
void weft__queue_wake_all(weft__lock *lock, weft__list *taken, int result);

#endif

/* SPDX-License-Identifier: MIT
 *
 * barrier.c -- see weft/barrier.h.
 *
 * Every field is under the lock. The round number says whether a wait was part of a
 * complete round, not its outcome: a waiter whose deadline came first, but which had
 * not yet left the round when the last party arrived, was counted, so it returns 0.
 *
 * Invariants, checked by weft__barrier_check()
 *   B1  arrived < parties while the lock is free.
 *   B2  Nodes of the present round are in the queue until they leave; those of a
 *       complete round are in the waker's own list or in none.
 */
#include "weft/barrier.h"

#include "sync/barrier.h"
#include "sync/queue.h"

struct barrier {
    weft__lock lock;
    uint32_t parties, arrived, round;
    weft__list queue;
};
_Static_assert(sizeof(struct barrier) == sizeof(weft_barrier),
               "the public struct is storage for it");

static void weft__barrier_check(struct barrier *b)
{
    WEFT__ASSERT(b->arrived < b->parties);
    WEFT__ASSERT(b->arrived > 0 || weft__queue_empty(&b->queue));
    (void)b;
}

int weft_barrier_init(weft_barrier *b, unsigned parties)
{
    if (!b || parties == 0)
        return -EINVAL;
    *b = (weft_barrier)WEFT_BARRIER_INIT(parties);
    return 0;
}

/* Leaves the round, unless it has become complete. */
static int leave(struct barrier *b, weft__wait_node *n, uint32_t round, int error)
{
    weft__acquire(&b->lock);
    if (weft__linked(&n->link))
        weft__list_remove(&n->link);
    if (b->round == round)
        b->arrived--;
    else
        error = 0;
    weft__barrier_check(b);
    weft__release(&b->lock);
    return error;
}

/* ---- In pieces ---- */

static int round_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)wakes;
    return ((struct barrier *)object)->round == (uint32_t)n->arg ? -EAGAIN : 0;
}

static void round_link(void *object, weft__wait_node *n)
{
    weft__queue_push(&((struct barrier *)object)->queue, n);
}

static void round_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static void round_abandon(void *object, weft__wait_node *n, bool done)
{
    if (!done)
        (void)weft__barrier_leave(object, (uint32_t)n->arg);
}

const weft__case_ops weft__barrier_case_ops = {
    .base = {"barrier", round_try, round_link, round_unlink}, .abandon = round_abandon};

weft__lock *weft__barrier_lock(weft_barrier *b)
{
    return &((struct barrier *)(void *)b)->lock;
}

/* With the lock held, which the last of a round releases: then true. */
static bool completes_locked(struct barrier *b)
{
    weft__list taken;
    weft__barrier_check(b);
    if (b->arrived + 1 < b->parties)
        return false;
    b->arrived = 0;
    b->round++;
    weft__queue_take(&b->queue, &taken);
    weft__queue_wake_all(&b->lock, &taken, 0);
    return true;
}

int weft__barrier_arrive(weft_barrier *barrier, bool stays, uint32_t *ret_round)
{
    struct barrier *b = (struct barrier *)(void *)barrier;
    weft__acquire(&b->lock);
    if (completes_locked(b))
        return 1;
    if (stays)
        b->arrived++;
    *ret_round = b->round;
    weft__release(&b->lock);
    return 0;
}

bool weft__barrier_leave(weft_barrier *barrier, uint32_t round)
{
    struct barrier *b = (struct barrier *)(void *)barrier;
    weft__acquire(&b->lock);
    bool left = b->round == round;
    if (left)
        b->arrived--;
    weft__barrier_check(b);
    weft__release(&b->lock);
    return left;
}

/* ---- The call ---- */

int weft_barrier_wait(weft_barrier *barrier, weft_time deadline)
{
    struct barrier *b = (struct barrier *)(void *)barrier;
    weft__parker *self = NULL;
    weft__wait_node n;
    if (!b || b->parties == 0)
        return -EINVAL;
    if (deadline != WEFT_TRY) {
        self = weft__self();
        int r = weft__checkpoint(self);
        if (r)
            return r;
    }
    bool past = self && deadline != WEFT_NEVER && weft__sys_now() >= deadline;
    weft__acquire(&b->lock);
    if (completes_locked(b))
        return 1;
    if (!self || past) {
        weft__release(&b->lock);
        return self ? -ETIMEDOUT : -EAGAIN;
    }
    uint32_t round = b->round;
    b->arrived++;
    n.parker = self;
    n.index = 0;
    weft__wait_begin(self, "barrier", b);
    weft__queue_push(&b->queue, &n);
    weft__release(&b->lock);
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (outcome == 0)
        return 0;
    return leave(b, &n, round, outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT);
}

/* SPDX-License-Identifier: MIT
 *
 * cond.c -- see weft/cond.h.
 *
 * waiting   1 while the queue is not empty; changed under the lock, read without it
 *           by a signal that need not take the lock when it is 0.
 *
 * Invariants
 *   D1  A waiter queues itself before it unlocks the mutex. So who changes the data
 *       under the mutex and signals then finds it in the queue: it reads `waiting`
 *       after an acquire of the mutex that the waiter released.
 *   D2  A signal ends with one claimed waiter or an empty queue.
 *
 * A woken waiter competes for the mutex like any other; moving it to the queue of the
 * mutex instead was not worth a second kind of node there: it is woken at most once
 * per signal, and a woken task that finds the mutex taken is queued in user space.
 */
#include "weft/cond.h"

#include "sync/cond.h"
#include "sync/queue.h"

struct cond {
    weft__a32 waiting;
    weft__lock lock;
    weft__list queue;
};
_Static_assert(sizeof(struct cond) == sizeof(weft_cond), "the public struct is storage for it");

static struct cond *of(weft_cond *c)
{
    return (struct cond *)(void *)c;
}

static void weft__cond_check(struct cond *c)
{
    WEFT__ASSERT(atom_load_rlx(&c->waiting) == !weft__queue_empty(&c->queue));
    (void)c;
}

static void queue_changed_locked(struct cond *c)
{
    atom_store_rlx(&c->waiting, weft__queue_empty(&c->queue) ? 0u : 1u);
}

int weft_cond_init(weft_cond *c)
{
    if (!c)
        return -EINVAL;
    *c = (weft_cond)WEFT_COND_INIT;
    return 0;
}

/* The mutex is the caller's again whatever happens to it meanwhile. */
static void lock_again(weft__parker *self, weft_mutex *m)
{
    self->shield++;
    int r = weft_mutex_lock(m, WEFT_NEVER);
    self->shield--;
    WEFT__CHECK(r == 0);
}

int weft_cond_wait(weft_cond *cond, weft_mutex *m, weft_time deadline)
{
    struct cond *c = of(cond);
    weft__wait_node n;
    if (!c || !m)
        return -EINVAL;
    if (!weft_mutex_locked(m))
        return -EPERM;
    if (deadline == WEFT_TRY)
        return -EAGAIN;
    weft__parker *self = weft__self();
    int r = weft__checkpoint(self);
    if (r)
        return r;
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        return -ETIMEDOUT;
    n.parker = self;
    n.index = 0;
    weft__acquire(&c->lock);
    weft__wait_begin(self, "condition", c);
    weft__queue_push(&c->queue, &n);
    queue_changed_locked(c);
    weft__release(&c->lock);

    /* Wakes another task perhaps, but does not suspend: this wait has begun. */
    WEFT__CHECK(weft_mutex_unlock(m) == 0);
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (outcome != 0) {
        weft__acquire(&c->lock);
        if (weft__linked(&n.link))
            weft__list_remove(&n.link); /* perhaps from a broadcast's own list */
        queue_changed_locked(c);
        weft__release(&c->lock);
    }
    lock_again(self, m);
    return outcome == 0 ? 0 : outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

/* ---- Of a poll task, which unlocks and locks the mutex itself ---- */

static int case_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)n;
    (void)wakes;
    return -EAGAIN; /* a signal is not kept */
}

static void case_link(void *object, weft__wait_node *n)
{
    struct cond *c = object;
    weft__queue_push(&c->queue, n);
    queue_changed_locked(c);
}

static void case_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)wakes;
    weft__list_remove(&n->link); /* perhaps from a broadcast's own list */
    queue_changed_locked(object);
}

static void case_abandon(void *object, weft__wait_node *n, bool done)
{
    (void)n;
    if (done)
        (void)weft_cond_signal(object);
}

const weft__case_ops weft__cond_case_ops = {.base = {"condition", case_try, case_link, case_unlink},
                                            .abandon = case_abandon};

weft__lock *weft__cond_lock(weft_cond *c)
{
    return &of(c)->lock;
}

int weft_cond_signal(weft_cond *cond)
{
    struct cond *c = of(cond);
    if (!c)
        return -EINVAL;
    if (atom_load_rlx(&c->waiting) == 0) /* ordered by the mutex (D1) */
        return 0;
    weft__acquire(&c->lock);
    weft__wait_node *n = weft__queue_claim(&c->queue, 0);
    weft__parker *woken = n ? n->parker : NULL; /* the node may go with the unpark */
    queue_changed_locked(c);
    weft__cond_check(c);
    weft__release(&c->lock);
    if (woken)
        weft__unpark(woken);
    return 0;
}

int weft_cond_broadcast(weft_cond *cond)
{
    struct cond *c = of(cond);
    weft__list taken;
    if (!c)
        return -EINVAL;
    if (atom_load_rlx(&c->waiting) == 0) /* ordered by the mutex (D1) */
        return 0;
    weft__acquire(&c->lock);
    weft__queue_take(&c->queue, &taken);
    queue_changed_locked(c);
    weft__queue_wake_all(&c->lock, &taken, 0);
    return 0;
}

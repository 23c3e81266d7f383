/* SPDX-License-Identifier: MIT
 *
 * waitgroup.c -- see weft/waitgroup.h. The same protocol as event.c, with "the
 * count is zero" for SET.
 *
 * state   the count times two, plus
 *         WAITERS  the step to zero must look into the queue. Legal to be set while
 *                  the queue is empty, illegal to be clear while it is not.
 *
 * Who may change what
 *   the count       anybody, by compare-and-swap; but the step to zero with WAITERS
 *                   only under the lock
 *   WAITERS 0 -> 1  under the lock, by the swap that finds the count not zero
 *   WAITERS 1 -> 0  under the lock
 *
 * Invariants, checked by weft__waitgroup_check()
 *   G1  WAITERS is set while the queue is not empty.
 *   G2  The count is not zero while WAITERS is set.
 *   G3  The step to zero without waiters is the last touch of the group; with
 *       waiters they keep it alive until the lock is released (queue.c).
 */
#include "sync/waitgroup.h"

#include "sync/queue.h"

enum { WAITERS = 1, ONE = 2 };

struct waitgroup {
    weft__a32 state;
    weft__lock lock;
    weft__list queue;
};
_Static_assert(sizeof(struct waitgroup) == sizeof(weft_waitgroup),
               "the public struct is storage for it");

static struct waitgroup *of(const weft_waitgroup *wg)
{
    return (struct waitgroup *)(uintptr_t)wg;
}

static void weft__waitgroup_check(struct waitgroup *wg)
{
    uint32_t state = atom_load_rlx(&wg->state);
    (void)state;
    WEFT__ASSERT((state & WAITERS) || weft__queue_empty(&wg->queue)); /* G1 */
    WEFT__ASSERT(state != WAITERS);                                   /* G2 */
}

/* ---- The waitable ---- */

static int waitgroup_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct waitgroup *wg = object;
    (void)n;
    (void)wakes;
    uint32_t state = atom_load_acq(&wg->state); /* pairs with add */
    while (state != 0) {
        if ((state & WAITERS) || atom_cas_ar(&wg->state, &state, state | WAITERS))
            return -EAGAIN;
    }
    return 0;
}

static void waitgroup_link(void *object, weft__wait_node *n)
{
    struct waitgroup *wg = object;
    weft__queue_push(&wg->queue, n);
    weft__waitgroup_check(wg);
}

static void waitgroup_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct waitgroup *wg = object;
    (void)wakes;
    weft__list_remove(&n->link);
    if (weft__queue_empty(&wg->queue))
        atom_and_ar(&wg->state, ~(uint32_t)WAITERS);
    weft__waitgroup_check(wg);
}

const weft__waitable_ops weft__waitgroup_ops = {
    .what = "wait group",
    .try_locked = waitgroup_try,
    .link_locked = waitgroup_link,
    .unlink_locked = waitgroup_unlink,
};

weft__lock *weft__waitgroup_lock(weft_waitgroup *wg)
{
    return &of(wg)->lock;
}

/* ---- The calls ---- */

int weft_waitgroup_wait(weft_waitgroup *group, weft_time deadline)
{
    struct waitgroup *wg = of(group);
    if (!wg)
        return -EINVAL;
    /* Pairs with add: each of its swaps continues the release of those before. */
    bool zero = atom_load_acq(&wg->state) == 0;
    if (deadline == WEFT_TRY)
        return zero ? 0 : -EAGAIN;
    if (zero)
        return weft__checkpoint(weft__self());
    weft__wait_node n;
    return weft__wait_on(&weft__waitgroup_ops, wg, &wg->lock, &n, deadline);
}

/* The step to zero while somebody may wait. True: done; false: look again. */
static bool finish(struct waitgroup *wg, uint32_t state)
{
    weft__list taken;
    weft__acquire(&wg->lock);
    weft__waitgroup_check(wg);
    if (weft__queue_empty(&wg->queue)) {
        atom_and_ar(&wg->state, ~(uint32_t)WAITERS);
        weft__release(&wg->lock);
        return false;
    }
    if (!atom_cas_ar(&wg->state, &state, 0)) { /* pairs with wait and try */
        weft__release(&wg->lock);
        return false;
    }
    weft__queue_take(&wg->queue, &taken);
    weft__queue_wake_all(&wg->lock, &taken, 0);
    return true;
}

int weft_waitgroup_add(weft_waitgroup *group, int delta)
{
    struct waitgroup *wg = of(group);
    if (!wg)
        return -EINVAL;
    uint32_t state = atom_load_rlx(&wg->state);
    for (;;) {
        int64_t count = (int64_t)(state / ONE) + delta;
        if (count < 0 || count > WEFT_WAITGROUP_MAX)
            return -EINVAL;
        if (count == 0 && (state & WAITERS)) {
            if (finish(wg, state))
                return 0;
            state = atom_load_rlx(&wg->state);
        } else if (atom_cas_ar(&wg->state, &state, (uint32_t)count * ONE | (state & WAITERS))) {
            return 0; /* the swap pairs with wait and try */
        }
    }
}

int weft_waitgroup_done(weft_waitgroup *wg)
{
    return weft_waitgroup_add(wg, -1);
}

int weft_waitgroup_count(const weft_waitgroup *wg)
{
    return wg ? (int)(atom_load_acq(&of(wg)->state) / ONE) : 0; /* pairs with add */
}

int weft_waitgroup_init(weft_waitgroup *wg)
{
    static const weft_waitgroup empty = WEFT_WAITGROUP_INIT;
    if (!wg)
        return -EINVAL;
    *wg = empty;
    return 0;
}

int weft_waitgroup_create(weft_waitgroup **ret_wg)
{
    if (!ret_wg)
        return -EINVAL;
    weft_waitgroup *wg = weft__calloc(1, sizeof *wg);
    if (!wg)
        return -ENOMEM;
    *ret_wg = wg;
    return 0;
}

int weft_waitgroup_destroy(weft_waitgroup *group)
{
    if (!group)
        return 0;
    struct waitgroup *wg = of(group);
    weft__acquire(&wg->lock);
    bool used = !weft__queue_empty(&wg->queue) || atom_load_acq(&wg->state) / ONE != 0;
    weft__release(&wg->lock);
    if (used)
        return -EBUSY;
    weft__free(group);
    return 0;
}

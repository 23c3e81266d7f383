/* SPDX-License-Identifier: MIT
 *
 * event.c -- see weft/event.h.
 *
 * state   SET      waits pass
 *         WAITERS  a set must look into the queue. Legal to be set while the queue is
 *                  empty, illegal to be clear while it is not.
 *
 * Who may change what
 *   SET 0 -> 1      by compare-and-swap while WAITERS is clear, else under the lock
 *   SET 1 -> 0      anybody
 *   WAITERS 0 -> 1  under the lock, by the swap that finds SET clear
 *   WAITERS 1 -> 0  under the lock
 *
 * Invariants, checked by weft__event_check()
 *   E1  WAITERS is set while the queue is not empty.
 *   E2  SET and WAITERS are never both set.
 *   E3  A set without waiters is one step, after which it does not touch the event:
 *       whoever sees it may free the event. With waiters it holds the lock, and the
 *       waiters keep the event alive (queue.c). So a set that finds under the lock
 *       that they have left goes back to the one step.
 */
#include "sync/event.h"

#include "sync/queue.h"

enum { SET = 1, WAITERS = 2 };

struct event {
    weft__a32 state;
    weft__lock lock;
    weft__list queue;
};
_Static_assert(sizeof(struct event) == sizeof(weft_event), "the public struct is storage for it");

static struct event *of(const weft_event *e)
{
    return (struct event *)(uintptr_t)e;
}

static void weft__event_check(struct event *e)
{
    uint32_t state = atom_load_rlx(&e->state);
    (void)state;
    WEFT__ASSERT((state & WAITERS) || weft__queue_empty(&e->queue)); /* E1 */
    WEFT__ASSERT(state != (SET | WAITERS));                          /* E2 */
}

/* ---- The waitable ---- */

/* Notes the waiter in the step that finds SET clear, for a set without waiters does
 * not take the lock. */
static int event_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct event *e = object;
    (void)n;
    (void)wakes;
    uint32_t state = atom_load_acq(&e->state); /* pairs with set */
    while (!(state & SET)) {
        if ((state & WAITERS) || atom_cas_ar(&e->state, &state, state | WAITERS))
            return -EAGAIN;
    }
    return 0;
}

static void event_link(void *object, weft__wait_node *n)
{
    struct event *e = object;
    weft__queue_push(&e->queue, n);
    weft__event_check(e);
}

static void event_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct event *e = object;
    (void)wakes;
    weft__list_remove(&n->link);
    if (weft__queue_empty(&e->queue))
        atom_and_ar(&e->state, ~(uint32_t)WAITERS);
    weft__event_check(e);
}

const weft__waitable_ops weft__event_ops = {
    .what = "event",
    .try_locked = event_try,
    .link_locked = event_link,
    .unlink_locked = event_unlink,
};

const weft__waitable_ops weft__value_ops = {
    .what = "value",
    .try_locked = event_try,
    .link_locked = event_link,
    .unlink_locked = event_unlink,
};

weft__lock *weft__event_lock(weft_event *e)
{
    return &of(e)->lock;
}

/* ---- The calls ---- */

int weft__event_wait(const weft__waitable_ops *ops, weft_event *event, weft_time deadline)
{
    struct event *e = of(event);
    /* Pairs with set. */
    bool set = (atom_load_acq(&e->state) & SET) != 0;
    if (deadline == WEFT_TRY)
        return set ? 0 : -EAGAIN;
    if (set)
        return weft__checkpoint(weft__self());
    weft__wait_node n;
    return weft__wait_on(ops, e, &e->lock, &n, deadline);
}

int weft_event_wait(weft_event *e, weft_time deadline)
{
    return e ? weft__event_wait(&weft__event_ops, e, deadline) : -EINVAL;
}

int weft_event_set(weft_event *event)
{
    struct event *e = of(event);
    if (!e)
        return -EINVAL;
    uint32_t state = atom_load_rlx(&e->state);
    for (;;) {
        if (!(state & WAITERS)) {
            /* A swap also when it is set already, so that this call, too, happens
             * before what it lets pass. Pairs with the loads in wait and try. */
            if (atom_cas_ar(&e->state, &state, SET))
                return 0;
            continue;
        }
        weft__list taken;
        weft__acquire(&e->lock);
        weft__event_check(e);
        if (!weft__queue_empty(&e->queue)) {
            weft__queue_take(&e->queue, &taken);
            atom_store_rel(&e->state, (uint32_t)SET); /* pairs as above */
            weft__queue_wake_all(&e->lock, &taken, 0);
            return 0;
        }
        atom_and_ar(&e->state, ~(uint32_t)WAITERS);
        weft__release(&e->lock);
        state = atom_load_rlx(&e->state);
    }
}

int weft_event_reset(weft_event *event)
{
    if (!event)
        return -EINVAL;
    atom_and_ar(&of(event)->state, ~(uint32_t)SET);
    return 0;
}

bool weft_event_is_set(const weft_event *event)
{
    return event && (atom_load_acq(&of(event)->state) & SET) != 0; /* pairs with set */
}

int weft_event_init(weft_event *e)
{
    static const weft_event unset = WEFT_EVENT_INIT;
    if (!e)
        return -EINVAL;
    *e = unset;
    return 0;
}

int weft_event_create(weft_event **ret_e)
{
    if (!ret_e)
        return -EINVAL;
    weft_event *e = weft__calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    *ret_e = e;
    return 0;
}

int weft_event_destroy(weft_event *event)
{
    if (!event)
        return 0;
    struct event *e = of(event);
    weft__acquire(&e->lock);
    bool waited = !weft__queue_empty(&e->queue);
    weft__release(&e->lock);
    if (waited)
        return -EBUSY;
    weft__free(event);
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * waker_slot.h -- where the waker of one poller waits for one publication.
 *
 * Three states; nobody ever waits for anybody:
 *
 *   READY        the slot holds the current waker
 *   REGISTERING  it is the poller's alone: it replaces the waker, or has not registered
 *                one yet (the first registration so needs one atomic step, not two)
 *   TERMINAL     absorbing. Reached from READY, the publisher owns the waker and calls
 *                it; reached from REGISTERING, the poller owns what is in the slot and
 *                is awake, so it looks at the lifecycle instead of being woken
 *
 * The publisher changes the lifecycle (what the poller looks at) before it publishes.
 * So of a registration and a publication, whichever order they take, either the
 * publisher gets the new waker or the poller sees TERMINAL. Waking an older waker never
 * counts: an old one can only be taken by a publication that came before the poller
 * entered REGISTERING, and then the poller sees TERMINAL, too.
 *
 * One poller at a time, any number of publishers (the first one counts), reset only
 * while neither is about. No lock, no spin, no user code in here.
 */
#ifndef WEFT_SRC_WAKER_SLOT_H
#define WEFT_SRC_WAKER_SLOT_H

#include "base/atomic.h"
#include "base/base.h"
#include "weft/waker.h"

enum {
    WEFT__SLOT_READY = 0,
    WEFT__SLOT_REGISTERING = 1,
    WEFT__SLOT_TERMINAL = 2,
};

typedef struct weft__waker_slot {
    weft_waker waker; /* written by the poller in REGISTERING, read by whoever left READY */
    weft__a32 state;
} weft__waker_slot;

/* Empty, and the poller's; the caller publishes the slot. */
static inline void weft__slot_reset(weft__waker_slot *s)
{
    s->waker.wake = NULL;
    s->waker.arg = NULL;
    atom_store_rlx(&s->state, (uint32_t)WEFT__SLOT_REGISTERING);
}

/* The poller: true, `w` will be called at the publication; false, it has happened, and
 * what the publisher did before is visible. */
static inline bool weft__slot_register(weft__waker_slot *s, const weft_waker *w)
{
    uint32_t seen = atom_load_acq(&s->state); /* pairs with publish */
    if (s->waker.wake == w->wake && s->waker.arg == w->arg)
        return seen == WEFT__SLOT_READY;
    /* REGISTERING here is the first time: nobody but the poller sets it. Acquire on
     * failure: pairs with publish. */
    if (seen == WEFT__SLOT_TERMINAL ||
        (seen == WEFT__SLOT_READY &&
         !atom_cas_ar(&s->state, &seen, (uint32_t)WEFT__SLOT_REGISTERING)))
        return false;
    s->waker = *w;
    seen = WEFT__SLOT_REGISTERING;
    /* Release: pairs with the publisher who takes the waker. Acquire on failure: the
     * publisher has been here meanwhile and left everything to us. */
    return atom_cas_ar(&s->state, &seen, (uint32_t)WEFT__SLOT_READY);
}

/* The publisher, after the change of the lifecycle: true with the waker to call, if
 * there is one that is his to call. */
static inline bool weft__slot_publish(weft__waker_slot *s, weft_waker *ret_waker)
{
    /* Release: what was published. Acquire: pairs with the registration. */
    if (atom_xchg_ar(&s->state, (uint32_t)WEFT__SLOT_TERMINAL) != WEFT__SLOT_READY)
        return false;
    *ret_waker = s->waker;
    return ret_waker->wake != NULL;
}

#endif

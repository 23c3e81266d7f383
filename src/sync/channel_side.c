/* SPDX-License-Identifier: MIT
 *
 * channel_side.c -- taking, leaving and shutting a side of a channel when somebody is in
 * the way, and looking on; see channel_internal.h.
 */
#include "sync/channel_internal.h"

/* See weft__side_more_soon and weft__side_opens_soon. */
enum {
#ifdef WEFT_MODEL /* more only repeat what one can show */
    OPENS_SPINS = 1,
    LOOKS = 1,
    BATCH = 1,
    DOUBTS = 2,
    SELDOM = 1,
#else
    OPENS_SPINS = 16, /* some 2 us */
    LOOKS = 3,        /* with their pauses some 5 us */
    BATCH = 8,        /* fewer that came while looking on were not worth it */
    DOUBTS = 8,       /* so often in a row in vain: */
    SELDOM = 64,      /* looks on one time in so many */
#endif
};

#ifdef WEFT_MODEL
#define SPINS 1 /* more only repeat what one can show */
#else
#define SPINS 6 /* with their pauses some 10 us */
#endif

void weft__side_pause(int round)
{
    for (int k = 16 << (round < 4 ? round : 4); k > 0; k--)
        weft__relax();
}

/* Long pauses, as in base/lock.c: the holder's core does several operations in a row. */
WEFT__NOINLINE bool weft__side_take_contended(weft__channel_side *s)
{
    for (int i = 0; i < SPINS; i++) {
        weft__side_pause(i);
        if (atom_load_rlx(&s->shut) != OPEN)
            return false;
        if (atom_load_rlx(&s->held) || !weft__side_swap(s))
            continue;
        if (WEFT__LIKELY(weft__side_is_mine(s)))
            return true;
        weft__side_leave(s);
        return false;
    }
    return false;
}

WEFT__NOINLINE void weft__side_wake(weft__channel_side *s)
{
    weft__sys_futex_wake(&s->held, 1);
    weft__sys_futex_wake(&s->solo_held, 1);
}

static void wait_until_free(weft__channel_side *s, weft__a32 *held)
{
    for (int i = 0; i < SPINS; i++) {
        if (WEFT__LIKELY(atom_load_sc(held) == 0))
            return;
        weft__side_pause(i);
    }
    atom_xchg_sc(&s->shut, (uint32_t)SHUT_ASLEEP);
    if (s->barrier)
        weft__sys_barrier();
    while (atom_load_sc(held) != 0)
        weft__sys_futex_wait(held, 1, WEFT_NEVER);
    atom_store_rlx(&s->shut, (uint32_t)SHUT);
}

/* With the lock held. The loads of `held` and `solo_held` pair with the leaving. */
WEFT__NOINLINE void weft__side_shut(weft__channel_side *s)
{
    atom_xchg_sc(&s->shut, (uint32_t)SHUT);
    void *solo = atom_load_rlx(&s->solo);
    if (WEFT__UNLIKELY(solo && solo != weft__this_thread())) {
        weft__sys_barrier();
        wait_until_free(s, &s->solo_held);
        atom_store_rel(&s->solo, NULL); /* pairs with weft__side_is_mine */
        s->shared = true;
    }
    wait_until_free(s, &s->held);
}

/* ---- Looking on ---- */

/* Found full (empty), and the last to use the other side was another thread: looks on for a
 * moment, in which that one, if it is still at it, makes room (items) for many operations.
 * Each look at its count costs both a trip of the line; a wait and a wake, one for a few
 * items, cost more. Hardly tried where it was in vain. True: try again. */
WEFT__NOINLINE bool weft__side_more_soon(weft__channel_side *s, weft__channel_side *other)
{
    if (atom_load_rlx(&other->who) == weft__this_thread())
        return false;
    uint32_t doubt = atom_load_rlx(&s->doubt);
    if (doubt >= DOUBTS && doubt < DOUBTS + SELDOM) {
        atom_store_rlx(&s->doubt, doubt + 1);
        return false;
    }
    uint64_t start = atom_load_rlx(&other->count), enough = s->capacity / 2, moved = 0;
    for (int i = 0; i < LOOKS && moved < enough; i++) {
        weft__side_pause(i);
        uint64_t now = atom_load_rlx(&other->count) - start;
        if (now == moved && i > 0)
            break; /* no more than that */
        moved = now;
    }
    atom_store_rlx(&s->doubt, moved >= BATCH ? 0 : doubt < DOUBTS ? doubt + 1 : DOUBTS);
    return moved != 0;
}

/* Found shut: while somebody has the lock it may be opened any moment, and going slowly, too,
 * would only shut the other side to those who are there. True: try again. */
WEFT__NOINLINE bool weft__side_opens_soon(weft_channel *ch, weft__channel_side *s)
{
    for (int i = 0; i < OPENS_SPINS && atom_load_rlx(&ch->lock.word); i++) {
        if (atom_load_rlx(&s->shut) == OPEN)
            return true;
        weft__relax();
        weft__relax();
    }
    return atom_load_rlx(&s->shut) == OPEN;
}

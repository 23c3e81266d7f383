/* SPDX-License-Identifier: MIT
 *
 * channel_side.c -- taking, leaving and shutting a side of a channel when somebody is in
 * the way; see channel_internal.h.
 */
#include "sync/channel_internal.h"

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
        if (WEFT__LIKELY(atom_load_sc(&s->shut) == OPEN)) /* pairs with side_shut */
            return true;
        weft__side_leave(s);
        return false;
    }
    return false;
}

WEFT__NOINLINE void weft__side_wake(weft__channel_side *s)
{
    weft__sys_futex_wake(&s->held, 1);
}

/* With the lock held. The loads of `held` pair with weft__side_leave. */
WEFT__NOINLINE void weft__side_shut(weft__channel_side *s)
{
    atom_xchg_sc(&s->shut, (uint32_t)SHUT);
    for (int i = 0; i < SPINS; i++) {
        if (WEFT__LIKELY(atom_load_sc(&s->held) == 0))
            return;
        weft__side_pause(i);
    }
    atom_xchg_sc(&s->shut, (uint32_t)SHUT_ASLEEP);
    if (s->barrier)
        weft__sys_barrier();
    while (atom_load_sc(&s->held) != 0)
        weft__sys_futex_wait(&s->held, 1, WEFT_NEVER);
    atom_store_rlx(&s->shut, (uint32_t)SHUT);
}

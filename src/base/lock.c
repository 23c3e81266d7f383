/* SPDX-License-Identifier: MIT
 *
 * lock.c -- the contended half of lock.h.
 */
#include "base/lock.h"
#include "base/sys.h"

#ifdef WEFT_MODEL
#define SPINS 1 /* more only repeat what one can show */
#else
#define SPINS 8 /* with their pauses about 20 us */
#endif

void weft__acquire_slow(weft__lock *l)
{
    /* Long pauses from the start: the holder's core does several operations in a row on
     * the line it has, instead of sending it back and forth for each. */
    for (int i = 0; i < SPINS; i++) {
        if (atom_load_rlx(&l->word) == 0 && weft__lock_try(l))
            return;
        for (int k = 16 << (i < 4 ? i : 4); k > 0; k--)
            weft__relax();
    }
    /* Once slept, the state stays 2 until an unlock finds it: an unneeded wake
     * is possible, a missed one is not. */
    while (atom_xchg_acq(&l->word, 2) != 0)
        weft__sys_futex_wait(&l->word, 2, WEFT_NEVER);
}

void weft__release_slow(weft__lock *l)
{
    weft__sys_futex_wake(&l->word, 1);
}

/* SPDX-License-Identifier: MIT
 *
 * lock.c -- the contended half of lock.h.
 */
#include "base/lock.h"
#include "base/sys.h"

#ifdef WEFT_MODEL
#define SPINS 1 /* more only repeat what one can show */
#else
#define SPINS 40
#endif

void weft__acquire_slow(weft__lock *l)
{
    for (int i = 0; i < SPINS; i++) {
        if (atom_load_rlx(&l->word) == 0 && weft__lock_try(l))
            return;
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

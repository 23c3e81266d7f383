/* SPDX-License-Identifier: MIT
 *
 * shard_lock.c -- the contended half of shard_lock.h.
 */
#include "time/shard_lock.h"

#include "base/sys.h"

#ifdef WEFT_MODEL
#define SPINS 1 /* more only repeat what one can show */
#else
#define SPINS 200
#endif

void weft__shard_lock_init(weft__shard_lock *l, bool barrier, bool local)
{
    atom_store_rlx(&l->word, 0u);
    atom_store_rlx(&l->sleepers, 0u);
    l->barrier = barrier;
    l->local = local;
}

void weft__shard_acquire_slow(weft__shard_lock *l)
{
    for (int i = 0; i < SPINS; i++) {
        if (atom_load_rlx(&l->word) == 0 && weft__shard_try(l))
            return;
        weft__relax();
    }
    /* Counted from here on; once the barrier is over, every holder that has not stored 0
     * visibly will see the count after it has. */
    atom_add_sc(&l->sleepers, 1u);
    if (l->barrier)
        weft__sys_barrier();
    for (;;) {
        uint32_t free_ = 0;
        if (atom_cas_sc(&l->word, &free_, 1u))
            break;
        weft__sys_futex_wait(&l->word, 1, WEFT_NEVER);
    }
    atom_sub_rlx(&l->sleepers, 1u);
}

void weft__shard_release_slow(weft__shard_lock *l)
{
    weft__sys_futex_wake(&l->word, 1);
}

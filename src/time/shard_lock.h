/* SPDX-License-Identifier: MIT
 *
 * shard_lock.h -- the lock of a shard: taken a hundred million times by whoever arms and
 * cancels on the same processor, contended hardly ever.
 *
 * As weft__lock, but free and held only, with the sleepers counted apart, so that the
 * release can be a plain store: a lock and unlock pair costs one atomic operation instead
 * of two. The release stores `word`, then loads `sleepers`; who is about to sleep adds to
 * `sleepers`, then looks at `word`. For one of them to see the other, a full barrier has
 * to lie between the two steps on both sides; the rare side forces it onto the other
 * (weft__sys_barrier). Where that is not to be had, the release is sequentially consistent.
 *
 * The data that the lock guards is ordered as usual: acquire pairs with release on `word`.
 */
#ifndef WEFT_SRC_SHARD_LOCK_H
#define WEFT_SRC_SHARD_LOCK_H

#include "base/atomic.h"
#include "base/base.h"

typedef struct weft__shard_lock {
    weft__a32 word;     /* 0 free, 1 held */
    weft__a32 sleepers; /* threads that may be asleep on word */
    bool barrier;       /* constant: weft__sys_barrier works */
    bool local;         /* constant: one thread only, nothing to lock */
} weft__shard_lock;

void weft__shard_lock_init(weft__shard_lock *l, bool barrier, bool local);
void weft__shard_acquire_slow(weft__shard_lock *l);
void weft__shard_release_slow(weft__shard_lock *l);

static inline bool weft__shard_try(weft__shard_lock *l)
{
    uint32_t free_ = 0;
    return atom_cas_acq(&l->word, &free_, 1u);
}

static inline void weft__shard_acquire(weft__shard_lock *l)
{
    if (!l->local && WEFT__UNLIKELY(!weft__shard_try(l)))
        weft__shard_acquire_slow(l);
}

/* A store of `value` that is seen by whoever enters the rare side (see above) before the
 * caller's next load: with the barrier the compiler alone must keep the two in order. */
static inline void weft__store_then_look32(weft__a32 *p, uint32_t value, bool barrier)
{
    if (WEFT__LIKELY(barrier)) {
        atom_store_rel(p, value);
        __asm__ volatile("" ::: "memory");
    } else {
        atom_xchg_sc(p, value);
    }
}

static inline void weft__store_then_look64(weft__a64 *p, uint64_t value, bool barrier)
{
    if (WEFT__LIKELY(barrier)) {
        atom_store_rel(p, value);
        __asm__ volatile("" ::: "memory");
    } else {
        atom_xchg_sc(p, value);
    }
}

static inline void weft__shard_release(weft__shard_lock *l)
{
    if (l->local)
        return;
    weft__store_then_look32(&l->word, 0u, l->barrier);
    if (WEFT__UNLIKELY(atom_load_sc(&l->sleepers))) /* pairs with acquire_slow */
        weft__shard_release_slow(l);
}

#endif

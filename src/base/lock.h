/* SPDX-License-Identifier: MIT
 *
 * lock.h -- the small lock that guards a queue for a few dozen instructions.
 *
 * Three states (U. Drepper, "Futexes Are Tricky", 2011): 0 free, 1 held,
 * 2 held and perhaps slept on. A bounded spin, then the thread sleeps in the
 * kernel, so a preempted holder cannot make others spin for ever. It blocks the
 * thread, never suspends the fiber: nothing that may park runs under it.
 *
 * All-zero is a free lock. The acquire in weft__acquire pairs with the release in weft__release.
 */
#ifndef WEFT_SRC_LOCK_H
#define WEFT_SRC_LOCK_H

#include "base/atomic.h"
#include "base/base.h"

typedef struct weft__lock {
    weft__a32 word;
} weft__lock;

void weft__acquire_slow(weft__lock *l);
void weft__release_slow(weft__lock *l);

static inline void weft__lock_init(weft__lock *l)
{
    l->word.raw = 0;
}

static inline bool weft__lock_try(weft__lock *l)
{
    uint32_t free_ = 0;
    return atom_cas_acq(&l->word, &free_, 1);
}

static inline void weft__acquire(weft__lock *l)
{
    if (WEFT__UNLIKELY(!weft__lock_try(l)))
        weft__acquire_slow(l);
}

static inline void weft__release(weft__lock *l)
{
    if (WEFT__UNLIKELY(atom_xchg_rel(&l->word, 0) == 2))
        weft__release_slow(l);
}

#endif

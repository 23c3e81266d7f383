/* SPDX-License-Identifier: MIT
 *
 * permits.h -- a fair counter of permits: the semaphore, and the read-write lock,
 * which is one with very many permits of which a writer takes all.
 *
 * First come, first served: who asks for more than there is waits at the head of the
 * queue, and those behind it wait too. When the head leaves (deadline, cancellation)
 * those behind it are looked at again.
 */
#ifndef WEFT_SRC_SYNC_PERMITS_H
#define WEFT_SRC_SYNC_PERMITS_H

#include "weft/rwlock.h"
#include "weft/semaphore.h"

#include "wait/select.h"

/* `credit` is added to the stored count, so that zeroed memory can mean "no permits"
 * (semaphore, credit 0) as well as "all" (lock, credit = all). */
struct weft__permits {
    weft__a32 state; /* the count, signed, times two, plus PERMITS_WAITERS */
    weft__lock lock;
    weft__list queue; /* node->arg: how many it wants */
};

/* Takes n, waiting until the deadline: 0 or the errors of weft__wait_on. `ops` are
 * those for the same credit. */
int weft__permits_take(struct weft__permits *p, uint32_t n, int32_t credit,
                       const weft__waitable_ops *ops, weft_time deadline);

/* Gives n back and serves those who wait; -ERANGE, and nothing done, when more than
 * `limit` would be there. */
int weft__permits_give(struct weft__permits *p, uint32_t n, int32_t credit, uint32_t limit);

/* How many there are. */
uint32_t weft__permits_count(const struct weft__permits *p, int32_t credit);

/* Nobody waits. */
bool weft__permits_unwaited(struct weft__permits *p);

/* Objects: the weft_semaphore, the weft_rwlock; node->arg: how many; for a reader and for a
 * writer these. The result is 0. */
#define WEFT__RWLOCK_READ  1u
#define WEFT__RWLOCK_WRITE ((uint32_t)WEFT_SEMAPHORE_MAX)
extern const weft__case_ops weft__semaphore_ops, weft__read_ops, weft__write_ops;
weft__lock *weft__permits_lock(struct weft__permits *p);

#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/rwlock.h -- many readers or one writer.
 *
 * Fair: first come, first served. A reader that comes after a waiting writer waits
 * behind it, so a stream of readers cannot keep a writer out; readers that stand one
 * after the other enter together. So a task must not lock for reading twice: a writer
 * may come in between. When a waiting writer leaves (deadline, cancellation), the
 * readers behind it enter at once.
 *
 * An all-zero weft_rwlock is free and needs no clean-up.
 *
 * Concurrency: all calls but init may overlap in any way on one lock. An unlock
 * happens-before the lock that it lets pass.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_RWLOCK_H
#define WEFT_RWLOCK_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_rwlock {
    uint32_t weft__state, weft__lock;
    void *weft__queue[2];
} weft_rwlock;

/* Static initialiser; zeroed memory does as well. */
#define WEFT_RWLOCK_INIT                                                                           \
    {                                                                                              \
        0, 0,                                                                                      \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* Makes *rw a free lock. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. Nobody else may use *rw meanwhile. */
WEFT_API int weft_rwlock_init(weft_rwlock *rw);

/* Says that *rw is not used any more; there is nothing to free, it only checks.
 * Returns 0, -EINVAL (NULL), or -EBUSY: locked or waited for, and still usable.
 * Callable from: any thread, any task. */
WEFT_API int weft_rwlock_fini(weft_rwlock *rw);

/* Lock for reading, or for writing, waiting until `deadline` (absolute ns, WEFT_TRY,
 * WEFT_NEVER).
 *
 * Returns  0           the caller holds the lock
 *          -EAGAIN     it would have to wait, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  not served until the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     rw is NULL
 * On every error the caller does not hold it.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_rwlock_read(weft_rwlock *rw, weft_time deadline);
WEFT_API WEFT_MUST_USE int weft_rwlock_write(weft_rwlock *rw, weft_time deadline);

/* Give up a lock for reading, or for writing, and let in who is next. Never suspends.
 * Returns 0; -EPERM: nobody holds it that way; -EINVAL (NULL).
 * Callable from: any task, any thread (not a signal handler). */
WEFT_API int weft_rwlock_read_unlock(weft_rwlock *rw);
WEFT_API int weft_rwlock_write_unlock(weft_rwlock *rw);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/mutex.h -- mutual exclusion for tasks and threads alike.
 *
 * A waiter on a task suspends the task; on a plain thread it blocks the thread.
 * The holder may suspend while it holds the mutex, and may be another task or
 * thread than the one that unlocks it. Not recursive.
 *
 * Not strictly fair: a running caller may take a free mutex before the waiter that
 * was woken for it, which is several times faster. A waiter that has been passed
 * over for more than a millisecond gets the mutex handed over, and so do those
 * behind it until the head of the queue has waited for less.
 *
 * An all-zero weft_mutex is a free mutex and needs no clean-up. The mutex may be
 * freed by whoever holds it last as soon as its own unlock has returned, even while
 * an earlier holder has not yet returned from unlock.
 *
 * Concurrency ("-" may overlap on one mutex, "X" must not):
 *             lock  unlock  locked  init/fini
 *   lock       -      -       -        X
 *   unlock     -      -       -        X
 * An unlock happens-before the next lock that succeeds.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_MUTEX_H
#define WEFT_MUTEX_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_mutex {
    uint32_t weft__state, weft__lock;
    void *weft__queue[2];
    uint32_t weft__spin, weft__mode;
} weft_mutex;

/* Static initialiser; zeroed memory does as well. */
#define WEFT_MUTEX_INIT                                                                            \
    {                                                                                              \
        0, 0, {NULL, NULL}, 0, 0                                                                   \
    }

/* Makes *m a free mutex. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. Nobody else may use *m meanwhile. */
WEFT_API int weft_mutex_init(weft_mutex *m);

/* Says that *m is not used any more; there is nothing to free, it only checks.
 * Returns 0, -EINVAL (NULL), or -EBUSY: locked or waited for, and still usable.
 * Callable from: any thread, any task. */
WEFT_API int weft_mutex_fini(weft_mutex *m);

/* Allocates a free mutex into *ret_m, for callers that cannot embed one.
 * Returns 0, -EINVAL (NULL), -ENOMEM (*ret_m is untouched on error).
 * The caller owns it and ends it with weft_mutex_destroy.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_mutex_create(weft_mutex **ret_m);

/* Frees a mutex made by weft_mutex_create. NULL is allowed.
 * Returns 0, or -EBUSY: locked or waited for; it was not freed.
 * Callable from: any thread, any task. */
WEFT_API int weft_mutex_destroy(weft_mutex *m);

/* Locks, waiting until `deadline` (absolute ns, WEFT_TRY, WEFT_NEVER).
 *
 * Returns  0           the caller holds the mutex
 *          -EAGAIN     held by somebody, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  still held by somebody at the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     m is NULL
 * On every error the caller does not hold it. A free mutex is taken also when the
 * deadline has passed. Locking a mutex one holds waits like any other (for ever
 * with WEFT_NEVER).
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_mutex_lock(weft_mutex *m, weft_time deadline);

/* Unlocks, and wakes at most one waiter. Never suspends.
 * Returns 0, -EPERM (it was not locked), -EINVAL (NULL).
 * Callable from: any task, any thread (not a signal handler). */
WEFT_API int weft_mutex_unlock(weft_mutex *m);

/* True when somebody holds it; for assertions and dumps. NULL: false.
 * Callable from: anywhere. */
WEFT_API bool weft_mutex_locked(const weft_mutex *m);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/cond.h -- wait, under a mutex, until something about the data has changed.
 *
 *     weft_mutex_lock(&q->mutex, WEFT_NEVER);
 *     while (q->empty && (r = weft_cond_wait(&q->filled, &q->mutex, deadline)) == 0)
 *         ;
 *     ...
 *     weft_mutex_unlock(&q->mutex);
 *
 * A signal wakes one who waits, and never gets lost on one who leaves at the same
 * moment for another reason: either that one returns 0, or the signal goes to the
 * next. A signal that nobody waits for does nothing. Wakes are never spurious, but
 * another task may have taken the mutex, and changed the data, before the woken one
 * has it: look again.
 *
 * An all-zero weft_cond is ready for use and needs no clean-up.
 *
 * Concurrency: wait, signal and broadcast may overlap in any way; init may overlap
 * with nothing. All who wait at one time use the same mutex.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_COND_H
#define WEFT_COND_H

#include "weft/base.h"
#include "weft/mutex.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_cond {
    uint32_t weft__waiting, weft__lock;
    void *weft__queue[2];
} weft_cond;

/* Static initialiser; zeroed memory does as well. */
#define WEFT_COND_INIT                                                                             \
    {                                                                                              \
        0, 0,                                                                                      \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* Makes *c ready for use. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. Nobody else may use *c meanwhile. */
WEFT_API int weft_cond_init(weft_cond *c);

/* Unlocks the mutex and waits, in one step, for a signal or until `deadline`
 * (absolute ns, WEFT_TRY, WEFT_NEVER); then locks the mutex again, however long that
 * takes and also when the task is cancelled. The caller holds the mutex before and
 * after, whatever is returned.
 *
 * Returns  0           signalled
 *          -EAGAIN     the deadline was WEFT_TRY; the mutex was not unlocked
 *          -ETIMEDOUT  not signalled until the deadline
 *          -ECANCELED  the task is cancelled
 *          -EPERM      the mutex is not locked (it still is not)
 *          -EINVAL     c or m is NULL
 * Callable from: any task, any thread. Suspends. */
WEFT_API WEFT_MUST_USE int weft_cond_wait(weft_cond *c, weft_mutex *m, weft_time deadline);

/* Wakes the one who waits longest; all who wait. With or without the mutex held;
 * who changes the data under the mutex first cannot be missed. Never suspend.
 * Return 0, or -EINVAL (NULL).
 * Callable from: any thread, any task (not a signal handler). */
WEFT_API int weft_cond_signal(weft_cond *c);
WEFT_API int weft_cond_broadcast(weft_cond *c);

#ifdef __cplusplus
}
#endif
#endif

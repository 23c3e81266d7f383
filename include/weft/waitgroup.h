/* SPDX-License-Identifier: MIT
 *
 * weft/waitgroup.h -- wait until a number of things are done.
 *
 * A count that goes up by weft_waitgroup_add and down by weft_waitgroup_done; a
 * wait returns when it is zero. Add before you start the thing that calls done.
 * When the count reaches zero, all who wait at that moment are woken, also when it
 * goes up again right afterwards; the group can be used any number of times.
 *
 * An all-zero weft_waitgroup is an empty group and needs no clean-up. It may live
 * on the stack of the one who waits for it: when the wait has returned 0, the done
 * that made it so does not touch it any more (provided no other waiter is left).
 *
 * Concurrency: add, done, wait and count may overlap in any way on one group; init
 * may overlap with nothing. Every done happens-before the return of a wait that
 * saw the count at zero after it.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_WAITGROUP_H
#define WEFT_WAITGROUP_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_waitgroup {
    uint32_t weft__state, weft__lock;
    void *weft__queue[2];
} weft_waitgroup;

/* Static initialiser: empty. Zeroed memory does as well. */
#define WEFT_WAITGROUP_INIT                                                                        \
    {                                                                                              \
        0, 0,                                                                                      \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* The largest count. */
#define WEFT_WAITGROUP_MAX 0x3fffffff

/* Makes *wg an empty group. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. Nobody else may use *wg meanwhile. */
WEFT_API int weft_waitgroup_init(weft_waitgroup *wg);

/* Allocates an empty group, for callers that cannot embed one.
 * Returns 0, -EINVAL (NULL), -ENOMEM (*ret_wg is untouched on error).
 * The caller owns it and ends it with weft_waitgroup_destroy.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_waitgroup_create(weft_waitgroup **ret_wg);

/* Frees a group made by weft_waitgroup_create. NULL is allowed.
 * Returns 0, or -EBUSY: the count is not zero, or somebody waits; it was not freed.
 * Callable from: any thread, any task. */
WEFT_API int weft_waitgroup_destroy(weft_waitgroup *wg);

/* Adds `delta`, which may be negative. Never suspends.
 * Returns 0, or -EINVAL: wg is NULL, or the count would leave 0 to
 * WEFT_WAITGROUP_MAX; it is unchanged then.
 * Callable from: any thread, any task (not a signal handler). */
WEFT_API int weft_waitgroup_add(weft_waitgroup *wg, int delta);

/* weft_waitgroup_add(wg, -1), with its errors.
 * Callable from: any thread, any task (not a signal handler). */
WEFT_API int weft_waitgroup_done(weft_waitgroup *wg);

/* The count at some moment during the call. NULL: 0. Callable from: anywhere. */
WEFT_API int weft_waitgroup_count(const weft_waitgroup *wg);

/* Waits until the count is zero or `deadline` comes (absolute ns, WEFT_TRY,
 * WEFT_NEVER). Waiting again after an error is fine.
 *
 * Returns  0           it was zero
 *          -EAGAIN     not zero, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  not zero until the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     wg is NULL
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_waitgroup_wait(weft_waitgroup *wg, weft_time deadline);

#ifdef __cplusplus
}
#endif
#endif

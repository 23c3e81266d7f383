/* SPDX-License-Identifier: MIT
 *
 * weft/event.h -- a flag to wait for: "the configuration is loaded".
 *
 * Manual reset: a set event lets everybody pass until it is reset. Setting wakes
 * all who wait at that moment, also when the event is reset right afterwards.
 *
 * An all-zero weft_event is a reset event and needs no clean-up. It may live on the
 * stack of the one who waits for it: when the wait has returned 0, weft_event_set
 * does not touch it any more (provided no other waiter is left).
 *
 * Concurrency ("-" may overlap on one event, "X" must not):
 *             set  reset  wait  is_set  init
 *   set        -     -      -      -     X
 *   reset      -     -      -      -     X
 *   wait       -     -      -      -     X
 * A set happens-before the return of each wait that it lets pass.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_EVENT_H
#define WEFT_EVENT_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_event {
    uint32_t weft__state, weft__lock;
    void *weft__queue[2];
} weft_event;

/* Static initialiser: not set. Zeroed memory does as well. */
#define WEFT_EVENT_INIT                                                                            \
    {                                                                                              \
        0, 0,                                                                                      \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* Makes *e an event that is not set. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. Nobody else may use *e meanwhile. */
WEFT_API int weft_event_init(weft_event *e);

/* Allocates an event that is not set, for callers that cannot embed one.
 * Returns 0, -EINVAL (NULL), -ENOMEM (*ret_e is untouched on error).
 * The caller owns it and ends it with weft_event_destroy.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_event_create(weft_event **ret_e);

/* Frees an event made by weft_event_create. NULL is allowed.
 * Returns 0, or -EBUSY: somebody waits for it; it was not freed.
 * Callable from: any thread, any task. */
WEFT_API int weft_event_destroy(weft_event *e);

/* Sets the event and wakes all who wait; nothing when it is set. Never suspends.
 * Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task (not a signal handler). */
WEFT_API int weft_event_set(weft_event *e);

/* Resets it: later waits block again. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. */
WEFT_API int weft_event_reset(weft_event *e);

/* True while it is set. NULL: false. Callable from: anywhere. */
WEFT_API bool weft_event_is_set(const weft_event *e);

/* Waits until the event is set or `deadline` comes (absolute ns, WEFT_TRY,
 * WEFT_NEVER). Waiting again after an error is fine.
 *
 * Returns  0           it was set
 *          -EAGAIN     not set, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  not set until the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     e is NULL
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_event_wait(weft_event *e, weft_time deadline);

#ifdef __cplusplus
}
#endif
#endif

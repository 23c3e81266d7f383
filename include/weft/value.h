/* SPDX-License-Identifier: MIT
 *
 * weft/value.h -- a value that is set once, and awaited by any number.
 *
 * One pointer's worth: an integer, a pointer to a reply. All who wait get the same
 * value; what it points to belongs to whoever you agree on.
 *
 * An all-zero weft_value is not set and needs no clean-up. It may live on the stack
 * of the one who waits for it: when the wait has returned 0, weft_value_set does not
 * touch it any more (provided no other waiter is left).
 *
 * Concurrency: set, wait, peek may overlap in any way on one value; init may overlap
 * with nothing. The set happens-before the return of each wait or peek that sees it.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_VALUE_H
#define WEFT_VALUE_H

#include "weft/base.h"
#include "weft/event.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_value {
    weft_event weft__set;
    void *weft__value;
    uint32_t weft__taken, weft__spare;
} weft_value;

/* Static initialiser: not set. Zeroed memory does as well. */
#define WEFT_VALUE_INIT                                                                            \
    {                                                                                              \
        WEFT_EVENT_INIT, NULL, 0, 0                                                                \
    }

/* Makes *v a value that is not set, also one that was set. Returns 0, or -EINVAL
 * (NULL). Callable from: any thread, any task. Nobody else may use *v meanwhile. */
WEFT_API int weft_value_init(weft_value *v);

/* Sets it and wakes all who wait. Never suspends.
 * Returns 0; -EALREADY: it was set before, and stays as it was; -EINVAL (v is NULL).
 * Callable from: any thread, any task (not a signal handler). */
WEFT_API int weft_value_set(weft_value *v, void *value);

/* Waits until it is set or `deadline` comes (absolute ns, WEFT_TRY, WEFT_NEVER).
 * Waiting again after an error is fine.
 *
 * ret_value  what it was set to; NULL if unwanted; untouched on error
 *
 * Returns  0           it is set
 *          -EAGAIN     not set, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  not set until the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     v is NULL
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_value_wait(weft_value *v, weft_time deadline, void **ret_value);

/* True when it is set. NULL: false. Callable from: anywhere. */
WEFT_API bool weft_value_is_set(const weft_value *v);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/once.h -- do something once, whoever comes first; the others wait for it.
 *
 * An all-zero weft_once is ready for use and needs no clean-up.
 *
 * Concurrency: do and done may overlap in any way. The return of the function
 * happens-before the return of every do that says 0.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_ONCE_H
#define WEFT_ONCE_H

#include "weft/base.h"
#include "weft/mutex.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_once {
    uint32_t weft__done, weft__spare;
    weft_mutex weft__mutex;
} weft_once;

/* Static initialiser; zeroed memory does as well. */
#define WEFT_ONCE_INIT                                                                             \
    {                                                                                              \
        0, 0, WEFT_MUTEX_INIT                                                                      \
    }

/* Runs fn(arg) if no call has succeeded yet. While one runs, the others wait for it
 * until `deadline` (absolute ns, WEFT_TRY, WEFT_NEVER). A function that returns a
 * negative value has failed: its caller gets that value, and the next one runs fn.
 *
 * fn   may suspend; must not call weft_once_do on the same object (it would wait for
 *      itself)
 *
 * Returns  0           it is done, by this call or an earlier one
 *          < 0         what fn returned, when this call ran it
 *          -EAGAIN     another call runs it, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  another call still runs it at the deadline
 *          -ECANCELED  the task is cancelled; fn was not run by this call
 *          -EINVAL     o or fn is NULL
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_once_do(weft_once *o, int (*fn)(void *arg), void *arg,
                                        weft_time deadline);

/* True when it is done. NULL: false. Callable from: anywhere. */
WEFT_API bool weft_once_done(const weft_once *o);

#ifdef __cplusplus
}
#endif
#endif

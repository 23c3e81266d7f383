/* SPDX-License-Identifier: MIT
 *
 * weft/semaphore.h -- a number of permits, taken and given back in any amounts.
 *
 * Fair: first come, first served, whatever the amounts; a caller that would find
 * enough waits all the same behind one that asked earlier for more. When that one
 * leaves (deadline, cancellation), those behind it are served at once.
 *
 * An all-zero weft_semaphore has no permits and needs no clean-up. When an acquire
 * has returned 0, the release that made it so does not touch the semaphore any more
 * (provided no other waiter is left).
 *
 * Concurrency: acquire, release and available may overlap in any way on one
 * semaphore; init may overlap with nothing. A release happens-before the acquire
 * that gets its permits.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_SEMAPHORE_H
#define WEFT_SEMAPHORE_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_semaphore {
    uint32_t weft__state, weft__lock;
    void *weft__queue[2];
} weft_semaphore;

/* The most permits there can be. */
#define WEFT_SEMAPHORE_MAX 0x3fffffffu

/* Static initialiser with `permits` (a constant up to WEFT_SEMAPHORE_MAX). */
#define WEFT_SEMAPHORE_INIT(permits)                                                               \
    {                                                                                              \
        (uint32_t)(permits) * 2u, 0,                                                               \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* Makes *s a semaphore with `permits`. Returns 0, or -EINVAL (NULL, too many).
 * Callable from: any thread, any task. Nobody else may use *s meanwhile. */
WEFT_API int weft_semaphore_init(weft_semaphore *s, unsigned permits);

/* Allocates a semaphore, for callers that cannot embed one.
 * Returns 0, -EINVAL (NULL, too many), -ENOMEM (*ret_s is untouched on error).
 * The caller owns it and ends it with weft_semaphore_destroy.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_semaphore_create(unsigned permits, weft_semaphore **ret_s);

/* Frees a semaphore made by weft_semaphore_create. NULL is allowed.
 * Returns 0, or -EBUSY: somebody waits; it was not freed.
 * Callable from: any thread, any task. */
WEFT_API int weft_semaphore_destroy(weft_semaphore *s);

/* Takes n permits at once, waiting until `deadline` (absolute ns, WEFT_TRY,
 * WEFT_NEVER). n = 0 waits for its turn and takes nothing.
 *
 * Returns  0           taken
 *          -EAGAIN     it would have to wait, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  not served until the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     s is NULL, n is above WEFT_SEMAPHORE_MAX
 * On every error nothing was taken.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_semaphore_acquire(weft_semaphore *s, unsigned n,
                                                  weft_time deadline);

/* Gives n permits (back), and wakes those who can be served now. Never suspends.
 * Returns 0; -ERANGE: there would be more than WEFT_SEMAPHORE_MAX, nothing was given;
 * -EINVAL (NULL).
 * Callable from: any thread, any task (not a signal handler). */
WEFT_API int weft_semaphore_release(weft_semaphore *s, unsigned n);

/* How many permits are there. NULL: 0. Callable from: anywhere. */
WEFT_API unsigned weft_semaphore_available(const weft_semaphore *s);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/barrier.h -- a number of parties wait for each other, round after round.
 *
 * Concurrency: wait may overlap with wait; init may overlap with nothing. What each
 * party did before its wait happens-before the return of every wait of that round.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_BARRIER_H
#define WEFT_BARRIER_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_barrier {
    uint32_t weft__lock, weft__parties, weft__arrived, weft__round;
    void *weft__queue[2];
} weft_barrier;

/* Static initialiser for `parties` (a constant, at least 1). */
#define WEFT_BARRIER_INIT(parties)                                                                 \
    {                                                                                              \
        0, (uint32_t)(parties), 0, 0,                                                              \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* Makes *b a barrier for `parties`. Returns 0, or -EINVAL (NULL, 0 parties).
 * Callable from: any thread, any task. Nobody else may use *b meanwhile. */
WEFT_API int weft_barrier_init(weft_barrier *b, unsigned parties);

/* Arrives, and waits until all parties have, or until `deadline` (absolute ns,
 * WEFT_TRY, WEFT_NEVER). The last to arrive does not wait.
 *
 * Returns  1           the round is complete, and this call was its last
 *          0           the round is complete
 *          -EAGAIN     this call would not be the last, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  not complete at the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     b is NULL or was never initialised
 * After an error the caller has not arrived: the round goes on without it, and it may
 * arrive again. A round that becomes complete at the moment of a deadline or a
 * cancellation counts as complete for all.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_barrier_wait(weft_barrier *b, weft_time deadline);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * spin.h -- a short, bounded look at one's own wait before the thread sleeps.
 *
 * A hand-off between two threads that both run costs a few hundred ns; one that goes
 * through the kernel costs two system calls and a wake-up. So who waits for an answer
 * that usually comes soon looks for it first, within a budget that tunes itself: it
 * grows while looking pays and shrinks to nothing while it does not, and then is tried
 * again now and then. At most one thread looks per spin object, so that the others leave
 * the processors to those they wait for. A fiber never does: its worker has other tasks.
 *
 * The wait is begun and its node is queued before; a claimer that finds the parker not
 * parked makes no system call. Nothing depends on the spin.
 */
#ifndef WEFT_SRC_BGWORKER_SPIN_H
#define WEFT_SRC_BGWORKER_SPIN_H

#include "wait/wait.h"

typedef struct weft__spin {
    weft__a32 spinners;
    weft__a32 budget; /* ns */
    weft__a32 skipped;
    weft__a32 taken; /* ns: by looks that found something, of late */
} weft__spin;

void weft__spin_init(weft__spin *s);

/* True when the unpark of the caller's wait has been delivered. */
bool weft__spin_wait(weft__spin *s, weft__parker *self);

#endif

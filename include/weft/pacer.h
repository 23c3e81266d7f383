/* SPDX-License-Identifier: MIT
 *
 * weft/pacer.h -- how often to look, for those who can only find out by looking.
 *
 * The interval starts at a floor (50 us), doubles with every look that found nothing up
 * to a ceiling (10 ms), and is back at the floor as soon as something moved. So a hand-over
 * in progress is seen within the floor, and a long rest costs a hundred looks a second.
 *
 *     weft_pacer pacer;
 *     weft_pacer_init(&pacer, 0, 0);
 *     for (;;) {
 *         if (look())
 *             weft_pacer_progress(&pacer);
 *         else
 *             wait_until(weft_pacer_next(&pacer, weft_now(), next_known_deadline));
 *     }
 *
 * What counts as progress: that something which was waited for has become so. That a
 * waiter was resumed only because somebody asked it to stop does not count: one that
 * ignores the request would hold the pacer at its floor for ever.
 *
 * The pacer is arithmetic: it reads no clock and holds no resource. Weft's own waits
 * never use it; weft/host.h does, for the poll sources of a host.
 *
 * Concurrency: one thread at a time for each pacer.
 */
#ifndef WEFT_PACER_H
#define WEFT_PACER_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_PACER_FLOOR   (50 * WEFT_USEC)
#define WEFT_PACER_CEILING (10 * WEFT_MSEC)

/* Embed it anywhere; the fields are private. May be copied. */
typedef struct weft_pacer {
    weft_time weft__floor, weft__ceiling, weft__interval;
} weft_pacer;

/* Makes *p a pacer at its floor.
 *
 * floor, ceiling  ns; 0: WEFT_PACER_FLOOR, WEFT_PACER_CEILING
 *
 * Returns 0; -EINVAL (p is NULL, one is negative, the floor is above the ceiling), and *p
 * is untouched. Callable from: any thread, any task, a signal handler. */
WEFT_API int weft_pacer_init(weft_pacer *p, weft_time floor, weft_time ceiling);

/* Something moved: the next interval is the floor again. NULL: no effect.
 * Callable from: any thread, any task, a signal handler. */
WEFT_API void weft_pacer_progress(weft_pacer *p);

/* When to look again after a look that found nothing: `now` plus the interval, but never
 * later than `until`. The interval doubles, unless `until` cut it short.
 *
 * now    the present time (absolute, ns)
 * until  a deadline that is already known (absolute, ns); WEFT_NEVER: none. One in the
 *        past is returned as it is: look at once
 *
 * Returns an absolute time; for NULL, `until`.
 * Callable from: any thread, any task, a signal handler. */
WEFT_API weft_time weft_pacer_next(weft_pacer *p, weft_time now, weft_time until);

/* The next interval, ns; 0 for NULL.
 * Callable from: any thread, any task, a signal handler. */
WEFT_API weft_time weft_pacer_interval(const weft_pacer *p);

#ifdef __cplusplus
}
#endif
#endif

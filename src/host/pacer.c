/* SPDX-License-Identifier: MIT
 *
 * pacer.c -- see weft/pacer.h: exponential back-off between two bounds, with time as an
 * argument.
 *
 * Invariant: 0 < floor <= interval <= ceiling.
 */
#include "weft/pacer.h"

#include <errno.h>

int weft_pacer_init(weft_pacer *p, weft_time floor, weft_time ceiling)
{
    if (floor == 0)
        floor = WEFT_PACER_FLOOR;
    if (ceiling == 0)
        ceiling = WEFT_PACER_CEILING;
    if (!p || floor < 0 || ceiling < floor)
        return -EINVAL;
    *p = (weft_pacer){floor, ceiling, floor};
    return 0;
}

void weft_pacer_progress(weft_pacer *p)
{
    if (p)
        p->weft__interval = p->weft__floor;
}

weft_time weft_pacer_next(weft_pacer *p, weft_time now, weft_time until)
{
    if (!p || until <= now)
        return until;
    weft_time interval = p->weft__interval;
    /* Compared as unsigned, where the distance of any two times has room. */
    if ((uint64_t)until - (uint64_t)now < (uint64_t)interval)
        return until;
    p->weft__interval = interval <= p->weft__ceiling / 2 ? interval * 2 : p->weft__ceiling;
    return now + interval; /* not above until: no overflow */
}

weft_time weft_pacer_interval(const weft_pacer *p)
{
    return p ? p->weft__interval : 0;
}

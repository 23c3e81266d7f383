/* SPDX-License-Identifier: MIT
 *
 * linger.h -- how long to look on before sleeping in the kernel, learned from how long
 * the last sleeps took: a wake costs both sides some microseconds, so where answers come
 * quickly a moment of looking is cheaper. What comes in time keeps the moment, what does
 * not halves it, a long sleep ends it: it is zero at rest, and where somebody else needs
 * the processor.
 */
#ifndef WEFT_SRC_LINGER_H
#define WEFT_SRC_LINGER_H

#include "base/base.h"

#define WEFT__LINGER_MIN   (4 * WEFT_USEC)
#define WEFT__LINGER_MAX   (50 * WEFT_USEC)
#define WEFT__LINGER_LOOKS 16 /* between two looks at the clock */

/* The moment after a sleep of `slept` ns. */
static inline weft_time weft__linger_after_sleep(weft_time linger, weft_time slept)
{
    if (slept > 6 * WEFT__LINGER_MAX)
        return 0;
    if (slept >= 2 * WEFT__LINGER_MAX)
        return linger;
    if (linger < WEFT__LINGER_MIN)
        return WEFT__LINGER_MIN;
    return 2 * linger < WEFT__LINGER_MAX ? 2 * linger : WEFT__LINGER_MAX;
}

/* The moment after one in which nothing came. */
static inline weft_time weft__linger_after_nothing(weft_time linger)
{
    return linger / 2 < WEFT__LINGER_MIN ? 0 : linger / 2;
}

#endif

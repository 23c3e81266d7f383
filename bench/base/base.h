/* SPDX-License-Identifier: MIT
 *
 * base.h -- what the system itself takes, without any runtime.
 */
#ifndef BENCH_BASE_H
#define BENCH_BASE_H

#include "weft/base.h"

/* A thread that sleeps on a futex and notes when it runs again. */
typedef struct base_sleeper base_sleeper;

base_sleeper *base_sleeper_start(void);

/* Wakes the thread; how long until it ran, in us. The caller has left it alone long
 * enough for it to sleep. */
double base_sleeper_wake(base_sleeper *s);

void base_sleeper_stop(base_sleeper *s);

/* By how much nanosleep() passes a duration, in ns. */
double base_nanosleep_overshoot(weft_time duration);

/* Sleeps without a runtime. */
void base_nap(weft_time duration);

#endif

/* SPDX-License-Identifier: MIT
 *
 * heartbeat.h -- time in which a processor was to be had, for bounds on time that a
 * loaded machine cannot break.
 *
 * One thread on each processor sleeps a millisecond again and again. What passes between
 * two of its beats counts only up to BEAT_COUNTS, so while somebody else's work (or a
 * debugger, or a suspended machine) keeps threads from running, this clock stands nearly
 * still. Who did not run for 200 ms of it could have run on any processor, and had no
 * reason to.
 */
#ifndef WEFT_TESTS_HEARTBEAT_H
#define WEFT_TESTS_HEARTBEAT_H

#include <stdint.h>

#define BEAT_PROCESSORS 16
#define BEAT_COUNTS     3000000 /* ns */

/* A point in time, on every processor. */
struct beat {
    int64_t at[BEAT_PROCESSORS];
};

/* Starts the threads; once at a time. */
void beat_start(void);
void beat_stop(void);

void beat_mark(struct beat *ret);

/* ns since the mark that every processor was to be had. */
int64_t beat_since(const struct beat *mark);

#endif

/* SPDX-License-Identifier: MIT
 *
 * barrier.h -- arriving at a barrier and waiting for the round, in two pieces.
 */
#ifndef WEFT_SRC_SYNC_BARRIER_H
#define WEFT_SRC_SYNC_BARRIER_H

#include "weft/barrier.h"

#include "wait/select.h"

/* Completes the round (1), or counts the caller as arrived if it `stays` (0): it then waits
 * for *ret_round to be over, or leaves. */
int weft__barrier_arrive(weft_barrier *b, bool stays, uint32_t *ret_round);

/* Not arrived any more; false: too late, the round is complete and has counted it. */
bool weft__barrier_leave(weft_barrier *b, uint32_t round);

/* The round in node->arg is over. Object: the weft_barrier. The result is 0. */
extern const weft__case_ops weft__barrier_case_ops;

weft__lock *weft__barrier_lock(weft_barrier *b);

#endif

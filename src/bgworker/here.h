/* SPDX-License-Identifier: MIT
 *
 * here.h -- where a caller runs, as a small number: callers with different numbers are
 * likely to run on different processors.
 */
#ifndef WEFT_SRC_BGWORKER_HERE_H
#define WEFT_SRC_BGWORKER_HERE_H

#include "wait/wait.h"

#include "weft/runtime.h"

uint32_t weft__here(const weft__parker *self);
/* From how many places the tasks of a runtime can call; NULL: threads, one. */
unsigned weft__places_of(const weft_runtime *rt);

#endif

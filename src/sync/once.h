/* SPDX-License-Identifier: MIT
 *
 * once.h -- the second half of weft_once_do.
 */
#ifndef WEFT_SRC_SYNC_ONCE_H
#define WEFT_SRC_SYNC_ONCE_H

#include "weft/once.h"

/* The caller holds o's mutex: runs fn unless it is done, and unlocks. */
int weft__once_run(weft_once *o, int (*fn)(void *arg), void *arg);

#endif

/* SPDX-License-Identifier: MIT
 *
 * waitgroup.h -- the wait group as a waitable, for select.
 */
#ifndef WEFT_SRC_SYNC_WAITGROUP_H
#define WEFT_SRC_SYNC_WAITGROUP_H

#include "weft/waitgroup.h"

#include "wait/wait.h"

/* Object: the weft_waitgroup itself. The result is always 0. */
extern const weft__waitable_ops weft__waitgroup_ops;

weft__lock *weft__waitgroup_lock(weft_waitgroup *wg);

#endif

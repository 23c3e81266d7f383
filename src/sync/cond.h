/* SPDX-License-Identifier: MIT
 *
 * cond.h -- the wait for a signal alone, as a case; the mutex is the caller's business.
 * Object: the weft_cond. The result is 0. A signal that is abandoned goes to the next.
 */
#ifndef WEFT_SRC_SYNC_COND_H
#define WEFT_SRC_SYNC_COND_H

#include "weft/cond.h"

#include "wait/select.h"

extern const weft__case_ops weft__cond_case_ops;

weft__lock *weft__cond_lock(weft_cond *c);

#endif

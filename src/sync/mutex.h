/* SPDX-License-Identifier: MIT
 *
 * mutex.h -- the mutex as a case of select. Object: the weft_mutex; node->arg:
 * WEFT__MUTEX_CASE. The result is 0, and the waiter holds it.
 */
#ifndef WEFT_SRC_SYNC_MUTEX_H
#define WEFT_SRC_SYNC_MUTEX_H

#include "weft/mutex.h"

#include "wait/select.h"

enum { WEFT__MUTEX_CASE = 1 };

extern const weft__case_ops weft__mutex_case_ops;

weft__lock *weft__mutex_lock(weft_mutex *m);

#endif

/* SPDX-License-Identifier: MIT
 *
 * model_lock.h -- weft__lock as one step to take and one to leave.
 *
 * lock_model.c shows that the real lock excludes and loses no wake. A protocol that
 * only uses it is checked above this specification of it, which leaves room for
 * more threads: a contended lock has hundreds of interleavings of its own. Include
 * before any .c file of weft.
 */
#ifndef WEFT_TESTS_MODEL_LOCK_H
#define WEFT_TESTS_MODEL_LOCK_H

#include "base/lock.h"

void model_acquire(weft__lock *l);
bool model_lock_try(weft__lock *l);
void model_release(weft__lock *l); /* only by its holder */

#endif

/* SPDX-License-Identifier: MIT
 *
 * select.h -- how a room makes its things selectable.
 *
 * A select holds the locks of all its cases at once, taken in the order of their
 * addresses. So an object's lock must be a leaf: nothing that runs under it takes
 * the lock of another waitable object.
 */
#ifndef WEFT_SRC_WAIT_SELECT_H
#define WEFT_SRC_WAIT_SELECT_H

#include "weft/select.h"

#include "wait/wait.h"

/* The case "wait on `object` by `ops`", with node->payload = payload. NULL ops make
 * a case that weft_select refuses: for constructors that were given bad arguments. */
weft_select_case weft__case_of(const weft__waitable_ops *ops, void *object, weft__lock *lock,
                               void *payload);

/* The node in a case, for what a constructor has to set beyond the payload (arg). */
weft__wait_node *weft__case_node(weft_select_case *c);

#endif

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

/* The case "wait on `object` by `ops`", with node->payload as given, and node->arg as
 * in weft__arg, for each try and link. NULL ops make a case that weft_select refuses: for
 * constructors that were given bad arguments. The storage of the node stays as it is. */
static inline weft_select_case weft__case_of(const weft__waitable_ops *ops, void *object,
                                             weft__lock *lock, void *payload)
{
    weft_select_case c;
    c.off = false;
    c.result = 0;
    c.weft__ops = ops;
    c.weft__object = object;
    c.weft__lock = lock;
    c.weft__payload = payload;
    c.weft__arg = 0;
    return c;
}

#endif

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

/* weft_select in pieces, for a waiter that returns to its scheduler in between.
 *
 * link: does a case, or says why not (as weft_select), or, with the wait of `self` already
 * begun, links all nodes: -EINPROGRESS, and the wait should be claimed with TIMEDOUT at
 * *ret_limit. unlink: takes the nodes out that did not decide, before another wait begins.
 * outcome: what weft_select would return; -EAGAIN: nothing has happened. */
int weft__select_link(weft__parker *self, weft_select_case *cases, size_t n, unsigned flags,
                      weft_time deadline, weft_time *ret_limit);
void weft__select_unlink(weft_select_case *cases, size_t n, uint32_t outcome);
int weft__select_outcome(weft_select_case *cases, size_t n, uint32_t outcome, weft_time deadline);

#endif

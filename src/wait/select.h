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

/* What a case's ops can say beyond a waitable's; in the case's weft__kind. With any of
 * these bits weft__ops is a weft__case_ops. */
enum {
    WEFT__CASE_OUTSIDE = 1, /* ready when the kernel says so: look to on_thread are there */
    WEFT__CASE_ABANDON = 2, /* `abandon` is there */
    WEFT__CASE_QUICK = 4,   /* `try_quickly` is there */
};

#define WEFT__NOT_QUICKLY (-EINPROGRESS)

typedef struct weft__case_ops {
    weft__waitable_ops base; /* first */

    /* The four of an OUTSIDE case take no lock before and hold none after. Such a case takes
     * nothing: done twice, or done and forgotten, it is as if it had not been.
     *
     * look: asks the kernel: the result or -EAGAIN. A claim with the result 0 is a hint
     * only, which select verifies with this.
     * listen: after `look` said -EAGAIN, before a task's wait: sees to it that try_locked
     * or a claim will tell of what happens from that look on. 0, or the result of the case.
     * linked: the node is in the queue and nothing is locked any more.
     * on_thread: a whole weft_select from its first wait on, when the caller is a plain
     * thread; -EINPROGRESS: it is a task. */
    int (*look)(void *object, weft__wait_node *node);
    int (*listen)(void *object, weft__wait_node *node);
    void (*linked)(void *object, weft__wait_node *node);
    int (*on_thread)(weft_select_case *cases, size_t n, unsigned flags, weft_time deadline);

    /* The wait has ended, and the waiter will never ask how: passes on what it was given, if
     * the case was `done` with the result 0. Without any lock. */
    void (*abandon)(void *object, weft__wait_node *node, bool done);

    /* A try without the object's lock: answers as try_locked, or WEFT__NOT_QUICKLY, with
     * nothing done, and the lock has to be taken. */
    int (*try_quickly)(void *object, void *payload);
} weft__case_ops;

/* The case "wait on `object` by `ops`", with node->payload as given, and node->arg as
 * in weft__arg, for each try and link. NULL ops make a case that weft_select refuses: for
 * constructors that were given bad arguments. The storage of the node stays as it is. */
static inline weft_select_case weft__case_of(const weft__waitable_ops *ops, void *object,
                                             weft__lock *lock, void *payload)
{
    weft_select_case c;
    c.off = false;
    c.result = 0;
    c.weft__kind = 0;
    c.weft__ops = ops;
    c.weft__object = object;
    c.weft__lock = lock;
    c.weft__payload = payload;
    c.weft__arg = 0;
    return c;
}

static inline weft_select_case weft__case_of_kind(uint32_t kind, const weft__case_ops *ops,
                                                  void *object, weft__lock *lock, void *payload)
{
    weft_select_case c = weft__case_of(&ops->base, object, lock, payload);
    c.weft__kind = kind;
    return c;
}

static inline weft__wait_node *weft__case_node(weft_select_case *c)
{
    return (weft__wait_node *)(void *)c->weft__node;
}

/* weft_select in pieces, for a waiter that returns to its scheduler in between.
 *
 * link: does a case, or says why not (as weft_select), or, with the wait of `self` already
 * begun, links all nodes: -EINPROGRESS, and the wait should be claimed with TIMEDOUT at
 * *ret_limit. unlink: takes the nodes out that did not decide, before another wait begins;
 * true: the answer must be asked for, or abandoned.
 * outcome: what weft_select would return; -EAGAIN: nothing has happened. abandon: in place of
 * outcome, when nobody wants to know. */
int weft__select_link(weft__parker *self, weft_select_case *cases, size_t n, unsigned flags,
                      weft_time deadline, weft_time *ret_limit);
bool weft__select_unlink(weft_select_case *cases, size_t n, uint32_t outcome);
int weft__select_outcome(weft_select_case *cases, size_t n, uint32_t outcome, weft_time deadline);
void weft__select_abandon(weft_select_case *cases, size_t n, uint32_t outcome);

#endif

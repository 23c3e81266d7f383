/* SPDX-License-Identifier: MIT
 *
 * pollwait.c -- see weft/pollwait.h. The halves of weft_select, with a return to the
 * scheduler in between.
 *
 * The wait of a poll task begins before its body is called (run_poll in worker.c), so
 * that wakes during the poll claim it. Hence the order that keeps select's law, one case at
 * most: before the next wait begins, the nodes of the last one are taken out and its outcome
 * is noted (weft__poll_unlink); while the body tries cases none of its nodes is linked,
 * so only a wake, a timer or a cancellation can claim meanwhile, and these do no case.
 */
#include "weft/pollwait.h"

#include "sched/worker.h"
#include "wait/select.h"

enum { IDLE, LINKED, DECIDED };

/* The poll task that runs here, if it is `self`. */
static bool running(const weft_task *self)
{
    return self && weft_task_self() == self && (self->flags & WEFT__TASK_POLL);
}

static bool cancelled(weft_task *t)
{
    return (atom_load_rlx(&t->parker.cancel) & WEFT__CANCEL) && !t->parker.shield;
}

void weft__poll_unlink(weft_task *t)
{
    weft_poll_wait *w = atom_load_rlx(&t->parker.object);
    w->weft__outcome = atom_load_rlx(&t->parker.word) >> WEFT__WAIT_SHIFT;
    w->weft__state = DECIDED;
    t->own = (uint8_t)(t->own & ~WEFT__OWN_LINKED);
    weft__select_unlink(w->weft__cases, w->weft__n, w->weft__outcome);
}

static int begin(weft_task *t, weft_poll_wait *w, weft_select_case *cases, size_t n, unsigned flags,
                 weft_time deadline)
{
    if (deadline != WEFT_TRY && cancelled(t))
        return -ECANCELED;
    if (--t->parker.budget < 0) { /* others first */
        weft_task_wake(t);
        return WEFT_PENDING;
    }
    weft_time limit = WEFT_NEVER;
    int r = weft__select_link(&t->parker, cases, n, flags, deadline, &limit);
    if (r != -EINPROGRESS)
        return r;
    *w = (weft_poll_wait){.weft__cases = cases,
                          .weft__deadline = deadline,
                          .weft__n = (uint32_t)n,
                          .weft__state = LINKED};
    t->own |= WEFT__OWN_LINKED;
    atom_store_rlx(&t->parker.what, (void *)(uintptr_t) "poll select");
    atom_store_rlx(&t->parker.object, w);
    weft_task_wake_at(t, limit);
    return WEFT_PENDING;
}

int weft_poll_select(weft_task *t, weft_poll_wait *w, weft_select_case *cases, size_t n,
                     unsigned flags, weft_time deadline)
{
    if (!running(t))
        return -EPERM;
    if (!w)
        return -EINVAL;
    if (t->own & WEFT__OWN_LINKED)
        return w->weft__state == LINKED && atom_load_rlx(&t->parker.object) == w ? WEFT_PENDING
                                                                                 : -EBUSY;
    if (w->weft__state != DECIDED)
        return begin(t, w, cases, n, flags, deadline);
    w->weft__state = IDLE;
    deadline = w->weft__deadline;
    /* The wait may have begun before the shield. */
    if (w->weft__outcome == WEFT__CANCELED && !cancelled(t))
        w->weft__outcome = WEFT__WOKEN;
    int r = weft__select_outcome(w->weft__cases, w->weft__n, w->weft__outcome, deadline);
    return r == -EAGAIN ? begin(t, w, cases, n, flags, deadline) : r;
}

int weft_poll_do(weft_task *t, weft_poll_op *op, weft_select_case c, weft_time deadline)
{
    if (!op)
        return -EINVAL;
    if (op->weft__wait.weft__state == IDLE)
        op->weft__case = c;
    int r = weft_poll_select(t, &op->weft__wait, &op->weft__case, 1, 0, deadline);
    return r == 0 ? op->weft__case.result : r;
}

int weft_poll_sleep_until(weft_task *t, weft_time deadline)
{
    if (!running(t))
        return -EPERM;
    if (cancelled(t))
        return -ECANCELED;
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        return 0;
    weft_task_wake_at(t, deadline);
    return WEFT_PENDING;
}

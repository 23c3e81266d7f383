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
 *
 * An outcome that the body does not ask for (it ends, or begins another wait) is abandoned:
 * a lock, permits, a place that came with it pass to the next in the queue.
 */
#include "weft/pollwait.h"

#include "sched/worker.h"
#include "sync/barrier.h"
#include "sync/cond.h"
#include "sync/once.h"
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
    bool keeps = weft__select_unlink(w->weft__cases, w->weft__n, w->weft__outcome);
    t->own = (uint8_t)((t->own & ~WEFT__OWN_LINKED) | (keeps ? WEFT__OWN_DECIDED : 0));
}

/* What `w` waited for is over; one way or the other it is idle again. */
static void settled(weft_task *t, weft_poll_wait *w)
{
    if (atom_load_rlx(&t->parker.object) == w)
        t->own = (uint8_t)(t->own & ~WEFT__OWN_DECIDED);
    w->weft__state = IDLE;
}

void weft__poll_abandon(weft_task *t)
{
    weft_poll_wait *w = atom_load_rlx(&t->parker.object);
    settled(t, w);
    weft__select_abandon(w->weft__cases, w->weft__n, w->weft__outcome);
}

static int begin(weft_task *t, weft_poll_wait *w, weft_select_case *cases, size_t n, unsigned flags,
                 weft_time deadline)
{
    if (WEFT__UNLIKELY(t->own & WEFT__OWN_DECIDED))
        weft__poll_abandon(t); /* of another wait */
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

/* Asks for the answer. -EAGAIN: it was woken for no reason of this wait. */
static int outcome_of(weft_task *t, weft_poll_wait *w)
{
    settled(t, w);
    /* The wait may have begun before the shield. */
    if (w->weft__outcome == WEFT__CANCELED && !cancelled(t))
        w->weft__outcome = WEFT__WOKEN;
    return weft__select_outcome(w->weft__cases, w->weft__n, w->weft__outcome, w->weft__deadline);
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
    deadline = w->weft__deadline;
    int r = outcome_of(t, w);
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

/* ---- Of several steps ---- */

/* Another wait of this task is pending than `w`. */
static bool busy(const weft_task *t, const weft_poll_wait *w)
{
    return (t->own & WEFT__OWN_LINKED) && w->weft__state != LINKED;
}

int weft_poll_once(weft_task *t, weft_poll_op *op, weft_once *o, int (*fn)(void *arg), void *arg,
                   weft_time deadline)
{
    if (!running(t))
        return -EPERM;
    if (!op || !o || !fn)
        return -EINVAL;
    if (op->weft__wait.weft__state == IDLE && weft_once_done(o))
        return deadline != WEFT_TRY && cancelled(t) ? -ECANCELED : 0;
    int r = weft_poll_do(t, op, weft_case_mutex(&o->weft__mutex), deadline);
    return r ? r : weft__once_run(o, fn, arg);
}

enum { NOT_WAITING, SIGNAL, MUTEX };

/* In the queue first, then the mutex goes, see D1 in cond.c. */
static int cond_begin(weft_task *t, weft_poll_cond_op *op, weft_cond *c, weft_mutex *m,
                      weft_time deadline)
{
    if (!weft_mutex_locked(m))
        return -EPERM;
    int r = weft_poll_do(
        t, &op->weft__op,
        weft__case_of_kind(WEFT__CASE_ABANDON, &weft__cond_case_ops, c, weft__cond_lock(c), NULL),
        deadline);
    if (r == WEFT_PENDING && op->weft__op.weft__wait.weft__state == LINKED) {
        op->weft__step = SIGNAL;
        WEFT__CHECK(weft_mutex_unlock(m) == 0);
    }
    return r;
}

int weft_poll_cond(weft_task *t, weft_poll_cond_op *op, weft_cond *c, weft_mutex *m,
                   weft_time deadline)
{
    if (!running(t))
        return -EPERM;
    if (!op || !c || !m)
        return -EINVAL;
    weft_poll_wait *w = &op->weft__op.weft__wait;
    if (busy(t, w))
        return -EBUSY;
    if (op->weft__step == NOT_WAITING)
        return cond_begin(t, op, c, m, deadline);
    if (op->weft__step == SIGNAL) {
        if (w->weft__state == LINKED)
            return WEFT_PENDING;
        /* A signal leaves no trace, so one that came since the node left the queue cannot
         * be told from none: whoever is woken returns. */
        int r = outcome_of(t, w);
        op->weft__result = r == -EAGAIN ? 0 : r;
        op->weft__step = MUTEX;
    }
    t->parker.shield++;
    int r = weft_poll_do(t, &op->weft__op, weft_case_mutex(m), WEFT_NEVER);
    t->parker.shield--;
    if (r == WEFT_PENDING)
        return r;
    WEFT__CHECK(r == 0);
    op->weft__step = NOT_WAITING;
    return op->weft__result;
}

int weft_poll_barrier(weft_task *t, weft_poll_barrier_op *op, weft_barrier *b, weft_time deadline)
{
    if (!running(t))
        return -EPERM;
    if (!op || !b || !b->weft__parties)
        return -EINVAL;
    weft_poll_op *own = &op->weft__op;
    if (busy(t, &own->weft__wait))
        return -EBUSY;
    if (!op->weft__arrived) {
        if (deadline != WEFT_TRY && cancelled(t))
            return -ECANCELED;
        if (t->parker.budget <= 0) { /* now, so that arriving and linking are one step */
            weft_task_wake(t);
            return WEFT_PENDING;
        }
        bool past = deadline != WEFT_TRY && deadline != WEFT_NEVER && weft__sys_now() >= deadline;
        if (weft__barrier_arrive(b, deadline != WEFT_TRY && !past, &op->weft__round)) {
            t->parker.budget--;
            return 1;
        }
        if (past || deadline == WEFT_TRY)
            return past ? -ETIMEDOUT : -EAGAIN;
        op->weft__arrived = 1;
    }
    weft_select_case c = weft__case_of_kind(WEFT__CASE_ABANDON, &weft__barrier_case_ops, b,
                                            weft__barrier_lock(b), NULL);
    c.weft__arg = op->weft__round;
    int r = weft_poll_do(t, own, c, deadline);
    if (r == WEFT_PENDING)
        return r;
    op->weft__arrived = 0;
    return r == 0 || weft__barrier_leave(b, op->weft__round) ? r : 0;
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

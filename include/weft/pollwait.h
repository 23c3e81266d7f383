/* SPDX-License-Identifier: MIT
 *
 * weft/pollwait.h -- waiting in poll tasks: everything that weft_select can wait for, from
 * a body that has no stack.
 *
 *     struct echo { int line, item, r; weft_channel *in, *out; weft_poll_op op; };
 *
 *     static int echo(weft_task *self, void *state)
 *     {
 *         struct echo *e = state;
 *         WEFT_POLL_BEGIN(e->line);
 *         for (;;) {
 *             WEFT_POLL_AWAIT(e->line, e->r,
 *                             weft_poll_do(self, &e->op, weft_case_recv(e->in, &e->item),
 * WEFT_NEVER)); if (e->r) break; WEFT_POLL_AWAIT(e->line, e->r, weft_poll_do(self, &e->op,
 * weft_case_send(e->out, &e->item), WEFT_NEVER));
 *         }
 *         WEFT_POLL_END;
 *         return e->r == -EPIPE ? 0 : e->r;
 *     }
 *
 * A call that cannot go on returns WEFT_PENDING, and the body returns that at once; when
 * the task is polled next, it makes the same call again, which then says how the wait went.
 * So a pending call's storage, its cases and what these point to lie in the task's state (or
 * elsewhere outside of the body's frame), and stay as they are until the answer or, when the
 * body does not ask for it, until the task has ended. All-zero storage is ready for use, and
 * after the answer it is again. A task waits for one thing at a time.
 *
 * Which call waits for what:
 *
 *   channel, several ways   weft_poll_do with weft_case_send, _recv, _reserve,
 *                           _channel_readable, _channel_writable; batches: readable or
 *                           writable, then the batch call with WEFT_TRY
 *   event, value, group     weft_case_event, _value, _waitgroup
 *   variable, watch, broadcast   weft_case_variable, _variable_change, _watch, _subscriber
 *   semaphore, locks        weft_case_semaphore, _mutex, _read_lock, _write_lock; given back
 *                           by the plain calls, which never wait
 *   task, time, descriptor  weft_case_task, _time, _fd_readable, _fd_writable
 *   once, condition, barrier, sleep   the calls of their own below
 *   any of several          weft_poll_select with such cases
 *
 * A body that ends in the middle of a wait (returns something else than WEFT_PENDING after
 * a pending call), or that begins another one, leaves it. What it was granted at that very
 * moment and never heard of (a lock, permits, a reserved place, a signal) goes to the next
 * who waits; only an item that was received is lost.
 *
 * The case macros are those of A. Dunkels' protothreads: between BEGIN and END no switch
 * of one's own around an AWAIT, and only one AWAIT a line; local variables do not survive
 * one, what must lies in the state.
 */
#ifndef WEFT_POLLWAIT_H
#define WEFT_POLLWAIT_H

#include "weft/barrier.h"
#include "weft/base.h"
#include "weft/cond.h"
#include "weft/once.h"
#include "weft/select.h"
#include "weft/task.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Storage of one wait; the fields are private. */
typedef struct weft_poll_wait {
    weft_select_case *weft__cases;
    weft_time weft__deadline;
    uint32_t weft__n, weft__state, weft__outcome, weft__spare;
} weft_poll_wait;

/* Storage of one wait with one case. */
typedef struct weft_poll_op {
    weft_poll_wait weft__wait;
    weft_select_case weft__case;
} weft_poll_op;

/* Storage of the calls that have several steps. */
typedef struct weft_poll_cond_op {
    weft_poll_op weft__op;
    int weft__step, weft__result;
} weft_poll_cond_op;

typedef struct weft_poll_barrier_op {
    weft_poll_op weft__op;
    uint32_t weft__arrived, weft__round;
} weft_poll_barrier_op;

/* weft_select for a poll task. The deadline of the first call of a wait counts, so
 * weft_after() may stand in the call.
 *
 * Returns WEFT_PENDING, or what weft_select does; -EPERM (not called in the poll function of
 * `self`); -EBUSY (another wait of this task is pending).
 * Callable from: the task's own poll function. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_poll_select(weft_task *self, weft_poll_wait *wait,
                                            weft_select_case *cases, size_t n, unsigned flags,
                                            weft_time deadline);

/* One operation: a receive, a send, an event, a value, a task, ... as the case says (it is
 * copied when the wait begins).
 *
 * Returns WEFT_PENDING; the case's result (0, -EPIPE, ...); else as weft_poll_select.
 * Callable from: the task's own poll function. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_poll_do(weft_task *self, weft_poll_op *op, weft_select_case c,
                                        weft_time deadline);

/* weft_once_do for a poll task: fn runs within this call, in the poll function, so it may
 * not wait. While another call runs it, this one is pending.
 *
 * Returns WEFT_PENDING; what weft_once_do does; -EINVAL (also op NULL), -EPERM, -EBUSY as
 * weft_poll_select. Callable from: the task's own poll function. */
WEFT_API WEFT_MUST_USE int weft_poll_once(weft_task *self, weft_poll_op *op, weft_once *o,
                                          int (*fn)(void *arg), void *arg, weft_time deadline);

/* weft_cond_wait for a poll task: the mutex, which the task holds, is unlocked while the call
 * is pending, and locked again before the answer, also after a cancellation. A task that
 * leaves the wait does not hold the mutex. Unlike the plain call this one may return 0
 * without a signal: when the task was woken for another reason (weft_task_wake).
 *
 * Returns WEFT_PENDING; what weft_cond_wait does; -EINVAL (also op NULL), -EPERM, -EBUSY as
 * weft_poll_select, and then the mutex is still locked.
 * Callable from: the task's own poll function. */
WEFT_API WEFT_MUST_USE int weft_poll_cond(weft_task *self, weft_poll_cond_op *op, weft_cond *c,
                                          weft_mutex *m, weft_time deadline);

/* weft_barrier_wait for a poll task. A task that leaves the wait has not arrived.
 *
 * Returns WEFT_PENDING; what weft_barrier_wait does; -EINVAL (also op NULL), -EPERM, -EBUSY
 * as weft_poll_select. Callable from: the task's own poll function. */
WEFT_API WEFT_MUST_USE int weft_poll_barrier(weft_task *self, weft_poll_barrier_op *op,
                                             weft_barrier *b, weft_time deadline);

/* Sleeps until `deadline`, which must be the same in each call of one sleep; needs no
 * storage. Returns WEFT_PENDING, 0, -ECANCELED, -EPERM.
 * Callable from: the task's own poll function. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_poll_sleep_until(weft_task *self, weft_time deadline);

/* The body between BEGIN and END goes on where it was; `line` is an int in the state, 0 at
 * first. */
#define WEFT_POLL_BEGIN(line)                                                                      \
    switch (line) {                                                                                \
    case 0:

#define WEFT_POLL_END }

/* r = call, which is made again in each poll until it is not WEFT_PENDING. */
#define WEFT_POLL_AWAIT(line, r, call)                                                             \
    do {                                                                                           \
        (line) = __LINE__;                                                                         \
        WEFT_POLL_FALLTHROUGH;                                                                     \
    case __LINE__:                                                                                 \
        (r) = (call);                                                                              \
        if ((r) == WEFT_PENDING)                                                                   \
            return WEFT_PENDING;                                                                   \
    } while (0)

/* Lets other tasks run, and goes on here. */
#define WEFT_POLL_YIELD(line, self)                                                                \
    do {                                                                                           \
        (line) = __LINE__;                                                                         \
        weft_task_wake(self);                                                                      \
        return WEFT_PENDING;                                                                       \
    case __LINE__:;                                                                                \
    } while (0)

#if defined(__GNUC__) && !defined(__cplusplus)
#define WEFT_POLL_FALLTHROUGH __attribute__((fallthrough))
#else
#define WEFT_POLL_FALLTHROUGH ((void)0)
#endif

#ifdef __cplusplus
}
#endif
#endif

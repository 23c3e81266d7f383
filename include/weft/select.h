/* SPDX-License-Identifier: MIT
 *
 * weft/select.h -- wait for the first of several things.
 *
 *     weft_select_case cases[] = {
 *         weft_case_recv(requests, &request),
 *         weft_case_send(replies, &reply),
 *         weft_case_event(&stop),
 *     };
 *     cases[1].off = nothing_to_send;
 *     switch (weft_select(cases, 3, 0, weft_after(WEFT_SEC))) {
 *     case 0: ... cases[0].result says 0 or -EPIPE ...
 *     case -ETIMEDOUT: ...
 *     }
 *
 * Exactly one case is done, or none: when an index is returned, that case has been
 * done and the others have left no trace; on an error none has been done (a send
 * case's item is still the caller's, a receive case has taken nothing). Cancellation
 * and deadline are decided in the same one step.
 *
 * Several cases may name the same object, also a send and a receive on one channel
 * (they do not serve each other). A closed channel makes its cases ready: result is
 * -EPIPE as from the plain call.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_SELECT_H
#define WEFT_SELECT_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_channel;
struct weft_event;
struct weft_waitgroup;
struct weft_value;
struct weft_semaphore;
struct weft_rwlock;
struct weft_mutex;

/* One case, made by a weft_case_... function; `off` and `result` are the caller's,
 * the rest is private and the storage of the wait, so nothing is allocated. A case
 * may be used for any number of selects, one after the other. */
typedef struct weft_select_case {
    bool off;   /* true: this case takes no part */
    int result; /* of the case that was done: what the plain call would have returned */
    uint32_t weft__order, weft__kind;
    const void *weft__ops;
    void *weft__object, *weft__lock, *weft__payload;
    uint64_t weft__arg;
    uint64_t weft__node[6];
} weft_select_case;

/* The most cases of one select. */
#define WEFT_SELECT_MAX 65535

/* The most descriptor cases (weft/io.h) of one select on a plain thread. */
#define WEFT_SELECT_FDS 64

/* Flag: when several cases are ready, take the first in the array. Without it the
 * search starts at a random case, so that none is starved. */
#define WEFT_SELECT_ORDERED 1u

/* Waits until one of the cases can be done or `deadline` comes, and does it.
 *
 * cases     n of them; may be NULL when n is 0
 * deadline  absolute ns; WEFT_TRY: the "default case": do what is ready, never
 *           wait; WEFT_NEVER: no limit
 *
 * Returns  >= 0        the index of the case that was done; see its `result`
 *          -EAGAIN     none was ready, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  none became ready until the deadline
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     n is above WEFT_SELECT_MAX, cases is NULL, a flag is unknown,
 *                      more than WEFT_SELECT_FDS descriptor cases on a plain thread,
 *                      a case that is on was made from a NULL object (or a NULL item
 *                      of a size), or nothing is on and the deadline is WEFT_NEVER:
 *                      it could never return
 * A ready case wins over a deadline that has passed. Without cases that are on it
 * sleeps until the deadline.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_select(weft_select_case *cases, size_t n, unsigned flags,
                                       weft_time deadline);

/* Cases on a channel: as weft_channel_send and weft_channel_recv. The item must stay
 * valid until the select returns; result is 0 or -EPIPE.
 * Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_send(struct weft_channel *ch, const void *item);
WEFT_API weft_select_case weft_case_recv(struct weft_channel *ch, void *item);

/* The event is set; the value is set (read it with weft_value_wait and WEFT_TRY); the
 * wait group is at zero; n permits are acquired, as by weft_semaphore_acquire. The
 * result is 0.
 * Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_event(struct weft_event *e);
WEFT_API weft_select_case weft_case_value(struct weft_value *v);
WEFT_API weft_select_case weft_case_waitgroup(struct weft_waitgroup *wg);
WEFT_API weft_select_case weft_case_semaphore(struct weft_semaphore *s, unsigned n);

/* The mutex is locked, the read-write lock is locked for reading or for writing, as by
 * weft_mutex_lock, weft_rwlock_read and weft_rwlock_write: whose select returns the index
 * holds it, and gives it back by the plain call. A select that waits for a mutex is handed
 * it by the unlock, in its turn, before tasks that ask later. The result is 0.
 * Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_mutex(struct weft_mutex *m);
WEFT_API weft_select_case weft_case_read_lock(struct weft_rwlock *rw);
WEFT_API weft_select_case weft_case_write_lock(struct weft_rwlock *rw);

/* Cases on a channel that move no item: a place is reserved, as by weft_channel_reserve
 * (result 0 or -EPIPE); a receive, or a send, would not have to wait, as by
 * weft_channel_wait_ready (result 0; a channel of capacity 0 is refused as NULL is).
 * Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_reserve(struct weft_channel *ch);
WEFT_API weft_select_case weft_case_channel_readable(struct weft_channel *ch);
WEFT_API weft_select_case weft_case_channel_writable(struct weft_channel *ch);

/* A time has come (absolute ns; WEFT_NEVER: never, a time in the past: ready at
 * once). The result is 0. Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_time(weft_time when);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/host.h -- the loop of a host that has waiters of its own: a language runtime with
 * its own fibers, a library that has to be pumped.
 *
 * A weft_host drives a host-driven runtime (weft/driven.h) together with poll sources:
 * functions that look whether something the host waits for has happened, and move it on.
 * Between turns it waits where new work arrives: a task spawned from any thread, a wake,
 * a timer or a socket of the runtime ends the wait at once. Only while a source has
 * something that nobody will announce does it come back to look, as often as the pacer
 * says (weft/pacer.h), and never later than a deadline that is known.
 *
 *     static int look(void *arg, weft_time *due) { ... return WEFT_POLL_WAITING; }
 *
 *     weft_poll_source source = {.look = look, .arg = scheduler};
 *     weft_host_new(runtime, NULL, &host);
 *     weft_host_add(host, &source);
 *     weft_host_run(host, WEFT_NEVER);         // until weft_host_stop
 *
 * A host that can notify never polls: its source answers WEFT_POLL_IDLE, and who makes
 * something ready calls weft_host_wake.
 *
 * Nothing is taken off a queue in the wait, so nothing can be dropped there: what arrives
 * during it is still in the runtime when weft_host_run returns because of a stop in the
 * same moment; that one turn is still made, and weft_runtime_free drives what is left.
 *
 * Concurrency: weft_host_wake and weft_host_stop come from any thread at any time before
 * weft_host_free. All else belongs to one thread at a time, the driving one.
 */
#ifndef WEFT_HOST_H
#define WEFT_HOST_H

#include "weft/base.h"
#include "weft/driven.h"
#include "weft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a look found. A negative answer takes the source out (one that has removed itself
 * must not give it). */
enum {
    WEFT_POLL_WAITING = 0,  /* nothing moved, and something is waited for: look again, paced */
    WEFT_POLL_PROGRESS = 1, /* something became ready and was moved on: look again at once. Not
                             * for a waiter that was resumed only to be cancelled */
    WEFT_POLL_IDLE = 2,     /* nothing to look for before a wake, a turn that ran something,
                             * or the due time */
};

/* Looks and moves on what is ready, without blocking. Called on the driving thread, in
 * every turn, after the runtime's ready tasks have run.
 *
 * ret_due  WEFT_NEVER when called; the source stores the earliest time (absolute, ns) at
 *          which it knows itself to have something to do, such as a timer of its own. A time
 *          at which it then makes no progress is kept no longer */
typedef int (*weft_look_fn)(void *arg, weft_time *ret_due);

/* Embed it anywhere; stays the caller's and must stay valid until it is removed. */
typedef struct weft_poll_source {
    weft_look_fn look;
    void *arg;
    struct weft_poll_source *weft__next;
    struct weft_host *weft__host;
} weft_poll_source;

typedef struct weft_host weft_host;

/* All zero is a good default. */
typedef struct weft_host_options {
    weft_time floor, ceiling;  /* of the pacer, ns; 0: 50 us, 10 ms */
    weft_driven_budget budget; /* of the runtime's part of a turn; zero: no bound */
} weft_host_options;

/* Running totals. */
typedef struct weft_host_stats {
    uint64_t turns;    /* turns made */
    uint64_t progress; /* of them, those that ran a task or in which a source made progress */
    uint64_t waits;    /* times the thread slept */
    uint64_t paced;    /* of them, those that the pacer limited: looks without a cause */
} weft_host_stats;

/* Creates a host around a host-driven runtime, which stays the caller's and must outlive
 * it. Two descriptors are opened: the runtime's (weft_driven_fd), and one for the wakes.
 *
 * Returns 0; -EINVAL (rt is NULL or not host-driven, ret is NULL, bad options); -ENOMEM;
 * -EMFILE, -ENFILE; -ENXIO (inherited through fork). *ret is untouched on error.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_host_new(weft_runtime *rt, const weft_host_options *options,
                                         weft_host **ret);

/* Takes all sources out and frees the host; not the runtime. NULL is fine. Returns NULL.
 * Callable from: the driving thread, outside of a turn. */
WEFT_API weft_host *weft_host_free(weft_host *host);

/* Adds a source, which is looked at from the next turn on.
 * Returns 0; -EINVAL (NULL, no function); -EALREADY (it is in a host).
 * Callable from: the driving thread, a source's function. */
WEFT_API int weft_host_add(weft_host *host, weft_poll_source *source);

/* Takes a source out; it may then be freed, also in its own function.
 * Returns 0; -EINVAL (NULL); -ENOENT (it is not in this host).
 * Callable from: the driving thread, a source's function. */
WEFT_API int weft_host_remove(weft_host *host, weft_poll_source *source);

/* One turn: runs what is ready in the runtime, then lets every source look.
 *
 * Returns 1 when something moved, 0 when nothing did; -EINVAL (NULL); -EBUSY, -EDEADLK
 * (called within a turn, or another thread turns the runtime); -ENXIO.
 * Callable from: the driving thread. Blocks as long as the tasks and sources run. */
WEFT_API int weft_host_turn(weft_host *host);

/* Waits until the next turn is due: at once after a turn with progress, else until a
 * task, timer, socket or wake, a source's due time, the pacer's time if a source is
 * waiting, or the deadline (absolute, ns; WEFT_TRY: does not wait).
 *
 * Returns 0 when a turn is due or may be; -ETIMEDOUT at the deadline; -EINVAL (NULL);
 * -EBUSY (called within a turn); -ENXIO.
 * Callable from: the driving thread. Blocks the thread. */
WEFT_API int weft_host_wait(weft_host *host, weft_time deadline);

/* Turns and waits until a stop or the deadline (absolute, ns; WEFT_TRY: one turn).
 *
 * Returns 0 after weft_host_stop (one turn has been made since, and the stop is used
 * up); -ETIMEDOUT; -EINVAL, -EBUSY, -EDEADLK, -ENXIO as weft_host_turn.
 * Callable from: the driving thread. Blocks the thread. */
WEFT_API int weft_host_run(weft_host *host, weft_time deadline);

/* Ends the wait in progress, or else the next one. Returns 0 or -EINVAL (NULL).
 * Callable from: any thread, any task, a signal handler. Never blocks. */
WEFT_API int weft_host_wake(weft_host *host);

/* Makes the run in progress, or else the next one, return. Returns 0 or -EINVAL (NULL).
 * Callable from: any thread, any task, a signal handler. Never blocks. */
WEFT_API int weft_host_stop(weft_host *host);

/* Fills *ret_stats. Returns 0 or -EINVAL (NULL). Callable from: any thread, any task. */
WEFT_API int weft_host_get_stats(const weft_host *host, weft_host_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif

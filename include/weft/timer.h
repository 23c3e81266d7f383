/* SPDX-License-Identifier: MIT
 *
 * weft/timer.h -- timers for a program that has its own event loop. No runtime, no
 * thread, no global state: the loop drives the service, any thread may use timers.
 *
 * Two objects belong together:
 *
 *   weft_timer_service   is owned and driven by one reactor (an event loop): turn,
 *                        prepare_wait, close. One thread at a time.
 *   weft_timer_context   is what everybody else holds: start timers, read the clock.
 *                        Any thread.
 *
 * A loop is
 *
 *     for (;;) {
 *         weft_time until;
 *         int plan = weft_timer_service_prepare_wait(service, NULL, &until);
 *         ... wait for I/O and for weft_timer_service_fd(): not at all if plan is
 *             WEFT_WAIT_NOW, until `until`, or without limit ...
 *         weft_timer_service_turn(service, weft_now(), NULL);
 *     }
 *
 * A timer is a struct that the caller provides, usually inside its own object; there
 * is no allocation per timer. It ends in one of three ways: it expires (never before
 * its deadline, at most one tick after it if the loop is punctual), it is cancelled,
 * or the service closes, which every pending timer sees as -ESHUTDOWN.
 *
 * The clock is CLOCK_MONOTONIC unless another is injected; it stands still while the
 * machine is suspended, and so do the timers. A relative delay counts from the clock
 * at the call, not from the loop's last turn.
 */
#ifndef WEFT_TIMER_H
#define WEFT_TIMER_H

#include <weft/base.h>
#include <weft/waker.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_timer_service weft_timer_service;
typedef struct weft_timer_context weft_timer_context;

/* ---- Service: the reactor's side ------------------------------------------------ */

typedef struct weft_timer_options {
    /* Resolution, ns; 0: 1 ms. At least 1,000. Deadlines are rounded up to it. */
    weft_time tick;
    /* The clock, ns, never falling by itself (a step back is treated as a stop);
     * callable from any thread; NULL: weft_now. */
    weft_time (*clock)(void *arg);
    void *clock_arg;
    /* Pending timers at most; 0: no limit. A limit costs two atomic additions per
     * timer on a line that all threads share. */
    size_t max_pending;
    /* Independent parts, so that threads on different processors do not meet in one
     * lock; a power of two up to 64; 0: as many as processors, at most 8. About
     * 6.5 KiB each. */
    unsigned shards;
    /* Only the reactor's thread touches the service and its timers: no locks, one shard.
     * Then no other thread may call anything here, weft_timer_context_now, _ref and _unref
     * apart. */
    bool local;
} weft_timer_options;

/* Creates a service whose time begins at `origin` (timers may have earlier deadlines;
 * usually the clock's present value).
 *
 * options      NULL for the defaults
 * ret_service  receives the service; the caller owns it; untouched on error
 *
 * Returns 0; -EINVAL (ret_service NULL, tick under 1,000 ns or negative, shards no power
 * of two or over 64, or more than one with local); -ENOMEM.
 * Callable from: any thread. */
WEFT_API int weft_timer_service_create(weft_time origin, const weft_timer_options *options,
                                       weft_timer_service **ret_service);

/* The task side of the service. The pointer is valid as long as the service; who needs
 * it longer takes a reference.
 * Callable from: any thread. NULL gives NULL. */
WEFT_API weft_timer_context *weft_timer_service_context(weft_timer_service *service);

/* How much one turn may do; 0 in a member: no limit. */
typedef struct weft_turn_budget {
    size_t immediate; /* timers that were due already when they were armed */
    size_t entries;   /* timers that waited in the wheel */
} weft_turn_budget;

/* Delivers what is due at `now`: first, alternating in small groups, timers that were
 * armed with a deadline already past and timers whose deadline has come; the latter in
 * the order of their ticks. Timers that callbacks arm as immediately due wait for the
 * next turn, so a turn always ends. With a budget, a turn stops when either limit stops
 * it; prepare_wait then answers WEFT_WAIT_NOW. A `now` before an earlier one counts as
 * that.
 *
 * budget  NULL: no limit
 *
 * Returns the number of timers delivered, at least 0; -EINVAL (service NULL); -EBUSY
 * (called from a callback, or while another thread drives); -ESHUTDOWN (closed).
 * Callable from: the reactor's thread. Callbacks and wakers run on it, no lock held. */
WEFT_API int64_t weft_timer_service_turn(weft_timer_service *service, weft_time now,
                                         const weft_turn_budget *budget);

/* What the reactor may do until it has to turn again. */
enum {
    WEFT_WAIT_NOW = 0,   /* do not wait: something is due */
    WEFT_WAIT_UNTIL = 1, /* wait until a given time at most */
    WEFT_WAIT_FOREVER = 2,
};

/* Says how long the reactor may wait and, in the same step, arms the wake that ends the
 * wait early: `waker` is called once if a timer is armed that is due before the plan.
 * The plan holds until the next turn or prepare_wait; each wake needs a new plan.
 *
 * waker      NULL: the descriptor of weft_timer_service_fd, if one was asked for; else
 *            no wake (a loop whose timers are only touched by its own thread).
 *            `wake` runs on the thread that armed the timer; it may still be running
 *            when the reactor already turns again, so `arg` must stay valid as long as
 *            other threads arm timers
 * ret_until  receives the absolute time for WEFT_WAIT_UNTIL (WEFT_NEVER for
 *            WEFT_WAIT_FOREVER, WEFT_TRY for WEFT_WAIT_NOW); may be NULL
 *
 * Returns one of the three above; -EINVAL (service NULL, waker without function);
 * -EBUSY (called from a callback); -ESHUTDOWN (closed).
 * Callable from: the reactor's thread. Never blocks. */
WEFT_API int weft_timer_service_prepare_wait(weft_timer_service *service, const weft_waker *waker,
                                             weft_time *ret_until);

/* A descriptor that becomes readable when the wake comes and stays so until the next
 * turn or prepare_wait; made at the first call. It belongs to the service: do not read
 * or close it.
 * Returns the descriptor; -EINVAL (NULL); -EMFILE, -ENFILE, -ENOMEM (as eventfd).
 * Callable from: the reactor's thread. */
WEFT_API int weft_timer_service_fd(weft_timer_service *service);

/* The same as a poll() or epoll_wait() timeout in ms: 0 for WEFT_WAIT_NOW, -1 for
 * WEFT_WAIT_FOREVER, else the distance from `now` to `until`, rounded up (so that a loop
 * does not wake a moment early and spin) and at most INT_MAX.
 * Callable from: any thread. */
WEFT_API int weft_wait_milliseconds(int plan, weft_time now, weft_time until);

/* True while no timer is pending but weak ones: a loop that runs until idle may end.
 * A snapshot, when other threads arm timers. True for NULL.
 * Callable from: any thread. */
WEFT_API bool weft_timer_service_idle(weft_timer_service *service);

/* Pending timers, weak ones included; a snapshot. 0 for NULL.
 * Callable from: any thread. */
WEFT_API size_t weft_timer_service_pending(weft_timer_service *service);

/* Ends admission, then ends every pending timer with -ESHUTDOWN: callbacks, wakers and
 * waiters run as for expiry. Calls that come later get -ESHUTDOWN.
 * Returns the number of timers ended; -EINVAL (NULL); -EBUSY (called from a callback, or
 * while another thread drives); -EALREADY (closed before).
 * Callable from: the reactor's thread. */
WEFT_API int64_t weft_timer_service_close(weft_timer_service *service);

/* Closes if that has not been done, and gives the service up. Contexts that others hold
 * a reference to stay valid and answer -ESHUTDOWN. Accepts NULL. Must not be called from
 * a callback (checked: aborts).
 * Callable from: the reactor's thread. */
WEFT_API void weft_timer_service_destroy(weft_timer_service *service);

/* ---- Context: everybody's side -------------------------------------------------- */

/* References; both accept NULL, unref returns NULL.
 * Callable from: any thread. */
WEFT_API weft_timer_context *weft_timer_context_ref(weft_timer_context *context);
WEFT_API weft_timer_context *weft_timer_context_unref(weft_timer_context *context);

/* The service's clock, ns; its resolution (tick), ns. 0 for NULL.
 * Callable from: any thread. */
WEFT_API weft_time weft_timer_context_now(const weft_timer_context *context);
WEFT_API weft_time weft_timer_context_tick(const weft_timer_context *context);

/* ---- Timers ---------------------------------------------------------------------- */

/* A timer. Caller-provided, contents private; must not move, and its memory must not be
 * reused, while it is pending or its callback runs (weft_timer_cancel_wait ends both). */
typedef struct weft_timer {
    uint64_t weft__private[14];
} weft_timer;

/* Runs on the reactor's thread during turn or close, no lock held. `result`: 0 expired,
 * -ESHUTDOWN the service closes. May arm, cancel, re-initialise or free any timer, its
 * own (one-shot, or a cancelled interval) included; must not block. */
typedef void (*weft_timer_fn)(weft_timer *timer, void *arg, int result);

enum {
    WEFT_TIMER_WEAK = 1, /* does not keep a loop from being idle */
};

/* Prepares a timer; it is not pending yet. Takes no lock and no reference: the context
 * must outlive the timer's use.
 *
 * fn     called at the end; NULL: the end is seen through weft_timer_poll and _wait
 * flags  0 or WEFT_TIMER_WEAK
 *
 * Returns 0 or -EINVAL (timer or context NULL, unknown flags).
 * Callable from: any thread; not while the timer is in use. */
WEFT_API int weft_timer_init(weft_timer *timer, weft_timer_context *context, weft_timer_fn fn,
                             void *arg, unsigned flags);

/* Starts the timer for one expiry at `deadline`; one that is pending is moved instead
 * (and an interval becomes a one-shot). A deadline in the past, WEFT_TRY included, is due
 * at the next turn; WEFT_NEVER pends until it is cancelled or the service closes.
 *
 * Returns 0 (was not pending: a delivery that has begun will still be seen, and this
 * expiry besides), 1 (was pending: only the new deadline will be delivered);
 * -EINVAL (NULL); -EAGAIN (max_pending); -ESHUTDOWN. On error the timer is as before.
 * Callable from: any thread, also in callbacks; a timer that is polled: by its task. */
WEFT_API int weft_timer_arm(weft_timer *timer, weft_time deadline);

/* weft_timer_arm at the service's clock plus `delay` ns (under 0: 0). Errors as there.
 * Callable from: as weft_timer_arm. */
WEFT_API int weft_timer_arm_after(weft_timer *timer, weft_time delay);

/* What an interval does when an expiry is delivered late: */
enum {
    WEFT_INTERVAL_BURST = 0, /* catch up: every tick of the schedule is delivered */
    WEFT_INTERVAL_DELAY = 1, /* start a new schedule one period after the delivery */
    WEFT_INTERVAL_SKIP = 2,  /* leave out what was missed, keep the schedule */
};

/* Starts the timer as an interval: first at `first` (WEFT_TRY: now), then every `period` ns. With a
 * callback the next expiry is armed after the callback has returned, unless it cancelled
 * or re-armed the timer; without one, by the poll or wait that takes the expiry. There
 * is never more than one expiry outstanding.
 *
 * Returns as weft_timer_arm; -EINVAL also for a period <= 0 or an unknown policy.
 * Callable from: as weft_timer_arm. */
WEFT_API int weft_timer_arm_every(weft_timer *timer, weft_time first, weft_time period, int policy);

/* Takes the timer back.
 *
 * Returns 1: it was pending, and no delivery will happen; 0: too late or not pending (a
 * delivery that has begun happens, exactly once; an interval does not repeat after it);
 * -EINVAL (NULL). A callback that cancels another timer that is due in the same turn
 * gets 1: it is not delivered.
 * A waiter or poller of the timer is woken and sees -ECANCELED.
 * Callable from: any thread, also in callbacks. Never blocks. */
WEFT_API int weft_timer_cancel(weft_timer *timer);

/* weft_timer_cancel, and returns only when no callback or waker of this timer is running
 * or still to run; its memory may then be reused. A cancellation of the calling task
 * does not end the wait.
 *
 * deadline  for the wait, on weft_now's clock
 *
 * Returns 1 or 0 as weft_timer_cancel; -ETIMEDOUT, -EAGAIN (WEFT_TRY): cancelled, but the
 * callback still runs; -EDEADLK: called inside this timer's own callback; -EINVAL.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_timer_cancel_wait(weft_timer *timer, weft_time deadline);

/* The poll style: has the timer ended? If not, `waker` is called once when it does; it
 * replaces the one of an earlier poll, and polling again with the same one costs next to
 * nothing. One task polls a timer, and arms it.
 *
 * waker  NULL: only look. `arg` must stay valid until the timer was seen to have ended
 *        and, if other threads drive or cancel, weft_timer_cancel_wait returned
 *
 * Returns 0 (expired; an interval is armed again by this); -EAGAIN (pending); -ECANCELED;
 * -ESHUTDOWN; -EINVAL (NULL, never armed, has a callback, waker without function).
 * Callable from: any thread, any task; no two polls at once. Never blocks. */
WEFT_API int weft_timer_poll(weft_timer *timer, const weft_waker *waker);

/* Waits for the end of a timer without callback.
 *
 * deadline  for the wait, on weft_now's clock (usually WEFT_NEVER)
 *
 * Returns 0 (expired; an interval is armed again by this); -ECANCELED (the timer, or the
 * waiting task, was cancelled); -ESHUTDOWN; -ETIMEDOUT, -EAGAIN (WEFT_TRY): still pending;
 * -EINVAL (NULL, never armed, has a callback).
 * Callable from: any thread but the one that has to drive the service, any fiber. Parks. */
WEFT_API int weft_timer_wait(weft_timer *timer, weft_time deadline);

/* Sleeps until `deadline` on the service's clock.
 * Returns 0; -ECANCELED (the calling task was cancelled); -ESHUTDOWN; -EAGAIN
 * (max_pending); -EINVAL (NULL).
 * Callable from: as weft_timer_wait. */
WEFT_API int weft_timer_sleep(weft_timer_context *context, weft_time deadline);

/* True while the timer is pending; false for NULL. A snapshot.
 * Callable from: any thread. */
WEFT_API bool weft_timer_pending(const weft_timer *timer);

#ifdef __cplusplus
}
#endif
#endif

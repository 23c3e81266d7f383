/* SPDX-License-Identifier: MIT
 *
 * weft/driven.h -- a runtime inside a loop that is not weft's.
 *
 * A host-driven runtime has no thread. Whoever owns the loop calls weft_driven_turn to
 * run what is ready, then asks weft_driven_plan when to come back, or polls the one
 * descriptor of weft_driven_fd, which is readable whenever a turn has something to do:
 * a task made ready by any thread, a timer that is due, a socket.
 *
 *     for (;;) {
 *         weft_driven_turn(rt, &budget);
 *         if (done) // looked at after the turn, which may have set it
 *             break;
 *         int plan = weft_driven_plan(rt, NULL, &until);
 *         poll(fds, n, weft_wait_milliseconds(plan, weft_now(), until));
 *     }
 *
 * with weft_driven_fd(rt) among fds (weft_wait_milliseconds is in weft/timer.h).
 *
 * Concurrency: spawn, wake and cancel come from any thread. turn, plan, shutdown and
 * free belong to one thread at a time, which need not always be the same; a turn while
 * another thread is in one answers -EBUSY. shutdown and free drive the last turns
 * themselves. The driving thread must not wait for a task of this runtime in any other
 * way (weft_task_join with a deadline, a channel): nobody would run it meanwhile.
 */
#ifndef WEFT_DRIVEN_H
#define WEFT_DRIVEN_H

#include <weft/base.h>
#include <weft/runtime.h>
#include <weft/waker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a runtime that only weft_driven_turn drives. options->workers is ignored. It
 * ends with weft_runtime_free, which drives the last turns itself.
 *
 * Returns 0; -EINVAL (ret is NULL, bad options); -ENOMEM.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_driven_new(const weft_runtime_options *options, weft_runtime **ret);

/* Bounds of one turn; zero is no bound. A task that does not give way is not cut off:
 * the bounds hold between tasks. */
typedef struct weft_driven_budget {
    uint32_t tasks; /* how many times a task is given the thread */
    weft_time time; /* ns */
} weft_driven_budget;

/* Serves due timers and ready descriptors and runs ready tasks on the calling thread
 * until none is left or the budget is spent. NULL: no bounds.
 *
 * Returns how many times a task was run (0: nothing was ready); -EINVAL (NULL, not
 * host-driven, a negative time); -EDEADLK (from a task of this runtime); -EBUSY
 * (another thread is in a turn); -ENXIO (inherited through fork).
 * Callable from: any thread, tasks of other runtimes (whose worker it holds). */
WEFT_API int weft_driven_turn(weft_runtime *rt, const weft_driven_budget *budget);

enum {
    WEFT_PLAN_NOW = 0,   /* call turn again; nothing was armed */
    WEFT_PLAN_UNTIL = 1, /* nothing to do until *ret_until or a wake */
    WEFT_PLAN_NEVER = 2, /* nothing to do until a wake */
}; /* numbered as the timer service's, so weft_wait_milliseconds takes either */

/* When the next turn is due, and in the same step the wake: unless the answer is NOW,
 * `waker` is called once, from any thread, as soon as something becomes ready before
 * that time. The next turn disarms it. Sockets are not covered by the waker, only by
 * the descriptor: a host whose tasks use sockets polls weft_driven_fd.
 *
 * waker      copied; NULL: none (the descriptor alone)
 * ret_until  absolute ns, set with UNTIL, else WEFT_NEVER; NULL if unwanted
 *
 * Returns one of the three; -EINVAL (rt NULL, not host-driven, a waker without function); -EBUSY
 * (in a turn); -ENXIO. Callable from: any thread outside of this runtime's tasks. */
WEFT_API int weft_driven_plan(weft_runtime *rt, const weft_waker *waker, weft_time *ret_until);

/* The descriptor, made on first request and closed by weft_runtime_free: readable
 * (POLLIN) whenever a turn has something to do, from the last plan on. Never read it;
 * a turn clears it.
 *
 * Returns the descriptor; -EINVAL (NULL, not host-driven); -EMFILE, -ENFILE, -ENOMEM
 * from the system; -ENXIO. Callable from: the driving thread. */
WEFT_API int weft_driven_fd(weft_runtime *rt);

#ifdef __cplusplus
}
#endif
#endif

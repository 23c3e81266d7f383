/* SPDX-License-Identifier: MIT
 *
 * weft/stall.h -- what goes wrong in silence: tasks that keep a worker to themselves, and
 * tasks that wait for each other.
 *
 * A task that computes for long or blocks its thread holds up what is pinned there, and one
 * worker less is left for the rest. Whoever wants to know asks now and then, from a thread
 * of the host's or a task, for a runtime has no thread of its own to do it:
 *
 *     weft_stall s[8];
 *     for (;;) {
 *         int n = weft_runtime_stalls(rt, 50 * WEFT_MSEC, s, 8);
 *         for (int i = 0; i < n && i < 8; i++)
 *             if (!s[i].again)
 *                 log_it(s[i].worker, s[i].name, s[i].length);
 *         nap(10 * WEFT_MSEC);
 *     }
 */
#ifndef WEFT_STALL_H
#define WEFT_STALL_H

#include "weft/base.h"
#include "weft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One worker that has been in one task for long. */
typedef struct weft_stall {
    unsigned worker;  /* its number */
    uint64_t task;    /* the task's id */
    const char *name; /* and its name as given to the spawn, "" without one */
    weft_time length; /* for how long, at least, ns */
    bool again;       /* an earlier call has reported this one */
} weft_stall;

/* Which workers have been in one task for at least `threshold`, as far as the calls of
 * this function can tell: each notes how far the workers are, so a stall is seen by the
 * second call that finds it and counts from the first. Ask several times in a threshold.
 * Costs tasks and workers nothing; allocates nothing.
 *
 * threshold    ns, at least 0
 * stalls, max  room for that many; NULL with 0
 *
 * Returns how many there are (more than max: the rest is left out); -EINVAL (rt NULL, a
 * negative threshold, stalls NULL with max); -ENOTSUP (host-driven: the host's own thread
 * is the worker); -ENXIO (inherited through fork).
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_runtime_stalls(weft_runtime *rt, weft_time threshold, weft_stall *stalls,
                                 size_t max);

/* How many tasks are left that can only wait for each other: each waits without a deadline
 * for a lock, a channel, an event, a task or the like, every worker sleeps, and nothing is
 * ready. 0 while anything runs, sleeps until a time, or waits for a descriptor, a job of a
 * blocking pool, a named worker, a resume, or in a select.
 *
 * A plain thread or another runtime may still end such a wait; of those only the caller can
 * know. So the answer is for a caller that has no such thread, or that asks again after a
 * while: what to do (weft_runtime_dump, then to end, or to stay and be looked at) is his
 * choice, nothing happens by itself. Costs tasks and workers nothing; allocates nothing.
 *
 * Returns that number; 0; -EINVAL (NULL); -ENXIO (inherited through fork).
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_runtime_deadlocked(weft_runtime *rt);

#ifdef __cplusplus
}
#endif
#endif

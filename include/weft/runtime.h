/* SPDX-License-Identifier: MIT
 *
 * weft/runtime.h -- runtimes: what runs tasks.
 *
 * A runtime is an object like any other: several live in one process and do not
 * know of each other. Its workers are threads that it starts (weft_runtime_new) or
 * the calling thread for as long as the call lasts (weft_run).
 *
 * Concurrency, "-" may overlap on one runtime, "X" must not:
 *              spawn  shutdown  free
 *   spawn        -       -       X
 *   shutdown     -       -       X
 *   free         X       X       X
 *
 * fork(): a child inherits memory but no threads. In the child every call on an
 * inherited runtime, or on a task of one that has not ended, answers -ENXIO;
 * weft_runtime_free only frees memory (what a task handle still names stays), and new
 * runtimes work. The child of a task that forks is still that task, without a runtime:
 * it may only exec or _exit.
 */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_runtime weft_runtime;
typedef struct weft_pool weft_pool; /* weft/pool.h */

/* The body of a fiber. The result reaches whoever joins the task; by convention 0
 * or a count is success and a negative value (errno) is failure. */
typedef int (*weft_fn)(void *arg);

/* Called on a worker's thread, outside of any task, with no lock held; NULL: not. They
 * must not call anything that blocks on tasks of this runtime. `worker` is the number of
 * its place. */
typedef struct weft_runtime_hooks {
    void (*start)(void *arg, unsigned worker); /* before its first task */
    void (*idle)(void *arg, unsigned worker);  /* each time before it sleeps */
    void (*stop)(void *arg, unsigned worker);  /* after its last task */
    void *arg;
} weft_runtime_hooks;

/* All zero is a good default. */
typedef struct weft_runtime_options {
    const char *name;       /* shown in dumps and, with the worker's number, as the name of its
                             * threads; copied, at most 11 bytes are kept; NULL: "weft" */
    unsigned workers;       /* threads; 0: as many as the affinity mask and the cgroup's CPU quota
                             * allow; at most 1024. weft_run always has one */
    size_t stack_size;      /* usable bytes of a fiber's stack, rounded up to pages; 0: 64 KiB */
    size_t max_tasks;       /* tasks in flight; a spawn past it answers -EAGAIN; 0: 16,777,216 */
    bool census;            /* keep the deepest use of stacks per task name, for
                             * weft_runtime_census; costs a full touch of every stack */
    bool keep_signals;      /* do not install the SIGSEGV/SIGBUS handler that reports a stack
                             * overflow by the fiber's name */
    unsigned max_workers;   /* while all are busy, threads are added up to this many; 0: none */
    weft_time idle_timeout; /* an added thread that idles this long, ns, leaves; 0: 10 s */
    unsigned lent_workers;  /* places for threads that the host lends: weft_runtime_attach */
    bool no_workers;        /* start no thread: only lent ones work */
    weft_pool *pool;        /* what holds ready tasks (weft/pool.h); NULL: the built-in queues. The
                             * caller frees it after the runtime */
    weft_runtime_hooks hooks;
} weft_runtime_options;

/* Creates a runtime with its own worker threads, all signals blocked in them.
 *
 * options  NULL for the defaults
 * ret      set on success only; the caller owns it, weft_runtime_free ends it
 *
 * Returns 0; -EINVAL (ret is NULL, no worker at all or more than 1024, a
 * negative idle_timeout, a stack_size under 16 KiB or over
 * 1 GiB); -ENOMEM; -EAGAIN (no more threads can be started); -EBUSY (another runtime uses
 * the pool), or what else the pool says.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_runtime_new(const weft_runtime_options *options,
                                            weft_runtime **ret);

/* Lends the calling thread: it works for the runtime until the deadline (absolute, ns;
 * WEFT_NEVER: until a shutdown has seen the last task end). A task that is running at the deadline
 * is finished up to where it next gives way.
 *
 * Returns -ETIMEDOUT at the deadline; -ESHUTDOWN when the runtime ends, or is ending
 * already; -EAGAIN (all lent_workers places are taken); -EINVAL (NULL, host-driven);
 * -EDEADLK (the thread already works for a runtime); -ENXIO (inherited through fork).
 * Callable from: any thread outside of a task. */
WEFT_API int weft_runtime_attach(weft_runtime *rt, weft_time deadline);

/* Ends a runtime in order: no more spawns (-ESHUTDOWN), every task is cancelled,
 * then waits until all have ended. Calling it again is harmless and waits again.
 *
 * deadline  absolute, ns; WEFT_TRY does not wait
 *
 * In a host-driven runtime it drives: tasks run on the calling thread, which must be the
 * driving one. A caller that is itself a cancelled task does not wait: it gets the number.
 *
 * Returns the number of tasks still alive, 0 when all have ended; -EINVAL (NULL);
 * -EDEADLK (called from a task of this runtime with a deadline that waits); -EPERM
 * (called from a poll function with a deadline that waits); -ENXIO (inherited through
 * fork).
 * Callable from: any thread, tasks of other runtimes. */
WEFT_API int weft_runtime_shutdown(weft_runtime *rt, weft_time deadline);

/* Shuts down without a limit, joins the threads, frees everything. Task handles that
 * are still held stay valid for weft_task_unref only. NULL is fine. Returns NULL.
 * Callable from: any thread that is not a worker of this runtime; from one it is a
 * programming error that aborts with a message, since a worker cannot join itself. */
WEFT_API weft_runtime *weft_runtime_free(weft_runtime *rt);

/* Runs `fn` as a fiber of a new one-worker runtime (options->workers is ignored) on the calling
 * thread, and all that it spawns, until fn has returned and every other task has ended; then frees
 * the runtime. When fn returns, the tasks that are left are not cancelled: they
 * finish.
 *
 * ret_result  what fn returned; NULL if unwanted; untouched on error
 *
 * Returns 0; -EINVAL (fn is NULL, bad options); -ENOMEM; -EDEADLK (called from a
 * task: it would block its worker).
 * Callable from: any thread outside of a task. */
WEFT_API int weft_run(const weft_runtime_options *options, weft_fn fn, void *arg, int *ret_result);

/* Runs `fn` as a fiber of `rt` and waits until it has ended. A host-driven runtime
 * (weft/driven.h) is driven meanwhile, on the calling thread, which counts as a turn: ask
 * for a plan again afterwards. There `fn` runs at once, before what is ready.
 *
 * rt          NULL: that of the calling task
 * deadline    absolute ns; when it passes, or the caller is a task that is cancelled, `fn`'s
 *             task is cancelled, and the call returns when it has ended: `arg` may lie on
 *             the caller's stack. WEFT_TRY: what can be done without waiting
 * ret_result  what fn returned; NULL if unwanted; untouched on error
 *
 * Returns 0; -ETIMEDOUT, -ECANCELED (fn's task was told to stop and has ended); -EINVAL (fn
 * is NULL, no runtime); -EDEADLK (from a task of the host-driven `rt`); -EBUSY (another
 * thread is in a turn of it); -EPERM (from a poll function); -EAGAIN (the cap on tasks),
 * -ENOMEM, -ESHUTDOWN, -ENXIO as weft_spawn.
 * Callable from: any thread, any fiber; one that is a task of another runtime holds its
 * worker while it drives. */
WEFT_API int weft_block_on(weft_runtime *rt, weft_fn fn, void *arg, weft_time deadline,
                           int *ret_result);

/* The runtime of the calling task, NULL outside of one.
 * Callable from: any thread, any task. */
WEFT_API weft_runtime *weft_runtime_current(void);

/* How many workers the runtime has at this moment. Callable from: any thread, any task. */
WEFT_API unsigned weft_runtime_workers(const weft_runtime *rt);

/* Running totals since the runtime's start; they never fall. At rest
 * spawned == finished + alive. Read without stopping anything, so figures taken
 * under load may be apart by what happened meanwhile. */
typedef struct weft_runtime_stats {
    uint64_t spawned, finished, failed, cancelled; /* tasks; failed: a negative result;
                                                    * cancelled: ended with cancellation asked */
    uint64_t rejected;                             /* spawns refused: cap, shutdown */
    uint64_t alive;                                /* tasks now */
    uint64_t switches;                             /* times a task was given a worker */
    uint64_t steals, parks, wakes;                 /* workers: tasks stolen, sleeps, wake calls */
    uint64_t timers_armed, timers_fired;
    uint64_t stacks, stacks_free; /* stacks that exist, and those of them in the pool */
} weft_runtime_stats;

/* Fills *ret. Returns 0, -EINVAL or -ENXIO (inherited through fork). Allocates nothing.
 * Callable from: any thread, any task. */
WEFT_API int weft_runtime_get_stats(const weft_runtime *rt, weft_runtime_stats *ret);

/* One name that fibers were spawned with. */
typedef struct weft_census_entry {
    const char *name; /* as given to the spawn; NULL: without one */
    size_t deepest;   /* bytes of stack used at the deepest point by any fiber that ended */
    uint64_t fibers;  /* that ended */
} weft_census_entry;

/* How deep fibers used their stacks, by name, in a runtime made with `census`.
 *
 * entries, max  room for that many
 *
 * Returns how many names there are, at most 256 (more than max: the rest is left out; 0
 * without a census); -EINVAL. Allocates nothing. Callable from: any thread, any task. */
WEFT_API int weft_runtime_census(const weft_runtime *rt, weft_census_entry *entries, size_t max);

/* Writes a table of the runtime's workers and tasks, one a line: name, state, what it
 * waits for, the object, how long. Returns 0, -EINVAL, -ENXIO (inherited through fork)
 * or a write error.
 * Callable from: any thread, any task. */
WEFT_API int weft_runtime_dump(weft_runtime *rt, int fd);

/* Gives the memory of pooled stacks beyond `keep` bytes back to the system. Returns
 * 0, -EINVAL or -ENXIO (inherited through fork). Callable from: any thread, any task. */
WEFT_API int weft_runtime_trim(weft_runtime *rt, size_t keep);

#ifdef __cplusplus
}
#endif
#endif

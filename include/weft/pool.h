/* SPDX-License-Identifier: MIT
 *
 * weft/pool.h -- what holds a runtime's ready tasks, when the built-in queues are not
 * what is wanted.
 *
 * A pool is an object with a table of functions. Three are shipped, and a program may
 * bring its own. It is given to a runtime in weft_runtime_options; without one a runtime
 * has its built-in queues, which suit mixed work. docs/pools.md compares them.
 *
 * In front of the pool stay: the one task that a task just made ready and that runs next
 * (it goes into the pool when the next such one comes), pinned tasks, tasks of high
 * priority. A task is in the pool from its push to the pop or steal that returns it.
 *
 * A thread takes tasks only as the worker that it is: the thread is bound to its pool and
 * number when it starts to work, and a pop, a steal, or a push as some worker, by any
 * other thread or for any other pool ends the process with a message, in every build.
 *
 * Concurrency on one pool, "-" may overlap, "X" must not:
 *                        push  pop, steal  length, set_weights  free
 *   push                  -        -               -             X
 *   pop, steal            -        -               -             X
 *   length, set_weights   -        -               -             X
 *   free                  X        X               X             X
 */
#ifndef WEFT_POOL_H
#define WEFT_POOL_H

#include "weft/base.h"
#include "weft/runtime.h"
#include "weft/task.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As a worker's number in push: from a thread that is no worker of this runtime. */
#define WEFT_POOL_OUTSIDE ((unsigned)-1)

/* Flags of push. */
enum {
    WEFT_POOL_BEHIND = 1, /* the task has given way: others that wait go first */
};

/* The functions of a pool. `worker` is the caller's number, from 0, below what open was
 * told. All are called without a lock held. None may block for long, call back into the
 * runtime, or touch a task but for its link (weft_pool_next).
 *
 * What the runtime relies on:
 * - A task that was pushed is returned once, by a pop or a steal.
 * - Any worker can get at any task: while length() is not 0 and nobody else takes, each
 *   worker gets one from pop, or else from steal. A worker may leave at any time and
 *   leave its tasks to the others.
 * - length() sees what an earlier push published, sequentially consistent: push ends
 *   with a sequentially consistent store, or read-modify-write, which length() loads
 *   sequentially consistent; or both take the same lock. For a worker that goes to
 *   sleep says so and then asks for the length, and who pushes looks for sleepers
 *   afterwards: with less, each may miss the other and the task waits for ever.
 */
typedef struct weft_pool_ops {
    /* A runtime begins to use the pool, with this many workers. 0, or a negative errno,
     * which is then the answer of weft_runtime_new. May be NULL. */
    int (*open)(weft_pool *pool, unsigned workers);
    /* The runtime has ended, and the pool is empty; or in the child of a fork, the runtime
     * is freed there, and the pool forgets what it holds without looking at it or taking
     * a lock. May be NULL. */
    void (*close)(weft_pool *pool);

    /* `worker` may be WEFT_POOL_OUTSIDE. 0, or -EAGAIN: full, and the runtime keeps the
     * task in a queue of its own. */
    int (*push)(weft_pool *pool, unsigned worker, weft_task *task, unsigned flags);
    /* The worker's next task; NULL: none of its own. `now` is the time as of the worker's
     * last look at the clock, at most about a millisecond or one task's run ago, ns. */
    weft_task *(*pop)(weft_pool *pool, unsigned worker, weft_time now);
    /* A task that would else be another worker's; it may give the caller more of them. */
    weft_task *(*steal)(weft_pool *pool, unsigned worker);
    /* How many tasks wait. Called by any thread. */
    size_t (*length)(weft_pool *pool);

    /* weft_pool_free. May be NULL. */
    void (*free)(weft_pool *pool);
} weft_pool_ops;

/* A program's own pool begins with this. */
struct weft_pool {
    const weft_pool_ops *ops;
};

/* The single queue: one queue for all, first in first out. Strictly fair, and a lock for
 * all to share.
 *
 * ret  set on success only; the caller owns it until weft_pool_free
 *
 * Returns 0, -EINVAL (NULL), -ENOMEM.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_pool_new_single(weft_pool **ret);

/* The computational pool: a stack per worker, the newest task first, for work that splits
 * into smaller work; others steal the oldest. What comes from outside or has given way
 * goes into a shared queue, first in first out, which is looked at when the own stack is
 * empty, and before it every 61st time. Between these, a task at the bottom of a stack
 * waits as long as its worker finds newer ones and nobody steals.
 *
 * capacity  tasks in a worker's stack, rounded up to a power of two, the rest goes into
 *           the shared queue; 0: 4096; at most 16,777,216
 *
 * Else as weft_pool_new_single; also -EINVAL for a capacity out of range.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_pool_new_computational(size_t capacity, weft_pool **ret);

/* All zero is a good default. */
typedef struct weft_pool_stealable_options {
    size_t capacity;        /* tasks in a worker's local queue, rounded up to a power of two, the
                             * rest goes into the shared queue; 0: 4096; at most 16,777,216 */
    unsigned local_weight;  /* how often, against each other, the next task is taken from the */
    unsigned shared_weight; /* local queue and from the shared one; 1 to 255; 0: 1 */
    weft_time refresh;      /* ns; 0: 3 s; WEFT_NEVER: the weights stay as given */
} weft_pool_stealable_options;

/* The stealable pool: a local queue per worker, first in first out, for what its tasks
 * make ready, and a shared one for what comes from outside. As long as both hold tasks a
 * worker takes from them by weight. Every `refresh` it multiplies the weights by how many
 * tasks came into each since (its local queue; its share of the shared one), so that what
 * gets more gets served more; never beyond 255 to 1. A worker without work steals half of
 * another's local queue.
 *
 * options  NULL for the defaults
 *
 * Else as weft_pool_new_single; also -EINVAL for options out of range.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_pool_new_stealable(const weft_pool_stealable_options *options,
                                                   weft_pool **ret);

/* Sets the weights of a stealable pool; each worker follows at its next pop, and counts
 * anew what comes. Returns 0; -EINVAL (NULL, a weight of 0 or over 255); -ENOTSUP (another
 * kind of pool). Callable from: any thread, any task. */
WEFT_API int weft_pool_set_weights(weft_pool *pool, unsigned local_weight, unsigned shared_weight);

/* How many tasks wait in the pool at this moment; 0 for NULL.
 * Callable from: any thread, any task. */
WEFT_API size_t weft_pool_length(weft_pool *pool);

/* Frees a pool that no runtime uses (any more); one that is in use ends the process. NULL
 * is fine. Returns NULL. Callable from: any thread, any task. */
WEFT_API weft_pool *weft_pool_free(weft_pool *pool);

/* ---- For those who write one ---- */

/* Ends the process unless the calling thread is worker `worker` of this pool. The shipped
 * pools begin pop, steal, and a push that is not from outside, with it.
 * Callable from: any thread, any task. */
WEFT_API void weft_pool_check(const weft_pool *pool, unsigned worker);

/* The link of a task: while a pool holds the task it may keep the address of another there,
 * so that a list of tasks needs no memory. The link's value is undefined when the task is
 * pushed. Callable from: the functions of a pool, for a task that it holds. */
WEFT_API weft_task *weft_pool_next(const weft_task *task);
WEFT_API void weft_pool_set_next(weft_task *task, weft_task *next);

#ifdef __cplusplus
}
#endif
#endif

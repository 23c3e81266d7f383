/* SPDX-License-Identifier: MIT
 *
 * weft/blocking.h -- pools of threads for code that blocks: a library without an
 * asynchronous interface, a long computation, a call into the kernel that cannot wait
 * elsewhere. The calling fiber waits, its worker does not.
 *
 *     weft_blocking_pool_new(&(weft_blocking_options){.name = "db", .threads = 8}, &pool);
 *     ...
 *     int r = weft_blocking(pool, run_query, query, query_free, weft_after(WEFT_SEC), &rows);
 *     if (r == 0)
 *         query_free(query);               // on every error the pool has taken it
 *
 * A pool has at most `threads` threads, started when they are needed, and a queue of
 * bounded length. What is slow should have a pool of its own, so that it holds up nobody
 * else: name look-ups, say, and files.
 *
 * Who owns `arg`: when weft_blocking returns 0, the job has run and arg is the caller's
 * again. On every other return it is the pool's: `drop` is called for it exactly once, by
 * the call itself if the job never started, else on the pool's thread when fn has returned,
 * which may be later than this call. So fn uses nothing but what belongs to arg.
 *
 * With drop NULL, arg is borrowed (it may lie on the caller's stack): then the deadline and a
 * cancellation free the caller only while the job waits to be started; a job that runs
 * is waited for, and its end is what the call returns.
 *
 * A job that calls weft_blocking on its own pool runs the inner job in its place, so a pool
 * cannot be blocked by jobs that wait for each other. (Jobs of two pools that wait for each
 * other, or for tasks that wait for the pool, end by their deadlines only.)
 *
 * Concurrency: every call may overlap with every other on one pool, except that
 * weft_blocking_pool_free comes after all others.
 */
#ifndef WEFT_BLOCKING_H
#define WEFT_BLOCKING_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_blocking_pool weft_blocking_pool; /* opaque */

/* The body of a job, on a thread of the pool. It may block; weft calls in it block that
 * thread. */
typedef int (*weft_blocking_fn)(void *arg);

/* All zero is a good default. */
typedef struct weft_blocking_options {
    const char *name;       /* of the pool and its threads; the first 15 bytes are copied;
                             * NULL: "blocking" */
    unsigned threads;       /* at most; 0: 8; at most 4096 */
    unsigned queue;         /* jobs that may wait for a thread; 0: 1024; at most 1,000,000 */
    weft_time idle_timeout; /* a thread without work leaves after this, ns; 0: 10 s */
    size_t stack_size;      /* of its threads; 0: the system's default */
} weft_blocking_options;

typedef struct weft_blocking_stats {
    unsigned threads, idle; /* threads now, and those of them without work */
    unsigned queued;        /* jobs that wait for a thread */
    unsigned running;       /* jobs that run, also those nobody waits for any more */
    unsigned abandoned;     /* of these, the jobs whose caller has left */
    weft_time oldest;       /* how long the first in the queue has waited, ns; 0: none */
    uint64_t completed;     /* jobs that have run to their end */
    uint64_t expired;       /* jobs taken out of the queue by deadline or cancellation */
    uint64_t rejected;      /* calls that found no place in the queue, or the pool closed */
    weft_time longest_wait; /* the longest that a job has waited for a thread so far, ns */
} weft_blocking_stats;

/* Creates a pool; no thread is started yet.
 *
 * options  NULL: the defaults; not kept
 * ret      set on success only; the caller owns it
 *
 * Returns 0; -EINVAL (ret is NULL, a bound is broken); -ENOMEM.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_blocking_pool_new(const weft_blocking_options *options,
                                                  weft_blocking_pool **ret);

/* Closes the pool: new calls get -ESHUTDOWN, and so do those whose job has not started; it
 * never will. Then waits for the jobs that run. Calling it again is harmless.
 *
 * deadline  absolute, ns; WEFT_TRY does not wait
 *
 * Returns how many jobs still run (0: all have ended); -EINVAL (NULL); -EDEADLK (from a job
 * of this pool, with a deadline that waits); -ECANCELED (and how many is in the stats).
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_blocking_pool_shutdown(weft_blocking_pool *pool, weft_time deadline);

/* Shuts down without a limit, joins the threads and frees. NULL is fine. Returns NULL.
 * Callable from: any thread that is not one of the pool's, any fiber (it holds its worker
 * while the threads end). */
WEFT_API weft_blocking_pool *weft_blocking_pool_free(weft_blocking_pool *pool);

/* Runs fn(arg) on a thread of the pool and waits for its end. Waits for a place in the
 * queue first, if it has none. The deadline covers both.
 *
 * drop        the owner's destructor of arg, see above; NULL: arg is borrowed. It runs on the
 *             calling thread or on one of the pool's
 * deadline    absolute, ns; WEFT_TRY: -EAGAIN, for there is always a wait
 * ret_result  what fn returned; NULL if unwanted; untouched on error
 *
 * Returns  0           the job has run
 *          -ETIMEDOUT  it has not started and never will, or it runs on by itself
 *          -ECANCELED  the same, because the calling task is cancelled
 *          -EAGAIN     WEFT_TRY, or no thread could be started and there is none
 *          -ESHUTDOWN  the pool is closed; it has not run
 *          -ENOMEM     no memory for the job; it has not run
 *          -EPERM      in a poll function, which cannot wait
 *          -EINVAL     pool or fn is NULL
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_blocking(weft_blocking_pool *pool, weft_blocking_fn fn, void *arg,
                                         void (*drop)(void *arg), weft_time deadline,
                                         int *ret_result);

/* Has fn(arg) run on a thread of the pool without waiting for it; `drop` (NULL: none) is
 * called for arg once, when fn has returned, or when the job will not run.
 *
 * deadline  for a place in the queue; WEFT_TRY: -EAGAIN when it is full
 *
 * Returns 0: it is queued (a shutdown may still take it out); an error as weft_blocking
 * (arg has been dropped). From a job of the same pool a full queue answers -EDEADLK
 * instead of waiting for a place, unless WEFT_TRY.
 * Callable from: any thread, any fiber (with WEFT_TRY any task). Parks unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_blocking_post(weft_blocking_pool *pool, weft_blocking_fn fn,
                                              void *arg, void (*drop)(void *arg),
                                              weft_time deadline);

/* The name. NULL: "". Valid while the pool lives. Callable from: any thread, any task. */
WEFT_API const char *weft_blocking_pool_name(const weft_blocking_pool *pool);

/* Fills *ret_stats, at one moment. Returns 0 or -EINVAL (NULL).
 * Callable from: any thread, any task. */
WEFT_API int weft_blocking_pool_get_stats(weft_blocking_pool *pool, weft_blocking_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif

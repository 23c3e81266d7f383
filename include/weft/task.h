/* SPDX-License-Identifier: MIT
 *
 * weft/task.h -- tasks: spawn, join, cancel, yield, sleep.
 *
 * A task has one of two bodies: a fiber (its own stack, straight-line code) or a
 * poll function (no stack; called again whenever it was woken). Both run on any
 * worker of their runtime unless they are pinned.
 *
 * Concurrency on one task handle: every call may overlap with every other, except
 * that the last unref must come after all others.
 *
 * Cancellation is a request and sticky: the wait the task is in, and every later
 * call that may block, returns -ECANCELED until the task ends. Calls with WEFT_TRY
 * are not affected. Between weft_shield_enter and weft_shield_leave the task waits
 * undisturbed.
 *
 * Thread-local data: a task that is not pinned may continue on another thread after
 * any call that may block, so no address of thread-local data (errno's included) may
 * be kept across one.
 */
#ifndef WEFT_TASK_H
#define WEFT_TASK_H

#include "weft/base.h"
#include "weft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_task weft_task;

enum {
    WEFT_PINNED = 1, /* never changes its worker */
    WEFT_HIGH = 2,   /* goes before normal tasks when it becomes ready */
};

/* All zero is a good default. */
typedef struct weft_spawn_options {
    const char *name; /* for dumps and reports; not copied: must outlive the task (a literal) */
    unsigned flags;   /* WEFT_PINNED, WEFT_HIGH */
    weft_time at;     /* starts at this time (absolute ns), not before; 0: at once. Until then it
                       * has no stack. A cancellation starts it at once */
} weft_spawn_options;

/* Starts a fiber.
 *
 * rt        NULL: the runtime of the calling task
 * fn, arg   its body; arg must stay valid as long as the task uses it
 * options   NULL for the defaults
 * ret_task  receives a handle with one reference for the caller; NULL: detached.
 *           Untouched on error
 *
 * The fiber gets its stack when it first runs; should there be no memory for one
 * then, the worker tries again later and the task waits.
 *
 * Returns 0; -EINVAL (fn NULL, rt NULL outside of a task, unknown flags); -ENOMEM;
 * -EAGAIN (max_tasks are in flight); -ENOTSUP (WEFT_PINNED, but no worker is there for
 * good); -ESHUTDOWN; -ENXIO (inherited through fork).
 * On error nothing was started.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_spawn(weft_runtime *rt, weft_fn fn, void *arg, const weft_spawn_options *options,
                        weft_task **ret_task);

/* weft_spawn on the calling task's runtime, detached, with the defaults.
 * Callable from: any task. Never blocks. */
WEFT_API int weft_go(weft_fn fn, void *arg);

/* What a poll function answers: WEFT_PENDING (call me again when woken), or its
 * result, 0 or an errno-like negative value or a count. */
#define WEFT_PENDING INT32_MIN

/* The body of a poll task: advances as far as it can without blocking. `state` is
 * the task's own memory; `self` lets it hand out wakers. Must not call anything that
 * blocks: such a call answers -EPERM. */
typedef int (*weft_poll_fn)(weft_task *self, void *state);

/* Starts a poll task with `state_size` bytes of zeroed state, into which `init`
 * (NULL: nothing) is copied. State up to 24 bytes lies in the task itself.
 * Parameters and errors else as weft_spawn; -EINVAL also for a state_size over 1 MiB.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_spawn_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t state_size,
                             const weft_spawn_options *options, weft_task **ret_task);

/* Wakes a poll task: it is polled once more, even when it runs right now; several
 * wakes before that poll are one. On a fiber or an ended task: no effect.
 * Returns 0, -EINVAL (NULL) or -ENXIO (inherited through fork).
 * Callable from: any thread, any task. */
WEFT_API int weft_task_wake(weft_task *task);

/* Has the poll task polled again at `deadline` at the latest (ns; the nearest of
 * several calls in one poll counts; each poll starts without one).
 * Returns 0 or -EPERM (not called from the poll function of `self`).
 * Callable from: the task's own poll function. */
WEFT_API int weft_task_wake_at(weft_task *self, weft_time deadline);

/* Waits until the task has ended. Any number may wait, any number of times.
 *
 * ret_result  the body's result; NULL if unwanted; untouched on error
 *
 * Returns 0; -EINVAL (NULL); -EAGAIN (WEFT_TRY: still running); -ETIMEDOUT;
 * -ECANCELED (the waiting task, not the awaited one); -EDEADLK (joins itself); -ENXIO
 * (inherited through fork, and not ended).
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_task_join(weft_task *task, weft_time deadline, int *ret_result);

/* Asks the task to end. Returns 0; -EALREADY (asked before, or it has ended: nothing
 * changed); -EINVAL; -ENXIO (inherited through fork). Callable from: any thread, any
 * task. Never blocks. */
WEFT_API int weft_task_cancel(weft_task *task);

/* True once the body has ended. Callable from: any thread, any task. */
WEFT_API bool weft_task_done(const weft_task *task);

/* References. The handle from a spawn holds one; a task that runs keeps itself.
 * Both accept NULL; unref returns NULL. Callable from: any thread, any task. */
WEFT_API weft_task *weft_task_ref(weft_task *task);
WEFT_API weft_task *weft_task_unref(weft_task *task);

/* The calling task, without a new reference; NULL outside of one.
 * Callable from: any thread, any task. */
WEFT_API weft_task *weft_task_self(void);

/* The task's name ("" without one) and its id, unique within the runtime and never
 * used again (0 for NULL). Callable from: any thread, any task. */
WEFT_API const char *weft_task_name(const weft_task *task);
WEFT_API uint64_t weft_task_id(const weft_task *task);

/* The task of the runtime that has this id: a reference for the caller, or NULL. Found are
 * living tasks that were spawned with a handle or that have called weft_task_ref or
 * weft_suspend themselves. Looks at all of the runtime's tasks: for the rare case; keep the
 * handle where it is done often.
 * Callable from: any thread, any task. */
WEFT_API weft_task *weft_task_find(weft_runtime *rt, uint64_t id);

/* The wait in two steps that a foreign callback API needs: give the task's handle (with a
 * reference) to whoever will call weft_task_resume, then suspend. A resume that comes first
 * is kept, and the suspend returns at once; several before one suspend are one.
 *
 * Returns 0 (resumed); -EAGAIN (WEFT_TRY: no resume is there); -ETIMEDOUT; -ECANCELED: the
 * resume may still come, and is then kept for the next suspend; -EPERM: not called in a
 * fiber (a plain thread waits on a weft_event instead).
 * Callable from: any fiber. Parks. */
WEFT_API int weft_suspend(weft_time deadline);

/* Resumes a fiber, see weft_suspend; on a poll task the same as weft_task_wake.
 * Returns 0; -ESRCH (it has ended); -EINVAL (NULL). The caller holds a reference.
 * Callable from: any thread, any task. */
WEFT_API int weft_task_resume(weft_task *task);

/* Lets other ready tasks run first. On a plain thread: sched_yield.
 * Returns 0 or -ECANCELED. Callable from: any thread, any fiber. */
WEFT_API int weft_yield(void);

/* Sleeps until the deadline (absolute, ns), never less. One in the past returns at
 * once; WEFT_NEVER sleeps until cancelled.
 * Returns 0 or -ECANCELED. Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_sleep_until(weft_time deadline);

/* weft_sleep_until(weft_after(duration)).
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_sleep(weft_time duration);

/* Whether the calling task was asked to end (a shield does not hide it). False
 * outside of a task. Callable from: any thread, any task. */
WEFT_API bool weft_cancelled(void);

/* Between the two, a cancellation disturbs no wait of the calling task; they nest.
 * For clean-up code. leave without enter: no effect.
 * Callable from: any thread (no effect), any task. */
WEFT_API void weft_shield_enter(void);
WEFT_API void weft_shield_leave(void);

#ifdef __cplusplus
}
#endif
#endif

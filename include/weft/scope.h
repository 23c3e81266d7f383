/* SPDX-License-Identifier: MIT
 *
 * weft/scope.h -- structured concurrency: tasks that cannot outlive the block of code
 * that started them.
 *
 *     weft_scope *s;
 *     int r = weft_scope_open(&(weft_scope_options){.flags = WEFT_SCOPE_FAIL_FAST,
 *                                                   .deadline = weft_after(WEFT_SEC)}, &s);
 *     if (r)
 *         return r;
 *     weft_scope_spawn(s, fetch, &a, NULL, NULL);
 *     weft_scope_spawn(s, fetch, &b, NULL, NULL);
 *     return weft_scope_close(s, NULL);   // both have ended, their clean-up included
 *
 * What is inside a scope: the tasks spawned into it, the scopes that these have open, and
 * the scopes that its owner opened after it; so scopes form a tree. Cancelling a scope,
 * by hand, by its deadline or by a failure, cancels everything inside, at any depth and
 * at once, and nothing else; its owner goes on and hears of it from weft_scope_close. When
 * the owner, a task, is cancelled, everything inside its scopes is.
 *
 * Closing waits until all inside has ended: each body has returned, the destructors of its
 * task-local values have run, its stack is free. Nothing ends that wait early: when the
 * closing task is cancelled, all inside is cancelled and then awaited. A fiber that
 * returns with scopes open closes them first.
 *
 * A scope opened in a shielded section (weft_shield_enter) is of no concern to a
 * cancellation of its owner or of an outer scope: for clean-up code.
 *
 * The owner is the task or thread that opened the scope; only it may close. Concurrency:
 * everything else may overlap with everything, as long as the scope is open.
 */
#ifndef WEFT_SCOPE_H
#define WEFT_SCOPE_H

#include "weft/base.h"
#include "weft/runtime.h"
#include "weft/task.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_scope weft_scope;

enum {
    WEFT_SCOPE_FAIL_FAST = 1, /* the first negative result cancels all inside */
};

/* All zero is a good default. */
typedef struct weft_scope_options {
    weft_runtime *runtime; /* of the tasks inside; NULL: the one of the caller of spawn */
    unsigned flags;        /* WEFT_SCOPE_FAIL_FAST */
    weft_time deadline;    /* absolute ns: all inside is cancelled then; 0, WEFT_NEVER: none.
                            * Kept by a poll task of the runtime, which counts as one */
} weft_scope_options;

/* How a scope went. */
typedef struct weft_scope_report {
    uint64_t spawned;        /* tasks that were started in it (not in scopes inside) */
    uint64_t failed;         /* of these, ended with a negative result */
    int first_error;         /* the first negative result, or 0 */
    uint64_t first_error_id; /* that task's id */
    int cancelled;           /* why it was cancelled: 0 (it was not), -ECANCELED, -ETIMEDOUT
                              * (its deadline), or the failure of FAIL_FAST */
} weft_scope_report;

/* Opens a scope.
 *
 * options  NULL for the defaults; not kept
 * ret      the scope, until weft_scope_close; untouched on error
 *
 * Returns 0; -EINVAL (ret NULL, unknown flag, a deadline but no runtime: neither given nor
 * called in a task); -ENOMEM; -EPERM (in a poll function); with a deadline also the errors
 * of weft_spawn. In a cancelled task the scope opens, but is cancelled already.
 * Callable from: any thread, any fiber. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_scope_open(const weft_scope_options *options, weft_scope **ret);

/* weft_spawn and weft_spawn_poll, into a scope.
 *
 * ret_task  a handle for the caller; NULL: none
 *
 * Returns as these; -EINVAL also for a NULL scope; -ECANCELED: the scope is cancelled, and
 * nothing was started. A cancellation that comes at the same moment either refuses the task
 * or cancels it.
 * Callable from: the owner, and everything that runs inside the scope. Never blocks. */
WEFT_API int weft_scope_spawn(weft_scope *scope, weft_fn fn, void *arg,
                              const weft_spawn_options *options, weft_task **ret_task);
WEFT_API int weft_scope_spawn_poll(weft_scope *scope, weft_poll_fn fn, const void *init,
                                   size_t state_size, const weft_spawn_options *options,
                                   weft_task **ret_task);

/* Cancels all inside. Does not wait. Returns 0, -EALREADY (it was cancelled), -EINVAL.
 * Callable from: any thread, any task, while the scope is open. */
WEFT_API int weft_scope_cancel(weft_scope *scope);

/* Whether the scope was cancelled. NULL: false.
 * Callable from: any thread, any task, while the scope is open. */
WEFT_API bool weft_scope_is_cancelled(const weft_scope *scope);

/* Waits until nothing runs inside; the scope stays open and can be used again.
 * Returns 0; -EAGAIN (WEFT_TRY), -ETIMEDOUT, -ECANCELED (the waiting task is): all inside
 * goes on; -EINVAL (NULL).
 * Callable from: any thread, any fiber that is not itself inside the scope. Parks. */
WEFT_API int weft_scope_join(weft_scope *scope, weft_time deadline);

/* Waits until nothing runs inside, and ends the scope: the pointer is not valid afterwards.
 *
 * ret_report  NULL if unwanted
 *
 * Returns 0 (all that was spawned succeeded); why the scope was cancelled, else its first
 * failure (see weft_scope_report). Without closing it: -EINVAL (NULL), -EPERM (the caller
 * is not the owner), -EBUSY (the caller has opened another scope since, and not closed it).
 * Callable from: the owner. Parks. */
WEFT_API int weft_scope_close(weft_scope *scope, weft_scope_report *ret_report);

#ifdef __cplusplus
}
#endif
#endif

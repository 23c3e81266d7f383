/* SPDX-License-Identifier: MIT
 *
 * weft/promise.h -- tasks as promises: await one with a limit, all of several, or the
 * first of several.
 *
 *     weft_task *t[3];
 *     weft_outcome out[3];
 *     ... weft_spawn(NULL, ask, &server[i], NULL, &t[i]) ...
 *     int winner = weft_await_any(t, 3, WEFT_AWAIT_CANCEL_REST, weft_after(WEFT_SEC), out);
 *     if (winner >= 0)
 *         use(out[winner].result);
 *     else if (winner == -ECHILD)
 *         ... all three failed: out[i].result and out[i].id say how and who ...
 *
 * A task is settled when its body has ended: fulfilled when its result is 0 or more,
 * failed when it is negative. Awaiting takes nothing: a settled task may be awaited
 * again, by any number, and the handles stay the caller's. What has not settled goes
 * on and can be awaited later, unless the caller asks for it to be cancelled; a
 * cancelled task unwinds by itself (its clean-up runs), and weft_task_join tells when
 * it has.
 *
 * These calls keep no worker busy while they wait, so tasks may spawn and await inside
 * each other at any depth. The same task may stand in a list twice.
 */
#ifndef WEFT_PROMISE_H
#define WEFT_PROMISE_H

#include "weft/base.h"
#include "weft/select.h"
#include "weft/task.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_AWAIT_CANCEL_REST = 1, /* what has not settled when the call returns is cancelled */
    WEFT_AWAIT_FAIL_FAST = 2,   /* weft_await_all only: return at the first failure */
};

enum {
    WEFT_OUTCOME_RUNNING = 0,   /* had not settled when the call returned */
    WEFT_OUTCOME_SETTLED = 1,   /* `result` is its result */
    WEFT_OUTCOME_CANCELLED = 2, /* had not settled, and this call cancelled it */
};

/* What became of one awaited task. */
typedef struct weft_outcome {
    uint64_t id; /* weft_task_id */
    int state;   /* WEFT_OUTCOME_... */
    int result;  /* when settled; else 0 */
} weft_outcome;

/* Says whether a result is what the caller waits for. Runs in the caller's task, without
 * a lock, once for each task that settles. */
typedef bool (*weft_match_fn)(int result, void *arg);

/* Waits until the task has ended, and cancels it when it has not at the deadline. The
 * answer is decided once: 0 and the result, or a time-out and a task that was asked to
 * end. After a time-out the task may still be unwinding.
 *
 * ret_result  the body's result; NULL if unwanted; untouched on error
 *
 * Returns 0; -ETIMEDOUT (the task is cancelled now); -EAGAIN (WEFT_TRY: still running,
 * not cancelled); -ECANCELED (the waiting task is; the awaited one is left alone);
 * -EDEADLK (awaits itself); -EINVAL (NULL).
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_task_await(weft_task *task, weft_time deadline, int *ret_result);

/* Waits until all n tasks have settled.
 *
 * flags     WEFT_AWAIT_CANCEL_REST, WEFT_AWAIT_FAIL_FAST
 * outcomes  n places, filled on every return but -EINVAL, -EDEADLK and -ENOMEM; NULL if
 *           unwanted
 *
 * Returns 0 (all settled, whatever the results; also for n 0); -ECHILD (FAIL_FAST: one
 * has failed); -EAGAIN, -ETIMEDOUT, -ECANCELED as weft_task_join; -EINVAL (a NULL, an
 * unknown flag, n above WEFT_SELECT_MAX); -EDEADLK (the caller is among them);
 * -ENOMEM (FAIL_FAST with n above 8 allocates once, before it waits).
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_await_all(weft_task *const *tasks, size_t n, unsigned flags, weft_time deadline,
                            weft_outcome *outcomes);

/* Waits until one of the n tasks has settled; when several have, it is the first in the
 * list.
 *
 * Returns its index; -EAGAIN, -ETIMEDOUT, -ECANCELED as weft_task_join; -EINVAL (a NULL,
 * n 0 or above WEFT_SELECT_MAX, a flag other than CANCEL_REST); -EDEADLK; -ENOMEM (n above
 * 8 allocates once, before it waits). Outcomes as for weft_await_all.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_await_race(weft_task *const *tasks, size_t n, unsigned flags, weft_time deadline,
                             weft_outcome *outcomes);

/* Waits until one of the n tasks is fulfilled.
 *
 * Returns its index; -ECHILD (all have failed: the outcomes hold every error with its
 * id); -ETIMEDOUT (the outcomes hold the errors so far, and with CANCEL_REST which tasks
 * were cancelled); else as weft_await_race.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_await_any(weft_task *const *tasks, size_t n, unsigned flags, weft_time deadline,
                            weft_outcome *outcomes);

/* Waits until one of the n tasks has settled with a result that `match` accepts; -ECHILD
 * when all have settled and none was accepted. Else as weft_await_any; -EINVAL also for
 * match NULL.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_await_match(weft_task *const *tasks, size_t n, weft_match_fn match, void *arg,
                              unsigned flags, weft_time deadline, weft_outcome *outcomes);

/* For weft_select: the task has ended (its result: weft_task_join with WEFT_TRY). The
 * case's result is 0. The caller keeps its reference until the select has returned.
 * Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_task(weft_task *task);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/variable.h -- a value that may be changed until it is finished, and watched: the
 * current configuration, the progress of a job, then its result.
 *
 *     uint64_t seen = 0;
 *     void *config;
 *     while (weft_variable_wait_change(&current, &seen, WEFT_NEVER, &config) == 0)
 *         apply(config);               // the newest one; those in between are skipped
 *
 * One pointer's worth, with a version that counts the sets; what the pointer points to
 * belongs to whoever you agree on. A watcher that is slow sees the newest value, and never
 * holds the setter back. (A value that is set once: weft/value.h.)
 *
 * An all-zero weft_variable holds NULL at version 0 and needs no clean-up; nobody may wait
 * for it when its memory goes.
 *
 * Concurrency: everything but init may overlap with everything on one variable. A set
 * happens-before the return of each call that reports its value or a later one.
 */
#ifndef WEFT_VARIABLE_H
#define WEFT_VARIABLE_H

#include "weft/base.h"
#include "weft/select.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embed it anywhere; the fields are private. Must not be copied or moved. */
typedef struct weft_variable {
    uint32_t weft__lock, weft__finished;
    uint64_t weft__version;
    void *weft__value;
    void *weft__queue[4];
} weft_variable;

/* Makes *v a variable that holds `value` at version 0. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. Nobody else may use *v meanwhile. */
WEFT_API int weft_variable_init(weft_variable *v, void *value);

/* Changes the value and wakes who watches it.
 *
 * ret_old  the value before, which is nobody's now; NULL if unwanted; untouched on error
 *
 * Returns 0; -EALREADY (finished: nothing changed); -EINVAL (NULL).
 * Callable from: any thread, any task (not a signal handler). Never suspends. */
WEFT_API int weft_variable_set(weft_variable *v, void *value, void **ret_old);

/* As set, but only when the value is `expected`; -EAGAIN: it is another.
 * Callable from: any thread, any task (not a signal handler). Never suspends. */
WEFT_API int weft_variable_replace(weft_variable *v, void *expected, void *value);

/* As set, and the last change: wakes all who wait.
 * Callable from: any thread, any task (not a signal handler). Never suspends. */
WEFT_API int weft_variable_finish(weft_variable *v, void *value, void **ret_old);

/* The version, and the value in *ret_value (NULL if unwanted). NULL: 0.
 * Callable from: any thread, any task. Never suspends. */
WEFT_API uint64_t weft_variable_get(const weft_variable *v, void **ret_value);

/* Whether it is finished. NULL: false. Callable from: any thread, any task. */
WEFT_API bool weft_variable_is_finished(const weft_variable *v);

/* Waits until it is finished. *ret_value (NULL if unwanted) is the final value.
 * Returns 0; -EAGAIN (WEFT_TRY), -ETIMEDOUT, -ECANCELED; -EINVAL (NULL).
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_variable_wait(weft_variable *v, weft_time deadline,
                                              void **ret_value);

/* Waits until the version is another than *seen, and puts the version into *seen and the
 * value into *ret_value (NULL if unwanted), both untouched on error.
 * Returns 0; -EPIPE (finished, and the caller has seen the last version); -EAGAIN (WEFT_TRY),
 * -ETIMEDOUT, -ECANCELED; -EINVAL (v or seen is NULL).
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_variable_wait_change(weft_variable *v, uint64_t *seen,
                                                     weft_time deadline, void **ret_value);

/* For weft_select: it is finished; its version is another than `seen` (result 0) or never
 * will be (-EPIPE).
 * Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_variable(weft_variable *v);
WEFT_API weft_select_case weft_case_variable_change(weft_variable *v, uint64_t seen);

#ifdef __cplusplus
}
#endif
#endif

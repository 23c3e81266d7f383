/* SPDX-License-Identifier: MIT
 *
 * promise.c -- see weft/promise.h. All on the join of task.c: one task after the other
 * where the order does not matter, a select over all where the first one counts. Each
 * task that settles and is not the one takes its case out and selects again, so n
 * failures cost n selects.
 */
#include "wait/select.h"

#include "sched/worker.h"
#include "weft/promise.h"

#define CASES_INLINE 8

weft_select_case weft_case_task(weft_task *t)
{
    return weft__case_of(t ? &weft__join_ops : NULL, t, t ? &t->lock : NULL, NULL);
}

static int check(weft_task *const *tasks, size_t n, unsigned flags, unsigned allowed)
{
    if (n > WEFT_SELECT_MAX || (n && !tasks) || (flags & ~allowed))
        return -EINVAL;
    weft_task *self = weft_task_self();
    for (size_t i = 0; i < n; i++) {
        if (!tasks[i])
            return -EINVAL;
        if (tasks[i] == self)
            return -EDEADLK;
    }
    return 0;
}

/* One task at the end of a call. A cancel that comes too late finds it settled. */
static void conclude(weft_task *t, unsigned flags, weft_outcome *out)
{
    weft_outcome o = {.id = weft_task_id(t)};
    if (!weft_task_done(t) && (flags & WEFT_AWAIT_CANCEL_REST) && weft_task_cancel(t) == 0)
        o.state = WEFT_OUTCOME_CANCELLED;
    else if (weft_task_join(t, WEFT_TRY, &o.result) == 0)
        o.state = WEFT_OUTCOME_SETTLED;
    if (out)
        *out = o;
}

static void conclude_all(weft_task *const *tasks, size_t n, unsigned flags, weft_outcome *outcomes)
{
    if (!outcomes && !(flags & WEFT_AWAIT_CANCEL_REST))
        return;
    for (size_t i = 0; i < n; i++)
        conclude(tasks[i], flags, outcomes ? &outcomes[i] : NULL);
}

/* The index of the first that settles with a matching result; -ECHILD: none did. */
static int await_first(weft_task *const *tasks, size_t n, weft_match_fn match, void *arg,
                       weft_time deadline)
{
    weft_select_case few[CASES_INLINE], *cases = few;
    if (n > CASES_INLINE && !(cases = weft__malloc(n * sizeof *cases)))
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        cases[i] = weft_case_task(tasks[i]);
    int r = -ECHILD;
    for (size_t left = n; left; left--) {
        int result = 0;
        r = weft_select(cases, n, WEFT_SELECT_ORDERED, deadline);
        if (r < 0 || (weft_task_join(tasks[r], WEFT_TRY, &result), match(result, arg)))
            break;
        cases[r].off = true;
        r = -ECHILD;
    }
    if (cases != few)
        weft__free(cases);
    return r;
}

static bool is_settled(int result, void *arg)
{
    (void)result;
    (void)arg;
    return true;
}

static bool is_fulfilled(int result, void *arg)
{
    (void)arg;
    return result >= 0;
}

static bool is_failure(int result, void *arg)
{
    (void)arg;
    return result < 0;
}

int weft_task_await(weft_task *t, weft_time deadline, int *ret_result)
{
    int r = weft_task_join(t, deadline, ret_result);
    /* It may settle between the time-out and the cancel: then that is the answer. */
    if (r == -ETIMEDOUT && weft_task_cancel(t) == -EALREADY &&
        weft_task_join(t, WEFT_TRY, ret_result) == 0)
        r = 0;
    return r;
}

int weft_await_all(weft_task *const *tasks, size_t n, unsigned flags, weft_time deadline,
                   weft_outcome *outcomes)
{
    int r = check(tasks, n, flags, WEFT_AWAIT_CANCEL_REST | WEFT_AWAIT_FAIL_FAST);
    if (r)
        return r;
    if (flags & WEFT_AWAIT_FAIL_FAST) {
        r = await_first(tasks, n, is_failure, NULL, deadline);
        if (r == -ENOMEM)
            return r;
        r = r >= 0 ? -ECHILD : r == -ECHILD ? 0 : r;
    } else {
        for (size_t i = 0; i < n && !r; i++)
            r = weft_task_join(tasks[i], deadline, NULL);
    }
    conclude_all(tasks, n, flags, outcomes);
    return r;
}

int weft_await_match(weft_task *const *tasks, size_t n, weft_match_fn match, void *arg,
                     unsigned flags, weft_time deadline, weft_outcome *outcomes)
{
    int r = check(tasks, n, flags, WEFT_AWAIT_CANCEL_REST);
    if (r || n == 0 || !match)
        return r ? r : -EINVAL;
    r = await_first(tasks, n, match, arg, deadline);
    if (r != -ENOMEM)
        conclude_all(tasks, n, flags, outcomes);
    return r;
}

int weft_await_race(weft_task *const *tasks, size_t n, unsigned flags, weft_time deadline,
                    weft_outcome *outcomes)
{
    return weft_await_match(tasks, n, is_settled, NULL, flags, deadline, outcomes);
}

int weft_await_any(weft_task *const *tasks, size_t n, unsigned flags, weft_time deadline,
                   weft_outcome *outcomes)
{
    return weft_await_match(tasks, n, is_fulfilled, NULL, flags, deadline, outcomes);
}

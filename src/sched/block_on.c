/* SPDX-License-Identifier: MIT
 *
 * block_on.c -- weft_block_on: a call into a runtime, for whoever has none around it.
 *
 * In a host-driven runtime the caller drives (driven.c). In the others it is a spawn and
 * a join; the task is joined to its end even when the caller has been told to stop, for
 * what it was given may lie on the caller's stack.
 */
#include "sched/worker.h"

static int spawn_and_join(weft_runtime *rt, weft_fn fn, void *arg, weft_time deadline,
                          int *ret_result)
{
    weft_task *t;
    int r = weft_spawn(rt, fn, arg, NULL, &t);
    if (r)
        return r;
    int result;
    r = weft_task_join(t, deadline, &result);
    if (r) {
        if (r == -EAGAIN) /* WEFT_TRY */
            r = -ETIMEDOUT;
        weft_task_cancel(t);
        weft_shield_enter();
        int joined = weft_task_join(t, WEFT_NEVER, &result);
        weft_shield_leave();
        if (joined) /* the runtime is of another process: nothing runs */
            r = joined;
    } else if (ret_result) {
        *ret_result = result;
    }
    weft_task_unref(t);
    return r;
}

int weft_block_on(weft_runtime *rt, weft_fn fn, void *arg, weft_time deadline, int *ret_result)
{
    weft_task *self = weft_task_self();
    if (!rt)
        rt = self ? self->rt : NULL;
    if (!rt || !fn)
        return -EINVAL;
    if (self && !weft__task_is_fiber(self))
        return -EPERM;
    if (rt->driven)
        return weft__driven_block_on(rt, fn, arg, deadline, ret_result);
    return spawn_and_join(rt, fn, arg, deadline, ret_result);
}

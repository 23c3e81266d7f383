/* SPDX-License-Identifier: MIT
 *
 * once.c -- see weft/once.h: double-checked locking. `done` is set under the mutex,
 * after the function has returned, and read first without it.
 */
#include "sync/once.h"

#include "wait/wait.h"

static weft__a32 *done_of(const weft_once *o)
{
    return (weft__a32 *)(uintptr_t)&o->weft__done;
}

bool weft_once_done(const weft_once *o)
{
    return o && atom_load_acq(done_of(o)); /* pairs with the store in do */
}

int weft__once_run(weft_once *o, int (*fn)(void *arg), void *arg)
{
    int r = 0;
    if (!atom_load_rlx(done_of(o))) {
        r = fn(arg);
        r = r < 0 ? r : 0;
        if (r == 0)
            atom_store_rel(done_of(o), 1u); /* pairs with weft_once_done */
    }
    weft_mutex_unlock(&o->weft__mutex);
    return r;
}

int weft_once_do(weft_once *o, int (*fn)(void *arg), void *arg, weft_time deadline)
{
    if (!o || !fn)
        return -EINVAL;
    if (WEFT__LIKELY(weft_once_done(o)))
        return deadline == WEFT_TRY ? 0 : weft__checkpoint(weft__self());
    int r = weft_mutex_lock(&o->weft__mutex, deadline);
    return r ? r : weft__once_run(o, fn, arg);
}

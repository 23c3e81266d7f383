/* SPDX-License-Identifier: MIT
 *
 * stall.c -- see weft/stall.h. A worker counts its switches anyway; a count that is the
 * same in two calls is the same task. What the calls have seen lies in the worker, written
 * by callers only: two that come at once may each report a stall as new, no more.
 */
#include "weft/stall.h"

#include "sched/worker.h"

/* How long it has been in one task, or -1. */
static weft_time in_one_task(weft__worker *w, weft_time now)
{
    uint64_t tick = atom_load_rlx(&w->tick);
    if (tick != atom_load_rlx(&w->stall_tick) || atom_load_rlx(&w->asleep)) {
        atom_store_rlx(&w->stall_tick, tick);
        atom_store_rlx(&w->stall_since, (uint64_t)now);
        atom_store_rlx(&w->stall_told, 0u);
        return -1;
    }
    return now - (weft_time)atom_load_rlx(&w->stall_since);
}

int weft_runtime_stalls(weft_runtime *rt, weft_time threshold, weft_stall *stalls, size_t max)
{
    if (!rt || threshold < 0 || (!stalls && max))
        return -EINVAL;
    if (weft__forked(rt))
        return -ENXIO;
    if (rt->driven)
        return -ENOTSUP;
    weft_time now = weft__sys_now();
    size_t n = 0;
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *w = &rt->worker[i];
        weft_time length = in_one_task(w, now);
        weft_task *t = atom_load_rlx(&w->running);
        /* Slots are type-stable: at worst another task's name. */
        if (length < threshold || length < 0 || !t)
            continue;
        if (n < max) {
            const char *name = atom_load_rlx(&t->name);
            stalls[n] = (weft_stall){i, atom_load_rlx(&t->id), name ? name : "", length,
                                     atom_load_rlx(&w->stall_told) != 0};
            atom_store_rlx(&w->stall_told, 1u);
        }
        n++;
    }
    return (int)n;
}

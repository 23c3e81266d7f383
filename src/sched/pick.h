/* SPDX-License-Identifier: MIT
 *
 * pick.h -- the next task from a worker's own queues, without a look around. For its
 * owner; shared, inlined, by the switch (worker.c) and the look around (look.c).
 *
 * Quick tasks may turn slow from one switch to the next: so every CLOCK_EVERY switches,
 * and while there are timers or descriptors that could become late at each, the
 * processor's clock has a say in whether the main flow must look around.
 */
#ifndef WEFT_SRC_PICK_H
#define WEFT_SRC_PICK_H

#include "sched/pool.h"
#include "sched/worker.h"

#define WEFT__CLOCK_EVERY 16u

static inline weft_task *weft__take_next(weft__worker *w)
{
    void *entry = atom_load_rlx(&w->next);
    if (!entry)
        return NULL;
    if (w->solo)
        atom_store_rlx(&w->next, NULL);
    else if (!(entry = atom_xchg_acq(&w->next, NULL)))
        return NULL; /* a watcher was faster */
    return weft__entry_take(w, entry);
}

static inline weft_task *weft__take_queued(weft__worker *w)
{
    void *entry;
    weft_task *t = NULL;
    while (!t && (entry = w->solo ? weft__deque_pop(&w->fifo) : weft__runq_pop(&w->runq)) != NULL)
        t = weft__entry_take(w, entry);
    return t;
}

static inline weft_task *take_ready(weft__worker *w)
{
    if (WEFT__UNLIKELY(w->pool != NULL))
        return w->pool->ops->pop(w->pool, w->number, w->now);
    return weft__take_queued(w);
}

static inline weft_task *take_pinned(weft__worker *w)
{
    weft__slink *l = weft__fifo_pop(&w->pinned);
    return l ? weft__task_of_link(l) : NULL;
}

/* The worker's own work, fair among its sources. */
static inline weft_task *weft__pick_own(weft__worker *w, uint64_t tick)
{
    weft_task *t;
    if (WEFT__UNLIKELY(!weft__fifo_empty(&w->pinned)) && (tick & 1u))
        return take_pinned(w);
    if (w->next_streak < w->next_limit && (t = weft__take_next(w)) != NULL) {
        w->next_streak++;
        return t;
    }
    w->next_streak = 0;
    if ((t = take_ready(w)) != NULL || (t = weft__take_next(w)) != NULL)
        return t;
    return take_pinned(w);
}

/* Whether the main flow must look around before the next task. */
static inline bool weft__look_due(weft__worker *w)
{
    uint64_t tick = atom_load_rlx(&w->tick);
    if (WEFT__UNLIKELY(tick >= w->look_at || atom_load_rlx(&w->inbox_count) ||
                       atom_load_rlx(&w->rt->high.count)))
        return true;
    return WEFT__UNLIKELY((w->hurry || tick % WEFT__CLOCK_EVERY == 0) &&
                          weft__sys_ticks() - w->looked > WEFT__TICKS_LONG);
}

/* The next task without a look around; NULL: the main flow must look. */
static inline weft_task *weft__pick(weft__worker *w)
{
    return weft__look_due(w) ? NULL : weft__pick_own(w, atom_load_rlx(&w->tick));
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * ready.c -- where a task goes that is ready and in no queue.
 *
 * On a worker of its runtime: a task just woken or spawned takes the `next` place,
 * for what it needs is warm in this core's cache, and pushes the former occupant into
 * the queue; whatever lands in a place that thieves can see is followed by a notify.
 * From anywhere else: the shared queue, then a notify.
 */
#include "sched/worker.h"

void weft__wake_sleeper(struct weft_runtime *rt, weft__sleeper *s)
{
    bool in_driver = atom_load_rlx(&s->last_choice) != 0;
    atom_store_rel(&s->notified, 1u); /* pairs with the acquire load in sleep.c */
    if (WEFT__UNLIKELY(rt->driven != NULL)) {
        weft__sys_futex_wake(&s->notified, 1); /* weft__driven_drain */
        weft__driven_wake(rt);
    } else if (in_driver) {
        weft__driver *driver = atom_load_acq(&rt->driver);
        driver->ops->wake(driver);
    } else {
        weft__sys_futex_wake(&s->notified, 1);
    }
}

void weft__notify(struct weft_runtime *rt)
{
    weft__sleeper *s = weft__idle_pick(&rt->idle);
    if (WEFT__UNLIKELY(s != NULL)) {
        weft__worker *w = weft__worker_self();
        if (w && w->rt == rt)
            weft__count(&w->wakes);
        weft__wake_sleeper(rt, s);
    } else if (WEFT__UNLIKELY(rt->own_places != rt->permanent) && weft__idle_nobody(&rt->idle) &&
               atom_load_rlx(&rt->online) < rt->own_places) {
        weft__crew_grow(rt);
    }
}

/* ---- Shared queues ---- */

void weft__inject_many(struct weft_runtime *rt, weft__fifo *tasks, uint32_t n)
{
    weft__inject_push_all(&rt->inject, tasks, n); /* step 1 of idle.h */
    weft__notify(rt);
}

static void urgent_push(weft__urgent *q, weft_task *t)
{
    weft__acquire(&q->lock);
    weft__fifo_push(&q->fifo, &t->parker.link);
    atom_store_sc(&q->count, atom_load_rlx(&q->count) + 1); /* step 1 of idle.h */
    weft__release(&q->lock);
}

weft_task *weft__urgent_pop(weft__urgent *q)
{
    if (WEFT__LIKELY(atom_load_rlx(&q->count) == 0))
        return NULL;
    weft__acquire(&q->lock);
    weft__slink *l = weft__fifo_pop(&q->fifo);
    if (l)
        atom_store_rlx(&q->count, atom_load_rlx(&q->count) - 1);
    weft__release(&q->lock);
    return l ? weft__task_of_link(l) : NULL;
}

/* ---- Into a worker's own queue ---- */

weft_task *weft__entry_take(weft__worker *w, void *entry)
{
    weft_task *t = (weft_task *)((uintptr_t)entry & ~(uintptr_t)1);
    if (WEFT__LIKELY(t == entry) || weft__task_claim_start(t, w->solo))
        return t;
    weft__task_unref_here(w, t); /* its joiner was faster */
    return NULL;
}

/* The ring is full, or the deque can't grow: what can be linked goes to the shared queue. */
static void overflow(weft__worker *w, void *entry)
{
    void *batch[WEFT__RUNQ_SIZE / 2 + 1];
    weft__fifo out;
    weft__fifo_init(&out);
    uint32_t count = 0;
    uint32_t n = w->solo ? 0 : weft__runq_grab(&w->runq, batch, WEFT__RUNQ_SIZE / 2);
    batch[n++] = entry;
    for (uint32_t i = 0; i < n; i++) {
        weft_task *t = weft__entry_take(w, batch[i]);
        if (t) {
            weft__fifo_push(&out, &t->parker.link);
            count++;
        }
    }
    weft__inject_push_all(&w->rt->inject, &out, count);
}

/* A pool may link its tasks, so there are no tombstones in it. */
static WEFT__NOINLINE void queue_in_pool(weft__worker *w, void *entry, unsigned flags)
{
    weft_task *t = weft__entry_take(w, entry);
    if (t && w->pool->ops->push(w->pool, w->number, t, flags) != 0)
        weft__inject_push(&w->rt->inject, &t->parker.link);
}

/* `flags` are those of a pool's push. */
static inline void queue(weft__worker *w, void *entry, unsigned flags)
{
    if (w->solo) {
        if (WEFT__UNLIKELY(!weft__deque_push(&w->fifo, entry)))
            overflow(w, entry);
        return;
    }
    if (WEFT__UNLIKELY(w->pool != NULL))
        queue_in_pool(w, entry, flags);
    else if (WEFT__UNLIKELY(!weft__runq_push(&w->runq, entry)))
        overflow(w, entry);
    if (w->current)
        weft__notify(w->rt);
    else
        w->unnotified = true; /* the main flow does it once, see worker.c */
}

/* `t` is next; who was next is queued. */
static void put_next(weft__worker *w, weft_task *t)
{
    void *old = atom_load_rlx(&w->next), *entry = weft__entry(t);
    if (w->solo || !old)
        atom_store_rel(&w->next, entry); /* pairs with a watcher's exchange */
    else
        old = atom_xchg_ar(&w->next, entry);
    if (!w->solo)
        weft__ensure_watcher(w); /* thieves do not see it */
    if (old)
        queue(w, old, 0);
}

/* Pinned tasks and those of high priority have places of their own; true: done. */
static bool special(struct weft_runtime *rt, weft__worker *w, weft_task *t)
{
    if (WEFT__LIKELY(!(t->flags & (WEFT_PINNED | WEFT_HIGH))))
        return false;
    if (t->flags & WEFT_PINNED) {
        weft__worker *home = &rt->worker[t->home];
        if (home == w) {
            weft__fifo_push(&w->pinned, &t->parker.link);
            return true;
        }
        weft__acquire(&home->inbox_lock);
        weft__fifo_push(&home->inbox, &t->parker.link);
        atom_store_sc(&home->inbox_count, atom_load_rlx(&home->inbox_count) + 1);
        weft__release(&home->inbox_lock);
        if (weft__idle_pick_this(&rt->idle, &home->sleeper))
            weft__wake_sleeper(rt, &home->sleeper);
        return true;
    }
    urgent_push(&rt->high, t);
    weft__notify(rt);
    return true;
}

/* Until it is queued the task keeps its runtime; afterwards `visitors` does, for the task
 * may end, and a shutdown, too, before the notify is through. */
static void woken_from_outside(struct weft_runtime *rt, weft_task *t)
{
    atom_add_rlx(&rt->visitors, 1u);
    if (!special(rt, NULL, t)) {
        weft_pool *pool = rt->pool;
        if (!pool || pool->ops->push(pool, WEFT_POOL_OUTSIDE, t, 0) != 0)
            weft__inject_push(&rt->inject, &t->parker.link);
        weft__notify(rt);
    }
    atom_sub_ar(&rt->visitors, 1u); /* pairs with runtime_destroy */
}

void weft__ready_woken(weft_task *t)
{
    struct weft_runtime *rt = t->rt;
    weft__worker *w = weft__worker_self();
    if (!w || w->rt != rt) {
        woken_from_outside(rt, t);
    } else if (!special(rt, w, t)) {
        if (w->current) {
            put_next(w, t);
        } else {
            /* One of a batch of events: by its turn the end of its stack will be here. */
            if (weft__task_is_fiber(t) && weft__task_strand(t))
                __builtin_prefetch(&weft__task_strand(t)->context, 1);
            queue(w, weft__entry(t), 0);
        }
    }
}

void weft__ready_spawned(weft__worker *w, weft_task *t)
{
    if (!special(w->rt, w, t))
        put_next(w, t);
}

void weft__ready_tail(weft__worker *w, weft_task *t)
{
    if (!special(w->rt, w, t))
        queue(w, weft__entry(t), WEFT_POOL_BEHIND);
}

/* SPDX-License-Identifier: MIT
 *
 * timers.c -- deadlines of tasks: each worker's wheel, under a small lock, because a
 * task may resume, and so disarm, on another worker, and because an idle worker serves
 * the wheel of a busy one.
 *
 * An expiry claims the wait under the wheel's lock and unparks after it, so an entry
 * that disarm no longer finds has either lost its claim or is about to unpark.
 */
#include "sched/worker.h"

#define BATCH 64

/* Publishes when this wheel wants to be looked at. Seq-cst: a keeper that plans its
 * sleep and a worker that arms each store, then load (sleep.c). Under the lock. */
static void publish(weft__worker *w)
{
    atom_store_sc(&w->wheel_next, (uint64_t)weft__wheel_next(&w->wheel));
}

void weft__timer_arm(weft__worker *w, weft_task *t, weft_time deadline)
{
    weft__acquire(&w->wheel_lock);
    weft__wheel_add(&w->wheel, &t->timer, deadline);
    if (deadline < (weft_time)atom_load_rlx(&w->wheel_next))
        publish(w);
    weft__release(&w->wheel_lock);
    atom_store_rlx(&t->timer.owner, w->number + 1);
    if (!w->solo)
        weft__ensure_watcher(w);
    w->hurry = true;
    weft__count(&w->armed);
}

void weft__timer_disarm(weft_task *t)
{
    weft__worker *w = &t->rt->worker[weft__timed(t) - 1];
    atom_store_rlx(&t->timer.owner, 0u);
    uint32_t word = atom_load_rlx(&t->parker.word);
    if ((word & WEFT__WAIT_PHASE) == WEFT__WAIT_CLAIMED &&
        word >> WEFT__WAIT_SHIFT == WEFT__TIMEDOUT)
        return; /* it fired: the wheel has let go of it before the claim */
    weft__acquire(&w->wheel_lock);
    weft__wheel_remove(&w->wheel, &t->timer);
    weft__release(&w->wheel_lock);
}

unsigned weft__timers_run(weft__worker *w, weft__worker *whose, weft_time now)
{
    unsigned woken = 0;
    size_t n;
    do {
        weft__wakes wakes = {NULL, NULL};
        weft__list due;
        weft__list_init(&due);
        weft__acquire(&whose->wheel_lock);
        n = weft__wheel_advance(&whose->wheel, now, &due, BATCH);
        for (weft__link *l; (l = weft__list_pop(&due)) != NULL;) {
            weft__wheel_entry *e = weft__container(l, weft__wheel_entry, link);
            weft_task *t = weft__container(e, weft_task, timer);
            if (weft__claim(&t->parker, WEFT__TIMEDOUT)) {
                weft__wakes_add(&wakes, &t->parker);
                woken++;
            }
        }
        publish(whose);
        weft__release(&whose->wheel_lock);
        weft__wakes_run(&wakes);
    } while (n == BATCH);
    atom_store_rlx(&w->fired, atom_load_rlx(&w->fired) + woken);
    return woken;
}

weft_time weft__timers_next(weft__worker *w)
{
    weft__acquire(&w->wheel_lock);
    publish(w);
    weft__release(&w->wheel_lock);
    return (weft_time)atom_load_rlx(&w->wheel_next);
}

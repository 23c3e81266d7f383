/* SPDX-License-Identifier: MIT
 *
 * look.c -- what a worker's main flow looks at between tasks: timers, descriptors, the
 * shared queues, other workers' queues.
 *
 * How often, while work is plenty: every look_every switches, which doubles while
 * switches are quick and halves when they take long, so that it comes to a fraction of a
 * millisecond for quick tasks and to every switch for slow ones.
 *
 * What the main flow queues is not notified at once, but once, at the end of the look
 * around, for whatever is more than the one task that it will run now; or before it runs
 * a task without a look (worker.c).
 */
#include "sched/pick.h"

#define LOOK_MAX      64u
#define PLENTY        32u             /* more are queued here: no need to look for others */
#define POLL_AT_LEAST (1 * WEFT_MSEC) /* the driver is asked, however much is ready */
#define LOOK_QUICK    (100 * WEFT_USEC)
#define LOOK_LONG     (500 * WEFT_USEC)
#define NEXT_LIMIT    3u /* times in a row that `next` goes before the queue, at least */
#define HIGH_LIMIT    8u /* times in a row that a task of high priority goes first */
#define STEAL_BATCH   (WEFT__RUNQ_SIZE / 2)

static void adapt(weft__worker *w)
{
    weft_time now = weft__sys_now();
    weft_time took = now - w->now;
    if (took < LOOK_QUICK && w->look_every < LOOK_MAX)
        w->look_every *= 2;
    else if (took > LOOK_LONG)
        w->look_every = took > 4 * LOOK_LONG ? 1 : w->look_every > 1 ? w->look_every / 2 : 1;
    /* As long as the time between two looks: what a task spawned or woke runs depth first,
     * and the queue waits for some microseconds. */
    w->next_limit = w->look_every > NEXT_LIMIT ? w->look_every : NEXT_LIMIT;
    w->now = now;
    w->look_at = atom_load_rlx(&w->tick) + w->look_every;
    if (WEFT__UNLIKELY(w->look_at > w->turn_end))
        w->look_at = w->turn_end;
    w->looked = weft__sys_ticks();
    w->hurry = atom_load_rlx(&w->rt->driver) != NULL;
}

static void run_timers(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *v = &rt->worker[i];
        weft_time next = (weft_time)atom_load_rlx(&v->wheel_next);
        w->hurry |= next != WEFT_NEVER;
        if (next <= w->now)
            weft__timers_run(w, v, w->now);
    }
}

/* So much is ready that more events would only wait in the queue. */
static bool has_plenty(const weft__worker *w)
{
    uint32_t n = w->solo ? w->fifo.tail - w->fifo.head : weft__runq_length(&w->runq);
    return n > PLENTY;
}

/* Takes what descriptors have to say, unless a sleeper is just listening. */
static void run_driver(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    weft__driver *driver = atom_load_acq(&rt->driver);
    uint32_t nobody = 0;
    bool listened = w->listened;
    w->listened = false;
    if (!driver || listened || (has_plenty(w) && w->now < w->polled + POLL_AT_LEAST) ||
        !atom_cas_acq(&rt->keeper, &nobody, w->number + 1))
        return;
    w->polled = w->now;
    driver->ops->wait(driver, WEFT_TRY);
    atom_store_sc(&rt->keeper, 0u);
}

static void drain_inbox(weft__worker *w)
{
    if (atom_load_acq(&w->inbox_count) == 0)
        return;
    weft__acquire(&w->inbox_lock);
    weft__fifo_splice(&w->pinned, &w->inbox);
    atom_store_rlx(&w->inbox_count, 0u);
    weft__release(&w->inbox_lock);
}

/* A fair share of the shared queue: one to run, the rest into the own queue. */
static weft_task *take_shared(weft__worker *w)
{
    weft__fifo batch;
    weft__fifo_init(&batch);
    uint32_t most = w->solo ? UINT32_MAX : WEFT__RUNQ_SIZE / 2;
    if (!w->solo && weft__runq_length(&w->runq) > PLENTY)
        most = 1; /* to run now; more would push others out of the ring, back to here */
    if (weft__inject_take(&w->rt->inject, w->rt->workers, most, &batch) == 0)
        return NULL;
    weft__slink *first = weft__fifo_pop(&batch);
    for (weft__slink *l; (l = weft__fifo_pop(&batch)) != NULL;)
        weft__ready_tail(w, weft__task_of_link(l));
    return weft__task_of_link(first);
}

static weft_task *steal_from(weft__worker *w, weft__worker *v)
{
    void *batch[STEAL_BATCH];
    uint32_t n = weft__runq_grab(&v->runq, batch, STEAL_BATCH);
    for (uint32_t i = 1; i < n; i++)
        WEFT__CHECK(weft__runq_push(&w->runq, batch[i])); /* empty before: a searcher's */
    if (n) {
        weft__count(&w->steals);
        weft_task *t = weft__entry_take(w, batch[0]);
        return t ? t : weft__take_queued(w);
    }
    /* Its next task waits behind one that has been running for a watcher's round. */
    if (w->rescue && atom_load_rlx(&v->seen_tick) == atom_load_rlx(&v->tick) &&
        atom_load_rlx(&v->next)) {
        void *entry = atom_xchg_acq(&v->next, NULL);
        return entry ? weft__entry_take(w, entry) : NULL;
    }
    return NULL;
}

static weft_task *steal_from_pool(weft__worker *w)
{
    weft_task *t = w->pool->ops->steal(w->pool, w->number);
    if (t)
        weft__count(&w->steals);
    return t;
}

static weft_task *steal(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    if (!w->searching && !(w->searching = weft__idle_search_begin(&rt->idle, rt->at_once)))
        return NULL;
    weft_task *t = w->pool ? steal_from_pool(w) : NULL;
    if (t)
        return t;
    uint32_t start = (uint32_t)(weft__rand(&w->rng) % rt->workers);
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *v = &rt->worker[(start + i) % rt->workers];
        t = v == w ? NULL : steal_from(w, v);
        if (t)
            return t;
    }
    return NULL;
}

/* One: when there is no stack for it, there is none for the others, and when there is,
 * go_to has the next one tried at once. */
void weft__retry_starved(weft__worker *w)
{
    weft__slink *l = weft__fifo_pop(&w->starved);
    if (WEFT__UNLIKELY(l != NULL))
        weft__ready_tail(w, weft__task_of_link(l));
}

/* From the queues, none of which can starve another: high priority goes first, but not
 * for ever. While tasks are long and so each pick is a look, the shared queue and the
 * own ones take turns, or a steady stream from outside would leave the own ones behind. */
static weft_task *pick_any(weft__worker *w)
{
    uint64_t tick = atom_load_rlx(&w->tick);
    weft_task *t = NULL;
    if (w->high_streak < HIGH_LIMIT && (t = weft__urgent_pop(&w->rt->high)) != NULL) {
        w->high_streak++;
        return t;
    }
    w->high_streak = 0;
    if (w->look_every == 1 && (tick & 2u))
        t = weft__pick_own(w, tick);
    if (!t)
        t = take_shared(w);
    if (!t)
        t = weft__pick_own(w, tick);
    return t ? t : weft__urgent_pop(&w->rt->high);
}

static bool has_more(weft__worker *w)
{
    return w->pool ? w->pool->ops->length(w->pool) != 0 : weft__runq_length(&w->runq) != 0;
}

weft_task *weft__look_around(weft__worker *w)
{
    adapt(w);
    run_timers(w);
    run_driver(w);
    drain_inbox(w);
    if (w->now >= w->starved_until)
        weft__retry_starved(w);
    weft_task *t = pick_any(w);
    if (!t && !w->solo)
        t = steal(w);
    w->rescue = false;
    if (!t || w->solo)
        return t;
    bool last = false;
    if (w->searching) {
        w->searching = false;
        last = weft__idle_search_end(&w->rt->idle);
    }
    w->unnotified = false;
    /* More than we can run now. For the last searcher the look comes after its count went
     * down: a submitter that relied on it has queued before it read the count. */
    if (last ? weft__work_for_all(w->rt) : has_more(w))
        weft__notify(w->rt);
    return t;
}

/* SPDX-License-Identifier: MIT
 *
 * crew.c -- who works for a runtime: the threads it starts for good, those it adds
 * while all are busy and lets go when idle, and those that the host lends.
 *
 * Worker places are made with the runtime and never move; a thread takes a free one
 * and gives it back. A place that nobody holds has an empty queue and empty caches;
 * its wheel may still hold deadlines, which the others serve as they serve each
 * other's.
 *
 * Who may touch what: `state` of a place and `online` under crew_lock; `online` may be
 * read without.
 */
#include "sched/worker.h"

#include <signal.h>
#include <stdio.h>

/* ---- Places ---- */

static void enter_place(weft__worker *w)
{
    const weft_runtime_hooks *h = &w->rt->hooks;
    w->idle_expired = false;
    atom_store_sc(&w->asleep, 0u);
    w->look_every = 1;
    w->now = weft__sys_now();
    if (h->start)
        h->start(h->arg, w->number);
}

/* What is queued here goes to the others, and so do the caches. */
static void empty_place(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    weft__fifo out;
    uint32_t n = 0;
    weft__fifo_init(&out);
    for (weft_task *t; (t = weft__worker_give_up(w)) != NULL; n++)
        weft__fifo_push(&out, &t->parker.link);
    if (n)
        weft__inject_many(rt, &out, n);
    weft__stack_cache_fini(&w->stacks);
    weft__task_cache_fini(&w->tasks, &rt->depot);
}

/* The last a worker does; the place is free, and `rt` may go, when it returns. */
static void leave_place(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    if (rt->hooks.stop)
        rt->hooks.stop(rt->hooks.arg, w->number);
    empty_place(w);
    atom_store_sc(&w->asleep, 1u);
    if (w->searching) {
        w->searching = false;
        weft__idle_search_end(&rt->idle);
    }
    /* It may have been the keeper, or what it gave up may wait: have one sleeper look,
     * and take the role. */
    weft__sleeper *s = weft__idle_pick_any(&rt->idle);
    if (s)
        weft__wake_sleeper(rt, s);
    weft__acquire(&rt->crew_lock);
    w->state = w->state == WEFT__PLACE_OWN ? WEFT__PLACE_ENDED : WEFT__PLACE_FREE;
    atom_sub_sc(&rt->online, 1u);
    weft__release(&rt->crew_lock);
    weft__sys_futex_wake(&rt->online, INT32_MAX); /* only the address: rt may be gone */
}

/* True: it ended because the runtime ends. */
static bool work(weft__worker *w)
{
    bool reports = w->rt->overflow_report && weft__overflow_enter_thread(w->rt->stacks) == 0;
    enter_place(w);
    weft__worker_loop(w);
    if (reports)
        weft__overflow_leave_thread();
    bool ends = atom_load_acq(&w->rt->stop) || atom_load_acq(&w->rt->closing);
    leave_place(w);
    return ends;
}

static void *worker_thread(void *arg)
{
    weft__worker *w = arg;
    char name[16];
    snprintf(name, sizeof name, "%s/%u", w->rt->name, w->number);
    pthread_setname_np(pthread_self(), name);
    work(w);
    return NULL;
}

/* Under crew_lock. */
static weft__worker *take_place(struct weft_runtime *rt, unsigned from, unsigned to,
                                enum weft__place state)
{
    for (unsigned i = from; i < to; i++) {
        weft__worker *w = &rt->worker[i];
        if (w->state == WEFT__PLACE_ENDED) {
            pthread_join(w->thread, NULL); /* it has left; nothing to wait for */
            w->state = WEFT__PLACE_FREE;
        }
        if (w->state == WEFT__PLACE_FREE) {
            w->state = state;
            atom_add_sc(&rt->online, 1u);
            return w;
        }
    }
    return NULL;
}

/* Under crew_lock. The threads take no part in the host's signals; the two that report
 * a stack overflow are synchronous and opened by weft__overflow_enter_thread. */
static int start_thread(weft__worker *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = -pthread_create(&w->thread, NULL, worker_thread, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r) {
        w->state = WEFT__PLACE_FREE;
        atom_sub_sc(&w->rt->online, 1u);
    }
    return r;
}

int weft__crew_start(struct weft_runtime *rt)
{
    int r = 0;
    weft__acquire(&rt->crew_lock);
    for (unsigned i = 0; i < rt->permanent && !r; i++)
        r = start_thread(take_place(rt, i, i + 1, WEFT__PLACE_OWN));
    weft__release(&rt->crew_lock);
    return r;
}

void weft__crew_grow(struct weft_runtime *rt)
{
    if (!weft__lock_try(&rt->crew_lock))
        return; /* somebody is at it; the next submission asks again */
    if (!atom_load_acq(&rt->stop)) {
        weft__worker *w = take_place(rt, rt->permanent, rt->own_places, WEFT__PLACE_OWN);
        if (w)
            start_thread(w); /* no thread now: those there are will do */
    }
    weft__release(&rt->crew_lock);
}

static void wake_places(struct weft_runtime *rt, unsigned from)
{
    for (unsigned i = from; i < rt->workers; i++)
        if (weft__idle_pick_this(&rt->idle, &rt->worker[i].sleeper))
            weft__wake_sleeper(rt, &rt->worker[i].sleeper);
}

void weft__crew_send_home(struct weft_runtime *rt)
{
    wake_places(rt, rt->own_places);
}

void weft__crew_stop(struct weft_runtime *rt)
{
    atom_store_sc(&rt->stop, 1u);
    wake_places(rt, 0);
    for (uint32_t n; (n = atom_load_acq(&rt->online)) != 0;)
        weft__sys_futex_wait(&rt->online, n, WEFT_NEVER);
    weft__acquire(&rt->crew_lock); /* the last to leave has let go of it */
    for (unsigned i = 0; i < rt->workers; i++)
        if (rt->worker[i].state == WEFT__PLACE_ENDED) {
            pthread_join(rt->worker[i].thread, NULL);
            rt->worker[i].state = WEFT__PLACE_FREE;
        }
    weft__release(&rt->crew_lock);
}

int weft__crew_lend(struct weft_runtime *rt, weft_time until, bool until_done)
{
    weft__acquire(&rt->crew_lock);
    bool ended = atom_load_acq(&rt->stop) || (atom_load_acq(&rt->closing) && !until_done);
    weft__worker *w = ended ? NULL : take_place(rt, rt->own_places, rt->workers, WEFT__PLACE_LENT);
    weft__release(&rt->crew_lock);
    if (!w)
        return ended ? -ESHUTDOWN : -EAGAIN;
    w->leave_at = until;
    w->until_done = until_done;
    return work(w) ? -ESHUTDOWN : -ETIMEDOUT; /* rt may be gone */
}

int weft_runtime_attach(weft_runtime *rt, weft_time deadline)
{
    if (!rt || rt->driven)
        return -EINVAL;
    if (!*rt->alive_page)
        return -ENXIO;
    if (weft__worker_self())
        return -EDEADLK;
    /* While it works here, the runtime must not go: free waits for `online`. */
    return weft__crew_lend(rt, deadline, false);
}

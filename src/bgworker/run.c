/* SPDX-License-Identifier: MIT
 *
 * run.c -- a seat that weft fills runs the loop again and again:
 *
 *   FREE -> RUNS -> (the loop returned) -> BACKOFF -> RUNS ...
 *                                       -> GIVEN_UP    too many failures in a row
 *                                       -> FREE        the worker stops
 *
 * A thread runs its loop again itself; so does a fiber, unless it was cancelled, which
 * cannot be undone: then it starts its successor.
 */
#include "bgworker/bgworker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- A seat's run ---- */

/* False: the worker stops. */
static bool run_begin(weft_seat *seat)
{
    weft_worker *w = seat->worker;
    weft__acquire(&w->lock);
    bool run = w->state == WEFT__WORKER_RUNS;
    if (run) {
        atom_store_rlx(&seat->leaving, 0u);
        seat->state = WEFT__SEAT_RUNS;
        seat->since = weft__sys_now();
        atom_store_rlx(&seat->completed, 0u);
    }
    weft__release(&w->lock);
    if (run) {
        weft__acquire(&seat->lock);
        seat->sitter = weft__self();
        seat->cancelled = false;
        weft__release(&seat->lock);
    }
    return run;
}

/* How many ns to wait before the next run; -1: the seat is given up. */
static weft_time judge(weft_seat *seat, int result, bool was_ready, weft_time lasted)
{
    weft_worker *w = seat->worker;
    const weft_worker_options *o = &w->options;
    bool worked = atom_load_rlx(&seat->completed) != 0;
    bool asked = atom_load_rlx(&seat->leaving) != 0;
    if (was_ready && (worked || lasted >= o->healthy_after))
        seat->failures = 0;
    if (was_ready && (result >= 0 || (asked && result == -ECANCELED))) {
        seat->failures = 0;
        /* A loop that comes and goes without doing anything must not spin. */
        return asked || worked || lasted >= o->backoff ? 0 : o->backoff;
    }
    if (asked && !was_ready)
        return 0; /* it had no time to get ready */
    seat->failures++;
    weft__acquire(&w->lock);
    w->failures++;
    weft__release(&w->lock);
    if (o->max_failures >= 0 && seat->failures > o->max_failures)
        return -1;
    weft_time n = seat->failures < 10000 ? seat->failures : 10000;
    return o->backoff > o->backoff_max / (n * n) ? o->backoff_max : n * n * o->backoff;
}

/* Waits out the back-off; a stop or a restart ends it. */
static void back_off(weft_seat *seat, weft_time ns)
{
    weft_worker *w = seat->worker;
    weft_time deadline = weft_after(ns);
    for (;;) {
        weft__acquire(&w->lock);
        uint32_t seen = w->changes;
        bool go = w->state != WEFT__WORKER_RUNS || atom_load_rlx(&seat->leaving);
        weft__release(&w->lock);
        if (go || weft__watch(w, seen, deadline, NULL, "worker back-off") != 0)
            return;
    }
}

void weft__seat_enter(weft_seat *seat, weft__seat_state state)
{
    weft_worker *w = seat->worker;
    weft__after after = {0};
    weft__acquire(&w->lock);
    weft__seat_state old = seat->state;
    seat->state = state;
    seat->since = weft__sys_now();
    bool over = state == WEFT__SEAT_FREE || state == WEFT__SEAT_GIVEN_UP;
    bool was_over = old == WEFT__SEAT_FREE || old == WEFT__SEAT_GIVEN_UP;
    if (state != WEFT__SEAT_RUNS)
        atom_store_rlx(&seat->leaving, 0u);
    if (over && !was_over)
        w->alive--;
    if (state == WEFT__SEAT_GIVEN_UP && old != state)
        w->given_up++;
    if (w->alive == 0 && w->given_up > 0)
        weft__release_queue(w, -EHOSTDOWN, &after);
    if (state == WEFT__SEAT_BACKOFF)
        w->restarts++;
    weft__changed(w, &after);
    weft__release(&w->lock);
    weft__after_run(&after);
}

/* A cancelled thread's mark is taken away, for its next run; a fiber's cannot be. */
static bool uncancel(weft_seat *seat)
{
    weft__acquire(&seat->lock);
    bool cancelled = seat->cancelled;
    seat->cancelled = false;
    weft__release(&seat->lock);
    if (seat->worker->options.runtime)
        return !weft_cancelled();
    if (cancelled)
        atom_store_rlx(&weft__self()->cancel, 0u); /* `sitter` is NULL: nobody sets it now */
    return true;
}

static int fiber_main(void *arg);

/* A cancelled fiber starts the next one in its place. */
static bool start_successor(weft_seat *seat)
{
    weft_worker *w = seat->worker;
    weft_spawn_options options = {.name = seat->label};
    weft__acquire(&w->lock);
    weft_task *old = seat->fiber;
    weft__release(&w->lock);
    weft_task *next = NULL;
    weft_worker_ref(w);
    if (weft_spawn(w->options.runtime, fiber_main, seat, &options, &next) != 0) {
        weft_worker_unref(w);
        return false;
    }
    weft__acquire(&w->lock);
    if (seat->fiber == old) {
        seat->fiber = next;
        next = NULL;
    }
    weft__release(&w->lock);
    weft_task_unref(next ? next : old);
    return true;
}

/* Runs the loop until the seat is over. */
static void sit(weft_seat *seat)
{
    weft_worker *w = seat->worker;
    while (run_begin(seat)) {
        weft_time start = weft__sys_now();
        int result = w->options.loop(seat, w->options.arg);
        bool was_ready = seat->ticked;
        weft__seat_end(seat, result);
        bool reusable = uncancel(seat);
        weft_time wait = judge(seat, result, was_ready, weft__sys_now() - start);
        if (wait < 0) {
            weft__seat_enter(seat, WEFT__SEAT_GIVEN_UP);
            return;
        }
        weft__seat_enter(seat, WEFT__SEAT_BACKOFF);
        if (!reusable) {
            if (!start_successor(seat))
                weft__seat_enter(seat, WEFT__SEAT_GIVEN_UP);
            return;
        }
        if (wait > 0)
            back_off(seat, wait);
    }
    weft__seat_enter(seat, WEFT__SEAT_FREE);
}

static void *thread_main(void *arg)
{
    weft_seat *seat = arg;
    weft_worker *w = seat->worker;
    sit(seat);
    weft_worker_unref(w);
    return NULL;
}

static int fiber_main(void *arg)
{
    thread_main(arg);
    return 0;
}

/* ---- Start ---- */

weft_seat *weft__seat_new(weft_worker *w, bool attached)
{
    /* Lines of their own: most of them are one processor's. */
    weft_seat *seat = weft__aligned_alloc(WEFT__APART, sizeof *seat);
    if (!seat)
        return NULL;
    memset(seat, 0, sizeof *seat);
    seat->worker = w;
    seat->attached = attached;
    weft__list_init(&seat->held);
    seat->state = WEFT__SEAT_RUNS;
    seat->since = weft__sys_now();
    return seat;
}

/* Under the lock. */
void weft__seat_add(weft_seat *seat)
{
    weft_worker *w = seat->worker;
    seat->index = w->count++;
    snprintf(seat->label, sizeof seat->label, "%.20s#%u", w->name, seat->index);
    weft__list_push(&w->seats, &seat->link);
    w->alive++;
}

static int seat_start_thread(weft_seat *seat)
{
    weft_worker *w = seat->worker;
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_attr_init(&attr);
    int r = w->options.stack_size ? pthread_attr_setstacksize(&attr, w->options.stack_size) : 0;
    if (r == 0) {
        sigfillset(&all); /* the host's signals are for the host's threads */
        pthread_sigmask(SIG_SETMASK, &all, &old);
        r = pthread_create(&seat->thread, &attr, thread_main, seat);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    pthread_attr_destroy(&attr);
    if (r)
        return r == EINVAL ? -EINVAL : -EAGAIN;
#ifdef __linux__
    char name[16];
    snprintf(name, sizeof name, "%.11s#%u", w->name, seat->index % 1000);
    pthread_setname_np(seat->thread, name);
#endif
    seat->has_thread = true;
    return 0;
}

int weft__seat_start(weft_worker *w)
{
    weft_seat *seat = weft__seat_new(w, false);
    if (!seat)
        return -ENOMEM;
    weft__acquire(&w->lock);
    weft__seat_add(seat);
    weft__release(&w->lock);
    weft_worker_ref(w);
    int r;
    if (w->options.runtime) {
        weft_spawn_options options = {.name = seat->label};
        weft_task *fiber = NULL;
        r = weft_spawn(w->options.runtime, fiber_main, seat, &options, &fiber);
        weft__acquire(&w->lock);
        if (r == 0 && !seat->fiber) {
            seat->fiber = fiber;
            fiber = NULL;
        }
        weft__release(&w->lock);
        weft_task_unref(fiber);
    } else {
        r = seat_start_thread(seat);
    }
    if (r) {
        weft__seat_enter(seat, WEFT__SEAT_FREE);
        weft_worker_unref(w);
    }
    return r;
}

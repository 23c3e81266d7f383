/* SPDX-License-Identifier: MIT
 *
 * leave.c -- restart and stop: both set `leaving` in each seat that runs, and wait until
 * none of these runs is left. When the grace is over, the waits of those that are still
 * there are cancelled; whoever waits for them does that, so there is no hidden thread.
 */
#include "bgworker/bgworker.h"

/* ---- Leaving: restart and stop ---- */

void weft__release_queue(weft_worker *w, int result, weft__after *after)
{
    weft__link *l;
    while ((l = weft__list_pop(&w->queue))) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        atom_store_rlx(&w->queued, atom_load_rlx(&w->queued) - 1);
        if (n->parker) {
            if (weft__node_claim(n, result))
                weft__wakes_add(&after->wakes, n->parker);
            continue;
        }
        weft__task *t = weft__container(n, weft__task, entry);
        if (!t->called)
            w->posted--;
        t->next = after->expired;
        after->expired = t;
        after->expired_as = WEFT_TASK_RELEASED;
    }
}

/* Asks every seat that runs to leave. */
static void ask_all(weft_worker *w, weft__after *after)
{
    weft__list_for (&w->seats, l) {
        weft_seat *seat = weft__seat_of(l);
        if (seat->state == WEFT__SEAT_RUNS)
            weft__seat_ask(seat, after);
        else if (seat->state == WEFT__SEAT_BACKOFF)
            atom_store_rlx(&seat->leaving, 1u); /* ends the back-off */
    }
    weft__changed(w, after);
}

/* The list of seats only grows while the worker lives, at its tail. */
static void interrupt_all(weft_worker *w)
{
    weft__acquire(&w->lock);
    weft__link *l = weft__list_first(&w->seats);
    while (l) {
        weft__release(&w->lock);
        weft__seat_interrupt(weft__seat_of(l));
        weft__acquire(&w->lock);
        l = l->next == &w->seats.head ? NULL : l->next;
    }
    weft__release(&w->lock);
}

/* Whether a run that was asked to leave is still there; names it. */
static bool runs_left(weft_worker *w, char *names, size_t size)
{
    bool left = false;
    weft__list_for (&w->seats, l) {
        const weft_seat *seat = weft__seat_of(l);
        if (seat->state != WEFT__SEAT_RUNS ||
            !atom_load_rlx((weft__a32 *)(uintptr_t)&seat->leaving))
            continue;
        left = true;
        weft__names_add(names, size, seat->label);
    }
    return left;
}

static bool sits_here(weft_worker *w)
{
    const weft__parker *self = weft__self();
    bool here = false;
    weft__acquire(&w->lock);
    weft__link *l = weft__list_first(&w->seats);
    while (l && !here) {
        weft_seat *seat = weft__seat_of(l);
        weft__release(&w->lock);
        weft__acquire(&seat->lock);
        here = seat->sitter == self;
        weft__release(&seat->lock);
        weft__acquire(&w->lock);
        l = l->next == &w->seats.head ? NULL : l->next;
    }
    weft__release(&w->lock);
    return here;
}

/* The grace is over: the waits of those that are still there are cancelled. */
static void cancel_runs(weft_worker *w)
{
    weft__acquire(&w->lock);
    weft__link *l = weft__list_first(&w->seats);
    while (l) {
        weft_seat *seat = weft__seat_of(l);
        bool run = seat->state == WEFT__SEAT_RUNS && atom_load_rlx(&seat->leaving);
        weft__release(&w->lock);
        weft__acquire(&seat->lock);
        if (run && seat->sitter && !seat->cancelled) {
            seat->cancelled = true;
            weft__cancel(seat->sitter);
        }
        weft__release(&seat->lock);
        weft__acquire(&w->lock);
        l = l->next == &w->seats.head ? NULL : l->next;
    }
    weft__release(&w->lock);
}

/* Waits until no asked run is left. */
static int await_runs(weft_worker *w, weft_time deadline, char *names, size_t size)
{
    weft_time grace_end = weft_after(w->options.grace);
    bool cancelled = false;
    for (;;) {
        weft__acquire(&w->lock);
        uint32_t seen = w->changes;
        bool left = runs_left(w, NULL, 0);
        weft__release(&w->lock);
        if (!left)
            return 0;
        weft_time until = cancelled || grace_end > deadline ? deadline : grace_end;
        int r = weft__watch(w, seen, until, NULL, "worker leave");
        if (r == -ETIMEDOUT && until == grace_end && !cancelled) {
            cancel_runs(w);
            cancelled = true;
            continue;
        }
        if (r) {
            weft__acquire(&w->lock);
            left = runs_left(w, names, size);
            weft__release(&w->lock);
            return left || r == -ECANCELED ? r : 0;
        }
    }
}

int weft_worker_restart(weft_worker *w, weft_time deadline, char *ret_names, size_t size)
{
    if (!w)
        return -EINVAL;
    if (ret_names && size)
        ret_names[0] = '\0';
    if (deadline != WEFT_TRY && sits_here(w))
        return -EDEADLK;
    weft__after after = {0};
    weft__acquire(&w->lock);
    int r = w->state != WEFT__WORKER_RUNS ? -ESHUTDOWN : 0;
    if (r == 0)
        ask_all(w, &after);
    weft__release(&w->lock);
    weft__after_run(&after);
    if (r)
        return r;
    interrupt_all(w);
    return await_runs(w, deadline, ret_names, size);
}

void weft__stop_begin(weft_worker *w)
{
    weft__after after = {0};
    weft__acquire(&w->lock);
    bool first = w->state == WEFT__WORKER_RUNS;
    if (first) {
        w->state = WEFT__WORKER_STOPS;
        weft__release_queue(w, -ESHUTDOWN, &after);
        ask_all(w, &after);
    }
    weft__release(&w->lock);
    weft__after_run(&after);
    if (first)
        interrupt_all(w);
}

/* All have left: joins them, and lets go of the name. */
static void join_all(weft_worker *w)
{
    for (weft__link *l = w->seats.head.next; l != &w->seats.head; l = l->next) {
        weft_seat *seat = weft__seat_of(l); /* no seat comes or goes any more */
        if (seat->has_thread) {
            pthread_join(seat->thread, NULL);
            seat->has_thread = false;
        }
        if (seat->fiber)
            weft_task_join(seat->fiber, WEFT_NEVER, NULL);
    }
    weft__registry_forget(w);
    weft__after after = {0};
    weft__acquire(&w->lock);
    w->state = WEFT__WORKER_STOPPED;
    weft__changed(w, &after);
    weft__release(&w->lock);
    weft__after_run(&after);
}

int weft__stop_end(weft_worker *w, weft_time deadline, char *names, size_t size)
{
    if (deadline != WEFT_TRY && sits_here(w))
        return -EDEADLK;
    int r = await_runs(w, deadline, names, size);
    while (r == 0) {
        weft__acquire(&w->lock);
        uint32_t seen = w->changes;
        weft__worker_state state = w->state;
        bool mine = state == WEFT__WORKER_STOPS && w->alive == 0 && !w->starting;
        if (mine)
            w->state = WEFT__WORKER_JOINS;
        weft__release(&w->lock);
        if (state == WEFT__WORKER_STOPPED)
            return 0;
        if (mine)
            join_all(w);
        else
            r = weft__watch(w, seen, deadline, NULL, "worker stop");
    }
    return r;
}

int weft_worker_stop(weft_worker *w, weft_time deadline, char *ret_names, size_t size)
{
    if (!w)
        return -EINVAL;
    if (ret_names && size)
        ret_names[0] = '\0';
    weft__stop_begin(w);
    return weft__stop_end(w, deadline, ret_names, size);
}

/* SPDX-License-Identifier: MIT
 *
 * worker.c -- the life of a worker and of its seats.
 *
 * A seat that weft fills runs the loop again and again:
 *
 *   FREE -> RUNS -> (the loop returned) -> BACKOFF -> RUNS ...
 *                                       -> GIVEN_UP    too many failures in a row
 *                                       -> FREE        the worker stops
 *
 * Restart and stop set `leaving` in each seat that runs and wait until none of these
 * runs is left. A thread runs its loop again itself; so does a fiber, unless it was
 * cancelled, which cannot be undone: then it starts its successor.
 *
 * Waiting for any of this is waiting for `changes` to move (weft__watch): whoever
 * changes something a watcher may wait for calls weft__changed under the lock.
 */
#include "bgworker/bgworker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

weft_seat *weft__seat_of(weft__link *l)
{
    return weft__container(l, weft_seat, link);
}

/* Appends to a comma-separated list; what does not fit ends it with "...". */
void weft__names_add(char *names, size_t size, const char *name)
{
    if (!names || size == 0)
        return;
    size_t used = strlen(names), need = strlen(name) + (used ? 2 : 0);
    if (used + need < size)
        snprintf(names + used, size - used, "%s%s", used ? ", " : "", name);
    else if (used + 4 <= size && (used < 3 || strcmp(names + used - 3, "...") != 0))
        memcpy(names + used, "...", 4);
}

/* ---- Watching ---- */

void weft__changed(weft_worker *w, weft__after *after)
{
    w->changes++;
    weft__link *l;
    while ((l = weft__list_pop(&w->watchers))) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        if (weft__node_claim(n, 0))
            weft__wakes_add(&after->wakes, n->parker);
    }
}

int weft__watch(weft_worker *w, uint32_t seen, weft_time deadline, weft_seat *from,
                const char *what)
{
    if (deadline == WEFT_TRY)
        return -EAGAIN;
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        return -ETIMEDOUT;
    weft__parker *self = weft__self();
    int r = weft__checkpoint(self);
    if (r == 0)
        r = weft__begin(from, self, what, w);
    if (r)
        return r;
    weft__wait_node n = {.parker = self};
    weft__acquire(&w->lock);
    bool changed = w->changes != seen;
    if (!changed)
        weft__list_push(&w->watchers, &n.link);
    weft__release(&w->lock);
    if (changed) {
        weft__unbegin(from, self);
        return 0;
    }
    uint32_t outcome = weft__wait_commit(self, deadline);
    weft__end(from);
    if (outcome == 0)
        return 0;
    weft__acquire(&w->lock);
    if (weft__linked(&n.link))
        weft__list_remove(&n.link);
    weft__release(&w->lock);
    return outcome == WEFT__TIMEDOUT ? -ETIMEDOUT : outcome == 1 ? -ESHUTDOWN : -ECANCELED;
}

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
    bool worked = atom_load_rlx(&seat->completed) > 0;
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

static void seat_state(weft_seat *seat, weft__seat_state state)
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
            seat_state(seat, WEFT__SEAT_GIVEN_UP);
            return;
        }
        seat_state(seat, WEFT__SEAT_BACKOFF);
        if (!reusable) {
            if (!start_successor(seat))
                seat_state(seat, WEFT__SEAT_GIVEN_UP);
            return;
        }
        if (wait > 0)
            back_off(seat, wait);
    }
    seat_state(seat, WEFT__SEAT_FREE);
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

static weft_seat *seat_new(weft_worker *w, bool attached)
{
    weft_seat *seat = weft__calloc(1, sizeof *seat);
    if (!seat)
        return NULL;
    seat->worker = w;
    seat->attached = attached;
    weft__list_init(&seat->held);
    seat->state = WEFT__SEAT_RUNS;
    seat->since = weft__sys_now();
    return seat;
}

/* Under the lock. */
static void seat_add(weft_seat *seat)
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

static int seat_start(weft_worker *w)
{
    weft_seat *seat = seat_new(w, false);
    if (!seat)
        return -ENOMEM;
    weft__acquire(&w->lock);
    seat_add(seat);
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
        seat_state(seat, WEFT__SEAT_FREE);
        weft_worker_unref(w);
    }
    return r;
}

static int options_ok(const char *name, const weft_worker_options *o)
{
    if (!weft__name_ok(name, false) || !weft__name_ok(o->scope, true) ||
        o->seats > WEFT_SEATS_MAX || (!o->loop && o->seats > 0) || o->backoff < 0 ||
        o->backoff_max < 0 || o->healthy_after < 0 || o->grace < 0)
        return -EINVAL;
    return 0;
}

static weft_worker *worker_new(weft_registry *reg, const char *name, const weft_worker_options *o)
{
    weft_worker *w = weft__aligned_alloc(WEFT__CACHE_LINE, sizeof *w);
    if (!w)
        return NULL;
    memset(w, 0, sizeof *w);
    w->reg = reg;
    atom_add_rlx(&reg->refs, 1u);
    w->refs.raw = 1;
    snprintf(w->name, sizeof w->name, "%s", name);
    snprintf(w->scope, sizeof w->scope, "%s", o->scope ? o->scope : "");
    w->options = *o;
    w->options.scope = w->scope;
    if (w->options.loop && w->options.seats == 0)
        w->options.seats = 1;
    if (w->options.backoff == 0)
        w->options.backoff = 100 * WEFT_MSEC;
    if (w->options.backoff_max == 0)
        w->options.backoff_max = 10 * WEFT_SEC;
    if (w->options.healthy_after == 0)
        w->options.healthy_after = 10 * WEFT_SEC;
    if (w->options.max_failures == 0)
        w->options.max_failures = 6;
    if (w->options.grace == 0)
        w->options.grace = WEFT_SEC;
    if (w->options.posted_max == 0)
        w->options.posted_max = 1024;
    weft__list *lists[] = {&w->queue, &w->awake, &w->parked, &w->watchers, &w->seats};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        weft__list_init(lists[i]);
    weft__spin_init(&w->receive_spin);
    weft__spin_init(&w->send_spin);
    weft__spin_init(&w->read_spin);
    return w;
}

int weft_worker_start(weft_registry *reg, const char *name, const weft_worker_options *options,
                      weft_worker **ret)
{
    static const weft_worker_options defaults;
    if (!options)
        options = &defaults;
    if (!reg || options_ok(name, options) != 0)
        return -EINVAL;
    weft_worker *w = worker_new(reg, name, options);
    if (!w)
        return -ENOMEM;
    int r = weft__registry_add(w);
    if (r == 0) {
        w->starting = true;
        for (unsigned i = 0; r == 0 && i < w->options.seats; i++)
            r = seat_start(w);
        weft__after after = {0};
        weft__acquire(&w->lock);
        w->starting = false;
        weft__changed(w, &after);
        weft__release(&w->lock);
        weft__after_run(&after);
        if (r)
            weft_worker_stop(w, WEFT_NEVER, NULL, 0);
    }
    if (r == 0 && ret)
        *ret = w;
    else
        weft_worker_unref(w);
    return r;
}

weft_worker *weft_worker_ref(weft_worker *w)
{
    if (w)
        atom_add_rlx(&w->refs, 1u);
    return w;
}

weft_worker *weft_worker_unref(weft_worker *w)
{
    if (!w || atom_sub_ar(&w->refs, 1u) != 1) /* pairs with the other unrefs */
        return NULL;
    weft__link *l;
    while ((l = weft__list_pop(&w->seats))) {
        weft_seat *seat = weft__seat_of(l);
        weft__signal_close(&seat->signal, &w->reg->pool);
        weft_task_unref(seat->fiber);
        weft__free(seat);
    }
    weft_buffer_unref(w->vars);
    weft__registry_unref(w->reg);
    weft__free(w);
    return NULL;
}

/* ---- Attached seats ---- */

/* Under the lock: an attached seat that nobody sits in any more. */
static weft_seat *free_seat(weft_worker *w)
{
    weft__list_for (&w->seats, l) {
        weft_seat *seat = weft__seat_of(l);
        if (seat->attached && seat->state == WEFT__SEAT_FREE)
            return seat;
    }
    return NULL;
}

int weft_worker_attach(weft_worker *w, weft_seat **ret)
{
    if (!w || !ret)
        return -EINVAL;
    weft_seat *fresh = seat_new(w, true);
    if (!fresh)
        return -ENOMEM;
    weft__after after = {0};
    weft__acquire(&w->lock);
    int r = w->state != WEFT__WORKER_RUNS ? -ESHUTDOWN : 0;
    weft_seat *seat = r ? NULL : free_seat(w);
    if (seat) {
        seat->state = WEFT__SEAT_RUNS;
        seat->since = weft__sys_now();
        atom_store_rlx(&seat->leaving, 0u);
        seat->boot_error = 0;
        w->alive++;
    } else if (r == 0 && w->count >= WEFT_SEATS_MAX) {
        r = -EAGAIN;
    } else if (r == 0) {
        seat = fresh;
        fresh = NULL;
        seat_add(seat);
    }
    weft__changed(w, &after);
    weft__release(&w->lock);
    weft__after_run(&after);
    weft__free(fresh);
    if (r)
        return r;
    weft_worker_ref(w); /* until the detach */
    *ret = seat;
    return 0;
}

weft_seat *weft_seat_detach(weft_seat *seat)
{
    if (!seat || !seat->attached)
        return NULL;
    weft_worker *w = seat->worker;
    weft__seat_end(seat, 0);
    seat_state(seat, WEFT__SEAT_FREE);
    weft_worker_unref(w);
    return NULL;
}

/* ---- Ready ---- */

int weft__ready_status(weft_worker *w)
{
    if (w->state != WEFT__WORKER_RUNS)
        return -ESHUTDOWN;
    int r = w->alive == 0 || w->starting ? -EAGAIN : 0;
    weft__list_for (&w->seats, l) {
        const weft_seat *seat = weft__seat_of(l);
        if (seat->state == WEFT__SEAT_GIVEN_UP)
            return seat->boot_error ? seat->boot_error : -EHOSTDOWN;
        if (seat->state == WEFT__SEAT_FREE || seat->is_ready)
            continue;
        if (seat->boot_error)
            return seat->boot_error;
        r = -EAGAIN;
    }
    return r;
}

int weft_worker_wait_ready(weft_worker *w, weft_time deadline)
{
    if (!w)
        return -EINVAL;
    for (;;) {
        weft__acquire(&w->lock);
        uint32_t seen = w->changes;
        int r = weft__ready_status(w);
        weft__release(&w->lock);
        if (r != -EAGAIN)
            return r;
        r = weft__watch(w, seen, deadline, NULL, "worker ready");
        if (r)
            return r;
    }
}

/* ---- Leaving: restart and stop ---- */

void weft__release_queue(weft_worker *w, int result, weft__after *after)
{
    weft__link *l;
    while ((l = weft__list_pop(&w->queue))) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        w->queued--;
        if (n->parker) {
            if (weft__node_claim(n, result))
                weft__wakes_add(&after->wakes, n->parker);
            continue;
        }
        weft__task *t = weft__container(n, weft__task, entry);
        w->posted--;
        t->next_expired = after->expired;
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

/* ---- Looking at it ---- */

const char *weft_worker_name(const weft_worker *w)
{
    return w ? w->name : "";
}

const char *weft_worker_scope(const weft_worker *w)
{
    return w ? w->scope : "";
}

int weft_worker_get_stats(weft_worker *w, weft_worker_stats *ret)
{
    if (!w || !ret)
        return -EINVAL;
    weft_worker_stats s = {0};
    for (int i = 1; i < WEFT_TASK_OUTCOMES; i++)
        s.outcomes[i] = atom_load_rlx(&w->outcomes[i]);
    s.task_ns = atom_load_rlx(&w->task_ns);
    s.busy = atom_load_rlx(&w->busy);
    weft__acquire(&w->lock);
    s.sent = w->sent;
    s.restarts = w->restarts;
    s.failures = w->failures;
    s.fallback_wakes = w->fallback_wakes;
    s.late_wakes = w->late_wakes;
    s.seats = w->alive;
    s.ready = w->ready;
    s.queued = w->queued;
    s.given_up = w->given_up;
    weft__release(&w->lock);
    *ret = s;
    return 0;
}

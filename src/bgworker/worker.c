/* SPDX-License-Identifier: MIT
 *
 * worker.c -- a worker: start, attached seats, ready points, watching, figures.
 *
 * Waiting for anything about a worker but a task is waiting for `changes` to move
 * (weft__watch): whoever changes something a watcher may wait for calls weft__changed
 * under the lock.
 */
#include "bgworker/bgworker.h"

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

/* ---- Start ---- */

static int options_ok(const char *name, const weft_worker_options *o)
{
    if (!weft__name_ok(name, false) || !weft__name_ok(o->scope, true) ||
        o->seats > WEFT_SEATS_MAX || (!o->loop && o->seats > 0) || o->backoff < 0 ||
        o->backoff_max < 0 || o->healthy_after < 0 || o->grace < 0)
        return -EINVAL;
    return 0;
}

/* Threads share one; fibers have one for each worker of their runtime. */
static uint32_t lanes_for(const weft_worker_options *o)
{
    uint32_t lanes = 1;
    while (lanes < WEFT__LANES_MAX && lanes < weft__places_of(o->runtime))
        lanes *= 2;
    return lanes;
}

static void lanes_init(weft_worker *w, uint32_t lanes)
{
    w->lanes = (weft__lane *)(void *)(w + 1);
    w->lane_mask = lanes - 1;
    w->memory.raw = lanes;
    for (uint32_t i = 0; i < lanes; i++) {
        weft__lane *lane = &w->lanes[i];
        lane->worker = w;
        lane->index = i;
        lane->live = 1;
        weft__list_init(&lane->awake);
        weft__list_init(&lane->parked);
    }
}

static weft_worker *worker_new(weft_registry *reg, const char *name, const weft_worker_options *o)
{
    uint32_t lanes = lanes_for(o);
    size_t size = sizeof(weft_worker) + lanes * sizeof(weft__lane);
    weft_worker *w = weft__aligned_alloc(WEFT__APART, size);
    if (!w)
        return NULL;
    memset(w, 0, size);
    lanes_init(w, lanes);
    w->reg = reg;
    atom_add_rlx(&reg->refs, 1u);
    w->refs.raw = 1;
    w->first_id = ((uint64_t)atom_add_rlx(&reg->next_worker, 1u) << 40) + 1;
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
    weft__list *lists[] = {&w->queue, &w->armed, &w->watchers, &w->seats};
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
            r = weft__seat_start(w);
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
    if (w && atom_sub_ar(&w->refs, 1u) == 1) /* pairs with the other unrefs */
        weft__lanes_close(w);
    return NULL;
}

void weft__worker_destroy(weft_worker *w)
{
    for (uint32_t i = 0; i <= w->lane_mask; i++)
        for (weft__task *t; (t = w->lanes[i].spare);) {
            w->lanes[i].spare = t->next;
            weft__free(t);
        }
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
    weft_seat *fresh = weft__seat_new(w, true);
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
        weft__seat_add(seat);
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
    weft__seat_enter(seat, WEFT__SEAT_FREE);
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

/* ---- Looking at it ---- */

const char *weft_worker_name(const weft_worker *w)
{
    return w ? w->name : "";
}

const char *weft_worker_scope(const weft_worker *w)
{
    return w ? w->scope : "";
}

static bool is_busy(weft_seat *seat)
{
    return atom_load_rlx(&seat->slot_open) || atom_load_rlx(&seat->held_open);
}

int weft_worker_get_stats(weft_worker *w, weft_worker_stats *ret)
{
    if (!w || !ret)
        return -EINVAL;
    weft_worker_stats s = {0};
    for (uint32_t k = 0; k <= w->lane_mask; k++) {
        weft__lane *lane = &w->lanes[k];
        for (int i = 1; i < WEFT_TASK_OUTCOMES; i++)
            s.outcomes[i] += atom_load_rlx(&lane->outcomes[i]);
        s.task_ns += atom_load_rlx(&lane->task_ns);
        s.sent += atom_load_rlx(&lane->sent);
    }
    weft__acquire(&w->lock);
    s.sent += w->sent;
    s.restarts = w->restarts;
    s.failures = w->failures;
    s.fallback_wakes = w->fallback_wakes;
    s.late_wakes = w->late_wakes;
    s.seats = w->alive;
    s.ready = w->ready;
    s.queued = atom_load_rlx(&w->queued);
    s.given_up = w->given_up;
    weft__list_for (&w->seats, l) {
        weft_seat *seat = weft__seat_of(l);
        s.busy += is_busy(seat);
        s.outcomes[WEFT_TASK_COMPLETED] += atom_load_rlx(&seat->done);
        s.task_ns += atom_load_rlx(&seat->done_ns);
    }
    weft__release(&w->lock);
    *ret = s;
    return 0;
}

static weft_seat_state state_of(const weft_seat *seat, bool busy)
{
    switch (seat->state) {
    case WEFT__SEAT_RUNS:
        return atom_load_rlx((weft__a32 *)(uintptr_t)&seat->leaving) ? WEFT_SEAT_LEAVING
               : busy                                                ? WEFT_SEAT_BUSY
               : seat->is_ready                                      ? WEFT_SEAT_READY
                                                                     : WEFT_SEAT_STARTING;
    case WEFT__SEAT_BACKOFF:
        return WEFT_SEAT_BACKOFF;
    case WEFT__SEAT_GIVEN_UP:
        return WEFT_SEAT_GIVEN_UP;
    default:
        return WEFT_SEAT_FREE;
    }
}

int weft_worker_get_seats(weft_worker *w, weft_seat_info *infos, unsigned count)
{
    if (!w || (!infos && count))
        return -EINVAL;
    unsigned n = 0;
    weft__acquire(&w->lock);
    weft__list_for (&w->seats, l) {
        weft_seat *seat = weft__seat_of(l);
        if (n++ >= count)
            continue;
        bool busy = is_busy(seat);
        infos[n - 1] = (weft_seat_info){
            .index = seat->index,
            .state = state_of(seat, busy),
            .kind = seat->attached       ? "attached"
                    : w->options.runtime ? "fiber"
                                         : "thread",
            .since = seat->since,
            .task = busy ? atom_load_rlx(&seat->first_id) : 0,
            .task_at = busy ? (weft_time)atom_load_rlx(&seat->first_at) : 0,
        };
    }
    weft__release(&w->lock);
    return (int)n;
}

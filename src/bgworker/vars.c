/* SPDX-License-Identifier: MIT
 *
 * vars.c -- published variables, and waiting for another worker's ready point.
 *
 * A snapshot is one buffer that is replaced under the lock: a reader gets a reference
 * to the old one or to the new one.
 *
 * A seat that is not ready yet and waits for another worker holds up its own worker's
 * ready point. Such waits are edges between workers (seat->waits_for, under reg->lock);
 * one that would close a circle is refused at once. A worker whose seats are all ready
 * holds nobody up, so its waits are no edges.
 */
#include "bgworker/bgworker.h"

/* Whether `w` waits for `target`, perhaps through others. The graph has no circle, for
 * none is ever added, so each path ends; `depth` bounds it all the same. Under
 * reg->lock. */
static bool waits_for(weft_worker *w, weft_worker *target, int depth)
{
    if (w == target || depth == 0)
        return true;
    bool found = false;
    weft__acquire(&w->lock);
    weft__link *l = weft__list_first(&w->seats);
    while (l && !found) {
        weft_worker *next = weft__seat_of(l)->waits_for;
        weft__release(&w->lock);
        found = next && waits_for(next, target, depth - 1);
        weft__acquire(&w->lock);
        l = l->next == &w->seats.head ? NULL : l->next;
    }
    weft__release(&w->lock);
    return found;
}

/* Adds the edge; -EDEADLK when it would close a circle. */
static int edge_add(weft_seat *seat, weft_worker *target)
{
    if (!seat || seat->ticked)
        return 0;
    weft_registry *reg = seat->worker->reg;
    weft__acquire(&reg->lock);
    int r = waits_for(target, seat->worker, 64) ? -EDEADLK : 0;
    if (r == 0)
        seat->waits_for = target;
    weft__release(&reg->lock);
    return r;
}

static void edge_remove(weft_seat *seat)
{
    if (!seat)
        return;
    weft__acquire(&seat->worker->reg->lock);
    seat->waits_for = NULL;
    weft__release(&seat->worker->reg->lock);
}

int weft_seat_publish(weft_seat *seat, weft_buffer *vars)
{
    if (!seat)
        return -EINVAL;
    weft_worker *w = seat->worker;
    weft__after after = {0};
    weft__acquire(&w->lock);
    weft_buffer *old = w->vars;
    w->vars = vars;
    w->published = true;
    weft__changed(w, &after);
    weft__release(&w->lock);
    weft__after_run(&after);
    weft_buffer_unref(old);
    return 0;
}

/* Under the lock: 0, with a reference; -EAGAIN; or why never. */
static int vars_status(weft_worker *w, weft_buffer **ret)
{
    if (w->published) {
        *ret = weft_buffer_ref(w->vars);
        return 0;
    }
    if (w->state != WEFT__WORKER_RUNS)
        return -ESHUTDOWN;
    int r = weft__ready_status(w);
    if (r == 0)
        return -ENODATA;
    /* A run that failed before it was ready is started again: the next may publish. */
    return w->alive == 0 && w->given_up > 0 ? -EHOSTDOWN : -EAGAIN;
}

/* Waits for the worker's variables (ret) or for its ready point (ret == NULL). */
static int wait_for(weft_worker *w, weft_seat *from, weft_time deadline, weft_buffer **ret)
{
    bool edge = false;
    int r;
    for (;;) {
        weft__acquire(&w->lock);
        uint32_t seen = w->changes;
        r = ret ? vars_status(w, ret) : weft__ready_status(w);
        weft__release(&w->lock);
        if (r != -EAGAIN || deadline == WEFT_TRY)
            break;
        if (!edge) {
            r = edge_add(from, w);
            if (r)
                break;
            edge = true;
        }
        r = weft__watch(w, seen, deadline, from, ret ? "worker vars" : "worker ready");
        if (r)
            break;
    }
    if (edge)
        edge_remove(from);
    return r;
}

int weft_registry_vars(weft_registry *reg, const char *scope, const char *name, weft_time deadline,
                       weft_buffer **ret)
{
    weft_worker *w;
    if (!ret)
        return -EINVAL;
    int r = weft_registry_find(reg, scope, name, &w);
    if (r == 0) {
        r = wait_for(w, NULL, deadline, ret);
        weft_worker_unref(w);
    }
    return r;
}

int weft_seat_vars(weft_seat *seat, const char *name, weft_time deadline, weft_buffer **ret)
{
    weft_worker *w;
    if (!seat || !ret)
        return -EINVAL;
    int r = weft_registry_find(seat->worker->reg, seat->worker->scope, name, &w);
    if (r == 0) {
        r = wait_for(w, seat, deadline, ret);
        weft_worker_unref(w);
    }
    return r;
}

int weft_seat_wait_ready(weft_seat *seat, const char *name, weft_time deadline)
{
    weft_worker *w;
    if (!seat)
        return -EINVAL;
    int r = weft_registry_find(seat->worker->reg, seat->worker->scope, name, &w);
    if (r == 0) {
        r = wait_for(w, seat, deadline, NULL);
        weft_worker_unref(w);
    }
    return r;
}

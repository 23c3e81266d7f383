/* SPDX-License-Identifier: MIT
 *
 * seat.c -- inside a loop: tick, receive, the descriptor; and who is woken for a task.
 * The invariants Q1 to Q5 are in bgworker.h.
 *
 * A seat waits in a lane (lane.c), or, with a loop of its own around poll(), in the list
 * of the armed ones, from which it is woken through its descriptor.
 */
#include "bgworker/bgworker.h"

void weft__after_run(weft__after *after)
{
    weft__wakes_run(&after->wakes);
    for (weft__signal *s = after->signals; s;) {
        weft__signal *next = s->next; /* read before: once written it may be raised again */
        weft__signal_write(s);
        s = next;
    }
    weft_task_outcome outcome = after->expired_as ? after->expired_as : WEFT_TASK_TIMEOUT;
    for (weft__task *t = after->expired; t;) {
        weft__task *next = t->next;
        weft__task_expire(t, outcome);
        weft__task_unref(t); /* the queue's */
        t = next;
    }
}

/* ---- Wake-ups ---- */

void weft__notify_one(weft_worker *w, weft__after *after)
{
    weft__link *l = weft__list_pop(&w->armed);
    if (!l)
        return;
    weft_seat *seat = weft__container(l, weft_seat, arm);
    weft__after_raise(after, &seat->signal);
    if (!seat->notified) {
        seat->notified = true;
        w->notified++;
    }
}

void weft__pass_on(weft_worker *w, weft__after *after)
{
    if (atom_load_rlx(&w->queued))
        weft__notify_one(w, after);
}

/* The seat has come to look. */
static void arrived(weft_seat *seat)
{
    if (seat->notified) {
        seat->notified = false;
        seat->worker->notified--;
    }
}

/* The seat has come, and does not wait any more. */
static void came(weft_seat *seat)
{
    arrived(seat);
    if (weft__linked(&seat->arm))
        weft__list_remove(&seat->arm);
}

static void arm(weft_seat *seat)
{
    if (!weft__linked(&seat->arm))
        weft__list_push(&seat->worker->armed, &seat->arm);
}

/* ---- Leaving ---- */

static bool leaving(const weft_seat *seat)
{
    /* Pairs with weft__seat_ask. */
    return atom_load_acq((weft__a32 *)(uintptr_t)&seat->leaving) != 0;
}

void weft__seat_ask(weft_seat *seat, weft__after *after)
{
    weft_worker *w = seat->worker;
    atom_store_rel(&seat->leaving, 1u); /* pairs with leaving() */
    if (weft__linked(&seat->arm))
        weft__list_remove(&seat->arm);
    for (uint32_t i = 0; i <= w->lane_mask; i++) /* Q6 */
        if (weft__lane_expel(&w->lanes[i], seat))
            weft__wakes_add(&after->wakes, seat->node.parker);
    weft__after_raise(after, &seat->signal);
}

void weft__seat_interrupt(weft_seat *seat)
{
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&seat->lock);
    weft__parker *p = seat->interruptible;
    if (p && weft__claim(p, 1))
        weft__wakes_add(&wakes, p);
    weft__release(&seat->lock);
    weft__wakes_run(&wakes);
}

int weft__begin(weft_seat *from, weft__parker *self, const char *what, const void *object)
{
    if (!from) {
        weft__wait_begin(self, what, object);
        return 0;
    }
    weft__acquire(&from->lock);
    int r = leaving(from) ? -ESHUTDOWN : 0;
    if (r == 0) {
        weft__wait_begin(self, what, object);
        from->interruptible = self;
    }
    weft__release(&from->lock);
    return r;
}

void weft__end(weft_seat *from)
{
    if (!from)
        return;
    weft__acquire(&from->lock);
    from->interruptible = NULL;
    weft__release(&from->lock);
}

void weft__unbegin(weft_seat *from, weft__parker *self)
{
    if (!weft__claim(self, 0))
        weft__wait_commit(self, WEFT_NEVER); /* its unpark is on its way: consume it */
    weft__end(from);
}

/* ---- Descriptor ---- */

/* A seat with a descriptor has found the queue empty: arm it. Entered with the lock held,
 * leaves it. */
static void arm_or_stay_readable(weft_seat *seat)
{
    weft_worker *w = seat->worker;
    bool up = seat->signal.up;
    arrived(seat);
    if (!up)
        arm(seat);
    weft__release(&w->lock);
    if (!up || !weft__signal_drain(&seat->signal))
        return; /* armed; or the token is still on its way, and readable is right */
    weft__after after = {0};
    weft__acquire(&w->lock);
    seat->signal.up = false;
    if (atom_load_rlx(&w->queued) || leaving(seat))
        weft__after_raise(&after, &seat->signal);
    else
        arm(seat);
    weft__release(&w->lock);
    weft__after_run(&after);
}

int weft_seat_fd(weft_seat *seat)
{
    if (!seat)
        return -EINVAL;
    weft_worker *w = seat->worker;
    if (!seat->signal.made) {
        int r = weft__signal_open(&seat->signal, &w->reg->pool, &w->lock);
        if (r)
            return r;
        weft__after after = {0};
        weft__acquire(&w->lock);
        weft__after_raise(&after, &seat->signal); /* Q5: not armed, so readable */
        weft__release(&w->lock);
        weft__after_run(&after);
    }
    return seat->signal.fd;
}

/* ---- Tick and receive ---- */

static void mark_ready(weft_seat *seat)
{
    weft_worker *w = seat->worker;
    weft__after after = {0};
    weft__acquire(&w->lock);
    seat->is_ready = true;
    seat->boot_error = 0;
    w->ready++;
    weft__changed(w, &after);
    weft__release(&w->lock);
    weft__after_run(&after);
    seat->ticked = true;
    if (w->reg->hooks.seat_ready)
        w->reg->hooks.seat_ready(w->reg->hooks_arg, w, seat->index);
}

bool weft_seat_tick(weft_seat *seat)
{
    if (!seat)
        return false;
    if (WEFT__UNLIKELY(!seat->ticked))
        mark_ready(seat);
    weft_worker *w = seat->worker;
    /* A cancelled fiber (its runtime ends) can wait for nothing any more. */
    if (leaving(seat) || weft_cancelled()) {
        weft__after after = {0};
        weft__acquire(&w->lock);
        came(seat);
        weft__pass_on(w, &after);
        weft__release(&w->lock);
        weft__after_run(&after);
        return false;
    }
    if (seat->signal.made) {
        weft__after after = {0};
        weft__acquire(&w->lock);
        if (atom_load_rlx(&w->queued)) { /* Q5: the coming poll returns at once */
            came(seat);
            weft__after_raise(&after, &seat->signal);
            weft__release(&w->lock);
            weft__after_run(&after);
        } else {
            arm_or_stay_readable(seat);
        }
    }
    return true;
}

weft__task *weft__take(weft_worker *w, weft__after *after)
{
    weft__link *l;
    while ((l = weft__list_pop(&w->queue))) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        weft__task *t = weft__container(n, weft__task, entry);
        atom_store_rlx(&w->queued, atom_load_rlx(&w->queued) - 1);
        if (n->parker) {
            if (!weft__node_claim(n, 0))
                continue; /* given up; its sender finds it unlinked */
            weft__wakes_add(&after->wakes, n->parker);
            return t;
        }
        if (!t->called)
            w->posted--;
        if (t->pickup_deadline == WEFT_NEVER || weft__sys_now() < t->pickup_deadline)
            return t; /* the queue's reference is the receiver's from now on */
        t->next = after->expired;
        after->expired = t;
    }
    return NULL;
}

/* One look at the queue. Entered with the lock held, leaves it. 0: a task is in *ret, or
 * the caller is to look again; -EAGAIN: there is nothing. */
static int look(weft_seat *seat, weft_time deadline, weft__task **ret)
{
    weft_worker *w = seat->worker;
    weft__after after = {0};
    arrived(seat);
    weft__task *t = weft__take(w, &after);
    if (t) {
        /* With a task in hand a seat is not armed any more, so Q5 wants it readable. */
        came(seat);
        weft__after_raise(&after, &seat->signal);
        weft__seat_give(seat, t);
        weft__release(&w->lock);
        t->picked_at = weft__sys_now();
        weft__task_hold(t, seat); /* before its sender runs on */
        weft__after_run(&after);
        *ret = t;
        return 0;
    }
    if (after.expired) {
        weft__release(&w->lock);
        weft__after_run(&after);
        return 0;
    }
    if (deadline == WEFT_TRY && !leaving(seat) && seat->signal.made) {
        arm_or_stay_readable(seat);
    } else {
        if (deadline != WEFT_TRY || leaving(seat))
            came(seat); /* if it was armed: it waits in a lane now, or for nothing */
        weft__release(&w->lock);
    }
    return -EAGAIN;
}

/* Waits in a lane until it is given a task. 0: it is in *ret, or look again. */
static int wait_for_task(weft_seat *seat, weft__parker *self, weft_time deadline, weft__task **ret)
{
    weft_worker *w = seat->worker;
    bool spins = w->reg->spins && !weft_task_self(); /* a fiber's worker has others */
    weft__wait_node *n = &seat->node;
    n->parker = self;
    n->index = 0;
    weft__wait_begin(self, "task receive", w);
    weft__lane *lane = weft__lane_enter(seat, weft__here(self), spins);
    if (!lane) {
        weft__unbegin(NULL, self);
        return 0;
    }
    if (spins && !weft__spin_wait(&w->receive_spin, self))
        weft__lane_sleeps(lane, seat);
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (outcome == 0) {
        weft__task *t = seat->given;
        if (t) {
            t->picked_at = weft__sys_now();
            weft__task_hold(t, seat);
            *ret = t;
        }
        return n->result;
    }
    weft__lane_leave(lane, seat);
    return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

/* It has waited in a lane, and is not armed: Q5 wants it readable. */
static void stay_readable(weft_seat *seat)
{
    weft__after after = {0};
    weft__acquire(&seat->worker->lock);
    weft__after_raise(&after, &seat->signal);
    weft__release(&seat->worker->lock);
    weft__after_run(&after);
}

int weft_seat_receive(weft_seat *seat, weft_time deadline, weft_received **ret)
{
    if (!seat || !ret)
        return -EINVAL;
    weft_worker *w = seat->worker;
    weft__parker *self = NULL;
    int r = 0;
    if (deadline != WEFT_TRY) {
        self = weft__self();
        r = weft__checkpoint(self);
        atom_store_rlx(&seat->sits, self);
    }
    weft__task *t = NULL;
    while (r == 0 && !t) {
        if (!self || seat->signal.made || atom_load_rlx(&w->queued)) {
            weft__acquire(&w->lock);
            if (look(seat, deadline, &t) == 0)
                continue;
        }
        if (leaving(seat))
            r = -ESHUTDOWN;
        else if (!self)
            r = -EAGAIN;
        else if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
            r = -ETIMEDOUT;
        else
            r = wait_for_task(seat, self, deadline, &t);
        if (self && seat->signal.made)
            stay_readable(seat);
    }
    if (r == 0)
        *ret = (weft_received *)(void *)t;
    return r;
}

/* ---- The end of a run ---- */

void weft__seat_end(weft_seat *seat, int result)
{
    weft_worker *w = seat->worker;
    weft__task *t = atom_load_acq(&seat->slot); /* pairs with the store that clears it */
    if (t) {
        weft__task_abort(t);
        atom_store_rlx(&seat->slot, NULL);
        weft__task_unref(t);
    }
    for (;;) { /* what else the loop left open */
        weft__acquire(&seat->lock);
        weft__link *l = weft__list_pop(&seat->held);
        weft__release(&seat->lock);
        if (!l)
            break;
        t = weft__container(l, weft__task, hold);
        weft__task_abort(t);
        weft__task_unref(t);
    }
    weft__acquire(&seat->lock);
    seat->sitter = NULL; /* nobody cancels us from here on */
    weft__release(&seat->lock);

    weft__after after = {0};
    weft__acquire(&w->lock);
    came(seat);
    weft__after_raise(&after, &seat->signal); /* the next run's first poll returns */
    if (seat->is_ready)
        w->ready--;
    else
        seat->boot_error = result < 0 ? result : -ECHILD;
    seat->is_ready = seat->ticked = false;
    atom_store_rlx(&seat->sits, NULL);
    weft__pass_on(w, &after); /* Q4 */
    weft__release(&w->lock);
    weft__after_run(&after);
    if (w->reg->hooks.seat_ended)
        w->reg->hooks.seat_ended(w->reg->hooks_arg, w, seat->index, result);
}

weft_worker *weft_seat_worker(const weft_seat *seat)
{
    return seat ? seat->worker : NULL;
}

unsigned weft_seat_index(const weft_seat *seat)
{
    return seat ? seat->index : 0;
}

/* SPDX-License-Identifier: MIT
 *
 * seat.c -- inside a loop: tick, receive, the descriptor; and who is woken for a task.
 * The invariants Q1 to Q5 are in bgworker.h.
 *
 * Whom a send wakes: first a thread that is awake and looks (spin.h), for that needs no
 * system call; else the one that has waited longest, which goes round the pool. Both
 * lists hold the seats' wait nodes; a node without a parker is a seat that waits in a
 * poll loop of its own and is woken through its descriptor.
 */
#include "bgworker/bgworker.h"

static weft_seat *of_node(weft__link *l)
{
    return weft__container(weft__container(l, weft__wait_node, link), weft_seat, node);
}

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
        weft__task *next = t->next_expired;
        weft__task_expire(t, outcome);
        weft__task_unref(t); /* the queue's */
        t = next;
    }
}

/* ---- Wake-ups ---- */

static bool notify_from(weft_worker *w, weft__list *waiting, weft__after *after)
{
    weft__link *l;
    while ((l = weft__list_pop(waiting))) {
        weft_seat *seat = of_node(l);
        if (!seat->node.parker) {
            weft__after_raise(after, &seat->signal);
        } else if (weft__node_claim(&seat->node, 0)) {
            weft__wakes_add(&after->wakes, seat->node.parker);
            seat->coming = true;
            w->coming++;
        } else {
            continue; /* its wait has ended otherwise; it is on its way out */
        }
        if (!seat->notified) {
            seat->notified = true;
            w->notified++;
        }
        return true;
    }
    return false;
}

void weft__notify_one(weft_worker *w, weft__after *after)
{
    if (!notify_from(w, &w->awake, after))
        notify_from(w, &w->parked, after);
}

void weft__pass_on(weft_worker *w, weft__after *after)
{
    if (w->queued > w->coming)
        weft__notify_one(w, after);
}

/* The seat has come to look. */
static void arrived(weft_seat *seat)
{
    if (seat->notified) {
        seat->notified = false;
        seat->worker->notified--;
    }
    if (seat->coming) {
        seat->coming = false;
        seat->worker->coming--;
    }
}

/* The seat has come, and does not wait any more. */
static void came(weft_seat *seat)
{
    arrived(seat);
    if (weft__linked(&seat->node.link))
        weft__list_remove(&seat->node.link);
}

/* ---- Leaving ---- */

static bool leaving(const weft_seat *seat)
{
    /* Pairs with weft__seat_ask. */
    return atom_load_acq((weft__a32 *)(uintptr_t)&seat->leaving) != 0;
}

void weft__seat_ask(weft_seat *seat, weft__after *after)
{
    atom_store_rel(&seat->leaving, 1u); /* pairs with leaving() */
    if (weft__linked(&seat->node.link)) {
        weft__list_remove(&seat->node.link);
        if (seat->node.parker && weft__node_claim(&seat->node, -ESHUTDOWN))
            weft__wakes_add(&after->wakes, seat->node.parker);
    }
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
    if (!up && !weft__linked(&seat->node.link)) {
        seat->node.parker = NULL;
        weft__list_push(&w->parked, &seat->node.link);
    }
    weft__release(&w->lock);
    if (!up || !weft__signal_drain(&seat->signal))
        return; /* armed; or the token is still on its way, and readable is right */
    weft__after after = {0};
    weft__acquire(&w->lock);
    seat->signal.up = false;
    if (w->queued > 0 || leaving(seat)) {
        weft__after_raise(&after, &seat->signal);
    } else if (!weft__linked(&seat->node.link)) {
        seat->node.parker = NULL;
        weft__list_push(&w->parked, &seat->node.link);
    }
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
        if (w->queued > 0) { /* Q2: the coming poll returns at once */
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

/* The first entry that can be claimed; Q1. */
static weft__task *take(weft_worker *w, weft__after *after)
{
    weft__link *l;
    while ((l = weft__list_pop(&w->queue))) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        weft__task *t = weft__container(n, weft__task, entry);
        w->queued--;
        if (n->parker) {
            if (!weft__node_claim(n, 0))
                continue;               /* given up; its sender finds it unlinked */
            atom_add_rlx(&t->refs, 1u); /* before the unpark that lets the sender go */
            weft__wakes_add(&after->wakes, n->parker);
            return t;
        }
        if (!t->called)
            w->posted--;
        if (t->pickup_deadline == WEFT_NEVER || weft__sys_now() < t->pickup_deadline)
            return t; /* the queue's reference is the receiver's from now on */
        t->next_expired = after->expired;
        after->expired = t;
    }
    return NULL;
}

/* With a task in hand a seat is not armed any more, so Q5 wants it readable. */
static void taken(weft_seat *seat, weft__task *t, weft__after *after)
{
    came(seat);
    weft__after_raise(after, &seat->signal);
    t->seat = seat;
}

/* Waits until woken; entered with the lock held and the queue empty, leaves it. 0: look
 * again; else why not. */
static int wait_for_task(weft_seat *seat, weft_time deadline)
{
    weft_worker *w = seat->worker;
    weft__parker *self = weft__self();
    came(seat); /* if it was armed: it waits here now */
    weft__wait_node *n = &seat->node;
    n->parker = self;
    n->index = 0;
    weft__wait_begin(self, "task receive", w);
    bool spins = w->reg->spins;
    weft__list_push(spins ? &w->awake : &w->parked, &n->link);
    weft__release(&w->lock);

    if (spins && !weft__spin_wait(&w->receive_spin, self)) {
        weft__acquire(&w->lock);
        if (weft__linked(&n->link)) {
            weft__list_remove(&n->link);
            weft__list_push(&w->parked, &n->link);
        }
        weft__release(&w->lock);
    }
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (outcome == 0)
        return n->result;
    weft__after after = {0};
    weft__acquire(&w->lock);
    came(seat);
    weft__after_raise(&after, &seat->signal); /* Q5 */
    weft__release(&w->lock);
    weft__after_run(&after);
    return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

int weft_seat_receive(weft_seat *seat, weft_time deadline, weft_received **ret)
{
    if (!seat || !ret)
        return -EINVAL;
    weft_worker *w = seat->worker;
    int r = deadline == WEFT_TRY ? 0 : weft__checkpoint(weft__self());
    while (r == 0) {
        weft__after after = {0};
        weft__acquire(&w->lock);
        arrived(seat);
        weft__task *t = take(w, &after);
        if (t) {
            taken(seat, t, &after);
            weft__release(&w->lock);
            t->picked_at = weft__sys_now();
            weft__task_hold(t, seat);
            weft__after_run(&after);
            *ret = (weft_received *)(void *)t;
            return 0;
        }
        if (after.expired) {
            weft__release(&w->lock);
            weft__after_run(&after);
            continue;
        }
        if (leaving(seat)) {
            came(seat);
            weft__release(&w->lock);
            r = -ESHUTDOWN;
        } else if (deadline == WEFT_TRY) {
            if (seat->signal.made)
                arm_or_stay_readable(seat);
            else
                weft__release(&w->lock);
            r = -EAGAIN;
        } else if (deadline != WEFT_NEVER && weft__sys_now() >= deadline) {
            weft__release(&w->lock);
            r = -ETIMEDOUT;
        } else {
            r = wait_for_task(seat, deadline);
        }
    }
    return r;
}

/* ---- The end of a run ---- */

void weft__seat_end(weft_seat *seat, int result)
{
    weft_worker *w = seat->worker;
    for (;;) { /* what the loop left open */
        weft__acquire(&seat->lock);
        weft__link *l = weft__list_pop(&seat->held);
        weft__task *t = l ? weft__container(l, weft__task, hold) : NULL;
        if (t)
            t->held = false;
        weft__release(&seat->lock);
        if (!t)
            break;
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

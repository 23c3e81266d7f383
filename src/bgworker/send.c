/* SPDX-License-Identifier: MIT
 *
 * send.c -- handing a task over, up to the pickup (bgworker.h, Q1 to Q5).
 *
 * A sender that finds a seat waiting has its task picked up there and then (lane.c), and
 * does not wait. Otherwise it waits in the queue itself: its wait node is the entry. When
 * its wait ends in any other way than by a seat's claim, the task was not run, and never
 * will be: a seat that takes the entry out from now on fails to claim it.
 *
 * After ten milliseconds without a pickup all waiting seats are woken. By Q2 to Q4 that
 * is never needed: where no armed seat was woken and is on its way while others wait, a
 * wake-up has been lost, and is counted as one (fallback_wakes). Where one is on its way,
 * but late, the others are woken to help; that is counted apart (late_wakes).
 */
#include "bgworker/bgworker.h"

/* Under the lock: why the worker takes no task, or 0. */
static int refuses(const weft_worker *w)
{
    if (w->state != WEFT__WORKER_RUNS)
        return -ESHUTDOWN;
    return w->alive == 0 && w->given_up > 0 ? -EHOSTDOWN : 0;
}

/* Under the lock; Q2 holds again when it returns. */
static void enqueue(weft_worker *w, weft__task *t, weft__after *after)
{
    w->sent++;
    weft__list_push(&w->queue, &t->entry.link);
    atom_store_rlx(&w->queued, atom_load_rlx(&w->queued) + 1);
    weft__match(w, after);
    weft__pass_on(w, after);
}

/* Under the lock: true when it was in the queue. */
static bool dequeue(weft_worker *w, weft__task *t)
{
    bool queued = weft__linked(&t->entry.link);
    if (queued) {
        weft__list_remove(&t->entry.link);
        atom_store_rlx(&w->queued, atom_load_rlx(&w->queued) - 1);
    }
    return queued;
}

/* Nobody has come for 10 ms and the entry is still there. */
static void fall_back(weft_worker *w, weft__after *after)
{
    bool in_lane = weft__lanes_have_waiting(w);
    if (!in_lane && weft__list_empty(&w->armed))
        return; /* all busy: whoever gets free takes it */
    if (in_lane || w->notified == 0)
        w->fallback_wakes++;
    else
        w->late_wakes++;
    weft__match(w, after);
    while (!weft__list_empty(&w->armed))
        weft__notify_one(w, after);
}

/* One sleep of a sender has ended at the time of the next look. True: it goes on.
 *
 * Its wait is over, so nobody can claim the entry; one that is taken out meanwhile is
 * merely gone. It leaves the queue before the next wait begins: from then on it could be
 * claimed, and "taken out" could be either. */
static bool look_after(weft_worker *w, weft__task *t, weft_seat *from, weft__parker *self, int *r)
{
    weft__after after = {0};
    weft__end(from);
    weft__acquire(&w->lock);
    if (weft__linked(&t->entry.link))
        fall_back(w, &after);
    dequeue(w, t);
    weft__release(&w->lock);
    weft__after_run(&after);

    *r = weft__begin(from, self, "task pickup", w);
    if (*r)
        return false;
    after = (weft__after){0};
    weft__acquire(&w->lock);
    *r = refuses(w);
    if (*r == 0) {
        weft__list_push_front(&w->queue, &t->entry.link);
        atom_store_rlx(&w->queued, atom_load_rlx(&w->queued) + 1);
        weft__match(w, &after);
        weft__pass_on(w, &after);
    }
    weft__release(&w->lock);
    weft__after_run(&after);
    if (*r)
        weft__unbegin(from, self);
    return *r == 0;
}

/* Sleeps until the entry is claimed or the wait ends otherwise. */
static int wait_for_pickup(weft_worker *w, weft__task *t, weft_seat *from, weft__parker *self,
                           weft_time deadline)
{
    weft_time interval = WEFT__FALLBACK, look = weft_after(interval);
    int r = 0;
    if (w->reg->spins)
        weft__spin_wait(&w->send_spin, self);
    for (;;) {
        uint32_t outcome = weft__wait_commit(self, look < deadline ? look : deadline);
        if (outcome == 0) {
            weft__end(from);
            return t->entry.result;
        }
        if (outcome == WEFT__TIMEDOUT && weft__sys_now() < deadline) {
            if (!look_after(w, t, from, self, &r))
                return r;
            interval *= 2;
            look = weft_after(interval);
            continue;
        }
        weft__end(from);
        weft__acquire(&w->lock);
        dequeue(w, t);
        weft__release(&w->lock);
        return outcome == WEFT__TIMEDOUT ? -ETIMEDOUT : outcome == 1 ? -ESHUTDOWN : -ECANCELED;
    }
}

static weft_task_outcome outcome_of(int r)
{
    return r == -ETIMEDOUT   ? WEFT_TASK_TIMEOUT
           : r == -ECANCELED ? WEFT_TASK_ABANDONED
                             : WEFT_TASK_RELEASED;
}

/* Not picked up: the payload goes back to the caller. */
static int give_back(weft__task *t, int r)
{
    weft_task_outcome outcome = outcome_of(r);
    weft__acquire(&t->lock);
    bool counted = weft__settle(t, outcome);
    t->sender_done = t->receiver_done = true;
    weft__release(&t->lock);
    if (counted)
        weft__settled(t, outcome);
    weft__task_discard(t); /* nobody else has it any more */
    return r;
}

/* The worker is o->worker, or the one of that name. */
static int make_offer(weft_registry *reg, const char *scope, const char *name, weft__offer *o,
                      weft__parker *self)
{
    uint32_t here = weft__here(self);
    return o->worker ? weft__offer_make(o, here, true)
                     : weft__registry_offer(reg, scope, name, o, here);
}

/* Nobody waited: into the queue. */
static int send_queued(weft__offer *o, weft_seat *from, weft__parker *self)
{
    weft__task *t = o->task;
    weft_worker *w = o->worker;
    t->entry.parker = self;
    int r = weft__begin(from, self, "task pickup", w);
    if (r == 0) {
        weft__after after = {0};
        weft__acquire(&w->lock);
        r = refuses(w);
        if (r == 0)
            enqueue(w, t, &after);
        weft__release(&w->lock);
        weft__after_run(&after);
        if (r)
            weft__unbegin(from, self);
    }
    if (r) { /* never was in the queue: not a task that counts */
        weft__task_discard(t);
        return r;
    }
    r = wait_for_pickup(w, t, from, self, o->deadline);
    return r ? give_back(t, r) : 0;
}

static int send_from(weft_registry *reg, const char *scope, const char *name, weft__offer *o,
                     weft_seat *from, weft_sent **ret)
{
    if (o->deadline == WEFT_TRY)
        return -EAGAIN;
    weft__parker *self = weft__self();
    int r = weft__checkpoint(self);
    if (r)
        return r;
    if (o->deadline != WEFT_NEVER && weft__sys_now() >= o->deadline)
        return -ETIMEDOUT;
    if (from && atom_load_acq(&from->leaving)) /* pairs with weft__seat_ask */
        return -ESHUTDOWN;
    r = make_offer(reg, scope, name, o, self);
    if (r)
        return r;
    if (o->seat)
        weft__unpark(o->seat->node.parker);
    else
        r = send_queued(o, from, self);
    if (r == 0)
        *ret = (weft_sent *)(void *)o->task;
    return r;
}

int weft_worker_send(weft_worker *w, weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    weft__offer o = {.worker = w, .payload = payload, .deadline = deadline};
    return w && ret ? send_from(NULL, NULL, NULL, &o, NULL, ret) : -EINVAL;
}

int weft_registry_send(weft_registry *reg, const char *scope, const char *name,
                       weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    weft__offer o = {.payload = payload, .deadline = deadline};
    return reg && ret ? send_from(reg, scope, name, &o, NULL, ret) : -EINVAL;
}

int weft_seat_send(weft_seat *seat, const char *name, weft_buffer *payload, weft_time deadline,
                   weft_sent **ret)
{
    weft__offer o = {.payload = payload, .deadline = deadline};
    if (!seat || !ret)
        return -EINVAL;
    return send_from(seat->worker->reg, seat->worker->scope, name, &o, seat, ret);
}

/* ---- Posting ---- */

bool weft__task_unqueue(weft__task *t)
{
    weft_worker *w = t->worker;
    weft__acquire(&w->lock);
    bool queued = dequeue(w, t);
    if (queued && !t->called)
        w->posted--;
    weft__release(&w->lock);
    return queued;
}

/* Nobody waited: into the queue, or dropped. */
static int post_queued(weft__offer *o)
{
    weft__task *t = o->task;
    weft_worker *w = o->worker;
    weft__after after = {0};
    weft__acquire(&w->lock);
    int r = refuses(w);
    if (r == 0 && !o->called && w->posted >= w->options.posted_max)
        r = -EAGAIN;
    if (r == 0) {
        if (!o->called)
            w->posted++;
        enqueue(w, t, &after);
    }
    weft__release(&w->lock);
    weft__after_run(&after);
    if (r) {
        if (o->reader)
            weft__list_remove(&o->reader->link);
        weft__task_discard(t);
    }
    return r;
}

static int post(weft_registry *reg, const char *scope, const char *name, weft__offer *o,
                weft_sent **ret)
{
    if (o->deadline == WEFT_TRY)
        return -EAGAIN;
    o->late = o->deadline != WEFT_NEVER && weft__sys_now() >= o->deadline;
    int r = make_offer(reg, scope, name, o, weft__self());
    if (r)
        return r;
    if (o->seat)
        weft__unpark(o->seat->node.parker);
    else
        r = post_queued(o);
    if (r == 0)
        *ret = (weft_sent *)(void *)o->task;
    return r;
}

int weft_worker_post(weft_worker *w, weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    weft__offer o = {.worker = w, .payload = payload, .deadline = deadline, .posted = true};
    return w && ret ? post(NULL, NULL, NULL, &o, ret) : -EINVAL;
}

int weft_registry_post(weft_registry *reg, const char *scope, const char *name,
                       weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    weft__offer o = {.payload = payload, .deadline = deadline, .posted = true};
    return reg && ret ? post(reg, scope, name, &o, ret) : -EINVAL;
}

/* ---- Calling ---- */

/* As look_after, for a task nobody waits for in the queue. */
static void look_after_posted(weft_worker *w, weft__task *t)
{
    weft__after after = {0};
    weft__acquire(&w->lock);
    if (weft__linked(&t->entry.link))
        fall_back(w, &after);
    weft__release(&w->lock);
    weft__after_run(&after);
}

/* The wait that the call began, to the task's end; what was said last is in *ret. */
static int wait_for_end(weft__offer *o, weft__parker *self, weft_time deadline, weft_buffer **ret)
{
    weft__task *t = o->task;
    weft_worker *w = o->worker;
    weft_time interval = WEFT__FALLBACK, look = o->seat ? WEFT_NEVER : weft_after(interval);
    if (w->reg->spins)
        weft__spin_wait(&w->read_spin, self);
    uint32_t outcome = weft__wait_commit(self, look < deadline ? look : deadline);
    if (outcome == 0)
        return o->reader->result;
    weft__task_retract(t, o->reader);
    int r = outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
    while (r == -ETIMEDOUT && weft__sys_now() < deadline) {
        look_after_posted(w, t);
        interval = interval < WEFT_SEC ? 2 * interval : interval;
        look = weft_after(interval);
        r = weft__task_read(t, look < deadline ? look : deadline, ret);
    }
    /* The end may have come with the deadline; a cancellation is final. */
    if (r == -ETIMEDOUT) {
        int end = weft__task_read(t, WEFT_TRY, ret);
        r = end == -EAGAIN ? r : end;
    }
    return r;
}

static int call(weft_registry *reg, const char *scope, const char *name, weft__offer *o,
                weft_time deadline, weft_buffer **ret)
{
    if (deadline == WEFT_TRY)
        return -EAGAIN;
    weft__parker *self = weft__self();
    int r = weft__checkpoint(self);
    if (r)
        return r;
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        return -ETIME;
    weft_buffer *result = NULL;
    weft__wait_node reader = {.parker = self, .payload = &result};
    weft_buffer_ref(o->payload);
    o->called = o->posted = true;
    o->reader = &reader;
    o->deadline = WEFT_NEVER;
    weft__wait_begin(self, "task call", reg);
    r = make_offer(reg, scope, name, o, self);
    if (r == 0 && o->seat)
        weft__unpark(o->seat->node.parker);
    else if (r == 0)
        r = post_queued(o);
    if (r) {
        weft__unbegin(NULL, self);
        weft_buffer_unref(o->payload);
        return r;
    }
    weft__task *t = o->task;
    r = wait_for_end(o, self, deadline, &result);
    if ((r == -ETIMEDOUT || r == -ECANCELED) && weft__task_unqueue(t)) {
        weft__task_expire(t, outcome_of(r));
        weft__task_unref(t); /* the queue's */
        r = r == -ETIMEDOUT ? -ETIME : r;
    }
    if (r == -ETIME || r == -ETIMEDOUT || r == -ECANCELED)
        weft_sent_free((weft_sent *)(void *)t);
    else
        weft__task_unref(t); /* its end is read: nothing to abandon */
    if (r == 0 && ret)
        *ret = result;
    else
        weft_buffer_unref(result);
    return r;
}

int weft_worker_call(weft_worker *w, weft_buffer *payload, weft_time deadline, weft_buffer **ret)
{
    weft__offer o = {.worker = w, .payload = payload};
    return w ? call(NULL, NULL, NULL, &o, deadline, ret) : -EINVAL;
}

int weft_registry_call(weft_registry *reg, const char *scope, const char *name,
                       weft_buffer *payload, weft_time deadline, weft_buffer **ret)
{
    weft__offer o = {.payload = payload};
    return reg ? call(reg, scope, name, &o, deadline, ret) : -EINVAL;
}

/* SPDX-License-Identifier: MIT
 *
 * send.c -- handing a task over, up to the pickup (bgworker.h, Q1 to Q5).
 *
 * The sender waits in the queue itself: its wait node is the entry. When its wait ends
 * in any other way than by a seat's claim, the task was not run, and never will be: a
 * seat that takes the entry out from now on fails to claim it.
 *
 * After ten milliseconds without a pickup all waiting seats are woken. By Q3 and Q4 that
 * is never needed: where no woken seat is on its way while others wait, a wake-up has
 * been lost, and is counted as one (fallback_wakes). Where one is on its way, but late,
 * the others are woken to help; that is counted apart (late_wakes).
 */
#include "bgworker/bgworker.h"

/* Under the lock: why the worker takes no task, or 0. */
static int refuses(const weft_worker *w)
{
    if (w->state != WEFT__WORKER_RUNS)
        return -ESHUTDOWN;
    return w->alive == 0 && w->given_up > 0 ? -EHOSTDOWN : 0;
}

/* True when a seat is sure to come for each entry (Q3): then nobody needs to look after
 * it, and a wait without a deadline costs no timer. */
static bool enqueue(weft_worker *w, weft__task *t, weft__after *after)
{
    t->id = w->first_id + w->sent++;
    weft__list_push(&w->queue, &t->entry.link);
    w->queued++;
    weft__pass_on(w, after);
    return w->queued <= w->coming;
}

/* Nobody has come for 10 ms and the entry is still there. */
static void fall_back(weft_worker *w, weft__after *after)
{
    bool waiting = !weft__list_empty(&w->awake) || !weft__list_empty(&w->parked);
    if (!waiting)
        return; /* all busy: whoever gets free takes it */
    if (w->notified == 0)
        w->fallback_wakes++;
    else
        w->late_wakes++;
    for (unsigned i = w->count; i > 0; i--)
        weft__notify_one(w, after);
}

/* One sleep of a sender has ended at the time of the next look. True: it goes on. */
static bool look_after(weft_worker *w, weft__task *t, weft_seat *from, weft__parker *self, int *r)
{
    weft__after after = {0};
    weft__end(from);
    *r = weft__begin(from, self, "task pickup", w);
    if (*r) {
        weft__acquire(&w->lock);
        if (weft__linked(&t->entry.link)) {
            weft__list_remove(&t->entry.link);
            w->queued--;
        }
        weft__release(&w->lock);
        return false;
    }
    weft__acquire(&w->lock);
    if (weft__linked(&t->entry.link)) {
        fall_back(w, &after);
    } else { /* a seat took it out while we were between two sleeps */
        *r = refuses(w);
        if (*r == 0) {
            weft__list_push_front(&w->queue, &t->entry.link);
            w->queued++;
            weft__pass_on(w, &after);
        }
    }
    weft__release(&w->lock);
    weft__after_run(&after);
    if (*r)
        weft__unbegin(from, self);
    return *r == 0;
}

/* Sleeps until the entry is claimed or the wait ends otherwise. */
static int wait_for_pickup(weft_worker *w, weft__task *t, weft_seat *from, weft__parker *self,
                           weft_time deadline, bool sure)
{
    weft_time interval = WEFT__FALLBACK, look = sure ? WEFT_NEVER : weft_after(interval);
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
        if (weft__linked(&t->entry.link)) {
            weft__list_remove(&t->entry.link);
            w->queued--;
        }
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
    t->payload = NULL;
    weft__release(&t->lock);
    if (counted)
        weft__settled(t, outcome);
    weft__task_unref(t);
    return r;
}

static int send_from(weft_worker *w, weft_seat *from, weft_buffer *payload, weft_time deadline,
                     weft_sent **ret)
{
    if (deadline == WEFT_TRY)
        return -EAGAIN;
    weft__parker *self = weft__self();
    int r = weft__checkpoint(self);
    if (r)
        return r;
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        return -ETIMEDOUT;
    weft__task *t = weft__task_new(weft_worker_ref(w), payload);
    if (!t)
        return -ENOMEM;
    t->entry.parker = self;
    bool sure = false;
    r = weft__begin(from, self, "task pickup", w);
    if (r == 0) {
        weft__after after = {0};
        weft__acquire(&w->lock);
        r = refuses(w);
        if (r == 0)
            sure = enqueue(w, t, &after);
        weft__release(&w->lock);
        weft__after_run(&after);
        if (r)
            weft__unbegin(from, self);
    }
    if (r) { /* never was in the queue: not a task that counts */
        t->payload = NULL;
        weft__task_unref(t);
        return r;
    }
    r = wait_for_pickup(w, t, from, self, deadline, sure);
    if (r)
        return give_back(t, r);
    *ret = (weft_sent *)(void *)t;
    return 0;
}

int weft_worker_send(weft_worker *w, weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    return w && ret ? send_from(w, NULL, payload, deadline, ret) : -EINVAL;
}

int weft_registry_send(weft_registry *reg, const char *scope, const char *name,
                       weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    weft_worker *w;
    if (!ret)
        return -EINVAL;
    int r = weft_registry_find(reg, scope, name, &w);
    if (r == 0) {
        r = send_from(w, NULL, payload, deadline, ret);
        weft_worker_unref(w);
    }
    return r;
}

int weft_seat_send(weft_seat *seat, const char *name, weft_buffer *payload, weft_time deadline,
                   weft_sent **ret)
{
    weft_worker *w;
    if (!seat || !ret)
        return -EINVAL;
    int r = weft_registry_find(seat->worker->reg, seat->worker->scope, name, &w);
    if (r == 0) {
        r = send_from(w, seat, payload, deadline, ret);
        weft_worker_unref(w);
    }
    return r;
}

/* ---- Posting ---- */

bool weft__task_unqueue(weft__task *t)
{
    weft_worker *w = t->worker;
    weft__acquire(&w->lock);
    bool queued = weft__linked(&t->entry.link);
    if (queued) {
        weft__list_remove(&t->entry.link);
        w->queued--;
        if (!t->called)
            w->posted--;
    }
    weft__release(&w->lock);
    return queued;
}

static int post(weft_worker *w, weft__task *t, weft_time deadline, bool *ret_sure)
{
    t->posted = true;
    t->pickup_deadline = deadline;
    t->refs.raw = 2; /* the handle and the queue */
    weft__after after = {0};
    weft__acquire(&w->lock);
    int r = refuses(w);
    if (r == 0 && !t->called && w->posted >= w->options.posted_max)
        r = -EAGAIN;
    if (r == 0) {
        if (!t->called)
            w->posted++;
        *ret_sure = enqueue(w, t, &after);
    }
    weft__release(&w->lock);
    weft__after_run(&after);
    return r;
}

int weft_worker_post(weft_worker *w, weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    if (!w || !ret)
        return -EINVAL;
    if (deadline == WEFT_TRY)
        return -EAGAIN;
    weft__task *t = weft__task_new(weft_worker_ref(w), payload);
    if (!t)
        return -ENOMEM;
    bool sure;
    int r = post(w, t, deadline, &sure);
    if (r) {
        t->payload = NULL;
        t->refs.raw = 1;
        weft__task_unref(t);
        return r;
    }
    *ret = (weft_sent *)(void *)t;
    return 0;
}

int weft_registry_post(weft_registry *reg, const char *scope, const char *name,
                       weft_buffer *payload, weft_time deadline, weft_sent **ret)
{
    weft_worker *w;
    if (!ret)
        return -EINVAL;
    int r = weft_registry_find(reg, scope, name, &w);
    if (r == 0) {
        r = weft_worker_post(w, payload, deadline, ret);
        weft_worker_unref(w);
    }
    return r;
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

/* Reads to the end; the last that was said stays in *ret. */
static int read_to_end(weft_worker *w, weft__task *t, weft_time deadline, bool sure,
                       weft_buffer **ret)
{
    weft_time interval = WEFT__FALLBACK, look = sure ? WEFT_NEVER : weft_after(interval);
    for (;;) {
        weft_buffer *b = NULL;
        bool last;
        int r = weft__task_read(t, look < deadline ? look : deadline, &b, &last);
        if (r == 1) {
            weft_buffer_unref(*ret);
            *ret = b;
            if (last)
                return 0;
        } else if (r == -ETIMEDOUT && weft__sys_now() < deadline) {
            look_after_posted(w, t);
            interval = interval < WEFT_SEC ? 2 * interval : interval;
            look = weft_after(interval);
        } else {
            return r;
        }
    }
}

/* Takes over a reference to the worker. */
static int call_worker(weft_worker *w, weft_buffer *payload, weft_time deadline, weft_buffer **ret)
{
    int r = weft__checkpoint(weft__self());
    if (r) {
        weft_worker_unref(w);
        return r;
    }
    weft__task *t = weft__task_new(w, weft_buffer_ref(payload));
    if (!t) {
        weft_buffer_unref(payload);
        return -ENOMEM;
    }
    t->called = true;
    bool sure = false;
    r = post(w, t, deadline, &sure);
    if (r) {
        t->refs.raw = 1;
        weft__task_unref(t);
        return r;
    }
    weft_buffer *result = NULL;
    r = read_to_end(w, t, deadline, sure, &result);
    if (r == 0) {
        weft__task_unref(t); /* its end is read: nothing to abandon */
        if (ret)
            *ret = result;
        else
            weft_buffer_unref(result);
        return 0;
    }
    weft_buffer_unref(result);
    if ((r == -ETIMEDOUT || r == -ECANCELED) && weft__task_unqueue(t)) {
        weft__task_expire(t, outcome_of(r));
        weft__task_unref(t); /* the queue's */
        r = r == -ETIMEDOUT ? -ETIME : r;
    }
    weft_sent_free((weft_sent *)(void *)t);
    return r;
}

int weft_worker_call(weft_worker *w, weft_buffer *payload, weft_time deadline, weft_buffer **ret)
{
    if (!w)
        return -EINVAL;
    return deadline == WEFT_TRY ? -EAGAIN : call_worker(weft_worker_ref(w), payload, deadline, ret);
}

int weft_registry_call(weft_registry *reg, const char *scope, const char *name,
                       weft_buffer *payload, weft_time deadline, weft_buffer **ret)
{
    weft_worker *w;
    int r = weft_registry_find(reg, scope, name, &w);
    if (r)
        return r;
    if (deadline == WEFT_TRY) {
        weft_worker_unref(w);
        return -EAGAIN;
    }
    return call_worker(w, payload, deadline, ret);
}

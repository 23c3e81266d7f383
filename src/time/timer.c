/* SPDX-License-Identifier: MIT
 *
 * timer.c -- the timers of weft/timer.h as any thread uses them. The protocols are
 * described in timer_internal.h.
 */
#include "time/timer_internal.h"

#include <pthread.h>

static weft__timer *inner(weft_timer *t)
{
    return (weft__timer *)(void *)t;
}

static uint32_t phase_of(uint32_t word)
{
    return word & (uint32_t)WEFT__TIMER_PHASE;
}

/* The thread that drives, or 0; relaxed, for only the answer "it is me" is used. */
static bool driving(weft_timer_context *c)
{
    return atom_load_rlx(&c->driver) == (uint64_t)(uintptr_t)pthread_self();
}

static weft_time add_time(weft_time t, weft_time by)
{
    return t > 0 && by > WEFT_NEVER - t ? WEFT_NEVER : t + by;
}

weft_time weft__timer_next(weft_time deadline, weft_time period, unsigned policy, weft_time now)
{
    weft_time next = add_time(deadline, period);
    if (next > now || policy == WEFT_INTERVAL_BURST)
        return next;
    if (policy == WEFT_INTERVAL_DELAY)
        return add_time(now, period);
    uint64_t missed = ((uint64_t)now - (uint64_t)deadline) / (uint64_t)period;
    weft_time reached = (weft_time)((uint64_t)deadline + missed * (uint64_t)period);
    return add_time(reached, period);
}

/* -- under the shard's lock -------------------------------------------------------- */

/* An entry outside of the wheel that is linked is on the immediate list. */
static void unlink_entry(weft__shard *s, weft__timer *t)
{
    if (!weft__wheel_remove(&s->wheel, &t->entry)) {
        weft__list_remove(&t->entry.link);
        s->immediate_count--;
    }
}

void weft__timer_unlink_locked(weft__timer *t)
{
    weft__shard *s = t->shard;
    unlink_entry(s, t);
    if (weft__timer_word(t) & WEFT__TIMER_WEAK)
        s->weak--;
    if (s->context->max_pending)
        atom_sub_rlx(&s->context->pending, (uint64_t)1);
}

bool weft__timer_arm_locked(weft__timer *t, weft_time deadline)
{
    weft__shard *s = t->shard;
    weft_timer_context *c = s->context;
    uint32_t word = weft__timer_word(t);
    if (phase_of(word) == WEFT__TIMER_ARMED) {
        unlink_entry(s, t);
    } else {
        s->weak += (word & WEFT__TIMER_WEAK) != 0;
        if (!(word & WEFT__TIMER_CALLBACK))
            weft__slot_reset(&t->u.slot); /* its poller is not polling: it arms, or none does */
        weft__timer_set(t, word, WEFT__TIMER_ARMED);
    }
    if (deadline <= (weft_time)atom_load_rlx(&c->now)) {
        t->entry.deadline = deadline;
        weft__list_push(&s->immediate, &t->entry.link);
        s->immediate_count++;
    } else {
        weft__wheel_add(&s->wheel, &t->entry, deadline);
    }
    /* Ordered by the shard's lock: see "The plan". */
    return deadline < (weft_time)atom_load_rlx(&c->plan);
}

static weft_time due_locked(const weft__timer *t)
{
    return weft__wheel_armed(&t->entry) ? weft__wheel_due(&t->shard->wheel, &t->entry) : WEFT_TRY;
}

bool weft__timer_end_locked(weft__timer *t, uint32_t phase, int result, weft__wakes *wakes,
                            weft_waker *ret_waker)
{
    uint32_t word = weft__timer_word(t);
    weft__timer_set(t, word & ~(uint32_t)WEFT__TIMER_WAITED, phase);
    if (word & WEFT__TIMER_WAITED) {
        weft__wait_node *n;
        while ((n = t->waiters) != NULL) {
            weft__wait_node *next = weft__container(n->link.next, weft__wait_node, link);
            t->waiters = next == n ? NULL : next;
            weft__list_remove(&n->link);
            if (weft__node_claim(n, result))
                weft__wakes_add(wakes, n->parker);
        }
    }
    return !(word & WEFT__TIMER_CALLBACK) && weft__slot_publish(&t->u.slot, ret_waker);
}

/* -- init, arm --------------------------------------------------------------------- */

int weft_timer_init(weft_timer *timer, weft_timer_context *context, weft_timer_fn fn, void *arg,
                    unsigned flags)
{
    if (!timer || !context || (flags & ~(unsigned)WEFT_TIMER_WEAK))
        return -EINVAL;
    weft__timer *t = inner(timer);
    uint32_t word = WEFT__TIMER_IDLE | (flags & WEFT_TIMER_WEAK ? (uint32_t)WEFT__TIMER_WEAK : 0u);
    t->entry.link.next = t->entry.link.prev = NULL;
    t->entry.deadline = 0;
    t->entry.where = 0;
    t->shard = &context->shards[weft__sys_cpu() & context->shard_mask];
    if (fn) {
        word |= WEFT__TIMER_CALLBACK;
        t->u.call.fn = fn;
        t->u.call.arg = arg;
    } else {
        weft__slot_reset(&t->u.slot);
    }
    t->ticket = 0;
    t->waiters = NULL;
    t->period = 0;
    atom_store_rlx(&t->entry.owner, word);
    return 0;
}

static bool admit(weft_timer_context *c)
{
    if (!c->max_pending)
        return true;
    if (atom_add_rlx(&c->pending, (uint64_t)1) < c->max_pending)
        return true;
    atom_sub_rlx(&c->pending, (uint64_t)1);
    return false;
}

/* A timer that its own running callback takes in hand is not the reactor's any more. */
static void note_taken(weft_timer_context *c, const weft__timer *t)
{
    if (WEFT__UNLIKELY(t->ticket != 0 && t->ticket >= atom_load_rlx(&c->progress)) && driving(c))
        weft__service_of(c)->gone |= t->ticket == atom_load_rlx(&c->progress);
}

static int arm(weft__timer *t, weft_time deadline, weft_time period, uint32_t interval)
{
    weft__shard *s = t->shard;
    weft_timer_context *c = s->context;
    weft_time due = WEFT_TRY;
    weft__acquire(&s->lock);
    uint32_t word = weft__timer_word(t);
    bool pending = phase_of(word) == WEFT__TIMER_ARMED;
    if (WEFT__UNLIKELY(s->closed) || (!pending && WEFT__UNLIKELY(!admit(c)))) {
        bool closed = s->closed;
        weft__release(&s->lock);
        return closed ? -ESHUTDOWN : -EAGAIN;
    }
    note_taken(c, t);
    word &= ~((uint32_t)WEFT__TIMER_INTERVAL | 3u << WEFT__TIMER_POLICY_SHIFT);
    atom_store_rlx(&t->entry.owner, word | interval);
    if (interval)
        t->period = period;
    bool late = weft__timer_arm_locked(t, deadline);
    if (WEFT__UNLIKELY(late))
        due = due_locked(t);
    weft__release(&s->lock);
    if (WEFT__UNLIKELY(late))
        weft__context_wake(c, due);
    return pending;
}

int weft_timer_arm(weft_timer *timer, weft_time deadline)
{
    return timer && inner(timer)->shard ? arm(inner(timer), deadline, 0, 0) : -EINVAL;
}

int weft_timer_arm_after(weft_timer *timer, weft_time delay)
{
    if (!timer || !inner(timer)->shard)
        return -EINVAL;
    weft__timer *t = inner(timer);
    weft_time now = weft__context_clock(t->shard->context);
    return arm(t, delay <= 0 ? now : add_time(now, delay), 0, 0);
}

int weft_timer_arm_every(weft_timer *timer, weft_time first, weft_time period, int policy)
{
    if (!timer || !inner(timer)->shard || period <= 0 || policy < WEFT_INTERVAL_BURST ||
        policy > WEFT_INTERVAL_SKIP)
        return -EINVAL;
    return arm(inner(timer), first, period,
               (uint32_t)WEFT__TIMER_INTERVAL | (uint32_t)policy << WEFT__TIMER_POLICY_SHIFT);
}

/* -- cancel ------------------------------------------------------------------------ */

/* Under the lock, in the reactor's thread, that is in a callback: strikes the timer out of
 * the batch. A waker stays, for the end of its timer has been seen, unless the owner says
 * that nobody wants it. True: a callback was still to come, and will not. */
static bool strike(weft_timer_service *v, weft__timer *t, bool wakers_too)
{
    weft__delivery *d = &v->batch[t->ticket - v->batch_first];
    if (t->ticket == atom_load_rlx(&v->context.progress)) {
        v->gone = true; /* it runs */
        return false;
    }
    if (!d->callback && !wakers_too)
        return false;
    d->timer = NULL;
    t->ticket = 0;
    return d->callback;
}

static int cancel(weft__timer *t, bool quiet, bool *ret_in_flight)
{
    weft__shard *s = t->shard;
    weft_timer_context *c = s->context;
    weft__wakes wakes = {NULL, NULL};
    weft_waker waker;
    bool wake = false;
    int won = 0;
    weft__acquire(&s->lock);
    uint32_t word = weft__timer_word(t);
    if (WEFT__UNLIKELY(t->ticket >= atom_load_sc(&c->progress)) && driving(c))
        won = strike(weft__service_of(c), t, quiet);
    if (WEFT__LIKELY(phase_of(word) == WEFT__TIMER_ARMED)) {
        weft__timer_unlink_locked(t);
        wake = weft__timer_end_locked(t, WEFT__TIMER_CANCELED, -ECANCELED, &wakes, &waker);
        won = 1;
    } else {
        weft__timer_set(t, word & ~(uint32_t)WEFT__TIMER_INTERVAL,
                        won ? (uint32_t)WEFT__TIMER_CANCELED : phase_of(word));
    }
    *ret_in_flight = t->ticket >= atom_load_sc(&c->progress);
    weft__release(&s->lock);
    if (wake)
        waker.wake(waker.arg);
    weft__wakes_run(&wakes);
    return won;
}

int weft_timer_cancel(weft_timer *timer)
{
    bool in_flight;
    return timer && inner(timer)->shard ? cancel(inner(timer), false, &in_flight) : -EINVAL;
}

static int sync_try(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    weft__timer *t = object;
    (void)node;
    (void)wakes;
    /* Pairs with the reactor, who moves progress and then looks at syncers. */
    return t->ticket >= atom_load_sc(&t->shard->context->progress) ? -EAGAIN : 0;
}

static void sync_link(void *object, weft__wait_node *node)
{
    weft__timer *t = object;
    node->arg = (uintptr_t)t->ticket;
    weft__list_push(&t->shard->syncers, &node->link);
}

static void sync_unlink(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&node->link);
}

static const weft__waitable_ops sync_ops = {"timer cancel", sync_try, sync_link, sync_unlink};

int weft_timer_cancel_wait(weft_timer *timer, weft_time deadline)
{
    if (!timer || !inner(timer)->shard)
        return -EINVAL;
    weft__timer *t = inner(timer);
    weft_timer_context *c = t->shard->context;
    bool in_flight;
    int won = cancel(t, true, &in_flight);
    if (!in_flight)
        return won;
    if (driving(c))
        return -EDEADLK;
    weft__wait_node node = {{NULL, NULL}, NULL, 0, 0, NULL, 0};
    weft__parker *self = weft__self();
    self->shield++;
    atom_add_sc(&c->syncers, 1u); /* before progress is looked at */
    int r = weft__wait_on(&sync_ops, t, &t->shard->lock, &node, deadline);
    atom_sub_sc(&c->syncers, 1u);
    self->shield--;
    return r < 0 ? r : won;
}

/* -- poll, wait -------------------------------------------------------------------- */

/* The expiry of an interval has been taken: on to the next. */
static void take_interval(weft__timer *t)
{
    weft__shard *s = t->shard;
    weft_timer_context *c = s->context;
    weft_time now = weft__context_clock(c), due = WEFT_TRY;
    bool late = false;
    weft__acquire(&s->lock);
    uint32_t word = weft__timer_word(t);
    if ((word & WEFT__TIMER_INTERVAL) && phase_of(word) == WEFT__TIMER_FIRED) {
        if (s->closed) {
            weft__timer_set(t, word, WEFT__TIMER_CLOSED);
        } else {
            unsigned policy = word >> WEFT__TIMER_POLICY_SHIFT & 3u;
            if (c->max_pending)
                atom_add_rlx(&c->pending, (uint64_t)1); /* keeps its place */
            late = weft__timer_arm_locked(
                t, weft__timer_next(t->entry.deadline, t->period, policy, now));
            due = late ? due_locked(t) : due;
        }
    }
    weft__release(&s->lock);
    if (late)
        weft__context_wake(c, due);
}

static int outcome(uint32_t word)
{
    switch (phase_of(word)) {
    case WEFT__TIMER_ARMED:
        return -EAGAIN;
    case WEFT__TIMER_FIRED:
        return 0;
    case WEFT__TIMER_CANCELED:
        return -ECANCELED;
    case WEFT__TIMER_CLOSED:
        return -ESHUTDOWN;
    default:
        return -EINVAL;
    }
}

int weft_timer_poll(weft_timer *timer, const weft_waker *waker)
{
    if (!timer || !inner(timer)->shard || (waker && !waker->wake))
        return -EINVAL;
    weft__timer *t = inner(timer);
    uint32_t word = atom_load_acq(&t->entry.owner); /* pairs with weft__timer_set */
    if (word & WEFT__TIMER_CALLBACK)
        return -EINVAL;
    if (phase_of(word) == WEFT__TIMER_ARMED) {
        if (!waker || weft__slot_register(&t->u.slot, waker))
            return -EAGAIN;
    }
    /* It has ended, but whoever ends it may still be at work on it, under the lock; after
     * this the memory is the caller's. */
    weft__acquire(&t->shard->lock);
    word = weft__timer_word(t);
    weft__release(&t->shard->lock);
    if (phase_of(word) == WEFT__TIMER_FIRED && (word & WEFT__TIMER_INTERVAL))
        take_interval(t);
    return outcome(word);
}

static int wait_try(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    (void)node;
    (void)wakes;
    return outcome(weft__timer_word(object));
}

static void wait_link(void *object, weft__wait_node *node)
{
    weft__timer *t = object;
    uint32_t word = weft__timer_word(t);
    if (t->waiters) {
        weft__list_insert_before(&t->waiters->link, &node->link);
    } else {
        node->link.next = node->link.prev = &node->link;
        t->waiters = node;
    }
    weft__timer_set(t, word | (uint32_t)WEFT__TIMER_WAITED, phase_of(word));
}

static void wait_unlink(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    weft__timer *t = object;
    (void)wakes;
    if (t->waiters == node) {
        weft__wait_node *next = weft__container(node->link.next, weft__wait_node, link);
        t->waiters = next == node ? NULL : next;
    }
    weft__list_remove(&node->link);
}

static const weft__waitable_ops wait_ops = {"timer", wait_try, wait_link, wait_unlink};

int weft_timer_wait(weft_timer *timer, weft_time deadline)
{
    if (!timer || !inner(timer)->shard)
        return -EINVAL;
    weft__timer *t = inner(timer);
    weft__wait_node node = {{NULL, NULL}, NULL, 0, 0, NULL, 0};
    if (atom_load_rlx(&t->entry.owner) & WEFT__TIMER_CALLBACK)
        return -EINVAL;
    int r = weft__wait_on(&wait_ops, t, &t->shard->lock, &node, deadline);
    if (r == 0 && (atom_load_rlx(&t->entry.owner) & WEFT__TIMER_INTERVAL))
        take_interval(t);
    return r;
}

int weft_timer_sleep(weft_timer_context *context, weft_time deadline)
{
    weft_timer timer;
    int r = weft_timer_init(&timer, context, NULL, NULL, 0);
    if (r)
        return r;
    if (deadline <= weft__context_clock(context))
        return weft__checkpoint(weft__self());
    r = weft_timer_arm(&timer, deadline);
    if (r < 0)
        return r;
    r = weft_timer_wait(&timer, WEFT_NEVER);
    if (r)
        weft_timer_cancel(&timer);
    return r;
}

bool weft_timer_pending(const weft_timer *timer)
{
    const weft__timer *t = (const weft__timer *)(const void *)timer;
    return t && phase_of(atom_load_rlx(&t->entry.owner)) == WEFT__TIMER_ARMED;
}

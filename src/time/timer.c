/* SPDX-License-Identifier: MIT
 *
 * timer.c -- the timers of weft/timer.h as any thread uses them. The protocols are
 * described in timer_internal.h.
 */
#include "time/timer_internal.h"

static weft__timer *inner(weft_timer *t)
{
    return (weft__timer *)(void *)t;
}

static uint32_t phase_of(uint32_t word)
{
    return word & (uint32_t)WEFT__TIMER_PHASE;
}

/* Whether the caller, a thread or a fiber, is the one that drives: it is then in a callback.
 * Relaxed, for only the answer "it is me" is used. */
static bool driving(weft_timer_context *c)
{
    return atom_load_rlx(&c->driver) == (uint64_t)(uintptr_t)weft__self();
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

static weft_time due_locked(const weft__timer *t)
{
    return weft__wheel_armed(&t->entry) ? weft__wheel_due(&t->shard->wheel, &t->entry) : WEFT_TRY;
}

void weft__timer_end_waiters(weft__timer *t, int result, weft__wakes *wakes)
{
    weft__wait_node *n;
    while ((n = t->waiters) != NULL) {
        weft__wait_node *next = weft__container(n->link.next, weft__wait_node, link);
        t->waiters = next == n ? NULL : next;
        weft__list_remove(&n->link);
        if (weft__node_claim(n, result))
            weft__wakes_add(wakes, n->parker);
    }
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
    t->shard = context->shards;
    if (context->shard_mask)
        t->shard += weft__sys_cpu() & context->shard_mask;
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
static WEFT__NOINLINE void note_taken(weft_timer_context *c, const weft__timer *t)
{
    if (t->ticket == atom_load_rlx(&c->progress) && driving(c))
        weft__service_of(c)->gone = true;
}

static inline __attribute__((always_inline)) int arm(weft__timer *t, weft_time deadline,
                                                     weft_time period, uint32_t interval)
{
    weft__shard *s = t->shard;
    weft_timer_context *c = s->context;
    weft_time due = WEFT_TRY;
    weft__shard_acquire(&s->lock);
    uint32_t word = weft__timer_word(t);
    bool pending = phase_of(word) == WEFT__TIMER_ARMED;
    if (WEFT__UNLIKELY(s->closed) || (!pending && WEFT__UNLIKELY(!admit(c)))) {
        bool closed = s->closed;
        weft__shard_release(&s->lock);
        return closed ? -ESHUTDOWN : -EAGAIN;
    }
    if (WEFT__UNLIKELY(t->ticket != 0))
        note_taken(c, t);
    word &= ~((uint32_t)WEFT__TIMER_INTERVAL | 3u << WEFT__TIMER_POLICY_SHIFT);
    if (interval)
        t->period = period;
    bool late = weft__timer_arm_locked(t, word | interval, deadline);
    if (WEFT__UNLIKELY(late))
        due = due_locked(t);
    weft__shard_release(&s->lock);
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
    if (first == WEFT_TRY) /* as a schedule's start it would have missed all ticks there were */
        first = weft__context_clock(inner(timer)->shard->context);
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
    weft__shard_acquire(&s->lock);
    uint32_t word = weft__timer_word(t);
    if (WEFT__UNLIKELY(t->ticket >= atom_load_sc(&c->progress)) && driving(c))
        won = strike(weft__service_of(c), t, quiet);
    if (WEFT__LIKELY(phase_of(word) == WEFT__TIMER_ARMED)) {
        weft__timer_unlink_locked(t);
        wake = weft__timer_end_locked(t, word, WEFT__TIMER_CANCELED, -ECANCELED, &wakes, &waker);
        won = 1;
    } else {
        weft__timer_set(t, word & ~(uint32_t)WEFT__TIMER_INTERVAL,
                        won ? (uint32_t)WEFT__TIMER_CANCELED : phase_of(word));
    }
    *ret_in_flight = t->ticket >= atom_load_sc(&c->progress);
    weft__shard_release(&s->lock);
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

/* Entered with the shard's lock held and `node` linked into `what`'s queue; suspends, and
 * takes the node out again with `unlink` if another outcome came first. */
static int wait_linked(weft__timer *t, weft__wait_node *node, weft_time deadline,
                       void (*unlink)(weft__timer *t, weft__wait_node *node))
{
    weft__shard *s = t->shard;
    weft__parker *self = node->parker;
    weft__shard_release(&s->lock);
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (outcome == 0)
        return node->result;
    weft__shard_acquire(&s->lock);
    if (weft__linked(&node->link))
        unlink(t, node);
    weft__shard_release(&s->lock);
    return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

/* A deadline that rules a wait out: what to answer, or 0. */
static int no_wait(weft_time deadline)
{
    if (deadline == WEFT_TRY)
        return -EAGAIN;
    return deadline != WEFT_NEVER && weft__sys_now() >= deadline ? -ETIMEDOUT : 0;
}

static void sync_unlink(weft__timer *t, weft__wait_node *node)
{
    (void)t;
    weft__list_remove(&node->link);
}

/* Until the delivery that t has under way is over. */
static int synchronise(weft__timer *t, weft__parker *self, weft_time deadline)
{
    weft__shard *s = t->shard;
    weft_timer_context *c = s->context;
    weft__wait_node node = {{NULL, NULL}, self, 0, 0, NULL, 0};
    int r = 0;
    /* Pairs with the reactor, who moves progress and then looks at syncers. */
    atom_add_sc(&c->syncers, 1u);
    if (c->barrier)
        weft__sys_barrier();
    weft__shard_acquire(&s->lock);
    if (t->ticket >= atom_load_sc(&c->progress) && (r = no_wait(deadline)) == 0) {
        node.arg = (uintptr_t)t->ticket;
        weft__wait_begin(self, "timer cancel", t);
        weft__list_push(&s->syncers, &node.link);
        r = wait_linked(t, &node, deadline, sync_unlink);
    } else {
        weft__shard_release(&s->lock);
    }
    atom_sub_sc(&c->syncers, 1u);
    return r;
}

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
    weft__parker *self = weft__self();
    self->shield++;
    int r = synchronise(t, self, deadline);
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
    weft__shard_acquire(&s->lock);
    uint32_t word = weft__timer_word(t);
    if ((word & WEFT__TIMER_INTERVAL) && phase_of(word) == WEFT__TIMER_FIRED) {
        if (s->closed) {
            weft__timer_set(t, word, WEFT__TIMER_CLOSED);
        } else {
            unsigned policy = word >> WEFT__TIMER_POLICY_SHIFT & 3u;
            if (c->max_pending)
                atom_add_rlx(&c->pending, (uint64_t)1); /* keeps its place */
            late = weft__timer_arm_locked(
                t, word, weft__timer_next(t->entry.deadline, t->period, policy, now));
            due = late ? due_locked(t) : due;
        }
    }
    weft__shard_release(&s->lock);
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
    weft__shard_acquire(&t->shard->lock);
    word = weft__timer_word(t);
    weft__shard_release(&t->shard->lock);
    if (phase_of(word) == WEFT__TIMER_FIRED && (word & WEFT__TIMER_INTERVAL))
        take_interval(t);
    return outcome(word);
}

static void wait_link(weft__timer *t, weft__wait_node *node)
{
    uint32_t word = weft__timer_word(t);
    if (t->waiters) {
        weft__list_insert_before(&t->waiters->link, &node->link);
    } else {
        node->link.next = node->link.prev = &node->link;
        t->waiters = node;
    }
    weft__timer_set(t, word | (uint32_t)WEFT__TIMER_WAITED, phase_of(word));
}

static void wait_unlink(weft__timer *t, weft__wait_node *node)
{
    if (t->waiters == node) {
        weft__wait_node *next = weft__container(node->link.next, weft__wait_node, link);
        t->waiters = next == node ? NULL : next;
    }
    weft__list_remove(&node->link);
}

static int wait_end(weft__timer *t, weft_time deadline)
{
    weft__wait_node node = {{NULL, NULL}, weft__self(), 0, 0, NULL, 0};
    int r = deadline == WEFT_TRY ? 0 : weft__checkpoint(node.parker);
    if (r)
        return r;
    weft__shard_acquire(&t->shard->lock);
    r = outcome(weft__timer_word(t));
    if (r == -EAGAIN && (r = no_wait(deadline)) == 0) {
        weft__wait_begin(node.parker, "timer", t);
        wait_link(t, &node);
        return wait_linked(t, &node, deadline, wait_unlink);
    }
    weft__shard_release(&t->shard->lock);
    return r;
}

int weft_timer_wait(weft_timer *timer, weft_time deadline)
{
    if (!timer || !inner(timer)->shard)
        return -EINVAL;
    weft__timer *t = inner(timer);
    if (atom_load_rlx(&t->entry.owner) & WEFT__TIMER_CALLBACK)
        return -EINVAL;
    int r = wait_end(t, deadline);
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

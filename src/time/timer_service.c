/* SPDX-License-Identifier: MIT
 *
 * timer_service.c -- the reactor's side of weft/timer.h: turn, prepare_wait, close.
 * The protocols (delivery, tickets, plan) are described in timer_internal.h.
 *
 * A turn looks once into each shard, then hands out in groups of at most BATCH, by turns
 * from the immediate lists and from the wheels. The wheels are merged: the shard with the
 * earliest time goes first, and only as far as the next shard's time, so the order of
 * ticks holds across shards.
 */
#include "time/timer_internal.h"

#include <limits.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEFAULT_TICK   WEFT_MSEC
#define DEFAULT_SHARDS 8u

/* -- create, references ---------------------------------------------------------------- */

static unsigned shards_for(unsigned cpus)
{
    unsigned n = 1;
    while (n < cpus && n < DEFAULT_SHARDS)
        n *= 2;
    return n;
}

int weft_timer_service_create(weft_time origin, const weft_timer_options *options,
                              weft_timer_service **ret_service)
{
    weft_timer_options o = {0};
    if (options)
        o = *options;
    o.tick = o.tick == 0 ? DEFAULT_TICK : o.tick;
    if (o.shards == 0)
        o.shards = o.local ? 1 : shards_for(weft__sys_cpus());
    if (!ret_service || o.tick < WEFT__WHEEL_MIN_TICK || o.shards > WEFT__TIMER_SHARDS_MAX ||
        (o.shards & (o.shards - 1)) != 0 || (o.local && o.shards != 1))
        return -EINVAL;
    weft_timer_service *v = weft__aligned_alloc(WEFT__CACHE_LINE, sizeof *v);
    weft__shard *shards = weft__aligned_alloc(WEFT__CACHE_LINE, o.shards * sizeof *shards);
    if (!v || !shards) {
        weft__free(v);
        weft__free(shards);
        return -ENOMEM;
    }
    *v = (weft_timer_service){.next_ticket = 1, .batch_first = 1};
    weft_timer_context *c = &v->context;
    c->clock = o.clock;
    c->clock_arg = o.clock_arg;
    c->tick = o.tick;
    c->max_pending = o.max_pending;
    c->shard_mask = o.shards - 1;
    c->barrier = weft__sys_barrier_usable();
    c->shards = shards;
    c->fd = -1;
    atom_store_rlx(&c->plan, (uint64_t)WEFT_TRY);
    atom_store_rlx(&c->now, (uint64_t)origin);
    atom_store_rlx(&c->progress, (uint64_t)1);
    atom_store_rlx(&c->refs, 1u);
    for (unsigned i = 0; i < o.shards; i++) {
        weft__shard *s = &shards[i];
        weft__shard_lock_init(&s->lock, c->barrier, o.local);
        s->closed = false;
        s->context = c;
        s->weak = s->immediate_count = 0;
        weft__list_init(&s->immediate);
        weft__list_init(&s->syncers);
        weft__wheel_init(&s->wheel, origin, o.tick);
    }
    *ret_service = v;
    return 0;
}

weft_timer_context *weft_timer_service_context(weft_timer_service *service)
{
    return service ? &service->context : NULL;
}

weft_timer_context *weft_timer_context_ref(weft_timer_context *context)
{
    if (context)
        atom_add_rlx(&context->refs, 1u);
    return context;
}

weft_timer_context *weft_timer_context_unref(weft_timer_context *context)
{
    /* Acquire and release: the last one sees what all others did. */
    if (context && atom_sub_ar(&context->refs, 1u) == 1) {
        weft__free(context->shards);
        weft__free(weft__service_of(context));
    }
    return NULL;
}

weft_time weft_timer_context_now(const weft_timer_context *context)
{
    return context ? weft__context_clock(context) : 0;
}

weft_time weft_timer_context_tick(const weft_timer_context *context)
{
    return context ? context->tick : 0;
}

/* -- the plan ------------------------------------------------------------------------ */

void weft__context_wake(weft_timer_context *c, weft_time due)
{
    weft_waker waker = {NULL, NULL};
    weft__acquire(&c->wake_lock);
    if (due < (weft_time)atom_load_rlx(&c->plan)) {
        atom_store_rlx(&c->plan, (uint64_t)WEFT_TRY); /* one wake per plan */
        waker = c->waker;
        if (!waker.wake && c->fd >= 0 && !c->fd_raised) {
            uint64_t one = 1;
            /* A fresh counter takes it; never blocks. Under the lock, so that the
             * descriptor is not closed meanwhile. */
            c->fd_raised = write(c->fd, &one, sizeof one) == (ssize_t)sizeof one;
        }
    }
    weft__release(&c->wake_lock);
    if (waker.wake)
        waker.wake(waker.arg);
}

/* No wake is wanted any more, or (with WEFT_NEVER) every one. */
static void set_plan(weft_timer_context *c, weft_time plan, const weft_waker *waker)
{
    weft__acquire(&c->wake_lock);
    if (c->fd_raised) {
        uint64_t count;
        c->fd_raised = read(c->fd, &count, sizeof count) < 0 && errno != EAGAIN;
    }
    c->waker.wake = waker ? waker->wake : NULL;
    c->waker.arg = waker ? waker->arg : NULL;
    atom_store_rlx(&c->plan, (uint64_t)plan);
    weft__release(&c->wake_lock);
}

/* From all wakes to those before `until`; false when one came already. */
static bool lower_plan(weft_timer_context *c, weft_time until)
{
    weft__acquire(&c->wake_lock);
    bool intact = (weft_time)atom_load_rlx(&c->plan) == WEFT_NEVER;
    if (intact)
        atom_store_rlx(&c->plan, (uint64_t)until);
    weft__release(&c->wake_lock);
    return intact;
}

static bool is_driving(weft_timer_context *c)
{
    return atom_load_rlx(&c->driver) != 0;
}

int weft_timer_service_prepare_wait(weft_timer_service *service, const weft_waker *waker,
                                    weft_time *ret_until)
{
    if (!service || (waker && !waker->wake))
        return -EINVAL;
    weft_timer_context *c = &service->context;
    if (is_driving(c))
        return -EBUSY;
    if (service->closed)
        return -ESHUTDOWN;
    weft_time until = WEFT_NEVER;
    set_plan(c, WEFT_NEVER, waker);
    for (unsigned i = 0; i <= c->shard_mask && until != WEFT_TRY; i++) {
        weft__shard *s = &c->shards[i];
        weft__shard_acquire(&s->lock);
        weft_time next = s->immediate_count ? WEFT_TRY : weft__wheel_next(&s->wheel);
        weft__shard_release(&s->lock);
        until = next < until ? next : until;
    }
    if (until == WEFT_TRY || (until != WEFT_NEVER && until <= weft__context_clock(c)) ||
        !lower_plan(c, until)) {
        set_plan(c, WEFT_TRY, NULL);
        until = WEFT_TRY;
    }
    if (ret_until)
        *ret_until = until;
    if (until == WEFT_TRY)
        return WEFT_WAIT_NOW;
    return until == WEFT_NEVER ? WEFT_WAIT_FOREVER : WEFT_WAIT_UNTIL;
}

int weft_timer_service_fd(weft_timer_service *service)
{
    if (!service)
        return -EINVAL;
    weft_timer_context *c = &service->context;
    if (c->fd >= 0)
        return c->fd;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    weft__acquire(&c->wake_lock);
    c->fd = fd;
    weft__release(&c->wake_lock);
    return fd;
}

int weft_wait_milliseconds(int plan, weft_time now, weft_time until)
{
    if (plan == WEFT_WAIT_FOREVER)
        return -1;
    if (plan != WEFT_WAIT_UNTIL || until <= now)
        return 0;
    uint64_t ms = ((uint64_t)until - (uint64_t)now - 1) / (uint64_t)WEFT_MSEC + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* -- delivery ------------------------------------------------------------------------ */

/* Into the batch, under the shard's lock: after it the timer is not touched again. */
static void collect(weft_timer_service *v, weft__timer *t, weft__wakes *wakes)
{
    weft_timer_context *c = &v->context;
    uint32_t word = weft__timer_word(t);
    weft__delivery *d = &v->batch[v->batch_count];
    weft_waker waker;
    uint32_t phase = v->result ? WEFT__TIMER_CLOSED : WEFT__TIMER_FIRED;
    if (word & WEFT__TIMER_WEAK)
        t->shard->weak--;
    if (c->max_pending)
        atom_sub_rlx(&c->pending, (uint64_t)1);
    if (word & WEFT__TIMER_CALLBACK) {
        d->fn.call = t->u.call.fn;
        d->arg = t->u.call.arg;
        d->callback = true;
        d->interval = (word & WEFT__TIMER_INTERVAL) && !v->result;
        d->timer = t;
        weft__timer_set(t, word, phase);
    } else {
        v->delivered++;
        t->ticket = v->next_ticket; /* before it can be seen to have ended */
        if (!weft__timer_end_locked(t, word, phase, v->result, wakes, &waker)) {
            t->ticket = 0;
            return;
        }
        d->fn.wake = waker.wake;
        d->arg = waker.arg;
        d->callback = d->interval = false;
        d->timer = t;
    }
    t->ticket = v->next_ticket++;
    v->batch_count++;
}

/* A repeating timer after its callback: it lives, unless the callback took it in hand. */
static void repeat(weft_timer_service *v, weft__timer *t, uint64_t ticket)
{
    weft_timer_context *c = &v->context;
    weft__shard *s = v->batch_shard;
    weft__shard_acquire(&s->lock);
    uint32_t word = weft__timer_word(t);
    if (t->ticket == ticket && (word & WEFT__TIMER_INTERVAL) &&
        (word & WEFT__TIMER_PHASE) == WEFT__TIMER_FIRED && !s->closed) {
        unsigned policy = word >> WEFT__TIMER_POLICY_SHIFT & 3u;
        weft_time now = (weft_time)atom_load_rlx(&c->now);
        if (c->max_pending)
            atom_add_rlx(&c->pending, (uint64_t)1); /* keeps its place */
        weft__timer_arm_locked(t, word,
                               weft__timer_next(t->entry.deadline, t->period, policy, now));
    }
    weft__shard_release(&s->lock);
}

/* Wakes the cancel_waits whose delivery is over. */
static void wake_syncers(weft_timer_context *c, uint64_t progress)
{
    for (unsigned i = 0; i <= c->shard_mask; i++) {
        weft__shard *s = &c->shards[i];
        weft__wakes wakes = {NULL, NULL};
        weft__shard_acquire(&s->lock);
        weft__list_for_safe (&s->syncers, it) {
            weft__wait_node *n = weft__container(it, weft__wait_node, link);
            if (n->arg >= progress)
                continue;
            weft__list_remove(it);
            if (weft__node_claim(n, 0))
                weft__wakes_add(&wakes, n->parker);
        }
        weft__shard_release(&s->lock);
        weft__wakes_run(&wakes);
    }
}

/* Calls what the batch holds; no lock held. */
static void deliver(weft_timer_service *v)
{
    weft_timer_context *c = &v->context;
    for (unsigned i = 0; i < v->batch_count; i++) {
        weft__delivery *d = &v->batch[i];
        uint64_t ticket = v->batch_first + i;
        v->gone = false;
        if (d->timer && d->callback) {
            v->delivered++;
            d->fn.call((weft_timer *)(void *)d->timer, d->arg, v->result);
            if (d->interval && !v->gone)
                repeat(v, d->timer, ticket);
        } else if (d->timer) {
            d->fn.wake(d->arg);
        }
        /* Moved, then syncers looked at: pairs with cancel_wait, which does it the other
         * way round. */
        weft__store_then_look64(&c->progress, ticket + 1, c->barrier);
        if (WEFT__UNLIKELY(atom_load_sc(&c->syncers)))
            wake_syncers(c, ticket + 1);
    }
    v->batch_count = 0;
}

static void start_batch(weft_timer_service *v, weft__shard *s)
{
    v->batch_count = 0;
    v->batch_first = v->next_ticket;
    v->batch_shard = s;
}

/* Under the lock, what has been unlinked from the wheel onto `due`. */
static void collect_list(weft_timer_service *v, weft__list *due, weft__wakes *wakes)
{
    weft__link *l = due->head.next;
    while (l != &due->head) {
        weft__timer *t = weft__container(l, weft__timer, entry.link);
        l = l->next;
        __builtin_prefetch((const char *)l + WEFT__CACHE_LINE, 1); /* its ticket */
        t->entry.link.next = NULL; /* unlinked: the list itself is dropped */
        collect(v, t, wakes);
    }
}

/* One group from a shard's wheel as of `now`; returns its size, and the shard's next time. */
static size_t turn_wheel(weft_timer_service *v, weft__shard *s, weft_time now, size_t max,
                         weft_time *ret_next)
{
    weft__list due;
    weft__wakes wakes = {NULL, NULL};
    weft__list_init(&due);
    start_batch(v, s);
    weft__shard_acquire(&s->lock);
    size_t n = weft__wheel_advance(&s->wheel, now, &due,
                                   max < WEFT__TIMER_BATCH ? max : WEFT__TIMER_BATCH);
    collect_list(v, &due, &wakes);
    *ret_next = weft__wheel_next(&s->wheel);
    weft__shard_release(&s->lock);
    weft__wakes_run(&wakes);
    deliver(v);
    return n;
}

static size_t turn_immediate(weft_timer_service *v, weft__shard *s, size_t max)
{
    weft__wakes wakes = {NULL, NULL};
    weft__link *l;
    size_t n = 0;
    start_batch(v, s);
    weft__shard_acquire(&s->lock);
    while (n < max && n < WEFT__TIMER_BATCH && (l = weft__list_pop(&s->immediate)) != NULL) {
        s->immediate_count--;
        collect(v, weft__container(l, weft__timer, entry.link), &wakes);
        n++;
    }
    weft__shard_release(&s->lock);
    weft__wakes_run(&wakes);
    deliver(v);
    return n;
}

/* The first look of a turn: when each shard's wheel is next due, and how many timers are
 * immediate. A wheel with nothing due is moved on, so that it stays close to the present. */
static size_t survey(weft_timer_context *c, weft_time now, weft_time *next, size_t *immediate)
{
    size_t total = 0;
    for (unsigned i = 0; i <= c->shard_mask; i++) {
        weft__shard *s = &c->shards[i];
        weft__list none;
        weft__list_init(&none);
        weft__shard_acquire(&s->lock);
        next[i] = weft__wheel_next(&s->wheel);
        if (next[i] > now || next[i] == WEFT_NEVER)
            weft__wheel_advance(&s->wheel, now, &none, 0);
        immediate[i] = s->immediate_count;
        weft__shard_release(&s->lock);
        total += immediate[i];
    }
    return total;
}

/* The shard that is due first, and in *ret_limit how far it may go alone. */
static unsigned first_shard(const weft_time *next, unsigned mask, weft_time now,
                            weft_time *ret_limit)
{
    unsigned first = 0;
    weft_time limit = now;
    for (unsigned i = 1; i <= mask; i++) {
        weft_time other = next[i];
        if (next[i] < next[first]) {
            other = next[first];
            first = i;
        }
        limit = other < limit ? other : limit;
    }
    *ret_limit = limit;
    return first;
}

static bool enter(weft_timer_service *v)
{
    uint64_t nobody = 0;
    return atom_cas_acq(&v->context.driver, &nobody, (uint64_t)(uintptr_t)weft__self());
}

static void leave(weft_timer_service *v)
{
    atom_store_rel(&v->context.driver, (uint64_t)0); /* pairs with the next enter */
}

static void run_turn(weft_timer_service *v, weft_time now, size_t max_immediate, size_t max_entries)
{
    weft_timer_context *c = &v->context;
    weft_time next[WEFT__TIMER_SHARDS_MAX];
    size_t immediate[WEFT__TIMER_SHARDS_MAX];
    size_t waiting = survey(c, now, next, immediate);
    unsigned turn = 0;
    for (;;) {
        weft_time limit;
        bool idle = true;
        if (waiting > 0 && max_immediate > 0) {
            unsigned i = turn++ & c->shard_mask;
            size_t want = immediate[i] < max_immediate ? immediate[i] : max_immediate;
            size_t n = want ? turn_immediate(v, &c->shards[i], want) : 0;
            size_t gone = want > WEFT__TIMER_BATCH && n == WEFT__TIMER_BATCH ? n : immediate[i];
            /* Fewer than it had (some were cancelled): no more are waited for. */
            waiting -= gone;
            immediate[i] -= gone;
            max_immediate -= n;
            idle = false;
        }
        unsigned first = first_shard(next, c->shard_mask, now, &limit);
        if (next[first] <= now && next[first] != WEFT_NEVER && max_entries > 0) {
            max_entries -= turn_wheel(v, &c->shards[first], limit, max_entries, &next[first]);
            idle = false;
        }
        if (idle)
            return;
    }
}

int64_t weft_timer_service_turn(weft_timer_service *service, weft_time now,
                                const weft_turn_budget *budget)
{
    if (!service)
        return -EINVAL;
    weft_timer_context *c = &service->context;
    if (!enter(service))
        return -EBUSY;
    if (service->closed) {
        leave(service);
        return -ESHUTDOWN;
    }
    set_plan(c, WEFT_TRY, NULL);
    if (now == WEFT_NEVER) /* at the end of the clock WEFT_NEVER is still not due */
        now--;
    if (now < (weft_time)atom_load_rlx(&c->now))
        now = (weft_time)atom_load_rlx(&c->now);
    atom_store_rlx(&c->now, (uint64_t)now);
    service->delivered = 0;
    service->result = 0;
    run_turn(service, now, budget && budget->immediate ? budget->immediate : SIZE_MAX,
             budget && budget->entries ? budget->entries : SIZE_MAX);
    int64_t delivered = (int64_t)service->delivered;
    leave(service);
    return delivered;
}

/* -- closing, counting ----------------------------------------------------------------- */

static void close_shard(weft_timer_service *v, weft__shard *s)
{
    size_t n;
    do {
        weft__list rest;
        weft__list_init(&rest);
        weft__wakes wakes = {NULL, NULL};
        start_batch(v, s);
        weft__shard_acquire(&s->lock);
        n = weft__wheel_drain(&s->wheel, &rest, WEFT__TIMER_BATCH);
        collect_list(v, &rest, &wakes);
        weft__shard_release(&s->lock);
        weft__wakes_run(&wakes);
        deliver(v);
        n += turn_immediate(v, s, WEFT__TIMER_BATCH);
    } while (n > 0);
}

int64_t weft_timer_service_close(weft_timer_service *service)
{
    if (!service)
        return -EINVAL;
    weft_timer_context *c = &service->context;
    if (!enter(service))
        return -EBUSY;
    if (service->closed) {
        leave(service);
        return -EALREADY;
    }
    service->closed = true;
    set_plan(c, WEFT_TRY, NULL);
    for (unsigned i = 0; i <= c->shard_mask; i++) {
        weft__shard_acquire(&c->shards[i].lock);
        c->shards[i].closed = true;
        weft__shard_release(&c->shards[i].lock);
    }
    service->delivered = 0;
    service->result = -ESHUTDOWN;
    for (unsigned i = 0; i <= c->shard_mask; i++)
        close_shard(service, &c->shards[i]);
    int64_t delivered = (int64_t)service->delivered;
    leave(service);
    return delivered;
}

void weft_timer_service_destroy(weft_timer_service *service)
{
    if (!service)
        return;
    weft_timer_context *c = &service->context;
    WEFT__CHECK(!is_driving(c)); /* not from a callback */
    if (!service->closed)
        weft_timer_service_close(service);
    weft__acquire(&c->wake_lock);
    int fd = c->fd;
    c->fd = -1;
    c->fd_raised = false;
    weft__release(&c->wake_lock);
    if (fd >= 0)
        close(fd);
    weft_timer_context_unref(c);
}

static size_t count(weft_timer_service *v, bool strong_only)
{
    size_t n = 0;
    for (unsigned i = 0; v && i <= v->context.shard_mask; i++) {
        weft__shard *s = &v->context.shards[i];
        weft__shard_acquire(&s->lock);
        n += s->wheel.count + s->immediate_count - (strong_only ? s->weak : 0);
        weft__shard_release(&s->lock);
    }
    return n;
}

bool weft_timer_service_idle(weft_timer_service *service)
{
    return count(service, true) == 0;
}

size_t weft_timer_service_pending(weft_timer_service *service)
{
    return count(service, false);
}

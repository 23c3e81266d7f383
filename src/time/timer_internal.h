/* SPDX-License-Identifier: MIT
 *
 * timer_internal.h -- what timer.c (any thread: arm, cancel, poll, wait) and
 * timer_service.c (the reactor: turn, prepare_wait, close) share.
 *
 * A timer lives in one shard for its whole life, the one of the processor on which it
 * was initialised, and is linked directly into that shard's wheel under its lock: there
 * is no queue between the threads that arm and the reactor, so a cancelled timer is out
 * at once and its memory free. docs/timer.md has the designs this was measured against.
 *
 * State, one word per timer, written under the shard's lock only, read without it by the
 * poller:
 *     phase    IDLE -> ARMED -> FIRED | CANCELED | CLOSED -> ARMED ...
 *     flags    WEAK, CALLBACK (fixed), INTERVAL (armed as one and not cancelled since),
 *              policy
 *
 * Delivery. The reactor takes due timers out of a shard in batches, under the lock; it
 * copies what it will call into the batch, so that afterwards it never touches a timer
 * again (except a live interval's): its memory may be gone as soon as others can see the
 * end. Each such call has a ticket, a number that rises by one. `progress` is the ticket
 * that is being, or next to be, delivered; so a delivery of t is still to come or running
 * exactly while t->ticket >= progress. A thread that has to know when it is over adds
 * itself to `syncers`, then looks at progress; the reactor moves progress, then looks at
 * syncers, with a full barrier between on both sides (shard_lock.h tells how the reactor
 * gets its for nothing), so one of them sees the other.
 *
 * The plan. `plan` is the time until which the reactor may sleep (WEFT_TRY: it does not
 * sleep, or has been woken). Whoever arms compares under the shard's lock. prepare_wait
 * first publishes WEFT_NEVER, then looks into each shard under its lock, then lowers the
 * plan to what it found, if no wake came between: a timer armed before the look is found,
 * one armed after it sees WEFT_NEVER or the plan.
 */
#ifndef WEFT_SRC_TIMER_INTERNAL_H
#define WEFT_SRC_TIMER_INTERNAL_H

#include "time/shard_lock.h"
#include "time/waker_slot.h"
#include "time/wheel.h"
#include "wait/wait.h"
#include "weft/timer.h"

enum {
    WEFT__TIMER_IDLE = 0,
    WEFT__TIMER_ARMED = 1,
    WEFT__TIMER_FIRED = 2,
    WEFT__TIMER_CANCELED = 3,
    WEFT__TIMER_CLOSED = 4,
    WEFT__TIMER_PHASE = 7,
    WEFT__TIMER_WEAK = 8,
    WEFT__TIMER_CALLBACK = 16,
    WEFT__TIMER_INTERVAL = 32,
    WEFT__TIMER_WAITED = 64, /* has waiters */
    WEFT__TIMER_POLICY_SHIFT = 8,
};

#define WEFT__TIMER_BATCH      64
#define WEFT__TIMER_SHARDS_MAX 64u

typedef struct weft__shard weft__shard;

/* What a weft_timer is inside. The state word is entry.owner. */
typedef struct weft__timer {
    weft__wheel_entry entry;
    weft__shard *shard; /* fixed by init */
    union {
        struct {
            weft_timer_fn fn;
            void *arg;
        } call;                /* CALLBACK */
        weft__waker_slot slot; /* else */
    } u;
    uint64_t ticket;          /* of the last delivery; shard's lock */
    weft__wait_node *waiters; /* a ring; shard's lock */
    weft_time period;         /* shard's lock */
} weft__timer;

_Static_assert(sizeof(weft__timer) <= sizeof(weft_timer), "weft_timer is too small");
_Static_assert(_Alignof(weft__timer) <= _Alignof(weft_timer), "weft_timer is misaligned");

struct weft__shard {
    weft__shard_lock lock; /* guards all here, and the timers of the shard */
    bool closed;
    weft_timer_context *context; /* constant */
    size_t weak;                 /* pending weak timers */
    size_t immediate_count;
    weft__list immediate; /* armed with a deadline already past */
    weft__list syncers;   /* wait nodes of cancel_wait */
    weft__wheel wheel;
} WEFT__ALIGNED(WEFT__CACHE_LINE);

struct weft_timer_context {
    /* Constant. */
    weft_time (*clock)(void *arg);
    void *clock_arg;
    weft_time tick;
    size_t max_pending;
    unsigned shard_mask;
    bool barrier; /* weft__sys_barrier works */
    weft__shard *shards;
    /* Read by every arm, written at each turn and wait. */
    weft__a64 plan WEFT__ALIGNED(WEFT__CACHE_LINE); /* a weft_time */
    weft__a64 now;                                  /* the latest turn's, a weft_time */
    weft__a64 driver;                               /* the parker inside turn or close, 0: none */
    weft__a64 progress WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__a32 syncers;
    weft__a64 pending WEFT__ALIGNED(WEFT__CACHE_LINE); /* only with max_pending */
    weft__a32 refs;
    weft__lock wake_lock; /* guards what follows and the changes of plan */
    weft_waker waker;
    int fd;         /* -1: none was asked for */
    bool fd_raised; /* readable since the last turn */
};

/* One call that the reactor owes. fn NULL: cancelled by an earlier callback. */
typedef struct weft__delivery {
    weft__timer *timer;
    union {
        weft_timer_fn call;
        void (*wake)(void *arg);
    } fn;
    void *arg;
    bool callback, interval;
} weft__delivery;

struct weft_timer_service {
    weft_timer_context context; /* first: the two convert into each other */
    bool closed;
    bool gone;            /* the running interval was cancelled, re-armed or freed */
    uint64_t next_ticket; /* of the next delivery, from 1 */
    uint64_t batch_first; /* ticket of batch[0] */
    int result;           /* of this batch: 0 or -ESHUTDOWN */
    unsigned batch_count;
    weft__shard *batch_shard;
    size_t delivered;
    weft__delivery batch[WEFT__TIMER_BATCH];
};

static inline weft_timer_service *weft__service_of(weft_timer_context *c)
{
    return (weft_timer_service *)(void *)c;
}

static inline uint32_t weft__timer_word(const weft__timer *t)
{
    return atom_load_rlx(&t->entry.owner); /* under the shard's lock */
}

/* Release: pairs with the poller's acquire. */
static inline void weft__timer_set(weft__timer *t, uint32_t word, uint32_t phase)
{
    atom_store_rel(&t->entry.owner, (word & ~(uint32_t)WEFT__TIMER_PHASE) | phase);
}

static inline weft_time weft__context_clock(const weft_timer_context *c)
{
    return c->clock ? c->clock(c->clock_arg) : weft__sys_now();
}

/* -- under the shard's lock; inline, for a call costs as much as what they do ----------- */

/* An entry outside of the wheel that is linked is on the immediate list. */
static inline void weft__timer_unlink_entry(weft__shard *s, weft__timer *t)
{
    if (!weft__wheel_remove(&s->wheel, &t->entry)) {
        weft__list_remove(&t->entry.link);
        s->immediate_count--;
    }
}

/* A pending timer: out of wheel or list, and of the counts. */
static inline void weft__timer_unlink_locked(weft__timer *t)
{
    weft__shard *s = t->shard;
    weft__timer_unlink_entry(s, t);
    if (weft__timer_word(t) & WEFT__TIMER_WEAK)
        s->weak--;
    if (WEFT__UNLIKELY(s->context->max_pending))
        atom_sub_rlx(&s->context->pending, (uint64_t)1);
}

/* Makes a timer pending, or moves it; `flags` are those of its state word. Returns whether
 * the reactor's plan has become too late. */
static inline __attribute__((always_inline)) bool
weft__timer_arm_locked(weft__timer *t, uint32_t flags, weft_time deadline)
{
    weft__shard *s = t->shard;
    weft_timer_context *c = s->context;
    if ((weft__timer_word(t) & WEFT__TIMER_PHASE) == WEFT__TIMER_ARMED) {
        weft__timer_unlink_entry(s, t);
    } else {
        s->weak += (flags & WEFT__TIMER_WEAK) != 0;
        if (!(flags & WEFT__TIMER_CALLBACK))
            weft__slot_reset(&t->u.slot); /* its poller is not polling: it arms, or none does */
    }
    weft__timer_set(t, flags, WEFT__TIMER_ARMED);
    if (WEFT__UNLIKELY(deadline <= (weft_time)atom_load_rlx(&c->now))) {
        t->entry.deadline = deadline;
        weft__list_push(&s->immediate, &t->entry.link);
        s->immediate_count++;
    } else {
        weft__wheel_add(&s->wheel, &t->entry, deadline);
    }
    /* Ordered by the shard's lock: see "The plan". */
    return deadline < (weft_time)atom_load_rlx(&c->plan);
}

/* Ends the waiters. */
void weft__timer_end_waiters(weft__timer *t, int result, weft__wakes *wakes);

/* A timer already out of the wheel: ends its waiters and takes the poller's waker. True:
 * *ret_waker is to be called after the lock. */
static inline bool weft__timer_end_locked(weft__timer *t, uint32_t word, uint32_t phase, int result,
                                          weft__wakes *wakes, weft_waker *ret_waker)
{
    weft__timer_set(t, word & ~(uint32_t)WEFT__TIMER_WAITED, phase);
    if (WEFT__UNLIKELY(word & WEFT__TIMER_WAITED))
        weft__timer_end_waiters(t, result, wakes);
    return !(word & WEFT__TIMER_CALLBACK) && weft__slot_publish(&t->u.slot, ret_waker);
}

/* When an interval is due next: `deadline` was the last, `now` is the time of delivery. */
weft_time weft__timer_next(weft_time deadline, weft_time period, unsigned policy, weft_time now);

/* Without a lock: wakes the reactor if its plan is later than `due`. */
void weft__context_wake(weft_timer_context *c, weft_time due);

#endif

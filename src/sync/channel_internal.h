/* SPDX-License-Identifier: MIT
 *
 * channel_internal.h -- the channel's two ways through, for the files that implement it.
 *
 * A channel is a ring with a sender's side and a receiver's side, each on a cache line of
 * its own, and queues of those who wait, under the channel's lock.
 *
 *   Quickly  An item goes into the ring, or out of it, under its side alone: `held` is
 *            taken by one compare-and-swap and left by a plain store. So senders meet
 *            only senders, receivers only receivers, and a side looks at the other's
 *            count only when it believes the ring full (or empty). A quick operation
 *            never waits, wakes or tells anybody.
 *   Slowly   Everything else holds the lock and has both sides shut, so it sees the
 *            channel at rest: what waits, hands over, closes, reserves or counts.
 *
 * A side is open only while nothing has to be done there but to move items: the sender's
 * while nobody waits to receive and nobody watches for items, the receiver's while nobody
 * waits to send and nobody watches for room, both while the channel is not closed. Who
 * shuts a side waits for the quick operation that is in it: a few instructions, or asleep
 * when its thread was preempted there.
 *
 * `shut` is changed under the lock only. Shutting stores `shut`, then looks at `held`; a
 * quick operation swaps `held`, then looks at `shut`: both sequentially consistent, so one
 * of the two sees the other. It leaves by storing `held`, then looking whether somebody
 * sleeps in `shut`; who is about to sleep says so in `shut`, then looks at `held`. There
 * the sleeper, who is rare, forces the barrier onto the other (weft__sys_barrier, as in
 * time/shard_lock.h); where that is not to be had, the leaving is sequentially consistent.
 *
 * A channel that only one thread has used so far, for some hundred items, may go without the
 * swap: that thread is `solo` on both sides and comes in by storing `solo_held`, then looking
 * at `shut` and once more at `solo`. Whoever else finds `solo` goes slowly; who shuts a side of
 * another's forces a barrier between the two steps of that one, waits for `solo_held`, too, and
 * takes `solo` away for ever. Everything but the plain send and receive of a word uses `held` also
 * then: the one thread is not in both at once. `solo` changes with both sides shut only.
 *
 * Invariants, checked by weft__channel_check() with the lock held and the sides shut
 *   C1  length + reserved <= capacity, where length is what the sender's side has put into
 *       the ring less what the receiver's side has taken out; the rest is room.
 *   C2  length > 0 => nobody waits to receive or to find it readable.
 *   C3  room > 0   => nobody waits to send, to reserve or to find it writable. Nor does
 *       anybody wait to send while somebody waits to receive (all places are reserved).
 *   C4  closed     => the queues are empty: who still waits is in a list of the close.
 *   C5  sent == received + length: an item counts as sent in the step that puts it into
 *       the ring or into the hands of a claimed receiver, and a waiting sender's item
 *       moves only in the step that has claimed the sender. So the outcome of its wait
 *       says where the item is, whoever else wanted to decide it.
 *   C6  receivers (senders) in the queue => the sender's (receiver's) side is shut: from
 *       the try that found nothing, over the link, until the node has left the queue.
 *   (C2 to C4 allow nodes whose wait was decided by a deadline or a cancellation and
 *   whose owner has not taken them out yet; they cannot be claimed.)
 */
#ifndef WEFT_SRC_SYNC_CHANNEL_INTERNAL_H
#define WEFT_SRC_SYNC_CHANNEL_INTERNAL_H

#include "sync/channel.h"

#include <string.h>

#include "sync/queue.h"

/* Smaller channels always go slowly: nearly each of their operations waits or wakes. */
#ifdef WEFT_MODEL
#define WEFT__CHANNEL_QUICK_MIN 2
#define WEFT__CHANNEL_SOLO_MIN  1
#define WEFT__CHANNEL_IDLE_MAX  (-1)
#else
#define WEFT__CHANNEL_QUICK_MIN 8
#define WEFT__CHANNEL_SOLO_MIN  512 /* items in and out, to pay for the barriers of a revocation */
#define WEFT__CHANNEL_IDLE_MAX  3 /* so few quick operations do not pay for opening and shutting */
#endif

enum { CLOSED = 1, WATCHED_READ = 2, WATCHED_WRITE = 4 }; /* flags */
enum { SEND, RESERVE };                                   /* node->arg of a sender */
enum { OPEN, SHUT, SHUT_ASLEEP };                         /* side->shut */
enum { WEFT__CHANNEL_NAME_BYTES = 32 };

typedef struct weft__channel_side {
    weft__a32 held; /* 1: a quick operation is under way */
    weft__a32 shut;
    weft__a64 count;     /* items it has moved through the ring */
    uint64_t bound;      /* count may go so far, as of the last look at the other side */
    uint32_t at;         /* index of the place it uses next */
    weft__aptr who;      /* a hint: the thread that last moved an item */
    weft__aptr solo;     /* the one thread that may come in by solo_held, or NULL */
    weft__a32 solo_held; /* 1: it is in */
    weft__a32 doubt;     /* a hint: how often looking on was in vain */
    /* Constant: */
    uint32_t capacity, item_size;
    bool barrier; /* weft__sys_barrier works */
    bool shared;  /* under the lock: a second thread has come, nobody goes alone any more */
    unsigned char *ring;
} WEFT__ALIGNED(WEFT__CACHE_LINE) weft__channel_side;

struct weft_channel {
    weft__lock lock;
    uint32_t flags;
    uint32_t reserved;
    uint32_t capacity; /* constant, as item_size and quick */
    uint32_t item_size;
    bool quick; /* the sides may be opened */
    weft__list receivers;
    weft__list senders; /* and those who reserve */
    uint64_t handed;    /* items that never were in the ring */
    /* Opening that was followed by hardly a quick operation is not repeated for a while. */
    uint32_t stay_shut, patience; /* slow operations, until it is tried again */
    uint64_t opened_at;           /* what both sides had moved then */
    uint32_t receivers_waiting, senders_waiting;
    uint64_t send_blocked, recv_blocked;
    weft__channel_side tx, rx;
    weft__a32 refs;
    weft__list readable, writable;
    void (*drop)(void *item, void *arg);
    void *drop_arg;
    char name[WEFT__CHANNEL_NAME_BYTES];
};

/* ---- A side ---- */

/* Some number of the calling thread, which a fiber may leave at its next suspension. */
static inline void *weft__this_thread(void)
{
    void *p = NULL;
#if defined(WEFT_MODEL) /* whose threads are one */
    p = weft__self_call();
#elif defined(__x86_64__) && defined(__ELF__)
    __asm__ volatile("movq %%fs:0, %0" : "=r"(p));
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, tpidr_el0" : "=r"(p));
#endif
    return p;
}

void weft__side_pause(int round); /* longer with each round up to the fifth */
bool weft__side_take_contended(weft__channel_side *s);
void weft__side_wake(weft__channel_side *s);
void weft__side_shut(weft__channel_side *s);
bool weft__side_more_soon(weft__channel_side *s, weft__channel_side *other);
bool weft__side_opens_soon(weft_channel *ch, weft__channel_side *s);

/* True: somebody is to be woken. */
static inline bool weft__side_left(weft__channel_side *s)
{
    if (WEFT__LIKELY(s->barrier)) {
        atom_store_rel(&s->held, 0u); /* pairs with taking and with shutting */
        __asm__ volatile("" ::: "memory");
    } else {
        atom_xchg_sc(&s->held, 0u);
    }
    return WEFT__UNLIKELY(atom_load_sc(&s->shut) == SHUT_ASLEEP); /* pairs with side_shut */
}

static inline void weft__side_leave(weft__channel_side *s)
{
    if (weft__side_left(s))
        weft__side_wake(s);
}

static inline bool weft__side_swap(weft__channel_side *s)
{
    uint32_t free_ = 0;
    return atom_cas_sc(&s->held, &free_, 1u);
}

/* Having taken `held`. The look at `solo` comes after that at `shut`. */
static inline bool weft__side_is_mine(weft__channel_side *s)
{
    if (WEFT__UNLIKELY(atom_load_sc(&s->shut) != OPEN)) /* pairs with side_shut */
        return false;
    void *solo = atom_load_acq(&s->solo); /* pairs with side_shut, which has seen that one off */
    return WEFT__LIKELY(!solo) || solo == weft__this_thread();
}

/* False: it is shut, or others have it for long. */
static inline bool weft__side_take(weft__channel_side *s)
{
    if (WEFT__UNLIKELY(atom_load_rlx(&s->shut) != OPEN))
        return false;
    if (WEFT__UNLIKELY(!weft__side_swap(s)))
        return weft__side_take_contended(s);
    if (WEFT__LIKELY(weft__side_is_mine(s)))
        return true;
    weft__side_leave(s);
    return false;
}

/* How many items the holder of the sender's (receiver's) side can move, looking at the
 * other side; and by the last look, unless that says none. */
static inline uint64_t weft__tx_look(weft_channel *ch)
{
    weft__channel_side *s = &ch->tx;
    /* Acquire: the places are free before they are filled again. */
    s->bound = atom_load_acq(&ch->rx.count) + (ch->capacity - ch->reserved);
    return s->bound - atom_load_rlx(&s->count);
}

static inline uint64_t weft__rx_look(weft_channel *ch)
{
    weft__channel_side *s = &ch->rx;
    s->bound = atom_load_acq(&ch->tx.count); /* pairs with weft__side_moved */
    return s->bound - atom_load_rlx(&s->count);
}

static inline uint64_t weft__tx_room(weft_channel *ch)
{
    uint64_t room = ch->tx.bound - atom_load_rlx(&ch->tx.count);
    return WEFT__LIKELY(room) ? room : weft__tx_look(ch);
}

static inline uint64_t weft__rx_items(weft_channel *ch)
{
    uint64_t items = ch->rx.bound - atom_load_rlx(&ch->rx.count);
    return WEFT__LIKELY(items) ? items : weft__rx_look(ch);
}

static inline unsigned char *weft__side_place(const weft__channel_side *s)
{
    return s->ring + (size_t)s->at * s->item_size;
}

static inline void weft__side_moved(weft__channel_side *s)
{
    uint32_t next = s->at + 1;
    s->at = next == s->capacity ? 0 : next;
    atom_store_rlx(&s->who, weft__this_thread());
    /* Pairs with the other side's look at it. */
    atom_store_rel(&s->count, atom_load_rlx(&s->count) + 1);
}

/* ---- With the lock held ---- */

static inline uint64_t weft__channel_moved(const weft_channel *ch)
{
    return atom_load_rlx(&ch->tx.count) + atom_load_rlx(&ch->rx.count);
}

/* First thing of everything that is done slowly. */
static inline void weft__channel_enter(weft_channel *ch)
{
    if (!ch->quick)
        return;
    bool tx = atom_load_rlx(&ch->tx.shut) == OPEN, rx = atom_load_rlx(&ch->rx.shut) == OPEN;
    if (tx)
        weft__side_shut(&ch->tx);
    if (rx)
        weft__side_shut(&ch->rx);
    if (tx || rx) {
        bool worth_it = (int64_t)(weft__channel_moved(ch) - ch->opened_at) > WEFT__CHANNEL_IDLE_MAX;
        ch->patience = worth_it ? 0 : ch->patience < 32 ? 2 * ch->patience + 2 : ch->patience;
        ch->stay_shut = ch->patience;
    }
}

/* Last thing of it, unless the caller goes on to wait (C6). */
static inline void weft__channel_reopen(weft_channel *ch)
{
    if (!ch->quick)
        return;
    if (ch->stay_shut) {
        ch->stay_shut--;
        return;
    }
    /* All that is read of a side before the first is open: then it moves. */
    uint64_t in = atom_load_rlx(&ch->tx.count), out = atom_load_rlx(&ch->rx.count);
    bool tx = weft__list_empty(&ch->receivers) && !ch->flags;
    bool rx = weft__list_empty(&ch->senders) && !(ch->flags & ~(uint32_t)WATCHED_READ);
    ch->opened_at = in + out;
    ch->tx.bound = out + (ch->capacity - ch->reserved);
    ch->rx.bound = in;
    void *me = weft__this_thread();
    if (in + out >= WEFT__CHANNEL_SOLO_MIN && !ch->tx.shared && ch->tx.barrier &&
        atom_load_rlx(&ch->tx.who) == me && atom_load_rlx(&ch->rx.who) == me) {
        atom_store_rlx(&ch->tx.solo, me);
        atom_store_rlx(&ch->rx.solo, me);
    }
    /* Release: pairs with the look at `shut` of who takes the side. */
    if (tx)
        atom_store_rel(&ch->tx.shut, (uint32_t)OPEN);
    if (rx)
        atom_store_rel(&ch->rx.shut, (uint32_t)OPEN);
}

static inline uint32_t weft__channel_items(const weft_channel *ch)
{
    return (uint32_t)(atom_load_rlx(&ch->tx.count) - atom_load_rlx(&ch->rx.count));
}

static inline uint32_t weft__channel_room(const weft_channel *ch)
{
    return ch->capacity - ch->reserved - weft__channel_items(ch);
}

static inline void weft__channel_check(const weft_channel *ch)
{
    (void)ch;
#ifdef WEFT_DEBUG
    uint32_t length = weft__channel_items(ch);
    WEFT__ASSERT((uint64_t)length + ch->reserved <= ch->capacity); /* C1 */
    WEFT__ASSERT(ch->capacity == 0 ||
                 ((uint64_t)ch->rx.at + length) % ch->capacity == ch->tx.at % ch->capacity);
    WEFT__ASSERT(ch->receivers_waiting > 0 || weft__list_empty(&ch->receivers));
    WEFT__ASSERT(ch->senders_waiting > 0 || weft__list_empty(&ch->senders));
    WEFT__ASSERT(!(ch->flags & CLOSED) ||
                 (weft__list_empty(&ch->senders) && weft__list_empty(&ch->receivers))); /* C4 */
    WEFT__ASSERT(weft__list_empty(&ch->receivers) || !ch->quick ||
                 atom_load_rlx(&ch->tx.shut) != OPEN); /* C6 */
    WEFT__ASSERT(weft__list_empty(&ch->senders) || !ch->quick ||
                 atom_load_rlx(&ch->rx.shut) != OPEN);
#endif
}

/* ---- Slowly: with the lock held and the sides shut ---- */

static inline bool weft__channel_bad_item(const weft_channel *ch, const void *item)
{
    return !ch || (!item && ch->item_size);
}

static inline void weft__channel_copy(const weft_channel *ch, void *to, const void *from)
{
    if (WEFT__LIKELY(ch->item_size == 8))
        memcpy(to, from, 8); /* a load and a store */
    else if (ch->item_size)
        memcpy(to, from, ch->item_size);
}

/* A place has become free: the first who waits for one gets it. */
void weft__channel_give_place(weft_channel *ch, weft__wakes *wakes);

/* An item, for which there is room or a reserved place, to the first receiver that waits,
 * else into the ring. True: to a receiver, and the place is still there. */
bool weft__channel_deliver(weft_channel *ch, const void *item, weft__wakes *wakes);

int weft__channel_send_once(weft_channel *ch, const void *item, weft__wakes *wakes);
int weft__channel_recv_once(weft_channel *ch, void *item, weft__wakes *wakes);

#endif

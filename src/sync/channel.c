/* SPDX-License-Identifier: MIT
 *
 * channel.c -- sending, receiving and waiting; see weft/channel.h, and
 * channel_internal.h for how a channel is built and what always holds.
 *
 * Algorithm of the slow way: a ring under a lock, and queues of those who wait; a sender
 * that finds a waiting receiver copies straight into its buffer and leaves the ring alone,
 * a receiver that makes room moves the first waiting sender's item into the ring. After
 * Go's runtime/chan.go (K. Randall, 2014), itself after CSP (C. A. R. Hoare, CACM 21(8),
 * 1978). The quick way splits the lock in two, one for each end, as in the two-lock queue
 * (M. M. Michael, M. L. Scott, PODC 1996), with remembered counts of the other end after
 * FastForward's successors (P. P. C. Lee et al., MCRingBuffer, IPDPS 2010).
 *
 * A waiter's payload is read or written by its claimer, under the lock.
 */
#include "sync/channel_internal.h"

/* ---- Those who wait ---- */

static weft__wait_node *claim_receiver(weft_channel *ch)
{
    while (!weft__list_empty(&ch->receivers)) {
        weft__wait_node *n = weft__node_of(weft__list_pop(&ch->receivers));
        ch->receivers_waiting--;
        if (WEFT__LIKELY(weft__node_claim(n, 0)))
            return n;
    }
    return NULL;
}

static weft__wait_node *claim_sender(weft_channel *ch)
{
    while (!weft__list_empty(&ch->senders)) {
        weft__wait_node *n = weft__node_of(weft__list_pop(&ch->senders));
        ch->senders_waiting--;
        if (WEFT__LIKELY(weft__node_claim(n, 0)))
            return n;
    }
    return NULL;
}

/* The same for a receiver who finds the ring empty: those who want a place for later have
 * nothing to take. Senders wait then where the capacity is 0 or all places are reserved. */
static WEFT__NOINLINE weft__wait_node *claim_item(weft_channel *ch)
{
    weft__link *next;
    for (weft__link *l = ch->senders.head.next; l != &ch->senders.head; l = next) {
        weft__wait_node *n = weft__node_of(l);
        next = l->next;
        if (n->arg == RESERVE)
            continue;
        weft__list_remove(l);
        ch->senders_waiting--;
        if (WEFT__LIKELY(weft__node_claim(n, 0)))
            return n;
    }
    return NULL;
}

static WEFT__NOINLINE void tell_watchers(weft_channel *ch, weft__list *q, uint32_t flag,
                                         weft__wakes *wakes)
{
    weft__wait_node *n;
    ch->flags &= ~flag;
    while ((n = weft__queue_claim(q, 0)) != NULL)
        weft__wakes_add(wakes, n->parker);
}

static inline void put(weft_channel *ch, const void *item)
{
    weft__channel_copy(ch, weft__side_place(&ch->tx), item);
    weft__side_moved(&ch->tx);
}

/* A receiver that waits gets the item. */
static inline bool hand_over(weft_channel *ch, const void *item, weft__wakes *wakes)
{
    if (WEFT__LIKELY(weft__list_empty(&ch->receivers)))
        return false;
    weft__wait_node *n = claim_receiver(ch);
    if (!n)
        return false;
    weft__channel_copy(ch, n->payload, item);
    ch->handed++;
    weft__wakes_add(wakes, n->parker);
    return true;
}

static inline void put_and_tell(weft_channel *ch, const void *item, weft__wakes *wakes)
{
    put(ch, item);
    if (WEFT__UNLIKELY(ch->flags & WATCHED_READ))
        tell_watchers(ch, &ch->readable, WATCHED_READ, wakes);
}

static inline void give_place(weft_channel *ch, weft__wakes *wakes)
{
    if (WEFT__UNLIKELY(!weft__list_empty(&ch->senders))) {
        weft__wait_node *n = claim_sender(ch);
        if (n) {
            if (n->arg == RESERVE)
                ch->reserved++;
            else
                put_and_tell(ch, n->payload, wakes);
            weft__wakes_add(wakes, n->parker);
            return;
        }
    }
    if (WEFT__UNLIKELY(ch->flags & WATCHED_WRITE))
        tell_watchers(ch, &ch->writable, WATCHED_WRITE, wakes);
}

void weft__channel_give_place(weft_channel *ch, weft__wakes *wakes)
{
    give_place(ch, wakes);
}

bool weft__channel_deliver(weft_channel *ch, const void *item, weft__wakes *wakes)
{
    if (hand_over(ch, item, wakes))
        return true;
    put_and_tell(ch, item, wakes);
    return false;
}

/* ---- The one try of each kind, slowly ---- */

static inline __attribute__((always_inline)) int send_once(weft_channel *ch, const void *item,
                                                           weft__wakes *wakes)
{
    if (WEFT__UNLIKELY(ch->flags & CLOSED))
        return -EPIPE;
    if (hand_over(ch, item, wakes))
        return 0;
    if (weft__channel_room(ch) == 0)
        return -EAGAIN;
    put_and_tell(ch, item, wakes);
    return 0;
}

static inline __attribute__((always_inline)) int recv_once(weft_channel *ch, void *item,
                                                           weft__wakes *wakes)
{
    if (WEFT__LIKELY(weft__channel_items(ch))) {
        weft__channel_copy(ch, item, weft__side_place(&ch->rx));
        weft__side_moved(&ch->rx);
        give_place(ch, wakes);
        return 0;
    }
    if (WEFT__UNLIKELY(ch->flags & CLOSED))
        return -EPIPE;
    if (!weft__list_empty(&ch->senders)) {
        weft__wait_node *n = claim_item(ch);
        if (n) {
            weft__channel_copy(ch, item, n->payload);
            ch->handed++;
            weft__wakes_add(wakes, n->parker);
            return 0;
        }
    }
    return -EAGAIN;
}

int weft__channel_send_once(weft_channel *ch, const void *item, weft__wakes *wakes)
{
    return send_once(ch, item, wakes);
}

int weft__channel_recv_once(weft_channel *ch, void *item, weft__wakes *wakes)
{
    return recv_once(ch, item, wakes);
}

/* The end of a try: the sides stay shut when the caller may go on to wait (C6). */
static inline int tried(weft_channel *ch, int r)
{
    if (r != -EAGAIN)
        weft__channel_reopen(ch);
    return r;
}

static int send_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    weft__channel_enter(ch);
    return tried(ch, send_once(ch, n->payload, wakes));
}

static void send_link(void *object, weft__wait_node *n)
{
    weft_channel *ch = object;
    n->arg = SEND;
    weft__list_push(&ch->senders, &n->link);
    ch->senders_waiting++;
    ch->send_blocked++;
    weft__channel_check(ch);
}

static void send_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    (void)wakes;
    weft__list_remove(&n->link);
    ch->senders_waiting--;
}

static int recv_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    weft__channel_enter(ch);
    return tried(ch, recv_once(ch, n->payload, wakes));
}

static void recv_link(void *object, weft__wait_node *n)
{
    weft_channel *ch = object;
    weft__list_push(&ch->receivers, &n->link);
    ch->receivers_waiting++;
    ch->recv_blocked++;
    weft__channel_check(ch);
}

static void recv_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    (void)wakes;
    weft__list_remove(&n->link);
    ch->receivers_waiting--;
}

static int reserve_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    (void)n;
    (void)wakes;
    weft__channel_enter(ch);
    if (ch->flags & CLOSED)
        return tried(ch, -EPIPE);
    if (weft__channel_room(ch) == 0)
        return -EAGAIN;
    ch->reserved++;
    return tried(ch, 0);
}

static void reserve_link(void *object, weft__wait_node *n)
{
    send_link(object, n);
    n->arg = RESERVE;
}

static int readable_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    (void)n;
    (void)wakes;
    weft__channel_enter(ch);
    return tried(ch, weft__channel_items(ch) || (ch->flags & CLOSED) ? 0 : -EAGAIN);
}

static void readable_link(void *object, weft__wait_node *n)
{
    weft_channel *ch = object;
    weft__list_push(&ch->readable, &n->link);
    ch->flags |= WATCHED_READ;
}

static int writable_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    (void)n;
    (void)wakes;
    weft__channel_enter(ch);
    return tried(ch, weft__channel_room(ch) || (ch->flags & CLOSED) ? 0 : -EAGAIN);
}

static void writable_link(void *object, weft__wait_node *n)
{
    weft_channel *ch = object;
    weft__list_push(&ch->writable, &n->link);
    ch->flags |= WATCHED_WRITE;
}

/* The flag may stay set: it only makes somebody look. */
static void watch_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

/* ---- The one try of each kind, quickly ---- */

/* -EAGAIN means full (empty) as if tried slowly: an open side has nobody to serve first. */
static inline int send_holding(weft_channel *ch, const void *item, size_t size)
{
    weft__channel_side *s = &ch->tx;
    if (WEFT__UNLIKELY(weft__tx_room(ch) == 0))
        return -EAGAIN;
    if (size)
        memcpy(s->ring + (size_t)s->at * size, item, size);
    weft__side_moved(s);
    return 0;
}

static inline int recv_holding(weft_channel *ch, void *item, size_t size)
{
    weft__channel_side *s = &ch->rx;
    if (WEFT__UNLIKELY(weft__rx_items(ch) == 0))
        return -EAGAIN;
    if (size)
        memcpy(item, s->ring + (size_t)s->at * size, size);
    weft__side_moved(s);
    return 0;
}

static inline __attribute__((always_inline)) int send_quickly(weft_channel *ch, const void *item,
                                                              size_t size)
{
    if (WEFT__UNLIKELY(!weft__side_take(&ch->tx)))
        return WEFT__NOT_QUICKLY;
    int r = send_holding(ch, item, size);
    weft__side_leave(&ch->tx);
    return r;
}

static inline __attribute__((always_inline)) int recv_quickly(weft_channel *ch, void *item,
                                                              size_t size)
{
    if (WEFT__UNLIKELY(!weft__side_take(&ch->rx)))
        return WEFT__NOT_QUICKLY;
    int r = recv_holding(ch, item, size);
    weft__side_leave(&ch->rx);
    return r;
}

static int send_quick(void *object, void *item)
{
    weft_channel *ch = object;
    return ch->item_size == 8 ? send_quickly(ch, item, 8) : send_quickly(ch, item, ch->item_size);
}

static int recv_quick(void *object, void *item)
{
    weft_channel *ch = object;
    return ch->item_size == 8 ? recv_quickly(ch, item, 8) : recv_quickly(ch, item, ch->item_size);
}

const weft__case_ops weft__channel_send_ops = {
    .base = {"channel send", send_try, send_link, send_unlink}, .try_quickly = send_quick};
const weft__case_ops weft__channel_recv_ops = {
    .base = {"channel recv", recv_try, recv_link, recv_unlink}, .try_quickly = recv_quick};
const weft__waitable_ops weft__channel_reserve_ops = {"channel reserve", reserve_try, reserve_link,
                                                      send_unlink};
const weft__waitable_ops weft__channel_readable_ops = {"channel readable", readable_try,
                                                       readable_link, watch_unlink};
const weft__waitable_ops weft__channel_writable_ops = {"channel writable", writable_try,
                                                       writable_link, watch_unlink};

weft__lock *weft__channel_lock(weft_channel *ch)
{
    return &ch->lock;
}

/* ---- Sending and receiving ---- */

static WEFT__NOINLINE int send_slowly(weft_channel *ch, const void *item, weft_time deadline)
{
    weft__wait_node n;
    weft__wakes wakes = {NULL, NULL};
    n.payload = (void *)(uintptr_t)item; /* only read through */
    weft__acquire(&ch->lock);
    weft__channel_enter(ch);
    int r = send_once(ch, item, &wakes);
    if (r == -EAGAIN && deadline != WEFT_TRY)
        return weft__wait_slow(&weft__channel_send_ops.base, ch, &ch->lock, &n, weft__self(),
                               deadline);
    weft__channel_reopen(ch);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return r;
}

static WEFT__NOINLINE int recv_slowly(weft_channel *ch, void *item, weft_time deadline)
{
    weft__wait_node n;
    weft__wakes wakes = {NULL, NULL};
    n.payload = item;
    weft__acquire(&ch->lock);
    weft__channel_enter(ch);
    int r = recv_once(ch, item, &wakes);
    if (r == -EAGAIN && deadline != WEFT_TRY)
        return weft__wait_slow(&weft__channel_recv_ops.base, ch, &ch->lock, &n, weft__self(),
                               deadline);
    weft__channel_reopen(ch);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return r;
}

/* What there is to do before a try, and is not done yet. */
static int may_try(const weft_channel *ch, const void *item, weft_time deadline)
{
    if (weft__channel_bad_item(ch, item))
        return -EINVAL;
    return deadline == WEFT_TRY ? 0 : weft__checkpoint(weft__self());
}

/* After a quick try that failed with `r`. */
static WEFT__NOINLINE int send_on(weft_channel *ch, const void *item, weft_time deadline, int r)
{
    void *payload = (void *)(uintptr_t)item; /* only read through */
    if (r == -EAGAIN && deadline == WEFT_TRY)
        return r;
    if ((r == -EAGAIN ? weft__side_more_soon(&ch->tx, &ch->rx)
                      : ch->quick && weft__side_opens_soon(ch, &ch->tx)) &&
        send_quick(ch, payload) == 0)
        return 0;
    return send_slowly(ch, item, deadline);
}

static WEFT__NOINLINE int recv_on(weft_channel *ch, void *item, weft_time deadline, int r)
{
    if (r == -EAGAIN && deadline == WEFT_TRY)
        return r;
    if ((r == -EAGAIN ? weft__side_more_soon(&ch->rx, &ch->tx)
                      : ch->quick && weft__side_opens_soon(ch, &ch->rx)) &&
        recv_quick(ch, item) == 0)
        return 0;
    return recv_slowly(ch, item, deadline);
}

/* With everything that the common way leaves out. */
static WEFT__NOINLINE int send_checked(weft_channel *ch, const void *item, weft_time deadline)
{
    int r = may_try(ch, item, deadline);
    if (r)
        return r;
    r = send_quick(ch, (void *)(uintptr_t)item);
    return r ? send_on(ch, item, deadline, r) : 0;
}

static WEFT__NOINLINE int recv_checked(weft_channel *ch, void *item, weft_time deadline)
{
    int r = may_try(ch, item, deadline);
    if (r)
        return r;
    r = recv_quick(ch, item);
    return r ? recv_on(ch, item, deadline, r) : 0;
}

/* Whatever the common way found unusual, before it held the side, and holding it. */
static WEFT__NOINLINE int send_otherwise(weft_channel *ch, const void *item, weft_time deadline)
{
    if (!ch->quick)
        return send_slowly(ch, item, deadline);
    int r = send_quick(ch, (void *)(uintptr_t)item);
    return r ? send_on(ch, item, deadline, r) : 0;
}

static WEFT__NOINLINE int recv_otherwise(weft_channel *ch, void *item, weft_time deadline)
{
    if (!ch->quick)
        return recv_slowly(ch, item, deadline);
    int r = recv_quick(ch, item);
    return r ? recv_on(ch, item, deadline, r) : 0;
}

static WEFT__NOINLINE int send_held(weft_channel *ch, const void *item, weft_time deadline)
{
    int r = weft__side_is_mine(&ch->tx) ? send_holding(ch, item, 8) : WEFT__NOT_QUICKLY;
    weft__side_leave(&ch->tx);
    return r ? send_on(ch, item, deadline, r) : 0;
}

static WEFT__NOINLINE int recv_held(weft_channel *ch, void *item, weft_time deadline)
{
    int r = weft__side_is_mine(&ch->rx) ? recv_holding(ch, item, 8) : WEFT__NOT_QUICKLY;
    weft__side_leave(&ch->rx);
    return r ? recv_on(ch, item, deadline, r) : 0;
}

static WEFT__NOINLINE int wake_and_succeed(weft__channel_side *s)
{
    weft__side_wake(s);
    return 0;
}

/* The one thread of a channel that nobody else has used comes in and leaves. True: it may
 * stay; `solo` may have been taken away, and the side opened again, since it was seen. */
static inline bool solo_enter(weft__channel_side *s, void *solo)
{
    atom_store_rlx(&s->solo_held, 1u);
    __asm__ volatile("" ::: "memory"); /* then the looks: they pair with side_shut */
    return WEFT__LIKELY(atom_load_sc(&s->shut) == OPEN) &&
           WEFT__LIKELY(atom_load_rlx(&s->solo) == solo);
}

static inline bool solo_left(weft__channel_side *s)
{
    atom_store_rel(&s->solo_held, 0u); /* pairs with side_shut */
    __asm__ volatile("" ::: "memory");
    return WEFT__UNLIKELY(atom_load_sc(&s->shut) == SHUT_ASLEEP);
}

/* As weft__side_moved. */
static inline void advance(weft__channel_side *s, uint32_t at, uint64_t count)
{
    uint32_t next = at + 1;
    s->at = next == s->capacity ? 0 : next;
    atom_store_rel(&s->count, count + 1);
}

/* What send_quickly and recv_quickly do, for items of 8 bytes. Whatever is not the common
 * way is a call in tail position, so that this saves no register. */
static inline __attribute__((always_inline)) int succeed(weft__channel_side *s, uint32_t at,
                                                         uint64_t count)
{
    atom_store_rlx(&s->who, weft__this_thread());
    advance(s, at, count);
    return weft__side_left(s) ? wake_and_succeed(s) : 0;
}

static WEFT__NOINLINE int send_not_solo(weft_channel *ch, const void *item, weft_time deadline)
{
    if (solo_left(&ch->tx))
        weft__side_wake(&ch->tx);
    return send_otherwise(ch, item, deadline);
}

int weft_channel_send(weft_channel *ch, const void *item, weft_time deadline)
{
    if (WEFT__UNLIKELY(!ch || !item) || !weft__checkpoint_quick(weft__self_quick()))
        return send_checked(ch, item, deadline);
    weft__channel_side *s = &ch->tx;
    if (WEFT__UNLIKELY(atom_load_rlx(&s->shut) != OPEN || s->item_size != 8))
        return send_otherwise(ch, item, deadline);
    void *solo = atom_load_rlx(&s->solo);
    if (solo == weft__this_thread()) {
        if (WEFT__UNLIKELY(!solo_enter(s, solo)))
            return send_not_solo(ch, item, deadline);
        uint64_t count = atom_load_rlx(&s->count);
        if (WEFT__UNLIKELY(count == s->bound))
            return send_not_solo(ch, item, deadline);
        uint32_t at = s->at;
        memcpy(s->ring + (size_t)at * 8, item, 8);
        advance(s, at, count);
        return solo_left(s) ? wake_and_succeed(s) : 0;
    }
    if (WEFT__UNLIKELY(solo != NULL) || WEFT__UNLIKELY(!weft__side_swap(s)))
        return send_otherwise(ch, item, deadline);
    /* The look at `shut` comes first: until then who has the lock may be at work here. */
    if (WEFT__UNLIKELY(atom_load_sc(&s->shut) != OPEN || atom_load_acq(&s->solo) != NULL))
        return send_held(ch, item, deadline);
    uint64_t count = atom_load_rlx(&s->count);
    if (WEFT__UNLIKELY(count == s->bound))
        return send_held(ch, item, deadline);
    uint32_t at = s->at;
    memcpy(s->ring + (size_t)at * 8, item, 8);
    return succeed(s, at, count);
}

static WEFT__NOINLINE int recv_not_solo(weft_channel *ch, void *item, weft_time deadline)
{
    if (solo_left(&ch->rx))
        weft__side_wake(&ch->rx);
    return recv_otherwise(ch, item, deadline);
}

int weft_channel_recv(weft_channel *ch, void *item, weft_time deadline)
{
    if (WEFT__UNLIKELY(!ch || !item) || !weft__checkpoint_quick(weft__self_quick()))
        return recv_checked(ch, item, deadline);
    weft__channel_side *s = &ch->rx;
    if (WEFT__UNLIKELY(atom_load_rlx(&s->shut) != OPEN || s->item_size != 8))
        return recv_otherwise(ch, item, deadline);
    void *solo = atom_load_rlx(&s->solo);
    if (solo == weft__this_thread()) {
        if (WEFT__UNLIKELY(!solo_enter(s, solo)))
            return recv_not_solo(ch, item, deadline);
        uint64_t count = atom_load_rlx(&s->count);
        if (WEFT__UNLIKELY(count == s->bound))
            return recv_not_solo(ch, item, deadline);
        uint32_t at = s->at;
        memcpy(item, s->ring + (size_t)at * 8, 8);
        advance(s, at, count);
        return solo_left(s) ? wake_and_succeed(s) : 0;
    }
    if (WEFT__UNLIKELY(solo != NULL) || WEFT__UNLIKELY(!weft__side_swap(s)))
        return recv_otherwise(ch, item, deadline);
    /* The look at `shut` comes first: until then who has the lock may be at work here. */
    if (WEFT__UNLIKELY(atom_load_sc(&s->shut) != OPEN || atom_load_acq(&s->solo) != NULL))
        return recv_held(ch, item, deadline);
    uint64_t count = atom_load_rlx(&s->count);
    if (WEFT__UNLIKELY(count == s->bound))
        return recv_held(ch, item, deadline);
    uint32_t at = s->at;
    memcpy(item, s->ring + (size_t)at * 8, 8);
    return succeed(s, at, count);
}

/* SPDX-License-Identifier: MIT
 *
 * channel.c -- see weft/channel.h.
 *
 * Algorithm: a ring under a small lock, and queues of those who wait; a sender that
 * finds a waiting receiver copies straight into its buffer and leaves the ring
 * alone, a receiver that makes room moves the first waiting sender's item into the
 * ring. After Go's runtime/chan.go (K. Randall, 2014), itself after CSP (C. A. R.
 * Hoare, CACM 21(8), 1978).
 *
 * Every field below `lock` is under the lock, except what never changes. A waiter's
 * payload is read or written by its claimer, under the lock too.
 *
 * Invariants, checked by weft__channel_check()
 *   C1  length + reserved + room == capacity.
 *   C2  length > 0 => nobody waits to receive or to find it readable.
 *   C3  room > 0   => nobody waits to send, to reserve or to find it writable.
 *   C4  closed     => the queues are empty: who still waits is in a list of the close.
 *   C5  sent == received + length: an item counts as sent in the step that puts it
 *       into the ring or into the hands of a claimed receiver, and a waiting sender's
 *       item moves only in the step that has claimed the sender. So the outcome of
 *       its wait says where the item is, whoever else wanted to decide it.
 *   (C2 to C4 allow nodes whose wait was decided by a deadline or a cancellation and
 *   whose owner has not taken them out yet; they cannot be claimed.)
 */
#include "sync/channel.h"

#include <limits.h>
#include <string.h>

#include "sync/queue.h"

enum { CLOSED = 1, WATCHED_READ = 2, WATCHED_WRITE = 4 };
enum { NAME_BYTES = 32 };
enum { BATCH_HOLD = 64 }; /* items that a batch moves per hold of the lock */

struct weft_channel {
    weft__lock lock;
    uint32_t flags;
    uint32_t length;
    uint32_t room;
    uint32_t head; /* index of the oldest item */
    uint32_t tail; /* index of the next free place */
    uint32_t capacity;
    uint32_t item_size;
    weft__list receivers;
    weft__list senders; /* and those who reserve: node->arg is RESERVE */
    uint64_t sent;
    unsigned char *ring;

    uint32_t reserved;
    uint32_t receivers_waiting, senders_waiting;
    weft__a32 refs;
    uint64_t send_blocked, recv_blocked;
    weft__list readable, writable;
    void (*drop)(void *item, void *arg);
    void *drop_arg;
    char name[NAME_BYTES];
};

enum { SEND, RESERVE };

static void weft__channel_check(const weft_channel *ch)
{
    (void)ch;
    WEFT__ASSERT((uint64_t)ch->length + ch->reserved + ch->room == ch->capacity); /* C1 */
    WEFT__ASSERT(ch->capacity == 0 ||
                 (ch->head + ch->length) % ch->capacity == ch->tail % ch->capacity);
    WEFT__ASSERT(ch->sent >= ch->length);
    WEFT__ASSERT(ch->receivers_waiting > 0 || weft__list_empty(&ch->receivers));
    WEFT__ASSERT(ch->senders_waiting > 0 || weft__list_empty(&ch->senders));
    WEFT__ASSERT(!(ch->flags & CLOSED) ||
                 (weft__list_empty(&ch->senders) && weft__list_empty(&ch->receivers))); /* C4 */
}

/* ---- Items ---- */

static inline void copy_item(const weft_channel *ch, void *to, const void *from)
{
    if (WEFT__LIKELY(ch->item_size == 8))
        memcpy(to, from, 8); /* a load and a store */
    else if (ch->item_size)
        memcpy(to, from, ch->item_size);
}

static inline unsigned char *place(const weft_channel *ch, uint32_t index)
{
    return ch->ring + (size_t)index * ch->item_size;
}

/* Into the ring; the caller has taken one from room or from reserved. */
static inline void put_locked(weft_channel *ch, const void *item)
{
    copy_item(ch, place(ch, ch->tail), item);
    ch->tail = ch->tail + 1 == ch->capacity ? 0 : ch->tail + 1;
    ch->length++;
    ch->sent++;
}

/* Out of the ring; the caller gives the place to somebody. */
static inline void get_locked(weft_channel *ch, void *item)
{
    copy_item(ch, item, place(ch, ch->head));
    ch->head = ch->head + 1 == ch->capacity ? 0 : ch->head + 1;
    ch->length--;
}

/* ---- Those who wait ---- */

static weft__wait_node *claim_receiver_locked(weft_channel *ch)
{
    while (!weft__list_empty(&ch->receivers)) {
        weft__wait_node *n = weft__node_of(weft__list_pop(&ch->receivers));
        ch->receivers_waiting--;
        if (WEFT__LIKELY(weft__node_claim(n, 0)))
            return n;
    }
    return NULL;
}

static weft__wait_node *claim_sender_locked(weft_channel *ch)
{
    while (!weft__list_empty(&ch->senders)) {
        weft__wait_node *n = weft__node_of(weft__list_pop(&ch->senders));
        ch->senders_waiting--;
        if (WEFT__LIKELY(weft__node_claim(n, 0)))
            return n;
    }
    return NULL;
}

static WEFT__NOINLINE void tell_watchers_locked(weft_channel *ch, weft__list *q, uint32_t flag,
                                                weft__wakes *wakes)
{
    weft__wait_node *n;
    ch->flags &= ~flag;
    while ((n = weft__queue_claim(q, 0)) != NULL)
        weft__wakes_add(wakes, n->parker);
}

/* A place has become free: the first who waits for one gets it. */
static inline void give_place_locked(weft_channel *ch, weft__wakes *wakes)
{
    if (WEFT__UNLIKELY(!weft__list_empty(&ch->senders))) {
        weft__wait_node *n = claim_sender_locked(ch);
        if (n) {
            if (n->arg == RESERVE)
                ch->reserved++;
            else
                put_locked(ch, n->payload);
            weft__wakes_add(wakes, n->parker);
            return;
        }
    }
    ch->room++;
    if (WEFT__UNLIKELY(ch->flags & WATCHED_WRITE))
        tell_watchers_locked(ch, &ch->writable, WATCHED_WRITE, wakes);
}

/* A receiver that waits gets the item. */
static inline bool hand_over_locked(weft_channel *ch, const void *item, weft__wakes *wakes)
{
    if (WEFT__LIKELY(weft__list_empty(&ch->receivers)))
        return false;
    weft__wait_node *n = claim_receiver_locked(ch);
    if (!n)
        return false;
    copy_item(ch, n->payload, item);
    ch->sent++;
    weft__wakes_add(wakes, n->parker);
    return true;
}

static inline void put_and_tell_locked(weft_channel *ch, const void *item, weft__wakes *wakes)
{
    put_locked(ch, item);
    if (WEFT__UNLIKELY(ch->flags & WATCHED_READ))
        tell_watchers_locked(ch, &ch->readable, WATCHED_READ, wakes);
}

/* ---- The one try of each kind ---- */

static inline int send_locked(weft_channel *ch, const void *item, weft__wakes *wakes)
{
    if (WEFT__UNLIKELY(ch->flags & CLOSED))
        return -EPIPE;
    if (hand_over_locked(ch, item, wakes))
        return 0;
    if (ch->room == 0)
        return -EAGAIN;
    ch->room--;
    put_and_tell_locked(ch, item, wakes);
    return 0;
}

static inline int recv_locked(weft_channel *ch, void *item, weft__wakes *wakes)
{
    if (WEFT__LIKELY(ch->length)) {
        get_locked(ch, item);
        give_place_locked(ch, wakes);
        return 0;
    }
    if (WEFT__UNLIKELY(ch->flags & CLOSED))
        return -EPIPE;
    if (ch->capacity == 0 && !weft__list_empty(&ch->senders)) {
        weft__wait_node *n = claim_sender_locked(ch);
        if (n) {
            copy_item(ch, item, n->payload);
            ch->sent++;
            weft__wakes_add(wakes, n->parker);
            return 0;
        }
    }
    return -EAGAIN;
}

static int send_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    return send_locked(object, n->payload, wakes);
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
    weft__channel_check(ch);
}

static int recv_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    return recv_locked(object, n->payload, wakes);
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
    weft__channel_check(ch);
}

static int reserve_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_channel *ch = object;
    (void)n;
    (void)wakes;
    if (ch->flags & CLOSED)
        return -EPIPE;
    if (ch->room == 0)
        return -EAGAIN;
    ch->room--;
    ch->reserved++;
    return 0;
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
    return ch->length || (ch->flags & CLOSED) ? 0 : -EAGAIN;
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
    return ch->room || (ch->flags & CLOSED) ? 0 : -EAGAIN;
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

const weft__waitable_ops weft__channel_send_ops = {"channel send", send_try, send_link,
                                                   send_unlink};
const weft__waitable_ops weft__channel_recv_ops = {"channel recv", recv_try, recv_link,
                                                   recv_unlink};
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

static inline bool bad_item(const weft_channel *ch, const void *item)
{
    return !ch || (!item && ch->item_size);
}

/* Entered with the lock held, returns with it released. */
static WEFT__NOINLINE int send_any_locked(weft_channel *ch, const void *item, weft_time deadline)
{
    weft__wait_node n;
    weft__wakes wakes = {NULL, NULL};
    n.payload = (void *)(uintptr_t)item; /* only read through */
    int r = send_locked(ch, item, &wakes);
    if (r == -EAGAIN && deadline != WEFT_TRY)
        return weft__wait_slow(&weft__channel_send_ops, ch, &ch->lock, &n, weft__self(), deadline);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return r;
}

static WEFT__NOINLINE int recv_any_locked(weft_channel *ch, void *item, weft_time deadline)
{
    weft__wait_node n;
    weft__wakes wakes = {NULL, NULL};
    n.payload = item;
    int r = recv_locked(ch, item, &wakes);
    if (r == -EAGAIN && deadline != WEFT_TRY)
        return weft__wait_slow(&weft__channel_recv_ops, ch, &ch->lock, &n, weft__self(), deadline);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return r;
}

static int may_try(const weft_channel *ch, const void *item, weft_time deadline)
{
    if (!ch || (!item && ch->item_size))
        return -EINVAL;
    return deadline == WEFT_TRY ? 0 : weft__checkpoint(weft__self());
}

static WEFT__NOINLINE int send_checked(weft_channel *ch, const void *item, weft_time deadline)
{
    int r = may_try(ch, item, deadline);
    if (r)
        return r;
    weft__acquire(&ch->lock);
    return send_any_locked(ch, item, deadline);
}

static WEFT__NOINLINE int recv_checked(weft_channel *ch, void *item, weft_time deadline)
{
    int r = may_try(ch, item, deadline);
    if (r)
        return r;
    weft__acquire(&ch->lock);
    return recv_any_locked(ch, item, deadline);
}

#ifndef WEFT_MODEL
static WEFT__NOINLINE int woken_release(weft_channel *ch)
{
    weft__release_slow(&ch->lock);
    return 0;
}

/* weft__release with its call in tail position: the way through a ring of words that
 * has room (or items) and nobody waiting then saves no register. */
static inline int quick_release(weft_channel *ch)
{
    if (WEFT__UNLIKELY(atom_xchg_rel(&ch->lock.word, 0) == 2))
        return woken_release(ch);
    return 0;
}
#else
static int quick_release(weft_channel *ch) /* the model has a lock of its own */
{
    weft__release(&ch->lock);
    return 0;
}
#endif

int weft_channel_send(weft_channel *ch, const void *item, weft_time deadline)
{
    if (WEFT__UNLIKELY(!ch || !item) || !weft__checkpoint_quick(weft__self_quick()) ||
        WEFT__UNLIKELY(!weft__lock_try(&ch->lock)))
        return send_checked(ch, item, deadline);
    if (WEFT__UNLIKELY(ch->room == 0 || ch->flags || !weft__list_empty(&ch->receivers) ||
                       ch->item_size != 8))
        return send_any_locked(ch, item, deadline);
    uint32_t at = ch->tail, next = at + 1;
    memcpy(ch->ring + (size_t)at * 8, item, 8);
    ch->tail = next == ch->capacity ? 0 : next;
    ch->room--;
    ch->length++;
    ch->sent++;
    return quick_release(ch);
}

int weft_channel_recv(weft_channel *ch, void *item, weft_time deadline)
{
    if (WEFT__UNLIKELY(!ch || !item) || !weft__checkpoint_quick(weft__self_quick()) ||
        WEFT__UNLIKELY(!weft__lock_try(&ch->lock)))
        return recv_checked(ch, item, deadline);
    if (WEFT__UNLIKELY(ch->length == 0 || ch->flags || !weft__list_empty(&ch->senders) ||
                       ch->item_size != 8))
        return recv_any_locked(ch, item, deadline);
    uint32_t at = ch->head, next = at + 1;
    memcpy(item, ch->ring + (size_t)at * 8, 8);
    ch->head = next == ch->capacity ? 0 : next;
    ch->room++;
    ch->length--;
    return quick_release(ch);
}

int weft_channel_close(weft_channel *ch)
{
    weft__list receivers, senders, readable, writable;
    if (!ch)
        return -EINVAL;
    weft__acquire(&ch->lock);
    weft__channel_check(ch);
    if (ch->flags & CLOSED) {
        weft__release(&ch->lock);
        return -EALREADY;
    }
    /* From here on nobody new waits and no sender's item is taken. The nodes stay
     * linked, in lists of this frame, until they are claimed or their owners leave. */
    ch->flags = CLOSED;
    weft__queue_take(&ch->receivers, &receivers);
    weft__queue_take(&ch->senders, &senders);
    weft__queue_take(&ch->readable, &readable);
    weft__queue_take(&ch->writable, &writable);
    weft__queue_wake_all(&ch->lock, &receivers, -EPIPE);
    weft__acquire(&ch->lock);
    weft__queue_wake_all(&ch->lock, &senders, -EPIPE);
    weft__acquire(&ch->lock);
    weft__queue_wake_all(&ch->lock, &readable, 0);
    weft__acquire(&ch->lock);
    weft__queue_wake_all(&ch->lock, &writable, 0);
    return 0;
}

/* ---- Batches ---- */

/* As many as fit now. */
static size_t send_some_locked(weft_channel *ch, const unsigned char *items, size_t count,
                               weft__wakes *wakes)
{
    size_t sent = 0;
    while (sent < count && send_locked(ch, items + sent * ch->item_size, wakes) == 0)
        sent++;
    return sent;
}

static size_t recv_some_locked(weft_channel *ch, unsigned char *items, size_t count,
                               weft__wakes *wakes)
{
    size_t received = 0;
    while (received < count && recv_locked(ch, items + received * ch->item_size, wakes) == 0)
        received++;
    return received;
}

int weft_channel_send_batch(weft_channel *ch, const void *items, size_t count, weft_time deadline)
{
    const unsigned char *from = items ? items : (const unsigned char *)"";
    size_t sent = 0;
    if (bad_item(ch, items) || count > INT_MAX)
        return -EINVAL;
    while (sent < count) {
        /* The first of the rest by an ordinary send, which waits; then what fits. */
        int r = weft_channel_send(ch, from + sent * ch->item_size, deadline);
        if (r)
            return sent ? (int)sent : r;
        sent++;
        weft__wakes wakes = {NULL, NULL};
        size_t limit = count - sent < BATCH_HOLD ? count - sent : BATCH_HOLD;
        weft__acquire(&ch->lock);
        sent += send_some_locked(ch, from + sent * ch->item_size, limit, &wakes);
        weft__release(&ch->lock);
        weft__wakes_run(&wakes);
    }
    return (int)sent;
}

int weft_channel_recv_batch(weft_channel *ch, void *items, size_t count, weft_time deadline)
{
    unsigned char none, *to = items ? items : &none;
    if (bad_item(ch, items) || count > INT_MAX)
        return -EINVAL;
    if (count == 0)
        return 0;
    int r = weft_channel_recv(ch, to, deadline);
    if (r)
        return r;
    size_t received = 1, last;
    do {
        weft__wakes wakes = {NULL, NULL};
        size_t limit = count - received < BATCH_HOLD ? count - received : BATCH_HOLD;
        weft__acquire(&ch->lock);
        last = recv_some_locked(ch, to + received * ch->item_size, limit, &wakes);
        weft__release(&ch->lock);
        weft__wakes_run(&wakes);
        received += last;
        /* A channel that is filled as fast as it is emptied ends at its capacity. */
    } while (last == BATCH_HOLD && received < count && received < ch->capacity);
    return (int)received;
}

/* ---- Reservations and readiness ---- */

int weft_channel_reserve(weft_channel *ch, weft_time deadline)
{
    weft__wait_node n;
    if (!ch || ch->capacity == 0)
        return -EINVAL;
    return weft__wait_on(&weft__channel_reserve_ops, ch, &ch->lock, &n, deadline);
}

int weft_channel_send_reserved(weft_channel *ch, const void *item)
{
    weft__wakes wakes = {NULL, NULL};
    int r = 0;
    if (bad_item(ch, item))
        return -EINVAL;
    weft__acquire(&ch->lock);
    if (ch->reserved == 0) {
        r = -EPERM;
    } else {
        ch->reserved--;
        if (ch->flags & CLOSED) {
            ch->room++;
            r = -EPIPE;
        } else if (hand_over_locked(ch, item, &wakes)) {
            give_place_locked(ch, &wakes);
        } else {
            put_and_tell_locked(ch, item, &wakes);
        }
    }
    weft__channel_check(ch);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return r;
}

int weft_channel_release(weft_channel *ch)
{
    weft__wakes wakes = {NULL, NULL};
    int r = 0;
    if (!ch)
        return -EINVAL;
    weft__acquire(&ch->lock);
    if (ch->reserved == 0) {
        r = -EPERM;
    } else {
        ch->reserved--;
        give_place_locked(ch, &wakes);
    }
    weft__channel_check(ch);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return r;
}

int weft_channel_wait_ready(weft_channel *ch, int what, weft_time deadline)
{
    weft__wait_node n;
    if (!ch || ch->capacity == 0)
        return -EINVAL;
    if (what == WEFT_CHANNEL_READABLE)
        return weft__wait_on(&weft__channel_readable_ops, ch, &ch->lock, &n, deadline);
    if (what == WEFT_CHANNEL_WRITABLE)
        return weft__wait_on(&weft__channel_writable_ops, ch, &ch->lock, &n, deadline);
    return -EINVAL;
}

/* ---- Life ---- */

int weft_channel_new(size_t item_size, size_t capacity, const weft_channel_opts *opts,
                     weft_channel **ret_ch)
{
    if (!ret_ch || item_size > WEFT_CHANNEL_ITEM_MAX || capacity > WEFT_CHANNEL_CAPACITY_MAX)
        return -EINVAL;
    if (item_size && capacity > WEFT_CHANNEL_BYTES_MAX / item_size)
        return -EINVAL;
    weft_channel *ch = weft__aligned_alloc(WEFT__CACHE_LINE, sizeof *ch);
    if (!ch)
        return -ENOMEM;
    memset(ch, 0, sizeof *ch);
    /* At least a byte, so that place() is an address also for items of size 0. */
    size_t bytes = item_size * capacity;
    ch->ring = weft__malloc(bytes ? bytes : 1);
    if (!ch->ring) {
        weft__free(ch);
        return -ENOMEM;
    }
    weft__lock_init(&ch->lock);
    ch->capacity = ch->room = (uint32_t)capacity;
    ch->item_size = (uint32_t)item_size;
    weft__list_init(&ch->receivers);
    weft__list_init(&ch->senders);
    weft__list_init(&ch->readable);
    weft__list_init(&ch->writable);
    atom_store_rlx(&ch->refs, 1u);
    if (opts) {
        ch->drop = opts->drop;
        ch->drop_arg = opts->drop_arg;
        if (opts->name)
            strncpy(ch->name, opts->name, NAME_BYTES - 1);
    }
    *ret_ch = ch;
    return 0;
}

weft_channel *weft_channel_ref(weft_channel *ch)
{
    if (ch)
        atom_add_rlx(&ch->refs, 1u);
    return ch;
}

weft_channel *weft_channel_unref(weft_channel *ch)
{
    /* Release and acquire: what each owner did comes before the end. */
    if (!ch || atom_sub_ar(&ch->refs, 1u) != 1)
        return NULL;
    WEFT__CHECK(weft__list_empty(&ch->senders) && weft__list_empty(&ch->receivers));
    while (ch->drop && ch->length) {
        ch->drop(place(ch, ch->head), ch->drop_arg);
        ch->head = ch->head + 1 == ch->capacity ? 0 : ch->head + 1;
        ch->length--;
    }
    weft__free(ch->ring);
    weft__free(ch);
    return NULL;
}

/* ---- Observers ---- */

int weft_channel_get_stats(weft_channel *ch, weft_channel_stats *ret_stats)
{
    if (!ch || !ret_stats)
        return -EINVAL;
    weft__acquire(&ch->lock);
    bool closed = (ch->flags & CLOSED) != 0;
    *ret_stats = (weft_channel_stats){
        .sent = ch->sent,
        .received = ch->sent - ch->length, /* C5 */
        .send_blocked = ch->send_blocked,
        .recv_blocked = ch->recv_blocked,
        .length = ch->length,
        .capacity = ch->capacity,
        .reserved = ch->reserved,
        .senders_waiting = closed ? 0 : ch->senders_waiting,
        .receivers_waiting = closed ? 0 : ch->receivers_waiting,
        .closed = closed,
    };
    weft__release(&ch->lock);
    return 0;
}

static weft_channel_stats stats_of(const weft_channel *ch)
{
    weft_channel_stats stats = {0};
    weft_channel_get_stats((weft_channel *)(uintptr_t)ch, &stats); /* NULL: all zero */
    return stats;
}

size_t weft_channel_length(const weft_channel *ch)
{
    return stats_of(ch).length;
}

bool weft_channel_is_closed(const weft_channel *ch)
{
    return stats_of(ch).closed;
}

size_t weft_channel_capacity(const weft_channel *ch)
{
    return ch ? ch->capacity : 0;
}

size_t weft_channel_item_size(const weft_channel *ch)
{
    return ch ? ch->item_size : 0;
}

const char *weft_channel_name(const weft_channel *ch)
{
    return ch ? ch->name : "";
}

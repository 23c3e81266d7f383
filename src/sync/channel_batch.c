/* SPDX-License-Identifier: MIT
 *
 * channel_batch.c -- many items at once, reservations and readiness; see weft/channel.h
 * and channel_internal.h.
 */
#include <limits.h>

#include "sync/channel_internal.h"

enum { BATCH_HOLD = 64 }; /* items that a batch moves per hold of the lock, or of a side */

/* ---- Batches ---- */

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Between the ring and the caller's items, at most `count`, with the side held. */
static void move_many(weft__channel_side *s, unsigned char *items, size_t count, bool into_ring)
{
    size_t left = count;
    while (left) {
        size_t run = smaller(left, s->capacity - s->at), bytes = run * s->item_size;
        memcpy(into_ring ? weft__side_place(s) : items, into_ring ? items : weft__side_place(s),
               bytes);
        items += bytes;
        left -= run;
        s->at = s->at + run == s->capacity ? 0 : s->at + (uint32_t)run;
    }
    /* Pairs with the other side's look at it. */
    atom_store_rel(&s->count, atom_load_rlx(&s->count) + count);
}

/* As many as fit now. */
static size_t send_some(weft_channel *ch, const unsigned char *items, size_t count)
{
    size_t sent = 0;
    if (weft__side_take(&ch->tx)) {
        sent = smaller(count, weft__tx_look(ch));
        move_many(&ch->tx, (unsigned char *)(uintptr_t)items, sent, true); /* only read */
        weft__side_leave(&ch->tx);
        return sent;
    }
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&ch->lock);
    weft__channel_enter(ch);
    while (sent < count && weft__channel_send_once(ch, items + sent * ch->item_size, &wakes) == 0)
        sent++;
    weft__channel_reopen(ch);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return sent;
}

static size_t recv_some(weft_channel *ch, unsigned char *items, size_t count)
{
    size_t received = 0;
    if (weft__side_take(&ch->rx)) {
        received = smaller(count, weft__rx_look(ch));
        move_many(&ch->rx, items, received, false);
        weft__side_leave(&ch->rx);
        return received;
    }
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&ch->lock);
    weft__channel_enter(ch);
    while (received < count &&
           weft__channel_recv_once(ch, items + received * ch->item_size, &wakes) == 0)
        received++;
    weft__channel_reopen(ch);
    weft__release(&ch->lock);
    weft__wakes_run(&wakes);
    return received;
}

int weft_channel_send_batch(weft_channel *ch, const void *items, size_t count, weft_time deadline)
{
    const unsigned char *from = items ? items : (const unsigned char *)"";
    size_t sent = 0;
    if (weft__channel_bad_item(ch, items) || count > INT_MAX)
        return -EINVAL;
    while (sent < count) {
        /* The first of the rest by an ordinary send, which waits; then what fits. */
        int r = weft_channel_send(ch, from + sent * ch->item_size, deadline);
        if (r)
            return sent ? (int)sent : r;
        sent++;
        sent += send_some(ch, from + sent * ch->item_size, smaller(count - sent, BATCH_HOLD));
    }
    return (int)sent;
}

int weft_channel_recv_batch(weft_channel *ch, void *items, size_t count, weft_time deadline)
{
    unsigned char none, *to = items ? items : &none;
    if (weft__channel_bad_item(ch, items) || count > INT_MAX)
        return -EINVAL;
    if (count == 0)
        return 0;
    int r = weft_channel_recv(ch, to, deadline);
    if (r)
        return r;
    size_t received = 1, last;
    do {
        last = recv_some(ch, to + received * ch->item_size, smaller(count - received, BATCH_HOLD));
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
    if (weft__channel_bad_item(ch, item))
        return -EINVAL;
    weft__acquire(&ch->lock);
    weft__channel_enter(ch);
    if (ch->reserved == 0) {
        r = -EPERM;
    } else {
        ch->reserved--;
        if (ch->flags & CLOSED)
            r = -EPIPE;
        else if (weft__channel_deliver(ch, item, &wakes))
            weft__channel_give_place(ch, &wakes);
    }
    weft__channel_check(ch);
    weft__channel_reopen(ch);
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
    weft__channel_enter(ch);
    if (ch->reserved == 0) {
        r = -EPERM;
    } else {
        ch->reserved--;
        weft__channel_give_place(ch, &wakes);
    }
    weft__channel_check(ch);
    weft__channel_reopen(ch);
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

/* SPDX-License-Identifier: MIT
 *
 * channel_life.c -- a channel from its making to its end: creation, close, the last
 * reference, and what can be read about it; see weft/channel.h and channel_internal.h.
 */
#include "sync/channel_internal.h"

static void side_init(weft__channel_side *s, const weft_channel *ch, unsigned char *ring)
{
    s->capacity = ch->capacity;
    s->item_size = ch->item_size;
    s->ring = ring;
    atom_store_rlx(&s->shut, (uint32_t)SHUT);
}

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
    /* At least a byte, so that a place is an address also for items of size 0. */
    size_t bytes = item_size * capacity;
    unsigned char *ring = weft__malloc(bytes ? bytes : 1);
    if (!ring) {
        weft__free(ch);
        return -ENOMEM;
    }
    weft__lock_init(&ch->lock);
    ch->capacity = (uint32_t)capacity;
    ch->item_size = (uint32_t)item_size;
    ch->quick = capacity >= WEFT__CHANNEL_QUICK_MIN;
    side_init(&ch->tx, ch, ring);
    side_init(&ch->rx, ch, ring);
    if (ch->quick)
        ch->tx.barrier = ch->rx.barrier = weft__sys_barrier_usable();
    weft__list_init(&ch->receivers);
    weft__list_init(&ch->senders);
    weft__list_init(&ch->readable);
    weft__list_init(&ch->writable);
    weft__channel_reopen(ch);
    atom_store_rlx(&ch->refs, 1u);
    if (opts) {
        ch->drop = opts->drop;
        ch->drop_arg = opts->drop_arg;
        if (opts->name)
            strncpy(ch->name, opts->name, WEFT__CHANNEL_NAME_BYTES - 1);
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
    while (ch->drop && weft__channel_items(ch)) {
        ch->drop(weft__side_place(&ch->rx), ch->drop_arg);
        weft__side_moved(&ch->rx);
    }
    weft__free(ch->tx.ring);
    weft__free(ch);
    return NULL;
}

int weft_channel_close(weft_channel *ch)
{
    weft__list receivers, senders, readable, writable;
    if (!ch)
        return -EINVAL;
    weft__acquire(&ch->lock);
    weft__channel_enter(ch);
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

/* ---- Observers ---- */

int weft_channel_get_stats(weft_channel *ch, weft_channel_stats *ret_stats)
{
    if (!ch || !ret_stats)
        return -EINVAL;
    weft__acquire(&ch->lock);
    weft__channel_enter(ch);
    bool closed = (ch->flags & CLOSED) != 0;
    *ret_stats = (weft_channel_stats){
        .sent = ch->handed + atom_load_rlx(&ch->tx.count),
        .received = ch->handed + atom_load_rlx(&ch->rx.count), /* C5 */
        .send_blocked = ch->send_blocked,
        .recv_blocked = ch->recv_blocked,
        .length = weft__channel_items(ch),
        .capacity = ch->capacity,
        .reserved = ch->reserved,
        .senders_waiting = closed ? 0 : ch->senders_waiting,
        .receivers_waiting = closed ? 0 : ch->receivers_waiting,
        .closed = closed,
    };
    weft__channel_reopen(ch);
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

/* SPDX-License-Identifier: MIT
 *
 * broadcast.c -- see weft/broadcast.h. A ring, the count of items ever sent, and a queue of
 * those who wait, all under one lock.
 *
 * Invariants, under the lock
 *   B1  A subscriber that waits has seen all: its next == sent, and not closed; so whoever
 *       sends or closes serves the whole queue.
 *   B2  A waiter is served from its own place in the ring, by the claimer, after the claim.
 *       The queue is served in batches; what is sent between two of them stays in the ring
 *       for the rest as for everybody, or is counted as missed.
 */
#include "weft/broadcast.h"

#include <string.h>

#include "sync/queue.h"
#include "wait/select.h"

#define ITEM_MAX     ((size_t)1 << 20)
#define CAPACITY_MAX ((size_t)1 << 28)
#define BYTES_MAX    ((size_t)1 << 30)

struct weft_broadcast {
    weft__lock lock;
    weft__a32 refs;
    bool closed;
    size_t item_size, capacity;
    uint64_t sent;
    weft__list waiting;
    char ring[];
};

static char *slot(weft_broadcast *b, uint64_t number)
{
    return b->ring + (size_t)(number % b->capacity) * b->item_size;
}

/* What is next for this subscriber; -EAGAIN: nothing is. */
static int take(weft_subscriber *s, void *item)
{
    weft_broadcast *b = s->weft__broadcast;
    if (b->sent - s->weft__next > b->capacity) {
        s->missed = b->sent - b->capacity - s->weft__next;
        s->weft__next += s->missed;
        return -EOVERFLOW;
    }
    if (s->weft__next == b->sent)
        return b->closed ? -EPIPE : -EAGAIN;
    if (b->item_size)
        memcpy(item, slot(b, s->weft__next), b->item_size);
    s->weft__next++;
    return 0;
}

/* ---- The waitable: a subscriber, under its broadcast's lock ---- */

static int recv_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)wakes;
    return take(object, n->payload);
}

static void recv_link(void *object, weft__wait_node *n)
{
    n->arg = (uintptr_t)object;
    weft__queue_push(&((weft_subscriber *)object)->weft__broadcast->waiting, n);
}

static void recv_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops recv_ops = {"broadcast", recv_try, recv_link, recv_unlink};

static bool usable(const weft_subscriber *s, const void *item)
{
    return s && s->weft__broadcast && (item || !s->weft__broadcast->item_size);
}

int weft_subscriber_recv(weft_subscriber *s, void *item, weft_time deadline)
{
    if (!usable(s, item))
        return -EINVAL;
    weft__wait_node n = {.payload = item};
    return weft__wait_on(&recv_ops, s, &s->weft__broadcast->lock, &n, deadline);
}

weft_select_case weft_case_subscriber(weft_subscriber *s, void *item)
{
    bool ok = usable(s, item);
    return weft__case_of(ok ? &recv_ops : NULL, s, ok ? &s->weft__broadcast->lock : NULL, item);
}

/* ---- Sending ---- */

/* Entered with the lock held, returns without. */
static void serve_all(weft_broadcast *b)
{
    weft__list taken;
    weft__queue_take(&b->waiting, &taken);
    bool more;
    do {
        weft__wakes wakes = {NULL, NULL};
        for (int i = 0; i < WEFT__WAKE_BATCH && !weft__list_empty(&taken); i++) {
            weft__wait_node *n = weft__node_of(weft__list_pop(&taken));
            if (weft__node_claim(n, 0)) { /* B2 */
                n->result = take((weft_subscriber *)n->arg, n->payload);
                weft__wakes_add(&wakes, n->parker);
            }
        }
        more = !weft__list_empty(&taken);
        weft__release(&b->lock);
        weft__wakes_run(&wakes);
        if (more)
            weft__acquire(&b->lock);
    } while (more);
}

int weft_broadcast_send(weft_broadcast *b, const void *item)
{
    if (!b || (!item && b->item_size))
        return -EINVAL;
    weft__acquire(&b->lock);
    if (b->closed) {
        weft__release(&b->lock);
        return -EPIPE;
    }
    if (b->item_size)
        memcpy(slot(b, b->sent), item, b->item_size);
    b->sent++;
    serve_all(b);
    return 0;
}

int weft_broadcast_close(weft_broadcast *b)
{
    if (!b)
        return -EINVAL;
    weft__acquire(&b->lock);
    if (b->closed) {
        weft__release(&b->lock);
        return -EALREADY;
    }
    b->closed = true;
    serve_all(b);
    return 0;
}

/* ---- Life ---- */

int weft_broadcast_new(size_t item_size, size_t capacity, weft_broadcast **ret)
{
    if (!ret || item_size > ITEM_MAX || !capacity || capacity > CAPACITY_MAX ||
        item_size > BYTES_MAX / capacity)
        return -EINVAL;
    weft_broadcast *b = weft__calloc(1, sizeof *b + item_size * capacity);
    if (!b)
        return -ENOMEM;
    b->item_size = item_size;
    b->capacity = capacity;
    atom_store_rlx(&b->refs, 1u);
    *ret = b;
    return 0;
}

weft_broadcast *weft_broadcast_ref(weft_broadcast *b)
{
    if (b)
        atom_add_rlx(&b->refs, 1u);
    return b;
}

/* The release orders this holder's use before the free; the acquire sees all. */
weft_broadcast *weft_broadcast_unref(weft_broadcast *b)
{
    if (b && atom_sub_ar(&b->refs, 1u) == 1)
        weft__free(b);
    return NULL;
}

int weft_subscribe(weft_broadcast *b, weft_subscriber *s)
{
    if (!b || !s)
        return -EINVAL;
    s->missed = 0;
    s->weft__broadcast = weft_broadcast_ref(b);
    weft__acquire(&b->lock);
    s->weft__next = b->sent;
    weft__release(&b->lock);
    return 0;
}

int weft_unsubscribe(weft_subscriber *s)
{
    if (s)
        s->weft__broadcast = weft_broadcast_unref(s->weft__broadcast);
    return 0;
}

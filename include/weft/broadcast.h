/* SPDX-License-Identifier: MIT
 *
 * weft/broadcast.h -- every subscriber gets every item.
 *
 *     weft_broadcast *news;
 *     weft_broadcast_new(sizeof(struct item), 64, &news);
 *     ...
 *     weft_subscriber sub;                         // on the stack of a reader
 *     weft_subscribe(news, &sub);
 *     while ((r = weft_subscriber_recv(&sub, &item, WEFT_NEVER)) != -EPIPE)
 *         if (r == 0)
 *             use(&item);
 *         else if (r == -EOVERFLOW)
 *             log("missed %llu", sub.missed);
 *     weft_unsubscribe(&sub);
 *
 * A broadcast keeps the last `capacity` items. Sending never waits: a subscriber that is
 * further behind than that loses the oldest, and is told so once, with the count, before it
 * goes on with the oldest that is left. Subscribers see the items sent after they subscribed,
 * in the order in which they were sent, which is one order for all.
 *
 * Concurrency: all calls on one broadcast may overlap, except the last unref; a subscriber
 * is used by one task or thread at a time. A send happens-before each receive of its item.
 */
#ifndef WEFT_BROADCAST_H
#define WEFT_BROADCAST_H

#include "weft/base.h"
#include "weft/select.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_broadcast weft_broadcast; /* opaque, reference-counted */

/* A place in the sequence of items. Must not be moved while somebody waits through it. */
typedef struct weft_subscriber {
    uint64_t missed; /* as of the last -EOVERFLOW: how many items were lost then */
    weft_broadcast *weft__broadcast;
    uint64_t weft__next;
} weft_subscriber;

/* Creates one; all its memory is allocated here.
 *
 * item_size  bytes per item, 0 to 1 MiB
 * capacity   items kept, 1 to 2^28; together at most 1 GiB
 * ret        the caller owns the one reference; untouched on error
 *
 * Returns 0, -EINVAL, -ENOMEM. Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_broadcast_new(size_t item_size, size_t capacity,
                                              weft_broadcast **ret);

/* References; NULL is fine for both, unref returns NULL. Items are plain bytes: nothing is
 * called for those that are left. A subscriber holds a reference.
 * Callable from: any thread, any task. */
WEFT_API weft_broadcast *weft_broadcast_ref(weft_broadcast *b);
WEFT_API weft_broadcast *weft_broadcast_unref(weft_broadcast *b);

/* Sends a copy of *item to all who are subscribed. Returns 0 (also without subscribers),
 * -EPIPE (closed), -EINVAL (b, or item of a size, is NULL).
 * Callable from: any thread, any task. Never suspends. */
WEFT_API int weft_broadcast_send(weft_broadcast *b, const void *item);

/* No more sends; subscribers get what is left, then -EPIPE. Returns 0, -EALREADY, -EINVAL.
 * Callable from: any thread, any task. Never suspends. */
WEFT_API int weft_broadcast_close(weft_broadcast *b);

/* Fills *sub, which sees what is sent from now on. Returns 0 or -EINVAL (NULL).
 * Callable from: any thread, any task. */
WEFT_API int weft_subscribe(weft_broadcast *b, weft_subscriber *sub);

/* Ends a subscription; twice, or NULL, is fine. Returns 0.
 * Callable from: any thread, any task; nobody waits through it. */
WEFT_API int weft_unsubscribe(weft_subscriber *sub);

/* Receives the next item into *item (item_size bytes).
 *
 * Returns 0; -EOVERFLOW (items were lost, sub->missed says how many; the next call goes on
 * behind them); -EPIPE (closed, and nothing is left); -EAGAIN (WEFT_TRY), -ETIMEDOUT,
 * -ECANCELED; -EINVAL (sub NULL or not subscribed, or item of a size NULL). *item is written
 * only with 0.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_subscriber_recv(weft_subscriber *sub, void *item,
                                                weft_time deadline);

/* For weft_select: as weft_subscriber_recv; the result is 0, -EOVERFLOW or -EPIPE.
 * Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_subscriber(weft_subscriber *sub, void *item);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/channel.h -- a bounded queue of fixed-size items between tasks and threads.
 *
 *     weft_channel *ch;
 *     weft_channel_new(sizeof(int), 16, NULL, &ch);
 *     ...
 *     int r = weft_channel_send(ch, &value, weft_after(2 * WEFT_SEC));
 *     ...
 *     while (weft_channel_recv(ch, &value, WEFT_NEVER) == 0)
 *         use(value);                     // until it is closed and empty
 *     weft_channel_unref(ch);
 *
 * Items are copied in and out. Who waits is served first come, first served, and an
 * item goes straight into the buffer of a receiver that waits.
 *
 * Who owns an item: a call that returns success has sent the item (all of it, once),
 * and it belongs to the channel until a receive returns it. On EVERY error (-EAGAIN,
 * -ETIMEDOUT, -ECANCELED, -EPIPE, -EINVAL) the item was not sent and stays the
 * caller's; a receive that fails has taken nothing and left the buffer as it was. So
 * items sent = items received + items in the channel, always; what is still in the
 * channel when its last reference goes is given to the `drop` function.
 *
 * When several things happen at once: an item or room that is there wins over a
 * deadline that has passed; a task that is already cancelled gets -ECANCELED before
 * anything else, except with WEFT_TRY, which ignores cancellation.
 *
 * Concurrency ("-" may overlap on one channel, "X" must not):
 *                send  recv  close  observers  last unref
 *   send          -     -      -        -          X
 *   recv          -     -      -        -          X
 *   close         -     -      -        -          X
 * A send happens-before the receive that returns its item; on a channel of capacity
 * 0 the receive also happens-before the return of the send.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless
 * its deadline is WEFT_TRY.
 */
#ifndef WEFT_CHANNEL_H
#define WEFT_CHANNEL_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_channel weft_channel; /* opaque, reference-counted */

/* Bounds of weft_channel_new. */
#define WEFT_CHANNEL_ITEM_MAX     ((size_t)1 << 20) /* bytes per item */
#define WEFT_CHANNEL_CAPACITY_MAX ((size_t)1 << 28) /* items */
#define WEFT_CHANNEL_BYTES_MAX    ((size_t)1 << 30) /* both together */

typedef struct weft_channel_opts {
    const char *name; /* for dumps; the first 31 bytes are copied; NULL: none */
    /* Called once for each item that is still in the channel when its last
     * reference goes; NULL: the items are forgotten. Runs without a lock. */
    void (*drop)(void *item, void *arg);
    void *drop_arg;
} weft_channel_opts;

/* What a channel has done and holds; taken at one moment. At rest,
 * sent == received + length. */
typedef struct weft_channel_stats {
    uint64_t sent, received;             /* items */
    uint64_t send_blocked, recv_blocked; /* calls that had to wait */
    size_t length, capacity;
    size_t reserved; /* places reserved and not used yet */
    size_t senders_waiting, receivers_waiting;
    bool closed;
} weft_channel_stats;

/* Creates an open, empty channel; all its memory is allocated here.
 *
 * item_size  bytes per item, 0 to WEFT_CHANNEL_ITEM_MAX (0: it only counts, and the
 *            item pointers of the calls below may be NULL)
 * capacity   items, 0 to WEFT_CHANNEL_CAPACITY_MAX (0: a send waits for a receiver)
 * opts       NULL: the defaults; not kept
 * ret_ch     the channel; the caller owns the one reference. Untouched on error.
 *
 * Returns 0, -EINVAL (ret_ch is NULL or a bound is broken), -ENOMEM.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_channel_new(size_t item_size, size_t capacity,
                                            const weft_channel_opts *opts, weft_channel **ret_ch);

/* Takes another reference and returns ch. NULL: NULL.
 * Callable from: anywhere; the caller holds a reference. */
WEFT_API weft_channel *weft_channel_ref(weft_channel *ch);

/* Gives a reference back (NULL is fine); the last one drops the items that are left
 * and frees the channel. Nobody may wait in it then. Returns NULL, so that
 * `ch = weft_channel_unref(ch);` leaves no stale pointer.
 * Callable from: any thread, any task. */
WEFT_API weft_channel *weft_channel_unref(weft_channel *ch);

/* Sends one item, waiting while the channel is full until `deadline` (absolute ns,
 * WEFT_TRY, WEFT_NEVER).
 *
 * item   item_size bytes, read before the call returns
 *
 * Returns  0           sent
 *          -EAGAIN     full (capacity 0: nobody receives), and the deadline was WEFT_TRY
 *          -ETIMEDOUT  still so at the deadline
 *          -EPIPE      closed, before or during the wait
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     ch is NULL, or item is and item_size is not 0
 * On every error the item was not sent and stays the caller's.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_channel_send(weft_channel *ch, const void *item,
                                             weft_time deadline);

/* Receives one item into `item` (item_size bytes), waiting while the channel is
 * empty until `deadline`. A closed channel gives what is left in it first.
 *
 * Returns  0           *item holds the item, which is the caller's now
 *          -EAGAIN     empty, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  still empty at the deadline
 *          -EPIPE      closed and empty
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     ch is NULL, or item is and item_size is not 0
 * On every error *item is untouched and no item was taken.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_channel_recv(weft_channel *ch, void *item, weft_time deadline);

/* Closes the channel: no more sends. Senders that wait get -EPIPE (their item was
 * not sent), receivers that wait get -EPIPE (the channel is empty), later receives
 * drain what is left. Never suspends.
 * Returns 0, -EALREADY (it was closed), -EINVAL (NULL).
 * Callable from: any thread, any task. */
WEFT_API int weft_channel_close(weft_channel *ch);

/* Sends up to `count` items that lie one after the other, in order, waiting while
 * the channel is full until `deadline`.
 *
 * Returns how many were sent, from the front: less than count when the deadline
 * came (WEFT_TRY: when it was full), the channel was closed or the task cancelled
 * after at least one was sent; the rest stays the caller's. When none was sent: the
 * errors of weft_channel_send. count 0: 0. -EINVAL also when count is above INT_MAX.
 * Items of other senders may come in between.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_channel_send_batch(weft_channel *ch, const void *items,
                                                   size_t count, weft_time deadline);

/* Receives up to `count` items, one after the other in `items`: what is there, and
 * when nothing is, waits for the first until `deadline`.
 *
 * Returns how many were received, at least 1; or the errors of weft_channel_recv,
 * and none was taken. count 0: 0. -EINVAL also when count is above INT_MAX.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_channel_recv_batch(weft_channel *ch, void *items, size_t count,
                                                   weft_time deadline);

/* Reserves a place, waiting while there is none until `deadline`, in line with the
 * sends. So what is expensive to make is made only when it can be sent. Ends with
 * exactly one weft_channel_send_reserved or weft_channel_release. While all places are
 * reserved, items still go from the hands of a sender that waits to a receiver's.
 *
 * Returns 0, -EAGAIN, -ETIMEDOUT, -EPIPE, -ECANCELED as weft_channel_send; -EINVAL:
 * ch is NULL or has capacity 0. On every error nothing was reserved.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_channel_reserve(weft_channel *ch, weft_time deadline);

/* Sends an item into a reserved place. Never suspends, never finds it full. The
 * reservation is used up also on -EPIPE.
 * Returns 0, -EPIPE (closed meanwhile: not sent, the item stays the caller's),
 * -EPERM (no place is reserved), -EINVAL (as weft_channel_send).
 * Callable from: any task, any thread; it need not be the one that reserved. */
WEFT_API WEFT_MUST_USE int weft_channel_send_reserved(weft_channel *ch, const void *item);

/* Gives a reserved place back. Returns 0, -EPERM (none is reserved), -EINVAL (NULL).
 * Callable from: any task, any thread. */
WEFT_API int weft_channel_release(weft_channel *ch);

enum { WEFT_CHANNEL_READABLE = 1, WEFT_CHANNEL_WRITABLE = 2 };

/* Waits until a receive (WEFT_CHANNEL_READABLE) or a send (WEFT_CHANNEL_WRITABLE)
 * would not have to wait, without doing it: an item is there, or there is room, or
 * the channel is closed. All who wait are told, and who comes too late finds -EAGAIN
 * with WEFT_TRY and waits again; a sole consumer always finds the item.
 *
 * Returns 0; -EAGAIN, -ETIMEDOUT, -ECANCELED as weft_channel_recv; -EINVAL: ch is
 * NULL, `what` is not one of the two, or the capacity is 0 (nothing ever lies in it).
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_channel_wait_ready(weft_channel *ch, int what, weft_time deadline);

/* Items in the channel; its capacity; bytes per item; whether it is closed. NULL: 0
 * and false. Callable from: any thread, any task. */
WEFT_API size_t weft_channel_length(const weft_channel *ch);
WEFT_API size_t weft_channel_capacity(const weft_channel *ch);
WEFT_API size_t weft_channel_item_size(const weft_channel *ch);
WEFT_API bool weft_channel_is_closed(const weft_channel *ch);

/* The name, or "". Valid while the caller holds a reference.
 * Callable from: anywhere. */
WEFT_API const char *weft_channel_name(const weft_channel *ch);

/* Fills *ret_stats. Returns 0, or -EINVAL (NULL).
 * Callable from: any thread, any task. */
WEFT_API int weft_channel_get_stats(weft_channel *ch, weft_channel_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * cases.c -- the select cases of this room's objects, see weft/select.h.
 */
#include "wait/select.h"

#include "sync/channel.h"
#include "sync/event.h"
#include "sync/mutex.h"
#include "sync/permits.h"
#include "sync/waitgroup.h"
#include "weft/value.h"

static weft_select_case bad(void)
{
    return weft__case_of(NULL, NULL, NULL, NULL);
}

static weft_select_case channel_case(const weft__case_ops *ops, weft_channel *ch, void *item)
{
    if (!ch || (!item && weft_channel_item_size(ch)))
        return bad();
    return weft__case_of_kind(WEFT__CASE_QUICK, ops, ch, weft__channel_lock(ch), item);
}

weft_select_case weft_case_send(weft_channel *ch, const void *item)
{
    /* Only read through. */
    return channel_case(&weft__channel_send_ops, ch, (void *)(uintptr_t)item);
}

weft_select_case weft_case_recv(weft_channel *ch, void *item)
{
    return channel_case(&weft__channel_recv_ops, ch, item);
}

/* The channel's own kind of wait, and what becomes of a place that nobody wants. */

static int reserve_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    return weft__channel_reserve_ops.try_locked(object, n, wakes);
}

static void reserve_link(void *object, weft__wait_node *n)
{
    weft__channel_reserve_ops.link_locked(object, n);
}

static void reserve_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft__channel_reserve_ops.unlink_locked(object, n, wakes);
}

static void reserve_abandon(void *object, weft__wait_node *n, bool done)
{
    (void)n;
    if (done)
        WEFT__CHECK(weft_channel_release(object) == 0);
}

static const weft__case_ops reserve_ops = {
    .base = {"channel reserve", reserve_try, reserve_link, reserve_unlink},
    .abandon = reserve_abandon};

weft_select_case weft_case_reserve(weft_channel *ch)
{
    return ch ? weft__case_of_kind(WEFT__CASE_ABANDON, &reserve_ops, ch, weft__channel_lock(ch),
                                   NULL)
              : bad();
}

weft_select_case weft_case_channel_readable(weft_channel *ch)
{
    return ch && weft_channel_capacity(ch)
               ? weft__case_of(&weft__channel_readable_ops, ch, weft__channel_lock(ch), NULL)
               : bad();
}

weft_select_case weft_case_channel_writable(weft_channel *ch)
{
    return ch && weft_channel_capacity(ch)
               ? weft__case_of(&weft__channel_writable_ops, ch, weft__channel_lock(ch), NULL)
               : bad();
}

weft_select_case weft_case_event(weft_event *e)
{
    return e ? weft__case_of(&weft__event_ops, e, weft__event_lock(e), NULL) : bad();
}

weft_select_case weft_case_value(weft_value *v)
{
    return v ? weft__case_of(&weft__value_ops, &v->weft__set, weft__event_lock(&v->weft__set), NULL)
             : bad();
}

/* Both of permits.h start with their weft__permits. */
static weft_select_case permits_case(const weft__case_ops *ops, void *object, uint32_t n)
{
    weft_select_case c =
        weft__case_of_kind(WEFT__CASE_ABANDON, ops, object, weft__permits_lock(object), NULL);
    c.weft__arg = n;
    return c;
}

weft_select_case weft_case_semaphore(weft_semaphore *s, unsigned n)
{
    if (!s || n > WEFT_SEMAPHORE_MAX)
        return bad();
    return permits_case(&weft__semaphore_ops, s, n);
}

weft_select_case weft_case_read_lock(weft_rwlock *rw)
{
    return rw ? permits_case(&weft__read_ops, rw, WEFT__RWLOCK_READ) : bad();
}

weft_select_case weft_case_write_lock(weft_rwlock *rw)
{
    return rw ? permits_case(&weft__write_ops, rw, WEFT__RWLOCK_WRITE) : bad();
}

weft_select_case weft_case_mutex(weft_mutex *m)
{
    if (!m)
        return bad();
    weft_select_case c =
        weft__case_of_kind(WEFT__CASE_ABANDON, &weft__mutex_case_ops, m, weft__mutex_lock(m), NULL);
    c.weft__arg = WEFT__MUTEX_CASE;
    return c;
}

weft_select_case weft_case_waitgroup(weft_waitgroup *wg)
{
    return wg ? weft__case_of(&weft__waitgroup_ops, wg, weft__waitgroup_lock(wg), NULL) : bad();
}

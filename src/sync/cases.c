/* SPDX-License-Identifier: MIT
 *
 * cases.c -- the select cases of this room's objects, see weft/select.h.
 */
#include "wait/select.h"

#include "sync/channel.h"
#include "sync/event.h"
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

weft_select_case weft_case_event(weft_event *e)
{
    return e ? weft__case_of(&weft__event_ops, e, weft__event_lock(e), NULL) : bad();
}

weft_select_case weft_case_value(weft_value *v)
{
    return v ? weft__case_of(&weft__value_ops, &v->weft__set, weft__event_lock(&v->weft__set), NULL)
             : bad();
}

weft_select_case weft_case_semaphore(weft_semaphore *s, unsigned n)
{
    if (!s || n > WEFT_SEMAPHORE_MAX)
        return bad();
    weft_select_case c = weft__case_of(&weft__semaphore_ops, s, weft__semaphore_lock(s), NULL);
    c.weft__arg = n;
    return c;
}

weft_select_case weft_case_waitgroup(weft_waitgroup *wg)
{
    return wg ? weft__case_of(&weft__waitgroup_ops, wg, weft__waitgroup_lock(wg), NULL) : bad();
}

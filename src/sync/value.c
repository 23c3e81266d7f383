/* SPDX-License-Identifier: MIT
 *
 * value.c -- see weft/value.h. An event, a word that the first setter wins, and the
 * value, which is written between the two: it is read only after the event.
 */
#include "weft/value.h"

#include "sync/event.h"

static weft__a32 *taken_of(weft_value *v)
{
    return (weft__a32 *)(void *)&v->weft__taken;
}

int weft_value_init(weft_value *v)
{
    static const weft_value unset = WEFT_VALUE_INIT;
    if (!v)
        return -EINVAL;
    *v = unset;
    return 0;
}

int weft_value_set(weft_value *v, void *value)
{
    if (!v)
        return -EINVAL;
    if (atom_xchg_ar(taken_of(v), 1u))
        return -EALREADY;
    v->weft__value = value;
    return weft_event_set(&v->weft__set);
}

int weft_value_wait(weft_value *v, weft_time deadline, void **ret_value)
{
    if (!v)
        return -EINVAL;
    int r = weft__event_wait(&weft__value_ops, &v->weft__set, deadline);
    if (r == 0 && ret_value)
        *ret_value = v->weft__value;
    return r;
}

bool weft_value_is_set(const weft_value *v)
{
    return v && weft_event_is_set(&v->weft__set);
}

/* SPDX-License-Identifier: MIT
 *
 * list.h -- intrusive lists. No allocation, O(1) everywhere, no locks: the owner
 * of the list serialises access.
 *
 * weft__list: doubly linked and circular through its head; an unlinked node has
 * next == NULL, so "is it still queued" is one load.
 * weft__fifo: singly linked queue for things that never leave from the middle.
 */
#ifndef WEFT_SRC_LIST_H
#define WEFT_SRC_LIST_H

#include "base/base.h"

typedef struct weft__link {
    struct weft__link *next, *prev;
} weft__link;

typedef struct weft__list {
    weft__link head;
} weft__list;

static inline void weft__list_init(weft__list *l)
{
    l->head.next = l->head.prev = &l->head;
}

static inline bool weft__list_empty(const weft__list *l)
{
    return l->head.next == &l->head;
}

static inline bool weft__linked(const weft__link *n)
{
    return n->next != NULL;
}

static inline void weft__list_insert_before(weft__link *at, weft__link *n)
{
    n->prev = at->prev;
    n->next = at;
    at->prev->next = n;
    at->prev = n;
}

static inline void weft__list_push(weft__list *l, weft__link *n) /* at the tail */
{
    weft__list_insert_before(&l->head, n);
}

static inline void weft__list_push_front(weft__list *l, weft__link *n)
{
    weft__list_insert_before(l->head.next, n);
}

static inline void weft__list_remove(weft__link *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->next = n->prev = NULL;
}

static inline weft__link *weft__list_first(const weft__list *l)
{
    return weft__list_empty(l) ? NULL : l->head.next;
}

static inline weft__link *weft__list_pop(weft__list *l)
{
    weft__link *n = weft__list_first(l);
    if (n)
        weft__list_remove(n);
    return n;
}

/* Moves all of `from` to the tail of `to`; `from` is empty afterwards. */
static inline void weft__list_splice(weft__list *to, weft__list *from)
{
    if (weft__list_empty(from))
        return;
    from->head.next->prev = to->head.prev;
    to->head.prev->next = from->head.next;
    from->head.prev->next = &to->head;
    to->head.prev = from->head.prev;
    weft__list_init(from);
}

#define weft__list_for(l, it) for (weft__link *it = (l)->head.next; it != &(l)->head; it = it->next)

#define weft__list_for_safe(l, it)                                                                 \
    for (weft__link *it = (l)->head.next, *it##_next = it->next; it != &(l)->head;                 \
         it = it##_next, it##_next = it->next)

typedef struct weft__slink {
    struct weft__slink *next;
} weft__slink;

typedef struct weft__fifo {
    weft__slink *first, *last;
} weft__fifo;

static inline void weft__fifo_init(weft__fifo *q)
{
    q->first = q->last = NULL;
}

static inline bool weft__fifo_empty(const weft__fifo *q)
{
    return q->first == NULL;
}

static inline void weft__fifo_push(weft__fifo *q, weft__slink *n)
{
    n->next = NULL;
    if (q->last)
        q->last->next = n;
    else
        q->first = n;
    q->last = n;
}

static inline weft__slink *weft__fifo_pop(weft__fifo *q)
{
    weft__slink *n = q->first;
    if (n) {
        q->first = n->next;
        if (!q->first)
            q->last = NULL;
    }
    return n;
}

/* Appends all of `from` to `to`; `from` is empty afterwards. */
static inline void weft__fifo_splice(weft__fifo *to, weft__fifo *from)
{
    if (!from->first)
        return;
    if (to->last)
        to->last->next = from->first;
    else
        to->first = from->first;
    to->last = from->last;
    weft__fifo_init(from);
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * deque.h -- a growing ring of pointers for one owner: the queue of a runtime with one
 * worker. No atomics; pushing and popping touch no task.
 */
#ifndef WEFT_SRC_DEQUE_H
#define WEFT_SRC_DEQUE_H

#include <string.h>

#include "base/base.h"

typedef struct weft__deque {
    void **slots;
    uint32_t size; /* a power of two, or 0 before the first push */
    uint32_t head, tail;
} weft__deque;

static inline bool weft__deque_empty(const weft__deque *q)
{
    return q->head == q->tail;
}

/* Doubles it; false: no memory, nothing changed. */
static WEFT__NOINLINE bool weft__deque_grow(weft__deque *q)
{
    uint32_t size = q->size ? 2 * q->size : 256;
    if (size > UINT32_MAX / 4)
        return false;
    void **slots = weft__malloc(size * sizeof *slots);
    if (!slots)
        return false;
    uint32_t n = q->tail - q->head;
    for (uint32_t i = 0; i < n; i++)
        slots[i] = q->slots[(q->head + i) & (q->size - 1)];
    weft__free(q->slots);
    *q = (weft__deque){slots, size, 0, n};
    return true;
}

/* At the tail. False: no memory. */
static inline bool weft__deque_push(weft__deque *q, void *p)
{
    if (WEFT__UNLIKELY(q->tail - q->head == q->size) && !weft__deque_grow(q))
        return false;
    q->slots[q->tail++ & (q->size - 1)] = p;
    return true;
}

/* From the head; NULL: empty. */
static inline void *weft__deque_pop(weft__deque *q)
{
    return q->head == q->tail ? NULL : q->slots[q->head++ & (q->size - 1)];
}

/* The head, which stays; only when not empty. */
static inline void *weft__deque_head(const weft__deque *q)
{
    return q->slots[q->head & (q->size - 1)];
}

/* The head out, `p` in at the tail; only when not empty. Needs no room. */
static inline void weft__deque_rotate(weft__deque *q, void *p)
{
    q->head++;
    q->slots[q->tail++ & (q->size - 1)] = p;
}

/* Takes `p` off the tail if that is where it is. */
static inline bool weft__deque_pop_tail(weft__deque *q, const void *p)
{
    if (q->head == q->tail || q->slots[(q->tail - 1) & (q->size - 1)] != p)
        return false;
    q->tail--;
    return true;
}

static inline void weft__deque_fini(weft__deque *q)
{
    weft__free(q->slots);
    *q = (weft__deque){0};
}

#endif

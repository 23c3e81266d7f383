/* SPDX-License-Identifier: MIT
 *
 * wheel_inline.h -- the part of wheel.c that arms and disarms, for inlining: the lock
 * around it costs less than the calls would. Included by wheel.h only; the algorithm and
 * its invariants are described in wheel.c.
 */
#ifndef WEFT_SRC_WHEEL_INLINE_H
#define WEFT_SRC_WHEEL_INLINE_H

#include "time/wheel.h"

#define WEFT__WHEEL_TOP       (WEFT__WHEEL_LEVELS - 1)
#define WEFT__WHEEL_TOP_SHIFT (WEFT__WHEEL_TOP * WEFT__WHEEL_BITS)
#define WEFT__WHEEL_SLOT_MASK (WEFT__WHEEL_SLOTS - 1u)
#define WEFT__WHEEL_IN_HEAP   (WEFT__WHEEL_LEVELS + 1)
#define WEFT__WHEEL_NO_TICK   UINT64_MAX

/* The overflow heap, in wheel.c. */
void weft__wheel_heap_add(weft__wheel *w, weft__wheel_entry *e);
void weft__wheel_heap_remove(weft__wheel *w, weft__wheel_entry *e);

/* The first tick at or after t. */
static inline uint64_t weft__wheel_tick_ceil(const weft__wheel *w, weft_time t)
{
    if (t <= w->origin)
        return 0;
    if (t == WEFT_NEVER)
        return WEFT__WHEEL_NO_TICK;
    uint64_t off = (uint64_t)t - (uint64_t)w->origin - 1;
    return (w->shift >= 0 ? off >> w->shift : off / w->tick_ns) + 1;
}

static inline unsigned weft__wheel_slot(uint64_t tick, unsigned level)
{
    return (unsigned)(tick >> (level * WEFT__WHEEL_BITS)) & WEFT__WHEEL_SLOT_MASK;
}

/* The level for a tick >= elapsed; WEFT__WHEEL_LEVELS means the heap. */
static inline unsigned weft__wheel_level(const weft__wheel *w, uint64_t tick)
{
    uint64_t differ = tick ^ w->elapsed;
    if (differ < WEFT__WHEEL_SLOTS)
        return 0;
    unsigned bit = 63u - (unsigned)__builtin_clzll(differ);
    if (WEFT__LIKELY(bit < WEFT__WHEEL_TOP_SHIFT))
        return bit * 43 >> 8; /* bit / 6 for bit < 64 */
    uint64_t ahead = (tick >> WEFT__WHEEL_TOP_SHIFT) - (w->elapsed >> WEFT__WHEEL_TOP_SHIFT);
    return ahead < WEFT__WHEEL_SLOTS ? WEFT__WHEEL_TOP : WEFT__WHEEL_LEVELS;
}

static inline void weft__wheel_place(weft__wheel *w, weft__wheel_entry *e, uint64_t tick)
{
    unsigned level = weft__wheel_level(w, tick);
    if (WEFT__UNLIKELY(level == WEFT__WHEEL_LEVELS)) {
        weft__wheel_heap_add(w, e);
        return;
    }
    unsigned slot = weft__wheel_slot(tick, level);
    e->u.tick = tick;
    e->where = (uint8_t)(level + 1);
    weft__list_push(&w->slots[level][slot], &e->link);
    w->occupied[level] |= 1ULL << slot;
    w->levels |= (uint8_t)(1u << level);
}

static inline void weft__wheel_slot_emptied(weft__wheel *w, unsigned level, unsigned slot)
{
    w->occupied[level] &= ~(1ULL << slot);
    if (w->occupied[level] == 0)
        w->levels &= (uint8_t) ~(1u << level);
    w->next_known = false;
}

static inline void weft__wheel_add(weft__wheel *w, weft__wheel_entry *e, weft_time deadline)
{
    WEFT__ASSERT(!weft__wheel_armed(e));
    /* What is past is due at once, also in the middle of a tick. */
    uint64_t tick = deadline <= w->now ? w->elapsed : weft__wheel_tick_ceil(w, deadline);
    if (tick < w->elapsed)
        tick = w->elapsed;
    e->deadline = deadline;
    if (w->count++ == 0) {
        w->next_known = true;
        w->next_tick = tick;
    } else if (tick < w->next_tick) {
        w->next_tick = tick; /* meaningless while not known, and harmless */
    }
    weft__wheel_place(w, e, tick);
}

static inline bool weft__wheel_remove(weft__wheel *w, weft__wheel_entry *e)
{
    if (e->where == 0)
        return false;
    w->count--;
    if (WEFT__UNLIKELY(e->where == WEFT__WHEEL_IN_HEAP)) {
        if (e == w->heap)
            w->next_known = false;
        weft__wheel_heap_remove(w, e);
        return true;
    }
    unsigned level = e->where - 1u;
    bool last = e->link.next == e->link.prev; /* both are the slot's head */
    weft__list_remove(&e->link);
    e->where = 0;
    if (last)
        weft__wheel_slot_emptied(w, level, weft__wheel_slot(e->u.tick, level));
    else if (e->u.tick == w->next_tick)
        w->next_known = false;
    return true;
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * wheel.h -- the timing wheel: a set of deadlines, pure. Time is an argument;
 * there is no clock, no lock, no allocation and no callback. The owner of the
 * wheel serialises access.
 *
 * Time is cut into ticks of `tick_ns` that start at `origin`. An entry is due at
 * the first tick at or after its deadline, so it is never early and at most one
 * tick late. Entries whose deadline is WEFT_NEVER are held and never due.
 */
#ifndef WEFT_SRC_WHEEL_H
#define WEFT_SRC_WHEEL_H

#include "base/atomic.h"
#include "base/list.h"

#define WEFT__WHEEL_LEVELS   6
#define WEFT__WHEEL_BITS     6 /* of the tick that one level covers */
#define WEFT__WHEEL_SLOTS    (1 << WEFT__WHEEL_BITS)
#define WEFT__WHEEL_MIN_TICK ((weft_time)1000)

/* One deadline, inside the caller's object. All-zero is an unarmed entry. While
 * armed it must not move or be freed. */
typedef struct weft__wheel_entry {
    weft__link link;    /* in a slot's list, in the heap's siblings, or on the caller's due list */
    weft_time deadline; /* exactly as given, ns */
    union {
        uint64_t tick;                   /* on a level: the tick at which it is due */
        struct weft__wheel_entry *child; /* in the overflow heap */
    } u;
    uint8_t where; /* 0 unarmed, 1..6 on level where-1, 7 in the overflow heap */
    /* For the entry's owner, who so finds his state on the same cache line; the wheel
     * does not look at it. */
    weft__a32 owner;
} weft__wheel_entry;

/* About 6 KiB, embeddable; the fields are wheel.c's, except `count`. */
typedef struct weft__wheel {
    size_t count;     /* entries armed; may be read by the owner */
    uint64_t elapsed; /* the tick up to which everything earlier has been handed out */
    uint64_t next_tick;
    bool next_known;   /* next_tick is a lower bound that some entry justifies */
    uint8_t cascading; /* the level whose current slot is being emptied, or 0 */
    uint8_t levels;    /* bit L: level L has an entry */
    int8_t shift;      /* tick_ns == 1 << shift, or -1 */
    weft_time origin;
    weft_time now; /* the latest that advance() was told */
    uint64_t tick_ns;
    uint64_t last_tick; /* the last one whose time is representable */
    uint64_t heap_tick; /* due tick of `heap`, UINT64_MAX when empty */
    weft__wheel_entry *heap;
    uint64_t occupied[WEFT__WHEEL_LEVELS];
    weft__list slots[WEFT__WHEEL_LEVELS][WEFT__WHEEL_SLOTS];
} weft__wheel;

/* An empty wheel at time `origin`. tick_ns >= WEFT__WHEEL_MIN_TICK, checked; a
 * power of two saves a division per arm. */
void weft__wheel_init(weft__wheel *w, weft_time origin, weft_time tick_ns);

/* Arms an unarmed entry; any deadline, a past one is due at the next advance. O(1). */
static inline void weft__wheel_add(weft__wheel *w, weft__wheel_entry *e, weft_time deadline);

/* Disarms; true when it was armed. O(1) on the levels, amortised O(log n) in the
 * overflow heap (deadlines more than 63 slots of the top level away). An entry
 * that advance() has handed out is unarmed already and is left on its due list. */
static inline bool weft__wheel_remove(weft__wheel *w, weft__wheel_entry *e);

static inline bool weft__wheel_armed(const weft__wheel_entry *e)
{
    return e->where != 0;
}

/* Moves up to `max` entries that are due at `now` to the tail of `due`, in the
 * order of their ticks, and returns how many. They are unarmed from here on, and
 * linked until the caller pops them. A `now` before an earlier one counts as that.
 *
 * The call moves at most `max` further entries between levels (at least 64), so
 * with a small `max` it may return fewer although more is due: next() then gives
 * a time that is not later than `now`. Cost: what is handed out or moved, not
 * how far time jumped. */
size_t weft__wheel_advance(weft__wheel *w, weft_time now, weft__list *due, size_t max);

/* When advance() next has something to do; WEFT_NEVER when nothing ever. It is
 * the exact due time of the earliest entry (its deadline rounded up to a tick),
 * unless that entry shares a slot of a higher level with more than 64 others:
 * then the start of the slot. Never later than the earliest entry's due time;
 * may lie in the past. */
weft_time weft__wheel_next(weft__wheel *w);

/* When an armed entry is due: its deadline rounded up to a tick. */
weft_time weft__wheel_due(const weft__wheel *w, const weft__wheel_entry *e);

/* Takes out up to `max` entries, due or not, in no order; returns how many. For closing. */
size_t weft__wheel_drain(weft__wheel *w, weft__list *out, size_t max);

/* Walks every list, bitmap and count and aborts at the first that is wrong. For tests. */
void weft__wheel_check(const weft__wheel *w);

#include "time/wheel_inline.h"

#endif

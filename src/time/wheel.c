/* SPDX-License-Identifier: MIT
 *
 * wheel.c -- hierarchical timing wheel (G. Varghese and T. Lauck, "Hashed and
 * hierarchical timing wheels", 1987, scheme 7), 6 levels of 64 slots with an
 * occupancy bitmap each, and a pairing heap (Fredman, Sedgewick, Sleator, Tarjan
 * 1986) for what lies beyond.
 *
 * Placing. With `elapsed` the current tick, an entry due at tick t sits on the
 * level of the highest 6-bit digit in which t and elapsed differ, in the slot that
 * the digit names. Below the top level it thus shares all higher digits with
 * elapsed. The top level is taken by distance instead, 1 to 63 slots ahead of
 * elapsed modulo 64, so it wraps and the crossing of a full span is nothing
 * special. Further ones wait in the heap and are handed out straight from it.
 *
 * Invariants (weft__wheel_check):
 *  - on level 0 a slot holds one tick, elapsed or later; on level L > 0 every
 *    slot is after elapsed's own, except for the one being emptied (`cascading`);
 *  - so each entry on a level is due before each one on a higher level, and the
 *    first occupied slot of the lowest occupied level holds the earliest;
 *  - `elapsed` never passes the start of an occupied slot, nor the heap's minimum;
 *  - a bitmap bit is set exactly when its list is not empty;
 *  - next_tick, when known, is not later than the earliest entry, and either is
 *    its tick or the start of its slot.
 */
#include "time/wheel.h"

#define SCAN_LIMIT  64 /* entries next() looks at for the exact minimum */
#define CASCADE_MIN ((size_t)64)

static weft__wheel_entry *entry_of(const weft__link *l)
{
    return weft__container(l, weft__wheel_entry, link);
}

/* -- ticks ------------------------------------------------------------------- */

static uint64_t tick_floor(const weft__wheel *w, weft_time t)
{
    if (t <= w->origin)
        return 0;
    uint64_t off = (uint64_t)t - (uint64_t)w->origin;
    return w->shift >= 0 ? off >> w->shift : off / w->tick_ns;
}

static weft_time tick_time(const weft__wheel *w, uint64_t tick)
{
    if (tick > w->last_tick)
        return WEFT_NEVER;
    return (weft_time)((uint64_t)w->origin + tick * w->tick_ns);
}

/* -- the overflow heap ----------------------------------------------------------
 * link.next is the next sibling, link.prev the previous one or, for a first
 * child, the parent; u.child the first child. */

static weft__wheel_entry *heap_meld(weft__wheel_entry *a, weft__wheel_entry *b)
{
    if (!a)
        return b;
    if (!b)
        return a;
    if (b->deadline < a->deadline) {
        weft__wheel_entry *t = a;
        a = b;
        b = t;
    }
    b->link.next = a->u.child ? &a->u.child->link : NULL;
    b->link.prev = &a->link;
    if (a->u.child)
        a->u.child->link.prev = &b->link;
    a->u.child = b;
    return a;
}

/* Two-pass pairing of a list of siblings into one tree. */
static weft__wheel_entry *heap_pair(weft__wheel_entry *first)
{
    weft__wheel_entry *pairs = NULL, *root = NULL;
    while (first) {
        weft__wheel_entry *a = first;
        weft__wheel_entry *b = a->link.next ? entry_of(a->link.next) : NULL;
        first = b && b->link.next ? entry_of(b->link.next) : NULL;
        a->link.next = NULL;
        if (b)
            b->link.next = NULL;
        a = heap_meld(a, b);
        a->link.next = pairs ? &pairs->link : NULL;
        pairs = a;
    }
    while (pairs) {
        weft__wheel_entry *a = pairs;
        pairs = a->link.next ? entry_of(a->link.next) : NULL;
        a->link.next = NULL;
        root = heap_meld(root, a);
    }
    if (root)
        root->link.next = root->link.prev = NULL;
    return root;
}

static void heap_set_root(weft__wheel *w, weft__wheel_entry *root)
{
    if (root != w->heap)
        w->heap_tick = root ? weft__wheel_tick_ceil(w, root->deadline) : WEFT__WHEEL_NO_TICK;
    w->heap = root;
}

void weft__wheel_heap_add(weft__wheel *w, weft__wheel_entry *e)
{
    e->where = WEFT__WHEEL_IN_HEAP;
    e->u.child = NULL;
    e->link.next = e->link.prev = NULL;
    heap_set_root(w, heap_meld(w->heap, e));
}

void weft__wheel_heap_remove(weft__wheel *w, weft__wheel_entry *e)
{
    weft__wheel_entry *sub = heap_pair(e->u.child);
    if (e == w->heap) {
        heap_set_root(w, sub);
    } else {
        weft__wheel_entry *before = entry_of(e->link.prev);
        if (before->u.child == e)
            before->u.child = e->link.next ? entry_of(e->link.next) : NULL;
        else
            before->link.next = e->link.next;
        if (e->link.next)
            e->link.next->prev = e->link.prev;
        heap_set_root(w, heap_meld(w->heap, sub));
    }
    e->link.next = e->link.prev = NULL;
    e->where = 0;
}

/* -- slots ------------------------------------------------------------------- */

/* The first occupied slot of the lowest occupied level, and the tick at which it
 * starts. Not to be asked while a slot is being emptied. */
static bool first_slot(const weft__wheel *w, unsigned *level, unsigned *slot, uint64_t *start)
{
    if (!w->levels)
        return false;
    unsigned l = (unsigned)__builtin_ctz(w->levels);
    unsigned s;
    if (l < WEFT__WHEEL_TOP) {
        s = (unsigned)__builtin_ctzll(w->occupied[l]);
        uint64_t higher = w->elapsed >> ((l + 1) * WEFT__WHEEL_BITS);
        *start = (higher << WEFT__WHEEL_BITS | s) << (l * WEFT__WHEEL_BITS);
    } else {
        uint64_t current = w->elapsed >> WEFT__WHEEL_TOP_SHIFT;
        unsigned turn = (unsigned)current & WEFT__WHEEL_SLOT_MASK;
        uint64_t bits = w->occupied[WEFT__WHEEL_TOP];
        if (turn)
            bits = bits >> turn | bits << (WEFT__WHEEL_SLOTS - turn);
        uint64_t ahead = (uint64_t)__builtin_ctzll(bits);
        s = (unsigned)(current + ahead) & WEFT__WHEEL_SLOT_MASK;
        *start = (current + ahead) << WEFT__WHEEL_TOP_SHIFT;
    }
    *level = l;
    *slot = s;
    return true;
}

/* -- the contract -------------------------------------------------------------- */

void weft__wheel_init(weft__wheel *w, weft_time origin, weft_time tick_ns)
{
    WEFT__CHECK(tick_ns >= WEFT__WHEEL_MIN_TICK);
    uint64_t tick = (uint64_t)tick_ns;
    w->count = 0;
    w->elapsed = 0;
    w->next_tick = WEFT__WHEEL_NO_TICK;
    w->next_known = false;
    w->cascading = 0;
    w->levels = 0;
    w->shift = (int8_t)((tick & (tick - 1)) == 0 ? __builtin_ctzll(tick) : -1);
    w->origin = w->now = origin;
    w->tick_ns = tick;
    w->last_tick = ((uint64_t)INT64_MAX - (uint64_t)origin) / tick;
    w->heap = NULL;
    w->heap_tick = WEFT__WHEEL_NO_TICK;
    for (unsigned l = 0; l < WEFT__WHEEL_LEVELS; l++) {
        w->occupied[l] = 0;
        for (unsigned s = 0; s < WEFT__WHEEL_SLOTS; s++)
            weft__list_init(&w->slots[l][s]);
    }
}

/* Moves the entries from `first` up to, not including, `end` to the tail of `to`. */
static void move_run(weft__link *first, weft__link *end, weft__list *to)
{
    weft__link *last = end->prev;
    first->prev->next = end;
    end->prev = first->prev;
    first->prev = to->head.prev;
    to->head.prev->next = first;
    last->next = &to->head;
    to->head.prev = last;
}

/* Hands out up to `room` entries of a level-0 slot. */
static size_t take(weft__wheel *w, unsigned slot, weft__list *due, size_t room)
{
    weft__link *head = &w->slots[0][slot].head;
    weft__link *it = head->next;
    size_t n = 0;
    for (; it != head && n < room; n++) {
        entry_of(it)->where = 0;
        it = it->next;
    }
    if (n == 0)
        return 0;
    move_run(head->next, it, due);
    if (it == head)
        weft__wheel_slot_emptied(w, 0, slot);
    w->count -= n;
    return n;
}

/* Moves entries of elapsed's own slot on a level to lower levels, those in a row that are
 * due together at one go; false when `*room` ended first. Until the slot is empty no other
 * slot may be looked at, because those already moved and those not yet moved interleave. */
static bool cascade(weft__wheel *w, size_t *room)
{
    unsigned level = w->cascading, slot = weft__wheel_slot(w->elapsed, level);
    weft__link *head = &w->slots[level][slot].head;
    while (head->next != head) {
        uint64_t tick = entry_of(head->next)->u.tick;
        unsigned to = weft__wheel_level(w, tick), to_slot = weft__wheel_slot(tick, to);
        weft__link *it = head->next;
        if (*room == 0)
            return false;
        for (; it != head && *room > 0 && entry_of(it)->u.tick == tick; --*room) {
            entry_of(it)->where = (uint8_t)(to + 1);
            it = it->next;
        }
        move_run(head->next, it, &w->slots[to][to_slot]);
        w->occupied[to] |= 1ULL << to_slot;
        w->levels |= (uint8_t)(1u << to);
        if (head->next == head)
            weft__wheel_slot_emptied(w, level, slot);
    }
    w->cascading = 0;
    w->next_known = false;
    return true;
}

size_t weft__wheel_advance(weft__wheel *w, weft_time now, weft__list *due, size_t max)
{
    if (now == WEFT_NEVER) /* at the end of the clock WEFT_NEVER is still not due */
        now--;
    if (w->now < now)
        w->now = now;
    uint64_t target = tick_floor(w, w->now);
    size_t n = 0, room = max < CASCADE_MIN ? CASCADE_MIN : max;
    for (;;) {
        unsigned level = 0, slot = 0;
        uint64_t start = WEFT__WHEEL_NO_TICK;
        if (w->cascading && !cascade(w, &room))
            return n;
        first_slot(w, &level, &slot, &start);
        bool from_heap = w->heap_tick <= start;
        if (from_heap)
            start = w->heap_tick;
        if (start > target)
            break; /* also when there is nothing at all */
        if (n == max)
            return n;
        w->elapsed = start < w->elapsed ? w->elapsed : start;
        if (from_heap) {
            weft__wheel_entry *e = w->heap;
            weft__wheel_remove(w, e);
            weft__list_push(due, &e->link);
            n++;
        } else if (level == 0) {
            n += take(w, slot, due, max - n);
        } else {
            w->cascading = (uint8_t)level;
        }
    }
    w->elapsed = target;
    return n;
}

weft_time weft__wheel_next(weft__wheel *w)
{
    if (w->count == 0)
        return WEFT_NEVER;
    if (w->cascading &&
        !weft__list_empty(&w->slots[w->cascading][weft__wheel_slot(w->elapsed, w->cascading)]))
        return tick_time(w, w->elapsed);
    if (!w->next_known) {
        unsigned level = 0, slot = 0;
        uint64_t start = WEFT__WHEEL_NO_TICK, best = WEFT__WHEEL_NO_TICK;
        if (first_slot(w, &level, &slot, &start)) {
            int seen = 0;
            weft__list_for (&w->slots[level][slot], it) {
                uint64_t tick = entry_of(it)->u.tick;
                best = tick < best ? tick : best;
                if (level == 0)
                    break;
                if (++seen > SCAN_LIMIT) {
                    best = start;
                    break;
                }
            }
        }
        w->next_tick = best < w->heap_tick ? best : w->heap_tick;
        w->next_known = true;
    }
    return tick_time(w, w->next_tick);
}

weft_time weft__wheel_due(const weft__wheel *w, const weft__wheel_entry *e)
{
    return tick_time(w, e->where == WEFT__WHEEL_IN_HEAP ? weft__wheel_tick_ceil(w, e->deadline)
                                                        : e->u.tick);
}

size_t weft__wheel_drain(weft__wheel *w, weft__list *out, size_t max)
{
    size_t n = 0;
    for (; n < max && w->count > 0; n++) {
        weft__wheel_entry *e = w->heap;
        if (w->levels) {
            unsigned level = (unsigned)__builtin_ctz(w->levels);
            unsigned slot = (unsigned)__builtin_ctzll(w->occupied[level]);
            e = entry_of(weft__list_first(&w->slots[level][slot]));
        }
        weft__wheel_remove(w, e);
        weft__list_push(out, &e->link);
    }
    return n;
}

/* -- the validator ------------------------------------------------------------- */

static size_t check_slot(const weft__wheel *w, unsigned level, unsigned slot, uint64_t *earliest)
{
    const weft__list *l = &w->slots[level][slot];
    bool emptying =
        w->cascading == level && level != 0 && slot == weft__wheel_slot(w->elapsed, level);
    size_t n = 0;
    WEFT__CHECK(weft__list_empty(l) == !(w->occupied[level] >> slot & 1));
    weft__list_for (l, it) {
        const weft__wheel_entry *e = entry_of(it);
        WEFT__CHECK(it->next->prev == it && it->prev->next == it);
        WEFT__CHECK(e->where == level + 1);
        WEFT__CHECK(e->u.tick >= w->elapsed);
        WEFT__CHECK(weft__wheel_slot(e->u.tick, level) == slot);
        WEFT__CHECK(emptying ? weft__wheel_level(w, e->u.tick) < level
                             : weft__wheel_level(w, e->u.tick) == level);
        uint64_t due = weft__wheel_tick_ceil(w, e->deadline);
        WEFT__CHECK(e->u.tick == due || (e->u.tick == w->elapsed && e->deadline <= w->now));
        if (e->u.tick < *earliest)
            *earliest = e->u.tick;
        n++;
    }
    return n;
}

/* Preorder, without a stack: a first child's link.prev leads back to its parent. */
static size_t check_heap(const weft__wheel *w)
{
    size_t n = 0;
    const weft__wheel_entry *e = w->heap;
    WEFT__CHECK(w->heap_tick == (e ? weft__wheel_tick_ceil(w, e->deadline) : WEFT__WHEEL_NO_TICK));
    WEFT__CHECK(!e || (!e->link.next && !e->link.prev));
    while (e) {
        n++;
        WEFT__CHECK(e->where == WEFT__WHEEL_IN_HEAP);
        if (e->u.child) {
            WEFT__CHECK(entry_of(e->u.child->link.prev) == e);
        }
        for (const weft__wheel_entry *c = e->u.child; c;
             c = c->link.next ? entry_of(c->link.next) : NULL) {
            WEFT__CHECK(c->deadline >= e->deadline);
            WEFT__CHECK(!c->link.next || c->link.next->prev == &c->link);
        }
        if (e->u.child) {
            e = e->u.child;
            continue;
        }
        while (e && !e->link.next) {
            while (e->link.prev && entry_of(e->link.prev)->u.child != e)
                e = entry_of(e->link.prev);
            e = e->link.prev ? entry_of(e->link.prev) : NULL;
        }
        e = e ? entry_of(e->link.next) : NULL;
    }
    return n;
}

void weft__wheel_check(const weft__wheel *w)
{
    uint64_t earliest = w->heap_tick;
    size_t n = check_heap(w);
    WEFT__CHECK(!w->heap || w->heap_tick >= w->elapsed);
    for (unsigned l = 0; l < WEFT__WHEEL_LEVELS; l++) {
        WEFT__CHECK((w->occupied[l] != 0) == (w->levels >> l & 1));
        for (unsigned s = 0; s < WEFT__WHEEL_SLOTS; s++)
            n += check_slot(w, l, s, &earliest);
    }
    WEFT__CHECK(n == w->count);
    WEFT__CHECK(!w->next_known || n == 0 || w->next_tick <= earliest);
}

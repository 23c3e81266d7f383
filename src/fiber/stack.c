/* SPDX-License-Identifier: MIT
 *
 * stack.c -- the stack pool, its trimming, and the worker's cache.
 *
 * A slab is one mapping: the records of its stacks, densely, then for each stack a
 * guard page and the stack. Slabs are never searched by address on a normal path:
 * a record knows its slab. A free stack hangs in its own slab's list; slabs that
 * have a stack to offer hang in the pool's list, fullest at the front as far as is
 * cheap to know (a full slab that gets one back goes to the front, one that becomes
 * wholly free to the back), so that the others empty and can be unmapped.
 *
 * Invariants (under pool->lock):
 *   slab->used + slab->nfree == slab->carved <= pool->per_slab
 *   a slab is in pool->partial iff it is mapped and used < per_slab
 *   sum of slab->ndirty == pool->dirty == number of free stacks with ->dirty
 * System calls are made outside the lock, on stacks that count as used meanwhile.
 *
 * The descriptors of slabs are never freed before the pool is, and are linked by
 * atomic pointers: the overflow handler walks them without the lock.
 */
#include "fiber/stack.h"
#include "fiber/context.h"
#include "fiber/map.h"

#include "base/atomic.h"
#include "base/list.h"
#include "base/lock.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef WEFT_VALGRIND
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND                0
#define VALGRIND_STACK_REGISTER(low, high) ((void)(low), (void)(high), 0U)
#define VALGRIND_STACK_DEREGISTER(id)      ((void)(id))
#endif
#ifdef WEFT__ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

#define PER_SLAB      256
#define SLAB_MAX      ((size_t)256 << 20) /* fewer stacks in a slab when they are huge */
#define COLORS        16
#define PATTERN       0x5ac3f00d5ac3f00dULL
#define DISCARD_BATCH 64

typedef struct weft__slab {
    weft__link link;         /* in pool->partial */
    struct weft__slab *next; /* all descriptors; constant once published */
    weft__aptr base;         /* the mapping, NULL while the descriptor is spare */
    weft__stack *records;
    weft__stack *free;
    size_t carved, used, nfree, ndirty;
} weft__slab;

struct weft__stack_pool {
    weft__lock lock;
    weft__aptr all; /* head of the descriptors */
    weft__list partial;
    size_t page, stack_size, stride, per_slab;
    size_t head, slab_bytes; /* bytes of the records; of the whole mapping */
    size_t slabs, used, nfree, dirty;
    weft__a32 guard; /* enum guard_kind; settled by the first guard made */
};

enum guard_kind { GUARD_UNKNOWN, GUARD_KERNEL, GUARD_PROTECT };

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

int weft__stack_pool_new(size_t stack_size, weft__stack_pool **ret)
{
    if (!ret || stack_size > WEFT__STACK_MAX)
        return -EINVAL;
    int r = weft__context_supported();
    if (r < 0)
        return r;
    weft__stack_pool *p = weft__calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    weft__lock_init(&p->lock);
    weft__list_init(&p->partial);
    if (stack_size == 0)
        stack_size = WEFT__STACK_DEFAULT;
    if (stack_size < WEFT__STACK_MIN)
        stack_size = WEFT__STACK_MIN;
    p->page = (size_t)sysconf(_SC_PAGESIZE);
    p->stack_size = round_up(stack_size, p->page);
    p->stride = p->stack_size + p->page;
    p->per_slab = SLAB_MAX / p->stride;
    if (p->per_slab > PER_SLAB)
        p->per_slab = PER_SLAB;
    if (p->per_slab == 0)
        p->per_slab = 1;
    p->head = round_up(p->per_slab * sizeof(weft__stack), p->page);
    p->slab_bytes = p->head + p->per_slab * p->stride;
    *ret = p;
    return 0;
}

/* --- slabs --- */

static void *slab_stack_low(const weft__stack_pool *p, char *base, size_t i)
{
    return base + p->head + i * p->stride + p->page;
}

/* A mapped slab of which nothing is carved, or NULL; called without the lock. */
static char *slab_map(const weft__stack_pool *p)
{
    char *base = weft__map_new(p->slab_bytes);
#ifdef WEFT__ASAN
    if (base)
        __lsan_register_root_region(base, p->slab_bytes);
#endif
    return base;
}

/* Unmaps; `carved` records tell Valgrind which stacks end. Without the lock. */
static void slab_unmap(const weft__stack_pool *p, char *base, size_t carved)
{
    weft__stack *records = (weft__stack *)(void *)base;
    for (size_t i = 0; i < carved; i++)
        if (records[i].valgrind_id)
            VALGRIND_STACK_DEREGISTER(records[i].valgrind_id);
#ifdef WEFT__ASAN
    __lsan_unregister_root_region(base, p->slab_bytes);
    __asan_unpoison_memory_region(base, p->slab_bytes);
#endif
    weft__map_free(base, p->slab_bytes);
}

/* Makes a mapping part of the pool; false when there is no memory for a descriptor. */
static bool slab_add(weft__stack_pool *p, char *base)
{
    weft__slab *s = atom_load_rlx(&p->all);
    while (s && atom_load_rlx(&s->base))
        s = s->next;
    if (!s) {
        s = weft__calloc(1, sizeof *s);
        if (!s)
            return false;
        s->next = atom_load_rlx(&p->all);
        /* Pairs with the acquire in weft__stack_guard_hit. */
        atom_store_rel(&p->all, s);
    }
    s->records = (weft__stack *)(void *)base;
    s->free = NULL;
    s->carved = s->used = s->nfree = s->ndirty = 0;
    atom_store_rel(&s->base, base); /* pairs with the same */
    weft__list_push(&p->partial, &s->link);
    p->slabs++;
    return true;
}

static weft__stack *slab_carve(const weft__stack_pool *p, weft__slab *s)
{
    size_t i = s->carved++;
    weft__stack *st = &s->records[i];
    st->low = slab_stack_low(p, atom_load_rlx(&s->base), i);
    st->size = p->stack_size - i % COLORS * WEFT__CACHE_LINE;
    st->slab = s;
    return st;
}

/* One stack from the first slab that has any; NULL when there is none. Locked. */
static weft__stack *take_locked(weft__stack_pool *p)
{
    weft__link *l = weft__list_first(&p->partial);
    if (!l)
        return NULL;
    weft__slab *s = weft__container(l, weft__slab, link);
    weft__stack *st = s->free;
    if (st) {
        s->free = st->next;
        s->nfree--;
        p->nfree--;
        if (st->dirty) {
            s->ndirty--;
            p->dirty--;
        }
    } else {
        st = slab_carve(p, s);
    }
    s->used++;
    p->used++;
    if (s->used == p->per_slab)
        weft__list_remove(&s->link);
    return st;
}

static void give_locked(weft__stack_pool *p, weft__stack *st)
{
    weft__slab *s = st->slab;
    st->next = s->free;
    s->free = st;
    s->nfree++;
    p->nfree++;
    if (st->dirty) {
        s->ndirty++;
        p->dirty++;
    }
    if (s->used-- == p->per_slab)
        weft__list_push_front(&p->partial, &s->link);
    if (s->used == 0) {
        weft__list_remove(&s->link);
        weft__list_push(&p->partial, &s->link);
    }
    p->used--;
}

/* --- take and give --- */

static bool guard_make(weft__stack_pool *p, weft__stack *st)
{
    char *guard = (char *)st->low - p->page;
    uint32_t kind = atom_load_rlx(&p->guard);
    if (kind == GUARD_UNKNOWN && !weft__map_can_guard(guard, p->page))
        kind = GUARD_PROTECT;
    if (kind != GUARD_PROTECT) {
        int r = weft__map_guard(guard, p->page);
        if (r != -ENOTSUP) {
            atom_store_rlx(&p->guard, (uint32_t)GUARD_KERNEL);
            return r == 0;
        }
    }
    atom_store_rlx(&p->guard, (uint32_t)GUARD_PROTECT);
    return weft__map_protect(guard, p->page) == 0;
}

/* What a stack needs before its first use; false when the kernel refuses. */
static bool stack_ready(weft__stack_pool *p, weft__stack *st)
{
    if (!st->guarded) {
        if (!guard_make(p, st))
            return false;
        st->guarded = true;
        if (RUNNING_ON_VALGRIND)
            st->valgrind_id = VALGRIND_STACK_REGISTER(st->low, (char *)st->low + p->stack_size - 1);
    }
    st->dirty = true; /* from now on it may be touched */
    st->owner = NULL;
    return true;
}

size_t weft__stack_take_many(weft__stack_pool *p, weft__stack **stacks, size_t count)
{
    size_t n = 0;
    weft__acquire(&p->lock);
    while (n < count) {
        weft__stack *st = take_locked(p);
        if (st) {
            stacks[n++] = st;
            continue;
        }
        if (n > 0)
            break; /* part of a batch is enough: no mapping for the rest */
        weft__release(&p->lock);
        char *base = slab_map(p);
        if (!base)
            return 0;
        weft__acquire(&p->lock);
        if (!slab_add(p, base)) {
            weft__release(&p->lock);
            slab_unmap(p, base, 0);
            return 0;
        }
    }
    weft__release(&p->lock);

    size_t ready = 0;
    while (ready < n && stack_ready(p, stacks[ready]))
        ready++;
    if (WEFT__UNLIKELY(ready < n))
        weft__stack_give_many(p, stacks + ready, n - ready);
    return ready;
}

weft__stack *weft__stack_take(weft__stack_pool *p)
{
    weft__stack *st;
    return weft__stack_take_many(p, &st, 1) ? st : NULL;
}

void weft__stack_give_many(weft__stack_pool *p, weft__stack **stacks, size_t count)
{
    weft__acquire(&p->lock);
    for (size_t i = 0; i < count; i++)
        give_locked(p, stacks[i]);
    weft__release(&p->lock);
}

void weft__stack_give(weft__stack_pool *p, weft__stack *st)
{
    weft__stack_give_many(p, &st, 1);
}

/* --- returning memory --- */

/* Unmaps `s` when it is wholly free and that is within `excess` (dirty stacks more
 * than may stay). Enters and leaves with the lock held. */
static void trim_slab_whole(weft__stack_pool *p, weft__slab *s, size_t *excess)
{
    char *base = atom_load_rlx(&s->base);
    if (!base || s->used > 0 || s->ndirty > *excess)
        return;
    size_t carved = s->carved;
    *excess -= s->ndirty;
    p->dirty -= s->ndirty;
    p->nfree -= s->nfree;
    p->slabs--;
    weft__list_remove(&s->link);
    /* The descriptor is spare from here; a reader that still has the old base can
     * only be looking for an address in a stack that is not in use. */
    atom_store_rlx(&s->base, NULL);
    weft__release(&p->lock);
    slab_unmap(p, base, carved);
    weft__acquire(&p->lock);
}

/* Takes up to DISCARD_BATCH dirty stacks off the slab's free list. Locked. */
static size_t detach_dirty(weft__stack_pool *p, weft__slab *s, size_t limit, weft__stack **out)
{
    size_t n = 0;
    for (weft__stack **at = &s->free; *at && n < limit && n < DISCARD_BATCH;) {
        weft__stack *st = *at;
        if (!st->dirty) {
            at = &st->next;
            continue;
        }
        *at = st->next;
        out[n++] = st;
    }
    s->nfree -= n;
    s->ndirty -= n;
    s->used += n;
    p->nfree -= n;
    p->dirty -= n;
    p->used += n;
    if (n > 0 && s->used == p->per_slab)
        weft__list_remove(&s->link);
    return n;
}

/* Discards the memory of free stacks of `s` while there is excess. Lock as above. */
static void trim_slab_stacks(weft__stack_pool *p, weft__slab *s, size_t *excess)
{
    weft__stack *batch[DISCARD_BATCH];
    size_t n;
    while (atom_load_rlx(&s->base) && *excess > 0 && (n = detach_dirty(p, s, *excess, batch)) > 0) {
        *excess -= n;
        weft__release(&p->lock);
        for (size_t i = 0; i < n; i++) {
            weft__map_discard(batch[i]->low, p->stack_size);
            batch[i]->dirty = batch[i]->painted = false;
        }
        weft__acquire(&p->lock);
        for (size_t i = 0; i < n; i++)
            give_locked(p, batch[i]);
    }
}

void weft__stack_pool_trim(weft__stack_pool *p, size_t keep_bytes)
{
    size_t keep = keep_bytes / p->stack_size;
    weft__acquire(&p->lock);
    size_t excess = p->dirty > keep ? p->dirty - keep : 0;
    for (weft__slab *s = atom_load_rlx(&p->all); s; s = s->next)
        trim_slab_whole(p, s, &excess);
    for (weft__slab *s = atom_load_rlx(&p->all); s && excess > 0; s = s->next)
        trim_slab_stacks(p, s, &excess);
    weft__release(&p->lock);
}

void weft__stack_pool_free(weft__stack_pool *p)
{
    WEFT__ASSERT(!p || p->used == 0);
    weft__stack_pool_discard(p);
}

void weft__stack_pool_discard(weft__stack_pool *p)
{
    if (!p)
        return;
    for (weft__slab *s = atom_load_rlx(&p->all), *next; s; s = next) {
        next = s->next;
        char *base = atom_load_rlx(&s->base);
        if (base)
            slab_unmap(p, base, s->carved);
        weft__free(s);
    }
    weft__free(p);
}

/* --- looking --- */

size_t weft__stack_pool_stack_size(const weft__stack_pool *p)
{
    return p->stack_size;
}

void weft__stack_pool_stats(weft__stack_pool *p, weft__stack_stats *ret)
{
    weft__acquire(&p->lock);
    *ret = (weft__stack_stats){.stack_size = p->stack_size,
                               .slabs = p->slabs,
                               .stacks_used = p->used,
                               .stacks_free = p->nfree,
                               .kernel_guards = atom_load_rlx(&p->guard) == GUARD_KERNEL};
    weft__release(&p->lock);
}

const weft__stack *weft__stack_guard_hit(weft__stack_pool *p, const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    /* The acquires pair with the releases in slab_add. */
    for (weft__slab *s = atom_load_acq(&p->all); s; s = s->next) {
        char *base = atom_load_acq(&s->base);
        if (!base || a < (uintptr_t)base + p->head || a >= (uintptr_t)base + p->slab_bytes)
            continue;
        size_t offset = a - ((uintptr_t)base + p->head);
        if (offset % p->stride >= p->page)
            return NULL;
        const weft__stack *st = (const weft__stack *)(const void *)base + offset / p->stride;
        return st->guarded ? st : NULL;
    }
    return NULL;
}

static size_t painted_depth(const weft__stack *st)
{
    const uint64_t *low = st->low;
    size_t words = st->size / sizeof *low, i = 0;
    while (i < words && low[i] == PATTERN)
        i++;
    return (words - i) * sizeof *low;
}

size_t weft__stack_high_water(const weft__stack *st)
{
    if (st->painted)
        return painted_depth(st);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < st->size;) {
        unsigned char resident[256];
        size_t pages = (st->size - at + page - 1) / page;
        if (pages > sizeof resident)
            pages = sizeof resident;
        if (mincore((char *)st->low + at, pages * page, resident) != 0)
            return 0;
        for (size_t i = 0; i < pages; i++)
            if (resident[i] & 1)
                return st->size - at - i * page;
        at += pages * page;
    }
    return 0;
}

void weft__stack_paint(weft__stack *st)
{
#ifdef WEFT__ASAN
    __asan_unpoison_memory_region(st->low, st->size);
#endif
    size_t deep = st->painted ? painted_depth(st) : st->size;
    uint64_t *top = (uint64_t *)(void *)((char *)st->low + st->size);
    for (size_t i = 1; i <= deep / sizeof *top; i++)
        top[-(ptrdiff_t)i] = PATTERN;
    st->painted = true;
}

/* --- the worker's cache --- */

weft__stack *weft__stack_cache_refill(weft__stack_cache *cache)
{
    cache->count = weft__stack_take_many(cache->pool, cache->stacks, WEFT__STACK_CACHE / 2);
    return cache->count ? cache->stacks[--cache->count] : NULL;
}

void weft__stack_cache_drain(weft__stack_cache *cache)
{
    const size_t half = WEFT__STACK_CACHE / 2;
    weft__stack_give_many(cache->pool, cache->stacks, half); /* the bottom: the coldest */
    cache->count -= half;
    memmove(cache->stacks, cache->stacks + half, cache->count * sizeof cache->stacks[0]);
}

void weft__stack_cache_fini(weft__stack_cache *cache)
{
    weft__stack_give_many(cache->pool, cache->stacks, cache->count);
    cache->count = 0;
}

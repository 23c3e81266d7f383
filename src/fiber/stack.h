/* SPDX-License-Identifier: MIT
 *
 * stack.h -- stacks for fibers: a pool per runtime, a cache per worker, and the
 * report of an overflow.
 *
 * Stacks live in slabs of (usually) 256, one mapping each, with a guard below
 * every stack. A stack costs memory only where it was touched; its record lies
 * densely in the slab's head, so a parked fiber keeps one page resident and the
 * page after it stays untouched. Free stacks are re-used last in, first out, so
 * a short fiber runs on the stack that is warm in the processor's cache.
 */
#ifndef WEFT_SRC_STACK_H
#define WEFT_SRC_STACK_H

#include "base/base.h"

#define WEFT__STACK_DEFAULT ((size_t)64 << 10)
#define WEFT__STACK_MIN     ((size_t)16 << 10)
#define WEFT__STACK_MAX     ((size_t)1 << 30)

struct weft__slab;

typedef struct weft__stack {
    void *low;                /* lowest usable byte */
    size_t size;              /* usable bytes; up to 1 KiB less than asked, so that the hot ends
                               * of neighbouring stacks don't meet in the same cache lines */
    const char *owner;        /* name for the overflow report, or NULL; set and cleared
                               * by whoever took the stack, alive as long as it is set */
    struct weft__stack *next; /* while free: the pool's */
    struct weft__slab *slab;
    uint32_t valgrind_id;
    bool guarded; /* its guard is in place */
    bool dirty;   /* perhaps touched since it was last given to the kernel */
    bool painted; /* filled by weft__stack_paint since then */
} weft__stack;

typedef struct weft__stack_pool weft__stack_pool;

typedef struct weft__stack_stats {
    size_t stack_size;  /* usable bytes of a stack, as rounded */
    size_t slabs;       /* mappings held */
    size_t stacks_used; /* taken from the pool; those in caches count as taken */
    size_t stacks_free; /* in the pool */
    bool kernel_guards; /* guards are MADV_GUARD_INSTALL, not mprotect */
} weft__stack_stats;

/* Makes a pool of stacks of `stack_size` usable bytes, rounded up to pages and to
 * at least 16 KiB; 0 is the default, 64 KiB. Nothing is mapped yet.
 * -EINVAL: ret is NULL or stack_size > 1 GiB. -ENOMEM. -ENOTSUP: this thread runs
 * with a hardware shadow stack. The caller owns the pool.
 * Callable from: any thread. */
int weft__stack_pool_new(size_t stack_size, weft__stack_pool **ret);

/* Frees a pool and all its mappings; every stack must have been given back. NULL
 * is allowed. Callable from: any thread, once nobody else uses the pool. */
void weft__stack_pool_free(weft__stack_pool *pool);

/* The same whatever is in use: in a forked child, whose only thread stands on none of
 * its stacks. Takes no lock. */
void weft__stack_pool_discard(weft__stack_pool *pool);

/* A stack, or NULL when the kernel gives no more memory or mappings (with
 * mprotect guards each stack is two mappings: vm.max_map_count, usually 65530,
 * bounds them to some 32,000). Its content is undefined. Thread-safe. */
weft__stack *weft__stack_take(weft__stack_pool *pool);

/* Gives a stack back; nothing may run on it any more. Thread-safe. */
void weft__stack_give(weft__stack_pool *pool, weft__stack *stack);

/* Batches of the same: take returns how many of `count` it could get. */
size_t weft__stack_take_many(weft__stack_pool *pool, weft__stack **stacks, size_t count);
void weft__stack_give_many(weft__stack_pool *pool, weft__stack **stacks, size_t count);

/* Returns the memory of free stacks to the kernel until at most `keep_bytes` of
 * it, counting each stack that was used as fully resident, is left; unmaps slabs
 * that have become wholly free and clean. Stacks in caches are not free. It makes
 * system calls: for idle times. Thread-safe. */
void weft__stack_pool_trim(weft__stack_pool *pool, size_t keep_bytes);

/* Usable bytes of a stack, as rounded; constant. Callable from: anywhere. */
size_t weft__stack_pool_stack_size(const weft__stack_pool *pool);

/* Callable from: any thread; the figures belong together. */
void weft__stack_pool_stats(weft__stack_pool *pool, weft__stack_stats *ret);

/* The census: fills a stack nobody runs on with a pattern, so that its high-water
 * mark is exact; makes all of it resident. A painted stack is repainted only as deep
 * as it was used. Call it right after each take, or never in the life of a pool. */
void weft__stack_paint(weft__stack *stack);

/* Bytes used at the deepest point. With the census: exact to 8 bytes, since the last
 * paint. Else to the page, since the stack's memory was last given to the kernel: a
 * re-used stack remembers its earlier users; swapped-out pages don't count; makes a
 * system call. Callable from: anywhere, for a stack that is not running elsewhere. */
size_t weft__stack_high_water(const weft__stack *stack);

/* The stack whose guard holds `address`, or NULL. Callable from: a signal handler,
 * for an address near a stack in use. */
const weft__stack *weft__stack_guard_hit(weft__stack_pool *pool, const void *address);

/* --- a worker's cache: not thread-safe, bounded, embeddable --- */

#define WEFT__STACK_CACHE 32

typedef struct weft__stack_cache {
    weft__stack_pool *pool;
    size_t count;
    weft__stack *stacks[WEFT__STACK_CACHE];
} weft__stack_cache;

static inline void weft__stack_cache_init(weft__stack_cache *cache, weft__stack_pool *pool)
{
    cache->pool = pool;
    cache->count = 0;
}

/* Gives all back to the pool. */
void weft__stack_cache_fini(weft__stack_cache *cache);

/* The slow halves: take half a cache's worth from the pool; drain the colder half. */
weft__stack *weft__stack_cache_refill(weft__stack_cache *cache);
void weft__stack_cache_drain(weft__stack_cache *cache);

/* As weft__stack_take, from the worker's cache. */
static inline weft__stack *weft__stack_cache_take(weft__stack_cache *cache)
{
    if (WEFT__UNLIKELY(cache->count == 0))
        return weft__stack_cache_refill(cache);
    return cache->stacks[--cache->count];
}

/* As weft__stack_give, to the worker's cache. */
static inline void weft__stack_cache_give(weft__stack_cache *cache, weft__stack *stack)
{
    if (WEFT__UNLIKELY(cache->count == WEFT__STACK_CACHE))
        weft__stack_cache_drain(cache);
    cache->stacks[cache->count++] = stack;
}

/* --- the overflow report (overflow.c) --- */

/* Installs handlers for SIGSEGV and SIGBUS that turn a hit guard into
 *     weft: stack overflow in fiber "NAME" (stack size 65536 bytes)
 * on stderr, followed by the default action of the signal. Every other fault goes
 * to the handler that was there before. Counted: the last uninstall puts that
 * handler back, unless somebody installed another over it in the meantime.
 * It changes the process's signal dispositions: a host that minds leaves it out.
 * 0 or a negative errno. Callable from: any thread. */
int weft__overflow_install(void);
void weft__overflow_uninstall(void);

/* An alternate signal stack for the calling thread (kept when it has one already),
 * SIGSEGV and SIGBUS unblocked, and `pool` as the one to look in. Only threads that
 * entered report. Enter before the first fiber runs; leave before the thread ends
 * or the pool goes. 0 or -ENOMEM. Callable from: a thread's own stack. */
int weft__overflow_enter_thread(weft__stack_pool *pool);
void weft__overflow_leave_thread(void);

#endif

/* SPDX-License-Identifier: MIT
 *
 * sys.h -- the only door to the clock, to futex words and to the random seed.
 * A test build replaces these functions at link time (tests/model, fault
 * injection) without a line changed above.
 */
#ifndef WEFT_SRC_SYS_H
#define WEFT_SRC_SYS_H

#include "base/base.h"
#include "base/atomic.h"

/* CLOCK_MONOTONIC, ns. */
weft_time weft__sys_now(void);

/* Sleeps while *word == expected, at most until the absolute deadline
 * (WEFT_NEVER: no limit). Returns 0 when woken, when the word differs, or for no
 * reason at all (EINTR included): the caller looks again; -ETIMEDOUT at the
 * deadline. A deadline in the past, WEFT_TRY included, answers -ETIMEDOUT at once. */
int weft__sys_futex_wait(weft__a32 *word, uint32_t expected, weft_time deadline);

/* Wakes at most `count` sleepers on the word. The word's memory may already be
 * gone (a thread that left after it saw its token): only the address is used. */
void weft__sys_futex_wake(weft__a32 *word, int count);

/* The processor the caller runs on, as a hint: stale at once, 0 where unknown. */
unsigned weft__sys_cpu(void);

/* Processors the process may run on, at least 1. */
unsigned weft__sys_cpus(void);

/* Makes a full memory barrier happen on every other thread of the process, between some
 * two of its instructions (membarrier(2)): where one side of a store-then-load agreement
 * is hot and the other rare, the rare side pays for both. False when the system has none,
 * or when a checker must see the order in the atomics themselves: then both sides have to
 * be sequentially consistent. The answer never changes within a process; the first time it may
 * take some milliseconds to find. */
bool weft__sys_barrier_usable(void);
void weft__sys_barrier(void);

/* 64 bits that differ between processes and calls. */
uint64_t weft__sys_seed(void);

/* xorshift64*, G. Marsaglia 2003 / S. Vigna 2014. Not for secrets; state != 0. */
static inline uint64_t weft__rand(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 2685821657736338717ULL;
}

/* The processor's own clock, for "has it been long": cheap, of no known unit, and
 * WEFT__TICKS_LONG of them are between a fifth of and a few milliseconds. Always 0 where
 * there is none. */
static inline uint64_t weft__sys_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return 0;
#endif
}

#if defined(__x86_64__)
#define WEFT__TICKS_LONG (1ull << 20) /* at some 1 to 5 GHz */
#else
#define WEFT__TICKS_LONG (1ull << 15) /* at some 24 to 100 MHz */
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * atomic.h -- the only door to atomics.
 *
 * Each atomic is a one-member struct, so a plain access does not compile by
 * accident. The order is in the name: _rlx, _acq, _rel, _ar (acquire+release),
 * _sc (sequentially consistent; used where two sides each store one thing and
 * load the other). There is no standalone fence in weft: ThreadSanitizer cannot
 * see one, so all order goes through the accesses themselves. At each access
 * that orders, the call site says what it pairs with.
 *
 * In a build with WEFT_MODEL every access first calls weft__model_step(), which
 * lets the checker in tests/model pick which of its threads goes next. The
 * checker explores sequentially consistent interleavings and reports plain accesses
 * that the orders leave unordered (docs/model-checking.md); values that only a weaker
 * machine shows are left to ThreadSanitizer and the stress tests.
 */
#ifndef WEFT_SRC_ATOMIC_H
#define WEFT_SRC_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t raw;
} weft__a32;
typedef struct {
    uint64_t raw;
} weft__a64;
typedef struct {
    void *raw;
} weft__aptr;

#ifdef WEFT_MODEL
/* What a step does to its address; a compare-and-swap that failed only read. */
enum { WEFT__STEP_READ = 1, WEFT__STEP_WRITE = 2, WEFT__STEP_RMW = 3, WEFT__STEP_CAS = 19 };
void weft__model_step(const void *address, int kind, int order, const char *where);
bool weft__model_cas(bool swapped, int order, int order_if_not);
#define WEFT__STEP(p, kind, mo)             weft__model_step(p, WEFT__STEP_##kind, mo, __func__)
#define WEFT__SWAPPED(swapped, mo, fail_mo) weft__model_cas(swapped, mo, fail_mo)
#else
#define WEFT__STEP(p, kind, mo)             ((void)0)
#define WEFT__SWAPPED(swapped, mo, fail_mo) (swapped)
#endif

#define WEFT__AT_LOAD(p, mo)       (WEFT__STEP(p, READ, mo), __atomic_load_n(&(p)->raw, mo))
#define WEFT__AT_STORE(p, v, mo)   (WEFT__STEP(p, WRITE, mo), __atomic_store_n(&(p)->raw, (v), mo))
#define WEFT__AT_RMW(op, p, v, mo) (WEFT__STEP(p, RMW, mo), __atomic_##op##_n(&(p)->raw, (v), mo))
#define WEFT__AT_FETCH(op, p, v, mo)                                                               \
    (WEFT__STEP(p, RMW, mo), __atomic_fetch_##op(&(p)->raw, (v), mo))
#define WEFT__AT_CAS(p, expected, v, mo, fail_mo)                                                  \
    WEFT__SWAPPED((WEFT__STEP(p, CAS, mo),                                                         \
                   __atomic_compare_exchange_n(&(p)->raw, (expected), (v), false, mo, fail_mo)),   \
                  mo, fail_mo)

#define atom_load_rlx(p) WEFT__AT_LOAD(p, __ATOMIC_RELAXED)
#define atom_load_acq(p) WEFT__AT_LOAD(p, __ATOMIC_ACQUIRE)
#define atom_load_sc(p)  WEFT__AT_LOAD(p, __ATOMIC_SEQ_CST)

#define atom_store_rlx(p, v) WEFT__AT_STORE(p, v, __ATOMIC_RELAXED)
#define atom_store_rel(p, v) WEFT__AT_STORE(p, v, __ATOMIC_RELEASE)
#define atom_store_sc(p, v)  WEFT__AT_STORE(p, v, __ATOMIC_SEQ_CST)

/* Read-modify-write: each returns the old value. */
#define atom_xchg_acq(p, v) WEFT__AT_RMW(exchange, p, v, __ATOMIC_ACQUIRE)
#define atom_xchg_rel(p, v) WEFT__AT_RMW(exchange, p, v, __ATOMIC_RELEASE)
#define atom_xchg_ar(p, v)  WEFT__AT_RMW(exchange, p, v, __ATOMIC_ACQ_REL)
#define atom_xchg_sc(p, v)  WEFT__AT_RMW(exchange, p, v, __ATOMIC_SEQ_CST)
#define atom_add_rlx(p, v)  WEFT__AT_FETCH(add, p, v, __ATOMIC_RELAXED)
#define atom_add_ar(p, v)   WEFT__AT_FETCH(add, p, v, __ATOMIC_ACQ_REL)
#define atom_add_sc(p, v)   WEFT__AT_FETCH(add, p, v, __ATOMIC_SEQ_CST)
#define atom_sub_ar(p, v)   WEFT__AT_FETCH(sub, p, v, __ATOMIC_ACQ_REL)
#define atom_sub_rlx(p, v)  WEFT__AT_FETCH(sub, p, v, __ATOMIC_RELAXED)
#define atom_sub_sc(p, v)   WEFT__AT_FETCH(sub, p, v, __ATOMIC_SEQ_CST)
#define atom_or_ar(p, v)    WEFT__AT_FETCH(or, p, v, __ATOMIC_ACQ_REL)
#define atom_or_sc(p, v)    WEFT__AT_FETCH(or, p, v, __ATOMIC_SEQ_CST)
#define atom_and_ar(p, v)   WEFT__AT_FETCH(and, p, v, __ATOMIC_ACQ_REL)

/* Compare and swap, strong: true when *p was *expected and is now `v`;
 * otherwise *expected holds what was seen (acquire on failure for _ar/_sc). */
#define atom_cas_acq(p, expected, v)                                                               \
    WEFT__AT_CAS(p, expected, v, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define atom_cas_rel(p, expected, v)                                                               \
    WEFT__AT_CAS(p, expected, v, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
#define atom_cas_ar(p, expected, v) WEFT__AT_CAS(p, expected, v, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#define atom_cas_sc(p, expected, v) WEFT__AT_CAS(p, expected, v, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE)

/* A hint to the processor inside a bounded spin. */
static inline void weft__relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif

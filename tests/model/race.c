/* SPDX-License-Identifier: MIT
 *
 * race.c -- data races between plain accesses, in every explored interleaving.
 *
 * The test's source file is compiled with -fsanitize=thread, but not linked with
 * that library: the hooks that the compiler calls before each plain access are
 * defined here. Vector clocks follow the orders as the code writes them: a release
 * store (and the read-modify-writes after it) hands the thread's clock to an
 * acquire that reads it; relaxed accesses hand on nothing. Two plain accesses to a
 * byte, one of them a write, that are not ordered in this way are a race, and so is
 * a plain write next to an atomic access. That finds an access to a waiter's frame
 * after it may have returned, and an order that is too weak, without the bad
 * luck that would make either visible.
 *
 * The clocks go up for ever: a new execution begins with all threads at the present
 * tick, so what former executions left in the shadow lies in the past.
 */
#include "unit_test.h"

#include "model_internal.h"

enum { BLOCK = 64, BLOCKS = 4096, SYNCS = 1024 };

/* What was done to each byte, as ticks of the thread that did it. */
struct shadow {
    uintptr_t block;
    uint64_t freed[BLOCK];
    uint64_t written[BLOCK][MODEL_THREADS];
    uint64_t read[BLOCK][MODEL_THREADS];
    uint64_t atomic[BLOCK][MODEL_THREADS];
};

/* What a release left on an atomic. */
struct sync {
    const void *address;
    uint64_t begun; /* the execution it belongs to */
    uint64_t clock[MODEL_THREADS];
};

static struct race {
    int threads;
    uint64_t tick;
    uint64_t begun;
    uint64_t clock[MODEL_THREADS][MODEL_THREADS];
    struct shadow *block[BLOCKS];
    struct sync sync[SYNCS];
} r;

static void join(uint64_t *to, const uint64_t *from)
{
    for (int t = 0; t < MODEL_THREADS; t++)
        if (to[t] < from[t])
            to[t] = from[t];
}

void race_begin(int threads)
{
    r.threads = threads;
    r.begun = r.tick;
    for (int t = 0; t < threads; t++) {
        for (int u = 0; u < MODEL_THREADS; u++)
            r.clock[t][u] = r.begun;
        r.clock[t][t] = ++r.tick;
    }
}

static struct sync *sync_of(const void *address)
{
    size_t i = ((uintptr_t)address >> 2) * 2654435761u % SYNCS;
    for (int n = 0; n < SYNCS; n++, i = (i + 1) % SYNCS) {
        struct sync *s = &r.sync[i];
        if (s->address == address || !s->address) {
            if (s->address != address || s->begun != r.begun) {
                s->address = address;
                s->begun = r.begun;
                memset(s->clock, 0, sizeof s->clock);
            }
            return s;
        }
    }
    model_fail_text("the checker is too small: atomics");
}

static struct shadow *shadow_of(uintptr_t block)
{
    size_t i = block * 2654435761u % BLOCKS;
    for (int n = 0; n < BLOCKS; n++, i = (i + 1) % BLOCKS) {
        if (!r.block[i]) {
            r.block[i] = calloc(1, sizeof *r.block[i]);
            r.block[i]->block = block;
        }
        if (r.block[i]->block == block)
            return r.block[i];
    }
    model_fail_text("the checker is too small: memory");
}

_Noreturn static void fail_race(int thread, int other, const char *what, uintptr_t address)
{
    char text[300];
    snprintf(text, sizeof text,
             "race: thread %d (after %s) %s %p and thread %d (now after %s) is not ordered before",
             thread, model_last_place(thread), what, (void *)address, other,
             model_last_place(other));
    model_fail_text(text);
}

static void check_all(int thread, const uint64_t *done, const char *what, uintptr_t address)
{
    for (int t = 0; t < r.threads; t++)
        if (t != thread && done[t] > r.clock[thread][t])
            fail_race(thread, t, what, address);
}

/* ---- Atomics ---- */

static bool acquires(int order)
{
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static bool releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

void race_step(int thread, const void *address, int kind, int order)
{
    uintptr_t a = (uintptr_t)address;
    struct shadow *sh = shadow_of(a / BLOCK);
    if (sh->freed[a % BLOCK] > r.begun)
        model_fail_text("atomic access to freed memory");
    check_all(thread, sh->written[a % BLOCK], "wrote plainly", a);

    struct sync *s = sync_of(address);
    uint64_t *clock = r.clock[thread];
    sh->atomic[a % BLOCK][thread] = clock[thread];
    if ((kind & OP_READ) && acquires(order))
        join(clock, s->clock);
    if (kind & OP_WRITE) {
        /* A plain store ends the release sequence; a read-modify-write goes on with it. */
        if (!(kind & OP_READ))
            memset(s->clock, 0, sizeof s->clock);
        if (releases(order))
            join(s->clock, clock);
    }
    clock[thread] = ++r.tick;
}

/* ---- Plain accesses ---- */

static void plain(const void *address, size_t size, bool write)
{
    int thread = model_current();
    if (thread < 0)
        return;
    uintptr_t a = (uintptr_t)address;
    struct shadow *s = NULL;
    for (size_t i = 0; i < size; i++, a++) {
        size_t at = a % BLOCK;
        if (!s || at == 0)
            s = shadow_of(a / BLOCK);
        if (s->freed[at] > r.begun)
            model_fail_text("access to freed memory");
        check_all(thread, s->written[at], "wrote", a);
        if (write) {
            check_all(thread, s->read[at], "read", a);
            check_all(thread, s->atomic[at], "touched atomically", a);
            s->written[at][thread] = r.clock[thread][thread];
        } else {
            s->read[at][thread] = r.clock[thread][thread];
        }
    }
}

void race_free(int thread, const void *memory, size_t size)
{
    plain(memory, size, true);
    (void)thread;
    for (size_t i = 0; i < size; i++) {
        uintptr_t a = (uintptr_t)memory + i;
        shadow_of(a / BLOCK)->freed[a % BLOCK] = r.tick;
    }
}

/* ---- What the compiler calls (gcc and clang; no header declares them) ---- */

#define HOOK_SIZE(n)                                                                               \
    void __tsan_read##n(void *p);                                                                  \
    void __tsan_write##n(void *p);                                                                 \
    void __tsan_unaligned_read##n(void *p);                                                        \
    void __tsan_unaligned_write##n(void *p);                                                       \
    void __tsan_volatile_read##n(void *p);                                                         \
    void __tsan_volatile_write##n(void *p);                                                        \
    void __tsan_read_write##n(void *p);                                                            \
    void __tsan_read##n(void *p)                                                                   \
    {                                                                                              \
        plain(p, n, false);                                                                        \
    }                                                                                              \
    void __tsan_write##n(void *p)                                                                  \
    {                                                                                              \
        plain(p, n, true);                                                                         \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p)                                                         \
    {                                                                                              \
        plain(p, n, false);                                                                        \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p)                                                        \
    {                                                                                              \
        plain(p, n, true);                                                                         \
    }                                                                                              \
    void __tsan_volatile_read##n(void *p)                                                          \
    {                                                                                              \
        plain(p, n, false);                                                                        \
    }                                                                                              \
    void __tsan_volatile_write##n(void *p)                                                         \
    {                                                                                              \
        plain(p, n, true);                                                                         \
    }                                                                                              \
    void __tsan_read_write##n(void *p)                                                             \
    {                                                                                              \
        plain(p, n, true);                                                                         \
    }

HOOK_SIZE(1)
HOOK_SIZE(2)
HOOK_SIZE(4)
HOOK_SIZE(8)
HOOK_SIZE(16)

void __tsan_init(void);
void __tsan_func_entry(void *p);
void __tsan_func_exit(void);
void __tsan_read_range(void *p, size_t size);
void __tsan_write_range(void *p, size_t size);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *p)
{
    (void)p;
}

void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *p, size_t size)
{
    plain(p, size, false);
}

void __tsan_write_range(void *p, size_t size)
{
    plain(p, size, true);
}

/* Atomics come in through the shim, before these: only the access is left to do. */
#define HOOK_RMW(type, bits, name, builtin)                                                        \
    type __tsan_atomic##bits##_##name(type *p, type v, int order);                                 \
    type __tsan_atomic##bits##_##name(type *p, type v, int order)                                  \
    {                                                                                              \
        (void)order;                                                                               \
        return builtin(p, v, __ATOMIC_SEQ_CST);                                                    \
    }

#define HOOK_ATOMIC(type, bits)                                                                    \
    type __tsan_atomic##bits##_load(const type *p, int order);                                     \
    void __tsan_atomic##bits##_store(type *p, type v, int order);                                  \
    bool __tsan_atomic##bits##_compare_exchange_strong(type *p, type *c, type v, int o, int f);    \
    type __tsan_atomic##bits##_compare_exchange_val(type *p, type c, type v, int o, int f);        \
    type __tsan_atomic##bits##_load(const type *p, int order)                                      \
    {                                                                                              \
        (void)order;                                                                               \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(type *p, type v, int order)                                   \
    {                                                                                              \
        (void)order;                                                                               \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    bool __tsan_atomic##bits##_compare_exchange_strong(type *p, type *c, type v, int o, int f)     \
    {                                                                                              \
        (void)o;                                                                                   \
        (void)f;                                                                                   \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    }                                                                                              \
    type __tsan_atomic##bits##_compare_exchange_val(type *p, type c, type v, int o, int f)         \
    {                                                                                              \
        __tsan_atomic##bits##_compare_exchange_strong(p, &c, v, o, f);                             \
        return c;                                                                                  \
    }                                                                                              \
    HOOK_RMW(type, bits, exchange, __atomic_exchange_n)                                            \
    HOOK_RMW(type, bits, fetch_add, __atomic_fetch_add)                                            \
    HOOK_RMW(type, bits, fetch_sub, __atomic_fetch_sub)                                            \
    HOOK_RMW(type, bits, fetch_or, __atomic_fetch_or)                                              \
    HOOK_RMW(type, bits, fetch_and, __atomic_fetch_and)

HOOK_ATOMIC(uint32_t, 32)
HOOK_ATOMIC(uint64_t, 64)

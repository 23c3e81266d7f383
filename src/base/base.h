/* SPDX-License-Identifier: MIT
 *
 * base.h -- small things every room uses: hints, containers, the broken-invariant
 * abort, memory.
 */
#ifndef WEFT_SRC_BASE_H
#define WEFT_SRC_BASE_H

#include "weft/base.h"

#define WEFT__LIKELY(x)   __builtin_expect(!!(x), 1)
#define WEFT__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WEFT__NOINLINE    __attribute__((noinline))
#define WEFT__ALIGNED(n)  __attribute__((aligned(n)))

/* A line that two threads must not share by accident. */
#define WEFT__CACHE_LINE 64

#define weft__container(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* A broken invariant of weft's own: say which and abort. Never for bad input. */
_Noreturn void weft__panic(const char *file, int line, const char *what);

/* Checked in every build; for what costs little and would corrupt if wrong. */
#define WEFT__CHECK(cond) (WEFT__LIKELY(cond) ? (void)0 : weft__panic(__FILE__, __LINE__, #cond))

/* Checked in debug builds (and in the sanitizer builds); for the rest. */
#ifdef WEFT_DEBUG
#define WEFT__ASSERT(cond) WEFT__CHECK(cond)
#else
#define WEFT__ASSERT(cond) ((void)sizeof(cond))
#endif

/* Memory. The hooks are process-wide by nature of malloc, set once before any
 * object exists (see weft_set_allocator in weft/base.h when present); NULL on
 * failure, never an abort. weft__free accepts NULL. */
void *weft__malloc(size_t size) __attribute__((malloc));
void *weft__calloc(size_t count, size_t size) __attribute__((malloc));
void *weft__aligned_alloc(size_t alignment, size_t size) __attribute__((malloc));
void weft__free(void *memory);

#endif

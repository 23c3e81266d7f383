/* SPDX-License-Identifier: MIT
 *
 * weft/buffer.h -- reference-counted bytes: what tasks and their updates carry.
 *
 * The bytes are moved, never copied: who has a reference may read them from any
 * thread for as long as it holds the reference. Nobody may write them once the
 * buffer has been handed on.
 *
 * Concurrency: every call may overlap with every other on one buffer, except that
 * the last unref must come after all others.
 */
#ifndef WEFT_BUFFER_H
#define WEFT_BUFFER_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_buffer weft_buffer;

/* Gives the memory of a wrapped buffer back; runs once, when the last reference
 * goes, on the thread that drops it, outside of every lock of weft. */
typedef void (*weft_buffer_destroy_fn)(void *data, size_t size, void *arg);

/* A buffer with a copy of `size` bytes from `data` (NULL: zeros). Size 0 is fine.
 *
 * ret  set on success only, with one reference for the caller
 *
 * Returns 0; -EINVAL (ret is NULL); -ENOMEM.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_buffer_copy(const void *data, size_t size, weft_buffer **ret);

/* A buffer around memory that the caller has; no copy is made.
 *
 * destroy  runs with the last unref; NULL: nothing to do
 * ret      set on success only, with one reference for the caller. On error the
 *          memory stays the caller's and `destroy` is not called
 *
 * Returns 0; -EINVAL (ret is NULL, or data is with a size); -ENOMEM.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_buffer_wrap(void *data, size_t size, weft_buffer_destroy_fn destroy,
                                            void *arg, weft_buffer **ret);

/* One more reference; returns its argument. NULL is fine.
 * Callable from: any thread, any task. */
WEFT_API weft_buffer *weft_buffer_ref(weft_buffer *b);

/* One reference less; returns NULL. NULL is fine.
 * Callable from: any thread, any task. */
WEFT_API weft_buffer *weft_buffer_unref(weft_buffer *b);

/* The bytes and how many; NULL and 0 for NULL. Valid while a reference is held. The
 * sole owner may write through weft_buffer_data before it hands the buffer on.
 * Callable from: anywhere. */
WEFT_API void *weft_buffer_data(const weft_buffer *b);
WEFT_API size_t weft_buffer_size(const weft_buffer *b);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/local.h -- task-local values: one per task and key, with a destructor.
 *
 *     static const weft_local request_id = {free};
 *     weft_local_set(&request_id, strdup("r-17"));
 *     ... any depth of calls and waits, on whatever worker ...
 *     log_line(weft_local_get(&request_id));
 *
 * A key is a constant object; its address is its identity, so there is nothing to
 * register and no limit. The value belongs to the calling task and goes with it from
 * worker to worker. On a plain thread the same calls use a dictionary of that thread.
 *
 * Each value that is not NULL is given to its key's destructor exactly once: when another
 * one takes its place, or when the task ends (however it ends: returned, cancelled, shut
 * down), in its own context, before its joiners are woken, with cancellation shielded; on a
 * plain thread when the thread exits, except the main thread, which does not exit before
 * the process does. Values that a destructor sets are dropped in turn, up to 64.
 */
#ifndef WEFT_LOCAL_H
#define WEFT_LOCAL_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_local {
    void (*drop)(void *value); /* NULL: values are just forgotten */
} weft_local;

/* Sets the value of `key` for the calling task or thread; the one before is dropped, unless
 * it is the same. NULL takes the value away.
 * Returns 0; -ENOMEM (nothing changed; never when the key has had a value here); -EINVAL
 * (key is NULL).
 * Callable from: any thread, any task. Never blocks, unless the destructor does. */
WEFT_API int weft_local_set(const weft_local *key, void *value);

/* The value, or NULL.
 * Callable from: any thread, any task. */
WEFT_API void *weft_local_get(const weft_local *key);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/combine.h -- patterns made of tasks, scopes and channels: map-reduce and a pipeline
 * stage. (The first of several tasks, also by a predicate: weft/promise.h.)
 *
 * Each call opens a scope of its own: when it returns, nothing that it started runs any
 * more, and when the calling task is cancelled, what it started is cancelled first.
 */
#ifndef WEFT_COMBINE_H
#define WEFT_COMBINE_H

#include "weft/base.h"
#include "weft/channel.h"
#include "weft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_COMBINE_ORDERED = 1, /* weft_map_reduce: reduce in the order of the indices */
};

/* All zero is a good default. */
typedef struct weft_combine_options {
    weft_runtime *runtime; /* where the tasks run; NULL: the calling task's */
    size_t parallel;       /* tasks at most at a time; 0: 64. Fewer when the runtime has no room
                            * for more; at most 65,536 */
    unsigned flags;        /* WEFT_COMBINE_ORDERED */
    weft_time deadline;    /* absolute ns; 0, WEFT_NEVER: none */
} weft_combine_options;

/* Makes result number `index`; runs in a task of its own, many at a time. */
typedef int (*weft_map_fn)(void *arg, size_t index);

/* Takes result number `index`; runs in the caller, one at a time. A negative return ends it
 * all. */
typedef int (*weft_reduce_fn)(void *arg, size_t index, int result);

/* Calls map for 0 .. n - 1, each once, in parallel, and reduce for each result as it
 * arrives, or with WEFT_COMBINE_ORDERED in order (which takes 8 bytes for each). What map
 * makes beyond its int, it leaves where `arg` says. Without reduce the first negative
 * result ends it.
 *
 * Returns 0 (all reduced); the negative value that ended it (the rest is cancelled, what has
 * not begun never does); -ETIMEDOUT; -ECANCELED (the calling task is, or the runtime shuts
 * down); -EINVAL (map NULL, an unknown flag, no runtime, parallel above its limit, a bad
 * deadline); -ENOMEM; the errors of weft_spawn when not one task can be started.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_map_reduce(size_t n, weft_map_fn map, weft_reduce_fn reduce,
                                           void *arg, const weft_combine_options *options);

/* Turns an item of the one channel into an item of the other. Returns 0 (send *out),
 * WEFT_FILTER_SKIP (nothing comes of this one), or a negative value that ends the stage. */
#define WEFT_FILTER_SKIP 1
typedef int (*weft_filter_fn)(void *arg, const void *in, void *out);

/* A stage of a pipeline: receives from `in`, filters in up to `parallel` tasks, sends to
 * `out`, until `in` is closed and empty; then closes `out`. In the order of arrival, that is
 * in order only with parallel 1. It keeps no items but those being filtered, so a full
 * `out` holds `in` back. Runs until it is done: a stage for each task makes a pipeline.
 *
 * out  may be NULL: the filter consumes (its `out` is NULL)
 *
 * Returns 0; the negative value of the filter that ended it; -EPIPE (`out` was closed by
 * another); -ETIMEDOUT, -ECANCELED, -EINVAL, -ENOMEM, spawn errors as weft_map_reduce. On
 * errors other than -EINVAL both channels are closed, so that both neighbours hear of it;
 * items in `in` stay there, items in filters are given up.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_pipeline(weft_channel *in, weft_channel *out, weft_filter_fn filter,
                                         void *arg, const weft_combine_options *options);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/metrics.h -- what runtimes and workers have done, as text for Prometheus and as
 * JSON for people.
 *
 *     weft_metrics *m;
 *     weft_metrics_new(&m);
 *     weft_metrics_add_runtime(m, "main", rt, NULL);
 *     weft_metrics_add_registry(m, reg, NULL);
 *     ...
 *     weft_metrics_write_fd(m, fd);
 *
 * A metrics object only knows what was added to it; nothing is registered by itself.
 * Writing takes no lock while it reads a source, calls a function or writes, so a
 * function that gives a value may wait, write metrics itself, or remove its source. What
 * the reader's own metrics system wants to hear as it happens, it gets through
 * weft_worker_hooks.
 *
 * Concurrency: everything may overlap, except that weft_metrics_free comes after all else.
 */
#ifndef WEFT_METRICS_H
#define WEFT_METRICS_H

#include "weft/base.h"
#include "weft/bgworker.h"
#include "weft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_metrics weft_metrics;
typedef struct weft_metrics_source weft_metrics_source;

/* Takes the text piece by piece. Returns 0, or a negative errno value that ends the
 * writing and is its result. */
typedef int (*weft_metrics_write_fn)(void *arg, const void *data, size_t size);

/* An empty one. Returns 0; -EINVAL (NULL); -ENOMEM. weft_metrics_free ends it.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_metrics_new(weft_metrics **ret);

/* Removes all sources and frees it. NULL is fine. Returns NULL.
 * Callable from: any thread, any task. */
WEFT_API weft_metrics *weft_metrics_free(weft_metrics *m);

/* Adds a runtime under a name (label runtime="..."). It must stay until
 * weft_metrics_remove has returned 0, or weft_metrics_free; it may be shut down.
 *
 * name  1 to WEFT_NAME_MAX bytes; copied
 * ret   for weft_metrics_remove; NULL if unwanted
 *
 * Returns 0; -EINVAL; -ENOMEM. Callable from: any thread, any task. */
WEFT_API int weft_metrics_add_runtime(weft_metrics *m, const char *name, weft_runtime *rt,
                                      weft_metrics_source **ret);

/* Adds a registry with all workers it has at the time of writing (labels worker="..." and
 * scope="..."). It must stay as a runtime must; it may be stopped.
 * Returns 0; -EINVAL; -ENOMEM. Callable from: any thread, any task. */
WEFT_API int weft_metrics_add_registry(weft_metrics *m, weft_registry *reg,
                                       weft_metrics_source **ret);

typedef enum weft_metric_kind { WEFT_METRIC_GAUGE, WEFT_METRIC_COUNTER } weft_metric_kind;

/* A value of the caller's own. */
typedef struct weft_metric {
    const char *name;   /* [a-zA-Z_:][a-zA-Z0-9_:]*, at most 127 bytes; copied */
    const char *help;   /* one line; NULL: none; copied, at most 127 bytes */
    const char *labels; /* as between the braces: a="b",c="d"; NULL: none; copied,
                         * at most 127 bytes, the caller's to escape */
    weft_metric_kind kind;
    double (*read)(void *arg);  /* gives the value; runs outside of every lock, may wait */
    void (*release)(void *arg); /* `arg` is not used any more; runs once; may be NULL */
    void *arg;
} weft_metric;

/* Adds a value. Returns 0; -EINVAL (a bad name, no read, too long); -ENOMEM. On error
 * `release` is not called. Callable from: any thread, any task. */
WEFT_API int weft_metrics_add_value(weft_metrics *m, const weft_metric *metric,
                                    weft_metrics_source **ret);

/* Removes a source, whatever is returned (but -EINVAL); then waits until no writing that
 * has begun uses it any more. `source` is not valid afterwards.
 *
 * deadline  absolute, ns; WEFT_TRY does not wait: from inside a `read`
 *
 * Returns 0: it is not used any more, and `release` has been called; -EAGAIN, -ETIMEDOUT,
 * -ECANCELED: it is still in use, and `release` will be called; -EINVAL.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_metrics_remove(weft_metrics *m, weft_metrics_source *source, weft_time deadline);

/* Writes everything in the text exposition format 0.0.4 of Prometheus. Values of one
 * name stand together, in the order in which they were added.
 *
 * Returns 0; -EINVAL; -ENOMEM (nothing was written); what `write` returned.
 * Callable from: any thread, any fiber. May park where a `read` does. */
WEFT_API int weft_metrics_write(weft_metrics *m, weft_metrics_write_fn write, void *arg);

/* The same to a descriptor; a pipe or socket that is full blocks the thread, one that is
 * non-blocking fails. Returns as above, or a negative errno value of write(2).
 * Callable from: any thread, any fiber. */
WEFT_API int weft_metrics_write_fd(weft_metrics *m, int fd);

/* Writes the seats of all workers as a JSON array, one object a seat:
 *
 *   {"worker":"thumbnails","scope":"","seat":0,"kind":"thread","state":"busy",
 *    "age_s":1.5,"task":17,"task_age_s":0.25}
 *
 * kind: thread, fiber, attached. state (weft_seat_state): free, starting, ready, busy,
 * leaving, backoff, given_up; age_s: of the run, or of the state where none runs. task: the
 * number of the task in hand, null without one.
 * Returns as weft_metrics_write. Callable from: any thread, any task. */
WEFT_API int weft_metrics_write_threads(weft_metrics *m, weft_metrics_write_fn write, void *arg);

/* The same to a descriptor. Callable from: any thread, any task. */
WEFT_API int weft_metrics_write_threads_fd(weft_metrics *m, int fd);

#ifdef __cplusplus
}
#endif
#endif

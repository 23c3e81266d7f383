/* SPDX-License-Identifier: MIT
 *
 * weft/metrics_http.h -- metrics over HTTP, in a library of its own, weft_http: it needs
 * libmicrohttpd and is built only where that is found.
 *
 *   GET /metrics   weft_metrics_write
 *   GET /threads   weft_metrics_write_threads
 */
#ifndef WEFT_METRICS_HTTP_H
#define WEFT_METRICS_HTTP_H

#include "weft/metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_metrics_http weft_metrics_http;

/* Serves `m` on a socket of the caller's that listens, from one thread with all signals
 * blocked. At most 64 connections, each idle for 10 s at most.
 *
 * m       must stay until weft_metrics_http_stop
 * listen  taken on success: closed by the stop; the caller's on error
 * ret     set on success only
 *
 * Returns 0; -EINVAL; -ENOTSOCK (not a socket); -ENOMEM; -EAGAIN (it cannot be served).
 * Callable from: any thread. */
WEFT_API WEFT_MUST_USE int weft_metrics_http_start(weft_metrics *m, int listen,
                                                   weft_metrics_http **ret);

/* Ends it, with answers under way, and joins the thread. NULL is fine. Returns NULL.
 * Callable from: any thread but its own. */
WEFT_API weft_metrics_http *weft_metrics_http_stop(weft_metrics_http *h);

#ifdef __cplusplus
}
#endif
#endif

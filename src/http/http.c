/* SPDX-License-Identifier: MIT
 *
 * http.c -- see weft/metrics_http.h. libmicrohttpd does the protocol; an answer is the
 * whole text, made when the request comes. Only public calls of weft: it may stand beside
 * the shared library as well as the static one.
 */
#include "weft/metrics_http.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct weft_metrics_http {
    weft_metrics *metrics;
    struct MHD_Daemon *daemon;
};

/* libmicrohttpd frees an answer with free(). */
struct answer {
    char *data;
    size_t size;
};

static int collect(void *arg, const void *data, size_t size)
{
    struct answer *a = arg;
    char *more = realloc(a->data, a->size + size);
    if (!more)
        return -ENOMEM;
    memcpy(more + a->size, data, size);
    a->data = more;
    a->size += size;
    return 0;
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type,
                             struct answer *a)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(a->size, a->data, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(a->data);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    weft_metrics_http *h = arg;
    struct answer a = {NULL, 0};
    (void)version, (void)upload, (void)state;
    if (*upload_size > 0) { /* a body is read and not looked at */
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return reply(c, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", &a);
    const char *type = "text/plain; version=0.0.4; charset=utf-8";
    int r = -ENOENT;
    if (strcmp(url, "/metrics") == 0) {
        r = weft_metrics_write(h->metrics, collect, &a);
    } else if (strcmp(url, "/threads") == 0) {
        type = "application/json";
        r = weft_metrics_write_threads(h->metrics, collect, &a);
    }
    if (r == 0)
        return reply(c, MHD_HTTP_OK, type, &a);
    free(a.data);
    a = (struct answer){NULL, 0};
    return reply(c, r == -ENOENT ? MHD_HTTP_NOT_FOUND : MHD_HTTP_INTERNAL_SERVER_ERROR,
                 "text/plain", &a);
}

int weft_metrics_http_start(weft_metrics *m, int listen, weft_metrics_http **ret)
{
    int listens = 0;
    socklen_t size = sizeof listens;
    if (!m || !ret)
        return -EINVAL;
    if (getsockopt(listen, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0)
        return -errno;
    if (!listens)
        return -EINVAL;
    weft_metrics_http *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    h->metrics = m;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* its thread inherits the mask */
    h->daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, handle, h,
                         MHD_OPTION_LISTEN_SOCKET, listen, MHD_OPTION_CONNECTION_LIMIT, 64u,
                         MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!h->daemon) {
        free(h);
        return -EAGAIN;
    }
    *ret = h;
    return 0;
}

weft_metrics_http *weft_metrics_http_stop(weft_metrics_http *h)
{
    if (h) {
        MHD_stop_daemon(h->daemon); /* closes the socket */
        free(h);
    }
    return NULL;
}

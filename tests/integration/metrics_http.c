/* SPDX-License-Identifier: MIT
 *
 * Metrics over HTTP, on a socket of the test's own: both pages, what is not there, and a
 * socket that does not listen. Empty where weft_http is not built.
 */
#include "unit_test.h"

#include "harness.h"

#ifdef WEFT_HTTP
#include "weft/metrics_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static uint16_t port_of(int fd)
{
    struct sockaddr_in a;
    socklen_t size = sizeof a;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    return ntohs(a.sin_port);
}

static int listener(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

/* One request; the whole answer. */
static void get(uint16_t port, const char *request, char *answer, size_t size)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[256];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int n =
        snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", request);
    assert_int_equal(write(fd, text, (size_t)n), n);
    size_t got = 0;
    ssize_t r;
    while ((r = read(fd, answer + got, size - 1 - got)) > 0)
        got += (size_t)r;
    answer[got] = '\0';
    close(fd);
}

static double seven(void *arg)
{
    (void)arg;
    return 7;
}

static void both_pages_are_served(void **state)
{
    (void)state;
    static char answer[65536];
    weft_metrics *m;
    weft_metrics_http *h;
    weft_registry *reg;
    weft_worker *w;
    weft_seat *seat;
    int fd = listener();
    uint16_t port = port_of(fd);
    assert_int_equal(weft_metrics_new(&m), 0);
    assert_int_equal(weft_registry_new(NULL, &reg), 0);
    assert_int_equal(weft_worker_start(reg, "mail", NULL, &w), 0);
    assert_int_equal(weft_worker_attach(w, &seat), 0);
    assert_int_equal(weft_metrics_add_registry(m, reg, NULL), 0);
    weft_metric v = {.name = "app_seven", .read = seven};
    assert_int_equal(weft_metrics_add_value(m, &v, NULL), 0);
    assert_int_equal(weft_metrics_http_start(m, -1, &h), -EBADF);
    assert_int_equal(weft_metrics_http_start(NULL, fd, &h), -EINVAL);
    int deaf = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weft_metrics_http_start(m, deaf, &h), -EINVAL);
    close(deaf);
    assert_int_equal(weft_metrics_http_start(m, fd, &h), 0);
    get(port, "GET /metrics", answer, sizeof answer);
    assert_non_null(strstr(answer, "200 OK"));
    assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
    assert_non_null(strstr(answer, "weft_total_workers{worker=\"mail\",scope=\"\"} 1\n"));
    assert_non_null(strstr(answer, "app_seven 7\n"));
    get(port, "GET /threads", answer, sizeof answer);
    assert_non_null(strstr(answer, "application/json"));
    assert_non_null(strstr(answer, "\"worker\":\"mail\""));
    assert_non_null(strstr(answer, "\"state\":\"starting\""));
    get(port, "GET /nothing", answer, sizeof answer);
    assert_non_null(strstr(answer, "404 Not Found"));
    get(port, "DELETE /metrics", answer, sizeof answer);
    assert_non_null(strstr(answer, "405 "));
    assert_null(weft_metrics_http_stop(h));
    assert_null(weft_metrics_http_stop(NULL));
    weft_seat_detach(seat);
    weft_worker_unref(w);
    weft_metrics_free(m);
    weft_registry_free(reg);
}
#else
static void both_pages_are_served(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_pages_are_served)};
    test_limit(60, "metrics_http");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The workloads of weft-bench on libuv: timers, sleeps, a wake from another thread, and
 * the echo server. libuv has no tasks; what it can do is timed with its own idioms.
 */
#include "../peer.h"

#include <pthread.h>
#include <uv.h>

static long fired;

static void on_timer(uv_timer_t *t)
{
    (void)t;
    fired++;
}

static void drain(uv_loop_t *loop)
{
    uv_run(loop, UV_RUN_NOWAIT);
}

/* init + start + stop of n timers; closing them is not timed. */
static peer_sample lifecycle(long n, long unused)
{
    (void)unused;
    uv_loop_t *loop = uv_default_loop();
    uv_timer_t *all = malloc((size_t)n * sizeof *all);
    long rounds = n < 100000 ? 200000 / n : 1;
    double total = 0;
    for (long r = 0; r < rounds; r++) {
        double t = peer_now();
        for (long i = 0; i < n; i++)
            uv_timer_init(loop, &all[i]);
        for (long i = 0; i < n; i++)
            uv_timer_start(&all[i], on_timer, 86400000, 0);
        for (long i = 0; i < n; i++)
            uv_timer_stop(&all[i]);
        total += peer_now() - t;
        for (long i = 0; i < n; i++)
            uv_close((uv_handle_t *)&all[i], NULL);
        drain(loop);
    }
    free(all);
    peer_sample s = {(double)(n * rounds), total / (double)(n * rounds), 0, 0};
    return s;
}

static peer_sample expiry(long n, long spread)
{
    uv_loop_t *loop = uv_default_loop();
    uv_timer_t *all = malloc((size_t)n * sizeof *all);
    for (long i = 0; i < n; i++)
        uv_timer_init(loop, &all[i]);
    fired = 0;
    uv_update_time(loop);
    for (long i = 0; i < n; i++)
        uv_timer_start(&all[i], on_timer,
                       spread ? 1 + (((uint64_t)i * 2654435761u) >> 7) % 4096 : 150, 0);
    peer_nap(spread ? 4.11e9 : 1.6e8);
    double t = peer_now();
    uv_run(loop, UV_RUN_NOWAIT);
    peer_sample s = peer_per_op((double)n, t);
    peer_check(fired == n, "every timer fired once");
    for (long i = 0; i < n; i++)
        uv_close((uv_handle_t *)&all[i], NULL);
    drain(loop);
    free(all);
    return s;
}

/* --- sleeps --- */

static double overshoot, started;
static int left;

static void on_sleep(uv_timer_t *t)
{
    overshoot += (peer_now() - started) / 1e6 - 100;
    if (--left > 0) {
        started = peer_now();
        uv_update_time(t->loop);
        uv_timer_start(t, on_sleep, 100, 0);
    }
}

static peer_sample sleeps(long a, long b)
{
    (void)a;
    (void)b;
    uv_loop_t *loop = uv_default_loop();
    int n = peer_quick ? 5 : 20;
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    overshoot = 0;
    left = n;
    started = peer_now();
    uv_update_time(loop);
    uv_timer_start(&timer, on_sleep, 100, 0);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&timer, NULL);
    drain(loop);
    peer_sample s = {(double)n, overshoot * 20 / n, 0, 0};
    return s;
}

/* --- a wake from another thread: uv_async_send --- */

static uv_async_t async;
static volatile int finished;
static double ran; /* written by the loop, read by the sender after a release store */
static int ran_flag;

static void on_async(uv_async_t *a)
{
    if (finished) {
        uv_close((uv_handle_t *)a, NULL);
        return;
    }
    ran = peer_now();
    __atomic_store_n(&ran_flag, 1, __ATOMIC_RELEASE);
}

static void *loop_thread(void *loop)
{
    uv_run(loop, UV_RUN_DEFAULT);
    return NULL;
}

static peer_sample wakes(long a, long b)
{
    (void)a;
    (void)b;
    uv_loop_t *loop = uv_default_loop();
    int n = peer_quick ? 500 : 2000;
    double *waited = malloc((size_t)n * sizeof *waited);
    pthread_t thread;
    finished = 0;
    uv_async_init(loop, &async, on_async);
    pthread_create(&thread, NULL, loop_thread, loop);
    for (int i = 0; i < n; i++) {
        __atomic_store_n(&ran_flag, 0, __ATOMIC_RELEASE);
        peer_nap(2e5);
        double t = peer_now();
        uv_async_send(&async);
        peer_nap(2e5);
        while (!__atomic_load_n(&ran_flag, __ATOMIC_ACQUIRE))
            peer_nap(5e4);
        waited[i] = (ran - t) / 1e3;
    }
    finished = 1;
    uv_async_send(&async);
    pthread_join(thread, NULL);
    peer_sample s = peer_latencies(waited, n);
    free(waited);
    return s;
}

static peer_sample idle(long a, long b)
{
    (void)a;
    (void)b;
    uv_timer_t timer;
    uv_timer_init(uv_default_loop(), &timer);
    uv_timer_start(&timer, on_timer, 10000, 0);
    puts("ready");
    fflush(stdout);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    peer_sample s = {1, 0, 0, 0};
    return s;
}

/* --- echo --- */

typedef struct answer {
    uv_write_t request;
    char data[];
} answer;

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
    static char shared[65536]; /* one loop, and a read is answered before the next */
    (void)h;
    (void)size;
    *buf = uv_buf_init(shared, sizeof shared);
}

static void on_closed(uv_handle_t *h)
{
    free(h);
}

static void on_written(uv_write_t *w, int status)
{
    (void)status;
    free(w);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    if (n < 0) {
        uv_close((uv_handle_t *)s, on_closed);
        return;
    }
    uv_buf_t out = uv_buf_init(buf->base, (unsigned)n);
    int sent = n ? uv_try_write(s, &out, 1) : 0;
    if (sent == n)
        return;
    if (sent < 0)
        sent = 0;
    answer *a = malloc(sizeof *a + (size_t)(n - sent));
    memcpy(a->data, buf->base + sent, (size_t)(n - sent));
    out = uv_buf_init(a->data, (unsigned)(n - sent));
    uv_write(&a->request, s, &out, 1, on_written);
}

static void on_connection(uv_stream_t *server, int status)
{
    if (status)
        return;
    uv_tcp_t *c = malloc(sizeof *c);
    uv_tcp_init(server->loop, c);
    if (uv_accept(server, (uv_stream_t *)c)) {
        uv_close((uv_handle_t *)c, on_closed);
        return;
    }
    uv_tcp_nodelay(c, 1);
    uv_read_start((uv_stream_t *)c, on_alloc, on_read);
}

static void echo(int port)
{
    uv_tcp_t server;
    struct sockaddr_in address;
    uv_ip4_addr("127.0.0.1", port, &address);
    uv_tcp_init(uv_default_loop(), &server);
    uv_tcp_bind(&server, (const struct sockaddr *)&address, 0);
    peer_check(uv_listen((uv_stream_t *)&server, 1024, on_connection) == 0, "listen");
    puts("ready");
    fflush(stdout);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    exit(0);
}

static const peer_case cases[] = {
    {"timer_lifecycle", "64", "ns", 9, lifecycle, 64, 0},
    {"timer_lifecycle", "1024", "ns", 9, lifecycle, 1024, 0},
    {"timer_lifecycle", "100000", "ns", 9, lifecycle, 100000, 0},
    {"timer_expiry", "same/1024", "ns", -5, expiry, 1024, 0},
    {"timer_expiry", "same/100000", "ns", -5, expiry, 100000, 0},
    {"timer_expiry", "spread/1024", "ns", -5, expiry, 1024, 1},
    {"sleep_precision", "1w", "ms", -3, sleeps, 0, 0},
    {"wake_latency", "1w", "us", 5, wakes, 0, 0},
    {"idle", "1w", "switches", -1, idle, 0, 0},
};

int main(int argc, char **argv)
{
    return peer_main(argc, argv, cases, sizeof cases / sizeof *cases, echo);
}

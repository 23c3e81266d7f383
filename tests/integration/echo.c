/* SPDX-License-Identifier: MIT
 *
 * Fibers over real sockets, on both drivers and one or several workers: many
 * connections, a reader and a writer on one socket, closing under waiters, deadlines,
 * cancellation, plain threads next to fibers, several runtimes. */
#include "unit_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "weft/net.h"
#include "weft/runtime.h"
#include "weft/task.h"

static unsigned workers;

static weft_runtime *runtime(void)
{
    weft_runtime_options o = {.workers = workers};
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    return rt;
}

static weft_task *start(weft_runtime *rt, weft_fn fn, void *arg)
{
    weft_task *t = NULL;
    assert_int_equal(weft_spawn(rt, fn, arg, NULL, &t), 0);
    return t;
}

static int finish(weft_task *t)
{
    int result = INT32_MAX;
    assert_int_equal(weft_task_join(t, weft_after(30 * WEFT_SEC), &result), 0);
    weft_task_unref(t);
    return result;
}

/* ---- Echo ---- */

static int echo_connection(void *arg)
{
    weft_fd *fd = arg;
    char bytes[512];
    ssize_t n;
    while ((n = weft_fd_read(fd, bytes, sizeof bytes, WEFT_NEVER)) > 0) {
        if (weft_fd_write_full(fd, bytes, (size_t)n, WEFT_NEVER, NULL))
            break;
    }
    weft_fd_unref(fd);
    return 0;
}

static int echo_server(void *arg)
{
    weft_fd *listener = arg, *fd;
    int served = 0, r;
    while ((r = weft_tcp_accept(listener, WEFT_NEVER, &fd)) == 0) {
        if (weft_go(echo_connection, fd))
            weft_fd_unref(fd);
        served++;
    }
    return r == -EPIPE ? served : r;
}

enum { CLIENTS = 100, MESSAGES = 20 };

static int echo_client(void *arg)
{
    weft_fd *fd;
    char out[64], in[64];
    weft_time limit = weft_after(20 * WEFT_SEC);
    int r = weft_tcp_connect(arg, limit, &fd);
    if (r)
        return r;
    for (int i = 0; i < MESSAGES && r == 0; i++) {
        memset(out, 'a' + i, sizeof out);
        r = weft_fd_write_full(fd, out, sizeof out, limit, NULL);
        if (r == 0)
            r = weft_fd_read_full(fd, in, sizeof in, limit, NULL);
        if (r == 0 && memcmp(in, out, sizeof in) != 0)
            r = -EBADMSG;
    }
    weft_fd_unref(fd);
    return r;
}

static void many_connections_echo(void **state)
{
    (void)state;
    weft_runtime *rt = runtime();
    weft_fd *listener;
    char address[WEFT_ADDRESS_SIZE];
    weft_task *clients[CLIENTS];
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, &listener), 0);
    assert_true(weft_net_local(listener, address, sizeof address) > 0);
    weft_task *server = start(rt, echo_server, listener);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = start(rt, echo_client, address);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(finish(clients[i]), 0);
    assert_int_equal(echo_client(address), 0); /* a plain thread among them */
    weft_fd_close(listener);
    assert_int_equal(finish(server), CLIENTS + 1);
    weft_fd_unref(listener);
    weft_runtime_free(rt);
}

/* ---- Both directions of one socket ---- */

enum { BULK = 4 << 20 };

typedef struct stream {
    weft_fd *fd;
    size_t bytes;
} stream;

static int send_bulk(void *arg)
{
    stream *s = arg;
    unsigned char block[30000];
    size_t done = 0;
    while (done < s->bytes) {
        size_t n = s->bytes - done < sizeof block ? s->bytes - done : sizeof block;
        for (size_t i = 0; i < n; i++)
            block[i] = (unsigned char)((done + i) * 31 >> 3);
        int r = weft_fd_write_full(s->fd, block, n, WEFT_NEVER, NULL);
        if (r)
            return r;
        done += n;
    }
    return weft_fd_shutdown(s->fd, WEFT_SHUT_WRITE);
}

static int receive_bulk(void *arg)
{
    stream *s = arg;
    unsigned char block[17000];
    size_t done = 0;
    ssize_t n;
    while ((n = weft_fd_read(s->fd, block, sizeof block, WEFT_NEVER)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (block[i] != (unsigned char)((done + (size_t)i) * 31 >> 3))
                return -EBADMSG;
        }
        done += (size_t)n;
    }
    return n < 0 ? (int)n : done == s->bytes ? 0 : -ENODATA;
}

static void tcp_pair(weft_fd **a, weft_fd **b)
{
    weft_fd *listener;
    char address[WEFT_ADDRESS_SIZE];
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, &listener), 0);
    assert_true(weft_net_local(listener, address, sizeof address) > 0);
    assert_int_equal(weft_tcp_connect(address, weft_after(5 * WEFT_SEC), a), 0);
    assert_int_equal(weft_tcp_accept(listener, weft_after(5 * WEFT_SEC), b), 0);
    weft_fd_unref(listener);
}

static void reader_and_writer_share_a_socket(void **state)
{
    (void)state;
    weft_runtime *rt = runtime();
    for (int kind = 0; kind < 2; kind++) {
        stream a = {.bytes = BULK}, b = {.bytes = BULK};
        if (kind)
            tcp_pair(&a.fd, &b.fd);
        else
            assert_int_equal(weft_unix_pair(&a.fd, &b.fd), 0);
        weft_task *t[4] = {start(rt, send_bulk, &a), start(rt, receive_bulk, &a),
                           start(rt, send_bulk, &b), start(rt, receive_bulk, &b)};
        for (int i = 0; i < 4; i++)
            assert_int_equal(finish(t[i]), 0);
        weft_fd_unref(a.fd);
        weft_fd_unref(b.fd);
    }
    weft_runtime_free(rt);
}

/* ---- Several readers ---- */

enum { READERS = 8, BYTES = 4000 };

typedef struct crowd {
    weft_fd *fd;
    int got[READERS];
} crowd;

typedef struct member {
    crowd *crowd;
    int number;
} member;

static int take_bytes(void *arg)
{
    member *m = arg;
    char byte;
    ssize_t n;
    while ((n = weft_fd_read(m->crowd->fd, &byte, 1, WEFT_NEVER)) == 1) {
        m->crowd->got[m->number]++;
        if (byte == 'y')
            weft_yield();
    }
    return (int)n;
}

static void every_byte_finds_a_reader(void **state)
{
    (void)state;
    weft_runtime *rt = runtime();
    for (int kind = 0; kind < 2; kind++) {
        crowd c = {0};
        member m[READERS];
        weft_task *t[READERS];
        weft_fd *peer;
        if (kind)
            tcp_pair(&c.fd, &peer);
        else
            assert_int_equal(weft_unix_pair(&c.fd, &peer), 0);
        for (int i = 0; i < READERS; i++) {
            m[i] = (member){&c, i};
            t[i] = start(rt, take_bytes, &m[i]);
        }
        for (int i = 0; i < BYTES; i++) {
            char byte = i % 7 ? 'x' : 'y';
            assert_int_equal(weft_fd_write_full(peer, &byte, 1, WEFT_NEVER, NULL), 0);
            if (i % 500 == 0)
                weft_sleep(WEFT_MSEC);
        }
        weft_fd_unref(peer); /* the end must reach all of them */
        int sum = 0;
        for (int i = 0; i < READERS; i++) {
            assert_int_equal(finish(t[i]), 0);
            sum += c.got[i];
        }
        assert_int_equal(sum, BYTES);
        weft_fd_unref(c.fd);
    }
    weft_runtime_free(rt);
}

/* ---- Closing, deadlines, cancellation ---- */

static int read_one(void *arg)
{
    char byte;
    return (int)weft_fd_read(arg, &byte, 1, WEFT_NEVER);
}

static int fill(void *arg)
{
    static const char zeros[65536];
    for (;;) {
        ssize_t n = weft_fd_write(arg, zeros, sizeof zeros, WEFT_NEVER);
        if (n < 0)
            return (int)n;
    }
}

static void closing_wakes_both_directions(void **state)
{
    (void)state;
    weft_runtime *rt = runtime();
    for (int i = 0; i < 30; i++) {
        weft_fd *a, *b;
        assert_int_equal(weft_unix_pair(&a, &b), 0);
        weft_task *t[3] = {start(rt, read_one, a), start(rt, read_one, a), start(rt, fill, a)};
        if (i % 3)
            weft_sleep((i % 3) * WEFT_MSEC);
        int number = weft_fd_number(a);
        assert_int_equal(weft_fd_close(a), 0);
        for (int k = 0; k < 3; k++)
            assert_int_equal(finish(t[k]), -EPIPE);
        assert_int_equal(fcntl(number, F_GETFD), -1);
        weft_fd_unref(a);
        weft_fd_unref(b);
    }
    weft_runtime_free(rt);
}

static weft_fd *listener_of_all;

static int block_read(void *arg)
{
    return read_one(arg);
}

static int block_write(void *arg)
{
    return fill(arg);
}

static int block_accept(void *arg)
{
    (void)arg;
    weft_fd *fd;
    return weft_tcp_accept(listener_of_all, WEFT_NEVER, &fd);
}

static int block_readable(void *arg)
{
    return weft_fd_wait_readable(arg, WEFT_NEVER);
}

static int block_select(void *arg)
{
    weft_select_case cases[] = {weft_case_fd_readable(arg), weft_case_fd_readable(listener_of_all),
                                weft_case_time(WEFT_NEVER)};
    return weft_select(cases, 3, 0, WEFT_NEVER);
}

static int block_full(void *arg)
{
    char bytes[10];
    return weft_fd_read_full(arg, bytes, 10, WEFT_NEVER, NULL);
}

/* A queue that is full and never served: connect cannot finish. */
static int block_connect(void *arg)
{
    weft_fd *fds[16];
    int n = 0, r = 0;
    (void)arg;
    char path[64];
    snprintf(path, sizeof path, "@weft-full-%d", (int)getpid());
    while (n < 16 && (r = weft_unix_connect(path, WEFT_NEVER, &fds[n])) == 0)
        n++;
    while (n > 0)
        weft_fd_unref(fds[--n]);
    return r;
}

static int cancelled_before(void *arg)
{
    const weft_fn *fn = arg;
    weft_fd *a, *b;
    if (weft_unix_pair(&a, &b))
        return 1;
    weft_shield_enter();
    while (!weft_cancelled())
        weft_sleep(WEFT_MSEC);
    weft_shield_leave();
    int r = (*fn)(a);
    weft_fd_unref(a);
    weft_fd_unref(b);
    return r;
}

static void every_call_is_cancelled_before_and_within(void **state)
{
    (void)state;
    static const weft_fn calls[] = {block_read, block_write,   block_accept, block_readable,
                                    block_full, block_connect, block_select};
    weft_fd *full;
    char path[64];
    weft_listen_options one = {.backlog = 1};
    snprintf(path, sizeof path, "@weft-full-%d", (int)getpid());
    weft_runtime *rt = runtime();
    assert_int_equal(weft_unix_listen(path, &one, &full), 0);
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, &listener_of_all), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        weft_fd *a, *b;
        assert_int_equal(weft_unix_pair(&a, &b), 0);
        weft_task *within = start(rt, calls[i], a);
        weft_task *before = start(rt, cancelled_before, (void *)(uintptr_t)&calls[i]);
        weft_sleep(20 * WEFT_MSEC);
        assert_int_equal(weft_task_cancel(within), 0);
        assert_int_equal(weft_task_cancel(before), 0);
        assert_int_equal(finish(within), -ECANCELED);
        assert_int_equal(finish(before), -ECANCELED);
        weft_fd_unref(a);
        weft_fd_unref(b);
    }
    weft_fd_unref(listener_of_all);
    weft_fd_unref(full);
    weft_runtime_free(rt);
}

static int spin_and_yield(void *arg)
{
    (void)arg;
    while (weft_yield() == 0) {
    }
    return 0;
}

/* A descriptor that is readable all along never times out, however busy the workers. */
static int readable_all_along(void *arg)
{
    weft_fd *a, *b;
    char byte;
    (void)arg;
    int r = weft_unix_pair(&a, &b);
    for (int i = 0; i < 1000 && r == 0; i++) {
        if (weft_fd_write(b, "x", 1, WEFT_NEVER) != 1)
            r = 1;
        else if (i % 3 == 0) /* found by waiting */
            r = weft_fd_wait_readable(a, weft_after(50 * WEFT_MSEC));
        if (r == 0 && weft_fd_read(a, &byte, 1, weft_after(i % 2 ? 50 * WEFT_MSEC : 0)) != 1)
            r = 2;
    }
    weft_fd_unref(a);
    weft_fd_unref(b);
    return r;
}

static int slow_reader(void *arg)
{
    weft_fd *fd = arg;
    char byte;
    int late = 0;
    for (int i = 0; i < 300; i++) {
        /* Not there yet: found through the driver, between busy tasks. */
        if (weft_fd_read(fd, &byte, 1, weft_after(5 * WEFT_SEC)) != 1)
            late++;
    }
    return late;
}

static int slow_writer(void *arg)
{
    weft_fd *fd = arg;
    for (int i = 0; i < 300; i++) {
        weft_sleep(200 * WEFT_USEC);
        if (weft_fd_write(fd, "x", 1, WEFT_NEVER) != 1)
            return 1;
    }
    return 0;
}

static void busy_workers_hide_no_data(void **state)
{
    (void)state;
    weft_runtime *rt = runtime();
    weft_task *busy[200];
    weft_fd *a, *b;
    assert_int_equal(weft_unix_pair(&a, &b), 0);
    for (int i = 0; i < 200; i++)
        busy[i] = start(rt, spin_and_yield, NULL);
    weft_task *t = start(rt, readable_all_along, NULL);
    weft_task *r = start(rt, slow_reader, a);
    weft_task *w = start(rt, slow_writer, b);
    assert_int_equal(finish(t), 0);
    assert_int_equal(finish(w), 0);
    assert_int_equal(finish(r), 0);
    for (int i = 0; i < 200; i++) {
        weft_task_cancel(busy[i]);
        finish(busy[i]);
    }
    weft_fd_unref(a);
    weft_fd_unref(b);
    weft_runtime_free(rt);
}

/* ---- Buffers ---- */

enum { PENDING = 500 };

typedef struct pending {
    weft_fd *fd;
    bool by_deadline;
} pending;

static weft__a32 returned, written;

static int read_into_heap(void *arg)
{
    pending *p = arg;
    char *buffer = malloc(512);
    memset(buffer, 1, 512);
    ssize_t n =
        weft_fd_read(p->fd, buffer, 512, p->by_deadline ? weft_after(10 * WEFT_MSEC) : WEFT_NEVER);
    free(buffer);
    char *again = malloc(512);
    memset(again, 0x5a, 512);
    atom_add_ar(&returned, 1u);
    weft_shield_enter();
    while (!atom_load_acq(&written))
        weft_sleep(WEFT_MSEC);
    weft_shield_leave();
    int r = n == (p->by_deadline ? -ETIMEDOUT : -ECANCELED) ? 0 : 1;
    for (int i = 0; i < 512; i++)
        r |= again[i] != 0x5a;
    free(again);
    return r;
}

static void a_buffer_is_the_callers_after_any_return(void **state)
{
    (void)state;
    weft_runtime *rt = runtime();
    static pending p[PENDING];
    static weft_fd *peers[PENDING];
    static weft_task *t[PENDING];
    atom_store_rlx(&returned, 0u);
    atom_store_rlx(&written, 0u);
    for (int i = 0; i < PENDING; i++) {
        assert_int_equal(weft_unix_pair(&p[i].fd, &peers[i]), 0);
        p[i].by_deadline = i % 2;
        t[i] = start(rt, read_into_heap, &p[i]);
    }
    weft_sleep(20 * WEFT_MSEC);
    for (int i = 0; i < PENDING; i += 2)
        weft_task_cancel(t[i]);
    weft_time limit = weft_after(20 * WEFT_SEC);
    while (atom_load_acq(&returned) < PENDING && weft_now() < limit)
        weft_sleep(WEFT_MSEC);
    for (int i = 0; i < PENDING; i++)
        assert_int_equal(weft_fd_write(peers[i], "late bytes", 10, WEFT_TRY), 10);
    atom_store_rel(&written, 1u);
    for (int i = 0; i < PENDING; i++) {
        assert_int_equal(finish(t[i]), 0);
        weft_fd_unref(p[i].fd);
        weft_fd_unref(peers[i]);
    }
    weft_runtime_free(rt);
}

/* ---- Several runtimes ---- */

static void a_handle_moves_between_runtimes(void **state)
{
    (void)state;
    weft_fd *a, *b;
    assert_int_equal(weft_unix_pair(&a, &b), 0);
    for (int i = 0; i < 10; i++) { /* its first driver is gone each time */
        weft_runtime *rt = runtime(), *other = runtime();
        weft_task *t = start(rt, read_one, a);
        weft_sleep(2 * WEFT_MSEC);
        weft_task *u = start(other, read_one, a); /* waits through the first one's driver */
        weft_sleep(2 * WEFT_MSEC);
        assert_int_equal(weft_fd_write_full(b, "xy", 2, WEFT_NEVER, NULL), 0);
        assert_int_equal(finish(t), 1);
        assert_int_equal(finish(u), 1);
        u = start(other, read_one, a);
        weft_sleep(2 * WEFT_MSEC);
        weft_runtime_free(rt); /* under a waiter of another runtime */
        assert_int_equal(weft_fd_write_full(b, "x", 1, WEFT_NEVER, NULL), 0);
        assert_int_equal(finish(u), 1);
        weft_runtime_free(other);
    }
    weft_fd_unref(a);
    weft_fd_unref(b);
}

static int choose(void **state)
{
    const char *how = *state;
    if (how[0] == 'p')
        setenv("WEFT_DRIVER", "poll", 1);
    else
        unsetenv("WEFT_DRIVER");
    workers = (unsigned)(how[1] - '0');
    return 0;
}

int main(int argc, char **argv)
{
    static char how[4][3] = {"e1", "e3", "p1", "p3"};
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &files);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    int failed = 0;
    for (int i = 0; i < 4; i++) {
        if (argc > 1 && strcmp(argv[1], how[i]) != 0)
            continue;
        const struct CMUnitTest tests[] = {
            {"many_connections_echo", many_connections_echo, choose, NULL, how[i]},
            {"reader_and_writer", reader_and_writer_share_a_socket, choose, NULL, how[i]},
            {"every_byte_finds_a_reader", every_byte_finds_a_reader, choose, NULL, how[i]},
            {"closing_wakes", closing_wakes_both_directions, choose, NULL, how[i]},
            {"every_call_is_cancelled", every_call_is_cancelled_before_and_within, choose, NULL,
             how[i]},
            {"busy_workers_hide_no_data", busy_workers_hide_no_data, choose, NULL, how[i]},
            {"a_buffer_is_the_callers", a_buffer_is_the_callers_after_any_return, choose, NULL,
             how[i]},
            {"a_handle_moves", a_handle_moves_between_runtimes, choose, NULL, how[i]},
        };
        failed += cmocka_run_group_tests_name(how[i], tests, NULL, NULL);
    }
    return failed;
}

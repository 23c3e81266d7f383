/* Handles on plain threads: what each call returns, deadlines, closing, SIGPIPE,
 * addresses, sockets. */
#include "unit_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/addr.h"
#include "io/fd.h"
#include "weft/net.h"

static void pair(weft_fd **a, weft_fd **b)
{
    assert_int_equal(weft_unix_pair(a, b), 0);
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

static void bad_input_is_refused(void **state)
{
    (void)state;
    weft_fd *fd = (weft_fd *)state, *a, *b;
    weft_fd *same = fd;
    char byte[1];
    struct iovec piece = {byte, 1};
    int blocking[2];
    assert_int_equal(pipe(blocking), 0);
    assert_int_equal(weft_fd_wrap(-1, 0, &fd), -EBADF);
    assert_int_equal(weft_fd_wrap(12345, 0, &fd), -EBADF);
    assert_int_equal(weft_fd_wrap(blocking[0], 0, &fd), -EINVAL);
    assert_int_equal(weft_fd_wrap(blocking[0], 64, &fd), -EINVAL);
    assert_int_equal(weft_fd_wrap(blocking[0], WEFT_FD_NONBLOCK, NULL), -EINVAL);
    assert_ptr_equal(fd, same);
    assert_int_equal(weft_fd_wrap(blocking[0], WEFT_FD_NONBLOCK | WEFT_FD_BORROW, &fd), 0);
    assert_true(fcntl(blocking[0], F_GETFL) & O_NONBLOCK);
    weft_fd_unref(fd);
    assert_true(fcntl(blocking[0], F_GETFD) >= 0);
    close(blocking[0]);
    close(blocking[1]);

    assert_int_equal(weft_fd_read(NULL, byte, 1, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_write(NULL, byte, 1, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_wait_readable(NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_wait_writable(NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_close(NULL), -EINVAL);
    assert_int_equal(weft_fd_number(NULL), -EINVAL);
    assert_int_equal(weft_fd_shutdown(NULL, WEFT_SHUT_BOTH), -EINVAL);
    assert_null(weft_fd_unref(NULL));
    assert_null(weft_fd_ref(NULL));
    pair(&a, &b);
    assert_int_equal(weft_fd_read(a, NULL, 1, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_write(a, NULL, 1, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_read_full(a, NULL, 1, WEFT_TRY, NULL), -EINVAL);
    assert_int_equal(weft_fd_write_full(a, NULL, 1, WEFT_TRY, NULL), -EINVAL);
    assert_int_equal(weft_fd_readv(a, &piece, 0, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_readv(a, &piece, 1025, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_writev(a, NULL, 1, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_sendfile(a, -1, 0, 1, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_fd_shutdown(a, 7), -EINVAL);
    assert_int_equal(weft_fd_read(a, NULL, 0, WEFT_TRY), 0);
    assert_int_equal(weft_fd_write(a, NULL, 0, WEFT_TRY), 0);
    weft_fd_unref(a);
    weft_fd_unref(b);
}

static void bytes_go_through(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        weft_fd *a, *b;
        char got[64] = "";
        size_t done = 99;
        if (kind)
            tcp_pair(&a, &b);
        else
            pair(&a, &b);
        weft_time limit = weft_after(5 * WEFT_SEC);
        assert_int_equal(weft_fd_write_full(a, "hello, world", 12, limit, &done), 0);
        assert_int_equal(done, 12);
        assert_int_equal(weft_fd_read_full(b, got, 12, limit, &done), 0);
        assert_memory_equal(got, "hello, world", 12);
        struct iovec out[3] = {
            {(char *)(uintptr_t) "ab", 2}, {NULL, 0}, {(char *)(uintptr_t) "cde", 3}};
        struct iovec in[2] = {{got, 4}, {got + 10, 10}};
        assert_int_equal(weft_fd_writev(a, out, 3, limit), 5);
        assert_int_equal(weft_fd_readv(b, in, 2, limit), 5);
        assert_memory_equal(got, "abcd", 4);
        assert_int_equal(got[10], 'e');
        assert_int_equal(weft_fd_read(b, got, 1, WEFT_TRY), -EAGAIN);
        assert_int_equal(weft_fd_write(a, "xyz", 3, limit), 3);
        assert_int_equal(weft_fd_wait_readable(b, limit), 0);
        assert_int_equal(weft_fd_wait_writable(b, limit), 0);
        assert_int_equal(weft_fd_shutdown(a, WEFT_SHUT_WRITE), 0);
        assert_int_equal(weft_fd_read_full(b, got, 5, limit, &done), -ENODATA);
        assert_int_equal(done, 3);
        assert_int_equal(weft_fd_read(b, got, 5, limit), 0);
        weft_fd_unref(a);
        weft_fd_unref(b);
    }
}

static void deadlines_wait_but_never_hide_data(void **state)
{
    (void)state;
    weft_fd *a, *b;
    char byte[1];
    pair(&a, &b);
    weft_time start = weft_now();
    assert_int_equal(weft_fd_read(a, byte, 1, weft_after(10 * WEFT_MSEC)), -ETIMEDOUT);
    assert_true(weft_now() - start >= 10 * WEFT_MSEC);
    assert_int_equal(weft_fd_wait_readable(a, weft_after(1)), -ETIMEDOUT);
    assert_int_equal(weft_fd_wait_readable(a, WEFT_TRY), -EAGAIN);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(weft_fd_write(b, "x", 1, WEFT_TRY), 1);
        weft_time passed = i % 3 ? weft_now() : i % 2 ? 0 : weft_now() - WEFT_SEC;
        assert_int_equal(weft_fd_wait_readable(a, passed), 0);
        assert_int_equal(weft_fd_read(a, byte, 1, passed), 1);
        assert_int_equal(weft_fd_read(a, byte, 1, passed), -ETIMEDOUT);
    }
    weft_fd_unref(a);
    weft_fd_unref(b);
}

typedef struct call {
    weft_fd *fd;
    int result;
} call;

static void *read_for_ever(void *arg)
{
    call *c = arg;
    char byte[1];
    c->result = (int)weft_fd_read(c->fd, byte, 1, WEFT_NEVER);
    return NULL;
}

static void closing_wakes_threads_and_frees_the_number(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        weft_fd *a, *b;
        pthread_t t[3];
        call c[3];
        char byte[1];
        pair(&a, &b);
        int number = weft_fd_number(a);
        for (int k = 0; k < 3; k++) {
            c[k] = (call){a, 0};
            assert_int_equal(pthread_create(&t[k], NULL, read_for_ever, &c[k]), 0);
        }
        if (i % 2)
            weft__sleep(weft_after(1 * WEFT_MSEC));
        assert_int_equal(weft_fd_close(a), 0);
        for (int k = 0; k < 3; k++) {
            pthread_join(t[k], NULL);
            assert_int_equal(c[k].result, -EPIPE);
        }
        assert_int_equal(fcntl(number, F_GETFD), -1);
        assert_int_equal(weft_fd_close(a), -EPIPE);
        assert_int_equal(weft_fd_number(a), -EPIPE);
        assert_int_equal(weft_fd_read(a, byte, 1, WEFT_TRY), -EPIPE);
        assert_int_equal(weft_fd_read(a, byte, 0, WEFT_TRY), -EPIPE);
        assert_int_equal(weft_fd_write(a, byte, 1, WEFT_NEVER), -EPIPE);
        assert_int_equal(weft_fd_wait_writable(a, WEFT_NEVER), -EPIPE);
        weft_fd_unref(a);
        weft_fd_unref(b);
    }
}

/* The default action of SIGPIPE is in force: a signal would end the test. */
static void a_broken_pipe_is_an_error_not_a_signal(void **state)
{
    (void)state;
    weft_fd *a, *b;
    struct iovec piece = {(char *)(uintptr_t) "x", 1};
    signal(SIGPIPE, SIG_DFL);
    pair(&a, &b);
    weft_fd_unref(b);
    assert_int_equal(weft_fd_write(a, "x", 1, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_fd_writev(a, &piece, 1, WEFT_NEVER), -EPIPE);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(weft_fd_sendfile(a, file, 0, 100, WEFT_NEVER), -EPIPE);
    close(file);
    weft_fd_unref(a);

    int fds[2];
    sigset_t pending;
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(weft_fd_wrap(fds[1], 0, &a), 0);
    close(fds[0]);
    assert_int_equal(weft_fd_write(a, "x", 1, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_fd_writev(a, &piece, 1, WEFT_NEVER), -EPIPE);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    weft_fd_unref(a);
}

static void other_kinds_of_descriptors_work(void **state)
{
    (void)state;
    weft_fd *fd;
    uint64_t value = 3;
    assert_int_equal(weft_fd_wrap(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), 0, &fd), 0);
    assert_int_equal(weft_fd_read(fd, &value, sizeof value, weft_after(1)), -ETIMEDOUT);
    assert_int_equal(weft_fd_write(fd, &value, sizeof value, WEFT_NEVER), sizeof value);
    value = 0;
    assert_int_equal(weft_fd_read(fd, &value, sizeof value, WEFT_NEVER), sizeof value);
    assert_int_equal(value, 3);
    weft_fd_unref(fd);

    int file = open("/proc/self/exe", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char magic[4];
    assert_int_equal(weft_fd_wrap(file, 0, &fd), 0);
    assert_int_equal(weft_fd_wait_readable(fd, WEFT_NEVER), 0);
    assert_int_equal(weft_fd_read(fd, magic, 4, WEFT_NEVER), 4);
    assert_memory_equal(magic, "\177ELF", 4);
    weft_fd *a, *b;
    tcp_pair(&a, &b);
    assert_int_equal(weft_fd_sendfile(a, file, 0, 4, WEFT_NEVER), 4);
    memset(magic, 0, 4);
    assert_int_equal(weft_fd_read_full(b, magic, 4, WEFT_NEVER, NULL), 0);
    assert_memory_equal(magic, "\177ELF", 4);
    weft_fd_unref(a);
    weft_fd_unref(b);
    weft_fd_unref(fd);
}

static void addresses_are_read_and_written(void **state)
{
    (void)state;
    static const char *const good[] = {"127.0.0.1:80", "0.0.0.0:0", "255.1.2.3:65535",
                                       "[::1]:8080",   "[::]:1",    "[fe80::1%lo]:7"};
    static const char *const bad[] = {"",
                                      ":",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "1.2.3:80",
                                      "[::1:80",
                                      "::1]:80",
                                      "[]:80",
                                      "localhost:80",
                                      "127.0.0.1:8o",
                                      "[::1%no]:",
                                      "[1.2.3.4]:",
                                      "127.0.0.1: 1",
                                      "127.0.0.1:1 ",
                                      "[",
                                      "[:1",
                                      "[::1]x:80",
                                      "a:b:c",
                                      "::1:80",
                                      "127.0.0.1:99999999999999999999"};
    weft__addr a;
    char text[WEFT_ADDRESS_SIZE];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(weft__addr_tcp(good[i], &a), 0);
        assert_int_equal(weft__addr_text(&a, text, sizeof text), strlen(good[i]));
        assert_string_equal(text, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(weft__addr_tcp(bad[i], &a), -EINVAL);
    assert_int_equal(weft__addr_tcp(NULL, &a), -EINVAL);
    char huge[300];
    memset(huge, '1', sizeof huge);
    memcpy(huge + sizeof huge - 4, ":80", 4);
    assert_int_equal(weft__addr_tcp(huge, &a), -EINVAL);
    assert_int_equal(weft__addr_tcp(":80", &a), 0);
    assert_int_equal(weft__addr_text(&a, text, 3), -ENOSPC);

    assert_int_equal(weft__addr_unix("/tmp/x", &a), 0);
    assert_int_equal(weft__addr_text(&a, text, sizeof text), 6);
    assert_string_equal(text, "/tmp/x");
    assert_int_equal(weft__addr_unix("@abc", &a), 0);
    assert_int_equal(weft__addr_text(&a, text, sizeof text), 4);
    assert_string_equal(text, "@abc");
    assert_int_equal(weft__addr_unix("", &a), -EINVAL);
    assert_int_equal(weft__addr_unix("@", &a), -EINVAL);
    assert_int_equal(weft__addr_unix(NULL, &a), -EINVAL);
    assert_int_equal(weft__addr_unix(huge, &a), -ENAMETOOLONG);
    memset(huge, 'p', 108);
    huge[108] = '\0';
    assert_int_equal(weft__addr_unix(huge, &a), -ENAMETOOLONG);
    huge[107] = '\0';
    assert_int_equal(weft__addr_unix(huge, &a), 0);
}

static void sockets_connect_or_say_why_not(void **state)
{
    (void)state;
    weft_fd *l, *other, *a, *b;
    char address[WEFT_ADDRESS_SIZE], peer[WEFT_ADDRESS_SIZE];
    weft_listen_options bad = {.backlog = -1};
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", &bad, &l), -EINVAL);
    bad = (weft_listen_options){.flags = 64};
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", &bad, &l), -EINVAL);
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, NULL), -EINVAL);
    assert_int_equal(weft_tcp_connect("127.0.0.1:1", WEFT_NEVER, NULL), -EINVAL);
    assert_int_equal(weft_tcp_accept(NULL, WEFT_TRY, &a), -EINVAL);

    assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, &l), 0);
    assert_true(weft_net_local(l, address, sizeof address) > 0);
    assert_int_equal(weft_tcp_listen(address, NULL, &other), -EADDRINUSE);
    assert_int_equal(weft_tcp_accept(l, WEFT_TRY, &a), -EAGAIN);
    assert_int_equal(weft_tcp_accept(l, weft_after(1000), &a), -ETIMEDOUT);
    assert_int_equal(weft_tcp_connect(address, weft_after(5 * WEFT_SEC), &a), 0);
    assert_int_equal(weft_tcp_accept(l, weft_after(5 * WEFT_SEC), &b), 0);
    assert_true(weft_net_peer(a, peer, sizeof peer) > 0);
    assert_string_equal(peer, address);
    assert_true(weft_net_local(a, address, sizeof address) > 0);
    assert_true(weft_net_peer(b, peer, sizeof peer) > 0);
    assert_string_equal(peer, address);
    int on = 0;
    socklen_t size = sizeof on;
    assert_int_equal(getsockopt(b->number, 6, 1, &on, &size), 0); /* TCP_NODELAY, inherited */
    assert_int_equal(on, 1);
    assert_int_equal(weft_net_nodelay(b, false), 0);
    assert_int_equal(getsockopt(b->number, 6, 1, &on, &size), 0);
    assert_int_equal(on, 0);
    assert_true(fcntl(b->number, F_GETFD) & FD_CLOEXEC);
    weft_fd_unref(a);
    weft_fd_unref(b);
    assert_true(weft_net_local(l, address, sizeof address) > 0);
    weft_fd_unref(l);
    assert_int_equal(weft_tcp_connect(address, weft_after(5 * WEFT_SEC), &a), -ECONNREFUSED);

    weft_listen_options shared = {.flags = WEFT_REUSEPORT};
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", &shared, &l), 0);
    assert_true(weft_net_local(l, address, sizeof address) > 0);
    assert_int_equal(weft_tcp_listen(address, &shared, &other), 0);
    weft_fd_unref(l);
    weft_fd_unref(other);
}

static void unix_sockets_connect_or_say_why_not(void **state)
{
    (void)state;
    weft_fd *l, *a, *b, *more[4];
    char path[64], text[WEFT_ADDRESS_SIZE];
    snprintf(path, sizeof path, "@weft-test-%d", (int)getpid());
    assert_int_equal(weft_unix_connect(path, WEFT_NEVER, &a), -ECONNREFUSED);
    weft_listen_options one = {.backlog = 1};
    assert_int_equal(weft_unix_listen(path, &one, &l), 0);
    assert_int_equal(weft_unix_listen(path, &one, &a), -EADDRINUSE);
    assert_int_equal(weft_unix_connect(path, weft_after(5 * WEFT_SEC), &a), 0);
    assert_int_equal(weft_unix_accept(l, weft_after(5 * WEFT_SEC), &b), 0);
    assert_int_equal(weft_net_peer(a, text, sizeof text), strlen(path));
    assert_string_equal(text, path);
    assert_int_equal(weft_net_local(a, text, sizeof text), 0);
    int queued = 0, r = 0; /* fill the queue, then the connect must give up in time */
    while (queued < 4 &&
           (r = weft_unix_connect(path, weft_after(30 * WEFT_MSEC), &more[queued])) == 0)
        queued++;
    assert_int_equal(r, -ETIMEDOUT);
    assert_int_equal(weft_unix_connect(path, WEFT_TRY, &more[queued]), -EAGAIN);
    while (queued > 0)
        weft_fd_unref(more[--queued]);
    weft_fd_unref(a);
    weft_fd_unref(b);
    weft_fd_unref(l);
    char file[64];
    snprintf(file, sizeof file, "/tmp/weft-test-%d.sock", (int)getpid());
    assert_int_equal(weft_unix_connect(file, WEFT_NEVER, &a), -ENOENT);
    assert_int_equal(weft_unix_listen(file, NULL, &l), 0);
    assert_int_equal(weft_unix_connect(file, WEFT_NEVER, &a), 0);
    weft_fd_unref(a);
    weft_fd_unref(l);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(bytes_go_through),
        cmocka_unit_test(deadlines_wait_but_never_hide_data),
        cmocka_unit_test(closing_wakes_threads_and_frees_the_number),
        cmocka_unit_test(a_broken_pipe_is_an_error_not_a_signal),
        cmocka_unit_test(other_kinds_of_descriptors_work),
        cmocka_unit_test(addresses_are_read_and_written),
        cmocka_unit_test(sockets_connect_or_say_why_not),
        cmocka_unit_test(unix_sockets_connect_or_say_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * rw.c -- the calls of weft/io.h that move bytes, each as one system call to try and
 * the loop of fd.c around it.
 *
 * SIGPIPE: on sockets MSG_NOSIGNAL prevents it. Elsewhere (pipes, sendfile) it is
 * blocked for the length of the call, and if the call has raised one that was not
 * pending before, it is taken out again (POSIX, "sigtimedwait"; the method of
 * M. Kerrisk, "The Linux Programming Interface", 2010). The program's own handling
 * of the signal is never changed.
 */
#include "io/fd.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PIECES = 1024 };

typedef struct transfer {
    bool socket;
    void *buffer;
    const void *data;
    size_t size;
    const struct iovec *pieces;
    int count;
    int file;
    off_t offset;
} transfer;

typedef struct quiet {
    sigset_t before;
    bool blocked, pending;
} quiet;

static void quiet_begin(quiet *q)
{
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &q->before);
    q->blocked = sigismember(&q->before, SIGPIPE) == 1;
    q->pending = false;
    if (q->blocked) { /* else a pending one would have been delivered */
        sigset_t pending;
        sigpending(&pending);
        q->pending = sigismember(&pending, SIGPIPE) == 1;
    }
}

static void quiet_end(const quiet *q, ssize_t result)
{
    if (result == -EPIPE && !q->pending) {
        sigset_t pipe_only;
        sigemptyset(&pipe_only);
        sigaddset(&pipe_only, SIGPIPE);
        struct timespec zero = {0, 0};
        while (sigtimedwait(&pipe_only, NULL, &zero) < 0 && errno == EINTR) {
        }
    }
    if (!q->blocked)
        pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

/* A system call that EINTR does not end; -EWOULDBLOCK is -EAGAIN on Linux. */
#define CALL(expression)                                                                           \
    __extension__({                                                                                \
        ssize_t n_;                                                                                \
        do                                                                                         \
            n_ = (expression);                                                                     \
        while (n_ < 0 && errno == EINTR);                                                          \
        n_ < 0 ? -(ssize_t)errno : n_;                                                             \
    })

static ssize_t call_read(int number, void *args)
{
    const transfer *t = args;
    return t->socket ? CALL(recv(number, t->buffer, t->size, 0))
                     : CALL(read(number, t->buffer, t->size));
}

static ssize_t call_readv(int number, void *args)
{
    const transfer *t = args;
    return CALL(readv(number, t->pieces, t->count));
}

static ssize_t call_write(int number, void *args)
{
    const transfer *t = args;
    if (t->socket)
        return CALL(send(number, t->data, t->size, MSG_NOSIGNAL));
    quiet q;
    quiet_begin(&q);
    ssize_t n = CALL(write(number, t->data, t->size));
    quiet_end(&q, n);
    return n;
}

static ssize_t call_writev(int number, void *args)
{
    const transfer *t = args;
    if (t->socket) {
        struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)t->pieces,
                           .msg_iovlen = (size_t)t->count};
        return CALL(sendmsg(number, &m, MSG_NOSIGNAL));
    }
    quiet q;
    quiet_begin(&q);
    ssize_t n = CALL(writev(number, t->pieces, t->count));
    quiet_end(&q, n);
    return n;
}

static ssize_t call_sendfile(int number, void *args)
{
    transfer *t = args;
    quiet q;
    quiet_begin(&q);
    off_t offset = t->offset;
    ssize_t n = CALL(sendfile(number, t->file, &offset, t->size));
    quiet_end(&q, n);
    return n;
}

static ssize_t call_poll(int number, void *args)
{
    struct pollfd p = {.fd = number, .events = *(const short *)args};
    ssize_t n = CALL(poll(&p, 1, 0));
    return n < 0 ? n : p.revents ? 0 : -EAGAIN;
}

/* The kernel moves at most this many bytes in one call. */
static size_t clamp(size_t size)
{
    return size < 0x7ffff000u ? size : 0x7ffff000u;
}

static bool is_socket(const weft_fd *fd)
{
    return fd->flags & WEFT__FD_SOCKET;
}

/* Size 0 moves nothing, yet says whether the handle is closed. */
static ssize_t nothing(const weft_fd *fd)
{
    int number = weft_fd_number(fd);
    return number < 0 ? number : 0;
}

ssize_t weft_fd_read(weft_fd *fd, void *buffer, size_t size, weft_time deadline)
{
    if (!fd || (!buffer && size))
        return -EINVAL;
    if (size == 0)
        return nothing(fd);
    transfer t = {.socket = is_socket(fd), .buffer = buffer, .size = clamp(size)};
    return weft__fd_run(fd, WEFT__READ, call_read, &t, t.size, deadline);
}

ssize_t weft_fd_write(weft_fd *fd, const void *data, size_t size, weft_time deadline)
{
    if (!fd || (!data && size))
        return -EINVAL;
    if (size == 0)
        return nothing(fd);
    transfer t = {.socket = is_socket(fd), .data = data, .size = clamp(size)};
    return weft__fd_run(fd, WEFT__WRITE, call_write, &t, 0, deadline);
}

/* The bytes of all pieces, clamped. */
static size_t total(const struct iovec *pieces, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        sum = clamp(sum + clamp(pieces[i].iov_len));
    return sum;
}

ssize_t weft_fd_readv(weft_fd *fd, const struct iovec *pieces, int count, weft_time deadline)
{
    if (!fd || !pieces || count < 1 || count > MAX_PIECES)
        return -EINVAL;
    size_t sum = total(pieces, count);
    if (sum == 0)
        return nothing(fd);
    transfer t = {.pieces = pieces, .count = count};
    return weft__fd_run(fd, WEFT__READ, call_readv, &t, sum, deadline);
}

ssize_t weft_fd_writev(weft_fd *fd, const struct iovec *pieces, int count, weft_time deadline)
{
    if (!fd || !pieces || count < 1 || count > MAX_PIECES)
        return -EINVAL;
    if (total(pieces, count) == 0)
        return nothing(fd);
    transfer t = {.socket = is_socket(fd), .pieces = pieces, .count = count};
    return weft__fd_run(fd, WEFT__WRITE, call_writev, &t, 0, deadline);
}

ssize_t weft_fd_sendfile(weft_fd *fd, int file, off_t offset, size_t size, weft_time deadline)
{
    if (!fd || file < 0 || offset < 0)
        return -EINVAL;
    if (size == 0)
        return nothing(fd);
    transfer t = {.file = file, .offset = offset, .size = clamp(size)};
    return weft__fd_run(fd, WEFT__WRITE, call_sendfile, &t, 0, deadline);
}

int weft_fd_read_full(weft_fd *fd, void *buffer, size_t size, weft_time deadline, size_t *ret_done)
{
    size_t done = 0;
    ssize_t n = buffer && size ? 0 : weft_fd_read(fd, buffer, size, deadline);
    while (n >= 0 && done < size) {
        n = weft_fd_read(fd, (char *)buffer + done, size - done, deadline);
        if (n == 0)
            n = -ENODATA;
        if (n < 0)
            break;
        done += (size_t)n;
    }
    if (ret_done)
        *ret_done = done;
    return n < 0 ? (int)n : 0;
}

int weft_fd_write_full(weft_fd *fd, const void *data, size_t size, weft_time deadline,
                       size_t *ret_done)
{
    size_t done = 0;
    ssize_t n = data && size ? 0 : weft_fd_write(fd, data, size, deadline);
    while (n >= 0 && done < size) {
        n = weft_fd_write(fd, (const char *)data + done, size - done, deadline);
        if (n < 0)
            break;
        done += (size_t)n;
    }
    if (ret_done)
        *ret_done = done;
    return n < 0 ? (int)n : 0;
}

int weft_fd_wait_readable(weft_fd *fd, weft_time deadline)
{
    if (!fd)
        return -EINVAL;
    short events = POLLIN;
    return (int)weft__fd_run(fd, WEFT__READ, call_poll, &events, 0, deadline);
}

int weft_fd_wait_writable(weft_fd *fd, weft_time deadline)
{
    if (!fd)
        return -EINVAL;
    short events = POLLOUT;
    return (int)weft__fd_run(fd, WEFT__WRITE, call_poll, &events, 0, deadline);
}

static ssize_t call_shutdown(int number, void *args)
{
    return shutdown(number, *(const int *)args) ? -errno : 0;
}

int weft_fd_shutdown(weft_fd *fd, int how)
{
    if (!fd || how < WEFT_SHUT_READ || how > WEFT_SHUT_BOTH)
        return -EINVAL;
    return (int)weft__fd_run(fd, how == WEFT_SHUT_READ ? WEFT__READ : WEFT__WRITE, call_shutdown,
                             &how, 0, WEFT_TRY);
}

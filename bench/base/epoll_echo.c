/* SPDX-License-Identifier: MIT
 *
 * epoll_echo.c -- the baseline of `echo`: a single-threaded server on epoll, as lean as
 * one can be while it serves any number of connections. Level-triggered, one read for
 * an event: a message costs a read, a write and its share of one epoll_wait. An answer
 * that does not fit (64 bytes always do) would be waited for; here it ends the
 * connection.
 */
#include "base/epoll_echo.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH = 256 };

static void accept_all(int epoll, int listener)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int on = 1;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e))
            close(fd);
    }
}

static void echo(int fd)
{
    char bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n > 0 && send(fd, bytes, (size_t)n, MSG_NOSIGNAL) == n)
        return;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    close(fd); /* leaves the epoll set by itself */
}

_Noreturn void base_epoll_echo(int listener)
{
    struct epoll_event events[BATCH], e = {.events = EPOLLIN, .data.fd = listener};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e))
        abort();
    for (;;) {
        int n = epoll_wait(epoll, events, BATCH, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(epoll, listener);
            else
                echo(events[i].data.fd);
        }
    }
}

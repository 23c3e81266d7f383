/* SPDX-License-Identifier: MIT
 *
 * signal.c -- see signal.h.
 */
#include "bgworker/signal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/eventfd.h>
#endif

/* ---- The two kinds ---- */

static int pair_open(weft_descriptor_kind kind, weft__fd_pair *ret)
{
#ifdef __linux__
    if (kind == WEFT_DESCRIPTOR_EVENTFD) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            return -errno;
        *ret = (weft__fd_pair){fd, fd};
        return 0;
    }
#endif
    (void)kind;
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        fcntl(fds[i], F_SETFD, FD_CLOEXEC);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    *ret = (weft__fd_pair){fds[0], fds[1]};
    return 0;
}

static void pair_close(weft__fd_pair pair)
{
    close(pair.fd);
    if (pair.wfd != pair.fd)
        close(pair.wfd);
}

/* One token is eight bytes for both kinds, so that they share the code. */
void weft__signal_write(const weft__signal *s)
{
    uint64_t one = 1;
    ssize_t n;
    do
        n = s->wfd == s->fd ? write(s->wfd, &one, sizeof one)
                            : send(s->wfd, &one, sizeof one, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    WEFT__CHECK(n == (ssize_t)sizeof one); /* there is room: one token at most is in it */
}

bool weft__signal_drain(const weft__signal *s)
{
    uint64_t token;
    ssize_t n;
    do
        n = read(s->fd, &token, sizeof token);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof token;
}

/* ---- The pool ---- */

int weft__fd_pool_init(weft__fd_pool *pool, weft_descriptor_kind kind, unsigned limit)
{
    *pool = (weft__fd_pool){.limit = limit};
#ifdef __linux__
    pool->kind = kind == WEFT_DESCRIPTOR_AUTO ? WEFT_DESCRIPTOR_EVENTFD : kind;
#else
    pool->kind = WEFT_DESCRIPTOR_SOCKETPAIR;
    if (kind == WEFT_DESCRIPTOR_EVENTFD)
        return -ENOTSUP;
#endif
    pool->pairs = weft__calloc(limit, sizeof *pool->pairs);
    return pool->pairs ? 0 : -ENOMEM;
}

void weft__fd_pool_fini(weft__fd_pool *pool)
{
    while (pool->idle > 0)
        pair_close(pool->pairs[--pool->idle]);
    weft__free(pool->pairs);
    pool->pairs = NULL;
}

int weft__fd_pool_get(weft__fd_pool *pool, weft__fd_pair *ret)
{
    weft__acquire(&pool->lock);
    bool found = pool->idle > 0;
    if (found)
        *ret = pool->pairs[--pool->idle];
    weft__release(&pool->lock);
    if (!found) {
        int r = pair_open(pool->kind, ret);
        if (r)
            return r;
        atom_add_rlx(&pool->made, 1u);
    }
    atom_add_rlx(&pool->lent, 1u);
    return 0;
}

void weft__fd_pool_put(weft__fd_pool *pool, weft__fd_pair pair)
{
    atom_sub_rlx(&pool->lent, 1u);
    weft__acquire(&pool->lock);
    bool kept = pool->idle < pool->limit;
    if (kept)
        pool->pairs[pool->idle++] = pair;
    weft__release(&pool->lock);
    if (!kept)
        pair_close(pair);
}

/* ---- Signals ---- */

int weft__signal_open(weft__signal *s, weft__fd_pool *pool, weft__lock *owner)
{
    weft__fd_pair pair;
    int r = weft__fd_pool_get(pool, &pair);
    if (r)
        return r;
    weft__acquire(owner);
    bool mine = !s->made;
    if (mine) {
        s->fd = pair.fd;
        s->wfd = pair.wfd;
        s->up = false;
        s->made = true;
    }
    weft__release(owner);
    if (!mine)
        weft__fd_pool_put(pool, pair);
    return 0;
}

void weft__signal_close(weft__signal *s, weft__fd_pool *pool)
{
    if (!s->made)
        return;
    if (s->up) {
        bool drained = weft__signal_drain(s);
        WEFT__CHECK(drained); /* every raiser has written: the owner had no users left */
    }
    weft__fd_pool_put(pool, (weft__fd_pair){s->fd, s->wfd});
    s->made = s->up = false; /* the memory may be a signal again */
}

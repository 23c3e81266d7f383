/* SPDX-License-Identifier: MIT
 *
 * net.c -- sockets; contract in weft/net.h.
 *
 * connect: the call starts it, writability ends it, SO_ERROR says how. accept: errors
 * of the connection that was to be accepted are no errors of the listener (accept(2));
 * errors of the process, no descriptors or no memory, go to the caller after a pause
 * that doubles, for the listener stays readable all the time.
 */
#include "weft/net.h"

#include "io/addr.h"
#include "io/fd.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

enum { PAUSE_MAX_MS = 100, UNIX_RETRY_MAX_MS = 20 };

static int set_int(int number, int level, int option, int value)
{
    return setsockopt(number, level, option, &value, sizeof value) ? -errno : 0;
}

/* ---- Listen ---- */

static int open_socket(int family, int *ret)
{
    int number = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (number < 0)
        return -errno;
    *ret = number;
    return 0;
}

static uint32_t kind_of(int family)
{
    return family == AF_UNIX ? WEFT__FD_SOCKET : WEFT__FD_SOCKET | WEFT__FD_STREAM;
}

/* The options of a TCP listener; accepted sockets inherit TCP_NODELAY. */
static int prepare_listener(int number, int family, unsigned flags)
{
    int r = set_int(number, SOL_SOCKET, SO_REUSEADDR, 1);
    if (r == 0)
        r = set_int(number, IPPROTO_TCP, TCP_NODELAY, 1);
    if (r == 0 && flags & WEFT_REUSEPORT)
        r = set_int(number, SOL_SOCKET, SO_REUSEPORT, 1);
    if (r == 0 && family == AF_INET6)
        r = set_int(number, IPPROTO_IPV6, IPV6_V6ONLY, (flags & WEFT_V6ONLY) != 0);
    return r;
}

static int listen_on(const weft__addr *a, const weft_listen_options *options, weft_fd **ret)
{
    weft_listen_options defaults = {0};
    const weft_listen_options *o = options ? options : &defaults;
    int family = a->u.any.sa_family, number = -1;
    int r = open_socket(family, &number);
    if (r)
        return r;
    if (family != AF_UNIX)
        r = prepare_listener(number, family, o->flags);
    if (r == 0 &&
        (bind(number, &a->u.any, a->size) || listen(number, o->backlog ? o->backlog : 65535)))
        r = -errno;
    if (r) {
        close(number);
        return r;
    }
    return weft__fd_make(number, kind_of(family), ret);
}

static bool bad_options(const weft_listen_options *o)
{
    return o && (o->backlog < 0 || o->flags & ~(unsigned)(WEFT_REUSEPORT | WEFT_V6ONLY));
}

int weft_tcp_listen(const char *address, const weft_listen_options *options, weft_fd **ret)
{
    weft__addr a;
    if (!ret || bad_options(options) || weft__addr_tcp(address, &a))
        return -EINVAL;
    int r = listen_on(&a, options, ret);
    if (r == -EAFNOSUPPORT && address[0] == ':') { /* a machine without IPv6 */
        in_port_t port = a.u.v6.sin6_port;
        a.u.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
        a.size = sizeof a.u.v4;
        r = listen_on(&a, options, ret);
    }
    return r;
}

int weft_unix_listen(const char *path, const weft_listen_options *options, weft_fd **ret)
{
    weft__addr a;
    if (!ret || bad_options(options))
        return -EINVAL;
    int r = weft__addr_unix(path, &a);
    return r ? r : listen_on(&a, options, ret);
}

/* ---- Accept ---- */

/* What went wrong with one connection; the next may be waiting behind it. */
static bool of_the_connection(int error)
{
    switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EPERM: /* a firewall rule */
        return true;
    default:
        return false;
    }
}

static ssize_t call_accept(int number, void *args)
{
    (void)args;
    /* Bounded: a network that is down gives the same answer for each in the queue. */
    for (int tries = 0; tries < 64; tries++) {
        int conn = accept4(number, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (conn >= 0)
            return conn;
        if (!of_the_connection(errno))
            break;
    }
    return -errno;
}

static bool ran_out(ssize_t r)
{
    return r == -EMFILE || r == -ENFILE || r == -ENOBUFS || r == -ENOMEM;
}

/* The pause before such an error is told. 0, or -ECANCELED. */
static int pause_accept(weft_fd *listener, weft_time deadline)
{
    uint32_t ms = atom_load_rlx(&listener->pause_ms);
    ms = ms ? ms : 1;
    weft_time until = weft_after((weft_time)ms * WEFT_MSEC);
    atom_store_rlx(&listener->pause_ms, ms < PAUSE_MAX_MS / 2 ? ms * 2 : (uint32_t)PAUSE_MAX_MS);
    return weft__sleep(until < deadline ? until : deadline);
}

static int accept_any(weft_fd *listener, uint32_t kind, weft_time deadline, weft_fd **ret_conn)
{
    if (!listener || !ret_conn)
        return -EINVAL;
    ssize_t r = weft__fd_run(listener, WEFT__READ, call_accept, NULL, 0, deadline);
    if (r >= 0) {
        int number = (int)r;
        r = weft__fd_make(number, kind, ret_conn);
    }
    if (WEFT__UNLIKELY(ran_out(r))) {
        int stop = deadline == WEFT_TRY ? 0 : pause_accept(listener, deadline);
        return stop ? stop : (int)r;
    }
    if (WEFT__UNLIKELY(atom_load_rlx(&listener->pause_ms)))
        atom_store_rlx(&listener->pause_ms, 0u);
    return (int)r;
}

int weft_tcp_accept(weft_fd *listener, weft_time deadline, weft_fd **ret_conn)
{
    return accept_any(listener, kind_of(AF_INET), deadline, ret_conn);
}

int weft_unix_accept(weft_fd *listener, weft_time deadline, weft_fd **ret_conn)
{
    return accept_any(listener, kind_of(AF_UNIX), deadline, ret_conn);
}

/* ---- Connect ---- */

/* The outcome of a connect that is under way. */
static ssize_t call_connected(int number, void *args)
{
    (void)args;
    struct pollfd p = {.fd = number, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&p, 1, 0) <= 0)
        return -EAGAIN;
    if (getsockopt(number, SOL_SOCKET, SO_ERROR, &error, &size))
        return -errno;
    return -error;
}

/* Starts it: 0 connected, -EINPROGRESS, or an error. */
static int start_connect(int number, const weft__addr *a)
{
    if (connect(number, &a->u.any, a->size) == 0)
        return 0;
    return errno == EINTR ? -EINPROGRESS : -errno;
}

/* The queue of a Unix listener is full: there is nothing to wait on. */
static int connect_again(int number, const weft__addr *a, weft_time deadline)
{
    weft_time pause = WEFT_MSEC;
    for (;;) {
        if (weft__sys_now() >= deadline)
            return -ETIMEDOUT;
        weft_time until = weft_after(pause);
        int r = weft__sleep(until < deadline ? until : deadline);
        if (r)
            return r;
        r = start_connect(number, a);
        if (r != -EAGAIN)
            return r;
        pause =
            pause * 2 < UNIX_RETRY_MAX_MS * WEFT_MSEC ? pause * 2 : UNIX_RETRY_MAX_MS * WEFT_MSEC;
    }
}

static int connect_to(const weft__addr *a, weft_time deadline, weft_fd **ret_conn)
{
    int family = a->u.any.sa_family, number = -1;
    weft_fd *fd;
    int r = deadline == WEFT_TRY ? 0 : weft__checkpoint(weft__self());
    if (r == 0)
        r = open_socket(family, &number);
    if (r)
        return r;
    r = weft__fd_make(number, kind_of(family), &fd);
    if (r)
        return r;
    if (family != AF_UNIX)
        r = set_int(number, IPPROTO_TCP, TCP_NODELAY, 1);
    if (r == 0)
        r = start_connect(number, a);
    if (r == -EAGAIN && family == AF_UNIX && deadline != WEFT_TRY)
        r = connect_again(number, a, deadline);
    if (r == -EINPROGRESS)
        r = (int)weft__fd_run(fd, WEFT__WRITE, call_connected, NULL, 0, deadline);
    if (r) {
        weft_fd_unref(fd);
        return r;
    }
    *ret_conn = fd;
    return 0;
}

int weft_tcp_connect(const char *address, weft_time deadline, weft_fd **ret_conn)
{
    weft__addr a;
    if (!ret_conn || weft__addr_tcp(address, &a))
        return -EINVAL;
    return connect_to(&a, deadline, ret_conn);
}

int weft_unix_connect(const char *path, weft_time deadline, weft_fd **ret_conn)
{
    weft__addr a;
    if (!ret_conn)
        return -EINVAL;
    int r = weft__addr_unix(path, &a);
    return r ? r : connect_to(&a, deadline, ret_conn);
}

int weft_unix_pair(weft_fd **ret_a, weft_fd **ret_b)
{
    int pair[2];
    weft_fd *a;
    if (!ret_a || !ret_b || ret_a == ret_b)
        return -EINVAL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        return -errno;
    int r = weft__fd_make(pair[0], kind_of(AF_UNIX), &a);
    if (r) {
        close(pair[1]);
        return r;
    }
    r = weft__fd_make(pair[1], kind_of(AF_UNIX), ret_b);
    if (r) {
        weft_fd_unref(a);
        return r;
    }
    *ret_a = a;
    return 0;
}

/* ---- Names and options ---- */

typedef int (*name_call)(int, struct sockaddr *, socklen_t *);

typedef struct name_query {
    name_call ask;
    weft__addr address;
} name_query;

static ssize_t call_name(int number, void *args)
{
    name_query *q = args;
    q->address.size = sizeof q->address.u;
    return q->ask(number, &q->address.u.any, &q->address.size) ? -errno : 0;
}

static int name_of(weft_fd *fd, name_call ask, char *buffer, size_t size)
{
    name_query q = {.ask = ask};
    if (!fd || !buffer)
        return -EINVAL;
    int r = (int)weft__fd_run(fd, WEFT__READ, call_name, &q, 0, WEFT_TRY);
    return r ? r : weft__addr_text(&q.address, buffer, size);
}

static int ask_local(int number, struct sockaddr *a, socklen_t *size)
{
    return getsockname(number, a, size);
}

static int ask_peer(int number, struct sockaddr *a, socklen_t *size)
{
    return getpeername(number, a, size);
}

int weft_net_local(weft_fd *fd, char *buffer, size_t size)
{
    return name_of(fd, ask_local, buffer, size);
}

int weft_net_peer(weft_fd *fd, char *buffer, size_t size)
{
    return name_of(fd, ask_peer, buffer, size);
}

static ssize_t call_nodelay(int number, void *args)
{
    return set_int(number, IPPROTO_TCP, TCP_NODELAY, *(const bool *)args);
}

int weft_net_nodelay(weft_fd *fd, bool on)
{
    return fd ? (int)weft__fd_run(fd, WEFT__WRITE, call_nodelay, &on, 0, WEFT_TRY) : -EINVAL;
}

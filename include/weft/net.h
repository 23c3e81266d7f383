/* SPDX-License-Identifier: MIT
 *
 * weft/net.h -- TCP and Unix sockets.
 *
 * All of these make a weft_fd (weft/io.h), which reads, writes, shuts down and closes.
 * Sockets are non-blocking and close-on-exec. TCP connections, made or accepted here,
 * send small writes at once (TCP_NODELAY) unless weft_net_nodelay says otherwise.
 *
 * TCP addresses are text, "HOST:PORT", with a numeric host: "127.0.0.1:80",
 * "[::1]:80", "[fe80::1%eth0]:80". ":80" is every address of the machine; port 0 lets
 * the kernel choose. Names are not looked up here: -EINVAL.
 *
 * Unix addresses are paths of at most 107 bytes; "@name" is the abstract name "name".
 *
 * The errors that blocking calls share stand in weft/io.h.
 */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include "weft/base.h"
#include "weft/io.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_REUSEPORT = 1, /* TCP: several sockets may listen on one port and share its load */
    WEFT_V6ONLY = 2,    /* TCP: an IPv6 listener does not take IPv4 */
};

/* All zero is a good default. */
typedef struct weft_listen_options {
    int backlog;    /* connections that wait to be accepted; 0: as many as the system allows */
    unsigned flags; /* WEFT_REUSEPORT, WEFT_V6ONLY */
} weft_listen_options;

/* Enough for any address as text, with its final zero. */
#define WEFT_ADDRESS_SIZE 128

/* Listens for TCP connections. The port may be taken again at once after a listener
 * on it has ended (SO_REUSEADDR).
 *
 * options  NULL for the defaults
 * ret      set on success only; one reference, the caller's
 *
 * Returns 0; -EINVAL (address, flags, negative backlog, ret NULL); -EADDRINUSE;
 * -EADDRNOTAVAIL; -EACCES; -EMFILE, -ENFILE, -ENOBUFS, -ENOMEM.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_tcp_listen(const char *address, const weft_listen_options *options,
                                           weft_fd **ret);

/* Takes the next connection. Connections that were broken off while they waited are
 * passed over.
 *
 * With -EMFILE, -ENFILE, -ENOBUFS or -ENOMEM (descriptors or memory ran out) the
 * listener stays good and the connection waits. The call has then paused, for 1 ms at
 * the first time and up to 100 ms later on, never past the deadline and not at all
 * with WEFT_TRY, so a loop that simply tries again neither spins nor falls behind.
 *
 * ret_conn  set on success only; one reference, the caller's
 *
 * Returns 0 or an error above or of weft/io.h.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_tcp_accept(weft_fd *listener, weft_time deadline,
                                           weft_fd **ret_conn);

/* Connects to a TCP address.
 *
 * deadline  WEFT_TRY: -EAGAIN unless it succeeds at once; the attempt is given up
 * ret_conn  set on success only; one reference, the caller's
 *
 * Returns 0; -EINVAL (address, ret_conn NULL); -ECONNREFUSED; -ENETUNREACH;
 * -EHOSTUNREACH; -EADDRNOTAVAIL (no free port); or an error of weft/io.h.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_tcp_connect(const char *address, weft_time deadline,
                                            weft_fd **ret_conn);

/* The same three for Unix stream sockets. A listener does not remove its path, neither
 * an old one (-EADDRINUSE) nor when it closes. connect: a listener whose queue is full
 * cannot be waited for, so the call looks again every few milliseconds. Also
 * -ENAMETOOLONG; -ENOENT (nobody listens there).
 * Callable from: any thread, any task (listen never blocks; the others park). */
WEFT_API WEFT_MUST_USE int weft_unix_listen(const char *path, const weft_listen_options *options,
                                            weft_fd **ret);

/* As weft_tcp_accept. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_unix_accept(weft_fd *listener, weft_time deadline,
                                            weft_fd **ret_conn);

/* As weft_tcp_connect, see weft_unix_listen. Callable from: any thread, any fiber.
 * Parks. */
WEFT_API WEFT_MUST_USE int weft_unix_connect(const char *path, weft_time deadline,
                                             weft_fd **ret_conn);

/* Two Unix stream sockets connected to each other. Both are set, or none. Returns 0;
 * -EINVAL; -EMFILE, -ENFILE, -ENOMEM.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_unix_pair(weft_fd **ret_a, weft_fd **ret_b);

/* The address of this end, or of the other, as text that connect would take ("" for a
 * Unix socket without a name).
 *
 * buffer, size  where to; WEFT_ADDRESS_SIZE is enough
 *
 * Returns the length; -EINVAL (NULL); -ENOSPC (too small; untouched); -EPIPE (closed);
 * -ENOTCONN; -EAFNOSUPPORT (neither TCP nor Unix).
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_net_local(weft_fd *fd, char *buffer, size_t size);

/* See weft_net_local. Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_net_peer(weft_fd *fd, char *buffer, size_t size);

/* TCP_NODELAY on or off. Returns 0, -EINVAL, -EPIPE (closed), -EOPNOTSUPP (not TCP).
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_net_nodelay(weft_fd *fd, bool on);

#ifdef __cplusplus
}
#endif
#endif

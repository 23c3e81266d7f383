/* SPDX-License-Identifier: MIT
 *
 * weft/io.h -- descriptors: read, write and wait with deadlines.
 *
 * A weft_fd is a counted handle around one non-blocking descriptor: a socket, a pipe,
 * a terminal, an eventfd, whatever poll(2) takes. In a fiber a call that must wait
 * suspends the fiber; on a plain thread it blocks that thread. Sockets are opened
 * with weft/net.h.
 *
 * Concurrency: every call may overlap with every other on one handle, except that the
 * last weft_fd_unref comes after all others. One may read while another writes;
 * several may read, and are served in the order they came. Several write calls at
 * once do not mix within one system call, but larger writes may interleave.
 *
 * Every call that may block takes an absolute deadline (weft/base.h). What is ready
 * wins over a deadline that has passed: a readable descriptor is never reported as a
 * timeout. The errors that all of these calls share:
 *
 *   -EAGAIN     WEFT_TRY, and it would have to wait
 *   -ETIMEDOUT  nothing happened until the deadline
 *   -ECANCELED  the calling task is cancelled
 *   -EPIPE      the handle was closed on this side, before the call or during it;
 *               when writing also: the peer has closed. No SIGPIPE is ever raised
 *   -EINVAL     a NULL handle or buffer
 *   -EMFILE, -ENFILE, -ENOMEM, -ENOSPC   no means to wait (the first wait of a runtime
 *               or of a thread opens a descriptor, the first of a handle enters it
 *               into the kernel's set)
 *   -EEXIST     another handle already waits on this same descriptor number
 *   -ENXIO      the handle had waited before fork() and is used in the child: wrap the
 *               number anew there
 *   and what the system call says: -ECONNRESET, ...
 *
 * After any return the buffers are the caller's alone: the kernel keeps nothing.
 */
#ifndef WEFT_IO_H
#define WEFT_IO_H

#include "weft/base.h"
#include "weft/select.h"

#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_fd weft_fd;

enum {
    WEFT_FD_BORROW = 1,   /* the descriptor stays the caller's, who closes it after the
                           * handle is closed */
    WEFT_FD_NONBLOCK = 2, /* make it non-blocking (this changes it for all who share it) */
};

/* Makes a handle, with one reference, for an open descriptor. It must be non-blocking,
 * or be made so by the flag; it belongs to the handle from then on, unless borrowed.
 * Only one handle may exist for a number at a time.
 *
 * ret  untouched on error; the descriptor is then still the caller's
 *
 * Returns 0; -EINVAL (unknown flags, ret NULL, not non-blocking); -EBADF; -ENOMEM.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_fd_wrap(int number, unsigned flags, weft_fd **ret);

/* One more reference; NULL is fine. Returns fd. Callable from: any thread, any task. */
WEFT_API weft_fd *weft_fd_ref(weft_fd *fd);

/* Drops a reference; the last one closes and frees. NULL is fine. Returns NULL.
 * Callable from: any thread, any task. */
WEFT_API weft_fd *weft_fd_unref(weft_fd *fd);

/* Closes for all who share the handle: whoever waits on it, and every later call,
 * gets -EPIPE. The number is given back as soon as no call is using it. The reference
 * stays the caller's. Returns 0; -EPIPE (closed before); -EINVAL (NULL).
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_fd_close(weft_fd *fd);

/* The descriptor's number, for calls that weft does not wrap; -EPIPE once it is
 * closed; -EINVAL (NULL). Callable from: any thread, any task. */
WEFT_API int weft_fd_number(const weft_fd *fd);

enum { WEFT_SHUT_READ = 0, WEFT_SHUT_WRITE = 1, WEFT_SHUT_BOTH = 2 };

/* Ends one or both directions of a socket, as shutdown(2): the peer reads the end of
 * the stream. Returns 0, -EINVAL, -EPIPE (closed), -ENOTSOCK, -ENOTCONN.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_fd_shutdown(weft_fd *fd, int how);

/* Reads at most `size` bytes, at least one unless it is the end.
 *
 * Returns the number of bytes; 0 at the end of the stream (and for size 0); or one of
 * the errors above, and then nothing was read.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE ssize_t weft_fd_read(weft_fd *fd, void *buffer, size_t size,
                                            weft_time deadline);

/* weft_fd_read into `count` pieces (1 to 1024). Also -EINVAL for a bad count.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE ssize_t weft_fd_readv(weft_fd *fd, const struct iovec *pieces, int count,
                                             weft_time deadline);

/* Writes at least one and at most `size` bytes.
 *
 * Returns the number of bytes (0 for size 0); or one of the errors above, and then
 * nothing was written. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE ssize_t weft_fd_write(weft_fd *fd, const void *data, size_t size,
                                             weft_time deadline);

/* weft_fd_write from `count` pieces (1 to 1024). Also -EINVAL for a bad count.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE ssize_t weft_fd_writev(weft_fd *fd, const struct iovec *pieces, int count,
                                              weft_time deadline);

/* Reads exactly `size` bytes.
 *
 * ret_done  how many were read, also on error; NULL if unwanted
 *
 * Returns 0; -ENODATA (the stream ended first); or one of the errors above.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_fd_read_full(weft_fd *fd, void *buffer, size_t size,
                                             weft_time deadline, size_t *ret_done);

/* Writes all of `size` bytes.
 *
 * ret_done  how many were written, also on error; NULL if unwanted
 *
 * Returns 0 or one of the errors above. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_fd_write_full(weft_fd *fd, const void *data, size_t size,
                                              weft_time deadline, size_t *ret_done);

/* Sends at most `size` bytes of the file `file` from `offset` on, without a copy
 * through the program (sendfile(2)). Reading the file may block on the disk.
 *
 * Returns the number of bytes, 0 at the file's end; or one of the errors above.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE ssize_t weft_fd_sendfile(weft_fd *fd, int file, off_t offset, size_t size,
                                                weft_time deadline);

/* Waits until a read would not block: there is data, an end or an error. Takes nothing;
 * another reader may be quicker, so the read that follows may have to wait after all.
 * Returns 0 or one of the errors above.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_fd_wait_readable(weft_fd *fd, weft_time deadline);

/* The same for a write. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_fd_wait_writable(weft_fd *fd, weft_time deadline);

/* Select cases (weft/select.h): a read, or a write, would not block. As with the two calls
 * above nothing is taken, and the case's result is what they return: 0, or one of the
 * errors above, -EPIPE when the handle is closed before or during the select. So after such
 * a case use WEFT_TRY, and select again at -EAGAIN:
 *
 *     weft_select_case cases[] = {weft_case_fd_readable(fd), weft_case_recv(jobs, &job)};
 *     int i = weft_select(cases, 2, 0, deadline);
 *     if (i == 0 && cases[0].result == 0)
 *         n = weft_fd_read(fd, buffer, sizeof buffer, WEFT_TRY);
 *
 * What select answers was true when it looked last, after it was woken: a sole reader finds
 * the data. Any number of selects may watch one handle, in both directions and beside calls
 * that read and write: all selects are told, and no event is taken from the calls. The
 * handle must live until the select returns, closed or not. A plain thread may name at most
 * WEFT_SELECT_FDS of these cases in one select. For a NULL fd select answers -EINVAL.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API weft_select_case weft_case_fd_readable(weft_fd *fd);
WEFT_API weft_select_case weft_case_fd_writable(weft_fd *fd);

#ifdef __cplusplus
}
#endif
#endif

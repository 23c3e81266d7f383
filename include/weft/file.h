/* SPDX-License-Identifier: MIT
 *
 * weft/file.h -- files, without blocking the worker: each call is a job on a pool of
 * weft/blocking.h, for the kernel offers no readiness for files.
 *
 * A call whose deadline passes while it runs leaves the system call to end by itself. So the
 * data goes through memory of the job's own, and the caller's buffer is never touched after
 * the call has returned; a write that timed out may still be done, whole or in part. That
 * is also why one call moves at most WEFT_FILE_MAX bytes: larger ones are cut, as read(2)
 * and write(2) may do.
 *
 * Concurrency: every call may overlap with every other on one file, except that the
 * last weft_file_unref comes after all others (a job that was left alone keeps the file).
 *
 * The errors that all share: those of weft_blocking (-ETIMEDOUT, -ECANCELED, -EAGAIN
 * with WEFT_TRY, -ESHUTDOWN, -ENOMEM, -EPERM), -EINVAL for a NULL, and what the system call
 * says (-ENOENT, -EIO, -ENOSPC, ...).
 */
#ifndef WEFT_FILE_H
#define WEFT_FILE_H

#include "weft/base.h"
#include "weft/blocking.h"

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_file weft_file; /* opaque, reference-counted */

/* The most bytes of one read or write. */
#define WEFT_FILE_MAX ((size_t)1 << 20)

/* Opens a file as open(2) does, close-on-exec always.
 *
 * pool   runs this and all later calls on the file; must outlive it
 * flags  O_RDONLY, O_CREAT, ... of fcntl.h
 * mode   for O_CREAT
 * ret    set on success only; one reference, the caller's
 *
 * Returns 0 or an error above (when the time runs out during the open, the file is closed
 * as soon as it is open). Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_file_open(weft_blocking_pool *pool, const char *path, int flags,
                                          mode_t mode, weft_time deadline, weft_file **ret);

/* References. NULL is fine. The last unref closes, on the calling thread. unref returns NULL.
 * Callable from: any thread, any task. */
WEFT_API weft_file *weft_file_ref(weft_file *file);
WEFT_API weft_file *weft_file_unref(weft_file *file);

/* Reads at most `size` bytes from `offset` on. Returns how many; 0 at the end of the file;
 * or an error above, and then the buffer is untouched.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE ssize_t weft_file_read(weft_file *file, void *buffer, size_t size,
                                              off_t offset, weft_time deadline);

/* Writes at most `size` bytes at `offset`. Returns how many, or an error above.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE ssize_t weft_file_write(weft_file *file, const void *data, size_t size,
                                               off_t offset, weft_time deadline);

/* Writes all of `size` bytes, piece by piece.
 * ret_done  how many are written for certain, also on error; NULL if unwanted
 * Returns 0 or an error above. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_file_write_full(weft_file *file, const void *data, size_t size,
                                                off_t offset, weft_time deadline, size_t *ret_done);

/* Brings what was written to the disk (fsync). Returns 0 or an error above.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_file_sync(weft_file *file, weft_time deadline);

/* The size in bytes, or an error above. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int64_t weft_file_size(weft_file *file, weft_time deadline);

/* The descriptor's number, for calls that weft does not wrap; -EINVAL (NULL).
 * Callable from: any thread, any task. */
WEFT_API int weft_file_number(const weft_file *file);

#ifdef __cplusplus
}
#endif
#endif

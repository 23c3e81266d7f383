/* SPDX-License-Identifier: MIT
 *
 * file.c -- see weft/file.h. Each call is one job, which owns all that the system call
 * uses: its buffer, and a reference to the file.
 */
#include "weft/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/base.h"

struct weft_file {
    weft_blocking_pool *pool;
    weft__a32 refs;
    int number;
};

enum call { READ, WRITE, SYNC, SIZE };

struct request {
    weft_file *file;
    enum call call;
    off_t offset;
    size_t size;
    int64_t answer;
    char data[]; /* `size` bytes of READ and WRITE */
};

struct opening {
    int flags, number;
    mode_t mode;
    char path[];
};

/* ---- The jobs ---- */

static int do_open(void *arg)
{
    struct opening *o = arg;
    do
        o->number = open(o->path, o->flags | O_CLOEXEC, o->mode);
    while (o->number < 0 && errno == EINTR);
    return o->number < 0 ? -errno : 0;
}

static void opening_free(void *arg)
{
    struct opening *o = arg;
    if (o->number >= 0)
        close(o->number);
    weft__free(o);
}

static int64_t call_once(struct request *q)
{
    int number = q->file->number;
    struct stat st;
    switch (q->call) {
    case READ:
        return pread(number, q->data, q->size, q->offset);
    case WRITE:
        return pwrite(number, q->data, q->size, q->offset);
    case SYNC:
        return fsync(number);
    case SIZE:
        return fstat(number, &st) ? -1 : (int64_t)st.st_size;
    }
    return -1;
}

static int do_request(void *arg)
{
    struct request *q = arg;
    do
        q->answer = call_once(q);
    while (q->answer < 0 && errno == EINTR);
    if (q->answer < 0)
        q->answer = -errno;
    return 0;
}

static void request_free(void *arg)
{
    struct request *q = arg;
    weft_file_unref(q->file);
    weft__free(q);
}

/* ---- Opening and closing ---- */

int weft_file_open(weft_blocking_pool *pool, const char *path, int flags, mode_t mode,
                   weft_time deadline, weft_file **ret)
{
    if (!pool || !path || !ret)
        return -EINVAL;
    size_t size = strlen(path) + 1;
    weft_file *file = weft__calloc(1, sizeof *file);
    struct opening *o = file ? weft__malloc(sizeof *o + size) : NULL;
    if (!o) {
        weft__free(file);
        return -ENOMEM;
    }
    *o = (struct opening){.flags = flags, .number = -1, .mode = mode};
    memcpy(o->path, path, size);
    int result;
    int r = weft_blocking(pool, do_open, o, opening_free, deadline, &result);
    if (r == 0) {
        r = result;
        file->number = o->number;
        weft__free(o);
    }
    if (r) {
        weft__free(file);
        return r;
    }
    file->pool = pool;
    atom_store_rlx(&file->refs, 1u);
    *ret = file;
    return 0;
}

weft_file *weft_file_ref(weft_file *file)
{
    if (file)
        atom_add_rlx(&file->refs, 1u);
    return file;
}

weft_file *weft_file_unref(weft_file *file)
{
    /* Release what was done with it, acquire what others did: the last one closes. */
    if (file && atom_sub_ar(&file->refs, 1u) == 1) {
        close(file->number);
        weft__free(file);
    }
    return NULL;
}

int weft_file_number(const weft_file *file)
{
    return file ? file->number : -EINVAL;
}

/* ---- Calls ---- */

/* Runs a request; `data` goes in for WRITE, `buffer` is filled by READ. */
static int64_t request(weft_file *file, enum call call, const void *data, void *buffer, size_t size,
                       off_t offset, weft_time deadline)
{
    if (size > WEFT_FILE_MAX)
        size = WEFT_FILE_MAX;
    struct request *q = weft__malloc(sizeof *q + size);
    if (!q)
        return -ENOMEM;
    *q =
        (struct request){.file = weft_file_ref(file), .call = call, .offset = offset, .size = size};
    if (data)
        memcpy(q->data, data, size);
    int r = weft_blocking(file->pool, do_request, q, request_free, deadline, NULL);
    if (r)
        return r; /* the pool has the request */
    int64_t answer = q->answer;
    if (buffer && answer > 0)
        memcpy(buffer, q->data, (size_t)answer);
    request_free(q);
    return answer;
}

ssize_t weft_file_read(weft_file *file, void *buffer, size_t size, off_t offset, weft_time deadline)
{
    if (!file || (!buffer && size))
        return -EINVAL;
    if (size == 0)
        return 0;
    return (ssize_t)request(file, READ, NULL, buffer, size, offset, deadline);
}

ssize_t weft_file_write(weft_file *file, const void *data, size_t size, off_t offset,
                        weft_time deadline)
{
    if (!file || (!data && size))
        return -EINVAL;
    if (size == 0)
        return 0;
    return (ssize_t)request(file, WRITE, data, NULL, size, offset, deadline);
}

int weft_file_write_full(weft_file *file, const void *data, size_t size, off_t offset,
                         weft_time deadline, size_t *ret_done)
{
    size_t done = 0;
    ssize_t r = file && (data || !size) ? 0 : -EINVAL;
    while (r >= 0 && done < size) {
        r = weft_file_write(file, (const char *)data + done, size - done, offset + (off_t)done,
                            deadline);
        if (r == 0)
            r = -ENOSPC; /* write(2) does not say more */
        if (r > 0)
            done += (size_t)r;
    }
    if (ret_done)
        *ret_done = done;
    return r < 0 ? (int)r : 0;
}

int weft_file_sync(weft_file *file, weft_time deadline)
{
    return file ? (int)request(file, SYNC, NULL, NULL, 0, 0, deadline) : -EINVAL;
}

int64_t weft_file_size(weft_file *file, weft_time deadline)
{
    return file ? request(file, SIZE, NULL, NULL, 0, 0, deadline) : -EINVAL;
}

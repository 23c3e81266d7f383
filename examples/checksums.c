/* SPDX-License-Identifier: MIT
 *
 * checksums [-v] FILE... -- prints what cksum(1) prints, from a service: a named worker of
 * four threads that reads files and tells its progress as it goes. The files are handed to
 * it by three kinds of senders at once, which all use the same calls:
 *
 *   fibers         one a file, on a runtime
 *   plain threads  one a file
 *   a poll() loop  all its files at once, each followed through a descriptor
 *
 * Exit status 1 when a file could not be read.
 */
#include <weft/weft.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the service says about a file: an update has `done` alone, the result the rest. */
struct report {
    unsigned long long done, size;
    unsigned crc;
    int error;
};

/* ---- The service ---- */

/* The CRC of POSIX cksum: polynomial 0x04C11DB7, high bit first. */
static unsigned crc_byte(unsigned crc, unsigned char byte)
{
    crc ^= (unsigned)byte << 24;
    for (int i = 0; i < 8; i++)
        crc = crc << 1 ^ (crc & 0x80000000u ? 0x04C11DB7u : 0);
    return crc;
}

static void make_table(unsigned table[256])
{
    for (unsigned i = 0; i < 256; i++)
        table[i] = crc_byte(0, (unsigned char)i);
}

static weft_buffer *to_buffer(const struct report *r)
{
    weft_buffer *b = NULL;
    if (weft_buffer_copy(r, sizeof *r, &b) != 0)
        abort();
    return b;
}

/* Reads a file piece by piece, with an update after each; false when nobody wants it. */
static bool checksum(const unsigned table[256], const char *path, weft_received *task,
                     struct report *r)
{
    static _Thread_local unsigned char piece[1 << 16]; /* a seat that is a thread keeps it */
    FILE *f = fopen(path, "rbe");
    size_t n;
    *r = (struct report){.error = f ? 0 : -errno};
    while (f && (n = fread(piece, 1, sizeof piece, f)) > 0) {
        for (size_t i = 0; i < n; i++)
            r->crc = r->crc << 8 ^ table[(r->crc >> 24 ^ piece[i]) & 255];
        r->size += n;
        weft_buffer *b = to_buffer(&(struct report){.done = r->size});
        /* Sixteen updates wait for the sender; past that this one waits, too. */
        int said = weft_received_update(task, b, WEFT_NEVER);
        if (said != 0) {
            weft_buffer_unref(b);
            fclose(f);
            return false;
        }
    }
    if (f && ferror(f))
        r->error = -EIO;
    if (f)
        fclose(f);
    for (unsigned long long left = r->size; left; left >>= 8)
        r->crc = r->crc << 8 ^ table[(r->crc >> 24 ^ (unsigned)left) & 255];
    r->crc = ~r->crc;
    return true;
}

static int service(weft_seat *seat, void *table)
{
    while (weft_seat_tick(seat)) {
        weft_received *task;
        struct report r;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        if (checksum(table, weft_buffer_data(weft_received_payload(task)), task, &r)) {
            weft_buffer *b = to_buffer(&r);
            if (weft_received_complete(task, b) != 0)
                weft_buffer_unref(b);
        }
        weft_received_free(task);
    }
    return 0;
}

/* ---- The senders ---- */

struct job {
    weft_registry *reg;
    const char *path;
    struct report result;
    unsigned updates;
    weft_sent *sent; /* of the poll loop */
};

static weft_buffer *path_buffer(const char *path)
{
    weft_buffer *b = NULL;
    if (weft_buffer_copy(path, strlen(path) + 1, &b) != 0)
        abort();
    return b;
}

/* One update or the result; false at the end. */
static bool hear(struct job *j, int r, weft_buffer *b)
{
    if (r != 1) {
        if (r != 0)
            j->result.error = r;
        return false;
    }
    memcpy(&j->result, weft_buffer_data(b), sizeof j->result);
    j->updates++;
    weft_buffer_unref(b);
    return true;
}

/* The same function in a fiber and in a plain thread. */
static int send_one(void *arg)
{
    struct job *j = arg;
    weft_buffer *path = path_buffer(j->path), *b = NULL;
    int r = weft_registry_send(j->reg, NULL, "cksum", path, WEFT_NEVER, &j->sent);
    if (r != 0) {
        weft_buffer_unref(path);
        j->result.error = r;
        return r;
    }
    do
        r = weft_sent_read(j->sent, WEFT_NEVER, &b);
    while (hear(j, r, b));
    weft_sent_free(j->sent);
    return 0;
}

static void *send_one_thread(void *arg)
{
    send_one(arg);
    return NULL;
}

/* A host's own loop: hands everything over at once, then only polls. */
static void poll_loop(struct job *jobs, int count, int step)
{
    struct pollfd *p = calloc((size_t)count + 1, sizeof *p);
    int open = 0;
    if (!p)
        abort();
    for (int i = 0; i < count; i += step) {
        struct job *j = &jobs[i];
        weft_buffer *path = path_buffer(j->path);
        int r = weft_registry_post(j->reg, NULL, "cksum", path, WEFT_NEVER, &j->sent);
        p[i].fd = r == 0 ? weft_sent_fd(j->sent) : -1;
        p[i].events = POLLIN;
        if (r != 0)
            weft_buffer_unref(path);
        if (p[i].fd >= 0)
            open++;
        else
            j->result.error = r ? r : p[i].fd;
    }
    for (int i = 0; i < count; i++)
        if (i % step)
            p[i].fd = -1;
    while (open > 0) {
        if (poll(p, (nfds_t)count, -1) <= 0)
            continue;
        for (int i = 0; i < count; i += step) {
            if (p[i].fd < 0 || !p[i].revents)
                continue;
            weft_buffer *b = NULL;
            int r = weft_sent_read(jobs[i].sent, WEFT_TRY, &b);
            if (r == -EAGAIN || hear(&jobs[i], r, b))
                continue;
            p[i].fd = -1;
            open--;
        }
    }
    for (int i = 0; i < count; i += step)
        weft_sent_free(jobs[i].sent);
    free(p);
}

/* ---- */

static void run(weft_registry *reg, weft_runtime *rt, char **paths, struct job *jobs, int count)
{
    pthread_t *threads = calloc((size_t)count + 1, sizeof *threads);
    weft_task **fibers = calloc((size_t)count + 1, sizeof *fibers);
    if (!threads || !fibers)
        abort();
    for (int i = 0; i < count; i++)
        jobs[i] = (struct job){.reg = reg, .path = paths[i]};
    for (int i = 0; i < count; i++) {
        if (i % 3 == 1 && weft_spawn(rt, send_one, &jobs[i], NULL, &fibers[i]) != 0)
            abort();
        if (i % 3 == 2 && pthread_create(&threads[i], NULL, send_one_thread, &jobs[i]) != 0)
            abort();
    }
    poll_loop(jobs, count, 3);
    for (int i = 0; i < count; i++) {
        if (i % 3 == 1) {
            weft_task_join(fibers[i], WEFT_NEVER, NULL);
            weft_task_unref(fibers[i]);
        } else if (i % 3 == 2) {
            pthread_join(threads[i], NULL);
        }
    }
    free(threads);
    free(fibers);
}

int main(int argc, char **argv)
{
    static unsigned table[256];
    bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    char **paths = argv + 1 + verbose;
    int count = argc - 1 - verbose, status = 0;
    weft_runtime *rt;
    weft_registry *reg;
    weft_worker *worker;
    struct job *jobs = calloc((size_t)count + 1, sizeof *jobs);
    make_table(table);
    weft_worker_options options = {.loop = service, .arg = table, .seats = 4};
    if (!jobs || weft_runtime_new(NULL, &rt) != 0 || weft_registry_new(NULL, &reg) != 0 ||
        weft_worker_start(reg, "cksum", &options, &worker) != 0) {
        fprintf(stderr, "checksums: cannot start\n");
        return 2;
    }
    run(reg, rt, paths, jobs, count);
    for (int i = 0; i < count; i++) {
        const struct report *r = &jobs[i].result;
        if (r->error) {
            fprintf(stderr, "checksums: %s: %s\n", jobs[i].path, weft_strerror(r->error));
            status = 1;
            continue;
        }
        printf("%u %llu %s\n", r->crc, r->size, jobs[i].path);
        if (verbose)
            printf("  by %s, %u updates\n", (const char *[]){"poll", "fiber", "thread"}[i % 3],
                   jobs[i].updates - 1);
    }
    weft_registry_stop(reg, weft_after(10 * WEFT_SEC), NULL, 0);
    weft_worker_stats st;
    weft_worker_get_stats(worker, &st);
    if (verbose)
        printf("%llu tasks completed, %llu wake-ups lost\n",
               (unsigned long long)st.outcomes[WEFT_TASK_COMPLETED],
               (unsigned long long)st.fallback_wakes);
    weft_worker_unref(worker);
    weft_registry_free(reg);
    weft_runtime_free(rt);
    free(jobs);
    return status;
}

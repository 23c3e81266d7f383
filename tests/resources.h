/* SPDX-License-Identifier: MIT
 *
 * resources.h -- what a process holds: compare two snapshots to find what a test, or
 * the library under it, left behind.
 *
 *     struct resources before, after;
 *     resources_take(&before);
 *     ...
 *     char why[512];
 *     if (!resources_same(&before, &after, NULL, why, sizeof why))
 *         fail_msg("%s", why);
 */
#ifndef WEFT_TESTS_RESOURCES_H
#define WEFT_TESTS_RESOURCES_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESOURCES_FDS     256 /* descriptors that are named one by one */
#define RESOURCES_SIGNALS 65

struct resources {
    int threads;
    int children; /* processes not waited for */
    int fds;      /* open descriptors, the one used for counting left out */
    unsigned char open[RESOURCES_FDS];
    int maps;       /* lines of /proc/self/maps */
    size_t rss;     /* resident memory, bytes */
    sigset_t mask;  /* of the calling thread */
    bool alt_stack; /* the calling thread has one for signals */
    void (*handlers[RESOURCES_SIGNALS])(int);
    /* For idleness; not compared. */
    uint64_t cpu_ns;   /* user and system time of the process */
    uint64_t switches; /* voluntary context switches, summed over the threads */
};

/* How much more than before is still the same. */
struct resources_slack {
    int threads, fds, maps;
    size_t rss;
    unsigned patience_ms; /* how long to wait for it; 0: two seconds */
};

/* Takes a snapshot of this process. */
void resources_take(struct resources *r);

/* Takes snapshots into *after until it holds no more than *before, or patience
 * ends: a thread that was joined may need a moment to leave /proc. False: what differs
 * is in `ret_why`. NULL for `slack`: threads and descriptors exactly, 64 mappings,
 * 16 MiB (under a sanitizer, which maps for itself, 256 and 128 MiB). */
bool resources_same(const struct resources *before, struct resources *after,
                    const struct resources_slack *slack, char *ret_why, size_t size);

#endif

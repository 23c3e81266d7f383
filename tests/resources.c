/* SPDX-License-Identifier: MIT
 *
 * resources.c -- see resources.h. Reads /proc/self; allocates nothing that stays.
 */
#include "resources.h"
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

static void count_fds(struct resources *r)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] == '.' || fd == dirfd(dir))
            continue;
        r->fds++;
        if (fd < RESOURCES_FDS)
            r->open[fd] = 1;
    }
    closedir(dir);
}

/* The number after `key` in one of /proc's "Key:  value" files. */
static uint64_t proc_number(const char *path, const char *key)
{
    char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static int count_words(const char *text)
{
    int words = 0;
    for (bool in = false; *text; text++) {
        bool space = *text == ' ' || *text == '\n';
        words += !space && !in;
        in = !space;
    }
    return words;
}

static void look_at_threads(struct resources *r)
{
    DIR *dir = opendir("/proc/self/task");
    if (!dir)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[320], text[4096];
        if (e->d_name[0] == '.')
            continue;
        r->threads++;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        r->switches += proc_number(path, "\nvoluntary_ctxt_switches:");
        snprintf(path, sizeof path, "/proc/self/task/%s/children", e->d_name);
        FILE *f = fopen(path, "re");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        if (f)
            fclose(f);
        text[n] = 0;
        r->children += count_words(text);
    }
    closedir(dir);
}

static void count_maps(struct resources *r)
{
    char text[16384];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            r->maps += text[i] == '\n';
    if (fd >= 0)
        close(fd);
}

void resources_take(struct resources *r)
{
    memset(r, 0, sizeof *r);
    count_fds(r);
    look_at_threads(r);
    count_maps(r);
    r->rss = (size_t)proc_number("/proc/self/status", "\nVmRSS:") * 1024;
    pthread_sigmask(SIG_BLOCK, NULL, &r->mask);
    stack_t alt;
    r->alt_stack = sigaltstack(NULL, &alt) == 0 && !(alt.ss_flags & SS_DISABLE);
    for (int i = 1; i < RESOURCES_SIGNALS; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0)
            r->handlers[i] = action.sa_handler;
    }
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    r->cpu_ns = (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000u +
                (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000u;
}

struct text {
    char *at;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(t->at + t->used, t->size - t->used, format, list);
    va_end(list);
    if (n > 0)
        t->used = t->used + (size_t)n < t->size ? t->used + (size_t)n : t->size - 1;
}

static void name_new_fds(struct text *t, const struct resources *before,
                         const struct resources *after)
{
    for (int fd = 0; fd < RESOURCES_FDS; fd++) {
        if (!after->open[fd] || before->open[fd])
            continue;
        char path[64], target[128];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        say(t, "  fd %d -> %s;", fd, target);
    }
}

static bool compare(const struct resources *a, const struct resources *b,
                    const struct resources_slack *slack, struct text *t)
{
    if (b->threads > a->threads + slack->threads)
        say(t, "threads %d, were %d; ", b->threads, a->threads);
    if (b->children > a->children)
        say(t, "child processes %d, were %d; ", b->children, a->children);
    if (b->fds > a->fds + slack->fds) {
        say(t, "descriptors %d, were %d;", b->fds, a->fds);
        name_new_fds(t, a, b);
    }
    /* A descriptor of the caller's that is gone is as bad as one too many. */
    for (int fd = 0; fd < RESOURCES_FDS; fd++)
        if (a->open[fd] && !b->open[fd])
            say(t, "fd %d was open and is closed; ", fd);
    if (b->maps > a->maps + slack->maps)
        say(t, "mappings %d, were %d; ", b->maps, a->maps);
    if (b->rss > a->rss + slack->rss)
        say(t, "resident KiB %zu, were %zu; ", b->rss / 1024, a->rss / 1024);
    for (int i = 1; i < RESOURCES_SIGNALS; i++) {
        if (sigismember(&a->mask, i) != sigismember(&b->mask, i))
            say(t, "signal %d is %sblocked now; ", i, sigismember(&b->mask, i) ? "" : "un");
        if (a->handlers[i] != b->handlers[i])
            say(t, "signal %d has another handler; ", i);
    }
    if (a->alt_stack != b->alt_stack)
        say(t, "the signal stack %s; ", b->alt_stack ? "is new" : "is gone");
    return t->used == 0;
}

bool resources_same(const struct resources *before, struct resources *after,
                    const struct resources_slack *slack, char *ret_why, size_t size)
{
    static const struct resources_slack usual = {.maps = 64, .rss = 16u << 20};
    static const struct resources_slack sanitized = {.maps = 256, .rss = 128u << 20};
    if (!slack)
        slack = test_sanitized() ? &sanitized : &usual;
    unsigned patience_ms = slack->patience_ms ? slack->patience_ms : 2000;
    int64_t deadline = test_now() + (int64_t)patience_ms * 1000000;
    for (;;) {
        struct text t = {.at = ret_why, .size = size};
        ret_why[0] = 0;
        resources_take(after);
        if (compare(before, after, slack, &t))
            return true;
        if (test_now() >= deadline)
            return false;
        test_sleep_ms(5);
    }
}

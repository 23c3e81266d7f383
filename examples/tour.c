/* SPDX-License-Identifier: MIT
 *
 * tour.c -- a walk through what fibers, channels and timers cost on this machine.
 *
 *   tour [--million | --fibers N]
 *
 * Parks N fibers (100,000) on one event, wakes and joins them; hands items over
 * channels; sleeps beside the system's own sleep; and counts the wake-ups of a runtime
 * in which nothing happens. Fails when something is not as it must be.
 */
#include <weft/weft.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <time.h>
#include <unistd.h>

static int failures;

static void must(bool good, const char *what)
{
    if (!good) {
        printf("  FAILED: %s\n", what);
        failures++;
    }
}

static void say(const char *what, const char *value)
{
    printf("  %-34s %s\n", what, value);
}

/* The first number after `key` at the start of a line of `path`; -1: none. */
static long read_number(const char *path, const char *key)
{
    char line[256];
    long value = -1;
    FILE *f = fopen(path, "r");
    while (f && value < 0 && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtol(line + strlen(key), NULL, 10);
    }
    if (f)
        fclose(f);
    return value;
}

static double ms(weft_time t)
{
    return (double)t / 1e6;
}

/* ---- Many fibers ---- */

struct crowd {
    weft_event *gate;
    weft_waitgroup *arrived, *gone;
};

static int stand(void *arg)
{
    struct crowd *c = arg;
    weft_waitgroup_done(c->arrived);
    int error = weft_event_wait(c->gate, WEFT_NEVER);
    weft_waitgroup_done(c->gone);
    return error;
}

static int many_fibers(void *arg)
{
    int n = *(const int *)arg;
    struct crowd c;
    char text[128];
    if (weft_event_create(&c.gate) || weft_waitgroup_create(&c.arrived) ||
        weft_waitgroup_create(&c.gone))
        return -ENOMEM;
    weft_waitgroup_add(c.arrived, n);
    weft_waitgroup_add(c.gone, n);
    long before = read_number("/proc/self/status", "VmRSS:");
    weft_time start = weft_now();
    for (int i = 0; i < n; i++) {
        int error = weft_go(stand, &c);
        if (error)
            return error;
    }
    int error = weft_waitgroup_wait(c.arrived, weft_after(60 * WEFT_SEC));
    weft_time parked = weft_now();
    long after = read_number("/proc/self/status", "VmRSS:");
    weft_event_set(c.gate);
    if (!error)
        error = weft_waitgroup_wait(c.gone, weft_after(60 * WEFT_SEC));
    weft_time end = weft_now();
    if (error)
        return error;

    double each = (double)(after - before) * 1024 / n;
    snprintf(text, sizeof text, "%d in %.0f ms, woken and ended in %.0f ms", n, ms(parked - start),
             ms(end - parked));
    say("fibers started and parked", text);
    snprintf(text, sizeof text, "%.0f bytes resident, stack included", each);
    say("memory per parked fiber", text);
    must(each < 4608, "a parked fiber takes at most 4.5 KiB");
    weft_event_destroy(c.gate);
    weft_waitgroup_destroy(c.arrived);
    weft_waitgroup_destroy(c.gone);
    return 0;
}

/* ---- Channels ---- */

enum { ITEMS = 1000000 };

struct line {
    weft_channel *channel;
    weft_waitgroup *done;
    long sum;
};

static int produce(void *arg)
{
    struct line *l = arg;
    for (int i = 0; i < ITEMS; i++) {
        if (weft_channel_send(l->channel, &i, WEFT_NEVER))
            return -EPIPE;
    }
    return weft_channel_close(l->channel);
}

static int consume(void *arg)
{
    struct line *l = arg;
    int item;
    while (weft_channel_recv(l->channel, &item, WEFT_NEVER) == 0)
        l->sum += item;
    weft_waitgroup_done(l->done);
    return 0;
}

static int channel_of(size_t capacity, const char *what)
{
    struct line l = {NULL, NULL, 0};
    char text[64];
    int error = weft_channel_new(sizeof(int), capacity, NULL, &l.channel);
    if (error || (error = weft_waitgroup_create(&l.done)))
        return error;
    weft_waitgroup_add(l.done, 1);
    weft_time start = weft_now();
    weft_go(consume, &l);
    weft_go(produce, &l);
    error = weft_waitgroup_wait(l.done, weft_after(60 * WEFT_SEC));
    weft_time took = weft_now() - start;
    if (error)
        return error;
    snprintf(text, sizeof text, "%.0f ns an item", (double)took / ITEMS);
    say(what, text);
    must(l.sum == (long)ITEMS * (ITEMS - 1) / 2, "every item arrives once");
    weft_channel_unref(l.channel);
    weft_waitgroup_destroy(l.done);
    return 0;
}

static int channels(void *arg)
{
    (void)arg;
    int error = channel_of(0, "hand-over without a buffer");
    return error ? error : channel_of(256, "channel with room for 256");
}

/* ---- Sleep ---- */

static int sleeps(void *arg)
{
    enum { TIMES = 20 };
    const weft_time span = 20 * WEFT_MSEC;
    weft_time ours = 0, theirs = 0;
    char text[96];
    bool early = false;
    (void)arg;
    for (int i = 0; i < TIMES; i++) {
        struct timespec ts = {0, (long)span};
        weft_time start = weft_now();
        weft_sleep(span);
        weft_time middle = weft_now();
        nanosleep(&ts, NULL);
        early = early || middle - start < span;
        ours += middle - start - span;
        theirs += weft_now() - middle - span;
    }
    snprintf(text, sizeof text, "%.0f us late on average (nanosleep: %.0f us), never early",
             (double)ours / TIMES / 1e3, (double)theirs / TIMES / 1e3);
    say("a sleep of 20 ms", text);
    must(!early, "no sleep ends early");
    return 0;
}

/* ---- Idle ---- */

static int doze(void *arg)
{
    (void)arg;
    return weft_sleep(30 * WEFT_SEC);
}

/* Voluntary context switches of all threads but this one. */
static long switches(void)
{
    long sum = 0;
    char path[320];
    DIR *d = opendir("/proc/self/task");
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        long id = strtol(e->d_name, NULL, 10);
        if (id <= 0 || id == (long)getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        long n = read_number(path, "voluntary_ctxt_switches:");
        sum += n > 0 ? n : 0;
    }
    closedir(d);
    return sum;
}

static int idle(void)
{
    weft_runtime_options options = {.workers = 4};
    weft_runtime *rt = NULL;
    weft_task *t = NULL;
    char text[96];
    int error = weft_runtime_new(&options, &rt);
    if (!error)
        error = weft_spawn(rt, doze, NULL, NULL, &t);
    if (error)
        return error;
    weft_sleep(500 * WEFT_MSEC); /* the workers settle */
    long before = switches();
    clock_t cpu = clock();
    weft_sleep(2 * WEFT_SEC);
    cpu = clock() - cpu;
    long wakes = switches() - before;
    snprintf(text, sizeof text, "%ld in 2 s, %.1f ms of processor time", wakes,
             (double)cpu * 1e3 / CLOCKS_PER_SEC);
    say("wake-ups of 4 idle workers", text);
    must(wakes == 0, "an idle runtime does not wake up");
    weft_task_cancel(t);
    weft_task_unref(t);
    weft_runtime_free(rt);
    return 0;
}

/* ---- The program ---- */

/* Runs `fn` as a fiber of a runtime with `workers` workers. */
static int in_runtime(unsigned workers, weft_fn fn, void *arg)
{
    weft_runtime_options options = {.workers = workers};
    weft_runtime *rt = NULL;
    weft_task *t = NULL;
    int result = 0;
    int error = weft_runtime_new(&options, &rt);
    if (error)
        return error;
    error = weft_spawn(rt, fn, arg, NULL, &t);
    if (!error)
        error = weft_task_join(t, weft_after(120 * WEFT_SEC), &result);
    weft_task_unref(t);
    weft_runtime_free(rt);
    return error ? error : result;
}

static void chapter(const char *name, int error)
{
    if (error) {
        printf("  FAILED: %s: %s\n", name, weft_strerror(error));
        failures++;
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int fibers = 100000;
    if (argc == 2 && strcmp(argv[1], "--million") == 0) {
        fibers = 1000000;
    } else if (argc == 3 && strcmp(argv[1], "--fibers") == 0 && atoi(argv[2]) > 0) {
        fibers = atoi(argv[2]);
    } else if (argc != 1) {
        fprintf(stderr, "usage: tour [--million | --fibers N]\n");
        return 2;
    }
    printf("Tour: what fibers cost here (weft %s)\n", weft_version());
    chapter("idle", idle());
    chapter("fibers", in_runtime(0, many_fibers, &fibers));
    chapter("channels", in_runtime(1, channels, NULL));
    chapter("sleep", in_runtime(0, sleeps, NULL));
    return failures ? 1 : 0;
}

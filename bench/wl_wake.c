/* SPDX-License-Identifier: MIT
 *
 * Waking and sleeping: how late a sleep ends, how soon a task on an idle runtime runs
 * after a plain thread woke it, and what an idle runtime costs. The raw system calls
 * are timed in turns with weft's, so that both see the same weather.
 */
#include "bench.h"
#include "base/base.h"

#include "weft/event.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- sleep_precision --- */

enum { SLEEPS = 20, WAKES = 2000 };

static int sleep_fiber(void *p)
{
    double *over = p;
    weft_time want = 100 * WEFT_MSEC, t0 = weft_now();
    int r = weft_sleep(want);
    *over = bench_ns(t0) - (double)want;
    return r;
}

static void run_sleep(bench *b, bench_sample *out)
{
    int sleeps = b->quick ? SLEEPS / 4 : SLEEPS;
    double total = 0, base = 0;
    for (int i = 0; i < sleeps; i++) {
        double over = -1;
        weft_task *t;
        int result = -1;
        bench_check(weft_spawn(b->rt, sleep_fiber, &over, NULL, &t) == 0, "weft_spawn");
        bench_check(weft_task_join(t, WEFT_NEVER, &result) == 0 && result == 0, "sleep");
        weft_task_unref(t);
        bench_check(over >= 0, "a sleep ended early");
        total += over;
        base += base_nanosleep_overshoot(100 * WEFT_MSEC);
    }
    out->n = (uint64_t)sleeps;
    out->value = total / 1e6 * SLEEPS / sleeps;
    out->base = base / 1e6 * SLEEPS / sleeps;
}

static const bench_case sleep_cases[] = {
    {.variant = "1w",
     .run = run_sleep,
     .unit = "ms",
     .workers = 1,
     .repeats = 3,
     .flags = BENCH_NO_WARM_UP},
    {.variant = "2w",
     .run = run_sleep,
     .unit = "ms",
     .workers = 2,
     .repeats = 3,
     .flags = BENCH_NO_WARM_UP},
};
BENCH_WORKLOAD(sleep_precision, "20 sleeps of 100 ms in a fiber: total overshoot, base: nanosleep",
               sleep_cases);

/* --- wake_latency --- */

typedef struct sleeper {
    weft_event event;
    _Atomic weft_time ran;
} sleeper;

static int sleeper_fiber(void *p)
{
    sleeper *s = p;
    int r = weft_event_wait(&s->event, WEFT_NEVER);
    atomic_store(&s->ran, weft_now());
    return r;
}

/* One wake of a fiber that an idle runtime holds, in us. */
static double wake_fiber(weft_runtime *rt)
{
    sleeper s = {.event = WEFT_EVENT_INIT};
    weft_task *t;
    bench_check(weft_spawn(rt, sleeper_fiber, &s, NULL, &t) == 0, "weft_spawn");
    base_nap(200 * WEFT_USEC);
    weft_time t0 = weft_now();
    weft_event_set(&s.event);
    base_nap(200 * WEFT_USEC);
    bench_check(weft_task_join(t, WEFT_NEVER, NULL) == 0, "join");
    weft_task_unref(t);
    return (double)(atomic_load(&s.ran) - t0) / 1e3;
}

static void run_wake(bench *b, bench_sample *out)
{
    size_t n = b->quick ? WAKES / 4 : WAKES;
    double *weft = bench_alloc(n * sizeof *weft), *raw = bench_alloc(n * sizeof *raw);
    base_sleeper *base = base_sleeper_start();
    for (size_t i = 0; i < n; i++) {
        weft[i] = wake_fiber(b->rt);
        raw[i] = base_sleeper_wake(base);
    }
    base_sleeper_stop(base);
    out->n = n;
    out->value = out->p50_us = bench_percentile(weft, n, 0.5);
    out->p99_us = bench_percentile(weft, n, 0.99);
    out->base = bench_percentile(raw, n, 0.5);
    out->base_p99_us = bench_percentile(raw, n, 0.99);
    free(weft);
    free(raw);
}

static const bench_case wake_cases[] = {
    {.variant = "1w", .run = run_wake, .unit = "us", .workers = 1, .repeats = 5},
    {.variant = "2w", .run = run_wake, .unit = "us", .workers = 2, .repeats = 5},
};
BENCH_WORKLOAD(wake_latency, "a thread wakes a fiber of an idle runtime; base: a futex",
               wake_cases);

/* --- idle --- */

/* Context switches so far of all threads but the calling one. */
static long switches(void)
{
    char path[300], line[128], self[32];
    long total = 0, n;
    snprintf(self, sizeof self, "%ld", (long)syscall(SYS_gettid));
    DIR *d = opendir("/proc/self/task");
    bench_check(d != NULL, "/proc/self/task");
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || !strcmp(e->d_name, self))
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "re");
        bench_check(f != NULL, path);
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ||
                sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1)
                total += n;
        fclose(f);
    }
    closedir(d);
    return total;
}

static double cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static int idle_fiber(void *p)
{
    return weft_sleep(*(weft_time *)p);
}

static void run_idle(bench *b, bench_sample *out)
{
    weft_time window = (b->quick ? 2 : 8) * WEFT_SEC, sleep = window + 2 * WEFT_SEC;
    weft_task *t;
    bench_check(weft_spawn(b->rt, idle_fiber, &sleep, NULL, &t) == 0, "weft_spawn");
    base_nap(WEFT_SEC); /* workers have settled */
    long s0 = switches();
    double c0 = cpu_ms();
    base_nap(window);
    out->cpu_ms = cpu_ms() - c0;
    out->value = (double)(switches() - s0);
    out->n = 1;
    bench_check(!weft_task_done(t), "the sleeper still sleeps");
    weft_task_cancel(t);
    bench_check(weft_task_join(t, WEFT_NEVER, NULL) == 0, "join");
    weft_task_unref(t);
}

static const bench_case idle_cases[] = {
    {.variant = "4w",
     .run = run_idle,
     .unit = "switches",
     .workers = 4,
     .repeats = 1,
     .flags = BENCH_NO_WARM_UP},
};
BENCH_WORKLOAD(idle, "4 workers, one fiber sleeps 10 s: context switches in 8 s", idle_cases);

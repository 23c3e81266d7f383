/* SPDX-License-Identifier: MIT
 *
 * weft-bench -- times weft's operations, one JSON object a line.
 *
 * The frame: finds the workloads in the section that BENCH_WORKLOAD fills, runs each
 * case in a child process (so that no case sees another's memory or threads), takes
 * the median over the repeats and prints it. The numbers are only good for ratios
 * against something measured in the same run: bench/run does that.
 */
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const bench_workload *const __start_weft_bench[];
extern const bench_workload *const __stop_weft_bench[];

enum { REPEATS = 9, REPEATS_MAX = 99 };

typedef struct options {
    const char *name, *variant;
    unsigned repeats;
    bool json, quick, list, no_fork;
} options;

void bench_check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "weft-bench: check failed: %s\n", what);
    fflush(NULL);
    _exit(1);
}

void bench_go(weft_runtime *rt, weft_fn fn, void *arg)
{
    bench_check(weft_spawn(rt, fn, arg, NULL, NULL) == 0, "weft_spawn");
}

void bench_go_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t size)
{
    bench_check(weft_spawn_poll(rt, fn, init, size, NULL, NULL) == 0, "weft_spawn_poll");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(double *v, size_t n, double p)
{
    qsort(v, n, sizeof *v, compare);
    size_t i = (size_t)((double)n * p);
    return v[i < n ? i : n - 1];
}

double bench_rss(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    bench_check(f && fscanf(f, "%ld %ld", &size, &resident) == 2, "/proc/self/statm");
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

void *bench_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    bench_check(p != NULL, "out of memory");
    return p;
}

/* The figures of a sample by name, in the order of the output. */
static const struct {
    const char *key;
    size_t offset;
} figures[] = {
    {"base", offsetof(bench_sample, base)},
    {"p50_us", offsetof(bench_sample, p50_us)},
    {"p90_us", offsetof(bench_sample, p90_us)},
    {"p99_us", offsetof(bench_sample, p99_us)},
    {"base_p99_us", offsetof(bench_sample, base_p99_us)},
    {"bytes_per_task", offsetof(bench_sample, bytes_per_task)},
    {"rss_mib", offsetof(bench_sample, rss_mib)},
    {"cpu_ms", offsetof(bench_sample, cpu_ms)},
};

static double median_of(const bench_sample *s, unsigned n, size_t offset)
{
    double v[REPEATS_MAX];
    for (unsigned i = 0; i < n; i++)
        memcpy(&v[i], (const char *)&s[i] + offset, sizeof v[i]);
    return bench_percentile(v, n, 0.5);
}

static void print_json(const bench_workload *w, const bench_case *c, const bench_sample *s,
                       unsigned n, const double *sorted)
{
    printf("{\"name\":\"%s\",\"variant\":\"%s\",\"n\":%llu,\"unit\":\"%s\",\"value\":%.4g", w->name,
           c->variant, (unsigned long long)s->n, c->unit ? c->unit : "ns", sorted[n / 2]);
    if (!isnan(s->ns))
        printf(",\"ns_per_op\":%.4g", median_of(s, n, offsetof(bench_sample, ns)) / (double)s->n);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        double v = median_of(s, n, figures[i].offset);
        if (!isnan(v))
            printf(",\"%s\":%.4g", figures[i].key, v);
    }
    printf(",\"min\":%.4g,\"max\":%.4g,\"repeats\":%u}\n", sorted[0], sorted[n - 1], n);
}

static void print_text(const bench_workload *w, const bench_case *c, const bench_sample *s,
                       unsigned n, const double *sorted)
{
    char name[64];
    snprintf(name, sizeof name, "%s %s", w->name, c->variant);
    printf("%-34s %10.4g %-9s (%.4g to %.4g, %u runs)", name, sorted[n / 2],
           c->unit ? c->unit : "ns", sorted[0], sorted[n - 1], n);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        double v = median_of(s, n, figures[i].offset);
        if (!isnan(v))
            printf("  %s %.4g", figures[i].key, v);
    }
    putchar('\n');
}

typedef struct inside_arg {
    bench *b;
    bench_sample *out;
} inside_arg;

static int inside(void *p)
{
    inside_arg *a = p;
    a->b->c->run(a->b, a->out);
    return 0;
}

static void run_once(bench *b, bench_sample *out)
{
    *out = (bench_sample){0, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    if (b->c->flags & BENCH_INSIDE) {
        inside_arg a = {b, out};
        weft_task *t = NULL;
        bench_check(weft_spawn(b->rt, inside, &a, NULL, &t) == 0, "weft_spawn");
        bench_check(weft_task_join(t, WEFT_NEVER, NULL) == 0, "weft_task_join");
        weft_task_unref(t);
    } else {
        b->c->run(b, out);
    }
}

static void run_case(const bench_workload *w, const bench_case *c, const options *o)
{
    bench b = {.c = c, .quick = o->quick};
    bench_sample samples[REPEATS_MAX];
    double values[REPEATS_MAX];
    unsigned repeats = o->repeats ? o->repeats : c->repeats ? c->repeats : REPEATS;
    if (o->quick && !o->repeats && repeats > 3)
        repeats = 3;

    if (c->workers) {
        weft_runtime_options ro = {.workers = c->workers, .stack_size = c->stack_size};
        bench_check(weft_runtime_new(&ro, &b.rt) == 0, "weft_runtime_new");
    }
    if (c->setup)
        c->setup(&b);
    if (!(c->flags & BENCH_NO_WARM_UP))
        run_once(&b, &samples[0]);
    for (unsigned i = 0; i < repeats; i++) {
        bench_sample *s = &samples[i];
        run_once(&b, s);
        values[i] = isnan(s->value) ? s->ns / (double)s->n : s->value;
    }
    if (c->teardown)
        c->teardown(&b);
    weft_runtime_free(b.rt);

    qsort(values, repeats, sizeof *values, compare);
    (o->json ? print_json : print_text)(w, c, samples, repeats, values);
    fflush(stdout);
}

/* Returns 0, or 1 when the case failed. */
static int start_case(const bench_workload *w, const bench_case *c, const options *o)
{
    if (o->no_fork) {
        run_case(w, c, o);
        return 0;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        run_case(w, c, o);
        _exit(0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "weft-bench: %s %s failed (status %#x)\n", w->name, c->variant,
                (unsigned)status);
        return 1;
    }
    return 0;
}

static int pin(const char *list)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const char *p = list;;) {
        char *end;
        unsigned long cpu = strtoul(p, &end, 10);
        if (end == p || cpu >= CPU_SETSIZE || (*end && *end != ','))
            return -EINVAL;
        CPU_SET(cpu, &set);
        if (!*end)
            break;
        p = end + 1;
    }
    return sched_setaffinity(0, sizeof set, &set) ? -errno : 0;
}

static int usage(FILE *f)
{
    fputs("usage: weft-bench --list\n"
          "       weft-bench NAME [VARIANT] [--json] [--repeats N] [--quick] [--pin CPU[,CPU...]]\n"
          "NAME may be 'all'. --no-fork runs the cases in this process (for profilers).\n",
          f);
    return f == stderr ? 2 : 0;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--list")) {
            o->list = true;
        } else if (!strcmp(a, "--json")) {
            o->json = true;
        } else if (!strcmp(a, "--quick")) {
            o->quick = true;
        } else if (!strcmp(a, "--no-fork")) {
            o->no_fork = true;
        } else if (!strcmp(a, "--help")) {
            return usage(stdout);
        } else if (!strcmp(a, "--repeats") && i + 1 < argc) {
            unsigned long n = strtoul(argv[++i], NULL, 10);
            if (n < 1 || n > REPEATS_MAX)
                return usage(stderr);
            o->repeats = (unsigned)n;
        } else if (!strcmp(a, "--pin") && i + 1 < argc) {
            int r = pin(argv[++i]);
            if (r) {
                fprintf(stderr, "weft-bench: --pin %s: %s\n", argv[i], weft_strerror(r));
                return 2;
            }
        } else if (a[0] == '-' || o->variant) {
            return usage(stderr);
        } else if (o->name) {
            o->variant = a;
        } else {
            o->name = a;
        }
    }
    return o->list || o->name ? -1 : usage(stderr);
}

int main(int argc, char **argv)
{
    options o = {0};
    int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;

    unsigned found = 0, failed = 0;
    for (const bench_workload *const *p = __start_weft_bench; p < __stop_weft_bench; p++) {
        const bench_workload *w = *p;
        if (o.list)
            printf("%-16s %s\n", w->name, w->what);
        else if (strcmp(o.name, "all") && strcmp(o.name, w->name))
            continue;
        for (size_t i = 0; i < w->count; i++) {
            const bench_case *c = &w->cases[i];
            if (o.list) {
                printf("    %s\n", c->variant);
            } else if (!o.variant || !strcmp(o.variant, c->variant)) {
                found++;
                failed += (unsigned)start_case(w, c, &o);
            }
        }
    }
    if (!o.list && !found) {
        fprintf(stderr, "weft-bench: no workload '%s%s%s' (see --list)\n", o.name,
                o.variant ? " " : "", o.variant ? o.variant : "");
        return 2;
    }
    return failed ? 1 : 0;
}

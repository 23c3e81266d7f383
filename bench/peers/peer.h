/* SPDX-License-Identifier: MIT
 *
 * peer.h -- the frame of the C and C++ peers: cases by name, medians over repeats, the
 * output of weft-bench. A peer defines `peer_cases` and calls peer_main.
 */
#ifndef PEER_H
#define PEER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct peer_sample {
    double n, value, p50_us, p99_us; /* the last two: 0 where they do not apply */
} peer_sample;

typedef struct peer_case {
    const char *name, *variant, *unit;
    int repeats; /* negative: without a warm-up */
    peer_sample (*run)(long a, long b);
    long a, b;
} peer_case;

static int peer_quick;

static inline double peer_now(void) /* ns */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline void peer_nap(double ns)
{
    struct timespec t;
    t.tv_sec = (time_t)(ns / 1e9);
    t.tv_nsec = (long)(ns - (double)t.tv_sec * 1e9);
    while (nanosleep(&t, &t))
        ;
}

static inline void peer_check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "check failed: %s\n", what);
        exit(1);
    }
}

static inline double peer_resident(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    peer_check(f && fscanf(f, "%ld %ld", &size, &resident) == 2, "statm");
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static inline peer_sample peer_per_op(double n, double since)
{
    peer_sample s = {n, (peer_now() - since) / n, 0, 0};
    return s;
}

static inline int peer_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double peer_percentile(double *v, int n, double p)
{
    qsort(v, (size_t)n, sizeof *v, peer_compare);
    int i = (int)(n * p);
    return v[i < n ? i : n - 1];
}

/* A sample whose figure is the median latency, us. */
static inline peer_sample peer_latencies(double *v, int n)
{
    double p50 = peer_percentile(v, n, 0.5);
    peer_sample s = {(double)n, p50, p50, peer_percentile(v, n, 0.99)};
    return s;
}

static inline void peer_measure(const peer_case *c, int repeats)
{
    double value[64], p50[64], p99[64], n = 0;
    int warm = c->repeats > 0;
    if (!repeats)
        repeats = warm ? c->repeats : -c->repeats;
    if (peer_quick && repeats > 3)
        repeats = 3;
    if (warm)
        c->run(c->a, c->b);
    for (int i = 0; i < repeats; i++) {
        peer_sample s = c->run(c->a, c->b);
        n = s.n;
        value[i] = s.value;
        p50[i] = s.p50_us;
        p99[i] = s.p99_us;
    }
    double median = peer_percentile(value, repeats, 0.5);
    printf("{\"name\":\"%s\",\"variant\":\"%s\",\"n\":%.0f,\"unit\":\"%s\",\"value\":%.4g", c->name,
           c->variant, n, c->unit, median);
    if (p99[0] > 0)
        printf(",\"p50_us\":%.4g,\"p99_us\":%.4g", peer_percentile(p50, repeats, 0.5),
               peer_percentile(p99, repeats, 0.5));
    printf(",\"min\":%.4g,\"max\":%.4g,\"repeats\":%d}\n", value[0], value[repeats - 1], repeats);
    fflush(stdout);
}

/* echo: NULL, or serves on a port and never returns. */
static inline int peer_main(int argc, char **argv, const peer_case *cases, size_t count,
                            void (*echo)(int port))
{
    const char *word[2] = {NULL, NULL};
    int words = 0, repeats = 0, list = 0, found = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            peer_quick = 1;
        else if (!strcmp(argv[i], "--list"))
            list = found = 1;
        else if (!strcmp(argv[i], "--repeats") && i + 1 < argc)
            repeats = atoi(argv[++i]);
        else if (argv[i][0] != '-' && words < 2)
            word[words++] = argv[i];
    }
    if (repeats < 0 || repeats > 64)
        repeats = 0;
    if (echo && words == 2 && !strcmp(word[0], "echo"))
        echo(atoi(word[1]));
    for (size_t i = 0; i < count; i++) {
        const peer_case *c = &cases[i];
        if (list) {
            printf("%s %s\n", c->name, c->variant);
        } else if (words && !strcmp(word[0], c->name) &&
                   (words < 2 || !strcmp(word[1], c->variant))) {
            found = 1;
            peer_measure(c, repeats);
        }
    }
    if (!found)
        fprintf(stderr, "usage: %s --list | NAME [VARIANT] [--quick] [--repeats N]%s\n", argv[0],
                echo ? " | echo PORT" : "");
    return found ? 0 : 2;
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * bench.h -- what a workload of weft-bench is, and what it may use.
 *
 * A file bench/wl_AREA.c describes its workloads as constant tables and makes them
 * known with BENCH_WORKLOAD; nothing else has to be edited. See bench/README.md.
 *
 * A workload ("channel") has cases ("cap1/2w"). Each case runs in a process of its own:
 *
 *     [runtime with case->workers workers]  setup  (run x (warm-up + repeats))  teardown
 *
 * `run` times its own inner part and fills a sample; what it checks (exact counts) lies
 * outside the timed part. The median over the samples is reported.
 */
#ifndef BENCH_H
#define BENCH_H

#include "weft/base.h"
#include "weft/runtime.h"
#include "weft/task.h"

/* What one run measured. All fields start as NAN (n as 0): fill those that apply. */
typedef struct bench_sample {
    uint64_t n;   /* operations */
    double ns;    /* elapsed; gives ns_per_op = ns / n */
    double value; /* the figure in case->unit, where that is not "ns" */
    double base;  /* the raw baseline, in the same unit, measured in between */
    double p50_us, p90_us, p99_us;
    double base_p99_us;
    double bytes_per_task;
    double rss_mib; /* resident memory at the peak */
    double cpu_ms;
} bench_sample;

struct bench_case;

/* The case in progress. */
typedef struct bench {
    const struct bench_case *c;
    weft_runtime *rt; /* made by the frame when case->workers is not 0 */
    bool quick;       /* --quick: smaller n where the figure allows it */
    void *state;      /* setup's */
} bench;

enum {
    BENCH_INSIDE = 1,    /* `run` is called in a fiber of b->rt */
    BENCH_NO_WARM_UP = 2 /* the first run counts (memory of a fresh process) */
};

typedef struct bench_case {
    const char *variant; /* as in bench/rows.py */
    void (*run)(bench *b, bench_sample *out);
    const char *unit; /* NULL: "ns" per operation */
    unsigned workers; /* 0: no runtime, or the workload makes its own */
    unsigned flags;
    unsigned repeats;  /* 0: 9 */
    size_t stack_size; /* of the runtime's fibers; 0: the default */
    long a, b;         /* the workload's own parameters */
    void (*setup)(bench *b);
    void (*teardown)(bench *b);
} bench_case;

typedef struct bench_workload {
    const char *name, *what;
    const bench_case *cases;
    size_t count;
} bench_workload;

/* BENCH_WORKLOAD(name, "one line of what is timed", cases): `cases` is a static const
 * array. The pointer goes into a section that main.c walks. */
#define BENCH_WORKLOAD(ident, text, table)                                                         \
    static const bench_workload bench_workload_##ident = {#ident, text, table,                     \
                                                          sizeof(table) / sizeof(table)[0]};       \
    __attribute__((section("weft_bench"),                                                          \
                   used)) static const bench_workload *const bench_entry_##ident =                 \
        &bench_workload_##ident

/* Monotonic time in ns. */
static inline double bench_ns(weft_time since)
{
    return (double)(weft_now() - since);
}

/* Ends the process with a message and status 1 unless ok: a count is wrong or a call
 * failed, so no figure of this run may be believed. Not for the timed part. */
void bench_check(bool ok, const char *what);

/* weft_spawn, weft_spawn_poll that must succeed (detached). */
void bench_go(weft_runtime *rt, weft_fn fn, void *arg);
void bench_go_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t size);

/* The p-th part (0 to 1) of n figures; sorts them. */
double bench_percentile(double *v, size_t n, double p);

/* Resident bytes of this process. */
double bench_rss(void);

void *bench_alloc(size_t bytes); /* zeroed; never NULL; free() */

#endif

/* SPDX-License-Identifier: MIT
 *
 * families.c -- what is written about runtimes and workers.
 *
 * Prometheus wants all values of one name together, so everything is read first, and
 * then written family by family.
 */
#include "metrics/metrics.h"

#include "bgworker/bgworker.h"

#include <errno.h>
#include <string.h>

/* ---- Reading ---- */

struct worker_row {
    weft_worker *worker;
    weft_worker_stats stats;
};

struct rows {
    weft_metrics_source **sources;
    unsigned source_count;
    weft_runtime_stats *runtimes; /* one a source; used where the source is a runtime */
    double *values;               /* likewise */
    struct worker_row *workers;
    unsigned worker_count, worker_room;
};

static int read_worker(void *arg, weft_worker *w)
{
    struct rows *rows = arg;
    if (rows->worker_count == rows->worker_room) {
        unsigned room = rows->worker_room ? 2 * rows->worker_room : 16;
        struct worker_row *more = weft__calloc(room, sizeof *more);
        if (!more)
            return -ENOMEM;
        if (rows->worker_count)
            memcpy(more, rows->workers, rows->worker_count * sizeof *more);
        weft__free(rows->workers);
        rows->workers = more;
        rows->worker_room = room;
    }
    struct worker_row *row = &rows->workers[rows->worker_count++];
    row->worker = weft_worker_ref(w);
    return weft_worker_get_stats(w, &row->stats);
}

static int rows_read(weft_metrics *m, struct rows *rows, bool values)
{
    *rows = (struct rows){0};
    int r = weft__sources_use(m, &rows->sources, &rows->source_count);
    if (r)
        return r;
    unsigned n = rows->source_count;
    rows->runtimes = weft__calloc(n + 1, sizeof *rows->runtimes);
    rows->values = weft__calloc(n + 1, sizeof *rows->values);
    if (!rows->runtimes || !rows->values)
        return -ENOMEM;
    for (unsigned i = 0; i < n && r == 0; i++) {
        weft_metrics_source *s = rows->sources[i];
        if (s->kind == WEFT__SOURCE_RUNTIME)
            weft_runtime_get_stats(s->runtime, &rows->runtimes[i]);
        else if (s->kind == WEFT__SOURCE_REGISTRY)
            r = weft__registry_visit(s->registry, read_worker, rows);
        else if (values)
            rows->values[i] = s->metric.read(s->metric.arg);
    }
    return r;
}

static void rows_free(struct rows *rows)
{
    for (unsigned i = 0; i < rows->worker_count; i++)
        weft_worker_unref(rows->workers[i].worker);
    weft__free(rows->workers);
    weft__free(rows->runtimes);
    weft__free(rows->values);
    weft__sources_drop(rows->sources, rows->source_count);
}

/* ---- Families ---- */

enum { U32, U64, SECONDS };

struct family {
    const char *name, *help;
    bool counter;
    int type;
    size_t offset; /* in weft_worker_stats or weft_runtime_stats */
};

#define WORKER(field)  offsetof(weft_worker_stats, field)
#define RUNTIME(field) offsetof(weft_runtime_stats, field)

static const struct family worker_families[] = {
    {"weft_total_workers", "Seats of the worker.", false, U32, WORKER(seats)},
    {"weft_ready_workers", "Seats past their ready point.", false, U32, WORKER(ready)},
    {"weft_busy_workers", "Seats with a task in hand.", false, U32, WORKER(busy)},
    {"weft_given_up_workers", "Seats with too many failures.", false, U32, WORKER(given_up)},
    {"weft_worker_queue_depth", "Tasks waiting for pickup.", false, U32, WORKER(queued)},
    {"weft_worker_tasks_sent_total", "Tasks accepted.", true, U64, WORKER(sent)},
    {"weft_worker_task_seconds_total", "Time spent on tasks, from pickup to close.", true, SECONDS,
     WORKER(task_ns)},
    {"weft_worker_restarts_total", "Loops run again.", true, U64, WORKER(restarts)},
    {"weft_worker_failures_total", "Loops that failed.", true, U64, WORKER(failures)},
    {"weft_worker_fallback_wakeups_total", "Wake-ups that had been lost.", true, U64,
     WORKER(fallback_wakes)},
    {"weft_worker_late_wakeups_total", "Wake-ups that were not followed in 10 ms.", true, U64,
     WORKER(late_wakes)},
};

static const struct family runtime_families[] = {
    {"weft_runtime_tasks_spawned_total", "Tasks started.", true, U64, RUNTIME(spawned)},
    {"weft_runtime_tasks_finished_total", "Tasks ended.", true, U64, RUNTIME(finished)},
    {"weft_runtime_tasks_failed_total", "Tasks ended with an error.", true, U64, RUNTIME(failed)},
    {"weft_runtime_tasks_cancelled_total", "Tasks ended after a cancellation.", true, U64,
     RUNTIME(cancelled)},
    {"weft_runtime_tasks_rejected_total", "Spawns refused.", true, U64, RUNTIME(rejected)},
    {"weft_runtime_tasks_alive", "Tasks now.", false, U64, RUNTIME(alive)},
    {"weft_runtime_switches_total", "Times a task was given a worker.", true, U64,
     RUNTIME(switches)},
    {"weft_runtime_steals_total", "Tasks taken from another worker.", true, U64, RUNTIME(steals)},
    {"weft_runtime_parks_total", "Sleeps of workers.", true, U64, RUNTIME(parks)},
    {"weft_runtime_wakes_total", "Wake-ups of workers.", true, U64, RUNTIME(wakes)},
    {"weft_runtime_timers_armed_total", "Timers armed.", true, U64, RUNTIME(timers_armed)},
    {"weft_runtime_timers_fired_total", "Timers fired.", true, U64, RUNTIME(timers_fired)},
    {"weft_runtime_stacks", "Stacks that exist.", false, U64, RUNTIME(stacks)},
    {"weft_runtime_stacks_free", "Stacks in the pool.", false, U64, RUNTIME(stacks_free)},
};

static void head(weft__text *t, const char *name, const char *help, bool counter)
{
    if (help && *help)
        weft__text_add(t, "# HELP %s %s\n", name, help);
    weft__text_add(t, "# TYPE %s %s\n", name, counter ? "counter" : "gauge");
}

static void field(weft__text *t, const struct family *f, const void *stats)
{
    uint64_t wide = 0;
    unsigned narrow = 0;
    if (f->type == U32)
        memcpy(&narrow, (const char *)stats + f->offset, sizeof narrow);
    else
        memcpy(&wide, (const char *)stats + f->offset, sizeof wide);
    if (f->type == U32)
        weft__text_add(t, " %u\n", narrow);
    else if (f->type == U64)
        weft__text_add(t, " %llu\n", (unsigned long long)wide);
    else
        weft__text_add(t, " %llu.%09llu\n", (unsigned long long)(wide / 1000000000u),
                       (unsigned long long)(wide % 1000000000u));
}

static void worker_labels(weft__text *t, const char *name, const weft_worker *w)
{
    weft__text_add(t, "%s{worker=", name);
    weft__text_quoted(t, weft_worker_name(w));
    weft__text_add(t, ",scope=");
    weft__text_quoted(t, weft_worker_scope(w));
}

static void write_workers(const struct rows *rows, weft__text *t)
{
    static const char *const outcomes[WEFT_TASK_OUTCOMES] = {
        [WEFT_TASK_COMPLETED] = "completed", [WEFT_TASK_ABORTED] = "aborted",
        [WEFT_TASK_ABANDONED] = "abandoned", [WEFT_TASK_TIMEOUT] = "timeout",
        [WEFT_TASK_RELEASED] = "released",
    };
    if (rows->worker_count == 0)
        return;
    for (size_t f = 0; f < sizeof worker_families / sizeof *worker_families; f++) {
        head(t, worker_families[f].name, worker_families[f].help, worker_families[f].counter);
        for (unsigned i = 0; i < rows->worker_count; i++) {
            worker_labels(t, worker_families[f].name, rows->workers[i].worker);
            weft__text_add(t, "}");
            field(t, &worker_families[f], &rows->workers[i].stats);
        }
    }
    head(t, "weft_worker_tasks_total", "Tasks that have ended, by outcome.", true);
    for (unsigned i = 0; i < rows->worker_count; i++)
        for (int o = WEFT_TASK_COMPLETED; o < WEFT_TASK_OUTCOMES; o++) {
            worker_labels(t, "weft_worker_tasks_total", rows->workers[i].worker);
            weft__text_add(t, ",outcome=\"%s\"} %llu\n", outcomes[o],
                           (unsigned long long)rows->workers[i].stats.outcomes[o]);
        }
}

static void write_runtimes(const struct rows *rows, weft__text *t)
{
    for (size_t f = 0; f < sizeof runtime_families / sizeof *runtime_families; f++) {
        bool first = true;
        for (unsigned i = 0; i < rows->source_count; i++) {
            if (rows->sources[i]->kind != WEFT__SOURCE_RUNTIME)
                continue;
            if (first)
                head(t, runtime_families[f].name, runtime_families[f].help,
                     runtime_families[f].counter);
            first = false;
            weft__text_add(t, "%s{runtime=", runtime_families[f].name);
            weft__text_quoted(t, rows->sources[i]->name);
            weft__text_add(t, "}");
            field(t, &runtime_families[f], &rows->runtimes[i]);
        }
    }
}

/* Values of the caller's own; those of one name together, where the first stands. */
static void write_values(const struct rows *rows, weft__text *t)
{
    for (unsigned i = 0; i < rows->source_count; i++) {
        const weft_metrics_source *s = rows->sources[i];
        bool first = s->kind == WEFT__SOURCE_VALUE;
        for (unsigned k = 0; k < i && first; k++)
            first = rows->sources[k]->kind != WEFT__SOURCE_VALUE ||
                    strcmp(rows->sources[k]->name, s->name) != 0;
        if (!first)
            continue;
        head(t, s->name, s->help, s->metric.kind == WEFT_METRIC_COUNTER);
        for (unsigned k = i; k < rows->source_count; k++) {
            const weft_metrics_source *o = rows->sources[k];
            if (o->kind != WEFT__SOURCE_VALUE || strcmp(o->name, s->name) != 0)
                continue;
            weft__text_add(t, *o->labels ? "%s{%s} " : "%s%s ", o->name, o->labels);
            weft__text_number(t, rows->values[k]);
            weft__text_add(t, "\n");
        }
    }
}

int weft__prometheus(weft_metrics *m, weft__text *text)
{
    struct rows rows;
    int r = rows_read(m, &rows, true);
    if (r == 0) {
        write_runtimes(&rows, text);
        write_workers(&rows, text);
        write_values(&rows, text);
    }
    rows_free(&rows);
    return r;
}

/* ---- JSON ---- */

static void write_seat(weft__text *t, const weft_worker *w, const weft_seat_info *s, weft_time now,
                       bool first)
{
    static const char *const states[] = {
        [WEFT_SEAT_FREE] = "free",         [WEFT_SEAT_STARTING] = "starting",
        [WEFT_SEAT_READY] = "ready",       [WEFT_SEAT_BUSY] = "busy",
        [WEFT_SEAT_LEAVING] = "leaving",   [WEFT_SEAT_BACKOFF] = "backoff",
        [WEFT_SEAT_GIVEN_UP] = "given_up",
    };
    weft__text_add(t, "%s\n{\"worker\":", first ? "" : ",");
    weft__text_quoted(t, weft_worker_name(w));
    weft__text_add(t, ",\"scope\":");
    weft__text_quoted(t, weft_worker_scope(w));
    weft__text_add(t, ",\"seat\":%u,\"kind\":\"%s\",\"state\":\"%s\",\"age_s\":%.3f", s->index,
                   s->kind, states[s->state], (double)(now - s->since) / 1e9);
    if (s->task)
        weft__text_add(t, ",\"task\":%llu,\"task_age_s\":%.3f}", (unsigned long long)s->task,
                       (double)(now - s->task_at) / 1e9);
    else
        weft__text_add(t, ",\"task\":null}");
}

int weft__threads_json(weft_metrics *m, weft__text *text)
{
    struct rows rows;
    weft_seat_info *seats = weft__calloc(WEFT_SEATS_MAX, sizeof *seats);
    int r = rows_read(m, &rows, false);
    if (r == 0 && !seats)
        r = -ENOMEM;
    if (r == 0) {
        bool first = true;
        weft__text_add(text, "[");
        for (unsigned i = 0; i < rows.worker_count; i++) {
            weft_worker *w = rows.workers[i].worker;
            int n = weft_worker_get_seats(w, seats, WEFT_SEATS_MAX);
            weft_time now = weft_now();
            for (int k = 0; k < n && k < WEFT_SEATS_MAX; k++) {
                write_seat(text, w, &seats[k], now, first);
                first = false;
            }
        }
        weft__text_add(text, "\n]\n");
    }
    weft__free(seats);
    rows_free(&rows);
    return r;
}

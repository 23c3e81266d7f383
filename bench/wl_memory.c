/* SPDX-License-Identifier: MIT
 *
 * Resident bytes per parked task, in a fresh process; all of them are woken and counted
 * afterwards.
 */
#include "bench.h"

#include "weft/event.h"
#include "weft/waitgroup.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct crowd {
    weft_event event;
    weft_waitgroup parked, done;
    atomic_bool open;
    atomic_long woken;
} crowd;

static int park_fiber(void *p)
{
    crowd *c = p;
    weft_waitgroup_done(&c->parked);
    if (weft_event_wait(&c->event, WEFT_NEVER) == 0)
        atomic_fetch_add(&c->woken, 1);
    weft_waitgroup_done(&c->done);
    return 0;
}

static int park_poll(weft_task *self, void *state)
{
    crowd *c = *(crowd **)state;
    (void)self;
    if (!atomic_load(&c->open)) {
        weft_waitgroup_done(&c->parked);
        return WEFT_PENDING;
    }
    atomic_fetch_add(&c->woken, 1);
    weft_waitgroup_done(&c->done);
    return 0;
}

static void run_memory(bench *b, bench_sample *out)
{
    int n = (int)b->c->a;
    crowd *c = bench_alloc(sizeof *c);
    weft_task **task = bench_alloc((size_t)n * sizeof *task);
    for (int i = 0; i < n; i += 256)
        ((weft_task *volatile *)task)[i] = NULL; /* resident before the first reading */
    weft_waitgroup_add(&c->parked, n);
    weft_waitgroup_add(&c->done, n);
    double before = bench_rss();
    for (int i = 0; i < n; i++)
        bench_check((b->c->b ? weft_spawn_poll(b->rt, park_poll, &c, sizeof c, NULL, &task[i])
                             : weft_spawn(b->rt, park_fiber, c, NULL, &task[i])) == 0,
                    "spawn");
    bench_check(weft_waitgroup_wait(&c->parked, WEFT_NEVER) == 0, "wait until all are parked");
    weft_sleep(100 * WEFT_MSEC);
    out->bytes_per_task = out->value = (bench_rss() - before) / n;
    out->n = (uint64_t)n;

    atomic_store(&c->open, true);
    weft_event_set(&c->event);
    for (int i = 0; i < n; i++) {
        if (b->c->b)
            weft_task_wake(task[i]);
        weft_task_unref(task[i]);
    }
    bench_check(weft_waitgroup_wait(&c->done, WEFT_NEVER) == 0, "wait until all have ended");
    bench_check(atomic_load(&c->woken) == n, "every parked task was woken once");
    free(task);
    free(c);
}

#define MEMORY(label, count, poll)                                                                 \
    {                                                                                              \
        .variant = label, .run = run_memory, .unit = "bytes", .workers = 2, .repeats = 1,          \
        .flags = BENCH_NO_WARM_UP, .a = count, .b = poll                                           \
    }
static const bench_case memory_cases[] = {
    MEMORY("fiber/100000", 100000, 0),
    MEMORY("poll/100000", 100000, 1),
    MEMORY("fiber/1000000", 1000000, 0),
    MEMORY("poll/1000000", 1000000, 1),
};
BENCH_WORKLOAD(memory, "resident bytes per parked task", memory_cases);

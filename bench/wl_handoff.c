/* SPDX-License-Identifier: MIT
 *
 * Handing a task to a named worker and reading its answer: one sender at a time (round
 * trip, in turns with two threads that exchange two semaphores), and eight senders on
 * eight seats (tasks a second).
 */
#include "bench.h"

#include "weft/bgworker.h"
#include "weft/waitgroup.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND_TRIPS = 20000, BLOCK = 500, SENDERS = 8, EACH = 10000 };

/* case->a: seats; case->b: the seats are fibers; workers == 0: seats are threads. */
struct stage {
    weft_registry *reg;
    weft_worker *worker;
    bool steps;
};

static int echo_loop(weft_seat *seat, void *arg)
{
    (void)arg;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        uint64_t v;
        memcpy(&v, weft_buffer_data(weft_received_payload(task)), sizeof v);
        v++;
        weft_buffer *answer;
        bench_check(weft_buffer_copy(&v, sizeof v, &answer) == 0, "buffer");
        bench_check(weft_received_complete(task, answer) == 0, "complete");
        weft_received_free(task);
    }
    return 0;
}

static void setup(bench *b)
{
    struct stage *s = bench_alloc(sizeof *s);
    bench_check(weft_registry_new(NULL, &s->reg) == 0, "registry");
    weft_worker_options o = {
        .loop = echo_loop, .seats = (unsigned)b->c->a, .runtime = b->c->b ? b->rt : NULL};
    bench_check(weft_worker_start(s->reg, "echo", &o, &s->worker) == 0, "worker");
    bench_check(weft_worker_wait_ready(s->worker, weft_after(10 * WEFT_SEC)) == 0, "ready");
    s->steps = strstr(b->c->variant, "steps") != NULL;
    b->state = s;
}

static void teardown(bench *b)
{
    struct stage *s = b->state;
    weft_worker_stats st;
    bench_check(weft_worker_stop(s->worker, weft_after(10 * WEFT_SEC), NULL, 0) == 0, "stop");
    bench_check(weft_worker_get_stats(s->worker, &st) == 0, "stats");
    bench_check(st.sent == st.outcomes[WEFT_TASK_COMPLETED], "a task was lost");
    bench_check(st.fallback_wakes == 0, "a wake-up was lost");
    weft_worker_unref(s->worker);
    weft_registry_free(s->reg);
    free(s);
}

static bool call(weft_registry *reg, uint64_t value)
{
    weft_buffer *b, *result;
    uint64_t answer = 0;
    if (weft_buffer_copy(&value, sizeof value, &b) != 0)
        return false;
    if (weft_registry_call(reg, NULL, "echo", b, WEFT_NEVER, &result) == 0) {
        memcpy(&answer, weft_buffer_data(result), sizeof answer);
        weft_buffer_unref(result);
    }
    weft_buffer_unref(b);
    return answer == value + 1;
}

/* The same in steps: the sender is also told of the pickup. */
static bool call_in_steps(weft_registry *reg, uint64_t value)
{
    weft_buffer *b;
    weft_sent *sent;
    uint64_t answer = 0;
    if (weft_buffer_copy(&value, sizeof value, &b) != 0 ||
        weft_registry_send(reg, NULL, "echo", b, WEFT_NEVER, &sent) != 0)
        return false;
    if (weft_sent_read(sent, WEFT_NEVER, &b) == 1) {
        memcpy(&answer, weft_buffer_data(b), sizeof answer);
        weft_buffer_unref(b);
    }
    weft_sent_free(sent);
    return answer == value + 1;
}

/* --- one sender --- */

struct semaphores {
    sem_t there, back;
    bool end;
};

static void *semaphore_thread(void *arg)
{
    struct semaphores *s = arg;
    for (;;) {
        while (sem_wait(&s->there) != 0)
            ;
        if (s->end)
            return NULL;
        sem_post(&s->back);
    }
}

static void run_one(bench *b, bench_sample *out)
{
    struct stage *st = b->state;
    size_t n = b->quick ? ROUND_TRIPS / 4 : ROUND_TRIPS;
    double *mine = bench_alloc(n * sizeof *mine), *base = bench_alloc(n * sizeof *base);
    struct semaphores s = {.end = false};
    pthread_t thread;
    sem_init(&s.there, 0, 0);
    sem_init(&s.back, 0, 0);
    bench_check(pthread_create(&thread, NULL, semaphore_thread, &s) == 0, "thread");
    for (size_t i = 0; i < n; i += BLOCK) {
        for (size_t k = i; k < i + BLOCK; k++) {
            weft_time t0 = weft_now();
            sem_post(&s.there);
            while (sem_wait(&s.back) != 0)
                ;
            base[k] = bench_ns(t0) / 1e3;
        }
        for (size_t k = i; k < i + BLOCK; k++) {
            weft_time t0 = weft_now();
            bool ok = st->steps ? call_in_steps(st->reg, k) : call(st->reg, k);
            mine[k] = bench_ns(t0) / 1e3;
            bench_check(ok, "answer");
        }
    }
    s.end = true;
    sem_post(&s.there);
    pthread_join(thread, NULL);
    out->n = n;
    out->p50_us = out->value = bench_percentile(mine, n, 0.5);
    out->p99_us = bench_percentile(mine, n, 0.99);
    out->base = bench_percentile(base, n, 0.5);
    out->base_p99_us = bench_percentile(base, n, 0.99);
    free(mine);
    free(base);
}

/* --- eight senders --- */

struct sender {
    weft_registry *reg;
    int each;
    weft_waitgroup *done;
};

static int send_all(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < s->each; i++)
        bench_check(call(s->reg, (uint64_t)i), "answer");
    if (s->done)
        weft_waitgroup_done(s->done);
    return 0;
}

static void *send_all_thread(void *arg)
{
    send_all(arg);
    return NULL;
}

static void run_threads(bench *b, bench_sample *out)
{
    struct stage *st = b->state;
    struct sender s = {st->reg, b->quick ? EACH / 4 : EACH, NULL};
    pthread_t t[SENDERS];
    weft_time t0 = weft_now();
    for (int i = 0; i < SENDERS; i++)
        bench_check(pthread_create(&t[i], NULL, send_all_thread, &s) == 0, "thread");
    for (int i = 0; i < SENDERS; i++)
        pthread_join(t[i], NULL);
    out->ns = bench_ns(t0);
    out->n = (uint64_t)(SENDERS * s.each);
    out->value = (double)out->n / out->ns * 1e6;
}

static void run_fibers(bench *b, bench_sample *out)
{
    struct stage *st = b->state;
    weft_waitgroup done = WEFT_WAITGROUP_INIT;
    struct sender s = {st->reg, b->quick ? EACH / 4 : EACH, &done};
    bench_check(weft_waitgroup_add(&done, SENDERS) >= 0, "waitgroup");
    weft_time t0 = weft_now();
    for (int i = 0; i < SENDERS; i++)
        bench_go(b->rt, send_all, &s);
    bench_check(weft_waitgroup_wait(&done, WEFT_NEVER) == 0, "wait");
    out->ns = bench_ns(t0);
    out->n = (uint64_t)(SENDERS * s.each);
    out->value = (double)out->n / out->ns * 1e6;
}

#define CASE(v, r, u, w, seats, fibers)                                                            \
    {                                                                                              \
        .variant = v, .run = r, .unit = u, .workers = w, .a = seats, .b = fibers, .repeats = 5,    \
        .setup = setup, .teardown = teardown                                                       \
    }

static const bench_case cases[] = {
    CASE("1x1/1w", run_one, "us", 1, 1, 1),              /* plain thread to a fiber */
    CASE("1x1/2w", run_one, "us", 2, 1, 1),              /* the same */
    CASE("1x1/thread", run_one, "us", 0, 1, 0),          /* plain thread to a thread */
    CASE("1x1/thread/steps", run_one, "us", 0, 1, 0),    /* send, then read */
    CASE("1x8/thread", run_one, "us", 0, 8, 0),          /* ... to a pool of 8 */
    CASE("8x8/threads", run_threads, "k/s", 2, 8, 1),    /* plain threads to fibers */
    CASE("8x8/to_threads", run_threads, "k/s", 0, 8, 0), /* plain threads to threads */
    CASE("8x8/tasks", run_fibers, "k/s", 2, 8, 1),       /* fibers to fibers */
    CASE("8x8/tasks/1w", run_fibers, "k/s", 1, 8, 1),    /* the same on one processor */
};
BENCH_WORKLOAD(handoff, "a task to a named worker and its answer; base: two semaphores", cases);

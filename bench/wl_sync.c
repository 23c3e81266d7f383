/* SPDX-License-Identifier: MIT
 *
 * Mutex, channel, select and value, between fibers, and between fibers and threads.
 */
#include "bench.h"

#include "weft/channel.h"
#include "weft/mutex.h"
#include "weft/select.h"
#include "weft/value.h"

#include <pthread.h>
#include <stdlib.h>

/* --- mutex --- */

enum { LOCKS = 1000000, LOCKERS = 8, LOCKS_EACH = 100000 };

typedef struct counter {
    weft_mutex mutex;
    long value;
    long each;
    int failed;
} counter;

static int locker(void *p)
{
    counter *c = p;
    for (long i = 0; i < c->each; i++) {
        if (weft_mutex_lock(&c->mutex, WEFT_NEVER))
            return -1;
        c->value++;
        weft_mutex_unlock(&c->mutex);
    }
    return 0;
}

static void run_mutex(bench *b, bench_sample *out)
{
    int n = (int)b->c->a;
    counter c = {.mutex = WEFT_MUTEX_INIT, .each = n == 1 ? LOCKS : LOCKS_EACH};
    weft_task *task[LOCKERS];
    int failed = 0;
    weft_time t0 = weft_now();
    if (n == 1) {
        failed = locker(&c);
    } else {
        for (int i = 0; i < n; i++)
            bench_check(weft_spawn(b->rt, locker, &c, NULL, &task[i]) == 0, "weft_spawn");
        for (int i = 0; i < n; i++)
            failed |= weft_task_join(task[i], WEFT_NEVER, NULL);
    }
    out->ns = bench_ns(t0);
    out->n = (uint64_t)(n * c.each);
    for (int i = 0; n > 1 && i < n; i++)
        weft_task_unref(task[i]);
    bench_check(!failed && c.value == n * c.each, "no increment was lost");
}

static const bench_case mutex_cases[] = {
    {.variant = "uncontended", .run = run_mutex, .workers = 1, .flags = BENCH_INSIDE, .a = 1},
    {.variant = "8x/1w", .run = run_mutex, .workers = 1, .flags = BENCH_INSIDE, .a = LOCKERS},
    {.variant = "8x/2w", .run = run_mutex, .workers = 2, .flags = BENCH_INSIDE, .a = LOCKERS},
    {.variant = "8x/8w", .run = run_mutex, .workers = 8, .flags = BENCH_INSIDE, .a = LOCKERS},
    {.variant = "8x/64w", .run = run_mutex, .workers = 64, .flags = BENCH_INSIDE, .a = LOCKERS},
};
BENCH_WORKLOAD(mutex, "lock and unlock; ns per pair", mutex_cases);

/* --- channel --- */

enum { ITEMS = 1000000, ENDS_MAX = 4 };
enum { FIBERS, THREAD_TO_FIBER, FIBER_TO_THREAD };

typedef struct stream {
    weft_channel *ch;
    uint64_t first, count; /* a sender's */
    uint64_t got, sum;     /* a receiver's */
    int error;
} stream;

static int sender(void *p)
{
    stream *s = p;
    for (uint64_t i = s->first; i < s->first + s->count; i++) {
        s->error = weft_channel_send(s->ch, &i, WEFT_NEVER);
        if (s->error)
            break;
    }
    return 0;
}

static int receiver(void *p)
{
    stream *s = p;
    uint64_t item;
    while (weft_channel_recv(s->ch, &item, WEFT_NEVER) == 0) {
        s->got++;
        s->sum += item;
    }
    return 0;
}

static void *sender_thread(void *p)
{
    sender(p);
    return NULL;
}

static void *receiver_thread(void *p)
{
    receiver(p);
    return NULL;
}

typedef struct end {
    weft_task *task;
    pthread_t thread;
} end;

static void start_end(bench *b, end *e, bool thread, weft_fn fn, void *(*body)(void *), stream *s)
{
    e->task = NULL;
    bench_check((thread ? pthread_create(&e->thread, NULL, body, s)
                        : weft_spawn(b->rt, fn, s, NULL, &e->task)) == 0,
                "start an end of the channel");
}

static void join_end(end *e)
{
    if (!e->task) {
        pthread_join(e->thread, NULL);
        return;
    }
    bench_check(weft_task_join(e->task, WEFT_NEVER, NULL) == 0, "join");
    weft_task_unref(e->task);
}

#define CHANNEL_SHAPE(ends, kind) ((ends) + 16 * (kind))

static void run_channel(bench *b, bench_sample *out)
{
    int n = (int)b->c->b % 16, kind = (int)b->c->b / 16;
    /* Nearly each item of a thread over capacity 1 is a sleep and a wake in the kernel. */
    bool slow = kind != FIBERS && b->c->a == 1;
    uint64_t items = (uint64_t)(b->quick ? ITEMS / 10 : ITEMS) / (slow ? 10 : 1);
    uint64_t per = items / (uint64_t)n, got = 0, sum = 0;
    stream tx[ENDS_MAX] = {{0}}, rx[ENDS_MAX] = {{0}};
    end tx_end[ENDS_MAX], rx_end[ENDS_MAX];
    weft_channel *ch;
    bench_check(weft_channel_new(sizeof(uint64_t), (size_t)b->c->a, NULL, &ch) == 0, "channel");
    weft_time t0 = weft_now();
    for (int i = 0; i < n; i++) {
        tx[i] = (stream){.ch = ch, .first = (uint64_t)i * per, .count = per};
        start_end(b, &tx_end[i], kind == THREAD_TO_FIBER, sender, sender_thread, &tx[i]);
    }
    for (int i = 0; i < n; i++) {
        rx[i] = (stream){.ch = ch};
        start_end(b, &rx_end[i], kind == FIBER_TO_THREAD, receiver, receiver_thread, &rx[i]);
    }
    for (int i = 0; i < n; i++)
        join_end(&tx_end[i]);
    weft_channel_close(ch);
    for (int i = 0; i < n; i++)
        join_end(&rx_end[i]);
    out->ns = bench_ns(t0);
    out->n = items;
    for (int i = 0; i < n; i++) {
        got += rx[i].got;
        sum += rx[i].sum;
        bench_check(tx[i].error == 0, "send");
    }
    bench_check(got == items && sum == items * (items - 1) / 2, "every item came once");
    weft_channel_unref(ch);
}

#define CHANNEL(label, w, cap, ends, kind)                                                         \
    {                                                                                              \
        .variant = label, .run = run_channel, .workers = w, .repeats = 5, .a = cap,                \
        .b = CHANNEL_SHAPE(ends, kind), .flags = (kind) == FIBERS ? BENCH_INSIDE : 0               \
    }
static const bench_case channel_cases[] = {
    CHANNEL("cap0/1w", 1, 0, 1, FIBERS),
    CHANNEL("cap0/2w", 2, 0, 1, FIBERS),
    CHANNEL("cap1/1w", 1, 1, 1, FIBERS),
    CHANNEL("cap1/2w", 2, 1, 1, FIBERS),
    CHANNEL("cap128/1w", 1, 128, 1, FIBERS),
    CHANNEL("cap128/2w", 2, 128, 1, FIBERS),
    CHANNEL("cap128/4x4/1w", 1, 128, 4, FIBERS),
    CHANNEL("cap128/4x4/2w", 2, 128, 4, FIBERS),
    CHANNEL("cap128/4x4/8w", 8, 128, 4, FIBERS),
    CHANNEL("cap128/4x4/64w", 64, 128, 4, FIBERS),
    CHANNEL("cap1/thread_to_fiber", 1, 1, 1, THREAD_TO_FIBER),
    CHANNEL("cap1/fiber_to_thread", 1, 1, 1, FIBER_TO_THREAD),
    CHANNEL("cap128/thread_to_fiber", 1, 128, 1, THREAD_TO_FIBER),
    CHANNEL("cap128/fiber_to_thread", 1, 128, 1, FIBER_TO_THREAD),
};
BENCH_WORKLOAD(channel, "1,000,000 u64 from producers to consumers; ns per item", channel_cases);

/* --- select --- */

enum { SOURCES = 4 };

static int select_sender(void *p)
{
    sender(p);
    weft_channel_close(((stream *)p)->ch);
    return 0;
}

static void run_select(bench *b, bench_sample *out)
{
    uint64_t items = b->quick ? ITEMS / 10 : ITEMS, got = 0, sum = 0, value[SOURCES];
    stream tx[SOURCES];
    weft_select_case cases[SOURCES];
    int failed = 0, open = SOURCES;
    weft_time t0 = weft_now();
    for (int i = 0; i < SOURCES; i++) {
        tx[i] = (stream){.first = (uint64_t)i * items / SOURCES, .count = items / SOURCES};
        bench_check(weft_channel_new(sizeof(uint64_t), 128, NULL, &tx[i].ch) == 0, "channel");
        cases[i] = weft_case_recv(tx[i].ch, &value[i]);
        bench_go(b->rt, select_sender, &tx[i]);
    }
    while (open > 0 && !failed) {
        int i = weft_select(cases, SOURCES, 0, WEFT_NEVER);
        if (i < 0) {
            failed = i;
        } else if (cases[i].result) {
            cases[i].off = true;
            open--;
        } else {
            got++;
            sum += value[i];
        }
    }
    out->ns = bench_ns(t0);
    out->n = items;
    bench_check(!failed && got == items && sum == items * (items - 1) / 2, "every item came once");
    for (int i = 0; i < SOURCES; i++)
        weft_channel_unref(tx[i].ch);
}

static const bench_case select_cases[] = {
    {.variant = "4/1w", .run = run_select, .workers = 1, .flags = BENCH_INSIDE, .repeats = 5},
    {.variant = "4/2w", .run = run_select, .workers = 2, .flags = BENCH_INSIDE, .repeats = 5},
};
BENCH_WORKLOAD(select, "over 4 channels of 128 with a producer each; ns per item", select_cases);

/* --- value: one that is there already, and one that a fiber waits for --- */

enum { VALUES = 200000 };

static void run_value_ready(bench *b, bench_sample *out)
{
    int failed = 0;
    uintptr_t sum = 0;
    (void)b;
    weft_time t0 = weft_now();
    for (uintptr_t i = 0; i < VALUES; i++) {
        weft_value v = WEFT_VALUE_INIT;
        void *got = NULL;
        failed |= weft_value_set(&v, (void *)i);
        failed |= weft_value_wait(&v, WEFT_NEVER, &got);
        sum += (uintptr_t)got;
    }
    out->ns = bench_ns(t0);
    out->n = VALUES;
    bench_check(!failed && sum == (uintptr_t)VALUES * (VALUES - 1) / 2, "every value came");
}

static int set_value(void *p)
{
    return weft_value_set(p, p);
}

static void run_value_waited(bench *b, bench_sample *out)
{
    int failed = 0;
    weft_time t0 = weft_now();
    for (int i = 0; i < VALUES; i++) {
        weft_value v = WEFT_VALUE_INIT;
        void *got = NULL;
        failed |= weft_spawn(b->rt, set_value, &v, NULL, NULL);
        failed |= weft_value_wait(&v, WEFT_NEVER, &got);
        failed |= got != &v;
    }
    out->ns = bench_ns(t0);
    out->n = VALUES;
    bench_check(!failed, "every value came");
}

static const bench_case value_cases[] = {
    {.variant = "ready", .run = run_value_ready, .workers = 1, .flags = BENCH_INSIDE},
    {.variant = "waited/1w", .run = run_value_waited, .workers = 1, .flags = BENCH_INSIDE},
    {.variant = "waited/2w", .run = run_value_waited, .workers = 2, .flags = BENCH_INSIDE},
};
BENCH_WORKLOAD(value, "set and get; spawn a fiber that sets what is awaited", value_cases);

/* --- request: a channel to a server fiber, a value for the answer --- */

enum { CLIENTS = 8, REQUESTS = 10000 };
enum { ONE_THREAD, THREADS, TASKS };

typedef struct request {
    uint64_t number;
    weft_value *reply;
} request;

typedef struct client {
    weft_channel *ch;
    uint64_t count;
    double *waited; /* us, or NULL */
    int failed;
} client;

static int serve_requests(void *p)
{
    request r;
    while (weft_channel_recv(p, &r, WEFT_NEVER) == 0)
        weft_value_set(r.reply, (void *)(uintptr_t)(r.number + 1));
    return 0;
}

static int client_body(void *p)
{
    client *c = p;
    for (uint64_t i = 0; i < c->count; i++) {
        weft_time t0 = c->waited ? weft_now() : 0;
        weft_value reply = WEFT_VALUE_INIT;
        request r = {i, &reply};
        void *answer = NULL;
        if (weft_channel_send(c->ch, &r, WEFT_NEVER) ||
            weft_value_wait(&reply, WEFT_NEVER, &answer) || (uintptr_t)answer != i + 1)
            c->failed = 1;
        if (c->waited)
            c->waited[i] = bench_ns(t0) / 1e3;
    }
    return 0;
}

static void *client_thread(void *p)
{
    client_body(p);
    return NULL;
}

static void run_request(bench *b, bench_sample *out)
{
    int n = b->c->a == ONE_THREAD ? 1 : CLIENTS;
    uint64_t count = (uint64_t)(b->quick ? REQUESTS / 4 : REQUESTS) * (n == 1 ? 2 : 1);
    client c[CLIENTS];
    end server[CLIENTS], sender_end[CLIENTS];
    double *waited = n == 1 ? bench_alloc(count * sizeof *waited) : NULL;
    for (int i = 0; i < n; i++) {
        c[i] = (client){.count = count, .waited = waited};
        bench_check(weft_channel_new(sizeof(request), 128, NULL, &c[i].ch) == 0, "channel");
        server[i].task = NULL;
        bench_check(weft_spawn(b->rt, serve_requests, c[i].ch, NULL, &server[i].task) == 0,
                    "weft_spawn");
    }
    weft_time t0 = weft_now();
    for (int i = 0; i < n; i++) {
        sender_end[i].task = NULL;
        bench_check((b->c->a == TASKS
                         ? weft_spawn(b->rt, client_body, &c[i], NULL, &sender_end[i].task)
                         : pthread_create(&sender_end[i].thread, NULL, client_thread, &c[i])) == 0,
                    "start a client");
    }
    for (int i = 0; i < n; i++)
        join_end(&sender_end[i]);
    out->ns = bench_ns(t0);
    out->n = (uint64_t)n * count;
    out->value = (double)out->n / out->ns * 1e6;
    if (waited) {
        out->value = out->p50_us = bench_percentile(waited, count, 0.5);
        out->p99_us = bench_percentile(waited, count, 0.99);
    }
    for (int i = 0; i < n; i++) {
        weft_channel_close(c[i].ch);
        join_end(&server[i]);
        weft_channel_unref(c[i].ch);
        bench_check(!c[i].failed, "every request was answered");
    }
    free(waited);
}

static const bench_case request_cases[] = {
    {.variant = "1x1/1w", .run = run_request, .unit = "us", .workers = 1, .repeats = 5},
    {.variant = "1x1/2w", .run = run_request, .unit = "us", .workers = 2, .repeats = 5},
    {.variant = "8x8/threads",
     .run = run_request,
     .unit = "k/s",
     .workers = 2,
     .repeats = 5,
     .a = THREADS},
    {.variant = "8x8/tasks",
     .run = run_request,
     .unit = "k/s",
     .workers = 2,
     .repeats = 5,
     .a = TASKS},
};
BENCH_WORKLOAD(request, "requests over a channel to a fiber, answers by value", request_cases);

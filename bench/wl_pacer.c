/* SPDX-License-Identifier: MIT
 *
 * Waits that are paced and waits that need not be: a hand-over through a channel of
 * capacity 1, what rest costs, how late sleeps end, how soon a task runs that arrives in
 * an idle wait. "weft": tasks of a runtime, which never look. "host": fibers of a host on
 * ucontext (examples/mini_host.h), which looks at its waiters as the pacer says.
 */
#include "bench.h"
#include "base/base.h"

#include "../examples/mini_host.h"

#include "weft/weft.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- handoff: c->a items, c->b threads of the host --- */

typedef struct side {
    weft_channel *ch;
    long n;
    long long sum;
    bool send;
    weft_host *host;
    mini_host *mine;
} side;

static int task_side(void *p)
{
    side *s = p;
    int r = 0, item = 0;
    for (long i = 0; i < s->n && r == 0; i++) {
        item = (int)i;
        r = s->send ? weft_channel_send(s->ch, &item, WEFT_NEVER)
                    : weft_channel_recv(s->ch, &item, WEFT_NEVER);
        s->sum += item;
    }
    return r;
}

static void run_tasks(bench *b, bench_sample *out)
{
    long n = b->quick && b->c->a > 50000 ? 50000 : b->c->a;
    weft_channel *ch;
    weft_task *t[2];
    bench_check(weft_channel_new(sizeof(int), 1, NULL, &ch) == 0, "channel");
    side s[2] = {{.ch = ch, .n = n, .send = true}, {.ch = ch, .n = n}};
    weft_time t0 = weft_now();
    for (int i = 0; i < 2; i++)
        bench_check(weft_spawn(b->rt, task_side, &s[i], NULL, &t[i]) == 0, "spawn");
    for (int i = 0; i < 2; i++)
        bench_check(weft_task_join(t[i], WEFT_NEVER, NULL) == 0, "join");
    out->ns = bench_ns(t0);
    out->n = (uint64_t)n;
    bench_check(s[0].sum == s[1].sum, "what was sent was received");
    for (int i = 0; i < 2; i++)
        weft_task_unref(t[i]);
    weft_channel_unref(ch);
}

static void fiber_side(mini_fiber *self, void *p)
{
    side *s = p;
    int item;
    for (long i = 0; i < s->n; i++) {
        item = (int)i;
        int r = s->send ? mini_send(self, s->ch, &item, WEFT_NEVER)
                        : mini_recv(self, s->ch, &item, WEFT_NEVER);
        bench_check(r == 0, "transfer");
        s->sum += item;
    }
    s->n = 0;
}

typedef struct mini_loop {
    weft_runtime *rt;
    weft_host *host;
    mini_host mine;
} mini_loop;

static void loop_open(mini_loop *l)
{
    *l = (mini_loop){.mine = {.source = {.look = mini_look}}};
    l->mine.source.arg = &l->mine;
    bench_check(weft_driven_new(NULL, &l->rt) == 0, "runtime");
    bench_check(weft_host_new(l->rt, NULL, &l->host) == 0, "host");
    bench_check(weft_host_add(l->host, &l->mine.source) == 0, "source");
}

static void loop_close(mini_loop *l)
{
    weft_host_free(l->host);
    weft_runtime_free(l->rt);
}

/* Until no fiber is left. */
static void loop_run(mini_loop *l)
{
    while (weft_host_turn(l->host) >= 0 && l->mine.first)
        bench_check(weft_host_wait(l->host, WEFT_NEVER) == 0, "wait");
}

static void *loop_thread(void *p)
{
    mini_loop l;
    loop_open(&l);
    mini_spawn(&l.mine, fiber_side, p);
    loop_run(&l);
    loop_close(&l);
    return NULL;
}

static void run_fibers(bench *b, bench_sample *out)
{
    long n = b->quick ? b->c->a / 5 : b->c->a;
    weft_channel *ch;
    bench_check(weft_channel_new(sizeof(int), 1, NULL, &ch) == 0, "channel");
    side s[2] = {{.ch = ch, .n = n, .send = true}, {.ch = ch, .n = n}};
    weft_time t0 = weft_now();
    if (b->c->b == 2) {
        pthread_t thread[2];
        for (int i = 0; i < 2; i++)
            bench_check(pthread_create(&thread[i], NULL, loop_thread, &s[i]) == 0, "thread");
        for (int i = 0; i < 2; i++)
            pthread_join(thread[i], NULL);
    } else {
        mini_loop l;
        loop_open(&l);
        for (int i = 0; i < 2; i++)
            mini_spawn(&l.mine, fiber_side, &s[i]);
        loop_run(&l);
        loop_close(&l);
    }
    out->ns = bench_ns(t0);
    out->n = (uint64_t)n;
    bench_check(s[0].sum == s[1].sum, "what was sent was received");
    weft_channel_unref(ch);
}

#define TASKS(items, w)                                                                            \
    {                                                                                              \
        .variant = "weft/" #items "/" #w "w", .run = run_tasks, .workers = w, .repeats = 5,        \
        .a = items                                                                                 \
    }
static const bench_case handoff_cases[] = {
    TASKS(5000, 1),
    TASKS(20000, 1),
    TASKS(50000, 1),
    TASKS(1000000, 1),
    TASKS(5000, 2),
    TASKS(20000, 2),
    TASKS(50000, 2),
    TASKS(1000000, 2),
    {.variant = "host/50000/1t", .run = run_fibers, .repeats = 3, .a = 50000, .b = 1},
    {.variant = "host/5000/2t", .run = run_fibers, .repeats = 3, .a = 5000, .b = 2},
    {.variant = "host/20000/2t", .run = run_fibers, .repeats = 3, .a = 20000, .b = 2},
};
BENCH_WORKLOAD(pacer_handoff, "an int through a channel of capacity 1, tasks or a host's fibers",
               handoff_cases);

/* --- rest: looks a second while nothing happens --- */

static int never_ready(void *on)
{
    (void)on;
    return 0;
}

static void wait_for_nothing(mini_fiber *self, void *p)
{
    const bool *polled = p;
    mini_wait(self, *polled ? never_ready : NULL, NULL, weft_after(20 * WEFT_SEC));
}

static void run_rest(bench *b, bench_sample *out)
{
    bool polled = b->c->a;
    weft_time window = (b->quick ? 1 : 4) * WEFT_SEC;
    weft_host_stats s;
    mini_loop l;
    loop_open(&l);
    mini_fiber *f = mini_spawn(&l.mine, wait_for_nothing, &polled);
    weft_host_run(l.host, weft_after(50 * WEFT_MSEC)); /* the pacer has reached its ceiling */
    bench_check(weft_host_get_stats(l.host, &s) == 0, "stats");
    uint64_t before = s.waits;
    bench_check(weft_host_run(l.host, weft_after(window)) == -ETIMEDOUT, "run");
    bench_check(weft_host_get_stats(l.host, &s) == 0, "stats");
    out->n = s.waits - before;
    out->value = (double)(s.waits - before) * WEFT_SEC / (double)window;
    out->base = polled ? (double)WEFT_SEC / WEFT_PACER_CEILING : 0; /* as the sequence says */
    f->cancelled = true;
    weft_host_run(l.host, WEFT_TRY);
    bench_check(!l.mine.first, "the fiber has ended");
    loop_close(&l);
}

static const bench_case rest_cases[] = {
    {.variant = "host/waiting",
     .run = run_rest,
     .unit = "waits/s",
     .repeats = 1,
     .a = 1,
     .flags = BENCH_NO_WARM_UP},
    {.variant = "host/sleeping",
     .run = run_rest,
     .unit = "waits/s",
     .repeats = 1,
     .flags = BENCH_NO_WARM_UP},
};
BENCH_WORKLOAD(pacer_rest, "waits a second at rest; base: what the sequence predicts", rest_cases);

/* --- sleep20: 20 sleeps of 100 ms in one fiber, another waits --- */

enum { SLEEPS = 20 };

typedef struct sleeper {
    int sleeps;
    weft_time total;
} sleeper;

static void sleep_fiber(mini_fiber *self, void *p)
{
    sleeper *s = p;
    weft_time start = weft_now();
    for (int i = 0; i < s->sleeps; i++) {
        weft_time t0 = weft_now();
        bench_check(mini_sleep(self, 100 * WEFT_MSEC) == 0, "sleep");
        bench_check(weft_now() - t0 >= 100 * WEFT_MSEC, "a sleep ended early");
    }
    s->total = weft_now() - start;
    for (mini_fiber *f = self->host->first; f; f = f->next)
        f->cancelled = true; /* the one that waits */
}

static int sleep_task(void *p)
{
    sleeper *s = p;
    weft_time start = weft_now();
    for (int i = 0; i < s->sleeps; i++) {
        weft_time t0 = weft_now();
        bench_check(weft_sleep(100 * WEFT_MSEC) == 0, "sleep");
        bench_check(weft_now() - t0 >= 100 * WEFT_MSEC, "a sleep ended early");
    }
    s->total = weft_now() - start;
    return 0;
}

static void run_sleeps(bench *b, bench_sample *out)
{
    sleeper s = {.sleeps = b->quick ? SLEEPS / 4 : SLEEPS};
    if (b->rt) {
        weft_task *t;
        bench_check(weft_spawn(b->rt, sleep_task, &s, NULL, &t) == 0, "spawn");
        bench_check(weft_task_join(t, WEFT_NEVER, NULL) == 0, "join");
        weft_task_unref(t);
    } else {
        bool polled = true;
        mini_loop l;
        loop_open(&l);
        mini_spawn(&l.mine, sleep_fiber, &s);
        mini_spawn(&l.mine, wait_for_nothing, &polled);
        loop_run(&l);
        loop_close(&l);
    }
    out->n = (uint64_t)s.sleeps;
    out->value = (double)s.total / 1e6 * SLEEPS / s.sleeps;
}

static const bench_case sleep_cases[] = {
    {.variant = "weft/4w",
     .run = run_sleeps,
     .unit = "ms",
     .workers = 4,
     .repeats = 3,
     .flags = BENCH_NO_WARM_UP},
    {.variant = "host/1t",
     .run = run_sleeps,
     .unit = "ms",
     .repeats = 3,
     .flags = BENCH_NO_WARM_UP},
};
BENCH_WORKLOAD(pacer_sleeps, "20 sleeps of 100 ms: total; in the host another fiber is polled for",
               sleep_cases);

/* --- arrival: a task from a thread while the host waits at the pacer's ceiling --- */

enum { ARRIVALS = 100 };

typedef struct arrival {
    mini_loop *l;
    int arrivals;
    weft_time sent;
    _Atomic int ran;
    double late_us[ARRIVALS];
} arrival;

static int arrive(void *p)
{
    arrival *a = p;
    int i = atomic_load(&a->ran);
    a->late_us[i] = bench_ns(a->sent) / 1e3;
    atomic_store(&a->ran, i + 1);
    return 0;
}

static void *send_tasks(void *p)
{
    arrival *a = p;
    for (int i = 0; i < a->arrivals; i++) {
        base_nap(37 * WEFT_MSEC); /* the pacer is at its ceiling, at no fixed phase */
        a->sent = weft_now();
        bench_check(weft_spawn(a->l->rt, arrive, a, NULL, NULL) == 0, "spawn");
        while (atomic_load(&a->ran) <= i)
            base_nap(WEFT_MSEC);
    }
    bench_check(weft_host_stop(a->l->host) == 0, "stop");
    return NULL;
}

static void run_arrival(bench *b, bench_sample *out)
{
    bool polled = true;
    mini_loop l;
    static arrival a;
    a = (arrival){.l = &l, .arrivals = b->quick ? ARRIVALS / 5 : ARRIVALS};
    pthread_t thread;
    loop_open(&l);
    mini_fiber *f = mini_spawn(&l.mine, wait_for_nothing, &polled);
    bench_check(pthread_create(&thread, NULL, send_tasks, &a) == 0, "thread");
    bench_check(weft_host_run(l.host, WEFT_NEVER) == 0, "run");
    pthread_join(thread, NULL);
    f->cancelled = true;
    weft_host_run(l.host, WEFT_TRY);
    loop_close(&l);
    out->n = (uint64_t)a.arrivals;
    out->p50_us = bench_percentile(a.late_us, (size_t)a.arrivals, 0.5);
    out->p99_us = bench_percentile(a.late_us, (size_t)a.arrivals, 0.99);
    out->value = out->p50_us;
}

static const bench_case arrival_cases[] = {
    {.variant = "host/1t",
     .run = run_arrival,
     .unit = "us",
     .repeats = 1,
     .flags = BENCH_NO_WARM_UP},
};
BENCH_WORKLOAD(pacer_arrival, "a thread spawns into a waiting host: until the task runs",
               arrival_cases);

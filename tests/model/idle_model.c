/* SPDX-License-Identifier: MIT
 *
 * The sleep and wake protocol of the scheduler: the real idle.c and runq.h under toy
 * workers that look for work, search, register, look again and sleep as worker.c and
 * sleep.c do, without their timeouts: a wake must not need one. Held:
 *   I1  each task runs exactly once: one that is left in a queue while the workers
 *       sleep is counted at the end; a task that waits for another one, which only
 *       the other worker can run, makes a deadlock
 *   I2  each submission wakes at most one, and so does the last searcher
 *   I3  a sleeper is notified only by the one that took it off the list, and the
 *       counts agree with the list at rest
 */
#include "unit_test.h"

#include "model.h"
#include "model_lock.h"

#define weft__acquire  model_acquire
#define weft__release  model_release
#define weft__lock_try model_lock_try

#include "base/sys.h"
#include "../../src/sched/idle.c"
#include "../../src/sched/runq.h"

enum { WORKERS = 2, TASKS = 4 };

struct task {
    weft__slink link;
    weft__a32 ran;
    struct task *child[2]; /* queued by this one */
    struct task *needs;    /* keeps its worker until that one has run */
};

static struct task task[TASKS];

static struct worker {
    weft__runq runq;
    weft__sleeper sleeper;
    bool searching;
} worker[WORKERS];

static weft__idle idle;

static struct {
    weft__lock lock;
    weft__a32 count;
    weft__fifo fifo;
} inject;

static int self; /* the model thread that runs */
static int submissions[MODEL_THREADS], wakes[MODEL_THREADS], last_searches[MODEL_THREADS];
static int taken_along[MODEL_THREADS]; /* looks that left something in the own queue */
static int submitted;                  /* tasks that have to run */
static unsigned asleep;                /* bits of workers that sleep at the start */
static bool use_runqs;                 /* else the shared queue is the only one */

static void on_switch(int t)
{
    self = t;
}

static void setup(void)
{
    memset(task, 0, sizeof task);
    memset(worker, 0, sizeof worker);
    memset(&inject, 0, sizeof inject);
    memset(submissions, 0, sizeof submissions);
    memset(wakes, 0, sizeof wakes);
    memset(last_searches, 0, sizeof last_searches);
    memset(taken_along, 0, sizeof taken_along);
    weft__idle_init(&idle);
    for (int i = 0; i < WORKERS; i++)
        if (asleep >> i & 1)
            weft__idle_register(&idle, &worker[i].sleeper, false);
    model_name(task, sizeof task, "task");
    model_name(worker, sizeof worker, "worker");
    model_name(&idle, sizeof idle, "idle");
    model_name(&inject, sizeof inject, "inject");
}

/* ---- As ready.c ---- */

static void notify(void)
{
    weft__sleeper *s = weft__idle_pick(&idle);
    if (s) {
        wakes[self]++;
        atom_store_rel(&s->notified, 1u);
        weft__sys_futex_wake(&s->notified, 1);
    }
}

static void submit(struct task *t)
{
    submissions[self]++;
    model_acquire(&inject.lock);
    weft__fifo_push(&inject.fifo, &t->link);
    atom_store_sc(&inject.count, atom_load_rlx(&inject.count) + 1);
    model_release(&inject.lock);
    notify();
}

static void submit_here(struct worker *w, struct task *t)
{
    submissions[self]++;
    model_check(weft__runq_push(&w->runq, t));
    notify();
}

/* ---- As worker.c ---- */

static struct task *take_shared(void)
{
    if (atom_load_rlx(&inject.count) == 0)
        return NULL;
    model_acquire(&inject.lock);
    weft__slink *l = weft__fifo_pop(&inject.fifo);
    if (l)
        atom_store_rlx(&inject.count, atom_load_rlx(&inject.count) - 1);
    model_release(&inject.lock);
    return l ? weft__container(l, struct task, link) : NULL;
}

static struct task *steal(struct worker *w)
{
    void *batch[WEFT__RUNQ_SIZE / 2];
    if (!w->searching && !(w->searching = weft__idle_search_begin(&idle, WORKERS)))
        return NULL;
    if (!use_runqs)
        return take_shared();
    struct worker *v = w == &worker[0] ? &worker[1] : &worker[0];
    uint32_t n = weft__runq_grab(&v->runq, batch, WEFT__RUNQ_SIZE / 2);
    for (uint32_t i = 1; i < n; i++)
        model_check(weft__runq_push(&w->runq, batch[i]));
    return n ? batch[0] : NULL;
}

static bool work_anywhere(void)
{
    if (atom_load_sc(&inject.count))
        return true;
    for (int i = 0; i < WORKERS && use_runqs; i++)
        if (weft__runq_length(&worker[i].runq))
            return true;
    return false;
}

static struct task *look_around(struct worker *w)
{
    bool last = false;
    struct task *t = take_shared();
    if (!t && use_runqs)
        t = weft__runq_pop(&w->runq);
    if (!t)
        t = steal(w);
    if (!t)
        return NULL;
    if (w->searching) {
        w->searching = false;
        last = weft__idle_search_end(&idle);
        last_searches[self] += last;
    }
    bool more = use_runqs && weft__runq_length(&w->runq);
    taken_along[self] += more && !last;
    if (last ? work_anywhere() : more)
        notify();
    return t;
}

static void run_task(struct worker *w, struct task *t)
{
    for (int i = 0; i < 2; i++)
        if (t->child[i])
            submit_here(w, t->child[i]);
    if (t->needs)
        while (!atom_load_acq(&t->needs->ran))
            weft__sys_futex_wait(&t->needs->ran, 0, WEFT_NEVER);
    model_check(atom_add_ar(&t->ran, 1u) == 0);
    weft__sys_futex_wake(&t->ran, 1);
}

/* ---- As sleep.c ---- */

static void slumber(struct worker *w)
{
    while (!atom_load_acq(&w->sleeper.notified))
        weft__sys_futex_wait(&w->sleeper.notified, 0, WEFT_NEVER);
}

static void awake(struct worker *w)
{
    weft__idle_deregister(&idle, &w->sleeper);
    w->searching = true;
}

static void go_to_sleep(struct worker *w)
{
    weft__idle_register(&idle, &w->sleeper, w->searching);
    if (!work_anywhere())
        slumber(w);
    awake(w);
}

static void work(struct worker *w)
{
    if (asleep >> (w - worker) & 1) {
        slumber(w);
        awake(w);
    }
    for (;;) {
        struct task *t = look_around(w);
        if (t)
            run_task(w, t);
        else
            go_to_sleep(w);
    }
}

/* ---- Scenarios ---- */

static void check_rest(void)
{
    int ran = 0;
    for (int i = 0; i < TASKS; i++)
        ran += (int)task[i].ran.raw;
    model_check(ran == submitted);
    model_check(inject.count.raw == 0);
    for (int i = 0; i < WORKERS; i++)
        model_check(worker[i].runq.head.raw == worker[i].runq.tail.raw &&
                    weft__linked(&worker[i].sleeper.link));
    model_check(idle.counts.raw == WORKERS * IDLE_ONE);
    int woken = 0, may = 0;
    for (int t = 0; t < MODEL_THREADS; t++) {
        woken += wakes[t];
        may += submissions[t] + last_searches[t] + taken_along[t];
    }
    model_check(woken <= may);
}

static void (*prepare)(void) = setup;

/* Producers are threads after the workers; each submits its own task. */
static void produce(int t)
{
    if (t < WORKERS)
        work(&worker[t]);
    else
        submit(&task[t - WORKERS]);
}

static void explore(const char *name, int producers, int bound)
{
    const struct model_scenario s = {.name = name,
                                     .threads = WORKERS + producers,
                                     .setup = prepare,
                                     .run = produce,
                                     .check = check_rest,
                                     .on_switch = on_switch,
                                     .all = bound > 0,
                                     .preemptions = bound,
                                     .limit = 200000000,
                                     .may_sleep = (1u << WORKERS) - 1};
    model_must_hold(&s);
}

static void one_producer(void **state)
{
    (void)state;
    submitted = 1;
    asleep = 3;
    explore("idle, 2 asleep, 1 producer", 1, 0);
    asleep = 2;
    explore("idle, 1 awake, 1 asleep, 1 producer", 1, 0);
}

/* The first task needs the second: who of the workers has the first cannot run the
 * second as well, so whoever relied on it as a searcher needs its wake. */
static void setup_needy(void)
{
    setup();
    task[0].needs = &task[1];
}

static void two_producers(void **state)
{
    (void)state;
    submitted = 2;
    prepare = setup_needy;
    asleep = 3;
    explore("idle, 2 asleep, 2 producers", 2, 0);
    asleep = 2;
    explore("idle, 1 awake, 1 asleep, 2 producers", 2, getenv("WEFT_LONG") ? 3 : 2);
}

/* A task queues two others on its worker and waits for one of them, so the other
 * worker has to come and steal. */
static void setup_spawner(void)
{
    setup();
    task[0].child[0] = &task[1];
    task[0].child[1] = &task[2];
    task[0].needs = &task[1];
}

static void a_task_waits_for_another(void **state)
{
    (void)state;
    submitted = 3;
    use_runqs = true;
    prepare = setup_spawner;
    asleep = 3;
    explore("idle, 2 asleep, a task that needs both", 1, 2);
    asleep = 2;
    explore("idle, 1 awake, 1 asleep, a task that needs both", 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_producer),
        cmocka_unit_test(two_producers),
        cmocka_unit_test(a_task_waits_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

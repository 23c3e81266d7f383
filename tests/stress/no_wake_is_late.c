/* SPDX-License-Identifier: MIT
 *
 * No wake is lost, a million times. Drivers (threads, or tasks of the runtime) do rounds,
 * each of which needs a wake of somebody who is about to fall asleep, has just done so, or
 * has slept for long; a pause of random length before each round meets them in every such
 * moment. A watch fails the test when a driver makes no round for 200 ms in which there
 * was a processor to make it on (heartbeat.h): nothing in the library makes up for a
 * lost wake, so a driver without a wake stands for ever.
 *
 * An ordinary run does what fits into some seconds. With WEFT_LONG in the environment
 * (ctest -C Long -L long) it does the whole million.
 */
#include "unit_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "harness.h"
#include "heartbeat.h"
#include "weft/weft.h"

enum { DRIVERS = 4, MILLION = 1000000 };

#define STALL (200 * WEFT_MSEC)

static struct driver {
    _Atomic uint64_t rounds;
    atomic_bool active;
    weft_runtime *rt;
    uint64_t rng;
    uint64_t share;
    weft_channel *to, *from;
    pthread_t thread;
} driver[DRIVERS];

static weft_time stop_at;
static atomic_bool watching;
static const char *kind;
static unsigned workers;
static int64_t longest; /* without a round, in time that counts; the watch's */

/* ---- The watch ---- */

static void *watch(void *arg)
{
    uint64_t seen[DRIVERS] = {0};
    struct beat since[DRIVERS];
    (void)arg;
    for (int i = 0; i < DRIVERS; i++)
        beat_mark(&since[i]);
    while (atomic_load(&watching)) {
        usleep(2000);
        for (int i = 0; i < DRIVERS; i++) {
            struct driver *d = &driver[i];
            uint64_t rounds = atomic_load(&d->rounds);
            if (!atomic_load(&d->active) || rounds != seen[i]) {
                seen[i] = rounds;
                beat_mark(&since[i]);
                continue;
            }
            int64_t stood = beat_since(&since[i]);
            if (stood > longest)
                longest = stood;
            if (stood < STALL)
                continue;
            fprintf(stderr, "%s, %u workers: driver %d stands at round %llu\n", kind, workers, i,
                    (unsigned long long)rounds);
            weft_runtime_dump(d->rt, STDERR_FILENO);
            abort();
        }
    }
    return NULL;
}

/* ---- Rounds ---- */

static uint64_t next_random(struct driver *d)
{
    d->rng ^= d->rng << 13;
    d->rng ^= d->rng >> 7;
    d->rng ^= d->rng << 17;
    return d->rng;
}

/* Mostly short; sometimes past the moment for which a worker looks on before it sleeps. */
static void pause_a_moment(struct driver *d)
{
    uint64_t x = next_random(d);
    weft_time ns = (weft_time)(x >> 8) % ((x & 63) == 0 ? 400000 : (x & 7) == 0 ? 60000 : 4000);
    for (weft_time end = weft_now() + ns; weft_now() < end;)
        ;
}

static bool more(struct driver *d)
{
    return atomic_load(&d->rounds) < d->share && weft_now() < stop_at;
}

static int sets(void *event)
{
    weft_event_set(event);
    return 0;
}

/* A task is spawned into a runtime that has nothing to do, or is just finding that out. */
static void spawn_rounds(struct driver *d)
{
    while (more(d)) {
        weft_event done = WEFT_EVENT_INIT;
        pause_a_moment(d);
        assert_int_equal(weft_spawn(d->rt, sets, &done, NULL, NULL), 0);
        assert_int_equal(weft_event_wait(&done, WEFT_NEVER), 0);
        atomic_fetch_add(&d->rounds, 1);
    }
}

static int echoes(void *arg)
{
    struct driver *d = arg;
    uint64_t item;
    while (weft_channel_recv(d->to, &item, WEFT_NEVER) == 0)
        if (weft_channel_send(d->from, &item, WEFT_NEVER) != 0)
            break;
    return 0;
}

/* A parked fiber is woken, and answers. */
static void echo_rounds(struct driver *d)
{
    weft_task *t;
    assert_int_equal(weft_channel_new(sizeof(uint64_t), 0, NULL, &d->to), 0);
    assert_int_equal(weft_channel_new(sizeof(uint64_t), 0, NULL, &d->from), 0);
    assert_int_equal(weft_spawn(d->rt, echoes, d, &(weft_spawn_options){.flags = WEFT_PINNED}, &t),
                     0);
    while (more(d)) {
        uint64_t item = atomic_load(&d->rounds), got = 0;
        pause_a_moment(d);
        assert_int_equal(weft_channel_send(d->to, &item, WEFT_NEVER), 0);
        assert_int_equal(weft_channel_recv(d->from, &got, WEFT_NEVER), 0);
        assert_int_equal(got, item);
        atomic_fetch_add(&d->rounds, 1);
    }
    weft_channel_close(d->to);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
    weft_channel_unref(d->to);
    weft_channel_unref(d->from);
}

/* Two tasks are there for one worker: the searcher that takes the first has to see to it
 * that somebody takes the second, which the first waits for without giving way. */
static int waits_for_its_twin(void *arg)
{
    atomic_int *arrived = arg;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < 2)
        ;
    return 0;
}

static void twin_rounds(struct driver *d)
{
    while (more(d)) {
        atomic_int arrived = 0;
        weft_task *t[2];
        pause_a_moment(d);
        for (int i = 0; i < 2; i++)
            assert_int_equal(weft_spawn(d->rt, waits_for_its_twin, &arrived, NULL, &t[i]), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
            weft_task_unref(t[i]);
        }
        atomic_fetch_add(&d->rounds, 1);
    }
}

/* A deadline that nobody announces but the timer itself, armed by a worker that then
 * falls asleep as the keeper or beside one. */
static void sleep_rounds(struct driver *d)
{
    while (more(d)) {
        assert_int_equal(weft_sleep((weft_time)(next_random(d) % 60000)), 0);
        atomic_fetch_add(&d->rounds, 1);
    }
}

/* ---- Phases ---- */

static const struct phase {
    const char *name;
    void (*rounds)(struct driver *d);
    int drivers;
    bool tasks; /* of the runtime; else plain threads */
    unsigned workers;
    unsigned share; /* percent of all rounds */
} phases[] = {
    {"spawns", spawn_rounds, 1, false, 2, 15},
    {"spawns from two", spawn_rounds, 2, false, 2, 15},
    {"spawns from four", spawn_rounds, 4, false, 4, 10},
    {"echoes", echo_rounds, 2, false, 2, 15},
    {"echoes from four", echo_rounds, 4, false, 8, 10},
    {"echoes inside", echo_rounds, 2, true, 2, 15},
    {"twins", twin_rounds, 1, false, 2, 10},
    {"sleeps", sleep_rounds, 4, true, 2, 10},
};

static const struct phase *phase;

static int drive(void *arg)
{
    struct driver *d = arg;
    phase->rounds(d);
    atomic_store(&d->active, false);
    return 0;
}

static void *drive_thread(void *arg)
{
    drive(arg);
    return NULL;
}

static uint64_t run_phase(const struct phase *p, uint64_t all, weft_time limit)
{
    weft_runtime *rt;
    weft_task *task[DRIVERS] = {NULL};
    uint64_t rounds = 0, share = all * p->share / 100 / (uint64_t)p->drivers;
    phase = p;
    kind = p->name;
    workers = p->workers;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = p->workers}, &rt), 0);
    stop_at = limit == WEFT_NEVER ? WEFT_NEVER : weft_after(limit * p->share / 100);
    for (int i = 0; i < p->drivers; i++) {
        struct driver *d = &driver[i];
        d->rt = rt;
        d->share = share ? share : 1;
        atomic_store(&d->rounds, 0);
        atomic_store(&d->active, true);
        if (p->tasks)
            assert_int_equal(weft_spawn(rt, drive, d, NULL, &task[i]), 0);
        else
            assert_int_equal(pthread_create(&d->thread, NULL, drive_thread, d), 0);
    }
    for (int i = 0; i < p->drivers; i++) {
        if (p->tasks) {
            assert_int_equal(weft_task_join(task[i], WEFT_NEVER, NULL), 0);
            weft_task_unref(task[i]);
        } else {
            pthread_join(driver[i].thread, NULL);
        }
        rounds += atomic_load(&driver[i].rounds);
    }
    weft_runtime_free(rt);
    return rounds;
}

static void no_round_stands(void **state)
{
    bool whole = getenv("WEFT_LONG") != NULL;
    uint64_t all = whole ? MILLION : test_rounds(MILLION), done = 0;
    weft_time limit = whole ? WEFT_NEVER : 10 * WEFT_SEC, start = weft_now();
    pthread_t watcher;
    (void)state;
    for (int i = 0; i < DRIVERS; i++)
        driver[i].rng = test_seed() + (uint64_t)i * 0x9e3779b97f4a7c15u + 1;
    beat_start();
    atomic_store(&watching, true);
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        weft_time began = weft_now();
        uint64_t n = run_phase(&phases[i], all, limit);
        print_message("%-18s %u workers: %8llu rounds, %.1f us each\n", phases[i].name,
                      phases[i].workers, (unsigned long long)n,
                      (double)(weft_now() - began) / 1e3 / (double)n);
        done += n;
    }
    atomic_store(&watching, false);
    pthread_join(watcher, NULL);
    beat_stop();
    print_message("%llu rounds in %.1f s; the longest stood %.0f ms\n", (unsigned long long)done,
                  (double)(weft_now() - start) / 1e9, (double)longest / 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_round_stands),
    };
    test_limit(getenv("WEFT_LONG") ? 1500 : 100, "no_wake_is_late");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

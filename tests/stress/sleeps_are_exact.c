/* SPDX-License-Identifier: MIT
 *
 * Sleeps and time limits on real workers: never early, counted from the call and not from
 * a clock read before it, of any length from nothing to a hundred milliseconds, moved as
 * often as one likes; an idle runtime makes a few system calls for one, not a busy loop. */
#include "unit_test.h"

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

static uint32_t rnd(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    return *x ^= *x << 5;
}

static void burn(weft_time ns)
{
    for (weft_time end = weft_now() + ns; weft_now() < end;)
        ;
}

static void on_workers(unsigned workers, weft_fn fn, void *arg)
{
    weft_runtime *rt;
    weft_task *t;
    int result = -1;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    assert_int_equal(weft_spawn(rt, fn, arg, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

/* Armed anywhere inside a tick and a millisecond. */
static int at_random_points(void *arg)
{
    static const weft_time lengths[] = {300 * WEFT_USEC, WEFT_MSEC, 1700 * WEFT_USEC,
                                        10 * WEFT_MSEC};
    uint32_t x = *(uint32_t *)arg;
    weft_event never = WEFT_EVENT_INIT;
    uint64_t rounds = test_rounds(300);
    for (uint64_t i = 0; i < rounds; i++) {
        weft_time length = lengths[i % 8 ? i % 3 : 3];
        burn(rnd(&x) % 1000 * WEFT_USEC);
        weft_time start = weft_now();
        if (i % 2) {
            assert_int_equal(weft_sleep(length), 0);
        } else {
            assert_int_equal(weft_event_wait(&never, weft_after(length)), -ETIMEDOUT);
        }
        if (weft_now() - start < length)
            return -1;
    }
    return 0;
}

static void never_early(void **state)
{
    (void)state;
    uint32_t x = (uint32_t)test_seed() | 1u;
    for (unsigned workers = 1; workers <= 2; workers++)
        on_workers(workers, at_random_points, &x);
}

static int twenty_of_100_ms(void *arg)
{
    weft_time *overshoot = arg;
    for (int i = 0; i < 20; i++) {
        weft_time start = weft_now();
        assert_int_equal(weft_sleep(100 * WEFT_MSEC), 0);
        weft_time took = weft_now() - start;
        assert_true(took >= 100 * WEFT_MSEC);
        *overshoot += took - 100 * WEFT_MSEC;
    }
    return 0;
}

static uint64_t cpu_us(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Also: no spinning until the deadline, and no parade of wake-ups. */
static void twenty_sleeps(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_task *t;
    weft_time overshoot = 0;
    weft_runtime_stats before, after;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &rt), 0);
    test_sleep_ms(20);
    uint64_t cpu = cpu_us();
    assert_int_equal(weft_runtime_get_stats(rt, &before), 0);
    assert_int_equal(weft_spawn(rt, twenty_of_100_ms, &overshoot, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    cpu = cpu_us() - cpu;
    assert_int_equal(weft_runtime_get_stats(rt, &after), 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
    print_message("20 sleeps of 100 ms: %lld us over in all, %llu us of CPU, %llu parks\n",
                  (long long)(overshoot / WEFT_USEC), (unsigned long long)cpu,
                  (unsigned long long)(after.parks - before.parks));
    assert_true(cpu < (test_sanitized() ? 400000 : 40000));
    assert_true(after.parks - before.parks <= 4 * 20);
}

/* The deadline counts from the call, however old the worker's idea of now is. */
static int counts_from_the_call(void *arg)
{
    (void)arg;
    for (int i = 0; i < 4; i++) {
        if (i % 2)
            burn(100 * WEFT_MSEC);
        weft_time start = weft_now();
        assert_int_equal(weft_sleep(50 * WEFT_MSEC), 0);
        weft_time took = weft_now() - start;
        if (took < 50 * WEFT_MSEC || took > 5 * WEFT_SEC)
            return -1;
    }
    return 0;
}

static void from_the_call_on(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt;
        weft_task *t;
        int result = -1;
        assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
        test_sleep_ms(150); /* the runtime has slept since it last read the clock */
        assert_int_equal(weft_spawn(rt, counts_from_the_call, NULL, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
        assert_int_equal(result, 0);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
}

/* Due before, or just when, it is armed. */
static weft__a32 sleeps_done;

static int very_short(void *arg)
{
    static const weft_time lengths[] = {0, 1, WEFT_USEC, 50 * WEFT_USEC};
    uint64_t rounds = test_rounds(3000);
    (void)arg;
    for (uint64_t i = 0; i < rounds; i++) {
        if (weft_sleep(lengths[i % 4]) != 0 ||
            weft_sleep_until(weft_now() + (weft_time)(i % 3) - 1) != 0)
            return -1;
        atom_add_rlx(&sleeps_done, 1u);
    }
    return 0;
}

static int eight_of_them(void *arg)
{
    weft_task *t[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(weft_spawn(NULL, very_short, arg, NULL, &t[i]), 0);
    for (int i = 0; i < 8; i++) {
        int result = -1;
        assert_int_equal(weft_task_join(t[i], weft_after(60 * WEFT_SEC), &result), 0);
        assert_int_equal(result, 0);
        weft_task_unref(t[i]);
    }
    return 0;
}

static void short_ones_all_return(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++)
        on_workers(workers, eight_of_them, NULL);
    assert_int_equal(atom_load_rlx(&sleeps_done), 2 * 8 * test_rounds(3000));
}

/* Poll tasks whose timers are moved: each fires once, and at the place it has in the end. */
struct moved {
    weft_time due;
    int polls;
};

static weft__a32 fired_early, fired, fired_again;

static int moves_its_timer(weft_task *self, void *state)
{
    struct moved *m = state;
    weft_time now = weft_now();
    switch (m->polls++) {
    case 0: /* nearer and nearer, then only the nearest counts */
        m->due = now + 30 * WEFT_MSEC;
        weft_task_wake_at(self, now + 3600 * WEFT_SEC);
        weft_task_wake_at(self, now + 60 * WEFT_MSEC);
        weft_task_wake_at(self, m->due);
        weft_task_wake_at(self, now + 500 * WEFT_MSEC);
        return WEFT_PENDING;
    case 1: /* it goes with the poll: this time a later one */
        atom_add_rlx(now < m->due ? &fired_early : &fired, 1u);
        m->due = now + 20 * WEFT_MSEC;
        weft_task_wake_at(self, m->due);
        return WEFT_PENDING;
    default:
        atom_add_rlx(now < m->due ? &fired_early : &fired_again, 1u);
        return 0;
    }
}

static void moved_timers_fire_once(void **state)
{
    (void)state;
    weft_runtime *rt;
    uint32_t n = (uint32_t)test_rounds(2000);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(
            weft_spawn_poll(rt, moves_its_timer, NULL, sizeof(struct moved), NULL, NULL), 0);
    for (weft_time until = weft_after(30 * WEFT_SEC); weft_now() < until;) {
        weft_runtime_stats s;
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
        if (s.alive == 0)
            break;
        test_sleep_ms(5);
    }
    weft_runtime_free(rt);
    assert_int_equal(atom_load_rlx(&fired_early), 0);
    assert_int_equal(atom_load_rlx(&fired), n);
    assert_int_equal(atom_load_rlx(&fired_again), n);
}

/* A long limit on what is ready at once leaves no timer behind. */
static int with_an_hour_each(void *arg)
{
    weft_channel *ch;
    uint64_t rounds = test_rounds(200000);
    (void)arg;
    assert_int_equal(weft_channel_new(sizeof(int), 1, NULL, &ch), 0);
    for (uint64_t i = 0; i < rounds; i++) {
        int x = 1;
        assert_int_equal(weft_channel_send(ch, &x, weft_after(3600 * WEFT_SEC)), 0);
        assert_int_equal(weft_channel_recv(ch, &x, weft_after(3600 * WEFT_SEC)), 0);
    }
    weft_channel_unref(ch);
    return 0;
}

static void limits_of_what_is_ready_cost_no_timer(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_task *t;
    weft_runtime_stats s;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &rt), 0);
    assert_int_equal(weft_spawn(rt, with_an_hour_each, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, weft_after(60 * WEFT_SEC), NULL), 0);
    assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
    assert_int_equal(s.timers_armed, 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_early),
        cmocka_unit_test(twenty_sleeps),
        cmocka_unit_test(from_the_call_on),
        cmocka_unit_test(short_ones_all_return),
        cmocka_unit_test(moved_timers_fire_once),
        cmocka_unit_test(limits_of_what_is_ready_cost_no_timer),
    };
    test_limit(100, "sleeps_are_exact");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

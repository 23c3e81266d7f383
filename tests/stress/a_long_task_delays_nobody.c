/* SPDX-License-Identifier: MIT
 *
 * A task that computes and never gives way delays no other task's ticker while another
 * worker is idle: not one that was armed on its own worker, not one that was started
 * there a moment before, nor one behind it in the queue. A tick may be 20 ms late in time
 * in which a processor was to be had (heartbeat.h); what a machine with other work on it
 * adds does not count; of six rounds two may see what the beats have not.
 */
#include "unit_test.h"

#include <stdatomic.h>

#include "harness.h"
#include "heartbeat.h"
#include "weft/weft.h"

enum { TICKERS = 4, TICKS = 12, ROUNDS = 6, MAY_BE_BAD = 2 };

#define PERIOD (10 * WEFT_MSEC)
#define LATE   (20 * WEFT_MSEC)

static atomic_int ticking;
static _Atomic int64_t worst; /* ns late, of time that counts */

static weft_time begun; /* when the tickers were started, which counts, too */
static struct beat begun_mark;

/* Each tick is due a period after the one before; how late it is, is judged by the beats
 * since that one, for a mark can't be set while asleep. */
static int ticks(void *arg)
{
    weft_time due = begun, from = begun;
    struct beat mark = begun_mark;
    (void)arg;
    for (int i = 0; i < TICKS; i++) {
        due += PERIOD;
        assert_int_equal(weft_sleep_until(due), 0);
        int64_t late = weft_now() - due, counted = beat_since(&mark) - (due - from);
        assert_true(late >= 0);
        if (counted < late)
            late = counted;
        if (late > atomic_load(&worst))
            atomic_store(&worst, late);
        beat_mark(&mark);
        from = weft_now();
        if (due < from - PERIOD)
            due = from - PERIOD; /* no burst */
    }
    atomic_fetch_sub(&ticking, 1);
    return 0;
}

static void start_tickers(weft_runtime *rt)
{
    begun = weft_now();
    beat_mark(&begun_mark);
    for (int i = 0; i < TICKERS; i++)
        assert_int_equal(weft_spawn(rt, ticks, NULL, NULL, NULL), 0);
}

/* Computes until all have ticked. */
static void compute(void)
{
    while (atomic_load(&ticking) > 0)
        ;
}

static int starts_tickers_and_computes(void *arg)
{
    (void)arg;
    start_tickers(NULL);
    compute();
    return 0;
}

/* They are asleep, with their timers on this worker's wheel, when it begins. */
static int lets_them_arm_and_computes(void *arg)
{
    (void)arg;
    start_tickers(NULL);
    for (int i = 0; i < 100; i++)
        weft_yield();
    compute();
    return 0;
}

static int woken_by_timer_and_computes(void *arg)
{
    (void)arg;
    assert_int_equal(weft_sleep(5 * WEFT_MSEC), 0);
    compute();
    return 0;
}

static const struct {
    const char *name;
    weft_fn hog;
    bool tickers_first;
} ways[] = {
    {"started behind it", starts_tickers_and_computes, false},
    {"armed on its worker", lets_them_arm_and_computes, false},
    {"it wakes among them", woken_by_timer_and_computes, true},
};

static void tickers_go_on(void **state)
{
    (void)state;
    beat_start();
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        int64_t least = INT64_MAX, most = 0;
        int bad = 0;
        for (int round = 0; round < ROUNDS; round++) {
            weft_runtime *rt;
            weft_task *hog;
            atomic_store(&worst, 0);
            atomic_store(&ticking, TICKERS);
            assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
            if (ways[w].tickers_first)
                start_tickers(rt);
            assert_int_equal(weft_spawn(rt, ways[w].hog, NULL, NULL, &hog), 0);
            assert_int_equal(weft_task_join(hog, weft_after(60 * WEFT_SEC), NULL), 0);
            weft_task_unref(hog);
            weft_runtime_free(rt);
            int64_t found = atomic_load(&worst);
            least = found < least ? found : least;
            most = found > most ? found : most;
            bad += found > LATE;
        }
        print_message("%-20s %.1f to %.1f ms late\n", ways[w].name, (double)least / 1e6,
                      (double)most / 1e6);
        assert_true(bad <= MAY_BE_BAD);
    }
    beat_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tickers_go_on),
    };
    test_limit(100, "a_long_task_delays_nobody");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

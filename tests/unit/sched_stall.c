/* SPDX-License-Identifier: MIT
 *
 * Stall reports: a task that keeps its worker is named, once as new; one that gives way
 * is not; bad input has an answer.
 */
#include "unit_test.h"

#include <errno.h>
#include <stdatomic.h>

#include "harness.h"
#include "heartbeat.h"
#include "weft/driven.h"
#include "weft/runtime.h"
#include "weft/stall.h"
#include "weft/task.h"

#define THRESHOLD (50 * WEFT_MSEC)

static atomic_bool stop;

static int burns(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        ;
    return 0;
}

static int burns_as_poll(weft_task *self, void *state)
{
    (void)self;
    (void)state;
    return burns(NULL);
}

static int gives_way(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        weft_yield();
    return 0;
}

static weft_runtime *begin(unsigned workers)
{
    weft_runtime *rt;
    atomic_store(&stop, false);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

/* Asks until `least` reports of stalls have come; how many of them were new. */
static int ask(weft_runtime *rt, int least, weft_stall *last)
{
    int fresh = 0, seen = 0;
    weft_time until = weft_after(60 * WEFT_SEC);
    while (seen < least && weft_now() < until) {
        weft_stall s[4];
        int n = weft_runtime_stalls(rt, THRESHOLD, s, 4);
        assert_in_range(n, 0, 4);
        for (int i = 0; i < n; i++) {
            assert_true(s[i].length >= THRESHOLD);
            fresh += !s[i].again;
            *last = s[i];
        }
        seen += n;
        test_sleep_ms(5);
    }
    assert_true(seen >= least);
    return fresh;
}

static void a_task_that_burns_is_named(void **state)
{
    (void)state;
    for (int poll = 0; poll < 2; poll++) {
        weft_runtime *rt = begin(2);
        weft_stall s = {0};
        weft_task *t;
        weft_spawn_options o = {.name = "burner"};
        if (poll)
            assert_int_equal(weft_spawn_poll(rt, burns_as_poll, NULL, 0, &o, &t), 0);
        else
            assert_int_equal(weft_spawn(rt, burns, NULL, &o, &t), 0);
        assert_int_equal(ask(rt, 5, &s), 1);
        assert_string_equal(s.name, "burner");
        assert_int_equal(s.task, weft_task_id(t));
        assert_true(s.worker < 2 && s.again);
        atomic_store(&stop, true);
        assert_int_equal(weft_task_join(t, weft_after(60 * WEFT_SEC), NULL), 0);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
}

static void every_worker_counts(void **state)
{
    weft_runtime *rt = begin(2);
    weft_stall s[1];
    int n = 0;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_spawn(rt, burns, NULL, NULL, NULL), 0);
    for (weft_time until = weft_after(60 * WEFT_SEC); n < 2 && weft_now() < until;) {
        n = weft_runtime_stalls(rt, THRESHOLD, s, 1);
        test_sleep_ms(5);
    }
    assert_int_equal(n, 2);
    assert_string_equal(s[0].name, "");
    assert_int_equal(weft_runtime_stalls(rt, THRESHOLD, NULL, 0), 2);
    assert_int_equal(weft_runtime_stalls(rt, 3600 * WEFT_SEC, s, 1), 0);
    atomic_store(&stop, true);
    weft_runtime_free(rt);
}

/* Counts only where each processor was to be had all the time: a worker that lost its own
 * looks the same from here as one that computes. */
static void who_gives_way_is_not_reported(void **state)
{
    weft_runtime *rt = begin(2);
    struct beat mark;
    int reports = 0;
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(weft_spawn(rt, gives_way, NULL, NULL, NULL), 0);
    beat_start();
    test_sleep_ms(20);
    weft_time start = weft_now();
    beat_mark(&mark);
    while (weft_now() - start < 500 * WEFT_MSEC) {
        weft_stall s;
        reports += weft_runtime_stalls(rt, 200 * WEFT_MSEC, &s, 1);
        test_sleep_ms(5);
    }
    weft_time lost = weft_now() - start - beat_since(&mark);
    beat_stop();
    atomic_store(&stop, true);
    weft_runtime_free(rt);
    print_message("%d reports, %.0f ms without a processor\n", reports, (double)lost / 1e6);
    assert_true(reports == 0 || lost > 100 * WEFT_MSEC);
}

static void who_sleeps_is_not_reported(void **state)
{
    weft_runtime *rt = begin(2);
    weft_stall s;
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(weft_runtime_stalls(rt, 100 * WEFT_MSEC, &s, 1), 0);
        test_sleep_ms(10);
    }
    weft_runtime_free(rt);
}

static void bad_input_has_an_answer(void **state)
{
    weft_runtime *rt = begin(1);
    weft_stall s;
    (void)state;
    assert_int_equal(weft_runtime_stalls(NULL, THRESHOLD, &s, 1), -EINVAL);
    assert_int_equal(weft_runtime_stalls(rt, -1, &s, 1), -EINVAL);
    assert_int_equal(weft_runtime_stalls(rt, THRESHOLD, NULL, 1), -EINVAL);
    assert_int_equal(weft_runtime_stalls(rt, WEFT_NEVER, &s, 1), 0);
    weft_runtime_free(rt);
    assert_int_equal(weft_driven_new(NULL, &rt), 0);
    assert_int_equal(weft_runtime_stalls(rt, THRESHOLD, &s, 1), -ENOTSUP);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_that_burns_is_named),
        cmocka_unit_test(every_worker_counts),
        cmocka_unit_test(who_gives_way_is_not_reported),
        cmocka_unit_test(who_sleeps_is_not_reported),
        cmocka_unit_test(bad_input_has_an_answer),
    };
    test_limit(60, "sched_stall");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

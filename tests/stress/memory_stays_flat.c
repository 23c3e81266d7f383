/* SPDX-License-Identifier: MIT
 *
 * Memory comes back and stays flat: what a steady load holds does not grow from its
 * second fifth to its last, wave after wave of fibers needs no more than the first, trim
 * gives the stacks back, and tens of thousands of parked fibers cost neither mappings nor
 * more than about a page each. */
#include "unit_test.h"

#include <errno.h>
#include <sys/mman.h>

#include "harness.h"
#include "resources.h"
#include "weft/weft.h"

#define MIB (1024.0 * 1024.0)

static size_t rss(void)
{
    struct resources r;
    resources_take(&r);
    return r.rss;
}

/* ---- A steady load ---- */

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void spawn_and_join(weft_channel *ch)
{
    weft_task *t;
    (void)ch;
    assert_int_equal(weft_spawn(NULL, nothing, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
}

static void through_a_backlog(weft_channel *ch)
{
    uint64_t x = 1;
    assert_int_equal(weft_channel_send(ch, &x, WEFT_NEVER), 0);
    assert_int_equal(weft_channel_recv(ch, &x, WEFT_NEVER), 0);
}

/* A timer that is armed for an hour and cancelled at once. */
static void arm_and_cancel(weft_channel *ch)
{
    weft_task *t;
    (void)ch;
    assert_int_equal(weft_spawn(NULL, nothing, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, weft_after(3600 * WEFT_SEC), NULL), 0);
    weft_task_unref(t);
}

static void detached(weft_channel *ch)
{
    (void)ch;
    assert_int_equal(weft_go(nothing, NULL), 0);
    weft_yield();
}

static void (*const loads[])(weft_channel *) = {spawn_and_join, through_a_backlog, arm_and_cancel,
                                                detached};

static int steady(void *arg)
{
    size_t at[5];
    uint64_t rounds = test_rounds(50000);
    weft_channel *ch;
    assert_int_equal(weft_channel_new(sizeof(uint64_t), 1024, NULL, &ch), 0);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(weft_channel_send(ch, &i, WEFT_TRY), 0);
    for (int fifth = 0; fifth < 5; fifth++) {
        for (uint64_t i = 0; i < rounds; i++)
            loads[(size_t)arg](ch);
        at[fifth] = rss();
    }
    weft_channel_unref(ch);
    size_t slack = test_sanitized() ? 32u << 20 : 2u << 20;
    print_message("load %zu: %.1f MiB, %.1f MiB\n", (size_t)arg, (double)at[1] / MIB,
                  (double)at[4] / MIB);
    return at[4] <= at[1] + slack ? 0 : -ENOMEM;
}

static void a_steady_load(void **state)
{
    (void)state;
    weft_runtime *rt;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        weft_task *t;
        int result = -1;
        assert_int_equal(weft_spawn(rt, steady, (void *)i, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, weft_after(60 * WEFT_SEC), &result), 0);
        assert_int_equal(result, 0);
        weft_task_unref(t);
    }
    weft_runtime_free(rt);
}

/* ---- Many at once ---- */

static weft_event open_now = WEFT_EVENT_INIT;
static weft_waitgroup all;

static int parks(void *arg)
{
    volatile char used[16384];
    if (arg)
        for (size_t i = 0; i < sizeof used; i += 1024)
            used[i] = 1;
    int r = weft_event_wait(&open_now, WEFT_NEVER);
    weft_waitgroup_done(&all);
    return r;
}

static int parks_lightly(void *arg)
{
    (void)arg;
    int r = weft_event_wait(&open_now, WEFT_NEVER);
    weft_waitgroup_done(&all);
    return r;
}

/* Spawns n fibers, waits until all are parked, lets `look` look, ends them. */
static void wave(weft_runtime *rt, unsigned n, weft_fn fn, struct resources *look)
{
    weft_runtime_stats s;
    weft_event_reset(&open_now);
    assert_int_equal(weft_waitgroup_add(&all, (int)n), 0);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(weft_spawn(rt, fn, &all, NULL, NULL), 0);
    for (weft_time until = weft_after(100 * WEFT_SEC); weft_now() < until; test_sleep_ms(10)) {
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
        if (s.stacks - s.stacks_free >= n)
            break;
    }
    assert_true(s.stacks - s.stacks_free >= n);
    if (look)
        resources_take(look);
    weft_event_set(&open_now);
    assert_int_equal(weft_waitgroup_wait(&all, weft_after(100 * WEFT_SEC)), 0);
    for (weft_time until = weft_after(100 * WEFT_SEC); weft_now() < until; test_sleep_ms(1)) {
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
        if (s.alive == 0)
            break;
    }
    assert_int_equal(s.alive, 0);
}

static void waves(void **state)
{
    (void)state;
    weft_runtime *rt;
    size_t after[4];
    /* The thread sanitizer has room for some 8,000 fibers. */
    unsigned n = test_sanitized() ? 500 : 5000;
    assert_int_equal(weft_waitgroup_init(&all), 0);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    size_t start = rss();
    for (int i = 0; i < 4; i++) {
        wave(rt, n, parks, NULL);
        after[i] = rss();
    }
    assert_int_equal(weft_runtime_trim(rt, 0), 0);
    size_t trimmed = rss();
    weft_runtime_free(rt);
    print_message("%.1f MiB at first, %.1f after one wave, %.1f after four, %.1f trimmed\n",
                  (double)start / MIB, (double)after[0] / MIB, (double)after[3] / MIB,
                  (double)trimmed / MIB);
    if (!test_sanitized()) { /* whose own memory grows: fake stacks, quarantine */
        assert_true(after[3] <= after[0] + after[0] / 10 + (4u << 20));
        assert_true(trimmed <= start + (20u << 20));
    }
}

/* Without them each stack is two mappings, of the 65,530 that a process may have. */
static bool kernel_guards(void)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    bool yes = madvise(page, 4096, 102) == 0;
    munmap(page, 8192);
    return yes;
}

static void forty_thousand_parked(void **state)
{
    (void)state;
    weft_runtime *rt;
    struct resources before, parked, after;
    char why[512];
    unsigned n = test_sanitized() ? 2000 : kernel_guards() ? 40000 : 20000;
    assert_int_equal(weft_waitgroup_init(&all), 0);
    resources_take(&before);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    wave(rt, n, parks_lightly, &parked);
    weft_runtime_free(rt);
    double each = (double)(parked.rss - before.rss) / n;
    print_message("%u parked: %.0f bytes each, %d mappings more\n", n, each,
                  parked.maps - before.maps);
    if (!test_sanitized())
        assert_true(each <= 4.5 * 1024 + 512);
    if (!resources_same(&before, &after,
                        &(struct resources_slack){.maps = test_sanitized() ? 20000 : 100,
                                                  .rss = (size_t)256 << 20},
                        why, sizeof why))
        fail_msg("%s", why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_steady_load),
        cmocka_unit_test(waves),
        cmocka_unit_test(forty_thousand_parked),
    };
    test_limit(110, "memory_stays_flat");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

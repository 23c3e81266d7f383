/* SPDX-License-Identifier: MIT
 *
 * Fibers for which there is no stack wait until there is one: they lose nothing, hold up
 * nobody, also when their worker always has other work, and a shutdown gets them all through. */
#include "unit_test.h"

#include <errno.h>

#include "base/atomic.h"
#include "harness.h"
#include "preload/preload.h"
#include "weft/weft.h"

static weft__a32 ran, stop, turns, hold;

static int runs(void *arg)
{
    (void)arg;
    atom_add_rlx(&ran, 1u);
    while (!atom_load_rlx(&hold)) /* keeps its stack, so each needs one of its own */
        if (weft_sleep(WEFT_MSEC))
            break;
    return 0;
}

static int busy(void *arg)
{
    (void)arg;
    while (!atom_load_rlx(&stop)) {
        atom_add_rlx(&turns, 1u);
        weft_yield();
    }
    return 0;
}

static void rule(bool fail)
{
    const struct preload_rule r = {.action = PRELOAD_FAIL, .error = ENOMEM, .every = 1};
    assert_int_equal(preload_set(PRELOAD_MMAP, fail ? &r : NULL), 0);
}

static bool wait_for(weft__a32 *counter, uint32_t n)
{
    for (weft_time until = weft_after(30 * WEFT_SEC); weft_now() < until; test_sleep_ms(1))
        if (atom_load_acq(counter) >= n)
            return true;
    return false;
}

#define N 2000u /* more than a few slabs hold */

static void starve(bool with_busy, unsigned workers, bool shut_down)
{
    weft_runtime *rt;
    atom_store_rlx(&ran, 0u);
    atom_store_rlx(&stop, 0u);
    atom_store_rlx(&turns, 0u);
    atom_store_rlx(&hold, 0u);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    if (with_busy) {
        for (unsigned i = 0; i < workers; i++)
            assert_int_equal(weft_spawn(rt, busy, NULL, NULL, NULL), 0);
        assert_true(wait_for(&turns, 100));
    }
    /* The pool's first slab, and the tasks' own memory. */
    assert_int_equal(weft_spawn(rt, runs, NULL, NULL, NULL), 0);
    assert_true(wait_for(&ran, 1));
    rule(true);
    for (unsigned i = 1; i < N; i++)
        assert_int_equal(weft_spawn(rt, runs, NULL, NULL, NULL), 0);
    test_sleep_ms(50);
    uint32_t with_stacks = atom_load_acq(&ran), before = atom_load_rlx(&turns);
    assert_true(with_stacks < N);
    if (with_busy) /* the others go on */
        assert_true(wait_for(&turns, before + 10));
    if (shut_down) { /* those that end lend their stacks to those that wait */
        atom_store_rlx(&stop, 1u);
        assert_int_equal(weft_runtime_shutdown(rt, weft_after(30 * WEFT_SEC)), 0);
        assert_int_equal(atom_load_acq(&ran), N);
    }
    rule(false);
    assert_true(wait_for(&ran, N));
    atom_store_rlx(&hold, 1u);
    atom_store_rlx(&stop, 1u);
    assert_int_equal(weft_runtime_shutdown(rt, weft_after(30 * WEFT_SEC)), 0);
    weft_runtime_free(rt);
    print_message("%u had a stack, %u waited for one\n", with_stacks, N - with_stacks);
}

static void an_idle_worker_tries_again(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_MMAP))
        skip();
    starve(false, 1, false);
    starve(false, 2, false);
}

static void a_busy_worker_tries_again(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_MMAP))
        skip();
    starve(true, 1, false);
    starve(true, 2, false);
}

static void a_shutdown_needs_no_more_memory(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_MMAP))
        skip();
    starve(false, 1, true);
    starve(true, 2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_worker_tries_again),
        cmocka_unit_test(a_busy_worker_tries_again),
        cmocka_unit_test(a_shutdown_needs_no_more_memory),
    };
    test_limit(100, "no_stack_now");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

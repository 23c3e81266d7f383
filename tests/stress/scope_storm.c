/* SPDX-License-Identifier: MIT
 *
 * Trees of scopes under random failures, deadlines and cancellations from inside and from a
 * plain thread, with task-local values and awaited promises: when the outermost scope is
 * closed every task that began has ended, every value set was dropped, and the runtime's
 * counts balance. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/local.h"
#include "weft/promise.h"
#include "weft/runtime.h"
#include "weft/scope.h"

static weft__a64 began, ended, set, dropped, cancels;

static void drop(void *value)
{
    (void)value;
    weft_sleep(WEFT_USEC); /* destructors may wait */
    atom_add_rlx(&dropped, 1u);
}

static const weft_local key = {drop};

/* The thread's victim: a handle that it owns. */
static weft__aptr victim;
static weft__a32 stop;

static void *canceller(void *arg)
{
    (void)arg;
    while (!atom_load_acq(&stop)) {
        weft_task *t = atom_xchg_ar(&victim, NULL);
        if (t) {
            if (weft_task_cancel(t) == 0)
                atom_add_rlx(&cancels, 1u);
            weft_task_unref(t);
        }
        sched_yield();
    }
    return NULL;
}

static uint32_t next(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

static int node(void *arg);

/* The low bits of a node's argument are its depth, the others its seed. */
static void *argument(uint32_t *rng, uint32_t depth)
{
    return (void *)(uintptr_t)((next(rng) & ~7u) | 8u | depth);
}

static void spawn_children(weft_scope *s, uint32_t *rng, uint32_t depth)
{
    weft_task *t[4] = {NULL};
    size_t n = 0;
    while (n < 4 && weft_scope_spawn(s, node, argument(rng, depth), NULL, &t[n]) == 0)
        n++;
    if (n && next(rng) % 4 == 0) {
        weft_outcome out[4];
        unsigned flags = next(rng) % 2 ? WEFT_AWAIT_CANCEL_REST : 0;
        int r = weft_await_any(t, n, flags, weft_after(next(rng) % 200 * WEFT_USEC), out);
        assert_true(r == -ECHILD || r == -ETIMEDOUT || r == -ECANCELED ||
                    (r >= 0 && (size_t)r < n));
        if (r >= 0)
            assert_true(out[r].state == WEFT_OUTCOME_SETTLED && out[r].result >= 0);
    }
    for (size_t i = 0; i < n; i++) {
        weft_task *old = next(rng) % 16 ? t[i] : atom_xchg_ar(&victim, t[i]);
        weft_task_unref(old);
    }
}

static int node(void *arg)
{
    uint32_t rng = (uint32_t)(uintptr_t)arg, depth = rng & 7u;
    atom_add_rlx(&began, 1u);
    if (next(&rng) % 2) {
        assert_int_equal(weft_local_set(&key, arg), 0);
        atom_add_rlx(&set, 1u);
    }
    int r = next(&rng) % 3 ? 0 : weft_sleep(next(&rng) % 100 * WEFT_USEC);
    if (depth) {
        weft_scope_options o = {.flags = next(&rng) % 3 ? 0 : WEFT_SCOPE_FAIL_FAST};
        if (next(&rng) % 4 == 0)
            o.deadline = weft_after(next(&rng) % 300 * WEFT_USEC);
        weft_scope *s;
        assert_int_equal(weft_scope_open(&o, &s), 0);
        spawn_children(s, &rng, depth - 1);
        if (next(&rng) % 8 == 0)
            weft_scope_cancel(s);
        if (next(&rng) % 8) /* else the end of the body closes it */
            r = weft_scope_close(s, NULL);
    }
    if (next(&rng) % 16 == 0)
        r = -1;
    atom_add_rlx(&ended, 1u);
    return r;
}

static void everything_ends_and_balances(void **state)
{
    (void)state;
    uint32_t rng = (uint32_t)test_seed() | 1u;
    uint64_t rounds = test_rounds(1500);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, canceller, NULL), 0);
    for (unsigned workers = 1; workers <= 4; workers += 3) {
        weft_runtime *rt;
        assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
        for (uint64_t i = 0; i < rounds; i++) {
            weft_scope *s;
            assert_int_equal(weft_scope_open(&(weft_scope_options){.runtime = rt}, &s), 0);
            for (int k = 0; k < 4; k++)
                assert_int_equal(weft_scope_spawn(s, node, argument(&rng, 3), NULL, NULL), 0);
            if (next(&rng) % 4 == 0) {
                test_sleep_ms(next(&rng) % 3);
                weft_scope_cancel(s);
            }
            weft_scope_close(s, NULL);
            assert_int_equal(atom_load_acq(&began), atom_load_acq(&ended));
            assert_int_equal(atom_load_acq(&set), atom_load_acq(&dropped));
        }
        weft_task_unref(atom_xchg_ar(&victim, NULL));
        weft_runtime_stats stats;
        assert_int_equal(weft_runtime_shutdown(rt, WEFT_NEVER), 0);
        assert_int_equal(weft_runtime_get_stats(rt, &stats), 0);
        assert_int_equal(stats.alive, 0);
        assert_int_equal(stats.spawned, stats.finished);
        weft_runtime_free(rt);
    }
    atom_store_rel(&stop, 1u);
    pthread_join(thread, NULL);
    assert_true(atom_load_rlx(&began) > rounds);
}

int main(void)
{
    test_limit(100, "scope_storm");
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_ends_and_balances)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

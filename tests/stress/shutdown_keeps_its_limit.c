/* SPDX-License-Identifier: MIT
 *
 * Shutting down: the limit is kept at its edges (none, short, generous), the answer says
 * what is left, every wait ends, a call that comes in between is answered one way or the
 * other, and a runtime leaves nothing behind however often one is made. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/atomic.h"
#include "harness.h"
#include "resources.h"
#include "weft/weft.h"

static weft_runtime *begin(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static weft__a32 stubborn_runs, release;

/* Does not listen to a cancellation. */
static int stubborn(void *arg)
{
    (void)arg;
    atom_store_rel(&stubborn_runs, 1u);
    while (!atom_load_acq(&release))
        ;
    return 0;
}

static void the_limit_is_kept(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        atom_store_rlx(&release, 0u);
        atom_store_rlx(&stubborn_runs, 0u);
        assert_int_equal(weft_spawn(rt, stubborn, NULL, NULL, NULL), 0);
        while (!atom_load_acq(&stubborn_runs))
            test_sleep_ms(1);
        weft_time start = weft_now();
        assert_int_equal(weft_runtime_shutdown(rt, WEFT_TRY), 1);
        assert_int_equal(weft_runtime_shutdown(rt, start), 1); /* a deadline in the past */
        assert_true(weft_now() - start < WEFT_SEC);
        start = weft_now();
        assert_int_equal(weft_runtime_shutdown(rt, weft_after(100 * WEFT_MSEC)), 1);
        weft_time took = weft_now() - start;
        assert_true(took >= 100 * WEFT_MSEC && took < 2 * WEFT_SEC);
        atom_store_rel(&release, 1u);
        start = weft_now();
        assert_int_equal(weft_runtime_shutdown(rt, weft_after(60 * WEFT_SEC)), 0);
        assert_true(weft_now() - start < 10 * WEFT_SEC);
        assert_int_equal(weft_runtime_shutdown(rt, WEFT_NEVER), 0);
        assert_int_equal(weft_runtime_shutdown(rt, WEFT_TRY), 0);
        weft_runtime_free(rt);
    }
}

static weft__a32 canceled;

static int sleeps(void *arg)
{
    (void)arg;
    if (weft_sleep(3600 * WEFT_SEC) == -ECANCELED)
        atom_add_rlx(&canceled, 1u);
    return 0;
}

static int reads(void *arg)
{
    char c;
    if (weft_fd_read(arg, &c, 1, WEFT_NEVER) == -ECANCELED)
        atom_add_rlx(&canceled, 1u);
    return 0;
}

static weft_event never = WEFT_EVENT_INIT;

static int waits(void *arg)
{
    (void)arg;
    if (weft_event_wait(&never, WEFT_NEVER) == -ECANCELED)
        atom_add_rlx(&canceled, 1u);
    return 0;
}

static int polled(weft_task *self, void *state)
{
    (void)self;
    (void)state;
    if (!weft_cancelled())
        return WEFT_PENDING;
    atom_add_rlx(&canceled, 1u);
    return 0;
}

static void every_wait_ends(void **state)
{
    (void)state;
    uint64_t rounds = test_rounds(60);
    for (uint64_t i = 0; i < rounds; i++) {
        weft_runtime *rt = begin(1 + (unsigned)i % 3);
        weft_fd *a, *b;
        atom_store_rlx(&canceled, 0u);
        assert_int_equal(weft_unix_pair(&a, &b), 0);
        assert_int_equal(weft_spawn(rt, reads, a, NULL, NULL), 0);
        assert_int_equal(weft_spawn_poll(rt, polled, NULL, 0, NULL, NULL), 0);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(weft_spawn(rt, sleeps, NULL, NULL, NULL), 0);
            assert_int_equal(weft_spawn(rt, waits, NULL, NULL, NULL), 0);
        }
        if (i % 2)
            test_sleep_ms(1);
        assert_int_equal(weft_runtime_shutdown(rt, weft_after(20 * WEFT_SEC)), 0);
        assert_int_equal(atom_load_rlx(&canceled), 10);
        weft_runtime_free(rt);
        weft_fd_unref(a);
        weft_fd_unref(b);
    }
}

/* ---- A call that comes in between ---- */

struct meeting {
    weft_runtime *rt;
    pthread_barrier_t barrier;
    weft__a32 ran, accepted, refused;
};

static int runs(void *arg)
{
    struct meeting *m = arg;
    atom_add_rlx(&m->ran, 1u);
    return 7;
}

static void *asks(void *arg)
{
    struct meeting *m = arg;
    pthread_barrier_wait(&m->barrier);
    for (int i = 0; i < 20; i++) {
        weft_task *t = NULL;
        int result = 0;
        int r =
            i % 2 ? weft_spawn(m->rt, runs, m, NULL, &t) : weft_spawn(m->rt, runs, m, NULL, NULL);
        if (r == -ESHUTDOWN) {
            atom_add_rlx(&m->refused, 1u);
            continue;
        }
        assert_int_equal(r, 0);
        atom_add_rlx(&m->accepted, 1u);
        if (t) {
            assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), &result), 0);
            assert_int_equal(result, 7);
            weft_task_unref(t);
        }
    }
    return NULL;
}

static void a_call_in_between_is_answered(void **state)
{
    (void)state;
    uint64_t rounds = test_rounds(500), refused = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        struct meeting m = {.rt = begin(1 + (unsigned)i % 2)};
        pthread_t asker;
        pthread_barrier_init(&m.barrier, NULL, 2);
        assert_int_equal(pthread_create(&asker, NULL, asks, &m), 0);
        pthread_barrier_wait(&m.barrier);
        for (volatile uint64_t k = 0; k < i * 37 % 20000; k++)
            ;
        assert_int_equal(weft_runtime_shutdown(m.rt, weft_after(20 * WEFT_SEC)), 0);
        weft_runtime_stats s;
        pthread_join(asker, NULL);
        assert_int_equal(weft_runtime_get_stats(m.rt, &s), 0);
        weft_runtime_free(m.rt);
        assert_int_equal(atom_load_rlx(&m.ran), atom_load_rlx(&m.accepted));
        assert_int_equal(s.spawned, atom_load_rlx(&m.accepted));
        assert_int_equal(s.finished, s.spawned);
        assert_int_equal(s.rejected, atom_load_rlx(&m.refused));
        refused += atom_load_rlx(&m.refused);
        pthread_barrier_destroy(&m.barrier);
    }
    print_message("%llu refused\n", (unsigned long long)refused);
}

/* ---- From odd places ---- */

static int from_a_poll_function(weft_task *self, void *state)
{
    weft_runtime *other;
    (void)self;
    (void)state;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &other), 0);
    assert_int_equal(weft_spawn(other, waits, NULL, NULL, NULL), 0);
    assert_int_equal(weft_runtime_shutdown(other, weft_after(WEFT_SEC)), -EPERM);
    assert_int_equal(weft_runtime_shutdown(other, WEFT_NEVER), -EPERM);
    assert_true(weft_runtime_shutdown(other, WEFT_TRY) >= 0);
    weft_runtime_free(other);
    return 0;
}

static int from_inside(void *arg)
{
    weft_runtime *own = weft_runtime_current(), *other;
    (void)arg;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &other), 0);
    assert_int_equal(weft_spawn(other, waits, NULL, NULL, NULL), 0);
    assert_int_equal(weft_runtime_shutdown(other, weft_after(20 * WEFT_SEC)), 0);
    weft_runtime_free(other);
    assert_int_equal(weft_runtime_shutdown(own, WEFT_NEVER), -EDEADLK);
    weft_runtime_stats s; /* a task that has been joined may still be on its way out */
    do {
        weft_yield();
        assert_int_equal(weft_runtime_get_stats(own, &s), 0);
    } while (s.alive > 1);
    assert_int_equal(weft_runtime_shutdown(own, WEFT_TRY), 1);
    assert_int_equal(weft_go(runs, NULL), -ESHUTDOWN);
    /* It is cancelled itself now, and can still end another runtime. */
    assert_int_equal(weft_sleep(1), -ECANCELED);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &other), 0);
    assert_int_equal(weft_spawn(other, waits, NULL, NULL, NULL), 0);
    weft_runtime_free(other);
    return 0;
}

static void from_odd_places(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        weft_task *t;
        int result = -1;
        assert_int_equal(weft_spawn_poll(rt, from_a_poll_function, NULL, 0, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), &result), 0);
        weft_task_unref(t);
        assert_int_equal(weft_spawn(rt, from_inside, NULL, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), &result), 0);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
}

/* ---- Again and again ---- */

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void one_life(weft_runtime **rt, int n)
{
    for (int i = 0; i < n; i++) {
        rt[i] = begin(2);
        for (int k = 0; k < 200; k++)
            assert_int_equal(weft_spawn(rt[i], nothing, NULL, NULL, NULL), 0);
    }
    for (int i = 0; i < n; i++)
        weft_runtime_free(rt[i]);
}

static void nothing_stays_behind(void **state)
{
    (void)state;
    weft_runtime *rt[3];
    struct resources before, after;
    char why[512];
    uint64_t rounds = test_rounds(150);
    one_life(rt, 3);
    resources_take(&before);
    for (uint64_t i = 0; i < rounds; i++)
        one_life(rt, i % 10 ? 1 : 3);
    if (!resources_same(&before, &after, NULL, why, sizeof why))
        fail_msg("%s", why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_is_kept),    cmocka_unit_test(every_wait_ends),
        cmocka_unit_test(from_odd_places),      cmocka_unit_test(a_call_in_between_is_answered),
        cmocka_unit_test(nothing_stays_behind),
    };
    test_limit(110, "shutdown_keeps_its_limit");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

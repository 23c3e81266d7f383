/* Tasks on real workers: spawn, join, results, cancellation, yield, sleep, pinning,
 * poll bodies, limits, shutdown; on one worker and on several. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/runtime.h"
#include "weft/task.h"

static weft__a32 counter;

static int count_up(void *arg)
{
    (void)arg;
    atom_add_rlx(&counter, 1u);
    return 0;
}

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static int add_one(void *arg)
{
    return *(int *)arg + 1;
}

static int spawn_and_join(void *arg)
{
    int x = 41, result = 0;
    weft_task *t;
    (void)arg;
    assert_int_equal(weft_spawn(NULL, add_one, &x, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_true(weft_task_done(t));
    assert_int_equal(weft_task_join(t, WEFT_TRY, &result), 0);
    weft_task_unref(t);
    assert_int_equal(weft_task_join(weft_task_self(), WEFT_NEVER, NULL), -EDEADLK);
    return result;
}

static void run_returns_the_result(void **state)
{
    (void)state;
    int result = 0;
    assert_int_equal(weft_run(NULL, spawn_and_join, NULL, &result), 0);
    assert_int_equal(result, 42);
    assert_int_equal(weft_run(NULL, NULL, NULL, &result), -EINVAL);
    assert_int_equal(weft_spawn(NULL, add_one, NULL, NULL, NULL), -EINVAL);
}

/* The thread sanitizer clears 800 KB for each fiber that is made: fewer there. */
static uint32_t many(void)
{
    return (uint32_t)test_rounds(10000);
}

static int spawn_many(void *arg)
{
    for (uint32_t i = 0; i < many(); i++)
        assert_int_equal(weft_go(count_up, arg), 0);
    return 0;
}

static void all_spawned_run(void **state)
{
    (void)state;
    atom_store_rlx(&counter, 0u);
    assert_int_equal(weft_run(NULL, spawn_many, NULL, NULL), 0);
    assert_int_equal(atom_load_rlx(&counter), many());
    for (unsigned workers = 1; workers <= 4; workers++) {
        weft_runtime *rt = runtime(workers);
        atom_store_rlx(&counter, 0u);
        weft_task *t[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(weft_spawn(rt, spawn_many, NULL, NULL, &t[i]), 0);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(weft_spawn(rt, count_up, NULL, NULL, NULL), 0);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
            weft_task_unref(t[i]);
        }
        while (atom_load_acq(&counter) != 4 * many() + 1000)
            usleep(1000);
        weft_runtime_free(rt);
    }
}

static int yielder(void *arg)
{
    for (int i = 0; i < 1000; i++)
        assert_int_equal(weft_yield(), 0);
    return count_up(arg);
}

static int many_yielders(void *arg)
{
    for (int i = 0; i < 50; i++)
        assert_int_equal(weft_go(yielder, arg), 0);
    return 0;
}

static void yields_interleave(void **state)
{
    (void)state;
    atom_store_rlx(&counter, 0u);
    assert_int_equal(weft_run(NULL, many_yielders, NULL, NULL), 0);
    assert_int_equal(atom_load_rlx(&counter), 50);
    weft_runtime *rt = runtime(3);
    assert_int_equal(weft_spawn(rt, many_yielders, NULL, NULL, NULL), 0);
    while (atom_load_acq(&counter) != 100)
        usleep(1000);
    weft_runtime_free(rt);
}

static int sleeper(void *arg)
{
    weft_time d = *(weft_time *)arg, start = weft_now();
    int r = weft_sleep(d);
    assert_true(r == -ECANCELED || weft_now() - start >= d);
    return r;
}

static int sleep_many(void *arg)
{
    static weft_time lengths[20];
    weft_task *t[20];
    int result;
    (void)arg;
    for (int i = 0; i < 20; i++) {
        lengths[i] = i * 1500 * WEFT_USEC + i;
        assert_int_equal(weft_spawn(NULL, sleeper, &lengths[i], NULL, &t[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(weft_task_join(t[i], WEFT_NEVER, &result), 0);
        assert_int_equal(result, 0);
        weft_task_unref(t[i]);
    }
    return 0;
}

static void sleeps_are_never_early(void **state)
{
    (void)state;
    assert_int_equal(weft_run(NULL, sleep_many, NULL, NULL), 0);
    weft_runtime *rt = runtime(4);
    weft_task *t;
    assert_int_equal(weft_spawn(rt, sleep_many, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

static void cancel_ends_a_sleep_at_once(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 3; workers++) {
        weft_runtime *rt = runtime(workers);
        weft_time hour = 3600 * WEFT_SEC;
        weft_task *t;
        int result;
        for (int i = 0; i < 200; i++) {
            assert_int_equal(weft_spawn(rt, sleeper, &hour, NULL, &t), 0);
            if (i % 3 == 0)
                usleep(100);
            assert_int_equal(weft_task_cancel(t), 0);
            assert_int_equal(weft_task_join(t, weft_after(10 * WEFT_SEC), &result), 0);
            assert_int_equal(result, -ECANCELED);
            assert_int_equal(weft_task_cancel(t), -EALREADY);
            weft_task_unref(t);
        }
        weft_runtime_free(rt);
    }
}

static int shielded(void *arg)
{
    (void)arg;
    weft_time start = weft_now();
    weft_shield_enter();
    assert_int_equal(weft_sleep(30 * WEFT_MSEC), 0);
    assert_true(weft_now() - start >= 30 * WEFT_MSEC);
    assert_true(weft_cancelled());
    weft_shield_leave();
    return weft_sleep(3600 * WEFT_SEC);
}

static void a_shield_holds_cancellation_off(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    weft_task *t;
    int result;
    assert_int_equal(weft_spawn(rt, shielded, NULL, NULL, &t), 0);
    usleep(5000);
    assert_int_equal(weft_task_cancel(t), 0);
    assert_int_equal(weft_task_join(t, weft_after(10 * WEFT_SEC), &result), 0);
    assert_int_equal(result, -ECANCELED);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

static int stay(void *arg)
{
    pthread_t first = pthread_self();
    for (int i = 0; i < 200; i++) {
        weft_yield();
        if (i % 50 == 0)
            weft_sleep(WEFT_MSEC);
        if (!pthread_equal(first, pthread_self()))
            return -1;
    }
    return count_up(arg);
}

static void pinned_tasks_stay(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(3);
    weft_task *t[30];
    int result;
    weft_spawn_options o = {.name = "pinned", .flags = WEFT_PINNED};
    for (int i = 0; i < 30; i++)
        assert_int_equal(weft_spawn(rt, stay, NULL, &o, &t[i]), 0);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(weft_task_join(t[i], weft_after(20 * WEFT_SEC), &result), 0);
        assert_int_equal(result, 0);
        assert_string_equal(weft_task_name(t[i]), "pinned");
        weft_task_unref(t[i]);
    }
    weft_runtime_free(rt);
}

struct poll_state {
    int polls;
    char big[100];
};

static int poll_twice(weft_task *self, void *arg)
{
    struct poll_state *s = arg;
    assert_int_equal(weft_sleep(1), -EPERM);
    if (s->polls++ == 0) {
        weft_task_wake(self); /* while it runs: polled again */
        return WEFT_PENDING;
    }
    if (s->polls == 2) {
        assert_int_equal(weft_task_wake_at(self, weft_after(2 * WEFT_MSEC)), 0);
        return WEFT_PENDING;
    }
    return s->polls < 4 ? WEFT_PENDING : 7;
}

static void poll_tasks_run_when_woken(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = runtime(workers);
        weft_task *t;
        int result = 0;
        assert_int_equal(weft_spawn_poll(rt, poll_twice, NULL, sizeof(struct poll_state), NULL, &t),
                         0);
        assert_int_equal(weft_task_join(t, weft_after(50 * WEFT_MSEC), NULL), -ETIMEDOUT);
        assert_int_equal(weft_task_wake(t), 0);
        assert_int_equal(weft_task_join(t, weft_after(10 * WEFT_SEC), &result), 0);
        assert_int_equal(result, 7);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
}

static void limits_and_shutdown(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_runtime_options o = {.workers = 2, .max_tasks = 3};
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    weft_time hour = 3600 * WEFT_SEC;
    for (int i = 0; i < 3; i++)
        assert_int_equal(weft_spawn(rt, sleeper, &hour, NULL, NULL), 0);
    assert_int_equal(weft_spawn(rt, sleeper, &hour, NULL, NULL), -EAGAIN);
    weft_runtime_stats s;
    assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
    assert_int_equal(s.alive, 3);
    assert_int_equal(s.rejected, 1);
    assert_int_equal(weft_runtime_shutdown(rt, weft_after(10 * WEFT_SEC)), 0);
    assert_int_equal(weft_spawn(rt, sleeper, &hour, NULL, NULL), -ESHUTDOWN);
    assert_int_equal(weft_runtime_shutdown(rt, WEFT_TRY), 0);
    assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
    assert_int_equal(s.spawned, s.finished);
    assert_int_equal(s.cancelled, 3);
    weft_runtime_free(rt);
    assert_null(weft_runtime_free(NULL));
    assert_int_equal(weft_runtime_shutdown(NULL, WEFT_TRY), -EINVAL);
}

static void handles_outlive_the_runtime(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    weft_task *t;
    assert_int_equal(weft_spawn(rt, count_up, NULL, NULL, &t), 0);
    weft_runtime_free(rt);
    assert_true(weft_task_done(t));
    assert_null(weft_task_unref(t));
    assert_null(weft_task_unref(NULL));
}

static void runtimes_come_and_go(void **state)
{
    (void)state;
    uint64_t rounds = test_rounds(100); /* mapping stacks is dear under the sanitizers */
    for (uint64_t i = 0; i < rounds; i++) {
        weft_runtime *rt = runtime(2);
        atom_store_rlx(&counter, 0u);
        for (int k = 0; k < 100; k++)
            assert_int_equal(weft_spawn(rt, count_up, NULL, NULL, NULL), 0);
        weft_runtime_free(rt);
        assert_int_equal(atom_load_acq(&counter), 100);
    }
}

static int shallow(void *arg)
{
    return count_up(arg);
}

static int deep(void *arg)
{
    volatile char room[20000];
    memset((char *)room, 1, sizeof room);
    return count_up(arg) + room[0] - 1;
}

static int spawn_both(void *arg)
{
    weft_spawn_options a = {.name = "shallow"}, b = {.name = "deep"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(weft_spawn(NULL, shallow, arg, &a, NULL), 0);
        assert_int_equal(weft_spawn(NULL, deep, arg, &b, NULL), 0);
    }
    return 0;
}

static void the_census_knows_how_deep(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_task *t;
    weft_census_entry e[8];
    size_t seen[2] = {0, 0};
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2, .census = true}, &rt),
                     0);
    assert_int_equal(weft_spawn(rt, spawn_both, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
    while (weft_runtime_shutdown(rt, weft_after(WEFT_SEC)) != 0)
        usleep(100);
    assert_int_equal(weft_runtime_census(rt, NULL, 1), -EINVAL);
    assert_int_equal(weft_runtime_census(rt, e, 8), 3);
    for (int i = 0; i < 3; i++)
        if (e[i].name) {
            assert_int_equal(e[i].fibers, 5);
            seen[strcmp(e[i].name, "deep") == 0] = e[i].deepest;
        }
    assert_true(seen[0] > 0 && seen[0] < 20000);
    assert_true(seen[1] > 20000 && seen[1] < 65536);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_returns_the_result),
        cmocka_unit_test(all_spawned_run),
        cmocka_unit_test(yields_interleave),
        cmocka_unit_test(sleeps_are_never_early),
        cmocka_unit_test(cancel_ends_a_sleep_at_once),
        cmocka_unit_test(a_shield_holds_cancellation_off),
        cmocka_unit_test(pinned_tasks_stay),
        cmocka_unit_test(poll_tasks_run_when_woken),
        cmocka_unit_test(limits_and_shutdown),
        cmocka_unit_test(handles_outlive_the_runtime),
        cmocka_unit_test(runtimes_come_and_go),
        cmocka_unit_test(the_census_knows_how_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

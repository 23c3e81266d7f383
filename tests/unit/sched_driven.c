/* A runtime that its host drives: turns and their budgets, the plan and the wake armed
 * in one step, the descriptor, timers, threads that submit meanwhile, the end. */
#include "unit_test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "base/atomic.h"
#include "weft/driven.h"
#include "weft/task.h"

static weft__a32 ran;

static int count(void *arg)
{
    (void)arg;
    atom_add_rlx(&ran, 1u);
    return 0;
}

static int yield_ten(void *arg)
{
    for (int i = 0; i < 10; i++)
        weft_yield();
    return count(arg);
}

static weft_runtime *host(void)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_driven_new(NULL, &rt), 0);
    atom_store_rlx(&ran, 0u);
    return rt;
}

static void turns_keep_their_budget(void **state)
{
    (void)state;
    weft_runtime *rt = host();
    weft_time until = 0;
    assert_int_equal(weft_driven_turn(NULL, NULL), -EINVAL);
    assert_int_equal(weft_driven_turn(rt, &(weft_driven_budget){.time = -1}), -EINVAL);
    assert_int_equal(weft_driven_turn(rt, NULL), 0);
    assert_int_equal(weft_driven_plan(rt, NULL, &until), WEFT_PLAN_NEVER);
    assert_true(until == WEFT_NEVER);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_spawn(rt, count, NULL, NULL, NULL), 0);
    assert_int_equal(weft_driven_plan(rt, NULL, NULL), WEFT_PLAN_NOW);
    for (unsigned i = 1; i <= 10; i++) {
        assert_int_equal(weft_driven_turn(rt, &(weft_driven_budget){.tasks = 1}), 1);
        assert_int_equal(atom_load_rlx(&ran), i);
        assert_int_equal(weft_driven_plan(rt, NULL, NULL),
                         i < 10 ? WEFT_PLAN_NOW : WEFT_PLAN_NEVER);
    }
    assert_int_equal(weft_spawn(rt, yield_ten, NULL, NULL, NULL), 0);
    assert_int_equal(weft_spawn(rt, yield_ten, NULL, NULL, NULL), 0);
    assert_int_equal(weft_driven_turn(rt, &(weft_driven_budget){.tasks = 5}), 5);
    assert_int_equal(weft_driven_turn(rt, NULL), 17);
    assert_int_equal(atom_load_rlx(&ran), 12);
    weft_runtime_free(rt);
}

static int nap(void *arg)
{
    weft_time start = weft_now();
    assert_int_equal(weft_sleep(10 * WEFT_MSEC), 0);
    assert_true(weft_now() - start >= 10 * WEFT_MSEC);
    return count(arg);
}

static void the_plan_knows_the_next_timer(void **state)
{
    (void)state;
    weft_runtime *rt = host();
    weft_time until, now = weft_now();
    assert_int_equal(weft_spawn(rt, nap, NULL, NULL, NULL), 0);
    assert_int_equal(weft_driven_turn(rt, NULL), 1);
    assert_int_equal(weft_driven_plan(rt, NULL, &until), WEFT_PLAN_UNTIL);
    assert_true(until >= now + 10 * WEFT_MSEC && until < weft_now() + 12 * WEFT_MSEC);
    while (weft_now() < until)
        assert_int_equal(weft_driven_turn(rt, NULL) * (weft_now() < until), 0);
    while (weft_driven_plan(rt, NULL, NULL) == WEFT_PLAN_NOW)
        weft_driven_turn(rt, NULL);
    assert_int_equal(atom_load_rlx(&ran), 1);
    weft_runtime_free(rt);
}

static void bump(void *arg)
{
    atom_add_ar((weft__a32 *)arg, 1u);
}

static void a_wake_comes_once_per_plan(void **state)
{
    (void)state;
    weft_runtime *rt = host();
    weft__a32 woken = {0};
    weft_waker waker = {bump, &woken};
    assert_int_equal(weft_driven_plan(rt, &waker, NULL), WEFT_PLAN_NEVER);
    assert_int_equal(weft_spawn(rt, count, NULL, NULL, NULL), 0);
    assert_int_equal(weft_spawn(rt, count, NULL, NULL, NULL), 0);
    assert_int_equal(atom_load_rlx(&woken), 1);
    assert_int_equal(weft_driven_plan(rt, &waker, NULL), WEFT_PLAN_NOW);
    assert_int_equal(weft_driven_turn(rt, NULL), 2);
    assert_int_equal(weft_spawn(rt, count, NULL, NULL, NULL), 0);
    assert_int_equal(atom_load_rlx(&woken), 1); /* nothing was armed */
    assert_int_equal(weft_driven_turn(rt, NULL), 1);
    weft_runtime_free(rt);
}

enum { SUBMITS = 3000 };

static void *submit(void *arg)
{
    for (int i = 0; i < SUBMITS; i++) {
        assert_int_equal(weft_spawn(arg, i % 50 ? count : nap, NULL, NULL, NULL), 0);
        if (i % 16 == 0)
            usleep(20);
    }
    return NULL;
}

static int readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms);
}

static void the_descriptor_never_misses(void **state)
{
    (void)state;
    weft_runtime *rt = host();
    int fd = weft_driven_fd(rt);
    assert_true(fd >= 0);
    assert_int_equal(weft_driven_fd(rt), fd);
    assert_int_equal(readable(fd, 1000), 1); /* come and turn first */
    weft_driven_turn(rt, NULL);
    assert_int_equal(weft_driven_plan(rt, NULL, NULL), WEFT_PLAN_NEVER);
    assert_int_equal(readable(fd, 0), 0);
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, submit, rt), 0);
    weft_time limit = weft_after(50 * WEFT_SEC);
    while (atom_load_rlx(&ran) < 2 * SUBMITS) {
        assert_true(weft_now() < limit);
        assert_int_equal(readable(fd, 10000), 1); /* a lost wake shows here */
        weft_driven_turn(rt, &(weft_driven_budget){.tasks = 7});
        weft_driven_plan(rt, NULL, NULL);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    weft_driven_turn(rt, NULL);
    assert_int_equal(weft_driven_plan(rt, NULL, NULL), WEFT_PLAN_NEVER);
    assert_int_equal(readable(fd, 0), 0);
    weft_runtime_free(rt);
}

static int turn_inside(void *arg)
{
    weft_runtime *rt = weft_runtime_current();
    assert_int_equal(weft_driven_turn(rt, NULL), -EDEADLK);
    assert_int_equal(weft_driven_plan(rt, NULL, NULL), -EBUSY);
    return count(arg);
}

static int forever(void *arg)
{
    assert_int_equal(weft_sleep_until(WEFT_NEVER), -ECANCELED);
    weft_shield_enter();
    assert_int_equal(weft_sleep(3 * WEFT_MSEC), 0);
    weft_shield_leave();
    return count(arg);
}

static int drive_another(void *arg)
{
    weft_runtime *rt = arg;
    assert_int_equal(weft_spawn(rt, count, NULL, NULL, NULL), 0);
    assert_int_equal(weft_driven_turn(rt, NULL), 1);
    assert_ptr_not_equal(weft_runtime_current(), rt);
    assert_int_equal(weft_yield(), 0);
    return 0;
}

static void wrong_places_and_the_end(void **state)
{
    (void)state;
    weft_runtime *rt = host();
    assert_int_equal(weft_spawn(rt, turn_inside, NULL, NULL, NULL), 0);
    assert_int_equal(weft_driven_turn(rt, NULL), 1);
    assert_int_equal(weft_run(NULL, drive_another, rt, NULL), 0); /* from a task of another */
    assert_int_equal(weft_spawn(rt, forever, NULL, NULL, NULL), 0);
    weft_driven_turn(rt, NULL);
    assert_int_equal(atom_load_rlx(&ran), 2);
    weft_runtime_free(rt); /* cancels, then drives the clean-up */
    assert_int_equal(atom_load_rlx(&ran), 3);
    weft_runtime *threads;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &threads), 0);
    assert_int_equal(weft_driven_turn(threads, NULL), -EINVAL);
    assert_int_equal(weft_driven_fd(threads), -EINVAL);
    weft_runtime_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_keep_their_budget),
        cmocka_unit_test(the_plan_knows_the_next_timer),
        cmocka_unit_test(a_wake_comes_once_per_plan),
        cmocka_unit_test(the_descriptor_never_misses),
        cmocka_unit_test(wrong_places_and_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

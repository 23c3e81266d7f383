/* SPDX-License-Identifier: MIT
 *
 * A poll task that ends leaves nothing behind: the timer it asked for, a wake or a
 * cancellation that was on its way reach it or nobody, never the next task in the same
 * memory. The next tasks here are fibers that wait without a limit, and must not be
 * woken before they are told to end. */
#include "unit_test.h"

#include <errno.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/event.h"
#include "weft/task.h"

static weft__a32 stop;

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

static uint32_t seed; /* of the test, read only */

/* Asks for a timer that is due about when it ends. */
static int brief(weft_task *self, void *state)
{
    uint32_t x = seed + (uint32_t)weft_task_id(self) * 2654435761u + 1;
    (void)state;
    weft_task_wake_at(self, weft_after(1 + rnd(&x) % 20000));
    burn(rnd(&x) % 30000);
    if (rnd(&x) % 2) /* nearer than one that may have come already */
        weft_task_wake_at(self, 1);
    return 0;
}

/* Looks around all the time, so that it serves the timers of the other workers. */
static int restless(void *arg)
{
    (void)arg;
    while (!atom_load_rlx(&stop))
        weft_yield();
    return 0;
}

static int waits_for_its_end(void *arg)
{
    weft_event *e = arg;
    int r = weft_event_wait(e, WEFT_NEVER);
    return r == 0 && weft_event_is_set(e) ? 0 : r ? r : -EBADMSG;
}

#define VICTIMS 8

static int mix(void *arg)
{
    uint64_t rounds = test_rounds(4000);
    (void)arg;
    for (uint64_t i = 0; i < rounds; i++) {
        weft_task *poll[4], *victim[VICTIMS];
        weft_event e;
        weft_event_init(&e);
        for (int k = 0; k < 4; k++)
            assert_int_equal(weft_spawn_poll(NULL, brief, NULL, 8, NULL, i % 2 ? NULL : &poll[k]),
                             0);
        for (int k = 0; i % 2 == 0 && k < 4; k++) {
            if (k < 2)
                weft_task_wake(poll[k]);
            else
                weft_task_cancel(poll[k]);
            weft_task_unref(poll[k]);
        }
        weft_yield();
        for (int k = 0; k < VICTIMS; k++)
            assert_int_equal(weft_spawn(NULL, waits_for_its_end, &e, NULL, &victim[k]), 0);
        for (int k = 0; k < 4; k++)
            weft_yield();
        weft_event_set(&e);
        for (int k = 0; k < VICTIMS; k++) {
            int result = 1;
            assert_int_equal(weft_task_join(victim[k], weft_after(20 * WEFT_SEC), &result), 0);
            assert_int_equal(result, 0);
            weft_task_unref(victim[k]);
        }
    }
    return 0;
}

static void nobody_inherits_its_timer(void **state)
{
    (void)state;
    seed = (uint32_t)test_seed() | 1u;
    weft_runtime *rt;
    weft_task *t;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 3}, &rt), 0);
    assert_int_equal(weft_spawn(rt, restless, NULL, NULL, NULL), 0);
    assert_int_equal(weft_spawn(rt, mix, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
    atom_store_rlx(&stop, 1u);
    weft_runtime_free(rt);
}

/* Deterministic: the first timer has come while the poll goes on, then a nearer one is
 * asked for, then the task ends; what runs in its place waits on. */
static int asks_twice_and_ends(weft_task *self, void *state)
{
    (void)state;
    weft_task_wake_at(self, weft_after(100 * WEFT_USEC));
    burn(20 * WEFT_MSEC); /* the restless one serves it */
    weft_task_wake_at(self, 1);
    return 0;
}

static void a_timer_that_came_is_not_asked_for_again(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_task *t, *victim[VICTIMS];
    weft_event e;
    atom_store_rlx(&stop, 0u);
    weft_event_init(&e);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    assert_int_equal(weft_spawn(rt, restless, NULL, NULL, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(weft_spawn_poll(rt, asks_twice_and_ends, NULL, 0, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), NULL), 0);
        weft_task_unref(t);
        for (int k = 0; k < VICTIMS; k++)
            assert_int_equal(weft_spawn(rt, waits_for_its_end, &e, NULL, &victim[k]), 0);
        test_sleep_ms(10);
        for (int k = 0; k < VICTIMS; k++)
            assert_false(weft_task_done(victim[k]));
        weft_event_set(&e);
        for (int k = 0; k < VICTIMS; k++) {
            int result = 1;
            assert_int_equal(weft_task_join(victim[k], weft_after(20 * WEFT_SEC), &result), 0);
            assert_int_equal(result, 0);
            weft_task_unref(victim[k]);
        }
        weft_event_reset(&e);
    }
    atom_store_rlx(&stop, 1u);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timer_that_came_is_not_asked_for_again),
        cmocka_unit_test(nobody_inherits_its_timer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

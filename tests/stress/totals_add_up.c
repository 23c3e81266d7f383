/* SPDX-License-Identifier: MIT
 *
 * A runtime's totals: they never fall, whenever they are read; at rest spawned ==
 * finished + alive; each task is counted once by how it ended; the cap on tasks is exact,
 * from inside and from outside. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

static weft__a32 stop;

static int ends_in_some_way(void *arg)
{
    switch ((uintptr_t)arg % 4) {
    case 0:
        return 0;
    case 1:
        return -EIO;
    case 2:
        return weft_sleep(50 * WEFT_USEC);
    default:
        return weft_yield();
    }
}

static int spawns(void *arg)
{
    (void)arg;
    for (uintptr_t i = 0; !atom_load_rlx(&stop); i++) {
        weft_task *t;
        int r = weft_spawn(NULL, ends_in_some_way, (void *)i, NULL, &t);
        if (r == 0) {
            if (i % 5 == 0)
                weft_task_cancel(t);
            weft_task_unref(t);
        } else if (r == -ECANCELED || r == -ESHUTDOWN) {
            break;
        }
        if (i % 8 == 0 && weft_yield())
            break;
    }
    return 0;
}

static void *spawns_outside(void *arg)
{
    for (uintptr_t i = 0; !atom_load_rlx(&stop); i++)
        if (weft_spawn(arg, ends_in_some_way, (void *)i, NULL, NULL) == -ESHUTDOWN)
            break;
    return NULL;
}

/* In the order of the struct, all but the gauges (alive, stacks). */
static int totals(const weft_runtime_stats *s, uint64_t *t)
{
    const uint64_t all[] = {s->spawned,      s->finished,     s->failed, s->cancelled,
                            s->rejected,     s->switches,     s->steals, s->parks,
                            s->timers_armed, s->timers_fired, s->wakes};
    memcpy(t, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

static void never_fall_and_add_up(void **state)
{
    (void)state;
    for (int capped = 0; capped < 2; capped++) {
        weft_runtime *rt;
        pthread_t outside[2];
        weft_runtime_options o = {.workers = 2, .max_tasks = capped ? 50 : 100000};
        atom_store_rlx(&stop, 0u);
        assert_int_equal(weft_runtime_new(&o, &rt), 0);
        for (int i = 0; i < 2; i++)
            while (weft_spawn(rt, spawns, NULL, NULL, NULL) != 0)
                assert_true(capped); /* the first may fill the cap before the second comes */
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&outside[i], NULL, spawns_outside, rt), 0);
        }
        uint64_t before[16] = {0}, now[16];
        weft_runtime_stats s;
        for (weft_time until = weft_after(400 * WEFT_MSEC); weft_now() < until;) {
            assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
            int n = totals(&s, now);
            for (int i = 0; i < n; i++)
                if (now[i] < before[i])
                    fail_msg("total %d fell from %llu to %llu", i, (unsigned long long)before[i],
                             (unsigned long long)now[i]);
            assert_true(s.spawned >= s.finished);
            memcpy(before, now, sizeof before);
        }
        if (capped)
            assert_true(s.rejected > 0);
        atom_store_rlx(&stop, 1u);
        for (int i = 0; i < 2; i++)
            pthread_join(outside[i], NULL);
        assert_int_equal(weft_runtime_shutdown(rt, weft_after(60 * WEFT_SEC)), 0);
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
        assert_int_equal(s.alive, 0);
        assert_int_equal(s.spawned, s.finished);
        assert_true(s.failed + s.cancelled > 0 && s.failed <= s.finished);
        assert_true(s.timers_fired <= s.timers_armed);
        weft_runtime_free(rt);
    }
}

/* ---- Shutdown meets spawn ---- */

static weft__a64 let_in;
static weft__a32 ready_to_go;

/* Without a stack: there may be very many, and each must end within the shutdown. */
static int little(weft_task *self, void *state)
{
    (void)self;
    (void)state;
    return 0;
}

static void *spawns_until_refused(void *arg)
{
    int r;
    atom_add_ar(&ready_to_go, 1u);
    while ((r = weft_spawn_poll(arg, little, NULL, 0, NULL, NULL)) == 0)
        atom_add_rlx(&let_in, 1u);
    assert_int_equal(r, -ESHUTDOWN);
    return NULL;
}

static void *watches_totals(void *arg)
{
    uint64_t before[16] = {0}, now[16];
    weft_runtime_stats s;
    atom_add_ar(&ready_to_go, 1u);
    while (!atom_load_rlx(&stop)) {
        assert_int_equal(weft_runtime_get_stats(arg, &s), 0);
        int n = totals(&s, now);
        for (int i = 0; i < n; i++)
            if (now[i] < before[i])
                fail_msg("total %d fell from %llu to %llu", i, (unsigned long long)before[i],
                         (unsigned long long)now[i]);
        assert_true(s.alive <= s.spawned);
        memcpy(before, now, sizeof before);
    }
    return NULL;
}

static void nobody_counts_who_was_not_let_in(void **state)
{
    enum { SPAWNERS = 3 };
    (void)state;
    for (uint64_t round = 0; round < test_rounds(100); round++) {
        weft_runtime *rt;
        weft_runtime_stats s;
        pthread_t thread[SPAWNERS + 1];
        atom_store_rlx(&stop, 0u);
        atom_store_rlx(&let_in, 0u);
        atom_store_rlx(&ready_to_go, 0u);
        assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &rt), 0);
        for (int i = 0; i <= SPAWNERS; i++)
            assert_int_equal(
                pthread_create(&thread[i], NULL, i ? spawns_until_refused : watches_totals, rt), 0);
        while (atom_load_rlx(&ready_to_go) <= SPAWNERS)
            sched_yield();
        if (round % 2)
            test_sleep_ms(1);
        /* Woken also when the last to be seen alive was one that is turned away. */
        assert_int_equal(weft_runtime_shutdown(rt, weft_after(30 * WEFT_SEC)), 0);
        for (int i = 1; i <= SPAWNERS; i++)
            pthread_join(thread[i], NULL);
        atom_store_rlx(&stop, 1u);
        pthread_join(thread[0], NULL);
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
        assert_int_equal(s.spawned, atom_load_rlx(&let_in));
        assert_int_equal(s.finished, s.spawned);
        assert_int_equal(s.rejected, SPAWNERS);
        assert_int_equal(s.alive, 0);
        weft_runtime_free(rt);
    }
}

/* ---- The cap is exact ---- */

#define CAP 16

static weft__a32 alive, most;

static int counted(void *arg)
{
    (void)arg;
    uint32_t n = atom_add_ar(&alive, 1u) + 1, m = atom_load_rlx(&most);
    while (n > m && !atom_cas_ar(&most, &m, n))
        ;
    weft_yield();
    atom_sub_ar(&alive, 1u);
    return 0;
}

struct own_place {
    weft_runtime *rt;
    uint64_t refused;
};

/* There is always room for one: each of CAP threads has one task at a time. */
static void *always_has_room(void *arg)
{
    struct own_place *p = arg;
    uint64_t rounds = test_rounds(2000);
    for (uint64_t i = 0; i < rounds; i++) {
        weft_task *t;
        if (weft_spawn(p->rt, counted, NULL, NULL, &t) != 0) {
            p->refused++;
            continue;
        }
        assert_int_equal(weft_task_join(t, weft_after(30 * WEFT_SEC), NULL), 0);
        weft_task_unref(t);
    }
    return NULL;
}

static void *is_turned_away(void *arg)
{
    while (!atom_load_rlx(&stop))
        weft_spawn(arg, counted, NULL, NULL, NULL);
    return NULL;
}

static void the_cap_is_exact(void **state)
{
    (void)state;
    weft_runtime *rt;
    pthread_t thread[CAP];
    struct own_place place[CAP];
    weft_runtime_stats s;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2, .max_tasks = CAP}, &rt),
                     0);
    for (int i = 0; i < CAP; i++) {
        place[i] = (struct own_place){rt, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, always_has_room, &place[i]), 0);
    }
    for (int i = 0; i < CAP; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(place[i].refused, 0);
    }
    assert_true(atom_load_rlx(&most) <= CAP);
    /* Others press on the cap: it holds, and goes on working. */
    atom_store_rlx(&stop, 0u);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, is_turned_away, rt), 0);
    test_sleep_ms(100);
    atom_store_rlx(&stop, 1u);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    assert_true(atom_load_rlx(&most) <= CAP);
    assert_int_equal(weft_runtime_shutdown(rt, weft_after(30 * WEFT_SEC)), 0);
    assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
    assert_int_equal(s.spawned, s.finished);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_fall_and_add_up),
        cmocka_unit_test(nobody_counts_who_was_not_let_in),
        cmocka_unit_test(the_cap_is_exact),
    };
    test_limit(100, "totals_add_up");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

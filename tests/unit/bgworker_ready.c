/* SPDX-License-Identifier: MIT
 *
 * Ready points and published variables: limits on waiting, errors at once, circles.
 */
#include "bgworker_common.h"

static int parks_before_ready(weft_seat *seat, void *arg)
{
    (void)arg;
    int r = weft_sleep(3600 * WEFT_SEC); /* cancelled by the stop's grace */
    weft_seat_tick(seat);
    return r;
}

static int dies_before_ready(weft_seat *seat, void *arg)
{
    (void)seat, (void)arg;
    return -EIO;
}

static void waiting_for_ready_has_a_limit(void **state)
{
    (void)state;
    char names[WEFT_SEAT_NAMES];
    weft_registry *reg = new_registry();
    weft_worker *parked = start(reg, "parked", parks_before_ready, NULL, 1);
    weft_worker *fine = start(reg, "fine", echo_loop, NULL, 1);
    int64_t t0 = test_now();
    assert_int_equal(weft_registry_wait_ready(reg, ms(300), names, sizeof names), -ETIMEDOUT);
    assert_true(test_now() - t0 >= 300 * WEFT_MSEC);
    assert_string_equal(names, "parked");
    assert_int_equal(weft_worker_wait_ready(fine, WEFT_TRY), 0);
    assert_int_equal(weft_worker_wait_ready(parked, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_registry_stop(reg, ms(20000), names, sizeof names), 0);
    assert_int_equal(weft_worker_wait_ready(parked, WEFT_NEVER), -ESHUTDOWN);
    weft_worker_unref(parked);
    weft_worker_unref(fine);
    weft_registry_free(reg);
}

static void dying_before_ready_is_told_at_once(void **state)
{
    (void)state;
    char names[WEFT_SEAT_NAMES];
    weft_registry *reg = new_registry();
    /* The first in line never gets ready: it must not hide the other's error. */
    weft_worker *parked = start(reg, "parked", parks_before_ready, NULL, 1);
    weft_worker *dead = start(reg, "dead", dies_before_ready, NULL, 1);
    assert_int_equal(weft_registry_wait_ready(reg, WEFT_NEVER, names, sizeof names), -EIO);
    assert_non_null(strstr(names, "dead"));
    assert_int_equal(weft_worker_wait_ready(dead, WEFT_NEVER), -EIO);
    weft_worker_unref(parked);
    weft_worker_unref(dead);
    weft_registry_free(reg);
}

/* Waits for another before its own ready point; the result goes to `arg`. */
struct link {
    const char *other;
    atomic_int result, go;
    bool vars;
};

static int waits_for_other(weft_seat *seat, void *arg)
{
    struct link *l = arg;
    weft_buffer *b = NULL;
    while (!atomic_load(&l->go))
        test_sleep_ms(1);
    int r = l->vars ? weft_seat_vars(seat, l->other, WEFT_NEVER, &b)
                    : weft_seat_wait_ready(seat, l->other, WEFT_NEVER);
    weft_buffer_unref(b);
    atomic_store(&l->result, r ? r : 1);
    return echo_loop(seat, NULL); /* ready now */
}

static void await_result(struct link *l, int r)
{
    for (int i = 0; i < 20000 && atomic_load(&l->result) == 0; i++)
        test_sleep_ms(1);
    assert_int_equal(atomic_load(&l->result), r);
}

static void workers_that_wait_for_each_other_are_told(void **state)
{
    (void)state;
    for (int vars = 0; vars < 2; vars++) {
        struct link l[3] = {{.other = "b", .vars = vars != 0},
                            {.other = "c", .vars = vars != 0},
                            {.other = "a", .vars = vars != 0}};
        weft_registry *reg = new_registry();
        weft_worker *w[3] = {start(reg, "a", waits_for_other, &l[0], 1),
                             start(reg, "b", waits_for_other, &l[1], 1),
                             start(reg, "c", waits_for_other, &l[2], 1)};
        atomic_store(&l[0].go, 1);
        atomic_store(&l[1].go, 1);
        test_sleep_ms(20); /* a waits for b, b for c, most likely */
        atomic_store(&l[2].go, 1);
        /* One of the three closes the circle; then it gets ready, and so do the others. */
        int told = 0;
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 20000 && atomic_load(&l[i].result) == 0; k++)
                test_sleep_ms(1);
            int r = atomic_load(&l[i].result);
            told += r == -EDEADLK;
            assert_true(r == -EDEADLK || r == (vars ? -ENODATA : 1));
        }
        assert_int_equal(told, 1);
        assert_int_equal(weft_registry_wait_ready(reg, ms(20000), NULL, 0), 0);
        for (int i = 0; i < 3; i++)
            weft_worker_unref(w[i]);
        weft_registry_free(reg);
    }
}

static void waiting_for_oneself_is_a_circle(void **state)
{
    (void)state;
    struct link l = {.other = "a", .go = 1};
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "a", waits_for_other, &l, 1);
    await_result(&l, -EDEADLK);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static void a_leaving_seat_stops_waiting(void **state)
{
    (void)state;
    struct link l = {.other = "parked", .go = 1};
    weft_registry *reg = new_registry();
    weft_worker *parked = start(reg, "parked", parks_before_ready, NULL, 1);
    weft_worker_options o = {.loop = waits_for_other, .arg = &l, .grace = 100 * WEFT_SEC};
    weft_worker *w;
    assert_int_equal(weft_worker_start(reg, "a", &o, &w), 0);
    test_sleep_ms(20);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    await_result(&l, -ESHUTDOWN);
    weft_worker_unref(parked);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

/* Publishes its run number, and ends when told. */
struct publisher {
    atomic_int runs, end;
};

static int publishing_loop(weft_seat *seat, void *arg)
{
    struct publisher *p = arg;
    int run = atomic_fetch_add(&p->runs, 1) + 1;
    if (run == 1)
        test_sleep_ms(20); /* readers wait */
    if (run != 2)
        assert_int_equal(weft_seat_publish(seat, number(run)), 0);
    while (weft_seat_tick(seat)) {
        weft_received *t;
        if (weft_seat_receive(seat, ms(1), &t) == 0)
            weft_received_free(t);
        if (atomic_exchange(&p->end, 0))
            return -EIO;
    }
    return 0;
}

static int vars_of(weft_registry *reg, const char *name)
{
    weft_buffer *b = NULL;
    assert_int_equal(weft_registry_vars(reg, NULL, name, ms(20000), &b), 0);
    int n = number_of(b);
    weft_buffer_unref(b);
    return n;
}

static void the_last_snapshot_survives_a_restart(void **state)
{
    (void)state;
    struct publisher p = {0};
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "config", publishing_loop, &p, 1);
    weft_buffer *b = NULL;
    assert_int_equal(weft_registry_vars(reg, NULL, "config", WEFT_TRY, &b), -EAGAIN);
    assert_int_equal(vars_of(reg, "config"), 1);
    assert_int_equal(weft_registry_vars(reg, NULL, "config", WEFT_TRY, &b), 0);
    atomic_store(&p.end, 1);
    for (int i = 0; i < 20000 && atomic_load(&p.runs) < 2; i++)
        test_sleep_ms(1);
    assert_int_equal(vars_of(reg, "config"), 1); /* the second run publishes nothing */
    atomic_store(&p.end, 1);
    for (int i = 0; i < 20000 && vars_of(reg, "config") != 3; i++)
        test_sleep_ms(1);
    assert_int_equal(number_of(b), 1); /* who has the old one keeps it */
    weft_buffer_unref(b);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static void vars_that_never_come_are_errors(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *silent = start(reg, "silent", echo_loop, NULL, 1);
    weft_worker *parked = start(reg, "parked", parks_before_ready, NULL, 1);
    weft_buffer *b = NULL;
    assert_int_equal(weft_registry_vars(reg, NULL, "nobody", WEFT_NEVER, &b), -ENOENT);
    assert_int_equal(weft_registry_vars(reg, NULL, "silent", WEFT_NEVER, &b), -ENODATA);
    assert_int_equal(weft_registry_vars(reg, NULL, "parked", ms(20), &b), -ETIMEDOUT);
    assert_int_equal(weft_registry_vars(reg, NULL, "parked", WEFT_TRY, &b), -EAGAIN);
    assert_int_equal(weft_registry_vars(reg, NULL, "parked", ms(1), NULL), -EINVAL);
    assert_null(b);
    weft_worker_unref(silent);
    weft_worker_unref(parked);
    weft_registry_free(reg);
}

/* Snapshots whose two halves agree; readers must never see a mixture, nor a freed one. */
static int fast_publisher(weft_seat *seat, void *arg)
{
    (void)arg;
    int i = 0;
    do { /* the first before the ready point */
        int pair[2] = {i, -i};
        weft_buffer *b;
        assert_int_equal(weft_buffer_copy(pair, sizeof pair, &b), 0);
        assert_int_equal(weft_seat_publish(seat, b), 0);
        weft_yield();
        i++;
    } while (weft_seat_tick(seat));
    return 0;
}

static void readers_never_see_a_mixture(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "fast", fast_publisher, NULL, 1);
    uint64_t rounds = test_rounds(20000);
    int last = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        weft_buffer *b = NULL;
        assert_int_equal(weft_registry_vars(reg, NULL, "fast", ms(20000), &b), 0);
        int pair[2];
        memcpy(pair, weft_buffer_data(b), sizeof pair);
        assert_int_equal(pair[0], -pair[1]);
        assert_true(pair[0] >= last);
        last = pair[0];
        weft_buffer_unref(b);
    }
    weft_worker_unref(w);
    weft_registry_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_for_ready_has_a_limit),
        cmocka_unit_test(dying_before_ready_is_told_at_once),
        cmocka_unit_test(workers_that_wait_for_each_other_are_told),
        cmocka_unit_test(waiting_for_oneself_is_a_circle),
        cmocka_unit_test(a_leaving_seat_stops_waiting),
        cmocka_unit_test(the_last_snapshot_survives_a_restart),
        cmocka_unit_test(vars_that_never_come_are_errors),
        cmocka_unit_test(readers_never_see_a_mixture),
    };
    test_limit(50, "bgworker_ready");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

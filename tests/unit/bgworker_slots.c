/* SPDX-License-Identifier: MIT
 *
 * What other hand-off systems lost after a while: slots that were never given back, busy
 * counts that only grew, memory kept for work nobody waits for; and hooks of the host.
 */
#include "bgworker_common.h"

#include "resources.h"

/* By the payload: 0 answers, 1 works until abandoned, 2 dies, 3 drops the handle. */
static int rough_loop(weft_seat *seat, void *arg)
{
    (void)arg;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        switch (number_of(weft_received_payload(task))) {
        case 1:
            while (weft_received_update(task, NULL, ms(5)) != -EPIPE)
                ;
            break;
        case 2:
            return -EIO;
        case 3:
            break;
        default:
            weft_received_complete(task, number(1));
        }
        weft_received_free(task);
    }
    return 0;
}

static void slots_come_back_after_abuse(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *w;
    weft_worker_options o = {.loop = rough_loop,
                             .seats = 4,
                             .backoff = 10 * WEFT_USEC,
                             .backoff_max = WEFT_MSEC,
                             .max_failures = -1};
    assert_int_equal(weft_worker_start(reg, "rough", &o, &w), 0);
    for (int i = 0; i < 500; i++) {
        weft_sent *s;
        int way = i % 2 ? 1 + i / 2 % 3 : 0;
        assert_int_equal(weft_worker_send(w, number(way), ms(20000), &s), 0);
        weft_buffer *b = NULL;
        if (way == 1) { /* killed at its deadline */
            for (int k = 0; k < 20 && weft_sent_read(s, ms(1), &b) == 1; k++)
                weft_buffer_unref(b); /* not to the end: there may be more at any time */
            weft_sent_abandon(s);
        } else if (way == 0) {
            assert_int_equal(read_number(s), 1);
        } else {
            assert_int_equal(weft_sent_read(s, ms(20000), &b), way == 2 ? -ECONNABORTED : 0);
        }
        weft_sent_free(s);
    }
    weft_worker_stats st = stats_of(w);
    for (int i = 0; i < 20000 && (st.busy != 0 || st.ready != 4); i++) {
        test_sleep_ms(1);
        st = stats_of(w);
    }
    assert_int_equal(st.busy, 0);
    assert_int_equal(st.ready, 4);
    assert_int_equal(st.queued, 0);
    weft_buffer *b = number(0), *answer = NULL;
    assert_int_equal(weft_worker_call(w, b, ms(20000), &answer), 0);
    assert_int_equal(number_of(answer), 1);
    weft_buffer_unref(b);
    weft_buffer_unref(answer);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static void send_and_forget_leaves_nothing(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "echo", echo_loop, NULL, 2);
    uint64_t rounds = test_rounds(100000);
    struct resources before = {0}, after;
    char why[512];
    for (uint64_t i = 0; i < rounds; i++) {
        weft_sent *s;
        if (i == rounds / 5)
            resources_take(&before);
        assert_int_equal(weft_worker_send(w, number((int)i), ms(20000), &s), 0);
        assert_null(weft_sent_forget(s));
    }
    for (int i = 0; i < 20000 && stats_of(w).outcomes[WEFT_TASK_COMPLETED] < rounds; i++)
        test_sleep_ms(1);
    if (!resources_same(&before, &after, NULL, why, sizeof why))
        fail_msg("%s", why);
    if (!test_sanitized())
        assert_true(after.rss < before.rss + ((size_t)2 << 20));
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    assert_int_equal(stats_of(w).outcomes[WEFT_TASK_COMPLETED], rounds);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

struct heard {
    atomic_int started, stopped, outcomes[WEFT_TASK_OUTCOMES], ready, ended;
};

static void on_started(void *arg, weft_worker *w)
{
    assert_non_null(weft_worker_name(w));
    atomic_fetch_add(&((struct heard *)arg)->started, 1);
}

static void on_stopped(void *arg, weft_worker *w, weft_time spent)
{
    (void)w;
    assert_true(spent >= 0);
    atomic_fetch_add(&((struct heard *)arg)->stopped, 1);
}

static void on_outcome(void *arg, weft_worker *w, weft_task_outcome outcome)
{
    weft_worker_stats s;
    assert_int_equal(weft_worker_get_stats(w, &s), 0); /* no lock is held */
    atomic_fetch_add(&((struct heard *)arg)->outcomes[outcome], 1);
}

static void on_ready(void *arg, weft_worker *w, unsigned seat)
{
    (void)w, (void)seat;
    atomic_fetch_add(&((struct heard *)arg)->ready, 1);
}

static void on_ended(void *arg, weft_worker *w, unsigned seat, int result)
{
    (void)w, (void)seat, (void)result;
    atomic_fetch_add(&((struct heard *)arg)->ended, 1);
}

static void hooks_hear_everything_once(void **state)
{
    (void)state;
    struct heard h = {0};
    weft_worker_hooks hooks = {on_started, on_stopped, on_outcome, on_ready, on_ended};
    weft_registry_options ro = {.hooks = &hooks, .hooks_arg = &h};
    weft_registry *reg;
    weft_worker *w;
    assert_int_equal(weft_registry_new(&ro, &reg), 0);
    weft_worker_options o = {.loop = rough_loop, .backoff = WEFT_MSEC};
    assert_int_equal(weft_worker_start(reg, "rough", &o, &w), 0);
    for (int way = 0; way < 4; way++) {
        weft_sent *s;
        weft_buffer *b = NULL;
        assert_int_equal(weft_worker_send(w, number(way), ms(20000), &s), 0);
        if (way == 1)
            weft_sent_abandon(s);
        else
            while (weft_sent_read(s, ms(20000), &b) == 1)
                weft_buffer_unref(b);
        weft_sent_free(s);
    }
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    weft_sent *s = NULL;
    assert_int_equal(weft_worker_send(w, NULL, ms(20000), &s), -ESHUTDOWN); /* not a task */
    assert_int_equal(h.started, 4);
    assert_int_equal(h.stopped, 4);
    assert_int_equal(h.outcomes[WEFT_TASK_COMPLETED], 2);
    assert_int_equal(h.outcomes[WEFT_TASK_ABANDONED], 1);
    assert_int_equal(h.outcomes[WEFT_TASK_ABORTED], 1);
    assert_int_equal(h.ready, 2);
    assert_int_equal(h.ended, 2);
    assert_at_rest(w);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_come_back_after_abuse),
        cmocka_unit_test(send_and_forget_leaves_nothing),
        cmocka_unit_test(hooks_hear_everything_once),
    };
    test_limit(50, "bgworker_slots");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

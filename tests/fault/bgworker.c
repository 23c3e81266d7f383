/* SPDX-License-Identifier: MIT
 *
 * The hand-off when the system says no: no descriptors, no threads, no memory at every
 * single allocation. Each call says so, nothing is half done, and the next one works.
 */
#include "unit_test.h"

#include "harness.h"
#include "preload/preload.h"
#include "resources.h"

#include "weft/bgworker.h"
#include "weft/metrics.h"

#include <errno.h>

#define ms(n) weft_after((n)*WEFT_MSEC)

static int echo_loop(weft_seat *seat, void *arg)
{
    (void)arg;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        weft_received_complete(task, weft_buffer_ref(weft_received_payload(task)));
        weft_received_free(task);
    }
    return 0;
}

static void no_descriptors(void **state)
{
    (void)state;
    weft_registry *reg;
    weft_worker *w;
    weft_seat *seat;
    weft_sent *s;
    weft_received *r;
    if (!preload_sees(PRELOAD_EVENTFD))
        skip();
    assert_int_equal(weft_registry_new(NULL, &reg), 0);
    assert_int_equal(weft_worker_start(reg, "w", NULL, &w), 0);
    assert_int_equal(weft_worker_attach(w, &seat), 0);
    assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &s), 0);
    assert_int_equal(weft_seat_receive(seat, WEFT_TRY, &r), 0);
    struct preload_rule rule = {.action = PRELOAD_FAIL, .error = EMFILE, .every = 1};
    assert_int_equal(preload_set(PRELOAD_EVENTFD, &rule), 0);
    assert_int_equal(weft_sent_fd(s), -EMFILE);
    assert_int_equal(weft_received_fd(r), -EMFILE);
    assert_int_equal(weft_seat_fd(seat), -EMFILE);
    preload_reset();
    assert_true(weft_sent_fd(s) >= 0);
    assert_true(weft_received_fd(r) >= 0);
    assert_true(weft_seat_fd(seat) >= 0);
    weft_received_free(r);
    weft_sent_free(s);
    weft_seat_detach(seat);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static void no_threads(void **state)
{
    (void)state;
    weft_registry *reg;
    weft_worker *w = NULL;
    struct resources before, after;
    char why[512];
    if (!preload_sees(PRELOAD_PTHREAD_CREATE))
        skip();
    resources_take(&before);
    assert_int_equal(weft_registry_new(NULL, &reg), 0);
    weft_worker_options o = {.loop = echo_loop, .seats = 4};
    for (unsigned n = 1; n <= 4; n++) {
        struct preload_rule rule = {.action = PRELOAD_FAIL, .error = EAGAIN, .first = n};
        assert_int_equal(preload_set(PRELOAD_PTHREAD_CREATE, &rule), 0);
        assert_int_equal(weft_worker_start(reg, "w", &o, &w), -EAGAIN);
        assert_null(w);
        preload_reset();
        assert_int_equal(weft_registry_find(reg, NULL, "w", &w), -ENOENT);
    }
    assert_int_equal(weft_worker_start(reg, "w", &o, &w), 0);
    assert_int_equal(weft_worker_wait_ready(w, ms(20000)), 0);
    weft_worker_unref(w);
    weft_registry_free(reg);
    if (!resources_same(&before, &after, NULL, why, sizeof why))
        fail_msg("%s", why);
}

static int to_nowhere(void *arg, const void *data, size_t size)
{
    (void)arg, (void)data, (void)size;
    return 0;
}

/* Everything once, in the calling thread, as far as it gets; the first error. */
static int one_of_each(weft_buffer *payload)
{
    weft_registry *reg = NULL;
    weft_worker *w = NULL;
    weft_seat *seat = NULL;
    weft_sent *s = NULL;
    weft_received *task = NULL;
    weft_metrics *m = NULL;
    weft_buffer *copy = NULL;
    int r = weft_registry_new(NULL, &reg);
    r = r ? r : weft_worker_start(reg, "w", NULL, &w);
    r = r ? r : weft_worker_attach(w, &seat);
    r = r ? r : weft_buffer_copy("x", 1, &copy);
    r = r ? r : weft_worker_post(w, copy, WEFT_NEVER, &s);
    if (r == 0)
        copy = NULL;
    r = r ? r : weft_seat_receive(seat, WEFT_TRY, &task);
    weft_received_free(task);
    weft_sent_free(s);
    if (r == 0) {
        r = weft_worker_call(w, payload, ms(1), NULL); /* nobody else sits there */
        r = r == -ETIME ? 0 : r;
    }
    if (r == 0) {
        r = weft_worker_send(w, payload, ms(1), &s);
        r = r == -ETIMEDOUT ? 0 : r;
    }
    r = r ? r : weft_metrics_new(&m);
    r = r ? r : weft_metrics_add_registry(m, reg, NULL);
    r = r ? r : weft_metrics_write(m, to_nowhere, NULL);
    r = r ? r : weft_metrics_write_threads(m, to_nowhere, NULL);
    weft_metrics_free(m);
    weft_buffer_unref(copy);
    weft_seat_detach(seat);
    weft_worker_unref(w);
    weft_registry_free(reg);
    return r;
}

static void no_memory_anywhere(void **state)
{
    (void)state;
    weft_buffer *payload;
    if (!preload_sees(PRELOAD_MALLOC))
        skip();
    assert_int_equal(weft_buffer_copy("p", 1, &payload), 0);
    assert_int_equal(one_of_each(payload), 0);
    int failures = 0;
    for (uint64_t n = 1; n < 200; n++) {
        struct preload_rule rule = {
            .action = PRELOAD_FAIL, .error = ENOMEM, .first = n, .this_thread = true};
        assert_int_equal(preload_set(PRELOAD_MALLOC, &rule), 0);
        int r = one_of_each(payload);
        bool hit = preload_hits(PRELOAD_MALLOC) > 0;
        preload_reset();
        if (!hit)
            break;
        assert_true(r == -ENOMEM || r == 0); /* 0: where it can do without */
        failures += r == -ENOMEM;
        assert_int_equal(*(char *)weft_buffer_data(payload), 'p');
    }
    assert_true(failures >= 10);
    weft_buffer_unref(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptors),
        cmocka_unit_test(no_threads),
        cmocka_unit_test(no_memory_anywhere),
    };
    test_limit(60, "fault_bgworker");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * One task, both sides: round trip, updates, every end, every call after the end.
 */
#include "bgworker_common.h"

static weft_sent *send_number(weft_registry *reg, const char *name, int n)
{
    weft_sent *s = NULL;
    assert_int_equal(weft_registry_send(reg, NULL, name, number(n), ms(20000), &s), 0);
    return s;
}

static void a_task_makes_the_round_trip(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "echo", echo_loop, NULL, 1);
    for (int i = 0; i < 100; i++) {
        weft_sent *s = send_number(reg, "echo", i);
        assert_int_equal(read_number(s), i + 1);
        assert_int_equal(read_end(s), 0);
        assert_int_equal(weft_sent_outcome(s), WEFT_TASK_COMPLETED);
        assert_null(weft_sent_free(s));
    }
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    assert_int_equal(stats_of(w).outcomes[WEFT_TASK_COMPLETED], 100);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

/* A seat that the test itself sits in: every step is under its hand. */
struct bench {
    weft_registry *reg;
    weft_worker *w;
    weft_seat *seat;
};

static void bench_make(struct bench *b)
{
    b->reg = new_registry();
    weft_worker_options o = {0};
    assert_int_equal(weft_worker_start(b->reg, "bench", &o, &b->w), 0);
    assert_int_equal(weft_worker_attach(b->w, &b->seat), 0);
    assert_true(weft_seat_tick(b->seat));
}

static void bench_free(struct bench *b)
{
    weft_seat_detach(b->seat);
    assert_int_equal(weft_worker_stop(b->w, ms(20000), NULL, 0), 0);
    assert_at_rest(b->w);
    weft_worker_unref(b->w);
    weft_registry_free(b->reg);
}

static void open_task(struct bench *b, weft_sent **s, weft_received **r)
{
    assert_int_equal(weft_worker_post(b->w, number(7), ms(20000), s), 0);
    assert_int_equal(weft_seat_receive(b->seat, WEFT_TRY, r), 0);
    assert_int_equal(number_of(weft_received_payload(*r)), 7);
    assert_int_equal(weft_sent_id(*s), weft_received_id(*r));
}

static void sixteen_updates_wait_and_the_next_has_to(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s;
    weft_received *r;
    bench_make(&b);
    open_task(&b, &s, &r);
    for (int i = 0; i < WEFT_UPDATES_MAX; i++)
        assert_int_equal(weft_received_update(r, number(i), WEFT_TRY), 0);
    weft_buffer *more = number(16);
    assert_int_equal(weft_received_update(r, more, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_received_update(r, more, ms(20)), -ETIMEDOUT);
    assert_int_equal(read_number(s), 0);
    assert_int_equal(weft_received_update(r, more, WEFT_TRY), 0);
    /* The result finds room however full it is. */
    assert_int_equal(weft_received_complete(r, number(17)), 0);
    for (int i = 1; i <= 17; i++)
        assert_int_equal(read_number(s), i);
    assert_int_equal(read_end(s), 0);
    weft_received_free(r);
    weft_sent_free(s);
    bench_free(&b);
}

static void *slow_reader(void *arg)
{
    weft_sent *s = arg;
    for (int i = 0; i < 200; i++) {
        if (i % 50 == 0)
            test_sleep_ms(5);
        assert_int_equal(read_number(s), i);
    }
    return NULL;
}

static void a_full_buffer_holds_the_receiver_up(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s;
    weft_received *r;
    pthread_t reader;
    bench_make(&b);
    open_task(&b, &s, &r);
    pthread_create(&reader, NULL, slow_reader, s);
    for (int i = 0; i < 200; i++)
        assert_int_equal(weft_received_update(r, number(i), WEFT_NEVER), 0);
    pthread_join(reader, NULL);
    weft_received_free(r);
    assert_int_equal(read_end(s), 0);
    weft_sent_free(s);
    bench_free(&b);
}

static void calls_after_the_end_say_so(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s;
    weft_received *r;
    weft_buffer *buf = number(1), *none = NULL;
    bench_make(&b);

    open_task(&b, &s, &r);
    int rfd = weft_received_fd(r), sfd = weft_sent_fd(s);
    assert_true(rfd >= 0 && sfd >= 0);
    assert_int_equal(weft_received_complete(r, NULL), 0);
    assert_int_equal(weft_received_complete(r, NULL), -EBADF); /* answering twice */
    assert_int_equal(weft_received_update(r, buf, WEFT_TRY), -EBADF);
    assert_int_equal(weft_received_fd(r), -EBADF);
    assert_int_equal(weft_received_keep(r), -EBADF);
    assert_int_equal(number_of(weft_received_payload(r)), 7); /* outlives the task */
    assert_int_equal(weft_sent_fd(s), sfd);                   /* its end is not read yet */
    assert_int_equal(weft_sent_read(s, WEFT_TRY, &none), 0);
    assert_int_equal(weft_sent_read(s, WEFT_TRY, &none), -EBADF);
    assert_int_equal(weft_sent_fd(s), -EBADF);
    assert_int_equal(weft_sent_abandon(s), 0); /* closing twice is fine */
    assert_int_equal(weft_sent_outcome(s), WEFT_TASK_COMPLETED);
    weft_received_free(r);
    weft_sent_free(s);

    open_task(&b, &s, &r);
    rfd = weft_received_fd(r);
    assert_false(readable_within(rfd, 0));
    assert_false(weft_received_abandoned(r));
    assert_int_equal(weft_sent_abandon(s), 0);
    assert_int_equal(weft_sent_abandon(s), 0);
    assert_int_equal(weft_sent_read(s, WEFT_TRY, &none), -EBADF);
    assert_true(readable_within(rfd, 1000));
    assert_true(weft_received_abandoned(r));
    assert_int_equal(weft_received_update(r, buf, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_received_complete(r, buf), -EPIPE);
    assert_int_equal(weft_received_complete(r, buf), -EBADF);
    weft_received_free(r);
    weft_sent_free(s);

    weft_buffer_unref(buf);
    assert_int_equal(stats_of(b.w).outcomes[WEFT_TASK_COMPLETED], 1);
    assert_int_equal(stats_of(b.w).outcomes[WEFT_TASK_ABANDONED], 1);
    bench_free(&b);
}

static void *abandons_soon(void *arg)
{
    test_sleep_ms(10);
    weft_sent_abandon(arg);
    return NULL;
}

static void abandoning_ends_a_waiting_update(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s;
    weft_received *r;
    pthread_t other;
    bench_make(&b);
    open_task(&b, &s, &r);
    for (int i = 0; i < WEFT_UPDATES_MAX; i++)
        assert_int_equal(weft_received_update(r, NULL, WEFT_TRY), 0);
    pthread_create(&other, NULL, abandons_soon, s);
    assert_int_equal(weft_received_update(r, NULL, WEFT_NEVER), -EPIPE);
    pthread_join(other, NULL);
    weft_received_free(r);
    weft_sent_free(s);
    bench_free(&b);
}

static void closing_completes_and_ending_aborts(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s;
    weft_received *r;
    bench_make(&b);
    open_task(&b, &s, &r);
    assert_null(weft_received_free(r));
    assert_int_equal(read_end(s), 0);
    weft_sent_free(s);

    open_task(&b, &s, &r);
    assert_int_equal(weft_received_update(r, number(3), WEFT_TRY), 0);
    weft_seat_detach(b.seat); /* with the task open */
    assert_int_equal(read_number(s), 3);
    assert_int_equal(read_end(s), -ECONNABORTED);
    assert_int_equal(read_end(s), -EBADF);
    assert_int_equal(weft_sent_outcome(s), WEFT_TASK_ABORTED);
    weft_sent_free(s);

    assert_int_equal(weft_worker_attach(b.w, &b.seat), 0);
    open_task(&b, &s, &r);
    assert_int_equal(stats_of(b.w).busy, 1);
    assert_int_equal(weft_received_keep(r), 0);
    assert_int_equal(weft_received_keep(r), -EALREADY);
    assert_int_equal(stats_of(b.w).busy, 0);
    weft_seat_detach(b.seat); /* a kept task goes on without the seat */
    assert_int_equal(weft_received_complete(r, number(9)), 0);
    assert_int_equal(read_number(s), 9);
    weft_received_free(r);
    weft_sent_free(s);
    assert_int_equal(weft_worker_attach(b.w, &b.seat), 0);
    bench_free(&b);
}

static atomic_int freed;

static void count_free(void *data, size_t size, void *arg)
{
    (void)data, (void)size, (void)arg;
    atomic_fetch_add(&freed, 1);
}

static weft_buffer *counted(void)
{
    static char byte;
    weft_buffer *b = NULL;
    assert_int_equal(weft_buffer_wrap(&byte, 1, count_free, NULL, &b), 0);
    return b;
}

static void buffers_are_moved_and_freed_once(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s;
    weft_received *r;
    bench_make(&b);
    atomic_store(&freed, 0);
    assert_int_equal(weft_worker_post(b.w, counted(), ms(20000), &s), 0);
    assert_int_equal(weft_seat_receive(b.seat, WEFT_TRY, &r), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(weft_received_update(r, counted(), WEFT_TRY), 0);
    weft_received_free(r);
    assert_int_equal(atomic_load(&freed), 0); /* unread updates are still there */
    weft_sent_free(s);
    assert_int_equal(atomic_load(&freed), 6);

    /* Fire and forget: nothing is kept. */
    assert_int_equal(weft_worker_post(b.w, counted(), ms(20000), &s), 0);
    assert_null(weft_sent_forget(s));
    assert_int_equal(weft_seat_receive(b.seat, WEFT_TRY, &r), 0);
    assert_int_equal(weft_received_update(r, counted(), WEFT_TRY), 0);
    assert_int_equal(weft_received_complete(r, counted()), 0);
    weft_received_free(r);
    assert_int_equal(atomic_load(&freed), 9);

    /* What was not sent stays the caller's. */
    weft_buffer *mine = counted();
    assert_int_equal(weft_worker_send(b.w, mine, ms(10), &s), -ETIMEDOUT);
    assert_int_equal(weft_worker_send(b.w, mine, WEFT_TRY, &s), -EAGAIN);
    assert_int_equal(weft_registry_send(b.reg, NULL, "nobody", mine, ms(10), &s), -ENOENT);
    assert_int_equal(atomic_load(&freed), 9);
    weft_buffer_unref(mine);
    assert_int_equal(atomic_load(&freed), 10);
    bench_free(&b);
}

static void bad_input_is_answered(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s = NULL;
    weft_received *r = NULL;
    weft_worker *w = NULL;
    weft_buffer *buf = NULL;
    char longer[WEFT_NAME_MAX + 2];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    bench_make(&b);
    assert_int_equal(weft_registry_new(NULL, NULL), -EINVAL);
    assert_int_equal(weft_registry_find(NULL, NULL, "a", &w), -EINVAL);
    assert_int_equal(weft_registry_find(b.reg, NULL, NULL, &w), -EINVAL);
    assert_int_equal(weft_registry_find(b.reg, NULL, "", &w), -EINVAL);
    assert_int_equal(weft_registry_find(b.reg, NULL, longer, &w), -EINVAL);
    assert_int_equal(weft_registry_find(b.reg, longer, "a", &w), -EINVAL);
    assert_int_equal(weft_worker_start(b.reg, longer, NULL, &w), -EINVAL);
    assert_int_equal(weft_worker_start(b.reg, "bench", NULL, &w), -EEXIST);
    weft_worker_options o = {.seats = 3};
    assert_int_equal(weft_worker_start(b.reg, "seats-without-loop", &o, &w), -EINVAL);
    o = (weft_worker_options){.seats = WEFT_SEATS_MAX + 1, .loop = echo_loop};
    assert_int_equal(weft_worker_start(b.reg, "too-many", &o, &w), -EINVAL);
    assert_int_equal(weft_worker_send(NULL, NULL, ms(1), &s), -EINVAL);
    assert_int_equal(weft_worker_send(b.w, NULL, ms(1), NULL), -EINVAL);
    assert_int_equal(weft_worker_post(b.w, NULL, ms(1), NULL), -EINVAL);
    assert_int_equal(weft_seat_receive(NULL, WEFT_TRY, &r), -EINVAL);
    assert_int_equal(weft_seat_receive(b.seat, WEFT_TRY, NULL), -EINVAL);
    assert_int_equal(weft_sent_read(NULL, WEFT_TRY, &buf), -EINVAL);
    assert_int_equal(weft_sent_abandon(NULL), -EINVAL);
    assert_int_equal(weft_received_update(NULL, NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_received_complete(NULL, NULL), -EINVAL);
    assert_int_equal(weft_worker_stop(NULL, WEFT_TRY, NULL, 0), -EINVAL);
    assert_int_equal(weft_worker_restart(NULL, WEFT_TRY, NULL, 0), -EINVAL);
    assert_int_equal(weft_worker_get_stats(b.w, NULL), -EINVAL);
    assert_int_equal(weft_buffer_wrap(NULL, 1, NULL, NULL, &buf), -EINVAL);
    assert_null(weft_sent_free(NULL));
    assert_null(weft_sent_forget(NULL));
    assert_null(weft_received_free(NULL));
    assert_null(weft_seat_detach(NULL));
    assert_null(weft_registry_free(NULL));
    assert_false(weft_seat_tick(NULL));
    bench_free(&b);
}

static void a_post_waits_at_most_until_its_deadline(void **state)
{
    (void)state;
    struct bench b;
    weft_sent *s, *first, *second;
    weft_received *r;
    weft_buffer *none = NULL;
    bench_make(&b);
    /* The reader's deadline is a different thing. */
    assert_int_equal(weft_worker_post(b.w, NULL, ms(60), &s), 0);
    assert_int_equal(weft_sent_read(s, ms(5), &none), -ETIMEDOUT);
    assert_int_equal(weft_sent_read(s, WEFT_NEVER, &none), -ETIME);
    assert_int_equal(weft_sent_read(s, WEFT_NEVER, &none), -EBADF);
    assert_int_equal(weft_seat_receive(b.seat, WEFT_TRY, &r), -EAGAIN); /* never run */
    weft_sent_free(s);
    /* A receiver that comes too late does not take it; the descriptor says so. */
    assert_int_equal(weft_worker_post(b.w, NULL, ms(5), &first), 0);
    assert_int_equal(weft_worker_post(b.w, number(2), ms(20000), &second), 0);
    int fd = weft_sent_fd(first);
    assert_false(readable_within(fd, 20));
    assert_int_equal(weft_seat_receive(b.seat, WEFT_TRY, &r), 0);
    assert_int_equal(number_of(weft_received_payload(r)), 2);
    assert_true(readable_within(fd, 1000));
    assert_int_equal(weft_sent_read(first, WEFT_TRY, &none), -ETIME);
    weft_received_free(r);
    weft_sent_free(first);
    weft_sent_free(second);
    /* Abandoned before the pickup: never run. */
    assert_int_equal(weft_worker_post(b.w, NULL, WEFT_NEVER, &s), 0);
    assert_int_equal(weft_sent_abandon(s), 0);
    assert_int_equal(weft_seat_receive(b.seat, WEFT_TRY, &r), -EAGAIN);
    weft_sent_free(s);
    weft_worker_stats st = stats_of(b.w);
    assert_int_equal(st.outcomes[WEFT_TASK_TIMEOUT], 2);
    assert_int_equal(st.outcomes[WEFT_TASK_ABANDONED], 1);
    assert_int_equal(st.outcomes[WEFT_TASK_COMPLETED], 1);
    bench_free(&b);
}

static weft_buffer *call_for(weft_registry *reg, const char *name, int n, int expect)
{
    weft_buffer *b = number(n), *result = NULL;
    assert_int_equal(weft_registry_call(reg, NULL, name, b, ms(20000), &result), expect);
    assert_int_equal(number_of(b), n); /* stays ours, whatever happens */
    weft_buffer_unref(b);
    return result;
}

/* By the payload: 0 answers at once, 1 after updates, 2 with updates only, 3 nothing, 4 too
 * late, 5 leaves the loop. */
static int many_ways_loop(weft_seat *seat, void *arg)
{
    (void)arg;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        int way = number_of(weft_received_payload(task));
        for (int i = 0; (way == 1 || way == 2) && i < 40; i++)
            assert_int_equal(weft_received_update(task, number(100 + i), WEFT_NEVER), 0);
        if (way == 4)
            while (!weft_received_abandoned(task))
                test_sleep_ms(1);
        if (way == 5)
            return 0;
        if (way < 2)
            weft_received_complete(task, number(way));
        weft_received_free(task);
    }
    return 0;
}

static void a_call_is_all_in_one(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "ways", many_ways_loop, NULL, 1), *empty;
    assert_int_equal(weft_worker_start(reg, "empty", NULL, &empty), 0);
    for (int i = 0; i < 50; i++)
        for (int way = 0; way < 2; way++) {
            weft_buffer *b = call_for(reg, "ways", way, 0);
            assert_int_equal(number_of(b), way);
            weft_buffer_unref(b);
        }
    weft_buffer *b = call_for(reg, "ways", 2, 0);
    assert_int_equal(number_of(b), 139);
    weft_buffer_unref(b);
    assert_null(call_for(reg, "ways", 3, 0));
    assert_null(call_for(reg, "ways", 5, -ECONNABORTED));
    assert_null(call_for(reg, "nobody", 0, -ENOENT));
    b = number(4);
    assert_int_equal(weft_worker_call(w, b, ms(200), NULL), -ETIMEDOUT); /* abandoned */
    assert_int_equal(weft_worker_call(empty, b, ms(30), NULL), -ETIME);  /* not run */
    assert_int_equal(weft_worker_call(empty, b, WEFT_TRY, NULL), -EAGAIN);
    assert_int_equal(weft_worker_call(NULL, b, ms(30), NULL), -EINVAL);
    weft_buffer_unref(b);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    assert_at_rest(empty);
    weft_worker_stats st = stats_of(w);
    assert_int_equal(st.outcomes[WEFT_TASK_COMPLETED], 102);
    assert_int_equal(st.outcomes[WEFT_TASK_ABORTED], 1);
    assert_int_equal(st.outcomes[WEFT_TASK_ABANDONED], 1);
    assert_int_equal(stats_of(empty).outcomes[WEFT_TASK_TIMEOUT], 1);
    weft_worker_unref(w);
    weft_worker_unref(empty);
    weft_registry_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_makes_the_round_trip),
        cmocka_unit_test(sixteen_updates_wait_and_the_next_has_to),
        cmocka_unit_test(a_full_buffer_holds_the_receiver_up),
        cmocka_unit_test(calls_after_the_end_say_so),
        cmocka_unit_test(abandoning_ends_a_waiting_update),
        cmocka_unit_test(closing_completes_and_ending_aborts),
        cmocka_unit_test(buffers_are_moved_and_freed_once),
        cmocka_unit_test(bad_input_is_answered),
        cmocka_unit_test(a_call_is_all_in_one),
        cmocka_unit_test(a_post_waits_at_most_until_its_deadline),
    };
    test_limit(50, "bgworker_task");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

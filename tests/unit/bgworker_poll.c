/* SPDX-License-Identifier: MIT
 *
 * Everything through poll(): tasks followed by senders that have a loop of their own,
 * seats that wait in one, on both kinds of descriptor; and where descriptors go.
 */
#include "bgworker_common.h"

#include "resources.h"

static const weft_descriptor_kind kinds[] = {WEFT_DESCRIPTOR_EVENTFD, WEFT_DESCRIPTOR_SOCKETPAIR};

static weft_registry *registry_of(weft_descriptor_kind kind)
{
    weft_registry_options o = {.descriptors = kind};
    weft_registry *reg = NULL;
    assert_int_equal(weft_registry_new(&o, &reg), 0);
    return reg;
}

/* Three updates and an answer, n, n + 1, n + 2, n + 3. */
static int updates_loop(weft_seat *seat, void *arg)
{
    (void)arg;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        int n = number_of(weft_received_payload(task));
        int r = 0;
        for (int i = 0; i < 3 && r == 0; i++) {
            weft_buffer *b = number(n + i);
            r = weft_received_update(task, b, WEFT_NEVER);
            if (r)
                weft_buffer_unref(b);
            if (n % 3 == 0)
                test_sleep_ms(1);
        }
        weft_buffer *b = number(n + 3);
        if (weft_received_complete(task, b) != 0)
            weft_buffer_unref(b);
        weft_received_free(task);
    }
    return 0;
}

/* Follows `count` tasks with one poll(); each must give its four numbers in order. */
static void follow(weft_sent **sent, const int *first, int count)
{
    int next[128] = {0}, open = count;
    struct pollfd p[128];
    for (int i = 0; i < count; i++) {
        p[i] = (struct pollfd){.fd = weft_sent_fd(sent[i]), .events = POLLIN};
        assert_true(p[i].fd >= 0);
    }
    while (open > 0) {
        assert_true(poll(p, (nfds_t)count, 20000) > 0);
        for (int i = 0; i < count; i++) {
            if (p[i].fd < 0 || !(p[i].revents & POLLIN))
                continue;
            weft_buffer *b = NULL;
            int r = weft_sent_read(sent[i], WEFT_TRY, &b);
            if (r == -EAGAIN)
                continue;
            if (r == 1) {
                assert_int_equal(number_of(b), first[i] + next[i]++);
                weft_buffer_unref(b);
                continue;
            }
            assert_int_equal(r, 0);
            assert_int_equal(next[i], 4);
            p[i].fd = -1;
            open--;
        }
    }
}

static void two_tasks_are_followed_through_one_poll(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        weft_registry *reg = registry_of(kinds[k]);
        weft_worker *w = start(reg, "updates", updates_loop, NULL, 2);
        for (int round = 0; round < 50; round++) {
            weft_sent *sent[2];
            const int first[2] = {round * 10, round * 10 + 1001};
            for (int i = 0; i < 2; i++)
                assert_int_equal(weft_worker_send(w, number(first[i]), ms(20000), &sent[i]), 0);
            follow(sent, first, 2);
            weft_sent_free(sent[0]);
            weft_sent_free(sent[1]);
        }
        assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
        assert_at_rest(w);
        weft_worker_unref(w);
        weft_registry_free(reg);
    }
}

static void a_descriptor_is_readable_exactly_while_there_is_something(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        weft_registry *reg = registry_of(kinds[k]);
        weft_worker *w;
        weft_seat *seat;
        weft_sent *s;
        weft_received *r;
        weft_buffer *b = NULL;
        assert_int_equal(weft_worker_start(reg, "bench", NULL, &w), 0);
        assert_int_equal(weft_worker_attach(w, &seat), 0);
        int seat_fd = weft_seat_fd(seat);
        assert_int_equal(weft_seat_fd(seat), seat_fd);
        assert_true(weft_seat_tick(seat));
        assert_false(readable_within(seat_fd, 0));
        assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &s), 0);
        assert_true(readable_within(seat_fd, 1000));
        assert_true(weft_seat_tick(seat)); /* a task is queued: the poll returns at once */
        assert_true(readable_within(seat_fd, 0));
        assert_int_equal(weft_seat_receive(seat, WEFT_TRY, &r), 0);
        assert_true(weft_seat_tick(seat));
        assert_false(readable_within(seat_fd, 0));

        int fd = weft_sent_fd(s);
        assert_false(readable_within(fd, 0));
        assert_int_equal(weft_sent_read(s, WEFT_TRY, &b), -EAGAIN);
        assert_int_equal(weft_received_update(r, number(1), WEFT_TRY), 0);
        assert_int_equal(weft_received_update(r, number(2), WEFT_TRY), 0);
        assert_true(readable_within(fd, 1000));
        assert_int_equal(read_number(s), 1);
        assert_true(readable_within(fd, 0));
        assert_int_equal(read_number(s), 2);
        assert_int_equal(weft_sent_read(s, WEFT_TRY, &b), -EAGAIN);
        assert_false(readable_within(fd, 0));
        assert_int_equal(weft_received_complete(r, NULL), 0);
        assert_true(readable_within(fd, 1000));
        assert_int_equal(read_end(s), 0);
        assert_true(readable_within(fd, 0)); /* as after an end of file */
        weft_received_free(r);
        weft_sent_free(s);

        /* Asked for late: it knows what came before. */
        assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &s), 0);
        assert_int_equal(weft_seat_receive(seat, WEFT_TRY, &r), 0);
        assert_int_equal(weft_received_update(r, number(1), WEFT_TRY), 0);
        assert_true(readable_within(weft_sent_fd(s), 0));
        weft_sent_abandon(s);
        assert_true(readable_within(weft_received_fd(r), 0));
        weft_received_free(r);
        weft_sent_free(s);
        assert_true(weft_seat_tick(seat));

        /* Asked to leave. */
        assert_false(readable_within(seat_fd, 0));
        assert_int_equal(weft_worker_stop(w, WEFT_TRY, NULL, 0), -EAGAIN);
        assert_true(readable_within(seat_fd, 0));
        assert_false(weft_seat_tick(seat));
        assert_true(readable_within(seat_fd, 0));
        assert_int_equal(weft_seat_receive(seat, WEFT_NEVER, &r), -ESHUTDOWN);
        weft_seat_detach(seat);
        assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
        assert_at_rest(w);
        weft_worker_unref(w);
        weft_registry_free(reg);
    }
}

/* Three ways to write the loop of a seat that polls; all must drain. */
enum style { TICK_AND_DRAIN, NEVER_TICK, ONE_A_WAKE };

struct consumer {
    weft_seat *seat;
    enum style style;
    atomic_int *seen; /* by number */
    atomic_int *done;
};

static bool consume(struct consumer *c)
{
    weft_received *r;
    if (weft_seat_receive(c->seat, WEFT_TRY, &r) != 0)
        return false;
    atomic_fetch_add(&c->seen[number_of(weft_received_payload(r))], 1);
    weft_received_free(r);
    return true;
}

static void *polling_consumer(void *arg)
{
    struct consumer *c = arg;
    int fd = weft_seat_fd(c->seat);
    weft_seat_tick(c->seat);
    while (!atomic_load(c->done)) {
        if (c->style == TICK_AND_DRAIN)
            weft_seat_tick(c->seat);
        if (!readable_within(fd, 100))
            continue; /* only to see `done` */
        if (c->style == ONE_A_WAKE)
            consume(c);
        else
            while (consume(c))
                ;
    }
    weft_seat_detach(c->seat);
    return NULL;
}

struct burst {
    weft_worker *w;
    int first, count;
};

static void *bursting_sender(void *arg)
{
    struct burst *b = arg;
    uint64_t random = test_seed() + (uint64_t)b->first;
    for (int i = 0; i < b->count; i++) {
        weft_sent *s;
        int r;
        while ((r = weft_worker_post(b->w, number(b->first + i), WEFT_NEVER, &s)) == -EAGAIN)
            test_sleep_ms(1);
        assert_int_equal(r, 0);
        weft_sent_forget(s);
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (random >> 58 == 0)
            test_sleep_ms(1);
    }
    return NULL;
}

static void polling_consumers_miss_nothing(void **state)
{
    (void)state;
    int per = (int)test_rounds(5000);
    test_seed(); /* made before the threads ask for it */
    for (int k = 0; k < 2; k++)
        for (int style = TICK_AND_DRAIN; style <= ONE_A_WAKE; style++) {
            weft_registry *reg = registry_of(kinds[k]);
            weft_worker *w;
            weft_worker_options o = {.posted_max = 100000};
            assert_int_equal(weft_worker_start(reg, "poll", &o, &w), 0);
            atomic_int *seen = calloc((size_t)per * 2, sizeof *seen), done = 0;
            struct consumer c[3];
            pthread_t t[3], senders[2];
            for (int i = 0; i < 3; i++) {
                c[i] = (struct consumer){NULL, (enum style)style, seen, &done};
                assert_int_equal(weft_worker_attach(w, &c[i].seat), 0);
                pthread_create(&t[i], NULL, polling_consumer, &c[i]);
            }
            struct burst b[2] = {{w, 0, per}, {w, per, per}};
            for (int i = 0; i < 2; i++)
                pthread_create(&senders[i], NULL, bursting_sender, &b[i]);
            for (int i = 0; i < 2; i++)
                pthread_join(senders[i], NULL);
            for (int i = 0; i < 20000; i++) {
                weft_worker_stats s = stats_of(w);
                if (s.outcomes[WEFT_TASK_COMPLETED] == (uint64_t)per * 2)
                    break;
                test_sleep_ms(1);
            }
            atomic_store(&done, 1);
            for (int i = 0; i < 3; i++)
                pthread_join(t[i], NULL);
            for (int i = 0; i < per * 2; i++)
                assert_int_equal(atomic_load(&seen[i]), 1);
            free(seen);
            assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
            assert_at_rest(w);
            weft_worker_unref(w);
            weft_registry_free(reg);
        }
}

/* A host with nothing but poll(): 100 tasks to two threads, some abandoned in the middle,
 * some before, some never picked up. All descriptors are gone afterwards. */
static void a_host_with_only_poll_can_do_it_all(void **state)
{
    (void)state;
    struct resources before, after;
    char why[512];
    resources_take(&before);
    for (int k = 0; k < 2; k++) {
        weft_registry *reg = registry_of(kinds[k]);
        weft_worker *w = start(reg, "updates", updates_loop, NULL, 2);
        weft_worker *empty;
        assert_int_equal(weft_worker_start(reg, "empty", NULL, &empty), 0);
        weft_sent *sent[100], *late[10];
        int first[100];
        for (int i = 0; i < 10; i++) /* timed out: nobody sits there */
            assert_int_equal(weft_worker_post(empty, number(i), ms(10), &late[i]), 0);
        for (int i = 0; i < 100; i++) {
            first[i] = i * 100;
            assert_int_equal(weft_worker_post(w, number(first[i]), ms(20000), &sent[i]), 0);
            assert_true(weft_sent_fd(sent[i]) >= 0);
        }
        for (int i = 0; i < 10; i++)
            weft_sent_abandon(sent[90 + i]); /* likely before the pickup */
        follow(sent, first, 90);
        for (int i = 0; i < 10; i++) {
            weft_sent *s;
            assert_int_equal(weft_worker_send(w, number(30 * i), ms(20000), &s), 0);
            assert_true(weft_sent_fd(s) >= 0);
            assert_int_equal(read_number(s), 30 * i);
            weft_sent_free(s); /* in the middle */
        }
        for (int i = 0; i < 10; i++) {
            weft_buffer *b = NULL;
            assert_true(weft_sent_fd(late[i]) >= 0);
            assert_int_equal(weft_sent_read(late[i], WEFT_NEVER, &b), -ETIME);
            weft_sent_free(late[i]);
        }
        for (int i = 0; i < 100; i++)
            weft_sent_free(sent[i]);
        assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
        assert_int_equal(weft_worker_stop(empty, ms(20000), NULL, 0), 0);
        assert_at_rest(w);
        assert_at_rest(empty);
        weft_worker_stats s = stats_of(w), e = stats_of(empty);
        assert_int_equal(s.sent, 110);
        assert_true(s.outcomes[WEFT_TASK_COMPLETED] >= 90);
        assert_int_equal(e.outcomes[WEFT_TASK_TIMEOUT], 10);
        weft_worker_unref(w);
        weft_worker_unref(empty);
        weft_registry_free(reg);
    }
    if (!resources_same(&before, &after, NULL, why, sizeof why))
        fail_msg("%s", why);
}

static void descriptors_are_pooled(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "updates", updates_loop, NULL, 1);
    struct resources before, after;
    int fd = -1;
    for (int i = 0; i < 100; i++) {
        weft_sent *s;
        assert_int_equal(weft_worker_send(w, number(i), ms(20000), &s), 0);
        int this_fd = weft_sent_fd(s);
        if (i == 0) {
            fd = this_fd;
            resources_take(&before);
        }
        for (int k = 0; k < 4; k++)
            assert_int_equal(read_number(s), i + k);
        assert_int_equal(read_end(s), 0);
        weft_sent_free(s);
        (void)fd;
    }
    resources_take(&after);
    assert_true(after.fds <= before.fds + 1); /* the receiver may hold one a moment longer */
    weft_worker_unref(w);
    weft_registry_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_tasks_are_followed_through_one_poll),
        cmocka_unit_test(a_descriptor_is_readable_exactly_while_there_is_something),
        cmocka_unit_test(polling_consumers_miss_nothing),
        cmocka_unit_test(a_host_with_only_poll_can_do_it_all),
        cmocka_unit_test(descriptors_are_pooled),
    };
    test_limit(50, "bgworker_poll");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

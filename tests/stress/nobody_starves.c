/* SPDX-License-Identifier: MIT
 *
 * Nobody starves, whoever else is busy: not a timer, a task from outside, a descriptor
 * or an ordinary task, behind tasks that are long, of high priority, pinned, woken in
 * turns or sent in without end; on one worker and on two. Bounds are several times what
 * is expected, but far from what starving looks like (seconds, or for ever). */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

static weft__a32 stop, turns, started;
static weft_time started_at;

static weft_runtime *begin(unsigned workers)
{
    weft_runtime *rt = NULL;
    atom_store_rlx(&stop, 0u);
    atom_store_rlx(&turns, 0u);
    atom_store_rlx(&started, 0u);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static void end(weft_runtime *rt)
{
    atom_store_rlx(&stop, 1u);
    weft_runtime_free(rt);
}

static void go(weft_runtime *rt, weft_fn fn, void *arg, unsigned flags)
{
    assert_int_equal(weft_spawn(rt, fn, arg, &(weft_spawn_options){.flags = flags}, NULL), 0);
}

static void burn(weft_time ns)
{
    for (weft_time end_at = weft_now() + ns; weft_now() < end_at;)
        ;
}

/* An ordinary task: counts how often it gets a turn. */
static int ordinary(void *arg)
{
    (void)arg;
    while (!atom_load_rlx(&stop)) {
        atom_add_rlx(&turns, 1u);
        weft_yield();
    }
    return 0;
}

static int selfish(void *arg)
{
    (void)arg;
    while (!atom_load_rlx(&stop))
        weft_yield();
    return 0;
}

static int marks_its_start(void *arg)
{
    (void)arg;
    started_at = weft_now();
    atom_store_rel(&started, 1u);
    return 0;
}

/* ---- Quick tasks that turn slow ---- */

#define SLOW (60 * WEFT_MSEC)
#define LATE (2500 * WEFT_MSEC) /* 64 turns of SLOW are 3.8 s */

static weft__a32 slow_now, quick_ones;

/* Quick until all are, so that nobody is still counting when the first turns slow. */
static void be_quick(void)
{
    for (int i = 0; i < 20000; i++)
        weft_yield();
    atom_add_ar(&slow_now, 1u);
    while (atom_load_acq(&slow_now) < atom_load_rlx(&quick_ones) && !atom_load_rlx(&stop))
        weft_yield();
}

static int quick_then_slow(void *arg)
{
    (void)arg;
    be_quick();
    while (!atom_load_rlx(&stop)) {
        burn(SLOW);
        weft_yield();
    }
    return 0;
}

static int quick_with_a_timer(void *arg)
{
    weft_time *late = arg;
    be_quick();
    weft_time due = weft_after(100 * WEFT_MSEC);
    assert_true(weft_sleep_until(due) == 0);
    *late = weft_now() - due;
    return 0;
}

/* Every worker has tasks that were quick, and then burn SLOW a turn. */
static void timers_when_tasks_turn_slow(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        weft_time late = -1;
        weft_task *t;
        atom_store_rlx(&slow_now, 0u);
        atom_store_rlx(&quick_ones, 3 * workers + 1);
        for (unsigned i = 0; i < 3 * workers; i++)
            go(rt, quick_then_slow, NULL, 0);
        assert_int_equal(weft_spawn(rt, quick_with_a_timer, &late, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, weft_after(30 * WEFT_SEC), NULL), 0);
        weft_task_unref(t);
        end(rt);
        print_message("%u workers: %lld us late\n", workers, (long long)(late / WEFT_USEC));
        assert_true(late >= 0 && late < LATE);
    }
}

static void spawns_when_tasks_turn_slow(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        atom_store_rlx(&slow_now, 0u);
        atom_store_rlx(&quick_ones, 3 * workers);
        for (unsigned i = 0; i < 3 * workers; i++)
            go(rt, quick_then_slow, NULL, 0);
        while (atom_load_acq(&slow_now) < 3 * workers)
            test_sleep_ms(1);
        weft_time sent = weft_now();
        go(rt, marks_its_start, NULL, 0);
        while (!atom_load_acq(&started) && weft_now() - sent < 10 * WEFT_SEC)
            test_sleep_ms(1);
        end(rt);
        assert_true(atom_load_acq(&started) && started_at - sent < LATE);
    }
}

/* ---- A stream from outside ---- */

static weft__a32 backlog;

static int long_job(void *arg)
{
    (void)arg;
    burn(3 * WEFT_MSEC);
    atom_sub_rlx(&backlog, 1u);
    return 0;
}

static void *sends_without_end(void *arg)
{
    while (!atom_load_rlx(&stop)) {
        while (atom_load_rlx(&backlog) < 20 && !atom_load_rlx(&stop)) {
            atom_add_rlx(&backlog, 1u);
            if (weft_spawn(arg, long_job, NULL, NULL, NULL) != 0)
                return NULL;
        }
        usleep(500);
    }
    return NULL;
}

static void own_tasks_under_a_stream_from_outside(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        pthread_t sender;
        atom_store_rlx(&backlog, 0u);
        assert_int_equal(pthread_create(&sender, NULL, sends_without_end, rt), 0);
        test_sleep_ms(100);
        for (unsigned i = 0; i < workers; i++) {
            go(rt, ordinary, NULL, 0);
            go(rt, ordinary, NULL, WEFT_PINNED);
        }
        test_sleep_ms(1000);
        uint32_t got = atom_load_rlx(&turns);
        atom_store_rlx(&stop, 1u);
        pthread_join(sender, NULL);
        end(rt);
        assert_true(got >= 20);
    }
}

/* ---- Priority, pinning, and two that wake each other ---- */

static void ordinary_ones_beside(unsigned flags)
{
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        for (unsigned i = 0; i < 2 * workers; i++)
            go(rt, selfish, NULL, flags);
        test_sleep_ms(20);
        go(rt, ordinary, NULL, 0);
        test_sleep_ms(300);
        uint32_t got = atom_load_rlx(&turns);
        end(rt);
        assert_true(got >= 100);
    }
}

static void beside_tasks_of_high_priority(void **state)
{
    (void)state;
    ordinary_ones_beside(WEFT_HIGH);
}

static void beside_pinned_tasks(void **state)
{
    (void)state;
    ordinary_ones_beside(WEFT_PINNED);
}

static weft_channel *there, *back;

static int pings(void *arg)
{
    int x = 0;
    (void)arg;
    while (!atom_load_rlx(&stop))
        if (weft_channel_send(there, &x, WEFT_NEVER) || weft_channel_recv(back, &x, WEFT_NEVER))
            break;
    return 0;
}

static int pongs(void *arg)
{
    int x = 0;
    (void)arg;
    while (!atom_load_rlx(&stop))
        if (weft_channel_recv(there, &x, WEFT_NEVER) || weft_channel_send(back, &x, WEFT_NEVER))
            break;
    return 0;
}

static weft__a32 arrived;

static int counts(void *arg)
{
    (void)arg;
    atom_add_rlx(&arrived, 1u);
    return 0;
}

static void beside_two_that_wake_each_other(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        assert_int_equal(weft_channel_new(sizeof(int), 0, NULL, &there), 0);
        assert_int_equal(weft_channel_new(sizeof(int), 0, NULL, &back), 0);
        weft_runtime *rt = begin(workers);
        atom_store_rlx(&arrived, 0u);
        go(rt, pings, NULL, 0);
        go(rt, pongs, NULL, 0);
        go(rt, ordinary, NULL, 0);
        for (int i = 0; i < 1000; i++)
            go(rt, counts, NULL, 0);
        weft_time until = weft_after(20 * WEFT_SEC);
        while ((atom_load_rlx(&arrived) < 1000 || atom_load_rlx(&turns) < 100) &&
               weft_now() < until)
            test_sleep_ms(1);
        assert_int_equal(atom_load_rlx(&arrived), 1000);
        assert_true(atom_load_rlx(&turns) >= 100);
        end(rt);
        weft_channel_unref(there);
        weft_channel_unref(back);
    }
}

/* ---- Timers that are reset without end ---- */

static int resets(void *arg)
{
    weft_event *never = arg;
    while (!atom_load_rlx(&stop)) {
        if (weft_event_wait(never, weft_after(100 * WEFT_USEC)) == -ECANCELED)
            break;
        weft_yield();
    }
    return 0;
}

static int ticker(void *arg)
{
    weft_time next = weft_now();
    (void)arg;
    while (!atom_load_rlx(&stop) && weft_sleep_until(next += 10 * WEFT_MSEC) == 0) {
        atom_add_rlx(&turns, 1u);
        if (next < weft_now())
            next = weft_now();
    }
    return 0;
}

static void a_ticker_beside_timers_reset_without_end(void **state)
{
    (void)state;
    weft_event never = WEFT_EVENT_INIT;
    weft_runtime *rt = begin(2);
    int n = test_sanitized() ? 200 : 4000;
    for (int i = 0; i < n; i++)
        go(rt, resets, &never, 0);
    go(rt, ticker, NULL, 0);
    test_sleep_ms(1500);
    uint32_t got = atom_load_rlx(&turns);
    end(rt);
    assert_true(got >= 15); /* of 150 */
}

/* ---- Descriptors ---- */

/* Always readable, and a deadline that is long gone when the worker gets there. */
static int reads_what_is_there(void *arg)
{
    int pipe_fds[2];
    weft_fd *fd;
    (void)arg;
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(weft_fd_wrap(pipe_fds[0], WEFT_FD_NONBLOCK, &fd), 0);
    uint64_t rounds = test_rounds(1000);
    for (uint64_t i = 0; i < rounds; i++) {
        char c = 'x';
        assert_int_equal(write(pipe_fds[1], &c, 1), 1);
        assert_int_equal(weft_fd_wait_readable(fd, weft_after(WEFT_USEC)), 0);
        if (i % 4 == 0)
            weft_yield();
        assert_int_equal(weft_fd_read(fd, &c, 1, weft_after(WEFT_USEC)), 1);
    }
    weft_fd_unref(fd);
    close(pipe_fds[1]);
    atom_store_rel(&started, 1u);
    return 0;
}

static int echo_round(void *arg)
{
    weft_fd **pair = arg;
    for (int i = 0; i < 20; i++) {
        char c = 'e';
        assert_int_equal(weft_fd_read_full(pair[1], &c, 1, weft_after(20 * WEFT_SEC), NULL), 0);
        assert_int_equal(weft_fd_write_full(pair[1], &c, 1, weft_after(20 * WEFT_SEC), NULL), 0);
    }
    return 0;
}

static int asks(void *arg)
{
    weft_fd **pair = arg;
    for (int i = 0; i < 20; i++) {
        char c = 'e';
        assert_int_equal(weft_fd_write_full(pair[0], &c, 1, weft_after(20 * WEFT_SEC), NULL), 0);
        assert_int_equal(weft_fd_read_full(pair[0], &c, 1, weft_after(20 * WEFT_SEC), NULL), 0);
    }
    return 0;
}

static void descriptors_beside_tasks_that_yield(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = begin(workers);
        weft_fd *pair[2];
        weft_task *echo, *ask;
        for (int i = 0; i < 200; i++)
            go(rt, selfish, NULL, 0);
        assert_int_equal(weft_unix_pair(&pair[0], &pair[1]), 0);
        go(rt, reads_what_is_there, NULL, 0);
        assert_int_equal(weft_spawn(rt, echo_round, pair, NULL, &echo), 0);
        assert_int_equal(weft_spawn(rt, asks, pair, NULL, &ask), 0);
        assert_int_equal(weft_task_join(echo, weft_after(30 * WEFT_SEC), NULL), 0);
        assert_int_equal(weft_task_join(ask, weft_after(30 * WEFT_SEC), NULL), 0);
        for (weft_time until = weft_after(30 * WEFT_SEC); weft_now() < until;) {
            if (atom_load_acq(&started))
                break;
            test_sleep_ms(1);
        }
        assert_int_equal(atom_load_acq(&started), 1);
        weft_task_unref(echo);
        weft_task_unref(ask);
        end(rt);
        weft_fd_unref(pair[0]);
        weft_fd_unref(pair[1]);
    }
}

/* ---- A task behind a long one ---- */

static int hogs(void *arg)
{
    int how = *(int *)arg;
    weft_task *t = NULL;
    if (how == 0) {
        assert_int_equal(weft_spawn(NULL, marks_its_start, NULL, NULL, &t), 0);
    } else {
        assert_int_equal(weft_spawn(NULL, marks_its_start, NULL, NULL, NULL), 0);
        assert_int_equal(weft_spawn(NULL, counts, NULL, NULL, &t), 0);
    }
    weft_time began = weft_now();
    while (!atom_load_acq(&started) && weft_now() - began < 10 * WEFT_SEC)
        ; /* never gives its worker away */
    assert_true(atom_load_acq(&started));
    weft_task_unref(t);
    return 0;
}

static void a_task_behind_a_long_one_goes_to_an_idle_worker(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        weft_runtime *rt = begin(2);
        weft_task *t;
        test_sleep_ms(50); /* the other one is fast asleep */
        assert_int_equal(weft_spawn(rt, hogs, &how, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, weft_after(30 * WEFT_SEC), NULL), 0);
        weft_task_unref(t);
        end(rt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_when_tasks_turn_slow),
        cmocka_unit_test(spawns_when_tasks_turn_slow),
        cmocka_unit_test(own_tasks_under_a_stream_from_outside),
        cmocka_unit_test(beside_tasks_of_high_priority),
        cmocka_unit_test(beside_pinned_tasks),
        cmocka_unit_test(beside_two_that_wake_each_other),
        cmocka_unit_test(a_ticker_beside_timers_reset_without_end),
        cmocka_unit_test(descriptors_beside_tasks_that_yield),
        cmocka_unit_test(a_task_behind_a_long_one_goes_to_an_idle_worker),
    };
    test_limit(100, "nobody_starves");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

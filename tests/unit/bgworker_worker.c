/* SPDX-License-Identifier: MIT
 *
 * A worker's life: names and scopes, pools, crashes and back-off, restart, stop; with
 * threads, fibers and attached seats.
 */
#include "bgworker_common.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

static int call(weft_registry *reg, const char *scope, const char *name, int n)
{
    weft_sent *s = NULL;
    assert_int_equal(weft_registry_send(reg, scope, name, number(n), ms(20000), &s), 0);
    int answer = read_number(s);
    assert_int_equal(read_end(s), 0);
    weft_sent_free(s);
    return answer;
}

/* Answers with a constant. */
static int constant_loop(weft_seat *seat, void *arg)
{
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        weft_received_complete(task, number(*(int *)arg));
        weft_received_free(task);
    }
    return 0;
}

static void names_resolve_in_the_scope_first(void **state)
{
    (void)state;
    static int in_a = 1, global = 2;
    weft_registry *reg = new_registry();
    weft_worker_options o = {.scope = "a", .loop = constant_loop, .arg = &in_a};
    assert_int_equal(weft_worker_start(reg, "mail", &o, NULL), 0);
    assert_int_equal(weft_worker_start(reg, "mail", &o, NULL), -EEXIST);
    weft_sent *s;
    assert_int_equal(weft_registry_send(reg, NULL, "mail", NULL, ms(100), &s), -ENOENT);
    assert_int_equal(weft_registry_send(reg, "b", "mail", NULL, ms(100), &s), -ENOENT);
    o = (weft_worker_options){.scope = "", .loop = constant_loop, .arg = &global};
    assert_int_equal(weft_worker_start(reg, "mail", &o, NULL), 0);
    assert_int_equal(call(reg, "a", "mail", 0), 1);
    assert_int_equal(call(reg, "b", "mail", 0), 2);
    assert_int_equal(call(reg, NULL, "mail", 0), 2);
    weft_worker *w;
    assert_int_equal(weft_registry_find(reg, "a", "mail", &w), 0);
    assert_string_equal(weft_worker_scope(w), "a");
    assert_string_equal(weft_worker_name(w), "mail");
    /* A stopped worker's name is free. */
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_int_equal(weft_worker_send(w, NULL, ms(100), &s), -ESHUTDOWN);
    weft_worker_unref(w);
    assert_int_equal(call(reg, "a", "mail", 0), 2);
    weft_registry_free(reg);
}

/* Holds each task until told, and counts who is in it. */
struct gate {
    atomic_int inside, open;
};

static int gate_loop(weft_seat *seat, void *arg)
{
    struct gate *g = arg;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        atomic_fetch_add(&g->inside, 1);
        while (!atomic_load(&g->open))
            test_sleep_ms(1);
        atomic_fetch_sub(&g->inside, 1);
        weft_received_complete(task, number((int)weft_seat_index(seat)));
        weft_received_free(task);
    }
    return 0;
}

static void await_int(atomic_int *a, int n)
{
    for (int i = 0; i < 20000 && atomic_load(a) != n; i++)
        test_sleep_ms(1);
    assert_int_equal(atomic_load(a), n);
}

static void a_busy_worker_pushes_back(void **state)
{
    (void)state;
    struct gate g = {0};
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "gate", gate_loop, &g, 1);
    weft_sent *first, *second = NULL;
    weft_buffer *mine = number(2);
    assert_int_equal(weft_worker_send(w, number(1), ms(20000), &first), 0);
    await_int(&g.inside, 1);
    int64_t t0 = test_now();
    assert_int_equal(weft_worker_send(w, mine, ms(30), &second), -ETIMEDOUT);
    assert_true(test_now() - t0 >= 30 * WEFT_MSEC);
    assert_int_equal(number_of(mine), 2); /* still ours */
    assert_int_equal(stats_of(w).busy, 1);
    atomic_store(&g.open, 1);
    /* Queued while it is busy, taken when it is free. */
    assert_int_equal(weft_worker_send(w, mine, ms(20000), &second), 0);
    read_number(first);
    read_number(second);
    weft_sent_free(first);
    weft_sent_free(second);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    assert_int_equal(stats_of(w).outcomes[WEFT_TASK_TIMEOUT], 1);
    assert_int_equal(stats_of(w).outcomes[WEFT_TASK_COMPLETED], 2);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static void a_pool_of_two_uses_two(void **state)
{
    (void)state;
    struct gate g = {0};
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "gate", gate_loop, &g, 2);
    weft_sent *a, *b;
    assert_int_equal(weft_worker_send(w, NULL, ms(20000), &a), 0);
    assert_int_equal(weft_worker_send(w, NULL, ms(20000), &b), 0);
    await_int(&g.inside, 2); /* both at once */
    assert_int_equal(stats_of(w).busy, 2);
    atomic_store(&g.open, 1);
    assert_int_equal(read_number(a) + read_number(b), 1); /* seats 0 and 1 */
    weft_sent_free(a);
    weft_sent_free(b);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static void threads_have_all_signals_blocked(void **state)
{
    (void)state;
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "echo", echo_loop, NULL, 1);
    assert_int_equal(weft_worker_wait_ready(w, ms(20000)), 0);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGUSR1)); /* ours is as it was */
    char name[300], line[256];
    bool found = false;
    DIR *threads = opendir("/proc/self/task");
    assert_non_null(threads);
    for (struct dirent *d; !found && (d = readdir(threads)) != NULL;) {
        snprintf(name, sizeof name, "/proc/self/task/%s/status", d->d_name);
        FILE *f = fopen(name, "r");
        if (!f)
            continue;
        bool ours = false;
        while (fgets(line, sizeof line, f)) {
            ours = ours || strncmp(line, "Name:\techo#0", 12) == 0;
            unsigned long long blocked;
            if (ours && sscanf(line, "SigBlk: %llx", &blocked) == 1) {
                assert_true(blocked >> (SIGUSR1 - 1) & 1);
                assert_true(blocked >> (SIGTERM - 1) & 1);
                found = true;
            }
        }
        fclose(f);
    }
    closedir(threads);
    assert_true(found);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

/* A negative payload makes the loop end with that result, and the task open. */
static int fragile_loop(weft_seat *seat, void *arg)
{
    atomic_int *runs = arg;
    atomic_fetch_add(runs, 1);
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        int n = number_of(weft_received_payload(task));
        if (n < 0)
            return n;
        weft_received_complete(task, number(n));
        weft_received_free(task);
    }
    return 0;
}

static void a_crash_aborts_its_task_and_the_next_run_serves(void **state)
{
    (void)state;
    atomic_int runs = 0;
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "fragile", fragile_loop, &runs, 1);
    weft_sent *s;
    assert_int_equal(weft_worker_send(w, number(-5), ms(20000), &s), 0);
    assert_int_equal(read_end(s), -ECONNABORTED);
    weft_sent_free(s);
    assert_int_equal(call(reg, NULL, "fragile", 4), 4); /* waits for the next run */
    assert_int_equal(atomic_load(&runs), 2);
    weft_worker_stats st = stats_of(w);
    assert_int_equal(st.restarts, 1);
    assert_int_equal(st.failures, 1);
    assert_int_equal(st.ready, 1);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static int never_ready_loop(weft_seat *seat, void *arg)
{
    (void)seat;
    atomic_fetch_add((atomic_int *)arg, 1);
    return -EIO;
}

static void back_off_grows_and_ends_in_giving_up(void **state)
{
    (void)state;
    atomic_int runs = 0;
    weft_registry *reg = new_registry();
    weft_worker_options o = {
        .loop = never_ready_loop, .arg = &runs, .backoff = 2 * WEFT_MSEC, .max_failures = 3};
    weft_worker *w;
    weft_sent *s;
    int64_t t0 = test_now();
    assert_int_equal(weft_worker_start(reg, "hopeless", &o, &w), 0);
    assert_int_equal(weft_worker_send(w, NULL, WEFT_NEVER, &s), -EHOSTDOWN); /* released */
    assert_true(test_now() - t0 >= (1 + 4 + 9) * 2 * WEFT_MSEC);
    assert_int_equal(weft_worker_send(w, NULL, WEFT_NEVER, &s), -EHOSTDOWN); /* refused */
    assert_int_equal(weft_worker_wait_ready(w, WEFT_NEVER), -EIO);
    assert_int_equal(atomic_load(&runs), 4);
    assert_int_equal(stats_of(w).given_up, 1);
    assert_int_equal(stats_of(w).failures, 4);
    assert_int_equal(stats_of(w).outcomes[WEFT_TASK_RELEASED], 1);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static int ready_then_dies_loop(weft_seat *seat, void *arg)
{
    int run = atomic_fetch_add((atomic_int *)arg, 1);
    weft_seat_tick(seat);
    if (run < 3)
        return -EIO;
    return echo_loop(seat, NULL);
}

static void failures_that_are_past_are_forgotten(void **state)
{
    (void)state;
    atomic_int runs = 0;
    weft_registry *reg = new_registry();
    weft_worker_options o = {.loop = ready_then_dies_loop,
                             .arg = &runs,
                             .max_failures = 2,
                             .backoff = WEFT_MSEC,
                             .healthy_after = 1};
    weft_worker *w;
    assert_int_equal(weft_worker_start(reg, "hypochondriac", &o, &w), 0);
    assert_int_equal(call(reg, NULL, "hypochondriac", 1), 2);
    assert_int_equal(stats_of(w).failures, 3); /* more than two, but each ran long enough */
    assert_int_equal(stats_of(w).given_up, 0);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

/* Does not listen: ends only when told apart. */
static int deaf_loop(weft_seat *seat, void *arg)
{
    weft_seat_tick(seat);
    while (!atomic_load((atomic_int *)arg))
        ;
    return 0;
}

static void restart_names_who_did_not_leave(void **state)
{
    (void)state;
    atomic_int let_go = 0;
    char names[WEFT_SEAT_NAMES];
    weft_registry *reg = new_registry();
    weft_worker *deaf = start(reg, "deaf", deaf_loop, &let_go, 1);
    weft_worker *echo = start(reg, "echo", echo_loop, NULL, 2);
    assert_int_equal(weft_registry_wait_ready(reg, ms(20000), names, sizeof names), 0);
    assert_int_equal(weft_worker_restart(echo, ms(20000), names, sizeof names), 0);
    assert_string_equal(names, "");
    assert_int_equal(weft_worker_restart(deaf, ms(300), names, sizeof names), -ETIMEDOUT);
    assert_string_equal(names, "deaf#0");
    assert_int_equal(call(reg, NULL, "echo", 1), 2); /* the others answer */
    assert_int_equal(stats_of(deaf).restarts, 0);
    assert_int_equal(stats_of(echo).restarts, 2);
    assert_int_equal(weft_registry_stop(reg, ms(100), names, sizeof names), -ETIMEDOUT);
    assert_string_equal(names, "deaf#0");
    atomic_store(&let_go, 1);
    assert_int_equal(weft_registry_stop(reg, ms(20000), names, sizeof names), 0);
    assert_int_equal(weft_worker_start(reg, "late", NULL, NULL), -ESHUTDOWN);
    weft_worker_unref(deaf);
    weft_worker_unref(echo);
    weft_registry_free(reg);
}

static void tasks_queued_across_a_restart_are_served(void **state)
{
    (void)state;
    struct gate g = {0};
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "gate", gate_loop, &g, 1);
    weft_sent *busy, *queued;
    weft_buffer *b = NULL;
    assert_int_equal(weft_worker_send(w, NULL, ms(20000), &busy), 0);
    assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &queued), 0);
    assert_int_equal(weft_worker_restart(w, WEFT_TRY, NULL, 0), -EAGAIN);
    atomic_store(&g.open, 1);
    assert_int_equal(read_number(busy), 0);
    assert_int_equal(weft_sent_read(queued, ms(20000), &b), 1); /* by the next run */
    weft_buffer_unref(b);
    assert_int_equal(stats_of(w).restarts, 1);
    weft_sent_free(busy);
    weft_sent_free(queued);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

struct sender {
    weft_worker *w;
    int result;
    atomic_int started;
};

static void *send_for_ever(void *arg)
{
    struct sender *s = arg;
    weft_sent *sent = NULL;
    atomic_store(&s->started, 1);
    s->result = weft_worker_send(s->w, NULL, WEFT_NEVER, &sent);
    weft_sent_free(sent);
    return NULL;
}

static void a_stop_releases_senders(void **state)
{
    (void)state;
    struct gate g = {0};
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "gate", gate_loop, &g, 1);
    weft_sent *busy, *posted;
    weft_buffer *b = NULL;
    pthread_t thread;
    struct sender s = {.w = w};
    assert_int_equal(weft_worker_send(w, NULL, ms(20000), &busy), 0);
    assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &posted), 0);
    pthread_create(&thread, NULL, send_for_ever, &s);
    await_int(&s.started, 1);
    for (int i = 0; i < 20000 && stats_of(w).queued < 2; i++)
        test_sleep_ms(1);
    char names[16];
    assert_int_equal(weft_worker_stop(w, WEFT_TRY, names, sizeof names), -EAGAIN);
    pthread_join(thread, NULL);
    assert_int_equal(s.result, -ESHUTDOWN);
    assert_int_equal(weft_sent_read(posted, WEFT_NEVER, &b), -ESHUTDOWN);
    atomic_store(&g.open, 1);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_int_equal(read_number(busy), 0); /* the task in hand was finished */
    weft_sent_free(busy);
    weft_sent_free(posted);
    assert_at_rest(w);
    assert_int_equal(stats_of(w).outcomes[WEFT_TASK_RELEASED], 2);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

/* Sends to a worker that never picks up, and reports how that ended. */
static int sending_loop(weft_seat *seat, void *arg)
{
    while (weft_seat_tick(seat)) {
        weft_sent *sent = NULL;
        int r = weft_seat_send(seat, "empty", NULL, WEFT_NEVER, &sent);
        weft_sent_free(sent);
        atomic_store((atomic_int *)arg, r);
    }
    return 0;
}

static void a_sender_is_released_when_its_own_seat_leaves(void **state)
{
    (void)state;
    atomic_int result = 0;
    weft_registry *reg = new_registry();
    weft_worker *empty;
    assert_int_equal(weft_worker_start(reg, "empty", NULL, &empty), 0); /* nobody sits there */
    weft_worker_options o = {.loop = sending_loop, .arg = &result, .grace = 100 * WEFT_SEC};
    weft_worker *w;
    assert_int_equal(weft_worker_start(reg, "sender", &o, &w), 0);
    for (int i = 0; i < 20000 && stats_of(empty).queued == 0; i++)
        test_sleep_ms(1);
    assert_int_equal(weft_worker_restart(w, ms(20000), NULL, 0), 0);
    assert_int_equal(atomic_load(&result), -ESHUTDOWN);
    for (int i = 0; i < 20000 && stats_of(empty).queued == 0; i++)
        test_sleep_ms(1);
    assert_int_equal(stats_of(empty).queued, 1);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_int_equal(weft_worker_stop(empty, ms(20000), NULL, 0), 0);
    assert_at_rest(empty);
    assert_int_equal(stats_of(empty).outcomes[WEFT_TASK_RELEASED], 2);
    weft_worker_unref(w);
    weft_worker_unref(empty);
    weft_registry_free(reg);
}

/* Waits that know nothing of the worker: a long sleep, inside a task or not. */
static int sleepy_loop(weft_seat *seat, void *arg)
{
    while (weft_seat_tick(seat)) {
        atomic_fetch_add((atomic_int *)arg, 1);
        int r = weft_sleep(3600 * WEFT_SEC);
        if (r)
            return r;
    }
    return 0;
}

static void long_waits_do_not_hold_a_stop_up(weft_runtime *rt)
{
    atomic_int runs = 0;
    weft_registry *reg = new_registry();
    weft_worker_options o = {
        .loop = sleepy_loop, .arg = &runs, .seats = 3, .runtime = rt, .grace = 20 * WEFT_MSEC};
    weft_worker *w;
    assert_int_equal(weft_worker_start(reg, "sleepy", &o, &w), 0);
    await_int(&runs, 3);
    assert_int_equal(weft_worker_restart(w, ms(20000), NULL, 0), 0);
    await_int(&runs, 6); /* they run again, uncancelled */
    test_sleep_ms(10);
    assert_int_equal(atomic_load(&runs), 6);
    assert_int_equal(stats_of(w).failures, 0);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

static void long_waits_of_threads_do_not_hold_a_stop_up(void **state)
{
    (void)state;
    long_waits_do_not_hold_a_stop_up(NULL);
}

static void long_waits_of_fibers_do_not_hold_a_stop_up(void **state)
{
    (void)state;
    weft_runtime *rt;
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    long_waits_do_not_hold_a_stop_up(rt);
    weft_runtime_free(rt);
}

static void a_runtime_that_ends_takes_its_seats_along(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_registry *reg = new_registry();
    weft_worker *w;
    weft_sent *s;
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    weft_worker_options o = {.loop = echo_loop, .seats = 2, .runtime = rt};
    assert_int_equal(weft_worker_start(reg, "echo", &o, &w), 0);
    assert_int_equal(call(reg, NULL, "echo", 1), 2);
    assert_int_equal(weft_runtime_shutdown(rt, ms(20000)), 0);
    assert_int_equal(weft_worker_send(w, NULL, ms(20000), &s), -EHOSTDOWN);
    assert_int_equal(stats_of(w).given_up, 2);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    assert_at_rest(w);
    weft_worker_unref(w);
    weft_registry_free(reg);
    weft_runtime_free(rt);
}

struct fiber_sender {
    weft_registry *reg;
    int first, count;
};

static int fiber_calls(void *arg)
{
    struct fiber_sender *f = arg;
    for (int i = 0; i < f->count; i++)
        if (call(f->reg, NULL, "echo", f->first + i) != f->first + i + 1)
            return -EIO;
    return 0;
}

/* Fibers as seats and as senders, plain threads as both, all over the same worker. */
static void fibers_sit_and_send(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_runtime_options two = {.workers = 2};
    assert_int_equal(weft_runtime_new(&two, &rt), 0);
    for (int fibers = 0; fibers < 2; fibers++) {
        weft_registry *reg = new_registry();
        weft_worker_options o = {.loop = echo_loop, .seats = 4, .runtime = fibers ? rt : NULL};
        weft_worker *w;
        assert_int_equal(weft_worker_start(reg, "echo", &o, &w), 0);
        weft_task *tasks[8];
        struct fiber_sender f[8];
        for (int i = 0; i < 8; i++) {
            f[i] = (struct fiber_sender){reg, i * 1000, 100};
            assert_int_equal(weft_spawn(rt, fiber_calls, &f[i], NULL, &tasks[i]), 0);
        }
        struct fiber_sender mine = {reg, 90000, 100};
        assert_int_equal(fiber_calls(&mine), 0);
        for (int i = 0; i < 8; i++) {
            int result = -1;
            assert_int_equal(weft_task_join(tasks[i], ms(20000), &result), 0);
            assert_int_equal(result, 0);
            weft_task_unref(tasks[i]);
        }
        assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
        assert_at_rest(w);
        assert_int_equal(stats_of(w).outcomes[WEFT_TASK_COMPLETED], 900);
        weft_worker_unref(w);
        weft_registry_free(reg);
    }
    weft_runtime_free(rt);
}

static int cancelled_sender(void *arg)
{
    weft_sent *s = NULL;
    int r = weft_worker_send(arg, NULL, WEFT_NEVER, &s);
    weft_sent_free(s);
    return r;
}

static void a_cancelled_sender_was_not_heard(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_task *task;
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    weft_registry *reg = new_registry();
    weft_worker *w;
    int result = 0;
    assert_int_equal(weft_worker_start(reg, "empty", NULL, &w), 0);
    assert_int_equal(weft_spawn(rt, cancelled_sender, w, NULL, &task), 0);
    for (int i = 0; i < 20000 && stats_of(w).queued == 0; i++)
        test_sleep_ms(1);
    weft_task_cancel(task);
    assert_int_equal(weft_task_join(task, ms(20000), &result), 0);
    assert_int_equal(result, -ECANCELED);
    assert_int_equal(stats_of(w).outcomes[WEFT_TASK_ABANDONED], 1);
    assert_at_rest(w);
    weft_task_unref(task);
    weft_worker_unref(w);
    weft_registry_free(reg);
    weft_runtime_free(rt);
}

static int stops_itself_loop(weft_seat *seat, void *arg)
{
    while (weft_seat_tick(seat)) {
        weft_worker *w = weft_seat_worker(seat);
        atomic_int *results = arg;
        atomic_store(&results[0], weft_worker_restart(w, ms(20000), NULL, 0));
        atomic_store(&results[1], weft_worker_stop(w, ms(20000), NULL, 0));
        /* The stop has begun all the same: the next tick says leave. */
    }
    return 0;
}

static void stopping_from_a_seat_is_a_deadlock_at_once(void **state)
{
    (void)state;
    atomic_int results[2] = {0, 0};
    weft_registry *reg = new_registry();
    weft_worker *w = start(reg, "ouroboros", stops_itself_loop, results, 1);
    await_int(&results[1], -EDEADLK);
    assert_int_equal(atomic_load(&results[0]), -EDEADLK);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    weft_worker_unref(w);
    weft_registry_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_resolve_in_the_scope_first),
        cmocka_unit_test(a_busy_worker_pushes_back),
        cmocka_unit_test(a_pool_of_two_uses_two),
        cmocka_unit_test(threads_have_all_signals_blocked),
        cmocka_unit_test(a_crash_aborts_its_task_and_the_next_run_serves),
        cmocka_unit_test(back_off_grows_and_ends_in_giving_up),
        cmocka_unit_test(failures_that_are_past_are_forgotten),
        cmocka_unit_test(restart_names_who_did_not_leave),
        cmocka_unit_test(tasks_queued_across_a_restart_are_served),
        cmocka_unit_test(a_stop_releases_senders),
        cmocka_unit_test(a_sender_is_released_when_its_own_seat_leaves),
        cmocka_unit_test(long_waits_of_threads_do_not_hold_a_stop_up),
        cmocka_unit_test(long_waits_of_fibers_do_not_hold_a_stop_up),
        cmocka_unit_test(a_runtime_that_ends_takes_its_seats_along),
        cmocka_unit_test(fibers_sit_and_send),
        cmocka_unit_test(a_cancelled_sender_was_not_heard),
        cmocka_unit_test(stopping_from_a_seat_is_a_deadlock_at_once),
    };
    test_limit(50, "bgworker_worker");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

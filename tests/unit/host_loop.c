/* SPDX-License-Identifier: MIT
 *
 * The host's loop: sources and what they answer, what ends a wait, stop and wake from
 * other threads, and that nothing which arrives in a wait is lost. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/host.h"
#include "weft/pacer.h"
#include "weft/task.h"

struct loop {
    weft_runtime *rt;
    weft_host *host;
};

static struct loop open_loop(void)
{
    struct loop l = {NULL, NULL};
    test_limit(60, "host_loop");
    assert_int_equal(weft_driven_new(NULL, &l.rt), 0);
    assert_int_equal(weft_host_new(l.rt, NULL, &l.host), 0);
    return l;
}

static void close_loop(struct loop *l)
{
    weft_host_free(l->host);
    weft_runtime_free(l->rt);
}

static weft_host_stats stats(const struct loop *l)
{
    weft_host_stats s;
    assert_int_equal(weft_host_get_stats(l->host, &s), 0);
    return s;
}

/* A source that answers what it is told, `moves` times PROGRESS first. */
struct script {
    weft_poll_source source;
    weft_host *host;
    int looks, moves, answer;
    weft_time due; /* 0: none */
    bool leave;
};

static int look(void *arg, weft_time *due)
{
    struct script *s = arg;
    s->looks++;
    assert_true(*due == WEFT_NEVER);
    if (s->due)
        *due = s->due;
    assert_int_equal(weft_host_turn(s->host), -EBUSY);
    assert_int_equal(weft_host_wait(s->host, WEFT_NEVER), -EBUSY);
    if (s->leave)
        assert_int_equal(weft_host_remove(s->host, &s->source), 0);
    if (s->moves > 0) {
        s->moves--;
        return WEFT_POLL_PROGRESS;
    }
    return s->answer;
}

static void add(struct loop *l, struct script *s)
{
    s->source.look = look;
    s->source.arg = s;
    s->host = l->host;
    assert_int_equal(weft_host_add(l->host, &s->source), 0);
}

static int count(void *arg)
{
    atom_add_rlx((weft__a32 *)arg, 1u);
    return 0;
}

static void a_waiting_source_is_looked_at_by_the_pacer(void **state)
{
    (void)state;
    struct loop l = open_loop();
    struct script s = {.answer = WEFT_POLL_WAITING, .moves = 3};
    add(&l, &s);
    weft_time start = weft_now();
    assert_int_equal(weft_host_run(l.host, start + 200 * WEFT_MSEC), -ETIMEDOUT);
    weft_time took = weft_now() - start;
    assert_true(took >= 200 * WEFT_MSEC);
    /* By the sequence: eight short waits of 12.75 ms together, then one each 10 ms. */
    assert_true(s.looks >= 4);
    assert_true(s.looks <= 3 + 1 + 8 + (int)((took - 12750 * WEFT_USEC) / (10 * WEFT_MSEC)) + 2);
    weft_host_stats st = stats(&l);
    assert_int_equal(st.progress, 3);
    assert_true(st.paced > 0 && st.paced <= st.waits && st.waits <= st.turns);
    close_loop(&l);
}

static void progress_brings_the_floor_back(void **state)
{
    (void)state;
    struct loop l = open_loop();
    weft_host *host;
    const weft_host_options options = {.floor = WEFT_MSEC, .ceiling = 20 * WEFT_SEC};
    assert_int_equal(weft_host_new(l.rt, &options, &host), 0);
    weft_host_free(l.host);
    l.host = host;
    struct script s = {.answer = WEFT_POLL_WAITING};
    add(&l, &s);
    while (stats(&l).paced < 9) { /* 511 ms: the next waits would be 512 ms, 1 s, 2 s, 4 s */
        assert_int_equal(weft_host_turn(l.host), 0);
        assert_int_equal(weft_host_wait(l.host, WEFT_NEVER), 0);
    }
    s.moves = 1;
    assert_int_equal(weft_host_turn(l.host), 1);
    weft_time start = weft_now();
    for (int i = 0; i < 4; i++) { /* 15 ms */
        assert_int_equal(weft_host_turn(l.host), 0);
        assert_int_equal(weft_host_wait(l.host, WEFT_NEVER), 0);
    }
    assert_true(weft_now() - start < 5 * WEFT_SEC);
    close_loop(&l);
}

static void an_idle_source_is_left_alone(void **state)
{
    (void)state;
    struct loop l = open_loop();
    struct script s = {.answer = WEFT_POLL_IDLE};
    add(&l, &s);
    assert_int_equal(weft_host_run(l.host, weft_after(150 * WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(s.looks, 1);
    assert_int_equal(stats(&l).paced, 0);
    assert_int_equal(stats(&l).waits, 1);
    close_loop(&l);
}

static void a_due_time_is_kept_to(void **state)
{
    (void)state;
    struct loop l = open_loop();
    struct script s = {.answer = WEFT_POLL_IDLE, .due = weft_after(30 * WEFT_MSEC)};
    add(&l, &s);
    assert_int_equal(weft_host_turn(l.host), 0);
    assert_int_equal(weft_host_wait(l.host, WEFT_NEVER), 0);
    assert_true(weft_now() >= s.due);
    /* A source that does not keep its word is paced: it neither spins nor is forgotten. */
    weft_time start = weft_now();
    int before = s.looks;
    assert_int_equal(weft_host_run(l.host, start + 100 * WEFT_MSEC), -ETIMEDOUT);
    int looks = s.looks - before;
    assert_true(looks >= 2 && looks <= 12 + (int)((weft_now() - start) / (10 * WEFT_MSEC)));
    close_loop(&l);
}

static void waiting_ends_at_a_due_time_before_the_pacers(void **state)
{
    (void)state;
    struct loop l = open_loop();
    weft_host *host;
    const weft_host_options slow = {.floor = 20 * WEFT_SEC, .ceiling = 20 * WEFT_SEC};
    assert_int_equal(weft_host_new(l.rt, &slow, &host), 0);
    weft_host_free(l.host);
    l.host = host;
    struct script s = {.answer = WEFT_POLL_WAITING, .due = weft_after(20 * WEFT_MSEC)};
    add(&l, &s);
    assert_int_equal(weft_host_turn(l.host), 0);
    assert_int_equal(weft_host_wait(l.host, WEFT_NEVER), 0);
    assert_in_range(weft_now(), s.due, s.due + 10 * WEFT_SEC);
    /* A sleep of a task is a known deadline, too. */
    s.due = 0;
    weft_task *t;
    weft__a32 ran = {0};
    assert_int_equal(weft_spawn(l.rt, count, &ran, NULL, &t), 0);
    weft_task_unref(t);
    assert_int_equal(weft_host_turn(l.host), 1);
    assert_int_equal(weft_host_wait(l.host, WEFT_TRY), 0); /* after progress: at once */
    assert_int_equal(weft_host_turn(l.host), 0);
    assert_int_equal(weft_host_wait(l.host, WEFT_TRY), -ETIMEDOUT);
    close_loop(&l);
}

static int sleep_long(void *arg)
{
    (void)arg;
    weft_time start = weft_now();
    assert_int_equal(weft_sleep(25 * WEFT_MSEC), 0);
    assert_true(weft_now() - start >= 25 * WEFT_MSEC);
    return 0;
}

static void the_runtimes_timers_end_the_wait(void **state)
{
    (void)state;
    struct loop l = open_loop();
    weft_task *t;
    assert_int_equal(weft_spawn(l.rt, sleep_long, NULL, NULL, &t), 0);
    while (!weft_task_done(t)) {
        assert_true(weft_host_turn(l.host) >= 0);
        if (!weft_task_done(t))
            assert_int_equal(weft_host_wait(l.host, weft_after(20 * WEFT_SEC)), 0);
    }
    assert_true(stats(&l).waits < 20);
    weft_task_unref(t);
    close_loop(&l);
}

struct poker {
    struct loop *l;
    weft__a32 ran;
    int mode; /* 0: wake; 1: spawn; 2: spawn and stop */
};

static void *poke(void *arg)
{
    struct poker *p = arg;
    test_sleep_ms(30);
    if (p->mode == 0)
        assert_int_equal(weft_host_wake(p->l->host), 0);
    else
        assert_int_equal(weft_spawn(p->l->rt, count, &p->ran, NULL, NULL), 0);
    if (p->mode == 2)
        assert_int_equal(weft_host_stop(p->l->host), 0);
    return NULL;
}

static void what_arrives_ends_the_wait(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        struct loop l = open_loop();
        struct script s = {.answer = WEFT_POLL_IDLE};
        add(&l, &s);
        assert_int_equal(weft_host_turn(l.host), 0);
        struct poker p = {.l = &l, .mode = mode};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, poke, &p), 0);
        if (mode < 2) {
            assert_int_equal(weft_host_wait(l.host, weft_after(20 * WEFT_SEC)), 0);
            assert_int_equal(weft_host_turn(l.host), mode);
            assert_int_equal(s.looks, 2); /* a wake lets idle sources look as well */
        } else { /* the task that arrives together with the stop has its turn */
            assert_int_equal(weft_host_run(l.host, weft_after(20 * WEFT_SEC)), 0);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(atom_load_rlx(&p.ran), mode > 0);
        close_loop(&l);
    }
}

enum { SUBMITTERS = 2, EACH = 2000 };

struct submitter {
    struct loop *l;
    weft__a32 *ran;
    uint64_t seed;
};

static void *submit(void *arg)
{
    struct submitter *s = arg;
    uint64_t x = s->seed;
    for (int i = 0; i < EACH; i++) {
        assert_int_equal(weft_spawn(s->l->rt, count, s->ran, NULL, NULL), 0);
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (x >> 59 == 0)
            weft_host_wake(s->l->host);
        if (x >> 58 == 1)
            weft_host_stop(s->l->host);
    }
    return NULL;
}

/* Tasks, wakes and stops in any order from two threads: each run ends at some stop, and
 * no task is lost however it falls between wait, turn and stop. */
static void nothing_is_lost_between_stop_and_wait(void **state)
{
    (void)state;
    struct loop l = open_loop();
    weft__a32 ran = {0};
    pthread_t thread[SUBMITTERS];
    struct submitter s[SUBMITTERS];
    for (int i = 0; i < SUBMITTERS; i++) {
        s[i] = (struct submitter){&l, &ran, test_seed() + (uint64_t)i};
        assert_int_equal(pthread_create(&thread[i], NULL, submit, &s[i]), 0);
    }
    while (atom_load_rlx(&ran) < SUBMITTERS * EACH) {
        int r = weft_host_run(l.host, weft_after(5 * WEFT_MSEC));
        assert_true(r == 0 || r == -ETIMEDOUT);
    }
    for (int i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(atom_load_rlx(&ran), SUBMITTERS * EACH);
    close_loop(&l);
}

static void sources_come_and_go(void **state)
{
    (void)state;
    struct loop l = open_loop(), other = open_loop();
    struct script a = {.leave = true}, b = {.answer = -1}, c = {.moves = 1};
    add(&l, &a);
    add(&l, &b);
    add(&l, &c);
    assert_int_equal(weft_host_add(l.host, &a.source), -EALREADY);
    assert_int_equal(weft_host_add(other.host, &a.source), -EALREADY);
    assert_int_equal(weft_host_remove(other.host, &a.source), -ENOENT);
    assert_int_equal(weft_host_turn(l.host), 1);
    assert_int_equal(weft_host_turn(l.host), 0);
    assert_true(a.looks == 1 && b.looks == 1 && c.looks == 2);
    assert_int_equal(weft_host_remove(l.host, &a.source), -ENOENT);
    assert_int_equal(weft_host_remove(l.host, &b.source), -ENOENT);
    assert_int_equal(weft_host_add(other.host, &a.source), 0);
    close_loop(&other);
    assert_int_equal(weft_host_add(l.host, &a.source), 0); /* the freed host let it go */
    close_loop(&l);
}

static void bad_input_has_an_answer(void **state)
{
    (void)state;
    struct loop l = open_loop();
    weft_runtime *threads;
    weft_host *host = NULL;
    weft_poll_source nothing = {0};
    weft_host_options bad = {.floor = -1};
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &threads), 0);
    assert_int_equal(weft_host_new(NULL, NULL, &host), -EINVAL);
    assert_int_equal(weft_host_new(threads, NULL, &host), -EINVAL);
    assert_int_equal(weft_host_new(l.rt, NULL, NULL), -EINVAL);
    assert_int_equal(weft_host_new(l.rt, &bad, &host), -EINVAL);
    bad = (weft_host_options){.budget.time = -1};
    assert_int_equal(weft_host_new(l.rt, &bad, &host), -EINVAL);
    assert_null(host);
    assert_int_equal(weft_host_add(l.host, NULL), -EINVAL);
    assert_int_equal(weft_host_add(l.host, &nothing), -EINVAL);
    assert_int_equal(weft_host_add(NULL, &nothing), -EINVAL);
    assert_int_equal(weft_host_remove(l.host, NULL), -EINVAL);
    assert_int_equal(weft_host_turn(NULL), -EINVAL);
    assert_int_equal(weft_host_wait(NULL, 0), -EINVAL);
    assert_int_equal(weft_host_run(NULL, 0), -EINVAL);
    assert_int_equal(weft_host_wake(NULL), -EINVAL);
    assert_int_equal(weft_host_stop(NULL), -EINVAL);
    assert_int_equal(weft_host_get_stats(l.host, NULL), -EINVAL);
    assert_null(weft_host_free(NULL));
    assert_int_equal(weft_host_run(l.host, WEFT_TRY), -ETIMEDOUT);
    weft_host_stop(l.host);
    assert_int_equal(weft_host_run(l.host, WEFT_NEVER), 0);
    weft_runtime_free(threads);
    close_loop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiting_source_is_looked_at_by_the_pacer),
        cmocka_unit_test(progress_brings_the_floor_back),
        cmocka_unit_test(an_idle_source_is_left_alone),
        cmocka_unit_test(a_due_time_is_kept_to),
        cmocka_unit_test(waiting_ends_at_a_due_time_before_the_pacers),
        cmocka_unit_test(the_runtimes_timers_end_the_wait),
        cmocka_unit_test(what_arrives_ends_the_wait),
        cmocka_unit_test(nothing_is_lost_between_stop_and_wait),
        cmocka_unit_test(sources_come_and_go),
        cmocka_unit_test(bad_input_has_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

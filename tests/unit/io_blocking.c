/* SPDX-License-Identifier: MIT
 *
 * The offload pool: results, owned and borrowed arguments, deadlines and cancellation before
 * and during a job, the bounded queue, jobs that need their own pool, named pools,
 * shutdown at its edges. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/blocking.h"
#include "weft/task.h"

/* An argument that knows what was done to it. */
struct ticket {
    weft__a32 ran, dropped;
    unsigned ms; /* the job takes this long */
    int result;
};

static int work(void *arg)
{
    struct ticket *t = arg;
    test_sleep_ms(t->ms);
    atom_add_ar(&t->ran, 1u);
    return t->result;
}

static void drop(void *arg)
{
    struct ticket *t = arg;
    atom_add_ar(&t->dropped, 1u);
}

static weft_blocking_pool *pool_of(unsigned threads, unsigned queue)
{
    weft_blocking_pool *pool;
    weft_blocking_options o = {.name = "test", .threads = threads, .queue = queue};
    test_limit(60, "io_blocking");
    assert_int_equal(weft_blocking_pool_new(&o, &pool), 0);
    return pool;
}

static weft_blocking_stats stats(weft_blocking_pool *pool)
{
    weft_blocking_stats s;
    assert_int_equal(weft_blocking_pool_get_stats(pool, &s), 0);
    return s;
}

/* Until the pool runs a job, or gave one up or has done one already. */
static void wait_running(weft_blocking_pool *pool)
{
    for (weft_blocking_stats s = stats(pool); !s.running && !s.expired && !s.completed;
         s = stats(pool))
        usleep(500);
}

static void a_job_runs_and_answers(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(2, 0);
    struct ticket t = {.result = -42};
    int result = 0;
    assert_int_equal(stats(pool).threads, 0); /* none before it is needed */
    assert_int_equal(weft_blocking(pool, work, &t, NULL, WEFT_NEVER, &result), 0);
    assert_int_equal(result, -42);
    assert_int_equal(weft_blocking(pool, work, &t, drop, WEFT_NEVER, NULL), 0);
    assert_int_equal(atom_load_acq(&t.ran), 2);
    assert_int_equal(atom_load_acq(&t.dropped), 0); /* ours again */
    assert_string_equal(weft_blocking_pool_name(pool), "test");
    weft_blocking_stats s = stats(pool);
    assert_int_equal(s.completed, 2);
    assert_true(s.threads >= 1 && s.threads <= 2);
    weft_blocking_pool_free(pool);
}

/* A fiber that offloads; the others of its worker go on meanwhile. */
struct fiber {
    weft_blocking_pool *pool;
    struct ticket *ticket;
    void (*drop)(void *);
    weft_time limit; /* from the start of the fiber; 0: none */
    int r;
    weft_time took;
};

static int offload(void *arg)
{
    struct fiber *f = arg;
    weft_time start = weft_now();
    f->r = weft_blocking(f->pool, work, f->ticket, f->drop,
                         f->limit ? weft_after(f->limit) : WEFT_NEVER, NULL);
    f->took = weft_now() - start;
    return f->r;
}

static weft_task *spawn(weft_runtime *rt, struct fiber *f)
{
    weft_task *t;
    assert_int_equal(weft_spawn(rt, offload, f, NULL, &t), 0);
    return t;
}

static void finish(weft_task *t)
{
    assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
    weft_task_unref(t);
}

static weft_runtime *one_worker(void)
{
    weft_runtime *rt;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &rt), 0);
    return rt;
}

static void a_deadline_frees_the_caller_at_once(void **state)
{
    (void)state;
    weft_runtime *rt = one_worker();
    weft_blocking_pool *pool = pool_of(1, 0), *other = pool_of(1, 0);
    static struct ticket slow, queued, fine;
    slow = (struct ticket){.ms = 1200};
    queued = (struct ticket){.ms = 0};
    fine = (struct ticket){.ms = 0};
    struct fiber a = {.pool = pool, .ticket = &slow, .drop = drop, .limit = 300 * WEFT_MSEC};
    weft_task *ta = spawn(rt, &a);
    wait_running(pool);
    struct fiber b = {.pool = pool, .ticket = &queued, .drop = drop, .limit = 200 * WEFT_MSEC};
    struct fiber c = {.pool = other, .ticket = &fine};
    weft_task *tb = spawn(rt, &b), *tc = spawn(rt, &c);
    finish(tc); /* a second named pool is not affected */
    assert_int_equal(c.r, 0);
    finish(ta);
    finish(tb);
    weft_blocking_stats s = stats(pool);
    print_message("a %s after %lld ms, b %s after %lld ms\n", weft_strerror(a.r),
                  (long long)(a.took / WEFT_MSEC), weft_strerror(b.r),
                  (long long)(b.took / WEFT_MSEC));
    if (s.abandoned == 1) { /* as meant; else the machine stood still for too long */
        assert_int_equal(a.r, -ETIMEDOUT);
        assert_true(a.took >= 300 * WEFT_MSEC);
        assert_int_equal(atom_load_acq(&slow.dropped), 0);
        assert_int_equal(b.r, -ETIMEDOUT);
        assert_true(b.took >= 200 * WEFT_MSEC);
        assert_int_equal(atom_load_acq(&queued.dropped), 1); /* dropped by the call */
    }
    weft_blocking_pool_free(pool); /* waits for the running one */
    weft_blocking_pool_free(other);
    assert_int_equal(atom_load_acq(&slow.ran), s.expired < 2);
    assert_int_equal(atom_load_acq(&slow.dropped), a.r != 0);
    assert_int_equal(atom_load_acq(&queued.ran), b.r == 0); /* what timed out never started */
    assert_int_equal(atom_load_acq(&queued.dropped), b.r != 0);
    weft_runtime_free(rt);
}

static void a_cancellation_does_the_same(void **state)
{
    (void)state;
    weft_runtime *rt = one_worker();
    weft_blocking_pool *pool = pool_of(1, 0);
    static struct ticket slow, queued;
    slow = (struct ticket){.ms = 300};
    queued = (struct ticket){.ms = 0};
    struct fiber a = {.pool = pool, .ticket = &slow, .drop = drop};
    struct fiber b = {.pool = pool, .ticket = &queued, .drop = drop};
    weft_task *ta = spawn(rt, &a);
    wait_running(pool);
    weft_task *tb = spawn(rt, &b);
    while (stats(pool).queued == 0 && stats(pool).running)
        usleep(500);
    weft_task_cancel(tb);
    weft_task_cancel(ta);
    finish(tb);
    finish(ta);
    weft_blocking_pool_free(pool);
    assert_true(a.r == -ECANCELED || a.r == 0);
    assert_true(atom_load_acq(&slow.ran) == 1 || a.r == -ECANCELED);
    assert_int_equal(atom_load_acq(&slow.dropped), a.r != 0);
    assert_true(b.r == -ECANCELED || b.r == 0);
    assert_int_equal(atom_load_acq(&queued.ran), b.r == 0);
    assert_int_equal(atom_load_acq(&queued.dropped), b.r != 0);
    weft_runtime_free(rt);
}

static void a_borrowed_argument_is_waited_for(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1, 0);
    struct ticket t = {.ms = 150, .result = 5};
    int result = 0, r;
    do { /* again when even the start came too late */
        r = weft_blocking(pool, work, &t, NULL, weft_after(50 * WEFT_MSEC), &result);
        assert_true(r == 0 || (r == -ETIMEDOUT && atom_load_acq(&t.ran) == 0));
    } while (r);
    assert_int_equal(result, 5);
    assert_int_equal(atom_load_acq(&t.ran), 1);
    assert_int_equal(weft_blocking(pool, work, &t, NULL, weft_now() - 1, NULL), -ETIMEDOUT);
    weft_blocking_pool_free(pool);
}

static void the_queue_is_bounded_and_seen(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1, 2);
    struct ticket slow = {.ms = 200}, t = {.ms = 0};
    assert_int_equal(weft_blocking_post(pool, work, &slow, drop, WEFT_TRY), 0);
    wait_running(pool);
    assert_int_equal(weft_blocking_post(pool, work, &t, drop, WEFT_TRY), 0);
    assert_int_equal(weft_blocking_post(pool, work, &t, drop, WEFT_TRY), 0);
    assert_int_equal(weft_blocking_post(pool, work, &t, drop, WEFT_TRY), -EAGAIN);
    assert_int_equal(atom_load_acq(&t.dropped), 1);
    test_sleep_ms(20);
    weft_blocking_stats s = stats(pool);
    if (s.running == 1 && s.queued == 2) {
        assert_true(s.oldest >= 20 * WEFT_MSEC);
        assert_int_equal(s.rejected, 1);
        assert_int_equal(weft_blocking_post(pool, work, &t, drop, weft_after(WEFT_MSEC)),
                         -ETIMEDOUT);
    } else {
        drop(&t);
    }
    assert_int_equal(weft_blocking(pool, work, &t, NULL, WEFT_NEVER, NULL), 0); /* waits for both */
    while (stats(pool).running)
        usleep(500);
    s = stats(pool);
    assert_int_equal(s.completed, 4);
    assert_int_equal(s.queued, 0);
    assert_int_equal(s.oldest, 0);
    assert_true(s.longest_wait >= 20 * WEFT_MSEC);
    weft_blocking_pool_free(pool);
    assert_int_equal(atom_load_acq(&t.ran), 3);
    assert_int_equal(atom_load_acq(&t.dropped), 4); /* two ran, two were refused */
}

struct nested {
    weft_blocking_pool *pool;
    struct ticket inner;
    int r, posted, shut;
};

static int nest(void *arg)
{
    struct nested *n = arg;
    int result = 0;
    n->r = weft_blocking(n->pool, work, &n->inner, NULL, WEFT_NEVER, &result);
    assert_int_equal(result, 9);
    assert_int_equal(weft_blocking_post(n->pool, work, &n->inner, NULL, WEFT_TRY), 0);
    n->posted = weft_blocking_post(n->pool, work, &n->inner, NULL, WEFT_NEVER);
    n->shut = weft_blocking_pool_shutdown(n->pool, WEFT_NEVER);
    return 1;
}

static void a_job_may_need_its_own_full_pool(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1, 1);
    struct nested n = {.pool = pool, .inner = {.result = 9}};
    int result = 0;
    assert_int_equal(weft_blocking(pool, nest, &n, NULL, WEFT_NEVER, &result), 0);
    assert_int_equal(result, 1);
    assert_int_equal(n.r, 0);
    assert_int_equal(n.posted, -EDEADLK); /* its queue is full, and who would empty it */
    assert_int_equal(n.shut, -EDEADLK);
    while (stats(pool).completed < 2)
        usleep(500);
    weft_blocking_pool_free(pool);
    assert_int_equal(atom_load_acq(&n.inner.ran), 2);
}

static void shutdown_keeps_its_limit(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1, 0);
    struct ticket slow = {.ms = 400}, queued = {.ms = 0};
    assert_int_equal(weft_blocking_post(pool, work, &slow, drop, WEFT_TRY), 0);
    wait_running(pool);
    assert_int_equal(weft_blocking_post(pool, work, &queued, drop, WEFT_TRY), 0);
    weft_time start = weft_now();
    int left = weft_blocking_pool_shutdown(pool, WEFT_TRY);
    assert_true(left == 1 || weft_now() - start > 300 * WEFT_MSEC);
    assert_int_equal(atom_load_acq(&queued.dropped), 1);
    assert_int_equal(weft_blocking(pool, work, &queued, drop, WEFT_NEVER, NULL), -ESHUTDOWN);
    assert_int_equal(weft_blocking_post(pool, work, &queued, drop, WEFT_TRY), -ESHUTDOWN);
    assert_int_equal(atom_load_acq(&queued.dropped), 3);
    weft_blocking_pool_shutdown(pool, weft_after(20 * WEFT_MSEC));
    assert_int_equal(weft_blocking_pool_shutdown(pool, weft_after(20 * WEFT_SEC)), 0);
    assert_true(weft_now() - start < 15 * WEFT_SEC); /* not the whole limit */
    assert_int_equal(weft_blocking_pool_shutdown(pool, WEFT_TRY), 0);
    assert_int_equal(atom_load_acq(&slow.dropped), 1);
    assert_int_equal(atom_load_acq(&queued.ran), 0);
    weft_blocking_pool_free(pool);
}

static void who_waits_for_a_place_hears_of_the_shutdown(void **state)
{
    (void)state;
    weft_runtime *rt = one_worker();
    weft_blocking_pool *pool = pool_of(1, 1);
    static struct ticket slow, t[4];
    memset(t, 0, sizeof t);
    slow = (struct ticket){.ms = 150};
    assert_int_equal(weft_blocking_post(pool, work, &slow, drop, WEFT_TRY), 0);
    wait_running(pool);
    struct fiber f[4];
    weft_task *task[4];
    for (int i = 0; i < 4; i++) {
        f[i] = (struct fiber){.pool = pool, .ticket = &t[i], .drop = drop};
        task[i] = spawn(rt, &f[i]);
    }
    test_sleep_ms(20);
    weft_blocking_pool_shutdown(pool, WEFT_TRY);
    for (int i = 0; i < 4; i++) {
        finish(task[i]);
        assert_true(f[i].r == -ESHUTDOWN || f[i].r == 0);
        assert_int_equal(atom_load_acq(&t[i].dropped), f[i].r != 0);
    }
    assert_int_equal(f[3].r, -ESHUTDOWN);
    weft_blocking_pool_free(pool);
    weft_runtime_free(rt);
}

static int poll_once(weft_task *self, void *state)
{
    struct fiber *f;
    (void)self;
    memcpy(&f, state, sizeof f);
    f->r = weft_blocking(f->pool, work, f->ticket, drop, WEFT_NEVER, NULL);
    return 0;
}

static void bad_input_has_an_answer(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1, 0), *none = NULL;
    struct ticket t = {.ms = 0};
    assert_int_equal(weft_blocking(NULL, work, &t, drop, WEFT_NEVER, NULL), -EINVAL);
    assert_int_equal(weft_blocking(pool, NULL, &t, drop, WEFT_NEVER, NULL), -EINVAL);
    assert_int_equal(weft_blocking(pool, work, &t, drop, WEFT_TRY, NULL), -EAGAIN);
    assert_int_equal(weft_blocking_post(NULL, work, &t, drop, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_blocking_post(pool, NULL, &t, drop, WEFT_NEVER), -EINVAL);
    weft_runtime *rt = one_worker();
    struct fiber f = {.pool = pool, .ticket = &t}, *p = &f;
    weft_task *task;
    assert_int_equal(weft_spawn_poll(rt, poll_once, &p, sizeof p, NULL, &task), 0);
    finish(task);
    assert_int_equal(f.r, -EPERM);
    assert_int_equal(atom_load_acq(&t.dropped), 6);
    assert_int_equal(atom_load_acq(&t.ran), 0);
    weft_runtime_free(rt);
    weft_blocking_options bad[] = {
        {.threads = 100000}, {.queue = 100000000}, {.idle_timeout = -1}, {.stack_size = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(weft_blocking_pool_new(&bad[i], &none), -EINVAL);
    assert_int_equal(weft_blocking_pool_new(NULL, NULL), -EINVAL);
    assert_int_equal(weft_blocking_pool_shutdown(NULL, 0), -EINVAL);
    assert_null(weft_blocking_pool_free(NULL));
    assert_string_equal(weft_blocking_pool_name(NULL), "");
    assert_int_equal(weft_blocking_pool_get_stats(pool, NULL), -EINVAL);
    weft_blocking_pool_free(pool);
}

static void idle_threads_leave(void **state)
{
    (void)state;
    weft_blocking_pool *pool;
    weft_blocking_options o = {.threads = 4, .idle_timeout = 5 * WEFT_MSEC};
    test_limit(60, "io_blocking");
    assert_int_equal(weft_blocking_pool_new(&o, &pool), 0);
    struct ticket t = {.ms = 1};
    for (int i = 0; i < 30; i++) {
        assert_int_equal(weft_blocking(pool, work, &t, NULL, WEFT_NEVER, NULL), 0);
        usleep((unsigned)(i % 3) * 3000); /* around the time-out, so both sides win at times */
    }
    while (stats(pool).threads)
        usleep(1000);
    assert_int_equal(weft_blocking(pool, work, &t, NULL, WEFT_NEVER, NULL), 0);
    assert_int_equal(atom_load_acq(&t.ran), 31);
    weft_blocking_pool_free(pool);
}

enum { LEDGER_TASKS = 16 };

struct ledger {
    weft_blocking_pool *pool;
    weft__a32 made, ran, dropped, returned;
    unsigned rounds;
    uint64_t seed;
};

struct entry {
    struct ledger *l;
    unsigned us;
};

static int enter(void *arg)
{
    struct entry *e = arg;
    if (e->us)
        usleep(e->us);
    atom_add_rlx(&e->l->ran, 1u);
    return 0;
}

static void strike(void *arg)
{
    struct entry *e = arg;
    atom_add_rlx(&e->l->dropped, 1u);
    free(e);
}

static int keep_books(void *arg)
{
    struct ledger *l = arg;
    uint64_t x = l->seed ^ weft_task_id(weft_task_self()) * 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < l->rounds; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        struct entry *e = malloc(sizeof *e);
        *e = (struct entry){l, (unsigned)(x >> 33) % 200};
        atom_add_rlx(&l->made, 1u);
        weft_time limit = x >> 62 == 0 ? WEFT_NEVER : weft_after((weft_time)(x >> 40) % 400000);
        if (weft_blocking(l->pool, enter, e, strike, limit, NULL) == 0) {
            atom_add_rlx(&l->returned, 1u);
            free(e);
        }
    }
    return 0;
}

/* Every argument comes back exactly once: to its caller, or to its destructor. */
static void the_books_balance(void **state)
{
    (void)state;
    weft_runtime *rt;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    struct ledger l = {.pool = pool_of(3, 4), .seed = test_seed()};
    l.rounds = (unsigned)test_rounds(400);
    weft_task *t[LEDGER_TASKS];
    for (int i = 0; i < LEDGER_TASKS; i++)
        assert_int_equal(weft_spawn(rt, keep_books, &l, NULL, &t[i]), 0);
    for (int i = 0; i < LEDGER_TASKS; i++) {
        if (i % 4 == 3)
            weft_task_cancel(t[i]);
        finish(t[i]);
    }
    weft_blocking_stats s = stats(l.pool);
    assert_int_equal(s.queued, 0);
    weft_blocking_pool_free(l.pool);
    assert_int_equal(atom_load_rlx(&l.made), LEDGER_TASKS * l.rounds);
    assert_int_equal(atom_load_rlx(&l.made),
                     atom_load_rlx(&l.returned) + atom_load_rlx(&l.dropped));
    assert_true(atom_load_rlx(&l.ran) >= atom_load_rlx(&l.returned));
    print_message("%u returned, %u dropped, %u ran\n", atom_load_rlx(&l.returned),
                  atom_load_rlx(&l.dropped), atom_load_rlx(&l.ran));
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_runs_and_answers),
        cmocka_unit_test(a_deadline_frees_the_caller_at_once),
        cmocka_unit_test(a_cancellation_does_the_same),
        cmocka_unit_test(a_borrowed_argument_is_waited_for),
        cmocka_unit_test(the_queue_is_bounded_and_seen),
        cmocka_unit_test(a_job_may_need_its_own_full_pool),
        cmocka_unit_test(shutdown_keeps_its_limit),
        cmocka_unit_test(who_waits_for_a_place_hears_of_the_shutdown),
        cmocka_unit_test(bad_input_has_an_answer),
        cmocka_unit_test(idle_threads_leave),
        cmocka_unit_test(the_books_balance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Runtimes on each pool: a mixed load with exact counts, wake-ups, threads that come and
 * go, a pool of the program's own, the guard, fork. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/channel.h"
#include "weft/driven.h"
#include "weft/pool.h"
#include "weft/runtime.h"
#include "weft/task.h"

/* ---- A pool as a program would write it: a small stack under a mutex ---- */

struct own_pool {
    weft_pool base;
    pthread_mutex_t lock;
    weft_task *top;
    size_t count, limit;
    unsigned refused;
};

static int own_push(weft_pool *pool, unsigned worker, weft_task *task, unsigned flags)
{
    struct own_pool *p = (struct own_pool *)pool;
    if (worker != WEFT_POOL_OUTSIDE)
        weft_pool_check(pool, worker);
    pthread_mutex_lock(&p->lock);
    /* What gives way may not be on top of the others: the runtime's queue has it behind. */
    bool full = p->count == p->limit || flags & WEFT_POOL_BEHIND;
    if (!full) {
        weft_pool_set_next(task, p->top);
        p->top = task;
    }
    p->count += !full;
    p->refused += full;
    pthread_mutex_unlock(&p->lock);
    return full ? -EAGAIN : 0;
}

static weft_task *own_pop(weft_pool *pool, unsigned worker, weft_time now)
{
    struct own_pool *p = (struct own_pool *)pool;
    (void)now;
    weft_pool_check(pool, worker);
    pthread_mutex_lock(&p->lock);
    weft_task *t = p->top;
    if (t) {
        p->top = weft_pool_next(t);
        p->count--;
    }
    pthread_mutex_unlock(&p->lock);
    return t;
}

static weft_task *own_steal(weft_pool *pool, unsigned worker)
{
    weft_pool_check(pool, worker);
    return NULL;
}

static size_t own_length(weft_pool *pool)
{
    struct own_pool *p = (struct own_pool *)pool;
    pthread_mutex_lock(&p->lock);
    size_t n = p->count;
    pthread_mutex_unlock(&p->lock);
    return n;
}

static const weft_pool_ops own_ops = {
    .push = own_push, .pop = own_pop, .steal = own_steal, .length = own_length};

/* ---- Making ---- */

enum { SINGLE, COMPUTATIONAL, COMPUTATIONAL_TINY, STEALABLE, STEALABLE_TINY, OWN, KINDS };

static struct own_pool own;

static weft_pool *pool_of(int kind)
{
    weft_pool *p = NULL;
    weft_pool_stealable_options tiny = {
        .capacity = 2, .local_weight = 1, .shared_weight = 254, .refresh = 100 * WEFT_USEC};
    switch (kind) {
    case SINGLE:
        assert_int_equal(weft_pool_new_single(&p), 0);
        break;
    case COMPUTATIONAL:
    case COMPUTATIONAL_TINY:
        assert_int_equal(weft_pool_new_computational(kind == COMPUTATIONAL ? 0 : 2, &p), 0);
        break;
    case STEALABLE:
    case STEALABLE_TINY:
        assert_int_equal(weft_pool_new_stealable(kind == STEALABLE ? NULL : &tiny, &p), 0);
        break;
    default:
        own = (struct own_pool){.base = {&own_ops}, .lock = PTHREAD_MUTEX_INITIALIZER, .limit = 20};
        p = &own.base;
    }
    return p;
}

static weft_runtime *runtime_on(weft_pool *p, unsigned workers)
{
    weft_runtime *rt = NULL;
    weft_runtime_options o = {.workers = workers, .pool = p};
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    return rt;
}

/* ---- A mixed load ---- */

#define FAMILIES 20
#define CHILDREN 16
#define OUTSIDE  300

struct load {
    weft_runtime *rt;
    weft_channel *ch;
    weft__a32 ran, high, pinned, polled;
};

static struct load load;

static int child(void *arg)
{
    int i = (int)(intptr_t)arg;
    for (int k = 0; k < 3; k++)
        assert_int_equal(weft_yield(), 0);
    if (i % 4 == 0)
        assert_int_equal(weft_sleep(200 * WEFT_USEC), 0);
    assert_int_equal(weft_channel_send(load.ch, &i, WEFT_NEVER), 0);
    atom_add_rlx(&load.ran, 1u);
    return i;
}

static int count_in(void *arg)
{
    atom_add_rlx((weft__a32 *)arg, 1u);
    return 0;
}

static int poll_thrice(weft_task *self, void *state)
{
    int *n = state;
    (void)self;
    if (++*n < 3) {
        weft_task_wake(self);
        return WEFT_PENDING;
    }
    atom_add_rlx(&load.polled, 1u);
    return 0;
}

static int family(void *arg)
{
    weft_task *joined[CHILDREN / 2];
    int result, n = 0;
    (void)arg;
    for (int i = 0; i < CHILDREN; i++) {
        void *a = (void *)(intptr_t)i;
        if (i % 2)
            assert_int_equal(weft_go(child, a), 0);
        else
            assert_int_equal(weft_spawn(NULL, child, a, NULL, &joined[n++]), 0);
    }
    assert_int_equal(
        weft_spawn(NULL, count_in, &load.high, &(weft_spawn_options){.flags = WEFT_HIGH}, NULL), 0);
    assert_int_equal(
        weft_spawn(NULL, count_in, &load.pinned, &(weft_spawn_options){.flags = WEFT_PINNED}, NULL),
        0);
    assert_int_equal(weft_spawn_poll(NULL, poll_thrice, NULL, sizeof(int), NULL, NULL), 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(weft_task_join(joined[i], WEFT_NEVER, &result), 0);
        assert_int_equal(result, 2 * i);
        weft_task_unref(joined[i]);
    }
    return 0;
}

static int consumer(void *arg)
{
    long sum = 0;
    int i;
    for (int n = 0; n < FAMILIES * CHILDREN; n++) {
        assert_int_equal(weft_channel_recv(load.ch, &i, WEFT_NEVER), 0);
        sum += i;
    }
    *(long *)arg = sum;
    return 0;
}

static void *from_outside(void *arg)
{
    (void)arg;
    for (int i = 0; i < OUTSIDE; i++)
        assert_int_equal(weft_spawn(load.rt, count_in, &load.ran, NULL, NULL), 0);
    return NULL;
}

static void mixed(weft_runtime *rt, uint64_t round)
{
    pthread_t t[2];
    weft_task *c;
    long sum = 0;
    load = (struct load){.rt = rt};
    assert_int_equal(weft_channel_new(sizeof(int), 3, NULL, &load.ch), 0);
    assert_int_equal(weft_spawn(rt, consumer, &sum, NULL, &c), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, from_outside, NULL), 0);
    for (int i = 0; i < FAMILIES; i++)
        assert_int_equal(weft_spawn(rt, family, NULL, NULL, NULL), 0);
    assert_int_equal(weft_task_join(c, WEFT_NEVER, NULL), 0);
    weft_task_unref(c);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    weft_runtime_stats s;
    do {
        usleep(200);
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
    } while (s.alive);
    assert_int_equal(sum, FAMILIES * (CHILDREN * (CHILDREN - 1) / 2));
    assert_int_equal(atom_load_rlx(&load.ran), FAMILIES * CHILDREN + 2 * OUTSIDE);
    assert_int_equal(atom_load_rlx(&load.high), FAMILIES);
    assert_int_equal(atom_load_rlx(&load.pinned), FAMILIES);
    assert_int_equal(atom_load_rlx(&load.polled), FAMILIES);
    assert_int_equal(s.spawned, s.finished);
    assert_int_equal(s.spawned, (round + 1) * (1 + 2 * OUTSIDE + FAMILIES * (4 + CHILDREN)));
    weft_channel_unref(load.ch);
}

static void mixed_load_on(int kind)
{
    weft_pool *p = pool_of(kind);
    for (unsigned workers = 1; workers <= 4; workers *= 2) {
        weft_runtime *rt = runtime_on(p, workers);
        for (uint64_t i = 0; i < test_rounds(10); i++)
            mixed(rt, i);
        assert_int_equal(weft_pool_length(p), 0);
        weft_runtime_free(rt); /* and the next runtime on the same pool */
    }
    weft_pool_free(p);
}

static void mixed_load(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        mixed_load_on(kind);
    assert_true(own.refused > 0); /* the runtime kept those */
}

/* ---- Who sleeps is woken ---- */

static void nobody_sleeps_on_work(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        weft_pool *p = pool_of(kind);
        weft_runtime *rt = runtime_on(p, 2);
        weft__a32 n = {0};
        uint32_t rounds = (uint32_t)test_rounds(1000);
        for (uint32_t i = 0; i < rounds; i++) {
            weft_task *t;
            assert_int_equal(weft_spawn(rt, count_in, &n, NULL, &t), 0);
            assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), NULL), 0);
            weft_task_unref(t);
        }
        assert_int_equal(atom_load_rlx(&n), rounds);
        weft_runtime_free(rt);
        weft_pool_free(p);
    }
}

static int spawns_and_waits_blocked(void *arg)
{
    weft__a32 *n = arg;
    for (int i = 0; i < 50; i++)
        assert_int_equal(weft_go(count_in, n), 0);
    while (atom_load_rlx(n) < 50) /* blocks its worker, on purpose */
        usleep(100);
    return 0;
}

/* What waits behind a stuck worker is stolen, the last one from its `next` place. */
static void a_stuck_worker_is_relieved(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        weft_pool *p = pool_of(kind);
        weft_runtime *rt = runtime_on(p, 2);
        weft__a32 n = {0};
        weft_runtime_stats s;
        weft_task *t;
        assert_int_equal(weft_spawn(rt, spawns_and_waits_blocked, &n, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
        weft_task_unref(t);
        assert_int_equal(weft_runtime_get_stats(rt, &s), 0);
        assert_int_equal(s.steals > 0, kind != SINGLE && kind != OWN);
        weft_runtime_free(rt);
        weft_pool_free(p);
    }
}

static int wait_by_yield(void *arg)
{
    while (!atom_load_acq((weft__a32 *)arg))
        weft_yield();
    return 0;
}

static int set_flag(void *arg)
{
    atom_store_rel((weft__a32 *)arg, 1u);
    return 0;
}

/* A stack would give the yielding one back for ever. */
static void who_gives_way_is_behind(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        weft_pool *p = pool_of(kind);
        weft_runtime *rt = runtime_on(p, 1);
        weft__a32 flag = {0};
        for (int i = 0; i < 5; i++)
            assert_int_equal(weft_spawn(rt, wait_by_yield, &flag, NULL, NULL), 0);
        usleep(2000);
        assert_int_equal(weft_spawn(rt, set_flag, &flag, NULL, NULL), 0);
        while (!atom_load_acq(&flag)) /* the watchdog has an eye on it */
            usleep(100);
        weft_runtime_free(rt);
        weft_pool_free(p);
    }
}

/* ---- Priorities ---- */

struct order {
    weft__a32 holds, go, n;
    int first_high; /* how many normal ones had run */
};

static struct order order;

static int normal(void *arg)
{
    (void)arg;
    atom_add_rlx(&order.n, 1u);
    return 0;
}

static int high(void *arg)
{
    (void)arg;
    order.first_high = (int)atom_load_rlx(&order.n);
    return 0;
}

static int hold(void *arg)
{
    (void)arg;
    atom_store_rel(&order.holds, 1u);
    while (!atom_load_acq(&order.go))
        usleep(100); /* blocks the worker, on purpose */
    return 0;
}

static void hold_the_worker(weft_runtime *rt)
{
    assert_int_equal(weft_spawn(rt, hold, NULL, NULL, NULL), 0);
    while (!atom_load_acq(&order.holds))
        usleep(100);
}

static void high_goes_before_the_pool(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        weft_pool *p = pool_of(kind);
        weft_runtime *rt = runtime_on(p, 1);
        order = (struct order){.first_high = -1};
        hold_the_worker(rt);
        for (int i = 0; i < 50; i++)
            assert_int_equal(weft_spawn(rt, normal, NULL, NULL, NULL), 0);
        assert_int_equal(
            weft_spawn(rt, high, NULL, &(weft_spawn_options){.flags = WEFT_HIGH}, NULL), 0);
        assert_int_equal(weft_pool_length(p), kind == OWN ? 20 : 50);
        atom_store_rel(&order.go, 1u);
        weft_runtime_free(rt);
        assert_in_range(order.first_high, 0, 2); /* the worker looks before it picks */
        assert_int_equal(atom_load_rlx(&order.n), 50);
        weft_pool_free(p);
    }
}

/* ---- Other kinds of runtime ---- */

static int spawns(void *arg)
{
    for (int i = 0; i < 100; i++)
        assert_int_equal(weft_go(count_in, arg), 0);
    return 7;
}

static void run_and_driven(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        weft_pool *p = pool_of(kind);
        weft_runtime_options o = {.pool = p};
        weft__a32 n = {0};
        int result = 0;
        assert_int_equal(weft_run(&o, spawns, &n, &result), 0);
        assert_int_equal(result, 7);
        assert_int_equal(atom_load_rlx(&n), 100);

        weft_runtime *rt = NULL;
        weft_time until;
        assert_int_equal(weft_driven_new(&o, &rt), 0);
        assert_int_equal(weft_spawn(rt, spawns, &n, NULL, NULL), 0);
        assert_int_equal(weft_driven_plan(rt, NULL, &until), WEFT_PLAN_NOW);
        for (int i = 0; atom_load_rlx(&n) < 200; i++) {
            assert_true(i < 1000);
            assert_true(weft_driven_turn(rt, &(weft_driven_budget){.tasks = 7}) >= 0);
        }
        assert_true(weft_driven_turn(rt, NULL) >= 0);
        assert_int_equal(weft_driven_plan(rt, NULL, &until), WEFT_PLAN_NEVER);
        weft_runtime_free(rt);
        weft_pool_free(p);
    }
}

/* A thread that leaves leaves its tasks in the pool; the next one, on another place or the
 * same, gets at them. */
static int spawns_and_holds(void *arg)
{
    spawns(arg);
    usleep(20000);
    return 0;
}

static void *attach(void *arg)
{
    return (void *)(intptr_t)weft_runtime_attach(arg, weft_after(10 * WEFT_MSEC));
}

static void lent_threads_come_and_go(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        weft_pool *p = pool_of(kind);
        weft_runtime *rt = NULL;
        weft_runtime_options o = {.no_workers = true, .lent_workers = 3, .pool = p};
        weft__a32 n = {0};
        assert_int_equal(weft_runtime_new(&o, &rt), 0);
        assert_int_equal(weft_spawn(rt, spawns_and_holds, &n, NULL, NULL), 0);
        assert_int_equal(weft_runtime_attach(rt, weft_after(10 * WEFT_MSEC)), -ETIMEDOUT);
        for (int i = 0; atom_load_rlx(&n) < 100; i++) {
            pthread_t t[3];
            assert_true(i < 1000);
            for (int k = 0; k < 3; k++)
                assert_int_equal(pthread_create(&t[k], NULL, attach, rt), 0);
            for (int k = 0; k < 3; k++)
                pthread_join(t[k], NULL);
        }
        weft_runtime_free(rt);
        weft_pool_free(p);
    }
}

static void one_runtime_at_a_time(void **state)
{
    (void)state;
    for (int kind = 0; kind < OWN; kind++) {
        weft_pool *p = pool_of(kind);
        weft_runtime *rt = runtime_on(p, 1), *second = NULL;
        weft_runtime_options o = {.pool = p};
        assert_int_equal(weft_runtime_new(&o, &second), -EBUSY);
        assert_int_equal(weft_run(&o, spawns, NULL, NULL), -EBUSY);
        assert_int_equal(weft_driven_new(&o, &second), -EBUSY);
        assert_null(second);
        weft_runtime_free(rt);
        weft_pool_free(p);
    }
}

/* ---- Guard and fork ---- */

static weft_pool *foreign;

static int takes_from_another(void *arg)
{
    (void)arg;
    foreign->ops->pop(foreign, 0, 0);
    return 0;
}

static int in_child(void (*body)(int kind), int kind)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka's */
        body(kind);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void task_takes_elsewhere(int kind)
{
    weft_pool *p = pool_of(kind == OWN ? SINGLE : OWN);
    foreign = pool_of(kind);
    runtime_on(foreign, 1);
    weft_runtime *rt = runtime_on(p, 1);
    close(2); /* it has been seen in sched_pool.c what is said */
    assert_int_equal(weft_spawn(rt, takes_from_another, NULL, NULL, NULL), 0);
    sleep(20);
}

static void free_in_use(int kind)
{
    weft_pool *p = pool_of(kind);
    runtime_on(p, 1);
    close(2);
    weft_pool_free(p);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        assert_int_equal(in_child(task_takes_elsewhere, kind), -SIGABRT);
    for (int kind = 0; kind < OWN; kind++)
        assert_int_equal(in_child(free_in_use, kind), -SIGABRT);
}

static weft_runtime *inherited;
static weft_pool *inherited_pool;

static void frees_what_it_inherited(int kind)
{
    (void)kind;
    weft_runtime_free(inherited);
    if (inherited_pool != &own.base)
        weft_pool_free(inherited_pool);
}

static void a_forked_child_frees(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        weft__a32 n = {0};
        inherited_pool = pool_of(kind);
        inherited = runtime_on(inherited_pool, 1);
        order = (struct order){.first_high = -1};
        hold_the_worker(inherited);
        for (int i = 0; i < 10; i++) /* they wait in the pool while we fork */
            assert_int_equal(weft_spawn(inherited, count_in, &n, NULL, NULL), 0);
        assert_int_equal(in_child(frees_what_it_inherited, kind), 0);
        atom_store_rel(&order.go, 1u);
        weft_runtime_free(inherited);
        assert_int_equal(atom_load_rlx(&n), 10);
        weft_pool_free(inherited_pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_load),
        cmocka_unit_test(nobody_sleeps_on_work),
        cmocka_unit_test(a_stuck_worker_is_relieved),
        cmocka_unit_test(who_gives_way_is_behind),
        cmocka_unit_test(high_goes_before_the_pool),
        cmocka_unit_test(run_and_driven),
        cmocka_unit_test(lent_threads_come_and_go),
        cmocka_unit_test(one_runtime_at_a_time),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(a_forked_child_frees),
    };
    test_limit(55, "pool_runtime");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Each pool alone, driven by hand: order, weights, stealing, counts, who may use it; then
 * by threads that push, pop and steal at once. What a runtime does with one is in
 * sched_pool_runtime.c. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "sched/pool.h"

#define TASKS 4096

static weft_task *tasks; /* never run; told apart by their index */

static int make_tasks(void **state)
{
    (void)state;
    tasks = aligned_alloc(WEFT__CACHE_LINE, TASKS * sizeof *tasks);
    if (tasks)
        memset(tasks, 0, TASKS * sizeof *tasks);
    return tasks ? 0 : -1;
}

static int free_tasks(void **state)
{
    (void)state;
    free(tasks);
    return 0;
}

/* ---- Short names; `now` is 0 unless a test is about time ---- */

static void push(weft_pool *p, unsigned worker, int i, unsigned flags)
{
    assert_int_equal(p->ops->push(p, worker, &tasks[i], flags), 0);
}

static int index_of(weft_task *t)
{
    return t ? (int)(t - tasks) : -1;
}

static int pop(weft_pool *p, unsigned worker)
{
    return index_of(p->ops->pop(p, worker, 0));
}

static int steal(weft_pool *p, unsigned worker)
{
    return index_of(p->ops->steal(p, worker));
}

static weft_pool *opened(int error, weft_pool *p, unsigned workers)
{
    assert_int_equal(error, 0);
    assert_int_equal(p->ops->open(p, workers), 0);
    weft__pool_bind(p, 0);
    return p;
}

static void closed(weft_pool *p)
{
    assert_int_equal(weft_pool_length(p), 0);
    weft__pool_bind(NULL, 0);
    p->ops->close(p);
    assert_null(weft_pool_free(p));
}

static weft_pool *single(unsigned workers)
{
    weft_pool *p = NULL;
    int r = weft_pool_new_single(&p);
    return opened(r, p, workers);
}

static weft_pool *computational(unsigned workers, size_t capacity)
{
    weft_pool *p = NULL;
    int r = weft_pool_new_computational(capacity, &p);
    return opened(r, p, workers);
}

static weft_pool *stealable(unsigned workers, weft_pool_stealable_options o)
{
    weft_pool *p = NULL;
    int r = weft_pool_new_stealable(&o, &p);
    return opened(r, p, workers);
}

/* ---- Single ---- */

static void single_is_one_queue(void **state)
{
    (void)state;
    weft_pool *p = single(2);
    assert_int_equal(pop(p, 0), -1);
    push(p, 0, 0, 0);
    push(p, WEFT_POOL_OUTSIDE, 1, 0);
    push(p, 0, 2, WEFT_POOL_BEHIND);
    weft__pool_bind(p, 1);
    push(p, 1, 3, 0);
    assert_int_equal(weft_pool_length(p), 4);
    assert_int_equal(steal(p, 1), -1);
    assert_int_equal(pop(p, 1), 0);
    weft__pool_bind(p, 0);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(weft_pool_length(p), 4 - i);
        assert_int_equal(pop(p, 0), i);
    }
    assert_int_equal(pop(p, 0), -1);
    closed(p);
}

/* ---- Computational ---- */

static void computational_is_a_stack(void **state)
{
    (void)state;
    weft_pool *p = computational(3, 0);
    push(p, WEFT_POOL_OUTSIDE, 10, 0);
    push(p, 0, 11, WEFT_POOL_BEHIND);
    for (int i = 0; i < 6; i++)
        push(p, 0, i, 0);
    assert_int_equal(weft_pool_length(p), 8);
    assert_int_equal(pop(p, 0), 5); /* the newest first */
    push(p, 0, 6, 0);
    assert_int_equal(pop(p, 0), 6);
    weft__pool_bind(p, 2); /* thieves from the other end */
    assert_int_equal(steal(p, 2), 0);
    assert_int_equal(steal(p, 2), 1);
    assert_int_equal(pop(p, 2), 10); /* what is for all, in order */
    weft__pool_bind(p, 0);
    assert_int_equal(pop(p, 0), 4);
    assert_int_equal(pop(p, 0), 3);
    assert_int_equal(pop(p, 0), 2);
    assert_int_equal(steal(p, 0), -1);
    assert_int_equal(pop(p, 0), 11);
    assert_int_equal(pop(p, 0), -1);
    closed(p);
}

static void computational_starves_nobody_outside(void **state)
{
    (void)state;
    weft_pool *p = computational(1, 0);
    push(p, WEFT_POOL_OUTSIDE, 100, 0);
    push(p, 0, 0, 0);
    int takes = 0, got;
    while ((got = pop(p, 0)) != 100) { /* the stack never empties */
        assert_int_equal(got, 0);
        assert_true(++takes < 100);
        push(p, 0, 0, 0);
    }
    assert_int_equal(pop(p, 0), 0);
    closed(p);
}

static void a_full_ring_goes_to_all(void **state)
{
    (void)state;
    weft_pool *p = computational(2, 3); /* rounded up to 4 */
    for (int i = 0; i < 6; i++)
        push(p, 0, i, 0);
    assert_int_equal(weft_pool_length(p), 6);
    weft__pool_bind(p, 1);
    assert_int_equal(pop(p, 1), 4);
    assert_int_equal(pop(p, 1), 5);
    assert_int_equal(pop(p, 1), -1);
    weft__pool_bind(p, 0);
    for (int i = 3; i >= 0; i--)
        assert_int_equal(pop(p, 0), i);
    for (int i = 0; i < 100; i++) { /* around the ring */
        push(p, 0, i, 0);
        push(p, 0, i + 1, 0);
        assert_int_equal(pop(p, 0), i + 1);
        assert_int_equal(pop(p, 0), i);
    }
    closed(p);
}

/* ---- Stealable ---- */

static void stealable_is_queues(void **state)
{
    (void)state;
    weft_pool *p = stealable(2, (weft_pool_stealable_options){.capacity = 100000});
    for (int i = 0; i < 8; i++)
        push(p, 0, i, i & 1 ? WEFT_POOL_BEHIND : 0);
    assert_int_equal(pop(p, 0), 0); /* the oldest first */
    weft__pool_bind(p, 1);
    assert_int_equal(pop(p, 1), -1);
    assert_int_equal(steal(p, 1), 1); /* and half of them: 1 to 4 */
    assert_int_equal(weft_pool_length(p), 6);
    for (int i = 2; i < 5; i++)
        assert_int_equal(pop(p, 1), i);
    assert_int_equal(pop(p, 1), -1);
    weft__pool_bind(p, 0);
    for (int i = 5; i < 8; i++)
        assert_int_equal(pop(p, 0), i);
    assert_int_equal(steal(p, 0), -1);
    closed(p);
}

#define SHARED_BASE (TASKS / 2)

/* Takes so many: how many of them were local. */
static int local_takes(weft_pool *p, int takes, weft_time now)
{
    int local = 0;
    for (int i = 0; i < takes; i++) {
        int got = index_of(p->ops->pop(p, 0, now));
        assert_true(got >= 0);
        local += got < SHARED_BASE;
    }
    return local;
}

/* A task is in the pool once, so these go on where the last fill ended. */
static void fill(weft_pool *p, int *next, int local, int shared)
{
    for (int i = 0; i < local; i++)
        push(p, 0, next[0]++, 0);
    for (int i = 0; i < shared; i++)
        push(p, WEFT_POOL_OUTSIDE, SHARED_BASE + next[1]++, 0);
    assert_true(next[0] <= SHARED_BASE && SHARED_BASE + next[1] <= TASKS);
}

static void drain(weft_pool *p)
{
    while (pop(p, 0) >= 0)
        ;
}

static void weights_share(void **state)
{
    (void)state;
    weft_pool_stealable_options o = {.local_weight = 1, .shared_weight = 3, .refresh = WEFT_NEVER};
    weft_pool *p = stealable(1, o);
    int next[2] = {0, 0};
    fill(p, next, 1000, 1000);
    assert_int_equal(local_takes(p, 400, 0), 100);
    assert_int_equal(local_takes(p, 400, WEFT_NEVER - 1), 100); /* never refreshed */
    assert_int_equal(weft_pool_set_weights(p, 2, 1), 0);
    assert_int_equal(local_takes(p, 300, 0), 200);
    assert_int_equal(weft_pool_length(p), 900); /* one side is soon empty: then the other */
    assert_int_equal(local_takes(p, 900, 0), 600);
    assert_int_equal(pop(p, 0), -1);
    assert_int_equal(weft_pool_set_weights(p, 1, 254), 0);
    next[0] = next[1] = 0;
    fill(p, next, 10, 1000);
    assert_int_equal(local_takes(p, 510, 0), 2);
    drain(p);
    closed(p);
}

static void weights_are_refreshed(void **state)
{
    (void)state;
    weft_pool_stealable_options o = {.capacity = 4096, .refresh = 3000};
    weft_pool *p = stealable(1, o);
    int next[2] = {0, 0};
    fill(p, next, 1000, 250);
    assert_int_equal(local_takes(p, 2, 10), 1);
    assert_int_equal(local_takes(p, 100, 3009), 50); /* not yet */
    fill(p, next, 799, 199);                         /* since the first take */
    /* 800 to 200, scaled to 255 to 63. */
    int local = local_takes(p, 318, 3010);
    assert_in_range(local, 253, 257);
    /* Nothing came since: even again. */
    assert_int_equal(local_takes(p, 100, 6010), 50);
    /* Only one side got anything: the other is still served. */
    fill(p, next, 200, 0);
    assert_in_range(256 - local_takes(p, 256, 9010), 1, 2);
    drain(p);
    closed(p);
}

/* ---- Arguments ---- */

static void bad_arguments(void **state)
{
    (void)state;
    weft_pool *p = NULL;
    weft_pool_stealable_options o = {.local_weight = 256};
    assert_int_equal(weft_pool_new_single(NULL), -EINVAL);
    assert_int_equal(weft_pool_new_computational(0, NULL), -EINVAL);
    assert_int_equal(weft_pool_new_computational(SIZE_MAX, &p), -EINVAL);
    assert_int_equal(weft_pool_new_stealable(NULL, NULL), -EINVAL);
    assert_int_equal(weft_pool_new_stealable(&o, &p), -EINVAL);
    o = (weft_pool_stealable_options){.shared_weight = UINT32_MAX};
    assert_int_equal(weft_pool_new_stealable(&o, &p), -EINVAL);
    o = (weft_pool_stealable_options){.refresh = -1};
    assert_int_equal(weft_pool_new_stealable(&o, &p), -EINVAL);
    o = (weft_pool_stealable_options){.capacity = ((size_t)1 << 24) + 1};
    assert_int_equal(weft_pool_new_stealable(&o, &p), -EINVAL);
    assert_null(p);
    assert_int_equal(weft_pool_set_weights(NULL, 1, 1), -EINVAL);
    assert_null(weft_pool_free(NULL));
    assert_int_equal(weft_pool_length(NULL), 0);

    p = single(1);
    assert_int_equal(p->ops->open(p, 1), -EBUSY); /* one runtime at a time */
    assert_int_equal(weft_pool_set_weights(p, 1, 1), -ENOTSUP);
    closed(p);
    p = computational(1, 0);
    assert_int_equal(p->ops->open(p, 1), -EBUSY);
    assert_int_equal(weft_pool_set_weights(p, 1, 1), -ENOTSUP);
    p->ops->close(p);
    assert_int_equal(p->ops->open(p, 0), -EINVAL);
    assert_int_equal(p->ops->open(p, 2), 0); /* and the next one after it */
    closed(p);
    assert_int_equal(weft_pool_new_stealable(NULL, &p), 0);
    p->ops->open(p, 1);
    assert_int_equal(weft_pool_set_weights(p, 0, 1), -EINVAL);
    assert_int_equal(weft_pool_set_weights(p, 1, 256), -EINVAL);
    closed(p);
}

/* ---- The guard ---- */

enum wrong { NOT_BOUND, OTHER_NUMBER, OTHER_POOL, OUTSIDE_TAKES, NO_SUCH_PLACE };

static void misuse(weft_pool *p, weft_pool *other, enum wrong how, int call)
{
    unsigned worker = 0;
    switch (how) {
    case NOT_BOUND:
        weft__pool_bind(NULL, 0);
        break;
    case OTHER_NUMBER:
        worker = 1;
        break;
    case OTHER_POOL:
        weft__pool_bind(other, 0);
        break;
    case OUTSIDE_TAKES:
        worker = call == 2 ? 7 : WEFT_POOL_OUTSIDE; /* a push from outside is right */
        break;
    case NO_SUCH_PLACE:
        worker = 2;
        break;
    }
    if (call == 0)
        p->ops->pop(p, worker, 0);
    else if (call == 1)
        p->ops->steal(p, worker);
    else
        p->ops->push(p, worker, &tasks[1], 0);
}

/* In a child: it must die by abort and say why. */
static void dies(weft_pool *p, weft_pool *other, enum wrong how, int call)
{
    int out[2], status = 0;
    char said[512] = "";
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka's */
        dup2(out[1], 2);
        misuse(p, other, how, call);
        _exit(0);
    }
    close(out[1]);
    for (ssize_t n, at = 0; (n = read(out[0], said + at, sizeof said - 1 - (size_t)at)) > 0;)
        at += n;
    close(out[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "a pool was used"));
}

static void others_are_refused(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int how = NOT_BOUND; how <= NO_SUCH_PLACE; how++)
            for (int call = 0; call < 3; call++) {
                weft_pool *other = single(2);
                weft_pool *p = kind == 0   ? single(2)
                               : kind == 1 ? computational(2, 0)
                                           : stealable(2, (weft_pool_stealable_options){0});
                push(p, 0, 0, 0);
                dies(p, other, (enum wrong)how, call);
                assert_int_equal(pop(p, 0), 0); /* the right one may */
                closed(p);
                closed(other);
            }
}

/* ---- Threads ---- */

#define WORKERS 4

struct crowd {
    weft_pool *pool;
    uint32_t each;
    weft__a32 left; /* tasks that nobody has taken for the last time */
    weft__a32 *runs;
    weft__a32 number;
};

static void ran(struct crowd *c, unsigned worker, weft_task *t)
{
    uint32_t i = (uint32_t)index_of(t);
    uint32_t before = atom_add_ar(&c->runs[i], 1u);
    if (before == 0) /* once more, from here: behind, or on top */
        assert_int_equal(c->pool->ops->push(c->pool, worker, t, i & 1), 0);
    else
        atom_sub_ar(&c->left, 1u);
}

static void *work(void *arg)
{
    struct crowd *c = arg;
    weft_pool *p = c->pool;
    unsigned me = atom_add_ar(&c->number, 1u);
    weft__pool_bind(p, me);
    uint32_t given = 0;
    while (atom_load_acq(&c->left)) {
        for (int i = 0; i < 3 && given < c->each; i++, given++)
            push(p, given % 4 ? me : WEFT_POOL_OUTSIDE, (int)(me * c->each + given), 0);
        for (int i = 0; i < 2; i++) {
            weft_task *t = p->ops->pop(p, me, weft_now());
            if (!t)
                t = p->ops->steal(p, me);
            if (t)
                ran(c, me, t);
        }
        if (given == c->each && weft_pool_length(p) == 0)
            sched_yield();
    }
    weft__pool_bind(NULL, 0);
    return NULL;
}

static void crowd(weft_pool *p)
{
    static weft__a32 runs[TASKS];
    for (uint64_t round = 0; round < test_rounds(30); round++) {
        struct crowd c = {.pool = p, .each = TASKS / WORKERS, .left = {TASKS}, .runs = runs};
        memset(runs, 0, sizeof runs);
        pthread_t t[WORKERS];
        for (int i = 0; i < WORKERS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, work, &c), 0);
        for (int i = 0; i < WORKERS; i++)
            pthread_join(t[i], NULL);
        for (int i = 0; i < TASKS; i++)
            assert_int_equal(atom_load_rlx(&runs[i]), 2);
        assert_int_equal(weft_pool_length(p), 0);
    }
    closed(p);
}

static void single_in_a_crowd(void **state)
{
    (void)state;
    crowd(single(WORKERS));
}

static void computational_in_a_crowd(void **state)
{
    (void)state;
    crowd(computational(WORKERS, 0));
    crowd(computational(WORKERS, 2)); /* always at the edge */
}

static void stealable_in_a_crowd(void **state)
{
    (void)state;
    crowd(stealable(WORKERS, (weft_pool_stealable_options){.refresh = 20 * WEFT_USEC}));
    crowd(stealable(WORKERS, (weft_pool_stealable_options){.capacity = 2}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_is_one_queue),
        cmocka_unit_test(computational_is_a_stack),
        cmocka_unit_test(computational_starves_nobody_outside),
        cmocka_unit_test(a_full_ring_goes_to_all),
        cmocka_unit_test(stealable_is_queues),
        cmocka_unit_test(weights_share),
        cmocka_unit_test(weights_are_refreshed),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(single_in_a_crowd),
        cmocka_unit_test(computational_in_a_crowd),
        cmocka_unit_test(stealable_in_a_crowd),
    };
    test_limit(50, "pool");
    return cmocka_run_group_tests(tests, make_tasks, free_tasks);
}

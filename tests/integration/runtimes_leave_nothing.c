/* SPDX-License-Identifier: MIT
 *
 * Runtimes come and go by the hundred, several at once, of every kind and with everything
 * in use, and leave no thread, descriptor, mapping or memory behind. Tasks of one wait for
 * tasks of another, both ways at once. And what a task reads of its thread after it has
 * moved is the new thread's.
 */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "harness.h"
#include "resources.h"
#include "weft/weft.h"

/* ---- Without residue ---- */

static int small(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static int never_reads(void *arg)
{
    char c;
    return (int)weft_fd_read(arg, &c, 1, WEFT_NEVER);
}

static int naps(void *arg)
{
    (void)arg;
    return weft_sleep(3600 * WEFT_SEC);
}

static int blocks_a_little(void *arg)
{
    (void)arg;
    return 0;
}

static int offloads(void *arg)
{
    int result = -1;
    weft_blocking_pool *pool;
    (void)arg;
    assert_int_equal(weft_blocking_pool_new(NULL, &pool), 0);
    assert_int_equal(
        weft_blocking(pool, blocks_a_little, NULL, NULL, weft_after(60 * WEFT_SEC), &result), 0);
    weft_blocking_pool_free(pool);
    return result;
}

/* A thousand tasks, and some that are only ended by the shutdown. */
static void use(weft_runtime *rt, weft_fd *silent)
{
    atomic_int ran = 0;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(weft_spawn(rt, small, &ran, NULL, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weft_spawn(rt, naps, NULL, NULL, NULL), 0);
        assert_int_equal(
            weft_spawn(rt, naps, NULL, &(weft_spawn_options){.at = weft_after(WEFT_SEC)}, NULL), 0);
    }
    if (silent)
        assert_int_equal(weft_spawn(rt, never_reads, silent, NULL, NULL), 0);
    weft_time until = weft_after(60 * WEFT_SEC);
    while (atomic_load(&ran) < 1000 && weft_now() < until)
        usleep(100);
    assert_int_equal(atomic_load(&ran), 1000);
}

static void one_of_each_kind(void)
{
    weft_runtime *rt;
    weft_fd *pair[2];
    assert_int_equal(weft_unix_pair(&pair[0], &pair[1]), 0);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    use(rt, pair[0]);
    rt = weft_runtime_free(rt);

    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1, .max_workers = 3}, &rt),
                     0);
    use(rt, NULL);
    rt = weft_runtime_free(rt);

    weft_pool *pool;
    assert_int_equal(weft_pool_new_stealable(NULL, &pool), 0);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2, .pool = pool}, &rt), 0);
    use(rt, NULL);
    rt = weft_runtime_free(rt);
    pool = weft_pool_free(pool);

    atomic_int ran = 0;
    assert_int_equal(weft_driven_new(NULL, &rt), 0);
    assert_int_equal(weft_spawn(rt, small, &ran, NULL, NULL), 0);
    assert_true(weft_driven_fd(rt) >= 0);
    assert_int_equal(weft_runtime_shutdown(rt, weft_after(60 * WEFT_SEC)), 0);
    rt = weft_runtime_free(rt);

    assert_int_equal(weft_run(NULL, offloads, NULL, NULL), 0);
    for (int i = 0; i < 2; i++)
        weft_fd_unref(pair[i]);
}

static void nothing_is_left(void **state)
{
    struct resources before, after;
    char why[512];
    (void)state;
    one_of_each_kind(); /* what libc and the kernel set up once */
    resources_take(&before);
    uint64_t rounds = test_rounds(100);
    for (uint64_t i = 0; i < rounds; i++)
        one_of_each_kind();
    weft_runtime *rt[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt[i]), 0);
    for (int i = 0; i < 3; i++)
        use(rt[i], NULL);
    for (int i = 0; i < 3; i++)
        weft_runtime_free(rt[i]);
    if (!resources_same(&before, &after, NULL, why, sizeof why))
        fail_msg("%s", why);
    print_message(
        "%llu runtimes: %d threads, %d descriptors, %d mappings before; %d, %d, %d after\n",
        (unsigned long long)rounds * 5 + 3, before.threads, before.fds, before.maps, after.threads,
        after.fds, after.maps);
}

/* ---- Nested waiting ---- */

struct nest {
    weft_runtime *other;
    int depth;
};

/* Spawns into the other runtime, down to the bottom, and waits at every level. */
static int goes_down(void *arg)
{
    struct nest *n = arg;
    if (n->depth == 0)
        return 0;
    struct nest next = {weft_runtime_current(), n->depth - 1};
    weft_task *t;
    int result = -1;
    assert_int_equal(weft_spawn(n->other, goes_down, &next, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, weft_after(60 * WEFT_SEC), &result), 0);
    weft_task_unref(t);
    return result + 1;
}

static void runtimes_wait_for_each_other(void **state)
{
    weft_runtime *rt[2];
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        for (int i = 0; i < 2; i++)
            assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt[i]),
                             0);
        uint64_t rounds = test_rounds(200);
        for (uint64_t k = 0; k < rounds; k++) {
            weft_task *t[8];
            struct nest n[8];
            for (int i = 0; i < 8; i++) { /* both ways at once; a plain thread waits for both */
                n[i] = (struct nest){rt[1 - i % 2], 6};
                assert_int_equal(weft_spawn(rt[i % 2], goes_down, &n[i], NULL, &t[i]), 0);
            }
            for (int i = 0; i < 8; i++) {
                int result = -1;
                assert_int_equal(weft_task_join(t[i], weft_after(60 * WEFT_SEC), &result), 0);
                assert_int_equal(result, 6);
                weft_task_unref(t[i]);
            }
        }
        for (int i = 0; i < 2; i++)
            weft_runtime_free(rt[i]);
    }
}

static int nests_a_run(void *arg)
{
    (void)arg;
    assert_int_equal(weft_run(NULL, naps, NULL, NULL), -EDEADLK);
    assert_int_equal(weft_runtime_shutdown(weft_runtime_current(), weft_after(WEFT_SEC)), -EDEADLK);
    assert_int_equal(weft_task_join(weft_task_self(), WEFT_NEVER, NULL), -EDEADLK);
    return 0;
}

static void what_can_only_wait_for_ever_is_refused(void **state)
{
    weft_runtime *rt;
    weft_task *t;
    (void)state;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &rt), 0);
    assert_int_equal(weft_spawn(rt, nests_a_run, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, weft_after(60 * WEFT_SEC), NULL), 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

/* ---- A task that has moved ---- */

static __attribute__((noinline)) int *errno_now(void)
{
    __asm__ volatile("");
    return &errno;
}

enum { WAKERS = 4 };

struct mover {
    weft_channel *ask[WAKERS];
    int moved;
};

/* Pinned: whom it resumes goes on on its worker. */
static int resumes_here(void *arg)
{
    weft_task *t;
    while (weft_channel_recv(arg, &t, WEFT_NEVER) == 0)
        assert_int_equal(weft_task_resume(t), 0);
    return 0;
}

/* In one function: errno before and after a move to the other thread. */
static int reads_errno(void *arg)
{
    struct mover *m = arg;
    weft_task *self = weft_task_self();
    uint64_t rounds = test_rounds(10000);
    for (uint64_t i = 0; i < rounds && m->moved < 1000; i++) {
        pid_t before = gettid();
        errno = ENOTTY;
        assert_int_equal(weft_channel_send(m->ask[i % WAKERS], &self, WEFT_NEVER), 0);
        assert_int_equal(weft_suspend(weft_after(60 * WEFT_SEC)), 0);
        pid_t now = gettid();
        if (close(-1) == 0)
            return -EINVAL;
        if (*errno_now() != EBADF)
            return -EIO;
        m->moved += now != before;
    }
    return 0;
}

static void errno_is_the_threads_own(void **state)
{
    weft_runtime *rt;
    weft_task *waker[WAKERS], *t;
    struct mover m = {.moved = 0};
    int result = -1;
    (void)state;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    for (int i = 0; i < WAKERS; i++) {
        assert_int_equal(weft_channel_new(sizeof t, 0, NULL, &m.ask[i]), 0);
        assert_int_equal(weft_spawn(rt, resumes_here, m.ask[i],
                                    &(weft_spawn_options){.flags = WEFT_PINNED}, &waker[i]),
                         0);
    }
    assert_int_equal(weft_spawn(rt, reads_errno, &m, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, weft_after(60 * WEFT_SEC), &result), 0);
    assert_int_equal(result, 0);
    weft_task_unref(t);
    for (int i = 0; i < WAKERS; i++) {
        weft_channel_close(m.ask[i]);
        assert_int_equal(weft_task_join(waker[i], weft_after(60 * WEFT_SEC), NULL), 0);
        weft_task_unref(waker[i]);
        weft_channel_unref(m.ask[i]);
    }
    weft_runtime_free(rt);
    print_message("moved %d times\n", m.moved);
    assert_true(m.moved > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(runtimes_wait_for_each_other),
        cmocka_unit_test(what_can_only_wait_for_ever_is_refused),
        cmocka_unit_test(errno_is_the_threads_own),
    };
    test_limit(100, "runtimes_leave_nothing");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

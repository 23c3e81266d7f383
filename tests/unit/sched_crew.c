/* Who works for a runtime: lent threads that come and go while it ends, threads added
 * under load and let go when idle, hooks. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/event.h"
#include "weft/runtime.h"
#include "weft/task.h"

static weft__a32 ran;

static int count(void *arg)
{
    (void)arg;
    atom_add_ar(&ran, 1u);
    return 0;
}

static void *lend(void *arg)
{
    return (void *)(intptr_t)weft_runtime_attach(arg, WEFT_NEVER);
}

static weft_runtime *lent_only(unsigned places)
{
    weft_runtime *rt = NULL;
    weft_runtime_options o = {.no_workers = true, .lent_workers = places};
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    return rt;
}

static void lent_threads_do_the_work(void **state)
{
    (void)state;
    weft_runtime *rt = lent_only(2);
    atom_store_rlx(&ran, 0u);
    assert_int_equal(weft_runtime_workers(rt), 0);
    assert_int_equal(weft_spawn(rt, count, NULL, &(weft_spawn_options){.flags = WEFT_PINNED}, NULL),
                     -ENOTSUP);
    for (int i = 0; i < 100; i++)
        assert_int_equal(weft_spawn(rt, count, NULL, NULL, NULL), 0);
    assert_int_equal(atom_load_rlx(&ran), 0);
    do
        assert_int_equal(weft_runtime_attach(rt, weft_after(20 * WEFT_MSEC)), -ETIMEDOUT);
    while (atom_load_rlx(&ran) != 100);
    pthread_t t[2];
    void *answer;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, lend, rt), 0);
    while (weft_runtime_workers(rt) != 2)
        usleep(100);
    assert_int_equal(weft_runtime_attach(rt, WEFT_NEVER), -EAGAIN);
    assert_int_equal(weft_runtime_attach(NULL, WEFT_NEVER), -EINVAL);
    weft_runtime_free(rt);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &answer);
        assert_int_equal((intptr_t)answer, -ESHUTDOWN);
    }
}

/* A thread that attaches late must not leave both sides waiting for each other. */
struct race {
    weft_runtime *rt;
    weft__a32 go;
};

static void *attach_at_once(void *arg)
{
    struct race *r = arg;
    while (!atom_load_acq(&r->go))
        weft__relax();
    int answer = weft_runtime_attach(r->rt, WEFT_NEVER);
    assert_int_equal(answer, -ESHUTDOWN);
    return NULL;
}

static void late_attach_meets_shutdown(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct race r = {lent_only(2), {0}};
        pthread_t t[2];
        for (int k = 0; k < 2; k++)
            assert_int_equal(pthread_create(&t[k], NULL, attach_at_once, &r), 0);
        atom_store_rel(&r.go, 1u);
        if (i % 2)
            usleep(50);
        assert_int_equal(weft_runtime_shutdown(r.rt, weft_after(10 * WEFT_SEC)), 0);
        for (int k = 0; k < 2; k++) /* early or late, each has its answer */
            pthread_join(t[k], NULL);
        weft_runtime_free(r.rt);
    }
}

static int hold(void *arg)
{
    weft__a32 *open = arg;
    atom_add_ar(&ran, 1u);
    while (!atom_load_acq(open))
        usleep(200); /* blocks its worker, on purpose */
    return 0;
}

static void busy_workers_get_help(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_runtime_options o = {.workers = 1, .max_workers = 4, .idle_timeout = 20 * WEFT_MSEC};
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    weft__a32 open = {0};
    atom_store_rlx(&ran, 0u);
    assert_int_equal(weft_runtime_workers(rt), 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weft_spawn(rt, hold, &open, NULL, NULL), 0);
        while (atom_load_acq(&ran) != (uint32_t)i + 1)
            usleep(100); /* hangs if no thread is added: all there are block */
    }
    assert_int_equal(weft_runtime_workers(rt), 4);
    atom_store_rel(&open, 1u);
    while (weft_runtime_workers(rt) != 1)
        usleep(1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(weft_spawn(rt, count, NULL, NULL, NULL), 0);
    while (atom_load_acq(&ran) != 1004)
        usleep(100);
    weft_runtime_free(rt);
}

static weft__a32 started, idled, stopped;

static void on_start(void *arg, unsigned worker)
{
    (void)worker;
    atom_add_ar((weft__a32 *)arg, 1u);
    atom_add_ar(&started, 1u);
}

static void on_idle(void *arg, unsigned worker)
{
    (void)arg;
    (void)worker;
    atom_add_ar(&idled, 1u);
}

static void on_stop(void *arg, unsigned worker)
{
    (void)worker;
    atom_sub_ar((weft__a32 *)arg, 1u);
    atom_add_ar(&stopped, 1u);
}

static void hooks_frame_a_worker(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft__a32 inside = {0};
    weft_runtime_options o = {.workers = 3, .hooks = {on_start, on_idle, on_stop, &inside}};
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    while (atom_load_acq(&idled) < 3)
        usleep(100);
    assert_int_equal(atom_load_acq(&inside), 3);
    weft_runtime_free(rt);
    assert_int_equal(atom_load_acq(&inside), 0);
    assert_int_equal(atom_load_acq(&started), 3);
    assert_int_equal(atom_load_acq(&stopped), 3);
    weft_runtime_options none = {.no_workers = true};
    assert_int_equal(weft_runtime_new(&none, &rt), -EINVAL);
    weft_runtime_options many = {.workers = 1000, .lent_workers = 25};
    assert_int_equal(weft_runtime_new(&many, &rt), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lent_threads_do_the_work),
        cmocka_unit_test(late_attach_meets_shutdown),
        cmocka_unit_test(busy_workers_get_help),
        cmocka_unit_test(hooks_frame_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

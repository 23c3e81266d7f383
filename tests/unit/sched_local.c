/* SPDX-License-Identifier: MIT
 *
 * Task-local values: own value after migration, destructor exactly once at the end, when
 * cancelled, at shutdown; on plain threads. And what else goes by the handle or the id of a
 * task: late starts, suspend and resume, finding. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/local.h"
#include "weft/runtime.h"
#include "weft/task.h"

static weft__a32 dropped;

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static void drop_counted(void *value)
{
    int *p = value;
    assert_int_equal(*p, 1);
    *p = 2; /* a second time would be seen */
    atom_add_rlx(&dropped, 1u);
    free(p);
}

static const weft_local counted = {drop_counted};
static const weft_local plain = {NULL};

static int *one(void)
{
    int *p = malloc(sizeof *p);
    *p = 1;
    return p;
}

static int migrates(void *arg)
{
    assert_null(weft_local_get(&plain));
    assert_null(weft_local_get(&counted));
    assert_int_equal(weft_local_set(&plain, arg), 0);
    int *mine = one();
    assert_int_equal(weft_local_set(&counted, mine), 0);
    for (int i = 0; i < 20; i++) {
        if (i % 5 == 0)
            weft_sleep(WEFT_USEC * (1 + (weft_time)((uintptr_t)arg % 50)));
        else
            weft_yield();
        assert_ptr_equal(weft_local_get(&plain), arg);
        assert_ptr_equal(weft_local_get(&counted), mine);
    }
    return 0;
}

static void each_task_has_its_own(void **state)
{
    (void)state;
    uint32_t n = (uint32_t)test_rounds(1000);
    for (unsigned workers = 1; workers <= 4; workers++) {
        weft_runtime *rt = runtime(workers);
        atom_store_rlx(&dropped, 0u);
        for (uintptr_t i = 1; i <= n; i++)
            assert_int_equal(weft_spawn(rt, migrates, (void *)i, NULL, NULL), 0);
        assert_int_equal(weft_runtime_shutdown(rt, WEFT_NEVER), 0);
        assert_int_equal(atom_load_rlx(&dropped), n);
        weft_runtime_free(rt);
    }
}

static weft__a32 waiting;

static int waits(void *arg)
{
    (void)arg;
    weft_local_set(&counted, one());
    atom_add_rlx(&waiting, 1u);
    return weft_sleep_until(WEFT_NEVER);
}

static void dropped_once_when_cancelled_and_shut_down(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    weft_task *t;
    atom_store_rlx(&dropped, 0u);
    atom_store_rlx(&waiting, 0u);
    for (uint32_t i = 1; i <= 50; i++) {
        assert_int_equal(weft_spawn(rt, waits, NULL, NULL, &t), 0);
        while (atom_load_acq(&waiting) != i)
            test_sleep_ms(1);
        weft_task_cancel(t);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
        assert_int_equal(atom_load_rlx(&dropped), i); /* before the join */
        weft_task_unref(t);
    }
    for (int i = 0; i < 50; i++)
        assert_int_equal(weft_spawn(rt, waits, NULL, NULL, NULL), 0);
    while (atom_load_acq(&waiting) != 100)
        test_sleep_ms(1);
    weft_runtime_free(rt);
    assert_int_equal(atom_load_rlx(&dropped), 100);
}

static void drop_and_set_again(void *value);
static const weft_local stubborn = {drop_and_set_again};

static void drop_and_set_again(void *value)
{
    atom_add_rlx(&dropped, 1u);
    assert_null(weft_local_get(&stubborn));
    assert_int_equal(weft_local_set(&stubborn, value), 0);
    assert_int_equal(weft_sleep(WEFT_USEC), weft_task_self() ? 0 : 0);
}

static int replaces(void *arg)
{
    static weft_local keys[40];
    atom_store_rlx(&dropped, 0u);
    int *first = one();
    assert_int_equal(weft_local_set(&counted, first), 0);
    assert_int_equal(weft_local_set(&counted, first), 0);
    assert_int_equal(atom_load_rlx(&dropped), 0);
    assert_int_equal(weft_local_set(&counted, one()), 0);
    assert_int_equal(atom_load_rlx(&dropped), 1);
    assert_int_equal(weft_local_set(&counted, NULL), 0);
    assert_int_equal(weft_local_set(&counted, NULL), 0);
    assert_int_equal(atom_load_rlx(&dropped), 2);
    assert_null(weft_local_get(&counted));
    for (int i = 0; i < 40; i++)
        assert_int_equal(weft_local_set(&keys[i], &keys[i]), 0);
    for (int i = 0; i < 40; i++)
        assert_ptr_equal(weft_local_get(&keys[i]), &keys[i]);
    assert_int_equal(weft_local_set(NULL, NULL), -EINVAL);
    assert_null(weft_local_get(NULL));
    if (arg)
        weft_task_cancel(weft_task_self()); /* destructors may wait all the same */
    return weft_local_set(&stubborn, &keys[0]);
}

static void *replaces_on_a_thread(void *arg)
{
    weft_local_set(&counted, NULL); /* nothing yet: nothing made */
    replaces(NULL);
    return arg;
}

static void values_are_replaced_and_set_by_destructors(void **state)
{
    (void)state;
    pthread_t thread;
    int result = -1;
    assert_int_equal(weft_run(NULL, replaces, &result, &result), 0);
    assert_int_equal(result, 0);
    assert_in_range(atom_load_rlx(&dropped), 4, 200);
    assert_int_equal(pthread_create(&thread, NULL, replaces_on_a_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(atom_load_rlx(&dropped), 4, 200);
}

static int poll_with_values(weft_task *self, void *state)
{
    int *polls = state;
    if (++*polls == 1) {
        weft_local_set(&counted, one());
        weft_task_wake_at(self, weft_after(WEFT_MSEC));
        return WEFT_PENDING;
    }
    assert_non_null(weft_local_get(&counted));
    return 0;
}

static void poll_tasks_have_values(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    weft_task *t[20];
    atom_store_rlx(&dropped, 0u);
    for (int i = 0; i < 20; i++)
        assert_int_equal(weft_spawn_poll(rt, poll_with_values, NULL, sizeof(int), NULL, &t[i]), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(t[i]);
    }
    assert_int_equal(atom_load_rlx(&dropped), 20);
    weft_runtime_free(rt);
}

/* ---- Late starts ---- */

static weft_time started_at[64];

static int note_start(void *arg)
{
    started_at[(uintptr_t)arg] = weft_now();
    return weft_cancelled();
}

static int note_poll(weft_task *self, void *state)
{
    (void)self;
    return note_start(*(void **)state);
}

static void tasks_start_late(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 3; workers++) {
        weft_runtime *rt = runtime(workers);
        weft_task *t[64];
        weft_time at[64];
        for (uintptr_t i = 0; i < 64; i++) {
            at[i] = weft_after((weft_time)(i % 8) * 3 * WEFT_MSEC);
            weft_spawn_options o = {.at = at[i], .flags = i % 16 == 3 ? WEFT_PINNED : 0};
            void *arg = (void *)i;
            assert_int_equal(i % 2 ? weft_spawn_poll(rt, note_poll, &arg, sizeof arg, &o, &t[i])
                                   : weft_spawn(rt, note_start, arg, &o, &t[i]),
                             0);
        }
        for (int i = 0; i < 64; i++) {
            int result = -1;
            assert_int_equal(weft_task_join(t[i], WEFT_NEVER, &result), 0);
            assert_int_equal(result, 0);
            assert_true(started_at[i] >= at[i]);
            weft_task_unref(t[i]);
        }
        /* Cancelled before its time: it runs at once, and knows. */
        weft_spawn_options never = {.at = WEFT_NEVER};
        int result = 0;
        for (int i = 0; i < 20; i++) {
            assert_int_equal(weft_spawn(rt, note_start, NULL, &never, &t[0]), 0);
            if (i % 2)
                test_sleep_ms(1);
            assert_false(weft_task_done(t[0]));
            weft_task_cancel(t[0]);
            assert_int_equal(weft_task_join(t[0], WEFT_NEVER, &result), 0);
            assert_int_equal(result, 1);
            weft_task_unref(t[0]);
        }
        assert_int_equal(weft_spawn(rt, note_start, NULL, &never, NULL), 0);
        weft_runtime_free(rt);
    }
}

/* ---- Suspend, resume, find ---- */

struct token {
    weft_task *task;
    weft__a32 rounds, resumed;
};

static void *resumer(void *arg)
{
    struct token *k = arg;
    uint32_t seen = 0;
    while (seen < UINT32_MAX) {
        uint32_t now = atom_load_acq(&k->rounds);
        if (now == seen) {
            sched_yield();
            continue;
        }
        seen = now;
        if (seen == UINT32_MAX)
            break;
        for (uint32_t spin = 0; spin < seen % 64 * 8; spin++)
            weft__relax(); /* before, during and after the commit */
        atom_store_rel(&k->resumed, seen);
        assert_int_equal(weft_task_resume(k->task), 0);
    }
    return NULL;
}

static int suspender(void *arg)
{
    struct token *k = arg;
    uint32_t rounds = (uint32_t)test_rounds(30000);
    k->task = weft_task_self();
    for (uint32_t i = 1; i <= rounds; i++) {
        atom_store_rel(&k->rounds, i); /* hands the token over */
        /* After a time-out the resume is still to come, or is kept. */
        int r = i % 3 ? -ETIMEDOUT : weft_suspend(weft_after((weft_time)(i % 32) * 500));
        if (r == -ETIMEDOUT)
            r = weft_suspend(WEFT_NEVER);
        if (r)
            return r;
        assert_int_equal(atom_load_acq(&k->resumed), i);
    }
    atom_store_rel(&k->rounds, UINT32_MAX);
    assert_int_equal(weft_suspend(WEFT_TRY), -EAGAIN); /* no resume was left over */
    return 0;
}

static void a_resume_is_never_lost(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = runtime(workers);
        struct token k = {NULL, {0}, {0}};
        pthread_t thread;
        weft_task *t;
        int result = -1;
        assert_int_equal(pthread_create(&thread, NULL, resumer, &k), 0);
        assert_int_equal(weft_spawn(rt, suspender, &k, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
        assert_int_equal(result, 0);
        pthread_join(thread, NULL);
        assert_int_equal(weft_task_resume(t), -ESRCH);
        weft_task_unref(t);
        weft_runtime_free(rt);
    }
    assert_int_equal(weft_suspend(WEFT_TRY), -EPERM);
    assert_int_equal(weft_task_resume(NULL), -EINVAL);
}

static int publishes_its_id(void *arg)
{
    weft__a64 *id = arg;
    assert_int_equal(weft_suspend(weft_after(WEFT_MSEC)), -ETIMEDOUT);
    atom_store_rel(id, weft_task_id(weft_task_self()));
    return weft_suspend(WEFT_NEVER);
}

static int comes_and_goes(void *arg)
{
    (void)arg;
    weft_yield();
    return 0;
}

static void tasks_are_found_by_id(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    weft__a64 id = {0};
    assert_null(weft_task_find(rt, 0));
    assert_null(weft_task_find(NULL, 1));
    assert_int_equal(weft_spawn(rt, publishes_its_id, &id, NULL, NULL), 0); /* detached */
    while (!atom_load_acq(&id))
        test_sleep_ms(1);
    weft_task *found = weft_task_find(rt, atom_load_rlx(&id));
    assert_non_null(found);
    assert_int_equal(weft_task_id(found), atom_load_rlx(&id));
    assert_int_equal(weft_task_resume(found), 0);
    assert_int_equal(weft_task_join(found, WEFT_NEVER, NULL), 0);
    weft_task_unref(found);
    assert_null(weft_task_find(rt, atom_load_rlx(&id)));

    /* Against tasks that end and slots that are used again. */
    for (uint64_t i = 0; i < test_rounds(3000); i++) {
        weft_task *t;
        assert_int_equal(weft_spawn(rt, comes_and_goes, NULL, NULL, &t), 0);
        uint64_t wanted = weft_task_id(t);
        weft_task_unref(t);
        found = weft_task_find(rt, wanted);
        if (found) {
            assert_int_equal(weft_task_id(found), wanted);
            assert_int_equal(weft_task_join(found, WEFT_NEVER, NULL), 0);
            weft_task_unref(found);
        }
    }
    weft_runtime_free(rt);
}

int main(void)
{
    test_limit(55, "sched_local");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_task_has_its_own),
        cmocka_unit_test(dropped_once_when_cancelled_and_shut_down),
        cmocka_unit_test(values_are_replaced_and_set_by_destructors),
        cmocka_unit_test(poll_tasks_have_values),
        cmocka_unit_test(tasks_start_late),
        cmocka_unit_test(a_resume_is_never_lost),
        cmocka_unit_test(tasks_are_found_by_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * fork() at any moment of a busy runtime: the child gets -ENXIO from every call on what
 * it inherited, can free it, unref its handles, make a runtime of its own and exit, and
 * never waits for a lock whose holder stayed in the parent; the parent loses no wake. */
#include "unit_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

#define PAIRS 6

static weft__a32 stop, trips;
static weft_runtime *rt;
static weft_task *parked, *polls, *ended;
static weft_event never = WEFT_EVENT_INIT;

static int does_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static int waits(void *arg)
{
    return weft_event_wait(arg, WEFT_NEVER);
}

static int pending(weft_task *self, void *state)
{
    (void)self;
    (void)state;
    return weft_cancelled() ? 0 : WEFT_PENDING;
}

static int answers(void *arg)
{
    weft_channel **ch = arg;
    int x;
    while (weft_channel_recv(ch[0], &x, WEFT_NEVER) == 0 &&
           weft_channel_send(ch[1], &x, WEFT_NEVER) == 0)
        ;
    return 0;
}

static int asks(void *arg)
{
    weft_channel **ch = arg;
    for (int i = 0; !atom_load_rlx(&stop); i++) {
        int got = -1;
        weft_task *t;
        assert_int_equal(weft_channel_send(ch[0], &i, weft_after(20 * WEFT_SEC)), 0);
        assert_int_equal(weft_channel_recv(ch[1], &got, weft_after(20 * WEFT_SEC)), 0);
        assert_int_equal(got, i);
        assert_int_equal(weft_spawn(NULL, does_nothing, NULL, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), NULL), 0);
        weft_task_unref(t);
        if (i % 16 == 0)
            assert_int_equal(weft_sleep(20 * WEFT_USEC), 0);
        atom_add_rlx(&trips, 1u);
    }
    weft_channel_close(ch[0]);
    weft_channel_close(ch[1]);
    return 0;
}

#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            static const char text[] = "child: not so: " #what "\n";                               \
            if (write(2, text, sizeof text - 1) < 0)                                               \
                _exit(2);                                                                          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void own_runtime(void)
{
#ifndef __SANITIZE_THREAD__ /* it refuses threads after a fork */
    weft_runtime *own = NULL;
    MUST(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &own) == 0);
    for (int i = 0; i < 1000; i++)
        MUST(weft_spawn(own, does_nothing, NULL, NULL, NULL) == 0);
    weft_runtime_stats s;
    MUST(weft_runtime_shutdown(own, weft_after(20 * WEFT_SEC)) == 0);
    MUST(weft_runtime_get_stats(own, &s) == 0 && s.finished == 1000);
    weft_runtime_free(own);
#endif
}

static void child(uint64_t round)
{
    weft_runtime_stats s;
    alarm(30); /* a lock that nobody will release */
    MUST(weft_spawn(rt, does_nothing, NULL, NULL, NULL) == -ENXIO);
    MUST(weft_spawn_poll(rt, pending, NULL, 0, NULL, NULL) == -ENXIO);
    MUST(weft_runtime_shutdown(rt, WEFT_TRY) == -ENXIO);
    MUST(weft_runtime_shutdown(rt, WEFT_NEVER) == -ENXIO);
    MUST(weft_runtime_get_stats(rt, &s) == -ENXIO);
    MUST(weft_runtime_dump(rt, 2) == -ENXIO);
    MUST(weft_runtime_trim(rt, 0) == -ENXIO);
    MUST(weft_task_join(parked, WEFT_NEVER, NULL) == -ENXIO);
    MUST(weft_task_join(ended, WEFT_NEVER, NULL) == 0);
    MUST(weft_task_cancel(parked) == -ENXIO);
    MUST(weft_task_wake(polls) == -ENXIO);
    switch (round % 4) {
    case 0:
#ifndef __SANITIZE_ADDRESS__ /* its leak check would look for the parent's threads */
        exit(0);
#endif
    case 1:
        _exit(0);
    case 2:
        weft_task_unref(parked);
        weft_task_unref(polls);
        weft_task_unref(ended);
        weft_runtime_free(rt);
        break;
    default:
        weft_runtime_free(rt);
        weft_task_unref(parked);
        weft_task_unref(polls);
        weft_task_unref(ended);
        break;
    }
    own_runtime();
    _exit(0);
}

static void children_beside_work(void **state)
{
    (void)state;
    weft_channel *ch[PAIRS][2];
    weft_task *asker[PAIRS];
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    assert_int_equal(weft_spawn(rt, waits, &never, NULL, &parked), 0);
    assert_int_equal(weft_spawn_poll(rt, pending, NULL, 0, NULL, &polls), 0);
    assert_int_equal(weft_spawn(rt, does_nothing, NULL, NULL, &ended), 0);
    assert_int_equal(weft_task_join(ended, WEFT_NEVER, NULL), 0);
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(weft_channel_new(sizeof(int), (size_t)i % 3, NULL, &ch[i][0]), 0);
        assert_int_equal(weft_channel_new(sizeof(int), (size_t)i % 2, NULL, &ch[i][1]), 0);
        assert_int_equal(weft_spawn(rt, answers, ch[i], NULL, NULL), 0);
        assert_int_equal(weft_spawn(rt, asks, ch[i], NULL, &asker[i]), 0);
    }
    uint64_t children = test_rounds(100);
    for (uint64_t i = 0; i < children; i++) {
        int status;
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            child(i);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0)
            fail_msg("child %d ended with status %#x", (int)i, status);
    }
    atom_store_rlx(&stop, 1u);
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(weft_task_join(asker[i], weft_after(30 * WEFT_SEC), NULL), 0);
        weft_task_unref(asker[i]);
    }
    assert_true(atom_load_rlx(&trips) > 0);
    weft_task_unref(parked);
    weft_task_unref(polls);
    weft_task_unref(ended);
    weft_runtime_free(rt);
    for (int i = 0; i < PAIRS; i++) {
        weft_channel_unref(ch[i][0]);
        weft_channel_unref(ch[i][1]);
    }
}

/* A task may fork to exec: nothing of the runtime gets in the way. */
static int forks_and_execs(void *arg)
{
    int status = -1;
    (void)arg;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -errno;
}

static void a_task_forks_to_exec(void **state)
{
    (void)state;
    weft_runtime *own;
    weft_task *t;
    int result = -1;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &own), 0);
    assert_int_equal(weft_spawn(own, forks_and_execs, NULL, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, weft_after(30 * WEFT_SEC), &result), 0);
    assert_int_equal(result, 0);
    weft_task_unref(t);
    weft_runtime_free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_beside_work),
        cmocka_unit_test(a_task_forks_to_exec),
    };
    test_limit(100, "fork_beside_work");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

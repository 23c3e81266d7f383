/* SPDX-License-Identifier: MIT
 *
 * The kick that gets a worker out of the poller fails now and then (EINTR, EAGAIN): it is
 * repeated, so timers, tasks from outside and channel traffic go on without a pause. That
 * no kick is lost is a matter of the library; a kernel that says it has written and has
 * not is none, and nothing here polls to make up for it.
 */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"
#include "heartbeat.h"
#include "preload/preload.h"
#include "weft/weft.h"

#define LONGEST (500 * WEFT_MSEC) /* of time that counts, heartbeat.h */

static atomic_bool stop;

/* Puts a driver under the runtime, and a descriptor into it that stays silent. */
static int waits_for_a_byte(void *arg)
{
    char c;
    weft_fd *fd = arg;
    int64_t n = weft_fd_read(fd, &c, 1, WEFT_NEVER);
    assert_true(n == 1 || n == -ECANCELED);
    return 0;
}

static int echoes(void *arg)
{
    weft_channel **ch = arg;
    int item;
    while (weft_channel_recv(ch[0], &item, WEFT_NEVER) == 0)
        if (weft_channel_send(ch[1], &item, WEFT_NEVER) != 0)
            break;
    return 0;
}

static int ticks(void *arg)
{
    atomic_long *worst = arg;
    while (!atomic_load(&stop)) {
        struct beat mark;
        beat_mark(&mark);
        if (weft_sleep(5 * WEFT_MSEC) != 0)
            break;
        int64_t took = beat_since(&mark);
        if (took > atomic_load(worst))
            atomic_store(worst, took);
    }
    return 0;
}

static int64_t traffic(unsigned workers, int error, uint64_t every)
{
    weft_runtime *rt;
    weft_fd *pair[2];
    weft_channel *ch[2];
    weft_task *task[3];
    atomic_long worst = 0;
    atomic_store(&stop, false);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    assert_int_equal(weft_unix_pair(&pair[0], &pair[1]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_channel_new(sizeof(int), 0, NULL, &ch[i]), 0);
    assert_int_equal(weft_spawn(rt, waits_for_a_byte, pair[0], NULL, &task[0]), 0);
    assert_int_equal(weft_spawn(rt, echoes, ch, NULL, &task[1]), 0);
    assert_int_equal(weft_spawn(rt, ticks, &worst, NULL, &task[2]), 0);
    test_sleep_ms(20);
    assert_int_equal(
        preload_set(PRELOAD_EVENTFD_WRITE,
                    &(struct preload_rule){.action = PRELOAD_FAIL, .error = error, .every = every}),
        0);
    uint64_t rounds = test_rounds(3000);
    for (uint64_t i = 0; i < rounds; i++) {
        struct beat mark;
        int item = (int)i, got = -1;
        if (i % 8 == 0)
            test_sleep_ms(1); /* it sleeps in the poller again */
        beat_mark(&mark);
        assert_int_equal(weft_channel_send(ch[0], &item, weft_after(60 * WEFT_SEC)), 0);
        assert_int_equal(weft_channel_recv(ch[1], &got, weft_after(60 * WEFT_SEC)), 0);
        assert_int_equal(got, item);
        if (beat_since(&mark) > atomic_load(&worst))
            atomic_store(&worst, beat_since(&mark));
    }
    uint64_t failed = preload_hits(PRELOAD_EVENTFD_WRITE);
    preload_reset();
    atomic_store(&stop, true);
    weft_channel_close(ch[0]);
    weft_task_cancel(task[0]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_task_join(task[i], weft_after(60 * WEFT_SEC), NULL), 0);
        weft_task_unref(task[i]);
    }
    weft_runtime_free(rt);
    for (int i = 0; i < 2; i++) {
        weft_channel_unref(ch[i]);
        weft_fd_unref(pair[i]);
    }
    print_message("%u workers, %llu kicks failed: at most %.1f ms\n", workers,
                  (unsigned long long)failed, (double)atomic_load(&worst) / 1e6);
    assert_true(atomic_load(&worst) < LONGEST);
    return (int64_t)failed;
}

static void kicks_that_fail_are_repeated(void **state)
{
    (void)state;
    int64_t failed = 0;
    if (!preload_sees(PRELOAD_EVENTFD_WRITE))
        skip();
    beat_start();
    for (unsigned workers = 1; workers <= 2; workers++) {
        failed += traffic(workers, EINTR, 2);
        failed += traffic(workers, EAGAIN, 3);
    }
    beat_stop();
    assert_true(failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kicks_that_fail_are_repeated),
    };
    test_limit(100, "wake_kicks");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

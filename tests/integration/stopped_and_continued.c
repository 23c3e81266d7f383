/* SPDX-License-Identifier: MIT
 *
 * A process that is stopped for a while (SIGSTOP, a debugger, a suspended machine) finds
 * its timers due when it goes on: each comes once, soon, in order of time and never early,
 * and a ticker that skips what it missed makes no burst.
 */
#include "unit_test.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "weft/weft.h"

enum { SLEEPERS = 40 };

#define APART (30 * WEFT_MSEC)

/* In memory that both processes share. */
static struct shared {
    atomic_int ready, count[SLEEPERS];
    weft_time due[SLEEPERS], woke[SLEEPERS];
    atomic_int ticks, ticks_after;
    _Atomic weft_time continued;
} * shared;

static int sleeps(void *arg)
{
    ptrdiff_t i = (_Atomic int *)arg - shared->count;
    atomic_fetch_add(&shared->ready, 1);
    if (weft_sleep_until(shared->due[i]) != 0)
        return -1;
    shared->woke[i] = weft_now();
    atomic_fetch_add(&shared->count[i], 1);
    return 0;
}

/* Skips: after a gap the next tick is a period from now. */
static int ticks(void *arg)
{
    (void)arg;
    weft_time next = weft_now();
    while (weft_sleep_until(next += 20 * WEFT_MSEC) == 0) {
        atomic_fetch_add(&shared->ticks, 1);
        weft_time continued = atomic_load(&shared->continued);
        if (continued && weft_now() < continued + 100 * WEFT_MSEC)
            atomic_fetch_add(&shared->ticks_after, 1);
        if (next < weft_now())
            next = weft_now();
    }
    return 0;
}

static int child(void)
{
    weft_runtime *rt;
    weft_task *t[SLEEPERS];
    if (weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt) != 0)
        return 1;
    weft_time start = weft_now();
    if (weft_spawn(rt, ticks, NULL, NULL, NULL) != 0)
        return 1;
    for (int i = 0; i < SLEEPERS; i++) {
        shared->due[i] = start + 200 * WEFT_MSEC + i * APART;
        if (weft_spawn(rt, sleeps, &shared->count[i], NULL, &t[i]) != 0)
            return 1;
    }
    for (int i = 0; i < SLEEPERS; i++) {
        if (weft_task_join(t[i], WEFT_NEVER, NULL) != 0)
            return 1;
        weft_task_unref(t[i]);
    }
    weft_runtime_free(rt);
    return 0;
}

static void each_timer_comes_once(void **state)
{
    int status = -1;
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0)
        _exit(child());
    assert_true(pid > 0);
    for (int i = 0; i < 20000 && atomic_load(&shared->ready) < SLEEPERS; i++)
        test_sleep_ms(1);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_true(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    test_sleep_ms(1000);
    weft_time continued = weft_now();
    atomic_store(&shared->continued, continued);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    int missed = 0;
    weft_time latest = 0;
    for (int i = 0; i < SLEEPERS; i++) {
        assert_int_equal(atomic_load(&shared->count[i]), 1);
        assert_true(shared->woke[i] >= shared->due[i]);
        if (shared->due[i] < continued) {
            missed++;
            if (shared->woke[i] - continued > latest)
                latest = shared->woke[i] - continued;
        }
    }
    print_message("%d timers were due, the last came after %.1f ms; %d ticks in the first 100 ms\n",
                  missed, (double)latest / 1e6, atomic_load(&shared->ticks_after));
    assert_true(missed >= SLEEPERS / 2);
    assert_true(latest < 5 * WEFT_SEC); /* some microseconds, but the machine may be busy */
    assert_true(atomic_load(&shared->ticks_after) <= 8); /* of 5; a burst would be 50 */
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_timer_comes_once),
    };
    test_limit(60, "stopped_and_continued");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

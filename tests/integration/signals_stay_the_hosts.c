/* SPDX-License-Identifier: MIT
 *
 * Signals are the host's: the runtime's threads block all that can be blocked (but the
 * two that report a stack overflow), dispositions are as before when it ends, with
 * keep_signals also meanwhile; a signal to the process reaches the host's thread; a storm
 * of them breaks no wait of that thread; a closed peer raises no SIGPIPE. */
#include "unit_test.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "resources.h"
#include "weft/weft.h"

#define NAME "sigtest"

static weft__a32 handled, elsewhere;
static long host;

static void on_signal(int number)
{
    (void)number;
    atom_add_rlx(syscall(SYS_gettid) == host ? &handled : &elsewhere, 1u);
}

static void handle(int number)
{
    struct sigaction a = {.sa_handler = on_signal}; /* no SA_RESTART: calls get EINTR */
    assert_int_equal(sigaction(number, &a, NULL), 0);
}

static unsigned threads_that_block(uint64_t wanted)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[320], text[4096];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!f)
            continue;
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        if (strncmp(text, "Name:\t" NAME "/", strlen("Name:\t" NAME "/")) != 0)
            continue;
        const char *mask = strstr(text, "\nSigBlk:");
        assert_non_null(mask);
        uint64_t blocked = strtoull(mask + strlen("\nSigBlk:"), NULL, 16);
        if ((blocked & wanted) != wanted)
            fail_msg("%s blocks %#llx", e->d_name, (unsigned long long)blocked);
        n++;
    }
    closedir(dir);
    return n;
}

static void threads_block_everything(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        weft_runtime *rt;
        weft_runtime_options o = {.name = NAME, .workers = 3, .keep_signals = keep};
        struct resources before, during, after;
        resources_take(&before);
        assert_int_equal(weft_runtime_new(&o, &rt), 0);
        uint64_t all = 0;
        for (int i = 1; i <= 31; i++)
            if (i != SIGKILL && i != SIGSTOP && (keep || (i != SIGSEGV && i != SIGBUS)))
                all |= 1ull << (i - 1);
        for (int i = 0; i < 100 && threads_that_block(all) < 3; i++)
            test_sleep_ms(10);
        assert_int_equal(threads_that_block(all), 3);
        resources_take(&during);
        for (int i = 1; i < RESOURCES_SIGNALS; i++)
            if (keep || (i != SIGSEGV && i != SIGBUS))
                assert_ptr_equal(before.handlers[i], during.handlers[i]);
        weft_runtime_free(rt);
        resources_take(&after);
        for (int i = 1; i < RESOURCES_SIGNALS; i++)
            assert_ptr_equal(before.handlers[i], after.handlers[i]);
        assert_memory_equal(&before.mask, &after.mask, sizeof before.mask);
    }
}

static int ticks(void *arg)
{
    (void)arg;
    while (weft_sleep(200 * WEFT_USEC) == 0)
        ;
    return 0;
}

static void signals_reach_the_host(void **state)
{
    (void)state;
    weft_runtime *rt;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.name = NAME, .workers = 2}, &rt), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(weft_spawn(rt, ticks, NULL, NULL, NULL), 0);
    handle(SIGUSR1);
    for (uint32_t i = 0; i < 1000; i++) {
        kill(getpid(), SIGUSR1);
        while (atom_load_rlx(&handled) + atom_load_rlx(&elsewhere) <= i)
            ;
    }
    signal(SIGUSR1, SIG_DFL);
    weft_runtime_free(rt);
    assert_int_equal(atom_load_rlx(&elsewhere), 0);
}

static int answers(void *arg)
{
    weft_channel **ch = arg;
    int x;
    while (weft_channel_recv(ch[0], &x, WEFT_NEVER) == 0) {
        weft_sleep(300 * WEFT_USEC);
        if (weft_channel_send(ch[1], &x, WEFT_NEVER))
            break;
    }
    return 0;
}

static void a_storm_breaks_no_wait(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_channel *ch[2];
    weft_event never = WEFT_EVENT_INIT;
    weft_fd *a, *b;
    struct itimerval storm = {{0, 500}, {0, 500}}, calm = {{0, 0}, {0, 0}};
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.name = NAME, .workers = 2}, &rt), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_channel_new(sizeof(int), 0, NULL, &ch[i]), 0);
    assert_int_equal(weft_unix_pair(&a, &b), 0);
    assert_int_equal(weft_spawn(rt, answers, ch, NULL, NULL), 0);
    handle(SIGALRM);
    uint32_t before = atom_load_rlx(&handled);
    assert_int_equal(setitimer(ITIMER_REAL, &storm, NULL), 0);
    for (int i = 0; i < 100; i++) {
        int x = i;
        char c = 'x';
        weft_time start = weft_now();
        assert_int_equal(weft_channel_send(ch[0], &x, weft_after(20 * WEFT_SEC)), 0);
        assert_int_equal(weft_channel_recv(ch[1], &x, weft_after(20 * WEFT_SEC)), 0);
        assert_int_equal(x, i);
        if (i % 10 == 0) {
            start = weft_now();
            assert_int_equal(weft_event_wait(&never, start + 10 * WEFT_MSEC), -ETIMEDOUT);
            assert_true(weft_now() - start >= 10 * WEFT_MSEC);
            start = weft_now();
            assert_int_equal(weft_fd_read(a, &c, 1, start + 10 * WEFT_MSEC), -ETIMEDOUT);
            assert_true(weft_now() - start >= 10 * WEFT_MSEC);
        }
    }
    assert_int_equal(setitimer(ITIMER_REAL, &calm, NULL), 0);
    signal(SIGALRM, SIG_DFL);
    assert_true(atom_load_rlx(&handled) > before + 10);
    assert_int_equal(atom_load_rlx(&elsewhere), 0);
    weft_runtime_free(rt);
    for (int i = 0; i < 2; i++)
        weft_channel_unref(ch[i]);
    weft_fd_unref(a);
    weft_fd_unref(b);
}

static int writes_to_nobody(void *arg)
{
    ssize_t n = 0;
    for (int i = 0; i < 100 && n >= 0; i++)
        n = weft_fd_write(arg, "x", 1, weft_after(WEFT_SEC));
    return (int)n;
}

static void no_sigpipe(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_task *t;
    int result = 0;
    handle(SIGPIPE);
    uint32_t before = atom_load_rlx(&handled) + atom_load_rlx(&elsewhere);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.name = NAME, .workers = 1}, &rt), 0);
    for (int in_task = 0; in_task < 2; in_task++) {
        weft_fd *a, *b;
        assert_int_equal(weft_unix_pair(&a, &b), 0);
        weft_fd_unref(b);
        if (in_task) {
            assert_int_equal(weft_spawn(rt, writes_to_nobody, a, NULL, &t), 0);
            assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), &result), 0);
            weft_task_unref(t);
        } else {
            result = writes_to_nobody(a);
        }
        assert_int_equal(result, -EPIPE);
        weft_fd_unref(a);
    }
    weft_runtime_free(rt);
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(atom_load_rlx(&handled) + atom_load_rlx(&elsewhere), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_block_everything),
        cmocka_unit_test(signals_reach_the_host),
        cmocka_unit_test(a_storm_breaks_no_wait),
        cmocka_unit_test(no_sigpipe),
    };
    host = syscall(SYS_gettid);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

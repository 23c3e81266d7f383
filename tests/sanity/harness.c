/* SPDX-License-Identifier: MIT
 *
 * The harness complains when it should: a leak of each kind is found and named, a hang
 * is ended, a child that fails or doesn't end is told apart from one that is done.
 */
#include "unit_test.h"

#include "harness.h"
#include "resources.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char why[1024];

static bool same(const struct resources *before)
{
    struct resources after;
    struct resources_slack slack = {.maps = 64, .rss = 128u << 20, .patience_ms = 30};
    return resources_same(before, &after, &slack, why, sizeof why);
}

static void nothing_left_behind_is_no_leak(void **state)
{
    (void)state;
    struct resources before;
    resources_take(&before);
    assert_true(before.threads >= 1); /* the thread sanitizer has one of its own */
    assert_true(before.fds >= 3);
    assert_true(before.maps > 5);
    assert_true(before.rss > 100000);
    assert_true(same(&before));
    assert_string_equal(why, "");
}

static void a_descriptor_is_missed_and_named(void **state)
{
    (void)state;
    struct resources before;
    resources_take(&before);
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_false(same(&before));
    assert_non_null(strstr(why, "/dev/zero"));
    resources_take(&before);
    close(fd);
    assert_false(same(&before));
    assert_non_null(strstr(why, "is closed"));
}

static void *waits(void *argument)
{
    char byte;
    ssize_t n = read(*(int *)argument, &byte, 1);
    return n < 0 ? argument : NULL;
}

static void a_thread_is_missed(void **state)
{
    (void)state;
    struct resources before;
    int fds[2];
    pthread_t t;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    resources_take(&before);
    assert_int_equal(pthread_create(&t, NULL, waits, &fds[0]), 0);
    assert_false(same(&before));
    assert_non_null(strstr(why, "threads"));
    close(fds[1]);
    pthread_join(t, NULL);
    close(fds[0]);
}

static void memory_and_mappings_are_missed(void **state)
{
    (void)state;
    struct resources before;
    const size_t size = 160u << 20, page = 4096;
    resources_take(&before);
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memset(p, 1, size);
    assert_false(same(&before));
    assert_non_null(strstr(why, "resident"));
    for (size_t i = 0; i < 300; i += 2) /* each hole cuts a mapping in two */
        munmap(p + i * page, page);
    assert_false(same(&before));
    assert_non_null(strstr(why, "mappings"));
    munmap(p, size);
    assert_true(same(&before));
}

static void a_signal_mask_and_a_handler_are_missed(void **state)
{
    (void)state;
    struct resources before;
    sigset_t set;
    resources_take(&before);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    assert_false(same(&before));
    assert_non_null(strstr(why, "blocked"));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    void (*old)(int) = signal(SIGPIPE, SIG_IGN);
    assert_false(same(&before));
    assert_non_null(strstr(why, "handler"));
    signal(SIGPIPE, old);
    assert_true(same(&before));
}

static void children_are_run_and_judged(void **state)
{
    (void)state;
    char text[64];
    char *ok[] = {"sh", "-c", "echo out; echo err >&2", NULL};
    assert_int_equal(test_run(ok, 10000, text, sizeof text), 0);
    assert_string_equal(text, "out\nerr\n");
    char *fails[] = {"sh", "-c", "exit 3", NULL};
    assert_int_equal(test_run(fails, 10000, text, sizeof text), 3);
    char *dies[] = {"sh", "-c", "kill -9 $$", NULL};
    assert_int_equal(test_run(dies, 10000, text, sizeof text), 128 + SIGKILL);
    char *missing[] = {"no-such-program-here", NULL};
    assert_int_equal(test_run(missing, 10000, text, sizeof text), -ENOENT);
    char *hangs[] = {"sleep", "1000", NULL};
    assert_int_equal(test_run(hangs, 50, text, sizeof text), -ETIMEDOUT);
    char *talks[] = {"sh", "-c", "yes | head -c 300000", NULL};
    assert_int_equal(test_run(talks, 10000, text, sizeof text), 0);
    assert_int_equal(strlen(text), sizeof text - 1);
    assert_true(test_has_program("sh"));
    assert_false(test_has_program("no-such-program-here"));
    assert_true(test_free_port() > 0);
}

static void a_hang_is_ended(void **state)
{
    (void)state;
    int fds[2];
    char text[4096] = "";
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        test_limit(1, "a test that hangs");
        for (;;)
            pause();
    }
    close(fds[1]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "a test that hangs still runs"));
    close(fds[0]);
}

static void rounds_follow_the_environment(void **state)
{
    (void)state;
    unsetenv("WEFT_ROUNDS");
    assert_int_equal(test_rounds(1000), test_sanitized() ? 100 : 1000);
    assert_int_equal(test_rounds(1), 1);
    setenv("WEFT_ROUNDS", "0.5", 1);
    assert_int_equal(test_rounds(1000), test_sanitized() ? 50 : 500);
    unsetenv("WEFT_ROUNDS");
    setenv("WEFT_SEED", "0x2a", 1);
    assert_int_equal(test_seed(), 42);
    assert_int_equal(test_seed(), 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_left_behind_is_no_leak),
        cmocka_unit_test(a_descriptor_is_missed_and_named),
        cmocka_unit_test(a_thread_is_missed),
        cmocka_unit_test(memory_and_mappings_are_missed),
        cmocka_unit_test(a_signal_mask_and_a_handler_are_missed),
        cmocka_unit_test(children_are_run_and_judged),
        cmocka_unit_test(a_hang_is_ended),
        cmocka_unit_test(rounds_follow_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

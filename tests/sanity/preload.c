/* SPDX-License-Identifier: MIT
 *
 * The preload library does what its header says: counts, fails, delays, shortens and
 * drops the calls it was told to, and no others; from code and from the environment.
 */
#include "unit_test.h"

#include "harness.h"
#include "preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static int reset(void **state)
{
    (void)state;
    preload_reset();
    return 0;
}

static void the_nth_call_fails_and_only_that(void **state)
{
    (void)state;
    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e;
    struct preload_rule rule = {
        .action = PRELOAD_FAIL, .error = EINTR, .first = 3, .every = 2, .times = 2};
    assert_int_equal(preload_set(PRELOAD_EPOLL_WAIT, &rule), 0);
    for (int i = 1; i <= 9; i++) {
        errno = 0;
        int r = epoll_wait(ep, &e, 1, 0);
        bool fails = i == 3 || i == 5; /* 7 and 9 are past `times` */
        assert_int_equal(r, fails ? -1 : 0);
        assert_int_equal(errno, fails ? EINTR : 0);
    }
    assert_int_equal(preload_calls(PRELOAD_EPOLL_WAIT), 9);
    assert_int_equal(preload_hits(PRELOAD_EPOLL_WAIT), 2);
    assert_int_equal(preload_calls(PRELOAD_EPOLL_CTL), 0);
    close(ep);
}

static void a_write_to_an_eventfd_can_be_lost(void **state)
{
    (void)state;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    uint64_t one = 1, got = 0;
    struct preload_rule rule = {.action = PRELOAD_DROP, .first = 2};
    assert_int_equal(preload_set(PRELOAD_EVENTFD_WRITE, &rule), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(write(fd, &one, sizeof one), sizeof one);
    assert_int_equal(read(fd, &got, sizeof got), sizeof got);
    assert_int_equal(got, 2);
    close(fd);

    /* The number is reused by something that isn't an eventfd. */
    int other = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_int_equal(other, fd);
    assert_int_equal(write(other, &one, sizeof one), sizeof one);
    assert_int_equal(preload_calls(PRELOAD_EVENTFD_WRITE), 3);
    close(other);
}

static void transfers_come_short(void **state)
{
    (void)state;
    int s[2];
    char got[8] = "";
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    struct preload_rule rule = {.action = PRELOAD_SHORT, .first = 1, .every = 1};
    assert_int_equal(preload_set(PRELOAD_WRITE, &rule), 0);
    assert_int_equal(preload_set(PRELOAD_READ, &rule), 0);
    struct iovec parts[2] = {{.iov_base = got, .iov_len = 0},
                             {.iov_base = (char[]){"cd"}, .iov_len = 2}};
    assert_int_equal(send(s[0], "ab", 2, 0), 1);
    assert_int_equal(writev(s[0], parts, 2), 1);
    assert_int_equal(preload_set(PRELOAD_READ, NULL), 0);
    assert_int_equal(read(s[1], got, sizeof got), 2);
    assert_memory_equal(got, "ac", 2);
    close(s[0]);
    close(s[1]);
}

static void *nothing(void *argument)
{
    return argument;
}

static void threads_fail(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_PTHREAD_CREATE)) {
        assert_true(test_sanitized());
        skip();
    }
    pthread_t t;
    struct preload_rule rule = {.action = PRELOAD_FAIL, .error = EAGAIN};
    assert_int_equal(preload_set(PRELOAD_PTHREAD_CREATE, &rule), 0);
    assert_int_equal(pthread_create(&t, NULL, nothing, NULL), EAGAIN);
    assert_int_equal(pthread_create(&t, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
}

static void mappings_fail(void **state)
{
    (void)state;
    struct preload_rule rule = {.action = PRELOAD_FAIL, .error = ENOMEM};
    assert_int_equal(preload_set(PRELOAD_MMAP, &rule), 0);
    void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p == MAP_FAILED);
    assert_int_equal(errno, ENOMEM);
    p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(preload_set(PRELOAD_MPROTECT, &rule), 0);
    assert_int_equal(mprotect(p, 4096, PROT_NONE), -1);
    assert_int_equal(munmap(p, 4096), 0);
}

static void *allocates(void *argument)
{
    void *volatile p = malloc(10);
    *(bool *)argument = p != NULL;
    free(p);
    return NULL;
}

static void allocations_fail_on_the_thread_that_asked(void **state)
{
    (void)state;
    assert_int_equal(preload_sees(PRELOAD_MALLOC), !test_sanitized());
    if (!preload_sees(PRELOAD_MALLOC))
        skip();
    pthread_t t;
    bool other = false;
    struct preload_rule rule = {
        .action = PRELOAD_FAIL, .error = ENOMEM, .every = 1, .this_thread = true};
    assert_int_equal(pthread_create(&t, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(preload_set(PRELOAD_MALLOC, &rule), 0);
    void *volatile a = malloc(10), *volatile b = calloc(2, 5), *volatile c = aligned_alloc(64, 64);
    void *d = &d;
    int e = posix_memalign(&d, 64, 64);
    int created = pthread_create(&t, NULL, allocates, &other); /* its stack is in a cache */
    preload_set(PRELOAD_MALLOC, NULL);
    assert_null(a);
    assert_null(b);
    assert_null(c);
    assert_int_equal(e, ENOMEM);
    assert_ptr_equal(d, &d);
    assert_int_equal(created, 0);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(other);
    void *volatile f = malloc(10);
    assert_non_null(f);
    free(f);
}

static void a_delay_is_at_least_that_long(void **state)
{
    (void)state;
    struct preload_rule rule = {.action = PRELOAD_DELAY, .ns = 20000000};
    assert_int_equal(preload_set(PRELOAD_SOCKET, &rule), 0);
    int64_t begin = test_now();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_true(test_now() - begin >= 20000000);
    close(fd);
}

static void rules_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct preload_rule rule = {.action = PRELOAD_DROP};
    assert_int_equal(preload_set(PRELOAD_MMAP, &rule), -EINVAL);
    rule = (struct preload_rule){.action = PRELOAD_FAIL};
    assert_int_equal(preload_set(PRELOAD_MMAP, &rule), -EINVAL);
    assert_int_equal(preload_set(PRELOAD_CALLS, NULL), -EINVAL);
}

/* Runs the shell command under LD_PRELOAD with these rules; its output. */
static int shell_under(const char *rules, const char *command, char *ret_output, size_t size)
{
    char preload[4200], variable[512];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", PRELOAD_LIB);
    snprintf(variable, sizeof variable, "WEFT_PRELOAD=%s", rules);
    char *argv[] = {"env", preload, variable, "sh", "-c", (char *)(uintptr_t)command, NULL};
    return test_run(argv, 10000, ret_output, size);
}

static void rules_come_from_the_environment(void **state)
{
    (void)state;
    char text[512];
    /* dash writes with write(2), one call a builtin echo. */
    assert_int_equal(shell_under("write:fail=EPIPE:first=2:times=1", "echo a; echo b 2>&-; echo c",
                                 text, sizeof text),
                     0);
    assert_non_null(strstr(text, "a\n"));
    assert_null(strstr(text, "b\n"));
    assert_non_null(strstr(text, "c\n"));
    assert_int_equal(shell_under("write:fial=EPIPE", "echo a", text, sizeof text), 125);
    assert_int_equal(shell_under("rite:fail=EPIPE", "echo a", text, sizeof text), 125);
}

int main(void)
{
    test_limit(60, "sanity.preload");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_nth_call_fails_and_only_that, reset),
        cmocka_unit_test_setup(a_write_to_an_eventfd_can_be_lost, reset),
        cmocka_unit_test_setup(transfers_come_short, reset),
        cmocka_unit_test_setup(threads_fail, reset),
        cmocka_unit_test_setup(mappings_fail, reset),
        cmocka_unit_test_setup(allocations_fail_on_the_thread_that_asked, reset),
        cmocka_unit_test_setup(a_delay_is_at_least_that_long, reset),
        cmocka_unit_test_setup(rules_that_make_no_sense_are_refused, reset),
        cmocka_unit_test_setup(rules_come_from_the_environment, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

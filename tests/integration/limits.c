/* SPDX-License-Identifier: MIT
 *
 * When descriptors run out, and when signals rain: accept at the limit neither spins nor
 * gives up, nobody else is disturbed, EINTR ends no wait. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "weft/net.h"
#include "weft/runtime.h"
#include "weft/task.h"

enum { LIMIT = 64, CLIENTS = 100 };

static weft_time cpu_time(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (weft_time)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * WEFT_SEC +
           (weft_time)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * WEFT_USEC;
}

typedef struct door {
    weft_fd *listener;
    weft_fd *guests[CLIENTS];
    weft__a32 accepted, refused;
} door;

/* The naive loop: whatever the error, try again. */
static int accept_loop(void *arg)
{
    door *d = arg;
    for (;;) {
        weft_fd *fd;
        int r = weft_tcp_accept(d->listener, WEFT_NEVER, &fd);
        if (r == -EPIPE)
            return 0;
        if (r == 0)
            d->guests[atom_add_ar(&d->accepted, 1u)] = fd;
        else if (r == -EMFILE)
            atom_add_ar(&d->refused, 1u);
        else
            return r;
    }
}

/* In a child of its own, whose limit does not bind the parent: CLIENTS connections. */
static pid_t start_clients(const char *address)
{
    pid_t child = fork();
    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    weft_fd *fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        if (weft_tcp_connect(address, weft_after(10 * WEFT_SEC), &fds[i]))
            _exit(1);
    }
    for (;;)
        pause();
}

static void accept_at_the_limit_waits_and_goes_on(void **state)
{
    (void)state;
    static door d;
    char address[WEFT_ADDRESS_SIZE];
    memset(&d, 0, sizeof d);
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, &d.listener), 0);
    assert_true(weft_net_local(d.listener, address, sizeof address) > 0);
    pid_t clients = start_clients(address);
    assert_true(clients > 0);
    struct rlimit before, low;
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = LIMIT;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);

    weft_runtime *rt = NULL;
    weft_task *t = NULL;
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    assert_int_equal(weft_spawn(rt, accept_loop, &d, NULL, &t), 0);
    weft_time limit = weft_after(20 * WEFT_SEC);
    while (!atom_load_acq(&d.refused) && weft_now() < limit)
        weft_sleep(WEFT_MSEC);
    uint32_t full = atom_load_acq(&d.accepted);
    assert_true(atom_load_acq(&d.refused) > 0); /* the caller was told */
    assert_true(full > 0 && full < LIMIT);

    weft_time cpu = cpu_time();
    uint32_t refused = atom_load_acq(&d.refused);
    weft_sleep(WEFT_SEC);
    assert_true(cpu_time() - cpu < 300 * WEFT_MSEC);
    assert_true(atom_load_acq(&d.refused) - refused < 100); /* paced: about ten are due */
    assert_int_equal(atom_load_acq(&d.accepted), full);

    for (int i = 0; i < 20; i++) /* room again */
        weft_fd_close(d.guests[i]);
    weft_time freed = weft_now();
    while (atom_load_acq(&d.accepted) < full + 20 && weft_now() < freed + 10 * WEFT_SEC)
        weft_sleep(WEFT_MSEC);
    assert_int_equal(atom_load_acq(&d.accepted), full + 20);
    print_message("accepting again %.1f ms after descriptors were freed\n",
                  (double)(weft_now() - freed) / 1e6);

    weft_fd_close(d.listener);
    int result = -1;
    assert_int_equal(weft_task_join(t, weft_after(10 * WEFT_SEC), &result), 0);
    assert_int_equal(result, 0);
    weft_task_unref(t);
    weft_runtime_free(rt);
    setrlimit(RLIMIT_NOFILE, &before);
    for (uint32_t i = 0; i < full + 20; i++)
        weft_fd_unref(d.guests[i]);
    weft_fd_unref(d.listener);
    kill(clients, SIGKILL);
    waitpid(clients, NULL, 0);
}

/* No descriptor at all for the driver: the wait says so, and works later. */
static int wait_without_driver(void *arg)
{
    char byte;
    return (int)weft_fd_read(arg, &byte, 1, weft_after(10 * WEFT_SEC));
}

static void a_wait_without_means_says_so(void **state)
{
    (void)state;
    weft_fd *a, *b;
    weft_runtime *rt = NULL;
    weft_task *t = NULL;
    int result = 0;
    assert_int_equal(weft_unix_pair(&a, &b), 0);
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    struct rlimit before, low;
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(weft_spawn(rt, wait_without_driver, a, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, weft_after(10 * WEFT_SEC), &result), 0);
    assert_int_equal(result, -EMFILE);
    weft_task_unref(t);
    char byte;
    assert_int_equal(weft_fd_read(a, &byte, 1, weft_after(WEFT_SEC)), -EMFILE); /* a thread */
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(weft_spawn(rt, wait_without_driver, a, NULL, &t), 0);
    assert_int_equal(weft_fd_write(b, "x", 1, WEFT_NEVER), 1);
    assert_int_equal(weft_task_join(t, weft_after(10 * WEFT_SEC), &result), 0);
    assert_int_equal(result, 1);
    weft_task_unref(t);
    weft_runtime_free(rt);
    weft_fd_unref(a);
    weft_fd_unref(b);
}

/* ---- Signals ---- */

static weft__a32 rained;

static void on_signal(int number)
{
    (void)number;
    atom_add_rlx(&rained, 1u);
}

enum { ROUNDS = 500 };

static int ping(void *arg)
{
    char byte = 'p';
    for (int i = 0; i < ROUNDS; i++) {
        int r = weft_fd_write_full(arg, &byte, 1, WEFT_NEVER, NULL);
        if (r == 0)
            r = weft_fd_read_full(arg, &byte, 1, WEFT_NEVER, NULL);
        if (r)
            return r;
        weft_sleep(100 * WEFT_USEC);
    }
    return 0;
}

static int pong(void *arg)
{
    char byte;
    for (int i = 0; i < ROUNDS; i++) {
        int r = weft_fd_read_full(arg, &byte, 1, WEFT_NEVER, NULL);
        if (r == 0)
            r = weft_fd_write_full(arg, &byte, 1, WEFT_NEVER, NULL);
        if (r)
            return r;
    }
    return 0;
}

static void *pong_thread(void *arg)
{
    return (void *)(intptr_t)pong(arg);
}

/* weft_run works on the calling thread, whose signals are not blocked; the other end is a
 * plain thread. Both get one every 200 us, without SA_RESTART. */
static void signals_end_no_wait(void **state)
{
    (void)state;
    struct sigaction act = {.sa_handler = on_signal}, before;
    sigaction(SIGALRM, &act, &before);
    weft_fd *a, *b;
    pthread_t thread;
    void *ponged;
    int result = -1;
    assert_int_equal(weft_unix_pair(&a, &b), 0);
    assert_int_equal(pthread_create(&thread, NULL, pong_thread, b), 0);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    weft_time start = weft_now();
    assert_int_equal(weft_run(NULL, ping, a, &result), 0);
    assert_true(weft_now() - start >= ROUNDS * 100 * WEFT_USEC);
    setitimer(ITIMER_REAL, &never, NULL);
    assert_int_equal(result, 0);
    pthread_join(thread, &ponged);
    assert_null(ponged);
    assert_true(atom_load_rlx(&rained) > 0);
    sigaction(SIGALRM, &before, NULL);
    weft_fd_unref(a);
    weft_fd_unref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accept_at_the_limit_waits_and_goes_on),
        cmocka_unit_test(a_wait_without_means_says_so),
        cmocka_unit_test(signals_end_no_wait),
    };
    int failed = cmocka_run_group_tests_name("epoll", tests, NULL, NULL);
    setenv("WEFT_DRIVER", "poll", 1);
    return failed + cmocka_run_group_tests_name("poll", tests, NULL, NULL);
}

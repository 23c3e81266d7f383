/* SPDX-License-Identifier: MIT
 *
 * harness.c -- see harness.h.
 */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

bool test_sanitized(void)
{
    return SANITIZED;
}

uint64_t test_rounds(uint64_t rounds)
{
    const char *text = getenv("WEFT_ROUNDS");
    const char *preload = getenv("LD_PRELOAD");
    double factor = text ? strtod(text, NULL) : 1;
    if (SANITIZED || (preload && strstr(preload, "valgrind")))
        factor /= 10;
    double n = (double)rounds * factor;
    return n < 1 ? 1 : (uint64_t)n;
}

uint64_t test_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *text = getenv("WEFT_SEED");
        seed = text ? strtoull(text, NULL, 0) : (uint64_t)test_now() ^ ((uint64_t)getpid() << 40);
        if (seed == 0)
            seed = 1;
        printf("seed: WEFT_SEED=%" PRIu64 "\n", seed);
        fflush(stdout);
    }
    return seed;
}

int64_t test_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void test_sleep_ms(unsigned milliseconds)
{
    struct timespec t = {.tv_sec = (time_t)(milliseconds / 1000),
                         .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

/* ---- watchdog ---- */

static char limit_text[128];

static void limit_reached(int signal_number)
{
    (void)signal_number;
    void *frames[64];
    ssize_t ignored = write(STDERR_FILENO, limit_text, strlen(limit_text));
    (void)ignored;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    abort();
}

void test_limit(unsigned seconds, const char *name)
{
    void *frame[1];
    if (seconds == 0) {
        alarm(0);
        return;
    }
    seconds *= SANITIZED ? 3 : 1;
    backtrace(frame, 1); /* loads libgcc now, not in the handler */
    snprintf(limit_text, sizeof limit_text, "watchdog: %s still runs after %u s\n", name, seconds);
    struct sigaction action = {.sa_handler = limit_reached};
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

/* ---- other processes ---- */

int test_process_start(struct test_process *p, char *const argv[])
{
    int pipe_fd[2], failed[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0)
        return -errno;
    if (pipe2(failed, O_CLOEXEC) != 0) {
        int error = -errno;
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        return error;
    }
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127);
        dup2(pipe_fd[1], STDOUT_FILENO);
        dup2(pipe_fd[1], STDERR_FILENO);
        execvp(argv[0], argv);
        int error = errno;
        ssize_t ignored = write(failed[1], &error, sizeof error);
        (void)ignored;
        _exit(127);
    }
    int error = p->pid < 0 ? errno : 0;
    close(pipe_fd[1]);
    close(failed[1]);
    /* End of file: the descriptor closed itself, so the program has begun. */
    if (!error && read(failed[0], &error, sizeof error) == (ssize_t)sizeof error)
        waitpid(p->pid, NULL, 0);
    close(failed[0]);
    if (error)
        close(pipe_fd[0]);
    else
        p->output = pipe_fd[0];
    return -error;
}

/* Reads until end of file or the deadline; true at end of file. */
static bool drain(int fd, int64_t deadline, char *ret_output, size_t size)
{
    size_t used = 0;
    char rest[4096];
    for (;;) {
        int64_t left = (deadline - test_now()) / 1000000;
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, left < 0 ? 0 : (int)left + 1) == 0 && test_now() >= deadline)
            return false;
        if (ready.revents == 0)
            continue;
        bool keep = used + 1 < size;
        ssize_t n =
            keep ? read(fd, ret_output + used, size - 1 - used) : read(fd, rest, sizeof rest);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
            return true;
        if (keep && n > 0)
            ret_output[used += (size_t)n] = 0;
    }
}

int test_process_finish(struct test_process *p, unsigned ms, char *ret_output, size_t size)
{
    int64_t deadline = test_now() + (int64_t)ms * 1000000;
    int status = 0;
    if (size > 0)
        ret_output[0] = 0;
    bool ended = drain(p->output, deadline, ret_output, size);
    close(p->output);
    pid_t gone;
    while ((gone = waitpid(p->pid, &status, WNOHANG)) == 0 && test_now() < deadline)
        test_sleep_ms(1);
    if (gone == 0) {
        kill(p->pid, SIGKILL);
        waitpid(p->pid, &status, 0);
        ended = false;
    }
    if (!ended)
        return -ETIMEDOUT;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int test_run(char *const argv[], unsigned ms, char *ret_output, size_t size)
{
    struct test_process p;
    int r = test_process_start(&p, argv);
    return r < 0 ? r : test_process_finish(&p, ms, ret_output, size);
}

bool test_has_program(const char *name)
{
    char path[4096], full[4608], *save = NULL;
    snprintf(path, sizeof path, "%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    for (const char *dir = strtok_r(path, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
        snprintf(full, sizeof full, "%s/%s", dir, name);
        if (access(full, X_OK) == 0)
            return true;
    }
    return false;
}

uint16_t test_free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &size) == 0)
        port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

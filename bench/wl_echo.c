/* SPDX-License-Identifier: MIT
 *
 * echo: 64-byte messages over loopback, a closed loop on N connections. weft's server
 * (one worker, a fiber per connection) and the plain epoll one run in processes of their
 * own on the first processor, the client on the second, and they are measured in turns.
 *
 * Variants N: thousand messages a second (on a busy machine mostly weather). N/cpu: the
 * processor time that the server takes for a message, which is what differs. bytes_per_
 * task is what weft's server grew by per connection that has exchanged a message; the
 * kernel's sockets are not in it.
 *
 * With BENCH_ECHO_SERVER=PROGRAM, "PROGRAM echo PORT" is measured in weft's place; it
 * prints a line when it listens.
 */
#include "bench.h"
#include "base/epoll_echo.h"

#include "weft/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64, BATCH = 256, SLICES = 6, WEFT = 0, BASE = 1 };

typedef struct side {
    pid_t server;
    uint16_t port;
    int epoll; /* the client's */
    int *fds;
    double bytes_per_connection;
} side;

static void pin_to(unsigned cpu)
{
    cpu_set_t have, want;
    CPU_ZERO(&want);
    if (sched_getaffinity(0, sizeof have, &have))
        return;
    for (unsigned i = 0, seen = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &have) && seen++ == cpu) {
            CPU_SET(i, &want);
            sched_setaffinity(0, sizeof want, &want);
            return;
        }
    } /* only one processor: they share it */
}

static void want_files(void)
{
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

/* ---- The servers ---- */

static int serve(void *p)
{
    weft_fd *fd = p;
    char bytes[1024]; /* what a connection touches of its stack is what it keeps */
    ssize_t n;
    while ((n = weft_fd_read(fd, bytes, sizeof bytes, WEFT_NEVER)) > 0) {
        if (weft_fd_write(fd, bytes, (size_t)n, WEFT_NEVER) != n)
            break;
    }
    weft_fd_unref(fd);
    return 0;
}

static int accept_all(void *p)
{
    weft_fd *fd;
    int r;
    while ((r = weft_tcp_accept(p, WEFT_NEVER, &fd)) == 0) {
        if (weft_go(serve, fd))
            weft_fd_unref(fd);
    }
    return r;
}

static _Noreturn void weft_server(int listener)
{
    weft_fd *fd;
    if (weft_fd_wrap(listener, 0, &fd) == 0)
        (void)weft_run(NULL, accept_all, fd, NULL);
    abort();
}

static int listen_here(uint16_t *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* accepted sockets inherit it */
    bench_check(fd >= 0 && !bind(fd, (struct sockaddr *)&a, size) && !listen(fd, 4096) &&
                    !getsockname(fd, (struct sockaddr *)&a, &size),
                "listen");
    *ret_port = ntohs(a.sin_port);
    return fd;
}

static void start_server(side *s, int which)
{
    const char *program = which == WEFT ? getenv("BENCH_ECHO_SERVER") : NULL;
    int listener = listen_here(&s->port), said[2];
    char port[8], line[64];
    bench_check(pipe2(said, O_CLOEXEC) == 0, "pipe");
    if (program)
        close(listener); /* it opens its own on the same port */
    s->server = fork();
    bench_check(s->server >= 0, "fork");
    if (s->server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin_to(0);
        if (!program && which == WEFT)
            weft_server(listener);
        if (!program)
            base_epoll_echo(listener);
        dup2(said[1], STDOUT_FILENO);
        snprintf(port, sizeof port, "%d", s->port);
        execl(program, program, "echo", port, (char *)NULL);
        _exit(127);
    }
    close(said[1]);
    if (program)
        bench_check(read(said[0], line, sizeof line) > 0, "the server says that it listens");
    else
        close(listener);
    close(said[0]);
}

static double server_rss(const side *s)
{
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)s->server);
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%*d %ld", &pages) != 1)
            pages = 0;
        fclose(f);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double server_cpu_ns(const side *s)
{
    clockid_t clock;
    struct timespec t = {0, 0};
    bench_check(!clock_getcpuclockid(s->server, &clock) && !clock_gettime(clock, &t), "cpu clock");
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- The client ---- */

static void say(int fd)
{
    static const char message[MESSAGE] = "a message of sixty-four bytes";
    bench_check(send(fd, message, MESSAGE, MSG_NOSIGNAL) == MESSAGE, "send");
}

/* Exchanges messages until the deadline, then waits for the last answers. */
static uint64_t exchange(const side *s, long n, weft_time deadline)
{
    struct epoll_event events[BATCH];
    char answer[MESSAGE];
    uint64_t count = 0;
    for (long i = 0; i < n; i++)
        say(s->fds[i]);
    for (long open = n; open > 0;) {
        int k = epoll_wait(s->epoll, events, BATCH, 10000);
        bench_check(k > 0, "an answer within 10 s");
        bool more = weft_now() < deadline;
        for (int i = 0; i < k; i++) {
            bench_check(recv(events[i].data.fd, answer, MESSAGE, 0) == MESSAGE, "recv");
            count++;
            if (more)
                say(events[i].data.fd);
            else
                open--;
        }
    }
    return count;
}

static void connect_all(side *s, long n)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(s->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->fds = bench_alloc((size_t)n * sizeof *s->fds);
    for (long i = 0; i < n; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        bench_check(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a) &&
                        !setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) &&
                        !epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e),
                    "connect");
        s->fds[i] = fd;
    }
}

/* ---- The workload ---- */

static void setup(bench *b)
{
    side *s = bench_alloc(2 * sizeof *s);
    want_files();
    b->state = s;
    for (int i = 0; i < 2; i++)
        start_server(&s[i], i);
    pin_to(1);
    for (int i = 0; i < 2; i++) {
        side one = s[i]; /* one connection first, so that what all share is there */
        connect_all(&one, 1);
        exchange(&one, 1, 0);
        double before = server_rss(&s[i]);
        connect_all(&s[i], b->c->a);
        exchange(&s[i], b->c->a, 0);
        s[i].bytes_per_connection = (server_rss(&s[i]) - before) / (double)b->c->a;
        close(one.fds[0]);
        close(one.epoll);
        free(one.fds);
    }
}

static void teardown(bench *b)
{
    side *s = b->state;
    for (int i = 0; i < 2; i++) {
        kill(s[i].server, SIGKILL);
        waitpid(s[i].server, NULL, 0);
        for (long k = 0; k < b->c->a; k++)
            close(s[i].fds[k]);
        close(s[i].epoll);
        free(s[i].fds);
    }
    free(s);
}

static void run(bench *b, bench_sample *out)
{
    const side *s = b->state;
    weft_time slice = b->quick ? 50 * WEFT_MSEC : 150 * WEFT_MSEC;
    double ns[2] = {0, 0}, cpu[2] = {0, 0}, count[2] = {0, 0};
    for (int i = 0; i < 2 * SLICES; i++) {
        int which = (i + i / 2) % 2; /* weft base base weft weft base ... */
        double cpu0 = server_cpu_ns(&s[which]);
        weft_time t0 = weft_now();
        count[which] += (double)exchange(&s[which], b->c->a, t0 + slice);
        ns[which] += bench_ns(t0);
        cpu[which] += server_cpu_ns(&s[which]) - cpu0;
    }
    out->n = (uint64_t)count[WEFT];
    out->ns = ns[WEFT];
    if (b->c->b) { /* processor time a message, ns */
        out->ns = cpu[WEFT];
        out->base = cpu[BASE] / count[BASE];
    } else {
        out->value = count[WEFT] / ns[WEFT] * 1e6;
        out->base = count[BASE] / ns[BASE] * 1e6;
    }
    if (b->c->a >= 64)
        out->bytes_per_task = s[WEFT].bytes_per_connection;
}

#define ECHO(n)                                                                                    \
    {.variant = #n,                                                                                \
     .run = run,                                                                                   \
     .unit = "k/s",                                                                                \
     .repeats = 5,                                                                                 \
     .a = n,                                                                                       \
     .setup = setup,                                                                               \
     .teardown = teardown},                                                                        \
    {                                                                                              \
        .variant = #n "/cpu", .run = run, .repeats = 5, .a = n, .b = 1, .setup = setup,            \
        .teardown = teardown                                                                       \
    }

static const bench_case echo_cases[] = {ECHO(1), ECHO(64), ECHO(1000)};
BENCH_WORKLOAD(echo, "64-byte messages over loopback, 1 worker, base: plain epoll in C",
               echo_cases);

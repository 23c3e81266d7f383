/* Both readiness drivers behind their contract, without a runtime: a thread stands in
 * for the worker, plain threads for the fibers. */
#include "unit_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/fd.h"

static int use_poll;

static weft__poller *make(void)
{
    weft__poller *p = NULL;
    assert_int_equal(use_poll ? weft__poll_new(&p) : weft__epoll_new(&p), 0);
    return p;
}

static void drop(weft__poller *p)
{
    p->driver.ops->free(&p->driver);
}

static int look(weft__poller *p, weft_time deadline)
{
    return p->driver.ops->wait(&p->driver, deadline);
}

/* A worker that does nothing but wait for events. */
typedef struct worker {
    weft__poller *poller;
    weft__a32 stop;
    pthread_t thread;
} worker;

static void *worker_run(void *arg)
{
    worker *w = arg;
    while (!atom_load_acq(&w->stop))
        (void)look(w->poller, WEFT_NEVER);
    return NULL;
}

static void worker_start(worker *w)
{
    memset(w, 0, sizeof *w);
    w->poller = make();
    assert_int_equal(pthread_create(&w->thread, NULL, worker_run, w), 0);
}

static void worker_stop(worker *w)
{
    atom_store_rel(&w->stop, 1u);
    w->poller->driver.ops->wake(&w->poller->driver);
    pthread_join(w->thread, NULL);
    drop(w->poller);
}

static void pipe_pair(int fds[2], weft_fd **ret_reader)
{
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(weft_fd_wrap(fds[0], 0, ret_reader), 0);
}

/* Empties the pipe past the handle, so that nobody is passed a turn; the handle's own
 * read then finds nothing and clears READY. */
static void drain(weft_fd *fd)
{
    char bytes[4096];
    while (read(fd->number, bytes, sizeof bytes) > 0) {
    }
    assert_int_equal(weft_fd_read(fd, bytes, sizeof bytes, WEFT_TRY), -EAGAIN);
}

static weft_time cpu_time(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (weft_time)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * WEFT_SEC +
           (weft_time)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * WEFT_USEC;
}

/* ---- Wake and deadline ---- */

static void *wake_later(void *arg)
{
    weft__poller *p = arg;
    weft__sleep(weft_after(20 * WEFT_MSEC));
    for (int i = 0; i < 100; i++)
        p->driver.ops->wake(&p->driver);
    return NULL;
}

static void wake_ends_this_wait_or_the_next(void **state)
{
    (void)state;
    weft__poller *p = make();
    p->driver.ops->wake(&p->driver);
    p->driver.ops->wake(&p->driver);
    assert_int_equal(look(p, WEFT_NEVER), 0); /* asked before: returns at once */
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, wake_later, p), 0);
        (void)look(p, WEFT_NEVER);
        pthread_join(t, NULL);
        /* What the hundred left behind ends at most two more waits. */
        (void)look(p, WEFT_TRY);
        (void)look(p, weft_after(1));
        (void)look(p, weft_after(1));
    }
    weft_time start = weft_now();
    int rounds = 0;
    while (weft_now() < start + 30 * WEFT_MSEC && rounds < 10) {
        (void)look(p, start + 30 * WEFT_MSEC);
        rounds++;
    }
    assert_true(rounds <= 3); /* no echo of old wakes */
    drop(p);
}

static void deadlines_are_never_early(void **state)
{
    (void)state;
    static const weft_time spans[] = {
        1, 1000, 100 * WEFT_USEC, 999999, 1700 * WEFT_USEC, 10 * WEFT_MSEC};
    weft__poller *p = make();
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        for (int k = 0; k < 20; k++) {
            weft_time deadline = weft_after(spans[i]);
            int calls = 0;
            for (; weft_now() < deadline; calls++)
                (void)look(p, deadline);
            assert_true(calls <= 2); /* returns at the deadline, does not spin up to it */
        }
    }
    weft_time start = weft_now();
    (void)look(p, WEFT_TRY);
    (void)look(p, start - WEFT_SEC);
    (void)look(p, 0);
    assert_true(weft_now() - start < WEFT_SEC);
    drop(p);
}

/* ---- Events ---- */

typedef struct reader {
    weft_fd *fd;
    weft__poller *poller;
    weft_time deadline;
    int result;
    weft__a32 done;
    pthread_t thread;
} reader;

static void *reader_run(void *arg)
{
    reader *r = arg;
    r->result = weft__fd_wait(r->fd, WEFT__READ, r->poller, r->deadline);
    atom_store_rel(&r->done, 1u);
    return NULL;
}

static void reader_start(reader *r, weft_fd *fd, weft__poller *p, weft_time deadline)
{
    memset(r, 0, sizeof *r);
    r->fd = fd;
    r->poller = p;
    r->deadline = deadline;
    uint32_t before = atom_load_acq(&fd->dir[WEFT__READ].waiting);
    assert_int_equal(pthread_create(&r->thread, NULL, reader_run, r), 0);
    while (atom_load_acq(&fd->dir[WEFT__READ].waiting) == before && !atom_load_acq(&r->done))
        sched_yield();
}

static void an_event_wakes_one_in_turn(void **state)
{
    (void)state;
    weft__poller *p = make();
    int fds[2];
    weft_fd *fd;
    pipe_pair(fds, &fd);
    drain(fd);
    reader readers[3];
    for (int i = 0; i < 3; i++)
        reader_start(&readers[i], fd, p, WEFT_NEVER);
    assert_int_equal(look(p, WEFT_TRY), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(fds[1], "x", 1), 1);
        int woken = 0;
        while (!woken)
            woken = look(p, WEFT_NEVER);
        assert_int_equal(woken, 1);
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].result, 0);
        for (int k = i + 1; k < 3; k++)
            assert_int_equal(atom_load_acq(&readers[k].done), 0);
        drain(fd);
    }
    close(fds[1]);
    weft_fd_unref(fd);
    drop(p);
}

static void what_is_ready_before_the_wait_counts(void **state)
{
    (void)state;
    worker w;
    worker_start(&w);
    int fds[2];
    weft_fd *fd;
    pipe_pair(fds, &fd);
    for (int i = 0; i < 200; i++) {
        drain(fd);
        assert_int_equal(write(fds[1], "x", 1), 1); /* after READY was cleared, before the wait */
        assert_int_equal(weft__fd_wait(fd, WEFT__READ, w.poller, WEFT_NEVER), 0);
    }
    close(fds[1]);
    weft_fd_unref(fd);
    worker_stop(&w);
}

static void waits_end_by_deadline_close_and_end_of_driver(void **state)
{
    (void)state;
    worker w;
    worker_start(&w);
    int fds[2];
    weft_fd *fd;
    pipe_pair(fds, &fd);
    drain(fd);
    weft_time deadline = weft_after(10 * WEFT_MSEC);
    assert_int_equal(weft__fd_wait(fd, WEFT__READ, w.poller, deadline), -ETIMEDOUT);
    assert_true(weft_now() >= deadline);
    assert_int_equal(atom_load_rlx(&fd->dir[WEFT__READ].waiting), 0);

    reader r[2];
    reader_start(&r[0], fd, w.poller, WEFT_NEVER);
    reader_start(&r[1], fd, w.poller, WEFT_NEVER);
    worker_stop(&w); /* both look again, and a new driver serves them */
    pthread_join(r[0].thread, NULL);
    pthread_join(r[1].thread, NULL);
    assert_int_equal(r[0].result, 0);
    assert_int_equal(r[1].result, 0);

    worker_start(&w);
    drain(fd);
    reader_start(&r[0], fd, w.poller, WEFT_NEVER);
    assert_int_equal(write(fds[1], "x", 1), 1);
    pthread_join(r[0].thread, NULL);
    assert_int_equal(r[0].result, 0);

    drain(fd);
    reader_start(&r[0], fd, w.poller, WEFT_NEVER);
    reader_start(&r[1], fd, w.poller, WEFT_NEVER);
    assert_int_equal(weft_fd_close(fd), 0);
    pthread_join(r[0].thread, NULL);
    pthread_join(r[1].thread, NULL);
    assert_int_equal(r[0].result, -EPIPE);
    assert_int_equal(r[1].result, -EPIPE);
    assert_int_equal(weft__fd_wait(fd, WEFT__READ, w.poller, WEFT_NEVER), -EPIPE);
    assert_int_equal(fcntl(fds[0], F_GETFD), -1); /* really closed */
    close(fds[1]);
    weft_fd_unref(fd);
    worker_stop(&w);
}

/* A duplicate elsewhere keeps the description of a closed descriptor alive; the number
 * is used again; the old one becomes ready. */
static void a_reused_number_gets_no_old_event(void **state)
{
    (void)state;
    worker w;
    worker_start(&w);
    for (int i = 0; i < 200; i++) {
        int old[2], fresh[2];
        weft_fd *fd;
        pipe_pair(old, &fd);
        drain(fd);
        assert_int_equal(weft__fd_wait(fd, WEFT__READ, w.poller, weft_now() + 1), -ETIMEDOUT);
        int copy = dup(old[0]);
        weft_fd_unref(fd);
        pipe_pair(fresh, &fd);
        assert_int_equal(fresh[0], old[0]);
        drain(fd);
        reader r;
        reader_start(&r, fd, w.poller, weft_after(i % 50 ? 200 * WEFT_USEC : 20 * WEFT_MSEC));
        assert_int_equal(write(old[1], "x", 1), 1);
        pthread_join(r.thread, NULL);
        assert_int_equal(r.result, -ETIMEDOUT);
        assert_int_equal(atom_load_rlx(&fd->dir[WEFT__READ].state) & WEFT__DIR_READY, 0);
        weft_fd_unref(fd);
        close(fresh[1]);
        close(old[1]);
        close(copy);
    }
    worker_stop(&w);
}

/* The registration cannot be taken out, for the number was closed behind the handle's
 * back: its events meet nobody and cost nothing. */
static void a_stale_registration_is_silent(void **state)
{
    (void)state;
    if (use_poll)
        return; /* poll(2) keeps no registration */
    worker w;
    worker_start(&w);
    int fds[2], copy;
    weft_fd *fd;
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(weft_fd_wrap(fds[0], WEFT_FD_BORROW, &fd), 0);
    drain(fd);
    assert_int_equal(weft__fd_wait(fd, WEFT__READ, w.poller, weft_now() + 1), -ETIMEDOUT);
    copy = dup(fds[0]);
    close(fds[0]);
    weft_fd_unref(fd);
    int fresh[2]; /* takes over the place in the table */
    pipe_pair(fresh, &fd);
    drain(fd);
    assert_int_equal(weft__fd_wait(fd, WEFT__READ, w.poller, weft_now() + 1), -ETIMEDOUT);
    weft_time cpu = cpu_time();
    for (int i = 0; i < 20; i++) {
        assert_int_equal(write(fds[1], "x", 1), 1);
        weft__sleep(weft_after(10 * WEFT_MSEC));
        assert_int_equal(atom_load_rlx(&fd->dir[WEFT__READ].state) & WEFT__DIR_READY, 0);
    }
    assert_true(cpu_time() - cpu < 100 * WEFT_MSEC);
    weft_fd_unref(fd);
    close(fresh[1]);
    close(copy);
    close(fds[1]);
    worker_stop(&w);
}

static void a_forked_child_leaves_the_parent_alone(void **state)
{
    (void)state;
    worker w;
    worker_start(&w);
    int fds[2];
    weft_fd *fd;
    pipe_pair(fds, &fd);
    drain(fd);
    reader r;
    reader_start(&r, fd, w.poller, WEFT_NEVER);
    pid_t child = fork();
    if (child == 0) {
        int refused = weft__fd_wait(fd, WEFT__READ, w.poller, WEFT_NEVER) == -ENXIO;
        weft_fd_unref(fd);
        w.poller->driver.ops->free(&w.poller->driver);
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.result, 0);
    close(fds[1]);
    weft_fd_unref(fd);
    worker_stop(&w);
}

/* ---- Stress ---- */

enum { ROUNDS = 3000, HANDLES = 70 };

typedef struct ponger {
    weft_fd *fd;
    weft__poller *poller;
    int rounds;
    bool first;
} ponger;

static int byte(ponger *p, bool write_it)
{
    char b = 'b';
    for (;;) {
        ssize_t n =
            write_it ? weft_fd_write(p->fd, &b, 1, WEFT_TRY) : weft_fd_read(p->fd, &b, 1, WEFT_TRY);
        if (n != -EAGAIN)
            return (int)n;
        int r = weft__fd_wait(p->fd, write_it ? WEFT__WRITE : WEFT__READ, p->poller,
                              weft_after(20 * WEFT_SEC));
        if (r)
            return r;
    }
}

static void *pong(void *arg)
{
    ponger *p = arg;
    for (int i = 0; i < p->rounds; i++) {
        if (byte(p, p->first) != 1 || byte(p, !p->first) != 1)
            return arg;
    }
    return NULL;
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals = signals + 1;
}

static void no_byte_is_missed_under_signals(void **state)
{
    (void)state;
    worker w;
    worker_start(&w);
    struct sigaction act = {.sa_handler = on_signal}, before;
    sigaction(SIGUSR1, &act, &before); /* no SA_RESTART: EINTR everywhere */
    int pair[2];
    weft_fd *a, *b;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(weft_fd_wrap(pair[0], 0, &a), 0);
    assert_int_equal(weft_fd_wrap(pair[1], 0, &b), 0);
    ponger pa = {a, w.poller, ROUNDS, true}, pb = {b, w.poller, ROUNDS, false};
    pthread_t ta, tb;
    assert_int_equal(pthread_create(&ta, NULL, pong, &pa), 0);
    assert_int_equal(pthread_create(&tb, NULL, pong, &pb), 0);
    for (int i = 0; i < 100; i++) {
        pthread_kill(w.thread, SIGUSR1);
        weft__sleep(weft_after(500 * WEFT_USEC));
    }
    void *ra, *rb;
    pthread_join(ta, &ra);
    pthread_join(tb, &rb);
    assert_null(ra);
    assert_null(rb);
    assert_true(signals > 0);
    weft_fd_unref(a);
    weft_fd_unref(b);
    worker_stop(&w);
    sigaction(SIGUSR1, &before, NULL); /* no thread has one pending any more */
}

/* More handles than the table starts with, all used again and again. */
static void the_table_grows_and_is_reused(void **state)
{
    (void)state;
    weft__poller *p = make();
    for (int round = 0; round < 3; round++) {
        int fds[HANDLES][2];
        weft_fd *fd[HANDLES];
        for (int i = 0; i < HANDLES; i++) {
            pipe_pair(fds[i], &fd[i]);
            drain(fd[i]);
            do /* a deadline that comes too soon does not get as far as asking poll(2) */
                assert_int_equal(weft__fd_wait(fd[i], WEFT__READ, p, weft_after(200 * WEFT_USEC)),
                                 -ETIMEDOUT);
            while (use_poll && !p->slots[WEFT__KEY_SLOT(fd[i]->key)].interest);
        }
        assert_true(p->used <= HANDLES);
        for (int i = 0; i < HANDLES; i++)
            assert_int_equal(write(fds[i][1], "x", 1), 1);
        (void)look(p, WEFT_TRY);
        for (int i = 0; i < HANDLES; i++) {
            assert_true(atom_load_rlx(&fd[i]->dir[WEFT__READ].state) & WEFT__DIR_READY);
            weft_fd_unref(fd[i]);
            close(fds[i][1]);
        }
    }
    drop(p);
}

static int choose_epoll(void **state)
{
    (void)state;
    use_poll = 0;
    return 0;
}

static int choose_poll(void **state)
{
    (void)state;
    use_poll = 1;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wake_ends_this_wait_or_the_next),
        cmocka_unit_test(deadlines_are_never_early),
        cmocka_unit_test(an_event_wakes_one_in_turn),
        cmocka_unit_test(what_is_ready_before_the_wait_counts),
        cmocka_unit_test(waits_end_by_deadline_close_and_end_of_driver),
        cmocka_unit_test(a_reused_number_gets_no_old_event),
        cmocka_unit_test(a_stale_registration_is_silent),
        cmocka_unit_test(a_forked_child_leaves_the_parent_alone),
        cmocka_unit_test(no_byte_is_missed_under_signals),
        cmocka_unit_test(the_table_grows_and_is_reused),
    };
    int failed = cmocka_run_group_tests_name("epoll", tests, choose_epoll, NULL);
    failed += cmocka_run_group_tests_name("poll", tests, choose_poll, NULL);
    return failed;
}

/* Descriptors among the cases of a select: in fibers, poll tasks and plain threads, with
 * both drivers; what is ready, what is not any more, deadlines, closing, cancelling, and
 * that a select beside readers takes nothing from them and loses nothing of other cases. */
#include "unit_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "harness.h"
#include "weft/channel.h"
#include "weft/event.h"
#include "weft/io.h"
#include "weft/net.h"
#include "weft/pollwait.h"
#include "weft/runtime.h"
#include "weft/task.h"

static void pair(weft_fd **a, weft_fd **b)
{
    assert_int_equal(weft_unix_pair(a, b), 0);
}

static void unpair(weft_fd *a, weft_fd *b)
{
    weft_fd_unref(a);
    weft_fd_unref(b);
}

static weft_channel *channel(size_t capacity)
{
    weft_channel *ch = NULL;
    assert_int_equal(weft_channel_new(sizeof(int), capacity, NULL, &ch), 0);
    return ch;
}

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static void drain(weft_fd *fd)
{
    char bytes[4096];
    while (weft_fd_read(fd, bytes, sizeof bytes, WEFT_TRY) > 0) {
    }
}

/* Until nothing more fits. */
static void fill(weft_fd *fd)
{
    static const char bytes[4096];
    while (weft_fd_write(fd, bytes, sizeof bytes, WEFT_TRY) > 0) {
    }
}

/* ---- One fiber or one thread, alone ---- */

static int basics(void *arg)
{
    (void)arg;
    weft_fd *a, *b;
    int item = 0, in = 5;
    char byte;
    weft_channel *ch = channel(1);
    pair(&a, &b);
    weft_select_case bad = weft_case_fd_readable(NULL);
    assert_int_equal(weft_select(&bad, 1, 0, WEFT_TRY), -EINVAL);
    bad = weft_case_fd_writable(NULL);
    assert_int_equal(weft_select(&bad, 1, 0, WEFT_TRY), -EINVAL);

    weft_select_case cases[] = {weft_case_fd_readable(a), weft_case_recv(ch, &item),
                                weft_case_time(WEFT_NEVER)};
    /* Nothing is ready: each kind of deadline, twice, for the first has cleared something. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_select(cases, 3, 0, WEFT_TRY), -EAGAIN);
        assert_int_equal(weft_select(cases, 3, 0, 1), -ETIMEDOUT);
        weft_time limit = weft_after(3 * WEFT_MSEC);
        assert_int_equal(weft_select(cases, 3, 0, limit), -ETIMEDOUT);
        assert_true(weft_now() >= limit);
        cases[2] = weft_case_time(weft_after(3 * WEFT_MSEC));
        assert_int_equal(weft_select(cases, 3, 0, WEFT_NEVER), 2);
        cases[2] = weft_case_time(WEFT_NEVER);
    }
    /* Ready, as long as nobody reads, whatever the deadline. */
    assert_int_equal(weft_fd_write(b, "x", 1, WEFT_TRY), 1);
    weft_time deadlines[] = {WEFT_TRY, 0, 1, weft_after(WEFT_SEC), WEFT_NEVER};
    for (int i = 0; i < 10; i++) {
        cases[0].result = 77;
        assert_int_equal(weft_select(cases, 3, 0, deadlines[i % 5]), 0);
        assert_int_equal(cases[0].result, 0);
    }
    assert_int_equal(weft_fd_read(a, &byte, 1, WEFT_TRY), 1);
    assert_int_equal(weft_select(cases, 3, 0, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_select(cases, 3, 0, 1), -ETIMEDOUT);

    /* The channel's case is done, the descriptor's leaves no trace; fair and in order. */
    assert_int_equal(weft_channel_send(ch, &in, WEFT_TRY), 0);
    assert_int_equal(weft_select(cases, 3, 0, WEFT_NEVER), 1);
    assert_int_equal(item, 5);
    assert_int_equal(weft_fd_write(b, "x", 1, WEFT_TRY), 1);
    int seen[3] = {0};
    for (int i = 0; i < 200; i++) {
        assert_int_equal(weft_channel_send(ch, &in, WEFT_TRY), 0);
        int r = weft_select(cases, 3, 0, WEFT_NEVER);
        seen[r]++;
        assert_int_equal(weft_select(cases, 3, WEFT_SELECT_ORDERED, WEFT_NEVER), 0);
        (void)!weft_channel_recv(ch, &item, WEFT_TRY);
    }
    assert_true(seen[0] && seen[1] && !seen[2]);
    drain(a);

    /* Off: takes no part. Twice the same, and both directions. */
    weft_select_case both[] = {weft_case_fd_readable(a), weft_case_fd_readable(a),
                               weft_case_fd_writable(a), weft_case_fd_writable(a)};
    assert_in_range(weft_select(both, 4, 0, WEFT_NEVER), 2, 3);
    both[2].off = both[3].off = true;
    assert_int_equal(weft_select(both, 4, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    both[2].off = both[3].off = false;
    both[0].off = both[1].off = true;
    fill(a);
    assert_int_equal(weft_select(both, 4, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    drain(b);
    assert_in_range(weft_select(both, 4, 0, weft_after(10 * WEFT_SEC)), 2, 3);

    /* The end of the stream is readable; a closed handle answers as the calls do. */
    weft_fd_close(b);
    both[0].off = false;
    assert_int_equal(weft_select(both, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(both[0].result, 0);
    weft_fd_close(a);
    assert_int_equal(weft_select(both, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(both[0].result, -EPIPE);
    assert_int_equal(weft_select(both, 1, 0, WEFT_TRY), 0);
    assert_int_equal(both[0].result, -EPIPE);
    unpair(a, b);

    /* What is always ready. */
    weft_fd *file;
    assert_int_equal(
        weft_fd_wrap(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), WEFT_FD_NONBLOCK, &file), 0);
    both[0] = weft_case_fd_readable(file);
    assert_int_equal(weft_select(both, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(both[0].result, 0);
    weft_fd_unref(file);
    weft_channel_unref(ch);
    return 0;
}

static void alone_in_a_fiber(void **state)
{
    (void)state;
    assert_int_equal(weft_run(NULL, basics, NULL, NULL), 0);
}

static void alone_on_a_thread(void **state)
{
    (void)state;
    basics(NULL);
}

static void too_many_on_a_thread(void **state)
{
    (void)state;
    weft_fd *a, *b;
    weft_select_case cases[WEFT_SELECT_FDS + 1];
    pair(&a, &b);
    for (int i = 0; i <= WEFT_SELECT_FDS; i++)
        cases[i] = weft_case_fd_readable(a);
    assert_int_equal(weft_select(cases, WEFT_SELECT_FDS + 1, 0, weft_after(WEFT_MSEC)), -EINVAL);
    assert_int_equal(weft_select(cases, WEFT_SELECT_FDS, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_select(cases, WEFT_SELECT_FDS + 1, 0, WEFT_TRY), -EAGAIN);
    unpair(a, b);
}

static void no_descriptor_left_to_wait_with(void **state)
{
    (void)state;
    weft_fd *a, *b;
    struct rlimit before, none;
    pair(&a, &b);
    weft_select_case cases[] = {weft_case_time(WEFT_NEVER), weft_case_fd_readable(a)};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3; /* more than poll(2) is given, all of them in use */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int r = weft_select(cases, 2, 0, weft_after(WEFT_MSEC));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(r, 1);
    assert_int_equal(cases[1].result, -EMFILE);
    assert_int_equal(weft_select(cases, 2, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    unpair(a, b);
}

/* ---- Somebody else makes it ready ---- */

struct waiting {
    weft_fd *fd;
    weft_channel *ch;
    weft_event started;
    weft_time deadline;
    int item, answer, result;
    bool writes;
};

static int wait_one(void *arg)
{
    struct waiting *w = arg;
    weft_select_case cases[] = {w->writes ? weft_case_fd_writable(w->fd)
                                          : weft_case_fd_readable(w->fd),
                                weft_case_recv(w->ch, &w->item)};
    weft_event_set(&w->started);
    w->answer = weft_select(cases, 2, 0, w->deadline);
    w->result = w->answer >= 0 ? cases[w->answer].result : 0;
    return w->answer;
}

static void *wait_one_thread(void *arg)
{
    wait_one(arg);
    return NULL;
}

enum { FIBER, THREAD, WAITERS };

/* What happens to it while it waits. */
enum { BYTE, ITEM, CLOSE_FD, CLOSE_CHANNEL, DEADLINE, CANCEL, ROOM, HAPPENINGS };

static void happens_to(weft_runtime *rt, int waiter, int happening, unsigned delay)
{
    weft_fd *a, *b;
    pthread_t thread;
    weft_task *task = NULL;
    int item = 9;
    pair(&a, &b);
    struct waiting w = {.fd = a, .ch = channel(0), .deadline = weft_after(20 * WEFT_SEC)};
    if (happening == DEADLINE)
        w.deadline = weft_after(2 * WEFT_MSEC);
    if (happening == ROOM) {
        w.writes = true;
        fill(a);
    }
    if (waiter == FIBER)
        assert_int_equal(weft_spawn(rt, wait_one, &w, NULL, &task), 0);
    else
        assert_int_equal(pthread_create(&thread, NULL, wait_one_thread, &w), 0);
    assert_int_equal(weft_event_wait(&w.started, WEFT_NEVER), 0);
    if (delay)
        test_sleep_ms(delay);
    int expected = 0, expected_result = 0;
    switch (happening) {
    case BYTE:
        assert_int_equal(weft_fd_write(b, "x", 1, WEFT_TRY), 1);
        break;
    case ITEM:
        assert_int_equal(weft_channel_send(w.ch, &item, WEFT_NEVER), 0);
        expected = 1;
        break;
    case CLOSE_FD:
        weft_fd_close(a);
        expected_result = -EPIPE;
        break;
    case CLOSE_CHANNEL:
        weft_channel_close(w.ch);
        expected = 1;
        expected_result = -EPIPE;
        break;
    case DEADLINE:
        expected = -ETIMEDOUT;
        break;
    case CANCEL:
        weft_task_cancel(task);
        expected = -ECANCELED;
        break;
    case ROOM:
        drain(b);
        break;
    }
    if (waiter == FIBER) {
        assert_int_equal(weft_task_join(task, WEFT_NEVER, NULL), 0);
        weft_task_unref(task);
    } else {
        pthread_join(thread, NULL);
    }
    if (w.answer != expected || w.result != expected_result)
        fail_msg("waiter %d, happening %d: %d, %d", waiter, happening, w.answer, w.result);
    if (happening == ITEM)
        assert_int_equal(w.item, 9);
    unpair(a, b);
    weft_channel_unref(w.ch);
}

static void woken_by_each(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    for (uint64_t round = 0; round < test_rounds(20); round++)
        for (int waiter = 0; waiter < WAITERS; waiter++)
            for (int happening = 0; happening < HAPPENINGS; happening++)
                if (waiter == FIBER || happening != CANCEL)
                    happens_to(rt, waiter, happening, round % 2 ? 2 : 0);
    weft_runtime_free(rt);
}

/* A fiber's select, where the runtime's driver has the handle, and a thread's. */
static void an_event_is_told_to_all(void **state)
{
    enum { N = 6 };
    (void)state;
    weft_runtime *rt = runtime(2);
    for (uint64_t round = 0; round < test_rounds(30); round++) {
        weft_fd *a, *b;
        struct waiting w[N] = {0};
        weft_task *t[N] = {0};
        pthread_t thread[N];
        char byte;
        pair(&a, &b);
        for (int i = 0; i < N; i++) {
            w[i] = (struct waiting){.fd = a, .ch = channel(0), .deadline = WEFT_NEVER};
            if (i % 3 == 2)
                assert_int_equal(pthread_create(&thread[i], NULL, wait_one_thread, &w[i]), 0);
            else
                assert_int_equal(weft_spawn(rt, wait_one, &w[i], NULL, &t[i]), 0);
            assert_int_equal(weft_event_wait(&w[i].started, WEFT_NEVER), 0);
        }
        if (round % 2)
            test_sleep_ms(1);
        assert_int_equal(weft_fd_write(b, "x", 1, WEFT_TRY), 1);
        for (int i = 0; i < N; i++) {
            if (i % 3 == 2) {
                pthread_join(thread[i], NULL);
            } else {
                assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
                weft_task_unref(t[i]);
            }
            assert_int_equal(w[i].answer, 0);
            weft_channel_unref(w[i].ch);
        }
        assert_int_equal(weft_fd_read(a, &byte, 1, WEFT_TRY), 1); /* nobody has taken it */
        unpair(a, b);
    }
    weft_runtime_free(rt);
}

/* ---- Out of date ---- */

struct stale {
    weft_fd *a, *b;
    int wrong;
};

/* Reads what there is and watches again at once, so that events of bytes that have been read
 * come late. A sole reader must never be told of nothing. */
static int sole_reader(void *arg)
{
    struct stale *s = arg;
    char byte;
    weft_select_case cases[] = {weft_case_fd_readable(s->a), weft_case_time(0)};
    for (;;) {
        cases[1] = weft_case_time(weft_after(20 * WEFT_SEC));
        assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 0);
        ssize_t n = weft_fd_read(s->a, &byte, 1, WEFT_TRY);
        if (n == 0)
            return 0;
        s->wrong += n != 1;
    }
}

static int sole_writer(void *arg)
{
    struct stale *s = arg;
    for (uint64_t i = 0; i < test_rounds(20000); i++) {
        assert_int_equal(weft_fd_write(s->b, "x", 1, WEFT_NEVER), 1);
        if (i % 3 == 0)
            weft_yield();
    }
    return weft_fd_close(s->b);
}

static void a_sole_reader_finds_the_data(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 3; workers++) {
        weft_runtime *rt = runtime(workers);
        struct stale s = {.wrong = 0};
        weft_task *t[2];
        pair(&s.a, &s.b);
        assert_int_equal(weft_spawn(rt, sole_reader, &s, NULL, &t[0]), 0);
        assert_int_equal(weft_spawn(rt, sole_writer, &s, NULL, &t[1]), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
            weft_task_unref(t[i]);
        }
        assert_int_equal(s.wrong, 0);
        unpair(s.a, s.b);
        weft_runtime_free(rt);
    }
}

struct quick {
    weft_fd *a, *b;
    uint64_t taken, limit;
    int wrong;
};

/* On the same worker as the watcher, which cannot be interrupted between the answer of its
 * select and its read. Often this one is quicker than the watcher that has been told. */
static int quicker_reader(void *arg)
{
    struct quick *q = arg;
    char byte;
    for (uint64_t i = 0; q->taken < q->limit; i++) {
        assert_int_equal(weft_fd_write(q->b, "x", 1, WEFT_TRY), 1);
        for (uint64_t k = 0; k < i % 200; k++)
            weft_yield(); /* time to ask the driver */
        while (weft_fd_read(q->a, &byte, 1, WEFT_TRY) == 1)
            q->taken++;
        weft_yield();
    }
    return 0;
}

static int watch_in_vain(void *arg)
{
    struct quick *q = arg;
    weft_select_case cases[] = {weft_case_fd_readable(q->a), weft_case_time(0)};
    char byte;
    while (q->taken < q->limit) {
        cases[1] = weft_case_time(weft_after(WEFT_MSEC));
        int r = weft_select(cases, 2, 0, WEFT_NEVER);
        assert_in_range(r, 0, 1);
        if (r == 0) {
            bool found = weft_fd_read(q->a, &byte, 1, WEFT_TRY) == 1;
            q->wrong += !found;
            q->taken += found;
        }
    }
    return 0;
}

static void what_another_has_read_is_not_told(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(1);
    struct quick q = {.limit = test_rounds(2000)};
    weft_task *t[2];
    pair(&q.a, &q.b);
    assert_int_equal(weft_spawn(rt, watch_in_vain, &q, NULL, &t[0]), 0);
    assert_int_equal(weft_spawn(rt, quicker_reader, &q, NULL, &t[1]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(t[i]);
    }
    assert_int_equal(q.wrong, 0);
    unpair(q.a, q.b);
    weft_runtime_free(rt);
}

/* ---- Poll tasks ---- */

struct pumping {
    int line, item, r;
    weft_fd *fd;
    weft_channel *in;
    int bytes, items;
    weft_poll_wait wait;
    weft_select_case cases[2];
};

/* Counts bytes and items until both have ended. */
static int pump(weft_task *self, void *state)
{
    struct pumping *p = state;
    char bytes[64];
    WEFT_POLL_BEGIN(p->line);
    p->cases[0] = weft_case_fd_readable(p->fd);
    p->cases[1] = weft_case_recv(p->in, &p->item);
    while (!p->cases[0].off || !p->cases[1].off) {
        WEFT_POLL_AWAIT(p->line, p->r,
                        weft_poll_select(self, &p->wait, p->cases, 2, 0, WEFT_NEVER));
        assert_in_range(p->r, 0, 1);
        if (p->r == 1) {
            if (p->cases[1].result)
                p->cases[1].off = true;
            else
                p->items++;
        } else {
            ssize_t n = weft_fd_read(p->fd, bytes, sizeof bytes, WEFT_TRY);
            assert_true(n >= 0); /* the only reader */
            p->bytes += (int)n;
            p->cases[0].off = n == 0;
        }
    }
    WEFT_POLL_END;
    return p->bytes + 1000000 * p->items;
}

static void in_poll_tasks(void **state)
{
    (void)state;
    int n = (int)test_rounds(3000);
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = runtime(workers);
        struct pumping p = {.in = channel(1)};
        weft_task *t;
        weft_fd *b;
        int result;
        pair(&p.fd, &b);
        assert_int_equal(weft_spawn_poll(rt, pump, &p, sizeof p, NULL, &t), 0);
        for (int i = 0; i < n; i++) {
            assert_int_equal(weft_fd_write(b, "xy", 2, WEFT_NEVER), 2);
            if (i % 3 == 0)
                assert_int_equal(weft_channel_send(p.in, &i, WEFT_NEVER), 0);
        }
        weft_channel_close(p.in);
        weft_fd_close(b);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
        assert_int_equal(result, 2 * n + 1000000 * ((n + 2) / 3));
        weft_task_unref(t);
        unpair(p.fd, b);
        weft_channel_unref(p.in);
        weft_runtime_free(rt);
    }
}

struct lone {
    weft_fd *fd;
    weft_poll_op op;
};

static int watch_for_ever(weft_task *self, void *state)
{
    struct lone *l = state;
    return weft_poll_do(self, &l->op, weft_case_fd_readable(l->fd), WEFT_NEVER);
}

static void poll_tasks_end_in_the_middle(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    for (uint64_t round = 0; round < test_rounds(100); round++) {
        struct lone l = {0};
        weft_task *t;
        weft_fd *b;
        int result;
        pair(&l.fd, &b);
        assert_int_equal(weft_spawn_poll(rt, watch_for_ever, &l, sizeof l, NULL, &t), 0);
        if (round % 2)
            test_sleep_ms(1);
        switch (round % 6 / 2) {
        case 0:
            weft_task_cancel(t);
            break;
        case 1:
            weft_fd_close(l.fd);
            break;
        case 2:
            assert_int_equal(weft_fd_write(b, "x", 1, WEFT_TRY), 1);
            break;
        }
        assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
        static const int expected[] = {-ECANCELED, -EPIPE, 0};
        assert_int_equal(result, expected[round % 6 / 2]);
        weft_task_unref(t);
        unpair(l.fd, b);
    }
    weft_runtime_free(rt);
}

/* ---- Everything at once ---- */

struct mill {
    weft_fd *a;
    weft_channel *ch, *out;
    weft__a64 bytes, items, stopped;
    uint32_t seed;
};

struct hand {
    struct mill *mill;
    uint32_t rng;
};

static uint32_t next(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

/* Takes bytes and items, offers items, until cancelled, or both have ended. */
static int grind(void *arg)
{
    struct hand *h = arg;
    struct mill *m = h->mill;
    int item = 0, offer = 1;
    char bytes[7];
    weft_select_case cases[] = {weft_case_fd_readable(m->a), weft_case_recv(m->ch, &item),
                                weft_case_send(m->out, &offer), weft_case_time(0)};
    while (!cases[0].off || !cases[1].off) {
        cases[3] = weft_case_time(weft_after((weft_time)(next(&h->rng) % 300) * WEFT_USEC));
        int r = weft_select(cases, 4, 0, WEFT_NEVER);
        if (r == -ECANCELED)
            return r;
        if (r == 0) {
            ssize_t n = weft_fd_read(m->a, bytes, sizeof bytes, WEFT_TRY);
            if (n > 0)
                atom_add_rlx(&m->bytes, (uint64_t)n);
            else if (n != -EAGAIN)
                cases[0].off = true;
        } else if (r == 1) {
            if (cases[1].result)
                cases[1].off = true;
            else
                atom_add_rlx(&m->items, 1u);
        } else if (r == 2) {
            fail_msg("nobody receives from there");
        }
    }
    return 0;
}

static void *grind_thread(void *arg)
{
    grind(arg);
    return NULL;
}

/* Plain readers among the selects. */
static int read_on(void *arg)
{
    struct mill *m = ((struct hand *)arg)->mill;
    char bytes[5];
    ssize_t n;
    while ((n = weft_fd_read(m->a, bytes, sizeof bytes, WEFT_NEVER)) > 0)
        atom_add_rlx(&m->bytes, (uint64_t)n);
    return (int)n;
}

static void nothing_is_lost_or_taken_twice(void **state)
{
    enum { N = 9 };
    (void)state;
    uint32_t rng = (uint32_t)test_seed() | 1u;
    for (uint64_t round = 0; round < test_rounds(30); round++) {
        weft_runtime *rt = runtime(1 + (unsigned)(round % 3));
        struct mill m = {.ch = channel(round % 3), .out = channel(0)};
        struct hand hand[N];
        weft_task *t[N];
        pthread_t thread;
        weft_fd *b;
        uint64_t bytes = 0, items = 0;
        pair(&m.a, &b);
        for (int i = 0; i < N; i++) {
            hand[i] = (struct hand){&m, next(&rng) | 1u};
            if (i == N - 1)
                assert_int_equal(pthread_create(&thread, NULL, grind_thread, &hand[i]), 0);
            else
                assert_int_equal(weft_spawn(rt, i % 4 ? grind : read_on, &hand[i], NULL, &t[i]), 0);
        }
        for (int i = 0; i < 400; i++) {
            int item = i;
            assert_int_equal(weft_fd_write(b, "xyz", 3, WEFT_NEVER), 3);
            bytes += 3;
            if (weft_channel_send(m.ch, &item, weft_after(WEFT_MSEC)) == 0)
                items++;
            if (i % 100 == 50)
                weft_task_cancel(t[next(&rng) % 6]); /* two remain for certain */
            if (next(&rng) % 64 == 0)
                test_sleep_ms(1);
        }
        weft_channel_close(m.ch);
        weft_fd_close(b);
        pthread_join(thread, NULL);
        for (int i = 0; i < N - 1; i++) {
            assert_int_equal(weft_task_join(t[i], weft_after(50 * WEFT_SEC), NULL), 0);
            weft_task_unref(t[i]);
        }
        assert_int_equal(atom_load_rlx(&m.bytes), bytes);
        assert_int_equal(atom_load_rlx(&m.items), items);
        unpair(m.a, b);
        weft_channel_unref(m.ch);
        weft_channel_unref(m.out);
        weft_runtime_free(rt);
    }
}

/* The runtime whose driver tells of the handle ends; others watch on. */
static void the_driver_ends(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < test_rounds(40); round++) {
        weft_runtime *first = runtime(1), *second = runtime(1);
        weft_fd *a, *b;
        weft_task *t, *u;
        pair(&a, &b);
        struct waiting w = {.fd = a, .ch = channel(0), .deadline = weft_after(WEFT_MSEC)};
        struct waiting x = {.fd = a, .ch = w.ch, .deadline = WEFT_NEVER};
        assert_int_equal(weft_spawn(first, wait_one, &w, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0); /* `first` has it now */
        weft_task_unref(t);
        assert_int_equal(weft_spawn(second, wait_one, &x, NULL, &u), 0);
        assert_int_equal(weft_event_wait(&x.started, WEFT_NEVER), 0);
        if (round % 2)
            test_sleep_ms(1);
        weft_runtime_free(first);
        assert_int_equal(weft_fd_write(b, "x", 1, WEFT_TRY), 1);
        assert_int_equal(weft_task_join(u, WEFT_NEVER, NULL), 0);
        assert_int_equal(x.answer, 0);
        weft_task_unref(u);
        weft_runtime_free(second);
        unpair(a, b);
        weft_channel_unref(w.ch);
    }
}

static int with_the_other_driver(void **state)
{
    (void)state;
    return setenv("WEFT_DRIVER", "poll", 1);
}

#define ALL_TESTS                                                                                  \
    cmocka_unit_test(alone_in_a_fiber), cmocka_unit_test(woken_by_each),                           \
        cmocka_unit_test(an_event_is_told_to_all), cmocka_unit_test(a_sole_reader_finds_the_data), \
        cmocka_unit_test(in_poll_tasks), cmocka_unit_test(what_another_has_read_is_not_told),      \
        cmocka_unit_test(poll_tasks_end_in_the_middle),                                            \
        cmocka_unit_test(nothing_is_lost_or_taken_twice), cmocka_unit_test(the_driver_ends)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL_TESTS,
        cmocka_unit_test(alone_on_a_thread),
        cmocka_unit_test(too_many_on_a_thread),
        cmocka_unit_test(no_descriptor_left_to_wait_with),
    };
    const struct CMUnitTest again[] = {ALL_TESTS};
    test_limit(100, "io_select");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(again, with_the_other_driver, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * A ledger for a million tasks: senders in plain threads, in fibers and behind poll() send
 * to a worker of threads and to one of fibers, while tasks are abandoned, time out, run
 * into loops that end, and the workers are restarted. At the end
 *
 *   every send that said 0 was received once, every one that failed never was
 *   every payload and update was freed exactly once
 *   the outcomes the workers counted add up, and agree with what the senders saw
 *   every descriptor is back, no seat is busy, no wake-up was lost
 */
#include "unit_test.h"

#include "harness.h"
#include "resources.h"

#include "weft/bgworker.h"
#include "weft/runtime.h"
#include "weft/task.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#define ms(n) weft_after((n)*WEFT_MSEC)

enum { WORKERS = 2, THREADS = 4, FIBERS = 6, POLLERS = 2, SENDERS = THREADS + FIBERS + POLLERS };

static struct ledger {
    atomic_uchar *freed;    /* by payload number */
    atomic_uchar *received; /* likewise */
    atomic_llong updates_made, updates_freed;
    atomic_bool quiet; /* loops do not end by chance any more */
} ledger;

struct seen {
    uint64_t completed, aborted, abandoned, timeout, released;
};

struct sender {
    weft_worker *workers[WORKERS];
    uint64_t first, count, random;
    struct seen seen[WORKERS];
    int kind; /* 0: sends and reads; 1: posts and polls */
};

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void payload_freed(void *data, size_t size, void *arg)
{
    (void)data, (void)size;
    unsigned char before = atomic_fetch_add(&ledger.freed[(uintptr_t)arg], 1);
    if (before != 0)
        abort();
}

static void update_freed(void *data, size_t size, void *arg)
{
    (void)data, (void)size, (void)arg;
    atomic_fetch_add(&ledger.updates_freed, 1);
}

static weft_buffer *payload(uint64_t i)
{
    weft_buffer *b = NULL;
    if (weft_buffer_wrap(&ledger.freed[i], 1, payload_freed, (void *)(uintptr_t)i, &b) != 0)
        abort();
    return b;
}

static weft_buffer *update(void)
{
    static char byte;
    weft_buffer *b = NULL;
    if (weft_buffer_wrap(&byte, 1, update_freed, NULL, &b) != 0)
        abort();
    atomic_fetch_add(&ledger.updates_made, 1);
    return b;
}

/* Answers with some updates; now and then ends with the task open. */
static int loop(weft_seat *seat, void *arg)
{
    (void)arg;
    uint64_t random = (uint64_t)test_now() * 2654435761u + weft_seat_index(seat) + 1;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, next(&random) % 8 ? WEFT_NEVER : ms(1), &task) != 0)
            continue;
        atomic_uchar *cell = weft_buffer_data(weft_received_payload(task));
        atomic_fetch_add(&ledger.received[cell - ledger.freed], 1);
        unsigned dice = (unsigned)(next(&random) % 1000);
        if (dice < 2 && !atomic_load(&ledger.quiet))
            return dice == 0 ? -EIO : 0; /* aborted */
        int r = 0;
        for (unsigned i = dice % 20; i > 15 && r == 0; i--) {
            weft_buffer *b = update();
            r = weft_received_update(task, b, dice % 3 ? WEFT_NEVER : ms(1));
            if (r)
                weft_buffer_unref(b);
        }
        if (dice % 5) {
            weft_buffer *b = update();
            if (weft_received_complete(task, b) != 0)
                weft_buffer_unref(b);
        }
        weft_received_free(task);
    }
    return 0;
}

/* Reads to the end, or gives up after some. */
static void follow(struct sender *s, int w, weft_sent *sent)
{
    unsigned patience = next(&s->random) % 16 == 0 ? (unsigned)(next(&s->random) % 3) : 1000;
    int fd = s->kind == 1 || next(&s->random) % 16 == 0 ? weft_sent_fd(sent) : -1;
    if (s->kind == 1 && fd < 0)
        abort();
    int r = 1;
    while (r == 1 && patience-- > 0) {
        weft_buffer *b = NULL;
        if (s->kind == 1) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            poll(&p, 1, 5);
            r = weft_sent_read(sent, WEFT_TRY, &b);
            if (r == -EAGAIN) {
                r = 1;
                continue;
            }
        } else {
            r = weft_sent_read(sent, WEFT_NEVER, &b);
        }
        if (r == 1)
            weft_buffer_unref(b);
    }
    weft_sent_abandon(sent); /* nothing when it has ended */
    struct seen *seen = &s->seen[w];
    switch (weft_sent_outcome(sent)) {
    case WEFT_TASK_COMPLETED:
        seen->completed++;
        break;
    case WEFT_TASK_ABORTED:
        seen->aborted++;
        break;
    case WEFT_TASK_ABANDONED:
        seen->abandoned++;
        break;
    case WEFT_TASK_TIMEOUT:
        seen->timeout++;
        break;
    case WEFT_TASK_RELEASED:
        seen->released++;
        break;
    default:
        abort();
    }
    weft_sent_free(sent);
}

static int send_all(void *arg)
{
    struct sender *s = arg;
    for (uint64_t i = s->first; i < s->first + s->count; i++) {
        int w = (int)(next(&s->random) % WORKERS);
        bool hasty = next(&s->random) % 64 == 0;
        weft_time deadline =
            hasty ? weft_after((weft_time)(next(&s->random) % 200) * WEFT_USEC) : WEFT_NEVER;
        weft_buffer *b = payload(i);
        weft_sent *sent = NULL;
        int r;
        if (s->kind == 1) {
            while ((r = weft_worker_post(s->workers[w], b, deadline, &sent)) == -EAGAIN)
                weft_sleep(WEFT_MSEC);
        } else {
            r = weft_worker_send(s->workers[w], b, deadline, &sent);
        }
        if (r == 0) {
            follow(s, w, sent);
            continue;
        }
        if (r != -ETIMEDOUT || !hasty || atomic_load(&ledger.received[i]) != 0)
            abort(); /* it says it was not run */
        weft_buffer_unref(b);
    }
    return 0;
}

static void *send_thread(void *arg)
{
    send_all(arg);
    return NULL;
}

static void restart_while(weft_worker **workers, atomic_bool *done)
{
    while (!atomic_load(done)) {
        test_sleep_ms(20);
        for (int i = 0; i < WORKERS; i++)
            assert_int_equal(weft_worker_restart(workers[i], ms(60000), NULL, 0), 0);
    }
}

struct restarter {
    weft_worker **workers;
    atomic_bool done;
};

static void *restart_thread(void *arg)
{
    struct restarter *r = arg;
    restart_while(r->workers, &r->done);
    return NULL;
}

static void check_worker(weft_worker *w, const struct sender *senders, int index)
{
    weft_worker_stats st;
    struct seen sum = {0};
    assert_int_equal(weft_worker_get_stats(w, &st), 0);
    for (int i = 0; i < SENDERS; i++) {
        const struct seen *s = &senders[i].seen[index];
        sum.completed += s->completed;
        sum.aborted += s->aborted;
        sum.abandoned += s->abandoned;
        sum.timeout += s->timeout;
        sum.released += s->released;
    }
    const uint64_t *o = st.outcomes;
    assert_int_equal(o[WEFT_TASK_COMPLETED], sum.completed);
    assert_int_equal(o[WEFT_TASK_ABORTED], sum.aborted);
    assert_int_equal(o[WEFT_TASK_ABANDONED], sum.abandoned);
    assert_int_equal(o[WEFT_TASK_RELEASED], sum.released);
    assert_true(o[WEFT_TASK_TIMEOUT] >= sum.timeout); /* and the sends that failed */
    assert_int_equal(st.sent, o[WEFT_TASK_COMPLETED] + o[WEFT_TASK_ABORTED] +
                                  o[WEFT_TASK_ABANDONED] + o[WEFT_TASK_TIMEOUT] +
                                  o[WEFT_TASK_RELEASED]);
    assert_int_equal(st.busy, 0);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.fallback_wakes, 0);
    printf("%s: %llu sent, %llu completed, %llu aborted, %llu abandoned, %llu timeout, "
           "%llu restarts, %llu late wakes\n",
           weft_worker_name(w), (unsigned long long)st.sent,
           (unsigned long long)o[WEFT_TASK_COMPLETED], (unsigned long long)o[WEFT_TASK_ABORTED],
           (unsigned long long)o[WEFT_TASK_ABANDONED], (unsigned long long)o[WEFT_TASK_TIMEOUT],
           (unsigned long long)st.restarts, (unsigned long long)st.late_wakes);
}

static void run(weft_descriptor_kind kind, uint64_t per_sender)
{
    uint64_t total = per_sender * SENDERS;
    ledger.freed = calloc(total, sizeof *ledger.freed);
    ledger.received = calloc(total, sizeof *ledger.received);
    atomic_store(&ledger.updates_made, 0);
    atomic_store(&ledger.updates_freed, 0);
    atomic_store(&ledger.quiet, false);

    weft_runtime *rt;
    weft_runtime_options two = {.workers = 2};
    weft_registry *reg;
    weft_registry_options ro = {.descriptors = kind};
    weft_worker *workers[WORKERS];
    assert_int_equal(weft_runtime_new(&two, &rt), 0);
    assert_int_equal(weft_registry_new(&ro, &reg), 0);
    weft_worker_options o = {.loop = loop,
                             .seats = 3,
                             .backoff = WEFT_MSEC,
                             .backoff_max = 5 * WEFT_MSEC,
                             .max_failures = -1,
                             .grace = 100 * WEFT_SEC};
    assert_int_equal(weft_worker_start(reg, "threads", &o, &workers[0]), 0);
    o.runtime = rt;
    assert_int_equal(weft_worker_start(reg, "fibers", &o, &workers[1]), 0);

    struct sender *senders = calloc(SENDERS, sizeof *senders);
    pthread_t threads[SENDERS], restarts;
    weft_task *fibers[SENDERS];
    struct restarter restarter = {workers, false};
    for (int i = 0; i < SENDERS; i++) {
        struct sender *s = &senders[i];
        memcpy(s->workers, workers, sizeof workers);
        s->first = (uint64_t)i * per_sender;
        s->count = per_sender;
        s->random = test_seed() * (uint64_t)(2 * i + 1) | 1;
        s->kind = i >= THREADS + FIBERS;
        if (i >= THREADS && i < THREADS + FIBERS)
            assert_int_equal(weft_spawn(rt, send_all, s, NULL, &fibers[i]), 0);
        else
            assert_int_equal(pthread_create(&threads[i], NULL, send_thread, s), 0);
    }
    assert_int_equal(pthread_create(&restarts, NULL, restart_thread, &restarter), 0);
    for (int i = 0; i < SENDERS; i++) {
        if (i >= THREADS && i < THREADS + FIBERS) {
            assert_int_equal(weft_task_join(fibers[i], WEFT_NEVER, NULL), 0);
            weft_task_unref(fibers[i]);
        } else {
            pthread_join(threads[i], NULL);
        }
    }
    atomic_store(&restarter.done, true);
    atomic_store(&ledger.quiet, true);
    pthread_join(restarts, NULL);
    assert_int_equal(weft_registry_stop(reg, ms(60000), NULL, 0), 0);
    for (int i = 0; i < WORKERS; i++) {
        check_worker(workers[i], senders, i);
        weft_worker_unref(workers[i]);
    }
    weft_registry_free(reg);
    weft_runtime_free(rt);
    for (uint64_t i = 0; i < total; i++) {
        assert_int_equal(atomic_load(&ledger.freed[i]), 1);
        assert_true(atomic_load(&ledger.received[i]) <= 1);
    }
    assert_int_equal(atomic_load(&ledger.updates_made), atomic_load(&ledger.updates_freed));
    free(senders);
    free(ledger.freed);
    free(ledger.received);
}

static void the_ledger_balances(void **state)
{
    (void)state;
    struct resources before, after;
    char why[512];
    test_seed();
    run(WEFT_DESCRIPTOR_EVENTFD, 10); /* first uses of everything */
    resources_take(&before);
    uint64_t per_sender = test_rounds(1000000 / SENDERS / 2);
    run(WEFT_DESCRIPTOR_EVENTFD, per_sender);
    run(WEFT_DESCRIPTOR_SOCKETPAIR, per_sender);
    /* The thread sanitizer maps memory of its own as it goes. */
    struct resources_slack slack = {.maps = 1024, .rss = (size_t)256 << 20};
    if (!resources_same(&before, &after, &slack, why, sizeof why))
        fail_msg("%s", why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_ledger_balances)};
    test_limit(110, "bgworker_ledger");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

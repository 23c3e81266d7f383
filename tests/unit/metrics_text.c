/* SPDX-License-Identifier: MIT
 *
 * Metrics: the exposition text, figures that add up, and writing while everything else
 * goes on, also from inside a metric.
 */
#include "bgworker_common.h"

#include "weft/metrics.h"
#include "weft/mutex.h"

#include <unistd.h>

struct sink {
    char text[65536];
    size_t size;
};

static int to_sink(void *arg, const void *data, size_t size)
{
    struct sink *s = arg;
    if (s->size + size >= sizeof s->text)
        return -ENOSPC;
    memcpy(s->text + s->size, data, size);
    s->size += size;
    s->text[s->size] = '\0';
    return 0;
}

/* Times differ from run to run: what follows the name up to the line's end. */
static void mask(char *text, const char *name)
{
    for (char *at = text; (at = strstr(at, name)); at++) {
        char *end = strchr(at, '\n');
        if (!end || (at > text && at[-1] != '\n'))
            continue;
        char *number = memrchr(at, ' ', (size_t)(end - at));
        memmove(number + 2, end, strlen(end) + 1);
        number[1] = 'T';
    }
}

static double forty_two(void *arg)
{
    return *(double *)arg;
}

static void the_text_is_as_expected(void **state)
{
    (void)state;
    static struct sink sink;
    weft_metrics *m;
    weft_registry *reg = new_registry();
    weft_worker_options o = {.scope = "a \"quoted\" scope"};
    weft_worker *w;
    weft_seat *seat;
    weft_sent *sent[5];
    weft_received *r;
    weft_buffer *b = NULL;
    assert_int_equal(weft_metrics_new(&m), 0);
    assert_int_equal(weft_metrics_write(m, to_sink, &sink), 0);
    assert_int_equal(sink.size, 0);
    assert_int_equal(weft_metrics_add_registry(m, reg, NULL), 0);
    assert_int_equal(weft_worker_start(reg, "mail", &o, &w), 0);
    assert_int_equal(weft_worker_attach(w, &seat), 0);
    weft_seat_tick(seat);
    /* One completed, one aborted, one abandoned, one too late, one in hand, one queued. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &sent[i]), 0);
        assert_int_equal(weft_seat_receive(seat, WEFT_TRY, &r), 0);
        if (i == 0)
            weft_received_free(r);
        if (i == 1)
            weft_sent_abandon(sent[i]);
    }
    weft_seat_detach(seat); /* aborts the third */
    assert_int_equal(weft_worker_attach(w, &seat), 0);
    weft_seat_tick(seat);
    assert_int_equal(weft_worker_send(w, NULL, ms(5), &sent[3]), -ETIMEDOUT);
    assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &sent[3]), 0);
    assert_int_equal(weft_seat_receive(seat, WEFT_TRY, &r), 0);
    assert_int_equal(weft_worker_post(w, NULL, WEFT_NEVER, &sent[4]), 0);
    double x = 42, y = 0.5;
    weft_metric v = {.name = "app_x", .help = "An x.", .read = forty_two, .arg = &x};
    assert_int_equal(weft_metrics_add_value(m, &v, NULL), 0);
    v = (weft_metric){.name = "app_n", .kind = WEFT_METRIC_COUNTER, .read = forty_two, .arg = &x};
    assert_int_equal(weft_metrics_add_value(m, &v, NULL), 0);
    v = (weft_metric){.name = "app_x", .labels = "k=\"v\"", .read = forty_two, .arg = &y};
    assert_int_equal(weft_metrics_add_value(m, &v, NULL), 0);

    assert_int_equal(weft_metrics_write(m, to_sink, &sink), 0);
    mask(sink.text, "weft_worker_task_seconds_total");
#define L "{worker=\"mail\",scope=\"a \\\"quoted\\\" scope\"} "
#define O(outcome)                                                                                 \
    "weft_worker_tasks_total{worker=\"mail\",scope=\"a \\\"quoted\\\" scope\",outcome=\"" outcome  \
    "\"} "
    assert_string_equal(
        sink.text,
        "# HELP weft_total_workers Seats of the worker.\n"
        "# TYPE weft_total_workers gauge\n"
        "weft_total_workers" L "1\n"
        "# HELP weft_ready_workers Seats past their ready point.\n"
        "# TYPE weft_ready_workers gauge\n"
        "weft_ready_workers" L "1\n"
        "# HELP weft_busy_workers Seats with a task in hand.\n"
        "# TYPE weft_busy_workers gauge\n"
        "weft_busy_workers" L "1\n"
        "# HELP weft_given_up_workers Seats with too many failures.\n"
        "# TYPE weft_given_up_workers gauge\n"
        "weft_given_up_workers" L "0\n"
        "# HELP weft_worker_queue_depth Tasks waiting for pickup.\n"
        "# TYPE weft_worker_queue_depth gauge\n"
        "weft_worker_queue_depth" L "1\n"
        "# HELP weft_worker_tasks_sent_total Tasks accepted.\n"
        "# TYPE weft_worker_tasks_sent_total counter\n"
        "weft_worker_tasks_sent_total" L "6\n"
        "# HELP weft_worker_task_seconds_total Time spent on tasks, from pickup to "
        "close.\n"
        "# TYPE weft_worker_task_seconds_total counter\n"
        "weft_worker_task_seconds_total" L "T\n"
        "# HELP weft_worker_restarts_total Loops run again.\n"
        "# TYPE weft_worker_restarts_total counter\n"
        "weft_worker_restarts_total" L "0\n"
        "# HELP weft_worker_failures_total Loops that failed.\n"
        "# TYPE weft_worker_failures_total counter\n"
        "weft_worker_failures_total" L "0\n"
        "# HELP weft_worker_fallback_wakeups_total Wake-ups that had been lost.\n"
        "# TYPE weft_worker_fallback_wakeups_total counter\n"
        "weft_worker_fallback_wakeups_total" L "0\n"
        "# HELP weft_worker_late_wakeups_total Wake-ups that were not followed in "
        "10 ms.\n"
        "# TYPE weft_worker_late_wakeups_total counter\n"
        "weft_worker_late_wakeups_total" L "0\n"
        "# HELP weft_worker_tasks_total Tasks that have ended, by outcome.\n"
        "# TYPE weft_worker_tasks_total counter\n" O("completed") "1\n" O("aborted") "1\n" O(
            "abandoned") "1\n" O("timeout") "1\n" O("released") "0\n"
                                                                "# HELP app_x An x.\n"
                                                                "# TYPE app_x gauge\n"
                                                                "app_x 42\n"
                                                                "app_x{k=\"v\"} 0.5\n"
                                                                "# TYPE app_n counter\n"
                                                                "app_n 42\n");
    sink.size = 0;
    assert_int_equal(weft_metrics_write_threads(m, to_sink, &sink), 0);
    assert_non_null(strstr(sink.text, "{\"worker\":\"mail\",\"scope\":\"a \\\"quoted\\\" scope\","
                                      "\"seat\":0,\"kind\":\"attached\",\"state\":\"busy\","
                                      "\"age_s\":0.0"));
    char task[64];
    snprintf(task, sizeof task, "\"task\":%llu,\"task_age_s\":0.0",
             (unsigned long long)weft_received_id(r));
    assert_non_null(strstr(sink.text, task));

    weft_received_free(r);
    weft_seat_detach(seat);
    for (int i = 0; i < 5; i++)
        weft_sent_free(sent[i]);
    assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
    weft_worker_unref(w);
    weft_registry_free(reg); /* the metrics don't use it any more: only freed below */
    (void)b;
    weft_metrics_free(m);
}

/* Reads a figure from the text. */
static double figure(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    assert_non_null(at);
    return strtod(strchr(at, ' '), NULL);
}

static int counted_fiber(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void a_runtime_adds_up(void **state)
{
    (void)state;
    static struct sink sink;
    weft_runtime *rt;
    weft_metrics *m;
    weft_metrics_source *source;
    atomic_int ran = 0;
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    assert_int_equal(weft_metrics_new(&m), 0);
    assert_int_equal(weft_metrics_add_runtime(m, "main", rt, &source), 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(weft_spawn(rt, counted_fiber, &ran, NULL, NULL), 0);
    assert_int_equal(weft_runtime_shutdown(rt, ms(20000)), 0);
    assert_int_equal(weft_metrics_write(m, to_sink, &sink), 0); /* after the shutdown */
    double spawned = figure(sink.text, "weft_runtime_tasks_spawned_total{runtime=\"main\"}");
    assert_true(spawned == 1000);
    assert_true(spawned == figure(sink.text, "weft_runtime_tasks_finished_total{") +
                               figure(sink.text, "weft_runtime_tasks_alive{"));
    assert_int_equal(weft_metrics_remove(m, source, WEFT_NEVER), 0);
    weft_runtime_free(rt);
    sink.size = 0;
    sink.text[0] = '\0';
    assert_int_equal(weft_metrics_write(m, to_sink, &sink), 0);
    assert_string_equal(sink.text, "");
    weft_metrics_free(m);
}

/* ---- A scrape in every place at once ---- */

struct busy {
    weft_metrics *m;
    weft_registry *reg;
    weft_mutex mutex;
    atomic_int released, added;
    atomic_bool inside, done;
    int rounds;
};

static int to_nowhere(void *arg, const void *data, size_t size)
{
    (void)arg, (void)data, (void)size;
    return 0;
}

/* Takes a mutex, yields, and writes the metrics it is part of. */
static double nasty(void *arg)
{
    struct busy *b = arg;
    assert_int_equal(weft_mutex_lock(&b->mutex, WEFT_NEVER), 0);
    weft_yield();
    weft_mutex_unlock(&b->mutex);
    if (!atomic_exchange(&b->inside, true)) {
        assert_int_equal(weft_metrics_write(b->m, to_nowhere, NULL), 0);
        atomic_store(&b->inside, false);
    }
    return 1;
}

static void count_release(void *arg)
{
    atomic_fetch_add(&((struct busy *)arg)->released, 1);
}

static int scrapes(void *arg)
{
    struct busy *b = arg;
    for (int i = 0; i < b->rounds; i++) {
        assert_int_equal(weft_metrics_write(b->m, to_nowhere, NULL), 0);
        if (i % 8 == 0)
            assert_int_equal(weft_metrics_write_threads(b->m, to_nowhere, NULL), 0);
    }
    return 0;
}

static void *scrape_thread(void *arg)
{
    scrapes(arg);
    return NULL;
}

static void *comes_and_goes(void *arg)
{
    struct busy *b = arg;
    for (int i = 0; !atomic_load(&b->done); i++) {
        weft_metrics_source *s;
        weft_metric v = {.name = "n", .read = nasty, .release = count_release, .arg = b};
        assert_int_equal(weft_metrics_add_value(b->m, &v, &s), 0);
        atomic_fetch_add(&b->added, 1);
        weft_worker *w = i % 16 ? NULL : start(b->reg, "guest", echo_loop, NULL, 1);
        int r = weft_metrics_remove(b->m, s, i % 2 ? WEFT_NEVER : WEFT_TRY);
        assert_true(r == 0 || r == -EAGAIN);
        if (w) {
            assert_int_equal(weft_worker_stop(w, ms(20000), NULL, 0), 0);
            weft_worker_unref(w);
        }
    }
    return NULL;
}

static void scraping_holds_nobody_up(void **state)
{
    (void)state;
    struct busy b = {.rounds = (int)test_rounds(3000)};
    weft_runtime *rt;
    weft_task *task[2];
    pthread_t threads[2], guests;
    assert_int_equal(weft_mutex_init(&b.mutex), 0);
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    assert_int_equal(weft_metrics_new(&b.m), 0);
    b.reg = new_registry();
    weft_worker *w = start(b.reg, "echo", echo_loop, NULL, 2);
    weft_metrics_source *s;
    weft_metric v = {.name = "nasty", .read = nasty, .release = count_release, .arg = &b};
    assert_int_equal(weft_metrics_add_value(b.m, &v, &s), 0);
    assert_int_equal(weft_metrics_add_registry(b.m, b.reg, NULL), 0);
    assert_int_equal(weft_metrics_add_runtime(b.m, "rt", rt, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_spawn(rt, scrapes, &b, NULL, &task[i]), 0);
        pthread_create(&threads[i], NULL, scrape_thread, &b);
    }
    pthread_create(&guests, NULL, comes_and_goes, &b);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(weft_task_join(task[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(task[i]);
    }
    atomic_store(&b.done, true);
    pthread_join(guests, NULL);
    assert_int_equal(weft_metrics_remove(b.m, s, WEFT_NEVER), 0);
    assert_int_equal(atomic_load(&b.released), atomic_load(&b.added) + 1); /* each once */
    assert_int_equal(weft_registry_stop(b.reg, ms(20000), NULL, 0), 0);
    assert_int_equal(weft_metrics_write(b.m, to_nowhere, NULL), 0); /* after the stop */
    weft_metrics_free(b.m);
    weft_worker_unref(w);
    weft_registry_free(b.reg);
    weft_runtime_free(rt);
}

static void bad_input_is_answered(void **state)
{
    (void)state;
    weft_metrics *m;
    double x = 1;
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(weft_metrics_new(NULL), -EINVAL);
    assert_int_equal(weft_metrics_new(&m), 0);
    weft_metric good = {.name = "good", .read = forty_two, .arg = &x};
    weft_metric bad[] = {
        {.name = NULL, .read = forty_two},
        {.name = "", .read = forty_two},
        {.name = "9x", .read = forty_two},
        {.name = "a b", .read = forty_two},
        {.name = "noread"},
        {.name = longer, .read = forty_two},
        {.name = "x", .help = "two\nlines", .read = forty_two},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(weft_metrics_add_value(m, &bad[i], NULL), -EINVAL);
    assert_int_equal(weft_metrics_add_value(NULL, &good, NULL), -EINVAL);
    assert_int_equal(weft_metrics_add_value(m, &good, NULL), 0);
    assert_int_equal(weft_metrics_add_runtime(m, "x", NULL, NULL), -EINVAL);
    assert_int_equal(weft_metrics_add_registry(m, NULL, NULL), -EINVAL);
    assert_int_equal(weft_metrics_write(m, NULL, NULL), -EINVAL);
    assert_int_equal(weft_metrics_write(NULL, to_nowhere, NULL), -EINVAL);
    assert_int_equal(weft_metrics_write_fd(m, -1), -EBADF);
    assert_int_equal(weft_metrics_remove(m, NULL, WEFT_TRY), -EINVAL);
    int fds[2];
    char text[64];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(weft_metrics_write_fd(m, fds[1]), 0);
    ssize_t n = read(fds[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text, "# TYPE good gauge\ngood 1\n");
    close(fds[0]);
    close(fds[1]);
    weft_metrics_free(m);
    assert_null(weft_metrics_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_as_expected),
        cmocka_unit_test(a_runtime_adds_up),
        cmocka_unit_test(scraping_holds_nobody_up),
        cmocka_unit_test(bad_input_is_answered),
    };
    test_limit(50, "metrics_text");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

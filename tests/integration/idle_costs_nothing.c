/* SPDX-License-Identifier: MIT
 *
 * Idle means idle: a runtime with nothing due makes no wake-ups and uses no processor,
 * whatever it holds: parked tasks, a timer far away, a socket that waits, places for more
 * threads. Counted on the runtime's own threads (a sanitizer has some of its own). */
#include "unit_test.h"

#include <dirent.h>
#include <sys/resource.h>

#include "harness.h"
#include "weft/weft.h"

#define NAME "idler"

struct use {
    unsigned threads;
    uint64_t voluntary, cpu_ns;
};

static bool read_text(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    return n > 0;
}

/* Of the threads called NAME/N. */
static struct use runtime_threads(void)
{
    struct use u = {0, 0, 0};
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[320], text[4096];
        unsigned long long cpu;
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        if (!read_text(path, text, sizeof text) || strncmp(text, NAME "/", strlen(NAME "/")) != 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        if (!read_text(path, text, sizeof text))
            continue;
        const char *v = strstr(text, "\nvoluntary_ctxt_switches:");
        assert_non_null(v);
        u.voluntary += strtoull(v + strlen("\nvoluntary_ctxt_switches:"), NULL, 10);
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        if (read_text(path, text, sizeof text) && sscanf(text, "%llu", &cpu) == 1)
            u.cpu_ns += cpu;
        u.threads++;
    }
    closedir(dir);
    return u;
}

static weft_runtime *begin(unsigned workers, unsigned max)
{
    weft_runtime *rt;
    weft_runtime_options o = {.name = NAME, .workers = workers, .max_workers = max};
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    return rt;
}

/* Lets it come to rest, then looks for `ms`. */
static void must_rest(unsigned threads, unsigned ms, uint64_t most_wakes)
{
    struct use before = {0, 0, 0}, after;
    test_sleep_ms(300);
    before = runtime_threads();
    test_sleep_ms(ms);
    after = runtime_threads();
    assert_int_equal(before.threads, threads);
    assert_int_equal(after.threads, threads);
    uint64_t wakes = after.voluntary - before.voluntary, cpu = after.cpu_ns - before.cpu_ns;
    print_message("%llu wake-ups, %llu us of CPU\n", (unsigned long long)wakes,
                  (unsigned long long)cpu / 1000);
    assert_true(wakes <= most_wakes);
    assert_true(cpu <= (test_sanitized() ? 100 : 20) * 1000000ull);
}

static void with_nothing(void **state)
{
    (void)state;
    weft_runtime *rt = begin(2, 0);
    must_rest(2, 500, 0);
    weft_runtime_free(rt);
}

static void with_places_for_more_threads(void **state)
{
    (void)state;
    weft_runtime *rt = begin(2, 6);
    must_rest(2, 500, 0);
    weft_runtime_free(rt);
}

static int waits(void *arg)
{
    return weft_event_wait(arg, WEFT_NEVER);
}

static int waits_an_hour(void *arg)
{
    return weft_event_wait(arg, weft_after(3600 * WEFT_SEC));
}

static void with_parked_tasks(void **state)
{
    (void)state;
    static weft_event e = WEFT_EVENT_INIT;
    weft_runtime *rt = begin(2, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(weft_spawn(rt, i % 2 ? waits : waits_an_hour, &e, NULL, NULL), 0);
    must_rest(2, 500, 0);
    weft_runtime_free(rt);
}

static int every_200_ms(void *arg)
{
    (void)arg;
    while (weft_sleep(200 * WEFT_MSEC) == 0)
        ;
    return 0;
}

/* A tick may wake the keeper and, for the few rounds after it, a watcher. */
static void with_an_interval(void **state)
{
    (void)state;
    weft_runtime *rt = begin(2, 0);
    assert_int_equal(weft_spawn(rt, every_200_ms, NULL, NULL, NULL), 0);
    must_rest(2, 1000, 60);
    weft_runtime_free(rt);
}

static int reads(void *arg)
{
    char c;
    return (int)weft_fd_read(arg, &c, 1, WEFT_NEVER);
}

static void with_an_idle_socket(void **state)
{
    (void)state;
    weft_runtime *rt = begin(2, 0);
    weft_fd *a, *b;
    assert_int_equal(weft_unix_pair(&a, &b), 0);
    assert_int_equal(weft_spawn(rt, reads, a, NULL, NULL), 0);
    must_rest(2, 500, 0);
    weft_runtime_free(rt);
    weft_fd_unref(a);
    weft_fd_unref(b);
}

static int sleeps_long(void *arg)
{
    return weft_sleep(*(weft_time *)arg);
}

/* Between start and timer not one context switch, and it is on time. */
static void four_workers_and_one_that_sleeps(void **state)
{
    (void)state;
    weft_runtime *rt = begin(4, 0);
    weft_task *t;
    weft_time duration = 1500 * WEFT_MSEC, start = weft_now();
    assert_int_equal(weft_spawn(rt, sleeps_long, &duration, NULL, &t), 0);
    must_rest(4, 800, 0);
    assert_int_equal(weft_task_join(t, weft_after(20 * WEFT_SEC), NULL), 0);
    assert_true(weft_now() - start >= duration);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_nothing),        cmocka_unit_test(with_places_for_more_threads),
        cmocka_unit_test(with_parked_tasks),   cmocka_unit_test(with_an_interval),
        cmocka_unit_test(with_an_idle_socket), cmocka_unit_test(four_workers_and_one_that_sleeps),
    };
    test_limit(60, "idle_costs_nothing");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

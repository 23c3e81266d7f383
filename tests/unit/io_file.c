/* SPDX-License-Identifier: MIT
 *
 * Files and names through the pool: what they answer, and that a caller who gave up leaves
 * nothing that could be written to. */
#include "unit_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/dns.h"
#include "weft/file.h"
#include "weft/net.h"
#include "weft/task.h"

static weft_blocking_pool *pool_of(unsigned threads)
{
    weft_blocking_pool *pool;
    test_limit(60, "io_file");
    assert_int_equal(weft_blocking_pool_new(&(weft_blocking_options){.threads = threads}, &pool),
                     0);
    return pool;
}

static const char *temporary(char path[64])
{
    strcpy(path, "/tmp/weft-file-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(2);
    char path[64], buffer[16] = "";
    weft_file *f = NULL;
    assert_int_equal(weft_file_open(pool, temporary(path), O_RDWR, 0, WEFT_NEVER, &f), 0);
    assert_int_equal(weft_file_write(f, "hello world", 11, 0, WEFT_NEVER), 11);
    assert_int_equal(weft_file_write(f, "W", 1, 6, WEFT_NEVER), 1);
    assert_int_equal(weft_file_size(f, WEFT_NEVER), 11);
    assert_int_equal(weft_file_read(f, buffer, 5, 6, WEFT_NEVER), 5);
    assert_string_equal(buffer, "World");
    assert_int_equal(weft_file_read(f, buffer, 5, 11, WEFT_NEVER), 0);
    assert_int_equal(weft_file_sync(f, WEFT_NEVER), 0);
    assert_true(fcntl(weft_file_number(f), F_GETFD) & FD_CLOEXEC);
    assert_int_equal(weft_file_read(f, buffer, 5, 0, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_file_read(f, buffer, 5, -1, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_file_read(f, NULL, 5, 0, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_file_read(NULL, buffer, 5, 0, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_file_sync(NULL, WEFT_NEVER), -EINVAL);
    weft_file_unref(f);
    f = NULL;
    assert_int_equal(weft_file_open(pool, "/nowhere/at/all", O_RDONLY, 0, WEFT_NEVER, &f), -ENOENT);
    assert_int_equal(weft_file_open(pool, path, O_RDONLY, 0, WEFT_TRY, &f), -EAGAIN);
    assert_null(f);
    assert_null(weft_file_unref(NULL));
    weft_blocking_pool_free(pool);
    unlink(path);
}

static int snore(void *arg)
{
    test_sleep_ms(*(unsigned *)arg);
    return 0;
}

/* Two slow jobs fill the pool; a read with a limit gives up, and its job never starts. */
static void slow_jobs_do_not_hold_a_read_beyond_its_limit(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(2);
    static unsigned ms = 500;
    char path[64], buffer[8] = "before";
    weft_file *f;
    assert_int_equal(weft_file_open(pool, temporary(path), O_RDWR, 0, WEFT_NEVER, &f), 0);
    assert_int_equal(weft_file_write(f, "after!!", 8, 0, WEFT_NEVER), 8);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_blocking_post(pool, snore, &ms, NULL, WEFT_NEVER), 0);
    weft_blocking_stats s;
    do
        assert_int_equal(weft_blocking_pool_get_stats(pool, &s), 0);
    while (s.running < 2);
    weft_time start = weft_now();
    ssize_t r = weft_file_read(f, buffer, 8, 0, start + 100 * WEFT_MSEC);
    weft_time took = weft_now() - start;
    if (r == -ETIMEDOUT) {
        assert_true(took >= 100 * WEFT_MSEC);
        assert_string_equal(buffer, "before");
        assert_int_equal(weft_blocking_pool_get_stats(pool, &s), 0);
        assert_int_equal(s.expired, 1);
    } else { /* on a machine that stood still */
        assert_true(took >= 300 * WEFT_MSEC);
    }
    weft_file_unref(f);
    weft_blocking_pool_free(pool);
    unlink(path);
}

struct ticker {
    weft__a32 quit;
    unsigned ticks;
};

static int tick(void *arg)
{
    struct ticker *t = arg;
    while (!atom_load_acq(&t->quit)) {
        assert_int_equal(weft_sleep(10 * WEFT_MSEC), 0);
        t->ticks++;
    }
    return 0;
}

struct writer {
    weft_file *file;
    int r;
    size_t done;
};

static int write_much(void *arg)
{
    struct writer *w = arg;
    size_t size = 64u << 20;
    char *data = calloc(1, size);
    w->r = weft_file_write_full(w->file, data, size, 0, weft_after(20 * WEFT_MSEC), &w->done);
    free(data); /* a job that still runs has its own copy */
    return 0;
}

static void a_large_write_keeps_its_limit(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1);
    weft_runtime *rt;
    char path[64];
    struct ticker ticker = {.ticks = 0};
    struct writer w = {.r = 1};
    weft_task *tt, *tw;
    struct stat st;
    assert_int_equal(weft_file_open(pool, temporary(path), O_RDWR, 0, WEFT_NEVER, &w.file), 0);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 1}, &rt), 0);
    assert_int_equal(weft_spawn(rt, tick, &ticker, NULL, &tt), 0);
    assert_int_equal(weft_spawn(rt, write_much, &w, NULL, &tw), 0);
    assert_int_equal(weft_task_join(tw, WEFT_NEVER, NULL), 0);
    assert_true(w.r == -ETIMEDOUT || (w.r == 0 && w.done == 64u << 20));
    weft_file_unref(w.file);
    weft_blocking_pool_free(pool); /* ends what was left */
    assert_int_equal(stat(path, &st), 0);
    assert_true((size_t)st.st_size >= w.done); /* what was reported is there */
    test_sleep_ms(15);
    atom_store_rel(&ticker.quit, 1u);
    assert_int_equal(weft_task_join(tt, WEFT_NEVER, NULL), 0);
    assert_true(ticker.ticks > 0);
    weft_task_unref(tt);
    weft_task_unref(tw);
    weft_runtime_free(rt);
    unlink(path);
}

static void names_become_addresses(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1);
    weft_address a[4];
    int n = weft_resolve(pool, "127.0.0.1:80", WEFT_NEVER, a, 4);
    assert_int_equal(n, 1);
    assert_string_equal(a[0].text, "127.0.0.1:80");
    n = weft_resolve(pool, "[::1]:8080", WEFT_NEVER, a, 4);
    assert_int_equal(n, 1);
    assert_string_equal(a[0].text, "[::1]:8080");
    n = weft_resolve(pool, "localhost:25", WEFT_NEVER, a, 4);
    assert_true(n >= 1);
    for (int i = 0; i < n; i++)
        assert_true(!strcmp(a[i].text, "127.0.0.1:25") || !strcmp(a[i].text, "[::1]:25"));
    assert_int_equal(weft_resolve(pool, "localhost:25", WEFT_NEVER, a, 1), 1);
    static const char *const bad[] = {"", "localhost", ":80", "localhost:", "::1:80", NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(weft_resolve(pool, bad[i], WEFT_NEVER, a, 4), -EINVAL);
    char longest[400];
    memset(longest, 'a', sizeof longest);
    strcpy(longest + 390, ":80");
    assert_int_equal(weft_resolve(pool, longest, WEFT_NEVER, a, 4), -EINVAL);
    assert_int_equal(weft_resolve(pool, "localhost:80", WEFT_TRY, a, 4), -EAGAIN);
    assert_int_equal(weft_resolve(pool, "localhost:80", WEFT_NEVER, a, 0), -EINVAL);
    assert_int_equal(weft_resolve(pool, "localhost:80", WEFT_NEVER, NULL, 4), -EINVAL);
    assert_int_equal(weft_resolve(NULL, "localhost:80", WEFT_NEVER, a, 4), -EINVAL);
    assert_int_equal(weft_resolve(pool, "localhost:no-such-service", WEFT_NEVER, a, 4), -ENOENT);
    weft_blocking_pool_free(pool);
}

static void a_connection_by_name(void **state)
{
    (void)state;
    weft_blocking_pool *pool = pool_of(1);
    weft_fd *listener, *conn = NULL, *peer;
    char address[WEFT_ADDRESS_SIZE], name[WEFT_ADDRESS_SIZE + 16];
    assert_int_equal(weft_tcp_listen("127.0.0.1:0", NULL, &listener), 0);
    assert_true(weft_net_local(listener, address, sizeof address) > 0);
    snprintf(name, sizeof name, "localhost%s", strrchr(address, ':'));
    assert_int_equal(weft_tcp_connect_name(pool, name, weft_after(20 * WEFT_SEC), &conn), 0);
    assert_int_equal(weft_tcp_accept(listener, weft_after(20 * WEFT_SEC), &peer), 0);
    weft_fd_unref(peer);
    weft_fd_unref(conn);
    weft_fd_unref(listener);
    conn = NULL;
    assert_int_equal(weft_tcp_connect_name(pool, name, weft_after(20 * WEFT_SEC), &conn),
                     -ECONNREFUSED);
    assert_int_equal(weft_tcp_connect_name(pool, "localhost", WEFT_NEVER, &conn), -EINVAL);
    assert_int_equal(weft_tcp_connect_name(pool, name, WEFT_NEVER, NULL), -EINVAL);
    assert_null(conn);
    weft_blocking_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(slow_jobs_do_not_hold_a_read_beyond_its_limit),
        cmocka_unit_test(a_large_write_keeps_its_limit),
        cmocka_unit_test(names_become_addresses),
        cmocka_unit_test(a_connection_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

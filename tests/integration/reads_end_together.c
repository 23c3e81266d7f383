/* SPDX-License-Identifier: MIT
 *
 * Many reads that end in the same instant, by one deadline or by a cancellation each: all
 * return, the buffer of each is the caller's again at once (whatever the peer writes
 * afterwards lands nowhere), and every socket can be used again.
 */
#include "unit_test.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "harness.h"
#include "weft/weft.h"

enum { MANY = 1500, BYTES = 64 };

static weft_fd *near_end[MANY], *far_end[MANY];
static weft_time deadline;
static atomic_int waiting, ended;
static weft_event written;

/* Reads into memory that it gives away the moment the call returns; who gets it next
 * must not find it changed by a late read. */
static int reads(void *arg)
{
    weft_fd *fd = *(weft_fd **)arg;
    char *buffer = malloc(BYTES), got[BYTES] = {0};
    assert_non_null(buffer);
    atomic_fetch_add(&waiting, 1);
    int64_t r = weft_fd_read(fd, buffer, BYTES, deadline);
    free(buffer);
    buffer = malloc(BYTES);
    assert_non_null(buffer);
    memset(buffer, 0x5a, BYTES);
    atomic_fetch_add(&ended, 1);
    weft_shield_enter(); /* the cancelled ones, too */
    assert_int_equal(weft_event_wait(&written, weft_after(60 * WEFT_SEC)), 0);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(buffer[i], 0x5a);
    free(buffer);
    assert_int_equal(weft_fd_read(fd, got, BYTES, weft_after(60 * WEFT_SEC)), 4);
    assert_memory_equal(got, "late", 4);
    weft_shield_leave();
    return (int)r;
}

static void wait_for(atomic_int *counter, int n)
{
    for (int i = 0; i < 60000 && atomic_load(counter) < n; i++)
        test_sleep_ms(1);
    assert_int_equal(atomic_load(counter), n);
}

static void end_together(int n, bool cancel)
{
    weft_runtime *rt;
    weft_task *t[MANY];
    atomic_store(&waiting, 0);
    atomic_store(&ended, 0);
    weft_event_init(&written);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(weft_unix_pair(&near_end[i], &far_end[i]), 0);
    deadline = cancel ? WEFT_NEVER : weft_after(500 * WEFT_MSEC);
    for (int i = 0; i < n; i++)
        assert_int_equal(weft_spawn(rt, reads, &near_end[i], NULL, &t[i]), 0);
    wait_for(&waiting, n);
    for (int i = 0; cancel && i < n; i++)
        assert_int_equal(weft_task_cancel(t[i]), 0);
    wait_for(&ended, n);
    assert_true(cancel || weft_now() >= deadline);
    print_message("%d reads %s: all have ended %.0f ms after that\n", n,
                  cancel ? "cancelled" : "at one deadline",
                  cancel ? 0.0 : (double)(weft_now() - deadline) / 1e6);
    for (int i = 0; i < n; i++)
        assert_int_equal(weft_fd_write(far_end[i], "late", 4, weft_after(60 * WEFT_SEC)), 4);
    weft_event_set(&written);
    for (int i = 0; i < n; i++) {
        int result = 0;
        assert_int_equal(weft_task_join(t[i], weft_after(60 * WEFT_SEC), &result), 0);
        assert_int_equal(result, cancel ? -ECANCELED : -ETIMEDOUT);
        weft_task_unref(t[i]);
    }
    weft_runtime_free(rt);
    for (int i = 0; i < n; i++) {
        weft_fd_unref(near_end[i]);
        weft_fd_unref(far_end[i]);
    }
}

static int how_many(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &files);
    int n = (int)test_rounds(MANY);
    return (uint64_t)n * 2 + 64 > files.rlim_cur ? (int)(files.rlim_cur - 64) / 2 : n;
}

static void at_one_deadline(void **state)
{
    (void)state;
    end_together(how_many(), false);
}

static void by_cancellation(void **state)
{
    (void)state;
    end_together(how_many(), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_one_deadline),
        cmocka_unit_test(by_cancellation),
    };
    test_limit(100, "reads_end_together");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

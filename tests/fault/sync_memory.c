/* SPDX-License-Identifier: MIT
 *
 * What the sync room allocates, without memory: each constructor says so and leaves the
 * caller's pointer alone, and nothing else allocates: no wait, no select, no wake. */
#include "unit_test.h"

#include <errno.h>

#include "harness.h"
#include "preload/preload.h"
#include "weft/weft.h"

static void no_memory(void)
{
    const struct preload_rule rule = {
        .action = PRELOAD_FAIL, .error = ENOMEM, .every = 1, .this_thread = true};
    assert_int_equal(preload_set(PRELOAD_MALLOC, &rule), 0);
}

static void constructors_say_so(void **state)
{
    if (!preload_sees(PRELOAD_MALLOC))
        skip();
    void *same = state;
    weft_watch *watch = same;
    weft_channel *channel = same;
    weft_broadcast *broadcast = same;
    weft_mutex *mutex = same;
    weft_semaphore *semaphore = same;
    int item = 1, r[5];
    no_memory();
    r[0] = weft_watch_new(sizeof item, &item, &watch);
    r[1] = weft_channel_new(sizeof item, 4, NULL, &channel);
    r[2] = weft_broadcast_new(sizeof item, 4, &broadcast);
    r[3] = weft_mutex_create(&mutex);
    r[4] = weft_semaphore_create(1, &semaphore);
    preload_reset();
    for (int i = 0; i < 5; i++)
        assert_int_equal(r[i], -ENOMEM);
    assert_true((void *)watch == same && (void *)channel == same && (void *)broadcast == same &&
                (void *)mutex == same && (void *)semaphore == same);
}

static void waits_need_none(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_MALLOC))
        skip();
    weft_watch *watch;
    weft_channel *channel;
    weft_mutex mutex = WEFT_MUTEX_INIT;
    weft_rwlock rwlock = WEFT_RWLOCK_INIT;
    int item = 1, got, r[8];
    uint64_t seen = 0;
    assert_int_equal(weft_watch_new(sizeof item, NULL, &watch), 0);
    assert_int_equal(weft_channel_new(sizeof item, 1, NULL, &channel), 0);
    assert_int_equal(weft_mutex_lock(&mutex, WEFT_TRY), 0);
    assert_int_equal(weft_rwlock_write(&rwlock, WEFT_TRY), 0);
    weft_select_case cases[] = {weft_case_watch(watch, &got, &seen), weft_case_recv(channel, &got),
                                weft_case_mutex(&mutex), weft_case_read_lock(&rwlock)};
    no_memory();
    r[0] = weft_watch_wait(watch, &got, &seen, weft_after(WEFT_MSEC));
    r[1] = weft_select(cases, 4, 0, weft_after(WEFT_MSEC));
    r[2] = weft_watch_set(watch, &item);
    r[3] = weft_select(cases, 4, 0, weft_after(WEFT_MSEC));
    r[4] = weft_mutex_unlock(&mutex);
    r[5] = weft_select(cases, 4, 0, weft_after(WEFT_MSEC));
    r[6] = weft_watch_close(watch);
    r[7] = weft_watch_wait(watch, &got, &seen, WEFT_NEVER);
    bool hit = preload_hits(PRELOAD_MALLOC) > 0;
    preload_reset();
    static const int expected[] = {-ETIMEDOUT, -ETIMEDOUT, 0, 0, 0, 2, 0, -EPIPE};
    for (int i = 0; i < 8; i++)
        assert_int_equal(r[i], expected[i]);
    assert_false(hit);
    assert_int_equal(weft_mutex_unlock(&mutex), 0);
    weft_watch_unref(watch);
    weft_channel_unref(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructors_say_so),
        cmocka_unit_test(waits_need_none),
    };
    test_limit(60, "fault_sync_memory");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * Broadcasts between threads: everybody gets everything in one order, losses are counted
 * exactly, close drains. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/broadcast.h"

static void one_thread(void **state)
{
    (void)state;
    weft_broadcast *b;
    weft_subscriber s, late;
    int item = 0, got = -1;
    assert_int_equal(weft_broadcast_new(4, 0, &b), -EINVAL);
    assert_int_equal(weft_broadcast_new(4, 1, NULL), -EINVAL);
    assert_int_equal(weft_broadcast_new((size_t)1 << 20, (size_t)1 << 28, &b), -EINVAL);
    assert_int_equal(weft_broadcast_new(sizeof(int), 4, &b), 0);
    assert_int_equal(weft_broadcast_send(b, &item), 0); /* nobody listens */
    assert_int_equal(weft_subscribe(b, &s), 0);
    assert_int_equal(weft_subscriber_recv(&s, &got, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_subscriber_recv(&s, &got, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    for (item = 1; item <= 10; item++)
        assert_int_equal(weft_broadcast_send(b, &item), 0);
    assert_int_equal(weft_subscribe(b, &late), 0);
    assert_int_equal(weft_subscriber_recv(&s, &got, WEFT_TRY), -EOVERFLOW);
    assert_int_equal(s.missed, 6);
    assert_int_equal(got, -1);
    weft_select_case c = weft_case_subscriber(&s, &got);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(c.result, 0);
    assert_int_equal(got, 7);
    assert_int_equal(weft_broadcast_close(b), 0);
    assert_int_equal(weft_broadcast_close(b), -EALREADY);
    assert_int_equal(weft_broadcast_send(b, &item), -EPIPE);
    for (int i = 8; i <= 10; i++) {
        assert_int_equal(weft_subscriber_recv(&s, &got, WEFT_NEVER), 0);
        assert_int_equal(got, i);
    }
    assert_int_equal(weft_subscriber_recv(&s, &got, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_subscriber_recv(&late, &got, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_subscriber_recv(&late, NULL, WEFT_NEVER), -EINVAL);
    weft_broadcast_unref(b); /* the subscribers keep it */
    weft_unsubscribe(&s);
    weft_unsubscribe(&s);
    weft_unsubscribe(&late);
    assert_int_equal(weft_subscriber_recv(&s, &got, WEFT_NEVER), -EINVAL);
    weft_select_case none = weft_case_subscriber(&s, &got);
    assert_int_equal(weft_select(&none, 1, 0, WEFT_TRY), -EINVAL);
}

static weft_broadcast *news;
static weft__a32 ready;
static uint64_t count;

static void *listen(void *arg)
{
    weft_subscriber s;
    uint64_t seen = 0, lost = 0, before = 0, item = 0;
    bool impatient = arg != NULL;
    int r;
    assert_int_equal(weft_subscribe(news, &s), 0);
    atom_add_rlx(&ready, 1u);
    for (;;) {
        r = weft_subscriber_recv(&s, &item,
                                 impatient ? weft_after((weft_time)(seen % 5) * 1000) : WEFT_NEVER);
        if (r == -EPIPE)
            break;
        if (r == -EOVERFLOW) {
            lost += s.missed;
            before += s.missed;
        } else if (r == 0) {
            assert_int_equal(item, before + 1);
            before = item;
            seen++;
        } else {
            assert_int_equal(r, -ETIMEDOUT);
        }
    }
    assert_int_equal(seen + lost, count);
    weft_unsubscribe(&s);
    return NULL;
}

static void every_item_is_received_or_counted(void **state)
{
    (void)state;
    count = test_rounds(100000);
    for (size_t capacity = 1; capacity <= 256; capacity *= 16) {
        pthread_t threads[6];
        atom_store_rlx(&ready, 0u);
        assert_int_equal(weft_broadcast_new(sizeof(uint64_t), capacity, &news), 0);
        for (uintptr_t i = 0; i < 6; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, listen, (void *)(i % 2)), 0);
        while (atom_load_acq(&ready) != 6)
            test_sleep_ms(1);
        for (uint64_t i = 1; i <= count; i++)
            assert_int_equal(weft_broadcast_send(news, &i), 0);
        weft_broadcast_close(news);
        for (int i = 0; i < 6; i++)
            pthread_join(threads[i], NULL);
        weft_broadcast_unref(news);
    }
}

int main(void)
{
    test_limit(55, "sync_broadcast");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(every_item_is_received_or_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

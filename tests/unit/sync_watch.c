/* SPDX-License-Identifier: MIT
 *
 * Watches between threads: the newest value, each version at most once, no torn item,
 * deadlines, close, a place among the cases of a select. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "harness.h"
#include "weft/channel.h"
#include "weft/watch.h"

static void one_thread(void **state)
{
    (void)state;
    weft_watch *w = NULL, *same = (weft_watch *)state;
    uint64_t seen = 0, version = 99;
    int item = 1, got = -1;
    assert_int_equal(weft_watch_new(4, NULL, NULL), -EINVAL);
    assert_int_equal(weft_watch_new(((size_t)1 << 20) + 1, NULL, &same), -EINVAL);
    assert_ptr_equal(same, state);

    /* Without a first item. */
    assert_int_equal(weft_watch_new(sizeof(int), NULL, &w), 0);
    assert_int_equal(weft_watch_item_size(w), sizeof(int));
    assert_int_equal(weft_watch_get(w, &got, &version), -ENODATA);
    assert_int_equal(version, 0);
    assert_int_equal(weft_watch_wait(w, &got, &seen, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_watch_wait(w, &got, &seen, 1), -ETIMEDOUT);
    weft_time soon = weft_after(2 * WEFT_MSEC);
    assert_int_equal(weft_watch_wait(w, &got, &seen, soon), -ETIMEDOUT);
    assert_true(weft_now() >= soon);
    assert_int_equal(got, -1);
    assert_int_equal(seen, 0);

    /* Only the latest counts, once; ready wins over a deadline that has passed. */
    for (item = 1; item <= 3; item++)
        assert_int_equal(weft_watch_set(w, &item), 0);
    assert_int_equal(weft_watch_wait(w, &got, &seen, 1), 0);
    assert_int_equal(got, 3);
    assert_int_equal(seen, 3);
    assert_int_equal(weft_watch_wait(w, &got, &seen, WEFT_TRY), -EAGAIN);
    seen = 5; /* not there yet */
    assert_int_equal(weft_watch_set(w, &item), 0);
    assert_int_equal(weft_watch_set(w, &item), 0);
    assert_int_equal(weft_watch_wait(w, &got, &seen, 1), -ETIMEDOUT);
    item = 77;
    assert_int_equal(weft_watch_set(w, &item), 0);
    assert_int_equal(weft_watch_wait(w, NULL, &seen, 1), 0);
    assert_int_equal(got, 3);
    assert_int_equal(seen, 6);
    assert_int_equal(weft_watch_get(w, &got, NULL), 0);
    assert_int_equal(got, 77);

    /* Closed: what is new first, then the end; the last value stays. */
    item = 78;
    assert_int_equal(weft_watch_set(w, &item), 0);
    assert_false(weft_watch_is_closed(w));
    assert_int_equal(weft_watch_close(w), 0);
    assert_true(weft_watch_is_closed(w));
    assert_int_equal(weft_watch_close(w), -EALREADY);
    assert_int_equal(weft_watch_set(w, &item), -EPIPE);
    weft_select_case c = weft_case_watch(w, &got, &seen);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(c.result, 0);
    assert_int_equal(got, 78);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(c.result, -EPIPE);
    assert_int_equal(weft_watch_wait(w, &got, &seen, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_watch_get(w, &got, &version), 0);
    assert_int_equal(version, 7);

    /* Wrong arguments. */
    assert_int_equal(weft_watch_set(NULL, &item), -EINVAL);
    assert_int_equal(weft_watch_set(w, NULL), -EINVAL);
    assert_int_equal(weft_watch_get(NULL, &got, NULL), -EINVAL);
    assert_int_equal(weft_watch_wait(NULL, &got, &seen, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_watch_wait(w, &got, NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_watch_close(NULL), -EINVAL);
    assert_int_equal(weft_watch_item_size(NULL), 0);
    assert_false(weft_watch_is_closed(NULL));
    c = weft_case_watch(NULL, &got, &seen);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_TRY), -EINVAL);
    c = weft_case_watch(w, &got, NULL);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_TRY), -EINVAL);
    assert_null(weft_watch_ref(NULL));
    assert_ptr_equal(weft_watch_ref(w), w);
    assert_null(weft_watch_unref(w));
    assert_null(weft_watch_unref(w));
    assert_null(weft_watch_unref(NULL));

    /* Of size 0 it is a version only; with a first item there is something at once. */
    assert_int_equal(weft_watch_new(0, NULL, &w), 0);
    seen = 0;
    assert_int_equal(weft_watch_set(w, NULL), 0);
    assert_int_equal(weft_watch_wait(w, NULL, &seen, WEFT_TRY), 0);
    assert_int_equal(seen, 1);
    weft_watch_unref(w);
    assert_int_equal(weft_watch_new(sizeof item, &item, &w), 0);
    seen = 0;
    assert_int_equal(weft_watch_wait(w, &got, &seen, WEFT_TRY), 0);
    assert_int_equal(got, 78);
    assert_int_equal(seen, 1);
    weft_watch_unref(w);
}

/* ---- Several threads ---- */

enum { WORDS = 200, SETTERS = 2, RECEIVERS = 4 };

/* All words are the same, or it is torn. */
struct big {
    uint64_t word[WORDS];
};

struct shared {
    weft_watch *watch;
    weft_channel *never;
    uint64_t sets;
    weft__a64 wrong, received;
};

static uint64_t value_of(struct shared *s, const struct big *b)
{
    for (int i = 1; i < WORDS; i++)
        if (b->word[i] != b->word[0])
            atom_add_rlx(&s->wrong, 1u);
    return b->word[0];
}

static void *setter(void *arg)
{
    struct shared *s = arg;
    struct big b;
    for (uint64_t n = 1; n <= s->sets; n++) {
        for (int i = 0; i < WORDS; i++)
            b.word[i] = n;
        assert_int_equal(weft_watch_set(s->watch, &b), 0);
        if (n % 64 == 0)
            test_sleep_ms(0);
    }
    return NULL;
}

struct receiver {
    struct shared *shared;
    int how;
    uint64_t last, seen;
};

static void *receiver(void *arg)
{
    struct receiver *r = arg;
    struct shared *s = r->shared;
    struct big b = {{0}};
    int item;
    for (;;) {
        uint64_t before = r->seen;
        int result;
        if (r->how % 2) {
            weft_select_case cases[] = {weft_case_recv(s->never, &item),
                                        weft_case_watch(s->watch, &b, &r->seen),
                                        weft_case_time(weft_after(50 * WEFT_USEC))};
            int i = weft_select(cases, 3, 0, WEFT_NEVER);
            result = i == 1 ? cases[1].result : i == 2 ? -ETIMEDOUT : i;
        } else {
            result = weft_watch_wait(s->watch, &b, &r->seen,
                                     r->how ? weft_after(50 * WEFT_USEC) : WEFT_NEVER);
        }
        if (result == 0) {
            if (r->seen <= before)
                atom_add_rlx(&s->wrong, 1u); /* twice, or backwards */
            r->last = value_of(s, &b);
            atom_add_rlx(&s->received, 1u);
        } else if (r->seen != before) {
            atom_add_rlx(&s->wrong, 1u);
        }
        if (result == -EPIPE)
            return NULL;
        if (result && result != -ETIMEDOUT)
            atom_add_rlx(&s->wrong, 1u);
    }
}

static void everybody_sees_the_last(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < test_rounds(10); round++) {
        struct shared s = {.sets = 2000};
        pthread_t set[SETTERS], get[RECEIVERS];
        struct receiver r[RECEIVERS];
        struct big b;
        uint64_t version;
        assert_int_equal(weft_watch_new(sizeof(struct big), NULL, &s.watch), 0);
        assert_int_equal(weft_channel_new(sizeof(int), 1, NULL, &s.never), 0);
        for (int i = 0; i < RECEIVERS; i++) {
            r[i] = (struct receiver){.shared = &s, .how = i};
            assert_int_equal(pthread_create(&get[i], NULL, receiver, &r[i]), 0);
        }
        for (int i = 0; i < SETTERS; i++)
            assert_int_equal(pthread_create(&set[i], NULL, setter, &s), 0);
        for (int i = 0; i < SETTERS; i++)
            pthread_join(set[i], NULL);
        assert_int_equal(weft_watch_close(s.watch), 0);
        assert_int_equal(weft_watch_get(s.watch, &b, &version), 0);
        assert_int_equal(version, SETTERS * s.sets);
        for (int i = 0; i < RECEIVERS; i++) {
            pthread_join(get[i], NULL);
            assert_int_equal(r[i].seen, version);
            assert_int_equal(r[i].last, b.word[0]);
        }
        assert_int_equal(atom_load_rlx(&s.wrong), 0);
        assert_in_range(atom_load_rlx(&s.received), RECEIVERS, RECEIVERS * version);
        weft_watch_unref(s.watch);
        weft_channel_unref(s.never);
    }
}

/* ---- Many who wait ---- */

enum { MANY = 150 }; /* more than are woken in one batch */

struct waiting {
    weft_watch *watch;
    uint64_t seen;
    int got, result;
};

static void *wait_once(void *arg)
{
    struct waiting *w = arg;
    w->result = weft_watch_wait(w->watch, &w->got, &w->seen, weft_after(40 * WEFT_SEC));
    return NULL;
}

/* Every third waits for a later version than the others, and stays. */
static void many_wait(bool closes)
{
    static struct waiting w[MANY];
    static pthread_t t[MANY];
    weft_watch *watch;
    int item = 5;
    assert_int_equal(weft_watch_new(sizeof(int), &item, &watch), 0);
    for (int i = 0; i < MANY; i++) {
        w[i] = (struct waiting){.watch = watch, .seen = i % 3 ? 1 : 2, .got = -1};
        assert_int_equal(pthread_create(&t[i], NULL, wait_once, &w[i]), 0);
    }
    test_sleep_ms(20);
    item = 6;
    if (closes)
        weft_watch_close(watch);
    else
        assert_int_equal(weft_watch_set(watch, &item), 0);
    for (int i = 0; i < MANY; i++)
        if (i % 3)
            pthread_join(t[i], NULL);
    item = 7;
    assert_int_equal(weft_watch_set(watch, &item), closes ? -EPIPE : 0);
    for (int i = 0; i < MANY; i++) {
        if (i % 3 == 0)
            pthread_join(t[i], NULL);
        assert_int_equal(w[i].result, closes ? -EPIPE : 0);
        if (closes)
            assert_int_equal(w[i].got, -1);
        else if (i % 3 == 0)
            assert_int_equal(w[i].got, 7);
        else
            assert_int_equal(w[i].got, 6);
    }
    weft_watch_unref(watch);
}

static void a_set_wakes_all_who_wait_for_it(void **state)
{
    (void)state;
    many_wait(false);
    many_wait(true);
}

int main(void)
{
    test_limit(60, "sync_watch");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(everybody_sees_the_last),
        cmocka_unit_test(a_set_wakes_all_who_wait_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

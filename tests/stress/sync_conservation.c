/* SPDX-License-Identifier: MIT
 *
 * The ledger: over channels and selects, with fibers and threads, deadlines of 0 to
 * 50 us, tasks cancelled at random and closes, every item that a send reported as
 * sent is received exactly once or still in its channel, and no other item is.
 */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"
#include "weft/weft.h"

enum { CHANNELS = 3, TASKS = 6, MAX_ITEMS = 1 << 20 };

struct ledger {
    weft_channel *ch[CHANNELS];
    uint64_t seed, limit;            /* how many items are made at most */
    _Atomic uint64_t next, rng_next; /* item numbers; seeds of tasks */
    _Atomic unsigned char *fate;     /* per item: MADE, SENT, RECEIVED */
    _Atomic uint64_t sent, received, canceled, timedout, tried;
};

enum { NEVER_MADE = 0, SENT = 1, RECEIVED = 2 };

static uint64_t random_of(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static uint64_t task_seed(struct ledger *l)
{
    return (l->seed + atomic_fetch_add(&l->rng_next, 1) + 1) * 0x9e3779b97f4a7c15u | 1u;
}

static weft_time some_deadline(uint64_t *rng)
{
    uint64_t x = random_of(rng) >> 16;
    return x % 16 == 0   ? WEFT_TRY
           : x % 16 == 1 ? weft_after(20 * WEFT_MSEC)
                         : weft_now() + (weft_time)(x >> 8) % 50000;
}

/* True: go on. */
static bool count_error(struct ledger *l, int r)
{
    if (r == -ETIMEDOUT)
        atomic_fetch_add(&l->timedout, 1);
    else if (r == -ECANCELED)
        atomic_fetch_add(&l->canceled, 1);
    else if (r == -EAGAIN)
        atomic_fetch_add(&l->tried, 1);
    else
        assert_int_equal(r, -EPIPE);
    return r == -ETIMEDOUT || r == -EAGAIN;
}

/* The send and the receive may meet in any order here. */
static void note(struct ledger *l, uint64_t item, unsigned char what)
{
    assert_true(item < MAX_ITEMS);
    assert_int_equal(atomic_fetch_or(&l->fate[item], what) & what, 0); /* never twice */
}

static int send_task(void *arg)
{
    struct ledger *l = arg;
    uint64_t rng = task_seed(l), item;
    int r;
    do {
        if ((item = atomic_fetch_add(&l->next, 1)) >= l->limit)
            return -EPIPE; /* no more */
        if (random_of(&rng) % 3 == 0) {
            r = weft_channel_send(l->ch[item % CHANNELS], &item, some_deadline(&rng));
        } else {
            weft_select_case cases[CHANNELS];
            for (int k = 0; k < CHANNELS; k++)
                cases[k] = weft_case_send(l->ch[k], &item);
            r = weft_select(cases, CHANNELS, 0, some_deadline(&rng));
            if (r >= 0)
                r = cases[r].result;
        }
        if (r == 0) {
            note(l, item, SENT);
            atomic_fetch_add(&l->sent, 1);
        }
    } while (r == 0 || count_error(l, r));
    return r;
}

static int recv_task(void *arg)
{
    struct ledger *l = arg;
    uint64_t rng = task_seed(l);
    int r, closed = 0;
    bool off[CHANNELS] = {false};
    do {
        uint64_t items[CHANNELS];
        memset(items, 0xff, sizeof items);
        int k = (int)(random_of(&rng) % CHANNELS);
        if (random_of(&rng) % 3 == 0) {
            r = off[k] ? -EAGAIN : weft_channel_recv(l->ch[k], &items[k], some_deadline(&rng));
        } else {
            weft_select_case cases[CHANNELS];
            for (int i = 0; i < CHANNELS; i++) {
                cases[i] = weft_case_recv(l->ch[i], &items[i]);
                cases[i].off = off[i];
            }
            r = weft_select(cases, CHANNELS, 0, some_deadline(&rng));
            if (r >= 0) {
                k = r;
                r = cases[k].result;
            }
        }
        for (int i = 0; i < CHANNELS; i++)
            assert_true((r == 0 && i == k) || items[i] == UINT64_MAX); /* untouched */
        if (r == 0) {
            note(l, items[k], RECEIVED);
            atomic_fetch_add(&l->received, 1);
        }
        if (r == -EPIPE) {
            off[k] = true;
            if (++closed == CHANNELS)
                return r;
            r = 0;
        }
    } while (r == 0 || count_error(l, r));
    return r;
}

static void *send_thread(void *arg)
{
    send_task(arg);
    return NULL;
}

/* Keeps TASKS tasks of each kind alive, cancels them at random, until none is wanted. */
static void drive(struct ledger *l, weft_runtime *rt)
{
    weft_task *tasks[2 * TASKS] = {NULL};
    uint64_t rng = task_seed(l);
    int alive;
    do {
        alive = 0;
        for (int i = 0; i < 2 * TASKS; i++) {
            int result = 0;
            if (tasks[i] && weft_task_join(tasks[i], WEFT_TRY, &result) == 0)
                tasks[i] = weft_task_unref(tasks[i]);
            if (!tasks[i] && result != -EPIPE && atomic_load(&l->next) < l->limit)
                assert_int_equal(
                    weft_spawn(rt, i < TASKS ? send_task : recv_task, l, NULL, &tasks[i]), 0);
            if (tasks[i] && random_of(&rng) % 8 == 0)
                weft_task_cancel(tasks[i]);
            alive += tasks[i] && i < TASKS;
        }
        weft_sleep(100 * WEFT_USEC);
    } while (alive || atomic_load(&l->next) < l->limit);
    for (int k = 0; k < CHANNELS; k++)
        weft_channel_close(l->ch[k]);
    for (int i = 0; i < 2 * TASKS; i++) {
        if (tasks[i])
            assert_int_equal(weft_task_join(tasks[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(tasks[i]);
    }
}

static void drain_and_check(struct ledger *l)
{
    uint64_t item, length = 0, expected = 0;
    for (int k = 0; k < CHANNELS; k++) {
        weft_channel_stats s;
        assert_int_equal(weft_channel_get_stats(l->ch[k], &s), 0);
        assert_int_equal(s.senders_waiting + s.receivers_waiting, 0);
        while (weft_channel_recv(l->ch[k], &item, WEFT_TRY) == 0) {
            note(l, item, RECEIVED);
            length++;
        }
        expected += s.length;
        assert_int_equal(length, expected);
        weft_channel_unref(l->ch[k]);
    }
    uint64_t balanced = 0;
    for (uint64_t i = 0; i < MAX_ITEMS; i++) {
        unsigned char fate = atomic_load(&l->fate[i]);
        assert_true(fate == NEVER_MADE || fate == (SENT | RECEIVED));
        balanced += fate != NEVER_MADE;
    }
    assert_int_equal(balanced, atomic_load(&l->sent));
    assert_int_equal(balanced, atomic_load(&l->received) + length);
    print_message("sent %llu, left %llu; %llu timed out, %llu cancelled, %llu tried\n",
                  (unsigned long long)balanced, (unsigned long long)length,
                  (unsigned long long)l->timedout, (unsigned long long)l->canceled,
                  (unsigned long long)l->tried);
    assert_true(balanced > 0);
}

static void run(size_t capacity, unsigned workers, bool early_close)
{
    struct ledger l = {.seed = test_seed()};
    weft_runtime_options o = {.workers = workers};
    weft_runtime *rt;
    pthread_t t[2];
    l.limit = test_rounds(early_close ? 10000 : 30000);
    l.limit = l.limit > MAX_ITEMS ? MAX_ITEMS : l.limit;
    assert_non_null(l.fate = calloc(MAX_ITEMS, 1));
    for (int k = 0; k < CHANNELS; k++)
        assert_int_equal(weft_channel_new(sizeof(uint64_t), capacity, NULL, &l.ch[k]), 0);
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, send_thread, &l), 0);
    if (early_close) {
        test_sleep_ms(5);
        weft_channel_close(l.ch[0]);
        test_sleep_ms(5);
        weft_channel_close(l.ch[1]);
    }
    drive(&l, rt);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    weft_runtime_free(rt);
    drain_and_check(&l);
    free((void *)l.fate);
}

static void rendezvous_one_worker(void **state)
{
    (void)state;
    run(0, 1, false);
}

static void rendezvous_two_workers(void **state)
{
    (void)state;
    run(0, 2, false);
}

static void buffered_one_worker(void **state)
{
    (void)state;
    run(1, 1, false);
    run(16, 1, false);
}

static void buffered_two_workers(void **state)
{
    (void)state;
    run(4, 2, false);
    run(16, 2, false);
}

static void closes_in_between(void **state)
{
    (void)state;
    run(0, 2, true);
    run(2, 2, true);
    run(16, 2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rendezvous_one_worker), cmocka_unit_test(rendezvous_two_workers),
        cmocka_unit_test(buffered_one_worker),   cmocka_unit_test(buffered_two_workers),
        cmocka_unit_test(closes_in_between),
    };
    test_limit(100, "sync_conservation");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * A channel under everything at once: single items, batches, tries, deadlines, places
 * reserved, readiness, counts, tasks that are cancelled, threads beside fibers, and a close
 * at the end. So sides are shut and opened while others are in them. Each item comes once,
 * each receiver sees a sender's items in order, and what is counted adds up at any moment.
 */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"
#include "weft/weft.h"

enum { SENDERS = 5, RECEIVERS = 4, BATCH = 20 };

/* The size of an item differs from round to round: 8 bytes, or this with more behind. */
struct item {
    uint32_t from, number;
    uint64_t more[2]; /* copies of the first 8 bytes */
};

struct test {
    weft_channel *ch;
    size_t item_size;
    uint32_t each;
    uint64_t seed;
    _Atomic uint64_t seeds, sent, received, sum_sent, sum_received;
    _Atomic bool over;
};

struct end {
    struct test *t;
    uint32_t number;
};

static uint64_t random_of(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static uint64_t next_seed(struct test *t)
{
    return (t->seed + atomic_fetch_add(&t->seeds, 1) + 1) * 0x9e3779b97f4a7c15u | 1u;
}

static weft_time some_deadline(uint64_t *rng)
{
    uint64_t x = random_of(rng) >> 20;
    return x % 4 == 0 ? WEFT_TRY : x % 4 == 1 ? weft_now() + (weft_time)(x % 30000) : WEFT_NEVER;
}

static void fill(const struct test *t, unsigned char *to, uint32_t from, uint32_t number)
{
    struct item item = {from, number, {0, 0}};
    memcpy(&item.more[0], &item, 8);
    memcpy(&item.more[1], &item, 8);
    memcpy(to, &item, t->item_size);
}

static int send_some(struct end *e, uint64_t *rng, uint32_t number, uint32_t left)
{
    struct test *t = e->t;
    unsigned char items[BATCH * sizeof(struct item)];
    uint32_t n = 1;
    int r;
    switch (random_of(rng) >> 8 & 7) {
    case 0: /* several */
        n = (uint32_t)(random_of(rng) >> 8) % BATCH + 1;
        n = n < left ? n : left;
        for (uint32_t i = 0; i < n; i++)
            fill(t, items + i * t->item_size, e->number, number + i);
        return weft_channel_send_batch(t->ch, items, n, some_deadline(rng));
    case 1: /* a place first */
        if ((r = weft_channel_reserve(t->ch, some_deadline(rng))) != 0)
            return r;
        if (random_of(rng) >> 8 & 1) {
            assert_int_equal(weft_channel_release(t->ch), 0);
            return -EAGAIN;
        }
        fill(t, items, e->number, number);
        r = weft_channel_send_reserved(t->ch, items);
        break;
    case 2:
        r = weft_channel_wait_ready(t->ch, WEFT_CHANNEL_WRITABLE, some_deadline(rng));
        return r ? r : -EAGAIN;
    default:
        fill(t, items, e->number, number);
        r = weft_channel_send(t->ch, items, some_deadline(rng));
    }
    return r ? r : 1;
}

static int sender(void *arg)
{
    struct end *e = arg;
    struct test *t = e->t;
    uint64_t rng = next_seed(t);
    uint32_t number = 0;
    while (number < t->each) {
        int r = send_some(e, &rng, number, t->each - number);
        for (int i = 0; i < r; i++, number++)
            atomic_fetch_add(&t->sum_sent, (uint64_t)(e->number + 1) * (number + 1));
        assert_true(r > 0 || r == -EAGAIN || r == -ETIMEDOUT);
    }
    atomic_fetch_add(&t->sent, number);
    return 0;
}

static void check_item(struct test *t, const unsigned char *from, uint32_t *expected)
{
    struct item item;
    memcpy(&item, from, t->item_size);
    assert_true(item.from < SENDERS && item.number >= expected[item.from]);
    expected[item.from] = item.number + 1;
    for (size_t k = 1; k < t->item_size / 8; k++)
        assert_memory_equal(&item, &item.more[k - 1], 8);
    atomic_fetch_add(&t->sum_received, (uint64_t)(item.from + 1) * (item.number + 1));
}

static int receiver(void *arg)
{
    struct end *e = arg;
    struct test *t = e->t;
    uint64_t rng = next_seed(t);
    uint32_t expected[SENDERS] = {0};
    unsigned char items[BATCH * sizeof(struct item)];
    uint64_t got = 0;
    for (;;) {
        weft_select_case one = weft_case_recv(t->ch, items);
        int r;
        switch (random_of(&rng) >> 8 & 7) {
        case 0:
            r = weft_channel_recv_batch(t->ch, items, BATCH, some_deadline(&rng));
            break;
        case 1:
            r = weft_select(&one, 1, 0, some_deadline(&rng));
            r = r == 0 ? (one.result ? one.result : 1) : r;
            break;
        case 2:
            r = weft_channel_wait_ready(t->ch, WEFT_CHANNEL_READABLE, some_deadline(&rng));
            r = r ? r : -EAGAIN;
            break;
        default:
            r = weft_channel_recv(t->ch, items, some_deadline(&rng));
            r = r ? r : 1;
        }
        for (int i = 0; i < r; i++)
            check_item(t, items + (size_t)i * t->item_size, expected);
        got += r > 0 ? (uint64_t)r : 0;
        if (r == -EPIPE)
            break;
        assert_true(r > 0 || r == -EAGAIN || r == -ETIMEDOUT);
    }
    atomic_fetch_add(&t->received, got);
    return 0;
}

/* Waits on both ends and is cancelled again and again: it takes and leaves nothing. */
static int bystander(void *arg)
{
    struct end *e = arg;
    assert_int_equal(weft_sleep(WEFT_NEVER), -ECANCELED);
    assert_int_equal(weft_channel_wait_ready(e->t->ch, WEFT_CHANNEL_READABLE, WEFT_NEVER),
                     -ECANCELED);
    return 0;
}

static int counter(void *arg)
{
    struct end *e = arg;
    struct test *t = e->t;
    while (!atomic_load(&t->over)) {
        weft_channel_stats s;
        weft_task *task;
        assert_int_equal(weft_channel_get_stats(t->ch, &s), 0);
        assert_int_equal(s.sent, s.received + s.length);
        assert_true(s.length + s.reserved <= s.capacity);
        assert_int_equal(weft_spawn(weft_runtime_current(), bystander, e, NULL, &task), 0);
        assert_int_equal(weft_yield(), 0);
        weft_task_cancel(task);
        assert_int_equal(weft_task_join(task, WEFT_NEVER, NULL), 0);
        weft_task_unref(task);
        assert_int_equal(weft_sleep(20 * WEFT_USEC), 0);
    }
    return 0;
}

static void *sender_thread(void *arg)
{
    sender(arg);
    return NULL;
}

static void *receiver_thread(void *arg)
{
    receiver(arg);
    return NULL;
}

static void run(size_t capacity, size_t item_size, unsigned workers)
{
    struct test t = {.item_size = item_size, .seed = test_seed()};
    struct end ends[SENDERS > RECEIVERS ? SENDERS : RECEIVERS];
    weft_task *tx[SENDERS], *rx[RECEIVERS], *counts;
    pthread_t tx_thread, rx_thread;
    weft_runtime *rt;
    t.each = (uint32_t)test_rounds(20000);
    for (uint32_t i = 0; i < sizeof ends / sizeof *ends; i++)
        ends[i] = (struct end){&t, i};
    assert_int_equal(weft_channel_new(item_size, capacity, NULL, &t.ch), 0);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    /* The first of each kind is a plain thread. */
    assert_int_equal(pthread_create(&rx_thread, NULL, receiver_thread, &ends[0]), 0);
    assert_int_equal(pthread_create(&tx_thread, NULL, sender_thread, &ends[0]), 0);
    for (int i = 1; i < RECEIVERS; i++)
        assert_int_equal(weft_spawn(rt, receiver, &ends[i], NULL, &rx[i]), 0);
    for (int i = 1; i < SENDERS; i++)
        assert_int_equal(weft_spawn(rt, sender, &ends[i], NULL, &tx[i]), 0);
    assert_int_equal(weft_spawn(rt, counter, &ends[0], NULL, &counts), 0);
    pthread_join(tx_thread, NULL);
    for (int i = 1; i < SENDERS; i++) {
        assert_int_equal(weft_task_join(tx[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(tx[i]);
    }
    assert_int_equal(weft_channel_close(t.ch), 0);
    for (int i = 1; i < RECEIVERS; i++) {
        assert_int_equal(weft_task_join(rx[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(rx[i]);
    }
    pthread_join(rx_thread, NULL);
    atomic_store(&t.over, true);
    assert_int_equal(weft_task_join(counts, WEFT_NEVER, NULL), 0);
    weft_task_unref(counts);
    weft_runtime_free(rt);
    assert_int_equal(t.sent, (uint64_t)SENDERS * t.each);
    assert_int_equal(t.received, t.sent);
    assert_int_equal(t.sum_received, t.sum_sent);
    assert_int_equal(weft_channel_length(t.ch), 0);
    weft_channel_unref(t.ch);
}

static void words(void **state)
{
    (void)state;
    test_limit(60, "words");
    run(8, 8, 1);
    run(8, 8, 2);
    run(100, 8, 3);
}

static void larger_items(void **state)
{
    (void)state;
    test_limit(60, "larger_items");
    run(9, 24, 2);
    run(64, 16, 2);
}

static void hardly_a_place(void **state)
{
    (void)state;
    test_limit(60, "hardly_a_place");
    run(1, 8, 2);
    run(3, 16, 2);
}

/* One thread has a channel for itself, and goes without atomic operations, until another
 * comes in the midst of it. */
struct guest {
    weft_channel *ch;
    _Atomic bool come;
    uint64_t got, sum;
};

static void *guest_thread(void *arg)
{
    struct guest *g = arg;
    uint64_t item;
    while (!atomic_load(&g->come))
        ;
    while (weft_channel_recv(g->ch, &item, WEFT_NEVER) == 0) {
        g->got++;
        g->sum += item;
    }
    return NULL;
}

static void no_longer_alone(void **state)
{
    (void)state;
    test_limit(60, "no_longer_alone");
    uint64_t rng = test_seed() | 1, rounds = test_rounds(300);
    for (uint64_t round = 0; round < rounds; round++) {
        struct guest g = {.come = false};
        weft_channel_stats s;
        pthread_t t;
        uint64_t item, sent = 0, sum = 0, got = 0, got_sum = 0, n = 1000 + random_of(&rng) % 1000;
        assert_int_equal(weft_channel_new(sizeof item, 64, NULL, &g.ch), 0);
        assert_int_equal(pthread_create(&t, NULL, guest_thread, &g), 0);
        for (uint64_t i = 0; i < 2 * n; i++) {
            if (i == 600)
                assert_int_equal(weft_channel_get_stats(g.ch, &s), 0);
            if (i == n)
                atomic_store(&g.come, true);
            assert_int_equal(weft_channel_send(g.ch, &i, WEFT_NEVER), 0);
            sent++;
            sum += i;
            if (weft_channel_recv(g.ch, &item, WEFT_TRY) == 0) {
                got++;
                got_sum += item;
            }
        }
        assert_int_equal(weft_channel_close(g.ch), 0);
        pthread_join(t, NULL);
        assert_int_equal(got + g.got, sent);
        assert_int_equal(got_sum + g.sum, sum);
        weft_channel_unref(g.ch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(larger_items),
        cmocka_unit_test(hardly_a_place),
        cmocka_unit_test(no_longer_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

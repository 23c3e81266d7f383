/* The channel between plain threads: order, errors, close, batches, reservations,
 * readiness, and the ledger: sent = received + left, under deadlines, cancellation
 * and close. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/sys.h"
#include "wait/wait.h"
#include "weft/channel.h"

static weft_channel *channel(size_t item_size, size_t capacity)
{
    weft_channel *ch = NULL;
    assert_int_equal(weft_channel_new(item_size, capacity, NULL, &ch), 0);
    return ch;
}

static void arguments(void **state)
{
    (void)state;
    weft_channel *ch = NULL;
    int x = 1;
    assert_int_equal(weft_channel_new(4, 1, NULL, NULL), -EINVAL);
    assert_int_equal(weft_channel_new(WEFT_CHANNEL_ITEM_MAX + 1, 1, NULL, &ch), -EINVAL);
    assert_int_equal(weft_channel_new(1, WEFT_CHANNEL_CAPACITY_MAX + 1, NULL, &ch), -EINVAL);
    assert_int_equal(weft_channel_new(SIZE_MAX, SIZE_MAX, NULL, &ch), -EINVAL);
    assert_int_equal(weft_channel_new(1 << 20, 1 << 20, NULL, &ch), -EINVAL);
    assert_null(ch);
    assert_int_equal(weft_channel_send(NULL, &x, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_channel_recv(NULL, &x, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_channel_close(NULL), -EINVAL);
    assert_null(weft_channel_ref(NULL));
    assert_null(weft_channel_unref(NULL));
    assert_int_equal(weft_channel_length(NULL), 0);
    assert_int_equal(weft_channel_get_stats(NULL, NULL), -EINVAL);

    weft_channel_opts opts = {.name = "a name that is far longer than the limit allows"};
    assert_int_equal(weft_channel_new(4, 2, &opts, &ch), 0);
    assert_int_equal(strlen(weft_channel_name(ch)), 31);
    assert_int_equal(weft_channel_capacity(ch), 2);
    assert_int_equal(weft_channel_item_size(ch), 4);
    assert_int_equal(weft_channel_send(ch, NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_channel_recv(ch, NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_channel_wait_ready(ch, 0, WEFT_TRY), -EINVAL);
    assert_ptr_equal(weft_channel_ref(ch), ch);
    weft_channel_unref(ch);
    weft_channel_unref(ch);
}

static void one_thread(void **state)
{
    (void)state;
    weft_channel *ch = channel(sizeof(int), 3);
    int x = 77;
    assert_int_equal(weft_channel_recv(ch, &x, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_channel_recv(ch, &x, 0), -ETIMEDOUT);
    assert_int_equal(weft_channel_recv(ch, &x, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(x, 77);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(weft_channel_send(ch, &i, i ? WEFT_TRY : 0), 0);
        assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), -EAGAIN);
        assert_int_equal(weft_channel_send(ch, &x, 0), -ETIMEDOUT);
        assert_int_equal(weft_channel_send(ch, &x, weft_after(WEFT_MSEC)), -ETIMEDOUT);
        assert_int_equal(weft_channel_length(ch), 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(weft_channel_recv(ch, &x, 0), 0);
            assert_int_equal(x, i);
        }
        /* Leaves the ring's ends at another place each round. */
        assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), 0);
        assert_int_equal(weft_channel_recv(ch, &x, WEFT_TRY), 0);
    }
    weft_channel_stats s;
    assert_int_equal(weft_channel_get_stats(ch, &s), 0);
    assert_int_equal(s.sent, 20);
    assert_int_equal(s.received, 20);
    assert_int_equal(s.send_blocked, 5);
    assert_int_equal(s.recv_blocked, 1);
    assert_int_equal(s.senders_waiting + s.receivers_waiting, 0);
    weft_channel_unref(ch);
}

/* Every item size that takes another path, and misaligned buffers. */
static void item_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 3, 8, 24, 4096};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        weft_channel *ch = channel(sizes[k], 2);
        unsigned char in[4097], out[4097];
        for (int i = 0; i < 4; i++) {
            memset(in, i + 1, sizeof in);
            memset(out, 0, sizeof out);
            assert_int_equal(weft_channel_send(ch, sizes[k] ? in + 1 : NULL, WEFT_TRY), 0);
            assert_int_equal(weft_channel_recv(ch, sizes[k] ? out : NULL, WEFT_TRY), 0);
            assert_memory_equal(in, out, sizes[k]);
            assert_int_equal(out[sizes[k]], 0);
        }
        weft_channel_unref(ch);
    }
}

static void close_drains(void **state)
{
    (void)state;
    weft_channel *ch = channel(sizeof(int), 2);
    int x = 5;
    assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), 0);
    assert_int_equal(weft_channel_close(ch), 0);
    assert_int_equal(weft_channel_close(ch), -EALREADY);
    assert_true(weft_channel_is_closed(ch));
    assert_int_equal(weft_channel_send(ch, &x, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_channel_reserve(ch, WEFT_NEVER), -EPIPE);
    x = 0;
    assert_int_equal(weft_channel_recv(ch, &x, WEFT_NEVER), 0);
    assert_int_equal(x, 5);
    assert_int_equal(weft_channel_recv(ch, &x, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_channel_recv(ch, &x, WEFT_TRY), -EPIPE);
    assert_int_equal(weft_channel_wait_ready(ch, WEFT_CHANNEL_READABLE, WEFT_NEVER), 0);
    weft_channel_unref(ch);
}

static void count_drop(void *item, void *arg)
{
    *(int *)arg += *(int *)item;
}

static void rest_is_dropped(void **state)
{
    (void)state;
    int sum = 0, x;
    weft_channel_opts opts = {.drop = count_drop, .drop_arg = &sum};
    weft_channel *ch;
    assert_int_equal(weft_channel_new(sizeof(int), 3, &opts, &ch), 0);
    for (int round = 0; round < 2; round++) { /* so that the rest wraps around */
        for (x = 1; x <= 2; x++)
            assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), 0);
        if (round == 0)
            for (int i = 0; i < 2; i++)
                assert_int_equal(weft_channel_recv(ch, &x, WEFT_TRY), 0);
    }
    weft_channel_unref(ch);
    assert_int_equal(sum, 3);
}

static void batches(void **state)
{
    (void)state;
    weft_channel *ch = channel(sizeof(int), 100);
    int in[150], out[150];
    for (int i = 0; i < 150; i++)
        in[i] = i;
    assert_int_equal(weft_channel_send_batch(ch, in, 0, WEFT_NEVER), 0);
    assert_int_equal(weft_channel_recv_batch(ch, out, 0, WEFT_NEVER), 0);
    assert_int_equal(weft_channel_recv_batch(ch, out, 9, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_channel_recv_batch(ch, out, 9, 0), -ETIMEDOUT);
    assert_int_equal(weft_channel_send_batch(ch, in, 150, WEFT_TRY), 100);
    assert_int_equal(weft_channel_send_batch(ch, in, 50, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_channel_recv_batch(ch, out, 70, WEFT_NEVER), 70);
    assert_int_equal(weft_channel_send_batch(ch, in + 100, 50, weft_after(WEFT_MSEC)), 50);
    assert_int_equal(weft_channel_recv_batch(ch, out + 70, 150 - 70, WEFT_NEVER), 80);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(weft_channel_send_batch(ch, in, SIZE_MAX, WEFT_TRY), -EINVAL);
    weft_channel_close(ch);
    assert_int_equal(weft_channel_send_batch(ch, in, 3, WEFT_NEVER), -EPIPE);
    assert_int_equal(weft_channel_recv_batch(ch, out, 3, WEFT_NEVER), -EPIPE);
    weft_channel_unref(ch);
}

static void reservations(void **state)
{
    (void)state;
    weft_channel *ch = channel(sizeof(int), 2);
    weft_channel *rendezvous = channel(sizeof(int), 0);
    int x = 1;
    assert_int_equal(weft_channel_reserve(rendezvous, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_channel_send_reserved(ch, &x), -EPERM);
    assert_int_equal(weft_channel_release(ch), -EPERM);
    assert_int_equal(weft_channel_reserve(ch, WEFT_TRY), 0);
    assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), 0);
    x = 2;
    assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), -EAGAIN); /* the place is taken */
    assert_int_equal(weft_channel_reserve(ch, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_channel_send_reserved(ch, &x), 0);
    assert_int_equal(weft_channel_recv(ch, &x, WEFT_TRY), 0);
    assert_int_equal(x, 1);
    assert_int_equal(weft_channel_reserve(ch, WEFT_TRY), 0);
    assert_int_equal(weft_channel_release(ch), 0);
    assert_int_equal(weft_channel_reserve(ch, WEFT_TRY), 0);
    weft_channel_close(ch);
    assert_int_equal(weft_channel_send_reserved(ch, &x), -EPIPE);
    assert_int_equal(weft_channel_release(ch), -EPERM);
    weft_channel_unref(ch);
    weft_channel_unref(rendezvous);
}

/* ---- Two threads ---- */

static void *send_two(void *arg)
{
    for (int i = 1; i <= 2; i++)
        assert_int_equal(weft_channel_send(arg, &i, WEFT_NEVER), 0);
    return NULL;
}

static void until_a_sender_waits(weft_channel *ch)
{
    weft_channel_stats s;
    do {
        assert_int_equal(weft_channel_get_stats(ch, &s), 0);
    } while (s.senders_waiting == 0);
}

/* With every place reserved senders wait beside an empty ring: a receiver takes their items
 * from their hands, and in order. */
static void all_places_reserved(void **state)
{
    (void)state;
    for (size_t capacity = 1; capacity <= 16; capacity += 15) {
        weft_channel *ch = channel(sizeof(int), capacity);
        pthread_t t;
        int x = 0;
        for (size_t i = 0; i < capacity; i++)
            assert_int_equal(weft_channel_reserve(ch, WEFT_TRY), 0);
        assert_int_equal(pthread_create(&t, NULL, send_two, ch), 0);
        for (int i = 1; i <= 2; i++) {
            until_a_sender_waits(ch);
            assert_int_equal(weft_channel_recv(ch, &x, WEFT_TRY), 0);
            assert_int_equal(x, i);
        }
        pthread_join(t, NULL);
        assert_int_equal(weft_channel_recv(ch, &x, WEFT_TRY), -EAGAIN);
        for (size_t i = 0; i < capacity; i++)
            assert_int_equal(weft_channel_release(ch), 0);
        weft_channel_unref(ch);
    }
}

enum { ITEMS = 20000 };

static void *produce(void *arg)
{
    weft_channel *ch = arg;
    for (uint64_t i = 0; i < ITEMS; i++)
        assert_int_equal(weft_channel_send(ch, &i, WEFT_NEVER), 0);
    weft_channel_close(ch);
    return NULL;
}

static void order_is_kept(void **state)
{
    (void)state;
    static const size_t capacities[] = {0, 1, 7, 128};
    for (int k = 0; k < 4; k++) {
        weft_channel *ch = channel(sizeof(uint64_t), capacities[k]);
        pthread_t t;
        uint64_t x, next = 0;
        pthread_create(&t, NULL, produce, ch);
        while (weft_channel_recv(ch, &x, WEFT_NEVER) == 0)
            assert_int_equal(x, next++);
        assert_int_equal(next, ITEMS);
        pthread_join(t, NULL);
        weft_channel_unref(ch);
    }
}

static void *produce_batches(void *arg)
{
    weft_channel *ch = arg;
    uint64_t items[37];
    for (uint64_t i = 0; i < ITEMS;) {
        size_t n = 0;
        while (n < 37 && i + n < ITEMS) {
            items[n] = i + n;
            n++;
        }
        assert_int_equal(weft_channel_send_batch(ch, items, n, WEFT_NEVER), n);
        i += n;
    }
    weft_channel_close(ch);
    return NULL;
}

static void batches_keep_order(void **state)
{
    (void)state;
    static const size_t capacities[] = {0, 1, 16, 300};
    for (int k = 0; k < 4; k++) {
        weft_channel *ch = channel(sizeof(uint64_t), capacities[k]);
        pthread_t t;
        uint64_t x[50], next = 0;
        int n;
        pthread_create(&t, NULL, produce_batches, ch);
        while ((n = weft_channel_recv_batch(ch, x, 50, WEFT_NEVER)) > 0)
            for (int i = 0; i < n; i++)
                assert_int_equal(x[i], next++);
        assert_int_equal(n, -EPIPE);
        assert_int_equal(next, ITEMS);
        pthread_join(t, NULL);
        weft_channel_unref(ch);
    }
}

/* A sole consumer that was told "readable" always finds the item; a producer that
 * reserved always has its place. */
static void *produce_reserved(void *arg)
{
    weft_channel *ch = arg;
    for (uint64_t i = 0; i < ITEMS; i++) {
        if (i % 3 == 0) {
            assert_int_equal(weft_channel_wait_ready(ch, WEFT_CHANNEL_WRITABLE, WEFT_NEVER), 0);
            assert_int_equal(weft_channel_send(ch, &i, WEFT_TRY), 0);
            continue;
        }
        assert_int_equal(weft_channel_reserve(ch, WEFT_NEVER), 0);
        if (i % 3 == 1)
            assert_int_equal(weft_channel_send_reserved(ch, &i), 0);
        else {
            assert_int_equal(weft_channel_release(ch), 0);
            assert_int_equal(weft_channel_send(ch, &i, WEFT_NEVER), 0);
        }
    }
    weft_channel_close(ch);
    return NULL;
}

static void readiness_is_true(void **state)
{
    (void)state;
    weft_channel *ch = channel(sizeof(uint64_t), 2);
    pthread_t t;
    uint64_t x, next = 0;
    pthread_create(&t, NULL, produce_reserved, ch);
    for (;;) {
        assert_int_equal(weft_channel_wait_ready(ch, WEFT_CHANNEL_READABLE, WEFT_NEVER), 0);
        int r = weft_channel_recv(ch, &x, WEFT_TRY);
        if (r == -EPIPE)
            break;
        assert_int_equal(r, 0);
        assert_int_equal(x, next++);
    }
    assert_int_equal(next, ITEMS);
    pthread_join(t, NULL);
    weft_channel_unref(ch);
}

/* An item sent into a reserved place goes to a receiver that waits, and then the
 * place is free again. */
static void *recv_one(void *arg)
{
    uint64_t x = 0;
    assert_int_equal(weft_channel_recv(arg, &x, WEFT_NEVER), 0);
    assert_int_equal(x, 9);
    return NULL;
}

static void reserved_item_meets_receiver(void **state)
{
    (void)state;
    weft_channel *ch = channel(sizeof(uint64_t), 2);
    weft_channel_stats s = {0};
    pthread_t t;
    uint64_t x = 9;
    assert_int_equal(weft_channel_reserve(ch, WEFT_TRY), 0);
    pthread_create(&t, NULL, recv_one, ch);
    while (s.receivers_waiting == 0)
        assert_int_equal(weft_channel_get_stats(ch, &s), 0);
    assert_int_equal(weft_channel_send_reserved(ch, &x), 0);
    assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), 0);
    assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), 0);
    assert_int_equal(weft_channel_send(ch, &x, WEFT_TRY), -EAGAIN);
    pthread_join(t, NULL);
    weft_channel_unref(ch);
}

/* ---- The ledger ---- */

enum { SENDERS = 3, RECEIVERS = 3, PARTIES = SENDERS + RECEIVERS, TRIES = 6000 };

struct ledger {
    weft_channel *ch;
    uint64_t seed;
    weft__aptr parkers[PARTIES];
    weft__a64 sent_sum, received_sum, sent, received;
    weft__a32 next_id, running;
};

static weft_time some_deadline(uint64_t *rng)
{
    uint64_t x = weft__rand(rng);
    return x % 8 == 0 ? WEFT_TRY : weft_now() + (weft_time)(x >> 8) % 50000;
}

static void forget_cancel(void)
{
    atom_store_rel(&weft__self()->cancel, 0u); /* a test's licence: a new task */
}

static void *ledger_sender(void *arg)
{
    struct ledger *l = arg;
    uint32_t id = atom_add_rlx(&l->next_id, 1u);
    uint64_t rng = l->seed + id + 1;
    atom_store_rel(&l->parkers[id], weft__self());
    for (uint64_t i = 0; i < TRIES; i++) {
        uint64_t item = (uint64_t)id << 32 | i;
        int r = weft_channel_send(l->ch, &item, some_deadline(&rng));
        if (r == -ECANCELED)
            forget_cancel();
        if (r == -EPIPE)
            break;
        if (r == 0) {
            atom_add_rlx(&l->sent, 1u);
            atom_add_rlx(&l->sent_sum, item);
        } else {
            assert_true(r == -EAGAIN || r == -ETIMEDOUT || r == -ECANCELED);
        }
    }
    atom_sub_ar(&l->running, 1u);
    return NULL;
}

static void *ledger_receiver(void *arg)
{
    struct ledger *l = arg;
    uint32_t id = atom_add_rlx(&l->next_id, 1u);
    uint64_t rng = l->seed + id + 1;
    uint64_t last[PARTIES] = {0};
    atom_store_rel(&l->parkers[id], weft__self());
    for (;;) {
        uint64_t item = ~0ull;
        int r = weft_channel_recv(l->ch, &item, some_deadline(&rng));
        if (r == -EPIPE)
            break;
        if (r == -ECANCELED)
            forget_cancel();
        if (r) {
            assert_int_equal(item, ~0ull); /* untouched */
            continue;
        }
        uint64_t from = item >> 32, n = (item & 0xffffffff) + 1;
        assert_true(from < PARTIES && n > last[from]); /* in order, no duplicates */
        last[from] = n;
        atom_add_rlx(&l->received, 1u);
        atom_add_rlx(&l->received_sum, item);
    }
    atom_sub_ar(&l->running, 1u);
    return NULL;
}

static void run_ledger(size_t capacity, bool close_early)
{
    struct ledger l = {.seed = weft__sys_seed()};
    pthread_t t[PARTIES];
    l.ch = channel(sizeof(uint64_t), capacity);
    print_message("capacity %zu seed %llu\n", capacity, (unsigned long long)l.seed);
    atom_store_rlx(&l.running, (uint32_t)PARTIES);
    for (int i = 0; i < PARTIES; i++)
        assert_int_equal(
            pthread_create(&t[i], NULL, i < SENDERS ? ledger_sender : ledger_receiver, &l), 0);
    uint64_t rng = l.seed;
    for (int kicks = 0; atom_load_acq(&l.running) > RECEIVERS; kicks++) {
        weft__parker *p = atom_load_acq(&l.parkers[weft__rand(&rng) % PARTIES]);
        if (p)
            weft__cancel(p); /* its thread lives until it is joined */
        weft__sleep(weft_now() + 20 * WEFT_USEC);
        if (close_early && kicks == 100)
            weft_channel_close(l.ch);
    }
    weft_channel_close(l.ch);
    for (int i = 0; i < PARTIES; i++)
        pthread_join(t[i], NULL);
    weft_channel_stats s;
    assert_int_equal(weft_channel_get_stats(l.ch, &s), 0);
    assert_int_equal(s.length, 0);
    assert_int_equal(s.sent, atom_load_rlx(&l.sent));
    assert_int_equal(s.received, atom_load_rlx(&l.received));
    assert_int_equal(atom_load_rlx(&l.sent), atom_load_rlx(&l.received));
    assert_int_equal(atom_load_rlx(&l.sent_sum), atom_load_rlx(&l.received_sum));
    weft_channel_unref(l.ch);
}

static void ledger_balances(void **state)
{
    (void)state;
    run_ledger(0, false);
    run_ledger(1, false);
    run_ledger(8, false);
    run_ledger(0, true);
    run_ledger(3, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments),         cmocka_unit_test(one_thread),
        cmocka_unit_test(item_sizes),        cmocka_unit_test(close_drains),
        cmocka_unit_test(rest_is_dropped),   cmocka_unit_test(batches),
        cmocka_unit_test(reservations),      cmocka_unit_test(all_places_reserved),
        cmocka_unit_test(order_is_kept),     cmocka_unit_test(batches_keep_order),
        cmocka_unit_test(readiness_is_true), cmocka_unit_test(reserved_item_meets_receiver),
        cmocka_unit_test(ledger_balances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

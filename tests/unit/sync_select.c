/* Select between plain threads: edge inputs, fairness, order, selects that meet each
 * other, the ledger under deadlines and cancellation, and close against select. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/sys.h"
#include "wait/select.h"
#include "weft/channel.h"
#include "weft/event.h"
#include "weft/select.h"
#include "weft/waitgroup.h"

static weft_channel *channel(size_t item_size, size_t capacity)
{
    weft_channel *ch = NULL;
    assert_int_equal(weft_channel_new(item_size, capacity, NULL, &ch), 0);
    return ch;
}

static void edge_inputs(void **state)
{
    (void)state;
    weft_channel *ch = channel(sizeof(int), 1);
    int in = 1, out = 0;
    weft_time soon = weft_after(2 * WEFT_MSEC);

    /* No case at all, and no case that is on. */
    weft_select_case off = weft_case_recv(ch, &out);
    off.off = true;
    assert_int_equal(weft_select(NULL, 0, 0, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_select(NULL, 0, 0, 0), -ETIMEDOUT);
    assert_int_equal(weft_select(NULL, 0, 0, soon), -ETIMEDOUT);
    assert_true(weft_now() >= soon);
    assert_int_equal(weft_select(NULL, 0, 0, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_select(&off, 1, 0, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_select(&off, 1, 0, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_select(&off, 1, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);

    /* Bad arguments. */
    weft_select_case bad[] = {weft_case_recv(NULL, &out), weft_case_recv(ch, NULL),
                              weft_case_send(ch, NULL), weft_case_event(NULL),
                              weft_case_waitgroup(NULL)};
    for (int i = 0; i < 5; i++)
        assert_int_equal(weft_select(&bad[i], 1, 0, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_select(NULL, 1, 0, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_select(&off, 1, 64, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_select(&off, WEFT_SELECT_MAX + 1, 0, WEFT_TRY), -EINVAL);

    /* The same channel twice; send and receive on one channel do not serve each other
     * when it is a rendezvous. */
    weft_select_case twice[] = {weft_case_recv(ch, &out), weft_case_recv(ch, &out)};
    assert_int_equal(weft_select(twice, 2, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_channel_send(ch, &in, WEFT_TRY), 0);
    int r = weft_select(twice, 2, 0, WEFT_NEVER);
    assert_true(r == 0 || r == 1);
    assert_int_equal(out, 1);
    weft_channel *meet = channel(sizeof(int), 0);
    weft_select_case both[] = {weft_case_send(meet, &in), weft_case_recv(meet, &out)};
    assert_int_equal(weft_select(both, 2, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_select(both, 2, 0, WEFT_TRY), -EAGAIN);

    /* Closed channels. */
    weft_channel_close(meet);
    r = weft_select(both, 2, 0, WEFT_NEVER);
    assert_true(r >= 0);
    assert_int_equal(both[r].result, -EPIPE);

    /* A time; ready wins over a deadline that has passed. */
    weft_select_case times[] = {weft_case_recv(ch, &out), weft_case_time(weft_after(WEFT_MSEC)),
                                weft_case_time(weft_after(WEFT_SEC))};
    assert_int_equal(weft_select(times, 3, 0, WEFT_NEVER), 1);
    assert_int_equal(weft_select(times, 3, 0, 0), 1);
    times[1].off = true;
    assert_int_equal(weft_select(times, 3, 0, 0), -ETIMEDOUT);
    assert_int_equal(weft_channel_send(ch, &in, WEFT_TRY), 0);
    assert_int_equal(weft_select(times, 3, 0, 0), 0);
    times[1] = weft_case_time(WEFT_NEVER);
    assert_int_equal(weft_select(times + 1, 1, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);

    weft_channel_unref(ch);
    weft_channel_unref(meet);
}

enum { MANY = 1000 };

static void *send_one(void *arg)
{
    int x = 42;
    weft__sleep(weft_after(2 * WEFT_MSEC));
    assert_int_equal(weft_channel_send(arg, &x, WEFT_NEVER), 0);
    return NULL;
}

static void thousand_cases(void **state)
{
    (void)state;
    static weft_channel *ch[MANY];
    static weft_select_case cases[MANY];
    int out = 0;
    for (int i = 0; i < MANY; i++) {
        ch[i] = channel(sizeof(int), (size_t)i % 2);
        cases[i] = weft_case_recv(ch[i], &out);
    }
    assert_int_equal(weft_select(cases, MANY, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    for (int round = 0; round < 3; round++) {
        pthread_t t;
        int target = round * 333 + 1;
        pthread_create(&t, NULL, send_one, ch[target]);
        assert_int_equal(weft_select(cases, MANY, 0, WEFT_NEVER), target);
        assert_int_equal(out, 42);
        pthread_join(t, NULL);
    }
    for (int i = 0; i < MANY; i++) {
        weft_channel_stats s;
        assert_int_equal(weft_channel_get_stats(ch[i], &s), 0);
        assert_int_equal(s.receivers_waiting, 0); /* no trace left */
        weft_channel_unref(ch[i]);
    }
}

static void fair_or_ordered(void **state)
{
    (void)state;
    weft_channel *ch[3];
    weft_select_case cases[3];
    int hits[3] = {0}, x = 0;
    for (int i = 0; i < 3; i++) {
        ch[i] = channel(sizeof(int), 1);
        cases[i] = weft_case_recv(ch[i], &x);
        assert_int_equal(weft_channel_send(ch[i], &x, WEFT_TRY), 0);
    }
    for (int k = 0; k < 3000; k++) {
        int i = weft_select(cases, 3, 0, WEFT_NEVER);
        assert_in_range(i, 0, 2);
        hits[i]++;
        assert_int_equal(weft_channel_send(ch[i], &x, WEFT_TRY), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_true(hits[i] > 700 && hits[i] < 1300);
    for (int k = 0; k < 10; k++) {
        assert_int_equal(weft_select(cases, 3, WEFT_SELECT_ORDERED, WEFT_NEVER), 0);
        assert_int_equal(weft_channel_send(ch[0], &x, WEFT_TRY), 0);
    }
    for (int i = 0; i < 3; i++)
        weft_channel_unref(ch[i]);
}

static void events_and_groups(void **state)
{
    (void)state;
    weft_event e = WEFT_EVENT_INIT;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, 1);
    weft_select_case cases[] = {weft_case_event(&e), weft_case_waitgroup(&wg)};
    assert_int_equal(weft_select(cases, 2, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    weft_waitgroup_done(&wg);
    assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 1);
    weft_waitgroup_add(&wg, 1);
    weft_event_set(&e);
    assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 0);
}

/* ---- The ledger: numbered items, senders and receivers both by select ---- */

enum { CHANNELS = 3, SENDERS = 2, RECEIVERS = 3, PARTIES = SENDERS + RECEIVERS, TRIES = 6000 };

struct ledger {
    weft_channel *ch[CHANNELS];
    uint64_t seed;
    weft__aptr parkers[PARTIES];
    weft__a64 sent, received, sent_sum, received_sum;
    weft__a32 next_id, senders, receivers;
    weft_event stop;
};

static weft_time some_deadline(uint64_t *rng)
{
    uint64_t x = weft__rand(rng);
    return x % 8 == 0 ? WEFT_TRY : weft_now() + (weft_time)(x >> 8) % 50000;
}

static void check_error(int r)
{
    assert_true(r == -EAGAIN || r == -ETIMEDOUT || r == -ECANCELED);
    if (r == -ECANCELED)
        atom_store_rel(&weft__self()->cancel, 0u); /* a test's licence: a new task */
}

static void *ledger_sender(void *arg)
{
    struct ledger *l = arg;
    uint32_t id = atom_add_rlx(&l->next_id, 1u);
    uint64_t rng = l->seed + id + 1;
    atom_store_rel(&l->parkers[id], weft__self());
    for (uint64_t i = 0; i < TRIES; i++) {
        uint64_t items[CHANNELS];
        weft_select_case cases[CHANNELS];
        for (uint64_t k = 0; k < CHANNELS; k++) {
            items[k] = (uint64_t)id << 48 | k << 40 | i;
            cases[k] = weft_case_send(l->ch[k], &items[k]);
        }
        int r = weft_select(cases, CHANNELS, 0, some_deadline(&rng));
        if (r < 0) {
            check_error(r);
            continue;
        }
        assert_int_equal(cases[r].result, 0);
        atom_add_rlx(&l->sent, 1u);
        atom_add_rlx(&l->sent_sum, items[r]);
    }
    atom_sub_ar(&l->senders, 1u);
    return NULL;
}

static void *ledger_receiver(void *arg)
{
    struct ledger *l = arg;
    uint32_t id = atom_add_rlx(&l->next_id, 1u);
    uint64_t rng = l->seed + id + 1, last[PARTIES][CHANNELS] = {{0}};
    atom_store_rel(&l->parkers[id], weft__self());
    for (;;) {
        uint64_t items[CHANNELS] = {~0ull, ~0ull, ~0ull};
        weft_select_case cases[CHANNELS + 1];
        for (int k = 0; k < CHANNELS; k++)
            cases[k] = weft_case_recv(l->ch[k], &items[k]);
        cases[CHANNELS] = weft_case_event(&l->stop);
        int r = weft_select(cases, CHANNELS + 1, WEFT_SELECT_ORDERED, some_deadline(&rng));
        for (int k = 0; k < CHANNELS; k++)
            assert_true(k == r || items[k] == ~0ull); /* the others are untouched */
        if (r == CHANNELS)
            break;
        if (r < 0) {
            check_error(r);
            continue;
        }
        uint64_t from = items[r] >> 48, n = (items[r] & 0xffffffff) + 1;
        assert_int_equal(items[r] >> 40 & 0xff, r);
        assert_true(from < PARTIES);
        assert_true(n > last[from][r]); /* in order, no duplicates */
        last[from][r] = n;
        atom_add_rlx(&l->received, 1u);
        atom_add_rlx(&l->received_sum, items[r]);
    }
    atom_sub_ar(&l->receivers, 1u);
    return NULL;
}

static void run_ledger(size_t capacity)
{
    struct ledger l = {.seed = weft__sys_seed(), .stop = WEFT_EVENT_INIT};
    pthread_t t[PARTIES];
    print_message("capacity %zu seed %llu\n", capacity, (unsigned long long)l.seed);
    for (int k = 0; k < CHANNELS; k++)
        l.ch[k] = channel(sizeof(uint64_t), capacity);
    atom_store_rlx(&l.senders, (uint32_t)SENDERS);
    atom_store_rlx(&l.receivers, (uint32_t)RECEIVERS);
    for (int i = 0; i < PARTIES; i++)
        assert_int_equal(
            pthread_create(&t[i], NULL, i < SENDERS ? ledger_sender : ledger_receiver, &l), 0);
    uint64_t rng = l.seed;
    while (atom_load_acq(&l.senders)) {
        weft__parker *p = atom_load_acq(&l.parkers[weft__rand(&rng) % PARTIES]);
        if (p)
            weft__cancel(p); /* its thread lives until it is joined */
        weft__sleep(weft_now() + 20 * WEFT_USEC);
    }
    weft_event_set(&l.stop);
    for (int i = 0; i < PARTIES; i++)
        pthread_join(t[i], NULL);
    for (int k = 0; k < CHANNELS; k++) {
        uint64_t item;
        while (weft_channel_recv(l.ch[k], &item, WEFT_TRY) == 0) {
            atom_add_rlx(&l.received, 1u);
            atom_add_rlx(&l.received_sum, item);
        }
        weft_channel_stats s;
        assert_int_equal(weft_channel_get_stats(l.ch[k], &s), 0);
        assert_int_equal(s.senders_waiting + s.receivers_waiting, 0);
        weft_channel_unref(l.ch[k]);
    }
    assert_true(atom_load_rlx(&l.sent) > 0);
    assert_int_equal(atom_load_rlx(&l.sent), atom_load_rlx(&l.received));
    assert_int_equal(atom_load_rlx(&l.sent_sum), atom_load_rlx(&l.received_sum));
}

static void ledger_balances(void **state)
{
    (void)state;
    run_ledger(0);
    run_ledger(1);
    run_ledger(4);
}

/* ---- Two selects on the same rendezvous channels, both ways ---- */

enum { MEETINGS = 5000 };

struct table {
    weft_channel *ch[2];
    weft__a64 given, taken;
    weft__a32 open;
};

/* Gives or takes, whatever the other one does; each meeting is one of both. */
static void *guest(void *arg)
{
    struct table *tb = arg;
    uint64_t id = (uint64_t)(uintptr_t)&tb;
    for (int i = 0; i < MEETINGS; i++) {
        uint64_t out = id, in[2] = {0, 0};
        weft_select_case cases[] = {
            weft_case_send(tb->ch[0], &out), weft_case_recv(tb->ch[0], &in[0]),
            weft_case_send(tb->ch[1], &out), weft_case_recv(tb->ch[1], &in[1])};
        int r = weft_select(cases, 4, 0, WEFT_NEVER);
        assert_in_range(r, 0, 3);
        if (cases[r].result == -EPIPE)
            break;
        assert_int_equal(cases[r].result, 0);
        if (r % 2) {
            assert_true(in[r / 2] != 0 && in[r / 2] != id); /* never one's own */
            assert_int_equal(in[1 - r / 2], 0);
            atom_add_rlx(&tb->taken, 1u);
        } else {
            atom_add_rlx(&tb->given, 1u);
        }
    }
    /* The first to finish closes, for the others may be an odd number. */
    if (atom_xchg_ar(&tb->open, 0u)) {
        weft_channel_close(tb->ch[0]);
        weft_channel_close(tb->ch[1]);
    }
    return NULL;
}

static void selects_meet(void **state)
{
    (void)state;
    struct table tb = {.ch = {channel(8, 0), channel(8, 0)}};
    pthread_t t[3];
    atom_store_rlx(&tb.open, 1u);
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, guest, &tb);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    assert_true(atom_load_rlx(&tb.given) >= MEETINGS / 2);
    assert_int_equal(atom_load_rlx(&tb.given), atom_load_rlx(&tb.taken));
    weft_channel_unref(tb.ch[0]);
    weft_channel_unref(tb.ch[1]);
}

/* ---- Locks taken in any order of the cases do not deadlock ---- */

enum { WIDE = 40 };

struct wide {
    weft_channel *ch[WIDE];
    weft__a32 next;
};

static void *select_wide(void *arg)
{
    struct wide *wd = arg;
    uint32_t me = atom_add_rlx(&wd->next, 1u);
    for (uint32_t round = 0; round < 3000; round++) {
        /* Another order for each thread and round, few cases and many, and each
         * channel several times: a lock that is not next to its like would be taken
         * twice. */
        uint32_t n = round % 2 ? WIDE : 7, of = round % 2 ? WIDE / 2 : 3, step = me % 2 ? 7 : 13;
        uint64_t items[WIDE];
        weft_select_case cases[WIDE];
        for (uint32_t i = 0; i < n; i++)
            cases[i] = weft_case_recv(wd->ch[(i * step + round) % of], &items[i]);
        /* Past step 1, at once out of the wait again. */
        assert_int_equal(weft_select(cases, n, 0, weft_now() + 3000), -ETIMEDOUT);
    }
    return NULL;
}

static void no_order_deadlocks(void **state)
{
    (void)state;
    struct wide wd = {.ch = {NULL}};
    pthread_t t[3];
    for (int i = 0; i < WIDE; i++)
        wd.ch[i] = channel(8, 1);
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, select_wide, &wd);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < WIDE; i++)
        weft_channel_unref(wd.ch[i]);
}

/* ---- What becomes ready between the two looks of a select is not missed ---- */

struct second_look {
    weft__lock lock;
    int tries;
};

static int second_look_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct second_look *s = object;
    (void)n;
    (void)wakes;
    assert_int_not_equal(atom_load_acq(&s->lock.word), 0); /* under its lock */
    return ++s->tries < 2 ? -EAGAIN : 7;
}

static void second_look_link(void *object, weft__wait_node *n)
{
    (void)object;
    (void)n;
    fail_msg("it was ready");
}

static void nothing_is_missed(void **state)
{
    (void)state;
    static const weft__waitable_ops ops = {"second look", second_look_try, second_look_link, NULL};
    weft_channel *ch = channel(8, 1);
    uint64_t x;
    struct second_look s = {.tries = 0};
    weft_select_case cases[] = {weft_case_recv(ch, &x), weft__case_of(&ops, &s, &s.lock, NULL)};
    assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 1);
    assert_int_equal(cases[1].result, 7);
    assert_int_equal(atom_load_acq(&s.lock.word), 0);
    weft_channel_stats stats;
    assert_int_equal(weft_channel_get_stats(ch, &stats), 0);
    assert_int_equal(stats.recv_blocked, 0);
    weft_channel_unref(ch);
}

/* ---- Close against select: the frame of the select is gone when it returns ---- */

enum { CLOSES = 4000 };

static void *closer(void *arg)
{
    weft_channel *todo = arg, *victim;
    while (weft_channel_recv(todo, &victim, WEFT_NEVER) == 0) {
        weft_channel_close(victim);
        weft_channel_unref(victim);
    }
    return NULL;
}

static WEFT__NOINLINE int one_select(weft_channel **ch, weft_time deadline)
{
    uint64_t item[4];
    weft_select_case cases[4];
    for (int i = 0; i < 4; i++)
        cases[i] = weft_case_recv(ch[i], &item[i]);
    int r = weft_select(cases, 4, 0, deadline);
    if (r >= 0)
        assert_int_equal(cases[r].result, -EPIPE);
    memset(cases, 0xa5, sizeof cases); /* as the next frame would */
    return r;
}

static void close_against_select(void **state)
{
    (void)state;
    weft_channel *ch[4], *todo = channel(sizeof(weft_channel *), 8);
    pthread_t t;
    uint64_t rng = weft__sys_seed();
    pthread_create(&t, NULL, closer, todo);
    for (int i = 0; i < 4; i++)
        ch[i] = channel(8, (size_t)i % 2);
    for (int round = 0; round < CLOSES; round++) {
        weft_channel *victim = ch[weft__rand(&rng) % 4];
        weft_channel_ref(victim);
        assert_int_equal(weft_channel_send(todo, &victim, WEFT_NEVER), 0);
        int r;
        do /* deadlines that meet the close */
            r = one_select(ch, weft_now() + (weft_time)(weft__rand(&rng) % 30000));
        while (r == -ETIMEDOUT);
        assert_in_range(r, 0, 3);
        assert_ptr_equal(ch[r], victim);
        weft_channel_unref(ch[r]);
        ch[r] = channel(8, (size_t)round % 2);
    }
    weft_channel_close(todo);
    pthread_join(t, NULL);
    weft_channel_unref(todo);
    for (int i = 0; i < 4; i++)
        weft_channel_unref(ch[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edge_inputs),          cmocka_unit_test(thousand_cases),
        cmocka_unit_test(fair_or_ordered),      cmocka_unit_test(events_and_groups),
        cmocka_unit_test(ledger_balances),      cmocka_unit_test(selects_meet),
        cmocka_unit_test(no_order_deadlocks),   cmocka_unit_test(nothing_is_missed),
        cmocka_unit_test(close_against_select),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

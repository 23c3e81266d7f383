/* SPDX-License-Identifier: MIT
 *
 * The two ways through a channel: the real channel.c with sides that open and shut while
 * senders and receivers are in them, over the lock as one step. (select_model.c has the
 * small channels, which are never open.) Held: items arrive once and in order, or stay the
 * sender's; nobody is left waiting for what is there (a deadlock); what is counted adds up
 * at any moment; a place or a count that the sides or the lock do not order would race.
 */
#include "model_wait.h"

#include "../../src/sync/channel.c"
#include "../../src/sync/channel_batch.c"
#include "../../src/sync/channel_life.c"
#include "../../src/sync/channel_side.c"
#include "../../src/sync/queue.c"

enum { ITEMS_MAX = 4, CAPACITY = 2 };

enum role {
    NOBODY,
    SENDS,
    RECEIVES,
    SENDS_BATCH,
    RECEIVES_BATCH,
    RESERVES,
    CLOSES,
    CANCELS,
    COUNTS
};

static weft_channel *channel;
static enum role role[MODEL_THREADS];
static int threads, prefill, before;
static weft_time deadline;
static int items[MODEL_THREADS]; /* how many calls it makes */
static int sent[MODEL_THREADS], outcome[MODEL_THREADS];
static uint64_t got[MODEL_THREADS][ITEMS_MAX];
static int got_count[MODEL_THREADS];

/* Mostly the order must be in the atomics; for what only the barrier makes possible, the
 * checker's interleavings are what it leaves. */
static bool barrier_works;

bool weft__sys_barrier_usable(void)
{
    return barrier_works;
}

void weft__sys_barrier(void)
{
}

static void setup(void)
{
    parkers_setup();
    parkers_on_switch(0); /* who fills it, the same each time */
    memset(sent, 0, sizeof sent);
    memset(outcome, 0, sizeof outcome);
    memset(got_count, 0, sizeof got_count);
    model_check(weft_channel_new(sizeof(uint64_t), CAPACITY, NULL, &channel) == 0);
    model_name(channel, sizeof *channel, "channel");
    weft_channel_stats s;
    before = 0;
    for (uint64_t item = 0; barrier_works && before < 2; before++) {
        model_check(weft_channel_send(channel, &item, WEFT_TRY) == 0);
        model_check(weft_channel_recv(channel, &item, WEFT_TRY) == 0);
        model_check(weft_channel_get_stats(channel, &s) == 0); /* thread 0 is alone now */
        model_check(atom_load_rlx(&channel->tx.solo) == &parker[0]);
    }
    for (uint64_t i = 0; i < (uint64_t)prefill; i++)
        model_check(weft_channel_send(channel, &i, WEFT_TRY) == 0);
}

/* Items say who sent them and which one it was. */
static uint64_t item_of(int t, int i)
{
    return (uint64_t)(16 * (t + 1) + i);
}

static void take(int t, uint64_t item)
{
    got[t][got_count[t]++] = item;
}

static WEFT__NOINLINE void send_or_receive(int t)
{
    uint64_t item[2];
    int r = 0;
    for (int i = 0; i < items[t] && r >= 0; i++) {
        switch (role[t]) {
        case SENDS:
            item[0] = item_of(t, i);
            r = weft_channel_send(channel, item, deadline);
            sent[t] += r == 0;
            break;
        case RECEIVES:
            if ((r = weft_channel_recv(channel, item, deadline)) == 0)
                take(t, item[0]);
            break;
        case SENDS_BATCH:
            item[0] = item_of(t, 0);
            item[1] = item_of(t, 1);
            if ((r = weft_channel_send_batch(channel, item, 2, deadline)) > 0)
                sent[t] += r;
            break;
        case RECEIVES_BATCH:
            r = weft_channel_recv_batch(channel, item, 2, deadline);
            for (int k = 0; k < r; k++)
                take(t, item[k]);
            break;
        default:
            item[0] = item_of(t, i);
            if ((r = weft_channel_reserve(channel, deadline)) == 0 &&
                (r = weft_channel_send_reserved(channel, item)) == 0)
                sent[t]++;
        }
    }
    outcome[t] = r;
}

static void run(int t)
{
    weft_channel_stats s;
    switch (role[t]) {
    case CLOSES:
        weft_channel_close(channel);
        break;
    case CANCELS:
        weft__cancel(&parker[0]);
        break;
    case COUNTS:
        model_check(weft_channel_get_stats(channel, &s) == 0);
        model_check(s.sent == s.received + s.length && s.length + s.reserved <= s.capacity);
        break;
    default:
        send_or_receive(t);
        parker_leaves(t);
    }
}

static void check(void)
{
    int in = prefill, out = 0;
    weft_channel_stats s;
    parkers_check(threads);
    model_check(weft__list_empty(&channel->receivers) && weft__list_empty(&channel->senders));
    model_check(weft_channel_get_stats(channel, &s) == 0);
    weft__channel_check(channel);
    for (int t = 0; t < threads; t++) {
        in += sent[t];
        out += got_count[t];
        model_check(outcome[t] >= 0 || outcome[t] == -EPIPE || outcome[t] == -ETIMEDOUT ||
                    outcome[t] == -ECANCELED);
    }
    model_check(s.sent == (uint64_t)(in + before) && s.received == (uint64_t)(out + before));
    model_check(s.length == (size_t)(in - out) && s.reserved == 0);
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < got_count[t]; i++) {
            int from = (int)(got[t][i] / 16) - 1;
            model_check(from < 0 || (int)(got[t][i] % 16) < sent[from]);
            for (int k = 0; k < i; k++) /* in the order in which each sender sent */
                model_check(got[t][k] / 16 != got[t][i] / 16 || got[t][k] < got[t][i]);
            for (int u = 0; u < t; u++)
                for (int k = 0; k < got_count[u]; k++)
                    model_check(got[u][k] != got[t][i]);
        }
}

/* `full` items are in the channel before. A batch of two is one call. */
static void explore(const char *name, int full, int bound, const enum role *roles,
                    const int *counts)
{
    threads = 0;
    for (int t = 0; t < MODEL_THREADS && roles[t] != NOBODY; t++) {
        role[t] = roles[t];
        items[t] = counts[t];
        threads++;
    }
    prefill = full;
    parkers_explore(name, threads, setup, run, check, bound);
}

#define ROLES(...) ((const enum role[MODEL_THREADS]){__VA_ARGS__})
#define ITEMS(...) ((const int[MODEL_THREADS]){__VA_ARGS__})

static void one_to_one(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    explore("1 sender, 1 receiver, 1 item", 0, 0, ROLES(SENDS, RECEIVES), ITEMS(1, 1));
    explore("1 sender, 1 receiver, 2 items", 0, 3, ROLES(SENDS, RECEIVES), ITEMS(2, 2));
    explore("full, 1 sender, 1 receiver", CAPACITY, 3, ROLES(SENDS, RECEIVES), ITEMS(2, 2));
    deadline = MODEL_SOON;
    explore("1 sender, 1 receiver, deadlines", 0, 3, ROLES(SENDS, RECEIVES), ITEMS(1, 2));
    explore("full, sender, receiver, deadlines", CAPACITY, 3, ROLES(SENDS, RECEIVES), ITEMS(2, 1));
}

static void several(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    explore("2 senders, 1 receiver", 0, 2, ROLES(SENDS, SENDS, RECEIVES), ITEMS(1, 1, 2));
    explore("1 sender, 2 receivers", 0, 2, ROLES(SENDS, RECEIVES, RECEIVES), ITEMS(2, 1, 1));
    explore("full, 2 senders, 1 receiver", CAPACITY, 2, ROLES(SENDS, SENDS, RECEIVES),
            ITEMS(1, 1, 2));
    explore("batches", 1, 2, ROLES(SENDS_BATCH, RECEIVES_BATCH, RECEIVES), ITEMS(1, 1, 1));
}

static void with_others(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    explore("sender, receiver, close", 0, 2, ROLES(SENDS, RECEIVES, CLOSES), ITEMS(1, 2));
    explore("sender, receiver, a count", 0, 2, ROLES(SENDS, RECEIVES, COUNTS), ITEMS(2, 2));
    explore("full, sender and one who reserves, receiver", CAPACITY, 2,
            ROLES(RESERVES, SENDS, RECEIVES), ITEMS(1, 1, 2));
    deadline = MODEL_SOON;
    explore("receiver that is cancelled, sender", 0, 2, ROLES(RECEIVES, SENDS, CANCELS),
            ITEMS(1, 1));
    explore("full, sender that is cancelled, receiver", CAPACITY, 2,
            ROLES(SENDS, RECEIVES, CANCELS), ITEMS(1, 1));
}

/* Thread 0 has been alone with the channel so far. */
static void no_longer_alone(void **state)
{
    (void)state;
    barrier_works = true;
    deadline = WEFT_NEVER;
    explore("alone, sends; receiver", 0, 3, ROLES(SENDS, RECEIVES), ITEMS(2, 2));
    explore("alone, receives; sender", 0, 3, ROLES(RECEIVES, SENDS), ITEMS(2, 2));
    explore("alone, full, receives; sender", CAPACITY, 3, ROLES(RECEIVES, SENDS), ITEMS(2, 1));
    explore("alone, sends; sender, receiver", 0, 2, ROLES(SENDS, SENDS, RECEIVES), ITEMS(1, 1, 2));
    explore("alone, full, receives; receiver, close", CAPACITY, 2,
            ROLES(RECEIVES, RECEIVES, CLOSES), ITEMS(2, 2));
    explore("alone, sends; receiver, a count", 0, 2, ROLES(SENDS, RECEIVES, COUNTS), ITEMS(2, 2));
    barrier_works = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_to_one),
        cmocka_unit_test(several),
        cmocka_unit_test(with_others),
        cmocka_unit_test(no_longer_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

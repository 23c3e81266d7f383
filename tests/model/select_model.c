/* SPDX-License-Identifier: MIT
 *
 * Channels and selects that cross: the real channel.c and select.c over the lock as
 * one step. Held: no deadlock when two selects offer and want of each other, one
 * claim decides for both, an item arrives exactly once or is still the sender's, and
 * nobody is left in a queue (an access to a frame that has returned would race).
 */
#include "model_wait.h"

#include "../../src/sync/channel.c"
#include "../../src/sync/channel_life.c"
#include "../../src/sync/channel_side.c"
#include "../../src/sync/queue.c"
#include "../../src/wait/select.c"

bool weft__sys_barrier_usable(void)
{
    return false; /* the order must be in the atomics */
}

void weft__sys_barrier(void)
{
}

static weft_channel *channel[2];
static int capacity, threads;
static weft_time deadline;
static struct {
    int outcome, result, sent, received;
} side[MODEL_THREADS];

static void setup(void)
{
    parkers_setup();
    memset(side, 0, sizeof side);
    for (int i = 0; i < 2; i++)
        model_check(weft_channel_new(sizeof(int), (size_t)capacity, NULL, &channel[i]) == 0);
    model_name(channel[0], sizeof *channel[0], "first");
    model_name(channel[1], sizeof *channel[1], "second");
}

/* As weft_case_send and weft_case_recv. */
static weft_select_case sends(weft_channel *ch, int *item)
{
    return weft__case_of_kind(WEFT__CASE_QUICK, &weft__channel_send_ops, ch, weft__channel_lock(ch),
                              item);
}

static weft_select_case receives(weft_channel *ch, int *item)
{
    return weft__case_of_kind(WEFT__CASE_QUICK, &weft__channel_recv_ops, ch, weft__channel_lock(ch),
                              item);
}

/* Offers on one channel and wants from the other; t says which way round. */
static WEFT__NOINLINE void cross(int t)
{
    int item = 10 + t, got = 0;
    weft_select_case cases[] = {
        sends(channel[t], &item),
        receives(channel[!t], &got),
    };
    side[t].outcome = weft_select(cases, 2, WEFT_SELECT_ORDERED, deadline);
    if (side[t].outcome >= 0)
        side[t].result = cases[side[t].outcome].result;
    if (side[t].outcome == 0 && side[t].result == 0)
        side[t].sent = item;
    if (side[t].outcome == 1 && side[t].result == 0)
        side[t].received = got;
}

static void crossing(int t)
{
    if (t < 2) {
        cross(t);
        parker_leaves(t);
    } else if (t == 2) {
        weft__cancel(&parker[0]);
    }
}

static int items_in(const weft_channel *ch)
{
    weft_channel_stats stats;
    weft_channel_get_stats((weft_channel *)(uintptr_t)ch, &stats);
    return (int)stats.length;
}

static void check_nobody_waits(int waiters)
{
    parkers_check(waiters);
    for (int i = 0; i < 2; i++) {
        model_check(weft__list_empty(&channel[i]->receivers));
        model_check(weft__list_empty(&channel[i]->senders));
        weft_channel_stats stats;
        weft_channel_get_stats(channel[i], &stats);
        model_check(stats.receivers_waiting == 0 && stats.senders_waiting == 0);
        weft__channel_check(channel[i]);
    }
}

static void check_crossing(void)
{
    int sent = 0, received = 0, kept = items_in(channel[0]) + items_in(channel[1]);
    check_nobody_waits(2);
    for (int t = 0; t < 2; t++) {
        sent += side[t].sent != 0;
        received += side[t].received != 0;
        model_check(side[t].received == 0 || side[t].received == side[!t].sent);
    }
    model_check(sent == received + kept);
    if (deadline == WEFT_NEVER && threads == 2)
        model_check(side[0].outcome >= 0 && side[1].outcome >= 0);
    if (capacity == 0 && deadline == WEFT_NEVER && threads == 2)
        model_check(sent == 1);
    for (int t = 0; t < 2; t++)
        model_check(side[t].outcome >= 0 || side[t].outcome == -ETIMEDOUT ||
                    side[t].outcome == -ECANCELED);
}

static void explore(const char *name, void (*run)(int), void (*check)(void), int bound)
{
    parkers_explore(name, threads, setup, run, check, bound);
}

static void two_selects_cross(void **state)
{
    (void)state;
    capacity = 0;
    threads = 2;
    deadline = WEFT_NEVER;
    explore("crossing selects", crossing, check_crossing, 0);
    deadline = MODEL_SOON;
    explore("crossing selects, deadlines", crossing, check_crossing, 0);
    threads = 3;
    explore("crossing selects, deadlines, cancel", crossing, check_crossing, 0);
}

/* ---- A channel that is used and closed ---- */

static int receivers;

/* Threads: first the receivers, then senders, the last closes. */
static WEFT__NOINLINE void send_or_receive(int t)
{
    int item = 10 + t, got = 0;
    if (t < receivers) {
        if ((side[t].outcome = weft_channel_recv(channel[0], &got, deadline)) == 0)
            side[t].received = got;
    } else {
        if ((side[t].outcome = weft_channel_send(channel[0], &item, deadline)) == 0)
            side[t].sent = item;
    }
}

static void use(int t)
{
    if (t < threads - 1) {
        send_or_receive(t);
        parker_leaves(t);
    } else {
        weft_channel_close(channel[0]);
    }
}

static void check_use(void)
{
    int sent = 0, received = items_in(channel[0]);
    check_nobody_waits(threads - 1);
    for (int t = 0; t < threads - 1; t++) {
        int r = side[t].outcome;
        model_check(r == 0 || r == -EPIPE || (r == -ETIMEDOUT && deadline != WEFT_NEVER));
        sent += side[t].sent != 0;
        received += side[t].received != 0;
        if (side[t].received) /* and from a sender who knows that it was taken */
            model_check(side[side[t].received - 10].sent == side[t].received);
    }
    model_check(sent == received);
    if (receivers == 2 && side[0].received)
        model_check(side[0].received != side[1].received);
}

static void channel_and_close(void **state)
{
    (void)state;
    for (capacity = 0; capacity < 2; capacity++) {
        deadline = WEFT_NEVER;
        threads = 3;
        receivers = 1;
        explore(capacity ? "buffer, receiver, sender, close" : "channel, receiver, sender, close",
                use, check_use, 0);
        deadline = MODEL_SOON;
        explore(capacity ? "buffer, receiver, sender, close, deadlines"
                         : "channel, receiver, sender, close, deadlines",
                use, check_use, 0);
        threads = 4;
        deadline = WEFT_NEVER;
        explore(capacity ? "buffer, receiver, 2 senders, close"
                         : "channel, receiver, 2 senders, close",
                use, check_use, 0);
        receivers = 2;
        explore(capacity ? "buffer, 2 receivers, sender, close"
                         : "channel, 2 receivers, sender, close",
                use, check_use, 0);
    }
}

/* A select between two channels, each with a plain partner. */
static WEFT__NOINLINE void select_of_two(void)
{
    int got[2] = {0, 0};
    weft_select_case cases[] = {receives(channel[0], &got[0]), receives(channel[1], &got[1])};
    side[0].outcome = weft_select(cases, 2, WEFT_SELECT_ORDERED, deadline);
    if (side[0].outcome >= 0 && cases[side[0].outcome].result == 0)
        side[0].received = got[side[0].outcome];
}

static WEFT__NOINLINE void send_to_select(int t)
{
    int item = 10 + t;
    side[t].outcome = weft_channel_send(channel[t - 1], &item, deadline);
    side[t].sent = side[t].outcome == 0 ? item : 0;
}

static void partners(int t)
{
    if (t == 3) {
        weft__cancel(&parker[0]);
        return;
    }
    if (t == 0)
        select_of_two();
    else
        send_to_select(t);
    parker_leaves(t);
}

static void check_partners(void)
{
    int sent = (side[1].sent != 0) + (side[2].sent != 0);
    check_nobody_waits(3);
    model_check(sent == (side[0].received != 0) + items_in(channel[0]) + items_in(channel[1]));
    if (side[0].received && capacity == 0)
        model_check(side[0].received == side[1].sent + side[2].sent);
}

static void select_between_senders(void **state)
{
    (void)state;
    deadline = MODEL_SOON;
    for (capacity = 0; capacity < 2; capacity++) {
        threads = 3;
        explore(capacity ? "select of 2 buffers, 2 senders" : "select of 2 channels, 2 senders",
                partners, check_partners, 0);
        threads = 4;
        explore(capacity ? "select of 2 buffers, 2 senders, cancel"
                         : "select of 2 channels, 2 senders, cancel",
                partners, check_partners, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_selects_cross),
        cmocka_unit_test(channel_and_close),
        cmocka_unit_test(select_between_senders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

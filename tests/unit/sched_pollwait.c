/* SPDX-License-Identifier: MIT
 *
 * Poll tasks that wait: channels of both kinds with other poll tasks and with fibers,
 * events, tasks, times, deadlines, cancellation with and without a shield, stray wakes; and
 * that items are conserved while tasks are cancelled at any moment. */
#include "unit_test.h"

#include <errno.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/channel.h"
#include "weft/event.h"
#include "weft/pollwait.h"
#include "weft/promise.h"
#include "weft/runtime.h"
#include "weft/scope.h"

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static void join(weft_task *t, int expected)
{
    int result = ~expected;
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, expected);
    weft_task_unref(t);
}

/* ---- Through channels ---- */

struct mover {
    int line, item, r;
    weft_channel *in, *out;
    weft_poll_op op;
};

static int move(weft_task *self, void *state)
{
    struct mover *m = state;
    WEFT_POLL_BEGIN(m->line);
    for (;;) {
        WEFT_POLL_AWAIT(m->line, m->r,
                        weft_poll_do(self, &m->op, weft_case_recv(m->in, &m->item), WEFT_NEVER));
        if (m->r)
            break;
        WEFT_POLL_AWAIT(m->line, m->r,
                        weft_poll_do(self, &m->op, weft_case_send(m->out, &m->item), WEFT_NEVER));
        if (m->r)
            break;
        if (m->item % 7 == 0)
            WEFT_POLL_YIELD(m->line, self);
    }
    WEFT_POLL_END;
    weft_channel_close(m->out);
    return m->r;
}

static void chains_of_poll_tasks(void **state)
{
    enum { STAGES = 8 };
    int items = (int)test_rounds(3000);
    (void)state;
    for (unsigned workers = 1; workers <= 3; workers += 2)
        for (size_t capacity = 0; capacity <= 2; capacity++) {
            weft_runtime *rt = runtime(workers);
            weft_channel *ch[STAGES + 1];
            weft_task *t[STAGES];
            for (int i = 0; i <= STAGES; i++)
                assert_int_equal(weft_channel_new(sizeof(int), capacity, NULL, &ch[i]), 0);
            for (int i = 0; i < STAGES; i++) {
                struct mover m = {.in = ch[i], .out = ch[i + 1]};
                assert_int_equal(weft_spawn_poll(rt, move, &m, sizeof m, NULL, &t[i]), 0);
            }
            int sent = 0, received = 0, item;
            while (received < items) {
                weft_select_case cases[] = {weft_case_send(ch[0], &sent),
                                            weft_case_recv(ch[STAGES], &item)};
                cases[0].off = sent == items;
                int r = weft_select(cases, 2, 0, WEFT_NEVER);
                if (r == 0)
                    sent++;
                else
                    assert_int_equal(item, received++);
            }
            weft_channel_close(ch[0]);
            assert_int_equal(weft_channel_recv(ch[STAGES], &item, WEFT_NEVER), -EPIPE);
            for (int i = 0; i < STAGES; i++)
                join(t[i], -EPIPE);
            for (int i = 0; i <= STAGES; i++)
                weft_channel_unref(ch[i]);
            weft_runtime_free(rt);
        }
}

/* ---- The other outcomes ---- */

struct waiter {
    int line, r;
    weft_time begun;
    weft_event *event;
    weft_task *task;
    weft_poll_op op, other;
    weft_poll_wait wait;
    weft_select_case cases[3];
    weft__a32 *stage;
};

static int outcomes(weft_task *self, void *state)
{
    struct waiter *w = state;
    WEFT_POLL_BEGIN(w->line);
    assert_int_equal(weft_poll_do(self, NULL, weft_case_event(w->event), WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_do(self, &w->op, weft_case_event(NULL), WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_do(self, &w->op, weft_case_event(w->event), WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_poll_do(self, &w->op, weft_case_event(w->event), 1), -ETIMEDOUT);
    assert_int_equal(weft_event_wait(w->event, WEFT_NEVER), -EPERM);

    /* A deadline that counts from the first call, in spite of stray wakes. */
    w->begun = weft_now();
    WEFT_POLL_AWAIT(w->line, w->r,
                    (weft_task_wake(self), weft_poll_do(self, &w->op, weft_case_event(w->event),
                                                        weft_after(3 * WEFT_MSEC))));
    assert_int_equal(w->r, -ETIMEDOUT);
    assert_true(weft_now() - w->begun >= 3 * WEFT_MSEC);

    WEFT_POLL_AWAIT(w->line, w->r, weft_poll_sleep_until(self, w->begun + 5 * WEFT_MSEC));
    assert_int_equal(w->r, 0);
    assert_true(weft_now() - w->begun >= 5 * WEFT_MSEC);

    /* A time among the cases; a nearer wake of one's own does not disturb it. */
    w->cases[0] = weft_case_event(w->event);
    w->cases[1] = weft_case_time(w->begun + 8 * WEFT_MSEC);
    w->cases[2] = weft_case_time(w->begun + 9 * WEFT_MSEC);
    WEFT_POLL_AWAIT(
        w->line, w->r,
        (weft_task_wake_at(self, w->begun + 6 * WEFT_MSEC),
         weft_poll_select(self, &w->wait, w->cases, 3, WEFT_SELECT_ORDERED, WEFT_NEVER)));
    assert_int_equal(w->r, 1);
    assert_true(weft_now() - w->begun >= 8 * WEFT_MSEC);

    /* One wait at a time. */
    w->r = weft_poll_do(self, &w->op, weft_case_event(w->event), WEFT_NEVER);
    assert_int_equal(w->r, WEFT_PENDING);
    assert_int_equal(weft_poll_do(self, &w->op, weft_case_event(w->event), WEFT_NEVER),
                     WEFT_PENDING);
    assert_int_equal(weft_poll_do(self, &w->other, weft_case_task(w->task), WEFT_NEVER), -EBUSY);
    atom_store_rel(w->stage, 1u);
    WEFT_POLL_AWAIT(w->line, w->r,
                    weft_poll_do(self, &w->op, weft_case_event(w->event), WEFT_NEVER));
    assert_int_equal(w->r, 0);
    WEFT_POLL_AWAIT(w->line, w->r,
                    weft_poll_do(self, &w->other, weft_case_task(w->task), WEFT_NEVER));
    assert_int_equal(w->r, 0);
    weft_event_reset(w->event);
    atom_store_rel(w->stage, 2u);

    /* Cancelled: the wait and all later ones, unless shielded. */
    WEFT_POLL_AWAIT(w->line, w->r,
                    weft_poll_do(self, &w->op, weft_case_event(w->event), WEFT_NEVER));
    assert_int_equal(w->r, -ECANCELED);
    assert_int_equal(weft_poll_do(self, &w->op, weft_case_event(w->event), WEFT_NEVER), -ECANCELED);
    assert_int_equal(weft_poll_sleep_until(self, WEFT_NEVER), -ECANCELED);
    weft_shield_enter();
    atom_store_rel(w->stage, 3u);
    WEFT_POLL_AWAIT(w->line, w->r,
                    weft_poll_do(self, &w->op, weft_case_event(w->event), WEFT_NEVER));
    assert_int_equal(w->r, 0);
    weft_shield_leave();
    WEFT_POLL_END;
    return 77;
}

static int sleeps(void *arg)
{
    return weft_sleep(*(weft_time *)arg);
}

static void await_stage(weft__a32 *stage, uint32_t n)
{
    while (atom_load_acq(stage) != n)
        test_sleep_ms(1);
    test_sleep_ms(2);
}

static void every_outcome(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = runtime(workers);
        weft_event e = WEFT_EVENT_INIT;
        weft__a32 stage = {0};
        weft_time nap = 30 * WEFT_MSEC;
        weft_task *t, *other;
        assert_int_equal(weft_spawn(rt, sleeps, &nap, NULL, &other), 0);
        struct waiter w = {.event = &e, .task = other, .stage = &stage};
        assert_int_equal(weft_spawn_poll(rt, outcomes, &w, sizeof w, NULL, &t), 0);
        await_stage(&stage, 1);
        weft_task_wake(t);
        weft_event_set(&e);
        await_stage(&stage, 2);
        assert_int_equal(weft_task_cancel(t), 0);
        await_stage(&stage, 3);
        weft_event_set(&e);
        join(t, 77);
        join(other, 0);
        weft_runtime_free(rt);
    }
    weft_poll_op op = {0};
    assert_int_equal(weft_poll_do(NULL, &op, weft_case_time(1), WEFT_NEVER), -EPERM);
    assert_int_equal(weft_poll_sleep_until(NULL, 1), -EPERM);
}

/* Ends with its nodes in queues: they must not be found there. */
struct leaver {
    weft_channel *ch;
    int item;
    weft_poll_op op;
};

static int leaves_a_wait(weft_task *self, void *state)
{
    struct leaver *l = state;
    return weft_poll_do(self, &l->op, weft_case_recv(l->ch, &l->item), WEFT_NEVER) == WEFT_PENDING
               ? 1
               : 0;
}

static void a_body_may_leave_a_wait(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    struct leaver l = {0};
    weft_task *t;
    int item = 5;
    assert_int_equal(weft_channel_new(sizeof(int), 0, NULL, &l.ch), 0);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(weft_spawn_poll(rt, leaves_a_wait, &l, sizeof l, NULL, &t), 0);
        join(t, 1);
    }
    assert_int_equal(weft_channel_send(l.ch, &item, WEFT_TRY), -EAGAIN);
    weft_runtime_free(rt);
    weft_channel_unref(l.ch);
}

/* ---- Conservation ---- */

struct ledger {
    weft__a64 sent, received, sum_sent, sum_received;
    weft_channel *ch[3];
};

struct trader {
    struct ledger *ledger;
    uint32_t rng, item, got;
    int r, sends;
    weft_poll_wait wait;
    weft_select_case cases[3];
};

static uint32_t next(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

/* Sends or receives on any of the channels until cancelled. */
static int trade(weft_task *self, void *state)
{
    struct trader *t = state;
    for (;;) {
        t->r = weft_poll_select(self, &t->wait, t->cases, 3, 0,
                                weft_after((weft_time)(next(&t->rng) % 50) * WEFT_USEC));
        if (t->r == WEFT_PENDING || t->r == -ECANCELED)
            return t->r;
        if (t->r >= 0 && t->sends) {
            atom_add_rlx(&t->ledger->sent, 1u);
            atom_add_rlx(&t->ledger->sum_sent, t->item);
            t->item = next(&t->rng);
        } else if (t->r >= 0) {
            atom_add_rlx(&t->ledger->received, 1u);
            atom_add_rlx(&t->ledger->sum_received, t->got);
        } else {
            assert_int_equal(t->r, -ETIMEDOUT);
        }
    }
}

/* The cases point into the state: set up where it lies. */
static int trade_first(weft_task *self, void *state)
{
    struct trader *t = state;
    if (!t->cases[0].weft__ops)
        for (int i = 0; i < 3; i++)
            t->cases[i] = t->sends ? weft_case_send(t->ledger->ch[i], &t->item)
                                   : weft_case_recv(t->ledger->ch[i], &t->got);
    return trade(self, state);
}

static void items_are_conserved(void **state)
{
    (void)state;
    uint32_t rng = (uint32_t)test_seed() | 1u;
    uint64_t rounds = test_rounds(60);
    weft_runtime *rt = runtime(3);
    for (uint64_t round = 0; round < rounds; round++) {
        struct ledger ledger = {0};
        weft_task *t[8];
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(weft_channel_new(sizeof(uint32_t), i, NULL, &ledger.ch[i]), 0);
        for (int i = 0; i < 8; i++) {
            struct trader trader = {.ledger = &ledger, .rng = next(&rng), .item = next(&rng)};
            trader.sends = i % 2;
            assert_int_equal(weft_spawn_poll(rt, trade_first, &trader, sizeof trader, NULL, &t[i]),
                             0);
        }
        for (int i = 0; i < 8; i++) { /* one after the other, others trade on */
            test_sleep_ms(next(&rng) % 3);
            weft_task_wake(t[7 - i]);
            weft_task_cancel(t[i]);
            join(t[i], -ECANCELED);
        }
        uint32_t item;
        for (size_t i = 0; i < 3; i++) {
            while (weft_channel_recv(ledger.ch[i], &item, WEFT_TRY) == 0) {
                atom_add_rlx(&ledger.received, 1u);
                atom_add_rlx(&ledger.sum_received, item);
            }
            weft_channel_unref(ledger.ch[i]);
        }
        assert_int_equal(atom_load_rlx(&ledger.sent), atom_load_rlx(&ledger.received));
        assert_int_equal(atom_load_rlx(&ledger.sum_sent), atom_load_rlx(&ledger.sum_received));
    }
    weft_runtime_free(rt);
}

int main(void)
{
    test_limit(55, "sched_pollwait");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_of_poll_tasks),
        cmocka_unit_test(every_outcome),
        cmocka_unit_test(a_body_may_leave_a_wait),
        cmocka_unit_test(items_are_conserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The pickup of a task (bgworker.h, Q1 to Q4) and its end, over all interleavings, and
 * without the wake-up after 10 ms. Held:
 *
 *   a send that says 0 was picked up once, one that fails never was
 *   nobody sleeps while a task waits (a deadlock)
 *   each task has one outcome, both sides may leave in either order, and nobody touches
 *   the task's memory after that (an access after free)
 */
#include "model_wait.h"

#include "../../src/bgworker/buffer.c"
#include "../../src/bgworker/seat.c"
#include "../../src/bgworker/send.c"
#include "../../src/bgworker/task.c"

/* ---- What the scenarios leave out: descriptors, looks, runs ---- */

void weft__signal_write(const weft__signal *s)
{
    (void)s;
}

bool weft__signal_drain(const weft__signal *s)
{
    (void)s;
    return true;
}

int weft__signal_open(weft__signal *s, weft__fd_pool *pool, weft__lock *owner)
{
    (void)s, (void)pool, (void)owner;
    return -EMFILE;
}

void weft__signal_close(weft__signal *s, weft__fd_pool *pool)
{
    (void)s, (void)pool;
}

bool weft__spin_wait(weft__spin *s, weft__parker *self)
{
    (void)s, (void)self;
    return false;
}

bool weft_cancelled(void)
{
    return false;
}

void weft__changed(weft_worker *w, weft__after *after)
{
    (void)w, (void)after;
}

weft_worker *weft_worker_ref(weft_worker *w)
{
    return w;
}

weft_worker *weft_worker_unref(weft_worker *w)
{
    (void)w;
    return NULL;
}

int weft_registry_find(weft_registry *reg, const char *scope, const char *name, weft_worker **ret)
{
    (void)reg, (void)scope, (void)name, (void)ret;
    return -ENOENT;
}

weft_time weft_after(weft_time duration)
{
    return duration == WEFT_NEVER ? WEFT_NEVER : weft__sys_now() + duration;
}

/* ---- The scenarios ---- */

static weft_registry registry;
static weft_worker worker;
static weft_seat seats[2];
static int senders, sitters;
static weft_time send_deadline, seat_deadline[2];
static bool reads, asks;
static int sent[2], received[2];

static void setup(void)
{
    memset(&registry, 0, sizeof registry);
    memset(&worker, 0, sizeof worker);
    memset(seats, 0, sizeof seats);
    worker.reg = &registry;
    worker.options.posted_max = 1;
    worker.alive = 2;
    weft__list *lists[] = {&worker.queue, &worker.awake, &worker.parked, &worker.watchers,
                           &worker.seats};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        weft__list_init(lists[i]);
    for (int i = 0; i < 2; i++) {
        seats[i].worker = &worker;
        weft__list_init(&seats[i].held);
    }
    sent[0] = sent[1] = 1;
    received[0] = received[1] = 0;
    parkers_setup();
    model_name(&worker, sizeof worker, "worker");
    model_name(seats, sizeof seats, "seats");
}

static void send_one(int t)
{
    weft_sent *s = NULL;
    sent[t] = weft_worker_send(&worker, NULL, t ? WEFT_NEVER : send_deadline, &s);
    if (sent[t] == 0) {
        weft_buffer *b;
        if (reads)
            model_check(weft_sent_read(s, WEFT_NEVER, &b) == 0);
        weft_sent_free(s);
    }
    parker_leaves(t);
}

static void sit(int t, int i)
{
    weft_received *r = NULL;
    int result = weft_seat_receive(&seats[i], seat_deadline[i], &r);
    if (result == 0) {
        received[i]++;
        weft_received_free(r);
    } else {
        model_check(result == -ETIMEDOUT || result == -ESHUTDOWN);
    }
    parker_leaves(t);
}

static void ask(void)
{
    weft__after after = {0};
    weft__acquire(&worker.lock);
    weft__seat_ask(&seats[0], &after);
    weft__release(&worker.lock);
    weft__after_run(&after);
    /* The end of the run, as weft__seat_end does it, is the seat's own affair; a wake
     * that the seat took with it is passed on by then at the latest. */
}

static void run(int t)
{
    if (t < senders) {
        send_one(t);
    } else if (t < senders + sitters) {
        sit(t, t - senders);
        if (t == senders && asks) { /* the seat that leaves ends its run */
            weft__after after = {0};
            weft__acquire(&worker.lock);
            weft__pass_on(&worker, &after);
            weft__release(&worker.lock);
            weft__after_run(&after);
        }
    } else {
        ask();
    }
}

static void check(void)
{
    int picked_up = 0, got = received[0] + received[1];
    uint64_t outcomes = 0;
    for (int i = 0; i < senders; i++) {
        picked_up += sent[i] == 0;
        model_check(sent[i] == 0 || (i == 0 && sent[i] == -ETIMEDOUT) || sent[i] == 1);
    }
    for (int i = 0; i < WEFT_TASK_OUTCOMES; i++)
        outcomes += worker.outcomes[i].raw;
    model_check(picked_up == got);
    model_check(worker.sent - outcomes == worker.queued);
    model_check(reads ? worker.outcomes[WEFT_TASK_COMPLETED].raw == (uint64_t)got : true);
    for (int i = 0; i < sitters; i++)
        model_check(seats[i].open.raw == 0 && weft__list_empty(&seats[i].held));
}

static void explore(const char *name, int threads, unsigned may_sleep, int preemptions)
{
    const struct model_scenario s = {.name = name,
                                     .threads = threads,
                                     .setup = setup,
                                     .run = run,
                                     .check = check,
                                     .on_switch = parkers_on_switch,
                                     .may_sleep = may_sleep,
                                     .all = preemptions > 0,
                                     .preemptions = preemptions};
    model_must_hold(&s);
}

/* Both sides may give up; the claim decides. */
static void one_sender_one_seat(void **state)
{
    (void)state;
    senders = sitters = 1;
    asks = false;
    for (int i = 0; i < 2; i++) {
        reads = i == 0;
        send_deadline = seat_deadline[0] = WEFT_NEVER;
        explore(reads ? "handoff, read" : "handoff, abandon", 2, 0, 2);
        send_deadline = MODEL_SOON;
        explore(reads ? "handoff, hasty sender, read" : "handoff, hasty sender, abandon", 2, 2, 2);
        seat_deadline[0] = MODEL_SOON;
        explore(reads ? "handoff, both hasty, read" : "handoff, both hasty, abandon", 2, 0, 2);
    }
}

static void two_senders_two_seats(void **state)
{
    (void)state;
    senders = sitters = 2;
    asks = false;
    reads = false;
    send_deadline = seat_deadline[0] = seat_deadline[1] = WEFT_NEVER;
    explore("handoff, 2 senders, 2 seats", 4, 0, 1);
}

/* The first seat is asked to leave, or its wait ends: the other must get the task. */
static void a_wake_is_passed_on(void **state)
{
    (void)state;
    senders = 1;
    sitters = 2;
    reads = false;
    send_deadline = seat_deadline[1] = WEFT_NEVER;
    seat_deadline[0] = MODEL_SOON;
    asks = false;
    explore("handoff, 2 seats, one hasty", 3, 4, 2);
    seat_deadline[0] = WEFT_NEVER;
    asks = true;
    explore("handoff, 2 seats, one is asked to leave", 4, 4, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sender_one_seat),
        cmocka_unit_test(two_senders_two_seats),
        cmocka_unit_test(a_wake_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

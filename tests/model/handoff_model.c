/* SPDX-License-Identifier: MIT
 *
 * The pickup of a task (bgworker.h, Q1 to Q6) and its end, over all interleavings, with
 * senders and seats in the same lane and in different ones, and without the wake-up after
 * 10 ms. Held:
 *
 *   a send that says 0 was picked up once, one that fails never was
 *   nobody sleeps while a task waits (a deadlock)
 *   each task has one outcome, both sides may leave in either order, and nobody touches
 *   the task's memory after that (an access after free)
 */
#include "model_wait.h"

#include "../../src/bgworker/buffer.c"
#include "../../src/bgworker/lane.c"
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

weft_task *weft_task_self(void)
{
    return NULL;
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

int weft__registry_offer(weft_registry *reg, const char *scope, const char *name, weft__offer *o,
                         uint32_t here)
{
    (void)reg, (void)scope, (void)name, (void)o, (void)here;
    return -ENOENT;
}

void weft__worker_destroy(weft_worker *w)
{
    (void)w;
    model_check(false); /* it has references to the end */
}

/* The protocol must do without the looks after 10 ms; some scenarios have one. */
static int looks, looks_left;

weft_time weft_after(weft_time duration)
{
    (void)duration;
    if (looks_left == 0)
        return WEFT_NEVER;
    looks_left--;
    return weft__sys_now() + MODEL_SOON / 4;
}

/* ---- The scenarios ---- */

enum { LANES = 2 };

static weft_registry registry;
static weft_worker worker;
static weft__lane lanes[LANES];
static weft_seat seats[2];
static int senders, sitters;
static weft_time send_deadline, seat_deadline[2];
static bool reads, asks, calls;
static uint32_t apart; /* lanes between senders and seats */
static int sent[2], received[2];

uint32_t weft__here(const weft__parker *self)
{
    int t = (int)(self - parker);
    return t < senders ? 0 : apart;
}

static void setup(void)
{
    memset(&registry, 0, sizeof registry);
    memset(&worker, 0, sizeof worker);
    memset(seats, 0, sizeof seats);
    worker.reg = &registry;
    worker.options.posted_max = 1;
    worker.alive = 2;
    memset(lanes, 0, sizeof lanes);
    worker.lanes = lanes;
    worker.lane_mask = LANES - 1;
    worker.memory.raw = LANES;
    for (uint32_t i = 0; i < LANES; i++) {
        lanes[i] = (weft__lane){.worker = &worker, .index = i, .live = 1};
        weft__list_init(&lanes[i].awake);
        weft__list_init(&lanes[i].parked);
    }
    weft__list *lists[] = {&worker.queue, &worker.armed, &worker.watchers, &worker.seats};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        weft__list_init(lists[i]);
    for (int i = 0; i < 2; i++) {
        seats[i].worker = &worker;
        weft__list_init(&seats[i].held);
    }
    looks_left = looks;
    sent[0] = sent[1] = 1;
    received[0] = received[1] = 0;
    parkers_setup();
    model_name(&worker, sizeof worker, "worker");
    model_name(lanes, sizeof lanes, "lanes");
    model_name(seats, sizeof seats, "seats");
}

static void send_one(int t)
{
    weft_sent *s = NULL;
    if (calls) {
        sent[t] = weft_worker_call(&worker, NULL, t ? WEFT_NEVER : send_deadline, NULL);
        parker_leaves(t);
        return;
    }
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
    uint64_t made = worker.sent, completed = 0;
    for (int i = 0; i < senders; i++) {
        /* A call that gives up says whether the task was run. */
        picked_up += sent[i] == 0 || (calls && sent[i] == -ETIMEDOUT);
        model_check(sent[i] == 0 || (i == 0 && sent[i] == -ETIMEDOUT) || sent[i] == 1 ||
                    (i == 0 && calls && sent[i] == -ETIME));
    }
    for (int k = 0; k < LANES; k++) {
        made += lanes[k].sent.raw;
        completed += lanes[k].outcomes[WEFT_TASK_COMPLETED].raw;
        for (int i = 0; i < WEFT_TASK_OUTCOMES; i++)
            outcomes += lanes[k].outcomes[i].raw;
        model_check(lanes[k].live == 1 || worker.queued.raw);
    }
    for (int i = 0; i < sitters; i++) {
        outcomes += seats[i].done.raw;
        completed += seats[i].done.raw;
        model_check(!seats[i].slot.raw && !seats[i].slot_open.raw);
        model_check(!seats[i].held_open.raw && weft__list_empty(&seats[i].held));
    }
    model_check(picked_up == got);
    model_check(made - outcomes == worker.queued.raw);
    model_check(reads ? completed == (uint64_t)got : true);
}

static void explore_lanes(const char *name, int threads, unsigned may_sleep, int preemptions)
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

static void explore(const char *name, int threads, unsigned may_sleep, int preemptions)
{
    for (apart = 0; apart < LANES; apart++)
        explore_lanes(name, threads, may_sleep, preemptions);
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

/* The sender's sleep ends for a look at the queue, and goes on: whoever takes the entry
 * meanwhile has it, or has merely taken it out. */
static void a_look_between_two_sleeps(void **state)
{
    (void)state;
    senders = 1;
    asks = false;
    send_deadline = WEFT_NEVER;
    looks = 1;
    for (sitters = 1; sitters <= 2; sitters++) {
        reads = sitters == 1;
        seat_deadline[0] = seat_deadline[1] = WEFT_NEVER;
        explore("handoff, a look", 1 + sitters, sitters == 1 ? 0 : 6, 2);
        calls = true;
        reads = false;
        explore("handoff, a look by a call", 1 + sitters, sitters == 1 ? 0 : 6, 2);
        calls = false;
    }
    looks = 0;
}

/* The caller's wait is begun before the task is there, and ended by its completion. */
static void one_caller_one_seat(void **state)
{
    (void)state;
    senders = sitters = 1;
    asks = reads = false;
    calls = true;
    send_deadline = seat_deadline[0] = WEFT_NEVER;
    explore("handoff, call", 2, 0, 2);
    send_deadline = MODEL_SOON;
    explore("handoff, hasty call", 2, 2, 2);
    seat_deadline[0] = MODEL_SOON;
    explore("handoff, call, both hasty", 2, 0, 2);
    calls = false;
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
    explore("handoff, 2 seats, one is asked to leave", 4, 4, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sender_one_seat), cmocka_unit_test(a_look_between_two_sleeps),
        cmocka_unit_test(one_caller_one_seat), cmocka_unit_test(two_senders_two_seats),
        cmocka_unit_test(a_wake_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The small protocols of the timer service, on the real code, over all interleavings:
 *   - the waker slot: contents are OLD, NEW or EMPTY; a registration either sees the
 *     end, or the publisher takes exactly the new waker. Waking the old one is no success;
 *   - the shard's lock: mutual exclusion, and nobody sleeps for ever;
 *   - the plan: a timer armed while the reactor prepares to sleep is found or wakes it;
 *   - the waiting cancel: it returns after the callback, and returns.
 */
#include "unit_test.h"

#include "model.h"
#include "model_lock.h"

#include "../../src/time/shard_lock.c"

/* The locks themselves are checked elsewhere; here one step takes one. */
#define weft__acquire       model_acquire
#define weft__release       model_release
#define weft__shard_acquire shard_acquire
#define weft__shard_release shard_release

static void shard_acquire(weft__shard_lock *l)
{
    model_acquire((weft__lock *)(void *)&l->word);
}

static void shard_release(weft__shard_lock *l)
{
    model_release((weft__lock *)(void *)&l->word);
}

#include "../../src/time/timer.c"
#include "../../src/time/timer_service.c"
#include "../../src/time/wheel.c"
#include "../../src/wait/wait.c"

unsigned weft__sys_cpu(void)
{
    return 0;
}

unsigned weft__sys_cpus(void)
{
    return 1;
}

bool weft__sys_barrier_usable(void)
{
    return false;
}

void weft__sys_barrier(void)
{
}

/* -- the waker slot -------------------------------------------------------------------- */

static weft__waker_slot slot;
static weft__a32 lifecycle; /* 0 pending, 1 ended */
static int old_id, new_id, third_id;
static const void *taken[3]; /* by which publisher */
static int answer;           /* of the last registration */
static bool saw_end;
static const void *last_waker; /* that was registered when the poller went to sleep */
static bool start_empty, again;
static int publishers;

static void no_wake(void *arg)
{
    (void)arg;
}

static void slot_setup(void)
{
    weft__slot_reset(&slot);
    lifecycle.raw = 0;
    if (!start_empty) {
        weft_waker old = {no_wake, &old_id};
        model_check(weft__slot_register(&slot, &old));
    }
    memset(taken, 0, sizeof taken);
    saw_end = false;
    last_waker = NULL;
    answer = -1;
    model_name(&slot, sizeof slot, "slot");
    model_name(&lifecycle, sizeof lifecycle, "lifecycle");
}

static void slot_poll(const void *id)
{
    weft_waker w = {no_wake, (void *)(uintptr_t)id};
    if (saw_end || (saw_end = atom_load_acq(&lifecycle) != 0))
        return;
    answer = weft__slot_register(&slot, &w);
    last_waker = id;
    if (!answer) {
        model_check(atom_load_acq(&lifecycle) == 1); /* the end must show */
        saw_end = true;
    }
}

static void slot_run(int thread)
{
    if (thread == 0) {
        slot_poll(&new_id);
        if (again) {
            slot_poll(&new_id); /* the same: no step of registration */
            slot_poll(&third_id);
        }
        return;
    }
    weft_waker w = {NULL, NULL};
    atom_store_rel(&lifecycle, 1u);
    if (weft__slot_publish(&slot, &w))
        taken[thread] = w.arg;
}

static void slot_check(void)
{
    int takers = 0;
    const void *got = NULL;
    for (int i = 1; i <= publishers; i++)
        if (taken[i]) {
            takers++;
            got = taken[i];
        }
    model_check(takers <= 1);
    model_check(slot.state.raw == WEFT__SLOT_TERMINAL);
    /* The poller either knows, or the waker it relies on has been called. */
    model_check(saw_end || got == last_waker);
    if (start_empty && !last_waker)
        model_check(takers == 0);
}

static void waker_slot_loses_no_registration(void **state)
{
    (void)state;
    for (publishers = 1; publishers <= 2; publishers++)
        for (int variant = 0; variant < 4; variant++) {
            start_empty = variant & 1;
            again = variant & 2;
            const struct model_scenario s = {.name = "waker slot",
                                             .threads = 1 + publishers,
                                             .setup = slot_setup,
                                             .run = slot_run,
                                             .check = slot_check};
            model_must_hold(&s);
        }
}

/* The checker would see the two ways in which this has gone wrong elsewhere. */
static void slot_run_end_after_publish(int thread)
{
    weft_waker w = {NULL, NULL};
    if (thread == 0) {
        slot_run(thread);
    } else {
        if (weft__slot_publish(&slot, &w))
            taken[thread] = w.arg;
        atom_store_rel(&lifecycle, 1u);
    }
}

static void slot_run_careless_poller(int thread)
{
    if (thread) {
        slot_run(thread);
    } else {
        uint32_t ready = WEFT__SLOT_READY;
        if (!atom_cas_ar(&slot.state, &ready, (uint32_t)WEFT__SLOT_REGISTERING)) {
            saw_end = true;
            return;
        }
        slot.waker.arg = &new_id;
        last_waker = &new_id;
        atom_store_rel(&slot.state, (uint32_t)WEFT__SLOT_READY); /* wipes TERMINAL out */
    }
}

static void waker_slot_faults_are_found(void **state)
{
    (void)state;
    start_empty = again = false;
    publishers = 1;
    struct model_scenario s = {.name = "waker slot, lifecycle too late",
                               .threads = 2,
                               .setup = slot_setup,
                               .run = slot_run_end_after_publish,
                               .check = slot_check};
    model_must_find(&s, "lifecycle");
    s.name = "waker slot, careless poller";
    s.run = slot_run_careless_poller;
    model_must_find(&s, "slot.state");
}

#undef weft__shard_acquire
#undef weft__shard_release

/* -- the shard's lock ------------------------------------------------------------------ */

static weft__shard_lock lock;
static int counter;

static void lock_setup(void)
{
    weft__shard_lock_init(&lock, false, false);
    counter = 0;
    model_name(&lock, sizeof lock, "lock");
}

static void lock_run(int thread)
{
    (void)thread;
    weft__shard_acquire(&lock);
    counter++; /* a race, if two were inside */
    weft__shard_release(&lock);
}

static void lock_check(void)
{
    model_check(counter == 3);
    model_check(lock.word.raw == 0 && lock.sleepers.raw == 0);
}

static void shard_lock_excludes_and_wakes(void **state)
{
    (void)state;
    const struct model_scenario s = {.name = "shard lock, 3 threads",
                                     .threads = 3,
                                     .setup = lock_setup,
                                     .run = lock_run,
                                     .check = lock_check,
                                     .spurious = 1};
    model_must_hold(&s);
}

/* -- the service ----------------------------------------------------------------------- */

static weft_timer_service *service;
static weft_timer timers[2];
static weft__a32 woken;
static weft__parker parkers[MODEL_THREADS], *current;
static int fired, plan, cancelled;
static bool inside[2]; /* plain: whoever is not ordered with the callback races */
static weft_time until;

static weft_time stopped_clock(void *arg)
{
    (void)arg;
    return 0;
}

static void fire(weft_timer *t, void *arg, int result)
{
    (void)arg;
    model_check(result == 0);
    inside[t == &timers[1]] = true;
    fired++;
}

static void switched(int t)
{
    current = &parkers[t];
}

static void service_setup(void)
{
    weft_timer_options o = {.shards = 1, .clock = stopped_clock};
    model_check(weft_timer_service_create(0, &o, &service) == 0);
    for (int i = 0; i < 2; i++)
        weft_timer_init(&timers[i], &service->context, fire, NULL, 0);
    woken.raw = 0;
    fired = 0;
    plan = cancelled = -1;
    weft__self_slot(&current);
    for (int t = 0; t < MODEL_THREADS; t++)
        weft__parker_init(&parkers[t], &thread_ops);
    model_name(service, sizeof *service, "service");
    model_name(service->context.shards, sizeof(weft__shard), "shard");
    model_name(timers, sizeof timers, "timers");
    model_name(&woken, sizeof woken, "woken");
}

static void service_end(void)
{
    weft_timer_service_destroy(service);
}

static void wake_reactor(void *arg)
{
    (void)arg;
    atom_store_rel(&woken, 1u);
    weft__sys_futex_wake(&woken, 1);
}

/* The reactor sleeps until its plan; with virtual time, a plan that is later than what has
 * been armed, and no wake, is a sleep without end. */
static void plan_run(int thread)
{
    if (thread == 0) {
        weft_waker w = {wake_reactor, NULL};
        plan = weft_timer_service_prepare_wait(service, &w, &until);
        if (plan == WEFT_WAIT_NOW || (plan == WEFT_WAIT_UNTIL && until <= 10 * WEFT_MSEC))
            return;
        while (!atom_load_acq(&woken))
            weft__sys_futex_wait(&woken, 0, WEFT_NEVER);
    } else {
        weft_timer_arm(&timers[thread - 1], thread == 1 ? 10 * WEFT_MSEC : 20 * WEFT_MSEC);
    }
}

static void plan_check(void)
{
    model_check(weft_timer_service_pending(service) == 2);
    model_check(weft_timer_service_turn(service, 20 * WEFT_MSEC, NULL) == 2);
    service_end();
}

static void the_plan_misses_no_timer(void **state)
{
    (void)state;
    const struct model_scenario s = {.name = "prepare_wait against two arms",
                                     .threads = 3,
                                     .setup = service_setup,
                                     .run = plan_run,
                                     .check = plan_check,
                                     .on_switch = switched};
    model_must_hold(&s);
}

static void cancel_setup(void)
{
    service_setup();
    weft_timer_arm(&timers[0], WEFT_MSEC);
    weft_timer_arm(&timers[1], WEFT_MSEC);
}

static void cancel_run(int thread)
{
    if (thread == 0) {
        model_check(weft_timer_service_turn(service, 5 * WEFT_MSEC, NULL) >= 1);
    } else {
        cancelled = weft_timer_cancel_wait(&timers[0], WEFT_NEVER);
        model_check(cancelled == 0 || cancelled == 1);
        /* Ours now: a late access of the callback or the reactor is a race. */
        inside[0] = true;
        memset(&timers[0], 0x5a, sizeof timers[0]);
    }
}

static void cancel_check(void)
{
    model_check(fired == (cancelled ? 1 : 2));
    model_check(inside[0] && service->context.syncers.raw == 0);
    service_end();
}

static void a_waiting_cancel_returns_after_the_callback(void **state)
{
    (void)state;
    const struct model_scenario s = {.name = "turn against cancel_wait",
                                     .threads = 2,
                                     .setup = cancel_setup,
                                     .run = cancel_run,
                                     .check = cancel_check,
                                     .on_switch = switched};
    model_must_hold(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waker_slot_loses_no_registration),
        cmocka_unit_test(waker_slot_faults_are_found),
        cmocka_unit_test(shard_lock_excludes_and_wakes),
        cmocka_unit_test(the_plan_misses_no_timer),
        cmocka_unit_test(a_waiting_cancel_returns_after_the_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

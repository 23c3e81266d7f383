/* SPDX-License-Identifier: MIT
 *
 * The waker slot: a poller that replaces its waker while one or two publishers come.
 * The slot holds nothing, an old waker or the new one when they do. Held:
 *   - whichever order: the newest waker is called, or the poller is told that it is
 *     too late and sees what was published (a deadlock or a race otherwise)
 *   - at most one publisher gets a waker, and calls it once
 *   - the poller and a publisher never use the waker at the same time (a race)
 */
#include "unit_test.h"

#include "model.h"

#include "base/sys.h"
#include "../../src/time/waker_slot.h"

enum { OLD, NEW, WAKERS };

static weft__waker_slot slot;
static weft__a32 called[WAKERS], calls;
static bool filled; /* the slot had a waker before */
static int published;

static void wake(void *arg)
{
    weft__a32 *flag = arg;
    model_check(atom_xchg_ar(flag, 1u) == 0);
    model_check(atom_add_rlx(&calls, 1u) == 0);
    weft__sys_futex_wake(flag, 1);
}

static void setup(void)
{
    weft__slot_reset(&slot);
    memset(called, 0, sizeof called);
    memset(&calls, 0, sizeof calls);
    published = 0;
    weft_waker old = {wake, &called[OLD]};
    if (filled)
        model_check(weft__slot_register(&slot, &old));
    model_name(&slot, sizeof slot, "slot");
    model_name(called, sizeof called, "called");
}

static void publish(void)
{
    weft_waker w;
    if (weft__slot_publish(&slot, &w))
        w.wake(w.arg);
}

static void poll_with(int which)
{
    weft_waker w = {wake, &called[which]};
    if (weft__slot_register(&slot, &w)) {
        while (!atom_load_acq(&called[which]))
            weft__sys_futex_wait(&called[which], 0, WEFT_NEVER);
    }
    model_check(published == 42); /* plain: a race unless it is ordered */
}

static void poller_and_publisher(int t)
{
    if (t > 0) {
        published = 42;
        publish();
        return;
    }
    /* Registers again what may be there already, then something newer. */
    weft_waker old = {wake, &called[OLD]};
    bool again = model_choose(2);
    if (again && !weft__slot_register(&slot, &old))
        model_check(published == 42);
    poll_with(model_choose(2) ? NEW : OLD);
}

static void check_one_call(void)
{
    model_check(calls.raw <= 1);
    model_check(slot.state.raw == WEFT__SLOT_TERMINAL);
}

static void explore(const char *empty_name, const char *full_name, void (*run)(int), int threads)
{
    struct model_scenario s = {
        .threads = threads, .setup = setup, .run = run, .check = check_one_call, .spurious = 1};
    filled = false;
    s.name = empty_name;
    model_must_hold(&s);
    filled = true;
    s.name = full_name;
    model_must_hold(&s);
}

static void one_publisher(void **state)
{
    (void)state;
    explore("slot, empty", "slot, old waker inside", poller_and_publisher, 2);
}

/* The first to come publishes; the second finds TERMINAL and has nothing to do. What
 * they publish was done before by somebody else. */
static void poller_and_publishers(int t)
{
    if (t > 0)
        publish();
    else
        poll_with(NEW);
}

static void setup_published(void)
{
    setup();
    published = 42;
}

static void two_publishers(void **state)
{
    (void)state;
    struct model_scenario s = {.name = "slot, 2 publishers",
                               .threads = 3,
                               .setup = setup_published,
                               .run = poller_and_publishers,
                               .check = check_one_call,
                               .spurious = 1};
    filled = true;
    model_must_hold(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_publisher),
        cmocka_unit_test(two_publishers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

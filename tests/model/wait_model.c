/* SPDX-License-Identifier: MIT
 *
 * The wait protocol of wait.h, W1 to W5, on a gate that notifiers open: a plain
 * thread that waits, and a fiber-like parker that a worker publishes; notifiers, a
 * timeout and a cancellation at once.
 *
 * What holds the invariants:
 *   W1  tokens given by a claim are received, the others lie in the gate
 *   W2  weft__unpark asserts that it comes once; the waiter writes over its frame
 *       after it returned, so a late access of a claimer is a race
 *   W3  make_run checks that nobody made the fiber run twice; never is a deadlock
 *   W4  the queue is empty at the end; a node left behind is a race, as in W2
 *   W5  a cancelled waiter does not sleep on: a deadlock
 */
#include "model_wait.h"

/* ---- The gate ---- */

static struct gate {
    weft__lock lock;
    weft__list queue;
    int tokens;
} gate;

static int gate_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct gate *g = object;
    (void)n;
    (void)wakes;
    if (g->tokens == 0)
        return -EAGAIN;
    g->tokens--;
    return 0;
}

static void gate_link(void *object, weft__wait_node *n)
{
    weft__list_push(&((struct gate *)object)->queue, &n->link);
}

static void gate_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops gate_ops = {"gate", gate_try, gate_link, gate_unlink};

static void gate_open(void)
{
    weft__wakes wakes = {0};
    weft__link *l;
    weft__acquire(&gate.lock);
    while ((l = weft__list_pop(&gate.queue)) != NULL) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        if (weft__node_claim(n, 0)) {
            weft__wakes_add(&wakes, n->parker);
            break;
        }
    }
    if (!l)
        gate.tokens++;
    weft__release(&gate.lock);
    weft__wakes_run(&wakes);
}

static WEFT__NOINLINE int gate_pass(weft_time deadline)
{
    weft__wait_node n = {0};
    return weft__wait_on(&gate_ops, &gate, &gate.lock, &n, deadline);
}

/* ---- What the scenarios share ---- */

static weft_time deadline;
static int passes;  /* how often the waiter goes through */
static int openers; /* threads 1.. that open the gate once each */
static int outcome[2], received;

static void setup_threads(void)
{
    weft__lock_init(&gate.lock);
    weft__list_init(&gate.queue);
    gate.tokens = 0;
    received = 0;
    outcome[0] = outcome[1] = 1;
    parkers_setup();
    model_name(&gate, sizeof gate, "gate");
}

static void wait_at_gate(void)
{
    for (int i = 0; i < passes; i++) {
        outcome[i] = gate_pass(deadline);
        stamp_on_frames();
        received += outcome[i] == 0;
    }
}

static void check_tokens(void)
{
    model_check(received + gate.tokens == openers);
    model_check(weft__list_empty(&gate.queue));
    model_check(gate.lock.word.raw == 0);
    for (int i = 0; i < passes; i++)
        model_check(outcome[i] == 0 || outcome[i] == -ETIMEDOUT || outcome[i] == -ECANCELED);
}

/* ---- A plain thread ---- */

static void thread_waits(int t)
{
    if (t == 0)
        wait_at_gate();
    else if (t <= openers)
        gate_open();
    else
        weft__cancel(&parker[0]);
}

static void check_not_canceled(void)
{
    check_tokens();
    model_check(outcome[0] != -ECANCELED && outcome[1] != -ECANCELED);
    if (deadline == WEFT_NEVER)
        model_check(received == passes);
}

static void run_thread(const char *name, int threads, int spurious, void (*check)(void))
{
    const struct model_scenario s = {.name = name,
                                     .threads = threads,
                                     .setup = setup_threads,
                                     .run = thread_waits,
                                     .check = check,
                                     .on_switch = parkers_on_switch,
                                     .spurious = spurious};
    model_must_hold(&s);
}

static void thread_and_two_notifiers(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = openers = 2;
    run_thread("thread, 2 notifiers, 2 waits", 3, 1, check_not_canceled);
}

static void thread_with_a_deadline(void **state)
{
    (void)state;
    deadline = MODEL_SOON;
    passes = openers = 2;
    run_thread("thread, 2 notifiers, deadline, 2 waits", 3, 1, check_not_canceled);
}

static void thread_with_everything(void **state)
{
    (void)state;
    deadline = MODEL_SOON;
    passes = 1;
    openers = 2;
    run_thread("thread, 2 notifiers, deadline, cancel", 4, 0, check_tokens);
}

static void thread_canceled(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = 2;
    openers = 1;
    run_thread("thread, notifier, cancel, 2 waits", 3, 1, check_tokens);
}

/* A wait that is shielded ends as if nobody cancelled; the next call says so. */
static void shielded(int t)
{
    if (t == 0) {
        parker[0].shield = 1;
        wait_at_gate();
        parker[0].shield = 0;
        int r = weft__checkpoint(&parker[0]);
        model_check(r == 0 || r == -ECANCELED);
    } else {
        thread_waits(t);
    }
}

static void check_shielded(void)
{
    check_not_canceled();
    model_check(weft__checkpoint(&parker[0]) == -ECANCELED);
}

static void thread_shielded(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = openers = 2;
    const struct model_scenario s = {.name = "thread, 2 notifiers, shield, cancel",
                                     .threads = 4,
                                     .setup = setup_threads,
                                     .run = shielded,
                                     .check = check_shielded,
                                     .on_switch = parkers_on_switch};
    model_must_hold(&s);
}

static void sleeps(int t)
{
    if (t == 0) {
        outcome[0] = weft__sleep(deadline);
        stamp_on_frames();
        outcome[1] = weft__sleep(deadline);
    } else {
        weft__cancel(&parker[0]);
    }
}

static void check_slept(void)
{
    model_check(outcome[0] == 0 || outcome[0] == -ECANCELED);
    model_check(outcome[1] == -ECANCELED || (outcome[0] == 0 && outcome[1] == 0));
    if (deadline == WEFT_NEVER)
        model_check(outcome[0] == -ECANCELED);
}

static void thread_asleep(void **state)
{
    (void)state;
    struct model_scenario s = {.name = "sleep for ever, 2 cancels",
                               .threads = 3,
                               .setup = setup_threads,
                               .run = sleeps,
                               .check = check_slept,
                               .on_switch = parkers_on_switch,
                               .spurious = 1};
    deadline = WEFT_NEVER;
    model_must_hold(&s);
    s.name = "sleep, 2 cancels";
    deadline = MODEL_SOON;
    model_must_hold(&s);
}

/* ---- A fiber: thread 0; its worker, which publishes it: thread 1 ---- */

static struct {
    weft__a32 handed;  /* the fiber's context is saved, the worker may publish */
    weft__a32 running; /* somebody made the fiber run */
    weft__lock timer_lock;
    weft__parker *armed; /* its deadline, if any, has not been taken back */
    weft__a32 between;   /* the first wait is over */
    weft__a32 successor;
    weft__aptr joiner; /* of a child, as u.f.joiner of a task, and the word to claim */
    uint32_t joiner_word;
} fiber;

static void sleep_until_set(weft__a32 *flag)
{
    while (!atom_load_acq(flag)) /* pairs with the stores and exchanges to 1 */
        weft__sys_futex_wait(flag, 0, WEFT_NEVER);
    atom_store_rlx(flag, 0u);
}

static void fiber_ready(weft__parker *p)
{
    (void)p;
    model_check(atom_xchg_ar(&fiber.running, 1u) == 0);
    weft__sys_futex_wake(&fiber.running, 1);
}

static void arm(weft__parker *p)
{
    model_acquire(&fiber.timer_lock);
    fiber.armed = p;
    model_release(&fiber.timer_lock);
}

static void fiber_park(weft__parker *self, weft_time limit)
{
    if (limit != WEFT_NEVER)
        arm(self);
    atom_store_rel(&fiber.handed, 1u);
    weft__sys_futex_wake(&fiber.handed, 1);
    sleep_until_set(&fiber.running);
    if (limit != WEFT_NEVER)
        arm(NULL);
}

static const weft__parker_ops fiber_ops = {fiber_park, fiber_ready, thread_yield};

static void work(void)
{
    for (;;) {
        sleep_until_set(&fiber.handed);
        if (!weft__parked(&parker[0]))
            fiber_ready(&parker[0]);
    }
}

static void timer_fires(void)
{
    weft__wakes wakes = {0};
    model_acquire(&fiber.timer_lock);
    if (fiber.armed && weft__claim(fiber.armed, WEFT__TIMEDOUT))
        weft__wakes_add(&wakes, fiber.armed);
    fiber.armed = NULL;
    model_release(&fiber.timer_lock);
    weft__wakes_run(&wakes);
}

enum role { OPENS = 2, OPENS_AROUND, OPENS_BETWEEN, CANCELS, TIMES, CANCELS_SUCCESSOR, ENDS };
static enum role role[MODEL_THREADS];

static void set(weft__a32 *flag)
{
    atom_store_rel(flag, 1u); /* pairs with sleep_until_set */
    weft__sys_futex_wake(flag, 1);
}

static void setup_fiber(void)
{
    setup_threads();
    parker[0].ops = &fiber_ops;
    memset(&fiber, 0, sizeof fiber);
    model_name(&fiber, sizeof fiber, "fiber");
}

static void fiber_waits(int t)
{
    switch (t) {
    case 0:
        wait_at_gate();
        return;
    case 1:
        work();
        return;
    default:
        break;
    }
    switch (role[t]) {
    case OPENS_AROUND:
        gate_open();
        sleep_until_set(&fiber.between);
        gate_open();
        break;
    case OPENS_BETWEEN:
        sleep_until_set(&fiber.between);
        gate_open();
        break;
    case OPENS:
        gate_open();
        break;
    case CANCELS:
        weft__cancel(&parker[0]);
        break;
    case TIMES:
        timer_fires();
        break;
    case ENDS: { /* as wake_joiners of task.c */
        sleep_until_set(&fiber.successor);
        weft__parker *p = atom_load_rlx(&fiber.joiner);
        if (p)
            weft__claim_unpark_seen(p, fiber.joiner_word);
        break;
    }
    case CANCELS_SUCCESSOR:
        sleep_until_set(&fiber.successor);
        weft__cancel(&parker[0]);
        break;
    }
}

/* The first task of this parker's memory ends, and another begins in it. */
static void two_lives(int t)
{
    if (t != 0) {
        fiber_waits(t);
        return;
    }
    outcome[0] = gate_pass(deadline);
    stamp_on_frames();
    weft__parker_init(&parker[0], &fiber_ops);
    set(&fiber.successor);
    outcome[1] = gate_pass(deadline);
    received = (outcome[0] == 0) + (outcome[1] == 0);
}

static void check_two_lives(void)
{
    check_tokens();
    model_check(outcome[0] == 0 && outcome[1] == -ECANCELED);
}

/* The second wait is shielded: a cancellation that meant the first leaves it alone. */
static void second_wait_shielded(int t)
{
    if (t != 0) {
        fiber_waits(t);
        return;
    }
    outcome[0] = gate_pass(deadline);
    stamp_on_frames();
    set(&fiber.between);
    parker[0].shield = 1;
    outcome[1] = gate_pass(deadline);
    received = (outcome[0] == 0) + (outcome[1] == 0);
}

static void check_second_undisturbed(void)
{
    check_tokens();
    model_check(outcome[1] == 0);
}

/* The first task is cancelled by one who holds it; the second, in the same memory
 * once that one has let go, is not. */
static void cancelled_then_another(int t)
{
    if (t == 2) {
        weft__cancel(&parker[0]);
        set(&fiber.successor);
        return;
    }
    if (t != 0) {
        fiber_waits(t);
        return;
    }
    outcome[0] = gate_pass(deadline);
    stamp_on_frames();
    set(&fiber.between);
    sleep_until_set(&fiber.successor);
    weft__parker_init(&parker[0], &fiber_ops);
    outcome[1] = gate_pass(deadline);
    received = (outcome[0] == 0) + (outcome[1] == 0);
}

/* Joins a child without a node, as join_claimed of task.c; whatever ended that, the next
 * wait is ended by the gate only. */
static void joins_then_waits(int t)
{
    if (t != 0) {
        fiber_waits(t);
        return;
    }
    weft__parker *self = &parker[0];
    fiber.joiner_word = weft__wait_begin(self, "join", NULL);
    atom_store_rlx(&fiber.joiner, self);
    set(&fiber.successor); /* the child starts */
    uint32_t decided = weft__wait_commit(self, deadline);
    outcome[0] = decided == 0 ? 0 : decided == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
    if (outcome[0])
        atom_store_rlx(&fiber.joiner, NULL);
    stamp_on_frames();
    set(&fiber.between);
    self->shield = 1;
    outcome[1] = gate_pass(WEFT_NEVER);
    received = outcome[1] == 0;
}

static void check_joined(void)
{
    check_tokens();
    model_check(outcome[1] == 0);
    if (deadline == WEFT_NEVER)
        model_check(outcome[0] != -ETIMEDOUT);
}

static int preemptions; /* 0: no bound */

static void run_fiber(const char *name, void (*run)(int), void (*check)(void), int threads)
{
    const struct model_scenario s = {.name = name,
                                     .all = preemptions != 0,
                                     .preemptions = preemptions,
                                     .threads = threads,
                                     .setup = setup_fiber,
                                     .run = run,
                                     .check = check,
                                     .on_switch = parkers_on_switch,
                                     .may_sleep = 1u << 1};
    model_must_hold(&s);
}

static void fiber_and_two_notifiers(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = openers = 2;
    role[2] = role[3] = OPENS;
    run_fiber("fiber, 2 notifiers, 2 waits", fiber_waits, check_not_canceled, 4);
}

static void fiber_canceled(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = 2;
    openers = 1;
    role[2] = OPENS;
    role[3] = CANCELS;
    run_fiber("fiber, notifier, cancel, 2 waits", fiber_waits, check_tokens, 4);
}

static void fiber_with_a_deadline(void **state)
{
    (void)state;
    deadline = MODEL_SOON;
    passes = 1;
    openers = 2;
    role[2] = role[3] = OPENS;
    role[4] = TIMES;
    run_fiber("fiber, 2 notifiers, timer", fiber_waits, check_not_canceled, 5);
}

static void fiber_with_everything(void **state)
{
    (void)state;
    deadline = MODEL_SOON;
    passes = openers = 1;
    role[2] = OPENS;
    role[3] = TIMES;
    role[4] = CANCELS;
    run_fiber("fiber, notifier, timer, cancel", fiber_waits, check_tokens, 5);
}

static void fiber_memory_is_reused(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = 2;
    openers = 1;
    role[2] = OPENS;
    role[3] = CANCELS_SUCCESSOR;
    run_fiber("fiber, 2 tasks in the same memory", two_lives, check_two_lives, 4);
}

static void fiber_shielded_later(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = openers = 2;
    role[2] = OPENS_AROUND;
    role[3] = CANCELS;
    run_fiber("fiber, notifier, cancel, 2nd wait shielded", second_wait_shielded,
              check_second_undisturbed, 4);
}

static void fiber_cancelled_before_its_successor(void **state)
{
    (void)state;
    deadline = WEFT_NEVER;
    passes = 2;
    openers = 1;
    role[3] = OPENS_BETWEEN;
    run_fiber("fiber, cancelled, another in its memory", cancelled_then_another,
              check_second_undisturbed, 4);
}

static void fiber_joins_its_child(void **state)
{
    (void)state;
    passes = 2;
    openers = 1;
    role[2] = ENDS;
    role[3] = OPENS_BETWEEN;
    deadline = WEFT_NEVER;
    run_fiber("fiber, its child ends", joins_then_waits, check_joined, 4);
    preemptions = 2;
    role[4] = CANCELS;
    run_fiber("fiber, its child ends, cancel", joins_then_waits, check_joined, 5);
    role[4] = TIMES;
    deadline = MODEL_SOON;
    run_fiber("fiber, its child ends, timer", joins_then_waits, check_joined, 5);
    preemptions = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_and_two_notifiers),
        cmocka_unit_test(thread_with_a_deadline),
        cmocka_unit_test(thread_with_everything),
        cmocka_unit_test(thread_canceled),
        cmocka_unit_test(thread_shielded),
        cmocka_unit_test(thread_asleep),
        cmocka_unit_test(fiber_and_two_notifiers),
        cmocka_unit_test(fiber_canceled),
        cmocka_unit_test(fiber_with_a_deadline),
        cmocka_unit_test(fiber_with_everything),
        cmocka_unit_test(fiber_memory_is_reused),
        cmocka_unit_test(fiber_shielded_later),
        cmocka_unit_test(fiber_cancelled_before_its_successor),
        cmocka_unit_test(fiber_joins_its_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

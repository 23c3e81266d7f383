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
#include "unit_test.h"

#include "model.h"
#include "model_lock.h"

#define weft__acquire model_acquire
#define weft__release model_release
#include "../../src/wait/wait.c"

enum { SOON = 2000000 };

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

/* Writes over the stack where gate_pass had its frame. */
static WEFT__NOINLINE void stamp_on_frame(void)
{
    volatile char old[400];
    for (size_t i = 0; i < sizeof old; i++)
        old[i] = (char)0xdd;
}

/* ---- What the scenarios share ---- */

static weft__parker parker[MODEL_THREADS], *slot;
static weft_time deadline;
static int passes;  /* how often the waiter goes through */
static int openers; /* threads 1.. that open the gate once each */
static int outcome[2], received;

static void on_switch(int t)
{
    slot = &parker[t];
}

static void setup_threads(void)
{
    weft__lock_init(&gate.lock);
    weft__list_init(&gate.queue);
    gate.tokens = 0;
    received = 0;
    outcome[0] = outcome[1] = 1;
    weft__self_slot(&slot);
    for (int t = 0; t < MODEL_THREADS; t++)
        weft__parker_init(&parker[t], &thread_ops);
    model_name(&gate, sizeof gate, "gate");
    model_name(parker, sizeof parker, "parker");
}

static void wait_at_gate(void)
{
    for (int i = 0; i < passes; i++) {
        outcome[i] = gate_pass(deadline);
        stamp_on_frame();
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
                                     .on_switch = on_switch,
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
    deadline = SOON;
    passes = openers = 2;
    run_thread("thread, 2 notifiers, deadline, 2 waits", 3, 1, check_not_canceled);
}

static void thread_with_everything(void **state)
{
    (void)state;
    deadline = SOON;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_and_two_notifiers),
        cmocka_unit_test(thread_with_a_deadline),
        cmocka_unit_test(thread_with_everything),
        cmocka_unit_test(thread_canceled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

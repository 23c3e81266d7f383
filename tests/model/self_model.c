/* SPDX-License-Identifier: MIT
 *
 * The checker distrusts itself: the reduced exploration must reach every final
 * state that all orders reach, count what can be counted by hand, and find bugs
 * that are planted here.
 */
#include "unit_test.h"

#include "model.h"
#include "model_lock.h"

#include "../../src/base/lock.c"
#include "../../src/wait/wait.c"

/* ---- Counts known by hand ---- */

static weft__a32 word[3];
static weft__lock lock;
static uint32_t got[MODEL_THREADS][4];

static void clear(void)
{
    memset(word, 0, sizeof word);
    memset(&lock, 0, sizeof lock);
    memset(got, 0, sizeof got);
}

static void two_steps(int thread)
{
    atom_store_rlx(&word[thread], 1u);
    atom_store_rlx(&word[thread], 2u);
}

static void counts(void **state)
{
    (void)state;
    struct model_scenario s = {.name = "counts", .threads = 2, .setup = clear, .run = two_steps};
    struct model_result r = model_run(&s);
    assert_true(r.complete);
    assert_int_equal(r.executions, 1); /* nothing conflicts */
    s.all = true;
    r = model_run(&s);
    assert_int_equal(r.executions, 6); /* 4! / (2! 2!) */
    s.preemptions = 1;
    r = model_run(&s);
    assert_int_equal(r.executions, 4); /* not the two that alternate */
}

/* ---- The reduction loses nothing: random small programs ---- */

enum { OPS = 3, STATES = 4096 };

static struct {
    int threads;
    uint8_t op[3][OPS];
} program;

static uint64_t reached[2][STATES];
static int count[2], which;

static void run_program(int t)
{
    for (int i = 0; i < OPS; i++) {
        weft__a32 *w = &word[program.op[t][i] & 1];
        uint32_t expected = (uint32_t)i;
        switch (program.op[t][i] >> 1) {
        case 0:
            got[t][i] = atom_load_acq(w);
            break;
        case 1:
            atom_store_rel(w, (uint32_t)(t * OPS + i + 1));
            break;
        case 2:
            got[t][i] = atom_add_ar(w, 1u);
            break;
        case 3:
            got[t][i] = atom_cas_ar(w, &expected, (uint32_t)(t + 7)) ? 99 : expected;
            break;
        case 4:
            /* Times out, is woken, or does not sleep. */
            got[t][i] = weft__sys_futex_wait(w, 0, WEFT_SEC) == 0;
            break;
        case 5:
            weft__sys_futex_wake(w, 1);
            break;
        case 6:
            got[t][i] = (uint32_t)model_choose(2);
            break;
        case 7:
            model_acquire(&lock);
            got[t][i] = word[2].raw++;
            model_release(&lock);
            break;
        case 8:
            model_acquire(&lock);
            word[2].raw *= 2;
            got[t][i] = atom_load_acq(w);
            model_release(&lock);
            break;
        case 9:
            if ((got[t][i] = model_lock_try(&lock)) != 0)
                model_release(&lock);
            break;
        default:
            break;
        }
    }
}

static void note_state(void)
{
    uint64_t h = 1469598103934665603ULL;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < OPS; i++)
            h = (h ^ got[t][i]) * 1099511628211ULL;
    for (int i = 0; i < 3; i++)
        h = (h ^ word[i].raw) * 1099511628211ULL;
    for (int i = 0; i < count[which]; i++)
        if (reached[which][i] == h)
            return;
    assert_true(count[which] < STATES);
    reached[which][count[which]++] = h;
}

static void reduction_loses_nothing(void **state)
{
    (void)state;
    uint64_t rng = 20260101;
    unsigned long reduced = 0, full = 0;
    for (int round = 0; round < 200; round++) {
        for (int t = 0; t < 3; t++)
            for (int i = 0; i < OPS; i++)
                program.op[t][i] = (uint8_t)((weft__rand(&rng) >> 33) % 20);
        if (round % 5) /* the third thread does little in most of them */
            program.op[2][1] = program.op[2][2] = 20;
        struct model_scenario s = {.name = "random",
                                   .threads = 3,
                                   .setup = clear,
                                   .run = run_program,
                                   .check = note_state,
                                   .quiet = true};
        s.spurious = round % 4 == 3;
        for (which = 0; which < 2; which++) {
            count[which] = 0;
            s.all = which == 1;
            s.eager = which == 0 && round % 2;
            struct model_result r = model_run(&s);
            assert_false(r.failed);
            assert_true(r.complete);
            *(which ? &full : &reduced) += r.executions;
        }
        assert_int_equal(count[0], count[1]);
        for (int i = 0; i < count[1]; i++) {
            bool found = false;
            for (int k = 0; k < count[0]; k++)
                found |= reached[0][k] == reached[1][i];
            assert_true(found);
        }
    }
    printf("reduction: %lu executions for %lu\n", reduced, full);
    assert_true(reduced * 10 < full);
}

/* ---- Planted bugs ---- */

static void must_find(const char *name, int threads, void (*run)(int), const char *why)
{
    const struct model_scenario s = {.name = name, .threads = threads, .setup = clear, .run = run};
    model_must_find(&s, why);
}

/* word[0]: there is work; word[1]: the consumer is about to sleep. */
static void forgetful_sleeper(int t)
{
    if (t == 0) {
        if (atom_load_sc(&word[0]))
            return;
        atom_store_sc(&word[1], 1u);
        /* Here it should look again at word[0]. */
        while (atom_load_sc(&word[1]))
            weft__sys_futex_wait(&word[1], 1, WEFT_NEVER);
    } else {
        atom_store_sc(&word[0], 1u);
        if (atom_xchg_sc(&word[1], 0u))
            weft__sys_futex_wake(&word[1], 1);
    }
}

static void finds_a_lost_wake(void **state)
{
    (void)state;
    must_find("lost wake", 2, forgetful_sleeper, "deadlock");
}

/* A wait on a plain thread, decided and woken in several wrong ways. */
static weft__parker parker[MODEL_THREADS], *slot;
static weft__wait_node *shared;

static void on_switch(int t)
{
    slot = &parker[t];
}

static void clear_wait(void)
{
    clear();
    weft__self_slot(&slot);
    for (int t = 0; t < MODEL_THREADS; t++)
        weft__parker_init(&parker[t], &thread_ops);
    shared = NULL;
    model_name(parker, sizeof parker, "parker");
}

static void must_find_wait(const char *name, int threads, void (*run)(int), const char *why)
{
    const struct model_scenario s = {
        .name = name, .threads = threads, .setup = clear_wait, .run = run, .on_switch = on_switch};
    model_must_find(&s, why);
}

static void unparks_without_owing(int t)
{
    if (t == 0) {
        weft__wait_begin(weft__self(), "test", NULL);
        atom_store_rel(&word[0], 1u);
        weft__wait_commit(weft__self(), WEFT_NEVER);
    } else if (atom_load_acq(&word[0])) {
        weft__claim(&parker[0], 0); /* the answer is not looked at */
        weft__unpark(&parker[0]);
    }
}

static void finds_a_double_unpark(void **state)
{
    (void)state;
    must_find_wait("double unpark", 3, unparks_without_owing, "WEFT__WAIT_TOKEN");
}

/* Like thread_park, but content with the claim. */
static void hasty_park(weft__parker *self, weft_time deadline)
{
    if (!weft__parked(self))
        return;
    for (;;) {
        uint32_t now = atom_load_acq(&self->word);
        if ((now & WEFT__WAIT_PHASE) == WEFT__WAIT_CLAIMED)
            return;
        if (weft__sys_futex_wait(&self->word, now, deadline) && weft__claim(self, 9))
            return;
    }
}

static const weft__parker_ops hasty_ops = {hasty_park, thread_ready, thread_yield};

static WEFT__NOINLINE void wait_in_frame(weft__parker *self)
{
    weft__wait_node n = {0};
    n.parker = self;
    weft__wait_begin(self, "test", NULL);
    shared = &n;
    atom_store_rel(&word[0], 1u);
    weft__wait_commit(self, 2 * WEFT_SEC);
    shared = NULL;
}

static void returns_too_early(int t)
{
    if (t == 0) {
        parker[0].ops = &hasty_ops;
        wait_in_frame(&parker[0]);
        /* A second wait that nobody decides gets what the first did not consume. */
        weft__wait_begin(&parker[0], "test", NULL);
        if (weft__claim(&parker[0], 1))
            weft__unpark(&parker[0]);
    } else if (atom_load_acq(&word[0])) {
        if (weft__claim(&parker[0], 0))
            weft__unpark(&parker[0]);
    }
}

static void finds_an_early_return(void **state)
{
    (void)state;
    must_find_wait("early return", 2, returns_too_early,
                   "WEFT__WAIT_TOKEN" /* unpark's assertion */);
}

/* The payload is written after the unpark: no crash here, but a race. */
static void writes_late(int t)
{
    if (t == 0) {
        wait_in_frame(&parker[0]);
    } else if (atom_load_acq(&word[0])) {
        weft__wait_node *n = shared;
        if (weft__claim(n->parker, 0)) {
            weft__unpark(&parker[0]);
            n->result = 1;
        }
    }
}

static void finds_an_access_after_the_unpark(void **state)
{
    (void)state;
    must_find_wait("late write", 2, writes_late, "race");
}

static int plain_counter;

static void weak_publication(int t)
{
    if (t == 0) {
        plain_counter = 1;
        atom_store_rlx(&word[0], 1u); /* should release */
    } else if (atom_load_acq(&word[0])) {
        model_check(plain_counter == 1);
    }
}

static void sound_publication(int t)
{
    if (t == 0) {
        plain_counter = 1;
        atom_store_rel(&word[0], 1u);
    } else if (atom_load_acq(&word[0])) {
        model_check(plain_counter == 1);
    }
}

static void finds_a_weak_order(void **state)
{
    (void)state;
    must_find("weak order", 2, weak_publication, "race");
    struct model_scenario s = {
        .name = "sound order", .threads = 2, .setup = clear, .run = sound_publication};
    model_must_hold(&s);
}

static void torn_lock(int t)
{
    (void)t;
    for (int tries = 0; tries < 2; tries++)
        if (!atom_load_acq(&word[0])) {
            atom_store_rlx(&word[0], 1u);
            plain_counter++;
            atom_store_rel(&word[0], 0u);
            return;
        }
}

static void finds_a_broken_lock(void **state)
{
    (void)state;
    must_find("broken lock", 2, torn_lock, "race");
}

static weft__aptr box;

static void boxes(void)
{
    clear();
    box.raw = weft__malloc(8);
}

static void frees_too_early(int t)
{
    weft__a32 *a = box.raw;
    if (t == 0) {
        weft__free(a);
        atom_store_rel(&word[0], 1u);
    } else if (atom_load_acq(&word[0])) {
        atom_store_rlx(a, 1u); /* in order, so no race, but too late */
    }
}

static void finds_use_after_free(void **state)
{
    (void)state;
    const struct model_scenario s = {
        .name = "freed", .threads = 2, .setup = boxes, .run = frees_too_early};
    model_must_find(&s, "freed memory");
}

static void spins(int t)
{
    if (t == 0)
        atom_store_rel(&word[0], 1u);
    else
        while (!atom_load_acq(&word[0]))
            continue;
}

static void finds_an_endless_spin(void **state)
{
    (void)state;
    must_find("endless spin", 2, spins, "livelock");
}

static void a_schedule_leads_back(void **state)
{
    (void)state;
    struct model_scenario s = {
        .name = "again", .threads = 2, .setup = clear, .run = forgetful_sleeper, .quiet = true};
    struct model_result first = model_run(&s);
    char given[sizeof first.schedule + 16];
    snprintf(given, sizeof given, "again:%s", first.schedule);
    setenv("WEFT_MODEL_SCHEDULE", given, 1);
    struct model_result second = model_run(&s);
    unsetenv("WEFT_MODEL_SCHEDULE");
    assert_true(second.failed);
    assert_string_equal(first.why, second.why);
    assert_string_equal(first.schedule, second.schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(reduction_loses_nothing),
        cmocka_unit_test(finds_a_lost_wake),
        cmocka_unit_test(finds_a_double_unpark),
        cmocka_unit_test(finds_an_early_return),
        cmocka_unit_test(finds_an_access_after_the_unpark),
        cmocka_unit_test(finds_a_weak_order),
        cmocka_unit_test(finds_a_broken_lock),
        cmocka_unit_test(finds_use_after_free),
        cmocka_unit_test(finds_an_endless_spin),
        cmocka_unit_test(a_schedule_leads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

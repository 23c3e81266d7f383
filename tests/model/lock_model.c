/* SPDX-License-Identifier: MIT
 *
 * weft__lock between three threads: mutual exclusion (the plain counter would
 * race), nobody sleeps for ever, the word is free at the end.
 */
#include "unit_test.h"

#include "model.h"

#include "../../src/base/lock.c"

static weft__lock lock;
static weft__a32 inside;
static int counter, rounds, tries;

static void setup(void)
{
    weft__lock_init(&lock);
    inside.raw = 0;
    counter = tries = 0;
    model_name(&lock, sizeof lock, "lock");
    model_name(&inside, sizeof inside, "inside");
}

static void locks(int thread)
{
    (void)thread;
    for (int i = 0; i < rounds; i++) {
        weft__acquire(&lock);
        model_check(atom_xchg_ar(&inside, 1u) == 0);
        counter++;
        atom_store_rlx(&inside, 0u);
        weft__release(&lock);
    }
}

static void locks_or_tries(int thread)
{
    if (thread > 0) {
        locks(thread);
    } else if (weft__lock_try(&lock)) {
        tries = ++counter;
        weft__release(&lock);
    }
}

static void all_got_it(void)
{
    model_check(counter == 3 * rounds);
    model_check(lock.word.raw == 0);
}

static void two_got_it(void)
{
    model_check(counter == 2 * rounds + (tries > 0));
    model_check(lock.word.raw == 0);
}

static void three_threads(void **state)
{
    (void)state;
    rounds = 1;
    const struct model_scenario s = {.name = "lock, 3 threads",
                                     .threads = 3,
                                     .setup = setup,
                                     .run = locks,
                                     .check = all_got_it,
                                     .spurious = 1};
    model_must_hold(&s);
}

static void again_and_again(void **state)
{
    (void)state;
    rounds = 3;
    const struct model_scenario s = {.name = "lock, 2 threads 3 times",
                                     .threads = 2,
                                     .setup = setup,
                                     .run = locks,
                                     .check = two_got_it,
                                     .spurious = 1};
    model_must_hold(&s);
}

static void one_only_tries(void **state)
{
    (void)state;
    rounds = 1;
    const struct model_scenario s = {.name = "lock, try beside two",
                                     .threads = 3,
                                     .setup = setup,
                                     .run = locks_or_tries,
                                     .check = two_got_it};
    model_must_hold(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_threads),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(one_only_tries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

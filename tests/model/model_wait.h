/* SPDX-License-Identifier: MIT
 *
 * model_wait.h -- weft's wait core for a model test: the lock as one step (see
 * model_lock.h), the real wait.c, and one plain-thread parker for each model thread.
 */
#ifndef WEFT_TESTS_MODEL_WAIT_H
#define WEFT_TESTS_MODEL_WAIT_H

#include "unit_test.h"

#include "model.h"
#include "model_lock.h"

#define weft__acquire  model_acquire
#define weft__release  model_release
#define weft__lock_try model_lock_try

#include "../../src/wait/wait.c"

/* Model threads start at a model time of 1 ms. */
enum { MODEL_SOON = 2000000 };

static weft__parker parker[MODEL_THREADS], *parker_slot;

static inline void parkers_on_switch(int t)
{
    parker_slot = &parker[t];
}

static inline void parkers_setup(void)
{
    weft__self_slot(&parker_slot);
    for (int t = 0; t < MODEL_THREADS; t++)
        weft__parker_init(&parker[t], &thread_ops);
    model_name(parker, sizeof parker, "parker");
}

/* Writes over the stack where the calls before had their frames: whoever still uses
 * a node in there races with it. */
static WEFT__NOINLINE void stamp_on_frames(void)
{
    volatile char old[600];
    for (size_t i = 0; i < sizeof old; i++)
        old[i] = (char)0xdd;
}

/* The last thing of a thread that has waited: a wait that only it decides. An unpark
 * that comes now was owed to nobody, and fails weft__unpark or parkers_check. */
static inline void parker_leaves(int t)
{
    stamp_on_frames();
    weft__wait_begin(&parker[t], "end", NULL);
    model_check(weft__claim(&parker[t], 0) || atom_load_rlx(&parker[t].cancel));
}

static inline void parkers_check(int threads)
{
    for (int t = 0; t < threads; t++)
        model_check(!(parker[t].word.raw & WEFT__WAIT_TOKEN) || parker[t].cancel.raw);
}

/* All interleavings of `threads` parkers; with `bound` above 0, those with so many
 * preemptions. */
static inline void parkers_explore(const char *name, int threads, void (*setup)(void),
                                   void (*run)(int), void (*check)(void), int bound)
{
    const struct model_scenario s = {.name = name,
                                     .threads = threads,
                                     .setup = setup,
                                     .run = run,
                                     .check = check,
                                     .on_switch = parkers_on_switch,
                                     .all = bound > 0,
                                     .preemptions = bound};
    model_must_hold(&s);
}

#endif

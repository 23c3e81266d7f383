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

static void parkers_on_switch(int t)
{
    parker_slot = &parker[t];
}

static void parkers_setup(void)
{
    weft__self_slot(&parker_slot);
    for (int t = 0; t < MODEL_THREADS; t++)
        weft__parker_init(&parker[t], &thread_ops);
    model_name(parker, sizeof parker, "parker");
}

#endif

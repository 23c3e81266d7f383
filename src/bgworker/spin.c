/* SPDX-License-Identifier: MIT
 *
 * spin.c -- see spin.h.
 *
 * Looking pays where both sides run: then it finds what it waits for within a few
 * microseconds, and the budget is four times what that has taken of late. Where it takes
 * longer, or is in vain (the other side shares our processor, or works for long, or has
 * to be woken each time), the budget halves until looking stops. Finding something late
 * is no success: the scheduler puts a sleeper on its waker's processor at once, and a
 * looker keeps it from there. Then about every thousandth wait looks for as long as a
 * wake-up may take, to find out whether times have changed.
 */
#include "bgworker/spin.h"

#include "weft/task.h"

enum {
    PROBE = 50000, /* ns: a sleep and a wake-up of an idle processor */
    SOON = 8000,   /* ns: found later than this, the look did not pay */
    BUDGET_MIN = 1000,
    PROBE_EVERY = 1024,
    SPINNERS = 1,
    LOOKS = 16, /* between two readings of the clock */
};

void weft__spin_init(weft__spin *s)
{
    atom_store_rlx(&s->spinners, 0u);
    atom_store_rlx(&s->budget, (uint32_t)PROBE);
    atom_store_rlx(&s->skipped, 0u);
    atom_store_rlx(&s->taken, (uint32_t)BUDGET_MIN);
}

static bool delivered(const weft__parker *self)
{
    /* Pairs with weft__unpark, as the acquire of the commit does again. */
    return (atom_load_acq((weft__a32 *)(uintptr_t)&self->word) & WEFT__WAIT_TOKEN) != 0;
}

/* Races between writers of these only make the next guess a little worse. */
static void learn(weft__spin *s, bool found, uint32_t budget, uint32_t took)
{
    uint32_t next = budget / 2;
    if (found && took <= SOON) {
        uint32_t taken = atom_load_rlx(&s->taken);
        taken = taken - taken / 4 + took / 4;
        atom_store_rlx(&s->taken, taken);
        next = 4 * taken < BUDGET_MIN ? BUDGET_MIN : 4 * taken;
    } else if (next < BUDGET_MIN) {
        next = 0;
    }
    atom_store_rlx(&s->budget, next);
}

bool weft__spin_wait(weft__spin *s, weft__parker *self)
{
    if (weft_task_self())
        return false;
    uint32_t budget = atom_load_rlx(&s->budget);
    if (budget == 0) {
        if ((atom_add_rlx(&s->skipped, 1u) + 1) % PROBE_EVERY != 0)
            return false;
        budget = PROBE;
    }
    if (atom_add_rlx(&s->spinners, 1u) >= SPINNERS) {
        atom_sub_rlx(&s->spinners, 1u);
        return false;
    }
    weft_time start = weft__sys_now(), now = start;
    bool found = false;
    while (!found && now - start < (weft_time)budget) {
        for (int i = 0; i < LOOKS && !found; i++) {
            weft__relax();
            found = delivered(self);
        }
        now = weft__sys_now();
    }
    atom_sub_rlx(&s->spinners, 1u);
    learn(s, found, budget, (uint32_t)(now - start));
    return found;
}

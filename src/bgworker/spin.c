/* SPDX-License-Identifier: MIT
 *
 * spin.c -- see spin.h.
 */
#include "bgworker/spin.h"

#include "weft/task.h"

enum {
    BUDGET_MAX = 50000, /* ns: about what a sleep and a wake-up cost both sides */
    BUDGET_MIN = 2000,
    PROBE_EVERY = 32, /* waits that don't spin before one is tried again */
    SPINNERS = 1,
    LOOKS = 32, /* between two readings of the clock */
};

void weft__spin_init(weft__spin *s)
{
    atom_store_rlx(&s->spinners, 0u);
    atom_store_rlx(&s->budget, (uint32_t)BUDGET_MAX / 2);
    atom_store_rlx(&s->skipped, 0u);
}

static bool delivered(const weft__parker *self)
{
    /* Pairs with weft__unpark, as the acquire of the commit does again. */
    return (atom_load_acq((weft__a32 *)(uintptr_t)&self->word) & WEFT__WAIT_TOKEN) != 0;
}

bool weft__spin_wait(weft__spin *s, weft__parker *self)
{
    uint32_t budget = atom_load_rlx(&s->budget);
    if (budget < BUDGET_MIN) {
        if ((atom_add_rlx(&s->skipped, 1u) + 1) % PROBE_EVERY != 0)
            return false;
        budget = BUDGET_MIN;
    }
    if (weft_task_self())
        return false;
    if (atom_add_rlx(&s->spinners, 1u) >= SPINNERS) {
        atom_sub_rlx(&s->spinners, 1u);
        return false;
    }
    bool found = false;
    weft_time end = weft__sys_now() + budget;
    do {
        for (int i = 0; i < LOOKS && !found; i++) {
            weft__relax();
            found = delivered(self);
        }
    } while (!found && weft__sys_now() < end);
    atom_sub_rlx(&s->spinners, 1u);
    /* Races between writers of the budget only make it a little wrong. */
    uint32_t next = found ? budget + budget / 4 + 256 : budget - budget / 8 - 128;
    atom_store_rlx(&s->budget, next > BUDGET_MAX ? (uint32_t)BUDGET_MAX : next);
    return found;
}

/* SPDX-License-Identifier: MIT
 *
 * idle.c -- the sleep and wake protocol of idle.h. It knows no worker and no queue, so
 * that the checker can step it with toy ones.
 */
#include "sched/idle.h"

#define SEARCHING_ONE 1u
#define IDLE_ONE      0x10000u

void weft__idle_init(weft__idle *idle)
{
    atom_store_rlx(&idle->counts, 0u);
    weft__lock_init(&idle->lock);
    weft__list_init(&idle->sleepers);
}

bool weft__idle_search_begin(weft__idle *idle, unsigned workers)
{
    /* A limit, not an invariant: a race may let one more in. */
    if (2 * WEFT__IDLE_SEARCHING(atom_load_rlx(&idle->counts)) >= workers)
        return false;
    atom_add_sc(&idle->counts, SEARCHING_ONE);
    return true;
}

bool weft__idle_search_end(weft__idle *idle)
{
    return WEFT__IDLE_SEARCHING(atom_sub_sc(&idle->counts, SEARCHING_ONE)) == 1;
}

void weft__idle_register(weft__idle *idle, weft__sleeper *s, bool searching)
{
    weft__acquire(&idle->lock);
    atom_store_rlx(&s->notified, 0u);
    if (atom_load_rlx(&s->last_choice))
        weft__list_push(&idle->sleepers, &s->link);
    else
        weft__list_push_front(&idle->sleepers, &s->link);
    atom_add_sc(&idle->counts, IDLE_ONE - (searching ? SEARCHING_ONE : 0u));
    weft__release(&idle->lock);
}

/* Under the lock: the sleeper leaves the list and counts as searching. */
static void take(weft__idle *idle, weft__sleeper *s)
{
    weft__list_remove(&s->link);
    atom_sub_sc(&idle->counts, IDLE_ONE - SEARCHING_ONE);
}

bool weft__idle_deregister(weft__idle *idle, weft__sleeper *s)
{
    weft__acquire(&idle->lock);
    bool mine = weft__linked(&s->link);
    if (mine)
        take(idle, s);
    weft__release(&idle->lock);
    return mine;
}

weft__sleeper *weft__idle_pick_slow(weft__idle *idle)
{
    weft__sleeper *s = NULL;
    weft__acquire(&idle->lock);
    /* Again under the lock: of many submitters at once only one wakes somebody. */
    if (WEFT__IDLE_SEARCHING(atom_load_sc(&idle->counts)) == 0) {
        weft__link *l = weft__list_first(&idle->sleepers);
        if (l) {
            s = weft__container(l, weft__sleeper, link);
            take(idle, s);
        }
    }
    weft__release(&idle->lock);
    return s;
}

bool weft__idle_pick_this(weft__idle *idle, weft__sleeper *s)
{
    return weft__idle_deregister(idle, s);
}

weft__sleeper *weft__idle_pick_any(weft__idle *idle)
{
    weft__acquire(&idle->lock);
    weft__link *l = weft__list_first(&idle->sleepers);
    weft__sleeper *s = l ? weft__container(l, weft__sleeper, link) : NULL;
    if (s)
        take(idle, s);
    weft__release(&idle->lock);
    return s;
}

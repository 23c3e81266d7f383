/* SPDX-License-Identifier: MIT
 *
 * here.c -- see here.h. Apart, for it is all that this room knows of the scheduler's
 * inside.
 */
#include "bgworker/here.h"

#include "sched/worker.h"

uint32_t weft__here(const weft__parker *self)
{
    const weft__worker *w = weft__worker_self();
    /* A plain thread keeps to one place; which one does not matter. */
    return w ? w->number : (uint32_t)((uintptr_t)self >> 6) * 2654435761u >> 28;
}

unsigned weft__places_of(const weft_runtime *rt)
{
    return rt ? rt->workers : 1;
}

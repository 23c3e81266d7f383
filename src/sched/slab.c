/* SPDX-License-Identifier: MIT
 *
 * slab.c -- where tasks live: chunks that are carved once and kept until the depot
 * goes, a free list under a lock, and private caches that trade with it in batches.
 * New slots are handed out in address order, so that a flood of spawns streams
 * through memory.
 */
#include "sched/task.h"

#define CHUNK_TASKS 512u
#define BATCH       64u

struct weft__task_chunk {
    weft__task_chunk *next;
    weft_task tasks[CHUNK_TASKS] WEFT__ALIGNED(WEFT__CACHE_LINE);
};

void weft__task_depot_init(weft__task_depot *d, size_t limit)
{
    *d = (weft__task_depot){.limit = limit};
}

void weft__task_depot_fini(weft__task_depot *d)
{
    while (d->chunks) {
        weft__task_chunk *next = d->chunks->next;
        weft__free(d->chunks);
        d->chunks = next;
    }
}

static void slot_init(weft_task *t)
{
    atom_store_rlx(&t->id, 0u);
    t->parker.random = 0;
    t->timer.where = 0;
    t->timed = NULL;
}

/* Under the lock. */
static weft_task *take_locked(weft__task_depot *d, int *error)
{
    weft__slink *l = d->free;
    if (l) {
        d->free = l->next;
        d->free_count--;
        return weft__task_of_link(l);
    }
    if (d->slots >= d->limit) {
        *error = -EAGAIN;
        return NULL;
    }
    if (d->fresh == 0) {
        weft__task_chunk *c = weft__aligned_alloc(WEFT__CACHE_LINE, sizeof *c);
        if (!c) {
            *error = -ENOMEM;
            return NULL;
        }
        for (size_t i = 0; i < CHUNK_TASKS; i++)
            slot_init(&c->tasks[i]);
        c->next = d->chunks;
        d->chunks = c;
        d->fresh = CHUNK_TASKS;
    }
    d->slots++;
    return &d->chunks->tasks[CHUNK_TASKS - d->fresh--];
}

static void give_locked(weft__task_depot *d, weft_task *t)
{
    t->parker.link.next = d->free;
    d->free = &t->parker.link;
    d->free_count++;
}

weft_task *weft__task_take(weft__task_depot *d, int *error)
{
    weft__acquire(&d->lock);
    weft_task *t = take_locked(d, error);
    weft__release(&d->lock);
    return t;
}

void weft__task_give(weft__task_depot *d, weft_task *t)
{
    weft__acquire(&d->lock);
    give_locked(d, t);
    weft__release(&d->lock);
}

weft_task *weft__task_cache_refill(weft__task_cache *c, weft__task_depot *d, int *error)
{
    weft__acquire(&d->lock);
    weft_task *first = take_locked(d, error);
    weft__slink **end = &c->free;
    for (uint32_t i = 1; first && i < BATCH; i++) {
        int ignored;
        weft_task *t = take_locked(d, &ignored);
        if (!t)
            break;
        *end = &t->parker.link;
        end = &t->parker.link.next;
        c->count++;
    }
    *end = NULL;
    weft__release(&d->lock);
    return first;
}

void weft__task_cache_drain(weft__task_cache *c, weft__task_depot *d, uint32_t keep)
{
    weft__acquire(&d->lock);
    while (c->count > keep) {
        weft__slink *l = c->free;
        c->free = l->next;
        c->count--;
        give_locked(d, weft__task_of_link(l));
    }
    weft__release(&d->lock);
}

void weft__task_each(weft__task_depot *d, void (*visit)(weft_task *t, void *arg), void *arg)
{
    weft__acquire(&d->lock);
    weft__task_chunk *newest = d->chunks;
    size_t used = CHUNK_TASKS - d->fresh;
    weft__release(&d->lock);
    for (weft__task_chunk *c = newest; c; c = c->next, used = CHUNK_TASKS)
        for (size_t i = 0; i < used; i++)
            if (atom_load_acq(&c->tasks[i].id)) /* pairs with spawn */
                visit(&c->tasks[i], arg);
}

/* SPDX-License-Identifier: MIT
 *
 * slab.c -- where tasks live: chunks that are carved once and kept until the depot
 * goes, and caches of the workers that trade with the depot in magazines (J. Bonwick,
 * J. Adams, "Magazines and Vmem", USENIX 2001): a chain of fixed length changes hands
 * with two stores under the lock, and nobody walks a list there. Slots that were never
 * used are handed out in rows, in address order, so that a flood of spawns streams
 * through memory.
 */
#include "sched/task.h"

#define CHUNK_TASKS 512u

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
    atom_store_rlx(&t->parker.word, 0u);
    atom_store_rlx(&t->parker.cancel, 0u);
    t->timer.where = 0;
    atom_store_rlx(&t->timer.owner, 0u);
    weft__lock_init(&t->lock);
    atom_store_rlx(&t->extra, NULL);
}

/* Under the lock: up to `want` slots in a row that were never used; their first, and
 * how many; NULL with *error. */
static weft_task *carve(weft__task_depot *d, size_t want, size_t *ret_n, int *error)
{
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
        c->next = d->chunks;
        d->chunks = c;
        d->fresh = CHUNK_TASKS;
    }
    size_t n = want < d->fresh ? want : d->fresh;
    if (n > d->limit - d->slots)
        n = d->limit - d->slots;
    weft_task *first = &d->chunks->tasks[CHUNK_TASKS - d->fresh];
    for (size_t i = 0; i < n; i++)
        slot_init(&first[i]); /* before weft__task_each may look at them */
    d->fresh -= n;
    d->slots += n;
    *ret_n = n;
    return first;
}

weft_task *weft__task_take(weft__task_depot *d, int *error)
{
    weft_task *t = NULL;
    size_t n;
    weft__acquire(&d->lock);
    if (!d->loose && d->magazines) {
        weft_task *m = d->magazines;
        d->magazines = (weft_task *)(void *)m->rt;
        d->loose = &m->parker.link;
    }
    weft__slink *l = d->loose;
    if (l) {
        d->loose = l->next;
        d->free_count--;
        t = weft__task_of_link(l);
    } else {
        t = carve(d, 1, &n, error);
    }
    weft__release(&d->lock);
    return t;
}

static void give_loose(weft__task_depot *d, weft_task *t)
{
    t->parker.link.next = d->loose;
    d->loose = &t->parker.link;
    d->free_count++;
}

bool weft__task_give(weft__task_depot *d, weft_task *t)
{
    weft__acquire(&d->lock);
    give_loose(d, t);
    bool last = d->orphaned && d->free_count == d->slots;
    weft__release(&d->lock);
    return last;
}

bool weft__task_depot_orphan(weft__task_depot *d)
{
    weft__acquire(&d->lock);
    bool all = d->free_count == d->slots;
    d->orphaned = !all;
    weft__release(&d->lock);
    return all;
}

static void give_magazine(weft__task_depot *d, weft__slink *chain)
{
    weft_task *first = weft__task_of_link(chain);
    weft__acquire(&d->lock);
    first->rt = (struct weft_runtime *)(void *)d->magazines; /* unused in a free slot */
    d->magazines = first;
    d->free_count += WEFT__MAGAZINE;
    weft__release(&d->lock);
}

/* The cache has no free slot: the spare magazine, the next never used slot, or more
 * from the depot. */
weft_task *weft__task_cache_refill(weft__task_cache *c, weft__task_depot *d, int *error)
{
    size_t n = 0;
    if (c->spare) {
        c->free = c->spare;
        c->spare = NULL;
        c->count = WEFT__MAGAZINE;
    } else if (c->fresh_left == 0) {
        weft__acquire(&d->lock);
        weft_task *m = d->magazines;
        if (m) {
            d->magazines = (weft_task *)(void *)m->rt;
            d->free_count -= WEFT__MAGAZINE;
            c->free = &m->parker.link;
            c->count = WEFT__MAGAZINE;
        } else if (d->loose) {
            c->free = d->loose;
            d->loose = c->free->next;
            d->free_count--;
            c->free->next = NULL;
            c->count = 1;
        } else {
            c->fresh = carve(d, WEFT__MAGAZINE, &n, error);
            c->fresh_left = (uint32_t)n;
        }
        weft__release(&d->lock);
    }
    if (c->free)
        return weft__task_cache_take(c, d, error);
    if (c->fresh_left == 0)
        return NULL;
    c->fresh_left--;
    __builtin_prefetch((char *)(c->fresh + 2), 1);
    return c->fresh++;
}

/* `free` holds a whole magazine: it becomes the spare one. */
void weft__task_cache_spill(weft__task_cache *c, weft__task_depot *d)
{
    if (c->spare)
        give_magazine(d, c->spare);
    c->spare = c->free;
    c->free = NULL;
    c->count = 0;
}

void weft__task_cache_fini(weft__task_cache *c, weft__task_depot *d)
{
    if (c->spare)
        give_magazine(d, c->spare);
    weft__acquire(&d->lock);
    for (weft__slink *l = c->free, *next; l; l = next) {
        next = l->next;
        give_loose(d, weft__task_of_link(l));
    }
    for (uint32_t i = 0; i < c->fresh_left; i++)
        give_loose(d, &c->fresh[i]);
    weft__release(&d->lock);
    *c = (weft__task_cache){0};
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

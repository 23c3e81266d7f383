/* SPDX-License-Identifier: MIT
 *
 * pool_local.c -- weft/pool.h: the computational and the stealable pool. Both have a ring
 * for each worker and one queue for all, and differ in the end of the ring that the owner
 * takes from and in when it turns to the shared queue.
 *
 * The stealable pool's weights. Of each local + shared takes a worker makes while both
 * hold tasks, `local` are from its ring and `shared` from the shared queue, spread evenly
 * (as J. E. Bresenham's line spreads its steps). Given are base weights; the effective ones
 * are base times arrivals since the last refresh, scaled so that the larger is 255 and the
 * smaller at least 1: the other source is never kept waiting for more than 255 takes.
 * Arrivals in the shared queue count by the worker's share, one in `workers`.
 *
 * Who may touch what: everything of a place but its ring only its worker, after the guard.
 */
#include "sched/pool.h"

#define FAIR        61u /* each so many takes begin with the shared queue */
#define STEAL_MAX   64u
#define WEIGHT_MAX  255u
#define REFRESH     (3 * WEFT_SEC)
#define UNSET_UNTIL INT64_MIN

struct place {
    weft__pool_ring ring;

    uint32_t takes; /* computational */
    uint32_t victim;

    uint32_t base; /* the base weights in use, packed */
    uint32_t local, shared;
    uint32_t credit; /* below local + shared; a take from the ring is due when it wraps */
    weft_time refresh_at;
    uint64_t arrived, arrived_seen; /* pushes to the ring: so far, and at the last refresh */
    uint64_t shared_seen;
} WEFT__ALIGNED(WEFT__CACHE_LINE);

struct local_pool {
    weft_pool base;
    weft__a32 open;
    size_t capacity;
    unsigned workers;
    struct place *places;
    weft__a32 weights; /* packed; 0: computational */
    weft_time refresh;
    weft__pool_shared shared;
};

static const weft_pool_ops computational_ops, stealable_ops;

static struct local_pool *local_of(weft_pool *pool)
{
    return weft__container(pool, struct local_pool, base);
}

/* ---- Life ---- */

static void places_free(struct local_pool *p)
{
    for (unsigned i = 0; p->places && i < p->workers; i++)
        weft__pool_ring_fini(&p->places[i].ring);
    weft__free(p->places);
    p->places = NULL;
    p->workers = 0;
}

static int local_open(weft_pool *pool, unsigned workers)
{
    struct local_pool *p = local_of(pool);
    uint32_t closed = 0;
    if (workers == 0)
        return -EINVAL;
    if (!atom_cas_ar(&p->open, &closed, 1u))
        return -EBUSY;
    p->places = weft__aligned_alloc(WEFT__CACHE_LINE, workers * sizeof *p->places);
    int r = p->places ? 0 : -ENOMEM;
    if (!r) {
        memset(p->places, 0, workers * sizeof *p->places);
        p->workers = workers;
    }
    for (unsigned i = 0; i < workers && !r; i++) {
        p->places[i].refresh_at = UNSET_UNTIL;
        r = weft__pool_ring_init(&p->places[i].ring, p->capacity);
    }
    if (r) {
        places_free(p);
        atom_store_rel(&p->open, 0u);
    }
    return r;
}

static size_t local_length(weft_pool *pool)
{
    struct local_pool *p = local_of(pool);
    size_t n = weft__pool_shared_length(&p->shared);
    for (unsigned i = 0; i < p->workers; i++)
        n += weft__pool_ring_length(&p->places[i].ring);
    return n;
}

static void local_close(weft_pool *pool)
{
    struct local_pool *p = local_of(pool);
    weft__pool_shared_reset(&p->shared);
    places_free(p);
    atom_store_rel(&p->open, 0u); /* pairs with the swap of the next open */
}

static void local_free(weft_pool *pool)
{
    struct local_pool *p = local_of(pool);
    WEFT__CHECK(!atom_load_acq(&p->open));
    weft__free(p);
}

static int local_new(const weft_pool_ops *ops, size_t capacity, struct local_pool **ret)
{
    if (capacity > WEFT__POOL_CAPACITY_MAX)
        return -EINVAL;
    struct local_pool *p = weft__aligned_alloc(WEFT__CACHE_LINE, sizeof *p);
    if (!p)
        return -ENOMEM;
    memset(p, 0, sizeof *p);
    p->base.ops = ops;
    p->capacity = capacity ? capacity : WEFT__POOL_CAPACITY;
    *ret = p;
    return 0;
}

/* The caller's place. */
static struct place *place_of(struct local_pool *p, unsigned worker)
{
    weft_pool_check(&p->base, worker);
    WEFT__CHECK(worker < p->workers);
    return &p->places[worker];
}

/* ---- Both ---- */

/* What has given way, and what comes from outside or has no room, is for all. */
static int local_push(weft_pool *pool, unsigned worker, weft_task *task, unsigned flags)
{
    struct local_pool *p = local_of(pool);
    struct place *w = worker == WEFT_POOL_OUTSIDE ? NULL : place_of(p, worker);
    bool behind = (flags & WEFT_POOL_BEHIND) && pool->ops == &computational_ops;
    if (!w || behind || !weft__pool_ring_push(&w->ring, task))
        weft__pool_shared_push(&p->shared, task);
    else
        w->arrived++;
    return 0;
}

/* The others in turn, beginning with the one that had something last time. */
static struct place *next_victim(struct local_pool *p, struct place *w)
{
    for (unsigned i = 0; i < p->workers; i++, w->victim++) {
        struct place *v = &p->places[w->victim % p->workers];
        if (v != w && weft__pool_ring_length(&v->ring))
            return v;
    }
    return NULL;
}

/* ---- The computational pool ---- */

static weft_task *computational_pop(weft_pool *pool, unsigned worker, weft_time now)
{
    struct local_pool *p = local_of(pool);
    struct place *w = place_of(p, worker);
    weft_task *t = NULL;
    (void)now;
    if (++w->takes >= FAIR) {
        w->takes = 0;
        t = weft__pool_shared_pop(&p->shared);
    }
    if (!t)
        t = weft__pool_ring_take_newest(&w->ring);
    return t ? t : weft__pool_shared_pop(&p->shared);
}

/* One: the oldest is the largest piece of work. */
static weft_task *computational_steal(weft_pool *pool, unsigned worker)
{
    struct local_pool *p = local_of(pool);
    struct place *w = place_of(p, worker), *v;
    weft_task *t = NULL;
    while (!t && (v = next_victim(p, w)) != NULL)
        t = weft__pool_ring_take_oldest(&v->ring);
    return t;
}

static const weft_pool_ops computational_ops = {
    .open = local_open,
    .close = local_close,
    .push = local_push,
    .pop = computational_pop,
    .steal = computational_steal,
    .length = local_length,
    .free = local_free,
};

int weft_pool_new_computational(size_t capacity, weft_pool **ret)
{
    struct local_pool *p;
    if (!ret)
        return -EINVAL;
    int r = local_new(&computational_ops, capacity, &p);
    if (!r)
        *ret = &p->base;
    return r;
}

/* ---- The stealable pool: weights ---- */

static bool weights_pack(unsigned local, unsigned shared, uint32_t *ret)
{
    if (local < 1 || local > WEIGHT_MAX || shared < 1 || shared > WEIGHT_MAX)
        return false;
    *ret = (uint32_t)local << 16 | (uint32_t)shared;
    return true;
}

/* Counts anew from here on. */
static void begin_interval(struct local_pool *p, struct place *w, weft_time now)
{
    w->arrived_seen = w->arrived;
    w->shared_seen = atom_load_rlx(&p->shared.arrived);
    bool fixed = p->refresh == WEFT_NEVER || now > WEFT_NEVER - p->refresh;
    w->refresh_at = fixed ? WEFT_NEVER : now + p->refresh;
}

static void take_base(struct local_pool *p, struct place *w, uint32_t base, weft_time now)
{
    w->base = base;
    w->local = base >> 16;
    w->shared = base & 0xffffu;
    w->credit = 0;
    begin_interval(p, w, now);
}

static uint32_t scaled(uint64_t part, uint64_t most)
{
    uint32_t n = (uint32_t)((double)part * WEIGHT_MAX / (double)most);
    return n ? n : 1;
}

static void refresh(struct local_pool *p, struct place *w, weft_time now)
{
    uint64_t in_shared = atom_load_rlx(&p->shared.arrived) - w->shared_seen;
    uint64_t local = (w->base >> 16) * (w->arrived - w->arrived_seen + 1);
    uint64_t shared = (w->base & 0xffffu) * (in_shared / p->workers + 1);
    uint64_t most = local > shared ? local : shared;
    w->local = scaled(local, most);
    w->shared = scaled(shared, most);
    w->credit = 0;
    begin_interval(p, w, now);
}

static bool local_is_due(struct place *w)
{
    w->credit += w->local;
    if (w->credit < w->local + w->shared)
        return false;
    w->credit -= w->local + w->shared;
    return true;
}

int weft_pool_set_weights(weft_pool *pool, unsigned local_weight, unsigned shared_weight)
{
    uint32_t packed;
    if (!pool || !weights_pack(local_weight, shared_weight, &packed))
        return -EINVAL;
    if (pool->ops != &stealable_ops)
        return -ENOTSUP;
    atom_store_rlx(&local_of(pool)->weights, packed);
    return 0;
}

/* ---- The stealable pool ---- */

static weft_task *stealable_pop(weft_pool *pool, unsigned worker, weft_time now)
{
    struct local_pool *p = local_of(pool);
    struct place *w = place_of(p, worker);
    uint32_t base = atom_load_rlx(&p->weights);
    if (WEFT__UNLIKELY(base != w->base || w->refresh_at == UNSET_UNTIL))
        take_base(p, w, base, now);
    else if (WEFT__UNLIKELY(now >= w->refresh_at))
        refresh(p, w, now);
    if (weft__pool_shared_length(&p->shared) == 0)
        return weft__pool_ring_take_oldest(&w->ring);
    weft_task *t;
    if (weft__pool_ring_length(&w->ring) == 0 || !local_is_due(w))
        t = weft__pool_shared_pop(&p->shared);
    else
        t = weft__pool_ring_take_oldest(&w->ring);
    if (!t) /* somebody was faster */
        t = weft__pool_ring_take_oldest(&w->ring);
    return t ? t : weft__pool_shared_pop(&p->shared);
}

/* Half of another's. */
static weft_task *stealable_steal(weft_pool *pool, unsigned worker)
{
    struct local_pool *p = local_of(pool);
    struct place *w = place_of(p, worker), *v;
    weft_task *first = NULL;
    while (!first && (v = next_victim(p, w)) != NULL) {
        size_t n = (weft__pool_ring_length(&v->ring) + 1) / 2;
        first = weft__pool_ring_take_oldest(&v->ring);
        for (size_t i = 1; first && i < n && i < STEAL_MAX; i++) {
            weft_task *t = weft__pool_ring_take_oldest(&v->ring);
            if (!t)
                break;
            if (!weft__pool_ring_push(&w->ring, t)) {
                weft__pool_shared_push(&p->shared, t);
                break;
            }
        }
    }
    return first;
}

static const weft_pool_ops stealable_ops = {
    .open = local_open,
    .close = local_close,
    .push = local_push,
    .pop = stealable_pop,
    .steal = stealable_steal,
    .length = local_length,
    .free = local_free,
};

int weft_pool_new_stealable(const weft_pool_stealable_options *options, weft_pool **ret)
{
    static const weft_pool_stealable_options defaults;
    const weft_pool_stealable_options *o = options ? options : &defaults;
    struct local_pool *p;
    uint32_t packed;
    if (!ret || o->refresh < 0 ||
        !weights_pack(o->local_weight ? o->local_weight : 1,
                      o->shared_weight ? o->shared_weight : 1, &packed))
        return -EINVAL;
    int r = local_new(&stealable_ops, o->capacity, &p);
    if (r)
        return r;
    atom_store_rlx(&p->weights, packed);
    p->refresh = o->refresh ? o->refresh : REFRESH;
    *ret = &p->base;
    return 0;
}

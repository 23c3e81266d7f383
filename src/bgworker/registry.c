/* SPDX-License-Identifier: MIT
 *
 * registry.c -- the names: a hash table of workers by scope and name.
 *
 * The registry's memory lives as long as a worker or a task of it does; the owner's free
 * stops all workers first.
 */
#include "bgworker/bgworker.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

int weft_registry_new(const weft_registry_options *options, weft_registry **ret)
{
    static const weft_registry_options defaults;
    if (!options)
        options = &defaults;
    if (!ret || options->descriptors > WEFT_DESCRIPTOR_SOCKETPAIR ||
        options->descriptor_pool > 1u << 20)
        return -EINVAL;
    weft_registry *reg = weft__aligned_alloc(WEFT__APART, sizeof *reg);
    if (!reg)
        return -ENOMEM;
    memset(reg, 0, sizeof *reg);
    int r = weft__fd_pool_init(&reg->pool, options->descriptors,
                               options->descriptor_pool ? options->descriptor_pool : 64);
    if (r) {
        weft__free(reg);
        return r;
    }
    reg->refs.raw = 1;
    for (int i = 0; i < WEFT__BUCKETS; i++)
        weft__list_init(&reg->buckets[i]);
    weft__list_init(&reg->workers);
    if (options->hooks) {
        reg->hooks = *options->hooks;
        reg->hooks_arg = options->hooks_arg;
    }
    reg->spins = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    *ret = reg;
    return 0;
}

void weft__registry_unref(weft_registry *reg)
{
    if (atom_sub_ar(&reg->refs, 1u) != 1) /* pairs with the other unrefs */
        return;
    weft__fd_pool_fini(&reg->pool);
    weft__free(reg);
}

weft_registry *weft_registry_free(weft_registry *reg)
{
    if (reg) {
        int r = weft_registry_stop(reg, WEFT_NEVER, NULL, 0);
        WEFT__CHECK(r == 0); /* called from one of its own seats */
        weft__registry_unref(reg);
    }
    return NULL;
}

/* ---- Names ---- */

bool weft__name_ok(const char *name, bool may_be_empty)
{
    if (!name)
        return may_be_empty;
    size_t n = strnlen(name, WEFT_NAME_MAX + 1);
    return n <= WEFT_NAME_MAX && (n > 0 || may_be_empty);
}

/* FNV-1a, over both strings and the zero between them. */
static uint32_t hash_of(const char *scope, const char *name)
{
    uint32_t h = 2166136261u;
    for (const char *s = scope; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    h *= 16777619u;
    for (const char *s = name; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static weft__list *bucket(weft_registry *reg, uint32_t hash)
{
    return &reg->buckets[(hash ^ hash >> 16) % WEFT__BUCKETS];
}

static bool same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* Under one stripe's lock, or all. */
static weft_worker *look_up(weft_registry *reg, const char *scope, const char *name)
{
    uint32_t hash = hash_of(scope, name);
    weft__list_for (bucket(reg, hash), l) {
        weft_worker *w = weft__container(l, weft_worker, by_name);
        if (w->hash == hash && same(w->name, name) && same(w->scope, scope))
            return w;
    }
    return NULL;
}

/* Under one stripe's lock, or all. */
static weft_worker *resolve(weft_registry *reg, const char *scope, const char *name)
{
    weft_worker *w = scope && *scope ? look_up(reg, scope, name) : NULL;
    return w ? w : look_up(reg, "", name);
}

static weft__lock *stripe(weft_registry *reg, uint32_t here)
{
    return &reg->stripe[here % WEFT__STRIPES].lock;
}

int weft_registry_find(weft_registry *reg, const char *scope, const char *name, weft_worker **ret)
{
    if (!reg || !ret || !weft__name_ok(name, false) || !weft__name_ok(scope, true))
        return -EINVAL;
    weft__lock *lock = stripe(reg, weft__here(weft__self()));
    weft__acquire(lock);
    weft_worker *w = weft_worker_ref(resolve(reg, scope, name));
    weft__release(lock);
    if (!w)
        return -ENOENT;
    *ret = w;
    return 0;
}

int weft__registry_offer(weft_registry *reg, const char *scope, const char *name, weft__offer *o,
                         uint32_t here)
{
    if (!reg || !weft__name_ok(name, false) || !weft__name_ok(scope, true))
        return -EINVAL;
    weft__lock *lock = stripe(reg, here);
    weft__acquire(lock);
    weft_worker *w = resolve(reg, scope, name);
    /* While the name is there, so is the worker; then the task keeps its memory. */
    o->worker = w;
    int r = w ? weft__offer_make(o, here, false) : -ENOENT;
    if (r == -EAGAIN)
        weft_worker_ref(w);
    weft__release(lock);
    if (r == -EAGAIN) {
        r = weft__offer_make(o, here, true);
        weft_worker_unref(w);
    }
    return r;
}

static void table_lock(weft_registry *reg)
{
    for (int i = 0; i < WEFT__STRIPES; i++)
        weft__acquire(&reg->stripe[i].lock);
}

static void table_unlock(weft_registry *reg)
{
    for (int i = 0; i < WEFT__STRIPES; i++)
        weft__release(&reg->stripe[i].lock);
}

/* Takes a reference for the table. */
int weft__registry_add(weft_worker *w)
{
    weft_registry *reg = w->reg;
    weft__acquire(&reg->lock);
    table_lock(reg);
    int r = reg->stopped ? -ESHUTDOWN : look_up(reg, w->scope, w->name) != 0 ? -EEXIST : 0;
    if (r == 0) {
        weft_worker_ref(w);
        w->hash = hash_of(w->scope, w->name);
        weft__list_push(bucket(reg, w->hash), &w->by_name);
        weft__list_push(&reg->workers, &w->in_order);
    }
    table_unlock(reg);
    weft__release(&reg->lock);
    return r;
}

void weft__registry_forget(weft_worker *w)
{
    weft_registry *reg = w->reg;
    weft__acquire(&reg->lock);
    bool known = weft__linked(&w->by_name);
    if (known) {
        table_lock(reg);
        weft__list_remove(&w->by_name);
        table_unlock(reg);
        weft__list_remove(&w->in_order);
    }
    weft__release(&reg->lock);
    if (known)
        weft_worker_unref(w);
}

/* Over a copy of the table: visits run without the lock. */
int weft__registry_visit(weft_registry *reg, int (*visit)(void *arg, weft_worker *w), void *arg)
{
    unsigned count = 0, i = 0;
    weft__acquire(&reg->lock);
    weft__list_for (&reg->workers, l)
        count++;
    weft_worker **all = count ? weft__calloc(count, sizeof *all) : NULL;
    if (all)
        weft__list_for (&reg->workers, l)
            all[i++] = weft_worker_ref(weft__container(l, weft_worker, in_order));
    weft__release(&reg->lock);
    if (count && !all)
        return -ENOMEM;
    int r = 0;
    for (i = 0; i < count; i++) {
        if (r == 0)
            r = visit(arg, all[i]);
        weft_worker_unref(all[i]);
    }
    weft__free(all);
    return r;
}

/* ---- All workers ---- */

/* The first in order, with a reference; after `w`, NULL: the first of all. */
static weft_worker *any_worker(weft_registry *reg)
{
    weft__acquire(&reg->lock);
    weft__link *l = weft__list_first(&reg->workers);
    weft_worker *w = l ? weft_worker_ref(weft__container(l, weft_worker, in_order)) : NULL;
    weft__release(&reg->lock);
    return w;
}

struct all {
    weft_time deadline;
    char *names;
    size_t size;
    int result;
};

static int ask_one(void *arg, weft_worker *w)
{
    (void)arg;
    weft__stop_begin(w);
    return 0;
}

static int stop_one(void *arg, weft_worker *w)
{
    struct all *a = arg;
    int r = weft__stop_end(w, a->deadline, a->names, a->size);
    if (r && (a->result == 0 || r != -ETIMEDOUT))
        a->result = r;
    return 0;
}

int weft_registry_stop(weft_registry *reg, weft_time deadline, char *ret_names, size_t size)
{
    if (!reg)
        return -EINVAL;
    if (ret_names && size)
        ret_names[0] = '\0';
    weft__acquire(&reg->lock);
    reg->stopped = true;
    weft__release(&reg->lock);
    struct all a = {deadline, ret_names, size, 0};
    if (weft__registry_visit(reg, ask_one, &a) == 0)
        weft__registry_visit(reg, stop_one, &a);
    if (a.result)
        return a.result;
    /* No memory for the list: one after the other. */
    for (weft_worker *w; (w = any_worker(reg));) {
        int r = weft_worker_stop(w, deadline, ret_names, size);
        weft_worker_unref(w);
        if (r)
            return r;
    }
    return 0;
}

/* One wait on several workers: a node in each one's list of watchers. */
struct watched {
    weft_worker *worker;
    uint32_t seen;
    int status;
    weft__wait_node node;
};

/* Looks at all: the first error that is for good, else -EAGAIN if one is not ready. */
static int look_at_all(struct watched *all, unsigned count)
{
    int r = 0;
    for (unsigned i = 0; i < count; i++) {
        weft_worker *w = all[i].worker;
        weft__acquire(&w->lock);
        all[i].seen = w->changes;
        all[i].status = weft__ready_status(w);
        weft__release(&w->lock);
        if (all[i].status && (r == 0 || (r == -EAGAIN && all[i].status != -EAGAIN)))
            r = all[i].status;
    }
    return r;
}

/* Sleeps until one of them has changed since it was looked at. 0, -ETIMEDOUT, -ECANCELED. */
static int watch_all(struct watched *all, unsigned count, weft_time deadline)
{
    weft__parker *self = weft__self();
    unsigned linked = 0;
    bool changed = false;
    weft__wait_begin(self, "workers ready", all[0].worker->reg);
    for (; linked < count && !changed; linked++) {
        struct watched *it = &all[linked];
        it->node = (weft__wait_node){.parker = self};
        weft__acquire(&it->worker->lock);
        changed = it->worker->changes != it->seen;
        if (!changed)
            weft__list_push(&it->worker->watchers, &it->node.link);
        weft__release(&it->worker->lock);
    }
    /* Decided already: no sleep, unless another has decided first and owes the unpark. */
    uint32_t outcome = 0;
    if (!changed || !weft__claim(self, 0))
        outcome = weft__wait_commit(self, deadline);
    for (unsigned i = 0; i < linked; i++) {
        weft__acquire(&all[i].worker->lock);
        if (weft__linked(&all[i].node.link))
            weft__list_remove(&all[i].node.link);
        weft__release(&all[i].worker->lock);
    }
    return outcome == WEFT__TIMEDOUT ? -ETIMEDOUT : outcome == WEFT__CANCELED ? -ECANCELED : 0;
}

static unsigned gather(weft_registry *reg, struct watched **ret)
{
    struct watched *all = NULL;
    unsigned room = 0, count;
    for (;;) {
        count = 0;
        weft__acquire(&reg->lock);
        weft__list_for (&reg->workers, l) {
            if (count < room)
                all[count].worker = weft__container(l, weft_worker, in_order);
            count++;
        }
        bool fits = count <= room;
        for (unsigned i = 0; fits && i < count; i++)
            weft_worker_ref(all[i].worker);
        weft__release(&reg->lock);
        if (fits)
            break;
        weft__free(all);
        room = count;
        all = weft__calloc(room, sizeof *all);
        if (!all)
            break;
    }
    *ret = all;
    return count;
}

int weft_registry_wait_ready(weft_registry *reg, weft_time deadline, char *ret_names, size_t size)
{
    if (!reg)
        return -EINVAL;
    if (ret_names && size)
        ret_names[0] = '\0';
    int r = deadline == WEFT_TRY ? 0 : weft__checkpoint(weft__self());
    if (r)
        return r;
    struct watched *all;
    unsigned count = gather(reg, &all);
    if (!all)
        return count ? -ENOMEM : 0;
    while ((r = look_at_all(all, count)) == -EAGAIN && deadline != WEFT_TRY) {
        if (deadline != WEFT_NEVER && weft__sys_now() >= deadline) {
            r = -ETIMEDOUT;
            break;
        }
        r = watch_all(all, count, deadline);
        if (r == -ECANCELED)
            break;
    }
    for (unsigned i = 0; i < count; i++) {
        if (r && r != -ECANCELED && all[i].status)
            weft__names_add(ret_names, size, all[i].worker->name);
        weft_worker_unref(all[i].worker);
    }
    weft__free(all);
    return r;
}

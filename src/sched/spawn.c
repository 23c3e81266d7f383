/* SPDX-License-Identifier: MIT
 *
 * spawn.c -- weft/task.h: spawning, and how many tasks there are.
 *
 * Counting: a worker counts what it spawns and ends, alone and without
 * read-modify-writes; spawns from outside count in the runtime. alive() reads all ends
 * before all spawns, so that a sum of zero is exact: no task was alive in between. A spawn
 * from outside that meets a shutdown is alive in that sum for a moment; the totals that
 * others read take the numbers given to tasks instead (next_id), which never fall.
 */
#include "sched/extra.h"
#include "sched/worker.h"

/* ---- Counting ---- */

uint64_t weft__alive(struct weft_runtime *rt)
{
    uint64_t ended = atom_load_sc(&rt->refused_outside);
    for (unsigned i = 0; i < rt->workers; i++)
        ended += atom_load_sc(&rt->worker[i].finished);
    uint64_t spawned = atom_load_sc(&rt->spawned_outside);
    for (unsigned i = 0; i < rt->workers; i++)
        spawned += atom_load_sc(&rt->worker[i].spawned);
    return spawned - ended;
}

/* ---- Spawn ---- */

/* May one more task be? 0, and its place under the cap is taken. */
static int admit(struct weft_runtime *rt)
{
    if (WEFT__UNLIKELY(atom_load_sc(&rt->closing)))
        return -ESHUTDOWN;
    if (WEFT__UNLIKELY(rt->max_tasks)) {
        uint64_t n = atom_load_rlx(&rt->inflight);
        do { /* not add and take back: that would turn away who comes in between */
            if (n >= rt->max_tasks)
                return -EAGAIN;
        } while (!atom_cas_ar(&rt->inflight, &n, n + 1));
    }
    return 0;
}

/* A slot for an admitted task, which is counted from here on if it comes from outside
 * (w NULL). Counting comes late, so that the totals do not fall by who is refused. */
static int task_new(struct weft_runtime *rt, weft__worker *w, weft_task **ret)
{
    int r = 0;
    weft_task *t =
        w ? weft__task_cache_take(&w->tasks, &rt->depot, &r) : weft__task_take(&rt->depot, &r);
    if (t && !w) {
        atom_add_sc(&rt->spawned_outside, 1); /* and then look: shutdown sees it or we see it */
        if (WEFT__UNLIKELY(atom_load_sc(&rt->closing))) {
            weft__task_give(&rt->depot, t);
            atom_add_sc(&rt->refused_outside, 1);
            weft__drained_check(rt); /* the last worker may have looked in between */
            t = NULL;
            r = -ESHUTDOWN;
        }
    }
    *ret = t;
    return r;
}

/* A slot for one more task, or why not. */
static int admit_new(struct weft_runtime *rt, weft__worker *w, weft_task **ret)
{
    int r = admit(rt);
    if (!r) {
        r = task_new(rt, w, ret);
        if (WEFT__UNLIKELY(r) && rt->max_tasks)
            atom_sub_ar(&rt->inflight, 1);
    }
    if (WEFT__UNLIKELY(r))
        atom_add_rlx(&rt->rejected, 1);
    return r;
}

static void task_init(weft_task *t, struct weft_runtime *rt, weft__worker *w,
                      const weft_spawn_options *options, unsigned flags)
{
    weft__parker_init(&t->parker, &weft__task_ops);
    t->rt = rt;
    t->flags = (uint8_t)(flags | (options ? options->flags : 0));
    t->own = 0;
    if (flags & WEFT__TASK_POLL) /* before the id, which lets a shutdown cancel it */
        atom_store_rlx(&t->parker.cancel, (uint32_t)WEFT__NOPARK);
    atom_store_rlx(&t->name, (void *)(uintptr_t)(options ? options->name : NULL));
    atom_store_rlx(&t->refs, 1u); /* the running task itself */
    if (flags & WEFT__TASK_HANDLE) {
        weft__list_init(&t->joiners);
        atom_store_rlx(&t->refs, WEFT__TASK_COUNTED | 2u);
    }
    if (options && options->at > weft__sys_now()) {
        t->flags |= WEFT__TASK_LATE;
        t->timer.deadline = options->at;
    }
    uint64_t id;
    if (w) {
        uint64_t n = atom_load_rlx(&w->spawned) + 1;
        atom_store_rel(&w->spawned, n);
        atom_store_rlx(&t->since, (uint64_t)w->now);
        id = (uint64_t)(w->number + 1) << 48 | n;
        t->home = (uint16_t)(rt->permanent ? w->number % rt->permanent : 0);
    } else {
        id = atom_add_rlx(&rt->next_id, 1) + 1;
        atom_store_rlx(&t->since, (uint64_t)weft__sys_now());
        t->home = (uint16_t)(rt->permanent ? id % rt->permanent : 0);
    }
    atom_store_rel(&t->id, id); /* pairs with weft__task_each */
}

/* The common beginning: arguments, admission, a slot. */
static int spawn_begin(weft_runtime **rt, const weft_spawn_options *options, weft__worker **ret_w,
                       weft_task **ret)
{
    weft__worker *w = weft__worker_self();
    if (w && !w->current)
        w = NULL;
    if (!*rt) {
        if (!w)
            return -EINVAL;
        *rt = w->rt;
    }
    if (w && w->rt != *rt)
        w = NULL;
    if (options && (options->flags & ~(unsigned)(WEFT_PINNED | WEFT_HIGH)))
        return -EINVAL;
    if (weft__forked(*rt))
        return -ENXIO;
    if (options && options->flags & WEFT_PINNED && (*rt)->permanent == 0)
        return -ENOTSUP;
    *ret_w = w;
    return admit_new(*rt, w, ret);
}

static void spawn_commit(weft__worker *w, weft_task *t, weft_task **ret_task)
{
    if (ret_task)
        *ret_task = t;
    if (w)
        weft__ready_spawned(w, t);
    else
        weft__ready_woken(t);
}

/* Into a scope: a place in it, and what says so in the task. */
static int scope_begin(struct weft_scope *scope, weft__extra **ret)
{
    if (!scope)
        return 0;
    weft__extra *x = weft__extra_new();
    if (!x)
        return -ENOMEM;
    int r = weft__scope_enter(scope);
    if (r) {
        weft__free(x);
        return r;
    }
    x->member_of = scope;
    *ret = x;
    return 0;
}

static void scope_abandon(weft__extra *x)
{
    if (x)
        weft__extra_free(x);
}

static void scope_commit(weft_task *t, weft__extra *x)
{
    if (WEFT__LIKELY(!x))
        return;
    x->task = t;
    t->own |= WEFT__OWN_EXTRA;
    atom_store_rel(&t->extra, x);
    weft__scope_add(x->member_of, x);
}

int weft__spawn(weft_runtime *rt, weft_fn fn, void *arg, const weft_spawn_options *options,
                weft_task **ret_task, struct weft_scope *scope)
{
    weft__worker *w = NULL;
    weft_task *t = NULL;
    weft__extra *x = NULL;
    if (!fn)
        return -EINVAL;
    int r = scope_begin(scope, &x);
    if (r)
        return r;
    r = spawn_begin(&rt, options, &w, &t);
    if (r) {
        scope_abandon(x);
        return r;
    }
    t->body.fiber = fn;
    t->u.f.arg = arg;
    atom_store_rlx(&t->u.f.joiner, NULL);
    /* From outside, for the special queues, or to start late: not for joiners. */
    bool linked = !w || (options && (options->flags || options->at));
    atom_store_rlx(&t->u.f.strand, linked ? WEFT__STRAND_TAKEN : WEFT__STRAND_QUEUED);
    task_init(t, rt, w, options, ret_task ? WEFT__TASK_HANDLE : 0);
    scope_commit(t, x);
    spawn_commit(w, t, ret_task);
    return 0;
}

weft_task *weft__spawn_unqueued(weft__worker *w, weft_fn fn, void *arg, int *error)
{
    weft_task *t = NULL;
    *error = admit_new(w->rt, w, &t);
    if (WEFT__UNLIKELY(*error))
        return NULL;
    t->body.fiber = fn;
    t->u.f.arg = arg;
    atom_store_rlx(&t->u.f.joiner, NULL);
    atom_store_rlx(&t->u.f.strand, WEFT__STRAND_TAKEN);
    task_init(t, w->rt, w, NULL, 0);
    return t;
}

int weft_spawn(weft_runtime *rt, weft_fn fn, void *arg, const weft_spawn_options *options,
               weft_task **ret_task)
{
    return weft__spawn(rt, fn, arg, options, ret_task, NULL);
}

int weft_go(weft_fn fn, void *arg)
{
    return weft_spawn(NULL, fn, arg, NULL, NULL);
}

int weft__spawn_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t state_size,
                     const weft_spawn_options *options, weft_task **ret_task,
                     struct weft_scope *scope)
{
    weft__worker *w = NULL;
    weft_task *t = NULL;
    weft__extra *x = NULL;
    void *box = NULL;
    if (!fn || state_size > (1u << 20))
        return -EINVAL;
    if (state_size > WEFT__POLL_INLINE && !(box = weft__calloc(1, state_size)))
        return -ENOMEM;
    int r = scope_begin(scope, &x);
    if (!r && (r = spawn_begin(&rt, options, &w, &t)) != 0)
        scope_abandon(x);
    if (r) {
        weft__free(box);
        return r;
    }
    void *state = box ? box : t->u.state;
    if (!box)
        memset(state, 0, WEFT__POLL_INLINE);
    if (init && state_size)
        memcpy(state, init, state_size);
    if (box)
        t->u.box = box;
    t->body.poll = fn;
    task_init(t, rt, w, options,
              WEFT__TASK_POLL | (box ? WEFT__TASK_BOXED : 0u) |
                  (ret_task ? WEFT__TASK_HANDLE : 0u));
    scope_commit(t, x);
    spawn_commit(w, t, ret_task);
    return 0;
}

int weft_spawn_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t state_size,
                    const weft_spawn_options *options, weft_task **ret_task)
{
    return weft__spawn_poll(rt, fn, init, state_size, options, ret_task, NULL);
}

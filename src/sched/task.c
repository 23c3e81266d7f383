/* SPDX-License-Identifier: MIT
 *
 * task.c -- weft/task.h: spawn, join, cancel, references, and a task's end.
 *
 * Counting: a worker counts what it spawns and ends, alone and without
 * read-modify-writes; spawns from outside count in the runtime. alive() reads all ends
 * before all spawns, so that a sum of zero is exact: no task was alive in between.
 */
#include "sched/extra.h"
#include "sched/worker.h"

#include <sched.h>

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
            t = NULL;
            r = -ESHUTDOWN;
        }
    }
    *ret = t;
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
    int r = admit(*rt);
    if (!r) {
        r = task_new(*rt, w, ret);
        if (WEFT__UNLIKELY(r) && (*rt)->max_tasks)
            atom_sub_ar(&(*rt)->inflight, 1);
    }
    if (WEFT__UNLIKELY(r)) {
        atom_add_rlx(&(*rt)->rejected, 1);
        return r;
    }
    *ret_w = w;
    return 0;
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
    /* From outside, for the special queues, or to start late: not for joiners. */
    bool linked = !w || (options && (options->flags || options->at));
    atom_store_rlx(&t->u.f.strand, linked ? WEFT__STRAND_TAKEN : WEFT__STRAND_QUEUED);
    task_init(t, rt, w, options, ret_task ? WEFT__TASK_HANDLE : 0);
    scope_commit(t, x);
    spawn_commit(w, t, ret_task);
    return 0;
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

/* ---- Join ---- */

static int join_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_task *t = object;
    (void)n;
    (void)wakes;
    return atom_load_rlx(&t->refs) & WEFT__TASK_DONE ? 0 : -EAGAIN;
}

static void join_link(void *object, weft__wait_node *n)
{
    weft__list_push(&((weft_task *)object)->joiners, &n->link);
}

static void join_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

const weft__waitable_ops weft__join_ops = {"join", join_try, join_link, join_unlink};

/* Takes the child's entry out of its queue if that is where the last thing spawned here
 * lies; otherwise it stays behind as a tombstone. */
static bool entry_removed(weft__worker *w, weft_task *t)
{
    void *entry = (void *)((uintptr_t)t | 1u);
    if (atom_load_rlx(&w->next) == entry) {
        if (!w->solo)
            return atom_cas_acq(&w->next, &entry, NULL);
        atom_store_rlx(&w->next, NULL);
        return true;
    }
    return w->solo ? weft__deque_pop_tail(&w->fifo, entry) : weft__runq_pop_tail(&w->runq, entry);
}

/* The child has not started and waits in a queue: it runs next, in place of whatever the
 * worker would pick, when the caller suspends. */
static bool direct(weft__worker *w, weft_task *t, weft_time deadline)
{
    if (!w || !w->current || w->rt != t->rt || deadline == WEFT_TRY || w->directed ||
        !weft__task_is_fiber(t) || !weft__task_is_fiber(weft__task_of(w->current)) ||
        !weft__task_claim_start(t, w->solo))
        return false;
    if (!entry_removed(w, t))
        atom_add_rlx(&t->refs, 1u); /* the tombstone's; ours keeps the task meanwhile */
    w->directed = t;
    return true;
}

/* The caller has returned without suspending: the child waits its turn again. */
static void undirect(weft_task *t)
{
    weft__worker *w = weft__worker_self();
    if (w->directed == t) {
        w->directed = NULL;
        weft__ready_tail(w, t);
    }
}

int weft_task_join(weft_task *t, weft_time deadline, int *ret_result)
{
    if (!t)
        return -EINVAL;
    weft__worker *w = weft__worker_self();
    if (w && w->current == &t->parker)
        return -EDEADLK;
    if (weft__forked(t->rt) && !weft_task_done(t))
        return -ENXIO;
    weft__wait_node n = {0};
    bool directed = direct(w, t, deadline);
    int r = weft__wait_on(&weft__join_ops, t, &t->lock, &n, deadline);
    if (directed)
        undirect(t);
    if (r == 0 && ret_result)
        *ret_result = t->result;
    return r;
}

static void wake_joiners(weft_task *t)
{
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&t->lock);
    atom_or_ar(&t->refs, WEFT__TASK_DONE); /* pairs with weft_task_done: the result is there */
    for (weft__link *l; (l = weft__list_pop(&t->joiners)) != NULL;) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        if (weft__node_claim(n, 0))
            weft__wakes_add(&wakes, n->parker);
    }
    weft__release(&t->lock);
    weft__wakes_run(&wakes);
}

/* ---- The end ---- */

void weft__task_end(weft__worker *w, weft_task *t, int result)
{
    t->result = result;
    if (WEFT__UNLIKELY(result < 0))
        weft__count(&w->failed);
    if (WEFT__UNLIKELY(atom_load_rlx(&t->parker.cancel) & WEFT__CANCEL))
        weft__count(&w->cancelled);
    if (t->flags & WEFT__TASK_BOXED)
        weft__free(t->u.box);
    if (t->rt->max_tasks)
        atom_sub_ar(&t->rt->inflight, 1);
    if (t->flags & WEFT__TASK_HANDLE)
        wake_joiners(t);
    if (WEFT__UNLIKELY(t->own & WEFT__OWN_EXTRA))
        weft__extra_leave(t, result);
}

/* The slot goes back; from a worker of its runtime into that one's cache. */
static void slot_free(weft__worker *w, weft_task *t)
{
    atom_store_rel(&t->id, 0u);
    if (w)
        weft__task_cache_give(&w->tasks, &t->rt->depot, t);
    else
        weft__runtime_slot_free(t->rt, t);
}

/* The release orders this holder's use before the free; the acquire sees all. */
static bool last_reference(weft_task *t)
{
    return (atom_sub_ar(&t->refs, 1u) & WEFT__TASK_REFS) == 1;
}

void weft__task_unref_here(weft__worker *w, weft_task *t)
{
    if (last_reference(t))
        slot_free(w, t);
}

void weft__task_drop(weft__worker *w, weft_task *t)
{
    weft__extra *x = WEFT__UNLIKELY(t->own & WEFT__OWN_EXTRA) ? weft__extra_take(t) : NULL;
    if (!(t->flags & WEFT__TASK_HANDLE) || last_reference(t))
        slot_free(w, t);
    /* Last: when the count says that all have ended, this one's memory is back, too. */
    atom_store_rel(&w->finished, atom_load_rlx(&w->finished) + 1);
    if (WEFT__UNLIKELY(x != NULL))
        weft__extra_free(x);
}

/* ---- Handles ---- */

/* For a detached task, which only itself can call: its references count from now on. */
static void make_counted(weft_task *t)
{
    if (WEFT__LIKELY(atom_load_rlx(&t->refs) & WEFT__TASK_COUNTED))
        return;
    weft__list_init(&t->joiners);
    t->flags |= WEFT__TASK_HANDLE;
    atom_or_ar(&t->refs, WEFT__TASK_COUNTED); /* pairs with try_ref: the list is there */
}

weft_task *weft_task_ref(weft_task *t)
{
    if (!t)
        return NULL;
    make_counted(t);
    atom_add_rlx(&t->refs, 1u);
    return t;
}

weft_task *weft_task_unref(weft_task *t)
{
    if (t && last_reference(t)) {
        weft__worker *w = weft__worker_self();
        slot_free(w && w->rt == t->rt ? w : NULL, t);
    }
    return NULL;
}

int weft_task_cancel(weft_task *t)
{
    if (!t)
        return -EINVAL;
    if (atom_load_acq(&t->refs) & WEFT__TASK_DONE)
        return -EALREADY;
    if (weft__forked(t->rt))
        return -ENXIO;
    if (!weft__cancel(&t->parker))
        return -EALREADY;
    weft__cancel_inside(t);
    return 0;
}

bool weft_task_done(const weft_task *t)
{
    return t && atom_load_acq(&t->refs) & WEFT__TASK_DONE;
}

const char *weft_task_name(const weft_task *t)
{
    const char *name = t ? atom_load_rlx(&t->name) : NULL;
    return name ? name : "";
}

uint64_t weft_task_id(const weft_task *t)
{
    return t ? atom_load_rlx(&t->id) : 0;
}

int weft_task_wake(weft_task *t)
{
    if (!t)
        return -EINVAL;
    if (weft__forked(t->rt))
        return -ENXIO;
    /* NOPARK says that it is a poll task. */
    if ((atom_load_rlx(&t->parker.cancel) & WEFT__NOPARK) && weft__claim(&t->parker, WEFT__WOKEN))
        weft__unpark(&t->parker);
    return 0;
}

int weft_task_wake_at(weft_task *t, weft_time deadline)
{
    weft__worker *w = weft__worker_self();
    if (!t || !w || w->current != &t->parker || !(t->flags & WEFT__TASK_POLL))
        return -EPERM;
    if (weft__timed(t)) {
        if (deadline >= t->timer.deadline)
            return 0;
        weft__timer_disarm(t);
    }
    /* Woken already, perhaps by that timer: it is polled again at once. */
    if ((atom_load_rlx(&t->parker.word) & WEFT__WAIT_PHASE) == WEFT__WAIT_CLAIMED)
        return 0;
    if (deadline != WEFT_NEVER)
        weft__timer_arm(w, t, deadline);
    return 0;
}

/* ---- By id ---- */

struct find {
    uint64_t id;
    weft_task *task;
};

/* A reference, if the slot holds a task that counts them; it may be another than the one
 * that was looked for, so the id is compared afterwards. */
static bool try_ref(weft_task *t)
{
    uint32_t refs = atom_load_acq(&t->refs);
    do {
        if (!(refs & WEFT__TASK_COUNTED) || !(refs & WEFT__TASK_REFS) || (refs & WEFT__TASK_DONE))
            return false;
    } while (!atom_cas_ar(&t->refs, &refs, refs + 1));
    return true;
}

static void find_one(weft_task *t, void *arg)
{
    struct find *f = arg;
    if (f->task || atom_load_rlx(&t->id) != f->id || !try_ref(t))
        return;
    if (atom_load_acq(&t->id) == f->id) /* pairs with the store of task_init */
        f->task = t;
    else
        weft_task_unref(t);
}

weft_task *weft_task_find(weft_runtime *rt, uint64_t id)
{
    struct find f = {id, NULL};
    if (rt && id && *rt->alive_page)
        weft__task_each(&rt->depot, find_one, &f);
    return f.task;
}

/* ---- Suspend and resume ---- */

static int suspend_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_task *t = object;
    (void)n;
    (void)wakes;
    if (!(atom_load_rlx(&t->refs) & WEFT__TASK_RESUMED))
        return -EAGAIN;
    atom_and_ar(&t->refs, ~WEFT__TASK_RESUMED);
    return 0;
}

static void suspend_link(void *object, weft__wait_node *n)
{
    n->arg = 1; /* tells it from a joiner */
    weft__list_push_front(&((weft_task *)object)->joiners, &n->link);
}

static const weft__waitable_ops suspend_ops = {"resume", suspend_try, suspend_link, join_unlink};

int weft_suspend(weft_time deadline)
{
    weft_task *t = weft_task_self();
    if (!t || (t->flags & WEFT__TASK_POLL))
        return -EPERM;
    make_counted(t);
    weft__wait_node n = {0};
    return weft__wait_on(&suspend_ops, t, &t->lock, &n, deadline);
}

int weft_task_resume(weft_task *t)
{
    weft__wakes wakes = {NULL, NULL};
    if (!t)
        return -EINVAL;
    if (weft__forked(t->rt))
        return -ENXIO;
    if (atom_load_rlx(&t->parker.cancel) & WEFT__NOPARK)
        return weft_task_wake(t);
    weft__acquire(&t->lock);
    bool done = atom_load_rlx(&t->refs) & WEFT__TASK_DONE;
    weft__link *l = done ? NULL : weft__list_first(&t->joiners);
    weft__wait_node *n = l ? weft__container(l, weft__wait_node, link) : NULL;
    if (n && n->arg) {
        weft__list_remove(l);
        if (weft__node_claim(n, 0))
            weft__wakes_add(&wakes, n->parker);
        else
            n = NULL; /* timed out or cancelled: the next suspend finds it */
    } else {
        n = NULL;
    }
    if (!n && !done)
        atom_or_ar(&t->refs, WEFT__TASK_RESUMED);
    weft__release(&t->lock);
    weft__wakes_run(&wakes);
    return done ? -ESRCH : 0;
}

/* ---- The calling task ---- */

static weft_task *self_task(void)
{
    weft__worker *w = weft__worker_self();
    return w && w->current ? weft__task_of(w->current) : NULL;
}

weft_task *weft_task_self(void)
{
    return self_task();
}

weft_runtime *weft_runtime_current(void)
{
    weft_task *t = self_task();
    return t ? t->rt : NULL;
}

int weft_yield(void)
{
    weft_task *t = self_task();
    if (!t) {
        sched_yield();
        return 0;
    }
    if (t->flags & WEFT__TASK_POLL)
        return -EPERM;
    weft__task_ops.yield(&t->parker);
    return atom_load_rlx(&t->parker.cancel) && !t->parker.shield ? -ECANCELED : 0;
}

int weft_sleep_until(weft_time deadline)
{
    return weft__sleep(deadline);
}

int weft_sleep(weft_time duration)
{
    return weft__sleep(weft_after(duration));
}

bool weft_cancelled(void)
{
    weft_task *t = self_task();
    return t && (atom_load_rlx(&t->parker.cancel) & WEFT__CANCEL);
}

void weft_shield_enter(void)
{
    weft_task *t = self_task();
    if (t)
        t->parker.shield++;
}

void weft_shield_leave(void)
{
    weft_task *t = self_task();
    if (t && t->parker.shield)
        t->parker.shield--;
}

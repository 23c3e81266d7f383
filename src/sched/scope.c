/* SPDX-License-Identifier: MIT
 *
 * scope.c -- see weft/scope.h; and a task's extra.h, which is mostly about scopes.
 *
 * `count` says what a scope must wait for: its members from before they are linked until
 * their stack and slot are free, and everybody who visits the scope in passing to cancel
 * what is in it. So a scope stays in memory while anybody may touch it.
 *
 * Cancelling goes down the tree without recursion: who sets a scope's `cancelled` first puts
 * it on his list (through `visit`, and counted), everybody else leaves it to him. For each
 * scope on the list: its members are cancelled, and their scopes and the inner ones put on
 * the list.
 *
 * Invariants
 *   C1  A member is linked before its task can run, and unlinked before its slot is free.
 *   C2  A task that joins a cancelled scope is refused or cancelled: enter looks at
 *       `cancelled` before the task exists, add looks again when it is linked.
 *   C3  A task cancelled while it opens a scope: open links it, then looks at the task's
 *       request; weft_task_cancel sets the request, then looks for scopes. One of the two
 *       sees the other (both sequentially consistent).
 *   C4  Locks are taken down the tree only (extra.h).
 */
#include "weft/scope.h"

#include "sched/extra.h"
#include "sched/worker.h"

struct weft_scope {
    weft__lock lock;
    unsigned flags;
    weft_runtime *rt;
    weft__parker *owner;
    weft_task *task;          /* the owner, when it is one */
    struct weft_scope *outer; /* what the owner opened before */
    weft__link link;          /* in the outer one's `inner`, or the task's `scopes` */
    bool cancelled;           /* the rest: under lock */
    int why;
    size_t count;
    weft__list members, inner, waiters;
    uint64_t spawned, failed, first_error_id;
    int first_error;
    struct weft_scope *visit;
    weft_task *guard; /* owner only: keeps the deadline */
    weft__a32 closing;
};

/* ---- Counting ---- */

int weft__scope_enter(struct weft_scope *s)
{
    weft__acquire(&s->lock);
    int r = s->cancelled ? -ECANCELED : 0;
    if (!r)
        s->count++;
    weft__release(&s->lock);
    return r;
}

void weft__scope_exit(struct weft_scope *s)
{
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&s->lock);
    if (--s->count == 0)
        for (weft__link *l; (l = weft__list_pop(&s->waiters)) != NULL;) {
            weft__wait_node *n = weft__container(l, weft__wait_node, link);
            if (weft__node_claim(n, 0))
                weft__wakes_add(&wakes, n->parker);
        }
    weft__release(&s->lock);
    weft__wakes_run(&wakes);
}

void weft__scope_add(struct weft_scope *s, weft__extra *x)
{
    weft__acquire(&s->lock);
    weft__list_push(&s->members, &x->member);
    s->spawned++;
    bool cancelled = s->cancelled;
    weft__release(&s->lock);
    if (cancelled)
        weft__cancel(&x->task->parker);
}

/* ---- Cancelling ---- */

/* Whoever calls keeps `s` from being closed: by a count, or by the lock above it. */
static bool begin_visit(struct weft_scope *s, int why, struct weft_scope **list)
{
    weft__acquire(&s->lock);
    bool first = !s->cancelled;
    if (first) {
        s->cancelled = true;
        s->why = why;
        s->count++;
        s->visit = *list;
        *list = s;
    }
    weft__release(&s->lock);
    return first;
}

static void visit_task(weft_task *t, struct weft_scope **list)
{
    if (!atom_load_sc(&t->extra)) /* C3 */
        return;
    weft__acquire(&t->lock);
    weft__extra *x = atom_load_rlx(&t->extra);
    if (x)
        weft__list_for (&x->scopes, l)
            begin_visit(weft__container(l, struct weft_scope, link), -ECANCELED, list);
    weft__release(&t->lock);
}

static void visit_all(struct weft_scope *list)
{
    while (list) {
        struct weft_scope *s = list;
        list = s->visit;
        weft__acquire(&s->lock);
        weft__list_for (&s->inner, l)
            begin_visit(weft__container(l, struct weft_scope, link), -ECANCELED, &list);
        weft__list_for (&s->members, l) {
            weft_task *t = weft__container(l, weft__extra, member)->task;
            if (weft__cancel(&t->parker))
                visit_task(t, &list);
        }
        weft__release(&s->lock);
        weft__scope_exit(s);
    }
}

static int cancel(struct weft_scope *s, int why)
{
    struct weft_scope *list = NULL;
    if (!begin_visit(s, why, &list))
        return -EALREADY;
    visit_all(list);
    return 0;
}

void weft__cancel_inside(weft_task *t)
{
    struct weft_scope *list = NULL;
    visit_task(t, &list);
    visit_all(list);
}

/* ---- A task's extra ---- */

weft__extra *weft__extra_new(void)
{
    weft__extra *x = weft__calloc(1, sizeof *x);
    if (x)
        weft__list_init(&x->scopes);
    return x;
}

weft__extra *weft__extra_get(weft_task *t)
{
    weft__extra *x = atom_load_rlx(&t->extra);
    if (x || !(x = weft__extra_new()))
        return x;
    x->task = t;
    t->own |= WEFT__OWN_EXTRA;
    atom_store_sc(&t->extra, x); /* pairs with visit_task */
    return x;
}

void weft__extra_body_ended(weft_task *t)
{
    weft__extra *x = atom_load_rlx(&t->extra);
    while (x->innermost)
        weft_scope_close(x->innermost, NULL);
    t->parker.shield++;
    weft__locals_drop(&x->locals);
    t->parker.shield--;
}

void weft__extra_leave(weft_task *t, int result)
{
    weft__extra *x = atom_load_rlx(&t->extra);
    struct weft_scope *s = x->member_of;
    if (!s)
        return;
    weft__acquire(&s->lock);
    weft__list_remove(&x->member);
    if (result < 0 && s->failed++ == 0) {
        s->first_error = result;
        s->first_error_id = weft_task_id(t);
    }
    weft__release(&s->lock);
    if (result < 0 && (s->flags & WEFT_SCOPE_FAIL_FAST))
        cancel(s, result); /* still counted */
}

weft__extra *weft__extra_take(weft_task *t)
{
    weft__acquire(&t->lock); /* a visit_task may hold it */
    weft__extra *x = atom_load_rlx(&t->extra);
    atom_store_rlx(&t->extra, NULL);
    weft__release(&t->lock);
    return x;
}

void weft__extra_free(weft__extra *x)
{
    if (x->member_of)
        weft__scope_exit(x->member_of);
    weft__free(x);
}

/* ---- The deadline ---- */

struct guard {
    struct weft_scope *scope;
    weft_time deadline;
};

static int guard_poll(weft_task *self, void *state)
{
    struct guard *g = state;
    if (atom_load_acq(&g->scope->closing)) /* pairs with dismiss_guard */
        return 0;
    /* Its runtime shuts down, and so will all inside. */
    bool shutdown = weft_cancelled();
    if (!shutdown && weft_now() < g->deadline) {
        weft_task_wake_at(self, g->deadline);
        return WEFT_PENDING;
    }
    cancel(g->scope, shutdown ? -ECANCELED : -ETIMEDOUT);
    return 0;
}

static int post_guard(struct weft_scope *s, weft_time deadline)
{
    struct guard g = {s, deadline};
    return weft_spawn_poll(s->rt, guard_poll, &g, sizeof g,
                           &(weft_spawn_options){.name = "scope deadline"}, &s->guard);
}

static void dismiss_guard(struct weft_scope *s)
{
    if (!s->guard)
        return;
    atom_store_rel(&s->closing, 1u); /* pairs with guard_poll */
    weft_task_wake(s->guard);
    weft_task_join(s->guard, WEFT_NEVER, NULL);
    s->guard = weft_task_unref(s->guard);
}

/* ---- Open ---- */

/* What a plain thread opened last. */
static _Thread_local struct weft_scope *thread_innermost;

static WEFT__NOINLINE struct weft_scope **thread_place(void)
{
    __asm__ volatile("");
    return &thread_innermost;
}

/* Where the calling owner keeps what it opened last; it stays valid until the caller parks. */
static struct weft_scope **innermost_of(weft_task *t)
{
    return t ? &((weft__extra *)atom_load_rlx(&t->extra))->innermost : thread_place();
}

/* Puts the scope into the tree; true: it is born cancelled. */
static bool link_scope(struct weft_scope *s)
{
    bool cancelled = false;
    if (s->outer) {
        weft__acquire(&s->outer->lock);
        weft__list_push(&s->outer->inner, &s->link);
        cancelled = s->outer->cancelled;
        weft__release(&s->outer->lock);
    } else if (s->task) {
        weft__extra *x = atom_load_rlx(&s->task->extra);
        weft__acquire(&s->task->lock);
        weft__list_push(&x->scopes, &s->link);
        weft__release(&s->task->lock);
    }
    return cancelled || (atom_load_sc(&s->owner->cancel) & WEFT__CANCEL); /* C3 */
}

static void unlink_scope(struct weft_scope *s)
{
    if (!weft__linked(&s->link))
        return;
    weft__lock *lock = s->outer ? &s->outer->lock : &s->task->lock;
    weft__acquire(lock);
    weft__list_remove(&s->link);
    weft__release(lock);
}

int weft_scope_open(const weft_scope_options *options, weft_scope **ret)
{
    static const weft_scope_options defaults;
    const weft_scope_options *o = options ? options : &defaults;
    weft__parker *self = weft__self();
    weft_task *t = weft_task_self();
    bool timed = o->deadline && o->deadline != WEFT_NEVER;
    if (!ret || (o->flags & ~(unsigned)WEFT_SCOPE_FAIL_FAST) || (timed && !o->runtime && !t))
        return -EINVAL;
    if (atom_load_rlx(&self->cancel) & WEFT__NOPARK)
        return -EPERM;
    if (t && !weft__extra_get(t))
        return -ENOMEM;
    struct weft_scope *s = weft__calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->flags = o->flags;
    s->rt = o->runtime;
    s->owner = self;
    s->task = t;
    weft__list_init(&s->members);
    weft__list_init(&s->inner);
    weft__list_init(&s->waiters);
    int r = timed ? post_guard(s, o->deadline) : 0;
    if (r) {
        weft__free(s);
        return r;
    }
    struct weft_scope **innermost = innermost_of(t);
    s->outer = *innermost;
    *innermost = s;
    if (!self->shield && link_scope(s))
        cancel(s, -ECANCELED);
    *ret = s;
    return 0;
}

/* ---- Use ---- */

int weft_scope_spawn(weft_scope *s, weft_fn fn, void *arg, const weft_spawn_options *options,
                     weft_task **ret_task)
{
    return s ? weft__spawn(s->rt, fn, arg, options, ret_task, s) : -EINVAL;
}

int weft_scope_spawn_poll(weft_scope *s, weft_poll_fn fn, const void *init, size_t state_size,
                          const weft_spawn_options *options, weft_task **ret_task)
{
    return s ? weft__spawn_poll(s->rt, fn, init, state_size, options, ret_task, s) : -EINVAL;
}

int weft_scope_cancel(weft_scope *s)
{
    return s ? cancel(s, -ECANCELED) : -EINVAL;
}

bool weft_scope_is_cancelled(const weft_scope *s)
{
    if (!s)
        return false;
    weft__lock *lock = &((struct weft_scope *)(uintptr_t)s)->lock;
    weft__acquire(lock);
    bool cancelled = s->cancelled;
    weft__release(lock);
    return cancelled;
}

static int join_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)n;
    (void)wakes;
    return ((struct weft_scope *)object)->count ? -EAGAIN : 0;
}

static void join_link(void *object, weft__wait_node *n)
{
    weft__list_push(&((struct weft_scope *)object)->waiters, &n->link);
}

static void join_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops join_ops = {"scope", join_try, join_link, join_unlink};

int weft_scope_join(weft_scope *s, weft_time deadline)
{
    weft__wait_node n = {0};
    return s ? weft__wait_on(&join_ops, s, &s->lock, &n, deadline) : -EINVAL;
}

int weft_scope_close(weft_scope *s, weft_scope_report *ret_report)
{
    if (!s)
        return -EINVAL;
    weft__parker *self = weft__self();
    if (s->owner != self)
        return -EPERM;
    if (*innermost_of(s->task) != s)
        return -EBUSY;
    if (weft_scope_join(s, WEFT_NEVER) == -ECANCELED)
        cancel(s, -ECANCELED);
    self->shield++;
    WEFT__CHECK(weft_scope_join(s, WEFT_NEVER) == 0);
    unlink_scope(s);
    dismiss_guard(s);
    /* Who began a visit before the unlink still counts. */
    WEFT__CHECK(weft_scope_join(s, WEFT_NEVER) == 0);
    self->shield--;
    *innermost_of(s->task) = s->outer;
    weft_scope_report report = {s->spawned, s->failed, s->first_error, s->first_error_id, s->why};
    weft__free(s);
    if (ret_report)
        *ret_report = report;
    return report.cancelled ? report.cancelled : report.first_error;
}

/* SPDX-License-Identifier: MIT
 *
 * task.c -- weft/task.h: join, cancel, references, suspend, and a task's end.
 */
#include "sched/extra.h"
#include "sched/worker.h"

#include <sched.h>

/* ---- Join ---- */

/* The task's end looks into `joiners` only if it finds JOINERS: that, and DONE, are set by
 * read-modify-writes of one word, so one side sees the other. */
static int join_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft_task *t = object;
    (void)n;
    (void)wakes;
    uint32_t refs = atom_load_acq(&t->refs); /* with DONE comes the result */
    if (!(refs & (WEFT__TASK_DONE | WEFT__TASK_JOINERS)))
        refs = atom_or_ar(&t->refs, WEFT__TASK_JOINERS); /* pairs with wake_joiners */
    return refs & WEFT__TASK_DONE ? 0 : -EAGAIN;
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

/* The child has not started and waits in a queue: it can run next, in place of whatever the
 * worker would pick, when the caller suspends; the caller has it from here on. */
static bool claim_child(weft__worker *w, weft_task *t)
{
    if (!weft__task_claim_start(t, w->solo))
        return false;
    if (!entry_removed(w, t))
        atom_add_rlx(&t->refs, 1u); /* the tombstone's; ours keeps the task meanwhile */
    return true;
}

/* Waits for a child that is to run first: nobody can have ended it, so this needs neither
 * its lock nor a node. */
static int join_claimed(weft__worker *w, weft_task *t, weft_time deadline)
{
    weft__parker *self = w->current;
    t->joiner_word = weft__wait_begin(self, weft__join_ops.what, t);
    atom_store_rlx(&t->u.f.joiner, self);
    w->directed = t;
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (WEFT__LIKELY(outcome == 0))
        return 0;
    atom_store_rlx(&t->u.f.joiner, NULL);
    return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

static bool is_worth_claiming(const weft__worker *w, const weft_task *t)
{
    return w && w->current && w->rt == t->rt && weft__task_is_fiber(t) &&
           atom_load_rlx(&t->u.f.strand) == WEFT__STRAND_QUEUED &&
           weft__task_is_fiber(weft__task_of(w->current));
}

/* 1: somebody else has the child; else as weft__wait_on. */
static int join_child(weft__worker *w, weft_task *t, weft_time deadline)
{
    int r = weft__checkpoint(w->current);
    if (r)
        return r;
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        return -ETIMEDOUT;
    w = weft__worker_self(); /* perhaps another than before the checkpoint */
    return claim_child(w, t) ? join_claimed(w, t, deadline) : 1;
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
    int r = 1;
    if (deadline != WEFT_TRY && is_worth_claiming(w, t))
        r = join_child(w, t, deadline);
    if (r > 0)
        r = weft__wait_on(&weft__join_ops, t, &t->lock, &n, deadline);
    if (r == 0 && ret_result)
        *ret_result = t->result;
    return r;
}

/* `direct` is u.f.joiner, `word` its word. The last that is done for joiners is to claim:
 * after that they may be gone, the task's own reference keeps the task. */
static void wake_joiners(weft_task *t, weft__parker *direct, uint32_t word)
{
    weft__wakes wakes = {NULL, NULL};
    /* Pairs with weft_task_done, the result is there; and with join_try. */
    uint32_t refs = atom_or_ar(&t->refs, WEFT__TASK_DONE);
    if (direct)
        weft__claim_unpark_seen(direct, word);
    if (WEFT__LIKELY(!(refs & WEFT__TASK_JOINERS)))
        return;
    weft__acquire(&t->lock);
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
    weft__parker *direct = weft__task_is_fiber(t) ? atom_load_rlx(&t->u.f.joiner) : NULL;
    uint32_t direct_word = t->joiner_word;
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
        wake_joiners(t, direct, direct_word);
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
    if (atom_load_rlx(&t->parker.cancel) & WEFT__NOPARK)
        weft__claim_unpark(&t->parker, WEFT__WOKEN);
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

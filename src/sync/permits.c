/* SPDX-License-Identifier: MIT
 *
 * permits.c -- see permits.h.
 *
 * state   the count (signed: see credit) times two, plus
 *         WAITERS  a give must look into the queue, a take must go to its end. Legal
 *                  to be set while the queue is empty, illegal to be clear while it
 *                  is not.
 *
 * Who may change what
 *   the count       anybody, by compare-and-swap, while WAITERS is clear; else under
 *                   the lock
 *   WAITERS 0 -> 1  under the lock, by the swap that finds too few permits
 *   WAITERS 1 -> 0  under the lock
 *
 * Invariants, checked by weft__permits_check()
 *   P1  WAITERS is set while the queue is not empty.
 *   P2  When the lock is free, the head of the queue wants more than there is, or its
 *       wait is decided already and its owner is about to take it out, which serves
 *       the rest.
 *   P3  Permits are deducted for a waiter in the step that has claimed it: its
 *       outcome says whether it has them.
 *   P4  A give without waiters is one step, the last touch. With waiters, those keep
 *       the object alive until the lock is released.
 */
#include "sync/permits.h"

#include "sync/queue.h"

enum { WAITERS = 1, ONE = 2 };

static int64_t available(uint32_t state, int32_t credit)
{
    return (int64_t)((int32_t)(state & ~(uint32_t)WAITERS) / ONE) + credit;
}

static void weft__permits_check(struct weft__permits *p)
{
    WEFT__ASSERT((atom_load_rlx(&p->state) & WAITERS) || weft__queue_empty(&p->queue)); /* P1 */
    (void)p;
}

/* ---- Taking ---- */

static bool take_fast(struct weft__permits *p, uint32_t n, int32_t credit)
{
    uint32_t state = atom_load_rlx(&p->state);
    while (!(state & WAITERS) && available(state, credit) >= n) {
        if (WEFT__LIKELY(atom_cas_acq(&p->state, &state, state - n * ONE))) /* pairs with give */
            return true;
    }
    return false;
}

static int take_locked(struct weft__permits *p, uint32_t n, int32_t credit)
{
    bool first = weft__queue_empty(&p->queue);
    uint32_t state = atom_load_rlx(&p->state), next;
    int r;
    do {
        if (first && available(state, credit) >= n) {
            next = (state - n * ONE) & ~(uint32_t)WAITERS;
            r = 0;
        } else {
            next = state | WAITERS;
            r = -EAGAIN;
        }
    } while (!atom_cas_ar(&p->state, &state, next)); /* pairs with give */
    return r;
}

/* Serves the queue from its head as far as the permits go. With WAITERS set nobody
 * else changes the count. */
static void serve_locked(struct weft__permits *p, int32_t credit, weft__wakes *wakes)
{
    for (;;) {
        if (weft__queue_empty(&p->queue)) {
            atom_and_ar(&p->state, ~(uint32_t)WAITERS); /* pairs with take_fast */
            return;
        }
        weft__wait_node *n = weft__node_of(weft__list_first(&p->queue));
        if (available(atom_load_rlx(&p->state), credit) < (int64_t)n->arg)
            return;
        weft__list_remove(&n->link);
        if (weft__node_claim(n, 0)) {
            atom_sub_rlx(&p->state, (uint32_t)n->arg * ONE);
            weft__wakes_add(wakes, n->parker);
        }
    }
}

static void link_locked(void *object, weft__wait_node *n)
{
    struct weft__permits *p = object;
    weft__queue_push(&p->queue, n);
    weft__permits_check(p);
}

static void unlink_locked(struct weft__permits *p, weft__wait_node *n, int32_t credit,
                          weft__wakes *wakes)
{
    weft__list_remove(&n->link);
    serve_locked(p, credit, wakes);
    weft__permits_check(p);
}

int weft__permits_take(struct weft__permits *p, uint32_t n, int32_t credit,
                       const weft__waitable_ops *ops, weft_time deadline)
{
    weft__parker *self = NULL;
    if (deadline != WEFT_TRY) {
        self = weft__self();
        int r = weft__checkpoint(self);
        if (WEFT__UNLIKELY(r))
            return r;
    }
    if (WEFT__LIKELY(take_fast(p, n, credit)))
        return 0;
    weft__wait_node node;
    node.arg = n;
    weft__acquire(&p->lock);
    int r = take_locked(p, n, credit);
    if (r == 0 || !self) {
        weft__release(&p->lock);
        return r;
    }
    return weft__wait_slow(ops, p, &p->lock, &node, self, deadline);
}

/* ---- Giving ---- */

int weft__permits_give(struct weft__permits *p, uint32_t n, int32_t credit, uint32_t limit)
{
    uint32_t state = atom_load_rlx(&p->state);
    for (;;) {
        if (available(state, credit) + n > (int64_t)limit)
            return -ERANGE;
        if (WEFT__LIKELY(!(state & WAITERS))) {
            if (WEFT__LIKELY(atom_cas_rel(&p->state, &state, state + n * ONE)))
                return 0; /* pairs with the takes */
            continue;
        }
        weft__wakes wakes = {NULL, NULL};
        weft__acquire(&p->lock);
        state = atom_load_rlx(&p->state);
        bool waited = (state & WAITERS) && !weft__queue_empty(&p->queue);
        bool fits = available(state, credit) + n <= (int64_t)limit;
        if (waited && fits) {
            atom_add_ar(&p->state, n * ONE);
            serve_locked(p, credit, &wakes);
        } else if (!waited) {
            atom_and_ar(&p->state, ~(uint32_t)WAITERS);
        }
        weft__permits_check(p);
        weft__release(&p->lock);
        weft__wakes_run(&wakes);
        if (waited && fits)
            return 0;
        state = atom_load_rlx(&p->state);
    }
}

uint32_t weft__permits_count(const struct weft__permits *p, int32_t credit)
{
    /* Acquire: pairs with give, for who finds all permits back and frees the object. */
    return (uint32_t)available(atom_load_acq(&p->state), credit);
}

bool weft__permits_unwaited(struct weft__permits *p)
{
    weft__acquire(&p->lock);
    bool empty = weft__queue_empty(&p->queue);
    weft__release(&p->lock);
    return empty;
}

/* ---- The semaphore ---- */

_Static_assert(sizeof(struct weft__permits) == sizeof(weft_semaphore),
               "the public struct is storage for it");

static struct weft__permits *of_semaphore(const weft_semaphore *s)
{
    return (struct weft__permits *)(uintptr_t)s;
}

static int semaphore_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)wakes;
    return take_locked(object, (uint32_t)n->arg, 0);
}

static void semaphore_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    unlink_locked(object, n, 0, wakes);
}

static void semaphore_abandon(void *object, weft__wait_node *n, bool done)
{
    if (done)
        WEFT__CHECK(weft__permits_give(object, (uint32_t)n->arg, 0, WEFT_SEMAPHORE_MAX) == 0);
}

const weft__case_ops weft__semaphore_ops = {
    .base = {"semaphore", semaphore_try, link_locked, semaphore_unlink},
    .abandon = semaphore_abandon};

weft__lock *weft__permits_lock(struct weft__permits *p)
{
    return &p->lock;
}

int weft_semaphore_init(weft_semaphore *s, unsigned permits)
{
    if (!s || permits > WEFT_SEMAPHORE_MAX)
        return -EINVAL;
    *s = (weft_semaphore)WEFT_SEMAPHORE_INIT(permits);
    return 0;
}

int weft_semaphore_create(unsigned permits, weft_semaphore **ret_s)
{
    if (!ret_s || permits > WEFT_SEMAPHORE_MAX)
        return -EINVAL;
    weft_semaphore *s = weft__malloc(sizeof *s);
    if (!s)
        return -ENOMEM;
    weft_semaphore_init(s, permits);
    *ret_s = s;
    return 0;
}

int weft_semaphore_destroy(weft_semaphore *s)
{
    if (s && !weft__permits_unwaited(of_semaphore(s)))
        return -EBUSY;
    weft__free(s);
    return 0;
}

int weft_semaphore_acquire(weft_semaphore *s, unsigned n, weft_time deadline)
{
    if (WEFT__UNLIKELY(!s || n > WEFT_SEMAPHORE_MAX))
        return -EINVAL;
    return weft__permits_take(of_semaphore(s), n, 0, &weft__semaphore_ops.base, deadline);
}

int weft_semaphore_release(weft_semaphore *s, unsigned n)
{
    if (WEFT__UNLIKELY(!s))
        return -EINVAL;
    if (n > WEFT_SEMAPHORE_MAX)
        return -ERANGE;
    return weft__permits_give(of_semaphore(s), n, 0, WEFT_SEMAPHORE_MAX);
}

unsigned weft_semaphore_available(const weft_semaphore *s)
{
    return s ? weft__permits_count(of_semaphore(s), 0) : 0;
}

/* ---- The read-write lock ---- */

/* A reader takes one of these, a writer all. */
#define ALL WEFT__RWLOCK_WRITE

_Static_assert(sizeof(struct weft__permits) == sizeof(weft_rwlock),
               "the public struct is storage for it");

static struct weft__permits *of_rwlock(const weft_rwlock *rw)
{
    return (struct weft__permits *)(uintptr_t)rw;
}

static int rwlock_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)wakes;
    return take_locked(object, (uint32_t)n->arg, (int32_t)ALL);
}

static void rwlock_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    unlink_locked(object, n, (int32_t)ALL, wakes);
}

static void rwlock_abandon(void *object, weft__wait_node *n, bool done)
{
    if (done)
        WEFT__CHECK(weft__permits_give(object, (uint32_t)n->arg, (int32_t)ALL, ALL) == 0);
}

const weft__case_ops weft__read_ops = {
    .base = {"read lock", rwlock_try, link_locked, rwlock_unlink}, .abandon = rwlock_abandon};
const weft__case_ops weft__write_ops = {
    .base = {"write lock", rwlock_try, link_locked, rwlock_unlink}, .abandon = rwlock_abandon};

int weft_rwlock_init(weft_rwlock *rw)
{
    if (!rw)
        return -EINVAL;
    *rw = (weft_rwlock)WEFT_RWLOCK_INIT;
    return 0;
}

int weft_rwlock_fini(weft_rwlock *rw)
{
    if (!rw)
        return -EINVAL;
    struct weft__permits *p = of_rwlock(rw);
    return weft__permits_unwaited(p) && weft__permits_count(p, (int32_t)ALL) == ALL ? 0 : -EBUSY;
}

int weft_rwlock_read(weft_rwlock *rw, weft_time deadline)
{
    if (WEFT__UNLIKELY(!rw))
        return -EINVAL;
    return weft__permits_take(of_rwlock(rw), 1, (int32_t)ALL, &weft__read_ops.base, deadline);
}

int weft_rwlock_write(weft_rwlock *rw, weft_time deadline)
{
    if (WEFT__UNLIKELY(!rw))
        return -EINVAL;
    return weft__permits_take(of_rwlock(rw), ALL, (int32_t)ALL, &weft__write_ops.base, deadline);
}

int weft_rwlock_read_unlock(weft_rwlock *rw)
{
    if (WEFT__UNLIKELY(!rw))
        return -EINVAL;
    /* None left: a writer has them (as many readers would not fit into memory). */
    if (weft__permits_count(of_rwlock(rw), (int32_t)ALL) == 0)
        return -EPERM;
    return weft__permits_give(of_rwlock(rw), 1, (int32_t)ALL, ALL) ? -EPERM : 0;
}

int weft_rwlock_write_unlock(weft_rwlock *rw)
{
    if (WEFT__UNLIKELY(!rw))
        return -EINVAL;
    return weft__permits_give(of_rwlock(rw), ALL, (int32_t)ALL, ALL) ? -EPERM : 0;
}

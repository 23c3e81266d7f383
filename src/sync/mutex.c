/* SPDX-License-Identifier: MIT
 *
 * mutex.c -- see weft/mutex.h.
 *
 * Algorithm: a state word that is locked by one compare-and-swap and unlocked by
 * one, and a queue under a small lock for those who wait. Barging with a woken bit,
 * a bounded spin and a starvation mode after Go's sync.Mutex (D. Vyukov, R. Cox,
 * 2016); the spin tunes itself, for this room cannot know how many workers run.
 *
 * state   LOCKED   somebody holds it
 *         WAITERS  the queue is not empty
 *         WOKEN    a waiter was woken to try again and has not tried yet: an
 *                  unlock wakes nobody meanwhile
 *
 * Who may change what
 *   LOCKED 0 -> 1   anybody, by compare-and-swap
 *   LOCKED 1 -> 0   the holder: by compare-and-swap without the lock while nobody
 *                   needs a wake, else under the lock
 *   WAITERS, WOKEN  under the lock
 *   starving        under the lock
 *   spin            a hint; races are harmless
 *
 * Invariants, checked by weft__mutex_check()
 *   M1  WAITERS is set while the queue is not empty. (It may be set while it is empty: after
 *       the try of a select that then did another case. The next unlock finds out.)
 *   M2  A waiter in the queue sees, at some later time, an unlock with WAITERS and
 *       without WOKEN: it queues itself only while LOCKED is set, in the step that
 *       clears its own WOKEN; and who finds LOCKED clear takes the mutex instead of
 *       leaving. So a woken waiter that times out or is cancelled never keeps the
 *       wake: the claim decides which of the two it is, and a claimed one tries.
 *   M3  While `starving`, and to a select case in any state, an unlock hands LOCKED on
 *       without clearing it: who is told of a case has the mutex.
 *   M4  An unlock does not touch the mutex after the step by which a waiter that is
 *       not in the queue could hold it: when the queue turns out empty under the
 *       lock, the lock is released first and LOCKED is cleared last.
 */
#include "weft/mutex.h"

#include "sync/mutex.h"
#include "sync/queue.h"

enum { LOCKED = 1, WAITERS = 2, WOKEN = 4 };

enum { WOKEN_TO_TRY = 1 }; /* a wait's result; 0: the mutex was handed over */

#define STARVED (1 * WEFT_MSEC)
#ifdef WEFT_MODEL
#define ROUNDS 1 /* more only repeat what one can show */
#else
#define ROUNDS 4
#endif
#define PAUSES 8  /* before the first look, doubled with each; some 5 us together */
#define SELDOM 16 /* one round in so many calls, where it is always in vain */

struct mutex {
    weft__a32 state;
    weft__lock lock;
    weft__list queue;
    weft__a32 spin; /* a hint: so many rounds fewer; past ROUNDS it counts calls */
    uint32_t starving;
};
_Static_assert(sizeof(struct mutex) == sizeof(weft_mutex), "the public struct is storage for it");

struct waiter { /* or only a node, in a select case; then arg is CASE */
    weft__wait_node node;
    weft_time since;
};
enum { CASE = WEFT__MUTEX_CASE };

static struct mutex *of(const weft_mutex *m)
{
    return (struct mutex *)(uintptr_t)m;
}

static void weft__mutex_check(struct mutex *m)
{
    uint32_t state = atom_load_rlx(&m->state);
    (void)state;
    WEFT__ASSERT((state & WAITERS) || weft__queue_empty(&m->queue)); /* M1 */
    WEFT__ASSERT(!m->starving || (state & WAITERS));
}

/* After nodes have left the queue. */
static void emptied_locked(struct mutex *m)
{
    if (!weft__queue_empty(&m->queue))
        return;
    m->starving = 0;
    atom_and_ar(&m->state, ~(uint32_t)WAITERS);
}

static bool try_lock(struct mutex *m)
{
    uint32_t state = atom_load_rlx(&m->state);
    while (!(state & LOCKED)) {
        if (atom_cas_acq(&m->state, &state, state | LOCKED)) /* pairs with unlock */
            return true;
    }
    return false;
}

/* Worth it only while the holder runs on another processor. Few looks, with long pauses
 * between them: each takes the line from the holder, who in between locks and unlocks many
 * times in a row. Each failure makes it a round less, each success a round more; at the end,
 * where holders suspend, there is a round now and then only. */
static bool spin(struct mutex *m)
{
    uint32_t fewer = atom_load_rlx(&m->spin);
    if (fewer >= ROUNDS) {
        atom_store_rlx(&m->spin, fewer + 1 < ROUNDS + SELDOM ? fewer + 1 : ROUNDS - 1);
        return false;
    }
    for (uint32_t i = 0; i + fewer < ROUNDS; i++) {
        for (uint32_t k = (uint32_t)PAUSES << i; k; k--)
            weft__relax();
        if (try_lock(m)) {
            if (fewer)
                atom_store_rlx(&m->spin, fewer - 1);
            return true;
        }
    }
    atom_store_rlx(&m->spin, fewer + 1);
    return false;
}

/* Takes the mutex when it is free; else notes that somebody waits, unless the
 * caller is going to leave. Either way its own WOKEN is gone after this. */
static bool take_or_note_locked(struct mutex *m, uint32_t own_woken, bool leaving)
{
    uint32_t state = atom_load_rlx(&m->state), next;
    do {
        next = state & ~own_woken;
        if (!(state & LOCKED))
            next |= LOCKED;
        else if (!leaving)
            next |= WAITERS;
    } while (!atom_cas_acq(&m->state, &state, next)); /* pairs with unlock */
    return !(state & LOCKED);
}

static WEFT__NOINLINE int lock_slow(struct mutex *m, weft__parker *self, weft_time deadline)
{
    struct waiter w = {.since = 0};
    uint32_t own_woken = 0;
    if (spin(m))
        return 0;
    for (;;) {
        weft_time now = weft__sys_now();
        if (!w.since)
            w.since = now;
        weft__acquire(&m->lock);
        if (take_or_note_locked(m, own_woken, now >= deadline)) {
            weft__release(&m->lock);
            return 0;
        }
        if (now >= deadline) {
            weft__release(&m->lock);
            return -ETIMEDOUT;
        }
        w.node.parker = self;
        w.node.index = 0;
        weft__wait_begin(self, "mutex", m);
        if (own_woken) {
            weft__queue_push_front(&m->queue, &w.node);
            if (now - w.since > STARVED)
                m->starving = 1;
        } else {
            weft__queue_push(&m->queue, &w.node);
        }
        weft__mutex_check(m);
        weft__release(&m->lock);

        uint32_t outcome = weft__wait_commit(self, deadline);
        if (outcome == 0) {
            if (w.node.result == 0)
                return 0;
            own_woken = WOKEN;
            continue;
        }
        weft__acquire(&m->lock);
        if (weft__linked(&w.node.link)) {
            weft__list_remove(&w.node.link);
            emptied_locked(m);
        }
        weft__mutex_check(m);
        weft__release(&m->lock);
        return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
    }
}

static WEFT__NOINLINE int lock_checked(struct mutex *m, weft_time deadline)
{
    if (!m)
        return -EINVAL;
    if (deadline == WEFT_TRY)
        return try_lock(m) ? 0 : -EAGAIN;
    weft__parker *self = weft__self();
    int r = weft__checkpoint(self);
    return r || try_lock(m) ? r : lock_slow(m, self, deadline);
}

/* Everything but the one swap that succeeds is behind a call. */
int weft_mutex_lock(weft_mutex *mutex, weft_time deadline)
{
    struct mutex *m = of(mutex);
    uint32_t free_ = 0;
    if (WEFT__LIKELY(m != NULL) && weft__checkpoint_quick(weft__self_quick()) &&
        WEFT__LIKELY(atom_cas_acq(&m->state, &free_, LOCKED))) /* pairs with unlock */
        return 0;
    return lock_checked(m, deadline);
}

/* Wakes or serves the head of the queue; false: it was empty. The lock is released. */
static bool pass_on_locked(struct mutex *m)
{
    weft__wait_node *n = weft__queue_claim(&m->queue, 0);
    if (!n) {
        emptied_locked(m);
        weft__release(&m->lock);
        return false;
    }
    /* Nobody else changes the state now: LOCKED is ours, the rest is under the lock. */
    uint32_t state = weft__queue_empty(&m->queue) ? 0 : WAITERS;
    if (n->arg == CASE) {
        if (!state)
            m->starving = 0;
        atom_store_rel(&m->state, state | LOCKED);
    } else if (m->starving) {
        struct waiter *w = weft__container(n, struct waiter, node);
        if (!state || weft__sys_now() - w->since < STARVED)
            m->starving = 0;
        atom_store_rel(&m->state, state | LOCKED);
    } else {
        n->result = WOKEN_TO_TRY;
        atom_store_rel(&m->state, state | WOKEN); /* pairs with the swaps that lock */
    }
    weft__mutex_check(m);
    weft__parker *p = n->parker; /* kept alive by its claim until the unpark */
    weft__release(&m->lock);
    weft__unpark(p);
    return true;
}

static WEFT__NOINLINE int unlock_slow(struct mutex *m)
{
    uint32_t state = atom_load_rlx(&m->state);
    for (;;) {
        if (!(state & LOCKED))
            return -EPERM;
        if (!(state & WAITERS) || (state & WOKEN)) {
            if (atom_cas_rel(&m->state, &state, state & ~(uint32_t)LOCKED))
                return 0;
            continue;
        }
        weft__acquire(&m->lock);
        state = atom_load_rlx(&m->state);
        if ((state & (LOCKED | WAITERS | WOKEN)) != (LOCKED | WAITERS)) {
            weft__release(&m->lock);
            continue;
        }
        if (pass_on_locked(m))
            return 0;
        state = atom_load_rlx(&m->state);
    }
}

int weft_mutex_unlock(weft_mutex *mutex)
{
    struct mutex *m = of(mutex);
    uint32_t held = LOCKED;
    if (WEFT__LIKELY(m != NULL) &&
        WEFT__LIKELY(atom_cas_rel(&m->state, &held, 0))) /* pairs with lock */
        return 0;
    return m ? unlock_slow(m) : -EINVAL;
}

/* ---- As a case of select ---- */

static int case_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)n;
    (void)wakes;
    return take_or_note_locked(object, 0, false) ? 0 : -EAGAIN;
}

static void case_link(void *object, weft__wait_node *n)
{
    struct mutex *m = object;
    weft__queue_push(&m->queue, n);
    weft__mutex_check(m);
}

static void case_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct mutex *m = object;
    (void)wakes; /* a node in the queue has been told of nothing */
    weft__list_remove(&n->link);
    emptied_locked(m);
    weft__mutex_check(m);
}

static void case_abandon(void *object, weft__wait_node *n, bool done)
{
    (void)n;
    if (done)
        (void)weft_mutex_unlock(object);
}

const weft__case_ops weft__mutex_case_ops = {.base = {"mutex", case_try, case_link, case_unlink},
                                             .abandon = case_abandon};

weft__lock *weft__mutex_lock(weft_mutex *m)
{
    return &of(m)->lock;
}

bool weft_mutex_locked(const weft_mutex *m)
{
    return m && (atom_load_acq(&of(m)->state) & LOCKED) != 0; /* pairs with unlock */
}

int weft_mutex_init(weft_mutex *m)
{
    static const weft_mutex free_ = WEFT_MUTEX_INIT;
    if (!m)
        return -EINVAL;
    *m = free_;
    return 0;
}

int weft_mutex_fini(weft_mutex *m)
{
    if (!m)
        return -EINVAL;
    /* Acquire: pairs with the unlock of the last holder. */
    return atom_load_acq(&of(m)->state) ? -EBUSY : 0;
}

int weft_mutex_create(weft_mutex **ret_m)
{
    if (!ret_m)
        return -EINVAL;
    weft_mutex *m = weft__calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    *ret_m = m;
    return 0;
}

int weft_mutex_destroy(weft_mutex *m)
{
    if (!m)
        return 0;
    int r = weft_mutex_fini(m);
    if (r == 0)
        weft__free(m);
    return r;
}

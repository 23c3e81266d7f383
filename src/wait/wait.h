/* SPDX-License-Identifier: MIT
 *
 * wait.h -- the one wait core: everything that blocks in weft blocks here.
 *
 * A *parker* is somebody who can wait: a fiber, a stackless task or a plain
 * thread. It waits for one thing at a time, so the whole state of its current
 * wait is one word in it. A *wait node* is the entry of that wait in one queue;
 * a select has several, all with the same parker.
 *
 * The word, low bits first:
 *
 *   PHASE     IDLE     no wait was ever begun
 *             WAITING  begun, nobody has decided it yet
 *             CLAIMED  decided; the outcome is in the upper bits
 *             While WAITING the upper bits number the wait, see W5.
 *   PARKED    the context is saved: whoever sets TOKEN now must make it run
 *   TOKEN     the unpark has been delivered
 *   NOCANCEL  this wait is shielded: a cancellation must not claim it
 *
 *   IDLE/CLAIMED --begin--> WAITING --claim(outcome)--> CLAIMED --unpark--> +TOKEN
 *                           parked() adds PARKED at any point after begin
 *
 * Invariants
 *   W1  A wait has exactly one outcome: the compare-and-swap WAITING -> CLAIMED.
 *   W2  Every claim is followed by exactly one unpark, and the waiter consumes it
 *       before it returns, also when it sees the claim before it has parked. So a
 *       claimer may touch the parker and its node until it has called unpark, and
 *       never after. (A parker that claims its own wait is awake and owes none.)
 *   W3  Exactly one of parked() and unpark() sees the other's bit, and that one
 *       makes the parker run: never neither, never both.
 *   W4  After park returns the waiter has no node in any queue that others can
 *       still reach (a claimer unlinks the node it claims under the queue's lock;
 *       the waiter unlinks all others itself).
 *   W5  A cancellation is sticky: either the canceller sees WAITING and claims, or
 *       parked() sees the request. Both sides store, then load, sequentially
 *       consistent. Either claims only the wait whose word it has seen, by its number:
 *       a later one may be shielded, or another task's in the same memory.
 *
 * Who may touch what
 *   word       begin: owner, plain store (nobody can claim a wait that is not
 *              WAITING). claim, unpark: any thread. parked: the owner's scheduler.
 *   cancel     CANCEL set by any thread, NOPARK at init; never cleared while the
 *              parker lives
 *   budget, shield, random   owner only; `random` goes on over the owners of the memory
 *   link       the claimer, between claim and unpark; then the scheduler's queues
 *   node       under the lock of its waitable, except payload and result, which
 *              belong to the claimer between claim and unpark
 *
 * Memory: parked() reads `cancel` after it has published PARKED, when another
 * thread may already have run the task to its end. Task memory is therefore
 * type-stable while its runtime lives; what is read is then a successor's, and the
 * claim fails, for the number is another.
 */
#ifndef WEFT_SRC_WAIT_H
#define WEFT_SRC_WAIT_H

#include "base/atomic.h"
#include "base/base.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/sys.h"

#include <errno.h>

enum {
    WEFT__WAIT_IDLE = 0,
    WEFT__WAIT_WAITING = 1,
    WEFT__WAIT_CLAIMED = 2,
    WEFT__WAIT_PHASE = 3,
    WEFT__WAIT_PARKED = 4,
    WEFT__WAIT_TOKEN = 8,
    WEFT__WAIT_NOCANCEL = 16,
    WEFT__WAIT_SHIFT = 8, /* the outcome starts here */
};

/* Outcomes: a case index (fired), or one of the two at the top. */
#define WEFT__FIRED_MAX 0xfffff0u
#define WEFT__WOKEN     0xfffffdu /* a poll task, without a reason */
#define WEFT__TIMEDOUT  0xfffffeu
#define WEFT__CANCELED  0xffffffu

/* Bits of a parker's `cancel`. */
enum {
    WEFT__CANCEL = 1, /* requested; sticky */
    WEFT__NOPARK = 2, /* a poll task: it cannot suspend inside a call */
};

/* How many operations that did not have to wait a task may do before it yields. */
#define WEFT__BUDGET 128

typedef struct weft__parker weft__parker;

typedef struct weft__parker_ops {
    /* Suspends the caller, who is `self`, until TOKEN is set; at the deadline
     * (WEFT_NEVER: none) the wait is claimed with WEFT__TIMEDOUT. */
    void (*park)(weft__parker *self, weft_time deadline);
    /* Makes a parker run that is PARKED and has just got its TOKEN. From any
     * thread. The parker may be gone when this returns. */
    void (*ready)(weft__parker *parker);
    /* Lets others run, then refills the budget. */
    void (*yield)(weft__parker *self);
} weft__parker_ops;

struct weft__parker {
    weft__a32 word;
    weft__a32 cancel;
    int16_t budget;
    uint16_t shield; /* depth */
    uint32_t random; /* see weft__parker_random */
    const weft__parker_ops *ops;
    weft__slink link;  /* the claimer's, between claim and unpark; then the run queue's */
    weft__aptr what;   /* const char *: what it waits for, for dumps; NULL when it runs */
    weft__aptr object; /* the thing it waits on, for dumps */
};

/* weft__self without the short way below: the call is never inlined, so that the
 * thread-local address cannot be kept. */
weft__parker *weft__self_call(void);

/* The caller's parker if there is a short way to it, else NULL: for fast paths that
 * want no call. A fiber may have changed its thread since the last time, and a
 * compiler that sees a thread-local address would keep it across the suspension. So
 * it must not see it: the slot is read by an assembly statement that is volatile, or
 * behind a call. */
#if defined(__x86_64__) && defined(__ELF__) && !defined(WEFT_MODEL)
#define WEFT__SELF_INLINE 1
extern _Thread_local weft__parker **weft__current
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

static inline weft__parker *weft__self_quick(void)
{
    weft__parker **slot;
    __asm__ volatile("movq weft__current@gottpoff(%%rip), %0\n\t"
                     "movq %%fs:(%0), %0"
                     : "=r"(slot));
    return WEFT__LIKELY(slot != NULL) ? *slot : NULL;
}
#else
static inline weft__parker *weft__self_quick(void)
{
    return weft__self_call();
}
#endif

/* The caller's parker: the running task's, else the thread's own. Never NULL. */
static inline weft__parker *weft__self(void)
{
    weft__parker *self = weft__self_quick();
    return WEFT__LIKELY(self != NULL) ? self : weft__self_call();
}

/* For a scheduler: the calling thread's current parker is *slot from now on
 * (NULL, or *slot == NULL: the thread's own). Returns the slot before. */
weft__parker **weft__self_slot(weft__parker **slot);

/* In memory that is zero or has been a parker before. */
void weft__parker_init(weft__parker *p, const weft__parker_ops *ops);

/* ---- The waiter's side ---- */

/* Run by every call that may block, before it tries, unless its deadline is
 * WEFT_TRY: 0, -ECANCELED when the task is cancelled and not shielded, or -EPERM in
 * a poll function. */
static inline int weft__checkpoint(weft__parker *self)
{
    if (WEFT__UNLIKELY(--self->budget < 0))
        self->ops->yield(self);
    uint32_t cancel = atom_load_rlx(&self->cancel);
    if (WEFT__UNLIKELY(cancel)) {
        if (cancel & WEFT__NOPARK)
            return -EPERM;
        if (!self->shield)
            return -ECANCELED;
    }
    return 0;
}

/* The checkpoint of a fast path that has another one behind it: false when there is
 * anything to do, which weft__checkpoint then does. Counts; NULL is false. */
static inline bool weft__checkpoint_quick(weft__parker *self)
{
    return WEFT__LIKELY(self != NULL) && WEFT__LIKELY(--self->budget >= 0) &&
           WEFT__LIKELY(atom_load_rlx(&self->cancel) == 0);
}

/* Starts a wait and returns its word, which may be another by the time it can be read
 * again. A plain store: a word that is not WAITING cannot be claimed, and
 * the release of the queue's lock, or parked(), publishes it. */
static inline uint32_t weft__wait_begin(weft__parker *self, const char *what, const void *object)
{
    WEFT__ASSERT((atom_load_rlx(&self->word) & WEFT__WAIT_PHASE) != WEFT__WAIT_WAITING);
    atom_store_rlx(&self->what, (void *)(uintptr_t)what);
    atom_store_rlx(&self->object, (void *)(uintptr_t)object);
    self->random += 0x9e3779b9u; /* a number it has not had for long */
    uint32_t word = (uint32_t)WEFT__WAIT_WAITING | (self->shield ? WEFT__WAIT_NOCANCEL : 0u) |
                    self->random << WEFT__WAIT_SHIFT;
    atom_store_rlx(&self->word, word);
    return word;
}

/* Suspends until the wait is decided and its unpark consumed; returns the outcome. */
static inline uint32_t weft__wait_commit(weft__parker *self, weft_time deadline)
{
    self->ops->park(self, deadline);
    uint32_t word = atom_load_acq(&self->word); /* pairs with the claim and with unpark */
    atom_store_rlx(&self->what, NULL);
    return word >> WEFT__WAIT_SHIFT;
}

/* A number that differs from call to call, for fairness only (xorshift32, G.
 * Marsaglia, 2003). Here, since a room without globals has no other place. */
static inline uint32_t weft__parker_random(weft__parker *self)
{
    uint32_t x = self->random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return self->random = x;
}

/* ---- The notifier's side ---- */

/* Decides a wait: true for exactly one caller, who then owes one unpark. The
 * release makes what the claimer did before visible to the waiter. */
static inline bool weft__claim(weft__parker *p, uint32_t outcome)
{
    uint32_t word = atom_load_rlx(&p->word);
    do {
        if ((word & WEFT__WAIT_PHASE) != WEFT__WAIT_WAITING)
            return false;
        /* Fails at most once more, for parked() sets PARKED once. */
    } while (!atom_cas_ar(&p->word, &word,
                          (word & (WEFT__WAIT_PARKED | WEFT__WAIT_NOCANCEL)) |
                              (uint32_t)WEFT__WAIT_CLAIMED | outcome << WEFT__WAIT_SHIFT));
    return true;
}

/* Claims for a cancellation the one wait whose word `seen` was. */
static inline bool weft__claim_seen(weft__parker *p, uint32_t seen)
{
    uint32_t word = seen;
    if ((seen & WEFT__WAIT_PHASE) != WEFT__WAIT_WAITING || (seen & WEFT__WAIT_NOCANCEL))
        return false;
    while (!atom_cas_ar(&p->word, &word,
                        (word & WEFT__WAIT_PARKED) | (uint32_t)WEFT__WAIT_CLAIMED |
                            WEFT__CANCELED << WEFT__WAIT_SHIFT))
        if ((word ^ seen) & ~(uint32_t)WEFT__WAIT_PARKED)
            return false; /* decided, or another wait */
    return true;
}

/* Delivers the one unpark that a claim owes. Release: pairs with the acquire of
 * wait_commit, so that the payload is seen; acquire: pairs with parked(), so that
 * the saved context is. The parker may be gone afterwards. */
static inline void weft__unpark(weft__parker *p)
{
    const weft__parker_ops *ops = p->ops; /* read first: a waiter that sees TOKEN may leave */
    uint32_t word = atom_or_ar(&p->word, (uint32_t)WEFT__WAIT_TOKEN);
    WEFT__ASSERT((word & WEFT__WAIT_PHASE) == WEFT__WAIT_CLAIMED && !(word & WEFT__WAIT_TOKEN));
    if (word & WEFT__WAIT_PARKED)
        ops->ready(p);
}

/* Claim and unpark in one step. No node, nothing owed: `p` is not touched after the swap
 * unless it is then ours to make run. Orders as in claim and unpark. */
static inline bool weft__claim_unpark(weft__parker *p, uint32_t outcome)
{
    const weft__parker_ops *ops = p->ops;
    uint32_t word = atom_load_rlx(&p->word);
    do {
        if ((word & WEFT__WAIT_PHASE) != WEFT__WAIT_WAITING)
            return false;
    } while (!atom_cas_ar(&p->word, &word,
                          (word & (WEFT__WAIT_PARKED | WEFT__WAIT_NOCANCEL)) |
                              (uint32_t)(WEFT__WAIT_CLAIMED | WEFT__WAIT_TOKEN) |
                              outcome << WEFT__WAIT_SHIFT));
    if (word & WEFT__WAIT_PARKED)
        ops->ready(p);
    return true;
}

/* The same with the outcome 0, for the one wait whose word `seen` was (from wait_begin);
 * false: it was decided otherwise. In type-stable memory the wait, and the parker's whole
 * life, may even be over. */
static inline bool weft__claim_unpark_seen(weft__parker *p, uint32_t seen)
{
    WEFT__ASSERT((seen & WEFT__WAIT_PHASE) == WEFT__WAIT_WAITING);
    const weft__parker_ops *ops = p->ops;
    uint32_t word = seen | (uint32_t)WEFT__WAIT_PARKED;
    while (!atom_cas_ar(&p->word, &word,
                        (word & (WEFT__WAIT_PARKED | WEFT__WAIT_NOCANCEL)) |
                            (uint32_t)(WEFT__WAIT_CLAIMED | WEFT__WAIT_TOKEN)))
        if ((word ^ seen) & ~(uint32_t)WEFT__WAIT_PARKED)
            return false;
    if (word & WEFT__WAIT_PARKED)
        ops->ready(p);
    return true;
}

/* For the scheduler, once the context of `p` is saved: publishes PARKED. False:
 * the unpark has been delivered already, the caller makes it run; otherwise `p`
 * belongs to its claimer and must not be touched any more. */
static inline bool weft__parked(weft__parker *p)
{
    /* Woken before it got here, as a task that yields by waking itself: nobody looks for
     * PARKED any more. Pairs with unpark. */
    if (atom_load_acq(&p->word) & WEFT__WAIT_TOKEN)
        return false;
    uint32_t word = atom_or_sc(&p->word, (uint32_t)WEFT__WAIT_PARKED);
    if (word & WEFT__WAIT_TOKEN)
        return false;
    /* Pairs with weft__cancel: one of the two sees the other (W5). */
    if (WEFT__UNLIKELY(!(word & WEFT__WAIT_NOCANCEL) &&
                       (atom_load_sc(&p->cancel) & WEFT__CANCEL)) &&
        weft__claim_seen(p, word | WEFT__WAIT_PARKED))
        weft__unpark(p);
    return true;
}

/* Requests cancellation, from any thread that keeps `p` alive: sticky, and claims
 * the current wait if there is one. False: it was requested before. */
bool weft__cancel(weft__parker *p);

/* Claimed parkers that get their unpark after the lock is released, in order. */
typedef weft__fifo weft__wakes;

static inline void weft__wakes_add(weft__wakes *w, weft__parker *p)
{
    weft__fifo_push(w, &p->link);
}

static inline void weft__wakes_run(weft__wakes *w)
{
    for (weft__slink *l = w->first; l;) {
        weft__slink *next = l->next; /* read before: unpark may free, or queue, the parker */
        weft__unpark(weft__container(l, weft__parker, link));
        l = next;
    }
}

/* ---- Waitables ---- */

typedef struct weft__wait_node {
    weft__link link;
    weft__parker *parker;
    uint32_t index; /* the outcome that a claim through this node gives */
    int32_t result; /* set by the claimer: what the call returns */
    void *payload;  /* where data goes to or comes from */
    uintptr_t arg;  /* the waitable's own: a count, a mode */
} weft__wait_node;

/* One kind of wait on one kind of object ("receive from a channel"). All three run
 * under the object's lock. */
typedef struct weft__waitable_ops {
    const char *what; /* for dumps: "channel recv" */
    /* Does the operation if it need not wait and returns its result (any value but
     * -EAGAIN); else -EAGAIN. Peers that it completes are claimed and added to wakes. */
    int (*try_locked)(void *object, weft__wait_node *node, weft__wakes *wakes);
    /* Queues the node; only after try_locked said -EAGAIN under the same lock. */
    void (*link_locked)(void *object, weft__wait_node *node);
    /* Takes a node that is still linked out again, and passes on what it kept from
     * others (the next in a fair queue may be servable now). */
    void (*unlink_locked)(void *object, weft__wait_node *node, weft__wakes *wakes);
} weft__waitable_ops;

/* Claims through a node that its caller has just unlinked under the lock, and sets
 * the result; false when the wait was decided otherwise (the node is then merely
 * gone from the queue). */
static inline bool weft__node_claim(weft__wait_node *n, int result)
{
    if (!weft__claim(n->parker, n->index))
        return false;
    n->result = result;
    return true;
}

/* Unlinks the node if it still is linked; after an outcome that did not come
 * through it. */
void weft__node_retract(const weft__waitable_ops *ops, void *object, weft__lock *lock,
                        weft__wait_node *node);

/* The waiting half of wait_on, entered with the lock held after a try said -EAGAIN. */
int weft__wait_slow(const weft__waitable_ops *ops, void *object, weft__lock *lock,
                    weft__wait_node *node, weft__parker *self, weft_time deadline);

/* A whole blocking call: try, else wait. Returns the operation's result, -EAGAIN
 * (WEFT_TRY), -ETIMEDOUT or -ECANCELED. What is ready wins over a deadline that has
 * passed; a deadline in the past never suspends. Inlined, so that with a constant
 * `ops` the fast path has no indirect call. */
static inline __attribute__((always_inline)) int weft__wait_on(const weft__waitable_ops *ops,
                                                               void *object, weft__lock *lock,
                                                               weft__wait_node *node,
                                                               weft_time deadline)
{
    weft__parker *self = NULL;
    weft__wakes wakes = {NULL, NULL};
    int r;
    if (deadline != WEFT_TRY) {
        self = weft__self();
        r = weft__checkpoint(self);
        if (WEFT__UNLIKELY(r))
            return r;
    }
    weft__acquire(lock);
    r = ops->try_locked(object, node, &wakes);
    if (WEFT__LIKELY(r != -EAGAIN) || !self) {
        weft__release(lock);
        weft__wakes_run(&wakes);
        return r;
    }
    return weft__wait_slow(ops, object, lock, node, self, deadline);
}

/* Sleeps until the deadline: 0, or -ECANCELED. A deadline that has passed, and
 * WEFT_TRY, return at once (after a checkpoint). */
int weft__sleep(weft_time deadline);

#endif

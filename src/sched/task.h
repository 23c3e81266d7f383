/* SPDX-License-Identifier: MIT
 *
 * task.h -- the task header, and the slabs that tasks live in.
 *
 * Task memory is type-stable while its runtime lives (wait.h says why): slots go back
 * to free lists, never to the system before the runtime is freed. A slot is in use
 * while its `id` is not 0; that lets a dump or a shutdown walk all slots at any time.
 *
 * Who may touch what
 *   parker          see wait.h; its link is the queue's that the ready task is in
 *   u.f.strand      before the first run, by compare-and-swap where a joiner may race with
 *                   the queue (below); then by the worker that runs the task
 *   body, u.f.arg, rt, flags, home     set by spawn; flags change only in the hands of the
 *                   running task and the scheduler, who alone read them
 *   own             the worker that runs the task
 *   result          the task's end, before DONE (release); joiners read it after
 *   u.f.joiner      a fiber that runs this one in place of itself and waits for it, at the
 *                   word `joiner_word`: set before the first run, withdrawn by that fiber if
 *                   it leaves early, read by the end. A late withdrawal harms nobody: the
 *                   end claims that one wait only (wait.h, claim_unpark_seen)
 *   timer           `owner` (weft__timed): by the task, before it parks and after it resumes;
 *                   the rest under that worker's wheel lock
 *   joiners         under `lock`
 *   refs            any thread
 *   name, id        written by spawn, id also by the free; any thread reads
 */
#ifndef WEFT_SRC_TASK_H
#define WEFT_SRC_TASK_H

#include "base/list.h"
#include "base/lock.h"
#include "fiber/context.h"
#include "fiber/stack.h"
#include "time/wheel.h"
#include "wait/wait.h"
#include "weft/task.h"

struct weft__worker;

/* A fiber's stack and its context; lies at the top of that stack, in the page the
 * first frame touches anyway. */
typedef struct weft__strand {
    weft__context context;
    weft__stack *stack;
} weft__strand;

/* Bits of `flags`; the public WEFT_PINNED and WEFT_HIGH are the lowest. */
enum {
    WEFT__TASK_POLL = 0x10,   /* body is a poll function */
    WEFT__TASK_HANDLE = 0x20, /* somebody may hold references: count them */
    WEFT__TASK_BOXED = 0x40,  /* the poll state was allocated */
    WEFT__TASK_LATE = 0x80,   /* starts at timer.deadline, not before */
};

/* Bits of `own`. */
enum {
    WEFT__OWN_TOLD = 1,   /* a poll task that has seen its cancellation */
    WEFT__OWN_ENDED = 2,  /* a poll task whose body has ended; its last wake is on the way */
    WEFT__OWN_EXTRA = 4,  /* `extra` is not NULL */
    WEFT__OWN_WAITED = 8, /* LATE, and the wait for the start has begun */
    WEFT__OWN_LINKED =
        16, /* a poll task with nodes in queues; parker.object is their weft_poll_wait */
    WEFT__OWN_DECIDED = 32, /* the same without nodes: nobody has asked for the answer, which
                             * may have brought something */
};

/* What u.f.strand says of a fiber that has not run yet.
 *
 * A joiner may take a child that waits in a queue of pointers (next, a ring, a deque) and
 * run it at once: depth first, while the stack is warm. Joiner and queue decide by the
 * swap QUEUED -> TAKEN. If the joiner wins, the entry stays behind as a tombstone, with a
 * reference of its own, and whoever pops it drops it (weft__entry_take). In the queues that link
 * tasks (inject, high, pinned) there can be no tombstone, so tasks there are TAKEN already. */
#define WEFT__STRAND_QUEUED NULL
#define WEFT__STRAND_TAKEN  ((void *)1)

/* In `refs`, above the count. */
#define WEFT__TASK_DONE    0x80000000u /* the body has ended */
#define WEFT__TASK_COUNTED 0x40000000u /* HANDLE, where other threads may read it */
#define WEFT__TASK_RESUMED 0x20000000u /* a resume that no suspend has taken yet; under lock */
#define WEFT__TASK_JOINERS 0x10000000u /* there may be some in `joiners`; set under lock */
#define WEFT__TASK_REFS    0x0fffffffu

#define WEFT__POLL_INLINE 24

/* Three cache lines. The first two are all that a detached fiber touches which never
 * waits with a deadline. */
struct weft_task {
    weft__parker parker;
    struct weft_runtime *rt;
    weft__a64 since; /* last change between running and waiting, for dumps, coarse ns */

    union {
        weft_fn fiber;
        weft_poll_fn poll;
    } body;
    union {
        struct {
            void *arg;
            weft__aptr strand; /* weft__strand *, or one of the states below */
            weft__aptr joiner; /* weft__parker * */
        } f;
        void *box;
        char state[WEFT__POLL_INLINE];
    } u;
    weft__aptr name; /* const char * */
    weft__a64 id;    /* 0: the slot is free */
    weft__a32 refs;
    weft__lock lock; /* guards joiners, and what extra.h says; valid in a free slot, too */
    union {
        int32_t result;
        uint32_t joiner_word; /* until the end */
    };
    uint8_t flags;
    uint8_t own;
    uint16_t home; /* pinned: the number of its worker */

    weft__wheel_entry timer; /* unarmed in a free slot; its `owner` is for weft__timed */
    weft__list joiners;      /* valid with HANDLE; a suspended task's own node is first */
    weft__aptr extra;        /* weft__extra *; NULL in a free slot; changes under lock */
} WEFT__ALIGNED(WEFT__CACHE_LINE);

_Static_assert(sizeof(weft_task) == (size_t)3 * WEFT__CACHE_LINE, "three lines, no more");

/* The number + 1 of the worker whose wheel the timer may be in, or 0, as in a free slot. */
static inline uint32_t weft__timed(const weft_task *t)
{
    return atom_load_rlx(&t->timer.owner);
}

static inline weft_task *weft__task_of(weft__parker *p)
{
    return weft__container(p, weft_task, parker);
}

static inline weft_task *weft__task_of_link(weft__slink *l)
{
    return weft__container(l, weft_task, parker.link);
}

static inline bool weft__task_is_fiber(const weft_task *t)
{
    return !(t->flags & WEFT__TASK_POLL);
}

/* The strand of a fiber that runs or has run; NULL before. Its runner's. */
static inline weft__strand *weft__task_strand(const weft_task *t)
{
    void *s = atom_load_rlx(&t->u.f.strand);
    return s == WEFT__STRAND_TAKEN ? NULL : s;
}

/* Takes a fiber that is in a queue of pointers; false: somebody else has, or will. Its
 * body was published with the queue or the handle. In a solo runtime only its one worker
 * can get here, so a store will do. */
static inline bool weft__task_claim_start(weft_task *t, bool solo)
{
    void *queued = WEFT__STRAND_QUEUED;
    if (atom_load_rlx(&t->u.f.strand) != WEFT__STRAND_QUEUED)
        return false;
    if (!solo)
        return atom_cas_ar(&t->u.f.strand, &queued, WEFT__STRAND_TAKEN);
    atom_store_rlx(&t->u.f.strand, WEFT__STRAND_TAKEN);
    return true;
}

/* A fiber that runs for the first time, now. */
static inline bool weft__task_is_fresh(const weft_task *t)
{
    return !(t->flags & (WEFT__TASK_POLL | WEFT__TASK_LATE)) && !weft__task_strand(t);
}

/* What stands in a queue of pointers for `t`: the task, and in the lowest bit whether this
 * entry is for a first run that a joiner may take. For whoever puts it there. */
static inline void *weft__entry(weft_task *t)
{
    if (!(t->flags & WEFT__TASK_HANDLE) || !weft__task_is_fresh(t))
        return t;
    if (atom_load_rlx(&t->u.f.strand) == WEFT__STRAND_TAKEN)
        atom_store_rlx(&t->u.f.strand, WEFT__STRAND_QUEUED);
    return (void *)((uintptr_t)t | 1u);
}

/* ---- Slabs ---- */

typedef struct weft__task_chunk weft__task_chunk;

/* Slots change hands between a worker and the depot in magazines: chains of exactly
 * this many, so that the lock is held for a few instructions. */
#ifdef WEFT_MODEL
#define WEFT__MAGAZINE 2u
#else
#define WEFT__MAGAZINE 64u
#endif

/* One per runtime, thread-safe. */
typedef struct weft__task_depot {
    weft__lock lock;
    weft_task *magazines; /* first slots of full chains, linked through `rt` */
    weft__slink *loose;   /* single free slots */
    size_t free_count;    /* in magazines and loose */
    size_t slots, limit;  /* carved so far, at most */
    weft__task_chunk *chunks;
    size_t fresh;  /* slots of the newest chunk that were never carved */
    bool orphaned; /* the runtime was freed while slots were out */
} weft__task_depot;

/* One per worker, owner only; LIFO. */
typedef struct weft__task_cache {
    weft__slink *free; /* fewer than two magazines */
    uint32_t count;    /* of them */
    uint32_t fresh_left;
    weft_task *fresh;   /* slots in a row that were never used */
    weft__slink *spare; /* a full magazine, or NULL */
} weft__task_cache;

void weft__task_depot_init(weft__task_depot *d, size_t limit);
void weft__task_depot_fini(weft__task_depot *d);

/* One slot, from and to the depot; *error is -ENOMEM or -EAGAIN (limit) when NULL. give
 * answers true when that was the last one out of an orphaned depot: the caller ends it. */
weft_task *weft__task_take(weft__task_depot *d, int *error);
bool weft__task_give(weft__task_depot *d, weft_task *t);

/* The runtime ends: true when every slot is back; otherwise the last give says so. */
bool weft__task_depot_orphan(weft__task_depot *d);

weft_task *weft__task_cache_refill(weft__task_cache *c, weft__task_depot *d, int *error);
void weft__task_cache_spill(weft__task_cache *c, weft__task_depot *d);
void weft__task_cache_fini(weft__task_cache *c, weft__task_depot *d);

static inline weft_task *weft__task_cache_take(weft__task_cache *c, weft__task_depot *d, int *error)
{
    weft__slink *l = c->free;
    if (WEFT__UNLIKELY(!l))
        return weft__task_cache_refill(c, d, error);
    c->free = l->next;
    c->count--;
    /* The next spawn finds its slot in the cache. */
    __builtin_prefetch(c->free, 1);
    __builtin_prefetch((char *)c->free + WEFT__CACHE_LINE, 1);
    return weft__task_of_link(l);
}

static inline void weft__task_cache_give(weft__task_cache *c, weft__task_depot *d, weft_task *t)
{
    if (WEFT__UNLIKELY(c->count == WEFT__MAGAZINE))
        weft__task_cache_spill(c, d);
    t->parker.link.next = c->free;
    c->free = &t->parker.link;
    c->count++;
}

/* Calls `visit` for each live task, which may change under it at any time. */
void weft__task_each(weft__task_depot *d, void (*visit)(weft_task *t, void *arg), void *arg);

#endif

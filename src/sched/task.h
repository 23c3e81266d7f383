/* SPDX-License-Identifier: MIT
 *
 * task.h -- the task header, and the slabs that tasks live in.
 *
 * Task memory is type-stable while its runtime lives (wait.h says why): slots go back
 * to free lists, never to the system before the runtime is freed. A slot is in use
 * when `live` is set; that lets a dump or a shutdown walk all slots at any time.
 *
 * Who may touch what
 *   parker          see wait.h
 *   run             whoever holds the ready task: the queue it is in
 *   strand          the worker that runs the task; set when it first runs
 *   body, arg, flags, rt, name, id, home     set by spawn, constant afterwards
 *   result          the task's end, before `done` (release); joiners read it after
 *   timer, timed    timed: written by the owner before it parks and after it resumes;
 *                   timer: under that worker's wheel lock
 *   joiners         under `lock`
 *   refs            any thread
 *   live, done      written by the task's end; any thread reads
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

enum {
    WEFT__TASK_POLL = 1u << 16,   /* body is a poll function */
    WEFT__TASK_HANDLE = 1u << 17, /* somebody may hold references: count them */
    WEFT__TASK_BOXED = 1u << 18,  /* the poll state was allocated */
    WEFT__TASK_TOLD = 1u << 19,   /* a poll task that has seen its cancellation */
};

#define WEFT__POLL_INLINE 32

struct weft_task {
    weft__parker parker;
    weft__slink run;
    struct weft_runtime *rt;

    union {
        weft_fn fiber;
        weft_poll_fn poll;
    } body;
    union {
        struct {
            void *arg;
            weft__strand *strand; /* NULL until it first runs */
        } f;
        void *box;
        char state[WEFT__POLL_INLINE];
    } u;
    weft__a64 since; /* last change between running and waiting, for dumps, coarse ns */
    const char *name;
    uint64_t id;

    weft__wheel_entry timer;
    struct weft__worker *timed; /* whose wheel the timer may be in, or NULL */
    weft__list joiners;
    weft__lock lock;
    weft__a32 refs;
    uint32_t flags;
    int32_t result;
    weft__a32 live; /* 1 from spawn to the last reference */
    weft__a32 done; /* 1 once the body has ended */
    uint32_t home;  /* pinned: the number of its worker */
};

static inline weft_task *weft__task_of(weft__parker *p)
{
    return weft__container(p, weft_task, parker);
}

static inline weft_task *weft__task_of_run(weft__slink *l)
{
    return weft__container(l, weft_task, run);
}

/* ---- Slabs ---- */

typedef struct weft__task_chunk weft__task_chunk;

/* One per runtime, thread-safe. */
typedef struct weft__task_depot {
    weft__lock lock;
    weft__slink *free;   /* free slots, linked through `run` */
    size_t free_count;   /* under lock */
    size_t slots, limit; /* carved so far, at most */
    weft__task_chunk *chunks;
    size_t fresh; /* slots of the newest chunk that were never used */
} weft__task_depot;

/* One per worker, owner only; LIFO. */
typedef struct weft__task_cache {
    weft__slink *free;
    uint32_t count;
} weft__task_cache;

void weft__task_depot_init(weft__task_depot *d, size_t limit);
void weft__task_depot_fini(weft__task_depot *d);

/* A slot from the depot; *error is -ENOMEM or -EAGAIN (limit) when NULL. */
weft_task *weft__task_take(weft__task_depot *d, int *error);
void weft__task_give(weft__task_depot *d, weft_task *t);

weft_task *weft__task_cache_refill(weft__task_cache *c, weft__task_depot *d, int *error);
void weft__task_cache_drain(weft__task_cache *c, weft__task_depot *d, uint32_t keep);

#define WEFT__TASK_CACHE 128u

static inline weft_task *weft__task_cache_take(weft__task_cache *c, weft__task_depot *d, int *error)
{
    weft__slink *l = c->free;
    if (WEFT__UNLIKELY(!l))
        return weft__task_cache_refill(c, d, error);
    c->free = l->next;
    c->count--;
    return weft__task_of_run(l);
}

static inline void weft__task_cache_give(weft__task_cache *c, weft__task_depot *d, weft_task *t)
{
    t->run.next = c->free;
    c->free = &t->run;
    if (WEFT__UNLIKELY(++c->count > WEFT__TASK_CACHE))
        weft__task_cache_drain(c, d, WEFT__TASK_CACHE / 2);
}

/* Calls `visit` for each live task, which may change under it at any time. */
void weft__task_each(weft__task_depot *d, void (*visit)(weft_task *t, void *arg), void *arg);

#endif

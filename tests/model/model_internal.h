/* SPDX-License-Identifier: MIT
 *
 * model_internal.h -- what model.c (threads, steps), explore.c (which order next)
 * and race.c (data races) know of each other.
 */
#ifndef WEFT_TESTS_MODEL_INTERNAL_H
#define WEFT_TESTS_MODEL_INTERNAL_H

#include "model.h"

/* What a step does to its address; a futex's queue hangs on the word's address. */
enum {
    OP_READ = 1,
    OP_WRITE = 2,
    OP_QUEUE = 4,   /* enters or leaves the queue by itself: two of these commute */
    OP_WAKE = 8,    /* takes others out of the queue */
    OP_LOCK = 16,   /* with READ and WRITE: cannot go while the lock is held */
    OP_UNLOCK = 32, /* with WRITE */
};

struct op {
    const void *address; /* NULL: touches nothing shared */
    int kind;            /* OP_ bits */
    const char *where;
};

/* One step that was taken. */
struct event {
    struct op op;
    int thread;
    int before;               /* the thread's step before this one, or -1 */
    int waker;                /* the step that woke it from a futex, or -1 */
    bool was_timed;           /* and it could have timed out instead */
    int clock[MODEL_THREADS]; /* per thread: 1 + its last step that happens before */
};

/* One point of decision: the state before the step of the same number. */
struct node {
    int thread;        /* goes next in the present execution */
    int choice;        /* and takes this branch inside the step */
    int choices;       /* of so many */
    unsigned enabled;  /* bits of threads, as all below */
    unsigned explored; /* everything that begins with these has been seen */
    unsigned wanted;   /* these have to be explored */
    unsigned asleep;   /* what begins with these was seen from elsewhere */
    int preempted;     /* preemptions so far */
    struct op pending[MODEL_THREADS];
};

struct explorer {
    const struct model_scenario *s;
    struct node node[MODEL_STEPS + 1];
    struct event event[MODEL_STEPS + 1];
    int depth;  /* steps taken in this execution */
    int replay; /* so many of them were given */
};

static inline bool op_conflict(const struct op *a, const struct op *b)
{
    int either = a->kind | b->kind;
    if (!a->address || a->address != b->address)
        return false;
    if ((either & OP_WRITE) && (a->kind & (OP_READ | OP_WRITE)) && (b->kind & (OP_READ | OP_WRITE)))
        return true;
    return (either & OP_WAKE) && (a->kind & (OP_QUEUE | OP_WAKE)) &&
           (b->kind & (OP_QUEUE | OP_WAKE));
}

/* ---- explore.c ---- */

/* Picks for a node reached for the first time; -1: nothing left that is new. */
int explore_pick(struct explorer *x, int previous);

/* After an execution: notes what else must be tried and sets up the next one;
 * false when all is explored. */
bool explore_next(struct explorer *x);

/* ---- race.c: the happens-before of the language, for plain accesses ---- */

void race_begin(int threads);
void race_step(int thread, const void *address, int kind, int order);
void race_free(int thread, const void *memory, size_t size);

/* model.c, for race.c: -1 outside of a model thread. */
int model_current(void);
_Noreturn void model_fail_text(const char *text);
/* The function of its last step. */
const char *model_last_place(int thread);

#endif

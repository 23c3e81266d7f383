/* SPDX-License-Identifier: MIT
 *
 * explore.c -- which orders of steps have to be run.
 *
 * Two orders that differ only in neighbouring steps which do not conflict end in
 * the same state, so one of each such class is enough. The algorithm is source-set
 * dynamic partial order reduction with sleep sets: P. Abdulla, S. Aronis,
 * B. Jonsson, K. Sagonas, "Optimal Dynamic Partial Order Reduction", POPL 2014,
 * algorithm 1 ("Source-DPOR"). After each execution every pair of steps that race
 * (conflict, with nothing ordered between them) asks for an execution where the
 * later one comes first: at the node of the earlier step one thread that can begin
 * such an execution is added to `wanted`, unless one is there already. A thread
 * whose continuations were all seen sleeps until a step conflicts with its own.
 *
 * What happens before what: program order, conflicting steps in the order in which
 * they were taken, and a wake before the return of the futex wait that it ends. A
 * wait that could have timed out instead of being woken races with its waker; one
 * that could not is merely enabled by it. Likewise an unlock enables the next lock
 * of the same lock, whose race is with the lock before that unlock.
 *
 * Invariants
 *   E1  Every execution replays the nodes below `replay` exactly; the code under
 *       test is deterministic, so node and event of the same number describe the
 *       same step in every execution that shares the prefix.
 *   E2  A thread in `wanted` is enabled at its node.
 */
#include "model_internal.h"

#include <string.h>

static bool before(const struct explorer *x, int i, const int *clock)
{
    return clock[x->event[i].thread] > i;
}

static void join(int *clock, const int *other)
{
    for (int t = 0; t < MODEL_THREADS; t++)
        if (clock[t] < other[t])
            clock[t] = other[t];
}

/* ---- A new node ---- */

/* Sleepers of the parent, and what it has explored, sleep on here unless the step
 * in between conflicts with theirs. */
static unsigned sleepers(const struct explorer *x)
{
    if (x->depth == 0)
        return 0;
    const struct node *parent = &x->node[x->depth - 1];
    const struct event *step = &x->event[x->depth - 1];
    unsigned asleep = 0;
    for (int t = 0; t < x->s->threads; t++)
        if (((parent->asleep | parent->explored) >> t & 1) && t != step->thread &&
            !op_conflict(&step->op, &parent->pending[t]))
            asleep |= 1u << t;
    return asleep;
}

int explore_pick(struct explorer *x, int previous)
{
    struct node *n = &x->node[x->depth];
    bool stay = previous >= 0 && (n->enabled >> previous & 1);
    n->explored = 0;
    n->choice = 0;
    n->choices = 1;
    n->asleep = x->s->all ? 0 : sleepers(x);
    n->preempted = 0;
    if (x->depth > 0) {
        const struct node *parent = &x->node[x->depth - 1];
        int earlier = x->depth > 1 ? x->event[x->depth - 2].thread : -1;
        n->preempted = parent->preempted + (earlier >= 0 && earlier != parent->thread &&
                                            (parent->enabled >> earlier & 1) &&
                                            x->event[x->depth - 2].op.address);
    }
    unsigned open = n->enabled & ~n->asleep;
    if (!open)
        return -1;
    n->thread = stay && (open >> previous & 1) ? previous : __builtin_ctz(open);
    if (x->s->eager)
        n->thread = 31 - __builtin_clz(open);
    n->wanted = 1u << n->thread;
    if (x->s->all) {
        bool bound = x->s->preemptions && n->preempted >= x->s->preemptions;
        n->wanted = bound && stay ? 1u << previous : n->enabled;
        for (int t = 0; t < x->s->threads; t++)
            if ((n->enabled >> t & 1) && !n->pending[t].address) {
                n->thread = t; /* commutes with everything */
                n->wanted = 1u << t;
                break;
            }
    }
    return n->thread;
}

/* ---- Races ---- */

/* The threads that can take the first step of the part of the execution after
 * `from` that does not depend on `from`, with step `to` at its end. */
static unsigned initials(const struct explorer *x, int from, int to)
{
    int first[MODEL_THREADS];
    unsigned seen = 0, initial = 0;
    for (int k = from + 1; k <= to; k++) {
        const struct event *e = &x->event[k];
        if ((seen >> e->thread & 1) || (k < to && before(x, from, e->clock)))
            continue;
        bool free = true;
        for (int t = 0; t < x->s->threads; t++)
            if ((seen >> t & 1) && before(x, first[t], e->clock))
                free = false;
        first[e->thread] = k;
        seen |= 1u << e->thread;
        if (free)
            initial |= 1u << e->thread;
    }
    return initial;
}

static void reverse_race(struct explorer *x, int from, int to)
{
    struct node *n = &x->node[from];
    unsigned initial = initials(x, from, to);
    if (initial & n->wanted)
        return;
    if (!(initial & n->enabled))
        model_fail_text("the checker is broken: nobody can begin the reversed race");
    n->wanted |= 1u << __builtin_ctz(initial & n->enabled);
}

/* The step with which the thread of `unlock` had taken the lock. */
static int lock_of(const struct explorer *x, int unlock)
{
    const struct event *u = &x->event[unlock];
    int i = u->before;
    while (i >= 0 && !(x->event[i].op.address == u->op.address && (x->event[i].op.kind & OP_WRITE)))
        i = x->event[i].before;
    return i;
}

static void note_races(struct explorer *x, int j)
{
    int races[MODEL_STEPS], n = 0;
    struct event *e = &x->event[j];
    memset(e->clock, 0, sizeof e->clock);
    if (e->before >= 0)
        join(e->clock, x->event[e->before].clock);
    if (e->waker >= 0) {
        if (e->was_timed && !before(x, e->waker, e->clock))
            races[n++] = e->waker;
        join(e->clock, x->event[e->waker].clock);
    }
    for (int i = j - 1; i >= 0; i--) {
        const struct event *other = &x->event[i];
        if (other->thread == e->thread || !op_conflict(&other->op, &e->op) ||
            before(x, i, e->clock))
            continue;
        int race = i;
        if ((e->op.kind & OP_LOCK) && (other->op.kind & OP_UNLOCK))
            race = lock_of(x, i);
        if (race >= 0 && !before(x, race, e->clock))
            races[n++] = race;
        join(e->clock, other->clock);
    }
    e->clock[e->thread] = j + 1;
    for (int k = 0; k < n; k++)
        reverse_race(x, races[k], j);
}

/* ---- The next execution ---- */

bool explore_next(struct explorer *x)
{
    if (!x->s->all)
        for (int j = x->replay > 0 ? x->replay - 1 : 0; j < x->depth; j++)
            note_races(x, j);
    for (int d = x->depth - 1; d >= 0; d--) {
        struct node *n = &x->node[d];
        if (n->choice + 1 < n->choices) {
            n->choice++;
        } else {
            n->explored |= 1u << n->thread;
            unsigned open = n->wanted & ~n->explored & ~n->asleep;
            if (!open)
                continue;
            n->thread = __builtin_ctz(open);
            n->choice = 0;
            n->choices = 1;
        }
        x->replay = d + 1;
        return true;
    }
    return false;
}

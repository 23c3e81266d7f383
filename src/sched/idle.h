/* SPDX-License-Identifier: MIT
 *
 * idle.h -- how workers go to sleep and are woken: never lost, never in vain.
 *
 * One word counts two kinds of workers: SEARCHING (awake, looking for work) and IDLE
 * (registered as a sleeper). After Go's proc.go and tokio's idle.rs.
 *
 * Submission                          Going to sleep
 *   1 put the task where a worker       1 search found nothing
 *     can find it (seq-cst store)       2 register: in the list of sleepers, and one
 *   2 load the word (seq-cst):            RMW (seq-cst): searching-1, idle+1
 *     somebody searches, or nobody      3 look at every queue again
 *     is idle: done                     4 something there: deregister, search on
 *   3 take one sleeper off the list,    5 nothing: sleep until woken
 *     one RMW: idle-1, searching+1
 *   4 wake that one
 *
 * Invariants
 *   I1  A task is never left in a queue while all workers sleep: step 1 and 2 on the
 *       left and 2 and 3 on the right are store-then-load on both sides, so either
 *       the submitter sees the sleeper or the sleeper sees the task; a submitter that
 *       relied on a searcher is covered because a searcher that stops does step 3, and
 *       one that finds work as the last searcher looks again after its count went
 *       down, and wakes the next if there is more.
 *   I2  One submission wakes at most one sleeper, and none while one searches.
 *   I3  A sleeper is taken off the list by exactly one party, under the lock: who
 *       takes it has changed the counts for it.
 */
#ifndef WEFT_SRC_IDLE_H
#define WEFT_SRC_IDLE_H

#include "base/atomic.h"
#include "base/base.h"
#include "base/list.h"
#include "base/lock.h"

/* One worker's place to sleep. */
typedef struct weft__sleeper {
    weft__link link;       /* in idle.sleepers; under idle.lock */
    weft__a32 notified;    /* 1: taken off by a waker; the futex word */
    weft__a32 last_choice; /* 1: sleeps in the driver, woken only when nobody else can be.
                            * Written by the owner; a waker that is late may read it when
                            * the owner sleeps again elsewhere, and wakes in vain */
} weft__sleeper;

typedef struct weft__idle {
    weft__a32 counts; /* searching in the low half, idle in the high */
    weft__lock lock;
    weft__list sleepers; /* most recent first */
} weft__idle;

#define WEFT__IDLE_SEARCHING(counts) ((counts)&0xffffu)
#define WEFT__IDLE_IDLE(counts)      ((counts) >> 16)

void weft__idle_init(weft__idle *idle);

/* A worker begins to search; false when enough do already: half of `workers`, or of the
 * processors if those are fewer, for a searcher that has none finds nothing sooner. */
bool weft__idle_search_begin(weft__idle *idle, unsigned workers);

/* A searcher found work. True: it was the last one, so it looks at the queues again,
 * and calls weft__idle_pick for the next if one holds more. */
bool weft__idle_search_end(weft__idle *idle);

/* Registers the caller as a sleeper (step 2); `searching`: it was counted so. */
void weft__idle_register(weft__idle *idle, weft__sleeper *s, bool searching);

/* Takes the caller off again; false: a waker has done so, and `notified` is or will
 * be set. Either way the caller is counted as searching afterwards. */
bool weft__idle_deregister(weft__idle *idle, weft__sleeper *s);

/* The step 2 and 3 of a submission: a sleeper to wake, now counted as searching, or
 * NULL. The caller wakes it. */
weft__sleeper *weft__idle_pick_slow(weft__idle *idle);

static inline weft__sleeper *weft__idle_pick(weft__idle *idle)
{
    uint32_t counts = atom_load_sc(&idle->counts); /* after the caller's seq-cst store */
    if (WEFT__LIKELY(WEFT__IDLE_IDLE(counts) == 0 || WEFT__IDLE_SEARCHING(counts) != 0))
        return NULL;
    return weft__idle_pick_slow(idle);
}

/* Takes off this very sleeper, whatever the counts say (a pinned task, a new
 * deadline, the end); false: it does not sleep. The caller wakes it. */
bool weft__idle_pick_this(weft__idle *idle, weft__sleeper *s);

/* For any sleeper at all, searching or not (a watcher is wanted). */
weft__sleeper *weft__idle_pick_any(weft__idle *idle);

/* Nobody searches, nobody sleeps: all that there are work. */
static inline bool weft__idle_nobody(const weft__idle *idle)
{
    return atom_load_rlx(&idle->counts) == 0;
}

static inline uint32_t weft__idle_count(const weft__idle *idle)
{
    return WEFT__IDLE_IDLE(atom_load_rlx(&idle->counts));
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * deadlock.c -- whether the tasks of a runtime can only wait for each other. It is read
 * without stopping anybody: that nothing ran meanwhile is seen from the workers' counts of
 * switches, before and after; that nobody from outside is just waking a task, from its
 * wait, which would be claimed.
 */
#include "weft/stall.h"

#include "sched/worker.h"

/* Waits that only another task can end, or a thread that calls weft. The rest (times,
 * descriptors, jobs, named workers, resumes, a select of whatever kinds) may be ended by
 * something else, so who waits like that is not stuck. */
static const char *const by_others[] = {
    "join",
    "scope",
    "mutex",
    "read lock",
    "write lock",
    "semaphore",
    "condition",
    "barrier",
    "event",
    "value",
    "wait group",
    "variable",
    "variable change",
    "watch",
    "broadcast",
    "channel recv",
    "channel send",
    "channel reserve",
    "channel readable",
    "channel writable",
};

struct survey {
    uint64_t stuck;
    bool others; /* somebody is not stuck */
};

static bool is_stuck(const weft_task *t)
{
    const char *what = atom_load_rlx(&t->parker.what);
    uint32_t word = atom_load_rlx(&t->parker.word);
    if (!what || (word & WEFT__WAIT_PHASE) != WEFT__WAIT_WAITING || !(word & WEFT__WAIT_PARKED) ||
        weft__timed(t))
        return false;
    for (size_t i = 0; i < sizeof by_others / sizeof by_others[0]; i++)
        if (strcmp(what, by_others[i]) == 0)
            return true;
    return false;
}

static void look_at(weft_task *t, void *arg)
{
    struct survey *s = arg;
    if (atom_load_rlx(&t->refs) & WEFT__TASK_DONE)
        return;
    if (is_stuck(t))
        s->stuck++;
    else
        s->others = true;
}

/* All sleep, nothing is queued; *ret_ticks: how often anything ran so far. */
static bool at_rest(weft_runtime *rt, uint64_t *ret_ticks)
{
    uint64_t ticks = 0;
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *w = &rt->worker[i];
        if (!atom_load_sc(&w->asleep) || atom_load_sc(&w->inbox_count))
            return false;
        ticks += atom_load_sc(&w->tick);
    }
    *ret_ticks = ticks;
    return !weft__work_for_all(rt);
}

int weft_runtime_deadlocked(weft_runtime *rt)
{
    uint64_t before, after;
    struct survey s = {0, false};
    if (!rt)
        return -EINVAL;
    if (weft__forked(rt))
        return -ENXIO;
    if (!at_rest(rt, &before))
        return 0;
    weft__task_each(&rt->depot, look_at, &s);
    if (s.others || !at_rest(rt, &after) || before != after)
        return 0;
    return s.stuck > INT32_MAX ? INT32_MAX : (int)s.stuck;
}

/* SPDX-License-Identifier: MIT
 *
 * select.c -- see weft/select.h.
 *
 * Algorithm, after selectgo in Go's runtime (K. Randall, D. Vyukov, 2014):
 *   1  Try each case under its own lock alone, from a random start. Usually one is
 *      ready, and no more than its lock was taken.
 *   2  Take the locks of all cases in the order of their addresses, each once, and
 *      try again: nothing can become ready unseen now.
 *   3  Begin the wait, link a node per case, release the locks, park.
 *   4  Take out the nodes that did not decide.
 *
 * Invariants
 *   S1  No case is done after the wait has begun: a try runs only in 1 and 2. So
 *       when two selects meet, the one that tries is not claimable itself, and one
 *       claim, of the other, decides for both.
 *   S2  Who claims through a node does that case for the waiter; every other node
 *       of the wait fails to be claimed from then on.
 *   S3  When select returns, none of its nodes is in a queue.
 *
 * A time case has no node: the earliest one shortens the deadline of the wait.
 *
 * An outside case (a descriptor) is one of whose state only the kernel knows the truth. Before
 * step 2 it arranges to be told; what it is told may be out of date by the time the waiter
 * runs, so an answer through it is verified, and if it was nothing the wait starts again:
 * nothing has been taken, so that S1 to S3 hold for each round.
 */
#include "wait/select.h"

#include "base/list.h"

_Static_assert(sizeof(((weft_select_case *)0)->weft__node) == sizeof(weft__wait_node),
               "the public struct is storage for the node");

/* Marks a time case; its time is in weft__arg. Never called. */
static const weft__waitable_ops time_ops = {.what = "time"};

struct select {
    weft_select_case *cases;
    weft__parker *self;
    uint32_t n;
    uint32_t start;      /* where the search begins */
    uint32_t on;         /* cases that take part */
    uint32_t time_index; /* the case with the earliest time */
    uint32_t outside;    /* the last case of that kind that takes part, + 1; 0: none */
    weft_time time;      /* WEFT_NEVER: there is none */
};

static weft__wait_node *node_of(weft_select_case *c)
{
    return weft__case_node(c);
}

weft_select_case weft_case_time(weft_time when)
{
    weft_select_case c = weft__case_of(&time_ops, NULL, NULL, NULL);
    c.weft__arg = (uint64_t)when;
    return c;
}

static weft_time time_of(const weft_select_case *c)
{
    return (weft_time)c->weft__arg;
}

static bool is_time(const weft_select_case *c)
{
    return c->weft__ops == &time_ops;
}

/* On, and not a time: it has a lock and a node. */
static bool is_waitable(const weft_select_case *c)
{
    return !c->off && !is_time(c);
}

static bool is_outside(const weft_select_case *c)
{
    return !c->off && (c->weft__kind & WEFT__CASE_OUTSIDE);
}

/* ---- Before the wait ---- */

static bool look_at_cases(struct select *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const weft_select_case *c = &s->cases[i];
        if (c->off)
            continue;
        if (!c->weft__ops)
            return false;
        s->on++;
        if (WEFT__UNLIKELY(is_outside(c)))
            s->outside = i + 1;
        if (is_time(c) && time_of(c) < s->time) {
            s->time = time_of(c);
            s->time_index = i;
        }
    }
    return true;
}

static weft__wait_node *fill_node(weft_select_case *c)
{
    weft__wait_node *node = node_of(c);
    node->payload = c->weft__payload;
    node->arg = (uintptr_t)c->weft__arg;
    return node;
}

static int try_case(weft_select_case *c, weft__wakes *wakes)
{
    const weft__waitable_ops *ops = c->weft__ops;
    return ops->try_locked(c->weft__object, fill_node(c), wakes);
}

static WEFT__NOINLINE int look(weft_select_case *c)
{
    const weft__case_ops *ops = c->weft__ops;
    return ops->look(c->weft__object, fill_node(c));
}

/* Without its lock where that can be, else under it alone. */
static int try_alone(weft_select_case *c)
{
    if (c->weft__kind & WEFT__CASE_QUICK) {
        const weft__case_ops *ops = c->weft__ops;
        int r = ops->try_quickly(c->weft__object, c->weft__payload);
        if (r != WEFT__NOT_QUICKLY)
            return r;
    }
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(c->weft__lock);
    int r = try_case(c, &wakes);
    weft__release(c->weft__lock);
    weft__wakes_run(&wakes);
    return r;
}

/* Step 1. The index of the case that was done, or -EAGAIN. */
static int try_each(struct select *s)
{
    weft_time now = s->time == WEFT_NEVER ? 0 : weft__sys_now();
    for (uint32_t k = 0, i = s->start; k < s->n; k++, i = i + 1 == s->n ? 0 : i + 1) {
        weft_select_case *c = &s->cases[i];
        if (c->off)
            continue;
        if (is_time(c)) {
            if (time_of(c) > now || time_of(c) == WEFT_NEVER)
                continue;
            c->result = 0;
            return (int)i;
        }
        int r = WEFT__UNLIKELY(is_outside(c)) ? look(c) : try_alone(c);
        if (r != -EAGAIN) {
            c->result = r;
            return (int)i;
        }
    }
    return -EAGAIN;
}

/* ---- The locks ---- */

/* The order of the locks, as indices of cases in the weft__order fields: those of the
 * first `m` cases are sorted, m is the number of waitable cases. */
static bool lock_before(const struct select *s, uint32_t a, uint32_t b)
{
    return (uintptr_t)s->cases[s->cases[a].weft__order].weft__lock <
           (uintptr_t)s->cases[s->cases[b].weft__order].weft__lock;
}

static void swap_order(struct select *s, uint32_t a, uint32_t b)
{
    uint32_t t = s->cases[a].weft__order;
    s->cases[a].weft__order = s->cases[b].weft__order;
    s->cases[b].weft__order = t;
}

static void sift_down(struct select *s, uint32_t root, uint32_t m)
{
    for (uint32_t child; (child = 2 * root + 1) < m; root = child) {
        if (child + 1 < m && lock_before(s, child, child + 1))
            child++;
        if (!lock_before(s, root, child))
            return;
        swap_order(s, root, child);
    }
}

/* In place, for there is nowhere to allocate: insertion for few, heap sort for many. */
static uint32_t sort_locks(struct select *s)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (is_waitable(&s->cases[i]))
            s->cases[m++].weft__order = i;
    if (m <= 12) {
        for (uint32_t i = 1; i < m; i++)
            for (uint32_t k = i; k > 0 && lock_before(s, k, k - 1); k--)
                swap_order(s, k, k - 1);
        return m;
    }
    for (uint32_t i = m / 2; i-- > 0;)
        sift_down(s, i, m);
    for (uint32_t end = m; end-- > 1;) {
        swap_order(s, 0, end);
        sift_down(s, 0, end);
    }
    return m;
}

static weft__lock *lock_at(const struct select *s, uint32_t k)
{
    return s->cases[s->cases[k].weft__order].weft__lock;
}

static void lock_all(const struct select *s, uint32_t m)
{
    for (uint32_t k = 0; k < m; k++)
        if (k == 0 || lock_at(s, k) != lock_at(s, k - 1))
            weft__acquire(lock_at(s, k));
}

static void unlock_all(const struct select *s, uint32_t m)
{
    for (uint32_t k = m; k-- > 0;)
        if (k == 0 || lock_at(s, k) != lock_at(s, k - 1))
            weft__release(lock_at(s, k));
}

/* ---- The wait ---- */

/* Step 2, all locks held. */
static int try_all_locked(struct select *s, weft__wakes *wakes)
{
    for (uint32_t k = 0, i = s->start; k < s->n; k++, i = i + 1 == s->n ? 0 : i + 1) {
        weft_select_case *c = &s->cases[i];
        if (!is_waitable(c))
            continue;
        int r = try_case(c, wakes);
        if (r != -EAGAIN) {
            c->result = r;
            return (int)i;
        }
    }
    return -EAGAIN;
}

/* Step 3, all locks held. */
static void link_all_locked(struct select *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        weft_select_case *c = &s->cases[i];
        if (!is_waitable(c))
            continue;
        const weft__waitable_ops *ops = c->weft__ops;
        weft__wait_node *node = node_of(c);
        node->parker = s->self;
        node->index = i;
        ops->link_locked(c->weft__object, node);
    }
}

/* Steps 2 and 3: a case was done, or -EAGAIN and all nodes are linked. `begun`: the
 * caller has begun the wait before. */
static int try_or_link(struct select *s, bool begun)
{
    weft__wakes wakes = {NULL, NULL};
    uint32_t m = sort_locks(s);
    lock_all(s, m);
    int r = try_all_locked(s, &wakes);
    if (r == -EAGAIN) {
        if (!begun)
            weft__wait_begin(s->self, "select", s->cases);
        link_all_locked(s);
    }
    unlock_all(s, m);
    weft__wakes_run(&wakes);
    return r;
}

/* Step 4. */
static void unlink_all(struct select *s, uint32_t outcome)
{
    for (uint32_t i = 0; i < s->n; i++) {
        weft_select_case *c = &s->cases[i];
        if (i != outcome && is_waitable(c))
            weft__node_retract(c->weft__ops, c->weft__object, c->weft__lock, node_of(c));
    }
}

static int answer(struct select *s, uint32_t outcome, weft_time deadline)
{
    if (outcome < s->n) {
        s->cases[outcome].result = node_of(&s->cases[outcome])->result;
        return (int)outcome;
    }
    if (outcome == WEFT__CANCELED)
        return -ECANCELED;
    if (s->time > deadline || s->time == WEFT_NEVER)
        return -ETIMEDOUT;
    s->cases[s->time_index].result = 0;
    return (int)s->time_index;
}

static weft_time limit_of(const struct select *s, weft_time deadline)
{
    return s->time < deadline ? s->time : deadline;
}

/* ---- Outside cases ---- */

/* Each of them, to `call` from the last on: the first that has a result is done; its
 * index, or -EAGAIN. */
static int outside_each(struct select *s, int (*call)(weft_select_case *c))
{
    for (uint32_t i = s->outside; i-- > 0;) {
        weft_select_case *c = &s->cases[i];
        int r = is_outside(c) ? call(c) : -EAGAIN;
        if (r != -EAGAIN) {
            c->result = r;
            return (int)i;
        }
    }
    return -EAGAIN;
}

static int listen_to(weft_select_case *c)
{
    const weft__case_ops *ops = c->weft__ops;
    int r = ops->listen(c->weft__object, fill_node(c));
    return r ? r : -EAGAIN;
}

static int tell_linked(weft_select_case *c)
{
    const weft__case_ops *ops = c->weft__ops;
    ops->linked(c->weft__object, node_of(c));
    return -EAGAIN;
}

/* Of an answer: itself, or what the outside cases say that is truer; -EAGAIN: it was
 * nothing. */
static int verified(struct select *s, int answered)
{
    int r;
    if (answered == -ETIMEDOUT) { /* what is ready wins over it */
        r = outside_each(s, look);
        return r == -EAGAIN ? answered : r;
    }
    if (answered < 0 || !is_outside(&s->cases[answered]) || s->cases[answered].result)
        return answered;
    r = look(&s->cases[answered]);
    if (r == -EAGAIN)
        return r;
    s->cases[answered].result = r;
    return answered;
}

/* Steps 2 and 3 with outside cases; as try_or_link, and also a claim may be on its way. */
static int outside_try_or_link(struct select *s, bool begun)
{
    for (;;) {
        int r = outside_each(s, listen_to);
        if (r != -EAGAIN)
            return r;
        r = try_or_link(s, begun);
        if (r == -EAGAIN)
            return outside_each(s, tell_linked);
        r = verified(s, r);
        if (r != -EAGAIN)
            return r;
        /* An event of the past, which the look has cleared. */
    }
}

static WEFT__NOINLINE int outside_select(struct select *s, unsigned flags, weft_time deadline)
{
    const weft__case_ops *ops = s->cases[s->outside - 1].weft__ops;
    int r = ops->on_thread(s->cases, s->n, flags, deadline);
    while (r == -EINPROGRESS) {
        r = outside_try_or_link(s, false);
        if (r != -EAGAIN)
            return r;
        uint32_t outcome = weft__wait_commit(s->self, limit_of(s, deadline));
        unlink_all(s, outcome);
        r = verified(s, answer(s, outcome, deadline));
        if (r == -EAGAIN)
            r = -EINPROGRESS;
    }
    return r;
}

/* ---- The call ---- */

/* Bad input, or a case that was done without a wait, or why not; -EINPROGRESS: a wait is
 * needed. */
static inline __attribute__((always_inline)) int
select_begin(struct select *s, size_t n, unsigned flags, weft_time deadline, bool check)
{
    if (n > WEFT_SELECT_MAX || (n && !s->cases) || (flags & ~WEFT_SELECT_ORDERED))
        return -EINVAL;
    s->n = (uint32_t)n;
    s->time = WEFT_NEVER;
    if (!look_at_cases(s) || (s->on == 0 && deadline == WEFT_NEVER))
        return -EINVAL;
    if (check && deadline != WEFT_TRY) {
        int r = weft__checkpoint(s->self);
        if (r)
            return r;
    }
    if (n > 1 && !(flags & WEFT_SELECT_ORDERED))
        s->start = (uint32_t)((uint64_t)weft__parker_random(s->self) * n >> 32);
    int r = try_each(s);
    if (r != -EAGAIN || deadline == WEFT_TRY)
        return r;
    return deadline != WEFT_NEVER && weft__sys_now() >= deadline ? -ETIMEDOUT : -EINPROGRESS;
}

int weft_select(weft_select_case *cases, size_t n, unsigned flags, weft_time deadline)
{
    struct select s = {.cases = cases, .self = weft__self()};
    int r = select_begin(&s, n, flags, deadline, true);
    if (r != -EINPROGRESS)
        return r;
    if (WEFT__UNLIKELY(s.outside))
        return outside_select(&s, flags, deadline);
    r = try_or_link(&s, false);
    if (r != -EAGAIN)
        return r;
    uint32_t outcome = weft__wait_commit(s.self, limit_of(&s, deadline));
    unlink_all(&s, outcome);
    return answer(&s, outcome, deadline);
}

/* ---- In pieces ---- */

int weft__select_link(weft__parker *self, weft_select_case *cases, size_t n, unsigned flags,
                      weft_time deadline, weft_time *ret_limit)
{
    struct select s = {.cases = cases, .self = self};
    int r = select_begin(&s, n, flags, deadline, false);
    if (r != -EINPROGRESS)
        return r;
    r = WEFT__UNLIKELY(s.outside) ? outside_try_or_link(&s, true) : try_or_link(&s, true);
    if (r != -EAGAIN)
        return r;
    *ret_limit = limit_of(&s, deadline);
    return -EINPROGRESS;
}

bool weft__select_unlink(weft_select_case *cases, size_t n, uint32_t outcome)
{
    struct select s = {.cases = cases, .n = (uint32_t)n};
    bool keeps = false;
    unlink_all(&s, outcome);
    for (size_t i = 0; i < n; i++)
        keeps |= !cases[i].off && (cases[i].weft__kind & WEFT__CASE_ABANDON);
    return keeps;
}

int weft__select_outcome(weft_select_case *cases, size_t n, uint32_t outcome, weft_time deadline)
{
    struct select s = {.cases = cases, .n = (uint32_t)n, .time = WEFT_NEVER};
    look_at_cases(&s);
    if (outcome == WEFT__WOKEN ||
        (outcome == WEFT__TIMEDOUT && weft__sys_now() < limit_of(&s, deadline)))
        return -EAGAIN;
    int r = answer(&s, outcome, deadline);
    return WEFT__UNLIKELY(s.outside) ? verified(&s, r) : r;
}

void weft__select_abandon(weft_select_case *cases, size_t n, uint32_t outcome)
{
    for (size_t i = 0; i < n; i++) {
        weft_select_case *c = &cases[i];
        const weft__case_ops *ops = c->weft__ops;
        if (!c->off && (c->weft__kind & WEFT__CASE_ABANDON))
            ops->abandon(c->weft__object, node_of(c), i == outcome && node_of(c)->result == 0);
    }
}

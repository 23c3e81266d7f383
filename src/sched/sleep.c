/* SPDX-License-Identifier: MIT
 *
 * sleep.c -- an idle worker: registering, the keeper's plan, the watcher's rounds.
 *
 * The protocol that no wake is lost is idle.h's. Two roles are added here.
 *
 * Keeper. One sleeper sleeps until the earliest deadline of all wheels, in the driver
 * if there is one. It publishes its plan in keeper_until, then reads the wheels again;
 * a worker that goes to sleep with an earlier deadline has published that first and
 * then reads keeper_until: one of the two sees the other. A worker that is awake serves
 * the wheels itself, so its deadlines get a grace before the keeper steps in.
 * K1  When all workers sleep, one of them is keeper and its plan covers every wheel:
 *     the last to fall asleep takes the role, or finds a holder that sleeps with it.
 *
 * Watcher. While somebody is awake, one sleeper looks every WATCH ns whether a worker
 * has not switched since the last look and leaves ready tasks, due timers or the driver
 * unattended; then it steps in. After IDLE_ROUNDS rounds in which nobody moved and all
 * sleep, it sleeps without a limit. A new one is woken by the next worker that leaves
 * sleep and with it descriptors or timers, or that puts a task where thieves cannot see
 * it, or arms a timer: not before, for waking it costs what the first task would wait.
 * So a runtime at rest makes no wake-ups, and one under load a few hundred a second at
 * most.
 */
#include "base/linger.h"
#include "sched/worker.h"

#define WATCH             (5 * WEFT_MSEC)
#define IDLE_ROUNDS       3
#define GRACE             (1 * WEFT_MSEC)
#define LOOK_AFTER_EVENTS 8u
#define NO_PLAN           INT64_MIN

/* ---- The keeper ---- */

static weft_time earliest(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    weft_time min = WEFT_NEVER;
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *v = &rt->worker[i];
        weft_time next = (weft_time)atom_load_sc(&v->wheel_next);
        if (next != WEFT_NEVER && v != w && !atom_load_sc(&v->asleep))
            next += GRACE;
        if (next < min)
            min = next;
    }
    return min;
}

static weft_time plan(weft__worker *w)
{
    weft_time until = earliest(w);
    for (;;) {
        atom_store_sc(&w->rt->keeper_until, (uint64_t)until);
        weft_time again = earliest(w);
        if (again >= until)
            return until;
        until = again;
    }
}

/* The keeper may plan to sleep past our earliest deadline: have it plan again. */
static void tell_keeper(weft__worker *w, weft_time mine)
{
    struct weft_runtime *rt = w->rt;
    if (mine >= (weft_time)atom_load_sc(&rt->keeper_until))
        return;
    uint32_t holder = atom_load_acq(&rt->keeper);
    if (holder == 0 || holder == w->number + 1)
        return;
    weft__sleeper *s = &rt->worker[holder - 1].sleeper;
    if (weft__idle_pick_this(&rt->idle, s))
        weft__wake_sleeper(rt, s);
}

/* ---- The watcher ---- */

/* Work that `v`, awake but in one task for long, keeps from others. */
static bool leaves_work(weft__worker *v)
{
    weft_pool *pool = v->pool;
    return atom_load_rlx(&v->next) != NULL || weft__runq_length(&v->runq) != 0 ||
           (pool && pool->ops->length(pool) != 0);
}

/* Nobody looks at the descriptors, or a timer is overdue. */
static bool unattended(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    return (atom_load_rlx(&rt->driver) && atom_load_rlx(&rt->keeper) == 0) ||
           earliest(w) <= weft__sys_now();
}

/* One look at everybody: is somebody stuck on work (1), is somebody active (0), or is
 * all quiet (-1). */
static int watch_round(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    int answer = -1;
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *v = &rt->worker[i];
        if (v == w)
            continue;
        uint64_t tick = atom_load_rlx(&v->tick);
        bool moved = tick != atom_load_rlx(&v->seen_tick);
        bool awake = !atom_load_rlx(&v->asleep);
        if (awake && !moved && (leaves_work(v) || unattended(w)))
            return 1;
        if (awake || moved)
            answer = 0;
        atom_store_rlx(&v->seen_tick, tick);
    }
    return answer;
}

bool weft__leaves_unattended(weft__worker *w)
{
    return atom_load_rlx(&w->rt->driver) || earliest(w) != WEFT_NEVER;
}

/* After giving the role up: pairs with weft__ensure_watcher, where the worker that left
 * sleep has published that and then looks at the role. */
static bool anybody_awake(weft__worker *w)
{
    for (unsigned i = 0; i < w->rt->workers; i++)
        if (&w->rt->worker[i] != w && !atom_load_sc(&w->rt->worker[i].asleep))
            return true;
    return false;
}

void weft__ensure_watcher_slow(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    weft__sleeper *s = weft__idle_pick_any(&rt->idle);
    if (s) {
        atom_store_rlx(&weft__container(s, weft__worker, sleeper)->to_watch, 1u);
        weft__wake_sleeper(rt, s);
    }
}

/* ---- Sleeping ---- */

bool weft__work_for_all(struct weft_runtime *rt)
{
    if (!weft__inject_empty(&rt->inject) || atom_load_sc(&rt->high.count))
        return true;
    if (rt->pool)
        return rt->pool->ops->length(rt->pool) != 0;
    for (unsigned i = 0; i < rt->workers && !rt->solo; i++)
        if (weft__runq_length(&rt->worker[i].runq))
            return true;
    return false;
}

/* Step 3 of idle.h. */
bool weft__work_anywhere(weft__worker *w)
{
    return weft__work_for_all(w->rt) || atom_load_sc(&w->inbox_count) || weft__worker_finished(w);
}

static bool claim_role(weft__a32 *role, weft__worker *w)
{
    uint32_t nobody = 0;
    return atom_load_rlx(role) == 0 && atom_cas_sc(role, &nobody, w->number + 1);
}

/* Sleeps once in the right place; true: something came from the driver. */
static bool sleep_once(weft__worker *w, weft__driver *driver, weft_time until)
{
    weft__count(&w->parks);
    if (driver)
        return w->listened = driver->ops->wait(driver, until) > 0;
    weft__sys_futex_wait(&w->sleeper.notified, 0, until);
    return false;
}

static weft_time min_time(weft_time a, weft_time b)
{
    return a < b ? a : b;
}

/* Between registering and being awake again. */
static void slumber(weft__worker *w, bool keeper, bool to_watch, weft__driver *driver)
{
    struct weft_runtime *rt = w->rt;
    weft_time until = WEFT_NEVER;
    int quiet_rounds = 0;
    weft_time mine = weft__timers_next(w);
    if (keeper)
        until = plan(w);
    else
        tell_keeper(w, mine);
    /* When an extra or lent thread has idled enough, or there may be a stack again. */
    weft_time home = WEFT_NEVER;
    if (w->number >= rt->permanent)
        home = min_time(w->leave_at,
                        w->state == WEFT__PLACE_OWN ? weft_after(rt->idle_timeout) : WEFT_NEVER);
    if (!weft__fifo_empty(&w->starved))
        home = min_time(home, weft__sys_now() + WEFT_MSEC);
    bool watcher = !w->solo && weft__idle_count(&rt->idle) < atom_load_rlx(&rt->online);
    watcher = (watcher || to_watch) && claim_role(&rt->watcher, w);
    if (watcher)
        watch_round(w);

    while (!atom_load_acq(&w->sleeper.notified)) { /* pairs with weft__wake_sleeper */
        weft_time round = watcher ? weft__sys_now() + WATCH : WEFT_NEVER;
        if (sleep_once(w, driver, min_time(home, min_time(until, round))) ||
            atom_load_acq(&w->sleeper.notified))
            break;
        if (until == WEFT_NEVER && home == WEFT_NEVER && !watcher)
            continue;
        weft_time now = weft__sys_now();
        if (now >= home)
            w->idle_expired = weft__fifo_empty(&w->starved);
        if (now >= until || now >= home)
            break;
        if (watcher && now >= round) {
            int seen = watch_round(w);
            if (seen > 0) {
                w->rescue = true;
                break;
            }
            quiet_rounds = seen < 0 ? quiet_rounds + 1 : 0;
            if (quiet_rounds >= IDLE_ROUNDS) {
                atom_store_sc(&rt->watcher, 0u);
                /* Somebody who woke just now may have seen the role taken. */
                watcher = anybody_awake(w) && claim_role(&rt->watcher, w);
                quiet_rounds = 0;
            }
        }
        if (keeper)
            until = plan(w);
    }
    if (watcher)
        atom_store_sc(&rt->watcher, 0u);
}

/* A worker that was woken soon after it had fallen asleep looks on for a moment before it
 * sleeps again (linger.h), but not past a deadline. If it searches it goes on to count as
 * searching, so that nobody wakes another. */
static bool found_while_waiting(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    if (w->linger == 0 || atom_load_rlx(&rt->driver))
        return false;
    /* More are awake than there are processors: whatever comes, somebody else could do it
     * now, but for our looking. */
    if (atom_load_rlx(&rt->online) - weft__idle_count(&rt->idle) > rt->at_once)
        return false;
    weft_time end = min_time(weft__sys_now() + w->linger, earliest(w));
    do {
        for (int i = 0; i < WEFT__LINGER_LOOKS; i++) {
            if (weft__work_anywhere(w))
                return true;
            for (int k = 0; k < 4; k++)
                weft__relax();
        }
    } while (weft__sys_now() < end);
    w->linger = weft__linger_after_nothing(w->linger);
    return false;
}

void weft__worker_sleep(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    if (found_while_waiting(w))
        return;
    if (rt->hooks.idle)
        rt->hooks.idle(rt->hooks.arg, w->number);
    bool to_watch = atom_load_rlx(&w->to_watch);
    atom_store_rlx(&w->to_watch, 0u);
    bool keeper = !to_watch && claim_role(&rt->keeper, w);
    weft__driver *driver = keeper ? atom_load_acq(&rt->driver) : NULL;
    atom_store_rlx(&w->sleeper.last_choice, driver ? 1u : 0u);
    atom_store_sc(&w->asleep, 1u);
    weft__idle_register(&rt->idle, &w->sleeper, w->searching);
    weft__drained_check(rt); /* after that read-modify-write: the ends we counted are out */
    /* A driver installed between the two loads has not seen us asleep. */
    bool moved = keeper && !driver && atom_load_sc(&rt->driver);
    /* All asleep and no keeper: we were sent to watch, or its holder only looked. Round
     * once more, and the role is ours (K1). */
    bool orphaned = !keeper && weft__idle_count(&rt->idle) == atom_load_rlx(&rt->online) &&
                    atom_load_sc(&rt->keeper) == 0;
    if (!moved && !orphaned && !weft__work_anywhere(w)) {
        weft_time start = weft__sys_now();
        slumber(w, keeper, to_watch, driver);
        /* Only a wake teaches; a deadline comes when it comes. */
        w->linger = atom_load_rlx(&w->sleeper.notified)
                        ? weft__linger_after_sleep(w->linger, weft__sys_now() - start)
                        : 0;
    }
    weft__idle_deregister(&rt->idle, &w->sleeper);
    atom_store_sc(&w->asleep, 0u);
    w->searching = true;
    w->woke = true;
    /* Small answers to small events are the rule: no look after each of the first few. */
    w->look_every = !w->listened                        ? 1
                    : w->look_every < LOOK_AFTER_EVENTS ? w->look_every
                                                        : LOOK_AFTER_EVENTS;
    if (keeper) {
        atom_store_sc(&rt->keeper_until, (uint64_t)NO_PLAN);
        atom_store_sc(&rt->keeper, 0u);
    }
}

/* ---- The driver ---- */

weft__driver *weft__runtime_driver(struct weft_runtime *rt)
{
    return atom_load_acq(&rt->driver); /* pairs with the installing exchange */
}

weft__driver *weft__runtime_install_driver(struct weft_runtime *rt, weft__driver *driver)
{
    void *none = NULL;
    if (!atom_cas_sc(&rt->driver, &none, driver))
        return none;
    /* A keeper that sleeps on its word must move into the driver. */
    uint32_t holder = atom_load_sc(&rt->keeper);
    if (holder) {
        weft__sleeper *s = &rt->worker[holder - 1].sleeper;
        if (weft__idle_pick_this(&rt->idle, s))
            weft__wake_sleeper(rt, s);
    }
    return driver;
}

/* SPDX-License-Identifier: MIT
 *
 * driven.c -- weft/driven.h: the one worker of a runtime without threads.
 *
 * A turn is a piece of the worker's loop on the caller's thread; between turns the
 * worker is a sleeper like any other (idle.h), registered by plan: so the check for
 * work and the arming of the wake are one step, and a submitter finds the sleeper or
 * the plan finds the work. Waking it calls the host's waker and raises the descriptor.
 *
 * The descriptor is an epoll instance over three: an eventfd that wakes raise, a
 * timerfd set by plan, and the readiness driver's own descriptor. Level-triggered, so
 * it stays readable until a turn has seen to the cause.
 */
#include "sched/extra.h"
#include "sched/worker.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "weft/driven.h"
#include "weft/timer.h"

#define SLICE        (5 * WEFT_MSEC)
#define TASKS_A_TURN 64u

struct weft__driven {
    weft__a32 busy; /* a turn, or a plan, is in progress */
    bool registered;
    weft__lock lock; /* guards waker, and the descriptors against their creation */
    weft_waker waker;
    int poll_fd, wake_fd, timer_fd;
    bool has_driver; /* its descriptor is in poll_fd */
};

int weft__driven_new(struct weft_runtime *rt)
{
    struct weft__driven *d = weft__calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    d->poll_fd = d->wake_fd = d->timer_fd = -1;
    rt->driven = d;
    return 0;
}

static void close_all(struct weft__driven *d)
{
    int *fds[] = {&d->poll_fd, &d->wake_fd, &d->timer_fd};
    for (int i = 0; i < 3; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void weft__driven_free(struct weft_runtime *rt)
{
    if (!rt->driven)
        return;
    close_all(rt->driven);
    weft__free(rt->driven);
    rt->driven = NULL;
}

/* ---- Waking ---- */

static void raise_wake(struct weft__driven *d)
{
    uint64_t one = 1;
    ssize_t n;
    do
        n = write(d->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    /* EAGAIN: the counter is full, so it is readable anyway. */
    WEFT__CHECK(n == sizeof one || errno == EAGAIN);
}

void weft__driven_wake(struct weft_runtime *rt)
{
    struct weft__driven *d = rt->driven;
    weft__acquire(&d->lock);
    weft_waker waker = d->waker;
    if (d->wake_fd >= 0)
        raise_wake(d);
    weft__release(&d->lock);
    if (waker.wake)
        waker.wake(waker.arg);
}

/* ---- The descriptor ---- */

static int add(int poll_fd, int fd)
{
    struct epoll_event e = {.events = EPOLLIN};
    return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

static int open_all(struct weft__driven *d)
{
    d->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->wake_fd = d->poll_fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->timer_fd = d->wake_fd < 0 ? -1 : timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int r = d->timer_fd < 0 ? -errno : 0;
    if (!r)
        r = add(d->poll_fd, d->wake_fd);
    if (!r)
        r = add(d->poll_fd, d->timer_fd);
    if (!r)
        raise_wake(d); /* nobody has planned yet: come and turn */
    else
        close_all(d);
    return r;
}

/* The driver's descriptor joins once there is a driver that has one. */
static void watch_driver(struct weft_runtime *rt)
{
    struct weft__driven *d = rt->driven;
    weft__driver *driver = atom_load_acq(&rt->driver);
    if (d->poll_fd < 0 || d->has_driver || !driver || !driver->ops->fd)
        return;
    int fd = driver->ops->fd(driver);
    d->has_driver = fd >= 0 && add(d->poll_fd, fd) == 0;
}

static void set_timer(struct weft__driven *d, weft_time until)
{
    if (d->timer_fd < 0)
        return;
    struct itimerspec ts = {{0, 0}, {0, 0}};
    if (until != WEFT_NEVER) {
        weft_time t = until > 0 ? until : 1; /* all zero would disarm */
        ts.it_value.tv_sec = (time_t)(t / WEFT_SEC);
        ts.it_value.tv_nsec = (long)(t % WEFT_SEC);
    }
    WEFT__CHECK(timerfd_settime(d->timer_fd, TFD_TIMER_ABSTIME, &ts, NULL) == 0);
}

static void clear_wake(struct weft__driven *d)
{
    uint64_t count;
    if (d->wake_fd >= 0)
        while (read(d->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
            ;
}

int weft_driven_fd(weft_runtime *rt)
{
    if (!rt || !rt->driven)
        return -EINVAL;
    if (!*rt->alive_page)
        return -ENXIO;
    struct weft__driven *d = rt->driven;
    weft__acquire(&d->lock);
    int r = d->poll_fd < 0 ? open_all(d) : 0;
    weft__release(&d->lock);
    if (!r)
        watch_driver(rt);
    return r ? r : d->poll_fd;
}

/* ---- Turns ---- */

/* Takes the driving place: 0 or why not. */
static int enter(weft_runtime *rt)
{
    if (!rt || !rt->driven)
        return -EINVAL;
    if (!*rt->alive_page)
        return -ENXIO;
    weft__worker *w = weft__worker_self();
    if (w && w->rt == rt)
        return -EDEADLK;
    uint32_t free_ = 0;
    return atom_cas_acq(&rt->driven->busy, &free_, 1u) ? 0 : -EBUSY;
}

static void leave_turn(weft_runtime *rt)
{
    atom_store_rel(&rt->driven->busy, 0u); /* pairs with enter: the next driver sees all */
}

/* The worker is awake: takes back what plan has armed. */
static void disarm(weft_runtime *rt)
{
    weft__worker *w = &rt->worker[0];
    weft__idle_deregister(&rt->idle, &w->sleeper);
    atom_store_sc(&w->asleep, 0u);
    rt->driven->registered = false;
    w->searching = true;
}

int weft_driven_turn(weft_runtime *rt, const weft_driven_budget *budget)
{
    if (budget && budget->time < 0)
        return -EINVAL;
    int r = enter(rt);
    if (r)
        return r;
    struct weft__driven *d = rt->driven;
    weft__worker *w = &rt->worker[0];
    if (d->registered)
        disarm(rt);
    clear_wake(d);
    uint64_t runs = weft__worker_turn(w, budget ? budget->tasks : 0, budget ? budget->time : 0);
    watch_driver(rt);
    leave_turn(rt);
    return runs > INT32_MAX ? INT32_MAX : (int)runs;
}

int weft_driven_plan(weft_runtime *rt, const weft_waker *waker, weft_time *ret_until)
{
    if (waker && !waker->wake)
        return -EINVAL;
    int r = enter(rt);
    if (r)
        return r == -EDEADLK ? -EBUSY : r;
    struct weft__driven *d = rt->driven;
    weft__worker *w = &rt->worker[0];
    weft_time until = WEFT_NEVER;
    bool again = d->registered;
    r = WEFT_PLAN_NOW;
    if (!weft__worker_has_own(w)) {
        weft__drained_check(rt);
        if (again) /* armed by an earlier plan; the waker may be another now */
            weft__idle_deregister(&rt->idle, &w->sleeper);
        weft__acquire(&d->lock); /* a late waker of the plan before may be reading */
        d->waker = waker ? *waker : (weft_waker){NULL, NULL};
        weft__release(&d->lock);
        atom_store_sc(&w->asleep, 1u);
        weft__idle_register(&rt->idle, &w->sleeper, again || w->searching);
        w->searching = false;
        d->registered = true;
        until = weft__timers_next(w);
        if (!weft__work_anywhere(w) && (until == WEFT_NEVER || weft__sys_now() < until))
            r = until == WEFT_NEVER ? WEFT_PLAN_NEVER : WEFT_PLAN_UNTIL;
    }
    if (r == WEFT_PLAN_NOW) {
        if (d->registered)
            disarm(rt);
        if (d->wake_fd >= 0)
            raise_wake(d);
        until = WEFT_NEVER;
    } else {
        set_timer(d, until);
    }
    if (ret_until)
        *ret_until = until;
    leave_turn(rt);
    return r;
}

/* ---- Driven from inside ---- */

/* Until a turn has something to do or `deadline` has come, whichever is first; false: the
 * deadline. Sockets need the descriptor; without one they are looked at every SLICE. */
static bool wait_for_work(weft_runtime *rt, weft_time deadline)
{
    weft_time until;
    int plan = weft_driven_plan(rt, NULL, &until);
    if (plan == WEFT_PLAN_NOW)
        return true;
    weft_time now = weft__sys_now();
    if (plan < 0 || now >= deadline)
        return false;
    int fd = atom_load_acq(&rt->driver) ? weft_driven_fd(rt) : -1;
    if (fd >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, weft_wait_milliseconds(WEFT_PLAN_UNTIL, now, deadline));
        return true;
    }
    if (until > deadline)
        until = deadline;
    if (atom_load_rlx(&rt->driver) && until > now + SLICE)
        until = now + SLICE;
    weft__sys_futex_wait(&rt->worker[0].sleeper.notified, 0, until);
    return true;
}

/* For shutdown. */
void weft__driven_drain(weft_runtime *rt, weft_time deadline)
{
    while (weft__alive(rt) && weft_driven_turn(rt, NULL) >= 0 && weft__alive(rt) &&
           wait_for_work(rt, deadline))
        ;
}

/* Why the caller of block_on waits no longer, or 0. */
static int told_to_stop(weft_time deadline)
{
    if (weft_cancelled())
        return -ECANCELED;
    return deadline != WEFT_NEVER && weft__sys_now() >= deadline ? -ETIMEDOUT : 0;
}

struct call {
    weft_fn fn;
    void *arg;
    int result;
    weft__a32 done;
};

static int run_call(void *arg)
{
    struct call *c = arg;
    int r = c->result = c->fn(c->arg);
    atom_store_rel(&c->done, 1u); /* the last touch; pairs with is_done, on another driver */
    return r;
}

static void sleep_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = WEFT_MSEC}, NULL);
}

static bool is_done(const struct call *c)
{
    return atom_load_acq(&c->done) != 0;
}

/* The task is alive while it is not done, and only who has the driving place runs it:
 * so whoever holds that may touch it without a handle. */
static void cancel_call(weft_runtime *rt, const struct call *c, weft_task *t)
{
    while (!is_done(c)) {
        if (enter(rt) == 0) {
            if (!is_done(c) && weft__cancel(&t->parker))
                weft__cancel_inside(t);
            leave_turn(rt);
            return;
        }
        sleep_a_moment();
    }
}

/* Turns until the call is done, whatever comes; told to stop, cancels it. A caller that is
 * a task of another runtime looks now and then whether it is cancelled, and one whose
 * place another thread has taken, whether it is free. */
static int drive_until_done(weft_runtime *rt, const struct call *c, weft_task *t,
                            weft_time deadline)
{
    const weft_driven_budget some = {.tasks = TASKS_A_TURN};
    bool is_task = weft_task_self() != NULL;
    int r = 0;
    while (!is_done(c)) {
        if (!r && (r = told_to_stop(deadline)) != 0)
            cancel_call(rt, c, t);
        int ran = weft_driven_turn(rt, &some);
        if (ran > 0 || is_done(c))
            continue;
        weft_time until = r ? WEFT_NEVER : deadline;
        if (is_task && until > weft_after(SLICE))
            until = weft_after(SLICE);
        if (ran == 0)
            wait_for_work(rt, until);
        else
            sleep_a_moment();
    }
    return r;
}

/* A call that does not wait is over after its first run. */
int weft__driven_block_on(struct weft_runtime *rt, weft_fn fn, void *arg, weft_time deadline,
                          int *ret_result)
{
    struct call c = {.fn = fn, .arg = arg};
    int r = enter(rt);
    if (r)
        return r;
    weft__worker *w = &rt->worker[0];
    if (rt->driven->registered)
        disarm(rt);
    weft_task *t = weft__spawn_unqueued(w, run_call, &c, &r);
    if (WEFT__LIKELY(t != NULL))
        weft__worker_run_first(w, t);
    leave_turn(rt);
    if (WEFT__UNLIKELY(t && !is_done(&c)))
        r = drive_until_done(rt, &c, t, deadline);
    if (WEFT__LIKELY(r == 0) && ret_result)
        *ret_result = c.result;
    return r;
}

/* SPDX-License-Identifier: MIT
 *
 * fdcase.c -- the select cases of a descriptor, see weft/io.h and wait/select.h.
 *
 * A case is a watcher in the queue of its direction: it stands before the calls that wait
 * there, is told of every event, and takes none from them (F5 in fd.h). Whether the
 * descriptor is ready only poll(2) knows, so select asks that at the start, and again when
 * it has been told: an event may be older than the last read.
 *
 * A plain thread has no driver to listen to. It waits in ppoll(2), on the descriptors of
 * its cases and on an eventfd, which whoever claims its wait through any other case rings.
 * So its wait has a parker of its own, on its stack. That is safe since the ring is the
 * last thing a claimer does with it, and the thread stays until it has heard it: once the
 * word says PARKED, every claim but its own ends with one ring.
 */
#include "io/fd.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "wait/select.h"

/* ---- The case ---- */

static weft__dir *dir_of(weft_fd *fd, const weft__wait_node *node)
{
    return &fd->dir[node->arg & ~(uintptr_t)WEFT__WATCH];
}

static int direction_of(const weft__wait_node *node)
{
    return (int)(node->arg & ~(uintptr_t)WEFT__WATCH);
}

static int watch_try(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    weft_fd *fd = object;
    (void)wakes;
    if (atom_load_rlx(&fd->uses) & WEFT__FD_CLOSED)
        return -EPIPE;
    /* Pairs with the event: what led to it is before the look that follows. */
    return atom_load_acq(&dir_of(fd, node)->state) & WEFT__DIR_READY ? 0 : -EAGAIN;
}

static void watch_link(void *object, weft__wait_node *node)
{
    weft__dir *dir = dir_of(object, node);
    atom_store_rlx(&dir->waiting, atom_load_rlx(&dir->waiting) + 1);
    weft__list_push_front(&dir->waiters, &node->link);
}

static void watch_unlink(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    weft__dir *dir = dir_of(object, node);
    (void)wakes;
    atom_store_rlx(&dir->waiting, atom_load_rlx(&dir->waiting) - 1);
    weft__list_remove(&node->link);
}

static int poll_now(int number, short events)
{
    struct pollfd p = {.fd = number, .events = events};
    int n;
    do
        n = poll(&p, 1, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n ? 0 : -EAGAIN;
}

static short events_of(const weft__wait_node *node)
{
    return direction_of(node) == WEFT__READ ? POLLIN : POLLOUT;
}

/* After -EAGAIN READY is clear, or was set by an event after the question. */
static int watch_look(void *object, weft__wait_node *node)
{
    weft_fd *fd = object;
    for (;;) {
        uint32_t state = atom_load_acq(&dir_of(fd, node)->state); /* pairs with dir_event */
        if (!weft__fd_enter(fd))
            return -EPIPE;
        int r = poll_now(fd->number, events_of(node));
        weft__fd_leave(fd);
        if (r != -EAGAIN || !(state & WEFT__DIR_READY) ||
            weft__fd_clear(fd, direction_of(node), state))
            return r;
    }
}

static int watch_listen(void *object, weft__wait_node *node)
{
    weft__poller *current;
    bool asked;
    int r = weft__poller_current(&current);
    (void)node;
    /* A plain thread asks the kernel itself. */
    return r || !current ? r : weft__fd_listen(object, current, &asked);
}

static void watch_linked(void *object, weft__wait_node *node)
{
    weft_fd *fd = object;
    if (atom_load_rlx(&fd->poller))
        weft__fd_arm(fd, direction_of(node));
}

/* ---- A plain thread ---- */

typedef struct ringer {
    weft__parker parker;
    int bell;
} ringer;

typedef struct held {
    struct pollfd polled[WEFT_SELECT_FDS + 1]; /* the bell first */
    uint32_t index[WEFT_SELECT_FDS + 1];       /* of its case */
    nfds_t n;
} held;

static void no_park(weft__parker *self, weft_time deadline)
{
    (void)self;
    (void)deadline;
    weft__panic(__FILE__, __LINE__, "a thread among descriptors parks in ppoll");
}

static void no_yield(weft__parker *self)
{
    self->budget = WEFT__BUDGET;
}

static void ring(weft__parker *p)
{
    int bell = weft__container(p, ringer, parker)->bell;
    uint64_t one = 1;
    int tries = 1000;
    while (write(bell, &one, sizeof one) != (ssize_t)sizeof one) /* the waiter may be gone now */
        WEFT__CHECK(--tries > 0);
}

static const weft__parker_ops ringer_ops = {.park = no_park, .ready = ring, .yield = no_yield};

static bool watches(const weft_select_case *c)
{
    return !c->off && (c->weft__kind & WEFT__CASE_OUTSIDE);
}

/* Enters each descriptor, so that its number stays its own. One that was closed meanwhile
 * is left out: the close claims the wait. */
static void hold(held *h, int bell, weft_select_case *cases, size_t n)
{
    h->polled[0] = (struct pollfd){.fd = bell, .events = POLLIN};
    h->n = 1;
    for (size_t i = 0; i < n; i++) {
        if (!watches(&cases[i]) || !weft__fd_enter(cases[i].weft__object))
            continue;
        weft_fd *fd = cases[i].weft__object;
        h->polled[h->n] =
            (struct pollfd){.fd = fd->number, .events = events_of(weft__case_node(&cases[i]))};
        h->index[h->n++] = (uint32_t)i;
    }
}

static void let_go(const held *h, weft_select_case *cases)
{
    for (nfds_t i = 1; i < h->n; i++)
        weft__fd_leave(cases[h->index[i]].weft__object);
}

static int wait_for(held *h, nfds_t n, weft_time limit)
{
    struct timespec left = {0, 0};
    weft_time ns = limit == WEFT_NEVER ? 0 : limit - weft__sys_now();
    if (ns > 0)
        left =
            (struct timespec){.tv_sec = (time_t)(ns / WEFT_SEC), .tv_nsec = (long)(ns % WEFT_SEC)};
    return ppoll(h->polled, n, limit == WEFT_NEVER ? NULL : &left, NULL);
}

/* What woke the thread: a descriptor's case, the limit, or an error that ends the wait. */
static uint32_t reason(const held *h, int n, int *ret_error)
{
    for (nfds_t i = 1; n > 0 && i < h->n; i++) {
        if (h->polled[i].revents)
            return h->index[i];
    }
    if (n == 0)
        return WEFT__TIMEDOUT;
    *ret_error = -errno;
    return WEFT__WOKEN;
}

/* Parks; the outcome. When it was the thread itself that decided for a descriptor, its
 * node is still in the queue: then *ret_own is set. */
static uint32_t commit(ringer *me, held *h, weft_time limit, bool *ret_own, int *ret_error)
{
    nfds_t polled = h->n;
    bool ringing = weft__parked(&me->parker); /* else all has been said already */
    while (ringing) {
        int n = wait_for(h, polled, limit);
        if (n < 0 && errno == EINTR)
            continue;
        if (n > 0 && h->polled[0].revents) {
            uint64_t count;
            WEFT__CHECK(read(me->bell, &count, sizeof count) == (ssize_t)sizeof count);
            break;
        }
        int error = 0;
        if (weft__claim(&me->parker, reason(h, n, &error))) {
            *ret_own = n > 0;
            *ret_error = error;
            break;
        }
        polled = 1; /* decided by another, who is about to ring */
        limit = WEFT_NEVER;
    }
    return atom_load_acq(&me->parker.word) >> WEFT__WAIT_SHIFT; /* pairs with the claim */
}

static int thread_select(ringer *me, weft_select_case *cases, size_t n, unsigned flags,
                         weft_time deadline)
{
    int r, error = 0;
    do {
        weft_time limit = WEFT_NEVER;
        bool own = false;
        held h;
        weft__parker_init(&me->parker, &ringer_ops);
        weft__wait_begin(&me->parker, "select", cases);
        r = weft__select_link(&me->parker, cases, n, flags, deadline, &limit);
        if (r != -EINPROGRESS)
            return r; /* no node is linked: nobody knows of the wait */
        hold(&h, me->bell, cases, n);
        uint32_t outcome = commit(me, &h, limit, &own, &error);
        let_go(&h, cases);
        if (own) {
            weft_select_case *c = &cases[outcome];
            weft__node_retract(c->weft__ops, c->weft__object, c->weft__lock, weft__case_node(c));
            weft__case_node(c)->result = 0;
        }
        (void)weft__select_unlink(cases, n, outcome); /* the answer is asked for */
        r = error ? error : weft__select_outcome(cases, n, outcome, deadline);
    } while (r == -EAGAIN);
    return r;
}

static int watch_on_thread(weft_select_case *cases, size_t n, unsigned flags, weft_time deadline)
{
    weft__poller *current;
    if (weft__poller_current(&current) || current)
        return -EINPROGRESS; /* of an error `listen` will tell */
    size_t watched = 0, first = n;
    for (size_t i = n; i-- > 0;) {
        if (watches(&cases[i])) {
            watched++;
            first = i;
        }
    }
    if (watched > WEFT_SELECT_FDS)
        return -EINVAL;
    ringer me = {.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (me.bell < 0) {
        cases[first].result = -errno;
        return (int)first;
    }
    int r = thread_select(&me, cases, n, flags, deadline);
    close(me.bell);
    return r;
}

static const weft__case_ops watch_ops[2] = {
    [WEFT__READ] = {.base = {"fd readable", watch_try, watch_link, watch_unlink},
                    .look = watch_look,
                    .listen = watch_listen,
                    .linked = watch_linked,
                    .on_thread = watch_on_thread},
    [WEFT__WRITE] = {.base = {"fd writable", watch_try, watch_link, watch_unlink},
                     .look = watch_look,
                     .listen = watch_listen,
                     .linked = watch_linked,
                     .on_thread = watch_on_thread},
};

static weft_select_case case_of(weft_fd *fd, int direction)
{
    if (!fd)
        return weft__case_of(NULL, NULL, NULL, NULL);
    weft_select_case c =
        weft__case_of_kind(WEFT__CASE_OUTSIDE, &watch_ops[direction], fd, &fd->lock, NULL);
    c.weft__arg = (uint64_t)direction | WEFT__WATCH;
    return c;
}

weft_select_case weft_case_fd_readable(weft_fd *fd)
{
    return case_of(fd, WEFT__READ);
}

weft_select_case weft_case_fd_writable(weft_fd *fd)
{
    return case_of(fd, WEFT__WRITE);
}

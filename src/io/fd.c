/* SPDX-License-Identifier: MIT
 *
 * fd.c -- the handle: its life, its events, and the loop of try and wait that every
 * blocking call on a descriptor is. Invariants F1 to F5 in fd.h.
 *
 * The loop: try the system call while READY says that it may succeed. On -EAGAIN,
 * clear READY unless an event came since before the call; then wait until an event
 * sets it. Also clear it after a short read from a TCP socket, where it means that the
 * next read would find nothing (epoll(7), "Q&A 9"), unless the last event told of an
 * end: that costs the exchange of messages no failing read. At a deadline, and with
 * WEFT_TRY, the call is tried once more whatever READY says, so nothing that is there
 * is ever reported as a timeout.
 *
 * A fiber waits in the queue of its direction, and the driver of its runtime wakes it.
 * A thread that is no worker waits in poll(2), on the descriptor and on the handle's
 * bell, an eventfd that closing rings.
 */
#include "io/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "weft/task.h"

/* ---- Uses ---- */

bool weft__fd_enter(weft_fd *fd)
{
    uint32_t uses = atom_load_rlx(&fd->uses);
    do {
        if (WEFT__UNLIKELY(uses & WEFT__FD_CLOSED))
            return false;
    } while (!atom_cas_acq(&fd->uses, &uses, uses + 1)); /* pairs with leave */
    return true;
}

/* Not in a forked child to whom neither driver nor bell belongs. */
static bool is_here(weft_fd *fd)
{
    return atom_load_rlx(&fd->owner) == (uint32_t)getpid();
}

/* Takes `attaching`; false in a forked child that may have inherited it held. */
static bool lock_attaching(weft_fd *fd)
{
    if (WEFT__LIKELY(weft__lock_try(&fd->attaching)))
        return true;
    if (!is_here(fd))
        return false;
    weft__acquire(&fd->attaching);
    return true;
}

/* Nobody is inside and nobody will be: takes the number out of the driver and closes. */
static void finish(weft_fd *fd)
{
    if (is_here(fd)) {
        weft__acquire(&fd->attaching);
        weft__poller *p = atom_load_rlx(&fd->poller);
        if (p)
            weft__poller_remove(p, fd->number, fd->key);
        atom_store_rlx(&fd->poller, NULL);
        weft__release(&fd->attaching);
    }
    uint32_t ring = atom_load_rlx(&fd->bell);
    if (ring)
        close((int)ring - 1);
    if (!(fd->flags & WEFT__FD_BORROW))
        close(fd->number);
}

void weft__fd_leave(weft_fd *fd)
{
    /* Pairs with the other leaves and with close: the last one sees what all did. */
    if (WEFT__UNLIKELY(atom_sub_ar(&fd->uses, 1u) == (WEFT__FD_CLOSED | 1u)))
        finish(fd);
}

/* ---- Events ---- */

static int dir_event(weft__dir *dir, bool ends, weft__wakes *wakes)
{
    uint32_t state = atom_load_rlx(&dir->state);
    uint32_t next;
    do {
        next = ((state + WEFT__DIR_TICK) & ~(uint32_t)WEFT__DIR_ENDS) | WEFT__DIR_READY |
               (ends ? WEFT__DIR_ENDS : 0u);
        /* Release: what led to the event is before the try that it asks for. */
    } while (!atom_cas_ar(&dir->state, &state, next));
    int woken = 0;
    for (uint32_t left; (left = atom_load_rlx(&dir->waiting)) != 0;) {
        weft__link *l = weft__list_pop(&dir->waiters);
        weft__wait_node *node = weft__container(l, weft__wait_node, link);
        bool caller = !(node->arg & WEFT__WATCH);
        atom_store_rlx(&dir->waiting, left - 1);
        if (weft__node_claim(node, 0)) {
            weft__wakes_add(wakes, node->parker);
            woken++;
            if (caller)
                break; /* watchers stand before all callers (F5) */
        }
    }
    return woken;
}

int weft__fd_event(weft_fd *fd, unsigned events, weft__wakes *wakes)
{
    int woken = 0;
    weft__acquire(&fd->lock);
    if (events & WEFT__READABLE)
        woken += dir_event(&fd->dir[WEFT__READ], events & WEFT__READ_ENDS, wakes);
    if (events & WEFT__WRITABLE)
        woken += dir_event(&fd->dir[WEFT__WRITE], events & WEFT__WRITE_ENDS, wakes);
    weft__release(&fd->lock);
    return woken;
}

/* READY stays set after a call that was served: whoever waits is next (F2). */
static WEFT__NOINLINE void pass_on(weft_fd *fd, weft__dir *dir)
{
    weft__wakes wakes = {NULL, NULL};
    if (!is_here(fd))
        return; /* those in the queue are the parent's */
    weft__acquire(&fd->lock);
    uint32_t state = atom_load_rlx(&dir->state);
    if (state & WEFT__DIR_READY)
        (void)dir_event(dir, state & WEFT__DIR_ENDS, &wakes);
    weft__release(&fd->lock);
    weft__wakes_run(&wakes);
}

/* ---- Waiting ---- */

static int dir_try(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    weft_fd *fd = object;
    (void)wakes;
    if (atom_load_rlx(&fd->uses) & WEFT__FD_CLOSED)
        return -EPIPE;
    return atom_load_acq(&fd->dir[node->arg].state) & WEFT__DIR_READY ? 0 : -EAGAIN;
}

static void dir_link(void *object, weft__wait_node *node)
{
    weft__dir *dir = &((weft_fd *)object)->dir[node->arg];
    atom_store_rlx(&dir->waiting, atom_load_rlx(&dir->waiting) + 1);
    weft__list_push(&dir->waiters, &node->link);
}

static void dir_unlink(void *object, weft__wait_node *node, weft__wakes *wakes)
{
    weft__dir *dir = &((weft_fd *)object)->dir[node->arg];
    (void)wakes; /* one that is still queued was given nothing that others want */
    atom_store_rlx(&dir->waiting, atom_load_rlx(&dir->waiting) - 1);
    weft__list_remove(&node->link);
}

static const weft__waitable_ops dir_ops[2] = {
    [WEFT__READ] = {"fd read", dir_try, dir_link, dir_unlink},
    [WEFT__WRITE] = {"fd write", dir_try, dir_link, dir_unlink},
};

/* Moves the handle to `current`, from none or from a driver that has ended; under
 * attaching. */
static WEFT__NOINLINE int attach(weft_fd *fd, weft__poller *old, weft__poller *current)
{
    if (old) {
        atom_store_rlx(&fd->poller, NULL);
        weft__poller_remove(old, fd->number, fd->key);
    }
    int r = weft__poller_add(current, fd, fd->number, &fd->key);
    if (r == 0) {
        atom_store_rlx(&fd->owner, (uint32_t)getpid());
        atom_store_rlx(&fd->poller, current);
    }
    return r;
}

int weft__fd_listen(weft_fd *fd, weft__poller *current, bool *ret_arm)
{
    int r = 0;
    if (WEFT__UNLIKELY(!lock_attaching(fd))) /* which also keeps finish() out */
        return -ENXIO;
    weft__poller *p = atom_load_rlx(&fd->poller);
    if (WEFT__UNLIKELY(atom_load_acq(&fd->uses) & WEFT__FD_CLOSED))
        r = -EPIPE;
    else if (WEFT__UNLIKELY(p && !weft__poller_here(p)))
        r = -ENXIO;
    else if (WEFT__UNLIKELY(!p || atom_load_rlx(&p->dead)))
        r = attach(fd, p, current);
    if (WEFT__LIKELY(r == 0))
        *ret_arm = ((weft__poller *)atom_load_rlx(&fd->poller))->ops->arm != NULL;
    weft__release(&fd->attaching);
    return r;
}

WEFT__NOINLINE void weft__fd_arm(weft_fd *fd, int direction)
{
    if (!lock_attaching(fd))
        return;
    weft__poller *p = atom_load_rlx(&fd->poller);
    if (p && p->ops->arm && weft__poller_here(p))
        p->ops->arm(p, fd->key, direction);
    weft__release(&fd->attaching);
}

/* weft__wait_slow, with the arming between the queue and the suspension: an event that
 * was asked for earlier could be reported, and cleared by another, before we are in
 * the queue. */
int weft__fd_wait(weft_fd *fd, int direction, weft__poller *current, weft_time deadline)
{
    bool asked = false;
    int r = weft__fd_listen(fd, current, &asked);
    if (WEFT__UNLIKELY(r))
        return r;
    weft__parker *self = weft__self();
    weft__wait_node node = {.parker = self, .arg = (uintptr_t)direction};
    weft__wakes none = {NULL, NULL};
    weft__acquire(&fd->lock);
    r = dir_try(fd, &node, &none);
    if (WEFT__LIKELY(r == -EAGAIN) && deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        r = -ETIMEDOUT;
    if (WEFT__UNLIKELY(r != -EAGAIN)) {
        weft__release(&fd->lock);
        return r;
    }
    const weft__waitable_ops *ops = &dir_ops[direction];
    weft__wait_begin(self, ops->what, fd);
    dir_link(fd, &node);
    weft__release(&fd->lock);
    if (atom_load_rlx(&fd->near) != &node) {
        atom_store_rlx(&fd->near, &node);
        atom_store_rlx(&fd->task, self);
    }
    if (asked)
        weft__fd_arm(fd, direction);
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (WEFT__LIKELY(outcome == 0))
        return node.result;
    weft__node_retract(ops, fd, &fd->lock, &node);
    return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

/* The eventfd that close() rings for threads in poll(2); inside. */
static int bell(weft_fd *fd)
{
    uint32_t have = atom_load_acq(&fd->bell); /* pairs with the release below */
    if (have)
        return is_here(fd) ? (int)have - 1 : -ENXIO;
    int fresh = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fresh < 0)
        return -errno;
    weft__acquire(&fd->lock);
    have = atom_load_rlx(&fd->bell);
    if (!have) {
        atom_store_rlx(&fd->owner, (uint32_t)getpid());
        atom_store_rel(&fd->bell, (uint32_t)fresh + 1);
    }
    weft__release(&fd->lock);
    if (!have)
        return fresh;
    close(fresh);
    return (int)have - 1;
}

static int thread_wait(weft_fd *fd, int direction, weft_time deadline)
{
    if (!weft__fd_enter(fd))
        return -EPIPE;
    int ring = bell(fd);
    if (ring < 0) {
        weft__fd_leave(fd);
        return ring;
    }
    struct pollfd polled[2] = {
        {.fd = fd->number, .events = direction == WEFT__READ ? POLLIN : POLLOUT},
        {.fd = ring, .events = POLLIN},
    };
    int r = 0;
    for (;;) {
        if (atom_load_sc(&fd->uses) & WEFT__FD_CLOSED) { /* pairs with close */
            r = -EPIPE;
            break;
        }
        struct timespec limit = {0, 0};
        if (deadline != WEFT_NEVER) {
            weft_time left = deadline - weft__sys_now();
            if (left > 0)
                limit = (struct timespec){.tv_sec = (time_t)(left / WEFT_SEC),
                                          .tv_nsec = (long)(left % WEFT_SEC)};
        }
        int n = ppoll(polled, 2, deadline == WEFT_NEVER ? NULL : &limit, NULL);
        if (n > 0 && polled[0].revents)
            break;
        if (n == 0) {
            r = -ETIMEDOUT;
            break;
        }
        if (n < 0 && errno != EINTR) {
            r = -errno;
            break;
        }
    }
    weft__fd_leave(fd);
    return r;
}

/* ---- The loop ---- */

bool weft__fd_clear(weft_fd *fd, int direction, uint32_t state)
{
    weft__dir *dir = &fd->dir[direction];
    if (!atom_cas_ar(&dir->state, &state, state & ~(uint32_t)(WEFT__DIR_READY | WEFT__DIR_ENDS)))
        return false;
    if (WEFT__UNLIKELY(atom_load_rlx(&dir->waiting)))
        weft__fd_arm(fd, direction);
    return true;
}

/* After a call that was served. */
static inline void settle(weft_fd *fd, int direction, uint32_t state, bool exhausted)
{
    if (exhausted && !(state & WEFT__DIR_ENDS) && atom_load_rlx(&fd->poller) &&
        (!(state & WEFT__DIR_READY) || weft__fd_clear(fd, direction, state)))
        return;
    if (WEFT__UNLIKELY(atom_load_rlx(&fd->dir[direction].waiting)))
        pass_on(fd, &fd->dir[direction]);
}

ssize_t weft__fd_run(weft_fd *fd, int direction, weft__fd_call call, void *args, size_t want,
                     weft_time deadline)
{
    weft__dir *dir = &fd->dir[direction];
    bool last = deadline == WEFT_TRY, force = last;
    int r = -EAGAIN; /* what the last try's -EAGAIN becomes */
    if (!last) {
        int stop = weft__checkpoint(weft__self());
        if (WEFT__UNLIKELY(stop))
            return stop;
    }
    for (;;) {
        uint32_t state = atom_load_acq(&dir->state); /* pairs with dir_event */
        if ((state & WEFT__DIR_READY) || force) {
            if (WEFT__UNLIKELY(!weft__fd_enter(fd)))
                return -EPIPE;
            ssize_t n = call(fd->number, args);
            weft__fd_leave(fd);
            if (WEFT__LIKELY(n != -EAGAIN)) {
                settle(fd, direction, state,
                       n > 0 && (size_t)n < want && fd->flags & WEFT__FD_STREAM);
                return n;
            }
            if ((state & WEFT__DIR_READY) && !weft__fd_clear(fd, direction, state) && !last)
                continue; /* an event came meanwhile */
            if (last)
                return r;
        }
        weft__poller *current;
        r = weft__poller_current(&current);
        if (r)
            return r;
        if (current) {
            r = weft__fd_wait(fd, direction, current, deadline);
        } else {
            r = thread_wait(fd, direction, deadline);
            force = true; /* a thread hears of no events */
        }
        if (WEFT__UNLIKELY(r)) {
            if (r != -ETIMEDOUT)
                return r;
            last = force = true;
        }
    }
}

/* ---- Life ---- */

enum { FD_SIZE = (sizeof(weft_fd) + WEFT__CACHE_LINE - 1) / WEFT__CACHE_LINE * WEFT__CACHE_LINE };

int weft__fd_make(int number, uint32_t flags, weft_fd **ret)
{
    weft_fd *fd = weft__aligned_alloc(WEFT__CACHE_LINE, FD_SIZE);
    if (!fd) {
        if (!(flags & WEFT__FD_BORROW))
            close(number);
        return -ENOMEM;
    }
    memset(fd, 0, sizeof *fd);
    fd->number = number;
    fd->flags = flags;
    atom_store_rlx(&fd->owner, (uint32_t)getpid());
    atom_store_rlx(&fd->refs, 1u);
    for (int i = 0; i < 2; i++) {
        weft__list_init(&fd->dir[i].waiters);
        atom_store_rlx(&fd->dir[i].state, (uint32_t)WEFT__DIR_READY);
    }
    *ret = fd;
    return 0;
}

/* What kind of descriptor it is, as far as calls differ. */
static uint32_t classify(int number)
{
    int type = 0, protocol = 0;
    socklen_t size = sizeof type;
    if (getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &size))
        return 0;
    size = sizeof protocol;
    if (type == SOCK_STREAM && getsockopt(number, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
        protocol == 6)
        return WEFT__FD_SOCKET | WEFT__FD_STREAM;
    return WEFT__FD_SOCKET;
}

int weft_fd_wrap(int number, unsigned flags, weft_fd **ret)
{
    if (!ret || flags & ~(unsigned)(WEFT_FD_BORROW | WEFT_FD_NONBLOCK))
        return -EINVAL;
    int mode = fcntl(number, F_GETFL);
    if (mode < 0)
        return -errno;
    if (!(mode & O_NONBLOCK)) {
        if (!(flags & WEFT_FD_NONBLOCK))
            return -EINVAL;
        if (fcntl(number, F_SETFL, mode | O_NONBLOCK))
            return -errno;
    }
    uint32_t kind = classify(number);
    weft_fd *fd;
    /* As if borrowed until it is sure: on error the caller keeps the descriptor. */
    int r = weft__fd_make(number, kind | WEFT__FD_BORROW, &fd);
    if (r)
        return r;
    if (!(flags & WEFT_FD_BORROW))
        fd->flags = kind;
    *ret = fd;
    return 0;
}

weft_fd *weft_fd_ref(weft_fd *fd)
{
    if (fd)
        atom_add_rlx(&fd->refs, 1u);
    return fd;
}

weft_fd *weft_fd_unref(weft_fd *fd)
{
    /* Release and acquire: every holder's use is before the last one's free. */
    if (fd && atom_sub_ar(&fd->refs, 1u) == 1) {
        (void)weft_fd_close(fd);
        weft__free(fd);
    }
    return NULL;
}

/* Everybody who waits in either direction, fibers and threads. */
static void wake_all(weft_fd *fd)
{
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&fd->lock);
    for (int i = 0; i < 2; i++) {
        weft__link *l;
        while ((l = weft__list_pop(&fd->dir[i].waiters)) != NULL) {
            weft__wait_node *node = weft__container(l, weft__wait_node, link);
            if (weft__node_claim(node, -EPIPE))
                weft__wakes_add(&wakes, node->parker);
        }
        atom_store_rlx(&fd->dir[i].waiting, 0u);
    }
    uint32_t ring = atom_load_rlx(&fd->bell);
    weft__release(&fd->lock);
    if (ring) {
        uint64_t one = 1;
        int tries = 1000;
        while (write((int)ring - 1, &one, sizeof one) != (ssize_t)sizeof one)
            WEFT__CHECK(--tries > 0);
    }
    weft__wakes_run(&wakes);
}

int weft_fd_close(weft_fd *fd)
{
    if (!fd)
        return -EINVAL;
    /* One more use keeps the number and the bell until we are through. Pairs with
     * weft__fd_enter and thread_wait: either they see CLOSED, or we see them. */
    uint32_t uses = atom_load_rlx(&fd->uses);
    do {
        if (uses & WEFT__FD_CLOSED)
            return -EPIPE;
    } while (!atom_cas_sc(&fd->uses, &uses, (uses + 1) | WEFT__FD_CLOSED));
    /* In a forked child nobody waits, and those who seem to belong to the parent. */
    if (is_here(fd))
        wake_all(fd);
    weft__fd_leave(fd);
    return 0;
}

int weft_fd_number(const weft_fd *fd)
{
    if (!fd)
        return -EINVAL;
    return atom_load_rlx(&((weft_fd *)(uintptr_t)fd)->uses) & WEFT__FD_CLOSED ? -EPIPE : fd->number;
}

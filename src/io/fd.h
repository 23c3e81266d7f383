/* SPDX-License-Identifier: MIT
 *
 * fd.h -- the handle of a descriptor, for the files of this room.
 *
 * A handle has two directions. Each has a word that says whether it may be ready,
 * and a queue of those who wait for it:
 *
 *   READY   a call is worth trying. Clear only after a call said that it is not and
 *           no event came since that call began.
 *   ENDS    the last event told of an end or an error: a short read is then no sign
 *           that the next one would find nothing.
 *   tick    the upper bits, one more with every event, so that clearing READY by
 *           compare-and-swap fails when an event came meanwhile.
 *
 * Invariants
 *   F1  Waiters are queued under `lock` while READY is clear; every event sets READY
 *       and pops one caller, under `lock`.
 *   F2  If READY is set and somebody waits, then somebody woken is on his way who will
 *       clear it or pop the next one (settle). So each event wakes one caller, and
 *       none is forgotten.
 *   F3  The descriptor is closed when CLOSED is set and no call is inside a system
 *       call on it, by whoever sees both; so its number is never another's under us.
 *   F4  `poller` changes under `attaching` only. A handle without one has never had to
 *       wait in a fiber, and costs no registration.
 *   F5  Watchers (select cases, which only look) stand in the queue before all callers: an
 *       event tells every watcher, and one caller.
 *
 * Who may touch what
 *   number, flags      constant
 *   state, uses        any, by atomic operations
 *   waiters            under lock; `waiting` is written under lock and read anywhere
 *   poller, key        under attaching; `poller` is read anywhere as a hint
 *   owner              written when the handle gets a driver or a bell, read anywhere
 *   near, task         a hint, written when it changes
 *   bell               set once under lock; read by whoever is inside
 *
 * fork(): `owner` is the process in which the handle last got a driver or a bell. In
 * another one both belong to the parent and are left alone.
 */
#ifndef WEFT_SRC_IO_FD_H
#define WEFT_SRC_IO_FD_H

#include "io/poller.h"
#include "weft/io.h"

enum {
    WEFT__DIR_READY = 1,
    WEFT__DIR_ENDS = 2,
    WEFT__DIR_TICK = 4,
};

#define WEFT__FD_CLOSED 0x80000000u /* in `uses`, above the count */

enum {
    WEFT__FD_SOCKET = 1, /* send and recv work, SIGPIPE can be suppressed */
    WEFT__FD_STREAM = 2, /* TCP: a short read means that there is no more */
    WEFT__FD_BORROW = 4, /* not ours to close */
};

typedef struct weft__dir {
    weft__a32 state;
    weft__a32 waiting;
    weft__list waiters;
} weft__dir;

/* All that an exchange of messages touches lies in the first cache line. */
struct weft_fd {
    int number;
    uint32_t flags;
    weft__a32 refs;
    weft__a32 uses;
    weft__lock lock;
    weft__lock attaching;
    weft__aptr poller;
    weft__dir dir[2];
    weft__aptr near; /* the last waiter's node: where its stack is, for prefetching */
    weft__aptr task; /* its parker, for the same */
    uint64_t key;
    weft__a32 bell;     /* eventfd + 1 that wakes threads in poll(2) on close; 0: none */
    weft__a32 owner;    /* a pid */
    weft__a32 pause_ms; /* accept's next pause when descriptors run out; racy by nature */
};

/* For an event that is about to be delivered: fetches the handle; then, when that has
 * come, the end of the stack of the fiber that waits. With thousands of connections both
 * have left the caches since. */
static inline void weft__fd_fetch(const weft_fd *fd)
{
    __builtin_prefetch(fd, 1);
    __builtin_prefetch((const char *)fd + WEFT__CACHE_LINE, 1);
}

static inline void weft__fd_fetch_waiter(weft_fd *fd)
{
    const char *near = atom_load_rlx(&fd->near);
    if (near) {
        for (int i = -4; i < 8; i++)
            __builtin_prefetch(near + i * WEFT__CACHE_LINE, 1);
        const char *task = atom_load_rlx(&fd->task);
        __builtin_prefetch(task, 1);
        __builtin_prefetch(task + WEFT__CACHE_LINE, 1);
    }
}

/* Makes a handle for a descriptor that is known to be non-blocking; closes it when
 * there is no memory unless it is borrowed. */
int weft__fd_make(int number, uint32_t flags, weft_fd **ret);

/* An event: sets the state of the directions it tells of and claims one waiter of
 * each. Takes fd->lock. Returns the number claimed. */
int weft__fd_event(weft_fd *fd, unsigned events, weft__wakes *wakes);

/* In a wait node's arg, above the direction: it only looks, see F5. */
#define WEFT__WATCH 2u

/* Around a system call on the number; false: closed. Whoever leaves last after a close
 * closes the descriptor. */
bool weft__fd_enter(weft_fd *fd);
void weft__fd_leave(weft_fd *fd);

/* Clears READY unless an event came since `state` was read: then false. */
bool weft__fd_clear(weft_fd *fd, int direction, uint32_t state);

/* Sees to it that events will come, from the driver of some living runtime. Sets *ret_arm
 * when that driver wants to be asked each time, with weft__fd_arm when somebody is queued
 * for `direction`. 0 or an error of weft/io.h. */
int weft__fd_listen(weft_fd *fd, weft__poller *current, bool *ret_arm);
void weft__fd_arm(weft_fd *fd, int direction);

/* Waits until an event of `direction` comes from `poller` (from the one that the handle
 * is attached to already, if that lives): 0, whereupon the caller tries again, or an
 * error of weft/io.h. */
int weft__fd_wait(weft_fd *fd, int direction, weft__poller *poller, weft_time deadline);

/* One non-blocking system call: its result, or negative errno; never -EINTR. */
typedef ssize_t (*weft__fd_call)(int number, void *args);

/* A whole blocking call: tries `call`, waits for `direction` while it says -EAGAIN.
 * `want`: with fewer bytes than this the stream has no more for now (0: no such rule). */
ssize_t weft__fd_run(weft_fd *fd, int direction, weft__fd_call call, void *args, size_t want,
                     weft_time deadline);

#endif

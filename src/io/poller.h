/* SPDX-License-Identifier: MIT
 *
 * poller.h -- what all readiness drivers share: the table of watched handles, the
 * delivery of events, the wake descriptor, and the end of a driver.
 *
 * A driver (epoll.c, poll.c) fills in four functions; everything that needs care
 * with locks and lifetimes is here, once. An event names its handle by a key, slot
 * number and generation, so an event that was collected before the handle left, or
 * that a duplicate of its description in another process still causes, meets nobody.
 *
 * Lifetime: the runtime holds one reference, every handle in the table one more. When
 * the runtime ends, its driver dies: whoever still waits through it is woken and
 * looks again, and a handle that has to wait later moves to another runtime's driver.
 *
 * Locks, outer to inner: a handle's `attaching`, poller->lock, a handle's `lock`.
 */
#ifndef WEFT_SRC_IO_POLLER_H
#define WEFT_SRC_IO_POLLER_H

#include "sched/driver.h"
#include "wait/wait.h"

struct weft_fd;

/* The two directions of a descriptor, and what an event says of them (bits). */
enum { WEFT__READ = 0, WEFT__WRITE = 1 };
enum {
    WEFT__READABLE = 1,
    WEFT__WRITABLE = 2,
    WEFT__READ_ENDS = 4,  /* end of stream, error or urgent data: a short read is not the last */
    WEFT__WRITE_ENDS = 8, /* the same for writing */
};

typedef struct weft__poller weft__poller;

/* Called without the poller's lock except where said. */
typedef struct weft__poller_ops {
    /* Starts to report what happens to `fd` under `key`, beginning with what it is
     * ready for now. 0; -EPERM: this kind of descriptor is always ready; else errno. */
    int (*watch)(weft__poller *p, int fd, uint64_t key);
    /* Stops it; `fd` is still open. */
    void (*unwatch)(weft__poller *p, int fd, uint64_t key);
    /* Somebody waits for `direction`, and READY is or will be clear. NULL when events
     * come unasked. Under the handle's `attaching`. */
    void (*arm)(weft__poller *p, uint64_t key, int direction);
    /* Gives back what the driver itself holds; nobody is inside. */
    void (*close)(weft__poller *p);
} weft__poller_ops;

typedef struct weft__slot {
    struct weft_fd *fd;  /* NULL: free */
    uint32_t generation; /* of its present or last user */
    uint32_t next_free;
    int number;        /* the descriptor, for drivers that keep no copy in the kernel */
    unsigned interest; /* armed directions, the same */
} weft__slot;

struct weft__poller {
    weft__driver driver; /* first */
    const weft__poller_ops *ops;
    weft__a32 refs;
    weft__a32 waking; /* see poller.c */
    int wake_fd;      /* eventfd; only ever written */
    weft__a32 dead;
    weft__a32 *here; /* 1 in the process that made it, 0 in a forked child */
    weft__lock lock; /* the table */
    weft__slot *slots;
    uint32_t capacity, used, first_free;
};

/* Common part of a driver's constructor: 0 or negative errno. */
int weft__poller_init(weft__poller *p, const weft__driver_ops *driver_ops,
                      const weft__poller_ops *ops);

/* weft__driver_ops.wake and .free for every driver. */
void weft__poller_wake(weft__driver *driver);
void weft__poller_free(weft__driver *driver);

/* Around the system call that blocks: false from begin says do not block, somebody
 * has called wake() already. */
bool weft__poller_block_begin(weft__poller *p);
void weft__poller_block_end(weft__poller *p);

/* Delivers one event; p->lock is held. Adds the claimed waiters to `wakes` and
 * returns how many. A key of a handle that has left does nothing. */
int weft__poller_event(weft__poller *p, uint64_t key, unsigned events, weft__wakes *wakes);

/* Fetches what an event that comes soon will touch: the handle, then its waiter. */
void weft__poller_fetch(weft__poller *p, uint64_t key, bool waiter);

/* Enters and leaves the table. add: 0, with *ret_key set, or negative errno. */
int weft__poller_add(weft__poller *p, struct weft_fd *fd, int number, uint64_t *ret_key);
void weft__poller_remove(weft__poller *p, int number, uint64_t key);

/* Handles count on the poller; the last reference frees it. */
void weft__poller_ref(weft__poller *p);
void weft__poller_unref(weft__poller *p);

/* False in a child of the process that made it. */
static inline bool weft__poller_here(const weft__poller *p)
{
    return atom_load_rlx(p->here) != 0;
}

/* The constructors. A driver is freed with driver.ops->free. */
int weft__epoll_new(weft__poller **ret);
int weft__poll_new(weft__poller **ret);

/* The calling task's runtime's driver, made on first use; NULL outside of a task.
 * The environment variable WEFT_DRIVER=poll chooses poll(2), for tests. */
int weft__poller_current(weft__poller **ret);

#define WEFT__KEY_SLOT(key) ((uint32_t)(key))
#define WEFT__KEY_WAKE      UINT64_MAX /* the wake descriptor's own */

#endif

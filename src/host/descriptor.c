/* SPDX-License-Identifier: MIT
 *
 * descriptor.c -- see weft/descriptor.h.
 *
 * A descriptor is a parker that has no context to run: being made ready means to raise an
 * eventfd and to call a waker. So it waits in any waitable's queue like a task does,
 * and the things it watches know nothing of it. It only uses kinds of waits whose try
 * takes nothing.
 *
 *   armed    0: no node is queued and no wake is on its way; the owner may look and arm.
 *            1: the node is queued, or was claimed and ready() has not begun.
 *            2: as 1, and the owner sleeps on the word (free).
 *   callers  ready() calls in progress; FREEING: the owner sleeps on the word.
 *
 * Invariants
 *   D1  armed goes 0 -> 1 by the owner, and back to 0 by ready(), or by the owner when it
 *       took the node out itself. So there is never more than one wait.
 *   D2  ready() counts itself in callers before it clears armed, so an owner that sees 0
 *       in armed and then 0 in callers knows that none is in progress.
 *   D3  ready() clears armed, then loads fd; the owner stores fd, then loads armed: one of
 *       the two sees the other, and whoever does raises the descriptor.
 *   D4  The descriptor is drained only while armed is 0, before the look that arms. A raise
 *       that comes late from an earlier wait makes it readable once for nothing.
 */
#include "weft/descriptor.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sync/channel.h"
#include "wait/select.h"
#include "weft/promise.h"

#define KEEP_DEFAULT 64u
#define KEEP_MAX     65536u
#define FREEING      0x80000000u

struct weft_descriptor_pool {
    weft__lock lock;
    weft__a32 refs; /* the owner's and one per descriptor */
    unsigned idle, keep;
    int fds[];
};

struct weft_descriptor {
    weft__parker parker;
    weft__wait_node node;
    const weft__waitable_ops *ops;
    void *object;
    weft__lock *lock;             /* the object's */
    weft__a32 armed, callers, fd; /* fd: the number + 1, 0 before it was asked for */
    bool low;                     /* owner only: not raised since it was made or drained */
    weft_waker waker;
    weft_descriptor_pool *pool;
    weft_channel *channel; /* a reference to give back, or NULL */
    weft_task *task;       /* the same */
};

/* ---- The pool ---- */

int weft_descriptor_pool_new(unsigned keep, weft_descriptor_pool **ret)
{
    if (!ret || keep > KEEP_MAX)
        return -EINVAL;
    if (!keep)
        keep = KEEP_DEFAULT;
    weft_descriptor_pool *pool = weft__calloc(1, sizeof *pool + keep * sizeof pool->fds[0]);
    if (!pool)
        return -ENOMEM;
    pool->keep = keep;
    atom_store_rlx(&pool->refs, 1u);
    *ret = pool;
    return 0;
}

weft_descriptor_pool *weft_descriptor_pool_free(weft_descriptor_pool *pool)
{
    /* Release what was done with it, acquire what others did: the last one frees. */
    if (!pool || atom_sub_ar(&pool->refs, 1u) != 1)
        return NULL;
    while (pool->idle > 0)
        close(pool->fds[--pool->idle]);
    weft__free(pool);
    return NULL;
}

unsigned weft_descriptor_pool_idle(weft_descriptor_pool *pool)
{
    if (!pool)
        return 0;
    weft__acquire(&pool->lock);
    unsigned idle = pool->idle;
    weft__release(&pool->lock);
    return idle;
}

/* A descriptor that is not readable, or an error. */
static int pool_get(weft_descriptor_pool *pool)
{
    int fd = -1;
    if (pool) {
        weft__acquire(&pool->lock);
        if (pool->idle > 0)
            fd = pool->fds[--pool->idle];
        weft__release(&pool->lock);
    }
    if (fd < 0)
        fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static void lower(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

static void pool_put(weft_descriptor_pool *pool, int fd)
{
    bool kept = false;
    lower(fd);
    if (pool) {
        weft__acquire(&pool->lock);
        kept = pool->idle < pool->keep;
        if (kept)
            pool->fds[pool->idle++] = fd;
        weft__release(&pool->lock);
    }
    if (!kept)
        close(fd);
}

/* ---- Raising ---- */

static void raise_fd(weft_descriptor *d)
{
    uint64_t one = 1;
    ssize_t n;
    int fd = (int)atom_load_sc(&d->fd) - 1; /* D3 */
    if (fd < 0)
        return;
    do
        n = write(fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    WEFT__CHECK(n == sizeof one || errno == EAGAIN); /* full: it is readable anyway */
}

/* The unpark of a claimed wait, on the claimer's thread, with no lock held. */
static void ready(weft__parker *p)
{
    weft_descriptor *d = weft__container(p, weft_descriptor, parker);
    weft_waker waker = d->waker;
    atom_add_sc(&d->callers, 1u);         /* D2 */
    if (atom_xchg_sc(&d->armed, 0u) == 2) /* D3; pairs also with arm and free */
        weft__sys_futex_wake(&d->armed, 1);
    raise_fd(d);
    if (waker.wake)
        waker.wake(waker.arg);
    if (atom_sub_sc(&d->callers, 1u) == (FREEING | 1u)) /* d may be gone from here on */
        weft__sys_futex_wake(&d->callers, 1);
}

static void no_park(weft__parker *self, weft_time deadline)
{
    (void)self;
    (void)deadline;
    weft__panic(__FILE__, __LINE__, "a descriptor runs nothing that could park");
}

static void no_yield(weft__parker *self)
{
    (void)self;
}

static const weft__parker_ops parker_ops = {.park = no_park, .ready = ready, .yield = no_yield};

/* ---- Looking and arming ---- */

/* Looks, and arms if it is not ready and `arm` says so. True: ready. */
static bool look(weft_descriptor *d, bool arm)
{
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(d->lock);
    bool is_ready = d->ops->try_locked(d->object, &d->node, &wakes) != -EAGAIN;
    if (!is_ready && arm) {
        weft__wait_begin(&d->parker, "descriptor", d->object);
        d->node.parker = &d->parker;
        d->node.index = 0;
        atom_store_sc(&d->armed, 1u);
        d->ops->link_locked(d->object, &d->node);
        bool parked = weft__parked(&d->parker);
        WEFT__CHECK(parked); /* nobody can claim before the lock is released */
    }
    weft__release(d->lock);
    weft__wakes_run(&wakes);
    return is_ready;
}

int weft_descriptor_check(weft_descriptor *d)
{
    if (!d)
        return -EINVAL;
    if (atom_load_sc(&d->armed)) /* pairs with ready() */
        return 0;
    bool is_ready = look(d, false);
    if (!is_ready) {
        int fd = (int)atom_load_rlx(&d->fd) - 1;
        if (fd >= 0 && !d->low)
            lower(fd);
        d->low = true;
        is_ready = look(d, true);
    }
    if (is_ready && d->low)
        raise_fd(d);
    d->low = false; /* raised, or ready() will */
    return is_ready;
}

int weft_descriptor_fd(weft_descriptor *d)
{
    if (!d)
        return -EINVAL;
    int fd = (int)atom_load_rlx(&d->fd) - 1;
    if (fd >= 0)
        return fd;
    fd = pool_get(d->pool);
    if (fd < 0)
        return fd;
    atom_store_sc(&d->fd, (uint32_t)fd + 1); /* D3 */
    if (!atom_load_sc(&d->armed)) {
        d->low = true;
        weft_descriptor_check(d);
    }
    return fd;
}

/* ---- Making and freeing ---- */

static int descriptor_new(weft_descriptor_pool *pool, weft_select_case c, const weft_waker *waker,
                          weft_descriptor **ret)
{
    if (!c.weft__ops || !ret)
        return -EINVAL;
    weft_descriptor *d = weft__calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    weft__parker_init(&d->parker, &parker_ops);
    d->ops = c.weft__ops;
    d->object = c.weft__object;
    d->lock = c.weft__lock;
    d->pool = pool;
    d->low = true;
    if (waker)
        d->waker = *waker;
    if (pool)
        atom_add_rlx(&pool->refs, 1u);
    *ret = d;
    return 0;
}

int weft_descriptor_channel(weft_descriptor_pool *pool, weft_channel *ch, int what,
                            const weft_waker *waker, weft_descriptor **ret)
{
    if (!ch || weft_channel_capacity(ch) == 0 ||
        (what != WEFT_CHANNEL_READABLE && what != WEFT_CHANNEL_WRITABLE))
        return -EINVAL;
    const weft__waitable_ops *ops =
        what == WEFT_CHANNEL_READABLE ? &weft__channel_readable_ops : &weft__channel_writable_ops;
    int r = descriptor_new(pool, weft__case_of(ops, ch, weft__channel_lock(ch), NULL), waker, ret);
    if (!r)
        (*ret)->channel = weft_channel_ref(ch);
    return r;
}

int weft_descriptor_task(weft_descriptor_pool *pool, weft_task *task, const weft_waker *waker,
                         weft_descriptor **ret)
{
    int r = descriptor_new(pool, weft_case_task(task), waker, ret);
    if (!r)
        (*ret)->task = weft_task_ref(task);
    return r;
}

int weft_descriptor_event(weft_descriptor_pool *pool, weft_event *event, const weft_waker *waker,
                          weft_descriptor **ret)
{
    return descriptor_new(pool, weft_case_event(event), waker, ret);
}

int weft_descriptor_value(weft_descriptor_pool *pool, weft_value *value, const weft_waker *waker,
                          weft_descriptor **ret)
{
    return descriptor_new(pool, weft_case_value(value), waker, ret);
}

int weft_descriptor_waitgroup(weft_descriptor_pool *pool, weft_waitgroup *group,
                              const weft_waker *waker, weft_descriptor **ret)
{
    return descriptor_new(pool, weft_case_waitgroup(group), waker, ret);
}

/* Takes the node out unless a claimer has; false: its ready() is on the way. */
static bool disarm(weft_descriptor *d)
{
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(d->lock);
    bool mine = weft__linked(&d->node.link);
    if (mine) {
        d->ops->unlink_locked(d->object, &d->node, &wakes);
        weft__claim(&d->parker, WEFT__CANCELED); /* one's own claim owes no unpark */
        atom_store_rlx(&d->armed, 0u);
    }
    weft__release(d->lock);
    weft__wakes_run(&wakes);
    return mine;
}

weft_descriptor *weft_descriptor_free(weft_descriptor *d)
{
    if (!d)
        return NULL;
    uint32_t armed = atom_load_sc(&d->armed);
    if (armed && !disarm(d)) {
        armed = 1;
        if (atom_cas_sc(&d->armed, &armed, 2u))
            while (atom_load_sc(&d->armed) == 2)
                weft__sys_futex_wait(&d->armed, 2, WEFT_NEVER);
    }
    if (atom_add_sc(&d->callers, FREEING) != 0) { /* D2 */
        uint32_t callers;
        while ((callers = atom_load_sc(&d->callers)) != FREEING)
            weft__sys_futex_wait(&d->callers, callers, WEFT_NEVER);
    }
    int fd = (int)atom_load_rlx(&d->fd) - 1;
    if (fd >= 0)
        pool_put(d->pool, fd);
    weft_descriptor_pool_free(d->pool);
    weft_channel_unref(d->channel);
    weft_task_unref(d->task);
    weft__free(d);
    return NULL;
}

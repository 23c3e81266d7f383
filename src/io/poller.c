/* SPDX-License-Identifier: MIT
 *
 * poller.c -- the common half of the readiness drivers; contract in poller.h.
 *
 * Wake: `waking` is IDLE, BLOCKING (a thread is in, or about to enter, the system call
 * that blocks) or ASKED. Only the step from BLOCKING to ASKED writes to the eventfd,
 * so any number of wakes costs one system call per block, and none when nobody
 * blocks. The eventfd is watched edge-triggered, or written over, and never read: a
 * write that comes late makes the next block return early, once.
 *
 * Fork: `here` lies on a page that the kernel zeroes in a child. The child must not
 * take the lock (its holder may not exist there) nor change the kernel's set, which it
 * shares with its parent.
 */
#include "io/fd.h"

#include "weft/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WAKE_IDLE = 0, WAKE_BLOCKING = 1, WAKE_ASKED = 2 };
#define NO_SLOT UINT32_MAX

static weft__a32 *here_new(void)
{
    void *page =
        mmap(NULL, sizeof(weft__a32), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    /* Refused before Linux 4.14: then a child does not notice. */
    (void)madvise(page, sizeof(weft__a32), MADV_WIPEONFORK);
    weft__a32 *here = page;
    atom_store_rlx(here, 1u);
    return here;
}

int weft__poller_init(weft__poller *p, const weft__driver_ops *driver_ops,
                      const weft__poller_ops *ops)
{
    memset(p, 0, sizeof *p);
    p->driver.ops = driver_ops;
    p->ops = ops;
    p->first_free = NO_SLOT;
    atom_store_rlx(&p->refs, 1u);
    p->here = here_new();
    if (!p->here)
        return -ENOMEM;
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake_fd < 0) {
        int r = -errno;
        munmap(p->here, sizeof *p->here);
        return r;
    }
    return 0;
}

void weft__poller_ref(weft__poller *p)
{
    atom_add_rlx(&p->refs, 1u);
}

/* The release half orders this holder's use before the free, the acquire half the
 * free after every other's. */
void weft__poller_unref(weft__poller *p)
{
    if (atom_sub_ar(&p->refs, 1u) != 1)
        return;
    munmap(p->here, sizeof *p->here);
    weft__free(p->slots);
    weft__free(p);
}

/* ---- Wake ---- */

void weft__poller_wake(weft__driver *driver)
{
    weft__poller *p = (weft__poller *)(void *)driver;
    /* Pairs with block_begin and block_end: what the waker did before is seen by
     * the poller once it is out, and only one waker of a block writes. */
    if (atom_xchg_ar(&p->waking, (uint32_t)WAKE_ASKED) != WAKE_BLOCKING)
        return;
    /* The counter cannot fill up in the life of a machine; whatever else a write may
     * say, a wake that is lost hangs the program, so insist, then say so. */
    uint64_t one = 1;
    int tries = 1000;
    while (write(p->wake_fd, &one, sizeof one) != (ssize_t)sizeof one)
        WEFT__CHECK(--tries > 0);
}

bool weft__poller_block_begin(weft__poller *p)
{
    uint32_t expected = WAKE_IDLE;
    if (WEFT__LIKELY(atom_cas_ar(&p->waking, &expected, (uint32_t)WAKE_BLOCKING)))
        return true;
    weft__poller_block_end(p); /* asked already */
    return false;
}

void weft__poller_block_end(weft__poller *p)
{
    (void)atom_xchg_ar(&p->waking, (uint32_t)WAKE_IDLE); /* pairs with wake */
}

/* ---- The table ---- */

static void grow(weft__poller *p)
{
    uint32_t capacity = p->capacity ? p->capacity * 2 : 64;
    weft__release(&p->lock);
    weft__slot *bigger = capacity ? weft__calloc(capacity, sizeof *bigger) : NULL;
    weft__slot *old = NULL;
    weft__acquire(&p->lock);
    if (bigger && p->capacity < capacity) {
        if (p->used)
            memcpy(bigger, p->slots, p->used * sizeof *bigger);
        old = p->slots;
        p->slots = bigger;
        p->capacity = capacity;
    } else {
        old = bigger;
    }
    if (old) {
        weft__release(&p->lock);
        weft__free(old);
        weft__acquire(&p->lock);
    }
}

int weft__poller_add(weft__poller *p, struct weft_fd *fd, int number, uint64_t *ret_key)
{
    weft__acquire(&p->lock);
    if (p->first_free == NO_SLOT && p->used == p->capacity) {
        grow(p);
        /* Others may have taken what grew; then they can do without us once more. */
        if (p->first_free == NO_SLOT && p->used == p->capacity) {
            weft__release(&p->lock);
            return -ENOMEM;
        }
    }
    uint32_t index = p->first_free;
    if (index != NO_SLOT)
        p->first_free = p->slots[index].next_free;
    else
        index = p->used++;
    weft__slot *slot = &p->slots[index];
    slot->fd = fd;
    slot->number = number;
    slot->interest = 0;
    slot->generation++;
    *ret_key = (uint64_t)slot->generation << 32 | index;
    weft__release(&p->lock);

    int r = p->ops->watch(p, number, *ret_key);
    if (r == 0) {
        weft__poller_ref(p);
        return 0;
    }
    weft__acquire(&p->lock);
    slot = &p->slots[index];
    slot->fd = NULL;
    slot->next_free = p->first_free;
    p->first_free = index;
    weft__release(&p->lock);
    return r;
}

void weft__poller_remove(weft__poller *p, int number, uint64_t key)
{
    if (!weft__poller_here(p))
        return; /* a child: the memory stays, see the top */
    uint32_t index = WEFT__KEY_SLOT(key);
    weft__acquire(&p->lock);
    WEFT__ASSERT(index < p->used && p->slots[index].fd);
    /* Under the lock, so that the driver cannot end meanwhile. */
    if (!atom_load_rlx(&p->dead))
        p->ops->unwatch(p, number, key);
    p->slots[index].fd = NULL;
    p->slots[index].interest = 0;
    p->slots[index].next_free = p->first_free;
    p->first_free = index;
    weft__release(&p->lock);
    weft__poller_unref(p);
}

int weft__poller_event(weft__poller *p, uint64_t key, unsigned events, weft__wakes *wakes)
{
    uint32_t index = WEFT__KEY_SLOT(key);
    if (index >= p->used)
        return 0;
    weft__slot *slot = &p->slots[index];
    if (!slot->fd || slot->generation != (uint32_t)(key >> 32))
        return 0;
    return weft__fd_event(slot->fd, events, wakes);
}

void weft__poller_fetch(weft__poller *p, uint64_t key, bool waiter)
{
    uint32_t index = WEFT__KEY_SLOT(key);
    struct weft_fd *fd = index < p->used ? p->slots[index].fd : NULL;
    if (!fd)
        return;
    if (waiter)
        weft__fd_fetch_waiter(fd);
    else
        weft__fd_fetch(fd);
}

void weft__poller_free(weft__driver *driver)
{
    weft__poller *p = (weft__poller *)(void *)driver;
    if (!weft__poller_here(p))
        return; /* in a child nothing of it may be touched; the descriptors are shared */
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(&p->lock);
    atom_store_rlx(&p->dead, 1u);
    for (uint32_t i = 0; i < p->used; i++) {
        /* Tasks of other runtimes may wait here: all of them look again. */
        while (p->slots[i].fd &&
               weft__fd_event(p->slots[i].fd, WEFT__READABLE | WEFT__WRITABLE, &wakes)) {
        }
    }
    p->ops->close(p);
    close(p->wake_fd);
    weft__release(&p->lock);
    weft__wakes_run(&wakes);
    weft__poller_unref(p);
}

/* ---- The runtime's ---- */

int weft__poller_current(weft__poller **ret)
{
    struct weft_runtime *rt = weft_runtime_current();
    *ret = NULL;
    if (!rt)
        return 0;
    weft__driver *driver = weft__runtime_driver(rt);
    if (WEFT__UNLIKELY(!driver)) {
        const char *wanted = secure_getenv("WEFT_DRIVER");
        weft__poller *own = NULL;
        int r =
            wanted && strcmp(wanted, "poll") == 0 ? weft__poll_new(&own) : weft__epoll_new(&own);
        if (r)
            return r;
        driver = weft__runtime_install_driver(rt, &own->driver);
        if (driver != &own->driver)
            own->driver.ops->free(&own->driver);
    }
    *ret = (weft__poller *)(void *)driver;
    return 0;
}

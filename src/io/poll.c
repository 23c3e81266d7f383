/* SPDX-License-Identifier: MIT
 *
 * poll.c -- the readiness driver on plain poll(2): the second one behind the contract.
 *
 * The kernel keeps nothing between calls, so a direction is asked about only once it
 * was armed, and no longer once it was reported: that makes edges of levels. To arm
 * or to leave wakes a poll in progress, whose list is then out of date. The cost of a
 * call grows with the table; it serves where epoll does not exist, and in tests.
 */
#include "io/poller.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct poll_poller {
    weft__poller base;
    /* Of the one thread in wait(): what it polls, and whom each entry belongs to. */
    struct pollfd *polled;
    uint64_t *keys;
    uint32_t capacity;
} poll_poller;

static int poll_watch(weft__poller *p, int fd, uint64_t key)
{
    (void)p;
    (void)fd;
    (void)key;
    return 0; /* poll(2) takes everything; what is always ready says so */
}

/* Under p->lock, as all that touches interest. */
static void poll_unwatch(weft__poller *p, int fd, uint64_t key)
{
    (void)fd;
    (void)key;
    p->driver.ops->wake(&p->driver);
}

static void poll_arm(weft__poller *p, uint64_t key, int direction)
{
    unsigned bit = 1u << direction;
    weft__acquire(&p->lock);
    weft__slot *slot = &p->slots[WEFT__KEY_SLOT(key)];
    if (!atom_load_rlx(&p->dead) && !(slot->interest & bit)) {
        slot->interest |= bit;
        p->driver.ops->wake(&p->driver);
    }
    weft__release(&p->lock);
}

static void poll_end(weft__poller *base)
{
    poll_poller *p = (poll_poller *)(void *)base;
    weft__free(p->polled);
    weft__free(p->keys);
}

/* Room for the whole table plus the wake descriptor. False: no memory. */
static bool reserve(poll_poller *p)
{
    weft__acquire(&p->base.lock);
    uint32_t want = p->base.capacity + 1;
    weft__release(&p->base.lock);
    if (want <= p->capacity)
        return true;
    struct pollfd *polled = weft__calloc(want, sizeof *polled);
    uint64_t *keys = weft__calloc(want, sizeof *keys);
    if (!polled || !keys) {
        weft__free(polled);
        weft__free(keys);
        return false;
    }
    weft__free(p->polled);
    weft__free(p->keys);
    p->polled = polled;
    p->keys = keys;
    p->capacity = want;
    return true;
}

/* The armed part of the table; returns how many, the wake descriptor included. */
static uint32_t fill(poll_poller *p)
{
    uint32_t n = 0;
    p->polled[n] = (struct pollfd){.fd = p->base.wake_fd, .events = POLLIN};
    p->keys[n++] = WEFT__KEY_WAKE;
    weft__acquire(&p->base.lock);
    for (uint32_t i = 0; i < p->base.used && n < p->capacity; i++) {
        const weft__slot *slot = &p->base.slots[i];
        if (!slot->fd || !slot->interest)
            continue;
        short events = (short)((slot->interest & 1u << WEFT__READ ? POLLIN | POLLPRI : 0) |
                               (slot->interest & 1u << WEFT__WRITE ? POLLOUT : 0));
        p->polled[n] = (struct pollfd){.fd = slot->number, .events = events};
        p->keys[n++] = (uint64_t)slot->generation << 32 | i;
    }
    weft__release(&p->base.lock);
    return n;
}

/* One entry's answer, under the lock: the reported directions are disarmed. */
static int report(poll_poller *p, uint32_t i, weft__wakes *wakes)
{
    uint64_t key = p->keys[i];
    weft__slot *slot = &p->base.slots[WEFT__KEY_SLOT(key)];
    short e = p->polled[i].revents;
    unsigned events = 0;
    if (!slot->fd || slot->generation != (uint32_t)(key >> 32))
        return 0;
    if (e & (POLLIN | POLLPRI | POLLHUP | POLLERR | POLLNVAL)) {
        /* poll(2) without POLLRDHUP cannot tell the end from data: take it as both. */
        events |= WEFT__READABLE | WEFT__READ_ENDS;
        slot->interest &= ~(1u << WEFT__READ);
    }
    if (e & (POLLOUT | POLLHUP | POLLERR | POLLNVAL)) {
        events |= WEFT__WRITABLE | WEFT__WRITE_ENDS;
        slot->interest &= ~(1u << WEFT__WRITE);
    }
    return weft__poller_event(&p->base, key, events, wakes);
}

static int poll_until(poll_poller *p, uint32_t n, weft_time deadline)
{
    struct timespec limit = {0, 0};
    if (deadline != WEFT_TRY && deadline != WEFT_NEVER) {
        weft_time left = deadline - weft__sys_now();
        if (left > 0)
            limit = (struct timespec){.tv_sec = (time_t)(left / WEFT_SEC),
                                      .tv_nsec = (long)(left % WEFT_SEC)};
    }
    return ppoll(p->polled, n, deadline == WEFT_NEVER ? NULL : &limit, NULL);
}

static int poll_collect(weft__driver *driver, weft_time deadline)
{
    poll_poller *p = (poll_poller *)(void *)driver;
    bool blocks = deadline != WEFT_TRY && weft__poller_block_begin(&p->base);
    /* The list is made after block_begin: an arm that comes later wakes the poll. */
    (void)reserve(p); /* else the part that has room is polled this time */
    if (!p->capacity) {
        if (blocks)
            weft__poller_block_end(&p->base);
        return 0;
    }
    uint32_t count = fill(p);
    int n = poll_until(p, count, blocks ? deadline : WEFT_TRY);
    if (blocks)
        weft__poller_block_end(&p->base);
    if (n <= 0)
        return 0;
    if (p->polled[0].revents) {
        uint64_t value;
        (void)!read(p->base.wake_fd, &value, sizeof value); /* levels: empty it */
    }
    weft__wakes wakes = {NULL, NULL};
    int woken = 0;
    weft__acquire(&p->base.lock);
    for (uint32_t i = 1; i < count; i++) {
        if (p->polled[i].revents)
            woken += report(p, i, &wakes);
    }
    weft__release(&p->base.lock);
    weft__wakes_run(&wakes);
    return woken;
}

static const weft__driver_ops poll_driver_ops = {poll_collect, weft__poller_wake, weft__poller_free,
                                                 NULL};
static const weft__poller_ops poll_poller_ops = {poll_watch, poll_unwatch, poll_arm, poll_end};

int weft__poll_new(weft__poller **ret)
{
    poll_poller *p = weft__calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    int r = weft__poller_init(&p->base, &poll_driver_ops, &poll_poller_ops);
    if (r) {
        weft__free(p);
        return r;
    }
    *ret = &p->base;
    return 0;
}

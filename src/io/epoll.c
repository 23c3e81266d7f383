/* SPDX-License-Identifier: MIT
 *
 * epoll.c -- the readiness driver on Linux's epoll.
 *
 * Edge-triggered, both directions in one registration, entered once and never changed:
 * an exchange of messages costs the reads, the writes and its share of one epoll_wait,
 * no epoll_ctl. A registration whose descriptor was closed here lives on when its
 * description has a duplicate elsewhere (fork, SCM_RIGHTS); it is taken out by its
 * number before that is closed, and should an event still come, its key is nobody's
 * and, being an edge, it does not come again.
 *
 * Deadlines go to epoll_pwait2 in nanoseconds; where the kernel has none (before 5.11),
 * to epoll_wait in milliseconds rounded up: late by less than one, never early.
 */
#include "io/poller.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 256, AHEAD = 4 };

typedef struct epoll_poller {
    weft__poller base;
    int epoll;
    bool no_pwait2;
    struct epoll_event events[BATCH]; /* one thread at a time is in wait() */
} epoll_poller;

static int epoll_watch(weft__poller *p, int fd, uint64_t key)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET,
                            .data.u64 = key};
    return epoll_ctl(((epoll_poller *)(void *)p)->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

static void epoll_unwatch(weft__poller *p, int fd, uint64_t key)
{
    (void)key;
    struct epoll_event unused = {0};
    /* Fails only if a borrowed descriptor was closed behind our back. */
    (void)epoll_ctl(((epoll_poller *)(void *)p)->epoll, EPOLL_CTL_DEL, fd, &unused);
}

static void epoll_end(weft__poller *p)
{
    close(((epoll_poller *)(void *)p)->epoll);
}

static unsigned translate(uint32_t e)
{
    unsigned r = 0;
    if (e & (EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        r |= WEFT__READABLE;
    if (e & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        r |= WEFT__WRITABLE;
    if (e & (EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        r |= WEFT__READ_ENDS;
    if (e & (EPOLLHUP | EPOLLERR))
        r |= WEFT__WRITE_ENDS;
    return r;
}

static int timed_wait(epoll_poller *p, weft_time deadline)
{
    weft_time left = deadline - weft__sys_now();
    if (left <= 0)
        return epoll_wait(p->epoll, p->events, BATCH, 0);
    if (!p->no_pwait2) {
        struct timespec limit = {.tv_sec = (time_t)(left / WEFT_SEC),
                                 .tv_nsec = (long)(left % WEFT_SEC)};
        int n = epoll_pwait2(p->epoll, p->events, BATCH, &limit, NULL);
        if (n >= 0 || errno != ENOSYS)
            return n;
        p->no_pwait2 = true;
    }
    weft_time ms = left / WEFT_MSEC + (left % WEFT_MSEC != 0);
    return epoll_wait(p->epoll, p->events, BATCH, ms < INT32_MAX ? (int)ms : INT32_MAX);
}

static int epoll_collect(weft__driver *driver, weft_time deadline)
{
    epoll_poller *p = (epoll_poller *)(void *)driver;
    int n;
    if (deadline == WEFT_TRY || !weft__poller_block_begin(&p->base)) {
        n = epoll_wait(p->epoll, p->events, BATCH, 0);
    } else {
        n = deadline == WEFT_NEVER ? epoll_wait(p->epoll, p->events, BATCH, -1)
                                   : timed_wait(p, deadline);
        weft__poller_block_end(&p->base);
    }
    if (n <= 0)
        return 0; /* EINTR is one more early return */

    weft__wakes wakes = {NULL, NULL};
    int woken = 0;
    weft__acquire(&p->base.lock);
    for (int i = 0; i < n; i++) {
        if (i + 2 * AHEAD < n)
            weft__poller_fetch(&p->base, p->events[i + 2 * AHEAD].data.u64, false);
        if (i + AHEAD < n)
            weft__poller_fetch(&p->base, p->events[i + AHEAD].data.u64, true);
        if (p->events[i].data.u64 != WEFT__KEY_WAKE)
            woken += weft__poller_event(&p->base, p->events[i].data.u64,
                                        translate(p->events[i].events), &wakes);
    }
    weft__release(&p->base.lock);
    weft__wakes_run(&wakes);
    return woken;
}

static int epoll_fd(weft__driver *driver)
{
    return ((epoll_poller *)(void *)driver)->epoll;
}

static const weft__driver_ops epoll_driver_ops = {epoll_collect, weft__poller_wake,
                                                  weft__poller_free, epoll_fd};
static const weft__poller_ops epoll_poller_ops = {epoll_watch, epoll_unwatch, NULL, epoll_end};

int weft__epoll_new(weft__poller **ret)
{
    epoll_poller *p = weft__calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    int r = weft__poller_init(&p->base, &epoll_driver_ops, &epoll_poller_ops);
    if (r) {
        weft__free(p);
        return r;
    }
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll < 0) {
        r = -errno;
    } else {
        struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = WEFT__KEY_WAKE};
        if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->base.wake_fd, &e) == 0) {
            *ret = &p->base;
            return 0;
        }
        r = -errno;
        close(p->epoll);
    }
    close(p->base.wake_fd);
    weft__poller_unref(&p->base);
    return r;
}

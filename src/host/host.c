/* SPDX-License-Identifier: MIT
 *
 * host.c -- see weft/host.h.
 *
 * The wait is a ppoll(2) on two descriptors: the runtime's, which is readable for
 * every reason a turn of it can have, and an eventfd for weft_host_wake. plan() arms the
 * first in the same step in which it finds nothing to do, so what arrives between the
 * plan and the ppoll is not missed; the eventfd is a level and is drained only after
 * a wait, before the turn that looks.
 *
 * Invariants
 *   H1  A wait is limited by the pacer only when a source said that it is waiting, or
 *       broke its own due time; a turn with progress is followed by no wait.
 *   H2  A due time ends a wait once: one that had passed when the turn began has had its
 *       look, so a source that does not keep its word is paced and cannot spin the host.
 *
 * Who may touch what: the counters and `stop` are read or set by any thread; everything
 * else is the driving thread's.
 */
#include "weft/host.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/base.h"
#include "base/sys.h"
#include "weft/pacer.h"

struct weft_host {
    weft_runtime *rt;
    weft_poll_source *first;
    weft_poll_source *cursor; /* the source after the one that looks; moved by remove */
    weft_driven_budget budget;
    weft_pacer pacer;
    weft_time due; /* earliest due time of the sources that is to be kept */
    bool looking;  /* a source is waiting for what nobody announces */
    bool progress; /* of the last turn */
    bool in_turn;
    int runtime_fd, wake_fd;
    weft__a32 stop;
    weft__a64 turns, moved, waits, paced;
};

int weft_host_new(weft_runtime *rt, const weft_host_options *options, weft_host **ret)
{
    const weft_host_options none = {0};
    const weft_host_options *o = options ? options : &none;
    weft_pacer pacer;
    if (!ret || o->budget.time < 0 || weft_pacer_init(&pacer, o->floor, o->ceiling))
        return -EINVAL;
    int runtime_fd = weft_driven_fd(rt);
    if (runtime_fd < 0)
        return runtime_fd;
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        return -errno;
    weft_host *h = weft__calloc(1, sizeof *h);
    if (!h) {
        close(wake_fd);
        return -ENOMEM;
    }
    h->rt = rt;
    h->budget = o->budget;
    h->pacer = pacer;
    h->due = WEFT_NEVER;
    h->progress = true; /* nobody has looked yet */
    h->runtime_fd = runtime_fd;
    h->wake_fd = wake_fd;
    *ret = h;
    return 0;
}

weft_host *weft_host_free(weft_host *h)
{
    if (!h)
        return NULL;
    while (h->first)
        weft_host_remove(h, h->first);
    close(h->wake_fd);
    weft__free(h);
    return NULL;
}

/* ---- Sources ---- */

int weft_host_add(weft_host *h, weft_poll_source *source)
{
    if (!h || !source || !source->look)
        return -EINVAL;
    if (source->weft__host)
        return -EALREADY;
    source->weft__host = h;
    source->weft__next = h->first;
    h->first = source;
    h->progress = true; /* it has not looked yet: no wait before it has */
    return 0;
}

int weft_host_remove(weft_host *h, weft_poll_source *source)
{
    if (!h || !source)
        return -EINVAL;
    if (source->weft__host != h)
        return -ENOENT;
    weft_poll_source **at = &h->first;
    while (*at != source)
        at = &(*at)->weft__next;
    *at = source->weft__next;
    if (h->cursor == source)
        h->cursor = source->weft__next;
    source->weft__next = NULL;
    source->weft__host = NULL;
    return 0;
}

/* Every source looks; true when one of them moved something. `began`: see H2. */
static bool look_all(weft_host *h, weft_time began)
{
    bool progress = false;
    h->looking = false;
    h->due = WEFT_NEVER;
    for (weft_poll_source *s = h->first; s; s = h->cursor) {
        h->cursor = s->weft__next;
        weft_time due = WEFT_NEVER;
        int r = s->look(s->arg, &due); /* s may be gone unless it is still to be removed */
        if (r < 0) {
            weft_host_remove(h, s);
            continue;
        }
        if (r == WEFT_POLL_PROGRESS)
            progress = true;
        else if (r != WEFT_POLL_IDLE || due <= began)
            h->looking = true;
        if (due > began && due < h->due)
            h->due = due;
    }
    return progress;
}

/* ---- Turns ---- */

int weft_host_turn(weft_host *h)
{
    if (!h)
        return -EINVAL;
    if (h->in_turn)
        return -EBUSY;
    h->in_turn = true;
    weft_time began = h->first ? weft__sys_now() : 0;
    int runs = weft_driven_turn(h->rt, &h->budget);
    if (runs >= 0) {
        h->progress = false; /* before the sources: one of them may add another */
        if (look_all(h, began) || runs > 0)
            h->progress = true;
        atom_add_rlx(&h->turns, 1u);
        if (h->progress) {
            atom_add_rlx(&h->moved, 1u);
            weft_pacer_progress(&h->pacer);
        }
    }
    h->in_turn = false;
    return runs < 0 ? runs : h->progress;
}

static void drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

/* Sleeps until one of the two descriptors is readable or the time has come. */
static void sleep_until(weft_host *h, weft_time now, weft_time limit)
{
    struct pollfd fds[] = {{.fd = h->runtime_fd, .events = POLLIN},
                           {.fd = h->wake_fd, .events = POLLIN}};
    struct timespec ts = {0, 0}, *timeout = NULL;
    if (limit != WEFT_NEVER) {
        weft_time left = limit > now ? limit - now : 0;
        ts.tv_sec = (time_t)(left / WEFT_SEC);
        ts.tv_nsec = (long)(left % WEFT_SEC);
        timeout = &ts;
    }
    atom_add_rlx(&h->waits, 1u);
    int n = ppoll(fds, 2, timeout, NULL);
    WEFT__CHECK(n >= 0 || errno == EINTR || errno == ENOMEM);
    if (n > 0 && fds[1].revents)
        drain(h->wake_fd);
}

int weft_host_wait(weft_host *h, weft_time deadline)
{
    weft_time until;
    if (!h)
        return -EINVAL;
    if (h->in_turn)
        return -EBUSY;
    if (h->progress)
        return 0;
    int plan = weft_driven_plan(h->rt, NULL, &until);
    if (plan < 0 || plan == WEFT_PLAN_NOW)
        return plan < 0 ? plan : 0;
    if (h->due < until)
        until = h->due;
    weft_time now = weft__sys_now();
    if (until <= now)
        return 0;
    if (deadline <= now)
        return -ETIMEDOUT;
    weft_time known = deadline < until ? deadline : until;
    weft_time limit = h->looking ? weft_pacer_next(&h->pacer, now, known) : known;
    if (limit < known)
        atom_add_rlx(&h->paced, 1u);
    sleep_until(h, now, limit);
    return limit == deadline && deadline != WEFT_NEVER && weft__sys_now() >= deadline ? -ETIMEDOUT
                                                                                      : 0;
}

int weft_host_run(weft_host *h, weft_time deadline)
{
    if (!h)
        return -EINVAL;
    for (;;) {
        /* Read before the turn, so that what came before the stop is in that turn.
         * Acquire: pairs with weft_host_stop. */
        bool stop = atom_load_acq(&h->stop);
        int r = weft_host_turn(h);
        if (r < 0)
            return r;
        if (stop) {
            atom_store_rlx(&h->stop, 0u);
            return 0;
        }
        if (r > 0 && weft__sys_now() >= deadline)
            return -ETIMEDOUT;
        r = weft_host_wait(h, deadline);
        if (r == -ETIMEDOUT && atom_load_acq(&h->stop))
            continue;
        if (r < 0)
            return r;
    }
}

/* ---- From any thread ---- */

int weft_host_wake(weft_host *h)
{
    if (!h)
        return -EINVAL;
    int saved = errno; /* a signal handler may call this */
    uint64_t one = 1;
    ssize_t n;
    do
        n = write(h->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    WEFT__CHECK(n == sizeof one || errno == EAGAIN); /* full: it is readable anyway */
    errno = saved;
    return 0;
}

int weft_host_stop(weft_host *h)
{
    if (!h)
        return -EINVAL;
    atom_store_rel(&h->stop, 1u); /* before the wake: pairs with weft_host_run */
    return weft_host_wake(h);
}

int weft_host_get_stats(const weft_host *host, weft_host_stats *ret_stats)
{
    if (!host || !ret_stats)
        return -EINVAL;
    weft_host *h = (weft_host *)(uintptr_t)host; /* only loads; the atomics take no const */
    *ret_stats = (weft_host_stats){
        .turns = atom_load_rlx(&h->turns),
        .progress = atom_load_rlx(&h->moved),
        .waits = atom_load_rlx(&h->waits),
        .paced = atom_load_rlx(&h->paced),
    };
    return 0;
}

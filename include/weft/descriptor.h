/* SPDX-License-Identifier: MIT
 *
 * weft/descriptor.h -- wakers and descriptors for a caller's own loop: a channel, a task,
 * a value, an event or a wait group, watched without taking anything from it.
 *
 *     weft_descriptor *d;
 *     weft_descriptor_channel(pool, channel, WEFT_CHANNEL_READABLE, NULL, &d);
 *     struct pollfd p = {.fd = weft_descriptor_fd(d), .events = POLLIN};
 *     while (poll(&p, 1, -1) >= 0)
 *         while (weft_descriptor_check(d) == 1)      // lowers the descriptor when it is 0
 *             if (weft_channel_recv(channel, &item, WEFT_TRY) == 0)
 *                 use(item);
 *
 * The descriptor is a level: it is readable whenever the thing is ready, for as long as it
 * is. It carries no data; never read it. When the thing stops being ready (another took the
 * last item), the descriptor stays readable until the next weft_descriptor_check, which
 * answers 0, lowers it and arms it again; so a loop calls check after each poll that
 * found it readable, and never waits in vain.
 *
 * The waker is an edge: it is called once, from whichever thread makes the thing ready,
 * after a check that answered 0. One may use either or both.
 *
 * Sockets have a number of their own (weft_fd_number), a host-driven runtime has
 * weft_driven_fd, and the tasks of named workers have weft_sent_fd and weft_received_fd.
 *
 * Concurrency: on one weft_descriptor, one thread at a time. The thing that it watches is
 * used by any thread as ever. A pool is used by any thread.
 */
#ifndef WEFT_DESCRIPTOR_H
#define WEFT_DESCRIPTOR_H

#include "weft/base.h"
#include "weft/channel.h"
#include "weft/event.h"
#include "weft/task.h"
#include "weft/value.h"
#include "weft/waitgroup.h"
#include "weft/waker.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_descriptor weft_descriptor;           /* opaque */
typedef struct weft_descriptor_pool weft_descriptor_pool; /* opaque */

/* Creates a pool, which keeps up to `keep` descriptors that are not in use (0: 64), so that
 * short-lived handles cost no system calls to open and close one.
 * Returns 0; -EINVAL (NULL, keep above 65536); -ENOMEM.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_descriptor_pool_new(unsigned keep, weft_descriptor_pool **ret);

/* Ends the pool; what was taken from it lives on and is closed when it is freed. NULL is
 * fine. Returns NULL. Callable from: any thread, any task. */
WEFT_API weft_descriptor_pool *weft_descriptor_pool_free(weft_descriptor_pool *pool);

/* How many descriptors the pool holds idle; 0 for NULL.
 * Callable from: any thread, any task. */
WEFT_API unsigned weft_descriptor_pool_idle(weft_descriptor_pool *pool);

/* Watch a thing. The first check or fd looks at it; before that, nothing is armed.
 *
 * pool   where the eventfd comes from when it is asked for; NULL: opened and closed
 * what   WEFT_CHANNEL_READABLE: a receive would not wait; WEFT_CHANNEL_WRITABLE: nor a send
 * waker  copied; NULL: none. Its arg must stay valid until weft_descriptor_free returns. It
 *        must not call weft_descriptor_free on this one, nor anything that parks
 * ret    set on success only; the caller owns it
 *
 * A channel and a task are kept by a reference; an event, a value and a wait group must
 * outlive the descriptor. Ready means: the task has ended; the event or value is set; the
 * group is at zero; the channel has an item (or room), or is closed.
 *
 * Returns 0; -EINVAL (NULL, `what` is neither, a channel of capacity 0, in which nothing
 * ever lies); -ENOMEM. Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_descriptor_channel(weft_descriptor_pool *pool, weft_channel *ch,
                                                   int what, const weft_waker *waker,
                                                   weft_descriptor **ret);
WEFT_API WEFT_MUST_USE int weft_descriptor_task(weft_descriptor_pool *pool, weft_task *task,
                                                const weft_waker *waker, weft_descriptor **ret);
WEFT_API WEFT_MUST_USE int weft_descriptor_event(weft_descriptor_pool *pool, weft_event *event,
                                                 const weft_waker *waker, weft_descriptor **ret);
WEFT_API WEFT_MUST_USE int weft_descriptor_value(weft_descriptor_pool *pool, weft_value *value,
                                                 const weft_waker *waker, weft_descriptor **ret);
WEFT_API WEFT_MUST_USE int weft_descriptor_waitgroup(weft_descriptor_pool *pool,
                                                     weft_waitgroup *group, const weft_waker *waker,
                                                     weft_descriptor **ret);

/* Looks whether the thing is ready. 0 arms it: the descriptor is lowered and will be
 * raised, and the waker called, as soon as the thing is ready.
 *
 * Returns 1 (ready now; the descriptor is readable), 0 (not ready; armed), -EINVAL (NULL).
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_descriptor_check(weft_descriptor *d);

/* The descriptor to poll (POLLIN), made at the first call; it belongs to d. Arms it.
 * Returns it; -EINVAL (NULL); -EMFILE, -ENFILE, -ENOMEM.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API int weft_descriptor_fd(weft_descriptor *d);

/* Stops watching and gives the descriptor back to its pool. When it returns, the waker is
 * not running and will not be called: a call in progress on another thread is waited
 * for. NULL is fine. Returns NULL.
 * Callable from: any thread, any task; not from its own waker. */
WEFT_API weft_descriptor *weft_descriptor_free(weft_descriptor *d);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * driver.h -- what the scheduler knows of readiness drivers: where an idle worker
 * sleeps while descriptors are watched.
 *
 * A runtime has no driver until the io room installs one (the first socket that has
 * to wait), so a runtime without sockets owns no descriptor. The scheduler lets one
 * thread at a time into wait(): the poller.
 */
#ifndef WEFT_SRC_DRIVER_H
#define WEFT_SRC_DRIVER_H

#include "base/base.h"

struct weft_runtime;

typedef struct weft__driver weft__driver;

typedef struct weft__driver_ops {
    /* Collects events and unparks whom they concern; blocks until there is one, until
     * wake() or until the deadline (WEFT_TRY: looks only; WEFT_NEVER: no limit). May
     * return early for no reason. One thread at a time, always a worker. Returns how
     * many parkers it unparked. */
    int (*wait)(weft__driver *driver, weft_time deadline);
    /* Makes the wait() in progress, or else the next one, return at once. Any thread,
     * any number of times. */
    void (*wake)(weft__driver *driver);
    /* After the last wait(); no waiter is left. */
    void (*free)(weft__driver *driver);
    /* A descriptor that is readable while wait() has something to report, for hosts
     * that poll; NULL, or a negative answer: there is none. */
    int (*fd)(weft__driver *driver);
} weft__driver_ops;

struct weft__driver {
    const weft__driver_ops *ops;
};

/* The runtime's driver; NULL before one was installed. */
weft__driver *weft__runtime_driver(struct weft_runtime *rt);

/* Installs `driver` unless another was installed meanwhile; returns the one that is
 * installed (the caller frees its own if that is another). A worker that sleeps
 * elsewhere is moved to it. */
weft__driver *weft__runtime_install_driver(struct weft_runtime *rt, weft__driver *driver);

#endif

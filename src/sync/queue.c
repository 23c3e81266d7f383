/* SPDX-License-Identifier: MIT
 *
 * queue.c -- waking a whole queue in batches.
 *
 * The lock is dropped between two batches, and waiters that were woken may return
 * by then; when the rest time out meanwhile, nobody might be left who keeps the
 * object alive. So each batch holds back one waiter that is claimed but not yet
 * unparked: it cannot return, hence the object cannot be gone, until the lock has
 * been taken again (or is not needed any more).
 */
#include "sync/queue.h"

void weft__queue_wake_all(weft__lock *lock, weft__list *taken, int result)
{
    weft__parker *hostage = NULL;
    for (;;) {
        weft__wakes wakes = {NULL, NULL};
        weft__parker *next_hostage = NULL;
        for (int i = 0; i < WEFT__WAKE_BATCH; i++) {
            weft__wait_node *n = weft__queue_claim(taken, result);
            if (!n)
                break;
            if (next_hostage)
                weft__wakes_add(&wakes, next_hostage);
            next_hostage = n->parker;
        }
        bool more = !weft__list_empty(taken);
        weft__release(lock);
        if (hostage)
            weft__unpark(hostage);
        weft__wakes_run(&wakes);
        hostage = next_hostage;
        if (!more)
            break;
        /* A batch ends early only when the queue is empty, so `more` means that
         * there is a hostage. */
        weft__acquire(lock);
    }
    if (hostage)
        weft__unpark(hostage);
}

/* SPDX-License-Identifier: MIT
 *
 * signal.h -- a descriptor that is readable while its owner has something to say:
 * an eventfd, or one end of a socket pair, behind one interface, and their pool.
 *
 * A signal is a level, kept with at most one token in the descriptor:
 *
 *   up == false   no token is in the descriptor, none is on its way
 *   up == true    one token is in it, or is on its way (its raiser has released the
 *                 lock and has yet to write)
 *
 * `up` is guarded by the owner's lock; the system calls are made outside of it. Who
 * wants to lower it reads first: a token that is still on its way cannot be read, the
 * signal stays up, and the reader is woken once more for nothing. So a raise is never
 * lost, and `up` is never false with a token on its way.
 *
 * Lifetime: who raises keeps the signal's owner alive until it has written.
 */
#ifndef WEFT_SRC_BGWORKER_SIGNAL_H
#define WEFT_SRC_BGWORKER_SIGNAL_H

#include "base/base.h"
#include "base/lock.h"

#include "weft/bgworker.h"

typedef struct weft__signal {
    bool made, up;
    int fd;                    /* to poll */
    int wfd;                   /* to raise; the same for an eventfd */
    struct weft__signal *next; /* of the raiser, between raise and write */
} weft__signal;

typedef struct weft__fd_pair {
    int fd, wfd;
} weft__fd_pair;

typedef struct weft__fd_pool {
    weft__lock lock;
    weft_descriptor_kind kind;
    unsigned idle, limit;
    weft__a32 made, lent; /* descriptors ever made; now with an owner */
    weft__fd_pair *pairs; /* `limit` of them */
} weft__fd_pool;

/* 0, -ENOMEM, -ENOTSUP. */
int weft__fd_pool_init(weft__fd_pool *pool, weft_descriptor_kind kind, unsigned limit);
void weft__fd_pool_fini(weft__fd_pool *pool);

/* An idle pair or a new one, not readable. 0 or -EMFILE, -ENFILE, -ENOMEM. */
int weft__fd_pool_get(weft__fd_pool *pool, weft__fd_pair *ret);
void weft__fd_pool_put(weft__fd_pool *pool, weft__fd_pair pair);

/* Gives the signal its descriptor unless it has one. The owner's lock is free when
 * called; 0 or as above. */
int weft__signal_open(weft__signal *s, weft__fd_pool *pool, weft__lock *owner);

/* Gives the descriptor back; nobody else knows the signal any more. */
void weft__signal_close(weft__signal *s, weft__fd_pool *pool);

/* Under the owner's lock: true when the caller must weft__signal_write after it. */
static inline bool weft__signal_raise(weft__signal *s)
{
    if (!s->made || s->up)
        return false;
    s->up = true;
    return true;
}

void weft__signal_write(const weft__signal *s);

/* Takes the token out; outside of the lock. True: the caller has taken the one token,
 * and sets `up` to what is right under the lock. */
bool weft__signal_drain(const weft__signal *s);

#endif

/* SPDX-License-Identifier: MIT
 *
 * bgworker.h -- what the files of this room share.
 *
 *   registry.c  names, references, what holds for all workers
 *   worker.c    a worker: start, attached seats, ready points, watching, figures
 *   run.c       a seat's thread or fiber: runs, failures, back-off
 *   leave.c     restart and stop
 *   seat.c      inside a loop: tick, receive, descriptor; who is woken for a task
 *   send.c      handing a task over, up to the pickup
 *   task.c      a task from the pickup on: updates, ends, outcomes
 *   vars.c      ready points, published variables, cycles of waiting workers
 *
 * Locks. No two are ever held at once, but worker->lock under reg->lock in vars.c; and
 * none over a system call, but the wake that weft__cancel makes under seat->lock.
 *   reg->lock    the table of names, reg->workers, seat->waits_for
 *   worker->lock queue, waiting seats, states of the seats, watchers, vars
 *   seat->lock   what the seat holds, and whom to cancel
 *   task->lock   updates, ends, both sides' waits
 *
 * The pickup
 *   A sender puts its task's `entry` into the worker's queue; the entry is the wait node
 *   of its own wait. A seat takes the first entry it can *claim*: that one
 *   compare-and-swap decides between "picked up" (the send returns 0) and "given up"
 *   (time-out, cancellation; certainly not run). A posted task has no waiter (parker ==
 *   NULL): there, being linked in the queue under worker->lock is the decision.
 *
 *   Q1  An entry is linked only while its task has not been picked up.
 *   Q2  A seat that goes to wait while an entry is linked returns at once.
 *   Q3  At most as many entries are linked as seats are `coming`, or no seat waits. A
 *       coming seat was woken inside weft_seat_receive and goes straight to the queue. So
 *       a send wakes one waiting seat unless enough are on their way: at most one wake a
 *       send. A seat woken through its descriptor may be anywhere in its loop, and does
 *       not count as coming.
 *   Q4  A seat that was woken and leaves without having taken a task, while entries are
 *       linked, wakes the next (weft__pass_on). So wakes are not lost, with any loop.
 *   Q5  A seat with a descriptor is in the list of waiting seats (armed), or its
 *       descriptor is readable (or about to be): never neither. So it is woken whatever
 *       the order in which its loop polls, ticks and receives.
 */
#ifndef WEFT_SRC_BGWORKER_H
#define WEFT_SRC_BGWORKER_H

#include "base/list.h"
#include "bgworker/signal.h"
#include "bgworker/spin.h"
#include "wait/wait.h"

#include "weft/bgworker.h"
#include "weft/task.h"

#include <pthread.h>

#ifdef WEFT_MODEL
#define WEFT__FALLBACK WEFT_NEVER /* the protocol must do without */
#else
#define WEFT__FALLBACK (10 * WEFT_MSEC) /* without a pickup for so long, all are woken */
#endif
#define WEFT__BUCKETS 64

typedef struct weft__task weft__task;

struct weft_registry {
    weft__a32 refs; /* the owner, each worker, each task */
    weft__lock lock;
    bool stopped;
    weft__list buckets[WEFT__BUCKETS]; /* workers by name, weft_worker.by_name */
    weft__list workers;                /* in the order of their start */
    weft__fd_pool pool;
    weft__a32 next_worker;
    weft_worker_hooks hooks;
    void *hooks_arg;
    bool spins; /* more than one processor */
};

typedef enum weft__worker_state {
    WEFT__WORKER_RUNS = 0,
    WEFT__WORKER_STOPS,  /* seats are leaving */
    WEFT__WORKER_JOINS,  /* one caller of stop is joining the threads */
    WEFT__WORKER_STOPPED /* the name is free */
} weft__worker_state;

struct weft_worker {
    /* Constant after the start. */
    weft_registry *reg;
    char name[WEFT_NAME_MAX + 1], scope[WEFT_NAME_MAX + 1];
    weft_worker_options options;
    uint64_t first_id; /* of its tasks */

    weft__link by_name, in_order; /* reg->lock */
    weft__a32 refs;

    WEFT__ALIGNED(WEFT__CACHE_LINE) weft__lock lock;
    /* Under the lock: */
    weft__worker_state state;
    unsigned queued, posted;  /* linked entries; those of them that were posted */
    weft__list queue;         /* weft__task.entry, first come, first served */
    weft__list awake, parked; /* weft_seat.node: spins; sleeps or polls. First in, first out */
    unsigned notified;        /* seats woken for a task that have not come yet */
    unsigned coming;          /* those of them that were in weft_seat_receive */
    uint32_t changes;         /* anything a watcher may wait for */
    weft__list watchers;      /* wait nodes */
    weft__list seats;         /* weft_seat.link; stay until the worker is freed */
    unsigned count, alive, given_up, ready;
    bool starting; /* weft_worker_start is still making seats */
    weft_buffer *vars;
    bool published;
    uint64_t restarts, failures, fallback_wakes, late_wakes, sent;

    WEFT__ALIGNED(WEFT__CACHE_LINE) weft__a64 outcomes[WEFT_TASK_OUTCOMES];
    weft__a64 task_ns;
    weft__spin receive_spin, send_spin, read_spin;
};

typedef enum weft__seat_state {
    WEFT__SEAT_FREE = 0, /* nobody sits in it: not started, detached, left for good */
    WEFT__SEAT_RUNS,
    WEFT__SEAT_BACKOFF,
    WEFT__SEAT_GIVEN_UP
} weft__seat_state;

struct weft_seat {
    weft__link link;
    weft_worker *worker;
    unsigned index;
    char label[32]; /* "name#3", cut */
    bool attached;

    /* worker->lock: */
    weft__seat_state state;
    bool is_ready, notified, coming;
    int boot_error;       /* how the last run ended before it was ready; 0: it was not so */
    weft_time since;      /* of the state */
    weft__wait_node node; /* in awake or parked; parker NULL: armed for the descriptor */
    weft__signal signal;
    pthread_t thread;
    bool has_thread;
    weft_task *fiber;  /* the one that sits here */
    weft__a32 leaving; /* asked to leave; written under the lock, read anywhere */

    int failures;        /* of the one who sits here */
    weft__a32 completed; /* tasks completed in this run */
    bool ticked;         /* likewise: is_ready without the lock */

    weft__a32 open;     /* tasks in hand */
    weft__a64 first_id; /* the first of them, for reports */
    weft__a64 first_at;

    weft__lock lock;
    /* seat->lock: */
    weft__list held;             /* weft__task.hold: received handles not freed yet */
    weft__parker *sitter;        /* during a run of a seat that is not attached */
    bool cancelled;              /* the sitter was */
    weft__parker *interruptible; /* a wait that ends when the seat is asked to leave */

    weft_worker *waits_for; /* reg->lock: for this one's ready point */
};

enum { WEFT__RING = WEFT_UPDATES_MAX + 1 }; /* one place is kept for the result */

struct weft__task {
    weft__a32 refs; /* sender's handle, receiver's handle, the queue (posted) */
    weft__lock lock;
    weft_worker *worker;
    weft_buffer *payload;
    uint64_t id;
    weft__wait_node entry;     /* worker->lock; in worker->queue until the pickup */
    weft_time pickup_deadline; /* of a posted task */
    bool posted;               /* the entry has no waiter */
    bool called;               /* posted, but by a caller who waits for the end */
    weft__task *next_expired;  /* of the taker, between unlinking and settling */

    weft_seat *seat; /* written at the pickup, before the sender runs on */
    weft_time picked_at;
    weft__link hold;   /* seat->lock */
    bool held;         /* seat->lock: in seat->held */
    weft__a32 counted; /* 1: in seat->open */

    /* task->lock: */
    weft_task_outcome outcome; /* also read without, by its owner's side */
    bool sender_done, receiver_done, abandoned, forgotten;
    unsigned head, count;
    weft__list readers, writers; /* wait nodes */
    weft__signal sender_signal, receiver_signal;
    weft_buffer *ring[WEFT__RING]; /* last: the only part that is not zero at first */
};

/* What is to be done once a lock is released. */
typedef struct weft__after {
    weft__wakes wakes;
    weft__signal *signals;
    weft__task *expired; /* posted tasks out of the queue, unpicked; each with its reference */
    weft_task_outcome expired_as; /* OPEN: time-out */
} weft__after;

static inline void weft__after_raise(weft__after *after, weft__signal *s)
{
    if (weft__signal_raise(s)) {
        s->next = after->signals;
        after->signals = s;
    }
}

void weft__after_run(weft__after *after);

/* ---- registry.c ---- */
void weft__registry_unref(weft_registry *reg);
/* Calls `visit` for each worker, in order, with a reference and without a lock; stops at
 * the first result that is not 0, and returns it. */
int weft__registry_visit(weft_registry *reg, int (*visit)(void *arg, weft_worker *w), void *arg);
bool weft__name_ok(const char *name, bool may_be_empty);
void weft__registry_forget(weft_worker *w);
int weft__registry_add(weft_worker *w);

/* ---- worker.c ---- */
weft_seat *weft__seat_of(weft__link *l);
void weft__changed(weft_worker *w, weft__after *after); /* under the lock */
int weft__watch(weft_worker *w, uint32_t seen, weft_time deadline, weft_seat *from,
                const char *what);
int weft__ready_status(weft_worker *w); /* under the lock: 0, -EAGAIN, or why never */
void weft__names_add(char *names, size_t size, const char *name);

/* ---- run.c ---- */
weft_seat *weft__seat_new(weft_worker *w, bool attached);
void weft__seat_add(weft_seat *seat); /* under the lock */
int weft__seat_start(weft_worker *w);
void weft__seat_enter(weft_seat *seat, weft__seat_state state);

/* ---- leave.c ---- */
/* Ends every linked entry with `result`; the posted ones are settled by after_run. */
void weft__release_queue(weft_worker *w, int result, weft__after *after);
void weft__stop_begin(weft_worker *w);
int weft__stop_end(weft_worker *w, weft_time deadline, char *names, size_t size);

/* ---- seat.c ---- */
void weft__notify_one(weft_worker *w, weft__after *after); /* under the lock */
void weft__pass_on(weft_worker *w, weft__after *after);    /* under the lock */
void weft__seat_end(weft_seat *seat, int result);          /* a run has ended */
void weft__seat_ask(weft_seat *seat, weft__after *after);  /* under the lock: please leave */
void weft__seat_interrupt(weft_seat *seat);                /* ... the rest, without it */
/* Begins a wait of the caller that the seat's leave ends with outcome 1; NULL: an
 * ordinary one. -ESHUTDOWN: it leaves already, nothing was begun. */
int weft__begin(weft_seat *from, weft__parker *self, const char *what, const void *object);
/* After the commit. */
void weft__end(weft_seat *from);
/* Instead of the commit: the wait turned out not to be needed. */
void weft__unbegin(weft_seat *from, weft__parker *self);

/* ---- task.c ---- */
/* Takes over a reference to the worker; on success also one to the payload. */
weft__task *weft__task_new(weft_worker *w, weft_buffer *payload);
void weft__task_unref(weft__task *t);
/* Counts the outcome unless there is one; under the task's lock: true when it did. */
bool weft__settle(weft__task *t, weft_task_outcome outcome);
void weft__settled(weft__task *t, weft_task_outcome outcome); /* without: hooks */
void weft__task_expire(weft__task *t, weft_task_outcome outcome);
void weft__task_abort(weft__task *t);
void weft__task_hold(weft__task *t, weft_seat *seat);
/* Out of a posted task's queue; true when it was in it. */
bool weft__task_unqueue(weft__task *t);
/* weft_sent_read; *ret_last when nothing follows but the end. */
int weft__task_read(weft__task *t, weft_time deadline, weft_buffer **ret, bool *ret_last);

#endif

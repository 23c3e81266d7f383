/* SPDX-License-Identifier: MIT
 *
 * bgworker.h -- what the files of this room share.
 *
 *   registry.c  names, references, what holds for all workers
 *   worker.c    a worker: start, attached seats, ready points, watching, figures
 *   run.c       a seat's thread or fiber: runs, failures, back-off
 *   leave.c     restart and stop
 *   lane.c      where seats wait, and where tasks are made and handed to them
 *   seat.c      inside a loop: tick, receive, descriptor; who is woken for a task
 *   send.c      handing a task over, up to the pickup
 *   task.c      a task from the pickup on: updates, ends, outcomes
 *   vars.c      ready points, published variables, cycles of waiting workers
 *
 * Locks, in the order in which they may be nested; none is held over a system call, but
 * seat->lock over the wake that weft__cancel makes.
 *   reg->lock     the table of names (for writing), reg->workers, seat->waits_for
 *   stripe->lock  the table of names: a reader takes one of them, a writer takes all
 *   worker->lock  queue, armed seats, states of the seats, watchers, vars
 *   lane->lock    waiting seats, spare task blocks
 *   seat->lock    what the seat holds besides its slot, and whom to cancel
 *   task->lock    updates, ends, both sides' waits (never with another)
 *
 * Lanes
 *   A worker of threads has one lane; one of fibers has one for each worker of their
 *   runtime, so that senders and seats that run on the same processor meet without
 *   touching what another processor writes. A seat that waits inside weft_seat_receive is
 *   linked in one lane (seat->in_lane): the one of where it runs. A sender looks into its
 *   own lane first, then into the others.
 *
 * The pickup
 *   Direct: a sender that finds a waiting seat claims *the seat's* wait and leaves the
 *   task with it (seat->given). That claim is the pickup; the sender does not wait.
 *   Queued: nobody waits, so the task's `entry` goes into the worker's queue; the entry is
 *   the wait node of the sender's own wait. A seat takes the first entry it can *claim*:
 *   that one compare-and-swap decides between "picked up" (the send returns 0) and "given
 *   up" (time-out, cancellation; certainly not run). A posted task has no waiter (parker
 *   == NULL): there, being linked in the queue under worker->lock is the decision.
 *
 *   Q1  An entry is linked only while its task has not been picked up.
 *   Q2  While worker->lock is free: entries are linked, or seats are linked in lanes,
 *       never both. Who links an entry looks through all lanes under their locks before
 *       it lets go of worker->lock (weft__match); who links a seat reads w->queued under
 *       the lane's lock, and links only if it is zero. The lane's lock orders the two.
 *   Q3  So a send makes at most one wake: of the seat that has the task, or, when no seat
 *       waits in a lane, of one that waits through its descriptor. That one may be
 *       anywhere in its loop.
 *   Q4  A seat that was woken through its descriptor and leaves without having taken a
 *       task, while entries are linked, wakes the next (weft__pass_on). So wakes are not
 *       lost, with any loop.
 *   Q5  A seat with a descriptor is armed (in worker->armed), or waits in a lane, or its
 *       descriptor is readable (or about to be): never none of these. So it is woken
 *       whatever the order in which its loop polls, ticks and receives.
 *   Q6  `leaving` is stored before all lanes' locks are taken in turn (weft__seat_ask),
 *       and read under the lane's lock before a seat is linked: it is unlinked, or sees it.
 *
 * Memory
 *   A task's block comes from a lane's spare ones and goes back to the same lane. Each
 *   block that is out counts in lane->live, each lane in worker->memory: a task keeps the
 *   worker's memory without touching a count that all processors share. weft_worker.refs
 *   are the references of all others; with the last of them the lanes' own count goes.
 */
#ifndef WEFT_SRC_BGWORKER_H
#define WEFT_SRC_BGWORKER_H

#include "base/list.h"
#include "bgworker/here.h"
#include "bgworker/signal.h"
#include "bgworker/spin.h"
#include "wait/wait.h"

#include "weft/bgworker.h"
#include "weft/task.h"

#include <pthread.h>

/* The model test has its own. */
#ifndef WEFT__FALLBACK
#define WEFT__FALLBACK (10 * WEFT_MSEC) /* without a pickup for so long, all are woken */
#endif
/* What two processors write lies so far apart: processors fetch lines in pairs. */
#define WEFT__APART     128
#define WEFT__BUCKETS   64
#define WEFT__STRIPES   16 /* a power of two */
#define WEFT__LANES_MAX 16 /* likewise */

typedef struct weft__task weft__task;

/* Where seats wait, see above. */
typedef struct weft__lane {
    WEFT__ALIGNED(WEFT__APART) weft__lock lock;
    /* Under the lock: */
    weft__a32 waiting;        /* seats in the two lists; read without, as a hint */
    weft__list awake, parked; /* weft_seat.node: spins; sleeps. First in, first out */
    weft__task *spare;        /* blocks, through weft__task.next */
    unsigned spare_count;
    uint32_t live;    /* blocks that are out, and one while the worker has references */
    uint64_t numbers; /* tasks made here */
    weft__a64 sent;   /* handed over from here; read without */

    WEFT__ALIGNED(WEFT__APART) weft__a64 outcomes[WEFT_TASK_OUTCOMES];
    weft__a64 task_ns;
    weft_worker *worker;
    uint32_t index;
} weft__lane;

struct weft_registry {
    weft__a32 refs; /* the owner, each worker, each task */
    weft__lock lock;
    bool stopped;
    struct {
        WEFT__ALIGNED(WEFT__APART) weft__lock lock;
    } stripe[WEFT__STRIPES];
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
    uint32_t hash;     /* of scope and name */

    weft__link by_name, in_order; /* reg->lock; by_name also all stripes */
    weft__a32 refs;
    weft__a32 memory; /* lanes that still have something out */
    uint32_t lane_mask;
    weft__lane *lanes; /* lane_mask + 1 of them, behind the worker */

    WEFT__ALIGNED(WEFT__APART) weft__lock lock;
    /* Under the lock: */
    weft__worker_state state;
    weft__a32 queued;    /* linked entries; read without, see Q2 */
    unsigned posted;     /* those of them that were posted */
    weft__list queue;    /* weft__task.entry, first come, first served */
    weft__list armed;    /* weft_seat.arm: waits through its descriptor. First in, first out */
    unsigned notified;   /* armed seats woken for a task that have not come yet */
    uint32_t changes;    /* anything a watcher may wait for */
    weft__list watchers; /* wait nodes */
    weft__list seats;    /* weft_seat.link; stay until the worker is freed */
    unsigned count, alive, given_up, ready;
    bool starting; /* weft_worker_start is still making seats */
    weft_buffer *vars;
    bool published;
    uint64_t restarts, failures, fallback_wakes, late_wakes;
    uint64_t sent; /* through the queue */

    WEFT__ALIGNED(WEFT__APART) weft__spin receive_spin, send_spin, read_spin;
};

typedef enum weft__seat_state {
    WEFT__SEAT_FREE = 0, /* nobody sits in it: not started, detached, left for good */
    WEFT__SEAT_RUNS,
    WEFT__SEAT_BACKOFF,
    WEFT__SEAT_GIVEN_UP
} weft__seat_state;

struct weft_seat {
    WEFT__ALIGNED(WEFT__APART) weft__link link;
    weft_worker *worker;
    unsigned index;
    char label[32]; /* "name#3", cut */
    bool attached;

    /* worker->lock: */
    weft__seat_state state;
    bool is_ready, notified;
    int boot_error;  /* how the last run ended before it was ready; 0: it was not so */
    weft_time since; /* of the state */
    weft__link arm;  /* in worker->armed */
    weft__signal signal;
    pthread_t thread;
    bool has_thread;
    weft_task *fiber;  /* the one that sits here */
    weft__a32 leaving; /* asked to leave; written under the lock, read anywhere */

    int failures;        /* of the one who sits here */
    weft__a32 completed; /* tasks completed in this run */
    bool ticked;         /* likewise: is_ready without the lock */

    /* The wait in weft_seat_receive: the lane's lock, then the claimer's until the unpark. */
    weft__wait_node node;
    weft__aptr in_lane; /* NULL: in none; written under that lane's lock, read anywhere */
    weft__task *given;  /* by the claimer; NULL: look at the queue again */

    /* The one task in hand that most loops have at a time; further ones are in `held`. Set
     * by the one who sits here, or by the claimer of its wait, when it is NULL; cleared by
     * whoever frees that task, or ends the run. */
    weft__aptr slot;
    weft__a32 slot_open; /* 1: and it has not been ended */
    weft__a32 held_open; /* open tasks in `held` */
    weft__a64 first_id;  /* of the slot, for reports */
    weft__a64 first_at;
    /* Counted by the one who sits here, without read-modify-writes: `sits` (a weft__parker,
     * as of its last wait) ends the task in the slot. */
    weft__aptr sits;
    weft__a64 done, done_ns; /* completed tasks; time spent */

    weft__lock lock;
    /* seat->lock: */
    weft__list held;             /* weft__task.hold: received handles, but for the slot's */
    weft__parker *sitter;        /* during a run of a seat that is not attached */
    bool cancelled;              /* the sitter was */
    weft__parker *interruptible; /* a wait that ends when the seat is asked to leave */

    weft_worker *waits_for; /* reg->lock: for this one's ready point */
};

enum { WEFT__RING = WEFT_UPDATES_MAX + 1 }; /* one place is kept for the result */

enum { WEFT__HELD_NOT = 0, WEFT__HELD_SLOT, WEFT__HELD_LIST };

struct weft__task {
    weft__a32 refs; /* sender's handle; receiver's handle, or the queue */
    weft__lock lock;
    weft_worker *worker; /* these two for good */
    weft__lane *lane;
    weft_buffer *payload;
    uint64_t id;
    weft__task *next;          /* spare; or of the taker, between unlinking and expiring */
    weft__wait_node entry;     /* worker->lock; in worker->queue until the pickup */
    bool posted;               /* the entry has no waiter */
    bool called;               /* likewise, but a caller waits for the end */
    weft_time pickup_deadline; /* of a posted task */

    weft_seat *seat; /* written at the pickup, before the sender runs on */
    weft_time picked_at;
    int how_held;      /* before the receiver has it; then seat->lock */
    weft__link hold;   /* seat->lock: in seat->held */
    weft__a32 counted; /* 1: in seat->held_open */

    /* task->lock: */
    weft_task_outcome outcome; /* also read without, by its owner's side */
    bool sender_done, receiver_done, abandoned, forgotten;
    unsigned head, count;
    weft__list readers, writers; /* wait nodes */
    weft__signal sender_signal, receiver_signal;
    weft_buffer *ring[WEFT__RING]; /* last: the only part that is not zero at first; a
                                    * called task has the last update only */
};

/* A task to be made and handed over. */
typedef struct weft__offer {
    weft_worker *worker; /* NULL: to be looked up by weft__registry_offer */
    weft_buffer *payload;
    weft__wait_node *reader; /* of a call: its begun wait for the end */
    weft_time deadline;      /* of a posted task */
    bool posted, called;
    bool late; /* the deadline has passed: it must not be handed over */
    weft__task *task;
    weft_seat *seat; /* that has it; the caller owes weft__unpark(seat->node.parker) */
} weft__offer;

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
/* weft__offer_make for the worker of that name; also -EINVAL, -ENOENT. */
int weft__registry_offer(weft_registry *reg, const char *scope, const char *name, weft__offer *o,
                         uint32_t here);

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

/* ---- lane.c ---- */

/* Makes the task, and hands it over if a seat waits. The task then has two references.
 * 0; -ENOMEM; -EAGAIN (no spare block, and it may not allocate). */
int weft__offer_make(weft__offer *o, uint32_t here, bool may_allocate);
/* A task that never was in the queue: the payload stays the caller's. */
void weft__task_discard(weft__task *t);
/* Its last reference has gone. */
void weft__task_recycle(weft__task *t);
/* Under the worker's lock: entries go to seats that wait in lanes. */
void weft__match(weft_worker *w, weft__after *after);
/* Links the seat's begun wait; the lane, or NULL: it leaves, or there are tasks. */
weft__lane *weft__lane_enter(weft_seat *seat, uint32_t here, bool spins);
void weft__lane_sleeps(weft__lane *lane, weft_seat *seat); /* it has stopped spinning */
void weft__lane_leave(weft__lane *lane, weft_seat *seat);
/* Ends the wait of a seat that is linked there: true when the caller owes its unpark. */
bool weft__lane_expel(weft__lane *lane, weft_seat *seat);
bool weft__lanes_have_waiting(weft_worker *w);
/* A claimed seat, or the caller's own, gets a task: before the task's sender runs on. */
void weft__seat_give(weft_seat *seat, weft__task *t);
/* The worker has no references any more. */
void weft__lanes_close(weft_worker *w);
/* worker.c: the last lane is empty. */
void weft__worker_destroy(weft_worker *w);

/* ---- seat.c ---- */
/* Under the worker's lock: the first entry that can be claimed, out of the queue; Q1. */
weft__task *weft__take(weft_worker *w, weft__after *after);
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
weft__task *weft__task_new(weft__lane *lane); /* a block, as weft__task_reset leaves it */
void weft__task_reset(weft__task *t);
void weft__task_unref(weft__task *t);
/* Counts the outcome unless there is one; under the task's lock: true when it did. */
bool weft__settle(weft__task *t, weft_task_outcome outcome);
void weft__settled(weft__task *t, weft_task_outcome outcome); /* without: hooks */
void weft__task_expire(weft__task *t, weft_task_outcome outcome);
void weft__task_abort(weft__task *t);
void weft__task_hold(weft__task *t, weft_seat *seat);
/* Out of a posted task's queue; true when it was in it. */
bool weft__task_unqueue(weft__task *t);
/* weft_sent_read; of a called task: 0 at its end, with what was last said in *ret. */
int weft__task_read(weft__task *t, weft_time deadline, weft_buffer **ret);
/* The wait that a call began ended otherwise. */
void weft__task_retract(weft__task *t, weft__wait_node *reader);

#endif

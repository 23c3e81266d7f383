/* SPDX-License-Identifier: MIT
 *
 * weft/bgworker.h -- named background workers: hand work over by name, follow it,
 * lose nothing.
 *
 * A *worker* is a name in a *registry* with a number of *seats*. In each seat sits a
 * thread that weft starts, a fiber of a runtime, or a thread of the host that has
 * attached itself. Whoever sits there runs a loop:
 *
 *     int loop(weft_seat *seat, void *arg)
 *     {
 *         while (weft_seat_tick(seat)) {                   // false: please leave
 *             weft_received *task;
 *             if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
 *                 continue;
 *             ... weft_received_payload(task) ...
 *             weft_received_update(task, progress, WEFT_NEVER);
 *             weft_received_complete(task, result);
 *             weft_received_free(task);
 *         }
 *         return 0;
 *     }
 *
 * Anybody else hands it tasks and follows each through a handle:
 *
 *     weft_sent *sent;
 *     int r = weft_registry_send(reg, NULL, "thumbnails", payload, weft_after(WEFT_SEC), &sent);
 *     weft_buffer *b;
 *     while ((r = weft_sent_read(sent, WEFT_NEVER, &b)) == 1)
 *         ... b is an update or the result ...
 *     weft_sent_free(sent);                  // r == 0: completed, else how it ended
 *
 * A send returns when a seat has picked the task up; with every seat busy it waits:
 * that is the back-pressure. When it fails, the task was certainly not run.
 *
 * Every task ends in exactly one way, and is counted once (weft_task_outcome).
 *
 * Loops that wait in poll() themselves ask for descriptors (weft_seat_fd, weft_sent_fd,
 * weft_received_fd). A descriptor carries no data: it is readable as long as there is
 * something to do, perhaps once too often, never too seldom. It belongs to weft: don't
 * read, write or close it, and drop it from poll sets before its handle goes.
 *
 * Buffers: a call that takes a buffer takes the caller's reference when it succeeds,
 * and leaves it with the caller on every error. NULL stands for "no data".
 *
 * Concurrency ("-" may overlap, "X" must not): everything on a registry or a worker
 * may overlap, except that its last free or unref comes after all else. A seat is used
 * by the one who sits in it. A weft_sent and a weft_received:
 *                read  fd  abandon  forget  free       update complete fd  free
 *   each other     -    -     -       -      X            -      -      -    X
 */
#ifndef WEFT_BGWORKER_H
#define WEFT_BGWORKER_H

#include "weft/base.h"
#include "weft/buffer.h"
#include "weft/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_registry weft_registry; /* the names */
typedef struct weft_worker weft_worker;     /* a name and its seats */
typedef struct weft_seat weft_seat;         /* the worker's side: one thread or fiber */
typedef struct weft_sent weft_sent;         /* the sender's side of a task */
typedef struct weft_received weft_received; /* the receiver's side of a task */

/* Bounds. */
#define WEFT_NAME_MAX    63   /* bytes of a worker's name and of a scope */
#define WEFT_SEATS_MAX   1024 /* seats of a worker */
#define WEFT_UPDATES_MAX 16   /* updates that wait for the sender to read */
#define WEFT_SEAT_NAMES  256  /* a good size for the lists of names below */

/* How a task ended; each counts exactly once. */
typedef enum weft_task_outcome {
    WEFT_TASK_OPEN = 0,  /* not yet */
    WEFT_TASK_COMPLETED, /* the receiver completed or closed it */
    WEFT_TASK_ABORTED,   /* the loop ended with the task open */
    WEFT_TASK_ABANDONED, /* the sender gave up first: before pickup (its wait was
                          * cancelled) or after */
    WEFT_TASK_TIMEOUT,   /* no seat picked it up in time */
    WEFT_TASK_RELEASED,  /* the worker stopped, or gave up, before pickup */
    WEFT_TASK_OUTCOMES
} weft_task_outcome;

/* ---- Registry ---- */

typedef enum weft_descriptor_kind {
    WEFT_DESCRIPTOR_AUTO = 0,  /* an eventfd where there is one */
    WEFT_DESCRIPTOR_EVENTFD,   /* Linux */
    WEFT_DESCRIPTOR_SOCKETPAIR /* anywhere */
} weft_descriptor_kind;

/* For hosts with metrics of their own; each may be NULL. Called outside of every lock,
 * on the thread where it happened; must not call back into the same worker's stop,
 * restart or free. `worker` is valid during the call. */
typedef struct weft_worker_hooks {
    void (*task_started)(void *arg, weft_worker *worker);
    void (*task_stopped)(void *arg, weft_worker *worker, weft_time spent);
    void (*task_outcome)(void *arg, weft_worker *worker, weft_task_outcome outcome);
    void (*seat_ready)(void *arg, weft_worker *worker, unsigned seat);
    void (*seat_ended)(void *arg, weft_worker *worker, unsigned seat, int result);
} weft_worker_hooks;

/* All zero is a good default. */
typedef struct weft_registry_options {
    weft_descriptor_kind descriptors;
    unsigned descriptor_pool;       /* idle descriptors that are kept; 0: 64 */
    const weft_worker_hooks *hooks; /* copied; NULL: none */
    void *hooks_arg;
} weft_registry_options;

/* A registry without workers. Starts no thread.
 *
 * ret  set on success only; weft_registry_free ends it
 *
 * Returns 0; -EINVAL (ret is NULL, an unknown kind); -ENOMEM; -ENOTSUP (no eventfd here).
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_registry_new(const weft_registry_options *options,
                                             weft_registry **ret);

/* Stops all workers without a limit and frees the registry. Handles of tasks and of
 * workers that are still held stay valid; calls on them answer as after a stop. NULL
 * is fine. Returns NULL.
 * Callable from: any thread or task that sits in none of its seats. */
WEFT_API weft_registry *weft_registry_free(weft_registry *reg);

/* The worker of that name, in `scope` first (NULL: only globally), then among the global
 * ones.
 *
 * ret  set on success only, with a reference for the caller (weft_worker_unref)
 *
 * Returns 0; -ENOENT (no such worker); -EINVAL.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_registry_find(weft_registry *reg, const char *scope,
                                              const char *name, weft_worker **ret);

/* Waits until all workers are ready (weft_worker_wait_ready on each).
 *
 * ret_names, size  where to list those that are late or failed, as "a, b"; NULL: nowhere
 *
 * Returns as weft_worker_wait_ready: the first error, a time-out last.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_registry_wait_ready(weft_registry *reg, weft_time deadline, char *ret_names,
                                      size_t size);

/* Stops all workers at once: weft_worker_stop on each, with one deadline for all. New
 * workers are refused from now on (-ESHUTDOWN). Calling it again is harmless.
 * Returns 0; -ETIMEDOUT (`ret_names` lists the seats that did not leave, as "a#0, b#2");
 * -EDEADLK (called from one of the seats); -EINVAL.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_registry_stop(weft_registry *reg, weft_time deadline, char *ret_names,
                                size_t size);

/* ---- Workers ---- */

/* The loop. Returns when weft_seat_tick says so, or earlier: then it is run again. A
 * negative result, or an end before the first tick, counts as a failure. */
typedef int (*weft_worker_fn)(weft_seat *seat, void *arg);

/* All zero but `loop` is a good default. */
typedef struct weft_worker_options {
    const char *scope;       /* NULL or "": global; copied */
    weft_worker_fn loop;     /* may be NULL when the host attaches all seats */
    void *arg;               /* for the loop; must stay valid until the worker has stopped */
    unsigned seats;          /* how many weft starts; 0: 1 with a loop, none without */
    weft_runtime *runtime;   /* the seats are fibers of this runtime; NULL: threads. Must
                              * outlive the worker's stop */
    size_t stack_size;       /* of the threads, bytes; 0: the system's default */
    weft_time backoff;       /* after the nth failure in a row a seat waits n * n * backoff; ns;
                              * 0: 100 ms */
    weft_time backoff_max;   /* but at most this; ns; 0: 10 s */
    weft_time healthy_after; /* a run that was ready and lasted this long, or completed a task,
                              * forgets earlier failures; ns; 0: 10 s */
    int max_failures;        /* failures in a row of one seat after which it is given up;
                              * 0: 6; negative: no limit */
    weft_time grace;         /* in a stop or restart the waits of a seat (not attached ones)
                              * are cancelled when it has not left after this; ns; 0: 1 s */
    unsigned posted_max;     /* posted tasks that may wait for pickup; 0: 1024 */
} weft_worker_options;

/* Registers a worker under a name and starts its seats. Does not wait for them.
 *
 * name  1 to WEFT_NAME_MAX bytes, unique in its scope; copied
 * ret   set on success only, with a reference for the caller; may be NULL. The registry
 *       keeps the worker until it has stopped
 *
 * Returns 0; -EEXIST (the name is taken); -ESHUTDOWN (the registry has stopped); -EINVAL
 * (NULL, a bad name or option, seats without a loop); -ENOMEM; -EAGAIN (no more threads or
 * tasks can be started). On error nothing is left running.
 * Callable from: any thread, any task. */
WEFT_API int weft_worker_start(weft_registry *reg, const char *name,
                               const weft_worker_options *options, weft_worker **ret);

/* References. Both accept NULL; unref returns NULL. The last reference does not stop the
 * worker. Callable from: any thread, any task. */
WEFT_API weft_worker *weft_worker_ref(weft_worker *w);
WEFT_API weft_worker *weft_worker_unref(weft_worker *w);

/* Name and scope ("": global); "" for NULL. Valid while a reference is held.
 * Callable from: anywhere. */
WEFT_API const char *weft_worker_name(const weft_worker *w);
WEFT_API const char *weft_worker_scope(const weft_worker *w);

/* Waits until every seat has reached its ready point: its first tick.
 * Returns 0; -ETIMEDOUT, -EAGAIN (not yet); -ESHUTDOWN (it stops); -EHOSTDOWN (a seat was
 * given up); the loop's negative result, or -ECHILD, when a run ended before its ready
 * point (at once; the seat is started again all the same); -ECANCELED; -EINVAL.
 * Callable from: any thread, any fiber. Parks. A seat uses weft_seat_wait_ready. */
WEFT_API int weft_worker_wait_ready(weft_worker *w, weft_time deadline);

/* Asks every seat to leave its loop and waits until each has; they are run again.
 * Tasks that wait for pickup go on waiting, and are served by the next runs; sends made
 * from the seats end with -ESHUTDOWN.
 *
 * ret_names, size  where to list the seats that did not leave, as "a#0, a#2"; NULL: nowhere
 *
 * Returns 0; -ETIMEDOUT, -EAGAIN (some have not left: they still will be run again when
 * they do); -ESHUTDOWN (it has stopped); -EDEADLK (called from one of its seats, with a
 * deadline that waits); -ECANCELED; -EINVAL.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_worker_restart(weft_worker *w, weft_time deadline, char *ret_names, size_t size);

/* Stops the worker: sends are refused and senders that wait for pickup released
 * (-ESHUTDOWN), each seat is asked to leave after the task it has. Once all have left
 * (attached ones through weft_seat_detach), the threads are joined and the name is free.
 * Calling it again is harmless and waits again.
 * Parameters and errors as weft_worker_restart, but 0 when it had stopped before.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API int weft_worker_stop(weft_worker *w, weft_time deadline, char *ret_names, size_t size);

/* Totals since the start, and the state of the moment. At rest
 * sent == sum of outcomes + queued + tasks in hand. */
typedef struct weft_worker_stats {
    uint64_t sent;                         /* accepted sends and posts */
    uint64_t outcomes[WEFT_TASK_OUTCOMES]; /* [WEFT_TASK_OPEN] is unused */
    uint64_t task_ns;                      /* spent on tasks, from pickup to close */
    uint64_t restarts;                     /* loops run again */
    uint64_t failures;                     /* ... because they had failed */
    uint64_t fallback_wakes;               /* wake-ups that had been lost; stays 0 */
    uint64_t late_wakes;                   /* a seat woken for a task did not come in 10 ms */
    unsigned seats;                        /* that exist */
    unsigned ready;                        /* past their ready point */
    unsigned busy;                         /* with a task in hand */
    unsigned queued;                       /* tasks waiting for pickup */
    unsigned given_up;                     /* seats with too many failures */
} weft_worker_stats;

/* Fills *ret. Returns 0 or -EINVAL. Allocates nothing.
 * Callable from: any thread, any task. */
WEFT_API int weft_worker_get_stats(weft_worker *w, weft_worker_stats *ret);

typedef enum weft_seat_state {
    WEFT_SEAT_FREE = 0, /* nobody sits in it */
    WEFT_SEAT_STARTING, /* runs, before its ready point */
    WEFT_SEAT_READY,    /* runs, without a task */
    WEFT_SEAT_BUSY,     /* runs, with a task in hand */
    WEFT_SEAT_LEAVING,  /* was asked to leave and still runs */
    WEFT_SEAT_BACKOFF,  /* waits to be run again */
    WEFT_SEAT_GIVEN_UP
} weft_seat_state;

typedef struct weft_seat_info {
    unsigned index;
    weft_seat_state state;
    const char *kind;  /* "thread", "fiber", "attached" */
    weft_time since;   /* start of the run, or of the state where none runs */
    uint64_t task;     /* in hand (weft_received_id); 0: none */
    weft_time task_at; /* when it was picked up */
} weft_seat_info;

/* Fills `infos` with up to `count` seats, from the first. Returns how many there are;
 * -EINVAL. Allocates nothing. Callable from: any thread, any task. */
WEFT_API int weft_worker_get_seats(weft_worker *w, weft_seat_info *infos, unsigned count);

/* ---- Sending ---- */

/* Hands a task to a worker and waits until one of its seats has picked it up.
 *
 * scope     the caller's scope, NULL: none; see weft_registry_find
 * payload   what the task is about; taken on success, the caller's on every error
 * deadline  for the pickup (absolute ns, WEFT_NEVER). WEFT_TRY answers -EAGAIN, for
 *           nothing is picked up at once: see weft_registry_post
 * ret       set on success only; weft_sent_free ends it
 *
 * Returns  0            picked up
 *          -ETIMEDOUT   not picked up until the deadline
 *          -ECANCELED   the sending task is cancelled
 *          -ENOENT      no such worker
 *          -ESHUTDOWN   the worker stops
 *          -EHOSTDOWN   all of its seats have been given up
 *          -EINVAL, -ENOMEM, -EAGAIN
 * On every error the task was not run and never will be.
 * Callable from: any thread, any fiber. Parks. From a loop: weft_seat_send. */
WEFT_API WEFT_MUST_USE int weft_registry_send(weft_registry *reg, const char *scope,
                                              const char *name, weft_buffer *payload,
                                              weft_time deadline, weft_sent **ret);

/* The same, without looking the name up.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_worker_send(weft_worker *w, weft_buffer *payload,
                                            weft_time deadline, weft_sent **ret);

/* Hands a task over without waiting for the pickup: for poll loops. It waits in the
 * queue, at most until its deadline; a read then says -ETIME, and it was not run.
 * Errors as weft_registry_send; -EAGAIN: posted_max tasks are waiting.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_registry_post(weft_registry *reg, const char *scope,
                                              const char *name, weft_buffer *payload,
                                              weft_time deadline, weft_sent **ret);

/* The same, without looking the name up.
 * Callable from: any thread, any task. Never blocks. */
WEFT_API WEFT_MUST_USE int weft_worker_post(weft_worker *w, weft_buffer *payload,
                                            weft_time deadline, weft_sent **ret);

/* Hands a task over and waits for its end: send, read and free in one, and with one sleep
 * where these have two. Updates are read and thrown away, but the last.
 *
 * payload   stays the caller's, whatever happens
 * deadline  for all of it
 * ret       what the task was completed with, else its last update (NULL: it said
 *           nothing), with a reference for the caller; set on success only; may be NULL
 *
 * Returns  0              completed
 *          -ETIME         not picked up until the deadline: it was not run
 *          -ETIMEDOUT     picked up, but not completed: abandoned
 *          -ECANCELED     the calling task is cancelled: not run, or abandoned
 *          -ECONNABORTED  the loop ended with the task open
 *          -ENOENT, -ESHUTDOWN, -EHOSTDOWN, -EINVAL, -ENOMEM  as weft_registry_send
 *          -EAGAIN        WEFT_TRY
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_registry_call(weft_registry *reg, const char *scope,
                                              const char *name, weft_buffer *payload,
                                              weft_time deadline, weft_buffer **ret);

/* The same, without looking the name up.
 * Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_worker_call(weft_worker *w, weft_buffer *payload,
                                            weft_time deadline, weft_buffer **ret);

/* Reads the next update, waiting for it until `deadline`.
 *
 * ret  set with a reference for the caller when 1 is returned, untouched else
 *
 * Returns  1              *ret is an update, or what the task was completed with (NULL:
 *                         an update without data)
 *          0              the task was completed; there is nothing more
 *          -ECONNABORTED  the loop ended with the task open
 *          -ETIME         posted, and not picked up in time
 *          -ESHUTDOWN     posted, and the worker stopped before the pickup
 *          -EAGAIN, -ETIMEDOUT  nothing yet: read again
 *          -ECANCELED     the reading task is cancelled
 *          -EBADF         abandoned, or its end has been read before
 *          -EINVAL
 * Callable from: any thread, any fiber. Parks unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_sent_read(weft_sent *sent, weft_time deadline, weft_buffer **ret);

/* A descriptor that is readable while weft_sent_read(WEFT_TRY) would not say -EAGAIN; a
 * posted task's pickup deadline is the caller's to watch. Made by the first call.
 *
 * Returns it (>= 0); -EBADF (as read); -EMFILE, -ENFILE, -ENOMEM (nothing changed);
 * -EINVAL. Valid until weft_sent_free. Callable from: any thread, any task. */
WEFT_API int weft_sent_fd(weft_sent *sent);

/* Gives up on the task: the receiver's next update says so. A posted task that was not
 * picked up is certainly not run. Returns 0, also when it has ended; -EINVAL.
 * Callable from: any thread, any task. */
WEFT_API int weft_sent_abandon(weft_sent *sent);

/* Frees the handle and lets the task run on: updates and result are thrown away. NULL
 * is fine. Returns NULL. Callable from: any thread, any task. */
WEFT_API weft_sent *weft_sent_forget(weft_sent *sent);

/* Abandons the task unless it has ended, and frees the handle. NULL is fine. Returns
 * NULL. Callable from: any thread, any task. */
WEFT_API weft_sent *weft_sent_free(weft_sent *sent);

/* How the task ended, WEFT_TASK_OPEN while it has not, also when updates are still to
 * be read. Callable from: any thread, any task. */
WEFT_API weft_task_outcome weft_sent_outcome(const weft_sent *sent);

/* ---- In a loop ---- */

/* The calling thread or task takes a new seat of the worker, which it runs itself; ends
 * with weft_seat_detach.
 * Returns 0; -ESHUTDOWN (the worker stops); -EAGAIN (WEFT_SEATS_MAX); -ENOMEM; -EINVAL.
 * Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_worker_attach(weft_worker *w, weft_seat **ret);

/* Gives an attached seat back. Its open tasks are aborted, its weft_received handles
 * become invalid. NULL is fine. Returns NULL.
 * Callable from: the one who sits in it. */
WEFT_API weft_seat *weft_seat_detach(weft_seat *seat);

/* To be called in each turn of the loop. The first call of a run marks its ready point.
 * Consumes the wake-up of the descriptor. Never blocks.
 * Returns true; false once the seat is asked to leave, or the task that sits in it is
 * cancelled (and for NULL).
 * Callable from: the one who sits in it. */
WEFT_API bool weft_seat_tick(weft_seat *seat);

/* Takes the next task, waiting for one until `deadline`. WEFT_TRY never blocks, and
 * -EAGAIN is a normal answer: a wake-up is not a count, and another seat may have been
 * faster.
 *
 * ret  set on success only; weft_received_free ends it. When the loop ends, handles that
 *      are left become invalid, and their open tasks are aborted (but weft_received_keep)
 *
 * Returns 0; -EAGAIN, -ETIMEDOUT; -ESHUTDOWN (asked to leave, and no task is waiting);
 * -ECANCELED; -EINVAL.
 * Callable from: the one who sits in it. Parks unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_seat_receive(weft_seat *seat, weft_time deadline,
                                             weft_received **ret);

/* A descriptor that is readable when a task may be waiting or the seat is asked to
 * leave. Tick, or a receive that finds nothing, makes it unreadable. Made by the first
 * call.
 * Returns it (>= 0); -EMFILE, -ENFILE, -ENOMEM; -EINVAL. Valid until the loop ends.
 * Callable from: the one who sits in it. */
WEFT_API int weft_seat_fd(weft_seat *seat);

/* weft_registry_send with the worker's own scope. Ends with -ESHUTDOWN, too, when the
 * sending seat is asked to leave. Callable from: the one who sits in it. Parks. */
WEFT_API WEFT_MUST_USE int weft_seat_send(weft_seat *seat, const char *name, weft_buffer *payload,
                                          weft_time deadline, weft_sent **ret);

/* weft_worker_wait_ready for a seat, on another worker of its scope or global.
 * Returns as that; -ENOENT; -EDEADLK, at once: that worker waits, perhaps through
 * others, for this one, which is not ready yet; -ESHUTDOWN also when the waiting seat is
 * asked to leave. Callable from: the one who sits in it. Parks. */
WEFT_API int weft_seat_wait_ready(weft_seat *seat, const char *name, weft_time deadline);

/* The worker, without a new reference, and the number of the seat, from 0.
 * Callable from: the one who sits in it. */
WEFT_API weft_worker *weft_seat_worker(const weft_seat *seat);
WEFT_API unsigned weft_seat_index(const weft_seat *seat);

/* ---- Published variables ---- */

/* Replaces the worker's snapshot by `vars` (NULL: an empty one). Takes the caller's
 * reference. Readers have the old one or the new one, never a mixture. Survives
 * restarts. Returns 0 or -EINVAL.
 * Callable from: the one who sits in it. */
WEFT_API int weft_seat_publish(weft_seat *seat, weft_buffer *vars);

/* The latest snapshot of a worker. When it has published none yet, waits for its ready
 * point, at most until `deadline`.
 *
 * ret  set on success only, with a reference for the caller (NULL: an empty snapshot)
 *
 * Returns 0; -ENOENT (no such worker); -ENODATA (ready, and never published); -ETIMEDOUT,
 * -EAGAIN (not ready yet); -ESHUTDOWN (it stops); -EHOSTDOWN; -ECANCELED; -EINVAL.
 * Callable from: any thread, any fiber. Parks unless WEFT_TRY. From a loop:
 * weft_seat_vars. */
WEFT_API WEFT_MUST_USE int weft_registry_vars(weft_registry *reg, const char *scope,
                                              const char *name, weft_time deadline,
                                              weft_buffer **ret);

/* The same from a loop, in its scope; -EDEADLK and -ESHUTDOWN as weft_seat_wait_ready.
 * Callable from: the one who sits in it. Parks unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_seat_vars(weft_seat *seat, const char *name, weft_time deadline,
                                          weft_buffer **ret);

/* ---- The receiver's side of a task ---- */

/* What the sender sent (NULL: nothing). No new reference: valid until the handle is
 * freed, also after the task's end; take one to keep it longer.
 * Callable from: any thread, any task. */
WEFT_API weft_buffer *weft_received_payload(const weft_received *task);

/* A number for logs, unique in the registry, the same on both sides.
 * Callable from: any thread, any task. */
WEFT_API uint64_t weft_received_id(const weft_received *task);
WEFT_API uint64_t weft_sent_id(const weft_sent *sent);

/* Sends an update. WEFT_UPDATES_MAX are buffered; past that it waits until `deadline` for
 * the sender to read.
 *
 * Returns  0            sent; the buffer was taken
 *          -EPIPE       the sender has abandoned the task
 *          -EAGAIN, -ETIMEDOUT  the sender has not read
 *          -ECANCELED   the calling task is cancelled
 *          -EBADF       completed or closed before
 *          -EINVAL
 * Callable from: any thread, any fiber. Parks unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_received_update(weft_received *task, weft_buffer *update,
                                                weft_time deadline);

/* Ends the task, with a last update unless `result` is NULL. Never blocks.
 * Returns 0; -EPIPE (abandoned: the task is closed, the buffer stays the caller's);
 * -EBADF (completed or closed before); -EINVAL.
 * Callable from: any thread, any task. */
WEFT_API int weft_received_complete(weft_received *task, weft_buffer *result);

/* A descriptor that is readable once the sender has abandoned the task.
 * Returns it (>= 0); -EBADF (completed or closed); -EMFILE, -ENFILE, -ENOMEM; -EINVAL.
 * Valid until the handle is freed. Callable from: any thread, any task. */
WEFT_API int weft_received_fd(weft_received *task);

/* Whether the sender has abandoned it. Callable from: any thread, any task. */
WEFT_API bool weft_received_abandoned(const weft_received *task);

/* Takes the task out of its seat: it is not aborted when the loop ends, the handle stays
 * valid, and the seat is not busy with it any more. Returns 0; -EBADF (as update);
 * -EALREADY; -EINVAL. Callable from: the one who sits in the seat. */
WEFT_API int weft_received_keep(weft_received *task);

/* Completes the task unless it has ended, and frees the handle. NULL is fine. Returns
 * NULL. Callable from: any thread, any task. */
WEFT_API weft_received *weft_received_free(weft_received *task);

#ifdef __cplusplus
}
#endif
#endif

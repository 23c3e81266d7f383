/* SPDX-License-Identifier: MIT
 *
 * worker.h -- the runtime and its workers, as the sched room sees them.
 *
 * A worker is a thread that runs tasks. Fibers switch directly to each other where
 * they can; what needs a look around (other queues, timers, descriptors, sleep) is
 * done by the worker's main flow, on its own stack.
 *
 * Where a ready task can be, and who may take it:
 *   next      one task just made ready here; the owner, or a watcher once the worker
 *             has been stuck in one task
 *   runq      the owner, thieves
 *   fifo      solo runtimes only (one worker): in place of the ring, no atomics
 *   directed  a child that its joiner runs at once (task.h)
 *   inject    anybody (inject.h); also the overflow of the ring
 *   pool      in place of runq, fifo and inject, if the runtime was given one
 *   high      anybody; before everything else
 *   pinned    the owner only; others put into inbox under its lock
 *
 * Roles, at most one worker each:
 *   keeper    sleeps until the earliest deadline of all wheels, in the driver if there
 *             is one; everybody else sleeps without a limit
 *   watcher   a sleeper that looks every few milliseconds, while others are awake,
 *             whether one of them is stuck in a long task and leaves work behind
 */
#ifndef WEFT_SRC_WORKER_H
#define WEFT_SRC_WORKER_H

#include <pthread.h>
#include <string.h>

#include "sched/deque.h"
#include "sched/driver.h"
#include "sched/idle.h"
#include "sched/inject.h"
#include "sched/runq.h"
#include "sched/task.h"
#include "weft/pool.h"
#include "weft/runtime.h"

/* Resolution of sleeps and deadlines inside a runtime, ns; a power of two. */
#define WEFT__RUNTIME_TICK ((weft_time)4096)

/* The queue of high priority, for anybody; `count` may be read without the lock. */
typedef struct weft__urgent {
    weft__lock lock;
    weft__a32 count;
    weft__fifo fifo;
} weft__urgent;

/* What the context that is switched to does for the one that left. */
enum weft__after {
    WEFT__AFTER_NOTHING,
    WEFT__AFTER_PARK,
    WEFT__AFTER_YIELD,
    WEFT__AFTER_END, /* give back strand and task */
};

enum weft__place {
    WEFT__PLACE_FREE,
    WEFT__PLACE_OWN,   /* a thread of the runtime's */
    WEFT__PLACE_LENT,  /* a thread of the host's */
    WEFT__PLACE_ENDED, /* the runtime's thread has left and wants to be joined */
};

typedef struct weft__worker {
    /* The owner's hot line. */
    weft__parker *current; /* NULL in the main flow */
    struct weft_runtime *rt;
    weft__aptr next;
    weft__a32 inbox_count;
    uint32_t next_streak; /* how often `next` was taken in a row */
    uint32_t next_limit;  /* how often it may be */
    weft__aptr running;   /* the task that `tick` counted last; for stall reports */
    weft__a64 tick;       /* times a task was given this worker; others read it to see progress */
    uint64_t look_at;     /* tick at which the main flow looks around next */
    uint64_t turn_end;    /* host-driven: tick at which the turn's budget is spent */
    uint32_t look_every;  /* 1 .. LOOK_MAX, adapts to how long tasks run */
    uint32_t high_streak; /* how often one of high priority went first, in a row */
    uint64_t looked;      /* weft__sys_ticks of the last look around */
    weft_pool *pool;      /* the runtime's, or NULL */
    bool hurry;           /* there are timers or descriptors, which a long task makes late */
    bool solo, searching, census;
    bool woke;       /* just left sleep */
    bool listened;   /* and has all that the driver had to say */
    bool unnotified; /* the main flow has queued something that it has told nobody */
    bool rescue;     /* a watcher found a stuck worker: its next task may be taken */
    enum weft__after after;
    weft_task *after_task;
    weft_task *handoff;  /* what the main flow runs next */
    weft_task *directed; /* a child whose start the running fiber has claimed, to run next */
    weft__deque fifo;
    weft__fifo pinned;
    weft__context main;
    weft__stack_cache stacks;
    weft__task_cache tasks;
    weft__fifo starved; /* fibers for which there was no stack */
    weft_time starved_until;
    weft_time now;    /* as of the last look around */
    weft_time polled; /* when the driver was last asked between tasks */
    weft_time linger; /* how long to look on before sleeping, ns (sleep.c) */
    uint64_t rng;

    /* Written by the owner, read by anybody. */
    weft__a64 spawned, finished, failed, cancelled, steals, parks, wakes, armed, fired;

    weft__runq runq WEFT__ALIGNED(WEFT__CACHE_LINE);

    weft__lock inbox_lock WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__fifo inbox;

    weft__lock wheel_lock WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__a64 wheel_next; /* not later than the wheel's next; WEFT_NEVER: empty */
    weft__wheel wheel;

    weft__sleeper sleeper WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__a32 asleep;    /* for watchers: 0 runs, 1 sleeps, or nobody holds the place */
    weft__a64 seen_tick; /* written by watchers */
    weft__a64 stall_tick, stall_since; /* written by who asks for stalls (stall.c) */
    weft__a32 stall_told;
    weft__a32 to_watch; /* woken to be the watcher, not to take the keeper's place */
    uint32_t number;
    pthread_t thread;
    enum weft__place state; /* under rt->crew_lock */
    bool idle_expired;      /* an extra thread that has been idle for long enough */
    bool until_done;        /* leaves when no task is alive */
    weft_time leave_at;     /* a lent thread goes home */
} weft__worker;

struct weft_runtime {
    unsigned workers;    /* places */
    unsigned at_once;    /* of them, as many as can run at once: not more than processors */
    unsigned permanent;  /* of them, the first: threads for good */
    unsigned own_places; /* of them, the first: for threads of the runtime's, the rest is lent */
    weft_time idle_timeout;
    weft_runtime_hooks hooks;
    bool solo, census, overflow_report;
    bool until_done;  /* weft_run: the loop ends with the last task */
    size_t max_tasks; /* 0: not counted exactly */
    weft_pool *pool;  /* NULL: the built-in queues */
    char name[12];
    const unsigned char *alive_page; /* 1 here, 0 in a forked child; never NULL */

    weft__idle idle WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__inject inject WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__urgent high WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__task_depot depot WEFT__ALIGNED(WEFT__CACHE_LINE);
    /* One line for whoever spawns or wakes from outside. */
    weft__a64 spawned_outside WEFT__ALIGNED(WEFT__CACHE_LINE);
    weft__a64 refused_outside; /* counted, then turned away */
    weft__a64 rejected, next_id;
    weft__a32 visitors; /* threads from outside that are waking a task: the runtime stays */
    weft__a64 inflight; /* only with max_tasks */

    weft__a32 keeper WEFT__ALIGNED(WEFT__CACHE_LINE); /* worker number + 1, or 0 */
    weft__a32 watcher;                                /* the same */
    weft__a64 keeper_until;
    weft__aptr driver; /* weft__driver * */

    weft__lock crew_lock;
    weft__a32 online;  /* places that somebody holds */
    weft__a32 closing; /* 1: no more spawns */
    weft__a32 stop;    /* 1: the workers leave */
    weft__lock drained_lock;
    weft__list drained; /* waiters for alive == 0 while closing */

    struct weft__driven *driven;       /* host-driven: no threads */
    struct weft__census *census_table; /* NULL: off */
    weft__stack_pool *stacks;
    weft__worker *worker; /* [workers] */
};

/* The calling thread's worker, NULL on others. Read anew each time: see
 * weft__self_quick. */
#ifdef WEFT__SELF_INLINE
extern _Thread_local weft__worker *weft__worker_here
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

static inline weft__worker *weft__worker_self(void)
{
    weft__worker *w;
    __asm__ volatile("movq weft__worker_here@gottpoff(%%rip), %0\n\t"
                     "movq %%fs:(%0), %0"
                     : "=r"(w));
    return w;
}
#else
weft__worker *weft__worker_self(void);
#endif

/* worker.c */
void weft__worker_init(weft__worker *w, struct weft_runtime *rt, uint32_t number);
void weft__worker_fini(weft__worker *w);
void weft__worker_loop(weft__worker *w); /* until rt->stop, or (weft_run) all is done */

bool weft__worker_has_own(weft__worker *w); /* owner: something is ready here */
/* Runs up to `tasks` switches for up to `time` ns (0: no bound) on this thread. */
uint64_t weft__worker_turn(weft__worker *w, uint32_t tasks, weft_time time);
/* Gives `t`, which is in no queue, this thread once, before everything else. */
void weft__worker_run_first(weft__worker *w, weft_task *t);

bool weft__worker_finished(weft__worker *w);      /* owner: nothing is ready, and it may leave */
weft_task *weft__worker_give_up(weft__worker *w); /* one that is queued here, or NULL */

/* look.c, main flow only */
weft_task *weft__look_around(weft__worker *w); /* everything; the next task, or NULL */
void weft__retry_starved(weft__worker *w);     /* a fiber there was no stack for waits anew */

/* crew.c */
int weft__crew_start(struct weft_runtime *rt);
void weft__crew_grow(struct weft_runtime *rt);      /* all are busy: one more thread, if allowed */
void weft__crew_stop(struct weft_runtime *rt);      /* until nobody works for it */
void weft__crew_send_home(struct weft_runtime *rt); /* drained: lent threads may leave */
int weft__crew_lend(struct weft_runtime *rt, weft_time until, bool until_done);

/* driven.c */
int weft__driven_new(struct weft_runtime *rt);
void weft__driven_free(struct weft_runtime *rt);
void weft__driven_wake(struct weft_runtime *rt);
void weft__driven_drain(struct weft_runtime *rt, weft_time deadline);
/* weft_block_on in a host-driven runtime. */
int weft__driven_block_on(struct weft_runtime *rt, weft_fn fn, void *arg, weft_time deadline,
                          int *ret_result);

/* ready.c: makes a task run that is not in any queue. */
void weft__ready_woken(weft_task *t);                    /* from anywhere */
void weft__ready_spawned(weft__worker *w, weft_task *t); /* from a task on w */
void weft__ready_tail(weft__worker *w, weft_task *t);    /* behind the others */
void weft__inject_many(struct weft_runtime *rt, weft__fifo *tasks, uint32_t n);
weft_task *weft__entry_take(weft__worker *w, void *entry); /* NULL: it was a tombstone */
void weft__wake_sleeper(struct weft_runtime *rt, weft__sleeper *s);
void weft__notify(struct weft_runtime *rt);
weft_task *weft__urgent_pop(weft__urgent *q);
extern const weft__parker_ops weft__task_ops;

/* sleep.c: an idle worker. */
void weft__worker_sleep(weft__worker *w);
bool weft__leaves_unattended(weft__worker *w); /* left sleep: is there something to watch */
void weft__ensure_watcher_slow(weft__worker *w);
bool weft__work_for_all(struct weft_runtime *rt); /* in a queue that anybody may take from */
bool weft__work_anywhere(weft__worker *w);        /* or for w, leaving included */

/* timers.c */
void weft__timer_arm(weft__worker *w, weft_task *t, weft_time deadline);
void weft__timer_disarm(weft_task *t);
unsigned weft__timers_run(weft__worker *w, weft__worker *whose, weft_time now);
weft_time weft__timers_next(weft__worker *w); /* exact; takes the lock */

/* pollwait.c */
void weft__poll_unlink(weft_task *t);  /* LINKED, and its wait is decided: then DECIDED */
void weft__poll_abandon(weft_task *t); /* DECIDED, and the answer is not wanted */

/* spawn.c */
uint64_t weft__alive(struct weft_runtime *rt);
/* The public spawns; `scope` NULL, or what the task becomes a member of. */
struct weft_scope;
int weft__spawn(weft_runtime *rt, weft_fn fn, void *arg, const weft_spawn_options *options,
                weft_task **ret_task, struct weft_scope *scope);
int weft__spawn_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t state_size,
                     const weft_spawn_options *options, weft_task **ret_task,
                     struct weft_scope *scope);
/* By the thread that drives `w`, outside of its tasks: a detached fiber, which the caller
 * runs. NULL: *error. */
weft_task *weft__spawn_unqueued(weft__worker *w, weft_fn fn, void *arg, int *error);

/* task.c */
/* Joining: on a task, under its lock. */
extern const weft__waitable_ops weft__join_ops;
void weft__task_unref_here(weft__worker *w, weft_task *t);
void weft__task_end(weft__worker *w, weft_task *t, int result); /* wakes joiners */
void weft__task_drop(weft__worker *w, weft_task *t);            /* the runtime's reference */

/* runtime.c */
void weft__drained_check(struct weft_runtime *rt);
void weft__runtime_slot_free(struct weft_runtime *rt, weft_task *t); /* from outside */

/* Others sleep and nobody watches: have one do so (sleep.c). */
static inline void weft__ensure_watcher(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    /* Seq-cst: pairs with a watcher that gives up and then looks who is awake. */
    if (WEFT__UNLIKELY(weft__idle_count(&rt->idle) != 0 && atom_load_sc(&rt->watcher) == 0))
        weft__ensure_watcher_slow(w);
}

/* In a forked child: no worker is there, and what a lock guards may be half done. */
static inline bool weft__forked(const struct weft_runtime *rt)
{
    return WEFT__UNLIKELY(!*rt->alive_page);
}

static inline void weft__count(weft__a64 *counter)
{
    /* One writer, so no read-modify-write. */
    atom_store_rlx(counter, atom_load_rlx(counter) + 1);
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * offload.c -- see weft/blocking.h.
 *
 * One lock guards a FIFO of jobs and a stack of idle threads; places in the queue are the
 * permits of a fair semaphore, so waiting for one is cancelled, timed and woken there. A
 * submitter wakes the idle thread that came last, or starts one, or leaves the job to whoever
 * gets free. A thread that has ended lies in `left` until somebody joins it.
 *
 *   QUEUED --thread--> RUNNING --fn returned--> DONE        the caller is told
 *     |                   `----caller leaves--> ABANDONED   the thread drops and frees
 *     `----caller leaves, shutdown--> GONE                  it will never run
 *
 * Invariants
 *   B1  The state changes under the pool's lock, so of start and leaving, and of end and
 *       leaving, exactly one comes first, and each side knows which.
 *   B2  A waited-for job is told by its event, which is set after the last access of the
 *       thread; one that was abandoned is freed by the thread.
 *   B3  Each job in the queue holds one permit of `places` and gives it back when it leaves
 *       it, however it does. After closing, permits are only passed on, from one waiting
 *       submitter to the next, so that all of them see it.
 *   B4  User code (fn, drop) runs without the lock.
 *
 * A running job's caller keeps `job` alive until the event is set, or has given it to the
 * thread: a borrowed job lies on its stack, an owned or posted one in memory of its own.
 */
#include "weft/blocking.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/sys.h"
#include "wait/wait.h"
#include "weft/event.h"
#include "weft/semaphore.h"
#include "weft/task.h"

enum { THREADS = 8, THREADS_MAX = 4096, QUEUE = 1024, QUEUE_MAX = 1000000, NAME = 16 };

enum job_state { QUEUED, RUNNING, DONE, ABANDONED, GONE };

struct job {
    weft__link link; /* in the queue while QUEUED */
    weft_blocking_fn fn;
    void *arg;
    void (*drop)(void *arg);
    weft_time queued_at;
    enum job_state state;
    bool posted; /* nobody waits; the thread drops and frees */
    int result;
    weft_event done; /* DONE or GONE */
};

struct helper {
    weft_blocking_pool *pool;
    pthread_t thread;
    weft__link idle; /* in pool->idle while it sleeps */
    struct helper *next_left;
    weft__a32 notified;
};

struct weft_blocking_pool {
    weft__lock lock;
    bool closed;
    weft__list queue, idle;
    struct helper *left; /* ended, to be joined */
    unsigned threads, max_threads, idle_count;
    unsigned queued, running, abandoned;
    uint64_t completed, expired, rejected;
    weft_time longest_wait;
    weft_time idle_timeout;
    size_t stack_size;
    weft_semaphore places;
    weft_event quiet; /* closed, and no job runs */
    weft__a32 alive;  /* threads that have not reached `left`; woken at 0 */
    char name[NAME];
};

/* The pool whose job the calling thread runs. Only ever read on the pool's threads, which
 * run no fibers, so the address may be kept. */
static _Thread_local weft_blocking_pool *own_pool;

static WEFT__NOINLINE bool on_thread_of(const weft_blocking_pool *pool)
{
    __asm__ volatile(""); /* a fiber may come back on another thread: never hoisted */
    return own_pool == pool;
}

/* ---- Threads ---- */

/* Joins the threads that have ended. */
static void reap(weft_blocking_pool *pool)
{
    weft__acquire(&pool->lock);
    struct helper *left = pool->left;
    pool->left = NULL;
    weft__release(&pool->lock);
    while (left) {
        struct helper *next = left->next_left;
        pthread_join(left->thread, NULL);
        weft__free(left);
        left = next;
    }
}

static void run_job(weft_blocking_pool *pool, struct job *job)
{
    weft_semaphore_release(&pool->places, 1); /* it has left the queue: B3 */
    int result = job->fn(job->arg);
    weft__acquire(&pool->lock);
    bool mine = job->posted || job->state == ABANDONED;
    if (job->state == ABANDONED)
        pool->abandoned--;
    job->state = DONE;
    job->result = result;
    pool->completed++;
    weft__release(&pool->lock);
    if (mine) {
        if (job->drop)
            job->drop(job->arg);
        weft__free(job);
    } else {
        weft_event_set(&job->done); /* B2 */
    }
    weft__acquire(&pool->lock);
    bool quiet = --pool->running == 0 && pool->closed;
    weft__release(&pool->lock);
    if (quiet)
        weft_event_set(&pool->quiet);
}

/* Under the lock: the next job, which is RUNNING from now on. */
static struct job *take_job(weft_blocking_pool *pool)
{
    if (weft__list_empty(&pool->queue))
        return NULL;
    struct job *job = weft__container(weft__list_pop(&pool->queue), struct job, link);
    weft_time waited = weft__sys_now() - job->queued_at;
    if (waited > pool->longest_wait)
        pool->longest_wait = waited;
    job->state = RUNNING;
    pool->queued--;
    pool->running++;
    return job;
}

/* Lock held; released and taken again. False: it slept its time out, and leaves. */
static bool sleep_idle(weft_blocking_pool *pool, struct helper *self)
{
    weft_time deadline = weft_after(pool->idle_timeout);
    atom_store_rlx(&self->notified, 0u);
    weft__list_push_front(&pool->idle, &self->idle); /* last in, first out */
    pool->idle_count++;
    weft__release(&pool->lock);
    int r = 0;
    while (!atom_load_acq(&self->notified) && r != -ETIMEDOUT) /* pairs with notify */
        r = weft__sys_futex_wait(&self->notified, 0, deadline);
    weft__acquire(&pool->lock);
    bool leaves = weft__linked(&self->idle);
    if (leaves) {
        weft__list_remove(&self->idle);
        pool->idle_count--;
    } else if (!atom_load_acq(&self->notified)) {
        /* Too late to leave: its notifier still has to write into self. */
        weft__release(&pool->lock);
        while (!atom_load_acq(&self->notified))
            weft__sys_futex_wait(&self->notified, 0, WEFT_NEVER);
        weft__acquire(&pool->lock);
    }
    return !leaves;
}

static void *helper_main(void *arg)
{
    struct helper *self = arg;
    weft_blocking_pool *pool = self->pool;
    own_pool = pool;
#ifdef __linux__
    pthread_setname_np(pthread_self(), pool->name);
#endif
    weft__acquire(&pool->lock);
    for (;;) {
        struct job *job = take_job(pool);
        if (job) {
            weft__release(&pool->lock);
            run_job(pool, job);
            weft__acquire(&pool->lock);
        } else if (pool->closed || !sleep_idle(pool, self)) {
            break;
        }
    }
    pool->threads--;
    self->next_left = pool->left;
    pool->left = self;
    bool last = atom_sub_ar(&pool->alive, 1u) == 1;
    if (last)
        weft__sys_futex_wake(&pool->alive, INT32_MAX);
    weft__release(&pool->lock); /* pool is not touched any more; free joins this thread */
    return NULL;
}

static int start_thread(weft_blocking_pool *pool, struct helper *h)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int r = pthread_attr_init(&attr);
    if (r)
        return -r;
    if (pool->stack_size)
        r = pthread_attr_setstacksize(&attr, pool->stack_size);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the host's threads */
    if (!r)
        r = pthread_create(&h->thread, &attr, helper_main, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -r; /* the thread may have ended already, and h be gone */
}

/* Adds a thread, whose place is already counted. Not under the lock. */
static int add_thread(weft_blocking_pool *pool)
{
    struct helper *h = weft__calloc(1, sizeof *h);
    int r = -ENOMEM;
    reap(pool);
    if (h) {
        h->pool = pool;
        r = start_thread(pool, h);
    }
    if (r) {
        weft__free(h);
        weft__acquire(&pool->lock);
        pool->threads--;
        atom_sub_ar(&pool->alive, 1u);
        weft__release(&pool->lock);
    }
    return r;
}

/* ---- Submitting ---- */

/* Under the lock. True: the job must be given to a new thread, which is counted. */
static bool enqueue(weft_blocking_pool *pool, struct job *job, struct helper **wake)
{
    job->state = QUEUED;
    job->queued_at = weft__sys_now();
    weft__list_push(&pool->queue, &job->link);
    pool->queued++;
    *wake = NULL;
    if (!weft__list_empty(&pool->idle)) {
        *wake = weft__container(weft__list_pop(&pool->idle), struct helper, idle);
        pool->idle_count--;
        return false;
    }
    if (pool->threads == pool->max_threads)
        return false;
    pool->threads++;
    atom_add_ar(&pool->alive, 1u);
    return true;
}

static void notify(struct helper *h)
{
    atom_store_rel(&h->notified, 1u); /* pairs with sleep_idle */
    weft__sys_futex_wake(&h->notified, 1);
}

static int drop_with(int error, void *arg, void (*drop)(void *))
{
    if (drop)
        drop(arg);
    return error;
}

/* Under the lock: the whole queue into `out`; none of it will run. */
static void empty_queue(weft_blocking_pool *pool, weft__list *out, int error)
{
    weft__list_init(out);
    while (!weft__list_empty(&pool->queue)) {
        weft__link *l = weft__list_pop(&pool->queue);
        struct job *job = weft__container(l, struct job, link);
        job->state = GONE;
        job->result = error;
        weft__list_push(out, l);
    }
    pool->rejected += pool->queued;
    pool->queued = 0;
}

/* Tells the callers of the jobs, who drop; outside of the lock. */
static void discard(weft_blocking_pool *pool, weft__list *jobs)
{
    for (weft__link *l; (l = weft__list_pop(jobs)) != NULL;) {
        struct job *job = weft__container(l, struct job, link);
        if (job->posted) {
            drop_with(0, job->arg, job->drop);
            weft__free(job);
        } else {
            weft_event_set(&job->done);
        }
        weft_semaphore_release(&pool->places, 1); /* B3 */
    }
}

/* A place in the queue, then the queue: 0, and the job is a thread's; or an error, and
 * it is still the caller's alone. */
static int submit(weft_blocking_pool *pool, struct job *job, weft_time deadline)
{
    int r = weft_semaphore_acquire(&pool->places, 1, WEFT_TRY);
    if (r == -EAGAIN && deadline != WEFT_TRY)
        r = on_thread_of(pool) ? -EDEADLK : weft_semaphore_acquire(&pool->places, 1, deadline);
    struct helper *wake = NULL;
    bool add = false;
    weft__acquire(&pool->lock);
    bool closed = pool->closed;
    if (r || closed)
        pool->rejected++;
    else
        add = enqueue(pool, job, &wake);
    weft__release(&pool->lock);
    if (!r && closed) {
        weft_semaphore_release(&pool->places, 1); /* B3: the next one sees it, too */
        r = -ESHUTDOWN;
    }
    if (wake)
        notify(wake);
    if (add && add_thread(pool) != 0) { /* fine as long as there is another thread */
        weft__list out;
        weft__list_init(&out);
        weft__acquire(&pool->lock);
        if (pool->threads == 0)
            empty_queue(pool, &out, -EAGAIN);
        weft__release(&pool->lock);
        discard(pool, &out);
    }
    return r;
}

static struct job *job_new(weft_blocking_fn fn, void *arg, void (*drop)(void *))
{
    struct job *job = weft__calloc(1, sizeof *job);
    if (job)
        *job = (struct job){.fn = fn, .arg = arg, .drop = drop};
    return job;
}

/* ---- Waiting ---- */

/* The caller does not want to wait any longer. The state in which the job was left: QUEUED
 * (now GONE, and nobody else's), RUNNING (now the thread's), or DONE or GONE. */
static enum job_state leave(weft_blocking_pool *pool, struct job *job)
{
    weft__acquire(&pool->lock);
    enum job_state state = job->state;
    bool given = state == RUNNING && job->drop; /* the job may be gone once it is unlocked */
    if (state == QUEUED) {
        weft__list_remove(&job->link);
        job->state = GONE;
        pool->queued--;
        pool->expired++;
    } else if (given) {
        job->state = ABANDONED;
        pool->abandoned++;
    }
    weft__release(&pool->lock);
    if (state == QUEUED)
        weft_semaphore_release(&pool->places, 1);
    if (state == QUEUED || given)
        return state;
    weft_shield_enter(); /* it is at its end, or borrowed */
    int r = weft_event_wait(&job->done, WEFT_NEVER);
    weft_shield_leave();
    WEFT__CHECK(r == 0);
    return job->state; /* final: B2 */
}

/* Submits and waits. *ret_mine: the caller still owns arg and job. */
static int run_and_wait(weft_blocking_pool *pool, struct job *job, weft_time deadline,
                        bool *ret_mine)
{
    *ret_mine = true;
    int r = submit(pool, job, deadline);
    if (r)
        return r;
    r = weft_event_wait(&job->done, deadline);
    enum job_state state = r ? leave(pool, job) : job->state;
    if (state == DONE)
        return 0;
    if (state == GONE)
        return job->result;
    *ret_mine = state == QUEUED;
    return r;
}

int weft_blocking(weft_blocking_pool *pool, weft_blocking_fn fn, void *arg, void (*drop)(void *arg),
                  weft_time deadline, int *ret_result)
{
    if (!pool || !fn)
        return drop_with(-EINVAL, arg, drop);
    if (deadline == WEFT_TRY)
        return drop_with(-EAGAIN, arg, drop);
    int r = weft__checkpoint(weft__self());
    if (r == 0 && deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        r = -ETIMEDOUT; /* a job that is already too late does not start */
    if (r)
        return drop_with(r, arg, drop);
    if (on_thread_of(pool)) { /* in the place of the job that calls */
        r = fn(arg);
        if (ret_result)
            *ret_result = r;
        return 0;
    }
    struct job borrowed = {.fn = fn, .arg = arg};
    struct job *job = drop ? job_new(fn, arg, drop) : &borrowed;
    bool mine;
    if (!job)
        return drop_with(-ENOMEM, arg, drop);
    r = run_and_wait(pool, job, deadline, &mine);
    if (r == 0 && ret_result)
        *ret_result = job->result;
    if (drop && mine) {
        weft__free(job);
        if (r)
            drop(arg);
    }
    return r;
}

int weft_blocking_post(weft_blocking_pool *pool, weft_blocking_fn fn, void *arg,
                       void (*drop)(void *arg), weft_time deadline)
{
    if (!pool || !fn)
        return drop_with(-EINVAL, arg, drop);
    struct job *job = job_new(fn, arg, drop);
    if (!job)
        return drop_with(-ENOMEM, arg, drop);
    job->posted = true;
    int r = submit(pool, job, deadline);
    if (r) {
        weft__free(job);
        return drop_with(r, arg, drop);
    }
    return 0;
}

/* ---- The pool ---- */

int weft_blocking_pool_new(const weft_blocking_options *options, weft_blocking_pool **ret)
{
    const weft_blocking_options none = {0};
    const weft_blocking_options *o = options ? options : &none;
    if (!ret || o->threads > THREADS_MAX || o->queue > QUEUE_MAX || o->idle_timeout < 0 ||
        (o->stack_size && o->stack_size < 16384))
        return -EINVAL;
    weft_blocking_pool *pool = weft__calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    weft__list_init(&pool->queue);
    weft__list_init(&pool->idle);
    pool->max_threads = o->threads ? o->threads : THREADS;
    pool->idle_timeout = o->idle_timeout ? o->idle_timeout : 10 * WEFT_SEC;
    pool->stack_size = o->stack_size;
    snprintf(pool->name, sizeof pool->name, "%s", o->name ? o->name : "blocking");
    weft_semaphore_init(&pool->places, o->queue ? o->queue : QUEUE);
    *ret = pool;
    return 0;
}

/* Closes and empties the queue; returns how many jobs run. Who waits for a place gets one
 * of those that become free here, sees that the pool is closed and passes it on. */
static unsigned close_pool(weft_blocking_pool *pool)
{
    weft__list out;
    weft__acquire(&pool->lock);
    pool->closed = true;
    empty_queue(pool, &out, -ESHUTDOWN);
    unsigned running = pool->running;
    for (weft__link *l; (l = weft__list_pop(&pool->idle)) != NULL;) {
        pool->idle_count--;
        notify(weft__container(l, struct helper, idle));
    }
    weft__release(&pool->lock);
    discard(pool, &out);
    return running;
}

int weft_blocking_pool_shutdown(weft_blocking_pool *pool, weft_time deadline)
{
    if (!pool)
        return -EINVAL;
    if (deadline != WEFT_TRY && on_thread_of(pool))
        return -EDEADLK;
    unsigned running = close_pool(pool);
    if (running == 0)
        weft_event_set(&pool->quiet);
    int r = weft_event_wait(&pool->quiet, deadline);
    if (r == -ECANCELED || r == -EPERM)
        return r;
    weft__acquire(&pool->lock);
    running = pool->running;
    weft__release(&pool->lock);
    return (int)running;
}

weft_blocking_pool *weft_blocking_pool_free(weft_blocking_pool *pool)
{
    if (!pool)
        return NULL;
    weft_shield_enter();
    int left = weft_blocking_pool_shutdown(pool, WEFT_NEVER);
    weft_shield_leave();
    WEFT__CHECK(left == 0); /* -EDEADLK: a job frees its own pool */
    uint32_t alive;
    while ((alive = atom_load_acq(&pool->alive)) != 0) /* pairs with helper_main */
        weft__sys_futex_wait(&pool->alive, alive, WEFT_NEVER);
    reap(pool);
    weft__free(pool);
    return NULL;
}

const char *weft_blocking_pool_name(const weft_blocking_pool *pool)
{
    return pool ? pool->name : "";
}

int weft_blocking_pool_get_stats(weft_blocking_pool *pool, weft_blocking_stats *ret_stats)
{
    if (!pool || !ret_stats)
        return -EINVAL;
    weft__acquire(&pool->lock);
    weft_time oldest = 0;
    if (!weft__list_empty(&pool->queue))
        oldest =
            weft__sys_now() - weft__container(pool->queue.head.next, struct job, link)->queued_at;
    *ret_stats = (weft_blocking_stats){
        .threads = pool->threads,
        .idle = pool->idle_count,
        .queued = pool->queued,
        .running = pool->running,
        .abandoned = pool->abandoned,
        .oldest = oldest,
        .completed = pool->completed,
        .expired = pool->expired,
        .rejected = pool->rejected,
        .longest_wait = pool->longest_wait,
    };
    weft__release(&pool->lock);
    return 0;
}

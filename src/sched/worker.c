/* SPDX-License-Identifier: MIT
 *
 * worker.c -- running tasks: switching to the next one, and the worker's main flow.
 *
 * A fiber that leaves (parks, yields, ends) picks its successor itself and switches
 * straight to it, so a hand-over between two fibers costs one switch. Whatever context
 * is arrived at then completes the leaving: only there is the context of the one that
 * left fully saved (wait.h, W3). When there is no simple successor, the switch goes to
 * the main flow, which looks around.
 */
#include "sched/census.h"
#include "sched/extra.h"
#include "sched/pick.h"

#ifdef WEFT__SELF_INLINE
_Thread_local weft__worker *weft__worker_here;
#else
static _Thread_local weft__worker *weft__worker_here;

WEFT__NOINLINE weft__worker *weft__worker_self(void)
{
    __asm__ volatile("");
    return weft__worker_here;
}
#endif

/* The thread works for `w` from here on (NULL: for nobody); returns for whom before. */
static WEFT__NOINLINE weft__worker *be_worker(weft__worker *w)
{
    __asm__ volatile("");
    weft__worker *before = weft__worker_here;
    weft__worker_here = w;
    weft__self_slot(w ? &w->current : NULL);
    weft__pool_bind(w ? w->pool : NULL, w ? w->number : 0);
    return before;
}

/* ---- Switching ---- */

static weft__context *fiber_main(void *arg);

/* Where the strand lies, and so what the fiber has below it. */
static size_t strand_room(const weft__stack *stack)
{
    return stack->size - ((sizeof(weft__strand) + 15u) & ~(size_t)15u);
}

static weft__strand *strand_new(weft__worker *w)
{
    weft__stack *stack = weft__stack_cache_take(&w->stacks);
    if (!stack)
        return NULL;
    if (w->census)
        weft__stack_paint(stack);
    weft__strand *s = (weft__strand *)(void *)((char *)stack->low + strand_room(stack));
    s->stack = stack;
    return s;
}

static void strand_free(weft__worker *w, weft__strand *s)
{
    weft__stack *stack = s->stack;
    weft__context_forget(&s->context);
    if (WEFT__UNLIKELY(w->census))
        weft__census_note(w->rt->census_table, stack->owner, weft__stack_high_water(stack));
    stack->owner = NULL;
    weft__stack_cache_give(&w->stacks, stack);
}

static void make_current(weft__worker *w, weft_task *t)
{
    w->current = &t->parker;
    t->parker.budget = WEFT__BUDGET;
    atom_store_rlx(&w->running, t);
    weft__count(&w->tick);
}

/* The context that continues with `t`: its own if it has one, else the main flow's. */
static weft__context *destination(weft__worker *w, weft_task *t)
{
    weft__strand *s = t && weft__task_is_fiber(t) ? weft__task_strand(t) : NULL;
    if (WEFT__LIKELY(s != NULL)) {
        make_current(w, t);
        return &s->context;
    }
    w->handoff = t;
    w->current = NULL;
    return &w->main;
}

/* Suspends `from` and goes on with `t`: its context, a first run on a fresh stack, or
 * the main flow when there is no task, a poll task, or no stack to be had. False, and
 * nothing done: called by the main flow itself, and there is no stack for `t`. */
static bool go_to(weft__worker *w, weft__context *from, weft_task *t)
{
    if (t && weft__task_is_fresh(t)) {
        weft__strand *s = strand_new(w);
        if (WEFT__LIKELY(s != NULL)) {
            atom_store_rlx(&t->u.f.strand, s);
            s->stack->owner = atom_load_rlx(&t->name);
            w->starved_until = 0;
            make_current(w, t);
            weft__context_run(from, &s->context, s->stack->low, strand_room(s->stack), fiber_main,
                              s);
            return true;
        }
    }
    weft__context *to = destination(w, t);
    if (WEFT__UNLIKELY(to == from)) {
        w->handoff = NULL;
        return false;
    }
    weft__context_switch(from, to);
    return true;
}

/* First thing after every switch: completes what the one that left wanted. */
static inline void arrived(weft__worker *w)
{
    if (WEFT__LIKELY(w->after == WEFT__AFTER_NOTHING))
        return;
    weft_task *t = w->after_task;
    enum weft__after after = w->after;
    w->after = WEFT__AFTER_NOTHING;
    switch (after) {
    case WEFT__AFTER_NOTHING:
        break;
    case WEFT__AFTER_PARK:
        if (!weft__parked(&t->parker))
            weft__ready_woken(t);
        break;
    case WEFT__AFTER_YIELD:
        weft__ready_tail(w, t);
        break;
    case WEFT__AFTER_END:
        strand_free(w, weft__task_strand(t));
        weft__task_drop(w, t);
        break;
    }
}

/* The running fiber leaves; returns when it runs again, perhaps on another worker. */
static void leave(weft__worker *w, weft_task *t, enum weft__after after)
{
    w->after = after;
    w->after_task = t;
    weft_task *n = w->directed;
    w->directed = NULL;
    go_to(w, &weft__task_strand(t)->context, n ? n : weft__pick(w));
    arrived(weft__worker_self());
}

/* A strand runs fiber after fiber as long as the next task needs a fresh stack: this
 * one is as good and warm. */
static weft__context *fiber_main(void *arg)
{
    weft__strand *strand = arg;
    weft__worker *w = weft__worker_self();
    arrived(w);
    for (;;) {
        weft_task *t = weft__task_of(w->current);
        int result = t->body.fiber(t->u.f.arg);
        if (WEFT__UNLIKELY(t->own & WEFT__OWN_EXTRA))
            weft__extra_body_ended(t);
        w = weft__worker_self();
        weft__task_end(w, t, result);
        weft_task *n = weft__pick(w);
        if (n && weft__task_is_fresh(n) && !w->census) {
            atom_store_rlx(&n->u.f.strand, strand);
            strand->stack->owner = atom_load_rlx(&n->name);
            make_current(w, n);
            weft__task_drop(w, t);
            continue;
        }
        w->after = WEFT__AFTER_END;
        w->after_task = t;
        return destination(w, n);
    }
}

/* ---- The fiber as a parker ---- */

static void task_park(weft__parker *self, weft_time deadline)
{
    weft_task *t = weft__task_of(self);
    weft__worker *w = weft__worker_self();
    if (deadline != WEFT_NEVER)
        weft__timer_arm(w, t, deadline);
    atom_store_rlx(&t->since, (uint64_t)w->now);
    leave(w, t, WEFT__AFTER_PARK);
    if (weft__timed(t))
        weft__timer_disarm(t);
}

/* The common case in a solo runtime: the head of the queue is a fiber that has run before,
 * and nothing goes before it. One out, one in, one switch. */
static inline bool yield_to_head(weft__worker *w, weft_task *t)
{
    weft__deque *q = &w->fifo;
    if (weft__deque_empty(q) || atom_load_rlx(&w->next) || !weft__fifo_empty(&w->pinned) ||
        weft__look_due(w))
        return false;
    weft_task *n = weft__deque_head(q);
    if (WEFT__UNLIKELY((uintptr_t)n & 1) || !weft__task_is_fiber(n))
        return false; /* a first run, a tombstone, a poll task */
    weft__strand *s = weft__task_strand(n);
    if (WEFT__UNLIKELY(!s))
        return false;
    weft__deque_rotate(q, t);
    w->next_streak = 0;
    make_current(w, n);
    weft__context_switch(&weft__task_strand(t)->context, &s->context);
    arrived(weft__worker_self());
    return true;
}

static void task_yield(weft__parker *self)
{
    weft_task *t = weft__task_of(self);
    if (t->flags & WEFT__TASK_POLL) {
        self->budget = WEFT__BUDGET; /* yields by returning */
        return;
    }
    weft__worker *w = weft__worker_self();
    if (!w->solo || w->directed || t->flags & (WEFT_PINNED | WEFT_HIGH)) {
        leave(w, t, WEFT__AFTER_YIELD);
        return;
    }
    /* Nobody else sees this queue, so it may hold a fiber that is still running. */
    if (WEFT__LIKELY(yield_to_head(w, t)))
        return;
    if (!weft__deque_push(&w->fifo, t)) {
        make_current(w, t); /* no memory to queue it: goes on */
        return;
    }
    weft_task *n = weft__pick(w);
    if (n == t) {
        make_current(w, t);
        return;
    }
    go_to(w, &weft__task_strand(t)->context, n);
    arrived(weft__worker_self());
}

static void task_ready(weft__parker *p)
{
    weft__ready_woken(weft__task_of(p));
}

const weft__parker_ops weft__task_ops = {
    .park = task_park,
    .ready = task_ready,
    .yield = task_yield,
};

/* ---- Running from the main flow ---- */

static void run_fiber(weft__worker *w, weft_task *t)
{
    if (WEFT__LIKELY(go_to(w, &w->main, t))) {
        arrived(w);
    } else { /* again later: retry_starved */
        weft__fifo_push(&w->starved, &t->parker.link);
        w->starved_until = w->now + WEFT_MSEC;
    }
}

/* The body has ended. The wait that began with this poll must be closed first: who has
 * claimed it still owes an unpark, and until then the task is not free for another (W2);
 * should that one be late, it makes the task run once more, to come here again. */
static void poll_ended(weft__worker *w, weft_task *t)
{
    t->own |= WEFT__OWN_ENDED;
    if (!weft__claim(&t->parker, WEFT__WOKEN) && weft__parked(&t->parker))
        return;
    if (weft__timed(t))
        weft__timer_disarm(t);
    if (WEFT__UNLIKELY(t->own & WEFT__OWN_LINKED))
        weft__poll_unlink(t);
    if (WEFT__UNLIKELY(t->own & WEFT__OWN_DECIDED))
        weft__poll_abandon(t);
    weft__task_end(w, t, t->result);
    weft__task_drop(w, t);
}

static void run_poll(weft__worker *w, weft_task *t)
{
    if (WEFT__UNLIKELY(t->own & WEFT__OWN_ENDED)) {
        poll_ended(w, t);
        return;
    }
    make_current(w, t);
    if (weft__timed(t))
        weft__timer_disarm(t);
    if (t->own & WEFT__OWN_LINKED)
        weft__poll_unlink(t);
    /* A wake during the poll claims the wait that begins here. A cancellation is
     * told once; later polls come from wakes only. */
    bool told = (t->own & WEFT__OWN_TOLD) != 0;
    t->parker.shield += told;
    weft__wait_begin(&t->parker, "poll",
                     t->own & WEFT__OWN_DECIDED ? atom_load_rlx(&t->parker.object) : NULL);
    t->parker.shield -= told;
    if (atom_load_rlx(&t->parker.cancel) & WEFT__CANCEL)
        t->own |= WEFT__OWN_TOLD;
    int result = t->body.poll(t, t->flags & WEFT__TASK_BOXED ? t->u.box : t->u.state);
    if (result != WEFT_PENDING && WEFT__UNLIKELY(t->own & WEFT__OWN_EXTRA))
        weft__extra_body_ended(t);
    w->current = NULL;
    if (result != WEFT_PENDING) {
        t->result = result;
        poll_ended(w, t);
    } else if (!weft__parked(&t->parker)) {
        weft__ready_tail(w, t);
    }
}

/* A task with a time to start at comes here twice: to begin the wait for that time, which
 * costs it no stack, and when it is over. True: it starts now. */
static bool start_late(weft__worker *w, weft_task *t)
{
    if (t->own & WEFT__OWN_WAITED) {
        t->flags = (uint8_t)(t->flags & ~WEFT__TASK_LATE);
        if (weft__timed(t))
            weft__timer_disarm(t);
        atom_store_rlx(&t->parker.what, NULL);
        return true;
    }
    t->own |= WEFT__OWN_WAITED;
    weft__wait_begin(&t->parker, "start", NULL);
    if (t->timer.deadline != WEFT_NEVER)
        weft__timer_arm(w, t, t->timer.deadline);
    if (!weft__parked(&t->parker))
        weft__ready_woken(t);
    return false;
}

bool weft__worker_finished(weft__worker *w)
{
    struct weft_runtime *rt = w->rt;
    if (atom_load_sc(&rt->stop) || w->idle_expired || w->now >= w->leave_at)
        return true;
    bool leaves_when_done =
        w->until_done || (w->state == WEFT__PLACE_LENT && atom_load_sc(&rt->closing));
    return leaves_when_done && weft__alive(rt) == 0;
}

/* What runs next; NULL: nothing is ready. `look`: a look around is due. */
static weft_task *next_task(weft__worker *w, bool look)
{
    weft_task *t = w->handoff;
    w->handoff = NULL;
    if (!t && !look)
        t = weft__pick(w);
    if (!t)
        return weft__look_around(w);
    if (WEFT__UNLIKELY(w->unnotified)) {
        w->unnotified = false;
        weft__notify(w->rt);
    }
    return t;
}

/* Runs `t`; true: a look around is due, for a fiber comes back to the main flow
 * without a successor only then. */
static bool run_task(weft__worker *w, weft_task *t)
{
    bool fiber = !(t->flags & WEFT__TASK_POLL);
    if (WEFT__UNLIKELY(t->flags & WEFT__TASK_LATE) && !start_late(w, t))
        return false;
    if (fiber)
        run_fiber(w, t);
    else
        run_poll(w, t);
    return fiber;
}

void weft__worker_loop(weft__worker *w)
{
    be_worker(w);
    weft__context_adopt(&w->main);
    bool look = true;
    for (;;) {
        weft_task *t = next_task(w, look);
        if (!t) {
            if (weft__worker_finished(w))
                break;
            weft__worker_sleep(w);
            weft__retry_starved(w);
            look = true;
            continue;
        }
        if (WEFT__UNLIKELY(w->woke)) {
            w->woke = w->idle_expired = false;
            if (!w->solo && weft__leaves_unattended(w))
                weft__ensure_watcher(w);
        }
        look = run_task(w, t);
        if (WEFT__UNLIKELY(w->now >= w->leave_at))
            break;
    }
    be_worker(NULL);
}

bool weft__worker_has_own(weft__worker *w)
{
    return w->handoff || atom_load_rlx(&w->next) || !weft__deque_empty(&w->fifo) ||
           !weft__fifo_empty(&w->pinned) || !weft__fifo_empty(&w->starved);
}

weft_task *weft__worker_give_up(weft__worker *w)
{
    weft_task *t = w->handoff;
    w->handoff = NULL;
    while (!t && atom_load_rlx(&w->next))
        t = weft__take_next(w); /* NULL for a tombstone */
    if (t || (t = weft__take_queued(w)) != NULL)
        return t;
    weft__slink *l = weft__fifo_pop(&w->starved);
    return l ? weft__task_of_link(l) : NULL;
}

uint64_t weft__worker_turn(weft__worker *w, uint32_t tasks, weft_time time)
{
    /* The caller may itself be a task of another runtime. */
    weft__worker *outer = be_worker(w);
    weft__context_adopt(&w->main);
    weft_time stop = time ? weft_after(time) : WEFT_NEVER;
    uint64_t began = atom_load_rlx(&w->tick);
    w->turn_end = tasks ? began + tasks : UINT64_MAX;
    w->look_every = 1;
    weft__retry_starved(w);
    bool look = true;
    while (atom_load_rlx(&w->tick) < w->turn_end) {
        weft_task *t = next_task(w, look);
        if (!t)
            break;
        look = run_task(w, t);
        if (stop != WEFT_NEVER && weft__sys_now() >= stop)
            break;
    }
    be_worker(outer);
    return atom_load_rlx(&w->tick) - began;
}

void weft__worker_run_first(weft__worker *w, weft_task *t)
{
    weft__worker *outer = be_worker(w);
    weft__context_adopt(&w->main);
    w->look_at = 0; /* a look is due: whoever leaves comes back here */
    run_task(w, t);
    be_worker(outer);
}

/* ---- Life ---- */

void weft__worker_init(weft__worker *w, struct weft_runtime *rt, uint32_t number)
{
    memset(w, 0, sizeof *w);
    w->rt = rt;
    w->number = number;
    w->solo = rt->solo;
    w->pool = rt->pool;
    w->census = rt->census;
    w->look_every = 1;
    w->look_at = 0;
    w->turn_end = UINT64_MAX;
    w->leave_at = WEFT_NEVER;
    atom_store_rlx(&w->asleep, 1u); /* until somebody takes the place */
    w->rng = weft__sys_seed();
    w->now = weft__sys_now();
    weft__stack_cache_init(&w->stacks, rt->stacks);
    weft__wheel_init(&w->wheel, w->now, WEFT__RUNTIME_TICK);
    atom_store_rlx(&w->wheel_next, (uint64_t)WEFT_NEVER);
}

void weft__worker_fini(weft__worker *w)
{
    while (weft__worker_give_up(w)) /* tombstones are dropped on the way; there is nothing else */
        ;
    weft__deque_fini(&w->fifo);
    weft__stack_cache_fini(&w->stacks);
    weft__task_cache_fini(&w->tasks, &w->rt->depot);
}

/* SPDX-License-Identifier: MIT
 *
 * task.c -- a task from the pickup on: sixteen updates in a ring, two sides that may
 * leave in either order, one outcome.
 *
 * Invariants, under task->lock
 *   T1  outcome leaves OPEN once, and the one who moves it counts it.
 *   T2  A reader waits only while the ring is empty and the outcome OPEN; a writer
 *       only while WEFT_UPDATES_MAX updates are in the ring, and nobody abandoned.
 *   T3  The place WEFT_UPDATES_MAX of the ring is for the result only, so a
 *       completion never waits.
 *   T4  The sender's signal is up while the ring is not empty or the outcome is not
 *       OPEN; the receiver's once the task is abandoned.
 * Buffers are unreferenced outside of the lock: their destructors are user code.
 */
#include "bgworker/bgworker.h"

#include <string.h>

static weft__task *of_sent(const weft_sent *s)
{
    return (weft__task *)(uintptr_t)s;
}

static weft__task *of_received(const weft_received *r)
{
    return (weft__task *)(uintptr_t)r;
}

/* ---- Life ---- */

/* The fields that a user of the block has changed. */
void weft__task_reset(weft__task *t)
{
    t->refs.raw = 2;
    t->payload = NULL;
    t->entry.parker = NULL;
    t->seat = NULL;
    t->counted.raw = 0;
    t->outcome = WEFT_TASK_OPEN;
    t->sender_done = t->receiver_done = t->abandoned = t->forgotten = false;
    t->head = t->count = 0;
    WEFT__ASSERT(weft__list_empty(&t->readers) && weft__list_empty(&t->writers));
    WEFT__ASSERT(!weft__linked(&t->entry.link) && !weft__linked(&t->hold));
}

weft__task *weft__task_new(weft__lane *lane)
{
    /* Not calloc: its blocks do not come from glibc's per-thread cache. */
    weft__task *t = weft__malloc(sizeof *t);
    if (!t)
        return NULL;
    memset(t, 0, offsetof(weft__task, ring));
    t->worker = lane->worker;
    t->lane = lane;
    weft__list_init(&t->readers);
    weft__list_init(&t->writers);
    weft__task_reset(t);
    return t;
}

void weft__task_unref(weft__task *t)
{
    /* Alone with it there is nobody to agree with. Pairs with the other unrefs. */
    if (atom_load_acq(&t->refs) != 1 && atom_sub_ar(&t->refs, 1u) != 1)
        return;
    for (unsigned i = 0; i < t->count; i++)
        weft_buffer_unref(t->ring[(t->head + i) % WEFT__RING]);
    weft_buffer_unref(t->payload);
    weft__signal_close(&t->sender_signal, &t->worker->reg->pool);
    weft__signal_close(&t->receiver_signal, &t->worker->reg->pool);
    weft__task_recycle(t);
}

static bool decide(weft__task *t, weft_task_outcome outcome)
{
    if (t->outcome != WEFT_TASK_OPEN)
        return false;
    __atomic_store_n(&t->outcome, outcome, __ATOMIC_RELAXED);
    return true;
}

bool weft__settle(weft__task *t, weft_task_outcome outcome)
{
    bool first = decide(t, outcome);
    if (first)
        atom_add_rlx(&t->lane->outcomes[outcome], 1u);
    return first;
}

void weft__settled(weft__task *t, weft_task_outcome outcome)
{
    const weft_registry *reg = t->worker->reg;
    if (reg->hooks.task_outcome)
        reg->hooks.task_outcome(reg->hooks_arg, t->worker, outcome);
}

/* ---- Readers and writers ---- */

static bool readable(const weft__task *t)
{
    return (t->count > 0 && !t->called) || t->outcome != WEFT_TASK_OPEN || t->sender_done;
}

static void ring_push(weft__task *t, weft_buffer *b)
{
    WEFT__ASSERT(t->count < WEFT__RING);
    t->ring[(t->head + t->count++) % WEFT__RING] = b;
}

static weft_buffer *ring_pop(weft__task *t)
{
    weft_buffer *b = t->ring[t->head];
    t->head = (t->head + 1) % WEFT__RING;
    t->count--;
    return b;
}

/* The caller reads the last one only. Returns the one before. */
static weft_buffer *replace_last(weft__task *t, weft_buffer *b)
{
    weft_buffer *before = t->count > 0 ? ring_pop(t) : NULL;
    ring_push(t, b);
    return before;
}

static weft__wait_node *node_of(weft__link *l)
{
    return weft__container(l, weft__wait_node, link);
}

/* Lets writers that wait put their updates into the ring. */
static void serve_writers(weft__task *t, weft__wakes *wakes)
{
    while (t->count < WEFT_UPDATES_MAX && !weft__list_empty(&t->writers)) {
        weft__wait_node *n = node_of(weft__list_pop(&t->writers));
        if (!weft__node_claim(n, 0))
            continue;
        ring_push(t, n->payload);
        weft__wakes_add(wakes, n->parker);
    }
}

/* node->payload points to the caller's weft_buffer *. */
static int read_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft__task *t = object;
    if (t->sender_done)
        return -EBADF;
    if (t->count > 0 && !t->called) {
        *(weft_buffer **)n->payload = ring_pop(t);
        serve_writers(t, wakes);
        return 1;
    }
    if (t->outcome == WEFT_TASK_OPEN)
        return -EAGAIN;
    t->sender_done = true;
    if (t->outcome == WEFT_TASK_COMPLETED && t->count > 0)
        *(weft_buffer **)n->payload = ring_pop(t);
    switch (t->outcome) {
    case WEFT_TASK_ABORTED:
        return -ECONNABORTED;
    case WEFT_TASK_TIMEOUT:
        return -ETIME;
    case WEFT_TASK_RELEASED:
        return -ESHUTDOWN;
    default:
        return 0;
    }
}

static void serve_readers(weft__task *t, weft__wakes *wakes)
{
    while (readable(t) && !weft__list_empty(&t->readers)) {
        weft__wait_node *n = node_of(weft__list_pop(&t->readers));
        if (!weft__claim(n->parker, n->index))
            continue;
        n->result = read_try(t, n, wakes); /* ours between claim and unpark */
        weft__wakes_add(wakes, n->parker);
    }
}

/* node->payload is the update. 1: nobody wants what is in there now, the caller throws it
 * away. */
static int update_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    weft__task *t = object;
    if (t->receiver_done)
        return -EBADF;
    if (t->abandoned)
        return -EPIPE;
    if (t->forgotten)
        return 1;
    if (t->called) {
        n->payload = replace_last(t, n->payload);
        return 1;
    }
    if (t->count >= WEFT_UPDATES_MAX)
        return -EAGAIN;
    ring_push(t, n->payload);
    serve_readers(t, wakes);
    return 0;
}

static void link_reader(void *object, weft__wait_node *n)
{
    weft__list_push(&((weft__task *)object)->readers, &n->link);
}

static void link_writer(void *object, weft__wait_node *n)
{
    weft__list_push(&((weft__task *)object)->writers, &n->link);
}

static void unlink_node(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops read_ops = {"task read", read_try, link_reader, unlink_node};
static const weft__waitable_ops update_ops = {"task update", update_try, link_writer, unlink_node};

/* Ends the waits of all in `list` with `result`. */
static void end_waits(weft__list *list, int result, weft__wakes *wakes)
{
    while (!weft__list_empty(list)) {
        weft__wait_node *n = node_of(weft__list_pop(list));
        if (weft__node_claim(n, result))
            weft__wakes_add(wakes, n->parker);
    }
}

/* ---- The sender's side ---- */

/* The descriptor may have a token that no longer stands for anything. */
static void lower_sender_signal(weft__task *t)
{
    if (!weft__signal_drain(&t->sender_signal))
        return;
    weft__after after = {0};
    weft__acquire(&t->lock);
    t->sender_signal.up = false;
    if (readable(t))
        weft__after_raise(&after, &t->sender_signal);
    weft__release(&t->lock);
    weft__after_run(&after);
}

/* weft__wait_on, with a look before the sleep. */
static int read_wait(weft__task *t, weft__wait_node *n, weft_time deadline)
{
    weft__parker *self = NULL;
    weft__wakes wakes = {NULL, NULL};
    if (deadline != WEFT_TRY) {
        self = weft__self();
        int r = weft__checkpoint(self);
        if (r)
            return r;
    }
    weft__acquire(&t->lock);
    int r = read_try(t, n, &wakes);
    bool lower = t->sender_signal.up && !readable(t);
    if (r != -EAGAIN || !self) {
        weft__release(&t->lock);
        weft__wakes_run(&wakes);
        if (lower)
            lower_sender_signal(t);
        return r;
    }
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline) {
        weft__release(&t->lock);
        return -ETIMEDOUT;
    }
    n->parker = self;
    n->index = 0;
    weft__wait_begin(self, read_ops.what, t);
    link_reader(t, n);
    weft__release(&t->lock);
    if (t->worker->reg->spins)
        weft__spin_wait(&t->worker->read_spin, self);
    uint32_t outcome = weft__wait_commit(self, deadline);
    if (outcome == 0)
        return n->result;
    weft__node_retract(&read_ops, t, &t->lock, n);
    return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

int weft__task_read(weft__task *t, weft_time deadline, weft_buffer **ret)
{
    weft__wait_node n = {.payload = ret};
    return read_wait(t, &n, deadline);
}

void weft__task_retract(weft__task *t, weft__wait_node *reader)
{
    weft__node_retract(&read_ops, t, &t->lock, reader);
}

int weft_sent_read(weft_sent *sent, weft_time deadline, weft_buffer **ret)
{
    weft__task *t = of_sent(sent);
    if (!t || !ret)
        return -EINVAL;
    weft_buffer *b = NULL;
    weft__wait_node n = {.payload = &b};
    int r;
    if (!t->posted) {
        r = read_wait(t, &n, deadline);
    } else {
        /* Nobody else watches a posted task's pickup deadline. */
        weft_time limit = t->pickup_deadline;
        bool by_pickup = deadline == WEFT_TRY || limit < deadline;
        r = read_wait(t, &n, deadline != WEFT_TRY && limit < deadline ? limit : deadline);
        if ((r == -ETIMEDOUT || r == -EAGAIN) && by_pickup && limit != WEFT_NEVER &&
            weft__sys_now() >= limit) {
            if (weft__task_unqueue(t)) {
                weft__task_expire(t, WEFT_TASK_TIMEOUT);
                weft__task_unref(t); /* the queue's */
            }
            r = read_wait(t, &n, deadline); /* expired; or picked up, then as any other */
        }
    }
    if (r == 1)
        *ret = b;
    return r;
}

int weft_sent_fd(weft_sent *sent)
{
    weft__task *t = of_sent(sent);
    if (!t)
        return -EINVAL;
    weft__acquire(&t->lock);
    bool done = t->sender_done, made = t->sender_signal.made;
    weft__release(&t->lock);
    if (done)
        return -EBADF;
    if (made)
        return t->sender_signal.fd;
    int r = weft__signal_open(&t->sender_signal, &t->worker->reg->pool, &t->lock);
    if (r)
        return r;
    weft__after after = {0};
    weft__acquire(&t->lock);
    if (readable(t))
        weft__after_raise(&after, &t->sender_signal);
    weft__release(&t->lock);
    weft__after_run(&after);
    return t->sender_signal.fd;
}

/* Settles a task that was never picked up. */
void weft__task_expire(weft__task *t, weft_task_outcome outcome)
{
    weft__after after = {0};
    weft__acquire(&t->lock);
    bool counted = weft__settle(t, outcome);
    serve_readers(t, &after.wakes);
    weft__after_raise(&after, &t->sender_signal);
    weft__release(&t->lock);
    weft__after_run(&after);
    if (counted)
        weft__settled(t, outcome);
}

int weft_sent_abandon(weft_sent *sent)
{
    weft__task *t = of_sent(sent);
    if (!t)
        return -EINVAL;
    bool queued = t->posted && weft__task_unqueue(t);
    weft__after after = {0};
    weft__acquire(&t->lock);
    bool counted = false;
    if (!t->sender_done) {
        counted = weft__settle(t, WEFT_TASK_ABANDONED);
        t->sender_done = true;
        if (counted) {
            t->abandoned = true;
            weft__after_raise(&after, &t->receiver_signal);
        }
        end_waits(&t->writers, -EPIPE, &after.wakes);
        end_waits(&t->readers, -EBADF, &after.wakes);
        weft__after_raise(&after, &t->sender_signal);
    }
    weft__release(&t->lock);
    weft__after_run(&after);
    if (counted)
        weft__settled(t, WEFT_TASK_ABANDONED);
    if (queued)
        weft__task_unref(t);
    return 0;
}

weft_sent *weft_sent_free(weft_sent *sent)
{
    if (sent) {
        weft_sent_abandon(sent);
        weft__task_unref(of_sent(sent));
    }
    return NULL;
}

weft_sent *weft_sent_forget(weft_sent *sent)
{
    weft__task *t = of_sent(sent);
    if (!t)
        return NULL;
    weft__after after = {0};
    weft_buffer *unread[WEFT__RING];
    unsigned count = 0;
    weft__acquire(&t->lock);
    t->forgotten = true;
    while (t->count > 0)
        unread[count++] = ring_pop(t);
    end_waits(&t->writers, 1, &after.wakes);
    weft__release(&t->lock);
    weft__after_run(&after);
    for (unsigned i = 0; i < count; i++)
        weft_buffer_unref(unread[i]);
    weft__task_unref(t);
    return NULL;
}

weft_task_outcome weft_sent_outcome(const weft_sent *sent)
{
    return sent ? __atomic_load_n(&of_sent(sent)->outcome, __ATOMIC_RELAXED) : WEFT_TASK_OPEN;
}

uint64_t weft_sent_id(const weft_sent *sent)
{
    return sent ? of_sent(sent)->id : 0;
}

/* ---- The receiver's side ---- */

/* By the seat, with a task that weft__seat_give has prepared. */
void weft__task_hold(weft__task *t, weft_seat *seat)
{
    if (t->how_held == WEFT__HELD_SLOT) {
        atom_store_rlx(&seat->first_at, (uint64_t)t->picked_at);
    } else {
        atom_store_rlx(&t->counted, 1u);
        atom_add_rlx(&seat->held_open, 1u);
        weft__acquire(&seat->lock);
        weft__list_push(&seat->held, &t->hold);
        t->how_held = WEFT__HELD_LIST;
        weft__release(&seat->lock);
    }
    const weft_registry *reg = t->worker->reg;
    if (reg->hooks.task_started)
        reg->hooks.task_started(reg->hooks_arg, t->worker);
}

/* The seat is not busy with this task any more. The slot is this task's until it is
 * freed or kept, so a plain store is no race. */
static void release_seat(weft__task *t)
{
    if (!t->seat)
        return;
    if (atom_load_rlx(&t->seat->slot) == t)
        atom_store_rlx(&t->seat->slot_open, 0u);
    else if (atom_load_rlx(&t->counted) && atom_xchg_acq(&t->counted, 0u))
        atom_sub_rlx(&t->seat->held_open, 1u);
}

/* Whether it is the one who sits in the seat that ends the task in its slot: then nobody
 * else writes the seat's counters. */
static bool by_sitter(const weft__task *t)
{
    const weft_seat *seat = t->seat;
    return atom_load_rlx((weft__aptr *)(uintptr_t)&seat->slot) == t &&
           atom_load_rlx((weft__aptr *)(uintptr_t)&seat->sits) == weft__self();
}

static void count_up(weft__a64 *counter, uint64_t n, bool alone)
{
    if (alone)
        atom_store_rlx(counter, atom_load_rlx(counter) + n);
    else
        atom_add_rlx(counter, n);
}

/* Under the task's lock, so before the sender runs on: at rest the figures add up. */
static bool receiver_settles(weft__task *t, weft_task_outcome outcome, weft_time spent)
{
    bool alone = by_sitter(t), first = decide(t, outcome);
    count_up(alone ? &t->seat->done_ns : &t->lane->task_ns, (uint64_t)spent, alone);
    if (first && alone && outcome == WEFT_TASK_COMPLETED)
        count_up(&t->seat->done, 1, true);
    else if (first)
        count_up(&t->lane->outcomes[outcome], 1, false);
    release_seat(t);
    return first;
}

/* Ends the receiver's side once: with an outcome, unless the sender was faster. */
static int receiver_end(weft__task *t, weft_buffer *result, weft_task_outcome outcome)
{
    const weft_registry *reg = t->worker->reg;
    weft__after after = {0};
    weft_time spent = weft__sys_now() - t->picked_at;
    weft__acquire(&t->lock);
    if (t->receiver_done) {
        weft__release(&t->lock);
        return -EBADF;
    }
    t->receiver_done = true;
    bool abandoned = t->abandoned;
    bool counted = receiver_settles(t, outcome, spent);
    weft_buffer *unwanted = NULL;
    if (result && !abandoned) {
        if (t->forgotten)
            unwanted = result;
        else if (t->called)
            unwanted = replace_last(t, result);
        else
            ring_push(t, result);
    }
    if (!weft__list_empty(&t->writers))
        end_waits(&t->writers, -EBADF, &after.wakes);
    serve_readers(t, &after.wakes);
    weft__after_raise(&after, &t->sender_signal);
    weft__release(&t->lock);
    if (counted)
        weft__settled(t, outcome);
    if (reg->hooks.task_stopped)
        reg->hooks.task_stopped(reg->hooks_arg, t->worker, spent);
    weft__after_run(&after);
    weft_buffer_unref(unwanted);
    return abandoned ? -EPIPE : 0;
}

weft_buffer *weft_received_payload(const weft_received *task)
{
    return task ? of_received(task)->payload : NULL;
}

uint64_t weft_received_id(const weft_received *task)
{
    return task ? of_received(task)->id : 0;
}

int weft_received_update(weft_received *task, weft_buffer *update, weft_time deadline)
{
    weft__task *t = of_received(task);
    if (!t)
        return -EINVAL;
    weft__wait_node n = {.payload = update};
    weft__parker *self = deadline == WEFT_TRY ? NULL : weft__self();
    int r = self ? weft__checkpoint(self) : 0;
    if (r)
        return r;
    weft__after after = {0};
    weft__acquire(&t->lock);
    r = update_try(t, &n, &after.wakes);
    if (r == -EAGAIN && self) {
        r = weft__wait_slow(&update_ops, t, &t->lock, &n, self, deadline);
    } else {
        if (r == 0 && t->count > 0)
            weft__after_raise(&after, &t->sender_signal);
        weft__release(&t->lock);
        weft__after_run(&after);
    }
    if (r == 1) {
        weft_buffer_unref(n.payload);
        r = 0;
    }
    return r;
}

int weft_received_complete(weft_received *task, weft_buffer *result)
{
    weft__task *t = of_received(task);
    if (!t)
        return -EINVAL;
    if (t->seat)
        atom_store_rlx(&t->seat->completed, 1u);
    return receiver_end(t, result, WEFT_TASK_COMPLETED);
}

void weft__task_abort(weft__task *t)
{
    receiver_end(t, NULL, WEFT_TASK_ABORTED);
}

int weft_received_fd(weft_received *task)
{
    weft__task *t = of_received(task);
    if (!t)
        return -EINVAL;
    weft__acquire(&t->lock);
    bool done = t->receiver_done, made = t->receiver_signal.made;
    weft__release(&t->lock);
    if (done)
        return -EBADF;
    if (made)
        return t->receiver_signal.fd;
    int r = weft__signal_open(&t->receiver_signal, &t->worker->reg->pool, &t->lock);
    if (r)
        return r;
    weft__after after = {0};
    weft__acquire(&t->lock);
    if (t->abandoned)
        weft__after_raise(&after, &t->receiver_signal);
    weft__release(&t->lock);
    weft__after_run(&after);
    return t->receiver_signal.fd;
}

bool weft_received_abandoned(const weft_received *task)
{
    weft__task *t = of_received(task);
    if (!t)
        return false;
    weft__acquire(&t->lock);
    bool abandoned = t->abandoned;
    weft__release(&t->lock);
    return abandoned;
}

/* Takes the task out of its seat; false when it was not in it. */
static bool unhold(weft__task *t)
{
    weft_seat *seat = t->seat;
    if (t->how_held == WEFT__HELD_SLOT) {
        /* Only who has this task takes it out, and only into an empty slot comes another. */
        if (atom_load_rlx(&seat->slot) != t)
            return false;
        atom_store_rel(&seat->slot, NULL); /* pairs with weft__seat_give */
        return true;
    }
    weft__acquire(&seat->lock);
    bool held = weft__linked(&t->hold);
    if (held)
        weft__list_remove(&t->hold);
    weft__release(&seat->lock);
    return held;
}

int weft_received_keep(weft_received *task)
{
    weft__task *t = of_received(task);
    if (!t)
        return -EINVAL;
    weft__acquire(&t->lock);
    bool done = t->receiver_done;
    weft__release(&t->lock);
    if (done)
        return -EBADF;
    release_seat(t);
    return unhold(t) ? 0 : -EALREADY;
}

weft_received *weft_received_free(weft_received *task)
{
    weft__task *t = of_received(task);
    if (t) {
        if (!t->receiver_done) /* the last call on this side: nobody else writes it */
            receiver_end(t, NULL, WEFT_TASK_COMPLETED);
        unhold(t); /* after it: what is in the slot is busy until it is ended */
        weft__task_unref(t);
    }
    return NULL;
}

/* SPDX-License-Identifier: MIT
 *
 * Poll tasks at every primitive of the sync room: each outcome of each wait, in a table;
 * and that locks, permits, places and signals are conserved among poll tasks, fibers and
 * threads while waits end by cancellation, by deadline, or because a body leaves them. */
#include "unit_test.h"

#include <errno.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

static int join(weft_task *t)
{
    int result = -EBADF;
    assert_int_equal(weft_task_join(t, weft_after(50 * WEFT_SEC), &result), 0);
    weft_task_unref(t);
    return result;
}

static uint32_t next(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

/* ---- Each outcome of each wait ---- */

enum kind {
    MUTEX,
    READ,
    WRITE,
    SEMAPHORE,
    RESERVE,
    READABLE,
    WRITABLE,
    EVENT,
    VALUE,
    GROUP,
    VARIABLE,
    CHANGE,
    SUBSCRIBER,
    RECV,
    SEND,
    ONCE,
    COND,
    BARRIER,
    KINDS
};

/* All of it makes its caller wait until `open_world`. */
static struct world {
    weft_mutex mutex, cond_mutex;
    weft_rwlock rwlock;
    weft_semaphore semaphore;
    weft_event event;
    weft_value value;
    weft_waitgroup group;
    weft_variable variable;
    weft_broadcast *broadcast;
    weft_subscriber subscriber;
    weft_channel *empty, *full;
    weft_once once;
    weft_cond cond;
    weft_barrier barrier;
    int item, got, ran;
} w;

static void close_world(void)
{
    memset(&w, 0, sizeof w);
    assert_int_equal(weft_mutex_lock(&w.mutex, WEFT_TRY), 0);
    assert_int_equal(weft_mutex_lock(&w.once.weft__mutex, WEFT_TRY), 0);
    assert_int_equal(weft_rwlock_write(&w.rwlock, WEFT_TRY), 0);
    assert_int_equal(weft_waitgroup_add(&w.group, 1), 0);
    assert_int_equal(weft_barrier_init(&w.barrier, 2), 0);
    assert_int_equal(weft_broadcast_new(sizeof(int), 4, &w.broadcast), 0);
    assert_int_equal(weft_subscribe(w.broadcast, &w.subscriber), 0);
    assert_int_equal(weft_channel_new(sizeof(int), 1, NULL, &w.empty), 0);
    assert_int_equal(weft_channel_new(sizeof(int), 1, NULL, &w.full), 0);
    assert_int_equal(weft_channel_send(w.full, &w.item, WEFT_TRY), 0);
}

static void end_world(void)
{
    weft_unsubscribe(&w.subscriber);
    weft_broadcast_unref(w.broadcast);
    weft_channel_unref(w.empty);
    weft_channel_unref(w.full);
}

static void open_world(enum kind kind)
{
    int item = 5;
    switch (kind) {
    case MUTEX:
        assert_int_equal(weft_mutex_unlock(&w.mutex), 0);
        break;
    case READ:
    case WRITE:
        assert_int_equal(weft_rwlock_write_unlock(&w.rwlock), 0);
        break;
    case SEMAPHORE:
        assert_int_equal(weft_semaphore_release(&w.semaphore, 2), 0);
        break;
    case RESERVE:
    case WRITABLE:
    case SEND:
        assert_int_equal(weft_channel_recv(w.full, &item, WEFT_TRY), 0);
        break;
    case READABLE:
    case RECV:
        assert_int_equal(weft_channel_send(w.empty, &item, WEFT_TRY), 0);
        break;
    case EVENT:
        weft_event_set(&w.event);
        break;
    case VALUE:
        weft_value_set(&w.value, NULL);
        break;
    case GROUP:
        weft_waitgroup_done(&w.group);
        break;
    case VARIABLE:
    case CHANGE:
        weft_variable_finish(&w.variable, NULL, NULL);
        break;
    case SUBSCRIBER:
        weft_broadcast_send(w.broadcast, &item);
        break;
    case ONCE:
        weft_mutex_unlock(&w.once.weft__mutex);
        break;
    case COND:
        weft_cond_signal(&w.cond);
        break;
    default:
        assert_int_equal(weft_barrier_wait(&w.barrier, WEFT_NEVER), 1);
    }
}

struct caller {
    int line, r;
    enum kind kind;
    weft_time deadline, begun;
    weft__a32 *stage;
    weft_poll_op op;
    weft_poll_cond_op cond;
    weft_poll_barrier_op barrier;
    int got;
};

static int run_once(void *arg)
{
    ++*(int *)arg;
    return 0;
}

static weft_select_case case_of(struct caller *c)
{
    switch (c->kind) {
    case MUTEX:
        return weft_case_mutex(&w.mutex);
    case READ:
        return weft_case_read_lock(&w.rwlock);
    case WRITE:
        return weft_case_write_lock(&w.rwlock);
    case SEMAPHORE:
        return weft_case_semaphore(&w.semaphore, 2);
    case RESERVE:
        return weft_case_reserve(w.full);
    case READABLE:
        return weft_case_channel_readable(w.empty);
    case WRITABLE:
        return weft_case_channel_writable(w.full);
    case EVENT:
        return weft_case_event(&w.event);
    case VALUE:
        return weft_case_value(&w.value);
    case GROUP:
        return weft_case_waitgroup(&w.group);
    case VARIABLE:
        return weft_case_variable(&w.variable);
    case CHANGE:
        return weft_case_variable_change(&w.variable, 0);
    case SUBSCRIBER:
        return weft_case_subscriber(&w.subscriber, &c->got);
    case RECV:
        return weft_case_recv(w.empty, &c->got);
    default:
        return weft_case_send(w.full, &c->got);
    }
}

static int call(weft_task *self, struct caller *c, weft_time deadline)
{
    switch (c->kind) {
    case ONCE:
        return weft_poll_once(self, &c->op, &w.once, run_once, &w.ran, deadline);
    case COND:
        return weft_poll_cond(self, &c->cond, &w.cond, &w.cond_mutex, deadline);
    case BARRIER:
        return weft_poll_barrier(self, &c->barrier, &w.barrier, deadline);
    default:
        return weft_poll_do(self, &c->op, case_of(c), deadline);
    }
}

/* Holds the condition's mutex at each call and after each answer. */
static int one_call(weft_task *self, void *state)
{
    struct caller *c = state;
    WEFT_POLL_BEGIN(c->line);
    assert_int_equal(weft_mutex_lock(&w.cond_mutex, WEFT_TRY), 0);
    assert_int_equal(call(self, c, WEFT_TRY), -EAGAIN);
    assert_int_equal(call(self, c, 1), -ETIMEDOUT);
    WEFT_POLL_AWAIT(c->line, c->r, call(self, c, weft_after(WEFT_MSEC)));
    assert_int_equal(c->r, -ETIMEDOUT);
    assert_true(weft_mutex_locked(&w.cond_mutex));
    /* Asked for again in the same poll, and something else asked for meanwhile. */
    c->r = call(self, c, weft_after(WEFT_MSEC));
    assert_int_equal(c->r, WEFT_PENDING);
    assert_int_equal(call(self, c, weft_after(WEFT_MSEC)), WEFT_PENDING);
    weft_poll_op other = {0};
    weft_poll_cond_op other_cond = {0};
    weft_poll_barrier_op other_barrier = {0};
    assert_int_equal(weft_poll_do(self, &other, weft_case_time(1), WEFT_NEVER), -EBUSY);
    assert_int_equal(weft_poll_barrier(self, &other_barrier, &w.barrier, WEFT_NEVER), -EBUSY);
    assert_int_equal(weft_poll_cond(self, &other_cond, &w.cond, &w.cond_mutex, WEFT_NEVER), -EBUSY);
    WEFT_POLL_AWAIT(c->line, c->r, call(self, c, weft_after(WEFT_MSEC)));
    assert_int_equal(c->r, -ETIMEDOUT);
    atom_store_rel(c->stage, 1u);
    WEFT_POLL_AWAIT(c->line, c->r, call(self, c, c->deadline));
    if (c->r == -ECANCELED) { /* sticky, but a try is not disturbed */
        assert_int_equal(call(self, c, WEFT_NEVER), -ECANCELED);
        assert_int_equal(call(self, c, WEFT_TRY), -EAGAIN);
    }
    assert_true(weft_mutex_locked(&w.cond_mutex));
    assert_int_equal(weft_mutex_unlock(&w.cond_mutex), 0);
    WEFT_POLL_END;
    return c->r;
}

enum { OPENED, CANCELLED, IN_TIME, WAYS };

static void one_of_each(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime *rt = runtime(workers);
        for (enum kind kind = 0; kind < KINDS; kind++)
            for (int way = 0; way < WAYS; way++) {
                weft__a32 stage = {0};
                struct caller c = {.kind = kind, .stage = &stage, .deadline = WEFT_NEVER};
                weft_task *t;
                if (way == IN_TIME)
                    c.deadline = weft_after(20 * WEFT_MSEC);
                close_world();
                assert_int_equal(weft_spawn_poll(rt, one_call, &c, sizeof c, NULL, &t), 0);
                while (!atom_load_acq(&stage))
                    test_sleep_ms(1);
                test_sleep_ms(2);
                if (way == OPENED)
                    open_world(kind);
                else if (way == CANCELLED)
                    weft_task_cancel(t);
                static const int expected[] = {0, -ECANCELED, -ETIMEDOUT};
                int r = join(t);
                if (r != expected[way])
                    fail_msg("kind %d, way %d: %d", kind, way, r);
                if (kind == ONCE)
                    assert_int_equal(w.ran, way == OPENED);
                end_world();
            }
        weft_runtime_free(rt);
    }
}

static int wrong_arguments(weft_task *self, void *state)
{
    (void)state;
    weft_poll_op op = {0};
    weft_poll_cond_op cond = {0};
    weft_poll_barrier_op barrier = {0};
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_cond c = WEFT_COND_INIT;
    weft_barrier b = {0}, alone = WEFT_BARRIER_INIT(1);
    weft_once o = WEFT_ONCE_INIT;
    weft_channel *meet;
    int ran = 0;
    assert_int_equal(weft_channel_new(4, 0, NULL, &meet), 0);
    weft_select_case bad[] = {weft_case_mutex(NULL),
                              weft_case_read_lock(NULL),
                              weft_case_write_lock(NULL),
                              weft_case_reserve(NULL),
                              weft_case_channel_readable(NULL),
                              weft_case_channel_writable(NULL),
                              weft_case_channel_readable(meet),
                              weft_case_channel_writable(meet)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(weft_poll_do(self, &op, bad[i], WEFT_TRY), -EINVAL);
    weft_channel_unref(meet);
    assert_int_equal(weft_poll_cond(self, NULL, &c, &m, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_cond(self, &cond, NULL, &m, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_cond(self, &cond, &c, NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_cond(self, &cond, &c, &m, WEFT_NEVER), -EPERM); /* not locked */
    assert_int_equal(weft_poll_barrier(self, NULL, &alone, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_barrier(self, &barrier, NULL, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_barrier(self, &barrier, &b, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_barrier(self, &barrier, &alone, WEFT_TRY), 1);
    assert_int_equal(weft_poll_once(self, NULL, &o, run_once, &ran, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_once(self, &op, NULL, run_once, &ran, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_once(self, &op, &o, NULL, &ran, WEFT_TRY), -EINVAL);
    assert_int_equal(weft_poll_once(self, &op, &o, run_once, &ran, WEFT_TRY), 0);
    assert_int_equal(weft_poll_once(self, &op, &o, run_once, &ran, WEFT_NEVER), 0);
    assert_int_equal(ran, 1);
    return 3;
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(1);
    weft_task *t;
    weft_poll_op op = {0};
    weft_poll_cond_op cond = {0};
    weft_poll_barrier_op barrier = {0};
    assert_int_equal(weft_spawn_poll(rt, wrong_arguments, NULL, 0, NULL, &t), 0);
    assert_int_equal(join(t), 3);
    weft_runtime_free(rt);
    close_world();
    assert_int_equal(weft_poll_once(NULL, &op, &w.once, run_once, &w.ran, WEFT_TRY), -EPERM);
    assert_int_equal(weft_poll_cond(NULL, &cond, &w.cond, &w.cond_mutex, WEFT_TRY), -EPERM);
    assert_int_equal(weft_poll_barrier(NULL, &barrier, &w.barrier, WEFT_TRY), -EPERM);
    end_world();
}

/* ---- What a body leaves ---- */

struct leaver {
    int line, r;
    enum kind kind;
    bool begins_another;
    weft__a32 *stage;
    struct caller caller;
    weft_poll_op other;
};

/* Waits, is granted it, and does not ask; but it may take it again before it ends, when it
 * began another wait instead. */
static int leave(weft_task *self, void *state)
{
    struct leaver *l = state;
    WEFT_POLL_BEGIN(l->line);
    if (l->kind == COND)
        assert_int_equal(weft_mutex_lock(&w.cond_mutex, WEFT_TRY), 0);
    l->caller.kind = l->kind;
    l->r = call(self, &l->caller, WEFT_NEVER);
    assert_int_equal(l->r, WEFT_PENDING);
    atom_store_rel(l->stage, 1u);
    l->line = 1;
    return WEFT_PENDING;
case 1:
    l->line = 2;
    if (l->begins_another) {
        l->r = weft_poll_do(self, &l->other, weft_case_event(&w.event), WEFT_NEVER);
        if (l->r == WEFT_PENDING) { /* not cancelled */
            atom_store_rel(l->stage, 2u);
            return WEFT_PENDING;
        }
    }
case 2:;
    WEFT_POLL_END;
    return 9;
}

static void await_stage(weft__a32 *stage, uint32_t n)
{
    while (atom_load_acq(stage) != n)
        test_sleep_ms(1);
    test_sleep_ms(1);
}

/* Somebody behind it in the queue. */
struct next_one {
    enum kind kind;
    weft__a32 started;
};

static int next_in_line(void *arg)
{
    struct next_one *n = arg;
    weft_time d = weft_after(40 * WEFT_SEC);
    atom_store_rel(&n->started, 1u);
    switch (n->kind) {
    case MUTEX:
        return weft_mutex_lock(&w.mutex, d);
    case READ:
    case WRITE:
        return weft_rwlock_write(&w.rwlock, d);
    case SEMAPHORE:
        return weft_semaphore_acquire(&w.semaphore, 2, d);
    case RESERVE:
        return weft_channel_send(w.full, &w.item, d);
    case COND:
        assert_int_equal(weft_mutex_lock(&w.cond_mutex, d), 0);
        return weft_cond_wait(&w.cond, &w.cond_mutex, d);
    case ONCE:
        return weft_once_do(&w.once, run_once, &w.ran, d);
    default: /* two parties: the leaver must not count */
        return weft_barrier_wait(&w.barrier, weft_after(30 * WEFT_MSEC));
    }
}

static void what_is_left_goes_to_the_next(void **state)
{
    (void)state;
    static const enum kind kinds[] = {MUTEX, READ, WRITE, SEMAPHORE, RESERVE, COND, ONCE, BARRIER};
    weft_runtime *rt = runtime(2);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int another = 0; another < 2; another++)
            for (int cancelled = 0; cancelled < 2; cancelled++) {
                weft__a32 stage = {0};
                struct leaver l = {
                    .kind = kinds[k], .stage = &stage, .begins_another = another != 0};
                struct next_one n = {.kind = kinds[k]};
                weft_task *t, *u;
                close_world();
                assert_int_equal(weft_spawn_poll(rt, leave, &l, sizeof l, NULL, &t), 0);
                await_stage(&stage, 1);
                if (kinds[k] == BARRIER) { /* left by itself */
                    if (cancelled)
                        weft_task_cancel(t);
                    else
                        weft_task_wake(t);
                    if (another && !cancelled)
                        await_stage(&stage, 2);
                    else
                        assert_int_equal(join(t), 9);
                }
                assert_int_equal(weft_spawn(rt, next_in_line, &n, NULL, &u), 0);
                if (kinds[k] != BARRIER) {
                    await_stage(&n.started, 1);
                    if (cancelled) /* decided first, or just now: one way or the other */
                        weft_task_cancel(t);
                    open_world(kinds[k]);
                }
                int r = join(u);
                if (r != (kinds[k] == BARRIER ? -ETIMEDOUT : 0))
                    fail_msg("kind %d, another %d, cancelled %d: %d", kinds[k], another, cancelled,
                             r);
                if ((another && !cancelled) || kinds[k] != BARRIER) {
                    weft_event_set(&w.event);
                    weft_task_cancel(t);
                    assert_int_equal(join(t), 9);
                }
                end_world();
            }
    weft_runtime_free(rt);
}

/* ---- Conservation ---- */

struct ring {
    enum kind kind;
    weft__a32 inside, writers, entered;
    weft_mutex mutex;
    weft_rwlock rwlock;
    weft_semaphore semaphore;
};

struct player {
    int line, r;
    uint32_t rng, turns;
    bool writes;
    struct ring *ring;
    weft_poll_op op;
};

static void enter_ring(struct ring *g, bool writes)
{
    uint32_t in = atom_add_rlx(&g->inside, 1u) + 1;
    uint32_t writers = atom_add_rlx(&g->writers, writes ? 1u : 0u) + (writes ? 1u : 0u);
    if (g->kind == MUTEX || writes)
        assert_int_equal(in, 1);
    if (g->kind == READ)
        assert_true(writers == (writes ? 1u : 0u));
    if (g->kind == SEMAPHORE)
        assert_in_range(in, 1, 2);
    atom_add_rlx(&g->entered, 1u);
}

static void leave_ring(struct ring *g, bool writes)
{
    atom_sub_rlx(&g->writers, writes ? 1u : 0u);
    atom_sub_rlx(&g->inside, 1u);
    if (g->kind == MUTEX)
        assert_int_equal(weft_mutex_unlock(&g->mutex), 0);
    else if (g->kind == SEMAPHORE)
        assert_int_equal(weft_semaphore_release(&g->semaphore, 1), 0);
    else if (writes)
        assert_int_equal(weft_rwlock_write_unlock(&g->rwlock), 0);
    else
        assert_int_equal(weft_rwlock_read_unlock(&g->rwlock), 0);
}

static weft_select_case ring_case(struct player *p)
{
    if (p->ring->kind == MUTEX)
        return weft_case_mutex(&p->ring->mutex);
    if (p->ring->kind == SEMAPHORE)
        return weft_case_semaphore(&p->ring->semaphore, 1);
    return p->writes ? weft_case_write_lock(&p->ring->rwlock)
                     : weft_case_read_lock(&p->ring->rwlock);
}

static int play(weft_task *self, void *state)
{
    struct player *p = state;
    WEFT_POLL_BEGIN(p->line);
    while (p->turns) {
        p->turns--;
        p->writes = p->ring->kind == READ && next(&p->rng) % 3 == 0;
        p->line = 100;
        p->r = WEFT_PENDING;
        if (0) {
        case 100:
            if (next(&p->rng) % 32 == 0)
                return 1; /* leaves, perhaps what it was just given */
        }
        p->r = weft_poll_do(self, &p->op, ring_case(p),
                            weft_after((weft_time)(next(&p->rng) % 100) * WEFT_USEC));
        if (p->r == WEFT_PENDING)
            return WEFT_PENDING;
        p->line = 0;
        if (p->r == -ECANCELED)
            return 2;
        if (p->r == 0) {
            enter_ring(p->ring, p->writes);
            if (next(&p->rng) % 2) { /* held while others run */
                WEFT_POLL_YIELD(p->line, self);
                /* The pending wait's line is not this one. */
            }
            leave_ring(p->ring, p->writes);
        }
    }
    WEFT_POLL_END;
    return 0;
}

/* The same from a fiber, through select among other cases. */
static int play_fiber(void *arg)
{
    struct player *p = arg;
    while (p->turns--) {
        p->writes = p->ring->kind == READ && next(&p->rng) % 3 == 0;
        weft_select_case cases[] = {
            ring_case(p), weft_case_time(weft_after((weft_time)(next(&p->rng) % 100) * WEFT_USEC))};
        int r = next(&p->rng) % 2 && p->ring->kind == MUTEX
                    ? weft_mutex_lock(&p->ring->mutex, weft_after(50 * WEFT_USEC))
                    : weft_select(cases, 2, 0, WEFT_NEVER);
        if (r == -ECANCELED)
            return 2;
        if (r == 0) {
            enter_ring(p->ring, p->writes);
            if (next(&p->rng) % 2)
                (void)weft_yield();
            leave_ring(p->ring, p->writes);
        }
    }
    return 0;
}

static void locks_are_conserved(void **state)
{
    enum { N = 12 };
    (void)state;
    uint32_t rng = (uint32_t)test_seed() | 1u;
    static const enum kind kinds[] = {MUTEX, READ, SEMAPHORE};
    for (uint64_t round = 0; round < test_rounds(60); round++) {
        struct ring ring = {.kind = kinds[round % 3], .semaphore = WEFT_SEMAPHORE_INIT(2)};
        struct player players[N];
        weft_task *t[N];
        weft_runtime *rt = runtime(1 + (unsigned)(round % 4));
        for (int i = 0; i < N; i++) {
            players[i] = (struct player){.ring = &ring, .rng = next(&rng) | 1u, .turns = 100};
            if (i % 3 == 2)
                assert_int_equal(weft_spawn(rt, play_fiber, &players[i], NULL, &t[i]), 0);
            else
                assert_int_equal(
                    weft_spawn_poll(rt, play, &players[i], sizeof players[i], NULL, &t[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            test_sleep_ms(next(&rng) % 2);
            weft_task_wake(t[0]);
            weft_task_cancel(t[next(&rng) % N]);
        }
        for (int i = 0; i < N; i++)
            assert_in_range(join(t[i]), 0, 2);
        assert_int_equal(atom_load_rlx(&ring.inside), 0);
        assert_int_equal(weft_mutex_lock(&ring.mutex, WEFT_TRY), 0);
        assert_int_equal(weft_mutex_unlock(&ring.mutex), 0);
        assert_int_equal(weft_mutex_fini(&ring.mutex), 0);
        assert_int_equal(weft_rwlock_fini(&ring.rwlock), 0);
        assert_int_equal(weft_semaphore_available(&ring.semaphore), 2);
        weft_runtime_free(rt);
    }
}

/* ---- A queue under a mutex and a condition ---- */

struct store {
    weft_mutex mutex;
    weft_cond filled;
    int items, made;
    weft__a64 taken;
    bool over;
};

struct taker {
    int line, r;
    uint32_t rng;
    struct store *store;
    weft_poll_op lock;
    weft_poll_cond_op cond;
};

/* Takes items until it is over; now and then it leaves a wait, and another like it comes. */
static int take(weft_task *self, void *state)
{
    struct taker *t = state;
    WEFT_POLL_BEGIN(t->line);
    for (;;) {
        WEFT_POLL_AWAIT(
            t->line, t->r,
            weft_poll_do(self, &t->lock, weft_case_mutex(&t->store->mutex), WEFT_NEVER));
        if (t->r)
            return t->r;
        while (!t->store->items && !t->store->over) {
            t->line = 200;
            if (0) {
            case 200:
                if (next(&t->rng) % 16 == 0)
                    return 1;
            }
            t->r = weft_poll_cond(self, &t->cond, &t->store->filled, &t->store->mutex,
                                  weft_after((weft_time)(next(&t->rng) % 3000) * WEFT_USEC));
            if (t->r == WEFT_PENDING)
                return WEFT_PENDING;
            if (t->r == -ECANCELED)
                break;
        }
        if (t->store->items && t->r != -ECANCELED) {
            t->store->items--;
            atom_add_rlx(&t->store->taken, 1u);
        } else if (t->store->over || t->r == -ECANCELED) {
            assert_int_equal(weft_mutex_unlock(&t->store->mutex), 0);
            return t->r == -ECANCELED ? 2 : 0;
        }
        assert_int_equal(weft_mutex_unlock(&t->store->mutex), 0);
    }
    WEFT_POLL_END;
    return 0;
}

static void signals_are_conserved(void **state)
{
    enum { N = 4 };
    (void)state;
    uint32_t rng = (uint32_t)test_seed() | 1u;
    for (uint64_t round = 0; round < test_rounds(20); round++) {
        struct store s = {.items = 0};
        weft_task *t[N] = {0};
        weft_runtime *rt = runtime(1 + (unsigned)(round % 3));
        int total = 300;
        for (int made = 0; made < total; made++) {
            for (int i = 0; i < N; i++) {
                int r;
                if (t[i] && weft_task_join(t[i], WEFT_TRY, &r) == -EAGAIN)
                    continue;
                if (t[i])
                    weft_task_unref(t[i]);
                struct taker taker = {.store = &s, .rng = next(&rng) | 1u};
                assert_int_equal(weft_spawn_poll(rt, take, &taker, sizeof taker, NULL, &t[i]), 0);
            }
            assert_int_equal(weft_mutex_lock(&s.mutex, WEFT_NEVER), 0);
            s.items++;
            assert_int_equal(weft_mutex_unlock(&s.mutex), 0);
            weft_cond_signal(&s.filled);
            if (made % 50 == 20)
                weft_task_cancel(t[next(&rng) % N]);
            if (made % 10 == 0)
                test_sleep_ms(1);
        }
        assert_int_equal(weft_mutex_lock(&s.mutex, weft_after(20 * WEFT_SEC)), 0);
        s.over = true;
        assert_int_equal(weft_mutex_unlock(&s.mutex), 0);
        weft_cond_broadcast(&s.filled);
        for (int i = 0; i < N; i++)
            assert_in_range(join(t[i]), 0, 2);
        assert_int_equal(weft_mutex_lock(&s.mutex, WEFT_TRY), 0);
        assert_int_equal(s.items + (int)atom_load_rlx(&s.taken), total);
        weft_runtime_free(rt);
    }
}

/* A signal among waiters who leave reaches one who stays. */
struct steady {
    int line, r;
    bool leaves;
    weft_mutex *mutex;
    weft_cond *cond;
    weft__a32 *waiting;
    weft_poll_cond_op op;
};

static int steady(weft_task *self, void *state)
{
    struct steady *s = state;
    WEFT_POLL_BEGIN(s->line);
    assert_int_equal(weft_mutex_lock(s->mutex, WEFT_TRY), 0);
    s->line = 1;
    s->r = weft_poll_cond(self, &s->op, s->cond, s->mutex, WEFT_NEVER);
    assert_int_equal(s->r, WEFT_PENDING);
    atom_add_rlx(s->waiting, 1u);
    return WEFT_PENDING;
case 1:
    if (s->leaves)
        return 1;
    s->r = weft_poll_cond(self, &s->op, s->cond, s->mutex, WEFT_NEVER);
    if (s->r == WEFT_PENDING)
        return WEFT_PENDING;
    assert_int_equal(weft_mutex_unlock(s->mutex), 0);
    WEFT_POLL_END;
    return s->r;
}

static void one_signal_reaches_one_who_stays(void **state)
{
    enum { N = 5 };
    (void)state;
    weft_runtime *rt = runtime(1);
    for (int stays = 0; stays < N; stays++) {
        weft_mutex m = WEFT_MUTEX_INIT;
        weft_cond c = WEFT_COND_INIT;
        weft__a32 waiting = {0};
        weft_task *t[N];
        for (int i = 0; i < N; i++) {
            struct steady s = {.leaves = i != stays, .mutex = &m, .cond = &c, .waiting = &waiting};
            assert_int_equal(weft_spawn_poll(rt, steady, &s, sizeof s, NULL, &t[i]), 0);
            while (atom_load_acq(&waiting) != (uint32_t)i + 1)
                test_sleep_ms(1);
        }
        weft_cond_signal(&c);
        assert_int_equal(join(t[stays]), 0);
        for (int i = 0; i < N; i++)
            if (i != stays) {
                weft_task_wake(t[i]);
                assert_int_equal(join(t[i]), 1);
            }
    }
    weft_runtime_free(rt);
}

/* ---- A barrier of both kinds ---- */

enum { PARTIES = 6 };

struct walker {
    int line, r, rounds;
    uint32_t rng;
    weft_barrier *barrier;
    weft__a32 *round;
    weft__a32 *lasts;
    uint32_t at;
    weft_poll_barrier_op op;
};

static void passed(struct walker *k)
{
    if (k->r == 1) {
        atom_add_rlx(k->lasts, 1u);
    } else {
        assert_int_equal(k->r, 0);
    }
    k->at++;
}

/* A deadline that comes too soon is one more try. */
static int walk(weft_task *self, void *state)
{
    struct walker *k = state;
    WEFT_POLL_BEGIN(k->line);
    while (k->rounds--) {
        do {
            WEFT_POLL_AWAIT(
                k->line, k->r,
                weft_poll_barrier(self, &k->op, k->barrier,
                                  weft_after((weft_time)(next(&k->rng) % 300) * WEFT_USEC)));
        } while (k->r == -ETIMEDOUT);
        passed(k);
    }
    WEFT_POLL_END;
    return (int)k->at;
}

static int walk_fiber(void *arg)
{
    struct walker *k = arg;
    while (k->rounds--) {
        do
            k->r = weft_barrier_wait(k->barrier,
                                     weft_after((weft_time)(next(&k->rng) % 300) * WEFT_USEC));
        while (k->r == -ETIMEDOUT);
        passed(k);
    }
    return (int)k->at;
}

static void rounds_are_complete(void **state)
{
    (void)state;
    uint32_t rng = (uint32_t)test_seed() | 1u;
    int rounds = (int)test_rounds(300);
    for (unsigned workers = 1; workers <= 3; workers++) {
        weft_runtime *rt = runtime(workers);
        weft_barrier b = WEFT_BARRIER_INIT(PARTIES);
        weft__a32 lasts = {0};
        struct walker k[PARTIES];
        weft_task *t[PARTIES];
        for (int i = 0; i < PARTIES; i++) {
            k[i] = (struct walker){
                .rounds = rounds, .rng = next(&rng) | 1u, .barrier = &b, .lasts = &lasts};
            if (i % 2)
                assert_int_equal(weft_spawn(rt, walk_fiber, &k[i], NULL, &t[i]), 0);
            else
                assert_int_equal(weft_spawn_poll(rt, walk, &k[i], sizeof k[i], NULL, &t[i]), 0);
        }
        for (int i = 0; i < PARTIES; i++)
            assert_int_equal(join(t[i]), rounds);
        assert_int_equal(atom_load_rlx(&lasts), rounds);
        assert_int_equal(weft_barrier_wait(&b, WEFT_TRY), -EAGAIN);
        weft_runtime_free(rt);
    }
}

int main(void)
{
    test_limit(100, "sched_pollsync");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_each),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(what_is_left_goes_to_the_next),
        cmocka_unit_test(locks_are_conserved),
        cmocka_unit_test(signals_are_conserved),
        cmocka_unit_test(one_signal_reaches_one_who_stays),
        cmocka_unit_test(rounds_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * model.c -- runs a scenario: its threads, the steps, the modelled futex, clock
 * and memory (the seam functions of base/sys.h and base/base.h), reports.
 *
 * Each model thread is a coroutine on a stack of its own. makecontext enters it
 * once; after that _setjmp and _longjmp switch, which is cheaper as no signal mask
 * is saved. The frame at the bottom of each stack never returns, so a jump to it
 * starts the thread anew in the next execution, however the last one left it.
 *
 * A thread that comes to a step says what the step will do (`pending`), the
 * explorer picks, the picked thread runs its step and the plain code behind it up
 * to its next step. A futex wait is a step that compares and goes to sleep; a wake
 * picks the sleepers, in all ways. A sleeper with a deadline can go at any time:
 * then it has timed out. Each thread has its own clock, which a timeout moves.
 */
#include "unit_test.h"

#include "model_internal.h"
#include "model_lock.h"

#include "base/base.h"
#include "base/lock.h"
#include "base/sys.h"

#include <errno.h>
#include <ucontext.h>

enum { STACK = 64 * 1024, ARENA = 64 * 1024, NAMES = 32, START_TIME = 1000000 };

enum thread_state { RUNS, SLEEPS, ENDED };

struct thread {
    jmp_buf bottom, here;
    ucontext_t context;
    enum thread_state state;
    bool begun;
    struct op pending;
    const void *futex; /* sleeps on */
    bool timed;
    bool woken;
    int waker;           /* the step that woke it, until it is recorded */
    int last;            /* its last step */
    int spurious, jumps; /* still to come */
    weft_time now;
};

static struct model {
    const struct model_scenario *s;
    struct explorer x;
    struct model_result result;
    struct thread thread[MODEL_THREADS];
    int current; /* -1 outside */
    bool trace;
    jmp_buf outside;
    ucontext_t outside_context;
    const char *given; /* a schedule to follow, else NULL */
    size_t used[MODEL_THREADS + 1];
    struct {
        const void *address;
        size_t size;
        const char *name;
    } name[NAMES];
    int names;
} m = {.current = -1};

static char stacks[MODEL_THREADS][STACK] __attribute__((aligned(64)));
static char arenas[MODEL_THREADS + 1][ARENA] __attribute__((aligned(64)));

/* ---- Reports ---- */

int model_current(void)
{
    return m.current;
}

void model_name(const void *address, size_t size, const char *name)
{
    WEFT__CHECK(m.names < NAMES);
    m.name[m.names].address = address;
    m.name[m.names].size = size;
    m.name[m.names++].name = name;
}

static void print_address(const void *address)
{
    const char *a = address;
    for (int i = 0; i < m.names; i++) {
        const char *start = m.name[i].address;
        if (a >= start && a < start + m.name[i].size) {
            fprintf(stderr, "%s+%d", m.name[i].name, (int)(a - start));
            return;
        }
    }
    for (int t = 0; t < MODEL_THREADS; t++)
        if (a >= stacks[t] && a < stacks[t] + STACK) {
            fprintf(stderr, "stack of %d, -%d", t, (int)(stacks[t] + STACK - a));
            return;
        }
    fprintf(stderr, "%p", address);
}

/* The value that the step before left behind, then the step to come. */
static void print_step(const struct event *last, const struct event *next)
{
    if (last && last->op.address)
        fprintf(stderr, "  = %x\n", *(const unsigned *)last->op.address);
    else if (last)
        fprintf(stderr, "\n");
    if (!next)
        return;
    static const char *const kinds[] = {"", "read", "write", "rmw"};
    fprintf(stderr, "%4d  %*s%d %s %s ", m.x.depth, 4 * next->thread, "", next->thread,
            next->op.where, kinds[next->op.kind & (OP_READ | OP_WRITE)]);
    if (next->op.address)
        print_address(next->op.address);
}

const char *model_last_place(int thread)
{
    int last = m.thread[thread].last;
    return last >= 0 ? m.x.event[last].op.where : "its start";
}

/* One digit a step; a letter behind it is the branch taken, when not the first. */
static void write_schedule(void)
{
    char *p = m.result.schedule;
    for (int i = 0; i < m.x.depth; i++) {
        *p++ = (char)('0' + m.x.node[i].thread);
        if (m.x.node[i].choice)
            *p++ = (char)('a' + m.x.node[i].choice);
    }
    *p = 0;
}

_Noreturn static void leave(void)
{
    m.current = -1;
    _longjmp(m.outside, 1);
}

_Noreturn void model_fail_text(const char *text)
{
    if (!m.result.failed) {
        m.result.failed = true;
        snprintf(m.result.why, sizeof m.result.why, "%s", text);
        write_schedule();
    }
    leave();
}

_Noreturn void model_fail(const char *file, int line, const char *what)
{
    char text[sizeof m.result.why];
    const char *slash = strrchr(file, '/');
    snprintf(text, sizeof text, "%s:%d: not so: %s (thread %d)", slash ? slash + 1 : file, line,
             what, m.current);
    model_fail_text(text);
}

/* ---- Steps ---- */

static void fail_deadlock(void)
{
    char text[sizeof m.result.why];
    int n = snprintf(text, sizeof text, "deadlock, a wake was lost:");
    for (int t = 0; t < m.s->threads; t++)
        if (m.thread[t].state != ENDED && !(m.s->may_sleep >> t & 1))
            n += snprintf(text + n, sizeof text - (size_t)n, " thread %d %s, last at %s;", t,
                          m.thread[t].state == SLEEPS ? "sleeps" : "waits for a lock",
                          model_last_place(t));
    model_fail_text(text);
}

static bool awaits_lock(const struct op *op)
{
    return (op->kind & OP_LOCK) && ((const weft__lock *)op->address)->word.raw;
}

/* Decides who takes the next step and records it; -1 when the execution is over. */
static int pick(void)
{
    struct explorer *x = &m.x;
    struct node *n = &x->node[x->depth];
    int previous = x->depth > 0 ? x->event[x->depth - 1].thread : -1;
    bool stuck = false;
    if (x->depth == MODEL_STEPS)
        model_fail_text("livelock: too many steps");
    n->enabled = 0;
    for (int t = 0; t < m.s->threads; t++) {
        struct thread *th = &m.thread[t];
        n->pending[t] = th->pending;
        if (th->state == SLEEPS ? th->timed : th->state == RUNS && !awaits_lock(&th->pending))
            n->enabled |= 1u << t;
        else if (th->state != ENDED && !(m.s->may_sleep >> t & 1))
            stuck = true;
    }
    if (!n->enabled) {
        if (stuck)
            fail_deadlock();
        return -1;
    }
    int next;
    if (m.given) {
        next = *m.given ? *m.given++ - '0' : __builtin_ctz(n->enabled);
        n->choice = *m.given >= 'a' ? *m.given++ - 'a' : 0;
        n->thread = next;
    } else {
        next = x->depth < x->replay ? n->thread : explore_pick(x, previous);
    }
    if (next < 0) {
        m.result.cut++;
        m.x.s = NULL; /* tells run_once that this was no whole execution */
        return -1;
    }
    if (!(n->enabled >> next & 1))
        model_fail_text("the schedule does not fit, or the scenario is not deterministic");
    struct thread *th = &m.thread[next];
    struct event *e = &x->event[x->depth];
    e->op = th->pending;
    e->thread = next;
    e->before = th->last;
    e->waker = th->waker;
    e->was_timed = th->timed;
    if (m.trace)
        print_step(x->depth ? e - 1 : NULL, e);
    th->waker = -1;
    th->last = x->depth++;
    if (next != m.current) {
        m.current = -1; /* what the callback does is nobody's step */
        if (m.s->on_switch)
            m.s->on_switch(next);
        m.current = next;
    }
    return next;
}

_Noreturn static void resume(int thread)
{
    struct thread *th = &m.thread[thread];
    if (th->begun)
        _longjmp(th->here, 1);
    th->begun = true;
    _longjmp(th->bottom, 1);
}

/* Lets the explorer decide, and returns when the caller is the one. */
static struct event *turn(void)
{
    int self = m.current;
    int next = pick();
    if (next < 0)
        leave();
    if (next != self && !_setjmp(m.thread[self].here))
        resume(next);
    return &m.x.event[m.x.depth - 1];
}

static struct event *step(const void *address, int kind, const char *where)
{
    m.thread[m.current].pending = (struct op){address, kind, where};
    return turn();
}

/* A branch inside the present step; at most one a step. */
static int branch(int n)
{
    struct node *at = &m.x.node[m.x.depth - 1];
    at->choices = n;
    if (at->choice >= n)
        model_fail_text("the scenario is not deterministic: another number of branches");
    return at->choice;
}

int model_choose(int n)
{
    if (m.current < 0)
        return 0;
    step(NULL, 0, "choose");
    return branch(n);
}

void weft__model_step(const void *address, int kind, int order, const char *where)
{
    if (m.current < 0)
        return;
    step(address, kind & (OP_READ | OP_WRITE), where);
    if (kind != WEFT__STEP_CAS)
        race_step(m.current, address, kind, order);
}

bool weft__model_cas(bool swapped, int order, int order_if_not)
{
    if (m.current < 0)
        return swapped;
    struct op *op = &m.x.event[m.x.depth - 1].op;
    if (!swapped)
        op->kind = OP_READ;
    race_step(m.current, op->address, op->kind, swapped ? order : order_if_not);
    return swapped;
}

/* ---- The lock as one step ---- */

void model_acquire(weft__lock *l)
{
    if (m.current < 0)
        return;
    step(l, OP_READ | OP_WRITE | OP_LOCK, "acquire");
    race_step(m.current, l, OP_READ | OP_WRITE, __ATOMIC_ACQUIRE);
    l->word.raw = 1u + (unsigned)m.current;
}

bool model_lock_try(weft__lock *l)
{
    if (m.current < 0)
        return true;
    struct event *e = step(l, OP_READ | OP_WRITE, "lock_try");
    if (l->word.raw) {
        e->op.kind = OP_READ;
        race_step(m.current, l, OP_READ, __ATOMIC_RELAXED);
        return false;
    }
    race_step(m.current, l, OP_READ | OP_WRITE, __ATOMIC_ACQUIRE);
    l->word.raw = 1u + (unsigned)m.current;
    return true;
}

void model_release(weft__lock *l)
{
    if (m.current < 0)
        return;
    model_check(l->word.raw == 1u + (unsigned)m.current);
    step(l, OP_WRITE | OP_UNLOCK, "release");
    race_step(m.current, l, OP_READ | OP_WRITE, __ATOMIC_RELEASE);
    l->word.raw = 0;
}

/* ---- The seam: futex, clock, seed, memory, abort ---- */

int weft__sys_futex_wait(weft__a32 *word, uint32_t expected, weft_time deadline)
{
    WEFT__CHECK(m.current >= 0);
    struct thread *self = &m.thread[m.current];
    struct event *e = step(word, OP_READ | OP_QUEUE, "futex_wait");
    bool differs = word->raw != expected, past = deadline <= self->now;
    if (differs || past)
        e->op.kind = OP_READ;
    if (differs)
        return 0;
    if (past)
        return -ETIMEDOUT;
    if (self->spurious > 0 && branch(2) == 1) {
        self->spurious--;
        e->op.kind = OP_READ;
        return 0;
    }
    self->state = SLEEPS;
    self->futex = word;
    self->timed = deadline != WEFT_NEVER;
    self->woken = false;
    step(word, OP_QUEUE, "futex_wait, timed out");
    self->state = RUNS;
    self->timed = false;
    if (self->woken)
        return 0;
    self->now = deadline;
    return -ETIMEDOUT;
}

void weft__sys_futex_wake(weft__a32 *word, int count)
{
    WEFT__CHECK(m.current >= 0 && count > 0);
    step(word, OP_WAKE, "futex_wake");
    int sleeper[MODEL_THREADS], n = 0;
    for (int t = 0; t < m.s->threads; t++)
        if (m.thread[t].state == SLEEPS && m.thread[t].futex == word && !m.thread[t].woken)
            sleeper[n++] = t;
    int first = n > count ? branch(n) : 0;
    for (int i = 0; i < n && i < count; i++) {
        struct thread *th = &m.thread[sleeper[(first + i) % n]];
        th->woken = true;
        th->state = RUNS;
        th->futex = NULL;
        th->waker = m.x.depth - 1;
        th->pending = (struct op){NULL, 0, "futex_wait, woken"};
    }
}

weft_time weft__sys_now(void)
{
    if (m.current < 0)
        return START_TIME;
    struct thread *self = &m.thread[m.current];
    if (self->jumps > 0 && model_choose(2)) {
        self->jumps--;
        self->now += MODEL_JUMP;
    }
    return self->now;
}

uint64_t weft__sys_seed(void)
{
    return 0x9e3779b97f4a7c15U + (uint64_t)m.current;
}

_Noreturn void weft__panic(const char *file, int line, const char *what)
{
    model_fail(file, line, what);
}

/* Per thread and never reused in an execution, so that an address does not depend
 * on the order of steps. */
void *weft__aligned_alloc(size_t alignment, size_t size)
{
    size_t *used = &m.used[m.current + 1];
    size_t at = (*used + alignment - 1) / alignment * alignment;
    WEFT__CHECK(alignment <= 64 && size <= ARENA && at + size <= ARENA);
    *used = at + size;
    void *memory = arenas[m.current + 1] + at;
    memset(memory, 0xa5, size);
    return memory;
}

void *weft__malloc(size_t size)
{
    /* The size in front tells weft__free how much is gone. */
    size_t *memory = weft__aligned_alloc(16, size + 16);
    *memory = size;
    return (char *)memory + 16;
}

void *weft__calloc(size_t count, size_t size)
{
    void *memory = weft__malloc(count * size);
    return memset(memory, 0, count * size);
}

void weft__free(void *memory)
{
    if (memory && m.current >= 0)
        race_free(m.current, memory, *(size_t *)((char *)memory - 16));
}

/* ---- Executions ---- */

static void bottom(void)
{
    if (!_setjmp(m.thread[m.current].bottom))
        _longjmp(m.outside, 1);
    m.s->run(m.current);
    m.thread[m.current].state = ENDED;
    m.thread[m.current].pending = (struct op){NULL, 0, "ended"};
    int next = pick();
    if (next < 0)
        leave();
    resume(next);
}

static void make_threads(void)
{
    for (int t = 0; t < m.s->threads; t++) {
        ucontext_t *c = &m.thread[t].context;
        getcontext(c);
        c->uc_stack.ss_sp = stacks[t];
        c->uc_stack.ss_size = STACK;
        c->uc_link = NULL;
        makecontext(c, bottom, 0);
        m.current = t;
        if (!_setjmp(m.outside))
            setcontext(c);
    }
    m.current = -1;
}

static void begin(void)
{
    m.x.s = m.s;
    m.x.depth = 0;
    m.names = 0;
    memset(m.used, 0, sizeof m.used);
    for (int t = 0; t < m.s->threads; t++) {
        struct thread *th = &m.thread[t];
        th->state = RUNS;
        th->begun = th->timed = th->woken = false;
        th->pending = (struct op){NULL, 0, "start"};
        th->futex = NULL;
        th->waker = th->last = -1;
        th->spurious = m.s->spurious;
        th->jumps = m.s->jumps;
        th->now = START_TIME;
    }
    race_begin(m.s->threads);
}

/* One execution; the result is in m.result. */
static void run_once(void)
{
    begin();
    if (!_setjmp(m.outside)) {
        if (m.s->setup)
            m.s->setup();
        int next = pick();
        if (next >= 0)
            resume(next);
    }
    m.current = -1;
    m.result.steps += (unsigned long)m.x.depth;
    if (m.x.depth > m.result.longest)
        m.result.longest = m.x.depth;
    if (m.trace && m.x.depth)
        print_step(&m.x.event[m.x.depth - 1], NULL);
    if (m.result.failed)
        return;
    if (!m.x.s) {
        m.x.s = m.s;
        return;
    }
    m.result.executions++;
    if (m.s->check && !_setjmp(m.outside))
        m.s->check();
}

/* Runs one given schedule and prints each step. */
static void run_given(const char *schedule)
{
    m.given = schedule;
    m.trace = true;
    run_once();
    m.trace = false;
    m.given = NULL;
    fprintf(stderr, "        %s\n", m.result.failed ? m.result.why : "holds");
}

struct model_result model_run(const struct model_scenario *s)
{
    unsigned long limit = s->limit ? s->limit : 5000000;
    const char *given = getenv("WEFT_MODEL_SCHEDULE");
    size_t length = strlen(s->name);
    m.s = s;
    m.x.replay = 0;
    memset(&m.result, 0, sizeof m.result);
    make_threads();
    if (given && strncmp(given, s->name, length) == 0 && given[length] == ':') {
        run_given(given + length + 1);
        return m.result;
    }
    do {
        run_once();
    } while (!m.result.failed && !(m.result.complete = !explore_next(&m.x)) &&
             m.result.executions + m.result.cut < limit);
    const struct model_result *r = &m.result;
    if (s->quiet)
        return m.result;
    printf("%s: explored %lu interleavings%s, %s (%lu cut short, %lu steps, longest %d)\n", s->name,
           r->executions, s->all ? "" : " that differ",
           r->failed     ? "one fails"
           : r->complete ? "all"
                         : "NOT all",
           r->cut, r->steps, r->longest);
    return m.result;
}

/* A schedule is given, and it is another scenario's. */
static bool passed_over(const struct model_scenario *s)
{
    const char *given = getenv("WEFT_MODEL_SCHEDULE");
    size_t length = strlen(s->name);
    return given && (strncmp(given, s->name, length) != 0 || given[length] != ':');
}

void model_must_hold(const struct model_scenario *s)
{
    if (passed_over(s))
        return;
    struct model_result r = model_run(s);
    if (r.failed) {
        if (!getenv("WEFT_MODEL_SCHEDULE"))
            run_given(r.schedule);
        fail_msg("%s\nto see it again: WEFT_MODEL_SCHEDULE=%s:%s", r.why, s->name, r.schedule);
    }
    if (!r.complete && !getenv("WEFT_MODEL_SCHEDULE"))
        fail_msg("%s: not all explored", s->name);
}

void model_must_find(const struct model_scenario *s, const char *why)
{
    if (passed_over(s))
        return;
    struct model_result r = model_run(s);
    if (getenv("WEFT_MODEL_SCHEDULE"))
        return;
    if (!r.failed)
        fail_msg("%s: the planted bug was not found", s->name);
    if (!strstr(r.why, why))
        fail_msg("%s: found something else: %s", s->name, r.why);
}

/* SPDX-License-Identifier: MIT
 *
 * Scopes: the real scope.c under toy tasks, which begin, wait and end in the order in
 * which spawn.c and task.c have them do it. Held:
 *   - closing returns only when every member has ended, its memory given back, and nobody
 *     touches the scope afterwards (an access to freed memory)
 *   - closing returns at all: a cancelled scope reaches every member, however it came to be
 *     cancelled, and a member that waits without a limit would else wait for ever
 *   - C2: a member that is spawned as the scope is cancelled is refused or cancelled
 *   - C3: so is what a task spawns into a scope that it opens while it is cancelled itself
 *   - the report tells each failure once, and the first cause
 */
#include "model_wait.h"

#include "../../src/sched/scope.c"

enum { MEMBERS = 3 };

/* What a model thread does as a member. */
enum does { ENDS, FAILS, WAITS, CANCELS_SCOPE, SPAWNS };

static int here; /* the model thread that runs */
static weft_task task[MODEL_THREADS];
static bool is_task[MODEL_THREADS];
static weft__a32 begun[MODEL_THREADS]; /* 0 not yet, 1 it runs, 2 it was refused */
static int result[MODEL_THREADS], ended[MODEL_THREADS];
static weft_scope *scope;
static weft_scope_report report;

static enum does does[MODEL_THREADS];
static int members, threads, closed_with;
static bool running; /* else in a setup, where nobody sleeps yet */
static unsigned flags;

static void on_switch(int t)
{
    running = true;
    here = t;
    parker_slot = &task[t].parker;
}

/* ---- As task.c and spawn.c ---- */

weft_task *weft_task_self(void)
{
    return is_task[here] ? &task[here] : NULL;
}

uint64_t weft_task_id(const weft_task *t)
{
    return (uint64_t)(t - task) + 1;
}

void weft__locals_drop(weft__locals *l)
{
    (void)l;
}

/* No deadlines here. */
int weft_spawn_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t size,
                    const weft_spawn_options *options, weft_task **ret_task)
{
    (void)rt, (void)fn, (void)init, (void)size, (void)options, (void)ret_task;
    return -ENOSYS;
}

int weft__spawn_poll(weft_runtime *rt, weft_poll_fn fn, const void *init, size_t size,
                     const weft_spawn_options *options, weft_task **ret_task, struct weft_scope *s)
{
    (void)rt, (void)fn, (void)init, (void)size, (void)options, (void)ret_task, (void)s;
    return -ENOSYS;
}

int weft_task_wake(weft_task *t)
{
    (void)t;
    return -ENOSYS;
}

int weft_task_wake_at(weft_task *t, weft_time deadline)
{
    (void)t, (void)deadline;
    return -ENOSYS;
}

int weft_task_join(weft_task *t, weft_time deadline, int *ret_result)
{
    (void)t, (void)deadline, (void)ret_result;
    return -ENOSYS;
}

weft_task *weft_task_unref(weft_task *t)
{
    (void)t;
    return NULL;
}

bool weft_cancelled(void)
{
    return atom_load_rlx(&task[here].parker.cancel) & WEFT__CANCEL;
}

weft_time weft_now(void)
{
    return weft__sys_now();
}

/* Thread `arg` becomes the task. */
int weft__spawn(weft_runtime *rt, weft_fn fn, void *arg, const weft_spawn_options *options,
                weft_task **ret_task, struct weft_scope *s)
{
    int t = *(int *)arg;
    (void)rt, (void)fn, (void)options, (void)ret_task;
    int r = weft__scope_enter(s);
    if (!r) {
        weft__extra *x = weft__extra_new();
        model_check(x != NULL);
        x->task = &task[t];
        x->member_of = s;
        task[t].own |= WEFT__OWN_EXTRA;
        atom_store_rel(&task[t].extra, x);
        weft__scope_add(s, x);
    }
    atom_store_rel(&begun[t], r ? 2u : 1u);
    if (running)
        weft__sys_futex_wake(&begun[t], 1);
    return r;
}

/* As weft_task_cancel: the request, then the scopes. */
static void cancel_task(int t)
{
    if (weft__cancel(&task[t].parker))
        weft__cancel_inside(&task[t]);
}

static const int number[MODEL_THREADS] = {0, 1, 2, 3, 4, 5};

static int spawn(int t)
{
    return weft_scope_spawn(scope, NULL, (void *)(uintptr_t)&number[t], NULL, NULL);
}

/* ---- A member ---- */

static int body(int t)
{
    switch (does[t]) {
    case ENDS:
        break;
    case FAILS:
        return -EIO;
    case WAITS:
        return weft__sleep(WEFT_NEVER);
    case CANCELS_SCOPE:
        weft_scope_cancel(scope);
        break;
    case SPAWNS:
        return spawn(t + 1);
    }
    return 0;
}

static void be_member(int t)
{
    while (atom_load_acq(&begun[t]) == 0)
        weft__sys_futex_wait(&begun[t], 0, WEFT_NEVER);
    if (atom_load_rlx(&begun[t]) == 2)
        return;
    result[t] = body(t);
    stamp_on_frames();
    weft__extra_body_ended(&task[t]);
    weft__extra_leave(&task[t], result[t]);
    weft__extra *x = weft__extra_take(&task[t]);
    ended[t] = 1; /* plain: the close must be ordered after it */
    weft__extra_free(x);
}

/* ---- Scenarios ---- */

static void setup(void)
{
    weft__self_slot(&parker_slot);
    memset(begun, 0, sizeof begun);
    memset(result, 0, sizeof result);
    memset(ended, 0, sizeof ended);
    memset(&report, 0, sizeof report);
    memset(task, 0, sizeof task);
    closed_with = 1;
    running = false;
    thread_innermost = NULL;
    for (int t = 0; t < MODEL_THREADS; t++) {
        weft__parker_init(&task[t].parker, &thread_ops);
        is_task[t] = t >= 1 && t <= members;
    }
    model_name(task, sizeof task, "task");
}

/* The members are there when it starts. */
static void setup_members(void)
{
    setup();
    here = 0;
    parker_slot = &task[0].parker;
    model_check(weft_scope_open(&(weft_scope_options){.flags = flags}, &scope) == 0);
    for (int t = 1; t <= members; t++)
        if (does[t - 1] != SPAWNS || t == 1)
            model_check(spawn(t) == 0);
}

static void close_scope(void)
{
    closed_with = weft_scope_close(scope, &report);
    for (int t = 1; t <= members; t++)
        model_check(ended[t] || atom_load_rlx(&begun[t]) != 1);
    stamp_on_frames();
}

static void run(int t)
{
    if (t == 0)
        close_scope();
    else
        be_member(t);
}

static uint64_t spawned(void)
{
    uint64_t n = 0;
    for (int t = 1; t <= members; t++)
        n += begun[t].raw == 1;
    return n;
}

static void check(void)
{
    uint64_t failed = 0;
    for (int t = 1; t <= members; t++)
        failed += result[t] < 0;
    model_check(report.spawned == spawned());
    model_check(report.failed == failed && !report.first_error == !failed);
    model_check(closed_with == (report.cancelled ? report.cancelled : report.first_error));
}

/* `bound` 0: none; with WEFT_LONG in the environment one more. */
static void explore_checked(const char *name, int bound, void (*start)(void), void (*go)(int),
                            void (*look)(void))
{
    const struct model_scenario s = {.name = name,
                                     .threads = threads,
                                     .setup = start,
                                     .run = go,
                                     .check = look,
                                     .on_switch = on_switch,
                                     .all = bound > 0,
                                     .preemptions = bound + (bound && getenv("WEFT_LONG")),
                                     .limit = 100000000};
    model_must_hold(&s);
}

static void explore(const char *name, int bound, void (*start)(void), void (*go)(int))
{
    explore_checked(name, bound, start, go, check);
}

static void set_members(int n, enum does a, enum does b, enum does c)
{
    does[1] = a;
    does[2] = b;
    does[3] = c;
    members = n;
    threads = 1 + n;
}

/* Nobody cancels; nobody needs to. */
static void joining(void **state)
{
    (void)state;
    flags = 0;
    set_members(1, FAILS, ENDS, ENDS);
    explore("scope, 1 member fails", 0, setup_members, run);
    set_members(2, ENDS, FAILS, ENDS);
    explore("scope, 2 members, 1 fails", 0, setup_members, run);
    set_members(2, SPAWNS, ENDS, ENDS);
    explore("scope, a member spawns another", 0, setup_members, run);
}

/* One waits without a limit, so a cancellation that misses it is a deadlock. */
static void failing_fast(void **state)
{
    (void)state;
    flags = WEFT_SCOPE_FAIL_FAST;
    set_members(2, WAITS, FAILS, ENDS);
    explore("scope, fail fast, 1 fails, 1 waits", 0, setup_members, run);
    set_members(3, WAITS, FAILS, ENDS);
    explore("scope, fail fast, 1 fails, 1 waits, 1 ends", 1, setup_members, run);
    set_members(3, WAITS, FAILS, FAILS);
    explore("scope, fail fast, 2 fail, 1 waits", 1, setup_members, run);
}

static void cancelling(void **state)
{
    (void)state;
    flags = 0;
    set_members(2, WAITS, CANCELS_SCOPE, ENDS);
    explore("scope, 1 cancels, 1 waits", 2, setup_members, run);
    set_members(3, CANCELS_SCOPE, SPAWNS, WAITS);
    explore("scope, 1 cancels, 1 spawns one that waits", 1, setup_members, run);
    set_members(3, CANCELS_SCOPE, CANCELS_SCOPE, WAITS);
    explore("scope, 2 cancel, 1 waits", 1, setup_members, run);
}

/* ---- The owner is a task, and is cancelled while it opens, spawns and closes ---- */

static void setup_owner(void)
{
    setup();
    is_task[0] = true;
}

static void owner_is_cancelled(int t)
{
    if (t == threads - 1) {
        cancel_task(0);
    } else if (t == 0) {
        model_check(weft_scope_open(&(weft_scope_options){.flags = flags}, &scope) == 0);
        for (int i = 1; i <= members; i++)
            spawn(i);
        task[0].parker.shield++; /* so that only its scopes hear of the cancellation */
        model_check(weft_scope_join(scope, WEFT_NEVER) == 0);
        task[0].parker.shield--;
        close_scope();
        model_check(closed_with == -ECANCELED || closed_with == 0);
        weft__extra *x = weft__extra_take(&task[0]);
        weft__extra_free(x);
    } else {
        be_member(t);
    }
}

static void cancelled_owner(void **state)
{
    (void)state;
    flags = 0;
    set_members(1, ENDS, ENDS, ENDS);
    threads++;
    explore("scope, its owner is cancelled, 1 ends", 2, setup_owner, owner_is_cancelled);
    set_members(1, WAITS, ENDS, ENDS);
    threads++;
    explore("scope, its owner is cancelled, 1 waits", 2, setup_owner, owner_is_cancelled);
    set_members(2, WAITS, WAITS, ENDS);
    threads++;
    explore("scope, its owner is cancelled, 2 wait", 1, setup_owner, owner_is_cancelled);
}

/* ---- A scope inside: the outer one is cancelled as a member opens and closes its own ---- */

static weft_scope *inner;

/* Thread 1 is a member of the outer scope and owns the inner one, thread 2 is a member of
 * that, thread 3 of the outer one, and cancels it. */
static void one_inside(int t)
{
    if (t == 0) {
        close_scope();
    } else if (t == 1) {
        weft_scope_report r = {0};
        model_check(weft_scope_open(NULL, &inner) == 0);
        weft_scope_spawn(inner, NULL, (void *)(uintptr_t)&number[2], NULL, NULL);
        int closed = weft_scope_close(inner, &r);
        model_check(closed == -ECANCELED && r.cancelled == -ECANCELED);
        model_check(ended[2] || begun[2].raw == 2);
        weft__extra_body_ended(&task[1]);
        weft__extra_leave(&task[1], 0);
        weft__extra *x = weft__extra_take(&task[1]);
        ended[1] = 1;
        weft__extra_free(x);
    } else {
        be_member(t);
    }
}

static void setup_inside(void)
{
    setup();
    here = 0;
    parker_slot = &task[0].parker;
    model_check(weft_scope_open(NULL, &scope) == 0);
    model_check(spawn(1) == 0);
    model_check(spawn(3) == 0);
}

static void check_inside(void)
{
    model_check(closed_with == -ECANCELED && report.spawned == 2 && report.failed == 0);
}

static void scopes_inside(void **state)
{
    (void)state;
    set_members(3, ENDS, WAITS, CANCELS_SCOPE);
    explore_checked("scope inside a scope, the outer one is cancelled", 1, setup_inside, one_inside,
                    check_inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining),       cmocka_unit_test(failing_fast),
        cmocka_unit_test(cancelling),    cmocka_unit_test(cancelled_owner),
        cmocka_unit_test(scopes_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * Waits of poll tasks: the real pollwait.c and select.c, on the real semaphore, under a toy
 * worker that polls, parks and ends the task as worker.c does (run_poll, poll_ended). Held:
 *   - a wake is never lost: a task that is given what it waits for is polled again (a
 *     deadlock), whenever its wait is claimed: during the poll, at its end, when it parks
 *   - one outcome: who was given permits takes them, and who was not, has none; permits
 *     are neither lost nor made, also when the body ends without asking for the answer
 *   - a stray wake, a deadline and a cancellation end a wait, or do not, but never twice,
 *     and nobody touches a node of a wait that is over (a race)
 */
#include "model_wait.h"

#include "../../src/sched/pollwait.c"
#include "../../src/sync/permits.c"
#include "../../src/sync/queue.c"
#include "../../src/wait/select.c"

static weft_task task;
static weft__a32 queued; /* it is ready to be polled */

static struct {
    weft__lock lock;
    bool armed; /* for MODEL_SOON or earlier */
} timer;

/* ---- What pollwait.c needs of the rest ---- */

weft_task *weft_task_self(void)
{
    return &task;
}

int weft_task_wake(weft_task *t)
{
    if (weft__claim(&t->parker, WEFT__WOKEN))
        weft__unpark(&t->parker);
    return 0;
}

static bool is_timed; /* the task's own, as weft__timed */

static void disarm(void)
{
    weft__acquire(&timer.lock);
    timer.armed = false;
    weft__release(&timer.lock);
    is_timed = false;
}

int weft_task_wake_at(weft_task *t, weft_time deadline)
{
    if (deadline == WEFT_NEVER ||
        (atom_load_rlx(&t->parker.word) & WEFT__WAIT_PHASE) == WEFT__WAIT_CLAIMED)
        return 0;
    weft__acquire(&timer.lock);
    timer.armed = true;
    weft__release(&timer.lock);
    is_timed = true;
    return 0;
}

/* As cases.c. */
static weft_select_case case_of(weft_semaphore *s)
{
    weft_select_case c = weft__case_of_kind(WEFT__CASE_ABANDON, &weft__semaphore_ops, s,
                                            weft__permits_lock(of_semaphore(s)), NULL);
    c.weft__arg = 1;
    return c;
}

/* For the other kinds of waits that pollwait.c can begin; none is begun here. */
const weft__case_ops weft__barrier_case_ops, weft__cond_case_ops;

weft_select_case weft_case_mutex(weft_mutex *m)
{
    (void)m;
    return (weft_select_case){.off = true};
}

bool weft_mutex_locked(const weft_mutex *m)
{
    return m != NULL;
}

int weft_mutex_unlock(weft_mutex *m)
{
    return m ? -ENOSYS : -EINVAL;
}

bool weft_once_done(const weft_once *o)
{
    return o != NULL;
}

int weft__once_run(weft_once *o, int (*fn)(void *arg), void *arg)
{
    (void)o, (void)fn, (void)arg;
    return -ENOSYS;
}

weft__lock *weft__cond_lock(weft_cond *c)
{
    (void)c;
    return NULL;
}

weft__lock *weft__barrier_lock(weft_barrier *b)
{
    (void)b;
    return NULL;
}

int weft__barrier_arrive(weft_barrier *b, bool stays, uint32_t *ret_round)
{
    (void)b, (void)stays, (void)ret_round;
    return -ENOSYS;
}

bool weft__barrier_leave(weft_barrier *b, uint32_t round)
{
    (void)b, (void)round;
    return false;
}

/* ---- As worker.c ---- */

static void ready(weft__parker *p)
{
    (void)p;
    atom_store_rel(&queued, 1u);
    weft__sys_futex_wake(&queued, 1);
}

static const weft__parker_ops task_ops = {.ready = ready};

static weft_poll_fn body;
static bool ended;
static int result;

static void poll_ended(void)
{
    task.own |= WEFT__OWN_ENDED;
    if (!weft__claim(&task.parker, WEFT__WOKEN) && weft__parked(&task.parker))
        return;
    if (is_timed)
        disarm();
    if (task.own & WEFT__OWN_LINKED)
        weft__poll_unlink(&task);
    if (task.own & WEFT__OWN_DECIDED)
        weft__poll_abandon(&task);
    ended = true;
}

/* True: it is to be polled again at once. */
static bool run_poll(void)
{
    if (task.own & WEFT__OWN_ENDED) {
        poll_ended();
        return false;
    }
    if (is_timed)
        disarm();
    if (task.own & WEFT__OWN_LINKED)
        weft__poll_unlink(&task);
    bool told = (task.own & WEFT__OWN_TOLD) != 0;
    task.parker.shield += told;
    weft__wait_begin(&task.parker, "poll",
                     task.own & WEFT__OWN_DECIDED ? atom_load_rlx(&task.parker.object) : NULL);
    task.parker.shield -= told;
    if (atom_load_rlx(&task.parker.cancel) & WEFT__CANCEL)
        task.own |= WEFT__OWN_TOLD;
    int r = body(&task, NULL);
    if (r != WEFT_PENDING) {
        result = r;
        poll_ended();
        return false;
    }
    return !weft__parked(&task.parker);
}

static void be_worker(void)
{
    while (!ended) {
        while (!atom_load_acq(&queued))
            weft__sys_futex_wait(&queued, 0, WEFT_NEVER);
        atom_store_rlx(&queued, 0u);
        while (run_poll())
            ;
    }
    stamp_on_frames();
}

/* ---- The task ---- */

enum { GIVERS = 2 };

static weft_semaphore semaphore[2];
static weft_select_case cases[2];
static weft_poll_wait wait_for;
static weft_time deadline;
static int polls, leave_after; /* the body ends in the middle of its wait at that poll; 0: not */
static int took;               /* the semaphore it has a permit of, or -1 */

static int takes_one(weft_task *self, void *state)
{
    (void)state;
    polls++;
    int r = weft_poll_select(self, &wait_for, cases, 2, 0, deadline);
    if (r == WEFT_PENDING)
        return polls == leave_after ? 0 : WEFT_PENDING;
    if (r >= 0)
        took = r;
    return r < 0 ? r : 0;
}

/* ---- Scenarios ---- */

static int givers, others;
static bool times, cancels, wakes;

static void setup(void)
{
    parkers_setup();
    memset(&task, 0, sizeof task);
    memset(&timer, 0, sizeof timer);
    memset(&wait_for, 0, sizeof wait_for);
    weft__parker_init(&task.parker, &task_ops);
    task.flags = WEFT__TASK_POLL;
    atom_store_rlx(&task.parker.cancel, WEFT__NOPARK);
    queued.raw = 1;
    ended = is_timed = false;
    polls = result = 0;
    took = -1;
    body = takes_one;
    deadline = times ? MODEL_SOON : WEFT_NEVER;
    for (int i = 0; i < 2; i++) {
        model_check(weft_semaphore_init(&semaphore[i], 0) == 0);
        cases[i] = case_of(&semaphore[i]);
    }
    model_name(&task, sizeof task, "task");
    model_name(semaphore, sizeof semaphore, "semaphore");
}

/* Thread 0 is the worker; then the givers, each to a semaphore of its own; then who times
 * out, cancels and wakes for nothing, as far as there are. */
static void run(int t)
{
    if (t == 0) {
        be_worker();
    } else if (t <= givers) {
        model_check(weft_semaphore_release(&semaphore[t - 1], 1) == 0);
    } else if (times && t == 1 + givers) {
        weft__acquire(&timer.lock);
        bool armed = timer.armed;
        timer.armed = false;
        bool mine = armed && weft__claim(&task.parker, WEFT__TIMEDOUT);
        weft__release(&timer.lock);
        if (mine)
            weft__unpark(&task.parker);
    } else if (cancels && t == 1 + givers + times) {
        weft__cancel(&task.parker);
    } else {
        weft_task_wake(&task);
    }
}

static void check(void)
{
    model_check(ended);
    unsigned left = 0;
    for (int i = 0; i < 2; i++) {
        left += weft_semaphore_available(&semaphore[i]);
        model_check(weft__queue_empty(&of_semaphore(&semaphore[i])->queue));
    }
    model_check(left + (took >= 0) == (unsigned)givers);
    model_check(took < 0 || weft_semaphore_available(&semaphore[took]) == 0);
    model_check(result == 0 || (result == -ECANCELED && cancels) ||
                (result == -ETIMEDOUT && times));
    model_check(took >= 0 || result < 0 || leave_after);
}

static void explore(const char *name, int bound)
{
    others = times + cancels + wakes;
    parkers_explore(name, 1 + givers + others, setup, run, check, bound);
}

static void givers_and_wakes(void **state)
{
    (void)state;
    leave_after = 0;
    times = cancels = wakes = false;
    givers = 1;
    explore("poll wait, 1 gives", 0);
    givers = 2;
    explore("poll wait, 2 give", 0);
    givers = 1;
    wakes = true;
    explore("poll wait, 1 gives, a stray wake", 0);
}

static void cancellation(void **state)
{
    (void)state;
    leave_after = 0;
    times = wakes = false;
    cancels = true;
    givers = 1;
    explore("poll wait, 1 gives, cancel", 0);
    givers = 2;
    explore("poll wait, 2 give, cancel", 1);
    wakes = true;
    givers = 1;
    explore("poll wait, 1 gives, cancel, a stray wake", 1);
}

/* The timer may be early for the wait that it finds, as one that was armed for the wait
 * before; then the wait goes on. */
static void deadlines(void **state)
{
    (void)state;
    leave_after = 0;
    cancels = wakes = false;
    times = true;
    givers = 1;
    explore("poll wait, 1 gives, deadline", 0);
    wakes = true;
    explore("poll wait, 1 gives, deadline, a stray wake", 1);
    wakes = false;
    cancels = true;
    explore("poll wait, 1 gives, deadline, cancel", 1);
}

static void body_leaves(void **state)
{
    (void)state;
    times = cancels = wakes = false;
    givers = 2;
    leave_after = 1;
    explore("poll wait, 2 give, the body leaves it", 0);
    givers = 1;
    wakes = true;
    explore("poll wait, 1 gives, a stray wake, the body leaves it", 0);
    cancels = true;
    wakes = false;
    explore("poll wait, 1 gives, cancel, the body leaves it", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(givers_and_wakes),
        cmocka_unit_test(cancellation),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(body_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

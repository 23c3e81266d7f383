/* Unwinding: a backtrace taken on a fiber ends at its entry, one taken by a
 * profiling signal at any instruction of the switch does no harm. */
#include "unit_test.h"

#include "fiber/context.h"
#include "fiber/stack.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "base/sys.h"

static weft__stack_pool *pool;
static weft__context home, fiber;
static void *frames[64];
static int depth;

static WEFT__NOINLINE int leaf(void)
{
    depth = backtrace(frames, 64);
    return depth;
}

static WEFT__NOINLINE int middle(void)
{
    return leaf() + 1;
}

static WEFT__NOINLINE void entry(void *arg)
{
    *(int *)arg = middle();
    weft__context_switch_final(&fiber, &home);
}

static bool within(void *address, uintptr_t f, uintptr_t size)
{
    uintptr_t a = (uintptr_t)address;
    return a > f && a - f < size;
}

static void a_backtrace_ends_at_the_entry(void **state)
{
    (void)state;
    int result = 0;
    weft__stack *s = weft__stack_take(pool);
    weft__context_adopt(&home);
    weft__context_init(&fiber, s->low, s->size, entry, &result);
    weft__context_switch(&home, &fiber);
    assert_int_equal(result, depth + 1);
    /* leaf, middle, entry, and at most what surrounds the entry: the trampoline,
     * the sanitizer's first function. Nothing of main. */
    assert_in_range(depth, 3, 6);
    int found = 0;
    for (int i = 0; i < depth; i++)
        found += within(frames[i], (uintptr_t)entry, 400);
    assert_true(found >= 1);
    weft__context_forget(&fiber);
    weft__stack_give(pool, s);
}

static WEFT__NOINLINE weft__context *life(void *arg)
{
    *(int *)arg = middle();
    return &home;
}

static void a_backtrace_ends_below_a_run(void **state)
{
    (void)state;
    int result = 0;
    weft__stack *s = weft__stack_take(pool);
    weft__context_adopt(&home);
    weft__context_run(&home, &fiber, s->low, s->size, life, &result);
    assert_int_equal(result, depth + 1);
    assert_in_range(depth, 3, 8);
    int found = 0;
    for (int i = 0; i < depth; i++)
        found += within(frames[i], (uintptr_t)life, 400);
    assert_true(found >= 1);
    weft__context_forget(&fiber);
    weft__stack_give(pool, s);
}

/* --- SIGPROF in the middle of it --- */

#define PAIR_MS 1000

static int samples, in_switch, ended_well, broken;

/* The trampoline below a fiber's entry; with ucontext it is the C library's. */
#if !defined(WEFT_FIBER_UCONTEXT) && (defined(__x86_64__) || defined(__aarch64__))
extern void weft__context_begin(void);
#define HAVE_BEGIN 1
#endif

static void on_profile(int signal_number)
{
    void *at[64];
    (void)signal_number;
    int n = backtrace(at, 64);
    __atomic_fetch_add(&samples, 1, __ATOMIC_RELAXED);
#ifdef HAVE_BEGIN
    if (within(at[n - 1], (uintptr_t)weft__context_begin - 1, 32) ||
        within(at[n - 1], (uintptr_t)weft__context_call, 256))
        __atomic_fetch_add(&ended_well, 1, __ATOMIC_RELAXED);
#endif
    if (n >= 64)
        __atomic_fetch_add(&broken, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < n; i++)
        if (within(at[i], (uintptr_t)weft__context_swap, 80)) {
            __atomic_fetch_add(&in_switch, 1, __ATOMIC_RELAXED);
            break;
        }
}

struct pair {
    weft__context home, fiber[2], brief;
    weft__stack *brief_stack;
    weft_time end;
    long switches;
};

static weft__context *brief(void *arg)
{
    struct pair *p = arg;
    p->switches++;
    return &p->fiber[0];
}

static void turn(struct pair *p, int me)
{
    while (weft_now() < p->end) {
        for (int i = 0; i < 1000; i++) {
            p->switches++;
            weft__context_switch(&p->fiber[me], &p->fiber[!me]);
        }
        for (int i = 0; i < 100 && me == 0; i++) {
            weft__context_run(&p->fiber[0], &p->brief, p->brief_stack->low, p->brief_stack->size,
                              brief, p);
            weft__context_forget(&p->brief);
        }
    }
    weft__context_switch_final(&p->fiber[me], &p->home);
}

static void turn_0(void *arg)
{
    turn(arg, 0);
}

static void turn_1(void *arg)
{
    turn(arg, 1);
}

static void *worker(void *arg)
{
    struct pair p = {.end = *(weft_time *)arg};
    weft__stack *s[2] = {weft__stack_take(pool), weft__stack_take(pool)};
    p.brief_stack = weft__stack_take(pool);
    weft__context_adopt(&p.home);
    weft__context_init(&p.fiber[0], s[0]->low, s[0]->size, turn_0, &p);
    weft__context_init(&p.fiber[1], s[1]->low, s[1]->size, turn_1, &p);
    weft__context_switch(&p.home, &p.fiber[0]);
    for (int i = 0; i < 2; i++) {
        weft__context_forget(&p.fiber[i]);
        weft__stack_give(pool, s[i]);
    }
    weft__stack_give(pool, p.brief_stack);
    assert_true(p.switches > 1000);
    return NULL;
}

static void profiling_signals_find_a_sound_stack(void **state)
{
    (void)state;
    void *warm[4];
    (void)backtrace(warm, 4); /* loads the unwinder outside the handler */
    struct sigaction sa, before;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_profile;
    sa.sa_flags = SA_RESTART;
    assert_int_equal(sigaction(SIGPROF, &sa, &before), 0);

    weft_time end = weft_after(PAIR_MS * WEFT_MSEC);
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, worker, &end), 0);
    /* The timer of the process ticks with the kernel's, 250 or 1000 times a second;
     * signals sent by hand come when we want. */
    while (weft_now() < end - 50 * WEFT_MSEC) {
        struct timespec pause = {.tv_nsec = 250000};
        for (int i = 0; i < 2; i++)
            pthread_kill(t[i], SIGPROF);
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    sigaction(SIGPROF, &before, NULL);
#ifndef WEFT__TSAN /* which may hold signals back for as long as it likes */
    assert_true(samples > 0);
#endif
    assert_int_equal(broken, 0);
    print_message("%d samples, %d within the switch, %d walked to the start of the fiber\n",
                  samples, in_switch, ended_well);
#ifdef HAVE_BEGIN
    /* All but the few that hit a thread before or after its fibers. */
    assert_true(ended_well >= samples - 10 - samples / 20);
#endif
}

static int setup(void **state)
{
    (void)state;
    return weft__stack_pool_new(0, &pool);
}

static int teardown(void **state)
{
    (void)state;
    weft__stack_pool_free(pool);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backtrace_ends_at_the_entry),
        cmocka_unit_test(a_backtrace_ends_below_a_run),
        cmocka_unit_test(profiling_signals_find_a_sound_stack),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

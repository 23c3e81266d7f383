/* The switch: values survive, the ABI's callee-saved state survives, contexts move
 * between threads, and an unwinder sees a fiber's stack end at its entry. */
#include "unit_test.h"

#include "fiber/context.h"
#include "fiber/stack.h"

#include <fenv.h>
#include <pthread.h>

static weft__stack_pool *pool;

struct fiber {
    weft__context self, *back;
    weft__stack *stack;
    long in, out;
    bool done;
};

static void fiber_start(struct fiber *f, weft__context_fn entry)
{
    f->stack = weft__stack_take(pool);
    assert_non_null(f->stack);
    f->done = false;
    weft__context_init(&f->self, f->stack->low, f->stack->size, entry, f);
}

static void fiber_resume(struct fiber *f, weft__context *from)
{
    f->back = from;
    weft__context_switch(from, &f->self);
}

static void fiber_end(struct fiber *f)
{
    f->done = true;
    weft__context_switch_final(&f->self, f->back);
}

static void fiber_free(struct fiber *f)
{
    weft__context_forget(&f->self);
    weft__stack_give(pool, f->stack);
}

static void echo(void *arg)
{
    struct fiber *f = arg;
    while (f->in >= 0) {
        f->out = f->in * 2;
        weft__context_switch(&f->self, f->back);
    }
    fiber_end(f);
}

static void values_pass_and_a_million_switches_work(void **state)
{
    (void)state;
    weft__context me;
    struct fiber f = {0};
    weft__context_adopt(&me);
    fiber_start(&f, echo);
    for (long i = 0; i < 500000; i++) {
        f.in = i;
        fiber_resume(&f, &me);
        assert_int_equal(f.out, i * 2);
    }
    f.in = -1;
    fiber_resume(&f, &me);
    assert_true(f.done);
    fiber_free(&f);
}

/* Clobbers all it may between two switches; compiled with many live values. */
#define LIVE 24
static WEFT__NOINLINE uint64_t mix(struct fiber *f, uint64_t seed, int rounds)
{
    uint64_t v[LIVE];
    double d[8], a = (double)(seed % 100), b = 0;
    for (unsigned i = 0; i < LIVE; i++)
        v[i] = seed * (i + 1);
    for (unsigned i = 0; i < 8; i++)
        d[i] = (double)(seed % 1000) + i;
    for (int r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < LIVE; i++)
            v[i] = v[i] * 6364136223846793005ULL + v[(i + 1) % LIVE];
        for (unsigned i = 0; i < 8; i++)
            d[i] += 0.5 * (i + 1);
        a = a * 3 + 1; /* scalars: kept in registers where some are callee-saved */
        b = b * 5 - a;
        if (f)
            weft__context_switch(&f->self, f->back);
    }
    union {
        double d;
        uint64_t u;
    } bits_a = {a}, bits_b = {b};
    uint64_t sum = bits_a.u ^ bits_b.u;
    for (unsigned i = 0; i < LIVE; i++)
        sum ^= v[i];
    for (unsigned i = 0; i < 8; i++)
        sum += (uint64_t)(d[i] * 2);
    return sum;
}

static void mixer(void *arg)
{
    struct fiber *f = arg;
    f->out = (long)mix(f, (uint64_t)f->in, 100);
    fiber_end(f);
}

static void locals_survive_interleaving(void **state)
{
    (void)state;
    enum { N = 16 };
    weft__context me;
    struct fiber f[N] = {0};
    weft__context_adopt(&me);
    for (int i = 0; i < N; i++) {
        f[i].in = 77 + i;
        fiber_start(&f[i], mixer);
    }
    for (int r = 0; r <= 100; r++)
        for (int i = 0; i < N; i++)
            fiber_resume(&f[i], &me);
    for (int i = 0; i < N; i++) {
        assert_true(f[i].done);
        assert_int_equal(f[i].out, (long)mix(NULL, (uint64_t)(77 + i), 100));
        fiber_free(&f[i]);
    }
}

/* The raw swap is for builds without annotations, and for this processor. */
#if defined(__x86_64__) && !defined(WEFT_FIBER_UCONTEXT) && !defined(WEFT__ASAN) &&                \
    !defined(WEFT__TSAN)
#define RAW_SWAP 1
#endif

#ifdef RAW_SWAP
/* The callee-saved registers, checked by hand: sets them to base + 1, 2, ..., calls
 * the raw swap, counts those that differ. rbp is left to the compiler's own use. Two
 * of these take turns, as code that happens not to touch a register proves nothing. */
static WEFT__NOINLINE int registers_broken(struct fiber *f)
{
    uint64_t bad = 0, base = (uint64_t)f->in;
    void **save = &f->self.sp;
    void *load = f->back->sp;
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\t"
                     "pushq %0\n\t"
                     "leaq 1(%0), %%rbx\n\t"
                     "leaq 2(%0), %%r12\n\t"
                     "leaq 3(%0), %%r13\n\t"
                     "leaq 4(%0), %%r14\n\t"
                     "leaq 5(%0), %%r15\n\t"
                     "callq weft__context_swap\n\t"
                     "popq %%rcx\n\t"
                     "leaq 128(%%rsp), %%rsp\n\t"
                     "xorl %%eax, %%eax\n\t"
                     "xorl %%edx, %%edx\n\t"
                     "subq %%rcx, %%rbx\n\tcmpq $1, %%rbx\n\tsetne %%al\n\taddq %%rax, %%rdx\n\t"
                     "subq %%rcx, %%r12\n\tcmpq $2, %%r12\n\tsetne %%al\n\taddq %%rax, %%rdx\n\t"
                     "subq %%rcx, %%r13\n\tcmpq $3, %%r13\n\tsetne %%al\n\taddq %%rax, %%rdx\n\t"
                     "subq %%rcx, %%r14\n\tcmpq $4, %%r14\n\tsetne %%al\n\taddq %%rax, %%rdx\n\t"
                     "subq %%rcx, %%r15\n\tcmpq $5, %%r15\n\tsetne %%al\n\taddq %%rax, %%rdx\n\t"
                     : "+d"(base), "+D"(save), "+S"(load)
                     :
                     : "rax", "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                       "memory", "cc");
    bad = base;
    return (int)bad;
}
#endif

static void registers(void *arg)
{
    struct fiber *f = arg;
#ifdef RAW_SWAP
    f->out = registers_broken(f);
#else
    weft__context_switch(&f->self, f->back);
    f->out = 0;
#endif
    fiber_end(f);
}

static void callee_saved_registers_survive(void **state)
{
    (void)state;
    weft__context me;
    struct fiber f[2] = {{.in = 1000}, {.in = 2000}};
    weft__context_adopt(&me);
    for (int i = 0; i < 2; i++) {
        f[i].out = 99;
        fiber_start(&f[i], registers);
        fiber_resume(&f[i], &me);
    }
    for (int i = 0; i < 2; i++) {
        fiber_resume(&f[i], &me);
        assert_true(f[i].done);
        assert_int_equal(f[i].out, 0);
        fiber_free(&f[i]);
    }
}

/* The rounding mode in force, by what arithmetic does: x86-64 has one for double
 * and another for long double, and fegetround reads only one. -1: they differ. */
static int rounding(void)
{
    volatile double one = 1, tiny = 1e-300;
    volatile long double long_one = 1, long_tiny = 1e-300L;
    bool up = one + tiny > 1, down = one - tiny < 1;
    if (up != (long_one + long_tiny > 1) || down != (long_one - long_tiny < 1))
        return -1;
    return up ? FE_UPWARD : down ? FE_DOWNWARD : FE_TONEAREST;
}

static void rounder(void *arg)
{
    struct fiber *f = arg;
    f->out = rounding();
    fesetround(FE_UPWARD);
    weft__context_switch(&f->self, f->back);
    f->out = rounding();
    fiber_end(f);
}

static void rounding_mode_stays_with_its_fiber(void **state)
{
    (void)state;
    weft__context me;
    struct fiber f = {0};
    weft__context_adopt(&me);
    fiber_start(&f, rounder);
    fiber_resume(&f, &me);
    assert_int_equal(f.out, FE_TONEAREST);
    assert_int_equal(rounding(), FE_TONEAREST);
    fesetround(FE_DOWNWARD);
    fiber_resume(&f, &me);
    assert_int_equal(f.out, FE_UPWARD);
    assert_int_equal(rounding(), FE_DOWNWARD);
    fesetround(FE_TONEAREST);
    fiber_free(&f);
}

static WEFT__NOINLINE long recurse(struct fiber *f, long depth)
{
    volatile char pad[100];
    pad[depth % 100] = (char)depth;
    if (depth == 0) {
        weft__context_switch(&f->self, f->back);
        return 0;
    }
    return recurse(f, depth - 1) + pad[depth % 100] - (char)depth + 1;
}

static void deep(void *arg)
{
    struct fiber *f = arg;
    f->out = recurse(f, f->in);
    fiber_end(f);
}

static void parks_deep_in_a_recursion(void **state)
{
    (void)state;
    weft__context me;
    struct fiber f = {.in = 150};
    weft__context_adopt(&me);
    fiber_start(&f, deep);
    fiber_resume(&f, &me);
    assert_false(f.done);
    fiber_resume(&f, &me);
    assert_int_equal(f.out, 150);
    fiber_free(&f);
}

/* Two threads take turns with one fiber. */
static void *mover(void *arg)
{
    struct fiber *f = arg;
    weft__context me;
    weft__context_adopt(&me);
    f->in++;
    fiber_resume(f, &me);
    return NULL;
}

static void a_context_moves_between_threads(void **state)
{
    (void)state;
    weft__context me;
    struct fiber f = {0};
    weft__context_adopt(&me);
    fiber_start(&f, echo);
    for (long i = 1; i <= 20; i++) {
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, mover, &f), 0);
        assert_int_equal(pthread_join(t, NULL), 0);
        assert_int_equal(f.in, i);
        assert_int_equal(f.out, 2 * i);
        fiber_resume(&f, &me);
    }
    f.in = -1;
    fiber_resume(&f, &me);
    assert_true(f.done);
    fiber_free(&f);
}

/* Each fiber of a ring hands over to the next directly, and the last one's end
 * resumes the thread; stacks are re-used by a second ring at once. */
struct ring {
    struct fiber f[8];
    weft__context *home;
    int hops;
};
static struct ring ring;

static void hop(void *arg)
{
    struct fiber *f = arg;
    ptrdiff_t i = f - ring.f;
    while (ring.hops > 0) {
        ring.hops--;
        weft__context_switch(&f->self, &ring.f[(i + 1) % 8].self);
    }
    f->done = true;
    if (i < 7)
        weft__context_switch_final(&f->self, &ring.f[i + 1].self);
    weft__context_switch_final(&f->self, ring.home);
}

static void fibers_switch_directly_and_reuse_stacks(void **state)
{
    (void)state;
    weft__context me;
    weft__context_adopt(&me);
    for (int round = 0; round < 5; round++) {
        ring.home = &me;
        ring.hops = 800;
        for (int i = 0; i < 8; i++)
            fiber_start(&ring.f[i], hop);
        weft__context_switch(&me, &ring.f[0].self);
        for (int i = 0; i < 8; i++) {
            assert_true(ring.f[i].done);
            fiber_free(&ring.f[i]);
        }
    }
    weft__stack_stats stats;
    weft__stack_pool_stats(pool, &stats);
    assert_int_equal(stats.stacks_used, 0);
}

/* --- weft__context_run --- */

static weft__context *short_life(void *arg)
{
    struct fiber *f = arg;
    f->out += f->in;
    f->done = true;
    return f->back;
}

static weft__context *life_with_waits(void *arg)
{
    struct fiber *f = arg;
    for (int i = 0; i < 10; i++) {
        f->out += f->in;
        weft__context_switch(&f->self, f->back);
    }
    fesetround(FE_UPWARD);
    f->done = true;
    return f->back;
}

static void a_run_ends_where_it_says(void **state)
{
    (void)state;
    weft__context me;
    struct fiber f = {.in = 3, .back = &me};
    weft__context_adopt(&me);
    for (int i = 0; i < 1000; i++) {
        weft__stack *s = weft__stack_take(pool);
        f.done = false;
        weft__context_run(&me, &f.self, s->low, s->size, short_life, &f);
        assert_true(f.done);
        weft__context_forget(&f.self);
        weft__stack_give(pool, s);
    }
    assert_int_equal(f.out, 3000);
}

static void a_run_may_suspend_and_end_elsewhere(void **state)
{
    (void)state;
    enum { N = 8 };
    weft__context me;
    struct fiber f[N] = {0};
    weft__context_adopt(&me);
    for (int i = 0; i < N; i++) {
        f[i].in = i;
        f[i].back = &me;
        f[i].stack = weft__stack_take(pool);
        weft__context_run(&me, &f[i].self, f[i].stack->low, f[i].stack->size, life_with_waits,
                          &f[i]);
        assert_int_equal(f[i].out, i);
    }
    for (int r = 1; r <= 9; r++)
        for (int i = 0; i < N; i++)
            fiber_resume(&f[i], &me);
    for (int i = 0; i < N; i++) {
        assert_false(f[i].done);
        fiber_resume(&f[i], &me);
        assert_true(f[i].done);
        assert_int_equal(f[i].out, 10 * i);
        assert_int_equal(rounding(), FE_TONEAREST);
        fiber_free(&f[i]);
    }
}

static void hardware_is_supported(void **state)
{
    (void)state;
    assert_int_equal(weft__context_supported(), 0);
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
        cmocka_unit_test(hardware_is_supported),
        cmocka_unit_test(values_pass_and_a_million_switches_work),
        cmocka_unit_test(locals_survive_interleaving),
        cmocka_unit_test(callee_saved_registers_survive),
        cmocka_unit_test(rounding_mode_stays_with_its_fiber),
        cmocka_unit_test(parks_deep_in_a_recursion),
        cmocka_unit_test(a_context_moves_between_threads),
        cmocka_unit_test(fibers_switch_directly_and_reuse_stacks),
        cmocka_unit_test(a_run_ends_where_it_says),
        cmocka_unit_test(a_run_may_suspend_and_end_elsewhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* The stack pool: re-use, guards, trimming, a flat mapping count, failures of the
 * kernel, the high-water mark, the worker's cache. */
#include "unit_test.h"

#include "fiber/context.h"
#include "fiber/map.h"
#include "fiber/stack.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- map.h once more, with failures on order --- */

static int fail_new, fail_guard; /* fail the Nth call from now; 0: none */
static bool old_kernel;          /* as if MADV_GUARD_INSTALL were unknown */
static size_t mapped;

static bool due(int *countdown)
{
    return *countdown > 0 && --*countdown == 0;
}

void *weft__map_new(size_t size)
{
    if (due(&fail_new))
        return NULL;
    void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (m == MAP_FAILED)
        return NULL;
    madvise(m, size, MADV_NOHUGEPAGE);
    __atomic_fetch_add(&mapped, size, __ATOMIC_RELAXED);
    return m;
}

void weft__map_free(void *memory, size_t size)
{
    assert_int_equal(munmap(memory, size), 0);
    __atomic_fetch_sub(&mapped, size, __ATOMIC_RELAXED);
}

int weft__map_guard(void *memory, size_t size)
{
    if (due(&fail_guard))
        return -ENOMEM;
#ifdef WEFT__ASAN
    old_kernel = true;
#endif
    if (old_kernel)
        return -ENOTSUP;
    return madvise(memory, size, 102) == 0 ? 0 : errno == EINVAL ? -ENOTSUP : -errno;
}

/* Sanitizers and emulators keep mappings and memory of their own. */
#if defined(WEFT__ASAN) || defined(WEFT__TSAN) || defined(WEFT_TEST_EMULATED)
enum { PLAIN = 0 };
#else
enum { PLAIN = 1 };
#endif

/* --- helpers --- */

static long proc_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    long n = 0;
    if (!f)
        return -1;
    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

static long resident_kib(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2)
        resident = -1;
    if (f)
        fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static weft__stack_pool *pool_new(size_t size)
{
    weft__stack_pool *p = NULL;
    assert_int_equal(weft__stack_pool_new(size, &p), 0);
    return p;
}

static weft__stack_stats stats_of(weft__stack_pool *p)
{
    weft__stack_stats s;
    weft__stack_pool_stats(p, &s);
    return s;
}

/* The signal a child dies from when it writes to `at`; 0 when it lives. */
static int write_kills(char *at)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        *(volatile char *)at = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* --- tests --- */

static void sizes_are_checked_and_rounded(void **state)
{
    (void)state;
    weft__stack_pool *p = NULL;
    assert_int_equal(weft__stack_pool_new(0, NULL), -EINVAL);
    assert_int_equal(weft__stack_pool_new(SIZE_MAX, &p), -EINVAL);
    assert_int_equal(weft__stack_pool_new(((size_t)1 << 30) + 1, &p), -EINVAL);
    const size_t in[] = {0, 1, 20000, 100000, (size_t)1 << 30};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        p = pool_new(in[i]);
        size_t got = stats_of(p).stack_size;
        assert_true(got >= (in[i] ? in[i] : WEFT__STACK_DEFAULT) && got >= WEFT__STACK_MIN);
        assert_int_equal(got % (size_t)sysconf(_SC_PAGESIZE), 0);
        weft__stack *s = weft__stack_take(p);
        assert_non_null(s);
        assert_true(s->size <= got && s->size + 1024 > got);
        ((char *)s->low)[0] = 1;
        ((char *)s->low)[s->size - 1] = 1;
        weft__stack_give(p, s);
        weft__stack_pool_free(p);
    }
    weft__stack_pool_free(NULL);
    assert_int_equal(mapped, 0);
}

static void the_last_given_is_the_next_taken(void **state)
{
    (void)state;
    weft__stack_pool *p = pool_new(0);
    weft__stack *s[600];
    for (int i = 0; i < 600; i++) {
        s[i] = weft__stack_take(p);
        assert_in_range(s[i]->size, WEFT__STACK_DEFAULT - 1023, WEFT__STACK_DEFAULT);
        for (int k = 0; k < i; k++)
            assert_true((char *)s[k]->low + s[k]->size <= (char *)s[i]->low ||
                        (char *)s[i]->low + s[i]->size <= (char *)s[k]->low);
    }
    assert_int_equal(stats_of(p).slabs, 3);
    assert_int_equal(stats_of(p).stacks_used, 600);
    weft__stack_give(p, s[300]);
    assert_ptr_equal(weft__stack_take(p), s[300]);
    for (int i = 0; i < 600; i++)
        weft__stack_give(p, s[i]);
    assert_int_equal(stats_of(p).stacks_used, 0);
    assert_int_equal(stats_of(p).stacks_free, 600);
    for (int i = 0; i < 600; i++)
        assert_non_null(s[i] = weft__stack_take(p));
    assert_int_equal(stats_of(p).slabs, 3);
    for (int i = 0; i < 600; i++)
        weft__stack_give(p, s[i]);
    weft__stack_pool_free(p);
    assert_int_equal(mapped, 0);
}

static void guard_holds(void)
{
    weft__stack_pool *p = pool_new(0);
    weft__stack *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = weft__stack_take(p);
    for (int i = 0; i < 3; i++) {
        char *low = s[i]->low;
        assert_int_equal(write_kills(low), 0);
        assert_int_not_equal(write_kills(low - 1), 0);
        assert_int_not_equal(write_kills(low - 4096), 0);
        assert_ptr_equal(weft__stack_guard_hit(p, low - 1), s[i]);
        assert_ptr_equal(weft__stack_guard_hit(p, low - 4096), s[i]);
        assert_null(weft__stack_guard_hit(p, low));
        assert_null(weft__stack_guard_hit(p, low + s[i]->size - 1));
    }
    assert_null(weft__stack_guard_hit(p, p));
    assert_null(weft__stack_guard_hit(p, NULL));
    for (int i = 0; i < 3; i++)
        weft__stack_give(p, s[i]);
    /* Trimming must leave guards standing. */
    weft__stack *again = weft__stack_take(p);
    char *low = again->low;
    weft__stack_pool_trim(p, 0);
    assert_int_equal(write_kills(low), 0);
    assert_int_not_equal(write_kills(low - 1), 0);
    weft__stack *other = weft__stack_take(p); /* one of the discarded */
    assert_int_equal(write_kills(other->low), 0);
    assert_int_not_equal(write_kills((char *)other->low - 1), 0);
    weft__stack_give(p, other);
    weft__stack_give(p, again);
    weft__stack_pool_free(p);
}

static void guards_hold_in_both_kinds(void **state)
{
    (void)state;
    old_kernel = false;
    guard_holds();
    old_kernel = true;
    guard_holds();
    old_kernel = false;
}

static void many_parked_stacks_need_few_mappings(void **state)
{
    (void)state;
    enum { N = 100000 };
    weft__stack_pool *p = pool_new(0);
    weft__stack **s = calloc(N, sizeof *s);
    assert_non_null(s);
    weft__stack *first = weft__stack_take(p);
    bool kernel = stats_of(p).kernel_guards;
    /* With mprotect the limit on mappings is met earlier; that case is below. */
    int n = kernel && PLAIN ? N : 2000;
    long maps = proc_lines("/proc/self/maps"), kib = resident_kib();
    for (int i = 0; i < n; i++) {
        s[i] = weft__stack_take(p);
        assert_non_null(s[i]);
        ((char *)s[i]->low)[s[i]->size - 1] = 1; /* as parked there */
    }
    if (kernel && PLAIN)
        assert_in_range(proc_lines("/proc/self/maps"), 1, maps + 50);
    /* One page each, the record, and nothing to speak of else (page tables are not
     * in this figure). */
    long per_stack = (resident_kib() - kib) * 1024 / n;
    if (PLAIN && kernel)
        assert_in_range(per_stack, 4096, 4096 + 200);
    for (int i = 0; i < n; i++)
        weft__stack_give(p, s[i]);
    weft__stack_give(p, first);
    weft__stack_pool_trim(p, 0);
    assert_int_equal(stats_of(p).slabs, 0);
    assert_int_equal(mapped, 0);
    if (PLAIN)
        assert_in_range(proc_lines("/proc/self/maps"), 1, maps + 50);
    free(s);
    weft__stack_pool_free(p);
}

static void running_out_of_mappings_is_an_answer(void **state)
{
    (void)state;
    enum { N = 40000 };
    old_kernel = true;
    weft__stack_pool *p = pool_new(0);
    weft__stack **s = calloc(N, sizeof *s);
    int n = 0;
    long maps = proc_lines("/proc/self/maps");
    while (n < (PLAIN ? N : 2000) && (s[n] = weft__stack_take(p)) != NULL)
        n++;
    assert_in_range(n, 1000, N); /* all of them where vm.max_map_count is high */
    for (int i = 0; i < n; i++)
        weft__stack_give(p, s[i]);
    assert_int_equal(stats_of(p).stacks_used, 0);
    weft__stack_pool_trim(p, 0);
    if (PLAIN)
        assert_in_range(proc_lines("/proc/self/maps"), 1, maps + 50);
    assert_non_null(s[0] = weft__stack_take(p));
    weft__stack_give(p, s[0]);
    weft__stack_pool_free(p);
    old_kernel = false;
    free(s);
}

static void a_refusing_kernel_gives_null_and_no_leak(void **state)
{
    (void)state;
    weft__stack_pool *p = pool_new(0);
    fail_new = 1;
    assert_null(weft__stack_take(p));
    weft__stack *s[300];
    for (int i = 0; i < 256; i++)
        assert_non_null(s[i] = weft__stack_take(p));
    fail_new = 1;
    assert_null(weft__stack_take(p));
    assert_non_null(s[256] = weft__stack_take(p));
    fail_guard = 1;
    weft__stack *refused = weft__stack_take(p);
    bool guards_fail = refused == NULL; /* not where mprotect is in use */
    if (!guards_fail)
        weft__stack_give(p, refused);
    assert_int_equal(stats_of(p).stacks_used, 257);
    fail_guard = 3; /* in the middle of a batch */
    weft__stack *batch[8];
    size_t n = weft__stack_take_many(p, batch, 8);
    if (guards_fail)
        assert_int_equal(n, 2);
    weft__stack_give_many(p, batch, n);
    fail_guard = 0;
    n = weft__stack_take_many(p, batch, 8);
    assert_int_equal(n, 8);
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(write_kills((char *)batch[i]->low - 1), 0);
    weft__stack_give_many(p, batch, n);
    for (int i = 0; i < 257; i++)
        weft__stack_give(p, s[i]);
    weft__stack_pool_free(p);
    assert_int_equal(mapped, 0);
}

/* Four waves of stacks that each touch 16 KiB. */
static void waves_do_not_grow_and_trim_returns(void **state)
{
    (void)state;
    enum { N = PLAIN ? 10000 : 1000 };
    weft__stack_pool *p = pool_new(0);
    weft__stack **s = calloc(N, sizeof *s);
    long start = resident_kib(), first = 0, last = 0;
    for (int wave = 0; wave < 4; wave++) {
        for (int i = 0; i < N; i++) {
            assert_non_null(s[i] = weft__stack_take(p));
            for (size_t k = 0; k < 4; k++)
                ((char *)s[i]->low)[s[i]->size - 1 - k * 4096] = 1;
        }
        for (int i = 0; i < N; i++)
            weft__stack_give(p, s[i]);
        last = resident_kib();
        if (wave == 0)
            first = last;
    }
    if (PLAIN)
        assert_in_range(last, 0, first + first / 10);
    /* Keep at most 100 stacks' worth: their slabs stay, the rest goes. */
    weft__stack_pool_trim(p, 100 * stats_of(p).stack_size);
    if (PLAIN)
        assert_in_range(resident_kib(), 0, start + 20 * 1024);
    weft__stack_pool_trim(p, 0);
    assert_int_equal(stats_of(p).slabs, 0);
    if (PLAIN)
        assert_in_range(resident_kib(), 0, start + 2 * 1024);
    free(s);
    weft__stack_pool_free(p);
}

static void trim_spares_stacks_in_use(void **state)
{
    (void)state;
    weft__stack_pool *p = pool_new(0);
    weft__stack *s[1000];
    for (int i = 0; i < 1000; i++) {
        s[i] = weft__stack_take(p);
        memset((char *)s[i]->low + s[i]->size - 9000, 0x21, 9000);
    }
    for (int i = 0; i < 1000; i++)
        if (i % 300 != 7)
            weft__stack_give(p, s[i]);
    weft__stack_pool_trim(p, 0);
    assert_int_equal(stats_of(p).stacks_used, 4);
    assert_int_equal(stats_of(p).slabs, 4);
    weft__stack *clean = weft__stack_take(p);
    assert_int_equal(weft__stack_high_water(clean), 0);
    weft__stack_give(p, clean);
    for (int i = 7; i < 1000; i += 300) {
        for (int k = 1; k <= 9000; k++)
            assert_int_equal(((char *)s[i]->low)[s[i]->size - (size_t)k], 0x21);
        weft__stack_give(p, s[i]);
    }
    weft__stack_pool_trim(p, 0);
    assert_int_equal(stats_of(p).slabs, 0);
    weft__stack_pool_free(p);
}

static void the_cache_is_bounded_and_lifo(void **state)
{
    (void)state;
    weft__stack_pool *p = pool_new(0);
    weft__stack_cache c;
    weft__stack *s[200];
    weft__stack_cache_init(&c, p);
    for (int i = 0; i < 200; i++)
        assert_non_null(s[i] = weft__stack_cache_take(&c));
    for (int i = 0; i < 200; i++) {
        weft__stack_cache_give(&c, s[i]);
        assert_true(c.count <= WEFT__STACK_CACHE);
        for (size_t k = 0; k < c.count && k <= (size_t)i; k++) /* the latest, in order */
            assert_ptr_equal(c.stacks[c.count - 1 - k], s[(size_t)i - k]);
    }
    assert_ptr_equal(weft__stack_cache_take(&c), s[199]);
    assert_ptr_equal(weft__stack_cache_take(&c), s[198]);
    weft__stack_cache_give(&c, s[198]);
    weft__stack_cache_give(&c, s[199]);
    weft__stack_cache_fini(&c);
    assert_int_equal(stats_of(p).stacks_used, 0);
    assert_null((fail_new = 1, weft__stack_pool_trim(p, 0), weft__stack_cache_take(&c)));
    assert_int_equal(c.count, 0);
    weft__stack_pool_free(p);
}

static void *churn(void *arg)
{
    weft__stack_cache c;
    weft__stack *s[100];
    weft__stack_cache_init(&c, arg);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 100; i++) {
            s[i] = weft__stack_cache_take(&c);
            *(void **)((char *)s[i]->low + s[i]->size - 64) = &c;
        }
        if (round % 10 == 9)
            weft__stack_pool_trim(arg, 0);
        for (int i = 0; i < 100; i++) {
            assert_ptr_equal(*(void **)((char *)s[i]->low + s[i]->size - 64), &c);
            weft__stack_cache_give(&c, s[i]);
        }
    }
    weft__stack_cache_fini(&c);
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    (void)state;
    weft__stack_pool *p = pool_new(0);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, churn, p), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(stats_of(p).stacks_used, 0);
    weft__stack_pool_trim(p, 0);
    assert_int_equal(stats_of(p).slabs, 0);
    weft__stack_pool_free(p);
    assert_int_equal(mapped, 0);
}

static void the_high_water_mark_is_found(void **state)
{
    (void)state;
    weft__stack_pool *p = pool_new(0);
    weft__stack *s = weft__stack_take(p);
    char *top = (char *)s->low + s->size;
    assert_int_equal(weft__stack_high_water(s), 0);
    top[-5000] = 1;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_in_range(weft__stack_high_water(s), 5000, 5000 + page);

    weft__stack_paint(s);
    assert_int_equal(weft__stack_high_water(s), 0);
    top[-5000] = 1;
    assert_in_range(weft__stack_high_water(s), 5000, 5007);
    top[-20000] = 1;
    assert_in_range(weft__stack_high_water(s), 20000, 20007);
    weft__stack_paint(s);
    top[-100] = 1;
    assert_in_range(weft__stack_high_water(s), 100, 107);
    weft__stack_give(p, s);
    weft__stack_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked_and_rounded),
        cmocka_unit_test(the_last_given_is_the_next_taken),
        cmocka_unit_test(guards_hold_in_both_kinds),
        cmocka_unit_test(many_parked_stacks_need_few_mappings),
        cmocka_unit_test(running_out_of_mappings_is_an_answer),
        cmocka_unit_test(a_refusing_kernel_gives_null_and_no_leak),
        cmocka_unit_test(waves_do_not_grow_and_trim_returns),
        cmocka_unit_test(trim_spares_stacks_in_use),
        cmocka_unit_test(the_cache_is_bounded_and_lifo),
        cmocka_unit_test(threads_share_a_pool),
        cmocka_unit_test(the_high_water_mark_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

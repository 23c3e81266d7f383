/* SPDX-License-Identifier: MIT
 *
 * The stack pool when memory runs out: for every N the Nth mapping, guard, advice or
 * allocation fails; the pool answers without a stack or with a good one, goes on
 * afterwards, and keeps nothing.
 */
#include "unit_test.h"

#include "fiber/stack.h"
#include "harness.h"
#include "preload/preload.h"
#include "resources.h"

#include <errno.h>

#define STACKS 600 /* more than two slabs */

static weft__stack *stacks[STACKS];

/* Takes what it can get, writes to it, gives it back. */
static size_t use(weft__stack_pool *pool)
{
    size_t count = 0;
    for (size_t i = 0; i < STACKS; i++) {
        weft__stack *s = weft__stack_take(pool);
        if (!s)
            continue;
        assert_true(s->size > 0);
        *(volatile char *)s->low = 1;
        ((volatile char *)s->low)[s->size - 1] = 1;
        stacks[count++] = s;
    }
    for (size_t i = 0; i < count; i++)
        weft__stack_give(pool, stacks[i]);
    return count;
}

/* One life of a pool in which call number `n` fails; whether there was one. */
static bool one_life(enum preload_call call, uint64_t n, bool always)
{
    weft__stack_pool *pool = NULL;
    struct preload_rule rule = {.action = PRELOAD_FAIL,
                                .error = ENOMEM,
                                .first = n,
                                .every = always ? 1 : 0,
                                .this_thread = true};
    assert_int_equal(preload_set(call, &rule), 0);
    int r = weft__stack_pool_new(0, &pool);
    if (r != 0) {
        assert_int_equal(r, -ENOMEM);
        assert_null(pool);
    } else {
        use(pool);
        weft__stack_pool_trim(pool, 0);
    }
    bool hit = preload_hits(call) > 0;
    preload_reset();
    if (pool) {
        assert_int_equal(use(pool), STACKS); /* the trouble is over */
        weft__stack_pool_free(pool);
    }
    return hit;
}

static void every_call_may_fail(void **state)
{
    (void)state;
    static const enum preload_call calls[] = {PRELOAD_MMAP, PRELOAD_MPROTECT, PRELOAD_MADVISE,
                                              PRELOAD_MALLOC};
    struct resources before, after;
    char why[512];
    one_life(PRELOAD_MMAP, UINT64_MAX, false); /* what is made once is there now */
    resources_take(&before);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        uint64_t n = 1, step = 1;
        for (; one_life(calls[i], n, false); n += step) {
            one_life(calls[i], n, true);
            step = n < 20 ? 1 : n; /* one guard a stack: not all of them */
        }
        printf("%s: %d points of failure\n", preload_name(calls[i]), (int)n - 1);
    }
    if (!resources_same(&before, &after, NULL, why, sizeof why))
        fail_msg("%s", why);
}

int main(void)
{
    test_limit(60, "fault.stack_pool");
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

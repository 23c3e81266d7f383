/* SPDX-License-Identifier: MIT
 *
 * cmocka.h -- the few names of cmocka that the tests of base and fiber use, for a
 * cross-build, where Debian has no cmocka to link. A failed assertion ends its test
 * and the program's exit status counts the failures.
 */
#ifndef WEFT_TESTS_MINI_CMOCKA_H
#define WEFT_TESTS_MINI_CMOCKA_H
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*function)(void **state);
};
#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f                                                                                      \
    }

/* Assertions on other threads than the one that runs the tests end the process, as
 * there is nothing to jump to. */
static _Thread_local jmp_buf *mini_escape;

static inline void mini_fail(const char *file, int line, const char *what)
{
    printf("%s:%d: %s\n", file, line, what);
    fflush(stdout);
    if (!mini_escape)
        __builtin_trap();
    longjmp(*mini_escape, 1);
}

static inline bool mini_in_range(uintmax_t v, uintmax_t low, uintmax_t high)
{
    return v >= low && v <= high;
}

#define MINI_CHECK(cond, what)     ((cond) ? (void)0 : mini_fail(__FILE__, __LINE__, what))
#define assert_true(c)             MINI_CHECK(c, #c)
#define assert_false(c)            MINI_CHECK(!(c), "not " #c)
#define assert_null(p)             MINI_CHECK((p) == NULL, #p " is not NULL")
#define assert_non_null(p)         MINI_CHECK((p) != NULL, #p " is NULL")
#define assert_int_equal(a, b)     MINI_CHECK((uintmax_t)(a) == (uintmax_t)(b), #a " != " #b)
#define assert_int_not_equal(a, b) MINI_CHECK((uintmax_t)(a) != (uintmax_t)(b), #a " == " #b)
#define assert_ptr_equal(a, b)     MINI_CHECK((const void *)(a) == (const void *)(b), #a " != " #b)
#define assert_ptr_not_equal(a, b) MINI_CHECK((const void *)(a) != (const void *)(b), #a " == " #b)
#define assert_string_equal(a, b)  MINI_CHECK(strcmp(a, b) == 0, #a " != " #b)
#define assert_in_range(v, low, high)                                                              \
    MINI_CHECK(mini_in_range((uintmax_t)(v), (uintmax_t)(low), (uintmax_t)(high)),                 \
               #v " is out of range")
#define print_message(...) printf(__VA_ARGS__)

static inline bool mini_passes(const struct CMUnitTest *test, void **state)
{
    jmp_buf escape;
    mini_escape = &escape;
    if (setjmp(escape) != 0)
        return false;
    test->function(state);
    return true;
}

static inline int mini_run(const struct CMUnitTest *tests, size_t count, int (*setup)(void **),
                           int (*teardown)(void **))
{
    int failed = 0;
    void *state = NULL;
    if (setup && setup(&state) != 0)
        return 99;
    for (size_t i = 0; i < count; i++) {
        bool bad = !mini_passes(&tests[i], &state);
        printf("%-8s %s\n", bad ? "FAILED" : "ok", tests[i].name);
        fflush(stdout);
        failed += bad;
    }
    mini_escape = NULL;
    if (teardown && teardown(&state) != 0)
        failed++;
    return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    mini_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

#endif

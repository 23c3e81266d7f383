/* SPDX-License-Identifier: MIT
 *
 * Variables between threads: versions, finishing, waits that end in each way, and a watcher
 * that sees the last of many changes and none twice. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "harness.h"
#include "weft/variable.h"

static void values_and_versions(void **state)
{
    (void)state;
    int a, b, c;
    void *value = NULL, *old = NULL;
    weft_variable v = {0}, w;
    assert_int_equal(weft_variable_init(&w, &a), 0);
    assert_int_equal(weft_variable_get(&w, &value), 0);
    assert_ptr_equal(value, &a);
    assert_int_equal(weft_variable_get(&v, &value), 0);
    assert_null(value);
    assert_int_equal(weft_variable_set(&v, &a, &old), 0);
    assert_null(old);
    assert_int_equal(weft_variable_replace(&v, &b, &c), -EAGAIN);
    assert_int_equal(weft_variable_replace(&v, &a, &b), 0);
    assert_int_equal(weft_variable_get(&v, &value), 2);
    assert_ptr_equal(value, &b);

    uint64_t seen = 0;
    assert_int_equal(weft_variable_wait_change(&v, &seen, WEFT_TRY, &value), 0);
    assert_int_equal(seen, 2);
    assert_int_equal(weft_variable_wait_change(&v, &seen, WEFT_TRY, &value), -EAGAIN);
    assert_int_equal(weft_variable_wait_change(&v, &seen, weft_after(WEFT_MSEC), &value),
                     -ETIMEDOUT);
    assert_int_equal(weft_variable_wait(&v, weft_after(WEFT_MSEC), &value), -ETIMEDOUT);

    weft_select_case cases[] = {weft_case_variable(&v), weft_case_variable_change(&v, seen)};
    assert_int_equal(weft_select(cases, 2, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_variable_finish(&v, &c, &old), 0);
    assert_ptr_equal(old, &b);
    assert_true(weft_variable_is_finished(&v));
    assert_int_equal(weft_select(cases, 2, WEFT_SELECT_ORDERED, WEFT_NEVER), 0);
    cases[0].off = true;
    assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 1);
    assert_int_equal(cases[1].result, 0);
    cases[1] = weft_case_variable_change(&v, 3);
    assert_int_equal(weft_select(cases, 2, 0, WEFT_NEVER), 1);
    assert_int_equal(cases[1].result, -EPIPE);

    assert_int_equal(weft_variable_wait(&v, WEFT_NEVER, &value), 0);
    assert_ptr_equal(value, &c);
    assert_int_equal(weft_variable_wait_change(&v, &seen, WEFT_NEVER, &value), 0);
    assert_int_equal(weft_variable_wait_change(&v, &seen, WEFT_NEVER, &value), -EPIPE);
    assert_int_equal(weft_variable_set(&v, &a, NULL), -EALREADY);
    assert_int_equal(weft_variable_finish(&v, &a, NULL), -EALREADY);
    assert_int_equal(weft_variable_set(NULL, NULL, NULL), -EINVAL);
    assert_int_equal(weft_variable_wait(NULL, WEFT_TRY, NULL), -EINVAL);
    assert_int_equal(weft_variable_wait_change(&v, NULL, WEFT_TRY, NULL), -EINVAL);
    assert_false(weft_variable_is_finished(NULL));
    weft_select_case none = weft_case_variable(NULL);
    assert_int_equal(weft_select(&none, 1, 0, WEFT_TRY), -EINVAL);
}

static uintptr_t last_value;

static void *watch(void *arg)
{
    weft_variable *v = arg;
    uint64_t seen = 0, before = 0;
    void *value = NULL;
    int r;
    while ((r = weft_variable_wait_change(v, &seen, WEFT_NEVER, &value)) == 0) {
        assert_true(seen > before);
        assert_int_equal(seen, (uintptr_t)value); /* the two belong together */
        before = seen;
    }
    assert_int_equal(r, -EPIPE);
    assert_int_equal(seen, last_value);
    return NULL;
}

static void *wait_for_the_end(void *arg)
{
    void *value = NULL;
    assert_int_equal(weft_variable_wait(arg, WEFT_NEVER, &value), 0);
    assert_int_equal((uintptr_t)value, last_value);
    return NULL;
}

static void watchers_see_the_last_change(void **state)
{
    (void)state;
    weft_variable v = {0};
    pthread_t threads[4];
    last_value = (uintptr_t)test_rounds(200000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? wait_for_the_end : watch, &v),
                         0);
    for (uintptr_t i = 1; i < last_value; i++)
        assert_int_equal(weft_variable_set(&v, (void *)i, NULL), 0);
    assert_int_equal(weft_variable_finish(&v, (void *)last_value, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    test_limit(55, "sync_variable");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_versions),
        cmocka_unit_test(watchers_see_the_last_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

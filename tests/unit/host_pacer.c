/* SPDX-License-Identifier: MIT
 *
 * The pacer: its sequence, its bounds, deadlines, the edges of the clock. No clock is read. */
#include "unit_test.h"

#include <errno.h>

#include "weft/pacer.h"

static weft_pacer fresh(weft_time floor, weft_time ceiling)
{
    weft_pacer p;
    assert_int_equal(weft_pacer_init(&p, floor, ceiling), 0);
    return p;
}

static void waits_begin_where_the_sequence_says(void **state)
{
    (void)state;
    /* us of idling at which each wait begins; then every 10 ms */
    static const weft_time begins[] = {0, 50, 150, 350, 750, 1550, 3150, 6350, 12750, 22750, 32750};
    weft_pacer p = fresh(0, 0);
    weft_time start = 77 * WEFT_SEC, now = start;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        assert_int_equal(now - start, begins[i] * WEFT_USEC);
        now = weft_pacer_next(&p, now, WEFT_NEVER);
    }
    assert_int_equal(weft_pacer_interval(&p), WEFT_PACER_CEILING);
    weft_pacer_progress(&p);
    assert_int_equal(weft_pacer_next(&p, now, WEFT_NEVER) - now, WEFT_PACER_FLOOR);
    assert_int_equal(weft_pacer_next(&p, now, WEFT_NEVER) - now, 2 * WEFT_PACER_FLOOR);
}

static void it_is_never_later_than_a_deadline(void **state)
{
    (void)state;
    weft_pacer p = fresh(100, 800);
    assert_int_equal(weft_pacer_next(&p, 1000, 1099), 1099);
    assert_int_equal(weft_pacer_interval(&p), 100); /* cut short: that was no full look */
    assert_int_equal(weft_pacer_next(&p, 1000, 1100), 1100);
    assert_int_equal(weft_pacer_interval(&p), 200);
    assert_int_equal(weft_pacer_next(&p, 1000, 1000), 1000);
    assert_int_equal(weft_pacer_next(&p, 1000, 3), 3);
    assert_int_equal(weft_pacer_next(&p, 1000, WEFT_TRY), WEFT_TRY);
    assert_int_equal(weft_pacer_interval(&p), 200);
}

static void bounds_are_the_callers(void **state)
{
    (void)state;
    weft_pacer p = fresh(3, 10);
    static const weft_time want[] = {3, 6, 10, 10};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(weft_pacer_next(&p, 0, WEFT_NEVER), want[i]);
    p = fresh(7, 7);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(weft_pacer_next(&p, 0, WEFT_NEVER), 7);
    p = fresh(0, WEFT_NEVER);
    weft_time now = WEFT_NEVER - 1000;
    for (int i = 0; i < 100; i++)
        assert_in_range(weft_pacer_next(&p, now, WEFT_NEVER), now, WEFT_NEVER);
    p = fresh(WEFT_NEVER, WEFT_NEVER);
    assert_int_equal(weft_pacer_next(&p, -5, WEFT_NEVER), WEFT_NEVER - 5);
    assert_int_equal(weft_pacer_next(&p, INT64_MIN + 1, WEFT_NEVER), INT64_MIN + 1 + INT64_MAX);
}

static void bad_input_has_an_answer(void **state)
{
    (void)state;
    weft_pacer p = fresh(1, 2);
    assert_int_equal(weft_pacer_init(NULL, 0, 0), -EINVAL);
    assert_int_equal(weft_pacer_init(&p, -1, 0), -EINVAL);
    assert_int_equal(weft_pacer_init(&p, 0, -1), -EINVAL);
    assert_int_equal(weft_pacer_init(&p, 2, 1), -EINVAL);
    assert_int_equal(weft_pacer_init(&p, 11 * WEFT_MSEC, 0), -EINVAL);
    assert_int_equal(weft_pacer_interval(&p), 1);
    weft_pacer_progress(NULL);
    assert_int_equal(weft_pacer_interval(NULL), 0);
    assert_int_equal(weft_pacer_next(NULL, 5, 9), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_begin_where_the_sequence_says),
        cmocka_unit_test(it_is_never_later_than_a_deadline),
        cmocka_unit_test(bounds_are_the_callers),
        cmocka_unit_test(bad_input_has_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

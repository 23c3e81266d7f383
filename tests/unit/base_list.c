/* The intrusive lists: order, removal from the middle, splice, emptiness. */
#include "unit_test.h"

#include "base/list.h"

static void list_keeps_order_and_forgets_removed(void **state)
{
    (void)state;
    weft__list l, other;
    weft__link a = {0}, b = {0}, c = {0};
    weft__list_init(&l);
    weft__list_init(&other);
    assert_null(weft__list_pop(&l));
    weft__list_push(&l, &a);
    weft__list_push(&l, &b);
    weft__list_push_front(&l, &c);
    assert_true(weft__linked(&b));
    weft__list_remove(&a);
    assert_false(weft__linked(&a));
    weft__list_push(&other, &a);
    weft__list_splice(&other, &l);
    assert_true(weft__list_empty(&l));
    assert_ptr_equal(weft__list_pop(&other), &a);
    assert_ptr_equal(weft__list_pop(&other), &c);
    assert_ptr_equal(weft__list_pop(&other), &b);
    assert_true(weft__list_empty(&other));
}

static void fifo_keeps_order_across_splice(void **state)
{
    (void)state;
    weft__fifo q, r;
    weft__slink n[4];
    weft__fifo_init(&q);
    weft__fifo_init(&r);
    weft__fifo_splice(&q, &r);
    assert_true(weft__fifo_empty(&q));
    weft__fifo_push(&q, &n[0]);
    weft__fifo_push(&r, &n[1]);
    weft__fifo_push(&r, &n[2]);
    weft__fifo_splice(&q, &r);
    weft__fifo_push(&q, &n[3]);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(weft__fifo_pop(&q), &n[i]);
    assert_null(weft__fifo_pop(&q));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_keeps_order_and_forgets_removed),
        cmocka_unit_test(fifo_keeps_order_across_splice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

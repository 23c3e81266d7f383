/* The wait core between plain threads: hand-over, deadline, a claim that races a
 * deadline, a wait whose unpark comes before it parks. */
#include "unit_test.h"

#include <pthread.h>

#include "wait/wait.h"

/* The smallest waitable: a gate that one notifier opens for one waiter. */
struct gate {
    weft__lock lock;
    weft__list queue;
    int tokens;
};

static int gate_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    struct gate *g = object;
    (void)n;
    (void)wakes;
    if (g->tokens == 0)
        return -EAGAIN;
    g->tokens--;
    return 0;
}

static void gate_link(void *object, weft__wait_node *n)
{
    weft__list_push(&((struct gate *)object)->queue, &n->link);
}

static void gate_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops gate_ops = {"gate", gate_try, gate_link, gate_unlink};

static void gate_init(struct gate *g)
{
    memset(g, 0, sizeof *g);
    weft__list_init(&g->queue);
}

static int gate_pass(struct gate *g, weft_time deadline)
{
    weft__wait_node n = {0};
    return weft__wait_on(&gate_ops, g, &g->lock, &n, deadline);
}

static void gate_open(struct gate *g)
{
    weft__wakes wakes = {0};
    weft__acquire(&g->lock);
    weft__link *l;
    while ((l = weft__list_pop(&g->queue)) != NULL) {
        weft__wait_node *n = weft__container(l, weft__wait_node, link);
        if (weft__node_claim(n, 0)) {
            weft__wakes_add(&wakes, n->parker);
            break;
        }
    }
    if (!l)
        g->tokens++;
    weft__release(&g->lock);
    weft__wakes_run(&wakes);
}

static void deadlines_are_kept(void **state)
{
    (void)state;
    struct gate g;
    gate_init(&g);
    assert_int_equal(gate_pass(&g, WEFT_TRY), -EAGAIN);
    assert_int_equal(gate_pass(&g, 0), -ETIMEDOUT);
    weft_time start = weft_now();
    assert_int_equal(gate_pass(&g, start + 20 * WEFT_MSEC), -ETIMEDOUT);
    assert_true(weft_now() - start >= 20 * WEFT_MSEC);
    assert_true(weft__list_empty(&g.queue));
    gate_open(&g);
    assert_int_equal(gate_pass(&g, 0), 0); /* ready wins over a passed deadline */
    start = weft_now();
    assert_int_equal(weft__sleep(start + 5 * WEFT_MSEC), 0);
    assert_true(weft_now() - start >= 5 * WEFT_MSEC);
}

enum { ROUNDS = 20000 };

static void *opener(void *arg)
{
    for (int i = 0; i < ROUNDS; i++)
        gate_open(arg);
    return NULL;
}

static void every_token_passes_once(void **state)
{
    (void)state;
    struct gate g;
    gate_init(&g);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, opener, &g), 0);
    int passed = 0;
    uint64_t rng = 42;
    while (passed < ROUNDS) {
        /* Deadlines that meet the token: the outcome must still be one of two. */
        weft_time d = weft_now() + (weft_time)(weft__rand(&rng) % 3000);
        int r = gate_pass(&g, passed % 2 ? d : WEFT_NEVER);
        assert_true(r == 0 || r == -ETIMEDOUT);
        passed += r == 0;
    }
    pthread_join(t, NULL);
    assert_int_equal(g.tokens, 0);
    assert_true(weft__list_empty(&g.queue));
}

static void early_unpark_is_consumed(void **state)
{
    (void)state;
    weft__parker *self = weft__self();
    weft__wait_begin(self, "test", NULL);
    assert_true(weft__claim(self, 7));
    assert_false(weft__claim(self, 8));
    weft__unpark(self);
    assert_int_equal(weft__wait_commit(self, WEFT_NEVER), 7);
    assert_false(weft__claim(self, 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines_are_kept),
        cmocka_unit_test(every_token_passes_once),
        cmocka_unit_test(early_unpark_is_consumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

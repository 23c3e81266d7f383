/* SPDX-License-Identifier: MIT
 *
 * Map-reduce and pipelines: every result once, in order when asked, ended by failures,
 * deadlines, cancellation and shutdown, with nothing left running. */
#include "unit_test.h"

#include <errno.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/combine.h"
#include "weft/runtime.h"
#include "weft/task.h"

static weft_runtime *runtime(unsigned workers)
{
    weft_runtime *rt = NULL;
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = workers}, &rt), 0);
    return rt;
}

/* Each body on a plain thread and in a fiber, with one worker and with three. */
static void everywhere(int (*body)(void *rt))
{
    for (unsigned workers = 1; workers <= 3; workers += 2) {
        weft_runtime *rt = runtime(workers);
        weft_task *t;
        body(rt);
        assert_int_equal(weft_spawn(rt, body, rt, NULL, &t), 0);
        assert_int_equal(weft_task_join(t, WEFT_NEVER, NULL), 0);
        weft_task_unref(t);
        assert_int_equal(weft_runtime_shutdown(rt, WEFT_NEVER), 0);
        weft_runtime_stats stats;
        assert_int_equal(weft_runtime_get_stats(rt, &stats), 0);
        assert_int_equal(stats.alive, 0);
        weft_runtime_free(rt);
    }
}

struct sums {
    weft__a32 running, most, calls;
    long sum;
    size_t next;
    int stop_at, sleep_at;
};

static int square(void *arg, size_t index)
{
    struct sums *s = arg;
    uint32_t now = atom_add_rlx(&s->running, 1u) + 1;
    uint32_t most = atom_load_rlx(&s->most);
    while (now > most && !atom_cas_ar(&s->most, &most, now))
        ;
    atom_add_rlx(&s->calls, 1u);
    weft_sleep((weft_time)(index * 7 % 5) * 30 * WEFT_USEC);
    if (s->sleep_at && index == (size_t)s->sleep_at)
        weft_sleep_until(WEFT_NEVER);
    atom_sub_rlx(&s->running, 1u);
    return (int)(index * index);
}

static int add(void *arg, size_t index, int result)
{
    struct sums *s = arg;
    assert_int_equal(result, (int)(index * index));
    s->sum += result;
    return s->stop_at && index == (size_t)s->stop_at ? -42 : 0;
}

static int add_in_order(void *arg, size_t index, int result)
{
    struct sums *s = arg;
    assert_int_equal(index, s->next++);
    return add(arg, index, result);
}

static int map_body(void *rt)
{
    struct sums s = {0};
    weft_combine_options o = {.runtime = rt};
    assert_int_equal(weft_map_reduce(500, square, add, &s, &o), 0);
    assert_int_equal(s.sum, 41541750);
    assert_int_equal(atom_load_rlx(&s.calls), 500);
    assert_true(atom_load_rlx(&s.most) <= 64);

    s = (struct sums){0};
    o = (weft_combine_options){.runtime = rt, .parallel = 5, .flags = WEFT_COMBINE_ORDERED};
    assert_int_equal(weft_map_reduce(200, square, add_in_order, &s, &o), 0);
    assert_int_equal(s.next, 200);
    assert_true(atom_load_rlx(&s.most) <= 5);

    s = (struct sums){.stop_at = 50};
    assert_int_equal(weft_map_reduce(100000, square, add, &s, &o), -42);
    assert_int_equal(atom_load_rlx(&s.running), 0);
    assert_true(atom_load_rlx(&s.calls) < 1000);

    s = (struct sums){.sleep_at = 3};
    o = (weft_combine_options){.runtime = rt, .deadline = weft_after(20 * WEFT_MSEC)};
    assert_int_equal(weft_map_reduce(10, square, add, &s, &o), -ETIMEDOUT);
    assert_int_equal(atom_load_rlx(&s.running), 0);

    assert_int_equal(weft_map_reduce(0, square, add, &s, &o), 0);
    assert_int_equal(
        weft_map_reduce(3, square, NULL, &(struct sums){0}, &(weft_combine_options){.runtime = rt}),
        0);
    assert_int_equal(weft_map_reduce(3, NULL, add, &s, &o), -EINVAL);
    o.flags = 2;
    assert_int_equal(weft_map_reduce(3, square, add, &s, &o), -EINVAL);
    return 0;
}

static void map_reduce_takes_each_once(void **state)
{
    (void)state;
    assert_int_equal(weft_map_reduce(3, square, add, NULL, NULL), -EINVAL); /* no runtime */
    everywhere(map_body);
}

static int maps_for_ever(void *arg)
{
    struct sums s = {.sleep_at = 1};
    (void)arg;
    int r = weft_map_reduce(10, square, add, &s, NULL);
    assert_int_equal(atom_load_rlx(&s.running), 0);
    return r;
}

static void map_reduce_is_cancelled(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    weft_task *t;
    int result = 0;
    assert_int_equal(weft_spawn(rt, maps_for_ever, NULL, NULL, &t), 0);
    test_sleep_ms(5);
    weft_task_cancel(t);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, -ECANCELED);
    weft_task_unref(t);
    weft_runtime_free(rt);
}

/* ---- Pipelines ---- */

static int double_odd(void *arg, const void *in, void *out)
{
    const int *i = in;
    long *o = out;
    if (arg && *i == *(int *)arg)
        return -33;
    if (*i % 2 == 0)
        return WEFT_FILTER_SKIP;
    *o = 2L * *i;
    return 0;
}

struct stages {
    weft_channel *in, *out;
    int *bad;
    size_t parallel;
    weft_time deadline;
};

static int stage(void *arg)
{
    struct stages *s = arg;
    weft_combine_options o = {.parallel = s->parallel, .deadline = s->deadline};
    return weft_pipeline(s->in, s->out, double_odd, s->bad, &o);
}

static int consume(void *arg, const void *in, void *out)
{
    assert_null(out);
    atom_add_rlx((weft__a64 *)arg, (uint64_t) * (const long *)in);
    return 0;
}

static int feed(void *arg)
{
    struct stages *s = arg;
    int r = 0;
    for (int i = 0; i < 1000 && !r; i++)
        r = weft_channel_send(s->in, &i, WEFT_NEVER);
    weft_channel_close(s->in);
    return r;
}

static int pipe_body(void *rt)
{
    int bad = 501;
    for (size_t parallel = 1; parallel <= 4; parallel += 3)
        for (size_t capacity = 0; capacity < 3; capacity += 2)
            for (int fails = 0; fails < 2; fails++) {
                struct stages s = {.parallel = parallel, .bad = fails ? &bad : NULL};
                weft__a64 sum = {0};
                weft_task *t[2];
                int r[2];
                assert_int_equal(weft_channel_new(sizeof(int), capacity, NULL, &s.in), 0);
                assert_int_equal(weft_channel_new(sizeof(long), capacity, NULL, &s.out), 0);
                assert_int_equal(weft_spawn(rt, feed, &s, NULL, &t[0]), 0);
                assert_int_equal(weft_spawn(rt, stage, &s, NULL, &t[1]), 0);
                weft_combine_options o = {.runtime = rt, .parallel = 2};
                assert_int_equal(weft_pipeline(s.out, NULL, consume, &sum, &o), 0);
                for (int i = 0; i < 2; i++) {
                    assert_int_equal(weft_task_join(t[i], WEFT_NEVER, &r[i]), 0);
                    weft_task_unref(t[i]);
                }
                assert_int_equal(r[0], fails ? -EPIPE : 0);
                assert_int_equal(r[1], fails ? -33 : 0);
                if (!fails)
                    assert_int_equal(atom_load_rlx(&sum), 500000);
                weft_channel_unref(s.in);
                weft_channel_unref(s.out);
            }
    return 0;
}

static void pipelines_carry_all(void **state)
{
    (void)state;
    assert_int_equal(weft_pipeline(NULL, NULL, consume, NULL, NULL), -EINVAL);
    everywhere(pipe_body);
}

static void pipelines_end_at_their_deadline(void **state)
{
    (void)state;
    weft_runtime *rt = runtime(2);
    struct stages s = {.deadline = weft_after(10 * WEFT_MSEC)};
    weft_task *t;
    int result = 0;
    assert_int_equal(weft_channel_new(sizeof(int), 1, NULL, &s.in), 0);
    assert_int_equal(weft_channel_new(sizeof(long), 1, NULL, &s.out), 0);
    assert_int_equal(weft_spawn(rt, stage, &s, NULL, &t), 0);
    assert_int_equal(weft_task_join(t, WEFT_NEVER, &result), 0);
    assert_int_equal(result, -ETIMEDOUT);
    assert_true(weft_channel_is_closed(s.in) && weft_channel_is_closed(s.out));
    weft_task_unref(t);
    weft_runtime_free(rt);
    weft_channel_unref(s.in);
    weft_channel_unref(s.out);
}

int main(void)
{
    test_limit(55, "sched_combine");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_reduce_takes_each_once),
        cmocka_unit_test(map_reduce_is_cancelled),
        cmocka_unit_test(pipelines_carry_all),
        cmocka_unit_test(pipelines_end_at_their_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The wheel against a sorted model: random scripts with the validator after each
 * step, and the places where wheels of other projects broke: level boundaries, the
 * wrap of the top level, deadlines at now, in the past and at the far end, ticks
 * that are no round number, jumps, time that steps back.
 *
 * WEFT_SEED=n repeats a run; WEFT_OPS=n sets the length of the random script. */
#include "unit_test.h"

#include "base/sys.h"
#include "time/wheel.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 10
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOWER 10
#endif
#endif
#ifndef SLOWER
#ifdef WEFT_DEBUG
#define SLOWER 4
#else
#define SLOWER 1
#endif
#endif

#define MODEL_MAX 512

/* The model: a plain array; what is due is found by looking at all of it. */
struct item {
    weft__wheel_entry e;
    weft_time due; /* deadline rounded up by the model's own arithmetic */
    bool armed;
};

struct model {
    weft__wheel w;
    weft_time origin, tick, now;
    struct item items[MODEL_MAX];
    size_t armed;
    uint64_t rng;
};

static uint64_t seed_of_run(void)
{
    const char *text = getenv("WEFT_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : weft__sys_seed();
    seed = seed ? seed : 1;
    print_message("WEFT_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static struct model *model_new(weft_time origin, weft_time tick, uint64_t seed)
{
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->origin = m->now = origin;
    m->tick = tick;
    m->rng = seed;
    weft__wheel_init(&m->w, origin, tick);
    return m;
}

static uint64_t roll(struct model *m, uint64_t below)
{
    return weft__rand(&m->rng) % below;
}

__extension__ typedef __int128 wide;

/* First tick at or after the deadline; WEFT_NEVER when there is none. */
static weft_time round_up(const struct model *m, weft_time deadline)
{
    if (deadline == WEFT_NEVER)
        return WEFT_NEVER;
    if (deadline <= m->origin)
        return m->origin;
    wide ticks = ((wide)deadline - m->origin + m->tick - 1) / m->tick;
    wide at = m->origin + ticks * m->tick;
    return at > INT64_MAX ? WEFT_NEVER : (weft_time)at;
}

static void model_arm(struct model *m, struct item *it, weft_time deadline)
{
    if (it->armed) {
        assert_true(weft__wheel_remove(&m->w, &it->e));
        m->armed--;
    }
    weft__wheel_add(&m->w, &it->e, deadline);
    assert_true(weft__wheel_armed(&it->e));
    it->due = deadline <= m->now ? m->now : round_up(m, deadline);
    it->armed = true;
    m->armed++;
}

static void model_cancel(struct model *m, struct item *it)
{
    assert_int_equal(weft__wheel_remove(&m->w, &it->e), it->armed);
    assert_false(weft__wheel_armed(&it->e));
    m->armed -= it->armed;
    it->armed = false;
}

static weft_time model_next(const struct model *m)
{
    weft_time best = WEFT_NEVER;
    for (size_t i = 0; i < MODEL_MAX; i++)
        if (m->items[i].armed && m->items[i].due < best)
            best = m->items[i].due;
    return best;
}

/* Pops what the wheel handed out and holds it against the model. */
static void model_take(struct model *m, weft__list *due, size_t n)
{
    weft_time last = WEFT_TRY;
    weft__link *l;
    size_t seen = 0;
    while ((l = weft__list_pop(due)) != NULL) {
        struct item *it = weft__container(l, struct item, e.link);
        assert_true(it->armed);
        assert_false(weft__wheel_armed(&it->e));
        assert_true(it->due <= m->now);        /* never early */
        assert_true(it->e.deadline <= m->now); /* exactly, too */
        if (it->due > last)
            last = it->due;
        it->armed = false;
        m->armed--;
        seen++;
    }
    assert_int_equal(seen, n);
}

/* Moves time to `now` with turns of at most `max`; afterwards nothing due is left. */
static void model_drive(struct model *m, weft_time now, size_t max)
{
    weft__list due;
    weft__list_init(&due);
    if (now > m->now)
        m->now = now;
    for (;;) {
        size_t n = weft__wheel_advance(&m->w, now, &due, max);
        assert_true(n <= max);
        model_take(m, &due, n);
        weft_time next = weft__wheel_next(&m->w);
        if (next > m->now || next == WEFT_NEVER)
            break;
        assert_true(n > 0 || m->w.cascading || now < m->now);
        if (n == 0 && now < m->now)
            break; /* time stepped back: what was armed as due waits for real time */
    }
    if (now == m->now)
        assert_true(model_next(m) > m->now || model_next(m) == WEFT_NEVER);
}

static void model_free(struct model *m)
{
    for (size_t i = 0; i < MODEL_MAX; i++)
        model_cancel(m, &m->items[i]);
    assert_int_equal(m->w.count, 0);
    assert_true(weft__wheel_next(&m->w) == WEFT_NEVER);
    weft__wheel_check(&m->w);
    free(m);
}

static void check(const struct model *m)
{
    weft__wheel_check(&m->w);
    assert_int_equal(m->w.count, m->armed);
}

static weft_time later(weft_time t, uint64_t by)
{
    return by >= (uint64_t)INT64_MAX - (uint64_t)t ? WEFT_NEVER : (weft_time)((uint64_t)t + by);
}

/* A distance of any size: most bits set at random below a random bit. */
static uint64_t distance(struct model *m, unsigned bits)
{
    return weft__rand(&m->rng) >> (64 - 1 - roll(m, bits));
}

static void random_step(struct model *m)
{
    struct item *it = &m->items[roll(m, MODEL_MAX)];
    uint64_t tick = (uint64_t)m->tick;
    switch (roll(m, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        model_arm(m, it, later(m->now, distance(m, 40)));
        break;
    case 4:
        model_arm(m, it, later(m->now, distance(m, 62)));
        break;
    case 5: /* many on one tick */
        model_arm(m, it, later(m->now, tick * (1 + roll(m, 3))));
        break;
    case 6: { /* now, a little ago, long ago */
        weft_time past = (weft_time)roll(m, 2) * (weft_time)distance(m, 30);
        model_arm(m, it, m->now - past);
        break;
    }
    case 7:
        model_arm(m, it, roll(m, 2) ? WEFT_NEVER : WEFT_NEVER - 1 - (weft_time)roll(m, 3));
        break;
    case 8:
    case 9:
        model_cancel(m, it);
        break;
    case 10: { /* exactly to the next one, one before it, or by a jump */
        weft_time next = weft__wheel_next(&m->w);
        if (next == WEFT_NEVER)
            break;
        if (next > m->now && roll(m, 2)) {
            weft_time before = m->now;
            model_drive(m, next - 1, 1 + roll(m, 100));
            assert_true(next - 1 >= before);
        }
        if (next - m->now < ((weft_time)1 << 50))
            model_drive(m, next, 1 + roll(m, 100));
        break;
    }
    default:
        if (m->now < ((weft_time)1 << 61))
            model_drive(m, later(m->now, distance(m, roll(m, 8) ? 34 : 52)), 1 + roll(m, 100));
        break;
    }
}

static void random_script_equals_the_model(void **state)
{
    (void)state;
    static const weft_time ticks[] = {1 << 12, 1000000, 1000, 1 << 14, 1500000, 123457};
    uint64_t seed = seed_of_run();
    const char *text = getenv("WEFT_OPS");
    size_t ops = text ? strtoull(text, NULL, 0) : 1000000 / SLOWER;
    size_t each = ops / (sizeof ticks / sizeof *ticks) + 1;
    for (size_t t = 0; t < sizeof ticks / sizeof *ticks; t++) {
        weft_time origin = t % 2 ? -5 : 123456789;
        struct model *m = model_new(origin, ticks[t], seed + t);
        for (size_t i = 0; i < each; i++) {
            random_step(m);
            check(m);
            /* Never later than the earliest, and exact unless a slot is crowded. */
            weft_time next = weft__wheel_next(&m->w);
            if (i % 4 == 0) {
                weft_time want = model_next(m);
                if (want <= m->now)
                    assert_true(next <= m->now);
                else
                    assert_true(next <= want && (next == want || m->armed > 64));
            }
        }
        check(m);
        model_free(m);
    }
}

/* The same with so few entries that next() has to be exact, checked after each step. */
static void small_script_checks_every_step(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run();
    struct model *m = model_new(0, 4096, seed);
    for (size_t i = 0; i < 20000 / SLOWER; i++) {
        if (m->armed > 60)
            for (size_t k = 0; k < MODEL_MAX; k += 2)
                model_cancel(m, &m->items[k]);
        if (m->armed > 60)
            for (size_t k = 0; k < MODEL_MAX; k++)
                model_cancel(m, &m->items[k]);
        random_step(m);
        check(m);
        weft_time want = model_next(m), next = weft__wheel_next(&m->w);
        if (want <= m->now)
            assert_true(next <= m->now);
        else
            assert_true(next == want);
    }
    model_free(m);
}

/* Arms one entry, drives to one nanosecond before the due time, then onto it. */
static void expect_exact(struct model *m, weft_time deadline)
{
    struct item *it = &m->items[0];
    model_arm(m, it, deadline);
    check(m);
    weft_time due = it->due;
    if (due == WEFT_NEVER) {
        assert_true(weft__wheel_next(&m->w) == WEFT_NEVER);
        model_cancel(m, it);
        return;
    }
    if (due > m->now) {
        assert_true(weft__wheel_next(&m->w) == due);
        model_drive(m, due - 1, 8);
        check(m);
        assert_true(it->armed);
        assert_true(weft__wheel_next(&m->w) == due);
    }
    model_drive(m, due, 8);
    check(m);
    assert_false(it->armed);
}

static void each_level_boundary_is_exact(void **state)
{
    (void)state;
    static const weft_time ticks[] = {4096, 1000000};
    for (int t = 0; t < 2; t++) {
        struct model *m = model_new(77, ticks[t], 1);
        for (int rounds = 0; rounds < 3; rounds++)
            for (unsigned level = 1; level <= WEFT__WHEEL_LEVELS; level++)
                for (int d = -2; d <= 2; d++)
                    for (int ns = -1; ns <= 1; ns++) {
                        weft_time span = ticks[t] << (level * WEFT__WHEEL_BITS);
                        if (span > ((weft_time)1 << 60) / ticks[t])
                            break;
                        expect_exact(m, m->now + span + d * ticks[t] + ns);
                    }
        model_free(m);
    }
}

/* Near each multiple of the full span, and near each level's boundary: a crowd of
 * short delays and one of each level's span; half cancelled, a quarter re-armed. */
static void wrap_of_the_top_level_loses_nothing(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run();
    const weft_time tick = 4096;
    struct model *m = model_new(0, tick, seed);
    for (weft_time k = 1; k <= 4; k++)
        for (unsigned level = 1; level <= WEFT__WHEEL_LEVELS; level++)
            for (weft_time d = level == WEFT__WHEEL_LEVELS ? -5 : -1; d <= 1; d++) {
                weft_time full = tick << (WEFT__WHEEL_LEVELS * WEFT__WHEEL_BITS);
                weft_time part =
                    level == WEFT__WHEEL_LEVELS ? 0 : tick << (level * WEFT__WHEEL_BITS);
                weft_time place = k * full + part + d * tick;
                if (place < m->now)
                    continue;
                model_drive(m, place, 16);
                for (size_t i = 0; i < 140; i++)
                    model_arm(m, &m->items[i], m->now + (weft_time)(1 + i % 70) * tick);
                for (unsigned l = 0; l <= WEFT__WHEEL_LEVELS; l++)
                    model_arm(m, &m->items[140 + l], m->now + (tick << (l * WEFT__WHEEL_BITS)));
                for (size_t i = 0; i < 147; i++) {
                    if (roll(m, 2))
                        model_cancel(m, &m->items[i]);
                    else if (roll(m, 2))
                        model_arm(m, &m->items[i], m->now + (weft_time)(1 + roll(m, 70)) * tick);
                }
                check(m);
                for (int step = 0; step < 75; step++) {
                    model_drive(m, m->now + tick, 16);
                    check(m);
                }
            }
    model_free(m);
}

static void far_deadlines_fire_at_their_tick_or_never(void **state)
{
    (void)state;
    static const weft_time ticks[] = {4096, 1000000, 1500000};
    for (int t = 0; t < 3; t++) {
        struct model *m = model_new(1000, ticks[t], 1);
        weft_time span = ticks[t] << (WEFT__WHEEL_LEVELS * WEFT__WHEEL_BITS);
        expect_exact(m, m->now + span - ticks[t]);
        expect_exact(m, m->now + span);
        expect_exact(m, m->now + span + ticks[t]);
        expect_exact(m, m->now + 3 * span + 7 * ticks[t]);
        expect_exact(m, WEFT_NEVER);
        /* The last ticks of the clock, from near and with time at its end. */
        model_arm(m, &m->items[1], WEFT_NEVER - 2 * ticks[t]);
        model_arm(m, &m->items[2], WEFT_NEVER - 1);
        model_arm(m, &m->items[3], WEFT_NEVER);
        model_drive(m, WEFT_NEVER, 8);
        check(m);
        assert_false(m->items[1].armed);
        assert_true(m->items[3].armed);
        assert_true(weft__wheel_next(&m->w) == WEFT_NEVER);
        weft__list due; /* and so when armed at that time */
        weft__list_init(&due);
        weft__wheel_remove(&m->w, &m->items[3].e);
        weft__wheel_add(&m->w, &m->items[3].e, WEFT_NEVER);
        assert_int_equal(weft__wheel_advance(&m->w, WEFT_NEVER, &due, 8), 0);
        check(m);
        model_free(m);
    }
}

/* A deadline at now or before is due on the next turn, once, also when armed while
 * entries are being handed out; a time that steps back changes nothing. */
static void past_deadlines_and_time_that_steps_back(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run();
    const weft_time tick = 1000000;
    struct model *m = model_new(0, tick, seed);
    static const weft_time back[] = {0, 1, 1000000, 1000000000000};
    for (int i = 0; i < 100000 / SLOWER; i++) {
        struct item *a = &m->items[i % 7], *b = &m->items[7 + i % 7];
        model_arm(m, a, m->now - back[roll(m, 4)]);
        assert_true(weft__wheel_next(&m->w) <= m->now);
        weft__list due;
        weft__list_init(&due);
        size_t n = weft__wheel_advance(&m->w, m->now - tick, &due, 1);
        assert_int_equal(n, 1);
        model_arm(m, b, m->now - back[roll(m, 4)]); /* from inside the expiry */
        model_take(m, &due, n);
        assert_false(a->armed);
        model_drive(m, m->now - (weft_time)roll(m, 2) * tick, 1);
        assert_false(b->armed);
        model_drive(m, m->now + (weft_time)roll(m, 3000000), 4);
        if (i % 16 == 0)
            check(m);
    }
    model_free(m);
}

static void odd_ticks_round_up_and_never_lose_a_timer(void **state)
{
    (void)state;
    static const weft_time ticks[] = {100000, 300000, 1000000, 1500000, 7000000, 10000000};
    static const weft_time delays[] = {0, 50000, 1000000, 9900000, 10000000, 33000000};
    for (size_t t = 0; t < 6; t++)
        for (size_t d = 0; d < 6; d++)
            for (int phase = 0; phase < 5; phase++) {
                struct model *m = model_new(31, ticks[t], 1);
                model_drive(m, m->now + phase * ticks[t] / 4, 1);
                weft_time armed_at = m->now;
                model_arm(m, &m->items[0], armed_at + delays[d]);
                weft_time next = weft__wheel_next(&m->w);
                assert_true(next <= armed_at + delays[d] + ticks[t]);
                expect_exact(m, armed_at + delays[d]);
                assert_true(m->now <= armed_at + delays[d] + ticks[t]);
                model_free(m);
            }
}

/* One jump of an hour: each once, in order of ticks, in turns of any size. */
static void forward_jump_hands_out_all_once_in_order(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run();
    for (size_t max = 1; max <= 2048; max *= 45) {
        struct model *m = model_new(0, 1000000, seed);
        for (size_t i = 0; i < MODEL_MAX; i++)
            model_arm(m, &m->items[i], (weft_time)roll(m, 3600) * WEFT_SEC);
        weft__list due;
        weft__list_init(&due);
        m->now = 3600 * WEFT_SEC;
        weft_time last = WEFT_TRY;
        size_t total = 0;
        while (weft__wheel_next(&m->w) <= m->now) {
            total += weft__wheel_advance(&m->w, m->now, &due, max);
            for (weft__link *l; (l = weft__list_pop(&due)) != NULL;) {
                struct item *it = weft__container(l, struct item, e.link);
                assert_true(it->armed && it->due >= last);
                last = it->due;
                it->armed = false;
                m->armed--;
            }
            check(m);
        }
        assert_int_equal(total, MODEL_MAX);
        model_free(m);
    }
}

/* An idle owner with one sleep wakes once: next() is its due time from the start,
 * through every level, also after an earlier entry came and went. */
static void one_long_sleep_needs_one_wake(void **state)
{
    (void)state;
    struct model *m = model_new(0, 4096, 1);
    model_drive(m, 987654321, 8);
    for (unsigned bits = 10; bits < 60; bits++) {
        struct item *it = &m->items[0];
        model_arm(m, it, m->now + ((weft_time)1 << bits) + 1);
        assert_true(weft__wheel_next(&m->w) == it->due);
        model_arm(m, &m->items[1], m->now + 5000);
        assert_true(weft__wheel_next(&m->w) ==
                    (it->due < m->items[1].due ? it->due : m->items[1].due));
        model_cancel(m, &m->items[1]);
        assert_true(weft__wheel_next(&m->w) == it->due);
        model_cancel(m, it);
        assert_true(weft__wheel_next(&m->w) == WEFT_NEVER);
    }
    model_free(m);
}

/* Everything on one tick of a high level: the turn stays bounded and makes progress. */
static void crowded_slot_is_moved_in_pieces(void **state)
{
    (void)state;
    struct model *m = model_new(0, 4096, 1);
    for (size_t i = 0; i < MODEL_MAX; i++)
        model_arm(m, &m->items[i], 10 * WEFT_SEC + (weft_time)(i % 7) * 4096);
    weft_time next;
    size_t calls = 0;
    while ((next = weft__wheel_next(&m->w)) != WEFT_NEVER) {
        weft__list due;
        weft__list_init(&due);
        if (next > m->now)
            m->now = next;
        size_t n = weft__wheel_advance(&m->w, m->now, &due, 3);
        model_take(m, &due, n);
        check(m);
        if (calls++ % 5 == 0) /* a newcomer among those half moved, and a leaver */
            model_arm(m, &m->items[0], 10 * WEFT_SEC + 3 * 4096);
        if (calls % 50 == 0)
            model_cancel(m, &m->items[calls % MODEL_MAX]);
        assert_true(calls < 5000);
        if (calls > 2000)
            model_cancel(m, &m->items[0]);
    }
    assert_int_equal(m->armed, 0);
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_script_equals_the_model),
        cmocka_unit_test(small_script_checks_every_step),
        cmocka_unit_test(each_level_boundary_is_exact),
        cmocka_unit_test(wrap_of_the_top_level_loses_nothing),
        cmocka_unit_test(far_deadlines_fire_at_their_tick_or_never),
        cmocka_unit_test(past_deadlines_and_time_that_steps_back),
        cmocka_unit_test(odd_ticks_round_up_and_never_lose_a_timer),
        cmocka_unit_test(forward_jump_hands_out_all_once_in_order),
        cmocka_unit_test(one_long_sleep_needs_one_wake),
        cmocka_unit_test(crowded_slot_is_moved_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

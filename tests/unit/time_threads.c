/* The timer service with a reactor thread on one side and other threads on the other:
 * wakes are not lost, cancellation agrees with delivery, waits end, closing ends all.
 * Bounds on time are generous: what is tested is that things happen, not how fast. */
#include "unit_test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "weft/timer.h"

#define MS WEFT_MSEC

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 10
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOWER 10
#endif
#endif
#ifndef SLOWER
#define SLOWER 1
#endif

/* cmocka's assertions are for the main thread; others use this. */
#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct reactor {
    weft_timer_service *service;
    weft_timer_context *context;
    pthread_t thread;
    weft__a32 stop;
    weft__a32 turns;
    weft_timer nudge; /* only to wake it for `stop` */
};

/* A plain poll loop. */
static void *reactor_run(void *arg)
{
    struct reactor *r = arg;
    struct pollfd fd = {weft_timer_service_fd(r->service), POLLIN, 0};
    MUST(fd.fd >= 0);
    while (!atom_load_acq(&r->stop)) {
        weft_time until;
        int plan = weft_timer_service_prepare_wait(r->service, NULL, &until);
        MUST(plan >= 0);
        weft_time left = plan == WEFT_WAIT_UNTIL ? until - weft_now() : 0;
        left = left < 0 ? 0 : left;
        struct timespec ts = {(time_t)(left / WEFT_SEC), (long)(left % WEFT_SEC)};
        ppoll(&fd, 1, plan == WEFT_WAIT_FOREVER ? NULL : &ts, NULL);
        atom_add_rlx(&r->turns, 1u);
        MUST(weft_timer_service_turn(r->service, weft_now(), NULL) >= 0);
    }
    return NULL;
}

static void reactor_start_shards(struct reactor *r, weft_time tick, unsigned shards)
{
    weft_timer_options o = {.tick = tick, .shards = shards};
    memset(r, 0, sizeof *r);
    assert_int_equal(weft_timer_service_create(weft_now(), &o, &r->service), 0);
    r->context = weft_timer_service_context(r->service);
    weft_timer_init(&r->nudge, r->context, NULL, NULL, 0);
    assert_int_equal(pthread_create(&r->thread, NULL, reactor_run, r), 0);
}

static void reactor_start(struct reactor *r, weft_time tick)
{
    reactor_start_shards(r, tick, 4);
}

static void reactor_join(struct reactor *r)
{
    atom_store_rel(&r->stop, 1u);
    weft_timer_arm(&r->nudge, WEFT_TRY);
    pthread_join(r->thread, NULL);
}

static void reactor_end(struct reactor *r)
{
    reactor_join(r);
    weft_timer_service_destroy(r->service);
}

struct shot {
    weft_timer timer;
    weft__a32 fired;
    weft__a32 inside;
    weft_time deadline;
    uint32_t linger; /* spins inside the callback */
};

static void shot_fired(weft_timer *t, void *arg, int result)
{
    struct shot *s = arg;
    MUST(t == &s->timer && result == 0);
    atom_store_rel(&s->inside, 1u);
    MUST(weft_now() >= s->deadline); /* never early */
    for (uint32_t i = 0; i < s->linger; i++)
        weft__relax();
    atom_add_ar(&s->fired, 1u);
    atom_store_rel(&s->inside, 0u);
}

static void spin_until(weft_time t)
{
    while (weft_now() < t)
        weft__relax();
}

/* Cancel and re-arm meet delivery in the middle. "Won" is never observed, "too late"
 * exactly once, and a waiting cancel returns after the callback. */
static void cancel_agrees_with_delivery(void **state)
{
    (void)state;
    struct reactor r;
    struct shot s;
    uint64_t rng = weft__sys_seed();
    int won = 0, late = 0;
    print_message("seed %llu\n", (unsigned long long)rng);
    reactor_start(&r, 1000);
    for (int i = 0; i < 20000 / SLOWER; i++) {
        memset(&s, 0, sizeof s);
        s.linger = (uint32_t)(weft__rand(&rng) % 200);
        MUST(weft_timer_init(&s.timer, r.context, shot_fired, &s, 0) == 0);
        s.deadline = weft_now() + 5000 + (weft_time)(weft__rand(&rng) % 20000);
        MUST(weft_timer_arm(&s.timer, s.deadline) == 0);
        spin_until(s.deadline - 15000 + (weft_time)(weft__rand(&rng) % 60000));
        if (i % 4 == 3) { /* move it: the old deadline is not delivered, or was on its way */
            weft_time second = weft_now() + 10000;
            int moved = weft_timer_arm(&s.timer, second);
            MUST(moved == 0 || moved == 1);
            int taken = weft_timer_cancel_wait(&s.timer, WEFT_NEVER);
            MUST(!atom_load_acq(&s.inside));
            MUST(atom_load_acq(&s.fired) == (uint32_t)(!moved + !taken));
            continue;
        }
        int answer =
            i % 4 ? weft_timer_cancel_wait(&s.timer, WEFT_NEVER) : weft_timer_cancel(&s.timer);
        MUST(answer == 0 || answer == 1);
        won += answer;
        late += !answer;
        if (i % 4 == 0)
            MUST(weft_timer_cancel_wait(&s.timer, weft_after(20 * WEFT_SEC)) == 0);
        MUST(!atom_load_acq(&s.inside));
        MUST(atom_load_acq(&s.fired) == (uint32_t)!answer);
        memset(&s, 0xff, sizeof s); /* its memory is ours again */
    }
    print_message("won %d, late %d\n", won, late);
    reactor_end(&r);
}

/* The waiting cancel waits for its own callback only: another one of the same turn that
 * needs what the canceller holds does not lock both up. */
struct pair {
    struct shot first;
    weft_timer second;
    pthread_mutex_t held;
    weft__a32 second_ran;
};

static void needs_the_mutex(weft_timer *t, void *arg, int result)
{
    struct pair *p = arg;
    (void)t;
    (void)result;
    pthread_mutex_lock(&p->held);
    atom_store_rel(&p->second_ran, 1u);
    pthread_mutex_unlock(&p->held);
}

static void cancel_waits_for_its_own_callback_only(void **state)
{
    (void)state;
    struct reactor r;
    struct pair p;
    reactor_start(&r, 1000);
    for (int i = 0; i < 200 / SLOWER + 20; i++) {
        memset(&p, 0, sizeof p);
        pthread_mutex_init(&p.held, NULL);
        p.first.linger = 2000;
        weft_timer_init(&p.first.timer, r.context, shot_fired, &p.first, 0);
        weft_timer_init(&p.second, r.context, needs_the_mutex, &p, 0);
        pthread_mutex_lock(&p.held);
        p.first.deadline = weft_now() + 200000;
        weft_timer_arm(&p.first.timer, p.first.deadline);
        weft_timer_arm(&p.second, p.first.deadline);
        while (!atom_load_acq(&p.first.inside) && !atom_load_acq(&p.first.fired))
            weft__relax();
        MUST(weft_timer_cancel_wait(&p.first.timer, weft_after(20 * WEFT_SEC)) == 0);
        MUST(atom_load_acq(&p.first.fired) == 1);
        pthread_mutex_unlock(&p.held);
        MUST(weft_timer_cancel_wait(&p.second, weft_after(20 * WEFT_SEC)) ==
             !atom_load_acq(&p.second_ran));
        pthread_mutex_destroy(&p.held);
    }
    reactor_end(&r);
}

/* Each wake in turn: the reactor is asleep without limit, or until later, when a nearer
 * timer comes. If a wake were lost, the wait would end by its limit. */
static void no_wake_is_lost(void **state)
{
    (void)state;
    struct reactor r;
    weft_timer far, near;
    uint64_t rng = 5;
    reactor_start(&r, 1000);
    weft_timer_init(&far, r.context, NULL, NULL, 0);
    weft_timer_init(&near, r.context, NULL, NULL, 0);
    for (int i = 0; i < 5000 / SLOWER; i++) {
        if (i % 100 == 0)
            weft_timer_arm(&far, weft_now() + 1000 * WEFT_SEC);
        weft_time deadline = weft_now() + (weft_time)(weft__rand(&rng) % 30000);
        MUST(weft_timer_arm(&near, deadline) >= 0);
        MUST(weft_timer_wait(&near, weft_after(30 * WEFT_SEC)) == 0);
        MUST(weft_now() >= deadline);
        if (i % 100 == 50)
            weft_timer_cancel(&far);
    }
    weft_timer_cancel(&far);
    reactor_end(&r);
}

static void *sleeper(void *arg)
{
    struct reactor *r = arg;
    static const weft_time delays[] = {0, 1, 1000, 50000, -1};
    for (int i = 0; i < 2000 / SLOWER; i++) {
        weft_time until = weft_timer_context_now(r->context) + delays[i % 5];
        MUST(weft_timer_sleep(r->context, until) == 0);
        MUST(weft_now() >= until);
    }
    return NULL;
}

static void short_sleeps_from_many_threads_all_return(void **state)
{
    (void)state;
    struct reactor r;
    pthread_t t[8];
    reactor_start(&r, 4096);
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, sleeper, &r);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(weft_timer_service_pending(r.service), 0);
    reactor_end(&r);
}

/* A task that is polled from a thread of its own, with ever changing wakers. */
static void wake_flag(void *arg)
{
    weft__a32 *flag = arg;
    atom_store_rel(flag, 1u);
    weft__sys_futex_wake(flag, 1);
}

static void a_changed_waker_still_hears_the_expiry(void **state)
{
    (void)state;
    struct reactor r;
    weft__a32 flags[4];
    weft_timer t;
    uint64_t rng = 11;
    reactor_start(&r, 1000);
    weft_timer_init(&t, r.context, NULL, NULL, 0);
    for (int i = 0; i < 10000 / SLOWER; i++) {
        weft_waker w = {wake_flag, NULL};
        int which = 0, answer;
        for (int k = 0; k < 4; k++)
            atom_store_rlx(&flags[k], 0u);
        MUST(weft_timer_arm(&t, weft_now() + (weft_time)(weft__rand(&rng) % 20000)) == 0);
        weft_time replace_until = weft_now() + (weft_time)(weft__rand(&rng) % 25000);
        do {
            which = (which + 1) % 4;
            w.arg = &flags[which];
            answer = weft_timer_poll(&t, &w);
        } while (answer == -EAGAIN && weft_now() < replace_until);
        if (answer == -EAGAIN) {
            weft_time limit = weft_after(30 * WEFT_SEC);
            while (!atom_load_acq(&flags[which]))
                MUST(weft__sys_futex_wait(&flags[which], 0, limit) == 0);
            answer = weft_timer_poll(&t, NULL);
        }
        MUST(answer == 0);
        MUST(weft_timer_cancel_wait(&t, WEFT_NEVER) == 0); /* until no waker is running */
    }
    reactor_end(&r);
}

/* Ten thousand are put off and brought forward again: each fires once, when it was last
 * told to, and the reactor did not run for the old deadlines. */
static void moved_timers_fire_once_at_the_last_deadline(void **state)
{
    (void)state;
    enum { N = 10000 };
    struct reactor r;
    struct shot *s = calloc(N, sizeof *s);
    reactor_start(&r, MS);
    weft_time start = weft_now();
    for (int i = 0; i < N; i++) {
        weft_timer_init(&s[i].timer, r.context, shot_fired, &s[i], 0);
        s[i].deadline = start + 1200 * MS;
        MUST(weft_timer_arm(&s[i].timer, start + 1000 * MS) == 0);
    }
    for (int i = 0; i < N; i++)
        MUST(weft_timer_arm(&s[i].timer, start + 5000 * MS) == 1);
    for (int i = 0; i < N; i++)
        MUST(weft_timer_arm(&s[i].timer, s[i].deadline) == 1);
    MUST(weft_now() < start + 1000 * MS); /* else the machine is too slow for this */
    uint32_t turns = atom_load_rlx(&r.turns);
    while (weft_timer_service_pending(r.service) > 0) {
        struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
    }
    assert_true(atom_load_rlx(&r.turns) - turns <= 20);
    reactor_join(&r); /* the last callbacks have returned */
    for (int i = 0; i < N; i++)
        assert_int_equal(atom_load_acq(&s[i].fired), 1);
    weft_timer_service_destroy(r.service);
    free(s);
}

/* One shard, so one lock, for more threads than processors, and a reactor that turns all the
 * time: nobody is left asleep at the lock, and the counts add up. */
static void *crowd(void *arg)
{
    struct reactor *r = arg;
    struct shot s[16];
    uint64_t rng = (uint64_t)(uintptr_t)&s | 1;
    memset(s, 0, sizeof s); /* deadline 0: an earlier one may be on its way at any time */
    for (int i = 0; i < 16; i++)
        MUST(weft_timer_init(&s[i].timer, r->context, shot_fired, &s[i], 0) == 0);
    for (int i = 0; i < 50000 / SLOWER; i++) {
        struct shot *one = &s[weft__rand(&rng) % 16];
        uint32_t before = atom_load_acq(&one->fired);
        MUST(weft_timer_arm(&one->timer, weft_now() + (weft_time)(weft__rand(&rng) % 100000)) >= 0);
        if (weft__rand(&rng) % 4) {
            int won = weft_timer_cancel_wait(&one->timer, WEFT_NEVER);
            MUST(won == 0 || won == 1);
            MUST(won || atom_load_acq(&one->fired) > before);
        }
    }
    for (int i = 0; i < 16; i++)
        weft_timer_cancel_wait(&s[i].timer, WEFT_NEVER);
    return NULL;
}

static void many_threads_meet_in_one_lock(void **state)
{
    (void)state;
    struct reactor r;
    pthread_t t[6];
    reactor_start_shards(&r, 1000, 1);
    for (int i = 0; i < 6; i++)
        pthread_create(&t[i], NULL, crowd, &r);
    for (int i = 0; i < 6; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(weft_timer_service_pending(r.service), 0);
    reactor_end(&r);
}

/* -- closing against everybody ---------------------------------------------------------- */

static void *wait_for_close(void *arg)
{
    struct reactor *r = arg;
    for (;;) {
        int answer = weft_timer_sleep(r->context, weft_now() + (weft_time)20000);
        if (answer == -ESHUTDOWN)
            break;
        MUST(answer == 0);
    }
    MUST(weft_timer_sleep(r->context, weft_now() + WEFT_SEC) == -ESHUTDOWN);
    weft_timer_context_unref(r->context);
    return NULL;
}

static void *wait_for_ever(void *arg)
{
    struct reactor *r = arg;
    MUST(weft_timer_sleep(r->context, WEFT_NEVER) == -ESHUTDOWN);
    weft_timer_context_unref(r->context);
    return NULL;
}

static void closing_releases_every_thread(void **state)
{
    (void)state;
    for (int round = 0; round < 50 / SLOWER + 5; round++) {
        struct reactor r;
        pthread_t t[6];
        reactor_start(&r, 1000);
        for (int i = 0; i < 6; i++) {
            weft_timer_context_ref(r.context);
            pthread_create(&t[i], NULL, i % 2 ? wait_for_close : wait_for_ever, &r);
        }
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        reactor_end(&r);
        for (int i = 0; i < 6; i++)
            pthread_join(t[i], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_agrees_with_delivery),
        cmocka_unit_test(cancel_waits_for_its_own_callback_only),
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(short_sleeps_from_many_threads_all_return),
        cmocka_unit_test(a_changed_waker_still_hears_the_expiry),
        cmocka_unit_test(moved_timers_fire_once_at_the_last_deadline),
        cmocka_unit_test(many_threads_meet_in_one_lock),
        cmocka_unit_test(closing_releases_every_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The mutex between plain threads: exclusion, errors, deadlines, cancellation that
 * races the wake (a wake is never lost), hand-over to the one who starves. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/sys.h"
#include "wait/wait.h"
#include "weft/mutex.h"

enum { THREADS = 4, ROUNDS = 20000 };

struct counter {
    weft_mutex m;
    long value; /* protected by m */
    weft__a32 timeouts;
    uint64_t seed;
};

static void *count_up(void *arg)
{
    struct counter *c = arg;
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(weft_mutex_lock(&c->m, WEFT_NEVER), 0);
        c->value++;
        assert_int_equal(weft_mutex_unlock(&c->m), 0);
    }
    return NULL;
}

static void excludes(void **state)
{
    (void)state;
    struct counter c = {.m = WEFT_MUTEX_INIT};
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, count_up, &c), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(c.value, (long)THREADS * ROUNDS);
    assert_int_equal(weft_mutex_fini(&c.m), 0);
}

/* Short deadlines under contention: at the end nothing is left behind. */
static void *count_with_deadlines(void *arg)
{
    struct counter *c = arg;
    uint64_t rng = c->seed ^ (uint64_t)(uintptr_t)&rng;
    for (int i = 0; i < ROUNDS / 4;) {
        int r = weft_mutex_lock(&c->m, weft_now() + (weft_time)(weft__rand(&rng) % 20000));
        if (r == -ETIMEDOUT) {
            atom_add_rlx(&c->timeouts, 1u);
            continue;
        }
        assert_int_equal(r, 0);
        c->value++;
        if (weft__rand(&rng) % 16 == 0)
            usleep(20);
        assert_int_equal(weft_mutex_unlock(&c->m), 0);
        i++;
    }
    return NULL;
}

static void deadlines_lose_no_wake(void **state)
{
    (void)state;
    struct counter c = {.m = WEFT_MUTEX_INIT, .seed = weft__sys_seed()};
    print_message("seed %llu\n", (unsigned long long)c.seed);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, count_with_deadlines, &c), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(c.value, (long)THREADS * (ROUNDS / 4));
    assert_int_equal(weft_mutex_fini(&c.m), 0);
}

static void errors(void **state)
{
    (void)state;
    weft_mutex m = WEFT_MUTEX_INIT;
    assert_int_equal(weft_mutex_unlock(&m), -EPERM);
    assert_int_equal(weft_mutex_lock(NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_mutex_unlock(NULL), -EINVAL);
    assert_int_equal(weft_mutex_init(NULL), -EINVAL);
    assert_int_equal(weft_mutex_fini(NULL), -EINVAL);
    assert_int_equal(weft_mutex_create(NULL), -EINVAL);
    assert_int_equal(weft_mutex_destroy(NULL), 0);
    assert_false(weft_mutex_locked(NULL));

    weft_time past = weft_now() - 1;
    assert_int_equal(weft_mutex_lock(&m, past), 0); /* free: the deadline does not matter */
    assert_true(weft_mutex_locked(&m));
    assert_int_equal(weft_mutex_fini(&m), -EBUSY);
    assert_int_equal(weft_mutex_lock(&m, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_mutex_lock(&m, past), -ETIMEDOUT);
    assert_int_equal(weft_mutex_lock(&m, weft_after(5 * WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_mutex_unlock(&m), 0);
    assert_int_equal(weft_mutex_lock(&m, WEFT_TRY), 0);
    assert_int_equal(weft_mutex_unlock(&m), 0);
    assert_int_equal(weft_mutex_fini(&m), 0);

    weft_mutex *made = NULL;
    assert_int_equal(weft_mutex_create(&made), 0);
    assert_int_equal(weft_mutex_lock(made, WEFT_NEVER), 0);
    assert_int_equal(weft_mutex_destroy(made), -EBUSY);
    assert_int_equal(weft_mutex_unlock(made), 0);
    assert_int_equal(weft_mutex_destroy(made), 0);
}

/* Two wait; one is cancelled at the moment the mutex is unlocked: the other must get
 * it, whoever of the two was woken. */
struct pair {
    weft_mutex m;
    weft__a32 start, ready, done, got;
    weft__aptr victim;
};

static int wait_round(struct pair *p, uint32_t round)
{
    while (atom_load_acq(&p->start) < round)
        sched_yield();
    atom_add_ar(&p->ready, 1u);
    int r = weft_mutex_lock(&p->m, WEFT_NEVER);
    if (r == 0) {
        atom_add_ar(&p->got, 1u);
        assert_int_equal(weft_mutex_unlock(&p->m), 0);
    }
    return r;
}

enum { CANCEL_ROUNDS = 2000 };

static void *victim(void *arg)
{
    struct pair *p = arg;
    atom_store_rel(&p->victim, weft__self());
    for (uint32_t round = 1; round <= CANCEL_ROUNDS; round++) {
        int r = wait_round(p, round);
        assert_true(r == 0 || r == -ECANCELED);
        while (!atom_load_acq(&weft__self()->cancel)) /* the kick of this round */
            sched_yield();
        atom_store_rel(&weft__self()->cancel, 0u); /* a test's licence: a new task */
        atom_add_ar(&p->done, 1u);
    }
    return NULL;
}

static void *other(void *arg)
{
    struct pair *p = arg;
    for (uint32_t round = 1; round <= CANCEL_ROUNDS; round++) {
        assert_int_equal(wait_round(p, round), 0);
        atom_add_ar(&p->done, 1u);
    }
    return NULL;
}

static void cancelled_waiter_keeps_no_wake(void **state)
{
    (void)state;
    struct pair p = {.m = WEFT_MUTEX_INIT};
    pthread_t t[2];
    uint64_t rng = 7;
    pthread_create(&t[0], NULL, victim, &p);
    pthread_create(&t[1], NULL, other, &p);
    while (!atom_load_acq(&p.victim))
        sched_yield();
    for (uint32_t round = 1; round <= CANCEL_ROUNDS; round++) {
        assert_int_equal(weft_mutex_lock(&p.m, WEFT_NEVER), 0);
        atom_store_rel(&p.start, round);
        while (atom_load_acq(&p.ready) < 2 * round)
            sched_yield();
        for (uint64_t spin = weft__rand(&rng) % 3000; spin; spin--)
            weft__relax();
        if (round % 2) {
            weft_mutex_unlock(&p.m);
            weft__cancel(atom_load_acq(&p.victim));
        } else {
            weft__cancel(atom_load_acq(&p.victim));
            weft_mutex_unlock(&p.m);
        }
        while (atom_load_acq(&p.done) < 2 * round)
            sched_yield();
    }
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    assert_true(atom_load_acq(&p.got) >= CANCEL_ROUNDS);
    assert_int_equal(weft_mutex_fini(&p.m), 0);
}

/* A waiter that was woken and found the mutex taken again, after it has waited for
 * more than a millisecond, is handed the mutex by the next unlock: nobody else can
 * take it in between. */
struct starved {
    weft_mutex m;
    weft__aptr parker;
    weft__a32 may_end; /* the waiter holds the mutex until then */
};

static void *wait_long(void *arg)
{
    struct starved *s = arg;
    atom_store_rel(&s->parker, weft__self());
    assert_int_equal(weft_mutex_lock(&s->m, WEFT_NEVER), 0);
    while (!atom_load_acq(&s->may_end))
        sched_yield();
    assert_int_equal(weft_mutex_unlock(&s->m), 0);
    return NULL;
}

static bool parked(weft__aptr *parker)
{
    weft__parker *p = atom_load_acq(parker);
    return p && (atom_load_acq(&p->word) & (WEFT__WAIT_PHASE | WEFT__WAIT_PARKED)) ==
                    (WEFT__WAIT_WAITING | WEFT__WAIT_PARKED);
}

static void starving_waiter_is_served(void **state)
{
    (void)state;
    for (int handed = 0, tries = 0; handed < 5; tries++) {
        struct starved s = {.m = WEFT_MUTEX_INIT};
        pthread_t t;
        assert_int_equal(weft_mutex_lock(&s.m, WEFT_NEVER), 0);
        pthread_create(&t, NULL, wait_long, &s);
        while (!parked(&s.parker))
            sched_yield();
        weft__sleep(weft_after(3 * WEFT_MSEC));
        assert_int_equal(weft_mutex_unlock(&s.m), 0); /* wakes it */
        if (weft_mutex_lock(&s.m, WEFT_TRY) == 0) {   /* and barges, most of the time */
            while (!parked(&s.parker))
                sched_yield();
            assert_int_equal(weft_mutex_unlock(&s.m), 0);
            assert_int_equal(weft_mutex_lock(&s.m, WEFT_TRY), -EAGAIN);
            handed++;
        }
        atom_store_rel(&s.may_end, 1u);
        pthread_join(t, NULL);
        assert_true(tries < 1000);
    }
}

/* The last user frees the object that holds the mutex, right after its unlock. */
struct shared {
    weft_mutex m;
    int refs; /* protected by m */
};

static void *drop_one(void *arg)
{
    struct shared *s = arg;
    assert_int_equal(weft_mutex_lock(&s->m, WEFT_NEVER), 0);
    int left = --s->refs;
    assert_int_equal(weft_mutex_unlock(&s->m), 0);
    if (left == 0)
        free(s);
    return NULL;
}

static void last_holder_may_free(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++) {
        struct shared *s = calloc(1, sizeof *s);
        assert_non_null(s);
        pthread_t t[2];
        s->refs = 3;
        pthread_create(&t[0], NULL, drop_one, s);
        pthread_create(&t[1], NULL, drop_one, s);
        drop_one(s);
        pthread_join(t[0], NULL);
        pthread_join(t[1], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors),
        cmocka_unit_test(excludes),
        cmocka_unit_test(deadlines_lose_no_wake),
        cmocka_unit_test(cancelled_waiter_keeps_no_wake),
        cmocka_unit_test(starving_waiter_is_served),
        cmocka_unit_test(last_holder_may_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

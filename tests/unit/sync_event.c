/* Event and wait group between plain threads: level semantics, errors, many waiters,
 * objects on the waiter's stack, cancellation that races the set. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>

#include "base/sys.h"
#include "wait/wait.h"
#include "weft/event.h"
#include "weft/waitgroup.h"

static void event_errors(void **state)
{
    (void)state;
    weft_event e = WEFT_EVENT_INIT;
    assert_int_equal(weft_event_set(NULL), -EINVAL);
    assert_int_equal(weft_event_reset(NULL), -EINVAL);
    assert_int_equal(weft_event_wait(NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_event_init(NULL), -EINVAL);
    assert_int_equal(weft_event_create(NULL), -EINVAL);
    assert_int_equal(weft_event_destroy(NULL), 0);
    assert_false(weft_event_is_set(NULL));

    assert_int_equal(weft_event_wait(&e, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_event_wait(&e, 0), -ETIMEDOUT);
    assert_int_equal(weft_event_wait(&e, weft_after(2 * WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_event_wait(&e, weft_after(2 * WEFT_MSEC)), -ETIMEDOUT); /* again */
    assert_int_equal(weft_event_set(&e), 0);
    assert_int_equal(weft_event_set(&e), 0);
    assert_true(weft_event_is_set(&e));
    assert_int_equal(weft_event_wait(&e, 0), 0); /* ready wins over a passed deadline */
    assert_int_equal(weft_event_wait(&e, WEFT_TRY), 0);
    assert_int_equal(weft_event_reset(&e), 0);
    assert_int_equal(weft_event_wait(&e, WEFT_TRY), -EAGAIN);

    weft_event *made = NULL;
    assert_int_equal(weft_event_create(&made), 0);
    assert_int_equal(weft_event_destroy(made), 0);
}

/* Each round the waiter's event is on its stack and gone when its wait returns. */
enum { ROUNDS = 20000 };
static weft__aptr mailbox; /* a test's global: the event to set */

static void *setter(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        weft_event *e;
        while (!(e = atom_xchg_ar(&mailbox, NULL)))
            weft__relax();
        assert_int_equal(weft_event_set(e), 0);
    }
    return NULL;
}

static WEFT__NOINLINE void one_round(int i)
{
    weft_event e = WEFT_EVENT_INIT;
    atom_store_rel(&mailbox, &e);
    if (i % 2) {
        assert_int_equal(weft_event_wait(&e, WEFT_NEVER), 0);
    } else {
        /* Deadlines that meet the set: wait again, as often as it takes. */
        int r;
        while ((r = weft_event_wait(&e, weft_now() + 300)) != 0)
            assert_int_equal(r, -ETIMEDOUT);
    }
    memset(&e, 0xa5, sizeof e);
}

static void event_on_the_waiters_stack(void **state)
{
    (void)state;
    pthread_t t;
    pthread_create(&t, NULL, setter, NULL);
    for (int i = 0; i < ROUNDS; i++)
        one_round(i);
    pthread_join(t, NULL);
}

/* More waiters than one batch, some with deadlines that pass during the set. */
enum { MANY = 200 };

struct crowd {
    weft_event e;
    weft_waitgroup all;
    weft__a32 passed, timedout;
};

static void *one_of_many(void *arg)
{
    struct crowd *c = arg;
    bool hasty = (uintptr_t)&arg / 4096 % 2;
    int r = weft_event_wait(&c->e, hasty ? weft_after(3 * WEFT_MSEC) : WEFT_NEVER);
    assert_true(r == 0 || (hasty && r == -ETIMEDOUT));
    atom_add_rlx(r ? &c->timedout : &c->passed, 1u);
    assert_int_equal(weft_waitgroup_done(&c->all), 0);
    return NULL;
}

static void event_wakes_all(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct crowd c = {.e = WEFT_EVENT_INIT, .all = WEFT_WAITGROUP_INIT};
        static pthread_t t[MANY];
        assert_int_equal(weft_waitgroup_add(&c.all, MANY), 0);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(pthread_create(&t[i], NULL, one_of_many, &c), 0);
        weft__sleep(weft_after(3 * WEFT_MSEC));
        weft_event_set(&c.e);
        weft_event_reset(&c.e); /* who waited at the set passes all the same */
        weft__sleep(weft_after(5 * WEFT_MSEC));
        weft_event_set(&c.e); /* for those who came late */
        assert_int_equal(weft_waitgroup_wait(&c.all, WEFT_NEVER), 0);
        for (int i = 0; i < MANY; i++)
            pthread_join(t[i], NULL);
        assert_int_equal(atom_load_rlx(&c.passed) + atom_load_rlx(&c.timedout), MANY);
    }
}

static void waitgroup_errors(void **state)
{
    (void)state;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    assert_int_equal(weft_waitgroup_wait(&wg, WEFT_TRY), 0); /* empty */
    assert_int_equal(weft_waitgroup_done(&wg), -EINVAL);     /* below zero */
    assert_int_equal(weft_waitgroup_count(&wg), 0);
    assert_int_equal(weft_waitgroup_add(&wg, WEFT_WAITGROUP_MAX), 0);
    assert_int_equal(weft_waitgroup_add(&wg, 1), -EINVAL);
    assert_int_equal(weft_waitgroup_count(&wg), WEFT_WAITGROUP_MAX);
    assert_int_equal(weft_waitgroup_add(&wg, 2 - WEFT_WAITGROUP_MAX), 0);
    assert_int_equal(weft_waitgroup_wait(&wg, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_waitgroup_wait(&wg, 0), -ETIMEDOUT);
    assert_int_equal(weft_waitgroup_wait(&wg, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_waitgroup_add(&wg, -3), -EINVAL);
    assert_int_equal(weft_waitgroup_add(&wg, -2), 0);
    assert_int_equal(weft_waitgroup_wait(&wg, 0), 0);
    assert_int_equal(weft_waitgroup_add(NULL, 1), -EINVAL);
    assert_int_equal(weft_waitgroup_wait(NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_waitgroup_init(NULL), -EINVAL);
    assert_int_equal(weft_waitgroup_create(NULL), -EINVAL);
    assert_int_equal(weft_waitgroup_destroy(NULL), 0);

    weft_waitgroup *made = NULL;
    assert_int_equal(weft_waitgroup_create(&made), 0);
    assert_int_equal(weft_waitgroup_add(made, 1), 0);
    assert_int_equal(weft_waitgroup_destroy(made), -EBUSY);
    assert_int_equal(weft_waitgroup_done(made), 0);
    assert_int_equal(weft_waitgroup_destroy(made), 0);
}

/* Groups on the waiter's stack, finished by another thread. */
static void *finisher(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        weft_waitgroup *wg;
        while (!(wg = atom_xchg_ar(&mailbox, NULL)))
            weft__relax();
        assert_int_equal(weft_waitgroup_add(wg, 1), 0);
        assert_int_equal(weft_waitgroup_done(wg), 0);
        assert_int_equal(weft_waitgroup_done(wg), 0);
    }
    return NULL;
}

static WEFT__NOINLINE void one_group(int i)
{
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, 1);
    atom_store_rel(&mailbox, &wg);
    int r;
    while ((r = weft_waitgroup_wait(&wg, i % 2 ? WEFT_NEVER : weft_now() + 300)) != 0)
        assert_int_equal(r, -ETIMEDOUT);
    memset(&wg, 0xa5, sizeof wg);
}

static void waitgroup_on_the_waiters_stack(void **state)
{
    (void)state;
    pthread_t t;
    pthread_create(&t, NULL, finisher, NULL);
    for (int i = 0; i < ROUNDS; i++)
        one_group(i);
    pthread_join(t, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_errors),
        cmocka_unit_test(event_on_the_waiters_stack),
        cmocka_unit_test(event_wakes_all),
        cmocka_unit_test(waitgroup_errors),
        cmocka_unit_test(waitgroup_on_the_waiters_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

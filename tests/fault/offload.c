/* SPDX-License-Identifier: MIT
 *
 * The offload pool when threads cannot be started: the first one, a later one, any of
 * them while many submit. Each call has an answer, each argument comes back once, and
 * the pool works again when the trouble is over. The host's loop without descriptors.
 */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "preload/preload.h"
#include "weft/blocking.h"
#include "weft/descriptor.h"
#include "weft/host.h"

struct ticket {
    weft__a32 ran, dropped;
    unsigned us;
};

static int work(void *arg)
{
    struct ticket *t = arg;
    usleep(t->us);
    atom_add_ar(&t->ran, 1u);
    return 0;
}

static void drop(void *arg)
{
    atom_add_ar(&((struct ticket *)arg)->dropped, 1u);
}

static weft_blocking_pool *pool_of(unsigned threads)
{
    weft_blocking_pool *pool;
    weft_blocking_options o = {.threads = threads};
    test_limit(60, "offload");
    assert_int_equal(weft_blocking_pool_new(&o, &pool), 0);
    return pool;
}

static void no_thread_at_all(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_PTHREAD_CREATE))
        skip();
    weft_blocking_pool *pool = pool_of(2);
    struct ticket t = {.us = 0};
    preload_set(PRELOAD_PTHREAD_CREATE,
                &(struct preload_rule){.action = PRELOAD_FAIL, .error = EAGAIN, .every = 1});
    assert_int_equal(weft_blocking(pool, work, &t, NULL, WEFT_NEVER, NULL), -EAGAIN);
    assert_int_equal(weft_blocking(pool, work, &t, drop, WEFT_NEVER, NULL), -EAGAIN);
    assert_int_equal(atom_load_acq(&t.dropped), 1);
    assert_int_equal(weft_blocking_post(pool, work, &t, drop, WEFT_TRY), 0); /* then dropped */
    assert_int_equal(atom_load_acq(&t.dropped), 2);
    weft_blocking_stats s;
    assert_int_equal(weft_blocking_pool_get_stats(pool, &s), 0);
    assert_true(s.threads == 0 && s.queued == 0 && s.running == 0);
    assert_int_equal(s.rejected, 3);
    preload_reset();
    assert_int_equal(weft_blocking(pool, work, &t, NULL, WEFT_NEVER, NULL), 0);
    weft_blocking_pool_free(pool);
    assert_int_equal(atom_load_acq(&t.ran), 1);
}

static void the_threads_that_are_there_do(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_PTHREAD_CREATE))
        skip();
    weft_blocking_pool *pool = pool_of(4);
    struct ticket t = {.us = 2000};
    preload_set(
        PRELOAD_PTHREAD_CREATE,
        &(struct preload_rule){.action = PRELOAD_FAIL, .error = EAGAIN, .first = 2, .every = 1});
    for (int i = 0; i < 10; i++)
        assert_int_equal(weft_blocking_post(pool, work, &t, drop, WEFT_TRY), 0);
    assert_int_equal(weft_blocking(pool, work, &t, NULL, WEFT_NEVER, NULL), 0);
    weft_blocking_stats s;
    assert_int_equal(weft_blocking_pool_get_stats(pool, &s), 0);
    assert_int_equal(s.threads, 1);
    preload_reset();
    weft_blocking_pool_free(pool);
    assert_int_equal(atom_load_acq(&t.ran), 11);
    assert_int_equal(atom_load_acq(&t.dropped), 10);
}

enum { SUBMITTERS = 4, EACH = 300 };

struct submitter {
    weft_blocking_pool *pool;
    struct ticket *ticket;
    weft__a32 *done;
};

static void *submit(void *arg)
{
    struct submitter *s = arg;
    for (int i = 0; i < EACH; i++) {
        int r = weft_blocking(s->pool, work, s->ticket, drop, WEFT_NEVER, NULL);
        assert_true(r == 0 || r == -EAGAIN);
        atom_add_rlx(s->done, r == 0);
        if (i % 16 == 0)
            usleep(2000); /* threads leave meanwhile, so that there are starts */
    }
    return NULL;
}

/* Two starts that fail at the same time must leave nobody's job behind. */
static void half_of_the_starts_fail(void **state)
{
    (void)state;
    if (!preload_sees(PRELOAD_PTHREAD_CREATE))
        skip();
    weft_blocking_pool *pool;
    weft_blocking_options o = {.threads = 3, .idle_timeout = 200 * WEFT_USEC};
    struct ticket t = {.us = 0};
    weft__a32 done = {0};
    pthread_t thread[SUBMITTERS];
    test_limit(60, "offload");
    assert_int_equal(weft_blocking_pool_new(&o, &pool), 0);
    struct submitter s = {pool, &t, &done};
    for (int i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, submit, &s), 0);
    preload_set(PRELOAD_PTHREAD_CREATE,
                &(struct preload_rule){.action = PRELOAD_FAIL, .error = EAGAIN, .every = 2});
    for (int i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    preload_reset();
    weft_blocking_pool_free(pool);
    assert_int_equal(atom_load_acq(&t.ran), atom_load_rlx(&done));
    assert_int_equal(atom_load_acq(&t.ran) + atom_load_acq(&t.dropped), SUBMITTERS * EACH);
}

static void without_descriptors(void **state)
{
    (void)state;
    weft_runtime *rt;
    weft_host *host = NULL;
    weft_descriptor *d;
    weft_event event = WEFT_EVENT_INIT;
    assert_int_equal(weft_driven_new(NULL, &rt), 0);
    assert_int_equal(weft_descriptor_event(NULL, &event, NULL, &d), 0);
    for (int n = 1; n <= 2; n++) { /* the runtime's, then the host's */
        preload_set(PRELOAD_EVENTFD,
                    &(struct preload_rule){
                        .action = PRELOAD_FAIL, .error = EMFILE, .first = 1, .every = 1});
        int r = weft_host_new(rt, NULL, &host);
        preload_reset();
        assert_int_equal(r, -EMFILE);
        assert_null(host);
        if (n == 1)
            assert_true(weft_driven_fd(rt) >= 0);
    }
    preload_set(PRELOAD_EVENTFD,
                &(struct preload_rule){.action = PRELOAD_FAIL, .error = ENFILE, .every = 1});
    assert_int_equal(weft_descriptor_fd(d), -ENFILE);
    preload_reset();
    assert_int_equal(weft_descriptor_check(d), 0); /* the waker alone goes on */
    weft_event_set(&event);
    assert_int_equal(weft_descriptor_check(d), 1);
    assert_true(weft_descriptor_fd(d) >= 0);
    weft_descriptor_free(d);
    assert_int_equal(weft_host_new(rt, NULL, &host), 0);
    weft_host_free(host);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_at_all),
        cmocka_unit_test(the_threads_that_are_there_do),
        cmocka_unit_test(half_of_the_starts_fail),
        cmocka_unit_test(without_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

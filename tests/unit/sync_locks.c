/* Semaphore, read-write lock, condition, once, barrier and value between plain
 * threads: errors, fairness, and wakes that are not lost on one who leaves. */
#include "unit_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/sys.h"
#include "wait/wait.h"
#include "weft/weft.h"

static void wait_until(const weft__a32 *word, uint32_t value)
{
    while (atom_load_acq((weft__a32 *)(uintptr_t)word) < value)
        sched_yield();
}

/* ---- Semaphore ---- */

static void semaphore_errors(void **state)
{
    (void)state;
    weft_semaphore s = WEFT_SEMAPHORE_INIT(2), *made = NULL;
    assert_int_equal(weft_semaphore_init(NULL, 1), -EINVAL);
    assert_int_equal(weft_semaphore_init(&s, WEFT_SEMAPHORE_MAX + 1), -EINVAL);
    assert_int_equal(weft_semaphore_acquire(NULL, 1, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_semaphore_acquire(&s, UINT32_MAX, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_semaphore_release(NULL, 1), -EINVAL);
    assert_int_equal(weft_semaphore_available(NULL), 0);

    assert_int_equal(weft_semaphore_acquire(&s, 3, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_semaphore_acquire(&s, 3, 0), -ETIMEDOUT);
    assert_int_equal(weft_semaphore_acquire(&s, 3, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_semaphore_acquire(&s, 0, WEFT_TRY), 0);
    assert_int_equal(weft_semaphore_acquire(&s, 2, 0), 0); /* a passed deadline still takes */
    assert_int_equal(weft_semaphore_available(&s), 0);
    assert_int_equal(weft_semaphore_release(&s, WEFT_SEMAPHORE_MAX), 0);
    assert_int_equal(weft_semaphore_release(&s, 1), -ERANGE);
    assert_int_equal(weft_semaphore_release(&s, UINT32_MAX), -ERANGE);
    assert_int_equal(weft_semaphore_available(&s), WEFT_SEMAPHORE_MAX);
    assert_int_equal(weft_semaphore_acquire(&s, WEFT_SEMAPHORE_MAX, WEFT_TRY), 0);

    assert_int_equal(weft_semaphore_create(1, NULL), -EINVAL);
    assert_int_equal(weft_semaphore_create(UINT32_MAX, &made), -EINVAL);
    assert_int_equal(weft_semaphore_create(5, &made), 0);
    assert_int_equal(weft_semaphore_available(made), 5);
    assert_int_equal(weft_semaphore_destroy(made), 0);
    assert_int_equal(weft_semaphore_destroy(NULL), 0);
}

struct request {
    weft_semaphore *s;
    unsigned n;
    weft__aptr parker;
    weft__a32 asked, ended, may_end; /* its parker lives until may_end */
    int result;
    weft_time deadline;
};

static void *acquirer(void *arg)
{
    struct request *q = arg;
    atom_store_rel(&q->parker, weft__self());
    atom_store_rel(&q->asked, 1u);
    q->result = weft_semaphore_acquire(q->s, q->n, q->deadline);
    atom_store_rel(&q->ended, 1u);
    wait_until(&q->may_end, 1);
    return NULL;
}

/* Parked: its word says WAITING and PARKED. False: its deadline was too near. */
static bool wait_until_parked(struct request *q)
{
    wait_until(&q->asked, 1);
    weft__parker *p = atom_load_acq(&q->parker);
    while ((atom_load_acq(&p->word) & (WEFT__WAIT_PHASE | WEFT__WAIT_PARKED)) !=
           (WEFT__WAIT_WAITING | WEFT__WAIT_PARKED)) {
        if (atom_load_acq(&q->ended))
            return false;
        sched_yield();
    }
    return true;
}

/* One permit; the head wants five, the next one. First come, first served, until the
 * head leaves: then the next must get its permit at once. */
static void leaving_head_lets_others_in(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        weft_semaphore s = WEFT_SEMAPHORE_INIT(1);
        struct request big = {
            .s = &s, .n = 5, .deadline = how ? WEFT_NEVER : weft_after(200 * WEFT_MSEC)};
        struct request small = {.s = &s, .n = 1, .deadline = WEFT_NEVER};
        pthread_t t[2];
        pthread_create(&t[0], NULL, acquirer, &big);
        bool queued = wait_until_parked(&big);
        int r = weft_semaphore_acquire(&s, 1, WEFT_TRY); /* no barging */
        assert_true(r == -EAGAIN || !how);
        pthread_create(&t[1], NULL, acquirer, &small);
        if (r == -EAGAIN && queued)
            wait_until_parked(&small); /* or it is served, when the head has just left */
        else if (r == 0)
            assert_int_equal(weft_semaphore_release(&s, 1), 0); /* the head left too early */
        if (how)
            weft__cancel(atom_load_acq(&big.parker));
        atom_store_rel(&big.may_end, 1u);
        atom_store_rel(&small.may_end, 1u);
        pthread_join(t[0], NULL);
        pthread_join(t[1], NULL);
        assert_int_equal(big.result, how ? -ECANCELED : -ETIMEDOUT);
        assert_int_equal(small.result, 0);
        assert_int_equal(weft_semaphore_available(&s), 0);
    }
}

enum { THREADS = 4, ROUNDS = 5000 };

struct pool {
    weft_semaphore s;
    weft__a32 in_use, most;
    uint64_t seed;
};

static void *user(void *arg)
{
    struct pool *p = arg;
    uint64_t rng = p->seed ^ (uint64_t)(uintptr_t)&rng;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t n = (uint32_t)(weft__rand(&rng) % 3) + 1;
        weft_time d =
            weft__rand(&rng) % 2 ? WEFT_NEVER : weft_now() + (weft_time)(weft__rand(&rng) % 5000);
        int r = weft_semaphore_acquire(&p->s, n, d);
        if (r == -ETIMEDOUT)
            continue;
        assert_int_equal(r, 0);
        assert_true(atom_add_ar(&p->in_use, n) + n <= 4);
        if (weft__rand(&rng) % 64 == 0)
            usleep(10);
        atom_sub_ar(&p->in_use, n);
        assert_int_equal(weft_semaphore_release(&p->s, n), 0);
    }
    return NULL;
}

static void permits_are_conserved(void **state)
{
    (void)state;
    struct pool p = {.s = WEFT_SEMAPHORE_INIT(4), .seed = weft__sys_seed()};
    print_message("seed %llu\n", (unsigned long long)p.seed);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, user, &p);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(weft_semaphore_available(&p.s), 4);
}

/* ---- Read-write lock ---- */

static void rwlock_errors(void **state)
{
    (void)state;
    weft_rwlock rw = WEFT_RWLOCK_INIT;
    assert_int_equal(weft_rwlock_read(NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_rwlock_write(NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_rwlock_read_unlock(NULL), -EINVAL);
    assert_int_equal(weft_rwlock_write_unlock(NULL), -EINVAL);
    assert_int_equal(weft_rwlock_init(NULL), -EINVAL);
    assert_int_equal(weft_rwlock_fini(NULL), -EINVAL);
    assert_int_equal(weft_rwlock_read_unlock(&rw), -EPERM);
    assert_int_equal(weft_rwlock_write_unlock(&rw), -EPERM);

    assert_int_equal(weft_rwlock_read(&rw, WEFT_TRY), 0);
    assert_int_equal(weft_rwlock_read(&rw, 0), 0);
    assert_int_equal(weft_rwlock_fini(&rw), -EBUSY);
    assert_int_equal(weft_rwlock_write_unlock(&rw), -EPERM);
    assert_int_equal(weft_rwlock_write(&rw, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_rwlock_write(&rw, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_rwlock_read(&rw, WEFT_TRY), 0); /* the writer has left */
    for (int i = 0; i < 3; i++)
        assert_int_equal(weft_rwlock_read_unlock(&rw), 0);
    assert_int_equal(weft_rwlock_write(&rw, WEFT_TRY), 0);
    assert_int_equal(weft_rwlock_read_unlock(&rw), -EPERM);
    assert_int_equal(weft_rwlock_read(&rw, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_rwlock_read(&rw, 0), -ETIMEDOUT);
    assert_int_equal(weft_rwlock_write_unlock(&rw), 0);
    assert_int_equal(weft_rwlock_fini(&rw), 0);
}

struct book {
    weft_rwlock rw;
    long a, b; /* equal, under rw */
    weft__a32 readers, most_readers;
    uint64_t seed;
};

static void *reader_or_writer(void *arg)
{
    struct book *k = arg;
    uint64_t rng = k->seed ^ (uint64_t)(uintptr_t)&rng;
    for (int i = 0; i < ROUNDS; i++) {
        bool write = weft__rand(&rng) % 8 == 0;
        weft_time d =
            weft__rand(&rng) % 2 ? WEFT_NEVER : weft_now() + (weft_time)(weft__rand(&rng) % 5000);
        int r = write ? weft_rwlock_write(&k->rw, d) : weft_rwlock_read(&k->rw, d);
        if (r == -ETIMEDOUT)
            continue;
        assert_int_equal(r, 0);
        if (write) {
            assert_int_equal(atom_load_acq(&k->readers), 0);
            k->a++;
            k->b++;
            assert_int_equal(weft_rwlock_write_unlock(&k->rw), 0);
        } else {
            atom_add_ar(&k->readers, 1u);
            assert_int_equal(k->a, k->b);
            atom_sub_ar(&k->readers, 1u);
            assert_int_equal(weft_rwlock_read_unlock(&k->rw), 0);
        }
    }
    return NULL;
}

static void writers_exclude(void **state)
{
    (void)state;
    struct book k = {.rw = WEFT_RWLOCK_INIT, .seed = weft__sys_seed()};
    print_message("seed %llu\n", (unsigned long long)k.seed);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, reader_or_writer, &k);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(weft_rwlock_fini(&k.rw), 0);
}

/* ---- Condition ---- */

static void cond_errors(void **state)
{
    (void)state;
    weft_cond c = WEFT_COND_INIT;
    weft_mutex m = WEFT_MUTEX_INIT;
    assert_int_equal(weft_cond_init(NULL), -EINVAL);
    assert_int_equal(weft_cond_signal(NULL), -EINVAL);
    assert_int_equal(weft_cond_broadcast(NULL), -EINVAL);
    assert_int_equal(weft_cond_wait(NULL, &m, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_cond_wait(&c, NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_cond_wait(&c, &m, WEFT_NEVER), -EPERM);
    assert_int_equal(weft_mutex_lock(&m, WEFT_NEVER), 0);
    assert_int_equal(weft_cond_wait(&c, &m, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_cond_wait(&c, &m, 0), -ETIMEDOUT);
    assert_int_equal(weft_cond_wait(&c, &m, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_cond_wait(&c, &m, weft_after(WEFT_MSEC)), -ETIMEDOUT); /* again */
    assert_true(weft_mutex_locked(&m));
    assert_int_equal(weft_cond_signal(&c), 0);
    assert_int_equal(weft_cond_broadcast(&c), 0);
    assert_int_equal(weft_mutex_unlock(&m), 0);
}

/* A buffer of one item guarded the classic way, with deadlines. */
struct slot {
    weft_mutex m;
    weft_cond filled, emptied;
    int item; /* 0: empty */
    uint64_t sum;
    bool over;
};

enum { ITEMS = 10000, EATERS = 3 };

static void *eater(void *arg)
{
    struct slot *s = arg;
    uint64_t rng = (uint64_t)(uintptr_t)&rng;
    assert_int_equal(weft_mutex_lock(&s->m, WEFT_NEVER), 0);
    for (;;) {
        while (!s->item && !s->over) {
            weft_time d = weft__rand(&rng) % 2 ? WEFT_NEVER
                                               : weft_now() + (weft_time)(weft__rand(&rng) % 20000);
            int r = weft_cond_wait(&s->filled, &s->m, d);
            assert_true(r == 0 || r == -ETIMEDOUT);
            if (r == -ETIMEDOUT)
                continue;
        }
        if (!s->item)
            break;
        s->sum += (uint64_t)s->item;
        s->item = 0;
        weft_cond_signal(&s->emptied);
    }
    assert_int_equal(weft_mutex_unlock(&s->m), 0);
    return NULL;
}

static void signals_are_not_lost(void **state)
{
    (void)state;
    struct slot s = {.m = WEFT_MUTEX_INIT, .filled = WEFT_COND_INIT, .emptied = WEFT_COND_INIT};
    pthread_t t[EATERS];
    for (int i = 0; i < EATERS; i++)
        pthread_create(&t[i], NULL, eater, &s);
    for (int i = 1; i <= ITEMS; i++) {
        assert_int_equal(weft_mutex_lock(&s.m, WEFT_NEVER), 0);
        while (s.item)
            assert_int_equal(weft_cond_wait(&s.emptied, &s.m, WEFT_NEVER), 0);
        s.item = i;
        weft_cond_signal(&s.filled);
        assert_int_equal(weft_mutex_unlock(&s.m), 0);
    }
    assert_int_equal(weft_mutex_lock(&s.m, WEFT_NEVER), 0);
    while (s.item)
        assert_int_equal(weft_cond_wait(&s.emptied, &s.m, WEFT_NEVER), 0);
    s.over = true;
    weft_cond_broadcast(&s.filled);
    assert_int_equal(weft_mutex_unlock(&s.m), 0);
    for (int i = 0; i < EATERS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(s.sum, (uint64_t)ITEMS * (ITEMS + 1) / 2);
}

/* Two wait; one signal, and one of the two is cancelled at that moment: whoever
 * returns 0 had the signal, and when the victim did not, the other has it. */
struct two {
    weft_mutex m;
    weft_cond c;
    weft__a32 waiting, signalled, done, round;
    weft__aptr victim;
};

enum { CANCEL_ROUNDS = 1500 };

static void *cond_waiter(void *arg, bool is_victim)
{
    struct two *w = arg;
    if (is_victim)
        atom_store_rel(&w->victim, weft__self());
    for (uint32_t round = 1; round <= CANCEL_ROUNDS; round++) {
        wait_until(&w->round, round);
        if (is_victim == (round % 2 == 0)) /* in odd rounds the victim is the first */
            wait_until(&w->waiting, 2 * round - 1);
        assert_int_equal(weft_mutex_lock(&w->m, WEFT_NEVER), 0);
        atom_add_ar(&w->waiting, 1u); /* under the mutex: nobody signals before the wait */
        int r = weft_cond_wait(&w->c, &w->m, WEFT_NEVER);
        assert_true(weft_mutex_locked(&w->m));
        assert_int_equal(weft_mutex_unlock(&w->m), 0);
        assert_true(r == 0 || (is_victim && r == -ECANCELED));
        if (r == 0)
            atom_add_ar(&w->signalled, 1u);
        if (is_victim) {
            while (!atom_load_acq(&weft__self()->cancel))
                sched_yield();
            atom_store_rel(&weft__self()->cancel, 0u); /* a test's licence: a new task */
        }
        atom_add_ar(&w->done, 1u);
    }
    return NULL;
}

static void *cond_victim(void *arg)
{
    return cond_waiter(arg, true);
}

static void *cond_other(void *arg)
{
    return cond_waiter(arg, false);
}

static void cancelled_waiter_keeps_no_signal(void **state)
{
    (void)state;
    struct two w = {.m = WEFT_MUTEX_INIT, .c = WEFT_COND_INIT};
    pthread_t t[2];
    uint64_t rng = 11;
    pthread_create(&t[0], NULL, cond_victim, &w);
    pthread_create(&t[1], NULL, cond_other, &w);
    while (!atom_load_acq(&w.victim))
        sched_yield();
    for (uint32_t round = 1; round <= CANCEL_ROUNDS; round++) {
        uint32_t before = atom_load_acq(&w.signalled);
        atom_store_rel(&w.round, round);
        wait_until(&w.waiting, 2 * round);
        assert_int_equal(weft_mutex_lock(&w.m, WEFT_NEVER), 0);
        assert_int_equal(weft_mutex_unlock(&w.m), 0);
        if (weft__rand(&rng) % 2) {
            weft__cancel(atom_load_acq(&w.victim));
            weft_cond_signal(&w.c);
        } else {
            weft_cond_signal(&w.c);
            weft__cancel(atom_load_acq(&w.victim));
        }
        wait_until(&w.signalled, before + 1);        /* the one signal arrived somewhere */
        while (atom_load_acq(&w.done) < 2 * round) { /* let the other go, too */
            weft_cond_signal(&w.c);
            sched_yield();
        }
    }
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
}

/* ---- Once, barrier, value ---- */

static int runs;

static int fail_twice(void *arg)
{
    (void)arg;
    usleep(1000);
    return ++runs < 3 ? -EIO : 7;
}

static void *run_once(void *arg)
{
    int r;
    while ((r = weft_once_do(arg, fail_twice, NULL, WEFT_NEVER)) != 0)
        assert_int_equal(r, -EIO);
    assert_int_equal(runs, 3);
    return NULL;
}

static void once(void **state)
{
    (void)state;
    weft_once o = WEFT_ONCE_INIT;
    pthread_t t[THREADS];
    assert_int_equal(weft_once_do(NULL, fail_twice, NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_once_do(&o, NULL, NULL, WEFT_NEVER), -EINVAL);
    assert_false(weft_once_done(&o));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, run_once, &o);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_true(weft_once_done(&o));
    assert_int_equal(weft_once_do(&o, fail_twice, NULL, WEFT_TRY), 0);
    assert_int_equal(runs, 3);
}

struct meeting {
    weft_barrier b;
    weft__a32 arrived, leaders;
    uint64_t seed;
};

enum { BARRIER_ROUNDS = 1000 };

static void *party(void *arg)
{
    struct meeting *mt = arg;
    uint64_t rng = mt->seed ^ (uint64_t)(uintptr_t)&rng;
    for (uint32_t round = 1; round <= BARRIER_ROUNDS; round++) {
        atom_add_ar(&mt->arrived, 1u);
        int r;
        do { /* deadlines that meet the last arrival */
            r = weft_barrier_wait(&mt->b, weft_now() + (weft_time)(weft__rand(&rng) % 100000));
        } while (r == -ETIMEDOUT);
        assert_true(r == 0 || r == 1);
        atom_add_ar(&mt->leaders, (uint32_t)r);
        assert_true(atom_load_acq(&mt->arrived) >= round * THREADS); /* all were there */
    }
    return NULL;
}

static void barrier(void **state)
{
    (void)state;
    struct meeting mt = {.b = WEFT_BARRIER_INIT(2), .seed = weft__sys_seed()};
    assert_int_equal(weft_barrier_init(NULL, 1), -EINVAL);
    assert_int_equal(weft_barrier_wait(NULL, WEFT_NEVER), -EINVAL);
    assert_int_equal(weft_barrier_wait(&mt.b, WEFT_TRY), -EAGAIN);
    assert_int_equal(weft_barrier_wait(&mt.b, 0), -ETIMEDOUT);
    assert_int_equal(weft_barrier_wait(&mt.b, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_barrier_init(&mt.b, 0), -EINVAL);
    assert_int_equal(weft_barrier_init(&mt.b, 1), 0);
    assert_int_equal(weft_barrier_wait(&mt.b, WEFT_TRY), 1);
    assert_int_equal(weft_barrier_init(&mt.b, THREADS), 0);
    print_message("seed %llu\n", (unsigned long long)mt.seed);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, party, &mt);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atom_load_acq(&mt.leaders), BARRIER_ROUNDS);
}

/* A party whose deadline has passed, but which has not yet left when the last one
 * arrives, was counted: it must not say that it timed out. The test keeps it from
 * leaving by holding the barrier's own lock. */
struct late {
    weft_barrier b;
    weft__aptr parker;
    weft__a32 returned, may_end; /* its parker lives until may_end */
    int result;
};

static void *late_party(void *arg)
{
    struct late *l = arg;
    atom_store_rel(&l->parker, weft__self());
    l->result = weft_barrier_wait(&l->b, weft_after(2 * WEFT_MSEC));
    atom_store_rel(&l->returned, 1u);
    wait_until(&l->may_end, 1);
    return NULL;
}

static void barrier_counts_who_has_not_left(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct late l = {.b = WEFT_BARRIER_INIT(2)};
        weft__lock *lock = (weft__lock *)(void *)&l.b.weft__lock;
        pthread_t t;
        pthread_create(&t, NULL, late_party, &l);
        while (!atom_load_acq(&l.parker))
            sched_yield();
        weft__parker *p = atom_load_acq(&l.parker);
        while ((atom_load_acq(&p->word) & WEFT__WAIT_PHASE) == WEFT__WAIT_IDLE &&
               !atom_load_acq(&l.returned)) /* late before it began */
            sched_yield();
        weft__acquire(lock);
        while ((atom_load_acq(&p->word) & WEFT__WAIT_PHASE) == WEFT__WAIT_WAITING)
            sched_yield();
        weft__release(lock);
        int r = weft_barrier_wait(&l.b, WEFT_TRY);
        atom_store_rel(&l.may_end, 1u);
        pthread_join(t, NULL);
        assert_true(r == 1 ? l.result == 0 : r == -EAGAIN && l.result == -ETIMEDOUT);
    }
}

static void *set_value(void *arg)
{
    weft__sleep(weft_after(2 * WEFT_MSEC));
    int r = weft_value_set(arg, (void *)(uintptr_t)&runs);
    assert_true(r == 0 || r == -EALREADY);
    return (void *)(uintptr_t)(r == 0);
}

static void value(void **state)
{
    (void)state;
    weft_value v = WEFT_VALUE_INIT;
    void *got = &v;
    assert_int_equal(weft_value_init(NULL), -EINVAL);
    assert_int_equal(weft_value_set(NULL, NULL), -EINVAL);
    assert_int_equal(weft_value_wait(NULL, WEFT_NEVER, &got), -EINVAL);
    assert_false(weft_value_is_set(NULL));
    assert_int_equal(weft_value_wait(&v, WEFT_TRY, &got), -EAGAIN);
    assert_int_equal(weft_value_wait(&v, 0, &got), -ETIMEDOUT);
    assert_int_equal(weft_value_wait(&v, weft_after(WEFT_MSEC), &got), -ETIMEDOUT);
    assert_ptr_equal(got, &v);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, set_value, &v);
    weft_select_case c = weft_case_value(&v);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(weft_value_wait(&v, WEFT_TRY, &got), 0);
    assert_ptr_equal(got, &runs);
    uintptr_t winners = 0;
    for (int i = 0; i < THREADS; i++) {
        void *won;
        pthread_join(t[i], &won);
        winners += (uintptr_t)won;
    }
    assert_int_equal(winners, 1);
    assert_int_equal(weft_value_set(&v, NULL), -EALREADY);
    assert_int_equal(weft_value_wait(&v, WEFT_NEVER, NULL), 0);

    weft_semaphore s = WEFT_SEMAPHORE_INIT(3);
    c = weft_case_semaphore(&s, 2);
    assert_int_equal(weft_select(&c, 1, 0, WEFT_NEVER), 0);
    assert_int_equal(weft_semaphore_available(&s), 1);
    assert_int_equal(weft_select(&c, 1, 0, weft_after(WEFT_MSEC)), -ETIMEDOUT);
    assert_int_equal(weft_semaphore_acquire(&s, 1, WEFT_TRY), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(semaphore_errors),
        cmocka_unit_test(leaving_head_lets_others_in),
        cmocka_unit_test(permits_are_conserved),
        cmocka_unit_test(rwlock_errors),
        cmocka_unit_test(writers_exclude),
        cmocka_unit_test(cond_errors),
        cmocka_unit_test(signals_are_not_lost),
        cmocka_unit_test(cancelled_waiter_keeps_no_signal),
        cmocka_unit_test(once),
        cmocka_unit_test(barrier),
        cmocka_unit_test(barrier_counts_who_has_not_left),
        cmocka_unit_test(value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * No wake is lost on a waiter that leaves, and none comes late.
 *
 * Of two waiters one is woken and one is cancelled at the same time: the other must
 * return. And a wait that ended in time leaves no timer behind that would end the
 * task's next sleep early.
 */
#include "unit_test.h"

#include <errno.h>
#include <stdatomic.h>

#include "harness.h"
#include "weft/weft.h"

enum kind { MUTEX, SEMAPHORE, COND, EVENT, CHANNEL, CHANNEL_SEND, SELECT, VALUE, KINDS };
static const char *const kind_names[] = {"mutex",   "semaphore",    "cond",   "event",
                                         "channel", "channel send", "select", "value"};

struct round {
    enum kind kind;
    weft_mutex m;
    weft_cond c;
    weft_semaphore s;
    weft_event e;
    weft_value v;
    weft_channel *ch; /* capacity 1 */
    _Atomic int ready, served;
};

/* Waits for the one thing that there is; passes it on when it is one for all. */
static int wait_for_it(void *arg)
{
    struct round *w = arg;
    uint64_t item = 1;
    int r = -EINVAL;
    if (w->kind == COND)
        r = weft_mutex_lock(&w->m, WEFT_NEVER);
    if (w->kind == COND && r)
        return r;
    atomic_fetch_add(&w->ready, 1);
    switch (w->kind) {
    case MUTEX:
        r = weft_mutex_lock(&w->m, WEFT_NEVER);
        if (r == 0)
            assert_int_equal(weft_mutex_unlock(&w->m), 0); /* the next one's wake */
        break;
    case COND:
        r = weft_cond_wait(&w->c, &w->m, WEFT_NEVER);
        if (r == 0)
            weft_cond_signal(&w->c);
        assert_int_equal(weft_mutex_unlock(&w->m), 0);
        break;
    case SEMAPHORE:
        r = weft_semaphore_acquire(&w->s, 1, WEFT_NEVER);
        if (r == 0)
            assert_int_equal(weft_semaphore_release(&w->s, 1), 0);
        break;
    case EVENT:
        r = weft_event_wait(&w->e, WEFT_NEVER);
        break;
    case VALUE:
        r = weft_value_wait(&w->v, WEFT_NEVER, NULL);
        break;
    case CHANNEL:
        r = weft_channel_recv(w->ch, &item, WEFT_NEVER);
        if (r == 0)
            assert_int_equal(weft_channel_send(w->ch, &item, WEFT_TRY), 0);
        break;
    case CHANNEL_SEND:
        r = weft_channel_send(w->ch, &item, WEFT_NEVER);
        if (r == 0)
            assert_int_equal(weft_channel_recv(w->ch, &item, WEFT_TRY), 0);
        break;
    case SELECT: {
        weft_select_case cases[] = {weft_case_recv(w->ch, &item), weft_case_event(&w->e)};
        r = weft_select(cases, 2, 0, WEFT_NEVER);
        if (r == 0)
            assert_int_equal(weft_channel_send(w->ch, &item, WEFT_TRY), 0);
        r = r > 0 ? 0 : r;
        break;
    }
    default:
        break;
    }
    if (r == 0)
        atomic_fetch_add(&w->served, 1);
    return r;
}

static void give_it(struct round *w)
{
    uint64_t item = 2;
    switch (w->kind) {
    case MUTEX:
        assert_int_equal(weft_mutex_unlock(&w->m), 0);
        break;
    case SEMAPHORE:
        assert_int_equal(weft_semaphore_release(&w->s, 1), 0);
        break;
    case COND:
        weft_cond_signal(&w->c);
        break;
    case EVENT:
        weft_event_set(&w->e);
        break;
    case VALUE:
        weft_value_set(&w->v, NULL);
        break;
    case CHANNEL:
    case SELECT:
        assert_int_equal(weft_channel_send(w->ch, &item, WEFT_TRY), 0);
        break;
    case CHANNEL_SEND:
        assert_int_equal(weft_channel_recv(w->ch, &item, WEFT_TRY), 0);
        break;
    default:
        break;
    }
}

static void one_round(weft_runtime *rt, struct round *w, uint64_t x)
{
    weft_task *t[2];
    int result[2];
    uint64_t item = 0;
    enum kind kind = w->kind;
    weft_channel *ch = w->ch;
    memset(w, 0, sizeof *w);
    w->kind = kind;
    w->ch = ch;
    if (kind == MUTEX)
        assert_int_equal(weft_mutex_lock(&w->m, WEFT_NEVER), 0);
    if (kind == CHANNEL_SEND)
        assert_int_equal(weft_channel_send(ch, &item, WEFT_TRY), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_spawn(rt, wait_for_it, w, NULL, &t[i]), 0);
    while (atomic_load(&w->ready) < 2)
        weft_yield();
    if (kind == COND) { /* both wait once the mutex can be had */
        assert_int_equal(weft_mutex_lock(&w->m, WEFT_NEVER), 0);
        assert_int_equal(weft_mutex_unlock(&w->m), 0);
    }
    for (uint64_t spin = x >> 8 & 1023; spin; spin--)
        __asm__ volatile("");
    if (x & 1) {
        give_it(w);
        weft_task_cancel(t[x >> 1 & 1]);
    } else {
        weft_task_cancel(t[x >> 1 & 1]);
        give_it(w);
    }
    for (int i = 0; i < 2; i++) {
        int r = weft_task_join(t[i], weft_after(20 * WEFT_SEC), &result[i]);
        if (r)
            fail_msg("%s: a waiter was not woken (%d)", kind_names[kind], r);
        weft_task_unref(t[i]);
    }
    int victim = x >> 1 & 1;
    assert_int_equal(result[1 - victim], 0);
    assert_true(result[victim] == 0 || result[victim] == -ECANCELED);
    if (kind == CHANNEL || kind == SELECT) /* the item went round and is still there */
        assert_int_equal(weft_channel_recv(ch, &item, WEFT_TRY), 0);
    assert_int_equal(weft_channel_length(ch), 0);
}

static void cancelled_waiter_keeps_no_wake(void **state)
{
    (void)state;
    uint64_t x = test_seed() | 1u;
    for (unsigned workers = 1; workers <= 2; workers++) {
        weft_runtime_options o = {.workers = workers};
        weft_runtime *rt;
        assert_int_equal(weft_runtime_new(&o, &rt), 0);
        for (int k = 0; k < KINDS; k++) {
            struct round w = {.kind = (enum kind)k};
            assert_int_equal(weft_channel_new(8, 1, NULL, &w.ch), 0);
            for (uint64_t i = 0; i < test_rounds(3000); i++) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                one_round(rt, &w, x);
            }
            weft_channel_unref(w.ch);
        }
        weft_runtime_free(rt);
    }
}

/* ---- Timers ---- */

struct pair {
    weft_event e;
    weft_channel *ch;
    weft_semaphore start;
    uint64_t rounds;
    uint64_t seed;
};

static int notify(void *arg)
{
    struct pair *p = arg;
    uint64_t x = p->seed | 1u;
    for (uint64_t i = 0; i < p->rounds; i++) {
        assert_int_equal(weft_semaphore_acquire(&p->start, 1, WEFT_NEVER), 0);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        weft_sleep(900 * WEFT_USEC + (weft_time)(x >> 16) % (200 * WEFT_USEC));
        weft_event_set(&p->e);
    }
    return 0;
}

static int wait_then_sleep(void *arg)
{
    struct pair *p = arg;
    uint64_t item;
    for (uint64_t i = 0; i < p->rounds; i++) {
        weft_event_reset(&p->e);
        weft_semaphore_release(&p->start, 1);
        int r = weft_event_wait(&p->e, weft_after(WEFT_MSEC));
        assert_true(r == 0 || r == -ETIMEDOUT);
        weft_time until = weft_after(3 * WEFT_MSEC);
        if (i % 2)
            assert_int_equal(weft_sleep_until(until), 0);
        else
            assert_int_equal(weft_channel_recv(p->ch, &item, until), -ETIMEDOUT);
        assert_true(weft_now() >= until);
    }
    return 0;
}

enum { PAIRS = 40 };

static void no_timer_is_left_behind(void **state)
{
    (void)state;
    static struct pair p[PAIRS];
    weft_runtime_options o = {.workers = 2};
    weft_runtime *rt;
    weft_task *t[2 * PAIRS];
    memset(p, 0, sizeof p);
    assert_int_equal(weft_runtime_new(&o, &rt), 0);
    for (int i = 0; i < PAIRS; i++) {
        p[i].rounds = test_rounds(100);
        p[i].seed = test_seed() + (uint64_t)i * 77;
        assert_int_equal(weft_channel_new(8, 0, NULL, &p[i].ch), 0);
        assert_int_equal(weft_spawn(rt, notify, &p[i], NULL, &t[2 * i]), 0);
        assert_int_equal(weft_spawn(rt, wait_then_sleep, &p[i], NULL, &t[2 * i + 1]), 0);
    }
    for (int i = 0; i < 2 * PAIRS; i++) {
        assert_int_equal(weft_task_join(t[i], WEFT_NEVER, NULL), 0);
        weft_task_unref(t[i]);
    }
    for (int i = 0; i < PAIRS; i++)
        weft_channel_unref(p[i].ch);
    weft_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelled_waiter_keeps_no_wake),
        cmocka_unit_test(no_timer_is_left_behind),
    };
    test_limit(100, "sync_wakes");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

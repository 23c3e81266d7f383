/* SPDX-License-Identifier: MIT
 *
 * wait.c -- the slow halves of wait.h, and the parker of a plain thread.
 *
 * The thread's parker sleeps on its own word through the futex shim: parked() sets
 * PARKED, and whoever sets TOKEN afterwards wakes the address. The word lives in
 * thread-local memory; a waker that is preempted between TOKEN and the wake call
 * may use the address of a thread that has ended, which the kernel answers with an
 * error or a spurious wake, and no memory is touched.
 */
#include "wait/wait.h"

#include "base/linger.h"

static void thread_park(weft__parker *self, weft_time deadline);
static void thread_ready(weft__parker *p);
static void thread_yield(weft__parker *self);

static const weft__parker_ops thread_ops = {
    .park = thread_park,
    .ready = thread_ready,
    .yield = thread_yield,
};

#ifdef WEFT__SELF_INLINE
_Thread_local weft__parker **weft__current;
#else
static _Thread_local weft__parker **weft__current;
#endif
static _Thread_local weft__parker thread_parker, *thread_slot;

void weft__parker_init(weft__parker *p, const weft__parker_ops *ops)
{
    /* Atomic stores: parked() of a former owner of this memory may still look. */
    atom_store_rlx(&p->cancel, 0u);
    atom_store_rlx(&p->word, (uint32_t)WEFT__WAIT_IDLE);
    atom_store_rlx(&p->what, NULL);
    atom_store_rlx(&p->object, NULL);
    p->budget = WEFT__BUDGET;
    p->shield = 0;
    p->random += (uint32_t)((uintptr_t)p >> 4) | 1u; /* goes on: it numbers the waits */
    p->ops = ops;
}

WEFT__NOINLINE weft__parker *weft__self_call(void)
{
    __asm__ volatile(""); /* keeps the call from being folded or hoisted */
    weft__parker **slot = weft__current;
    if (WEFT__LIKELY(slot && *slot))
        return *slot;
    if (WEFT__UNLIKELY(!thread_parker.ops))
        weft__parker_init(&thread_parker, &thread_ops);
    if (!slot) { /* a plain thread has a slot, too, so that its next call is short */
        thread_slot = &thread_parker;
        weft__current = &thread_slot;
    }
    return &thread_parker;
}

WEFT__NOINLINE weft__parker **weft__self_slot(weft__parker **slot)
{
    __asm__ volatile("");
    weft__parker **before = weft__current;
    weft__current = slot;
    return before;
}

/* ---- A plain thread ---- */

/* Before it is PARKED a thread looks at its word for a moment (linger.h), so that a quick
 * answer costs neither side a system call. Under the model, whose threads share this
 * thread's variables, it never does. */
#ifdef WEFT_MODEL
#define LINGERS 0
#else
#define LINGERS 1
#endif

static _Thread_local weft_time linger;

static bool token_comes_soon(weft__parker *self)
{
    weft_time end = weft__sys_now() + linger;
    do {
        for (int i = 0; i < WEFT__LINGER_LOOKS; i++) {
            if (atom_load_acq(&self->word) & WEFT__WAIT_TOKEN) /* pairs with weft__unpark */
                return true;
            for (int k = 0; k < 4; k++)
                weft__relax();
        }
    } while (weft__sys_now() < end);
    linger = weft__linger_after_nothing(linger);
    return false;
}

static void thread_park(weft__parker *self, weft_time deadline)
{
    if ((LINGERS && linger && token_comes_soon(self)) || !weft__parked(self))
        return;
    weft_time start = weft__sys_now();
    for (;;) {
        uint32_t word = atom_load_acq(&self->word); /* pairs with weft__unpark */
        if (word & WEFT__WAIT_TOKEN)
            break;
        if (weft__sys_futex_wait(&self->word, word, deadline) == -ETIMEDOUT) {
            /* Its own claim needs no unpark: there is nobody else to wake it. */
            if (weft__claim(self, WEFT__TIMEDOUT))
                break;
            deadline = WEFT_NEVER; /* claimed by another: the unpark is on its way */
        }
    }
    if (LINGERS)
        linger = weft__linger_after_sleep(linger, weft__sys_now() - start);
}

static void thread_ready(weft__parker *p)
{
    weft__sys_futex_wake(&p->word, 1);
}

/* The kernel shares out threads; only the count starts again. */
static void thread_yield(weft__parker *self)
{
    self->budget = WEFT__BUDGET;
}

/* ---- Slow halves ---- */

bool weft__cancel(weft__parker *p)
{
    if (atom_or_sc(&p->cancel, (uint32_t)WEFT__CANCEL) & WEFT__CANCEL)
        return false;
    /* Pairs with parked(): the store above, then this load (W5). */
    if (weft__claim_seen(p, atom_load_sc(&p->word)))
        weft__unpark(p);
    return true;
}

void weft__node_retract(const weft__waitable_ops *ops, void *object, weft__lock *lock,
                        weft__wait_node *node)
{
    weft__wakes wakes = {NULL, NULL};
    weft__acquire(lock);
    if (weft__linked(&node->link))
        ops->unlink_locked(object, node, &wakes);
    weft__release(lock);
    weft__wakes_run(&wakes);
}

int weft__wait_slow(const weft__waitable_ops *ops, void *object, weft__lock *lock,
                    weft__wait_node *node, weft__parker *self, weft_time deadline)
{
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline) {
        weft__release(lock);
        return -ETIMEDOUT;
    }
    node->parker = self;
    node->index = 0;
    weft__wait_begin(self, ops->what, object);
    ops->link_locked(object, node);
    weft__release(lock);

    uint32_t outcome = weft__wait_commit(self, deadline);
    if (WEFT__LIKELY(outcome == 0))
        return node->result;
    weft__node_retract(ops, object, lock, node);
    return outcome == WEFT__CANCELED ? -ECANCELED : -ETIMEDOUT;
}

int weft__sleep(weft_time deadline)
{
    weft__parker *self = weft__self();
    int r = weft__checkpoint(self);
    if (r)
        return r;
    if (deadline != WEFT_NEVER && weft__sys_now() >= deadline)
        return 0;
    weft__wait_begin(self, "sleep", NULL);
    return weft__wait_commit(self, deadline) == WEFT__CANCELED ? -ECANCELED : 0;
}

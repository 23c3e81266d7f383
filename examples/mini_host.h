/* SPDX-License-Identifier: MIT
 *
 * mini_host.h -- a host with fibers of its own, on plain ucontext, that knows nothing of
 * weft's scheduler: what a language runtime looks like to weft. It finds out by looking
 * whether a fiber may go on; mini_look is its poll source. Shared by host_fibers.c, by
 * the tests and by weft-bench.
 *
 * All of it belongs to the thread that drives the weft_host.
 */
#ifndef MINI_HOST_H
#define MINI_HOST_H

#include <weft/channel.h>
#include <weft/descriptor.h>
#include <weft/host.h>

#include <errno.h>
#include <stdlib.h>
#include <ucontext.h>

#if defined(__SANITIZE_THREAD__)
#define MINI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MINI_TSAN 1
#endif
#endif
#ifdef MINI_TSAN /* it has to be told which stack runs */
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

enum { MINI_STACK = 64 * 1024 };

typedef struct mini_fiber {
    struct mini_host *host;
    struct mini_fiber *next;
    ucontext_t context;
    void (*body)(struct mini_fiber *self, void *arg);
    void *arg;
    /* The wait it is in. */
    int (*ready)(void *on); /* 0: not yet; NULL: only the time */
    void *on;
    weft_time due;
    bool announced; /* whoever makes it ready calls weft_host_wake: no need to look */
    int answer;
    bool started, ended, cancelled;
    void *tsan;
    char *stack;
} mini_fiber;

typedef struct mini_host {
    weft_poll_source source;
    ucontext_t main;
    mini_fiber *first, *running;
    void *tsan_main;
} mini_host;

static void mini_enter(unsigned high, unsigned low)
{
    mini_fiber *f = (mini_fiber *)(uintptr_t)((uint64_t)high << 32 | low);
    f->body(f, f->arg);
    f->ended = true;
#ifdef MINI_TSAN
    __tsan_switch_to_fiber(f->host->tsan_main, 0);
#endif
    setcontext(&f->host->main);
    abort();
}

static void mini_resume(mini_fiber *f, int answer)
{
    mini_host *h = f->host;
    f->answer = answer;
    f->started = true;
    h->running = f;
#ifdef MINI_TSAN
    h->tsan_main = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    if (swapcontext(&h->main, &f->context))
        abort();
    h->running = NULL;
}

/* Suspends the fiber. 0: ready; -ETIMEDOUT; -ECANCELED, and again for every later wait,
 * for a host re-issues cancellations in each turn. */
static int mini_wait(mini_fiber *self, int (*ready)(void *), void *on, weft_time due)
{
    self->ready = ready;
    self->on = on;
    self->due = due;
#ifdef MINI_TSAN
    __tsan_switch_to_fiber(self->host->tsan_main, 0);
#endif
    if (swapcontext(&self->context, &self->host->main))
        abort();
    return self->answer;
}

static inline int mini_sleep(mini_fiber *self, weft_time duration)
{
    int r = mini_wait(self, NULL, NULL, weft_after(duration));
    return r == -ETIMEDOUT ? 0 : r;
}

/* One turn of its scheduler: weft_poll_source.look. */
static int mini_look(void *arg, weft_time *ret_due)
{
    mini_host *h = arg;
    weft_time now = weft_now();
    int answer = WEFT_POLL_IDLE;
    for (mini_fiber **at = &h->first, *f; (f = *at) != NULL;) {
        if (!f->started || (f->ready && f->ready(f->on))) {
            mini_resume(f, 0);
            answer = WEFT_POLL_PROGRESS;
        } else if (now >= f->due) {
            mini_resume(f, -ETIMEDOUT);
            answer = WEFT_POLL_PROGRESS;
        } else if (f->cancelled) {
            mini_resume(f, -ECANCELED); /* no progress: it may take no notice */
        }
        if (f->ended) {
            *at = f->next;
#ifdef MINI_TSAN
            __tsan_destroy_fiber(f->tsan);
#endif
            free(f->stack);
            free(f);
            continue;
        }
        if (f->due < *ret_due)
            *ret_due = f->due;
        if (answer == WEFT_POLL_IDLE && f->ready && !f->announced)
            answer = WEFT_POLL_WAITING;
        at = &f->next;
    }
    return answer;
}

static inline mini_fiber *mini_spawn(mini_host *h, void (*body)(mini_fiber *, void *), void *arg)
{
    mini_fiber *f = calloc(1, sizeof *f);
    if (!f || !(f->stack = malloc(MINI_STACK)) || getcontext(&f->context))
        abort();
    f->host = h;
    f->body = body;
    f->arg = arg;
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = MINI_STACK;
#ifdef MINI_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
    uint64_t bits = (uintptr_t)f;
    makecontext(&f->context, (void (*)(void))mini_enter, 2, (unsigned)(bits >> 32), (unsigned)bits);
    f->next = h->first;
    h->first = f;
    return f;
}

/* ---- A channel of weft's, seen from a fiber of the host's ---- */

typedef struct mini_transfer {
    weft_channel *ch;
    void *item;
    bool send;
    int result;
} mini_transfer;

static int mini_try(void *on)
{
    mini_transfer *t = on;
    t->result = t->send ? weft_channel_send(t->ch, t->item, WEFT_TRY)
                        : weft_channel_recv(t->ch, t->item, WEFT_TRY);
    return t->result != -EAGAIN;
}

static inline int mini_transfer_item(mini_fiber *self, weft_channel *ch, void *item, bool send,
                                     weft_time due)
{
    mini_transfer t = {ch, item, send, 0};
    if (mini_try(&t))
        return t.result;
    int r = mini_wait(self, mini_try, &t, due);
    return r ? r : t.result;
}

static inline int mini_send(mini_fiber *self, weft_channel *ch, void *item, weft_time due)
{
    return mini_transfer_item(self, ch, item, true, due);
}

static inline int mini_recv(mini_fiber *self, weft_channel *ch, void *item, weft_time due)
{
    return mini_transfer_item(self, ch, item, false, due);
}

/* ---- The same without looking: the channel's waker wakes the host ---- */

static void mini_wake(void *host)
{
    weft_host_wake(host);
}

static int mini_check(void *descriptor)
{
    return weft_descriptor_check(descriptor); /* 0 arms the waker */
}

static inline int mini_recv_announced(mini_fiber *self, weft_host *host, weft_channel *ch,
                                      void *item)
{
    weft_descriptor *d;
    weft_waker waker = {mini_wake, host};
    int r = weft_descriptor_channel(NULL, ch, WEFT_CHANNEL_READABLE, &waker, &d);
    if (r)
        return r;
    self->announced = true;
    do
        r = weft_descriptor_check(d) ? 0 : mini_wait(self, mini_check, d, WEFT_NEVER);
    while (r == 0 && (r = weft_channel_recv(ch, item, WEFT_TRY)) == -EAGAIN);
    self->announced = false;
    weft_descriptor_free(d);
    return r;
}

#endif

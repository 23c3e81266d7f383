/* SPDX-License-Identifier: MIT
 *
 * context.c -- the parts of context.h that need no assembly: the first frame of a
 * fresh stack, and what the sanitizers want to know of it.
 *
 * The first frame is what weft__context_swap would have left there had the entry
 * trampoline called it; see the layout in context_x86_64.S and context_aarch64.S.
 */
#include "fiber/context.h"

#include <errno.h>
#include <string.h>

#ifdef WEFT__ASAN
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#endif

#ifndef WEFT__UCONTEXT

extern void weft__context_begin(void); /* in assembly; not a C function */

#if defined(__x86_64__)

uint64_t weft__shadow_stack(void);

struct frame {
    uint32_t mxcsr;
    uint16_t x87_control, pad;
    uint64_t r15, r14, r13, r12, rbx, rbp, return_address;
};

void *weft__context_frame(void *stack_low, size_t stack_size, weft__context_fn entry, void *arg)
{
    uintptr_t top = ((uintptr_t)stack_low + stack_size) & ~(uintptr_t)15;
    /* After the swap's ret the stack pointer is at `top`, a multiple of 16. */
    struct frame *f = (struct frame *)(top - sizeof *f);
    memset(f, 0, sizeof *f);
    __asm__("stmxcsr %0" : "=m"(f->mxcsr));
    __asm__("fnstcw %0" : "=m"(f->x87_control));
    f->r12 = (uintptr_t)entry;
    f->r13 = (uintptr_t)arg;
    f->return_address = (uintptr_t)weft__context_begin;
    return f;
}

int weft__context_supported(void)
{
    return weft__shadow_stack() ? -ENOTSUP : 0;
}

#elif defined(__aarch64__)

struct frame {
    uint64_t fpcr, pad;
    uint64_t d8_15[8];
    uint64_t x19_28[10];
    uint64_t x29, x30;
};

void *weft__context_frame(void *stack_low, size_t stack_size, weft__context_fn entry, void *arg)
{
    uintptr_t top = ((uintptr_t)stack_low + stack_size) & ~(uintptr_t)15;
    struct frame *f = (struct frame *)(top - sizeof *f);
    memset(f, 0, sizeof *f);
    __asm__("mrs %0, fpcr" : "=r"(f->fpcr));
    f->x19_28[0] = (uintptr_t)entry;
    f->x19_28[1] = (uintptr_t)arg;
    f->x30 = (uintptr_t)weft__context_begin;
    return f;
}

int weft__context_supported(void)
{
    return 0;
}

#endif
#endif /* with an assembly switch */

#ifdef WEFT__ASAN
/* The first code on a fresh stack must finish the switch that led to it. */
static void asan_entry(void *context)
{
    weft__context *c = context;
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
    c->entry(c->arg);
}
#endif

void weft__context_init(weft__context *c, void *stack_low, size_t stack_size,
                        weft__context_fn entry, void *arg)
{
    WEFT__ASSERT(stack_size >= 4096);
#ifdef WEFT__ASAN
    /* The frames of the stack's last user never returned: their red zones stand. */
    __asan_unpoison_memory_region(stack_low, stack_size);
    c->fake_stack = NULL;
    c->stack_low = stack_low;
    c->stack_size = stack_size;
    c->entry = entry;
    c->arg = arg;
    entry = asan_entry;
    arg = c;
#endif
#ifdef WEFT__TSAN
    c->tsan_fiber = __tsan_create_fiber(0);
#endif
    c->sp = weft__context_frame(stack_low, stack_size, entry, arg);
}

void weft__context_adopt(weft__context *c)
{
    memset(c, 0, sizeof *c);
#ifdef WEFT__ASAN
    pthread_attr_t attr;
    void *low;
    WEFT__CHECK(pthread_getattr_np(pthread_self(), &attr) == 0);
    pthread_attr_getstack(&attr, &low, &c->stack_size);
    pthread_attr_destroy(&attr);
    c->stack_low = low;
#endif
#ifdef WEFT__TSAN
    c->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void weft__context_forget(weft__context *c)
{
#ifdef WEFT__TSAN
    if (c->tsan_fiber)
        __tsan_destroy_fiber(c->tsan_fiber);
    c->tsan_fiber = NULL;
#endif
    (void)c;
}

/* --- weft__context_run where one of the parties needs every switch announced --- */

struct life {
    weft__context *self;
    weft__context_run_fn entry;
    void *arg;
};

static void live(void *arg)
{
    /* Copied before anything else: it lies in the frame of weft__context_run_slow,
     * which `entry` may resume. */
    struct life l = *(const struct life *)arg;
    weft__context *next = l.entry(l.arg);
    weft__context_switch_final(l.self, next);
}

void weft__context_run_slow(weft__context *from, weft__context *c, void *stack_low,
                            size_t stack_size, weft__context_run_fn entry, void *arg)
{
    struct life l = {c, entry, arg};
    weft__context_init(c, stack_low, stack_size, live, &l);
    weft__context_switch(from, c);
}

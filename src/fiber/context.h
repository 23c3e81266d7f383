/* SPDX-License-Identifier: MIT
 *
 * context.h -- a suspended flow of control and the switch between two of them.
 *
 * A context is one saved stack pointer; everything else (callee-saved registers,
 * floating-point control words, return address) lies on the stack it points to.
 * It knows no scheduler and no task. A context may be resumed by another thread
 * than the one that suspended it; whoever resumes it must have seen the suspend
 * complete, that is: publish a context only from the other side of the switch.
 *
 * What is preserved over a switch: what the C ABI lets a called function not
 * change, the rounding mode and exception masks among them. Not preserved: the
 * signal mask (except with the ucontext fallback), errno, thread-locals.
 *
 * Three implementations with one contract: context_x86_64.S, context_aarch64.S,
 * context_ucontext.c (any other processor, or WEFT_FIBER_UCONTEXT). The sanitizers
 * are told of each switch here, inline, and nowhere else. docs/fiber.md has the
 * figures, the rejected variants and what happens on shadow-stack hardware.
 */
#ifndef WEFT_SRC_CONTEXT_H
#define WEFT_SRC_CONTEXT_H

#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#define WEFT__ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT__ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WEFT__TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT__TSAN 1
#endif
#endif

#ifdef WEFT__ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WEFT__TSAN
#include <sanitizer/tsan_interface.h>
#endif

typedef void (*weft__context_fn)(void *arg);

#if defined(WEFT_FIBER_UCONTEXT) || !(defined(__x86_64__) || defined(__aarch64__))
#define WEFT__UCONTEXT 1
#endif

typedef struct weft__context {
    void *sp; /* where the registers are saved; meaningless while it runs */
#ifdef WEFT__ASAN
    void *fake_stack;
    const void *stack_low;
    size_t stack_size;
    weft__context_fn entry;
    void *arg;
#endif
#ifdef WEFT__TSAN
    void *tsan_fiber;
#endif
} weft__context;

/* Makes a context that, when first switched to, calls entry(arg) on the given
 * stack: `stack_low` is its lowest usable byte, `stack_size` at least 4 KiB. The
 * stack must hold nothing alive. `entry` never returns (the process stops with an
 * illegal instruction if it does): it ends with weft__context_switch_final. `c`
 * must stay where it is until forgotten.
 * Callable from: anywhere but that stack. */
void weft__context_init(weft__context *c, void *stack_low, size_t stack_size,
                        weft__context_fn entry, void *arg);

/* Makes `c` stand for the calling thread's own stack, so that it can be switched
 * away from and back to. Forget is not needed for it. Callable from: a plain thread. */
void weft__context_adopt(weft__context *c);

/* Releases what the sanitizers hold for a context that will never run again.
 * Nothing in other builds. Callable from: another context than `c`. */
void weft__context_forget(weft__context *c);

/* 0, or -ENOTSUP when the calling thread runs with a hardware shadow stack, which
 * the switch cannot follow. Callable from: anywhere. */
int weft__context_supported(void);

/* The machine's part: puts the first frame on a fresh stack and returns the stack
 * pointer to resume it by. */
void *weft__context_frame(void *stack_low, size_t stack_size, weft__context_fn entry, void *arg);

/* The machine's part: saves the running flow under *save and resumes the one
 * saved as `load`. Call it only through the functions below. */
void weft__context_swap(void **save, void *load);

/* Suspends the running context `from` and resumes `to`; returns when something
 * switches to `from` again, perhaps on another thread. */
static inline void weft__context_switch(weft__context *from, weft__context *to)
{
#ifdef WEFT__ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_low, to->stack_size);
#endif
#ifdef WEFT__TSAN
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
    weft__context_swap(&from->sp, to->sp);
#ifdef WEFT__ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

/* The last switch of `from`: as above, but it will never be resumed. Its stack is
 * in use until the code on the other side of the switch runs. */
static inline void weft__context_switch_final(weft__context *from, weft__context *to)
{
#ifdef WEFT__ASAN
    __sanitizer_start_switch_fiber(NULL, to->stack_low, to->stack_size);
#endif
#ifdef WEFT__TSAN
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
    weft__context_swap(&from->sp, to->sp);
    __builtin_unreachable();
}

/* --- a whole life in one call --- */

typedef weft__context *(*weft__context_run_fn)(void *arg);

/* The machine's part: saves the running flow under *save, calls entry(arg) with the
 * stack pointer at `top`, then resumes the context that it returned. */
void weft__context_call(void **save, void *top, weft__context_run_fn entry, void *arg);
void weft__context_run_slow(weft__context *from, weft__context *c, void *stack_low,
                            size_t stack_size, weft__context_run_fn entry, void *arg);

/* Suspends `from` and runs entry(arg) on a fresh stack as the context `c`; when entry
 * returns, the context that it returned is resumed. It is weft__context_init, a switch
 * to `c` and, at the end, weft__context_switch_final in one, and costs a fifth of
 * those three: entered by a call and left by a return, the processor predicts both.
 * `from` may be resumed long before that, by a switch from within entry. The other
 * conditions are those of weft__context_init; `c` is for switches away from here and
 * back, and to be forgotten. */
static inline void weft__context_run(weft__context *from, weft__context *c, void *stack_low,
                                     size_t stack_size, weft__context_run_fn entry, void *arg)
{
#if defined(WEFT__ASAN) || defined(WEFT__TSAN) || defined(WEFT__UCONTEXT)
    weft__context_run_slow(from, c, stack_low, stack_size, entry, arg);
#else
    (void)c;
    void *top = (void *)(((uintptr_t)stack_low + stack_size) & ~(uintptr_t)15);
    weft__context_call(&from->sp, top, entry, arg);
#endif
}

#endif

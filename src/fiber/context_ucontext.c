/* SPDX-License-Identifier: MIT
 *
 * context_ucontext.c -- the switch by getcontext(3) and friends, for processors
 * without a hand-written one and for builds with WEFT_FIBER_UCONTEXT.
 *
 * Same contract, some forty times slower: each swapcontext saves and sets the signal
 * mask with a system call. The mask therefore travels with the context, so all
 * threads that resume one another's contexts must have the same mask.
 *
 * The saved stack pointer points at the ucontext_t: of a suspended flow that lies in
 * the frame of its own weft__context_swap, of a fresh one at the top of its stack.
 */
#include "fiber/context.h"

#include <errno.h>
#include <ucontext.h>

#ifdef WEFT__UCONTEXT

struct fresh {
    ucontext_t context;
    weft__context_fn entry;
    void *arg;
};

/* makecontext passes ints: a pointer needs two. */
static void begin(unsigned high, unsigned low)
{
    struct fresh *f = (struct fresh *)((uintptr_t)high << 16 << 16 | (uintptr_t)low);
    f->entry(f->arg);
    __builtin_trap(); /* the entry must not return */
}

void *weft__context_frame(void *stack_low, size_t stack_size, weft__context_fn entry, void *arg)
{
    uintptr_t top = ((uintptr_t)stack_low + stack_size - sizeof(struct fresh)) & ~(uintptr_t)63;
    struct fresh *f = (struct fresh *)top;
    WEFT__CHECK(getcontext(&f->context) == 0);
    f->context.uc_stack.ss_sp = stack_low;
    f->context.uc_stack.ss_size = top - (uintptr_t)stack_low;
    f->context.uc_link = NULL;
    f->entry = entry;
    f->arg = arg;
    makecontext(&f->context, (void (*)(void))begin, 2, (unsigned)(top >> 16 >> 16), (unsigned)top);
    return f;
}

void weft__context_swap(void **save, void *load)
{
    ucontext_t here;
    *save = &here;
    WEFT__CHECK(swapcontext(&here, load) == 0);
}

int weft__context_supported(void)
{
    return 0;
}

#endif

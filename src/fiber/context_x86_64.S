/* SPDX-License-Identifier: MIT
 *
 * context_x86_64.S -- the switch for x86-64, System V ABI.
 *
 * void weft__context_swap(void **save /. rdi ./, void *load /. rsi ./)
 *
 * A suspended stack holds, from its saved stack pointer upwards:
 *
 *     +0  mxcsr (4 bytes), x87 control word (2), 2 unused
 *     +8  r15  +16 r14  +24 r13  +32 r12  +40 rbx  +48 rbp
 *     +56 return address
 *
 * Every suspended stack has this one layout, so the unwind information of the
 * instruction that replaces rsp is true before and after it: a signal handler may
 * call backtrace() at any instruction here.
 *
 * The control words are stored always and loaded only when they differ from those
 * of the flow being left, which is nearly never: loading mxcsr stalls.
 *
 * IBT (indirect branch tracking) is kept: the entry has its endbr64 and nothing
 * jumps indirectly but the call of the entry function. Shadow stacks are not: the
 * ret below goes to another stack's caller. So the property note says IBT only,
 * which keeps the loader from enabling shadow stacks for a program with this code.
 */
#if defined(__x86_64__) && !defined(WEFT_FIBER_UCONTEXT)

    .text
    .globl  weft__context_swap
    .hidden weft__context_swap
    .type   weft__context_swap, @function
    .p2align 6
weft__context_swap:
    .cfi_startproc
    endbr64
    pushq   %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbp, 0
    pushq   %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbx, 0
    pushq   %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r12, 0
    pushq   %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r13, 0
    pushq   %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r14, 0
    pushq   %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r15, 0
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw  4(%rsp)
    movl    (%rsp), %eax
    movzwl  4(%rsp), %ecx
    movq    %rsp, (%rdi)
    /* For debuggers: the pc that fits a suspended context's saved stack pointer. */
    .globl  weft__context_parked
    .hidden weft__context_parked
weft__context_parked:
    movq    %rsi, %rsp              /* from here on the other stack */
.Lresume:                           /* eax, cx: the control words now in force */
    cmpl    (%rsp), %eax
    jne     .Lload_mxcsr
.Lmxcsr_same:
    cmpw    4(%rsp), %cx
    jne     .Lload_x87
.Lx87_same:
    .cfi_remember_state
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %r15
    .cfi_adjust_cfa_offset -8
    .cfi_restore r15
    popq    %r14
    .cfi_adjust_cfa_offset -8
    .cfi_restore r14
    popq    %r13
    .cfi_adjust_cfa_offset -8
    .cfi_restore r13
    popq    %r12
    .cfi_adjust_cfa_offset -8
    .cfi_restore r12
    popq    %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbx
    popq    %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbp
    ret
.Lload_mxcsr:
    .cfi_restore_state
    ldmxcsr (%rsp)
    jmp     .Lmxcsr_same
.Lload_x87:
    fldcw   4(%rsp)
    jmp     .Lx87_same
    .cfi_endproc
    .size   weft__context_swap, . - weft__context_swap

/* void weft__context_call(void **save /. rdi ./, void *top /. rsi ./,
 *                         weft__context_run_fn entry /. rdx ./, void *arg /. rcx ./)
 * Between the two changes of the stack pointer there is nothing to return to as far as
 * an unwinder is concerned. The end is that of weft__context_swap. */
    .globl  weft__context_call
    .hidden weft__context_call
    .type   weft__context_call, @function
    .p2align 6
weft__context_call:
    .cfi_startproc
    endbr64
    pushq   %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbp, 0
    pushq   %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbx, 0
    pushq   %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r12, 0
    pushq   %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r13, 0
    pushq   %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r14, 0
    pushq   %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r15, 0
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw  4(%rsp)
    movq    %rsp, (%rdi)
    .cfi_remember_state
    movq    %rsi, %rsp              /* the fresh stack */
    .cfi_undefined rip
    movq    %rcx, %rdi
    xorl    %ebp, %ebp
    callq   *%rdx
    movq    (%rax), %rdx            /* the next context's sp */
    stmxcsr -8(%rsp)
    fnstcw  -4(%rsp)
    movl    -8(%rsp), %eax
    movzwl  -4(%rsp), %ecx
    movq    %rdx, %rsp              /* the next stack */
    .cfi_restore_state
    jmp     .Lresume
    .cfi_endproc
    .size   weft__context_call, . - weft__context_call

/* Where a fresh context begins: r12 = entry, r13 = its argument, rsp a multiple
 * of 16. An undefined return address tells unwinders that the stack ends here.
 * The nop is there because they look up "return address - 1", and the swap
 * "returns" to weft__context_begin. */
    .globl  weft__context_begin
    .hidden weft__context_begin
    .type   weft__context_begin, @function
    .p2align 4
    .cfi_startproc
    .cfi_undefined rip
    nop
weft__context_begin:
    movq    %r13, %rdi
    xorl    %ebp, %ebp
    callq   *%r12
    ud2                             /* the entry must not return */
    .cfi_endproc
    .size   weft__context_begin, . - weft__context_begin

/* uint64_t weft__shadow_stack(void): the shadow stack pointer, 0 when there is
 * none: rdsspq leaves its operand alone then (it is a nop on older processors). */
    .globl  weft__shadow_stack
    .hidden weft__shadow_stack
    .type   weft__shadow_stack, @function
    .p2align 4
weft__shadow_stack:
    .cfi_startproc
    endbr64
    xorl    %eax, %eax
    rdsspq  %rax
    ret
    .cfi_endproc
    .size   weft__shadow_stack, . - weft__shadow_stack

/* GNU property note: x86 feature 1 AND = IBT. */
    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000002, 4, 1, 0
#endif

    .section .note.GNU-stack, "", @progbits

/* SPDX-License-Identifier: MIT
 *
 * context_aarch64.S -- the switch for 64-bit Arm, AAPCS64.
 *
 * void weft__context_swap(void **save /. x0 ./, void *load /. x1 ./)
 *
 * A suspended stack holds, from its saved stack pointer upwards:
 *
 *     +0   fpcr, 8 unused
 *     +16  d8 .. d15
 *     +80  x19 .. x28
 *     +160 x29 (frame pointer), x30 (return address)
 *
 * As on x86-64 every suspended stack has this one layout, so the unwind information
 * is true before and after the instruction that replaces sp, and fpcr is loaded only
 * when it differs. The scratch registers hold no part of the frame's description.
 *
 * Branch targets carry `bti c` (a hint, a nop on older processors), and the property
 * note says so. Return addresses are not signed here: a signature depends on the
 * stack pointer, and callers' own signatures stay valid because a flow resumes with
 * the stack pointer it was suspended with.
 */
#if defined(__aarch64__) && !defined(WEFT_FIBER_UCONTEXT)

    .text
    .globl  weft__context_swap
    .hidden weft__context_swap
    .type   weft__context_swap, %function
    .p2align 6
weft__context_swap:
    .cfi_startproc
    hint    34                      /* bti c */
    sub     sp, sp, 176
    .cfi_adjust_cfa_offset 176
    stp     d8, d9, [sp, 16]
    stp     d10, d11, [sp, 32]
    stp     d12, d13, [sp, 48]
    stp     d14, d15, [sp, 64]
    stp     x19, x20, [sp, 80]
    stp     x21, x22, [sp, 96]
    stp     x23, x24, [sp, 112]
    stp     x25, x26, [sp, 128]
    stp     x27, x28, [sp, 144]
    stp     x29, x30, [sp, 160]
    .cfi_rel_offset d8, 16
    .cfi_rel_offset d9, 24
    .cfi_rel_offset d10, 32
    .cfi_rel_offset d11, 40
    .cfi_rel_offset d12, 48
    .cfi_rel_offset d13, 56
    .cfi_rel_offset d14, 64
    .cfi_rel_offset d15, 72
    .cfi_rel_offset x19, 80
    .cfi_rel_offset x20, 88
    .cfi_rel_offset x21, 96
    .cfi_rel_offset x22, 104
    .cfi_rel_offset x23, 112
    .cfi_rel_offset x24, 120
    .cfi_rel_offset x25, 128
    .cfi_rel_offset x26, 136
    .cfi_rel_offset x27, 144
    .cfi_rel_offset x28, 152
    .cfi_rel_offset x29, 160
    .cfi_rel_offset x30, 168
    mrs     x9, fpcr
    str     x9, [sp]
    mov     x10, sp
    str     x10, [x0]
    /* For debuggers: the pc that fits a suspended context's saved stack pointer. */
    .globl  weft__context_parked
    .hidden weft__context_parked
weft__context_parked:
    mov     sp, x1                  /* from here on the other stack */
.Lresume:                           /* x9: the fpcr now in force */
    ldr     x10, [sp]
    cmp     x9, x10
    b.eq    .Lfpcr_same
    msr     fpcr, x10
.Lfpcr_same:
    /* The saved values stay in place until sp moves, so the description above holds
     * while they are loaded. */
    ldp     d8, d9, [sp, 16]
    ldp     d10, d11, [sp, 32]
    ldp     d12, d13, [sp, 48]
    ldp     d14, d15, [sp, 64]
    ldp     x19, x20, [sp, 80]
    ldp     x21, x22, [sp, 96]
    ldp     x23, x24, [sp, 112]
    ldp     x25, x26, [sp, 128]
    ldp     x27, x28, [sp, 144]
    ldp     x29, x30, [sp, 160]
    add     sp, sp, 176
    .cfi_adjust_cfa_offset -176
    .cfi_restore d8
    .cfi_restore d9
    .cfi_restore d10
    .cfi_restore d11
    .cfi_restore d12
    .cfi_restore d13
    .cfi_restore d14
    .cfi_restore d15
    .cfi_restore x19
    .cfi_restore x20
    .cfi_restore x21
    .cfi_restore x22
    .cfi_restore x23
    .cfi_restore x24
    .cfi_restore x25
    .cfi_restore x26
    .cfi_restore x27
    .cfi_restore x28
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    .size   weft__context_swap, . - weft__context_swap

/* void weft__context_call(void **save /. x0 ./, void *top /. x1 ./,
 *                         weft__context_run_fn entry /. x2 ./, void *arg /. x3 ./)
 * Between the two changes of the stack pointer there is nothing to return to as far as
 * an unwinder is concerned. The end is that of weft__context_swap. */
    .globl  weft__context_call
    .hidden weft__context_call
    .type   weft__context_call, %function
    .p2align 6
weft__context_call:
    .cfi_startproc
    hint    34                      /* bti c */
    sub     sp, sp, 176
    .cfi_adjust_cfa_offset 176
    stp     d8, d9, [sp, 16]
    stp     d10, d11, [sp, 32]
    stp     d12, d13, [sp, 48]
    stp     d14, d15, [sp, 64]
    stp     x19, x20, [sp, 80]
    stp     x21, x22, [sp, 96]
    stp     x23, x24, [sp, 112]
    stp     x25, x26, [sp, 128]
    stp     x27, x28, [sp, 144]
    stp     x29, x30, [sp, 160]
    .cfi_rel_offset d8, 16
    .cfi_rel_offset d9, 24
    .cfi_rel_offset d10, 32
    .cfi_rel_offset d11, 40
    .cfi_rel_offset d12, 48
    .cfi_rel_offset d13, 56
    .cfi_rel_offset d14, 64
    .cfi_rel_offset d15, 72
    .cfi_rel_offset x19, 80
    .cfi_rel_offset x20, 88
    .cfi_rel_offset x21, 96
    .cfi_rel_offset x22, 104
    .cfi_rel_offset x23, 112
    .cfi_rel_offset x24, 120
    .cfi_rel_offset x25, 128
    .cfi_rel_offset x26, 136
    .cfi_rel_offset x27, 144
    .cfi_rel_offset x28, 152
    .cfi_rel_offset x29, 160
    .cfi_rel_offset x30, 168
    mrs     x9, fpcr
    str     x9, [sp]
    mov     x10, sp
    str     x10, [x0]
    .cfi_remember_state
    mov     sp, x1                  /* the fresh stack */
    .cfi_undefined x30
    mov     x0, x3
    mov     x29, xzr
    blr     x2
    ldr     x1, [x0]                /* the next context's sp */
    mrs     x9, fpcr
    mov     sp, x1                  /* the next stack */
    .cfi_restore_state
    b       .Lresume
    .cfi_endproc
    .size   weft__context_call, . - weft__context_call

/* Where a fresh context begins: x19 = entry, x20 = its argument. An undefined return
 * address tells unwinders that the stack ends here. The nop is there because they
 * look up "return address - 1", and the swap "returns" to weft__context_begin. */
    .globl  weft__context_begin
    .hidden weft__context_begin
    .type   weft__context_begin, %function
    .p2align 4
    .cfi_startproc
    .cfi_undefined x30
    nop
weft__context_begin:
    mov     x0, x20
    mov     x29, xzr
    mov     x30, xzr
    blr     x19
    brk     1                       /* the entry must not return */
    .cfi_endproc
    .size   weft__context_begin, . - weft__context_begin

/* GNU property note: aarch64 feature 1 AND = BTI. */
    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000000, 4, 1, 0
#endif

    .section .note.GNU-stack, "", %progbits

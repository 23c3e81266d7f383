/* SPDX-License-Identifier: MIT
 *
 * weft/waker.h -- a waker: a function and a pointer, called to say "look again".
 */
#ifndef WEFT_WAKER_H
#define WEFT_WAKER_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Copied by value; two with equal members are the same waker. `wake` may be called
 * from any thread, with no lock of weft's held; it must not block. Who registers one
 * says until when `arg` has to stay valid. */
typedef struct weft_waker {
    void (*wake)(void *arg);
    void *arg;
} weft_waker;

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * base.c -- clock, error text, memory and the abort of weft/base.h and base.h.
 */
#include "base/base.h"
#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef WEFT_VERSION_STRING
#define WEFT_VERSION_STRING "0.1.0"
#endif

const char *weft_version(void)
{
    return WEFT_VERSION_STRING;
}

weft_time weft_now(void)
{
    return weft__sys_now();
}

weft_time weft_after(weft_time duration)
{
    weft_time now = weft__sys_now();
    if (duration <= 0)
        return now;
    return duration >= WEFT_NEVER - now ? WEFT_NEVER : now + duration;
}

const char *weft_strerror(int error)
{
    if (error == 0)
        return "success";
    if (error > 0)
        return "count";
    switch (error) {
    case -EAGAIN:
        return "not ready, or at a limit; try again";
    case -ETIMEDOUT:
        return "timed out";
    case -ECANCELED:
        return "canceled";
    case -EPIPE:
        return "closed";
    case -ENOMEM:
        return "out of memory";
    case -EINVAL:
        return "invalid argument";
    case -EDEADLK:
        return "would deadlock";
    case -ESHUTDOWN:
        return "shutting down";
    case -EALREADY:
        return "already done";
    case -EBUSY:
        return "busy";
    case -EPERM:
        return "not allowed from this context";
    case -EMFILE:
        return "too many open descriptors";
    default: {
        const char *text = strerrordesc_np(-error);
        return text ? text : "unknown error";
    }
    }
}

_Noreturn void weft__panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "weft: broken invariant at %s:%d: %s\n", file, line, what);
    abort();
}

void *weft__malloc(size_t size)
{
    return malloc(size);
}

void *weft__calloc(size_t count, size_t size)
{
    return calloc(count, size);
}

void *weft__aligned_alloc(size_t alignment, size_t size)
{
    void *memory = NULL;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

void weft__free(void *memory)
{
    free(memory);
}

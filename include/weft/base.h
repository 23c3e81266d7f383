/* SPDX-License-Identifier: MIT
 *
 * weft/base.h -- what every public header shares: visibility, time, errors.
 *
 * Time is a signed 64-bit count of nanoseconds on CLOCK_MONOTONIC (which does
 * not advance while the machine is suspended). A deadline is an absolute time;
 * two values are special, so that one function serves where others have three:
 *
 *   WEFT_TRY    never block: answer -EAGAIN where a wait would be needed
 *   WEFT_NEVER  no limit
 *
 * A deadline that has already passed still takes what is ready; it only does
 * not wait: the answer is then -ETIMEDOUT.
 *
 * Errors are negative errno values; 0 or a count is success. No function of
 * weft sets errno as its answer.
 */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API      __attribute__((visibility("default")))
#define WEFT_MUST_USE __attribute__((warn_unused_result))
#else
#define WEFT_API
#define WEFT_MUST_USE
#endif

/* Absolute monotonic time, or a duration, in nanoseconds. */
typedef int64_t weft_time;

#define WEFT_TRY   ((weft_time)INT64_MIN)
#define WEFT_NEVER ((weft_time)INT64_MAX)

#define WEFT_NSEC 1LL
#define WEFT_USEC (1000LL * WEFT_NSEC)
#define WEFT_MSEC (1000LL * WEFT_USEC)
#define WEFT_SEC  (1000LL * WEFT_MSEC)

/* The present time on CLOCK_MONOTONIC, ns. Callable from: any thread, any task,
 * a signal handler. Never fails. */
WEFT_API weft_time weft_now(void);

/* The deadline `duration` ns from now. A duration <= 0 gives the present time;
 * one that would pass the end of the clock gives WEFT_NEVER.
 * Callable from: any thread, any task, a signal handler. */
WEFT_API weft_time weft_after(weft_time duration);

/* Text for a negative errno value as weft returns it ("timed out", ...); 0 is
 * "success", a positive number is "count". The string is constant and never
 * NULL. Callable from: any thread, any task, a signal handler. */
WEFT_API const char *weft_strerror(int error);

/* The version of the library in use, "MAJOR.MINOR.PATCH". Constant string.
 * Callable from: any thread, any task, a signal handler. */
WEFT_API const char *weft_version(void);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * What the tests of the hand-off share: small payloads, and loops that answer.
 */
#ifndef WEFT_TESTS_BGWORKER_COMMON_H
#define WEFT_TESTS_BGWORKER_COMMON_H

#include "unit_test.h"

#include "harness.h"

#include "weft/bgworker.h"
#include "weft/runtime.h"
#include "weft/task.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#define ms(n) weft_after((n)*WEFT_MSEC)

static inline weft_buffer *number(int n)
{
    weft_buffer *b = NULL;
    assert_int_equal(weft_buffer_copy(&n, sizeof n, &b), 0);
    return b;
}

static inline int number_of(const weft_buffer *b)
{
    int n = -1;
    assert_non_null(b);
    assert_int_equal(weft_buffer_size(b), sizeof n);
    memcpy(&n, weft_buffer_data(b), sizeof n);
    return n;
}

/* Reads one update and gives its number back. */
static inline int read_number(weft_sent *s)
{
    weft_buffer *b = NULL;
    assert_int_equal(weft_sent_read(s, ms(20000), &b), 1);
    int n = number_of(b);
    weft_buffer_unref(b);
    return n;
}

static inline int read_end(weft_sent *s)
{
    weft_buffer *b = NULL;
    int r = weft_sent_read(s, ms(20000), &b);
    assert_null(b);
    return r;
}

static inline bool readable_within(int fd, int milliseconds)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, milliseconds) == 1;
}

/* Answers n with n + 1. */
static inline int echo_loop(weft_seat *seat, void *arg)
{
    (void)arg;
    while (weft_seat_tick(seat)) {
        weft_received *task;
        if (weft_seat_receive(seat, WEFT_NEVER, &task) != 0)
            continue;
        weft_buffer *b = number(number_of(weft_received_payload(task)) + 1);
        if (weft_received_complete(task, b) != 0)
            weft_buffer_unref(b);
        weft_received_free(task);
    }
    return 0;
}

static inline weft_registry *new_registry(void)
{
    weft_registry *reg = NULL;
    assert_int_equal(weft_registry_new(NULL, &reg), 0);
    return reg;
}

static inline weft_worker *start(weft_registry *reg, const char *name, weft_worker_fn loop,
                                 void *arg, unsigned seats)
{
    weft_worker *w = NULL;
    weft_worker_options o = {.loop = loop,
                             .arg = arg,
                             .seats = seats,
                             .backoff = 5 * WEFT_MSEC,
                             .grace = 50 * WEFT_MSEC};
    assert_int_equal(weft_worker_start(reg, name, &o, &w), 0);
    return w;
}

static inline weft_worker_stats stats_of(weft_worker *w)
{
    weft_worker_stats s;
    assert_int_equal(weft_worker_get_stats(w, &s), 0);
    return s;
}

/* What holds for a worker with nothing left to do. */
static inline void assert_at_rest(weft_worker *w)
{
    weft_worker_stats s = stats_of(w);
    uint64_t ended = 0;
    for (int i = 0; i < WEFT_TASK_OUTCOMES; i++)
        ended += s.outcomes[i];
    assert_int_equal(s.sent, ended);
    assert_int_equal(s.queued, 0);
    assert_int_equal(s.busy, 0);
    assert_int_equal(s.fallback_wakes, 0);
}

#endif

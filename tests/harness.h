/* SPDX-License-Identifier: MIT
 *
 * harness.h -- what tests that go beyond one function need: how much to do, with
 * which seed, when to give up, other processes, and what the process holds on to.
 * Linked into every test of the kinds unit, stress, integration and fault.
 */
#ifndef WEFT_TESTS_HARNESS_H
#define WEFT_TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* `rounds`, or a tenth of it (at least 1) under a sanitizer or valgrind; times
 * WEFT_ROUNDS (a factor such as 0.1 or 20) when that is in the environment. */
uint64_t test_rounds(uint64_t rounds);

/* The seed of this run, printed once: WEFT_SEED from the environment, or a fresh one. */
uint64_t test_seed(void);

/* Whether this program was built with the address or the thread sanitizer. */
bool test_sanitized(void);

/* The watchdog: when the process still runs `seconds` from now, it says so with the
 * name and the stack of the thread that the alarm came to (mostly the first one), and
 * aborts. A hang is a failure, never a skip. Calling again moves the limit; 0 takes it away.
 * Sanitizers get three times as long. */
void test_limit(unsigned seconds, const char *name);

/* Sleeps; for tests that need another thread or process to get on. */
void test_sleep_ms(unsigned milliseconds);

/* CLOCK_MONOTONIC in ns, read apart from the library under test. */
int64_t test_now(void);

/* A child process with its standard output and error in a pipe. */
struct test_process {
    pid_t pid;
    int output;
};

/* Starts argv[0] (searched in PATH). 0 or a negative errno value. The child dies when
 * its parent dies. */
int test_process_start(struct test_process *p, char *const argv[]);

/* Reads its output up to end of file (the rest is read and dropped) and waits for it,
 * `ms` at most, then kills it. Returns the exit status, 128 + N for death by signal N,
 * -ETIMEDOUT when it had to be killed. `ret_output` ends with a NUL. */
int test_process_finish(struct test_process *p, unsigned ms, char *ret_output, size_t size);

/* Start and finish. */
int test_run(char *const argv[], unsigned ms, char *ret_output, size_t size);

/* Whether a program of that name is in PATH. */
bool test_has_program(const char *name);

/* A TCP port on 127.0.0.1 that was free a moment ago. Prefer listening on port 0. */
uint16_t test_free_port(void);

#endif

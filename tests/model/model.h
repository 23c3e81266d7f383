/* SPDX-License-Identifier: MIT
 *
 * model.h -- steps weft's real code through every interleaving.
 *
 * A scenario has a few model threads: coroutines in one OS thread. Each atomic
 * access of the code under test, each futex call and each model_choose() is a
 * step, and the checker decides before every step who goes next. It runs the
 * scenario again and again, each time with another order, until no order is left
 * that could end differently (dynamic partial order reduction, explore.c). Plain
 * accesses are watched for data races with the memory orders as they are written
 * (race.c). docs/model-checking.md is the guide.
 *
 * A test file is named NAME_model.c, includes the .c files that it checks, and
 * keeps the scenario's objects in static variables or in memory of weft__malloc,
 * so that an address is the same in each execution.
 *
 * To see one schedule again: WEFT_MODEL_SCHEDULE="SCENARIO:SCHEDULE" and the test
 * program; the text is in the failure's message.
 */
#ifndef WEFT_TESTS_MODEL_H
#define WEFT_TESTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MODEL_THREADS = 6,
    MODEL_JUMP = 5000000, /* ns */
    MODEL_STEPS = 600,    /* an execution that is longer counts as a livelock */
};

struct model_scenario {
    const char *name; /* no colon */
    int threads;
    void (*setup)(void);           /* before each execution: everything to its start */
    void (*run)(int thread);       /* the body of each thread; must not longjmp */
    void (*check)(void);           /* after each execution that came to its end; may be NULL */
    void (*on_switch)(int thread); /* `thread` runs from now on; may be NULL */
    unsigned may_sleep;            /* bit i: thread i may sleep for ever at the end */
    int spurious;                  /* so many futex waits of each thread may end for no reason */
    int jumps;                     /* so often each thread's clock may have gone on MODEL_JUMP */
    bool all;                      /* no reduction: all orders of all steps with an address */
    int preemptions;               /* with `all`: at most so many, 0 for no bound */
    bool eager;                    /* tries the other threads first: another way to the same */
    bool quiet;                    /* no line with the counts */
    unsigned long limit;           /* of executions; 0: a few million */
};

struct model_result {
    unsigned long executions; /* run to the end */
    unsigned long cut;        /* given up: all that could follow was seen before */
    unsigned long steps;      /* of all executions */
    int longest;              /* steps of the longest execution */
    bool complete;            /* false: the limit came first */
    bool failed;
    char why[400];
    char schedule[2 * MODEL_STEPS + 1];
};

/* Explores; prints one line with the counts. */
struct model_result model_run(const struct model_scenario *s);

/* For tests: explores and fails the cmocka test unless it is complete and holds. */
void model_must_hold(const struct model_scenario *s);

/* Same for a planted bug: it must be found, and `why` be part of the message. */
void model_must_find(const struct model_scenario *s, const char *why);

/* ---- Inside a scenario ---- */

/* One of 0..n-1; each is explored. A step of its own. */
int model_choose(int n);

/* Ends the execution, and the exploration, as failed. */
_Noreturn void model_fail(const char *file, int line, const char *what);
#define model_check(cond) ((cond) ? (void)0 : model_fail(__FILE__, __LINE__, #cond))

/* A name for an address in traces; in setup. */
void model_name(const void *address, size_t size, const char *name);

#endif

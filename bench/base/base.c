/* SPDX-License-Identifier: MIT
 *
 * The raw baselines: a futex wake between two threads, and nanosleep.
 */
#include "base.h"

#include "bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct base_sleeper {
    _Atomic uint32_t turn; /* the futex; counts the wake-ups asked for */
    atomic_bool stop;
    _Atomic weft_time ran;
    pthread_t thread;
};

static void *sleeper(void *p)
{
    base_sleeper *s = p;
    uint32_t seen = 0;
    for (;;) {
        while (atomic_load(&s->turn) == seen)
            syscall(SYS_futex, &s->turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        seen = atomic_load(&s->turn);
        if (atomic_load(&s->stop))
            return NULL;
        atomic_store(&s->ran, weft_now());
    }
}

static void wake(base_sleeper *s)
{
    atomic_fetch_add(&s->turn, 1);
    syscall(SYS_futex, &s->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

base_sleeper *base_sleeper_start(void)
{
    base_sleeper *s = bench_alloc(sizeof *s);
    bench_check(pthread_create(&s->thread, NULL, sleeper, s) == 0, "pthread_create");
    return s;
}

double base_sleeper_wake(base_sleeper *s)
{
    atomic_store(&s->ran, 0);
    weft_time t0 = weft_now();
    wake(s);
    base_nap(200 * WEFT_USEC);
    while (!atomic_load(&s->ran))
        base_nap(50 * WEFT_USEC);
    return (double)(atomic_load(&s->ran) - t0) / 1e3;
}

void base_sleeper_stop(base_sleeper *s)
{
    atomic_store(&s->stop, true);
    wake(s);
    pthread_join(s->thread, NULL);
    free(s);
}

void base_nap(weft_time duration)
{
    struct timespec t = {duration / WEFT_SEC, duration % WEFT_SEC};
    while (nanosleep(&t, &t))
        ;
}

double base_nanosleep_overshoot(weft_time duration)
{
    weft_time t0 = weft_now();
    base_nap(duration);
    return bench_ns(t0) - (double)duration;
}

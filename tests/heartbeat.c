/* SPDX-License-Identifier: MIT
 *
 * heartbeat.c -- see heartbeat.h.
 */
#include "heartbeat.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "harness.h"

static struct heart {
    pthread_t thread;
    size_t processor;
    _Atomic int64_t counted;
} hearts[BEAT_PROCESSORS];

static int count;
static atomic_bool stopping;

static void *beats(void *arg)
{
    struct heart *h = arg;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(h->processor, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    int64_t last = test_now();
    while (!atomic_load(&stopping)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        int64_t now = test_now(), passed = now - last;
        atomic_fetch_add(&h->counted, passed < BEAT_COUNTS ? passed : BEAT_COUNTS);
        last = now;
    }
    return NULL;
}

void beat_start(void)
{
    cpu_set_t mine;
    atomic_store(&stopping, false);
    count = 0;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        abort();
    for (size_t i = 0; i < CPU_SETSIZE && count < BEAT_PROCESSORS; i++) {
        if (!CPU_ISSET(i, &mine))
            continue;
        hearts[count].processor = i;
        if (pthread_create(&hearts[count].thread, NULL, beats, &hearts[count]) != 0)
            abort();
        count++;
    }
}

void beat_stop(void)
{
    atomic_store(&stopping, true);
    for (int i = 0; i < count; i++)
        pthread_join(hearts[i].thread, NULL);
}

void beat_mark(struct beat *ret)
{
    for (int i = 0; i < count; i++)
        ret->at[i] = atomic_load(&hearts[i].counted);
}

int64_t beat_since(const struct beat *mark)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < count; i++) {
        int64_t since = atomic_load(&hearts[i].counted) - mark->at[i];
        if (since < least)
            least = since;
    }
    return least;
}

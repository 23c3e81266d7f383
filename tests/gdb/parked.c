/* SPDX-License-Identifier: MIT
 *
 * A program with parked fibers for tests/gdb/run: it prints "parked" and
 * waits for a debugger, or for the SIGABRT that makes it leave a core file. */
#include <stdio.h>
#include <unistd.h>

#include "weft/weft.h"

static weft_event never = WEFT_EVENT_INIT;
static weft_channel *empty;
static weft_mutex held = WEFT_MUTEX_INIT;

__attribute__((noinline)) static int waits_for_the_event(int depth)
{
    int r = depth ? waits_for_the_event(depth - 1) : weft_event_wait(&never, WEFT_NEVER);
    __asm__ volatile("" ::: "memory"); /* not a tail call */
    return r;
}

__attribute__((noinline)) static int waits_for_an_item(void)
{
    int item;
    int r = weft_channel_recv(empty, &item, WEFT_NEVER);
    __asm__ volatile("" ::: "memory");
    return r;
}

__attribute__((noinline)) static int waits_for_the_mutex(void)
{
    int r = weft_mutex_lock(&held, weft_after(3600 * WEFT_SEC));
    __asm__ volatile("" ::: "memory");
    return r;
}

static int fiber(void *arg)
{
    switch ((size_t)arg % 3) {
    case 0:
        return waits_for_the_event((int)(size_t)arg);
    case 1:
        return waits_for_an_item();
    default:
        return waits_for_the_mutex();
    }
}

int main(void)
{
    static char names[20][16];
    weft_runtime *rt;
    if (weft_runtime_new(&(weft_runtime_options){.workers = 2, .name = "gdbtest"}, &rt) ||
        weft_channel_new(sizeof(int), 1, NULL, &empty) || weft_mutex_lock(&held, WEFT_NEVER))
        return 1;
    for (size_t i = 0; i < 20; i++) {
        snprintf(names[i], sizeof names[i], "parked-%zu", i);
        if (weft_spawn(rt, fiber, (void *)i, &(weft_spawn_options){.name = names[i]}, NULL))
            return 1;
    }
    usleep(200000);
    puts("parked");
    fflush(stdout);
    pause();
    return 0;
}

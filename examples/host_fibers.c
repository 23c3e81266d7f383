/* SPDX-License-Identifier: MIT
 *
 * host_fibers.c -- weft inside a host that has fibers of its own. A fiber of the host
 * produces, a task of weft's consumes, through a channel with one place; a thread sends
 * in a task while everybody waits, and it starts at once.
 */
#include "mini_host.h"

#include <weft/weft.h>

#include <pthread.h>
#include <stdio.h>

enum { ITEMS = 1000 };

static weft_host *host;

static void produce(mini_fiber *self, void *arg)
{
    int r = 0;
    for (int i = 1; i <= ITEMS && r == 0; i++)
        r = mini_send(self, arg, &i, WEFT_NEVER);
    weft_channel_close(arg);
}

static int consume(void *arg)
{
    long sum = 0;
    int item;
    while (weft_channel_recv(arg, &item, WEFT_NEVER) == 0)
        sum += item;
    printf("the task received %ld\n", sum);
    return 0;
}

static void nap(mini_fiber *self, void *arg)
{
    weft_time start = weft_now();
    (void)arg;
    int r = mini_sleep(self, 50 * WEFT_MSEC);
    printf("the host's fiber slept: %s\n",
           r == 0 && weft_now() - start >= 50 * WEFT_MSEC ? "yes" : "no");
}

static int visit(void *arg)
{
    printf("a task came from a thread\n");
    weft_host_stop(arg);
    return 0;
}

static void *send_visitor(void *arg)
{
    weft_sleep(100 * WEFT_MSEC);
    return (void *)(intptr_t)weft_spawn(arg, visit, host, NULL, NULL);
}

int main(void)
{
    weft_runtime *rt = NULL;
    weft_channel *channel = NULL;
    mini_host mine = {.source = {.look = mini_look}};
    pthread_t thread;
    mine.source.arg = &mine;
    int r = weft_driven_new(NULL, &rt);
    if (!r)
        r = weft_host_new(rt, NULL, &host);
    if (!r)
        r = weft_host_add(host, &mine.source);
    if (!r)
        r = weft_channel_new(sizeof(int), 1, NULL, &channel);
    if (!r)
        r = weft_spawn(rt, consume, channel, NULL, NULL);
    if (!r) {
        mini_spawn(&mine, produce, channel);
        mini_spawn(&mine, nap, NULL);
        r = -pthread_create(&thread, NULL, send_visitor, rt);
    }
    if (!r) {
        r = weft_host_run(host, weft_after(20 * WEFT_SEC));
        pthread_join(thread, NULL);
    }
    weft_host_free(host);
    weft_runtime_free(rt);
    weft_channel_unref(channel);
    if (r)
        fprintf(stderr, "host_fibers: %s\n", weft_strerror(r));
    return r != 0;
}

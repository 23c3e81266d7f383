/* SPDX-License-Identifier: MIT
 *
 * A million tasks without stacks: half of them wait for a turn from one channel, half for
 * a time of their own. Prints how many were answered, and what a waiting task costs.
 *
 *     million [TASKS] */
#include <weft/weft.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct world {
    weft_channel *turns, *answers;
};

struct listener {
    int line, r, turn;
    struct world *world;
    weft_poll_op op;
};

/* Waits for a turn, and answers it. */
static int listen_once(weft_task *self, void *state)
{
    struct listener *l = state;
    WEFT_POLL_BEGIN(l->line);
    WEFT_POLL_AWAIT(
        l->line, l->r,
        weft_poll_do(self, &l->op, weft_case_recv(l->world->turns, &l->turn), WEFT_NEVER));
    if (l->r)
        return l->r;
    WEFT_POLL_AWAIT(
        l->line, l->r,
        weft_poll_do(self, &l->op, weft_case_send(l->world->answers, &l->turn), WEFT_NEVER));
    WEFT_POLL_END;
    return l->r;
}

struct sleeper {
    weft_time until;
};

/* 24 bytes of state lie in the task itself: nothing else is allocated. */
static int sleep_once(weft_task *self, void *state)
{
    struct sleeper *s = state;
    return weft_poll_sleep_until(self, s->until);
}

static size_t resident_kib(void)
{
    size_t size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%zu %zu", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

static int million(void *arg)
{
    int tasks = *(int *)arg, listeners = tasks / 2, r = 0;
    struct world world;
    if (weft_channel_new(sizeof(int), 128, NULL, &world.turns) ||
        weft_channel_new(sizeof(int), 128, NULL, &world.answers))
        return -ENOMEM;
    size_t before = resident_kib();
    weft_scope *scope;
    r = weft_scope_open(NULL, &scope);
    if (r)
        return r;
    weft_time begun = weft_now();
    for (int i = 0; i < tasks && !r; i++) {
        struct listener l = {.world = &world};
        struct sleeper s = {begun + 2 * WEFT_SEC + i % 1000 * WEFT_MSEC};
        r = i < listeners ? weft_scope_spawn_poll(scope, listen_once, &l, sizeof l, NULL, NULL)
                          : weft_scope_spawn_poll(scope, sleep_once, &s, sizeof s, NULL, NULL);
    }
    weft_sleep(WEFT_MSEC); /* let all begin to wait */
    size_t each = (resident_kib() - before) * 1024 / (size_t)tasks;
    fprintf(stderr, "%d tasks wait, about %zu bytes each\n", tasks, each);

    long sum = 0, expected = 0;
    int answered = 0, sent = 0, item;
    while (!r && answered < listeners) {
        weft_select_case cases[] = {weft_case_send(world.turns, &sent),
                                    weft_case_recv(world.answers, &item)};
        cases[0].off = sent == listeners;
        r = weft_select(cases, 2, 0, WEFT_NEVER);
        if (r == 0)
            expected += sent++;
        if (r == 1) {
            sum += item;
            answered++;
            r = 0;
        }
    }
    if (r)
        weft_scope_cancel(scope);
    int failed = weft_scope_close(scope, NULL);
    printf("%d of %d listeners answered, %s; the sleepers woke: %s\n", answered, listeners,
           sum == expected ? "each turn once" : "turns are missing", failed ? "no" : "yes");
    weft_channel_unref(world.turns);
    weft_channel_unref(world.answers);
    return r ? r : failed;
}

int main(int argc, char **argv)
{
    int tasks = argc > 1 ? atoi(argv[1]) : 1000000, result = 0;
    int r = tasks > 1 ? weft_run(NULL, million, &tasks, &result) : -EINVAL;
    if (r || result)
        fprintf(stderr, "million: %s\n", weft_strerror(r ? r : result));
    return r || result;
}

/* SPDX-License-Identifier: MIT
 *
 * dump.c -- what every worker and task is doing, as text, without stopping anybody:
 * slots are type-stable and read with atomics, so a line may be a moment old but is
 * never garbage. Nothing is allocated and no lock of a task is taken, so a dump works
 * while all workers are stuck.
 */
#include "sched/worker.h"

#include <stdio.h>
#include <unistd.h>

struct dump {
    int fd;
    int error;
    weft_time now;
};

static void put(struct dump *d, const char *text, int length)
{
    while (length > 0 && !d->error) {
        ssize_t n = write(d->fd, text, (size_t)length);
        if (n >= 0) {
            text += n;
            length -= (int)n;
        } else if (errno != EINTR) {
            d->error = -errno;
        }
    }
}

static void dump_task(weft_task *t, void *arg)
{
    struct dump *d = arg;
    char line[256];
    const char *what = atom_load_rlx(&t->parker.what);
    uint32_t word = atom_load_rlx(&t->parker.word);
    const char *name = atom_load_rlx(&t->name);
    const char *state = "ready";
    if (atom_load_rlx(&t->refs) & WEFT__TASK_DONE)
        state = "done";
    else if ((word & WEFT__WAIT_PHASE) == WEFT__WAIT_WAITING && what)
        state = "waiting";
    double age = (double)(d->now - (weft_time)atom_load_rlx(&t->since)) / 1e9;
    int n = snprintf(line, sizeof line, "task %#llx %-20.40s %-8s %-16s %p %.3f s%s\n",
                     (unsigned long long)atom_load_rlx(&t->id), name ? name : "-", state,
                     what ? what : "-", atom_load_rlx(&t->parker.object), age < 0 ? 0 : age,
                     atom_load_rlx(&t->parker.cancel) & WEFT__CANCEL ? " cancelled" : "");
    put(d, line, n < (int)sizeof line ? n : (int)sizeof line - 1);
}

int weft_runtime_dump(weft_runtime *rt, int fd)
{
    if (!rt || fd < 0)
        return -EINVAL;
    if (weft__forked(rt))
        return -ENXIO;
    struct dump d = {fd, 0, weft__sys_now()};
    char line[256];
    for (unsigned i = 0; i < rt->workers; i++) {
        weft__worker *w = &rt->worker[i];
        int n = snprintf(line, sizeof line, "worker %s/%u %s switches %llu queued %u%s%s\n",
                         rt->name, i, atom_load_rlx(&w->asleep) ? "asleep" : "awake",
                         (unsigned long long)atom_load_rlx(&w->tick), weft__runq_length(&w->runq),
                         atom_load_rlx(&rt->keeper) == i + 1 ? " keeper" : "",
                         atom_load_rlx(&rt->watcher) == i + 1 ? " watcher" : "");
        put(&d, line, n);
    }
    if (rt->pool) {
        int n = snprintf(line, sizeof line, "pool queued %zu\n", weft_pool_length(rt->pool));
        put(&d, line, n);
    }
    weft__task_each(&rt->depot, dump_task, &d);
    return d.error;
}

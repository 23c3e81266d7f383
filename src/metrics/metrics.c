/* SPDX-License-Identifier: MIT
 *
 * metrics.c -- the sources, and a walk over them that holds no lock.
 *
 * A writing copies the list of sources with a use on each, lets go of the lock, and only
 * then reads them, calls functions, and writes. So nobody waits for a writing but
 * weft_metrics_remove, and that only if it is told to.
 *
 *   uses     one for being in the list, one for each writing under way; who drops the
 *            last calls `release` and then sets `gone`
 *   holders  who may still touch the memory: the uses (together one), and the remover
 */
#include "metrics/metrics.h"

#include "base/list.h"
#include "base/lock.h"

#include "weft/event.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct weft_metrics {
    weft__lock lock;
    unsigned count;
    weft__list sources;
};

static void holder_drop(weft_metrics_source *s)
{
    if (atom_sub_ar(&s->holders, 1u) == 1) /* pairs with the other holder's */
        weft__free(s);
}

static void use_drop(weft_metrics_source *s)
{
    if (atom_sub_ar(&s->uses, 1u) != 1) /* pairs with the other uses' */
        return;
    if (s->metric.release)
        s->metric.release(s->metric.arg);
    weft_event_set(&s->gone);
    holder_drop(s);
}

/* ---- The list ---- */

int weft_metrics_new(weft_metrics **ret)
{
    if (!ret)
        return -EINVAL;
    weft_metrics *m = weft__calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    weft__list_init(&m->sources);
    *ret = m;
    return 0;
}

weft_metrics *weft_metrics_free(weft_metrics *m)
{
    weft__link *l;
    if (!m)
        return NULL;
    while ((l = weft__list_pop(&m->sources))) {
        weft_metrics_source *s = weft__container(l, weft_metrics_source, link);
        use_drop(s);
        holder_drop(s);
    }
    weft__free(m);
    return NULL;
}

static int add(weft_metrics *m, const weft_metrics_source *what, weft_metrics_source **ret)
{
    weft_metrics_source *s = weft__malloc(sizeof *s);
    if (!s)
        return -ENOMEM;
    *s = *what;
    s->uses.raw = 1;
    s->holders.raw = 2;
    weft_event_init(&s->gone);
    weft__acquire(&m->lock);
    weft__list_push(&m->sources, &s->link);
    m->count++;
    weft__release(&m->lock);
    if (ret)
        *ret = s;
    return 0;
}

int weft_metrics_add_runtime(weft_metrics *m, const char *name, weft_runtime *rt,
                             weft_metrics_source **ret)
{
    if (!m || !rt || !name || !*name || strlen(name) > WEFT_NAME_MAX)
        return -EINVAL;
    weft_metrics_source s = {.kind = WEFT__SOURCE_RUNTIME, .runtime = rt};
    snprintf(s.name, sizeof s.name, "%s", name);
    return add(m, &s, ret);
}

int weft_metrics_add_registry(weft_metrics *m, weft_registry *reg, weft_metrics_source **ret)
{
    if (!m || !reg)
        return -EINVAL;
    weft_metrics_source s = {.kind = WEFT__SOURCE_REGISTRY, .registry = reg};
    return add(m, &s, ret);
}

static bool name_ok(const char *name)
{
    if (!name || !*name || (*name >= '0' && *name <= '9'))
        return false;
    for (const char *c = name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              *c == '_' || *c == ':'))
            return false;
    return true;
}

static bool fits(char *to, size_t size, const char *from)
{
    return snprintf(to, size, "%s", from ? from : "") < (int)size && !strchr(to, '\n');
}

int weft_metrics_add_value(weft_metrics *m, const weft_metric *metric, weft_metrics_source **ret)
{
    weft_metrics_source s = {.kind = WEFT__SOURCE_VALUE};
    if (!m || !metric || !metric->read || !name_ok(metric->name) ||
        metric->kind > WEFT_METRIC_COUNTER || !fits(s.name, sizeof s.name, metric->name) ||
        !fits(s.help, sizeof s.help, metric->help) ||
        !fits(s.labels, sizeof s.labels, metric->labels))
        return -EINVAL;
    s.metric = *metric;
    return add(m, &s, ret);
}

int weft_metrics_remove(weft_metrics *m, weft_metrics_source *source, weft_time deadline)
{
    if (!m || !source)
        return -EINVAL;
    weft__acquire(&m->lock);
    weft__list_remove(&source->link);
    m->count--;
    weft__release(&m->lock);
    use_drop(source);
    int r = weft_event_wait(&source->gone, deadline);
    holder_drop(source);
    return r;
}

/* ---- A writing ---- */

int weft__sources_use(weft_metrics *m, weft_metrics_source ***ret, unsigned *ret_count)
{
    weft_metrics_source **all = NULL;
    unsigned room = 0, n;
    for (;;) {
        weft__acquire(&m->lock);
        n = 0;
        bool enough = m->count <= room;
        if (enough)
            weft__list_for (&m->sources, l) {
                all[n] = weft__container(l, weft_metrics_source, link);
                atom_add_rlx(&all[n++]->uses, 1u);
            }
        else
            n = m->count;
        weft__release(&m->lock);
        if (enough)
            break;
        weft__free(all);
        room = n + 8;
        all = weft__calloc(room, sizeof *all);
        if (!all)
            return -ENOMEM;
    }
    *ret = all;
    *ret_count = n;
    return 0;
}

void weft__sources_drop(weft_metrics_source **all, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        use_drop(all[i]);
    weft__free(all);
}

static int finish(weft__text *text, int r, weft_metrics_write_fn write, void *arg)
{
    if (r == 0 && text->failed)
        r = -ENOMEM;
    if (r == 0 && text->size > 0)
        r = write(arg, text->data, text->size);
    weft__free(text->data);
    return r;
}

int weft_metrics_write(weft_metrics *m, weft_metrics_write_fn write, void *arg)
{
    if (!m || !write)
        return -EINVAL;
    weft__text text = {0};
    return finish(&text, weft__prometheus(m, &text), write, arg);
}

int weft_metrics_write_threads(weft_metrics *m, weft_metrics_write_fn write, void *arg)
{
    if (!m || !write)
        return -EINVAL;
    weft__text text = {0};
    return finish(&text, weft__threads_json(m, &text), write, arg);
}

static int write_fd(void *arg, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t n = write(*(int *)arg, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

int weft_metrics_write_fd(weft_metrics *m, int fd)
{
    return weft_metrics_write(m, write_fd, &fd);
}

int weft_metrics_write_threads_fd(weft_metrics *m, int fd)
{
    return weft_metrics_write_threads(m, write_fd, &fd);
}

/* SPDX-License-Identifier: MIT
 *
 * combine.c -- see weft/combine.h. A crew of tasks in a scope. For map-reduce they take
 * indices from a counter and send results to the caller, and the last one that leaves
 * closes the channel, so that the caller never waits for a crew that is gone. For a
 * pipeline they share the two channels, and the scope's fail-fast stops all.
 */
#include "weft/combine.h"

#include "base/atomic.h"
#include "base/base.h"
#include "sched/worker.h"
#include "weft/scope.h"

#define PARALLEL     64u
#define PARALLEL_MAX 65536u

static bool valid(const weft_combine_options *o, unsigned flags)
{
    return !(o->flags & ~flags) && o->parallel <= PARALLEL_MAX && o->deadline >= 0 &&
           (o->runtime || weft_runtime_current());
}

static weft_time limit_of(const weft_combine_options *o)
{
    return o->deadline ? o->deadline : WEFT_NEVER;
}

/* Starts up to `count` tasks; how many, or why not even one. */
static int man(weft_scope *s, weft_fn fn, void *arg, size_t count)
{
    size_t started = 0;
    int r = 0;
    while (started < count && (r = weft_scope_spawn(s, fn, arg, NULL, NULL)) == 0)
        started++;
    return started ? (int)started : r;
}

static size_t crew_size(const weft_combine_options *o)
{
    return o->parallel ? o->parallel : PARALLEL;
}

/* ---- Map-reduce ---- */

struct result {
    size_t index;
    int value;
};

struct map {
    size_t n;
    weft_map_fn map;
    weft_reduce_fn reduce;
    void *arg;
    weft_channel *results;
    weft__a64 next;
    weft__a32 crew; /* 1 for the caller, until all are started */
};

static void leave(struct map *m)
{
    if (atom_sub_ar(&m->crew, 1u) == 1)
        weft_channel_close(m->results);
}

static int mapper(void *arg)
{
    struct map *m = arg;
    int r = 0;
    while (!r) {
        struct result result = {(size_t)atom_add_rlx(&m->next, 1u), 0};
        if (result.index >= m->n || weft_cancelled())
            break;
        result.value = m->map(m->arg, result.index);
        r = weft_channel_send(m->results, &result, WEFT_NEVER);
    }
    leave(m);
    return 0;
}

static int reduce_one(struct map *m, size_t index, int value)
{
    int r = m->reduce ? m->reduce(m->arg, index, value) : value;
    return r < 0 ? r : 0;
}

struct kept {
    int value;
    bool there;
};

/* `kept` has a place for each result, or is NULL: as they come. */
static int reduce_all(struct map *m, struct kept *kept, weft_time deadline)
{
    size_t due = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct result got;
        int r = weft_channel_recv(m->results, &got, deadline);
        if (r)
            return r == -EPIPE ? -ECANCELED : r;
        if (!kept) {
            r = reduce_one(m, got.index, got.value);
        } else {
            kept[got.index] = (struct kept){got.value, true};
            for (; !r && due < m->n && kept[due].there; due++)
                r = reduce_one(m, due, kept[due].value);
        }
        if (r)
            return r;
    }
    return 0;
}

static int run_map(struct map *m, struct kept *kept, const weft_combine_options *o)
{
    weft_scope *scope;
    int r = weft_scope_open(&(weft_scope_options){.runtime = o->runtime}, &scope);
    if (r)
        return r;
    size_t crew = crew_size(o) < m->n ? crew_size(o) : m->n;
    atom_store_rlx(&m->crew, (uint32_t)crew + 1);
    int started = man(scope, mapper, m, crew);
    /* The places that stayed empty, and the caller's. */
    for (size_t i = started > 0 ? (size_t)started : 0; i < crew + 1; i++)
        leave(m);
    r = started < 0 ? started : reduce_all(m, kept, limit_of(o));
    if (r)
        weft_scope_cancel(scope);
    weft_scope_close(scope, NULL);
    return r;
}

int weft_map_reduce(size_t n, weft_map_fn map, weft_reduce_fn reduce, void *arg,
                    const weft_combine_options *options)
{
    static const weft_combine_options defaults;
    const weft_combine_options *o = options ? options : &defaults;
    if (!map || !valid(o, WEFT_COMBINE_ORDERED))
        return -EINVAL;
    if (n == 0)
        return 0;
    struct map m = {.n = n, .map = map, .reduce = reduce, .arg = arg};
    struct kept *kept = NULL;
    bool ordered = o->flags & WEFT_COMBINE_ORDERED;
    if (ordered && !(kept = weft__calloc(n, sizeof *kept)))
        return -ENOMEM;
    int r = weft_channel_new(sizeof(struct result), crew_size(o), NULL, &m.results);
    if (!r) {
        r = run_map(&m, kept, o);
        weft_channel_unref(m.results);
    }
    weft__free(kept);
    return r;
}

/* ---- Pipeline ---- */

struct stage {
    weft_channel *in, *out;
    weft_filter_fn filter;
    void *arg;
};

static int run_filter(struct stage *s, void *in, void *out)
{
    for (;;) {
        int r = weft_channel_recv(s->in, in, WEFT_NEVER);
        if (r)
            return r == -EPIPE ? 0 : r;
        r = s->filter(s->arg, in, out);
        if (r == 0 && s->out)
            r = weft_channel_send(s->out, out, WEFT_NEVER);
        if (r < 0)
            return r;
    }
}

static int filterer(void *arg)
{
    struct stage *s = arg;
    size_t in_size = (weft_channel_item_size(s->in) + 15u) & ~(size_t)15u;
    size_t out_size = s->out ? weft_channel_item_size(s->out) : 0;
    char *items = weft__malloc(in_size + out_size + 1);
    if (!items)
        return -ENOMEM;
    int r = run_filter(s, items, s->out ? items + in_size : NULL);
    weft__free(items);
    return r;
}

int weft_pipeline(weft_channel *in, weft_channel *out, weft_filter_fn filter, void *arg,
                  const weft_combine_options *options)
{
    static const weft_combine_options defaults;
    const weft_combine_options *o = options ? options : &defaults;
    if (!in || !filter || in == out || !valid(o, 0))
        return -EINVAL;
    struct stage stage = {in, out, filter, arg};
    weft_scope *scope;
    int r = weft_scope_open(&(weft_scope_options){.runtime = o->runtime,
                                                  .flags = WEFT_SCOPE_FAIL_FAST,
                                                  .deadline = o->deadline},
                            &scope);
    if (!r) {
        int started = man(scope, filterer, &stage, crew_size(o));
        r = weft_scope_close(scope, NULL);
        if (started < 0)
            r = started;
    }
    if (r)
        weft_channel_close(in);
    if (out)
        weft_channel_close(out);
    return r;
}

/* SPDX-License-Identifier: MIT
 *
 * variable.c -- see weft/variable.h. Everything under the lock; two queues, so that a
 * change wakes only those who wait for changes, and finishing wakes both.
 *
 * A waiter is claimed with 0 and reads version and value afterwards: the newest, not
 * necessarily those that woke it.
 */
#include "weft/variable.h"

#include "sync/queue.h"
#include "wait/select.h"

struct variable {
    weft__lock lock;
    uint32_t finished;
    uint64_t version;
    void *value;
    weft__list finish_queue, change_queue;
};
_Static_assert(sizeof(struct variable) == sizeof(weft_variable), "the public struct is storage");

static struct variable *of(const weft_variable *v)
{
    return (struct variable *)(uintptr_t)v;
}

/* ---- Waiting ---- */

static int finish_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)n;
    (void)wakes;
    return ((struct variable *)object)->finished ? 0 : -EAGAIN;
}

static void finish_link(void *object, weft__wait_node *n)
{
    weft__queue_push(&((struct variable *)object)->finish_queue, n);
}

/* arg: the version that the waiter has seen. */
static int change_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    const struct variable *v = object;
    (void)wakes;
    if (v->version != n->arg)
        return 0;
    return v->finished ? -EPIPE : -EAGAIN;
}

static void change_link(void *object, weft__wait_node *n)
{
    weft__queue_push(&((struct variable *)object)->change_queue, n);
}

static void unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops finish_ops = {"variable", finish_try, finish_link, unlink};
static const weft__waitable_ops change_ops = {"variable change", change_try, change_link, unlink};

int weft_variable_wait(weft_variable *variable, weft_time deadline, void **ret_value)
{
    struct variable *v = of(variable);
    weft__wait_node n = {0};
    if (!v)
        return -EINVAL;
    int r = weft__wait_on(&finish_ops, v, &v->lock, &n, deadline);
    if (r == 0)
        weft_variable_get(variable, ret_value);
    return r;
}

int weft_variable_wait_change(weft_variable *variable, uint64_t *seen, weft_time deadline,
                              void **ret_value)
{
    struct variable *v = of(variable);
    weft__wait_node n = {0};
    if (!v || !seen)
        return -EINVAL;
    n.arg = (uintptr_t)*seen;
    int r = weft__wait_on(&change_ops, v, &v->lock, &n, deadline);
    if (r == 0)
        *seen = weft_variable_get(variable, ret_value);
    return r;
}

weft_select_case weft_case_variable(weft_variable *variable)
{
    struct variable *v = of(variable);
    return weft__case_of(v ? &finish_ops : NULL, v, v ? &v->lock : NULL, NULL);
}

weft_select_case weft_case_variable_change(weft_variable *variable, uint64_t seen)
{
    struct variable *v = of(variable);
    weft_select_case c = weft__case_of(v ? &change_ops : NULL, v, v ? &v->lock : NULL, NULL);
    c.weft__arg = seen;
    return c;
}

/* ---- Changing ---- */

static int change(struct variable *v, bool only_if, void *expected, void *value, bool finish,
                  void **ret_old)
{
    weft__list taken;
    weft__acquire(&v->lock);
    int r = v->finished ? -EALREADY : only_if && v->value != expected ? -EAGAIN : 0;
    if (r) {
        weft__release(&v->lock);
        return r;
    }
    if (ret_old)
        *ret_old = v->value;
    v->value = value;
    v->version++;
    weft__queue_take(&v->change_queue, &taken);
    if (finish) {
        v->finished = 1;
        if (!weft__queue_empty(&v->finish_queue))
            weft__list_splice(&taken, &v->finish_queue);
    }
    weft__queue_wake_all(&v->lock, &taken, 0);
    return 0;
}

int weft_variable_set(weft_variable *v, void *value, void **ret_old)
{
    return v ? change(of(v), false, NULL, value, false, ret_old) : -EINVAL;
}

int weft_variable_replace(weft_variable *v, void *expected, void *value)
{
    return v ? change(of(v), true, expected, value, false, NULL) : -EINVAL;
}

int weft_variable_finish(weft_variable *v, void *value, void **ret_old)
{
    return v ? change(of(v), false, NULL, value, true, ret_old) : -EINVAL;
}

/* ---- Reading ---- */

uint64_t weft_variable_get(const weft_variable *variable, void **ret_value)
{
    struct variable *v = of(variable);
    if (!v)
        return 0;
    weft__acquire(&v->lock);
    uint64_t version = v->version;
    if (ret_value)
        *ret_value = v->value;
    weft__release(&v->lock);
    return version;
}

bool weft_variable_is_finished(const weft_variable *variable)
{
    struct variable *v = of(variable);
    if (!v)
        return false;
    weft__acquire(&v->lock);
    bool finished = v->finished;
    weft__release(&v->lock);
    return finished;
}

int weft_variable_init(weft_variable *v, void *value)
{
    if (!v)
        return -EINVAL;
    *v = (weft_variable){.weft__value = value};
    return 0;
}

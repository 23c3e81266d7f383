/* SPDX-License-Identifier: MIT
 *
 * watch.c -- see weft/watch.h. The item, its version, and a queue of those who have seen it,
 * all under one lock.
 *
 * Invariants, under the lock
 *   W1  Who waits has seen at least `version`, or is a node in the list that the present set
 *       or close has taken and is serving; so whoever sets or closes serves them all.
 *   W2  A waiter is given the item as it is when it is claimed, by the claimer, after the
 *       claim and under the lock. The queue is served in batches, and what is set between two
 *       of them is what the rest gets. So nobody gets a torn item, or an older one than
 *       another got before.
 *   W3  Whoever sets or closes holds a reference, so the watch outlives the batches.
 */
#include "weft/watch.h"

#include <string.h>

#include "sync/queue.h"
#include "wait/select.h"

#define ITEM_MAX ((size_t)1 << 20)

struct weft_watch {
    weft__lock lock;
    weft__a32 refs;
    bool closed;
    size_t item_size;
    uint64_t version;
    weft__list waiting; /* node->payload: where the item goes; arg: the caller's `seen` */
    char item[];
};

static weft_watch *of(const weft_watch *w)
{
    return (weft_watch *)(uintptr_t)w;
}

/* What is new for who has seen *seen; -EAGAIN: nothing is. */
static int take(weft_watch *w, void *item, uint64_t *seen)
{
    if (w->version <= *seen)
        return w->closed ? -EPIPE : -EAGAIN;
    if (item && w->item_size)
        memcpy(item, w->item, w->item_size);
    *seen = w->version;
    return 0;
}

/* ---- The waitable ---- */

static uint64_t *seen_of(const weft__wait_node *n)
{
    return (uint64_t *)n->arg;
}

static int watch_try(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)wakes;
    return take(object, n->payload, seen_of(n));
}

static void watch_link(void *object, weft__wait_node *n)
{
    weft__queue_push(&((weft_watch *)object)->waiting, n);
}

static void watch_unlink(void *object, weft__wait_node *n, weft__wakes *wakes)
{
    (void)object;
    (void)wakes;
    weft__list_remove(&n->link);
}

static const weft__waitable_ops watch_ops = {"watch", watch_try, watch_link, watch_unlink};

int weft_watch_wait(weft_watch *w, void *item, uint64_t *seen, weft_time deadline)
{
    if (!w || !seen)
        return -EINVAL;
    weft__wait_node n = {.payload = item, .arg = (uintptr_t)seen};
    return weft__wait_on(&watch_ops, w, &w->lock, &n, deadline);
}

weft_select_case weft_case_watch(weft_watch *w, void *item, uint64_t *seen)
{
    bool ok = w && seen;
    weft_select_case c = weft__case_of(ok ? &watch_ops : NULL, w, ok ? &w->lock : NULL, item);
    c.weft__arg = (uintptr_t)seen;
    return c;
}

/* ---- Changing ---- */

/* The caller waits for a version that is not there yet. */
static bool waits_on(const weft_watch *w, const weft__wait_node *n)
{
    return w->version <= *seen_of(n) && !w->closed;
}

/* Entered with the lock held, returns without. */
static void serve_all(weft_watch *w)
{
    weft__list taken;
    weft__queue_take(&w->waiting, &taken);
    bool more;
    do {
        weft__wakes wakes = {NULL, NULL};
        for (int i = 0; i < WEFT__WAKE_BATCH && !weft__list_empty(&taken); i++) {
            weft__wait_node *n = weft__node_of(weft__list_pop(&taken));
            if (waits_on(w, n)) {
                weft__queue_push(&w->waiting, n);
            } else if (weft__node_claim(n, 0)) { /* W2 */
                n->result = take(w, n->payload, seen_of(n));
                weft__wakes_add(&wakes, n->parker);
            }
        }
        more = !weft__list_empty(&taken);
        weft__release(&w->lock);
        weft__wakes_run(&wakes);
        if (more)
            weft__acquire(&w->lock);
    } while (more);
}

static void set_locked(weft_watch *w, const void *item)
{
    if (w->item_size)
        memcpy(w->item, item, w->item_size);
    w->version++;
}

int weft_watch_set(weft_watch *w, const void *item)
{
    if (!w || (!item && w->item_size))
        return -EINVAL;
    weft__acquire(&w->lock);
    if (w->closed) {
        weft__release(&w->lock);
        return -EPIPE;
    }
    set_locked(w, item);
    serve_all(w);
    return 0;
}

int weft_watch_close(weft_watch *w)
{
    if (!w)
        return -EINVAL;
    weft__acquire(&w->lock);
    if (w->closed) {
        weft__release(&w->lock);
        return -EALREADY;
    }
    w->closed = true;
    serve_all(w);
    return 0;
}

/* ---- Reading ---- */

int weft_watch_get(weft_watch *w, void *item, uint64_t *ret_version)
{
    uint64_t version = 0;
    if (!w)
        return -EINVAL;
    weft__acquire(&w->lock);
    (void)take(w, item, &version);
    weft__release(&w->lock);
    if (ret_version)
        *ret_version = version;
    return version ? 0 : -ENODATA;
}

size_t weft_watch_item_size(const weft_watch *w)
{
    return w ? w->item_size : 0;
}

bool weft_watch_is_closed(const weft_watch *w)
{
    if (!w)
        return false;
    weft__acquire(&of(w)->lock);
    bool closed = w->closed;
    weft__release(&of(w)->lock);
    return closed;
}

/* ---- Life ---- */

int weft_watch_new(size_t item_size, const void *first, weft_watch **ret)
{
    if (!ret || item_size > ITEM_MAX)
        return -EINVAL;
    weft_watch *w = weft__calloc(1, sizeof *w + item_size);
    if (!w)
        return -ENOMEM;
    w->item_size = item_size;
    atom_store_rlx(&w->refs, 1u);
    if (first)
        set_locked(w, first);
    *ret = w;
    return 0;
}

weft_watch *weft_watch_ref(weft_watch *w)
{
    if (w)
        atom_add_rlx(&w->refs, 1u);
    return w;
}

/* The release orders this holder's use before the free; the acquire sees all. */
weft_watch *weft_watch_unref(weft_watch *w)
{
    if (w && atom_sub_ar(&w->refs, 1u) == 1)
        weft__free(w);
    return NULL;
}

/* SPDX-License-Identifier: MIT
 *
 * local.c -- see weft/local.h. A task or thread has few keys, so its table is an array that
 * is searched from the front; only its owner touches it.
 *
 * The dictionary of a plain thread hangs on a pthread key, for C has no other way to hear
 * of a thread's end; the key is made on first use and carries nothing by itself.
 */
#include "weft/local.h"

#include <pthread.h>

#include "sched/extra.h"
#include "sched/worker.h"

#define MORE_DROPS 64u /* of values that destructors set */

struct weft__local_entry {
    const weft_local *key;
    void *value;
};

/* ---- A table ---- */

static struct weft__local_entry *find(const weft__locals *l, const weft_local *key)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->entries[i].key == key)
            return &l->entries[i];
    return NULL;
}

static struct weft__local_entry *add(weft__locals *l, const weft_local *key)
{
    if (l->count == l->room) {
        uint32_t room = l->room ? 2 * l->room : 4;
        struct weft__local_entry *more = weft__malloc(room * sizeof *more);
        if (!more)
            return NULL;
        if (l->count)
            memcpy(more, l->entries, l->count * sizeof *more);
        weft__free(l->entries);
        l->entries = more;
        l->room = room;
    }
    struct weft__local_entry *e = &l->entries[l->count++];
    *e = (struct weft__local_entry){key, NULL};
    return e;
}

static void drop(const weft_local *key, void *value)
{
    if (value && key->drop)
        key->drop(value);
}

/* The last one first. A destructor may set values again: they are found at the end. */
void weft__locals_drop(weft__locals *l)
{
    for (uint32_t left = l->count + MORE_DROPS; l->count && left; left--) {
        struct weft__local_entry e = l->entries[--l->count];
        drop(e.key, e.value);
    }
    weft__free(l->entries);
    *l = (weft__locals){NULL, 0, 0};
}

/* ---- Threads ---- */

static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool thread_key_valid;

static void thread_exits(void *arg)
{
    pthread_setspecific(thread_key, arg); /* for the destructors' own gets and sets */
    weft__locals_drop(arg);
    pthread_setspecific(thread_key, NULL);
    weft__free(arg);
}

static void make_thread_key(void)
{
    thread_key_valid = pthread_key_create(&thread_key, thread_exits) == 0;
}

/* ---- Here ---- */

/* The caller's table; `make` it when it has none yet. NULL: none, or no memory. */
static weft__locals *table(bool make)
{
    weft_task *t = weft_task_self();
    if (t) {
        weft__extra *x = make ? weft__extra_get(t) : atom_load_rlx(&t->extra);
        return x ? &x->locals : NULL;
    }
    pthread_once(&thread_once, make_thread_key);
    weft__locals *l = thread_key_valid ? pthread_getspecific(thread_key) : NULL;
    if (!l && make && thread_key_valid && (l = weft__calloc(1, sizeof *l)) != NULL &&
        pthread_setspecific(thread_key, l)) {
        weft__free(l);
        l = NULL;
    }
    return l;
}

int weft_local_set(const weft_local *key, void *value)
{
    if (!key)
        return -EINVAL;
    weft__locals *l = table(value != NULL);
    if (!l)
        return value ? -ENOMEM : 0;
    struct weft__local_entry *e = find(l, key);
    if (!e && !value)
        return 0;
    if (!e && !(e = add(l, key)))
        return -ENOMEM;
    void *old = e->value;
    e->value = value;
    if (old != value)
        drop(key, old);
    return 0;
}

void *weft_local_get(const weft_local *key)
{
    const weft__locals *l = key ? table(false) : NULL;
    const struct weft__local_entry *e = l ? find(l, key) : NULL;
    return e ? e->value : NULL;
}

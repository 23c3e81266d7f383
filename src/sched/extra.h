/* SPDX-License-Identifier: MIT
 *
 * extra.h -- what only some tasks carry: scopes and task-local values. Allocated when the
 * task first needs it, and reached through one pointer in the task's third cache line, so
 * a task without it pays one bit test at its end.
 *
 * Who may touch what
 *   task, member_of, result    set before they are shared
 *   member                     under the lock of member_of
 *   scopes                     under the task's lock, which outlives every task in the slot
 *   innermost, locals          the running task only
 *
 * Order of locks, always down the tree: a scope; the lock of a task in it, or an inner
 * scope; a scope of that task; and so on.
 */
#ifndef WEFT_SRC_EXTRA_H
#define WEFT_SRC_EXTRA_H

#include "sched/task.h"

struct weft_local;
struct weft_scope;

typedef struct weft__locals {
    struct weft__local_entry *entries;
    uint32_t count, room;
} weft__locals;

typedef struct weft__extra {
    weft_task *task;
    struct weft_scope *member_of; /* the scope it was spawned into, or NULL */
    weft__link member;
    weft__list scopes;            /* open scopes of the task that no other of its scopes holds */
    struct weft_scope *innermost; /* the one it opened last */
    weft__locals locals;
} weft__extra;

/* The running task's, made on demand; NULL: no memory. */
weft__extra *weft__extra_get(weft_task *t);
weft__extra *weft__extra_new(void);

/* A task's end in three steps: after its body, in its context (may park; closes scopes,
 * drops locals); with its result, before anybody may think that it has ended; and when
 * slot and stack are free, the last. */
void weft__extra_body_ended(weft_task *t);
void weft__extra_leave(weft_task *t, int result);
weft__extra *weft__extra_take(weft_task *t);
void weft__extra_free(weft__extra *x);

/* Cancels all that is inside scopes of the task. From anywhere, also on a free slot. */
void weft__cancel_inside(weft_task *t);

/* scope.c, for the spawns of task.c. enter: a place for a task that is to come, or
 * -ECANCELED. add: it is there, and not ready yet. exit gives a place back; the last one
 * wakes who waits. */
int weft__scope_enter(struct weft_scope *s);
void weft__scope_add(struct weft_scope *s, weft__extra *x);
void weft__scope_exit(struct weft_scope *s);

/* local.c */
void weft__locals_drop(weft__locals *l);

#endif

/* SPDX-License-Identifier: MIT
 *
 * event.h -- the event as a waitable, for select and for what embeds an event.
 */
#ifndef WEFT_SRC_SYNC_EVENT_H
#define WEFT_SRC_SYNC_EVENT_H

#include "weft/event.h"

#include "wait/wait.h"

/* Object: the weft_event itself. The result is always 0. */
extern const weft__waitable_ops weft__event_ops;
/* The same under another name, for what embeds an event. */
extern const weft__waitable_ops weft__value_ops;

weft__lock *weft__event_lock(weft_event *e);

/* weft_event_wait, shown in dumps under the name in ops. */
int weft__event_wait(const weft__waitable_ops *ops, weft_event *e, weft_time deadline);

#endif

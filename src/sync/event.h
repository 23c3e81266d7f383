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

weft__lock *weft__event_lock(weft_event *e);

#endif

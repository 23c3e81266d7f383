/* SPDX-License-Identifier: MIT
 *
 * channel.h -- the channel as a waitable, for select and for descriptors.
 *
 * Object: the weft_channel. node->payload is the item's address for send and recv.
 */
#ifndef WEFT_SRC_SYNC_CHANNEL_H
#define WEFT_SRC_SYNC_CHANNEL_H

#include "weft/channel.h"

#include "wait/select.h"

extern const weft__case_ops weft__channel_send_ops;         /* 0 or -EPIPE */
extern const weft__case_ops weft__channel_recv_ops;         /* 0 or -EPIPE */
extern const weft__waitable_ops weft__channel_reserve_ops;  /* 0 or -EPIPE */
extern const weft__waitable_ops weft__channel_readable_ops; /* 0 */
extern const weft__waitable_ops weft__channel_writable_ops; /* 0 */

weft__lock *weft__channel_lock(weft_channel *ch);

#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/watch.h -- one value, of which the latest counts.
 *
 *     weft_watch *config;
 *     weft_watch_new(sizeof(struct config), &first, &config);
 *     ...
 *     uint64_t seen = 0;                            // each receiver has its own
 *     while (weft_watch_wait(config, &mine, &seen, WEFT_NEVER) == 0)
 *         apply(&mine);                             // until it is closed
 *     ...
 *     weft_watch_set(config, &changed);             // whoever changes it
 *
 * A watch holds a copy of one item of any size, and the number of its version: 1 for the
 * first, one more with each set. A receiver says which version it has seen, and gets the
 * newest as soon as there is one above that: it sees each version at most once, the versions
 * in order, and always the last one; versions that came and went meanwhile it does not see.
 * Setting never waits for anybody. An item is copied as a whole: a receiver never sees one
 * half new and half old. For pointers with compare-and-exchange there is weft/variable.h, for
 * receivers that must not miss anything weft/broadcast.h.
 *
 * Concurrency: all calls on one watch may overlap, except the last unref. A set
 * happens-before each return of its version.
 *
 * A poll function cannot suspend: there a call that might wait answers -EPERM, unless its
 * deadline is WEFT_TRY; weft_case_watch with weft/pollwait.h waits.
 */
#ifndef WEFT_WATCH_H
#define WEFT_WATCH_H

#include "weft/base.h"
#include "weft/select.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_watch weft_watch; /* opaque, reference-counted */

/* Creates one; all its memory is allocated here.
 *
 * item_size  bytes of the item, 0 to 1 MiB (0: only versions, and the item pointers of the
 *            calls below may be NULL)
 * first      the item of version 1, which is copied; NULL: there is none yet, version 0
 * ret        the caller owns the one reference; untouched on error
 *
 * Returns 0, -EINVAL (ret NULL, size), -ENOMEM. Callable from: any thread, any task. */
WEFT_API WEFT_MUST_USE int weft_watch_new(size_t item_size, const void *first, weft_watch **ret);

/* References; NULL is fine for both, unref returns NULL. Items are plain bytes: nothing is
 * called for the last one. Nobody may wait at the last unref.
 * Callable from: any thread, any task. */
WEFT_API weft_watch *weft_watch_ref(weft_watch *w);
WEFT_API weft_watch *weft_watch_unref(weft_watch *w);

/* A copy of *item is the value from now on, and whoever waits gets it. Of several sets at
 * once the last in the order of the versions stays.
 *
 * Returns 0 (also when nobody ever looks); -EPIPE (closed, and nothing has changed); -EINVAL
 * (w, or item of a size, is NULL). The item stays the caller's in any case.
 * Callable from: any thread, any task. Never suspends. */
WEFT_API int weft_watch_set(weft_watch *w, const void *item);

/* The value as it is now.
 *
 * item         item_size bytes; NULL: only the version is wanted
 * ret_version  NULL if unwanted
 *
 * Returns 0; -ENODATA (never set: *item is untouched, *ret_version is 0); -EINVAL (w NULL).
 * A closed watch still has its last value.
 * Callable from: any thread, any task. Never suspends. */
WEFT_API int weft_watch_get(weft_watch *w, void *item, uint64_t *ret_version);

/* Waits for a version above *seen, until `deadline` (absolute ns, WEFT_TRY, WEFT_NEVER).
 *
 * item  item_size bytes for the newest value; NULL: only the version is wanted
 * seen  the version the caller has; 0 at first. It becomes that of *item. A number that the
 *       watch has not reached yet is waited for.
 *
 * Returns  0           *item and *seen are the newest
 *          -EAGAIN     nothing new, and the deadline was WEFT_TRY
 *          -ETIMEDOUT  nothing new until the deadline
 *          -EPIPE      closed, and nothing new: there never will be
 *          -ECANCELED  the task is cancelled
 *          -EINVAL     w or seen is NULL
 * *item and *seen are written only with 0. A new version wins over a deadline that has
 * passed and over the close.
 * Callable from: any task, any thread. May suspend unless WEFT_TRY. */
WEFT_API WEFT_MUST_USE int weft_watch_wait(weft_watch *w, void *item, uint64_t *seen,
                                           weft_time deadline);

/* No more sets; receivers get what they have not seen, then -EPIPE. Returns 0, -EALREADY,
 * -EINVAL (NULL). Callable from: any thread, any task. Never suspends. */
WEFT_API int weft_watch_close(weft_watch *w);

/* Bytes of the item; whether it is closed. NULL: 0, false.
 * Callable from: any thread, any task. */
WEFT_API size_t weft_watch_item_size(const weft_watch *w);
WEFT_API bool weft_watch_is_closed(const weft_watch *w);

/* For weft_select: as weft_watch_wait; the result is 0 or -EPIPE. item and seen must stay
 * valid until the select returns. Callable from: any thread, any task. */
WEFT_API weft_select_case weft_case_watch(weft_watch *w, void *item, uint64_t *seen);

#ifdef __cplusplus
}
#endif
#endif

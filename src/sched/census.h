/* SPDX-License-Identifier: MIT
 *
 * census.h -- how deep fibers use their stacks, by the name they were spawned with.
 */
#ifndef WEFT_SRC_CENSUS_H
#define WEFT_SRC_CENSUS_H

#include "base/lock.h"
#include "weft/runtime.h"

#define WEFT__CENSUS_NAMES 256

typedef struct weft__census {
    weft__lock lock;
    size_t count;
    weft_census_entry entries[WEFT__CENSUS_NAMES];
} weft__census;

/* A fiber of that name (a literal; NULL: none) has used so many bytes. Thread-safe. */
void weft__census_note(weft__census *c, const char *name, size_t bytes);

#endif

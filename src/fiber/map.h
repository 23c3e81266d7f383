/* SPDX-License-Identifier: MIT
 *
 * map.h -- the only door from the fiber room to memory mappings. The functions are
 * weak: a test links its own to make the Nth call fail.
 */
#ifndef WEFT_SRC_MAP_H
#define WEFT_SRC_MAP_H

#include "base/base.h"

/* Private zeroed memory without huge pages and without a commit charge where the
 * kernel allows that; NULL on failure. */
void *weft__map_new(size_t size);

/* Never fails for a range that weft__map_new returned. */
void weft__map_free(void *memory, size_t size);

/* Whether weft__map_guard's answers can be trusted: an emulator may answer 0 to any
 * advice and do nothing (qemu-user does). The range is mapped and page-aligned. */
bool weft__map_can_guard(void *memory, size_t size);

/* Makes an access to the page-aligned range fault, without a mapping of its own.
 * 0, -ENOTSUP (kernel before 6.13), or another negative errno. Lasts until unmapped. */
int weft__map_guard(void *memory, size_t size);

/* The same with mprotect: splits the mapping. 0 or a negative errno. */
int weft__map_protect(void *memory, size_t size);

/* Returns the pages to the kernel; they read as zeros afterwards. */
void weft__map_discard(void *memory, size_t size);

#endif

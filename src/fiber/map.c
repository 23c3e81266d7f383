/* SPDX-License-Identifier: MIT
 *
 * map.c -- see map.h.
 */
#include "fiber/map.h"
#include "fiber/context.h"

#include <errno.h>
#include <sys/mman.h>

#define WEAK __attribute__((weak))

/* Linux 6.13, asm-generic/mman-common.h; not in Debian 12's headers. */
#define GUARD_INSTALL 102
#define NO_ADVICE     0x57eff7

WEAK void *weft__map_new(size_t size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_NOHUGEPAGE
    /* A huge page would make the first touch of one stack cost 2 MiB. A kernel
     * built without them answers EINVAL, which is as good. */
    (void)madvise(memory, size, MADV_NOHUGEPAGE);
#endif
    return memory;
}

WEAK void weft__map_free(void *memory, size_t size)
{
    WEFT__CHECK(munmap(memory, size) == 0);
}

WEAK bool weft__map_can_guard(void *memory, size_t size)
{
    /* No kernel knows this advice, so one that accepts it does not look. */
    return madvise(memory, size, NO_ADVICE) != 0;
}

WEAK int weft__map_guard(void *memory, size_t size)
{
#if defined(__linux__) && !defined(WEFT__ASAN)
    if (madvise(memory, size, GUARD_INSTALL) == 0)
        return 0;
    return errno == EINVAL ? -ENOTSUP : -errno;
#else
    /* LeakSanitizer reads whatever /proc/self/maps calls readable. */
    (void)memory, (void)size;
    return -ENOTSUP;
#endif
}

WEAK int weft__map_protect(void *memory, size_t size)
{
    return mprotect(memory, size, PROT_NONE) == 0 ? 0 : -errno;
}

WEAK void weft__map_discard(void *memory, size_t size)
{
    (void)madvise(memory, size, MADV_DONTNEED);
}

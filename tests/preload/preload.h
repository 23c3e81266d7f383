/* SPDX-License-Identifier: MIT
 *
 * preload.h -- makes the Nth call of a system function fail, come late, come short
 * or get lost, and counts the calls, without a line changed in the library.
 *
 * libweft_preload.so defines the functions below under libc's names and passes on to
 * libc. A test in tests/fault is linked with it and calls preload_set() and friends; any
 * other program runs under it with LD_PRELOAD and takes its rules from the environment:
 *
 *   WEFT_PRELOAD='epoll_wait:fail=EINTR:every=50;eventfd_write:drop:first=3:times=1'
 *   WEFT_PRELOAD_REPORT=FILE   at exit, one line a call: NAME calls hits
 *
 * A rule acts on call number `first` and then on every `every`th one, `times` times at
 * most. Calls count from the moment the rule is set. One rule a call; setting it again
 * replaces it. Set rules while the calls they are about are quiet.
 *
 * The calls libc makes inside itself (malloc's own mmap, stdio's write) are not seen.
 * Under a sanitizer the allocation functions are the sanitizer's, and never seen; the
 * thread sanitizer also starts threads past this library. preload_sees() says so.
 */
#ifndef WEFT_TESTS_PRELOAD_H
#define WEFT_TESTS_PRELOAD_H

#include <stdbool.h>
#include <stdint.h>

enum preload_call {
    PRELOAD_EVENTFD,        /* eventfd */
    PRELOAD_EVENTFD_WRITE,  /* write, eventfd_write: to a descriptor from eventfd() */
    PRELOAD_EPOLL_CREATE,   /* epoll_create1 */
    PRELOAD_EPOLL_WAIT,     /* epoll_wait, epoll_pwait, epoll_pwait2 */
    PRELOAD_EPOLL_CTL,      /* epoll_ctl */
    PRELOAD_POLL,           /* poll, ppoll */
    PRELOAD_SOCKET,         /* socket */
    PRELOAD_ACCEPT,         /* accept, accept4 */
    PRELOAD_CONNECT,        /* connect */
    PRELOAD_READ,           /* read, readv, recv, recvmsg */
    PRELOAD_WRITE,          /* write, writev, send, sendmsg: to anything else */
    PRELOAD_MMAP,           /* mmap */
    PRELOAD_MUNMAP,         /* munmap */
    PRELOAD_MPROTECT,       /* mprotect */
    PRELOAD_MADVISE,        /* madvise */
    PRELOAD_PTHREAD_CREATE, /* pthread_create */
    PRELOAD_MALLOC,         /* malloc, calloc, realloc, aligned_alloc, posix_memalign */
    PRELOAD_FUTEX_WAIT,     /* syscall(SYS_futex, ...): FUTEX_WAIT, FUTEX_WAIT_BITSET */
    PRELOAD_FUTEX_WAKE,     /* syscall(SYS_futex, ...): the rest */
    PRELOAD_CALLS
};

enum preload_action {
    PRELOAD_PASS,  /* only count */
    PRELOAD_FAIL,  /* don't call; fail with `error` */
    PRELOAD_DELAY, /* sleep `ns` first, then call */
    PRELOAD_SHORT, /* READ and WRITE: move at most one byte */
    PRELOAD_DROP   /* EVENTFD_WRITE: claim success, write nothing */
};

struct preload_rule {
    enum preload_action action;
    int error;        /* PRELOAD_FAIL: an errno value, positive */
    int64_t ns;       /* PRELOAD_DELAY */
    uint64_t first;   /* 1-based; 0 means 1 */
    uint64_t every;   /* 0: only `first` */
    uint64_t times;   /* 0: no limit */
    bool this_thread; /* only calls of the thread that sets the rule */
};

/* Sets the rule; NULL takes it away. -EINVAL: the action doesn't fit the call. */
int preload_set(enum preload_call call, const struct preload_rule *rule);

/* Takes away all rules and sets all counts to zero. */
void preload_reset(void);

/* Calls seen since the rule was set (or since the start, or since preload_reset). */
uint64_t preload_calls(enum preload_call call);

/* Calls a rule acted on, counted in the same way. */
uint64_t preload_hits(enum preload_call call);

/* Whether calls of this kind can be seen at all in this process. To find out it makes
 * one (and for PRELOAD_PTHREAD_CREATE joins it). */
bool preload_sees(enum preload_call call);

/* The name used in WEFT_PRELOAD, "epoll_wait". */
const char *preload_name(enum preload_call call);

#endif

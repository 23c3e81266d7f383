/* SPDX-License-Identifier: MIT
 *
 * preload.c -- see preload.h. Each function asks decide() what is to happen and does it;
 * the real one is found with dlsym(RTLD_NEXT), the allocation functions under glibc's
 * other names for them, because dlsym itself allocates.
 *
 * Shared state is one array of slots: the counters are atomic; the rule is written
 * while its calls are quiet (preload.h) and published by the release store of `armed`,
 * which decide() acquires.
 */
#include "preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_FD (1 << 20)

static struct slot {
    int armed;
    struct preload_rule rule;
    pthread_t setter;
    uint64_t calls, matched, hits;
} slots[PRELOAD_CALLS];

/* One byte a descriptor: did it come from eventfd()? Untouched pages cost nothing. */
static unsigned char is_eventfd[MAX_FD];

static const char *const names[PRELOAD_CALLS] = {
    "eventfd", "eventfd_write",  "epoll_create", "epoll_wait", "epoll_ctl", "poll",   "socket",
    "accept",  "connect",        "read",         "write",      "mmap",      "munmap", "mprotect",
    "madvise", "pthread_create", "malloc",       "futex_wait", "futex_wake"};

static const struct {
    const char *name;
    int value;
} errors[] = {{"EINTR", EINTR},           {"EAGAIN", EAGAIN}, {"ENOMEM", ENOMEM},
              {"EMFILE", EMFILE},         {"ENFILE", ENFILE}, {"EPIPE", EPIPE},
              {"EINVAL", EINVAL},         {"EPERM", EPERM},   {"ECONNABORTED", ECONNABORTED},
              {"ECONNRESET", ECONNRESET}, {"ENOSPC", ENOSPC}, {"ENOSYS", ENOSYS}};

static bool fits(enum preload_call call, enum preload_action action)
{
    switch (action) {
    case PRELOAD_PASS:
    case PRELOAD_FAIL:
    case PRELOAD_DELAY:
        return true;
    case PRELOAD_SHORT:
        return call == PRELOAD_READ || call == PRELOAD_WRITE;
    case PRELOAD_DROP:
        return call == PRELOAD_EVENTFD_WRITE;
    }
    return false;
}

int preload_set(enum preload_call call, const struct preload_rule *rule)
{
    if ((unsigned)call >= PRELOAD_CALLS || (rule && !fits(call, rule->action)) ||
        (rule && rule->action == PRELOAD_FAIL && rule->error <= 0))
        return -EINVAL;
    struct slot *s = &slots[call];
    __atomic_store_n(&s->armed, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&s->calls, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->matched, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->hits, 0, __ATOMIC_RELAXED);
    if (rule) {
        s->rule = *rule;
        if (s->rule.first == 0)
            s->rule.first = 1;
        s->setter = pthread_self();
        __atomic_store_n(&s->armed, 1, __ATOMIC_RELEASE);
    }
    return 0;
}

void preload_reset(void)
{
    for (int i = 0; i < PRELOAD_CALLS; i++)
        preload_set((enum preload_call)i, NULL);
}

uint64_t preload_calls(enum preload_call call)
{
    return __atomic_load_n(&slots[call].calls, __ATOMIC_RELAXED);
}

uint64_t preload_hits(enum preload_call call)
{
    return __atomic_load_n(&slots[call].hits, __ATOMIC_RELAXED);
}

const char *preload_name(enum preload_call call)
{
    return (unsigned)call < PRELOAD_CALLS ? names[call] : "?";
}

static void *nothing(void *argument)
{
    return argument;
}

/* Makes one such call the way the program would: through the first definition. */
static void call_once(enum preload_call call)
{
    if (call == PRELOAD_MALLOC) {
        void *(*allocate)(size_t);
        *(void **)&allocate = dlsym(RTLD_DEFAULT, "malloc");
        free(allocate(1));
    } else {
        int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        pthread_t thread;
        *(void **)&create = dlsym(RTLD_DEFAULT, "pthread_create");
        if (create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
    }
}

bool preload_sees(enum preload_call call)
{
    if (call != PRELOAD_MALLOC && call != PRELOAD_PTHREAD_CREATE)
        return true;
    struct slot saved = slots[call];
    __atomic_store_n(&slots[call].armed, 0, __ATOMIC_RELAXED);
    call_once(call);
    bool seen = preload_calls(call) != saved.calls;
    slots[call] = saved;
    return seen;
}

/* Counts the call and says what is to happen to it. Sleeps here for a delay. */
static enum preload_action decide(enum preload_call call, int *ret_error)
{
    struct slot *s = &slots[call];
    __atomic_fetch_add(&s->calls, 1, __ATOMIC_RELAXED);
    /* Pairs with the store of `armed` in preload_set: the rule is whole. */
    if (!__atomic_load_n(&s->armed, __ATOMIC_ACQUIRE))
        return PRELOAD_PASS;
    const struct preload_rule *r = &s->rule;
    if (r->this_thread && !pthread_equal(s->setter, pthread_self()))
        return PRELOAD_PASS;
    uint64_t n = __atomic_add_fetch(&s->matched, 1, __ATOMIC_RELAXED);
    if (n < r->first || (n != r->first && (r->every == 0 || (n - r->first) % r->every != 0)))
        return PRELOAD_PASS;
    uint64_t hit = __atomic_add_fetch(&s->hits, 1, __ATOMIC_RELAXED);
    if (r->times != 0 && hit > r->times) {
        __atomic_fetch_sub(&s->hits, 1, __ATOMIC_RELAXED);
        return PRELOAD_PASS;
    }
    *ret_error = r->error;
    if (r->action == PRELOAD_DELAY) {
        struct timespec t = {.tv_sec = (time_t)(r->ns / 1000000000),
                             .tv_nsec = (long)(r->ns % 1000000000)};
        int saved = errno;
        while (nanosleep(&t, &t) != 0 && errno == EINTR)
            ;
        errno = saved;
    }
    return r->action;
}

/* ---- rules from the environment ---- */

static int parse_error(const char *text)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (strcmp(text, errors[i].name) == 0)
            return errors[i].value;
    return atoi(text);
}

static bool parse_field(struct preload_rule *r, const char *field)
{
    unsigned long long n;
    if (strncmp(field, "fail=", 5) == 0) {
        r->action = PRELOAD_FAIL;
        r->error = parse_error(field + 5);
        return r->error > 0;
    }
    if (sscanf(field, "delay=%llu", &n) == 1) {
        r->action = PRELOAD_DELAY;
        r->ns = (int64_t)n;
    } else if (sscanf(field, "first=%llu", &n) == 1) {
        r->first = n;
    } else if (sscanf(field, "every=%llu", &n) == 1) {
        r->every = n;
    } else if (sscanf(field, "times=%llu", &n) == 1) {
        r->times = n;
    } else if (strcmp(field, "short") == 0) {
        r->action = PRELOAD_SHORT;
    } else if (strcmp(field, "drop") == 0) {
        r->action = PRELOAD_DROP;
    } else {
        return false;
    }
    return true;
}

static void parse_rule(char *text)
{
    struct preload_rule rule = {0};
    char *save = NULL;
    const char *name = strtok_r(text, ":", &save);
    int call = 0;
    while (name && call < PRELOAD_CALLS && strcmp(name, names[call]) != 0)
        call++;
    bool good = name && call < PRELOAD_CALLS;
    for (const char *f; good && (f = strtok_r(NULL, ":", &save)) != NULL;)
        good = parse_field(&rule, f);
    if (!good || preload_set((enum preload_call)call, &rule) != 0) {
        fprintf(stderr, "preload: bad rule for '%s' in WEFT_PRELOAD\n", name ? name : "");
        _exit(125); /* a fault that is not injected must not pass for one that is */
    }
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("WEFT_PRELOAD");
    if (!text)
        return;
    char copy[2048], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *rule = strtok_r(copy, ";", &save); rule; rule = strtok_r(NULL, ";", &save))
        parse_rule(rule);
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("WEFT_PRELOAD_REPORT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f)
        return;
    for (int i = 0; i < PRELOAD_CALLS; i++)
        fprintf(f, "%s %llu %llu\n", names[i],
                (unsigned long long)preload_calls((enum preload_call)i),
                (unsigned long long)preload_hits((enum preload_call)i));
    fclose(f);
}

/* ---- libc's names ---- */

/* Declares `real`, the next definition of the function in search order. Two threads may
 * look it up at once: they find the same. */
#define REAL(result, name, ...)                                                                    \
    static result (*real_##name)(__VA_ARGS__);                                                     \
    result (*real)(__VA_ARGS__) = __atomic_load_n(&real_##name, __ATOMIC_RELAXED);                 \
    if (!real) {                                                                                   \
        *(void **)&real = dlsym(RTLD_NEXT, #name);                                                 \
        __atomic_store_n(&real_##name, real, __ATOMIC_RELAXED);                                    \
    }

#define FAIL_OR_GO_ON(call, failure)                                                               \
    int error_ = 0;                                                                                \
    enum preload_action action = decide(call, &error_);                                            \
    if (action == PRELOAD_FAIL) {                                                                  \
        errno = error_;                                                                            \
        return failure;                                                                            \
    }

static bool eventfd_of(int fd)
{
    return fd >= 0 && fd < MAX_FD && __atomic_load_n(&is_eventfd[fd], __ATOMIC_RELAXED);
}

static void mark_eventfd(int fd, bool yes)
{
    /* Read first: close() of an ordinary descriptor shall not touch the page. */
    if (fd >= 0 && fd < MAX_FD && eventfd_of(fd) != yes)
        __atomic_store_n(&is_eventfd[fd], (unsigned char)yes, __ATOMIC_RELAXED);
}

int eventfd(unsigned int value, int flags)
{
    REAL(int, eventfd, unsigned int, int)
    FAIL_OR_GO_ON(PRELOAD_EVENTFD, -1)
    int fd = real(value, flags);
    mark_eventfd(fd, true);
    return fd;
}

int close(int fd)
{
    REAL(int, close, int)
    mark_eventfd(fd, false);
    return real(fd);
}

int eventfd_write(int fd, eventfd_t value)
{
    return write(fd, &value, sizeof value) == (ssize_t)sizeof value ? 0 : -1;
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(ssize_t, write, int, const void *, size_t)
    FAIL_OR_GO_ON(eventfd_of(fd) ? PRELOAD_EVENTFD_WRITE : PRELOAD_WRITE, -1)
    if (action == PRELOAD_DROP)
        return (ssize_t)size;
    return real(fd, data, action == PRELOAD_SHORT && size > 1 ? 1 : size);
}

ssize_t read(int fd, void *data, size_t size)
{
    REAL(ssize_t, read, int, void *, size_t)
    if (eventfd_of(fd))
        return real(fd, data, size);
    FAIL_OR_GO_ON(PRELOAD_READ, -1)
    return real(fd, data, action == PRELOAD_SHORT && size > 1 ? 1 : size);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    REAL(ssize_t, send, int, const void *, size_t, int)
    FAIL_OR_GO_ON(PRELOAD_WRITE, -1)
    return real(fd, data, action == PRELOAD_SHORT && size > 1 ? 1 : size, flags);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    REAL(ssize_t, recv, int, void *, size_t, int)
    FAIL_OR_GO_ON(PRELOAD_READ, -1)
    return real(fd, data, action == PRELOAD_SHORT && size > 1 ? 1 : size, flags);
}

/* The first byte of a vector; a vector of empty parts stays as it is. */
static bool first_byte(const struct iovec *parts, size_t count, struct iovec *ret_part)
{
    for (size_t i = 0; i < count; i++)
        if (parts[i].iov_len > 0) {
            *ret_part = (struct iovec){.iov_base = parts[i].iov_base, .iov_len = 1};
            return true;
        }
    return false;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL(ssize_t, writev, int, const struct iovec *, int)
    FAIL_OR_GO_ON(PRELOAD_WRITE, -1)
    struct iovec part;
    if (action == PRELOAD_SHORT && count > 0 && first_byte(parts, (size_t)count, &part))
        return real(fd, &part, 1);
    return real(fd, parts, count);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    REAL(ssize_t, readv, int, const struct iovec *, int)
    FAIL_OR_GO_ON(PRELOAD_READ, -1)
    struct iovec part;
    if (action == PRELOAD_SHORT && count > 0 && first_byte(parts, (size_t)count, &part))
        return real(fd, &part, 1);
    return real(fd, parts, count);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(ssize_t, sendmsg, int, const struct msghdr *, int)
    FAIL_OR_GO_ON(PRELOAD_WRITE, -1)
    struct iovec part;
    if (action == PRELOAD_SHORT && first_byte(message->msg_iov, message->msg_iovlen, &part)) {
        struct msghdr less = *message;
        less.msg_iov = &part;
        less.msg_iovlen = 1;
        return real(fd, &less, flags);
    }
    return real(fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    REAL(ssize_t, recvmsg, int, struct msghdr *, int)
    FAIL_OR_GO_ON(PRELOAD_READ, -1)
    struct iovec part;
    if (action == PRELOAD_SHORT && first_byte(message->msg_iov, message->msg_iovlen, &part)) {
        struct iovec *parts = message->msg_iov;
        size_t count = message->msg_iovlen;
        message->msg_iov = &part;
        message->msg_iovlen = 1;
        ssize_t n = real(fd, message, flags);
        message->msg_iov = parts;
        message->msg_iovlen = count;
        return n;
    }
    return real(fd, message, flags);
}

int epoll_create1(int flags)
{
    REAL(int, epoll_create1, int)
    FAIL_OR_GO_ON(PRELOAD_EPOLL_CREATE, -1)
    return real(flags);
}

int epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
    REAL(int, epoll_ctl, int, int, int, struct epoll_event *)
    FAIL_OR_GO_ON(PRELOAD_EPOLL_CTL, -1)
    return real(ep, op, fd, event);
}

int epoll_wait(int ep, struct epoll_event *events, int max, int timeout)
{
    REAL(int, epoll_wait, int, struct epoll_event *, int, int)
    FAIL_OR_GO_ON(PRELOAD_EPOLL_WAIT, -1)
    return real(ep, events, max, timeout);
}

int epoll_pwait(int ep, struct epoll_event *events, int max, int timeout, const sigset_t *mask)
{
    REAL(int, epoll_pwait, int, struct epoll_event *, int, int, const sigset_t *)
    FAIL_OR_GO_ON(PRELOAD_EPOLL_WAIT, -1)
    return real(ep, events, max, timeout, mask);
}

int epoll_pwait2(int ep, struct epoll_event *events, int max, const struct timespec *timeout,
                 const sigset_t *mask)
{
    REAL(int, epoll_pwait2, int, struct epoll_event *, int, const struct timespec *,
         const sigset_t *)
    FAIL_OR_GO_ON(PRELOAD_EPOLL_WAIT, -1)
    return real(ep, events, max, timeout, mask);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    REAL(int, poll, struct pollfd *, nfds_t, int)
    FAIL_OR_GO_ON(PRELOAD_POLL, -1)
    return real(fds, count, timeout);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    REAL(int, ppoll, struct pollfd *, nfds_t, const struct timespec *, const sigset_t *)
    FAIL_OR_GO_ON(PRELOAD_POLL, -1)
    return real(fds, count, timeout, mask);
}

int socket(int domain, int type, int protocol)
{
    REAL(int, socket, int, int, int)
    FAIL_OR_GO_ON(PRELOAD_SOCKET, -1)
    return real(domain, type, protocol);
}

int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict size)
{
    REAL(int, accept, int, struct sockaddr *, socklen_t *)
    FAIL_OR_GO_ON(PRELOAD_ACCEPT, -1)
    return real(fd, address, size);
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags)
{
    REAL(int, accept4, int, struct sockaddr *, socklen_t *, int)
    FAIL_OR_GO_ON(PRELOAD_ACCEPT, -1)
    return real(fd, address, size, flags);
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    REAL(int, connect, int, const struct sockaddr *, socklen_t)
    FAIL_OR_GO_ON(PRELOAD_CONNECT, -1)
    return real(fd, address, size);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    REAL(void *, mmap, void *, size_t, int, int, int, off_t)
    FAIL_OR_GO_ON(PRELOAD_MMAP, MAP_FAILED)
    return real(address, size, protection, flags, fd, offset);
}

int munmap(void *address, size_t size)
{
    REAL(int, munmap, void *, size_t)
    FAIL_OR_GO_ON(PRELOAD_MUNMAP, -1)
    return real(address, size);
}

int mprotect(void *address, size_t size, int protection)
{
    REAL(int, mprotect, void *, size_t, int)
    FAIL_OR_GO_ON(PRELOAD_MPROTECT, -1)
    return real(address, size, protection);
}

int madvise(void *address, size_t size, int advice)
{
    REAL(int, madvise, void *, size_t, int)
    FAIL_OR_GO_ON(PRELOAD_MADVISE, -1)
    return real(address, size, advice);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*run)(void *), void *restrict argument)
{
    REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    int error = 0;
    if (decide(PRELOAD_PTHREAD_CREATE, &error) == PRELOAD_FAIL)
        return error;
    return real(thread, attributes, run, argument);
}

/* Reading six arguments that may not have been passed is what libc's own does. */
long syscall(long number, ...)
{
    REAL(long, syscall, long, long, long, long, long, long, long)
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    enum preload_call call = PRELOAD_CALLS;
    if (number == SYS_epoll_pwait2)
        call = PRELOAD_EPOLL_WAIT;
    if (number == SYS_futex) {
        int op = (int)a[1] & FUTEX_CMD_MASK;
        call =
            op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET ? PRELOAD_FUTEX_WAIT : PRELOAD_FUTEX_WAKE;
    }
    if (call != PRELOAD_CALLS) {
        FAIL_OR_GO_ON(call, -1)
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- allocation: glibc's second names; free() needs no door ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size)
{
    FAIL_OR_GO_ON(PRELOAD_MALLOC, NULL)
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    FAIL_OR_GO_ON(PRELOAD_MALLOC, NULL)
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    FAIL_OR_GO_ON(PRELOAD_MALLOC, NULL)
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    FAIL_OR_GO_ON(PRELOAD_MALLOC, NULL)
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    int error = 0;
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
        return EINVAL;
    if (decide(PRELOAD_MALLOC, &error) == PRELOAD_FAIL)
        return error;
    void *memory = __libc_memalign(alignment, size);
    if (!memory)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

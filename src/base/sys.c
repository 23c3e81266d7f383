/* SPDX-License-Identifier: MIT
 *
 * sys.c -- clock, futex and seed; see sys.h. Where there is no futex (or with
 * WEFT_NO_FUTEX, which the tests build), a small table of mutex + condition
 * variable pairs, hashed by address, gives the same contract.
 */
#include "base/sys.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && !defined(WEFT_NO_FUTEX)
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#define WEFT_FUTEX 1
#endif

weft_time weft__sys_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (weft_time)t.tv_sec * WEFT_SEC + t.tv_nsec;
}

static struct timespec to_timespec(weft_time t)
{
    struct timespec ts = {.tv_sec = (time_t)(t / WEFT_SEC), .tv_nsec = (long)(t % WEFT_SEC)};
    return ts;
}

#ifdef WEFT_FUTEX

int weft__sys_futex_wait(weft__a32 *word, uint32_t expected, weft_time deadline)
{
    struct timespec ts, *limit = NULL;
    if (deadline != WEFT_NEVER) {
        ts = to_timespec(deadline < 0 ? 0 : deadline);
        limit = &ts;
    }
    /* FUTEX_WAIT_BITSET takes an absolute monotonic time. */
    long r = syscall(SYS_futex, &word->raw, FUTEX_WAIT_BITSET_PRIVATE, expected, limit, NULL,
                     FUTEX_BITSET_MATCH_ANY);
    if (r == 0 || errno == EAGAIN || errno == EINTR)
        return 0;
    WEFT__CHECK(errno == ETIMEDOUT);
    return -ETIMEDOUT;
}

void weft__sys_futex_wake(weft__a32 *word, int count)
{
    syscall(SYS_futex, &word->raw, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

#else /* pthread fallback */

#define BUCKETS 64

static struct bucket {
    pthread_mutex_t lock;
    pthread_cond_t wake;
} buckets[BUCKETS];
static pthread_once_t buckets_once = PTHREAD_ONCE_INIT;

static void buckets_init(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (int i = 0; i < BUCKETS; i++) {
        pthread_mutex_init(&buckets[i].lock, NULL);
        pthread_cond_init(&buckets[i].wake, &attr);
    }
    pthread_condattr_destroy(&attr);
}

static struct bucket *bucket_of(const weft__a32 *word)
{
    pthread_once(&buckets_once, buckets_init);
    return &buckets[((uintptr_t)word >> 4) * 2654435761u / 65536 % BUCKETS];
}

/* The word is compared under the bucket's lock and the waker takes the same
 * lock after it changed the word, so no wake falls between compare and wait. */
int weft__sys_futex_wait(weft__a32 *word, uint32_t expected, weft_time deadline)
{
    struct bucket *b = bucket_of(word);
    int r = 0;
    pthread_mutex_lock(&b->lock);
    if (atom_load_acq(word) == expected) {
        if (deadline == WEFT_NEVER) {
            pthread_cond_wait(&b->wake, &b->lock);
        } else {
            struct timespec ts = to_timespec(deadline < 0 ? 0 : deadline);
            if (pthread_cond_timedwait(&b->wake, &b->lock, &ts) == ETIMEDOUT)
                r = -ETIMEDOUT;
        }
    }
    pthread_mutex_unlock(&b->lock);
    return r;
}

/* Several words share a bucket, so all its sleepers look again. */
void weft__sys_futex_wake(weft__a32 *word, int count)
{
    struct bucket *b = bucket_of(word);
    (void)count;
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->wake);
    pthread_mutex_unlock(&b->lock);
}

#endif

unsigned weft__sys_cpu(void)
{
#ifdef __linux__
    int cpu = sched_getcpu(); /* no system call where glibc has registered rseq */
    return cpu < 0 ? 0 : (unsigned)cpu;
#else
    return 0;
#endif
}

#if defined(__SANITIZE_THREAD__) || defined(WEFT_MODEL)
#define BARRIER_HIDDEN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BARRIER_HIDDEN 1
#endif
#endif

#if defined(WEFT_FUTEX) && defined(SYS_membarrier) && !defined(BARRIER_HIDDEN)

bool weft__sys_barrier_usable(void)
{
    /* Registering again is harmless. */
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void weft__sys_barrier(void)
{
    /* Asked for first by weft__sys_barrier_usable; again in a child after a fork, where the
     * kernel may have forgotten. */
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        WEFT__CHECK(weft__sys_barrier_usable() &&
                    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
}

#else

bool weft__sys_barrier_usable(void)
{
    return false;
}

void weft__sys_barrier(void)
{
}

#endif

unsigned weft__sys_cpus(void)
{
#ifdef __linux__
    cpu_set_t set; /* needs neither /proc nor /sys */
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (unsigned)n;
}

uint64_t weft__sys_seed(void)
{
    uint64_t x = (uint64_t)weft__sys_now() * 0x9e3779b97f4a7c15ULL;
    x ^= (uint64_t)getpid() << 32;
    x ^= (uint64_t)(uintptr_t)&x;
    x ^= x >> 31;
    return x ? x : 1;
}

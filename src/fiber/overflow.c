/* SPDX-License-Identifier: MIT
 *
 * overflow.c -- the report of a stack overflow; see the end of stack.h.
 *
 * A fault in a guard cannot be handled on the stack that has none left, so each
 * thread that runs fibers gets an alternate signal stack. The handler looks the
 * address up in the pool of its own thread, without a lock (stack_guard_hit), writes
 * with write(2) only, restores the default action and returns: the faulting
 * instruction runs again and the kernel ends the process, core dump and all, exactly
 * as it would have.
 *
 * Signal dispositions belong to the process, so this file has process-wide state: a
 * count and the handlers that were there before, under a lock, and constant while
 * the handler can run. It is the one exception in this room, and opt-in.
 */
#include "fiber/stack.h"

#include "base/lock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ALT_STACK ((size_t)32 << 10)

static const int signals[2] = {SIGSEGV, SIGBUS};

static struct {
    weft__lock lock;
    unsigned count;
    bool hooked[2]; /* our handler may be called: `before` is valid and constant */
    struct sigaction before[2];
} process;

/* Who am I; initial-exec so that the handler's access never allocates. */
static _Thread_local struct {
    weft__stack_pool *pool;
    void *alt_stack; /* ours, or NULL */
    sigset_t mask;   /* as it was before */
} self __attribute__((tls_model("initial-exec")));

/* --- the handler --- */

static char *put(char *at, char *end, const char *text)
{
    while (*text && at < end)
        *at++ = *text++;
    return at;
}

static char *put_number(char *at, char *end, size_t n)
{
    char digits[24], *d = digits + sizeof digits;
    *--d = 0;
    do
        *--d = (char)('0' + n % 10);
    while (n /= 10);
    return put(at, end, d);
}

static void report(const weft__stack *st, size_t stack_size)
{
    char line[256];
    char *at = line, *end = line + sizeof line - 48; /* room for the rest */
    at = put(at, end, "weft: stack overflow in fiber \"");
    at = put(at, end, st->owner ? st->owner : "?");
    end = line + sizeof line;
    at = put(at, end, "\" (stack size ");
    at = put_number(at, end, stack_size);
    at = put(at, end, " bytes)\n");
    if (write(STDERR_FILENO, line, (size_t)(at - line)) < 0)
        return; /* nobody to tell */
}

static void default_action(int signal_number, const siginfo_t *info)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = SIG_DFL;
    sigaction(signal_number, &sa, NULL);
    if (info->si_code <= 0)
        raise(signal_number); /* sent by somebody: returning would not repeat it */
}

static void chain(int signal_number, siginfo_t *info, void *context)
{
    const struct sigaction *before = &process.before[signal_number == signals[1]];
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(signal_number, info, context);
    else if (before->sa_handler == SIG_DFL)
        default_action(signal_number, info);
    else if (before->sa_handler != SIG_IGN)
        before->sa_handler(signal_number);
    else if (info->si_code > 0)
        default_action(signal_number, info); /* a fault cannot be ignored */
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;
    const weft__stack *st = NULL;
    if (self.pool && info->si_code > 0)
        st = weft__stack_guard_hit(self.pool, info->si_addr);
    if (st) {
        report(st, weft__stack_pool_stack_size(self.pool));
        default_action(signal_number, info);
    } else {
        chain(signal_number, info, context);
    }
    errno = saved;
}

/* --- installing --- */

static int hook(int i)
{
    struct sigaction sa;
    if (process.hooked[i])
        return 0; /* still in the chain of somebody who came after us */
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_fault;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&sa.sa_mask);
    /* `before` must be there before the handler can run. */
    if (sigaction(signals[i], NULL, &process.before[i]) != 0 ||
        sigaction(signals[i], &sa, NULL) != 0)
        return -errno;
    process.hooked[i] = true;
    return 0;
}

static void unhook(int i)
{
    struct sigaction now;
    if (!process.hooked[i] || sigaction(signals[i], NULL, &now) != 0)
        return;
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_fault)
        return; /* another handler may call ours: leave it as a pass-through */
    if (sigaction(signals[i], &process.before[i], NULL) == 0)
        process.hooked[i] = false;
}

int weft__overflow_install(void)
{
    int r = 0;
    weft__acquire(&process.lock);
    if (process.count == 0) {
        r = hook(0);
        if (r == 0 && (r = hook(1)) < 0)
            unhook(0);
    }
    if (r == 0)
        process.count++;
    weft__release(&process.lock);
    return r;
}

void weft__overflow_uninstall(void)
{
    weft__acquire(&process.lock);
    WEFT__CHECK(process.count > 0);
    if (--process.count == 0) {
        unhook(0);
        unhook(1);
    }
    weft__release(&process.lock);
}

int weft__overflow_enter_thread(weft__stack_pool *pool)
{
    stack_t now;
    WEFT__CHECK(self.pool == NULL);
    if (sigaltstack(NULL, &now) != 0 || (now.ss_flags & SS_DISABLE)) {
        size_t size = ALT_STACK;
        long least = sysconf(_SC_SIGSTKSZ); /* knows how large the vector registers are */
        if (least > 0 && (size_t)least > size)
            size = (size_t)least;
        self.alt_stack = weft__malloc(size);
        if (!self.alt_stack)
            return -ENOMEM;
        stack_t alt = {.ss_sp = self.alt_stack, .ss_size = size};
        WEFT__CHECK(sigaltstack(&alt, NULL) == 0);
    }
    /* A blocked fault ends the process without a handler. */
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, &self.mask);
    self.pool = pool;
    return 0;
}

void weft__overflow_leave_thread(void)
{
    if (!self.pool)
        return;
    self.pool = NULL;
    for (int i = 0; i < 2; i++) {
        if (!sigismember(&self.mask, signals[i]))
            continue;
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        pthread_sigmask(SIG_BLOCK, &one, NULL);
    }
    if (self.alt_stack) {
        stack_t off = {.ss_flags = SS_DISABLE};
        sigaltstack(&off, NULL);
        weft__free(self.alt_stack);
        self.alt_stack = NULL;
    }
}

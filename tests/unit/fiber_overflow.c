/* A stack overflow ends the process with a report that names the fiber; everything
 * else about SIGSEGV and SIGBUS stays as the host had it. */
#include "unit_test.h"

#include "fiber/context.h"
#include "fiber/stack.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static weft__stack_pool *pool;
static weft__context home, fiber;

static WEFT__NOINLINE int eat(int depth)
{
    volatile char here[512];
    here[0] = (char)depth;
    return depth == 0 ? 0 : eat(depth - 1) + here[0];
}

static void greedy(void *arg)
{
    (void)arg;
    eat(1000);
    weft__context_switch_final(&fiber, &home);
}

static void touches_null(void *arg)
{
    *(volatile int *)((char *)arg + 64) = 1;
    weft__context_switch_final(&fiber, &home);
}

static void run(weft__context_fn entry, const char *name)
{
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    weft__stack *s = weft__stack_take(pool);
    s->owner = name;
    weft__context_adopt(&home);
    weft__context_init(&fiber, s->low, s->size, entry, (void *)64);
    weft__context_switch(&home, &fiber);
    weft__context_forget(&fiber);
    weft__stack_give(pool, s);
}

/* Runs `child` in a process of its own: its wait status, and what it wrote to stderr. */
static int in_child(void (*child)(void), char *text, size_t size)
{
    int out[2], status = 0;
    size_t n = 0;
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        child();
        _exit(0);
    }
    close(out[1]);
    for (ssize_t r; n < size - 1 && (r = read(out[0], text + n, size - 1 - n)) > 0;)
        n += (size_t)r;
    text[n] = 0;
    close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void child_overflows(void)
{
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    if (weft__overflow_install() || weft__overflow_enter_thread(pool))
        _exit(99);
    run(greedy, "glutton");
}

static void child_overflows_blocked(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    child_overflows();
}

static const char report[] = "weft: stack overflow in fiber \"glutton\" (stack size 65536 bytes)\n";

static void an_overflow_names_the_fiber(void **state)
{
    (void)state;
    void (*const children[])(void) = {child_overflows, child_overflows_blocked};
    for (int i = 0; i < 2; i++) {
        char text[4096];
        int status = in_child(children[i], text, sizeof text);
        text[sizeof report - 1] = 0; /* an emulator adds a line of its own */
        assert_string_equal(text, report);
        assert_true(WIFSIGNALED(status));
        assert_true(WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
    }
}

static void host_handler(int signal_number)
{
    static const char text[] = "host\n";
    (void)signal_number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(98);
    _exit(7);
}

static void child_faults_elsewhere(void)
{
    signal(SIGSEGV, host_handler);
    if (weft__overflow_install() || weft__overflow_enter_thread(pool))
        _exit(99);
    run(touches_null, "clumsy");
}

static void child_faults_without_host(void)
{
    signal(SIGSEGV, SIG_DFL);
    child_faults_elsewhere();
}

static void child_faults_default(void)
{
    signal(SIGSEGV, SIG_DFL);
    if (weft__overflow_install() || weft__overflow_enter_thread(pool))
        _exit(99);
    run(touches_null, "clumsy");
}

static void child_gets_one_sent(void)
{
    signal(SIGSEGV, SIG_DFL);
    if (weft__overflow_install() || weft__overflow_enter_thread(pool))
        _exit(99);
    kill(getpid(), SIGSEGV);
}

static void other_faults_go_to_the_host(void **state)
{
    (void)state;
    char text[4096];
    int status = in_child(child_faults_elsewhere, text, sizeof text);
    assert_string_equal(text, "host\n");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = in_child(child_faults_without_host, text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = in_child(child_faults_default, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_null(strstr(text, "weft"));
    status = in_child(child_gets_one_sent, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void *handler_of(int signal_number)
{
    struct sigaction sa;
    sigaction(signal_number, NULL, &sa);
    return (void *)(uintptr_t)sa.sa_handler;
}

static void uninstall_restores_what_was_there(void **state)
{
    (void)state;
    void *segv = handler_of(SIGSEGV), *bus = handler_of(SIGBUS);
    assert_int_equal(weft__overflow_install(), 0);
    assert_int_equal(weft__overflow_install(), 0);
    assert_ptr_not_equal(handler_of(SIGSEGV), segv);
    weft__overflow_uninstall();
    assert_ptr_not_equal(handler_of(SIGSEGV), segv);
    weft__overflow_uninstall();
    assert_ptr_equal(handler_of(SIGSEGV), segv);
    assert_ptr_equal(handler_of(SIGBUS), bus);
}

static void child_with_a_later_handler(void)
{
    weft__overflow_install();
    signal(SIGSEGV, host_handler);
    weft__overflow_uninstall(); /* must not remove the host's */
    if (handler_of(SIGSEGV) != (void *)(uintptr_t)host_handler)
        _exit(97);
    weft__overflow_install(); /* must not hook itself twice into the chain */
    if (handler_of(SIGSEGV) != (void *)(uintptr_t)host_handler)
        _exit(96);
    _exit(0);
}

static void a_later_handler_is_left_alone(void **state)
{
    (void)state;
    char text[4096];
    assert_int_equal(in_child(child_with_a_later_handler, text, sizeof text), 0);
}

static void a_thread_gets_its_signal_stack_and_mask_back(void **state)
{
    (void)state;
    sigset_t segv, mask;
    stack_t before, now;
    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    sigprocmask(SIG_BLOCK, &segv, NULL);
    sigaltstack(NULL, &before);
    assert_int_equal(weft__overflow_enter_thread(pool), 0);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    assert_false(sigismember(&mask, SIGSEGV));
    weft__overflow_leave_thread();
    sigprocmask(SIG_BLOCK, NULL, &mask);
    assert_true(sigismember(&mask, SIGSEGV));
    sigaltstack(NULL, &now);
    assert_int_equal(now.ss_flags, before.ss_flags);
    weft__overflow_leave_thread();
    sigprocmask(SIG_UNBLOCK, &segv, NULL);
}

static int setup(void **state)
{
    (void)state;
    return weft__stack_pool_new(0, &pool);
}

static int teardown(void **state)
{
    (void)state;
    weft__stack_pool_free(pool);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overflow_names_the_fiber),
        cmocka_unit_test(other_faults_go_to_the_host),
        cmocka_unit_test(uninstall_restores_what_was_there),
        cmocka_unit_test(a_later_handler_is_left_alone),
        cmocka_unit_test(a_thread_gets_its_signal_stack_and_mask_back),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

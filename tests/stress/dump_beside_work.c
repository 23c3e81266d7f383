/* SPDX-License-Identifier: MIT
 *
 * A dump can be had at any moment, of tasks that come and go and of a runtime whose
 * workers are all stuck: it does not hang, each line is whole, and it names each parked
 * task with what it waits for. */
#include "unit_test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness.h"
#include "weft/weft.h"

static weft__a32 stop, stuck;
static weft_event never = WEFT_EVENT_INIT;

static int brief(void *arg)
{
    return arg ? weft_sleep(20 * WEFT_USEC) : 0;
}

static int makes_tasks(void *arg)
{
    (void)arg;
    for (uintptr_t i = 0; !atom_load_rlx(&stop); i++) {
        weft_task *t;
        if (weft_spawn(NULL, brief, (void *)(i & 1), &(weft_spawn_options){.name = "brief"}, &t))
            break;
        weft_task_join(t, WEFT_NEVER, NULL);
        weft_task_unref(t);
    }
    return 0;
}

static int parks(void *arg)
{
    (void)arg;
    return weft_event_wait(&never, WEFT_NEVER);
}

static int sticks(void *arg)
{
    (void)arg;
    atom_add_rlx(&stuck, 1u);
    while (!atom_load_rlx(&stop))
        ;
    return 0;
}

static char text[1 << 20];

static void dump_into_text(weft_runtime *rt, FILE *f)
{
    rewind(f);
    assert_int_equal(ftruncate(fileno(f), 0), 0);
    assert_int_equal(weft_runtime_dump(rt, fileno(f)), 0);
    off_t end = lseek(fileno(f), 0, SEEK_END);
    assert_true(end > 0);
    ssize_t n = pread(fileno(f), text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = 0;
    if (n < (ssize_t)sizeof text - 1)
        assert_int_equal(text[n - 1], '\n');
}

/* Of `name`, how many lines, and do they say what it waits for? */
static int parked_lines(const char *name)
{
    int n = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        if (strncmp(line, "task ", 5) != 0 && strncmp(line, "worker ", 7) != 0 &&
            strncmp(line, "runtime ", 8) != 0)
            fail_msg("odd line: %s", line);
        if (strstr(line, name)) {
            n++;
            assert_non_null(strstr(line, "waiting"));
            assert_non_null(strstr(line, "event"));
        }
    }
    return n;
}

static void beside_tasks_that_come_and_go(void **state)
{
    (void)state;
    weft_runtime *rt;
    FILE *f = tmpfile();
    assert_non_null(f);
    atom_store_rlx(&stop, 0u);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(
            weft_spawn(rt, parks, NULL, &(weft_spawn_options){.name = "parked-one"}, NULL), 0);
    test_sleep_ms(50);
    for (int i = 0; i < 4; i++)
        assert_int_equal(weft_spawn(rt, makes_tasks, NULL, NULL, NULL), 0);
    uint64_t rounds = test_rounds(200);
    for (uint64_t i = 0; i < rounds; i++) {
        dump_into_text(rt, f);
        assert_int_equal(parked_lines("parked-one"), 10);
    }
    atom_store_rlx(&stop, 1u);
    assert_int_equal(weft_runtime_dump(NULL, 1), -EINVAL);
    assert_int_equal(weft_runtime_dump(rt, -1), -EINVAL);
    int closed = dup(1);
    close(closed);
    assert_int_equal(weft_runtime_dump(rt, closed), -EBADF);
    weft_runtime_free(rt);
    fclose(f);
}

static void when_all_workers_are_stuck(void **state)
{
    (void)state;
    weft_runtime *rt;
    FILE *f = tmpfile();
    assert_non_null(f);
    atom_store_rlx(&stop, 0u);
    assert_int_equal(weft_runtime_new(&(weft_runtime_options){.workers = 2}, &rt), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            weft_spawn(rt, parks, NULL, &(weft_spawn_options){.name = "parked-two"}, NULL), 0);
    test_sleep_ms(50);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_spawn(rt, sticks, NULL, NULL, NULL), 0);
    while (atom_load_rlx(&stuck) < 2)
        test_sleep_ms(1);
    dump_into_text(rt, f);
    assert_int_equal(parked_lines("parked-two"), 3);
    atom_store_rlx(&stop, 1u);
    weft_runtime_free(rt);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_tasks_that_come_and_go),
        cmocka_unit_test(when_all_workers_are_stuck),
    };
    test_limit(100, "dump_beside_work");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

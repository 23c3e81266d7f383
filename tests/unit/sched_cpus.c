/* SPDX-License-Identifier: MIT
 *
 * How many workers by default: the affinity mask, and the CPU quota of the cgroup. */
#include "unit_test.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sched/cpus.h"
#include "weft/runtime.h"

static char root[] = "/tmp/weft-cgroup-XXXXXX";
static unsigned affinity;

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    unlink(path);
    if (!text)
        return;
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static void quota_v2(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned cpus; /* 0: as many as the affinity mask */
    } cases[] = {{"200000 100000\n", 2},
                 {"50000 100000\n", 1},
                 {"150000 100000\n", 2},
                 {"100000 100000\n", 1},
                 {"1000 100000\n", 1},
                 {"max 100000\n", 0},
                 {"", 0},
                 {"nonsense\n", 0},
                 {"0 100000\n", 0},
                 {"-1 100000\n", 0},
                 {"100000 0\n", 0},
                 {"99999999999 1\n", 0},
                 {"max\n", 0},
                 {"6400000 100000\n", 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("cpu.max", cases[i].text);
        unsigned want = cases[i].cpus ? least(cases[i].cpus, affinity) : affinity;
        if (weft__cpus(root) != want)
            fail_msg("\"%s\": %u, not %u", cases[i].text, weft__cpus(root), want);
    }
    put("cpu.max", NULL);
    assert_int_equal(weft__cpus(root), affinity);
    assert_int_equal(weft__cpus("/nonexistent"), affinity);
}

static void quota_v1(void **state)
{
    (void)state;
    put("cpu.cfs_period_us", "100000\n");
    put("cpu.cfs_quota_us", "100000\n");
    assert_int_equal(weft__cpus(root), 1);
    put("cpu.cfs_quota_us", "-1\n");
    assert_int_equal(weft__cpus(root), affinity);
    put("cpu.cfs_quota_us", NULL);
    put("cpu.cfs_period_us", NULL);
}

static void affinity_mask(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(weft__cpus(root), 1);
    weft_runtime *rt;
    assert_int_equal(weft_runtime_new(NULL, &rt), 0);
    assert_int_equal(weft_runtime_workers(rt), 1);
    weft_runtime_free(rt);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quota_v2),
        cmocka_unit_test(quota_v1),
        cmocka_unit_test(affinity_mask),
    };
    if (!mkdtemp(root))
        return 1;
    cpu_set_t set;
    affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    put("cpu.max", NULL);
    rmdir(root);
    return r;
}

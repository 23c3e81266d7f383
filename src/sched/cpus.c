/* SPDX-License-Identifier: MIT
 *
 * cpus.c -- see cpus.h. The quota of every cgroup on the way up to the root counts,
 * because a limit on a parent limits the child.
 */
#include "sched/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned affinity(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

static void limit(unsigned *cpus, double quota, double period)
{
    if (quota <= 0 || period <= 0)
        return;
    double whole = quota / period;
    if (whole >= (double)*cpus)
        return;
    unsigned n = (unsigned)whole;
    n += (double)n < whole;
    if (n < 1)
        n = 1;
    if (n < *cpus)
        *cpus = n;
}

/* First line of root + path + file into text; false when it can't be read. */
static int read_line(const char *root, const char *path, const char *file, char *text, int size)
{
    char name[512];
    int n = snprintf(name, sizeof name, "%s%s/%s", root, path, file);
    if (n < 0 || n >= (int)sizeof name)
        return 0;
    FILE *f = fopen(name, "re");
    if (!f)
        return 0;
    int ok = fgets(text, size, f) != NULL;
    fclose(f);
    return ok;
}

static void limit_at(unsigned *cpus, const char *root, const char *path)
{
    char text[64], period_text[64];
    double quota, period;
    if (read_line(root, path, "cpu.max", text, sizeof text) &&
        sscanf(text, "%lf %lf", &quota, &period) == 2)
        limit(cpus, quota, period);
    if (read_line(root, path, "cpu.cfs_quota_us", text, sizeof text) &&
        read_line(root, path, "cpu.cfs_period_us", period_text, sizeof period_text))
        limit(cpus, atof(text), atof(period_text));
}

unsigned weft__cpus(const char *root)
{
    unsigned cpus = affinity();
    char line[512];
    if (!root)
        root = "/sys/fs/cgroup";
    limit_at(&cpus, root, "");
    limit_at(&cpus, root, "/cpu");
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        /* "0::/a/b" (v2) or "4:cpu,cpuacct:/a/b" (v1) */
        char *path = strchr(line, '/');
        if (!path)
            continue;
        path[strcspn(path, "\n")] = '\0';
        for (char *end; path[0] && (end = strrchr(path, '/')) != NULL; *end = '\0') {
            char v1[512];
            limit_at(&cpus, root, path);
            int n = snprintf(v1, sizeof v1, "/cpu%.500s", path);
            if (n > 0 && n < (int)sizeof v1)
                limit_at(&cpus, root, v1);
        }
    }
    if (f)
        fclose(f);
    return cpus;
}

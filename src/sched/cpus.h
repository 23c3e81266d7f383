/* SPDX-License-Identifier: MIT
 *
 * cpus.h -- how many workers a runtime has by default.
 */
#ifndef WEFT_SRC_CPUS_H
#define WEFT_SRC_CPUS_H

/* Processors this process may use: the affinity mask, cut down to the CPU quota of its
 * cgroup (v2 cpu.max, v1 cpu.cfs_quota_us) rounded up; at least 1. `root` is where
 * cgroup file systems are mounted; NULL: /sys/fs/cgroup. What can't be read doesn't
 * limit. Callable from: any thread. */
unsigned weft__cpus(const char *root);

#endif

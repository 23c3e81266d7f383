/* SPDX-License-Identifier: MIT
 *
 * census.c -- a table of spawn sites, each with the deepest stack seen; only filled in
 * runtimes that were made with the census on. After libdill's census (M. Sustrik).
 * Names are compared by address: they are literals that outlive their tasks. When the
 * table is full, further names are counted under "(others)".
 */
#include "sched/census.h"

#include <errno.h>

#include "sched/worker.h"

void weft__census_note(weft__census *c, const char *name, size_t bytes)
{
    weft__acquire(&c->lock);
    size_t i = 0;
    while (i < c->count && c->entries[i].name != name && i < WEFT__CENSUS_NAMES - 1)
        i++;
    if (i == c->count) {
        c->count++;
        c->entries[i] = (weft_census_entry){.name = name};
    }
    weft_census_entry *e = &c->entries[i];
    if (e->name != name)
        e->name = "(others)";
    e->fibers++;
    if (bytes > e->deepest)
        e->deepest = bytes;
    weft__release(&c->lock);
}

int weft_runtime_census(const weft_runtime *rt, weft_census_entry *entries, size_t max)
{
    if (!rt || (max && !entries))
        return -EINVAL;
    weft__census *c = rt->census_table;
    if (!c)
        return 0;
    weft__acquire(&c->lock);
    for (size_t i = 0; i < c->count && i < max; i++)
        entries[i] = c->entries[i];
    int n = (int)c->count;
    weft__release(&c->lock);
    return n;
}

/* SPDX-License-Identifier: MIT
 *
 * metrics.h -- what the files of this room share.
 *
 *   metrics.c    sources and their life, the public calls
 *   families.c   what is written about runtimes and workers, and how
 *   text.c       text that grows
 */
#ifndef WEFT_SRC_METRICS_H
#define WEFT_SRC_METRICS_H

#include "base/atomic.h"
#include "base/list.h"
#include "metrics/text.h"

#include "weft/event.h"
#include "weft/metrics.h"

typedef enum weft__source_kind {
    WEFT__SOURCE_RUNTIME,
    WEFT__SOURCE_REGISTRY,
    WEFT__SOURCE_VALUE
} weft__source_kind;

struct weft_metrics_source {
    weft__link link; /* weft_metrics.lock */
    weft__source_kind kind;
    weft__a32 uses, holders;
    weft_event gone;
    weft_runtime *runtime;
    weft_registry *registry;
    weft_metric metric;
    char name[128], help[128], labels[128];
};

/* All sources at this moment, each with a use. 0 or -ENOMEM. */
int weft__sources_use(weft_metrics *m, weft_metrics_source ***ret, unsigned *ret_count);
void weft__sources_drop(weft_metrics_source **all, unsigned count);

int weft__prometheus(weft_metrics *m, weft__text *text);
int weft__threads_json(weft_metrics *m, weft__text *text);

#endif

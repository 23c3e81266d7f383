/* SPDX-License-Identifier: MIT
 *
 * text.h -- text that grows; a failed allocation is kept, and said at the end.
 */
#ifndef WEFT_SRC_METRICS_TEXT_H
#define WEFT_SRC_METRICS_TEXT_H

#include "base/base.h"

typedef struct weft__text {
    char *data;
    size_t size, room;
    bool failed;
} weft__text;

void weft__text_add(weft__text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* With ", \ and line ends escaped, as both JSON and Prometheus' labels want them; other
 * control characters become spaces. */
void weft__text_quoted(weft__text *t, const char *s);

/* A number as Prometheus wants it: integers without a fraction, NaN, +Inf, -Inf. */
void weft__text_number(weft__text *t, double value);

#endif

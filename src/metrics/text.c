/* SPDX-License-Identifier: MIT
 *
 * text.c -- see text.h.
 */
#include "metrics/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool make_room(weft__text *t, size_t more)
{
    if (t->failed)
        return false;
    if (t->size + more < t->room)
        return true;
    size_t room = t->room ? t->room : 4096;
    while (room <= t->size + more)
        room *= 2;
    char *data = weft__malloc(room);
    if (!data) {
        t->failed = true;
        return false;
    }
    if (t->size)
        memcpy(data, t->data, t->size);
    weft__free(t->data);
    t->data = data;
    t->room = room;
    return true;
}

void weft__text_add(weft__text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && make_room(t, (size_t)n)) {
        vsnprintf(t->data + t->size, (size_t)n + 1, format, again);
        t->size += (size_t)n;
    }
    va_end(again);
}

void weft__text_quoted(weft__text *t, const char *s)
{
    weft__text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            weft__text_add(t, "\\%c", *s);
        else if (*s == '\n')
            weft__text_add(t, "\\n");
        else
            weft__text_add(t, "%c", (unsigned char)*s < ' ' ? ' ' : *s);
    }
    weft__text_add(t, "\"");
}

void weft__text_number(weft__text *t, double value)
{
    if (value != value)
        weft__text_add(t, "NaN");
    else if (value > 1e300 || value < -1e300)
        weft__text_add(t, value > 0 ? "+Inf" : "-Inf");
    else if (value > -9e15 && value < 9e15 && value == (double)(int64_t)value)
        weft__text_add(t, "%" PRId64, (int64_t)value);
    else
        weft__text_add(t, "%.9g", value);
}

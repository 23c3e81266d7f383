/* SPDX-License-Identifier: MIT
 *
 * addr.c -- socket addresses from and to text. Pure functions, but for the index and
 * the name of an interface in a scoped IPv6 address.
 */
#include "io/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

/* A decimal port, 0 to 65535, and nothing else. */
static bool parse_port(const char *text, in_port_t *ret)
{
    unsigned value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned)(*text - '0');
        if (value > 65535)
            return false;
    }
    *ret = htons((uint16_t)value);
    return true;
}

static bool parse_v6(char *host, struct sockaddr_in6 *a)
{
    char *scope = strchr(host, '%');
    if (scope) {
        *scope++ = '\0';
        a->sin6_scope_id = if_nametoindex(scope);
        if (!a->sin6_scope_id)
            return false;
    }
    a->sin6_family = AF_INET6;
    return inet_pton(AF_INET6, host, &a->sin6_addr) == 1;
}

int weft__addr_tcp(const char *text, weft__addr *ret)
{
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 2];
    const char *colon = text ? strrchr(text, ':') : NULL;
    size_t length = colon ? (size_t)(colon - text) : 0;
    in_port_t port;
    if (!colon || !parse_port(colon + 1, &port) || length >= sizeof host)
        return -EINVAL;
    memset(ret, 0, sizeof *ret);
    memcpy(host, text, length);
    host[length] = '\0';
    if (length == 0) { /* every address: IPv6's own takes IPv4 too */
        ret->u.v6.sin6_family = AF_INET6;
        ret->u.v6.sin6_addr = in6addr_any;
        ret->u.v6.sin6_port = port;
        ret->size = sizeof ret->u.v6;
        return 0;
    }
    if (host[0] == '[') {
        if (host[length - 1] != ']')
            return -EINVAL;
        host[length - 1] = '\0';
        if (!parse_v6(host + 1, &ret->u.v6))
            return -EINVAL;
        ret->u.v6.sin6_port = port;
        ret->size = sizeof ret->u.v6;
        return 0;
    }
    ret->u.v4.sin_family = AF_INET;
    ret->u.v4.sin_port = port;
    ret->size = sizeof ret->u.v4;
    return inet_pton(AF_INET, host, &ret->u.v4.sin_addr) == 1 ? 0 : -EINVAL;
}

int weft__addr_unix(const char *path, weft__addr *ret)
{
    size_t length = path ? strlen(path) : 0;
    if (length == 0 || (path[0] == '@' && length == 1))
        return -EINVAL;
    if (length >= sizeof ret->u.local.sun_path)
        return -ENAMETOOLONG;
    memset(ret, 0, sizeof *ret);
    ret->u.local.sun_family = AF_UNIX;
    memcpy(ret->u.local.sun_path, path, length);
    ret->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (path[0] == '@')
        ret->u.local.sun_path[0] = '\0'; /* the abstract space; the size ends the name */
    else
        ret->size++;
    return 0;
}

static int unix_text(const weft__addr *a, char *text, size_t size)
{
    size_t head = offsetof(struct sockaddr_un, sun_path);
    size_t length = a->size > head ? a->size - head : 0;
    const char *path = a->u.local.sun_path;
    if (length == 0)
        return snprintf(text, size, "%s", "");
    if (path[0] == '\0')
        return snprintf(text, size, "@%.*s", (int)(length - 1), path + 1);
    return snprintf(text, size, "%.*s", (int)length, path);
}

int weft__addr_text(const weft__addr *a, char *buffer, size_t size)
{
    char text[160], host[INET6_ADDRSTRLEN], scope[IF_NAMESIZE + 1] = "";
    int n;
    if (a->u.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->u.v4.sin_addr, host, sizeof host);
        n = snprintf(text, sizeof text, "%s:%u", host, (unsigned)ntohs(a->u.v4.sin_port));
    } else if (a->u.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->u.v6.sin6_addr, host, sizeof host);
        if (a->u.v6.sin6_scope_id && if_indextoname(a->u.v6.sin6_scope_id, scope + 1))
            scope[0] = '%';
        n = snprintf(text, sizeof text, "[%s%s]:%u", host, scope,
                     (unsigned)ntohs(a->u.v6.sin6_port));
    } else if (a->u.any.sa_family == AF_UNIX) {
        n = unix_text(a, text, sizeof text);
    } else {
        return -EAFNOSUPPORT;
    }
    if ((size_t)n >= size)
        return -ENOSPC;
    memcpy(buffer, text, (size_t)n + 1);
    return n;
}

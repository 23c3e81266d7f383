/* SPDX-License-Identifier: MIT
 *
 * dns.c -- see weft/dns.h: getaddrinfo(3) as a job that owns its question and its answer, so
 * that a caller who gave up leaves nothing behind that the resolver could write to.
 */
#include "weft/dns.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "io/addr.h"

enum { NAME_MAX_BYTES = 255, PORT_MAX_BYTES = 63, ADDRESSES_MAX = 1024, TRIES = 16 };

struct query {
    char name[NAME_MAX_BYTES + 1], port[PORT_MAX_BYTES + 1];
    struct addrinfo *answer;
};

static void query_free(void *arg)
{
    struct query *q = arg;
    if (q->answer)
        freeaddrinfo(q->answer);
    weft__free(q);
}

static int error_of(int eai)
{
    switch (eai) {
    case 0:
        return 0;
    case EAI_NONAME:
    case EAI_SERVICE:
#if defined(EAI_NODATA) && EAI_NODATA != EAI_NONAME
    case EAI_NODATA:
#endif
#ifdef EAI_ADDRFAMILY
    case EAI_ADDRFAMILY:
#endif
        return -ENOENT;
    case EAI_AGAIN:
        return -EHOSTUNREACH;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SYSTEM:
        return errno > 0 ? -errno : -EIO;
    case EAI_FAIL:
        return -ENOTRECOVERABLE;
    default:
        return -EINVAL;
    }
}

/* On a thread of the pool. */
static int look_up(void *arg)
{
    struct query *q = arg;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    errno = 0;
    return error_of(getaddrinfo(q->name, q->port, &hints, &q->answer));
}

/* "NAME:PORT" or "[ADDRESS]:PORT" into its halves. */
static bool split(const char *text, struct query *q)
{
    size_t size = text ? strnlen(text, NAME_MAX_BYTES + PORT_MAX_BYTES + 8) : 0;
    const char *colon = size ? memrchr(text, ':', size) : NULL;
    if (!colon)
        return false;
    size_t name = (size_t)(colon - text), port = size - name - 1;
    if (name >= 2 && text[0] == '[' && text[name - 1] == ']') {
        text++;
        name -= 2;
    } else if (memchr(text, ':', name)) {
        return false; /* IPv6 without brackets: which colon would it be */
    }
    if (name == 0 || name > NAME_MAX_BYTES || port == 0 || port > PORT_MAX_BYTES)
        return false;
    memcpy(q->name, text, name); /* the rest is zero */
    memcpy(q->port, colon + 1, port);
    return true;
}

static int texts_of(const struct addrinfo *list, weft_address *ret, unsigned max)
{
    unsigned n = 0;
    for (const struct addrinfo *i = list; i && n < max; i = i->ai_next) {
        weft__addr a;
        if (i->ai_addrlen > sizeof a.u)
            continue;
        memset(&a, 0, sizeof a);
        memcpy(&a.u, i->ai_addr, i->ai_addrlen);
        a.size = i->ai_addrlen;
        if (weft__addr_text(&a, ret[n].text, sizeof ret[n].text) >= 0)
            n++;
    }
    return n ? (int)n : -ENOENT;
}

int weft_resolve(weft_blocking_pool *pool, const char *name_and_port, weft_time deadline,
                 weft_address *ret, unsigned max)
{
    if (!pool || !ret || max == 0 || max > ADDRESSES_MAX)
        return -EINVAL;
    struct query *q = weft__calloc(1, sizeof *q);
    if (!q)
        return -ENOMEM;
    if (!split(name_and_port, q)) {
        weft__free(q);
        return -EINVAL;
    }
    int result;
    int r = weft_blocking(pool, look_up, q, query_free, deadline, &result);
    if (r)
        return r; /* the pool has the query */
    if (result == 0)
        result = texts_of(q->answer, ret, max);
    query_free(q);
    return result;
}

int weft_tcp_connect_name(weft_blocking_pool *pool, const char *name_and_port, weft_time deadline,
                          weft_fd **ret_conn)
{
    if (!ret_conn)
        return -EINVAL;
    weft_address *list = weft__calloc(TRIES, sizeof *list);
    if (!list)
        return -ENOMEM;
    int n = weft_resolve(pool, name_and_port, deadline, list, TRIES);
    int r = n < 0 ? n : -ENOENT;
    for (int i = 0; i < n; i++) {
        weft_time limit = deadline;
        if (deadline != WEFT_NEVER && i + 1 < n) {
            weft_time now = weft_now();
            limit = deadline > now ? now + (deadline - now) / (n - i) : deadline;
        }
        r = weft_tcp_connect(list[i].text, limit, ret_conn);
        if (r == 0 || r == -ECANCELED)
            break;
    }
    weft__free(list);
    return r;
}

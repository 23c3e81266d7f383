/* SPDX-License-Identifier: MIT
 *
 * addr.h -- socket addresses and their text form (described in weft/net.h).
 */
#ifndef WEFT_SRC_IO_ADDR_H
#define WEFT_SRC_IO_ADDR_H

#include "base/base.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef struct weft__addr {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
        struct sockaddr_storage storage;
    } u;
    socklen_t size;
} weft__addr;

/* Text to address: 0 or -EINVAL (-ENAMETOOLONG for a path). */
int weft__addr_tcp(const char *text, weft__addr *ret);
int weft__addr_unix(const char *path, weft__addr *ret);

/* Address to text: its length, -ENOSPC or -EAFNOSUPPORT. */
int weft__addr_text(const weft__addr *a, char *buffer, size_t size);

#endif

/* SPDX-License-Identifier: MIT
 *
 * weft/dns.h -- names to addresses, and connections by name.
 *
 * Names are looked up by the system's resolver (getaddrinfo(3): /etc/hosts, DNS, whatever
 * nsswitch.conf says) on a pool of weft/blocking.h, so a slow name server holds up the
 * pool's threads and nothing else. Give look-ups a pool of their own.
 */
#ifndef WEFT_DNS_H
#define WEFT_DNS_H

#include "weft/base.h"
#include "weft/blocking.h"
#include "weft/net.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One address as text, as weft_tcp_connect takes it: "192.0.2.1:80", "[2001:db8::1]:80". */
typedef struct weft_address {
    char text[WEFT_ADDRESS_SIZE];
} weft_address;

/* Looks up the addresses of "NAME:PORT" for TCP, in the order in which they should be
 * tried. NAME may also be a numeric address ("[...]" around IPv6), PORT also the name of a
 * service.
 *
 * ret, max  an array of `max` addresses, 1 to 1024, of which the first are set
 * deadline  absolute, ns; WEFT_TRY: -EAGAIN
 *
 * Returns  > 0           how many addresses there are, at most max
 *          -ENOENT       there is no such name, or it has no address, or no such service
 *          -EHOSTUNREACH the name servers did not answer
 *          -ENOTRECOVERABLE  they answered that they failed
 *          -EINVAL       a NULL, no port, a name over 255 bytes, a bad max
 *          and the errors of weft_blocking
 * On error *ret is untouched. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_resolve(weft_blocking_pool *pool, const char *name_and_port,
                                        weft_time deadline, weft_address *ret, unsigned max);

/* Connects to "NAME:PORT": looks it up, then tries its addresses one after the other; of
 * the time that is left until the deadline, each gets an equal share.
 *
 * ret_conn  set on success only; one reference, the caller's
 *
 * Returns 0; the errors of weft_resolve; or the error with which the last address failed, as
 * of weft_tcp_connect. Callable from: any thread, any fiber. Parks. */
WEFT_API WEFT_MUST_USE int weft_tcp_connect_name(weft_blocking_pool *pool,
                                                 const char *name_and_port, weft_time deadline,
                                                 weft_fd **ret_conn);

#ifdef __cplusplus
}
#endif
#endif

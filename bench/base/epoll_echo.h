/* SPDX-License-Identifier: MIT
 *
 * epoll_echo.h -- the echo server one writes by hand for one thread.
 */
#ifndef BENCH_BASE_EPOLL_ECHO_H
#define BENCH_BASE_EPOLL_ECHO_H

/* Serves the connections of a non-blocking listener until the process ends. */
_Noreturn void base_epoll_echo(int listener);

#endif

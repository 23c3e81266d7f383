/* SPDX-License-Identifier: MIT
 *
 * echo.c -- a TCP server that sends back what it gets, a fiber for each connection, on
 * all cores. A connection that says nothing for a minute is closed.
 *
 *     echo [ADDRESS]      by default 127.0.0.1:7000
 */
#include <weft/weft.h>

#include <errno.h>
#include <stdio.h>

static int echo(void *arg)
{
    weft_fd *conn = arg;
    char data[4096];
    ssize_t n;
    while ((n = weft_fd_read(conn, data, sizeof data, weft_after(60 * WEFT_SEC))) > 0)
        if (weft_fd_write_full(conn, data, (size_t)n, weft_after(10 * WEFT_SEC), NULL) != 0)
            break;
    weft_fd_unref(conn); /* the last reference closes */
    return 0;
}

static int serve(void *address)
{
    weft_fd *listener, *conn;
    int error = weft_tcp_listen(address, NULL, &listener);
    if (error)
        return error;
    while ((error = weft_tcp_accept(listener, WEFT_NEVER, &conn)) == 0 || error == -EMFILE)
        if (error == 0 && weft_go(echo, conn) != 0)
            weft_fd_unref(conn);
    weft_fd_unref(listener);
    return error;
}

int main(int argc, char **argv)
{
    weft_runtime *rt = NULL;
    weft_task *server = NULL;
    int result = 0, error = weft_runtime_new(NULL, &rt); /* a worker for each core */
    if (!error)
        error = weft_spawn(rt, serve, argc > 1 ? argv[1] : "127.0.0.1:7000", NULL, &server);
    if (!error)
        error = weft_task_join(server, WEFT_NEVER, &result);
    fprintf(stderr, "echo: %s\n", weft_strerror(error ? error : result));
    weft_task_unref(server);
    weft_runtime_free(rt);
    return 1; /* it only ends when something is wrong */
}

/* SPDX-License-Identifier: MIT
 *
 * The echo server that README.md shows: two clients at once, each gets its own bytes
 * back; a bad address ends it with a message.
 */
#include "unit_test.h"

#include "harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static int client(uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 1000; i++) { /* the server may still be starting */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            return fd;
        close(fd);
        test_sleep_ms(10);
    }
    return -1;
}

static void exchange(int fd, const char *text)
{
    char back[64];
    size_t size = strlen(text), got = 0;
    assert_int_equal(write(fd, text, size), size);
    while (got < size) {
        ssize_t n = read(fd, back + got, size - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_memory_equal(back, text, size);
}

static void clients_get_their_own_bytes_back(void **state)
{
    (void)state;
    char address[32], output[512];
    uint16_t port = test_free_port();
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    struct test_process p;
    char *argv[] = {PROGRAM, address, NULL};
    assert_int_equal(test_process_start(&p, argv), 0);
    int a = client(port), b = client(port);
    assert_true(a >= 0 && b >= 0);
    for (int i = 0; i < 100; i++) {
        exchange(a, "from the first");
        exchange(b, "and from the second client");
    }
    /* The end of what a client sends is the end of its connection. */
    shutdown(a, SHUT_WR);
    assert_int_equal(read(a, output, sizeof output), 0);
    exchange(b, "still here");
    close(a);
    close(b);
    kill(p.pid, SIGTERM);
    assert_int_equal(test_process_finish(&p, 10000, output, sizeof output), 128 + SIGTERM);
    assert_string_equal(output, "");
}

static void a_bad_address_is_told(void **state)
{
    (void)state;
    char output[512];
    char *argv[] = {PROGRAM, "nowhere", NULL};
    assert_int_equal(test_run(argv, 20000, output, sizeof output), 1);
    assert_string_equal(output, "echo: invalid argument\n");
}

int main(void)
{
    test_limit(60, "example.echo");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_get_their_own_bytes_back),
        cmocka_unit_test(a_bad_address_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The checksum service against cksum(1), over files of many sizes; with updates from all
 * three kinds of senders; and over a file that is not there.
 */
#include "unit_test.h"

#include "harness.h"

#include <unistd.h>

enum { FILES = 18 };

static char directory[] = "/tmp/weft-checksums-XXXXXX";
static char paths[FILES][64];

static int make_files(void **state)
{
    static const size_t sizes[] = {0, 1, 255, 65535, 65536, 65537, 1000000, (5u << 20) + 17, 12};
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    uint64_t x = test_seed();
    for (int i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/file%d", directory, i);
        FILE *f = fopen(paths[i], "wb");
        if (!f)
            return -1;
        for (size_t k = 0; k < sizes[i % 9]; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            fputc((int)(x >> 56), f);
        }
        fclose(f);
    }
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (int i = 0; i < FILES; i++)
        unlink(paths[i]);
    return rmdir(directory);
}

static void it_says_what_cksum_says(void **state)
{
    (void)state;
    static char mine[8192], theirs[8192];
    char program[] = "cksum", self[] = PROGRAM, *argv[FILES + 2] = {self};
    for (int i = 0; i < FILES; i++)
        argv[i + 1] = paths[i];
    assert_int_equal(test_run(argv, 60000, mine, sizeof mine), 0);
    argv[0] = program;
    if (!test_has_program(program))
        skip();
    assert_int_equal(test_run(argv, 60000, theirs, sizeof theirs), 0);
    assert_string_equal(mine, theirs);
}

static void every_kind_of_sender_hears_the_progress(void **state)
{
    (void)state;
    static char output[8192];
    char self[] = PROGRAM, v[] = "-v", *argv[] = {self, v, paths[7], paths[7], paths[7], NULL};
    assert_int_equal(test_run(argv, 60000, output, sizeof output), 0);
    /* 5 MiB and 17 bytes in pieces of 64 KiB */
    assert_non_null(strstr(output, "  by poll, 81 updates\n"));
    assert_non_null(strstr(output, "  by fiber, 81 updates\n"));
    assert_non_null(strstr(output, "  by thread, 81 updates\n"));
    assert_non_null(strstr(output, "3 tasks completed, 0 wake-ups lost\n"));
}

static void a_missing_file_is_told(void **state)
{
    (void)state;
    char output[1024], none[] = "/nonexistent/file", self[] = PROGRAM;
    char *argv[] = {self, paths[0], none, NULL};
    assert_int_equal(test_run(argv, 60000, output, sizeof output), 1);
    assert_non_null(strstr(output, "4294967295 0 "));
    assert_non_null(strstr(output, "checksums: /nonexistent/file: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_cksum_says),
        cmocka_unit_test(every_kind_of_sender_hears_the_progress),
        cmocka_unit_test(a_missing_file_is_told),
    };
    test_limit(120, "checksums");
    return cmocka_run_group_tests(tests, make_files, remove_files);
}

/* SPDX-License-Identifier: MIT
 *
 * A program that knows only what is installed: the headers and one of the libraries.
 */
#include <weft/base.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    weft_time before = weft_now();
    if (weft_after(WEFT_SEC) < before + WEFT_SEC)
        return 1;
    if (argc > 1 && strcmp(argv[1], weft_version()) != 0) {
        fprintf(stderr, "library %s, expected %s\n", weft_version(), argv[1]);
        return 1;
    }
    puts(weft_version());
    return 0;
}

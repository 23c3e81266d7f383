/* What every test includes: cmocka and what cmocka needs before it. */
#ifndef WEFT_TESTS_UNIT_TEST_H
#define WEFT_TESTS_UNIT_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#endif

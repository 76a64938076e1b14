/* Shared by the files of the suite factors. */
#ifndef OPTC_TESTS_FACTORS_H
#define OPTC_TESTS_FACTORS_H
#include "tests/harness/product_program.h"

extern const char *const factor_rules[];
TCase *factors_defined(void);
#endif

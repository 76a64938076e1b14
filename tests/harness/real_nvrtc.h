/* For tests that use the real NVRTC, and for tests that need their own process. */
#ifndef OPTC_TESTS_REAL_NVRTC_H
#define OPTC_TESTS_REAL_NVRTC_H
#include "runtime/library/compile/nvrtc.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Libraries load once per process: without fork the second case would see those of the first. */
static inline bool forked(void)
{
    const char *f = getenv("CK_FORK");
    return !f || strcmp(f, "no");
}

/* NULL, with a note that `what` is skipped, if there is none; with CI set that fails. */
static inline const Nvrtc *real_nvrtc(const char *what)
{
    const char *why;
    const Nvrtc *n = nvrtc_get(&why);
    if (!n)
        fprintf(stderr, "skipped: %s (%s)\n", what, why);
    ck_assert_msg(n || !getenv("CI"), "%s: must not be skipped with CI set: %s", what, why);
    return n;
}
#endif

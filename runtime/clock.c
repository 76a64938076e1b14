/* Types as the caller names them; the clock. */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

_Static_assert((int)OPTC_F32 == T_F32 + 1 && (int)OPTC_F64 == T_F64 + 1 && (int)OPTC_BF16 == T_BF16 + 1 &&
                   (int)OPTC_F16 == T_F16 + 1 && (int)OPTC_F16 == NTYPES,
               "the core counts types from 1");

int inner_type(optc_type t) { return t == OPTC_DEFAULT ? -1 : (int)t < 1 || (int)t > NTYPES ? -2 : (int)t - 1; }

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, by_value);
    return t[n / 2];
}

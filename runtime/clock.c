/* Types as the caller names them; the clock. */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

#define TYPE(ID, ...) _Static_assert((int)OPTC_##ID == T_##ID + 1, "the core counts types from 1");
#include "types.def"

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

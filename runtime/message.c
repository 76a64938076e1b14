#include "internal.h"

#include <time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[2048];

const char *optc_message(void) { return message; }
const char *optc_version(void) { return OPTC_VERSION; }

optc_status fail(optc_status s, const char *fmt, ...)
{
    char text[sizeof message];           /* arguments may point into the old message */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(message, text, sizeof message);
    return s;
}

const char *optc_status_name(optc_status s)
{
    switch (s) {
    case OPTC_OK: return "ok";
    case OPTC_ERROR_ARGUMENT: return "bad argument";
    case OPTC_ERROR_SPEC: return "bad spec";
    case OPTC_ERROR_RANGE: return "out of range";
    case OPTC_ERROR_IO: return "input/output error";
    case OPTC_ERROR_MEMORY: return "out of memory";
    case OPTC_ERROR_UNAVAILABLE: return "unavailable";
    case OPTC_ERROR_BUSY: return "still in use";
    case OPTC_ERROR_DEVICE: return "device error";
    }
    return "unknown status";
}

static const struct { optc_type pub; Type in; } types[] = {{OPTC_F32, T_F32}, {OPTC_F64, T_F64}, {OPTC_BF16, T_BF16}, {OPTC_F16, T_F16}};

optc_type public_type(Type t)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].in == t)
            return types[i].pub;
    return OPTC_DEFAULT;
}

int inner_type(optc_type t)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].pub == t)
            return (int)types[i].in;
    return t == OPTC_DEFAULT ? -1 : -2;
}

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

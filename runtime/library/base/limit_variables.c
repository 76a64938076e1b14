/* Limits that the environment sets: $OPTC_CC_SECONDS, $OPTC_CC_MEMORY, $OPTC_CACHE_MAX. optc_open
 * refuses a value that cannot be read: a limit with a typing mistake must not silently be another
 * one. An empty value is none. */
#include "runtime/library/base/limit_variables.h"

#include "gen/gen.h"
#include "runtime/core/api/api.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_seconds(const char *s, double *out)
{
    char *end;
    /* strtod also reads blanks, signs, hexadecimal numbers, "inf" and "nan", and in some locales a
     * decimal comma */
    if ((*s != '.' && (*s < '0' || *s > '9')) || s[strspn(s, "0123456789.eE+-")])
        return false;
    LocaleMark was = locale_plain();
    errno = 0;
    double x = strtod(s, &end);
    bool reads = !*end && !errno && isfinite(x);
    locale_back(was);
    if (reads)
        *out = x;
    return reads;
}

static bool is_seconds(const char *s)
{
    double x;
    return read_seconds(s, &x);
}

static bool is_size(const char *s)
{
    int64_t x;
    return parse_size(s, &x);
}

static const struct { const char *name, *wanted; bool (*reads)(const char *s);
} rows[] = {
    [LIMIT_CC_SECONDS] = {"OPTC_CC_SECONDS", "a number of seconds such as 120, or 0 for no limit",
                          is_seconds},
    [LIMIT_CC_MEMORY] = {"OPTC_CC_MEMORY", "a size such as 512M or 4G, or 0 for no limit", is_size},
    [LIMIT_CACHE_MAX] = {"OPTC_CACHE_MAX", "a size such as 512M or 4G, or 0 for no limit",
                         is_size}};

static const char *value_of(LimitVariable v)
{
    const char *s = getenv(rows[v].name);
    return s && *s ? s : NULL;
}

bool limit_seconds(LimitVariable v, double *out)
{
    const char *s = value_of(v);
    return s && read_seconds(s, out);
}

bool limit_size(LimitVariable v, int64_t *out)
{
    const char *s = value_of(v);
    return s && parse_size(s, out);
}

bool limit_wrong(LimitVariable v, char *why, size_t n)
{
    const char *s = value_of(v);
    if (!s || rows[v].reads(s))
        return false;
    snprintf(why, n, "%s is '%.40s'; it must be %s", rows[v].name, s, rows[v].wanted);
    return true;
}

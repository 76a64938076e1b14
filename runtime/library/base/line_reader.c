/* Reads text line by line, with errors that name file and line. */
#include "runtime/library/base/line_reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINE = 1024 };

bool line_bad(const LineReader *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(r->why, r->nwhy, "%.200s:%d: ", r->name, r->line);
    if (n >= 0 && (size_t)n < r->nwhy)
        vsnprintf(r->why + n, r->nwhy - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

static bool check_line(const LineReader *r, const char *s, size_t n)
{
    if (n > MOST_LINE)
        return line_bad(r, "the line is longer than %d bytes", MOST_LINE);
    for (size_t i = 0, step; i < n; i += step)
        if (!(step = s[i] == '\t' ? 1 : line_char(s + i, n - i)))
            return line_bad(r, "byte %d of the line (0x%02x) is a control character or not UTF-8",
                            (int)i + 1, (unsigned char)s[i]);
    return true;
}

int line_next(LineReader *r, char **line)
{
    if (r->at == r->end)
        return 0;
    char *s = *line = r->at, *stop = memchr(s, '\n', (size_t)(r->end - s));
    r->line++;
    if (!stop && r->strict)
        return line_bad(r, "cut short: the line has no newline"), -1;
    r->at = stop ? stop + 1 : r->end;
    size_t n = (size_t)((stop ? stop : r->end) - s);
    n -= n && s[n - 1] == '\r';
    s[n] = 0;
    return !r->strict || check_line(r, s, n) ? 1 : -1;
}

char *line_word(char **s)
{
    char *w = *s + strspn(*s, " \t");
    char *end = w + strcspn(w, " \t");
    *s = end + (*end != 0);
    *end = 0;
    return *w ? w : NULL;
}

char *line_trim(char *s)
{
    s += strspn(s, " \t");
    size_t n = strlen(s);
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    s[n] = 0;
    return s;
}

char *line_value(char *word)
{
    char *value = strchr(word, '=');
    if (!value || value == word)
        return NULL;
    *value = 0;
    return value + 1;
}

bool line_int(const char *s, int lo, int hi, int *out)
{
    size_t n = strspn(s, "0123456789");
    if (!n || n > 9 || s[n] || (n > 1 && *s == '0'))
        return false;
    *out = (int)strtol(s, NULL, 10);
    return *out >= lo && *out <= hi;
}

bool line_real(const char *s, double *out)
{
    char *end;
    /* strtod alone would accept hexadecimal, inf and nan */
    if (*s < '0' || *s > '9' || s[strspn(s, "0123456789.eE+-")])
        return false;
    *out = strtod(s, &end);
    return !*end && isfinite(*out);
}

size_t line_char(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t len = u[0] < 0x80                   ? 1
                 : u[0] >= 0xc2 && u[0] < 0xe0 ? 2
                 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3
                 : u[0] >= 0xf0 && u[0] < 0xf5 ? 4
                                               : 0;
    if (len > n || u[0] < 32 || u[0] == 127)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((u[i] & 0xc0) != 0x80)
            return 0;
    /* an encoding that is longer than needed */
    bool wide = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xf0 && u[1] < 0x90);
    bool none = (u[0] == 0xed && u[1] > 0x9f) || (u[0] == 0xf4 && u[1] > 0x8f) ||
                (u[0] == 0xc2 && u[1] < 0xa0);
    return wide || none ? 0 : len;
}

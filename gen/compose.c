/* "clip(1),ema(decay=0.999)" -> wrappers and their arguments. */
#include "trace.h"

#include <ctype.h>
#include <string.h>

static const char *skip(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

/* A word up to a delimiter, trimmed. */
static const char *word(Arena *a, const char **s, const char *stop)
{
    const char *b = skip(*s);
    size_t n = strcspn(b, stop);
    *s = b + n;
    while (n && isspace((unsigned char)b[n - 1]))
        n--;
    return arena_strndup(a, b, n);
}

static bool parse_args(Arena *a, const char **s, const char *stop, Arg **out, int *n)
{
    int cap = 0;
    *out = NULL;
    *n = 0;
    const char *delims = arena_printf(a, ",=%s", stop);
    for (*s = skip(*s); **s && !strchr(stop, **s);) {
        Arg arg = {NULL, word(a, s, delims)};
        if (**s == '=') {
            ++*s;
            arg.key = arg.value;
            arg.value = word(a, s, arena_printf(a, ",%s", stop));
        }
        if (!*arg.value || (arg.key && !*arg.key))
            return false;
        PUSH(a, *out, *n, cap) = arg;
        *s = skip(*s);
        if (**s != ',')
            break;
        *s = skip(*s + 1);
        if (!**s || strchr(stop, **s))
            return false;
    }
    return !**s || strchr(stop, **s);
}

bool args_parse(Arena *a, const char *text, Arg **out, int *n, Diag *d, const char *what)
{
    const char *s = text;
    if (parse_args(a, &s, "", out, n))
        return true;
    diag_set(d, NULL, 0, NULL, "%s '%s': expected name=value, name=value, …", what, text);
    return false;
}

bool compose_parse(Arena *a, const char *text, Wrap **out, int *n, Diag *d)
{
    int cap = 0;
    *out = NULL;
    *n = 0;
    const char *s = skip(text ? text : "");
    while (*s) {
        Wrap w = {.name = word(a, &s, ",()= ")};
        s = skip(s);
        bool ok = is_ident(w.name);
        if (ok && *s == '(') {
            s++;
            ok = parse_args(a, &s, ")", &w.arg, &w.narg) && *s == ')';
            s = ok ? skip(s + 1) : s;
        }
        if (!ok || (*s && *s != ',') || (*s == ',' && !*skip(s + 1))) {
            diag_set(d, NULL, 0, NULL,
                     "--with '%s': expected wrapper(arguments),wrapper(arguments), for example clip(1),ema(0.999); "
                     "stopped at '%s'",
                     text, s);
            return false;
        }
        PUSH(a, *out, *n, cap) = w;
        s = *s ? skip(s + 1) : s;
    }
    return true;
}

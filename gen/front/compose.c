/* Parses "clip(1),ema(decay=0.999)" into wrappers and their arguments, and prints them. A + may
 * stand for a comma. */
#include "gen/front/trace.h"

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

/* A wrapper's name, or the path of its file, which ends with .lua; false: neither. */
static bool wrapper_name(Arena *a, const char **s, Wrap *w)
{
    const char *from = *s;
    w->name = word(a, s, ",()=+ ");
    if (is_ident(w->name))
        return true;
    const char *path = (*s = from, word(a, s, ",()="));
    size_t n = strlen(path);
    w->file = n > 4 && !strcmp(path + n - 4, ".lua");
    if (!w->file && (path = strstr(path, ".lua+"))) {          /* another wrapper follows */
        *s = strstr(from, ".lua+") + 4;
        path = arena_strndup(a, from, (size_t)(*s - from));
        w->file = true;
    }
    w->name = w->file ? path : w->name;
    return w->file;
}

bool compose_parse(Arena *a, const char *text, Wrap **out, int *n, Diag *d)
{
    int cap = 0;
    *out = NULL;
    *n = 0;
    const char *s = skip(text ? text : "");
    while (*s) {
        Wrap w = {0};
        bool ok = wrapper_name(a, &s, &w);
        s = skip(s);
        if (ok && *s == '(') {
            s++;
            ok = parse_args(a, &s, ")", &w.arg, &w.narg) && *s == ')';
            s = ok ? skip(s + 1) : s;
        }
        bool more = *s == ',' || *s == '+';
        if (!ok || (*s && !more) || (more && !*skip(s + 1))) {
            diag_set(d, NULL, 0, NULL,
                     "--with '%s': expected wrapper(arguments),wrapper(arguments), for example "
                     "clip(1),ema(0.999), or "
                     "a file of your own, ./mine.lua(0.5); stopped at '%s'",
                     text, s);
            return false;
        }
        PUSH(a, *out, *n, cap) = w;
        s = *s ? skip(s + 1) : s;
    }
    return true;
}

const char *compose_text(Arena *a, const Wrap *w, int n)
{
    Buf b = {.arena = a};
    for (int i = 0; i < n; i++) {
        buf_printf(&b, "%s%s", i ? "," : "", w[i].name);
        for (int k = 0; k < w[i].narg; k++) {
            const Arg *x = &w[i].arg[k];
            buf_printf(&b, "%s%s%s%s", k ? "," : "(", x->key ? x->key : "", x->key ? "=" : "",
                       x->value);
        }
        buf_puts(&b, w[i].narg ? ")" : "");
    }
    return b.len ? buf_text(&b) : "";
}

#include "diag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void quote_line(Buf *b, const char *source, int line)
{
    for (int at = 1; source && *source; at++) {
        size_t n = strcspn(source, "\n");
        if (at == line) {
            while (n && (*source == ' ' || *source == '\t'))
                source++, n--;
            if (n > 160)
                n = 160;
            if (n)
                buf_printf(b, "\n  %4d | %.*s", line, (int)n, source);
            return;
        }
        source += n + (source[n] == '\n');
    }
}

void diag_set(Diag *d, const char *file, int line, const char *source, const char *fmt, ...)
{
    if (!d || d->text)
        return;
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    if (file && line)
        buf_printf(&b, "%s:%d: ", file, line);
    else if (file)
        buf_printf(&b, "%s: ", file);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    if (b.len > 2000)
        b.len = 2000, b.s[2000] = 0;     /* a spec may put anything into its own error */
    if (line)
        quote_line(&b, source, line);
    d->line = line;
    snprintf(d->file, sizeof d->file, "%s", file ? file : "");
    d->text = buf_take(&b);
}

void diag_free(Diag *d)
{
    free(d->text);
    memset(d, 0, sizeof *d);
}

void near_try(Near *n, const char *name)
{
    int d = edit_distance(n->want, name);
    size_t len = strlen(n->want);
    bool prefix = len >= 3 && !strncmp(n->want, name, len);
    if (prefix && d > 2)
        d = 2;
    if (d > (len <= 2 ? 1 : len <= 5 ? 2 : 3))
        return;
    for (int i = 0; i < n->n; i++)
        if (!strcmp(n->best[i], name))
            return;
    int at = n->n;
    while (at > 0 && (n->dist[at - 1] > d || (n->dist[at - 1] == d && strcmp(n->best[at - 1], name) > 0)))
        at--;                            /* equally near: by name, so that the order they come in does not show */
    if (at >= 3)
        return;
    for (int i = n->n < 3 ? n->n : 2; i > at; i--) {
        n->best[i] = n->best[i - 1];
        n->dist[i] = n->dist[i - 1];
    }
    n->best[at] = name;
    n->dist[at] = d;
    if (n->n < 3)
        n->n++;
}

const char *near_text(const Near *n, Arena *a)
{
    switch (n->n) {
    case 0: return "";
    case 1: return arena_printf(a, "; did you mean '%s'?", n->best[0]);
    case 2: return arena_printf(a, "; did you mean '%s' or '%s'?", n->best[0], n->best[1]);
    default: return arena_printf(a, "; did you mean '%s', '%s' or '%s'?", n->best[0], n->best[1], n->best[2]);
    }
}

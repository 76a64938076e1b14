/* Formats diagnostics and quotes the spec's line (diag.h). */
#include "gen/base/diag.h"

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
    if (!d || d->text || d->kind == DIAG_MEMORY)
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
    if (b.len > 2000 && !b.oom)
        b.len = 2000, b.s[2000] = 0;     /* a spec's error() may pass a text of any length */
    if (line)
        quote_line(&b, source, line);
    d->line = line;
    snprintf(d->file, sizeof d->file, "%s", file ? file : "");
    d->text = buf_take(&b);
    if (d->text)
        text_clean(d->text, "\n\t");
    else
        d->kind = DIAG_MEMORY;
}

void diag_memory(Diag *d)
{
    if (!d)
        return;
    diag_free(d);
    d->kind = DIAG_MEMORY;
}

void diag_free(Diag *d)
{
    free(d->text);
    memset(d, 0, sizeof *d);
}

const char *near_text(const Near *n, Arena *a)
{
    char buf[256];
    return arena_strdup(a, near_print(n, buf, sizeof buf));
}

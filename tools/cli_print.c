/* Prints colours, numbers, columns and texts from outside; reads and writes whole files. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/tools.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cli_paint(Paint p)
{
    static const char *const code[] = {
        [PAINT_NONE] = "\033[0m", [PAINT_HEAD] = "\033[1m",  [PAINT_GOOD] = "\033[32m",
        [PAINT_BAD] = "\033[31m", [PAINT_WARN] = "\033[33m", [PAINT_DIM] = "\033[2m"};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    bool plain = (no && *no) || (term && !strcmp(term, "dumb"));
    return isatty(STDOUT_FILENO) && !plain ? code[p] : "";
}

/* Newlines at the beginning of the text are not coloured. */
void cli_heading(const char *text)
{
    size_t n = strspn(text, "\n");
    printf("%.*s%s%s%s\n", (int)n, text, cli_paint(PAINT_HEAD), text + n, cli_paint(PAINT_NONE));
}

int cli_width(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

void cli_cell(const char *s, int width)
{
    cli_put_clean(stdout, s, false);
    printf("%*s", width > cli_width(s) ? width - cli_width(s) : 0, "");
}

/* A spec's texts may contain anything, and a terminal obeys control characters. So they become
 * blanks, except newlines if `lines` is set. */
void cli_put_clean(FILE *f, const char *s, bool lines)
{
    bool control;
    for (int n; *s; s += n) {
        n = text_char(s, lines ? "\n" : "", &control);
        fprintf(f, "%.*s", control ? 1 : n, control ? " " : s);
    }
}

/* Texts of usual length need no allocation: reports of work that is done must not fail. */
void cli_print(const char *fmt, ...)
{
    char text[8192];
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    bool fits = vsnprintf(text, sizeof text, fmt, ap) < (int)sizeof text;
    va_end(ap);
    va_start(ap, fmt);
    if (!fits)
        buf_vprintf(&b, fmt, ap);
    va_end(ap);
    cli_put_clean(stdout, fits ? text : cli_text(&b), true);
    buf_free(&b);
}

/* Breaks long text between words. */
void cli_wrapped(const char *text, int indent)
{
    size_t room = CLI_WIDTH - (size_t)indent;
    char part[CLI_WIDTH + 1];
    for (const char *s = text;; printf("\n%*s", indent, "")) {
        size_t k = strlen(s), n = k;
        if (n > room)
            for (k = room; k && s[k] != ' '; k--)
                ;
        k = k || !n ? k : room;
        snprintf(part, sizeof part, "%.*s", (int)k, s);
        cli_put_clean(stdout, part, false);
        s += k + (s[k] == ' ');
        if (!*s)
            break;
    }
    puts(cli_paint(PAINT_NONE));
}

void cli_line(const char *key, const char *text)
{
    enum { WIDE = 136 };
    char part[WIDE + 1];
    for (size_t n = strlen(text), k; n > WIDE; text += k + 1, n -= k + 1, key = "") {
        for (k = WIDE; k && text[k] != ' '; k--)
            ;
        if (!k)
            break;
        memcpy(part, text, k);
        part[k] = 0;
        printf("  %-9s ", key);
        cli_put_clean(stdout, part, false);
        puts("");
    }
    printf("  %-9s ", key);
    cli_put_clean(stdout, text, false);
    puts("");
}

static const char *scaled(char buf[32], double x, double base, const char *const *unit, int n)
{
    int i = 0;
    while (i < n - 1 && x >= base * 0.9995) {
        x /= base;
        i++;
    }
    snprintf(buf, 32, "%.*f %s",
             x >= 99.95 || (i == 0 && x == (double)(long)x) ? 0
             : x >= 9.995                                   ? 1
                                                            : 2,
             x, unit[i]);
    return buf;
}

const char *cli_bytes(char buf[32], double bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    return scaled(buf, bytes, 1000, unit, 6);
}

const char *cli_flops(char buf[32], double flops)
{
    static const char *const unit[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
    return scaled(buf, flops, 1000, unit, 6);
}

const char *cli_time(char buf[32], double seconds)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    return scaled(buf, seconds * 1e9, 1000, unit, 4);
}

const char *cli_size(char buf[32], int64_t n)
{
    static const char *const suffix[] = {"", "K", "M", "G", "T"};
    int i = 0;
    for (; i < 4 && n && n % 1024 == 0; i++)
        n /= 1024;
    snprintf(buf, 32, "%lld%s", (long long)n, suffix[i]);
    return buf;
}

const char *cli_dims(char buf[160], const Dims *d)
{
    int n = 0;
    for (int i = 0; i < d->rank; i++)
        n += snprintf(buf + n, 160 - (size_t)n, "%s%lld", i ? "x" : "", (long long)d->dim[i]);
    return buf;
}

void cli_hyper(Buf *b, const Hyper *h)
{
    buf_printf(b, "%s = ", h->name);
    buf_double(b, h->def);
    if (h->lo == -INFINITY && h->hi == INFINITY)
        return;
    buf_puts(b, h->lo_open || h->lo == -INFINITY ? " in (" : " in [");
    buf_double(b, h->lo);
    buf_puts(b, ", ");
    buf_double(b, h->hi);
    buf_puts(b, h->hi_open || h->hi == INFINITY ? ")" : "]");
}

char *cli_read_all(FILE *f, size_t most, size_t *len)
{
    Buf b = {0};
    char part[4096];
    size_t n;
    while (b.len < most && (n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(&b, part, n);
    if (ferror(f)) {
        buf_free(&b);
        return NULL;
    }
    *len = b.len;
    return buf_take(&b);
}

bool cli_write_file(const char *path, const char *text)
{
    if (!strcmp(path, "-")) {
        fputs(text, stdout);         /* main reports errors of stdout */
        return true;
    }
    if (file_write(path, text, strlen(text)))
        return true;
    cli_error("cannot write %s: %s", path, strerror(errno));
    return false;
}

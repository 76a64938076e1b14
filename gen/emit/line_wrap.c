/* Breaks long lines of emitted C and CUDA. Only blanks and line ends change, so the compiler sees
 * the same program. Directives, macros and string literals are left whole. */
#include "gen/emit/emit.h"

#include <string.h>

enum { WIDTH = 120, DEEPER = 8 };           /* columns of a line; how far the rest of a broken line
                                             * is indented */

typedef struct Wrap {
    Buf *out;
    const char *cited;                      /* the #line directive that holds here, or NULL */
    size_t ncited;
} Wrap;

/* How many of the n bytes fit into WIDTH columns. Bytes after the first of a UTF-8 character need
 * no column. */
static size_t fitting(const char *s, size_t n)
{
    size_t c = 0, i = 0;
    while (i < n && (c += ((unsigned char)s[i] & 0xc0) != 0x80) <= WIDTH)
        i++;
    return i;
}

/* How bad a break after c is; 0 is best. */
static int looseness(char c, bool rest_fits)
{
    return strchr(",;{", c)        ? 0
           : c == '=' && rest_fits ? 1
           : strchr("?:&|", c)     ? 2
           : strchr("+-=", c)      ? 3
                                   : 4;
}

/* The index at which a line of code breaks: after an operator or comma with the fewest open
 * brackets, then the loosest binding, then the last one. least: the smallest index allowed. 0:
 * none. */
static size_t code_break(const char *s, size_t n, size_t indent, size_t least)
{
    size_t best = 0, limit = fitting(s, n);
    int depth = 0, best_cost = 0;
    char quote = 0;
    for (size_t i = indent; i < limit; i++) {
        if (quote) {
            i += s[i] == '\\';
            quote = i < limit && s[i] == quote ? 0 : quote;
            continue;
        }
        quote = s[i] == '"' || s[i] == '\'' ? s[i] : 0;
        depth += strchr("([{", s[i]) ? 1 : strchr(")]}", s[i]) ? -1 : 0;
        if (s[i] != ' ' || i <= least || !strchr(",;=+-*/%?:&|<>{", s[i - 1]))
            continue;
        int cost =
            8 * (depth - (s[i - 1] == '{')) + looseness(s[i - 1], n - i + indent + DEEPER <= WIDTH);
        if (!best || cost <= best_cost) {
            best = i;
            best_cost = cost;
        }
    }
    return best || least <= indent ? best : code_break(s, n, indent, indent);
}

static size_t comment_break(const char *s, size_t n, size_t indent)
{
    size_t at = fitting(s, n);
    while (at > indent + 3 && (s[at] != ' ' || !memcmp(s + at, " */", 3)))
        at--;
    return at > indent + 3 ? at : 0;
}

static size_t indentation(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && s[k] == ' ')
        k++;
    return k;
}

/* Prints a line, without its newline, as several lines if needed. If a #line directive for the spec
 * is in force, it is repeated before each of them, so that all have the same line number. */
static void put_line(Wrap *w, const char *s, size_t n, bool comment)
{
    size_t indent = indentation(s, n), lead = indent,
           least = indent < WIDTH ? indent + (WIDTH - indent) / 3 : indent;
    const char *star = !comment ? "" : s[indent] == '/' ? " * " : s[indent] == '*' ? "* " : "";
    Buf line = {.arena = w->out->arena};
    for (bool rest = false;; rest = true) {
        size_t room = rest ? lead + strlen(star) : 0;
        line.len = 0;
        if (rest)
            buf_printf(&line, "%*s%s", (int)lead, "", star);
        buf_add(&line, s, n);
        const char *text = buf_text(&line);
        size_t at = fitting(text, line.len) == line.len ? 0
                    : comment ? comment_break(text, line.len, rest ? room : indent)
                              : code_break(text, line.len, lead, least);
        buf_add(w->out, text, at ? at : line.len);
        if (!at)
            return;
        size_t used = at + 1 - room;
        s += used;
        n -= used;
        buf_puts(w->out, "\n");
        if (w->cited)
            buf_add(w->out, w->cited, w->ncited);
        lead = comment ? indent : indent + DEEPER;
    }
}

/* A comment after code is moved to the line before if the line would be too long. */
static void put_code(Wrap *w, const char *s, size_t n)
{
    size_t indent = indentation(s, n), code = 0;
    for (size_t i = indent + 1; i + 1 < n && !code; i++)
        code = s[i] == '/' && s[i + 1] == '*' && s[i - 1] == ' ' ? i : 0;
    if (code && fitting(s, n) < n && !memcmp(s + n - 2, "*/", 2)) {
        Buf comment = {.arena = w->out->arena};
        buf_printf(&comment, "%*s%.*s", (int)indent, "", (int)(n - code), s + code);
        put_line(w, buf_text(&comment), comment.len, true);
        buf_puts(w->out, "\n");
        for (n = code; s[n - 1] == ' '; n--)
            ;
    }
    put_line(w, s, n, false);
}

static bool starts(const char *s, size_t n, const char *with)
{
    return n >= strlen(with) && !memcmp(s, with, strlen(with));
}

/* Whether a block comment is open at the end of a line. */
static bool comment_open(const char *s, size_t n, bool open)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (!memcmp(s + i, open ? "*/" : "/*", 2)) {
            open = !open;
            i++;
        }
    return open;
}

void emit_wrap(Buf *out, const char *text)
{
    Wrap w = {.out = out};
    bool comment = false, spliced = false;
    for (const char *s = text, *end; *s; s = *end ? end + 1 : end) {
        end = s + strcspn(s, "\n");
        size_t n = (size_t)(end - s), indent = indentation(s, n);
        bool directive = n && s[0] == '#', whole = directive || spliced || (n && end[-1] == '\\');
        if (starts(s, n, "#line ")) {
            w.cited = starts(s, n, "#line 0") ? NULL : s;
            w.ncited = n + (*end == '\n');
        }
        spliced = n && end[-1] == '\\';
        bool is_comment = comment || starts(s + indent, n - indent, "/*");
        comment = starts(s, n, "#line ") ? comment : comment_open(s, n, comment);
        if (whole || fitting(s, n) == n)
            buf_add(out, s, n);
        else if (is_comment)
            put_line(&w, s, n, true);
        else
            put_code(&w, s, n);
        buf_add(out, end, *end == '\n');
    }
}

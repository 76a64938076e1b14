/* Finds sections of embedded templates and fills their holes. */
#include "gen/emit/template.h"

#include <string.h>

const char *template_text(const char *name)
{
    for (const Embedded *e = embedded_templates; e->name; e++)
        if (!strcmp(e->name, name))
            return e->text;
    return NULL;
}

static const char *line_end(const char *s)
{
    const char *end = strchr(s, '\n');
    return end ? end + 1 : s + strlen(s);
}

static const char *find_section(const char *file, const char *section, const char **end)
{
    size_t n = strlen(section);
    const char *text = template_text(file);
    for (const char *s = text; s && (s = strstr(s, "@@ ")); s += 3)
        if ((s == text || s[-1] == '\n') && !strncmp(s + 3, section, n) && s[3 + n] == '\n') {
            const char *from = line_end(s),
                       *next = strncmp(from, "@@ ", 3) ? strstr(from, "\n@@ ") : from - 1;
            *end = next ? next + 1 : from + strlen(from);
            return from;
        }
    return NULL;
}

/* The text of the hole that begins at s; *after: the character after its end. NULL: no such
 * hole. */
static const char *hole_at(const char *s, const char *end, const Hole *holes, int n,
                           const char **after)
{
    const char *close = strstr(s, "}}");
    if (!close || close >= end)
        return NULL;
    size_t len = (size_t)(close - s - 2);
    *after = close + 2;
    for (int i = 0; i < n; i++)
        if (strlen(holes[i].hole) == len && !memcmp(holes[i].hole, s + 2, len))
            return holes[i].text;
    return NULL;
}

/* Prints lines with the hole's indentation; directives stay at the left margin. */
static void put_lines(Buf *b, const char *text, const char *indent, size_t depth)
{
    for (const char *s = text, *end; *s; s = end) {
        end = line_end(s);
        if (*s != '#' && *s != '\n')
            buf_add(b, indent, depth);
        buf_add(b, s, (size_t)(end - s));
        if (end[-1] != '\n')
            buf_puts(b, "\n");
    }
}

static bool fill_line(Buf *b, const char *s, const char *end, const Hole *holes, int n)
{
    size_t depth = strspn(s, " ");
    const char *after,
        *text = strncmp(s + depth, "{{", 2) ? NULL : hole_at(s + depth, end, holes, n, &after);
    if (text && after < end && *after == '\n') {
        put_lines(b, text, s, depth);
        return true;
    }
    for (const char *open; (open = memmem(s, (size_t)(end - s), "{{", 2)); s = after) {
        buf_add(b, s, (size_t)(open - s));
        text = hole_at(open, end, holes, n, &after);
        if (!text)
            return false;
        buf_puts(b, text);
    }
    buf_add(b, s, (size_t)(end - s));
    return true;
}

bool template_fill_text(Buf *b, const char *s, const char *end, const Hole *holes, int n)
{
    bool ok = true;
    for (; ok && s < end; s = line_end(s))
        ok = fill_line(b, s, line_end(s) < end ? line_end(s) : end, holes, n);
    return ok;
}

bool template_has(const char *file, const char *section)
{
    const char *end;
    return find_section(file, section, &end) != NULL;
}

bool template_fill(Buf *b, const char *file, const char *section, const Hole *holes, int n)
{
    const char *end, *s = find_section(file, section, &end);
    return s && template_fill_text(b, s, end, holes, n);
}

#include "template.h"

#include <string.h>

const char *template_text(const char *name)
{
    for (const Embedded *e = embedded_templates; e->name; e++)
        if (!strcmp(e->name, name))
            return e->text;
    return NULL;
}

static const char *find_section(const char *file, const char *section, const char **end)
{
    size_t n = strlen(section);
    const char *s = template_text(file);
    while (s && *s) {
        const char *eol = strchr(s, '\n');
        if (!strncmp(s, "@@ ", 3) && !strncmp(s + 3, section, n) && s[3 + n] == '\n') {
            const char *next = strstr(eol, "\n@@ ");
            *end = next ? next + 1 : s + strlen(s);
            return eol + 1;
        }
        s = eol ? eol + 1 : NULL;
    }
    return NULL;
}

bool template_fill(Buf *b, const char *file, const char *section, const Hole *holes, int n)
{
    const char *end, *s = find_section(file, section, &end);
    if (!s)
        return false;
    while (s < end) {
        const char *open = strstr(s, "{{");
        if (!open || open >= end)
            break;
        const char *close = strstr(open, "}}");
        if (!close || close >= end)
            return false;
        buf_add(b, s, (size_t)(open - s));
        int i = 0;
        size_t len = (size_t)(close - open - 2);
        while (i < n && (strlen(holes[i].hole) != len || memcmp(holes[i].hole, open + 2, len)))
            i++;
        if (i == n)
            return false;
        buf_puts(b, holes[i].text);
        s = close + 2;
    }
    buf_add(b, s, (size_t)(end - s));
    return true;
}

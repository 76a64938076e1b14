/* A reader of JSON. It accepts what RFC 8259 defines, to a depth of 64. */
#include "tools/page/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reader { Arena *a; const char *s; int line, depth; bool bad; } Reader;

static void skip_blanks(Reader *r)
{
    for (; *r->s == ' ' || *r->s == '\t' || *r->s == '\r' || *r->s == '\n'; r->s++)
        r->line += *r->s == '\n';
}

static bool take(Reader *r, char c)
{
    skip_blanks(r);
    if (*r->s != c)
        return false;
    r->s++;
    return true;
}

static void put_utf8(Buf *b, unsigned c)
{
    char s[4];
    int n = 0;
    if (c < 0x80)
        s[n++] = (char)c;
    else if (c < 0x800)
        s[n++] = (char)(0xc0 | c >> 6);
    else if (c < 0x10000)
        s[n++] = (char)(0xe0 | c >> 12);
    else
        s[n++] = (char)(0xf0 | c >> 18);
    for (int shift = c < 0x80 ? -1 : c < 0x800 ? 0 : c < 0x10000 ? 6 : 12; shift >= 0; shift -= 6)
        s[n++] = (char)(0x80 | (c >> shift & 0x3f));
    buf_add(b, s, (size_t)n);
}

static unsigned read_hex(Reader *r)
{
    unsigned c = 0;
    for (int i = 0; i < 4; i++, r->s++) {
        char h = *r->s;
        int v = h >= '0' && h <= '9'                 ? h - '0'
                : (h | 32) >= 'a' && (h | 32) <= 'f' ? (h | 32) - 'a' + 10
                                                     : -1;
        if (v < 0)
            return r->bad = true, 0;
        c = c << 4 | (unsigned)v;
    }
    return c;
}

static const char *read_string(Reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    Buf b = {.arena = r->a};
    for (; !r->bad && *r->s != '"';) {
        if ((unsigned char)*r->s < 0x20)
            return r->bad = true, "";
        if (*r->s != '\\') {
            buf_add(&b, r->s++, 1);
            continue;
        }
        const char *at = *++r->s ? strchr(from, *r->s) : NULL;
        if (at) {
            buf_add(&b, &to[at - from], 1);
            r->s++;
        } else if (*r->s == 'u') {
            r->s++;
            unsigned c = read_hex(r);
            if (c >= 0xd800 && c < 0xdc00 && r->s[0] == '\\' && r->s[1] == 'u') {
                r->s += 2;
                c = 0x10000 + ((c - 0xd800) << 10) + ((read_hex(r) - 0xdc00) & 0x3ff);
            }
            put_utf8(&b, c ? c : ' ');
        } else {
            r->bad = true;
        }
    }
    r->s += !r->bad;
    return b.len ? buf_text(&b) : "";
}

static Json *read_value(Reader *r);

static void read_items(Reader *r, Json *x, char end)
{
    Json **last = &x->first;
    if (take(r, end))
        return;
    do {
        const char *key = NULL;
        if (end == '}') {
            if (!take(r, '"')) {
                r->bad = true;
                return;
            }
            key = read_string(r);
            r->bad = r->bad || !take(r, ':');
        }
        Json *item = r->bad ? NULL : read_value(r);
        if (r->bad)
            return;
        item->key = key;
        *last = item;
        last = &item->next;
        x->count++;
    } while (take(r, ','));
    r->bad = !take(r, end);
}

static bool word(Reader *r, const char *w)
{
    size_t n = strlen(w);
    bool is = !strncmp(r->s, w, n);
    r->s += is ? n : 0;
    return is;
}

static Json *read_value(Reader *r)
{
    Json *x = NEW(r->a, Json);
    x->text = "";
    x->number = NAN;
    if (++r->depth > 64) {
        r->bad = true;
        return x;
    }
    skip_blanks(r);
    x->line = r->line;
    if (take(r, '{')) {
        x->kind = JSON_OBJECT;
        read_items(r, x, '}');
    } else if (take(r, '[')) {
        x->kind = JSON_LIST;
        read_items(r, x, ']');
    } else if (take(r, '"')) {
        x->kind = JSON_STRING;
        x->text = read_string(r);
    } else if (word(r, "true")) {
        x->kind = JSON_TRUE;
    } else if (word(r, "false")) {
        x->kind = JSON_FALSE;
    } else if (!word(r, "null")) {
        char *end = NULL;
        x->kind = JSON_NUMBER;
        x->number = *r->s == '-' || (*r->s >= '0' && *r->s <= '9') ? strtod(r->s, &end) : 0;
        r->bad = !end || end == r->s;
        r->s = r->bad ? r->s : end;
    }
    r->depth--;
    return x;
}

const Json *json_parse(Arena *a, const char *text, int *line)
{
    LocaleMark was = locale_plain();
    Reader r = {.a = a, .s = text, .line = 1};
    const Json *x = read_value(&r);
    skip_blanks(&r);
    locale_back(was);
    *line = r.line;
    return r.bad || *r.s ? NULL : x;
}

const Json *json_member(const Json *x, const char *key)
{
    for (const Json *m = x && x->kind == JSON_OBJECT ? x->first : NULL; m; m = m->next)
        if (!strcmp(m->key, key))
            return m;
    return NULL;
}

const Json *json_item(const Json *x, int i)
{
    const Json *m = x && x->kind == JSON_LIST ? x->first : NULL;
    for (; m && i > 0; i--)
        m = m->next;
    return m;
}

/* A writer of JSON. It accepts any text: bytes that JSON does not allow are escaped. */
#include "tools/page/json.h"

#include <math.h>
#include <stdio.h>

static void quote(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    for (; *s; s++)
        if ((unsigned char)*s < 32 || *s == 127)
            buf_printf(b, "\\u%04x", (unsigned char)*s);
        else
            buf_printf(b, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
    buf_puts(b, "\"");
}

static void new_line(const JsonText *t) { buf_printf(t->b, "\n%*s", 2 * t->depth, ""); }

/* What stands before a value: a comma, a new line or a blank, and its name. */
static void begin(JsonText *t, const char *name)
{
    bool outer = !t->depth, lines = !outer && t->level[t->depth - 1].lines,
         any = !outer && t->level[t->depth - 1].any;
    if (!outer)
        t->level[t->depth - 1].any = true;
    buf_puts(t->b, any ? lines ? "," : ", " : "");
    if (lines)
        new_line(t);
    if (name) {
        quote(t->b, name);
        buf_puts(t->b, ": ");
    }
}

static void open(JsonText *t, const char *name, const char *brackets, bool lines)
{
    begin(t, name);
    buf_add(t->b, brackets, 1);
    t->level[t->depth].close = brackets[1];
    t->level[t->depth].any = false;
    t->level[t->depth++].lines = lines;
}

void json_object(JsonText *t, const char *name, bool lines) { open(t, name, "{}", lines); }
void json_list(JsonText *t, const char *name, bool lines) { open(t, name, "[]", lines); }

void json_end(JsonText *t)
{
    t->depth--;
    if (t->level[t->depth].lines && t->level[t->depth].any)
        new_line(t);
    buf_add(t->b, &t->level[t->depth].close, 1);
    if (!t->depth)
        buf_puts(t->b, "\n");
}

void json_string(JsonText *t, const char *name, const char *s)
{
    begin(t, name);
    quote(t->b, s);
}

void json_int(JsonText *t, const char *name, int64_t x)
{
    begin(t, name);
    buf_printf(t->b, "%lld", (long long)x);
}

void json_real(JsonText *t, const char *name, double x)
{
    LocaleMark was = locale_plain();
    begin(t, name);
    if (isfinite(x))
        buf_double(t->b, x);
    else
        buf_puts(t->b, "null");
    locale_back(was);
}

void json_digits(JsonText *t, double x, int digits)
{
    LocaleMark was = locale_plain();
    begin(t, NULL);
    buf_printf(t->b, "%.*g", digits, x);
    locale_back(was);
}

void json_bool(JsonText *t, const char *name, bool x)
{
    begin(t, name);
    buf_puts(t->b, x ? "true" : "false");
}

void json_fields(JsonText *t, const JsonField *f, const void *of)
{
    for (; f->name; f++) {
        const char *at = (const char *)of + f->at;
        switch (f->kind) {
        case FIELD_INT: json_int(t, f->name, *(const int *)(const void *)at); break;
        case FIELD_INT64: json_int(t, f->name, *(const int64_t *)(const void *)at); break;
        case FIELD_BOOL: json_bool(t, f->name, *(const bool *)at); break;
        case FIELD_TEXT: json_string(t, f->name, *(const char *const *)(const void *)at); break;
        case FIELD_REAL:
        case FIELD_REACHED:
            json_real(t, f->name, *(const double *)(const void *)at * (f->unit > 0 ? f->unit : 1));
        }
    }
}

void json_print(JsonText *t)
{
    fputs(cli_text(t->b), stdout);
    buf_free(t->b);
}

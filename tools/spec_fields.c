/* Reads the texts (name, doc, cite, family, use, follows) and args from a spec's text, without
 * running it. The compiler stores some of them, and only for the innermost rule; `list` and `show`
 * need all of them, of wrappers too. A field counts as absent unless it is a plain string or plain
 * strings joined by `..`. */
#include "tools/tools.h"

#include <ctype.h>
#include <string.h>

typedef enum { END, WORD, STRING, PUNCT } Kind;
/* text: the current token: a word, the contents of a string, or a character */
typedef struct Lexer { const char *s, *end; Arena *a; Kind kind; const char *text; } Lexer;

/* A long string: [[…]] or [==[…]==]. NULL: there is none at s. */
static const char *long_bracket(const char *s, const char *end, const char **inside)
{
    int eq = 0;
    const char *p = s + 1;
    while (p < end && *p == '=')
        p++, eq++;
    if (p >= end || *s != '[' || *p != '[')
        return NULL;
    *inside = ++p;
    for (; p < end; p++)
        if (*p == ']' && end - p > eq + 1) {
            int k = 0;
            while (k < eq && p[1 + k] == '=')
                k++;
            if (k == eq && p[1 + k] == ']')
                return p;
        }
    return end;
}

static void skip_space(Lexer *l)
{
    for (;;) {
        while (l->s < l->end && isspace((unsigned char)*l->s))
            l->s++;
        if (l->end - l->s < 2 || l->s[0] != '-' || l->s[1] != '-')
            return;
        const char *inside,
            *close = l->end - l->s > 3 ? long_bracket(l->s + 2, l->end, &inside) : NULL;
        if (close)
            l->s = close < l->end ? strchr(close + 1, ']') + 1 : l->end;
        else
            while (l->s < l->end && *l->s != '\n')
                l->s++;
    }
}

static void quoted(Lexer *l, char quote)
{
    Buf b = {0};
    for (l->s++; l->s < l->end && *l->s != quote && *l->s != '\n'; l->s++) {
        if (*l->s == '\\' && l->s + 1 < l->end)
            l->s++;                            /* only \" and \\ are decoded */
        buf_add(&b, l->s, 1);
    }
    l->s += l->s < l->end;
    l->kind = STRING;
    l->text = arena_strdup(l->a, cli_text(&b));
    buf_free(&b);
}

static void next(Lexer *l)
{
    skip_space(l);
    const char *s = l->s, *inside, *close;
    if (s >= l->end) {
        l->kind = END;
        l->text = "";
    } else if (*s == '"' || *s == '\'') {
        quoted(l, *s);
    } else if ((close = long_bracket(s, l->end, &inside))) {
        l->kind = STRING;
        l->text = arena_strndup(l->a, inside, (size_t)(close - inside));
        l->s = close < l->end ? strchr(close + 1, ']') + 1 : l->end;
    } else {
        bool word = isalnum((unsigned char)*s) || *s == '_';
        while (word && s < l->end && (isalnum((unsigned char)*s) || *s == '_'))
            s++;
        s += !word;
        l->kind = word ? WORD : PUNCT;
        l->text = arena_strndup(l->a, l->s, (size_t)(s - l->s));
        l->s = s;
    }
}

static bool is(const Lexer *l, Kind k, const char *text)
{
    return l->kind == k && !strcmp(l->text, text);
}

/* 1: the word opens a block of code; -1: it closes one. Fields occur only outside of blocks. */
static int block(const Lexer *l)
{
    static const char *const open[] = {"function", "if", "do", "repeat", NULL}, *const close[] = {
                                                                                    "end", "until",
                                                                                    NULL};
    for (int i = 0; l->kind == WORD && open[i]; i++)
        if (!strcmp(l->text, open[i]))
            return 1;
    for (int i = 0; l->kind == WORD && close[i]; i++)
        if (!strcmp(l->text, close[i]))
            return -1;
    return 0;
}

/* The string at the lexer, and those that `..` joins to it. *end: the character after them. */
static const char *joined(Lexer l, const char **end)
{
    const char *text = l.text;
    *end = l.s;
    for (next(&l); is(&l, PUNCT, "."); next(&l)) {
        next(&l);
        if (!is(&l, PUNCT, "."))
            return text;
        next(&l);
        if (l.kind != STRING)
            return text;
        text = arena_printf(l.a, "%s%s", text, l.text);
        *end = l.s;
    }
    return text;
}

/* at: the field's name in the text; the lexer is after "name =". */
static void take_field(Lexer *l, const char *name, const char *at, Fields *out)
{
    const struct {
        const char *name;
        const char **to;
    } text[NFIELD_TEXT] = {{"name", &out->name},     {"doc", &out->doc},
                           {"cite", &out->cite},     {"use", &out->use},
                           {"family", &out->family}, {"follows", &out->follows}};
    for (int i = 0; i < NFIELD_TEXT; i++)
        if (!strcmp(name, text[i].name) && l->kind == STRING) {
            out->text_at[i] = at;
            *text[i].to = joined(*l, &out->text_end[i]);
        }
    Lexer ahead = *l;
    if (strcmp(name, "args") || !is(l, PUNCT, "{"))
        return;
    for (next(&ahead); ahead.kind != END && !is(&ahead, PUNCT, "}"); next(&ahead))
        if (ahead.kind == STRING && out->narg < MAX_FIELD_ARGS)
            out->arg[out->narg++] = ahead.text;
}

void fields_read(Arena *a, const char *text, size_t len, Fields *out)
{
    *out = (Fields){
        .kind = "", .name = "", .doc = "", .cite = "", .use = "", .family = "", .follows = ""};
    Lexer l = {.s = text, .end = text + len, .a = a};
    int depth = 0, code = 0;
    bool fresh = false;                        /* after { , or ; where a field's name may follow */
    for (next(&l); l.kind != END; next(&l)) {
        if (!*out->kind && (is(&l, WORD, "optimizer") || is(&l, WORD, "wrapper"))) {
            const char *kind = l.text;
            Lexer ahead = l;
            next(&ahead);
            if (is(&ahead, PUNCT, "{")) {
                out->kind = kind;
                l = ahead;
                depth = 1;
                code = 0;
                fresh = true;
            }
            continue;
        }
        if (!*out->kind)
            continue;
        code += block(&l);
        depth += l.kind == PUNCT && strchr("{([", *l.text)   ? 1
                 : l.kind == PUNCT && strchr("})]", *l.text) ? -1
                                                             : 0;
        if (depth == 0)
            return;
        if (fresh && depth == 1 && code == 0 && l.kind == WORD) {
            const char *name = l.text, *at = l.s - strlen(l.text);
            Lexer ahead = l;
            next(&ahead);
            if (is(&ahead, PUNCT, "=")) {
                next(&ahead);
                take_field(&ahead, name, at, out);
            }
        }
        fresh = depth == 1 && code == 0 && (is(&l, PUNCT, ",") || is(&l, PUNCT, ";"));
    }
}

const char *fields_own(const char *name, const char *wrapper)
{
    size_t n = wrapper ? strlen(wrapper) : 0;
    return !wrapper ? name : !strncmp(name, wrapper, n) && name[n] == '.' ? name + n + 1 : NULL;
}

const char *fields_call(Arena *a, const Fields *f)
{
    Buf b = {.arena = a};
    buf_puts(&b, f->name);
    for (int i = 0; i < f->narg; i++)
        buf_printf(&b, "%s%s%s", i ? ", " : "(", f->arg[i], i == f->narg - 1 ? ")" : "");
    return buf_text(&b);
}

/* Splits a Lua text into the tokens that Lua's lexer would find: strings that continue over lines,
 * long brackets, comments. The text need not be valid; an unfinished string or comment extends to
 * its end. */
#include "gen/front/lex.h"
#include "gen/front/front.h"

#include <ctype.h>
#include <string.h>

bool tok_is(const Tok *k, const char *s)
{
    return k->kind != STRING && k->n == (int)strlen(s) && !memcmp(k->s, s, (size_t)k->n);
}

/* At a '[': the end of the long bracket that opens here, or s if none does. */
static const char *long_bracket(const char *s)
{
    const char *b = s + 1;
    int level = 0;
    while (*b == '=')
        b++, level++;
    if (*b != '[')
        return s;
    for (b++; (b = strchr(b, ']')); b++) {
        int k = 0;
        while (b[1 + k] == '=')
            k++;
        if (k == level && b[1 + k] == ']')
            return b + 2 + k;
        b += k;
    }
    return s + strlen(s);
}

/* At a quote: the end of the string. A backslash escapes the next character, also a newline; \\z
 * skips all blanks that follow. */
static const char *quoted(const char *s)
{
    char q = *s++;
    while (*s && *s != q && *s != '\n') {
        if (*s != '\\' || !s[1]) {
            s++;
            continue;
        }
        bool blanks = s[1] == 'z';
        s += 2;
        while (blanks && *s && isspace((unsigned char)*s))
            s++;
    }
    return s + (*s == q);
}

static const char *comment(const char *s)                  /* at "--": the end of the comment */
{
    const char *e = s[2] == '[' ? long_bracket(s + 2) : s + 2;
    return e > s + 2 ? e : s + strcspn(s, "\n");
}

static const char *number(const char *s)
{
    while (isalnum((unsigned char)*s) || *s == '.' ||
           ((*s == '-' || *s == '+') && strchr("eEpP", s[-1])))
        s++;
    return s;
}

static const char *symbol(const char *s)
{
    static const char *const two[] = {"==", "~=", "<=", ">=", "..", "//", "::", "<<", ">>", NULL};
    for (const char *const *p = two; *p; p++)
        if (!strncmp(s, *p, 2))
            return s + 2;
    return s + 1;
}

/* the end of the token that begins at s */
static const char *token(const char *s, TokKind *kind)
{
    if (isalpha((unsigned char)*s) || *s == '_') {
        *kind = NAME;
        while (isalnum((unsigned char)*s) || *s == '_')
            s++;
        return s;
    }
    if (isdigit((unsigned char)*s) || (*s == '.' && isdigit((unsigned char)s[1]))) {
        *kind = NUMBER;
        return number(s);
    }
    const char *e = *s == '"' || *s == '\'' ? quoted(s) : *s == '[' ? long_bracket(s) : s;
    *kind = e == s ? SYMBOL : STRING;
    return e == s ? symbol(s) : e;
}

static int count_lines(const char *s, const char *e)
{
    int n = 0;
    while ((s = memchr(s, '\n', (size_t)(e - s))))
        s++, n++;
    return n;
}

Tok *lex(Arena *a, const char *text, int *n)
{
    Tok *v = NULL;
    int cap = 0, line = 1;
    *n = 0;
    for (const char *s = text, *e; *s; s = e) {
        TokKind kind = END;
        bool dashes = s[0] == '-' && s[1] == '-';
        e = isspace((unsigned char)*s) ? s + 1 : dashes ? comment(s) : token(s, &kind);
        if (kind != END)
            PUSH(a, v, *n, cap) = (Tok){kind, s, (int)(e - s), line};
        line += count_lines(s, e);
    }
    PUSH(a, v, *n, cap) = (Tok){END, "", 0, line};
    --*n;
    return v;
}

/* The escape at a backslash is a byte of 0: \0 with up to three digits, \x00, \u{0}. */
static bool is_zero(const char *s)
{
    size_t zeros = 0;
    if (s[1] == 'x')
        return s[2] == '0' && s[3] == '0';
    if (s[1] == 'u')
        return s[2] == '{' && (zeros = strspn(s + 3, "0")) > 0 && s[3 + zeros] == '}';
    while (zeros < 3 && s[1 + zeros] == '0')
        zeros++;
    return zeros == 3 || (zeros && !isdigit((unsigned char)s[1 + zeros]));
}

const Tok *lex_zero(const Tok *v)
{
    for (; v->kind != END; v++)
        for (int i = 1; v->kind == STRING && *v->s != '[' && i < v->n; i++)
            if (v->s[i] == '\\' && is_zero(v->s + i++))
                return v;
    return NULL;
}

/* ---- the cost of parsing ---- */
/* Words whose jumps Lua keeps in one list, and labels: Lua walks the list at each further one. */
static bool walks(const Tok *k)
{
    static const char *const words[] = {"and", "or", "elseif", "goto", "break", "::", NULL};
    for (const char *const *w = words; *w; w++)
        if (tok_is(k, *w))
            return true;
    return false;
}

typedef struct { int locals; bool function; } Block;

double parse_price(Arena *a, const Tok *v, int n)
{
    Block *stack = NULL;
    int depth = 0, cap = 0, locals = 0, functions = 0, walked = 0;
    double price = 0;
    for (int i = 0; i < n; i++) {
        const Tok *k = &v[i];
        if (walks(k))
            price += walked++;
        if (k->kind != NAME)
            continue;
        bool function = tok_is(k, "function");
        price += 1 + locals + functions;
        if (function || tok_is(k, "do") || tok_is(k, "if") || tok_is(k, "repeat")) {
            PUSH(a, stack, depth, cap) = (Block){locals, function};
            functions += function;
        } else if ((tok_is(k, "end") || tok_is(k, "until")) && depth) {
            locals = stack[--depth].locals;
            functions -= stack[depth].function;
        }
        bool list = tok_is(k, "local") || tok_is(k, "for");
        int at = i + 1;
        /* function a.b.c(x, y): its parameters are locals */
        if (function) {
            while (v[at].kind == NAME || tok_is(&v[at], ".") || tok_is(&v[at], ":"))
                at++;
            list = tok_is(&v[at++], "(");
        }
        for (; list && at < n && (v[at].kind == NAME || tok_is(&v[at], ",")) &&
               !tok_is(&v[at], "function");
             at++)
            locals += v[at].kind == NAME;
    }
    return price;
}

/* ---- names ---- */
static struct NameEntry *name_slot(const NameSet *set, const char *s, size_t n)
{
    uint64_t mask = (uint64_t)set->cap - 1, h = hash64(7, s, n);
    while (set->v[h & mask].s && (set->v[h & mask].n != n || memcmp(set->v[h & mask].s, s, n)))
        h++;
    return &set->v[h & mask];
}

void names_add(NameSet *set, Arena *a, const char *s, size_t n)
{
    if (2 * set->n >= set->cap) {
        NameSet was = *set;
        set->cap = was.cap ? 2 * was.cap : 64;
        set->v = NEWS(a, struct NameEntry, set->cap);
        for (int i = 0; i < was.cap; i++)
            if (was.v[i].s)
                *name_slot(set, was.v[i].s, was.v[i].n) = was.v[i];
    }
    struct NameEntry *e = name_slot(set, s, n);
    set->n += !e->s;
    *e = (struct NameEntry){s, n};
}

bool names_has(const NameSet *set, const char *s, size_t n)
{
    return set->cap && name_slot(set, s, n)->s;
}

int spec_position(const char *text, const char *name)
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    volatile int at = -1;
    if (!setjmp(out)) {
        int n;
        const Tok *tok = lex(&scratch, text, &n);
        for (int i = 0; i + 1 < n && at < 0; i++)
            if (tok[i].kind == NAME && tok_is(&tok[i], name) && tok_is(&tok[i + 1], "="))
                at = i;
    }
    arena_free(&scratch);
    return at;
}

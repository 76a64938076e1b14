/* Lua cannot trap `if x`, `x and y` or `x == 0` on a symbolic value: they would silently mean true. This reads the spec's
 * tokens, follows which locals hold symbolic values, and refuses such a test with its line.
 * It is a reading of tokens, not a proof: a value passed through a table or a helper function's result is not followed. */
#include "trace.h"

#include <ctype.h>
#include <string.h>

typedef enum { NAME, NUMBER, STRING, SYMBOL, END } TokKind;
typedef struct { TokKind kind; const char *s; int n, line; } Tok;
typedef struct { Tok *v; int n, cap; const char **taint; int ntaint, taint_cap; Trace *t; } Lint;

static bool is(const Tok *k, const char *s) { return k->n == (int)strlen(s) && !memcmp(k->s, s, (size_t)k->n) && k->kind != STRING; }

static const char *long_bracket(const char *s, int *line)      /* after "[[" or "[==[": the end, or s itself if it is none */
{
    const char *b = s + 1;
    int level = 0;
    while (*b == '=')
        b++, level++;
    if (*b != '[')
        return s;
    for (b++; *b; b++) {
        if (*b == '\n')
            ++*line;
        if (*b == ']') {
            const char *e = b + 1;
            int k = 0;
            while (*e == '=')
                e++, k++;
            if (k == level && *e == ']')
                return e + 1;
        }
    }
    return b;
}

static void tokens(Lint *l, const char *s)
{
    static const char *const two[] = {"==", "~=", "<=", ">=", "..", "//", "::", "<<", ">>", NULL};
    int line = 1;
    while (*s) {
        const char *b = s;
        Tok k = {SYMBOL, s, 1, line};
        if (*s == '\n') {
            line++, s++;
            continue;
        } else if (isspace((unsigned char)*s)) {
            s++;
            continue;
        } else if (s[0] == '-' && s[1] == '-') {
            const char *e = s[2] == '[' ? long_bracket(s + 2, &line) : s + 2;
            s = e > s + 2 ? e : s + strcspn(s, "\n");
            continue;
        } else if (isalpha((unsigned char)*s) || *s == '_') {
            while (isalnum((unsigned char)*s) || *s == '_')
                s++;
            k.kind = NAME;
        } else if (isdigit((unsigned char)*s)) {
            while (isalnum((unsigned char)*s) || *s == '.' || ((*s == '-' || *s == '+') && strchr("eEpP", s[-1])))
                s++;
            k.kind = NUMBER;
        } else if (*s == '"' || *s == '\'') {
            char q = *s++;
            while (*s && *s != q && *s != '\n')
                s += *s == '\\' && s[1] ? 2 : 1;
            s += *s == q;
            k.kind = STRING;
        } else if (*s == '[' && long_bracket(s, &line) != s) {
            int skip = line;
            s = long_bracket(b, &skip);
            k.kind = STRING;
        } else {
            s++;
            for (const char *const *p = two; *p; p++)
                if (!strncmp(b, *p, 2))
                    s = b + 2;
        }
        k.n = (int)(s - b);
        PUSH(l->t->arena, l->v, l->n, l->cap) = k;
    }
    PUSH(l->t->arena, l->v, l->n, l->cap) = (Tok){END, "", 0, line};
}

static void taint(Lint *l, const char *name) { PUSH(l->t->arena, l->taint, l->ntaint, l->taint_cap) = name; }

static bool tainted(const Lint *l, int i)
{
    const Tok *k = &l->v[i];
    if (k->kind != NAME || (i > 0 && is(k - 1, ".")))
        return false;
    if (is(k + 1, "=") && !is(k + 1, "=="))
        return false;
    for (int j = 0; j < l->ntaint; j++)
        if (is(k, l->taint[j]))
            return true;
    return false;
}

static bool ends_operand(const Tok *k)
{
    static const char *const words[] = {"and", "or", "not", "function", "then", "do", "return", "local", "in", "if", "else", "elseif", "while", "until", NULL};
    if (k->kind == NAME) {
        for (const char *const *w = words; *w; w++)
            if (is(k, *w))
                return false;
        return true;
    }
    return k->kind == NUMBER || k->kind == STRING || is(k, ")") || is(k, "]") || is(k, "}");
}

static bool goes_on(const Tok *k)      /* may this token follow an operand inside one expression? */
{
    static const char *const ops[] = {"+", "-", "*", "/", "^", "%", "//", "..", "==", "~=", "<", ">", "<=", ">=", "and", "or", "(", "[", ".", ":", "{", ",", NULL};
    for (const char *const *o = ops; *o; o++)
        if (is(k, *o))
            return true;
    return k->kind == STRING;
}

static bool is_size(const Tok *k) { return is(k, "numel") || is(k, "nrows") || is(k, "ncols"); }

static bool relates(const Tok *k) { return is(k, "<") || is(k, "<=") || is(k, ">") || is(k, ">="); }

/* A size, perhaps times a number, that stands right beside < <= > >=, or == with another size: a question about the tensor, which has
 * an answer when it is traced. */
static bool is_question(const Lint *l, int i)
{
    if (!is_size(&l->v[i]))
        return false;
    int a = i - 1, b = i + 1;
    while (a > 0 && is(&l->v[a], "*"))
        a -= 2;
    while (is(&l->v[b], "*"))
        b += 2;
    bool equal = (is(&l->v[a < 0 ? 0 : a], "==") && is_size(&l->v[a - 1])) || (is(&l->v[b], "==") && is_size(&l->v[b + 1]));
    return equal || (a >= 0 && relates(&l->v[a])) || relates(&l->v[b]);
}

/* The end of the expression list that starts at i; *hit tells whether a symbolic name stands in it. */
static int expression(const Lint *l, int i, bool *hit)
{
    int depth = 0;
    for (; l->v[i].kind != END; i++) {
        const Tok *k = &l->v[i];
        *hit = *hit || (tainted(l, i) && !is_question(l, i));
        if (is(k, "(") || is(k, "{") || is(k, "["))
            depth++;
        else if (is(k, ")") || is(k, "}") || is(k, "]"))
            depth--;
        if (depth < 0 || (depth == 0 && ends_operand(k) && !goes_on(k + 1)))
            break;
    }
    return i;
}

static bool refuse(Lint *l, const SpecFile *s, int at, const char *test)
{
    const Tok *k = &l->v[at];
    diag_set(l->t->diag, s->path, k->line, s->text,
             "Lua's '%s' cannot test '%.*s', a symbolic value: it is known only when the rule runs; use where(c, a, b) with lt gt le ge eq ne", test, k->n, k->s);
    return false;
}

/* The first symbolic name of the operand that ends (dir < 0) or begins (dir > 0) next to token i. */
static int operand_hit(const Lint *l, int i, int dir)
{
    int depth = 0;
    for (int j = i + dir; j >= 0 && l->v[j].kind != END; j += dir) {
        const Tok *k = &l->v[j];
        if (is(k, dir > 0 ? "(" : ")"))
            depth++;
        if (is(k, dir > 0 ? ")" : "(") && --depth < 0)
            break;
        if (tainted(l, j))
            return j;
        bool callee = dir < 0 && k->kind == NAME && is(k + 1, "(");
        if (depth == 0 && !(dir < 0 && is(k, "(")) && !callee && !is(k, "not") && !is(k, "-") && !(dir > 0 && is(k + 1, "(")))
            break;
        if (callee)
            break;
    }
    return -1;
}

static bool check(Lint *l, const SpecFile *s)
{
    for (int i = 0; i < l->n; i++) {
        const Tok *k = &l->v[i];
        if (is(k, "until")) {
            bool hit = false;
            int end = expression(l, i + 1, &hit);
            for (int j = i + 1; hit && j <= end; j++)
                if (tainted(l, j))
                    return refuse(l, s, j, "until");
        }
        bool cond = is(k, "if") || is(k, "elseif") || is(k, "while");
        for (int j = i + 1; cond && l->v[j].kind != END && !is(&l->v[j], "then") && !is(&l->v[j], "do"); j++)
            if (tainted(l, j) && !is_question(l, j))
                return refuse(l, s, j, arena_strndup(l->t->arena, k->s, (size_t)k->n));
        static const char *const tests[] = {"and", "or", "not", "==", "~=", NULL};
        for (const char *const *o = tests; *o; o++)
            if (is(k, *o)) {
                int hit = operand_hit(l, i, 1);
                if (hit < 0 && !is(k, "not"))
                    hit = operand_hit(l, i, -1);
                if (hit >= 0 && !is_question(l, hit))
                    return refuse(l, s, hit, *o);
            }
        if (is(k, "=") && i > 0 && l->v[i - 1].kind == NAME) {
            bool hit = false;
            expression(l, i + 1, &hit);
            int first = i - 1;                             /* local a, b = … : names with commas between */
            while (first >= 2 && is(&l->v[first - 1], ",") && l->v[first - 2].kind == NAME)
                first -= 2;
            bool local = first >= 1 && is(&l->v[first - 1], "local");
            for (int j = first; hit && local && j < i; j += 2)
                taint(l, arena_strndup(l->t->arena, l->v[j].s, (size_t)l->v[j].n));
        }
    }
    return true;
}

bool lint_spec(Trace *t, const SpecFile *s)
{
    Lint l = {.t = t};
    size_t skip = strlen(s->prefix);
    static const char *const always[] = {"p", "g", "t", "numel", "nrows", "ncols"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        taint(&l, always[i]);
    for (int i = 0; i < s->nhyper; i++)
        taint(&l, t->rule->hyper[s->hyper[i]].name + skip);
    for (int i = 0; i < s->nstate; i++)
        taint(&l, t->rule->state[s->state[i]].name + skip);
    for (int i = 0; i < s->ninput; i++)
        taint(&l, t->rule->input[s->input[i]].name + skip);
    tokens(&l, s->text);
    return check(&l, s);
}

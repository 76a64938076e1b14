/* Refuses Lua tests of symbolic values. Lua cannot trap `if x`, `x and y` or `x == 0` on a symbolic
 * value: they would silently be true. This check reads the spec's tokens, tracks which locals hold
 * symbolic values, and reports such tests. It is a heuristic: it does not track values through
 * tables and results of helper functions. Lua has parsed the text before: blocks and brackets are
 * balanced and their nesting is bounded, so every walk here is linear. */
#include "gen/front/trace.h"

#include <string.h>

typedef struct { const Tok *v; int n; NameSet taint; Trace *t; } Lint;

static bool is(const Tok *k, const char *s) { return tok_is(k, s); }

static void taint(Lint *l, const char *name, size_t n)
{
    names_add(&l->taint, l->t->arena, name, n);
}

static bool tainted(const Lint *l, int i)
{
    const Tok *k = &l->v[i];
    if (k->kind != NAME || (i > 0 && is(k - 1, ".")))
        return false;
    if (is(k + 1, "=") && !is(k + 1, "=="))
        return false;
    return names_has(&l->taint, k->s, (size_t)k->n);
}

static bool ends_operand(const Tok *k)
{
    static const char *const words[] = {"and",  "or",     "not",   "function", "then",
                                        "do",   "return", "local", "in",       "if",
                                        "else", "elseif", "while", "until",    NULL};
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
    static const char *const ops[] = {"+",  "-",  "*", "/", "^",  "%",  "//",  "..",
                                      "==", "~=", "<", ">", "<=", ">=", "and", "or",
                                      "(",  "[",  ".", ":", "{",  ",",  NULL};
    for (const char *const *o = ops; *o; o++)
        if (is(k, *o))
            return true;
    return k->kind == STRING;
}

static bool is_size(const Tok *k) { return is(k, "numel") || is(k, "nrows") || is(k, "ncols"); }

static bool relates(const Tok *k) { return is(k, "<") || is(k, "<=") || is(k, ">") || is(k, ">="); }

/* out of range: the END token */
static const Tok *at(const Lint *l, int i) { return &l->v[i < 0 || i > l->n ? l->n : i]; }

/* The operand that begins (dir > 0) or ends (dir < 0) at i is a size, perhaps times one factor. */
static bool sized(const Lint *l, int i, int dir)
{
    return is_size(at(l, i)) || (is(at(l, i + dir), "*") && is_size(at(l, i + 2 * dir)));
}

/* A size, perhaps times a number, next to < <= > >=, or compared with another size by ==, or in
 * divisible(): a query about the tensor, which tracing answers. */
static bool is_question(const Lint *l, int i)
{
    if (!is_size(at(l, i)))
        return false;
    if (is(at(l, i - 1), "(") && is(at(l, i - 2), "divisible"))
        return true;
    int a = is(at(l, i - 1), "*") ? i - 3 : i - 1, b = is(at(l, i + 1), "*") ? i + 3 : i + 1;
    bool equal =
        (is(at(l, a), "==") && sized(l, a - 1, -1)) || (is(at(l, b), "==") && sized(l, b + 1, 1));
    return equal || relates(at(l, a)) || relates(at(l, b));
}

/* The end of the expression list that starts at i; sets *hit if it contains a symbolic name. */
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

static void refuse(Lint *l, const SpecFile *s, int at, const char *test)
{
    const Tok *k = &l->v[at];
    const char *what =
        "it is known only when the rule runs; use where(c, a, b) with lt gt le ge eq ne";
    if (is_size(k))
        what = "a question about a tensor compares nrows, ncols or numel, perhaps times a number, "
               "by < <= > >= with a "
               "number or another size (ncols >= 9 and ncols <= 9 for ncols == 9)";
    if (is(k, "t"))
        what = "it is known only when the rule runs; use every(10, function() … end) for some "
               "steps, when(c, "
               "function() … end) or where(c, a, b) with lt gt le ge eq ne for a condition";
    diag_set(l->t->diag, s->path, k->line, s->text,
             "Lua's '%s' cannot test '%.*s', a symbolic value: %s", test, k->n, k->s, what);
    errors_keep(l->t);
}

/* The first symbolic name of the operand that ends (dir < 0) or begins (dir > 0) next to token
 * i. */
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
        if (depth == 0 && !(dir < 0 && is(k, "(")) && !callee && !is(k, "not") && !is(k, "-") &&
            !(dir > 0 && is(k + 1, "(")))
            break;
        if (callee)
            break;
    }
    return -1;
}

/* local a, b = … : if the right side contains a symbolic name, the locals may hold symbolic
 * values. */
static void follow_locals(Lint *l, int equals)
{
    int first = equals - 1;
    while (first >= 2 && is(&l->v[first - 1], ",") && l->v[first - 2].kind == NAME)
        first -= 2;
    if (first < 1 || !is(&l->v[first - 1], "local"))
        return;
    bool hit = false;
    expression(l, equals + 1, &hit);
    for (int j = first; hit && j < equals; j += 2)
        taint(l, l->v[j].s, (size_t)l->v[j].n);
}

/* The first symbolic name from token i up to `end`; -1: none. */
static int hit_between(const Lint *l, int i, int end)
{
    while (i < end && !(tainted(l, i) && !is_question(l, i)))
        i++;
    return i < end ? i : -1;
}

static void check(Lint *l, const SpecFile *s)
{
    for (int i = 0; i < l->n && !errors_over(l->t); i++) {
        const Tok *k = &l->v[i];
        bool cond = is(k, "if") || is(k, "elseif") || is(k, "while"), any = false;
        int end = is(k, "until") ? expression(l, i + 1, &any) + 1 : i + 1, hit = -1;
        while (cond && l->v[end].kind != END && !is(&l->v[end], "then") && !is(&l->v[end], "do"))
            end++;
        hit = hit_between(l, i + 1, end);
        static const char *const tests[] = {"and", "or", "not", "==", "~=", NULL};
        for (const char *const *o = tests; *o && hit < 0; o++)
            if (is(k, *o)) {
                hit = operand_hit(l, i, 1);
                if (hit < 0 && !is(k, "not"))
                    hit = operand_hit(l, i, -1);
                if (hit >= 0 && is_question(l, hit))
                    hit = -1;
            }
        if (hit >= 0)
            refuse(l, s, hit, arena_strndup(l->t->arena, k->s, (size_t)k->n));
        if (is(k, "=") && i > 0 && l->v[i - 1].kind == NAME)
            follow_locals(l, i);
    }
}

int lint_local(Trace *t, const SpecFile *s, const char *name)
{
    Lint l = {.v = s->tok, .n = s->ntok, .t = t};
    taint(&l, name, strlen(name));
    for (int i = 0; i < l.n; i++) {
        int line = 0, k = i + 1;
        bool more = is(&l.v[i], "local"), itself = false;
        while (more && l.v[k].kind == NAME) {
            line = is(&l.v[k], name) ? l.v[k].line : line;
            k += is(at(&l, k + 1), "<") ? 4 : 1;           /* local x <const> */
            more = is(at(&l, k), ",");
            k += more;
        }
        if (line && is(at(&l, k), "="))
            expression(&l, k + 1, &itself);
        if (itself)
            return line;
    }
    return 0;
}

void lint_spec(Trace *t, const SpecFile *s, const SpecFile *in)
{
    Lint l = {.v = in->tok, .n = in->ntok, .t = t};
    size_t skip = strlen(s->prefix);
    static const char *const always[] = {"p", "g", "t", "numel", "nrows", "ncols", "nkernel"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        taint(&l, always[i], strlen(always[i]));
    for (int i = 0; i < s->nhyper; i++)
        taint(&l, t->rule->hyper[s->hyper[i]].name + skip,
              strlen(t->rule->hyper[s->hyper[i]].name + skip));
    for (int i = 0; i < s->nstate; i++)
        taint(&l, t->rule->state[s->state[i]].name + skip,
              strlen(t->rule->state[s->state[i]].name + skip));
    for (int i = 0; i < s->ninput; i++)
        taint(&l, t->rule->input[s->input[i]].name + skip,
              strlen(t->rule->input[s->input[i]].name + skip));
    check(&l, in);
}

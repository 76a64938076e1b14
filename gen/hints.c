/* What newcomers write, from other languages and libraries, and what to write here. */
#include "trace.h"

#include <string.h>

typedef struct { const char *word, *say; } Hint;

static const Hint names[] = {
    {"matmul", "a product of matrices is mm(a, b); '*' is elementwise"},
    {"einsum", "a product of matrices is mm(a, b), a transpose a.T; '*' is elementwise"},
    {"transpose", "a transpose is a.T"},
    {"identity", "the unit matrix is eye 'rows', or eye 'cols'"},
    {"svd", "singular vectors are not in the language yet; polar(x) is the orthogonal factor"},
    {"cholesky", "the triangle of a positive matrix is chol(A)"},
    {"inv", "solve(A, B, { spd = true }) is A's inverse times B; power(A, -1) the inverse of a symmetric A"},
    {"argsort", "places by value are sort(v); take(X, sort(v)) has rows in that order"},
    {"gather", "rows by their places are take(X, order), columns take(X, order, 'cols')"},
    {"newton_schulz", "the orthogonal factor is polar(x, { steps = 5 })"},
    {"orthogonalize", "the orthogonal factor is polar(x, { steps = 5 })"},
    {"io", "a spec has no files: it only says what a step does"},
    {"os", "a spec has no clock and no system: the step's number is t, random() draws"},
    {"print", "a spec cannot print: list what you want to see under 'values' and read it with optc_read_value"},
    {"require", "a spec cannot load code: it is one file"},
    {"load", "a spec cannot load code: it is one file"},
    {"dofile", "a spec cannot load code: it is one file"},
    {"pairs", "use ipairs, or for i = 1, n: the order of pairs is not fixed"},
    {"next", "use ipairs, or for i = 1, n: the order of next is not fixed"},
    {"table", "tables are written { … } and read by t[i]; Lua's table library is not here"},
    {"string", "Lua's string library is not here"},
    {"pcall", "errors of a spec are told with their line; there is nothing to catch"},
    {"range", "write for i = 1, n do … end"},
    {"self", "names stand alone: m, not self.m"},
    {"state", "states stand alone: m, not state.m"},
    {"hyper", "hyperparameters stand alone: lr, not hyper.lr"},
    {"grad", "the gradient is g"},
    {"param", "the parameter is p"},
    {"params", "the parameter is p"},
    {"step", "the step's number is t; inside 'matrix', step() steps a matrix as other tensors are stepped"},
    {"torch", "functions stand alone: sqrt(x), not torch.sqrt(x)"},
    {"np", "functions stand alone: sqrt(x), not np.sqrt(x)"},
    {"jnp", "functions stand alone: sqrt(x), not jnp.sqrt(x)"},
    {"None", "Lua's word is nil"},
    {"True", "Lua's word is true"},
    {"False", "Lua's word is false"},
    {"square", "write x * x"},
    {"maximum", "write max(a, b)"},
    {"minimum", "write min(a, b)"},
    {"zeros_like", "a state is declared: state = { m = zeros }"},
};

const char *hint_name(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].word, name))
            return names[i].say;
    return "";
}

/* Symbols and words that Lua's parser stumbles over. */
static const Hint symbols[] = {
    {"-=", "Lua has no -=: write x = x - y"},     {"+=", "Lua has no +=: write x = x + y"},
    {"*=", "Lua has no *=: write x = x * y"},     {"/=", "Lua has no /=: write x = x / y"},
    {"**", "the power is ^: x ^ 2"},              {"!=", "Lua's word is ~=; of values, ne(a, b)"},
    {"&&", "Lua's word is and; of values, both(a, b)"}, {"||", "Lua's word is or; of values, either(a, b)"},
    {"++", "Lua has no ++: write i = i + 1"},     {"@", "a product of matrices is mm(a, b)"},
    {"?", "choose by where(c, a, b)"},            {"#", "comments begin with --"},
};
static const Hint words[] = {
    {"import", "a spec cannot load code: it is one file"}, {"def", "functions are written function name(x) … end"},
    {"elif", "Lua's word is elseif"},                      {"lambda", "functions are written function(x) … end"},
    {"let", "Lua's word is local"},                        {"var", "Lua's word is local"},
    {"const", "Lua's word is local"},
};

static const char *hint_field(Trace *t, const char *message)
{
    const char *at = strstr(message, "a nil value (field '");
    char name[41];
    size_t n = at ? strcspn(at += 20, "'") : 0;
    if (!n || n >= sizeof name)
        return "";
    memcpy(name, at, n);
    name[n] = 0;
    lua_getfield(t->L, LUA_REGISTRYINDEX, "optc.builtins");
    bool own = lua_getfield(t->L, -1, name) == LUA_TFUNCTION;
    lua_pop(t->L, 2);
    return own ? arena_printf(t->arena, "write %s(…)", name) : "";
}

/* Of two tokens that touch, the symbol they would be elsewhere. */
static bool makes(const Tok *k, const char *s)
{
    if (!s[1])
        return tok_is(k, s);
    return k->kind == SYMBOL && k->n == 1 && k[1].kind == SYMBOL && k[1].s == k->s + 1 && !memcmp(k->s, s, 2);
}

/* A block that is opened and never closed; NULL: all are, or more are closed than were opened. */
static const Tok *unclosed(const Tok *k)
{
    static const char *const opens[] = {"function", "if", "do", "repeat"};
    const Tok *open[64];
    int n = 0;
    for (; k && k->kind != END; k++) {
        if ((tok_is(k, "end") || tok_is(k, "until")) && n-- == 0)
            return NULL;
        for (size_t i = 0; i < sizeof opens / sizeof *opens; i++)
            if (tok_is(k, opens[i])) {
                if (n == (int)(sizeof open / sizeof *open))
                    return NULL;
                open[n++] = k;
            }
    }
    return n ? open[n - 1] : NULL;
}

const char *hint_syntax(Trace *t, const SpecFile *s, int line, const char *message)
{
    if (!strstr(message, " near "))
        return hint_field(t, message);
    for (const Tok *k = s->tok; k && k->kind != END && k->line <= line; k++) {
        if (k->line < line - 1)                            /* Lua may notice it on the next */
            continue;
        for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
            if (makes(k, symbols[i].word))
                return symbols[i].say;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (k->kind == NAME && tok_is(k, words[i].word))
                return words[i].say;
    }
    const Tok *open = strstr(message, "to close") ? NULL : unclosed(s->tok);
    return open ? arena_printf(t->arena, "is an 'end' missing? '%.*s' on line %d has none", open->n, open->s, open->line)
                : "";
}

/* One table of hints: spellings from other languages and libraries, and what to write in a spec. */
#include "gen/front/trace.h"

#include <string.h>

/* Where a hint applies: a name that is not declared, or a field of a value (g.shape); a word or
 * symbol that Lua's parser refuses; a part of Lua's message; a function with a wrong number of
 * arguments. */
typedef enum { BY_NAME, BY_WORD, BY_SYMBOL, BY_MESSAGE, BY_COUNT } HintMatch;
/* words: separated by blanks, or one message */
typedef struct { HintMatch place; const char *words, *say; } Hint;

static const Hint hints[] = {
    /* products and factors */
    {BY_NAME, "matmul bmm linalg_matmul", "a product of matrices is mm(a, b); '*' is elementwise"},
    {BY_NAME, "einsum tensordot",
     "a product of matrices is mm(a, b), a transpose a.T; '*' is elementwise"},
    {BY_NAME, "transpose swapaxes permute t mT", "a transpose is a.T"},
    {BY_NAME, "identity", "the unit matrix is eye 'rows', or eye 'cols'"},
    {BY_NAME, "svdvals singular_values",
     "singular values are the second result of svd: local U, s = svd(x)"},
    {BY_NAME, "cholesky", "the triangle of a positive matrix is chol(A)"},
    {BY_NAME, "inv inverse",
     "solve(A, B, { spd = true }) is A's inverse times B; power(A, -1) the inverse of a symmetric "
     "A"},
    {BY_NAME, "pinv",
     "of a symmetric A, power(A, -1, { floor = eps }) is the inverse with small eigenvalues "
     "lifted"},
    {BY_NAME, "matrix_power", "the power of a symmetric matrix is power(A, r)"},
    {BY_NAME, "linalg", "factors stand alone: power, chol, qr, eigh, solve"},
    {BY_NAME, "kron", "there is no Kronecker product: apply its two sides, mm(mm(L, g), R)"},
    {BY_NAME, "det logdet",
     "there is no determinant; its logarithm is slice.sum(log(w)) with the eigenvalues w = "
     "eigh(A)"},
    {BY_NAME, "argsort", "places by value are sort(v); take(X, sort(v)) has rows in that order"},
    {BY_NAME, "scatter index_copy", "put(X, i, V) replaces the rows i = topk(v) of X by V"},
    {BY_NAME, "gather index_select",
     "rows by their places are take(X, order), columns take(X, order, 'cols')"},
    {BY_NAME, "newton_schulz zeropower_via_newtonschulz5 orthogonalize",
     "the orthogonal factor is polar(x, { steps = 5 })"},

    /* reductions */
    {BY_NAME, "std", "the standard deviation is sqrt(mean(x * x) - mean(x) ^ 2)"},
    {BY_NAME, "var", "the variance is mean(x * x) - mean(x) ^ 2"},
    {BY_NAME, "any", "whether c holds anywhere is gt(max(where(c, 1, 0)), 0)"},
    {BY_NAME, "all", "whether c holds everywhere is gt(min(where(c, 1, 0)), 0)"},
    {BY_NAME, "prod", "there is no product over elements; for positive x it is exp(sum(log(x)))"},
    {BY_NAME, "kthvalue quantile median argmax argmin",
     "values are not ranked over a tensor: sum, mean, norm, rms, max and min reduce it, and "
     "sort(v) "
     "ranks values along one axis"},
    {BY_NAME, "softmax", "write local e = exp(x - rowmax(x)), then e / rowsum(e)"},
    {BY_NAME, "global_norm clip_grad_norm_ clip_grad_norm",
     "the norm over all tensors is global.norm(g); the wrapper clip limits it: --with 'clip(1)'"},
    {BY_NAME, "clip_by_global_norm", "the wrapper clip does that: --with 'clip(1)'"},
    {BY_NAME, "row col rows cols",
     "sizes are nrows and ncols; reductions by row and column are one word: rowsum(x), colnorm(x)"},
    {BY_NAME, "group tensor",
     "a reduction over one tensor is norm(x), over all tensors global.norm(x)"},
    {BY_NAME, "normalize", "write x / norm(x), or x / rownorm(x)"},

    /* elementwise work */
    {BY_NAME, "relu", "write max(x, 0)"},
    {BY_NAME, "silu swish", "write x * sigmoid(x)"},
    {BY_NAME, "gelu", "write x * sigmoid(1.702 * x)"},
    {BY_NAME, "softplus", "write log1p(exp(x))"},
    {BY_NAME, "clip clip_by_value clamp_min clamp_max",
     "write clamp(x, lo, hi), or max(x, lo), or min(x, hi)"},
    {BY_NAME, "square", "write x * x"},
    {BY_NAME, "reciprocal", "write 1 / x"},
    {BY_NAME, "maximum fmax", "write max(a, b)"},
    {BY_NAME, "minimum fmin", "write min(a, b)"},
    {BY_NAME, "add", "write a + b"},
    {BY_NAME, "sub subtract", "write a - b"},
    {BY_NAME, "mul multiply", "write a * b"},
    {BY_NAME, "div divide true_divide", "write a / b"},
    {BY_NAME, "addcmul addcdiv", "write a + c * x * y, or a + c * x / y"},
    {BY_NAME, "log2 log10", "write log(x) / math.log(2), or math.log(10)"},
    {BY_NAME, "exp2", "write 2 ^ x"},
    {BY_NAME, "tan", "write sin(x) / cos(x)"},
    {BY_NAME, "erfc", "write 1 - erf(x)"},
    {BY_NAME, "isinf", "write isnt(isfinite(x)), which holds for NaN too"},
    {BY_NAME, "logical_and", "write both(a, b)"},
    {BY_NAME, "logical_or", "write either(a, b)"},
    {BY_NAME, "logical_not", "write isnt(a)"},
    {BY_NAME, "float int double half to type_as",
     "numbers have one kind here: leave the conversion out; floor(x) cuts"},
    {BY_NAME, "item detach clone cpu cuda numpy contiguous requires_grad",
     "leave it out: a value is a formula, known when the rule runs"},
    {BY_NAME, "randn randn_like standard_normal",
     "draws are normal(), one an element: sd * normal()"},
    {BY_NAME, "rand rand_like uniform", "draws are random(), uniform in [0, 1)"},
    {BY_NAME, "bernoulli dropout", "write where(lt(random(), prob), 1, 0)"},

    /* shapes */
    {BY_NAME, "shape size dim ndim len",
     "sizes are nrows, ncols and numel; what differs by rank goes to 'matrix' (two and more "
     "dimensions) and 'step'"},
    {BY_NAME, "reshape view flatten ravel squeeze unsqueeze expand broadcast_to",
     "values keep the tensor's shape, and smaller ones are broadcast; view = \"last\" at the head "
     "sees a "
     "tensor as a batch of matrices"},
    {BY_NAME, "cat concat concatenate stack split chunk",
     "values are not joined or cut: block = 1024 at the head cuts matrices into blocks"},
    {BY_NAME, "cumsum flip roll arange linspace meshgrid",
     "elements have no index; triu, tril, diag and take know places in a matrix"},
    {BY_NAME, "conv2d conv1d fft", "convolutions are not in the language: products are mm(a, b)"},
    {BY_NAME, "zeros_like empty_like", "a state is declared: state = { m = zeros }"},
    {BY_NAME, "ones_like ones full full_like",
     "a state is declared: state = { m = fill(1) }; in a formula write the number itself"},

    /* names of the parts of a rule */
    {BY_NAME, "self", "names stand alone: m, not self.m"},
    {BY_NAME, "state", "states stand alone: m, not state.m"},
    {BY_NAME, "hyper config args defaults opt", "hyperparameters stand alone: lr, not hyper.lr"},
    {BY_NAME, "betas",
     "hyperparameters are single numbers: hyper = { beta1 = 0.9, beta2 = 0.999 }"},
    {BY_NAME, "grad grads gradient d_p", "the gradient is g"},
    {BY_NAME, "param params parameter weight weights theta data", "the parameter is p"},
    {BY_NAME, "step iteration iter global_step",
     "the step's number is t; inside 'matrix', step() steps a matrix as other tensors are stepped"},
    {BY_NAME, "epoch total_steps",
     "a spec knows the step's number t alone: make it a hyperparameter that the caller sets"},
    {BY_NAME, "learning_rate",
     "declare it: hyper = { learning_rate = 1e-3 }, or use the name lr, which optc.torch's "
     "schedulers know"},
    {BY_NAME, "closure loss backward",
     "a spec sees gradients; the loss is an input: inputs = { loss = \"group\" }"},
    {BY_NAME, "torch", "functions stand alone: sqrt(x), not torch.sqrt(x)"},
    {BY_NAME, "np numpy", "functions stand alone: sqrt(x), not np.sqrt(x)"},
    {BY_NAME, "jnp jax optax", "functions stand alone: sqrt(x), not jnp.sqrt(x)"},
    {BY_NAME, "F nn", "functions stand alone: sigmoid(x), not F.sigmoid(x)"},

    /* Lua */
    {BY_NAME, "None null", "Lua's word is nil"},
    {BY_NAME, "True", "Lua's word is true"},
    {BY_NAME, "False", "Lua's word is false"},
    {BY_NAME, "io", "a spec has no files: it only says what a step does"},
    {BY_NAME, "os", "a spec has no clock and no system: the step's number is t, random() draws"},
    {BY_NAME, "print",
     "a spec cannot print: list what you want to see under 'values' and read it with "
     "optc_read_value"},
    {BY_NAME, "require load dofile", "a spec cannot load code: it is one file"},
    {BY_NAME, "pairs", "use ipairs, or for i = 1, n: the order of pairs is not fixed"},
    {BY_NAME, "next", "use ipairs, or for i = 1, n: the order of next is not fixed"},
    {BY_NAME, "table",
     "tables are written { … } and read by t[i]; Lua's table library is not here"},
    {BY_NAME, "string", "Lua's string library is not here"},
    {BY_NAME, "pcall", "errors of a spec are told with their line; there is nothing to catch"},
    {BY_NAME, "range", "write for i = 1, n do … end"},

    {BY_WORD, "import", "a spec cannot load code: it is one file"},
    {BY_WORD, "def", "functions are written function name(x) … end"},
    {BY_WORD, "lambda", "functions are written function(x) … end"},
    {BY_WORD, "elif", "Lua's word is elseif"},
    {BY_WORD, "let var const", "Lua's word is local"},
    {BY_WORD, "with", "leave it out: nothing in a spec is differentiated"},
    {BY_WORD, "try except",
     "there is nothing to catch: isfinite(x) and when(c, function() … end) guard a step"},
    {BY_WORD, "class", "a spec is a table: return optimizer { name = …, step = function() … end }"},

    {BY_SYMBOL, "-=", "Lua has no -=: write x = x - y"},
    {BY_SYMBOL, "+=", "Lua has no +=: write x = x + y"},
    {BY_SYMBOL, "*=", "Lua has no *=: write x = x * y"},
    {BY_SYMBOL, "/=", "Lua has no /=: write x = x / y"},
    {BY_SYMBOL, "**", "the power is ^: x ^ 2"},
    {BY_SYMBOL, "!=", "Lua's word is ~=; of values, ne(a, b)"},
    {BY_SYMBOL, "&&", "Lua's word is and; of values, both(a, b)"},
    {BY_SYMBOL, "||", "Lua's word is or; of values, either(a, b)"},
    {BY_SYMBOL, "++", "Lua has no ++: write i = i + 1"},
    {BY_SYMBOL, "@", "a product of matrices is mm(a, b)"},
    {BY_SYMBOL, "?", "choose by where(c, a, b)"},
    {BY_SYMBOL, "#", "comments begin with --"},
    {BY_SYMBOL, "−", "this minus sign is not ASCII: write -"},
    {BY_SYMBOL, "× · ⋅", "the product is *"},
    {BY_SYMBOL, "²", "write x ^ 2"},
    {BY_SYMBOL, "√", "write sqrt(x)"},
    {BY_SYMBOL, "≤ ≥ ≠", "write le(a, b), ge(a, b), ne(a, b)"},
    {BY_SYMBOL, "“ ” ‘ ’", "quotes are \" and '"},
    {BY_SYMBOL, "α", "Lua's names are ASCII: write alpha"},
    {BY_SYMBOL, "β", "Lua's names are ASCII: write beta"},
    {BY_SYMBOL, "γ", "Lua's names are ASCII: write gamma"},
    {BY_SYMBOL, "δ Δ", "Lua's names are ASCII: write delta"},
    {BY_SYMBOL, "ε ϵ", "Lua's names are ASCII: write eps"},
    {BY_SYMBOL, "η", "Lua's names are ASCII: write eta, or lr"},
    {BY_SYMBOL, "θ", "Lua's names are ASCII: write theta; the parameter is p"},
    {BY_SYMBOL, "λ", "Lua's names are ASCII: write lambda or weight_decay"},
    {BY_SYMBOL, "μ µ", "Lua's names are ASCII: write mu, or momentum"},
    {BY_SYMBOL, "ρ", "Lua's names are ASCII: write rho"},
    {BY_SYMBOL, "σ", "Lua's names are ASCII: write sigma"},

    {BY_MESSAGE, "bad 'for' ",
     "a loop runs when the rule is compiled, over a number or an option; sizes and t are not known "
     "then. Work on a "
     "whole tensor needs no loop: rowsum, colsum, norm … reduce it"},
    {BY_MESSAGE, "')' expected near '='",
     "arguments have no names: clamp(x, lo, hi); options are a table: power(A, -1/4, { ridge = eps "
     "})"},
    {BY_MESSAGE, "expected near 'if'", "choose by where(c, a, b)"},
    {BY_MESSAGE, "malformed number", "numbers are written 0.001, 1e-3, 1000"},
    {BY_MESSAGE, "call a table value (global 'slice')",
     "slice.sum(x), slice.norm(x) … give one value per matrix"},
    {BY_MESSAGE, "call a table value (global 'global')",
     "global.sum(x), global.norm(x) … reduce over all tensors"},

    {BY_COUNT, "norm rownorm colnorm",
     "norm is the 2-norm, rownorm and colnorm that of rows and columns; the 1-norm is sum(abs(x)), "
     "the "
     "largest entry max(abs(x))"},
    {BY_COUNT, "clamp", "clamp(x, lo, hi); with one end it is max(x, lo) or min(x, hi)"},
    {BY_COUNT, "topk",
     "topk(v) gives as many indices as the axis rank is long: say rank = 5 at the head of the "
     "spec"},
    {BY_COUNT, "lerp", "lerp(a, b, w) is a + w * (b - a)"},
    {BY_COUNT, "normal", "normal() has mean 0 and deviation 1: write mean + sd * normal()"},
    {BY_COUNT, "random", "random() is uniform in [0, 1): write lo + (hi - lo) * random()"},
};

/* The n characters of `text` are one of the words, which are separated by blanks. */
static bool one_of(const char *words, const char *text, size_t n)
{
    for (const char *w = words; n && *w;) {
        size_t len = strcspn(w, " ");
        if (len == n && !memcmp(w, text, n))
            return true;
        w += len + strspn(w + len, " ");
    }
    return false;
}

static const char *hint_for(HintMatch place, const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (hints[i].place == place && one_of(hints[i].words, text, n))
            return hints[i].say;
    return "";
}

const char *hint_name(const char *name) { return hint_for(BY_NAME, name, strlen(name)); }

static bool is_builtin(Trace *t, const char *name)
{
    lua_getfield(t->L, LUA_REGISTRYINDEX, "optc.builtins");
    bool own = lua_getfield(t->L, -1, name) == LUA_TFUNCTION;
    lua_pop(t->L, 2);
    return own;
}

const char *hint_field(Trace *t, const char *name)
{
    size_t n = strlen(name);
    if (*hint_name(name))
        return hint_name(name);
    if (n > 1 && name[n - 1] == '_')
        return "values are not changed in place: write p = p + x";
    return is_builtin(t, name) ? arena_printf(t->arena, "values have no methods, write %s(x)", name)
                               : "";
}

const char *hint_count(Trace *t, const char *function, int n)
{
    const char *say = hint_for(BY_COUNT, function, strlen(function));
    if (n > 1 && !*say && is_builtin(t, arena_printf(t->arena, "row%s", function)))
        say = arena_printf(t->arena, "row%s(x) gives one value per row, col%s(x) one per column",
                           function, function);
    return say;
}

/* For "attempt to call a nil value (field 'pow')": `math` has fewer functions than the language. */
static const char *hint_message(Trace *t, const char *message)
{
    const char *at = strstr(message, "a nil value (field '");
    size_t n = at ? strcspn(at += 20, "'") : 0;
    char *name = arena_strndup(t->arena, at ? at : "", n);
    if (n && is_builtin(t, name))
        return arena_printf(t->arena, "write %s(…)", name);
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (hints[i].place == BY_MESSAGE && strstr(message, hints[i].words))
            return hints[i].say;
    return "";
}

/* The symbol at a token that Lua does not know: two adjacent tokens, or one UTF-8 character. */
static const char *hint_symbol(const Tok *k)
{
    bool wide = k->kind == SYMBOL && (unsigned char)*k->s >= 0x80;
    size_t n = 1;
    while (wide && ((unsigned char)k->s[n] & 0xc0) == 0x80)
        n++;
    const char *say = k->kind == SYMBOL ? hint_for(BY_SYMBOL, k->s, n) : "";
    if (!*say && k->kind == SYMBOL && k->n == 1 && k[1].kind == SYMBOL && k[1].s == k->s + 1)
        say = hint_for(BY_SYMBOL, k->s, 2);
    return wide && !*say ? "names and operators are ASCII: letters, digits and _" : say;
}

/* The last block that is opened and never closed; NULL: none, or there are too many ends. */
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
    if (!strstr(message, " near ") || *hint_message(t, message))
        return hint_message(t, message);
    for (const Tok *k = s->tok; k && k->kind != END && k->line <= line; k++) {
        if (k->line < line - 1)                            /* Lua may report it on the next line */
            continue;
        const char *say = k->kind == NAME ? hint_for(BY_WORD, k->s, (size_t)k->n) : hint_symbol(k);
        if (*say)
            return say;
    }
    const Tok *open = strstr(message, "to close") ? NULL : unclosed(s->tok);
    return !open ? ""
                 : arena_printf(t->arena, "is an 'end' missing? '%.*s' on line %d has none",
                                open->n, open->s, open->line);
}

/* The functions of matrices that `optc ship --functions LIST` puts into a package: their forms as
 * specs. A package compiles nothing, so every combination of options that changes a spec has its
 * own form. Exponents do not: the package's host puts them into the program. */
#include "runtime/library/matrix/packed_functions.h"

#include "runtime/core/functions/function.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Forms { PackedForm *v; int n, most; bool library; } Forms;

static void add_form(Forms *to, const char *id, const FunctionForm *f, bool kernels_only)
{
    for (int t = 0; t < 2 && to->n < to->most; t++) {
        PackedForm *x = &to->v[to->n++];
        x->id = id, x->type = t ? T_F64 : T_F32, x->kernels_only = kernels_only;
        snprintf(x->spec, sizeof x->spec, "%s", f->spec);
    }
}

static bool add_call(Forms *to, FunctionName name, const optc_function *x, bool kernels_only)
{
    FunctionForm f;
    memset(&f, 0, sizeof f);
    f.call = function_call(name);
    f.why = "";
    if (function_form(name, x, !kernels_only && !to->library, &f) != OPTC_OK)
        return false;
    add_form(to, f.call + strlen("optc_"), &f, kernels_only);
    return true;
}

/* ridge, relative and floor in all combinations. On a GPU exponents differ in the kernels that they
 * need: roots by products, inverses by triangles, and the others by eigenvectors. The library has
 * one spec per exponent, and the specs of one kind have the same code. */
static void add_powers(Forms *to)
{
    static const double exponents[] = {-0.25, -1, 0.3};
    for (int i = 0; i < (to->library ? 3 : 1); i++)
        for (int k = 0; k < 8; k++)
            add_call(to, FUNCTION_MATRIX_POWER,
                     &(optc_function){.exponent = exponents[i],
                                      .ridge = k & 1,
                                      .relative = k >> 1 & 1,
                                      .floor = k >> 2},
                     false);
    if (to->library)
        return;
    add_call(to, FUNCTION_MATRIX_POWER, &(optc_function){.exponent = -1}, true);
    add_call(to, FUNCTION_MATRIX_POWER, &(optc_function){.exponent = 0.3}, true);
}

static void add_solves(Forms *to)
{
    for (int k = 0; k < 4; k++)
        add_call(to, FUNCTION_SOLVE, &(optc_function){.upper = k & 1, .right = k >> 1}, false);
    add_call(to, FUNCTION_SOLVE, &(optc_function){.positive = 1}, false);
}

static void add_linear(Forms *to)
{
    for (int k = 0; k < NLINEARSTEP; k++) {
        FunctionForm f;
        memset(&f, 0, sizeof f);
        linear_spec((LinearStep)k, &f);
        add_form(to, "linear", &f, false);
    }
}

/* "polar(5,jordan)": steps and coefficients other than the defaults */
static bool add_polar(Forms *to, const char *word)
{
    char name[41] = "polar_express";
    int steps = 12, end = 0;
    if (strcmp(word, "polar") &&
        (sscanf(word, "polar(%d,%40[a-z_])%n", &steps, name, &end) != 2 || word[end] || steps < 1))
        return false;
    return add_call(to, FUNCTION_POLAR, &(optc_function){.steps = steps, .coefficients = name},
                    false);
}

static bool add_word(Forms *to, const char *word)
{
    bool all = !strcmp(word, "all");
    int before = to->n;
    if (all || !strcmp(word, "matrix_power") || !strcmp(word, "power"))
        add_powers(to);
    if (all || !strcmp(word, "eigh"))
        add_call(to, FUNCTION_EIGH, &(optc_function){.n = 1}, false);
    if (all || !strcmp(word, "cholesky"))
        add_call(to, FUNCTION_CHOLESKY, &(optc_function){.n = 1}, false);
    if (all || !strcmp(word, "solve"))
        add_solves(to);
    if (all || !strncmp(word, "polar", 5))
        add_polar(to, all ? "polar" : word);
    /* Muon's; each number of steps has its own code */
    if (all && to->library)
        add_polar(to, "polar(5,polar_express)"), add_polar(to, "polar(5,jordan)");
    if (all || !strcmp(word, "qr"))
        add_call(to, FUNCTION_QR, &(optc_function){.n = 1}, false);
    if (all || !strcmp(word, "linear"))
        add_linear(to);
    return to->n > before || !strcmp(word, "products");
}

/* The end of a word: a comma outside of parentheses, or the end of the list. */
static size_t word_end(const char *s)
{
    size_t n = 0;
    for (int depth = 0; s[n] && (s[n] != ',' || depth); n++)
        depth += s[n] == '(' ? 1 : s[n] == ')' ? -1 : 0;
    return n;
}

static bool form_given(const PackedForm *v, int n, const PackedForm *x)
{
    for (int i = 0; i < n; i++)
        if (v[i].type == x->type && !strcmp(v[i].spec, x->spec))
            return true;
    return false;
}

int packed_forms(const char *list, bool library, PackedForm *out, int most, char *why, size_t nwhy)
{
    Forms to = {out, 0, most, library};
    char word[80];
    for (const char *s = list; *s; s += *s == ',') {
        size_t n = word_end(s);
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), s);
        s += n;
        if (add_word(&to, word))
            continue;
        snprintf(why, nwhy,
                 "there is no function '%s'; known are all, products, matrix_power, eigh, "
                 "cholesky, solve, "
                 "polar, polar(STEPS,COEFFICIENTS), qr and linear",
                 word);
        return -1;
    }
    int n = 0;
    for (int i = 0; i < to.n; i++)                         /* a word may be given twice */
        if (!form_given(out, n, &out[i]))
            out[n++] = out[i];
    return n;
}

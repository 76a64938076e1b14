/* The functions of matrices as small specs: the spec's text, and which matrices of the call are its
 * inputs and states. functions.c runs them; `optc ship --functions` lists those that a package
 * contains (packed_functions.c). */
#include "runtime/core/functions/function.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static MatrixBatch matrix_operand(const FunctionForm *f, const char *name, const char *label,
                              optc_matrix x, int64_t rows, int64_t cols, unsigned flags)
{
    MatrixBatch y = operand_of(label, x.data, f->type, rows, cols, x.ld, x.next);
    y.name = name, y.flags = flags;
    return y;
}

static optc_status function_number(const char *call, const char *name, double x, double least)
{
    return isfinite(x) && x >= least
               ? OPTC_OK
               : fail(OPTC_ERROR_ARGUMENT, "%s: %s is %g; it must be a finite number%s", call, name,
                      x, least == 0 ? " of at least 0" : "");
}

static unsigned symmetric_flags(const optc_function *x)
{
    return COPY_FINITE | (x->lower ? COPY_LOWER : COPY_SYMMETRIC);
}

/* ---- functions of one square matrix ---- */
/* The exponent as the spec language accepts it: -1/3, but not -0.3333, is a third root. */
static void exponent_text(double x, char *buf, size_t n)
{
    for (int q = 1; q <= 64; q++) {
        double p = nearbyint(x * q);
        if (fabs(p) < 1e15 && p / q == x) {
            snprintf(buf, n, "%.0f/%d", p, q);
            return;
        }
    }
    snprintf(buf, n, "%.17g", x);
}

/* A lower bound of eigenvalue / norm: `relative` times the largest row sum was added. Rounded down
 * to two digits, so that few values of relative need an entry of their own. */
static double power_low(double relative)
{
    static const double least = USUAL_LOW, most = 0.1;
    double x = relative / (1 + relative), unit = pow(10, floor(log10(x)) - 1);
    if (!(x > least))
        return 0;
    x = floor(x / unit * (1 + 2e-6)) * unit;               /* 1e-6 stays 1e-6 */
    return x < most ? x : most;
}

/* Zeros are left out of the spec: only a floor needs eigenvectors. */
static optc_status power_spec(const optc_function *x, bool packed, FunctionForm *f)
{
    const struct { const char *name, *hyper; double value;
    } lift[] = {{"ridge", "by_ridge", x->ridge},
                {"relative", "by_relative", x->relative},
                {"floor", "by_floor", x->floor}};
    char hyper[120] = "", options[160] = "", declares[240], body[320], exponent[40];
    size_t h = 0, o = 0;
    optc_status s = function_number(f->call, "exponent", x->exponent, -INFINITY);
    if (s == OPTC_OK && x->exponent == 0)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: exponent is 0, whose result is the identity; set another one", f->call);
    for (int i = 0; i < 3 && s == OPTC_OK; i++) {
        s = function_number(f->call, lift[i].name, lift[i].value, 0);
        if (s != OPTC_OK || lift[i].value == 0)
            continue;
        f->hyper[f->nhyper].name = lift[i].hyper, f->hyper[f->nhyper++].value = lift[i].value;
        h += (size_t)snprintf(hyper + h, sizeof hyper - h, "%s = 0, ", lift[i].hyper);
        o += (size_t)snprintf(options + o, sizeof options - o, "%s = %s, ", lift[i].name,
                              lift[i].hyper);
    }
    f->low = s == OPTC_OK && x->relative > 0 ? power_low(x->relative) : 0;
    exponent_text(x->exponent, exponent, sizeof exponent);
    if (packed)
        snprintf(exponent, sizeof exponent, "%s", PACKED_EXPONENT);
    f->exponent = packed ? x->exponent : 0;
    snprintf(declares, sizeof declares,
             "hyper = { %s }, inputs = { A = \"rows\" }, state = { X = zeros \"rows\" },", hyper);
    snprintf(body, sizeof body, "X = power(A, %s, { %s })", exponent, options);
    function_spec(f, "matrix_power", declares, body);
    f->why = "its eigenvalues are not positive where they have to be (ridge, relative or floor "
             "lifts them)";
    return s;
}

static void square_slots(const optc_function *x, FunctionForm *f)
{
    f->shape[1] = x->n, f->shape[2] = 1;
    f->in[0] = matrix_operand(f, "A", "a", x->a, x->n, x->n, symmetric_flags(x));
    f->out[0] = matrix_operand(f, "X", "x", x->x, x->n, x->n, 0);
    f->nin = f->nout = 1;
}

/* The spec's eigenvalues are in descending order. */
static void eigen_slots(const optc_function *x, FunctionForm *f)
{
    square_slots(x, f);
    f->out[0] = matrix_operand(f, "V", "x", x->x, x->n, x->n, COPY_REVERSED);
    f->out[1] = matrix_operand(f, "w", "y", x->y, 1, x->n, COPY_REVERSED);
    f->nout = 2;
}

static void cholesky_spec(FunctionForm *f)
{
    function_spec(f, "cholesky", "inputs = { A = \"rows\" }, state = { X = zeros \"rows\" },",
                  "X = chol(A)");
    f->why = "it is not positive definite; add something to its diagonal";
}

static void eigen_spec(FunctionForm *f)
{
    function_spec(f, "eigh",
                  "inputs = { A = \"rows\" }, state = { w = zeros \"row\", V = zeros \"rows\" },",
                  "w, V = eigh(A)");
}

/* ---- solutions and orthogonal factors: the parameter is the operand and the result ---- */
static optc_status solve_form(const optc_function *x, FunctionForm *f)
{
    if (x->positive && (x->upper || x->right))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_solve: positive is set together with %s; only one of them is possible",
                    x->upper ? "upper" : "right");
    bool right = x->right != 0;
    int64_t rows = right ? x->m : x->n, cols = right ? x->n : x->m;
    char body[120];
    snprintf(body, sizeof body, "p = solve(%s, p, { %s })", x->upper ? "T.T" : "T",
             right ? "right = true" : x->positive ? "spd = true" : "");
    function_spec(f, "solve", right ? "inputs = { T = \"cols\" }," : "inputs = { T = \"rows\" },",
                  body);
    f->shape[1] = rows, f->shape[2] = cols;
    f->in[0] = matrix_operand(f, "T", "a", x->a, x->n, x->n,
                    x->positive ? symmetric_flags(x)
                                : COPY_FINITE | COPY_LOWER | (x->upper ? COPY_TRANSPOSED : 0));
    f->in[1] = matrix_operand(f, "p", "b", x->b, rows, cols, COPY_FINITE);
    f->out[0] = matrix_operand(f, "p", "x", x->x, rows, cols, 0);
    f->nin = 2, f->nout = 1;
    f->why = x->positive ? "a is not positive definite; add something to its diagonal"
                       : "a has a 0 on its diagonal, or the solution is not finite";
    return OPTC_OK;
}

/* Appends the name of the coefficients, or the triples, as the spec language has them. */
static optc_status coefficients_text(const optc_function *x, char *buf, size_t n, size_t *at)
{
    enum { MOST_TRIPLES = 8 };                             /* of the spec language */
    /* as gen/front/polar.c has them */
    static const char *const sets[] = {"polar_express", "polar_express_5", "jordan",     "cans",
                                       "turbo",         "quintic",         "deepseekv4", "cubic5"};
    const char *set = x->coefficients ? x->coefficients : sets[0];
    bool known = false;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        known = known || !strcmp(set, sets[i]);
    if (!known)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_polar: there are no coefficients '%.40s'; known are polar_express, "
                    "polar_express_5, jordan, cans, turbo, quintic, deepseekv4 and cubic5",
                    set);
    if (x->ntriples < 0 || x->ntriples > MOST_TRIPLES || (x->ntriples && !x->triples))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_polar: ntriples is %d%s; it must be 0 (named coefficients) to %d",
                    x->ntriples, x->triples ? "" : " and triples is NULL", MOST_TRIPLES);
    *at += (size_t)snprintf(buf + *at, n - *at, x->ntriples ? "{" : "\"%s\"", set);
    for (int i = 0; i < 3 * x->ntriples; i++) {
        optc_status s = function_number("optc_polar", "a coefficient", x->triples[i], -INFINITY);
        if (s != OPTC_OK)
            return s;
        *at += (size_t)snprintf(buf + *at, n - *at, i % 3 ? ", %.17g%s" : " { %.17g%s",
                                x->triples[i], i % 3 == 2 ? " }," : "");
    }
    *at += (size_t)snprintf(buf + *at, n - *at, x->ntriples ? " }" : "");
    return OPTC_OK;
}

static optc_status polar_form(const optc_function *x, FunctionForm *f)
{
    char body[MOST_SPEC - 120];
    if (x->steps < 0 || x->steps > 30)
        return fail(OPTC_ERROR_ARGUMENT, "optc_polar: steps is %d; it must be 0 (12 steps) to 30",
                    x->steps);
    size_t at = (size_t)snprintf(body, sizeof body, "p = polar(p, { steps = %d, coefficients = ",
                                 x->steps ? x->steps : x->ntriples ? x->ntriples : 12);
    optc_status s = coefficients_text(x, body, sizeof body, &at);
    if (s != OPTC_OK)
        return s;
    snprintf(body + at, sizeof body - at, " })");
    function_spec(f, "polar", "", body);
    f->shape[1] = x->m, f->shape[2] = x->n;
    f->in[0] = matrix_operand(f, "p", "a", x->a, x->m, x->n, COPY_FINITE);
    f->out[0] = matrix_operand(f, "p", "x", x->x, x->m, x->n, 0);
    f->nin = f->nout = 1;
    return OPTC_OK;
}

/* The spec has the leading columns of a, as many as the result has. */
static optc_status qr_form(const optc_function *x, FunctionForm *f)
{
    int64_t k = x->m < x->n ? x->m : x->n;
    function_spec(
        f, "qr",
        "rank = 1048576, inputs = { A = \"rows rank\" }, state = { X = zeros \"rows rank\" },",
        "X = qr(A)");
    f->shape[1] = x->m, f->shape[2] = k;
    f->in[0] = matrix_operand(f, "A", "a", x->a, x->m, k, COPY_FINITE);
    /* the distances are those of all columns */
    f->in[0].ld = x->a.ld ? x->a.ld : x->n;
    if (!x->a.next && __builtin_mul_overflow(x->m, f->in[0].ld, &f->in[0].next))
        return fail(OPTC_ERROR_ARGUMENT, "optc_qr: a is larger than memory can be");
    f->in[1] = matrix_operand(f, NULL, "a", x->a, x->m, x->n, COPY_FINITE);
    f->nin = x->n > k && (x->y.data || x->bytes) ? 2 : 1;
    f->out[0] = matrix_operand(f, "X", "x", x->x, x->m, k, 0);
    f->out[1] = matrix_operand(f, NULL, "y", x->y, k, x->n, COPY_UPPER);
    f->nout = x->y.data || x->bytes ? 2 : 1;
    return OPTC_OK;
}

/* ---- by name ---- */
CORE const char *function_call(FunctionName name)
{
    static const char *const calls[NFUNCTION] = {"optc_matrix_power", "optc_eigh",  "optc_cholesky",
                                                 "optc_solve",        "optc_polar", "optc_qr"};
    return calls[name];
}

CORE optc_status function_form(FunctionName name, const optc_function *x, bool packed,
                               FunctionForm *f)
{
    optc_status s = OPTC_OK;
    switch (name) {
    case FUNCTION_MATRIX_POWER:
        s = power_spec(x, packed, f);
        square_slots(x, f);
        return s;
    case FUNCTION_EIGH:
        eigen_spec(f);
        eigen_slots(x, f);
        return s;
    case FUNCTION_CHOLESKY:
        cholesky_spec(f);
        square_slots(x, f);
        return s;
    case FUNCTION_SOLVE: return solve_form(x, f);
    case FUNCTION_POLAR: return polar_form(x, f);
    default: return qr_form(x, f);
    }
}

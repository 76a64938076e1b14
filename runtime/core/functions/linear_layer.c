/* Norms of per-sample gradients, their clipped sum, and K-FAC's factors, from the two sides of a
 * linear layer.
 *
 * The gradient of a sample is G = out.T act. Its squared norm is the sum of the products of the
 * entries of act act.T and out out.T, which are rows x rows (the ghost norm), so G is never formed.
 * The steps are functions of small specs (function.h); the sum and the factors are products
 * (multiply.h). */
#include "runtime/core/functions/function.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call after the caller's struct was read. act, out: all rows of a side as one matrix. type: of
 * the caller's arrays. Products and their results have the type `product`. That is the caller's
 * type, unless it has no infinity: products would end at its largest value unnoticed, so product is
 * then the type that functions compute in.
 *
 * In the memory of `scratch`: gram, act act.T of the samples of a part; wide, a copy of an operand
 * in the type `product`; scaled, out times the weights of samples; and results that are stored when
 * both exist: result[i] has their address and type there, to[i] the caller's matrix, whose address
 * is NULL if it is not wanted. */
typedef struct Linear {
    const char *call;
    optc_linear x;
    Type type, product;
    MatrixBatch act, out, to[2], result[2];
    char *gram, *scaled, *wide;
    int64_t part, group;
    FunctionEntry *scratch;
    bool capturing;
} Linear;

/* ---- the caller's struct ---- */
static MatrixBatch row_major(const char *label, const void *at, Type type, int64_t rows,
                         int64_t cols)
{
    return operand_of(label, at, type, rows, cols, cols, rows * cols);
}

/* Reads the struct, all but the results. */
static optc_status read_linear(optc_engine *e, const char *call, const optc_linear *from,
                               size_t size, Linear *l)
{
    char sized[64];
    snprintf(sized, sizeof sized, "%s_sized", call);
    const StructVersion as = STRUCT_VERSION(sized, optc_linear, call, stream);
    optc_linear *x = &l->x;
    int64_t all;
    static int64_t groups;
    memset(l, 0, sizeof *l);
    l->call = call;
    l->group = __atomic_add_fetch(&groups, 1, __ATOMIC_RELAXED);
    optc_status s = matrix_read(e, &as, "the layer", x, from, size);
    if (s != OPTC_OK)
        return s;
    if (x->batch < 1 || x->rows < 0 || x->in < 1 || x->outs < 1 || x->workspace < 0)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: batch = %lld, rows = %lld, in = %lld, outs = %lld, workspace = %lld; "
                    "batch, in and outs must be 1 or more, rows and workspace 0 or more",
                    call, (long long)x->batch, (long long)x->rows, (long long)x->in,
                    (long long)x->outs, (long long)x->workspace);
    x->rows = x->rows ? x->rows : 1;
    if (__builtin_mul_overflow(x->batch, x->rows, &all) ||
        all > INT64_MAX / 64 / (x->in > x->outs ? x->in : x->outs) || x->rows > INT32_MAX)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %lld samples of %lld rows of %lld and %lld values are larger than memory "
                    "can be",
                    call, (long long)x->batch, (long long)x->rows, (long long)x->in,
                    (long long)x->outs);
    s = matrix_type(call, x->type, &l->type);
    l->product = s == OPTC_OK && number_type[l->type].saturates ? T_F32 : l->type;
    l->act = row_major("act", x->act, l->type, all, x->in);
    l->out = row_major("out", x->out, l->type, all, x->outs);
    return s;
}

/* Checks the arrays of a call. l->to has the results; need: the one that must not be NULL */
static optc_status check_arrays(optc_engine *e, Linear *l, int need)
{
    MatrixBatch *all[4] = {&l->act, &l->out};
    int n = 2;
    for (int i = 0; i < 2; i++) {
        l->to[i].result = true;
        if (l->to[i].at || i == need)
            all[n++] = &l->to[i];
    }
    return operands_check(e, l->call, all, n, 1, false);
}

/* ---- memory ---- */
static FunctionForm form_of(const Linear *l, int64_t batch, int64_t rows, int64_t cols)
{
    FunctionForm f;
    memset(&f, 0, sizeof f);
    f.call = l->call, f.why = "", f.type = l->type, f.compute = number_type[l->type].compute;
    f.shape[0] = f.batch = batch, f.shape[1] = rows, f.shape[2] = cols;
    f.unchecked = l->x.unchecked != 0, f.stream = l->x.stream, f.group = l->group;
    return f;
}

static int64_t rounded(int64_t values, Type t)
{
    return count_up(dom_times(values, number_type[t].bytes), 256) * 256;
}

/* Takes memory for: two marks per sample, act act.T of a part, out times weights, the results, and
 * a wide operand. As many samples are a part as the workspace holds the squares of; their number
 * changes no norm. gram, scaled: whether the call has them */
static optc_status take_linear_memory(optc_engine *e, Linear *l, bool gram, bool scaled)
{
    const optc_linear *x = &l->x;
    const Type compute = number_type[l->type].compute;
    int64_t limit = x->workspace ? x->workspace : e->workspace,
            square = dom_times(x->rows, x->rows),
            fit = limit / dom_times(square, number_type[compute].bytes);
    l->part = fit < 1 ? 1 : fit < x->batch ? fit : x->batch;
    int64_t at[6] = {rounded(2 * x->batch, T_F32),
                     gram ? rounded(dom_times(square, l->part), compute) : 0,
                     scaled ? rounded(l->out.rows * x->outs, l->product) : 0};
    for (int i = 0; i < 2; i++)
        if (l->to[i].at || gram)
            at[3 + i] = rounded(dom_times(l->to[i].rows, l->to[i].cols), l->result[i].type);
    if (l->product != l->type)
        at[5] = rounded(l->act.rows * (x->in > x->outs ? x->in : x->outs), l->product);
    FunctionForm f = form_of(l, x->batch, x->rows, 1);
    for (int i = 0; i < 6; i++)
        f.scratch += at[i];
    optc_status s = function_begin(e, &f, &l->scratch, &l->capturing);
    if (s != OPTC_OK)
        return s;
    l->gram = l->scratch->memory + at[0], l->scaled = l->gram + at[1];
    l->result[0].at = l->scaled + at[2], l->result[1].at = l->result[0].at + at[3];
    l->wide = l->result[1].at + at[4];
    return OPTC_OK;
}

/* ---- steps ---- */
/* The norm of a sample from act act.T (L) and its rows of `out` (p); with clip, these rows times
 * its weight. A norm of 0 has the weight 1. */
CORE void linear_spec(LinearStep step, FunctionForm *f)
{
    static const char norm[] = "s = sqrt(max(0, slice.sum(gram(p) * L)))";
    char body[160];
    snprintf(body, sizeof body, "%s w = where(gt(s, clip), clip / s, 1) p = w * p", norm);
    if (step == LINEAR_GRAM)
        function_spec(f, "linear", "state = { K = zeros \"rows\" },", "K = gram(p)");
    else if (step == LINEAR_NORM)
        function_spec(f, "linear", "inputs = { L = \"rows\" }, state = { s = zeros \"slice\" },",
                      norm);
    else
        function_spec(f, "linear",
                      "hyper = { clip = 1 }, inputs = { L = \"rows\" }, "
                      "state = { s = zeros \"slice\", w = zeros \"row\" },",
                      body);
}

/* Rows of n samples of a side, from sample `first` on. */
static MatrixBatch samples_of(const Linear *l, const MatrixBatch *side, const char *name,
                              int64_t first)
{
    MatrixBatch x = row_major(side->label, operand_at(side, 0, first * l->x.rows, 0), side->type,
                          l->x.rows, side->cols);
    x.name = name, x.flags = COPY_FINITE;
    return x;
}

/* Norms of n samples, and with clip their scaled rows of `out`. */
static optc_status sample_norms(optc_engine *e, const Linear *l, bool clip, int64_t first,
                                int64_t n)
{
    const optc_linear *x = &l->x;
    FunctionForm f = form_of(l, n, x->rows, x->in), g = form_of(l, n, x->rows, x->outs);
    MatrixBatch scaled = row_major("out", l->scaled, l->product, l->out.rows, x->outs);
    f.first = g.first = first, f.of = g.of = x->batch;
    linear_spec(LINEAR_GRAM, &f);
    f.in[0] = samples_of(l, &l->act, "p", first);
    f.out[0] = row_major("act", l->gram, f.compute, x->rows, x->rows), f.out[0].name = "K";
    f.nin = f.nout = 1;
    linear_spec(clip ? LINEAR_CLIP : LINEAR_NORM, &g);
    g.why = "its gradient is too large for the type";
    g.in[0] = samples_of(l, &l->out, "p", first);
    g.in[1] = f.out[0], g.in[1].label = "out", g.in[1].name = "L";
    g.out[0] = row_major("norm", operand_at(&l->result[0], 0, 0, first), T_F64, 1, 1);
    g.out[0].name = "s";
    g.out[1] = samples_of(l, &scaled, "p", first), g.out[1].flags = 0;
    g.nin = 2, g.nout = clip ? 2 : 1;
    if (clip)
        g.hyper[g.nhyper].name = "clip", g.hyper[g.nhyper++].value = x->clip;
    optc_status s = function_run(e, &f);
    return s == OPTC_OK ? function_run(e, &g) : s;
}

/* Copies a matrix of the caller's into memory of type `product`. */
static optc_status copy_to_product(optc_engine *e, const Linear *l, const MatrixBatch *from,
                                   char *to)
{
    FunctionForm f = form_of(l, 1, 1, 1);
    MatrixBatch raw = *from;
    raw.at = to;
    return l->product != l->type
               ? function_copy(e, &f, from, 0, to, NULL)
               : function_copy(e, &f, &raw, COPY_STORE | COPY_RAW, from->at, NULL);
}

/* Computes result `i`, the product a.T b, or the Gram matrix a.T a if b is NULL, and refuses it if
 * it is not finite in the caller's type. Sides of the layer are first copied if they are not of
 * type `product`. */
static optc_status make_result(optc_engine *e, const Linear *l, int i, const MatrixBatch *a,
                               const MatrixBatch *b, double scale, double add)
{
    const MatrixBatch *to = &l->to[i], *side = b ? b : a;
    const ProductNames names = {l->call, a->label, side->label, "", to->label};
    FunctionForm f = form_of(l, 1, 1, 1);
    MatrixBatch made = row_major(to->label, l->result[i].at, l->type, to->rows, to->cols);
    optc_product p;
    memset(&p, 0, sizeof p);
    p.a = a->at, p.b = b ? b->at : NULL, p.c = made.at, p.type = (optc_type)(l->product + 1);
    p.m = a->cols, p.n = side->cols, p.k = a->rows, p.turn_a = 1, p.scale = scale, p.add = add;
    p.workspace = b ? 0 : l->x.workspace, p.stream = l->x.stream;
    optc_status s = add != 0 ? copy_to_product(e, l, to, made.at) : OPTC_OK;
    if (s == OPTC_OK && l->product != l->type) {
        s = copy_to_product(e, l, side, l->wide);
        *(b ? &p.b : &p.a) = l->wide;
    }
    if (s == OPTC_OK)
        s = multiply_named(e, &p, &names);
    if (s != OPTC_OK || l->x.unchecked)
        return s;
    s = function_look(e, &f, &made, l->product != l->type ? COPY_FITS : COPY_LOOK | COPY_FINITE,
                      l->scratch);
    return s == OPTC_ERROR_RANGE ? fail(s, "%s: a value of %s exceeds the range of %s", l->call,
                                        to->label, number_type[l->type].name)
                                 : s;
}

/* Both results or none: they are stored by one launch. */
static optc_status store_results(optc_engine *e, Linear *l)
{
    FunctionForm f = form_of(l, 1, 1, 1);
    char *const from[2] = {l->result[0].at, l->result[1].at};
    for (int i = 0; i < 2; i++)
        l->to[i].flags = l->to[i].type == l->result[i].type ? COPY_RAW : 0;
    return function_store(e, &f, l->to, from, 2);
}

/* ---- the functions ---- */
static optc_status run_norms(optc_engine *e, Linear *l, bool sum)
{
    const optc_linear *x = &l->x;
    optc_status s = take_linear_memory(e, l, true, sum);
    const MatrixBatch scaled = row_major("out", l->scaled, l->product, l->out.rows, x->outs);
    for (int64_t first = 0; first < x->batch && s == OPTC_OK; first += l->part)
        s = sample_norms(e, l, sum, first,
                         x->batch - first < l->part ? x->batch - first : l->part);
    if (s == OPTC_OK && sum)
        s = make_result(e, l, 1, &scaled, &l->act, 1, 0);
    return s == OPTC_OK ? store_results(e, l) : s;
}

/* Old factors are operands too, unless decay is 0. */
static optc_status run_factors(optc_engine *e, Linear *l)
{
    const optc_linear *x = &l->x;
    const MatrixBatch *const side[2] = {&l->act, &l->out};
    optc_status s = take_linear_memory(e, l, false, false);
    for (int i = 0; i < 4 && s == OPTC_OK && !x->unchecked; i++) {
        FunctionForm f = form_of(l, i < 2 ? x->batch : 1, x->rows, 1);
        MatrixBatch look = i < 2 ? samples_of(l, side[i], NULL, 0) : l->to[i - 2];
        if (l->to[i % 2].at && (i < 2 || x->decay != 0))
            s = function_look(e, &f, &look, COPY_LOOK | COPY_FINITE, l->scratch);
    }
    for (int i = 0; i < 2 && s == OPTC_OK; i++)
        if (l->to[i].at)
            s = make_result(e, l, i, side[i], NULL,
                            (1 - x->decay) / (double)(i ? x->batch : l->act.rows), x->decay);
    return s == OPTC_OK ? store_results(e, l) : s;
}

/* Checks the arrays, runs the call, and gives its memory back. */
static optc_status run_linear(optc_engine *e, Linear *l, int need, bool factors)
{
    optc_status s = check_arrays(e, l, need);
    s = s == OPTC_OK ? matrix_enter(e) : s;
    if (s != OPTC_OK)
        return s;
    s = factors ? run_factors(e, l) : run_norms(e, l, need == 1);
    if (l->scratch)
        function_put(e, l->scratch, l->x.stream, l->capturing);
    return matrix_leave(e, s);
}

/* The norms are computed where they are stored from, also if the caller does not want them. */
static void set_norm(Linear *l)
{
    l->to[0] = row_major("norm", l->x.norm, T_F64, 1, l->x.batch);
    l->result[0].type = T_F64;
}

optc_status optc_sample_norms_sized(optc_engine *e, const optc_linear *from, size_t size)
{
    Linear l;
    optc_status s = read_linear(e, "optc_sample_norms", from, size, &l);
    set_norm(&l);
    return s == OPTC_OK ? run_linear(e, &l, 0, false) : s;
}

optc_status optc_clipped_sum_sized(optc_engine *e, const optc_linear *from, size_t size)
{
    Linear l;
    optc_status s = read_linear(e, "optc_clipped_sum", from, size, &l);
    const optc_linear *x = &l.x;
    if (s == OPTC_OK && !(x->clip > 0 && isfinite(x->clip)))
        s = fail(OPTC_ERROR_ARGUMENT, "%s: clip is %g; it must be a finite number above 0", l.call,
                 x->clip);
    set_norm(&l);
    l.to[1] = row_major("sum", x->sum, l.type, x->outs, x->in);
    l.result[1].type = l.product;
    return s == OPTC_OK ? run_linear(e, &l, 1, false) : s;
}

optc_status optc_kfac_factors_sized(optc_engine *e, const optc_linear *from, size_t size)
{
    Linear l;
    optc_status s = read_linear(e, "optc_kfac_factors", from, size, &l);
    const optc_linear *x = &l.x;
    if (s == OPTC_OK && !(x->decay >= 0 && x->decay < 1))
        s = fail(OPTC_ERROR_ARGUMENT, "%s: decay is %g; it must be from 0 to less than 1", l.call,
                 x->decay);
    if (s == OPTC_OK && !x->a && !x->g)
        s = fail(OPTC_ERROR_ARGUMENT, "%s: a and g are NULL", l.call);
    l.to[0] = row_major("a", x->a, l.type, x->in, x->in);
    l.to[1] = row_major("g", x->g, l.type, x->outs, x->outs);
    l.result[0].type = l.result[1].type = l.product;
    return s == OPTC_OK ? run_linear(e, &l, -1, true) : s;
}

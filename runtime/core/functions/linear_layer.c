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

/* A call after the caller's struct was read. In the engine's memory: gram, act act.T and out out.T
 * of the samples of a part, and weight, a number per row, in the type that functions compute in;
 * norm in f64; scaled, out times the weights, and made, results that are stored when all of them
 * exist, in the type `product`. That is the caller's type. If it has no infinity, products would
 * end at its largest value unnoticed: product is then the type that functions compute in, and wide
 * has a copy of an operand in it. group: of the call's entries (function.h). */
typedef struct Linear {
    const char *call;
    optc_linear x;
    Type type, compute, product;
    char *gram[2], *weight, *scaled, *norm, *wide, *made[2];
    int64_t part, group;
    FunctionEntry *scratch;
    bool capturing;
} Linear;

/* ---- the caller's struct ---- */
static optc_status check_array(optc_engine *e, const Linear *l, const char *name, const void *at,
                               int64_t rows, int64_t cols, int64_t size)
{
    Operand x = operand_of(at, rows, cols, 0, 0, false);
    optc_status s = operand_check(l->call, name, &x, 1, size, false);
    return s == OPTC_OK ? operand_here(e, l->call, name, &x, 1, size) : s;
}

static optc_status check_apart_of(const Linear *l, const char *name, const void *at, int64_t bytes,
                                  const char *other, const void *from, int64_t more)
{
    uintptr_t a = (uintptr_t)at, b = (uintptr_t)from;
    return a < b + (uintptr_t)more && b < a + (uintptr_t)bytes
               ? fail(OPTC_ERROR_ARGUMENT, "%s: %s overlaps %s in memory; give it its own memory",
                      l->call, name, other)
               : OPTC_OK;
}

static optc_status check_result(optc_engine *e, const Linear *l, const char *name, const void *at,
                                int64_t rows, int64_t cols, int64_t size)
{
    const optc_linear *x = &l->x;
    int64_t lines = x->batch * x->rows * number_type[l->type].bytes;
    optc_status s = check_array(e, l, name, at, rows, cols, size);
    if (s == OPTC_OK)
        s = check_apart_of(l, name, at, rows * cols * size, "act", x->act, lines * x->in);
    return s == OPTC_OK
               ? check_apart_of(l, name, at, rows * cols * size, "out", x->out, lines * x->outs)
               : s;
}

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
    if (!e || !from)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call, !e ? "the engine" : "the layer");
    optc_status s = struct_read(&as, x, from, size);
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
    l->compute = s == OPTC_OK ? number_type[l->type].compute : T_F32;
    l->product = s == OPTC_OK && number_type[l->type].saturates ? l->compute : l->type;
    if (s == OPTC_OK)
        s = check_array(e, l, "act", x->act, all, x->in, number_type[l->type].bytes);
    return s == OPTC_OK ? check_array(e, l, "out", x->out, all, x->outs, number_type[l->type].bytes)
                        : s;
}

/* ---- memory ---- */
static int64_t rounded(int64_t values, int64_t size)
{
    return count_up(dom_times(values, size), 256) * 256;
}

static FunctionForm form_of(const Linear *l, int64_t batch, int64_t rows, int64_t cols)
{
    FunctionForm f;
    memset(&f, 0, sizeof f);
    f.call = l->call, f.why = "", f.type = l->type, f.compute = l->compute;
    f.shape[0] = f.batch = batch, f.shape[1] = rows, f.shape[2] = cols;
    f.unchecked = l->x.unchecked != 0, f.stream = l->x.stream, f.group = l->group;
    return f;
}

static optc_status take_linear_scratch(optc_engine *e, Linear *l, int64_t bytes)
{
    FunctionForm f = form_of(l, l->x.batch, l->x.rows, 1);
    f.scratch = bytes;
    return function_memory(e, &f, &l->scratch, &l->capturing);
}

static void give_scratch(optc_engine *e, const Linear *l)
{
    if (l->scratch)
        function_put(e, l->scratch, l->x.stream, l->capturing);
}

/* As many samples at a time as the workspace holds the squares of; the number changes no norm. */
static optc_status take_linear_memory(optc_engine *e, Linear *l, bool sum)
{
    const optc_linear *x = &l->x;
    int64_t size = number_type[l->compute].bytes,
            limit = x->workspace ? x->workspace : e->workspace;
    int64_t square = dom_times(x->rows, x->rows), each = dom_times(2 * square + x->rows, size);
    int64_t each_product = number_type[l->product].bytes,
            scaled = sum ? rounded(x->batch * x->rows * x->outs, each_product) : 0,
            wide = sum && l->product != l->type ? rounded(x->batch * x->rows * x->in, each_product)
                                                : 0,
            made = sum ? rounded(dom_times(x->outs, x->in), each_product) : 0;
    l->part = each > limit ? 1 : limit / each < x->batch ? limit / each : x->batch;
    int64_t gram = rounded(dom_times(square, l->part), size),
            lines = rounded(x->batch * x->rows, size), numbers = rounded(x->batch, sizeof(double));
    optc_status s = take_linear_scratch(e, l, 2 * gram + lines + numbers + scaled + wide + made);
    if (s != OPTC_OK)
        return s;
    l->gram[0] = l->scratch->memory, l->gram[1] = l->gram[0] + gram;
    l->weight = l->gram[1] + gram, l->norm = l->weight + lines, l->scaled = l->norm + numbers;
    l->wide = wide ? l->scaled + scaled : NULL;
    l->made[0] = sum ? l->scaled + scaled + wide : NULL;
    return OPTC_OK;
}

/* ---- steps ---- */
CORE void linear_spec(LinearStep step, FunctionForm *f)
{
    if (step == LINEAR_GRAM)
        function_spec(f, "linear", "state = { K = zeros \"rows\" },", "K = gram(p)");
    else if (step == LINEAR_WEIGHTS)
        function_spec(f, "linear", "hyper = { clip = 1 }, inputs = { K = \"rows\", L = \"rows\" }, "
                                   "state = { s = zeros \"slice\", w = zeros \"row\" },",
                      "s = sqrt(max(0, slice.sum(K * L))) w = where(gt(s, clip), clip / s, 1)");
    else
        function_spec(f, "linear", "inputs = { w = \"row\" },", "p = w * p");
}

static FunctionSlot dense_slot(const char *name, const char *label, char *at, int64_t rows,
                               int64_t cols, bool computed)
{
    FunctionSlot s = {name, label, at, rows, cols, cols, rows * cols, 0, computed, false};
    return s;
}

/* Products of the rows of one side, for n samples from `first` on. */
static optc_status side_grams(optc_engine *e, const Linear *l, int side, int64_t first, int64_t n)
{
    const optc_linear *x = &l->x;
    int64_t wide = side ? x->outs : x->in, at = first * x->rows * wide * number_type[l->type].bytes;
    FunctionForm f = form_of(l, n, x->rows, wide);
    f.first = first, f.of = x->batch;
    linear_spec(LINEAR_GRAM, &f);
    f.in[0] = dense_slot("p", side ? "out" : "act",
                         (char *)(uintptr_t)(side ? x->out : x->act) + at, x->rows, wide, false);
    f.in[0].flags = COPY_FINITE;
    f.out[0] = dense_slot("K", "the products of its rows", l->gram[side], x->rows, x->rows, true);
    f.nin = f.nout = 1;
    return function_run(e, &f);
}

/* Norms and weights from the products of rows. A norm of 0 has the weight 1. */
static optc_status weights(optc_engine *e, const Linear *l, int64_t first, int64_t n)
{
    const optc_linear *x = &l->x;
    int64_t size = number_type[l->compute].bytes;
    FunctionForm f = form_of(l, n, x->rows, 1);
    f.first = first, f.of = x->batch;
    linear_spec(LINEAR_WEIGHTS, &f);
    f.in[0] = dense_slot("K", "act", l->gram[0], x->rows, x->rows, true);
    f.in[1] = dense_slot("L", "out", l->gram[1], x->rows, x->rows, true);
    f.out[0] = dense_slot("s", "norm", l->norm + first * (int64_t)sizeof(double), 1, 1, true);
    f.out[0].wide = true;
    f.out[1] = dense_slot("w", "weight", l->weight + first * x->rows * size, 1, x->rows, true);
    f.nin = f.nout = 2;
    f.hyper[f.nhyper].name = "clip", f.hyper[f.nhyper++].value = x->clip;
    f.why = "its gradient is too large for the type";
    return function_run(e, &f);
}

static optc_status norms(optc_engine *e, const Linear *l)
{
    optc_status s = OPTC_OK;
    for (int64_t first = 0; first < l->x.batch && s == OPTC_OK; first += l->part) {
        int64_t n = l->x.batch - first < l->part ? l->x.batch - first : l->part;
        s = side_grams(e, l, 0, first, n);
        if (s == OPTC_OK)
            s = side_grams(e, l, 1, first, n);
        if (s == OPTC_OK)
            s = weights(e, l, first, n);
    }
    return s;
}

static optc_status scale_out(optc_engine *e, const Linear *l)
{
    const optc_linear *x = &l->x;
    FunctionForm f = form_of(l, x->batch, x->rows, x->outs);
    linear_spec(LINEAR_SCALE, &f);
    f.in[0] = dense_slot("p", "out", (char *)(uintptr_t)x->out, x->rows, x->outs, false);
    f.in[1] = dense_slot("w", "weight", l->weight, 1, x->rows, true);
    f.out[0] = dense_slot("p", "out", l->scaled, x->rows, x->outs, l->product != l->type);
    f.nin = 2, f.nout = 1;
    return function_run(e, &f);
}

/* Stores two results of the call, whose arrays have no gaps: both or none. */
static optc_status store_results(optc_engine *e, const Linear *l, const FunctionSlot s[2],
                                 char *const made[2])
{
    FunctionForm f = form_of(l, 1, 1, 1);
    if (!e->gpu)
        return function_store(e, &f, s, made, 2);
    gpu_enter(e->gpu);
    return gpu_leave(e->gpu, function_store(e, &f, s, made, 2));
}

/* Converts rows x cols of the caller's type to the type that functions compute in. */
static optc_status widen_matrix(optc_engine *e, const Linear *l, const char *name, const void *from,
                                int64_t rows, int64_t cols, char *to)
{
    FunctionForm f = form_of(l, 1, 1, 1);
    FunctionSlot s = dense_slot(NULL, name, (char *)(uintptr_t)from, rows, cols, false);
    if (!e->gpu)
        return function_copy(e, &f, &s, 0, to, NULL);
    gpu_enter(e->gpu);
    return gpu_leave(e->gpu, function_copy(e, &f, &s, 0, to, NULL));
}

/* *out: one side of the layer in the type of products. */
static optc_status product_side(optc_engine *e, const Linear *l, int side, const void **out)
{
    const optc_linear *x = &l->x;
    const void *from = side ? x->out : x->act;
    *out = l->product == l->type ? from : l->wide;
    return *out == from ? OPTC_OK
                        : widen_matrix(e, l, side ? "out" : "act", from, x->batch * x->rows,
                                       side ? x->outs : x->in, l->wide);
}

/* Refuses a result that is not finite in its type. made: in the engine's memory, whose start holds
 * the marks. */
static optc_status check_made(optc_engine *e, const Linear *l, const char *name, char *made,
                              int64_t rows, int64_t cols)
{
    FunctionForm f = form_of(l, 1, 1, 1);
    FunctionSlot s = dense_slot(NULL, name, made, rows, cols, false);
    optc_status st = l->x.unchecked              ? OPTC_OK
                     : l->product == l->type ? function_finite(e, &f, &s, l->scratch)
                                             : function_fits(e, &f, &s, l->scratch);
    return st == OPTC_ERROR_RANGE ? fail(st, "%s: a value of %s exceeds the range of %s", l->call,
                                         name, number_type[l->type].name)
                                  : st;
}

static FunctionSlot result_slot(const Linear *l, const char *label, void *at, int64_t rows,
                                int64_t cols, bool wide)
{
    FunctionSlot s = dense_slot(NULL, label, (char *)at, rows, cols, false);
    s.flags = wide || l->product != l->type ? 0 : COPY_RAW;
    s.wide = wide;
    return s;
}

static optc_status store_sum(optc_engine *e, const Linear *l)
{
    const optc_linear *x = &l->x;
    const FunctionSlot s[2] = {
        result_slot(l, "sum", l->made[0] ? x->sum : NULL, x->outs, x->in, false),
        result_slot(l, "norm", x->norm, 1, x->batch, true)};
    char *const made[2] = {l->made[0], l->norm};
    return store_results(e, l, s, made);
}

/* ---- the functions ---- */
static optc_status run_norms(optc_engine *e, Linear *l, bool sum)
{
    const optc_linear *x = &l->x;
    optc_status s = x->norm || !sum
                        ? check_result(e, l, "norm", x->norm, 1, x->batch, sizeof(double))
                        : OPTC_OK;
    if (s == OPTC_OK && sum)
        s = check_result(e, l, "sum", x->sum, x->outs, x->in, number_type[l->type].bytes);
    if (s == OPTC_OK && sum && x->norm)
        s = check_apart_of(l, "sum", x->sum, x->outs * x->in * number_type[l->type].bytes, "norm",
                           x->norm, x->batch * (int64_t)sizeof(double));
    if (s == OPTC_OK && sum && !(x->clip > 0 && isfinite(x->clip)))
        s = fail(OPTC_ERROR_ARGUMENT, "%s: clip is %g; it must be a finite number above 0", l->call,
                 x->clip);
    if (s == OPTC_OK)
        s = take_linear_memory(e, l, sum);
    if (s == OPTC_OK)
        s = norms(e, l);
    if (s == OPTC_OK && sum)
        s = scale_out(e, l);
    if (s == OPTC_OK && sum) {
        static const ProductNames names = {"optc_clipped_sum", "out", "act", "", "sum"};
        optc_product p;
        memset(&p, 0, sizeof p);
        p.a = l->scaled, p.c = l->made[0], p.type = (optc_type)(l->product + 1), p.m = x->outs,
        p.n = x->in;
        p.k = x->batch * x->rows, p.turn_a = 1, p.stream = x->stream;
        s = product_side(e, l, 0, &p.b);
        s = s == OPTC_OK ? multiply_named(e, &p, &names) : s;
        s = s == OPTC_OK ? check_made(e, l, "sum", l->made[0], x->outs, x->in) : s;
    }
    if (s == OPTC_OK)
        s = store_sum(e, l);
    give_scratch(e, l);
    return s;
}

optc_status optc_sample_norms_sized(optc_engine *e, const optc_linear *from, size_t size)
{
    Linear l;
    optc_status s = read_linear(e, "optc_sample_norms", from, size, &l);
    l.x.clip = 1;
    return s == OPTC_OK ? run_norms(e, &l, false) : s;
}

optc_status optc_clipped_sum_sized(optc_engine *e, const optc_linear *from, size_t size)
{
    Linear l;
    optc_status s = read_linear(e, "optc_clipped_sum", from, size, &l);
    return s == OPTC_OK ? run_norms(e, &l, true) : s;
}

/* ---- K-FAC ---- */
static int64_t factor_side(const optc_linear *x, int side) { return side ? x->outs : x->in; }
static char *factor_at(const optc_linear *x, int side) { return (char *)(side ? x->g : x->a); }

static optc_status take_factors(optc_engine *e, Linear *l)
{
    const optc_linear *x = &l->x;
    int64_t marks = rounded(2 * x->batch, sizeof(unsigned)), size = number_type[l->product].bytes,
            bytes[2];
    for (int i = 0; i < 2; i++)
        bytes[i] =
            factor_at(x, i) ? rounded(dom_times(factor_side(x, i), factor_side(x, i)), size) : 0;
    int64_t wide = l->product == l->type
                       ? 0
                       : rounded(x->batch * x->rows * (x->in > x->outs ? x->in : x->outs), size);
    optc_status s = take_linear_scratch(e, l, marks + bytes[0] + bytes[1] + wide);
    l->made[0] = s == OPTC_OK ? l->scratch->memory + marks : NULL;
    l->made[1] = s == OPTC_OK ? l->made[0] + bytes[0] : NULL;
    l->wide = s == OPTC_OK ? l->made[1] + bytes[1] : NULL;
    return s;
}

/* Old factors are operands too, unless decay is 0. */
static optc_status check_finite(optc_engine *e, Linear *l)
{
    const optc_linear *x = &l->x;
    FunctionForm f = form_of(l, x->batch, x->rows, 1);
    const FunctionSlot slots[] = {
        dense_slot(NULL, "act", (char *)(uintptr_t)(x->a ? x->act : NULL), x->rows, x->in, false),
        dense_slot(NULL, "out", (char *)(uintptr_t)(x->g ? x->out : NULL), x->rows, x->outs, false),
        dense_slot(NULL, "a", x->decay != 0 ? (char *)x->a : NULL, x->in, x->in, false),
        dense_slot(NULL, "g", x->decay != 0 ? (char *)x->g : NULL, x->outs, x->outs, false)};
    optc_status s = OPTC_OK;
    for (int i = 0; i < 4 && s == OPTC_OK; i++) {
        f.batch = i < 2 ? x->batch : 1;
        if (slots[i].at)
            s = function_finite(e, &f, &slots[i], l->scratch);
    }
    return s;
}

static optc_status copy_factor(optc_engine *e, const Linear *l, int side)
{
    int64_t n = factor_side(&l->x, side);
    size_t bytes = (size_t)(n * n * number_type[l->type].bytes);
    if (l->product != l->type)
        return widen_matrix(e, l, side ? "g" : "a", factor_at(&l->x, side), n, n, l->made[side]);
    if (!e->gpu) {
        memcpy(l->made[side], factor_at(&l->x, side), bytes);
        return OPTC_OK;
    }
    gpu_enter(e->gpu);
    int rc = e->gpu->d->cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)l->made[side],
                                             (CUdeviceptr)(uintptr_t)factor_at(&l->x, side), bytes,
                                             (CUstream)l->x.stream);
    return gpu_leave(e->gpu, rc ? gpu_error(e->gpu, "cuMemcpyDtoDAsync", rc, l->call) : OPTC_OK);
}

static optc_status make_factor(optc_engine *e, const Linear *l, int side)
{
    const optc_linear *x = &l->x;
    const ProductNames names = {l->call, side ? "out" : "act", "", "", side ? "g" : "a"};
    double per = (double)x->batch * (side ? 1.0 : (double)x->rows);
    optc_product p;
    memset(&p, 0, sizeof p);
    p.c = l->made[side], p.type = (optc_type)(l->product + 1), p.m = factor_side(x, side);
    p.k = x->batch * x->rows, p.turn_a = 1, p.scale = (1 - x->decay) / per, p.add = x->decay;
    p.workspace = x->workspace, p.stream = x->stream;
    optc_status s = product_side(e, l, side, &p.a);
    if (s == OPTC_OK && x->decay != 0)
        s = copy_factor(e, l, side);
    return s == OPTC_OK ? multiply_named(e, &p, &names) : s;
}

/* Both factors are computed in the engine's memory, then stored: an error changes neither. */
static optc_status run_factors(optc_engine *e, Linear *l)
{
    const optc_linear *x = &l->x;
    const FunctionSlot to[2] = {result_slot(l, "a", x->a, x->in, x->in, false),
                                result_slot(l, "g", x->g, x->outs, x->outs, false)};
    optc_status s = take_factors(e, l);
    if (s == OPTC_OK && !x->unchecked)
        s = check_finite(e, l);
    for (int side = 0; side < 2 && s == OPTC_OK; side++)
        if (factor_at(x, side)) {
            s = make_factor(e, l, side);
            s = s == OPTC_OK
                    ? check_made(e, l, to[side].label, l->made[side], to[side].rows, to[side].cols)
                    : s;
        }
    if (s == OPTC_OK)
        s = store_results(e, l, to, l->made);
    give_scratch(e, l);
    return s;
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
    if (s == OPTC_OK && x->a)
        s = check_result(e, &l, "a", x->a, x->in, x->in, number_type[l.type].bytes);
    if (s == OPTC_OK && x->g)
        s = check_result(e, &l, "g", x->g, x->outs, x->outs, number_type[l.type].bytes);
    if (s == OPTC_OK && x->a && x->g)
        s = check_apart_of(&l, "g", x->g, x->outs * x->outs * number_type[l.type].bytes, "a", x->a,
                           x->in * x->in * number_type[l.type].bytes);
    return s == OPTC_OK ? run_factors(e, &l) : s;
}

/* The table of callees: what each checks, costs and runs on the CPU. Also the preparation of calls
 * when tensors are bound.
 *
 * On the CPU a call is cut into jobs that the threads take one after another. How a matrix is cut
 * must depend on its shape alone, so that results do not depend on the number of threads. */
#include "gen/abi/methods.h"
#include "runtime/core/matrix/cpu_product.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- products ---- */

/* ---- checks of the program ---- */
CORE optc_status bad_call(const Program *p, const ProgStage *s, const char *what)
{
    char label[200];
    stage_label(p, s, label, sizeof label);
    return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: %s", label, what);
}

static optc_status mm_check(const Program *p, const ProgStage *s)
{
    const ProgCall *c = s->call;
    const ProgArray *m = p->array;
    if (c->a < 0 || c->b < 0 || c->out < 0 || c->c < -1)
        return bad_call(p, s, "a product lacks an operand");
    MatrixAxes a = dom_matrix(m[c->a].dom, (c->flags & TRANS_A) != 0),
               b = dom_matrix(m[c->b].dom, (c->flags & TRANS_B) != 0);
    Dom out = dom_product(a.down, b.across);
    if (a.across != b.down || out == NDOM ||
        dom_matrix(m[c->out].dom, false).down != dom_matrix(out, false).down ||
        dom_matrix(m[c->out].dom, false).across != dom_matrix(out, false).across)
        return bad_call(p, s, "the operands of a product do not fit");
    if (c->c >= 0 && m[c->c].dom != m[c->out].dom)
        return bad_call(p, s, "the matrix that is added to a product does not have its shape");
    if ((c->flags & SYMMETRIC) && a.down != b.across)
        return bad_call(p, s, "a product that is not square cannot be symmetric");
    if (c->diagonal != 0 && !(c->flags & SYMMETRIC))
        return bad_call(p, s, "a product that is not symmetric has a diagonal");
    bool blocks =
        dom_of_block(m[c->a].dom) || dom_of_block(m[c->b].dom) || dom_of_block(m[c->out].dom);
    for (int i = 0; i < 3; i++) {
        Dom d = m[i == 0 ? c->a : i == 1 ? c->b : c->out].dom;
        if (blocks != ((c->flags & BLOCKED) != 0) || (blocks && d != ELEM && !dom_of_block(d)))
            return bad_call(p, s, "a product mixes blocks and whole matrices");
    }
    if (m[c->a].type != m[c->b].type || m[c->a].type != m[c->out].type ||
        (c->c >= 0 && m[c->c].type != m[c->out].type))
        return bad_call(p, s, "the operands of a product have different types");
    if (c->out == c->a || c->out == c->b)
        return bad_call(p, s, "a product would be written over its own operand");
    return OPTC_OK;
}

/* ---- products: cpu_product.c computes them ---- */
static MatrixProduct call_product(const Program *p, const ProgCall *c, const ProductShape *x)
{
    MatrixProduct y;
    memset(&y, 0, sizeof y);
    y.f64 = p->type[p->array[c->out].type].bytes == (int)sizeof(double);
    y.symmetric = (c->flags & SYMMETRIC) != 0;
    y.a.transposed = (c->flags & TRANS_A) != 0, y.b.transposed = (c->flags & TRANS_B) != 0;
    y.gram = c->a == c->b && y.a.transposed != y.b.transposed;
    y.m = x->m, y.n = x->n, y.k = x->k;
    y.a.ld = x->ld[0], y.b.ld = x->ld[1], y.ld_add = x->ld[2], y.ldc = x->ld[3];
    y.alpha = c->alpha, y.beta = c->c >= 0 ? c->beta : 0, y.diagonal = c->diagonal;
    return y;
}

static int64_t mm_jobs(const Program *p, const ProgCall *c, Shape s)
{
    ProductShape x = product_shape(p, c, s, s.cols);
    MatrixProduct y = call_product(p, c, &x);
    return x.slices * product_cut(&y).count;
}

/* Address of a slice's matrix in array `array`. */
static char *slice_address(const optc_binding *b, const Tensor *t, int array, int64_t slice)
{
    const Program *p = b->program;
    size_t size = (size_t)p->type[p->array[array].type].bytes;
    return (char *)t->mem[array] + (size_t)matrix_at(b, t, array, slice) * size;
}

static bool mm_run(const CpuJob *j)
{
    const optc_binding *b = j->b;
    const ProgCall *c = j->c;
    const Tensor *t = j->t;
    ProductShape x = product_shape(b->program, c, t->shape, row_stride(b, t));
    MatrixProduct y = call_product(b->program, c, &x);
    Panels cut = product_cut(&y);
    int64_t slice = j->job / cut.count;
    y.a.at = slice_address(b, t, c->a, slice);
    y.b.at = slice_address(b, t, c->b, slice);
    y.c = slice_address(b, t, c->out, slice);
    y.add = c->c >= 0 && c->c != c->out ? slice_address(b, t, c->c, slice) : NULL;
    product_panel(b->blas, &y, cut, j->job % cut.count);
    return true;
}

/* ---- the tables ---- */
enum {
    CALLEES_ON_CPU = 0
#define CPU_METHOD(callee, ...) | 1 << CALL_##callee
#include "gen/abi/methods.def"
};
#define CALLEE(ID, name, ...) \
    static_assert((CALLEES_ON_CPU >> CALL_##ID & 1) != 0, \
                  "gen/abi/methods.def: '" name "' has no row CPU_METHOD");
#include "gen/abi/callees.def"

static void call_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job,
                     int thread)
{
    const CpuJob j = {b, c, t, job, thread};
#define CPU_METHOD(ID, name, fits, run) \
    if (c->callee == CALL_##ID && (fits) && run(&j)) \
        return;
#include "gen/abi/methods.def"
    factor_failed(&j);
}

/* Rows come from callees.def; its column `cpu` is mm, factor, sort or take. */
#define mm_scratch NULL
#define take_scratch NULL
#define sort_flops order_flops
#define take_flops order_flops
#define sort_check order_check
#define take_check order_check
static const CalleeInfo callees[NCALLEE] = {
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, values, fits, flops, cpu, what, \
               measured) \
    {what, cpu##_flops, cpu##_check, cpu##_jobs, call_run, cpu##_scratch},
#include "gen/abi/callees.def"
};

CORE const CalleeInfo *callee_info(const ProgCall *c) { return &callees[c->callee]; }

CORE optc_status calls_check(const Program *p)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < p->nstage && s == OPTC_OK; i++)
        if (p->stage[i].kind == S_CALL)
            s = !p->stage[i].call || p->stage[i].call->callee < 0 ||
                        p->stage[i].call->callee >= NCALLEE
                    ? bad_call(p, &p->stage[i], "the call has no such callee")
                    : callee_info(p->stage[i].call)->check(p, &p->stage[i]);
    return s;
}

/* ---- the CPU ---- */
static optc_status check_sizes(const optc_binding *b, const ProgStage *s, int tensor)
{
    const Tensor *t = &b->tensor[tensor];
    ProductShape x = product_shape(b->program, s->call, t->shape, row_stride(b, t));
    char stage[200], label[96];
    int64_t most = x.k;
    for (int i = 0; i < 4; i++)
        most = x.ld[i] > most ? x.ld[i] : most;
    if (most <= INT_MAX)
        return OPTC_OK;
    stage_label(b->program, s, stage, sizeof stage);
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_bind: %s: %s is too large for %s, whose integers have 32 bits: a product of "
                "%lld x %lld and "
                "%lld x %lld; name a BLAS with 64-bit integers in OPTC_BLAS, or set OPTC_BLAS=none",
                stage, tensor_label(b, t->of, label), b->blas->about, (long long)x.m,
                (long long)x.k, (long long)x.k, (long long)x.n);
}

CORE Range call_range(const optc_binding *b, const ProgStage *s)
{
    Range all = {0, b->nheld}, views = {b->nheld, b->nall};
    return stage_of_blocks(s) ? views : all;
}

/* In units of an element pass: one element takes about as long as 32 operations of a product. */
static int64_t call_effort(const optc_binding *b, const ProgStage *s)
{
    double flops = 0;
    const Range r = call_range(b, s);
    for (int i = r.from; i < r.to; i++)
        if (b->tensor[i].variant == s->variant)
            flops += callee_info(s->call)->flops(b->program, s->call, b->tensor[i].shape);
    return flops < 1e15 ? (int64_t)(flops / 32) : (int64_t)1 << 45;
}

static bool has_factors(const Program *p)
{
    bool any = false;
    for (int i = 0; i < p->nstage; i++)
        any = any || stage_of_kind(&p->stage[i], CALLEE_FACTOR);
    return any;
}

CORE void cpu_calls_load(const optc_rule *r)
{
    Blas x;
    if (program_calls(r->program) && r->fn && blas_open(&x, "optc_compile") != OPTC_OK)
        message_clear();
}

CORE void cpu_call_path(const optc_rule *r, char *text, size_t n)
{
    Blas x;
    char warning[240];
    if (!program_calls(r->program) || !r->fn)
        return;
    (void)blas_open(&x, "optc_rule_path");
    blas_warning(&x, warning, sizeof warning);
    size_t at = strlen(text);
    const char *factors =
        x.lapack[0] ? "; factors: its LAPACK" : "; factors: our own, slower than a LAPACK";
    snprintf(text + at, n - at, "; products: %s%s%s%s", x.about,
             has_factors(r->program) ? factors : "", *warning ? "; warning: " : "", warning);
}

/* Bytes of scratch: each thread gets as much as the largest matrix of any call needs. */
CORE int64_t cpu_call_bytes(const optc_binding *b)
{
    const Program *p = b->program;
    int64_t most = 0;
    bool right = b->rule->fn && calls_check(p) == OPTC_OK;     /* cpu_calls reports the error */
    for (int i = 0; i < p->nstage && right; i++) {
        const ProgStage *s = &p->stage[i];
        const CalleeInfo *x = s->kind == S_CALL ? callee_info(s->call) : NULL;
        const Range r = call_range(b, s);
        for (int t = r.from; x && x->scratch && t < r.to; t++)
            if (b->tensor[t].variant == s->variant) {
                int64_t bytes = x->scratch(p, s->call, b->tensor[t].shape);
                most = bytes > most ? bytes : most;
            }
    }
    return dom_times(most, b->rule->engine->threads);
}

/* Nothing is said of kernels that the user chose. */
static void warn_kernels(optc_binding *b)
{
    char text[240];
    blas_warning(b->blas, text, sizeof text);
    if (*text && !*b->warning && !getenv("OPENBLAS_CORETYPE"))
        snprintf(b->warning, sizeof b->warning, "products by %.200s: %.240s", b->blas->about, text);
}

/* Prepares the calls of a binding: checks the program, opens a BLAS, and checks that it can take
 * all sizes. */
CORE optc_status cpu_calls(optc_binding *b)
{
    const Program *p = b->program;
    bool any = false;
    /* the reference evaluator computes its own products */
    if (!b->rule->fn)
        return OPTC_OK;
    optc_status s = calls_check(p);
    for (int i = 0; i < p->nstage && s == OPTC_OK; i++) {
        const ProgStage *st = p->stage[i].kind == S_CALL ? &p->stage[i] : NULL;
        int type = st ? p->array[st->call->out].type : T_F32;
        any = any || st;
        if (type != T_F32 && type != T_F64)
            s = bad_call(p, st, "on the CPU products are f32 or f64");
    }
    if (any && s == OPTC_OK)
        s = factor_stats_make(b);
    if (!any || s != OPTC_OK)
        return s;
    b->stats = TAKE(b, FactorStats, factor_stats_count(b));
    Blas *x = b->stats ? TAKE(b, Blas, 1) : NULL;
    s = x ? blas_open(x, "optc_bind") : no_memory("optc_bind");
    b->blas = x;
    if (s == OPTC_OK)
        warn_kernels(b);
    for (int i = 0; i < p->nstage && s == OPTC_OK; i++) {
        const Range r = call_range(b, &p->stage[i]);
        b->effort += p->stage[i].kind == S_CALL ? call_effort(b, &p->stage[i]) : 0;
        bool library = p->stage[i].kind == S_CALL && p->stage[i].call->callee == CALL_MM &&
                       x->gemm[0] && !x->wide;
        for (int t = r.from; p->stage[i].kind == S_CALL && t < r.to && s == OPTC_OK; t++)
            if (b->tensor[t].variant == p->stage[i].variant)
                s = library ? check_sizes(b, &p->stage[i], t) : order_exact(b, &p->stage[i], t);
    }
    return s;
}

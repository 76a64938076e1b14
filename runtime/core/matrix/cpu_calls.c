/* The table of callees: what each checks, costs and runs on the CPU. Also products on the CPU, and the preparation of
 * calls when tensors are bound.
 *
 * On the CPU a call is cut into jobs that the threads take one after another. How a matrix is cut must depend on its
 * shape alone, so that results do not depend on the number of threads. */
#include "runtime/core/matrix/cpu_calls.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- products ---- */
/* Row stride of an array. */
static int64_t leading(const Program *p, int array, Shape s, int64_t row_stride)
{
    Dom d = p->array[array].dom;
    return d == ELEM ? row_stride : axis_len(dom_matrix(d, false).across, s);
}

CORE ProductShape product_shape(const Program *p, const ProgCall *c, Shape s, int64_t row_stride)
{
    ProductShape x;
    MatrixAxes a = dom_matrix(p->array[c->a].dom, (c->flags & TRANS_A) != 0),
               b = dom_matrix(p->array[c->b].dom, (c->flags & TRANS_B) != 0);
    memset(&x, 0, sizeof x);
    x.slices = s.slices;
    x.m = axis_len(a.down, s), x.n = axis_len(b.across, s), x.k = axis_len(a.across, s);
    x.ld[0] = leading(p, c->a, s, row_stride);
    x.ld[1] = leading(p, c->b, s, row_stride);
    /* a result of one column or one row is contiguous */
    x.ld[2] = x.ld[3] = p->array[c->out].dom == ELEM ? row_stride : x.n;
    return x;
}

static double mm_flops(const Program *p, const ProgCall *c, Shape s)
{
    ProductShape x = product_shape(p, c, s, s.cols);
    double all = 2.0 * (double)x.slices * (double)x.m * (double)x.n * (double)x.k;
    return c->flags & SYMMETRIC ? all * (double)(x.m + 1) / (2.0 * (double)(x.m ? x.m : 1)) : all;
}

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
    if (a.across != b.down || out == NDOM || dom_matrix(m[c->out].dom, false).down != dom_matrix(out, false).down ||
        dom_matrix(m[c->out].dom, false).across != dom_matrix(out, false).across)
        return bad_call(p, s, "the operands of a product do not fit");
    if (c->c >= 0 && m[c->c].dom != m[c->out].dom)
        return bad_call(p, s, "the matrix that is added to a product does not have its shape");
    if ((c->flags & SYMMETRIC) && a.down != b.across)
        return bad_call(p, s, "a product that is not square cannot be symmetric");
    bool blocks = dom_of_block(m[c->a].dom) || dom_of_block(m[c->b].dom) || dom_of_block(m[c->out].dom);
    for (int i = 0; i < 3; i++) {
        Dom d = m[i == 0 ? c->a : i == 1 ? c->b : c->out].dom;
        if (blocks != ((c->flags & BLOCKED) != 0) || (blocks && d != ELEM && !dom_of_block(d)))
            return bad_call(p, s, "a product mixes blocks and whole matrices");
    }
    if (m[c->a].type != m[c->b].type || m[c->a].type != m[c->out].type || (c->c >= 0 && m[c->c].type != m[c->out].type))
        return bad_call(p, s, "the operands of a product have different types");
    if (c->out == c->a || c->out == c->b)
        return bad_call(p, s, "a product would be written over its own operand");
    return OPTC_OK;
}

/* ---- panels ---- */
/* Rows and columns of the result per job: large enough that packing the operands for each job is cheap, small enough
 * that one large matrix keeps many threads busy. Panels of small symmetric products are smaller, since half of each
 * panel on the diagonal is computed in vain. */
enum { PANEL = 512, PANEL_SYMMETRIC = 256, PANEL_LARGE = 2048, PANEL_STEP = 16 };
typedef struct Panels { int64_t rows, cols, down, across, count; } Panels;  /* size of a panel; panels per axis; all */

static int64_t panel_length(int64_t n, int64_t most)
{
    int64_t parts = count_up(n, most), each = parts ? count_up(n, parts) : 1;
    return count_up(each, PANEL_STEP) * PANEL_STEP;
}

static Panels cut_product(const ProgCall *c, const ProductShape *x)
{
    bool sym = (c->flags & SYMMETRIC) != 0;
    int64_t most = sym && x->m < PANEL_LARGE ? PANEL_SYMMETRIC : PANEL;
    Panels p = {panel_length(x->m, most), panel_length(x->n, most), 0, 0, 0};
    p.down = count_up(x->m, p.rows);
    p.across = count_up(x->n, p.cols);
    p.count = sym ? p.down * (p.down + 1) / 2 : p.down * p.across;
    return p;
}

static int64_t mm_jobs(const Program *p, const ProgCall *c, Shape s)
{
    ProductShape x = product_shape(p, c, s, s.cols);
    return x.slices * cut_product(c, &x).count;
}

/* Copies the summand c into the result, which the product is then added to. */
static void copy_panel(const Gemm *g, const char *from, int64_t ld, size_t size)
{
    for (int64_t i = 0; i < g->m; i++)
        memcpy((char *)g->c + (size_t)(i * g->ldc) * size, from + (size_t)(i * ld) * size, (size_t)g->n * size);
}

#define MIRROR(T)                                                      \
    for (int64_t i0 = 0; i0 < g->m; i0 += 16)                          \
        for (int64_t j = 0; j < g->n; j++)                             \
            for (int64_t i = i0; i < g->m && i < i0 + 16; i++)         \
                if (!inside || i > j)                                  \
                    ((T *)to)[j * g->ldc + i] = ((const T *)g->c)[i * g->ldc + j]

/* Mirrors a panel from below the diagonal to above it. inside: the panel is on the diagonal, and its lower half is
 * mirrored. */
static void mirror_panel(const Gemm *g, void *to, bool inside)
{
    if (g->f64) {
        MIRROR(double);
    } else {
        MIRROR(float);
    }
}

/* A panel on the diagonal of x x.T: only its lower half is computed. With beta 0 a BLAS may multiply the old values by
 * zero, which keeps NaN, so the panel is cleared first. */
static void diagonal_panel(const Blas *blas, const ProgCall *c, Gemm *g, size_t size)
{
    bool gram = c->a == c->b && (c->flags & (TRANS_A | TRANS_B)) &&
        (c->flags & (TRANS_A | TRANS_B)) != (TRANS_A | TRANS_B);
    g->lower = gram && blas->gemm[0] && g->alpha != 0;
    for (int64_t i = 0; g->lower && g->beta == 0 && i < g->m; i++)
        memset((char *)g->c + (size_t)(i * g->ldc) * size, 0, (size_t)g->n * size);
    blas_gemm(blas, g);
}

static void mm_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job, int thread)
{
    (void)thread;
    const Program *p = b->program;
    ProductShape x = product_shape(p, c, t->shape, row_stride(b, t));
    Panels cut = cut_product(c, &x);
    size_t size = (size_t)p->type[p->array[c->out].type].bytes;
    int64_t slice = job / cut.count, at = job % cut.count, i = 0, j = at;
    for (; (c->flags & SYMMETRIC) && j > i; i++)
        j -= i + 1;
    if (!(c->flags & SYMMETRIC))
        i = at / cut.across, j = at % cut.across;
    int64_t row = i * cut.rows, col = j * cut.cols, result = matrix_at(b, t, c->out, slice);
    int64_t place = result + row * x.ld[3] + col;
    char *out = (char *)t->mem[c->out] + (size_t)place * size;
    const char *a = (const char *)t->mem[c->a], *y = (const char *)t->mem[c->b];
    Gemm g;
    memset(&g, 0, sizeof g);
    g.f64 = size == sizeof(double);
    g.trans_a = (c->flags & TRANS_A) != 0, g.trans_b = (c->flags & TRANS_B) != 0;
    g.m = x.m - row < cut.rows ? x.m - row : cut.rows, g.n = x.n - col < cut.cols ? x.n - col : cut.cols, g.k = x.k;
    g.alpha = c->alpha, g.beta = c->c >= 0 ? c->beta : 0;
    g.lda = x.ld[0], g.ldb = x.ld[1], g.ldc = x.ld[3];
    g.a = a + (size_t)(matrix_at(b, t, c->a, slice) + row * (g.trans_a ? 1 : g.lda)) * size;
    g.b = y + (size_t)(matrix_at(b, t, c->b, slice) + col * (g.trans_b ? g.ldb : 1)) * size;
    g.c = out;
    if (g.beta != 0 && c->c != c->out)
        copy_panel(&g, (const char *)t->mem[c->c] + (size_t)place * size, x.ld[2], size);
    if ((c->flags & SYMMETRIC) && i == j)
        diagonal_panel(b->blas, c, &g, size);
    else
        blas_gemm(b->blas, &g);
    if (c->flags & SYMMETRIC)
        mirror_panel(&g, (char *)t->mem[c->out] + (size_t)(result + col * x.n + row) * size, i == j);
}

/* ---- the table ---- */
/* Rows come from callees.def; its column `cpu` is mm, factor, sort or take. */
#define mm_scratch NULL
#define take_scratch NULL
#define sort_flops order_flops
#define take_flops order_flops
#define sort_check order_check
#define take_check order_check
static const CalleeInfo callees[NCALLEE] = {
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, fits, flops, kernels, cpu, what, measured) \
    {what, cpu##_flops, cpu##_check, cpu##_jobs, cpu##_run, cpu##_scratch},
#include "gen/abi/callees.def"
};

CORE const CalleeInfo *callee_info(const ProgCall *c) { return &callees[c->callee]; }

CORE optc_status calls_check(const Program *p)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < p->nstage && s == OPTC_OK; i++)
        if (p->stage[i].kind == S_CALL)
            s = !p->stage[i].call || p->stage[i].call->callee < 0 || p->stage[i].call->callee >= NCALLEE
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
                "optc_bind: %s: %s is too large for %s, whose integers have 32 bits: a product of %lld x %lld and "
                "%lld x %lld; name a BLAS with 64-bit integers in OPTC_BLAS, or set OPTC_BLAS=none",
                stage, tensor_label(b, t->of, label), b->blas->about, (long long)x.m, (long long)x.k, (long long)x.k,
                (long long)x.n);
}

/* Indices are stored as numbers of the values' type. */
static optc_status check_places(const optc_binding *b, const ProgStage *s, int tensor)
{
    const Program *p = b->program;
    int64_t n = dom_len_inside(p->array[s->call->a].dom, b->tensor[tensor].shape);
    char stage[200], label[96];
    if (s->call->callee != CALL_SORT || p->array[s->call->a].type == T_F64 || n <= 1 << 24)
        return OPTC_OK;
    stage_label(p, s, stage, sizeof stage);
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_bind: %s: cannot sort %lld values of %s: indices in f32 are exact up to 16777216", stage,
                (long long)n, tensor_label(b, b->tensor[tensor].of, label));
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
    if (!program_calls(r->program) || !r->fn)
        return;
    (void)blas_open(&x, "optc_rule_path");
    size_t at = strlen(text);
    const char *factors = x.lapack[0] ? "; factors: its LAPACK" : "; factors: our own, slower than a LAPACK";
    snprintf(text + at, n - at, "; products: %s%s", x.about, has_factors(r->program) ? factors : "");
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

/* Prepares the calls of a binding: checks the program, opens a BLAS, and checks that it can take all sizes. */
CORE optc_status cpu_calls(optc_binding *b)
{
    const Program *p = b->program;
    bool any = false;
    if (!b->rule->fn)                              /* the reference evaluator computes its own products */
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
    for (int i = 0; i < p->nstage && s == OPTC_OK; i++) {
        const Range r = call_range(b, &p->stage[i]);
        b->effort += p->stage[i].kind == S_CALL ? call_effort(b, &p->stage[i]) : 0;
        bool library = p->stage[i].kind == S_CALL && p->stage[i].call->callee == CALL_MM && x->gemm[0] && !x->wide;
        for (int t = r.from; p->stage[i].kind == S_CALL && t < r.to && s == OPTC_OK; t++)
            if (b->tensor[t].variant == p->stage[i].variant)
                s = library ? check_sizes(b, &p->stage[i], t) : check_places(b, &p->stage[i], t);
    }
    return s;
}

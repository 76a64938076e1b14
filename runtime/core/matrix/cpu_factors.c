/* Factors on the CPU. A job is one matrix, computed by one thread in f64 whatever type it is stored
 * in. */
#include "gen/abi/methods.h"
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/lapack_fallback.h"

#include <math.h>
#include <string.h>

CORE optc_status factor_check(const Program *p, const ProgStage *s)
{
    const ProgCall *c = s->call;
    if (c->a < 0 || c->out < 0 || c->a == c->out ||
        (c->callee == CALL_SOLVE && (c->b < 0 || c->b == c->out)))
        return bad_call(p, s, "a factor lacks its matrix, or would be written over it");
    const ProgArray *a = &p->array[c->a], *out = &p->array[c->out];
    const ProgArray *b = c->b < 0 ? NULL : &p->array[c->b],
                    *last = c->c < 0 ? NULL : &p->array[c->c];
    bool solve = c->callee == CALL_SOLVE, blocked = (c->flags & BLOCKED) != 0;
    if (a->type != out->type || !factor_fits(c->callee, c->flags, a->dom, out->dom) ||
        (solve && (b->dom != out->dom || b->type != out->type)))
        return bad_call(p, s, "a factor does not have the shape and type of its matrix");
    if (dom_of_block(a->dom) != blocked || (out->dom != ELEM && dom_of_block(out->dom) != blocked))
        return bad_call(p, s, "a factor mixes blocks and whole matrices");
    if (b && !solve &&
        (c->callee != CALL_POWER || !dom_inside(b->dom) || !dom_wide(b->dom) || b->type != T_F64))
        return bad_call(p, s, "the lower bound of eigenvalues is not one number per matrix");
    if (last && (dom_matrix(last->dom, false).down != dom_matrix(out->dom, false).down ||
                 dom_matrix(last->dom, false).across != dom_matrix(out->dom, false).across ||
                 last->type != out->type))
        return bad_call(p, s, "the previous value of a factor does not have its shape and type");
    return OPTC_OK;
}

CORE int64_t factor_jobs(const Program *p, const ProgCall *c, Shape s)
{
    FactorShape x = factor_shape(p, c, s);
    return x.m && x.n ? s.slices : 0;
}

/* Doubles of scratch: the matrix, its eigenvalues, the algorithm's workspace, and at the end two
 * columns for factor_off. */
static int64_t factor_doubles(const ProgCall *c, FactorShape x)
{
    int64_t more = x.m < INT64_MAX / 4 ? 2 * x.m : 0, side = dom_times(x.m, x.m),
            all = dom_times(x.m, x.n);
    if (callee_spectral(c->callee))
        return side + x.m + lapack_eigh_work(x.m) + more;
    switch (c->callee) {                       /* LAPACK needs at least as much as the fallback */
    case CALL_EIGH: return side + x.m + lapack_eigh_work(x.m) + more;
    case CALL_QR: return 2 * all + lapack_qr_work(x.m, x.n) + more;
    case CALL_SOLVE: return side + 2 * all + more;
    default: return side + more;
    }
}

CORE int64_t factor_scratch(const Program *p, const ProgCall *c, Shape s)
{
    int64_t n = factor_doubles(c, factor_shape(p, c, s));
    return dom_times((n + 7) / 8 * 8, (int64_t)sizeof(double));
}

/* A factor that is being computed. a: the matrix, loaded from `of`, and scratch behind it. least:
 * lower bound that eigenvalues are lifted to */
typedef struct FactorWork {
    const Blas *blas;
    const ProgCall *c;
    const MatrixView *of;
    double *a;
    FactorShape x;
    double least;
} FactorWork;
/* Returns the result, in the scratch from a on; NULL: it cannot be computed so. */
typedef const double *FactorMethod(const FactorWork *w);

/* The column `values` of callees.def */
static double spectral_value(Callee c, double X, double E)
{
    const double NONE = (double)NAN;
    switch (c) {
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, values, ...) \
    case CALL_##ID: return (void)NONE, (void)X, (void)E, values;
#include "gen/abi/callees.def"
    default: return NONE;
    }
}

/* Replaces eigenvalues, after lifting them to `least`, by the callee's function of them; false: a
 * result is undefined or not finite. */
static bool change_values(const ProgCall *c, double *value, int64_t n, double least)
{
    bool any = c->alpha > 0 && c->alpha == floor(c->alpha), right = true;
    for (int64_t k = 0; k < n; k++) {
        double x = value[k] < least || least != least ? least : value[k];
        right = right && (any || x > 0);
        value[k] = spectral_value(c->callee, x, c->alpha);
        right = right && fabs(value[k]) <= 1.7976931348623157e308;
    }
    return right;
}

/* out = a.T b, which is symmetric. If a == b and there is a BLAS, it computes only half of it. */
static const double *transposed_by(const Blas *blas, const double *a, const double *b, int64_t n,
                                   double *out)
{
    Gemm g;
    memset(&g, 0, sizeof g);
    g.f64 = g.trans_a = true;
    g.lower = a == b && blas->gemm[0];
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = n;
    g.alpha = 1;
    g.a = a;
    g.b = b;
    g.c = memset(out, 0, sizeof *out * (size_t)(n * n));
    blas_gemm(blas, &g);
    dense_mirror(out, n);
    return out;
}

/* Returns V.T diag(value) V, both triangles. v: eigenvectors as rows, overwritten. more: scratch
 * for two matrices. */
static const double *put_power(const Blas *blas, double *v, const double *value, int64_t n,
                               double *more)
{
    bool positive = true;
    for (int64_t k = 0; k < n; k++)
        positive = positive && value[k] >= 0;
    if (!positive)
        memcpy(more + n * n, v, sizeof *v * (size_t)(n * n));
    for (int64_t k = 0; k < n; k++) {
        double x = positive ? sqrt(value[k]) : value[k];
        for (int64_t i = 0; i < n; i++)
            v[k * n + i] *= x;
    }
    return transposed_by(blas, v, positive ? v : more + n * n, n, more);
}

static bool all_finite(const double *x, int64_t n)
{
    int64_t outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside += !(fabs(x[i]) <= 1.7976931348623157e308);
    return outside == 0;
}

/* The triangle is followed by the right-hand sides as they are stored: rows instead of columns if
 * FROM_RIGHT. */
static const double *solve_by(const FactorWork *w)
{
    const FactorShape x = w->x;
    const Blas *blas = w->blas;
    double *a = w->a;
    bool right = (w->c->flags & FROM_RIGHT) != 0, transposed = (w->c->flags & TRANS_A) != 0;
    int64_t all = x.m * x.n;
    double *b = a + x.m * x.m, *over = b + all;
    for (int64_t i = 0; i < x.m; i++)
        if (!all_finite(a + i * x.m, i + 1))
            return NULL;
    if (!all_finite(b, all))
        return NULL;
    if (lapack_solve(blas, a, x.m, transposed, right, b, right ? x.n : x.m, right ? x.m : x.n))
        return b;
    if (!right)
        return dense_solve(a, x.m, transposed, b, x.n) ? b : NULL;
    dense_transpose(over, b, x.n, x.m);
    if (!dense_solve(a, x.m, !transposed, over, x.n))
        return NULL;
    dense_transpose(b, over, x.m, x.n);
    return b;
}

/* These try LAPACK. If there is none, or it fails, they load the matrix again and use the
 * fallback. */
static bool eigh_of(const Blas *blas, const MatrixView *of, double *a, int64_t n, double *value,
                    double *work)
{
    if (lapack_eigh(blas, a, n, value, work))
        return true;
    matrix_view_load(a, of);
    return dense_eigh(a, n, value, work);
}

static bool chol_of(const Blas *blas, const MatrixView *of, double *a, int64_t n)
{
    if (lapack_chol(blas, a, n))
        return true;
    matrix_view_load(a, of);
    return dense_chol(a, n);
}

static const double *chol_by(const FactorWork *w)
{
    return chol_of(w->blas, w->of, w->a, w->x.m) ? w->a : NULL;
}

static const double *qr_by(const FactorWork *w)
{
    double *work = w->a + w->x.m * w->x.n;
    if (lapack_qr(w->blas, w->a, w->x.m, w->x.n, work))
        return w->a;
    matrix_view_load(w->a, w->of);
    return dense_qr(w->a, w->x.m, w->x.n, work) ? w->a : NULL;
}

static const double *eigh_by(const FactorWork *w)
{
    int64_t m = w->x.m;
    double *more = w->a + m * m;
    if (!eigh_of(w->blas, w->of, w->a, m, more, more + m))
        return NULL;
    dense_transpose(more + m, w->a, w->x.n, m);
    return more + m;
}

/* Inverse of a positive definite matrix by Cholesky: a fifth of the work of eigenvectors. Fails for
 * others. */
static const double *inverse_by(const FactorWork *w)
{
    const int64_t n = w->x.m;
    double *more = w->a + n * n + n;                       /* scratch for two matrices */
    if (!chol_of(w->blas, w->of, w->a, n))
        return NULL;
    memset(more, 0, sizeof *more * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        more[i * (n + 1)] = 1;
    if (!lapack_solve(w->blas, w->a, n, false, false, more, n, n) &&
        !dense_solve(w->a, n, false, more, n))
        return NULL;
    const double *out = transposed_by(w->blas, more, more, n, more + n * n);
    return all_finite(out, n * n) ? out : NULL;
}

static const double *spectral_by(const FactorWork *w)
{
    const int64_t n = w->x.m;
    double *value = w->a + n * n, *more = value + n;
    return eigh_of(w->blas, w->of, w->a, n, value, more) &&
                   change_values(w->c, value, n, w->least)
               ? put_power(w->blas, w->a, value, n, more)
               : NULL;
}

/* ---- statistics ---- */
/* The probe vector: pseudo-random signs, which no matrix is correlated with, divided by n. */
static void probe_start(double *v, int64_t n)
{
    uint64_t s = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        v[i] = (s >> 63 ? 1.0 : -1.0) / (double)n;
    }
}

/* to = m v, or m.T v; m: rows x cols */
static void probe_by(const double *m, int64_t rows, int64_t cols, bool transposed, const double *v,
                     double *to)
{
    memset(to, 0, sizeof *to * (size_t)(transposed ? cols : rows));
    for (int64_t i = 0; i < rows && transposed; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j] += m[i * cols + j] * v[i];
    for (int64_t i = 0; i < rows && !transposed; i++)
        for (int64_t j = 0; j < cols; j++)
            to[i] += m[i * cols + j] * v[j];
}

static double matrix_view_at(const MatrixView *x, int64_t i, int64_t j)
{
    return x->f64 ? ((const double *)x->at)[i * x->row_stride + j]
        : (double)((const float *)x->at)[i * x->row_stride + j];
}

/* Error of an inverse root or of orthonormal columns, estimated with one random vector: the mean of
 * its square is the square of the residual's Frobenius norm. v, w: scratch for as many values as
 * the matrix has rows. Other factors:
 * 0. */
static double factor_off(const ProgCall *c, const MatrixView *of, FactorShape x, const double *made,
                         double *v, double *w)
{
    double off = 0;
    int64_t n = c->callee == CALL_QR ? x.n : x.m;
    int times = c->callee != CALL_POWER                                ? 0
                : inverse_by_triangle(c->alpha, call_low(c), c->flags) ? 1
                                                                       : call_root(c);
    if (c->callee != CALL_QR && !times)
        return 0;
    probe_start(v, n);
    if (c->callee == CALL_QR) {
        probe_by(made, x.m, x.n, false, v, w);
        probe_by(made, x.m, x.n, true, w, v);
    } else {                                               /* only the lower triangle is valid */
        memset(w, 0, sizeof *w * (size_t)n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double y = matrix_view_at(of, i, j);
                w[i] += y * v[j];
                w[j] += j < i ? y * v[i] : 0;
            }
        for (int k = 0; k < times; k++) {
            double *z = k % 2 ? w : v;
            probe_by(made, n, n, false, k % 2 ? v : w, z);
        }
        if (times % 2 == 0)
            memcpy(v, w, sizeof *v * (size_t)n);
    }
    probe_start(w, n);
    for (int64_t i = 0; i < n; i++)
        off += (v[i] - w[i]) * (v[i] - w[i]);
    return (double)n * sqrt(off);
}

static void record_stats(const CpuJob *j, bool good, double off)
{
    const optc_binding *b = j->b;
    const ProgStage *s = b->program->stage;
    while (s->call != j->c)
        s++;
    FactorStats *x =
        (FactorStats *)b->stats + factor_stats_first(b, s, (int)(j->t - b->tensor)) + j->job;
    x->computed += 1;
    x->refused += !good;
    x->off = off;
}

static bool factor_by(const CpuJob *j, FactorMethod *method)
{
    const optc_binding *b = j->b;
    const ProgCall *c = j->c;
    FactorShape x = factor_shape(b->program, c, j->t->shape);
    double *a = call_scratch(b, j->thread), least = -INFINITY;
    MatrixView of = matrix_view(b, j->t, c->a, j->job), out = matrix_view(b, j->t, c->out, j->job);
    matrix_view_load(a, &of);
    if (c->callee == CALL_SOLVE) {
        MatrixView to = matrix_view(b, j->t, c->b, j->job);
        matrix_view_load(a + x.m * x.m, &to);
    } else if (c->b >= 0) {
        least = ((const double *)j->t->mem[c->b])[matrix_at(b, j->t, c->b, j->job)];
    }
    const FactorWork w = {b->blas, c, &of, a, x, least};
    const double *r = method(&w);
    if (!r || !matrix_view_fits(&out, r))
        return r && (factor_failed(j), true);
    double *scratch = a + factor_doubles(c, x) - 2 * x.m;
    record_stats(j, true, factor_off(c, &of, x, r, scratch, scratch + x.m));
    matrix_view_store(&out, r);
    return true;
}

CORE bool inverse_run(const CpuJob *j) { return factor_by(j, inverse_by); }
CORE bool spectral_run(const CpuJob *j) { return factor_by(j, spectral_by); }
CORE bool chol_run(const CpuJob *j) { return factor_by(j, chol_by); }
CORE bool qr_run(const CpuJob *j) { return factor_by(j, qr_by); }
CORE bool eigh_run(const CpuJob *j) { return factor_by(j, eigh_by); }
CORE bool solve_run(const CpuJob *j) { return factor_by(j, solve_by); }

CORE void factor_failed(const CpuJob *j)
{
    const ProgCall *c = j->c;
    MatrixView out = matrix_view(j->b, j->t, c->out, j->job);
    record_stats(j, false, (double)NAN);
    if (c->c < 0) {
        matrix_view_store(&out, NULL);
    } else if (c->c != c->out) {
        MatrixView last = matrix_view(j->b, j->t, c->c, j->job);
        matrix_view_copy(&out, &last);
    }
}

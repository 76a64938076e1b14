/* How far the result of a function is from its definition, in the Frobenius norm. The host
 * estimates it with random vectors of signs, in f64, from the operands and results of an entry; a
 * GPU's matrices are copied to the host. Inverse roots and orthonormal columns have it from the
 * step already (optc_factors). */
#include "gen/abi/methods.h"
#include "runtime/core/functions/function.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESIDUAL_VECTORS = 2, MOST_PROBE_POWER = 16 };

/* One matrix of a batch on the host, in f64. from: all of them in the device's memory, in the type
 * `compute`; NULL: the function has no such matrix */
typedef struct ProbeMatrix { const char *from; double *v; int64_t rows, cols; } ProbeMatrix;
/* operands a and b, the result x, and eigenvalues; p / q: the exponent of a power; v, w, more:
 * RESIDUAL_VECTORS vectors of as many values as the longest side, as columns. */
typedef struct Probe {
    ProbeMatrix a, b, x, value;
    int p, q;
    double *v, *w, *more;
} Probe;

/* to = m v, or m.T v. Sums are in order, so that packages have the library's bits. */
static void probe_apply(const ProbeMatrix *m, bool transposed, const double *v, double *to)
{
    enum { N = RESIDUAL_VECTORS };
    memset(to, 0, sizeof *to * N * (size_t)(transposed ? m->cols : m->rows));
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++) {
            const double *from = v + N * (transposed ? i : j), x = m->v[i * m->cols + j];
            double *sum = to + N * (transposed ? j : i);
            for (int k = 0; k < N; k++)
                sum[k] += x * from[k];
        }
}

static void probe_signs(double *v, int64_t n)
{
    uint64_t s = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < n * RESIDUAL_VECTORS; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        v[i] = s >> 63 ? 1.0 : -1.0;
    }
}

/* The norm of x - y. */
static double norm_between(const double *x, const double *y, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n * RESIDUAL_VECTORS; i++) {
        double d = x[i] - (y ? y[i] : 0);
        all += d * d;
    }
    return sqrt(all);
}

/* v = m^times v, by way of w. */
static void probe_power(const ProbeMatrix *m, int times, double *v, double *w)
{
    for (int k = 0; k < times; k++) {
        probe_apply(m, false, v, w);
        memcpy(v, w, sizeof *v * RESIDUAL_VECTORS * (size_t)m->rows);
    }
}

/* Applies both sides of the definition to the vectors: `off` is their difference, relative to
 * `size`, or to the vectors themselves. */
static double probe_residual(const Probe *x, const FunctionForm *f)
{
    const bool wide = x->x.rows < x->x.cols, right = f->given->right != 0;
    double *v = x->v, *w = x->w, *more = x->more, off, size = sqrt((double)RESIDUAL_VECTORS);
    int64_t n = x->x.rows < x->x.cols ? x->x.rows : x->x.cols;
    switch (f->name) {
    case FUNCTION_EIGH:                                    /* a x - x diag(value) */
        probe_signs(v, n);
        probe_apply(&x->x, false, v, w);
        probe_apply(&x->a, false, w, more);
        for (int64_t i = 0; i < n * RESIDUAL_VECTORS; i++)
            v[i] *= x->value.v[i / RESIDUAL_VECTORS];
        probe_apply(&x->x, false, v, w);
        off = norm_between(more, w, n), size = norm_between(w, NULL, n);
        break;
    case FUNCTION_CHOLESKY:                                /* a - x x.T */
        probe_signs(v, n);
        probe_apply(&x->a, false, v, more);
        probe_apply(&x->x, true, v, w);
        probe_apply(&x->x, false, w, v);
        off = norm_between(more, v, n), size = norm_between(more, NULL, n);
        break;
    case FUNCTION_SOLVE:                                   /* a x - b, or x a - b transposed */
        n = x->a.rows;
        probe_signs(v, right ? x->x.rows : x->x.cols);
        probe_apply(&x->b, right, v, more);
        probe_apply(&x->x, right, v, w);
        probe_apply(&x->a, (f->given->upper != 0) != right, w, v);
        off = norm_between(v, more, n), size = norm_between(more, NULL, n);
        break;
    case FUNCTION_MATRIX_POWER:                            /* x^q a^-p - 1, or x^q - a^p */
        probe_signs(v, n);
        memcpy(more, v, sizeof *v * RESIDUAL_VECTORS * (size_t)n);
        probe_power(&x->a, abs(x->p), v, w);
        probe_power(&x->x, x->q, x->p < 0 ? v : more, w);
        off = norm_between(v, more, n);
        size = x->p < 0 ? size : norm_between(v, NULL, n);
        break;
    default:                                               /* x.T x - 1, or x x.T - 1 */
        probe_signs(v, n);
        probe_apply(&x->x, wide, v, w);
        probe_apply(&x->x, !wide, w, more);
        off = norm_between(more, v, n);
        break;
    }
    double r = off == 0 ? 0 : off / size;
    return isfinite(r) ? r : (double)INFINITY;
}

/* ---- which matrices ---- */
/* The exponent as p / q. false: it is no such number, or a floor replaced eigenvalues. */
static bool read_exponent(const optc_function *given, Probe *x)
{
    for (x->q = 1; x->q <= MOST_PROBE_POWER; x->q++) {
        double p = nearbyint(given->exponent * x->q);
        if (fabs(p) <= MOST_PROBE_POWER && p / x->q == given->exponent) {
            x->p = (int)p;
            return given->floor == 0;
        }
    }
    return false;
}

static double largest_row_sum(const ProbeMatrix *m)
{
    double most = 0;
    for (int64_t i = 0; i < m->rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < m->cols; j++)
            sum += fabs(m->v[i * m->cols + j]);
        most = sum > most ? sum : most;
    }
    return most;
}

/* Reads matrix `nth` of a batch, to the end of its memory, and converts it to f64 from there. */
static optc_status read_probe(const FunctionForm *f, const FunctionEntry *e, const ProbeMatrix *m,
                              int64_t nth)
{
    size_t n = (size_t)(m->rows * m->cols), bytes = n * (size_t)number_type[f->compute].bytes;
    char *raw = (char *)m->v + n * sizeof(double) - bytes;
    optc_status s = !m->from || !n
                        ? OPTC_OK
                        : e->b->rule->device->read(e->b, raw, m->from + (size_t)nth * bytes, bytes,
                                                   f->call);
    for (size_t i = 0; i < n && s == OPTC_OK && f->compute == T_F32; i++) {
        float value;
        memcpy(&value, raw + i * sizeof value, sizeof value);
        m->v[i] = (double)value;
    }
    return s;
}

/* Changes a to what the definition names: a power's ridge is added, and the half of a triangular
 * matrix that the function does not read, where its copy has the mirror image, is cleared. */
static void settle_probe(const FunctionForm *f, const ProbeMatrix *a)
{
    const optc_function *given = f->given;
    double shift = given->ridge + given->relative * (given->relative ? largest_row_sum(a) : 0);
    for (int64_t i = 0; i < a->rows; i++) {
        if (f->name == FUNCTION_MATRIX_POWER)
            a->v[i * a->cols + i] += shift;
        for (int64_t j = i + 1; f->name == FUNCTION_SOLVE && !given->positive && j < a->cols; j++)
            a->v[i * a->cols + j] = 0;
    }
}

static optc_status measure_function(const FunctionForm *f, const FunctionEntry *entry, Probe *x,
                                    double *out)
{
    ProbeMatrix *m[4] = {&x->a, &x->b, &x->x, &x->value};
    size_t all = 0, most = 0;
    optc_status s = OPTC_OK;
    for (int i = 0; i < 4; i++) {
        all += (size_t)(m[i]->rows * m[i]->cols);
        most += (size_t)(m[i]->rows + m[i]->cols);
    }
    double *memory = (double *)malloc((all + 3 * RESIDUAL_VECTORS * most) * sizeof *memory);
    if (!memory)
        return no_memory(f->call);
    x->v = memory, x->w = x->v + RESIDUAL_VECTORS * most, x->more = x->w + RESIDUAL_VECTORS * most;
    double *at = x->more + RESIDUAL_VECTORS * most;
    for (int i = 0; i < 4; at += m[i]->rows * m[i]->cols, i++)
        m[i]->v = at;
    *out = 0;
    for (int64_t nth = 0; nth < f->batch && s == OPTC_OK; nth++) {
        for (int i = 0; i < 4 && s == OPTC_OK; i++)
            s = read_probe(f, entry, m[i], nth);
        if (s != OPTC_OK)
            break;
        settle_probe(f, &x->a);
        double r = probe_residual(x, f);
        *out = r > *out ? r : *out;
    }
    free(memory);
    return s;
}

static ProbeMatrix probe_matrix(const MatrixBatch *x, const char *from)
{
    ProbeMatrix m = {from, NULL, x->rows, x->cols};
    return m;
}

/* Whether the step computed a residual: of an inverse root by products, an inverse, or orthonormal
 * columns. */
static bool step_measures(const FunctionForm *f, const optc_binding *b)
{
    const Program *p = b->program;
    for (int i = 0; i < p->nstage; i++) {
        const ProgCall *c = p->stage[i].kind == S_CALL ? p->stage[i].call : NULL;
        if (c && c->callee == CALL_POWER &&
            (call_root(c) || inverse_by_triangle(c->alpha, call_low(c), c->flags)))
            return true;
    }
    return f->name == FUNCTION_QR;
}

CORE optc_status function_residual(optc_engine *e, const FunctionForm *f, const FunctionEntry *x,
                                   double *out)
{
    optc_factors about = {0, 0, 0};
    optc_status s = step_measures(f, x->b) ? optc_factors_about(x->b, 0, &about) : OPTC_OK;
    Probe probe;
    void *own = NULL;
    int64_t bytes = 0;
    *out = (double)NAN;
    memset(&probe, 0, sizeof probe);
    if (s != OPTC_OK || about.computed) {
        *out = s == OPTC_OK ? about.residual : *out;
        return s;
    }
    if (f->name == FUNCTION_MATRIX_POWER && !read_exponent(f->given, &probe))
        return OPTC_OK;
    probe.x = probe_matrix(&f->out[0], x->result[0]);
    if (f->name != FUNCTION_POLAR && f->name != FUNCTION_QR)
        probe.a = probe_matrix(&f->in[0], x->in[0]);
    if (f->name == FUNCTION_EIGH)
        probe.value = probe_matrix(&f->out[1], x->result[1]);
    if (f->name == FUNCTION_SOLVE) {                       /* the step replaced its copy of b */
        bytes = f->in[1].rows * f->in[1].cols * f->batch * number_type[f->compute].bytes;
        s = matrices_take(e, f->call, bytes, f->stream, &own);
        s = s == OPTC_OK ? function_copy(e, f, &f->in[1], 0, (char *)own, NULL) : s;
        probe.b = probe_matrix(&f->in[1], (const char *)own);
    }
    if (s == OPTC_OK)
        s = measure_function(f, x, &probe, out);
    matrices_give(e, own, bytes, f->stream);
    return s;
}

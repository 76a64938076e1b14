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

/* A matrix of the batch on the host, of f64 or f32. lower: the values above the diagonal are not
 * part of it. */
typedef struct ProbeMatrix { char *at; int64_t rows, cols; bool f64, lower; } ProbeMatrix;
/* b: of optc_solve. value: eigenvalues. p / q: the exponent of a power, whose operand is a plus
 * shift times the identity. v, w, more: scratch for as many values as the longest side. */
typedef struct Probe {
    ProbeMatrix a, b, x, value;
    bool right, upper;
    int p, q;
    double shift, *v, *w, *more;
} Probe;

static double probe_value(const ProbeMatrix *m, int64_t i)
{
    return m->f64 ? ((const double *)(const void *)m->at)[i]
                  : (double)((const float *)(const void *)m->at)[i];
}

/* to = m v, or m.T v */
static void probe_apply(const ProbeMatrix *m, bool transposed, const double *v, double *to)
{
    memset(to, 0, sizeof *to * (size_t)(transposed ? m->cols : m->rows));
    for (int64_t i = 0; i < m->rows; i++) {
        int64_t end = m->lower && i < m->cols ? i + 1 : m->cols, at = i * m->cols;
        double sum = 0;
        for (int64_t j = 0; j < end && transposed; j++)
            to[j] += probe_value(m, at + j) * v[i];
        for (int64_t j = 0; j < end && !transposed; j++)
            sum += probe_value(m, at + j) * v[j];
        if (!transposed)
            to[i] = sum;
    }
}

static void probe_signs(double *v, int64_t n, int nth)
{
    uint64_t s = 0x9e3779b97f4a7c15u * (uint64_t)(nth + 1);
    for (int64_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        v[i] = s >> 63 ? 1.0 : -1.0;
    }
}

static double squares_between(const double *x, const double *y, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = x[i] - (y ? y[i] : 0);
        all += d * d;
    }
    return all;
}

/* v = (m + shift)^times v, by way of w. */
static void probe_power(const ProbeMatrix *m, double shift, int times, double *v, double *w)
{
    for (int k = 0; k < times; k++) {
        probe_apply(m, false, v, w);
        for (int64_t i = 0; i < m->rows; i++)
            v[i] = w[i] + shift * v[i];
    }
}

/* Each of these returns the square of the error for one vector. *size: the square of what it is
 * relative to. */
/* a x - x diag(value), to x diag(value) */
static double probe_eigh(const Probe *x, int nth, double *size)
{
    int64_t n = x->a.rows;
    probe_signs(x->v, n, nth);
    probe_apply(&x->x, false, x->v, x->w);
    probe_apply(&x->a, false, x->w, x->more);
    for (int64_t i = 0; i < n; i++)
        x->v[i] *= probe_value(&x->value, i);
    probe_apply(&x->x, false, x->v, x->w);
    *size = squares_between(x->w, NULL, n);
    return squares_between(x->more, x->w, n);
}

static double probe_cholesky(const Probe *x, int nth, double *size)        /* a - x x.T, to a */
{
    int64_t n = x->a.rows;
    probe_signs(x->v, n, nth);
    probe_apply(&x->a, false, x->v, x->more);
    probe_apply(&x->x, true, x->v, x->w);
    probe_apply(&x->x, false, x->w, x->v);
    *size = squares_between(x->more, NULL, n);
    return squares_between(x->more, x->v, n);
}

/* a x - b, or x a - b, to b */
static double probe_solve(const Probe *x, int nth, double *size)
{
    int64_t n = x->a.rows;
    probe_signs(x->v, x->right ? x->x.rows : x->x.cols, nth);
    probe_apply(&x->b, x->right, x->v, x->more);
    probe_apply(&x->x, x->right, x->v, x->w);
    probe_apply(&x->a, x->upper != x->right, x->w, x->v);
    *size = squares_between(x->more, NULL, n);
    return squares_between(x->v, x->more, n);
}

/* x.T x - 1, or x x.T - 1 if x is wide */
static double probe_orthogonal(const Probe *x, int nth, double *size)
{
    bool wide = x->x.rows < x->x.cols;
    int64_t n = wide ? x->x.rows : x->x.cols;
    probe_signs(x->v, n, nth);
    probe_apply(&x->x, wide, x->v, x->w);
    probe_apply(&x->x, !wide, x->w, x->more);
    *size = 1.0 / RESIDUAL_VECTORS;
    return squares_between(x->more, x->v, n) / RESIDUAL_VECTORS;
}

/* Positive exponents: x^q - a^p, to a^p; negative ones: x^q a^-p - 1. */
static double probe_matrix_power(const Probe *x, int nth, double *size)
{
    int64_t n = x->a.rows;
    probe_signs(x->v, n, nth);
    memcpy(x->more, x->v, sizeof *x->v * (size_t)n);
    probe_power(&x->a, x->shift, x->p < 0 ? -x->p : x->p, x->v, x->w);
    if (x->p < 0) {
        probe_power(&x->x, 0, x->q, x->v, x->w);
        *size = 1.0 / RESIDUAL_VECTORS;
        return squares_between(x->v, x->more, n) / RESIDUAL_VECTORS;
    }
    probe_power(&x->x, 0, x->q, x->more, x->w);
    *size = squares_between(x->v, NULL, n);
    return squares_between(x->more, x->v, n);
}

static double probe_residual(const Probe *x, FunctionName name)
{
    double off = 0, size = 0, one;
    for (int i = 0; i < RESIDUAL_VECTORS; i++) {
        switch (name) {
        case FUNCTION_EIGH: off += probe_eigh(x, i, &one); break;
        case FUNCTION_CHOLESKY: off += probe_cholesky(x, i, &one); break;
        case FUNCTION_SOLVE: off += probe_solve(x, i, &one); break;
        case FUNCTION_MATRIX_POWER: off += probe_matrix_power(x, i, &one); break;
        default: off += probe_orthogonal(x, i, &one); break;
        }
        size += one;
    }
    double r = off == 0 ? 0 : sqrt(off) / sqrt(size);
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
            sum += fabs(probe_value(m, i * m->cols + j));
        most = sum > most ? sum : most;
    }
    return most;
}

static ProbeMatrix probe_matrix(const FunctionForm *f, const FunctionSlot *s)
{
    ProbeMatrix m = {NULL, s->rows, s->cols, f->compute == T_F64, false};
    return m;
}

static size_t probe_bytes(const ProbeMatrix *m)
{
    return (size_t)(m->rows * m->cols) * (m->f64 ? sizeof(double) : sizeof(float));
}

/* Reads matrix `nth` of a batch in the device's memory. */
static optc_status read_probe(const FunctionForm *f, const FunctionEntry *e, ProbeMatrix *m,
                              const char *from, int64_t nth)
{
    size_t bytes = probe_bytes(m);
    return !from || !bytes
               ? OPTC_OK
               : e->b->rule->device->read(e->b, m->at, from + (size_t)nth * bytes, bytes, f->call);
}

/* from: of a, b, x and value, in the device's memory. */
static optc_status measure_batch(const FunctionForm *f, const FunctionEntry *e, Probe *x,
                                 const char *const from[4], double *out)
{
    ProbeMatrix *m[4] = {&x->a, &x->b, &x->x, &x->value};
    optc_status s = OPTC_OK;
    for (int64_t nth = 0; nth < f->batch && s == OPTC_OK; nth++) {
        for (int i = 0; i < 4 && s == OPTC_OK; i++)
            s = read_probe(f, e, m[i], from[i], nth);
        if (s != OPTC_OK)
            break;
        if (f->name == FUNCTION_MATRIX_POWER)
            x->shift = f->given->ridge +
                       f->given->relative * (f->given->relative ? largest_row_sum(&x->a) : 0);
        double r = probe_residual(x, f->name);
        *out = r > *out ? r : *out;
    }
    return s;
}

/* Host memory for one matrix of each kind and three vectors. NULL: no memory. */
static char *take_probe(Probe *x)
{
    ProbeMatrix *m[4] = {&x->a, &x->b, &x->x, &x->value};
    size_t all = 0, most = 1;
    for (int i = 0; i < 4; i++) {
        all += (probe_bytes(m[i]) + 63) / 64 * 64;
        most = (size_t)m[i]->rows > most ? (size_t)m[i]->rows : most;
        most = (size_t)m[i]->cols > most ? (size_t)m[i]->cols : most;
    }
    char *memory = (char *)malloc(all + 3 * most * sizeof(double)), *at = memory;
    if (!memory)
        return NULL;
    x->v = (double *)(void *)(memory + all), x->w = x->v + most, x->more = x->w + most;
    for (int i = 0; i < 4; i++) {
        m[i]->at = at;
        at += (probe_bytes(m[i]) + 63) / 64 * 64;
    }
    return memory;
}

static optc_status measure_function(optc_engine *e, const FunctionForm *f,
                                    const FunctionEntry *entry, double *out)
{
    const optc_function *given = f->given;
    const char *from[4] = {NULL, NULL, entry->result[0], NULL};
    Probe x;
    memset(&x, 0, sizeof x);
    x.x = probe_matrix(f, &f->out[0]);
    x.right = given->right != 0, x.upper = given->upper != 0;
    if (f->name != FUNCTION_POLAR && f->name != FUNCTION_QR)
        x.a = probe_matrix(f, &f->in[0]), from[0] = entry->in[0];
    if (f->name == FUNCTION_EIGH)
        x.value = probe_matrix(f, &f->out[1]), from[3] = entry->result[1];
    x.a.lower = f->name == FUNCTION_SOLVE && !given->positive;
    if (f->name == FUNCTION_MATRIX_POWER && !read_exponent(given, &x))
        return OPTC_OK;
    int64_t bytes = 0;
    /* the step replaced its copy of b by the result */
    void *own = NULL;
    optc_status s = OPTC_OK;
    if (f->name == FUNCTION_SOLVE) {
        x.b = probe_matrix(f, &f->in[1]);
        bytes = (int64_t)probe_bytes(&x.b) * f->batch;
        s = matrices_take(e, f->call, bytes, f->stream, &own);
        s = s == OPTC_OK ? function_copy(e, f, &f->in[1], 0, (char *)own, NULL) : s;
        from[1] = (const char *)own;
    }
    char *memory = s == OPTC_OK ? take_probe(&x) : NULL;
    if (s == OPTC_OK && !memory)
        s = no_memory(f->call);
    *out = s == OPTC_OK ? 0 : *out;
    if (s == OPTC_OK)
        s = measure_batch(f, entry, &x, from, out);
    free(memory);
    matrices_give(e, own, bytes, f->stream);
    return s;
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
    optc_status s = OPTC_OK;
    *out = (double)NAN;
    if (step_measures(f, x->b))
        s = optc_factors_about(x->b, 0, &about);
    if (s != OPTC_OK || about.computed) {
        *out = s == OPTC_OK ? about.residual : *out;
        return s;
    }
    return measure_function(e, f, x, out);
}

/* Factors of one matrix on the CPU: a piece is a matrix, done by one thread in f64, whatever type it is kept in. */
#include "call.h"
#include "dense.h"

#include <math.h>
#include <string.h>

typedef struct FactorShape { int64_t down, across; } FactorShape;

static FactorShape factor_shape(const Program *p, const ProgCall *c, Shape s)
{
    MatrixAxes m = dom_matrix(p->array[c->a].dom, false);
    FactorShape x;
    x.down = axis_len(m.down, s);
    x.across = axis_len(m.across, s);
    return x;
}

CORE double factor_flops(const Program *p, const ProgCall *c, Shape s)
{
    FactorShape x = factor_shape(p, c, s);
    double m = (double)x.down, n = (double)x.across;
    return (double)s.slices * factor_cost[c->callee] * m * n * n;
}

CORE optc_status factor_check(const Program *p, const ProgStage *s)
{
    const ProgCall *c = s->call;
    if (c->a < 0 || c->out < 0 || c->a == c->out)
        return bad_call(p, s, "a factor lacks its matrix, or would be written over it");
    const ProgArray *a = &p->array[c->a], *out = &p->array[c->out];
    const Axis *axis = dom_info[a->dom].axis;
    if (a->dom != out->dom || a->type != out->type || !dom_square(a->dom) || a->dom == ELEM ||
        (c->callee != CALL_QR && axis[0] != axis[1]))
        return bad_call(p, s, "a factor is not of its matrix' shape and type");
    return OPTC_OK;
}

CORE int64_t factor_pieces(const Program *p, const ProgCall *c, Shape s)
{
    FactorShape x = factor_shape(p, c, s);
    return x.down && x.across ? s.slices : 0;
}

/* The matrix, its eigenvalues, and what the algorithm takes beside it. */
static int64_t factor_doubles(const ProgCall *c, FactorShape x)
{
    int64_t all = dom_times(x.down, x.across);
    if (c->callee == CALL_POWER)
        return 2 * all + 3 * x.down;
    return c->callee == CALL_QR ? 3 * all + 2 * x.across : all;
}

CORE int64_t factor_room(const Program *p, const ProgCall *c, Shape s)
{
    int64_t n = factor_doubles(c, factor_shape(p, c, s));
    return dom_times((n + 7) / 8 * 8, (int64_t)sizeof(double));
}

/* v: rows are eigenvectors. out = V.T diag(value^exponent) V, both triangles. */
static void put_power(double *out, const double *v, double *value, int64_t n, double exponent)
{
    for (int64_t k = 0; k < n; k++)
        value[k] = pow(value[k], exponent);
    memset(out, 0, sizeof *out * (size_t)(n * n));
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++) {
            double f = value[k] * v[k * n + i];
            for (int64_t j = 0; j <= i; j++)
                out[i * n + j] += f * v[k * n + j];
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            out[i * n + j] = out[j * n + i];
}

/* The result lies at a or behind it; NULL: it cannot be done. */
static const double *factor_of(const ProgCall *c, double *a, FactorShape x)
{
    int64_t n = x.across, all = x.down * n;
    double *more = a + all;
    switch (c->callee) {
    case CALL_POWER:
        if (!dense_eigh(a, n, more, more + n))
            return NULL;
        put_power(more + n, a, more, n, c->alpha);
        return more + n;
    case CALL_QR: return dense_qr(a, x.down, n, more) ? a : NULL;
    default: return dense_chol(a, n) ? a : NULL;
    }
}

CORE void factor_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t piece, int who)
{
    const Program *p = b->rule->program;
    FactorShape x = factor_shape(p, c, t->shape);
    int64_t all = x.down * x.across, first = piece * all;
    double *a = (double *)((char *)call_space(b) + who * (b->call_bytes / b->rule->engine->threads));
    bool f64 = p->type[p->array[c->a].type].bytes == (int)sizeof(double);
    for (int64_t i = 0; i < all; i++)
        a[i] = f64 ? ((const double *)t->mem[c->a])[first + i] : (double)((const float *)t->mem[c->a])[first + i];
    const double *r = factor_of(c, a, x);
    for (int64_t i = 0; i < all; i++) {
        double y = r ? r[i] : NAN;                         /* what IEEE makes of it */
        if (f64)
            ((double *)t->mem[c->out])[first + i] = y;
        else
            ((float *)t->mem[c->out])[first + i] = (float)y;
    }
}

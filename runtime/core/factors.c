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
    const ProgArray *b = c->b < 0 ? NULL : &p->array[c->b], *last = c->c < 0 ? NULL : &p->array[c->c];
    const Axis *axis = dom_info[a->dom].axis;
    if (a->dom != out->dom || a->type != out->type || !dom_square(a->dom) || a->dom == ELEM ||
        (axis[0] != axis[1] && (c->callee != CALL_QR || axis[1] != AXIS_RANK)))
        return bad_call(p, s, "a factor is not of its matrix' shape and type");
    if (b && (c->callee != CALL_POWER || !dom_inside(b->dom) || !dom_wide(b->dom) || b->type != T_F64))
        return bad_call(p, s, "what eigenvalues are lifted to is not one number a matrix");
    if (last && (last->dom != out->dom || last->type != out->type || c->c == c->a))
        return bad_call(p, s, "what takes a factor's place is not of its shape and type, or its matrix");
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

/* Eigenvalues, largest first, to the exponent; false: not all of them have one that is finite. */
static bool raise_values(double *value, int64_t n, double exponent, double least)
{
    bool any = exponent > 0 && exponent == floor(exponent), right = true;
    for (int64_t k = 0; k < n; k++) {
        double x = value[k] < least || least != least ? least : value[k];
        right = right && (any || x > 0);
        value[k] = pow(x, exponent);
        right = right && fabs(value[k]) <= 1.7976931348623157e308;
    }
    return right;
}

/* v: rows are eigenvectors. out = V.T diag(value) V, both triangles. */
static void put_power(double *out, const double *v, const double *value, int64_t n)
{
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

/* The result lies at a or behind it; NULL: it cannot be done. least: what eigenvalues are lifted to. */
static const double *factor_of(const ProgCall *c, double *a, FactorShape x, double least)
{
    int64_t n = x.across, all = x.down * n;
    double *more = a + all;
    switch (c->callee) {
    case CALL_POWER:
        if (!dense_eigh(a, n, more, more + n) || !raise_values(more, n, c->alpha, least))
            return NULL;
        put_power(more + n, a, more, n);
        return more + n;
    case CALL_QR: return dense_qr(a, x.down, n, more) ? a : NULL;
    default: return dense_chol(a, n) ? a : NULL;
    }
}

typedef struct Lying { char *at; int64_t all; bool f64; } Lying;      /* a matrix of an array */

static Lying lying(const optc_binding *b, const Tensor *t, int array, int64_t nth, FactorShape s)
{
    const Program *p = b->rule->program;
    size_t size = (size_t)p->type[p->array[array].type].bytes;
    Lying x;
    x.at = (char *)t->mem[array] + (size_t)matrix_at(b, t, array, nth) * size;
    x.all = s.down * s.across;
    x.f64 = size == sizeof(double);
    return x;
}

static void load(double *to, Lying x)
{
    for (int64_t i = 0; i < x.all; i++)
        to[i] = x.f64 ? ((const double *)x.at)[i] : (double)((const float *)x.at)[i];
}

/* What does not fit the type it is kept in is no result either. */
static bool fits(const double *r, Lying x)
{
    bool all = r != NULL;
    for (int64_t i = 0; i < x.all && all; i++)
        all = fabs(r[i]) <= (x.f64 ? 1.7976931348623157e308 : 3.4028234663852886e38);
    return all;
}

static void store(const Lying *x, const double *r)                     /* NULL: NaN, as IEEE has it */
{
    for (int64_t i = 0; i < x->all; i++)
        if (x->f64)
            ((double *)x->at)[i] = r ? r[i] : (double)NAN;
        else
            ((float *)x->at)[i] = r ? (float)r[i] : (float)NAN;
}

CORE void factor_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t piece, int who)
{
    FactorShape x = factor_shape(b->rule->program, c, t->shape);
    double *a = (double *)((char *)call_space(b) + who * (b->call_bytes / b->rule->engine->threads));
    const double *least = c->b < 0 ? NULL : (const double *)t->mem[c->b] + matrix_at(b, t, c->b, piece);
    Lying out = lying(b, t, c->out, piece, x);
    load(a, lying(b, t, c->a, piece, x));
    const double *r = factor_of(c, a, x, least ? *least : -INFINITY);
    if (fits(r, out))
        store(&out, r);
    else if (c->c < 0)
        store(&out, NULL);
    else if (c->c != c->out)
        memcpy(out.at, lying(b, t, c->c, piece, x).at, (size_t)out.all * (out.f64 ? sizeof(double) : sizeof(float)));
}

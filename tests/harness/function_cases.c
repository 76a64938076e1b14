#include "tests/harness/function_cases.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F32 OPTC_F32
#define F64 OPTC_F64
const FunctionCase function_cases[] = {
    {.kind = DO_POWER, .type = F32, .n = 5, .batch = 1, .root = 4},
    {.kind = DO_POWER, .type = F64, .n = 33, .batch = 3, .root = 2, .gap = 3},
    {.kind = DO_POWER, .type = F64, .n = 17, .batch = 2, .root = 1, .in_place = true},
    {.kind = DO_POWER, .type = F32, .n = 8, .batch = 2, .root = -2, .gap = 1, .in_place = true},
    {.kind = DO_POWER, .type = OPTC_BF16, .n = 9, .batch = 4, .root = 2},
    {.kind = DO_POWER, .type = OPTC_F16, .n = 6, .batch = 1, .root = 1, .gap = 2},
    {.kind = DO_POWER, .type = F64, .n = 7, .batch = 2, .root = 1, .ridge = 0.5},
    {.kind = DO_POWER, .type = F64, .n = 7, .batch = 2, .root = 2, .relative = 0.25},
    {.kind = DO_POWER, .type = F64, .n = 4, .batch = 2, .root = 1, .floor = 0.001},
    {.kind = DO_EIGH, .type = F64, .n = 12, .batch = 2, .gap = 1},
    {.kind = DO_EIGH, .type = F32, .n = 31, .batch = 1},
    {.kind = DO_EIGH, .type = OPTC_BF16, .n = 5, .batch = 3},
    {.kind = DO_EIGH, .type = F64, .n = 1, .batch = 2, .in_place = true},
    {.kind = DO_CHOLESKY, .type = F64, .n = 20, .batch = 2},
    {.kind = DO_CHOLESKY, .type = F32, .n = 65, .batch = 1, .gap = 5, .in_place = true},
    {.kind = DO_CHOLESKY, .type = OPTC_F16, .n = 4, .batch = 5},
    {.kind = DO_SOLVE, .type = F64, .m = 3, .n = 10, .batch = 2},
    {.kind = DO_SOLVE, .type = F32, .m = 7, .n = 6, .batch = 1, .flags = 1, .in_place = true},
    {.kind = DO_SOLVE, .type = F64, .m = 4, .n = 9, .batch = 3, .flags = 2, .gap = 2},
    {.kind = DO_SOLVE, .type = F64, .m = 5, .n = 8, .batch = 2, .flags = 3},
    {.kind = DO_SOLVE, .type = F64, .m = 2, .n = 19, .batch = 2, .flags = 4},
    {.kind = DO_SOLVE, .type = OPTC_BF16, .m = 2, .n = 5, .batch = 2, .flags = 4},
    {.kind = DO_POLAR, .type = F32, .m = 8, .n = 8, .batch = 2},
    {.kind = DO_POLAR, .type = F64, .m = 5, .n = 13, .batch = 1, .gap = 4},
    {.kind = DO_POLAR, .type = F64, .m = 14, .n = 6, .batch = 3, .in_place = true},
    {.kind = DO_POLAR, .type = OPTC_F16, .m = 4, .n = 7, .batch = 1},
    {.kind = DO_QR, .type = F64, .m = 9, .n = 9, .batch = 2, .in_place = true},
    {.kind = DO_QR, .type = F32, .m = 21, .n = 6, .batch = 1, .gap = 1},
    {.kind = DO_QR, .type = F64, .m = 5, .n = 11, .batch = 2, .gap = 3},
    {.kind = DO_QR, .type = OPTC_BF16, .m = 6, .n = 4, .batch = 2},
    {.kind = DO_QR, .type = F64, .m = 1, .n = 3, .batch = 2}};
_Static_assert(sizeof function_cases / sizeof *function_cases == FUNCTION_CASES,
               "the number of cases");

static Type type_of(optc_type t) { return (Type)(t - 1); }
static double ulp_of(optc_type t)
{
    return t == F64 ? DBL_EPSILON : t == F32 ? FLT_EPSILON : t == OPTC_BF16 ? 0x1p-7 : 0x1p-10;
}
static double draw(int seed, int64_t i)
{
    return 2.0 * (double)(splitmix((uint64_t)(seed * 100003 + i)) >> 40) / (1 << 24) - 1.0;
}

/* ---- plain matrices of doubles ---- */
typedef struct Plain { int64_t rows, cols; double *v; } Plain;
static Plain plain(int64_t rows, int64_t cols)
{
    return (Plain){rows, cols, calloc((size_t)(rows * cols) + 1, 8)};
}
static double at(Plain x, int64_t i, int64_t j) { return x.v[i * x.cols + j]; }

static Plain times(Plain a, bool ta, Plain b, bool tb)
{
    int64_t m = ta ? a.cols : a.rows, k = ta ? a.rows : a.cols, n = tb ? b.rows : b.cols;
    Plain c = plain(m, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t q = 0; q < k; q++)
                c.v[i * n + j] +=
                    (ta ? at(a, q, i) : at(a, i, q)) * (tb ? at(b, j, q) : at(b, q, j));
    return c;
}

/* The largest difference from b, or from the identity if b.v is NULL. Frees a. */
static double off(Plain a, Plain b)
{
    double most = 0;
    for (int64_t i = 0; i < a.rows; i++)
        for (int64_t j = 0; j < a.cols; j++) {
            double d = fabs(at(a, i, j) - (b.v ? at(b, i, j) : i == j));
            most = d > most || isnan(d) ? d : most;
        }
    free(a.v);
    return most;
}

/* ---- the caller's arrays ---- */
typedef struct Array { optc_matrix m; int64_t rows, cols, count; size_t bytes; } Array;

static Array array_open(const Where *w, const FunctionCase *x, int64_t rows, int64_t cols)
{
    Array y = {.rows = rows, .cols = cols, .m.ld = cols + x->gap};
    y.m.next = rows * y.m.ld + x->gap;
    y.count = x->batch * y.m.next + 1;
    y.bytes = (size_t)y.count * (size_t)type_info[type_of(x->type)].bytes;
    y.m.data = w->take(y.bytes);
    char *zeros = calloc(1, y.bytes);
    w->put(y.m.data, zeros, y.bytes);
    free(zeros);
    return y;
}

/* Writes a batch; from: matrices of doubles, which are rounded to what is stored. */
static void array_put(const Where *w, const FunctionCase *x, const Array *y, Plain *from)
{
    char *host = calloc(1, y->bytes);
    w->get(host, y->m.data, y->bytes);
    for (int64_t nth = 0; nth < x->batch; nth++)
        for (int64_t i = 0; i < y->rows; i++)
            for (int64_t j = 0; j < y->cols; j++) {
                int64_t k = nth * y->m.next + i * y->m.ld + j;
                type_store(type_of(x->type), host, k, from[nth].v[i * y->cols + j]);
                from[nth].v[i * y->cols + j] = type_load(type_of(x->type), host, k);
            }
    w->put(y->m.data, host, y->bytes);
    free(host);
}

static Plain array_get(const Where *w, const FunctionCase *x, const Array *y, int64_t nth)
{
    Plain p = plain(y->rows, y->cols);
    char *host = malloc(y->bytes);
    w->get(host, y->m.data, y->bytes);
    for (int64_t i = 0; i < y->rows * y->cols; i++)
        p.v[i] = type_load(type_of(x->type), host,
                           nth * y->m.next + i / y->cols * y->m.ld + i % y->cols);
    free(host);
    return p;
}

/* ---- operands ---- */
/* Symmetric positive definite with eigenvalues from 1 to about 3; triangular with a diagonal from 1
 * on; any. */
static Plain operand(const FunctionCase *x, int64_t nth)
{
    bool square = x->kind <= DO_SOLVE, triangle = x->kind == DO_SOLVE && !(x->flags & 4);
    int64_t rows = square ? x->n : x->m;
    Plain a = plain(rows, x->n);
    for (int64_t i = 0; i < rows * x->n; i++)
        a.v[i] = draw((int)nth + 1, i);
    if (triangle)
        for (int64_t i = 0; i < x->n; i++)
            for (int64_t j = 0; j < x->n; j++)
                a.v[i * x->n + j] = i == j ? 1.5 + 0.25 * at(a, i, j) : at(a, i, j) / (double)x->n;
    if (!square || triangle)
        return a;
    Plain g = times(a, false, a, true);
    free(a.v);
    for (int64_t i = 0; i < x->n * x->n; i++)
        g.v[i] = g.v[i] / (double)x->n + (i / x->n == i % x->n);
    return g;
}

/* ---- definitions ---- */
static double power_off(const FunctionCase *x, Plain a, Plain y)
{
    Plain b = plain(x->n, x->n), z = plain(x->n, x->n);
    double most = 0;
    for (int64_t i = 0; i < x->n; i++) {
        double row = 0;
        for (int64_t j = 0; j < x->n; j++)
            row += fabs(at(a, i, j));
        most = row > most ? row : most;
    }
    for (int64_t i = 0; i < x->n * x->n; i++)
        b.v[i] = a.v[i] + (i / x->n == i % x->n ? x->ridge + x->relative * most : 0);
    memcpy(z.v, y.v, sizeof(double) * (size_t)(x->n * x->n));
    for (int k = 1; k < abs(x->root); k++) {
        Plain next = times(z, false, y, false);
        free(z.v);
        z = next;
    }
    double d = x->root < 0 ? off(z, b) : off(times(z, false, b, false), (Plain){0, 0, NULL});
    if (x->root > 0)
        free(z.v);
    free(b.v);
    return d;
}

static double qr_off(Plain a, Plain q, Plain r)
{
    double d = off(times(q, false, r, false), a),
           ones = off(times(q, true, q, false), (Plain){0, 0, NULL});
    for (int64_t i = 0; i < r.rows; i++)
        for (int64_t j = 0; j <= i && j < r.cols; j++)
            ck_assert_msg(j < i ? at(r, i, j) == 0 : at(r, i, j) >= 0, "R at (%lld, %lld)",
                          (long long)i, (long long)j);
    return d > ones ? d : ones;
}

static double polar_off(Plain a, Plain u)
{
    bool tall = a.rows > a.cols;
    Plain h = times(u, true, a, false), turned = plain(h.rows, h.cols);
    for (int64_t i = 0; i < h.rows * h.cols; i++)
        turned.v[i] = at(h, i % h.cols, i / h.cols);
    double ones =
               off(tall ? times(u, true, u, false) : times(u, false, u, true), (Plain){0, 0, NULL}),
           d = off(h, turned);
    free(turned.v);
    return d > ones ? d : ones;
}

static double solve_off(const FunctionCase *x, Plain a, Plain b, Plain y)
{
    Plain t = plain(x->n, x->n);
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < x->n; j++)
            t.v[i * x->n + j] = x->flags & 4 || (x->flags & 1 ? j >= i : j <= i) ? at(a, i, j) : 0;
    double d = off(x->flags & 2 ? times(y, false, t, false) : times(t, false, y, false), b);
    free(t.v);
    return d;
}

static double eigh_off(Plain a, Plain v, Plain w)
{
    Plain left = times(a, false, v, false), right = plain(v.rows, v.cols);
    for (int64_t i = 0; i < v.rows * v.cols; i++)
        right.v[i] = v.v[i] * w.v[i % v.cols];
    for (int64_t i = 1; i < w.cols; i++)
        ck_assert_msg(w.v[i] >= w.v[i - 1], "eigenvalues are not in ascending order");
    double d = off(left, right), ones = off(times(v, true, v, false), (Plain){0, 0, NULL});
    free(right.v);
    return d > ones ? d : ones;
}

static double case_off(const FunctionCase *x, Plain a, Plain b, Plain y, Plain z)
{
    switch (x->kind) {
    case DO_POWER: return power_off(x, a, y);
    case DO_EIGH: return eigh_off(a, y, z);
    case DO_SOLVE: return solve_off(x, a, b, y);
    case DO_POLAR: return polar_off(a, y);
    case DO_QR: return qr_off(a, y, z);
    default: return off(times(y, false, y, true), a);
    }
}

/* ---- a case ---- */
static void call_function(optc_engine *e, const FunctionCase *x, const optc_function *f)
{
    switch (x->kind) {
    case DO_POWER: OK(optc_matrix_power(e, f)); break;
    case DO_EIGH: OK(optc_eigh(e, f)); break;
    case DO_CHOLESKY: OK(optc_cholesky(e, f)); break;
    case DO_SOLVE: OK(optc_solve(e, f)); break;
    case DO_POLAR: OK(optc_polar(e, f)); break;
    default: OK(optc_qr(e, f)); break;
    }
}

static Array rounded(const Where *w, const FunctionCase *x, int64_t rows, int64_t cols, Plain *from)
{
    Array y = array_open(w, x, rows, cols);
    array_put(w, x, &y, from);
    return y;
}

char *function_case(optc_engine *e, const Where *w, const FunctionCase *x, size_t *bytes)
{
    bool solve = x->kind == DO_SOLVE, right = x->flags & 2;
    int64_t k = x->m < x->n ? x->m : x->n,
            rows = x->kind >= DO_POLAR ? x->m
                   : solve && right    ? x->m
                                       : x->n,
            cols = solve              ? (right ? x->n : x->m)
                   : x->kind == DO_QR ? k
                                      : x->n;
    Plain *a = calloc((size_t)x->batch, sizeof *a), *b = calloc((size_t)x->batch, sizeof *b);
    double residual = -1;
    for (int64_t i = 0; i < x->batch; i++) {
        a[i] = operand(x, i);
        b[i] = plain(rows, cols);
        for (int64_t j = 0; j < rows * cols; j++)
            b[i].v[j] = draw(77 + (int)i, j);
    }
    Array from = rounded(w, x, a[0].rows, a[0].cols, a), other = rounded(w, x, rows, cols, b),
          to = array_open(w, x, rows, cols),
          second = array_open(w, x, x->kind == DO_QR ? k : 1, x->n);
    optc_function f = {.a = from.m,
                       .b = other.m,
                       .x = to.m,
                       .y = second.m,
                       .type = x->type,
                       .m = x->m,
                       .n = x->n,
                       .batch = x->batch,
                       .exponent = x->root > 0 ? -1.0 / x->root : -1.0 / (double)x->root,
                       .ridge = x->ridge,
                       .relative = x->relative,
                       .floor = x->floor,
                       .upper = x->flags & 1,
                       .right = right,
                       .positive = (x->flags & 4) != 0,
                       .residual = &residual};
    Array *result = x->in_place ? (solve ? &other : &from) : &to;
    f.x = result->m;
    call_function(e, x, &f);
    double bound =
        32 * (double)(x->n + x->m) * (ulp_of(x->type) + (x->type == F64 ? 0 : FLT_EPSILON));
    for (int64_t i = 0; i < x->batch; i++) {
        Plain y = array_get(w, x, result, i), z = array_get(w, x, &second, i);
        double d = case_off(x, a[i], b[i], y, z);
        ck_assert_msg(
            d <= bound, "function %d, type %d, %lld x %lld, matrix %lld: off by %g, at most %g",
            (int)x->kind, (int)x->type, (long long)x->m, (long long)x->n, (long long)i, d, bound);
        free(y.v), free(z.v), free(a[i].v), free(b[i].v);
    }
    ck_assert_msg(x->floor ? isnan(residual) : residual >= 0 && residual < 1e-3, "residual %g",
                  residual);
    *bytes = result->bytes;
    char *got = malloc(result->bytes);
    w->get(got, result->m.data, result->bytes);
    w->give(from.m.data), w->give(other.m.data), w->give(to.m.data), w->give(second.m.data);
    free(a), free(b);
    return got;
}

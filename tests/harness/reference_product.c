#include "tests/harness/reference_product.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const Alone alone_cases[] = {
    {1, 1, 1, 0, 1, 0, false, 0, 1, 0},      {5, 7, 3, 0, 1, 0, false, 0, 1, 0},
    {5, 7, 3, 0, 4, 1, false, 2, 1, 0},      {5, 7, 3, 0, 4, 2, true, 0, -0.5, 0.25},
    {33, 65, 17, 0, 2, 3, false, 3, 2, 1},   {6, 7, 9, 0, 3, 0, true, 0, 1, 0},
    {260, 270, 20, 0, 1, 0, false, 0, 1, 0}, {7, 3, 1100, 0, 2, 3, false, 0, 1, -1},
    {7, 0, 5, 0, 3, 0, false, 0, 1, 0},      {290, 0, 9, 0, 1, 1, false, 1, 0.5, 0},
    {5, 4, 3, 6, 1, 0, false, 0, 1, 0},      {5, 4, 3, 6, 3, 7, false, 2, 1, 0},
    {150, 33, 9, 9, 2, 2, true, 0, 3, 0.5},  {70, 300, 3, 260, 1, 5, false, 0, 1, 0},
    {9, 8, 7, 6, 4, 0, true, 0, 1, 0},       {0, 3, 2, 0, 2, 0, false, 0, 1, 0},
    {3, 0, 1, 0, 1, 0, false, 0, 1, 0},      {1, 600, 3, 1, 2, 0, false, 0, 1, 0}};

static Type type_of(optc_type t) { return (Type)(t - 1); }
static double ulp_of(optc_type t)
{
    return t == OPTC_F64    ? DBL_EPSILON
           : t == OPTC_F32  ? FLT_EPSILON
           : t == OPTC_BF16 ? 0x1p-7
                            : 0x1p-10;
}

/* A batch of matrices: as doubles on the host, and in its storage type on the device. */
typedef struct Many {
    int64_t rows, cols, ld, next, count; bool turned; double *value; void *at; size_t bytes;
} Many;

static int64_t place(const Many *x, int64_t nth, int64_t row, int64_t col)
{
    return nth * x->next + (x->turned ? col * x->ld + row : row * x->ld + col);
}
static double value(const Many *x, int64_t nth, int64_t row, int64_t col)
{
    return x->value[place(x, nth, row, col)];
}

static void many_open(Many *x, const Where *w, int64_t rows, int64_t cols, int64_t n, bool turned,
                      int gap, bool one, optc_type type, int seed)
{
    int64_t wide = turned ? rows : cols, high = turned ? cols : rows;
    *x = (Many){rows, cols, wide + gap, one ? 0 : high * (wide + gap) + gap, 0, turned,
                NULL, NULL, 0};
    x->count = (one ? 0 : (n - 1) * x->next) + high * x->ld + gap + 1;
    x->bytes = (size_t)x->count * (size_t)type_info[type_of(type)].bytes;
    x->value = calloc((size_t)x->count, sizeof *x->value);
    char *host = calloc(1, x->bytes);
    for (int64_t i = 0; i < x->count; i++) {
        type_store(type_of(type), host, i,
                   2.0 * (double)(splitmix((uint64_t)(seed * 100003 + i)) >> 40) / (1 << 24) - 1.0);
        x->value[i] = type_load(type_of(type), host, i);
    }
    x->at = w->take(x->bytes);
    w->put(x->at, host, x->bytes);
    free(host);
}

static void many_close(Many *x, const Where *w)
{
    w->give(x->at);
    free(x->value);
}

static double sum_of(const Many *a, const Many *b, int64_t nth, int64_t i, int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < a->cols; k++) {
        sum += value(a, nth, i, k) * value(b, nth, k, j);
        *size += fabs(value(a, nth, i, k) * value(b, nth, k, j));
    }
    return sum;
}

/* The product a b that is multiplied by a third matrix: in double, with the magnitude of its
 * terms. */
static Many between(const Many *a, const Many *b, int64_t n, Many *size)
{
    Many t = {a->rows, b->cols, b->cols, a->rows * b->cols, n * a->rows * b->cols, false,
              NULL,    NULL,    0};
    t.value = calloc((size_t)t.count + 1, sizeof(double));
    *size = t;
    size->value = calloc((size_t)t.count + 1, sizeof(double));
    for (int64_t nth = 0; nth < n; nth++)
        for (int64_t i = 0; i < a->rows; i++)
            for (int64_t j = 0; j < b->cols; j++)
                t.value[place(&t, nth, i, j)] =
                    sum_of(a, b, nth, i, j, &size->value[place(&t, nth, i, j)]);

    return t;
}

static void hold(const Alone *x, const Many *a, const Many *b, const Many *d, const Many *c,
                 const void *got, optc_type type)
{
    Many large = {0}, t = {0};
    if (x->p)
        t = between(a, b, x->batch, &large);
    const Many *left = x->p ? &t : a, *right = x->p ? d : b;
    double ulp = ulp_of(type), sums = type == OPTC_F64 ? DBL_EPSILON : FLT_EPSILON;
    for (int64_t nth = 0; nth < x->batch; nth++)
        for (int64_t i = 0; i < c->rows; i++)
            for (int64_t j = 0; j < c->cols; j++) {
                double size, deep = 0,
                             want = x->scale * sum_of(left, right, nth, i, j, &size) +
                                    x->add * value(c, nth, i, j);
                /* propagates the error of the first product */
                for (int64_t k = 0; x->p && k < left->cols; k++)
                    deep += (ulp + (double)(x->k + 2) * sums) * value(&large, nth, i, k) *
                            fabs(value(d, nth, k, j));
                double y = type_load(type_of(type), got, place(c, nth, i, j));
                double bound = fabs(x->scale) * (deep + (double)(left->cols + 4) * sums * size) +
                    ulp * (fabs(want) + fabs(x->add)) + 1e-30;
                if (!(fabs(y - want) <= bound))
                    ck_abort_msg("%lld x %lld over %lld, type %d: (%lld, %lld) of %lld is %g, "
                                 "wanted %g within %g",
                                 (long long)x->m, (long long)x->n, (long long)x->k, (int)type,
                                 (long long)i, (long long)j, (long long)nth, y, want, bound);
            }
    free(t.value), free(large.value);
}

void *reference_product(optc_engine *e, const Where *w, const Alone *x, optc_type type,
                        int64_t workspace, size_t *bytes)
{
    Many a, b, d = {0}, c;
    bool gram = !x->n;
    int64_t n = gram ? x->m : x->n;
    many_open(&a, w, x->m, x->k, x->batch, x->turned & 1, x->gap, false, type, 1);
    many_open(&b, w, x->k, n, x->batch, x->turned & 2, x->gap, x->one, type, 2);
    if (x->p)
        many_open(&d, w, n, x->p, x->batch, x->turned & 4, x->gap, x->one, type, 3);
    many_open(&c, w, x->m, x->p ? x->p : n, x->batch, false, x->gap, false, type, 4);
    optc_product q = {.a = a.at,
                      .b = gram ? NULL : b.at,
                      .d = d.at,
                      .c = c.at,
                      .type = type,
                      .m = x->m,
                      .n = gram ? 0 : n,
                      .k = x->k,
                      .p = x->p,
                      .batch = x->batch};
    q.turn_a = a.turned, q.turn_b = b.turned, q.turn_d = d.turned;
    q.lda = a.ld, q.ldb = b.ld, q.ldd = d.ld, q.ldc = c.ld;
    q.next_a = a.next, q.next_b = x->one ? OPTC_ONE : b.next, q.next_d = x->one ? OPTC_ONE : d.next,
    q.next_c = c.next;
    q.scale = x->scale == 1 ? 0 : x->scale, q.add = x->add, q.workspace = workspace;
    OK(optc_multiply(e, &q));
    char *got = malloc(c.bytes + 1);
    w->get(got, c.at, c.bytes);
    if (gram) {                                /* the bound of a full product */
        many_close(&b, w);
        b = a;
        b.rows = a.cols, b.cols = a.rows, b.turned = !a.turned;
    }
    hold(x, &a, &b, &d, &c, got, type);
    *bytes = c.bytes;
    if (!gram)
        many_close(&b, w);
    if (x->p)
        many_close(&d, w);
    many_close(&a, w);
    many_close(&c, w);
    return got;
}

void reference_kron(optc_engine *e, const Where *w, const int64_t size[5], optc_type type, bool one)
{
    int64_t m = size[0], n = size[1], p = size[2], q = size[3], batch = size[4];
    Many a, b, c;
    /* every other matrix of a is left out, or one b is used for all of a */
    many_open(&a, w, one ? m : 2 * m, n, batch, false, 0, false, type, 1);
    many_open(&b, w, p, q, batch, false, 0, one, type, 2);
    many_open(&c, w, m * p, n * q, batch, false, 0, false, type, 3);
    optc_kronecker x = {.a = a.at,
                        .b = b.at,
                        .c = c.at,
                        .type = type,
                        .m = m,
                        .n = n,
                        .p = p,
                        .q = q,
                        .batch = batch,
                        .next_a = one ? 0 : a.next,
                        .next_b = one ? OPTC_ONE : 0};
    OK(optc_kron(e, &x));
    char *got = malloc(c.bytes + 1), one_of[8] = {0};
    w->get(got, c.at, c.bytes);
    for (int64_t nth = 0; nth < batch; nth++)
        for (int64_t i = 0; i < m * p; i++)
            for (int64_t j = 0; j < n * q; j++) {
                double want = value(&a, nth, i / p, j / q) * value(&b, nth, i % p, j % q);
                type_store(type_of(type), one_of, 0, type == OPTC_F64 ? want : (double)(float)want);
                want = type_load(type_of(type), one_of, 0);
                if (type_load(type_of(type), got, place(&c, nth, i, j)) != want)
                    ck_abort_msg("(%lld, %lld) of %lld is not %g", (long long)i, (long long)j,
                                 (long long)nth, want);
            }
    free(got);
    many_close(&a, w), many_close(&b, w), many_close(&c, w);
}

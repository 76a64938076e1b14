/* Checks of products on a GPU: arrays as f64, and the results of a step against plain loops. */
#include "tests/gpu/gpu_product_program.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const ProductKind kinds[] = {
    {"f64", T_F64, DBL_EPSILON, PRODUCT_F64}, {"f32", T_F32, FLT_EPSILON, PRODUCT_F32},
    {"tf32", T_F32, 1.0 / 1024, PRODUCT_TF32},
    {"bf16", T_BF16, 1.0 / 128, PRODUCT_BF16}, {"f16", T_F16, 1.0 / 1024, PRODUCT_F16}};

/* ---- values ---- */
int64_t length_of(const Bound *x, int tensor, int array)
{
    return dom_len(x->m.array[array].dom, x->b->tensor[tensor].shape);
}

double *get_array(const Bound *x, int tensor, int array)
{
    int64_t n = length_of(x, tensor, array);
    double *v = malloc(sizeof *v * (size_t)(n + 1));
    OK(optc_state_read(x->b, tensor, x->m.array[array].name, v, n));
    return v;
}

void put_array(Bound *x, int tensor, int array, int seed)
{
    int64_t n = length_of(x, tensor, array);
    double *v = malloc(sizeof *v * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        v[i] = ref_value(tensor, seed, i);
    OK(optc_state_write(x->b, tensor, x->m.array[array].name, v, n));
    free(v);
}

/* The rows of a, or the columns of b, one after another: n of k terms. apart: they are columns as
 * stored. */
static double *lines_of(const double *p, int64_t n, int64_t k, bool apart)
{
    double *v = malloc(sizeof *v * (size_t)(n * k + 1));
    for (int64_t t = 0; t < k; t++)
        for (int64_t i = 0; i < n; i++)
            v[i * k + t] = apart ? p[t * n + i] : p[i * k + t];
    return v;
}

/* Checks one product of one tensor against plain loops. Bounds: k units of the accumulator's type
 * for a sum of k values, half a unit of the storage type for the result, which is rounded again
 * where the diagonal is added, half a unit for each tf32 operand. */
static void check_product(const Bound *x, int kind, int tensor, const ProgCall *c, const double *a,
                          const double *b, const double *was, const double *got, const char *what)
{
    const ProgArray *m = x->m.array;
    Shape s = x->b->tensor[tensor].shape;
    ProductShape z = product_shape(&x->m.p, c, s, s.cols);
    double carried = kinds[kind].type == T_F64 ? DBL_EPSILON : FLT_EPSILON,
        kept = kinds[kind].type == T_F32 ? FLT_EPSILON : kinds[kind].unit;
    double operands = kinds[kind].product == PRODUCT_TF32 ? 2 * kinds[kind].unit : 0;
    for (int64_t l = 0; l < s.slices; l++) {
        double *rows =
                   lines_of(a + l * dom_len_inside(m[c->a].dom, s), z.m, z.k, c->flags & TRANS_A),
               *cols = lines_of(b + l * dom_len_inside(m[c->b].dom, s), z.n, z.k,
                                !(c->flags & TRANS_B));
        const double *pw = was + l * dom_len_inside(m[c->out].dom, s);
        const double *pg = got + l * dom_len_inside(m[c->out].dom, s);
        for (int64_t i = 0; i < z.m; i++)
            for (int64_t j = 0; j < z.n; j++) {
                if (c->flags & SYMMETRIC && j > i) {       /* only the lower triangle is computed */
                    ck_assert_msg(pg[i * z.n + j] == pg[j * z.n + i], "%s %s: not mirrored",
                                  kinds[kind].name, what);
                    continue;
                }
                double sum = 0, size = 0;
                for (int64_t k = 0; k < z.k; k++) {
                    sum += rows[i * z.k + k] * cols[j * z.k + k];
                    size += fabs(rows[i * z.k + k] * cols[j * z.k + k]);
                }
                double diagonal = i == j ? c->diagonal : 0;
                double want = c->alpha * sum + c->beta * pw[i * z.n + j] + diagonal,
                    mag = fabs(c->alpha) * size + fabs(c->beta * pw[i * z.n + j]) + fabs(diagonal);
                double off = fabs(want - pg[i * z.n + j]),
                       rounded = diagonal != 0 ? 2 * kept : kept,
                       most = ((double)(z.k + 4) * carried + operands + rounded) * mag +
                              1e-7 * (kinds[kind].type == T_F16);
                ck_assert_msg(off <= most,
                              "%s %s: tensor %d, matrix %lld, (%lld, %lld): %.17g, not %.17g: off "
                              "by %g, at most %g",
                              kinds[kind].name, what, tensor, (long long)l, (long long)i,
                              (long long)j, pg[i * z.n + j], want, off, most);
            }
        free(rows), free(cols);
    }
}

/* ---- steps ---- */
/* 2.5 I - 1.5 s + 0.5 a a.T, with the addend s in an array of its own */
void add_polynomial(ProductProgram *m, int a, Type t)
{
    int s = add_array(m, MEM_STATE, ROWS2, t, "s");
    add_mm_to(m, a, a, s, add_array(m, MEM_STATE, ROWS2, t, "z"), TRANS_B | SYMMETRIC, 0.5, -1.5);
    m->call[m->ncall - 1].diagonal = 2.5;
}

void step_forms(Bound *x, int kind, int n, const char *what)
{
    double *a[MOST][TENSORS], *b[MOST][TENSORS], *was[MOST][TENSORS];
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++)
            a[i][k] = get_array(x, k, x->m.call[i].a), b[i][k] = get_array(x, k, x->m.call[i].b),
            was[i][k] = get_array(x, k, x->m.call[i].c < 0 ? x->m.call[i].out : x->m.call[i].c);
    OK(optc_step(x->b));
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++) {
            char label[64];
            double *got = get_array(x, k, x->m.call[i].out);
            snprintf(label, sizeof label, "%s, product %d", what, i);
            check_product(x, kind, k, &x->m.call[i], a[i][k], b[i][k], was[i][k], got, label);
            free(a[i][k]), free(b[i][k]), free(was[i][k]), free(got);
        }
}

void fill_forms(Bound *x, int n)
{
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++) {
            put_array(x, k, x->m.call[i].a, 3 * i);
            if (x->m.call[i].b != x->m.call[i].a)
                put_array(x, k, x->m.call[i].b, 3 * i + 1);
            put_array(x, k, x->m.call[i].out, 3 * i + 2);
            if (x->m.call[i].c >= 0 && x->m.call[i].c != x->m.call[i].out)
                put_array(x, k, x->m.call[i].c, 3 * i);
        }
}

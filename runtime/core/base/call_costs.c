/* Shapes and costs of calls, for those that share work out: threads, slots, owners. Packages of
 * rules without calls do not contain this file. */
#include "gen/abi/methods.h"
#include "runtime/core/base/call_costs.h"

#include <math.h>
#include <string.h>

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

CORE double mm_flops(const Program *p, const ProgCall *c, Shape s)
{
    ProductShape x = product_shape(p, c, s, s.cols);
    double all = 2.0 * (double)x.slices * (double)x.m * (double)x.n * (double)x.k;
    return c->flags & SYMMETRIC ? all * (double)(x.m + 1) / (2.0 * (double)(x.m ? x.m : 1)) : all;
}

CORE FactorShape factor_shape(const Program *p, const ProgCall *c, Shape s)
{
    MatrixAxes a = dom_matrix(p->array[c->a].dom, false),
               out = dom_matrix(p->array[c->out].dom, c->flags & FROM_RIGHT);
    FactorShape x;
    x.m = axis_len(a.down, s);
    x.n = axis_len(out.across, s);
    return x;
}

CORE void factor_sides(const Program *p, const ProgCall *c, Shape s, int64_t *m, int64_t *n)
{
    FactorShape x = factor_shape(p, c, s);
    *m = x.m;
    *n = x.n;
}

CORE double factor_flops(const Program *p, const ProgCall *c, Shape s)
{
    FactorShape x = factor_shape(p, c, s);
    return (double)s.slices * callee_flops(c->callee, (double)x.m, (double)x.n);
}

CORE double order_flops(const Program *p, const ProgCall *c, Shape s)
{
    int of = c->callee == CALL_SORT ? c->a : c->out;
    return (double)s.slices *
           callee_flops(c->callee, (double)dom_len_inside(p->array[of].dom, s), 1);
}

CORE double call_flops(const Program *p, const ProgCall *c, Shape s)
{
    switch (callee_facts[c->callee].kind) {
    case CALLEE_PRODUCT: return mm_flops(p, c, s);
    case CALLEE_FACTOR: return factor_flops(p, c, s);
    default: return order_flops(p, c, s);
    }
}

/* Eigenvectors of n rows take a GPU far longer than their operations would: columns are reduced one
 * after another. One matrix of 3072, 2304, 1024 or 768 rows takes 26, 15, 5 or 4 ms on an H200
 * (gpu_divide.c); the constant fits these within a fifth. Small matrices are computed side by side
 * by cuSOLVER: 256 rows 0.11 ms, 128 rows 0.012 ms each (gpu_eigen.c). The factors convert to
 * operations of products at 50 TFLOP/s. A slot cannot be shorter than its largest matrix. */
static const double BATCHED_ROWS = 256, BATCHED_VALUES = 1 << 20, BATCHED_MOST = 64;
static double eigen_cost(double n)
{
    double fit = BATCHED_VALUES / (n * n + 1), together = fit < BATCHED_MOST ? fit : BATCHED_MOST;
    return n * sqrt(n) * (n > BATCHED_ROWS ? 7.5e6 : 2e7 / together);
}

CORE double call_cost(const Program *p, const ProgStage *s, Shape shape)
{
    int64_t rows = axis_len(dom_matrix(p->array[s->call->a].dom, false).down, shape);
    return stage_takes(s, FOR_EIGEN) ? (double)shape.slices * eigen_cost((double)rows)
                                     : call_flops(p, s->call, shape);
}

/* Shapes of calls' operands, and operations by kind of callee (call_costs.c). */
#ifndef OPTC_CORE_CALL_COSTS_H
#define OPTC_CORE_CALL_COSTS_H
#include "runtime/core/base/core.h"

/* One product per slice, m x k by k x n. ld: row strides of a, b, c and the result, in values. */
typedef struct ProductShape { int64_t slices, m, n, k, ld[4]; } ProductShape;
/* row_stride: of arrays over all elements */
CORE ProductShape product_shape(const Program *p, const ProgCall *c, Shape s, int64_t row_stride);
/* m x n: size of the matrix. SOLVE: side of the triangle, number of right-hand sides. EIGH: n is
 * the result's columns. */
typedef struct FactorShape { int64_t m, n; } FactorShape;
CORE FactorShape factor_shape(const Program *p, const ProgCall *c, Shape s);
CORE void factor_sides(const Program *p, const ProgCall *c, Shape s, int64_t *m, int64_t *n);
CORE double mm_flops(const Program *p, const ProgCall *c, Shape s);
CORE double factor_flops(const Program *p, const ProgCall *c, Shape s);
CORE double order_flops(const Program *p, const ProgCall *c, Shape s);
#endif

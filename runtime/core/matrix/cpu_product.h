/* One product of matrices on the CPU. Rules and optc_multiply both use this file, so there is one
 * place that cuts, computes and mirrors.
 *
 *   MatrixProduct    what is multiplied: sizes, addresses, row strides, transposes, factors. The
 *                    caller owns it and all memory that it names; it is only read. Values are f32
 *                    or f64: callers convert other types
 *   product_cut      divides the result into panels. It depends on sizes and flags alone
 *   product_panel    computes one panel, by a BLAS (one thread per call) or by gemm_fallback
 *
 * Panels are independent of each other, so threads may compute them in any order, and bits depend
 * neither on the number of threads nor on the workspace. A batch is one MatrixProduct per
 * matrix. */
#ifndef OPTC_CORE_CPU_PRODUCT_H
#define OPTC_CORE_CPU_PRODUCT_H
#include "runtime/core/matrix/cpu_calls.h"

/* ld: values from row to row, as stored */
typedef struct ProductOperand { const char *at; int64_t ld; bool transposed; } ProductOperand;
/* c = alpha a b + beta add + diagonal I, row-major; a is m x k and b is k x n after their
 * transposes.
 *   add        the summand, with its row stride; NULL: c itself. Not read if beta is 0
 *   symmetric  the result is: only its lower triangle is computed, and mirrored. Other products
 *              have no diagonal
 *   gram       b is a transposed, in the same memory
 *   single     the caller has no other product to share the threads with: panels are as wide as
 *              possible */
typedef struct MatrixProduct {
    bool f64, symmetric, gram, single;
    int64_t m, n, k;
    ProductOperand a, b;
    const char *add;
    int64_t ld_add;
    char *c;
    int64_t ldc;
    double alpha, beta, diagonal;
} MatrixProduct;
/* Rows and columns of a panel, how many there are along each axis, and in total. */
typedef struct Panels { int64_t rows, cols, down, across, count; } Panels;
CORE Panels product_cut(const MatrixProduct *x);
CORE void product_panel(const Blas *blas, const MatrixProduct *x, Panels cut, int64_t panel);
/* n in equal parts of at most `most`, rounded up to 16 */
CORE int64_t panel_length(int64_t n, int64_t most);
#endif

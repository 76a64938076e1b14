/* A factor on a GPU whose steps are being added. gpu_factors.c has the steps of all factors,
 * gpu_qr.c those of QR. */
#ifndef OPTC_CORE_GPU_FACTOR_H
#define OPTC_CORE_GPU_FACTOR_H
#include "runtime/core/matrix/gpu_calls.h"

enum {
    FACTOR_PANEL = 64, FACTOR_WIDE = 8 * FACTOR_PANEL, INVERSE_PANEL = 256, SHORT_ROUNDS = 2,
    ROUNDS = 3
};

typedef struct Factor {
    const optc_binding *b;
    GpuCalls *x;
    const ProgStage *stage;
    const ProgCall *call;
    int group;
    int64_t m, n;  /* QR: the matrix; else the triangle's side, and the number of right-hand
                    * sides */
    int64_t ld[AREAS];
    bool fits;     /* numbers of blocks and rows are within what a launch takes */
    int64_t reach; /* the largest offset, in values, that a kernel gets: an int */
} Factor;
typedef struct Part { int area; int64_t row, col; } Part;          /* position in an area */
typedef struct ProductSize { int64_t m, n, k; } ProductSize;

OPTC_COUNT Part at(int area, int64_t row, int64_t col)
{
    Part p = {area, row, col};
    return p;
}

/* Solves a triangle's equations. t: the area of the triangle; from: that of the right-hand sides,
 * which are overwritten; to: that of the result. For each panel: subtract the products with solved
 * panels, multiply by the inverse of the panel's tile. n: the triangle's side; other: the number of
 * right-hand sides */
typedef struct TriangleSolve {
    int t, from, to; bool right, transposed; int64_t n, other;
} TriangleSolve;

/* Areas: a triangle, the inverses of blocks on its diagonal, and intermediate products. The
 * triangle's area may be that of the inverses. */
typedef struct InverseAreas { int triangle, inverse, between; } InverseAreas;

/* ---- gpu_factors.c ---- */
/* add_kernel_step: one of our kernels over two sets; add_area_step: over a part of an area, from
 * which it reaches the record's numbers. part_product: c = alpha a b + beta c; transpose: the
 * ProductFlag of a transposed operand */
CORE int part_set(const Factor *f, Part p);
CORE CallStep *add_kernel_step(Factor *f, CallKernel kernel, int a, int c, int64_t m, int64_t n);
CORE CallStep *add_area_step(Factor *f, CallKernel kernel, Part p, int64_t m, int64_t n);
CORE CallStep *part_product(Factor *f, Part a, Part b, Part c, ProductSize z, unsigned transpose,
                            double alpha, double beta);
CORE void add_chol(Factor *f, int64_t n, unsigned flags);
CORE void add_off(Factor *f, TriangleSolve z, int64_t k, int64_t w, int64_t before, int64_t done);
CORE void add_solve(Factor *f, TriangleSolve z);
CORE void add_load(Factor *f, int array, int area, int64_t m, int64_t n, unsigned flags);
CORE void add_result(Factor *f, int area, int64_t m, int64_t n, unsigned flags);
CORE bool stores_f64(const Factor *f);
CORE void add_store(Factor *f, int area, int64_t m, int64_t n, unsigned flags);
CORE void add_inverse(Factor *f, InverseAreas z, int64_t n, int64_t most);
CORE void add_gram(Factor *f, int x, bool whole);

/* ---- gpu_qr.c ---- */
CORE void qr_steps(Factor *f);
#endif

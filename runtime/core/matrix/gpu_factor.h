/* Steps that factors on a GPU share: gpu_factors.c has those of all factors, gpu_qr.c those of QR.
 * MethodAt.m, n: QR: the matrix; else the triangle's side, and the number of right-hand sides. */
#ifndef OPTC_CORE_GPU_FACTOR_H
#define OPTC_CORE_GPU_FACTOR_H
#include "runtime/core/matrix/gpu_calls.h"

enum {
    FACTOR_PANEL = 64, FACTOR_WIDE = 8 * FACTOR_PANEL, INVERSE_PANEL = 256, SHORT_ROUNDS = 2,
    ROUNDS = 3
};

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
CORE int64_t area_to_numbers(MethodAt *f, Part p);     /* offset from p to the record's numbers */
/* add_area_step: one of our kernels over a part of an area, from which it reaches the record's
 * numbers */
CORE CallStep *add_area_step(MethodAt *f, CallKernel kernel, Part p, int64_t m, int64_t n);
CORE void add_chol(MethodAt *f, int64_t n, unsigned flags);
CORE void add_off(MethodAt *f, TriangleSolve z, int64_t k, int64_t w, int64_t before, int64_t done);
CORE void add_solve(MethodAt *f, TriangleSolve z);
CORE void add_load(MethodAt *f, int array, int area, int64_t m, int64_t n, unsigned flags);
CORE void add_result(MethodAt *f, int area, int64_t m, int64_t n, unsigned flags);
CORE void add_store(MethodAt *f, int area, int64_t m, int64_t n, unsigned flags);
CORE void add_inverse(MethodAt *f, InverseAreas z, int64_t n, int64_t most);
CORE void add_gram(MethodAt *f, int x, bool whole);

/* ---- gpu_qr.c ---- */
CORE void qr_steps(MethodAt *f);
#endif

/* A factor on a GPU whose steps are being added. gpu_factors.c has the steps of all factors, gpu_qr.c those of QR. */
#ifndef OPTC_CORE_GPU_FACTOR_H
#define OPTC_CORE_GPU_FACTOR_H
#include "runtime/core/matrix/gpu_calls.h"

enum { FACTOR_PANEL = 64, FACTOR_WIDE = 8 * FACTOR_PANEL, INVERSE_PANEL = 256, SHORT_ROUNDS = 2, ROUNDS = 3 };

typedef struct Factor {
    const optc_binding *b;
    GpuCalls *x;
    const ProgStage *stage;
    const ProgCall *call;
    int group;
    int64_t m, n;  /* QR: the matrix; else the triangle's side, and the number of right-hand sides */
    int64_t ld[AREAS];
    bool fits;
} Factor;
typedef struct Part { int area; int64_t row, col; } Part;          /* position in an area */
typedef struct Shaped { int64_t m, n, k; } Shaped;

OPTC_COUNT Part at(int area, int64_t row, int64_t col)
{
    Part p = {area, row, col};
    return p;
}

/* Solves for the right-hand sides in area `from`, which are overwritten, by the triangle in area t; the result goes to
 * area `to`. For each panel: subtract the products with solved panels, multiply by its tile's inverse. */
typedef struct Solved { int t, from, to; bool right, transposed; int64_t n, other; } Solved;

/* The areas of a triangle, of inverses of blocks on its diagonal, and of products between. The triangle's area may be
 * that of the inverses. */
typedef struct InverseAreas { int triangle, inverse, between; } InverseAreas;

/* ---- gpu_factors.c ---- */
CORE int part_set(const Factor *f, Part p);
CORE CallStep *own_of(Factor *f, CallKernel kernel, int a, int c, int64_t m, int64_t n);
CORE CallStep *on_area(Factor *f, CallKernel kernel, Part p, int64_t m, int64_t n);
CORE CallStep *part_product(Factor *f, Part a, Part b, Part c, Shaped z, unsigned transpose, double alpha, double beta);
CORE void add_chol(Factor *f, int64_t n, unsigned flags);
CORE void add_off(Factor *f, Solved z, int64_t k, int64_t w, int64_t before, int64_t done);
CORE void add_solve(Factor *f, Solved z);
CORE void add_load(Factor *f, int array, int area, int64_t m, int64_t n, unsigned flags);
CORE void add_result(Factor *f, int area, int64_t m, int64_t n, unsigned flags);
CORE bool stores_f64(const Factor *f);
CORE void add_store(Factor *f, int area, int64_t m, int64_t n, unsigned flags);
CORE void add_inverse(Factor *f, InverseAreas z, int64_t n, int64_t most);
CORE void add_gram(Factor *f, int x, bool whole);

/* ---- gpu_qr.c ---- */
CORE void qr_steps(Factor *f);
#endif

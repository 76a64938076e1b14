/* Cuts one product of matrices into panels and computes a panel. cpu_product.h describes who calls
 * it. */
#include "runtime/core/matrix/cpu_product.h"

#include <limits.h>
#include <string.h>

/* ---- panels ---- */
/* Rows and columns of the result per panel: large enough that packing the operands for each panel
 * is cheap, small enough that one large matrix keeps many threads busy. Panels of small symmetric
 * products are smaller, since half of each panel on the diagonal is computed in vain.
 *
 * A single product has row panels of WIDE_VALUES values. Measured with OpenBLAS 0.3.21 on one core
 * of a Xeon (AVX-512), f32, time over that of one call for the whole result:
 *                    512 x 512   512 rows   256 rows
 *   768 x 768 x 768       1.15       1.09       1.11
 *   1024                  1.06       1.02       1.13
 *   2048                  1.23       1.09       1.21
 * A single Gram matrix of up to PANEL_LARGE rows has two panels, of whole rows up to the diagonal,
 * with similar work. The first has 11/16 of the rows. Time over that of one syrk, CPU time,
 * medians, without the mirror:
 *              f32 0.7   11/16   halves   quarters    f64 0.7   11/16   halves   quarters
 *   768           1.02    1.00     1.04       1.05       1.07    1.06     1.09       1.16
 *   1024          1.03    1.02     1.02       1.10       1.07    1.06     1.06       1.19
 * Packing the operands of the product of the second panel is what remains: syrk alone takes 0.53 to
 * 0.57 of gemm. */
enum {
    PANEL = 512, PANEL_SYMMETRIC = 256, PANEL_LARGE = 2048, PANEL_STEP = 16, WIDE_VALUES = 1 << 20
};

CORE int64_t panel_length(int64_t n, int64_t most)
{
    int64_t parts = count_up(n, most), each = parts ? count_up(n, parts) : 1;
    return count_up(each, PANEL_STEP) * PANEL_STEP;
}

CORE Panels product_cut(const MatrixProduct *x)
{
    int64_t most = x->symmetric && x->m < PANEL_LARGE && !x->single ? PANEL_SYMMETRIC : PANEL;
    Panels p = {panel_length(x->m, most), 0, 0, 0, 0};
    if (x->symmetric && x->single && x->m > PANEL && x->m <= PANEL_LARGE)
        p.rows = count_up(x->m * 11, 16 * PANEL_STEP) * PANEL_STEP;
    p.cols =
        panel_length(x->n, x->single && WIDE_VALUES / p.rows > most ? WIDE_VALUES / p.rows : most);
    p.down = count_up(x->m, p.rows);
    p.across = x->single && x->symmetric ? 1 : count_up(x->n, p.cols);
    p.count = x->symmetric && !x->single ? p.down * (p.down + 1) / 2 : p.down * p.across;
    return p;
}

/* ---- mirrors ---- */
/* Blocks of one cache line squared are transposed by tiles of 8 x 8 values in registers (f64: 4 x
 * 4), by AVX where the machine has it. Rows are often a page apart, which the hardware does not
 * prefetch, so the next block is, unless all of it fits into the second cache. A BLAS writes the
 * last columns last, so mirrors start with them. Time over that of syrk on a Xeon with AVX-512,
 * medians on a shared machine:
 *                                   f32 128   256   512   1024   f64 128   256   512   1024
 *   this code                          0.08  0.06  0.06   0.06      0.08  0.07  0.08   0.06
 *   from the first column              0.09  0.07  0.06   0.07      0.09  0.08  0.08   0.07
 *   without AVX                        0.11        0.08   0.08      0.10  0.09  0.09   0.07
 *   without prefetch                   0.07        0.11   0.11
 *   one read of half of the matrix     0.05  0.04  0.02   0.02      0.06  0.04  0.04   0.03
 *   one write of the other half        0.05  0.05  0.04   0.03      0.05  0.05  0.05   0.03
 * The last two rows are the least that a mirror needs. Stores that bypass the cache, a buffer for
 * each block, and prefetches of later blocks were not faster. */
enum { MIRROR_NEAR = 1 << 18 };
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
#define MIRROR_PICK __builtin_shufflevector
typedef float MirrorF32 __attribute__((vector_size(16)));
typedef double MirrorF64 __attribute__((vector_size(16)));

/* Separate variables instead of arrays: gcc would keep an array in memory. */
static inline void mirror_f32_4x4(const float *from, float *to, int64_t ld)
{
    MirrorF32 r0, r1, r2, r3, p, q;
    memcpy(&r0, from, sizeof r0);
    memcpy(&r1, from + ld, sizeof r1);
    memcpy(&r2, from + 2 * ld, sizeof r2);
    memcpy(&r3, from + 3 * ld, sizeof r3);
    p = MIRROR_PICK(r0, r1, 0, 4, 1, 5), q = MIRROR_PICK(r2, r3, 0, 4, 1, 5);
    r0 = MIRROR_PICK(r0, r1, 2, 6, 3, 7), r1 = MIRROR_PICK(r2, r3, 2, 6, 3, 7);
    r2 = MIRROR_PICK(p, q, 0, 1, 4, 5), r3 = MIRROR_PICK(p, q, 2, 3, 6, 7);
    p = MIRROR_PICK(r0, r1, 0, 1, 4, 5), q = MIRROR_PICK(r0, r1, 2, 3, 6, 7);
    memcpy(to, &r2, sizeof r2);
    memcpy(to + ld, &r3, sizeof r3);
    memcpy(to + 2 * ld, &p, sizeof p);
    memcpy(to + 3 * ld, &q, sizeof q);
}

static inline void mirror_f32_tile(const float *from, float *to, int64_t ld)
{
    mirror_f32_4x4(from, to, ld);
    mirror_f32_4x4(from + 4 * ld, to + 4, ld);
    mirror_f32_4x4(from + 4, to + 4 * ld, ld);
    mirror_f32_4x4(from + 4 * ld + 4, to + 4 * ld + 4, ld);
}

static inline void mirror_f64_2x2(const double *from, double *to, int64_t ld)
{
    MirrorF64 x, y, p, q;
    memcpy(&x, from, sizeof x);
    memcpy(&y, from + ld, sizeof y);
    p = MIRROR_PICK(x, y, 0, 2), q = MIRROR_PICK(x, y, 1, 3);
    memcpy(to, &p, sizeof p);
    memcpy(to + ld, &q, sizeof q);
}

static inline void mirror_f64_tile(const double *from, double *to, int64_t ld)
{
    mirror_f64_2x2(from, to, ld);
    mirror_f64_2x2(from + 2 * ld, to + 2, ld);
    mirror_f64_2x2(from + 2, to + 2 * ld, ld);
    mirror_f64_2x2(from + 2 * ld + 2, to + 2 * ld + 2, ld);
}
#else
#define MIRROR_TILE(NAME, T, SIDE) \
    static inline void NAME##_tile(const T *from, T *to, int64_t ld) \
    { \
        for (int j = 0; j < SIDE; j++) \
            for (int i = 0; i < SIDE; i++) to[j * ld + i] = from[i * ld + j]; \
    }
MIRROR_TILE(mirror_f32, float, 8)
MIRROR_TILE(mirror_f64, double, 4)
#endif

#if defined(__x86_64__) && defined(MIRROR_PICK)
#define MIRROR_AVX __attribute__((target("avx2")))
typedef float MirrorF32Avx __attribute__((vector_size(32)));

/* Rows i and i + 4 in one vector. */
MIRROR_AVX static inline MirrorF32Avx mirror_f32_pair(const float *from, int64_t ld)
{
    MirrorF32 low, high;
    memcpy(&low, from, sizeof low);
    memcpy(&high, from + 4 * ld, sizeof high);
    return MIRROR_PICK(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

MIRROR_AVX static inline void mirror_f32_8x4(const float *from, float *to, int64_t ld)
{
    MirrorF32Avx r0 = mirror_f32_pair(from, ld), r1 = mirror_f32_pair(from + ld, ld),
                 r2 = mirror_f32_pair(from + 2 * ld, ld), r3 = mirror_f32_pair(from + 3 * ld, ld),
                 p, q;
    p = MIRROR_PICK(r0, r1, 0, 8, 1, 9, 4, 12, 5, 13),
    q = MIRROR_PICK(r2, r3, 0, 8, 1, 9, 4, 12, 5, 13);
    r0 = MIRROR_PICK(r0, r1, 2, 10, 3, 11, 6, 14, 7, 15),
    r1 = MIRROR_PICK(r2, r3, 2, 10, 3, 11, 6, 14, 7, 15);
    r2 = MIRROR_PICK(p, q, 0, 1, 8, 9, 4, 5, 12, 13),
    r3 = MIRROR_PICK(p, q, 2, 3, 10, 11, 6, 7, 14, 15);
    p = MIRROR_PICK(r0, r1, 0, 1, 8, 9, 4, 5, 12, 13),
    q = MIRROR_PICK(r0, r1, 2, 3, 10, 11, 6, 7, 14, 15);
    memcpy(to, &r2, sizeof r2);
    memcpy(to + ld, &r3, sizeof r3);
    memcpy(to + 2 * ld, &p, sizeof p);
    memcpy(to + 3 * ld, &q, sizeof q);
}

MIRROR_AVX static inline void mirror_f32_avx_tile(const float *from, float *to, int64_t ld)
{
    mirror_f32_8x4(from, to, ld);
    mirror_f32_8x4(from + 4, to + 4 * ld, ld);
}

typedef double MirrorF64Avx __attribute__((vector_size(32)));

MIRROR_AVX static inline void mirror_f64_avx_tile(const double *from, double *to, int64_t ld)
{
    MirrorF64Avx r0, r1, r2, r3, p, q;
    memcpy(&r0, from, sizeof r0);
    memcpy(&r1, from + ld, sizeof r1);
    memcpy(&r2, from + 2 * ld, sizeof r2);
    memcpy(&r3, from + 3 * ld, sizeof r3);
    p = MIRROR_PICK(r0, r1, 0, 4, 2, 6), q = MIRROR_PICK(r0, r1, 1, 5, 3, 7);
    r0 = MIRROR_PICK(r2, r3, 0, 4, 2, 6), r1 = MIRROR_PICK(r2, r3, 1, 5, 3, 7);
    r2 = MIRROR_PICK(p, r0, 2, 3, 6, 7), r3 = MIRROR_PICK(q, r1, 2, 3, 6, 7);
    p = MIRROR_PICK(p, r0, 0, 1, 4, 5), q = MIRROR_PICK(q, r1, 0, 1, 4, 5);
    memcpy(to, &p, sizeof p);
    memcpy(to + ld, &q, sizeof q);
    memcpy(to + 2 * ld, &r2, sizeof r2);
    memcpy(to + 3 * ld, &r3, sizeof r3);
}
#endif

/* A part of rows x cols is mirrored from `from` to `to`.
 * NAME_block: two by two tiles. ahead: rows to the next block, or 0. NAME_edge: a part that is
 * smaller than a block.
 * NAME_diagonal: all below the diagonal of a square. */
#define MIRROR_OF(NAME, T, SIDE, ATTRIBUTES) \
    ATTRIBUTES static void NAME##_block(const T *from, T *to, int64_t ld, int64_t ahead) \
    { \
        for (int j = 0; j < 2 * SIDE; j += SIDE) { \
            for (int k = j; ahead && k < j + SIDE; k++) { \
                __builtin_prefetch(from + (k + ahead) * ld, 0); \
                __builtin_prefetch(to + k * ld + ahead, 1); \
            } \
            NAME##_tile(from + j, to + j * ld, ld); \
            NAME##_tile(from + SIDE * ld + j, to + j * ld + SIDE, ld); \
        } \
    } \
    ATTRIBUTES static void NAME##_edge(const T *from, T *to, int64_t rows, int64_t cols, \
                                       int64_t ld) \
    { \
        for (int64_t i0 = 0; i0 < rows; i0 += SIDE) \
            for (int64_t j0 = 0; j0 < cols; j0 += SIDE) \
                if (i0 + SIDE <= rows && j0 + SIDE <= cols) \
                    NAME##_tile(from + i0 * ld + j0, to + j0 * ld + i0, ld); \
                else \
                    for (int64_t j = j0; j < cols && j < j0 + SIDE; j++) \
                        for (int64_t i = i0; i < rows && i < i0 + SIDE; i++) \
                            to[j * ld + i] = from[i * ld + j]; \
    } \
    ATTRIBUTES static void NAME(const T *from, T *to, int64_t rows, int64_t cols, int64_t ld) \
    { \
        const int64_t side = 2 * SIDE, \
                      ahead = rows * ld * (int64_t)sizeof(T) > MIRROR_NEAR ? side : 0; \
        for (int64_t j = (cols - 1) / side * side; j >= 0; j -= side) \
            for (int64_t i = 0; i < rows; i += side) \
                if (i + side <= rows && j + side <= cols) \
                    NAME##_block(from + i * ld + j, to + j * ld + i, ld, \
                                 i + 2 * side <= rows ? ahead : 0); \
                else \
                    NAME##_edge(from + i * ld + j, to + j * ld + i, \
                                rows - i < side ? rows - i : side, \
                                cols - j < side ? cols - j : side, ld); \
    } \
    ATTRIBUTES static void NAME##_diagonal(T *c, int64_t rows, int64_t ld) \
    { \
        for (int64_t j0 = (rows - 1) / (2 * SIDE) * (2 * SIDE); j0 >= 0; j0 -= 2 * SIDE) { \
            int64_t end = j0 + 2 * SIDE < rows ? j0 + 2 * SIDE : rows; \
            for (int64_t j = j0; j < end; j += SIDE) { \
                int64_t next = j + SIDE < end ? j + SIDE : end; \
                for (int64_t k = j; k < next; k++) \
                    for (int64_t i = k + 1; i < next; i++) c[k * ld + i] = c[i * ld + k]; \
                NAME##_edge(c + next * ld + j, c + j * ld + next, end - next, next - j, ld); \
            } \
            NAME(c + end * ld + j0, c + j0 * ld + end, rows - end, end - j0, ld); \
        } \
    }
MIRROR_OF(mirror_f32, float, 8, )
MIRROR_OF(mirror_f64, double, 4, )
#ifdef MIRROR_AVX
MIRROR_OF(mirror_f32_avx, float, 8, MIRROR_AVX)
MIRROR_OF(mirror_f64_avx, double, 4, MIRROR_AVX)
#endif

#ifdef MIRROR_AVX
#define MIRROR_FAST(plain, avx) (__builtin_cpu_supports("avx2") ? (avx) : (plain))
#else
#define MIRROR_FAST(plain, avx) (plain)
#endif

/* Mirrors a block from below the diagonal of c to above it. */
static void mirror_block(const MatrixProduct *x, int64_t row, int64_t rows, int64_t col,
                         int64_t cols)
{
    int64_t below = row * x->ldc + col, above = col * x->ldc + row;
    if (x->f64) {
        double *c = (double *)(void *)x->c;
        MIRROR_FAST(mirror_f64, mirror_f64_avx)(c + below, c + above, rows, cols, x->ldc);
    } else {
        float *c = (float *)(void *)x->c;
        MIRROR_FAST(mirror_f32, mirror_f32_avx)(c + below, c + above, rows, cols, x->ldc);
    }
}

static void mirror_inside(const MatrixProduct *x, int64_t row, int64_t rows)
{
    int64_t at = row * x->ldc + row;
    if (x->f64)
        MIRROR_FAST(mirror_f64_diagonal, mirror_f64_avx_diagonal)
        ((double *)(void *)x->c + at, rows, x->ldc);
    else
        MIRROR_FAST(mirror_f32_diagonal, mirror_f32_avx_diagonal)
        ((float *)(void *)x->c + at, rows, x->ldc);
}

static void add_diagonal(const MatrixProduct *x, int64_t row, int64_t rows)
{
    double *f64 = (double *)(void *)x->c;
    float *f32 = (float *)(void *)x->c;
    for (int64_t i = row; x->diagonal != 0 && i < row + rows; i++)
        if (x->f64)
            f64[i * x->ldc + i] += x->diagonal;
        else
            f32[i * x->ldc + i] += (float)x->diagonal;
}

/* ---- blocks ---- */
/* Whether the integers of the BLAS hold all lengths. */
static bool block_fits(const Blas *blas, const Gemm *g)
{
    int64_t most = g->lda > g->ldb ? g->lda : g->ldb;
    most = g->ldc > most ? g->ldc : most;
    return blas->wide || (most <= INT_MAX && g->k <= INT_MAX && g->m <= INT_MAX && g->n <= INT_MAX);
}

/* Copies the summand into the result, which the product is then added to. */
static void copy_summand(const MatrixProduct *x, const Gemm *g, const char *from, size_t size)
{
    for (int64_t i = 0; i < g->m; i++)
        memcpy((char *)g->c + (size_t)(i * g->ldc) * size, from + (size_t)(i * x->ld_add) * size,
               (size_t)g->n * size);
}

/* Computes rows x cols of the result. lower: the block is on the diagonal of x x.T, and only its
 * lower half is needed. With beta 0 a BLAS may multiply the old values by zero, which keeps NaN. So
 * such a block is cleared first, and the product is added to the zeros: that saves the pass in
 * which the BLAS would multiply them. */
static void product_block(const Blas *blas, const MatrixProduct *x, int64_t row, int64_t rows,
                          int64_t col, int64_t cols, bool lower)
{
    size_t size = x->f64 ? sizeof(double) : sizeof(float);
    Gemm g;
    memset(&g, 0, sizeof g);
    g.f64 = x->f64;
    g.trans_a = x->a.transposed, g.trans_b = x->b.transposed;
    g.m = rows, g.n = cols, g.k = x->k;
    g.alpha = x->alpha, g.beta = x->beta;
    g.lda = x->a.ld, g.ldb = x->b.ld, g.ldc = x->ldc;
    g.a = x->a.at + (size_t)(row * (g.trans_a ? 1 : g.lda)) * size;
    g.b = x->b.at + (size_t)(col * (g.trans_b ? g.ldb : 1)) * size;
    g.c = x->c + (size_t)(row * g.ldc + col) * size;
    bool fits = block_fits(blas, &g);
    g.lower = lower && fits && blas->gemm[0] && g.alpha != 0;
    if (g.beta != 0 && x->add)
        copy_summand(x, &g, x->add + (size_t)(row * x->ld_add + col) * size, size);
    if (g.lower && g.beta == 0) {
        for (int64_t i = 0; i < g.m; i++)
            memset((char *)g.c + (size_t)(i * g.ldc) * size, 0, (size_t)(i + 1) * size);
        g.beta = 1;
    }
    if (fits)
        blas_gemm(blas, &g);
    else
        gemm_fallback(&g);
}

static void symmetric_panel(const Blas *blas, const MatrixProduct *x, int64_t row, int64_t rows,
                            int64_t col, int64_t end)
{
    int64_t left = (end < row ? end : row) - col;
    if (left > 0) {
        product_block(blas, x, row, rows, col, left, false);
        mirror_block(x, row, rows, col, left);
    }
    if (end > row) {
        product_block(blas, x, row, rows, row, rows, x->gram);
        add_diagonal(x, row, rows);
        mirror_inside(x, row, rows);
    }
}

CORE void product_panel(const Blas *blas, const MatrixProduct *x, Panels cut, int64_t panel)
{
    int64_t i = 0, j = panel;
    if (!x->symmetric) {
        i = panel / cut.across, j = panel % cut.across;
    /* whole rows up to the diagonal, the longest first */
    } else if (x->single) {
        i = cut.down - 1 - panel, j = 0;
    } else {
        for (; j > i; i++)
            j -= i + 1;
    }
    int64_t row = i * cut.rows, rows = x->m - row < cut.rows ? x->m - row : cut.rows,
            col = j * cut.cols, cols = x->n - col < cut.cols ? x->n - col : cut.cols;
    if (!x->symmetric)
        product_block(blas, x, row, rows, col, cols, false);
    else
        symmetric_panel(blas, x, row, rows, col, x->single ? row + rows : col + cols);
}

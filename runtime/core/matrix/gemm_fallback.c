/* Matrix product for machines without a BLAS. Blocks of both operands are packed, so that the
 * innermost loop reads them sequentially, and six rows by two vectors of the result stay in
 * registers.
 *
 * Every element is a sum over k in order, in sections of DEPTH: results do not depend on which
 * thread computes a panel. The packed blocks are on the stack, some 100 KB, since threads may have
 * small stacks. */
#include "runtime/core/matrix/cpu_calls.h"

#include <string.h>

enum { STRIP = 6, DOWN_MOST = 8 * STRIP, DEPTH = 128, ACROSS_MOST = 64 };

/* Fused multiply-add where the machine has it: rounded once, and twice as fast. */
#if defined(__clang__)
#define PRODUCT_FAST
#define PRODUCT_FUSED _Pragma("clang fp contract(fast)")
#elif defined(__GNUC__)
#define PRODUCT_FAST __attribute__((optimize("fp-contract=fast")))
#define PRODUCT_FUSED
#endif

/* kernel: c += alpha * (a b) for STRIP x 2 vectors of the result, from packed strips; only `rows` x
 * `cols` of them are stored. Its sums are separate variables: a compiler that does not split arrays
 * would keep an array in memory. pack: copies n rows (or columns) x depth into strips, padded with
 * zeros. run: c = beta c + alpha a b. */
#define PRODUCT_ROW(i) \
    s##i##0 += a[i] * v[0]; \
    s##i##1 += a[i] * v[1];
#define PRODUCT_OF(NAME, T, BYTES, ATTRIBUTES) \
    typedef T NAME##_vector __attribute__((vector_size(BYTES))); \
    enum { NAME##_wide = 2 * BYTES / (int)sizeof(T) }; \
    ATTRIBUTES static void NAME##_kernel(const T *a, const T *b, int depth, T alpha, T *c, \
                                         int64_t ldc, int rows, int cols) \
    { \
        PRODUCT_FUSED \
        const NAME##_vector *v = (const NAME##_vector *)(const void *)b, none = {0}; \
        NAME##_vector s00 = none, s01 = none, s10 = none, s11 = none, s20 = none, s21 = none, \
                      s30 = none, s31 = none, s40 = none, s41 = none, s50 = none, s51 = none; \
        for (int k = 0; k < depth; k++, a += STRIP, v += 2) { \
            PRODUCT_ROW(0) \
            PRODUCT_ROW(1) PRODUCT_ROW(2) PRODUCT_ROW(3) PRODUCT_ROW(4) PRODUCT_ROW(5) \
        } \
        const NAME##_vector sum[STRIP][2] = {{s00, s01}, {s10, s11}, {s20, s21}, \
                                             {s30, s31}, {s40, s41}, {s50, s51}}; \
        T out[STRIP][NAME##_wide]; \
        memcpy(out, sum, sizeof out); \
        for (int i = 0; i < rows; i++) \
            for (int j = 0; j < cols; j++) c[i * ldc + j] += alpha * out[i][j]; \
    } \
    static void NAME##_pack(T *to, const T *from, int64_t along, int64_t row_stride, int n, \
                            int depth, int strip) \
    { \
        for (int at = 0; at < n; at += strip, to += strip * depth, from += strip * row_stride) { \
            int there = product_part(n - at, strip); \
            if (there < strip) memset(to, 0, sizeof *to *(size_t)(strip * depth)); \
            for (int i = 0; row_stride != 1 && i < there; i++) \
                for (int k = 0; k < depth; k++) \
                    to[k * strip + i] = from[i * row_stride + k * along]; \
            for (int k = 0; row_stride == 1 && k < depth; k++) \
                for (int i = 0; i < there; i++) to[k * strip + i] = from[k * along + i]; \
        } \
    } \
    static void NAME##_start(const Gemm *g, T *c) \
    { \
        for (int64_t i = 0; i < g->m; i++, c += g->ldc) \
            for (int64_t j = 0; j < g->n; j++) c[j] = g->beta != 0 ? (T)g->beta * c[j] : 0; \
    } \
    static void NAME##_run(const Gemm *g) \
    { \
        __attribute__((aligned(64))) T pa[DOWN_MOST * DEPTH], pb[ACROSS_MOST * DEPTH]; \
        const T *a = (const T *)g->a, *b = (const T *)g->b; \
        int64_t a_down = g->trans_a ? 1 : g->lda, a_deep = g->trans_a ? g->lda : 1; \
        int64_t b_across = g->trans_b ? g->ldb : 1, b_deep = g->trans_b ? 1 : g->ldb; \
        T *c = (T *)g->c; \
        NAME##_start(g, c); \
        for (int64_t k = 0; k < g->k; k += DEPTH) \
            for (int64_t j = 0; j < g->n; j += ACROSS_MOST) { \
                int deep = product_part(g->k - k, DEPTH), \
                    across = product_part(g->n - j, ACROSS_MOST); \
                NAME##_pack(pb, b + j * b_across + k * b_deep, b_deep, b_across, across, deep, \
                            NAME##_wide); \
                for (int64_t i = 0; i < g->m; i += DOWN_MOST) { \
                    int down = product_part(g->m - i, DOWN_MOST); \
                    NAME##_pack(pa, a + i * a_down + k * a_deep, a_deep, a_down, down, deep, \
                                STRIP); \
                    for (int y = 0; y < across; y += NAME##_wide) \
                        for (int x = 0; x < down; x += STRIP) \
                            NAME##_kernel(pa + x * deep, pb + y * deep, deep, (T)g->alpha, \
                                          c + (i + x) * g->ldc + j + y, g->ldc, \
                                          product_part(down - x, STRIP), \
                                          product_part(across - y, NAME##_wide)); \
                } \
            } \
    }

static int product_part(int64_t left, int most) { return left < most ? (int)left : most; }

PRODUCT_OF(product_f32, float, 16, PRODUCT_FAST)
PRODUCT_OF(product_f64, double, 16, PRODUCT_FAST)
#if defined(__x86_64__)
PRODUCT_OF(product_f32_avx2, float, 32, PRODUCT_FAST __attribute__((target("avx2,fma"))))
PRODUCT_OF(product_f64_avx2, double, 32, PRODUCT_FAST __attribute__((target("avx2,fma"))))
#endif

CORE void gemm_fallback(const Gemm *g)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        if (g->f64)
            product_f64_avx2_run(g);
        else
            product_f32_avx2_run(g);
        return;
    }
#endif
    if (g->f64)
        product_f64_run(g);
    else
        product_f32_run(g);
}

/* A product of our own, where there is no BLAS: blocks of both operands are packed so that the innermost loop reads
 * them one after another, and six rows by two vectors of the result stay in registers.
 *
 * Every element is a sum over k in order, in pieces of DEPTH; who computes which panel changes no bit. The blocks lie on
 * the stack, which threads may have little of: some 100 KB. */
#include "core.h"

#include <string.h>

enum { STRIP = 6, DOWN_MOST = 8 * STRIP, DEPTH = 128, ACROSS_MOST = 64 };

/* A multiplication and an addition in one where the machine has it: rounded once, and twice as fast. */
#if defined(__clang__)
#define PRODUCT_FAST
#define PRODUCT_FUSED _Pragma("clang fp contract(fast)")
#elif defined(__GNUC__)
#define PRODUCT_FAST __attribute__((optimize("fp-contract=fast")))
#define PRODUCT_FUSED
#endif

/* kernel: STRIP x 2 vectors of the result, c += alpha * (a b), of packed strips; rows, cols: as many of them are there.
 * pack_a: rows x depth in strips of STRIP rows, pack_b: depth x cols in strips of two vectors; zeros where there is
 * nothing. run: c = beta c + alpha a b. */
#define PRODUCT_OF(NAME, T, BYTES, ATTRIBUTES)                                                                         \
    typedef T NAME##_vector __attribute__((vector_size(BYTES)));                                                       \
    enum { NAME##_wide = 2 * BYTES / (int)sizeof(T) };                                                                 \
    ATTRIBUTES static void NAME##_kernel(const T *a, const T *b, int depth, T alpha, T *c, int64_t ldc, int rows,      \
                                         int cols)                                                                     \
    {                                                                                                                  \
        PRODUCT_FUSED                                                                                                  \
        NAME##_vector sum[STRIP][2];                                                                                   \
        T out[STRIP][NAME##_wide];                                                                                     \
        memset(sum, 0, sizeof sum);                                                                                    \
        for (int k = 0; k < depth; k++, a += STRIP, b += NAME##_wide) {                                                \
            const NAME##_vector *v = (const NAME##_vector *)(const void *)b;                                           \
            for (int i = 0; i < STRIP; i++) {                                                                          \
                sum[i][0] += a[i] * v[0];                                                                              \
                sum[i][1] += a[i] * v[1];                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        memcpy(out, sum, sizeof out);                                                                                  \
        for (int i = 0; i < rows; i++)                                                                                 \
            for (int j = 0; j < cols; j++)                                                                             \
                c[i * ldc + j] += alpha * out[i][j];                                                                   \
    }                                                                                                                  \
    static void NAME##_pack(T *to, const T *from, int64_t along, int64_t apart, int n, int depth, int strip)           \
    {                                                                                                                  \
        for (int at = 0; at < n; at += strip, to += strip * depth)                                                     \
            for (int i = 0; i < strip; i++)                                                                            \
                for (int k = 0; k < depth; k++)                                                                        \
                    to[k * strip + i] = at + i < n ? from[(at + i) * apart + k * along] : 0;                           \
    }                                                                                                                  \
    static void NAME##_start(const Gemm *g, T *c)                                                                      \
    {                                                                                                                  \
        for (int64_t i = 0; i < g->m; i++, c += g->ldc)                                                                \
            for (int64_t j = 0; j < g->n; j++)                                                                         \
                c[j] = g->beta != 0 ? (T)g->beta * c[j] : 0;                                                           \
    }                                                                                                                  \
    static void NAME##_run(const Gemm *g)                                                                              \
    {                                                                                                                  \
        __attribute__((aligned(64))) T pa[DOWN_MOST * DEPTH], pb[ACROSS_MOST * DEPTH];                                 \
        const T *a = (const T *)g->a, *b = (const T *)g->b;                                                            \
        int64_t a_down = g->turn_a ? 1 : g->lda, a_deep = g->turn_a ? g->lda : 1;                                      \
        int64_t b_across = g->turn_b ? g->ldb : 1, b_deep = g->turn_b ? 1 : g->ldb;                                    \
        T *c = (T *)g->c;                                                                                              \
        NAME##_start(g, c);                                                                                            \
        for (int64_t k = 0; k < g->k; k += DEPTH)                                                                      \
            for (int64_t j = 0; j < g->n; j += ACROSS_MOST) {                                                          \
                int deep = product_part(g->k - k, DEPTH), across = product_part(g->n - j, ACROSS_MOST);                \
                NAME##_pack(pb, b + j * b_across + k * b_deep, b_deep, b_across, across, deep, NAME##_wide);           \
                for (int64_t i = 0; i < g->m; i += DOWN_MOST) {                                                        \
                    int down = product_part(g->m - i, DOWN_MOST);                                                      \
                    NAME##_pack(pa, a + i * a_down + k * a_deep, a_deep, a_down, down, deep, STRIP);                   \
                    for (int y = 0; y < across; y += NAME##_wide)                                                      \
                        for (int x = 0; x < down; x += STRIP)                                                          \
                            NAME##_kernel(pa + x * deep, pb + y * deep, deep, (T)g->alpha,                             \
                                          c + (i + x) * g->ldc + j + y, g->ldc, product_part(down - x, STRIP),         \
                                          product_part(across - y, NAME##_wide));                                      \
                }                                                                                                      \
            }                                                                                                          \
    }

static int product_part(int64_t left, int most) { return left < most ? (int)left : most; }

PRODUCT_OF(product_f32, float, 16, PRODUCT_FAST)
PRODUCT_OF(product_f64, double, 16, PRODUCT_FAST)
#if defined(__x86_64__)
PRODUCT_OF(product_f32_avx2, float, 32, PRODUCT_FAST __attribute__((target("avx2,fma"))))
PRODUCT_OF(product_f64_avx2, double, 32, PRODUCT_FAST __attribute__((target("avx2,fma"))))
#endif

CORE void product_own(const Gemm *g)
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

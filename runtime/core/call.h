/* Products on the CPU: shapes of calls, and who computes them. */
#ifndef OPTC_CORE_CALL_H
#define OPTC_CORE_CALL_H
#include "core.h"

/* ---- call.c ---- */
/* One matrix's product: m x k by k x n. Of a, b, c and the result: the distance of rows as they lie */
typedef struct ProductShape { int64_t slices, m, n, k, ld[4]; } ProductShape;
CORE ProductShape product_shape(const Program *p, const ProgCall *c, Shape s, int64_t apart);      /* rows_apart */
CORE optc_status calls_check(const Program *p);

CORE optc_status bad_call(const Program *p, const ProgStage *s, const char *what);

/* ---- factors.c: powers, triangles, orthonormal columns ---- */
CORE double factor_flops(const Program *p, const ProgCall *c, Shape s);
CORE optc_status factor_check(const Program *p, const ProgStage *s);
CORE int64_t factor_pieces(const Program *p, const ProgCall *c, Shape s);
CORE int64_t factor_room(const Program *p, const ProgCall *c, Shape s);
CORE void factor_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t piece, int who);

/* ---- blas.c, product.c ---- */
/* gemm, syrk: for f32 and f64; NULL: our own product. wide: integers of 64 bits. How a call is held to one thread:
 * local sets it for the calling thread and gives what was, or get and set do; all NULL: it has one */
typedef struct Blas {
    void *gemm[2], *syrk[2];
    bool wide;
    int (*local)(int), (*get)(void);
    void (*set)(int);
    char about[240];
} Blas;
/* c = alpha a b + beta c, by rows; beta 0: c is not read. lower: b is a turned, and the lower half is enough */
typedef struct Gemm {
    bool f64, turn_a, turn_b, lower;
    int64_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
    const void *a, *b;
    void *c;
} Gemm;
CORE optc_status blas_open(Blas *out, const char *call);
CORE void blas_gemm(const Blas *x, const Gemm *g);
CORE void product_own(const Gemm *g);
#endif

/* Products on the CPU: shapes of calls, and who computes them. */
#ifndef OPTC_CORE_CALL_H
#define OPTC_CORE_CALL_H
#include "runtime/core/api/core.h"

/* ---- cpu_calls.c ---- */
/* One matrix's product: m x k by k x n. Of a, b, c and the result: the distance of rows as they lie */
typedef struct ProductShape { int64_t slices, m, n, k, ld[4]; } ProductShape;
CORE ProductShape product_shape(const Program *p, const ProgCall *c, Shape s, int64_t row_stride);      /* row_stride */
CORE optc_status calls_check(const Program *p);

/* The tensors, or views of their blocks, that a call goes over are some of these. */
typedef struct Range { int from, to; } Range;
CORE Range call_range(const optc_binding *b, const ProgStage *s);
CORE optc_status bad_call(const Program *p, const ProgStage *s, const char *what);

/* ---- factor_stats.c ---- */
CORE bool stage_factor(const ProgStage *s);
CORE optc_status factor_stats_make(optc_binding *b);               /* stats_at */
CORE int64_t factor_stats_first(const optc_binding *b, const ProgStage *s, int tensor);    /* of its matrices */

/* ---- matrix_view.c ---- */
/* A matrix of an array as it lies, rows so many values apart. Values along one axis are one column. */
typedef struct MatrixView { char *at; int64_t rows, cols, row_stride; bool f64; } MatrixView;
CORE MatrixView matrix_view(const optc_binding *b, const Tensor *t, int array, int64_t nth);
CORE void matrix_view_load(double *to, const MatrixView *x);                       /* row by row */
CORE void matrix_view_store(const MatrixView *x, const double *from);              /* NULL: NaN throughout */
CORE void matrix_view_copy(const MatrixView *x, const MatrixView *from);                /* of one shape and type */
CORE bool matrix_view_fits(const MatrixView *x, const double *from);              /* all of it is finite in its type */
CORE double *call_scratch(const optc_binding *b, int thread);                 /* what a thread works in */

/* ---- cpu_factors.c: powers, triangles, orthonormal columns, eigenvectors, solutions ---- */
CORE void factor_sides(const Program *p, const ProgCall *c, Shape s, int64_t *m, int64_t *n);
CORE double factor_flops(const Program *p, const ProgCall *c, Shape s);
CORE optc_status factor_check(const Program *p, const ProgStage *s);
CORE int64_t factor_jobs(const Program *p, const ProgCall *c, Shape s);
CORE int64_t factor_scratch(const Program *p, const ProgCall *c, Shape s);
CORE void factor_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job, int thread);

/* ---- sort_take.c: places by value, and what stands there ---- */
CORE double order_flops(const Program *p, const ProgCall *c, Shape s);
CORE optc_status order_check(const Program *p, const ProgStage *s);
CORE int64_t sort_jobs(const Program *p, const ProgCall *c, Shape s);
CORE int64_t sort_scratch(const Program *p, const ProgCall *c, Shape s);
CORE void sort_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job, int thread);
CORE int64_t take_jobs(const Program *p, const ProgCall *c, Shape s);
CORE void take_run(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job, int thread);

/* ---- blas.c, gemm_fallback.c ---- */
/* The functions that factors call, and their names without affixes. */
#define LAPACK_FUNCTIONS(X) \
    X(SYEVD, "dsyevd_") X(POTRF, "dpotrf_") X(GEQRF, "dgeqrf_") X(ORGQR, "dorgqr_") X(TRSM, "cblas_dtrsm")
#define LAPACK_ID(ID, name) LAPACK_##ID,
typedef enum { LAPACK_FUNCTIONS(LAPACK_ID) LAPACK_COUNT } LapackCall;
/* gemm, syrk: for f32 and f64; NULL: our own product. lapack: f64, by LapackCall; all of them NULL: our own factors.
 * wide: integers of 64 bits. How a call is held to one thread: local sets it for the calling thread and gives what was,
 * or get and set do; all NULL: it has one */
typedef struct Blas {
    void *gemm[2], *syrk[2], *lapack[LAPACK_COUNT];
    bool wide;
    int (*local)(int), (*get)(void);
    void (*set)(int);
    char about[240];
} Blas;
/* c = alpha a b + beta c, by rows; beta 0: c is not read. lower: b is a turned, and the lower half is enough */
typedef struct Gemm {
    bool f64, trans_a, trans_b, lower;
    int64_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
    const void *a, *b;
    void *c;
} Gemm;
CORE optc_status blas_open(Blas *out, const char *call);
CORE void blas_gemm(const Blas *x, const Gemm *g);
CORE void gemm_fallback(const Gemm *g);
CORE int blas_hold(const Blas *x);                                      /* to one thread; what blas_release takes */
CORE void blas_release(const Blas *x, int was);

/* ---- lapack.c: as lapack_fallback.h, where the library has it; false: it has not, or could not ---- */
CORE bool lapack_eigh(const Blas *x, double *a, int64_t n, double *value, double *work);
CORE bool lapack_qr(const Blas *x, double *a, int64_t m, int64_t n, double *work);
CORE bool lapack_chol(const Blas *x, double *a, int64_t n);
/* b of rows x cols, as it lies; right: the triangle stands behind it */
CORE bool lapack_solve(const Blas *x, const double *l, int64_t n, bool transposed, bool right, double *b, int64_t rows,
                       int64_t cols);
CORE int64_t lapack_eigh_work(int64_t n);                               /* doubles */
CORE int64_t lapack_qr_work(int64_t m, int64_t n);
#endif

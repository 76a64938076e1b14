/* Matrix calls on the CPU: shapes of products, views of matrices, factors, and the BLAS or the
 * kernels of our own that compute them. */
#ifndef OPTC_CORE_CALL_H
#define OPTC_CORE_CALL_H
#include "runtime/core/base/call_costs.h"
#include "runtime/core/base/callees.h"
#include "runtime/core/bind/bind.h"

/* ---- cpu_calls.c ---- */
CORE optc_status calls_check(const Program *p);

/* A job of a call, for the functions in the column `run` of methods.def. thread: index of the
 * calling thread in its team */
typedef struct CpuJob {
    const optc_binding *b; const ProgCall *c; const Tensor *t; int64_t job; int thread;
} CpuJob;

/* Indices of the tensors, or of the views of their blocks, that a call works on: from <= i < to. */
typedef struct Range { int from, to; } Range;
CORE Range call_range(const optc_binding *b, const ProgStage *s);
CORE optc_status bad_call(const Program *p, const ProgStage *s, const char *what);

/* ---- factor_stats.c ---- */
CORE bool stage_factor(const ProgStage *s);
/* sets stats_factor, nfactor, stats_at */
CORE optc_status factor_stats_make(optc_binding *b);
/* index of the statistics of its first matrix */
CORE int64_t factor_stats_first(const optc_binding *b, const ProgStage *s, int tensor);

/* ---- matrix_view.c ---- */
/* One matrix of an array. row_stride: in values. An array along one axis is a matrix of one
 * column. */
typedef struct MatrixView { char *at; int64_t rows, cols, row_stride; bool f64; } MatrixView;
CORE MatrixView matrix_view(const optc_binding *b, const Tensor *t, int array, int64_t nth);
/* to: without gaps */
CORE void matrix_view_load(double *to, const MatrixView *x);
/* from NULL: fills it with NaN */
CORE void matrix_view_store(const MatrixView *x, const double *from);
/* both have one shape and type */
CORE void matrix_view_copy(const MatrixView *x, const MatrixView *from);
/* every value is finite in the view's type */
CORE bool matrix_view_fits(const MatrixView *x, const double *from);
/* the thread's share of call_space */
CORE double *call_scratch(const optc_binding *b, int thread);

/* ---- cpu_factors.c: powers, triangles, orthonormal columns, eigenvectors, solutions ---- */
CORE optc_status factor_check(const Program *p, const ProgStage *s);
CORE int64_t factor_jobs(const Program *p, const ProgCall *c, Shape s);
CORE int64_t factor_scratch(const Program *p, const ProgCall *c, Shape s);
CORE bool inverse_run(const CpuJob *j);
CORE bool spectral_run(const CpuJob *j);
CORE bool chol_run(const CpuJob *j);
CORE bool qr_run(const CpuJob *j);
CORE bool eigh_run(const CpuJob *j);
CORE bool solve_run(const CpuJob *j);
/* no method computed the factor: stores the previous value, or NaN */
CORE void factor_failed(const CpuJob *j);

/* ---- sort_take.c: order of values, and rows or columns by index ---- */
CORE optc_status order_check(const Program *p, const ProgStage *s);
/* indices are not rounded */
CORE optc_status order_exact(const optc_binding *b, const ProgStage *s, int tensor);
CORE int64_t sort_jobs(const Program *p, const ProgCall *c, Shape s);
CORE int64_t sort_scratch(const Program *p, const ProgCall *c, Shape s);
CORE bool sort_run(const CpuJob *j);
CORE int64_t take_jobs(const Program *p, const ProgCall *c, Shape s);
CORE bool take_run(const CpuJob *j);

/* ---- blas.c, gemm_fallback.c ---- */
/* The LAPACK functions that factors call; names without prefix and suffix. The last two may be
 * missing. */
#define LAPACK_FUNCTIONS(X) \
    X(SYEVD, "dsyevd_") \
    X(POTRF, "dpotrf_") X(GEQRF, "dgeqrf_") X(ORGQR, "dorgqr_") X(TRSM, "cblas_dtrsm") \
        X(GEQRT, "dgeqrt_") X(LARFB, "dlarfb_")
#define LAPACK_ID(ID, name) LAPACK_##ID,
typedef enum { LAPACK_FUNCTIONS(LAPACK_ID) LAPACK_COUNT } LapackCall;
/* An opened BLAS:
 *   gemm, syrk  functions for f32 and f64; NULL: gemm_fallback computes products
 *   lapack      functions for f64, by LapackCall; all NULL: lapack_fallback.c computes factors
 *   wide        its integers have 64 bits
 *   local       sets the number of threads for the calling thread and returns the previous number
 *   get, set    the same where there is no `local`; all three NULL: the library runs on one thread
 *   about       its name and file, for messages
 *   core        the core type of an OpenBLAS's kernels; "": unknown
 *   chooses     it chose among kernels of several core types
 *   shared      the process uses it too */
typedef struct Blas {
    void *gemm[2], *syrk[2], *lapack[LAPACK_COUNT];
    bool wide;
    int (*local)(int), (*get)(void);
    void (*set)(int);
    char about[240], core[24];
    bool chooses, shared;
} Blas;
/* c = alpha a b + beta c, row-major. With beta 0, c is not read. lower: b is a transposed, and only
 * the lower triangle of c is needed. */
typedef struct Gemm {
    bool f64, trans_a, trans_b, lower;
    int64_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
    const void *a, *b;
    void *c;
} Gemm;
CORE optc_status blas_open(Blas *out, const char *call);
/* fills in about, core, chooses; false: it is no OpenBLAS */
CORE bool blas_about(void *library, Blas *x);
CORE void blas_gemm(const Blas *x, const Gemm *g);
CORE void gemm_fallback(const Gemm *g);
CORE int blas_hold(const Blas *x);  /* limits calls to one thread; returns what blas_release
                                     * takes */
CORE void blas_release(const Blas *x, int was);

/* ---- cpu_level.c, blas_kernels.c ---- */
CORE int cpu_level(void);
/* dlopen, which has an OpenBLAS choose kernels of the CPU's vector level. */
CORE void *blas_dlopen(const char *name, int how);
/* What is wrong with the library's kernels, and what to do; "": nothing. */
CORE void blas_warning(const Blas *x, char *text, size_t n);

/* ---- lapack.c: functions of lapack_fallback.h by LAPACK; false: there is no LAPACK, or it failed
 * ---- */
CORE bool lapack_eigh(const Blas *x, double *a, int64_t n, double *value, double *work);
CORE bool lapack_qr(const Blas *x, double *a, int64_t m, int64_t n, double *work);
CORE bool lapack_chol(const Blas *x, double *a, int64_t n);
/* b: rows x cols, row-major. right: solves X L = b instead of L X = b, likewise with L
 * transposed. */
CORE bool lapack_solve(const Blas *x, const double *l, int64_t n, bool transposed, bool right,
                       double *b, int64_t rows, int64_t cols);
CORE int64_t lapack_eigh_work(int64_t n);                               /* doubles */
CORE int64_t lapack_qr_work(int64_t m, int64_t n);
#endif

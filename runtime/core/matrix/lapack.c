/* Factors by the LAPACK that comes with a BLAS, in f64, one thread per call. LAPACK is column-major: a row-major matrix
 * is its transpose there, and a lower triangle an upper one. Values that are not finite must not reach it. */
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/lapack_fallback.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* constants of CBLAS */
enum { TRSM_ROWS = 101, TRSM_PLAIN = 111, TRSM_TRANS, TRSM_LOWER = 122, TRSM_DIAGONAL = 131 };
enum { TRSM_LEFT = 141, TRSM_RIGHT };
enum { QR_COLUMNS = 64 };                      /* columns per block */

/* The functions with integers of type I. A Fortran compiler appends the length of every string argument. */
#define LAPACK_OF(I, S)                                                                                               \
typedef void (*Syevd##S)(const char *, const char *, const I *, double *, const I *, double *, double *, const I *,   \
                         I *, const I *, I *, size_t, size_t);                                                        \
typedef void (*Potrf##S)(const char *, const I *, double *, const I *, I *, size_t);                                  \
typedef void (*Geqrf##S)(const I *, const I *, double *, const I *, double *, double *, const I *, I *);              \
typedef void (*Orgqr##S)(const I *, const I *, const I *, double *, const I *, const double *, double *,              \
                         const I *, I *);                                                                             \
typedef void (*Trsm##S)(int, int, int, int, int, I, I, double, const double *, I, double *, I);                       \
                                                                                                                      \
static bool syevd##S(void *f, double *a, int64_t n, double *value, double *work, int64_t doubles, void *whole)        \
{                                                                                                                     \
    Syevd##S call;                                                                                                    \
    I side = (I)n, have = (I)doubles, more = (I)(3 + 5 * n), info = 0;                                                \
    memcpy(&call, &f, sizeof call);                                                                                   \
    call("V", "U", &side, a, &side, value, work, &have, (I *)whole, &more, &info, 1, 1);                              \
    return info == 0;                                                                                                 \
}                                                                                                                     \
static bool potrf##S(void *f, double *a, int64_t n)                                                                   \
{                                                                                                                     \
    Potrf##S call;                                                                                                    \
    I side = (I)n, info = 0;                                                                                          \
    memcpy(&call, &f, sizeof call);                                                                                   \
    call("U", &side, a, &side, &info, 1);                                                                             \
    return info == 0;                                                                                                 \
}                                                                                                                     \
static bool geqrf##S(void *f, double *a, int64_t m, int64_t n, double *tau, double *work, int64_t doubles)            \
{                                                                                                                     \
    Geqrf##S call;                                                                                                    \
    I rows = (I)m, cols = (I)n, have = (I)doubles, info = 0;                                                          \
    memcpy(&call, &f, sizeof call);                                                                                   \
    call(&rows, &cols, a, &rows, tau, work, &have, &info);                                                            \
    return info == 0;                                                                                                 \
}                                                                                                                     \
static bool orgqr##S(void *f, double *a, int64_t m, int64_t n, const double *tau, double *work, int64_t doubles)      \
{                                                                                                                     \
    Orgqr##S call;                                                                                                    \
    I rows = (I)m, cols = (I)n, have = (I)doubles, info = 0;                                                          \
    memcpy(&call, &f, sizeof call);                                                                                   \
    call(&rows, &cols, &cols, a, &rows, tau, work, &have, &info);                                                     \
    return info == 0;                                                                                                 \
}                                                                                                                     \
static void trsm##S(void *f, int side, int transposed, int64_t m, int64_t n, const double *l, int64_t of, double *b)   \
{                                                                                                                     \
    Trsm##S call;                                                                                                     \
    memcpy(&call, &f, sizeof call);                                                                                   \
    call(TRSM_ROWS, side, TRSM_LOWER, transposed, TRSM_DIAGONAL, (I)m, (I)n, 1, l, (I)of, b, (I)n);                    \
}

LAPACK_OF(int, 32)
LAPACK_OF(int64_t, 64)

/* The library has the functions, and its integers can count to n. */
static bool counts(const Blas *x, int64_t n) { return x->lapack[0] && (x->wide || n <= INT_MAX); }

/* ---- eigenvectors ---- */
static int64_t syevd_doubles(int64_t n) { return 1 + 6 * n + 2 * dom_times(n, n); }
CORE int64_t lapack_eigh_work(int64_t n) { return syevd_doubles(n) + 5 * n + 3; }

static void swap_rows(double *a, double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

CORE bool lapack_eigh(const Blas *x, double *a, int64_t n, double *value, double *work)
{
    int64_t doubles = syevd_doubles(n);
    void *f = x->lapack[LAPACK_SYEVD];
    if (!counts(x, doubles))
        return false;
    dense_mirror(a, n);
    double scale = dense_even(a, n * n);
    if (scale == 0)
        return false;
    int was = blas_hold(x);
    bool done = x->wide ? syevd64(f, a, n, value, work, doubles, work + doubles)
                        : syevd32(f, a, n, value, work, doubles, work + doubles);
    blas_release(x, was);
    for (int64_t i = 0, j = n - 1; done && i < j; i++, j--) {          /* LAPACK returns the smallest first */
        swap_rows(a + i * n, a + j * n, n);
        swap_rows(value + i, value + j, 1);
    }
    for (int64_t i = 0; i < n && done; i++)
        value[i] /= scale;
    if (done)
        dense_signs(a, n);
    return done;
}

/* ---- orthonormal columns ---- */
CORE int64_t lapack_qr_work(int64_t m, int64_t n) { return dom_times(m, n) + (2 + QR_COLUMNS) * n; }

CORE bool lapack_qr(const Blas *x, double *a, int64_t m, int64_t n, double *work)
{
    double *col = work, *tau = col + m * n, *r = tau + n, *more = r + n;
    int64_t doubles = QR_COLUMNS * n;
    void *geqrf = x->lapack[LAPACK_GEQRF], *orgqr = x->lapack[LAPACK_ORGQR];
    if (m < n || !counts(x, m > doubles ? m : doubles) || dense_even(a, m * n) == 0)
        return false;
    dense_transpose(col, a, m, n);
    int was = blas_hold(x);
    bool done = x->wide ? geqrf64(geqrf, col, m, n, tau, more, doubles) : geqrf32(geqrf, col, m, n, tau, more, doubles);
    for (int64_t k = 0; k < n; k++)
        r[k] = col[k * m + k];
    done = done && (x->wide ? orgqr64(orgqr, col, m, n, tau, more, doubles)
                            : orgqr32(orgqr, col, m, n, tau, more, doubles));
    blas_release(x, was);
    for (int64_t k = 0; k < n && done; k++)
        for (int64_t i = 0; i < m && r[k] < 0; i++)
            col[k * m + i] = -col[k * m + i];
    if (done)
        dense_transpose(a, col, n, m);
    return done;
}

/* ---- triangles ---- */
static bool triangle_finite(const double *a, int64_t n)
{
    int64_t outside = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            outside += !(fabs(a[i * n + j]) <= 1.7976931348623157e308);
    return outside == 0;
}

CORE bool lapack_chol(const Blas *x, double *a, int64_t n)
{
    void *f = x->lapack[LAPACK_POTRF];
    if (!counts(x, n) || !triangle_finite(a, n))
        return false;
    int was = blas_hold(x);
    bool done = x->wide ? potrf64(f, a, n) : potrf32(f, a, n);
    blas_release(x, was);
    for (int64_t i = 0; i < n; i++)
        memset(a + i * n + i + 1, 0, sizeof *a * (size_t)(n - i - 1));
    return done;
}

CORE bool lapack_solve(const Blas *x, const double *l, int64_t n, bool transposed, bool right, double *b, int64_t rows,
                       int64_t cols)
{
    void *f = x->lapack[LAPACK_TRSM];
    int side = right ? TRSM_RIGHT : TRSM_LEFT, how = transposed ? TRSM_TRANS : TRSM_PLAIN;
    if (!counts(x, rows > cols ? rows : cols))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (l[i * n + i] == 0)
            return false;
    int was = blas_hold(x);
    if (x->wide)
        trsm64(f, side, how, rows, cols, l, n, b);
    else
        trsm32(f, side, how, rows, cols, l, n, b);
    blas_release(x, was);
    return true;
}

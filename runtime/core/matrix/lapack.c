/* Factors by the LAPACK that comes with a BLAS, in f64, one thread per call. LAPACK is
 * column-major: a row-major matrix is its transpose there, and a lower triangle an upper one.
 * Values that are not finite must not reach it. */
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/lapack_fallback.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* constants of CBLAS */
enum { TRSM_ROWS = 101, TRSM_PLAIN = 111, TRSM_TRANS, TRSM_LOWER = 122, TRSM_DIAGONAL = 131 };
enum { TRSM_LEFT = 141, TRSM_RIGHT };
enum { QR_COLUMNS = 64 };                      /* columns per block of geqrf and orgqr, at most */
/* Matrices of QR_LEAST and more columns are factored by geqrt, in blocks of QR_BLOCK columns, and
 * larfb makes Q from them. geqrf and orgqr use no blocks for the last 128 columns. ms on one core
 * of a Xeon with AVX-512, OpenBLAS 0.3.21:
 *                    64 x 64   128 x 128   256 x 256   1024 x 64   1024 x 256   1024 x 1024
 *   geqrf, orgqr        0.14        0.82         2.9         2.0         16.1           124
 *   blocks of 16        0.14        0.49         2.6         1.0         13.4           160
 *   blocks of 32        0.14        0.79         2.3         1.0         10.6           106
 *   blocks of 64        0.16        0.59         2.5         1.2         10.6            92 */
enum { QR_BLOCK = 32, QR_LEAST = 64 };

/* The functions with integers of type I. A Fortran compiler appends the length of every string
 * argument. */
#define LAPACK_OF(I, S) \
    typedef void (*Syevd##S)(const char *, const char *, const I *, double *, const I *, double *, \
                             double *, const I *, I *, const I *, I *, size_t, size_t); \
    typedef void (*Potrf##S)(const char *, const I *, double *, const I *, I *, size_t); \
    typedef void (*Geqrf##S)(const I *, const I *, double *, const I *, double *, double *, \
                             const I *, I *); \
    typedef void (*Orgqr##S)(const I *, const I *, const I *, double *, const I *, const double *, \
                             double *, const I *, I *); \
    typedef void (*Geqrt##S)(const I *, const I *, const I *, double *, const I *, double *, \
                             const I *, double *, I *); \
    typedef void (*Larfb##S)(const char *, const char *, const char *, const char *, const I *, \
                             const I *, const I *, const double *, const I *, const double *, \
                             const I *, double *, const I *, double *, const I *, size_t, size_t, \
                             size_t, size_t); \
    typedef void (*Trsm##S)(int, int, int, int, int, I, I, double, const double *, I, double *, \
                            I); \
\
    static bool syevd##S(void *f, double *a, int64_t n, double *value, double *work, \
                         int64_t doubles, void *whole) \
    { \
        Syevd##S call; \
        I side = (I)n, have = (I)doubles, more = (I)(3 + 5 * n), info = 0; \
        memcpy(&call, &f, sizeof call); \
        call("V", "U", &side, a, &side, value, work, &have, (I *)whole, &more, &info, 1, 1); \
        return info == 0; \
    } \
    static bool potrf##S(void *f, double *a, int64_t n) \
    { \
        Potrf##S call; \
        I side = (I)n, info = 0; \
        memcpy(&call, &f, sizeof call); \
        call("U", &side, a, &side, &info, 1); \
        return info == 0; \
    } \
    static bool geqrf##S(void *f, double *a, int64_t m, int64_t n, double *tau, double *work, \
                         int64_t doubles) \
    { \
        Geqrf##S call; \
        I rows = (I)m, cols = (I)n, have = (I)doubles, info = 0; \
        memcpy(&call, &f, sizeof call); \
        call(&rows, &cols, a, &rows, tau, work, &have, &info); \
        return info == 0; \
    } \
    static bool orgqr##S(void *f, double *a, int64_t m, int64_t n, const double *tau, \
                         double *work, int64_t doubles) \
    { \
        Orgqr##S call; \
        I rows = (I)m, cols = (I)n, have = (I)doubles, info = 0; \
        memcpy(&call, &f, sizeof call); \
        call(&rows, &cols, &cols, a, &rows, tau, work, &have, &info); \
        return info == 0; \
    } \
    static bool geqrt##S(void *f, double *a, int64_t m, int64_t n, double *t, double *work) \
    { \
        Geqrt##S call; \
        I rows = (I)m, cols = (I)n, each = QR_BLOCK, info = 0; \
        memcpy(&call, &f, sizeof call); \
        call(&rows, &cols, &each, a, &rows, t, &each, work, &info); \
        return info == 0; \
    } \
    /* Applies the block of reflectors from column i on to the columns of q from i on. */ \
    static void larfb##S(void *f, const double *a, int64_t m, int64_t n, int64_t i, \
                         const double *t, double *q, double *work) \
    { \
        Larfb##S call; \
        I rows = (I)(m - i), cols = (I)(n - i), each = QR_BLOCK, used = cols < each ? cols : each, \
          ld = (I)m; \
        memcpy(&call, &f, sizeof call); \
        call("L", "N", "F", "C", &rows, &cols, &used, a + i * (m + 1), &ld, t + i * QR_BLOCK, \
             &each, q + i * (m + 1), &ld, work, &cols, 1, 1, 1, 1); \
    } \
    static void trsm##S(void *f, int side, int transposed, int64_t m, int64_t n, const double *l, \
                        int64_t of, double *b) \
    { \
        Trsm##S call; \
        memcpy(&call, &f, sizeof call); \
        call(TRSM_ROWS, side, TRSM_LOWER, transposed, TRSM_DIAGONAL, (I)m, (I)n, 1, l, (I)of, b, \
             (I)n); \
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
    /* LAPACK returns the smallest first */
    for (int64_t i = 0, j = n - 1; done && i < j; i++, j--) {
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

/* These factor col, which is column-major, and return Q: in col, or in q, which is as large. r:
 * receives the diagonal of R. NULL: failed. work: QR_COLUMNS x n values. */
static double *qr_whole(const Blas *x, double *col, int64_t m, int64_t n, double *tau, double *r,
                        double *work)
{
    void *geqrf = x->lapack[LAPACK_GEQRF], *orgqr = x->lapack[LAPACK_ORGQR];
    int64_t doubles = QR_COLUMNS * n;
    bool done = x->wide ? geqrf64(geqrf, col, m, n, tau, work, doubles)
                        : geqrf32(geqrf, col, m, n, tau, work, doubles);
    for (int64_t k = 0; k < n; k++)
        r[k] = col[k * m + k];
    done = done && (x->wide ? orgqr64(orgqr, col, m, n, tau, work, doubles)
                            : orgqr32(orgqr, col, m, n, tau, work, doubles));
    return done ? col : NULL;
}

static double *qr_blocks(const Blas *x, double *col, double *q, int64_t m, int64_t n, double *r,
                         double *work)
{
    double *t = work, *more = t + QR_BLOCK * n;
    void *geqrt = x->lapack[LAPACK_GEQRT], *larfb = x->lapack[LAPACK_LARFB];
    if (!(x->wide ? geqrt64(geqrt, col, m, n, t, more) : geqrt32(geqrt, col, m, n, t, more)))
        return NULL;
    memset(q, 0, sizeof *q * (size_t)(m * n));
    for (int64_t k = 0; k < n; k++) {
        r[k] = col[k * m + k];
        q[k * m + k] = 1;
    }
    for (int64_t i = (n - 1) / QR_BLOCK * QR_BLOCK; i >= 0; i -= QR_BLOCK)
        if (x->wide)
            larfb64(larfb, col, m, n, i, t, q, more);
        else
            larfb32(larfb, col, m, n, i, t, q, more);
    return q;
}

CORE bool lapack_qr(const Blas *x, double *a, int64_t m, int64_t n, double *work)
{
    double *col = work, *tau = col + m * n, *r = tau + n, *more = r + n;
    if (m < n || !counts(x, m > QR_COLUMNS * n ? m : QR_COLUMNS * n) || dense_even(a, m * n) == 0)
        return false;
    bool blocks = n >= QR_LEAST && x->lapack[LAPACK_GEQRT] && x->lapack[LAPACK_LARFB];
    dense_transpose(col, a, m, n);
    int was = blas_hold(x);
    double *q = blocks ? qr_blocks(x, col, a, m, n, r, more) : qr_whole(x, col, m, n, tau, r, more);
    blas_release(x, was);
    for (int64_t k = 0; k < n && q; k++)
        for (int64_t i = 0; i < m && r[k] < 0; i++)
            q[k * m + i] = -q[k * m + i];
    if (q == a) {
        memcpy(col, a, sizeof *a * (size_t)(m * n));
        q = col;
    }
    if (q)
        dense_transpose(a, q, n, m);
    return q != NULL;
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

CORE bool lapack_solve(const Blas *x, const double *l, int64_t n, bool transposed, bool right,
                       double *b, int64_t rows, int64_t cols)
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

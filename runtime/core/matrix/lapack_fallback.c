/* Factors for machines without a LAPACK (lapack_fallback.h): Householder reflections, QL iteration,
 * Cholesky. */
#include "runtime/core/matrix/lapack_fallback.h"

#include <math.h>
#include <string.h>

/* ---- rows ---- */
enum { DENSE_LANES = 8 };

/* Eight partial sums, so that compilers vectorise the loop; then the rest in order. */
static double dot(const double *x, const double *y, int64_t n)
{
    double s[DENSE_LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + DENSE_LANES <= n; i += DENSE_LANES)
        for (int k = 0; k < DENSE_LANES; k++)
            s[k] += x[i + k] * y[i + k];
    for (int half = DENSE_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            s[k] += s[k + half];
    for (; i < n; i++)
        all += x[i] * y[i];
    return s[0] + all;
}

static void add_to(double *y, double k, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += k * x[i];
}

static void times(double *x, double k, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= k;
}

/* The largest magnitude; -1: a value is not finite. */
static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(x[i]) <= 1.7976931348623157e308))
            return -1;
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    }
    return most;
}

/* A power of two that brings the largest magnitude to about 1: scaling rounds nothing, and squares
 * neither overflow nor underflow. */
static double scale_of(double most)
{
    int e = 0;
    if (most == 0)
        return 1;
    frexp(most, &e);
    return ldexp(1, e > 1022 ? -1022 : e < -1022 ? 1022 : -e);
}

/* ---- reflections ---- */
/* v, n values, becomes the vector (its first entry 1) of the reflection I - tau v v.T that maps it
 * to (r, 0 …). Returns tau; 0: nothing to reflect. */
static double reflector(double *v, int64_t n, double *r)
{
    double first = v[0], rest = n > 1 ? dot(v + 1, v + 1, n - 1) : 0;
    v[0] = 1;
    *r = first;
    if (rest == 0)
        return 0;
    double norm = sqrt(first * first + rest);
    *r = first > 0 ? -norm : norm;
    double pivot = first - *r;                             /* the signs differ: no cancellation */
    times(v + 1, 1 / pivot, n - 1);
    return -pivot / *r;
}

static void reflect(double *x, const double *v, double tau, int64_t n)
{
    if (tau != 0)
        add_to(x, -tau * dot(v, x, n), v, n);
}

/* ---- eigenvectors ---- */
CORE int64_t dense_eigh_work(int64_t n) { return n * n + 2 * n; }

CORE void dense_mirror(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            a[i * n + j] = a[j * n + i];
}

/* Reduces a to a tridiagonal matrix: d on and e above the diagonal. Row k of v is the reflection
 * that cleared row k of a, tau[k] its factor. Both triangles are updated, so that every loop runs
 * along a row. */
static void tridiagonal(double *a, double *v, int64_t n, double *d, double *e, double *tau)
{
    for (int64_t k = 0; k + 1 < n; k++) {
        int64_t m = n - k - 1;
        double *x = v + k * n + k + 1, *p = e + k + 1;     /* e[k + 1 …] is not set yet: scratch */
        memcpy(x, a + k * n + k + 1, sizeof *x * (size_t)m);
        d[k] = a[k * n + k];
        tau[k] = reflector(x, m, &e[k]);
        if (tau[k] == 0)
            continue;
        for (int64_t i = 0; i < m; i++)
            p[i] = tau[k] * dot(a + (k + 1 + i) * n + k + 1, x, m);
        add_to(p, -0.5 * tau[k] * dot(p, x, m), x, m);
        for (int64_t i = 0; i < m; i++) {
            double *row = a + (k + 1 + i) * n + k + 1;
            for (int64_t j = 0; j < m; j++)
                row[j] -= x[i] * p[j] + p[i] * x[j];
        }
    }
    if (n)
        d[n - 1] = a[n * n - 1];
}

/* Row j of z: the reflections applied to unit vector j, the last reflection first. So z transposed
 * is their product in order. */
static void gather_reflections(double *z, const double *v, const double *tau, int64_t n)
{
    memset(z, 0, sizeof *z * (size_t)(n * n));
    for (int64_t j = 0; j < n; j++)
        z[j * n + j] = 1;
    for (int64_t k = n - 2; k >= 0; k--)
        for (int64_t j = k + 1; j < n && tau[k] != 0; j++)         /* earlier rows are zero there */
            reflect(z + j * n + k + 1, v + k * n + k + 1, tau[k], n - k - 1);
}

static void rotate(double *x, double *y, double c, double s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double was = y[i];
        y[i] = s * x[i] + c * was;
        x[i] = c * x[i] - s * was;
    }
}

/* The first index from l on where the matrix decouples. `noise` is below the rounding errors so
 * far. Without it the iteration would slowly separate eigenvalues that are 0 up to rounding. */
static int64_t next_gap(const double *d, const double *e, int64_t l, int64_t n, double noise)
{
    int64_t m = l;
    while (m + 1 < n && fabs(e[m]) > noise &&
           fabs(e[m]) > 2.220446049250313e-16 * (fabs(d[m]) + fabs(d[m + 1])))
        m++;
    return m;
}

/* sqrt(a^2 + b^2) without overflow. Not hypot, whose bits depend on the version of the C
 * library. */
static double length2(double a, double b)
{
    a = fabs(a);
    b = fabs(b);
    double large = a > b ? a : b, ratio = (a > b ? b : a) / large;
    return large == 0 ? 0 : large * sqrt(1 + ratio * ratio);
}

/* A step of the implicit QL iteration on rows l to m, with the shift from the 2 x 2 block at l. */
static void ql_step(double *d, double *e, double *z, int64_t n, int64_t l, int64_t m)
{
    double half = (d[l + 1] - d[l]) / (2 * e[l]), root = length2(half, 1);
    double g = d[m] - d[l] + e[l] / (half + (half < 0 ? -root : root)), s = 1, c = 1, moved = 0;
    for (int64_t i = m - 1; i >= l; i--) {
        double f = s * e[i], b = c * e[i], r = length2(f, g);
        e[i + 1] = r;
        if (r == 0) {                                      /* the matrix decoupled */
            d[i + 1] -= moved;
            e[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - moved;
        double t = (d[i] - g) * s + 2 * c * b;
        moved = s * t;
        d[i + 1] = g + moved;
        g = c * t - b;
        rotate(z + i * n, z + (i + 1) * n, c, s, n);
    }
    d[l] -= moved;
    e[l] = g;
    e[m] = 0;
}

static bool diagonal(double *d, double *e, double *z, int64_t n)
{
    enum { MOST_STEPS = 60 };
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fmax(fabs(d[i]), fabs(e[i])));
    for (int64_t l = 0; l < n; l++)
        for (int64_t steps = 0, m; (m = next_gap(d, e, l, n, most * 2.8e-17)) != l; steps++) {
            if (steps == MOST_STEPS)
                return false;
            ql_step(d, e, z, n, l, m);
        }
    return true;
}

/* Sorts by value, largest first; equal values keep their order. */
static void sort_rows(double *value, double *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t best = i;
        for (int64_t j = i + 1; j < n; j++)
            best = value[j] > value[best] ? j : best;
        double x = value[best];
        value[best] = value[i];
        value[i] = x;
        for (int64_t k = 0; k < n && best != i; k++) {
            double y = z[i * n + k];
            z[i * n + k] = z[best * n + k];
            z[best * n + k] = y;
        }
    }
}

static void settle_sign(double *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        at = fabs(x[i]) > fabs(x[at]) ? i : at;
    if (n && x[at] < 0)
        times(x, -1, n);
}

CORE void dense_signs(double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        settle_sign(v + i * n, n);
}

CORE double dense_even(double *x, int64_t n)
{
    double most = largest(x, n), scale = scale_of(most);
    if (most < 0)
        return 0;
    times(x, scale, n);
    return scale;
}

CORE bool dense_eigh(double *a, int64_t n, double *value, double *work)
{
    double *v = work, *tau = v + n * n, *e = tau + n;
    dense_mirror(a, n);
    double scale = dense_even(a, n * n);
    if (scale == 0)
        return false;
    memset(tau, 0, sizeof *tau * (size_t)(2 * n));
    tridiagonal(a, v, n, value, e, tau);
    if (n)
        e[n - 1] = 0;
    gather_reflections(a, v, tau, n);
    if (!diagonal(value, e, a, n))
        return false;
    times(value, 1 / scale, n);
    sort_rows(value, a, n);
    dense_signs(a, n);
    return true;
}

/* ---- orthonormal columns ---- */
CORE int64_t dense_qr_work(int64_t m, int64_t n) { return 2 * m * n + 2 * n; }

CORE void dense_transpose(double *to, const double *from, int64_t rows, int64_t cols)
{
    /* of tiles: whole lines of the cache on both sides */
    enum { SIDE = 8 };
    for (int64_t i0 = 0; i0 < rows; i0 += SIDE)
        for (int64_t j0 = 0; j0 < cols; j0 += SIDE) {
            int64_t below = rows - i0 < SIDE ? rows : i0 + SIDE,
                    right = cols - j0 < SIDE ? cols : j0 + SIDE;
            for (int64_t j = j0; j < right; j++)
                for (int64_t i = i0; i < below; i++)
                    to[j * rows + i] = from[i * cols + j];
        }
}

CORE bool dense_qr(double *a, int64_t m, int64_t n, double *work)
{
    double *col = work, *q = col + m * n, *tau = q + m * n, *r = tau + n;
    if (m < n || dense_even(a, m * n) == 0)                /* Q does not depend on the scale */
        return false;
    dense_transpose(col, a, m, n);
    for (int64_t k = 0; k < n; k++) {
        double *v = col + k * m + k;
        tau[k] = reflector(v, m - k, &r[k]);
        for (int64_t j = k + 1; j < n; j++)
            reflect(col + j * m + k, v, tau[k], m - k);
    }
    memset(q, 0, sizeof *q * (size_t)(m * n));
    for (int64_t k = n - 1; k >= 0; k--) {
        q[k * m + k] = 1;
        for (int64_t j = k; j < n; j++)
            reflect(q + j * m + k, col + k * m + k, tau[k], m - k);
    }
    for (int64_t k = 0; k < n; k++)
        if (r[k] < 0)
            times(q + k * m, -1, m);
    dense_transpose(a, q, n, m);
    return true;
}

/* ---- triangles ---- */
CORE bool dense_chol(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = a + i * n;
        for (int64_t j = 0; j < i; j++)
            row[j] = (row[j] - dot(row, a + j * n, j)) / a[j * n + j];
        double left = row[i] - dot(row, row, i);
        if (!(left > 0) || left > 1.7976931348623157e308)
            return false;
        row[i] = sqrt(left);
        memset(row + i + 1, 0, sizeof *row * (size_t)(n - i - 1));
    }
    return true;
}

CORE bool dense_solve(const double *l, int64_t n, bool transposed, double *b, int64_t m)
{
    for (int64_t i = 0; i < n; i++)
        if (l[i * n + i] == 0)
            return false;
    for (int64_t i = 0; i < n && !transposed; i++) {
        for (int64_t j = 0; j < i; j++)
            add_to(b + i * m, -l[i * n + j], b + j * m, m);
        for (int64_t k = 0; k < m; k++)
            b[i * m + k] /= l[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0 && transposed; i--) {
        for (int64_t k = 0; k < m; k++)
            b[i * m + k] /= l[i * n + i];
        for (int64_t j = 0; j < i; j++)
            add_to(b + j * m, -l[i * n + j], b + i * m, m);
    }
    return true;
}

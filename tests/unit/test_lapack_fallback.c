/* optc's own dense factors (runtime/core/matrix/lapack_fallback.c) and those by a LAPACK
 * (runtime/core/matrix/lapack.c), against their definitions: matrices are made from rotations and
 * chosen values, and results are multiplied out by plain loops. */
#include "runtime/core/matrix/cpu_calls.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include "runtime/core/matrix/lapack_fallback.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The LAPACK under test. Without one, and in the first half of every loop, optc's own code. */
static Blas library;
static void use_lapack(bool yes)
{
    memset(&library, 0, sizeof library);
    if (yes)
        OK(blas_open(&library, "test"));
}

static bool eigh(double *a, int64_t n, double *value, double *work)
{
    return library.lapack[0] ? lapack_eigh(&library, a, n, value, work)
                             : dense_eigh(a, n, value, work);
}
static bool columns_of(double *a, int64_t m, int64_t n, double *work)
{
    return library.lapack[0] ? lapack_qr(&library, a, m, n, work) : dense_qr(a, m, n, work);
}
static bool chol(double *a, int64_t n)
{
    return library.lapack[0] ? lapack_chol(&library, a, n) : dense_chol(a, n);
}
static bool solve(const double *l, int64_t n, bool turned, double *b, int64_t m)
{
    return library.lapack[0] ? lapack_solve(&library, l, n, turned, false, b, n, m)
                             : dense_solve(l, n, turned, b, m);
}

static double *room(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* c = a b, or a.T b */
static void multiply(double *c, const double *a, const double *b, int64_t m, int64_t k, int64_t n,
                     bool turned)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = 0;
            for (int64_t l = 0; l < k; l++)
                s += (turned ? a[l * m + i] : a[i * k + l]) * b[l * n + j];
            c[i * n + j] = s;
        }
}

static double farthest(const double *a, const double *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, isnan(a[i] - b[i]) ? INFINITY : fabs(a[i] - b[i]));
    return most;
}

/* A matrix with these eigenvalues, made by rotations of neighbours: they are exact to a few ulp of
 * the largest. */
static void with_values(double *a, const double *value, int64_t n, uint64_t seed)
{
    memset(a, 0, sizeof *a * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        a[i * n + i] = value[i];
    for (int64_t turn = 0; turn < 3 * n; turn++) {
        int64_t i = (int64_t)(splitmix(seed + 2 * (uint64_t)turn) % (uint64_t)n),
            j = (int64_t)(splitmix(seed + 2 * (uint64_t)turn + 1) % (uint64_t)n);
        double angle = ref_value(0, (int)seed, turn) * 3, c = cos(angle), s = sin(angle);
        if (i == j)
            continue;
        for (int64_t k = 0; k < n; k++) {
            double x = a[i * n + k], y = a[j * n + k];
            a[i * n + k] = c * x - s * y, a[j * n + k] = s * x + c * y;
        }
        for (int64_t k = 0; k < n; k++) {
            double x = a[k * n + i], y = a[k * n + j];
            a[k * n + i] = c * x - s * y, a[k * n + j] = s * x + c * y;
        }
    }
}

static int descending(const void *a, const void *b)
{
    return (*(const double *)a < *(const double *)b) - (*(const double *)a > *(const double *)b);
}

typedef enum { SPREAD, EQUAL, CLUSTERS, DEFICIENT, SIGNED, ZERO, STEEP, NKIND } Kind;
static double value_of(Kind k, int64_t i, int64_t n)
{
    switch (k) {
    case SPREAD: return 1 + (double)i;
    case EQUAL: return 3;
    case CLUSTERS: return i % 3 ? 1 + 1e-13 * (double)i : 5;
    case DEFICIENT: return i < (n + 2) / 3 ? 1 + (double)i : 0;
    case SIGNED: return (i % 2 ? -1 : 1) * (1 + (double)i);
    case STEEP: return pow(10, -12 * (double)i / (double)n);
    default: return 0;
    }
}

static const int64_t sides[] = {0, 1, 2, 3, 8, 17, 50, 129};
enum { NSIDES = sizeof sides / sizeof *sides };
static const double scales[] = {1, 1e-300, 1e300};

static void check_eigh(int64_t n, Kind kind, double scale)
{
    double *a = room(n * n), *was = room(n * n), *v = room(n * n), *value = room(n),
           *want = room(n), *work = room(dense_eigh_work(n) + lapack_eigh_work(n)),
           *av = room(n * n);
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i] = scale * value_of(kind, i, n)));
    with_values(a, want, n, 7 + (uint64_t)n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            was[i * n + j] = a[i >= j ? i * n + j : j * n + i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            a[i * n + j] = NAN;                                /* never read */
    qsort(want, (size_t)n, sizeof *want, descending);
    ck_assert(eigh(a, n, value, work));
    double bound = 8 * DBL_EPSILON * (double)(n + 3) * most;
    ck_assert_msg(farthest(value, want, n) <= bound, "%lld, kind %d: values off by %g, at most %g",
                  (long long)n, kind, farthest(value, want, n), bound);
    multiply(av, a, was, n, n, n, false);
    for (int64_t i = 0; i < n; i++) {
        ck_assert(!i || value[i] <= value[i - 1]);
        int64_t at = 0;
        for (int64_t j = 0; j < n; j++) {
            v[i * n + j] = value[i] * a[i * n + j];
            at = fabs(a[i * n + j]) > fabs(a[i * n + at]) ? j : at;
        }
        ck_assert(a[i * n + at] > 0);
    }
    ck_assert_msg(farthest(av, v, n * n) <= bound, "%lld, kind %d: vectors off by %g, at most %g",
                  (long long)n, kind, farthest(av, v, n * n), bound);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            v[j * n + i] = a[i * n + j];
    multiply(av, a, v, n, n, n, false);
    for (int64_t i = 0; i < n * n; i++)
        ck_assert_msg(fabs(av[i] - (i / n == i % n)) <= 8 * DBL_EPSILON * (double)(n + 3),
                      "%lld, kind %d: not orthonormal by %g", (long long)n, kind,
                      av[i] - (i / n == i % n));
    free(a), free(was), free(v), free(value), free(want), free(work), free(av);
}

START_TEST(eigenvectors)
{
    if (thinned(_i))
        return;
    /* LAPACK is never called for empty matrices */
    use_lapack(_i >= NSIDES && sides[_i % NSIDES]);
    for (int k = 0; k < NKIND; k++)
        for (int s = 0; s < 3; s++)
            if (sides[_i % NSIDES] < 100 || !s)
                check_eigh(sides[_i % NSIDES], (Kind)k, scales[s]);
}
END_TEST

/* Random columns, or some that depend on others. */
static void columns(double *a, int64_t m, int64_t n, bool dependent, double scale)
{
    for (int64_t i = 0; i < m * n; i++)
        a[i] = scale * ref_value(1, (int)n, i);
    for (int64_t i = 0; i < m && dependent; i++)
        for (int64_t j = 1; j < n; j += 2)
            a[i * n + j] = 2 * a[i * n + j - 1];
}

static void check_qr(int64_t m, int64_t n, bool dependent, double scale)
{
    double *a = room(m * n), *q = room(m * n), *r = room(n * n), *qr = room(m * n),
           *qq = room(n * n), *work = room(dense_qr_work(m, n) + lapack_qr_work(m, n));
    double bound = 16 * DBL_EPSILON * (double)(m + 3);
    columns(a, m, n, dependent, scale);
    memcpy(q, a, sizeof *a * (size_t)(m * n));
    ck_assert(columns_of(q, m, n, work));
    multiply(r, q, a, n, m, n, true);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            ck_assert_msg(j < i || dependent ? r[i * n + j] >= -bound * scale &&
                                                   (j == i || r[i * n + j] <= bound * scale)
                                             : r[i * n + i] > 0,
                          "%lld x %lld: R(%lld, %lld) is %g", (long long)m, (long long)n,
                          (long long)i, (long long)j, r[i * n + j]);
    multiply(qr, q, r, m, n, n, false);
    ck_assert_msg(farthest(qr, a, m * n) <= bound * scale, "%lld x %lld: Q R off by %g",
                  (long long)m, (long long)n, farthest(qr, a, m * n) / scale);
    multiply(qq, q, q, n, m, n, true);
    for (int64_t i = 0; i < n * n; i++)
        ck_assert_msg(fabs(qq[i] - (i / n == i % n)) <= bound, "%lld x %lld: not orthonormal by %g",
                      (long long)m, (long long)n, qq[i] - (i / n == i % n));
    free(a), free(q), free(r), free(qr), free(qq), free(work);
}

START_TEST(orthonormal)
{
    if (thinned(_i))
        return;
    /* LAPACK is never called for empty matrices */
    use_lapack(_i >= NSIDES && sides[_i % NSIDES]);
    static const int64_t more[] = {0, 1, 5, 40};
    for (int k = 0; k < 4; k++)
        for (int s = 0; s < 3; s++)
            for (int dependent = 0; dependent < 2; dependent++)
                if (sides[_i % NSIDES] < 100 || (!s && k < 2))
                    check_qr(sides[_i % NSIDES] + more[k], sides[_i % NSIDES], dependent,
                             s == 1 ? 1e-280 : s == 2 ? 1e290 : 1);
}
END_TEST

START_TEST(triangles)
{
    /* LAPACK is never called for empty matrices */
    use_lapack(_i >= NSIDES && sides[_i % NSIDES]);
    int64_t n = sides[_i % NSIDES], m = 3;
    double *a = room(n * n), *l = room(n * n), *lt = room(n * n), *back = room(n * n),
           *value = room(n), *x = room(n * m), *b = room(n * m);
    for (int64_t i = 0; i < n; i++)
        value[i] = 0.5 + (double)i;
    with_values(a, value, n, 3);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            l[i * n + j] = j <= i ? a[i * n + j] : NAN,
                      back[i * n + j] = a[i >= j ? i * n + j : j * n + i];
    ck_assert(chol(l, n));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            ck_assert(j <= i ? j < i || l[i * n + i] > 0 : l[i * n + j] == 0);
            lt[j * n + i] = l[i * n + j];
        }
    double *made = room(n * n);
    multiply(made, l, lt, n, n, n, false);
    ck_assert(farthest(made, back, n * n) <= 8 * DBL_EPSILON * (double)(n + 3) * (double)(n + 1));
    for (int turned = 0; turned < 2; turned++) {
        for (int64_t i = 0; i < n * m; i++)
            x[i] = ref_value(2, turned, i);
        multiply(b, turned ? lt : l, x, n, n, m, false);
        ck_assert(solve(l, n, turned, b, m));
        ck_assert_msg(farthest(b, x, n * m) <= 1e-12, "%lld: off by %g", (long long)n,
                      farthest(b, x, n * m));
    }
    free(made), free(a), free(l), free(lt), free(back), free(value), free(x), free(b);
}
END_TEST

/* Impossible factors are reported. */
START_TEST(cannot_be_done)
{
    use_lapack(_i);
    double a[9] = {1, 0, 0, 0, 2, 0, 0, 0, 3}, value[3], work[512];
    static const double wrong[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        double x[9];
        memcpy(x, a, sizeof x);
        x[7] = wrong[k];
        ck_assert(!eigh(x, 3, value, work));
        memcpy(x, a, sizeof x);
        x[7] = wrong[k];
        ck_assert(!columns_of(x, 3, 3, work));
        memcpy(x, a, sizeof x);
        x[7] = wrong[k];
        ck_assert(!chol(x, 3));
    }
    double wide[6] = {1, 2, 3, 4, 5, 6}, zero[4] = {0, 0, 0, 0}, minus[4] = {1, 0, 2, 1},
           b[2] = {1, 1};
    ck_assert(!columns_of(wide, 2, 3, work) && !chol(zero, 2) && !chol(minus, 2) &&
              !solve(zero, 2, false, b, 1));
}
END_TEST

Suite *lapack_fallback_suite(void)
{
    Suite *s = suite_create("lapack_fallback");
    TCase *t = tcase_create("lapack_fallback");
    tcase_add_loop_test(t, eigenvectors, 0, 2 * NSIDES);
    tcase_add_loop_test(t, orthonormal, 0, 2 * NSIDES);
    tcase_add_loop_test(t, triangles, 0, 2 * NSIDES);
    tcase_add_loop_test(t, cannot_be_done, 0, 2);
    suite_add_tcase(s, t);
    return s;
}

/* Iterations for inverse roots by products (runtime/core/matrix/inverse_root.h), run here in f64 on
 * matrices with known
 * roots: as many steps as the manual says, and the error from rounding. */
#include "tests/harness/basis.h"
#include "tests/harness/help.h"
#include "runtime/core/matrix/inverse_root.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 24, ALL = SIDE * SIDE };

static void times(const double *a, const double *b, double *out)
{
    double to[ALL];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            to[i * SIDE + j] = 0;
            for (int k = 0; k < SIDE; k++)
                to[i * SIDE + j] += a[i * SIDE + k] * b[k * SIDE + j];
        }
    memcpy(out, to, sizeof to);
}

static double largest_row(const double *a)
{
    double most = 0;
    for (int i = 0; i < SIDE; i++) {
        double sum = 0;
        for (int j = 0; j < SIDE; j++)
            sum += fabs(a[i * SIDE + j]);
        most = fmax(most, sum);
    }
    return most;
}

/* The error against the p-th inverse root in the Frobenius norm: eigenvalues from 1 down to
 * `value`, steps for `low`. */
static double off_by(int p, double low, double value, bool f64, int *n)
{
    static double m[ALL], x[ALL], q[ALL], want[ALL];
    RootStep s[MOST_ROOT_STEPS];
    Basis at = make_basis(SIDE, value, 11);
    double off = 0, size = 0;
    of_values(&at, 1, m);
    of_values(&at, -1.0 / p, want);
    free(at.q), free(at.value);
    double norm = largest_row(m), back = pow(norm, -1.0 / p);
    *n = root_steps(p, low, f64, s);
    for (int i = 0; i < ALL; i++)
        m[i] /= norm, x[i] = i % (SIDE + 1) == 0;
    for (int k = 0; k < *n; k++) {
        times(m, m, q);
        for (int i = 0; i < ALL; i++)
            q[i] = s[k].c * q[i] + s[k].b * m[i] + (i % (SIDE + 1) == 0 ? s[k].a : 0);
        times(x, q, x);
        for (int i = 0; i < p; i++)
            times(q, m, m);
    }
    for (int i = 0; i < ALL; i++) {
        off += pow(back * x[i] - want[i], 2);
        size += pow(want[i], 2);
    }
    return sqrt(off / size);
}

static const int roots[] = {2, 3, 4, 8};
static const double lows[] = {1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12};

/* Eigenvalues close to each other, whatever range the steps are for. In f64 an inverse uses
 * products only down to 1e-6. */
START_TEST(near_each_other)
{
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        for (size_t k = 0; k < sizeof lows / sizeof *lows; k++) {
            int n64, n32;
            double f64 = off_by(roots[i], lows[k], 0.1, true, &n64),
                   f32 = off_by(roots[i], lows[k], 0.1, false, &n32);
            ck_assert_msg(n64 && f64 < 3e-14, "p = %d, low %g: %d steps, off by %g", roots[i],
                          lows[k], n64, f64);
            ck_assert_msg(n32 && f32 < 3e-8, "p = %d, low %g: %d steps in f32, off by %g", roots[i],
                          lows[k], n32, f32);
            ck_assert_msg(n32 <= n64 && n64 <= n32 + 2, "p = %d, low %g: %d and %d steps", roots[i],
                          lows[k], n32, n64);
        }
    int n;
    ck_assert_double_lt(off_by(1, 1e-6, 0.1, true, &n), 1e-12);
    for (size_t k = 0; k < sizeof lows / sizeof *lows; k++)
        ck_assert_double_lt(off_by(1, lows[k], 0.1, false, &n), 3e-8);
}
END_TEST

/* Down to the range of the steps, rounding affects the smallest eigenvalues as with any solver. */
START_TEST(far_apart)
{
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        for (size_t k = 0; k + 1 < sizeof lows / sizeof *lows; k++) {
            int n;
            double f64 = off_by(roots[i], lows[k] / 100, lows[k], true, &n),
                   may = 3e-14 + 1e-16 / lows[k];
            ck_assert_msg(f64 < may, "p = %d, values down to %g: off by %g, not %g", roots[i],
                          lows[k], f64, may);
            double f32 = off_by(roots[i], lows[k] / 100, lows[k], false, &n);
            ck_assert_msg(f32 < 1e-7, "p = %d, values down to %g: off by %g in f32", roots[i],
                          lows[k], f32);
            ck_assert_double_lt(off_by(1, lows[k] / 100, lows[k], false, &n),
                                3e-8 + 3e-16 / lows[k]);
        }
}
END_TEST

/* The numbers of steps for a fourth root, as listed in specs/MATRICES.md. */
START_TEST(how_many)
{
    static const struct { double low; int f32, f64; } want[] =
        {{1e-2, 4, 4}, {1e-6, 6, 8}, {1e-10, 9, 11}, {1e-12, 10, 12}};
    RootStep s[MOST_ROOT_STEPS];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ck_assert_int_eq(root_steps(4, want[i].low, false, s), want[i].f32);
        ck_assert_int_eq(root_steps(4, want[i].low, true, s), want[i].f64);
    }
    ck_assert_int_eq(root_steps(0, 0.5, true, s), 0);
    ck_assert_int_eq(root_steps(17, 0.5, true, s), 0);
    ck_assert_int_eq(root_steps(4, 0, false, s), 0);
    ck_assert_int_eq(root_steps(4, NAN, false, s), 0);
    ck_assert_int_eq(root_steps(4, 2, false, s), 0);
}
END_TEST

Suite *inverse_root_suite(void)
{
    Suite *s = suite_create("inverse_root");
    TCase *t = tcase_create("steps");
    tcase_add_test(t, near_each_other);
    tcase_add_test(t, far_apart);
    tcase_add_test(t, how_many);
    suite_add_tcase(s, t);
    return s;
}

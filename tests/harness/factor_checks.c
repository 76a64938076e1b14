/* Checks factors, solutions and orders against their definitions, independently of the evaluator,
 * with LAPACK and with optc's own code. */
#include "runtime/core/matrix/cpu_calls.h"
#include "tests/harness/factor_checks.h"
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 7, COLS = 5 };
static double g_at(int i, int j) { return ref_value(0, 1, i * COLS + j); }

static void step_once(Fixture *f, const char *rule, const double *g)
{
    static const TestShape one[] = {{2, {ROWS, COLS}}};
    fix_open(f, &(optc_engine_options){.threads = 1},
             &(optc_rule_options){.text = rule, .param = OPTC_F64}, one, 1, NULL, 0);
    for (int64_t i = 0; i < ROWS * COLS; i++)
        type_store(f->type, f->g[0], i, g ? g[i] : g_at((int)i / COLS, (int)i % COLS));
    OK(optc_step(f->binding));
}

/* c = a b, row-major, m x k times k x n; turned: a.T with a of k x m */
static void multiply(double *c, const double *a, const double *b, int m, int k, int n, bool turned)
{
    for (int i = 0; i < m * n; i++) {
        c[i] = 0;
        for (int l = 0; l < k; l++)
            c[i] += (turned ? a[l * m + i / n] : a[i / n * k + l]) * b[l * n + i % n];
    }
}

static void near_to(const double *a, const double *b, int n, double bound, const char *what)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs(a[i] - b[i]) <= bound, "%s, %d: %.17g for %.17g", what, i, a[i], b[i]);
}

/* Checks n x some eigenvectors: columns are orthonormal, A V = V diag(w), largest first, the
 * largest entry of each is positive. */
static void are_eigenvectors(const double *a, const double *v, const double *w, int n, int some,
                             double size)
{
    double av[ROWS * ROWS], vw[ROWS * ROWS], vv[ROWS * ROWS], one[ROWS * ROWS];
    multiply(av, a, v, n, n, some, false);
    multiply(vv, v, v, some, n, some, true);
    for (int i = 0; i < n * some; i++)
        vw[i] = v[i] * w[i % some];
    for (int i = 0; i < some * some; i++)
        one[i] = i / some == i % some;
    near_to(av, vw, n * some, 1e-14 * (n + 3) * size, "A V = V w");
    near_to(vv, one, some * some, 1e-14 * (n + 3), "V.T V = 1");
    for (int k = 0; k < some; k++) {
        int at = 0;
        for (int i = 0; i < n; i++)
            at = fabs(v[i * some + k]) > fabs(v[at * some + k]) ? i : at;
        ck_assert(v[at * some + k] > 0 && (!k || w[k] <= w[k - 1] + 1e-13 * size));
    }
}

START_TEST(eigenvectors)
{
    Fixture f;
    double a[ROWS * ROWS] = {0}, b[COLS * COLS], v[ROWS * ROWS], w[ROWS], some[COLS * 3], e[3],
                    g[ROWS * COLS];
    use_blas(_i);
    step_once(&f, factor_rules[7], NULL);
    for (int i = 0; i < ROWS * COLS; i++)
        g[i] = g_at(i / COLS, i % COLS);
    multiply(b, g, g, COLS, ROWS, COLS, true);
    for (int i = 0; i < ROWS * ROWS; i++)
        for (int k = 0; k < COLS; k++)
            a[i] +=
                g[i / ROWS * COLS + k] * g[i % ROWS * COLS + k] * (i / ROWS == i % ROWS ? 2 : 1);
    OK(optc_state_read(f.binding, 0, "V", v, ROWS * ROWS));
    OK(optc_state_read(f.binding, 0, "w", w, ROWS));
    OK(optc_state_read(f.binding, 0, "P", some, COLS * 3));
    OK(optc_state_read(f.binding, 0, "e", e, 3));
    are_eigenvectors(a, v, w, ROWS, ROWS, w[0]);
    are_eigenvectors(b, some, e, COLS, 3, e[0]);
    double trace = 0, all = 0;
    for (int i = 0; i < ROWS; i++)
        trace += a[i * ROWS + i], all += w[i];
    /* no eigenvalue occurs twice, none is missing */
    ck_assert(fabs(trace - all) < 1e-12 * trace);
    fix_close(&f);
}
END_TEST

START_TEST(solutions)
{
    Fixture f;
    double c[ROWS * ROWS], d[COLS * COLS], x[ROWS * COLS], r[ROWS], back[ROWS * COLS],
        g[ROWS * COLS], sums[ROWS] = {0};
    double s[ROWS * COLS], dt[COLS * COLS], y[ROWS * COLS];
    const char *rule = "return optimizer { name = 'x', state = { C = zeros 'rows', D = zeros "
                       "'cols', X = zeros 'elem', r = zeros "
                       "'row', R = zeros 'elem', T = zeros 'elem', S = zeros 'elem', U = zeros "
                       "'elem' }, products = 'f64',\n"
                       "  matrix = function() local A, B = gram(g) + eye(1, 'rows'), gram(g.T) + "
                       "eye(1, 'cols')  C = chol(A)  D = "
                       "chol(B)  X = solve(C, g)  r = solve(C.T, rowsum(g))\n"
                       "    R = solve(D, g, { right = true })  T = solve(D, g.T).T  S = solve(A, "
                       "g, { spd = true })  U = solve(B, g, "
                       "{ spd = true, right = true }) p = p - g end,\n"
                       "  step = function() p = p - g end }";
    use_blas(_i);
    step_once(&f, rule, NULL);
    for (int i = 0; i < ROWS * COLS; i++)
        sums[i / COLS] += g[i] = g_at(i / COLS, i % COLS);
    OK(optc_state_read(f.binding, 0, "C", c, ROWS * ROWS));
    OK(optc_state_read(f.binding, 0, "D", d, COLS * COLS));
    for (int i = 0; i < COLS * COLS; i++)
        dt[i] = d[i % COLS * COLS + i / COLS];
    OK(optc_state_read(f.binding, 0, "X", x, ROWS * COLS));
    multiply(back, c, x, ROWS, ROWS, COLS, false);
    near_to(back, g, ROWS * COLS, 1e-13, "C X = g");
    OK(optc_state_read(f.binding, 0, "r", r, ROWS));
    multiply(back, c, r, ROWS, ROWS, 1, true);
    near_to(back, sums, ROWS, 1e-13, "C.T r = the rows' sums");
    OK(optc_state_read(f.binding, 0, "R", x, ROWS * COLS));
    multiply(back, x, d, ROWS, COLS, COLS, false);
    near_to(back, g, ROWS * COLS, 1e-13, "R D = g");
    OK(optc_state_read(f.binding, 0, "T", x, ROWS * COLS));
    multiply(back, x, dt, ROWS, COLS, COLS, false);
    near_to(back, g, ROWS * COLS, 1e-13, "D T.T = g.T");
    OK(optc_state_read(f.binding, 0, "S", s, ROWS * COLS));
    multiply(y, c, s, ROWS, ROWS, COLS, true);
    multiply(back, c, y, ROWS, ROWS, COLS, false);
    near_to(back, g, ROWS * COLS, 1e-12, "A S = g");
    OK(optc_state_read(f.binding, 0, "U", s, ROWS * COLS));
    multiply(y, s, d, ROWS, COLS, COLS, false);
    multiply(back, y, dt, ROWS, COLS, COLS, false);
    near_to(back, g, ROWS * COLS, 1e-12, "U B = g");
    fix_close(&f);
}
END_TEST

/* Ties, NaN, both zeros, and indices out of range. */
START_TEST(orders)
{
    static const double first[ROWS] = {3, NAN, -1, 3, 0, INFINITY, -0.0},
                        place[ROWS] = {5, 0, 3, 4, 6, 2, 1};
    Fixture f;
    double g[ROWS * COLS], o[ROWS], x[ROWS * COLS], y[ROWS * COLS], q[COLS];
    const char *rule = "return optimizer { name = 'x', state = { o = zeros 'row', q = zeros 'col', "
                       "X = zeros 'elem', Y = zeros "
                       "'elem', Z = zeros 'row' }, products = 'f64',\n"
                       "  matrix = function() o = sort(rowmax(g))  q = sort(colmin(g))  X = "
                       "take(g, o)  Y = take(g, q, 'cols')  Z = "
                       "take(o, o + 0.5 * o)  p = p - take(g.T, o, 'cols').T end,\n"
                       "  step = function() p = p - g end }";
    use_blas(_i);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            g[i * COLS + j] = j == 2 ? first[i] : -10 - ref_value(1, j, i);
    step_once(&f, rule, g);
    OK(optc_state_read(f.binding, 0, "o", o, ROWS));
    OK(optc_state_read(f.binding, 0, "X", x, ROWS * COLS));
    ck_assert(!memcmp(o, place, sizeof o));
    for (int i = 0; i < ROWS * COLS; i++)
        ck_assert(!memcmp(&x[i], &g[(int)place[i / COLS] * COLS + i % COLS], sizeof *x));
    OK(optc_state_read(f.binding, 0, "q", q, COLS));
    OK(optc_state_read(f.binding, 0, "Y", y, ROWS * COLS));
    ck_assert(q[4] == 2);                                      /* NaN is last */
    for (int j = 0; j < COLS; j++)
        for (int i = 0; i < ROWS; i++)
            ck_assert(!memcmp(&y[i * COLS + j], &g[i * COLS + (int)q[j]], sizeof *y));
    OK(optc_state_read(f.binding, 0, "Z", o, ROWS));
    for (int i = 0; i < ROWS; i++) {
        double at = 1.5 * place[i];
        ck_assert(at < ROWS && at == floor(at) ? o[i] == place[(int)at] : isnan(o[i]));
    }
    fix_close(&f);
}
END_TEST

/* Zero, rank-deficient, condition 1e12, tiny and huge matrices: a result if there is one, otherwise
 * the previous value. */
START_TEST(bad_input)
{
    const char *rule =
        "return optimizer { name = 'x', state = { w = zeros 'row', V = eye(1, 'rows'), X = eye(7, "
        "'rows'), Q = zeros "
        "'rows', C = eye(7, 'rows'), S = fill(7, 'elem') }, products = 'f64',\n"
        "  matrix = function() local A = gram(g)  w, V = eigh(A)  X = power(A, -0.5, { relative = "
        "1e-13, last = X })  "
        "Q = qr(A)  C = chol(A, { last = C })\n"
        "    S = solve(A, g, { last = S }) p = p - g end, step = function() p = p - g end }";
    use_blas(_i);
    for (int kind = 0; kind < 5; kind++) {
        Fixture f;
        double g[ROWS * COLS], a[ROWS * ROWS], v[ROWS * ROWS], w[ROWS], x[ROWS * ROWS],
            q[ROWS * ROWS], c[ROWS * ROWS], one[ROWS * ROWS], qq[ROWS * ROWS], s[ROWS * COLS];
        double scale = kind == 3 ? 1e-150 : kind == 4 ? 1e150 : 1;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                g[i * COLS + j] = !kind ? 0
                                        : scale * (kind == 2 ? pow(10, -1.5 * j) * (j == i)
                                                             : ref_value(2, kind, i * COLS + j));
        step_once(&f, rule, g);
        for (int i = 0; i < ROWS * ROWS; i++) {
            a[i] = 0, one[i] = i / ROWS == i % ROWS;
            for (int k = 0; k < COLS; k++)
                a[i] += g[i / ROWS * COLS + k] * g[i % ROWS * COLS + k];
        }
        OK(optc_state_read(f.binding, 0, "V", v, ROWS * ROWS));
        OK(optc_state_read(f.binding, 0, "w", w, ROWS));
        OK(optc_state_read(f.binding, 0, "X", x, ROWS * ROWS));
        OK(optc_state_read(f.binding, 0, "Q", q, ROWS * ROWS));
        OK(optc_state_read(f.binding, 0, "C", c, ROWS * ROWS));
        OK(optc_state_read(f.binding, 0, "S", s, ROWS * COLS));
        are_eigenvectors(a, v, w, ROWS, ROWS, w[0] + (kind == 0));
        multiply(qq, q, q, ROWS, ROWS, ROWS, true);
        near_to(qq, one, ROWS * ROWS, 1e-13, "Q.T Q = 1");
        ck_assert(kind ? isfinite(x[0]) && x[0] != 7 : x[0] == 7 && x[1] == 0);
        /* for the others rounding decides whether there is a result */
        ck_assert(kind != 0 || (c[0] == 7 && c[1] == 0));
        ck_assert(kind != 0 || s[0] == 7);
        fix_close(&f);
    }
}
END_TEST

/* Large enough for LAPACK's blocked algorithms: the number of threads changes no bit. */
START_TEST(threads_alike)
{
    static const TestShape many[] = {
        {2, {150, 3}}, {2, {150, 3}}, {2, {97, 3}}, {2, {150, 3}}, {2, {64, 3}}};
    const char *rule = "return optimizer { name = 'x', state = { X = zeros 'rows', V = zeros "
                       "'rows', Q = zeros 'rows', S = zeros "
                       "'elem' }, products = 'f64',\n"
                       "  matrix = function() local A = gram(normal 'rows rank') + eye(1, 'rows') "
                       "X = power(A, -0.25)  local w w, V = "
                       "eigh(A)  Q = qr(A)  S = solve(A, g, { spd = true }) p = p - g end,\n"
                       "  rank = 3, step = function() p = p - g end }";
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        Fixture f;
        use_blas(true);
        fix_open(&f, &(optc_engine_options){.threads = k ? 4 : 1},
                 &(optc_rule_options){.text = rule, .param = OPTC_F64}, many, 5, NULL, 0);
        for (int i = 0; i < f.n; i++)
            for (int64_t x = 0; x < f.count[i]; x++)
                type_store(f.type, f.g[i], x, ref_value(i, 1, x));
        OK(optc_step(f.binding));
        hash[k] = fix_hash(&f);
        fix_close(&f);
    }
    ck_assert(hash[0] == hash[1]);
}
END_TEST

/* A LAPACK that overwrites its input and reports failure: optc's own code takes over, without
 * further effects. */
static void syevd_fails(const char *job, const char *uplo, const int *n, double *a, const int *lda,
                        double *w, double *work, const int *lwork, int *iwork, const int *liwork,
                        int *info)
{
    (void)job, (void)uplo, (void)lda, (void)work, (void)lwork, (void)iwork, (void)liwork;
    a[0] = w[0] = NAN;
    *info = *n;
}
static void potrf_fails(const char *uplo, const int *n, double *a, const int *lda, int *info)
{
    (void)uplo, (void)lda, a[0] = NAN, *info = *n;
}
static void geqrf_fails(const int *m, const int *n, double *a, const int *lda, double *tau,
                        double *work, const int *lwork, int *info)
{
    (void)n, (void)lda, (void)work, (void)lwork;
    a[0] = tau[0] = NAN;
    *info = -*m;
}

START_TEST(lapack_fails)
{
    const char *rule = "return optimizer { name = 'x', state = { X = zeros 'rows', C = zeros "
                       "'rows', Q = zeros 'rows' }, products = "
                       "'f64',\n"
                       "  matrix = function() local A = gram(g) + eye(1, 'rows') X = power(A, "
                       "-0.5)  C = chol(A)  Q = qr(A)  p = p - "
                       "mm(X, g) end, step = function() p = p - g end }";
    static const TestShape one[] = {{2, {ROWS, COLS}}};
    double x[2][3][ROWS * ROWS];
    for (int fails = 0; fails < 2; fails++) {
        Fixture f;
        use_blas(true);
        fix_open(&f, &(optc_engine_options){.threads = 1},
                 &(optc_rule_options){.text = rule, .param = OPTC_F64}, one, 1, NULL, 0);
        Blas *blas = f.binding->blas;
        bool has = blas->lapack[0] != NULL;
        ck_assert_msg(
            strstr(optc_rule_path(f.rule), has ? "; factors: its LAPACK" : "; factors: our own"),
            "%s", optc_rule_path(f.rule));
        if (fails && has) {
            void (*call[])(void) = {(void (*)(void))syevd_fails, (void (*)(void))potrf_fails,
                                    (void (*)(void))geqrf_fails};
            blas->wide = false;
            blas->gemm[0] = NULL;                              /* its integers might have 64 bits */
            for (int k = 0; k < 3; k++)
                memcpy(&blas->lapack[k], &call[k], sizeof call[k]);
        }
        for (int64_t i = 0; i < ROWS * COLS; i++)
            type_store(f.type, f.g[0], i, g_at((int)i / COLS, (int)i % COLS));
        OK(optc_step(f.binding));
        for (int n = 0; n < 3; n++)
            OK(optc_state_read(f.binding, 0,
                               n == 0   ? "X"
                               : n == 1 ? "C"
                                        : "Q",
                               x[fails][n], ROWS * ROWS));
        fix_close(&f);
    }
    for (int n = 0; n < 3; n++)
        near_to(x[0][n], x[1][n], ROWS * ROWS, 1e-12, "after a failure");
}
END_TEST

static void as_it_was(void) { unsetenv("OPTC_BLAS"); }

TCase *factors_defined(void)
{
    TCase *t = tcase_create("defined");
    tcase_add_checked_fixture(t, NULL, as_it_was);
    tcase_add_loop_test(t, eigenvectors, 0, 2);
    tcase_add_loop_test(t, solutions, 0, 2);
    tcase_add_loop_test(t, orders, 0, 2);
    tcase_add_loop_test(t, bad_input, 0, 2);
    tcase_add_test(t, threads_alike);
    tcase_add_test(t, lapack_fails);
    return t;
}

/* Factors of matrices in rules: power, chol, qr, on the CPU against the evaluator, which goes other ways. */
#include "../runtime/core/call.h"
#include "hand.h"
#include "help.h"
#include "program_make.h"
#include "random_spec.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const rules[] = {
    /* two-sided, an inverse fourth root of each: Shampoo without its trimmings */
    "return optimizer { name = 'x', hyper = { lr = 0.1, eps = 1e-2 }, state = { L = eye(0.1, 'rows'), R = eye(0.1, 'cols') }, products = 'f64',\n"
    "  matrix = function() L = L + gram(g)  R = R + gram(g.T)\n"
    "    p = p - lr * mm(mm(power(L, -1/4, { ridge = eps }), g), power(R, -1/4, { relative = 1e-2 })) end,\n"
    "  step = function() p = p - lr * g end }",
    /* roots of both signs, kept in states */
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { H = zeros 'rows', X = zeros 'rows' }, products = 'f64',\n"
    "  matrix = function() local A = gram(g) + eye(2, 'rows')  H = power(A, 0.5)  X = power(A, -1) p = p - lr * mm(mm(X, H), g) end,\n"
    "  step = function() p = p - lr * g end }",
    /* a triangle */
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { C = zeros 'cols' }, products = 'f64',\n"
    "  matrix = function() C = chol(gram(g.T) + eye(1, 'cols'))  p = p - lr * mm(g, C) end,\n"
    "  step = function() p = p - lr * g end }",
    /* block by block */
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1 }, state = { L = zeros 'rows' }, products = 'f64',\n"
    "  matrix = function() L = 0.5 * L + gram(g)  p = p - lr * mm(mm(power(L, -0.5, { ridge = 0.5 }), g), chol(gram(g.T) + eye(1, 'cols'))) end,\n"
    "  step = function() p = p - lr * g end }",
    /* columns */
    "return optimizer { name = 'x', rank = 3, hyper = { lr = 0.1 }, state = { Q = zeros 'cols rank' }, products = 'f64',\n"
    "  matrix = function() Q = qr(normal 'cols rank' + 0.1 * mm(g.T, mm(g, normal 'cols rank')))  p = p - lr * mm(mm(g, Q), Q.T) end,\n"
    "  step = function() p = p - lr * g end }",
    /* eigenvalues lifted to at least a hyperparameter's, a number, a value of each matrix; what was there stays where there is no root */
    "return optimizer { name = 'x', hyper = { lr = 0.1, least = 0.05, rel = 1e-3 }, state = { X = eye(1, 'rows'), Y = eye(1, 'cols'), Z = eye(1, 'cols') }, products = 'f64',\n"
    "  matrix = function() X = power(gram(g), -1/4, { floor = least, last = X, relative = rel })  Y = power(gram(g.T), -1/2, { floor = 0.5, last = Y })\n"
    "    Z = power(gram(g.T), 2, { floor = 0.1 * slice.norm(g), last = Z })  p = p - lr * mm(mm(mm(X, g), Y), Z) end,\n"
    "  step = function() p = p - lr * g end }",
    /* block by block; triangles and columns of squares, with what was there */
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1, least = 0.5 }, state = { X = eye(1, 'rows'), C = eye(1, 'cols'), Q = eye(1, 'cols') }, products = 'f64',\n"
    "  matrix = function() X = power(gram(g), -1/2, { floor = least, last = X })  C = chol(gram(g.T) + eye(1, 'cols'), { last = C })\n"
    "    Q = qr(gram(g.T) + eye(1, 'cols'), { last = Q })  p = p - lr * mm(mm(X, g), mm(C, Q)) end,\n"
    "  step = function() p = p - lr * g end }",
    /* eigenvectors, as many as there are and as many as the rule has directions */
    "return optimizer { name = 'x', rank = 3, hyper = { lr = 0.1 }, state = { w = zeros 'row', V = eye(1, 'rows'), e = zeros 'rank1', P = zeros 'cols rank' }, products = 'f64',\n"
    "  matrix = function() local A = gram(g) + diag(rowsum(g * g))\n"
    "    w, V = eigh(A, { last = V })  e, P = eigh(gram(g.T), 'rank')  p = p - lr * (mm(V, mm(V.T, g)) + mm(mm(g, P), P.T)) end,\n"
    "  step = function() p = p - lr * g end }",
    /* triangles: both sides, turned, of elements, of their transpose, of values along one axis; of a positive matrix */
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { C = zeros 'rows', D = zeros 'cols', X = zeros 'elem', r = zeros 'row', S = zeros 'elem' }, products = 'f64',\n"
    "  matrix = function() C = chol(gram(g) + eye(1, 'rows'))  D = chol(gram(g.T) + eye(2, 'cols'))\n"
    "    X = solve(C, g, { last = X })  r = solve(C.T, rowsum(g))  local Y = solve(D.T, g.T).T + solve(D, solve(D.T, g, { right = true }), { right = true })\n"
    "    S = solve(gram(g) + eye(1, 'rows'), g, { spd = true }) + solve(gram(g.T) + eye(2, 'cols'), g, { spd = true, right = true })\n"
    "    p = p - lr * (X + Y + S + r) end,\n"
    "  step = function() p = p - lr * g end }",
    /* places by value, and rows and columns in their order; block by block */
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1 }, state = { L = zeros 'rows', v = zeros 'elem' }, products = 'f64',\n"
    "  matrix = function() L = L + gram(g)  local a, b = sort(diag(L)), sort(diag(gram(g.T)))\n"
    "    local w, V = eigh(L + diag(1 + a))  v = take(take(v + g * g, a), b, 'cols')  p = p - lr * (mm(take(V, a, 'cols'), mm(take(L, a).T, g)) + v) end,\n"
    "  step = function() p = p - lr * g end }",
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1 }, state = { C = zeros 'rows', D = zeros 'cols' }, products = 'f64',\n"
    "  matrix = function() C = chol(gram(g) + eye(1, 'rows'))  D = chol(gram(g.T) + eye(2, 'cols'))\n"
    "    p = p - lr * solve(C, solve(D, g, { right = true })) - lr * solve(D.T, g.T).T end,\n"
    "  step = function() p = p - lr * g end }",
};
enum { NRULES = sizeof rules / sizeof *rules };
static const TestShape tensor[] = {{2, {6, 5}}, {1, {7}}, {2, {5, 12}}, {2, {1, 4}}, {2, {4, 1}}, {3, {2, 4, 6}}, {2, {0, 3}}, {2, {6, 5}}};

START_TEST(in_bounds)
{
    optc_engine_options engine[] = {{.threads = 1}, {.threads = 3}, {.threads = 2}};
    uint64_t hash[3];
    bool f64 = _i % 2;
    for (int k = 0; k < 3; k++) {
        Fixture f;
        use_blas(k < 2);
        fix_open(&f, &engine[k], &(optc_rule_options){.text = rules[_i / 2], .param = f64 ? OPTC_F64 : OPTC_F32, .products = f64 ? "f64" : "f32"}, tensor, 8, NULL, 0);
        for (int step = 1; step <= 3; step++) {
            for (int i = 0; i < f.n; i++)
                for (int64_t x = 0; x < f.count[i]; x++)
                    type_store(f.type, f.g[i], x, ref_value(i, step, x));
            char *why = step_in_bounds(&f, "step");
            ck_assert_msg(!why, "rule %d, step %d: %s", _i / 2, step, why);
        }
        for (int i = 0; i < f.n; i++)
            for (int64_t x = 0; x < f.count[i]; x++)
                ck_assert(isfinite(type_load(f.type, f.p[i], x)));
        hash[k] = fix_hash(&f);
        fix_close(&f);
    }
    ck_assert(hash[0] == hash[1]);
}
END_TEST

static void random_in_bounds(uint64_t seed)
{
    static const TestShape few[] = {{2, {7, 5}}, {1, {7}}, {3, {2, 3, 6}}, {2, {1, 4}}, {2, {4, 1}}, {2, {0, 3}}};
    Fixture f;
    char *text = random_factors(seed, seed % 3 ? 0 : 4);
    bool f64 = seed % 4 != 1;
    use_blas(seed % 5 != 0);
    fix_open(&f, &(optc_engine_options){.threads = 2, .cache_dir = ""}, &(optc_rule_options){.text = text, .param = f64 ? OPTC_F64 : OPTC_F32, .products = f64 ? "f64" : "f32"}, few, 6, NULL, 0);
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < f.n; i++)
            for (int64_t x = 0; x < f.count[i]; x++)
                type_store(f.type, f.g[i], x, ref_value(i, step, x));
        char *why = step_in_bounds(&f, "step");
        ck_assert_msg(!why, "step %d: %s\n%s", step, why, text);
    }
    fix_close(&f);
    free(text);
}

START_TEST(random_rules)
{
    int from = getenv("OPTC_SEED") ? atoi(getenv("OPTC_SEED")) : 1, n = getenv("OPTC_SEEDS") ? atoi(getenv("OPTC_SEEDS")) : 4;
    setenv("OPTC_CFLAGS", "-O0", 0);
    for (int k = 0; k < n; k++)
        random_in_bounds((uint64_t)(from + k));
}
END_TEST

/* By what they are defined by: H H = A and X A = 1, whatever the evaluator thinks. */
START_TEST(defined)
{
    enum { N = 6, M = 5 };
    Fixture f;
    double h[N * N], x[N * N];
    use_blas(_i);
    fix_open(&f, &(optc_engine_options){.threads = 1}, &(optc_rule_options){.text = rules[1], .param = OPTC_F64}, tensor, 1, NULL, 0);
    for (int64_t i = 0; i < N * M; i++)
        type_store(f.type, f.g[0], i, ref_value(0, 1, i));
    OK(optc_step(f.binding));
    OK(optc_state_read(f.binding, 0, "H", h, N * N));
    OK(optc_state_read(f.binding, 0, "X", x, N * N));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double a = i == j ? 2 : 0, hh = 0, one = 0;
            for (int k = 0; k < M; k++)
                a += ref_value(0, 1, i * M + k) * ref_value(0, 1, j * M + k);
            for (int k = 0; k < N; k++) {
                double ka = k == j ? 2 : 0;
                for (int l = 0; l < M; l++)
                    ka += ref_value(0, 1, k * M + l) * ref_value(0, 1, j * M + l);
                hh += h[i * N + k] * h[k * N + j];
                one += x[i * N + k] * ka;
            }
            ck_assert_msg(fabs(hh - a) < 1e-4 && fabs(one - (i == j)) < 1e-4, "(%d, %d): %g for %g, %g", i, j, hh, a, one);
        }
    fix_close(&f);
}
END_TEST

/* ---- by what they are defined by ---- */
enum { ROWS = 7, COLS = 5 };
static double g_at(int i, int j) { return ref_value(0, 1, i * COLS + j); }

static void step_once(Fixture *f, const char *rule, const double *g)
{
    static const TestShape one[] = {{2, {ROWS, COLS}}};
    fix_open(f, &(optc_engine_options){.threads = 1}, &(optc_rule_options){.text = rule, .param = OPTC_F64}, one, 1, NULL, 0);
    for (int64_t i = 0; i < ROWS * COLS; i++)
        type_store(f->type, f->g[0], i, g ? g[i] : g_at((int)i / COLS, (int)i % COLS));
    OK(optc_step(f->binding));
}

/* c = a b of row-major m x k and k x n; turned: a.T of k x m */
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

/* V of n x some: columns are orthonormal, A V = V diag(w), largest first, each with its largest entry positive. */
static void are_eigenvectors(const double *a, const double *v, const double *w, int n, int some, double size)
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
    double a[ROWS * ROWS] = {0}, b[COLS * COLS], v[ROWS * ROWS], w[ROWS], some[COLS * 3], e[3], g[ROWS * COLS];
    use_blas(_i);
    step_once(&f, rules[7], NULL);
    for (int i = 0; i < ROWS * COLS; i++)
        g[i] = g_at(i / COLS, i % COLS);
    multiply(b, g, g, COLS, ROWS, COLS, true);
    for (int i = 0; i < ROWS * ROWS; i++)
        for (int k = 0; k < COLS; k++)
            a[i] += g[i / ROWS * COLS + k] * g[i % ROWS * COLS + k] * (i / ROWS == i % ROWS ? 2 : 1);
    OK(optc_state_read(f.binding, 0, "V", v, ROWS * ROWS));
    OK(optc_state_read(f.binding, 0, "w", w, ROWS));
    OK(optc_state_read(f.binding, 0, "P", some, COLS * 3));
    OK(optc_state_read(f.binding, 0, "e", e, 3));
    are_eigenvectors(a, v, w, ROWS, ROWS, w[0]);
    are_eigenvectors(b, some, e, COLS, 3, e[0]);
    double trace = 0, all = 0;
    for (int i = 0; i < ROWS; i++)
        trace += a[i * ROWS + i], all += w[i];
    ck_assert(fabs(trace - all) < 1e-12 * trace);              /* none is there twice, none is missing */
    fix_close(&f);
}
END_TEST

START_TEST(solutions)
{
    Fixture f;
    double c[ROWS * ROWS], d[COLS * COLS], x[ROWS * COLS], r[ROWS], back[ROWS * COLS], g[ROWS * COLS], sums[ROWS] = {0};
    double s[ROWS * COLS], dt[COLS * COLS], y[ROWS * COLS];
    const char *rule = "return optimizer { name = 'x', state = { C = zeros 'rows', D = zeros 'cols', X = zeros 'elem', r = zeros 'row', R = zeros 'elem', T = zeros 'elem', S = zeros 'elem', U = zeros 'elem' }, products = 'f64',\n"
        "  matrix = function() local A, B = gram(g) + eye(1, 'rows'), gram(g.T) + eye(1, 'cols')  C = chol(A)  D = chol(B)  X = solve(C, g)  r = solve(C.T, rowsum(g))\n"
        "    R = solve(D, g, { right = true })  T = solve(D, g.T).T  S = solve(A, g, { spd = true })  U = solve(B, g, { spd = true, right = true }) p = p - g end,\n"
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

/* Ties, NaN, both zeros, and places that are not there. */
START_TEST(orders)
{
    static const double first[ROWS] = {3, NAN, -1, 3, 0, INFINITY, -0.0}, place[ROWS] = {5, 0, 3, 4, 6, 2, 1};
    Fixture f;
    double g[ROWS * COLS], o[ROWS], x[ROWS * COLS], y[ROWS * COLS], q[COLS];
    const char *rule = "return optimizer { name = 'x', state = { o = zeros 'row', q = zeros 'col', X = zeros 'elem', Y = zeros 'elem', Z = zeros 'row' }, products = 'f64',\n"
        "  matrix = function() o = sort(rowmax(g))  q = sort(colmin(g))  X = take(g, o)  Y = take(g, q, 'cols')  Z = take(o, o + 0.5 * o)  p = p - take(g.T, o, 'cols').T end,\n"
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

/* Zero, without rank, of condition 1e12, tiny, huge: what can be had is, and the rest is what was there. */
START_TEST(bad_input)
{
    const char *rule = "return optimizer { name = 'x', state = { w = zeros 'row', V = eye(1, 'rows'), X = eye(7, 'rows'), Q = zeros 'rows', C = eye(7, 'rows'), S = fill(7, 'elem') }, products = 'f64',\n"
        "  matrix = function() local A = gram(g)  w, V = eigh(A)  X = power(A, -0.5, { relative = 1e-13, last = X })  Q = qr(A)  C = chol(A, { last = C })\n"
        "    S = solve(A, g, { last = S }) p = p - g end, step = function() p = p - g end }";
    use_blas(_i);
    for (int kind = 0; kind < 5; kind++) {
        Fixture f;
        double g[ROWS * COLS], a[ROWS * ROWS], v[ROWS * ROWS], w[ROWS], x[ROWS * ROWS], q[ROWS * ROWS], c[ROWS * ROWS], one[ROWS * ROWS], qq[ROWS * ROWS], s[ROWS * COLS];
        double scale = kind == 3 ? 1e-150 : kind == 4 ? 1e150 : 1;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                g[i * COLS + j] = !kind ? 0 : scale * (kind == 2 ? pow(10, -1.5 * j) * (j == i) : ref_value(2, kind, i * COLS + j));
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
        ck_assert(kind != 0 || (c[0] == 7 && c[1] == 0));      /* of the others rounding decides whether there is one */
        ck_assert(kind != 0 || s[0] == 7);
        fix_close(&f);
    }
}
END_TEST

/* NaN in one tensor's gradient: its own values alone. */
START_TEST(nan_stays)
{
    Fixture f;
    fix_open(&f, &(optc_engine_options){.threads = 2}, &(optc_rule_options){.text = rules[0], .param = OPTC_F64}, tensor, 8, NULL, 0);
    for (int i = 0; i < f.n; i++)
        for (int64_t x = 0; x < f.count[i]; x++)
            type_store(f.type, f.g[i], x, i == 2 && x == 3 ? NAN : ref_value(i, 1, x));
    OK(optc_step(f.binding));
    for (int i = 0; i < f.n; i++)
        for (int64_t x = 0; x < f.count[i]; x++)
            ck_assert(isnan(type_load(f.type, f.p[i], x)) == (i == 2));
    fix_close(&f);
}
END_TEST

static Source source_of(const char *text) { return (Source){"x.lua", text, strlen(text)}; }

static void read_square(const Fixture *f, int i, const char *name, double x[4]) { OK(optc_state_read(f->binding, i, name, x, 4)); }

/* The last good one stays: of the matrix alone that has a NaN, is infinite or has no root. */
START_TEST(last_stays)
{
    static const TestShape two[] = {{2, {2, 2}}, {2, {2, 2}}};
    static const double bad[][4] = {{1, NAN, 0, 1}, {INFINITY, 0, 0, 1}, {0, 0, 0, 0}, {1, 0, 0, 0}, {1e200, 0, 0, 1}};
    static const char *const names[] = {"X", "C", "Q"};
    const char *rule = "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { X = eye(3, 'rows'), C = eye(3, 'rows'), Q = eye(3, 'rows') }, products = 'f64',\n"
        "  matrix = function() local A = gram(g) X = power(A, -0.5, { last = X })  C = chol(A, { last = C })  Q = qr(A, { last = Q }) p = p - mm(X, g) end,\n"
        "  step = function() p = p - lr * g end }";
    use_blas(_i);
    for (int k = 0; k < 5; k++) {
        Fixture f;
        double was[4], now[4];
        fix_open(&f, &(optc_engine_options){.threads = 2}, &(optc_rule_options){.text = rule, .param = OPTC_F64}, two, 2, NULL, 0);
        for (int step = 0; step < 2; step++) {
            for (int i = 0; i < 2; i++)
                for (int x = 0; x < 4; x++)
                    type_store(f.type, f.g[i], x, step && i ? bad[k][x] : ref_value(i, 1 + step, x) + 2 * (x == 0 || x == 3));
            for (int n = 0; n < 3 && step; n++) {
                read_square(&f, 1, names[n], was);
                ck_assert(was[0] != 3);
            }
            if (!step)
                OK(optc_step(f.binding));
        }
        double before[3][4], other[3][4];
        for (int n = 0; n < 3; n++)
            read_square(&f, 1, names[n], before[n]), read_square(&f, 0, names[n], other[n]);
        OK(optc_step(f.binding));
        for (int n = 0; n < 3; n++) {
            bool finite = k == 2 || k == 3;                /* a matrix without an inverse has orthonormal columns still */
            read_square(&f, 1, names[n], now);
            ck_assert_msg(!memcmp(now, before[n], sizeof now) == !(n == 2 && finite), "%s, matrix %d: %g %g", names[n], k, now[0], before[n][0]);
            read_square(&f, 0, names[n], now);
            ck_assert(memcmp(now, other[n], sizeof now) && isfinite(now[0] + now[3]));
        }
        fix_close(&f);
    }
}
END_TEST

/* What eigenvalues are lifted to is read where the rule runs. */
START_TEST(floor_is_read)
{
    static const TestShape one[] = {{2, {2, 2}}};
    static const double g[4] = {2, 0, 0, 1e-3}, least[] = {0.25, 16, 1e-12};
    const char *rule = "return optimizer { name = 'x', hyper = { least = 0.25 }, state = { X = eye(3, 'rows') }, products = 'f64',\n"
        "  matrix = function() X = power(gram(g), -0.5, { floor = least }) p = p - mm(X, g) end, step = function() p = p - least * g end }";
    Fixture f;
    double x[4];
    use_blas(_i);
    fix_open(&f, &(optc_engine_options){.threads = 1}, &(optc_rule_options){.text = rule, .param = OPTC_F64}, one, 1, NULL, 0);
    for (int k = 0; k < 3; k++) {
        OK(optc_set_hyper(f.binding, 0, "least", least[k]));
        for (int i = 0; i < 4; i++)
            type_store(f.type, f.g[0], i, g[i]);
        OK(optc_step(f.binding));
        read_square(&f, 0, "X", x);
        double want[2] = {1 / sqrt(fmax(4, least[k])), 1 / sqrt(fmax(1e-6, least[k]))};
        ck_assert_msg(fabs(x[0] - want[0]) < 1e-12 && fabs(x[3] - want[1]) < 1e-9 * want[1] && x[1] == 0 && x[2] == 0, "%g: %g %g", least[k], x[0], x[3]);
    }
    fix_close(&f);
}
END_TEST

/* The result goes straight to the state that is there in its place, also where another type of products lies beside. */
START_TEST(straight)
{
    static const Product product[] = {PRODUCT_F32, PRODUCT_BF16, PRODUCT_F64};
    for (int k = 0; k < 3; k++) {
        Gen g = {0};
        Type t = k == 2 ? T_F64 : T_F32;
        int calls = 0;
        ck_assert_msg(gen_compile(&g, source_of(rules[6]), &(GenOptions){.types = {t, t, t}, .gpu = k == 1, .product = 1 + product[k]}), "%s", g.diag.text);
        const Phase *ph = &g.plan->entry[0].phase[0];
        for (int i = 0; i < ph->nstage; i++) {
            const Stage *s = &ph->stage[i];
            const Node *n = s->kind == S_CALL ? &ph->g->n[s->body[0]] : NULL;
            if (n && n->op != OP_MM) {
                calls++;
                ck_assert_msg(s->load[call_operand(n, 2)].mem == s->store[0].mem && g.plan->mem[s->store[0].mem].kind == MEM_STATE, "%d, %s: %d to %d", k, op_info[n->op].name, s->load[call_operand(n, 2)].mem, s->store[0].mem);
            }
        }
        ck_assert_int_eq(calls, 3);
        gen_free(&g);
    }
}
END_TEST

/* Plans for a GPU, whose products may be kept in 16 bits where factors are not: each is verified as it is made. */
START_TEST(random_plans)
{
    for (uint64_t seed = 1; seed <= 30; seed++) {
        Gen g = {0};
        char *text = random_factors(seed, seed % 3 ? 0 : 4);
        Type t = seed % 7 == 6 ? T_BF16 : T_F32;
        ck_assert_msg(gen_compile(&g, source_of(text), &(GenOptions){.types = {t, t, T_F32}, .gpu = true, .product = 1 + (int)(seed % NPRODUCT)}), "%s\n%s", g.diag.text, text);
        gen_free(&g);
        free(text);
    }
}
END_TEST

/* What the spec says of eigenvalues: relative, of a hyperparameter less, else the usual. */
START_TEST(least_share)
{
    static const struct { const char *options; double low; } c[] = {{"", 1e-10}, {", { ridge = 1 }", 1e-10}, {", { relative = 0.01 }", 0.01 / 1.01},
        {", { relative = rel }", 0.001 / 1.001}, {", { relative = 0 }", 1e-10}, {", { relative = 2 * rel, floor = rel }", 1e-10}};
    for (size_t k = 0; k < sizeof c / sizeof *c; k++) {
        Gen g = {0};
        Buf b = {0};
        buf_printf(&b, "return optimizer { name = 'x', hyper = { rel = 0.016 }, matrix = function() p = p - mm(power(gram(g), -0.5%s), g) end, step = function() p = p - rel * g end }", c[k].options);
        ck_assert_msg(gen_compile(&g, source_of(buf_text(&b)), &(GenOptions){.types = {T_F32, T_F32, T_F32}}), "%s", g.diag.text);
        const ProgCall *call = NULL;
        const Program *p = program_make(&g.arena, g.plan, NULL);
        for (int i = 0; i < p->nstage; i++)
            if (p->stage[i].call && p->stage[i].call->callee == CALL_POWER)
                call = p->stage[i].call;
        ck_assert_msg(call && fabs(call_low(call) / c[k].low - 1) < 1e-14, "%s: %g", c[k].options, call ? call_low(call) : 0);
        buf_free(&b);
        gen_free(&g);
    }
}
END_TEST

/* Rules as text, whole and damaged. */
START_TEST(as_text)
{
    static const Damage bad[] = {{"alpha -0.25", "alpha 0", "an exponent that no factor has"}, {"= power rows", "= power cols", "a factor of what has none"},
        {"= power rows", "= qr rows", "an exponent that no factor has"}, {" alpha -0.25", " turn_a alpha -0.25", "flags"}};
    static const Damage more[] = {{" floor last alpha -0.25", " last alpha -0.25", "too many operands"}, {" low ", " low -", "a share that no eigenvalue has"},
        {" last alpha 2", " alpha 2", "too many operands"}};
    reads_back(rules[0], bad, (int)(sizeof bad / sizeof *bad));
    reads_back(rules[5], more, 3);
    for (int i = 6; i < NRULES; i++)
        reads_back(rules[i], NULL, 0);
    static const Damage order[] = {{"= sort block_row", "= sort block", "factor of what has none"}, {" cols", " right", "flags"}};
    static const Damage solve[] = {{"= solve elem", "= solve rows", "an operand of another shape"}, {" last", " turn_b last", "flags"}};
    static const Damage eigh[] = {{"= eigh cols_rank", "= eigh rows_rank", "what has none"}};
    reads_back(rules[9], order, 1);
    reads_back(rules[8], solve, 2);
    reads_back(rules[7], eigh, 1);
}
END_TEST

/* Large enough that LAPACK goes by blocks: how many threads there are changes no bit. */
START_TEST(threads_alike)
{
    static const TestShape many[] = {{2, {150, 3}}, {2, {150, 3}}, {2, {97, 3}}, {2, {150, 3}}, {2, {64, 3}}};
    const char *rule = "return optimizer { name = 'x', state = { X = zeros 'rows', V = zeros 'rows', Q = zeros 'rows', S = zeros 'elem' }, products = 'f64',\n"
        "  matrix = function() local A = gram(normal 'rows rank') + eye(1, 'rows') X = power(A, -0.25)  local w w, V = eigh(A)  Q = qr(A)  S = solve(A, g, { spd = true }) p = p - g end,\n"
        "  rank = 3, step = function() p = p - g end }";
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        Fixture f;
        use_blas(true);
        fix_open(&f, &(optc_engine_options){.threads = k ? 4 : 1}, &(optc_rule_options){.text = rule, .param = OPTC_F64}, many, 5, NULL, 0);
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

/* A LAPACK that spoils what it is given and reports failure: our own takes over, and nothing else is seen of it. */
static void syevd_fails(const char *job, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work, const int *lwork, int *iwork, const int *liwork, int *info)
{
    (void)job, (void)uplo, (void)lda, (void)work, (void)lwork, (void)iwork, (void)liwork;
    a[0] = w[0] = NAN;
    *info = *n;
}
static void potrf_fails(const char *uplo, const int *n, double *a, const int *lda, int *info) { (void)uplo, (void)lda, a[0] = NAN, *info = *n; }
static void geqrf_fails(const int *m, const int *n, double *a, const int *lda, double *tau, double *work, const int *lwork, int *info)
{
    (void)n, (void)lda, (void)work, (void)lwork;
    a[0] = tau[0] = NAN;
    *info = -*m;
}

START_TEST(lapack_fails)
{
    const char *rule = "return optimizer { name = 'x', state = { X = zeros 'rows', C = zeros 'rows', Q = zeros 'rows' }, products = 'f64',\n"
        "  matrix = function() local A = gram(g) + eye(1, 'rows') X = power(A, -0.5)  C = chol(A)  Q = qr(A)  p = p - mm(X, g) end, step = function() p = p - g end }";
    static const TestShape one[] = {{2, {ROWS, COLS}}};
    double x[2][3][ROWS * ROWS];
    for (int fails = 0; fails < 2; fails++) {
        Fixture f;
        use_blas(true);
        fix_open(&f, &(optc_engine_options){.threads = 1}, &(optc_rule_options){.text = rule, .param = OPTC_F64}, one, 1, NULL, 0);
        Blas *blas = f.binding->blas;
        bool has = blas->lapack[0] != NULL;
        ck_assert_msg(strstr(optc_rule_path(f.rule), has ? "; factors: its LAPACK" : "; factors: our own"), "%s", optc_rule_path(f.rule));
        if (fails && has) {
            void (*call[])(void) = {(void (*)(void))syevd_fails, (void (*)(void))potrf_fails, (void (*)(void))geqrf_fails};
            blas->wide = false;
            blas->gemm[0] = NULL;                              /* its integers were perhaps wide */
            for (int k = 0; k < 3; k++)
                memcpy(&blas->lapack[k], &call[k], sizeof call[k]);
        }
        for (int64_t i = 0; i < ROWS * COLS; i++)
            type_store(f.type, f.g[0], i, g_at((int)i / COLS, (int)i % COLS));
        OK(optc_step(f.binding));
        for (int n = 0; n < 3; n++)
            OK(optc_state_read(f.binding, 0, n == 0 ? "X" : n == 1 ? "C" : "Q", x[fails][n], ROWS * ROWS));
        fix_close(&f);
    }
    for (int n = 0; n < 3; n++)
        near_to(x[0][n], x[1][n], ROWS * ROWS, 1e-12, "after a failure");
}
END_TEST

static void as_it_was(void) { unsetenv("OPTC_BLAS"); }

Suite *factors_suite(void)
{
    Suite *s = suite_create("factors");
    TCase *t = tcase_create("factors");
    tcase_add_checked_fixture(t, NULL, as_it_was);
    tcase_add_loop_test(t, in_bounds, 0, 2 * NRULES);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, random_rules);
    tcase_add_loop_test(t, defined, 0, 2);
    tcase_add_loop_test(t, eigenvectors, 0, 2);
    tcase_add_loop_test(t, solutions, 0, 2);
    tcase_add_loop_test(t, orders, 0, 2);
    tcase_add_loop_test(t, bad_input, 0, 2);
    tcase_add_test(t, nan_stays);
    tcase_add_loop_test(t, last_stays, 0, 2);
    tcase_add_loop_test(t, floor_is_read, 0, 2);
    tcase_add_test(t, straight);
    tcase_add_test(t, random_plans);
    tcase_add_test(t, least_share);
    tcase_add_test(t, threads_alike);
    tcase_add_test(t, lapack_fails);
    tcase_add_test(t, as_text);
    suite_add_tcase(s, t);
    return s;
}

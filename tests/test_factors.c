/* Factors of matrices in rules: power, chol, qr, on the CPU against the evaluator, which goes other ways. */
#include "help.h"
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
};
enum { NRULES = sizeof rules / sizeof *rules };
static const TestShape tensor[] = {{2, {6, 5}}, {1, {7}}, {2, {5, 12}}, {2, {1, 4}}, {2, {4, 1}}, {3, {2, 4, 6}}, {2, {0, 3}}, {2, {6, 5}}};

START_TEST(in_bounds)
{
    optc_engine_options engine[] = {{.threads = 1}, {.threads = 3}};
    uint64_t hash[2];
    bool f64 = _i % 2;
    for (int k = 0; k < 2; k++) {
        Fixture f;
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

/* By what they are defined by: H H = A and X A = 1, whatever the evaluator thinks. */
START_TEST(defined)
{
    enum { N = 6, M = 5 };
    Fixture f;
    double h[N * N], x[N * N];
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

/* Rules as text, whole and damaged. */
START_TEST(as_text)
{
    static const Damage bad[] = {{"alpha -0.25", "alpha 0", "an exponent that no factor has"}, {"= power rows", "= power cols", "another shape than its matrix"},
        {"= power rows", "= qr rows", "a factor of what has none"}, {" alpha -0.25", " turn_a alpha -0.25", "flags"}};
    reads_back(rules[0], bad, (int)(sizeof bad / sizeof *bad));
}
END_TEST

Suite *factors_suite(void)
{
    Suite *s = suite_create("factors");
    TCase *t = tcase_create("factors");
    tcase_add_loop_test(t, in_bounds, 0, 2 * NRULES);
    tcase_add_test(t, defined);
    tcase_add_test(t, nan_stays);
    tcase_add_test(t, as_text);
    suite_add_tcase(s, t);
    return s;
}

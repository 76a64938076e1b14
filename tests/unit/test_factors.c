/* Factors in rules (power, chol, qr, eigh, solve) on the CPU against the evaluator, which uses
 * other algorithms. */
#include "gen/emit/emit.h"
#include "tests/harness/factor_checks.h"
#include "tests/harness/help.h"
#include "gen/emit/program_make.h"
#include "tests/harness/random_spec.h"
#include "tests/harness/suites.h"
#include "runtime/core/gpu/gpu_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const factor_rules[] = {
    /* two-sided, an inverse fourth root of each side: Shampoo without grafting */
    "return optimizer { name = 'x', hyper = { lr = 0.1, eps = 1e-2 }, state = { L = eye(0.1, "
    "'rows'), R = eye(0.1, "
    "'cols') }, products = 'f64',\n"
    "  matrix = function() L = L + gram(g)  R = R + gram(g.T)\n"
    "    p = p - lr * mm(mm(power(L, -1/4, { ridge = eps }), g), power(R, -1/4, { relative = 1e-2 "
    "})) end,\n"
    "  step = function() p = p - lr * g end }",
    /* roots of both signs, in states */
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { H = zeros 'rows', X = zeros "
    "'rows' }, products = "
    "'f64',\n"
    "  matrix = function() local A = gram(g) + eye(2, 'rows')  H = power(A, 0.5)  X = power(A, -1) "
    "p = p - lr * "
    "mm(mm(X, H), g) end,\n"
    "  step = function() p = p - lr * g end }",
    /* a triangular factor */
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { C = zeros 'cols' }, products = "
    "'f64',\n"
    "  matrix = function() C = chol(gram(g.T) + eye(1, 'cols'))  p = p - lr * mm(g, C) end,\n"
    "  step = function() p = p - lr * g end }",
    /* block by block */
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1 }, state = { L = zeros 'rows' }, "
    "products = 'f64',\n"
    "  matrix = function() L = 0.5 * L + gram(g)  p = p - lr * mm(mm(power(L, -0.5, { ridge = 0.5 "
    "}), g), "
    "chol(gram(g.T) + eye(1, 'cols'))) end,\n"
    "  step = function() p = p - lr * g end }",
    /* orthonormal columns */
    "return optimizer { name = 'x', rank = 3, hyper = { lr = 0.1 }, state = { Q = zeros 'cols "
    "rank' }, products = "
    "'f64',\n"
    "  matrix = function() Q = qr(normal 'cols rank' + 0.1 * mm(g.T, mm(g, normal 'cols rank')))  "
    "p = p - lr * "
    "mm(mm(g, Q), Q.T) end,\n"
    "  step = function() p = p - lr * g end }",
    /* eigenvalues raised to a hyperparameter, a number, a value per matrix; the previous value
     * stays where there is no root */
    "return optimizer { name = 'x', hyper = { lr = 0.1, least = 0.05, rel = 1e-3 }, state = { X = "
    "eye(1, 'rows'), Y = "
    "eye(1, 'cols'), Z = eye(1, 'cols') }, products = 'f64',\n"
    "  matrix = function() X = power(gram(g), -1/4, { floor = least, last = X, relative = rel })  "
    "Y = power(gram(g.T), "
    "-1/2, { floor = 0.5, last = Y })\n"
    "    Z = power(gram(g.T), 2, { floor = 0.1 * slice.norm(g), last = Z })  p = p - lr * "
    "mm(mm(mm(X, g), Y), Z) end,\n"
    "  step = function() p = p - lr * g end }",
    /* block by block; triangles and columns of squares, with `last` */
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1, least = 0.5 }, state = { X = "
    "eye(1, 'rows'), C = "
    "eye(1, 'cols'), Q = eye(1, 'cols') }, products = 'f64',\n"
    "  matrix = function() X = power(gram(g), -1/2, { floor = least, last = X })  C = "
    "chol(gram(g.T) + eye(1, 'cols'), "
    "{ last = C })\n"
    "    Q = qr(gram(g.T) + eye(1, 'cols'), { last = Q })  p = p - lr * mm(mm(X, g), mm(C, Q)) "
    "end,\n"
    "  step = function() p = p - lr * g end }",
    /* all eigenvectors, and as many as the rule's rank */
    "return optimizer { name = 'x', rank = 3, hyper = { lr = 0.1 }, state = { w = zeros 'row', V = "
    "eye(1, 'rows'), e = "
    "zeros 'rank1', P = zeros 'cols rank' }, products = 'f64',\n"
    "  matrix = function() local A = gram(g) + diag(rowsum(g * g))\n"
    "    w, V = eigh(A, { last = V })  e, P = eigh(gram(g.T), 'rank')  p = p - lr * (mm(V, mm(V.T, "
    "g)) + mm(mm(g, P), "
    "P.T)) end,\n"
    "  step = function() p = p - lr * g end }",
    /* triangular solutions: both sides, transposed, of elements, of their transpose, of values
     * along one axis; of a positive matrix */
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { C = zeros 'rows', D = zeros "
    "'cols', X = zeros "
    "'elem', r = zeros 'row', S = zeros 'elem' }, products = 'f64',\n"
    "  matrix = function() C = chol(gram(g) + eye(1, 'rows'))  D = chol(gram(g.T) + eye(2, "
    "'cols'))\n"
    "    X = solve(C, g, { last = X })  r = solve(C.T, rowsum(g))  local Y = solve(D.T, g.T).T + "
    "solve(D, solve(D.T, "
    "g, { right = true }), { right = true })\n"
    "    S = solve(gram(g) + eye(1, 'rows'), g, { spd = true }) + solve(gram(g.T) + eye(2, "
    "'cols'), g, { spd = true, "
    "right = true })\n"
    "    p = p - lr * (X + Y + S + r) end,\n"
    "  step = function() p = p - lr * g end }",
    /* orders by value, and rows and columns in their order; block by block */
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1 }, state = { L = zeros 'rows', v "
    "= zeros 'elem' }, "
    "products = 'f64',\n"
    "  matrix = function() L = L + gram(g)  local a, b = sort(diag(L)), sort(diag(gram(g.T)))\n"
    "    local w, V = eigh(L + diag(1 + a))  v = take(take(v + g * g, a), b, 'cols')  p = p - lr * "
    "(mm(take(V, a, "
    "'cols'), mm(take(L, a).T, g)) + v) end,\n"
    "  step = function() p = p - lr * g end }",
    "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1 }, state = { C = zeros 'rows', D "
    "= zeros 'cols' }, "
    "products = 'f64',\n"
    "  matrix = function() C = chol(gram(g) + eye(1, 'rows'))  D = chol(gram(g.T) + eye(2, "
    "'cols'))\n"
    "    p = p - lr * solve(C, solve(D, g, { right = true })) - lr * solve(D.T, g.T).T end,\n"
    "  step = function() p = p - lr * g end }",
    /* rank values of a block */
    "return optimizer { name = 'x', block = 4, rank = 2, hyper = { lr = 0.1 }, state = { P = zeros "
    "'rows rank', e = "
    "zeros 'block rank1', Q = zeros 'cols rank' }, products = 'f64',\n"
    "  matrix = function() e, P = eigh(gram(g), 'rank')  local o = sort(0 - e)  Q = qr(mm(g.T, "
    "take(P, o, 'cols')) + "
    "normal 'cols rank', { last = Q })\n"
    "    p = p - lr * mm(mm(P, diag(take(e, o))), mm(P.T, g)) - lr * mm(mm(g, Q), take(Q.T, o)) "
    "end,\n"
    "  step = function() p = p - lr * g end }",
};
static const char *const *const rules = factor_rules;
enum { NRULES = sizeof factor_rules / sizeof *factor_rules };
static const TestShape tensor[] = {{2, {6, 5}}, {1, {7}},       {2, {5, 12}}, {2, {1, 4}},
                                   {2, {4, 1}}, {3, {2, 4, 6}}, {2, {0, 3}},  {2, {6, 5}}};

START_TEST(in_bounds)
{
    if (thinned(_i))
        return;
    optc_engine_options engine[] = {{.threads = 1}, {.threads = 3}, {.threads = 2}};
    uint64_t hash[3];
    bool f64 = _i % 2;
    for (int k = 0; k < 3; k++) {
        Fixture f;
        use_blas(k < 2);
        fix_open(&f, &engine[k],
                 &(optc_rule_options){.text = rules[_i / 2],
                                      .param = f64 ? OPTC_F64 : OPTC_F32,
                                      .products = f64 ? "f64" : "f32"},
                 tensor, 8, NULL, 0);
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
    static const TestShape few[] = {{2, {7, 5}}, {1, {7}},    {3, {2, 3, 6}},
                                    {2, {1, 4}}, {2, {4, 1}}, {2, {0, 3}}};
    Fixture f;
    char *text = random_factors(seed, seed % 3 ? 0 : 4);
    bool f64 = seed % 4 != 1;
    use_blas(seed % 5 != 0);
    fix_open(&f, &(optc_engine_options){.threads = 2, .cache_dir = ""},
             &(optc_rule_options){
                 .text = text, .param = f64 ? OPTC_F64 : OPTC_F32, .products = f64 ? "f64" : "f32"},
             few, 6, NULL, 0);
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
    int from = getenv("OPTC_SEED") ? atoi(getenv("OPTC_SEED")) : 1,
        n = getenv("OPTC_SEEDS") ? atoi(getenv("OPTC_SEEDS")) : sanitized() ? 1 : 4;
    setenv("OPTC_CFLAGS", "-O0", 0);
    for (int k = 0; k < n; k++)
        random_in_bounds((uint64_t)(from + k));
}
END_TEST

/* Against their definitions H H = A and X A = 1, independently of the evaluator. */
START_TEST(defined)
{
    enum { N = 6, M = 5 };
    Fixture f;
    double h[N * N], x[N * N];
    use_blas(_i);
    fix_open(&f, &(optc_engine_options){.threads = 1},
             &(optc_rule_options){.text = rules[1], .param = OPTC_F64}, tensor, 1, NULL, 0);
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
            ck_assert_msg(fabs(hh - a) < 1e-4 && fabs(one - (i == j)) < 1e-4,
                          "(%d, %d): %g for %g, %g", i, j, hh, a, one);
        }
    fix_close(&f);
}
END_TEST

/* A NaN in one tensor's gradient affects only its own values. */
START_TEST(nan_stays)
{
    static const int which[] = {0, 7, 8};
    Fixture f;
    fix_open(&f, &(optc_engine_options){.threads = 2},
             &(optc_rule_options){.text = rules[which[_i]], .param = OPTC_F64}, tensor, 8, NULL, 0);
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

/* Counts of computed and refused factors, per tensor, at the steps that compute them. */
START_TEST(factor_counts)
{
    static const char text[] =
        "return optimizer { name = 'x', view = 'last', hyper = { lr = 0.1 }, state = { X = eye(1, "
        "'rows'), Q = eye(1, "
        "'cols') }, products = 'f64',\n"
        "  matrix = function() every(2, { first = true }, function() X = power(gram(g) + eye(1, "
        "'rows'), -1/2, { last = X })  Q = qr(gram(g.T), { last = Q }) end)\n"
        "  p = p - lr * mm(X, mm(g, Q)) end, step = function() p = p - lr * g end }";
    static const TestShape some[] = {{2, {3, 3}}, {1, {4}}, {3, {2, 3, 3}}, {2, {0, 3}}};
    Fixture f;
    optc_factors x;
    struct { optc_factors x; int64_t behind; } longer;
    use_blas(_i);
    fix_open(&f, &(optc_engine_options){.threads = 2},
             &(optc_rule_options){.text = text, .param = OPTC_F64}, some, 4, NULL, 0);
    /* the last tensor has no rows, but columns, of zeros */
    FAILS(optc_factors_about(f.binding, 4, &x), OPTC_ERROR_ARGUMENT, "there is no tensor 4");
    FAILS(optc_factors_about(f.binding, -2, &x), OPTC_ERROR_ARGUMENT, "there is no tensor -2");
    FAILS(optc_factors_about(f.binding, 0, NULL), OPTC_ERROR_ARGUMENT, "NULL");
    OK(optc_factors_about(f.binding, -1, &x));
    ck_assert(x.computed == 0 && x.refused == 0 && x.residual == 0);
    /* at steps 1, 2 and 4; at 4 a matrix of one tensor is NaN */
    for (int step = 1; step <= 4; step++) {
        for (int i = 0; i < f.n; i++)
            for (int64_t k = 0; k < f.count[i]; k++)
                type_store(f.type, f.g[i], k,
                           step == 4 && i == 2 && k == 12 ? NAN : ref_value(i, step, k));
        OK(optc_step(f.binding));
        OK(optc_factors_about(f.binding, 0, &x));
        int computed = 2 * (step == 1 ? 1 : step < 4 ? 2 : 3);
        ck_assert_msg(x.computed == computed && x.refused == 0 && x.residual < 1e-9,
                      "step %d: %d, %d, %g", step, (int)x.computed, (int)x.refused, x.residual);
        OK(optc_factors_about(f.binding, 2, &x));
        ck_assert_msg(x.computed == 2 * computed && x.refused == (step < 4 ? 0 : 2) &&
                          (step < 4 ? x.residual < 1e-9 : x.residual == INFINITY),
                      "step %d: %d, %d, %g", step, (int)x.computed, (int)x.refused, x.residual);
    }
    memset(&longer, 0xff, sizeof longer);
    OK(optc_factors_about_sized(f.binding, -1, &longer.x, sizeof longer));
    ck_assert(longer.x.computed == 21 && longer.x.refused == 2 && longer.x.residual == INFINITY &&
              longer.behind == 0);
    /* a size below that of any header */
    FAILS(optc_factors_about_sized(f.binding, -1, &longer.x, sizeof longer.x.computed),
          OPTC_ERROR_ARGUMENT, "the size of optc_factors is 8");
    fix_close(&f);
}
END_TEST

static Source source_of(const char *text) { return (Source){"x.lua", text, strlen(text)}; }

static void read_square(const Fixture *f, int i, const char *name, double x[4])
{
    OK(optc_state_read(f->binding, i, name, x, 4));
}

/* The last valid factor stays, only for the matrix that has a NaN or an infinity or no root. With a
 * LAPACK, with optc's own code, on the evaluator. */
START_TEST(last_stays)
{
    static const TestShape two[] = {{2, {2, 2}}, {2, {2, 2}}};
    static const double bad[][4] = {
        {1, NAN, 0, 1}, {INFINITY, 0, 0, 1}, {0, 0, 0, 0}, {1, 0, 0, 0}, {1e200, 0, 0, 1}};
    static const char *const names[] = {"X", "C", "Q"};
    const char *rule = "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { X = eye(3, "
                       "'rows'), C = eye(3, 'rows'), Q = "
                       "eye(3, 'rows') }, products = 'f64',\n"
                       "  matrix = function() local A = gram(g) X = power(A, -0.5, { last = X })  "
                       "C = chol(A, { last = C })  Q = "
                       "qr(A, { last = Q }) p = p - mm(X, g) end,\n"
                       "  step = function() p = p - lr * g end }";
    use_blas(_i == 1);
    for (int k = 0; k < 5; k++) {
        Fixture f;
        double was[4], now[4];
        /* no compiler, and no rules compiled before */
        const char *none = _i == 2 ? "" : NULL;
        fix_open(&f, &(optc_engine_options){.threads = 2, .compiler = none, .cache_dir = none},
                 &(optc_rule_options){.text = rule, .param = OPTC_F64}, two, 2, NULL, 0);
        for (int step = 0; step < 2; step++) {
            for (int i = 0; i < 2; i++)
                for (int x = 0; x < 4; x++)
                    type_store(f.type, f.g[i], x,
                               step && i ? bad[k][x]
                                         : ref_value(i, 1 + step, x) + 2 * (x == 0 || x == 3));
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
            /* a singular matrix still has orthonormal columns */
            bool finite = k == 2 || k == 3;
            read_square(&f, 1, names[n], now);
            /* of a zero matrix: unit vectors */
            for (int i = 0; i < 4 && n == 2 && k == 2; i++)
                ck_assert_msg(now[i] == (i % 3 == 0), "%g at %d", now[i], i);
            ck_assert_msg(!memcmp(now, before[n], sizeof now) == !(n == 2 && finite),
                          "%s, matrix %d: %g %g", names[n], k, now[0], before[n][0]);
            read_square(&f, 0, names[n], now);
            ck_assert(memcmp(now, other[n], sizeof now) && isfinite(now[0] + now[3]));
        }
        fix_close(&f);
    }
}
END_TEST

/* The floor of the eigenvalues is read at run time. */
START_TEST(floor_is_read)
{
    static const TestShape one[] = {{2, {2, 2}}};
    static const double g[4] = {2, 0, 0, 1e-3}, least[] = {0.25, 16, 1e-12};
    const char *rule = "return optimizer { name = 'x', hyper = { least = 0.25 }, state = { X = "
                       "eye(3, 'rows') }, products = 'f64',\n"
                       "  matrix = function() X = power(gram(g), -0.5, { floor = least }) p = p - "
                       "mm(X, g) end, step = function() p = "
                       "p - least * g end }";
    Fixture f;
    double x[4];
    use_blas(_i);
    fix_open(&f, &(optc_engine_options){.threads = 1},
             &(optc_rule_options){.text = rule, .param = OPTC_F64}, one, 1, NULL, 0);
    for (int k = 0; k < 3; k++) {
        OK(optc_set_hyper(f.binding, 0, "least", least[k]));
        for (int i = 0; i < 4; i++)
            type_store(f.type, f.g[0], i, g[i]);
        OK(optc_step(f.binding));
        read_square(&f, 0, "X", x);
        double want[2] = {1 / sqrt(fmax(4, least[k])), 1 / sqrt(fmax(1e-6, least[k]))};
        ck_assert_msg(fabs(x[0] - want[0]) < 1e-12 && fabs(x[3] - want[1]) < 1e-9 * want[1] &&
                          x[1] == 0 && x[2] == 0,
                      "%g: %g %g", least[k], x[0], x[3]);
    }
    fix_close(&f);
}
END_TEST

/* The result is written directly to the state, also next to products of another type. */
START_TEST(written_in_place)
{
    static const Product product[] = {PRODUCT_F32, PRODUCT_BF16, PRODUCT_F64};
    for (int k = 0; k < 3; k++) {
        Gen g = {0};
        Type t = k == 2 ? T_F64 : T_F32;
        int calls = 0;
        ck_assert_msg(gen_compile(&g, source_of(rules[6]),
                                  &(GenOptions){.types = {.p = t, .g = t, .state = t},
                                                .target = k == 1 ? &target_cuda : &target_c,
                                                .product = 1 + product[k]}),
                      "%s", g.diag.text);
        const Phase *ph = &g.plan->entry[0].phase[0];
        for (int i = 0; i < ph->nstage; i++) {
            const Stage *s = &ph->stage[i];
            const Node *n = s->kind == S_CALL ? &ph->g->n[s->body[0]] : NULL;
            if (n && n->op != OP_MM) {
                calls++;
                ck_assert_msg(s->load[call_operand(n, 2)].mem == s->store[0].mem &&
                                  g.plan->mem[s->store[0].mem].kind == MEM_STATE,
                              "%d, %s: %d to %d", k, op_info[n->op].name,
                              s->load[call_operand(n, 2)].mem, s->store[0].mem);
            }
        }
        ck_assert_int_eq(calls, 3);
        gen_free(&g);
    }
}
END_TEST

/* Plans for a GPU, whose products may be in 16 bits while factors are not: each plan is
 * verified. */
START_TEST(random_plans)
{
    for (uint64_t seed = 1; seed <= 30; seed++) {
        Gen g = {0};
        char *text = random_factors(seed, seed % 3 ? 0 : 4);
        Type t = seed % 7 == 6 ? T_BF16 : T_F32;
        ck_assert_msg(gen_compile(&g, source_of(text),
                                  &(GenOptions){.types = {.p = t, .g = t, .state = T_F32},
                                                .target = &target_cuda,
                                                .product = 1 + (int)(seed % NPRODUCT)}),
                      "%s\n%s", g.diag.text, text);
        gen_free(&g);
        free(text);
    }
}
END_TEST

/* A rule's code contains the kernels that the runtime requests, for all parameter types and product
 * precisions. */
START_TEST(kernels_there)
{
    if (thinned(_i))
        return;
    static const char *const made[] = {"g",
                                       "mm(power(gram(g), -0.5), g)",
                                       "mm(power(gram(g), 0.5), g)",
                                       "mm(V, g) + 0 * g",
                                       "mm(chol(gram(g)), g)",
                                       "mm(qr(gram(g)), g)",
                                       "solve(gram(g), g)",
                                       "take(g, sort(rowmax(g)))",
                                       NULL,
                                       NULL};
    static const char *const no_product[] = {[8] = "A = chol(A)", [9] = "A = power(A, 0.5)"};
    static const struct { Type t; int product;
    } kept[] = {{T_F32, PRODUCT_F64},  {T_F32, PRODUCT_F32},  {T_F32, PRODUCT_TF32},
                {T_F32, PRODUCT_BF16}, {T_BF16, PRODUCT_F32}, {T_F16, PRODUCT_F16},
                {T_F64, PRODUCT_F64}};
    const int n = (int)(sizeof kept / sizeof *kept), k = _i / n;
    Gen g = {0};
    Buf b = {0};
    if (made[k])
        buf_printf(&b,
                   "return optimizer { name = 'x', matrix = function() %s p = p - mm(gram(g), %s) "
                   "end, step = "
                   "function() p = p - g end }",
                   k == 3 ? "local w, V = eigh(gram(g))" : "", made[k]);
    /* factors alone name the type of optc's own product */
    else
        buf_printf(&b,
                   "return optimizer { name = 'x', state = { A = eye(1, 'rows') }, matrix = "
                   "function() %s p = p - g "
                   "end, step = function() p = p - g end }",
                   no_product[k]);
    Type t = kept[_i % n].t, state = t == T_F64 ? T_F64 : T_F32;
    ck_assert_msg(gen_compile(&g, source_of(buf_text(&b)),
                  &(GenOptions){.types = {.p = t, .g = t, .state = state}, .target = &target_cuda,
            .product = 1 + kept[_i % n].product}), "%s\n%s", g.diag.text, buf_text(&b));
    char *text = gen_emit(&g, &(EmitOptions){.target = &target_cuda}, &g.diag), called[80];
    const Program *p = program_make(&g.arena, g.plan, NULL);
    ck_assert(text != NULL);
    int asked = 0;
    for (int i = 0; i < NCALLKERNEL; i++) {
        const char *name = call_kernel(p, i);
        snprintf(called, sizeof called, " %s(const optc_", name ? name : "");
        ck_assert_msg(!name || i == KERNEL_PHASE || strstr(text, called),
                      "%s, case %d: %s is missing", made[k] ? made[k] : no_product[k], _i % n,
                      name);
        asked += name != NULL;
        if (!name)
            continue;
        char *fixed =
            emit_cuda_fixed(FIXED_CALLS + (int)kernel_info[i].program, plan_needs(g.plan).f64);
        ck_assert_msg(fixed && strstr(fixed, called), "%s is not in its program", name);
        free(fixed);
    }
    /* a product's five, and the factor's own */
    ck_assert_int_ge(asked, k == 7 ? 7 : k ? 9 : 5);
    free(text);
    buf_free(&b);
    gen_free(&g);
}
END_TEST

/* A program that all rules share has its kernels once and no others, and does not depend on a
 * rule. */
START_TEST(shared_programs)
{
    for (int i = 0; i < 2 * NFIXED; i++) {
        bool f64 = i >= NFIXED;
        char *text = emit_cuda_fixed(i % NFIXED, f64), called[80];
        int kernels = 0, wanted = i % NFIXED < FIXED_CALLS ? 2 : 0;
        ck_assert(text != NULL);
        for (const char *s = text; (s = strstr(s, "extern \"C\" __global__ ")); s++)
            kernels++;
        for (int k = 0; k < NCALLKERNEL; k++) {
            if ((int)kernel_info[k].program != i % NFIXED - FIXED_CALLS)
                continue;
            snprintf(called, sizeof called, " %s(const optc_",
                     kernel_info[k].name[f64 && kernel_info[k].name[1]]);
            const char *at = strstr(text, called);
            ck_assert_msg(at != NULL, "program %d lacks%s", i, called);
            /* some have a form for older architectures */
            wanted += 1 + (strstr(at + 1, called) != NULL);
        }
        ck_assert_msg(kernels == wanted, "program %d has %d kernels, not %d", i, kernels, wanted);
        free(text);
    }
}
END_TEST

/* The spec's bound on eigenvalues: `relative`, lower for a hyperparameter, otherwise the
 * default. */
START_TEST(least_share)
{
    static const struct { const char *options; double low; } c[] =
        {{"", 1e-10}, {", { ridge = 1 }", 1e-10}, {", { relative = 0.01 }", 0.01 / 1.01},
        {", { relative = rel }", 0.001 / 1.001}, {", { relative = 0 }", 1e-10},
        {", { relative = 2 * rel, floor = rel }", 1e-10}};
    for (size_t k = 0; k < sizeof c / sizeof *c; k++) {
        Gen g = {0};
        Buf b = {0};
        buf_printf(
            &b,
            "return optimizer { name = 'x', hyper = { rel = 0.016 }, matrix = function() p = p - "
            "mm(power(gram(g), -0.5%s), g) end, step = function() p = p - rel * g end }",
            c[k].options);
        ck_assert_msg(gen_compile(&g, source_of(buf_text(&b)),
                                  &(GenOptions){.types = {.p = T_F32, .g = T_F32, .state = T_F32}}),
                      "%s", g.diag.text);
        const ProgCall *call = NULL;
        const Program *p = program_make(&g.arena, g.plan, NULL);
        for (int i = 0; i < p->nstage; i++)
            if (p->stage[i].call && p->stage[i].call->callee == CALL_POWER)
                call = p->stage[i].call;
        ck_assert_msg(call && fabs(call_low(call) / c[k].low - 1) < 1e-14, "%s: %g", c[k].options,
                      call ? call_low(call) : 0);
        buf_free(&b);
        gen_free(&g);
    }
}
END_TEST

/* The rules' text, whole and damaged. */
START_TEST(as_text)
{
    static const Damage bad[] = {
        {"alpha -0.25", "alpha 0", "the exponent of a factor is out of range"},
        {"= power rows", "= power cols", "a factor of a domain that has no such factor"},
        {"= power rows", "= qr rows", "the exponent of a factor is out of range"},
        {" alpha -0.25", " trans_a alpha -0.25", "a flag that it does not take"}};
    static const Damage more[] = {
        {" floor last alpha -0.25", " last alpha -0.25", "too many operands"},
        {" low ", " low -", "the lower bound of the eigenvalues is out of range"},
        {" last alpha 2", " alpha 2", "too many operands"}};
    reads_back(rules[0], bad, (int)(sizeof bad / sizeof *bad));
    reads_back(rules[5], more, 3);
    for (int i = 6; i < NRULES; i++)
        reads_back(rules[i], NULL, 0);
    static const Damage order[] = {{"= sort block_row", "= sort block", "that has no such factor"},
                                   {" cols", " right", "a flag that"}};
    static const Damage solve[] = {{"= solve elem", "= solve rows", "an operand has another shape"},
                                   {" last", " turn_b last", "a flag that it"}};
    static const Damage eigh[] = {
        {"= eigh cols_rank", "= eigh rows_rank", "that has no such factor"}};
    reads_back(rules[9], order, 1);
    reads_back(rules[8], solve, 2);
    reads_back(rules[7], eigh, 1);
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
    tcase_add_loop_test(t, nan_stays, 0, 3);
    tcase_add_loop_test(t, factor_counts, 0, 2);
    tcase_add_loop_test(t, last_stays, 0, 3);
    tcase_add_loop_test(t, floor_is_read, 0, 2);
    tcase_add_test(t, written_in_place);
    tcase_add_test(t, random_plans);
    tcase_add_loop_test(t, kernels_there, 0, 10 * 7);
    tcase_add_test(t, shared_programs);
    tcase_add_test(t, least_share);
    tcase_add_test(t, as_text);
    suite_add_tcase(s, t);
    suite_add_tcase(s, factors_defined());
    return s;
}

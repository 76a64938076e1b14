/* Factors on the GPU against the CPU: roots by products against roots by eigenvectors; also against
 * their definitions. */
#include "tests/harness/basis.h"
#include "tests/gpu/eigen_rule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *const rules[] = {
    /* two-sided, a fourth root of each side */
    "return optimizer { name = 'both', hyper = { lr = 0.1, eps = 1e-2 }, state = { L = eye(0.1, "
    "'rows'), R = eye(0.1, "
    "'cols') },\n"
    "  matrix = function() L = L + gram(g)  R = R + gram(g.T)\n"
    "    p = p - lr * mm(mm(power(L, -1/4, { ridge = eps }), g), power(R, -1/4, { relative = eps "
    "})) end,\n"
    "  step = function() p = p - lr * g end }",
    /* computed at some steps, with `last` as the fallback for matrices that have no root; odd
     * roots */
    "return optimizer { name = 'kept', hyper = { lr = 0.1 }, state = { L = zeros 'rows', X = "
    "eye(1, 'rows'), Y = "
    "eye(1, 'cols') },\n"
    "  matrix = function() L = 0.5 * L + gram(g)\n"
    "    every(2, { first = true }, function() X = power(L, -1/3, { relative = 1e-2, last = X })  "
    "Y = power(gram(g.T), "
    "-1, { relative = 1e-1, last = Y }) end)\n"
    "    p = p - lr * mm(mm(X, g), Y) end,\n"
    "  step = function() p = p - lr * g end }",
    /* block by block, and of matrices that are not the result of a product */
    "return optimizer { name = 'blocks', block = 24, hyper = { lr = 0.1 }, state = { L = zeros "
    "'rows' },\n"
    "  matrix = function() L = 0.5 * L + gram(g)  p = p - lr * mm(mm(power(L, -0.5, { ridge = 0.5 "
    "}), g), power(eye(2, "
    "'cols') + 0.1, -1/5)) end,\n"
    "  step = function() p = p - lr * g end }",
    /* triangular factors and solutions, from both sides */
    "return optimizer { name = 'triangles', hyper = { lr = 0.1 }, state = { C = zeros 'cols', X = "
    "zeros 'rows' },\n"
    "  matrix = function() local L = chol(gram(g) + eye(2, 'rows'))  C = chol(gram(g.T) + eye(1, "
    "'cols'))  X = "
    "solve(L, eye(1, 'rows'))\n"
    "    p = p - lr * (solve(L.T, solve(L, g)) + solve(C, g, { right = true }) + solve(C.T, "
    "solve(C, g.T)).T + "
    "mm(solve(L.T, eye(1, 'rows')), g)) end,\n"
    "  step = function() p = p - lr * g end }",
    /* orthonormal columns of tall and square matrices; rows taken in sorted order */
    "return optimizer { name = 'columns', rank = 3, hyper = { lr = 0.1 }, state = { Q = zeros "
    "'cols rank', S = zeros "
    "'rows', m = zeros },\n"
    "  matrix = function() Q = qr(normal 'cols rank' + 0.1 * mm(g.T, mm(g, normal 'cols rank')))  "
    "S = qr(gram(g) + "
    "eye(1, 'rows'))\n"
    "    local a, b = sort(rowmax(g)), sort(colmin(g))\n"
    "    m = take(take(m + g, a), b, 'cols')\n"
    "    p = p - lr * (mm(mm(g, Q), Q.T) + mm(S, m) + take(rowmax(g), a)) end,\n"
    "  step = function() p = p - lr * g end }",
    /* all eigenvectors and some of them; only values that do not depend on the sign of a vector */
    "return optimizer { name = 'basis', rank = 2, hyper = { lr = 0.1 }, state = { L = zeros "
    "'rows', w = zeros 'row', P "
    "= zeros 'cols' },\n"
    "  matrix = function() local v, V = eigh(gram(g))  w = v  L = mm(V * v.T, V.T)\n"
    "    local u, U = eigh(gram(g.T), 'rank')  P = mm(U * u.T, U.T)\n"
    "    p = p - lr * mm(V, mm(V.T, g)) end,\n"
    "  step = function() p = p - lr * g end }",
};
enum { NRULES = sizeof rules / sizeof *rules };
static const TestShape large[NSHAPES] = {
    {2, {200, 150}}, {1, {7}},    {3, {3, 5, 14}}, {2, {1, 64}}, {2, {600, 1}}, {2, {64, 129}},
    {2, {129, 64}},  {2, {0, 5}}, {2, {200, 150}}, {2, {65, 3}}, {2, {1, 1}},   {2, {128, 192}}};
static const TestShape small[NSHAPES] = {
    {2, {33, 20}}, {1, {7}},    {3, {3, 5, 7}}, {2, {1, 4}},  {2, {4, 1}}, {2, {36, 9}},
    {2, {9, 36}},  {2, {0, 5}}, {2, {33, 20}},  {2, {65, 3}}, {2, {1, 1}}, {2, {20, 33}}};

static void step_both(Side *c, Side *g, int step)
{
    set_grads(c, step);
    set_grads(g, step);
    OK(optc_step(c->b));
    OK(optc_step(g->b));
}

/* Factor statistics mean the same on both devices. */
static void compare_stats(const Side *c, const Side *g)
{
    for (int i = -1; i < NSHAPES; i++) {
        optc_factors x, y;
        OK(optc_factors_about(c->b, i, &x));
        OK(optc_factors_about(g->b, i, &y));
        ck_assert_msg(x.computed == y.computed && x.refused == y.refused &&
                          (x.residual < 1e-5) == (y.residual < 1e-5) && x.residual >= 0 &&
                          y.residual >= 0,
                      "tensor %d: of %d factors %d refused, residual %g; on the GPU of %d %d, %g",
                      i, (int)x.computed, (int)x.refused, x.residual, (int)y.computed,
                      (int)y.refused, y.residual);
        ck_assert(i >= 0 || x.computed > 0);
    }
}

START_TEST(as_on_the_cpu)
{
    SHARED();
    int rule = _i / 4;
    bool f64 = _i / 2 % 2, library = _i % 2;
    Side c, g;
    if (getenv("OPTC_TEST_SMALL") && !getenv("OPTC_ALL") &&
        (!rule || (rule == 2 && getenv("OPTC_THIN")) || f64 != rule % 2 || library != (rule == 4)))
        /* the emulated GPU takes seconds for each */
        return;
    optc_rule_options o = {
        .text = rules[rule], .param = f64 ? OPTC_F64 : OPTC_F32, .products = f64 ? "f64" : "f32"};
    use_shapes(getenv("OPTC_TEST_SMALL") ? small : large);
    use_cublas(library);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int step = 1; step <= 4; step++) {
        /* one tensor is excluded, so calls have fewer matrices */
        if (step == 4) {
            OK(optc_set_grad(c.b, 0, NULL, 0));
            OK(optc_set_grad(g.b, 0, NULL, 0));
        }
        step_both(&c, &g, step);
    }
    compare_within(rules[rule], &c, &g, f64 ? 1e-6 : 2e-3);
    compare_stats(&c, &g);
    close_side(&c, 0);
    close_side(&g, 0);
    use_cublas(true);
}
END_TEST

/* Selected rows and columns have the CPU's bits: nothing is rounded by sort, take and put. */
START_TEST(selected_rows)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'select', rank = { share = 0.3, of = 'side' }, state = { m = "
        "zeros, r = zeros 'row' "
        "},\n"
        "  matrix = function() local u = m + g  local i, j = topk(rowmax(abs(u))), "
        "topk(colmax(abs(u)))\n"
        "    r = put(r, i, take(r, i) + rowmax(take(u, i)))  m = put(u, i, 0.5 * take(u, i))\n"
        "    p = p - put(0, i, take(u, i) + 0.1 * normal 'rank cols') - 0.1 * put(u, j, normal "
        "'rows rank' * take(u, "
        "j, 'cols'), 'cols') end,\n"
        "  step = function() p = p - 0.1 * g end }";
    Side c, g;
    optc_rule_options o = {.text = text, .param = _i ? OPTC_F64 : OPTC_F32};
    use_shapes(getenv("OPTC_TEST_SMALL") ? small : large);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int step = 1; step <= 3; step++)
        step_both(&c, &g, step);
    compare_within(text, &c, &g, 0);
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

/* Sorts over several thread blocks: many equal values, zeros of both signs, infinities and NaN. */
START_TEST(sorted_values)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'order', state = { r = zeros 'row', s = zeros 'row', q = zeros "
        "'row' },\n"
        "  matrix = function() local v = rowsum(g) local up = max(sign(v - 0.2), 0)\n"
        "    r = sort(sqrt(sign(v)))  s = sort(v / up)  q = sort(-0.0 * sign(v))\n"
        "    p = p - take(g, r) - 0.5 * take(g, s) - 0.25 * take(g, q) end,\n"
        "  step = function() p = p - 0.1 * g end }";
    static const TestShape tall[NSHAPES] = {
        {2, {600, 1}}, {2, {257, 2}}, {2, {512, 1}}, {2, {3, 2}}, {1, {0}}, {1, {0}},
        {1, {0}},      {1, {0}},      {1, {0}},      {1, {0}},    {1, {0}}, {1, {0}}};
    Side c, g;
    optc_rule_options o = {.text = text, .param = _i ? OPTC_F64 : OPTC_F32};
    use_shapes(tall);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    step_both(&c, &g, 1);
    compare_within(text, &c, &g, 0);
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

/* Solves of as many right-hand sides as rows or more, in f32, multiply by the triangle's inverse,
 * for both sides and transposed. Sizes: pairs of tiles of 64 and 128 rows, a shorter second one,
 * and panels of 256. Both devices compute in f64 and round once; p is a difference. */
START_TEST(solves_by_inverses)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'many', state = { a = zeros, b = zeros, c = zeros, d = zeros "
        "},\n"
        "  matrix = function()\n"
        "    local A = eye(1, 'rows') + 0.02 * outer(rowmax(g), rowmin(g))\n"
        "    local B = eye(1, 'cols') + 0.02 * outer(colmax(g), colmin(g))\n"
        "    a = solve(A, g)  b = solve(A.T, g)\n"
        "    c = solve(B, g, { right = true })  d = solve(B.T, g, { right = true })\n"
        "    p = p - a - b - c - d end,\n"
        "  step = function() p = p - 0.1 * g end }";
    static const TestShape sides[NSHAPES] = {{2, {70, 80}},   {2, {80, 70}},   {2, {70, 80}},
                                             {2, {201, 201}}, {2, {65, 65}},   {2, {128, 130}},
                                             {2, {64, 64}},   {2, {300, 270}}, {1, {0}},
                                             {1, {0}},        {1, {0}},        {1, {0}}};
    Side c, g;
    int pairs = 0;
    optc_rule_options o = {.text = text, .products = "f32"};
    use_shapes(sides);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int step = 1; step <= 2; step++)
        step_both(&c, &g, step);
    for (int i = 0; i < g.b->gpu->calls->nset; i++)
        pairs += is_area(g.b->gpu->calls->set[i].array) && g.b->gpu->calls->set[i].parts > 0;
    ck_assert(pairs > 0);
    compare_within(text, &c, &g, 1e-5);
    compare_stats(&c, &g);
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

/* Any workspace gives the same bits: in batches and rounds, one matrix or all. This holds where no
 * library chooses an algorithm by its workspace. Of a large workspace only the needed part is
 * allocated. */
START_TEST(any_workspace)
{
    SHARED();
    static const struct { int rule; bool f64; int64_t workspace; } c[] =
        {{1, true, 7000}, {3, true, 9000}, {4, false, 9000}, {5, true, 6000}};
    static const TestShape few[NSHAPES] = {{2, {7, 5}}, {2, {7, 5}}, {2, {5, 7}}, {1, {0}},
                                           {1, {0}},    {1, {0}},    {1, {0}},    {1, {0}},
                                           {1, {0}},    {1, {0}},    {1, {0}},    {1, {0}}};
    const int rule = c[_i].rule;
    Side x[3];
    optc_held held[3];
    optc_rule_options o = {.text = rules[rule],
                           .param = c[_i].f64 ? OPTC_F64 : OPTC_F32,
                           .products = c[_i].f64 ? "f64" : "f32"};
    use_shapes(few);
    use_cublas(false);
    side_method = EIGEN_ROTATED;
    for (int i = 0; i < 3; i++) {
        side_workspace = i == 1 ? c[_i].workspace : i == 2 ? (int64_t)1 << 40 : 0;
        open_side(&x[i], "cuda", o, 0);
        OK(optc_binding_held(x[i].b, &held[i]));
        set_grads(&x[i], 1);
        if (i < 2)
            OK(optc_step(x[i].b));
    }
    side_workspace = 0;
    side_method = EIGEN_BY_SIZE;
    same_params(&x[0], &x[1], rules[rule]);
    ck_assert_msg(held[0].batches < held[1].batches, "%d batches and %d", held[0].batches,
                  held[1].batches);
    ck_assert_int_eq(held[0].workspace, held[2].workspace);
    size_t memory;
    ck_assert(!d->cuDeviceTotalMem_v2(&memory, x[0].e->gpu->device));
    ck_assert_msg(
        x[0].e->workspace % (1 << 30) == 0 &&
            (x[0].e->workspace == 1 << 30 || x[0].e->workspace <= (int64_t)(memory / 32)) &&
            x[0].e->workspace > (int64_t)(memory / 32) - (1 << 30),
        "a workspace of %lld bytes on a GPU of %zu", (long long)x[0].e->workspace, memory);
    for (int i = 0; i < 3; i++)
        close_side(&x[i], 0);
    use_cublas(true);
}
END_TEST

/* Sets the state A and computes X = power(A, -1/p). Returns the error relative to the exact root in
 * the Frobenius norm. In f32, A is rounded. */
static double root_error(int p, int n, double low, bool f64)
{
    char text[300];
    snprintf(
        text, sizeof text,
        "return optimizer { name = 'one', state = { A = zeros 'rows', X = zeros 'rows' },\n"
        "  matrix = function() X = power(A, -1/%d)  A = A + 0 * sum(g)  p = p + 0 * g end, step "
        "= function() p = p + 0 * g end }",
        p);
    TestShape one[NSHAPES] = {{2, {n, 1}}};
    Side g;
    Basis m = make_basis(n, low, 7);
    size_t all = (size_t)n * (size_t)n;
    double *a = malloc(8 * all), *x = malloc(8 * all), *want = malloc(8 * all), off = 0, size = 0;
    use_shapes(one);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = f64 ? OPTC_F64 : OPTC_F32,
                                              .products = f64 ? "f64" : "f32"}, 0);
    of_values(&m, 1, a);
    of_values(&m, -1.0 / p, want);
    OK(optc_state_write(g.b, 0, "A", a, (int64_t)all));
    set_grads(&g, 1);
    OK(optc_step(g.b));
    OK(optc_state_read(g.b, 0, "X", x, (int64_t)all));
    for (size_t i = 0; i < all; i++) {
        off += (x[i] - want[i]) * (x[i] - want[i]);
        size += want[i] * want[i];
    }
    close_side(&g, 0);
    free(a), free(x), free(want), free(m.q), free(m.value);
    return sqrt(off / size);
}

START_TEST(root_errors)
{
    SHARED();
    static const struct { double low; bool f64; double bound; int p;
    } c[] = {{1e-2, false, 1e-6, 4}, {1e-4, false, 1e-5, 4}, {1e-6, false, 5e-4, 4},
             {1e-2, true, 1e-13, 4}, {1e-6, true, 1e-10, 4}, {1e-2, false, 5e-6, 1}};
    if (getenv("OPTC_TEST_SMALL") && _i != 2 && _i != 3 && _i != 5)
        return;
    int n = getenv("OPTC_TEST_SMALL") ? 40 : _i % 2 ? 300 : 1024;
    double off = root_error(c[_i].p, n, c[_i].low, c[_i].f64);
    printf("A^(-1/%d) of %d x %d, condition %.0e, kept in %s: off by %.1e\n", c[_i].p, n, n,
           1 / c[_i].low, c[_i].f64 ? "f64" : "f32", off);
    ck_assert_msg(off <= c[_i].bound, "condition %g, n = %d: off by %g, not %g", 1 / c[_i].low, n,
                  off, c[_i].bound);
}
END_TEST

/* Random vectors instead of the last product check a root: X has the same bits, the same roots are
 * refused, and the residual is that of the product within a factor of two. The second matrix has an
 * eigenvalue below the rule's bound, the third one negative eigenvalues. */
START_TEST(probed_roots)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'probed', state = { A = zeros 'rows', X = eye(3, 'rows') },\n"
        "  matrix = function() X = power(A, -1/4, { relative = 1e-3, last = X })  A = A + 0 * "
        "sum(g)  p = p + 0 * g "
        "end, step = function() p = p + 0 * g end }";
    enum { N = 64, K = 3 };
    static const TestShape some[NSHAPES] = {{2, {N, 1}}, {2, {N, 1}}, {2, {N, 1}}};
    static double a[N * N], x[2][K][N * N];
    optc_factors said[2][K];
    use_shapes(some);
    for (int probed = 0; probed < 2; probed++) {
        Side g;
        side_probed = probed ? 16 : 1000;
        open_side(&g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
        side_probed = 0;
        for (int k = 0; k < K; k++) {
            Basis m = make_basis(N, 0.1, 7 + (unsigned)k);
            for (int i = 0; i < N; i++)
                m.value[i] = k == 1 && i == N / 2   ? -3e-3
                             : k == 2 && i % 3 == 0 ? -m.value[i]
                                                    : m.value[i];
            of_values(&m, 1, a);
            OK(optc_state_write(g.b, k, "A", a, N * N));
            free(m.q), free(m.value);
        }
        set_grads(&g, 1);
        OK(optc_step(g.b));
        for (int k = 0; k < K; k++) {
            OK(optc_factors_about(g.b, k, &said[probed][k]));
            OK(optc_state_read(g.b, k, "X", x[probed][k], N * N));
        }
        close_side(&g, 0);
    }
    for (int k = 0; k < K; k++) {
        double exact = said[0][k].residual, near = said[1][k].residual;
        ck_assert_msg(!memcmp(x[0][k], x[1][k], sizeof x[0][k]), "matrix %d: other bits", k);
        ck_assert_msg(said[0][k].refused == (k > 0) && said[1][k].refused == (k > 0),
                      "matrix %d: residuals %g, %g", k, exact, near);
        ck_assert_msg(exact < 1e-6   ? near < 1e-6
                      : exact > 1e300 ? near > 1e300
                                      : near > exact / 2 && near < exact * 2,
                      "matrix %d: residuals %g, %g", k, exact, near);
    }
}
END_TEST

/* Beyond the range of the storage type there is no root on either device: X keeps its last value or
 * becomes NaN, and other matrices are unaffected. */
START_TEST(beyond_range)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'far', state = { A = eye(1e-40, 'rows'), X = eye(3, 'rows') }, "
        "matrix = function() "
        "X = power(A, -1, { relative = 1e-3, last = X })\n"
        "  A = A + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";
    static const TestShape one[NSHAPES] = {{2, {5, 2}}};
    for (int k = 0; k < 2; k++) {
        Side g;
        double x[25];
        optc_factors said;
        use_shapes(one);
        open_side(&g, k ? "cuda" : "cpu",
                  (optc_rule_options){.text = text, .param = OPTC_F32, .products = "f32"}, 0);
        set_grads(&g, 1);
        OK(optc_step(g.b));
        OK(optc_state_read(g.b, 0, "X", x, 25));
        OK(optc_factors_about(g.b, 0, &said));
        ck_assert_msg(x[0] == 3 && x[1] == 0 && said.computed == 1 && said.refused == 1 &&
                          said.residual == INFINITY,
                      "%g %g", x[0], said.residual);
        close_side(&g, 0);
    }
}
END_TEST

START_TEST(refused)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'some', state = { A = zeros 'rows', X = eye(3, 'rows'), Y = "
        "zeros 'rows' },\n"
        "  matrix = function() X = power(A, -1/2, { last = X })  Y = power(A, -1/2)  A = A + 0 "
        "* sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";
    enum { N = 5 };
    static const TestShape five[NSHAPES] =
        {{2, {N, 2}}, {2, {N, 2}}, {2, {N, 2}}, {2, {N, 2}}, {2, {N, 2}}, {2, {N, 2}}};
    static const double diagonal[] = {4, NAN, 0, -1, INFINITY, 1e-300};
    Side g;
    use_shapes(five);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = OPTC_F64, .products = "f64"},
              0);
    for (int k = 0; k < 6; k++) {
        double a[N * N] = {0};
        for (int i = 0; i < N; i++)
            a[i * (N + 1)] = i == 3 ? diagonal[k] : k == 5 ? 1e-300 : 4;
        if (k == 2)
            memset(a, 0, sizeof a);
        OK(optc_state_write(g.b, k, "A", a, N * N));
    }
    set_grads(&g, 1);
    OK(optc_step(g.b));
    for (int k = 0; k < 6; k++) {
        double x[N * N], y[N * N];
        OK(optc_state_read(g.b, k, "X", x, N * N));
        OK(optc_state_read(g.b, k, "Y", y, N * N));
        bool good = k == 0 || k == 5;
        double want = k == 0 ? 0.5 : k == 5 ? 1e150 : 3;
        for (int i = 0; i < N * N; i++) {
            double w = i % (N + 1) ? 0 : want;
            ck_assert_msg(fabs(x[i] - w) <= 1e-7 * want, "matrix %d, %d: %g, not %g", k, i, x[i],
                          w);
            ck_assert_msg(good ? fabs(y[i] - w) <= 1e-7 * want : y[i] != y[i], "matrix %d, %d: %g",
                          k, i, y[i]);
        }
        optc_factors said;
        OK(optc_factors_about(g.b, k, &said));
        ck_assert(said.computed == 2 && said.refused == (good ? 0 : 2) &&
                  (good ? said.residual < 1e-6 : said.residual > 0.05));
    }
    close_side(&g, 0);
}
END_TEST

/* Solves in f32 whose triangle has a bad diagonal entry, or whose result f32 cannot hold, are NaN
 * as a whole: by the triangle's inverse (70 rows) and by substitution. */
START_TEST(refused_solves)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'some', state = { A = zeros 'rows', X = zeros },\n"
        "  matrix = function() X = solve(A, g)  A = A + 0 * t  p = p + 0 * g end, step = "
        "function() p = p + 0 * g end "
        "}";
    static const double diagonal[] = {4, NAN, 0, -1, INFINITY, 1e-42};
    int rows = _i ? 70 : 20, cols = 75;
    TestShape some[NSHAPES] = {{0}};
    double *a = malloc(sizeof *a * 70 * 75);
    Side g;
    for (int k = 0; k < 6; k++)
        some[k] = (TestShape){2, {rows, cols}};
    use_shapes(some);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
    for (int k = 0; k < 6; k++) {
        for (int i = 0; i < rows * rows; i++)
            a[i] = i % (rows + 1) ? 0 : i / rows == 3 ? diagonal[k] : 4;
        OK(optc_state_write(g.b, k, "A", a, rows * rows));
    }
    set_grads(&g, 1);
    OK(optc_step(g.b));
    for (int k = 0; k < 6; k++) {
        bool good = k == 0 || k == 3;
        optc_factors said;
        OK(optc_state_read(g.b, k, "X", a, rows * cols));
        for (int i = 0; i < rows * cols; i++)
            ck_assert_msg(good ? fabs(a[i]) < 10 : a[i] != a[i], "matrix %d, %d: %g", k, i, a[i]);
        OK(optc_factors_about(g.b, k, &said));
        ck_assert(said.computed == 1 && said.refused == (good ? 0 : 1));
    }
    close_side(&g, 0);
    free(a);
}
END_TEST

/* A failing library call names the operation, its line, the shape and the tensor. States do not
 * change, and the next step is right. */
static int fails_batched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                         int k, const void *alpha, const void *const *a, cudaDataType at, int lda,
                         const void *const *b, cudaDataType bt, int ldb, const void *beta,
                         void *const *c, cudaDataType ct, int ldc, int count, cublasComputeType_t t,
                         cublasGemmAlgo_t g)
{
    (void)h, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)at,
        (void)lda, (void)b, (void)bt, (void)ldb, (void)beta, (void)c, (void)ct, (void)ldc,
        (void)count, (void)t, (void)g;
    return CUBLAS_STATUS_EXECUTION_FAILED;
}

START_TEST(a_call_fails)
{
    SHARED();
    static const struct { const char *factor, *says; } c[] =
        {{"power(A, -1/2)", "a power of rule 'one' (spec:2), of 5 x 5, for tensor number 0"},
        {"qr(A)", "orthonormal columns of rule 'one' (spec:2), of 5 x 5, for tensor number 0"}};
    static const TestShape one[NSHAPES] = {{2, {5, 2}}};
    char text[300];
    double x[25];
    Side g;
    snprintf(text, sizeof text,
             "return optimizer { name = 'one', state = { A = eye(4, 'rows'), X = eye(3, 'rows') }, "
             "matrix = "
             "function()\n  X = %s  A = A + 0 * sum(g)  p = p + 0 * g end,"
             " step = function() p = p + 0 * g end }",
             c[_i].factor);
    use_shapes(one);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = OPTC_F64, .products = "f64"},
              0);
    set_grads(&g, 1);
    Cublas *f = &g.b->gpu->calls->blas, was = *f;
    f->cublasGemmBatchedEx = fails_batched;
    use_cublas_alone(g.b);
    FAILS(optc_step(g.b), OPTC_ERROR_DEVICE, "cublasGemmBatchedEx: ");
    /* a step that is half done changes no value of this rule */
    OK(optc_set_t(g.b, -1, 0));
    FAILS(optc_step(g.b), OPTC_ERROR_DEVICE, c[_i].says);
    OK(optc_set_t(g.b, -1, 0));
    OK(optc_state_read(g.b, 0, "X", x, 25));
    ck_assert(x[0] == 3 && x[1] == 0);
    *f = was;
    OK(optc_step(g.b));
    OK(optc_state_read(g.b, 0, "X", x, 25));
    ck_assert(fabs(x[0] - (_i == 0 ? 0.5 : 1)) < 1e-7);
    close_side(&g, 0);
}
END_TEST

/* A matrix whose working memory is beyond the reach of the kernels is refused. The memory of the
 * binding, 21 GB, is reserved and hardly touched: nothing runs before the refusal. So this needs an
 * emulated GPU. */
static void *reserve(void *none, size_t bytes, void *stream)
{
    (void)none, (void)stream;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static void unreserve(void *none, void *memory, size_t bytes, void *stream)
{
    (void)none, (void)stream;
    munmap(memory, bytes);
}

START_TEST(too_large)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'one', state = { A = eye(4, 'rows'), X = eye(3, 'rows') }, "
        "matrix = function()\n  X = qr(A)  A = A + 0 * sum(g)  p = p + 0 * g end, step = "
        "function() p = p + 0 * g end }";
    static const optc_allocator memory = {reserve, unreserve, NULL};
    int64_t dim[2] = {24000, 1};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p;
    if (!emulated())
        return;
    OK(optc_open(&(optc_engine_options){.device = "cuda",
                                        .cache_dir = getenv("OPTC_TEST_CACHE"),
                                        .allocator = &memory,
                                        .workspace = (int64_t)1 << 36},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    ck_assert(!d->cuMemAlloc_v2(&p, 8 * 24000));
    optc_tensor t = {.param = (void *)(uintptr_t)p,
                     .grad = (void *)(uintptr_t)(p + 4 * 24000),
                     .rank = 2,
                     .shape = dim};
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "orthonormal columns of rule 'one' (spec:2), of 24000 x 24000, for tensor number 0: one "
          "matrix needs "
          "2305536000 values of working memory, and kernels reach 2147483647, enough for about "
          "23162 x 23162; choose a "
          "smaller `limit`, or divide the tensor into blocks");
    d->cuMemFree_v2(p);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

void add_factors(TCase *t)
{
    tcase_add_test(t, too_large);
    tcase_add_loop_test(t, a_call_fails, 0, 2);
    tcase_add_loop_test(t, as_on_the_cpu, 0, NRULES * 4);
    tcase_add_test(t, solves_by_inverses);
    tcase_add_loop_test(t, selected_rows, 0, 2);
    tcase_add_loop_test(t, sorted_values, 0, 2);
    tcase_add_loop_test(t, any_workspace, 0, 4);
    tcase_add_loop_test(t, root_errors, 0, 6);
    tcase_add_test(t, probed_roots);
    tcase_add_test(t, refused);
    tcase_add_loop_test(t, refused_solves, 0, 2);
    tcase_add_test(t, beyond_range);
}

/* Eigenvectors on the GPU, and powers computed from them, by every solver, against their
 * definitions. */
#include "tests/gpu/eigen_rule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const method_names[] = {"by size", "rotations", "divide and conquer", "f32",
                                           "f64"};

static void vectors_of(int64_t n, int64_t side)
{
    int64_t all = side * side;
    if (emulated() && (n > 3 ? side > 5 : side > 33 || (side == 33 && n > 1)))
        return;
    double *a = malloc(16 * (size_t)(n * all)), *v = a + n * all, *value = malloc(8 * (size_t)side);
    spread(value, side, 1e-4);
    for (int64_t k = 0; k < n; k++)
        make_matrix(a + k * all, side, value, 1, 7 + (uint64_t)k);
    for (int how = 0; how < 10; how++) {
        EigenMethod method = (EigenMethod)(how / 2);
        bool f64 = how % 2;
        char what[100];
        if ((method == EIGEN_F32 && f64) || (method == EIGEN_BY_SIZE && f64) ||
            (emulated() && method != EIGEN_F64 && f64) || (method == EIGEN_ROTATED && side > 200) ||
            (side > 200 && n == 3) ||
            (emulated() && method == EIGEN_DIVIDED && (side > 5 ? n > 1 : n != 3)))
            continue;
        snprintf(what, sizeof what, "%lld x %lld^2 in %s, %s", (long long)n, (long long)side,
                 f64 ? "f64" : "f32", method_names[method]);
        One o;
        open_one(&o, vectors_rule, n, side, (How){method, f64, 0, 0});
        OK(optc_state_write(o.b, 0, "A", a, n * all));
        OK(optc_step(o.b));
        /* the second step is a graph if graphs are available */
        OK(optc_step(o.b));
        OK(optc_state_read(o.b, 0, "A", a, n * all));
        OK(optc_state_read(o.b, 0, "V", v, n * all));
        for (int64_t k = 0; k < n; k++)
            if (side < 100 || k == n - 1)
                are_vectors(a + k * all, v + k * all, side, side, f64 ? 1e-14 * (double)(side + 20)
                            : 3e-7 * (method == EIGEN_F32 || method == EIGEN_DIVIDED || side > 256
                                    ? sqrt((double)side) + 20 : 2), what);
        close_one(&o);
    }
    free(a), free(value);
}

START_TEST(vectors)
{
    SHARED();
    static const int64_t sides[] = {1, 2, 5, 33, 64, 130, 520}, numbers[] = {1, 3, 70};
    for (int i = 0; i < 3; i++)
        if (!emulated() ||
            (numbers[i] * sides[_i] <= 600 && !thinned(numbers[i] == 70 && sides[_i] != 5)))
            vectors_of(numbers[i], sides[_i]);
}
END_TEST

/* A V = V w for 17 of the eigenvectors. */
static void some_are_vectors(const double *a, const double *v, int64_t n, double bound)
{
    double size = 0, *av = malloc(8 * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        size = fmax(size, fabs(a[i * (n + 1)]));
    for (int64_t k = 0; k < n; k += (n - 1) / 16) {
        double w = 0, norm = 0;
        for (int64_t i = 0; i < n; i++) {
            av[i] = 0;
            for (int64_t j = 0; j < n; j++)
                av[i] += a[i * n + j] * v[j * n + k];
            w += v[i * n + k] * av[i];
            norm += v[i * n + k] * v[i * n + k];
        }
        for (int64_t i = 0; i < n; i++)
            ck_assert_msg(fabs(av[i] - w * v[i * n + k]) <= bound * size,
                          "A V - V w of vector %lld is %g", (long long)k, av[i] - w * v[i * n + k]);
        ck_assert_msg(fabs(norm - 1) <= bound, "vector %lld has the squared norm %g", (long long)k,
                      norm);
    }
    free(av);
}

/* Divide and conquer on many matrices with few eigenvalues that are not 0: parts with equal values,
 * leaves of zeros. Every second matrix has equal values as well. Also sizes at which a block's rows
 * do not fit into shared memory. */
START_TEST(divided)
{
    SHARED();
    static const struct { int64_t n, side, rank; bool f64;
    } of[] = {{12, 40, 40, false},   {6, 70, 9, true},     {1, 125, 60, true},
              {20, 520, 130, false}, {2, 2100, 300, true}, {2, 3000, 700, false}};
    int64_t n = of[_i].n, side = of[_i].side, all = side * side;
    if (emulated() && (side > 200 || thinned(_i + 1)))
        return;
    double *a = malloc(16 * (size_t)(n * all)), *v = a + n * all, *value = malloc(8 * (size_t)side);
    for (int64_t k = 0; k < n; k++) {
        spread(value, side, 1e-2);
        for (int64_t i = 0; i < side; i++)
            value[i] = i >= of[_i].rank ? 0 : k % 2 && i % 3 ? value[0] : value[i];
        if (k < 4)
            make_matrix(a + k * all, side, value, 1, 7 + (uint64_t)k);
        else
            memcpy(a + k * all, a + k % 4 * all, 8 * (size_t)all);
    }
    One o;
    open_one(&o, vectors_rule, n, side, (How){EIGEN_DIVIDED, of[_i].f64, 0, 0});
    OK(optc_state_write(o.b, 0, "A", a, n * all));
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "A", a, n * all));
    OK(optc_state_read(o.b, 0, "V", v, n * all));
    for (int64_t k = 0; k < n; k++)
        if (k >= 4)
            ck_assert_msg(!memcmp(v + k * all, v + k % 4 * all, 8 * (size_t)all),
                          "matrix %lld has other bits", (long long)k);
        else if (side > 1000)
            some_are_vectors(a + k * all, v + k * all, side,
                             (of[_i].f64 ? 1e-14 : 5e-7) * (sqrt((double)side) + 20));
        else
            are_vectors(a + k * all, v + k * all, side, side,
                        (of[_i].f64 ? 1e-14 : 5e-7) * (sqrt((double)side) + 20), "divided");
    close_one(&o);
    free(a), free(value);
}
END_TEST

static bool vectors_in_l2(const One *o)
{
    bool large = false;
    for (int i = 0; i < o->b->gpu->calls->nstep; i++)
        large = large || o->b->gpu->calls->step[i].kernel == KERNEL_TRIDIAGONAL_LARGE_F32 ||
            o->b->gpu->calls->step[i].kernel == KERNEL_TRIDIAGONAL_LARGE_F64;
    return large;
}

/* The bits do not depend on the number of multiprocessors, on shared memory, or on how many blocks
 * may run at once (0: the GPU has no cooperative launches). Blocks with 600 or 900 bytes have no
 * room for their vectors. */
START_TEST(divided_bits)
{
    SHARED();
    static const struct { const char *sms, *shared, *cooperative; bool large;
    } settings[] = {
        {"8", "16384", "8", false}, {"3", "16384", "8", false}, {"8", "16384", "3", false},
        {"1", "9000", "8", false},  {"8", "900", "8", true},    {"8", "600", "3", true},
        {"1", "600", "8", true},    {"8", "16384", "0", false}, {"8", "900", "0", true}};
    enum {
        COUNT = 2, SIDE = 45, ALL = COUNT * SIDE * SIDE,
        SETTINGS = sizeof settings / sizeof *settings
    };
    double a[ALL], v[ALL], first[ALL], value[SIDE];
    if (!emulated())
        return;
    spread(value, SIDE, 1e-2);
    for (int k = 0; k < COUNT; k++)
        make_matrix(a + k * SIDE * SIDE, SIDE, value, 1, 7 + (uint64_t)k);
    for (int i = 0; i < SETTINGS; i++) {
        setenv("EMU_SMS", settings[i].sms, 1);
        setenv("EMU_SHARED", settings[i].shared, 1);
        setenv("EMU_COOPERATIVE", settings[i].cooperative, 1);
        One o;
        open_one(&o, vectors_rule, COUNT, SIDE, (How){EIGEN_DIVIDED, _i, 0, 0});
        ck_assert(vectors_in_l2(&o) == settings[i].large);
        OK(optc_state_write(o.b, 0, "A", a, ALL));
        OK(optc_step(o.b));
        OK(optc_state_read(o.b, 0, "V", i ? v : first, ALL));
        close_one(&o);
        ck_assert_msg(!i || !memcmp(v, first, sizeof v),
                      "other bits with %s multiprocessors, %s bytes, %s blocks", settings[i].sms,
                      settings[i].shared, settings[i].cooperative);
    }
    unsetenv("EMU_SMS"), unsetenv("EMU_SHARED"), unsetenv("EMU_COOPERATIVE");
}
END_TEST

/* A stream may have fewer multiprocessors than the device, of which each has more rows. The message
 * names the cause if their vectors do not fit. */
START_TEST(few_multiprocessors)
{
    SHARED();
    One o;
    if (!emulated())
        return;
    setenv("EMU_SHARED", "2500", 1);
    setenv("EMU_COOPERATIVE", "2", 1);
    open_one(&o, vectors_rule, 2, 55, (How){EIGEN_DIVIDED, true, 0, 0});
    FAILS(optc_step(o.b), OPTC_ERROR_DEVICE,
          "eigenvectors of rule 'one' (spec:2), of 55 x 55, for tensor number 0: "
          "the stream has too few of the GPU's 8 multiprocessors");
    setenv("EMU_COOPERATIVE", "8", 1);
    /* a step that is half done changes no value of this rule */
    OK(optc_set_t(o.b, -1, 0));
    OK(optc_step(o.b));
    close_one(&o);
    unsetenv("EMU_SHARED"), unsetenv("EMU_COOPERATIVE");
}
END_TEST

/* Denormal values beside a diagonal of zeros: rotations made of them would not be orthogonal. */
START_TEST(denormals)
{
    SHARED();
    static const int64_t sides[] = {3, 5, 33};
    int64_t side = sides[_i];
    double a[33 * 33], v[33 * 33];
    memset(a, 0, sizeof a);
    a[0] = 1;
    for (int64_t i = 2; i < side; i++)
        a[i * side + i - 1] = a[(i - 1) * side + i] = i % 2 ? 1e-320 : 3e-323;
    One o;
    open_one(&o, vectors_rule, 1, side, (How){EIGEN_DIVIDED, true, 0, 0});
    OK(optc_state_write(o.b, 0, "A", a, side * side));
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "V", v, side * side));
    are_vectors(a, v, side, side, 1e-14, "denormals");
    close_one(&o);
}
END_TEST

/* All values are denormal. Bounds of deflation are those of a matrix whose largest value is about
 * 1. */
START_TEST(denormal_matrix)
{
    SHARED();
    enum { SIDE = 37, ALL = SIDE * SIDE };
    double a[ALL], tiny[ALL], v[ALL];
    for (int i = 0; i < ALL; i++) {
        a[i] = (i / SIDE < i % SIDE ? i % SIDE * SIDE + i / SIDE : i) * 7919 % 2001 - 1000;
        tiny[i] = ldexp(a[i], -1060);
    }
    One o;
    open_one(&o, vectors_rule, 1, SIDE, (How){EIGEN_DIVIDED, true, 0, 0});
    OK(optc_state_write(o.b, 0, "A", tiny, ALL));
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "V", v, ALL));
    are_vectors(a, v, SIDE, SIDE, 1e-12, "a denormal matrix");
    close_one(&o);
}
END_TEST

/* Only the first three eigenvectors. */
START_TEST(some_vectors)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'one', view = 'last', rank = 3, state = { A = zeros 'rows', V = "
        "zeros 'rows rank' "
        "},\n"
        "  matrix = function() local _, U = eigh(A, 'rank')  V = U  A = A + 0 * sum(g)  p = p + "
        "0 * g end, step = function() p = p + 0 * g end }";
    int64_t n = 2, side = _i < 2 ? 20 : 200, all = side * side;
    if (emulated() && _i != 1)
        return;
    double *a = malloc(8 * (size_t)(n * all)), *v = malloc(8 * (size_t)(n * side * 3)),
        *value = malloc(8 * (size_t)side);
    spread(value, side, 1e-3);
    for (int64_t k = 0; k < n; k++)
        make_matrix(a + k * all, side, value, 1, 3 + (uint64_t)k);
    One o;
    open_one(&o, text, n, side, (How){_i % 2 ? EIGEN_F64 : EIGEN_DIVIDED, true, 0, 5});
    optc_state_view view;
    OK(optc_state(o.b, 0, "V", &view));
    int64_t some = view.count / n / side;
    ck_assert(some == 3);
    OK(optc_state_write(o.b, 0, "A", a, n * all));
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "V", v, view.count));
    for (int64_t k = 0; k < n; k++)
        are_vectors(a + k * all, v + k * side * some, side, some, 1e-14 * (double)(side + 20),
                    "some");
    close_one(&o);
    free(a), free(v), free(value);
}
END_TEST

/* ---- powers: all of them in one rule, which is compiled once a type ---- */
/* lifted: eigenvalues below 0.05 are raised to 0.05 */
static const struct { const char *call; double exponent; bool lifted;
} powers_of[] = {{"power(A, 0.5)", 0.5, false},
                 {"power(A, -0.75)", -0.75, false},
                 {"power(A, 1)", 1, false},
                 {"power(A, -1/17)", -1.0 / 17, false},
                 {"power(A, -1)", -1, false},
                 {"power(A, -1/4, { floor = least })", -0.25, true},
                 {"power(A, 1.5, { floor = least })", 1.5, true},
                 {"power(A, -0.4)", -0.4, false}};
enum { NPOWERS = sizeof powers_of / sizeof *powers_of };

/* The largest relative error over all matrices, in the Frobenius norm, for each power. */
static void powers_off(const double *value, int64_t n, int64_t side, How how, double off[NPOWERS])
{
    char text[2000];
    int64_t all = side * side, at = 0;
    double *a = malloc(8 * (size_t)(n * all)), *x = malloc(8 * (size_t)(n * all)),
           *want = malloc(8 * (size_t)all), *raised = malloc(8 * (size_t)side);
    at += snprintf(text, sizeof text,
                   "return optimizer { name = 'one', view = 'last', hyper = { least = 0.05 }, "
                   "state = { A = zeros 'rows'");
    for (int i = 0; i < NPOWERS; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, ", X%d = zeros 'rows'", i);
    at += snprintf(text + at, sizeof text - (size_t)at, " },\n  matrix = function()");
    for (int i = 0; i < NPOWERS; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " X%d = %s ", i, powers_of[i].call);
    snprintf(text + at, sizeof text - (size_t)at,
             " A = A + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }");
    for (int64_t k = 0; k < n; k++)
        make_matrix(a + k * all, side, value, 1, 11 + (uint64_t)k);
    One o;
    open_one(&o, text, n, side, how);
    OK(optc_state_write(o.b, 0, "A", a, n * all));
    OK(optc_step(o.b));
    for (int i = 0; i < NPOWERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "X%d", i);
        OK(optc_state_read(o.b, 0, name, x, n * all));
        for (int64_t k = 0; k < side; k++)
            raised[k] = powers_of[i].lifted ? fmax(value[k], 0.05) : value[k];
        off[i] = 0;
        for (int64_t k = 0; k < n; k++) {
            double far = 0, size = 0;
            make_matrix(want, side, raised, powers_of[i].exponent, 11 + (uint64_t)k);
            for (int64_t l = 0; l < all; l++) {
                double e = x[k * all + l] - want[l];
                far += e * e, size += want[l] * want[l];
                ck_assert_msg(x[k * all + l] == x[k * all + l % side * side + l / side] || isnan(e),
                              "%s is not symmetric", powers_of[i].call);
            }
            off[i] = far == far ? fmax(off[i], sqrt(far / size)) : INFINITY;
        }
    }
    close_one(&o);
    free(a), free(x), free(want), free(raised);
}

START_TEST(powers)
{
    SHARED();
    static const int64_t sides[] = {1, 5, 33, 130, 520};
    int64_t side = sides[_i], n = side > 200                  ? 2
                                  : side == 33 && !emulated() ? 70
                                  : emulated() && side > 5    ? 1
                                                              : 3;
    double *value = malloc(8 * (size_t)side), off[NPOWERS];
    for (int how = 0; how < 6; how++) {
        EigenMethod method = how / 2 == 2 ? EIGEN_F64 : how / 2 ? EIGEN_DIVIDED : EIGEN_ROTATED;
        bool f64 = how % 2;
        if (emulated() ? side > 33 || (side == 33 ? how != 5 : how != (side == 5 ? 2 : 1))
                       : method == EIGEN_ROTATED && side > 200)
            continue;
        double low = f64 ? 1e-6 : 1e-3;
        spread(value, side, low);
        powers_off(value, n, side, (How){method, f64, 0, 0}, off);
        /* the effect of A's rounding on its small eigenvalues, raised to the power */
        for (int i = 0; i < NPOWERS; i++)
            ck_assert_msg(
                off[i] <= (f64 ? 1e-9 : 3e-7 * (powers_of[i].exponent < -0.5 ? 1 / low : 10)),
                "%s of %lld x %lld^2 in %s, %s: off by %g", powers_of[i].call, (long long)n,
                (long long)side, f64 ? "f64" : "f32", method_names[method], off[i]);
    }
    free(value);
}
END_TEST

/* Condition 1e12, rank-deficient matrices with a floor, tiny and huge ones; in f64. */
START_TEST(ill_conditioned)
{
    SHARED();
    enum { N = 24 };
    double value[N], off[NPOWERS];
    How how = {_i ? EIGEN_F64 : EIGEN_ROTATED, true, 0, 0};
    if (emulated() && _i)
        return;
    spread(value, N, 1e-12);
    powers_off(value, 2, N, how, off);
    ck_assert_msg(off[0] <= 1e-10 && off[5] <= 1e-12 && off[6] <= 1e-12 && off[7] <= 1e-3,
                  "condition 1e12: off by %g, %g, %g, %g", off[0], off[5], off[6], off[7]);
    for (int i = 0; i < N; i++)
        value[i] = i < 7 ? 1 + i : 0;
    powers_off(value, 2, N, how, off);
    ck_assert_msg(off[2] <= 1e-12 && off[5] <= 1e-12 && off[6] <= 1e-12,
                  "a deficient one, lifted: off by %g, %g, %g", off[2], off[5], off[6]);
    for (int tiny = 0; tiny < 2; tiny++) {
        for (int i = 0; i < N; i++)
            value[i] = (tiny ? 1e-200 : 1e200) * (1 + i);
        powers_off(value, 2, N, how, off);
        ck_assert_msg(off[1] <= 1e-12 && off[3] <= 1e-12 && off[7] <= 1e-12,
                      "%s: off by %g, %g, %g", tiny ? "a tiny one" : "a huge one", off[1], off[3],
                      off[7]);
    }
}
END_TEST

/* The same as on the CPU, on tensors of odd shapes, one of which is excluded later. */
START_TEST(as_on_the_cpu)
{
    SHARED();
    static const char text[] = "return optimizer { name = 'powers', rank = 2, hyper = { lr = 0.1, "
                               "least = 0.1 }, state = { X = zeros 'rows', "
                               "Y = eye(1, 'cols'), P = zeros 'cols' },\n"
                               "  matrix = function() X = power(gram(g), -1/4, { floor = least })  "
                               "Y = power(gram(g.T) + eye(1, 'cols'), 0.5, "
                               "{ last = Y })\n"
                               "    local u, U = eigh(gram(g.T), 'rank')  P = mm(U * u.T, U.T)\n"
                               "    p = p - lr * mm(mm(X, g), power(Y, -2.5)) end,\n"
                               "  step = function() p = p - lr * g end }";
    static const TestShape large[NSHAPES] = {{2, {200, 150}}, {1, {7}},      {3, {3, 5, 14}},
                                             {2, {1, 64}},    {2, {300, 1}}, {2, {64, 129}},
                                             {2, {129, 64}},  {2, {0, 5}},   {2, {200, 150}},
                                             {2, {65, 3}},    {2, {1, 1}},   {2, {128, 192}}};
    static const TestShape small[NSHAPES] = {
        {2, {33, 20}}, {1, {7}},    {3, {3, 5, 7}}, {2, {1, 4}},  {2, {4, 1}}, {2, {6, 9}},
        {2, {9, 6}},   {2, {0, 5}}, {2, {33, 20}},  {2, {17, 3}}, {2, {1, 1}}, {2, {2, 33}}};
    bool f64 = _i % 2;
    Side c, g;
    if (emulated() && !f64)
        return;
    use_shapes(emulated() ? small : large);
    use_cublas(_i < 2);
    open_side(&c, "cpu", (optc_rule_options){.text = text, .param = f64 ? OPTC_F64 : OPTC_F32,
                                             .products = f64 ? "f64" : "f32"}, 0);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = f64 ? OPTC_F64 : OPTC_F32,
                                              .products = f64 ? "f64" : "f32"}, 0);
    ck_assert_msg(strstr(optc_rule_path(g.r), "; eigenvectors by cuSOLVER"), "%s",
                  optc_rule_path(g.r));
    for (int step = 1; step <= 3; step++) {
        if (step == 3) {
            OK(optc_set_grad(c.b, 0, NULL, 0));
            OK(optc_set_grad(g.b, 0, NULL, 0));
        }
        set_grads(&c, step);
        set_grads(&g, step);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
    }
    compare_within("powers", &c, &g, f64 ? 1e-8 : 2e-3);
    close_side(&c, 0);
    close_side(&g, 0);
    use_cublas(true);
}
END_TEST

/* ---- times, of tests/gpu/roots.sh ---- */
static const int64_t works[][2] = {{5000, 2},  {5000, 4},  {5000, 8}, {5000, 16}, {5000, 32},
                                   {2000, 64}, {500, 128}, {64, 256}, {8, 16},    {8, 32},
                                   {8, 64},    {8, 128},   {8, 256},  {8, 512},   {12, 768},
                                   {60, 768},  {8, 1024},  {1, 2304}, {1, 3072}};

static double time_of(int64_t n, int64_t side, EigenMethod method, const double *a)
{
    enum { TIMES = 3 };
    double best = INFINITY;
    CUevent from, to;
    One o;
    open_one(&o, vectors_rule, n, side, (How){method, false, (int64_t)8 << 30, 0});
    OK(optc_state_write(o.b, 0, "A", a, n * side * side));
    OK(optc_step(o.b));
    ck_assert(!d->cuEventCreate(&from, 0) && !d->cuEventCreate(&to, 0));
    for (int i = 0; i < TIMES; i++) {
        float ms;
        ck_assert(!d->cuStreamSynchronize(NULL) && !d->cuEventRecord(from, NULL));
        OK(optc_step(o.b));
        ck_assert(!d->cuEventRecord(to, NULL) && !d->cuEventSynchronize(to) &&
                  !d->cuEventElapsedTime(&ms, from, to));
        best = fmin(best, ms);
    }
    d->cuEventDestroy_v2(from);
    d->cuEventDestroy_v2(to);
    close_one(&o);
    return best;
}

START_TEST(eigen_times)
{
    SHARED();
    if (!getenv("OPTC_ROOT_TIMES"))
        return;
    int64_t n = works[_i][0], side = works[_i][1], all = side * side;
    double *a = malloc(8 * (size_t)(n * all)), *value = malloc(8 * (size_t)side);
    spread(value, side, 1e-4);
    for (int64_t k = 0; k < n; k++)
        if (k < 8)
            make_matrix(a + k * all, side, value, 1, 7 + (uint64_t)k);
        else
            memcpy(a + k * all, a + k % 8 * all, 8 * (size_t)all);
    printf("eigenvectors, %lld x %lld^2:", (long long)n, (long long)side);
    for (EigenMethod method = EIGEN_ROTATED; method <= EIGEN_F64; method++)
        if ((method != EIGEN_ROTATED || side <= 256) && (method != EIGEN_DIVIDED || side > 32) &&
            (method < EIGEN_F32 || side <= EIGEN_LIBRARY_MOST))
            printf(" %s %.2f ms%s", method_names[method], time_of(n, side, method, a),
                   method == EIGEN_F64 || side > EIGEN_LIBRARY_MOST ? "" : ",");
    printf("\n");
    fflush(stdout);
    free(a), free(value);
}
END_TEST

void add_eigen_times(TCase *t)
{
    tcase_add_loop_test(t, eigen_times, 0, (int)(sizeof works / sizeof *works));
}

void add_eigenvectors(TCase *t)
{
    tcase_add_loop_test(t, vectors, 0, 7);
    tcase_add_loop_test(t, divided, 0, 6);
    tcase_add_loop_test(t, divided_bits, 0, 2);
    tcase_add_test(t, few_multiprocessors);
    tcase_add_loop_test(t, denormals, 0, 3);
    tcase_add_test(t, denormal_matrix);
    tcase_add_loop_test(t, some_vectors, 0, 4);
    tcase_add_loop_test(t, powers, 0, 5);
    tcase_add_loop_test(t, ill_conditioned, 0, 2);
    tcase_add_loop_test(t, as_on_the_cpu, 0, 4);
}

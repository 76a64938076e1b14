/* Eigenvectors and powers by them on the GPU, by every solver, against what defines them; and what happens where a solver, a matrix or memory is no good. */
#include "side.h"

#include "../../runtime/core/gpu_calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool emulated(void) { return getenv("OPTC_TEST_SMALL") != NULL; }
static const char *const way_names[] = {"by size", "rotations", "rotations by many", "f32", "f64"};

/* ---- a rule over one tensor of n x side x 1, whose state A is set ---- */
typedef struct One {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p, g;
    int64_t n, side;
} One;
typedef struct How { EigenWay way; bool f64; int64_t workspace; } How;
static const Driver *given;                    /* what the next one calls in the driver's place; NULL: the driver */

static optc_status bind_one(One *o, const char *text, int64_t n, int64_t side, How how)
{
    int64_t dim[3] = {n, side, 1};
    size_t bytes = (size_t)(n * side + 16) * (how.f64 ? 8 : 4);
    memset(o, 0, sizeof *o);
    o->n = n;
    o->side = side;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE"), .workspace = how.workspace}, &o->e));
    optc_status s = optc_compile(o->e, &(optc_rule_options){.text = text, .param = how.f64 ? OPTC_F64 : OPTC_F32, .products = how.f64 ? "f64" : "f32"}, &o->r);
    ck_assert_msg(s == OPTC_OK, "%s: %s", text, optc_message());
    o->e->gpu->eigen = how.way;
    ck_assert(!d->cuMemAlloc_v2(&o->p, bytes) && !d->cuMemAlloc_v2(&o->g, bytes) && !d->cuMemsetD8Async(o->p, 0, bytes, NULL) && !d->cuMemsetD8Async(o->g, 0, bytes, NULL));
    ck_assert(!d->cuStreamSynchronize(NULL));
    optc_tensor t = {.param = (void *)(uintptr_t)o->p, .grad = (void *)(uintptr_t)o->g, .rank = 3, .shape = dim};
    const Driver *own = o->e->gpu->d;
    o->e->gpu->d = given ? given : own;
    s = optc_bind(o->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &o->b);
    o->e->gpu->d = own;
    return s;
}

static void open_one(One *o, const char *text, int64_t n, int64_t side, How how)
{
    optc_status s = bind_one(o, text, n, side, how);
    ck_assert_msg(s == OPTC_OK, "%s: %s", text, optc_message());
}

static void close_one(One *o)
{
    if (o->b)
        OK(optc_sync(o->b));
    OK(optc_unbind(o->b));
    OK(optc_release(o->r));
    OK(optc_close(o->e));
    d->cuMemFree_v2(o->p);
    d->cuMemFree_v2(o->g);
}

/* ---- matrices whose eigenvalues are known: reflections from both sides of a diagonal ---- */
static void reflect(double *a, int64_t n, uint64_t *seed)
{
    double *v = malloc(16 * (size_t)n), *w = v + n, norm = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (double)(*seed >> 33) / 4294967296.0 - 0.25;
        norm += v[i] * v[i];
    }
    for (int64_t i = 0; i < n; i++) {
        w[i] = 0;
        for (int64_t j = 0; j < n; j++)
            w[i] += a[i * n + j] * v[j];
        dot += v[i] * w[i];
    }
    for (int64_t i = 0; i < n; i++)            /* H A H = A - 2 (v w.T + w v.T) / norm + 4 dot v v.T / norm^2 */
        for (int64_t j = 0; j < n; j++)
            a[i * n + j] += -2 / norm * (v[i] * w[j] + w[i] * v[j]) + 4 * dot / norm / norm * v[i] * v[j];
    free(v);
}

/* f of those values, of the same matrix; value NULL: geometric from 1 to low */
static void make_matrix(double *a, int64_t n, const double *value, double exponent, uint64_t seed)
{
    memset(a, 0, 8 * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        a[i * (n + 1)] = value[i] == 0 && exponent > 0 ? 0 : pow(value[i], exponent);
    for (int h = 0; h < 3; h++)
        reflect(a, n, &seed);
}

static void spread(double *value, int64_t n, double low)
{
    for (int64_t i = 0; i < n; i++)
        value[i] = n > 1 ? pow(low, (double)i / (double)(n - 1)) : 1;
}

/* V of n x some, A as it was rounded: V.T V = 1, A V = V w with w = diag(V.T A V), largest first, each with the first of its largest entries positive. */
static void are_vectors(const double *a, const double *v, int64_t n, int64_t some, double bound, const char *what)
{
    double *av = malloc(8 * (size_t)n), before = INFINITY, size = 0;
    for (int64_t i = 0; i < n; i++)
        size = fmax(size, fabs(a[i * (n + 1)]));
    for (int64_t k = 0; k < some; k++) {
        double w = 0;
        int64_t at = 0;
        for (int64_t i = 0; i < n; i++) {
            av[i] = 0;
            for (int64_t j = 0; j < n; j++)
                av[i] += a[i >= j ? i * n + j : j * n + i] * v[j * some + k];
            w += v[i * some + k] * av[i];
            at = fabs(v[i * some + k]) > fabs(v[at * some + k]) ? i : at;
        }
        for (int64_t i = 0; i < n; i++)
            ck_assert_msg(fabs(av[i] - w * v[i * some + k]) <= bound * size, "%s: A V - V w of vector %lld is %g", what, (long long)k, av[i] - w * v[i * some + k]);
        ck_assert_msg(v[at * some + k] > 0 && w <= before + bound * size, "%s: vector %lld has the wrong sign or place (%g behind %g)", what, (long long)k, w, before);
        before = w;
        for (int64_t l = k > 40 ? k - 40 : 0; l <= k; l++) {
            double dot = 0;
            for (int64_t i = 0; i < n; i++)
                dot += v[i * some + k] * v[i * some + l];
            ck_assert_msg(fabs(dot - (k == l)) <= bound, "%s: vectors %lld and %lld: %g", what, (long long)k, (long long)l, dot);
        }
    }
    free(av);
}

static const char vectors_rule[] = "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', V = zeros 'rows' },\n"
                                   "  matrix = function() local _, U = eigh(A)  V = U  A = A + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";

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
        EigenWay way = (EigenWay)(how / 2);
        bool f64 = how % 2;
        char what[100];
        if ((way == EIGEN_F32 && f64) || (way == EIGEN_BY_SIZE && f64) || (emulated() && way != EIGEN_F64 && f64) || (way == EIGEN_ROTATED && side > 200 && n > 3) || (emulated() && way == EIGEN_SPREAD && (side > 5 ? n > 1 : n != 3)))
            continue;
        snprintf(what, sizeof what, "%lld x %lld^2 in %s, %s", (long long)n, (long long)side, f64 ? "f64" : "f32", way_names[way]);
        One o;
        open_one(&o, vectors_rule, n, side, (How){way, f64, 0});
        OK(optc_state_write(o.b, 0, "A", a, n * all));
        OK(optc_step(o.b));
        OK(optc_step(o.b));                            /* the second is a graph of ours, where it can be */
        OK(optc_state_read(o.b, 0, "A", a, n * all));
        OK(optc_state_read(o.b, 0, "V", v, n * all));
        for (int64_t k = 0; k < n; k += side > 100 && k < n - 1 ? n - 1 : 1)
            are_vectors(a + k * all, v + k * all, side, side, f64 ? 1e-14 * (double)(side + 20) : 3e-7 * (way == EIGEN_F32 ? sqrt((double)side) + 20 : 2), what);
        close_one(&o);
    }
    free(a), free(value);
}

START_TEST(vectors)
{
    static const int64_t sides[] = {1, 2, 5, 33, 64, 130, 520}, numbers[] = {1, 3, 70};
    for (int i = 0; i < 3; i++)
        vectors_of(numbers[i], sides[_i]);
}
END_TEST

/* The first three; as many as there are rows where those are fewer. */
START_TEST(some_vectors)
{
    static const char text[] = "return optimizer { name = 'one', view = 'last', rank = 3, state = { A = zeros 'rows', V = zeros 'rows rank' },\n"
                               "  matrix = function() local _, U = eigh(A, 'rank')  V = U  A = A + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";
    int64_t n = 2, side = _i < 2 ? 20 : 200, all = side * side;
    if (emulated() && _i != 1)
        return;
    double *a = malloc(8 * (size_t)(n * all)), *v = malloc(8 * (size_t)(n * side * 3)), *value = malloc(8 * (size_t)side);
    spread(value, side, 1e-3);
    for (int64_t k = 0; k < n; k++)
        make_matrix(a + k * all, side, value, 1, 3 + (uint64_t)k);
    One o;
    /* rank is of the smaller side: a tensor of side x side */
    open_one(&o, text, n, side, (How){_i % 2 ? EIGEN_F64 : EIGEN_ROTATED, true, 0});
    optc_state_view view;
    OK(optc_state(o.b, 0, "V", &view));
    int64_t some = view.count / n / side;
    OK(optc_state_write(o.b, 0, "A", a, n * all));
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "V", v, view.count));
    for (int64_t k = 0; k < n; k++)
        are_vectors(a + k * all, v + k * side * some, side, some, 1e-14 * (double)(side + 20), "some");
    close_one(&o);
    free(a), free(v), free(value);
}
END_TEST

/* ---- powers ---- */
static double power_off(const char *call, double exponent, const double *value, const double *raised, int64_t n, int64_t side, How how)
{
    char text[400];
    int64_t all = side * side;
    double *a = malloc(8 * (size_t)(n * all)), *x = malloc(8 * (size_t)(n * all)), *want = malloc(8 * (size_t)all), most = 0;
    snprintf(text, sizeof text, "return optimizer { name = 'one', view = 'last', hyper = { least = 0.05 }, state = { A = zeros 'rows', X = zeros 'rows' },\n"
             "  matrix = function() X = %s  A = A + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }", call);
    for (int64_t k = 0; k < n; k++)
        make_matrix(a + k * all, side, value, 1, 11 + (uint64_t)k);
    One o;
    open_one(&o, text, n, side, how);
    OK(optc_state_write(o.b, 0, "A", a, n * all));
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "X", x, n * all));
    for (int64_t k = 0; k < n; k++) {
        double off = 0, size = 0;
        make_matrix(want, side, raised, exponent, 11 + (uint64_t)k);
        for (int64_t i = 0; i < all; i++) {
            double e = x[k * all + i] - want[i];
            off += e * e, size += want[i] * want[i];
            ck_assert_msg(x[k * all + i] == x[k * all + i % side * side + i / side], "%s is not symmetric", call);
        }
        most = fmax(most, sqrt(off / size));
        most = off == off ? most : INFINITY;
    }
    close_one(&o);
    free(a), free(x), free(want);
    return most;
}

static void power_of(int which, int64_t side)
{
    /* lifted: eigenvalues below 0.05 are that */
    static const struct { const char *call; double exponent; bool lifted; } c[] = {
        {"power(A, 0.5)", 0.5, false}, {"power(A, -0.75)", -0.75, false}, {"power(A, 1)", 1, false}, {"power(A, -1/17)", -1.0 / 17, false}, {"power(A, -1)", -1, false},
        {"power(A, -1/4, { floor = least })", -0.25, true}, {"power(A, 1.5, { floor = least })", 1.5, true}};
    int64_t n = side > 200 ? 2 : side == 33 && !emulated() ? 70 : 3;
    if (emulated() && (side > 33 || (side == 33) != (which % 3 == 0)))
        return;
    double *value = malloc(16 * (size_t)side), *raised = value + side;
    for (int how = 0; how < 4; how++) {
        EigenWay way = how / 2 ? EIGEN_F64 : EIGEN_ROTATED;
        bool f64 = how % 2;
        if (emulated() && (how + which) % 4)
            continue;
        double low = f64 ? 1e-6 : 1e-3;
        spread(value, side, low);
        for (int64_t i = 0; i < side; i++)
            raised[i] = c[which].lifted ? fmax(value[i], 0.05) : value[i];
        double off = power_off(c[which].call, c[which].exponent, value, raised, n, side, (How){way, f64, 0});
        /* what A's rounding does to its small eigenvalues, to their power */
        double bound = f64 ? 1e-9 : 3e-7 * (c[which].exponent < -0.5 ? 1 / low : 10);
        ck_assert_msg(off <= bound, "%s of %lld x %lld^2 in %s, %s: off by %g", c[which].call, (long long)n, (long long)side, f64 ? "f64" : "f32", way_names[way], off);
    }
    free(value);
}

START_TEST(powers)
{
    static const int64_t sides[] = {1, 5, 33, 130, 520};
    for (int i = 0; i < 5; i++)
        power_of(_i, sides[i]);
}
END_TEST

/* Condition 1e12 in f64, rank-deficient ones that a floor lifts, tiny and huge ones. */
START_TEST(ill_conditioned)
{
    enum { N = 24 };
    double value[N], raised[N], off;
    How how = {_i ? EIGEN_F64 : EIGEN_ROTATED, true, 0};
    if (emulated() && _i)
        return;
    spread(value, N, 1e-12);
    off = power_off("power(A, -0.4)", -0.4, value, value, 2, N, how);
    ck_assert_msg(off <= 1e-3, "condition 1e12: off by %g", off);
    for (int i = 0; i < N; i++) {
        value[i] = i < 7 ? 1 + i : 0;
        raised[i] = fmax(value[i], 0.05);
    }
    off = power_off("power(A, -0.5, { floor = least })", -0.5, value, raised, 2, N, how);
    ck_assert_msg(off <= 1e-12, "a deficient one, lifted: off by %g", off);
    for (int i = 0; i < N; i++)
        value[i] = 1e-200 * (1 + i);
    off = power_off("power(A, 0.75)", 0.75, value, value, 2, N, how);
    ck_assert_msg(off <= 1e-12, "a tiny one: off by %g", off);
    for (int i = 0; i < N; i++)
        value[i] = 1e200 * (1 + i);
    off = power_off("power(A, -0.75)", -0.75, value, value, 2, N, how);
    ck_assert_msg(off <= 1e-12, "a huge one: off by %g", off);
}
END_TEST

/* ---- bad input ---- */
/* Of nine matrices the good ones are as if alone; a NaN, an infinity and what has no such power are refused by themselves and counted; zeros have any basis. */
START_TEST(refused)
{
    static const char text[] = "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', V = eye(3, 'rows'), W = zeros 'rows', X = eye(5, 'rows'), Y = zeros 'rows' },\n"
                               "  matrix = function() local a, U = eigh(A, { last = V })  V = U  local b, T = eigh(A)  W = T  X = power(A, 0.3, { last = X })  Y = power(A, 0.3)\n"
                               "    A = A + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";
    enum { COUNT = 9, N = 19, ALL = N * N };
    static double a[COUNT * ALL], out[4][COUNT * ALL], value[N], want[ALL];
    static const char *const name[] = {"V", "W", "X", "Y"};
    spread(value, N, 1e-2);
    for (int k = 0; k < COUNT; k++)
        make_matrix(a + k * ALL, N, value, 1, 5 + (uint64_t)k);
    memset(a + 1 * ALL, 0, 8 * ALL);
    a[3 * ALL + 7 * N + 2] = a[3 * ALL + 2 * N + 7] = NAN;
    a[5 * ALL + 4 * N + 4] = -INFINITY;
    a[6 * ALL + 2 * N + 9] = NAN;                          /* above the diagonal: nobody looks there */
    a[7 * ALL + 8 * N + 8] -= 9;                           /* a negative eigenvalue has vectors, and no such power */
    One o;
    open_one(&o, text, COUNT, N, (How){_i ? EIGEN_F64 : EIGEN_ROTATED, true, 0});
    OK(optc_state_write(o.b, 0, "A", a, COUNT * ALL));
    for (int step = 0; step < 2; step++)
        OK(optc_step(o.b));
    for (int s = 0; s < 4; s++)
        OK(optc_state_read(o.b, 0, name[s], out[s], COUNT * ALL));
    for (int k = 0; k < COUNT; k++) {
        bool vectors = k != 3 && k != 5, power = vectors && k != 1 && k != 7;
        make_matrix(want, N, value, 0.3, 5 + (uint64_t)k);
        if (vectors) {
            are_vectors(a + k * ALL, out[0] + k * ALL, N, N, 1e-12, "beside bad ones");
            are_vectors(a + k * ALL, out[1] + k * ALL, N, N, 1e-12, "beside bad ones");
        }
        for (int i = 0; i < ALL; i++) {
            double one = i % (N + 1) == 0, x = out[2][k * ALL + i], y = out[3][k * ALL + i];
            ck_assert_msg(vectors || (out[0][k * ALL + i] == 3 * one && isnan(out[1][k * ALL + i])), "vectors of matrix %d, %d: %g and %g", k, i, out[0][k * ALL + i], out[1][k * ALL + i]);
            ck_assert_msg(power ? fabs(x - want[i]) < 1e-12 && x == y : x == 5 * one && isnan(y), "the power of matrix %d, %d: %g and %g for %g", k, i, x, y, want[i]);
        }
    }
    optc_factors counted;
    OK(optc_factors_about(o.b, 0, &counted));
    ck_assert_msg(counted.refused == 2 * (2 * 2 + 2 * 4) && counted.computed == 2 * 4 * COUNT, "%lld of %lld were refused", (long long)counted.refused, (long long)counted.computed);
    close_one(&o);
}
END_TEST

/* ---- a solver that fails ---- */
static Cusolver kept;
static int status, bad_matrix;

static int fails_call(cusolverDnHandle_t h, cusolverDnParams_t p, cusolverEigMode_t j, cublasFillMode_t u, int64_t n, cudaDataType ta, void *a, int64_t lda, cudaDataType tw, void *w, cudaDataType tc,
                      void *work, size_t bytes, void *host, size_t host_bytes, int *info, int64_t count)
{
    (void)h, (void)p, (void)j, (void)u, (void)n, (void)ta, (void)a, (void)lda, (void)tw, (void)w, (void)tc, (void)work, (void)bytes, (void)host, (void)host_bytes, (void)info, (void)count;
    return status;
}

/* all goes well but for one matrix, it says */
static int says_info(cusolverDnHandle_t h, cusolverDnParams_t p, cusolverEigMode_t j, cublasFillMode_t u, int64_t n, cudaDataType ta, void *a, int64_t lda, cudaDataType tw, void *w, cudaDataType tc,
                     void *work, size_t bytes, void *host, size_t host_bytes, int *info, int64_t count)
{
    int rc = kept.cusolverDnXsyevBatched(h, p, j, u, n, ta, a, lda, tw, w, tc, work, bytes, host, host_bytes, info, count);
    return rc || count <= bad_matrix ? rc : d->cuMemsetD8Async((CUdeviceptr)(uintptr_t)(info + bad_matrix), 1, sizeof *info, NULL);
}

START_TEST(a_solver_fails)
{
    static const char *const factors[] = {"local _, U = eigh(A, { last = X })  X = U", "X = power(A, 0.5, { last = X })", "local _, U = eigh(A)  X = U"};
    static const char *const says[] = {"eigenvectors of rule 'one' (spec:2), of 20 x 20, for tensor number 0", "a power of rule 'one' (spec:2), of 20 x 20, for tensor number 0",
        "eigenvectors of rule 'one' (spec:2), of 20 x 20, for tensor number 0"};
    enum { COUNT = 3, N = 20, ALL = N * N };
    static double a[COUNT * ALL], x[COUNT * ALL], value[N];
    char text[400];
    snprintf(text, sizeof text, "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', X = eye(3, 'rows') }, matrix = function()\n  %s  A = A + 0 * sum(g)  p = p + 0 * g end,"
             " step = function() p = p + 0 * g end }", factors[_i]);
    spread(value, N, 1e-2);
    for (int k = 0; k < COUNT; k++)
        make_matrix(a + k * ALL, N, value, 1, 5 + (uint64_t)k);
    One o;
    open_one(&o, text, COUNT, N, (How){EIGEN_F64, true, 0});
    o.e->gpu->no_graphs = true;
    Cusolver *f = &o.b->gpu->calls->eigen.f;
    ck_assert_msg(o.b->gpu->calls->eigen.library, "%s", o.b->gpu->calls->eigen.why);
    kept = *f;
    OK(optc_state_write(o.b, 0, "A", a, COUNT * ALL));
    f->cusolverDnXsyevBatched = fails_call;
    status = CUSOLVER_STATUS_INTERNAL_ERROR;
    FAILS(optc_step(o.b), OPTC_ERROR_DEVICE, "cusolverDnXsyevBatched: CUSOLVER_STATUS_INTERNAL_ERROR: ");
    FAILS(optc_step(o.b), OPTC_ERROR_DEVICE, says[_i]);
    status = CUSOLVER_STATUS_ALLOC_FAILED;
    optc_factors counted;
    if (_i == 2)
        FAILS(optc_step(o.b), OPTC_ERROR_MEMORY, says[_i]);
    else                                       /* it goes without, and is counted */
        OK(optc_step(o.b));
    OK(optc_factors_about(o.b, 0, &counted));
    ck_assert(counted.refused == (_i == 2 ? 0 : COUNT));
    OK(optc_state_read(o.b, 0, "X", x, COUNT * ALL));
    for (int i = 0; i < COUNT * ALL; i++)
        ck_assert(x[i] == (i % ALL % (N + 1) ? 0 : 3));
    f->cusolverDnXsyevBatched = says_info;
    bad_matrix = 1;
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "X", x, COUNT * ALL));
    for (int k = 0; k < COUNT; k++)
        ck_assert_msg(k != 1 ? x[k * ALL] != 3 && isfinite(x[k * ALL]) : _i == 2 ? isnan(x[k * ALL]) : x[k * ALL] == 3 && x[k * ALL + 1] == 0, "matrix %d: %g", k, x[k * ALL]);
    *f = kept;
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "X", x, COUNT * ALL));
    for (int k = 0; k < COUNT; k++)
        ck_assert(x[k * ALL] != 3);
    close_one(&o);
}
END_TEST

/* The emulated one is told to fail when it is opened and asked: binding says so and leaves nothing behind; none at all is no error. */
START_TEST(no_solver)
{
    static const struct { const char *told; optc_status s; const char *says; } c[] = {
        {"create 2", OPTC_ERROR_MEMORY, "CUSOLVER_STATUS_ALLOC_FAILED (OPTC_CUSOLVER=none does without)"}, {"params 7", OPTC_ERROR_DEVICE, "CUSOLVER_STATUS_INTERNAL_ERROR"},
        {"size 3", OPTC_ERROR_DEVICE, "cusolverDnXsyevBatched_bufferSize: CUSOLVER_STATUS_INVALID_VALUE: eigenvectors of rule 'one' (spec:2), of 20 x 20, for tensor number 0"}};
    One o;
    const char *was = getenv("OPTC_CUSOLVER") ? strdup(getenv("OPTC_CUSOLVER")) : "";
    for (size_t i = 0; emulated() && i < sizeof c / sizeof *c; i++) {
        setenv("EMU_SOLVER", c[i].told, 1);
        optc_memory m;
        FAILS(bind_one(&o, vectors_rule, 2, 20, (How){EIGEN_F64, true, 0}), c[i].s, c[i].says);
        OK(optc_memory_info(o.e, &m));
        ck_assert(m.ours == 0);
        o.b = NULL;
        close_one(&o);
    }
    unsetenv("EMU_SOLVER");
    setenv("OPTC_CUSOLVER", "none", 1);
    open_one(&o, vectors_rule, 2, 20, (How){EIGEN_F64, true, 0});
    setenv("OPTC_CUSOLVER", was, 1);
    ck_assert(!o.b->gpu->calls->eigen.library && strstr(o.b->gpu->calls->eigen.why, "OPTC_CUSOLVER says none"));
    OK(optc_step(o.b));
    close_one(&o);
}
END_TEST

/* ---- memory ---- */
static int allowed;
static int no_alloc(CUdeviceptr *p, size_t n) { return allowed-- > 0 ? d->cuMemAlloc_v2(p, n) : 2; }
static int no_alloc_async(CUdeviceptr *p, size_t n, CUstream s) { return allowed-- > 0 ? d->cuMemAllocAsync(p, n, s) : 2; }

START_TEST(memory_runs_out)
{
    Driver mine = *d;
    One o;
    bool named = false, done = false;
    mine.cuMemAlloc_v2 = no_alloc;
    mine.cuMemAllocAsync = no_alloc_async;
    for (int k = 0; k < 20 && !done; k++) {
        given = &mine;
        allowed = k;
        done = bind_one(&o, vectors_rule, 2, 20, (How){EIGEN_F64, true, 0}) == OPTC_OK;
        given = NULL;
        named = named || strstr(optc_message(), "eigenvectors of rule 'one' (spec:2), of 20 x 20, for tensor number 0");
        o.b = done ? o.b : NULL;
        close_one(&o);
    }
    ck_assert_msg(done && named, "memory for eigenvectors was not found wanting");
}
END_TEST

/* A workspace that holds some matrices at a time: more calls of fewer, and the same vectors. */
START_TEST(in_rounds)
{
    enum { COUNT = 11, N = 21, ALL = N * N };
    static double a[COUNT * ALL], v[2][COUNT * ALL], value[N];
    spread(value, N, 1e-2);
    for (int k = 0; k < COUNT; k++)
        make_matrix(a + k * ALL, N, value, 1, 5 + (uint64_t)k);
    for (int i = 0; i < 2; i++) {
        One o;
        open_one(&o, vectors_rule, COUNT, N, (How){_i ? EIGEN_F64 : EIGEN_ROTATED, true, 0});
        int64_t bytes = o.b->gpu->calls->eigen.bytes, most = COUNT;
        close_one(&o);
        open_one(&o, vectors_rule, COUNT, N, (How){_i ? EIGEN_F64 : EIGEN_ROTATED, true, i ? bytes : 0});
        const GpuCalls *x = o.b->gpu->calls;
        for (int k = 0; k < x->nstep; k++)
            most = x->step[k].solver < 0 || !x->step[k].instead ? x->step[k].at_once : most;
        ck_assert_msg(i ? most > 0 && most < COUNT && x->eigen.bytes <= bytes / 2 : most == COUNT, "%lld at a time", (long long)most);
        optc_held held;
        OK(optc_binding_held(o.b, &held));
        ck_assert(held.workspace >= x->eigen.bytes);
        OK(optc_state_write(o.b, 0, "A", a, COUNT * ALL));
        OK(optc_step(o.b));
        OK(optc_state_read(o.b, 0, "V", v[i], COUNT * ALL));
        close_one(&o);
    }
    for (int i = 0; i < COUNT * ALL; i++)
        ck_assert_msg(fabs(v[0][i] - v[1][i]) < 1e-10, "%d: %g and %g", i, v[0][i], v[1][i]);
}
END_TEST

/* ---- captures ---- */
/* Captured and replayed a step is the step, also where the library cannot be captured: rotations take its place then, and the library its own again. */
START_TEST(captured)
{
    int64_t side = _i ? emulated() ? 20 : 520 : 33, all = side * side;
    double *a = malloc(16 * (size_t)all), *v = a + all, *value = malloc(8 * (size_t)side);
    CUstream st;
    void *graph, *exec;
    One o;
    spread(value, side, 1e-2);
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_one(&o, vectors_rule, 1, side, (How){EIGEN_F64, true, 0});
    GpuCalls *x = o.b->gpu->calls;
    for (int i = 0; i < x->nstep; i++)
        if (x->step[i].solver == i) {
            printf("eigenvectors of %lld rows can%s be captured\n", (long long)side, x->step[i].captured ? "" : "not");
            ck_assert_msg(x->step[i].captured || _i, "33 rows cannot be captured");
            x->step[i].captured = x->step[i].captured && !_i;
        }
    OK(optc_step(o.b));
    OK(optc_sync(o.b));
    OK(optc_set_stream(o.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(o.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) && !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        make_matrix(a, side, value, 1, 5 + (uint64_t)round);
        OK(optc_state_write(o.b, 0, "A", a, all));
        if (round < 2)
            ck_assert(!d->cuGraphLaunch(exec, st));
        else
            OK(optc_step(o.b));
        OK(optc_state_read(o.b, 0, "V", v, all));
        are_vectors(a, v, side, side, 1e-14 * (double)(side + 20), "captured");
    }
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(o.b, NULL));
    close_one(&o);
    d->cuStreamDestroy_v2(st);
    free(a), free(value);
}
END_TEST

/* As on the CPU, over tensors of odd shapes, one of which leaves. */
START_TEST(as_on_the_cpu)
{
    static const char text[] =
        "return optimizer { name = 'powers', rank = 2, hyper = { lr = 0.1, least = 0.1 }, state = { X = zeros 'rows', Y = eye(1, 'cols'), P = zeros 'cols' },\n"
        "  matrix = function() X = power(gram(g), -1/4, { floor = least })  Y = power(gram(g.T) + eye(1, 'cols'), 0.5, { last = Y })\n"
        "    local u, U = eigh(gram(g.T), 'rank')  P = mm(U * u.T, U.T)\n"
        "    p = p - lr * mm(mm(X, g), power(Y, -2.5)) end,\n"
        "  step = function() p = p - lr * g end }";
    static const TestShape large[NSHAPES] = {{2, {200, 150}}, {1, {7}}, {3, {3, 65, 70}}, {2, {1, 64}}, {2, {300, 1}}, {2, {64, 129}}, {2, {129, 64}}, {2, {0, 5}}, {2, {200, 150}}, {2, {65, 3}}, {2, {1, 1}}, {2, {128, 192}}};
    static const TestShape small[NSHAPES] = {{2, {33, 20}}, {1, {7}}, {3, {3, 5, 7}}, {2, {1, 4}}, {2, {4, 1}}, {2, {6, 9}}, {2, {9, 6}}, {2, {0, 5}}, {2, {33, 20}}, {2, {17, 3}}, {2, {1, 1}}, {2, {2, 33}}};
    bool f64 = _i % 2;
    Side c, g;
    if (emulated() && !f64)
        return;
    use_shapes(emulated() ? small : large);
    use_cublas(_i < 2);
    open_side(&c, "cpu", (optc_rule_options){.text = text, .param = f64 ? OPTC_F64 : OPTC_F32, .products = f64 ? "f64" : "f32"}, 0);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = f64 ? OPTC_F64 : OPTC_F32, .products = f64 ? "f64" : "f32"}, 0);
    ck_assert_msg(strstr(optc_rule_path(g.r), "; eigenvectors by cuSOLVER"), "%s", optc_rule_path(g.r));
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
static double time_of(int64_t n, int64_t side, EigenWay way, const double *a)
{
    enum { TIMES = 3 };
    double best = INFINITY;
    CUevent from, to;
    One o;
    open_one(&o, vectors_rule, n, side, (How){way, false, (int64_t)8 << 30});
    OK(optc_state_write(o.b, 0, "A", a, n * side * side));
    OK(optc_step(o.b));
    ck_assert(!d->cuEventCreate(&from, 0) && !d->cuEventCreate(&to, 0));
    for (int i = 0; i < TIMES; i++) {
        float ms;
        ck_assert(!d->cuStreamSynchronize(NULL) && !d->cuEventRecord(from, NULL));
        OK(optc_step(o.b));
        ck_assert(!d->cuEventRecord(to, NULL) && !d->cuEventSynchronize(to) && !d->cuEventElapsedTime(&ms, from, to));
        best = fmin(best, ms);
    }
    d->cuEventDestroy_v2(from);
    d->cuEventDestroy_v2(to);
    close_one(&o);
    return best;
}

START_TEST(eigen_times)
{
    static const int64_t works[][2] = {{5000, 8}, {5000, 16}, {5000, 32}, {2000, 64}, {500, 128}, {64, 256}, {8, 16}, {8, 32}, {8, 64}, {8, 128}, {8, 256}, {24, 768}, {8, 1024}, {1, 2048}};
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
    for (EigenWay way = EIGEN_ROTATED; way <= EIGEN_F64; way++)
        if ((way != EIGEN_ROTATED || side <= 256) && (way != EIGEN_SPREAD || side > 32))
            printf(" %s %.2f ms%s", way_names[way], time_of(n, side, way, a), way == EIGEN_F64 ? "" : ",");
    printf("\n");
    fflush(stdout);
    free(a), free(value);
}
END_TEST

void add_eigen_times(TCase *t) { tcase_add_loop_test(t, eigen_times, 0, 14); }

void add_eigenvectors(TCase *t)
{
    tcase_add_loop_test(t, vectors, 0, 7);
    tcase_add_loop_test(t, some_vectors, 0, 4);
    tcase_add_loop_test(t, powers, 0, 7);
    tcase_add_loop_test(t, ill_conditioned, 0, 2);
    tcase_add_loop_test(t, refused, 0, 2);
    tcase_add_loop_test(t, a_solver_fails, 0, 3);
    tcase_add_test(t, no_solver);
    tcase_add_test(t, memory_runs_out);
    tcase_add_loop_test(t, in_rounds, 0, 2);
    tcase_add_loop_test(t, captured, 0, 2);
    tcase_add_loop_test(t, as_on_the_cpu, 0, 4);
}

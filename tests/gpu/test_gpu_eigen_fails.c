/* Eigenvectors when a matrix, a solver or memory fails, when the workspace holds only some
 * matrices, and in captures. */
#include "tests/gpu/eigen_rule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bad input ---- */
/* Of nine matrices the valid ones give the same result as alone. A NaN, an infinity and a matrix
 * without such a power are refused individually and counted. A zero matrix may have any basis. */
START_TEST(refused)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', V = eye(3, "
        "'rows'), W = zeros "
        "'rows', X = eye(5, 'rows'), Y = zeros 'rows' },\n"
        "  matrix = function() local a, U = eigh(A, { last = V })  V = U  local b, T = eigh(A)  "
        "W = T  X = power(A, 0.3, { last = X })  Y = power(A, 0.3)\n"
        "    A = A + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";
    enum { COUNT = 9, LONGEST = 35 };
    static const EigenMethod methods[] = {EIGEN_ROTATED, EIGEN_F64, EIGEN_DIVIDED};
    static double a[COUNT * LONGEST * LONGEST], out[4][COUNT * LONGEST * LONGEST], value[LONGEST],
        want[LONGEST * LONGEST];
    static const char *const name[] = {"V", "W", "X", "Y"};
    const int N = methods[_i] == EIGEN_DIVIDED ? LONGEST : 19, ALL = N * N;
    spread(value, N, 1e-2);
    for (int k = 0; k < COUNT; k++)
        make_matrix(a + k * ALL, N, value, 1, 5 + (uint64_t)k);
    memset(a + 1 * ALL, 0, 8 * (size_t)ALL);
    a[3 * ALL + 7 * N + 2] = a[3 * ALL + 2 * N + 7] = NAN;
    a[5 * ALL + 4 * N + 4] = -INFINITY;
    a[6 * ALL + 2 * N + 9] = NAN;                          /* above the diagonal: never read */
    /* a negative eigenvalue has vectors, but not this power */
    a[7 * ALL + 8 * N + 8] -= 9;
    One o;
    open_one(&o, text, COUNT, N, (How){methods[_i], true, 0, 0});
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
            ck_assert_msg(vectors || (out[0][k * ALL + i] == 3 * one && isnan(out[1][k * ALL + i])),
                          "vectors of matrix %d, %d: %g and %g", k, i, out[0][k * ALL + i],
                          out[1][k * ALL + i]);
            ck_assert_msg(power ? fabs(x - want[i]) < 1e-12 && x == y : x == 5 * one && isnan(y),
                          "the power of matrix %d, %d: %g and %g for %g", k, i, x, y, want[i]);
        }
    }
    optc_factors counted;
    OK(optc_factors_about(o.b, 0, &counted));
    ck_assert_msg(counted.refused == 2 * (2 * 2 + 2 * 4) && counted.computed == 2 * 4 * COUNT,
                  "%lld of %lld were refused", (long long)counted.refused,
                  (long long)counted.computed);
    close_one(&o);
}
END_TEST

/* ---- a solver that fails ---- */
static Cusolver kept;
static int status, bad_matrix;

static int fails_call(cusolverDnHandle_t h, cusolverDnParams_t p, cusolverEigMode_t j,
                      cublasFillMode_t u, int64_t n, cudaDataType ta, void *a, int64_t lda,
                      cudaDataType tw, void *w, cudaDataType tc, void *work, size_t bytes,
                      void *host, size_t host_bytes, int *info, int64_t count)
{
    (void)h, (void)p, (void)j, (void)u, (void)n, (void)ta, (void)a, (void)lda, (void)tw, (void)w,
        (void)tc, (void)work, (void)bytes, (void)host, (void)host_bytes, (void)info, (void)count;
    return status;
}

/* succeeds, but reports a failure for one matrix */
static int says_info(cusolverDnHandle_t h, cusolverDnParams_t p, cusolverEigMode_t j,
                     cublasFillMode_t u, int64_t n, cudaDataType ta, void *a, int64_t lda,
                     cudaDataType tw, void *w, cudaDataType tc, void *work, size_t bytes,
                     void *host, size_t host_bytes, int *info, int64_t count)
{
    int rc = kept.cusolverDnXsyevBatched(h, p, j, u, n, ta, a, lda, tw, w, tc, work, bytes, host,
                                         host_bytes, info, count);
    return rc || count <= bad_matrix ? rc
        : d->cuMemsetD8Async((CUdeviceptr)(uintptr_t)(info + bad_matrix), 1, sizeof *info, NULL);
}

START_TEST(a_solver_fails)
{
    SHARED();
    static const char *const factors[] = {"local _, U = eigh(A, { last = X })  X = U",
                                          "X = power(A, 0.5, { last = X })",
                                          "local _, U = eigh(A)  X = U"};
    static const char *const says[] = {
        "eigenvectors of rule 'one' (spec:2), of 20 x 20, for tensor number 0",
        "a power of rule 'one' (spec:2), of 20 x 20, for tensor number 0",
        "eigenvectors of rule 'one' (spec:2), of 20 x 20, for tensor number 0"};
    enum { COUNT = 3, N = 20, ALL = N * N };
    static double a[COUNT * ALL], x[COUNT * ALL], value[N];
    char text[400];
    snprintf(text, sizeof text,
             "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', X = "
             "eye(3, 'rows') }, matrix "
             "= function()\n  %s  A = A + 0 * sum(g)  p = p + 0 * g end,"
             " step = function() p = p + 0 * g end }",
             factors[_i]);
    spread(value, N, 1e-2);
    for (int k = 0; k < COUNT; k++)
        make_matrix(a + k * ALL, N, value, 1, 5 + (uint64_t)k);
    One o;
    open_one(&o, text, COUNT, N, (How){EIGEN_F64, true, 0, 0});
    o.e->gpu->no_graphs = true;
    Cusolver *f = &o.b->gpu->calls->eigen.f;
    ck_assert_msg(o.b->gpu->calls->eigen.library, "%s", o.b->gpu->calls->eigen.why);
    kept = *f;
    OK(optc_state_write(o.b, 0, "A", a, COUNT * ALL));
    f->cusolverDnXsyevBatched = fails_call;
    status = CUSOLVER_STATUS_INTERNAL_ERROR;
    FAILS(optc_step(o.b), OPTC_ERROR_DEVICE,
          "cusolverDnXsyevBatched: CUSOLVER_STATUS_INTERNAL_ERROR: ");
    /* a step that is half done changes no value of this rule */
    OK(optc_set_t(o.b, -1, 0));
    FAILS(optc_step(o.b), OPTC_ERROR_DEVICE, says[_i]);
    OK(optc_set_t(o.b, -1, 0));
    status = CUSOLVER_STATUS_ALLOC_FAILED;
    optc_factors counted;
    if (_i == 2) {
        FAILS(optc_step(o.b), OPTC_ERROR_MEMORY, says[_i]);
        OK(optc_set_t(o.b, -1, 0));
    } else {                                   /* works without, and is counted */
        OK(optc_step(o.b));
    }
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
        ck_assert_msg(k != 1 ? x[k * ALL] != 3 && isfinite(x[k * ALL]) : _i == 2 ? isnan(x[k * ALL])
                      : x[k * ALL] == 3 && x[k * ALL + 1] == 0, "matrix %d: %g", k, x[k * ALL]);
    *f = kept;
    OK(optc_step(o.b));
    OK(optc_state_read(o.b, 0, "X", x, COUNT * ALL));
    for (int k = 0; k < COUNT; k++)
        ck_assert(x[k * ALL] != 3);
    close_one(&o);
}
END_TEST

/* The emulated cuSOLVER fails when it is opened and when it is queried: binding reports that and
 * leaves nothing behind. No cuSOLVER at all is no error. */
START_TEST(no_solver)
{
    SHARED();
    static const struct { const char *told; optc_status s; const char *says;
    } c[] = {{"create 2", OPTC_ERROR_MEMORY,
              "CUSOLVER_STATUS_ALLOC_FAILED (OPTC_CUSOLVER=none uses our own kernels)"},
             {"params 7", OPTC_ERROR_DEVICE, "CUSOLVER_STATUS_INTERNAL_ERROR"},
             {"size 3", OPTC_ERROR_DEVICE,
              "cusolverDnXsyevBatched_bufferSize: CUSOLVER_STATUS_INVALID_VALUE: eigenvectors of "
              "rule 'one' (spec:2), of 20 "
              "x 20, for tensor number 0"}};
    One o;
    const char *was = getenv("OPTC_CUSOLVER") ? strdup(getenv("OPTC_CUSOLVER")) : "";
    for (size_t i = 0; emulated() && i < sizeof c / sizeof *c; i++) {
        setenv("EMU_SOLVER", c[i].told, 1);
        optc_memory m;
        FAILS(bind_one(&o, vectors_rule, 2, 20, (How){EIGEN_F64, true, 0, 0}), c[i].s, c[i].says);
        OK(optc_memory_info(o.e, &m));
        ck_assert(m.ours == 0);
        o.b = NULL;
        close_one(&o);
    }
    unsetenv("EMU_SOLVER");
    setenv("OPTC_CUSOLVER", "none", 1);
    open_one(&o, vectors_rule, 2, 20, (How){EIGEN_F64, true, 0, 0});
    setenv("OPTC_CUSOLVER", was, 1);
    ck_assert(!o.b->gpu->calls->eigen.library &&
              strstr(o.b->gpu->calls->eigen.why, "OPTC_CUSOLVER is none"));
    OK(optc_step(o.b));
    close_one(&o);
}
END_TEST

/* ---- launches ---- */
/* The message of a failed launch of divide and conquer names the driver's function that failed. */
static int no_attribute(CUfunction f, CUfunction_attribute a, int x)
{
    return (void)f, (void)a, (void)x, 1;
}
static int no_team(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, CUstream s, void **args)
{
    return (void)f, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)s,
           (void)args, 1;
}
/* Only the kernel that computes T asks for shared memory at its launch. */
static int no_large(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                    unsigned bz, unsigned shared, CUstream s, void **args, void **extra)
{
    return shared ? 1 : d->cuLaunchKernel(f, x, y, z, bx, by, bz, shared, s, args, extra);
}

START_TEST(a_launch_fails)
{
    SHARED();
    enum { N = 20 };
    static const char *const says[] = {"cuFuncSetAttribute: CUDA_ERROR",
                                       "cuLaunchCooperativeKernel: CUDA_ERROR",
                                       "cuLaunchKernel: CUDA_ERROR"};
    Driver mine = *d;
    One o;
    open_one(&o, vectors_rule, 1, N, (How){EIGEN_DIVIDED, true, 0, 0});
    const Driver *own = o.e->gpu->d;
    if (_i == 0)
        mine.cuFuncSetAttribute = no_attribute;
    else if (_i == 1)
        mine.cuLaunchCooperativeKernel = no_team;
    else
        mine.cuLaunchKernel = no_large;
    o.e->gpu->cooperative = _i < 2;
    o.e->gpu->no_graphs = true;
    o.e->gpu->d = &mine;
    FAILS(optc_step(o.b), OPTC_ERROR_DEVICE, says[_i]);
    ck_assert_msg(strstr(optc_message(), "eigenvectors of rule 'one'"), "%s", optc_message());
    o.e->gpu->d = own;
    close_one(&o);
}
END_TEST

/* ---- memory ---- */
static int allowed;
static int no_alloc(CUdeviceptr *p, size_t n) { return allowed-- > 0 ? d->cuMemAlloc_v2(p, n) : 2; }
static int no_alloc_async(CUdeviceptr *p, size_t n, CUstream s)
{
    return allowed-- > 0 ? d->cuMemAllocAsync(p, n, s) : 2;
}

START_TEST(memory_runs_out)
{
    SHARED();
    Driver mine = *d;
    One o;
    bool named = false, done = false, hinted = false;
    mine.cuMemAlloc_v2 = no_alloc;
    mine.cuMemAllocAsync = no_alloc_async;
    for (int k = 0; k < 20 && !done; k++) {
        next_driver = &mine;
        allowed = k;
        done = bind_one(&o, vectors_rule, 2, 20, (How){EIGEN_F64, true, 0, 0}) == OPTC_OK;
        next_driver = NULL;
        named =
            named || strstr(optc_message(),
                            "eigenvectors of rule 'one' (spec:2), of 20 x 20, for tensor number 0");
        hinted = hinted || strstr(optc_message(), "of them are workspace: a smaller one, below");
        o.b = done ? o.b : NULL;
        close_one(&o);
    }
    ck_assert_msg(done && named && hinted, "memory for eigenvectors was not found wanting");
}
END_TEST

/* A workspace that holds some matrices at a time: more rounds of fewer matrices, and the same bits.
 * The library computes 64 matrices of this size per call. */
START_TEST(small_workspace)
{
    SHARED();
    enum { MANY = 299, PADDED = 320, N = 21, ALL = N * N };
    static const EigenMethod methods[] = {EIGEN_ROTATED, EIGEN_F64, EIGEN_DIVIDED};
    static double a[MANY * ALL], v[2][MANY * ALL], value[N];
    const EigenMethod method = methods[_i];
    const int count = method == EIGEN_F64 ? MANY : 11, fit = method == EIGEN_F64 ? PADDED : count;
    spread(value, N, 1e-2);
    for (int k = 0; k < count; k++)
        make_matrix(a + k * ALL, N, value, 1, 5 + (uint64_t)k);
    for (int i = 0; i < 2; i++) {
        One o;
        open_one(&o, vectors_rule, count, N, (How){method, true, 0, 0});
        int64_t bytes = o.b->gpu->calls->eigen.bytes, most = fit;
        close_one(&o);
        open_one(&o, vectors_rule, count, N, (How){method, true, i ? bytes : 0, 0});
        const GpuCalls *x = o.b->gpu->calls;
        most = x->area[0].count;
        ck_assert_msg(i ? most > 0 && most < fit && x->eigen.bytes < bytes : most == fit,
                      "%lld at a time in %lld of "
                      "%lld bytes",
                      (long long)most, (long long)x->eigen.bytes, (long long)bytes);
        optc_held held;
        OK(optc_binding_held(o.b, &held));
        ck_assert(held.workspace >= x->eigen.bytes);
        OK(optc_state_write(o.b, 0, "A", a, count * ALL));
        OK(optc_step(o.b));
        OK(optc_state_read(o.b, 0, "V", v[i], count * ALL));
        close_one(&o);
    }
    for (int i = 0; i < count * ALL; i++)
        ck_assert_msg(v[0][i] == v[1][i], "%d: %g and %g", i, v[0][i], v[1][i]);
}
END_TEST

/* ---- captures ---- */
/* A captured and replayed step equals the step, by the library and by our own kernels. */
START_TEST(captured)
{
    SHARED();
    int64_t side = _i ? emulated() ? 20 : 520 : 33, all = side * side;
    double *a = malloc(16 * (size_t)all), *v = a + all, *value = malloc(8 * (size_t)side);
    CUstream st;
    void *graph, *exec;
    One o;
    spread(value, side, 1e-2);
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_one(&o, vectors_rule, 1, side, (How){_i ? EIGEN_DIVIDED : EIGEN_F64, true, 0, 0});
    OK(optc_step(o.b));
    OK(optc_sync(o.b));
    OK(optc_set_stream(o.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(o.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
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

/* The same for powers of several matrices, by products and by eigenvectors, in a capture that
 * allows nothing but launches. */
START_TEST(captured_power)
{
    SHARED();
    if (thinned(_i))
        return;
    static const double exponent[] = {-0.25, 0.3};
    char text[300];
    snprintf(
        text, sizeof text,
        "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', X = zeros "
        "'rows' },\n"
        "  matrix = function() X = power(A, %g)  A = A + 0 * sum(g)  p = p + 0 * g end, step = "
        "function() p = p + 0 * g end }",
        exponent[_i]);
    enum { SIDE = 48, COUNT = 3, ALL = SIDE * SIDE };
    static double a[COUNT * ALL], x[COUNT * ALL], want[ALL], value[SIDE];
    CUstream aside, st;
    void *graph, *exec;
    One o;
    spread(value, SIDE, 1e-2);
    ck_assert(!d->cuStreamCreate(&aside, 1) && !d->cuStreamCreate(&st, 1));
    open_one(&o, text, COUNT, SIDE, (How){EIGEN_BY_SIZE, false, 0, 0});
    OK(optc_set_stream(o.b, aside));
    OK(optc_step(o.b));
    OK(optc_sync(o.b));
    OK(optc_set_stream(o.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(o.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int k = 0; k < COUNT; k++)
        make_matrix(a + k * ALL, SIDE, value, 1, 5 + (uint64_t)k);
    OK(optc_state_write(o.b, 0, "A", a, COUNT * ALL));
    ck_assert(!d->cuGraphLaunch(exec, st));
    OK(optc_state_read(o.b, 0, "X", x, COUNT * ALL));
    for (int k = 0; k < COUNT; k++) {
        make_matrix(want, SIDE, value, exponent[_i], 5 + (uint64_t)k);
        for (int i = 0; i < ALL; i++)
            ck_assert_msg(fabs(x[k * ALL + i] - want[i]) < 1e-4, "matrix %d, %d: %g, not %g", k, i,
                          x[k * ALL + i], want[i]);
    }
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(o.b, NULL));
    close_one(&o);
    d->cuStreamDestroy_v2(st);
    d->cuStreamDestroy_v2(aside);
}
END_TEST

/* A handle that the next binding reuses does not have the stream of the last one: the caller
 * destroys it. */
START_TEST(spare_stream)
{
    SHARED();
    enum { COUNT = 5, N = 12 };
    One o;
    CUstream st;
    int64_t dim[3] = {COUNT, N, 1};
    open_one(&o, vectors_rule, COUNT, N, (How){EIGEN_F64, true, 0, 0});
    for (int round = 0; round < 3; round++) {
        ck_assert(!d->cuStreamCreate(&st, 1));
        OK(optc_set_stream(o.b, st));
        OK(optc_step(o.b));
        OK(optc_sync(o.b));
        OK(optc_unbind(o.b));
        o.b = NULL;
        ck_assert(!d->cuStreamDestroy_v2(st));
        optc_tensor t = {.param = (void *)(uintptr_t)o.p,
                         .grad = (void *)(uintptr_t)o.g,
                         .rank = 3,
                         .shape = dim};
        OK(optc_bind(o.r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &o.b));
    }
    close_one(&o);
}
END_TEST

void add_eigen_fails(TCase *t)
{
    tcase_add_test(t, spare_stream);
    tcase_add_loop_test(t, captured_power, 0, 2);
    tcase_add_loop_test(t, refused, 0, 3);
    tcase_add_loop_test(t, a_solver_fails, 0, 3);
    tcase_add_loop_test(t, a_launch_fails, 0, 3);
    tcase_add_test(t, no_solver);
    tcase_add_test(t, memory_runs_out);
    tcase_add_loop_test(t, small_workspace, 0, 3);
    tcase_add_loop_test(t, captured, 0, 2);
}

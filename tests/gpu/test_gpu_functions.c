/* Functions of matrices without a rule (optc_matrix.h) on a GPU: definitions, captures, refusals,
 * and times of inverses in f64, which run only if OPTC_INVERSE_TIMES is set. */
#include "tests/gpu/device_side.h"

#include "tests/harness/function_cases.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static optc_engine *open_gpu(void)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cuda"}, &e));
    return e;
}

/* _i: a case; twice: the second call uses the entry of the first */
START_TEST(definitions)
{
    SHARED();
    size_t bytes, again;
    optc_engine *e = open_gpu();
    char *a = function_case(e, &device_where, &function_cases[_i], &bytes),
         *b = function_case(e, &device_where, &function_cases[_i], &again);
    ck_assert(bytes == again && !memcmp(a, b, bytes));
    free(a), free(b);
    OK(optc_close(e));
}
END_TEST

START_TEST(in_a_graph)
{
    SHARED();
    enum { N = 3 };
    double a[N * N] = {4, 1, 0, 1, 3, 0.5, 0, 0.5, 2}, want[N * N], x[N * N];
    CUstream st;
    void *graph, *exec;
    optc_engine *e = open_gpu();
    void *at = device_take(sizeof a), *xt = device_take(sizeof x);
    optc_function f = {.a = {at, 0, 0}, .x = {xt, 0, 0}, .type = OPTC_F64, .n = N};
    ck_assert(!d->cuStreamCreate(&st, 1));
    f.stream = st;
    device_put(at, a, sizeof a);
    ck_assert(!d->cuStreamBeginCapture_v2(st, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(optc_cholesky(e, &f), OPTC_ERROR_ARGUMENT, "set unchecked = 1");
    f.unchecked = 1;
    FAILS(optc_cholesky(e, &f), OPTC_ERROR_ARGUMENT, "before capturing");
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    /* a graph keeps its numbers: others need a call too */
    f.exponent = -1, f.ridge = 0.5, f.stream = NULL;
    OK(optc_matrix_power(e, &f));
    f.ridge = 0.25, f.stream = st;
    ck_assert(!d->cuStreamBeginCapture_v2(st, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(optc_matrix_power(e, &f), OPTC_ERROR_ARGUMENT, "before capturing");
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    /* in another stream than the last call */
    OK(optc_matrix_power(e, &f));
    OK(optc_cholesky(e, &f));
    ck_assert(!d->cuStreamSynchronize(st) &&
              !d->cuStreamBeginCapture_v2(st, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(optc_cholesky(e, &f));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(optc_functions_drop(e));                            /* what the graph uses stays */
    a[0] = 9, a[4] = 5;
    device_put(at, a, sizeof a);
    OK(optc_cholesky(e, &f));
    ck_assert(!d->cuStreamSynchronize(st));
    device_get(want, xt, sizeof want);
    memset(x, 0, sizeof x);
    device_put(xt, x, sizeof x);
    ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
    device_get(x, xt, sizeof x);
    ck_assert(!memcmp(x, want, sizeof x) && fabs(x[0] - 3) < 1e-12);
    device_give(at), device_give(xt);
    OK(optc_close(e));
}
END_TEST

/* A caller destroys its stream after the call. Later calls of the signature, other entries that
 * replace it, and optc_functions_drop do not use that stream: the emulated driver refuses it. */
START_TEST(stream_is_not_kept)
{
    SHARED();
    enum { N = 3, SIZES = 20 };                            /* more than the engine keeps */
    double a[SIZES * SIZES], x[N * N], want[N * N];
    CUstream st;
    size_t before, after, all;
    optc_engine *e = open_gpu();
    void *at = device_take(sizeof a), *xt = device_take(sizeof a);
    optc_function f = {
        .a = {at, 0, 0}, .x = {xt, 0, 0}, .type = OPTC_F64, .n = N, .exponent = -1, .ridge = 0.5};
    for (int i = 0; i < N * N; i++)
        a[i] = i % (N + 1) ? 0.25 : 2 + i;
    device_put(at, a, sizeof a);
    OK(optc_matrix_power(e, &f));
    device_get(want, xt, sizeof want);
    OK(optc_functions_drop(e));
    ck_assert(!d->cuMemGetInfo_v2(&before, &all));
    for (int k = 0; k < 2; k++) {
        /* the second call sets the numbers of the entry */
        f.n = N, f.ridge = 0.25 + 0.25 * k;
        ck_assert(!d->cuStreamCreate(&st, 1));
        f.stream = st;
        OK(optc_matrix_power(e, &f));
        ck_assert(!d->cuStreamSynchronize(st) && !d->cuStreamDestroy_v2(st));
    }
    f.stream = NULL;
    OK(optc_matrix_power(e, &f));
    device_get(x, xt, sizeof x);
    ck_assert(!memcmp(x, want, sizeof x));
    for (int n = 1; n < SIZES; n++) {
        for (int i = 0; i < n * n; i++)
            a[i] = i % (n + 1) ? 0 : 2;
        device_put(at, a, sizeof a);
        ck_assert(!d->cuStreamCreate(&st, 1));
        f.n = n, f.stream = st;
        OK(optc_matrix_power(e, &f));
        ck_assert(!d->cuStreamSynchronize(st) && !d->cuStreamDestroy_v2(st));
    }
    OK(optc_functions_drop(e));
    ck_assert(!d->cuMemGetInfo_v2(&after, &all));
    if (getenv("EMU_DIR"))                                 /* a GPU's pool keeps memory */
        ck_assert_msg(after == before, "%zu bytes are kept", before - after);
    device_give(at), device_give(xt);
    OK(optc_close(e));
}
END_TEST

/* ---- every call of a library fails once ---- */
enum { SIDE = 4, SQUARE = SIDE * SIDE };

static optc_status call_with_two_results(optc_engine *e, int which, double *a, double *x, double *y)
{
    const optc_function f = {
        .a = {a, 0, 0}, .x = {x, 0, 0}, .y = {y, 0, 0}, .type = OPTC_F64, .m = SIDE, .n = SIDE};
    const optc_linear l = {.act = a,
                           .out = a,
                           .type = OPTC_F64,
                           .batch = SIDE,
                           .in = SIDE,
                           .outs = SIDE,
                           .sum = x,
                           .norm = y,
                           .clip = 1,
                           .a = x,
                           .g = y,
                           .decay = 0.5};
    return which == 0   ? optc_eigh(e, &f)
           : which == 1 ? optc_qr(e, &f)
           : which == 2 ? optc_clipped_sum(e, &l)
                        : optc_kfac_factors(e, &l);
}

/* _i: the function. Calls that fail store neither result, and the next call succeeds. Only the
 * emulated libraries can be told to fail. */
START_TEST(both_results_or_none)
{
    SHARED();
    static const char *const libraries[] = {"libcuda.so.1", "libcublas.so.13"};
    double a[SQUARE], was[2 * SQUARE], want[2 * SQUARE], got[2 * SQUARE];
    char text[80];
    int failed = 0;
    if (!getenv("EMU_DIR"))
        return;
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .workspace = 1 << 20}, &e));
    double *at = device_take(sizeof a), *to = device_take(sizeof was);
    for (int i = 0; i < SQUARE; i++)
        a[i] = i % (SIDE + 1) ? 0.25 : 2 + i;
    for (int i = 0; i < 2 * SQUARE; i++)
        was[i] = i % SQUARE % (SIDE + 1) ? 0.5 : -7;
    device_put(at, a, sizeof a), device_put(to, was, sizeof was);
    OK(call_with_two_results(e, _i, at, to, to + SQUARE));
    device_get(want, to, sizeof want);
    for (int k = 0; k < 2; k++) {
        int (*count)(void) = NULL;
        *(void **)&count = dlsym(dlopen(libraries[k], RTLD_NOW | RTLD_NOLOAD), "emu_calls");
        for (int n = 1, most = 1; n <= most; n++) {
            device_put(to, was, sizeof was);
            int before = count ? count() : 0;
            snprintf(text, sizeof text, "%s %d", libraries[k], before + n);
            setenv("EMU_FAIL", text, 1);
            optc_status s = call_with_two_results(e, _i, at, to, to + SQUARE);
            setenv("EMU_FAIL", "- 0", 1);
            most = (count ? count() : 0) - before > most ? (count ? count() : 0) - before : most;
            device_get(got, to, sizeof got);
            ck_assert_msg(!memcmp(got, s == OPTC_OK ? want : was, sizeof got),
                          "call %d of %s failed: %s", n, libraries[k],
                          s == OPTC_OK ? "the result differs" : optc_message());
            failed += s != OPTC_OK;
            device_put(to, was, sizeof was);
            OK(call_with_two_results(e, _i, at, to, to + SQUARE));
            device_get(got, to, sizeof got);
            ck_assert_msg(!memcmp(got, want, sizeof got), "after call %d of %s failed", n,
                          libraries[k]);
        }
    }
    ck_assert(failed > 10);
    device_give(at), device_give(to);
    OK(optc_close(e));
}
END_TEST

START_TEST(refused)
{
    SHARED();
    double a[8] = {2, 1, 1, 2, 3, 0, 0, -3}, was[8], x[8];
    optc_engine *e = open_gpu();
    void *at = device_take(sizeof a), *xt = device_take(sizeof x);
    memset(was, 0x55, sizeof was);
    device_put(at, a, sizeof a);
    device_put(xt, was, sizeof was);
    optc_function f = {
        .a = {at, 0, 0}, .x = {xt, 0, 0}, .type = OPTC_F64, .n = 2, .batch = 2, .exponent = -1};
    FAILS(optc_matrix_power(e, &f), OPTC_ERROR_RANGE, "no result for matrix 1 of 2");
    FAILS(optc_cholesky(e, &f), OPTC_ERROR_RANGE, "no result for matrix 1 of 2");
    a[7] = NAN;
    device_put(at, a, sizeof a);
    FAILS(optc_cholesky(e, &f), OPTC_ERROR_RANGE, "matrix 1 of 2 of a contains a NaN");
    a[7] = 3, a[5] = 1;
    device_put(at, a, sizeof a);
    FAILS(optc_cholesky(e, &f), OPTC_ERROR_RANGE, "matrix 1 of 2 of a is not symmetric");
    f.a.data = a;
    FAILS(optc_cholesky(e, &f), OPTC_ERROR_ARGUMENT, "a is not in the memory of cuda:0");
    device_get(x, xt, sizeof x);
    ck_assert(!memcmp(x, was, sizeof x));
    f.a.data = at, f.lower = 1;
    OK(optc_cholesky(e, &f));
    /* results that the type cannot hold: f16 2^-10 and 2^10, e4m3 2^-6 and 2^6 */
    static const uint16_t half[] = {0x3c00, 0x1400, 0x3c00, 0x6400}, byte[] = {0x0838, 0x6838};
    for (int k = 0; k < 4; k++) {
        optc_function p = {.a = {at, 0, 0},
                           .x = {xt, 0, 0},
                           .type = k < 2 ? OPTC_F16 : OPTC_E4M3,
                           .n = 1,
                           .batch = 2,
                           .exponent = k % 2 ? 2 : -2};
        device_put(at, k < 2 ? &half[2 * (k % 2)] : &byte[k % 2], k < 2 ? 4 : 2);
        FAILS(optc_matrix_power(e, &p), OPTC_ERROR_RANGE, "no result for matrix 1 of 2");
        p.unchecked = 1;
        OK(optc_matrix_power(e, &p));
    }
    device_give(at), device_give(xt);
    OK(optc_close(e));
}
END_TEST

/* Copies of rows with more values than a block has threads, from matrices with gaps, in several
 * blocks. _i: columns */
START_TEST(copies_of_long_rows)
{
    SHARED();
    enum { BATCH = 30, ROWS = 2, GAP = 3 };
    int64_t cols = 255 + _i, ld = cols + GAP, next = ROWS * ld + GAP, all = BATCH * next;
    double *b = calloc((size_t)all, sizeof *b), *x = calloc((size_t)all, sizeof *x);
    double t[BATCH][ROWS * ROWS];
    optc_engine *e = open_gpu();
    size_t bytes = (size_t)all * sizeof *b;
    void *tt = device_take(sizeof t), *bt = device_take(bytes), *xt = device_take(bytes);
    for (int64_t i = 0; i < all; i++)
        b[i] = (double)(i % 1021), x[i] = -1;
    for (int i = 0; i < BATCH; i++)
        t[i][0] = t[i][3] = 2, t[i][1] = t[i][2] = 0;
    device_put(tt, t, sizeof t), device_put(bt, b, bytes), device_put(xt, x, bytes);
    OK(optc_solve(e, &(optc_function){.a = {tt, 0, 0},
                                      .b = {bt, ld, next},
                                      .x = {xt, ld, next},
                                      .type = OPTC_F64,
                                      .n = ROWS,
                                      .m = cols,
                                      .batch = BATCH}));
    device_get(x, xt, bytes);
    for (int64_t i = 0; i < all; i++) {
        bool gap = i % next / ld >= ROWS || i % next % ld >= cols;
        ck_assert_msg(x[i] == (gap ? -1 : b[i] / 2), "value %d of %d columns: %g", (int)i,
                      (int)cols, x[i]);
    }
    free(b), free(x);
    device_give(tt), device_give(bt), device_give(xt);
    OK(optc_close(e));
}
END_TEST

static int product_calls(void)
{
    int (*count)(void) = NULL;
    void *library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&count = library ? dlsym(library, "emu_calls") : NULL;
    return count ? count() : 0;
}

/* The message of a launch that cuBLAS refuses has the memory that is left. */
START_TEST(failed_launch_is_explained)
{
    SHARED();
    char text[80];
    if (!getenv("EMU_DIR"))
        return;
    optc_engine *e = open_gpu();
    float *a = device_take(sizeof(float) * 3 * SQUARE);
    const optc_product p = {
        .a = a, .b = a + SQUARE, .c = a + 2 * SQUARE, .m = SIDE, .n = SIDE, .k = SIDE};
    OK(optc_multiply(e, &p));
    /* after stream and workspace */
    snprintf(text, sizeof text, "libcublas.so.13 %d", product_calls() + 3);
    setenv("EMU_FAIL", text, 1);
    FAILS(optc_multiply(e, &p), OPTC_ERROR_DEVICE, "MB of the GPU's memory are free");
    setenv("EMU_FAIL", "- 0", 1);
    OK(optc_multiply(e, &p));
    device_give(a);
    OK(optc_close(e));
}
END_TEST

/* With `relative` a root takes the steps that this bound needs, not those for a condition of 1e10:
 * 6 instead of 9. An eigenvalue below the bound, of a matrix that is not positive semidefinite, is
 * refused. */
START_TEST(relative_bounds_the_steps)
{
    SHARED();
    enum { N = 4 };
    const float from[N] = {1, 0.25f, 1e-3f, 0};
    /* ridge, relative: the same here, as the largest sum is 1 */
    const double lift[2][2] = {{1e-6, 0}, {0, 1e-6}};
    float a[N * N] = {0}, x[N * N];
    int calls[2];
    optc_engine *e = open_gpu();
    void *at = device_take(sizeof a), *xt = device_take(sizeof x);
    optc_function f = {.a = {at, 0, 0}, .x = {xt, 0, 0}, .n = N, .exponent = -0.25};
    for (int i = 0; i < N; i++)
        a[i * (N + 1)] = from[i];
    for (int k = 0; k < 2; k++) {
        device_put(at, a, sizeof a);
        f.ridge = lift[k][0], f.relative = lift[k][1];
        OK(optc_matrix_power(e, &f));
        calls[k] = product_calls();
        OK(optc_matrix_power(e, &f));
        calls[k] = product_calls() - calls[k];
        device_get(x, xt, sizeof x);
        for (int i = 0; i < N; i++) {
            double want = pow((double)from[i] + 1e-6, -0.25);
            ck_assert_msg(fabs(x[i * (N + 1)] - want) < 3e-7 * want, "%d %d: %g, not %g", k, i,
                          x[i * (N + 1)], want);
        }
    }
    if (getenv("EMU_DIR"))
        ck_assert_msg(calls[1] > 0 && 3 * calls[1] < 2 * calls[0] + 6, "%d and %d calls", calls[0],
                      calls[1]);
    a[N * N - 1] = -5e-7f;
    device_put(at, a, sizeof a);
    FAILS(optc_matrix_power(e, &f), OPTC_ERROR_RANGE, "no result for matrix 0 of 1");
    device_give(at), device_give(xt);
    OK(optc_close(e));
}
END_TEST

/* Norms, clipped sums and factors of a linear layer, and an implicit Kronecker product, as on the
 * CPU. */
START_TEST(linear_layer)
{
    SHARED();
    enum {
        BATCH = 3, ROWS = 2, IN = 4, OUTS = 3, ACT = BATCH * ROWS * IN, OUT = BATCH * ROWS * OUTS
    };
    double act[ACT], out[OUT], got[2][BATCH + OUTS * IN + IN * IN + OUTS * OUTS + IN * OUTS];
    optc_engine *e[2] = {NULL, open_gpu()};
    OK(optc_open(NULL, &e[0]));
    for (int i = 0; i < ACT; i++)
        act[i] = (i * 7 % 11 - 5) / 5.0;
    for (int i = 0; i < OUT; i++)
        out[i] = (i * 5 % 13 - 6) / 6.0;
    for (int k = 0; k < 2; k++) {
        double *a = k ? device_take(sizeof act) : act, *g = k ? device_take(sizeof out) : out,
               *to = k ? device_take(sizeof got[0]) : got[0];
        if (k)
            device_put(a, act, sizeof act), device_put(g, out, sizeof out);
        optc_linear x = {.act = a,
                         .out = g,
                         .type = OPTC_F64,
                         .batch = BATCH,
                         .rows = ROWS,
                         .in = IN,
                         .outs = OUTS,
                         .norm = to,
                         .sum = to + BATCH,
                         .clip = 1.5,
                         .a = to + BATCH + OUTS * IN,
                         .g = to + BATCH + OUTS * IN + IN * IN};
        OK(optc_clipped_sum(e[k], &x));
        OK(optc_kfac_factors(e[k], &x));
        OK(optc_kron_apply(e[k],
                           &(optc_kron_vector){.a = a,
                                               .b = g,
                                               .x = a + IN * IN,
                                               .y = to + BATCH + OUTS * IN + IN * IN + OUTS * OUTS,
                                               .type = OPTC_F64,
                                               .m = IN,
                                               .n = IN,
                                               .p = OUTS,
                                               .q = 2}));
        if (k) {
            device_get(got[1], to, sizeof got[1]);
            device_give(a), device_give(g), device_give(to);
        }
        OK(optc_close(e[k]));
    }
    for (size_t i = 0; i < sizeof got[0] / sizeof(double); i++)
        ck_assert_msg(fabs(got[0][i] - got[1][i]) <= 1e-13 * (1 + fabs(got[0][i])),
                      "value %zu: %g on the CPU, %g", i, got[0][i], got[1][i]);
}
END_TEST

/* A captured sum and its norms follow the arrays; kept memory of the call is the graph's from then
 * on. */
START_TEST(linear_layer_in_a_graph)
{
    SHARED();
    enum {
        BATCH = 3,
        ROWS = 2,
        IN = 4,
        OUTS = 3,
        ACT = BATCH * ROWS * IN,
        OUT = BATCH * ROWS * OUTS,
        RESULT = BATCH + OUTS * IN + IN * IN
    };
    double act[ACT], out[OUT], want[RESULT], got[RESULT];
    CUstream st;
    void *graph, *exec;
    optc_engine *e = open_gpu();
    double *a = device_take(sizeof act), *g = device_take(sizeof out),
           *to = device_take(sizeof got);
    for (int i = 0; i < ACT; i++)
        act[i] = (i * 7 % 11 - 5) / 5.0;
    for (int i = 0; i < OUT; i++)
        out[i] = (i * 5 % 13 - 6) / 6.0;
    device_put(a, act, sizeof act), device_put(g, out, sizeof out);
    ck_assert(!d->cuStreamCreate(&st, 1));
    /* the workspace holds the squares of one sample */
    optc_linear x = {.act = a,
                     .out = g,
                     .type = OPTC_F64,
                     .batch = BATCH,
                     .rows = ROWS,
                     .in = IN,
                     .outs = OUTS,
                     .norm = to,
                     .sum = to + BATCH,
                     .clip = 1.5,
                     .a = to + BATCH + OUTS * IN,
                     .workspace = 1,
                     .stream = st};
    ck_assert(!d->cuStreamBeginCapture_v2(st, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(optc_clipped_sum(e, &x), OPTC_ERROR_ARGUMENT, "set unchecked = 1");
    FAILS(optc_kfac_factors(e, &x), OPTC_ERROR_ARGUMENT, "set unchecked = 1");
    x.unchecked = 1;
    FAILS(optc_clipped_sum(e, &x), OPTC_ERROR_ARGUMENT, "before capturing");
    FAILS(optc_sample_norms(e, &x), OPTC_ERROR_ARGUMENT, "before capturing");
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    x.workspace = 0;
    OK(optc_kfac_factors(e, &x));
    x.workspace = 1;
    OK(optc_clipped_sum(e, &x));
    ck_assert(!d->cuStreamSynchronize(st) &&
              !d->cuStreamBeginCapture_v2(st, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(optc_clipped_sum(e, &x));
    x.workspace = 0;
    OK(optc_kfac_factors(e, &x));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(optc_functions_drop(e));
    for (int i = 0; i < ACT; i++)
        act[i] = (i * 3 % 7 - 3) / 2.0;
    device_put(a, act, sizeof act);
    x.workspace = 1;
    OK(optc_clipped_sum(e, &x));
    x.workspace = 0;
    OK(optc_kfac_factors(e, &x));
    ck_assert(!d->cuStreamSynchronize(st));
    device_get(want, to, sizeof want);
    memset(got, 0, sizeof got);
    device_put(to, got, sizeof got);
    ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
    device_get(got, to, sizeof got);
    ck_assert(!memcmp(got, want, sizeof got) && got[0] > 0);
    device_give(a), device_give(g), device_give(to);
    OK(optc_close(e));
}
END_TEST

/* Milliseconds of optc_matrix_power(-1), and of optc_solve with the identity, for symmetric
 * matrices in f64. */
static double time_inverse(optc_engine *e, optc_function *f, bool solve)
{
    CUevent from, to;
    float ms[5], best = 0;
    ck_assert(!d->cuEventCreate(&from, 0) && !d->cuEventCreate(&to, 0));
    for (int i = 0; i < 6; i++) {
        ck_assert(!d->cuEventRecord(from, NULL));
        OK(solve ? optc_solve(e, f) : optc_matrix_power(e, f));
        ck_assert(!d->cuEventRecord(to, NULL) && !d->cuEventSynchronize(to));
        if (i)
            ck_assert(!d->cuEventElapsedTime(&ms[i - 1], from, to));
    }
    for (int i = 0; i < 5; i++)
        best = !i || ms[i] < best ? ms[i] : best;
    d->cuEventDestroy_v2(from), d->cuEventDestroy_v2(to);
    return best;
}

START_TEST(inverse_times)
{
    SHARED();
    static const struct { int64_t n, batch; double bar; } work[] = {{2048, 4, 20}, {512, 16, 4.5}};
    if (!getenv("OPTC_INVERSE_TIMES"))
        return;
    optc_engine *e = open_gpu();
    for (int k = 0; k < 2; k++) {
        int64_t n = work[k].n, size = n * n;
        size_t bytes = sizeof(double) * (size_t)(size * work[k].batch);
        double *host = malloc(bytes), *ones = calloc(1, bytes), residual = -1;
        /* diagonally dominant, condition about 1e3 */
        for (int64_t i = 0; i < size * work[k].batch; i++) {
            int64_t r = i % size / n, c = i % n;
            host[i] = r == c ? 1 + 1000.0 * (double)r / (double)n
                             : 0.1 / (double)(1 + llabs(r - c)) / (double)n;
            ones[i] = r == c;
        }
        void *at = device_take(bytes), *bt = device_take(bytes), *xt = device_take(bytes);
        device_put(at, host, bytes), device_put(bt, ones, bytes);
        optc_function f = {.a = {at, 0, 0},
                           .b = {bt, 0, 0},
                           .x = {xt, 0, 0},
                           .type = OPTC_F64,
                           .n = n,
                           .m = n,
                           .batch = work[k].batch,
                           .exponent = -1,
                           .unchecked = 1};
        double power = time_inverse(e, &f, false);
        f.positive = 1;
        double solve = time_inverse(e, &f, true);
        f.unchecked = 0, f.residual = &residual;
        OK(optc_matrix_power(e, &f));
        printf("%lld x %lld x %lld f64: optc_matrix_power(-1) %.2f ms, optc_solve %.2f ms, bar "
               "%.1f ms, residual %g\n",
               (long long)work[k].batch, (long long)n, (long long)n, power, solve, work[k].bar,
               residual);
        device_give(at), device_give(bt), device_give(xt);
        free(host), free(ones);
        OK(optc_functions_drop(e));
    }
    OK(optc_close(e));
}
END_TEST

void add_functions(TCase *t)
{
    tcase_add_loop_test(t, definitions, 0, FUNCTION_CASES);
    tcase_add_test(t, in_a_graph);
    tcase_add_test(t, stream_is_not_kept);
    tcase_add_loop_test(t, both_results_or_none, 0, 4);
    tcase_add_test(t, refused);
    tcase_add_test(t, failed_launch_is_explained);
    tcase_add_test(t, relative_bounds_the_steps);
    tcase_add_loop_test(t, copies_of_long_rows, 0, 3);
    tcase_add_test(t, linear_layer);
    tcase_add_test(t, linear_layer_in_a_graph);
    tcase_add_test(t, inverse_times);
}

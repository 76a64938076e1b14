/* Norms of per-sample gradients, clipped sums, K-FAC's factors and implicit Kronecker products,
 * against plain loops in f64. */
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 7, OUTS = 5 };

static optc_engine *open_with(int threads)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.threads = threads}, &e));
    return e;
}

/* Values of a storage type, and the same as doubles. */
typedef struct Values { char *at; double *v; int64_t n; } Values;

static Values values(optc_type type, int64_t n, int seed)
{
    Values x = {calloc((size_t)n, 8), calloc((size_t)n, sizeof(double)), n};
    for (int64_t i = 0; i < n; i++) {
        type_store((int)type - 1, x.at, i,
                   2.0 * (double)(splitmix((uint64_t)(seed * 7919 + i)) >> 40) / (1 << 24) - 1);
        x.v[i] = type_load((int)type - 1, x.at, i);
    }
    return x;
}

static void values_free(Values x) { free(x.at), free(x.v); }

static double ulp_of(optc_type t)
{
    return t == OPTC_F64    ? DBL_EPSILON
           : t == OPTC_F32  ? FLT_EPSILON
           : t == OPTC_BF16 ? 0x1p-7
                            : 0x1p-10;
}

static void near(const char *what, double got, double want, double bound)
{
    ck_assert_msg(fabs(got - want) <= bound, "%s is %g, not %g, within %g", what, got, want, bound);
}

/* _i: type and number of rows. The smallest workspace holds the squares of one sample. */
START_TEST(samples)
{
    enum { BATCH = 6 };
    const optc_type type = (optc_type)(OPTC_F32 + _i % 4);
    const int64_t rows = _i / 4 ? 4 : 1, lines = BATCH * rows;
    optc_engine *e = open_with(1 + _i % 2);
    Values act = values(type, lines * IN, 1), out = values(type, lines * OUTS, 2);
    double grad[BATCH][OUTS * IN] = {{0}}, norm[BATCH] = {0}, ulp = ulp_of(type);
    double found[BATCH];
    char sum[8 * OUTS * IN];
    for (int64_t k = 0; k < lines; k++)
        for (int i = 0; i < OUTS * IN; i++)
            grad[k / rows][i] += out.v[k * OUTS + i / IN] * act.v[k * IN + i % IN];
    for (int s = 0; s < BATCH; s++) {
        for (int i = 0; i < OUTS * IN; i++)
            norm[s] += grad[s][i] * grad[s][i];
        norm[s] = sqrt(norm[s]);
    }
    optc_linear x = {.act = act.at,
                     .out = out.at,
                     .type = type,
                     .batch = BATCH,
                     .rows = rows,
                     .in = IN,
                     .outs = OUTS,
                     .norm = found,
                     .sum = sum,
                     .clip = norm[0]};
    for (int pass = 0; pass < 2; pass++, x.workspace = 1) {
        memset(found, 0, sizeof found);
        OK(optc_sample_norms(e, &x));
        for (int s = 0; s < BATCH; s++)
            near("a norm", found[s], norm[s],
                 64 * (type == OPTC_F64 ? DBL_EPSILON : FLT_EPSILON) * (1 + norm[s]));
        memset(sum, 0, sizeof sum);
        OK(optc_clipped_sum(e, &x));
        for (int i = 0; i < OUTS * IN; i++) {
            double want = 0, size = 0;
            for (int s = 0; s < BATCH; s++) {
                double w = norm[s] > norm[0] ? norm[0] / norm[s] : 1;
                want += w * grad[s][i], size += fabs(w * grad[s][i]) + (double)rows;
            }
            near("an entry of the sum", type_load((int)type - 1, sum, i), want, 16 * ulp * size);
        }
    }
    values_free(act), values_free(out);
    OK(optc_close(e));
}
END_TEST

START_TEST(factors)
{
    enum { BATCH = 3, ROWS = 2, LINES = BATCH * ROWS };
    optc_engine *e = open_with(2);
    Values act = values(OPTC_F64, LINES * IN, 1), out = values(OPTC_F64, LINES * OUTS, 2);
    double a[IN * IN], g[OUTS * OUTS], olda[IN * IN], oldg[OUTS * OUTS];
    optc_linear x = {.act = act.at,
                     .out = out.at,
                     .type = OPTC_F64,
                     .batch = BATCH,
                     .rows = ROWS,
                     .in = IN,
                     .outs = OUTS,
                     .a = a,
                     .g = g};
    /* NaN: decay 0 does not read it */
    memset(a, 0xff, sizeof a), memset(g, 0xff, sizeof g);
    for (int pass = 0; pass < 2; pass++, x.decay = 0.75) {
        memcpy(olda, a, sizeof a), memcpy(oldg, g, sizeof g);
        OK(optc_kfac_factors(e, &x));
        for (int i = 0; i < IN * IN; i++) {
            double want = 0;
            for (int k = 0; k < LINES; k++)
                want += act.v[k * IN + i / IN] * act.v[k * IN + i % IN] / LINES;
            near("a", a[i], pass ? 0.75 * olda[i] + 0.25 * want : want, 1e-14);
        }
        for (int i = 0; i < OUTS * OUTS; i++) {
            double want = 0;
            for (int k = 0; k < LINES; k++)
                want += out.v[k * OUTS + i / OUTS] * out.v[k * OUTS + i % OUTS] / BATCH;
            near("g", g[i], pass ? 0.75 * oldg[i] + 0.25 * want : want, 1e-14);
        }
    }
    values_free(act), values_free(out);
    OK(optc_close(e));
}
END_TEST

/* The same as the formed Kronecker product times each vector. */
START_TEST(kron_apply)
{
    enum { M = 4, N = 3, P = 2, Q = 5, BATCH = 3 };
    optc_engine *e = open_with(1);
    Values a = values(OPTC_F64, M * N, 1), b = values(OPTC_F64, P * Q, 2),
           v = values(OPTC_F64, BATCH * N * Q, 3);
    double y[BATCH * M * P], k[M * P * N * Q];
    OK(optc_kron(
        e, &(optc_kronecker){
               .a = a.at, .b = b.at, .c = k, .type = OPTC_F64, .m = M, .n = N, .p = P, .q = Q}));
    const optc_kron_vector good = {.a = a.at,
                                   .b = b.at,
                                   .x = v.at,
                                   .y = y,
                                   .type = OPTC_F64,
                                   .m = M,
                                   .n = N,
                                   .p = P,
                                   .q = Q,
                                   .batch = BATCH,
                                   .next_a = OPTC_ONE,
                                   .next_b = OPTC_ONE};
    OK(optc_kron_apply(e, &good));
    for (int s = 0; s < BATCH; s++)
        for (int i = 0; i < M * P; i++) {
            double want = 0;
            for (int j = 0; j < N * Q; j++)
                want += k[i * N * Q + j] * v.v[s * N * Q + j];
            near("a value", y[s * M * P + i], want, 1e-14);
        }
    optc_kron_vector bad = good;
    bad.x = NULL;
    FAILS(optc_kron_apply(e, &bad), OPTC_ERROR_ARGUMENT, "optc_kron_apply: x is NULL");
    bad = good, bad.y = v.at;
    FAILS(optc_kron_apply(e, &bad), OPTC_ERROR_ARGUMENT, "y overlaps x in memory");
    bad = good, bad.q = -1;
    FAILS(optc_kron_apply(e, &bad), OPTC_ERROR_ARGUMENT, "q = -1");
    bad = good, bad.workspace = 1;
    FAILS(optc_kron_apply(e, &bad), OPTC_ERROR_ARGUMENT,
          "optc_kron_apply: the workspace is 1 bytes");
    bad = good, bad.scale = NAN;
    FAILS(optc_kron_apply(e, &bad), OPTC_ERROR_ARGUMENT, "scale is nan");
    FAILS(optc_kron_apply(NULL, &good), OPTC_ERROR_ARGUMENT, "the engine is NULL");
    values_free(a), values_free(b), values_free(v);
    OK(optc_close(e));
}
END_TEST

#define BAD(f, status, part, ...)                                  \
    do {                                                           \
        optc_linear y = good;                                      \
        __VA_ARGS__;                                               \
        FAILS(f(e, &y), status, part);                             \
        ck_assert(!memcmp(sum, was, sizeof sum));                  \
        ck_assert(!memcmp(norm, was, sizeof norm));                \
    } while (0)

START_TEST(refused)
{
    const optc_status ARG = OPTC_ERROR_ARGUMENT, RANGE = OPTC_ERROR_RANGE;
    optc_engine *e = open_with(1);
    Values act = values(OPTC_F32, 4 * IN, 1), out = values(OPTC_F32, 4 * OUTS, 2);
    float sum[OUTS * IN], was[OUTS * IN];
    double norm[4];
    memset(sum, 0x55, sizeof sum), memset(norm, 0x55, sizeof norm), memset(was, 0x55, sizeof was);
    const optc_linear good = {.act = act.at,
                              .out = out.at,
                              .batch = 2,
                              .rows = 2,
                              .in = IN,
                              .outs = OUTS,
                              .norm = norm,
                              .sum = sum,
                              .clip = 1};
    FAILS(optc_sample_norms(NULL, &good), ARG, "the engine is NULL");
    FAILS(optc_clipped_sum(e, NULL), ARG, "the layer is NULL");
    FAILS(optc_kfac_factors_sized(e, &good, 1), ARG, "pass sizeof(optc_linear)");
    BAD(optc_sample_norms, ARG, "act is NULL", y.act = NULL);
    BAD(optc_sample_norms, ARG, "out is NULL", y.out = NULL);
    BAD(optc_sample_norms, ARG, "norm is NULL", y.norm = NULL);
    BAD(optc_clipped_sum, ARG, "sum is NULL", y.sum = NULL);
    BAD(optc_clipped_sum, ARG, "batch = -1", y.batch = -1);
    BAD(optc_clipped_sum, ARG, "in = 0", y.in = 0);
    BAD(optc_clipped_sum, ARG, "larger than memory", y.batch = (int64_t)1 << 60);
    BAD(optc_clipped_sum, ARG, "clip is 0", y.clip = 0);
    BAD(optc_clipped_sum, ARG, "clip is nan", y.clip = NAN);
    BAD(optc_clipped_sum, ARG, "sum overlaps act", y.sum = act.at);
    BAD(optc_kfac_factors, ARG, "a and g are NULL", (void)0);
    BAD(optc_kfac_factors, ARG, "decay is 1", y.decay = 1; y.a = sum);
    BAD(optc_kfac_factors, ARG, "g overlaps out", y.g = out.at);
    BAD(optc_kfac_factors, ARG, "g overlaps a", y.g = y.a = sum);
    BAD(optc_clipped_sum, ARG, "sum overlaps norm", y.norm = (double *)(void *)(sum + 2));
    BAD(optc_clipped_sum, ARG, "norm overlaps act", y.norm = (double *)(void *)act.at);
    BAD(optc_sample_norms, ARG, "norm overlaps out", y.norm = (double *)(void *)out.at);
    float a[IN * IN], g[OUTS * OUTS], old[IN * IN];
    for (int i = 0; i < IN * IN; i++)
        a[i] = old[i] = 1;
    a[5] = old[5] = NAN;
    BAD(optc_kfac_factors, RANGE, "matrix 0 of 1 of a contains a NaN", y.a = a; y.g = g;
        y.decay = 0.5);
    const float before = ((float *)(void *)act.at)[3 * IN];
    for (int i = 0; i < IN * IN; i++)
        a[i] = old[i] = 1;
    ((float *)(void *)act.at)[3 * IN] = 3e38f;
    BAD(optc_kfac_factors, RANGE, "a value of a exceeds the range of f32", y.a = a; y.g = g);
    ck_assert(!memcmp(a, old, sizeof a));
    ((float *)(void *)act.at)[3 * IN] = before;
    a[5] = old[5] = NAN;
    ((float *)(void *)act.at)[3 * IN] = INFINITY;
    BAD(optc_sample_norms, RANGE, "matrix 1 of 2 of act contains a NaN or an infinity", (void)0);
    BAD(optc_sample_norms, RANGE, "matrix 1 of 2 of act contains a NaN or an infinity",
        y.workspace = 1);
    BAD(optc_clipped_sum, RANGE, "matrix 1 of 2 of act contains a NaN or an infinity", (void)0);
    BAD(optc_kfac_factors, RANGE, "matrix 1 of 2 of act contains a NaN or an infinity", y.a = a;
        y.g = g);
    ck_assert(!memcmp(a, old, sizeof a));
    optc_linear y = good;
    y.a = a, y.unchecked = 1;
    OK(optc_kfac_factors(e, &y));
    ck_assert(isnan(a[0]) || isinf(a[0]));
    y.a = NULL, y.g = g, y.unchecked = 0;                  /* act is not read */
    OK(optc_kfac_factors(e, &y));
    values_free(act), values_free(out);
    OK(optc_close(e));
}
END_TEST

/* e4m3 has no infinity: results above 448 are refused, and 448 itself is not. */
START_TEST(beyond_e4m3)
{
    optc_engine *e = open_with(1);
    /* 64, 64; factors of 1 */
    unsigned char act = 0x68, out = 0x68, sum = 0x55, a = 0x38, g = 0x38;
    double norm = 3;
    optc_linear x = {.act = &act,
                     .out = &out,
                     .type = OPTC_E4M3,
                     .batch = 1,
                     .in = 1,
                     .outs = 1,
                     .norm = &norm,
                     .sum = &sum,
                     .clip = 1e6,
                     .a = &a,
                     .g = &g,
                     .decay = 0.5};
    FAILS(optc_clipped_sum(e, &x), OPTC_ERROR_RANGE, "a value of sum exceeds the range of e4m3");
    FAILS(optc_kfac_factors(e, &x), OPTC_ERROR_RANGE, "a value of a exceeds the range of e4m3");
    ck_assert(sum == 0x55 && norm == 3 && a == 0x38 && g == 0x38);
    x.unchecked = 1;
    OK(optc_clipped_sum(e, &x));
    ck_assert_uint_eq(sum, 0x7e);
    /* 32 x 14 = 448 */
    act = 0x60, out = 0x56, x.unchecked = 0, sum = 0;
    OK(optc_clipped_sum(e, &x));
    ck_assert_uint_eq(sum, 0x7e);
    /* 0.25 + 0.75 x 16 = 12.25 */
    act = out = 0x48, x.decay = 0.25;
    OK(optc_kfac_factors(e, &x));
    ck_assert_uint_eq(a, 0x54);                                                     /* 12 */
    ck_assert_uint_eq(g, 0x54);
    OK(optc_close(e));
}
END_TEST

Suite *linear_layer_suite(void)
{
    Suite *s = suite_create("linear_layer");
    TCase *t = tcase_create("linear_layer");
    tcase_add_loop_test(t, samples, 0, 8);
    tcase_add_test(t, factors);
    tcase_add_test(t, kron_apply);
    tcase_add_test(t, refused);
    tcase_add_test(t, beyond_e4m3);
    suite_add_tcase(s, t);
    return s;
}

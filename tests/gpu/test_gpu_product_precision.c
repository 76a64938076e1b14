/* A rule with one product in f32 and one in tf32, with and without cuBLAS: each has the kernel and
 * the error of its precision, and the user's choice replaces both. */
#include "runtime/core/matrix/gpu_calls.h"
#include "tests/gpu/device_side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_N = 20, COLS_N = 36, VALUES = ROWS_N * COLS_N };
static const int64_t shape[2] = {ROWS_N, COLS_N};
static const char mixed[] =
    "return optimizer { name = 'mixed', state = { A = zeros 'rows', B = zeros 'rows' },\n"
    "step = function() p = p - g end, matrix = function()\n"
    "A = gram(g) B = mm(g, g.T, { products = 'tf32' }) p = p - g end }";

/* The largest error of G G^T, relative to the sum of magnitudes. */
static double error_of(const double *got, const float *g)
{
    double most = 0;
    for (int i = 0; i < ROWS_N * ROWS_N; i++) {
        double sum = 0, mag = 0;
        for (int k = 0; k < COLS_N; k++) {
            double x = (double)g[i / ROWS_N * COLS_N + k] * (double)g[i % ROWS_N * COLS_N + k];
            sum += x;
            mag += fabs(x);
        }
        most = fmax(most, fabs(got[i] - sum) / mag);
    }
    return most;
}

/* f32: about 40 roundings of 2^-24 at most. tf32: two roundings of 2^-11 at most, and hardly below
 * 2^-16 for all of 400 values. */
static bool in_f32(double e) { return e <= 0x1p-18; }
static bool in_tf32(double e) { return e > 0x1p-16 && e <= 0x1p-9; }

/* The precisions of the steps that multiply, a bit each. */
static unsigned launched(const optc_binding *b, bool library)
{
    const GpuCalls *x = b->gpu->calls;
    unsigned bits = 0;
    for (int i = 0; i < x->nstep; i++)
        if (kernel_multiplies(x->step[i].kernel)) {
            ck_assert(x->step[i].kernel == x->step[i].type->mm &&
                      (library || b->gpu->code->call[x->step[i].kernel]));
            bits |= 1u << x->step[i].type->product;
        }
    return bits;
}

static void step_mixed(const char *products, bool library, double error[2], unsigned *launches)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float g[VALUES];
    double got[ROWS_N * ROWS_N];
    CUdeviceptr p, grad;
    use_cublas(library);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "mixed", .text = mixed, .products = products},
                    &r));
    for (int i = 0; i < VALUES; i++)
        g[i] = (float)ref_value(1, 2, i);
    ck_assert(!d->cuMemAlloc_v2(&p, sizeof g) && !d->cuMemAlloc_v2(&grad, sizeof g) &&
              !d->cuMemcpyHtoDAsync_v2(p, g, sizeof g, NULL) &&
              !d->cuMemcpyHtoDAsync_v2(grad, g, sizeof g, NULL));
    optc_tensor t = {
        .param = (void *)(uintptr_t)p, .grad = (void *)(uintptr_t)grad, .rank = 2, .shape = shape};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    *launches = launched(b, library);
    for (int k = 0; k < 2; k++) {
        OK(optc_state_read(b, 0, k ? "B" : "A", got, ROWS_N * ROWS_N));
        error[k] = error_of(got, g);
    }
    OK(optc_unbind(b));
    ck_assert(!d->cuMemFree_v2(p) && !d->cuMemFree_v2(grad));
    OK(optc_release(r));
    OK(optc_close(e));
    use_cublas(true);
}

START_TEST(one_in_tf32)
{
    SHARED();
    static const struct { const char *products; bool tf32[2]; } c[] = {
        {NULL, {false, true}}, {"f32", {false, false}}, {"tf32", {true, true}}};
    bool library = _i % 2 == 0, emulated = getenv("OPTC_TEST_SMALL") != NULL;
    double error[2];
    unsigned launches, want = 0;
    step_mixed(c[_i / 2].products, library, error, &launches);
    for (int k = 0; k < 2; k++)
        want |= 1u << (c[_i / 2].tf32[k] ? PRODUCT_TF32 : PRODUCT_F32);
    ck_assert_uint_eq(launches, want);
    /* our emulated tensor cores do not round operands */
    for (int k = 0; k < 2 && (library || !emulated); k++)
        ck_assert_msg(c[_i / 2].tf32[k] ? in_tf32(error[k]) : in_f32(error[k]),
                      "products = %s, %s: error %g of %s",
                      c[_i / 2].products ? c[_i / 2].products : "as in the rule",
                      library ? "cuBLAS" : "ours", error[k], k ? "B" : "A");
}
END_TEST

/* Singular values down to 2^-14 of the largest, in rules of all precisions: the Gram matrix is in
 * f64. The matrix is H diag(s) with H of 1 and -1, its values are s sqrt(8). */
START_TEST(one_in_f64)
{
    static const char text[] =
        "return optimizer { name = 'known', rank = 8, products = '%s', state = {"
        " s = zeros 'rank1', A = zeros 'rows' },\nstep = function() p = p - g end, matrix = "
        "function()"
        " local U, S, V = svd(g, 'rank')  s, A = S, gram(g)\n"
        "p = p - mm(U, V.T) end }";
    static const char *const heads[] = {"f32", "tf32", "f16"};
    static const int64_t square[] = {8, 8};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float g[64], now[64];
    double s[8];
    CUdeviceptr p, grad;
    char *spec = format(text, heads[_i % 3]);
    use_cublas(_i / 3);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "known", .text = spec}, &r));
    for (int i = 0; i < 64; i++)
        g[i] = ldexpf(__builtin_popcount((unsigned)(i / 8 & i % 8)) % 2 ? -1 : 1, -2 * (i % 8));
    ck_assert(!d->cuMemAlloc_v2(&p, sizeof g) && !d->cuMemAlloc_v2(&grad, sizeof g) &&
              !d->cuMemcpyHtoDAsync_v2(p, g, sizeof g, NULL) &&
              !d->cuMemcpyHtoDAsync_v2(grad, g, sizeof g, NULL));
    optc_tensor t = {
        .param = (void *)(uintptr_t)p, .grad = (void *)(uintptr_t)grad, .rank = 2, .shape = square};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_state_read(b, 0, "s", s, 8));
    ck_assert(!d->cuMemcpyDtoHAsync_v2(now, p, sizeof now, NULL) && !d->cuStreamSynchronize(NULL));
    for (int i = 0; i < 8; i++)
        ck_assert_msg(fabs(s[i] / ldexp(sqrt(8), -2 * i) - 1) < 1e-6, "%s: value %d is %g",
                      heads[_i % 3], i, s[i]);
    for (int i = 0; i < 64; i++) {
        double want = g[i] - copysign(1, g[i]) / sqrt(8);
        ck_assert_msg(fabs(now[i] - want) < (_i % 3 ? 4e-3 : 1e-5), "%s: p[%d] is %g",
                      heads[_i % 3], i, now[i]);
    }
    OK(optc_unbind(b));
    ck_assert(!d->cuMemFree_v2(p) && !d->cuMemFree_v2(grad));
    OK(optc_release(r));
    OK(optc_close(e));
    free(spec);
}
END_TEST

void add_product_precision(TCase *t)
{
    tcase_add_loop_test(t, one_in_tf32, 0, 6);
    tcase_add_loop_test(t, one_in_f64, 0, 6);
}

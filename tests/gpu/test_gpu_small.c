/* Tensors of few elements, which share thread blocks of a map, and 16-bit storage types. */
#include "tests/gpu/device_side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int lengths[] = {1,    3,    31,   64,   100,  127,  128,  129,  255,  256,
                              257,  511,  512,  513,  1000, 1023, 1024, 1025, 2000, 4095,
                              4096, 4097, 4196, 5120, 5121, 8192, 0,    100,  1};
enum { NLENGTHS = sizeof lengths / sizeof *lengths };

/* The same tensors on one device, consecutive in one allocation of parameters and one of
 * gradients. */
typedef struct Row {
    /* engine, rule and binding: functions that set launches need a Side */
    Side s;
    char *p, *g;
    CUdeviceptr dp, dg;
    size_t bytes[2];
} Row;

static void open_row(Row *r, const char *device, optc_rule_options rule)
{
    memset(r, 0, sizeof *r);
    OK(optc_open(&(optc_engine_options){.device = device, .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &r->s.e));
    OK(optc_compile(r->s.e, &rule, &r->s.r));
    Type p = r->s.r->library->plan->p, g = r->s.r->library->plan->g;
    optc_tensor t[NLENGTHS];
    int64_t shape[NLENGTHS], total = 0;
    memset(t, 0, sizeof t);
    for (int i = 0; i < NLENGTHS; i++)
        total += lengths[i];
    r->bytes[0] = (size_t)(total * type_info[p].bytes);
    r->bytes[1] = (size_t)(total * type_info[g].bytes);
    r->p = malloc(r->bytes[0]);
    r->g = malloc(r->bytes[1]);
    for (int64_t i = 0; i < total; i++) {
        type_store(p, r->p, i, 0.5 * ref_value(1, 0, i));
        type_store(g, r->g, i, ref_value(2, 1, i));
    }
    char *at[2] = {r->p, r->g};
    if (strcmp(device, "cpu")) {
        ck_assert(!d->cuMemAlloc_v2(&r->dp, r->bytes[0]) && !d->cuMemAlloc_v2(&r->dg, r->bytes[1]));
        ck_assert(!d->cuMemcpyHtoDAsync_v2(r->dp, r->p, r->bytes[0], NULL) &&
                  !d->cuMemcpyHtoDAsync_v2(r->dg, r->g, r->bytes[1], NULL) &&
                  !d->cuStreamSynchronize(NULL));
        at[0] = (char *)(uintptr_t)r->dp;
        at[1] = (char *)(uintptr_t)r->dg;
    }
    for (int i = 0; i < NLENGTHS; i++) {
        shape[i] = lengths[i];
        t[i] = (optc_tensor){.param = at[0], .grad = at[1], .rank = 1, .shape = &shape[i]};
        at[0] += lengths[i] * type_info[p].bytes;
        at[1] += lengths[i] * type_info[g].bytes;
    }
    OK(optc_bind(r->s.r, &(optc_group){.tensors = t, .ntensors = NLENGTHS}, 1, &r->s.b));
}

static void fetch_row(Row *r)
{
    OK(optc_sync(r->s.b));
    if (r->dp)
        ck_assert(!d->cuMemcpyDtoHAsync_v2(r->p, r->dp, r->bytes[0], NULL) &&
                  !d->cuStreamSynchronize(NULL));
}

static void close_row(Row *r)
{
    OK(optc_unbind(r->s.b));
    OK(optc_release(r->s.r));
    OK(optc_close(r->s.e));
    if (r->dp)
        ck_assert(!d->cuMemFree_v2(r->dp) && !d->cuMemFree_v2(r->dg));
    free(r->p);
    free(r->g);
}

/* Every length around those of a warp, a block and a unit, with the model's launches and random
 * ones. */
START_TEST(few_elements)
{
    static const optc_rule_options rules[] = {
        {.spec = "adamw"},
        {.spec = "adamw", .with = "clip(1)"},
        {.spec = "lion", .param = OPTC_BF16, .grad = OPTC_BF16, .state = OPTC_BF16},
        {.spec = "lamb"}};
    if (thinned(_i))
        return;
    Row c, g;
    uint64_t dice = 77 + (uint64_t)_i;
    open_row(&c, "cpu", rules[_i]);
    open_row(&g, "cuda", rules[_i]);
    for (int step = 0; step < 5; step++) {
        if (step > 1)
            use_random_launches(&g.s, &dice, true);
        OK(optc_step(c.s.b));
        OK(optc_step(g.s.b));
        fetch_row(&g);
        for (size_t i = 0; i < c.bytes[0]; i++)
            ck_assert_msg(c.p[i] == g.p[i], "step %d: byte %zu differs", step, i);
    }
    close_row(&c);
    close_row(&g);
}
END_TEST

/* Tensors that fit into a warp are stepped four to a block, those that fit into a block one to a
 * block. (Earlier versions used four blocks per tensor.) */
START_TEST(few_blocks)
{
    const Launch l = {{128, 4, 2, 0, 0, 0, 0}};
    static int64_t shorter[BRIEF + 1];
    for (int i = 1; i <= BRIEF; i++)
        shorter[i] = (i >= 100 ? 1000 : 0) + (i >= 1000 ? 500 : 0);
    Brief b = count_brief(FORM_MAP, &l, shorter);
    ck_assert_int_eq(b.warp, 1000);
    ck_assert_int_eq(b.block, 1500);
    ck_assert_int_eq(count_blocks(FORM_MAP, &l, 1500 + 10, b, 0, 132), 250 + 500 + 10 * 4);
}
END_TEST

/* One step with n gradients x on the CPU and on the GPU; out has the parameters of both, `each`
 * bytes per element. */
static void step_on_both(const optc_rule_options *rule, const float *x, int64_t n,
                         void *const out[2], size_t each)
{
    for (int k = 0; k < 2; k++) {
        optc_engine *e;
        optc_rule *r;
        optc_binding *b;
        CUdeviceptr p = 0, g = 0;
        size_t bytes = (size_t)n * each, given = (size_t)n * sizeof *x;
        OK(optc_open(&(optc_engine_options){.device = k ? "cuda" : "cpu",
                                            .cache_dir = getenv("OPTC_TEST_CACHE")},
                     &e));
        OK(optc_compile(e, rule, &r));
        if (k)
            ck_assert(!d->cuMemAlloc_v2(&p, bytes) && !d->cuMemAlloc_v2(&g, given) &&
                      !d->cuMemcpyHtoDAsync_v2(g, x, given, NULL) && !d->cuStreamSynchronize(NULL));
        optc_tensor t = {.param = k ? (void *)(uintptr_t)p : out[0], .rank = 1, .shape = &n,
                         .grad = k ? (void *)(uintptr_t)g : (void *)(uintptr_t)x};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        OK(optc_sync(b));
        if (k)
            ck_assert(!d->cuMemcpyDtoHAsync_v2(out[1], p, bytes, NULL) &&
                      !d->cuStreamSynchronize(NULL) && !d->cuMemFree_v2(p) && !d->cuMemFree_v2(g));
        OK(optc_unbind(b));
        OK(optc_release(r));
        OK(optc_close(e));
    }
}

/* Every 16-bit pattern is stored as it was loaded. f32 values around each of them, and between two,
 * are rounded alike on both devices. Every NaN becomes 0x7fff. */
START_TEST(narrow)
{
    static const char *const types[] = {"bf16", "f16"};
    enum { N = 1 << 16, EACH = 5 };
    Type ty = (Type)type_by_name(types[_i]);
    const optc_rule_options rule = {
        .text =
            "return optimizer { name = 'x', hyper = { lr = 1 }, step = function() p = g * lr end }",
        .param = _i ? OPTC_F16 : OPTC_BF16,
        .grad = OPTC_F32};
    static float x[N * EACH];
    static unsigned short out[2][N * EACH];
    for (int i = 0; i < N; i++) {
        unsigned short h = (unsigned short)i, next = (unsigned short)(i + 1);
        float a = (float)type_load(ty, &h, 0), b = (float)type_load(ty, &next, 0),
              half = a / 2 + b / 2;
        const float v[EACH] = {a, nextafterf(a, INFINITY), half, nextafterf(half, INFINITY),
                               nextafterf(half, -INFINITY)};
        memcpy(x + i * EACH, v, sizeof v);
    }
    step_on_both(&rule, x, N * EACH, (void *const[]){out[0], out[1]}, sizeof *out[0]);
    for (int i = 0; i < N * EACH; i++) {
        ck_assert_msg(out[0][i] == out[1][i], "%a: %04x on the CPU, %04x on the GPU", (double)x[i],
                      out[0][i], out[1][i]);
        if (i % EACH == 0)
            ck_assert_int_eq(out[0][i], isnan(x[i]) ? 0x7fff : i / EACH);
    }
}
END_TEST

/* 1 / sqrt(x) of numbers of every sign and exponent, of zeros, infinities and NaNs. The GPU has a
 * function for it (templates/exact_cuda.h); the CPU divides by the root. */
START_TEST(reciprocal_roots)
{
    enum { N = 1 << 16 };
    const optc_rule_options rule = {.text = "return optimizer { name = 'x', hyper = { lr = 1 }, "
                                            "step = function() p = lr * rsqrt(g) end }"};
    static float x[N], out[2][N];
    for (unsigned i = 0; i < N; i++) {
        unsigned bits = i << 16 | (i % 3 ? i * 40503u % 65536 : i % 2 ? 65535 : 0);
        memcpy(&x[i], &bits, sizeof bits);
    }
    step_on_both(&rule, x, N, (void *const[]){out[0], out[1]}, sizeof *out[0]);
    for (int i = 0; i < N; i++)
        ck_assert_msg(!memcmp(&out[0][i], &out[1][i], 4) || (isnan(out[0][i]) && isnan(out[1][i])),
                      "1 / sqrt(%a): %a on the CPU, %a on the GPU", (double)x[i], (double)out[0][i],
                      (double)out[1][i]);
}
END_TEST

void add_small(TCase *t)
{
    tcase_add_test(t, reciprocal_roots);
    tcase_add_loop_test(t, few_elements, 0, 4);
    tcase_add_test(t, few_blocks);
    tcase_add_loop_test(t, narrow, 0, 2);
}

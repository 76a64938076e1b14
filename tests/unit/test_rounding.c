/* Stochastic rounding, bf16sr and f16sr: its mean is the value, numbers of the type never change,
 * and the bits depend on seed, step, tensor, array and element alone. */
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTC_FN static inline __attribute__((unused))
#include "templates/math.h"
#include "templates/math_f32.h"
#include "templates/math_f64.h"
#include "templates/random.h"
#include "templates/types.h"
#include "templates/rounding.h"

static const struct {
    optc_type t;
    Type plain;
    unsigned short (*to)(float, unsigned);
    unsigned infinite;
} sr[] = {{OPTC_BF16SR, T_BF16, optc_to_bf16sr, 0x7f80},
          {OPTC_F16SR, T_F16, optc_to_f16sr, 0x7c00}};

static double plain(int k, unsigned short code) { return type_load(sr[k].plain, &code, 0); }

/* Every number of the type stays at all random bits; NaN becomes the one NaN of the type. */
START_TEST(fixed_points)
{
    const unsigned every = thinned(1) ? 7 : 1;
    for (unsigned code = 0; code < 65536; code += every) {
        float x = (float)plain(_i, (unsigned short)code);
        for (unsigned i = 0; i < 6; i++) {
            unsigned bits = i < 5 ? i * 0x3fffu + i / 4 * 3 : (unsigned)splitmix(code) & 0xffffu;
            unsigned want = (code & 0x7fff) > sr[_i].infinite ? 0x7fff : code,
                     got = sr[_i].to(x, bits);
            ck_assert_msg(got == want, "0x%04x, bits 0x%04x: 0x%04x", code, bits, got);
        }
    }
}
END_TEST

/* Over all 65536 random bits the mean is the value: exactly, or within 2^-40 for denormals of f16.
 * Finite numbers beyond the largest become the largest. */
START_TEST(all_bits)
{
    static const float x[] = {1.001f,
                              -3.14159274f,
                              0x1.234566p-133f,
                              -0x1.8p-134f,
                              0x1.fdf123p127f,
                              1e-38f,
                              65503.9f,
                              -65472.5f,
                              0x1.56789ap-17f,
                              -0x1.fffffep-15f,
                              0x1p-26f,
                              0x1.abcdeep-24f,
                              0.3f};
    for (int i = 0; i < (int)(sizeof x / sizeof *x); i++) {
        double sum = 0, low = INFINITY, high = -INFINITY, most = type_info[sr[_i].plain].most;
        for (unsigned bits = 0; bits < 65536; bits++) {
            double y = plain(_i, sr[_i].to(x[i], bits));
            sum += y / 65536;
            low = fmin(low, y), high = fmax(high, y);
        }
        double off = fabs((double)x[i]) > most ? fabs((double)x[i]) - most : _i ? 0x1p-40 : 0;
        ck_assert_msg(isfinite(high) && isfinite(low) && low <= x[i] + off && high >= x[i] - off,
                      "%.9g: %.9g to %.9g", (double)x[i], low, high);
        ck_assert_msg(fabs(sum - x[i]) <= off, "%.9g: mean %.17g", (double)x[i], sum);
        for (unsigned bits = 0; bits < 65536; bits += 4369)
            ck_assert(fabs(plain(_i, sr[_i].to(0x1.fffffep127f, bits))) == most);
    }
}
END_TEST

/* ---- steps ---- */
static const char copies[] =
    "return optimizer { name = 'x', state = { m = zeros }, step = function() m = g p = g end }";

static void fill(Fixture *f, const float *x, int n)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            ((float *)f->g[k])[i] = x ? x[i % n] : (float)ref_value(k ? 0 : k, 1, i);
}

static void open_copies(Fixture *f, int k, const char *text, const TestShape *shape, int n,
                        bool evaluator)
{
    optc_engine_options o = {.threads = 1, .compiler = evaluator ? "" : NULL,
                             .cache_dir = evaluator ? "" : getenv("OPTC_TEST_CACHE")};
    fix_open(
        f, &o,
        &(optc_rule_options){.text = text, .param = sr[k].t, .grad = OPTC_F32, .state = sr[k].t},
        shape, n, NULL, 0);
    ck_assert(optc_rule_native(f->rule) == !evaluator);
}

/* The mean over 10,000 seeds is within four standard errors of the value. */
START_TEST(mean_over_seeds)
{
    if (thinned(1))                            /* about values, not about memory */
        return;
    enum { SEEDS = 10000, N = 8 };
    static const float x[2][N] = {
        {1.001f, -3.14159274f, 0x1.234566p-133f, -0x1.8p-134f, 0x1.fcf123p127f, 1e-38f, -0.7f,
         1e20f},
        {1.001f, -3.14159274f, 65490.0f, -65472.5f, 0x1.56789ap-17f, -0x1.2p-25f, 1e-7f, 0.3f}};
    static const TestShape shape[] = {{1, {N}}};
    double sum[N] = {0};
    Fixture f;
    open_copies(&f, _i, copies, shape, 1, false);
    fill(&f, x[_i], N);
    for (int seed = 0; seed < SEEDS; seed++) {
        OK(optc_set_hyper(f.binding, 0, "seed", seed));
        OK(optc_set_t(f.binding, -1, 0));
        OK(optc_step(f.binding));
        for (int i = 0; i < N; i++)
            sum[i] += type_load(sr[_i].plain, f.p[0], i) / SEEDS;
    }
    for (int i = 0; i < N; i++) {
        double v = x[_i][i], low = plain(_i, sr[_i].to(x[_i][i], 0)),
               high = plain(_i, sr[_i].to(x[_i][i], 0xffff)), share = (v - low) / (high - low),
               error = fabs(high - low) * sqrt(share * (1 - share) / SEEDS);
        ck_assert_msg(low != high && fabs(sum[i] - v) < 4 * error,
                      "%.9g: mean %.9g, standard error %.3g", v, sum[i], error);
    }
    fix_close(&f);
}
END_TEST

static int differ(const void *a, const void *b, int64_t n)
{
    int d = 0;
    for (int64_t i = 0; i < n; i++)
        d += ((const unsigned short *)a)[i] != ((const unsigned short *)b)[i];
    return d;
}

/* Tensors, arrays, steps and seeds have bits of their own; the same step again has the same
 * bits. */
START_TEST(streams)
{
    enum { N = 4096 };
    static const TestShape shape[] = {{1, {N}}, {1, {N}}};
    unsigned short first[N];
    optc_state_view m;
    Fixture f;
    open_copies(&f, _i, copies, shape, 2, false);
    fill(&f, NULL, 0);
    OK(optc_step(f.binding));
    memcpy(first, f.p[0], sizeof first);
    OK(optc_state(f.binding, 0, "m", &m));
    ck_assert_int_eq((int)m.type - 1, (int)sr[_i].plain);
    ck_assert_int_gt(differ(first, m.data, N), N / 4);
    ck_assert_int_gt(differ(first, f.p[1], N), N / 4);
    OK(optc_step(f.binding));
    ck_assert_int_gt(differ(first, f.p[0], N), N / 4);
    for (int seed = 0; seed < 2; seed++) {
        OK(optc_set_t(f.binding, -1, 0));
        OK(optc_set_hyper(f.binding, 0, "seed", 1 - seed));
        OK(optc_step(f.binding));
        int d = differ(first, f.p[0], N);
        ck_assert_msg(seed ? d == 0 : d > N / 4, "seed %d: %d differ", 1 - seed, d);
    }
    fix_close(&f);
}
END_TEST

/* Stages of every form, threads, vector levels and the evaluator: the same bits. p and m are copies
 * of g, so they show the rounding alone. */
static const char *const forms[] = {
    "step = function() m = g p = g end",
    "state = { m = zeros, s = zeros 'tensor' }, step = function() s = sum(g) m = g p = g end",
    "state = { m = zeros, r = zeros 'row' }, matrix = function() r = rowsum(g) m = g p = g end",
    "state = { m = zeros, c = zeros 'col' }, matrix = function() c = colsum(g) m = g p = g end",
    "state = { m = zeros, r = zeros 'row' }, matrix = function() r = r + 0 m = g p = where(lt(r, "
    "1), g, 0) end",
};

START_TEST(same_bits)
{
    if (thinned(_i))
        return;
    static const TestShape shape[] = {
        {2, {67, 301}}, {2, {300, 5}}, {1, {4097}}, {0, {0}}, {3, {3, 33, 65}}};
    char text[400];
    const char *body = forms[_i / 2];
    snprintf(text, sizeof text, "return optimizer { name = 'x', %s%s }",
             strstr(body, "state") ? "" : "state = { m = zeros }, ", body);
    if (!strstr(body, "step"))
        snprintf(text + strlen(text) - 2, 60, ", step = function() m = g p = g end }");
    Fixture want, f;
    open_copies(&want, _i % 2, text, shape, 5, true);
    fill(&want, NULL, 0);
    OK(optc_step(want.binding));
    OK(optc_step(want.binding));
    /* all levels for one form, with vector code: each is another compilation */
    if (_i / 2 == 2)
        unsetenv("OPTC_CFLAGS");
    for (int isa = _i / 2 == 2 ? 0 : -1; isa < (_i / 2 == 2 ? optc_isas() : 0); isa++) {
        optc_engine_options o = {.threads = 1 + (isa & 1), .cache_dir = getenv("OPTC_TEST_CACHE")};
        o.isa = isa < 0 ? NULL : optc_isa_name(isa);
        if (isa >= 0 && !optc_isa_usable(isa))
            continue;
        fix_open(&f, &o, &(optc_rule_options){.text = text, .param = sr[_i % 2].t, .grad = OPTC_F32,
                                              .state = sr[_i % 2].t}, shape, 5, NULL, 0);
        fill(&f, NULL, 0);
        OK(optc_step(f.binding));
        OK(optc_step(f.binding));
        for (int k = 0; k < 5; k++) {
            optc_state_view a, b;
            OK(optc_state(want.binding, k, "m", &a));
            OK(optc_state(f.binding, k, "m", &b));
            ck_assert_msg(!differ(want.p[k], f.p[k], f.count[k]) &&
                              !differ(a.data, b.data, f.count[k]),
                          "%s, %s, tensor %d: %d and %d of %d differ", body, o.isa ? o.isa : "", k,
                          differ(want.p[k], f.p[k], f.count[k]), differ(a.data, b.data, f.count[k]),
                          (int)f.count[k]);
        }
        fix_close(&f);
    }
    fix_close(&want);
}
END_TEST

/* Pieces that begin anywhere have the bits of the whole. */
START_TEST(pieces)
{
    enum { N = 1000 };
    static const int64_t cut[] = {0, 3, 3, 140, 141, 777, N};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    unsigned short p[2][N];
    float g[N];
    int64_t whole[] = {N};
    memset(p, 0, sizeof p);
    for (int i = 0; i < N; i++)
        g[i] = (float)ref_value(1, 0, i);
    OK(optc_open(&(optc_engine_options){.cache_dir = _i / 2 ? "" : getenv("OPTC_TEST_CACHE"),
                                        .compiler = _i / 2 ? "" : NULL}, &e));
    OK(optc_compile(
        e, &(optc_rule_options){.text = copies, .param = sr[_i % 2].t, .grad = OPTC_F32}, &r));
    for (int k = 0; k < 7; k++) {                          /* the last is the whole */
        int64_t at = k < 6 ? cut[k] : 0, n = k < 6 ? cut[k + 1] - cut[k] : N;
        optc_tensor t = {.param = p[k == 6] + at,
                         .param_type = (optc_type)(sr[_i % 2].plain + 1),
                         .grad = g + at,
                         .rank = 1,
                         .shape = &n,
                         .global_shape = k < 6 ? whole : NULL,
                         .offset = k < 6 ? &at : NULL};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        OK(optc_step(b));
        OK(optc_unbind(b));
    }
    ck_assert_int_eq(differ(p[0], p[1], N), 0);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* What cannot be rounded so is refused by name; tensors of the plain type bind, others do not. */
START_TEST(refusals)
{
    static const struct { const char *body, *says; optc_type grad;
    } bad[] = {
        {"step = function() p = g end", "grad=bf16sr: gradients are only read", OPTC_BF16SR},
        {"state = { r = zeros('row', 'f16sr') }, matrix = function() r = rowsum(g) p = p - r end, "
         "step = function() "
         "p = g end",
         "state 'r' has a value per row", OPTC_F32},
        {"state = { m = zeros('elem', 'bf16') }, step = function() p = p + g m = stored 'p' end",
         "rounds stochastically", OPTC_F32}};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    char text[300];
    OK(optc_open(&(optc_engine_options){.cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "return optimizer { name = 'x', %s }", bad[i].body);
        FAILS(optc_compile(
                  e, &(optc_rule_options){.text = text, .param = OPTC_BF16SR, .grad = bad[i].grad},
                  &r),
              OPTC_ERROR_SPEC, bad[i].says);
    }
    OK(optc_compile(e, &(optc_rule_options){.text = copies, .param = OPTC_BF16SR}, &r));
    ck_assert_int_eq((int)r->program->g, (int)T_BF16);
    ck_assert_int_eq((int)r->program->array[0].type, (int)T_BF16SR);
    unsigned short p[4] = {0}, g[4] = {0};
    int64_t n = 4;
    optc_tensor t = {.param = p,
                     .grad = g,
                     .rank = 1,
                     .shape = &n,
                     .param_type = OPTC_F16,
                     .grad_type = OPTC_BF16};
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "(bf16sr)");
    for (int i = 0; i < 2; i++) {
        t.param_type = i ? OPTC_BF16 : OPTC_BF16SR;
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_unbind(b));
    }
    OK(optc_release(r));
    /* a rule that draws has one seed for both */
    snprintf(text, sizeof text,
             "return optimizer { name = 'x', step = function() p = p + random() end }");
    OK(optc_compile(e, &(optc_rule_options){.text = text, .param = OPTC_F16SR}, &r));
    ck_assert_int_eq(r->program->nhyper, 1);
    ck_assert_str_eq(r->program->hyper[0].name, "seed");
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *rounding_suite(void)
{
    Suite *s = suite_create("rounding");
    TCase *t = tcase_create("rounding");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, fixed_points, 0, 2);
    tcase_add_loop_test(t, all_bits, 0, 2);
    tcase_add_loop_test(t, mean_over_seeds, 0, 2);
    tcase_add_loop_test(t, streams, 0, 2);
    tcase_add_loop_test(t, same_bits, 0, 2 * (int)(sizeof forms / sizeof *forms));
    tcase_add_loop_test(t, pieces, 0, 4);
    tcase_add_test(t, refusals);
    suite_add_tcase(s, t);
    return s;
}

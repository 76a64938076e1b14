/* Norms and rms of every domain over the whole range of f32 and f64, and rules of the library that
 * divide by them. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { ROWS = 5, COLS = 131, N = ROWS * COLS };
typedef enum { OF_TENSOR, OF_ROW, OF_COL } Of;

/* State sK holds at every element the value of its tensor, row or column. */
static const struct { const char *value; Of of; bool mean;
} cases[] = {{"norm(g)", OF_TENSOR, false},          {"rms(g)", OF_TENSOR, true},
             {"slice.norm(g)", OF_TENSOR, false},    {"slice.rms(g)", OF_TENSOR, true},
             {"rownorm(g)", OF_ROW, false},          {"rowrms(g)", OF_ROW, true},
             {"colnorm(g)", OF_COL, false},          {"colrms(g)", OF_COL, true},
             {"global.norm(g)", OF_TENSOR, false},   {"global.rms(g)", OF_TENSOR, true},
             {"norm(rownorm(g))", OF_TENSOR, false}, {"norm(colnorm(g))", OF_TENSOR, false}};
enum { NCASES = sizeof cases / sizeof *cases };

static char *spec_text(void)
{
    char *s = format("return optimizer { name = 'ranged', state = {"), *t;
    for (int k = 0; k < NCASES; k++, free(s), s = t)
        t = format("%s s%d = zeros,", s, k);
    t = format("%s }, step = function() p = g", s);
    free(s), s = t;
    for (int k = 0; k < NCASES; k++, free(s), s = t)
        t = format("%s s%d = 0 * g + %s", s, k, cases[k].value);
    t = format("%s end }", s);
    free(s);
    return t;
}

static long double expected(Of of, bool mean, const double *g, int at)
{
    long double sum = 0;
    int count = 0;
    for (int i = 0; i < N; i++) {
        bool in = of == OF_TENSOR || (of == OF_COL ? i % COLS == at % COLS : i / COLS == at / COLS);
        sum += in ? (long double)g[i] * g[i] : 0;
        count += in;
    }
    return sqrtl(mean ? sum / count : sum);
}

static double number(const void *x, bool wide, int i)
{
    return wide ? ((const double *)x)[i] : ((const float *)x)[i];
}

/* Within the rounding of a result in the type and of the sum in f64 (plan.h: at most 48 additions
 * deep). Below the normal numbers, within their spacing; beyond the largest, infinite. */
static void check_state(optc_binding *b, int k, const double *g, bool wide)
{
    const long double eps = wide ? 60 * 0x1p-53L : 3 * 0x1p-24L,
                      least = wide ? 0x1p-1074L : 0x1p-149L,
                      most = wide ? 0x1.fffffffffffffp1023L : 0x1.fffffep127L;
    optc_state_view v;
    char name[8];
    snprintf(name, sizeof name, "s%d", k);
    OK(optc_state(b, 0, name, &v));
    for (int i = 0; i < N; i++) {
        long double want = expected(cases[k].of, cases[k].mean, g, i),
                    got = number(v.data, wide, i);
        bool good = want > most ? isinf(got) : fabsl(got - want) <= eps * want + 2 * least;
        ck_assert_msg(good, "%s of gradients like %g: %.9Lg at %d, not %.9Lg", cases[k].value, g[0],
                      got, i, want);
    }
}

/* Some values are far smaller than others: they must not be lost and must not dominate. */
static double gradient(int i, double size) { return size * (i % 7 == 3 ? 1e-9 : 1) * (1 + i % 3); }

START_TEST(norms)
{
    static const double sizes[2][12] = {
        {1, 1e-45, 1e-40, 1e-37, 1e-28, 1e-20, 1e15, 1e19, 1e20, 1e30, 1e37, 1e38},
        {1, 1e-320, 1e-300, 1e-200, 1e-160, 1e-100, 1e100, 1e150, 1e155, 1e200, 1e300, 1e307}};
    static union { float f[N]; double d[N]; } p, g;
    static double wide_g[N];
    bool wide = _i;
    char *text = spec_text();
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text, .param = wide ? OPTC_F64 : OPTC_F32},
                    &r));
    for (int s = 0; s < COUNT(sizes[0]); s++) {
        optc_tensor t = {.param = &p, .grad = &g, .rank = 2, .shape = (int64_t[]){ROWS, COLS}};
        optc_binding *b;
        for (int i = 0; i < N; i++) {
            double x = gradient(i, sizes[_i][s]);
            wide_g[i] = wide ? (g.d[i] = x) : (g.f[i] = (float)x);
        }
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        for (int k = 0; k < NCASES; k++)
            check_state(b, k, wide_g, wide);
        OK(optc_unbind(b));
    }
    OK(optc_release(r));
    OK(optc_close(e));
    free(text);
}
END_TEST

/* Folds of an array over two axes, in several storage types. */
START_TEST(norms_of_arrays)
{
    static const double size[] = {1e25, 1e-30};
    /* the second never changes its states: only a fold reads them */
    static const char *const texts[] = {"return optimizer { name = 'arrays', hyper = { x = 1 }, "
                                        "state = { L = eye(x, 'rows'), R = eye(x, 'rows') },\n"
                                        "  step = function() p = g end, matrix = function() L, R = "
                                        "0.5 * L, 0.5 * R  p = rownorm(L) + colnorm(R).T + 0 "
                                        "* g end }",
                                        "return optimizer { name = 'arrays', hyper = { x = 1 }, "
                                        "state = { L = eye(x, 'rows'), R = eye(x, 'rows') },\n"
                                        "  step = function() p = g end, matrix = function() L, R = "
                                        "1 * L, 1 * R  p = 0.5 * (rownorm(L) + colnorm(R).T) "
                                        "+ 0 * g end }"};
    optc_engine *e;
    optc_rule *r;
    float p[ROWS * ROWS], g[ROWS * ROWS] = {0};
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.text = texts[_i]}, &r));
    for (int s = 0; s < COUNT(size); s++) {
        optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = (int64_t[]){ROWS, ROWS}};
        optc_group all = {
            .tensors = &t, .ntensors = 1, .hyper = (optc_setting[]){{"x", size[s]}}, .nhyper = 1};
        optc_binding *b;
        OK(optc_bind(r, &all, 1, &b));
        OK(optc_step(b));
        for (int i = 0; i < ROWS * ROWS; i++)
            ck_assert_msg(fabs(p[i] / size[s] - 1) < 1e-6, "%g at %d, not %g", (double)p[i], i,
                          size[s]);
        OK(optc_unbind(b));
    }
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Rules whose step does not depend on the size of the gradient, on gradients of sizes 1 and `size`:
 * the steps are equal except for rounding. Powers of two keep every direction exact. */
static const struct { const char *rule; double size; } rules[] = {
    {"dion", 0x1p70},     {"lars", 0x1p70},
    {"sgd+clip(1)", 0x1p70},     {"sgd+clip(1)", 0x1p100},       {"muon", 0x1p100},
    {"muon", 0x1p-120},          {"novograd", 0x1p70},           {"novograd", 0x1p120},
    {"adafactor:torch=true", 0x1p40},                            {"adafactor:torch=true", 0x1p-40},
    {"lion+galore(4)", 0x1p100}, {"lion+galore(4)", 0x1p-100},   {"lion+fira(4)", 0x1p66}};

/* rule: NAME or NAME:OPTIONS */
static void compile_named(optc_engine *e, const char *rule, optc_rule **r)
{
    char name[64];
    snprintf(name, sizeof name, "%s", rule);
    char *options = strchr(name, ':');
    if (options)
        *options++ = 0;
    OK(optc_compile(e, &(optc_rule_options){.spec = name, .options = options}, r));
}

static void step_rule(optc_rule *r, double size, int steps, float *p)
{
    float g[16 * 24];
    optc_binding *b;
    for (int i = 0; i < 16 * 24; i++)
        p[i] = (float)ref_value(0, 0, i), g[i] = (float)(size * ref_value(0, 1, i));
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = (int64_t[]){16, 24}};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    for (int k = 0; k < steps; k++)
        OK(optc_step(b));
    OK(optc_unbind(b));
}

static void take_steps(const char *rule, double size, int steps, float *p)
{
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    compile_named(e, rule, &r);
    step_rule(r, size, steps, p);
    OK(optc_release(r));
    OK(optc_close(e));
}

START_TEST(steps)
{
    float p[16 * 24], q[16 * 24];
    double far = 0, moved = 0;
    take_steps(rules[_i].rule, 64, 1, p);
    take_steps(rules[_i].rule, rules[_i].size, 1, q);
    for (int i = 0; i < 16 * 24; i++) {
        far = fmax(far, fabs((double)p[i] - q[i]));
        moved = fmax(moved, fabs(q[i] - ref_value(0, 0, i)));
    }
    ck_assert_msg(moved > 1e-5 && far <= 1e-3 * moved,
                  "%s on gradients like %g moves by %g, off by %g", rules[_i].rule, rules[_i].size,
                  moved, far);
}
END_TEST

/* ASGO's ridge decides the direction for tiny gradients, but must not decide the length of the
 * step. */
START_TEST(lengths)
{
    float p[16 * 24], q[16 * 24];
    double far[2] = {0};
    take_steps("asgo", 64, 1, p);
    take_steps("asgo", 1e-28, 1, q);
    for (int i = 0; i < 16 * 24; i++) {
        far[0] = fmax(far[0], fabs(p[i] - ref_value(0, 0, i)));
        far[1] = fmax(far[1], fabs(q[i] - ref_value(0, 0, i)));
    }
    ck_assert_msg(far[1] > far[0] / 3 && far[1] < 3 * far[0],
                  "a step of %g on gradients like 1e-28, of %g on large ones", far[1], far[0]);
}
END_TEST

/* Rules that divide second moments by themselves: beyond the range of their squares a step may be
 * 0, but is finite. */
START_TEST(stays_finite)
{
    static const char *const names[] = {"lamb", "adamp"};
    float p[16 * 24];
    take_steps(names[_i % 2], _i / 2 ? 1e25 : 1e-25, 3, p);
    for (int i = 0; i < 16 * 24; i++)
        ck_assert_msg(isfinite(p[i]), "%s: p is %g", names[_i % 2], (double)p[i]);
}
END_TEST

/* AdamP's cosines and projections, where products of two norms leave the range of f32. The rows of
 * the first case have a cosine of 0.05, which is too large for a projection: weight decay is then
 * full. Those of the second are orthogonal: the update loses its component along them. */
START_TEST(adamp_norms)
{
    enum { AMP_ROWS = 8, AMP_COLS = 24, AMP_N = AMP_ROWS * AMP_COLS };
    static const struct { float p[2], g[2]; double eps, weight_decay; } of[] = {
        {{1e20f, 0}, {5e17f, 1e19f}, 1e-8, 1}, {{1e-25f, 2e-25f}, {2, -1}, 1e-33, 0}};
    float p[AMP_N] = {0}, g[AMP_N] = {0};
    for (int i = 0; i < AMP_N; i += AMP_COLS)
        for (int k = 0; k < 2; k++)
            p[i + k] = of[_i].p[k], g[i + k] = of[_i].g[k];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = (int64_t[]){AMP_ROWS, AMP_COLS}};
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamp"}, &r));
    OK(optc_bind(r,
                 &(optc_group){.tensors = &t,
                               .ntensors = 1,
                               .nhyper = 3,
                               .hyper = (optc_setting[]){{"lr", 0.1},
                                                         {"eps", of[_i].eps},
                                                         {"weight_decay", of[_i].weight_decay}}},
                 1, &b));
    OK(optc_step(b));
    if (_i == 0) {
        ck_assert_msg(fabs(p[0] / 1e20 - 0.9) < 1e-6, "p is %g", (double)p[0]);
    /* u = (1, -1); less its part along (1, 2), which is -1/5 of (1, 2) */
    } else {
        ck_assert_msg(fabs(p[0] + 0.1 * 1.2) < 1e-6, "p is %g", (double)p[0]);
        ck_assert_msg(fabs(p[1] - 0.1 * 0.6) < 1e-6, "p is %g", (double)p[1]);
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Rules of the library on gradients of all sizes: the built-in ones, those in the table, and a
 * third of the others (OPTC_ALL: all). Rules in the table become NaN from a size on, as their heads
 * state; all others stay finite, and most elements move at 1e15. */
static const struct { const char *rule; double nan_from;
} leaves[] = {{"adafactor", 1e19}, {"adafactor:torch=true", 1e19},
              {"adalomo", 1e19},   {"came", 1e19},
              {"klshampoo", 1e19}, {"psgd", 1e19},
              {"psgd_kron", 1e19}, {"soap", 1e19},
              {"adai", 1e30},      {"ftrl", 1e30}};

static bool is_in_table(const char *rule)
{
    for (int k = 0; k < COUNT(leaves); k++)
        if (!strcmp(leaves[k].rule, rule))
            return true;
    return false;
}

static void check_sizes(optc_engine *e, const char *rule)
{
    static const double size[] = {1e-30, 1e-20, 1e15, 1e19, 1e30};
    float p[16 * 24];
    double nan_from = INFINITY;
    optc_rule *r;
    compile_named(e, rule, &r);
    for (int k = 0; k < COUNT(leaves); k++)
        nan_from = strcmp(leaves[k].rule, rule) ? nan_from : leaves[k].nan_from;
    for (int s = 0; s < COUNT(size); s++) {
        int finite = 0, moved = 0;
        step_rule(r, size[s], 2, p);
        for (int i = 0; i < 16 * 24; i++) {
            finite += isfinite(p[i]) != 0;
            moved += p[i] != (float)ref_value(0, 0, i);
        }
        ck_assert_msg((finite == 16 * 24) == (size[s] < nan_from),
                      "%s on gradients like %g: %d of %d are finite", rule, size[s], finite,
                      16 * 24);
        /* one makes no step until its factor is defined, the other one until its ring of ten
         * gradients is full */
        bool waits = !strcmp(rule, "schedulefree_radam") || !strcmp(rule, "adashift");
        ck_assert_msg(size[s] != 1e15 || moved > 16 * 12 || waits,
                      "%s on gradients like 1e15 moves %d of %d", rule, moved, 16 * 24);
    }
    OK(optc_release(r));
}

START_TEST(all_rules)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    for (int i = 0; i < optc_library_size(); i++) {
        const char *rule = optc_library_name(i);
        bool was_nan = !strcmp(rule, "dadapt_adan");               /* by squares that overflowed */
        if (!strchr(rule, '/') && (is_in_table(rule) || was_nan || sampled_rule(rule, 3)))
            check_sizes(e, rule);
    }
    check_sizes(e, "adafactor:torch=true");
    OK(optc_close(e));
}
END_TEST

/* Element 3 has one gradient whose square overflows f32; all others are ordinary. Its second moment
 * stays infinite and the weights stay finite; a "lerp" of two infinities was NaN once. RAdam,
 * AdaBelief and AdaBound move by the momentum alone. */
static const struct { const char *rule, *moment; bool moves;
} adams[] = {{"adam", "v", false},     {"adamw", "v", false},
             {"nadam", "v", false},    {"radam", "v", true},
             {"rmsprop", "v", false},  {"adagrad", "v", false},
             {"adadelta", "v", false}, {"adan", "n", false},
             {"ademamix", "v", false}, {"adabelief", "s", true},
             {"adabound", "v", true},  {"yogi", "v", false},
             {"adopt", "v", false},    {"adopt:clip=false", "v", false},
             {"lamb", "v", false},     {"adamp", "v", false},
             {"came", "v", false}};

START_TEST(infinite_moments)
{
    float p[40], g[40];
    double v[40];
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = (int64_t[]){40}};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    compile_named(e, adams[_i].rule, &r);
    for (int i = 0; i < 40; i++)
        p[i] = (float)ref_value(0, 0, i), g[i] = (float)ref_value(0, 1, i);
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    for (int k = 0; k < 5; k++) {
        g[3] = k == 0 || k == 3 ? 1e35f : 0.5f;
        OK(optc_step(b));
    }
    OK(optc_state_read(b, 0, adams[_i].moment, v, 40));
    for (int i = 0; i < 40; i++)
        ck_assert_msg(isfinite(p[i]) && isinf(v[i]) == (i == 3), "%s: p is %g, %s is %g at %d",
                      adams[_i].rule, (double)p[i], adams[_i].moment, v[i], i);
    ck_assert_msg(adams[_i].moves || fabs(p[3] - ref_value(0, 0, 3)) < 1e-2, "%s moves by %g",
                  adams[_i].rule, p[3] - ref_value(0, 0, 3));
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Rules that tell when second moments leave the range. A matrix of 1e17 has squares in range, and
 * so have the sums of its rows; those of its columns are not, which the step after tells. Tensors
 * without elements are in range. */
static const struct {
    const char *rule, *options;
    int rows, cols;
    double size;
    int expected[2];
} ranges[] = {{"adafactor", "", 16, 24, 1, {0, 0}},
              {"adafactor", "", 16, 24, 1e18, {0, 0}},
              {"adafactor", "", 16, 24, 1e20, {1, 1}},
              {"adafactor", "", 70000, 2, 1e17, {0, 1}},
              {"adafactor", "", 1, 100, 1e18, {0, 0}},
              {"adafactor", "", 1, 100, 1e20, {1, 1}},
              {"adafactor", "torch=true", 16, 24, 1, {0, 0}},
              {"adafactor", "torch=true", 16, 24, 1e20, {1, 1}},
              {"adafactor", "torch=true", 1, 100, 1e20, {1, 1}},
              {"adafactor", "", 1, 0, 1, {0, 0}},
              {"adafactor", "", 4, 0, 1, {0, 0}},
              {"novograd", "", 16, 24, 1, {0, 0}},
              {"novograd", "", 16, 24, 1e37, {0, 0}},
              {"novograd", "", 16, 24, INFINITY, {1, 1}},
              {"psgd", "", 16, 24, 1, {0, 0}},
              {"psgd", "", 16, 24, 1e15, {0, 0}},
              {"psgd", "", 16, 24, 1e20, {1, 1}},
              {"psgd", "", 8, 48, 1e15, {0, 0}},
              {"psgd", "", 48, 8, 1e15, {0, 0}},
              {"psgd", "", 8, 48, 1e20, {1, 1}},
              {"psgd", "", 4, 0, 1, {0, 0}},
              {"psgd_kron", "", 4, 0, 1, {0, 0}},
              {"novograd", "", 4, 0, 1, {0, 0}},
              {"psgd_kron", "", 16, 24, 1, {0, 0}},
              {"psgd_kron", "", 16, 24, 1e20, {1, 1}}};

START_TEST(out_of_range)
{
    const int n = ranges[_i].rows * ranges[_i].cols;
    float *p = calloc((size_t)n, sizeof *p), *g = calloc((size_t)n, sizeof *g);
    optc_tensor t = {.param = p,
                     .grad = g,
                     .rank = ranges[_i].rows > 1 ? 2 : 1,
                     .shape = ranges[_i].rows > 1 ? (int64_t[]){ranges[_i].rows, ranges[_i].cols}
                                                  : (int64_t[]){n}};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    double count;
    for (int i = 0; i < n; i++)
        p[i] = (float)ref_value(0, 0, i), g[i] = (float)(ranges[_i].size * (1 + i % 3));
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = ranges[_i].rule, .options = ranges[_i].options},
                    &r));
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    for (int k = 0; k < 2; k++) {
        OK(optc_step(b));
        OK(optc_read_value(b, 0, "out_of_range", &count, 1));
        ck_assert_msg(count == ranges[_i].expected[k],
                      "%s, %d x %d of %g: %g out of range at step %d", ranges[_i].rule,
                      ranges[_i].rows, ranges[_i].cols, ranges[_i].size, count, k + 1);
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
    free(p);
    free(g);
}
END_TEST

Suite *range_suite(void)
{
    Suite *s = suite_create("range");
    TCase *c = tcase_create("norms");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, norms, 0, 2);
    tcase_add_loop_test(c, norms_of_arrays, 0, 2);
    tcase_add_loop_test(c, steps, 0, COUNT(rules));
    tcase_add_test(c, lengths);
    tcase_add_loop_test(c, stays_finite, 0, 4);
    tcase_add_loop_test(c, adamp_norms, 0, 2);
    tcase_add_test(c, all_rules);
    tcase_add_loop_test(c, infinite_moments, 0, COUNT(adams));
    tcase_add_loop_test(c, out_of_range, 0, COUNT(ranges));
    suite_add_tcase(s, c);
    return s;
}

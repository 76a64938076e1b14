/* Orthogonal factors against their iteration by plain loops, at all scales; states that start as a
 * diagonal; fallback rules. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { MOST = 9 };

static const TestShape shapes[] =
    {{2, {5, 7}}, {2, {7, 5}}, {3, {2, 3, 4}}, {2, {1, 9}}, {2, {9, 1}}, {2, {4, 4}}, {2, {2, 2}}};
enum { NSHAPE = 7 };
static int slices_of(const TestShape *s) { return s->rank == 3 ? (int)s->dim[0] : 1; }
static int rows_of(const TestShape *s) { return (int)s->dim[s->rank - 2]; }
static int cols_of(const TestShape *s) { return (int)s->dim[s->rank - 1]; }
static double grad_at(int tensor, int64_t i)
{
    return ref_value(tensor, 1, i) + 0.125 * (double)(i % 3);
}

/* ---- polar ---- */
typedef struct { double a, b, c; } Triple;
static const Triple jordan[] = {{3.4445, -4.7750, 2.0315}};
static const Triple own[] = {{2, -1.5, 0.5}, {1.5, -0.5, 0}};
static const Triple cans[] = {{8.4703, -25.1081, 18.6293},
                              {4.1828, -3.1087, 0.5806},
                              {3.9619, -2.9541, 0.5630},
                              {3.2866, -2.4647, 0.5074},
                              {2.2737, -1.6447, 0.4162}};
static const Triple turbo[] = {{4.0098, -7.0585, 2.4635},
                               {3.4585, -5.5479, 2.5959},
                               {2.7573, -3.2939, 1.4254},
                               {2.7215, -3.0494, 1.3169}};
static const Triple express[] = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                 {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                 {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                 {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                 {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
                                 {1.875, -1.25, 0.375}};
/* safety: for all steps except those of the last triple, if there are several triples */
static const struct {
    const char *name, *options;
    const Triple *t;
    int n, steps;
    double safety;
} polars[] = {
    {"j5", "", jordan, 1, 5, 1},
    {"j0", ", { steps = 0 }", jordan, 1, 5, 1},
    {"t0", ", { coefficients = 'turbo', steps = 0 }", turbo, 4, 4, 1},
    {"j1", ", { steps = 1, form = 'gram' }", jordan, 1, 1, 1},
    {"j2", ", { steps = 2, form = 'gram' }", jordan, 1, 2, 1},
    {"j6", ", { steps = 6, form = 'gram' }", jordan, 1, 6, 1},
    {"e5", ", { coefficients = 'polar_express' }", express, 6, 5, 1.01},
    {"e8", ", { coefficients = 'polar_express', steps = 8, safety = 1.05, form = 'gram' }", express,
     6, 8, 1.05},
    {"c5", ", { coefficients = 'cans' }", cans, 5, 5, 1},
    {"t4", ", { coefficients = 'turbo' }", turbo, 4, 4, 1},
    {"t5", ", { coefficients = 'turbo', steps = 5, form = 'gram' }", turbo, 4, 5, 1},
    {"o3", ", { coefficients = { { 2, -1.5, 0.5 }, { 1.5, -0.5, 0 } }, steps = 3 }", own, 2, 3, 1},
    {"e14", ", { coefficients = 'polar_express', steps = 14 }", express, 6, 14, 1.01},
};

typedef struct { int n, k; double v[MOST][MOST]; } Mat;

static Mat turned(const Mat *x)
{
    Mat y = {.n = x->k, .k = x->n};
    for (int i = 0; i < y.n; i++)
        for (int j = 0; j < y.k; j++)
            y.v[i][j] = x->v[j][i];
    return y;
}

static Mat times(const Mat *x, const Mat *y)
{
    Mat z = {.n = x->n, .k = y->k};
    for (int i = 0; i < z.n; i++)
        for (int j = 0; j < z.k; j++)
            for (int k = 0; k < x->k; k++)
                z.v[i][j] += x->v[i][k] * y->v[k][j];
    return z;
}

/* By the Frobenius norm, or by the row sums of the Gram matrix. */
static void normalise(Mat *x, bool by_sums, double safety)
{
    double all = 0, sum[MOST];
    Mat t = turned(x), a = times(x, &t);
    for (int i = 0; i < x->n; i++) {
        sum[i] = 0;
        for (int j = 0; j < x->k; j++)
            all += x->v[i][j] * x->v[i][j];
        for (int j = 0; j < x->n; j++)
            sum[i] += fabs(a.v[i][j]);
    }
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < x->k; j++)
            x->v[i][j] /= by_sums ? sqrt(sum[i]) : safety * sqrt(all);
}

static Mat polar_by_loops(Mat x, int which)
{
    bool tall = x.n > x.k;
    double s = polars[which].safety;
    x = tall ? turned(&x) : x;
    normalise(&x, polars[which].t == turbo, s);
    for (int step = 0; step < polars[which].steps; step++) {
        int last = polars[which].n - 1, at = step < last ? step : last;
        Triple c = polars[which].t[at];
        double k = at < last || !last ? s : 1;
        Mat t = turned(&x), a = times(&x, &t), aa = times(&a, &a), y = x;
        for (int i = 0; i < a.n; i++)
            for (int j = 0; j < a.k; j++)
                a.v[i][j] = c.b / pow(k, 3) * a.v[i][j] + c.c / pow(k, 5) * aa.v[i][j];
        t = times(&a, &x);
        for (int i = 0; i < x.n; i++)
            for (int j = 0; j < x.k; j++)
                x.v[i][j] = c.a / k * y.v[i][j] + t.v[i][j];
    }
    return tall ? turned(&x) : x;
}

static char *spec_of_polars(int from, int to)
{
    Buf b = {0};
    buf_puts(
        &b, "return optimizer {\n name = 'polars', view = 'last',\n state = { D = zeros 'tensor',");
    for (int i = from; i < to; i++)
        buf_printf(&b, " %s = zeros,", polars[i].name);
    buf_puts(&b, " },\n step = function() p = p - g end,\n matrix = function()\n");
    for (int i = from; i < to; i++)
        buf_printf(&b, "  %s = polar(g%s)\n", polars[i].name, polars[i].options);
    buf_puts(&b, "  D = D + 1 p = p - polar(g.T).T\n end }\n");
    return buf_take(&b);
}

START_TEST(polar_is_its_iteration)
{
    enum { N = COUNT(polars) };
    char *text = spec_of_polars(0, N);
    Fixture f;
    optc_engine_options eo = {.compiler = "", .cache_dir = "", .threads = 1};
    optc_rule_options ro = {
        .spec = "polars.lua", .text = text, .param = OPTC_F64, .grad = OPTC_F64, .state = OPTC_F64};
    fix_open(&f, &eo, &ro, shapes, NSHAPE, NULL, 0);
    for (int t = 0; t < NSHAPE; t++)
        for (int i = 0; i < f.count[t]; i++)
            ((double *)f.g[t])[i] = grad_at(t, i);
    OK(optc_step(f.binding));
    for (int t = 0; t < NSHAPE; t++)
        for (int w = 0; w < N; w++) {
            double got[2 * MOST * MOST], off = 0;
            OK(optc_state_read(f.binding, t, polars[w].name, got, f.count[t]));
            for (int s = 0; s < slices_of(&shapes[t]); s++) {
                Mat x = {.n = rows_of(&shapes[t]), .k = cols_of(&shapes[t])};
                for (int i = 0; i < x.n * x.k; i++)
                    x.v[i / x.k][i % x.k] = grad_at(t, s * x.n * x.k + i);
                Mat want = polar_by_loops(x, w), wt = turned(&want),
                    one = x.n <= x.k ? times(&want, &wt) : times(&wt, &want);
                for (int i = 0; i < x.n * x.k; i++)
                    off = fmax(off, fabs(got[s * x.n * x.k + i] - want.v[i / x.k][i % x.k]));
                for (int i = 0; i < one.n * one.n && !strcmp(polars[w].name, "e14"); i++)
                    ck_assert_msg(fabs(one.v[i / one.n][i % one.n] - (i / one.n == i % one.n)) <
                                      1e-9,
                                  "after 14 steps it is not orthogonal");
            }
            ck_assert_msg(off < 1e-8, "%s of %d x %d is off by %g", polars[w].name,
                          rows_of(&shapes[t]), cols_of(&shapes[t]), off);
        }
    fix_close(&f);
    free(text);
}
END_TEST

/* Compiled, in f32: tiny, huge, zero and NaN matrices. */
START_TEST(polar_at_all_scales)
{
    static const char text[] = "return optimizer { name = 'x', step = function() p = p - g end, "
                               "matrix = function() p = polar(g) end }";
    static const double scale[] = {1, 1e-30, 1e30, 1e-38, 0, NAN, INFINITY};
    enum { N = COUNT(scale) };
    TestShape shape[2 * N];
    Fixture f;
    for (int t = 0; t < 2 * N; t++)
        shape[t] = t % 2 ? (TestShape){2, {6, 4}} : (TestShape){2, {4, 6}};
    optc_rule_options ro = {.spec = "x.lua", .text = text};
    fix_open(&f, &(optc_engine_options){.threads = 1}, &ro, shape, 2 * N, NULL, 0);
    ck_assert_msg(optc_rule_native(f.rule), "%s", optc_rule_path(f.rule));
    for (int t = 0; t < 2 * N; t++)
        for (int i = 0; i < 24; i++)
            ((float *)f.g[t])[i] =
                (float)(isfinite(scale[t / 2]) || !i
                            ? (isfinite(scale[t / 2]) ? scale[t / 2] : 1) * grad_at(t % 2, i)
                            : 1);
    for (int t = 10; t < 14; t++)
        ((float *)f.g[t])[0] = (float)scale[t / 2];
    OK(optc_step(f.binding));
    for (int t = 0; t < 2 * N; t++)
        for (int i = 0; i < 24; i++) {
            float got = ((float *)f.p[t])[i],
                  want = scale[t / 2] == 0 ? 0 : ((float *)f.p[t % 2])[i];
            if (isfinite(scale[t / 2]))
                ck_assert_msg(fabsf(got - want) < 1e-4f, "times %g: element %d is %g, not %g",
                              scale[t / 2], i, (double)got, (double)want);
            else if (!i)
                ck_assert_msg(isnan(got), "of a matrix with %g in it", scale[t / 2]);
        }
    fix_close(&f);
}
END_TEST

/* Blocks are scaled by the matrix's norm: if that is NaN, all blocks become NaN. */
START_TEST(polar_of_blocks_with_nan)
{
    static const char text[] = "return optimizer { name = 'x', block = 4, step = function() p = p "
                               "- g end, matrix = function() p = polar(g) "
                               "end }";
    static const TestShape shape[2] = {{2, {8, 8}}, {2, {8, 8}}};
    Fixture f;
    fix_open(&f, &(optc_engine_options){.threads = 1},
             &(optc_rule_options){.spec = "x.lua", .text = text}, shape, 2, NULL, 0);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 64; i++)
            ((float *)f.g[t])[i] = t || i ? (float)(100 * grad_at(0, i)) : NAN;
    OK(optc_step(f.binding));
    for (int i = 0; i < 64; i++)
        ck_assert_msg(isnan(((float *)f.p[0])[i]) && isfinite(((float *)f.p[1])[i]),
                      "element %d is %g, and %g", i, (double)((float *)f.p[0])[i],
                      (double)((float *)f.p[1])[i]);
    fix_close(&f);
}
END_TEST

/* A share of the rows may exceed the columns: Gram matrices are those of the columns then. 400
 * selected rows would have Gram matrices of 160,000 values. */
START_TEST(polar_of_the_shorter_side)
{
    static const char text[] =
        "return optimizer { name = 'x', view = 'last', rank = { share = 0.5, of = 'rows' },\n"
        "  step = function() p = p - g end, matrix = function() local i = topk(rowsum(abs(g)))\n"
        "    p = put(0, i, polar(take(g, i), { coefficients = 'polar_express', steps = 14 })) end "
        "}";
    static const TestShape shape[2] = {{2, {800, 2}}, {2, {4, 9}}};
    Fixture f;
    optc_bytes bytes;
    optc_engine_options eo = {.compiler = "", .cache_dir = "", .threads = 1};
    optc_rule_options ro = {
        .spec = "x.lua", .text = text, .param = OPTC_F64, .grad = OPTC_F64, .state = OPTC_F64};
    fix_open(&f, &eo, &ro, shape, 2, NULL, 0);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < f.count[t]; i++)
            ((double *)f.g[t])[i] = grad_at(t, i);
    OK(optc_plan_bytes(f.binding, "step", 1, &bytes));
    ck_assert_msg(bytes.read + bytes.written < 1e6, "%g bytes", bytes.read + bytes.written);
    OK(optc_step(f.binding));
    /* orthonormal columns, or rows: two of each */
    for (int t = 0; t < 2; t++) {
        int rows = rows_of(&shape[t]), cols = cols_of(&shape[t]);
        const double *x = f.p[t];
        double sum = 0, most = 0;
        for (int i = 0; i < rows * cols; i++)
            sum += x[i] * x[i];
        for (int i = 0; i < rows && t == 0; i++)
            most += x[2 * i] * x[2 * i + 1];
        ck_assert_msg(fabs(sum - 2) < 1e-9 && fabs(most) < 1e-9, "squares %g, product %g", sum,
                      most);
    }
    fix_close(&f);
}
END_TEST

/* A wrong option is reported once, at the option. */
START_TEST(polar_of_wrong_options)
{
    static const char *const wrong[] = {"coefficients=jordon", "form=q", "steps=x"};
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(NULL, &e));
    for (size_t i = 0; i < COUNT(wrong); i++) {
        FAILS(optc_compile(e, &(optc_rule_options){.spec = "muon", .options = wrong[i]}, &r),
              OPTC_ERROR_SPEC, "option '");
        ck_assert_msg(!strstr(optc_message(), "polar:"), "%s", optc_message());
    }
    OK(optc_close(e));
}
END_TEST

/* ---- where states start ---- */
START_TEST(states_start_with_a_diagonal)
{
    static const char text[] =
        "return optimizer { name = 'x', view = 'last', rank = 2, hyper = { eps = 0.5 }, state = { "
        "L = eye(eps, "
        "'rows'), R = eye(3, 'cols'), Q = eye(2, 'rank'), "
        "F = fill(7, 'rows rank') },\n step = function() p = p - g end, matrix = function() L = "
        "L + 0 R = R + 0 Q = Q + 0 F = F + 0 p = p - g end }";
    static const TestShape shape[] = {{2, {300, 1}}, {3, {3, 5, 4}}, {2, {1, 2}}};
    Fixture f;
    static double v[300 * 300];
    fix_open(&f, &(optc_engine_options){.compiler = "", .cache_dir = "", .threads = 1},
             &(optc_rule_options){.spec = "x.lua", .text = text}, shape, 3,
             &(optc_setting){"eps", 0.25}, 1);
    for (int t = 0; t < 3; t++) {
        int n = rows_of(&shape[t]), k = cols_of(&shape[t]), r = n < k ? n : k,
            s = slices_of(&shape[t]);
        const struct { const char *name; int side; double on; } want[] =
            {{"L", n, 0.25}, {"R", k, 3}, {"Q", r < 2 ? r : 2, 2}};
        for (int w = 0; w < 3; w++) {
            int square = want[w].side * want[w].side;
            OK(optc_state_read(f.binding, t, want[w].name, v, s * square));
            for (int i = 0; i < s * square; i++)
                ck_assert_msg(
                    v[i] ==
                        (i % square / want[w].side == i % square % want[w].side ? want[w].on : 0),
                    "%s of tensor %d: value %d is %g", want[w].name, t, i, v[i]);
        }
        OK(optc_state_read(f.binding, t, "F", v, s * n * (r < 2 ? r : 2)));
        ck_assert(v[0] == 7);
    }
    fix_close(&f);
}
END_TEST

/* ---- another rule for the rest ---- */
static const char with_rest[] =
    "return optimizer { name = 'x', hyper = { lr = 0.5 }, state = { m = zeros }, step = rule "
    "'adafactor',\n"
    "matrix = function()\n if nrows > 6 then return step() end\n m = m + g p = p - lr * m end }";

/* Vectors, and matrices passed on by step(), are stepped as by the fallback rule alone, in both of
 * its bodies; its options and states have its prefix. */
START_TEST(rest_is_the_other_rule)
{
    static const TestShape shape[] = {{1, {9}}, {2, {7, 5}}, {3, {7, 2, 3}}, {2, {4, 3}}};
    Fixture f[2];
    double v[2][70];
    optc_engine_options eo = {.compiler = "", .cache_dir = "", .threads = 1, .no_builtin = 1};
    fix_open(&f[0], &eo,
             &(optc_rule_options){
                 .spec = "x.lua", .text = with_rest, .options = "adafactor.momentum=true"},
             shape, 4, &(optc_setting){"adafactor.lr", 0.25}, 1);
    fix_open(&f[1], &eo, &(optc_rule_options){.spec = "adafactor", .options = "momentum=true"},
             shape, 4, &(optc_setting){"lr", 0.25}, 1);
    for (int step = 0; step < 2; step++)
        for (int x = 0; x < 2; x++) {
            for (int t = 0; t < 4; t++)
                for (int i = 0; i < f[x].count[t]; i++)
                    ((float *)f[x].g[t])[i] = (float)ref_value(t, step, i);
            OK(optc_step(f[x].binding));
        }
    for (int t = 0; t < 3; t++) {
        ck_assert_msg(!memcmp(f[0].p[t], f[1].p[t], 4 * (size_t)f[0].count[t]), "tensor %d", t);
        OK(optc_state_read(f[0].binding, t, "adafactor.m", v[0], f[0].count[t]));
        OK(optc_state_read(f[1].binding, t, "m", v[1], f[1].count[t]));
        ck_assert(!memcmp(v[0], v[1], sizeof(double) * (size_t)f[0].count[t]));
    }
    for (int i = 0; i < 12; i++)
        ck_assert(((float *)f[0].p[3])[i] != ((float *)f[1].p[3])[i]);
    OK(optc_state_read(f[0].binding, 3, "m", v[0], 12));
    ck_assert_msg(fabs(v[0][1] - (ref_value(3, 0, 1) + ref_value(3, 1, 1))) < 1e-6, "%g", v[0][1]);
    for (int x = 0; x < 2; x++)
        fix_close(&f[x]);
}
END_TEST

Suite *polar_suite(void)
{
    Suite *s = suite_create("polar");
    TCase *p = tcase_create("polar"), *r = tcase_create("rest");
    tcase_add_test(p, polar_is_its_iteration);
    tcase_add_test(p, polar_at_all_scales);
    tcase_add_test(p, polar_of_blocks_with_nan);
    tcase_add_test(p, polar_of_the_shorter_side);
    tcase_add_test(p, polar_of_wrong_options);
    tcase_add_test(r, states_start_with_a_diagonal);
    tcase_add_test(r, rest_is_the_other_rule);
    suite_add_tcase(s, p);
    suite_add_tcase(s, r);
    return s;
}

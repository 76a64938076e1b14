/* svd, spectral_norm and nuclear_norm, on the evaluator and compiled: U diag(s) V.T is x, U and V
 * have orthonormal columns, s descends, and the norms are the largest value and the sum of s. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char rule[] =
    "return optimizer { name = 'x', hyper = { lr = 0 }, rank = 2, products = 'f64', view = "
    "'last',\n"
    "  state = { back = zeros, back_t = zeros, some = zeros, top = zeros 'slice', all = zeros "
    "'slice', first = "
    "zeros 'rank1', UU = zeros 'rank', VV = zeros 'rank' },\n"
    "  step = function() p = p - g end,\n"
    "  matrix = function() local U, s, V = svd(g)  local A, w, B = svd(g, 'rank')  local C, z, D = "
    "svd(g.T)\n"
    "    back = mm(U * s.T, V.T)  some = mm(A * w.T, B.T)  back_t = mm(D * z.T, C.T)\n"
    "    top, all, first = spectral_norm(g), nuclear_norm(g.T), w\n"
    "    UU, VV = mm(A.T, A), mm(B.T, B)\n"
    "    p = p - 0 * g end }";

static const TestShape shapes[] = {{2, {5, 9}},    {2, {9, 5}}, {2, {4, 4}},
                                   {3, {2, 3, 6}}, {2, {1, 3}}, {2, {3, 1}}};
enum { NSHAPE = sizeof shapes / sizeof *shapes };

static void near(const char *what, int tensor, double got, double want, double within)
{
    ck_assert_msg(fabs(got - want) <= within, "%s of tensor %d: %.17g, not %.17g", what, tensor,
                  got, want);
}

static void read_state(const Fixture *f, int k, const char *name, double *to, int64_t n)
{
    OK(optc_state_read(f->binding, k, name, to, n));
}

static void check_singular(const Fixture *f, int k)
{
    int r = shapes[k].rank;
    int64_t rows = shapes[k].dim[r - 2], cols = shapes[k].dim[r - 1], n = rows * cols,
            slices = f->count[k] / n;
    int64_t side = rows < cols ? rows : cols, some = side < 2 ? side : 2;
    double back[64], back_t[64], part[64], s[4], top[2], sum[2], u[8], v[8], left = 0, squares = 0;
    const double *g = f->g[k];
    read_state(f, k, "back", back, f->count[k]), read_state(f, k, "back_t", back_t, f->count[k]);
    read_state(f, k, "some", part, f->count[k]), read_state(f, k, "first", s, slices * some);
    read_state(f, k, "top", top, slices), read_state(f, k, "all", sum, slices);
    read_state(f, k, "UU", u, slices * some * some),
        read_state(f, k, "VV", v, slices * some * some);
    for (int64_t i = 0; i < f->count[k]; i++) {
        near("U s V.T", k, back[i], g[i], 1e-12), near("svd of x.T", k, back_t[i], g[i], 1e-12);
        left += (g[i] - part[i]) * (g[i] - part[i]);
        squares += g[i] * g[i];
    }
    for (int64_t i = 0; i < slices * some * some; i++) {
        double one = i % (some * some) % (some + 1) == 0;
        near("U.T U", k, u[i], one, 1e-10), near("V.T V", k, v[i], one, 1e-10);
    }
    for (int64_t i = 0; i < slices; i++) {
        near("spectral norm", k, top[i], s[i * some], 1e-12);
        ck_assert(some < 2 || s[i * some] >= s[i * some + 1]);
        double held = s[i * some] + (some > 1 ? s[i * some + 1] : 0);
        ck_assert_msg(sum[i] >= held - 1e-12 && (side > some || sum[i] <= held + 1e-12),
                      "nuclear norm %g", sum[i]);
        for (int64_t x = 0; x < some; x++)
            squares -= s[i * some + x] * s[i * some + x];
    }
    near("what the first two leave", k, left, squares, 1e-10);         /* Eckart and Young */
}

START_TEST(singular)
{
    Fixture f;
    optc_engine_options eo = {.threads = 2,
                              .cache_dir = getenv("OPTC_TEST_CACHE"),
                              .compiler = _i ? NULL : "",
                              .no_builtin = !_i};
    fix_open(&f, &eo, &(optc_rule_options){.spec = "x", .text = rule, .param = OPTC_F64}, shapes,
             NSHAPE, NULL, 0);
    for (int k = 0; k < f.n; k++)
        for (int64_t i = 0; i < f.count[k]; i++)
            ((double *)f.g[k])[i] = ref_value(k, 1, i);
    OK(optc_step(f.binding));
    for (int k = 0; k < f.n; k++)
        check_singular(&f, k);
    fix_close(&f);
}
END_TEST

/* A zero matrix: all values are 0, and the side that is divided by them is 0 instead of NaN. */
START_TEST(of_zero)
{
    Fixture f;
    fix_open(&f,
             &(optc_engine_options){.threads = 1, .compiler = "", .cache_dir = "", .no_builtin = 1},
             &(optc_rule_options){.spec = "x", .text = rule, .param = OPTC_F64},
             &(TestShape){2, {2, 3}}, 1, NULL, 0);
    memset(f.g[0], 0, 6 * sizeof(double));
    OK(optc_step(f.binding));
    double back[6], top;
    read_state(&f, 0, "back", back, 6), read_state(&f, 0, "top", &top, 1);
    for (int i = 0; i < 6; i++)
        ck_assert(back[i] == 0);
    ck_assert(top == 0);
    fix_close(&f);
}
END_TEST

/* g has rank 1, so two of three singular values are rounding noise. The longer side's vectors of
 * those are 0, and the product of both sides has spectral norm 1, for x and x.T; and s still adds
 * up to the nuclear norm. */
START_TEST(of_low_rank)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0 }, rank = 2, view = 'last',\n"
        "  state = { o = zeros, o_t = zeros, some = zeros, back = zeros, top = zeros 'slice', all "
        "= zeros 'slice' },\n"
        "  step = function() p = p - g end,\n"
        "  matrix = function() local U, s, V = svd(g)  local A, w, B = svd(g, 'rank')  local C, z, "
        "D = svd(g.T)\n"
        "    o, o_t, some, back = mm(U, V.T), mm(D, C.T), mm(A, B.T), mm(U * s.T, V.T)\n"
        "    top, all = spectral_norm(g), nuclear_norm(g)\n"
        "    p = p - 0 * g end }";
    static const char *const name[] = {"o", "o_t", "some"};
    const bool wide = _i & 1, f64 = _i & 2;
    const double within = f64 ? 1e-10 : 1e-5, s = sqrt(0.14 * 385);
    Fixture f;
    fix_open(&f,
             &(optc_engine_options){.threads = 1, .compiler = "", .cache_dir = "", .no_builtin = 1},
             &(optc_rule_options){.spec = "x", .text = text, .param = f64 ? OPTC_F64 : OPTC_F32},
             &(TestShape){2, {wide ? 3 : 10, wide ? 10 : 3}}, 1, NULL, 0);
    double want[30], got[30], top, all;
    for (int i = 0; i < 30; i++) {
        int row = wide ? i / 10 : i % 3, col = wide ? i % 10 : i / 3;
        want[i] = (row + 1) / 10.0 * (col + 1);
        if (f64)
            ((double *)f.g[0])[i] = want[i];
        else
            ((float *)f.g[0])[i] = (float)want[i];
    }
    OK(optc_step(f.binding));
    for (int k = 0; k < 3; k++) {
        read_state(&f, 0, name[k], got, 30);
        for (int i = 0; i < 30; i++)
            near(name[k], 0, got[i], want[i] / s, within);
    }
    read_state(&f, 0, "back", got, 30);
    for (int i = 0; i < 30; i++)
        near("U s V.T", 0, got[i], want[i], within);
    read_state(&f, 0, "top", &top, 1), read_state(&f, 0, "all", &all, 1);
    near("spectral norm", 0, top, s, within), near("nuclear norm", 0, all, s, f64 ? 1e-6 : 1e-2);
    fix_close(&f);
}
END_TEST

/* Half of the rows of a long matrix: Gram matrices have the size of the two columns. The other rows
 * are 0. */
START_TEST(of_selected_rows)
{
    static const char text[] =
        "return optimizer { name = 'x', view = 'last', rank = { share = 0.5, of = 'rows' }, "
        "products = 'f64',\n"
        "  state = { top = zeros 'slice', all = zeros 'slice' }, step = function() p = p - g end,\n"
        "  matrix = function() local x = take(g, topk(rowsum(abs(g))))\n"
        "    top, all = spectral_norm(x), nuclear_norm(x.T)  p = p - g end }";
    static const TestShape shape[1] = {{2, {800, 2}}};
    Fixture f;
    optc_bytes bytes;
    double aa = 0, ab = 0, bb = 0, top, all;
    optc_engine_options eo = {.compiler = "", .cache_dir = "", .threads = 1};
    optc_rule_options ro = {
        .spec = "x.lua", .text = text, .param = OPTC_F64, .grad = OPTC_F64, .state = OPTC_F64};
    fix_open(&f, &eo, &ro, shape, 1, NULL, 0);
    double *g = f.g[0];
    for (int i = 0; i < 800; i++) {
        double a = g[2 * i] = i < 400 ? sin(i + 1) : 0, b = g[2 * i + 1] = i < 400 ? cos(3 * i) : 0;
        aa += a * a, ab += a * b, bb += b * b;
    }
    OK(optc_plan_bytes(f.binding, "step", 1, &bytes));
    ck_assert_msg(bytes.read + bytes.written < 1e6, "%g bytes", bytes.read + bytes.written);
    OK(optc_step(f.binding));
    read_state(&f, 0, "top", &top, 1), read_state(&f, 0, "all", &all, 1);
    near("nuclear norm", 0, all, sqrt(aa + bb + 2 * sqrt(aa * bb - ab * ab)), 1e-10);
    near("spectral norm", 0, top, sqrt((aa + bb + sqrt((aa - bb) * (aa - bb) + 4 * ab * ab)) / 2),
         1e-10);
    fix_close(&f);
}
END_TEST

/* Matrices whose singular vectors are known: X = H diag(s) G, where H (8 x 8) and G (8 x 16) have
 * entries of 1 and -1 and orthogonal rows, or its transpose. s are powers of two down to 2^-20, so
 * f32 holds X exactly, and its condition is 1e6. Squares of X in f32 leave nothing of the last four
 * directions; what is rounded once to f32 may change the last one by 2^-24 times the condition, 6%,
 * a third of that in the norm of all eight. */
enum { SIDE = 8, LONG = 16, KNOWN = SIDE * LONG };
static const int power[SIDE] = {0, 3, 6, 9, 11, 14, 17, 20};

static int entry_sign(int64_t row, int64_t col)
{
    return __builtin_popcountll((uint64_t)(row & col)) % 2 ? -1 : 1;
}

/* Element i of H diag(s^x) G. */
static double known_at(int64_t i, bool tall, int x)
{
    int64_t row = tall ? i % SIDE : i / LONG, col = tall ? i / SIDE : i % LONG;
    double sum = 0;
    for (int k = 0; k < SIDE; k++)
        sum += entry_sign(row, k) * ldexp(entry_sign(k, col), -x * power[k]);
    return sum;
}

typedef struct {
    const char *spec, *with, *options;
    optc_type type;
    optc_setting set[4];
    int nset;
    double most;                           /* error of the vectors' product, in the Frobenius norm
                                            * over sqrt(8) */
} Known;
static const char by_svd[] =
    "return optimizer { name = 'by_svd', hyper = { lr = 0 }, rank = 8, products = 'f16', state = { "
    "s ="
    " zeros 'rank1' },\n  step = function() p = p - g end, matrix = function()\n"
    "    local U, S, V = svd(g, 'rank')  s = S  p = p - lr * mm(U, V.T) end }";
static const Known known[] = {
    {"mop",
     "",
     "scale=spectral",
     OPTC_F32,
     {{"lr", 0.25}, {"momentum", 0.5}, {"weight_decay", 0}},
     3,
     0.02},
    {"mop",
     "",
     "scale=spectral",
     OPTC_F64,
     {{"lr", 0.25}, {"momentum", 0.5}, {"weight_decay", 0}},
     3,
     1e-9},
    {"conda",
     "",
     "",
     OPTC_F32,
     {{"lr", 0.25}, {"beta1", 0.5}, {"beta2", 0.5}, {"eps", 1e-30}},
     4,
     0.02},
    {"adamw",
     "galore(8,1,1)",
     "",
     OPTC_F32,
     {{"lr", 0.25}, {"eps", 1e-30}, {"weight_decay", 0}},
     3,
     0.02},
    {"by_svd", "", "", OPTC_F32, {{"lr", 1}}, 1, 1e-2},
};

static void open_known(Fixture *f, const Known *k)
{
    static const TestShape shape[] = {{2, {SIDE, LONG}}, {2, {LONG, SIDE}}};
    bool f64 = k->type == OPTC_F64;
    optc_engine_options eo = {.threads = 1,
                              .cache_dir = getenv("OPTC_TEST_CACHE"),
                              .compiler = f64 ? "" : NULL,
                              .no_builtin = f64};
    optc_rule_options ro = {.spec = k->spec,
                            .text = strcmp(k->spec, "by_svd") ? NULL : by_svd,
                            .with = k->with,
                            .options = k->options,
                            .param = k->type};
    fix_open(f, &eo, &ro, shape, 2, k->set, k->nset);
    for (int t = 0; t < 2; t++)
        for (int64_t i = 0; i < KNOWN; i++)
            if (f64)
                ((double *)f->g[t])[i] = known_at(i, t, 1), ((double *)f->p[t])[i] = 0;
            else
                ((float *)f->g[t])[i] = (float)known_at(i, t, 1), ((float *)f->p[t])[i] = 0;
    OK(optc_step(f->binding));
}

/* All of these step along the product of both sides' vectors, H G / sqrt(128). Adam's first step is
 * a sign. */
START_TEST(of_condition_1e6)
{
    const Known *k = &known[_i];
    Fixture f;
    open_known(&f, k);
    for (int t = 0; t < 2; t++) {
        double off = 0, s[SIDE];
        for (int64_t i = 0; i < KNOWN; i++) {
            double got = k->type == OPTC_F64 ? ((double *)f.p[t])[i] : ((float *)f.p[t])[i];
            off += pow(got + known_at(i, t, 0) / sqrt(KNOWN), 2) / SIDE;
        }
        ck_assert_msg(sqrt(off) <= k->most, "%s %s: tensor %d is off by %.2g, more than %g",
                      k->spec, k->with, t, sqrt(off), k->most);
        if (!strcmp(k->spec, "by_svd"))
            read_state(&f, t, "s", s, SIDE);
        for (int i = 0; i < SIDE && !strcmp(k->spec, "by_svd"); i++)
            ck_assert_msg(fabs(s[i] / ldexp(sqrt(KNOWN), -power[i]) - 1) < 1e-2, "value %d: %g", i,
                          s[i]);
    }
    fix_close(&f);
}
END_TEST

/* COSMOS starts from the right singular vectors: rows of G, or of H. */
START_TEST(first_directions)
{
    const Known cosmos = {"cosmos", "", "directions=8", OPTC_F32, {{"lr", 0}}, 1, 0.06};
    Fixture f;
    open_known(&f, &cosmos);
    for (int t = 0; t < 2; t++) {
        double P[KNOWN], side = t ? SIDE : LONG;
        read_state(&f, t, "P", P, (int64_t)side * SIDE);
        for (int k = 0; k < SIDE; k++) {
            double dot = 0;
            for (int i = 0; i < side; i++)
                dot += P[i * SIDE + k] * entry_sign(k, i) / sqrt(side);
            ck_assert_msg(fabs(dot) > 1 - cosmos.most * cosmos.most, "tensor %d: direction %d: %g",
                          t, k, fabs(dot));
        }
    }
    fix_close(&f);
}
END_TEST

Suite *singular_values_suite(void)
{
    Suite *s = suite_create("singular_values");
    TCase *t = tcase_create("svd");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, singular, 0, 2);
    tcase_add_test(t, of_zero);
    tcase_add_test(t, of_selected_rows);
    tcase_add_loop_test(t, of_low_rank, 0, 4);
    tcase_add_loop_test(t, of_condition_1e6, 0, sizeof known / sizeof *known);
    tcase_add_test(t, first_directions);
    suite_add_tcase(s, t);
    return s;
}

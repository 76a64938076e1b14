/* Matrices cut into blocks: on the GPU as on the CPU, by cuBLAS and by products of our own, whole and at all edges. */
#include "../random_spec.h"
#include "side.h"

#include <stdlib.h>
#include <string.h>

/* Everything that belongs to blocks, draws and folds among it, and products of elements, squares, directions and one column. */
static const char rule[] =
    "return optimizer { name = 'cut', view = 'last', rank = 2, block = 8, hyper = { lr = 0.125 },\n"
    " state = { m = zeros, L = eye(0.5, 'rows'), R = fill(0.25, 'cols'), P = zeros 'rows rank', d = zeros 'block row', e = zeros 'block col', s = zeros 'block' },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function()\n"
    "  m = 0.5 * m + g\n"
    "  L = 0.5 * L.T + gram(m) / ncols\n"
    "  every(2, function() R = lerp(R, triu(mm(m.T, g)) / nrows, 0.25) end)\n"
    "  P = 0.5 * P + normal 'rows rank' / 16 + mm(L, mm(m, random 'cols rank')) / (nrows * ncols)\n"
    "  d = rowmax(L) + diag(L) + mm(L, rowmean(L)) / nrows\n"
    "  e = colmin(R) + norm(g) / (1 + norm(m))\n"
    "  s = slice.mean(L) + trace(R) / nrows + slice.dot(d, rowmin(L)) + (max(L) + rms(R)) / (1 + abs(sum(s)))\n"
    "  p = p - lr * (mm((L + diag(d) + s) / (1 + slice.norm(L)), m) + mm(g, R + outer(e.T, e))) / (1 + slice.norm(m))\n"
    " end }";

static const TestShape cut[NSHAPES] = {{2, {19, 21}}, {1, {7}}, {3, {3, 9, 7}}, {2, {8, 8}}, {2, {1, 40}}, {2, {30, 1}}, {2, {24, 16}}, {4, {2, 2, 16, 9}}, {2, {0, 5}}, {2, {5, 3}}, {2, {1, 1}}, {2, {21, 19}}};

/* How far the CPU, whose products are f32 or f64, may be: a few roundings of operands in each of three products behind one another. */
static const struct { const char *products; optc_type param; double bound; } kinds[] = {
    {"f64", OPTC_F64, 1e-9}, {"f32", OPTC_F32, 1e-3}, {"tf32", OPTC_F32, 0.05}, {"f16", OPTC_F32, 0.05}, {"bf16", OPTC_F32, 0.3}};

static void both(const char *text, int kind, bool library, double bound)
{
    Side c, g;
    optc_rule_options o = {.text = text, .param = kinds[kind].param, .grad = OPTC_F32, .products = kinds[kind].products};
    use_shapes(cut);
    if (!library)
        setenv("OPTC_CUBLAS", "none", 1);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int step = 1; step <= 3; step++) {
        set_grads(&c, step);
        set_grads(&g, step);
        if (step == 3) {                                       /* one leaves, which changes what calls go over */
            OK(optc_set_grad(c.b, 0, NULL, 0));
            OK(optc_set_grad(g.b, 0, NULL, 0));
        }
        OK(optc_step(c.b));
        OK(optc_step(g.b));
    }
    fetch_params(&g);
    compare_within(text, &c, &g, bound);
    close_side(&c, 0);
    close_side(&g, 0);
    if (!library)
        unsetenv("OPTC_CUBLAS");
}

START_TEST(cut_rule) { both(rule, _i / 2, _i % 2 == 0, kinds[_i / 2].bound); }
END_TEST

/* Passes over blocks alone have the CPU's bits; not on an emulated GPU, which compiles for seconds. */
START_TEST(random_rules)
{
    for (uint64_t seed = 1; seed <= (getenv("OPTC_TEST_SMALL") ? 0 : 6); seed++) {
        char *text = random_squares(seed, false, 8);
        both(text, seed % 2 ? 1 : 0, true, 0);
        free(text);
    }
}
END_TEST

void add_blocks(TCase *t)
{
    tcase_add_loop_test(t, cut_rule, 0, getenv("OPTC_TEST_SMALL") ? 2 : 2 * (int)(sizeof kinds / sizeof *kinds));
    tcase_add_test(t, random_rules);
}

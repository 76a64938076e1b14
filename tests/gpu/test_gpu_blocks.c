/* Matrices in blocks (`block = …`): the GPU against the CPU, with cuBLAS and with optc's products,
 * for whole blocks and all kinds of edges. */
#include "tests/harness/random_spec.h"
#include "tests/gpu/device_side.h"

#include <stdlib.h>
#include <string.h>

/* Everything that a block can have: draws, folds, and products of elements, squares, directions and
 * single columns. */
static const char rule[] =
    "return optimizer { name = 'cut', view = 'last', rank = 2, block = 8, hyper = { lr = 0.125 },\n"
    " state = { m = zeros, L = eye(0.5, 'rows'), R = fill(0.25, 'cols'), P = zeros 'rows rank', d "
    "= zeros 'block row', "
    "e = zeros 'block col', s = zeros 'block' },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function()\n"
    "  m = 0.5 * m + g\n"
    "  L = 0.5 * L.T + gram(m) / ncols\n"
    "  every(2, function() R = lerp(R, triu(mm(m.T, g)) / nrows, 0.25) end)\n"
    "  P = 0.5 * P + normal 'rows rank' / 16 + mm(L, mm(m, random 'cols rank')) / (nrows * ncols)\n"
    "  d = rowmax(L) + diag(L) + mm(L, rowmean(L)) / nrows\n"
    "  e = colmin(R) + norm(g) / (1 + norm(m))\n"
    "  s = slice.mean(L) + trace(R) / nrows + slice.dot(d, rowmin(L)) + (max(L) + rms(R)) / (1 + "
    "abs(sum(s)))\n"
    "  p = p - lr * (mm((L + diag(d) + s) / (1 + slice.norm(L)), m) + mm(g, R + outer(e.T, e))) / "
    "(1 + slice.norm(m))\n"
    " end }";

static const TestShape cut[NSHAPES] = {
    {2, {19, 21}}, {1, {7}},           {3, {3, 9, 7}}, {2, {8, 8}}, {2, {1, 40}}, {2, {30, 1}},
    {2, {24, 16}}, {4, {2, 2, 16, 9}}, {2, {0, 5}},    {2, {5, 3}}, {2, {1, 1}},  {2, {21, 19}}};

/* Bounds for the difference to the CPU, whose products are f32 or f64: a few roundings of operands
 * in each of three consecutive products. */
static const struct { const char *products; optc_type param; double bound;
} kinds[] = {{"f64", OPTC_F64, 1e-9},
             {"f32", OPTC_F32, 1e-3},
             {"tf32", OPTC_F32, 0.05},
             {"f16", OPTC_F32, 0.05},
             {"bf16", OPTC_F32, 0.3}};

static void both(const char *text, int kind, bool library, double bound)
{
    Side c, g;
    optc_rule_options o = {.text = text,
                           .param = kinds[kind].param,
                           .grad = OPTC_F32,
                           .products = kinds[kind].products};
    use_shapes(cut);
    use_cublas(library);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int step = 1; step <= 3; step++) {
        set_grads(&c, step);
        set_grads(&g, step);
        /* one tensor is left out, which changes the matrices of the calls */
        if (step == 3) {
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
    use_cublas(true);
}

START_TEST(rule_in_blocks)
{
    SHARED();
    /* thinned: without cuBLAS, as others have it */
    if (!thinned(_i / 2) && !(thinned(1) && _i % 2 == 0))
        both(rule, _i / 2, _i % 2 == 0, kinds[_i / 2].bound);
}
END_TEST

/* Blocks that are large enough for whole tiles, after blocks with an odd edge: mirroring squares
 * that are not 16-byte aligned. */
START_TEST(after_odd_edge)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'edge', block = 64, hyper = { lr = 0.125 }, state = { L = zeros "
        "'rows', R = zeros "
        "'cols' },\n"
        " step = function() p = p - lr * g end,\n"
        " matrix = function() L = gram(g) R = gram(g.T) p = p - lr * mm(mm(L, g), R) / (nrows * "
        "ncols) end }";
    static const TestShape edge[NSHAPES] = {
        {2, {131, 67}}, {2, {67, 131}}, {2, {64, 64}}, {1, {3}}, {1, {3}}, {1, {3}},
        {1, {3}},       {1, {3}},       {1, {3}},      {1, {3}}, {1, {3}}, {1, {3}}};
    Side c, g;
    optc_rule_options o = {.text = text, .param = kinds[_i].param, .products = kinds[_i].products};
    use_shapes(edge);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    set_grads(&c, 1);
    set_grads(&g, 1);
    OK(optc_step(c.b));
    OK(optc_step(g.b));
    fetch_params(&g);
    compare_within(text, &c, &g, kinds[_i].bound);
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

/* Passes over blocks without products have the CPU's bits. Not on the emulated GPU, which takes
 * seconds to compile each. */
START_TEST(random_rules)
{
    SHARED();
    for (uint64_t seed = 1; seed <= (getenv("OPTC_TEST_SMALL") ? 0 : 6); seed++) {
        char *text = random_squares(seed, false, 8);
        both(text, seed % 2 ? 1 : 0, true, 0);
        free(text);
    }
}
END_TEST

/* Matrices that are not aligned for tensor cores: slices of odd lengths, gradients and parameters
 * at odd addresses. */
static const char uneven[] = "return optimizer { name = 'uneven', view = 'last', hyper = { lr = "
                             "0.125 }, state = { L = zeros 'rows', R = zeros "
                             "'cols' },\n"
                             " step = function() p = p - lr * g end,\n"
                             " matrix = function()\n"
                             "  L = 0.5 * L + gram(g) / ncols\n"
                             "  R = 0.5 * R + mm(g.T, g) / nrows\n"
                             "  p = p - lr * (mm(L, g) + mm(g, R))\n"
                             " end }";

START_TEST(misaligned_matrices)
{
    SHARED();
    static const TestShape slices[NSHAPES] = {{3, {3, 5, 16}}, {3, {3, 5, 16}}, {3, {3, 8, 7}},
                                              {2, {8, 8}},     {2, {8, 8}},     {3, {2, 9, 9}},
                                              {2, {1, 8}},     {2, {8, 1}},     {2, {16, 5}},
                                              {2, {5, 16}},    {1, {3}},        {3, {5, 7, 6}}};
    Side c, g;
    int kind = 2 + _i, off = 1;
    optc_rule_options o = {.text = uneven,
                           .param = kind == 2   ? OPTC_F32
                                    : kind == 3 ? OPTC_F16
                                                : OPTC_BF16,
                           .products = kinds[kind].products};
    use_shapes(slices);
    open_side(&c, "cpu", o, off);
    open_side(&g, "cuda", o, off);
    for (int step = 1; step <= 2; step++) {
        set_grads(&c, step);
        set_grads(&g, step);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
    }
    fetch_params(&g);
    compare_within(uneven, &c, &g, kinds[kind].bound);
    close_side(&c, off);
    close_side(&g, off);
}
END_TEST

void add_blocks(TCase *t)
{
    tcase_add_loop_test(t, misaligned_matrices, 0, 3);
    tcase_add_loop_test(t, after_odd_edge, 0,
                        getenv("OPTC_TEST_SMALL") ? 1 : (int)(sizeof kinds / sizeof *kinds));
    tcase_add_loop_test(t, rule_in_blocks, 0,
                        getenv("OPTC_TEST_SMALL") ? 2 : 2 * (int)(sizeof kinds / sizeof *kinds));
    tcase_add_test(t, random_rules);
}

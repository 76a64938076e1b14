/* Values over two axes other than the elements': lists that are walked as the elements are, what they read by row and column, and folds of whole arrays. */
#include "side.h"

static const char *const rules[] = {
    /* plain maps and folds, draws, values of rows, columns and matrices */
    "return optimizer { name = 'squares', view = 'last', hyper = { lr = 0.125 },\n"
    "  state = { L = zeros 'rows', R = zeros 'cols', N = zeros 'rows', s = zeros 'slice', all = zeros 'group' },\n"
    "  step = function() p = p - lr * g  all = 0.5 * all + global.max(max(g)) end,\n"
    "  matrix = function()\n"
    "    L = 0.75 * L + rowmax(g)  R = (0.5 * R - colmin(g)) + slice.max(g)  N = normal 'rows' + 2 * N\n"
    "    s = slice.sum(R * R) + mean(L)  all = 0.5 * all + global.max(max(L))\n"
    "    p = p - lr * g / (1 + abs(s)) + 1e-3 * rowmax(g) - 1e-3 * all\n"
    "  end }",
};
enum { NRULES = sizeof rules / sizeof *rules };

/* Neither side is long: what has rows x rows values would not fit. Odd ones, several matrices, one row, one column, none. */
static const TestShape sizes[NSHAPES] = {{2, {33, 65}}, {1, {7}}, {3, {3, 5, 7}}, {2, {70, 131}}, {2, {1, 130}}, {2, {129, 1}}, {3, {4, 64, 32}}, {2, {96, 128}}, {2, {0, 5}}, {4, {2, 3, 17, 9}}, {2, {1, 1}}, {0, {0}}};

START_TEST(squares)
{
    use_shapes(sizes);
    static const optc_rule_options types[] = {{.param = OPTC_F32}, {.param = OPTC_F64, .grad = OPTC_F32}, {.param = OPTC_BF16, .grad = OPTC_BF16, .state = OPTC_F32}};
    optc_rule_options o = types[_i % 3];
    Side c, g;
    uint64_t dice = 5 + (uint64_t)_i;
    o.text = rules[_i / 3];
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int step = 0; step < STEPS; step++) {
        if (step > 1)
            use_random_launches(&g, &dice, true);
        set_grads(&c, step);
        set_grads(&g, step);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
    }
    fetch_params(&g);
    compare(o.text, &c, &g);
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

void add_squares(TCase *t) { tcase_add_loop_test(t, squares, 0, 3 * NRULES); }

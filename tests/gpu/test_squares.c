/* Values over two axes other than the elements': lists that are walked as the elements are, what they read by row and column, and folds of whole arrays. */
#include "../squares.h"
#include "side.h"

_Static_assert((int)NSQUARES == NSHAPES, "a side has as many tensors");

START_TEST(squares)
{
    use_shapes(square_shapes);
    static const optc_rule_options types[] = {{.param = OPTC_F32}, {.param = OPTC_F64, .grad = OPTC_F32}, {.param = OPTC_BF16, .grad = OPTC_BF16, .state = OPTC_F32}};
    optc_rule_options o = types[(_i + 2) % 3];
    Side c, g;
    uint64_t dice = 5 + (uint64_t)_i;
    o.text = square_rules[_i];
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

void add_squares(TCase *t) { tcase_add_loop_test(t, squares, 0, NSQUARE_RULES); }

/* Values over rows x rows, cols x cols and the like: small stages over them, what they read by row
 * and column, and folds of whole arrays. */
#include "tests/harness/random_spec.h"
#include "tests/harness/square_rules.h"
#include "tests/gpu/device_side.h"

#include <stdlib.h>

_Static_assert((int)NSQUARES == NSHAPES, "a side has as many tensors");

/* The same bits on both devices, with the model's launches or (dice not 0) random ones. */
static void both(optc_rule_options o, uint64_t dice)
{
    use_shapes(square_shapes);
    Side c, g;
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int step = 0; step < STEPS; step++) {
        if (step == 2 && dice)
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

START_TEST(squares)
{
    SHARED();
    static const optc_rule_options types[] = {
        {.param = OPTC_F32},
        {.param = OPTC_F64, .grad = OPTC_F32},
        {.param = OPTC_BF16, .grad = OPTC_BF16, .state = OPTC_F32}};
    optc_rule_options o = types[(_i + 2) % 3];
    o.text = square_rules[_i];
    both(o, _i == 1 || !getenv("OPTC_TEST_SMALL") ? 5 + (uint64_t)_i : 0);
}
END_TEST

/* OPTC_FUZZ_SQUARES rules; none on the emulated GPU, which takes seconds to compile each. Without
 * products, whose summation order differs between devices. */
START_TEST(random_rules)
{
    SHARED();
    const char *n = getenv("OPTC_FUZZ_SQUARES");
    for (int seed = 1; seed <= (n ? atoi(n) : getenv("OPTC_TEST_SMALL") ? 0 : 6); seed++) {
        char *text = random_squares((uint64_t)seed, false, 0);
        both((optc_rule_options){.text = text, .param = seed % 3 ? OPTC_F32 : OPTC_F64},
             (uint64_t)seed);
        free(text);
    }
}
END_TEST

void add_squares(TCase *t)
{
    tcase_add_loop_test(t, squares, 0, NSQUARE_RULES);
    tcase_add_test(t, random_rules);
}

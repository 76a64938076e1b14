/* The grid of storage types (tests/harness/type_grid.h) on the GPU: every rule of the library in
 * every set of types has the CPU's bits. Products sum in another order, so matrices of rules with
 * products only need to be finite; the case `library` compares those in f64. NVRTC takes 10 to 30 s
 * for such a rule, so it has a third of the sets (OPTC_ALL=1: all). */
#include "tests/gpu/device_side.h"
#include "tests/harness/type_grid.h"

#include <math.h>
#include <stdlib.h>

/* Three tensors have blocks of codes. */
static const TestShape sizes[NSHAPES] = {
    {0, {0}},      {1, {1}},     {1, {7}},        {2, {33, 5}}, {3, {3, 5, 7}}, {1, {4103}},
    {2, {65, 66}}, {2, {3, 40}}, {3, {2, 16, 8}}, {2, {30, 3}}, {1, {4096}},    {4, {4, 3, 3, 3}}};
static const TestShape vectors[NSHAPES] = {{0, {0}},   {1, {1}},    {1, {7}},    {1, {127}},
                                           {1, {128}}, {1, {4103}}, {1, {4096}}, {1, {4095}},
                                           {1, {300}}, {1, {2}},    {1, {64}},   {1, {5}}};
enum { GRID_STEPS = 2 };

/* Steps the rule on both devices. Returns false if it has products. */
static bool step_both(const optc_rule_options *o, const char *label, int off, bool equal)
{
    Side c, g;
    open_side(&c, "cpu", *o, 0);
    open_side(&g, "cuda", *o, off);
    bool products = rule_has_calls(c.r);
    for (int s = 1; s <= GRID_STEPS; s++) {
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
    }
    OK(optc_sync(g.b));
    if (equal || !products)
        /* both may overflow: SGD-SaI with one element does in f16 */
        compare(label, &c, &g);
    else {
        fetch_params(&g);
        for (int k = 0; k < NSHAPES; k++)
            for (int64_t i = 0; i < g.n[k]; i++)
                if (!isfinite(type_load(g.tp, g.hp[k], i)))
                    ck_abort_msg("%s: p of tensor %d, element %lld is not finite", label, k,
                                 (long long)i);
    }
    close_side(&g, off);
    close_side(&c, 0);
    return !products;
}

static void step_case(int i)
{
    const char *rule = grid_rule(i / NGRID), *types = grid_types[i % NGRID];
    optc_rule_options o = {.spec = rule, .with = "", .options = "", .types = types};
    bool emulated = getenv("OPTC_TEST_SMALL") && !getenv("OPTC_ALL");
    if (others(i, 0) || !grid_runs(i, emulated ? 1 : grid_products(rule) ? 5 : NGRID))
        return;
    char *label = format("%s, %s", rule, types);
    use_shapes(vectors);
    bool all = step_both(&o, label, i % 4, true);
    use_shapes(sizes);
    /* the emulated GPU is slow: no products of matrices */
    if (all || !emulated)
        step_both(&o, label, i % 4, false);
    free(label);
}

START_TEST(grid)
{
    setenv("OPTC_CFLAGS", "-O1", 0);           /* the CPU's bits do not depend on the level */
    /* one of 25 rules where other tests run one of 5 cases */
    bool skipped = thinned(_i) || thinned(_i / 5);
    for (int k = 0; k < NGRID && !skipped; k++)
        step_case(_i * NGRID + k);
}
END_TEST

void add_types(TCase *t) { tcase_add_loop_test(t, grid, 0, grid_rules()); }

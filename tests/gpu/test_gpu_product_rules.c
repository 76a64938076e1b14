/* Whole rules with products against the CPU, and their steps in graphs. */
#include "tests/gpu/device_side.h"

#include <math.h>
#include <stdlib.h>

static const char *const rules[] = {
    /* a polar factor by two steps, of a state */
    "return optimizer { name = 'polar', hyper = { lr = 0.1 }, state = { m = zeros },\n"
    "  matrix = function() m = 0.9 * m + g p = p - lr * polar(m, { steps = 2 }) end,\n"
    "  step = function() m = 0.9 * m + g p = p - lr * m end }",
    /* squares in states, products of them at some steps */
    "return optimizer { name = 'squares', hyper = { lr = 0.1 }, state = { l = eye(0.5, 'rows'), r "
    "= zeros 'cols', s = "
    "zeros 'rows' },\n"
    "  matrix = function() l = 0.9 * l + 0.1 * gram(g)\n"
    "    every(2, function() s = mm(l, l) r = 0.5 * r + mm(g.T, g) end)\n"
    "    p = p - lr * mm(mm(s + l, g), r) end,\n"
    "  step = function() p = p - lr * g end }",
};

/* Close to the CPU, which sums in another order. The bits do not depend on how a step is
 * launched. */
static void near(const Side *c, Side *g, double most, const char *what)
{
    OK(optc_sync(g->b));
    fetch_params(g);
    for (int k = 0; k < NSHAPES; k++)
        for (int64_t i = 0; i < c->n[k]; i++) {
            double x = type_load(c->tp, c->hp[k], i), y = type_load(g->tp, g->hp[k], i);
            ck_assert_msg(fabs(x - y) <= most * (1 + fabs(x)),
                          "%s: tensor %d, element %lld: CPU %.17g, GPU %.17g", what, k,
                          (long long)i, x, y);
        }
}

/* Passes over symmetric values by tiles of 64 x 64: sides around 64, odd ones, several matrices per
 * tensor; products that are not mirrored, row values, transposed loads, two results at once. */
static const TestShape tiles[NSHAPES] = {
    {2, {1, 3}},     {2, {2, 2}},   {2, {63, 3}},  {2, {64, 2}},  {2, {65, 4}},  {3, {3, 67, 3}},
    {3, {2, 64, 5}}, {2, {127, 2}}, {2, {128, 3}}, {2, {131, 2}}, {2, {3, 130}}, {1, {5}}};
static const char halves[] =
    "return optimizer { name = 'halves', view = 'last', hyper = { lr = 0.01 }, state = { s = zeros "
    "'rows', r = zeros "
    "'cols' },\n"
    "  matrix = function() local x = g / (1 + slice.norm(g))\n"
    "    local a, b = gram(x), gram(x.T)\n"
    "    local c = max(a, mm(a, a)) + outer(rowsum(x), rowsum(x)) + s + s.T + eye(0.5, "
    "'rows')\n"
    "    r = 2 * max(b, mm(b, b)) + 1  s = triu(mm(c, c) + 0.1 * c)\n"
    "    p = p - lr * mm(mm(c, x), r) end,\n"
    "  step = function() p = p - lr * g end }";

START_TEST(symmetric_passes)
{
    SHARED();
    static const struct { optc_type type; const char *products; double most; } ways[] =
        {{OPTC_F64, "f64", 1e-9}, {OPTC_F32, "f32", 1e-3}};
    Side c, g;
    if (thinned(_i))
        return;
    optc_rule_options o = {.text = halves, .param = ways[_i].type, .products = ways[_i].products};
    use_shapes(tiles);
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int s = 1; s <= 3; s++) {
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        near(&c, &g, ways[_i].most, halves);
    }
    close_side(&g, 0);
    close_side(&c, 0);
}
END_TEST

/* In f64 rounding errors are far below the bound; each step's products amplify earlier errors by
 * less than 1000 here. */
START_TEST(whole_rules)
{
    SHARED();
    Side c, g;
    optc_rule_options o = {.text = rules[_i], .param = OPTC_F64, .products = "f64"};
    use_tiny_shapes();
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 0);
    for (int s = 1; s <= 4; s++) {
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        near(&c, &g, 1e-9, rules[_i]);
    }
    close_side(&g, 0);
    close_side(&c, 0);
}
END_TEST

/* Captured and replayed steps of a rule with products at some steps only equal single steps, and
 * single steps continue from there. */
START_TEST(conditional)
{
    SHARED();
    Side a, b;
    CUstream st;
    CUgraph graph;
    CUgraphExec exec;
    optc_rule_options o = {.text = rules[1], .products = _i ? "bf16" : "f32"};
    use_tiny_shapes();
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    set_grads(&a, 1);
    set_grads(&b, 1);
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_set_stream(b.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    int (*was)(CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t,
               CUstreamCaptureMode) = b.e->gpu->own.cuStreamBeginCaptureToGraph;
    b.e->gpu->own.cuStreamBeginCaptureToGraph = NULL;          /* an older driver */
    FAILS(optc_step(b.b), OPTC_ERROR_UNAVAILABLE, "conditional graph nodes (CUDA 12.4)");
    b.e->gpu->own.cuStreamBeginCaptureToGraph = was;
    OK(optc_step(b.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int s = 2; s <= 5; s++) {
        set_grads(&a, s);
        set_grads(&b, s);
        OK(optc_step(a.b));
        ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
        same_params(&a, &b, "replayed");
    }
    for (int s = 6; s <= 7; s++) {
        set_grads(&a, s);
        set_grads(&b, s);
        OK(optc_step(a.b));
        OK(optc_step(b.b));
        same_params(&a, &b, "one by one after replays");
    }
    OK(optc_set_stream(b.b, NULL));
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(st);
}
END_TEST

void add_product_rules(TCase *t)
{
    tcase_add_loop_test(t, conditional, 0, getenv("OPTC_TEST_SMALL") ? 1 : 2);
    tcase_add_loop_test(t, whole_rules, 0, sizeof rules / sizeof *rules);
    tcase_add_loop_test(t, symmetric_passes, 0, 2);
}

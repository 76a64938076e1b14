/* Stochastic rounding on the GPU: the CPU's bits at every launch, in captured steps too. */
#include "tests/gpu/device_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const optc_rule_options rounded[] = {
    {.spec = "adamw", .with = "clip(1)", .param = OPTC_BF16SR, .state = OPTC_BF16SR},
    {.spec = "came", .with = "", .param = OPTC_F16SR, .grad = OPTC_F32},
    {.spec = "lamb", .with = "", .param = OPTC_F32, .state = OPTC_F16SR},
    {.spec = "novograd", .with = "", .param = OPTC_BF16SR, .state = OPTC_BF16SR},
    {.spec = "adamw", .with = "sam(0.05)", .param = OPTC_F64, .state = OPTC_BF16SR},
    {.spec = "adafactor", .with = "", .param = OPTC_BF16SR, .grad = OPTC_F32}};

START_TEST(rounding)
{
    SHARED();
    if (thinned(1) && _i > 1)                      /* one of each type */
        return;
    Side c, g;
    char label[100];
    open_side(&c, "cpu", rounded[_i], 0);
    open_side(&g, "cuda", rounded[_i], _i % 4);
    uint64_t dice = (uint64_t)_i;
    for (int s = 1; s <= 4; s++) {
        if (s > 1)
            use_random_launches(&g, &dice, s % 2);
        set_grads(&c, s);
        set_grads(&g, s);
        for (int e = optc_rule_entries(c.r) - 1; e >= 0; e--) {
            OK(optc_run(c.b, optc_rule_entry(c.r, e)));
            OK(optc_run(g.b, optc_rule_entry(c.r, e)));
        }
        snprintf(label, sizeof label, "%s with '%s', rounding, launches %d", rounded[_i].spec,
                 rounded[_i].with, s);
        compare(label, &c, &g);
    }
    close_side(&g, _i % 4);
    close_side(&c, 0);
}
END_TEST

/* Each replay of a captured step draws the bits of its own step and seed. */
START_TEST(rounding_in_graphs)
{
    SHARED();
    Side a, b;
    CUstream st;
    void *graph, *exec;
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_side(&a, "cuda", rounded[0], 0);
    open_side(&b, "cuda", rounded[0], 0);
    set_grads(&a, 1);
    set_grads(&b, 1);
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_set_stream(b.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(b.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int s = 0; s < 4; s++) {
        if (s == 2)
            OK(optc_set_hyper(b.b, -1, "seed", 7));
        ck_assert(!d->cuGraphLaunch(exec, st));
    }
    for (int s = 0; s < 5; s++) {
        if (s == 3)
            OK(optc_set_hyper(a.b, -1, "seed", 7));
        OK(optc_step(a.b));
    }
    OK(optc_sync(a.b));
    OK(optc_sync(b.b));
    same_params(&a, &b, "stochastic rounding, stepped and replayed");
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(b.b, NULL));
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* Pieces that begin anywhere, in vectors of every width: the bits of the whole, on the CPU. */
START_TEST(rounding_of_pieces)
{
    SHARED();
    enum { N = 5000 };
    static const int64_t cut[] = {0, 3, 1028, 1030, 2054, N};
    static const char text[] =
        "return optimizer { name = 'x', state = { m = zeros('elem', 'f16sr') },\n"
        "  step = function() m = m + g p = g end }";
    static unsigned short p[N], want[N];
    static float g[N];
    optc_engine *e[2];
    optc_rule *r[2];
    optc_binding *b;
    CUdeviceptr dp, dg;
    int64_t whole = N;
    memset(want, 0, sizeof want);
    for (int i = 0; i < N; i++)
        g[i] = (float)ref_value(1, 0, i);
    ck_assert(!d->cuMemAlloc_v2(&dp, sizeof p) && !d->cuMemAlloc_v2(&dg, sizeof g) &&
              !d->cuMemcpyHtoDAsync_v2(dp, want, sizeof p, NULL) &&
              !d->cuMemcpyHtoDAsync_v2(dg, g, sizeof g, NULL) && !d->cuStreamSynchronize(NULL));
    for (int k = 0; k < 2; k++) {
        optc_engine_options o = {.device = k ? "cuda" : "cpu",
                                 .cache_dir = getenv("OPTC_TEST_CACHE")};
        OK(optc_open(&o, &e[k]));
        OK(optc_compile(e[k],
                        &(optc_rule_options){.text = text, .param = OPTC_BF16SR, .grad = OPTC_F32},
                        &r[k]));
    }
    for (int k = 0; k < 6; k++) {                          /* the last is the whole, on the CPU */
        int64_t at = k < 5 ? cut[k] : 0, n = k < 5 ? cut[k + 1] - cut[k] : N;
        optc_tensor t = {.param = k < 5 ? (void *)(uintptr_t)(dp + 2 * (CUdeviceptr)at) : want,
                         .rank = 1,
                         .shape = &n,
                         .grad = k < 5 ? (void *)(uintptr_t)(dg + 4 * (CUdeviceptr)at) : g,
                         .global_shape = k < 5 ? &whole : NULL,
                         .offset = k < 5 ? &at : NULL};
        OK(optc_bind(r[k < 5], &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        OK(optc_step(b));
        OK(optc_sync(b));
        OK(optc_unbind(b));
    }
    ck_assert(!d->cuMemcpyDtoHAsync_v2(p, dp, sizeof p, NULL) && !d->cuStreamSynchronize(NULL));
    for (int i = 0; i < N; i++)
        ck_assert_msg(p[i] == want[i], "element %d: 0x%04x, of the whole 0x%04x", i, p[i], want[i]);
    for (int k = 0; k < 2; k++) {
        OK(optc_release(r[k]));
        OK(optc_close(e[k]));
    }
    d->cuMemFree_v2(dp);
    d->cuMemFree_v2(dg);
}
END_TEST

void add_rounding(TCase *t)
{
    tcase_add_test(t, rounding_of_pieces);
    tcase_add_loop_test(t, rounding, 0, (int)(sizeof rounded / sizeof *rounded));
    tcase_add_test(t, rounding_in_graphs);
}

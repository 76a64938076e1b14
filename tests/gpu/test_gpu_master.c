/* Rules that keep what 16-bit parameters round away (gen/ir/master_pass.c): the GPU's bits against
 * the CPU's, and against f32 parameters over 1000 steps, captured ones among them. */
#include "tests/gpu/device_side.h"

#include <stdlib.h>
#include <string.h>

static const struct { const char *spec, *with, *types;
} kept[] = {{"adamw", "", "master=low16"},
            {"adamw", "clip(1),ema(0.9)", "master=low8"},
            {"lamb", "", "master=kahan"},
            {"adafactor", "", "master=low16,copy=f16"},
            {"adamw", "sam(0.05)", "master=f32,edits=find"},
            {"lamb", "", "master=f32,edits=find"}};

/* Writes some elements of the parameters on both sides. */
static void edit(Side *c, Side *g)
{
    for (int k = 0; k < NSHAPES; k++) {
        for (int64_t i = 0; i < c->n[k]; i += 3)
            type_store(T_BF16, c->hp[k], i, 0.25 * (double)(i % 7));
        ck_assert(!d->cuMemcpyHtoDAsync_v2(g->p[k], c->hp[k], (size_t)c->n[k] * 2, NULL) &&
                  !d->cuStreamSynchronize(NULL));
    }
}

START_TEST(same_bits)
{
    SHARED();
    Side c, g;
    optc_rule_options o = {
        .spec = kept[_i].spec, .with = kept[_i].with, .param = OPTC_BF16, .types = kept[_i].types};
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, _i % 4);
    for (int s = 1; s <= STEPS; s++) {
        if (s == 2 && strstr(kept[_i].types, "edits"))
            edit(&c, &g);
        set_grads(&c, s);
        set_grads(&g, s);
        for (int e = optc_rule_entries(c.r) - 1; e >= 0; e--) {
            OK(optc_run(c.b, optc_rule_entry(c.r, e)));
            OK(optc_run(g.b, optc_rule_entry(c.r, e)));
        }
    }
    compare(kept[_i].types, &c, &g);
    close_side(&g, _i % 4);
    close_side(&c, 0);
}
END_TEST

/* p becomes g, whatever bits that has; then the rule reads p. */
static const char probe[] = "return optimizer { name = \"probe\", state = { seen = zeros },\n"
                            "  step = function() p = g end,\n"
                            "  look = function() seen = p end }\n";

START_TEST(any_bits)
{
    SHARED();
    static const uint32_t edge[] = {0,          0x80000000, 1,          0x7fff,
                                    0x8000,     0x80008000, 0x007fffff, 0x00800000,
                                    0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f800000,
                                    0xff800000, 0x7fc00000, 0xffffffff, 0x3f808000};
    static const char *const types[] = {"master=low16", "master=low8", "master=f32",
                                        "master=kahan"};
    if (thinned(_i) && _i < 3)                 /* same_bits has the others */
        return;
    Side c, g;
    optc_rule_options o = {
        .spec = "probe", .text = probe, .param = OPTC_BF16, .grad = OPTC_F32, .types = types[_i]};
    open_side(&c, "cpu", o, 0);
    open_side(&g, "cuda", o, 1);
    for (int k = 0; k < NSHAPES; k++) {
        uint32_t *x = c.hg[k];
        for (int64_t i = 0; i < c.n[k]; i++)
            x[i] = i % 2 ? (uint32_t)splitmix((uint64_t)i)
                         : edge[i / 2 % (int)(sizeof edge / sizeof *edge)];
        ck_assert(!d->cuMemcpyHtoDAsync_v2(g.g[k], x, (size_t)c.n[k] * 4, NULL) &&
                  !d->cuStreamSynchronize(NULL));
    }
    for (int e = 0; e < 2; e++) {
        OK(optc_run(c.b, e ? "look" : "step"));
        OK(optc_run(g.b, e ? "look" : "step"));
    }
    compare(types[_i], &c, &g);
    close_side(&g, 1);
    close_side(&c, 0);
}
END_TEST

static void same_as_f32(Side *wide, Side *g)
{
    OK(optc_sync(g->b));
    fetch_params(g);
    for (int k = 0; k < NSHAPES; k++) {
        double *low = malloc(8 * (size_t)g->n[k]);
        OK(optc_state_read(g->b, k, "low", low, g->n[k]));
        for (int64_t i = 0; i < g->n[k]; i++) {
            uint32_t want,
                got = ((uint32_t)((uint16_t *)g->hp[k])[i] << 16) + (uint32_t)(int32_t)low[i];
            memcpy(&want, (char *)wide->hp[k] + 4 * i, 4);
            ck_assert_msg(got == want, "tensor %d, element %lld: %08x, in f32 %08x", k,
                          (long long)i, got, want);
        }
        free(low);
    }
}

/* Eager steps with new gradients, then replays of a captured one. */
START_TEST(thousand_steps)
{
    SHARED();
    enum { EAGER = 20 };
    int replayed = getenv("OPTC_TEST_SMALL") && !getenv("OPTC_ALL") ? 80 : 980;
    Side wide, g;
    CUstream st;
    void *graph, *exec;
    use_tiny_shapes();
    open_side(&wide, "cpu",
              (optc_rule_options){.spec = "adamw", .param = OPTC_F32, .grad = OPTC_BF16}, 0);
    open_side(&g, "cuda",
              (optc_rule_options){.spec = "adamw", .param = OPTC_BF16, .types = "master=low16"}, 0);
    for (int k = 0; k < NSHAPES; k++)
        for (int64_t i = 0; i < g.n[k]; i++)
            type_store(T_F32, wide.hp[k], i, type_load(T_BF16, g.hp[k], i));
    for (int s = 1; s <= EAGER; s++) {
        set_grads(&wide, s);
        set_grads(&g, s);
        OK(optc_step(wide.b));
        OK(optc_step(g.b));
    }
    same_as_f32(&wide, &g);
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_set_stream(g.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(g.b));
    ck_assert_msg(optc_params_changed(g.b, 0) != OPTC_OK, "the remainder was set inside a capture");
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int s = 0; s < replayed; s++) {
        ck_assert(!d->cuGraphLaunch(exec, st));
        OK(optc_step(wide.b));
    }
    same_as_f32(&wide, &g);
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(g.b, NULL));
    close_side(&g, 0);
    close_side(&wide, 0);
    d->cuStreamDestroy_v2(st);
}
END_TEST

START_TEST(written_between_steps)
{
    SHARED();
    static const char *const row[][2] = {{"master=low16", "low"}, {"master=f32", "master"}};
    Side g;
    open_side(&g, "cuda",
              (optc_rule_options){.spec = "sgd", .param = OPTC_BF16, .types = row[_i][0]}, 0);
    set_grads(&g, 1);
    OK(optc_step(g.b));
    OK(optc_sync(g.b));
    for (int k = 3; k < 5; k++) {
        double *x = malloc(8 * (size_t)g.n[k]);
        int64_t off = 0;
        for (int64_t i = 0; i < g.n[k]; i++)
            type_store(T_BF16, g.hp[k], i, 1 + (double)(i % 8));
        ck_assert(!d->cuMemcpyHtoDAsync_v2(g.p[k], g.hp[k], (size_t)g.n[k] * 2, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        OK(optc_params_changed(g.b, 3));
        OK(optc_state_read(g.b, k, row[_i][1], x, g.n[k]));
        for (int64_t i = 0; i < g.n[k]; i++)
            off += x[i] != (_i ? type_load(T_BF16, g.hp[k], i) : 0);
        ck_assert_msg(k == 3 ? !off : off > g.n[k] / 2, "%s of tensor %d: %lld are not those of p",
                      row[_i][1], k, (long long)off);
        free(x);
    }
    close_side(&g, 0);
}
END_TEST

void add_master(TCase *t)
{
    tcase_add_loop_test(t, same_bits, 0, (int)(sizeof kept / sizeof *kept));
    tcase_add_loop_test(t, any_bits, 0, 4);
    tcase_add_test(t, thousand_steps);
    tcase_add_loop_test(t, written_between_steps, 0, 2);
}

/* Contract C4: a captured step, replayed, is the step. */
#include "side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A captured step, replayed, equals steps taken one by one, also where `every` makes steps differ. */
START_TEST(graphs)
{
    static const struct { const char *spec, *with; } r[] = {{"adamw", ""}, {"lamb", "clip(1)"}, {"sgd", "lookahead(2,0.5)"}, {"adafactor", ""}};
    Side a, b;
    CUstream st;
    void *graph, *exec;
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_side(&a, "cuda", (optc_rule_options){.spec = r[_i].spec, .with = r[_i].with}, 0);
    open_side(&b, "cuda", (optc_rule_options){.spec = r[_i].spec, .with = r[_i].with}, 0);
    set_grads(&a, 1);
    set_grads(&b, 1);
    for (int s = 0; s < 6; s++)
        OK(optc_step(a.b));
    ck_assert_msg(a.b->gpu->play[0].exec || a.b->gpu->nphase > 1, "steps taken one by one do not run as a graph of our own");
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_set_stream(b.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(b.b));
    double x;
    FAILS(optc_set_t(b.b, 3), OPTC_ERROR_ARGUMENT, "not while the binding's stream is being captured");
    if (optc_rule_states(b.r))
        ck_assert(optc_state_read(b.b, 0, "m", &x, 1) != OPTC_OK);
    ck_assert(!d->cuStreamEndCapture(st, &graph) && !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    int64_t t;
    OK(optc_get_t(b.b, &t));
    ck_assert_msg(t == 1, "a captured step was counted: t is %lld", (long long)t);
    FAILS(optc_set_hyper(b.b, -1, "no such", 1), OPTC_ERROR_ARGUMENT, "no hyperparameter");
    for (int s = 0; s < 5; s++)
        ck_assert(!d->cuGraphLaunch(exec, st));
    OK(optc_get_t(b.b, &t));
    ck_assert_msg(t == 6, "after five replays t is %lld", (long long)t);
    OK(optc_step(a.b));
    OK(optc_step(b.b));                            /* and steps one by one go on from there, in the right phase */
    OK(optc_sync(b.b));
    OK(optc_sync(a.b));
    for (int k = 0; k < NSHAPES; k++) {
        ck_assert(!d->cuMemcpyDtoHAsync_v2(a.hp[k], a.p[k], (size_t)a.n[k] * 4, NULL) && !d->cuMemcpyDtoHAsync_v2(b.hp[k], b.p[k], (size_t)b.n[k] * 4, NULL) && !d->cuStreamSynchronize(NULL));
        ck_assert_msg(!memcmp(a.hp[k], b.hp[k], (size_t)a.n[k] * 4), "%s %s: tensor %d differs between eager and replayed", r[_i].spec, r[_i].with, k);
    }
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(b.b, NULL));
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* A captured step takes the hyperparameters of the moment it is replayed; tensors of groups with other values share its launches. */
START_TEST(hyper_in_graphs)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b[2];
    CUdeviceptr p[2][3], g;
    CUstream st;
    void *graph, *exec;
    enum { N = 5000 };
    static float hp[N], hg[N], out[2][3][N];
    int64_t n[1] = {N};
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    for (int i = 0; i < N; i++)
        hp[i] = (float)ref_value(0, 0, i), hg[i] = (float)ref_value(1, 0, i);
    ck_assert(!d->cuMemAlloc_v2(&g, N * 4) && !d->cuMemcpyHtoDAsync_v2(g, hg, N * 4, NULL));
    for (int side = 0; side < 2; side++) {
        optc_tensor t[3];
        optc_setting lr[3] = {{"lr", 1e-3}, {"lr", 2e-3}, {"lr", 0}};
        optc_group gr[3];
        for (int k = 0; k < 3; k++) {
            ck_assert(!d->cuMemAlloc_v2(&p[side][k], N * 4) && !d->cuMemcpyHtoDAsync_v2(p[side][k], hp, N * 4, NULL));
            t[k] = (optc_tensor){.param = (void *)(uintptr_t)p[side][k], .grad = (void *)(uintptr_t)g, .rank = 1, .shape = n};
            gr[k] = (optc_group){.tensors = &t[k], .ntensors = 1, .hyper = &lr[k], .nhyper = 1};
        }
        OK(optc_bind(r, gr, 3, &b[side]));
        OK(optc_step(b[side]));
    }
    ck_assert_int_eq(b[0]->gpu->play[0].n, 2);             /* three groups, two launches: one for the groups' values, one over all tensors */
    OK(optc_sync(b[1]));
    OK(optc_set_stream(b[1], st));
    /* A large binding that goes meanwhile does not disturb the capture, nor does one that comes and goes. */
    CUdeviceptr room;
    optc_binding *large, *other;
    int64_t many[1] = {1 << 26};
    ck_assert(!d->cuMemAlloc_v2(&room, (size_t)many[0] * 4));
    optc_tensor all = {.param = (void *)(uintptr_t)room, .rank = 1, .shape = many};
    OK(optc_bind(r, &(optc_group){.tensors = &all, .ntensors = 1}, 1, &large));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(b[1]));
    OK(optc_unbind(large));
    OK(optc_bind(r, &(optc_group){.tensors = &all, .ntensors = 1}, 1, &other));
    OK(optc_unbind(other));
    ck_assert(!d->cuStreamEndCapture(st, &graph) && !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    ck_assert(!d->cuMemFree_v2(room));
    for (int s = 0; s < 4; s++) {
        OK(optc_set_hyper(b[0], 1, "lr", 1e-2 / (s + 1)));
        OK(optc_set_hyper(b[1], 1, "lr", 1e-2 / (s + 1)));
        OK(optc_step(b[0]));
        ck_assert(!d->cuGraphLaunch(exec, st));
    }
    OK(optc_sync(b[0]));
    OK(optc_sync(b[1]));
    for (int k = 0; k < 3; k++) {
        for (int side = 0; side < 2; side++)
            ck_assert(!d->cuMemcpyDtoHAsync_v2(out[side][k], p[side][k], N * 4, NULL) && !d->cuStreamSynchronize(NULL));
        ck_assert_msg(!memcmp(out[0][k], out[1][k], N * 4), "group %d differs between eager and replayed", k);
    }
    ck_assert_msg(memcmp(out[0][0], out[0][1], N * 4) != 0, "groups with different rates moved alike");
    ck_assert_msg(!memcmp(out[0][2], hp, N * 4), "a rate of 0 moved a tensor (weight decay is scaled by it)");
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(b[1], NULL));
    OK(optc_unbind(b[0]));
    OK(optc_unbind(b[1]));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

void add_graphs(TCase *t)
{
    tcase_add_loop_test(t, graphs, 0, 4);
    tcase_add_test(t, hyper_in_graphs);
}

/* Tensors without a gradient, and tensors with different step counts: the GPU does what the CPU
 * does, eagerly and in graphs. */
#include "tests/gpu/device_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void leave_out(Side *s, uint32_t bits)
{
    const void *g[NSHAPES];
    for (int k = 0; k < NSHAPES; k++)
        g[k] = bits >> k & 1 ? NULL : s->g[k] ? (const void *)(uintptr_t)s->g[k] : s->hg[k];
    OK(optc_set_grads(s->b, g, NSHAPES));
}

static void same_counts(Side *c, Side *g)
{
    for (int k = -1; k < NSHAPES; k++) {
        int64_t x, y;
        OK(optc_get_t(c->b, k, &x));
        OK(optc_get_t(g->b, k, &y));
        ck_assert_msg(x == y, "tensor %d has done %lld steps on the CPU, %lld on the GPU", k,
                      (long long)x, (long long)y);
    }
}

static const char group_text[] =
    "return optimizer { name = 'grouped', hyper = { lr = 0.1 }, state = { d = fill(1, 'group'), "
    "avg = zeros 'group', s "
    "= zeros 'tensor', r = zeros 'row', k = zeros }, values = { most = 'group', middle = 'group' "
    "},\n"
    "  step = function()\n"
    "    most = global.max(max(g)); middle = global.mean(g)\n"
    "    avg = lerp(avg, middle, 0.5); d = d + t / (1 + d); s = s + t; r = r + rowmean(g)\n"
    "    every(3, function() k = k + t * g end)\n"
    "    p = p - lr * d * g / s + 0.01 * r + 0.01 * k + avg\n"
    "  end }";

static const optc_rule_options rules[] = {{.spec = "adamw", .with = "clip(1)"},
                                          {.spec = "adafactor"},
                                          {.spec = "lamb"},
                                          {.spec = "nadam", .with = "cautious"},
                                          {.spec = "grouped.lua", .text = group_text}};

/* The set of excluded tensors changes every step, a hyperparameter changes, and at the end every
 * tensor has a different
 * count: more cohorts than there is room for. */
START_TEST(different_counts)
{
    SHARED();
    if (thinned(_i))
        return;
    Side c, g;
    const optc_rule_options *r = &rules[_i];
    open_side(&c, "cpu", *r, 0);
    open_side(&g, "cuda", *r, 0);
    Side *side[2] = {&c, &g};
    for (int step = 0; step < 8; step++) {
        uint32_t out = step == 3 ? 0xfff
            : (uint32_t)splitmix((uint64_t)step + 7) & 0xa5f & (uint32_t)splitmix((uint64_t)step);
        for (int k = 0; k < 2; k++) {
            set_grads(side[k], step);
            leave_out(side[k], step == 6 ? 0 : out);
            if (step == 4)
                OK(optc_set_hyper(side[k]->b, 0, "lr", 0.003));
            for (int i = 0; step == 6 && i < NSHAPES; i++)
                OK(optc_set_t(side[k]->b, i, 3 * i));
            OK(optc_step(side[k]->b));
        }
        same_counts(&c, &g);
        compare(r->spec, &c, &g);
    }
    for (int i = 0; i < optc_rule_values(c.r); i++) {
        optc_state_info info;
        double x, y;
        OK(optc_rule_value(c.r, i, &info));
        OK(optc_read_value(c.b, 0, info.name, &x, 1));
        OK(optc_read_value(g.b, 0, info.name, &y, 1));
        bool may_be_0 = !strcmp(info.name, "out_of_range");
        ck_assert_msg(x == y && (x != 0 || may_be_0), "%s: %g on the CPU, %g on the GPU", info.name,
                      x, y);
    }
    double mean = 0;                               /* no tensor took part in step 3 */
    ck_assert(!r->text ||
              (optc_state_read(g.b, 0, "avg", &mean, 1) == OPTC_OK && mean - mean == 0));
    for (int k = 0; k < 2; k++) {                  /* and all tensors take part again */
        OK(optc_set_t(side[k]->b, -1, 50));
        OK(optc_step(side[k]->b));
    }
    same_counts(&c, &g);
    compare(r->spec, &c, &g);
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

static void replay(void *exec, CUstream st, Side *c, int n)
{
    for (int k = 0; k < n; k++) {
        ck_assert(!d->cuGraphLaunch(exec, st));
        OK(optc_step(c->b));
    }
}

static void *record(CUstream st, Side *g, const char *entry)
{
    void *graph, *exec;
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_run(g->b, entry));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    d->cuGraphDestroy(graph);
    return exec;
}

static void open_both(Side *c, Side *g, const optc_rule_options *r, CUstream *st)
{
    ck_assert(!d->cuStreamCreate(st, 1));
    open_side(c, "cpu", *r, 0);
    open_side(g, "cuda", *r, 0);
    OK(optc_sync(g->b));
    OK(optc_set_stream(g->b, *st));
    set_grads(c, 1);
    set_grads(g, 1);
}

static void close_both(Side *c, Side *g, CUstream st)
{
    OK(optc_sync(g->b));
    OK(optc_set_stream(g->b, NULL));
    close_side(c, 0);
    close_side(g, 0);
    d->cuStreamDestroy_v2(st);
}

/* Another entry that includes all tensors ran before: a captured step still uses the participation
 * of its own entry. A refused call changes nothing. */
START_TEST(captured_beside_another_entry)
{
    SHARED();
    static const optc_rule_options r = {.spec = "two.lua", .text =
        "return optimizer { name = 'two', hyper = { lr = 0.1 }, state = { m = zeros },\n"
        "  step = function() m = lerp(m, g, 0.1); p = p - lr * m / t end, "
        "other = function() p = 0.5 * p + 0 * t end }"};
    Side c, g;
    CUstream st;
    open_both(&c, &g, &r, &st);
    Side *side[2] = {&c, &g};
    for (int k = 0; k < 2; k++) {
        OK(optc_run(side[k]->b, "other"));
        OK(optc_step(side[k]->b));
    }
    OK(optc_run(c.b, "other"));
    OK(optc_run(g.b, "other"));
    void *exec = record(st, &g, "step");
    replay(exec, st, &c, 2);
    leave_out(&g, 0x22);
    FAILS(optc_run(g.b, "other"), OPTC_ERROR_ARGUMENT, "give every tensor a gradient first");
    replay(exec, st, &c, 1);                       /* still all tensors */
    same_counts(&c, &g);
    compare("refused", &c, &g);
    leave_out(&c, 0x22);
    for (int k = 0; k < 2; k++)
        OK(optc_step(side[k]->b));
    replay(exec, st, &c, 2);
    FAILS(optc_run(g.b, "other"), OPTC_ERROR_ARGUMENT, "give every tensor a gradient first");
    replay(exec, st, &c, 1);
    same_counts(&c, &g);
    compare("left out", &c, &g);
    d->cuGraphExecDestroy(exec);
    close_both(&c, &g, st);
}
END_TEST

/* A rule with group states: cohorts that existed at the capture continue; new cohorts are refused,
 * and nothing changes. */
START_TEST(groups_in_graphs)
{
    SHARED();
    static const optc_rule_options r = {.spec = "grouped.lua", .text = group_text};
    Side c, g;
    CUstream st;
    int64_t steps;
    open_both(&c, &g, &r, &st);
    Side *side[2] = {&c, &g};
    for (int step = 0; step < 2; step++)
        for (int k = 0; k < 2; k++) {
            leave_out(side[k], step ? 0 : 0x21);
            OK(optc_step(side[k]->b));
        }
    void *exec = record(st, &g, "step");
    replay(exec, st, &c, 2);
    for (int k = 0; k < 2; k++) {                  /* leaving is allowed, coming back is not */
        leave_out(side[k], 0x40);
        OK(optc_step(side[k]->b));
    }
    replay(exec, st, &c, 2);
    same_counts(&c, &g);
    compare("captured, with states of groups", &c, &g);
    leave_out(&g, 0);
    FAILS(optc_step(g.b), OPTC_ERROR_ARGUMENT,
          "'grouped' has group states, and a tensor has a step count that no tensor had");
    replay(exec, st, &c, 2);
    same_counts(&c, &g);
    compare("refused", &c, &g);
    OK(optc_get_t(g.b, -1, &steps));
    for (int k = 0; k < 2; k++) {
        leave_out(side[k], 0);
        OK(optc_set_t(side[k]->b, -1, steps));
        OK(optc_step(side[k]->b));
    }
    replay(exec, st, &c, 2);
    same_counts(&c, &g);
    compare("at one again", &c, &g);
    d->cuGraphExecDestroy(exec);
    close_both(&c, &g, st);
}
END_TEST

/* A rule that does not use t needs no cohorts, however many counts there are. */
START_TEST(counts_without_t)
{
    SHARED();
    static const optc_rule_options r = {.spec = "lion"};
    Side c, g;
    CUstream st;
    open_both(&c, &g, &r, &st);
    OK(optc_step(c.b));
    OK(optc_step(g.b));
    void *exec = record(st, &g, "step");
    for (int i = 0; i < NSHAPES; i++) {
        OK(optc_set_t(c.b, i, 5 * i));
        OK(optc_set_t(g.b, i, 5 * i));
    }
    OK(optc_step(c.b));
    OK(optc_step(g.b));
    same_counts(&c, &g);
    replay(exec, st, &c, 2);
    compare("lion", &c, &g);
    d->cuGraphExecDestroy(exec);
    close_both(&c, &g, st);
}
END_TEST

static int allowed;
static int some_copies(CUdeviceptr to, const void *from, size_t bytes, CUstream st)
{
    return allowed-- > 0 ? d->cuMemcpyHtoDAsync_v2(to, from, bytes, st) : CUDA_ERROR_INVALID_VALUE;
}

/* During a capture nothing is allocated, and a refused call leaves the capture valid. A copy that
 * fails half way is undone. */
START_TEST(refused_during_capture)
{
    SHARED();
    static const optc_rule_options r = {.spec = "grouped.lua", .text = group_text};
    Side c, g;
    CUstream st;
    void *graph;
    optc_memory was, now;
    open_both(&c, &g, &r, &st);
    Side *side[2] = {&c, &g};
    const Driver *real = g.e->gpu->d;
    Driver some = *real;
    some.cuMemcpyHtoDAsync_v2 = some_copies;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++)
            OK(optc_set_t(side[k]->b, i, 3 * i + 1));
    OK(optc_step(c.b));
    OK(optc_step(g.b));
    for (int i = 0; i < NSHAPES; i++)              /* more than there is room for */
        OK(optc_set_t(g.b, i, 40 + i));
    OK(optc_memory_info(g.e, &was));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    FAILS(optc_step(g.b), OPTC_ERROR_ARGUMENT, "run one step before capturing");
    for (int i = 0; i < NSHAPES; i++)
        OK(optc_set_t(g.b, i, i < 3 ? 3 * i + 2 : 1));
    FAILS(optc_set_hyper(g.b, 0, "lr", 0.7), OPTC_ERROR_ARGUMENT,
          "not allowed while the binding's stream is being captured");
    OK(optc_step(g.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    d->cuGraphDestroy(graph);
    OK(optc_memory_info(g.e, &now));
    ck_assert_msg(now.ours == was.ours, "memory was taken for a step that was refused");
    void *exec = record(st, &g, "step");
    replay(exec, st, &c, 2);
    /* the second cohort fails: the first gets its old values back, with the device's t */
    g.e->gpu->d = &some;
    allowed = 1;
    FAILS(optc_set_hyper(g.b, 0, "lr", 0.7), OPTC_ERROR_DEVICE, "optc_set_hyper");
    g.e->gpu->d = real;
    OK(optc_step(c.b));
    OK(optc_step(g.b));
    same_counts(&c, &g);
    compare("a copy that failed", &c, &g);
    g.e->gpu->d = &some;                           /* one copy that contains everything */
    allowed = 1;
    OK(optc_set_t(g.b, -1, 6));
    g.e->gpu->d = real;
    OK(optc_set_t(c.b, -1, 6));
    replay(exec, st, &c, 2);
    OK(optc_step(c.b));
    OK(optc_step(g.b));
    same_counts(&c, &g);
    compare("counts that were set", &c, &g);
    d->cuGraphExecDestroy(exec);
    close_both(&c, &g, st);
}
END_TEST

/* A captured step excludes the tensors that are excluded at replay, also after that set changes;
 * counts follow. */
START_TEST(different_counts_in_graphs)
{
    SHARED();
    static const optc_rule_options r = {.spec = "adamw", .with = "clip(1)"};
    Side c, g;
    CUstream st;
    void *graph, *exec;
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_side(&c, "cpu", r, 0);
    open_side(&g, "cuda", r, 0);
    Side *side[2] = {&c, &g};
    for (int k = 0; k < 2; k++) {
        set_grads(side[k], 1);
        leave_out(side[k], 0x21);
        OK(optc_step(side[k]->b));
    }
    OK(optc_sync(g.b));
    OK(optc_set_stream(g.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(g.b));
    OK(optc_set_grad(g.b, 3, NULL, 0));
    FAILS(optc_step(g.b), OPTC_ERROR_ARGUMENT, "run one step before capturing");
    OK(optc_set_grad(g.b, 3, (const void *)(uintptr_t)g.g[3], 0));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    replay(exec, st, &c, 3);
    same_counts(&c, &g);
    compare("captured", &c, &g);
    /* two tensors come back, with their own counts, and another one is excluded */
    for (int k = 0; k < 2; k++) {
        leave_out(side[k], 0x40);
        OK(optc_step(side[k]->b));
    }
    replay(exec, st, &c, 2);
    same_counts(&c, &g);
    compare("captured, then changed", &c, &g);
    for (int i = 0; i < NSHAPES; i++)
        OK(optc_set_t(g.b, i, 5 * i));
    FAILS(optc_step(g.b), OPTC_ERROR_ARGUMENT,
          "more different step counts than the captured graph can hold");
    for (int k = 0; k < 2; k++) {
        OK(optc_set_t(side[k]->b, -1, 9));
        OK(optc_step(side[k]->b));
    }
    replay(exec, st, &c, 2);
    same_counts(&c, &g);
    compare("captured, at one again", &c, &g);
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(g.b, NULL));
    close_side(&c, 0);
    close_side(&g, 0);
    d->cuStreamDestroy_v2(st);
}
END_TEST

void add_cohorts(TCase *t)
{
    tcase_add_loop_test(t, different_counts, 0, sizeof rules / sizeof *rules);
    tcase_add_test(t, different_counts_in_graphs);
    tcase_add_test(t, captured_beside_another_entry);
    tcase_add_test(t, groups_in_graphs);
    tcase_add_test(t, counts_without_t);
    tcase_add_test(t, refused_during_capture);
}

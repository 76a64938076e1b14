/* Contract C4: a captured and replayed step equals the step. */
#include "tests/gpu/device_side.h"
#include "runtime/core/schedule/schedule_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replays of a captured step equal single steps, also where `every` makes steps differ. */
START_TEST(graphs)
{
    SHARED();
    if (thinned(_i))
        return;
    static const struct { const char *spec, *with; } r[] =
        {{"adamw", ""}, {"lamb", "clip(1)"}, {"sgd", "lookahead(2,0.5)"}, {"adafactor", ""}};
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
    ck_assert_msg(list_whole(a.b->gpu->launch_list) || a.b->gpu->nphase > 1,
                  "steps taken one by one do not run as a graph of our own");
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_set_stream(b.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(b.b));
    double x;
    FAILS(optc_set_t(b.b, -1, 3), OPTC_ERROR_ARGUMENT,
          "not allowed while the binding's stream is being captured");
    if (optc_rule_states(b.r))
        ck_assert(optc_state_read(b.b, 0, "m", &x, 1) != OPTC_OK);
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    int64_t t;
    OK(optc_get_t(b.b, -1, &t));
    ck_assert_msg(t == 1, "a captured step was counted: t is %lld", (long long)t);
    FAILS(optc_set_hyper(b.b, -1, "no such", 1), OPTC_ERROR_ARGUMENT, "no hyperparameter");
    for (int s = 0; s < 5; s++)
        ck_assert(!d->cuGraphLaunch(exec, st));
    OK(optc_get_t(b.b, -1, &t));
    /* rules that do not use t do not count replays */
    ck_assert_msg(t == (b.r->program->needs_t ? 6 : 1), "after five replays t is %lld",
                  (long long)t);
    OK(optc_step(a.b));
    /* single steps continue from there, in the right phase */
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_sync(a.b));
    for (int k = 0; k < NSHAPES; k++) {
        ck_assert(!d->cuMemcpyDtoHAsync_v2(a.hp[k], a.p[k], (size_t)a.n[k] * 4, NULL) &&
                  !d->cuMemcpyDtoHAsync_v2(b.hp[k], b.p[k], (size_t)b.n[k] * 4, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        ck_assert_msg(!memcmp(a.hp[k], b.hp[k], (size_t)a.n[k] * 4),
                      "%s %s: tensor %d differs between eager and replayed", r[_i].spec, r[_i].with,
                      k);
    }
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(b.b, NULL));
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* A replay uses the hyperparameters of the moment of the replay. Groups with different values share
 * the launches. */
START_TEST(hyper_in_graphs)
{
    SHARED();
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
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    for (int i = 0; i < N; i++)
        hp[i] = (float)ref_value(0, 0, i), hg[i] = (float)ref_value(1, 0, i);
    ck_assert(!d->cuMemAlloc_v2(&g, N * 4) && !d->cuMemcpyHtoDAsync_v2(g, hg, N * 4, NULL));
    for (int side = 0; side < 2; side++) {
        optc_tensor t[3];
        optc_setting lr[3] = {{"lr", 1e-3}, {"lr", 2e-3}, {"lr", 0}};
        optc_group gr[3];
        for (int k = 0; k < 3; k++) {
            ck_assert(!d->cuMemAlloc_v2(&p[side][k], N * 4) &&
                      !d->cuMemcpyHtoDAsync_v2(p[side][k], hp, N * 4, NULL));
            t[k] = (optc_tensor){.param = (void *)(uintptr_t)p[side][k],
                                 .grad = (void *)(uintptr_t)g,
                                 .rank = 1,
                                 .shape = n};
            gr[k] = (optc_group){.tensors = &t[k], .ntensors = 1, .hyper = &lr[k], .nhyper = 1};
        }
        OK(optc_bind(r, gr, 3, &b[side]));
        OK(optc_step(b[side]));
    }
    /* three groups, two launches: one for the groups' values, one over all tensors */
    ck_assert_int_eq(b[0]->gpu->launch_list[0].n, 2);
    OK(optc_sync(b[1]));
    OK(optc_set_stream(b[1], st));
    /* A large binding that is freed meanwhile does not disturb the capture, nor does one that is
     * created and freed. */
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
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
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
            ck_assert(!d->cuMemcpyDtoHAsync_v2(out[side][k], p[side][k], N * 4, NULL) &&
                      !d->cuStreamSynchronize(NULL));
        ck_assert_msg(!memcmp(out[0][k], out[1][k], N * 4),
                      "group %d differs between eager and replayed", k);
    }
    ck_assert_msg(memcmp(out[0][0], out[0][1], N * 4) != 0,
                  "groups with different rates moved alike");
    ck_assert_msg(!memcmp(out[0][2], hp, N * 4),
                  "a rate of 0 moved a tensor (weight decay is scaled by it)");
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(b[1], NULL));
    OK(optc_unbind(b[0]));
    OK(optc_unbind(b[1]));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- what goes while somebody captures ---- */
static void still_captured(CUstream st, const char *what)
{
    int status = 0;
    ck_assert_msg(!d->cuStreamIsCapturing(st, &status) && status == 1, "%s ended a capture: %d",
                  what, status);
}

/* A garbage collector may free objects during a capture, so all of them can be freed then. Only an
 * engine must not be closed during a capture (optc.h). */
START_TEST(freed_during_capture)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'much', state = { A = eye(1, 'rows'), V = zeros 'rows', X = "
        "zeros 'rows' },\n"
        "  matrix = function() A = A + gram(g)  local w, U = eigh(A)  V = U  X = power(A, -1/4) "
        " p = p - mm(X, g) end, step = function() p = p - g end }";
    enum { N = 16 };
    static const TestShape small[NSHAPES] = {{2, {48, 20}}, {2, {5, 9}}, {1, {7}}};
    Side g, much;
    CUstream st;
    CUgraph graph;
    CUgraphExec exec;
    optc_product x = {.type = OPTC_F32, .m = N, .n = N, .k = N};
    CUdeviceptr room;
    ck_assert(!d->cuStreamCreate(&st, 1) && !d->cuMemAlloc_v2(&room, 3 * 4 * N * N));
    use_shapes(small);
    open_side(&g, "cuda", (optc_rule_options){.spec = "adamw"}, 0);
    open_side(&much, "cuda", (optc_rule_options){.text = text}, 0);
    x.a = (void *)(uintptr_t)room, x.b = (void *)(uintptr_t)(room + 4 * N * N),
        x.c = (void *)(uintptr_t)(room + 8 * N * N);
    OK(optc_multiply(much.e, &x));
    for (int i = 0; i < 3; i++) {
        set_grads(&much, i);
        OK(optc_step(much.b));
    }
    set_grads(&g, 1);
    OK(optc_step(g.b));
    OK(optc_sync(g.b));
    OK(optc_sync(much.b));
    OK(optc_set_stream(g.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(g.b));
    still_captured(st, "a step");
    OK(optc_sync(much.b));
    still_captured(st, "optc_sync");
    OK(optc_unbind(much.b));
    still_captured(st, "optc_unbind");
    OK(optc_release(much.r));
    still_captured(st, "optc_release");
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
    int64_t t;
    OK(optc_get_t(g.b, -1, &t));
    ck_assert_int_eq(t, 2);
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(g.b, NULL));
    close_side(&g, 0);
    OK(optc_close(much.e));
    free_arrays(&much, 0);
    d->cuMemFree_v2(room);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* ---- gradients that are allocated in the capture ---- */
/* a graph and its own gradients */
typedef struct Apart { CUdeviceptr g[NSHAPES]; CUgraph graph; CUgraphExec exec; } Apart;

static void put_grads(const Side *s, const CUdeviceptr *g)
{
    const void *at[NSHAPES];
    for (int k = 0; k < NSHAPES; k++)
        at[k] = (const void *)(uintptr_t)g[k];
    OK(optc_set_grads(s->b, at, NSHAPES));
}

/* copies the gradients of `values` */
static void fill_apart(const Side *values, const Apart *x)
{
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemcpyHtoDAsync_v2(x->g[k], values->hg[k],
                                           (size_t)values->n[k] * values->wg, NULL));
    d->cuStreamSynchronize(NULL);
}

static void capture_apart(Side *s, Apart *x, CUstream st)
{
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemAlloc_v2(&x->g[k], (size_t)s->n[k] * s->wg + 256));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    put_grads(s, x->g);
    OK(optc_step(s->b));
    ck_assert(!d->cuStreamEndCapture(st, &x->graph) &&
              !d->cuGraphInstantiateWithFlags(&x->exec, x->graph, 0));
}

/* Two graphs with different gradient addresses, and single steps in between: each uses its own,
 * also in products. */
START_TEST(own_pointers)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { l = zeros 'rows' },\n"
        "  matrix = function() every(2, function() l = 0.9 * l + gram(g) end) p = p - lr * "
        "mm(l, g) end,\n"
        "  step = function() p = p - lr * g end }";
    const optc_rule_options o = _i ? (optc_rule_options){.text = text}
        : (optc_rule_options){.spec = "adamw", .with = "clip(1)"};
    /* gradients of graph 1 or 2, or (0) of the side in a single step */
    static const int who[] = {1, 2, 0, 1, 1, 0, 2, 0};
    Side a, b;
    Apart x[2];
    CUstream st;
    use_tiny_shapes();
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    set_grads(&a, 1), set_grads(&b, 1);
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_set_stream(b.b, st));
    capture_apart(&b, &x[0], st);
    capture_apart(&b, &x[1], st);
    for (int i = 0; i < 8; i++) {
        set_grads(&a, 2 + i);
        OK(optc_step(a.b));
        if (who[i]) {
            fill_apart(&a, &x[who[i] - 1]);
            ck_assert(!d->cuGraphLaunch(x[who[i] - 1].exec, st));
        /* a graph's gradients in a step outside of it, once */
        } else {
            set_grads(&b, 2 + i);
            fill_apart(&a, &x[0]);
            put_grads(&b, i == 5 ? x[0].g : b.g);
            OK(optc_step(b.b));
        }
        OK(optc_sync(b.b));
    }
    OK(optc_sync(a.b));
    same_params(&a, &b, "graphs with gradients of their own");
    CUgraph graph;
    optc_memory was, now;
    OK(optc_memory_info(b.e, &was));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    put_grads(&b, x[0].g);
    /* the previous addresses: there is a table for them */
    OK(optc_step(b.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    OK(optc_memory_info(b.e, &now));
    ck_assert(now.ours == was.ours);
    for (int k = 0; k < 2; k++) {
        d->cuGraphExecDestroy(x[k].exec);
        d->cuGraphDestroy(x[k].graph);
        for (int i = 0; i < NSHAPES; i++)
            d->cuMemFree_v2(x[k].g[i]);
    }
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(b.b, NULL));
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* ---- calls that fail change nothing ---- */
static int array_of(const Program *p, const char *name)
{
    int k = 0;
    while (strcmp(p->array[k].name, name))
        k++;
    return k;
}

static int allowed;                            /* number of copies from the host that succeed */
static const Driver *real;
static int some_copies(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    return allowed-- > 0 ? real->cuMemcpyHtoDAsync_v2(to, from, n, s) : 1;
}
static int some_spreads(const CUDA_MEMCPY2D *c, CUstream s)
{
    return allowed-- > 0 ? real->cuMemcpy2DAsync_v2(c, s) : 1;
}

START_TEST(failed_calls_change_nothing)
{
    SHARED();
    static const char text[] = "return optimizer { name = 'x', hyper = { lr = 0.1 }, inputs = { "
                               "loss = 'group' }, step = function() p = p - "
                               "lr * g * loss / t end }";
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p;
    optc_tensor t[3];
    optc_group gr[3];
    int64_t n[1] = {16};
    ck_assert(!d->cuMemAlloc_v2(&p, 4096));
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    for (int k = 0; k < 3; k++) {
        t[k] = (optc_tensor){.param = (void *)(uintptr_t)(p + 256u * (unsigned)k),
                             .grad = (void *)(uintptr_t)(p + 2048), .rank = 1, .shape = n};
        gr[k] = (optc_group){.tensors = &t[k], .ntensors = 1};
    }
    OK(optc_bind(r, gr, 3, &b));
    Driver some = *(real = e->gpu->d);
    int loss = array_of(r->program, "loss");
    some.cuMemcpyHtoDAsync_v2 = some_copies;
    some.cuMemcpy2DAsync_v2 = some_spreads;
    double now[3] = {0, 0.1, 0};               /* t, lr, loss */
    for (int what = 0; what < 3; what++)
        for (int k = 0; k < 4; k++) {
            double value = 1 + what + 0.125 * k;
            value = what ? value : 5 + k;
            allowed = k;
            e->gpu->d = &some;
            optc_status s = what == 0 ? optc_set_t(b, -1, (int64_t)value) : what == 1
                ? optc_set_hyper(b, -1, "lr", value) : optc_set_scalar(b, -1, "loss", value);
            e->gpu->d = real;
            ck_assert(k || s != OPTC_OK);
            now[what] = s == OPTC_OK ? value : now[what];
            OK(optc_sync(b));
            for (int i = 0; i < 3; i++) {
                double x[2], y, lr;
                OK(gpu_read(b, x,
                            (void *)(uintptr_t)(b->gpu->hyper + gpu_hyper_bytes(b) * (size_t)i), 16,
                            "test"));
                OK(gpu_read(b, &y, b->group[i].mem[loss], 8, "test"));
                OK(optc_get_hyper(b, i, "lr", &lr));
                ck_assert_msg(x[0] == now[0] && x[1] == now[1] && y == now[2] && lr == now[1],
                              "call %d, %d copies: group %d has t %g, lr %g (%g), loss %g", what, k,
                              i, x[0], x[1], lr, y);
            }
        }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
    d->cuMemFree_v2(p);
}
END_TEST

void add_graphs(TCase *t)
{
    tcase_add_test(t, failed_calls_change_nothing);
    tcase_add_test(t, freed_during_capture);
    tcase_add_loop_test(t, graphs, 0, 4);
    tcase_add_test(t, hyper_in_graphs);
    tcase_add_loop_test(t, own_pointers, 0, 2);
}

/* Device scalars and guards: a scalar on the device has the effect of setting it, a guarded step
 * that of not running it. Also parameters that move. */
#include "tests/gpu/device_side.h"
#include "runtime/core/api/api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 10 };
/* products into states at some steps; slots with too many combinations need the guard on the
 * host */
#define PRODUCTS(how) \
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { l = eye(0.5, 'rows'), s = " \
    "zeros 'rows' },\n" \
    "  matrix = function() l = 0.9 * l + 0.1 * gram(g) every(" how "function() s = mm(l, l) end) " \
    "p = p - lr * mm(s, g) end,\n" \
    "  step = function() p = p - lr * g end }"
static const struct { const char *spec, *with, *text; bool tiny, waits;
} rules[] = {{"lamb", "clip(1)", NULL, false, false},
             {"adamw", "", NULL, false, false},
             {"adafactor", "", NULL, false, false},
             {"sgd", "lookahead(3,0.5)", NULL, false, false},
             {"lion", "ema(0.9)", NULL, false, false},
             {"muon", "", NULL, true, false},
             {"products", "", PRODUCTS("2, "), true, false},
             {"turns", "", PRODUCTS("3, { stagger = true }, "), true, false},
             {"long turns", "", PRODUCTS("5000, { stagger = true, first = true }, "), true, true}};
enum { NRULES = sizeof rules / sizeof *rules };

typedef struct Numbers { float guard, rate; double wide; } Numbers;

static Numbers numbers_at(int step)
{
    return (Numbers){step % 4 == 2   ? 1
                     : step % 7 == 0 ? NAN
                                     : 0,
                     (float)(0.01 / step), 0.02 / step};
}
static bool left_out(int step) { return !(numbers_at(step).guard == 0); }
static void *at(CUdeviceptr p, size_t offset) { return (void *)(uintptr_t)(p + offset); }

static void send(CUdeviceptr to, int step, CUstream st)
{
    Numbers n = numbers_at(step);
    ck_assert(!d->cuMemcpyHtoDAsync_v2(to, &n, sizeof n, st) && !d->cuStreamSynchronize(st));
}

static void same_states(Side *a, Side *b, const char *what)
{
    optc_state_info info;
    for (int k = 0; k < optc_rule_states(a->r); k++)
        for (int i = 0; i < NSHAPES; i++) {
            optc_state_view v;
            OK(optc_rule_state(a->r, k, &info));
            /* a state of another variant, or a group state, of which there is one */
            if (optc_state(a->b, i, info.name, &v) != OPTC_OK)
                continue;
            double *x = malloc(8 * (size_t)v.count + 8), *y = malloc(8 * (size_t)v.count + 8);
            OK(optc_state_read(a->b, i, info.name, x, v.count));
            OK(optc_state_read(b->b, i, info.name, y, v.count));
            ck_assert_msg(!memcmp(x, y, 8 * (size_t)v.count), "%s: state '%s' of tensor %d", what,
                          info.name, i);
            free(x), free(y);
        }
}

/* b reads its scalars and guard on the device, also in captures. a gets the values by optc_set_*,
 * and skips steps by hand. */
START_TEST(guarded_steps)
{
    SHARED();
    const char *spec = rules[_i].spec;
    bool wide = _i % 2;
    optc_rule_options o = {
        .spec = rules[_i].text ? NULL : spec, .with = rules[_i].with, .text = rules[_i].text};
    Side a, b;
    CUdeviceptr n;
    CUstream st;
    void *graph = NULL, *exec = NULL;
    int64_t ta, tb;
    if (thinned(_i))
        return;
    if (rules[_i].tiny)
        use_tiny_shapes();
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    ck_assert(!d->cuMemAlloc_v2(&n, sizeof(Numbers)) && !d->cuStreamCreate(&st, 1));
    OK(optc_set_stream(b.b, st));
    OK(optc_set_hyper_from(b.b, -1, "lr",
                           at(n, wide ? offsetof(Numbers, wide) : offsetof(Numbers, rate)),
                           wide ? OPTC_F64 : OPTC_F32));
    OK(optc_set_guard(b.b, at(n, 0), OPTC_F32));
    for (int step = 1; step <= 2 * RUNS; step++) {
        bool replay = step > RUNS && !rules[_i].waits;
        set_grads(&a, step);
        set_grads(&b, step);
        send(n, step, st);
        if (step == RUNS + 1) {
            ck_assert(!d->cuStreamBeginCapture_v2(st, 2));
            if (rules[_i].waits)
                FAILS(optc_step(b.b), OPTC_ERROR_ARGUMENT, "the host must read the guard");
            else
                OK(optc_step(b.b));
            ck_assert(!d->cuStreamEndCapture(st, &graph) &&
                      (rules[_i].waits || !d->cuGraphInstantiateWithFlags(&exec, graph, 0)));
        }
        if (replay && step % 3)                    /* replays, with single steps in between */
            ck_assert(!d->cuGraphLaunch(exec, st));
        else
            OK(optc_step(b.b));
        OK(optc_set_hyper(a.b, -1, "lr", wide ? numbers_at(step).wide : numbers_at(step).rate));
        if (!left_out(step))
            OK(optc_step(a.b));
        same_params(&a, &b, format("%s, step %d", spec, step));
        OK(optc_get_t(a.b, 0, &ta));
        OK(optc_get_t(b.b, 0, &tb));
        ck_assert_msg(ta == tb || !b.r->program->needs_t, "%s, step %d: t is %d, not %d", spec,
                      step, (int)tb, (int)ta);
    }
    same_states(&a, &b, spec);
    if (exec)
        d->cuGraphExecDestroy(exec);
    if (graph)
        d->cuGraphDestroy(graph);
    /* without a guard all tensors take part again */
    OK(optc_set_guard(b.b, NULL, OPTC_F32));
    OK(optc_step(a.b));
    OK(optc_set_hyper(b.b, -1, "lr", numbers_at(2 * RUNS).rate));
    OK(optc_set_hyper(a.b, -1, "lr", numbers_at(2 * RUNS).rate));
    OK(optc_step(b.b));
    OK(optc_set_stream(b.b, NULL));
    close_side(&a, 0);
    close_side(&b, 0);
    ck_assert(!d->cuMemFree_v2(n) && !d->cuStreamDestroy_v2(st));
}
END_TEST

/* ---- launches that fail ---- */
static const Driver *real;
static CUfunction reads_guard;
/* this many launches after the guard's, one fails; -1: none does */
static int until;
static bool fails_now(bool guards)
{
    bool fails = until == 1;
    until = until > 1 ? until - 1 : fails ? -1 : until == 0 && guards ? 1 : until;
    return fails;
}
static int fail_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, CUstream s, void **args,
                       void **more)
{
    return fails_now(f == reads_guard)
               ? 1
               : real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}
static int fail_graph(CUgraphExec e, CUstream s)
{
    return fails_now(false) ? 1 : real->cuGraphLaunch(e, s);
}

/* The launch after the guard's fails. */
static void failing_step(optc_binding *b, const char *call)
{
    GpuEngine *g = b->rule->engine->gpu;
    Driver failing = *(real = g->d);
    failing.cuLaunchKernel = fail_launch;
    failing.cuGraphLaunch = fail_graph;
    reads_guard = b->gpu->code->read_ahead;
    until = 0;
    g->d = &failing;
    optc_status s = optc_step(b);
    g->d = real;
    ck_assert_msg(s == OPTC_ERROR_DEVICE && until < 0, "status %d", (int)s);
    ck_assert_msg(!strncmp(optc_message(), call, strlen(call)), "%s", optc_message());
}

/* A step whose first launch fails changes nothing, also if its guard would have skipped it: b
 * counts steps as a does, which takes only those that are not skipped. */
START_TEST(failing_launches)
{
    SHARED();
    static const int of[] = {0, 1, 5, 6, 7};               /* of `rules` */
    const int at_rule = of[_i];
    optc_rule_options o = {.spec = rules[at_rule].text ? NULL : rules[at_rule].spec,
                           .with = rules[at_rule].with,
                           .text = rules[at_rule].text};
    Side a, b;
    int64_t ta, tb;
    use_tiny_shapes();
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    float *guard = device_take(sizeof *guard);
    OK(optc_set_guard(b.b, guard, OPTC_F32));
    for (int step = 1; step <= 7; step++) {
        float skips = step % 3 != 1;
        device_put(guard, &skips, sizeof skips);
        set_grads(&a, step);
        set_grads(&b, step);
        for (int k = 0; k < 2; k++) {
            /* a graph from the second run on, or at once for rules with products */
            failing_step(b.b,
                         step > 1 || k || b.b->gpu->calls ? "cuGraphLaunch" : "cuLaunchKernel");
            OK(optc_get_t(a.b, 0, &ta));
            OK(optc_get_t(b.b, 0, &tb));
            ck_assert_msg(ta == tb || !b.r->program->needs_t, "%s, step %d: t is %d, not %d",
                          rules[at_rule].spec, step, (int)tb, (int)ta);
            same_params(&a, &b, format("%s, step %d failed", rules[at_rule].spec, step));
        }
        OK(optc_step(b.b));
        if (!skips)
            OK(optc_step(a.b));
        same_params(&a, &b, format("%s, step %d", rules[at_rule].spec, step));
    }
    same_states(&a, &b, rules[at_rule].spec);
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* The launch that restores t fails too: the step count is not known until it is set, and no call
 * returns another. */
static bool all_fail;
static int fail_all(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                    unsigned bz, unsigned shared, CUstream s, void **args, void **more)
{
    if (all_fail)
        return 1;
    all_fail = f == reads_guard;
    return real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}
static int fail_any_graph(CUgraphExec e, CUstream s)
{
    return all_fail ? 1 : real->cuGraphLaunch(e, s);
}

static void lose_count(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    Driver failing = *(real = g->d);
    failing.cuLaunchKernel = fail_all;
    failing.cuGraphLaunch = fail_any_graph;
    reads_guard = b->gpu->code->read_ahead;
    all_fail = false;
    g->d = &failing;
    optc_status s = optc_step(b);
    g->d = real;
    ck_assert_msg(s == OPTC_ERROR_DEVICE && all_fail, "status %d", (int)s);
}

static void step_both(Side *a, Side *b, int step)
{
    int64_t t;
    OK(optc_step(a->b));
    OK(optc_step(b->b));
    OK(optc_get_t(b->b, -1, &t));
    ck_assert_msg(t == step, "step %d: t is %d", step, (int)t);
    same_params(a, b, format("step %d", step));
}

START_TEST(lost_count)
{
    SHARED();
    optc_rule_options o = {.spec = rules[1].spec};
    static const char refused[] = "a launch failed in the middle of a step of rule 'adamw'";
    Side a, b;
    int64_t t;
    use_tiny_shapes();
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    float *guard = device_take(sizeof *guard);
    OK(optc_set_guard(b.b, guard, OPTC_F32));
    optc_checkpoint file = {.params = 1};
    OK(optc_save_bytes(&a.b, 1, &file, &file.size));
    ck_assert((file.memory = malloc((size_t)file.size)) != NULL);
    for (int step = 1; step <= 6; step++) {
        set_grads(&a, step);
        set_grads(&b, step);
        if (step == 3 || step == 5) {
            OK(optc_save(&a.b, 1, &file));
            device_put(guard, &(float){(float)(step == 3)}, sizeof *guard);
            lose_count(b.b);
            FAILS(optc_step(b.b), OPTC_ERROR_DEVICE, refused);
            FAILS(optc_get_t(b.b, -1, &t), OPTC_ERROR_DEVICE, refused);
            FAILS(optc_save_bytes(&b.b, 1, &file, &(int64_t){0}), OPTC_ERROR_DEVICE, refused);
            FAILS(optc_set_t(b.b, 0, step - 1), OPTC_ERROR_DEVICE,
                  "call optc_set_t for all tensors (tensor -1)");
            OK(optc_set_t(b.b, -1, step - 1));
            if (step == 5)
                OK(optc_load(&b.b, 1, &file));
        }
        device_put(guard, &(float){0}, sizeof *guard);
        step_both(&a, &b, step);
    }
    same_states(&a, &b, "lost count");
    free(file.memory);
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* A launch fails in the middle of a step, whose first launches have changed states. Later calls are
 * refused until a checkpoint is loaded, or t is set. Then steps continue as if the step had not
 * begun. */
static int fail_second(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, CUstream s, void **args,
                       void **more)
{
    return --until == 0 ? 1
                        : real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}

START_TEST(half_step)
{
    SHARED();
    static const char refused[] = "a launch failed in the middle of a step of rule 'lamb'";
    Side a, b;
    int64_t t;
    use_tiny_shapes();
    open_side(&a, "cuda", (optc_rule_options){.spec = "lamb"}, 0);
    open_side(&b, "cuda", (optc_rule_options){.spec = "lamb"}, 0);
    optc_checkpoint file = {.params = 1};
    OK(optc_save_bytes(&a.b, 1, &file, &file.size));
    ck_assert((file.memory = malloc((size_t)file.size)) != NULL);
    OK(optc_save(&a.b, 1, &file));
    set_grads(&b, 7);
    GpuEngine *g = b.b->rule->engine->gpu;
    Driver failing = *(real = g->d);
    failing.cuLaunchKernel = fail_second;
    /* of the step's launches, the first of which counts it */
    until = _i + 2;
    g->d = &failing;
    FAILS(optc_step(b.b), OPTC_ERROR_DEVICE, "cuLaunchKernel");
    g->d = real;
    FAILS(optc_step(b.b), OPTC_ERROR_DEVICE, refused);
    FAILS(optc_get_t(b.b, -1, &t), OPTC_ERROR_DEVICE, refused);
    FAILS(optc_save_bytes(&b.b, 1, &file, &(int64_t){0}), OPTC_ERROR_DEVICE, refused);
    OK(optc_load(&b.b, 1, &file));
    for (int step = 1; step <= 3; step++) {
        set_grads(&a, step);
        set_grads(&b, step);
        step_both(&a, &b, step);
    }
    same_states(&a, &b, "half a step");
    free(file.memory);
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* The same where the launches of one product fail: its first ones are sums in states. The rule has
 * no t. */
START_TEST(half_product)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'sums', hyper = { lr = 0.1 }, state = { l = zeros 'rows' },\n"
        "  matrix = function() l = l + gram(g)  p = p - lr * mm(l, g) end,\n"
        "  step = function() p = p - lr * g end }";
    static TestShape matrices[NSHAPES];                    /* the first launch is a product */
    Side a, b;
    bool failed = true;
    for (int i = 0; i < NSHAPES; i++)
        matrices[i] = (TestShape){2, {2 + i, 7}};
    use_cublas(false);
    use_shapes(matrices);
    open_side(&a, "cuda", (optc_rule_options){.text = text}, 0);
    open_side(&b, "cuda", (optc_rule_options){.text = text}, 0);
    a.e->gpu->no_graphs = b.e->gpu->no_graphs = true;
    ck_assert(!b.r->program->needs_t);
    optc_checkpoint file = {.params = 1};
    OK(optc_save_bytes(&a.b, 1, &file, &file.size));
    ck_assert((file.memory = malloc((size_t)file.size)) != NULL);
    Driver failing = *(real = b.e->gpu->d);
    failing.cuLaunchKernel = fail_second;
    set_grads(&a, 1);
    set_grads(&b, 1);
    OK(optc_step(a.b));
    /* the first run tries all products in a graph */
    OK(optc_step(b.b));
    for (int at = 1; failed; at++) {
        OK(optc_save(&b.b, 1, &file));
        set_grads(&a, at);
        set_grads(&b, at);
        until = at;
        b.e->gpu->d = &failing;
        failed = optc_step(b.b) != OPTC_OK;
        b.e->gpu->d = real;
        if (failed && at > 1) {
            FAILS(optc_step(b.b), OPTC_ERROR_DEVICE, "a launch failed in the middle of a step");
            OK(optc_load(&b.b, 1, &file));
        }
        if (failed)
            OK(optc_step(b.b));
        OK(optc_step(a.b));
        same_params(&a, &b, format("launch %d failed", at));
        ck_assert(failed || at > 24);
    }
    same_states(&a, &b, "half a product");
    free(file.memory);
    close_side(&a, 0);
    close_side(&b, 0);
    use_cublas(true);
}
END_TEST

/* More scalars than one launch takes, of which the second may fail; memory that the device cannot
 * access. */
START_TEST(many_scalars)
{
    SHARED();
    enum { GROUPS = 70, N = 33 };
    optc_engine *e;
    optc_rule *r;
    optc_binding *b[2];
    CUdeviceptr p[2], g, at_device;
    static float rate[GROUPS + 1], start[GROUPS * N], out[2][GROUPS * N];
    int64_t n[1] = {N};
    int64_t t_now;
    float here = 0;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    rate[GROUPS] = 1;                              /* the guard */
    for (int i = 0; i < GROUPS; i++)
        rate[i] = 0.001f * (float)(i + 1);
    for (int i = 0; i < GROUPS * N; i++)
        start[i] = (float)ref_value(0, 1, i);
    ck_assert(!d->cuMemAlloc_v2(&g, sizeof start) && !d->cuMemAlloc_v2(&at_device, sizeof rate));
    ck_assert(!d->cuMemcpyHtoDAsync_v2(g, start, sizeof start, NULL) &&
              !d->cuMemcpyHtoDAsync_v2(at_device, rate, sizeof rate, NULL));
    for (int side = 0; side < 2; side++) {
        optc_tensor t[GROUPS];
        optc_group gr[GROUPS];
        ck_assert(!d->cuMemAlloc_v2(&p[side], sizeof start) &&
                  !d->cuMemcpyHtoDAsync_v2(p[side], start, sizeof start, NULL));
        for (int k = 0; k < GROUPS; k++) {
            t[k] = (optc_tensor){.param = at(p[side], (size_t)k * N * 4),
                                 .grad = at(g, (size_t)k * N * 4),
                                 .rank = 1,
                                 .shape = n};
            gr[k] = (optc_group){.tensors = &t[k], .ntensors = 1};
        }
        OK(optc_bind(r, gr, GROUPS, &b[side]));
        for (int k = 0; k < GROUPS; k++)
            OK(side ? optc_set_hyper_from(b[1], k, "lr", at(at_device, (size_t)k * 4), OPTC_F32)
               : optc_set_hyper(b[0], k, "lr", rate[k]));
        OK(optc_step(b[side]));
        OK(optc_step(b[side]));
        ck_assert(!d->cuMemcpyDtoHAsync_v2(out[side], p[side], sizeof start, NULL) &&
                  !d->cuStreamSynchronize(NULL));
    }
    ck_assert(!memcmp(out[0], out[1], sizeof start) && memcmp(out[0], start, sizeof start) != 0);
    OK(optc_set_guard(b[1], at(at_device, GROUPS * 4), OPTC_F32));
    failing_step(b[1], "cuLaunchKernel");
    OK(optc_get_t(b[1], GROUPS - 1, &t_now));
    ck_assert_msg(t_now == 2, "t is %d, not 2", (int)t_now);
    if (!getenv("OPTC_TEST_SMALL"))                /* the emulated GPU can access all memory */
        FAILS(optc_set_guard(b[1], &here, OPTC_F32), OPTC_ERROR_ARGUMENT, "is not readable by");
    for (int side = 0; side < 2; side++) {
        OK(optc_unbind(b[side]));
        ck_assert(!d->cuMemFree_v2(p[side]));
    }
    ck_assert(!d->cuMemFree_v2(g) && !d->cuMemFree_v2(at_device));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

static double device_number(const optc_binding *b, int row, int k)
{
    double x = 0;
    OK(gpu_read(b, &x, at(b->gpu->hyper, gpu_hyper_bytes(b) * (size_t)row + 8 * (size_t)k), 8,
                "test"));
    return x;
}

/* When scalars are no longer read from the device, the values that were set last are on the device
 * again, also for tensors with their own t. An input without a value is refused. */
START_TEST(set_values_return)
{
    SHARED();
    static const char text[] = "return optimizer { name = 'x', hyper = { lr = 0.1 }, inputs = { "
                               "loss = 'group' }, step = function() p = p - "
                               "lr * g * loss / t end }";
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p, n;
    optc_tensor t[3];
    optc_group gr[2];
    int64_t shape[1] = {16};
    float numbers[2] = {NAN, 3};
    ck_assert(!d->cuMemAlloc_v2(&p, 4096) && !d->cuMemAlloc_v2(&n, 8) &&
              !d->cuMemcpyHtoDAsync_v2(n, numbers, 8, NULL));
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    for (int k = 0; k < 3; k++)
        t[k] = (optc_tensor){
            .param = at(p, 256u * (unsigned)k), .grad = at(p, 2048), .rank = 1, .shape = shape};
    gr[0] = (optc_group){.tensors = t, .ntensors = 2};
    gr[1] = (optc_group){.tensors = t + 2, .ntensors = 1};
    OK(optc_bind(r, gr, 2, &b));
    OK(optc_set_hyper(b, 1, "lr", 0.25));
    OK(optc_set_t(b, 1, 7));
    FAILS(optc_step(b), OPTC_ERROR_ARGUMENT,
          "the scalar input 'loss', which is not set for group 0");
    OK(optc_set_scalar_from(b, -1, "loss", at(n, 4), OPTC_F32));
    OK(optc_set_hyper_from(b, -1, "lr", at(n, 0), OPTC_F32));
    OK(optc_step(b));
    OK(optc_sync(b));
    int row = b->tensor[1].cohort;
    ck_assert(row >= 2 && isnan(device_number(b, 0, 1)) && isnan(device_number(b, row, 1)));
    OK(optc_set_hyper_from(b, -1, "lr", NULL, OPTC_DEFAULT));
    OK(optc_set_scalar(b, -1, "loss", 5));
    OK(optc_step(b));
    OK(optc_sync(b));
    int input = 0;
    double loss = 0;
    OK(find_input(b, "test", "loss", true, &input));
    OK(gpu_read(b, &loss, b->group[0].mem[input], 8, "test"));
    ck_assert_msg(device_number(b, 0, 1) == 0.1 && device_number(b, 1, 1) == 0.25 &&
                      device_number(b, row, 1) == 0.1 && loss == 5,
                  "lr is %g, %g, %g, and the loss %g", device_number(b, 0, 1),
                  device_number(b, 1, 1), device_number(b, row, 1), loss);
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
    ck_assert(!d->cuMemFree_v2(p) && !d->cuMemFree_v2(n));
}
END_TEST

/* Parameters at new addresses: captured steps and products of blocks use them too. */
START_TEST(params_move)
{
    SHARED();
    static const char product[] =
        "return optimizer { name = 'moved', hyper = { lr = 0.125 }, step = function() p = p "
        "- lr * g end, matrix = function() p = p - lr * (g + mm(gram(p), p)) end }";
    static const struct { const char *spec, *options, *text; } of[] = {
        {"adamw", "", NULL}, {"shampoo", "side=8", NULL}, {"moved", "", product}};
    Side a, b;
    CUstream st;
    CUdeviceptr was[NSHAPES];
    void *graph, *exec, *to[NSHAPES];
    optc_rule_options o = {.spec = of[_i].spec, .options = of[_i].options, .text = of[_i].text};
    if (_i == 1 && getenv("OPTC_TEST_SMALL") && !getenv("OPTC_ALL"))
        return;
    if (_i)
        use_tiny_shapes();
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    ck_assert(!d->cuStreamCreate(&st, 1));
    set_grads(&a, 1);
    set_grads(&b, 1);
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_set_stream(b.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 2));
    OK(optc_step(b.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int k = 0; k < NSHAPES; k++) {
        size_t bytes = (size_t)b.n[k] * b.wp;
        was[k] = b.p[k];
        ck_assert(!d->cuMemAlloc_v2(&b.p[k], bytes + 64) &&
                  (!bytes || !d->cuMemcpyDtoDAsync_v2(b.p[k], was[k], bytes, st)));
        to[k] = at(b.p[k], 0);
    }
    OK(optc_set_params(b.b, to, NSHAPES));
    OK(optc_step(b.b));                            /* uploads the new addresses */
    OK(optc_step(a.b));
    for (int s = 0; s < 2; s++) {
        ck_assert(!d->cuGraphLaunch(exec, st));
        OK(optc_step(a.b));
    }
    same_params(&a, &b, of[_i].spec);
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(b.b, NULL));
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemFree_v2(was[k]));
    close_side(&a, 0);
    close_side(&b, 0);
    ck_assert(!d->cuStreamDestroy_v2(st));
}
END_TEST

void add_guard(TCase *t)
{
    tcase_add_loop_test(t, params_move, 0, 3);
    tcase_add_loop_test(t, guarded_steps, 0, NRULES);
    tcase_add_loop_test(t, failing_launches, 0, 5);
    tcase_add_test(t, lost_count);
    tcase_add_loop_test(t, half_step, 0, 3);
    tcase_add_test(t, half_product);
    tcase_add_test(t, many_scalars);
    tcase_add_test(t, set_values_return);
}

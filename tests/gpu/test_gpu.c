/* Contract C1 between CPU and GPU, and C4: for every rule of the library and several compositions, the same bits in parameters and states
 * after some steps, over odd shapes, misaligned pointers, and through a replayed graph. Needs an NVIDIA GPU and NVRTC. */
#include "../help.h"

#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const TestShape large[] = {{0, {0}}, {1, {1}}, {1, {7}}, {2, {33, 65}}, {3, {3, 5, 7}}, {1, {70001}}, {2, {300, 701}}, {2, {67, 4100}}, {3, {5, 130, 64}}, {2, {5000, 3}}, {2, {64, 8192}}, {4, {40, 30, 3, 3}}};
static const TestShape small[] = {{0, {0}}, {1, {1}}, {1, {7}}, {2, {33, 65}}, {3, {3, 5, 7}}, {1, {4103}}, {2, {70, 131}}, {2, {3, 4100}}, {3, {5, 66, 8}}, {2, {300, 3}}, {2, {66, 128}}, {4, {4, 3, 3, 3}}};
static const TestShape *shapes = large;                /* OPTC_TEST_SMALL: those an emulated GPU gets through */
enum { NSHAPES = sizeof large / sizeof *large, STEPS = 4 };

typedef struct Side {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p[NSHAPES], g[NSHAPES];
    float *hp[NSHAPES], *hg[NSHAPES];
    int64_t n[NSHAPES];
} Side;

static const Driver *d;
static CUcontext ctx;

static void gpu_setup(void)
{
    const char *why;
    d = driver_get(&why);
    ck_assert_msg(d != NULL, "%s", why);
    CUdevice dev;
    ck_assert(!d->cuDeviceGet(&dev, 0) && !d->cuDevicePrimaryCtxRetain(&ctx, dev) && !d->cuCtxPushCurrent_v2(ctx));
}

static int untuned;                        /* of the next side that is opened */

static void open_side(Side *s, const char *device, const char *spec, const char *with, const char *options, int off)
{
    memset(s, 0, sizeof *s);
    bool gpu = strcmp(device, "cpu") != 0;
    OK(optc_open(&(optc_engine_options){.device = device, .threads = 4, .cache_dir = getenv("OPTC_TEST_CACHE"), .untuned = untuned}, &s->e));
    OK(optc_compile(s->e, &(optc_rule_options){.spec = spec, .with = with, .options = options}, &s->r));
    optc_tensor t[NSHAPES];
    memset(t, 0, sizeof t);
    for (int k = 0; k < NSHAPES; k++) {
        s->n[k] = 1;
        for (int i = 0; i < shapes[k].rank; i++)
            s->n[k] *= shapes[k].dim[i];
        s->hp[k] = calloc((size_t)s->n[k] + 8, 4);
        s->hg[k] = calloc((size_t)s->n[k] + 8, 4);
        for (int64_t i = 0; i < s->n[k]; i++)
            s->hp[k][i] = (float)(0.5 * ref_value(k, 0, i));
        t[k] = (optc_tensor){.param = s->hp[k], .grad = s->hg[k], .rank = shapes[k].rank, .shape = shapes[k].dim};
        if (!gpu)
            continue;
        ck_assert(!d->cuMemAlloc_v2(&s->p[k], (size_t)(s->n[k] + 16) * 4) && !d->cuMemAlloc_v2(&s->g[k], (size_t)(s->n[k] + 16) * 4));
        s->p[k] += (unsigned)(4 * off);
        s->g[k] += (unsigned)(4 * ((off * 3) % 4));
        ck_assert(!d->cuMemcpyHtoDAsync_v2(s->p[k], s->hp[k], (size_t)s->n[k] * 4, NULL));
        t[k].param = (void *)(uintptr_t)s->p[k];
        t[k].grad = (void *)(uintptr_t)s->g[k];
    }
    OK(optc_bind(s->r, &(optc_group){.tensors = t, .ntensors = NSHAPES}, 1, &s->b));
}

static void close_side(Side *s, int off)
{
    OK(optc_sync(s->b));
    OK(optc_unbind(s->b));
    OK(optc_release(s->r));
    OK(optc_close(s->e));
    for (int k = 0; k < NSHAPES; k++) {
        free(s->hp[k]);
        free(s->hg[k]);
        if (s->p[k]) {
            d->cuMemFree_v2(s->p[k] - (unsigned)(4 * off));
            d->cuMemFree_v2(s->g[k] - (unsigned)(4 * ((off * 3) % 4)));
        }
    }
}

static void set_grads(Side *s, int step)
{
    for (int k = 0; k < NSHAPES; k++) {
        for (int64_t i = 0; i < s->n[k]; i++)
            s->hg[k][i] = (float)ldexp(ref_value(k, step, i), -(int)(i % 9));
        if (s->g[k])
            ck_assert(!d->cuMemcpyHtoDAsync_v2(s->g[k], s->hg[k], (size_t)s->n[k] * 4, NULL));
    }
    if (s->g[0])
        d->cuStreamSynchronize(NULL);
}

static bool same(double a, double b) { return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)); }

static void compare(const char *rule, Side *c, Side *g)
{
    OK(optc_sync(g->b));
    for (int k = 0; k < NSHAPES; k++) {
        ck_assert(!d->cuMemcpyDtoHAsync_v2(g->hp[k], g->p[k], (size_t)g->n[k] * 4, NULL) && !d->cuStreamSynchronize(NULL));
        for (int64_t i = 0; i < c->n[k]; i++)
            ck_assert_msg(same(c->hp[k][i], g->hp[k][i]), "%s: p of tensor %d, element %lld: CPU %.9g, GPU %.9g", rule, k, (long long)i, c->hp[k][i], g->hp[k][i]);
        for (int s = 0; s < optc_rule_states(c->r); s++) {
            optc_state_info info;
            optc_state_view v;
            OK(optc_rule_state(c->r, s, &info));
            if (optc_state(c->b, strcmp(info.domain, "group") ? k : 0, info.name, &v) != OPTC_OK)
                continue;
            double *x = malloc(8 * (size_t)(v.count + 1)), *y = malloc(8 * (size_t)(v.count + 1));
            OK(optc_state_read(c->b, strcmp(info.domain, "group") ? k : 0, info.name, x, v.count));
            OK(optc_state_read(g->b, strcmp(info.domain, "group") ? k : 0, info.name, y, v.count));
            for (int64_t i = 0; i < v.count; i++)
                ck_assert_msg(same(x[i], y[i]), "%s: state %s of tensor %d, element %lld: CPU %.17g, GPU %.17g", rule, info.name, k, (long long)i, x[i], y[i]);
            free(x);
            free(y);
        }
    }
}

static void both(const char *spec, const char *with, const char *options, int off)
{
    Side c, g;
    char label[200];
    snprintf(label, sizeof label, "%s --with '%s' --options '%s', offset %d", spec, with, options, off);
    open_side(&c, "cpu", spec, with, options, 0);
    open_side(&g, "cuda", spec, with, options, off);
    for (int s = 1; s <= STEPS; s++) {
        set_grads(&c, s);
        set_grads(&g, s);
        for (int e = optc_rule_entries(c.r) - 1; e >= 0; e--) {        /* other entries first: SAM perturbs before it steps */
            OK(optc_run(c.b, optc_rule_entry(c.r, e)));
            OK(optc_run(g.b, optc_rule_entry(c.r, e)));
        }
    }
    compare(label, &c, &g);
    close_side(&g, off);
    close_side(&c, 0);
}

static const char *rule_name(int i, char buf[64])
{
    for (int k = 0; k < optc_library_size(); k++)
        if (!strchr(optc_library_name(k), '/') && i-- == 0) {
            snprintf(buf, 64, "%s", optc_library_name(k));
            return buf;
        }
    return NULL;
}

START_TEST(library)
{
    char name[64];
    rule_name(_i, name);
    both(name, "", "", _i % 4);
}
END_TEST

static const struct { const char *spec, *with, *options; } composed[] = {
    {"adamw", "clip(1)", ""}, {"adamw", "clip(1),cautious,ema(0.999)", ""}, {"lamb", "lookahead(2,0.5)", ""}, {"sgd", "centralize", ""}, {"adamw", "sam(0.05)", ""},
    {"adafactor", "clip(1)", ""}, {"adamw", "clip_norm(0.1)", "amsgrad=true"}, {"sgd", "clip_value(0.1)", ""}, {"rmsprop", "", "centered=true"}};

START_TEST(compositions) { both(composed[_i].spec, composed[_i].with, composed[_i].options, _i % 4); }
END_TEST

/* One of each kind of stage, and steps as graphs, few enough for tools that slow everything down a hundred times. */
START_TEST(sanitized)
{
    static const struct { const char *spec, *with; } r[] = {{"adamw", "clip(1)"}, {"adafactor", ""}, {"came", ""}, {"adamp", ""}, {"sgd", "lookahead(2,0.5)"}};
    both(r[_i].spec, r[_i].with, "", _i % 4);
}
END_TEST

/* A captured step, replayed, equals steps taken one by one, also where `every` makes steps differ. */
START_TEST(graphs)
{
    static const struct { const char *spec, *with; } r[] = {{"adamw", ""}, {"lamb", "clip(1)"}, {"sgd", "lookahead(2,0.5)"}, {"adafactor", ""}};
    Side a, b;
    CUstream st;
    void *graph, *exec;
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_side(&a, "cuda", r[_i].spec, r[_i].with, "", 0);
    open_side(&b, "cuda", r[_i].spec, r[_i].with, "", 0);
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
    /* A large binding that goes meanwhile does not disturb the capture. */
    CUdeviceptr room;
    optc_binding *large;
    int64_t many[1] = {1 << 26};
    ck_assert(!d->cuMemAlloc_v2(&room, (size_t)many[0] * 4));
    optc_tensor all = {.param = (void *)(uintptr_t)room, .rank = 1, .shape = many};
    OK(optc_bind(r, &(optc_group){.tensors = &all, .ntensors = 1}, 1, &large));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(b[1]));
    OK(optc_unbind(large));
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

/* Whatever the launches, the same bits: every value of every knob once, in turn over the stages, and mixtures. */
static uint64_t dice;
static int roll(int n) { return (int)((dice = splitmix(dice)) % (uint64_t)n); }

static void random_launches(const Plan *p, Launch *l, bool all)
{
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage; i++) {
                const Stage *s = &p->entry[e].phase[m].stage[i];
                Launch x;
                do {
                    x = launch_model(p, s, roll(2) << 20);
                    for (int k = 0; k < NKNOB; k++) {
                        int v[MOST_VALUES], n = knob_values(stage_form(s), (Knob)k, v);
                        if (all || roll(3) == 0)
                            x.v[k] = v[roll(n)];
                    }
                } while (!launch_valid(p, s, &x));
                l[s->fn] = x;
            }
}

START_TEST(launches)
{
    static const struct { const char *spec, *with; } r[] = {{"adamw", "clip(1)"}, {"adafactor", ""}, {"came", ""}, {"adamp", ""}, {"lamb", ""}, {"sgd", "centralize,lookahead(2,0.5)"}, {"novograd", ""}};
    Side c, g;
    char label[100];
    open_side(&c, "cpu", r[_i].spec, r[_i].with, "", 0);
    open_side(&g, "cuda", r[_i].spec, r[_i].with, "", _i % 4);
    Launch *l = calloc((size_t)g.r->plan->nfn + 1, sizeof *l);
    dice = (uint64_t)_i;
    for (int s = 1; s <= 8; s++) {
        const GpuCode *code;
        random_launches(g.r->plan, l, s % 2);
        OK(gpu_code_with(g.r, l, &code));
        gpu_use(g.b, code);
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        snprintf(label, sizeof label, "%s with '%s', launches %d", r[_i].spec, r[_i].with, s);
        compare(label, &c, &g);
    }
    free(l);
    close_side(&g, _i % 4);
    close_side(&c, 0);
}
END_TEST

static int64_t device_room(optc_engine *e)
{
    optc_memory m;
    OK(optc_memory_info(e, &m));
    return m.free;
}

/* Inputs of the caller's, aligned to their element and no better, beside even shapes that would take whole vectors. */
START_TEST(inputs_anywhere)
{
    static const char text[] = "return optimizer { name = \"anywhere\", hyper = { lr = 0.1 }, inputs = { c = \"col\", r = \"row\", h = \"elem\" }, view = \"first\",\n"
                               "  step = function() p = p - lr * g * h end, matrix = function() p = p - lr * (g * c + h * r + mean(g * c)) end }\n";
    enum { R = 64, C = 512, N = R * C };
    static float hp[2][N], hg[N + 4], hh[N + 4], hc[C + 4], hr[R + 4];
    int64_t dim[2] = {R, C};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    for (int i = 0; i < N; i++)
        hg[i] = (float)ref_value(1, 0, i), hh[i] = (float)ref_value(2, 0, i);
    for (int i = 0; i < C; i++)
        hc[i] = (float)ref_value(3, 0, i);
    for (int i = 0; i < R; i++)
        hr[i] = (float)ref_value(4, 0, i);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < N; i++)
            hp[side][i] = (float)ref_value(0, 0, i);
        void *at[5] = {hp[side], hg, hh, hc, hr};
        const size_t bytes[5] = {sizeof hp[0], N * 4, N * 4, C * 4, R * 4};
        for (int k = 0; side && k < 5; k++) {
            CUdeviceptr x;
            ck_assert(!d->cuMemAlloc_v2(&x, bytes[k] + 64));
            x += k >= 3 ? 4 : 0;                       /* the column's and the row's one element off */
            ck_assert(!d->cuMemcpyHtoDAsync_v2(x, at[k], bytes[k], NULL));
            at[k] = (void *)(uintptr_t)x;
        }
        OK(optc_open(&(optc_engine_options){.device = side ? "cuda" : "cpu", .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
        OK(optc_compile(e, &(optc_rule_options){.spec = "anywhere", .text = text}, &r));
        optc_tensor t = {.param = at[0], .grad = at[1], .rank = 2, .shape = dim};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_set_input(b, 0, "h", at[2], N));
        OK(optc_set_input(b, 0, "c", at[3], C));
        OK(optc_set_input(b, 0, "r", at[4], R));
        for (int k = 0; k < 3; k++)
            OK(optc_step(b));
        OK(optc_sync(b));
        if (side)
            ck_assert(!d->cuMemcpyDtoHAsync_v2(hp[1], (CUdeviceptr)(uintptr_t)at[0], sizeof hp[1], NULL) && !d->cuStreamSynchronize(NULL));
        OK(optc_unbind(b));
        OK(optc_release(r));
        OK(optc_close(e));
    }
    ck_assert_msg(!memcmp(hp[0], hp[1], sizeof hp[0]), "inputs that are not aligned give other bits");
}
END_TEST

/* More than the device has: refused, everything given back, and what was bound before goes on as if nothing had been. */
START_TEST(out_of_memory)
{
    Side a, b;
    optc_binding *big;
    int64_t n[1] = {(int64_t)1 << 38};
    open_side(&a, "cuda", "adamw", "", "", 0);
    open_side(&b, "cuda", "adamw", "", "", 0);
    set_grads(&a, 1);
    set_grads(&b, 1);
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    optc_memory before, after;
    OK(optc_memory_info(b.e, &before));
    int64_t room = device_room(b.e);
    optc_tensor t = {.name = "huge", .param = (void *)(uintptr_t)b.p[1], .rank = 1, .shape = n};
    for (int i = 0; i < 3; i++)
        FAILS(optc_bind(b.r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &big), OPTC_ERROR_MEMORY, "cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY");
    ck_assert_msg(strstr(optc_message(), "the states and temporaries of 'adamw' on 1 tensors"), "%s", optc_message());
    OK(optc_memory_info(b.e, &after));
    ck_assert(after.ours == before.ours && after.ours > 0 && after.total > after.free);
    ck_assert_msg(room - device_room(b.e) < (64 << 20), "memory was lost: %lld bytes", (long long)(room - device_room(b.e)));
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    OK(optc_sync(a.b));
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemcpyDtoHAsync_v2(a.hp[k], a.p[k], (size_t)a.n[k] * 4, NULL) && !d->cuStreamSynchronize(NULL));
    compare("after running out of memory", &a, &b);
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* A kernel that reads unmapped memory kills the context: said once in full, then refused; taking everything down still works. */
START_TEST(sticky_error)
{
    Side a;
    optc_binding *b;
    optc_rule *r;
    optc_engine *e;
    open_side(&a, "cuda", "sgd", "", "", 0);
    set_grads(&a, 1);
    OK(optc_step(a.b));
    OK(optc_sync(a.b));
    a.b->tensor[5].mem[1] = (void *)(uintptr_t)0x10000;      /* an address nothing is mapped at */
    a.b->gpu->moved = true;
    OK(optc_step(a.b));
    FAILS(optc_sync(a.b), OPTC_ERROR_DEVICE, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS");
    ck_assert_msg(strstr(optc_message(), "cuda:0 can do no more work in this process"), "%s", optc_message());
    FAILS(optc_step(a.b), OPTC_ERROR_DEVICE, "cuda:0 failed before and can do no more work in this process: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS");
    FAILS(optc_sync(a.b), OPTC_ERROR_DEVICE, "failed before");
    double x;
    FAILS(optc_state_read(a.b, 5, "momentum_buffer", &x, 1) == OPTC_OK ? OPTC_OK : OPTC_ERROR_DEVICE, OPTC_ERROR_DEVICE, "");
    FAILS(optc_compile(a.e, &(optc_rule_options){.spec = "lion"}, &r), OPTC_ERROR_DEVICE, "failed before");
    int64_t n[1] = {4};
    optc_tensor t = {.param = (void *)(uintptr_t)a.p[1], .rank = 1, .shape = n};
    FAILS(optc_bind(a.r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_DEVICE, "failed before");
    OK(optc_unbind(a.b));
    OK(optc_release(a.r));
    OK(optc_close(a.e));
    OK(optc_open(&(optc_engine_options){.device = "cpu"}, &e));        /* the CPU is still there */
    OK(optc_close(e));
}
END_TEST

/* ---- the caller's allocator ---- */
static int taken, given;
static void *take(void *ctx, size_t bytes, void *stream)
{
    CUdeviceptr p = 0;
    (void)ctx, (void)stream;
    taken++;
    return d->cuMemAlloc_v2(&p, bytes) ? NULL : (void *)(uintptr_t)p;
}
static void give(void *ctx, void *p, size_t bytes, void *stream)
{
    (void)ctx, (void)bytes, (void)stream;
    given++;
    d->cuMemFree_v2((CUdeviceptr)(uintptr_t)p);
}

START_TEST(callers_allocator)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p;
    int64_t n[1] = {1000};
    optc_memory m;
    ck_assert(!d->cuMemAlloc_v2(&p, 8000));
    OK(optc_open(&(optc_engine_options){.device = optc_best_device(), .allocator = &(optc_allocator){take, give, NULL}, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    optc_tensor t = {.param = (void *)(uintptr_t)p, .grad = (void *)(uintptr_t)(p + 4000), .rank = 1, .shape = n};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_memory_info(e, &m));
    ck_assert(taken == 2 && given == 0 && m.ours > 8000);
    OK(optc_unbind(b));
    ck_assert_int_eq(given, 2);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Real steps that try launches end with the same bits, what won is in the user's file, and what it cost stays within its bound. */
START_TEST(live)
{
    Side a, b;
    char dir[] = "/tmp/optc-live-XXXXXX", path[64], text[200] = "";
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/tune", dir);
    setenv("OPTC_TUNE", path, 1);
    open_side(&a, "cuda", "adamw", "clip(1)", "", 0);
    setenv("OPTC_TUNE_LIVE", "0.5", 1);
    open_side(&b, "cuda", "adamw", "clip(1)", "", 0);
    unsetenv("OPTC_TUNE_LIVE");
    ck_assert(a.b->gpu->live == NULL && b.b->gpu->live != NULL);
    set_grads(&a, 1);
    set_grads(&b, 1);
    double t0 = now_ms();
    int steps = 0;
    for (; steps < 20000 && now_ms() - t0 < 15000; steps++) {
        OK(optc_step(a.b));
        OK(optc_step(b.b));
        OK(optc_sync(b.b));
    }
    ck_assert_msg(b.b->gpu->nowned > 3, "after %d steps only %d launches were tried", steps, b.b->gpu->nowned);
    OK(optc_sync(a.b));
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemcpyDtoHAsync_v2(a.hp[k], a.p[k], (size_t)a.n[k] * 4, NULL) && !d->cuStreamSynchronize(NULL));
    compare("live", &a, &b);
    int tried = b.b->gpu->nowned;
    bool won = memcmp(b.b->gpu->launch_now, b.b->gpu->code->launch, sizeof(Launch) * (size_t)b.r->plan->nfn) != 0;
    close_side(&a, 0);
    close_side(&b, 0);
    FILE *f = fopen(path, "r");
    if (f) {
        while (fgets(text, sizeof text, f) && !strstr(text, "live"))
            ;
        fclose(f);
    }
    printf("live: %d steps, %d launches tried, %s\n", steps, tried, won ? "some won" : "none won");
    ck_assert_msg(!won || strstr(text, "adamw live"), "a launch won, and %s does not say so", path);
    setenv("OPTC_TUNE", "", 1);
}
END_TEST

/* A file of results decides the launches: at this size, and with notice at the nearest of those the model treats alike; an engine without results takes the model's. (A rule that is not in the built-in results.) The same bits each time. */
START_TEST(results_are_used)
{
    static const struct { int apart, untuned; const char *says; } cases[] = {
        {0, 0, "; launches tuned (user)"}, {-4, 0, "; launches tuned (user, nearest size 2^"}, {20, 0, NULL}, {0, 1, NULL}};
    char path[] = "/tmp/optc-tuned-XXXXXX", why[400];
    ck_assert(close(mkstemp(path)) == 0);
    setenv("OPTC_TUNE", path, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Side model, other;
        untuned = 1;
        open_side(&model, "cuda", "sgd", "ema(0.9)", "", 0);
        untuned = 0;
        TunedList l = {0};
        Tuned t = {.launch = {{256, 2, 4, 0, 0, 0, 4}}, .ms = 1, .model_ms = 2, .samples = 9};
        int fn = 0;
        while (stage_form(plan_at(model.r->plan, fn).stage) != FORM_MAP)
            fn++;
        gpu_tuned_key(model.r, fn, model.b->elems, &t.key);
        t.key.bucket += cases[i].apart;
        ck_assert(tuned_put(&l, &t));
        ck_assert_msg(tuned_write(&l, path, why, sizeof why), "%s", why);
        tuned_free(&l);
        untuned = cases[i].untuned;
        open_side(&other, "cuda", "sgd", "ema(0.9)", "", 0);
        untuned = 0;
        Launch want = !cases[i].says ? launch_model(other.r->plan, plan_at(other.r->plan, fn).stage, other.b->elems) : t.launch;
        ck_assert(!memcmp(&other.b->gpu->code->launch[fn], &want, sizeof want));
        ck_assert_msg(cases[i].says ? strstr(optc_rule_path(other.r), cases[i].says) != NULL : !strstr(optc_rule_path(other.r), "tuned"), "%s", optc_rule_path(other.r));
        for (int step = 1; step <= 2; step++) {
            set_grads(&model, step);
            set_grads(&other, step);
            OK(optc_step(model.b));
            OK(optc_step(other.b));
        }
        OK(optc_sync(model.b));
        for (int k = 0; k < NSHAPES; k++)
            ck_assert(!d->cuMemcpyDtoHAsync_v2(model.hp[k], model.p[k], (size_t)model.n[k] * 4, NULL) && !d->cuStreamSynchronize(NULL));
        compare("with results", &model, &other);
        close_side(&model, 0);
        close_side(&other, 0);
    }
    unlink(path);
    setenv("OPTC_TUNE", "", 1);
}
END_TEST

START_TEST(wrong_memory)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[4], g[4];
    int64_t n[1] = {4};
    OK(optc_open(&(optc_engine_options){.device = "best"}, &e));
    ck_assert_msg(strstr(optc_device_name(e), "cuda:0"), "%s", optc_device_name(e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd"}, &r));
    optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = 1, .shape = n};
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT, "the parameter of tensor 'w' (number 0) does not lie in the memory of cuda:0");
    FAILS(optc_open(&(optc_engine_options){.device = "cuda:99"}, &e), OPTC_ERROR_UNAVAILABLE, "no cuda:99");
    OK(optc_release(r));
}
END_TEST

_Static_assert(sizeof large == sizeof small, "both lists serve the same tests");

int main(void)
{
    if (getenv("OPTC_TEST_SMALL"))
        shapes = small;
    char buf[64];
    int n = 0;
    while (rule_name(n, buf))
        n++;
    Suite *s = suite_create("gpu");
    TCase *t[] = {tcase_create("library"), tcase_create("compositions"), tcase_create("graphs"), tcase_create("launches"), tcase_create("memory"), tcase_create("sanitized"), tcase_create("sticky")};     /* CK_RUN_CASE runs one */
    for (int i = 0; i < 7; i++) {
        tcase_add_checked_fixture(t[i], gpu_setup, NULL);
        tcase_set_timeout(t[i], 300);
        if (i < 6)
            suite_add_tcase(s, t[i]);
    }
    tcase_add_loop_test(t[0], library, 0, n);
    tcase_add_loop_test(t[1], compositions, 0, (int)(sizeof composed / sizeof *composed));
    tcase_add_loop_test(t[2], graphs, 0, 4);
    tcase_add_test(t[2], hyper_in_graphs);
    tcase_add_loop_test(t[3], launches, 0, 7);
    tcase_add_test(t[3], results_are_used);
    tcase_add_test(t[3], live);
    tcase_add_test(t[4], inputs_anywhere);
    tcase_add_test(t[4], wrong_memory);
    tcase_add_test(t[4], out_of_memory);
    tcase_add_test(t[4], callers_allocator);
    tcase_add_loop_test(t[5], sanitized, 0, 5);
    tcase_add_test(t[6], sticky_error);
    Suite *last = suite_create("gpu, the end of a context");
    suite_add_tcase(last, t[6]);
    /* One process for all, so that the device is opened once; only what kills its context has one of its own, and goes first: a process
     * that has used CUDA cannot fork a child that does. */
    SRunner *r[] = {srunner_create(last), srunner_create(s)};
    int failed = 0;
    srunner_set_fork_status(r[1], CK_NOFORK);
    for (int i = 0; i < 2; i++) {
        srunner_run_all(r[i], CK_ENV);
        failed += srunner_ntests_failed(r[i]);
        srunner_free(r[i]);
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

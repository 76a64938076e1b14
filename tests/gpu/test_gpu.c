/* Contract C1 between CPU and GPU, and C4: for every rule of the library and several compositions, the same bits in parameters and states
 * after some steps, over odd shapes, misaligned pointers, and through a replayed graph. Needs an NVIDIA GPU and NVRTC. */
#include "../help.h"

#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const TestShape shapes[] = {{0, {0}}, {1, {1}}, {1, {7}}, {2, {33, 65}}, {3, {3, 5, 7}}, {1, {70001}}, {2, {300, 701}}, {2, {67, 4100}}, {3, {5, 130, 64}}, {2, {5000, 3}}, {2, {64, 8192}}};
enum { NSHAPES = sizeof shapes / sizeof *shapes, STEPS = 4 };

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

static void open_side(Side *s, const char *device, const char *spec, const char *with, const char *options, int off)
{
    memset(s, 0, sizeof *s);
    bool gpu = strcmp(device, "cpu") != 0;
    OK(optc_open(&(optc_engine_options){.device = device, .threads = 4, .cache_dir = getenv("OPTC_TEST_CACHE")}, &s->e));
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
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    OK(optc_set_stream(b.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(b.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) && !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int s = 0; s < 5; s++)
        ck_assert(!d->cuGraphLaunch(exec, st));
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

int main(void)
{
    char buf[64];
    int n = 0;
    while (rule_name(n, buf))
        n++;
    Suite *s = suite_create("gpu");
    TCase *t[] = {tcase_create("library"), tcase_create("compositions"), tcase_create("graphs")};     /* CK_RUN_CASE runs one */
    for (int i = 0; i < 3; i++) {
        tcase_add_checked_fixture(t[i], gpu_setup, NULL);
        tcase_set_timeout(t[i], 300);
        suite_add_tcase(s, t[i]);
    }
    tcase_add_loop_test(t[0], library, 0, n);
    tcase_add_loop_test(t[1], compositions, 0, (int)(sizeof composed / sizeof *composed));
    tcase_add_loop_test(t[2], graphs, 0, 4);
    tcase_add_test(t[2], wrong_memory);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

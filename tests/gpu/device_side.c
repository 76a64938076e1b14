#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const TestShape large[NSHAPES] = {{0, {0}},        {1, {1}},        {1, {7}},
                                         {2, {33, 65}},   {3, {3, 5, 7}},  {1, {70001}},
                                         {2, {300, 701}}, {2, {67, 4100}}, {3, {5, 130, 64}},
                                         {2, {5000, 3}},  {2, {64, 8192}}, {4, {40, 30, 3, 3}}};
static const TestShape small[NSHAPES] = {{0, {0}},       {1, {1}},       {1, {7}},
                                         {2, {33, 65}},  {3, {3, 5, 7}}, {1, {4103}},
                                         {2, {70, 131}}, {2, {3, 4100}}, {3, {5, 66, 8}},
                                         {2, {300, 3}},  {2, {66, 128}}, {4, {4, 3, 3, 3}}};
static const TestShape tiny[NSHAPES] = {
    {0, {0}},      {1, {1}},     {1, {7}},        {2, {33, 20}}, {3, {3, 5, 7}}, {1, {40}},
    {2, {20, 33}}, {2, {1, 40}}, {3, {2, 16, 8}}, {2, {30, 3}},  {2, {24, 24}},  {4, {4, 3, 3, 3}}};
/* OPTC_TEST_SMALL: shapes that are small enough for the emulated GPU */
static const TestShape *shapes = large;
const Driver *d;
static CUcontext ctx;

bool others(int i, int line)
{
    int k = 0, n = 1;
    const char *share = getenv("OPTC_TEST_SHARE");
    return share && sscanf(share, "%d/%d", &k, &n) == 2 && n > 0 && (i + line) % n != k % n;
}

void gpu_setup(void)
{
    const char *why;
    shapes = getenv("OPTC_TEST_SMALL") ? small : large;
    d = driver_get(&why);
    ck_assert_msg(d != NULL, "%s", why);
    CUdevice dev;
    ck_assert(!d->cuDeviceGet(&dev, 0) && !d->cuDevicePrimaryCtxRetain(&ctx, dev) &&
              !d->cuCtxPushCurrent_v2(ctx));
}

void gpu_teardown(void)
{
    CUcontext was;
    d->cuCtxPopCurrent_v2(&was);
}

void use_shapes(const TestShape *s) { shapes = s; }

void use_tiny_shapes(void) { shapes = tiny; }

void use_cublas(bool library)
{
    /* cuBLAS as the environment names it, or NULL */
    static const char *given = NULL;
    static bool asked = false;
    given = asked ? given : getenv("OPTC_CUBLAS") ? strdup(getenv("OPTC_CUBLAS")) : "";
    asked = true;
    setenv("OPTC_CUBLAS", library ? given : "none", 1);
}

int untuned;
int64_t side_workspace;
EigenMethod side_method;
int side_probed, side_driver;

void open_side(Side *s, const char *device, optc_rule_options rule, int off)
{
    memset(s, 0, sizeof *s);
    bool gpu = strcmp(device, "cpu") != 0;
    OK(optc_open(&(optc_engine_options){.device = device,
                                        .threads = 4,
                                        .cache_dir = getenv("OPTC_TEST_CACHE"),
                                        .untuned = untuned,
                                        .workspace = side_workspace},
                 &s->e));
    if (gpu)
        s->e->gpu->eigen = side_method, s->e->gpu->probed_rows = side_probed;
    if (gpu && side_driver)
        s->e->gpu->own.version = side_driver;
    optc_status compiled = optc_compile(s->e, &rule, &s->r);
    ck_assert_msg(compiled == OPTC_OK, "%s --with '%s' on %s: %s",
                  rule.text ? rule.text : rule.spec, rule.with, device, optc_message());
    optc_tensor t[NSHAPES];
    memset(t, 0, sizeof t);
    s->tp = s->r->library->plan->p;
    s->tg = s->r->library->plan->g;
    s->wp = (size_t)type_info[s->tp].bytes;
    s->wg = (size_t)type_info[s->tg].bytes;
    for (int k = 0; k < NSHAPES; k++) {
        s->n[k] = 1;
        for (int i = 0; i < shapes[k].rank; i++)
            s->n[k] *= shapes[k].dim[i];
        s->hp[k] = calloc((size_t)s->n[k] + 8, s->wp);
        s->hg[k] = calloc((size_t)s->n[k] + 8, s->wg);
        for (int64_t i = 0; i < s->n[k]; i++)
            type_store(s->tp, s->hp[k], i, 0.5 * ref_value(k, 0, i));
        t[k] = (optc_tensor){
            .param = s->hp[k], .grad = s->hg[k], .rank = shapes[k].rank, .shape = shapes[k].dim};
        if (!gpu)
            continue;
        ck_assert(!d->cuMemAlloc_v2(&s->p[k], (size_t)(s->n[k] + 16) * s->wp) &&
                  !d->cuMemAlloc_v2(&s->g[k], (size_t)(s->n[k] + 16) * s->wg));
        s->p[k] += s->wp * (size_t)off;
        s->g[k] += s->wg * (size_t)(off * 3 % 4);
        ck_assert(!d->cuMemcpyHtoDAsync_v2(s->p[k], s->hp[k], (size_t)s->n[k] * s->wp, NULL));
        t[k].param = (void *)(uintptr_t)s->p[k];
        t[k].grad = (void *)(uintptr_t)s->g[k];
    }
    without_kernels(s->r, t, NSHAPES);
    OK(optc_bind(s->r, &(optc_group){.tensors = t, .ntensors = NSHAPES}, 1, &s->b));
}

void close_side(Side *s, int off)
{
    OK(optc_sync(s->b));
    OK(optc_unbind(s->b));
    OK(optc_release(s->r));
    OK(optc_close(s->e));
    free_arrays(s, off);
}

void free_arrays(Side *s, int off)
{
    for (int k = 0; k < NSHAPES; k++) {
        free(s->hp[k]);
        free(s->hg[k]);
        if (s->p[k]) {
            d->cuMemFree_v2(s->p[k] - s->wp * (size_t)off);
            d->cuMemFree_v2(s->g[k] - s->wg * (size_t)(off * 3 % 4));
        }
    }
}

void set_grads(Side *s, int step)
{
    for (int k = 0; k < NSHAPES; k++) {
        for (int64_t i = 0; i < s->n[k]; i++)
            type_store(s->tg, s->hg[k], i, ldexp(ref_value(k, step, i), -(int)(i % 9)));
        if (s->g[k])
            ck_assert(!d->cuMemcpyHtoDAsync_v2(s->g[k], s->hg[k], (size_t)s->n[k] * s->wg, NULL));
    }
    if (s->g[0])
        d->cuStreamSynchronize(NULL);
}

static bool same(double a, double b, double bound)
{
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)) ||
           (bound > 0 && fabs(a - b) <= bound * (1 + fabs(a)));
}

void compare(const char *rule, Side *c, Side *g) { compare_within(rule, c, g, 0); }

void compare_within(const char *rule, Side *c, Side *g, double bound)
{
    OK(optc_sync(g->b));
    for (int k = 0; k < NSHAPES; k++) {
        ck_assert(!d->cuMemcpyDtoHAsync_v2(g->hp[k], g->p[k], (size_t)g->n[k] * g->wp, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        for (int64_t i = 0; i < c->n[k]; i++) {
            double x = type_load(c->tp, c->hp[k], i), y = type_load(g->tp, g->hp[k], i);
            ck_assert_msg(same(x, y, bound),
                          "%s: p of tensor %d, element %lld: CPU %.17g, GPU %.17g", rule, k,
                          (long long)i, x, y);
        }
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
                ck_assert_msg(same(x[i], y[i], bound),
                              "%s: state %s of tensor %d, element %lld: CPU %.17g, GPU %.17g", rule,
                              info.name, k, (long long)i, x[i], y[i]);
            free(x);
            free(y);
        }
    }
}

void fetch_params(Side *s)
{
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemcpyDtoHAsync_v2(s->hp[k], s->p[k], (size_t)s->n[k] * s->wp, NULL) &&
                  !d->cuStreamSynchronize(NULL));
}

static int roll(uint64_t *dice, int n) { return (int)((*dice = splitmix(*dice)) % (uint64_t)n); }

void use_random_launches(Side *g, uint64_t *dice, bool all)
{
    const Plan *p = g->r->library->plan;
    const GpuCode *code;
    Launch *l = calloc((size_t)p->nfn + 1, sizeof *l);
    for (int f = 0; f < p->nfn; f++) {
        const Stage *s = plan_at(p, f).stage;
        do {
            if (!s)
                break;
            l[f] = launch_model(p, s, roll(dice, 2) << 20);
            for (int k = 0; k < NKNOB; k++) {
                int v[MOST_VALUES], n = knob_values(stage_form(s), (Knob)k, v);
                if (all || roll(dice, 3) == 0)
                    l[f].v[k] = v[roll(dice, n)];
            }
        } while (!launch_valid(p, s, &l[f]));
    }
    OK(gpu_code_with(g->r, l, &code));
    gpu_enter(g->e->gpu);
    g->b->gpu->code = code;
    OK(gpu_leave(g->e->gpu, gpu_build_lists(g->b)));
    free(l);
}

void same_params(Side *a, Side *b, const char *what)
{
    OK(optc_sync(a->b));
    OK(optc_sync(b->b));
    fetch_params(a);
    fetch_params(b);
    for (int k = 0; k < NSHAPES; k++)
        ck_assert_msg(!memcmp(a->hp[k], b->hp[k], (size_t)a->n[k] * a->wp),
                      "%s: tensor %d has other bits", what, k);
}

/* ---- memory for tests without a side ---- */
void *device_take(size_t bytes)
{
    CUdeviceptr p = 0;
    ck_assert(!d->cuMemAlloc_v2(&p, bytes));
    return (void *)(uintptr_t)p;
}

void device_give(void *p) { ck_assert(!d->cuMemFree_v2((CUdeviceptr)(uintptr_t)p)); }
void device_put(void *to, const void *from, size_t bytes)
{
    ck_assert(!d->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, from, bytes, NULL) &&
              !d->cuStreamSynchronize(NULL));
}
void device_get(void *to, const void *from, size_t bytes)
{
    ck_assert(!d->cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)(uintptr_t)from, bytes, NULL) &&
              !d->cuStreamSynchronize(NULL));
}
const Where device_where = {device_take, device_give, device_put, device_get};

void use_cublas_alone(optc_binding *b)
{
    GpuCalls *x = b->gpu->calls;
    for (int i = 0; i < x->nstep; i++)
        x->step[i].algorithm.known = false;
}

int (*find_late(void))(int)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*f)(int) = NULL;
    if (library)
        *(void **)&f = dlsym(library, "emu_late");
    return f;
}

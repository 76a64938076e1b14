/* Measuring launches of a stage on a GPU, never on anybody's tensors: sets of our own, rings of large ones to time on (as many as it takes to go round past
 * the second-level cache) and a pair of small odd ones to compare bits on. The sets of a ring come in two layouts in turn, because a launch that suits one may not suit
 * the other: a persistent grid that gained 2 % of a stage on tensors of one size lost 20 on GPT-2's. And what wins must hold for the sizes beside, which take its
 * result where they have none: one that gained 1 % at 2^20 elements lost 3 at 2^22. */
#include "gpu.h"
#include "search.h"

#include "emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SETS = 128, MOST_TENSORS = 512, PATTERN = 1 << 20 };
enum { ONE_TENSOR, LIKE_A_MODEL, LAYOUTS };
enum { ITSELF, SMALLER, LARGER, RINGS };                  /* the size that is tuned for, and those beside it */
_Static_assert(RINGS * LAYOUTS <= MOST_LAYOUTS, "a search keeps a time for each");

typedef struct Set { optc_binding *b; CUdeviceptr p, g; size_t p_bytes; } Set;
typedef struct Ring {
    Set set[MOST_SETS]; int n, layouts;        /* layout by layout in turn; where memory is short, only the first */
    bool whole;                                /* memory was not short */
    int turn, settle;                          /* launches before the clock starts */
    double each;                               /* milliseconds of a launch, as the last race had them; 0: not known */
} Ring;
typedef struct Kernel { Launch launch; CUmodule module; CUfunction fn; bool ok; } Kernel;
typedef struct Build { Workers *workers; Launch launch; char *source, *cubin, *log; size_t size; int arch; pthread_t thread; bool started; } Build;

struct GpuTuner {
    optc_rule *r;
    Workers *workers;
    StageAt at;
    int entry;
    int64_t elements;
    Ring ring[RINGS];
    int wider;                                 /* layouts of all rings, once those beside are there; 0: not yet */
    Set check[2];
    CUdeviceptr numbers[2];                    /* what parameters and gradients are filled with, over and over */
    CUmodule same_module; CUfunction same;     /* compares what the pair holds … */
    CUdeviceptr differs;                       /* … and says so here */
    Kernel *kernel; int n, cap;
    Build build[2 * SEARCH_BATCH]; int nbuild; /* begun and not asked for yet */
    CUevent begin, end;
};

/* ---- sets ---- */
static void shape(optc_tensor *t, int64_t (*dim)[2], int i, bool matrix, int64_t rows, int64_t cols)
{
    dim[i][0] = matrix ? rows : rows * cols;
    dim[i][1] = cols;
    t[i] = (optc_tensor){.rank = matrix ? 2 : 1, .shape = dim[i], .flags = matrix ? 0 : OPTC_AS_VECTOR};
}

/* The tensors of a transformer of so many elements: layers of four matrices and eight vectors, and the rest as one that looks up words. */
static int like_a_model(int64_t elements, bool matrix, optc_tensor *t, int64_t (*dim)[2])
{
    static const struct { int rows, cols; } part[] = {{3, 1}, {1, 1}, {4, 1}, {1, 4}, {3, 0}, {4, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}};      /* of the width; cols 0: a vector */
    int layers = elements >= 1 << 26 ? 24 : elements >= 1 << 22 ? 8 : 4, n = 0;
    int64_t width = 16, rest = elements;
    while ((width + 16) * (width + 16) * 12 * (layers + 2) <= elements)
        width += 16;
    for (int l = 0; l < layers; l++)
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
            bool vector = part[i].cols == 0;
            int64_t rows = part[i].rows * width, cols = vector ? 1 : part[i].cols * width;
            if ((vector && matrix) || rows * cols > rest)
                continue;
            shape(t, dim, n++, matrix, rows, cols);
            rest -= rows * cols;
        }
    width = width < rest ? width : rest;
    if (width)
        shape(t, dim, n++, matrix, rest / width, width);
    return n;
}

static int shapes_for(int layout, int64_t elements, bool matrix, optc_tensor *t, int64_t (*dim)[2])
{
    int64_t cols = 1;
    if (layout == LIKE_A_MODEL)
        return like_a_model(elements, matrix, t, dim);
    while (cols * cols < elements && cols < 4096)
        cols *= 2;
    if (matrix)
        shape(t, dim, 0, true, (elements + cols - 1) / cols, cols);
    else
        shape(t, dim, 0, false, elements, 1);
    return 1;
}

static int odd_shapes(optc_tensor *t, int64_t (*dim)[2])
{
    static const int64_t odd[][2] = {{70001, 0}, {300, 701}, {33, 65}, {7, 0}, {67, 4100}, {64, 8192}, {5000, 3}, {1, 0}, {256, 1600}};
    int n = (int)(sizeof odd / sizeof *odd);
    for (int i = 0; i < n; i++) {
        memcpy(dim[i], odd[i], sizeof odd[i]);
        t[i] = (optc_tensor){.rank = odd[i][1] ? 2 : 1, .shape = dim[i]};
    }
    return n;
}

/* Numbers of several sizes and both signs. */
static optc_status open_numbers(GpuTuner *u)
{
    GpuEngine *g = u->r->engine->gpu;
    const Type type[2] = {u->r->plan->p, u->r->plan->g};
    char *host = malloc((size_t)PATTERN * 8);
    int rc = 0;
    if (!host)
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    for (int k = 0; k < 2 && !rc; k++) {
        for (int64_t i = 0; i < PATTERN; i++) {
            uint32_t h = (uint32_t)i * 2654435761u;
            type_store(type[k], host, i, (k ? 0.0625 : 1.0) * (0.25 + (double)(h >> 9) * 0x1p-23) * (h & 1 ? 1 : -1));
        }
        size_t bytes = (size_t)PATTERN * (size_t)type_info[type[k]].bytes;
        rc = g->d->cuMemAlloc_v2(&u->numbers[k], bytes);
        if (!rc)
            rc = g->d->cuMemcpyHtoDAsync_v2(u->numbers[k], host, bytes, NULL);
        if (!rc)
            rc = g->d->cuStreamSynchronize(NULL);
    }
    free(host);
    return rc ? gpu_error(g, "cuMemcpy", rc, "numbers to tune on") : OPTC_OK;
}

static optc_status fill(GpuEngine *g, CUdeviceptr to, CUdeviceptr numbers, Type t, int64_t n)
{
    size_t width = (size_t)type_info[t].bytes;
    for (int64_t at = 0; at < n; at += PATTERN)
        TRY(g, cuMemcpyDtoDAsync_v2(to + (size_t)at * width, numbers, (size_t)(n - at < PATTERN ? n - at : PATTERN) * width, NULL), "numbers to tune on");
    return OPTC_OK;
}

static optc_status set_inputs(optc_rule *r, Set *s, int n)
{
    for (int i = 0; i < optc_rule_inputs(r); i++) {
        const char *name = optc_rule_input(r, i);
        if (optc_set_scalar(s->b, -1, name, 0.5) == OPTC_OK)
            continue;
        for (int k = 0; k < n; k++) {
            optc_status rc = optc_set_input(s->b, k, name, (void *)(uintptr_t)s->g, 0);
            if (rc != OPTC_OK)
                return rc;
        }
    }
    return OPTC_OK;
}

static void set_close(optc_rule *r, Set *s)
{
    const Driver *d = r->engine->gpu->d;
    optc_unbind(s->b);
    gpu_enter(r->engine->gpu);
    if (s->p)
        d->cuMemFree_v2(s->p);
    if (s->g)
        d->cuMemFree_v2(s->g);
    gpu_leave(r->engine->gpu, OPTC_OK);
    *s = (Set){0};
}

static optc_status set_fill(GpuTuner *u, Set *s, int64_t total)
{
    GpuEngine *g = u->r->engine->gpu;
    const Plan *p = u->r->plan;
    s->p_bytes = (size_t)total * (size_t)type_info[p->p].bytes;
    TRY(g, cuMemAlloc_v2(&s->p, s->p_bytes + 256), "parameters to tune on");
    TRY(g, cuMemAlloc_v2(&s->g, (size_t)total * 8 + 256), "gradients to tune on");      /* 8: a rule's inputs, of whatever type, lie there too */
    optc_status rc = fill(g, s->p, u->numbers[0], p->p, total);
    return rc == OPTC_OK ? fill(g, s->g, u->numbers[1], p->g, total) : rc;
}

/* Two steps: every temporary then holds what a stage would find. */
static optc_status set_open(GpuTuner *u, Set *s, optc_tensor *t, int n)
{
    const Plan *p = u->r->plan;
    int64_t total = 0, at = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            if (pass) {
                t[i].param = (void *)(uintptr_t)(s->p + (size_t)at * (size_t)type_info[p->p].bytes);
                t[i].grad = (void *)(uintptr_t)(s->g + (size_t)at * (size_t)type_info[p->g].bytes);
            }
            at += (t[i].shape[0] * (t[i].rank == 2 ? t[i].shape[1] : 1) + 63) / 64 * 64;
        }
        if (!pass) {
            total = at;
            gpu_enter(u->r->engine->gpu);
            optc_status rc = gpu_leave(u->r->engine->gpu, set_fill(u, s, total));
            if (rc != OPTC_OK)
                return rc;
        }
        at = 0;
    }
    optc_status rc = optc_bind(u->r, &(optc_group){.tensors = t, .ntensors = n}, 1, &s->b);
    if (rc == OPTC_OK)
        rc = set_inputs(u->r, s, n);
    for (int k = 0; k < 2 && rc == OPTC_OK; k++)
        for (int e = u->r->plan->nentry - 1; e >= 0 && rc == OPTC_OK; e--)
            rc = optc_run(s->b, u->r->plan->entry[e].name);
    return rc == OPTC_OK ? optc_sync(s->b) : rc;
}

static double stage_bytes(const optc_binding *b, const Stage *s)
{
    const Units *u = &b->units[s->variant];
    double bytes = 0;
    for (int k = 0; k < u->n; k++) {
        Traffic x = stage_traffic(b->rule->plan, s, b->tensor[u->tensor[k]].shape);
        bytes += x.read + x.written;
    }
    return bytes;
}

static void ring_close(optc_rule *rule, Ring *r)
{
    for (int i = 0; i < r->n; i++)
        set_close(rule, &r->set[i]);
    *r = (Ring){0};
}

static void close_rings(GpuTuner *u)
{
    for (int i = 0; i < RINGS; i++)
        ring_close(u->r, &u->ring[i]);
}

/* Enough sets of each layout that when their turn comes again next to nothing of them is left in the cache, in whatever order it lets go of things: the hints that are tried change that order. */
static optc_status ring_open(GpuTuner *u, Ring *r, int64_t elements)
{
    static int64_t dim[MOST_TENSORS][2];
    static optc_tensor t[MOST_TENSORS];
    int want = LAYOUTS;
    r->layouts = LAYOUTS;
    for (int i = 0; i < want; i++) {
        int n = shapes_for(i % r->layouts, elements, u->at.stage->variant == MAT, t, dim);
        optc_status rc = set_open(u, &r->set[i], t, n);
        if (rc != OPTC_OK) {
            char why[1024];
            snprintf(why, sizeof why, "%s", optc_message());
            set_close(u->r, &r->set[i]);
            if (rc != OPTC_ERROR_MEMORY || i == 0)
                return fail(rc, "%s", why);
            if (i < LAYOUTS)
                r->layouts = 1;
            while (r->n % r->layouts)
                set_close(u->r, &r->set[--r->n]);
            return OPTC_OK;
        }
        r->n = i + 1;
        double bytes = stage_bytes(r->set[0].b, u->at.stage), l2 = u->r->engine->gpu->l2;
        double times = 8 * l2 / (bytes > 1 ? bytes : 1);
        want = times < MOST_SETS / LAYOUTS ? ((int)times + 1) * LAYOUTS : MOST_SETS;
        r->settle = times < 4 * MOST_SETS ? (int)(times / 4) + 1 : MOST_SETS;
    }
    r->whole = true;
    return OPTC_OK;
}

int gpu_tuner_size(GpuTuner *u, int64_t elements)
{
    close_rings(u);
    u->elements = elements;
    u->wider = 0;
    return ring_open(u, &u->ring[ITSELF], elements);
}

/* The sizes that would take this one's result, as far as there is memory for them. */
static int widen(void *ctx)
{
    GpuTuner *u = ctx;
    int lo, hi, at = tuned_bucket(u->elements);
    if (u->wider)
        return u->wider;
    u->wider = u->ring[ITSELF].layouts;
    launch_range(u->r->plan, u->at.stage, u->elements, &lo, &hi);
    for (int i = SMALLER; i < RINGS; i++) {
        int bucket = i == SMALLER ? at - TUNED_REACH : at + TUNED_REACH;
        Ring *r = &u->ring[i];
        if (bucket < 0 || bucket < lo || bucket > hi || bucket > TUNED_LARGE)
            continue;
        if (ring_open(u, r, (int64_t)1 << bucket) != OPTC_OK || !r->whole)
            ring_close(u->r, r);
        u->wider += r->layouts;
    }
    return u->wider;
}

/* ---- opening ---- */
static void end_build(Build *b)
{
    if (b->started)
        pthread_join(b->thread, NULL);
    b->started = false;
}

static void free_build(Build *b)
{
    end_build(b);
    free(b->source);
    free(b->cubin);
    free(b->log);
    *b = (Build){0};
}

static void forget_kernels(GpuTuner *u)
{
    GpuEngine *g = u->r->engine->gpu;
    while (u->nbuild)
        free_build(&u->build[--u->nbuild]);
    gpu_enter(g);
    for (int i = 0; i < u->n; i++)
        if (u->kernel[i].module)
            g->d->cuModuleUnload(u->kernel[i].module);
    gpu_leave(g, OPTC_OK);
    u->n = 0;
}

void gpu_tuner_close(GpuTuner *u)
{
    if (!u)
        return;
    GpuEngine *g = u->r->engine->gpu;
    close_rings(u);
    for (int i = 0; i < 2; i++)
        set_close(u->r, &u->check[i]);
    forget_kernels(u);
    gpu_enter(g);
    if (u->same_module)
        g->d->cuModuleUnload(u->same_module);
    if (u->differs)
        g->d->cuMemFree_v2(u->differs);
    for (int i = 0; i < 2; i++)
        if (u->numbers[i])
            g->d->cuMemFree_v2(u->numbers[i]);
    if (u->begin)
        g->d->cuEventDestroy_v2(u->begin);
    if (u->end)
        g->d->cuEventDestroy_v2(u->end);
    gpu_leave(g, OPTC_OK);
    free(u->kernel);
    free(u);
}

/* On the device, where the bits are: a pair is 36 MB, to be copied out for every candidate otherwise. Its argument has the layout of optc_launch. */
static const char same_source[] =
    "struct optc_launch { const unsigned *a, *b; unsigned *differs; long long n; int guard, tick; };\n"
    "extern \"C\" __global__ void optc_same(const optc_launch x)\n"
    "{\n"
    "    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < x.n; i += (long long)gridDim.x * blockDim.x)\n"
    "        if (x.a[i] != x.b[i])\n"
    "            *x.differs = 1;\n"
    "}\n";

static optc_status open_same(GpuTuner *u)
{
    GpuEngine *g = u->r->engine->gpu;
    size_t size;
    char *log = NULL, *code = nvrtc_build(nvrtc_get(NULL), same_source, "optc_same", g->arch, false, &size, &log);
    optc_status rc = code ? OPTC_OK : fail(OPTC_ERROR_DEVICE, "tuning: NVRTC: %s", log ? log : "out of memory");
    int bad = code ? g->d->cuModuleLoadData(&u->same_module, code) : 0;
    free(code);
    free(log);
    if (rc != OPTC_OK || bad)
        return bad ? gpu_error(g, "cuModuleLoadData", bad, "optc_same") : rc;
    TRY(g, cuModuleGetFunction(&u->same, u->same_module, "optc_same"), "optc_same");
    TRY(g, cuMemAlloc_v2(&u->differs, 256), "tuning");
    return OPTC_OK;
}

static optc_status open_rest(GpuTuner *u)
{
    GpuEngine *g = u->r->engine->gpu;
    static int64_t dim[16][2];
    optc_tensor t[16];
    optc_status rc = open_numbers(u);
    for (int i = 0; i < 2 && rc == OPTC_OK; i++)
        rc = set_open(u, &u->check[i], t, odd_shapes(t, dim));
    if (rc == OPTC_OK)
        rc = open_same(u);
    if (rc != OPTC_OK)
        return rc;
    TRY(g, cuEventCreate(&u->begin, 0), "");
    TRY(g, cuEventCreate(&u->end, 0), "");
    return OPTC_OK;
}

int gpu_tuner_open(optc_rule *r, Workers *workers, GpuTuner **out)
{
    GpuTuner *u = calloc(1, sizeof *u);
    *out = NULL;
    if (!u)
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    u->r = r;
    u->workers = workers;
    gpu_enter(r->engine->gpu);
    optc_status rc = gpu_leave(r->engine->gpu, open_rest(u));
    if (rc != OPTC_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", optc_message());
        gpu_tuner_close(u);
        return fail(rc, "%s", why);
    }
    *out = u;
    return OPTC_OK;
}

int gpu_tuner_stage(GpuTuner *u, int fn)
{
    u->at = plan_at(u->r->plan, fn);
    u->entry = (int)(u->at.entry - u->r->plan->entry);
    forget_kernels(u);
    close_rings(u);
    return OPTC_OK;
}

double gpu_tuner_bytes(const GpuTuner *u) { return stage_bytes(u->ring[ITSELF].set[0].b, u->at.stage); }

/* ---- kernels ---- */
static Kernel *kernel_of(GpuTuner *u, const Launch *l)
{
    for (int i = 0; i < u->n; i++)
        if (!memcmp(&u->kernel[i].launch, l, sizeof *l))
            return &u->kernel[i];
    return NULL;
}

static void *build(void *arg)
{
    Build *b = arg;
    b->cubin = b->source ? workers_build(b->workers, b->source, "tune", b->arch, &b->size, &b->log) : NULL;
    return NULL;
}

static char *source_of(GpuTuner *u, const Launch *l)
{
    Gen *g = &u->r->gen;
    Launch *all = calloc((size_t)u->r->plan->nfn + 1, sizeof *all);
    if (!all)
        return NULL;
    all[u->at.stage->fn] = *l;
    const Launch *was = g->launch;
    bool cite = g->cite;
    g->launch = all;
    g->only = u->at.stage;
    g->cite = false;
    char *s = gen_emit(g, "cuda", "");
    g->launch = was;
    g->only = NULL;
    g->cite = cite;
    free(all);
    return s;
}

static void load(GpuTuner *u, Kernel *k, const Build *b)
{
    const Driver *d = u->r->engine->gpu->d;
    const char *name = emit_stage_name(&u->r->gen.arena, u->r->plan, u->at.entry->name, u->at.phase, u->at.stage);
    k->ok = b->cubin && !d->cuModuleLoadData(&k->module, b->cubin) && !d->cuModuleGetFunction(&k->fn, k->module, name);
}

/* ---- the same bits ---- */
static optc_status step_with(GpuTuner *u, Set *s, const Kernel *k)
{
    optc_binding *b = s->b;
    Play *p = &b->gpu->play[u->entry * b->gpu->nphase + u->at.phase];
    optc_status rc = OPTC_OK;
    for (int i = 0; i < p->n && rc == OPTC_OK; i++) {
        Shot x = p->shot[i];
        if (k && x.stage == u->at.stage) {
            int tick = x.args.tick;
            x = gpu_shot(b, x.stage, &k->launch, k->fn);
            x.args.tick = tick;
        }
        rc = gpu_fire(b, &x, 0);
    }
    return rc;
}

static bool same_bits(GpuTuner *u, const Kernel *k)
{
    const Driver *d = u->r->engine->gpu->d;
    const Set *a = &u->check[0], *b = &u->check[1];
    const struct { CUdeviceptr a, b; size_t bytes; } part[] = {{a->p, b->p, a->p_bytes}, {(CUdeviceptr)(uintptr_t)a->b->block, (CUdeviceptr)(uintptr_t)b->b->block, a->b->block_bytes}};
    unsigned differs = 1;
    if (step_with(u, &u->check[0], NULL) != OPTC_OK || step_with(u, &u->check[1], k) != OPTC_OK || d->cuMemsetD8Async(u->differs, 0, sizeof differs, NULL))
        return false;
    for (int i = 0; i < 2; i++) {
        Shot x = {.fn = u->same, .blocks = 64, .threads = 256, .args = {part[i].a, part[i].b, u->differs, (long long)(part[i].bytes / sizeof(unsigned)), 0, 0}};
        if (shot_fire(d, &x, 0, NULL))
            return false;
    }
    return !d->cuMemcpyDtoHAsync_v2(&differs, u->differs, sizeof differs, NULL) && !d->cuStreamSynchronize(NULL) && !differs;
}

/* Where a kernel gave other bits the pair differs from then on: made equal again. */
static void mend(GpuTuner *u)
{
    const Driver *d = u->r->engine->gpu->d;
    d->cuMemcpyDtoDAsync_v2(u->check[1].p, u->check[0].p, u->check[0].p_bytes, NULL);
    d->cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)u->check[1].b->block, (CUdeviceptr)(uintptr_t)u->check[0].b->block, u->check[0].b->block_bytes, NULL);
    d->cuStreamSynchronize(NULL);
}

static Build *build_of(GpuTuner *u, const Launch *l)
{
    for (int i = 0; i < u->nbuild; i++)
        if (!memcmp(&u->build[i].launch, l, sizeof *l))
            return &u->build[i];
    return NULL;
}

static void prepare(void *ctx, const Launch *l, int n)
{
    GpuTuner *u = ctx;
    for (int i = 0; i < n && u->nbuild < 2 * SEARCH_BATCH; i++) {
        if (kernel_of(u, &l[i]) || build_of(u, &l[i]))
            continue;
        Build *b = &u->build[u->nbuild++];
        *b = (Build){.workers = u->workers, .launch = l[i], .source = source_of(u, &l[i]), .arch = u->r->engine->gpu->arch};
        b->started = pthread_create(&b->thread, NULL, build, b) == 0;
        if (!b->started)
            build(b);
    }
}

static bool room_for_one(GpuTuner *u)
{
    if (u->n < u->cap)
        return true;
    Kernel *more = realloc(u->kernel, sizeof *more * (size_t)(u->cap + 256));
    if (!more)
        return false;
    u->kernel = more;
    u->cap += 256;
    return true;
}

static Kernel *loaded(GpuTuner *u, const Launch *l)
{
    Build *b = build_of(u, l);
    if (!b || !room_for_one(u))
        return NULL;
    end_build(b);
    Kernel *k = &u->kernel[u->n++];
    *k = (Kernel){.launch = *l};
    load(u, k, b);
    if (k->ok && !same_bits(u, k)) {
        k->ok = false;
        mend(u);
    }
    return k;
}

/* A build's thread knows it by its place, so places are free only when all are: what was begun ahead is asked for next, or never. */
static void ready(void *ctx, const Launch *l, int n, bool *ok)
{
    GpuTuner *u = ctx;
    prepare(u, l, n);
    gpu_enter(u->r->engine->gpu);
    for (int i = 0; i < n; i++) {
        Kernel *k = kernel_of(u, &l[i]);
        if (!k)
            k = loaded(u, &l[i]);
        ok[i] = k && k->ok;
    }
    gpu_leave(u->r->engine->gpu, OPTC_OK);
    while (u->nbuild)
        free_build(&u->build[--u->nbuild]);
}

/* ---- times ---- */
/* The clock starts when the cache holds what this kernel leaves there. Otherwise it would be given the other side's work to do: what a kernel without streaming hints
 * has written waits in the cache, and whoever comes next writes it out. Of 2^24 elements that was 3.5 % of AdamW's time. */
static bool run_timed(GpuTuner *u, Ring *r, int layout, const Kernel *k, int reps, double *ms)
{
    const Driver *d = u->r->engine->gpu->d;
    float t = 0;
    if (d->cuStreamSynchronize(NULL))
        return false;
    for (int i = -r->settle; i < reps; i++) {
        int turn = r->turn++;
        optc_binding *b = r->set[(layout < 0 ? turn : turn * r->layouts + layout) % r->n].b;
        Shot x = gpu_shot(b, u->at.stage, &k->launch, k->fn);
        if ((i == 0 && d->cuEventRecord(u->begin, NULL)) || gpu_fire(b, &x, 0) != OPTC_OK)
            return false;
    }
    if (d->cuEventRecord(u->end, NULL) || d->cuEventSynchronize(u->end) || d->cuEventElapsedTime(&t, u->begin, u->end))
        return false;
    *ms = t / reps;
    return true;
}

/* Layouts are counted through the rings. */
static Ring *ring_of(GpuTuner *u, int *layout)
{
    Ring *r = u->ring;
    for (; *layout >= r->layouts; r++)
        *layout -= r->layouts;
    return r;
}

static bool race(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a, double *ms_b)
{
    GpuTuner *u = ctx;
    Ring *r = ring_of(u, &layout);
    int round = layout < 0 ? r->n : r->n / r->layouts;      /* both sides run on all sets alike, which lie better or worse */
    const Kernel *k[2] = {kernel_of(u, a), kernel_of(u, b)};
    double t[2][128];
    samples = samples > 128 ? 128 : samples;
    gpu_enter(u->r->engine->gpu);
    bool ok = k[0] && k[1] && (r->each > 0 || run_timed(u, r, layout, k[1], round, &r->each));
    int reps = ok && r->each < 0.2 ? ((int)(0.2 / (r->each > 1e-3 ? r->each : 1e-3)) / round + 1) * round : round;      /* short ones are timed together, far above the clock's grain */
    for (int i = 0; i < samples && ok; i++)
        for (int side = 0; side < 2 && ok; side++)
            ok = run_timed(u, r, layout, k[(i + side) % 2], reps, &t[(i + side) % 2][i]);
    gpu_leave(u->r->engine->gpu, OPTC_OK);
    *ms_a = ok ? median(t[0], samples) : 0;
    *ms_b = r->each = ok ? median(t[1], samples) : 0;
    return ok;
}

static double now(void *ctx)
{
    (void)ctx;
    return now_ms() * 1e-3;
}

Meter gpu_tuner_meter(GpuTuner *u) { return (Meter){u, u->ring[ITSELF].layouts, true, widen, prepare, ready, race, now}; }

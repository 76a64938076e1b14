/* Measures launches of a stage on a GPU, on the sets of tune_tensors.h: kernels are compiled ahead,
 * compared bit by bit, and raced. A winner is also measured at the neighbouring sizes, which use
 * its result if they have none: a launch that gained 1 % at 2^20 elements lost 3 % at 2^22. */
#include "runtime/library/tune/launch_search.h"
#include "runtime/library/tune/tune_tensors.h"

#include "gen/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* the size that is tuned, and its neighbouring sizes */
enum { ITSELF, SMALLER, LARGER, RINGS };
_Static_assert(RINGS * LAYOUTS <= MOST_LAYOUTS, "a search keeps a time for each");

typedef struct Kernel { Launch launch; CUmodule module; CUfunction fn; bool ok; } Kernel;
typedef struct Build { Launch launch; Job *job; } Build;

struct GpuTuner {
    optc_rule *r;
    Workers *workers;
    StageAt at;
    int entry;
    int64_t elements;
    Ring ring[RINGS];
    /* layouts of all rings; 0: the neighbouring sizes are not allocated */
    int wider;
    Set check[2];
    TuneSets sets;
    CUmodule same_module; CUfunction same;     /* a kernel that compares the pair's memory */
    CUdeviceptr differs;                       /* it sets this flag if they differ */
    Kernel *kernel; int n, cap;
    /* compilations that were started and not requested yet, in order */
    Build build[SEARCH_AHEAD]; int nbuild;
    CUevent begin, end;
};

/* ---- sizes ---- */
static void close_rings(GpuTuner *u)
{
    for (int i = 0; i < RINGS; i++)
        ring_close(u->r, &u->ring[i]);
}

int gpu_tuner_size(GpuTuner *u, int64_t elements)
{
    close_rings(u);
    u->elements = elements;
    u->wider = 0;
    return ring_open(&u->sets, u->at.stage, &u->ring[ITSELF], elements);
}

/* Allocates the neighbouring sizes, which would use this size's result, as far as there is
 * memory. */
static int widen(void *ctx)
{
    GpuTuner *u = ctx;
    int lo, hi, at = tuned_bucket(u->elements);
    if (u->wider)
        return u->wider;
    u->wider = u->ring[ITSELF].layouts;
    launch_range(u->r->library->plan, u->at.stage, u->elements, &lo, &hi);
    for (int i = SMALLER; i < RINGS; i++) {
        int bucket = i == SMALLER ? at - TUNED_REACH : at + TUNED_REACH;
        Ring *r = &u->ring[i];
        if (bucket < 0 || bucket < lo || bucket > hi || bucket > TUNED_LARGE)
            continue;
        if (ring_open(&u->sets, u->at.stage, r, (int64_t)1 << bucket) != OPTC_OK || !r->whole)
            ring_close(u->r, r);
        u->wider += r->layouts;
    }
    return u->wider;
}

/* ---- opening ---- */
static Job *take_build(GpuTuner *u, int at)
{
    Job *j = u->build[at].job;
    u->nbuild--;
    memmove(&u->build[at], &u->build[at + 1], sizeof *u->build * (size_t)(u->nbuild - at));
    return j;
}

static void forget_kernels(GpuTuner *u)
{
    GpuEngine *g = u->r->engine->gpu;
    while (u->nbuild)
        workers_drop(take_build(u, 0));
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
    sets_end(&u->sets);
    if (u->begin)
        g->d->cuEventDestroy_v2(u->begin);
    if (u->end)
        g->d->cuEventDestroy_v2(u->end);
    gpu_leave(g, OPTC_OK);
    free(u->kernel);
    free(u);
}

/* Compares on the device: otherwise the pair, 36 MB, would be copied to the host for every
 * candidate. Its argument has the layout of optc_launch. */
static const char same_source[] =
    "struct optc_launch { const unsigned *a, *b; unsigned *differs; long long n; int guard, tick; "
    "long long brief[2]; };\n"
    "extern \"C\" __global__ void optc_same(const optc_launch x)\n"
    "{\n"
    "    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < x.n; i += (long "
    "long)gridDim.x * "
    "blockDim.x)\n"
    "        if (x.a[i] != x.b[i])\n"
    "            *x.differs = 1;\n"
    "}\n";

static optc_status open_same(GpuTuner *u)
{
    GpuEngine *g = u->r->engine->gpu;
    size_t size;
    char *log = NULL, *code = nvrtc_build(nvrtc_get(NULL), same_source, "optc_same", g->arch, false,
                                          &size, &log);
    optc_status rc =
        code ? OPTC_OK : fail(OPTC_ERROR_DEVICE, "tuning: NVRTC: %s", log ? log : "out of memory");
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
    optc_status rc = sets_begin(&u->sets);
    for (int i = 0; i < 2 && rc == OPTC_OK; i++)
        rc = set_open_odd(&u->sets, &u->check[i]);
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
    u->r = u->sets.r = r;
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
    u->at = plan_at(u->r->library->plan, fn);
    u->entry = (int)(u->at.entry - u->r->library->plan->entry);
    forget_kernels(u);
    close_rings(u);
    return OPTC_OK;
}

double gpu_tuner_bytes(const GpuTuner *u)
{
    return stage_bytes(u->ring[ITSELF].set[0].b, u->at.stage);
}

/* ---- kernels ---- */
/* Index of a launch in an array of structs of `size` bytes that begin with a Launch; -1: not
 * found. */
static int find_launch(const Launch *l, const void *in, size_t size, int n)
{
    int i = 0;
    while (i < n && memcmp((const char *)in + (size_t)i * size, l, sizeof *l))
        i++;
    return i < n ? i : -1;
}

static Kernel *kernel_of(GpuTuner *u, const Launch *l)
{
    int at = find_launch(l, u->kernel, sizeof *u->kernel, u->n);
    return at < 0 ? NULL : &u->kernel[at];
}

static char *source_of(GpuTuner *u, const Launch *l)
{
    return gpu_stage_source(u->r, u->at.stage, l);
}

static void load(GpuTuner *u, Kernel *k, Job *j)
{
    const Driver *d = u->r->engine->gpu->d;
    size_t size;
    char *log, *cubin = workers_result(j, &size, &log);
    const char *name = program_stage(u->r->program, u->at.stage->fn)->kernel;
    k->ok = cubin && !d->cuModuleLoadData(&k->module, cubin) &&
            !d->cuModuleGetFunction(&k->fn, k->module, name);
    free(cubin);
    free(log);
}

/* ---- the same bits ---- */
static optc_status step_with(GpuTuner *u, Set *s, const Kernel *k)
{
    optc_binding *b = s->b;
    LaunchList *p = &b->gpu->launch_list[u->entry * b->gpu->nphase + u->at.phase];
    optc_status rc = OPTC_OK;
    for (int i = 0; i < p->n && rc == OPTC_OK; i++) {
        LaunchItem x = p->item[i];
        if (k && x.stage && x.stage->fn == u->at.stage->fn) {
            int advance_t = x.args.advance_t;
            x = gpu_launch_item(b, x.op, &k->launch, k->fn);
            x.args.advance_t = advance_t;
        }
        rc = gpu_launch(b, &x, 0);
    }
    return rc;
}

static bool same_bits(GpuTuner *u, const Kernel *k)
{
    const Driver *d = u->r->engine->gpu->d;
    const Set *a = &u->check[0], *b = &u->check[1];
    const struct {
        CUdeviceptr a, b;
        size_t bytes;
    } part[] = {{a->p, b->p, a->p_bytes},
                {(CUdeviceptr)(uintptr_t)a->b->block, (CUdeviceptr)(uintptr_t)b->b->block,
                 a->b->storage_bytes}};
    unsigned differs = 1;
    if (step_with(u, &u->check[0], NULL) != OPTC_OK || step_with(u, &u->check[1], k) != OPTC_OK ||
        d->cuMemsetD8Async(u->differs, 0, sizeof differs, NULL))
        return false;
    for (int i = 0; i < 2; i++) {
        LaunchItem x = {.fn = u->same,
                        .blocks = 64,
                        .threads = 256,
                        .args = {part[i].a,
                                 part[i].b,
                                 u->differs,
                                 (long long)(part[i].bytes / sizeof(unsigned)),
                                 0,
                                 0,
                                 {0, 0}}};
        if (item_launch(d, &x, 0, NULL))
            return false;
    }
    return !d->cuMemcpyDtoHAsync_v2(&differs, u->differs, sizeof differs, NULL) &&
           !d->cuStreamSynchronize(NULL) && !differs;
}

/* Makes the pair equal again after a kernel that gave other bits. */
static void mend(GpuTuner *u)
{
    const Driver *d = u->r->engine->gpu->d;
    d->cuMemcpyDtoDAsync_v2(u->check[1].p, u->check[0].p, u->check[0].p_bytes, NULL);
    d->cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)u->check[1].b->block,
                            (CUdeviceptr)(uintptr_t)u->check[0].b->block,
                            u->check[0].b->storage_bytes, NULL);
    d->cuStreamSynchronize(NULL);
}

static int build_of(GpuTuner *u, const Launch *l)
{
    return find_launch(l, u->build, sizeof *u->build, u->nbuild);
}

static void prepare(void *ctx, const Launch *l, int n)
{
    GpuTuner *u = ctx;
    for (int i = 0; i < n && u->nbuild < SEARCH_AHEAD; i++) {
        char *source = kernel_of(u, &l[i]) || build_of(u, &l[i]) >= 0 ? NULL : source_of(u, &l[i]);
        if (source)
            u->build[u->nbuild++] = (Build){
                l[i], workers_begin(u->workers, source, "tune", u->r->engine->gpu->arch, false)};
        free(source);
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
    int at = build_of(u, l);
    if (at < 0 || !room_for_one(u))
        return NULL;
    Kernel *k = &u->kernel[u->n++];
    *k = (Kernel){.launch = *l};
    load(u, k, take_build(u, at));
    if (k->ok && !same_bits(u, k)) {
        k->ok = false;
        mend(u);
    }
    return k;
}

/* Compilations may be left over from a search whose budget ended. If there is no room for the
 * launches requested now, they are dropped. */
static void make_room(GpuTuner *u, const Launch *l, int n)
{
    int missing = 0;
    for (int i = 0; i < n; i++)
        missing += !kernel_of(u, &l[i]) && build_of(u, &l[i]) < 0;
    for (int i = 0; i < u->nbuild && missing > SEARCH_AHEAD - u->nbuild;)
        if (find_launch(&u->build[i].launch, l, sizeof *l, n) < 0)
            workers_drop(take_build(u, i));
        else
            i++;
}

static void ready(void *ctx, const Launch *l, int n, bool *ok)
{
    GpuTuner *u = ctx;
    make_room(u, l, n);
    prepare(u, l, n);
    for (int i = n - 1; i >= 0; i--) {
        int at = build_of(u, &l[i]);
        workers_hurry(at < 0 ? NULL : u->build[at].job);
    }
    gpu_enter(u->r->engine->gpu);
    for (int i = 0; i < n; i++) {
        Kernel *k = kernel_of(u, &l[i]);
        if (!k)
            k = loaded(u, &l[i]);
        ok[i] = k && k->ok;
    }
    gpu_leave(u->r->engine->gpu, OPTC_OK);
}

/* ---- times ---- */
/* The first op that runs the stage: batches share their temporaries. */
static const ScheduleOp *op_of(const GpuTuner *u, const optc_binding *b)
{
    const LaunchList *p = &b->gpu->launch_list[u->entry * b->gpu->nphase + u->at.phase];
    for (int i = 0; i < p->n; i++)
        if (p->item[i].stage && p->item[i].stage->fn == u->at.stage->fn)
            return p->item[i].op;
    return NULL;
}

/* The clock starts after untimed launches (settle) have filled the cache with this kernel's own
 * data. Otherwise the kernel would do the other side's work: data that a kernel without streaming
 * hints has written stays in the cache, and the next kernel has to write it back. At 2^24 elements
 * that was 3.5 % of AdamW's time. */
static bool run_timed(GpuTuner *u, Ring *r, int layout, const Kernel *k, int reps, double *ms)
{
    const Driver *d = u->r->engine->gpu->d;
    float t = 0;
    if (d->cuStreamSynchronize(NULL))
        return false;
    for (int i = -r->settle; i < reps; i++) {
        int next_set = r->next_set++;
        optc_binding *b = r->set[(layout < 0 ? next_set : next_set * r->layouts + layout) % r->n].b;
        const ScheduleOp *op = op_of(u, b);
        if (!op)
            return false;
        LaunchItem x = gpu_launch_item(b, op, &k->launch, k->fn);
        if ((i == 0 && d->cuEventRecord(u->begin, NULL)) || gpu_launch(b, &x, 0) != OPTC_OK)
            return false;
    }
    if (d->cuEventRecord(u->end, NULL) || d->cuEventSynchronize(u->end) ||
        d->cuEventElapsedTime(&t, u->begin, u->end))
        return false;
    *ms = t / reps;
    return true;
}

/* Layouts are numbered through all rings. Returns the ring, and makes *layout its layout there. */
static Ring *ring_of(GpuTuner *u, int *layout)
{
    Ring *r = u->ring;
    for (; *layout >= r->layouts; r++)
        *layout -= r->layouts;
    return r;
}

static bool race(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a,
                 double *ms_b)
{
    GpuTuner *u = ctx;
    Ring *r = ring_of(u, &layout);
    /* both sides run on all sets equally often, because addresses affect the speed */
    int round = layout < 0 ? r->n : r->n / r->layouts;
    const Kernel *k[2] = {kernel_of(u, a), kernel_of(u, b)};
    double t[2][128];
    samples = samples > 128 ? 128 : samples;
    gpu_enter(u->r->engine->gpu);
    bool ok = k[0] && k[1] && (r->each > 0 || run_timed(u, r, layout, k[1], round, &r->each));
    /* short launches are timed together, for 0.2 ms: far above the clock's resolution */
    int reps = ok && r->each < 0.2
                   ? ((int)(0.2 / (r->each > 1e-3 ? r->each : 1e-3)) / round + 1) * round
                   : round;
    /* A disturbance of the host while it starts short launches makes them look five times as long.
     * A median of one or two samples does not help, so the smaller of two is used. */
    int looks = samples < 3 && r->each < 0.1 ? 2 : 1;
    for (int i = 0; i < samples && ok; i++)
        for (int next_set = 0; next_set < 2 * looks && ok; next_set++) {
            int side = (i + next_set) % 2;
            double ms;
            ok = run_timed(u, r, layout, k[side], reps, &ms);
            t[side][i] = next_set < 2 || ms < t[side][i] ? ms : t[side][i];
        }
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

Meter gpu_tuner_meter(GpuTuner *u)
{
    return (Meter){u, u->ring[ITSELF].layouts, true, widen, prepare, ready, race, now, NULL, NULL};
}

/* A GPU: context, spare library handles, errors, opening, memory. */
#include "runtime/core/cuda/gpu_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One bit per open gpu_enter of this thread: its push succeeded. After a failed push gpu_leave must
 * not pop, or the caller would lose its own context. */
static __thread uint64_t pushed;
static __thread int depth;                         /* open calls of gpu_enter */
/* the capture mode of the caller of the first one */
static __thread CUstreamCaptureMode callers;

static CUstreamCaptureMode capture_mode(const Driver *d, CUstreamCaptureMode mode)
{
    return d->cuThreadExchangeStreamCaptureMode(&mode)
               ? (CUstreamCaptureMode)CU_STREAM_CAPTURE_MODE_GLOBAL
               : mode;
}

/* In the default capture mode, allocating, freeing, waiting and destroying a graph end a capture in
 * any stream of the program, although they are unrelated to it. So the mode is relaxed until
 * gpu_leave. This does not help if a blocking stream is captured: CUDA then forbids any use of the
 * default stream. */
CORE const Driver *gpu_enter(const GpuEngine *g)
{
    pushed = pushed << 1 | (g->d->cuCtxPushCurrent_v2(g->ctx) == 0);
    if (!depth++)
        callers = capture_mode(g->d, CU_STREAM_CAPTURE_MODE_RELAXED);
    return g->d;
}

CORE optc_status gpu_leave(const GpuEngine *g, optc_status s)
{
    CUcontext c;
    if (!--depth)
        capture_mode(g->d, callers);
    if (pushed & 1)
        g->d->cuCtxPopCurrent_v2(&c);
    pushed >>= 1;
    return s;
}

/* ---- handles ---- */
typedef struct Spare { void *handle; SpareGone gone; } Spare;

/* The atomic exchange of an entry passes ownership of its handle. Destroys the handle if no entry
 * is free. */
static void put_spare(GpuEngine *g, Spare *x)
{
    for (int i = 0; i < MOST_SPARE; i++) {
        Spare *none = NULL;
        if (__atomic_compare_exchange_n(&g->spare[i], &none, x, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return;
    }
    x->gone(x->handle);
    free(x);
}

CORE void *spare_take(GpuEngine *g, SpareGone gone)
{
    void *handle = NULL;
    for (int i = 0; i < MOST_SPARE && !handle; i++) {
        Spare *x = __atomic_exchange_n(&g->spare[i], (Spare *)NULL, __ATOMIC_SEQ_CST);
        if (x && x->gone != gone) {
            put_spare(g, x);
        } else if (x) {
            handle = x->handle;
            free(x);
        }
    }
    return handle;
}

CORE void spare_keep(GpuEngine *g, void *handle, SpareGone gone)
{
    Spare *x = (Spare *)malloc(sizeof *x);
    if (!x) {
        gone(handle);
        return;
    }
    x->handle = handle;
    x->gone = gone;
    put_spare(g, x);
}

CORE void spare_drop(GpuEngine *g)
{
    for (int i = 0; i < MOST_SPARE; i++) {
        Spare *x = __atomic_exchange_n(&g->spare[i], (Spare *)NULL, __ATOMIC_SEQ_CST);
        if (x)
            x->gone(x->handle);
        free(x);
    }
}

/* ---- errors ---- */
/* After one of these errors every call on the context returns the same error; no data can be read
 * back. */
static bool sticky(int rc)
{
    static const int ends[] = {CUDA_ERROR_ECC_UNCORRECTABLE,
                               CUDA_ERROR_NVLINK_UNCORRECTABLE,
                               CUDA_ERROR_ILLEGAL_ADDRESS,
                               CUDA_ERROR_LAUNCH_TIMEOUT,
                               CUDA_ERROR_CONTEXT_IS_DESTROYED,
                               CUDA_ERROR_ASSERT,
                               CUDA_ERROR_HARDWARE_STACK_ERROR,
                               CUDA_ERROR_ILLEGAL_INSTRUCTION,
                               CUDA_ERROR_MISALIGNED_ADDRESS,
                               CUDA_ERROR_INVALID_ADDRESS_SPACE,
                               CUDA_ERROR_INVALID_PC,
                               CUDA_ERROR_LAUNCH_FAILED,
                               0};
    for (const int *e = ends; *e; e++)
        if (*e == rc)
            return true;
    return false;
}

CORE optc_status gpu_error(GpuEngine *g, const char *call, int rc, const char *what)
{
    const char *name = "?", *text = "";
    char why[400];
    g->d->cuGetErrorName(rc, &name);
    g->d->cuGetErrorString(rc, &text);
    snprintf(why, sizeof why, "%.*s: %s (%s)%s%.200s", (int)strcspn(call, "("), call, name, text,
             *what ? ": " : "", what);
    if (!sticky(rc))
        return fail(rc == CUDA_ERROR_OUT_OF_MEMORY ? OPTC_ERROR_MEMORY : OPTC_ERROR_DEVICE, "%s",
                    why);
    int alive = 0;
    if (__atomic_compare_exchange_n(&g->dead, &alive, 1, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
        memcpy(g->why, why, sizeof why);
        __atomic_store_n(&g->dead, 2, __ATOMIC_SEQ_CST);       /* `why` is complete */
    }
    return fail(OPTC_ERROR_DEVICE,
                "%s; cuda:%d can do no more work in this process: start a new one", why,
                g->ordinal);
}

CORE optc_status gpu_alive(GpuEngine *g)
{
    int dead = __atomic_load_n(&g->dead, __ATOMIC_SEQ_CST);
    return dead ? fail(OPTC_ERROR_DEVICE,
                       "cuda:%d failed before and can do no more work in this process: %s",
                       g->ordinal, dead == 2 ? g->why : "")
                : OPTC_OK;
}

/* ---- engines ---- */
CORE int gpu_count(void)
{
    Driver d;
    char why[256];
    int n = 0;
    return driver_open(&d, HOST()->cuda, why, sizeof why) && d.cuDeviceGetCount(&n) == 0 ? n : 0;
}

CORE int gpu_best(void)
{
    Driver d;
    char why[256];
    int best = -1, most = 0, n = 0;
    size_t room = 0;
    if (!driver_open(&d, HOST()->cuda, why, sizeof why) || d.cuDeviceGetCount(&n))
        return -1;
    for (int i = 0; i < n; i++) {
        CUdevice dev;
        int sms = 0;
        size_t bytes = 0;
        if (d.cuDeviceGet(&dev, i) ||
            d.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev) ||
            d.cuDeviceTotalMem_v2(&bytes, dev))
            continue;
        if (best < 0 || sms > most || (sms == most && bytes > room)) {
            best = i;
            most = sms;
            room = bytes;
        }
    }
    return best;
}

static int kernel_driver(int otherwise)
{
    FILE *f = fopen("/sys/module/nvidia/version", "r");
    int major = 0;
    if (f && fscanf(f, "%d", &major) != 1)
        major = 0;
    if (f)
        fclose(f);
    return major ? major : otherwise;
}

/* Drivers that do not know the attribute are older than COOPERATION_NEEDED. */
static bool bodies_may_cooperate(const GpuEngine *g)
{
    int mps = 0;
    return g->d->version >= COOPERATION_NEEDED &&
           !g->d->cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, g->device) && !mps;
}

CORE bool f64_fast(int arch)
{
    static const int fast[] = {60, 70, 80, 90, 100};
    for (size_t i = 0; i < sizeof fast / sizeof *fast; i++)
        if (fast[i] == arch)
            return true;
    return false;
}

static optc_status open_device(optc_engine *e, GpuEngine *g, int ordinal)
{
    int major, minor;
    size_t bytes = 0;
    g->ordinal = ordinal;
    TRY(g, cuDeviceGet(&g->device, ordinal), "");
    TRY(g, cuDeviceGetName(g->name, sizeof g->name, g->device), "");
    TRY(g, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g->device),
        "");
    TRY(g, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g->device),
        "");
    TRY(g, cuDeviceGetAttribute(&g->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->device), "");
    TRY(g,
        cuDeviceGetAttribute(&g->shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                             g->device),
        "");
    TRY(g, cuDeviceGetAttribute(&g->cooperative, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, g->device),
        "");
    if (HOST()->pooled)
        TRY(g,
            cuDeviceGetAttribute(&g->pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, g->device),
            "");
    TRY(g, cuDeviceGetAttribute(&g->l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, g->device), "");
    TRY(g, cuDeviceTotalMem_v2(&bytes, g->device), "");
    g->memory = (int64_t)bytes;
    g->arch = major * 10 + minor;
    g->f64_fast = f64_fast(g->arch);
    g->driver = kernel_driver(g->d->version / 1000);
    g->bodies_cooperate = bodies_may_cooperate(g);
    TRY(g, cuDevicePrimaryCtxRetain(&g->ctx, g->device), "");
    snprintf(e->name, sizeof e->name, "cuda:%d: %s, %d multiprocessors, sm_%d", ordinal, g->name,
             g->sms, g->arch);
    return OPTC_OK;
}

CORE optc_status gpu_open(optc_engine *e, int ordinal)
{
    char why[256];
    int count = 0;
    GpuEngine *g = (GpuEngine *)calloc(1, sizeof *g);
    if (!g)
        return no_memory("optc_open");
    e->gpu = g;
    g->d = &g->own;
    /* for profilers and debuggers that want to see single launches */
    g->no_graphs = getenv("OPTC_NO_GRAPHS") != NULL;
    if (!driver_open(&g->own, HOST()->cuda, why, sizeof why))
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_open: cuda:%d: %s; it needs a GPU and NVIDIA's driver, and the "
                    "device \"cpu\" needs neither",
                    ordinal, why);
    TRY(g, cuDeviceGetCount(&count), "");
    if (ordinal >= count)
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_open: there is no cuda:%d (there are %d)",
                    ordinal, count);
    return open_device(e, g, ordinal);
}

CORE void gpu_close(optc_engine *e)
{
    if (e->gpu && e->gpu->ctx) {
        CUstreamCaptureMode was = capture_mode(e->gpu->d, CU_STREAM_CAPTURE_MODE_RELAXED);
        gpu_enter(e->gpu);
        spare_drop(e->gpu);
        gpu_leave(e->gpu, OPTC_OK);
        /* gpu_leave would pop this context */
        e->gpu->d->cuDevicePrimaryCtxRelease_v2(e->gpu->device);
        capture_mode(e->gpu->d, was);
    }
    free(e->gpu);
    e->gpu = NULL;
}

/* Machine code of the GPU's major version with the highest minor version up to the GPU's; else the
 * first PTX of an architecture up to the GPU's. */
CORE bool image_suits(Image x, Image best, int arch, bool compiles)
{
    if (x.arch > arch || (x.ptx ? !compiles : x.arch / 10 != arch / 10))
        return false;
    return !best.arch || (!x.ptx && (best.ptx || x.arch > best.arch));
}

/* ---- memory: the caller's allocator, or the device's stream-ordered pool; both inside gpu_enter
 * ---- Large blocks do not come from the pool: mapping 25 GB takes it 25 ms on an H200, and
 * cuMemAlloc 1 ms. If cuMemAlloc fails, the pool is tried, which may hold memory that others freed.
 * cuMemFree frees either kind, after the stream has finished.
 *
 * All of these, and perhaps the caller's allocator, would end captures of other streams in the
 * default capture mode. */
enum { LARGE = 256 << 20 };

static bool from_pool(const GpuEngine *g, size_t bytes) { return g->pools && bytes < LARGE; }

static optc_status alloc_inside(optc_engine *e, size_t bytes, CUstream stream, const char *what,
                                CUdeviceptr *out)
{
    GpuEngine *g = e->gpu;
    char text[160];
    if (e->memory.alloc) {
        *out = (CUdeviceptr)(uintptr_t)e->memory.alloc(e->memory.context, bytes, stream);
        if (!*out)
            return fail(OPTC_ERROR_MEMORY,
                        "the caller's allocator returned NULL for %zu bytes (%s)", bytes, what);
        if (*out % 256) {
            e->memory.release(e->memory.context, (void *)(uintptr_t)*out, bytes, stream);
            *out = 0;
            return fail(OPTC_ERROR_ARGUMENT,
                        "the caller's allocator returned memory that is not aligned to 256 bytes");
        }
    } else {
        snprintf(text, sizeof text, "%zu bytes for %.100s", bytes, what);
        int rc = from_pool(g, bytes) ? -1 : g->d->cuMemAlloc_v2(out, bytes);
        if (rc && g->pools)
            TRY(g, cuMemAllocAsync(out, bytes, stream), text);
        else if (rc)
            return gpu_error(g, "cuMemAlloc", rc, text);
    }
    memory_account(e, (int64_t)bytes);
    return OPTC_OK;
}

CORE optc_status gpu_alloc(optc_engine *e, size_t bytes, CUstream stream, const char *what,
                           CUdeviceptr *out)
{
    *out = 0;
    gpu_enter(e->gpu);
    return gpu_leave(e->gpu, alloc_inside(e, bytes ? bytes : 256, stream, what, out));
}

CORE void gpu_give(optc_engine *e, CUdeviceptr p, size_t bytes, CUstream stream)
{
    GpuEngine *g = e->gpu;
    bytes = bytes ? bytes : 256;
    if (!p)
        return;
    gpu_enter(g);
    if (e->memory.alloc) {
        e->memory.release(e->memory.context, (void *)(uintptr_t)p, bytes, stream);
    } else if (from_pool(g, bytes)) {
        g->d->cuMemFreeAsync(p, stream);
    } else {
        g->d->cuStreamSynchronize(stream);
        g->d->cuMemFree_v2(p);
    }
    gpu_leave(g, OPTC_OK);
    memory_account(e, -(int64_t)bytes);
}

CORE optc_status gpu_memory(optc_engine *e, optc_memory *out)
{
    GpuEngine *g = e->gpu;
    size_t have = 0, all = 0;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    int rc = gpu_enter(g)->cuMemGetInfo_v2(&have, &all);
    out->total = (int64_t)all;
    out->free = (int64_t)have;
    return gpu_leave(g, rc ? gpu_error(g, "cuMemGetInfo", rc, "") : OPTC_OK);
}

/* Adds to the message how much of a failed allocation is workspace. The core does not choose a
 * smaller workspace by
 * itself: which matrices share a call decides bits, and free memory must not change them. */
CORE optc_status workspace_fails(const optc_binding *b, optc_status s, int64_t bytes)
{
    char why[800];
    if (s != OPTC_ERROR_MEMORY || !bytes)
        return s;
    snprintf(why, sizeof why, "%.700s", optc_message());
    return fail(s,
                "%s; %lld of them are workspace: a smaller one, below %lld, takes less memory and "
                "more time "
                "(optc_engine_options.workspace, or OPTC_WORKSPACE)",
                why, (long long)bytes, (long long)b->rule->engine->workspace);
}

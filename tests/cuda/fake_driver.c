/* A libcuda.so.1 for tests: a driver in the state that the environment names, without a GPU.
 *    FAKE_CUDA     one: a GPU, sm_90 (or $FAKE_ARCH); none: no GPU; nodevice, broken: cuInit fails;
 *                  lacks: a function is missing; works: like one; fatbins load, memory is the
 *                  host's, launches are logged to $FAKE_LOG, one per line, and compute nothing
 *    FAKE_VERSION  the result of cuDriverGetVersion (default 13000)
 * A compile-time choice decides how functions are found: FAKE_versioned has cuGetProcAddress of
 * CUDA 12, FAKE_versioned11 that of CUDA 11.3, FAKE_symbols neither. The first two hide their
 * functions from symbol lookup, except cuDriverGetVersion, and return them only for the right
 * request: the name without suffix and the version of the row in cuda.h. Built twice: with REST it
 * has every function that the first part does not have. */
#include "runtime/library/compile/nvrtc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#ifdef FAKE_symbols
#define MAYBE EXPORTED
#else
#define MAYBE
#endif
enum { NOT_FOUND = CUDA_ERROR_NOT_FOUND, NOT_SUPPORTED = 801, UNKNOWN = 999, NO_BINARY = 209 };

#ifdef REST
#define EMPTY(name, suffix, since, args) \
    EXPORTED __attribute__((weak)) int name##suffix(void) { return NOT_SUPPORTED; }
DRIVER_FUNCTIONS(EMPTY)
#else

static int is(const char *mode)
{
    return getenv("FAKE_CUDA") && !strcmp(getenv("FAKE_CUDA"), mode);
}
static int number(const char *name, int otherwise)
{
    return getenv(name) ? atoi(getenv(name)) : otherwise;
}

MAYBE int cuInit(unsigned flags)
{
    (void)flags;
    return is("broken") ? UNKNOWN : is("nodevice") ? CUDA_ERROR_NO_DEVICE : 0;
}

EXPORTED int cuDriverGetVersion(int *v)
{
    *v = number("FAKE_VERSION", 13000);
    return 0;
}

MAYBE int cuGetErrorName(CUresult rc, const char **name)
{
    *name = rc == UNKNOWN                ? "CUDA_ERROR_UNKNOWN"
            : rc == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
            : rc == NO_BINARY            ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
                                         : "CUDA_ERROR_OF_THE_FAKE";
    return 0;
}

MAYBE int cuGetErrorString(CUresult rc, const char **text) { return *text = "in words", rc < 0; }
MAYBE int cuDeviceGetCount(int *n) { return *n = is("one") || is("works"), 0; }
MAYBE int cuDeviceGet(CUdevice *d, int ordinal) { return *d = ordinal, 0; }

MAYBE int cuDeviceGetName(char *name, int len, CUdevice d)
{
    strncpy(name, "Fake GPU", (size_t)len);
    return d;
}

MAYBE int cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    int arch = number("FAKE_ARCH", 90);
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? arch / 10
        : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? arch % 10 : 7;
    return d;
}

MAYBE int cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) { return *bytes = 1 << 20, d; }
MAYBE int cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return *c = c, d; }
MAYBE int cuDevicePrimaryCtxRelease_v2(CUdevice d) { return d; }
MAYBE int cuCtxPushCurrent_v2(CUcontext c) { return !c; }
MAYBE int cuCtxPopCurrent_v2(CUcontext *c) { return *c = NULL, 0; }
MAYBE int cuModuleLoadData(CUmodule *m, const void *image)
{
    unsigned magic = 0;
    if (image)
        memcpy(&magic, image, sizeof magic);
    *m = is("works") ? m : NULL;
    /* a fatbin, a cubin */
    return is("works") && (magic == 0xba55ed50u || magic == 0x464c457fu) ? 0
           : image                                                       ? NO_BINARY
                                                                         : UNKNOWN;
}

MAYBE int cuModuleUnload(CUmodule m) { return !m; }
MAYBE int cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    return *f = strdup(name), !m;
}
MAYBE int cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream s)
{
    return *p = (CUdeviceptr)(size_t)malloc(n), is("works") ? 0 : NOT_SUPPORTED + (s != NULL);
}
MAYBE int cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
    return free((void *)(size_t)p), s == (void *)-1;
}
MAYBE int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    return memcpy((void *)(size_t)to, from, n), s == (void *)-1;
}
MAYBE int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s)
{
    return memcpy(to, (void *)(size_t)from, n), s == (void *)-1;
}
MAYBE int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    return memcpy((void *)(size_t)to, (void *)(size_t)from, n), s == (void *)-1;
}
MAYBE int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s)               /* from the host */
{
    for (size_t i = 0; i < c->Height; i++)
        memcpy((char *)(size_t)c->dstDevice + i * c->dstPitch,
               (const char *)c->srcHost + i * c->srcPitch, c->WidthInBytes);
    return s == (void *)-1;
}
MAYBE int cuMemsetD32Async(CUdeviceptr to, unsigned x, size_t n, CUstream s)
{
    for (size_t i = 0; i < n; i++)
        memcpy((char *)(size_t)to + 4 * i, &x, 4);
    return s == (void *)-1;
}
MAYBE int cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int x)
{
    return (void)f, (void)a, (void)x, 0;
}
MAYBE int cuTensorMapEncodeTiled(CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank,
                                 void *at, const cuuint64_t *size, const cuuint64_t *apart,
                                 const cuuint32_t *box, const cuuint32_t *step,
                                 CUtensorMapInterleave order, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill)
{
    (void)m, (void)type, (void)rank, (void)at, (void)size, (void)apart, (void)box, (void)step;
    return (void)order, (void)swizzle, (void)l2, (void)fill, 0;
}
MAYBE int cuMemsetD8Async(CUdeviceptr to, unsigned char x, size_t n, CUstream s)
{
    return memset((void *)(size_t)to, x, n), s == (void *)-1;
}
MAYBE int cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p)
{
    return *(int *)out = 2, is("works") ? 0 : NOT_SUPPORTED + (a && !p);
}
MAYBE int cuStreamCreate(CUstream *s, unsigned flags)
{
    return *s = (CUstream)(size_t)16, flags > 1;
}
MAYBE int cuStreamDestroy_v2(CUstream s) { return s != (CUstream)(size_t)16; }
MAYBE int cuStreamSynchronize(CUstream s) { return s == (void *)-1; }
MAYBE int cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *x)
{
    return *x = number("FAKE_CAPTURING", 0), s == (void *)-1;
}

MAYBE int cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
    return *p = (CUdeviceptr)(size_t)malloc(n), is("works") ? 0 : NOT_SUPPORTED;
}
MAYBE int cuMemFree_v2(CUdeviceptr p) { return free((void *)(size_t)p), 0; }

/* Time advances only in kernels: blocks of 256 threads take one millisecond, others take more, the
 * further they are from that. */
static float clock_ms;
MAYBE int cuEventCreate(CUevent *e, unsigned flags)
{
    return *e = calloc(1, sizeof(float)), flags & ~2u;
}
MAYBE int cuEventDestroy_v2(CUevent e) { return free(e), 0; }
MAYBE int cuEventRecord(CUevent e, CUstream s) { return *(float *)e = clock_ms, s == (void *)-1; }
MAYBE int cuEventSynchronize(CUevent e) { return !e; }
MAYBE int cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    return s == (void *)-1 || !e || flags;
}
MAYBE int cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    return *ms = *(float *)b - *(float *)a, 0;
}

/* The kernel's argument is optc_launch of templates/cuda_helpers.h. */
typedef struct FakeArgs {
    CUdeviceptr views, mem, units;
    long long count;
    int guard, tick;
    long long brief[2];
} FakeArgs;

static void run(const char *how, const char *kernel, unsigned blocks, unsigned threads,
                const FakeArgs *a)
{
    FILE *log = getenv("FAKE_LOG") ? fopen(getenv("FAKE_LOG"), "a") : NULL;
    clock_ms = (clock_ms > 1e4f ? 0 : clock_ms) +
               (threads > 256 ? (float)threads / 256 : 256 / (float)threads);
    if (log)
        fprintf(log, "%s%s %u %u count %lld guard %d tick %d\n", kernel, how, blocks, threads,
                a->count, a->guard, a->tick);
    if (log)
        fclose(log);
}

MAYBE int cuLaunchCooperativeKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx,
                                    unsigned by, unsigned bz, unsigned shared, CUstream s,
                                    void **args)
{
    FakeArgs a;
    (void)shared;
    memcpy(&a, args[0], sizeof a);
    run(" cooperative", f, x * y * z, bx * by * bz, &a);
    return s == (void *)-1;
}

MAYBE int cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                         unsigned bz, unsigned shared, CUstream s, void **args, void **more)
{
    FakeArgs a;
    memcpy(&a, args[0], sizeof a);
    run("", f, x * y * z, bx * by * bz, &a);
    return shared || more || s == (void *)-1;
}

/* A graph runs its kernels in the order in which they were added; a kernel follows earlier ones.
 * Instantiating it turns it into the exec. FAKE_GRAPHS=no: there are no graphs. */
typedef struct Chain {
    int n;
    struct {
        const char *kernel;
        unsigned blocks, threads;
        FakeArgs args;
    } v[64];
} Chain;

MAYBE int cuGraphCreate(CUgraph *g, unsigned flags)
{
    return *g = calloc(1, sizeof(Chain)), flags != 0 || !*g || (getenv("FAKE_GRAPHS") != NULL);
}

MAYBE int cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n,
                                  const CUDA_KERNEL_NODE_PARAMS *p)
{
    Chain *c = g;
    for (size_t i = 0; i < n; i++)
        if ((void *)after[i] < (void *)c->v || (void *)after[i] >= (void *)(c->v + c->n))
            return UNKNOWN;
    if (c->n == 64 || p->gridDimY != 1 || p->gridDimZ != 1 || p->blockDimY != 1 ||
        p->blockDimZ != 1 || p->sharedMemBytes || p->extra || p->kern || p->ctx)
        return UNKNOWN;
    c->v[c->n].kernel = p->func;
    c->v[c->n].blocks = p->gridDimX;
    c->v[c->n].threads = p->blockDimX;
    memcpy(&c->v[c->n].args, p->kernelParams[0], sizeof(FakeArgs));
    *out = &c->v[c->n++];
    return 0;
}

MAYBE int cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
    Chain *c = malloc(sizeof *c);
    return *e = c ? memcpy(c, g, sizeof *c) : NULL, flags != 0 || !c;
}

MAYBE int cuGraphLaunch(CUgraphExec e, CUstream s)
{
    const Chain *c = e;
    for (int i = 0; i < c->n; i++)
        run(" in a graph", c->v[i].kernel, c->v[i].blocks, c->v[i].threads, &c->v[i].args);
    return s == (void *)-1;
}

MAYBE int cuGraphDestroy(CUgraph g) { return free(g), 0; }
MAYBE int cuGraphExecDestroy(CUgraphExec e) { return free(e), 0; }

#define DECLARED(name, suffix, since, args) int name##suffix args;
DRIVER_FUNCTIONS(DECLARED)
#define ROW(name, suffix, since, args) {#name, since, (void (*)(void))name##suffix},
static const struct { const char *name; int since; void (*f)(void); } rows[] = {
    DRIVER_FUNCTIONS(ROW)};

int fake_find(const char *name, void **out, int version, unsigned long long flags);

int fake_find(const char *name, void **out, int version, unsigned long long flags)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name) && rows[i].since == version &&
            flags == CU_GET_PROC_ADDRESS_LEGACY_STREAM)
            *out = *(void **)&rows[i].f;
    if (is("lacks") && !strcmp(name, "cuGraphInstantiateWithFlags"))
        *out = NULL;
    return *out ? 0 : NOT_FOUND;
}

#ifdef FAKE_versioned
EXPORTED int cuGetProcAddress_v2(const char *name, void **out, int version,
                                 unsigned long long flags, int *status)
{
    int rc = fake_find(name, out, version, flags);
    *status = rc != 0;
    return rc;
}
#endif
#ifdef FAKE_versioned11
EXPORTED int cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags)
{
    return fake_find(name, out, version, flags);
}
#endif
#endif

/* A libcuda.so.1 for the code of emu_nvrtc.c: device memory is host memory, every call completes at once (but see
 * emu_late), graphs are lists of launches and copies. One GPU with 8 multiprocessors. EMU_FAIL: the call that fails
 * (emu_fail.h). EMU_MEMORY: its memory in bytes (default 64 GiB). EMU_GPUS: number of GPUs, up to 8; they differ only
 * in which memory belongs to which. */
#define _GNU_SOURCE
#include "runtime/library/rule/nvrtc.h"

#include "tests/emu/emu_fail.h"
#define TOLD (told_to_fail("libcuda.so.1") ? CUDA_ERROR_EMULATED : 0)
/* One call runs at a time: kernels of emu_threads.h and the tables below are for one thread. */
#define LOCKED __attribute__((cleanup(unlock), unused)) int locked = pthread_mutex_lock(&one_call)
#define CALL LOCKED; if (TOLD) return CUDA_ERROR_EMULATED

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { INVALID = 1, INVALID_HANDLE = 400, CUDA_ERROR_EMULATED = 999, ARGS = 56, MOST_ARGS = 1024,
    NUMBERS = 25 * sizeof(int), MOST = 8 };
static pthread_mutex_t one_call = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void unlock(int *locked) { (void)locked, pthread_mutex_unlock(&one_call); }
static size_t total = (size_t)64 << 30;
static int gpus = 1;
__attribute__((constructor)) static void begin(void)
{
    const char *n = getenv("EMU_MEMORY");
    total = n ? (size_t)strtoull(n, NULL, 0) : total;
    n = getenv("EMU_GPUS");
    gpus = n && atoi(n) > 0 && atoi(n) <= MOST ? atoi(n) : gpus;
}

/* ---- memory: what was handed out is the device's, everything else the host's ---- */
typedef struct Span { char *at; size_t n; struct Span *next; int gpu; bool managed; } Span;
static Span *spans;
/* the context stack: pushed contexts, and below them the one that was set */
static _Thread_local int current[64], depth;
static size_t used;

static Span **span_of(CUdeviceptr p)
{
    Span **s = &spans;
    while (*s && !((char *)(uintptr_t)p >= (*s)->at && (char *)(uintptr_t)p < (*s)->at + (*s)->n))
        s = &(*s)->next;
    return s;
}

/* As seen on an H200: allocating, freeing (also in the order of a stream) or waiting ends captures under way in any
 * stream, unless these or the thread are relaxed. */
static int strict, ended;                      /* captures of a mode that is not relaxed; how often they were ended */
static _Thread_local CUstreamCaptureMode thread_mode;
static int end_captures(void) { return ended++, 900; }
int emu_all_wait(void);
/* affects the whole device: not allowed even in relaxed mode */
int emu_all_wait(void) { LOCKED; return strict ? end_captures() : 0; }
static int unsafe(void) { return strict && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED ? end_captures() : 0; }

static void finish_all(void);                  /* of emu_late: all that streams have not run yet */

int cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
    CALL;
    int rc = unsafe();
    if (rc || n > total - used)
        return rc ? rc : CUDA_ERROR_OUT_OF_MEMORY;
    Span *s = malloc(sizeof *s);
    *s = (Span){aligned_alloc(256, (n + 255) / 256 * 256 + 256), n ? n : 1, spans, current[depth], false};
    memset(s->at, 0xa5, s->n);                 /* new memory is never zero */
    spans = s;
    used += n;
    *p = (CUdeviceptr)(uintptr_t)s->at;
    return 0;
}

int cuMemFree_v2(CUdeviceptr p)
{
    LOCKED;
    finish_all();
    Span **s = span_of(p), *gone = *s;
    int rc = unsafe(), told = TOLD;            /* frees also if it reports failure */
    if (rc || !gone)
        return rc ? rc : INVALID;
    *s = gone->next;
    used -= gone->n;
    free(gone->at);
    free(gone);
    return told;
}

int cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
    CALL;
    int rc = unsafe();
    return rc || flags ? INVALID : (*p = aligned_alloc(256, (n + 255) / 256 * 256)) ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}
int cuMemFreeHost(void *p)
{
    int rc = unsafe(), told = TOLD;
    return rc ? rc : (free(p), told);
}

static bool is_gone(CUstream s);
int cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream s)
{
    CALL; return is_gone(s) ? INVALID_HANDLE : cuMemAlloc_v2(p, n);
}
int cuMemFreeAsync(CUdeviceptr p, CUstream s) { LOCKED; return is_gone(s) ? INVALID_HANDLE : cuMemFree_v2(p); }
int cuMemGetInfo_v2(size_t *have, size_t *all) { CALL; return *all = total, *have = total - used, 0; }
static int copy(void *to, const void *from, size_t n, CUstream s);
static int copy_now(void *to, const void *from, size_t n, CUstream s);
int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    CALL; return copy_now((void *)(uintptr_t)to, from, n, s);
}
int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s)
{
    CALL; return copy_now(to, (void *)(uintptr_t)from, n, s);
}
int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    CALL; return copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, n, s);
}
int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s)                     /* from the host, or on the device */
{
    CALL;
    const char *from = c->srcMemoryType == CU_MEMORYTYPE_HOST ? c->srcHost : (const char *)(uintptr_t)c->srcDevice;
    int rc = c->dstMemoryType == CU_MEMORYTYPE_DEVICE && c->WidthInBytes <= c->srcPitch && c->srcPitch < 1u << 31 ? 0
        : INVALID;
    for (size_t i = 0; !rc && i < c->Height; i++)
        rc = copy_now((char *)(uintptr_t)c->dstDevice + i * c->dstPitch, from + i * c->srcPitch, c->WidthInBytes, s);
    return rc;
}
int cuMemsetD8Async(CUdeviceptr to, unsigned char x, size_t n, CUstream s)
{
    CALL; finish_all(); return (void)s, memset((void *)(uintptr_t)to, x, n), 0;
}
int cuMemsetD32Async(CUdeviceptr to, unsigned x, size_t n, CUstream s)
{
    CALL;
    (void)s;
    finish_all();
    for (size_t i = 0; i < n; i++)
        ((unsigned *)(uintptr_t)to)[i] = x;
    return 0;
}
int cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p)
{
    CALL;
    const Span *s = *span_of(p);
    if (!s)
        return INVALID;
    *(int *)out = a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? 2 : a == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? s->gpu
        : a == CU_POINTER_ATTRIBUTE_IS_MANAGED && s->managed;
    return 0;
}

/* ---- the device ---- */
int cuInit(unsigned f) { CALL; return f != 0; }
int cuDriverGetVersion(int *v) { CALL; return *v = 13000, 0; }
int cuGetErrorName(CUresult rc, const char **s)
{
    return *s = rc == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_EMULATED", 0;
}
int cuGetErrorString(CUresult rc, const char **s) { return *s = "by the emulated driver", rc < 0; }
int cuDeviceGetCount(int *n) { CALL; return *n = gpus, 0; }
int cuDeviceGet(CUdevice *d, int n) { CALL; return *d = n, n < 0 || n >= gpus; }
int cuDeviceGetName(char *s, int n, CUdevice d) { CALL; return snprintf(s, (size_t)n, "Emulated GPU"), d >= gpus; }
int cuDeviceTotalMem_v2(size_t *n, CUdevice d) { CALL; return *n = total, d >= gpus; }
int cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    CALL;
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
        : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 8 : a == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE ? 20000 : 1;
    return d >= gpus;
}
static char context[MOST];
static int gpu_of(CUcontext c)
{
    return (char *)c >= context && (char *)c < context + gpus ? (int)((char *)c - context) : -1;
}
int cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { CALL; return *c = &context[d], d >= gpus; }
int cuDevicePrimaryCtxRelease_v2(CUdevice d) { CALL; return d >= gpus; }
int cuCtxPushCurrent_v2(CUcontext c)
{
    CALL; return gpu_of(c) < 0 || depth == 63 ? INVALID : (current[++depth] = gpu_of(c), 0);
}
int cuCtxPopCurrent_v2(CUcontext *c)
{
    int told = TOLD; return depth ? *c = &context[current[depth--]], told : INVALID;
}

/* Functions that test programs call as well. */
int cuCtxSetCurrent(CUcontext c);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n);
int cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags);
int cuCtxSetCurrent(CUcontext c) { CALL; return gpu_of(c) < 0 ? INVALID : (current[depth] = gpu_of(c), 0); }
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n)
{
    CALL; return cuMemcpyHtoDAsync_v2(to, from, n, NULL);
}
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) { CALL; return cuMemcpyDtoHAsync_v2(to, from, n, NULL); }
int cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags)
{
    CALL;
    int rc = flags == 1 ? cuMemAlloc_v2(p, n) : INVALID;
    if (!rc)
        spans->managed = true;
    return rc;
}

/* ---- modules: shared objects, as long as their headers say; of a fatbin (emu_fatbin.c) its first image ---- */
int cuModuleLoadData(CUmodule *m, const void *image)
{
    CALL;
    const Elf64_Ehdr *h = image;
    if (!memcmp(image, "\x50\xed\x55\xba", 4))
        h = image = (const char *)image + 16 + 64;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG))
        return INVALID;
    size_t n = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
    int fd = memfd_create("kernel", 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool ok = fd >= 0 && write(fd, image, n) == (ssize_t)n;
    *m = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;      /* the file stays open, so that its name is not reused */
    if (!*m)
        fprintf(stderr, "emulated driver: %s\n", dlerror());
    return !*m;
}
int cuModuleUnload(CUmodule m)
{
    LOCKED;
    int told = TOLD, ends = unsafe();
    return dlclose(m) ? INVALID : ends ? ends : told;
}

/* numbers: the kernel has a second parameter, array numbers; bytes: size of the first parameter */
typedef struct Kernel { void *fn; void (*launch)(void *, const void *, const void *, unsigned, unsigned); bool numbers;
    unsigned bytes; } Kernel;
int cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    CALL;
    Kernel *k = malloc(sizeof *k);
    char mark[300];
    snprintf(mark, sizeof mark, "emu_numbers_%s", name);
    k->fn = dlsym(m, name);
    k->numbers = dlsym(m, mark) != NULL;
    snprintf(mark, sizeof mark, "emu_bytes_%s", name);         /* a kernel whose parameter is not an optc_launch */
    const unsigned *bytes = dlsym(m, mark);
    k->bytes = bytes ? *bytes : ARGS;
    if (k->bytes > MOST_ARGS)
        abort();
    snprintf(mark, sizeof mark, "emu_launch_%s", name);
    *(void **)&k->launch = dlsym(m, bytes ? mark : "emu_launch");
    *f = k;
    return k->fn && k->launch ? 0 : CUDA_ERROR_NOT_FOUND;
}

/* ---- launches, streams, graphs ---- */
/* k NULL: a copy from its recorded source; call: a library function with a copy of its arguments, which is never
 * freed. alone: it depends on the nodes `after` (by number) only; otherwise, captured, on the node before it */
typedef struct Node { Kernel *k; unsigned grid, threads; char args[MOST_ARGS], numbers[NUMBERS]; void *to;
    const void *from; size_t n; void (*call)(const void *); struct Graph *body; unsigned *wanted; struct Stream *of;
    bool alone; int *after, nafter; } Node;
/* fork: streams that became part of the capture, which began in another one */
typedef struct Graph { Node *v; int n; struct Stream *fork[MOST]; int forks; } Graph;
/* into: the captured graph is the body of another; forked: the capture began in another stream; added, joined: the
 * nodes of this stream, and those that the first stream has waited for. later: nodes of emu_late, of which `ran` have
 * run; a node with `of` waits for the first `n` nodes of that stream; told: number of nodes in `later`. gone: it was
 * destroyed, and calls with it fail; its memory is not used again */
typedef struct Stream { Graph *capturing; bool strict, into, forked, gone; int ended, added, joined; Graph later;
    int ran, told; struct Stream *next; } Stream;
static Stream *gone_streams;
static bool is_gone(CUstream s) { return s && ((Stream *)s)->gone; }

static void add(Graph *g, Node x)
{
    g->v = realloc(g->v, sizeof *g->v * (size_t)(g->n + 1));
    g->v[g->n++] = x;
}

/* Time advances only in kernels, so that measured times are the same on every machine: blocks of 512 threads take half
 * a millisecond, others take more, the further they are from that. */
static double clock_ms;
static int run(const Node *x)
{
    if (x->body) {
        for (int i = 0; *x->wanted && i < x->body->n; i++)
            run(&x->body->v[i]);
    } else if (x->call) {
        x->call(x->to);
    } else if (x->k) {
        x->k->launch(x->k->fn, x->args, x->k->numbers ? x->numbers : NULL, x->grid, x->threads);
        clock_ms += x->threads > 512 ? x->threads / 1024. : 256. / x->threads;
    } else {
        memmove(x->to, x->from, x->n);
    }
    return 0;
}

static void take(Node *x, void *const *params)
{
    memcpy(x->args, params[0], x->k->bytes);
    if (x->k->numbers)
        memcpy(x->numbers, params[1], NUMBERS);
}

/* Work of streams, later than the calls that enqueue it: only waiting runs it, in an order that events allow.
 * 0: at once; 1: a stream that something waits for runs alone; 2: all other streams run first. Wrong results of a
 * program in one of the orders show that an event is missing. */
static int late;
static Stream *streams;
static void advance(Stream *s, int until)
{
    while (s->ran < until) {
        Node x = s->later.v[s->ran++];
        if (x.of)
            advance(x.of, (int)x.n);
        else
            run(&x);
    }
}
static void finish(Stream *s)
{
    for (Stream *x = streams; x; x = x->next)
        if (x != s && late == 2)
            advance(x, x->told);
    if (s)
        advance(s, s->told);
}
static void finish_all(void)
{
    for (Stream *x = streams; x; x = x->next)
        finish(x);
}
int emu_late(int order);
int emu_late(int order) { LOCKED; return finish_all(), late = order, 0; }

static int run_in(CUstream s, Node x)
{
    Stream *in = s;
    if (is_gone(s))
        return INVALID_HANDLE;
    if (in && in->capturing)
        return in->added++, add(in->capturing, x), 0;
    if (in && late)
        return in->told++, add(&in->later, x), 0;
    return finish_all(), run(&x);
}
static int copy(void *to, const void *from, size_t n, CUstream s)
{
    return run_in(s, (Node){.to = to, .from = from, .n = n});
}
/* The host's memory may have gone later. */
static int copy_now(void *to, const void *from, size_t n, CUstream s)
{
    Node x = {.to = to, .from = from, .n = n};
    return s && ((Stream *)s)->capturing ? run_in(s, x) : (finish_all(), run(&x));
}

/* For other emulated libraries: work in a stream, and the memory they may access. */
int emu_in_stream(CUstream s, void (*call)(const void *), const void *data, size_t n);
int emu_in_stream(CUstream s, void (*call)(const void *), const void *data, size_t n)
{
    LOCKED;
    if (is_gone(s))
        return INVALID_HANDLE;
    if (!s || !(((Stream *)s)->capturing || late))
        return call(data), 0;
    void *copied = malloc(n);
    memcpy(copied, data, n);
    return run_in(s, (Node){.to = copied, .call = call});
}
int emu_reaches(const void *p, size_t n);
int emu_reaches(const void *p, size_t n)
{
    LOCKED;
    const Span *s = n ? *span_of((CUdeviceptr)(uintptr_t)p) : NULL;
    return !n || (s && (size_t)((const char *)p - s->at) + n <= s->n);
}

int cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream s, void **args, void **more)
{
    CALL;
    Node n = {.k = f, .grid = x * y * z, .threads = bx * by * bz};
    take(&n, args);
    if (!x || shared || more || n.threads > 1024)
        return INVALID;
    return run_in(s, n);
}

int cuStreamCreate(CUstream *s, unsigned flags)
{
    CALL;
    Stream *x = calloc(1, sizeof *x);
    x->next = streams;
    *s = streams = x;
    return flags > 1;
}
int cuStreamDestroy_v2(CUstream s)
{
    LOCKED;
    int told = TOLD;
    if (!s || is_gone(s))
        return INVALID_HANDLE;
    finish_all();
    Stream **x = &streams, *gone = s;
    while (*x != gone)
        x = &(*x)->next;
    *x = gone->next;
    free(gone->later.v);
    *gone = (Stream){.gone = true, .next = gone_streams};
    gone_streams = gone;
    return told;
}
int cuStreamSynchronize(CUstream s)
{
    CALL;
    if (is_gone(s))
        return INVALID_HANDLE;
    if (s && ((Stream *)s)->capturing)
        return end_captures();
    if (s)
        finish(s);
    else
        finish_all();
    return unsafe();
}
int cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *x)
{
    CALL;
    *x = s && ((Stream *)s)->capturing;
    return is_gone(s) ? INVALID_HANDLE : 0;
}
int cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *m)
{
    CALL; CUstreamCaptureMode was = thread_mode; return thread_mode = *m, *m = was, 0;
}
int cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode m)
{
    CALL;
    ((Stream *)s)->added = 0;
    ((Stream *)s)->capturing = calloc(1, sizeof(Graph));
    strict += ((Stream *)s)->strict = m != CU_STREAM_CAPTURE_MODE_RELAXED;
    ((Stream *)s)->ended = ended;
    return 0;
}
int cuGraphDestroy(CUgraph g)
{
    for (int i = 0; i < ((Graph *)g)->n; i++)
        free(((Graph *)g)->v[i].after);
    return free(((Graph *)g)->v), free(g), TOLD;
}
int cuStreamEndCapture(CUstream s, CUgraph *g)
{
    LOCKED;
    Stream *x = s;
    int told = TOLD;
    *g = x->capturing;
    x->capturing = NULL;
    if (x->into)
        return x->into = false, told;
    strict -= x->strict;
    bool joined = true;
    for (int i = 0; i < ((Graph *)*g)->forks; i++) {
        Stream *fork = ((Graph *)*g)->fork[i];
        joined = joined && fork->joined == fork->added;
        fork->capturing = NULL;
        fork->forked = false;
    }
    if (!told && joined && (!x->strict || x->ended == ended))
        return 0;
    cuGraphDestroy(*g);
    *g = NULL;
    return told ? told : 901;
}
/* Conditional nodes: a handle is the address that a kernel writes. Graphs are in order, so a stream always waits for
 * its last node. */
void cudaGraphSetConditional(unsigned long long handle, unsigned value);
void cudaGraphSetConditional(unsigned long long handle, unsigned value) { *(unsigned *)(uintptr_t)handle = value; }
int cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *g,
                              const CUgraphNode **after, const CUgraphEdgeData **edge, size_t *n)
{
    CALL;
    *status = s && ((Stream *)s)->capturing;
    *id = 1, *g = *status ? ((Stream *)s)->capturing : NULL, *after = NULL, *edge = NULL, *n = 0;
    return 0;
}
int cuStreamUpdateCaptureDependencies_v2(CUstream s, CUgraphNode *after, const CUgraphEdgeData *edge, size_t n,
                                         unsigned flags)
{
    CALL;
    return !((Stream *)s)->capturing || *after != ((Stream *)s)->capturing || edge || n != 1 ||
        flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES;
}
int cuStreamBeginCaptureToGraph(CUstream s, CUgraph g, const CUgraphNode *after, const CUgraphEdgeData *edge, size_t n,
                                CUstreamCaptureMode m)
{
    CALL;
    ((Stream *)s)->capturing = g;
    ((Stream *)s)->into = true;
    ((Stream *)s)->strict = false;
    ((Stream *)s)->ended = ended;
    return after || edge || n || m != CU_STREAM_CAPTURE_MODE_RELAXED;
}
int cuGraphConditionalHandleCreate(CUgraphConditionalHandle *h, CUgraph g, CUcontext c, unsigned value, unsigned flags)
{
    CALL;
    *h = (uintptr_t)calloc(1, sizeof(unsigned));
    return !g || gpu_of(c) < 0 || value || flags != CONDITION_ASSIGN_DEFAULT;
}
int cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *after, const CUgraphEdgeData *edge, size_t n,
                      CUgraphNodeParams *p)
{
    CALL;
    if (p->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || p->of.conditional.type != CU_GRAPH_COND_TYPE_IF ||
        p->of.conditional.size != 1 || after || edge || n) return INVALID;
    CUgraph *body = malloc(sizeof *body);
    *body = calloc(1, sizeof(Graph));
    add(g, (Node){.body = *body, .wanted = (unsigned *)(uintptr_t)p->of.conditional.handle});
    p->of.conditional.phGraph_out = body;
    *out = g;
    return 0;
}
int cuGraphCreate(CUgraph *g, unsigned flags) { CALL; return *g = calloc(1, sizeof(Graph)), flags != 0; }
int cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n,
                            const CUDA_KERNEL_NODE_PARAMS *p)
{
    CALL;
    Node x = {.k = p->func, .grid = p->gridDimX * p->gridDimY * p->gridDimZ,
              .threads = p->blockDimX * p->blockDimY * p->blockDimZ};
    take(&x, p->kernelParams);
    x.alone = true;
    x.nafter = (int)n;
    x.after = n ? malloc(sizeof *x.after * n) : NULL;
    bool ok = !n || after;
    for (size_t i = 0; i < n && ok; i++) {
        x.after[i] = (int)(uintptr_t)after[i] - 1;             /* a node is its number, from 1 on */
        ok = x.after[i] >= 0 && x.after[i] < ((Graph *)g)->n;
    }
    add(g, x);
    *out = (CUgraphNode)(uintptr_t)((Graph *)g)->n;
    return !ok;
}
/* Of the nodes that may run, the one that was added last runs first: a missing dependency gives wrong results. */
static bool may_run(const Graph *g, int i, const bool *ran)
{
    bool may = !ran[i] && (g->v[i].alone || !i || ran[i - 1]);
    for (int k = 0; k < g->v[i].nafter && may; k++)
        may = ran[g->v[i].after[k]];
    return may;
}
int cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
    CALL;
    return *n = (size_t)((Graph *)g)->n, nodes != NULL;
}
int cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
    CALL;
    const Graph *from = g;
    Graph *to = calloc(1, sizeof *to);
    bool *ran = calloc((size_t)from->n + 1, sizeof *ran);
    for (int n = 0; n < from->n; n++) {
        int i = from->n - 1;
        while (!may_run(from, i, ran))
            i--;
        ran[i] = true;
        add(to, from->v[i]);
    }
    free(ran);
    *e = to;
    return flags != 0;
}
int cuGraphLaunch(CUgraphExec e, CUstream s)
{
    CALL;
    Graph *g = e;
    if (s && ((Stream *)s)->capturing)
        return INVALID;
    bool chooses = false;
    for (int i = 0; i < g->n; i++)
        chooses = chooses || g->v[i].wanted;
    for (int i = 0; i < g->n && late && s && !chooses; i++)
        run_in(s, g->v[i]);
    if (late && s && !chooses)
        return 0;
    finish_all();
    for (int i = 0; i < g->n; i++) {
        if (g->v[i].wanted)
            *g->v[i].wanted = 0;               /* the default unless a kernel sets it */
    }
    for (int i = 0; i < g->n; i++)
        run(&g->v[i]);
    return 0;
}
int cuGraphExecDestroy(CUgraphExec e) { return free(((Graph *)e)->v), free(e), TOLD; }

/* ---- events ---- */
typedef struct Event { double ms; Stream *stream; int added, told; } Event;
int cuEventCreate(CUevent *e, unsigned flags) { CALL; return *e = calloc(1, sizeof(Event)), flags > 3; }
int cuEventDestroy_v2(CUevent e) { return free(e), TOLD; }
int cuEventRecord(CUevent e, CUstream s)
{
    CALL;
    const Stream *x = s;
    *(Event *)e = (Event){clock_ms, s, x ? x->added : 0, x ? x->told : 0};
    return is_gone(s) ? INVALID_HANDLE : 0;
}
int cuEventSynchronize(CUevent e) { CALL; finish_all(); return e ? unsafe() : INVALID; }
int cuEventQuery(CUevent e) { CALL; finish_all(); return !e; }
int cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    CALL;
    return *ms = (float)(((Event *)b)->ms - ((Event *)a)->ms), 0;
}
/* A stream that waits for a captured one is captured too. The first one must wait for all that is in it, before its
 * capture ends. Graphs are in order. */
int cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    CALL;
    const Event *x = e;
    Stream *from = x->stream, *to = s;
    if (is_gone(s))
        return INVALID_HANDLE;
    if (!from || !to || flags)
        return flags != 0;
    if (!from->capturing && !to->capturing && late) {
        to->told++;
        add(&to->later, (Node){.of = from, .n = (size_t)x->told});
    }
    if (!from->capturing)
        return 0;
    Graph *g = from->capturing;
    if (!to->capturing) {
        to->capturing = g;
        to->forked = true;
        to->added = to->joined = 0;
        g->fork[g->forks++] = to;
    } else if (from->forked && !to->forked) {
        from->joined = x->added;
    }
    return 0;
}

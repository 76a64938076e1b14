/* A libcuda.so.1 for the code of emu_nvrtc.c: device memory is host memory, every call completes at
 * once (but see emu_late), graphs are lists of launches and copies. One GPU with 8 multiprocessors
 * (EMU_SMS, EMU_SHARED: other numbers, also of bytes that a block's threads share). EMU_DRIVER: the
 * driver's version (default 13000). EMU_MPS: it is shared by MPS. EMU_COOPERATIVE: most blocks of a
 * cooperative launch. EMU_FAIL: the call that fails (emu_fail.h). EMU_MEMORY: its memory in bytes
 * (default 64 GiB). EMU_GPUS: number of GPUs, up to 8; they differ only in which memory belongs to
 * which. */
#define _GNU_SOURCE
#include "runtime/library/compile/nvrtc.h"

#include "tests/emu/emu_fail.h"
#include "tests/emu/emu_map.h"
#define TOLD (log_call(__func__), told_to_fail("libcuda.so.1") ? CUDA_ERROR_EMULATED : 0)
static void log_call(const char *call);
/* One call runs at a time: kernels of emu_threads.h and the tables below are for one thread. */
#define LOCKED __attribute__((cleanup(unlock), unused)) int locked = pthread_mutex_lock(&one_call)
#define CALL LOCKED; if (TOLD) return CUDA_ERROR_EMULATED

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    INVALID = 1,
    NO_CONTEXT = 201,
    INVALID_HANDLE = 400,
    CUDA_ERROR_EMULATED = 999,
    ARGS = 56,
    MOST_ARGS = 1024,
    NUMBERS = 25 * sizeof(int),
    MOST = 8
};
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
typedef struct Span {
    char *at; size_t n; struct Span *next; int gpu; bool managed; char label[48];
} Span;
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

#include "tests/emu/emu_log.h"

/* As seen on an H200: allocating, freeing (also in the order of a stream), waiting or destroying an
 * executable graph ends captures under way in any stream, unless these or the thread are
 * relaxed. */
/* captures of a mode that is not relaxed; how often they were ended */
static int strict, ended;
static _Thread_local CUstreamCaptureMode thread_mode;
static int end_captures(void) { return ended++, 900; }
int emu_all_wait(void);
/* affects the whole device: not allowed even in relaxed mode */
int emu_all_wait(void) { LOCKED; return strict ? end_captures() : 0; }
static int unsafe(void)
{
    return strict && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED ? end_captures() : 0;
}
int emu_library_allocates(void);               /* for other emulated libraries */
int emu_library_allocates(void) { LOCKED; return unsafe(); }

static void finish_all(void);                  /* of emu_late: all that streams have not run yet */

int cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
    CALL;
    int rc = unsafe();
    if (rc || n > total - used)
        return rc ? rc : CUDA_ERROR_OUT_OF_MEMORY;
    Span *s = malloc(sizeof *s);
    *s = (Span){aligned_alloc(256, (n + 255) / 256 * 256 + 256), n ? n : 1, spans, current[depth],
                false, ""};
    memset(s->at, 0xa5, s->n);                 /* new memory is never zero */
    memcpy(s->label, log_label, sizeof s->label);
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
    if (log_open) {
        gone->next = log_freed, log_freed = gone;
        return told;
    }
    free(gone->at);
    free(gone);
    return told;
}

int cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
    CALL;
    int rc = unsafe();
    return rc || flags                                        ? INVALID
           : (*p = aligned_alloc(256, (n + 255) / 256 * 256)) ? 0
                                                              : CUDA_ERROR_OUT_OF_MEMORY;
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
int cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
    LOCKED;
    return is_gone(s) ? INVALID_HANDLE : cuMemFree_v2(p);
}
int cuMemGetInfo_v2(size_t *have, size_t *all)
{
    CALL;
    return *all = total, *have = total - used, 0;
}
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
/* from the host, or on the device */
int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s)
{
    CALL;
    const char *from =
        c->srcMemoryType == CU_MEMORYTYPE_HOST ? c->srcHost : (const char *)(uintptr_t)c->srcDevice;
    int rc = c->dstMemoryType == CU_MEMORYTYPE_DEVICE && c->WidthInBytes <= c->srcPitch &&
                     c->srcPitch < 1u << 31
                 ? 0
                 : INVALID;
    for (size_t i = 0; !rc && i < c->Height; i++)
        rc = copy_now((char *)(uintptr_t)c->dstDevice + i * c->dstPitch, from + i * c->srcPitch,
                      c->WidthInBytes, s);
    return rc;
}
int cuMemsetD8Async(CUdeviceptr to, unsigned char x, size_t n, CUstream s)
{
    CALL; finish_all(); return (void)s, memset((void *)(uintptr_t)to, x, n), 0;
}
/* Maps of 16-bit values, whose matrices start at any multiple of 16 bytes (emu_map.h). */
int cuTensorMapEncodeTiled(CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank, void *at,
                           const cuuint64_t *size, const cuuint64_t *apart, const cuuint32_t *box,
                           const cuuint32_t *step, CUtensorMapInterleave order,
                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                           CUtensorMapFloatOOBfill fill)
{
    CALL;
    (void)l2;
    for (cuuint32_t i = 0; i < rank; i++)
        if (!size[i] || size[i] > 1ull << 32 || !box[i] || box[i] > 256 || step[i] != 1 ||
            (i && (apart[i - 1] % 16 || apart[i - 1] >> 40)))
            return INVALID;
    if ((uintptr_t)m % 64 || (uintptr_t)at % 16 || rank != 3 ||
        type != CU_TENSOR_MAP_DATA_TYPE_UINT16 || order || swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
        fill || box[0] != 64 || box[1] != 1 || apart[0] != 16)
        return INVALID;
    emu_map x = {at, (long long)size[0], (long long)size[2], (long long)apart[1], box[2], EMU_MAP};
    memset(m, 0, sizeof *m);
    memcpy(m, &x, sizeof x);
    return 0;
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
    *(int *)out = a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? 2
                  : a == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
                      ? s->gpu
                      : a == CU_POINTER_ATTRIBUTE_IS_MANAGED && s->managed;
    return 0;
}

/* ---- the device ---- */
int cuInit(unsigned f) { CALL; return f != 0; }
int cuGetErrorName(CUresult rc, const char **s)
{
    return *s = rc == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_EMULATED",
           0;
}
int cuGetErrorString(CUresult rc, const char **s) { return *s = "by the emulated driver", rc < 0; }
int cuDeviceGetCount(int *n) { CALL; return *n = gpus, 0; }
int cuDeviceGet(CUdevice *d, int n) { CALL; return *d = n, n < 0 || n >= gpus; }
int cuDeviceGetName(char *s, int n, CUdevice d)
{
    CALL;
    return snprintf(s, (size_t)n, "Emulated GPU"), d >= gpus;
}
int cuDeviceTotalMem_v2(size_t *n, CUdevice d) { CALL; return *n = total, d >= gpus; }
static int setting(const char *name, int otherwise)
{
    return getenv(name) ? atoi(getenv(name)) : otherwise;
}
int cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    CALL;
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
         : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? setting("EMU_SMS", 8)
         : a == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE            ? 20000
         : a == CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH       ? setting("EMU_COOPERATIVE", 1) > 0
         : a == CU_DEVICE_ATTRIBUTE_MPS_ENABLED              ? setting("EMU_MPS", 0)
         : a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
             ? setting("EMU_SHARED", 16 << 10)
             : 1;
    return d >= gpus;
}
int cuDriverGetVersion(int *v) { CALL; return *v = setting("EMU_DRIVER", 13000), 0; }
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
int cuCtxSetCurrent(CUcontext c)
{
    CALL;
    return gpu_of(c) < 0 ? INVALID : (current[depth] = gpu_of(c), 0);
}
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n)
{
    CALL; return cuMemcpyHtoDAsync_v2(to, from, n, NULL);
}
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n)
{
    CALL;
    return cuMemcpyDtoHAsync_v2(to, from, n, NULL);
}
int cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags)
{
    CALL;
    int rc = flags == 1 ? cuMemAlloc_v2(p, n) : INVALID;
    if (!rc)
        spans->managed = true;
    return rc;
}

/* ---- modules: shared objects, as long as their headers say; of a fatbin (emu_fatbin.c) its first
 * image ---- */
static int modules;
int emu_modules(void);
int emu_modules(void) { LOCKED; return modules; }              /* loaded ones */

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
    *m = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!*m) {
        fprintf(stderr, "emulated driver: %s\n", ok ? dlerror() : strerror(errno));
        close(fd);
    }
    modules += *m != NULL;
    return !*m;
}
/* only in a context that was pushed, as our code always does */
int cuModuleUnload(CUmodule m)
{
    LOCKED;
    int told = TOLD, ends = unsafe(), fd = -1;
    struct link_map *loaded;
    if (!depth)
        return NO_CONTEXT;
    if (dlinfo(m, RTLD_DI_LINKMAP, &loaded) || sscanf(loaded->l_name, "/proc/self/fd/%d", &fd) != 1)
        return INVALID;
    modules--;
    bool bad = dlclose(m);
    /* open until now: dlopen takes files of one name for one library */
    close(fd);
    return bad ? INVALID : ends ? ends : told;
}

/* numbers: the kernel has a second parameter, array numbers; bytes: size of the first parameter;
 * shared: memory that a launch may ask for; asked: where its program reads how much that was; team:
 * whether a launch is cooperative */
typedef struct Kernel {
    void *fn;
    void (*launch)(void *, const void *, const void *, unsigned, unsigned);
    bool numbers;
    unsigned bytes, shared, *asked, *team;
    LogKernel log;
} Kernel;
int cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    CALL;
    Kernel *k = calloc(1, sizeof *k);
    char mark[300];
    snprintf(mark, sizeof mark, "emu_numbers_%s", name);
    k->fn = dlsym(m, name);
    k->asked = dlsym(m, "emu_shared_bytes");
    k->team = dlsym(m, "emu_team");
    k->numbers = dlsym(m, mark) != NULL;
    /* a kernel whose parameter is not an optc_launch */
    snprintf(mark, sizeof mark, "emu_bytes_%s", name);
    const unsigned *bytes = dlsym(m, mark);
    k->bytes = bytes ? *bytes : ARGS;
    if (k->bytes > MOST_ARGS)
        abort();
    snprintf(mark, sizeof mark, "emu_launch_%s", name);
    *(void **)&k->launch = dlsym(m, bytes ? mark : "emu_launch");
    snprintf(mark, sizeof mark, "emu_type_%s", name);
    const int *mems = dlsym(m, "emu_mems");
    k->log =
        (LogKernel){strdup(name), dlsym(m, mark), NULL, dlsym(m, "emu_arrays"), mems ? *mems : 0};
    snprintf(mark, sizeof mark, "emu_uses_%s", name);
    k->log.uses = dlsym(m, mark);
    *f = k;
    return k->fn && k->launch ? 0 : CUDA_ERROR_NOT_FOUND;
}
int cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int x)
{
    CALL;
    if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || x < 0 || x > 227 << 10)
        return INVALID;
    ((Kernel *)f)->shared = (unsigned)x;
    return 0;
}

#include "tests/emu/emu_streams.h"

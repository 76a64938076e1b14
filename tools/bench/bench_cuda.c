/* An NVIDIA GPU as a device of the benchmark: memory from the driver, times from events,
 * device-to-device copies as the reference rate. Everything uses the default stream, like the
 * library. No other file of the tools calls the driver. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/bench/bench.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct Cuda {
    const Driver *d; CUdevice device; CUcontext ctx; void *begin, *end; void **lap; int nlap;
} Cuda;

static CUdeviceptr at(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

static bool done(const BenchDevice *d, int rc, const char *call)
{
    const char *name = "?", *text = "";
    if (!rc)
        return true;
    d->cuda->d->cuGetErrorName(rc, &name);
    d->cuda->d->cuGetErrorString(rc, &text);
    cli_error("bench: %s: %s (%s)", call, name, text);
    return false;
}

static void *cuda_alloc(BenchDevice *d, size_t bytes)
{
    CUdeviceptr p = 0;
    char size[32], what[80];
    snprintf(what, sizeof what, "cuMemAlloc of %s", cli_bytes(size, (double)bytes));
    return done(d, d->cuda->d->cuMemAlloc_v2(&p, bytes ? bytes : 256), what) ? (void *)(uintptr_t)p
                                                                             : NULL;
}

static void cuda_free(BenchDevice *d, void *p)
{
    if (p)
        done(d, d->cuda->d->cuMemFree_v2(at(p)), "cuMemFree");
}

static bool cuda_sync(BenchDevice *d)
{
    return done(d, d->cuda->d->cuStreamSynchronize(NULL), "cuStreamSynchronize");
}

/* driver_get opened the driver with RTLD_GLOBAL. A driver without these functions, such as an
 * emulated one, has no profiler. */
static void cuda_record(BenchDevice *d, bool on)
{
    int (*call)(void);
    void *found = dlsym(RTLD_DEFAULT, on ? "cuProfilerStart" : "cuProfilerStop");
    memcpy((void *)&call, &found, sizeof found);
    if (found && cuda_sync(d))
        (void)call();
}

/* Copies a block from the host, then doubles it on the device until the array is full. */
static bool cuda_fill(BenchDevice *d, void *p, Type t, int64_t n, float scale)
{
    const Driver *c = d->cuda->d;
    size_t width = (size_t)type_info[t].bytes, bytes = (size_t)n * width;
    int64_t piece = n < 1 << 22 ? n : 1 << 22;
    void *host = malloc((size_t)piece * width);
    if (!host)
        return cli_error("bench: out of memory"), false;
    bench_device_cpu.fill(d, host, t, piece, scale);
    bool ok = done(d, c->cuMemcpyHtoDAsync_v2(at(p), host, (size_t)piece * width, NULL),
                   "cuMemcpyHtoD") &&
              cuda_sync(d);
    free(host);
    for (size_t have = (size_t)piece * width; ok && have < bytes; have *= 2)
        ok = done(d,
                  c->cuMemcpyDtoDAsync_v2(at(p) + have, at(p),
                                          have < bytes - have ? have : bytes - have, NULL),
                  "cuMemcpyDtoD");
    return ok;
}

static bool cuda_set(BenchDevice *d, void *p, unsigned char byte, size_t bytes)
{
    return done(d, d->cuda->d->cuMemsetD8Async(at(p), byte, bytes, NULL), "cuMemsetD8");
}

static double cuda_room(BenchDevice *d)
{
    size_t have = 0, all = 0;
    return done(d, d->cuda->d->cuMemGetInfo_v2(&have, &all), "cuMemGetInfo") ? (double)have : 0;
}

static bool cuda_begin(BenchDevice *d)
{
    return cuda_sync(d) &&
           done(d, d->cuda->d->cuEventRecord(d->cuda->begin, NULL), "cuEventRecord");
}

static bool cuda_end(BenchDevice *d, double *seconds)
{
    const Driver *c = d->cuda->d;
    float ms = 0;
    bool ok =
        done(d, c->cuEventRecord(d->cuda->end, NULL), "cuEventRecord") &&
        done(d, c->cuEventSynchronize(d->cuda->end), "cuEventSynchronize") &&
        done(d, c->cuEventElapsedTime(&ms, d->cuda->begin, d->cuda->end), "cuEventElapsedTime");
    *seconds = ms * 1e-3;
    return ok;
}

static bool cuda_lap(BenchDevice *d, int k)
{
    Cuda *c = d->cuda;
    if (k >= c->nlap) {
        int n = 2 * k + 64;
        void **more = realloc(c->lap, (size_t)n * sizeof *more);
        if (!more)
            return cli_error("bench: out of memory"), false;
        c->lap = more;
        for (; c->nlap < n; c->nlap++)
            if (!done(d, c->d->cuEventCreate(&c->lap[c->nlap], 0), "cuEventCreate"))
                return false;
    }
    return done(d, c->d->cuEventRecord(c->lap[k], NULL), "cuEventRecord");
}

static bool cuda_laps(BenchDevice *d, int n, double *seconds)
{
    const Cuda *c = d->cuda;
    bool ok = done(d, c->d->cuEventSynchronize(c->lap[n]), "cuEventSynchronize");
    for (int k = 0; ok && k < n; k++) {
        float ms = 0;
        ok = done(d, c->d->cuEventElapsedTime(&ms, c->lap[k], c->lap[k + 1]), "cuEventElapsedTime");
        seconds[k] = ms * 1e-3;
    }
    return ok;
}

static void cuda_yard_close(BenchDevice *d)
{
    cuda_free(d, d->a);
    cuda_free(d, d->b);
    d->a = d->b = NULL;
}

static bool copies(BenchDevice *d, int count)
{
    bool ok = true;
    for (int k = 0; ok && k < count; k++)
        ok = done(
            d,
            d->cuda->d->cuMemcpyDtoDAsync_v2(at(d->b), at(d->a), (size_t)d->n * sizeof *d->a, NULL),
            "cuMemcpyDtoD");
    return ok;
}

static bool cuda_forget(BenchDevice *d)
{
    return !d->b || done(d, d->cuda->d->cuMemcpyDtoDAsync_v2(at(d->b), at(d->a), CACHE, NULL),
                         "cuMemcpyDtoD");
}

/* At least 1 GiB, far beyond the L2 cache, or the size of one of the rule's arrays if that is
 * more. */
static bool cuda_yard_open(BenchDevice *d, int64_t n)
{
    d->n = n < 1 << 28 ? 1 << 28 : n;
    d->a = cuda_alloc(d, (size_t)d->n * sizeof *d->a);
    d->b = d->a ? cuda_alloc(d, (size_t)d->n * sizeof *d->b) : NULL;
    double s;
    if (!d->b || !cuda_fill(d, d->a, T_F32, d->n, 1.0f) || !copies(d, 1) || !cuda_begin(d) ||
        !copies(d, 1) || !cuda_end(d, &s))
        return false;
    d->reps = d->ops->least_steps;
    return true;
}

static bool cuda_yard_time(BenchDevice *d, Rates *out)
{
    double s, each[ALONE];
    /* one untimed copy: another process may have run */
    if (!copies(d, 1))
        return false;
    int samples = d->alone ? ALONE : 1, count = d->alone ? 1 : d->reps;
    for (int k = 0; k < samples; k++)
        if (!cuda_begin(d) || !copies(d, count) || !cuda_end(d, &each[k]))
            return false;
    s = cli_median(each, samples) / count;
    *out = (Rates){.copy = 2.0 * (double)d->n * sizeof *d->a / s};
    out->best = out->copy;
    return true;
}

static void cuda_close(BenchDevice *d)
{
    Cuda *c = d->cuda;
    void *event[] = {c->begin, c->end};
    for (int i = 0; i < 2; i++)
        if (event[i])
            c->d->cuEventDestroy_v2(event[i]);
    for (int i = 0; i < c->nlap; i++)
        c->d->cuEventDestroy_v2(c->lap[i]);
    free(c->lap);
    CUcontext popped;
    if (c->ctx) {
        c->d->cuCtxPopCurrent_v2(&popped);
        c->d->cuDevicePrimaryCtxRelease_v2(c->device);
    }
    free(c);
    d->cuda = NULL;
}

/* The version of the driver's kernel module, from its file in /proc; "" if there is none. */
static const char *kernel_driver(char buf[64])
{
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    char line[256] = "";
    buf[0] = 0;
    if (f && fgets(line, sizeof line, f))
        for (char *save, *word = strtok_r(line, " \n", &save); word && !*buf;
             word = strtok_r(NULL, " \n", &save))
            if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.'))
                snprintf(buf, 64, "driver %.40s, ", word);
    if (f)
        fclose(f);
    return buf;
}

static char *describe(const BenchDevice *d)
{
    char kernel[64], x[32], y[32];
    int version = 0;
    size_t have = 0, all = 0;
    d->cuda->d->cuDriverGetVersion(&version);
    d->cuda->d->cuMemGetInfo_v2(&have, &all);
    Buf b = {0};
    buf_printf(&b, "%sCUDA %d.%d, %s of %s free", kernel_driver(kernel), version / 1000,
               version % 1000 / 10, cli_bytes(x, (double)have), cli_bytes(y, (double)all));
    return buf_take(&b);
}

const BenchDeviceOps bench_device_cuda = {
    .async = true,
    .least_sample = 10e-3,
    .least_steps = 5,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .fill = cuda_fill,
    .set = cuda_set,
    .room = cuda_room,
    .forget = cuda_forget,
    .begin = cuda_begin,
    .end = cuda_end,
    .lap = cuda_lap,
    .laps = cuda_laps,
    .sync = cuda_sync,
    .record = cuda_record,
    .yard_open = cuda_yard_open,
    .yard_time = cuda_yard_time,
    .yard_close = cuda_yard_close,
    .close = cuda_close,
};

bool bench_device_cuda_open(BenchDevice *d, int ordinal)
{
    const char *why = "";
    const Driver *c = driver_get(&why);
    Cuda *x = calloc(1, sizeof *x);
    if (!c || !x) {
        free(x);
        return cli_error("bench: %s", c ? "out of memory" : why), false;
    }
    x->d = c;
    d->cuda = x;
    d->ops = &bench_device_cuda;
    CUcontext ctx = NULL;
    if (!done(d, c->cuDeviceGet(&x->device, ordinal), "cuDeviceGet") ||
        !done(d, c->cuDevicePrimaryCtxRetain(&ctx, x->device), "cuDevicePrimaryCtxRetain"))
        return false;
    x->ctx = ctx;
    if (!done(d, c->cuCtxPushCurrent_v2(ctx), "cuCtxPushCurrent") ||
        !done(d, c->cuEventCreate(&x->begin, 0), "cuEventCreate") ||
        !done(d, c->cuEventCreate(&x->end, 0), "cuEventCreate"))
        return false;
    d->state = describe(d);
    return true;
}

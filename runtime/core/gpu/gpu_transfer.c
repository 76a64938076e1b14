/* Transfers between host and GPU outside of steps: states, scalars, hyperparameters and the step
 * count t. All of them use the binding's stream and are refused while it is captured. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */
/* Inside gpu_enter. Refused in a capture: each replay would use the host address of this call. */
static optc_status may_copy(const optc_binding *b, const char *call)
{
    GpuEngine *g = b->rule->engine->gpu;
    int capturing = 0;
    optc_status s = gpu_alive(g);
    if (s == OPTC_OK && g->d->cuStreamIsCapturing(b->gpu->stream, &capturing) == 0 && capturing)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: not allowed while the binding's stream is being captured; call it before "
                 "or after the capture",
                 call);
    return s;
}

static optc_status copy_bytes(const optc_binding *b, void *host, CUdeviceptr device, size_t bytes,
                              bool up, bool wait, const char *call)
{
    GpuEngine *g = b->rule->engine->gpu;
    const Driver *d = gpu_enter(g);
    optc_status s = may_copy(b, call);
    if (s != OPTC_OK)
        return gpu_leave(g, s);
    int rc = up ? d->cuMemcpyHtoDAsync_v2(device, host, bytes, b->gpu->stream)
                : d->cuMemcpyDtoHAsync_v2(host, device, bytes, b->gpu->stream);
    if (!rc && wait)
        rc = d->cuStreamSynchronize(b->gpu->stream);
    return gpu_leave(g, rc ? gpu_error(g, up ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", rc, call)
                           : OPTC_OK);
}

CORE optc_status gpu_read(const optc_binding *b, void *host, const void *device, size_t bytes,
                          const char *call)
{
    return copy_bytes(b, host, (CUdeviceptr)(uintptr_t)device, bytes, false, true, call);
}

CORE optc_status gpu_write(const optc_binding *b, void *device, const void *host, size_t bytes,
                           bool wait, const char *call)
{
    return copy_bytes(b, (void *)(uintptr_t)host, (CUdeviceptr)(uintptr_t)device, bytes, true, wait,
                      call);
}

/* One driver call, so that all values change or none. The bytes between them must not be written:
 * only the device has their current values. */
CORE optc_status gpu_spread(const optc_binding *b, void *to, size_t pitch, int n, double value,
                            const char *call)
{
    GpuEngine *g = b->rule->engine->gpu;
    if (n == 1)
        return gpu_write(b, to, &value, sizeof value, false, call);
    double *all = (double *)malloc(sizeof value * (size_t)n);
    if (!all)
        return no_memory(call);
    for (int i = 0; i < n; i++)
        all[i] = value;
    CUDA_MEMCPY2D c;
    memset(&c, 0, sizeof c);
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = all;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = (CUdeviceptr)(uintptr_t)to;
    c.srcPitch = c.WidthInBytes = sizeof value;
    c.dstPitch = pitch;
    c.Height = (size_t)n;
    gpu_enter(g);
    optc_status s = may_copy(b, call);
    /* pageable: as in send_moved */
    int rc = s == OPTC_OK ? g->d->cuMemcpy2DAsync_v2(&c, b->gpu->stream) : 0;
    s = gpu_leave(g, rc ? gpu_error(g, "cuMemcpy2DAsync", rc, call) : s);
    free(all);
    return s;
}

CORE size_t gpu_hyper_bytes(const optc_binding *b)
{
    return sizeof(double) * (size_t)(b->program->nhyper + 2);
}

CORE optc_status gpu_send_hyper(const optc_binding *b, int first, int n, int at, double value,
                                const char *call)
{
    size_t row = gpu_hyper_bytes(b);
    CUdeviceptr to = b->gpu->hyper + row * (size_t)first + sizeof(double) * (size_t)at;
    return gpu_spread(b, (void *)(uintptr_t)to, row, n, value, call);
}

/* ---- t: replays of a captured step increment it only on the device ---- */
CORE optc_status gpu_get_t(const optc_binding *b, int64_t *steps)
{
    double t = (double)b->steps;
    optc_status s = refuse_half_done(b, "optc_get_t");
    bool device = b->gpu->captured || b->gpu->guarded || gpu_agree_differs(b);
    if (s == OPTC_OK && device && b->program->needs_t)
        s = copy_bytes(b, &t, b->gpu->hyper, sizeof t, false, true, "optc_get_t");
    if (s == OPTC_OK)
        *steps = (int64_t)t;
    return s;
}

/* Sets t and lag of all cohorts, or none, by writing the whole table: the host has the
 * hyperparameters in between. */
CORE optc_status gpu_set_t(optc_binding *b, int64_t steps)
{
    int each = b->program->nhyper + 2;
    size_t bytes = gpu_hyper_bytes(b);
    double *all = (double *)malloc(bytes * (size_t)b->ncohort);
    if (!all)
        return no_memory("optc_set_t");
    for (int i = 0; i < b->ncohort; i++) {
        double *row = all + (size_t)each * (size_t)i;
        memcpy(row, b->group[i].hyper, bytes);
        row[0] = (double)steps, row[each - 1] = 0;
    }
    optc_status s = gpu_write(b, (void *)(uintptr_t)b->gpu->hyper, all, bytes * (size_t)b->ncohort,
                              false, "optc_set_t");
    for (int i = 0; i < b->ncohort && s == OPTC_OK; i++)
        memcpy(b->group[i].hyper, all + (size_t)each * (size_t)i, bytes);
    b->gpu->half_done = b->gpu->half_done && s != OPTC_OK;
    free(all);
    return s;
}

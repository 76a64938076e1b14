/* Memory of a GPU for callers (device_memory.c): allocating and freeing in the order of a stream,
 * setting bytes, copies in all directions. */
#include "runtime/core/gpu/gpu_device.h"

#include <string.h>

/* Inside gpu_enter. An allocation inside a capture would belong to the graph, and a replay would
 * use the host's address again. */
static optc_status outside_capture(GpuEngine *g, CUstream stream, const char *call,
                                   const char *what)
{
    int capturing = 0;
    optc_status s = gpu_alive(g);
    if (s == OPTC_OK && g->d->cuStreamIsCapturing(stream, &capturing) == 0 && capturing)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: %s while the stream is captured; call it before or after the capture", call,
                 what);
    return s;
}

CORE optc_status gpu_memory_take(optc_engine *e, size_t bytes, void *stream, void **out)
{
    CUdeviceptr p = 0;
    gpu_enter(e->gpu);
    optc_status s = outside_capture(e->gpu, stream, "optc_alloc", "not allowed");
    if (s == OPTC_OK)
        s = gpu_alloc(e, bytes, stream, "optc_alloc", &p);
    *out = (void *)(uintptr_t)p;
    return gpu_leave(e->gpu, s);
}

/* After a sticky error the block only leaves the books: the driver frees nothing any more. */
CORE optc_status gpu_memory_give(optc_engine *e, void *memory, size_t bytes, void *stream)
{
    gpu_enter(e->gpu);
    bool dead = __atomic_load_n(&e->gpu->dead, __ATOMIC_SEQ_CST) != 0;
    optc_status s = dead ? OPTC_OK : outside_capture(e->gpu, stream, "optc_free", "not allowed");
    if (s == OPTC_OK)
        gpu_give(e, (CUdeviceptr)(uintptr_t)memory, bytes, stream);
    return gpu_leave(e->gpu, s);
}

CORE optc_status gpu_memory_fills(optc_engine *e, const void *to)
{
    bool here = false;
    optc_status s = gpu_owns_pointer(e->gpu, to, "optc_fill", &here);
    if (s == OPTC_OK && !here)
        s = fail(OPTC_ERROR_ARGUMENT, "optc_fill: the memory is not in the memory of %s", e->name);
    return s;
}

CORE optc_status gpu_memory_set(optc_engine *e, void *to, int byte, size_t bytes, void *stream)
{
    optc_status s = gpu_alive(e->gpu);
    if (s != OPTC_OK)
        return s;
    int rc = gpu_enter(e->gpu)->cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, (unsigned char)byte,
                                                bytes, stream);
    return gpu_leave(e->gpu, rc ? gpu_error(e->gpu, "cuMemsetD8Async", rc, "") : OPTC_OK);
}

static int copy_rows(const Driver *d, const MemoryCopy *c, CUstream stream)
{
    CUDA_MEMCPY2D x;
    memset(&x, 0, sizeof x);
    x.srcMemoryType = x.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    x.srcDevice = (CUdeviceptr)(uintptr_t)c->from;
    x.dstDevice = (CUdeviceptr)(uintptr_t)c->to;
    x.srcPitch = x.dstPitch = c->pitch;
    x.WidthInBytes = c->bytes;
    x.Height = c->rows;
    return d->cuMemcpy2DAsync_v2(&x, stream);
}

/* Inside gpu_enter. A copy from pageable memory reads it before it returns (gpu_run.c relies on
 * that too). A copy to pageable memory is waited for. */
static optc_status copy_placed(GpuEngine *g, const MemoryCopy *c, MemoryPlace to, MemoryPlace from,
                               CUstream stream)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)c->to, source = (CUdeviceptr)(uintptr_t)c->from;
    int rc = 0;
    if (c->rows > 1)
        rc = copy_rows(g->d, c, stream);
    else if (to == PLACE_HERE && from == PLACE_HERE)
        rc = g->d->cuMemcpyDtoDAsync_v2(at, source, c->bytes, stream);
    else if (to == PLACE_HERE)
        rc = g->d->cuMemcpyHtoDAsync_v2(at, c->from, c->bytes, stream);
    else if (from == PLACE_HERE)
        rc = g->d->cuMemcpyDtoHAsync_v2(c->to, source, c->bytes, stream);
    if (rc)
        return gpu_error(g, "cuMemcpyAsync", rc, "optc_copy");
    if (to == PLACE_HOST || (to != PLACE_HERE && from != PLACE_HERE))
        TRY(g, cuStreamSynchronize(stream), "optc_copy");
    if (to != PLACE_HERE && from != PLACE_HERE)
        memcpy(c->to, c->from, c->bytes);
    return OPTC_OK;
}

CORE optc_status gpu_memory_copy(optc_engine *e, const MemoryCopy *c, void *stream)
{
    MemoryPlace to = PLACE_HERE, from = PLACE_HERE;
    optc_status s = gpu_pointer_place(e->gpu, c->to, "optc_copy", &to);
    if (s == OPTC_OK)
        s = gpu_pointer_place(e->gpu, c->from, "optc_copy", &from);
    if (s == OPTC_OK && (to == PLACE_OTHER_GPU || from == PLACE_OTHER_GPU))
        s = fail(OPTC_ERROR_ARGUMENT,
                 "optc_copy: the memory to %s is on another GPU than %s; copy it through the host",
                 to == PLACE_OTHER_GPU ? "write" : "read", e->name);
    if (s != OPTC_OK)
        return s;
    gpu_enter(e->gpu);
    /* the host copies, after the stream's work */
    bool apart = to != PLACE_HERE && from != PLACE_HERE;
    if (to == PLACE_HOST || from == PLACE_HOST || apart)
        s = outside_capture(e->gpu, stream, "optc_copy",
                            apart ? "no copies between two host arrays"
                                  : "no copies from or to pageable host memory");
    return gpu_leave(e->gpu, s == OPTC_OK ? copy_placed(e->gpu, c, to, from, stream) : s);
}

/* Exchanges of a sharded binding that run beside its stages (from_program.c has the order): a
 * second stream, in which all overlapped exchanges are in order. Each of them has an event that the
 * binding's stream can wait for. A run ends with both streams joined, also after an error: what
 * follows in the binding's stream (a free, another step) must not overtake an exchange. In a
 * capture the second stream becomes part of the caller's graph. */
#include "runtime/core/gpu/gpu_device.h"

/* arrived: by number of the exchange; open: the second stream has work that the binding's may not
 * have waited for */
typedef struct GpuOverlap {
    CUstream stream; CUevent forked, *arrived; int n; bool open;
} GpuOverlap;

enum { NON_BLOCKING = 1, NO_TIMING = 2 };

CORE optc_status gpu_overlap_bind(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    int n = 0;
    for (int i = 0; i < b->program->nentry * program_phases(b->program); i++)
        for (int k = 0; k < b->schedule[i].n; k++)
            n = b->schedule[i].op[k].beside > n ? b->schedule[i].op[k].beside : n;
    if (!n)
        return OPTC_OK;
    GpuOverlap *x = b->gpu->overlap = TAKE(b, GpuOverlap, 1);
    if (!x || !(x->arrived = TAKE(b, CUevent, n)))
        return no_memory("optc_bind_sharded");
    x->n = n;
    TRY(g, cuStreamCreate(&x->stream, NON_BLOCKING), "a stream for exchanges");
    TRY(g, cuEventCreate(&x->forked, NO_TIMING), "a stream for exchanges");
    for (int i = 0; i < n; i++)
        TRY(g, cuEventCreate(&x->arrived[i], NO_TIMING), "a stream for exchanges");
    return OPTC_OK;
}

CORE void gpu_overlap_unbind(optc_binding *b)
{
    const Driver *d = b->rule->engine->gpu->d;
    const GpuOverlap *x = b->gpu->overlap;
    for (int i = 0; x && x->arrived && i < x->n; i++)
        if (x->arrived[i])
            d->cuEventDestroy_v2(x->arrived[i]);
    if (x && x->forked)
        d->cuEventDestroy_v2(x->forked);
    if (x && x->stream)
        d->cuStreamDestroy_v2(x->stream);
    b->gpu->overlap = NULL;
}

CORE optc_status gpu_overlap_exchange(const optc_binding *b, const ScheduleOp *op)
{
    const GpuOverlap *x = b->gpu->overlap;
    CUstream own = b->gpu->stream;
    b->gpu->stream = x->stream;
    optc_status s = gpu_exchange(b, op->what);
    b->gpu->stream = own;
    if (s == OPTC_OK)
        TRY(b->rule->engine->gpu, cuEventRecord(x->arrived[op->beside - 1], x->stream),
            "a stream for exchanges");
    return s;
}

CORE optc_status gpu_overlap_wait(const optc_binding *b, const ScheduleOp *op)
{
    TRY(b->rule->engine->gpu,
        cuStreamWaitEvent(b->gpu->stream, b->gpu->overlap->arrived[op->beside - 1], 0),
        "a stream for exchanges");
    return OPTC_OK;
}

CORE optc_status gpu_overlap_fork(const optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuOverlap *x = b->gpu->overlap;
    TRY(g, cuEventRecord(x->forked, b->gpu->stream), "a stream for exchanges");
    x->open = true;
    TRY(g, cuStreamWaitEvent(x->stream, x->forked, 0), "a stream for exchanges");
    return OPTC_OK;
}

/* After an error in the middle of a section the streams are not joined yet. The first message
 * stays. */
CORE optc_status gpu_overlap_end(const optc_binding *b, optc_status s)
{
    GpuOverlap *x = b->gpu->overlap;
    const Driver *d = b->rule->engine->gpu->d;
    if (x && x->open && s != OPTC_OK && !d->cuEventRecord(x->forked, x->stream))
        d->cuStreamWaitEvent(b->gpu->stream, x->forked, 0);
    if (x)
        x->open = false;
    return s;
}

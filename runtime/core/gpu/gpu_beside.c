/* Small bindings beside a large one (optc_run_all): a model's norms and biases in f32 beside its
 * matrices in bf16. The small ones run in a stream of their own, which starts where the caller's
 * stream is and which the caller's stream waits for. One after another, their few short kernels
 * would cost a GPU more than the bytes they move. Captures contain both streams. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>

typedef struct GpuBeside { CUstream stream; CUevent begins, ended; } GpuBeside;

static optc_status make(optc_binding *lead)
{
    GpuEngine *g = lead->rule->engine->gpu;
    GpuBeside *x = lead->gpu->beside = (GpuBeside *)calloc(1, sizeof *x);
    if (!x)
        return no_memory("optc_run_all");
    TRY(g, cuStreamCreate(&x->stream, 1), "a second stream");
    TRY(g, cuEventCreate(&x->begins, 2), "a second stream");                 /* no timing */
    TRY(g, cuEventCreate(&x->ended, 2), "a second stream");
    return OPTC_OK;
}

CORE void gpu_beside_unbind(optc_binding *b)
{
    const Driver *d = b->rule->engine->gpu->d;
    GpuBeside *x = b->gpu->beside;
    if (x && x->begins)
        d->cuEventDestroy_v2(x->begins);
    if (x && x->ended)
        d->cuEventDestroy_v2(x->ended);
    if (x && x->stream)
        d->cuStreamDestroy_v2(x->stream);
    free(x);
    b->gpu->beside = NULL;
}

/* `to` waits for all that is in `from` so far. */
static optc_status follow(GpuEngine *g, CUstream to, CUstream from, CUevent by)
{
    TRY(g, cuEventRecord(by, from), "a second stream");
    TRY(g, cuStreamWaitEvent(to, by, 0), "a second stream");
    return OPTC_OK;
}

static optc_status begin(optc_binding *const *b, int n, int lead)
{
    GpuTables *t = b[lead]->gpu;
    for (int i = 0; i < n; i++)
        if (b[i]->gpu->stream != t->stream)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run_all: bindings %d and %d have different streams; give all of "
                        "them one by optc_set_stream",
                        lead, i);
    optc_status s = t->beside ? OPTC_OK : make(b[lead]);
    if (s != OPTC_OK)
        return gpu_beside_unbind(b[lead]), s;
    s = follow(b[lead]->rule->engine->gpu, t->beside->stream, t->stream, t->beside->begins);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        b[i]->gpu->stream = i == lead ? t->stream : t->beside->stream;
    return s;
}

static optc_status end(optc_binding *const *b, int n, int lead)
{
    GpuTables *t = b[lead]->gpu;
    for (int i = 0; i < n; i++)
        b[i]->gpu->stream = t->stream;
    return follow(b[lead]->rule->engine->gpu, t->stream, t->beside->stream, t->beside->ended);
}

CORE optc_status gpu_beside(optc_binding *const *b, int n, int lead, bool begins)
{
    GpuEngine *g = b[lead]->rule->engine->gpu;
    gpu_enter(g);
    return gpu_leave(g, begins ? begin(b, n, lead) : end(b, n, lead));
}

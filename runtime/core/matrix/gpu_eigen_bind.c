/* Eigenvectors on a GPU: memory of a binding, the library's first call, captures (gpu_eigen.c has the steps). */
#include "runtime/core/matrix/gpu_calls.h"

/* Rows. The library's call can be captured at 512 rows and not at 1024 (H200, CUDA 13.0). */
enum { EIGEN_CAPTURED_MOST = 512 };

/* ---- captures ---- */
static bool eigen_uses_library(const CallStep *s) { return s->kernel == KERNEL_EIGEN_ROTATE && !s->own; }

/* Whether a capture can contain the library's call: tried once, in a private stream. A call on zeros comes first: the
 * library loads code at its first call, which may fail in a capture. */
static bool eigen_captures(optc_binding *b, GpuCalls *x, const CallStep *s)
{
    const Driver *d = b->rule->engine->gpu->d;
    const char *call;
    CUgraph graph = NULL;
    if (s->n > EIGEN_CAPTURED_MOST ||
        d->cuMemsetD8Async(eigen_at(x, s->a, 0), 0, (size_t)(s->per_call * x->set[s->a].record), b->gpu->stream) ||
        lane_call(x, s, 0, 0, b->gpu->stream, &call) ||
        d->cuStreamBeginCapture_v2(x->own, CU_STREAM_CAPTURE_MODE_RELAXED))
        return false;
    bool ok = lane_call(x, s, 0, 0, x->own, &call) == 0;
    ok = d->cuStreamEndCapture(x->own, &graph) == 0 && ok;
    if (graph)
        d->cuGraphDestroy(graph);
    return ok;
}

CORE bool calls_capture(const optc_binding *b, const GpuCall *c)
{
    const GpuCalls *x = b->gpu->calls;
    bool slots = b->gpu->slots && c->stage->stagger;       /* then other matrices do not matter */
    int first = slots ? c->stagger_first : c->first, n = slots ? c->stagger_n : c->n;
    for (int i = first; i < first + n; i++)
        if (eigen_uses_library(&x->step[i]) && !x->step[i].captured && (!slots || x->group[x->step[i].group].now))
            return false;
    return true;
}

static bool some_scheduled(const optc_binding *b, const CallGroup *g, const StaggerNow *now)
{
    bool any = false;
    for (int k = 0; k < g->n && !any; k++)
        for (int64_t q = 0; q < g->shape.slices && b->gpu->calls->present[g->tensor[k]] && !any; q++)
            any = stagger_active(b, now, g->stagger, &b->tensor[g->tensor[k]], q);
    return any;
}

CORE bool list_captures(const optc_binding *b, const LaunchList *p, const StaggerNow *now)
{
    const GpuCalls *x = b->gpu->calls;
    bool all = true;
    for (int k = 0; k < p->n && all; k++) {
        const GpuCall *c = p->item[k].call;
        bool slots = c && now && c->stage->stagger;
        int first = !c ? 0 : slots ? c->stagger_first : c->first, n = !c ? 0 : slots ? c->stagger_n : c->n;
        for (int i = first; i < first + n && all; i++)
            all = !eigen_uses_library(&x->step[i]) || x->step[i].captured ||
                  (slots && !some_scheduled(b, &x->group[x->step[i].group], now));
    }
    return all;
}

/* Whether a step must be skipped: library steps in a capture that cannot contain them, and their replacements
 * elsewhere. Also in calls_probe: the rotations of one matrix of 3072 rows are 123,000 launches, and those of SOAP's
 * first step over GPT-2 124M took 1.8 s (H200). */
CORE bool eigen_skips(const optc_binding *b, const CallStep *s)
{
    const GpuCalls *x = b->gpu->calls;
    bool replaced = s->solver >= 0 && !x->step[s->solver].captured && !x->probing && b->gpu->capturing;
    return s->instead != replaced;
}

/* ---- binding ---- */
/* Allocates the memory of all rounds; addresses are known from here on. */
CORE optc_status eigen_bind(optc_binding *b, GpuCalls *x)
{
    Eigen *e = &x->eigen;
    if (!e->bytes)
        return OPTC_OK;
    optc_status s = gpu_alloc(b->rule->engine, (size_t)e->bytes, b->gpu->stream, e->largest, &e->scratch);
    if (s != OPTC_OK)
        return workspace_fails(b, s, e->bytes);
    b->call_more = e->bytes;
    return lanes_bind(b, e);
}

/* The library's first call loads its code, 0.13 s (H200, CUDA 13.0). So the smallest matrix is computed, of zeros,
 * while other threads compile our kernels. Smaller ones are computed by eigen_probe. */
CORE void eigen_warm(optc_binding *b, GpuCalls *x)
{
    const CallStep *least = NULL;
    const char *call;
    for (int i = 0; i < x->nstep; i++) {
        const CallStep *s = &x->step[i];
        if (eigen_uses_library(s) && s->n > EIGEN_CAPTURED_MOST && (!least || s->n < least->n))
            least = s;
    }
    if (!least || x->eigen.warm)
        return;
    int64_t bytes = least->per_call * x->set[least->a].record;
    x->eigen.warm = true;
    if (!b->rule->engine->gpu->d->cuMemsetD8Async(eigen_at(x, least->a, 0), 0, (size_t)bytes, b->gpu->stream))
        (void)lane_call(x, least, 0, 0, b->gpu->stream, &call);
}

CORE void eigen_probe(optc_binding *b, GpuCalls *x)
{
    const CallStep *like = NULL;               /* most steps equal the previous one */
    for (int i = 0; i < x->nstep; i++) {
        CallStep *s = &x->step[i];
        if (!eigen_uses_library(s))
            continue;
        bool same = like && like->n == s->n && like->flags == s->flags;
        s->captured = same ? like->captured : eigen_captures(b, x, s);
        like = s;
    }
}

CORE void eigen_unbind(optc_binding *b, GpuCalls *x)
{
    Eigen *e = &x->eigen;
    lanes_unbind(b, e);
    if (e->scratch)
        gpu_give(b->rule->engine, e->scratch, (size_t)e->bytes, b->gpu->stream);
}

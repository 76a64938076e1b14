/* Ahead of a run: a library loads kernels at their first use. If memory runs out then, the first
 * stages of the step have already run. So a launch list is captured once before it runs, into a
 * graph that is never launched: if memory runs out there, all states are unchanged. The library may
 * select other kernels for other numbers of matrices, so these are tried again. */
#include "runtime/core/matrix/gpu_calls.h"

/* A launch list and its numbers of matrices. */
static unsigned long long counts_hash(const optc_binding *b, const LaunchList *p)
{
    const GpuCalls *x = b->gpu->calls;
    unsigned long long h = 14695981039346656037u;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; p->item[i].call && k < p->item[i].call->n + p->item[i].call->stagger_n;
             k++) {
            const GpuCall *c = p->item[i].call;
            int at = k < c->n ? c->first + k : c->stagger_first + k - c->n;
            h = (h ^ (unsigned long long)step_group(x, &x->step[at])->now) * 1099511628211u;
        }
    return (h ^ (unsigned long long)(uintptr_t)task_list(p->key.task)) | 1;
}

/* Factors that name a previous result may fail for lack of memory here: they handle it when they
 * run. Exchanges need no memory, and the other ranks would have to take part in them. */
static optc_status try_all(optc_binding *b, const LaunchList *p)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < p->n && s == OPTC_OK; i++) {
        const ProgStage *stage = p->item[i].stage;
        s = op_of_ranks(p->item[i].op) ? OPTC_OK : gpu_launch(b, &p->item[i], 0);
        if (s == OPTC_ERROR_MEMORY && p->item[i].call && stage_of_kind(stage, CALLEE_FACTOR) &&
            stage->call->c >= 0) {
            message_clear();
            s = OPTC_OK;
        }
    }
    return s;
}

CORE optc_status calls_probe(optc_binding *b, LaunchList *p)
{
    const Driver *d = b->rule->engine->gpu->d;
    GpuCalls *x = b->gpu->calls;
    CUstream was = b->gpu->stream;
    CUgraph graph = NULL;
    if (list_whole(p) || p->probed || (p->runs && !p->stagger))
        return OPTC_OK;
    unsigned long long numbers = counts_hash(b, p);
    for (int i = 0; i < TRIED_MOST && !p->probed; i++)
        p->probed = x->tried[i] == numbers;
    if (p->probed)
        return OPTC_OK;
    if (d->cuStreamBeginCapture_v2(x->own, CU_STREAM_CAPTURE_MODE_RELAXED))
        return OPTC_OK;                                    /* no probe is possible */
    b->gpu->stream = x->own;
    x->probing = true;
    optc_status s = try_all(b, p);
    x->probing = false;
    b->gpu->stream = was;
    d->cuStreamEndCapture(x->own, &graph);
    if (graph)
        d->cuGraphDestroy(graph);
    if (s == OPTC_ERROR_MEMORY)
        return s;
    /* a call that works in a run may fail in a capture */
    if (s != OPTC_OK)
        message_clear();
    x->tried[x->ntried++ % TRIED_MOST] = numbers;
    p->probed = p->key.use != LIST_ALL;
    return OPTC_OK;
}

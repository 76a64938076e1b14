/* Conditional graph nodes: a kernel of ours (optc_phase) evaluates on the device whether, or which,
 * body of a node runs. Phases (gpu_conditional.c) and factors use them: the body of a factor's node
 * has further rounds of a QR, and runs if a matrix needs them (gpu_qr.c). Without such nodes the
 * rounds always run. Their results are used for the same matrices. */
#include "runtime/core/matrix/gpu_eigen.h"

#include <string.h>

CORE bool driver_conditions(const optc_binding *b)
{
    const Driver *d = b->rule->engine->gpu->d;
    if (b->plan)
        return true;
    return d->version >= CONDITIONS_NEEDED && d->cuStreamGetCaptureInfo_v3 &&
           d->cuStreamUpdateCaptureDependencies_v2 && d->cuStreamBeginCaptureToGraph &&
           d->cuGraphConditionalHandleCreate && d->cuGraphAddNode_v2;
}

typedef struct Capture {
    CUgraph graph; const CUgraphNode *after; const CUgraphEdgeData *edge; size_t n;
} Capture;

static optc_status capture_info(const optc_binding *b, CUstream stream, Capture *c)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    memset(c, 0, sizeof *c);
    TRY(b->rule->engine->gpu,
        cuStreamGetCaptureInfo_v3(stream, &status, &id, &c->graph, &c->after, &c->edge, &c->n),
        "a captured step");
    return OPTC_OK;
}

CORE optc_status condition_kernel(optc_binding *b, CallArgs a, unsigned usual, unsigned threads,
                                  CUgraphConditionalHandle *handle)
{
    GpuEngine *g = b->rule->engine->gpu;
    const char *name = b->program->name;
    Capture c;
    optc_status s = capture_info(b, b->gpu->stream, &c);
    if (s != OPTC_OK)
        return s;
    TRY(g, cuGraphConditionalHandleCreate(handle, c.graph, g->ctx, usual, CONDITION_ASSIGN_DEFAULT),
        name);
    a.c = *handle;
    void *args[] = {&a};
    TRY(g,
        cuLaunchKernel(b->gpu->code->call[KERNEL_PHASE], 1, 1, 1, threads, 1, 1, 0, b->gpu->stream,
                       args, NULL),
        name);
    return OPTC_OK;
}

CORE optc_status condition_node(optc_binding *b, CUgraphConditionalHandle handle, int type, int n,
                                CUgraph **bodies)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUgraphNodeParams x;
    CUgraphNode node = NULL;
    Capture c;
    optc_status s = capture_info(b, b->gpu->stream, &c);
    if (s != OPTC_OK)
        return s;
    memset(&x, 0, sizeof x);
    x.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    x.of.conditional.handle = handle;
    x.of.conditional.type = type;
    x.of.conditional.size = (unsigned)n;
    x.of.conditional.ctx = g->ctx;
    TRY(g, cuGraphAddNode_v2(&node, c.graph, c.after, c.edge, c.n, &x), b->program->name);
    *bodies = x.of.conditional.phGraph_out;
    TRY(g,
        cuStreamUpdateCaptureDependencies_v2(b->gpu->stream, &node, NULL, 1,
                                             CU_STREAM_SET_CAPTURE_DEPENDENCIES),
        b->program->name);
    return OPTC_OK;
}

/* Not in a caller's graph, except in bodies of phases: a graph that contains conditional nodes
 * cannot be part of another one, and a graph with phases contains them anyway. */
CORE bool condition_possible(const optc_binding *b)
{
    const GpuCalls *x = b->gpu->calls;
    bool ours = b->gpu->stream == x->own || b->gpu->stream == x->inner;
    return ours && !x->probing && b->gpu->code->call[KERNEL_PHASE] && driver_conditions(b);
}

CORE bool condition_inside(const optc_binding *b)
{
    const GpuCalls *x = b->gpu->calls;
    return b->gpu->stream == x->inner || b->gpu->stream == x->innermost;
}

CORE optc_status condition_begin(optc_binding *b, const CallArgs *args, ConditionBody *x)
{
    const GpuCalls *c = b->gpu->calls;
    CUgraphConditionalHandle handle = 0;
    x->was = b->gpu->stream;
    x->inner = x->was == c->inner ? c->innermost : c->inner;
    x->graph = NULL;
    CUgraph *body = NULL;
    optc_status s = condition_kernel(b, *args, 0, PHASE_THREADS, &handle);
    if (s == OPTC_OK)
        s = condition_node(b, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    if (s != OPTC_OK)
        return s;
    x->graph = *body;
    int rc = b->rule->engine->gpu->d->cuStreamBeginCaptureToGraph(x->inner, x->graph, NULL, NULL, 0,
                                                                   CU_STREAM_CAPTURE_MODE_RELAXED);
    if (rc)
        return x->graph = NULL,
               gpu_error(b->rule->engine->gpu, "cuStreamBeginCaptureToGraph", rc, b->program->name);
    b->gpu->stream = x->inner;
    return OPTC_OK;
}

CORE optc_status condition_end(optc_binding *b, const ConditionBody *x, optc_status s)
{
    const Driver *d = b->rule->engine->gpu->d;
    CUgraph graph = x->graph;
    size_t nodes = 0;
    if (!graph)
        return s;
    b->gpu->stream = x->was;
    int rc = d->cuStreamEndCapture(x->inner, &graph);
    if (!rc && !d->cuGraphGetNodes(x->graph, NULL, &nodes))
        b->gpu->calls->body_nodes += (int64_t)nodes;
    return s == OPTC_OK && rc
               ? gpu_error(b->rule->engine->gpu, "cuStreamEndCapture", rc, b->program->name)
               : s;
}

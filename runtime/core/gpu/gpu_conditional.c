/* Steps of rules with calls where the device decides what runs: captured steps of rules with
 * periods, and guarded steps.
 *
 * Our kernels return at once if the step belongs to another phase, or if a guard skips it. A
 * library's kernels and copies do not. So each phase is the body of a conditional graph node, and a
 * kernel (optc_phase) evaluates on the device which phase the step belongs to, and whether it has
 * to run. Steps that run one by one after a capture, or under a guard, also launch such a graph of
 * ours, since the host does not know the phase.
 *
 * Factors use conditional nodes too, in graphs of ours and in bodies of phases: the body of such a
 * node has further rounds of a QR, and runs if a matrix needs them (gpu_qr.c). Without such nodes
 * the rounds always run. Their results are used for the same matrices. */
#include "runtime/core/matrix/gpu_eigen.h"

#include <string.h>

enum { PHASE_THREADS = 128 };              /* of optc_phase */

/* ---- conditions ---- */
static bool entry_calls(const optc_binding *b, int entry)
{
    for (int m = 0; m < b->gpu->nphase; m++)
        if (b->gpu->launch_list[entry * b->gpu->nphase + m].calls)
            return true;
    return false;
}

static bool entry_copies(const optc_binding *b, int entry)
{
    for (int m = 0; m < b->gpu->nphase; m++)
        if (b->gpu->launch_list[entry * b->gpu->nphase + m].apart)
            return true;
    return false;
}

CORE bool phases_conditional(const optc_binding *b, int entry)
{
    if (!b->gpu->calls)
        return false;
    return (b->program->nperiod && entry_calls(b, entry)) || slot_switch_used(b, entry) ||
           phases_guarded(b, entry);
}

CORE bool phases_guarded(const optc_binding *b, int entry)
{
    return b->gpu->calls && b->gpu->guarded && (entry_calls(b, entry) || entry_copies(b, entry));
}

CORE bool driver_conditions(const optc_binding *b)
{
    const Driver *d = b->rule->engine->gpu->d;
    return d->version >= CONDITIONS_NEEDED && d->cuStreamGetCaptureInfo_v3 &&
           d->cuStreamUpdateCaptureDependencies_v2 && d->cuStreamBeginCaptureToGraph &&
           d->cuGraphConditionalHandleCreate && d->cuGraphAddNode_v2;
}

static optc_status may_condition(const optc_binding *b)
{
    const Driver *d = b->rule->engine->gpu->d;
    const char *name = b->program->name;
    if (!driver_conditions(b))
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_run: rule '%s' has products at some steps only; capturing it needs "
                    "conditional graph nodes "
                    "(CUDA 12.4), and the driver is for CUDA %d.%d",
                    name, d->version / 1000, d->version % 1000 / 10);
    if (!b->gpu->code->call[KERNEL_PHASE])
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_run: rule '%s' has products at some steps only; capturing it needs "
                    "conditional graph "
                    "nodes, which packages and NVRTC before 12.3 do not have",
                    name);
    return OPTC_OK;
}

/* Bodies compute these eigenvectors with one thread block per matrix (divide_launch). */
static bool bodies_are_slow(const optc_binding *b)
{
    const GpuCalls *x = b->gpu->calls;
    bool slow = false;
    for (int i = 0; i < x->nstep; i++)
        slow = slow || divide_launches(&x->step[i]);
    return slow && !b->rule->engine->gpu->bodies_cooperate;
}

/* Decides whether guarded steps use conditional nodes. They do not where waiting for the guard on
 * the host is faster: slots with too many combinations, roots whose type the host selects, and
 * eigenvectors that are slow in bodies. Nor where ranks exchange arrays: a conditional node cannot
 * contain the caller's collectives. */
CORE void phases_bind(optc_binding *b)
{
    const GpuCalls *x = b->gpu->calls;
    bool can = x && !b->shards && may_condition(b) == OPTC_OK;
    if (can)
        slot_switch_bind(b);
    b->conditional = can && (!b->nslots || x->switches) && !x->roots_f32 && !bodies_are_slow(b);
    message_clear();
}

/* ---- a phase as the body of a node ---- */
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

/* Adds a kernel to the captured stream that sets a new condition: optc_phase with these arguments.
 * usual: the node's value if the kernel does not set it. */
static optc_status add_condition_kernel(optc_binding *b, CallArgs a, unsigned usual,
                                        unsigned threads, CUgraphConditionalHandle *handle)
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

/* The condition: whether the step runs this body (an IF node), or (body -1) which one of all (a
 * switch node). */
static optc_status add_phase_kernel(optc_binding *b, int entry, int body, unsigned usual,
                                    CUgraphConditionalHandle *handle)
{
    const Program *p = b->program;
    CallArgs a;
    memset(&a, 0, sizeof a);
    a.a = b->gpu->groups;
    a.b = b->gpu->calls->bodies[entry].at;
    a.m = p->nperiod;
    a.n = body;
    a.k = p->nhyper + 1;
    a.flags = b->ncohort;
    return add_condition_kernel(b, a, usual, body < 0 ? PHASE_THREADS : 1, handle);
}

/* Adds the conditional node; the captured stream continues behind it. bodies: one graph (IF) or
 * several (switch). */
static optc_status add_condition(optc_binding *b, CUgraphConditionalHandle handle, int type, int n,
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

/* ---- some steps of a call as the body of a node ---- */
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
    optc_status s = add_condition_kernel(b, *args, 0, PHASE_THREADS, &handle);
    if (s == OPTC_OK)
        s = add_condition(b, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
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

/* slots: not NULL, the body is of this combination. It fetches its pointers itself: no other step
 * does. */
static optc_status fill_body(optc_binding *b, const LaunchList *p, SlotList *slots, CUgraph body)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUstream was = b->gpu->stream, inner = b->gpu->calls->inner;
    optc_status s = OPTC_OK;
    TRY(g, cuStreamBeginCaptureToGraph(inner, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
        b->program->name);
    b->gpu->stream = inner;
    b->gpu->slots = slots;
    if (slots) {
        calls_slots_select(b, &slots->calls);
        s = calls_gather(b, slots->calls.addresses, slots->calls.pointers, slots->calls.npointer);
    }
    for (int i = 0; i < p->n && s == OPTC_OK; i++)
        if (p->item[i].op->kind != SCHEDULE_ADVANCE)
            s = gpu_launch(b, &p->item[i], 0);
    b->gpu->stream = was;
    b->gpu->slots = NULL;
    int rc = g->d->cuStreamEndCapture(inner, &body);
    return s == OPTC_OK && rc ? gpu_error(g, "cuStreamEndCapture", rc, b->program->name) : s;
}

/* One switch node selects among all bodies. Older drivers need an IF node and a kernel for each
 * body, which take 7 us if the body does not run: a replay of Shampoo with 8 matrices of 128 rows
 * and 101 combinations of slots takes 0.78 ms, with a switch node 0.10 (H200). */
static bool one_switch(const optc_binding *b, int n)
{
    return n > 1 && b->rule->engine->gpu->d->version >= SWITCH_NEEDED;
}

static optc_status add_if(optc_binding *b, int entry, int body, CUgraph **to)
{
    CUgraphConditionalHandle handle = 0;
    optc_status s = add_phase_kernel(b, entry, body, 0, &handle);
    return s == OPTC_OK ? add_condition(b, handle, CU_GRAPH_COND_TYPE_IF, 1, to) : s;
}

static optc_status add_switch(optc_binding *b, int entry, int n, CUgraph **to)
{
    CUgraphConditionalHandle handle = 0;
    optc_status s = add_phase_kernel(b, entry, -1, (unsigned)n, &handle);
    return s == OPTC_OK ? add_condition(b, handle, CONDITION_SWITCH, n, to) : s;
}

/* Captures the launches that advance t, then a body for each phase and combination of slots. */
CORE optc_status phases_capture(optc_binding *b, int entry)
{
    const LaunchList *first = &b->gpu->launch_list[entry * b->gpu->nphase];
    int n = b->gpu->calls->bodies[entry].n, body = 0;
    bool all = one_switch(b, n);
    CUgraph *to = NULL;
    optc_status s = may_condition(b);
    for (int i = 0; i < first->n && s == OPTC_OK; i++)
        if (first->item[i].op->kind == SCHEDULE_ADVANCE)
            s = gpu_launch(b, &first->item[i], 0);
    if (s == OPTC_OK && all)
        s = add_switch(b, entry, n, &to);
    for (int m = 0; m < b->gpu->nphase && s == OPTC_OK; m++)
        for (int i = 0; i < bodies_count(b, &first[m]) && s == OPTC_OK; i++, body++) {
            SlotList *slots = body_slots(b, &first[m], i);
            if (!all)
                s = add_if(b, entry, body, &to);
            if (s == OPTC_OK)
                s = fill_body(b, slots ? &slots->list : &first[m], slots, to[all ? body : 0]);
        }
    return s;
}

/* ---- steps one by one ---- */
static optc_status make_whole(optc_binding *b, int entry, CUgraphExec *exec)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUstream was = b->gpu->stream, own = calls_stream(b);
    CUgraph graph = NULL;
    TRY(g, cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED), b->program->name);
    b->gpu->stream = own;
    optc_status s = phases_capture(b, entry);
    b->gpu->stream = was;
    int rc = g->d->cuStreamEndCapture(own, &graph);
    if (s == OPTC_OK && !rc)
        rc = g->d->cuGraphInstantiateWithFlags(exec, graph, 0);
    if (graph)
        g->d->cuGraphDestroy(graph);
    return s == OPTC_OK && rc ? gpu_error(g, "cuGraphInstantiate", rc, b->program->name) : s;
}

CORE optc_status phases_graph(optc_binding *b, int entry)
{
    GpuCalls *x = b->gpu->calls;
    if (!phases_conditional(b, entry) || x->whole[entry])
        return OPTC_OK;
    return make_whole(b, entry, &x->whole[entry]);
}

CORE optc_status phases_run(optc_binding *b, int entry)
{
    TRY(b->rule->engine->gpu, cuGraphLaunch(b->gpu->calls->whole[entry], b->gpu->stream),
        b->program->name);
    b->gpu->launched = true;
    return OPTC_OK;
}

CORE void phases_drop(optc_binding *b)
{
    GpuCalls *x = b->gpu->calls;
    for (int e = 0; x && x->whole && e < b->program->nentry; e++)
        if (x->whole[e]) {
            b->rule->engine->gpu->d->cuGraphExecDestroy(x->whole[e]);
            x->whole[e] = NULL;
        }
}

/* Steps of rules with calls where the device decides what runs: captured steps of rules with
 * periods, and guarded steps.
 *
 * Our kernels return at once if the step belongs to another phase, or if a guard skips it. A
 * library's kernels do not. So each phase is the body of a conditional graph node, and a
 * kernel (optc_phase) evaluates on the device which phase the step belongs to, and whether it has
 * to run. Steps that run one by one after a capture, or under a guard, also launch such a graph of
 * ours, since the host does not know the phase. gpu_condition.c adds the nodes. */
#include "runtime/core/matrix/gpu_eigen.h"

#include <string.h>

/* ---- conditions ---- */
static bool entry_calls(const optc_binding *b, int entry)
{
    for (int m = 0; m < b->gpu->nphase; m++)
        if (b->gpu->launch_list[entry * b->gpu->nphase + m].calls)
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
    return b->gpu->calls && b->gpu->guarded && entry_calls(b, entry);
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
        slow = slow || x->step[i].kind == STEP_TEAMS;
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
    return condition_kernel(b, a, usual, body < 0 ? PHASE_THREADS : 1, handle);
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
    return s == OPTC_OK ? condition_node(b, handle, CU_GRAPH_COND_TYPE_IF, 1, to) : s;
}

static optc_status add_switch(optc_binding *b, int entry, int n, CUgraph **to)
{
    CUgraphConditionalHandle handle = 0;
    optc_status s = add_phase_kernel(b, entry, -1, (unsigned)n, &handle);
    return s == OPTC_OK ? condition_node(b, handle, CONDITION_SWITCH, n, to) : s;
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

/* Steps of rules with calls where the device decides what runs: captured steps of rules with
 * periods, and guarded steps.
 *
 * Our kernels return at once if the step belongs to another phase, or if a guard skips it. A
 * library's kernels do not. So each phase is the body of a conditional graph node, and a kernel
 * (optc_phase) evaluates on the device which phase the step belongs to, and whether it has to run.
 * Steps that run one by one after a capture, or under a guard, also launch such a graph of
 * ours, since the host does not know the phase. gpu_condition.c adds the nodes. */
#include "runtime/core/matrix/gpu_eigen.h"

#include <string.h>

/* ---- conditions ---- */
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

/* Decides whether guarded steps use conditional nodes. They do not where waiting for the guard on
 * the host is faster: slots with too many combinations, roots whose type the host selects, and
 * eigenvectors that bodies compute with one thread block per matrix (divide_launch). Nor where
 * ranks exchange arrays: a conditional node cannot contain the caller's collectives. */
CORE void phases_bind(optc_binding *b)
{
    const GpuCalls *x = b->gpu->calls;
    bool can = x && !b->shards && may_condition(b) == OPTC_OK, slow = false;
    if (can)
        slot_switch_bind(b);
    for (int i = 0; can && i < x->nstep; i++)
        slow = slow || x->step[i].kind == STEP_TEAMS;
    slow = slow && !b->rule->engine->gpu->bodies_cooperate;
    b->conditional = can && !slow && (!b->nslots || b->gpu->switches) && !x->roots_f32;
    message_clear();
}

/* ---- a phase as the body of a node ---- */
/* The condition: whether the step runs this body (an IF node), or (body -1) which one of all (a
 * switch node). */
static optc_status add_phase_kernel(optc_binding *b, const LaunchList *x, int body, unsigned usual,
                                    CUgraphConditionalHandle *handle)
{
    const Program *p = b->program;
    CallArgs a;
    memset(&a, 0, sizeof a);
    a.a = b->gpu->groups;
    a.b = x->memory;
    a.m = p->nperiod;
    a.n = body;
    a.k = p->nhyper + 1;
    a.flags = b->ncohort;
    return condition_kernel(b, a, usual, body < 0 ? PHASE_THREADS : 1, handle);
}

/* A body of a combination of slots fetches its pointers itself: no other step does. */
static optc_status fill_body(optc_binding *b, LaunchList *p, CUgraph body)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUstream was = b->gpu->stream, inner = b->gpu->calls->inner;
    optc_status s = OPTC_OK;
    TRY(g, cuStreamBeginCaptureToGraph(inner, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
        b->program->name);
    b->gpu->stream = inner;
    if (p->key.use == LIST_BODY) {
        calls_slots_select(b, &p->slots);
        s = calls_gather(b, p->slots.addresses, p->slots.pointers, p->slots.npointer);
    }
    for (int i = 0; i < p->n && s == OPTC_OK; i++)
        if (p->item[i].op->kind != SCHEDULE_ADVANCE)
            s = gpu_launch(b, &p->item[i], 0);
    b->gpu->stream = was;
    int rc = g->d->cuStreamEndCapture(inner, &body);
    return s == OPTC_OK && rc ? gpu_error(g, "cuStreamEndCapture", rc, b->program->name) : s;
}

static optc_status add_condition(optc_binding *b, const LaunchList *x, int body, CUgraph **to)
{
    const int n = body < 0 ? x->nbody : 1,
              type = body < 0 ? (int)CONDITION_SWITCH : (int)CU_GRAPH_COND_TYPE_IF;
    CUgraphConditionalHandle handle = 0;
    optc_status s = add_phase_kernel(b, x, body, body < 0 ? (unsigned)n : 0, &handle);
    return s == OPTC_OK ? condition_node(b, handle, type, n, to) : s;
}

/* Captures the launches that advance t, then the bodies. One switch node selects among all of them.
 * Older drivers need an IF node and a kernel for each body, which take 7 us if the body does not
 * run: a replay of Shampoo with 8 matrices of 128 rows and 101 combinations of slots takes 0.78 ms,
 * with a switch node 0.10 (H200). */
CORE optc_status region_capture(optc_binding *b, const LaunchList *x)
{
    const LaunchList *first = task_list(x->key.task);
    const bool all = x->nbody > 1 && b->rule->engine->gpu->d->version >= SWITCH_NEEDED;
    CUgraph *to = NULL;
    optc_status s = OPTC_OK;
    for (int i = 0; i < first->n && s == OPTC_OK; i++)
        if (first->item[i].op->kind == SCHEDULE_ADVANCE)
            s = gpu_launch(b, &first->item[i], 0);
    if (s == OPTC_OK && all)
        s = add_condition(b, x, -1, &to);
    for (int i = 0; i < x->nbody && s == OPTC_OK; i++) {
        if (!all)
            s = add_condition(b, x, i, &to);
        if (s == OPTC_OK)
            s = fill_body(b, x->body[i], to[all ? i : 0]);
    }
    return s;
}

CORE optc_status region_of(optc_binding *b, int entry, bool launches, LaunchList **out)
{
    optc_status s = may_condition(b);
    if (s == OPTC_OK)
        s = region_make(b, entry, out);
    return s == OPTC_OK && launches && !list_whole(*out) ? list_exec(b, *out) : s;
}

/* Launch lists on a GPU: the launches of each phase, made when binding, and the CUDA graphs of a
 * list. gpu_run.c runs them. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Second argument of a kernel that several stages share: the array numbers. Other kernels ignore
 * it. */
static void *item_arrays(const LaunchItem *x) { return x->stage ? (void *)x->stage->at : NULL; }

CORE int item_launch(const Driver *d, const LaunchItem *x, int guard, CUstream stream)
{
    Args a = x->args;
    void *args[] = {&a, item_arrays(x)};
    a.guard = guard;
    return d->cuLaunchKernel(x->fn, x->blocks, 1, 1, x->threads, 1, 1, 0, stream, args, NULL);
}

CORE int kernel_node(const Driver *d, const KernelNode *x, CUgraph graph, const CUgraphNode *after,
                     int n, CUgraphNode *node)
{
    CUDA_KERNEL_NODE_PARAMS k;
    memset(&k, 0, sizeof k);
    k.func = x->fn;
    k.gridDimX = x->blocks;
    k.blockDimX = x->threads;
    k.gridDimY = k.gridDimZ = k.blockDimY = k.blockDimZ = 1;
    k.kernelParams = (void **)(uintptr_t)x->args;
    return d->cuGraphAddKernelNode_v2(node, graph, n ? after : NULL, (size_t)n, &k);
}

CORE KernelNode item_node(const LaunchItem *x)
{
    KernelNode k = {x->fn, x->blocks, x->threads, {(void *)(uintptr_t)&x->args, item_arrays(x)}};
    return k;
}

/* ---- graphs ---- */
/* Item i of a graph, behind those items that it must follow; `behind` has a bit for each item that
 * an item follows, also indirectly. */
typedef struct GraphOrder {
    CUgraphNode node[MOST_SIDE_BY_SIDE];
    uint64_t behind[MOST_SIDE_BY_SIDE];
} GraphOrder;

static int add_behind(const optc_binding *b, const LaunchList *p, CUgraph graph, GraphOrder *o,
                      int i)
{
    CUgraphNode after[MOST_SIDE_BY_SIDE];
    KernelNode k = item_node(&p->item[i]);
    int n = 0;
    o->behind[i] = 0;
    for (int j = i - 1; j >= 0; j--)
        if (p->item[j].blocks && !(o->behind[i] >> j & 1) &&
            ops_ordered(b, p->item[j].op, p->item[i].op)) {
            after[n++] = o->node[j];
            o->behind[i] |= o->behind[j] | (uint64_t)1 << j;
        }
    return kernel_node(b->rule->engine->gpu->d, &k, graph, after, n, &o->node[i]);
}

/* Builds a graph of the list's launches. Stages of several variants run side by side: a model's
 * vectors take up to a tenth of the time of its matrices, because so few blocks do not fill a GPU.
 * A failure is no error: single launches, one after another, do the same. */
static int build_graph(const optc_binding *b, const LaunchList *p, CUgraph graph)
{
    const Driver *d = b->rule->engine->gpu->d;
    GraphOrder order;
    CUgraphNode node = NULL;
    int rc = 0;
    for (int i = 0, n = 0; i < p->n && !rc; i++) {
        CUgraphNode before = node;
        KernelNode k = item_node(&p->item[i]);
        if (!p->item[i].blocks)
            continue;
        if (p->n <= MOST_SIDE_BY_SIDE)
            rc = add_behind(b, p, graph, &order, i);
        else
            rc = kernel_node(d, &k, graph, &before, n, &node);
        n = 1;
    }
    return rc;
}

/* Library calls and bodies can only be captured, not added as nodes. The capture uses a private
 * stream. */
static optc_status capture_graph(optc_binding *b, const LaunchList *p, CUgraph *graph)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUstream was = b->gpu->stream, own = calls_stream(b);
    TRY(g, cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED), b->program->name);
    b->gpu->stream = own;
    optc_status s = p->nbody ? region_capture(b, p) : OPTC_OK;
    for (int i = 0; i < p->n && s == OPTC_OK; i++)
        s = gpu_launch(b, &p->item[i], 0);
    b->gpu->stream = was;
    int rc = g->d->cuStreamEndCapture(own, graph);
    return s == OPTC_OK && rc ? gpu_error(g, "cuStreamEndCapture", rc, b->program->name) : s;
}

/* Makes a graph and counts its nodes. */
static optc_status make_exec(optc_binding *b, LaunchList *p, CUgraphExec *exec, int64_t *count)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUgraph graph = NULL;
    size_t nodes = 0;
    const int64_t bodies = calls_body_nodes(b);
    const bool capture = p->calls || p->nbody;
    int rc = capture ? 0 : g->d->cuGraphCreate(&graph, 0);
    optc_status s = capture ? capture_graph(b, p, &graph) : OPTC_OK;
    if (s == OPTC_OK && !rc && !capture)
        rc = p->key.use == LIST_JOINT ? joint_build(p, graph) : build_graph(b, p, graph);
    if (s == OPTC_OK && !rc)
        rc = g->d->cuGraphInstantiateWithFlags(exec, graph, 0);
    if (s == OPTC_OK && !rc && p->n && g->d->cuGraphGetNodes(graph, NULL, &nodes))
        nodes = 0;
    if (graph)
        g->d->cuGraphDestroy(graph);
    *exec = s == OPTC_OK && !rc ? *exec : NULL;
    *count += *exec ? (int64_t)nodes + calls_body_nodes(b) - bodies : 0;
    return s == OPTC_OK && rc ? gpu_error(g, "cuGraphInstantiate", rc, b->program->name) : s;
}

/* How a graph contains ops, by kind. */
typedef enum { NODE, CAPTURED, APART } InGraph;
static const InGraph in_graph[NSCHEDULEOP] = {
#define SCHEDULE_OP(ID, name, graph, label) graph,
#include "gen/abi/schedule.def"
};

static bool launched_apart(const LaunchItem *x) { return in_graph[x->op->kind] == APART; }

CORE CUgraphExec list_whole(const LaunchList *p)
{
    return p->nsegment == 1 && p->segment->n == p->n ? p->segment->exec : NULL;
}

/* A list is one graph, unless it has items that no graph can contain. A sharded step cannot be one:
 * the caller's collectives are between its stages. The stages between two of them are. A matrix
 * rule has a hundred launches there, which cost the host ten microseconds each. */
CORE void list_graph(optc_binding *b, LaunchList *p)
{
    p->segment = p->segment ? p->segment : TAKE(b, Segment, p->apart ? p->n : 1);
    for (int i = 0, end; p->segment && i < p->n; i = end + 1) {
        LaunchList part = *p;
        part.calls = false;
        for (end = i; end < p->n && !launched_apart(&p->item[end]); end++)
            part.calls = part.calls || in_graph[p->item[end].op->kind] == CAPTURED;
        part.item = p->item + i;
        part.n = end - i;
        if (part.n < 2 && p->apart)
            continue;
        Segment *x = &p->segment[p->nsegment++];
        x->first = i;
        x->n = part.n;
        x->exec = NULL;
        if (make_exec(b, &part, &x->exec, &p->nodes) != OPTC_OK)
            message_clear();
    }
}

CORE optc_status list_exec(optc_binding *b, LaunchList *p)
{
    int64_t nodes = 0;                             /* of bodies: counted ahead */
    p->segment->first = p->segment->n = 0;
    optc_status s = make_exec(b, p, &p->segment->exec, &nodes);
    p->nsegment = s == OPTC_OK;
    return s;
}

CORE void list_drop_graphs(const Driver *d, LaunchList *p)
{
    for (int k = 0; k < p->nsegment; k++)
        if (p->segment[k].exec)
            d->cuGraphExecDestroy(p->segment[k].exec);
    p->nsegment = 0;
    p->nodes = 0;
}

static LaunchItem empty_item(const ScheduleOp *op)
{
    LaunchItem x;
    memset(&x, 0, sizeof x);
    x.op = op;
    x.stage = op->stage;
    return x;
}

CORE LaunchItem gpu_launch_item(const optc_binding *b, const ScheduleOp *op, const Launch *l,
                                CUfunction fn)
{
    const GpuTables *t = b->gpu;
    const ProgStage *s = op->stage;
    const Units *u = stage_tensors(b, s, op->batch);
    bool group = s->kind == S_GROUP;
    LaunchItem x = empty_item(op);
    x.fn = fn;
    x.args.views = group ? t->groups : t->views;
    x.args.mem = group ? t->group_mem : t->mem;
    x.args.units = op->batch < 0 ? t->units[s->variant][s->kind]
                                 : t->batch_units[op->batch * NSTAGEKIND + (int)s->kind];
    x.args.count = group ? b->ncohort : u->prefix[s->kind][u->n];
    x.args.brief = count_brief(s->form, l, s->kind == S_FLAT ? u->shorter : NULL);
    int64_t grid = count_blocks(s->form, l, x.args.count, x.args.brief, u->longest[s->kind],
                                b->rule->engine->gpu->sms);
    /* 0: more than a launch can have; refused when binding */
    x.blocks = grid > MOST_BLOCKS ? 0 : (unsigned)grid;
    x.threads = (unsigned)count_threads(s->form, l, u->longest[s->kind]);
    return x;
}

static LaunchItem advance_t_item(const optc_binding *b, const ScheduleOp *op)
{
    LaunchItem x = empty_item(op);
    x.fn = b->gpu->code->advance_t;
    x.blocks = 1;
    x.threads = 128;
    x.args.views = b->gpu->groups;
    x.args.mem = b->gpu->group_mem;
    x.args.count = b->ncohort;
    return x;
}

static bool has_slots(const Program *p)
{
    for (int i = 0; i < p->narray; i++)
        if (p->array[i].slots.every)
            return true;
    return false;
}

/* A step starts by incrementing t: in its first stage if that is a stage of the group, else in a
 * separate launch. Rules with periods or slots always use a separate launch: a captured step
 * launches the stages of all phases, or selects slots by t before its first stage. */
static bool advances_t_inside(const Program *p, const ProgPhase *ph)
{
    return !p->nperiod && !has_slots(p) && ph->naction > 1 && ph->action[1].kind == ACT_LAUNCH &&
           p->stage[ph->action[1].stage].kind == S_GROUP;
}

static optc_status too_many(const Program *p, const LaunchItem *x)
{
    char what[200];
    stage_label(p, x->stage, what, sizeof what);
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_bind: %s would need more than 2^31 - 1 thread blocks on these tensors (%lld "
                "units); bind fewer "
                "tensors at a time",
                what, x->args.count);
}

/* The item of an op. blocks 0: it launches nothing. inside: its stage increments t */
static LaunchItem make_item(const optc_binding *b, const ScheduleOp *op, bool inside)
{
    const GpuCode *c = b->gpu->code;
    LaunchItem x = empty_item(op);
    if (op->kind == SCHEDULE_ADVANCE)
        return advance_t_item(b, op);
    if (op->kind == SCHEDULE_LAUNCH)
        x = gpu_launch_item(b, op, &c->launch[op->stage->fn], c->fn[op->stage->fn]);
    else if (op->kind == SCHEDULE_CALL)
        x.call = calls_of(b, op->stage, op->batch);
    x.blocks = op->kind == SCHEDULE_LAUNCH ? x.blocks : op->kind != SCHEDULE_CALL || x.call;
    x.args.advance_t = inside;
    return x;
}

static optc_status make_list(optc_binding *b, LaunchList *p, JointTask of)
{
    const ProgPhase *ph = &b->program->entry[of.entry].phase[of.phase];
    const Schedule *schedule = schedule_of(b, of.entry, of.phase);
    const Program *pr = b->program;
    bool inside = pr->needs_t && advances_t_inside(pr, ph), advances = false;
    JointTask *task = TAKE(b, JointTask, 1);
    p->item = TAKE(b, LaunchItem, schedule->n);
    if (!p->item || !task)
        return no_memory("optc_bind");
    *task = of;
    p->key.task = task;
    p->key.n = 1;
    for (int i = 0; i < schedule->n; i++) {
        const ScheduleOp *op = &schedule->op[i];
        LaunchItem x = make_item(b, op, advances && inside && i == 1);
        advances = advances || op->kind == SCHEDULE_ADVANCE;
        if (x.args.count && !x.blocks)
            return too_many(pr, &x);
        if (!x.blocks || (op->kind == SCHEDULE_ADVANCE && (!pr->needs_t || inside)))
            continue;
        p->item[p->n++] = x;
        p->apart = p->apart || launched_apart(&x);
        p->calls = p->calls || in_graph[op->kind] == CAPTURED;
    }
    p->stagger = gpu_stagger_any(p);
    return OPTC_OK;
}

/* Callers' graphs use the bodies of regions: those live until unbind. */
CORE void gpu_drop_lists(optc_binding *b)
{
    GpuTables *t = b->gpu;
    gpu_joint_drop(b);
    const Driver *d = b->rule->engine->gpu->d;
    for (int i = 0; t->launch_list && i < b->program->nentry * t->nphase; i++)
        list_drop_graphs(d, &t->launch_list[i]);
    for (LaunchList *x = t->lists; x; x = x->next)
        list_drop_graphs(d, x);
    lists_drop(b, t->captured ? (unsigned)HOST_LISTS : ~0u);
}

/* Loads the kernels of stages that have tensors, of calls, and of exchanges. */
CORE optc_status gpu_load_kernels(optc_binding *b)
{
    const Program *p = b->program;
    KernelNeeds need;
    int nfn = 0;
    if (!HOST()->load)
        return OPTC_OK;
    for (int i = 0; i < p->nstage; i++)
        nfn = p->stage[i].fn >= nfn ? p->stage[i].fn + 1 : nfn;
    bool *fn = TAKE(b, bool, nfn + 1);
    if (!fn)
        return no_memory("optc_bind");
    for (int i = 0; i < p->nentry * program_phases(p); i++)
        for (int k = 0; k < b->schedule[i].n; k++)
            if (b->schedule[i].op[k].kind == SCHEDULE_LAUNCH)
                fn[b->schedule[i].op[k].stage->fn] = true;
    memset(&need, 0, sizeof need);
    need.fn = fn;
    need.nfn = nfn;
    need.shards = b->shards != NULL;
    calls_need(b, need.call);
    need.meanwhile = calls_warm;
    need.b = b;
    return HOST()->load(b->rule, b->gpu->code, &need, "optc_bind");
}

CORE optc_status gpu_build_lists(optc_binding *b)
{
    const Program *p = b->program;
    GpuTables *t = b->gpu;
    optc_status s = gpu_load_kernels(b);
    int nphase = program_phases(p);
    LaunchList *launch_list = TAKE(b, LaunchList, p->nentry * nphase);
    if (s != OPTC_OK || !launch_list)
        return s != OPTC_OK ? s : no_memory("optc_bind");
    for (int i = 0; i < p->nentry * nphase && s == OPTC_OK; i++) {
        const JointTask of = {b, i / nphase, i % nphase, 0};
        s = make_list(b, &launch_list[i], of);
    }
    if (s != OPTC_OK)
        return s;
    gpu_drop_lists(b);
    t->launch_list = launch_list;
    t->nphase = nphase;
    for (int e = 0; e < p->nentry; e++)
        if (!strcmp(p->entry[e].name, "step"))
            t->step = e;
    return OPTC_OK;
}

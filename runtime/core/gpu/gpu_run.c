/* Steps on a GPU: builds the launch lists when binding, then runs them launch by launch or as a CUDA graph; captures in
 * the caller's graphs. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- launches ---- */
/* Second argument of a kernel that several stages share: the array numbers. Other kernels ignore it. */
static void *item_arrays(const LaunchItem *x) { return x->stage ? (void *)x->stage->at : NULL; }

CORE int item_launch(const Driver *d, const LaunchItem *x, int guard, CUstream stream)
{
    Args a = x->args;
    void *args[] = {&a, item_arrays(x)};
    a.guard = guard;
    return d->cuLaunchKernel(x->fn, x->blocks, 1, 1, x->threads, 1, 1, 0, stream, args, NULL);
}

/* Builds a graph of the list's launches, in sequence. A failure is no error: single launches do the same.
 *
 * Lists that copy arrays have no graph: every run launches them item by item. A caller's graph can contain copies,
 * unless the rule has periods: it then contains the stages of all phases, and stages of the wrong phase return at once,
 * which a copy cannot. Such a capture is refused. */
static bool build_graph(const Driver *d, const LaunchList *p, CUgraph *graph)
{
    CUgraphNode node = NULL;
    bool ok = d->cuGraphCreate(graph, 0) == 0;
    for (int i = 0; i < p->n && ok; i++) {
        void *args[] = {&p->item[i].args, item_arrays(&p->item[i])};
        CUgraphNode before = node;
        CUDA_KERNEL_NODE_PARAMS k;
        memset(&k, 0, sizeof k);
        k.func = p->item[i].fn;
        k.gridDimX = p->item[i].blocks;
        k.blockDimX = p->item[i].threads;
        k.gridDimY = k.gridDimZ = k.blockDimY = k.blockDimZ = 1;
        k.kernelParams = args;
        ok = d->cuGraphAddKernelNode_v2(&node, *graph, i ? &before : NULL, i ? 1 : 0, &k) == 0;
    }
    return ok;
}

/* Library calls can only be captured, not added as nodes. The capture uses a private stream. */
static bool capture_graph(optc_binding *b, const LaunchList *p, CUgraph *graph)
{
    const Driver *d = b->rule->engine->gpu->d;
    CUstream was = b->gpu->stream, own = calls_stream(b);
    optc_status s = OPTC_OK;
    for (int i = 0; i < p->n; i++)
        if (p->item[i].call && !calls_capture(b, p->item[i].call))
            return false;                      /* its replacement in captures is slower */
    if (d->cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED))
        return false;
    b->gpu->stream = own;
    for (int i = 0; i < p->n && s == OPTC_OK; i++)
        s = gpu_launch(b, &p->item[i], 0);
    b->gpu->stream = was;
    bool ended = d->cuStreamEndCapture(own, graph) == 0;
    if (s != OPTC_OK)
        message_clear();
    return s == OPTC_OK && ended;
}

static void make_exec(optc_binding *b, const LaunchList *p, CUgraphExec *exec)
{
    const Driver *d = b->rule->engine->gpu->d;
    CUgraph graph = NULL;
    bool ok = p->calls ? capture_graph(b, p, &graph) : build_graph(d, p, &graph);
    if (ok && d->cuGraphInstantiateWithFlags(exec, graph, 0) != 0)
        *exec = NULL;
    if (graph)
        d->cuGraphDestroy(graph);
}

static bool launched_apart(const LaunchItem *x) { return x->copy || x->exchange || x->sync; }

/* A sharded step cannot be one graph: the caller's collectives are between its stages. The stages between two of them
 * are. A matrix rule has a hundred launches there, which cost the host ten microseconds each. */
static void segment_graphs(optc_binding *b, LaunchList *p)
{
    p->segment = TAKE(b, Segment, p->n);
    for (int i = 0, end; p->segment && i < p->n; i = end + 1) {
        LaunchList part = *p;
        part.calls = false;
        for (end = i; end < p->n && !launched_apart(&p->item[end]); end++)
            part.calls = part.calls || p->item[end].call;
        part.item = p->item + i;
        part.n = end - i;
        if (part.n < 2)
            continue;
        Segment *x = &p->segment[p->nsegment++];
        x->first = i;
        x->n = part.n;
        make_exec(b, &part, &x->exec);
    }
}

CORE void list_graph(optc_binding *b, LaunchList *p)
{
    if (!p->copies)
        make_exec(b, p, &p->exec);
    else if (b->shards)
        segment_graphs(b, p);
}

CORE LaunchItem gpu_launch_item(const optc_binding *b, const ProgStage *s, int batch, const Launch *l, CUfunction fn)
{
    const GpuTables *t = b->gpu;
    const Units *u = stage_tensors(b, s, batch);
    bool group = s->kind == S_GROUP;
    LaunchItem x;
    memset(&x, 0, sizeof x);
    x.fn = fn;
    x.stage = s;
    x.args.views = group ? t->groups : t->views;
    x.args.mem = group ? t->group_mem : t->mem;
    x.args.units = batch < 0 ? t->units[s->variant][s->kind] : t->batch_units[batch * NSTAGEKIND + (int)s->kind];
    x.batch = batch;
    x.args.count = group ? b->ncohort : u->prefix[s->kind][u->n];
    x.args.brief = count_brief(s->form, l, s->kind == S_FLAT ? u->shorter : NULL);
    int64_t grid =
        count_blocks(s->form, l, x.args.count, x.args.brief, u->longest[s->kind], b->rule->engine->gpu->sms);
    /* 0: more than a launch can have; refused when binding */
    x.blocks = grid > MOST_BLOCKS ? 0 : (unsigned)grid;
    x.threads = (unsigned)count_threads(s->form, l, u->longest[s->kind]);
    return x;
}

static LaunchItem advance_t_item(const optc_binding *b)
{
    LaunchItem x;
    memset(&x, 0, sizeof x);
    x.fn = b->gpu->code->advance_t;
    x.blocks = 1;
    x.threads = 128;
    x.args.views = b->gpu->groups;
    x.args.mem = b->gpu->group_mem;
    x.args.count = b->ncohort;
    return x;
}

/* A copy, an exchange, or streams that wait for each other: no kernel of the rule. */
static bool is_transfer(const ProgAction *a) { return a->kind != ACT_ADVANCE_T && a->kind != ACT_LAUNCH; }

static LaunchItem transfer_item(const Task *t)
{
    const ProgAction *a = t->action;
    LaunchItem x;
    memset(&x, 0, sizeof x);
    *(a->kind == ACT_COPY ? &x.copy : a->kind == ACT_EXCHANGE ? &x.exchange : &x.sync) = a;
    x.beside = t->beside;
    x.blocks = 1;
    return x;
}

static LaunchItem call_item(const optc_binding *b, const ProgStage *s, int batch)
{
    LaunchItem x;
    memset(&x, 0, sizeof x);
    x.stage = s;
    x.batch = batch;
    x.call = calls_of(b, s, batch);
    x.blocks = 1;
    return x;
}

/* A step starts by incrementing t: in its first stage if that is a stage of the group, else in a separate launch. Rules
 * with periods always use a separate launch, because a captured step launches the stages of all phases. */
CORE bool advances_t_inside(const Program *p, const ProgPhase *ph)
{
    return !p->nperiod && ph->naction > 1 && ph->action[1].kind == ACT_LAUNCH &&
           p->stage[ph->action[1].stage].kind == S_GROUP;
}

static optc_status too_many(const Program *p, const LaunchItem *x)
{
    char what[200];
    stage_label(p, x->stage, what, sizeof what);
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_bind: %s would need more than 2^31 - 1 thread blocks on these tensors (%lld units); bind fewer "
                "tensors at a time",
                what, x->args.count);
}

static optc_status make_list(optc_binding *b, LaunchList *p, const ProgPhase *ph, const Tasks *tasks)
{
    const Program *pr = b->program;
    const GpuCode *c = b->gpu->code;
    bool inside = pr->needs_t && advances_t_inside(pr, ph), advance_t = false;
    p->item = TAKE(b, LaunchItem, tasks->n);
    if (!p->item)
        return no_memory("optc_bind");
    for (int i = 0; i < tasks->n; i++) {
        const ProgAction *a = tasks->task[i].action;
        const ProgStage *s = a->kind == ACT_LAUNCH ? &pr->stage[a->stage] : NULL;
        if (a->kind == ACT_ADVANCE_T && pr->needs_t && !inside)
            p->item[p->n++] = advance_t_item(b);
        advance_t = advance_t || a->kind == ACT_ADVANCE_T;
        if (is_transfer(a)) {
            p->item[p->n++] = transfer_item(&tasks->task[i]);
            p->copies = true;
        }
        if (!s)
            continue;
        bool call = s->kind == S_CALL;
        LaunchItem x = call ? call_item(b, s, tasks->task[i].batch)
                      : gpu_launch_item(b, s, tasks->task[i].batch, &c->launch[s->fn], c->fn[s->fn]);
        x.args.advance_t = advance_t && inside && a == &ph->action[1];
        p->calls = p->calls || call;
        if (call ? x.call != NULL : x.args.count != 0)
            p->item[p->n++] = x;
        if (x.args.count && !x.blocks)
            return too_many(pr, &x);
    }
    p->stagger = gpu_stagger_any(p);
    return OPTC_OK;
}

CORE void gpu_drop_lists(optc_binding *b)
{
    GpuTables *t = b->gpu;
    const Driver *d = b->rule->engine->gpu->d;
    for (int i = 0; t->launch_list && i < b->program->nentry * t->nphase; i++) {
        LaunchList *p = &t->launch_list[i];
        if (p->exec)
            d->cuGraphExecDestroy(p->exec);
        for (int k = 0; k < p->nsegment; k++)
            if (p->segment[k].exec)
                d->cuGraphExecDestroy(p->segment[k].exec);
        p->exec = NULL;
        p->nsegment = 0;
    }
    phases_drop(b);
}

CORE optc_status gpu_build_lists(optc_binding *b)
{
    const Program *p = b->program;
    GpuTables *t = b->gpu;
    optc_status s = OPTC_OK;
    int nphase = program_phases(p);
    LaunchList *launch_list = TAKE(b, LaunchList, p->nentry * nphase);
    if (!launch_list)
        return no_memory("optc_bind");
    for (int i = 0; i < p->nentry * nphase && s == OPTC_OK; i++)
        s = make_list(b, &launch_list[i], &p->entry[i / nphase].phase[i % nphase], &b->tasks[i]);
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

/* ---- running ---- */
enum { CAPTURE_INVALIDATED = 2 };                          /* of CUstreamCaptureStatus */

/* Copies of neighbouring tensors are merged. In the block, the parts of one array number follow each other, so a range
 * continues while both arrays do, including the gaps between tensors. It ends where only one of them has a part of
 * another tensor in between, or where one is the caller's memory. */
typedef struct CopyRange { char *to, *from; size_t bytes; } CopyRange;

static optc_status launch_range_of(optc_binding *b, const CopyRange *r, const char *name)
{
    if (r->bytes)
        TRY(b->rule->engine->gpu,
            cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)r->to, (CUdeviceptr)(uintptr_t)r->from, r->bytes,
                                 b->gpu->stream),
            name);
    return OPTC_OK;
}

static bool continues(const CopyRange *r, const CopyRange *next, bool gaps)
{
    size_t at = gaps ? (r->bytes + 63) & ~(size_t)63 : r->bytes;
    return r->bytes && next->to == r->to + at && next->from == r->from + at;
}

static bool in_block(const ProgArray *m) { return m->kind == MEM_STATE || m->kind == MEM_TEMP; }

static optc_status launch_copy(optc_binding *b, const ProgAction *a)
{
    const ProgArray *m = &b->program->array[a->to], *x = &b->program->array[a->from];
    size_t size = (size_t)b->program->type[m->type].bytes;
    CopyRange r = {NULL, NULL, 0};
    optc_status s = OPTC_OK;
    for (int i = 0; i < (m->dom == GROUP ? b->ncohort : b->nheld) && s == OPTC_OK; i++) {
        void *const *mem = m->dom == GROUP ? b->group[i].mem : b->tensor[i].mem;
        size_t n = m->dom == GROUP ? 1 : (size_t)dom_len(m->dom, b->tensor[i].shape);
        if ((m->dom == GROUP ? b->group[i].view.n : b->tensor[i].view.n) < 0)
            continue;
        CopyRange next = {(char *)mem[a->to], (char *)mem[a->from], n * size};
        if (!next.to || !next.from || !n)
            continue;
        if (continues(&r, &next, in_block(m) && in_block(x))) {
            r.bytes = (size_t)(next.to - r.to) + next.bytes;
            continue;
        }
        s = launch_range_of(b, &r, m->name);
        r = next;
    }
    return s == OPTC_OK ? launch_range_of(b, &r, m->name) : s;
}

CORE optc_status gpu_launch(optc_binding *b, const LaunchItem *x, int guard)
{
    GpuEngine *g = b->rule->engine->gpu;
    if (x->copy)
        return launch_copy(b, x->copy);
    if (x->exchange)
        return x->beside ? gpu_overlap_exchange(b, x) : gpu_exchange(b, x->exchange->stage);
    if (x->sync)
        return gpu_overlap_sync(b, x);
    if (x->call)
        return calls_launch(b, x->call);
    LaunchItem own = *x;
    if (b->gpu->stagger_on && x->stage && x->stage->stagger)
        own = gpu_stagger_item(b, x);
    if (b->gpu->table && own.args.mem == b->gpu->mem)
        own.args.mem = b->gpu->table;
    int rc = !x->args.count || own.args.count ? item_launch(g->d, &own, guard, b->gpu->stream) : 0;
    if (!rc)
        return OPTC_OK;
    char what[200];
    stage_label(b->program, x->stage, what, sizeof what);
    return gpu_error(g, "cuLaunchKernel", rc, what);
}

static optc_status send_moved(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    size_t row = sizeof(void *) * (size_t)b->program->narray;
    char *host = table_now(b);
    if (!host)
        return no_memory("optc_run");
    /* pageable: copied before it returns */
    int rc = g->d->cuMemcpyHtoDAsync_v2(b->gpu->mem, host, row * (size_t)b->nall, b->gpu->stream);
    free(host);
    if (rc)
        return gpu_error(g, "cuMemcpyHtoDAsync", rc, "moved pointers");
    b->gpu->moved = false;
    return OPTC_OK;
}

/* A captured step has the launches of all phases. Copies and exchanges cannot return at once in the wrong phase. */
static optc_status may_capture(const optc_binding *b, int entry)
{
    const Program *p = b->program;
    bool conditional = phases_conditional(b, entry);
    for (int m = 0; m < b->gpu->nphase && p->nperiod && (b->shards || !conditional); m++)
        if (b->gpu->launch_list[entry * b->gpu->nphase + m].copies)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run: rule '%s' copies arrays%s at some steps, so it cannot be captured in a graph; run "
                        "it outside of the capture", p->name, b->shards ? " or exchanges them with other ranks" : "");
    return OPTC_OK;
}

/* Launches all phases into the caller's graph: at each replay the stages of the current phase work and the others
 * return at once. If a phase has calls, each phase is a conditional node. */
static optc_status capture(optc_binding *b, int entry, bool capturing)
{
    const Program *p = b->program;
    optc_status s = OPTC_OK;
    if (phases_conditional(b, entry))
        return capturing ? phases_capture(b, entry) : phases_run(b, entry);
    for (int m = 0; m < b->gpu->nphase && s == OPTC_OK; m++) {
        const LaunchList *launch_list = &b->gpu->launch_list[entry * b->gpu->nphase + m];
        for (int i = 0; i < launch_list->n && s == OPTC_OK; i++)
            if (launch_list->item[i].stage || launched_apart(&launch_list->item[i]) || m == 0)
                s = gpu_launch(b, &launch_list->item[i], launch_list->item[i].stage && p->nperiod > 0);
    }
    return s;
}

/* For the profiler. */
static void note_launched(optc_binding *b, const LaunchList *p, int first, int n)
{
    if (b->profile)
        b->profile->launched(b, p, first, n);
}

static optc_status run_list(optc_binding *b, const LaunchList *p)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = OPTC_OK;
    note_launched(b, p, 0, 0);
    if (p->exec) {
        TRY(g, cuGraphLaunch(p->exec, b->gpu->stream), b->program->name);
        note_launched(b, p, 0, p->n);
        return OPTC_OK;
    }
    for (int i = 0, k = 0; i < p->n && s == OPTC_OK;) {
        const Segment *x = k < p->nsegment && p->segment[k].first == i ? &p->segment[k++] : NULL;
        if (x && x->exec)
            TRY(g, cuGraphLaunch(x->exec, b->gpu->stream), b->program->name);
        if (x && x->exec)
            note_launched(b, p, i, x->n);
        for (int end = i + (x ? x->n : 1); i < end && s == OPTC_OK; i++) {
            s = x && x->exec ? OPTC_OK : gpu_launch(b, &p->item[i], 0);
            if (!x || !x->exec)
                note_launched(b, p, i, 1);
        }
    }
    return s;
}

static optc_status follow_group(optc_binding *b, void *to, const void *from, size_t n)
{
    TRY(b->rule->engine->gpu,
        cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, n, b->gpu->stream),
        "states of groups");
    return OPTC_OK;
}

/* A captured graph reads the device's views, in which tensors without a gradient are marked; otherwise it would read
 * NULL. So after a capture no entry may run with another participation mask that changes these marks. The graph also
 * has the tables, and copies group states to the cohorts, of the time of its capture. */
static optc_status may_change_participation(const optc_binding *b, const Participation *c)
{
    GpuTables *t = b->gpu;
    int capturing = 0;
    bool differs = false;
    TRY(b->rule->engine->gpu, cuStreamIsCapturing(t->stream, &capturing), "");
    for (int i = 0; t->captured && i < b->ntensor; i++)
        differs = differs || tensor_out(&b->tensor[i], c->mask) != tensor_out(&b->tensor[i], t->captured_out);
    if (capturing && c->any)
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: a gradient was added or removed, or optc_set_t was called, since "
                                         "the last step; run one step before capturing");
    for (int i = 0; t->captured && t->calls && i < b->ntensor && !differs; i++)
        if (tensor_out(&b->tensor[i], c->mask) != (b->tensor[i].view.n < 0))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run: the captured graph has products for the tensors that had a gradient then, and now "
                        "other tensors have one; give gradients to the same tensors, or bind again");
    if (differs)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: the captured graph skips other tensors without a gradient than this entry would; give "
                    "every tensor a gradient first");
    if (t->captured && c->grows)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: the tensors have more different step counts than the captured graph can hold; set one "
                    "count for all (optc_set_t), or bind again");
    if (t->captured && c->takes && b->group_states)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: rule '%s' has group states, and a tensor has a step count that no tensor had at the "
                    "capture; set one count for all (optc_set_t), or bind again",
                    b->program->name);
    return OPTC_OK;
}

CORE optc_status gpu_may_change_participation(const optc_binding *b, const Participation *c)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    gpu_enter(g);
    return gpu_leave(g, may_change_participation(b, c));
}

/* Sends what changed since the last run. A step that is captured gets a capture table for changed pointers, which stay
 * marked as not sent. Captures and later runs share one list of matrix addresses: each captured step builds it again,
 * and so do runs after a capture. */
static optc_status send_changes(optc_binding *b, bool capturing)
{
    GpuTables *t = b->gpu;
    t->table = 0;
    if ((t->calls_behind || t->dirty) && capturing)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: the set of tensors with gradients or a step count changed since the last step; run "
                    "one step before capturing");
    if (capturing) {
        optc_status kept = t->moved || b->grads_set ? table_keep(b) : OPTC_OK;
        return kept == OPTC_OK && t->calls ? calls_update(b) : kept;
    }
    bool dirty = t->dirty, moved = t->moved || t->captured;
    optc_status s = dirty ? gpu_send_views(b) : OPTC_OK;
    if (s == OPTC_OK && t->moved)
        s = send_moved(b);
    t->calls_behind = t->calls_behind || dirty || moved;
    if (s == OPTC_OK && t->calls && t->calls_behind)
        s = calls_update(b);
    t->calls_behind = t->calls_behind && s != OPTC_OK;
    return s;
}

/* A library call may end the capture without an error. Without this check the caller's next call would report it. */
static optc_status still_captures(const optc_binding *b)
{
    int status = 0;
    TRY(b->rule->engine->gpu, cuStreamIsCapturing(b->gpu->stream, &status), "");
    return status == CAPTURE_INVALIDATED
               ? fail(OPTC_ERROR_DEVICE, "optc_run: a library call of rule '%s' ended the capture; "
                                         "OPTC_CUSOLVER=none and OPTC_CUBLAS=none avoid the "
                                         "libraries", b->program->name)
               : OPTC_OK;
}

/* All that may fail before anything changes. The guard's launch comes last: it may decrement t. by_device: the device
 * selects the phase. */
static optc_status prepare(optc_binding *b, int entry, LaunchList *p, bool capturing, bool by_device)
{
    GpuTables *t = b->gpu;
    optc_status s = send_changes(b, capturing);
    if (s == OPTC_OK)
        s = cohorts_copy_states(b, follow_group);
    t->stagger_on = p->stagger && !by_device;
    if (s == OPTC_OK)
        s = by_device ? may_capture(b, entry) : roots_f32_check(b, p);
    if (s == OPTC_OK && t->stagger_on)
        s = gpu_stagger_send(b, p);
    if (s == OPTC_OK && p->calls && !by_device)
        s = calls_probe(b, p);
    return s == OPTC_OK ? guard_launch(b, entry) : s;
}

static optc_status run_by_device(optc_binding *b, int entry, bool capturing)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuTables *t = b->gpu;
    gpu_enter_aside(g);                           /* library calls may need the relaxed capture mode */
    if (!capturing)
        note_launched(b, NULL, 0, 0);
    optc_status s = gpu_overlap_end(b, capture(b, entry, capturing));
    if (!capturing)
        note_launched(b, NULL, 0, -1);
    gpu_leave(g, s);
    if (s == OPTC_OK && capturing)
        s = still_captures(b);
    b->recorded = s == OPTC_OK ? capturing : b->recorded;
    t->captured_out |= s == OPTC_OK && capturing ? b->leaves_out[entry] : 0;
    t->captured = t->captured || (s == OPTC_OK && capturing);
    return s;
}

/* begun: other ranks may have this rank's answer. */
static optc_status run_inside(optc_binding *b, int entry, int phase, bool *begun)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuTables *t = b->gpu;
    LaunchList *p = &t->launch_list[entry * t->nphase + phase];
    int capturing = 0;
    TRY(g, cuStreamIsCapturing(t->stream, &capturing), "");
    /* After a capture (steps may have been replayed) or with a guard (steps may have been skipped) the host does not
     * know the phase or the stagger slot: the device decides, as in a graph. */
    bool by_device = capturing || ((t->captured || t->guarded) && (b->program->nperiod || b->nslots)) ||
                     phases_guarded(b, entry);
    optc_status s = prepare(b, entry, p, capturing != 0, by_device);
    *begun = s == OPTC_OK || capturing;
    if (s == OPTC_OK)
        s = gpu_agree_begin(b, entry, phase, capturing != 0);
    if (s != OPTC_OK)
        return s;
    if (by_device)
        return run_by_device(b, entry, capturing != 0);
    b->recorded = false;
    if (p->runs < 2 && ++p->runs == 2 && p->n > 1 && !g->no_graphs && !p->stagger)
        list_graph(b, p);
    bool tuned = t->begin && p->runs == 2 && p == &t->launch_list[t->step * t->nphase] && !p->stagger &&
                 !t->guarded;                       /* a skipped step would be measured as fast */
    s = gpu_overlap_end(b, run_list(b, tuned ? t->begin(b, p) : p));
    if (tuned && s == OPTC_OK)
        t->end(b);
    return s == OPTC_OK ? roots_f32_save(b, p) : s;
}

CORE optc_status gpu_run(optc_binding *b, int entry, int phase)
{
    GpuEngine *g = b->rule->engine->gpu;
    bool begun = false;
    optc_status s = gpu_alive(g);
    if (s == OPTC_OK)
        s = gpu_agree_check(b);
    if (s != OPTC_OK)
        return s;
    gpu_enter(g);
    s = gpu_leave(g, run_inside(b, entry, phase, &begun));
    return s == OPTC_OK || begun ? s : shards_refuse_run(b, entry, phase, s);
}

/* The pointers on the device must be the caller's current ones: exchanges read gradients. */
CORE optc_status gpu_refuse(optc_binding *b, int entry, int phase, optc_status why)
{
    GpuEngine *g = b->rule->engine->gpu;
    char message[MOST_MESSAGE];
    int capturing = 0;
    memcpy(message, optc_message(), sizeof message);
    optc_status s = gpu_alive(g);
    if (s == OPTC_OK)
        s = gpu_agree_check(b);
    if (s == OPTC_OK) {
        const Driver *d = gpu_enter(g);
        if (!d->cuStreamIsCapturing(b->gpu->stream, &capturing) && !capturing)
            s = send_changes(b, false);
        s = gpu_leave(g, s == OPTC_OK && !capturing ? gpu_agree_refuse(b, entry, phase, why == OPTC_OK) : s);
    }
    return why == OPTC_OK ? s : fail(why, "%s", message);
}

CORE optc_status gpu_sync(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    int rc = gpu_enter_aside(g)->cuStreamSynchronize(b->gpu->stream);
    s = gpu_leave(g, rc ? gpu_error(g, "cuStreamSynchronize", rc, b->program->name) : OPTC_OK);
    return s == OPTC_OK ? gpu_agree_check(b) : s;
}

CORE void gpu_set_stream(optc_binding *b, void *stream) { b->gpu->stream = stream; }

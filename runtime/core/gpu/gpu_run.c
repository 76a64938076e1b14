/* Steps on a GPU: runs the launch lists of gpu_lists.c launch by launch or as CUDA graphs; captures
 * in the caller's graphs. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPTURE_INVALIDATED = 2 };                          /* of CUstreamCaptureStatus */

static optc_status launch_exchange(optc_binding *b, const ScheduleOp *op)
{
    optc_status s = op->beside ? gpu_overlap_exchange(b, op) : gpu_exchange(b, op->what);
    b->gpu->launched = b->gpu->launched || s == OPTC_OK;
    return s;
}

CORE optc_status gpu_launch(optc_binding *b, const LaunchItem *x, int guard)
{
    GpuEngine *g = b->rule->engine->gpu;
    switch (x->op->kind) {
    case SCHEDULE_EXCHANGE: return launch_exchange(b, x->op);
    case SCHEDULE_FORK: return gpu_overlap_fork(b);
    case SCHEDULE_WAIT: return gpu_overlap_wait(b, x->op);
    case SCHEDULE_CALL: return calls_launch(b, x->call, x->scheduled);
    default: break;
    }
    LaunchItem own = *x;
    if (b->gpu->table && own.args.mem == b->gpu->mem)
        own.args.mem = b->gpu->table;
    int rc = x->blocks ? item_launch(g->d, &own, guard, b->gpu->stream) : 0;
    b->gpu->launched = b->gpu->launched || !rc;
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

/* ---- which side decides what a run launches ---- */
/* After a capture steps may have been replayed, and with a guard some may have been skipped: the
 * host knows neither phase nor slots, as in a capture. Rows of schedule.def tell how the device
 * skips an op: kernels of stages look at views and phases, and calls are skipped as part of a
 * conditional node. */
CORE Decider gpu_decider(const optc_binding *b, int entry, bool capturing)
{
    const GpuTables *t = b->gpu;
    const LaunchList *p = &t->launch_list[entry * t->nphase];
    bool calls = false, slots = false;
    if (!capturing && !t->captured && !t->guarded)
        return BY_HOST;
    for (int m = 0; m < t->nphase; m++) {
        calls = calls || p[m].calls;
        slots = slots || (p[m].calls && p[m].stagger);
    }
    const bool guarded = calls && t->guarded;
    if (!capturing && !guarded && !b->program->nperiod && !b->nslots)
        return BY_HOST;
    return guarded || (calls && b->program->nperiod) || (slots && t->switches) ? BY_NODES
                                                                               : BY_VIEWS;
}

/* Nothing but the host skips exchanges. */
static optc_status may_decide(const optc_binding *b, int entry)
{
    const Program *p = b->program;
    for (int m = 0; m < b->gpu->nphase && p->nperiod; m++)
        if (b->gpu->launch_list[entry * b->gpu->nphase + m].apart)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run: rule '%s' exchanges arrays with other ranks at some steps, so "
                        "it cannot be captured in a graph; run it outside of the capture",
                        p->name);
    return OPTC_OK;
}

/* ---- launching lists ---- */
/* All phases: the stages of the current one work and the others return at once. */
static optc_status launch_phases(optc_binding *b, int entry)
{
    optc_status s = OPTC_OK;
    for (int m = 0; m < b->gpu->nphase && s == OPTC_OK; m++) {
        const LaunchList *p = &b->gpu->launch_list[entry * b->gpu->nphase + m];
        for (int i = 0; i < p->n && s == OPTC_OK; i++)
            if (p->item[i].stage || m == 0)
                s = gpu_launch(b, &p->item[i], p->item[i].stage && b->program->nperiod > 0);
    }
    return s;
}

CORE optc_status launch_graph(optc_binding *b, const LaunchList *p)
{
    TRY(b->rule->engine->gpu, cuGraphLaunch(list_whole(p), b->gpu->stream), b->program->name);
    b->gpu->launched = true;
    return OPTC_OK;
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
    for (int i = 0, k = 0; i < p->n && s == OPTC_OK;) {
        const Segment *x = k < p->nsegment && p->segment[k].first == i ? &p->segment[k++] : NULL;
        if (x && x->exec) {
            TRY(g, cuGraphLaunch(x->exec, b->gpu->stream), b->program->name);
            b->gpu->launched = true;
            note_launched(b, p, i, x->n);
            i += x->n;
            continue;
        }
        for (int end = i + (x ? x->n : 1); i < end && s == OPTC_OK; i++) {
            s = gpu_launch(b, &p->item[i], 0);
            note_launched(b, p, i, 1);
        }
    }
    return s;
}

static optc_status follow_group(optc_binding *b, void *to, const void *from, size_t n)
{
    TRY(b->rule->engine->gpu,
        cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, n,
                             b->gpu->stream),
        "states of groups");
    return OPTC_OK;
}

/* A captured graph reads the device's views, in which tensors without a gradient are marked;
 * otherwise it would read NULL. So after a capture no entry may run with another participation mask
 * that changes these marks. The graph also has the tables, and copies group states to the cohorts,
 * of the time of its capture. */
static optc_status may_change_participation(const optc_binding *b, const Participation *c)
{
    GpuTables *t = b->gpu;
    int capturing = 0;
    bool differs = false;
    TRY(b->rule->engine->gpu, cuStreamIsCapturing(t->stream, &capturing), "");
    for (int i = 0; t->captured && i < b->ntensor; i++)
        differs = differs ||
                  tensor_out(&b->tensor[i], c->mask) != tensor_out(&b->tensor[i], t->captured_out);
    if (capturing && c->any)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: a gradient was added or removed, or optc_set_t was called, since "
                    "the last step; run one step before capturing");
    for (int i = 0; t->captured && t->calls && i < b->ntensor && !differs; i++)
        if (tensor_out(&b->tensor[i], c->mask) != (b->tensor[i].view.n < 0))
            return fail(
                OPTC_ERROR_ARGUMENT,
                "optc_run: the captured graph has products for the tensors that had a gradient "
                "then, and now "
                "other tensors have one; give gradients to the same tensors, or bind again");
    if (differs)
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: the captured graph skips other tensors without "
                                         "a gradient than this entry would; give "
                                         "every tensor a gradient first");
    if (t->captured && c->grows)
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: the tensors have more different step counts "
                                         "than the captured graph can hold; set one "
                                         "count for all (optc_set_t), or bind again");
    if (t->captured && c->takes && b->group_states)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: rule '%s' has group states, and a tensor has a step count that no "
                    "tensor had at the "
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

/* Sends what changed since the last run. A step that is captured gets a capture table for changed
 * pointers, which stay marked as not sent. Captures and later runs share one list of matrix
 * addresses: each captured step builds it again, and so do runs after a capture. */
CORE optc_status gpu_send_changes(optc_binding *b, bool capturing)
{
    GpuTables *t = b->gpu;
    t->table = 0;
    if ((t->calls_behind || t->dirty) && capturing)
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: the set of tensors with gradients or a step "
                                         "count changed since the last step; run "
                                         "one step before capturing");
    if (capturing) {
        optc_status kept = t->moved || b->grads_set ? table_keep(b) : OPTC_OK;
        return kept == OPTC_OK && t->calls ? calls_update(b) : kept;
    }
    bool dirty = t->dirty, moved = t->moved || t->captured;
    optc_status s = dirty ? gpu_send_views(b) : OPTC_OK;
    if (dirty)
        lists_drop(b, HOST_LISTS);                 /* they contain the tensors that took part */
    if (s == OPTC_OK && t->moved)
        s = send_moved(b);
    t->calls_behind = t->calls_behind || dirty || moved;
    if (s == OPTC_OK && t->calls && t->calls_behind)
        s = calls_update(b);
    t->calls_behind = t->calls_behind && s != OPTC_OK;
    return s;
}

/* A library call may end the capture without an error. Without this check the caller's next call
 * would report it. */
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

/* All that may fail before anything changes; run: the list of the run. The guard's launch comes
 * last: it may decrement t. */
static optc_status prepare(optc_binding *b, int entry, Decider by, bool capturing, LaunchList **run)
{
    LaunchList *p = *run;
    optc_status s = refuse_half_done(b, "optc_run");
    if (s == OPTC_OK)
        s = gpu_send_changes(b, capturing);
    if (s == OPTC_OK)
        s = cohorts_copy_states(b, follow_group);
    if (by != BY_HOST && !capturing)
        /* no later step uses them; a capture must not free memory */
        lists_drop(b, HOST_LISTS);
    if (s == OPTC_OK)
        s = by != BY_HOST ? may_decide(b, entry) : roots_f32_check(b, p);
    if (s == OPTC_OK && by == BY_NODES)
        s = region_of(b, entry, !capturing, run);
    if (s == OPTC_OK && by == BY_HOST && p->stagger)
        s = gpu_slots_choose(b, p, run);
    if (s == OPTC_OK && by == BY_HOST && p->calls)
        s = calls_probe(b, *run);
    return s == OPTC_OK ? guard_launch(b, entry) : s;
}

static optc_status run_by_device(optc_binding *b, int entry, Decider by, bool capturing,
                                 const LaunchList *region)
{
    GpuTables *t = b->gpu;
    if (!capturing)
        note_launched(b, NULL, 0, 0);
    optc_status s = by == BY_VIEWS ? launch_phases(b, entry)
                    : capturing    ? region_capture(b, region)
                                   : launch_graph(b, region);
    s = gpu_overlap_end(b, s);
    if (!capturing)
        note_launched(b, NULL, 0, -1);
    if (s == OPTC_OK && capturing)
        s = still_captures(b);
    b->recorded = s == OPTC_OK ? capturing : b->recorded;
    t->captured_out |= s == OPTC_OK && capturing ? b->leaves_out[entry] : 0;
    t->captured = t->captured || (s == OPTC_OK && capturing);
    return s;
}

/* p: of all units; run: of this step */
static optc_status run_by_host(optc_binding *b, LaunchList *p, const LaunchList *run)
{
    GpuTables *t = b->gpu;
    b->recorded = false;
    if (p->runs < 2 && ++p->runs == 2 && p->n > 1 && !b->rule->engine->gpu->no_graphs &&
        !p->stagger)
        list_graph(b, p);
    t->launched = false;                           /* graphs were made, not launched */
    bool tuned = t->begin && p->runs == 2 && p == &t->launch_list[t->step * t->nphase] &&
                 !p->stagger && !t->guarded; /* a skipped step would be measured as fast */
    optc_status s = gpu_overlap_end(b, run_list(b, tuned ? t->begin(b, p) : run));
    if (tuned && s == OPTC_OK)
        t->end(b);
    return s == OPTC_OK ? roots_f32_save(b, p) : s;
}

/* begun: other ranks may have this rank's answer. The caller must discard a graph whose capture
 * failed: nothing of it is undone. */
static optc_status run_inside(optc_binding *b, int entry, int phase, bool *begun)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuTables *t = b->gpu;
    LaunchList *p = &t->launch_list[entry * t->nphase + phase], *run = p;
    int capturing = 0;
    TRY(g, cuStreamIsCapturing(t->stream, &capturing), "");
    const Decider by = gpu_decider(b, entry, capturing != 0);
    optc_status s = prepare(b, entry, by, capturing != 0, &run);
    *begun = s == OPTC_OK || capturing;
    if (s != OPTC_OK)
        return s;
    t->launched = false;
    s = gpu_agree_begin(b, entry, phase, capturing != 0);
    if (s == OPTC_OK)
        s = by == BY_HOST ? run_by_host(b, p, run)
                          : run_by_device(b, entry, by, capturing != 0, run);
    if (s != OPTC_OK && !capturing && t->launched)
        t->half_done = true;
    else if (s != OPTC_OK && !capturing)
        guard_undo(b, entry);
    return s;
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

CORE bool gpu_capturing(const optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    int capturing = 0;
    if (gpu_alive(g) != OPTC_OK)
        return false;                                      /* the run says so */
    const Driver *d = gpu_enter(g);
    bool known = d->cuStreamIsCapturing(b->gpu->stream, &capturing) == 0;
    return gpu_leave(g, OPTC_OK) == OPTC_OK && known && capturing;
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
            s = gpu_send_changes(b, false);
        s = gpu_leave(
            g, s == OPTC_OK && !capturing ? gpu_agree_refuse(b, entry, phase, why == OPTC_OK) : s);
    }
    return why == OPTC_OK ? s : fail(why, "%s", message);
}

CORE optc_status gpu_sync(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    int rc = gpu_enter(g)->cuStreamSynchronize(b->gpu->stream);
    s = gpu_leave(g, rc ? gpu_error(g, "cuStreamSynchronize", rc, b->program->name) : OPTC_OK);
    return s == OPTC_OK ? gpu_agree_check(b) : s;
}

CORE void gpu_set_stream(optc_binding *b, void *stream) { b->gpu->stream = stream; }

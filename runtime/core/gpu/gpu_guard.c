/* A small launch before a run that reads device scalars (device_scalars.c) and the guard. If the
 * guard is not 0, it marks all views as not taking part, which every stage skips, and decrements t,
 * which the run then increments. The host does not wait: once a guard is set, as after a capture,
 * only the device knows t. */
#include "runtime/core/gpu/gpu_device.h"

#include <string.h>

static optc_status check_reached(const optc_binding *b, const void *from, const char *call)
{
    GpuEngine *g = b->rule->engine->gpu;
    int type = 0;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    int rc = gpu_enter(g)->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                 (CUdeviceptr)(uintptr_t)from);
    gpu_leave(g, OPTC_OK);
    if (rc == CUDA_ERROR_INVALID_VALUE)            /* not CUDA memory */
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the pointer to the number is not readable by %s; put it in device "
                    "memory",
                    call, b->rule->engine->name);
    return rc ? gpu_error(g, "cuPointerGetAttribute", rc, call) : OPTC_OK;
}

CORE optc_status gpu_read_ahead(optc_binding *b, const void *from, bool guard, const char *call)
{
    optc_status s = check_reached(b, from, call);
    if (s == OPTC_OK && !b->gpu->code->read_ahead)
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "%s: the package of rule '%s' was made by an older version that cannot "
                    "read numbers on the device; make the package again",
                    call, b->program->name);
    if (s == OPTC_OK && guard && !host_guards(b))
        b->gpu->guarded = true;
    return s;
}

/* A skipped run still increments t, so the guard must decrement it. Not if the first stage does it,
 * in a conditional node that is skipped (gpu_conditional.c). */
CORE bool entry_counts(const optc_binding *b, int entry)
{
    const Program *p = b->program;
    const ProgPhase *ph = &p->entry[entry].phase[0];
    const LaunchList *x = &b->gpu->launch_list[entry * b->gpu->nphase];
    return p->needs_t && ph->naction && ph->action[0].kind == ACT_ADVANCE_T &&
           !(x->n && x->item->args.advance_t && gpu_decider(b, entry, false) == BY_NODES);
}

static void put_source(const optc_binding *b, const DeviceScalar *from, GuardScalar *to)
{
    to->from = (CUdeviceptr)(uintptr_t)from->from;
    to->to = from->at ? 0 : (CUdeviceptr)(uintptr_t)b->group[from->group].mem[from->input];
    to->wide = from->type == T_F64;
    to->at = from->at;
    to->group = from->group;
}

CORE bool guard_item(const optc_binding *b, int entry, int i, GuardLaunch *x)
{
    const GpuTables *t = b->gpu;
    GuardArgs *a = &x->args;
    int at = i * OPTC_SOURCES;
    if (at >= b->nsource && (at || !t->guarded))
        return false;
    memset(x, 0, sizeof *x);
    a->views = t->views, a->groups = t->groups;
    a->nview = b->nall, a->ncohort = b->ncohort;
    a->lets = !at && t->guarded;
    if (a->lets) {
        a->guard = (CUdeviceptr)(uintptr_t)b->guard.from;
        a->wide = b->guard.type == T_F64;
        a->counts = entry_counts(b, entry);
        a->told = gpu_agree_guard(b);
    }
    for (int k = at; k < b->nsource && a->nsource < OPTC_SOURCES; k++)
        put_source(b, &b->source[k], &a->source[a->nsource++]);
    long long most = a->lets && a->nview > a->ncohort ? a->nview : a->ncohort;
    x->blocks = most > 4096 ? 32 : (unsigned)(most / GUARD_THREADS + 1);
    return true;
}

static int launch_item(const optc_binding *b, GuardLaunch *x)
{
    void *args[] = {&x->args};
    return b->rule->engine->gpu->d->cuLaunchKernel(b->gpu->code->read_ahead, x->blocks, 1, 1,
                                                   GUARD_THREADS, 1, 1, 0, b->gpu->stream, args,
                                                   NULL);
}

CORE optc_status guard_launch(optc_binding *b, int entry)
{
    GuardLaunch x;
    for (int i = 0, rc; guard_item(b, entry, i, &x); i++)
        if ((rc = launch_item(b, &x))) {
            if (i)
                guard_undo(b, entry);
            return gpu_error(b->rule->engine->gpu, "cuLaunchKernel", rc, b->program->name);
        }
    return OPTC_OK;
}

/* If this launch fails too, t is one too small after a run that would have been skipped. Only the
 * device knows whether it would, so runs are refused until t is set. What optc_agree took from t is
 * not undone: later runs are refused then.
 */
CORE void guard_undo(optc_binding *b, int entry)
{
    GuardLaunch x;
    if (!guard_item(b, entry, 0, &x) || !x.args.counts)
        return;
    x.args.counts = -1;
    x.args.nsource = 0;
    b->gpu->half_done = launch_item(b, &x) != 0;
}

CORE optc_status refuse_half_done(const optc_binding *b, const char *call)
{
    return b->gpu->half_done
               ? fail(
                     OPTC_ERROR_DEVICE,
                     "%s: a launch failed in the middle of a step of rule '%s', so its parameters, "
                     "states and step count may be partly stepped; load a checkpoint of them, or "
                     "restore them and call optc_set_t for all tensors (tensor -1)",
                     call, b->program->name)
               : OPTC_OK;
}

/* The gate: a small launch ahead of a run that reads numbers which lie on the device (device_scalars.c), and the guard. Where
 * the guard is not 0 it marks everybody as taking no part, which every stage understands, and takes t back by the step
 * that the run then counts. Nobody waits: from then on, as after a capture, only the device knows t. */
#include "runtime/core/gpu/gpu_device.h"

#include <string.h>

typedef struct GateSource { CUdeviceptr from, to; int wide, at, group; } GateSource;   /* optc_source of the kernel */
typedef struct GateArgs {                          /* optc_gate_args */
    CUdeviceptr views, groups, guard;
    long long nview, nrow;
    int wide, counts, lets, nsource;
    GateSource source[OPTC_SOURCES];
} GateArgs;

static optc_status check_reached(const optc_binding *b, const void *from, const char *call)
{
    GpuEngine *g = b->rule->engine->gpu;
    int type = 0;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    int rc = gpu_enter(g)->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)from);
    gpu_leave(g, OPTC_OK);
    if (rc == CUDA_ERROR_INVALID_VALUE)            /* it knows no such memory */
        return fail(OPTC_ERROR_ARGUMENT, "%s: the number does not lie where %s can read it", call,
                    b->rule->engine->name);
    return rc ? gpu_error(g, "cuPointerGetAttribute", rc, call) : OPTC_OK;
}

CORE optc_status gpu_gate(optc_binding *b, const void *from, bool guard, const char *call)
{
    optc_status s = check_reached(b, from, call);
    if (s == OPTC_OK && !b->gpu->code->gate)
        return fail(OPTC_ERROR_UNAVAILABLE, "%s: the code of rule '%s' was made before numbers could be read on the device",
                    call, b->rule->program->name);
    if (s == OPTC_OK && guard && !host_guards(b))
        b->gpu->gated = true;
    return s;
}

/* Whether a run that is left out moves t on all the same: not where that is a part of what is left out (gpu_conditional.c). */
static bool entry_counts(const optc_binding *b, int entry)
{
    const Program *p = b->rule->program;
    const ProgPhase *ph = &p->entry[entry].phase[0];
    return p->needs_t && ph->naction && ph->action[0].kind == ACT_TICK &&
           !(phases_guarded(b, entry) && ticks_inside(p, ph));
}

static void put_source(const optc_binding *b, const NumberAt *from, GateSource *to)
{
    to->from = (CUdeviceptr)(uintptr_t)from->from;
    to->to = from->at ? 0 : (CUdeviceptr)(uintptr_t)b->group[from->group].mem[from->input];
    to->wide = from->type == T_F64;
    to->at = from->at;
    to->group = from->group;
}

/* The first of them guards; more there are only where there are many sources. */
CORE optc_status gate_fire(optc_binding *b, int entry)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuTables *t = b->gpu;
    for (int at = 0; at < b->nsource || (!at && t->gated); at += OPTC_SOURCES) {
        GateArgs a;
        memset(&a, 0, sizeof a);
        a.views = t->views, a.groups = t->groups;
        a.nview = b->nall, a.nrow = b->nrow;
        a.lets = !at && t->gated;
        if (a.lets) {
            a.guard = (CUdeviceptr)(uintptr_t)b->guard.from;
            a.wide = b->guard.type == T_F64;
            a.counts = entry_counts(b, entry);
        }
        for (int i = at; i < b->nsource && a.nsource < OPTC_SOURCES; i++)
            put_source(b, &b->source[i], &a.source[a.nsource++]);
        long long most = a.lets && a.nview > a.nrow ? a.nview : a.nrow;
        void *args[] = {&a};
        TRY(g,
            cuLaunchKernel(t->code->gate, most > 4096 ? 32 : (unsigned)(most / 128 + 1), 1, 1, 128, 1, 1, 0, t->stream,
                           args, NULL),
            b->rule->program->name);
    }
    return OPTC_OK;
}

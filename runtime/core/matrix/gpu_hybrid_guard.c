/* Guards of rules with calls that no graph can contain, at some of their steps: cuSOLVER's eigenvectors above 512 rows.
 *
 * A step without such calls is left to the device, as in gpu_conditional.c: the host does not wait. A step with such
 * calls has no body in that graph. The host runs it, and reads the guard and t before it. The library would wait for
 * the device there anyway.
 *
 * After steps that the device may have skipped, optc_binding.steps is the largest possible count of steps. Before a run
 * the host tests one step, the one after that count: if it has no body, the host reads t. Earlier runs have tested all
 * smaller counts. So each step that was skipped costs one more wait at most. */
#include "runtime/core/matrix/gpu_calls.h"

#include <string.h>

/* ---- entries ---- */
/* True for the entry `step` alone. */
static bool entry_advances(const optc_binding *b, int entry)
{
    const ProgPhase *ph = &b->program->entry[entry].phase[0];
    return ph->naction && ph->action[0].kind == ACT_ADVANCE_T;
}

/* Called after slot_switch_bind. Without a switch node each body would take the device 7 us, at each step. */
CORE void hybrid_bind(optc_binding *b, bool conditions)
{
    const Driver *d = b->rule->engine->gpu->d;
    b->gpu->calls->guard.possible = conditions && (b->program->nperiod || b->nslots) && b->program->needs_t &&
                                    (!b->nslots || d->version >= SWITCH_NEEDED);
}

/* ---- bodies ---- */
static const LaunchList *list_at(const optc_binding *b, int entry, int64_t t)
{
    return &b->gpu->launch_list[entry * b->gpu->nphase + program_phase(b->program, t)];
}

/* Step t has a body in the graph that the device selects from. */
static bool has_body(const optc_binding *b, int entry, int64_t t)
{
    const LaunchList *p = list_at(b, entry, t);
    const StaggerNow now = stagger_now(b, t);
    int n = bodies_count(b, p);
    bool any = false;
    for (int i = 0; i < n && !any; i++) {
        const SlotList *x = body_slots(b, p, i);
        any = !x || !memcmp(&x->now, &now, sizeof now);
    }
    return any;
}

/* Makes the graph, unless it exists. A lack of memory is no error: the host runs all steps then. Most slot lists of
 * earlier steps are not used any more. Steps without a body build theirs again. */
static bool make_bodies(optc_binding *b, int entry)
{
    GpuEngine *g = b->rule->engine->gpu;
    HybridGuard *x = &b->gpu->calls->guard;
    if (x->refused || b->gpu->calls->whole[entry])
        return !x->refused;
    gpu_enter_aside(g);
    gpu_slots_drop(b);
    optc_status s = slot_switch_make(b, entry);
    if (s == OPTC_OK && !slot_switch_lacks(b, entry))
        s = phases_graph(b, entry);
    if (s != OPTC_OK || !b->gpu->calls->whole[entry]) {
        phases_drop(b);
        slot_switch_drop(b, false);
        x->refused = true;
        message_clear();
    }
    gpu_leave(g, OPTC_OK);
    return !x->refused;
}

/* ---- one step ---- */
/* The tables on the device are those of the last run: its graph is still valid. */
static bool is_steady(const optc_binding *b, int entry)
{
    return cohorts_settled(b, entry) && !b->gpu->dirty && !b->gpu->calls_behind;
}

/* The device can run the entry, whether or not it skipped earlier steps. An entry that does not count steps needs no
 * graph, but must have no calls or copies. */
static bool runs_by_device(optc_binding *b, int entry)
{
    if (!is_steady(b, entry))
        return false;
    if (!entry_advances(b, entry))
        return !phases_guarded(b, entry);
    return make_bodies(b, entry) && has_body(b, entry, b->steps + 1);
}

/* From here on the device reads the guard. */
static void hybrid_begin(optc_binding *b, int entry)
{
    GpuTables *t = b->gpu;
    const StaggerNow now = stagger_now(b, b->steps + 1);
    if (t->calls->guard.refused || !entry_advances(b, entry) || !is_steady(b, entry) ||
        !list_captures(b, list_at(b, entry, b->steps + 1), &now))
        return;
    b->hybrid = t->guarded = t->calls->guard.exact = true;
    if (!make_bodies(b, entry))
        b->hybrid = t->guarded = false;
}

/* The views that a skipped run has marked are sent again. */
static optc_status hybrid_end(optc_binding *b)
{
    GpuTables *t = b->gpu;
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = cohorts_catch_up(b);
    if (s == OPTC_ERROR_ARGUMENT)
        return fail(s, "optc_run: the guard was removed since the last step; run one step before capturing");
    if (s != OPTC_OK)
        return s;
    gpu_enter(g);
    phases_drop(b);
    slot_switch_drop(b, false);
    gpu_leave(g, OPTC_OK);
    b->hybrid = t->guarded = false;
    t->dirty = true;
    return OPTC_OK;
}

static bool is_captured(const optc_binding *b)
{
    int capturing = 0;
    const Driver *d = gpu_enter(b->rule->engine->gpu);
    int rc = d->cuStreamIsCapturing(b->gpu->stream, &capturing);
    gpu_leave(b->rule->engine->gpu, OPTC_OK);
    return rc || capturing;
}

CORE optc_status gpu_reads_guard(optc_binding *b, int entry, bool *device)
{
    GpuCalls *c = b->gpu->calls;
    optc_status s = OPTC_OK;
    if (b->hybrid && !b->guard.from)
        return hybrid_end(b);
    if (!c || !c->guard.possible || b->gpu->captured || is_captured(b))
        return OPTC_OK;
    if (!b->hybrid)
        hybrid_begin(b, entry);
    *device = b->hybrid && runs_by_device(b, entry);
    if (b->hybrid && !*device && !c->guard.exact) {
        s = cohorts_catch_up(b);
        c->guard.exact = s == OPTC_OK;
        *device = s == OPTC_OK && runs_by_device(b, entry);
    }
    c->guard.by_device = *device;
    c->guard.exact = c->guard.exact && !(*device && entry_advances(b, entry));
    return s;
}

CORE bool guarded_by_host(const optc_binding *b) { return b->hybrid && !b->gpu->calls->guard.by_device; }

/* Roots in f32, for GPUs that compute f64 at a small share of their f32 rate, if the rule's bounds
 * for its eigenvalues make f32 exact enough.
 *
 * A matrix whose root was refused in f32 uses f64 from its next root on. The device records
 * refusals in the factor statistics. After a run with roots they are copied to the host
 * asynchronously. Before the next root of a matrix the host reads what the copy after its last root
 * contains, no earlier and no later one, so that runs are reproducible. That copy is usually long
 * finished; only a rule with roots at every step has to wait, for the step before.
 *
 * A captured graph keeps f32 or f64 for each matrix as at the time of its capture. A binding starts
 * with f32 for all
 * matrices: after loading saved states, refusals may have to be found again. */
#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

/* ---- which roots ---- */
/* When a root in f32 is exact enough, with an error of at most 1e-6 of its norm: the smallest
 * eigenvalue is at least `least_share` of the norm, and the matrix has at most the rows that
 * f32_rows has for p. Measured in NumPy with products in f32, the worst of shares from 1/2 to 1/60
 * and of bases near and far from unit vectors: 64 rows 8e-7 for p = 1, 4e-7 for more; 128 rows 1e-6
 * and 7e-7; 256 rows 1.5e-6 and 1.8e-6; 1024 rows 2e-6. At a share of 1e-4 none is below 1e-5. */
static const double least_share = 1.0 / 64;
static const struct { int p; int64_t rows; } f32_rows[] = {{2, 128}, {1, 64}};

CORE bool f32_suffices(int p, double share, int64_t rows)
{
    for (size_t i = 0; i < sizeof f32_rows / sizeof *f32_rows; i++)
        if (p >= f32_rows[i].p)
            return share >= least_share && rows <= f32_rows[i].rows;
    return false;
}

CORE bool root_in_f32(const optc_binding *b, const ProgStage *stage, int64_t rows)
{
    if (!stage_takes(stage, FOR_ROOT))
        return false;
    const MethodAt f = method_facts(b, stage, rows);
    return method_choose(&f)->way == EIGEN_F32;
}

/* ---- statistics on the host ---- */
/* seen: the factor statistics as the last finished copy left them. Events, recorded behind the
 * copies: event 0 after the last run with roots that are not staggered; for each array i of slots,
 * from first[i] on, one for a run of all slots, one for slot 0 and so on. */
typedef struct RootsF32 {
    FactorStats *seen;
    CUevent *event;
    int nevent, first[MOST_SLOTS];
} RootsF32;

static bool any_in_f32(const optc_binding *b)
{
    const Program *p = b->program;
    for (int i = 0; i < p->nstage; i++)
        if (root_in_f32(b, &p->stage[i], 0))
            return true;
    return false;
}

CORE optc_status roots_f32_bind(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    const Program *p = b->program;
    if (!any_in_f32(b) || !factor_stats_count(b))
        return OPTC_OK;
    RootsF32 *x = b->gpu->calls->roots_f32 = TAKE(b, RootsF32, 1);
    if (!x)
        return no_memory("optc_bind");
    x->nevent = 1;
    for (int i = 0; i < b->nslots; i++) {
        x->first[i] = x->nevent;
        x->nevent += 1 + p->array[b->slots[i].array].slots.every;
    }
    if (!(x->event = TAKE(b, CUevent, x->nevent)))
        return no_memory("optc_bind");
    void *host = NULL;
    TRY(g, cuMemHostAlloc(&host, sizeof(FactorStats) * (size_t)factor_stats_count(b), 0),
        "factor statistics");
    x->seen = (FactorStats *)memset(host, 0, sizeof(FactorStats) * (size_t)factor_stats_count(b));
    for (int i = 0; i < x->nevent; i++)
        TRY(g, cuEventCreate(&x->event[i], 2), "factor statistics");     /* no timing */
    return OPTC_OK;
}

CORE void roots_f32_unbind(optc_binding *b)
{
    const Driver *d = b->rule->engine->gpu->d;
    RootsF32 *x = b->gpu->calls->roots_f32;
    if (!x)
        return;
    for (int i = 0; x->event && i < x->nevent; i++)
        if (x->event[i]) {
            d->cuEventSynchronize(x->event[i]);            /* a copy may still be running */
            d->cuEventDestroy_v2(x->event[i]);
        }
    if (x->seen)
        d->cuMemFreeHost(x->seen);
}

/* ---- slots ---- */
static int slots_every(const optc_binding *b, int i)
{
    return b->program->array[b->slots[i].array].slots.every;
}

static bool item_in_f32(const optc_binding *b, const LaunchItem *x)
{
    return x->call && root_in_f32(b, x->stage, 0);
}

static optc_status wait_for(const optc_binding *b, int from, int n)
{
    GpuEngine *g = b->rule->engine->gpu;
    const RootsF32 *x = b->gpu->calls->roots_f32;
    for (int i = from; i < from + n; i++)
        /* an event that was never recorded counts as done */
        TRY(g, cuEventSynchronize(x->event[i]), "factor statistics");
    return OPTC_OK;
}

/* Waits for the copies after the last roots of all matrices that are scheduled for this step. */
static optc_status wait_slot(const optc_binding *b, const ProgStage *s)
{
    const RootsF32 *x = b->gpu->calls->roots_f32;
    optc_status r = s->stagger ? OPTC_OK : wait_for(b, 0, 1);
    for (int i = 0; i < b->nslots && r == OPTC_OK; i++) {
        int64_t now = b->stagger.now[i];
        /* with several arrays, the last root may be due to another one */
        bool all = now < 0 || s->stagger != 1u << i;
        if (!(s->stagger >> i & 1))
            continue;
        r = wait_for(b, x->first[i], all ? 1 + slots_every(b, i) : 1);
        if (r == OPTC_OK && !all)
            r = wait_for(b, x->first[i] + 1 + (int)now, 1);
    }
    return r;
}

static optc_status note_slot(const optc_binding *b, const ProgStage *s)
{
    GpuEngine *g = b->rule->engine->gpu;
    const RootsF32 *x = b->gpu->calls->roots_f32;
    if (!s->stagger)
        TRY(g, cuEventRecord(x->event[0], b->gpu->stream), "factor statistics");
    for (int i = 0; i < b->nslots; i++)
        if (s->stagger >> i & 1)
            TRY(g,
                cuEventRecord(x->event[x->first[i] + 1 + (int)b->stagger.now[i]], b->gpu->stream),
                "factor statistics");
    return OPTC_OK;
}

/* ---- reading and copying the statistics ---- */
/* Switches to f64 those matrices of a call that are scheduled for this step and were refused the
 * last time. */
static bool take_wide(const optc_binding *b, const LaunchItem *x)
{
    GpuCalls *c = b->gpu->calls;
    const Units *u = x->op->units;
    bool any = false;
    for (int k = 0; k < u->n; k++) {
        const Tensor *t = &b->tensor[u->tensor[k]];
        int64_t first = factor_stats_first(b, x->stage, u->tensor[k]);
        for (int64_t q = 0; q < t->shape.slices; q++)
            if (t->view.n >= 0 && !c->wide[first + q] && c->roots_f32->seen[first + q].method > 0 &&
                stagger_active(b, &b->stagger, x->stage->stagger, t, q))
                any = c->wide[first + q] = true;
    }
    return any;
}

static optc_status look_back(optc_binding *b, const LaunchList *p)
{
    optc_status s = OPTC_OK;
    bool any = false;
    for (int i = 0; i < p->n && s == OPTC_OK; i++)
        if (item_in_f32(b, &p->item[i])) {
            s = wait_slot(b, p->item[i].stage);
            any = (s == OPTC_OK && take_wide(b, &p->item[i])) || any;
        }
    return s == OPTC_OK && any ? calls_rebuild(b) : s;
}

/* After a capture no matrix changes its type: the captured graph would not see it. */
CORE optc_status roots_f32_check(optc_binding *b, const LaunchList *p)
{
    const GpuCalls *c = b->gpu->calls;
    if (!c || !c->roots_f32 || b->gpu->captured)
        return OPTC_OK;
    gpu_enter(b->rule->engine->gpu);
    return gpu_leave(b->rule->engine->gpu, look_back(b, p));
}

CORE optc_status roots_f32_save(optc_binding *b, const LaunchList *p)
{
    GpuEngine *g = b->rule->engine->gpu;
    const GpuCalls *c = b->gpu->calls;
    optc_status s = OPTC_OK;
    bool any = false;
    for (int i = 0; c && c->roots_f32 && !b->gpu->captured && i < p->n && s == OPTC_OK; i++)
        if (item_in_f32(b, &p->item[i])) {
            if (!any)
                TRY(g,
                    cuMemcpyDtoHAsync_v2(c->roots_f32->seen, (CUdeviceptr)(uintptr_t)b->stats,
                                         sizeof(FactorStats) * (size_t)factor_stats_count(b),
                                         b->gpu->stream),
                    "factor statistics");
            any = true;
            s = note_slot(b, p->item[i].stage);
        }
    return s;
}

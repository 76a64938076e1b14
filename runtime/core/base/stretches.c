/* Stretches: maximal sequences of stages of one variant (batches.c). */
#include "runtime/core/base/lifetimes.h"

/* NULL: a stage of the group, or no launch */
static const ProgStage *tensors_stage(const Program *p, const ProgAction *a)
{
    return a->kind == ACT_LAUNCH && p->stage[a->stage].kind != S_GROUP ? &p->stage[a->stage] : NULL;
}

CORE Stretch stretch_at(const Program *p, const ProgPhase *ph, int from)
{
    const ProgStage *s = tensors_stage(p, &ph->action[from]), *next = s;
    Stretch x = {from + 1, s ? s->variant : 0, s && s->kind == S_CALL};
    for (; s && x.end < ph->naction; x.end++) {
        next = tensors_stage(p, &ph->action[x.end]);
        if (!next || next->variant != s->variant)
            break;
        x.calls = x.calls || next->kind == S_CALL;
    }
    return x;
}

/* The variants that have a stretch with calls: bits. */
CORE unsigned variants_called(const Program *p)
{
    unsigned mask = 0;
    for (int m = 0; m < p->nentry * program_phases(p); m++) {
        const ProgPhase *ph =
            &p->entry[m / program_phases(p)].phase[m % program_phases(p)];
        for (int i = 0; i < ph->naction;) {
            Stretch x = stretch_at(p, ph, i);
            mask |= x.calls ? 1u << x.variant : 0;
            i = x.end;
        }
    }
    return mask;
}

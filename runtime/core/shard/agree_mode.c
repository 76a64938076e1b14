/* How a GPU's ranks compare which tensors take part (gpu_agree.c). */
#include "runtime/core/shard/shard.h"

static bool keeps(const ProgArray *m) { return m->kind == MEM_STATE || m->kind == MEM_P; }

static bool action_keeps(const Program *p, const ProgAction *a)
{
    const ProgStage *s = a->kind == ACT_LAUNCH ? &p->stage[a->stage] : NULL;
    bool any = false;
    for (int i = 0; s && i < s->nwrites; i++)
        any = any || keeps(&p->array[s->writes[i]]);
    return any;
}

/* Only kernels of the rule look at the views. */
static bool skips_by_views(const Program *p, const ProgAction *a)
{
    return a->kind == ACT_LAUNCH && p->stage[a->stage].kind != S_CALL;
}

CORE AgreeMode compare_mode(const optc_binding *b, const ProgPhase *ph, int *exchange)
{
    bool kept = false, waits = false;
    int first = -1;
    for (int i = 0; i < ph->naction; i++) {
        const ProgAction *a = &ph->action[i];
        const Exchange *e = a->kind == ACT_EXCHANGE ? &b->shards->exchange[a->stage] : NULL;
        if (e && first < 0 && (e->pairs || e->share_bytes))
            first = a->stage;
        kept = kept || (first < 0 && action_keeps(b->program, a));
        waits = waits || (action_keeps(b->program, a) && !skips_by_views(b->program, a));
    }
    *exchange = first;
    if (first < 0)
        return AGREE_NOT;
    return waits                                             ? AGREE_WAITS
           : kept || !b->shards->exchange[first].share_bytes ? AGREE_APART
                                                             : AGREE_RIDES;
}

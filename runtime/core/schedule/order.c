/* Which ops of a schedule keep their order where a device may run ops side by side. */
#include "runtime/core/schedule/schedule_ops.h"

/* Two stages need an order if one of them writes an array of the other, if their temporaries share
 * memory, or if one of them belongs to the group, which serves all variants. Stages of different
 * variants step different tensors, so a common array orders only stages of one variant. Batches
 * share the pool. Stages of sharded bindings are always ordered: they share the memory of
 * exchanges. */
CORE bool ops_ordered(const optc_binding *b, const ScheduleOp *x, const ScheduleOp *y)
{
    const ProgStage *s = x->stage, *t = y->stage;
    if (b->shards || !s || !t || !x->units || !y->units || x->batch >= 0 || y->batch >= 0)
        return true;
    bool same = s->variant == t->variant;
    for (int i = 0; i < s->nreads + s->nwrites; i++)
        for (int k = 0; k < t->nreads + t->nwrites; k++) {
            int u = i < s->nreads ? s->reads[i] : s->writes[i - s->nreads];
            int v = k < t->nreads ? t->reads[k] : t->writes[k - t->nreads];
            if (u == v ? same && (i >= s->nreads || k >= t->nreads) : temporaries_overlap(b, u, v))
                return true;
        }
    return false;
}

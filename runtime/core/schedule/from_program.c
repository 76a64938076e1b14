/* The schedule of a phase: its actions in the order in which a run executes them. A stretch with
 * calls runs batch by batch (batches.c).
 *
 * Sharded bindings on a GPU run some exchanges in a second stream, beside stages (shard_overlap.c).
 * Operands of group g of tensors are exchanged by X(g), its stages are S(g), its results are
 * exchanged by Y(g). The ops are in the order
 *
 *   FORK X(0) X(1) WAIT(X(0)) S(0) X(2) FORK Y(0) WAIT(X(1)) S(1) X(3) FORK Y(1) ... WAIT(last Y)
 *
 * FORK: the second stream waits for all that is in the binding's stream so far. WAIT: the binding's
 * stream waits for one exchange of the second stream. All ranks have the same exchanges in the same
 * order, also for groups of which a rank owns no tensor. */
#include "runtime/core/memory/layout.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shard.h"

#include <string.h>

/* op NULL: ops are only counted */
typedef struct OpList {
    const optc_binding *b;
    const ProgPhase *ph;
    ScheduleOp *op;
    int n;
} OpList;

static void put_op(OpList *l, ScheduleOp op)
{
    if (l->op)
        l->op[l->n] = op;
    l->n++;
}

static ScheduleOp empty_op(ScheduleKind kind, int what)
{
    ScheduleOp op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    op.what = what;
    op.batch = -1;
    return op;
}

/* A stage without tensors is no op. */
static void put_stage(OpList *l, int stage, int batch)
{
    const ProgStage *s = &l->b->program->stage[stage];
    ScheduleOp op = empty_op(s->kind == S_CALL ? SCHEDULE_CALL : SCHEDULE_LAUNCH, stage);
    op.batch = batch;
    op.stage = s;
    op.units = s->kind == S_GROUP ? NULL : stage_tensors(l->b, s, batch);
    op.reads = s->reads, op.nreads = s->nreads;
    op.writes = s->writes, op.nwrites = s->nwrites;
    if (!op.units || op.units->n)
        put_op(l, op);
}

static void put_action(OpList *l, const ProgAction *a, int batch)
{
    if (a->kind == ACT_LAUNCH) {
        put_stage(l, a->stage, batch);
        return;
    }
    ScheduleOp op = a->kind == ACT_EXCHANGE ? empty_op(SCHEDULE_EXCHANGE, a->stage)
                                            : empty_op(SCHEDULE_ADVANCE, -1);
    put_op(l, op);
}

/* group: batch by batch, only those of this group; -1: all batches, if the stretch has calls */
static void put_stretch(OpList *l, int from, const Stretch *x, int group)
{
    const bool batches = x->calls || group >= 0;
    for (int k = batches ? 0 : -1; k < (batches ? l->b->nbatch : 0); k++)
        for (int a = from; a < x->end; a++)
            if (k < 0 || (l->b->batch[k].variant == x->variant &&
                          (group < 0 || l->b->batch[k].group == group)))
                put_action(l, &l->ph->action[a], k);
}

/* An exchange beside stages (EXCHANGE), or the wait for one. */
static void put_beside(OpList *l, ScheduleKind kind, int action, int number)
{
    ScheduleOp op = empty_op(kind, l->ph->action[action].stage);
    op.beside = 1 + number;
    put_op(l, op);
}

/* Stretches of a section up to `grouped`: those that run in groups, for one group, or (group -1)
 * all others. */
static void put_stretches(OpList *l, const Overlap *o, int group)
{
    for (int i = o->stages, next; i < o->grouped; i = next) {
        Stretch x = stretch_at(l->b->program, l->ph, i);
        next = x.end;
        if (runs_in_groups(l->b, &l->ph->action[i]) == (group >= 0))
            put_stretch(l, i, &x, group);
    }
}

/* Numbers in the second stream: operands by group, then results by group. */
static void put_section(OpList *l, const Overlap *o)
{
    put_op(l, empty_op(SCHEDULE_FORK, -1));
    put_beside(l, SCHEDULE_EXCHANGE, o->operands, 0);
    put_beside(l, SCHEDULE_EXCHANGE, o->operands + 1, 1);
    put_stretches(l, o, -1);
    for (int g = 0; g < o->groups; g++) {
        put_beside(l, SCHEDULE_WAIT, o->operands + g, g);
        put_stretches(l, o, g);
        if (g + 2 < o->groups)
            put_beside(l, SCHEDULE_EXCHANGE, o->operands + g + 2, g + 2);
        if (!o->ends_early)
            continue;
        put_op(l, empty_op(SCHEDULE_FORK, -1));
        put_beside(l, SCHEDULE_EXCHANGE, o->results + g, o->groups + g);
    }
    for (int i = o->grouped, next; i < o->stages_end; i = next) {
        Stretch x = stretch_at(l->b->program, l->ph, i);
        next = x.end;
        put_stretch(l, i, &x, -1);
    }
    if (o->ends_early)
        put_beside(l, SCHEDULE_WAIT, o->results + o->groups - 1, 2 * o->groups - 1);
    /* all else that is sent at this point */
    for (int i = o->stages_end; i < o->results && o->ends_early; i++)
        put_action(l, &l->ph->action[i], -1);
}

static void list_ops(OpList *l, int phase)
{
    l->n = 0;
    for (int i = 0; i < l->ph->naction;) {
        const Overlap *o = overlap_at(l->b, phase, i);
        Stretch x = stretch_at(l->b->program, l->ph, i);
        if (o)
            put_section(l, o);
        else
            put_stretch(l, i, &x, -1);
        i = o ? o->end : x.end;
    }
}

CORE optc_status schedules_make(optc_binding *b)
{
    const Program *p = b->program;
    int each = program_phases(p), phases = p->nentry * each;
    Schedule *s = TAKE(b, Schedule, phases);
    for (int m = 0; s && m < phases; m++) {
        OpList l = {b, &p->entry[m / each].phase[m % each], NULL, 0};
        list_ops(&l, m);
        if (!(l.op = s[m].op = TAKE(b, ScheduleOp, l.n)))
            return no_memory("optc_bind");
        list_ops(&l, m);
        s[m].n = l.n;
    }
    b->schedule = s;
    return s ? OPTC_OK : no_memory("optc_bind");
}

CORE const Schedule *schedule_of(const optc_binding *b, int entry, int phase)
{
    return &b->schedule[entry * program_phases(b->program) + phase];
}

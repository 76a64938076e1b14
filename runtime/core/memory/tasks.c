/* Tasks: the order in which a run executes a phase's actions. A stretch with calls runs batch by
 * batch (batches.c).
 *
 * Sharded bindings on a GPU run some exchanges in a second stream, beside stages (shard_overlap.c).
 * Operands of group g of tensors are exchanged by X(g), its stages are S(g), its results are
 * exchanged by Y(g). The tasks are in the order
 *
 *   FORK X(0) X(1) JOIN(X(0)) S(0) X(2) FORK Y(0) JOIN(X(1)) S(1) X(3) FORK Y(1) ... JOIN(last Y)
 *
 * FORK: the second stream waits for all that is in the binding's stream so far. JOIN: the binding's
 * stream waits for one exchange of the second stream. All ranks have the same exchanges in the same
 * order, also for groups of which a rank owns no tensor. */
#include "runtime/core/memory/layout.h"
#include "runtime/core/shard/shard.h"

static const ProgAction fork_action = {ACT_FORK, 0, 0, 0}, join_action = {ACT_JOIN, 0, 0, 0};

/* out NULL: tasks are only counted */
typedef struct TaskList { const optc_binding *b; const ProgPhase *ph; Task *out; int n; } TaskList;

static void put_task(TaskList *l, const ProgAction *a, int batch, int beside)
{
    if (l->out) {
        l->out[l->n].action = a;
        l->out[l->n].batch = batch;
        l->out[l->n].beside = beside;
    }
    l->n++;
}

/* group: batch by batch, only those of this group; -1: all batches, if the stretch has calls */
static void put_stretch(TaskList *l, int from, const Stretch *x, int group)
{
    const bool batches = x->calls || group >= 0;
    for (int k = batches ? 0 : -1; k < (batches ? l->b->nbatch : 0); k++)
        for (int a = from; a < x->end; a++)
            if (k < 0 || (l->b->batch[k].variant == x->variant &&
                          (group < 0 || l->b->batch[k].group == group)))
                put_task(l, &l->ph->action[a], k, 0);
}

static void put_beside(TaskList *l, int action, int number)
{
    put_task(l, &l->ph->action[action], -1, 1 + number);
}

/* Stretches of a section up to `grouped`: those that run in groups, for one group, or (group -1)
 * all others. */
static void put_stretches(TaskList *l, const Overlap *o, int group)
{
    for (int i = o->stages, next; i < o->grouped; i = next) {
        Stretch x = stretch_at(l->b->program, l->ph, i);
        next = x.end;
        if (runs_in_groups(l->b, &l->ph->action[i]) == (group >= 0))
            put_stretch(l, i, &x, group);
    }
}

/* Numbers in the second stream: operands by group, then results by group. */
static void put_section(TaskList *l, const Overlap *o)
{
    put_task(l, &fork_action, -1, 0);
    put_beside(l, o->operands, 0);
    put_beside(l, o->operands + 1, 1);
    put_stretches(l, o, -1);
    for (int g = 0; g < o->groups; g++) {
        put_task(l, &join_action, -1, 1 + g);
        put_stretches(l, o, g);
        if (g + 2 < o->groups)
            put_beside(l, o->operands + g + 2, g + 2);
        if (!o->ends_early)
            continue;
        put_task(l, &fork_action, -1, 0);
        put_beside(l, o->results + g, o->groups + g);
    }
    for (int i = o->grouped, next; i < o->stages_end; i = next) {
        Stretch x = stretch_at(l->b->program, l->ph, i);
        next = x.end;
        put_stretch(l, i, &x, -1);
    }
    if (o->ends_early)
        put_task(l, &join_action, -1, 2 * o->groups);
    /* all else that is sent at this point */
    for (int i = o->stages_end; i < o->results && o->ends_early; i++)
        put_task(l, &l->ph->action[i], -1, 0);
}

static void list_tasks(TaskList *l, int phase)
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

CORE optc_status tasks_make(optc_binding *b)
{
    const Program *p = b->program;
    int each = program_phases(p), phases = p->nentry * each;
    Tasks *t = TAKE(b, Tasks, phases);
    for (int m = 0; t && m < phases; m++) {
        TaskList l = {b, &p->entry[m / each].phase[m % each], NULL, 0};
        list_tasks(&l, m);
        if (!(l.out = t[m].task = TAKE(b, Task, l.n)))
            return no_memory("optc_bind");
        list_tasks(&l, m);
        t[m].n = l.n;
    }
    b->tasks = t;
    return t ? OPTC_OK : no_memory("optc_bind");
}

CORE const Units *task_units(const optc_binding *b, const Task *t)
{
    return stage_tensors(b, &b->program->stage[t->action->stage], t->batch);
}

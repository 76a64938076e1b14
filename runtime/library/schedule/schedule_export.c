/* Makes schedules from a binding's tasks. */
#include "runtime/library/schedule/schedule.h"

#include "runtime/core/shard/shard.h"

#include <string.h>

static ScheduleKind kind_of(const Program *p, const ProgAction *a)
{
    switch (a->kind) {
    case ACT_ADVANCE_T: return SCHEDULE_ADVANCE;
    case ACT_LAUNCH: return p->stage[a->stage].kind == S_CALL ? SCHEDULE_CALL : SCHEDULE_LAUNCH;
    case ACT_COPY: return SCHEDULE_COPY;
    case ACT_EXCHANGE: return SCHEDULE_EXCHANGE;
    case ACT_FORK: return SCHEDULE_FORK;
    default: return SCHEDULE_WAIT;
    }
}

/* By variant of the rule, then array: the name of what it holds at this point. Variants use an
 * array for different values. Arrays of the group are the same for all. */
typedef struct Names {
    const Program *p;
    const optc_binding *b;
    const char **now;
} Names;

/* The rule's variant of a role (sharded bindings), or the variant itself. */
static int variant_of_role(const optc_binding *b, int role)
{
    for (int v = 0; b->shards && v < b->rule->program->nvariant; v++)
        for (int k = 0; k < NROLE; k++)
            if (b->shards->role[v][k] == role)
                return v;
    return role;
}

static const char **name_at(const Names *x, int variant, int array)
{
    int of = x->p->array[array].dom == GROUP || variant < 0 ? 0 : variant;
    return &x->now[of * x->p->narray + array];
}

/* variant: per read, then write, or (n == 1) of all of them */
static void name_arrays(Arena *a, const Names *names, const char *const *given, const int *variant,
                        int n, ScheduleOp *op)
{
    const int all = op->nreads + op->nwrites;
    op->name = NEWS(a, const char *, all + 1);
    for (int i = 0; i < all; i++) {
        int array = i < op->nreads ? op->reads[i] : op->writes[i - op->nreads];
        const char **now = name_at(names, variant[n == 1 ? 0 : i % n], array);
        if (given)
            *now = given[i];
        op->name[i] = *now;
    }
}

static void add_stage(Arena *a, const Program *p, const Names *names, int stage, ScheduleOp *op)
{
    const ProgStage *s = &p->stage[stage];
    op->what = stage;
    op->role = s->kind == S_GROUP ? -1 : s->variant;
    op->slots = s->stagger;
    op->reads = s->reads, op->nreads = s->nreads;
    op->writes = s->writes, op->nwrites = s->nwrites;
    op->where = s->where;
    const int variant = variant_of_role(names->b, op->role);
    name_arrays(a, names, s->value, &variant, 1, op);
}

static void add_copy(Arena *a, const Names *names, const ProgAction *act, ScheduleOp *op)
{
    int *array = NEWS(a, int, 2);
    array[0] = act->from;
    array[1] = act->to;
    op->reads = array, op->nreads = 1;
    op->writes = array + 1, op->nwrites = 1;
    name_arrays(a, names, NULL, &op->role, 1, op);
}

/* An exchange reads an array of one role and writes the same array of another. */
static void add_exchange(Arena *a, const Names *names, int number, ScheduleOp *op)
{
    const Exchange *e = &names->b->shards->exchange[number];
    int *array = NEWS(a, int, e->nitem + 1), *variant = NEWS(a, int, e->nitem + 1);
    for (int i = 0; i < e->nitem; i++) {
        array[i] = e->item[i].array;
        variant[i] = e->item[i].variant;
    }
    op->what = number;
    op->reads = op->writes = array;
    op->nreads = op->nwrites = e->nitem;
    name_arrays(a, names, NULL, variant, e->nitem, op);
}

/* Exchange `beside` - 1 of the second stream: the number of the exchange that a wait waits for. */
static int waited(const Tasks *t, int beside)
{
    for (int i = 0; i < t->n; i++)
        if (t->task[i].action->kind == ACT_EXCHANGE && t->task[i].beside == beside)
            return t->task[i].action->stage;
    return -1;
}

/* A stage of a role without tensors is no op. */
static bool has_tensors(const optc_binding *b, const Task *t)
{
    return t->action->kind != ACT_LAUNCH || b->program->stage[t->action->stage].kind == S_GROUP ||
           task_units(b, t)->n > 0;
}

Schedule schedule_from_tasks(Arena *a, const optc_binding *b, int entry, int phase)
{
    const Program *p = b->program;
    const Tasks *t = &b->tasks[entry * program_phases(p) + phase];
    Schedule s = {entry, phase, NEWS(a, ScheduleOp, t->n + 1), 0};
    Names names = {p, b, NEWS(a, const char *, p->nvariant * p->narray + 1)};
    for (int k = 0; k < p->nvariant * p->narray; k++)
        names.now[k] = p->array[k % p->narray].name;
    for (int i = 0; i < t->n; i++) {
        const ProgAction *act = t->task[i].action;
        ScheduleOp *op = &s.op[s.n];
        if (!has_tensors(b, &t->task[i]))
            continue;
        s.n++;
        *op = (ScheduleOp){.kind = kind_of(p, act),
                           .what = -1,
                           .role = -1,
                           .batch = t->task[i].batch,
                           .where = ""};
        op->stream = op->kind == SCHEDULE_EXCHANGE && t->task[i].beside > 0;
        if (act->kind == ACT_LAUNCH)
            add_stage(a, p, &names, act->stage, op);
        else if (act->kind == ACT_COPY)
            add_copy(a, &names, act, op);
        else if (act->kind == ACT_EXCHANGE)
            add_exchange(a, &names, act->stage, op);
        else if (act->kind == ACT_JOIN)
            op->what = waited(t, t->task[i].beside);
    }
    return s;
}

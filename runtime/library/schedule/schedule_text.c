/* Prints schedules as text: a line per op, `written <- read`, and the spec's line. */
#include "runtime/library/schedule/call_uses.h"

#include "gen/gen.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shard.h"

#include <string.h>

static const char *const kind_names[NSCHEDULEOP] = {
#define SCHEDULE_OP(ID, name, graph, label) name,
#include "gen/abi/schedule.def"
};

static const char *op_name(const ScheduleOp *op)
{
    if (*kind_names[op->kind])
        return kind_names[op->kind];
    const ProgStage *s = op->stage;
    return s->call ? callee_facts[s->call->callee].name : s->name;
}

static void put_names(Buf *to, const char *before, const char *const *name, int n)
{
    for (int i = 0; i < n; i++)
        buf_printf(to, "%s%s", i ? " " : before, name[i]);
}

static int64_t sum(const size_t *x, int n)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += (int64_t)x[i];
    return all;
}

static const char *const item_names[] = {[ITEM_GHOST] = "cut segments",
                                         [ITEM_TO_OWNER] = "to owners",
                                         [ITEM_FROM_OWNER] = "from owners",
                                         [ITEM_PARTIALS] = "partials",
                                         [ITEM_TENSOR_PARTIALS] = "partials of tensors",
                                         [ITEM_TILE_GHOST] = "cut tiles",
                                         [ITEM_BAND_GHOST] = "cut bands",
                                         [ITEM_ROWS] = "rows",
                                         [ITEM_COLS] = "columns"};

static void put_exchange(Buf *to, const optc_binding *b, const ScheduleOp *op,
                         const char *const *name)
{
    const Exchange *e = &b->shards->exchange[op->what];
    const int ranks = b->shards->comm.ranks;
    buf_printf(to, " %d", op->what);
    for (int i = 0; i < e->nitem; i++) {
        if (!i || e->item[i].kind != e->item[i - 1].kind)
            buf_printf(to, "%s %s:", i ? "," : "", item_names[e->item[i].kind]);
        buf_printf(to, " %s", name[i]);
    }
    if (e->pairs)
        buf_printf(to, "; sends %lld B, receives %lld B", (long long)sum(e->send_bytes, ranks),
                   (long long)sum(e->recv_bytes, ranks));
    if (e->share_bytes)
        buf_printf(to, "; gathers %lld B of each rank", (long long)e->share_bytes);
}

static void put_op(Buf *to, const optc_binding *b, const ScheduleOp *op, const char *const *name,
                   int number)
{
    const Program *p = b->program;
    const int role = schedule_role(op);
    buf_printf(to,
               op->kind == SCHEDULE_ADVANCE || op->kind == SCHEDULE_FORK ? "%4d %s" : "%4d %-10s",
               number, op_name(op));
    if (role >= 0 && p->nvariant > 1)
        buf_printf(to, " %s", p->variant[role].name);
    if (op->batch >= 0)
        buf_printf(to, " batch %d", op->batch);
    if (op->stage && op->stage->stagger)
        buf_puts(to, " slot");
    if (op->kind == SCHEDULE_EXCHANGE && op->beside)
        buf_puts(to, " beside");
    if (op->kind == SCHEDULE_EXCHANGE)
        put_exchange(to, b, op, name);
    else if (op->kind == SCHEDULE_WAIT)
        buf_printf(to, " exchange %d", op->what);
    put_names(to, "  ", name + op->nreads, op->nwrites);
    put_names(to, " <- ", name, op->nreads);
    if (op->stage && *op->stage->where)
        buf_printf(to, "  %s", op->stage->where);
    buf_puts(to, "\n");
}

/* ---- steps of calls ---- */
static const char *const step_names[NCALLSTEP] = {
#define CALL_STEP(ID, name, launch) name,
#include "gen/abi/call_steps.def"
};

typedef struct StepText {
    Buf *to;
    const optc_binding *b;
    const ScheduleOp *op;
    const char *const *name;           /* of the op's values */
    bool writes;                       /* what is printed now */
} StepText;

static const char *set_name(const StepText *x, const PointerSet *s)
{
    const Area *area = area_of(x->b->gpu->calls, s->array);
    for (int i = 0; i < x->op->nreads + x->op->nwrites && s->array >= 0; i++)
        if (s->array == (i < x->op->nreads ? x->op->reads[i] : x->op->writes[i - x->op->nreads]))
            return x->name[i];
    return area ? area->name : s->array >= 0 ? x->b->program->array[s->array].name : "statistics";
}

/* An operand: its array or area, [row,column] or [value] of its first value unless that is the
 * array's, and *, how many matrices there are for each. */
static void put_use(void *ctx, const StepUse *u)
{
    StepText *x = ctx;
    if (u->writes != x->writes || !u->first)
        return;
    buf_puts(x->to, " ");
    if (u->set < 0) {
        buf_puts(x->to, "numbers");
        return;
    }
    const PointerSet *s = &x->b->gpu->calls->set[u->set];
    buf_puts(x->to, set_name(x, s));
    if (s->offset && s->row_stride)
        buf_printf(x->to, "[%lld,%lld]", (long long)(s->offset / s->row_stride),
                   (long long)(s->offset % s->row_stride));
    else if (s->offset && s->array != OWN_STATS)
        buf_printf(x->to, "[%lld]", (long long)s->offset);
    if (s->each > 1)
        buf_printf(x->to, "*%lld", (long long)s->each);
}

static void put_step(StepText *x, const CallStep *s, int indent)
{
    const char *name = *step_names[s->kind] ? step_names[s->kind]
                                            : kernel_info[s->kernel].name[0] + strlen("optc_");
    buf_printf(x->to, "%*s%-16s", 10 + indent, "", name);
    if (s->kind == STEP_BODY) {
        buf_printf(x->to, " %lld steps\n", (long long)s->n);
        return;
    }
    for (int writes = 1; writes >= 0; writes--) {
        x->writes = writes;
        if (!writes)
            buf_puts(x->to, " <-");
        step_uses(x->b, s, put_use, x);
    }
    if (s->kind == STEP_PRODUCT || s->kind == STEP_SYMMETRIC)
        buf_printf(x->to, "  %s%s%s %lld x %lld x %lld", s->type->name,
                   s->flags & TRANS_A ? " T" : "", s->flags & TRANS_B ? " .T" : "",
                   (long long)s->m, (long long)s->n, (long long)s->k);
    buf_puts(x->to, "\n");
}

/* The steps of a call over the groups of its tensors: all matrices, those that are scheduled for
 * this step (slot), or those that f32 refused (again). */
static void put_call(Buf *to, const optc_binding *b, const ScheduleOp *op, const char *const *name)
{
    const GpuCalls *c = b->gpu->calls;
    const GpuCall *call = calls_of(b, op->stage, op->batch);
    StepText x = {to, b, op, name, false};
    const CallGroup *last = NULL;
    for (int i = call ? call->first : 0, body = 0; call && i < call->first + call->n; i++) {
        const CallStep *s = &c->step[i];
        const CallGroup *g = step_group(c, s);
        if (g != last)
            buf_printf(to, "%*s%d of %lld x %lld%s\n", 8, "", g->n, (long long)g->shape.rows,
                       (long long)g->shape.cols, g->again ? ", again in f64" : "");
        last = g;
        put_step(&x, s, body > 0 ? 2 : 0);
        body = s->kind == STEP_BODY ? (int)s->n : body - 1;
    }
}

static bool same_op(const ScheduleOp *x, const char *const *xname, const ScheduleOp *y,
                    const char *const *yname)
{
    bool same = x->kind == y->kind && x->batch == y->batch && x->beside == y->beside &&
                schedule_role(x) == schedule_role(y) && x->nreads == y->nreads &&
                x->nwrites == y->nwrites && !x->stage == !y->stage &&
                !strcmp(op_name(x), op_name(y));
    if (same && x->stage)
        same = x->stage->stagger == y->stage->stagger && !strcmp(x->stage->where, y->stage->where);
    for (int i = 0; same && i < x->nreads + x->nwrites; i++)
        same = !strcmp(xname[i], yname[i]);
    return same;
}

/* A schedule with the names of its values. */
typedef struct Named {
    int entry, phase;
    const Schedule *s;
    const char ***name;
} Named;

static bool same_schedule(const Named *x, const Named *y)
{
    bool same = x->s->n == y->s->n;
    for (int i = 0; same && i < x->s->n; i++)
        same = same_op(&x->s->op[i], x->name[i], &y->s->op[i], y->name[i]);
    return same;
}

static void put_phase(Buf *to, const Program *p, const Named *s)
{
    buf_puts(to, p->entry[s->entry].name);
    for (int i = 0; i < p->nperiod; i++)
        plan_period(to, &p->period[i], i ? " and" : ",", s->phase >> i & 1);
}

static void put_batches(Buf *to, const optc_binding *b)
{
    for (int k = 0; k < b->nbatch; k++) {
        const Batch *x = &b->batch[k];
        buf_printf(to, "batch %d, %s: tensors", k, b->program->variant[x->variant].name);
        for (int i = 0; i < x->units.n; i++)
            buf_printf(to, " %d", b->tensor[x->units.tensor[i]].source);
        buf_puts(to, "\n");
    }
}

typedef struct Printing {
    Buf *to;
    const optc_binding *b;
} Printing;

static void print_all(void *ctx, Arena *a)
{
    const Printing *x = ctx;
    const Program *p = x->b->program;
    const int phases = program_phases(p);
    put_batches(x->to, x->b);
    for (int e = 0; e < p->nentry; e++) {
        Named *s = NEWS(a, Named, phases);
        for (int m = 0; m < phases; m++) {
            int like = 0;
            s[m] = (Named){e, m, schedule_of(x->b, e, m), NULL};
            s[m].name = schedule_names(a, x->b, s[m].s);
            while (!same_schedule(&s[like], &s[m]))
                like++;
            put_phase(x->to, p, &s[m]);
            if (like < m) {
                buf_puts(x->to, ": the ops of");
                buf_puts(x->to, " ");
                put_phase(x->to, p, &s[like]);
                buf_puts(x->to, "\n");
                continue;
            }
            buf_printf(x->to, ": %d ops\n", s[m].s->n);
            for (int i = 0; i < s[m].s->n; i++) {
                const ScheduleOp *op = &s[m].s->op[i];
                put_op(x->to, x->b, op, s[m].name[i], i);
                if (op->kind == SCHEDULE_CALL && x->b->gpu)
                    put_call(x->to, x->b, op, s[m].name[i]);
            }
        }
    }
}

void schedule_print(Buf *to, const optc_binding *b)
{
    Printing x = {to, b};
    arena_scratch(to->arena, print_all, &x);
}

/* Executes a binding's schedules on a memory of names, and the actions of its program in their own
 * order on a memory in which no temporaries share an address. Both must read the same names at the
 * same places.
 *
 * A name is a hash: of the stage, the tensor and the names that it reads. Memory is a list of byte
 * ranges with names, so it sees temporaries that share memory, batches that use the pool one after
 * another, and entries of sharded bindings that are parts of each other. It does not see which
 * bytes of an array a stage covers: a stage writes the arrays of its tensors as a whole. */
#include "runtime/library/schedule/schedule.h"

#include "runtime/core/memory/layout.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shard.h"
#include "runtime/library/schedule/name_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the ops of one execution read ---- */
/* of: stage, or exchange; tensor: entry, or group, or move; nth: of its reads; time: number of the
 * read. A read of several pieces has a record for each: bytes from `at` on hold `name` from `from`
 * on. */
typedef struct Read {
    int kind, of, tensor, nth, array, time;
    int64_t at, bytes;
    uint64_t name;
    int64_t from;
} Read;
typedef struct Reads {
    Read *v;
    int n, cap;
    bool out;
} Reads;

static void add_read(Reads *l, const Read *r)
{
    if (l->n == l->cap) {
        Read *more = realloc(l->v, sizeof *more * (size_t)(l->cap ? l->cap * 2 : 256));
        l->out = l->out || !more;
        if (!more)
            return;
        l->v = more;
        l->cap = l->cap ? l->cap * 2 : 256;
    }
    l->v[l->n++] = *r;
}

/* An execution: the binding, its memory, what was read. kind, of: the current op. seen: by
 * exchange, how often it ran: a phase may have an exchange several times */
typedef struct Run {
    const optc_binding *b;
    Names names;
    Reads reads;
    int kind, of, *seen;
} Run;

/* The names in a range, as one hash. Nothing in a range that nothing wrote is recorded. */
static uint64_t take_names(Run *x, int tensor, int nth, int array, uintptr_t lo, int64_t bytes)
{
    uint64_t h = 1;
    if (!lo || bytes <= 0)
        return h;
    int i = names_split(&x->names, lo), end = names_split(&x->names, lo + (uintptr_t)bytes);
    for (; i < end; i++) {
        const Piece *p = &x->names.at[i];
        const int64_t at = (int64_t)(p->lo - lo),
                      to = i + 1 < end ? (int64_t)(x->names.at[i + 1].lo - lo) : bytes;
        h = mix(mix(mix(h, p->name), (uint64_t)p->from), (uint64_t)at);
        if (p->name)
            add_read(&x->reads, &(Read){x->kind, x->of, tensor, nth, array, x->reads.n, at, to - at,
                                        p->name, p->from});
    }
    return h;
}

/* ---- arrays of an op ---- */
typedef struct Range {
    uintptr_t lo;
    int64_t bytes;
} Range;

static Range inside(Range r, uintptr_t lo, int64_t bytes)
{
    const uintptr_t end = r.lo + (uintptr_t)r.bytes, most = lo + (uintptr_t)bytes;
    const uintptr_t from = r.lo > lo ? r.lo : lo, to = end < most ? end : most;
    return from < to ? (Range){from, (int64_t)(to - from)} : (Range){0, 0};
}

/* An entry of a sharded binding may use a part of an array as if it were whole: its address is
 * ahead of the part. */
static Range own_part(const optc_binding *b, int array, int tensor, Range r)
{
    const ProgArray *m = &b->program->array[array];
    const Shards *x = b->shards;
    int64_t bytes = 0;
    if (m->kind == MEM_STATE || array_temporary(m)) {
        for (int i = 0; i < b->nheld; i++)
            bytes += in_pool(b, array, i) ? 0 : array_owned(b, m, i);
        return in_pool(b, array, tensor)
                   ? r
                   : inside(r, (uintptr_t)b->block + (uintptr_t)b->at[array], bytes);
    }
    const int source = b->tensor[tensor].source;
    const int64_t copy =
        tensor < b->ntensor
            ? -1
            : x->copy_at[(int64_t)(tensor - b->ntensor) * b->program->narray + array];
    if (copy < 0)
        return tensor == source
                   ? r
                   : inside(r, (uintptr_t)b->tensor[source].mem[array],
                            b->tensor[source].shape.n * b->program->type[m->type].bytes);
    bytes = x->cut[source].how == CLASS_ROWS ? rows_copy(b, tensor, array) : r.bytes;
    return inside(r, (uintptr_t)b->block + (uintptr_t)(x->at + copy), bytes);
}

/* Partials of folds over all tensors: each tensor has a number of its own. */
static Range array_range(const optc_binding *b, int array, int tensor)
{
    const Program *p = b->program;
    const ProgArray *m = &p->array[array];
    const Tensor *t = &b->tensor[tensor];
    Range r = {(uintptr_t)t->mem[array], p->type[m->type].bytes};
    if (m->dom == GROUP && m->kind == MEM_PART)
        return (Range){r.lo ? r.lo + (uintptr_t)t->source * 8 : 0, 8};
    if (m->dom != GROUP)
        r.bytes = stored_bytes(p->type, m->type, array_length(m, t->shape, t->whole, b->ntensor),
                               t->whole.n);
    return b->shards && r.lo && m->dom != GROUP && tensor < b->nheld ? own_part(b, array, tensor, r)
                                                                     : r;
}

static Range group_range(const optc_binding *b, int array, int group)
{
    const ProgArray *m = &b->program->array[array];
    return (Range){(uintptr_t)b->group[group].mem[array],
                   m->kind == MEM_PART ? (int64_t)8 * b->ntensor : b->program->type[m->type].bytes};
}

/* A stage reads for all its tensors before it writes for any. tensor: -1 - group for stages of the
 * group. */
static uint64_t stage_reads(Run *x, const ProgStage *s, int tensor)
{
    uint64_t h = mix((uint64_t)(s - x->b->program->stage), (uint64_t)(int64_t)tensor);
    for (int k = 0; k < s->nreads; k++) {
        Range r = tensor < 0 ? group_range(x->b, s->reads[k], -1 - tensor)
                             : array_range(x->b, s->reads[k], tensor);
        h = mix(h, take_names(x, tensor, k, s->reads[k], r.lo, r.bytes));
    }
    return h;
}

static void stage_writes(Run *x, const ProgStage *s, int tensor, uint64_t h)
{
    for (int k = 0; k < s->nwrites; k++) {
        Range r = tensor < 0 ? group_range(x->b, s->writes[k], -1 - tensor)
                             : array_range(x->b, s->writes[k], tensor);
        names_put(&x->names, r.lo, r.bytes, mix(h, (uint64_t)k + 1), 0);
    }
}

static bool run_stage(Run *x, int number, int batch)
{
    const optc_binding *b = x->b;
    const ProgStage *s = &b->program->stage[number];
    const bool group = s->kind == S_GROUP;
    const Units *u = group ? NULL : stage_tensors(b, s, batch);
    const int n = group ? b->ngroup : u->n;
    uint64_t *h = malloc(sizeof *h * (size_t)(n + 1));
    x->kind = ACT_LAUNCH;
    x->of = number;
    for (int i = 0; h && i < n; i++)
        h[i] = stage_reads(x, s, group ? -1 - i : u->tensor[i]);
    for (int i = 0; h && i < n; i++)
        stage_writes(x, s, group ? -1 - i : u->tensor[i], h[i]);
    free(h);
    return h != NULL;
}

/* ---- exchanges ---- */
static void send_moves(Run *x, const MoveList *l, int side)
{
    for (int i = 0; i < l->n; i++)
        for (int64_t k = 0; k < l->move[i].count; k++) {
            const Move *m = &l->move[i];
            const uintptr_t base = (uintptr_t)x->b->tensor[m->entry].mem[m->array];
            take_names(x, i * 2 + side, (int)k, m->array,
                       base ? base + (uintptr_t)(m->at + k * m->stride) : 0, m->bytes);
        }
}

/* Every received value gets a name of its own. */
static void recv_moves(Run *x, const MoveList *l, int side)
{
    for (int i = 0; i < l->n; i++)
        for (int64_t k = 0; k < l->move[i].count; k++) {
            const Move *m = &l->move[i];
            const uintptr_t base = (uintptr_t)x->b->tensor[m->entry].mem[m->array];
            names_put(&x->names, base ? base + (uintptr_t)(m->at + k * m->stride) : 0, m->bytes,
                      mix(mix(mix(3, (uint64_t)x->of), (uint64_t)(i * 2 + side)), (uint64_t)k), 0);
        }
}

static void run_exchange(Run *x, int number)
{
    const Exchange *e = &x->b->shards->exchange[number];
    x->kind = ACT_EXCHANGE;
    x->of = number + x->b->shards->nexchange * x->seen[number]++;
    send_moves(x, &e->list[LIST_SEND], 0);
    send_moves(x, &e->list[LIST_SHARE], 1);
    recv_moves(x, &e->list[LIST_RECV], 0);
    recv_moves(x, &e->list[LIST_SHARED], 1);
}

/* ---- executions ---- */
/* Names the contents of all arrays before a step; temporaries are empty. false: out of memory */
static bool begin(Run *x)
{
    const optc_binding *b = x->b;
    const Program *p = b->program;
    x->seen = calloc((size_t)(b->shards ? b->shards->nexchange : 0) + 1, sizeof *x->seen);
    if (!x->seen || !names_make(&x->names))
        return false;
    for (int k = 0; k < p->narray; k++) {
        const ProgArray *m = &p->array[k];
        for (int i = 0; i < (m->dom == GROUP ? b->ngroup : b->nheld) && !array_temporary(m); i++) {
            Range r = m->dom == GROUP ? group_range(b, k, i) : array_range(b, k, i);
            names_put(&x->names, r.lo, r.bytes, mix(mix(4, (uint64_t)k), (uint64_t)i), 0);
        }
    }
    return true;
}

static void end(Run *x)
{
    free(x->names.at);
    free(x->reads.v);
    free(x->seen);
}

static bool run_action(Run *x, const ProgAction *a, int batch)
{
    if (a->kind == ACT_LAUNCH)
        return run_stage(x, a->stage, batch);
    if (a->kind == ACT_EXCHANGE)
        run_exchange(x, a->stage);
    return true;
}

static bool run_program(Run *x, int entry, int phase)
{
    const ProgPhase *ph = &x->b->program->entry[entry].phase[phase];
    bool ok = begin(x);
    for (int i = 0; ok && i < ph->naction; i++)
        ok = run_action(x, &ph->action[i], -1);
    return ok;
}

static bool run_op(Run *x, const ScheduleOp *op)
{
    if (op->stage)
        return run_stage(x, op->what, op->batch);
    if (op->kind == SCHEDULE_EXCHANGE)
        run_exchange(x, op->what);
    return true;
}

static bool is_beside(const ScheduleOp *op) { return op->kind == SCHEDULE_EXCHANGE && op->beside; }

/* late: an exchange of the second stream runs where the binding's stream waits for it, and not
 * where it begins. All others that begin ahead of it have run by then. */
static bool run_schedule(Run *x, const Schedule *s, bool late)
{
    int begun = 0;
    bool ok = begin(x);
    for (int i = 0; ok && i < s->n; i++) {
        const ScheduleOp *op = &s->op[i];
        bool waits = late && op->kind == SCHEDULE_WAIT;
        if (!late || !is_beside(op))
            ok = run_op(x, op);
        for (; waits && begun < i; begun++)
            if (is_beside(&s->op[begun])) {
                run_exchange(x, s->op[begun].what);
                waits = s->op[begun].beside != op->beside;
            }
    }
    for (; ok && late && begun < s->n; begun++)
        if (is_beside(&s->op[begun]))
            run_exchange(x, s->op[begun].what);
    return ok;
}

/* ---- comparison ---- */
static int by_place(const void *a, const void *b)
{
    const Read *x = a, *y = b;
    const int64_t d[] = {x->kind - y->kind, x->of - y->of, x->tensor - y->tensor, x->nth - y->nth,
                         x->at - y->at};
    for (int i = 0; i < 5; i++)
        if (d[i])
            return d[i] < 0 ? -1 : 1;
    return 0;
}

static bool same_place(const Read *x, const Read *y)
{
    return x->kind == y->kind && x->of == y->of && x->tensor == y->tensor && x->nth == y->nth;
}

/* Why two lists differ: the first read by time. */
typedef struct Fault {
    const Read *read;
    const char *what;
} Fault;

static optc_status differs(const optc_binding *b, const char *entry, const Fault *f)
{
    const Read *r = f->read;
    const Program *p = b->program;
    char stage[200] = "the end of the run";
    if (r->kind == ACT_LAUNCH)
        snprintf(stage, sizeof stage, "stage %d (%s, %s)", r->of, p->stage[r->of].name,
                 p->stage[r->of].where);
    else if (r->kind == ACT_EXCHANGE)
        snprintf(stage, sizeof stage, "exchange %d", r->of % b->shards->nexchange);
    const char *name = r->kind == ACT_LAUNCH && p->stage[r->of].value
                           ? p->stage[r->of].value[r->nth]
                           : p->array[r->array].name;
    return fail(OPTC_ERROR_SPEC,
                "internal error: the schedule of rule '%s', entry %s: %s reads %s of %s %d: %s",
                p->name, entry, stage, name, r->tensor < 0 ? "group" : "tensor",
                r->tensor < 0 ? -1 - r->tensor : r->tensor, f->what);
}

static void note(Fault *f, const Read *r, const char *what)
{
    if (!f->read || r->time < f->read->time)
        *f = (Fault){r, what};
}

/* Bytes that hold nothing are in no list, so both are walked by what `want` has. */
static Fault compare_reads(Reads *want, Reads *got)
{
    Fault f = {NULL, NULL};
    qsort(want->v, (size_t)want->n, sizeof *want->v, by_place);
    qsort(got->v, (size_t)got->n, sizeof *got->v, by_place);
    for (int i = 0, k = 0; i < want->n; i++) {
        const Read *w = &want->v[i];
        for (int64_t at = w->at; at < w->at + w->bytes;) {
            while (k < got->n && (same_place(&got->v[k], w) ? got->v[k].at + got->v[k].bytes <= at
                                                            : by_place(&got->v[k], w) < 0))
                k++;
            const Read *g =
                k < got->n && same_place(&got->v[k], w) && got->v[k].at <= at ? &got->v[k] : NULL;
            if (!g || g->name != w->name || g->from + at - g->at != w->from + at - w->at) {
                note(&f, w, g ? "it holds another value" : "it holds nothing yet");
                break;
            }
            at = g->at + g->bytes < w->at + w->bytes ? g->at + g->bytes : w->at + w->bytes;
        }
    }
    return f;
}

/* At the end of a run the caller's memory and all states hold the same. */
static void read_results(Run *x)
{
    const optc_binding *b = x->b;
    const Program *p = b->program;
    x->kind = ACT_ADVANCE_T;
    for (int k = 0; k < p->narray; k++) {
        const ProgArray *m = &p->array[k];
        x->of = p->narray + k;
        for (int i = 0; i < (m->dom == GROUP ? b->ngroup : b->nheld) && !array_temporary(m); i++) {
            Range r = m->dom == GROUP ? group_range(b, k, i) : array_range(b, k, i);
            take_names(x, i, 0, k, r.lo, r.bytes);
        }
    }
}

/* ---- ops side by side ---- */
/* Array k of an op, of its reads, then its writes, for tensor or group i. */
static Range op_range(const optc_binding *b, const ScheduleOp *op, int k, int i)
{
    const int array = k < op->nreads ? op->reads[k] : op->writes[k - op->nreads];
    return op->units ? array_range(b, array, op->units->tensor[i]) : group_range(b, array, i);
}

static int op_parts(const optc_binding *b, const ScheduleOp *op)
{
    return op->units ? op->units->n : b->ngroup;
}

/* x writes to memory that y reads or writes. */
static bool writes_into(const optc_binding *b, const ScheduleOp *x, const ScheduleOp *y)
{
    for (int k = x->nreads; k < x->nreads + x->nwrites; k++)
        for (int i = 0; i < op_parts(b, x); i++) {
            const Range r = op_range(b, x, k, i);
            for (int j = 0; j < y->nreads + y->nwrites; j++)
                for (int n = 0; n < op_parts(b, y); n++) {
                    const Range other = op_range(b, y, j, n);
                    if (r.lo && other.lo && inside(other, r.lo, r.bytes).bytes > 0)
                        return true;
                }
        }
    return false;
}

/* Ops that ops_ordered lets run side by side touch different memory. */
static optc_status compare_order(const optc_binding *b, int entry, int phase)
{
    const Schedule *s = schedule_of(b, entry, phase);
    uint64_t behind[MOST_SIDE_BY_SIDE];
    for (int i = 0; i < s->n && s->n <= MOST_SIDE_BY_SIDE; i++) {
        behind[i] = 0;
        for (int k = i - 1; k >= 0; k--)
            if (!(behind[i] >> k & 1) && ops_ordered(b, &s->op[k], &s->op[i]))
                behind[i] |= behind[k] | (uint64_t)1 << k;
        for (int k = 0; k < i; k++)
            if (!(behind[i] >> k & 1) && (writes_into(b, &s->op[k], &s->op[i]) ||
                                          writes_into(b, &s->op[i], &s->op[k])))
                return fail(OPTC_ERROR_SPEC,
                            "internal error: the schedule of rule '%s', entry '%s': ops %d and %d "
                            "may run side by side, and one writes what the other uses",
                            b->program->name, b->program->entry[entry].name, k, i);
    }
    return OPTC_OK;
}

/* ---- all phases ---- */
static optc_status compare_phase(const optc_binding *b, const optc_binding *apart, int entry,
                                 int phase, bool late)
{
    Run want = {.b = apart}, got = {.b = b};
    bool ok = run_program(&want, entry, phase) &&
              run_schedule(&got, schedule_of(b, entry, phase), late);
    if (ok) {
        read_results(&want);
        read_results(&got);
    }
    ok = ok && !want.names.out && !got.names.out && !want.reads.out && !got.reads.out;
    Fault f = ok ? compare_reads(&want.reads, &got.reads) : (Fault){NULL, NULL};
    optc_status s = !ok      ? no_memory("schedule_verify")
                    : f.read ? differs(b, b->program->entry[entry].name, &f)
                             : OPTC_OK;
    end(&want);
    end(&got);
    return s;
}

optc_status schedule_compare(const optc_binding *b, const optc_binding *apart)
{
    const int phases = program_phases(b->program);
    optc_status s = OPTC_OK;
    for (int m = 0; m < b->program->nentry * phases && s == OPTC_OK; m++)
        for (int late = 0; late < (b->shards && b->shards->noverlap ? 2 : 1) && s == OPTC_OK;
             late++)
            s = compare_phase(b, apart, m / phases, m % phases, late);
    for (int m = 0; m < b->program->nentry * phases && s == OPTC_OK; m++)
        s = compare_order(b, m / phases, m % phases);
    return s;
}

optc_status schedule_verify(const Program *p, const ScheduleOf *of)
{
    SchedulePlan shared = {.binding = NULL}, apart = {.binding = NULL}, calls = {.binding = NULL};
    ScheduleOf with_calls = *of;
    optc_status s = schedule_plan(p, of, false, &shared);
    if (s == OPTC_OK)
        s = schedule_plan(p, of, true, &apart);
    if (s == OPTC_OK)
        s = schedule_compare(shared.binding, apart.binding);
    schedule_plan_free(&shared);
    schedule_plan_free(&apart);
    with_calls.calls = of->gpu && !of->workspace;
    if (s != OPTC_OK || !with_calls.calls)
        return s;
    s = schedule_plan(p, &with_calls, false, &calls);
    if (s == OPTC_OK)
        s = calls_verify(calls.binding);
    schedule_plan_free(&calls);
    return s;
}

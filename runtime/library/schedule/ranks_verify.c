/* Executes the schedules of all ranks of a sharded binding together, each on a memory of names of
 * its own, and compares what every stage reads with what the rule means on the whole tensors.
 *
 * The rule runs first, in its own order, without memory: each stage gives each array that it writes
 * a new value per tensor. Then each rank's ops run up to the next exchange, all ranks meet in it,
 * and bytes move between their memories by way of the buffers. A byte of a rank's memory has the
 * name of a value and its offset in the whole tensor's array. So a stage on a piece must read the
 * same values as the stage on the whole tensor, at the offsets of the piece, and then has a part of
 * the same results. A segment or tile that a piece has only a part of is folded to another value.
 *
 * Which bytes of an array an entry has follows from its shape and what is ahead of it, as
 * templates/partials.h has it. All views of a tensor's blocks count as the tensor. */
#include "runtime/core/memory/layout.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shard.h"
#include "runtime/library/schedule/name_memory.h"
#include "runtime/library/schedule/rule_meaning.h"
#include "runtime/library/schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes of an entry ---- */
/* `count` runs of bytes, from address `lo` on `apart` apart. They are the bytes from `from` on of a
 * value, where runs are `value_apart` apart. head, tail: so many bytes at the beginning and the end
 * are folds of parts */
typedef struct Area {
    uintptr_t lo;
    int64_t bytes, from, count, apart, value_apart, head, tail;
} Area;

static bool whole_matrices(const Tensor *t)
{
    return t->shape.rows == t->whole.rows && t->shape.cols == t->whole.cols;
}

/* Partials that a stage leaves: units of work of the piece. A unit has `each` values. */
static Area units_area(Area a, int64_t lo, int64_t end, int64_t whole, int64_t unit, int64_t each)
{
    const int64_t first = lo / unit, last = count_up(end, unit);
    a.from = first * each;
    a.bytes = lo < end ? (last - first) * each : 0;
    a.head = lo % unit ? each : 0;
    a.tail = end % unit && end < whole ? each : 0;
    return a;
}

/* Partials of folds over elements or columns. The memory of those per tensor begins with the whole
 * tensor's first. */
static Area parts_area(const optc_binding *b, const ProgArray *m, const Tensor *t, Area a,
                       int64_t size, bool writes, StageKind by)
{
    const StageInfo *x = &stage_info[m->from == ELEM ? m->by : by];
    const int64_t across = x->cols ? count_up(t->whole.cols, x->cols) : 1;
    const Role role = b->shards ? entry_role(b, (int)(t - b->tensor)) : ROLE_BOUND;
    const uintptr_t base = a.lo;
    if (m->dom == COL && role == ROLE_COLS) {
        a.count = writes ? 0 : count_up(t->whole.rows, x->rows);
        a.bytes = t->shape.cols * size;
        a.from = t->before[COL] * size;
        a.apart = a.bytes;
        a.value_apart = t->whole.cols * size;
        return a;
    }
    if (m->dom == ROW || (dom_inside(m->dom) && t->shape.slices && whole_matrices(t))) {
        a.from = m->dom == ROW ? t->before[ROW] * across * size
                               : t->before[SLICE] * (a.bytes / t->shape.slices);
        return a;
    }
    if (!writes)
        return a;
    if (x->walk == WALK_FLAT)
        a = units_area(a, t->before[ELEM] + t->first_unit * OPTC_SEG,
                       t->before[ELEM] + t->shape.n, t->whole.n, OPTC_SEG, size);
    else if (role == ROLE_COLS)
        a = units_area(a, t->before[COL], t->before[COL] + t->shape.cols, t->whole.cols, OPTC_SEG,
                       size);
    else if (x->walk == WALK_TILED && !whole_matrices(t))
        a = units_area(a, t->before[ROW], t->before[ROW] + t->shape.rows, t->whole.rows, x->rows,
                       (m->dom == COL ? t->whole.cols : across) * size);
    a.lo = base ? base + (uintptr_t)a.from : 0;
    return a;
}

/* The bytes of an array that an entry has, or those that a stage of this kind writes. */
static Area area_of(const optc_binding *b, int array, int entry, bool writes, StageKind by)
{
    const ProgArray *m = &b->program->array[array];
    const Tensor *t = &b->tensor[entry];
    const int type = stored_type(b->program->type, m->type, t->whole.n);
    const int64_t size = b->program->type[type].bytes;
    Area a = {.lo = (uintptr_t)t->mem[array], .bytes = size, .count = 1};
    if (m->dom == GROUP) {
        a.from = m->kind == MEM_PART ? (int64_t)t->source * 8 : 0;
        a.bytes = m->kind == MEM_PART ? 8 : size;
        a.lo += a.lo ? (uintptr_t)a.from : 0;
        return a;
    }
    /* a piece may end inside of a row */
    a.bytes = stored_bytes(b->program->type, m->type,
                           m->dom == ELEM ? t->shape.n
                                          : array_length(m, t->shape, t->whole, b->ntensor),
                           t->whole.n);
    if (m->kind == MEM_PART)
        return parts_area(b, m, t, a, size, writes, by);
    if (b->program->type[type].block > 1)          /* no part of them is ever sent */
        return a;
    if (m->dom == ELEM || m->dom == ROW || m->dom == COL)
        a.from = t->before[m->dom] * size;
    else if (dom_inside(m->dom) && t->shape.slices)
        a.from = t->before[SLICE] * (a.bytes / t->shape.slices);
    int64_t run, apart;
    const Cut *c = b->shards && entry < b->ntensor ? &b->shards->cut[entry] : NULL;
    if (m->dom == ELEM && c && !c->ranges && t->shape.n &&
        box_runs(t->rank, t->dim, t->whole_dim, &run, &apart)) {
        a.from = c->first[b->shards->comm.rank] * size;
        a.count = t->shape.n / run;
        a.bytes = a.apart = run * size;
        a.value_apart = apart * size;
    }
    if (m->dom == ELEM && by == S_FLAT && a.lo) {
        const int64_t ahead = t->first_unit * OPTC_SEG * size;
        a.lo += (uintptr_t)ahead;
        a.from += ahead;
        a.bytes -= ahead;
    }
    return a;
}

/* ---- one rank ---- */
/* order: the ops in the order in which they run; at: the next one */
typedef struct RankRun {
    const optc_binding *b;
    Names names;
    const Schedule *s;
    int *order, n, at;
} RankRun;

/* A wrong read. stage -1: of the result */
typedef struct RankFault {
    int rank, stage, array, tensor;
    int64_t at;
    const char *what;
} RankFault;

typedef struct Ranks {
    Meaning means;
    RankRun *rank;
    int n;
    RankFault fault;
    bool faulty;
} Ranks;

static void note(Ranks *x, const RankRun *r, RankFault f)
{
    f.rank = (int)(r - x->rank);
    if (!x->faulty)
        x->fault = f;
    x->faulty = true;
}

/* Compares what the bytes hold. Name 0: the rule gives them no value. */
static void read_area(Ranks *x, RankRun *r, const Area *a, uint64_t name, RankFault f)
{
    for (int64_t k = 0; a->lo && name && k < a->count && !x->faulty; k++) {
        const uintptr_t lo = a->lo + (uintptr_t)(k * a->apart), end = lo + (uintptr_t)a->bytes;
        for (uintptr_t at = lo; at < end;) {
            const int i = names_find(&r->names, at);
            const Piece *p = &r->names.at[i];
            const int64_t from = a->from + k * a->value_apart + (int64_t)(at - lo);
            f.at = from;
            f.what = !p->name          ? "holds nothing yet"
                     : p->name != name ? "holds another value"
                     : p->from + (int64_t)(at - p->lo) != from ? "holds another part of the value"
                                                               : NULL;
            if (f.what) {
                note(x, r, f);
                return;
            }
            at = i + 1 < r->names.n && p[1].lo < end ? p[1].lo : end;
        }
    }
}

static void write_area(RankRun *r, const Area *a, uint64_t name)
{
    for (int64_t k = 0; a->lo && k < a->count; k++)
        names_put(&r->names, a->lo + (uintptr_t)(k * a->apart), a->bytes, name,
                  a->from + k * a->value_apart);
    if (a->lo && a->bytes > 0) {
        names_put(&r->names, a->lo, a->head, mix(NAME_PART, name), a->from);
        names_put(&r->names, a->lo + (uintptr_t)(a->bytes - a->tail), a->tail,
                  mix(NAME_PART, name), a->from);
    }
}

/* A stage of the group: partials of all tensors, and values of the group. */
static Area group_area(const optc_binding *b, int array, int group)
{
    const ProgArray *m = &b->program->array[array];
    return (Area){.lo = (uintptr_t)b->group[group].mem[array],
                  .bytes = b->program->type[m->type].bytes,
                  .count = 1};
}

static void read_tensors(Ranks *x, RankRun *r, const uint64_t *name, RankFault f, uintptr_t lo)
{
    for (f.tensor = 0; f.tensor < r->b->ntensor; f.tensor++) {
        Area a = {.lo = lo ? lo + (uintptr_t)f.tensor * 8 : 0,
                  .bytes = 8,
                  .from = (int64_t)f.tensor * 8,
                  .count = 1};
        read_area(x, r, &a, name[f.tensor], f);
    }
}

/* The reads or the writes of a stage for one entry, or for group -1 - entry. */
static void touch(Ranks *x, RankRun *r, int derived, int entry, bool writes)
{
    const optc_binding *b = r->b;
    const int stage = b->shards ? b->shards->rule_stage[derived] : derived;
    const ProgStage *s = &x->means.p->stage[stage];
    for (int k = writes ? s->nreads : 0; k < s->nreads + (writes ? s->nwrites : 0); k++) {
        const int array = stage_array(s, k);
        const uint64_t *name = meaning_names(&x->means, stage, k);
        const int tensor = entry < 0 ? -1 : b->tensor[entry].source;
        const RankFault f = {.stage = stage, .array = array, .tensor = entry < 0 ? entry : tensor};
        const Area a = entry < 0 ? group_area(b, array, -1 - entry)
                                 : area_of(b, array, entry, writes, s->kind);
        const uint64_t of =
            name[entry < 0 ? b->ntensor - 1 - entry : meaning_owner(&x->means, array, tensor)];
        if (writes)
            write_area(r, &a, of);
        else if (entry < 0 && x->means.p->array[array].kind == MEM_PART)
            read_tensors(x, r, name, f, a.lo);
        else
            read_area(x, r, &a, of, f);
    }
}

/* A stage reads for all its tensors before it writes for any. */
static void run_stage_of(Ranks *x, RankRun *r, const ScheduleOp *op)
{
    const optc_binding *b = r->b;
    const Units *u = op->units ? stage_tensors(b, op->stage, op->batch) : NULL;
    for (int writes = 0; writes < 2; writes++)
        for (int i = 0; i < (u ? u->n : b->ngroup); i++) {
            const int entry = u ? b->tensor[u->tensor[i]].of : -1 - i;
            if (!u || u->tensor[i] == entry || u->tensor[i] == b->tensor[entry].first_view)
                touch(x, r, op->what, entry, writes);
        }
}

static void copy_bytes(const Names *from, uintptr_t lo, int64_t bytes, Names *to, uintptr_t at)
{
    for (int64_t done = 0; done < bytes;) {
        const int i = names_find(from, lo + (uintptr_t)done);
        const Piece p = from->at[i];
        const int64_t ahead = (int64_t)(lo - p.lo) + done,
                      all = i + 1 < from->n ? (int64_t)(from->at[i + 1].lo - lo) : bytes;
        const int64_t next = all < bytes ? all : bytes;
        names_put(to, at + (uintptr_t)done, next - done, p.name, p.from + ahead);
        done = next;
    }
}

/* ---- exchanges ---- */
static const Exchange *exchange_of(const RankRun *r, int number)
{
    return &r->b->shards->exchange[number];
}

static uintptr_t buffer_of(const RankRun *r, bool send)
{
    const Shards *s = r->b->shards;
    return (uintptr_t)r->b->block + (uintptr_t)(s->at + (send ? s->send_at : s->recv_at));
}

static void move_names(RankRun *r, const Move *m, int n, uintptr_t packed, bool pack)
{
    for (int i = 0; i < n; i++, m++)
        for (int64_t k = 0; k < m->count; k++, packed += (uintptr_t)m->bytes) {
            const uintptr_t base =
                m->entry < 0 ? 0 : (uintptr_t)r->b->tensor[m->entry].mem[m->array];
            const uintptr_t at = base + (uintptr_t)(m->at + k * m->stride);
            if (base)
                copy_bytes(&r->names, pack ? at : packed, m->bytes, &r->names, pack ? packed : at);
        }
}

static int64_t bytes_below(const size_t *bytes, int rank)
{
    int64_t n = 0;
    for (int r = 0; r < rank; r++)
        n += (int64_t)bytes[r];
    return n;
}

/* Some rank sends other bytes than the receiver expects, which would wait for them. */
static bool sizes_differ(const Ranks *x, int number)
{
    const Exchange *e = exchange_of(&x->rank[0], number);
    bool differ = false;
    for (int r = 0; r < x->n; r++) {
        const Exchange *f = exchange_of(&x->rank[r], number);
        differ = differ || e->pairs != f->pairs || e->share_bytes != f->share_bytes;
        for (int k = 0; k < x->n; k++)
            differ = differ || f->send_bytes[k] != exchange_of(&x->rank[k], number)->recv_bytes[r];
    }
    return differ;
}

/* Part 0: elements to and from owners; part 1: what all ranks get. */
static void send_part(Ranks *x, int number, int part)
{
    for (int r = 0; r < x->n; r++) {
        const Exchange *e = exchange_of(&x->rank[r], number);
        const MoveList *l = &e->list[part ? LIST_SHARE : LIST_SEND];
        move_names(&x->rank[r], l->move, l->n, buffer_of(&x->rank[r], true), true);
    }
    for (int to = 0; to < x->n; to++)
        for (int r = 0; r < x->n; r++) {
            const Exchange *e = exchange_of(&x->rank[r], number),
                           *in = exchange_of(&x->rank[to], number);
            copy_bytes(&x->rank[r].names,
                       buffer_of(&x->rank[r], true) +
                           (uintptr_t)(part ? 0 : bytes_below(e->send_bytes, to)),
                       (int64_t)(part ? e->share_bytes : e->send_bytes[to]), &x->rank[to].names,
                       buffer_of(&x->rank[to], false) +
                           (uintptr_t)(part ? (int64_t)e->share_bytes * r
                                            : bytes_below(in->recv_bytes, r)));
        }
    for (int to = 0; to < x->n; to++) {
        const Exchange *e = exchange_of(&x->rank[to], number);
        const uintptr_t recv = buffer_of(&x->rank[to], false);
        if (!part)
            move_names(&x->rank[to], e->list[LIST_RECV].move, e->list[LIST_RECV].n, recv, false);
        for (int r = 0; part && r < x->n; r++) {
            const MoveList l = exchange_shared(e, r);
            move_names(&x->rank[to], l.move, l.n, recv + (uintptr_t)((int64_t)e->share_bytes * r),
                       false);
        }
    }
}

/* ---- all ranks ---- */
static bool is_beside_op(const ScheduleOp *op)
{
    return op->kind == SCHEDULE_EXCHANGE && op->beside;
}

/* Appends the exchanges of the second stream in [from, end), up to number `last` in it. */
static int order_beside(RankRun *r, int from, int end, int last)
{
    for (; from < end && last; from++)
        if (is_beside_op(&r->s->op[from])) {
            r->order[r->n++] = from;
            last = r->s->op[from].beside == last ? 0 : last;
        }
    return from;
}

static int next_fork(const Schedule *s, int from)
{
    while (from < s->n && s->op[from].kind != SCHEDULE_FORK)
        from++;
    return from;
}

/* An exchange of the second stream runs as early as that may: at the FORK ahead of it; or as late:
 * at the WAIT for it, or for one behind it. */
static void order_ops(RankRun *r, bool late)
{
    const Schedule *s = r->s;
    int begun = 0;
    r->n = r->at = 0;
    if (!late)
        order_beside(r, 0, next_fork(s, 0), -1);
    for (int i = 0; i < s->n; i++) {
        if (late && s->op[i].kind == SCHEDULE_WAIT)
            begun = order_beside(r, begun, i, s->op[i].beside);
        if (!late && s->op[i].kind == SCHEDULE_FORK)
            order_beside(r, i, next_fork(s, i + 1), -1);
        if (!is_beside_op(&s->op[i]))
            r->order[r->n++] = i;
    }
    if (late)
        order_beside(r, begun, s->n, -1);
}

/* Runs a rank's ops up to its next exchange. Returns its number; -1: there is none. */
static int run_to_exchange(Ranks *x, RankRun *r)
{
    while (r->at < r->n && !x->faulty) {
        const ScheduleOp *op = &r->s->op[r->order[r->at++]];
        if (op->kind == SCHEDULE_EXCHANGE)
            return op->what;
        if (op->stage)
            run_stage_of(x, r, op);
    }
    return -1;
}

/* The arrays of a step that callers own or that outlive it, where they are between steps. begins:
 * gives them their names; else compares them. */
static void outer_arrays(Ranks *x, RankRun *r, bool begins)
{
    const optc_binding *b = r->b;
    for (int k = 0; k < b->program->narray; k++) {
        const ProgArray *m = &b->program->array[k];
        const bool group = m->dom == GROUP;
        for (int i = 0; i < (group ? b->ngroup : b->nheld) && !array_temporary(m); i++) {
            const int source = group ? i : b->tensor[i].source,
                      owner = group ? b->ntensor + i : source,
                      state = group || m->kind != MEM_STATE ? source
                                                            : shards_state_entry(b, source, k);
            if (!group && i != state && !(m->slots.every && array_owned(b, m, i)))
                continue;
            const Area a = group ? group_area(b, k, i) : area_of(b, k, i, false, S_CALL);
            const uint64_t name = x->means.now[(int64_t)k * x->means.owners + owner];
            if (begins)
                write_area(r, &a, name);
            else if (m->kind == MEM_STATE || m->kind == MEM_P)
                read_area(x, r, &a, name,
                          (RankFault){.stage = -1, .array = k, .tensor = group ? -1 - i : source});
        }
    }
}

static bool begin_rank(Ranks *x, RankRun *r, const optc_binding *b, const Schedule *s, bool late)
{
    *r = (RankRun){.b = b, .s = s, .order = calloc((size_t)s->n + 1, sizeof *r->order)};
    if (!names_make(&r->names) || !r->order)
        return false;
    outer_arrays(x, r, true);
    order_ops(r, late);
    return true;
}

static optc_status wrong(const Ranks *x, const char *entry)
{
    const RankFault *f = &x->fault;
    const Program *p = x->means.p;
    char stage[200] = "after the last op";
    if (f->stage >= 0)
        snprintf(stage, sizeof stage, "stage %d (%s, %s)", f->stage, p->stage[f->stage].name,
                 p->stage[f->stage].where);
    return fail(OPTC_ERROR_SPEC,
                "internal error: the schedule of rule '%s' on %d ranks, entry %s, rank %d, %s: "
                "byte %lld of %s of %s %d %s",
                p->name, x->n, entry, f->rank, stage, (long long)f->at, p->array[f->array].name,
                f->tensor < 0 ? "group" : "tensor", f->tensor < 0 ? -1 - f->tensor : f->tensor,
                f->what);
}

static optc_status run_ranks(Ranks *x, const char *entry)
{
    for (;;) {
        int number = -1;
        for (int r = 0; r < x->n; r++) {
            const int next = run_to_exchange(x, &x->rank[r]);
            if (x->faulty)
                return wrong(x, entry);
            if (r && next != number)
                return fail(OPTC_ERROR_SPEC,
                            "internal error: the schedule of rule '%s' on %d ranks, entry %s: rank "
                            "0 has exchange %d where rank %d has exchange %d (-1: none)",
                            x->means.p->name, x->n, entry, number, r, next);
            number = next;
        }
        if (number < 0)
            break;
        if (sizes_differ(x, number))
            return fail(OPTC_ERROR_SPEC,
                        "internal error: the schedule of rule '%s' on %d ranks, entry %s: the "
                        "ranks disagree about the bytes of exchange %d",
                        x->means.p->name, x->n, entry, number);
        send_part(x, number, 0);
        send_part(x, number, 1);
    }
    for (int r = 0; r < x->n; r++)
        outer_arrays(x, &x->rank[r], false);
    return x->faulty ? wrong(x, entry) : OPTC_OK;
}

/* A state that starts as a copy of p: its entry has p when it is filled. */
static optc_status start_ranks(Ranks *x)
{
    for (int i = 0; x->rank[0].b->shards && i < x->rank[0].b->shards->nparams; i++)
        send_part(x, x->rank[0].b->shards->params[i], 0);
    for (int r = 0; r < x->n; r++)
        for (int k = 0; k < x->means.p->narray; k++)
            for (int i = 0; x->means.p->array[k].copies_p && i < x->rank[r].b->ntensor; i++) {
                const int entry = shards_state_entry(x->rank[r].b, i, k);
                if (entry < 0 || !x->rank[r].b->tensor[entry].mem[k])
                    continue;
                const Area a = area_of(x->rank[r].b, 0, entry, false, S_CALL);
                read_area(x, &x->rank[r], &a, x->means.now[i],
                          (RankFault){.stage = -1, .array = 0, .tensor = i});
            }
    return x->faulty ? wrong(x, "optc_bind_sharded") : OPTC_OK;
}

/* Entry and phase by number; -1: the start of states. */
static optc_status compare_ranks_phase(Ranks *x, optc_binding *const *b, int m, bool late)
{
    const int phases = program_phases(x->means.p), at = m < 0 ? 0 : m;
    const ProgEntry *entry = &x->means.p->entry[at / phases];
    bool ok = true;
    meaning_run(&x->means, &(ProgPhase){NULL, 0});       /* what arrays hold before it */
    memset(x->rank, 0, sizeof *x->rank * (size_t)x->n);
    for (int r = 0; r < x->n; r++)
        ok = begin_rank(x, &x->rank[r], b[r], schedule_of(b[r], at / phases, at % phases), late) &&
             ok;
    if (m >= 0)
        meaning_run(&x->means, &entry->phase[m % phases]);
    optc_status s = !ok ? OPTC_OK : m < 0 ? start_ranks(x) : run_ranks(x, entry->name);
    for (int r = 0; r < x->n; r++) {
        ok = ok && !x->rank[r].names.out;
        free(x->rank[r].names.at);
        free(x->rank[r].order);
    }
    return ok ? s : no_memory("schedule_verify");
}

optc_status schedule_compare_ranks(optc_binding *const *b, int ranks)
{
    Ranks x = {.n = ranks, .rank = calloc((size_t)ranks, sizeof *x.rank)};
    optc_status s =
        meaning_make(&x.means, b[0]) && x.rank ? OPTC_OK : no_memory("schedule_verify");
    const int runs = b[0]->rule->program->nentry * program_phases(b[0]->rule->program);
    const bool overlaps = b[0]->shards && b[0]->shards->noverlap;
    for (int m = -1; m < runs && s == OPTC_OK; m++)
        for (int late = 0; late <= (int)(m >= 0 && overlaps) && s == OPTC_OK; late++)
            s = compare_ranks_phase(&x, b, m, late);
    meaning_free(&x.means);
    free(x.rank);
    return s;
}

optc_status schedule_verify_ranks(const Program *p, const ScheduleOf *of)
{
    SchedulePlan *x = calloc((size_t)of->ranks, sizeof *x);
    optc_binding **b = calloc((size_t)of->ranks, sizeof *b);
    optc_status s = x && b ? OPTC_OK : no_memory("schedule_verify");
    ScheduleOf one = *of;
    for (one.rank = 0; one.rank < of->ranks && s == OPTC_OK; one.rank++) {
        s = schedule_plan(p, &one, false, &x[one.rank]);
        b[one.rank] = x[one.rank].binding;
    }
    if (s == OPTC_OK)
        s = schedule_compare_ranks(b, of->ranks);
    for (int r = 0; x && r < of->ranks; r++)
        schedule_plan_free(&x[r]);
    free(x);
    free(b);
    return s;
}

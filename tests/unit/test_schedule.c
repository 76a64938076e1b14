/* Schedules: the ops of every rule read what its program means, on one rank (schedule_verify.c) and
 * on several together (ranks_verify.c), and with a small workspace. Tasks, layouts and exchanges
 * that are damaged in one place are refused. */
#include "runtime/library/schedule/schedule.h"

#include "gen/gen.h"
#include "runtime/core/matrix/gpu_calls.h"
#include "runtime/core/memory/layout.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shard.h"
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/help.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

typedef struct Made {
    Arena arena;
    Gen gen;
    const Program *program;
} Made;

/* false: the wrapper refuses the rule */
static bool make(Made *m, const char *spec, const char *with, bool gpu)
{
    Diag d = {0};
    Source s;
    GenOptions o = {.with = with, .find = find_wrapper, .target = gpu ? &target_cuda : NULL};
    *m = (Made){.program = NULL};
    ck_assert_msg(find_spec(NULL, spec, &m->arena, &s, &d), "%s", d.text);
    bool ok = gen_compile(&m->gen, s, &o);
    m->program = ok ? program_make(&m->arena, m->gen.plan, NULL) : NULL;
    return ok;
}

static void drop(Made *m)
{
    gen_free(&m->gen);
    arena_free(&m->arena);
}

/* Matrices of one shape, which ranks exchange in groups; a wide, a tall and a small one; a stack;
 * vectors; a scalar. */
static int put_tensors(optc_tensor *t)
{
    static const int64_t dim[][3] = {{96, 64}, {96, 64},  {96, 64},  {96, 64}, {96, 64},
                                     {96, 64}, {40, 130}, {130, 40}, {7, 5},   {3, 8, 6},
                                     {64},     {1},       {33, 1},   {5000}};
    static const int rank[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 1, 0, 2, 1};
    const int n = (int)(sizeof rank / sizeof *rank);
    for (int i = 0; i < n; i++)
        t[i] = (optc_tensor){.rank = rank[i], .shape = dim[i]};
    return n;
}

enum { SMALL = 300000, MOST_RANKS = 4 }; /* SMALL bytes of workspace: several batches */

/* Several ranks are verified together: what one of them reads, another one has sent. */
static void verify(const char *rule, const char *with, bool gpu, int ranks)
{
    Made m;
    optc_tensor t[16];
    ScheduleOf of = {.tensor = t, .ntensor = put_tensors(t), .gpu = gpu, .ranks = ranks};
    if (make(&m, rule, with, gpu))
        for (; of.workspace <= SMALL; of.workspace += SMALL) {
            optc_status s = ranks > 1 ? schedule_verify_ranks(m.program, &of)
                                      : schedule_verify(m.program, &of);
            /* some rules refuse several ranks */
            ck_assert_msg(s == OPTC_OK || (ranks > 1 && !strstr(optc_message(), "internal error")),
                          "%s with %s, %s, %d ranks, workspace %lld: %s", rule,
                          with ? with : "nothing", gpu ? "cuda" : "cpu", ranks,
                          (long long)of.workspace, optc_message());
        }
    else
        ck_assert_msg(with != NULL, "%s: %s", rule, m.gen.diag.text);
    drop(&m);
}

/* Wrappers around AdamW and Muon. OPTC_ALL: up to four ranks, both devices. */
START_TEST(every_rule)
{
    const bool all = getenv("OPTC_ALL") != NULL;
    if (sanitized() && !all && _i % 40)        /* it takes ten times as long there */
        return;
    const char *name = optc_library_name(_i),
               *wrapper = strncmp(name, "wrappers/", 9) ? NULL : name + 9;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int gpu = 0; gpu < 2; gpu++) {
            if (!all && (ranks % 2 == 0 || gpu != (ranks == 3)))
                continue;
            verify(wrapper ? "adamw" : name, wrapper, gpu, ranks);
            if (wrapper)
                verify("muon", wrapper, gpu, ranks);
        }
}
END_TEST

/* ---- damage ---- */
static const struct {
    const char *rule, *with;
    int ranks;
} damaged[] = {{"lamb", "clip(1)", 1}, {"adafactor", NULL, 1}, {"shampoo", NULL, 1},
               {"muon", NULL, 1},      {"muon", NULL, 2},      {"soap", NULL, 1},
               {"adafactor", NULL, 3}, {"came", NULL, 1},      {"psgd_kron", NULL, 1}};

/* Rows below SHARING have temporaries that share memory; row MANY_BATCHES has several batches of
 * one variant. */
enum { SHARING = 2, MANY_BATCHES = 2 };

typedef struct Both {
    Made made;
    SchedulePlan shared, apart;
    optc_tensor t[16];
} Both;

static void open_both(Both *x, int i)
{
    ScheduleOf of = {.tensor = x->t,
                     .ntensor = put_tensors(x->t),
                     .gpu = true,
                     .ranks = damaged[i].ranks,
                     .workspace = SMALL};
    ck_assert(make(&x->made, damaged[i].rule, damaged[i].with, true));
    OK(schedule_plan(x->made.program, &of, false, &x->shared));
    OK(schedule_plan(x->made.program, &of, true, &x->apart));
    OK(schedule_compare(x->shared.binding, x->apart.binding));
}

static void close_both(Both *x)
{
    schedule_plan_free(&x->shared);
    schedule_plan_free(&x->apart);
    drop(&x->made);
}

static bool common(const int *x, int nx, const int *y, int ny)
{
    for (int i = 0; i < nx; i++)
        for (int k = 0; k < ny; k++)
            if (x[i] == y[k])
                return true;
    return false;
}

/* The second reads an array that the first one writes, for the same tensors. */
static bool follows(const ScheduleOp *first, const ScheduleOp *second)
{
    const ProgStage *s = first->stage, *t = second->stage;
    bool tensors = s->kind == S_GROUP || t->kind == S_GROUP ||
                   (s->variant == t->variant && first->batch == second->batch);
    return tensors && common(s->writes, s->nwrites, t->reads, t->nreads);
}

static bool refused(const Both *x)
{
    bool ok = schedule_compare(x->shared.binding, x->apart.binding) == OPTC_OK;
    ck_assert_msg(ok || strstr(optc_message(), "internal error: the schedule of rule"), "%s",
                  optc_message());
    return !ok;
}

static const ScheduleOp idle_op = {.kind = SCHEDULE_FORK, .what = -1, .batch = -1};

/* Each stage is left out once; two neighbours of which one reads what the other writes change
 * places; a batch's stage covers another batch. */
START_TEST(damaged_ops)
{
    Both x;
    int left_out = 0, swapped = 0, moved = 0;
    if (sanitized() && _i > MANY_BATCHES)
        return;
    open_both(&x, _i);
    optc_binding *b = x.shared.binding;
    for (int m = 0; m < b->program->nentry * program_phases(b->program); m++)
        for (int i = 0; i < b->schedule[m].n; i++) {
            ScheduleOp *t = &b->schedule[m].op[i], was = *t,
                       next = i + 1 < b->schedule[m].n ? t[1] : idle_op;
            if (!t->stage)
                continue;
            *t = idle_op;
            ck_assert_msg(refused(&x), "%s: op %d of phase %d is left out", damaged[_i].rule, i,
                          m);
            *t = was;
            left_out++;
            if (next.stage && follows(t, &next)) {
                t[0] = next;
                t[1] = was;
                ck_assert_msg(refused(&x), "%s: ops %d and %d of phase %d are swapped",
                              damaged[_i].rule, i, i + 1, m);
                t[0] = was;
                t[1] = next;
                swapped++;
            }
            for (int k = 0; k < b->nbatch && t->batch >= 0; k++)
                if (k != was.batch && b->batch[k].variant == b->batch[was.batch].variant &&
                    b->batch[k].units.n) {
                    t->batch = k;
                    ck_assert_msg(refused(&x), "%s: op %d of phase %d covers batch %d",
                                  damaged[_i].rule, i, m, k);
                    *t = was;
                    moved++;
                    break;
                }
        }
    ck_assert_msg(left_out > 3 && swapped > 0 && (moved > 0 || _i != MANY_BATCHES), "%d %d %d",
                  left_out, swapped, moved);
    close_both(&x);
}
END_TEST

/* A stage of which ops_ordered sees no arrays may run beside the next one, which reads its
 * result. */
START_TEST(damaged_order)
{
    Both x;
    int all = 0;
    if ((sanitized() && _i > MANY_BATCHES) || damaged[_i].ranks > 1)
        return;
    open_both(&x, _i);
    optc_binding *b = x.shared.binding;
    for (int m = 0; m < b->program->nentry * program_phases(b->program); m++)
        for (int i = 0; i + 1 < b->schedule[m].n && b->schedule[m].n <= MOST_SIDE_BY_SIDE; i++) {
            ScheduleOp *t = &b->schedule[m].op[i];
            const ProgStage *was = t->stage;
            if (!t->units || t->batch >= 0 || !t[1].units || t[1].batch >= 0 || !follows(t, t + 1))
                continue;
            ProgStage blind = *was;
            blind.nreads = blind.nwrites = 0;
            t->stage = &blind;
            ck_assert_msg(refused(&x), "%s: op %d of phase %d runs beside the next one",
                          damaged[_i].rule, i, m);
            t->stage = was;
            all++;
        }
    ck_assert_msg(all > 0 || b->nbatch, "%s: no ops without batches", damaged[_i].rule);
    close_both(&x);
}
END_TEST

/* Makes the pointers again, and all that layout_place counts. */
static void place_again(optc_binding *b)
{
    memset(b->units, 0, sizeof b->units);
    memset(b->blocks, 0, sizeof b->blocks);
    for (int i = 0; i < b->nbatch; i++) {
        b->batch[i].units.elems = 0;
        memset(&b->batch[i].blocks, 0, sizeof b->batch[i].blocks);
    }
    OK(layout_place(b));
}

/* A temporary outside the pool gets the address of another one. Where no phase needs both, that is
 * allowed. */
START_TEST(damaged_layout)
{
    Both x;
    LiveRanges l;
    int all = 0;
    if (sanitized() && _i > MANY_BATCHES)
        return;
    open_both(&x, _i);
    optc_binding *b = x.shared.binding;
    const Program *p = b->program;
    ck_assert(live_ranges_make(p, &l));
    for (int k = 0; k < p->narray; k++)
        for (int j = 0; j < p->narray; j++) {
            bool both = false, mine = array_temporary(&p->array[k]) &&
                                      array_temporary(&p->array[j]) && j != k && !b->batched[k] &&
                                      !b->batched[j] && !b->shards;
            for (int m = 0; mine && m < l.phases; m++) {
                const LiveRange u = l.range[k * l.phases + m], v = l.range[j * l.phases + m];
                both = both || (u.first < v.first && v.first < u.last);
            }
            const int64_t was = b->at[k];
            /* both have values of the same tensors */
            if (!both || !(p->array[k].held_by & p->array[j].held_by) ||
                p->array[k].kind != p->array[j].kind || p->array[k].dom != p->array[j].dom)
                continue;
            b->at[k] = b->at[j];
            place_again(b);
            ck_assert_msg(refused(&x), "%s: arrays %d and %d have one address", damaged[_i].rule, k,
                          j);
            b->at[k] = was;
            place_again(b);
            all++;
        }
    live_ranges_free(&l);
    ck_assert_msg(all > 0 || _i >= SHARING, "%s: no two temporaries", damaged[_i].rule);
    ck_assert(!refused(&x));
    close_both(&x);
}
END_TEST

/* ---- damage of exchanges ---- */
static const struct {
    const char *rule, *with;
    int ranks;
} exchanged[] = {{"lamb", "clip(1)", 2}, {"muon", NULL, 3}, {"adafactor", NULL, 3},
                 {"soap", NULL, 3},      {"came", NULL, 4}};
enum { OVERLAPPED = 1 }; /* row OVERLAPPED: exchanges beside stages */

typedef struct AllRanks {
    Made made;
    SchedulePlan plan[MOST_RANKS];
    optc_binding *b[MOST_RANKS];
    int n;
    optc_tensor t[16];
} AllRanks;

static bool ranks_refused(const AllRanks *x)
{
    bool ok = schedule_compare_ranks(x->b, x->n) == OPTC_OK;
    ck_assert_msg(ok || strstr(optc_message(), "internal error: the schedule of rule"), "%s",
                  optc_message());
    return !ok;
}

static void open_ranks(AllRanks *x, int i)
{
    ScheduleOf of = {.tensor = x->t,
                     .ntensor = put_tensors(x->t),
                     .gpu = true,
                     .ranks = x->n = exchanged[i].ranks,
                     .workspace = SMALL};
    ck_assert(make(&x->made, exchanged[i].rule, exchanged[i].with, true));
    for (; of.rank < of.ranks; of.rank++) {
        OK(schedule_plan(x->made.program, &of, false, &x->plan[of.rank]));
        x->b[of.rank] = x->plan[of.rank].binding;
    }
    OK(schedule_compare_ranks(x->b, x->n));
}

static void close_ranks(AllRanks *x)
{
    for (int r = 0; r < x->n; r++)
        schedule_plan_free(&x->plan[r]);
    drop(&x->made);
}

/* Each run of bytes has another address, or is left out (a fifth of them; OPTC_ALL: each). A rank
 * may have what it receives, because it folds the same segment or tile, or not read it; but all
 * that is sent is read somewhere. */
START_TEST(damaged_moves)
{
    AllRanks x;
    int received = 0, refused = 0;
    if (sanitized() && _i > 0)
        return;
    open_ranks(&x, _i);
    for (int r = 0; r < x.n; r++)
        for (int m = 0; m < NLIST * x.b[r]->shards->nexchange; m++) {
            MoveList *l = &x.b[r]->shards->exchange[m / NLIST].list[m % NLIST];
            const bool receives = m % NLIST == LIST_RECV || m % NLIST == LIST_SHARED;
            for (int k = 0; k < l->n; k += getenv("OPTC_ALL") ? 1 : sanitized() ? 50 : 5)
                for (int out = 0; out < 2; out++) {
                    const Move was = l->move[k];
                    l->move[k].at += out ? 0 : 4;
                    l->move[k].entry = out ? -1 : was.entry;
                    const bool found = ranks_refused(&x);
                    l->move[k] = was;
                    ck_assert_msg(found || receives,
                                  "%s: exchange %d, list %d, rank %d, run %d of array %d is %s",
                                  exchanged[_i].rule, m / NLIST, m % NLIST, r, k, was.array,
                                  out ? "left out" : "moved");
                    received += receives;
                    refused += found && receives;
                }
        }
    ck_assert_msg(received > 0 && refused > received / 3, "%d of %d", refused, received);
    ck_assert(!ranks_refused(&x));
    close_ranks(&x);
}
END_TEST

/* The index of the nth op of this kind of a rank's phase; -1: there is none. */
static int nth_op(const optc_binding *b, int phase, ScheduleKind kind, int nth)
{
    for (int i = 0; i < b->schedule[phase].n; i++)
        if (b->schedule[phase].op[i].kind == kind && !nth--)
            return i;
    return -1;
}

static void move_op(Schedule *s, int from, int to)
{
    const ScheduleOp op = s->op[from];
    for (int i = from; i != to; i += from < to ? 1 : -1)
        s->op[i] = s->op[from < to ? i + 1 : i - 1];
    s->op[to] = op;
}

/* Stages ahead of the op write what it sends. */
static bool sends_results(const optc_binding *b, int phase, int at)
{
    const Schedule *s = &b->schedule[phase];
    const Exchange *e = &b->shards->exchange[s->op[at].what];
    bool any = false;
    for (int i = 0; i < at; i++)
        for (int k = 0; k < e->nitem; k++)
            any = any || (s->op[i].stage && common(s->op[i].writes, s->op[i].nwrites,
                                                   &e->item[k].array, 1));
    return any;
}

/* Moves the nth op of this kind to the beginning or the end of the phase, or leaves it out: on all
 * ranks, or (rank >= 0) on one. */
typedef enum { OP_EARLY, OP_LATE, OP_OUT } OpDamage;
static bool damage_op(AllRanks *x, int phase, ScheduleKind kind, int nth, OpDamage how, int rank)
{
    int at[MOST_RANKS], to[MOST_RANKS];
    ScheduleOp was[MOST_RANKS];
    for (int r = 0; r < x->n; r++) {
        Schedule *s = &x->b[r]->schedule[phase];
        at[r] = nth_op(x->b[r], phase, kind, nth);
        was[r] = s->op[at[r]];
        to[r] = how == OP_EARLY ? 0 : how == OP_LATE ? s->n - 1 : at[r];
        if (rank >= 0 && rank != r)
            to[r] = at[r];
        else if (how == OP_OUT)
            s->op[at[r]] = (ScheduleOp){.kind = SCHEDULE_ADVANCE, .what = -1, .batch = -1};
        move_op(s, at[r], to[r]);
    }
    const bool found = ranks_refused(x);
    for (int r = 0; r < x->n; r++) {
        move_op(&x->b[r]->schedule[phase], to[r], at[r]);
        x->b[r]->schedule[phase].op[at[r]] = was[r];
    }
    return found;
}

/* Exchanges are left out by one rank or by all, run ahead of all stages, or behind them. Waits and
 * forks are left out. */
START_TEST(damaged_exchanges)
{
    static const ScheduleKind kind[] = {SCHEDULE_EXCHANGE, SCHEDULE_FORK, SCHEDULE_WAIT};
    AllRanks x;
    int refused[3][3] = {{0}};
    if (sanitized() && _i > 0)
        return;
    open_ranks(&x, _i);
    const Program *p = x.b[0]->program;
    for (int m = 0; m < p->nentry * program_phases(p); m++)
        for (int k = 0; k < 3; k++)
            for (int nth = 0, at; (at = nth_op(x.b[0], m, kind[k], nth)) >= 0; nth++)
                for (int how = k ? OP_OUT : OP_EARLY; how <= (int)OP_OUT; how++) {
                    const bool found = damage_op(&x, m, kind[k], nth, (OpDamage)how, -1),
                               must = !k && (how == OP_OUT || (how == OP_EARLY &&
                                                               sends_results(x.b[0], m, at)));
                    ck_assert_msg(found || !must, "%s: phase %d, op %d, damage %d",
                                  exchanged[_i].rule, m, at, how);
                    refused[k][how] += found;
                    for (int r = 0; r < x.n && !k && how == OP_OUT; r++)
                        ck_assert_msg(damage_op(&x, m, kind[k], nth, OP_OUT, r),
                                      "%s: phase %d, op %d is left out by rank %d",
                                      exchanged[_i].rule, m, at, r);
                }
    ck_assert(refused[0][OP_EARLY] > 0 && refused[0][OP_LATE] > 1 && refused[0][OP_OUT] > 2);
    ck_assert(_i != OVERLAPPED || (refused[1][OP_OUT] > 3 && refused[2][OP_OUT] > 4));
    ck_assert(!ranks_refused(&x));
    close_ranks(&x);
}
END_TEST

/* ---- steps of calls ---- */
/* Steps that work in place or decide what later ones do: without them, steps behind them still read
 * what some step wrote. */
static bool in_place(const CallStep *s)
{
    static const CallKernel kernel[] = {
        KERNEL_FACTOR_CHECK, KERNEL_FACTOR_STATS, KERNEL_FACTOR_JUDGE,  KERNEL_FACTOR_FILL,
        KERNEL_FACTOR_HOUSE, KERNEL_EIGEN_SIGNS,  KERNEL_EIGEN_MEASURE, KERNEL_EIGEN_CHECK,
        KERNEL_EIGEN_VALUES, KERNEL_EIGEN_JUDGE};
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
        if (s->kernel == kernel[i])
            return true;
    return s->beta != 0 || s->kind == STEP_BODY;
}

static bool calls_refused(const optc_binding *b)
{
    const optc_status s = calls_verify(b);
    ck_assert(s == OPTC_OK || (s == OPTC_ERROR_SPEC && strstr(optc_message(), "internal error")));
    return s != OPTC_OK;
}

/* A step that is left out, or whose result is behind its area. */
START_TEST(damaged_calls)
{
    static const char *const rule[] = {"shampoo", "soap", "rekls", "muon", "psgd_kron"};
    Made m;
    SchedulePlan plan;
    optc_tensor t[16];
    const ScheduleOf of = {.tensor = t + 6, .ntensor = put_tensors(t) > 8 ? 2 : 0, .ranks = 1,
                           .gpu = true, .calls = true};
    if (sanitized() && _i > 0)
        return;
    ck_assert(make(&m, rule[_i], NULL, true));
    OK(schedule_plan(m.program, &of, false, &plan));
    GpuCalls *c = plan.binding->gpu->calls;
    const int apart = getenv("OPTC_ALL") || c->nstep < 20 ? 1 : c->nstep / 20;
    OK(calls_verify(plan.binding));
    for (int i = 0; i < c->nstep; i += apart) {
        CallStep *s = &c->step[i], was = *s;
        PointerSet *to = &c->set[s->c];
        const Area *area = area_of(c, to->array);
        if (in_place(s))
            continue;
        s->kind = STEP_KERNEL;
        s->kernel = KERNEL_GATHER;
        ck_assert_msg(calls_refused(plan.binding), "%s: step %d is left out", rule[_i], i);
        *s = was;
        area = area && strcmp(area->name, "numbers") ? area : NULL;
        to->offset += area ? area->values : 0;
        ck_assert_msg(!area || calls_refused(plan.binding), "%s: step %d, %s", rule[_i], i,
                      area->name);
        to->offset -= area ? area->values : 0;
    }
    OK(calls_verify(plan.binding));
    for (int i = 0; i + 1 < c->narea; i++) {               /* an area begins inside of another */
        Area *area = &c->area[i + 1];
        const int64_t was = area->at;
        area->at = was && c->area[i].values ? c->area[i].at + 1 : was;
        ck_assert(area->at == was || calls_refused(plan.binding));
        area->at = was;
    }
    plan.binding->call_bytes += 4096;                      /* of temporaries */
    ck_assert(calls_refused(plan.binding));
    schedule_plan_free(&plan);
    drop(&m);
}
END_TEST

Suite *schedule_suite(void)
{
    Suite *s = suite_create("schedule");
    TCase *t = tcase_create("schedule");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_rule, 0, optc_library_size());
    tcase_add_loop_test(t, damaged_ops, 0, (int)(sizeof damaged / sizeof *damaged));
    tcase_add_loop_test(t, damaged_order, 0, (int)(sizeof damaged / sizeof *damaged));
    tcase_add_loop_test(t, damaged_layout, 0, (int)(sizeof damaged / sizeof *damaged));
    tcase_add_loop_test(t, damaged_moves, 0, (int)(sizeof exchanged / sizeof *exchanged));
    tcase_add_loop_test(t, damaged_exchanges, 0, (int)(sizeof exchanged / sizeof *exchanged));
    tcase_add_loop_test(t, damaged_calls, 0, 5);
    suite_add_tcase(s, t);
    return s;
}

/* Schedules: the ops of every rule read what its program means (schedule_verify.c), on one and
 * several ranks and with a small workspace. Tasks and layouts that are damaged in one place are
 * refused. */
#include "runtime/library/schedule/schedule.h"

#include "gen/gen.h"
#include "runtime/core/memory/layout.h"
#include "runtime/core/schedule/schedule_ops.h"
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

enum { SMALL = 300000 }; /* bytes of workspace: several batches */

static void verify(const char *rule, const char *with, bool gpu, int ranks)
{
    Made m;
    optc_tensor t[16];
    ScheduleOf of = {.tensor = t, .ntensor = put_tensors(t), .gpu = gpu, .ranks = ranks};
    if (make(&m, rule, with, gpu))
        for (; of.rank < ranks; of.rank++)
            for (of.workspace = 0; of.workspace <= SMALL; of.workspace += SMALL) {
                optc_status s = schedule_verify(m.program, &of);
                /* some rules refuse several ranks */
                ck_assert_msg(s == OPTC_OK ||
                                  (ranks > 1 && !strstr(optc_message(), "internal error")),
                              "%s with %s, %s, rank %d of %d, workspace %lld: %s", rule,
                              with ? with : "nothing", gpu ? "cuda" : "cpu", of.rank, ranks,
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
    if (sanitized() && !all && _i % 10)        /* it takes ten times as long there */
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

Suite *schedule_suite(void)
{
    Suite *s = suite_create("schedule");
    TCase *t = tcase_create("schedule");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_rule, 0, optc_library_size());
    tcase_add_loop_test(t, damaged_ops, 0, (int)(sizeof damaged / sizeof *damaged));
    tcase_add_loop_test(t, damaged_order, 0, (int)(sizeof damaged / sizeof *damaged));
    tcase_add_loop_test(t, damaged_layout, 0, (int)(sizeof damaged / sizeof *damaged));
    suite_add_tcase(s, t);
    return s;
}

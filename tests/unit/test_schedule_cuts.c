/* Schedules of sharded bindings whose tensors are not cut into even pieces along dimension 0: all
 * ranks together read what the rule means (ranks_verify.c). */
#include "runtime/library/schedule/schedule.h"

#include "gen/gen.h"
#include "runtime/core/api/api.h"
#include "runtime/core/memory/layout.h"
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/help.h"

#include <check.h>
#include <string.h>

enum { MOST_RANKS = 4, NTENSORS = 12 };
static const int64_t shape_of[NTENSORS][3] = {{96, 64}, {96, 64}, {96, 64},  {40, 130},
                                              {130, 40}, {7, 5},   {3, 8, 6}, {64},
                                              {1},       {33, 1},  {5000},    {300, 70}};
static const int rank_of[NTENSORS] = {2, 2, 2, 2, 2, 2, 3, 1, 0, 2, 1, 2};

/* uneven: along dimension 0, the first piece is the smallest. replicas: two ranks have one piece.
 * columns: along the last dimension */
typedef enum { UNEVEN, REPLICAS, COLUMNS, NCUT } OtherCut;

static int64_t cut_at(int64_t n, OtherCut how, int rank, int ranks)
{
    const int of = how == REPLICAS ? (ranks + 1) / 2 : ranks, r = how == REPLICAS ? rank / 2 : rank;
    return how == UNEVEN ? n * r * r / (of * of) : n * r / of;
}

static void cut_piece(const optc_tensor *t, OtherCut how, int rank, int ranks, int64_t *at,
                      int64_t *shape)
{
    const int k = how == COLUMNS ? t->rank - 1 : 0, next = rank + (how == REPLICAS ? 2 : 1);
    for (int i = 0; i < t->rank; i++)
        at[i] = 0, shape[i] = t->global_shape[i];
    if (!t->rank)
        return;
    at[k] = cut_at(t->global_shape[k], how, rank, ranks);
    shape[k] = cut_at(t->global_shape[k], how, next - next % (how == REPLICAS ? 2 : 1), ranks) -
               at[k];
}

/* The other ranks' answers when a rank binds: a greeting, the tensors, their pieces. */
typedef struct Others {
    optc_tensor *t;
    int n, ranks, call;
    OtherCut how;
} Others;

static int answer(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    Others *o = context;
    (void)stream;
    o->call++;
    for (int r = 0; r < o->ranks; r++) {
        int64_t *to = (int64_t *)(void *)((char *)recv + bytes * (size_t)r);
        memcpy(to, send, bytes);
        for (int i = 0; o->call == 3 && i < o->n; to += 1 + 3 * o->t[i].rank, i++)
            cut_piece(&o->t[i], o->how, r, o->ranks, to + 1 + o->t[i].rank,
                      to + 1 + 2 * o->t[i].rank);
    }
    return 0;
}

static int never(void *context, const void *send, const size_t *send_bytes, void *recv,
                 const size_t *recv_bytes, void *stream)
{
    (void)context, (void)send, (void)send_bytes, (void)recv, (void)recv_bytes, (void)stream;
    return 1;
}

static void no_unbind(optc_binding *b) { (void)b; }

static optc_status bind_cut(SchedulePlan *x, const Program *p, Others *o, int rank, bool gpu)
{
    static const Device cpu = {.name = "cpu", .unbind = no_unbind, .reaches = true},
                        cuda = {.name = "cuda", .unbind = no_unbind, .overlaps = true};
    int64_t piece[16][2][3];
    uintptr_t address = 4096;
    x->engine = (optc_engine){.device = gpu ? &cuda : &cpu, .threads = 1, .workspace = 1 << 30};
    x->rule = (optc_rule){.engine = &x->engine, .program = p, .device = x->engine.device};
    for (int i = 0; i < o->n; i++) {
        optc_tensor *t = &o->t[i];
        cut_piece(t, o->how, rank, o->ranks, piece[i][0], piece[i][1]);
        t->offset = piece[i][0], t->shape = piece[i][1];
        t->param = (void *)address, t->grad = (void *)(address + (1 << 20));
        address += 1 << 21;
    }
    const optc_group g = {.tensors = o->t, .ntensors = o->n};
    const optc_comm comm = {rank, o->ranks, o, answer, never};
    o->call = 0;
    optc_status s = bind_plan(&x->rule, &g, 1, &comm, PLAN_ONLY, &x->binding);
    if (s != OPTC_OK)
        return s;
    x->binding->block = (void *)((uintptr_t)1 << 44);
    return layout_place(x->binding);
}

START_TEST(other_cuts)
{
    static const char *const rules[][2] = {{"adamw", "clip(1)"}, {"lamb", NULL}, {"muon", NULL},
                                           {"adafactor", NULL}, {"came", NULL}, {"soap", NULL},
                                           {"shampoo", NULL}, {"adam_mini", NULL}};
    const bool gpu = _i % 2;
    Arena arena = {0};
    Gen gen = {0};
    Diag d = {0};
    Source s;
    GenOptions options = {.with = rules[_i][1], .find = find_wrapper,
                          .target = gpu ? &target_cuda : NULL};
    ck_assert(find_spec(NULL, rules[_i][0], &arena, &s, &d) && gen_compile(&gen, s, &options));
    const Program *p = program_make(&arena, gen.plan, NULL);
    for (int how = 0; how < (int)NCUT; how++)
        for (int ranks = 2; ranks <= MOST_RANKS && !(sanitized() && ranks > 2); ranks++) {
            optc_tensor t[16];
            Others o = {.t = t, .n = NTENSORS, .ranks = ranks, .how = (OtherCut)how};
            SchedulePlan x[MOST_RANKS] = {{.binding = NULL}};
            optc_binding *b[MOST_RANKS];
            for (int i = 0; i < o.n; i++)
                t[i] = (optc_tensor){.rank = rank_of[i], .global_shape = shape_of[i]};
            for (int r = 0; r < ranks; r++) {
                OK(bind_cut(&x[r], p, &o, r, gpu));
                b[r] = x[r].binding;
            }
            ck_assert_msg(schedule_compare_ranks(b, ranks) == OPTC_OK, "cut %d, %d ranks: %s", how,
                          ranks, optc_message());
            for (int r = 0; r < ranks; r++)
                schedule_plan_free(&x[r]);
        }
    gen_free(&gen);
    arena_free(&arena);
}
END_TEST

Suite *schedule_cuts_suite(void)
{
    Suite *s = suite_create("schedule_cuts");
    TCase *t = tcase_create("schedule_cuts");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, other_cuts, 0, 8);
    suite_add_tcase(s, t);
    return s;
}

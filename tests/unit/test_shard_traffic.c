/* Traffic of a sharded step: the number of calls, and the bytes that the ranks send. */
#include "tests/harness/rank_threads.h"
#include "tests/harness/shard_world.h"
#include "tests/harness/suites.h"
#include "tests/harness/watched_comm.h"

#include <stdlib.h>
#include <string.h>

/* The second step of all ranks is watched. */
typedef struct Watched {
    WorldCase c;
    int ranks;
    optc_loopback *loopback;
    RankData data[WORLD_RANKS];
    WatchedComm comm[WORLD_RANKS];
    char *failure[WORLD_RANKS];
} Watched;

static void watched_rank(int rank, void *arg)
{
    Watched *x = arg;
    optc_comm real, comm;
    optc_status s = optc_loopback_comm(x->loopback, rank, &real);
    comm = watched_comm(&x->comm[rank], &real);
    if (s == OPTC_OK)
        s = rank_bind(&x->data[rank], &x->c, &comm);
    if (s == OPTC_OK)
        s = rank_step(&x->data[rank], &x->c, 1);
    x->comm[rank].calls = 0;
    x->comm[rank].bytes = 0;
    if (s == OPTC_OK)
        s = rank_step(&x->data[rank], &x->c, 2);
    if (s != OPTC_OK) {
        x->failure[rank] = format("%s", optc_message());
        optc_loopback_fail(x->loopback);
    }
}

/* calls of each rank; bytes of all ranks */
typedef struct Sent { int calls; size_t bytes; } Sent;

static Sent sent(const optc_rule_options *o, const WorldTensor *t, int n, ShardCut cut, int ranks)
{
    optc_engine *e;
    Watched x = {.c = {.tensor = t, .n = n, .steps = 2}, .ranks = ranks};
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, o, &x.c.rule));
    OK(optc_loopback_open(ranks, NULL, &x.loopback));
    for (int i = 0; i < ranks; i++)
        rank_fill(&x.data[i], &x.c, cut, i, ranks);
    run_ranks(ranks, watched_rank, &x);
    Sent all = {.calls = x.comm[0].calls};
    for (int i = 0; i < ranks; i++) {
        ck_assert_msg(!x.failure[i], "%s: rank %d: %s", optc_rule_name(x.c.rule), i, x.failure[i]);
        ck_assert_int_eq(x.comm[i].calls, all.calls);
        all.bytes += x.comm[i].bytes;
    }
    for (int i = 0; i < ranks; i++)
        rank_free(&x.data[i], &x.c);
    optc_loopback_close(x.loopback);
    OK(optc_release(x.c.rule));
    OK(optc_close(e));
    return all;
}

/* All tensors share their calls. Elementwise rules need none. */
static const struct { optc_rule_options o; bool elementwise;
} rule_list[] = {
    {{.spec = "adamw", .with = "clip(1)"}, false},
    {{.spec = "lamb"}, false},
    {{.spec = "adafactor"}, false},
    {{.spec = "muon"}, false},
    {{.spec = "soap"}, false},
    {{.spec = "adamw"}, true},
    {{.spec = "lion"}, true},
};
enum { NRULES = sizeof rule_list / sizeof *rule_list };

START_TEST(calls_of_a_step)
{
    static const WorldTensor one[] = {
        {.name = "w", .shape = {2, {20, 12}}},
        {.name = "large", .shape = {2, {200, 80}}},
        {.name = "bias", .shape = {1, {33}}, .group = 1},
        {.name = "scale", .shape = {0, {0}}, .group = 1},
    };
    WorldTensor three[12];
    for (int k = 0; k < 12; k++)
        three[k] = one[k / 3];
    Sent few = sent(&rule_list[_i].o, one, 4, CUT_even, 3),
         many = sent(&rule_list[_i].o, three, 12, CUT_even, 3);
    ck_assert_msg(few.calls == many.calls, "%s: %d calls for 4 tensors, %d for 12",
                  rule_list[_i].o.spec, few.calls, many.calls);
    ck_assert_msg(rule_list[_i].elementwise ? !few.calls : few.calls > 0, "%s: %d calls",
                  rule_list[_i].o.spec, few.calls);
}
END_TEST

/* Muon sends each rank's momentum to the owners, and the update back: both without the part that
 * stays on its rank. With replicas only the update is sent. Matrices that no cut divides send
 * nothing. 5 % are for everything else. */
enum { RANKS = 8, MATRICES = 16, SIDE = 64, ELEMENTS = MATRICES * SIDE * SIDE };
START_TEST(bytes_of_muon)
{
    static const optc_rule_options muon = {.spec = "muon"};
    WorldTensor t[MATRICES],
        experts = {.name = "experts", .shape = {2, {16 * 24, 32}}, .split = 16};
    for (int k = 0; k < MATRICES; k++)
        t[k] = (WorldTensor){.name = "w", .shape = {2, {SIDE, SIDE}}};
    size_t pieces = sent(&muon, t, MATRICES, CUT_even, RANKS).bytes;
    size_t replicas = sent(&muon, t, MATRICES, CUT_replicas, RANKS).bytes;
    size_t split = sent(&muon, &experts, 1, CUT_even, RANKS).bytes;
    double most = 1.05 * 7 / 8 * 2 * sizeof(float) * ELEMENTS,
           all = 1.05 * 7 * sizeof(float) * ELEMENTS;
    ck_assert_msg((double)pieces <= most && (double)pieces > most / 2,
                  "pieces: %zu bytes, at most %.0f", pieces, most);
    ck_assert_msg((double)replicas <= all && (double)replicas > all / 2,
                  "replicas: %zu bytes, at most %.0f", replicas, all);
    ck_assert_msg(split <= 4096, "matrices that are not cut: %zu bytes", split);
}
END_TEST

/* Groups of tensors use the same buffers: 16 matrices on 8 ranks are two sets of 8. */
START_TEST(memory_of_groups)
{
    optc_engine *e;
    optc_rule *r;
    optc_shard_plan plan[2];
    optc_tensor t[MATRICES];
    const int64_t shape[] = {SIDE, SIDE};
    for (int k = 0; k < MATRICES; k++)
        t[k] = (optc_tensor){.name = "w", .rank = 2, .shape = shape};
    for (int small = 0; small < 2; small++) {
        OK(optc_open(&(optc_engine_options){.threads = 1, .workspace = small ? 1 << 17 : 0,
                                            .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
        OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r));
        OK(optc_plan_sharded(r, &(optc_group){.tensors = t, .ntensors = MATRICES}, 1, 0, RANKS,
                             &plan[small]));
        OK(optc_release(r));
        OK(optc_close(e));
    }
    /* each of two buffers held as much */
    int64_t sent = (int64_t)sizeof(float) * ELEMENTS / RANKS;
    /* one of them compares which tensors take part */
    ck_assert_int_eq(plan[0].collectives, 3);
    ck_assert_int_eq(plan[1].collectives, 5);
    ck_assert_msg(plan[0].buffers - plan[1].buffers == sent, "%lld and %lld bytes",
                  (long long)plan[0].buffers, (long long)plan[1].buffers);
    ck_assert(plan[0].sent == plan[1].sent);
    /* on a GPU: the second group's operands and the first one's results */
    ck_assert(!plan[0].groups && plan[1].groups == 2 && plan[1].results);
    ck_assert_msg(plan[0].overlapped == 0 &&
                      plan[1].overlapped == (double)sent * (RANKS - 1) / RANKS,
                  "%.0f of %.0f bytes", plan[1].overlapped, plan[1].sent);
}
END_TEST

/* SOAP's stages read t > 1, a truth value of the group. It is computed once, ahead of them: a stage
 * of the group between two stages of an owner would delay all results to the end. */
START_TEST(results_of_soap)
{
    optc_engine *e;
    optc_rule *r;
    optc_shard_plan plan;
    optc_tensor t[MATRICES];
    const int64_t shape[] = {SIDE, SIDE / 2};
    for (int k = 0; k < MATRICES; k++)
        t[k] = (optc_tensor){.name = "w", .rank = 2, .shape = shape};
    OK(optc_open(&(optc_engine_options){.threads = 1,
                                        .workspace = 1 << 18,
                                        .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "soap", .options = "limit=32"}, &r));
    OK(optc_plan_sharded(r, &(optc_group){.tensors = t, .ntensors = MATRICES}, 1, 0, RANKS, &plan));
    ck_assert(plan.groups > 1 && plan.results);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* The work of a matrix whose factors are computed as told. */
static double work_of(const char *left, const char *right)
{
    optc_engine *e;
    optc_rule *r;
    optc_shard_plan plan;
    char text[800];
    const int64_t shape[] = {24, 10};
    const optc_tensor t = {.name = "w", .rank = 2, .shape = shape};
    snprintf(text, sizeof text,
             "return optimizer { name = 'w', hyper = { lr = 0.1 },\n"
             "  state = { L = zeros 'rows', R = zeros 'cols' }, step = function() p = p - lr * g "
             "end,\n"
             "  matrix = function() %s %s p = p - lr * mm(mm(L, g), R) end }",
             left, right);
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    OK(optc_plan_sharded(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, 0, 2, &plan));
    OK(optc_release(r));
    OK(optc_close(e));
    return plan.mean_work;
}

/* Each staggered factor counts by its own period. */
START_TEST(work_of_staggers)
{
    double none = work_of("L = 0.5 * L", "R = 0.5 * R"),
           left = work_of("L = L + gram(g)", "R = 0.5 * R") - none,
           right = work_of("L = 0.5 * L", "R = R + gram(g.T)") - none,
           both = work_of("every(2, { stagger = true }, function() L = L + gram(g) end)",
                          "every(10, { stagger = true }, function() R = R + gram(g.T) end)") -
                  none,
           other = work_of("every(10, { stagger = true }, function() L = L + gram(g) end)",
                           "every(2, { stagger = true }, function() R = R + gram(g.T) end)") -
                   none;
    ck_assert_msg(left > 0 && right > 0 && left != right, "%g and %g", left, right);
    ck_assert_double_eq_tol(both, left / 2 + right / 10, 1e-9 * left);
    ck_assert_double_eq_tol(other, left / 10 + right / 2, 1e-9 * left);
}
END_TEST

/* The norm of all gradients: partials of segments, and the operands of small tensors, never all
 * gradients. */
START_TEST(bytes_of_clip)
{
    static const WorldTensor t[] = {{.name = "w", .shape = {2, {1024, 512}}},
                                    {.name = "u", .shape = {2, {777, 333}}}};
    Sent x = sent(&(optc_rule_options){.spec = "adamw", .with = "clip(1)"}, t, 2, CUT_even, 4);
    ck_assert_msg(x.bytes > 0 && x.bytes < 4 * 3 * 32768, "%zu bytes", x.bytes);
}
END_TEST

/* Rules with folds over rows and columns send partials, values per row and per column, and the rows
 * of cut tiles. With an owner they would send gradient and parameter there and the parameter back:
 * 2.6 times the gradient. The second matrix is cut inside of tiles and segments: ghosts get 3 to 61
 * of its 125 rows per rank. Replicas send states per column only. Limits are shares of the
 * gradient's bytes. */
START_TEST(bytes_of_columns)
{
    if (thinned(_i))
        return;
    static const struct { optc_rule_options o; double even, odd, replicas;
    } rule[] = {
        {{.spec = "adafactor"}, 0.07, 0.22, 0.015},
        {{.spec = "came"}, 0.13, 0.33, 0.03},
        /* tiles of both sizes, and folds of all columns' values */
        {{.spec = "both",
          .text =
              "return optimizer { name = 'both', hyper = { lr = 0.1 }, state = { r = zeros 'row', "
              "c = zeros 'col' },\n"
              "  step = function() r = 0.5 * r + rowsum(g) c = 0.5 * c + colmax(abs(g))\n"
              "    p = p - lr * (g + rowmin(g - c) + c * sum(c) / (1 + sum(abs(g * r)))) end }"},
         0.17,
         0.32,
         0.03},
    };
    static const WorldTensor odd[] = {{.name = "w", .shape = {2, {1000, 511}}}},
                             even[] = {{.name = "w", .shape = {2, {1024, 512}}},
                                       {.name = "u", .shape = {2, {512, 1024}}}};
    const optc_rule_options o = rule[_i].o;
    double two = 4.0 * 2 * 1024 * 512, one = 4.0 * 1000 * 511;
    size_t x = sent(&o, even, 2, CUT_even, RANKS).bytes,
           y = sent(&o, odd, 1, CUT_even, RANKS).bytes,
           z = sent(&o, even, 2, CUT_replicas, RANKS).bytes;
    ck_assert_msg((double)x <= rule[_i].even * two && (double)x > 0.02 * two,
                  "%s: %zu bytes of %.0f", o.spec, x, two);
    ck_assert_msg((double)y <= rule[_i].odd * one, "%s, cut tiles: %zu bytes of %.0f", o.spec, y,
                  one);
    ck_assert_msg((double)z <= rule[_i].replicas * two, "%s, replicas: %zu bytes of %.0f", o.spec,
                  z, two);
}
END_TEST

Suite *shard_traffic_suite(void)
{
    Suite *s = suite_create("shard_traffic");
    TCase *t = tcase_create("shard traffic");
    tcase_add_loop_test(t, calls_of_a_step, 0, NRULES);
    tcase_add_test(t, bytes_of_muon);
    tcase_add_test(t, memory_of_groups);
    tcase_add_test(t, results_of_soap);
    tcase_add_test(t, work_of_staggers);
    tcase_add_test(t, bytes_of_clip);
    tcase_add_loop_test(t, bytes_of_columns, 0, 3);
    suite_add_tcase(s, t);
    return s;
}

/* Sharded bindings on a GPU: the results equal those of a plain binding on the same GPU, bit for
 * bit. The ranks are threads that share the GPU, each with a stream of its own. */
#include "tests/gpu/device_side.h"
#include "tests/harness/rank_threads.h"
#include "tests/harness/shard_world.h"

#include "gen/gen.h"

#include <stdlib.h>
#include <string.h>

typedef struct ShardRule { const char *spec, *with, *options, *text, *types; } ShardRule;
static const ShardRule rules[] = {
    {.spec = "adamw", .with = "clip(1)"},
    {.spec = "lamb"},
    {.spec = "novograd"},
    {.spec = "adamp"},
    {.spec = "adafactor"},
    {.spec = "muon"},
    {.spec = "soap", .options = "interval=2"},
    {.spec = "shampoo", .options = "interval=2,side=40"},
    {.spec = "adamw", .with = "galore(3,2,0.25)"},
    {.spec = "muon", .with = "ema(0.9)"},
    /* states that begin as copies of the parameters; the second is the owner's */
    {.text = "return optimizer { name = 'copied', hyper = { lr = 0.1 }, state = { s = copy(p), r = "
             "copy(p) },\n"
             "  step = function() s = lerp(s, p, 0.5) p = p - lr * (g / (1 + sum(abs(r))) + p - s) "
             "r = r - g end,\n"
             "  matrix = function() s = lerp(s, p, 0.5) r = mm(gram(r) / (1 + sum(r * r)), r) + g\n"
             "    p = p - lr * r - lr * (p - s) end }"},
};
enum { NRULES = sizeof rules / sizeof *rules };

/* `odd` and `long` have more than one segment of 4096 elements, and cuts are inside of them. */
static const WorldTensor tensors[] = {
    {.name = "up", .shape = {2, {24, 16}}},
    {.name = "odd", .shape = {2, {130, 33}}},
    {.name = "stack", .shape = {3, {4, 8, 6}}, .pauses = true},
    {.name = "unused", .shape = {2, {12, 10}}, .never = true},
    {.name = "bias", .shape = {1, {33}}, .group = 1, .pauses = true},
    {.name = "long", .shape = {1, {5000}}, .group = 1},
    {.name = "scale", .shape = {0, {0}}, .group = 1},
};
enum { NTENSORS = sizeof tensors / sizeof *tensors };

typedef struct ShardPair { int ranks; ShardCut cut; } ShardPair;
static const ShardPair pairs[] = {
    {1, CUT_even},  {2, CUT_uneven}, {3, CUT_even},     {2, CUT_replicas}, {3, CUT_empty},
    {2, CUT_cols},  {3, CUT_uneven}, {3, CUT_replicas}, {2, CUT_even},     {3, CUT_cols},
    {3, CUT_mixed}, {2, CUT_empty},  {3, CUT_reversed}};
enum { NPAIRS = sizeof pairs / sizeof *pairs, FEW = 3 };

static optc_rule *compile(optc_engine *e, const ShardRule *x)
{
    optc_rule *r;
    optc_status s = optc_compile(e,
                                 &(optc_rule_options){.spec = x->spec,
                                                      .with = x->with,
                                                      .options = x->options,
                                                      .text = x->text,
                                                      .types = x->types},
                                 &r);
    ck_assert_msg(s == OPTC_OK, "%s: %s", x->spec ? x->spec : "text", optc_message());
    return r;
}

static optc_engine *open_gpu(void)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    return e;
}

/* On the emulated GPU each rule runs on a few worlds, which rotate; all pairs occur. */
START_TEST(shards)
{
    SHARED();
    if (thinned(_i % 4))                       /* suite shards has all rules, on the CPU */
        return;
    optc_engine *e = open_gpu();
    optc_rule *r = compile(e, &rules[_i]);
    bool small = getenv("OPTC_TEST_SMALL") != NULL;
    /* steps 1, 2, 10 and 11 */
    WorldCase c = {.rule = r,
                   .tensor = small ? tensors : world_tensors,
                   .n = small ? (int)NTENSORS : world_ntensors,
                   .steps = 4,
                   .at = {0, 0, 9, 0}};
    Reference *plain = reference_run(&c, false);
    for (int i = 0; i < (small ? FEW : NPAIRS); i++) {
        const ShardPair *x = &pairs[small ? (_i * FEW + i) % NPAIRS : i];
        char *m = world_run(plain, x->cut, x->ranks);
        ck_assert_msg(!m, "%s, %d ranks, %s: %s", optc_rule_name(r), x->ranks,
                      shard_cut_name[x->cut], m);
    }
    reference_free(plain);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Numbers that are drawn per element, of pieces that consist of runs: vectors inside of runs and
 * across them, blocks of codes, and dimensions whose runs are not equally far apart. */
START_TEST(draws_of_runs)
{
    SHARED();
    if (thinned(_i))
        return;
    static const WorldTensor t[] = {
        {.name = "w", .shape = {2, {20, 64}}},
        {.name = "odd", .shape = {2, {17, 30}}, .pauses = true},
        {.name = "s", .shape = {3, {3, 4, 12}}},
        {.name = "blocks", .shape = {2, {8, 1024}}},
        {.name = "v", .shape = {1, {129}}, .group = 1},
    };
    static const ShardRule drawing[] = {
        {.spec = "lion", .types = "param=bf16sr"},
        {.text =
             "return optimizer { name = 'noise', hyper = { lr = 0.01 }, state = { m = zeros },\n"
             "  step = function() m = 0.5 * m + g + normal() p = p - lr * m * random() end }"},
        {.spec = "adamw", .types = "param=bf16sr,m=q8,v=q8u"},
    };
    static const ShardPair cuts[] = {{2, CUT_cols}, {4, CUT_grid}};
    optc_engine *e = open_gpu();
    optc_rule *r = compile(e, &drawing[_i]);
    WorldCase c = {.rule = r, .tensor = t, .n = 5, .steps = 3};
    Reference *plain = reference_run(&c, false);
    for (int i = 0; i < 2; i++) {
        char *m = world_run(plain, cuts[i].cut, cuts[i].ranks);
        ck_assert_msg(!m, "%s, %d ranks, %s: %s", optc_rule_name(r), cuts[i].ranks,
                      shard_cut_name[cuts[i].cut], m);
    }
    reference_free(plain);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- captures ---- */
/* A single rank of a loopback: its collectives are copies on the stream. */
typedef struct Single {
    optc_engine *e; optc_rule *r; optc_loopback *l; WorldCase c; RankData d;
} Single;

static void single_open(Single *x, const ShardRule *rule, bool sharded)
{
    optc_comm comm;
    memset(x, 0, sizeof *x);
    x->e = open_gpu();
    x->r = compile(x->e, rule);
    x->c = (WorldCase){.rule = x->r, .tensor = tensors, .n = NTENSORS};
    rank_fill(&x->d, &x->c, CUT_even, 0, 1);
    if (sharded) {
        OK(optc_loopback_open(1, x->e, &x->l));
        OK(optc_loopback_comm(x->l, 0, &comm));
    }
    OK(rank_bind(&x->d, &x->c, sharded ? &comm : NULL));
    rank_grads(&x->d, &x->c, 1);                           /* the gradients that were bound */
}

static void single_close(Single *x)
{
    OK(optc_sync(x->d.binding));
    rank_free(&x->d, &x->c);
    optc_loopback_close(x->l);
    OK(optc_release(x->r));
    OK(optc_close(x->e));
}

static void same_singles(Single *a, Single *b)
{
    for (int k = 0; k < NTENSORS; k++) {
        rank_fetch(&a->d, k);
        rank_fetch(&b->d, k);
        ck_assert_msg(!memcmp(a->d.p[k], b->d.p[k], (size_t)a->d.piece[k].count * 4),
                      "%s: %s has other bits", optc_rule_name(a->r), tensors[k].name);
    }
}

/* Steps, replays and steps again equal the steps of a plain binding. */
START_TEST(captured)
{
    SHARED();
    static const ShardRule captures[] = {{.spec = "adamw", .with = "clip(1)"}, {.spec = "muon"}};
    Single plain, sharded;
    CUgraph graph;
    CUgraphExec exec;
    single_open(&plain, &captures[_i], false);
    single_open(&sharded, &captures[_i], true);
    for (int i = 0; i < 7; i++)
        OK(optc_step(plain.d.binding));
    CUstream st = rank_stream(&sharded.d);
    for (int i = 0; i < 3; i++)
        OK(optc_step(sharded.d.binding));
    OK(optc_sync(sharded.d.binding));
    /* the stages between two exchanges are one graph: the host launches each of them once */
    const LaunchList *p = &sharded.d.binding->gpu->launch_list[sharded.d.binding->gpu->step];
    int graphs = 0, covered = 0;
    for (int i = 0; i < p->nsegment; i++) {
        graphs += p->segment[i].exec != NULL;
        covered += p->segment[i].exec ? p->segment[i].n : 0;
    }
    ck_assert_msg(graphs && p->n - covered <= 5, "%s: %d of %d launches are in %d graphs",
                  optc_rule_name(sharded.r), covered, p->n, graphs);
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(sharded.d.binding));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        ck_assert(!d->cuGraphLaunch(exec, st));
    OK(optc_step(sharded.d.binding));
    same_singles(&plain, &sharded);
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    single_close(&plain);
    single_close(&sharded);
}
END_TEST

/* Rules whose steps differ exchange different arrays at different steps: a graph cannot choose. */
START_TEST(periods_refuse_captures)
{
    SHARED();
    static const ShardRule with_periods[] = {{.spec = "soap", .options = "interval=2"},
                                             {.spec = "adamw", .with = "clip(1),lookahead(2,0.5)"}};
    Single x, plain;
    CUgraph graph;
    single_open(&x, &with_periods[_i], true);
    single_open(&plain, &with_periods[_i], false);
    OK(optc_step(x.d.binding));
    OK(optc_sync(x.d.binding));
    CUstream st = rank_stream(&x.d);
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    FAILS(optc_step(x.d.binding), OPTC_ERROR_ARGUMENT,
          "exchanges arrays with other ranks at some steps");
    ck_assert(strstr(optc_message(), with_periods[_i].spec) && !x.d.binding->gpu->captured);
    d->cuStreamEndCapture(st, &graph);
    OK(optc_step(x.d.binding));                            /* goes on as if nothing had happened */
    OK(optc_step(plain.d.binding));
    OK(optc_step(plain.d.binding));
    same_singles(&plain, &x);
    single_close(&x);
    single_close(&plain);
}
END_TEST

/* ---- tuned results ---- */
typedef struct TunedRank {
    optc_engine *e;
    optc_rule *r;
    WorldCase c;
    RankData d;
    optc_comm comm;
    optc_status s;
} TunedRank;

static void tuned_rank(int rank, void *arg)
{
    TunedRank *x = &((TunedRank *)arg)[rank];
    x->s = rank_bind(&x->d, &x->c, &x->comm);
    if (x->s == OPTC_OK)
        x->s = rank_step(&x->d, &x->c, 1);
}

/* A result of the user, for the first stage with something to tune and all sizes. nth: which of the
 * numbers of threads that the model does not choose. Returns it. */
static int give_result(TunedRank *x, int nth, int *fn)
{
    const Plan *p = x->r->library->plan;
    Tuned t = {.ms = 1, .model_ms = 2, .samples = 9};
    for (*fn = 0; !stage_tunes(plan_at(p, *fn).stage);)
        ++*fn;
    const Stage *s = plan_at(p, *fn).stage;
    const Launch model = launch_model(p, s, 1 << 20);
    t.launch = model;
    for (int threads = 64; threads <= 1024; threads *= 2) {
        t.launch.v[KNOB_THREADS] = threads;
        if (threads != model.v[KNOB_THREADS] && launch_valid(p, s, &t.launch) && !nth--)
            break;
    }
    ck_assert(nth < 0 && launch_valid(p, s, &t.launch));
    for (int elements = 1; elements < 1 << 20; elements *= 2) {
        gpu_tuned_key(x->r, *fn, elements, &t.key);
        ck_assert(tuned_put(&x->e->library->tuned.user, &t));
    }
    return t.launch.v[KNOB_THREADS];
}

/* Ranks with engines of their own use the results of rank 0, also where their own files have
 * others. 0: rank 0 has a result. 1: it has none. Both: rank 1 has another, rank 2 has none. */
START_TEST(results_of_rank_0)
{
    SHARED();
    enum { TUNED_RANKS = 3 };
    TunedRank x[TUNED_RANKS];
    optc_loopback *l;
    int fn = 0, want = 0, other = 0;
    memset(x, 0, sizeof x);
    for (int i = 0; i < TUNED_RANKS; i++) {
        x[i].e = open_gpu();
        x[i].r = compile(x[i].e, &rules[0]);
        x[i].c = (WorldCase){.rule = x[i].r, .tensor = tensors, .n = NTENSORS};
        rank_fill(&x[i].d, &x[i].c, CUT_even, i, TUNED_RANKS);
    }
    OK(optc_loopback_open(TUNED_RANKS, x[0].e, &l));
    other = give_result(&x[1], 0, &fn);
    if (_i == 0)
        want = give_result(&x[0], 1, &fn);
    ck_assert_int_ne(want, other);
    for (int i = 0; i < TUNED_RANKS; i++)
        OK(optc_loopback_comm(l, i, &x[i].comm));
    run_ranks(TUNED_RANKS, tuned_rank, x);
    for (int i = 0; i < TUNED_RANKS; i++) {
        ck_assert_msg(x[i].s == OPTC_OK, "rank %d: %s", i, optc_status_name(x[i].s));
        int threads = x[i].d.binding->gpu->code->launch[fn].v[KNOB_THREADS];
        ck_assert_msg(_i ? threads != other : threads == want, "rank %d: %d threads", i, threads);
        ck_assert_msg(_i || strstr(optc_rule_path(x[i].r), i ? "tuned (rank 0" : "tuned (user"),
                      "rank %d: %s", i, optc_rule_path(x[i].r));
    }
    for (int i = 0; i < TUNED_RANKS; i++) {
        rank_free(&x[i].d, &x[i].c);
        OK(optc_release(x[i].r));
    }
    optc_loopback_close(l);
    for (int i = 0; i < TUNED_RANKS; i++)
        OK(optc_close(x[i].e));
}
END_TEST

void add_shards(TCase *t)
{
    tcase_add_loop_test(t, draws_of_runs, 0, 3);
    tcase_add_loop_test(t, results_of_rank_0, 0, 2);
    tcase_add_loop_test(t, captured, 0, 2);
    tcase_add_loop_test(t, periods_refuse_captures, 0, 2);
    tcase_add_loop_test(t, shards, 0, NRULES);
}

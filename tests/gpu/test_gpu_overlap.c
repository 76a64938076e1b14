/* Exchanges of a sharded binding beside its stages: the order of the work that a step enqueues, and
 * results that do not depend on which of two streams is faster. On the emulated GPU streams can be
 * late (emu_late of tests/emu). */
#include "tests/gpu/device_side.h"
#include "tests/harness/shard_world.h"

#include <stdlib.h>
#include <string.h>

static const char copied[] = /* the owner's state starts as a copy of p, and its
                                            * stages write p */
    "return optimizer { name = 'copied', hyper = { lr = 0.1 }, state = { s = copy(p), r = copy(p) "
    "},\n"
    "  step = function() s = lerp(s, p, 0.5) p = p - lr * (g / (1 + sum(abs(r))) + p - s) r = r - "
    "g end,\n"
    "  matrix = function() s = lerp(s, p, 0.5) r = mm(gram(r) / (1 + sum(r * r)), r) + g\n"
    "    p = p - lr * r - lr * (p - s) end }";
static const struct { const char *spec, *with, *options, *text; int64_t workspace; } rules[] = {
    {.spec = "muon", .workspace = 1 << 16},
    {.text = copied, .workspace = 1 << 16},
    {.spec = "soap", .options = "interval=2", .workspace = 1 << 18},
    {.spec = "muon", .with = "clip(1)", .workspace = 1 << 16},
};
enum { NRULES = sizeof rules / sizeof *rules };

static const WorldTensor tensors[] = {
    {.name = "a", .shape = {2, {48, 32}}}, {.name = "b", .shape = {2, {48, 32}}, .pauses = true},
    {.name = "c", .shape = {2, {48, 32}}}, {.name = "d", .shape = {2, {32, 48}}},
    {.name = "e", .shape = {2, {40, 33}}}, {.name = "v", .shape = {1, {99}}, .group = 1},
};
/* a group has a 64th of the workspace, or one tensor */
enum { NTENSORS = sizeof tensors / sizeof *tensors };

/* ---- what a step enqueues ---- */
typedef enum { WORK_KERNEL = 'k', WORK_EXCHANGE = 'x', WORK_WAIT = 'w' } Work;
typedef struct Enqueued { Work kind; void *stream; } Enqueued;
enum { MOST_ENQUEUED = 4096 };
/* fails: the exchange that fails, from 1; 0: none. blind: streams do not wait for each other */
static struct {
    Enqueued v[MOST_ENQUEUED];
    int n, exchanges, fails;
    const Driver *real;
    bool blind;
} record;

static void enqueued(Work kind, void *stream)
{
    if (record.n < MOST_ENQUEUED)
        record.v[record.n++] = (Enqueued){kind, stream};
}

static int launch_recorded(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx,
                           unsigned by, unsigned bz, unsigned shared, CUstream s, void **args,
                           void **more)
{
    enqueued(WORK_KERNEL, s);
    return record.real->cuLaunchKernel(f, x, y, z, bx, by, bz, shared, s, args, more);
}

static int graph_recorded(CUgraphExec e, CUstream s)
{
    enqueued(WORK_KERNEL, s);
    return record.real->cuGraphLaunch(e, s);
}

static int wait_recorded(CUstream s, CUevent e, unsigned flags)
{
    enqueued(WORK_WAIT, s);
    return record.blind ? 0 : record.real->cuStreamWaitEvent(s, e, flags);
}

static int exchange_recorded(void *context, const void *send, const size_t *send_bytes, void *recv,
                             const size_t *recv_bytes, void *stream)
{
    const optc_comm *c = context;
    enqueued(WORK_EXCHANGE, stream);
    if (++record.exchanges == record.fails)
        return 1;
    return c->all_to_all(c->context, send, send_bytes, recv, recv_bytes, stream);
}

static int gather_passed(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    const optc_comm *c = context;
    return c->all_gather(c->context, send, recv, bytes, stream);
}

/* ---- one rank, all of whose tensors it owns ---- */
typedef struct Single {
    optc_engine *e;
    optc_rule *r;
    optc_loopback *l;
    WorldCase c;
    RankData d;
    Driver driver;                                         /* records */
    optc_comm comm;
} Single;

static void single_open(Single *x, int rule, bool sharded)
{
    memset(x, 0, sizeof *x);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .workspace = rules[rule].workspace,
                                        .cache_dir = getenv("OPTC_TEST_CACHE")}, &x->e));
    OK(optc_compile(x->e,
                    &(optc_rule_options){.spec = rules[rule].spec,
                                         .with = rules[rule].with,
                                         .options = rules[rule].options,
                                         .text = rules[rule].text},
                    &x->r));
    x->c = (WorldCase){.rule = x->r, .tensor = tensors, .n = NTENSORS};
    rank_fill(&x->d, &x->c, CUT_even, 0, 1);
    if (sharded) {
        OK(optc_loopback_open(1, x->e, &x->l));
        OK(optc_loopback_comm(x->l, 0, &x->comm));
    }
    optc_comm recorded = {.ranks = 1, .context = &x->comm, .all_gather = gather_passed,
                          .all_to_all = exchange_recorded};
    OK(rank_bind(&x->d, &x->c, sharded ? &recorded : NULL));
    x->driver = *x->e->gpu->d;
    x->driver.cuLaunchKernel = launch_recorded;
    x->driver.cuGraphLaunch = graph_recorded;
    x->driver.cuStreamWaitEvent = wait_recorded;
    record.real = x->e->gpu->d;
    record.blind = false;
    record.fails = 0;
    if (sharded)
        x->e->gpu->d = &x->driver;
}

static void single_close(Single *x)
{
    x->e->gpu->d = record.real;
    rank_free(&x->d, &x->c);
    optc_loopback_close(x->l);
    OK(optc_release(x->r));
    OK(optc_close(x->e));
}

static bool equal_params(Single *a, Single *b)
{
    bool same = true;
    for (int k = 0; k < NTENSORS; k++) {
        rank_fetch(&a->d, k);
        rank_fetch(&b->d, k);
        same = same && !memcmp(a->d.p[k], b->d.p[k], (size_t)a->d.piece[k].count * 4);
    }
    return same;
}

/* The stages of a group are launched after the next group's exchange was enqueued in another
 * stream. j: the binding's stream waits for an exchange; f: the exchanges' stream waits for the
 * binding's; s: stages; x: an exchange in the exchanges' stream, !: in the binding's. */
START_TEST(enqueued_ahead)
{
    SHARED();
    Single x;
    single_open(&x, 0, true);
    const void *own = rank_stream(&x.d);
    for (int step = 1; step <= 2; step++)
        OK(rank_step(&x.d, &x.c, step));
    rank_grads(&x.d, &x.c, 3);
    record.n = 0;
    OK(optc_step(x.d.binding));                            /* its stages are graphs by now */
    char order[MOST_ENQUEUED + 1];
    int n = 0;
    for (int i = 0; i < record.n; i++) {
        const Enqueued *e = &record.v[i];
        char c = e->kind == WORK_EXCHANGE ? (e->stream == own ? '!' : 'x')
                 : e->kind == WORK_WAIT   ? (e->stream == own ? 'j' : 'f')
                                          : (e->stream == own ? 's' : ' ');
        if (c != ' ' && (n ? c != 's' || order[n - 1] != 's' : c == 'f'))
            /* from the first fork on; neighbouring stages are one */
            order[n++] = c;
    }
    order[n] = 0;
    /* five groups: operands of the first two, stages of other tensors, then group by group */
    ck_assert_str_eq(order, "fxxs" "jsxfx" "jsxfx" "jsxfx" "jsfx" "jsfx" "js");
    OK(optc_sync(x.d.binding));
    single_close(&x);
}
END_TEST

/* Steps of a sharded binding wait for other ranks, so their times do not show which launch is
 * faster. An adopted launch would also be missing in the graphs of its stages between two
 * exchanges. */
START_TEST(not_tuned_live)
{
    SHARED();
    Single plain, x;
    setenv("OPTC_TUNE_LIVE", "0.5", 1);
    single_open(&plain, 0, false);
    single_open(&x, 0, true);
    unsetenv("OPTC_TUNE_LIVE");
    ck_assert(plain.d.binding->gpu->live && !x.d.binding->gpu->live);
    single_close(&x);
    single_close(&plain);
}
END_TEST

/* ---- results ---- */
/* Steps with graphs, pauses of a tensor and periods. order: of emu_late; blind: streams do not wait
 * for each other */
static bool steps_equal(int rule, int order, bool blind)
{
    int (*late)(int) = find_late();
    Single plain, x;
    single_open(&plain, rule, false);
    single_open(&x, rule, true);
    if (late)
        late(order);
    record.blind = blind;
    for (int step = 1; step <= 4; step++) {
        OK(rank_step(&plain.d, &plain.c, step));
        OK(rank_step(&x.d, &x.c, step));
    }
    OK(optc_sync(x.d.binding));
    if (late)
        late(0);
    bool same = equal_params(&plain, &x);
    single_close(&x);
    single_close(&plain);
    return same;
}

START_TEST(any_order_of_streams)
{
    SHARED();
    if (thinned(_i))
        return;
    if (_i == NRULES - 1 && find_late() && !getenv("OPTC_ALL"))
        return;
    for (int order = 0; order < (find_late() ? 3 : 1); order++)
        ck_assert_msg(steps_equal(_i, order, false), "rule %d: other bits in order %d", _i, order);
    /* Without waits the exchanges are too late in order 1, and the stages in order 2. */
    for (int order = 1; order < (find_late() && _i == 0 ? 3 : 0); order++)
        ck_assert_msg(!steps_equal(_i, order, true),
                      "order %d does not show that waits are missing", order);
}
END_TEST

/* Several ranks. A loopback waits for the stream that exchanges, so other streams are late. */
START_TEST(ranks_in_groups)
{
    SHARED();
    static const struct { int ranks; ShardCut cut; } pair[] = {
        {2, CUT_uneven}, {3, CUT_cols}, {3, CUT_mixed}};
    int (*late)(int) = find_late();
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .workspace = rules[_i].workspace,
                                        .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = rules[_i].spec, .text = rules[_i].text}, &r));
    WorldCase c = {.rule = r, .tensor = tensors, .n = NTENSORS, .steps = 3};
    Reference *plain = reference_run(&c, false);
    for (int i = 0; i < 3; i++) {
        if (late)
            late(1);
        char *m = world_run(plain, pair[i].cut, pair[i].ranks);
        if (late)
            late(0);
        ck_assert_msg(!m, "%s, %d ranks, %s: %s", optc_rule_name(r), pair[i].ranks,
                      shard_cut_name[pair[i].cut], m);
    }
    reference_free(plain);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Both streams are part of the caller's graph. */
START_TEST(captured_with_its_exchanges)
{
    SHARED();
    Single plain, x;
    CUgraph graph;
    CUgraphExec exec;
    single_open(&plain, 0, false);
    single_open(&x, 0, true);
    rank_grads(&plain.d, &plain.c, 1);
    rank_grads(&x.d, &x.c, 1);
    for (int i = 0; i < 7; i++)
        OK(optc_step(plain.d.binding));
    for (int i = 0; i < 3; i++)
        OK(optc_step(x.d.binding));
    OK(optc_sync(x.d.binding));
    CUstream st = rank_stream(&x.d);
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(x.d.binding));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        ck_assert(!d->cuGraphLaunch(exec, st));
    OK(optc_step(x.d.binding));
    OK(optc_sync(x.d.binding));
    ck_assert(equal_params(&plain, &x));
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    single_close(&x);
    single_close(&plain);
}
END_TEST

/* Every exchange of a step fails once. The binding's stream then waits for the exchanges before it,
 * so that memory is not freed ahead of them. */
START_TEST(joined_after_failures)
{
    SHARED();
    for (int at = 1; at <= 10; at += at > 2 && find_late() && !getenv("OPTC_ALL") ? 4 : 1) {
        Single x;
        single_open(&x, 0, true);
        OK(rank_step(&x.d, &x.c, 1));
        record.n = 0;
        record.exchanges = 0;
        record.fails = at;
        FAILS(optc_step(x.d.binding), OPTC_ERROR_DEVICE,
              "communication with the other ranks failed");
        const Enqueued *last = &record.v[record.n - 1];
        ck_assert_msg(last->kind == WORK_WAIT && last->stream == rank_stream(&x.d), "exchange %d",
                      at);
        FAILS(optc_step(x.d.binding), OPTC_ERROR_DEVICE, "an earlier exchange");
        single_close(&x);
    }
}
END_TEST

void add_overlap(TCase *t)
{
    tcase_add_test(t, enqueued_ahead);
    tcase_add_test(t, captured_with_its_exchanges);
    tcase_add_test(t, joined_after_failures);
    tcase_add_test(t, not_tuned_live);
    tcase_add_loop_test(t, any_order_of_streams, 0, NRULES);
    tcase_add_loop_test(t, ranks_in_groups, 0, 2);
}

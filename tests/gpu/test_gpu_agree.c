/* Sharded bindings on a GPU whose ranks do not agree: a gradient on some ranks only, different
 * guards, or a rank that cannot run. No rank changes anything, and the next call on every rank
 * names the tensor or the rank. The ranks are threads that share the GPU. */
#include "tests/gpu/device_side.h"
#include "tests/harness/rank_threads.h"
#include "tests/harness/shard_world.h"

#include <stdlib.h>
#include <string.h>

/* `even` is cut between segments of 4096 elements, `odd` inside of one. */
static const WorldTensor tensors[] = {
    {.name = "odd", .shape = {2, {130, 33}}},
    {.name = "bias", .shape = {1, {33}}, .group = 1},
    {.name = "even", .shape = {2, {64, 128}}, .group = 1},
    {.name = "scale", .shape = {0, {0}}, .group = 1},
};
enum { NTENSORS = sizeof tensors / sizeof *tensors, RANKS = 3, LACKED = 1 };
/* Each rule compares the ranks at another place: with the partials; ahead of all_to_all; ahead of a
 * pass that writes states; and ahead of products that write states, where the host waits. */
static const char *const kept_early =
    "return optimizer { name = 'early', hyper = { lr = 0.1 }, state = { s = zeros },\n"
    "  step = function() s = s + abs(g)  local n = sum(s) p = p - lr * g / n / t end }";
typedef struct AgreeRule { const char *spec, *with, *options, *text; bool early; } AgreeRule;
static const AgreeRule rules[] = {{.spec = "adamw", .with = "clip(1)"},
                                  {.spec = "muon"},
                                  {.early = true},
                                  {.spec = "soap", .options = "interval=1"}};
enum { NRULES = sizeof rules / sizeof *rules };

typedef struct Crew {
    optc_engine *e;
    optc_rule *r;
    optc_loopback *l;
    WorldCase c, lacks;                        /* lacks: LACKED has no gradient at step 2 */
    WorldTensor without[NTENSORS];
    int ranks, lacking;                        /* lacking: the rank without that gradient */
    CUdeviceptr guard[RANKS];
    /* the guards' values at step 2; all 0: there are no guards */
    float set[RANKS];
    RankData d[RANKS];
    optc_comm comm[RANKS];
    optc_status status[RANKS];
    char message[RANKS][800];
} Crew;

static void crew_open(Crew *w, const AgreeRule *x, int ranks)
{
    memset(w, 0, sizeof *w);
    w->ranks = ranks;
    w->lacking = -1;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &w->e));
    OK(optc_compile(w->e,
                    &(optc_rule_options){.spec = x->spec,
                                         .with = x->with,
                                         .options = x->options,
                                         .text = x->early ? kept_early : x->text},
                    &w->r));
    OK(optc_loopback_open(ranks, w->e, &w->l));
    memcpy(w->without, tensors, sizeof tensors);
    w->without[LACKED].pauses = true;
    w->c = (WorldCase){.rule = w->r, .tensor = tensors, .n = NTENSORS};
    w->lacks = (WorldCase){.rule = w->r, .tensor = w->without, .n = NTENSORS};
    for (int i = 0; i < ranks; i++) {
        OK(optc_loopback_comm(w->l, i, &w->comm[i]));
        rank_fill(&w->d[i], &w->c, CUT_even, i, ranks);
    }
}

static void crew_close(Crew *w)
{
    for (int i = 0; i < w->ranks; i++) {
        rank_free(&w->d[i], &w->c);
        if (w->guard[i])
            d->cuMemFree_v2(w->guard[i]);
    }
    optc_loopback_close(w->l);
    OK(optc_release(w->r));
    OK(optc_close(w->e));
}

static void crew_note(Crew *w, int rank, optc_status s)
{
    w->status[rank] = s;
    snprintf(w->message[rank], sizeof *w->message, "%s", s == OPTC_OK ? "" : optc_message());
    if (s != OPTC_OK && s != OPTC_ERROR_ARGUMENT)
        optc_loopback_fail(w->l);
}

static void first_step(int rank, void *arg)
{
    Crew *w = arg;
    optc_status s = rank_bind(&w->d[rank], &w->c, &w->comm[rank]);
    if (s == OPTC_OK && w->guard[rank])
        s = optc_set_guard(w->d[rank].binding, (void *)(uintptr_t)w->guard[rank], OPTC_F32);
    if (s == OPTC_OK)
        s = rank_step(&w->d[rank], &w->c, 1);
    crew_note(w, rank, s == OPTC_OK ? optc_sync(w->d[rank].binding) : s);
}

static void second_step(int rank, void *arg)
{
    Crew *w = arg;
    optc_status s = rank_step(&w->d[rank], rank == w->lacking ? &w->lacks : &w->c, 2);
    crew_note(w, rank, s == OPTC_OK ? optc_sync(w->d[rank].binding) : s);
}

static void run_crew(Crew *w, void (*fn)(int rank, void *arg), optc_status want)
{
    run_ranks(w->ranks, fn, w);
    for (int i = 0; i < w->ranks; i++)
        ck_assert_msg(w->status[i] == want, "%s, rank %d of %d: %s: %s", optc_rule_name(w->r), i,
                      w->ranks, optc_status_name(w->status[i]), w->message[i]);
}

/* Parameters and states of a rank, one after another. */
static size_t rank_values(const Crew *w, int rank, double *to)
{
    optc_binding *b = w->d[rank].binding;
    size_t n = 0;
    for (int k = 0; k < NTENSORS; k++) {
        rank_fetch(&w->d[rank], k);
        for (int64_t i = 0; i < w->d[rank].piece[k].count; i++)
            to[n++] = ((float *)w->d[rank].p[k])[i];
        for (int j = 0; j < optc_rule_states(w->r); j++) {
            optc_state_info info;
            optc_state_view view;
            int has = 0, owner = -1;
            OK(optc_rule_state(w->r, j, &info));
            if (!strcmp(info.domain, "group"))
                continue;
            OK(optc_has_state(b, k, info.name, &has));
            if (has)
                OK(optc_state_rank(b, k, info.name, &owner));
            if (!has || (owner >= 0 && owner != rank))
                continue;
            OK(optc_state(b, k, info.name, &view));
            OK(optc_state_read(b, k, info.name, to + n, view.count));
            n += (size_t)view.count;
        }
    }
    return n;
}
enum { ALL_VALUES = 1 << 18 };

/* Nothing has changed since `was`, and t is 1. */
static void check_kept(const Crew *w, double *const *was, const size_t *n)
{
    double *now = malloc(sizeof *now * ALL_VALUES);
    for (int rank = 0; rank < w->ranks; rank++) {
        int64_t t = 0;
        ck_assert_uint_eq(rank_values(w, rank, now), n[rank]);
        for (size_t i = 0; i < n[rank]; i++)
            ck_assert_msg(!memcmp(&now[i], &was[rank][i], sizeof *now),
                          "%s, %d ranks: value %zu of rank %d changed", optc_rule_name(w->r),
                          w->ranks, i, rank);
        OK(optc_get_t(w->d[rank].binding, 0, &t));
        ck_assert_msg(t == 1, "%s: t is %lld on rank %d", optc_rule_name(w->r), (long long)t, rank);
    }
    free(now);
}

static void check_refused(Crew *w, const char *says)
{
    double *was[RANKS];
    size_t n[RANKS];
    run_crew(w, first_step, OPTC_OK);
    for (int i = 0; i < w->ranks; i++) {
        n[i] = rank_values(w, i, was[i] = malloc(sizeof **was * ALL_VALUES));
        if (w->guard[i])
            ck_assert(!d->cuMemcpyHtoDAsync_v2(w->guard[i], &w->set[i], sizeof *w->set, NULL));
    }
    ck_assert(!d->cuStreamSynchronize(NULL));
    run_crew(w, second_step, OPTC_ERROR_ARGUMENT);
    for (int i = 0; i < w->ranks; i++)
        ck_assert_msg(strstr(w->message[i], says), "rank %d: %s", i, w->message[i]);
    check_kept(w, was, n);
    /* every later call too, also with equal gradients */
    for (int i = 0; i < w->ranks; i++) {
        FAILS(rank_step(&w->d[i], &w->c, 3), OPTC_ERROR_ARGUMENT, says);
        free(was[i]);
    }
}

START_TEST(gradient_on_some_ranks)
{
    SHARED();
    if (thinned(_i))
        return;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        Crew w;
        char says[100];
        crew_open(&w, &rules[_i], ranks);
        w.lacking = (_i + ranks) % ranks;
        snprintf(says, sizeof says,
                 "'bias' (number 1) had a gradient on rank %d and none on rank %d",
                 w.lacking ? 0 : 1, w.lacking);
        check_refused(&w, says);
        crew_close(&w);
    }
}
END_TEST

/* 0: the guard is set on one rank. 1: on all ranks, and the gradients differ too: t is decremented
 * once. */
START_TEST(guards)
{
    SHARED();
    Crew w;
    crew_open(&w, &rules[0], RANKS);
    for (int i = 0; i < RANKS; i++) {
        w.set[i] = _i || i == 2;
        ck_assert(!d->cuMemAlloc_v2(&w.guard[i], sizeof *w.set) &&
                  !d->cuMemsetD8Async(w.guard[i], 0, 4, NULL));
    }
    ck_assert(!d->cuStreamSynchronize(NULL));
    w.lacking = _i ? 0 : -1;
    check_refused(&w, _i ? "'bias' (number 1) had a gradient on rank 1 and none on rank 0"
                         : "the guard was set on rank 2 and not on rank 0");
    crew_close(&w);
}
END_TEST

static void take_guard(Crew *w, int rank)
{
    ck_assert(!d->cuMemAlloc_v2(&w->guard[rank], sizeof *w->set) &&
              !d->cuMemsetD8Async(w->guard[rank], 0, 4, NULL));
    ck_assert(!d->cuStreamSynchronize(NULL));
}

/* The host reads the guards of rules with products, and does not launch a step that is skipped. 0:
 * the guard is set on one rank. 1: only one rank has a guard. Before, the other ranks waited. */
START_TEST(guards_of_the_host)
{
    SHARED();
    if (thinned(_i))
        return;
    Crew w;
    crew_open(&w, &rules[_i < 2 ? 1 : 3], RANKS);
    for (int i = 0; i < RANKS; i++)
        if (!(_i % 2) || i == 2)
            take_guard(&w, i);
    w.set[2] = 1;
    check_refused(&w, "the guard was set on rank 2 and not on rank 0");
    crew_close(&w);
}
END_TEST

/* All ranks skip a step: nothing changes, and the next one runs. */
START_TEST(all_ranks_skip)
{
    SHARED();
    static const float set = 1, clear = 0;
    Crew w;
    double *was[RANKS];
    size_t n[RANKS];
    crew_open(&w, &rules[_i ? 3 : 1], RANKS);
    for (int i = 0; i < RANKS; i++)
        take_guard(&w, i);
    run_crew(&w, first_step, OPTC_OK);
    for (int i = 0; i < RANKS; i++) {
        n[i] = rank_values(&w, i, was[i] = malloc(sizeof **was * ALL_VALUES));
        device_put((void *)(uintptr_t)w.guard[i], &set, sizeof set);
    }
    run_crew(&w, second_step, OPTC_OK);
    check_kept(&w, was, n);
    for (int i = 0; i < RANKS; i++) {
        device_put((void *)(uintptr_t)w.guard[i], &clear, sizeof clear);
        free(was[i]);
    }
    run_crew(&w, second_step, OPTC_OK);
    for (int i = 0; i < RANKS; i++) {
        int64_t t = 0;
        OK(optc_get_t(w.d[i].binding, 0, &t));
        ck_assert_int_eq(t, 2);
    }
    crew_close(&w);
}
END_TEST

/* ---- a rank that cannot run ---- */
/* Rules that read a number which some ranks have not set. They compare the ranks with the partials,
 * ahead of a pass that writes states, ahead of all_to_all, and ahead of products that write
 * states. */
static const char *const reads_number[] = {
    "return optimizer { name = 'rides', hyper = { lr = 0.1 }, inputs = { loss = 'group' }, state = "
    "{ s = zeros },\n"
    "  step = function() local n = sum(g * g)  s = s + g / (1 + n)  p = p - lr * loss * s / t end "
    "}",
    "return optimizer { name = 'apart', hyper = { lr = 0.1 }, inputs = { loss = 'group' }, state = "
    "{ s = zeros },\n"
    "  step = function() s = s + abs(g)  local n = sum(s)  p = p - lr * loss * g / n / t end }",
    "return optimizer { name = 'owned', hyper = { lr = 0.1 }, inputs = { loss = 'group' }, state = "
    "{ m = zeros },\n"
    "  step = function() p = p - lr * loss * g / t end,\n"
    "  matrix = function() m = 0.5 * m + g  p = p - lr * loss * mm(gram(m), m) / (1 + "
    "slice.norm(m)) end }",
    "return optimizer { name = 'waits', hyper = { lr = 0.1 }, inputs = { loss = 'group' }, state = "
    "{ L = zeros 'rows' "
    "},\n"
    "  step = function() p = p - lr * loss * g / t end,\n"
    "  matrix = function() L = gram(g)  p = p - lr * loss * mm(L, g) / (1 + slice.norm(g)) end }",
};
enum { NREADS = sizeof reads_number / sizeof *reads_number };

static void set_numbers(Crew *w, int rank)
{
    for (int group = 0; group < 2; group++)
        OK(optc_set_scalar(w->d[rank].binding, group, "loss", 0.5));
}

static void bind_and_step(int rank, void *arg)
{
    Crew *w = arg;
    OK(rank_bind(&w->d[rank], &w->c, &w->comm[rank]));
    /* lacking = ranks: all of them lack it */
    if (rank != w->lacking && w->lacking < w->ranks)
        set_numbers(w, rank);
    optc_status s = rank_step(&w->d[rank], &w->c, 1);
    crew_note(w, rank, s == OPTC_OK ? optc_sync(w->d[rank].binding) : s);
}

static void set_and_step(int rank, void *arg)
{
    Crew *w = arg;
    set_numbers(w, rank);
    optc_status s = rank_step(&w->d[rank], &w->c, 1);
    crew_note(w, rank, s == OPTC_OK ? optc_sync(w->d[rank].binding) : s);
}

START_TEST(a_rank_fails)
{
    SHARED();
    if (thinned(_i))
        return;
    Crew w;
    char says[100];
    crew_open(&w, &(AgreeRule){.text = reads_number[_i]}, RANKS);
    w.lacking = _i % RANKS;
    run_crew(&w, bind_and_step, OPTC_ERROR_ARGUMENT);
    snprintf(says, sizeof says, "rank %d could not run a step; its own message says why",
             w.lacking);
    for (int i = 0; i < RANKS; i++) {
        int64_t t = 0;
        const char *want = i == w.lacking ? "reads the scalar input 'loss'" : says;
        ck_assert_msg(strstr(w.message[i], want), "%s, rank %d: %s", optc_rule_name(w.r), i,
                      w.message[i]);
        for (int k = 0; k < NTENSORS; k++) {               /* parameters are as they were bound */
            size_t bytes = (size_t)w.d[i].piece[k].count * sizeof(float);
            void *was = malloc(bytes + 1);
            memcpy(was, w.d[i].p[k], bytes);
            rank_fetch(&w.d[i], k);
            ck_assert_msg(!memcmp(was, w.d[i].p[k], bytes), "%s, rank %d: '%s' changed",
                          optc_rule_name(w.r), i, tensors[k].name);
            free(was);
        }
        OK(optc_get_t(w.d[i].binding, 0, &t));
        ck_assert_int_eq(t, 0);
        set_numbers(&w, i);
        FAILS(rank_step(&w.d[i], &w.c, 2), OPTC_ERROR_ARGUMENT, says);
    }
    crew_close(&w);
}
END_TEST

/* Ranks that all fail can correct the mistake and go on. */
START_TEST(all_ranks_fail)
{
    SHARED();
    Crew w;
    crew_open(&w, &(AgreeRule){.text = reads_number[_i]}, RANKS);
    w.lacking = RANKS;
    run_crew(&w, bind_and_step, OPTC_ERROR_ARGUMENT);
    for (int i = 0; i < RANKS; i++)
        ck_assert_msg(strstr(w.message[i], "reads the scalar input 'loss'"), "rank %d: %s", i,
                      w.message[i]);
    run_crew(&w, set_and_step, OPTC_OK);
    crew_close(&w);
}
END_TEST

/* ---- captures ---- */
/* A comm whose collectives can be captured though the other rank does not run: each gather returns
 * what the other rank sent at the last step that was run by both. */
enum { GATHERS = 8 };
typedef struct Replayed {
    optc_comm real;
    int call;                                  /* of the current step */
    bool alone;
    CUdeviceptr other[GATHERS];                /* what rank 1 sent, by call */
} Replayed;

static int replayed_gather(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    Replayed *x = context;
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)recv;
    int i = x->call++;
    if (!x->alone) {
        int rc = x->real.all_gather(x->real.context, send, recv, bytes, stream);
        if (!stream || rc || i >= GATHERS)                 /* without a stream: while binding */
            return rc;
        return (!x->other[i] && d->cuMemAlloc_v2(&x->other[i], bytes)) ||
               d->cuMemcpyDtoDAsync_v2(x->other[i], to + bytes, bytes, stream);
    }
    return i >= GATHERS ||
           d->cuMemcpyDtoDAsync_v2(to, (CUdeviceptr)(uintptr_t)send, bytes, stream) ||
           d->cuMemcpyDtoDAsync_v2(to + bytes, x->other[i], bytes, stream);
}

static int replayed_all_to_all(void *context, const void *send, const size_t *send_bytes,
                               void *recv, const size_t *recv_bytes, void *stream)
{
    Replayed *x = context;
    return x->alone
               ? d->cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)recv, (CUdeviceptr)(uintptr_t)send,
                                         *send_bytes < *recv_bytes ? *send_bytes : *recv_bytes,
                                         stream)
               : x->real.all_to_all(x->real.context, send, send_bytes, recv, recv_bytes, stream);
}

static void begin_step(int rank, void *arg)
{
    Crew *w = arg;
    if (!rank)
        ((Replayed *)w->comm[0].context)->call = 0;
    crew_note(w, rank, rank_step(&w->d[rank], &w->c, 3));
}

static bool params_same(const Crew *w, float *was)
{
    bool same = true;
    for (int k = 0; k < NTENSORS; k++) {
        size_t n = (size_t)w->d[0].piece[k].count;
        rank_fetch(&w->d[0], k);
        same = same && !memcmp(was, w->d[0].p[k], n * sizeof *was);
        memcpy(was, w->d[0].p[k], n * sizeof *was);
        was += n;
    }
    return same;
}

/* A replayed step compares what the ranks have then. Word 1 of what a rank sends first has a bit
 * per tensor. */
START_TEST(replays_compare)
{
    SHARED();
    static float was[130 * 33 + 33 + 64 * 128 + 1];
    const unsigned long long lacking = (1ull << NTENSORS) - 1 - (1ull << LACKED);
    Crew w;
    CUgraph graph;
    CUgraphExec exec;
    crew_open(&w, &rules[_i], 2);
    Replayed x = {.real = w.comm[0]};
    w.comm[0] = (optc_comm){.ranks = 2, .context = &x, .all_gather = replayed_gather,
                            .all_to_all = replayed_all_to_all};
    run_crew(&w, first_step, OPTC_OK);
    run_crew(&w, begin_step, OPTC_OK);
    optc_binding *b = w.d[0].binding;
    CUstream st = rank_stream(&w.d[0]);
    OK(optc_sync(b));
    x.alone = true, x.call = 0;
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    params_same(&w, was);
    ck_assert(!d->cuGraphLaunch(exec, st));
    OK(optc_sync(b));
    ck_assert(!params_same(&w, was));
    ck_assert(!d->cuMemcpyHtoDAsync_v2(x.other[0] + 8, &lacking, sizeof lacking, st));
    for (int i = 0; i < 2; i++) {
        ck_assert(!d->cuGraphLaunch(exec, st));
        FAILS(optc_sync(b), OPTC_ERROR_ARGUMENT,
              "'bias' (number 1) had a gradient on rank 0 and none on rank 1");
        ck_assert(params_same(&w, was));
    }
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    for (int i = 0; i < GATHERS; i++)
        if (x.other[i])
            d->cuMemFree_v2(x.other[i]);
    crew_close(&w);
}
END_TEST

void add_agree(TCase *t)
{
    tcase_add_loop_test(t, gradient_on_some_ranks, 0, NRULES);
    tcase_add_loop_test(t, guards, 0, 2);
    tcase_add_loop_test(t, guards_of_the_host, 0, 4);
    tcase_add_loop_test(t, all_ranks_skip, 0, 2);
    tcase_add_loop_test(t, a_rank_fails, 0, NREADS);
    tcase_add_loop_test(t, all_ranks_fail, 0, NREADS);
    tcase_add_loop_test(t, replays_compare, 0, 2);
}

/* Sharded bindings that fail: ranks that differ, pieces that do not cover a tensor, communication
 * that fails, gradients on some ranks only, memory that runs out. All ranks must get an error, and
 * no rank may wait for ever. */
#include "tests/harness/rank_threads.h"
#include "tests/harness/shard_world.h"
#include "tests/harness/suites.h"
#include "tests/harness/watched_comm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SECONDS: after that a rank that waits has been left alone */
enum { RANKS = 3, SECONDS = 30 };

static const WorldTensor tensors[] = {
    {.name = "weight", .shape = {2, {20, 12}}},
    {.name = "other", .shape = {2, {12, 20}}},
    {.name = "bias", .shape = {1, {33}}, .group = 1},
    {.name = "scale", .shape = {0, {0}}, .group = 1},
};
enum { NTENSORS = 4 };
static const struct { const char *spec, *with; } rule_list[] = {
    {"adamw", "clip(1)"}, {"muon", NULL}, {"lamb", NULL},
                                                                {"adamw", NULL}};
enum { NRULES = 4, NREDUCING = 3 };            /* the first three exchange data in every step */

/* ---- ranks that must not be left waiting ---- */
typedef struct Crew {
    optc_engine *engine;
    optc_rule *rule, *second;                  /* second: another rule, for one rank */
    WorldCase c;
    optc_loopback *loopback;
    int kind;
    atomic_int returned;
    atomic_bool hung;
    RankData data[RANKS];
    optc_comm comm[RANKS];
    optc_status status[RANKS];
    char message[RANKS][600];
    char *wrong[RANKS];                        /* what else is wrong, found in the rank's thread */
} Crew;

static void crew_open(Crew *w, int rule, int kind)
{
    memset(w, 0, sizeof *w);
    w->kind = kind;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &w->engine));
    OK(optc_compile(
        w->engine, &(optc_rule_options){.spec = rule_list[rule].spec, .with = rule_list[rule].with},
        &w->rule));
    OK(optc_compile(w->engine, &(optc_rule_options){.spec = "sgd"}, &w->second));
    w->c = (WorldCase){.rule = w->rule, .tensor = tensors, .n = NTENSORS, .steps = 2};
    OK(optc_loopback_open(RANKS, NULL, &w->loopback));
    for (int i = 0; i < RANKS; i++) {
        OK(optc_loopback_comm(w->loopback, i, &w->comm[i]));
        rank_fill(&w->data[i], &w->c, CUT_even, i, RANKS);
    }
}

static void crew_close(Crew *w)
{
    for (int i = 0; i < RANKS; i++) {
        ck_assert_msg(!w->wrong[i], "rank %d: %s", i, w->wrong[i]);
        rank_free(&w->data[i], &w->c);
    }
    optc_loopback_close(w->loopback);
    OK(optc_release(w->second));
    OK(optc_release(w->rule));
    OK(optc_close(w->engine));
}

/* Stores the result of a collective call. A rank that failed waits for the others: they must return
 * as well. */
static void returned(Crew *w, int rank, optc_status s)
{
    w->status[rank] = s;
    strncpy(w->message[rank], s == OPTC_OK ? "" : optc_message(), sizeof w->message[rank] - 1);
    atomic_fetch_add(&w->returned, 1);
    for (int i = 0; s != OPTC_OK && i < SECONDS * 1000 && atomic_load(&w->returned) < RANKS; i++)
        usleep(1000);
    if (s != OPTC_OK && atomic_load(&w->returned) < RANKS) {
        atomic_store(&w->hung, true);
        optc_loopback_fail(w->loopback);
    }
}

/* ---- ranks that bind different tensors ---- */
typedef enum {
    FEWER,
    OTHER_SHAPE,
    OTHER_RANK,
    OTHER_RULE,
    OTHER_GROUPS,
    OTHER_ORDER,
    OTHER_FLAGS,
    OTHER_SPLIT,
    OVERLAP,
    GAP,
    BEYOND,
    NO_PARAM,
    NO_GROUPS,
    NO_COUNT,
    NO_TENSORS,
    NO_RESULT,
    NEGATIVE,
    OLD_CALLER,
    NDIFFER
} Differ;
static const struct { const char *name; bool names_tensor; } differ[NDIFFER] = {
    [FEWER] = {"one rank has fewer tensors", false},
    [OTHER_SHAPE] = {"one rank has another global shape", true},
    [OTHER_RANK] = {"one rank has another number of dimensions", false},
    [OTHER_RULE] = {"one rank has another rule", false},
    [OTHER_GROUPS] = {"one rank has another group", false},
    [OTHER_ORDER] = {"one rank has another order", false},
    [OTHER_FLAGS] = {"one rank has flags", true},
    [OTHER_SPLIT] = {"one rank has split", true},
    [OVERLAP] = {"two pieces overlap", true},
    [GAP] = {"there is a gap", true},
    [BEYOND] = {"a piece ends beyond the tensor", true},
    [NO_PARAM] = {"a parameter is NULL", true},
    [NO_GROUPS] = {"the groups are NULL", false},
    [NO_COUNT] = {"there are no groups", false},
    [NO_TENSORS] = {"the tensors of a group are NULL", false},
    [NO_RESULT] = {"the pointer for the binding is NULL", false},
    [NEGATIVE] = {"a count is negative", false},
    [OLD_CALLER] = {"the size of a struct is wrong", false},
};

/* Rank 1 binds something else. Its piece of `weight` has 7 rows from row 7 on. */
static optc_status bind_other(Crew *w, int rank)
{
    static const int64_t rows19[] = {19, 12}, flat[] = {240}, six[] = {6, 12}, eight[] = {8, 12},
                         at8[] = {8, 0}, at14[] = {14, 0};
    static const int64_t flat_piece[] = {84}, flat_at[] = {84};
    RankData *d = &w->data[rank];
    optc_tensor t[NTENSORS];
    optc_group g[2] = {{.tensors = t, .ntensors = 2}, {.tensors = t + 2, .ntensors = 2}};
    optc_rule *rule = w->rule;
    for (int k = 0; k < NTENSORS; k++)
        t[k] = (optc_tensor){.name = tensors[k].name,
                             .param = d->p[k],
                             .grad = d->g[k],
                             .rank = tensors[k].shape.rank,
                             .shape = d->piece[k].shape,
                             .global_shape = tensors[k].shape.dim,
                             .offset = d->piece[k].offset};
    t[3].global_shape = t[3].offset = NULL;
    optc_tensor first = t[0];
    switch (rank == 1 ? (Differ)w->kind : NDIFFER) {
    case FEWER: g[1].ntensors--; break;
    case OTHER_SHAPE: t[0].global_shape = rows19; break;
    case OTHER_RANK:
        t[0].rank = 1;
        t[0].global_shape = flat;
        t[0].shape = flat_piece;
        t[0].offset = flat_at;
        break;
    case OTHER_RULE: rule = w->second; break;
    case OTHER_GROUPS: g[0].ntensors++; g[1].tensors++; g[1].ntensors--; break;
    case OTHER_ORDER: t[0] = t[1]; t[1] = first; break;
    case OTHER_FLAGS: t[0].flags = OPTC_USE_STEP; break;
    case OTHER_SPLIT: t[0].split = 2; break;
    case OVERLAP: t[0].shape = eight; break;
    case GAP: t[0].shape = six; t[0].offset = at8; break;
    case BEYOND: t[0].offset = at14; break;
    case NO_PARAM: t[0].param = NULL; break;
    case NO_GROUPS: return optc_bind_sharded(rule, NULL, 2, &w->comm[rank], &d->binding);
    case NO_COUNT: return optc_bind_sharded(rule, g, 0, &w->comm[rank], &d->binding);
    case NO_TENSORS: g[1].tensors = NULL; break;
    case NO_RESULT: d->binding = NULL; return optc_bind_sharded(rule, g, 2, &w->comm[rank], NULL);
    case NEGATIVE: g[1].ntensors = -1; break;
    case OLD_CALLER: return optc_bind_sharded_sized(rule, g, 2, 3, 5, &w->comm[rank], &d->binding);
    default: break;
    }
    return optc_bind_sharded(rule, g, 2, &w->comm[rank], &d->binding);
}

static void differing_rank(int rank, void *arg)
{
    Crew *w = arg;
    w->data[rank].binding = (optc_binding *)w;
    returned(w, rank, bind_other(w, rank));
}

static void good_rank(int rank, void *arg)
{
    Crew *w = arg;
    optc_status s = rank_bind(&w->data[rank], &w->c, &w->comm[rank]);
    returned(w, rank, s == OPTC_OK ? rank_step(&w->data[rank], &w->c, 1) : s);
}

START_TEST(ranks_differ)
{
    for (int rule = sanitized() ? _i % NRULES : 0; rule < NRULES;
         rule += sanitized() ? NRULES : 1) {
        Crew w;
        crew_open(&w, rule, _i);
        run_ranks(RANKS, differing_rank, &w);
        ck_assert_msg(!w.hung, "%s: ranks are left waiting; rank 1: %s", differ[_i].name,
                      w.message[1]);
        for (int i = 0; i < RANKS; i++) {
            /* rank 1's own mistake; the others only learn of it */
            bool own = _i >= BEYOND;
            ck_assert_msg(w.status[i] == OPTC_ERROR_ARGUMENT ||
                              (own && i != 1 && w.status[i] != OPTC_OK),
                          "%s, %s: rank %d: %s %s", optc_rule_name(w.rule), differ[_i].name, i,
                          optc_status_name(w.status[i]), w.message[i]);
            ck_assert_msg(!w.data[i].binding, "%s: rank %d has a binding", differ[_i].name, i);
            /* a rank's own mistake is found by the checks of optc_bind */
            ck_assert_msg(strstr(w.message[i], own && i == 1 ? "optc_bind" : "optc_bind_sharded"),
                          "%s: rank %d: %s", differ[_i].name, i, w.message[i]);
            ck_assert_msg(!differ[_i].names_tensor || (own && i != 1) ||
                              strstr(w.message[i], "weight"),
                          "%s: rank %d: %s", differ[_i].name, i, w.message[i]);
        }
        /* nothing is left of it: the same ranks bind again */
        atomic_store(&w.returned, 0);
        run_ranks(RANKS, good_rank, &w);
        for (int i = 0; i < RANKS; i++)
            ck_assert_msg(w.status[i] == OPTC_OK, "after '%s': rank %d: %s", differ[_i].name, i,
                          w.message[i]);
        crew_close(&w);
    }
}
END_TEST

/* ---- states in the caller's memory ---- */
static optc_status bind_states(Crew *w, int rank, void *const *states)
{
    RankData *d = &w->data[rank];
    optc_tensor t[NTENSORS];
    for (int k = 0; k < NTENSORS; k++)
        t[k] = (optc_tensor){.name = tensors[k].name,
                             .param = d->p[k],
                             .grad = d->g[k],
                             .rank = tensors[k].shape.rank,
                             .shape = d->piece[k].shape,
                             .global_shape = tensors[k].shape.dim,
                             .offset = d->piece[k].offset,
                             .states = states ? states + k * WORLD_STATES : NULL};
    optc_group g[2] = {{.tensors = t, .ntensors = 2}, {.tensors = t + 2, .ntensors = 2}};
    return optc_bind_sharded(w->rule, g, 2, &w->comm[rank], &d->binding);
}

/* Steps a binding whose states m and v are the library's, then one whose states are here, both from
 * the same values. Rank 1 alone passes states if kind is 1. */
static void caller_states_rank(int rank, void *arg)
{
    enum { VALUES = 256 };
    Crew *w = arg;
    RankData *d = &w->data[rank];
    float *memory = aligned_alloc(64, sizeof(float) * NTENSORS * WORLD_STATES * VALUES);
    float p[2][VALUES];
    void *at[NTENSORS * WORLD_STATES] = {NULL};
    optc_status s = OPTC_OK;
    for (int k = 0; k < NTENSORS * WORLD_STATES * VALUES; k++)
        memory[k] = 0.25f;
    for (int k = 0; k < NTENSORS * WORLD_STATES; k++) {
        optc_state_info info;
        if (k % WORLD_STATES < optc_rule_states(w->rule) && (!w->kind || rank == 1) &&
            optc_rule_state(w->rule, k % WORLD_STATES, &info) == OPTC_OK &&
            (!strcmp(info.name, "m") || !strcmp(info.name, "v")))
            at[k] = memory + (size_t)k * VALUES;
    }
    for (int own = w->kind; own < 2 && s == OPTC_OK; own++) {
        rank_free(d, &w->c);
        rank_fill(d, &w->c, CUT_even, rank, RANKS);
        rank_grads(d, &w->c, 1);
        s = bind_states(w, rank, own ? at : NULL);
        for (int k = 0; k < NTENSORS && s == OPTC_OK && !own; k++)
            for (int m = 0; m < 2 && s == OPTC_OK; m++)
                s = optc_state_put(d->binding, k, m ? "v" : "m", memory,
                                   sizeof(float) * (size_t)d->piece[k].count);
        for (int i = 0; i < 2 && s == OPTC_OK; i++)
            s = optc_step(d->binding);
        memcpy(p[own], d->p[0], sizeof(float) * (size_t)d->piece[0].count);
    }
    if (s == OPTC_OK && memcmp(p[0], p[1], sizeof(float) * (size_t)d->piece[0].count))
        w->wrong[rank] = "results differ";
    returned(w, rank, s);
    free(memory);
}

START_TEST(caller_states)
{
    Crew w;
    for (int rule = 0; rule < NRULES; rule++) {
        if (rule == 1)
            continue;
        crew_open(&w, rule, 0);
        run_ranks(RANKS, caller_states_rank, &w);
        for (int i = 0; i < RANKS; i++)
            ck_assert_msg(w.status[i] == OPTC_OK, "%s: rank %d: %s", optc_rule_name(w.rule), i,
                          w.message[i]);
        crew_close(&w);
    }
    /* Muon's m is the owner's */
    crew_open(&w, 1, 1);
    run_ranks(RANKS, caller_states_rank, &w);
    ck_assert(!w.hung);
    for (int i = 0; i < RANKS; i++) {
        const char *want = i == 1 ? "the state 'm' is not one of this rank's piece alone"
                                  : "rank 1 could not bind";
        ck_assert_msg(w.status[i] == OPTC_ERROR_ARGUMENT && strstr(w.message[i], want),
                      "rank %d: %s", i, w.message[i]);
    }
    crew_close(&w);
}
END_TEST

/* ---- ranks of other versions, of a rule with another rank, or with products in another precision
 * ---- */
enum { FRACTION_ONLY, PRECISION_ONLY, CALLS_ONLY, OLDER, NEWER };
typedef struct Version { optc_comm real; int kind, calls; } Version;

/* Writes another version into the first message. Libraries without a version send 0 or 1 there. */
static int version_gather(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    Version *v = context;
    int64_t message[4];
    if (v->calls++)
        return v->real.all_gather(v->real.context, send, recv, bytes, stream);
    /* the size must be that of older libraries */
    if (bytes != sizeof message)
        return 1;
    memcpy(message, send, bytes);
    message[0] = v->kind == OLDER ? message[0] & 1 : message[0] + 2;
    return v->real.all_gather(v->real.context, message, recv, bytes, stream);
}

static int version_exchange(void *context, const void *send, const size_t *send_bytes, void *recv,
                            const size_t *recv_bytes, void *stream)
{
    const Version *v = context;
    return v->real.all_to_all(v->real.context, send, send_bytes, recv, recv_bytes, stream);
}

static void other_version(int rank, void *arg)
{
    Crew *w = arg;
    Version v = {.real = w->comm[rank], .kind = w->kind};
    optc_comm comm = {.rank = rank, .ranks = RANKS, .context = &v, .all_gather = version_gather,
                      .all_to_all = version_exchange};
    WorldCase c = w->c;
    c.rule = rank == 1 && w->kind < OLDER ? w->second : w->rule;
    returned(w, rank,
             rank_bind(&w->data[rank], &c, rank == 1 && w->kind >= OLDER ? &comm : &w->comm[rank]));
}

START_TEST(versions_differ)
{
    Crew w;
    crew_open(&w, 0, _i);
    static const optc_rule_options rules[OLDER][2] = {
        [FRACTION_ONLY] = {{.spec = "dion2", .options = "fraction=0.25"},
                           {.spec = "dion2", .options = "fraction=0.5"}},
        [PRECISION_ONLY] = {{.spec = "soap"}, {.spec = "soap", .products = "tf32"}},
        [CALLS_ONLY] = {{.spec = "soap"}, {.spec = "soap", .options = "apply=f32"}}};
    if (_i < OLDER) {
        OK(optc_release(w.rule));
        OK(optc_release(w.second));
        OK(optc_compile(w.engine, &rules[_i][0], &w.rule));
        OK(optc_compile(w.engine, &rules[_i][1], &w.second));
    }
    run_ranks(RANKS, other_version, &w);
    ck_assert_msg(!w.hung, "case %d: ranks are left waiting; rank 1: %s", _i, w.message[1]);
    for (int i = 0; i < RANKS; i++)
        ck_assert_msg(
            w.status[i] == OPTC_ERROR_ARGUMENT && !w.data[i].binding &&
                strstr(w.message[i], _i < OLDER ? "other options" : "same version of optc"),
            "case %d, rank %d: %s %s", _i, i, optc_status_name(w.status[i]), w.message[i]);
    crew_close(&w);
}
END_TEST

/* ---- communication that fails ---- */
typedef struct Failing { Crew crew; WatchedComm watched[RANKS]; } Failing;

/* A binding that failed once refuses to work. */
static void check_refusal(Crew *w, int rank)
{
    optc_binding *b = w->data[rank].binding;
    if (!w->message[rank][0])
        w->wrong[rank] = format("the failure has no message");
    for (int i = 0; i < 2; i++)
        if (optc_step(b) == OPTC_OK)
            w->wrong[rank] = format("a step after a failure succeeds");
        else if (!strstr(optc_message(), "bind"))
            w->wrong[rank] = format("the message does not say to bind again: %s", optc_message());
}

static void flaky_rank(int rank, void *arg)
{
    Failing *x = arg;
    Crew *w = &x->crew;
    RankData *d = &w->data[rank];
    optc_comm comm = watched_comm(&x->watched[rank], &w->comm[rank]);
    optc_status s = rank_bind(d, &w->c, &comm);
    bool bound = s == OPTC_OK;
    for (int step = 1; step <= w->c.steps && s == OPTC_OK; step++)
        s = rank_step(d, &w->c, step);
    w->status[rank] = s;
    strncpy(w->message[rank], s == OPTC_OK ? "" : optc_message(), sizeof w->message[rank] - 1);
    if (s != OPTC_OK && bound)
        check_refusal(w, rank);
    if (s != OPTC_OK && !bound && d->binding)
        w->wrong[rank] = format("a failed bind leaves a binding");
    if (s != OPTC_OK)
        optc_loopback_fail(w->loopback);                   /* as a process that ends */
}

/* rule * 2 + 1: the call fails after the exchange */
START_TEST(communication_fails)
{
    bool reached = true;
    int n = 0, bind_failed = 0, step_failed = 0;
    while (reached) {
        Failing *x = calloc(1, sizeof *x);
        crew_open(&x->crew, _i / 2, 0);
        x->watched[1] = (WatchedComm){.fail_at = ++n, .after = _i % 2};
        run_ranks(RANKS, flaky_rank, x);
        reached = x->watched[1].calls >= n;
        bool bound = x->crew.data[1].binding != NULL;
        bind_failed += reached && !bound;
        step_failed += reached && bound;
        ck_assert_msg((x->crew.status[1] != OPTC_OK) == reached, "%s, call %d: %s",
                      optc_rule_name(x->crew.rule), n, optc_status_name(x->crew.status[1]));
        for (int i = 0; i < RANKS; i++)
            ck_assert_msg(reached || x->crew.status[i] == OPTC_OK, "rank %d: %s", i,
                          x->crew.message[i]);
        crew_close(&x->crew);
        free(x);
        ck_assert_int_lt(n, 200);
    }
    ck_assert_msg(bind_failed && step_failed, "%d failures while binding, %d while stepping",
                  bind_failed, step_failed);
}
END_TEST

/* ---- a thread from outside ends everything ---- */
static void endless_rank(int rank, void *arg)
{
    Crew *w = arg;
    if (rank == RANKS) {
        usleep((unsigned)w->kind);
        optc_loopback_fail(w->loopback);
        return;
    }
    optc_status s = rank_bind(&w->data[rank], &w->c, &w->comm[rank]);
    if (s == OPTC_OK) {
        while (s == OPTC_OK)
            s = optc_step(w->data[rank].binding);
        strncpy(w->message[rank], optc_message(), sizeof w->message[rank] - 1);
        check_refusal(w, rank);
    }
    w->status[rank] = s;
}

START_TEST(loopback_fails)
{
    for (int i = 0; i < 5; i++) {
        Crew w;
        crew_open(&w, _i, i * 3000);
        run_ranks(RANKS + 1, endless_rank, &w);
        for (int k = 0; k < RANKS; k++)
            ck_assert_int_ne(w.status[k], OPTC_OK);
        crew_close(&w);
    }
}
END_TEST

/* ---- a gradient on some ranks only ---- */
static void all_params(const Crew *w, float *to)
{
    for (int rank = 0; rank < RANKS; rank++)
        for (int k = 0; k < NTENSORS; k++) {
            memcpy(to, w->data[rank].p[k], (size_t)w->data[rank].piece[k].count * sizeof *to);
            to += w->data[rank].piece[k].count;
        }
}
enum { ALL_PARAMS = RANKS * (20 * 12 + 12 * 20 + 33 + 1) };

static void bind_and_step(int rank, void *arg)
{
    Crew *w = arg;
    optc_status s = rank_bind(&w->data[rank], &w->c, &w->comm[rank]);
    returned(w, rank, s == OPTC_OK ? rank_step(&w->data[rank], &w->c, 1) : s);
}

static void one_without(int rank, void *arg)
{
    Crew *w = arg;
    RankData *d = &w->data[rank];
    rank_grads(d, &w->c, 2);
    optc_status s = optc_set_grad(d->binding, 2, rank == w->kind ? NULL : d->g[2], 0);
    returned(w, rank, s == OPTC_OK ? optc_step(d->binding) : s);
}

static void second_step(int rank, void *arg)
{
    Crew *w = arg;
    returned(w, rank, rank_step(&w->data[rank], &w->c, 2));
}

static void run_crew(Crew *w, void (*fn)(int rank, void *arg))
{
    atomic_store(&w->returned, 0);
    run_ranks(RANKS, fn, w);
    ck_assert_msg(!w->hung, "ranks are left waiting: %s", w->message[w->kind]);
}

START_TEST(gradient_on_some_ranks)
{
    static float before[ALL_PARAMS], after[ALL_PARAMS], want[ALL_PARAMS];
    for (int missing = -1; missing < RANKS; missing++) {   /* -1: two steps without a mistake */
        Crew w;
        memset(before, 0, sizeof before);
        memset(after, 0, sizeof after);
        crew_open(&w, _i, missing);
        run_crew(&w, bind_and_step);
        for (int i = 0; i < RANKS; i++)
            ck_assert_msg(w.status[i] == OPTC_OK, "rank %d: %s", i, w.message[i]);
        all_params(&w, before);
        if (missing >= 0) {
            run_crew(&w, one_without);
            for (int i = 0; i < RANKS; i++) {
                ck_assert_msg(w.status[i] == OPTC_ERROR_ARGUMENT,
                              "missing on rank %d; rank %d: %s %s", missing, i,
                              optc_status_name(w.status[i]), w.message[i]);
                ck_assert_msg(strstr(w.message[i], "bias"),
                              "rank %d: '%s' does not name the tensor", i, w.message[i]);
            }
            all_params(&w, after);
            ck_assert_msg(!memcmp(before, after, sizeof before),
                          "a refused step changes parameters");
        }
        run_crew(&w, second_step);                         /* with all gradients it works */
        for (int i = 0; i < RANKS; i++)
            ck_assert_msg(w.status[i] == OPTC_OK, "with all gradients: rank %d: %s", i,
                          w.message[i]);
        all_params(&w, missing < 0 ? want : after);
        ck_assert_msg(missing < 0 || !memcmp(want, after, sizeof want),
                      "a refused step changes the next one");
        crew_close(&w);
    }
}
END_TEST

/* ---- arguments ---- */
static int no_gather(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    (void)context, (void)send, (void)recv, (void)bytes, (void)stream;
    return 1;
}
static int no_exchange(void *context, const void *send, const size_t *send_bytes, void *recv,
                       const size_t *recv_bytes, void *stream)
{
    (void)context, (void)send, (void)send_bytes, (void)recv, (void)recv_bytes, (void)stream;
    return 1;
}

START_TEST(bad_arguments)
{
    static float p[12], g[12];
    static const int64_t shape[] = {4, 3};
    const optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = 2, .shape = shape};
    const optc_group group = {.tensors = &t, .ntensors = 1};
    const optc_comm good = {
        .rank = 0, .ranks = 1, .all_gather = no_gather, .all_to_all = no_exchange};
    optc_comm bad[5] = {good, good, good, good, good};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b = (optc_binding *)&b;
    int rank = 5;
    bad[0].all_gather = NULL;
    bad[1].all_to_all = NULL;
    bad[2].ranks = 0;
    bad[3].rank = -1;
    bad[4].rank = 1;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r));
    FAILS(optc_bind_sharded(r, &group, 1, NULL, &b), OPTC_ERROR_ARGUMENT, "optc_bind_sharded");
    ck_assert_ptr_null(b);
    for (int i = 0; i < 5; i++) {
        b = (optc_binding *)&b;
        FAILS(optc_bind_sharded(r, &group, 1, &bad[i], &b), OPTC_ERROR_ARGUMENT,
              "optc_bind_sharded");
        ck_assert_ptr_null(b);
    }
    FAILS(optc_bind_sharded(r, &group, 1, &good, NULL), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_bind_sharded(NULL, &group, 1, &good, &b), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_bind_sharded(r, NULL, 1, &good, &b), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_bind_sharded_sized(r, &group, 1, 0, sizeof t, &good, &b), OPTC_ERROR_ARGUMENT,
          "optc_bind");
    /* a binding that is not sharded */
    OK(optc_bind(r, &group, 1, &b));
    OK(optc_state_rank(b, 0, "m", &rank));
    ck_assert_int_eq(rank, -1);
    FAILS(optc_state_rank(NULL, 0, "m", &rank), OPTC_ERROR_ARGUMENT, "optc_state_rank");
    FAILS(optc_state_rank(b, 0, "m", NULL), OPTC_ERROR_ARGUMENT, "optc_state_rank");
    FAILS(optc_state_rank(b, 0, NULL, &rank), OPTC_ERROR_ARGUMENT, "optc_state_rank");
    FAILS(optc_state_rank(b, 0, "nothing", &rank), OPTC_ERROR_ARGUMENT, "nothing");
    FAILS(optc_state_rank(b, 1, "m", &rank), OPTC_ERROR_ARGUMENT, "optc_state_rank");
    FAILS(optc_state_rank(b, 0, "adamw.m", &rank), OPTC_ERROR_ABSENT, "adamw.m");
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- memory ---- */
/* The engine's memory. Allocation number `fail_at` fails. */
typedef struct Pool { int held, asked, fail_at; } Pool;
static void *pool_alloc(void *context, size_t bytes, void *stream)
{
    Pool *p = context;
    (void)stream;
    if (++p->asked == p->fail_at)
        return NULL;
    char *block = malloc(bytes + 128);                     /* counted, as aligned_alloc is not */
    if (!block)
        return NULL;
    p->held++;
    char *at = block + 128 - (uintptr_t)block % 64;
    memcpy(at - sizeof block, &block, sizeof block);
    return at;
}
static void pool_release(void *context, void *memory, size_t bytes, void *stream)
{
    Pool *p = context;
    void *block;
    (void)bytes, (void)stream;
    memcpy(&block, (char *)memory - sizeof block, sizeof block);
    p->held--;
    free(block);
}

/* rule * 2 + 1: the engine's allocations fail instead of malloc */
START_TEST(memory_runs_out)
{
    Pool pool = {0};
    optc_allocator own = {pool_alloc, pool_release, &pool};
    WorldCase c = {.tensor = tensors, .n = NTENSORS, .steps = 1};
    RankData d;
    optc_engine *e;
    optc_rule *r;
    optc_loopback *l;
    optc_comm comm;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = "", .allocator = &own}, &e));
    OK(optc_compile(
        e, &(optc_rule_options){.spec = rule_list[_i / 2].spec, .with = rule_list[_i / 2].with},
        &r));
    OK(optc_loopback_open(1, NULL, &l));
    OK(optc_loopback_comm(l, 0, &comm));
    c.rule = r;
    rank_fill(&d, &c, CUT_even, 0, 1);
    int n = 0;
    for (bool reached = true; reached;) {
        int held = memory_held(), blocks = pool.held;
        pool = (Pool){.held = pool.held, .fail_at = ++n * (_i % 2)};
        memory_fails(_i % 2 ? 0 : n);
        optc_status s = rank_bind(&d, &c, &comm);
        reached = _i % 2 ? pool.asked >= n : memory_asked() >= n;
        memory_fails(0);
        bool empty = !d.binding;
        optc_status end = optc_unbind(d.binding);
        held = memory_held() - held;                       /* before Check allocates */
        d.binding = NULL;
        ck_assert_msg(reached ? s == OPTC_ERROR_MEMORY && empty : s == OPTC_OK, "allocation %d: %s",
                      n, optc_status_name(s));
        ck_assert_msg(end == OPTC_OK && !held && pool.held == blocks,
                      "allocation %d: %d and %d blocks are lost", n, held, pool.held - blocks);
    }
    ck_assert_int_gt(n, _i % 2 ? 1 : 10);
    pool.fail_at = 0;
    OK(rank_bind(&d, &c, &comm));
    OK(rank_step(&d, &c, 1));
    rank_free(&d, &c);
    optc_loopback_close(l);
    OK(optc_release(r));
    OK(optc_close(e));
    ck_assert_int_eq(pool.held, 0);
}
END_TEST

Suite *shard_errors_suite(void)
{
    Suite *s = suite_create("shard_errors");
    TCase *t = tcase_create("shard errors");
    tcase_add_test(t, caller_states);
    tcase_add_loop_test(t, ranks_differ, 0, NDIFFER);
    tcase_add_loop_test(t, versions_differ, 0, NEWER + 1);
    tcase_add_loop_test(t, communication_fails, 0, 2 * NREDUCING);
    tcase_add_loop_test(t, loopback_fails, 0, NREDUCING);
    tcase_add_loop_test(t, gradient_on_some_ranks, 0, NREDUCING);
    tcase_add_test(t, bad_arguments);
    tcase_add_loop_test(t, memory_runs_out, 0, 2 * NRULES);
    suite_add_tcase(s, t);
    return s;
}

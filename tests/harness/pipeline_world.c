#include "tests/harness/pipeline_world.h"

#include "tests/harness/rank_threads.h"
#include "tests/harness/shard_world.h"

#include <string.h>

enum { STAGES = 2, SHARDS = 2, RANKS = STAGES * SHARDS, TENSORS = 2, STEPS = 3 };
static const WorldTensor tensors[STAGES][TENSORS] = {
    {{.name = "up", .shape = {2, {24, 16}}}, {.name = "odd", .shape = {2, {130, 33}}}},
    {{.name = "long", .shape = {1, {5000}}}, {.name = "short", .shape = {2, {2, 9}}}},
};

typedef struct Pipeline {
    WorldCase c[STAGES];
    optc_loopback *stage[STAGES], *across[SHARDS];
    RankData d[RANKS], one[STAGES];
    optc_status status[RANKS];
    char message[RANKS][400];
} Pipeline;

static void pipeline_rank(int rank, void *arg)
{
    Pipeline *x = arg;
    int stage = rank / SHARDS, shard = rank % SHARDS;
    RankData *d = &x->d[rank];
    optc_comm own, across;
    optc_status s = optc_loopback_comm(x->stage[stage], shard, &own);
    if (s == OPTC_OK)
        s = optc_loopback_comm(x->across[shard], stage, &across);
    if (s == OPTC_OK)
        s = rank_bind(d, &x->c[stage], &own);
    if (s == OPTC_OK)
        s = optc_connect_ranks(&d->binding, 1, &across);
    for (int i = 0; i < STEPS && s == OPTC_OK; i++)
        s = optc_run_all(&d->binding, 1, "step");
    x->status[rank] = s;
    snprintf(x->message[rank], sizeof *x->message, "%s", s == OPTC_OK ? "" : optc_message());
    for (int i = 0; i < SHARDS && s != OPTC_OK; i++) {
        optc_loopback_fail(x->stage[i]);
        optc_loopback_fail(x->across[i]);
    }
}

/* The stages' bindings in one process. */
static void run_one(Pipeline *x)
{
    optc_binding *b[STAGES];
    for (int i = 0; i < STAGES; i++) {
        rank_fill(&x->one[i], &x->c[i], CUT_replicas, 0, 1);
        OK(rank_bind(&x->one[i], &x->c[i], NULL));
        rank_grads(&x->one[i], &x->c[i], 1);
        b[i] = x->one[i].binding;
        if (i)
            OK(optc_set_stream(b[i], rank_stream(&x->one[0])));
    }
    OK(optc_connect(b, STAGES));
    for (int i = 0; i < STEPS; i++)
        OK(optc_run_all(b, STAGES, "step"));
    OK(optc_sync(b[0]));
    /* rank_free destroys the stream of binding 0 first */
    for (int i = 1; i < STAGES; i++)
        OK(optc_set_stream(b[i], rank_stream(&x->one[i])));
}

static char *compare_rank(const Pipeline *x, int rank)
{
    const RankData *one = &x->one[rank / SHARDS], *d = &x->d[rank];
    double a, b;
    OK(optc_read_value(one->binding, 0, "clip.grad_norm", &a, 1));
    OK(optc_read_value(d->binding, 0, "clip.grad_norm", &b, 1));
    if (a != b || !(a > 0))
        return format("rank %d: the norm is %.17g, in one process %.17g", rank, b, a);
    for (int k = 0; k < TENSORS; k++) {
        rank_fetch(one, k);
        rank_fetch(d, k);
        int64_t row = d->piece[k].shape[0] ? d->piece[k].count / d->piece[k].shape[0] : 0;
        const float *whole = (const float *)one->p[k] + d->piece[k].offset[0] * row;
        if (memcmp(whole, d->p[k], (size_t)d->piece[k].count * sizeof *whole))
            return format("rank %d: %s has other bits", rank, x->c[rank / SHARDS].tensor[k].name);
    }
    return NULL;
}

char *pipeline_run(optc_engine *e, const char *spec, const char *with)
{
    static Pipeline x;
    optc_rule *r;
    char *wrong = NULL;
    memset(&x, 0, sizeof x);
    OK(optc_compile(e, &(optc_rule_options){.spec = spec, .with = with, .bindings = STAGES}, &r));
    for (int i = 0; i < STAGES; i++)
        x.c[i] = (WorldCase){.rule = r, .tensor = tensors[i], .n = TENSORS};
    for (int i = 0; i < STAGES; i++) {
        OK(optc_loopback_open(SHARDS, e, &x.stage[i]));
        OK(optc_loopback_open(STAGES, e, &x.across[i]));
    }
    for (int i = 0; i < RANKS; i++) {
        rank_fill(&x.d[i], &x.c[i / SHARDS], CUT_even, i % SHARDS, SHARDS);
        rank_grads(&x.d[i], &x.c[i / SHARDS], 1);
    }
    run_one(&x);
    run_ranks(RANKS, pipeline_rank, &x);
    for (int i = 0; i < RANKS && !wrong; i++)
        wrong =
            x.status[i] == OPTC_OK ? compare_rank(&x, i) : format("rank %d: %s", i, x.message[i]);
    for (int i = 0; i < RANKS; i++)
        rank_free(&x.d[i], &x.c[i / SHARDS]);
    for (int i = 0; i < STAGES; i++) {
        rank_free(&x.one[i], &x.c[i]);
        optc_loopback_close(x.stage[i]);
        optc_loopback_close(x.across[i]);
    }
    OK(optc_release(r));
    return wrong;
}

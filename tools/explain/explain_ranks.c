/* `optc explain --ranks N`: what each rank of a sharded binding sends, computes and holds. */
#include "tools/explain/explain.h"

#include "tools/bench/bench.h"

#include <stdlib.h>
#include <string.h>

static void put_rank(int rank, const optc_shard_plan *x)
{
    char a[4][32];
    printf("  %4d %10s %6d %10s %10s %10s %9.0f%%\n", rank, cli_size(a[0], x->elements), x->owned,
           cli_bytes(a[1], x->sent), cli_bytes(a[2], (double)x->states),
           cli_bytes(a[3], (double)(x->temporaries + x->buffers)),
           x->mean_work > 0 ? 100 * x->work / x->mean_work : 100);
}

static int put_ranks(optc_rule *r, const optc_group *g, int ranks)
{
    enum { MOST_SHOWN = 64 };
    optc_shard_plan x, most = {0};
    double sent = 0, overlapped = 0;
    char a[2][32];
    int shown = ranks < MOST_SHOWN ? ranks : MOST_SHOWN;
    printf("  rank   elements  owned   sent/step     states     memory      work\n");
    for (int i = 0; i < shown; i++) {
        int rank = (int)((int64_t)i * ranks / shown);
        if (optc_plan_sharded(r, g, 1, rank, ranks, &x) != OPTC_OK)
            return cli_fail("explain: %s", optc_message());
        put_rank(rank, &x);
        sent = x.sent > sent ? x.sent : sent;
        overlapped = x.overlapped > overlapped ? x.overlapped : overlapped;
        most = x;
    }
    if (shown < ranks)
        printf("  %d of %d ranks are shown\n", shown, ranks);
    printf("\n  collectives  %d per step at most, for all tensors together\n", most.collectives);
    printf("  sent         at most %s per rank and step\n", cli_bytes(a[0], sent));
    if (most.groups)
        printf("  overlap      on a GPU %s of it are sent beside owners' stages: %d groups of "
               "tensors, operands%s\n",
               cli_bytes(a[0], overlapped), most.groups,
               most.results ? " and results" : ", not results");
    else
        printf("  overlap      none: no tensors are sent to owners in groups\n");
    if (most.mean_work > 0)
        printf("  balance      the slowest rank has %.2f of the mean work; the largest tensor "
               "alone is %.2f of it\n",
               most.most_work / most.mean_work, most.largest_work / most.mean_work);
    printf("  work         operations of products and factors, plus elements, of the tensors that "
           "a rank owns\n");
    printf("  memory       temporaries of the rule, buffers of the exchanges, and whole tensors at "
           "their owner\n");
    return CLI_OK;
}

int explain_ranks(const char *spec, const CompileOpts *o, const TensorOpts *of)
{
    optc_engine *e = NULL;
    optc_rule *r = NULL;
    Dims *dims = NULL;
    int n = 0, rc = CLI_FAILED;
    optc_tensor *t = work_tensors("explain", &of->shapes, of->work, &dims, &n);
    optc_rule_options ro = spec_rule_options(o, spec, o->with);
    optc_engine_options eo = {.device = "cpu", .spec_path = o->path, .workspace = of->workspace};
    if (t && optc_open(&eo, &e) == OPTC_OK && optc_compile(e, &ro, &r) == OPTC_OK) {
        optc_group g = {.tensors = t, .ntensors = n};
        printf("%s on %d tensors, cut along dimension 0 among %d ranks\n\n", optc_rule_name(r), n,
               of->ranks);
        rc = put_ranks(r, &g, of->ranks);
    } else if (t) {
        rc = cli_fail("explain: %s", optc_message());
    }
    optc_release(r);
    optc_close(e);
    free(t);
    free(dims);
    return rc;
}

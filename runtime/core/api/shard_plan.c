/* Facts of sharded bindings for callers: which rank holds a state, and (optc_plan_sharded) what a
 * rank sends, computes and holds. A plan allocates no tensors and needs no other process: this file
 * makes up the other ranks' answers, the same tensors, cut along dimension 0 into equal pieces. */
#include "runtime/core/api/api.h"
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

typedef struct Pretend { int ranks, call, ntensor; } Pretend;

/* Rows [*at, *at + result) of n are the piece of a rank. */
static int64_t even_piece(int64_t n, int rank, int ranks, int64_t *at)
{
    int64_t each = count_up(n, ranks);
    *at = each * rank < n ? each * rank : n;
    return n - *at < each ? n - *at : each;
}

/* A table of gather_tables (shard_cut.c), with the pieces of another rank. */
static void cut_table(int64_t *table, int ntensor, int rank, int ranks)
{
    for (int i = 0; i < ntensor; i++) {
        int64_t dims = *table++;
        if (dims)
            table[2 * dims] = even_piece(table[0], rank, ranks, &table[dims]);
        table += 3 * dims;
    }
}

static int pretend_gather(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    Pretend *p = (Pretend *)context;
    (void)stream;
    p->call++;
    for (int r = 0; r < p->ranks; r++) {
        char *to = (char *)recv + bytes * (size_t)r;
        memcpy(to, send, bytes);
        /* a greeting, the tensors' identities, their pieces */
        if (p->call == 3)
            cut_table((int64_t *)(void *)to, p->ntensor, r, p->ranks);
    }
    return 0;
}

static int pretend_all_to_all(void *context, const void *send, const size_t *send_bytes, void *recv,
                              const size_t *recv_bytes, void *stream)
{
    (void)context, (void)send, (void)send_bytes, (void)recv, (void)recv_bytes, (void)stream;
    return 1;                                      /* a plan is not run */
}

/* ---- results ---- */
static void add_exchange(const optc_binding *b, int number, double weight, optc_shard_plan *out)
{
    const Exchange *e = &b->shards->exchange[number];
    const optc_comm *c = &b->shards->comm;
    for (int r = 0; r < c->ranks; r++)
        out->sent += r == c->rank ? 0 : weight * (double)e->send_bytes[r];
    out->sent += weight * (double)e->share_bytes * (c->ranks - 1);
}

static void add_phase(const optc_binding *b, const ProgPhase *ph, double weight,
                      optc_shard_plan *out)
{
    int collectives = 0, first = -1;
    /* on a CPU the ranks compare ahead of every exchange */
    bool host = b->rule->device->reaches;
    AgreeMode mode = b->shards->comm.ranks > 1 ? compare_mode(b, ph, &first) : AGREE_NOT;
    double bytes = host ? (double)(b->ntensor / 8 + 2) : (double)b->shards->head;
    collectives += mode != AGREE_NOT && (host || mode != AGREE_RIDES);
    out->sent += mode == AGREE_NOT ? 0 : weight * bytes * (b->shards->comm.ranks - 1);
    for (int i = 0; i < ph->naction; i++)
        if (ph->action[i].kind == ACT_EXCHANGE) {
            const Exchange *e = &b->shards->exchange[ph->action[i].stage];
            collectives += e->pairs + (e->share_bytes > 0);
            add_exchange(b, ph->action[i].stage, weight, out);
        }
    out->collectives =
        collectives > out->collectives && weight > 0 ? collectives : out->collectives;
}

/* The first group's operands and the last one's results are exchanged while no stage of the owner
 * runs. */
static void add_overlap(const optc_binding *b, const Overlap *o, const ProgPhase *ph, double weight,
                        optc_shard_plan *out)
{
    optc_shard_plan beside;
    memset(&beside, 0, sizeof beside);
    for (int g = 1; g < o->groups; g++) {
        add_exchange(b, ph->action[o->operands + g].stage, weight, &beside);
        if (o->ends_early)
            add_exchange(b, ph->action[o->results + g - 1].stage, weight, &beside);
    }
    out->groups = o->groups;
    out->results = out->results || o->ends_early;
    out->overlapped += beside.sent;
}

static optc_status describe(const optc_binding *b, optc_shard_plan *out)
{
    const Program *p = b->program;
    const Shards *x = b->shards;
    double *weight = (double *)calloc((size_t)program_phases(p), sizeof *weight);
    if (!weight)
        return no_memory("optc_plan_sharded");
    phase_weights(p, weight);
    for (int m = 0; m < program_phases(p); m++)
        add_phase(b, &p->entry[step_entry(p)].phase[m], weight[m], out);
    for (int i = 0; i < x->noverlap; i++) {
        const Overlap *o = &x->overlap[i];
        const int m = o->phase - step_entry(p) * program_phases(p);
        if (m >= 0 && m < program_phases(p) && weight[m] > 0)
            add_overlap(b, o, &p->entry[step_entry(p)].phase[m], weight[m], out);
    }
    free(weight);
    out->work = x->load[x->comm.rank];
    for (int r = 0; r < x->comm.ranks; r++) {
        out->mean_work += x->load[r] / x->comm.ranks;
        out->most_work = x->load[r] > out->most_work ? x->load[r] : out->most_work;
    }
    out->largest_work = x->largest;
    for (int i = 0; i < b->ntensor; i++) {
        out->owned += x->cut[i].owner == x->comm.rank && x->cut[i].how != CLASS_ROWS;
        out->elements += b->tensor[i].shape.n;
    }
    out->states = b->state_bytes;
    out->buffers = x->bytes;
    out->temporaries = (int64_t)b->storage_bytes - b->state_bytes - x->bytes;
    return OPTC_OK;
}

/* ---- pieces ---- */
/* The rank's pieces of whole tensors, with addresses that are never used. */
typedef struct Pieces { optc_group *group; optc_tensor *tensor; int64_t *dims; int n; } Pieces;

static optc_status take_pieces(const optc_group *groups, int ngroups, int rank, int ranks,
                               Pieces *out)
{
    uintptr_t at = 4096;
    int64_t dims = 0;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < ngroups; i++)
        for (int k = 0; k < groups[i].ntensors; k++, out->n++)
            dims += 2 * groups[i].tensors[k].rank;
    out->group = (optc_group *)calloc((size_t)ngroups, sizeof *out->group);
    out->tensor = (optc_tensor *)calloc((size_t)out->n + 1, sizeof *out->tensor);
    int64_t *d = out->dims = (int64_t *)calloc((size_t)dims + 1, sizeof *d);
    optc_tensor *t = out->tensor;
    for (int i = 0; out->group && t && d && i < ngroups; i++) {
        out->group[i] = groups[i];
        out->group[i].tensors = t;
        for (int k = 0; k < groups[i].ntensors; k++, t++) {
            int64_t bytes = 8;
            *t = groups[i].tensors[k];
            t->global_shape = t->shape;
            for (int j = 0; j < t->rank; j++) {
                d[j] = t->shape[j];
                if (!j)
                    d[0] = even_piece(t->shape[0], rank, ranks, &d[t->rank]);
                bytes = d[j] > 0 ? dom_times(bytes, d[j]) : bytes;
            }
            t->shape = d;
            t->offset = d + t->rank;
            t->param = (void *)at;
            t->grad = (const void *)(at + (uintptr_t)bytes);
            at += 2 * (uintptr_t)bytes;
            d += 2 * t->rank;
        }
    }
    return out->group && out->tensor && out->dims ? OPTC_OK : no_memory("optc_plan_sharded");
}

CORE optc_status bind_rank_plan(optc_rule *r, const optc_group *groups, int ngroups,
                                const RankPlan *x, optc_binding **out)
{
    Pieces pieces;
    Pretend pretend = {x->ranks, 0, 0};
    optc_comm comm = {x->rank, x->ranks, &pretend, pretend_gather, pretend_all_to_all};
    *out = NULL;
    optc_status s = take_pieces(groups, ngroups, x->rank, x->ranks, &pieces);
    pretend.ntensor = pieces.n;
    for (int i = 0; i < pieces.n && s == OPTC_OK && !x->sharded; i++) {
        pieces.tensor[i].global_shape = NULL;
        pieces.tensor[i].offset = NULL;
    }
    if (s == OPTC_OK)
        s = bind_plan(r, pieces.group, ngroups, x->sharded ? &comm : NULL, x->kind, out);
    free(pieces.group);
    free(pieces.tensor);
    free(pieces.dims);
    return s;
}

optc_status optc_plan_sharded_sized(optc_rule *r, const optc_group *groups, int ngroups, int rank,
                                    int ranks, optc_shard_plan *out, size_t size)
{
    const StructVersion as =
        STRUCT_VERSION("optc_plan_sharded_sized", optc_shard_plan, "optc_plan_sharded", buffers);
    optc_shard_plan plan;
    optc_binding *b = NULL;
    if (!r || !groups || !out || ngroups < 1 || ranks < 1 || rank < 0 || rank >= ranks)
        return fail(OPTC_ERROR_ARGUMENT, "optc_plan_sharded: %s",
                    !r || !groups || !out ? "a pointer is NULL"
                    : ngroups < 1         ? "ngroups must be 1 or more"
                                          : "rank is not in 0..ranks - 1");
    memset(&plan, 0, sizeof plan);
    const RankPlan x = {rank, ranks, true, PLAN_ONLY};
    optc_status s = bind_rank_plan(r, groups, ngroups, &x, &b);
    if (s == OPTC_OK)
        s = describe(b, &plan);
    (void)optc_unbind(b);
    return s == OPTC_OK ? struct_write(&as, out, size, &plan) : s;
}

optc_status optc_state_rank(const optc_binding *b, int tensor, const char *name, int *rank)
{
    int has = 0;
    if (!b || !name || !rank)
        return fail(OPTC_ERROR_ARGUMENT, "optc_state_rank: %s is NULL",
                    !b ? "the binding" : !name ? "the name" : "the result pointer");
    optc_status s = has_state(b, "optc_state_rank", tensor, name, &has);
    char label[96];
    if (s == OPTC_OK && !has)
        s = fail(OPTC_ERROR_ABSENT,
                 "optc_state_rank: %s keeps no state '%s' under this rule's options",
                 tensor_label(b, tensor, label), name);
    *rank = -1;
    for (int k = 0; s == OPTC_OK && b->shards && k < b->program->narray; k++)
        if (b->program->array[k].kind == MEM_STATE && !strcmp(b->program->array[k].name, name) &&
            has && shards_state_entry(b, tensor, k) != tensor)
            *rank = b->shards->cut[tensor].owner;
    return s;
}

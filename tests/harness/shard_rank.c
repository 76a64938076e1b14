/* Pieces of tensors, and one rank's arrays, binding and steps, for worlds of ranks
 * (shard_world.h). */
#include "tests/harness/shard_world.h"

#include "runtime/core/gpu/gpu_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const shard_cut_name[NCUTS] = {
#define CUT_NAME(name) #name,
    SHARD_CUTS(CUT_NAME)
#undef CUT_NAME
};

/* 300 x 128 has more than 4096 elements for each of 8 ranks; 18 rows leave two of 8 ranks without
 * any. */
const WorldTensor world_tensors[] = {
    {.name = "up", .shape = {2, {96, 64}}},
    {.name = "down", .shape = {2, {64, 96}}, .pauses = true},
    {.name = "odd", .shape = {2, {130, 33}}},
    {.name = "large", .shape = {2, {300, 128}}},
    {.name = "stack", .shape = {3, {4, 16, 24}}},
    {.name = "short", .shape = {2, {18, 20}}},
    {.name = "unused", .shape = {2, {24, 16}}, .never = true},
    {.name = "head", .shape = {2, {20, 12}}, .tags = "head"},
    {.name = "norm", .shape = {1, {64}}, .group = 1},
    {.name = "bias", .shape = {1, {33}}, .group = 1, .pauses = true},
    {.name = "long", .shape = {1, {5000}}, .group = 1},
    {.name = "scale", .shape = {0, {0}}, .group = 1},
};
const int world_ntensors = sizeof world_tensors / sizeof *world_tensors;

/* ---- cuts ---- */
int64_t whole_count(const TestShape *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        n *= s->dim[d];
    return n;
}

typedef struct Range { int64_t first, count; } Range;

static Range chunk(int64_t n, int part, int parts)
{
    int64_t each = (n + parts - 1) / parts, first = part * each < n ? part * each : n;
    return (Range){first, n - first < each ? n - first : each};
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static Range anywhere(int64_t n, int number, int part, int parts)
{
    int64_t at[WORLD_RANKS + 1] = {0};
    for (int i = 1; i < parts; i++)
        at[i] = (int64_t)(splitmix((uint64_t)(number * 1000 + parts * 10 + i)) % (uint64_t)(n + 1));
    at[parts] = n;
    qsort(at, (size_t)parts + 1, sizeof *at, by_size);
    return (Range){at[part], at[part + 1] - at[part]};
}

/* Ranks of odd or of even number have rows. */
static Range every_other(int64_t n, int number, int rank, int ranks)
{
    int odd = ranks > 1 && number % 2 == 0, have = odd ? ranks / 2 : (ranks + 1) / 2;
    return rank % 2 == odd ? chunk(n, rank / 2, have) : (Range){rank ? n : 0, 0};
}

Piece shard_piece(const WorldTensor *t, int number, ShardCut cut, int rank, int ranks)
{
    static const ShardCut kinds[] = {CUT_even, CUT_replicas, CUT_uneven, CUT_cols, CUT_reversed};
    Piece x = {.count = 1};
    memcpy(x.shape, t->shape.dim, sizeof x.shape);
    if (cut == CUT_mixed)
        cut = kinds[number % 5];
    int dim = cut == CUT_cols && t->shape.rank > 1;
    int64_t n = x.shape[dim];
    Range r = {0, n};
    switch (cut) {
    case CUT_even:
    case CUT_grid:
    case CUT_cols: r = chunk(n, rank, ranks); break;
    case CUT_hsdp: r = chunk(n, rank % (ranks / 2), ranks / 2); break;
    case CUT_empty: r = every_other(n, number, rank, ranks); break;
    case CUT_uneven:
    case CUT_flat: r = anywhere(n, number, rank, ranks); break;
    case CUT_reversed: r = anywhere(n, number, ranks - 1 - rank, ranks); break;
    default: break;
    }
    if (cut == CUT_grid && t->shape.rank > 1) {
        Range half = chunk(x.shape[t->shape.rank - 1], rank % 2, 2);
        x.offset[t->shape.rank - 1] = half.first;
        x.shape[t->shape.rank - 1] = half.count;
        dim = t->shape.rank - 2;
        r = chunk(x.shape[dim], rank / 2, ranks / 2);
    }
    if (t->shape.rank) {
        x.offset[dim] = r.first;
        x.shape[dim] = r.count;
    }
    for (int d = 0; d < t->shape.rank; d++)
        x.count *= x.shape[d];
    return x;
}

/* Where element i of the piece is in the whole tensor. */
int64_t piece_place(const WorldTensor *t, const Piece *x, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        at += (x->offset[d] + i % x->shape[d]) * step;
        i /= x->shape[d];
        step *= t->shape.dim[d];
    }
    return at;
}

/* ---- one rank ---- */
/* Values that narrow types store without rounding. */
static double value(Type type, int tensor, int step, int64_t i)
{
    double x = ref_value(tensor, step, i);
    return type_info[type].bytes < 4 ? floor(x * 64) / 64 : x;
}

/* ---- memory of a GPU ---- */
typedef struct RankMemory {
    GpuEngine *engine;
    CUstream stream;
    CUdeviceptr p[WORLD_TENSORS], g[2][WORLD_TENSORS];
} RankMemory;

static size_t array_bytes(const RankData *d, int k) { return 8 * ((size_t)d->piece[k].count + 1); }

static const Driver *gpu_begin(const RankData *d) { return gpu_enter(d->gpu->engine); }
static void gpu_end(const RankData *d, int rc)
{
    gpu_leave(d->gpu->engine, OPTC_OK);
    if (rc)
        abort();                                           /* ck_assert is not for threads */
}

static void gpu_copy(const RankData *d, CUdeviceptr to, const void *from, size_t bytes)
{
    const Driver *v = gpu_begin(d);
    int rc = v->cuMemcpyHtoDAsync_v2(to, from, bytes, d->gpu->stream);
    gpu_end(d, rc ? rc : v->cuStreamSynchronize(d->gpu->stream));
}

void *rank_stream(const RankData *d) { return d->gpu ? d->gpu->stream : NULL; }

void rank_fetch(const RankData *d, int k)
{
    if (!d->gpu)
        return;
    const Driver *v = gpu_begin(d);
    int rc = v->cuMemcpyDtoHAsync_v2(d->p[k], d->gpu->p[k], array_bytes(d, k), d->gpu->stream);
    gpu_end(d, rc ? rc : v->cuStreamSynchronize(d->gpu->stream));
}

static void gpu_make(RankData *d, const WorldCase *c)
{
    d->gpu = calloc(1, sizeof *d->gpu);
    d->gpu->engine = c->rule->engine->gpu;
    const Driver *v = gpu_begin(d);
    int rc = v->cuStreamCreate(&d->gpu->stream, 1);
    for (int k = 0; k < c->n; k++)
        rc = rc || v->cuMemAlloc_v2(&d->gpu->p[k], array_bytes(d, k)) ||
             v->cuMemAlloc_v2(&d->gpu->g[0][k], array_bytes(d, k)) ||
             v->cuMemAlloc_v2(&d->gpu->g[1][k], array_bytes(d, k));
    gpu_end(d, rc);
    for (int k = 0; k < c->n; k++)
        gpu_copy(d, d->gpu->p[k], d->p[k], array_bytes(d, k));
}

static void gpu_free(RankData *d, const WorldCase *c)
{
    const Driver *v = gpu_begin(d);
    for (int k = 0; k < c->n; k++) {
        v->cuMemFree_v2(d->gpu->p[k]);
        v->cuMemFree_v2(d->gpu->g[0][k]);
        v->cuMemFree_v2(d->gpu->g[1][k]);
    }
    gpu_end(d, v->cuStreamDestroy_v2(d->gpu->stream));
    free(d->gpu);
    d->gpu = NULL;
}

/* The pointers that are bound. */
static void *bound_param(const RankData *d, int k)
{
    return d->gpu ? (void *)(uintptr_t)d->gpu->p[k] : d->p[k];
}
static void *bound_grad(const RankData *d, int k, int step)
{
    return d->gpu ? (void *)(uintptr_t)d->gpu->g[step % 2][k] : d->g[k];
}

/* ---- arrays ---- */
void rank_fill(RankData *d, const WorldCase *c, ShardCut cut, int rank, int ranks)
{
    Type type = c->rule->library->plan->p;
    memset(d, 0, sizeof *d);
    for (int k = 0; k < c->n; k++) {
        d->piece[k] = shard_piece(&c->tensor[k], k, cut, rank, ranks);
        d->p[k] = calloc(1, array_bytes(d, k));
        d->g[k] = calloc(1, array_bytes(d, k));
        for (int64_t i = 0; i < d->piece[k].count; i++)
            type_store(type, d->p[k], i,
                       value(type, k, 0, piece_place(&c->tensor[k], &d->piece[k], i)));
    }
    if (c->rule->engine->gpu)
        gpu_make(d, c);
}

void rank_grads(RankData *d, const WorldCase *c, int step)
{
    Type type = c->rule->library->plan->g;
    for (int k = 0; k < c->n; k++) {
        for (int64_t i = 0; i < d->piece[k].count; i++)
            type_store(type, d->g[k], i,
                       value(type, k, step, piece_place(&c->tensor[k], &d->piece[k], i)));
        if (d->gpu)
            gpu_copy(d, d->gpu->g[step % 2][k], d->g[k], array_bytes(d, k));
    }
}

optc_status rank_bind(RankData *d, const WorldCase *c, const optc_comm *comm)
{
    optc_tensor t[WORLD_TENSORS] = {{.name = NULL}};
    optc_group g[WORLD_GROUPS] = {{.tensors = NULL}};
    const optc_setting slow[] = {{"lr", 0.0005}};
    int ngroups = 0, has_lr = 0;
    for (int k = 0; k < c->n; k++) {
        const WorldTensor *x = &c->tensor[k];
        t[k] = (optc_tensor){.name = x->name,
                             .param = bound_param(d, k),
                             .grad = x->never ? NULL : bound_grad(d, k, 1),
                             .rank = x->shape.rank,
                             .shape = x->shape.dim,
                             .split = x->split,
                             .tags = x->tags};
    }
    without_kernels(c->rule, t, c->n);                     /* decides by the whole shapes */
    for (int i = 0; i < optc_rule_hypers(c->rule); i++) {
        optc_hyper h;
        has_lr |= optc_rule_hyper(c->rule, i, &h) == OPTC_OK && !strcmp(h.name, "lr");
    }
    for (int k = 0; k < c->n; k++) {
        const WorldTensor *x = &c->tensor[k];
        bool whole = d->piece[k].count == whole_count(&x->shape);
        t[k].shape = d->piece[k].shape;
        /* a whole tensor may have a global shape, or none */
        if (comm && x->shape.rank && !(whole && k % 2)) {
            t[k].global_shape = x->shape.dim;
            t[k].offset = d->piece[k].offset;
        }
        if (!g[x->group].tensors)
            g[x->group] =
                (optc_group){.tensors = &t[k], .hyper = slow, .nhyper = x->group && has_lr ? 1 : 0};
        g[x->group].ntensors++;
        ngroups = x->group + 1;
    }
    optc_status s = comm ? optc_bind_sharded(c->rule, g, ngroups, comm, &d->binding)
                         : optc_bind(c->rule, g, ngroups, &d->binding);
    return s == OPTC_OK && d->gpu ? optc_set_stream(d->binding, d->gpu->stream) : s;
}

static bool has_entry(const optc_rule *r, const char *name)
{
    for (int i = 0; i < optc_rule_entries(r); i++)
        if (!strcmp(optc_rule_entry(r, i), name))
            return true;
    return false;
}

optc_status rank_step(RankData *d, const WorldCase *c, int step)
{
    const void *g[WORLD_TENSORS];
    optc_status s = c->at[step - 1] ? optc_set_t(d->binding, -1, c->at[step - 1]) : OPTC_OK;
    rank_grads(d, c, step);
    for (int k = 0; k < c->n; k++)
        g[k] = c->tensor[k].never || (c->tensor[k].pauses && step == 2) ? NULL
                                                                        : bound_grad(d, k, step);
    if (s == OPTC_OK)
        s = optc_set_grads(d->binding, g, c->n);
    if (s == OPTC_OK && has_entry(c->rule, "perturb"))
        s = optc_run(d->binding, "perturb");
    return s == OPTC_OK ? optc_step(d->binding) : s;
}

void rank_free(RankData *d, const WorldCase *c)
{
    OK(optc_unbind(d->binding));
    if (d->gpu)
        gpu_free(d, c);
    for (int k = 0; k < c->n; k++) {
        free(d->p[k]);
        free(d->g[k]);
    }
    memset(d, 0, sizeof *d);
}

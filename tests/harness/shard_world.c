#include "tests/harness/shard_world.h"

#include "tests/harness/rank_threads.h"

#include "runtime/core/gpu/gpu_device.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char *const shard_cut_name[NCUTS] = {
#define CUT_NAME(name) #name,
    SHARD_CUTS(CUT_NAME)
#undef CUT_NAME
};

/* 300 x 128 has more than 4096 elements for each of 8 ranks; 18 rows leave two of 8 ranks without any. */
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
static int64_t count_of(const TestShape *s)
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

static const Driver *gpu_begin(const RankData *d) { return gpu_enter_aside(d->gpu->engine); }
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
static void *bound_param(const RankData *d, int k) { return d->gpu ? (void *)(uintptr_t)d->gpu->p[k] : d->p[k]; }
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
            type_store(type, d->p[k], i, value(type, k, 0, piece_place(&c->tensor[k], &d->piece[k], i)));
    }
    if (c->rule->engine->gpu)
        gpu_make(d, c);
}

void rank_grads(RankData *d, const WorldCase *c, int step)
{
    Type type = c->rule->library->plan->g;
    for (int k = 0; k < c->n; k++) {
        for (int64_t i = 0; i < d->piece[k].count; i++)
            type_store(type, d->g[k], i, value(type, k, step, piece_place(&c->tensor[k], &d->piece[k], i)));
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
        t[k] = (optc_tensor){.name = x->name, .param = bound_param(d, k), .grad = x->never ? NULL : bound_grad(d, k, 1),
                             .rank = x->shape.rank, .shape = x->shape.dim, .split = x->split, .tags = x->tags};
    }
    without_kernels(c->rule, t, c->n);                     /* decides by the whole shapes */
    for (int i = 0; i < optc_rule_hypers(c->rule); i++) {
        optc_hyper h;
        has_lr |= optc_rule_hyper(c->rule, i, &h) == OPTC_OK && !strcmp(h.name, "lr");
    }
    for (int k = 0; k < c->n; k++) {
        const WorldTensor *x = &c->tensor[k];
        bool whole = d->piece[k].count == count_of(&x->shape);
        t[k].shape = d->piece[k].shape;
        if (comm && x->shape.rank && !(whole && k % 2)) {  /* a whole tensor may have a global shape, or none */
            t[k].global_shape = x->shape.dim;
            t[k].offset = d->piece[k].offset;
        }
        if (!g[x->group].tensors)
            g[x->group] = (optc_group){.tensors = &t[k], .hyper = slow, .nhyper = x->group && has_lr ? 1 : 0};
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
        g[k] = c->tensor[k].never || (c->tensor[k].pauses && step == 2) ? NULL : bound_grad(d, k, step);
    if (s == OPTC_OK)
        s = optc_set_grads(d->binding, g, c->n);
    if (s == OPTC_OK && has_entry(c->rule, "perturb"))
        s = optc_run(d->binding, "perturb");
    return s == OPTC_OK ? optc_step(d->binding) : s;
}

static optc_status run_others(RankData *d, const WorldCase *c)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < optc_rule_entries(c->rule) && s == OPTC_OK; i++)
        if (strcmp(optc_rule_entry(c->rule, i), "step") && strcmp(optc_rule_entry(c->rule, i), "perturb"))
            s = optc_run(d->binding, optc_rule_entry(c->rule, i));
    return s;
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

/* ---- the reference ---- */
typedef struct Values { double *v; int64_t n; } Values;  /* n -1: the tensor does not have this state */
/* Everything at one time. Group states and values are indexed by group in place of the tensor. */
typedef struct Snapshot {
    Values p[WORLD_TENSORS], state[WORLD_STATES][WORLD_TENSORS], value[WORLD_STATES][WORLD_GROUPS];
    int64_t t[WORLD_TENSORS];
} Snapshot;
struct Reference {
    WorldCase c;
    WorldTensor flat[WORLD_TENSORS];
    int ngroups;
    Snapshot after_steps, after_entries;
};

static Values read_param(const RankData *d, const WorldCase *c, int k)
{
    Values x = {malloc(8 * (size_t)(d->piece[k].count + 1)), d->piece[k].count};
    rank_fetch(d, k);
    for (int64_t i = 0; i < x.n; i++)
        x.v[i] = type_load(c->rule->library->plan->p, d->p[k], i);
    return x;
}

static bool of_group(const optc_state_info *s) { return !strcmp(s->domain, "group"); }

static Values read_state(optc_binding *b, int i, const char *name)
{
    Values x = {NULL, -1};
    optc_state_view view;
    int has;
    OK(optc_has_state(b, i, name, &has));
    if (!has)
        return x;
    OK(optc_state(b, i, name, &view));
    x = (Values){malloc(8 * (size_t)(view.count + 1)), view.count};
    OK(optc_state_read(b, i, name, x.v, x.n));
    return x;
}

static Values read_group_value(optc_binding *b, int group, const optc_state_info *info)
{
    Values x = {NULL, -1};
    if (of_group(info)) {
        x = (Values){malloc(8), 1};
        OK(optc_read_value(b, group, info->name, x.v, 1));
    }
    return x;
}

static void snapshot(Snapshot *s, const Reference *r, const RankData *d)
{
    optc_state_info info;
    ck_assert_int_le(optc_rule_states(r->c.rule), WORLD_STATES);
    for (int k = 0; k < r->c.n; k++) {
        s->p[k] = read_param(d, &r->c, k);
        OK(optc_get_t(d->binding, k, &s->t[k]));
    }
    for (int j = 0; j < optc_rule_states(r->c.rule); j++) {
        OK(optc_rule_state(r->c.rule, j, &info));
        for (int i = 0; i < (of_group(&info) ? r->ngroups : r->c.n); i++)
            s->state[j][i] = read_state(d->binding, i, info.name);
    }
    for (int j = 0; j < optc_rule_values(r->c.rule); j++) {
        OK(optc_rule_value(r->c.rule, j, &info));
        for (int i = 0; i < r->ngroups; i++)
            s->value[j][i] = read_group_value(d->binding, i, &info);
    }
}

static void snapshot_free(Snapshot *s)
{
    for (int i = 0; i < WORLD_TENSORS; i++)
        free(s->p[i].v);
    for (int j = 0; j < WORLD_STATES; j++) {
        for (int i = 0; i < WORLD_TENSORS; i++)
            free(s->state[j][i].v);
        for (int i = 0; i < WORLD_GROUPS; i++)
            free(s->value[j][i].v);
    }
}

Reference *reference_run(const WorldCase *c, bool flat)
{
    Reference *r = calloc(1, sizeof *r);
    RankData d;
    r->c = *c;
    ck_assert_int_le(c->n, WORLD_TENSORS);
    for (int k = 0; k < c->n; k++) {
        r->flat[k] = c->tensor[k];
        if (flat && c->tensor[k].shape.rank) {
            r->flat[k].shape = (TestShape){1, {count_of(&c->tensor[k].shape)}};
            r->flat[k].split = 0;
        }
        r->ngroups = c->tensor[k].group + 1;
    }
    r->c.tensor = r->flat;
    rank_fill(&d, &r->c, CUT_replicas, 0, 1);
    OK(rank_bind(&d, &r->c, NULL));
    for (int step = 1; step <= c->steps; step++)
        OK(rank_step(&d, &r->c, step));
    snapshot(&r->after_steps, r, &d);
    OK(run_others(&d, &r->c));
    snapshot(&r->after_entries, r, &d);
    rank_free(&d, &r->c);
    return r;
}

void reference_free(Reference *r)
{
    snapshot_free(&r->after_steps);
    snapshot_free(&r->after_entries);
    free(r);
}

void forget_states(const optc_binding *b);                 /* forget_states.c */

/* ---- the world ---- */
typedef struct World {
    const Reference *of;
    const WorldCase *c;
    ShardCut cut;
    int ranks;
    optc_loopback *loopback;
    RankData rank[WORLD_RANKS];
    pthread_mutex_t lock;
    char *failure;                     /* of the first rank that failed */
} World;

/* Releases the other ranks, which wait for this one. */
static void rank_failed(World *w, int rank, const char *what)
{
    char *m = format("rank %d: %s: %s", rank, what, optc_message());
    pthread_mutex_lock(&w->lock);
    if (w->failure)
        free(m);
    else
        w->failure = m;
    pthread_mutex_unlock(&w->lock);
    optc_loopback_fail(w->loopback);
}

static void steps_of_rank(int rank, void *arg)
{
    World *w = arg;
    RankData *d = &w->rank[rank];
    optc_comm comm;
    optc_status s = w->c->comm ? w->c->comm(w->c->with, rank, w->ranks, &comm)
                               : optc_loopback_comm(w->loopback, rank, &comm);
    if (s == OPTC_OK)
        s = rank_bind(d, w->c, &comm);
    if (s != OPTC_OK)
        rank_failed(w, rank, "optc_bind_sharded");
    for (int step = 1; step <= w->c->steps && s == OPTC_OK; step++) {
        if (w->c->forgets)
            forget_states(d->binding);
        if ((s = rank_step(d, w->c, step)) != OPTC_OK)
            rank_failed(w, rank, "step");
    }
}

static void entries_of_rank(int rank, void *arg)
{
    World *w = arg;
    if (run_others(&w->rank[rank], w->c) != OPTC_OK)
        rank_failed(w, rank, "optc_run");
}

static bool same_bits(double a, double b) { return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a); }

/* Where value i of a piece's state is in the whole state. A cut along dimension 0 cuts a state into as many parts, in
 * the same proportions, or does not cut it. -1: the number of values fits neither. */
static int64_t whole_place(const WorldTensor *t, const Piece *x, const char *domain, int64_t n, int64_t whole,
                           int64_t i)
{
    if (n == whole)
        return i;
    if (!strcmp(domain, "elem"))
        return n == x->count ? piece_place(t, x, i) : -1;
    bool rows = t->shape.rank > 0 && n * t->shape.dim[0] == whole * x->shape[0];
    for (int d = 1; d < t->shape.rank; d++)
        rows = rows && x->shape[d] == t->shape.dim[d];
    return rows ? whole / t->shape.dim[0] * x->offset[0] + i : -1;
}

/* Compares a rank's values with the whole, and marks in `seen` the values that it has. */
static char *compare(const World *w, int rank, const char *what, int k, const char *domain, const Values *got,
                     const Values *want, char *seen)
{
    for (int64_t i = 0; i < got->n; i++) {
        int64_t at = k < 0 ? i : whole_place(&w->c->tensor[k], &w->rank[rank].piece[k], domain, got->n, want->n, i);
        if (at < 0 || at >= want->n)
            return format("rank %d has %lld values of %s, the whole has %lld", rank, (long long)got->n, what,
                          (long long)want->n);
        seen[at] = 1;
        if (!same_bits(got->v[i], want->v[at]))
            return format("rank %d: %s, element %lld of the piece, %lld of %lld: %.17g, plain %.17g", rank, what,
                          (long long)i, (long long)at, (long long)want->n, got->v[i], want->v[at]);
    }
    return NULL;
}

static char *not_covered(const char *what, const Values *want, const char *seen)
{
    for (int64_t i = 0; i < want->n; i++)
        if (!seen[i])
            return format("no rank has %s, element %lld of %lld", what, (long long)i, (long long)want->n);
    return NULL;
}

static char *compare_params(const World *w, const Snapshot *s, int k)
{
    char *seen = calloc((size_t)s->p[k].n + 1, 1), *m = NULL, *what = format("p of %s", w->c->tensor[k].name);
    for (int rank = 0; rank < w->ranks && !m; rank++) {
        Values got = read_param(&w->rank[rank], w->c, k);
        int64_t t;
        OK(optc_get_t(w->rank[rank].binding, k, &t));
        m = compare(w, rank, what, k, "elem", &got, &s->p[k], seen);
        if (!m && t != s->t[k])
            m = format("rank %d: %s has taken %lld steps, plain %lld", rank, w->c->tensor[k].name, (long long)t,
                       (long long)s->t[k]);
        free(got.v);
    }
    if (!m)
        m = not_covered(what, &s->p[k], seen);
    free(what);
    free(seen);
    return m;
}

/* i: the number of the tensor, or of the group for states of groups */
static char *compare_state(const World *w, const optc_state_info *info, int i, const Values *want)
{
    bool group = of_group(info);
    char *seen = calloc((size_t)(want->n + 1), 1), *m = NULL;
    char *what = group ? format("state %s of group %d", info->name, i)
                       : format("state %s of %s", info->name, w->c->tensor[i].name);
    int owner = -1;
    for (int rank = 0; rank < w->ranks && !m; rank++) {
        optc_binding *b = w->rank[rank].binding;
        int has = 0, mine = -1;
        OK(optc_has_state(b, i, info->name, &has));
        if (!has != (want->n < 0)) {
            m = format("rank %d: %s: has %d, plain %d", rank, what, has, want->n >= 0);
            break;
        }
        if (!has)
            continue;
        OK(optc_state_rank(b, i, info->name, &mine));
        if (!rank)
            owner = mine;
        if (mine != owner || mine < -1 || mine >= w->ranks)
            m = format("rank %d: the owner of %s is %d, on rank 0 %d", rank, what, mine, owner);
        if (!m && (owner < 0 || owner == rank)) {
            Values got = read_state(b, i, info->name);
            if (owner == rank && got.n != want->n)
                m = format("rank %d owns %s and has %lld of %lld values", rank, what, (long long)got.n,
                           (long long)want->n);
            else
                m = compare(w, rank, what, group ? -1 : i, info->domain, &got, want, seen);
            free(got.v);
        }
    }
    if (!m)
        m = not_covered(what, want, seen);
    free(what);
    free(seen);
    return m;
}

static char *compare_value(const World *w, const optc_state_info *info, int group, const Values *want)
{
    char seen[2], *m = NULL;
    for (int rank = 0; rank < w->ranks && !m && want->n >= 0; rank++) {
        Values got = read_group_value(w->rank[rank].binding, group, info);
        m = compare(w, rank, info->name, -1, info->domain, &got, want, seen);
        free(got.v);
    }
    return m;
}

static char *compare_world(const World *w, const Snapshot *s)
{
    char *m = NULL;
    optc_state_info info;
    for (int k = 0; k < w->c->n && !m; k++)
        m = compare_params(w, s, k);
    for (int j = 0; j < optc_rule_states(w->c->rule) && !m; j++) {
        OK(optc_rule_state(w->c->rule, j, &info));
        for (int i = 0; i < (of_group(&info) ? w->of->ngroups : w->c->n) && !m; i++)
            m = compare_state(w, &info, i, &s->state[j][i]);
    }
    for (int j = 0; j < optc_rule_values(w->c->rule) && !m; j++) {
        OK(optc_rule_value(w->c->rule, j, &info));
        for (int i = 0; i < w->of->ngroups && !m; i++)
            m = compare_value(w, &info, i, &s->value[j][i]);
    }
    return m;
}

char *world_run(const Reference *r, ShardCut cut, int ranks)
{
    World w = {.of = r, .c = &r->c, .cut = cut, .ranks = ranks};
    pthread_mutex_init(&w.lock, NULL);
    OK(optc_loopback_open(ranks, r->c.rule->engine, &w.loopback));
    for (int rank = 0; rank < ranks; rank++)
        rank_fill(&w.rank[rank], w.c, cut, rank, ranks);
    run_ranks(ranks, steps_of_rank, &w);
    char *m = w.failure ? w.failure : compare_world(&w, &r->after_steps);
    if (!m && optc_rule_entries(w.c->rule) > 1) {
        run_ranks(ranks, entries_of_rank, &w);
        m = w.failure ? w.failure : compare_world(&w, &r->after_entries);
    }
    for (int rank = 0; rank < ranks; rank++)
        rank_free(&w.rank[rank], w.c);
    optc_loopback_close(w.loopback);
    pthread_mutex_destroy(&w.lock);
    return m;
}

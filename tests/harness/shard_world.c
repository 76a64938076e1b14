/* Runs worlds of ranks and compares them with a plain binding. */
#include "tests/harness/shard_world.h"

#include "tests/harness/rank_threads.h"

#include "runtime/core/base/core.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the reference ---- */
static optc_status run_others(RankData *d, const WorldCase *c)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < optc_rule_entries(c->rule) && s == OPTC_OK; i++)
        if (strcmp(optc_rule_entry(c->rule, i), "step") &&
            strcmp(optc_rule_entry(c->rule, i), "perturb"))
            s = optc_run(d->binding, optc_rule_entry(c->rule, i));
    return s;
}

/* n -1: the tensor does not have this state */
typedef struct Values { double *v; int64_t n; } Values;
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
            r->flat[k].shape = (TestShape){1, {whole_count(&c->tensor[k].shape)}};
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

static bool same_bits(double a, double b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

/* Where value i of a piece's state is in the whole state. A cut along dimension 0 cuts a state into
 * as many parts, in the same proportions, or does not cut it. -1: the number of values fits
 * neither. */
static int64_t whole_place(const WorldTensor *t, const Piece *x, const char *domain, int64_t n,
                           int64_t whole, int64_t i)
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
static char *compare(const World *w, int rank, const char *what, int k, const char *domain,
                     const Values *got, const Values *want, char *seen)
{
    for (int64_t i = 0; i < got->n; i++) {
        int64_t at = k < 0 ? i
                           : whole_place(&w->c->tensor[k], &w->rank[rank].piece[k], domain, got->n,
                                         want->n, i);
        if (at < 0 || at >= want->n)
            return format("rank %d has %lld values of %s, the whole has %lld", rank,
                          (long long)got->n, what, (long long)want->n);
        seen[at] = 1;
        if (!same_bits(got->v[i], want->v[at]))
            return format(
                "rank %d: %s, element %lld of the piece, %lld of %lld: %.17g, plain %.17g", rank,
                what, (long long)i, (long long)at, (long long)want->n, got->v[i], want->v[at]);
    }
    return NULL;
}

static char *not_covered(const char *what, const Values *want, const char *seen)
{
    for (int64_t i = 0; i < want->n; i++)
        if (!seen[i])
            return format("no rank has %s, element %lld of %lld", what, (long long)i,
                          (long long)want->n);
    return NULL;
}

static char *compare_params(const World *w, const Snapshot *s, int k)
{
    char *seen = calloc((size_t)s->p[k].n + 1, 1), *m = NULL,
         *what = format("p of %s", w->c->tensor[k].name);
    for (int rank = 0; rank < w->ranks && !m; rank++) {
        Values got = read_param(&w->rank[rank], w->c, k);
        int64_t t;
        OK(optc_get_t(w->rank[rank].binding, k, &t));
        m = compare(w, rank, what, k, "elem", &got, &s->p[k], seen);
        if (!m && t != s->t[k])
            m = format("rank %d: %s has taken %lld steps, plain %lld", rank, w->c->tensor[k].name,
                       (long long)t, (long long)s->t[k]);
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
                m = format("rank %d owns %s and has %lld of %lld values", rank, what,
                           (long long)got.n, (long long)want->n);
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

static char *compare_value(const World *w, const optc_state_info *info, int group,
                           const Values *want)
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

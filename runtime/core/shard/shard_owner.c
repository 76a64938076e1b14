/* Owners: the rank that steps the whole of a tensor. Depends on the program and the shapes only, so
 * all ranks find the same. In descending order of cost, each tensor goes to the rank with the least
 * cost so far; ranks with equal cost take turns by the elements that they own. The cost is the mean
 * number of operations of a step's calls, plus the elements. */
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

/* ---- a binding of whole tensors ---- */
CORE void model_free(optc_binding *m)
{
    for (BindAlloc *p = m ? m->allocs : NULL, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(m);
}

CORE optc_status model_make(const optc_binding *b, optc_binding **out)
{
    optc_binding *m = *out = (optc_binding *)calloc(1, sizeof *m);
    if (!m)
        return no_memory("optc_bind_sharded");
    m->rule = b->rule;
    m->program = b->rule->program;
    m->ntensor = m->nheld = b->ntensor;
    if (!(m->tensor = TAKE(m, Tensor, b->ntensor)))
        return no_memory("optc_bind_sharded");
    memcpy(m->tensor, b->tensor, sizeof *m->tensor * (size_t)b->ntensor);
    for (int i = 0; i < m->ntensor; i++)
        m->tensor[i].shape = m->tensor[i].whole;
    optc_status s = blocks_make(m);
    return s == OPTC_OK ? stagger_make(m) : s;
}

/* ---- costs ---- */
enum { MOST_COUNTED = 4096 };              /* steps over which phases are counted */

CORE void phase_weights(const Program *p, double *weight)
{
    for (int64_t t = 1; t <= MOST_COUNTED; t++)
        weight[program_phase(p, t)] += 1.0 / MOST_COUNTED;
}

CORE int step_entry(const Program *p)
{
    int step = 0;
    while (step < p->nentry - 1 && strcmp(p->entry[step].name, "step"))
        step++;
    return step;
}

static double stage_flops(const optc_binding *m, const ProgStage *s, const Tensor *t)
{
    double flops = 0;
    if (!stage_of_blocks(s))
        return call_flops(m->program, s->call, t->shape);
    for (int i = t->first_view; i < t->first_view + t->nview; i++)
        flops += call_flops(m->program, s->call, m->tensor[i].shape);
    return flops;
}

/* The share of the tensor's blocks that a staggered stage computes in a step. */
static double stagger_share(const Program *p, const ProgStage *s)
{
    double share = s->stagger ? 0 : 1;
    int nth = 0;
    for (int k = 0; k < p->narray && nth < MOST_SLOTS; k++)
        if (p->array[k].slots.every) {
            double own = 1.0 / ((double)p->array[k].slots.every * p->array[k].slots.of);
            share = s->stagger >> nth & 1 && own > share ? own : share;
            nth++;
        }
    return share;
}

static double mean_cost(const optc_binding *m, const Tensor *t, const double *weight)
{
    const Program *p = m->program;
    double cost = (double)t->shape.n;
    const ProgPhase *phase = p->entry[step_entry(p)].phase;
    for (int ph = 0; ph < program_phases(p); ph++)
        for (int i = 0; weight[ph] > 0 && i < phase[ph].naction; i++) {
            const ProgAction *a = &phase[ph].action[i];
            const ProgStage *s = a->kind == ACT_LAUNCH ? &p->stage[a->stage] : NULL;
            if (s && s->kind == S_CALL && s->variant == t->variant)
                cost += stage_flops(m, s, t) * stagger_share(p, s) * weight[ph];
        }
    return cost;
}

/* ---- assignment ---- */
typedef struct Owned { double cost; int tensor; } Owned;

static int costly_first(const void *a, const void *b)
{
    const Owned *x = (const Owned *)a, *y = (const Owned *)b;
    return x->cost != y->cost ? (x->cost < y->cost) - (x->cost > y->cost) : x->tensor - y->tensor;
}

static void deal_owners(optc_binding *b, Owned *o, int n, double *load, int64_t *elements)
{
    const int ranks = b->shards->comm.ranks;
    qsort(o, (size_t)n, sizeof *o, costly_first);
    for (int i = 0; i < n; i++) {
        int best = 0;
        for (int r = 1; r < ranks; r++)
            if (load[r] < load[best] || (load[r] == load[best] && elements[r] < elements[best]))
                best = r;
        load[best] += o[i].cost;
        elements[best] += b->tensor[o[i].tensor].whole.n;
        b->shards->cut[o[i].tensor].owner = best;
    }
}

CORE optc_status owners_deal(optc_binding *b, const optc_binding *model)
{
    const int ranks = b->shards->comm.ranks;
    double *weight = (double *)calloc((size_t)program_phases(model->program), sizeof *weight);
    Owned *o = (Owned *)calloc((size_t)b->ntensor + 1, sizeof *o);
    double *load = b->shards->load = TAKE(b, double, ranks);
    int64_t *elements = (int64_t *)calloc((size_t)ranks, sizeof *elements);
    bool ok = weight && o && load && elements;
    if (ok) {
        int n = 0;
        phase_weights(model->program, weight);
        for (int i = 0; i < b->ntensor; i++)
            /* the owner only holds states per column */
            if (b->shards->cut[i].how == CLASS_ROWS)
                b->shards->cut[i].owner = i % ranks;
            else if (!b->shards->cut[i].slices && (b->shards->cut[i].how == CLASS_WHOLE ||
                                                   variant_owned(b, b->tensor[i].variant))) {
                o[n].cost = mean_cost(model, &model->tensor[i], weight);
                b->shards->largest =
                    o[n].cost > b->shards->largest ? o[n].cost : b->shards->largest;
                o[n++].tensor = i;
            }
        deal_owners(b, o, n, load, elements);
    }
    free(weight);
    free(o);
    free(elements);
    return ok ? OPTC_OK : no_memory("optc_bind_sharded");
}

/* ---- groups of tensors ---- */
/* The elements of one group of tensors are exchanged at a time, and all groups use the same
 * buffers. A set has the nth tensor of one shape of every owner, so that all owners receive alike.
 * Sets share a group while they fit: an eighth of all elements, or as many as keep a network busy
 * if they take a sixteenth of the workspace at most. */
enum { MOST_GROUPS = 8, LEAST_GROUP = 1 << 24 };
/* a tensor with an owner */
typedef struct InSet { Shape shape; int tensor, owner, nth; } InSet;
typedef struct OwnedSet { int first, end; int64_t elements; } OwnedSet;

static int order_of_shapes(Shape x, Shape y)
{
    return x.n != y.n         ? (x.n < y.n) - (x.n > y.n)
           : x.rows != y.rows ? (x.rows < y.rows) - (x.rows > y.rows)
                              : (x.cols < y.cols) - (x.cols > y.cols);
}

static int by_owner(const void *a, const void *b)
{
    const InSet *x = (const InSet *)a, *y = (const InSet *)b;
    int shape = order_of_shapes(x->shape, y->shape);
    return x->owner != y->owner ? x->owner - y->owner : shape ? shape : x->tensor - y->tensor;
}

static int by_set(const void *a, const void *b)
{
    const InSet *x = (const InSet *)a, *y = (const InSet *)b;
    int shape = order_of_shapes(x->shape, y->shape);
    return shape ? shape : x->nth != y->nth ? x->nth - y->nth : x->tensor - y->tensor;
}

static int large_sets_first(const void *a, const void *b)
{
    const OwnedSet *x = (const OwnedSet *)a, *y = (const OwnedSet *)b;
    return x->elements != y->elements ? (x->elements < y->elements) - (x->elements > y->elements)
                                      : x->first - y->first;
}

/* Sorts the tensors by set; returns the number of sets. */
static int make_sets(InSet *of, int n, OwnedSet *set)
{
    int sets = 0;
    qsort(of, (size_t)n, sizeof *of, by_owner);
    for (int i = 1; i < n; i++)
        of[i].nth = of[i].owner == of[i - 1].owner && !order_of_shapes(of[i].shape, of[i - 1].shape)
                        ? of[i - 1].nth + 1
                        : 0;
    qsort(of, (size_t)n, sizeof *of, by_set);
    for (int i = 0; i < n; i++) {
        if (!i || of[i].nth != of[i - 1].nth || order_of_shapes(of[i].shape, of[i - 1].shape))
            set[sets++].first = i;
        set[sets - 1].end = i + 1;
        set[sets - 1].elements += of[i].shape.n;
    }
    return sets;
}

CORE optc_status groups_make(optc_binding *b)
{
    InSet *of = (InSet *)calloc((size_t)b->ntensor + 1, sizeof *of);
    OwnedSet *set = (OwnedSet *)calloc((size_t)b->ntensor + 1, sizeof *set);
    int64_t *sum = (int64_t *)calloc((size_t)b->ntensor + 1, sizeof *sum), all = 0;
    bool ok = of && set && sum;
    int n = 0, groups = 0;
    for (int i = 0; ok && i < b->ntensor; i++)
        if (b->shards->cut[i].owner >= 0 && b->shards->cut[i].how != CLASS_ROWS) {
            of[n].shape = b->tensor[i].whole;
            of[n].tensor = i;
            of[n++].owner = b->shards->cut[i].owner;
            all += b->tensor[i].whole.n;
        }
    int sets = ok && n ? make_sets(of, n, set) : 0;
    int64_t busy =
        b->shards->workspace / 64 < LEAST_GROUP ? b->shards->workspace / 64 : (int64_t)LEAST_GROUP;
    int64_t most = all / MOST_GROUPS > busy ? all / MOST_GROUPS : busy;
    if (sets)
        qsort(set, (size_t)sets, sizeof *set, large_sets_first);
    for (int k = 0; k < sets; k++) {
        int g = 0;
        while (g < groups && sum[g] + set[k].elements > most)
            g++;
        groups += g == groups;
        sum[g] += set[k].elements;
        for (int i = set[k].first; i < set[k].end; i++)
            b->shards->cut[of[i].tensor].group = g;
    }
    b->shards->ngroups = groups ? groups : 1;
    free(of);
    free(set);
    free(sum);
    return ok ? OPTC_OK : no_memory("optc_bind_sharded");
}

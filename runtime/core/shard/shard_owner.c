/* Owners: the rank that steps the whole of a tensor. Depends on the program and the shapes only, so all ranks find the
 * same. In descending order of cost, each tensor goes to the rank with the least cost so far; ranks with equal cost
 * take turns by the elements that they own. The cost is the mean number of operations of a step's calls, plus the
 * elements. */
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
    const CalleeInfo *x = callee_info(s->call);
    double flops = 0;
    if (!stage_of_blocks(s))
        return x->flops(m->program, s->call, t->shape);
    for (int i = t->first_view; i < t->first_view + t->nview; i++)
        flops += x->flops(m->program, s->call, m->tensor[i].shape);
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
            if (b->shards->cut[i].how == CLASS_ROWS)           /* the owner only holds states per column */
                b->shards->cut[i].owner = i % ranks;
            else if (!b->shards->cut[i].slices &&
                     (b->shards->cut[i].how == CLASS_WHOLE || variant_owned(b, b->tensor[i].variant))) {
                o[n].cost = mean_cost(model, &model->tensor[i], weight);
                b->shards->largest = o[n].cost > b->shards->largest ? o[n].cost : b->shards->largest;
                o[n++].tensor = i;
            }
        deal_owners(b, o, n, load, elements);
    }
    free(weight);
    free(o);
    free(elements);
    return ok ? OPTC_OK : no_memory("optc_bind_sharded");
}

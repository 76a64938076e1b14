/* Marks symmetric halves (Stage.half) in plans for a GPU. A pass over two equal axes that stores
 * only symmetric values computes their lower triangle and writes both; it reads only lower
 * triangles. A symmetric product that only such passes read need not be mirrored. CPU plans have no
 * marks: there the panels of a product are mirrored while they are in the cache. */
#include "gen/plan/planner.h"

static bool *symmetric_values(Arena *a, const Graph *g)
{
    bool *known = NEWS(a, bool, g->len + 1);
    for (Ref r = 0; r < g->len; r++)
        known[r] = graph_symmetric(g, known, r);
    return known;
}

/* The stage may compute a half. It holds a tile of each array that it writes in shared memory:
 * HALF_BYTES. */
static bool is_half(const Plan *p, const Stage *s, const bool *symmetric)
{
    Dom own = stage_info[s->kind].dom;
    int bytes = 0;
    if (!is_list(s->kind) || !dom_square(own) || dom_transposed(own) != own || s->nfold || s->nfin)
        return false;
    for (int i = 0; i < s->nstore; i++) {
        bytes += type_info[p->mem[s->store[i].mem].type].bytes;
        if (!symmetric[s->store[i].val])
            return false;
    }
    return bytes <= HALF_BYTES;
}

/* Every stage that reads the value computes a half; none reads it transposed or folds it. */
static bool read_by_halves(const Graph *g, const Phase *ph, Ref r)
{
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *s = &ph->stage[i];
        for (int k = 0; k < s->nload; k++)
            if ((s->load[k].val == r && (!s->half || is_called(s->kind))) ||
                (g->n[s->load[k].val].op == OP_TRANSPOSE && g->n[s->load[k].val].arg[0] == r))
                return false;
        for (int k = 0; k < s->nfin; k++)
            if (g->n[s->fin[k].val].arg[0] == r)
                return false;
    }
    return true;
}

void plan_symmetric_half(const Plan *p, Phase *ph, Arena *scratch)
{
    const bool *symmetric = symmetric_values(scratch, ph->g);
    for (int i = 0; i < ph->nstage; i++)
        ph->stage[i].half = is_half(p, &ph->stage[i], symmetric);
    for (int i = 0; i < ph->nstage; i++) {
        Stage *s = &ph->stage[i];
        if (is_called(s->kind) && ph->g->n[s->body[0]].sym & SYMMETRIC &&
            p->mem[s->store[0].mem].kind == MEM_TEMP)
            s->half = read_by_halves(ph->g, ph, s->body[0]);
    }
}

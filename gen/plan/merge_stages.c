/* Merges equal stages: one emitted function for several stages.
 *
 * The iterations of a polar factor, variants that compute it from one side or the other, and the
 * phases of a rule with periods produce passes that differ only in their arrays. Such stages share
 * one function, which gets the numbers of its arrays at each launch (Stage.shared, ProgStage.at).
 * Every stage keeps its line, its arrays and its position.
 *
 * Two stages are equal if their emitted code would differ only in names and numbers of arrays:
 * - the same entry, kind and form;
 * - corresponding arrays have the same kind, type and layout, and are the same array in one stage
 *   exactly if they are in the other;
 * - every result comes from the same operations on corresponding loads, and on the same constants,
 *   hyperparameters and draws.
 * Only this file decides that. It is the last step of planning; equal stages get the same Stage.fn,
 * and everything that is indexed by it (functions, launches, tuned results) applies to all of them.
 *
 * Only plans with calls are searched. Other plans have hardly any equal stages, and their emitted
 * text stays stable. */
#include "gen/plan/planner.h"

#include <string.h>

/* The correspondence of values and arrays between two stages, in both directions. An entry is valid
 * if its `pair` is the number of the pair being compared. */
typedef struct Other { int pair, is; } Other;
typedef struct Sharing {
    const Plan *plan;
    const Graph *g[2];                         /* phases have graphs of their own */
    const Stage *a, *b;
    Other *val[2], *mem[2];
    int pair;
} Sharing;

static bool matched(Sharing *s, Other *of[2], int x, int y)
{
    Other *there = &of[0][x], *back = &of[1][y];
    if (there->pair != s->pair && back->pair != s->pair) {
        *there = (Other){s->pair, y};
        *back = (Other){s->pair, x};
    }
    return there->pair == s->pair && back->pair == s->pair && there->is == y && back->is == x;
}

/* Emitted code computes the number of a ring's array from the step. */
static bool same_ring(const Plan *p, const Mem *m, const Mem *n)
{
    if (m->kind != MEM_STATE)
        return true;
    const State *a = &p->rule->state[m->sym], *b = &p->rule->state[n->sym];
    return a->rotates == b->rotates && (!a->rotates || (a->ring == b->ring && a->age == b->age));
}

static bool same_array(Sharing *s, Access x, Access y)
{
    const Mem *m = &s->plan->mem[x.mem], *n = &s->plan->mem[y.mem];
    return m->kind == n->kind && m->dom == n->dom && m->from == n->from && m->by == n->by &&
           m->type == n->type && x.transposed == y.transposed && same_ring(s->plan, m, n) &&
           matched(s, s->mem, x.mem, y.mem);
}

/* Compares everything but the operands. */
static bool same_node(const Node *x, const Node *y)
{
    return x->op == y->op && x->dom == y->dom && x->ty == y->ty && x->from == y->from &&
           x->nargs == y->nargs && x->sym == y->sym && !memcmp(&x->imm, &y->imm, sizeof x->imm) &&
           !memcmp(&x->beta, &y->beta, sizeof x->beta) &&
           !memcmp(&x->diagonal, &y->diagonal, sizeof x->diagonal);
}

/* Leaves that are in no array must be the same node. Values that the stages compute are compared by
 * same_body. */
static bool same_operand(Sharing *s, Ref x, Ref y)
{
    bool known = s->val[0][x].pair == s->pair || s->val[1][y].pair == s->pair;
    if (!known && is_leaf(&s->g[0]->n[x]))
        return same_node(&s->g[0]->n[x], &s->g[1]->n[y]);
    return matched(s, s->val, x, y);
}

static bool same_loads(Sharing *s)
{
    for (int i = 0; i < s->a->nload; i++) {
        Access x = s->a->load[i], y = s->b->load[i];
        const Node *m = &s->g[0]->n[x.val], *n = &s->g[1]->n[y.val];
        if (m->dom != n->dom || m->ty != n->ty || !same_array(s, x, y) ||
            !matched(s, s->val, x.val, y.val))
            return false;
    }
    for (int i = 0; i < s->a->nfin; i++) {
        Access x = s->a->fin[i], y = s->b->fin[i];
        const Node *m = &s->g[0]->n[x.val], *n = &s->g[1]->n[y.val];
        if (m->op != n->op || m->dom != n->dom || m->from != n->from || !same_array(s, x, y) ||
            !matched(s, s->val, x.val, y.val))
            return false;
    }
    return true;
}

static Ref folded(const Graph *g, const Stage *s, Access f)
{
    const Node *n = &g->n[f.val];
    return n->arg[is_global(n) ? s->variant : 0];
}

static bool same_results(Sharing *s)
{
    for (int i = 0; i < s->a->nfold; i++) {
        Access x = s->a->fold[i], y = s->b->fold[i];
        const Node *m = &s->g[0]->n[x.val], *n = &s->g[1]->n[y.val];
        if (m->op != n->op || m->dom != n->dom || m->from != n->from || !same_array(s, x, y) ||
            !same_operand(s, folded(s->g[0], s->a, x), folded(s->g[1], s->b, y)))
            return false;
    }
    for (int i = 0; i < s->a->nstore; i++)
        if (!same_array(s, s->a->store[i], s->b->store[i]) ||
            !same_operand(s, s->a->store[i].val, s->b->store[i].val))
            return false;
    return true;
}

/* Walks from the results to the operands: users come after their operands, so a user has already
 * matched each value. */
static bool same_body(Sharing *s)
{
    for (int i = s->a->nbody - 1; i >= 0; i--) {
        const Node *m = &s->g[0]->n[s->a->body[i]];
        const Other *there = &s->val[0][s->a->body[i]];
        if (is_leaf(m))                        /* DOWN or ACROSS: an index along an axis */
            continue;
        const Node *n = there->pair == s->pair ? &s->g[1]->n[there->is] : NULL;
        if (!n || !same_node(m, n))
            return false;
        for (int k = 0; k < m->nargs; k++)
            if (!same_operand(s, m->arg[k], n->arg[k]))
                return false;
    }
    return true;
}

static bool same_form(const Stage *a, const Stage *b)
{
    return a->kind == b->kind && a->back == b->back && a->nbody == b->nbody &&
           a->nload == b->nload && a->nstore == b->nstore && a->nfold == b->nfold &&
           a->nfin == b->nfin && a->uses_rows == b->uses_rows &&
           a->folds_arrays == b->folds_arrays && a->half == b->half;
}

static bool equal(Sharing *s, const Phase *one, const Stage *a, const Phase *other, const Stage *b)
{
    if (is_called(a->kind) || !same_form(a, b) ||
        a->nload + a->nfin + a->nstore + a->nfold > MOST_SHARED)
        return false;
    s->g[0] = one->g;
    s->g[1] = other->g;
    s->a = a;
    s->b = b;
    s->pair++;
    return same_loads(s) && same_results(s) && same_body(s);
}

static Sharing begin(const Plan *pl, Arena *scratch)
{
    Sharing s = {.plan = pl};
    int most = 0;
    for (int e = 0; e < pl->nentry; e++)
        for (int m = 0; m < pl->entry[e].nphase; m++)
            most = pl->entry[e].phase[m].g->len > most ? pl->entry[e].phase[m].g->len : most;
    for (int k = 0; k < 2; k++) {
        s.val[k] = NEWS(scratch, Other, most + 1);
        s.mem[k] = NEWS(scratch, Other, pl->nmem + 1);
    }
    return s;
}

int merged_unequal(const Plan *p, const Phase *ph, Arena *scratch)
{
    Sharing s = begin(p, scratch);
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *x = &ph->stage[i];
        StageAt at = plan_at(p, x->fn);
        if (!is_called(x->kind) && at.stage != x &&
            !equal(&s, &at.entry->phase[at.phase], at.stage, ph, x))
            return i;
    }
    return -1;
}

/* A hash that equal stages share, independent of the order of operations: only stages of one hash
 * are compared. */
static uint64_t looks(const Graph *g, const Stage *s)
{
    int form[] = {(int)s->kind, s->back, s->nbody, s->nload, s->nstore, s->nfold, s->nfin, s->half};
    uint64_t h = hash64(17, form, sizeof form);
    for (int i = 0; i < s->nbody; i++) {
        const Node *n = &g->n[s->body[i]];
        double what[] = {n->op, n->dom, n->sym, n->imm};
        h += hash64(19, what, sizeof what);
        for (int k = 0; k < n->nargs; k++)
            if (g->n[n->arg[k]].op == OP_CONST)
                h += hash64(23, &g->n[n->arg[k]].imm, sizeof(double));
    }
    return h;
}

/* One stage of each set of equal stages of an entry. */
typedef struct Sort { const Phase *ph; Stage *stage; uint64_t looks; } Sort;

static Stage *first_equal(Sharing *s, const Sort *v, int n, const Sort *x)
{
    for (int i = 0; i < n; i++)
        if (v[i].looks == x->looks && equal(s, v[i].ph, v[i].stage, x->ph, x->stage))
            return v[i].stage;
    return NULL;
}

static void share_entry(Plan *pl, const PlanEntry *en, Sharing *s, Sort *v)
{
    int n = 0;
    for (int m = 0; m < en->nphase; m++)
        for (int i = 0; i < en->phase[m].nstage; i++) {
            Stage *x = &en->phase[m].stage[i];
            if (is_called(x->kind))
                continue;
            v[n] = (Sort){&en->phase[m], x, looks(en->phase[m].g, x)};
            Stage *first = first_equal(s, v, n, &v[n]);
            if (first)
                first->shared = x->shared = true;
            else
                n++;
            x->fn = first ? first->fn : pl->nfn++;
        }
}

/* Renumbers the stages. A plan with too many stages is refused later and is left as it is. */
void merge_equal_stages(Plan *pl, Arena *scratch)
{
    if (!plan_calls(pl) || pl->nstage > pl->limits.stages)
        return;
    Sharing s = begin(pl, scratch);
    Sort *v = NEWS(scratch, Sort, pl->nstage + 1);
    pl->nfn = 0;
    for (int e = 0; e < pl->nentry; e++)
        share_entry(pl, &pl->entry[e], &s, v);
}

/* Verifies Stage.stagger independently of stagger_plan.c. It simulates a phase for an owner with
 * some slots due, and beside it for another block of the same tensor whose block slots are not due,
 * and checks that both read valid values.
 *
 * A temporary is stale if the stage that writes it skipped the owner. A value computed from stale
 * values is stale too, unless a condition on the slot selects the other operand. No state may take
 * a stale value, and a stage may skip an owner only if the owner's states would not change. */
#include "gen/plan/planner.h"

#include <string.h>

/* have: bits of the slots that are due; run: the stage runs for it; stale: by array; dirty: by
 * value, in this stage */
typedef struct Side { unsigned have; bool run, *stale, *dirty; } Side;
typedef struct Look {
    const Plan *p; const Phase *ph; const Stage *s; Side side[2]; unsigned blocks;
} Look;

static const Node *node_at(const Look *l, Ref r) { return &l->ph->g->n[r]; }

static bool is_dirty(const Look *l, const Side *x, Ref r)
{
    const Node *n = node_at(l, r);
    unsigned owners = n->op == OP_WHERE ? stagger_of(l->p->rule, l->ph->g, n->arg[0]) : 0;
    if (owners)
        return x->dirty[n->arg[0]] || x->dirty[n->arg[x->have & owners ? 1 : 2]];
    for (int k = 0; k < n->nargs; k++)
        if (x->dirty[n->arg[k]])
            return true;
    return false;
}

/* The state keeps its value for an owner with these slots due. */
static bool stays(const Look *l, unsigned have, Ref r, const Mem *m)
{
    for (;;) {
        const Node *n = node_at(l, r);
        if (m->kind == MEM_P ? n->op == OP_P : n->op == OP_STATE && n->sym == m->sym)
            return true;
        unsigned owners = n->op == OP_WHERE ? stagger_of(l->p->rule, l->ph->g, n->arg[0]) : 0;
        if (!owners || have & owners)
            return false;
        r = n->arg[2];
    }
}

static void run_side(const Look *l, Side *x)
{
    const Stage *s = l->s;
    memset(x->dirty, 0, sizeof *x->dirty * (size_t)(l->ph->g->len + 1));
    for (int i = 0; i < s->nload; i++)
        x->dirty[s->load[i].val] = x->stale[s->load[i].mem];
    for (int i = 0; i < s->nfin; i++)
        x->dirty[s->fin[i].val] = x->stale[s->fin[i].mem];
    for (int i = 0; i < s->nbody; i++)
        x->dirty[s->body[i]] = is_dirty(l, x, s->body[i]);
}

/* False: a state would be wrong. */
static bool store_side(const Look *l, Side *x)
{
    for (int i = 0; i < l->s->nstore; i++) {
        const Mem *m = &l->p->mem[l->s->store[i].mem];
        Ref r = l->s->store[i].val;
        if (m->kind == MEM_TEMP)
            x->stale[l->s->store[i].mem] = !x->run || x->dirty[r];
        else if (x->run ? x->dirty[r] : !stays(l, x->have, r, m))
            return false;
    }
    return true;
}

/* A fold over more than one block is common to all blocks. */
static bool fold_sides(Look *l)
{
    Side *own = &l->side[0], *other = &l->side[1];
    for (int i = 0; i < l->s->nfold; i++) {
        Access f = l->s->fold[i];
        const Node *n = node_at(l, f.val);
        Ref of = n->arg[is_global(n) ? l->s->variant : 0];
        bool a = !own->run || own->dirty[of], b = !other->run || other->dirty[of];
        if (is_global(n) && (a || b))
            return false;
        own->stale[f.mem] = dom_of_block((Dom)n->dom) ? a : a || b;
        other->stale[f.mem] = dom_of_block((Dom)n->dom) ? b : a || b;
    }
    return true;
}

static bool stage_by_blocks(const Look *l)
{
    return is_called(l->s->kind) ? node_at(l, l->s->body[0])->sym & BLOCKED
                                 : dom_of_block(stage_info[l->s->kind].dom);
}

/* The first stage that is wrong for an owner with these slots due; -1: none. */
static int play(Look *l, int variant, unsigned have)
{
    for (int k = 0; k < 2; k++) {
        l->side[k].have = k ? have & ~l->blocks : have;
        memset(l->side[k].stale, 0, sizeof *l->side[k].stale * (size_t)l->p->nmem);
    }
    for (int i = 0; i < l->ph->nstage; i++) {
        l->s = &l->ph->stage[i];
        if (l->s->kind == S_GROUP || l->s->variant != variant)
            continue;
        /* stages not by blocks run for both if the owner is due */
        for (int k = 0; k < 2; k++) {
            unsigned stagger = l->s->stagger;
            l->side[k].run = !stagger || stagger & l->side[stage_by_blocks(l) ? k : 0].have;
            run_side(l, &l->side[k]);
        }
        bool ok = fold_sides(l);
        for (int k = 0; k < 2; k++)
            ok = store_side(l, &l->side[k]) && ok;
        if (!ok)
            return i;
    }
    return -1;
}

int stagger_wrong(const Plan *p, const Phase *ph, Arena *scratch)
{
    Look l = {.p = p, .ph = ph};
    int n = 0, wrong = -1;
    for (int i = 0; i < p->rule->nstate; i++)
        if (p->rule->state[i].slots.every) {
            l.blocks |= p->rule->state[i].dom == BLOCK ? 1u << n : 0;
            n++;
        }
    for (int i = 0; i < ph->nstage; i++)
        if (ph->stage[i].stagger >> n || (ph->stage[i].stagger && ph->stage[i].kind == S_GROUP))
            return i;
    for (int k = 0; k < 2 && n; k++) {
        l.side[k].stale = NEWS(scratch, bool, p->nmem + 1);
        l.side[k].dirty = NEWS(scratch, bool, ph->g->len + 1);
    }
    for (int v = 0; v < p->rule->nvariant && n; v++) {
        wrong = wrong >= 0 ? wrong : play(&l, v, 0);
        for (int i = 0; i < n; i++)
            wrong = wrong >= 0 ? wrong : play(&l, v, 1u << i);
    }
    return wrong;
}

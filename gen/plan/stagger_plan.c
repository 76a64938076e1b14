/* Finds the stages that may skip tensors or blocks (owners) whose slot is not due: every(k, {
 * stagger = true }).
 *
 * An assignment in such a guarded block becomes where(slot is due, new, old). A value that only
 * `new` needs is needed only by due owners, and a state that takes `old` does not change. A stage
 * that computes only such values and stores only such states may skip owners that are not due.
 * Running it for more owners is harmless, because the device evaluates the condition anyway.
 * Temporaries of skipped owners hold garbage. No result depends on them: the same condition masks
 * every reader.
 *
 * Each block has its own slot, so a reduction over several blocks needs all of them; a reduction
 * over tensors needs every tensor. */
#include "gen/plan/planner.h"

/* The bit of a state of slots: its index among the states of slots. */
static unsigned bit_of(const Rule *r, int state)
{
    int n = 0;
    for (int i = 0; i < state; i++)
        n += r->state[i].slots.every > 0;
    return 1u << n;
}

static unsigned block_bits(const Rule *r)
{
    unsigned bits = 0;
    for (int i = 0; i < r->nstate; i++)
        bits |= r->state[i].slots.every && r->state[i].dom == BLOCK ? bit_of(r, i) : 0;
    return bits;
}

/* Recognises the conditions that guarded_blocks.c makes. */
unsigned stagger_of(const Rule *r, const Graph *g, Ref cond)
{
    const Node *n = &g->n[cond];
    /* the own slot is due, or all slots are (slot < 0) */
    if (n->op == OP_EITHER) {
        for (int k = 0; k < 2; k++) {
            const Node *x = &g->n[n->arg[1 - k]];
            unsigned bit = stagger_of(r, g, n->arg[k]);
            const Node *now = x->op == OP_LT ? &g->n[x->arg[0]] : NULL,
                       *zero = now ? &g->n[x->arg[1]] : NULL;
            bool all = now && now->op == OP_SLOT && zero->op == OP_CONST && zero->imm == 0;
            if (bit && all && bit_of(r, now->sym) == bit)
                return bit;
        }
        return 0;
    }
    if (n->op != OP_EQ)
        return 0;
    for (int k = 0; k < 2; k++) {
        const Node *own = &g->n[n->arg[k]], *now = &g->n[n->arg[1 - k]];
        if (own->op == OP_STATE && now->op == OP_SLOT && own->sym == now->sym)
            return bit_of(r, now->sym);
    }
    return 0;
}

static bool holds(const Node *n, int state)
{
    return state == TO_P ? n->op == OP_P : n->op == OP_STATE && n->sym == state;
}

/* The owners for which a state changes that takes this value. */
static unsigned changes(const Rule *r, const Graph *g, Ref val, int state)
{
    unsigned bits = 0;
    for (const Node *n = &g->n[val]; !holds(n, state); n = &g->n[n->arg[2]]) {
        unsigned owners = n->op == OP_WHERE ? stagger_of(r, g, n->arg[0]) : 0;
        if (!owners)
            return ALL_OWNERS;
        bits |= owners;
    }
    return bits;
}

/* A reduction over more than one block. */
static bool joins_blocks(const Node *n) { return is_red(n) && !dom_of_block((Dom)n->dom); }

/* The tensors and blocks that need operand k of a value, if those in `want` need the value. */
static unsigned operand_wanted(const Rule *r, const Graph *g, const Node *n, int k, unsigned want)
{
    unsigned owners = n->op == OP_WHERE ? stagger_of(r, g, n->arg[0]) : 0;
    if (owners && k == 0)
        /* the condition itself is evaluated for all owners */
        return ALL_OWNERS;
    if (owners && k == 1)
        return owners;
    if (owners && k == 2 && want == owners)
        return 0;
    return joins_blocks(n) && want & block_bits(r) ? ALL_OWNERS : want;
}

static void want_operands(const Plan *p, const Graph *g, Ref r, unsigned **want)
{
    const Node *n = &g->n[r];
    bool any = false;
    for (int v = 0; v < p->rule->nvariant; v++)
        any = any || want[v][r];
    for (int v = 0; v < p->rule->nvariant; v++)
        for (int k = 0; k < n->nargs; k++)
            if (is_global(n) ? any && k == v : want[v][r] != 0)
                want[v][n->arg[k]] |=
                    is_global(n) ? ALL_OWNERS : operand_wanted(p->rule, g, n, k, want[v][r]);
}

/* Adds to want what follows from the writes and from what want already contains. */
static void find_wanted(const Plan *p, const Phase *ph, unsigned **want)
{
    for (int v = 0; v < p->rule->nvariant; v++)
        for (int i = 0; i < ph->body[v].n; i++)
            want[v][ph->body[v].w[i].val] |=
                changes(p->rule, ph->g, ph->body[v].w[i].val, ph->body[v].w[i].state);
    for (Ref r = ph->g->len - 1; r >= 0; r--)
        want_operands(p, ph->g, r, want);
}

unsigned **stagger_wanted(Arena *a, const Plan *p, const Phase *ph)
{
    unsigned **want = NEWS(a, unsigned *, p->rule->nvariant);
    for (int v = 0; v < p->rule->nvariant; v++)
        want[v] = NEWS(a, unsigned, ph->g->len + 1);
    find_wanted(p, ph, want);
    return want;
}

static unsigned stage_stagger(const Plan *p, const Graph *g, const Stage *s, const unsigned *want)
{
    unsigned bits = 0;
    for (int i = 0; i < s->nstore; i++) {
        const Mem *m = &p->mem[s->store[i].mem];
        Ref val = s->store[i].val;
        bits |= m->kind == MEM_P     ? changes(p->rule, g, val, TO_P)
              : m->kind == MEM_STATE ? changes(p->rule, g, val, m->sym)
                                     : want[val];
    }
    for (int i = 0; i < s->nfold; i++) {
        unsigned whose = want[s->fold[i].val];
        const Node *n = &g->n[s->fold[i].val];
        bits |=
            is_global(n) || (joins_blocks(n) && whose & block_bits(p->rule)) ? ALL_OWNERS : whose;
    }
    return bits == ALL_OWNERS ? 0 : bits;
}

static bool makes(const Stage *s, Ref r)
{
    for (int i = 0; i < s->nbody; i++)
        if (s->body[i] == r)
            return true;
    return false;
}

/* If a stage copies a temporary to a state, it does so for every owner it runs for, without a
 * condition: all of them need the temporary's value. Returns true if that added owners to want. */
static bool want_copies(const Plan *p, const Stage *s, unsigned *want)
{
    unsigned whose = s->stagger ? s->stagger : ALL_OWNERS;
    bool more = false;
    for (int i = 0; i < s->nstore; i++) {
        MemKind kind = p->mem[s->store[i].mem].kind;
        Ref r = s->store[i].val;
        if ((kind == MEM_P || kind == MEM_STATE) && !makes(s, r) && (want[r] & whose) != whose) {
            want[r] |= whose;
            more = true;
        }
    }
    return more;
}

void plan_stagger(const Plan *p, Phase *ph, Arena *scratch)
{
    bool more = false;
    for (int i = 0; i < p->rule->nstate; i++)
        more = more || p->rule->state[i].slots.every;
    if (!more)
        return;
    unsigned **want = stagger_wanted(scratch, p, ph);
    while (more) {
        more = false;
        find_wanted(p, ph, want);
        for (int i = 0; i < ph->nstage; i++)
            if (ph->stage[i].kind != S_GROUP)
                ph->stage[i].stagger =
                    stage_stagger(p, ph->g, &ph->stage[i], want[ph->stage[i].variant]);
        for (int i = 0; i < ph->nstage; i++)
            if (ph->stage[i].kind != S_GROUP)
                more = want_copies(p, &ph->stage[i], want[ph->stage[i].variant]) || more;
    }
}

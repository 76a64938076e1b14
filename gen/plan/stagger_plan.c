/* Who a stage is for, where every(k, { stagger = true }) gives tensors or blocks turns of their own.
 *
 * What such a block assigns is where(its turn, new, old). A value that only `new` needs counts where the turn is, and a
 * state that takes `old` keeps what it holds: a stage that makes such values alone, and fills such states alone, may
 * leave out whoever has no turn. A stage that runs for more than it must does no harm, as the choice is made on the
 * device anyway. What lies in a temporary of who was left out is read by nobody who looks at it.
 *
 * Blocks have turns of their own, so a reduction to more than a block needs all of them; and a reduction over tensors
 * needs every tensor. */
#include "gen/plan/planner.h"

/* Bits by number among the states of slots. */
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

/* As guarded_blocks.c writes it. */
unsigned stagger_of(const Rule *r, const Graph *g, Ref cond)
{
    const Node *n = &g->n[cond];
    if (n->op == OP_EITHER) {                      /* its turn, or everybody's */
        for (int k = 0; k < 2; k++) {
            const Node *x = &g->n[n->arg[1 - k]];
            unsigned bit = stagger_of(r, g, n->arg[k]);
            const Node *now = x->op == OP_LT ? &g->n[x->arg[0]] : NULL, *zero = now ? &g->n[x->arg[1]] : NULL;
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

/* Who a state that becomes this value changes for. */
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

/* A reduction that is no block's own. */
static bool joins_blocks(const Node *n) { return is_red(n) && !dom_of_block((Dom)n->dom); }

/* The tensors and blocks that need operand k of a value, if those in `want` need the value. */
static unsigned operand_wanted(const Rule *r, const Graph *g, const Node *n, int k, unsigned want)
{
    unsigned owners = n->op == OP_WHERE ? stagger_of(r, g, n->arg[0]) : 0;
    if (owners && k == 0)
        return ALL_OWNERS;                          /* the condition is evaluated for all: it decides whose slot is due */
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
                want[v][n->arg[k]] |= is_global(n) ? ALL_OWNERS : operand_wanted(p->rule, g, n, k, want[v][r]);
}

/* want: what is known so far; more is found */
static void find_wanted(const Plan *p, const Phase *ph, unsigned **want)
{
    for (int v = 0; v < p->rule->nvariant; v++)
        for (int i = 0; i < ph->body[v].n; i++)
            want[v][ph->body[v].w[i].val] |= changes(p->rule, ph->g, ph->body[v].w[i].val, ph->body[v].w[i].state);
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
        bits |= is_global(n) || (joins_blocks(n) && whose & block_bits(p->rule)) ? ALL_OWNERS : whose;
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

/* A state that a stage fills with what it found in a temporary gets that for all whom the stage runs for: no choice is
 * made any more. False: all of them had it anyway. */
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
                ph->stage[i].stagger = stage_stagger(p, ph->g, &ph->stage[i], want[ph->stage[i].variant]);
        for (int i = 0; i < ph->nstage; i++)
            if (ph->stage[i].kind != S_GROUP)
                more = want_copies(p, &ph->stage[i], want[ph->stage[i].variant]) || more;
    }
}

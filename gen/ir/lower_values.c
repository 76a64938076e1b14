/* Finds values that are lower triangles: all their entries above the diagonal are 0. The planner
 * marks them as operands of products (LOWER_A, LOWER_B), so that a product need not read the zeros.
 *
 * A state is one if it starts as a multiple of the identity or as zeros, and every value that is
 * written to it is a lower triangle. */
#include "gen/ir/lower_values.h"

static bool is_zero(const Node *n) { return n->op == OP_CONST && n->ty == NUM && n->imm == 0; }

/* where(across <= down, x, 0) and where(down == across, x, 0): tril and eye */
static bool keeps_lower(const Graph *g, const Node *n)
{
    const Node *c = &g->n[n->arg[0]];
    if (c->nargs != 2 || !is_zero(&g->n[n->arg[2]]))
        return false;
    Op first = (Op)g->n[c->arg[0]].op, second = (Op)g->n[c->arg[1]].op;
    return (c->op == OP_LE && first == OP_ACROSS && second == OP_DOWN) ||
           (c->op == OP_EQ && first == OP_DOWN && second == OP_ACROSS);
}

/* A divisor that varies inside the matrix may be 0 above the diagonal, and 0 / 0 is no 0. */
static bool one_value(const Graph *g, Ref r)
{
    const Axis *axis = dom_info[g->n[r].dom].axis;
    return axis[0] == AXIS_ONE && axis[1] == AXIS_ONE;
}

/* The product of the lower triangle r and a factor is one. Infinity times 0 above the diagonal is
 * NaN. So a factor that varies along both axes must be a triangle too. Any other shows on the
 * diagonal, which no product leaves out. */
static bool keeps_zeros(const Graph *g, const bool *known, Ref r, Ref factor)
{
    const Axis *axis = dom_info[g->n[factor].dom].axis;
    return known[r] && (known[factor] || axis[0] == AXIS_ONE || axis[1] == AXIS_ONE);
}

static bool is_lower(const Graph *g, const bool *state, const bool *known, Ref r)
{
    const Node *n = &g->n[r];
    const Ref *a = n->arg;
    if (is_zero(n))
        return true;
    if (!dom_square((Dom)n->dom) || dom_info[n->dom].axis[0] != dom_info[n->dom].axis[1])
        return false;
    switch (n->op) {
    case OP_STATE: return state[n->sym];
    case OP_CHOL: return !(n->sym & KEEP_LAST) || known[a[n->nargs - 1]];
    case OP_MM:
        return !(n->sym & (TRANS_A | TRANS_B)) && known[a[0]] && known[a[1]] &&
               (n->nargs < 3 || known[a[2]]);
    case OP_ADD: case OP_SUB: return known[a[0]] && known[a[1]];
    case OP_MUL: return keeps_zeros(g, known, a[0], a[1]) || keeps_zeros(g, known, a[1], a[0]);
    case OP_DIV: return known[a[0]] && one_value(g, a[1]);
    case OP_NEG: case OP_COPY: case OP_STORED: return known[a[0]];
    case OP_WHERE: return keeps_lower(g, n) || (known[a[1]] && known[a[2]]);
    default: return false;
    }
}

void graph_lower(const Graph *g, const bool *state, bool *lower)
{
    for (Ref r = 0; r < g->len; r++)
        lower[r] = is_lower(g, state, lower, r);
}

/* One round over all writes; true: a state is no triangle after all. */
static bool lose_states(const Rule *r, bool *state, bool *lower)
{
    bool lost = false;
    graph_lower(&r->g, state, lower);
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                if (w.state != TO_P && state[w.state] && !lower[w.val])
                    lost = true, state[w.state] = false;
            }
    return lost;
}

bool *rule_lower_states(Arena *a, const Rule *r)
{
    bool *state = NEWS(a, bool, r->nstate + 1), *lower = NEWS(a, bool, r->g.len + 1);
    for (int i = 0; i < r->nstate; i++) {
        const State *s = &r->state[i];
        state[i] = dom_square(s->dom) && dom_info[s->dom].axis[0] == dom_info[s->dom].axis[1] &&
                   (s->init == INIT_FILL || s->init == INIT_HYPER) &&
                   (s->eye || (s->init == INIT_FILL && s->value == 0));
    }
    while (lose_states(r, state, lower))
        ;
    return state;
}

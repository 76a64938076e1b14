/* Fuses products with the operations on their results: alpha a b + beta c becomes one call if alpha and beta are
 * constants.
 *
 * Needs: a folded rule. Keeps: the values, except that the sum is rounded once instead of twice. Conditions:
 *   - the sum is the only user of the bare product, and all users of the sum are calls
 *   - c is in memory for calls anyway (a call's result, or a computed operand). A state that a low precision would
 *     round is added by the element pass instead
 *   - c of a symmetric product is symmetric
 *   - the product is not of elements block by block: these are not contiguous */
#include "gen/ir/rule_passes.h"

#include <math.h>

typedef struct {
    const Graph *g;
    int *users;                    /* number of users: nodes and writes */
    bool *symmetric;
    bool *beside;                  /* in memory for calls: a call's result, or a computed operand of a call */
    bool *only_calls;              /* all users are calls */
    bool *call;                    /* it becomes a product */
} Calls;

typedef struct { double k; Ref of; } Term;

static bool is_const(const Graph *g, Ref r)
{
    return g->n[r].op == OP_CONST && g->n[r].ty == NUM && isfinite(g->n[r].imm);
}

/* Moves one sign or constant factor from t->of into t->k; false: there is none. */
static bool peel(const Graph *g, Term *t)
{
    const Node *n = &g->n[t->of];
    if (n->op == OP_NEG)
        *t = (Term){-t->k, n->arg[0]};
    else if (n->op == OP_MUL && is_const(g, n->arg[0]))
        *t = (Term){t->k * g->n[n->arg[0]].imm, n->arg[1]};
    else if (n->op == OP_MUL && is_const(g, n->arg[1]))
        *t = (Term){t->k * g->n[n->arg[1]].imm, n->arg[0]};
    else
        return false;
    return true;
}

/* Moves all signs and constant factors into k; alone: only while the value has no other user. */
static Term term(const Calls *c, Term t, bool alone)
{
    while ((!alone || c->users[t.of] == 1) && peel(c->g, &t)) {
    }
    return t;
}

static bool bare(const Calls *c, Ref r) { return c->g->n[r].op == OP_MM && c->g->n[r].nargs == 2 && c->users[r] == 1; }

/* n is product + other and can become one call: product is k times a bare product, other is k times the third
 * operand. */
static bool fits(const Calls *c, const Node *n, Term product, Term other)
{
    const Node *m = &c->g->n[product.of], *x = &c->g->n[other.of];
    return bare(c, product.of) && m->dom == n->dom && !(m->sym & BLOCKED && m->dom == ELEM) && x->dom == n->dom &&
           (c->beside[other.of] || c->call[other.of]) &&
           isfinite(product.k * m->imm) && isfinite(other.k) && (!(m->sym & SYMMETRIC) || c->symmetric[other.of]);
}

/* The product that replaces a node, with operands numbered as in the old graph; nargs 0: the node stays. */
typedef struct { Node n; Ref arg[3]; } Fused;

/* A product times a constant, if all users are calls. Otherwise an element pass reads it and scales it for free. */
static Fused scaled(const Calls *c, Ref r)
{
    Fused f = {.n = {0}};
    Term t = {1, r};
    if (!c->only_calls[r] || !peel(c->g, &t))
        return f;
    t = term(c, t, true);
    const Node *m = &c->g->n[t.of];
    if (m->op != OP_MM || c->users[t.of] != 1 || m->dom != c->g->n[r].dom || !isfinite(t.k * m->imm) ||
        !isfinite(t.k * m->beta))
        return f;
    f.n = *m;
    f.n.imm *= t.k;
    f.n.beta *= t.k;
    for (int i = 0; i < m->nargs; i++)
        f.arg[i] = m->arg[i];
    return f;
}

static Fused fused(const Calls *c, Ref r)
{
    const Node *n = &c->g->n[r];
    Fused f = {.n = {0}};
    if (n->op != OP_ADD && n->op != OP_SUB)
        return scaled(c, r);
    if (!c->only_calls[r])                                 /* an element pass reads the product and adds for free */
        return f;
    Term at[2] = {{1, n->arg[0]}, {n->op == OP_SUB ? -1 : 1, n->arg[1]}};
    Term p[2] = {term(c, at[0], true), term(c, at[1], true)}, x[2] = {term(c, at[0], false), term(c, at[1], false)};
    int first = fits(c, n, p[1], x[0]) && (p[1].of > p[0].of || !fits(c, n, p[0], x[1])) ? 1 : 0;
    if (!fits(c, n, p[first], x[!first]))
        return f;
    const Node *m = &c->g->n[p[first].of];
    f.n = *m;
    f.n.imm *= p[first].k;
    f.n.beta = x[!first].k;
    f.n.nargs = 3;
    f.arg[0] = m->arg[0], f.arg[1] = m->arg[1], f.arg[2] = x[!first].of;
    return f;
}

static void learn(Calls *c, const Rule *r, Arena *a)
{
    const Graph *g = &r->g;
    bool *b = NEWS(a, bool, 4 * (g->len + 1));
    *c = (Calls){g, NEWS(a, int, g->len + 1), b, b + g->len + 1, b + 2 * (g->len + 1), b + 3 * (g->len + 1)};
    for (Ref i = 0; i < g->len; i++)
        c->only_calls[i] = true;
    for (Ref i = 0; i < g->len; i++) {
        c->symmetric[i] = graph_symmetric(g, c->symmetric, i);
        c->beside[i] = c->beside[i] || is_call(&g->n[i]);
        for (int k = 0; k < g->n[i].nargs; k++) {
            Ref x = g->n[i].arg[k];
            c->users[x]++;
            c->only_calls[x] = c->only_calls[x] && is_call(&g->n[i]);
            c->beside[x] = c->beside[x] || (is_call(&g->n[i]) && !is_leaf(&g->n[x]));
        }
    }
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                c->users[r->entry[e].body[v].w[k].val]++;
                c->only_calls[r->entry[e].body[v].w[k].val] = false;
            }
}

static void rewrite(Rule *r, Arena *a)
{
    Calls c;
    Graph to = {.arena = r->arena};
    Ref *map = NEWS(a, Ref, r->g.len + 1);
    learn(&c, r, a);
    for (Ref i = 0; i < r->g.len; i++) {
        Node n = r->g.n[i];
        Fused f = fused(&c, i);
        Ref arg[MAX_ARGS];
        if (f.n.nargs) {
            f.n.file = n.file, f.n.line = n.line, f.n.entry = n.entry, f.n.name = n.name;
            n = f.n;
            n.arg = f.arg;
            c.call[i] = true;
        }
        for (int k = 0; k < n.nargs; k++)
            arg[k] = map[n.arg[k]];
        n.arg = arg;
        map[i] = graph_add(&to, n);
    }
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++)
                r->entry[e].body[v].w[k].val = map[r->entry[e].body[v].w[k].val];
    r->g = to;
    rule_rewrite(r, NULL, NULL);                           /* drops the fused nodes */
}

bool pass_product_fuse(Rule *r, Diag *d)
{
    (void)d;
    if (graph_calls(&r->g))
        rewrite(r, r->arena);
    return true;
}

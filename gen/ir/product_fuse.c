/* Fuses products with the operations on their results: alpha a b + beta c + diagonal I becomes one
 * call if alpha, beta and diagonal are constants. c or the diagonal may be missing.
 *
 * Needs: a folded rule. Keeps: the values, except that the sum is rounded once instead of twice; on
 * the diagonal it may be rounded twice. Conditions:
 *   - the sum is the only user of the bare product, and all users of the sum are calls
 *   - c is in memory for calls anyway (a call's result, or a computed operand). A state that a low
 *     precision would round is added by the element pass instead
 *   - c of a symmetric product is symmetric, and only symmetric products have a diagonal
 *   - all users of a sum with a diagonal are products: a factor reads it in a type that may have
 *     more bits, and a small ridge of a Gram matrix would be lost in the type of products
 *   - the product is not of elements block by block: these are not contiguous */
#include "gen/ir/rule_passes.h"

#include <math.h>

typedef struct {
    const Graph *g;
    int *users;                    /* number of users: nodes and writes */
    bool *symmetric;
    bool *beside;                  /* in memory for calls: a call's result, or a computed operand of
                                    * a call */
    bool *only_calls, *only_products;      /* all users are calls; all are products */
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

static bool bare(const Calls *c, Ref r)
{
    const Node *n = &c->g->n[r];
    return n->op == OP_MM && n->nargs == 2 && n->diagonal == 0 && c->users[r] == 1;
}

/* A sum of one or two terms, and a diagonal. product: the term as a product that has no other user;
 * other: as the third operand, which may have some. A missing term is NONE. */
typedef struct { Term product[2], other[2]; int n; double diagonal; } Sum;

static bool is_sum(const Node *n) { return n->op == OP_ADD || n->op == OP_SUB; }

/* Adds k times a value to s. Sums that have no other user are split; first: this one is, whatever
 * uses it. false: there are more terms. */
static bool split(const Calls *c, Term t, bool first, Sum *s)
{
    Term inner = term(c, t, true), any = term(c, t, false);
    const Node *n = &c->g->n[inner.of];
    double unit;
    if (is_sum(n) && (first || c->users[inner.of] == 1))
        return split(c, (Term){inner.k, n->arg[0]}, false, s) &&
               split(c, (Term){n->op == OP_SUB ? -inner.k : inner.k, n->arg[1]}, false, s);
    if (graph_unit(c->g, any.of, &unit))
        return s->diagonal += any.k * unit, true;
    if (s->n == 2)
        return false;
    s->product[s->n] = inner, s->other[s->n++] = any;
    return true;
}

/* The sum n can become one call, whose product is term i. */
static bool fits(const Calls *c, const Node *n, const Sum *s, int i)
{
    Term product = s->product[i], other = s->other[!i];
    if (product.of == NONE || !bare(c, product.of))
        return false;
    const Node *m = &c->g->n[product.of];
    bool symmetric = m->sym & SYMMETRIC;
    if (m->dom != n->dom || !isfinite(product.k * m->imm) || !isfinite(s->diagonal) ||
        (s->diagonal != 0 && !(symmetric && c->only_products[n - c->g->n])))
        return false;
    return other.of == NONE ||
           (!(m->sym & BLOCKED && m->dom == ELEM) && c->g->n[other.of].dom == n->dom &&
            (c->beside[other.of] || c->call[other.of]) && isfinite(other.k) &&
            (!symmetric || c->symmetric[other.of]));
}

/* The product that replaces a node, with operands numbered as in the old graph; nargs 0: the node
 * stays. */
typedef struct { Node n; Ref arg[3]; } Fused;

static Fused fused(const Calls *c, Ref r)
{
    const Node *n = &c->g->n[r];
    Fused f = {.n = {0}};
    Sum s = {{{0, NONE}, {0, NONE}}, {{0, NONE}, {0, NONE}}, 0, 0};
    Term all = {1, r};
    /* an element pass that reads the product scales it and adds to it for free */
    if (!c->only_calls[r] || !(is_sum(n) || peel(c->g, &all)) || !split(c, all, is_sum(n), &s))
        return f;
    int i = fits(c, n, &s, 1) && (s.product[1].of > s.product[0].of || !fits(c, n, &s, 0)) ? 1 : 0;
    if (!fits(c, n, &s, i))
        return f;
    const Node *m = &c->g->n[s.product[i].of];
    f.n = *m;
    f.n.imm *= s.product[i].k;
    f.n.beta = s.other[!i].k;
    f.n.diagonal = s.diagonal;
    f.n.nargs = (uint8_t)(s.n + 1);
    f.arg[0] = m->arg[0], f.arg[1] = m->arg[1], f.arg[2] = s.other[!i].of;
    return f;
}

static void learn(Calls *c, const Rule *r, Arena *a)
{
    const Graph *g = &r->g;
    size_t n = (size_t)g->len + 1;
    bool *b = NEWS(a, bool, 5 * n);
    *c = (Calls){g, NEWS(a, int, n), b, b + n, b + 2 * n, b + 3 * n, b + 4 * n};
    for (Ref i = 0; i < g->len; i++)
        c->only_calls[i] = c->only_products[i] = true;
    for (Ref i = 0; i < g->len; i++) {
        c->symmetric[i] = graph_symmetric(g, c->symmetric, i);
        c->beside[i] = c->beside[i] || is_call(&g->n[i]);
        for (int k = 0; k < g->n[i].nargs; k++) {
            Ref x = g->n[i].arg[k];
            c->users[x]++;
            c->only_calls[x] = c->only_calls[x] && is_call(&g->n[i]);
            c->only_products[x] = c->only_products[x] && g->n[i].op == OP_MM;
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

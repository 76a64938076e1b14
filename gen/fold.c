/* Constant folding and simplification. Every rule here is exact: for any operands, in f32 and in f64, the result has the
 * same bits (a NaN stays a NaN; which one is not promised). Each shrinks the graph or replaces an operation by a cheaper one,
 * so rewriting ends. Common subexpressions vanish because graph_add finds equal nodes; dead nodes because only what is
 * written is copied. */
#include "gen.h"

#include <math.h>

static bool is_const(const Graph *g, Ref r) { return r != NONE && g->n[r].op == OP_CONST; }
static bool is_num(const Graph *g, Ref r, double x) { return is_const(g, r) && g->n[r].ty == NUM && g->n[r].imm == x; }
static bool is_op(const Graph *g, Ref r, Op op) { return r != NONE && g->n[r].op == op; }
static bool plus_zero(const Graph *g, Ref r) { return is_num(g, r, 0) && !signbit(g->n[r].imm); }

/* A power of two whose reciprocal is exact in f32 too. */
static bool exact_reciprocal(const Graph *g, Ref r)
{
    int e;
    return is_const(g, r) && isfinite(g->n[r].imm) && fabs(frexp(g->n[r].imm, &e)) == 0.5 && e > -120 && e < 120;
}

static Ref again(Graph *g, Node n, Op op, Ref a, Ref b)     /* the same place and domain, another operation */
{
    n.op = op;
    n.a[0] = a;
    n.a[1] = b;
    n.a[2] = NONE;
    return graph_add(g, n);
}

static Ref as_const(Graph *g, Node n, double x)
{
    n.op = OP_CONST;
    n.dom = CONST_;
    n.imm = isnan(x) ? (double)NAN : x;                    /* one NaN, whichever the operation made */
    n.a[0] = n.a[1] = n.a[2] = NONE;
    n.name = NULL;
    return graph_add(g, n);
}

/* A folded operand may vary less than the node it replaces. Elementwise users broadcast it; a reduction counts its operand's
 * values, so it gets them back: x + -0 in the domain it was written for. */
static Ref spread(Graph *g, Node red, Ref x)
{
    if (x == NONE || g->n[x].dom == red.from)
        return x;
    Node n = {.op = OP_ADD, .dom = red.from, .ty = NUM, .a = {x, node_const(g, -0.0), NONE}, .file = red.file, .line = red.line};
    return graph_add(g, n);
}

static Ref fold_node(Graph *g, Node n, void *ctx)
{
    (void)ctx;
    const OpInfo *o = &op_info[n.op];
    Ref a = n.a[0], b = n.a[1], c = n.a[2];
    if (o->kind == K_RED) {
        for (int k = 0; k < o->arity; k++)
            n.a[k] = spread(g, n, n.a[k]);
        return graph_add(g, n);
    }
    if (o->kind == K_LEAF)
        return n.op == OP_EVERY && n.imm == 1 ? as_const(g, n, 1) : graph_add(g, n);
    bool all = true;
    for (int k = 0; k < o->arity; k++)
        all = all && is_const(g, n.a[k]);
    /* Powers and other functions of constants are left to run time where libm and our own source could differ. */
    if (all && (o->ulp <= 0.5))
        return as_const(g, n, op_eval(n.op, g->n[a].imm, o->arity > 1 ? g->n[b].imm : 0, o->arity > 2 ? g->n[c].imm : 0));
    switch (n.op) {
    case OP_ADD:
        if (is_op(g, b, OP_NEG)) return again(g, n, OP_SUB, a, g->n[b].a[0]);       /* a + -b = a - b */
        if (is_op(g, a, OP_NEG)) return again(g, n, OP_SUB, b, g->n[a].a[0]);
        if (is_num(g, b, 0) && !plus_zero(g, b) && n.dom == g->n[a].dom) return a;  /* a + -0 = a, even for a = -0 */
        break;
    case OP_SUB:
        if (plus_zero(g, b)) return a;                                              /* a - +0 = a */
        if (is_op(g, b, OP_NEG)) return again(g, n, OP_ADD, a, g->n[b].a[0]);
        break;
    case OP_MUL:
        if (is_num(g, b, 1)) return a;
        if (is_num(g, a, 1)) return b;
        if (is_num(g, b, -1)) return again(g, n, OP_NEG, a, NONE);
        if (is_num(g, a, -1)) return again(g, n, OP_NEG, b, NONE);
        break;
    case OP_DIV:
        if (is_num(g, b, 1)) return a;
        if (is_num(g, b, -1)) return again(g, n, OP_NEG, a, NONE);
        if (exact_reciprocal(g, b)) return again(g, n, OP_MUL, a, node_const(g, 1 / g->n[b].imm));
        break;
    case OP_NEG:
        if (is_op(g, a, OP_NEG)) return g->n[a].a[0];
        break;
    case OP_ABS:
        if (is_op(g, a, OP_ABS)) return a;
        if (is_op(g, a, OP_NEG)) return again(g, n, OP_ABS, g->n[a].a[0], NONE);
        break;
    case OP_MIN: case OP_MAX: case OP_BOTH: case OP_EITHER:
        if (a == b) return a;
        break;
    case OP_ISNT:
        if (is_op(g, a, OP_ISNT)) return g->n[a].a[0];
        break;
    case OP_WHERE:
        if (is_const(g, a)) return g->n[a].imm != 0 ? b : c;
        if (b == c) return b;
        if (is_op(g, a, OP_ISNT)) {
            n.a[0] = g->n[a].a[0];
            n.a[1] = c;
            n.a[2] = b;
            return graph_add(g, n);
        }
        break;
    default: break;
    }
    return graph_add(g, n);
}

/* What a graph computes, as one number: two rounds that end alike have nothing left to do. */
static uint64_t graph_sum(const Rule *r)
{
    uint64_t h = (uint64_t)r->g.len;
    for (Ref i = 0; i < r->g.len; i++) {
        const Node *n = &r->g.n[i];
        int32_t k[6] = {n->op, n->dom, n->a[0], n->a[1], n->a[2], n->sym};
        h = hash64(h, k, sizeof k);
        h = hash64(h, &n->imm, sizeof n->imm);
    }
    return h;
}

bool pass_fold(Rule *r, Diag *d)
{
    (void)d;
    uint64_t before;
    do {                                                   /* a fold may open another one above it */
        before = graph_sum(r);
        rule_rewrite(r, fold_node, NULL);
        rule_rewrite(r, NULL, NULL);                       /* what was orphaned */
    } while (graph_sum(r) != before);
    return true;
}

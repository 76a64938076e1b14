/* Constant folding and simplification. Every rewrite here is exact: for any operands, in f32 and in
 * f64, the result has the same bits (a NaN stays a NaN; its payload may change). Each shrinks the
 * graph or replaces an operation by a cheaper one, so rewriting ends. Common subexpressions are
 * merged because graph_add finds equal nodes; dead nodes are dropped because rule_rewrite copies
 * only values that are written. */
#include "gen/ir/rule_passes.h"

#include <math.h>

static bool is_const(const Graph *g, Ref r) { return r != NONE && g->n[r].op == OP_CONST; }
static bool is_num(const Graph *g, Ref r, double x)
{
    return is_const(g, r) && g->n[r].ty == NUM && g->n[r].imm == x;
}
static bool is_op(const Graph *g, Ref r, Op op) { return r != NONE && g->n[r].op == op; }
static bool plus_zero(const Graph *g, Ref r) { return is_num(g, r, 0) && !signbit(g->n[r].imm); }

/* A power of two whose reciprocal is exact in f32 too. */
static bool exact_reciprocal(const Graph *g, Ref r)
{
    int e;
    return is_const(g, r) && isfinite(g->n[r].imm) && fabs(frexp(g->n[r].imm, &e)) == 0.5 &&
           e > -120 && e < 120;
}

/* another operation with n's domain and source position */
static Ref again(Graph *g, Node n, Op op, Ref a, Ref b)
{
    const Ref arg[] = {a, b};
    n.op = op;
    n.nargs = (uint8_t)op_info[op].arity;
    n.arg = arg;
    return graph_add(g, n);
}

static Ref as_const(Graph *g, Node n, double x)
{
    n.op = OP_CONST;
    n.dom = CONST_;
    n.imm = isnan(x) ? (double)NAN : x;                    /* one payload for all NaNs */
    n.nargs = 0;
    n.sym = 0;
    n.name = NULL;
    return graph_add(g, n);
}

/* A folded operand may vary less than the node it replaces. Elementwise users broadcast it. A
 * reduction counts its operand's values, and products and transposes read them from memory, so
 * these users get a copy in the original domain. */
static Ref spread(Graph *g, Node user, Ref x, Dom dom)
{
    Node n = {.op = OP_COPY, .dom = (uint8_t)dom, .ty = NUM, .nargs = 1, .arg = &x};
    n.file = user.file;
    n.line = user.line;
    n.entry = user.entry;
    /* values along one axis have the same layout as their transpose */
    bool transposed = !dom_square(dom) && (Dom)g->n[x].dom == dom_transposed(dom);
    return g->n[x].dom == dom || transposed ? x : graph_add(g, n);
}

static Dom operand_dom(Node user, int k)
{
    return is_call(&user)            ? call_operand_dom(&user, k)
           : user.op == OP_TRANSPOSE ? dom_transposed((Dom)user.dom)
                                     : (Dom)user.from;
}

static Ref with_spread(Graph *g, Node n)
{
    Ref arg[MAX_ARGS];
    for (int k = 0; k < n.nargs; k++)
        arg[k] = spread(g, n, n.arg[k], operand_dom(n, k));
    n.arg = arg;
    return graph_add(g, n);
}

/* Operations with operands that need no operation, or a simpler one. */
static Ref simplify(Graph *g, Node n)
{
    Ref a = n.arg[0], b = n.nargs > 1 ? n.arg[1] : NONE, c = n.nargs > 2 ? n.arg[2] : NONE;
    switch (n.op) {
    case OP_ADD:
        /* a + -b = a - b */
        if (is_op(g, b, OP_NEG)) return again(g, n, OP_SUB, a, g->n[b].arg[0]);
        if (is_op(g, a, OP_NEG)) return again(g, n, OP_SUB, b, g->n[a].arg[0]);
        /* a + -0 = a, even for a = -0 */
        if (is_num(g, b, 0) && !plus_zero(g, b)) return a;
        break;
    case OP_COPY:
        if (n.dom == g->n[a].dom) return a;
        break;
    case OP_SUB:
        if (plus_zero(g, b)) return a;                                              /* a - +0 = a */
        if (is_op(g, b, OP_NEG)) return again(g, n, OP_ADD, a, g->n[b].arg[0]);
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
        if (is_op(g, a, OP_NEG)) return g->n[a].arg[0];
        break;
    case OP_ABS:
        if (is_op(g, a, OP_ABS)) return a;
        if (is_op(g, a, OP_NEG)) return again(g, n, OP_ABS, g->n[a].arg[0], NONE);
        break;
    case OP_MIN: case OP_MAX: case OP_BOTH: case OP_EITHER:
        if (a == b) return a;
        break;
    case OP_ISNT:
        if (is_op(g, a, OP_ISNT)) return g->n[a].arg[0];
        break;
    case OP_WHERE:
        if (is_const(g, a)) return g->n[a].imm != 0 ? b : c;
        if (b == c) return b;
        if (is_op(g, a, OP_ISNT)) {
            const Ref arg[] = {g->n[a].arg[0], c, b};
            n.arg = arg;
            return graph_add(g, n);
        }
        break;
    default: break;
    }
    return graph_add(g, n);
}

static Ref fold_node(Graph *g, Node n, void *ctx)
{
    (void)ctx;
    const OpInfo *o = &op_info[n.op];
    if (o->kind == K_RED || o->kind == K_TRANSPOSE || o->kind == K_CALL)
        return with_spread(g, n);
    if (o->kind == K_LEAF)
        return n.op == OP_EVERY && n.imm == 1 ? as_const(g, n, 1) : graph_add(g, n);
    /* which rounds to a type that is not known here */
    bool all = n.op != OP_STORED;
    for (int k = 0; k < n.nargs; k++)
        all = all && is_const(g, n.arg[k]);
    /* Functions that are not correctly rounded are left to run time: libm and our source could
     * differ. */
    if (all && (o->ulp <= 0.5))
        return as_const(g, n,
                        op_eval(n.op, g->n[n.arg[0]].imm, o->arity > 1 ? g->n[n.arg[1]].imm : 0,
                                o->arity > 2 ? g->n[n.arg[2]].imm : 0));
    return simplify(g, n);
}

/* A hash of the graph: folding ends when a round leaves it unchanged. */
static uint64_t graph_sum(const Rule *r)
{
    uint64_t h = (uint64_t)r->g.len;
    for (Ref i = 0; i < r->g.len; i++) {
        const Node *n = &r->g.n[i];
        int32_t k[4] = {n->op, n->dom, n->nargs, n->sym};
        h = hash64(h, k, sizeof k);
        h = hash64(h, n->arg, sizeof *n->arg * n->nargs);
        h = hash64(h, &n->imm, sizeof n->imm);
        h = hash64(h, &n->beta, sizeof n->beta);
        h = hash64(h, &n->diagonal, sizeof n->diagonal);
    }
    return h;
}

bool pass_constant_fold(Rule *r, Diag *d)
{
    (void)d;
    uint64_t before, now = graph_sum(r);
    /* a fold may enable another one in its users */
    do {
        before = now;
        rule_rewrite(r, fold_node, NULL);
        /* drops orphaned nodes and restores the order after spread() */
        rule_rewrite(r, NULL, NULL);
        now = graph_sum(r);
    } while (now != before);
    return true;
}

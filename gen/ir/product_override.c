/* pass_product_override: products with a precision of their own, mm(a, b, { products = "tf32" }),
 * lose it where it does not count: the user chose a precision for all products, parameters are f64,
 * the rule has that precision anyway, or it stores operands in another type than f32 (only f64 goes
 * with every type).
 *
 * Needs nothing of the passes before it, and runs before values are merged: products that differed
 * only in precision become one. Keeps everything else. */
#include "gen/ir/rule_passes.h"

static int own_precision(const Node *n) { return n->op == OP_MM ? n->sym & OWN_PRECISION : 0; }

/* drops: the flags that do not count */
static Ref overridden(Graph *to, Node n, void *ctx)
{
    const int *drops = ctx;
    n.sym &= ~(own_precision(&n) & *drops);
    return graph_add(to, n);
}

bool pass_product_override(Rule *r, int chosen, Type p, Diag *d)
{
    Product of_rule = rule_product(r, p);
    int all = 0, drops = chosen || of_rule == PRODUCT_F64 ? OWN_PRECISION
                         : !product_mixes(of_rule)        ? IN_F32 | IN_TF32
                         : of_rule == PRODUCT_TF32        ? IN_TF32
                                                          : IN_F32;
    (void)d;
    for (Ref i = 0; i < r->g.len; i++)
        all |= own_precision(&r->g.n[i]);
    r->products_chosen = chosen && all;
    if (all & drops)
        rule_rewrite(r, overridden, &drops);
    return true;
}

/* Checks that a rule is well formed. Runs after every pass; what it refuses is a bug of the pass before it (or IR text
 * written by hand), so messages speak of nodes. */
#include "gen.h"

#include <math.h>

static const char *bad_node(const Rule *r, Ref i)
{
    const Graph *g = &r->g;
    const Node *n = &g->n[i];
    if (n->op >= NOPS || n->dom >= NDOM || n->ty > BOOL)
        return "unknown operation, domain or type";
    const OpInfo *o = &op_info[n->op];
    Dom join = CONST_;
    for (int k = 0; k < 3; k++) {
        bool optional = is_global(n) && k == MAT && !r->has_matrix;
        if (k >= o->arity || (optional && n->a[k] == NONE)) {
            if (n->a[k] != NONE)
                return "too many operands";
            continue;
        }
        if (n->a[k] < 0 || n->a[k] >= i)
            return "an operand is missing or comes later";
        const Node *x = &g->n[n->a[k]];
        Ty want = o->kind == K_LOGIC || (o->kind == K_SEL && k == 0) ? BOOL : NUM;
        if (x->ty != want)
            return "an operand has the wrong type";
        join = dom_join(join, x->dom);
        if (is_global(n) && x->dom > TENSOR)
            return "a global reduction takes values per tensor";
    }
    switch (o->kind) {
    case K_LEAF: break;
    case K_RED:
        if ((is_global(n) ? n->dom != GROUP : n->dom < TENSOR || join <= n->dom || n->dom == ELEM || (n->dom >= ROW && join != ELEM)) || n->from != join)
            return "a reduction to a domain that is not below its operand's";
        break;
    default:
        if (dom_join(n->dom, join) != n->dom)
            return "the domain lies below an operand's";
    }
    bool truth = o->kind == K_CMP || o->kind == K_LOGIC || n->op == OP_EVERY;
    if (n->op != OP_CONST && (n->ty == BOOL) != truth)
        return "the type does not fit the operation";
    int limit = n->op == OP_HYPER || n->op == OP_RANDOM || n->op == OP_NORMAL ? r->nhyper
              : n->op == OP_STATE ? r->nstate : n->op == OP_INPUT ? r->ninput : 1;
    if (n->sym < 0 || n->sym >= limit)
        return "it names a hyperparameter, state or input that does not exist";
    if (n->op == OP_STATE && n->dom != r->state[n->sym].dom)
        return "its domain is not its state's";
    if (n->op == OP_EVERY && !(n->imm >= 1 && n->imm == floor(n->imm)))
        return "'every' needs a whole number from 1";
    return NULL;
}

bool pass_verify(Rule *r, Diag *d)
{
    for (Ref i = 0; i < r->g.len; i++) {
        const char *why = bad_node(r, i);
        if (why) {
            diag_set(d, NULL, 0, NULL, "rule %s: node %%%d (%s): %s", r->name, i, r->g.n[i].op < NOPS ? op_info[r->g.n[i].op].name : "?", why);
            return false;
        }
    }
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < NVARIANT; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                bool known = w.val >= 0 && w.val < r->g.len && w.state >= TO_P && w.state < r->nstate;
                Dom dom = !known || w.state == TO_P ? ELEM : r->state[w.state].dom;
                if (!known || dom_join(r->g.n[w.val].dom, dom) != dom || r->g.n[w.val].ty != NUM) {
                    diag_set(d, NULL, 0, NULL, "rule %s: entry %s: write %d does not fit its target", r->name, r->entry[e].name, k);
                    return false;
                }
            }
    return true;
}

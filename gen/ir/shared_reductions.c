/* pass_share: reductions over all tensors that span several bindings. One rule is compiled once for
 * each set of types or device; each binding has a part of the tensors, and a norm of all gradients
 * must be that of all parts.
 *
 * Every reduction over all tensors (GSUM, GMAX, GMIN, and counts over all tensors) becomes
 *   state shared.K     its value over the tensors of this binding, one per group
 *   input shared.K.J   the same of binding J. The rule uses their sum, maximum or minimum
 * New entries write the states: share_ENTRY_0 those that need no other shared value, share_ENTRY_1
 * those that need values of share_ENTRY_0, and so on. The caller runs each of them on all bindings,
 * then ENTRY. Entries other than `step` see the t of the next step, so they compute the values that
 * the step would.
 *
 * Needs nothing of the passes before it. Keeps order and names of states, and adds states, inputs
 * and entries. */
#include "gen/ir/rule_passes.h"

#include <string.h>

enum { MOST_SHARED_BINDINGS = 64 };

typedef struct Share {
    Rule *r;
    int bindings;
    int state0, input0;                    /* the first state and input of this pass */
    Ref *own;                              /* by reduction: its value over this binding's tensors */
    int *level;
    int n, own_cap, level_cap;
} Share;

static bool over_all(const Node *n)
{
    return is_global(n) || (n->op == OP_COUNT && n->dom == GROUP);
}

static Op joins(const Node *n)
{
    return n->op == OP_GMAX ? OP_MAX : n->op == OP_GMIN ? OP_MIN : OP_ADD;
}

/* The values of all bindings, in their order: each binding computes the same bits. */
static Ref joined(Graph *to, Node n, void *ctx)
{
    Share *x = ctx;
    Rule *r = x->r;
    if (!over_all(&n))
        return graph_add(to, n);
    Ref all = NONE;
    for (int j = 0; j < x->bindings; j++) {
        PUSH(r->arena, r->input, r->ninput, r->input_cap) =
            (Input){arena_printf(r->arena, "shared.%d.%d", x->n, j), GROUP};
        Ref one = node_leaf(to, OP_INPUT, GROUP, r->ninput - 1, 0);
        all = all == NONE ? one : node_op(to, joins(&n), all, one, NONE);
    }
    State s = {
        .name = arena_printf(r->arena, "shared.%d", x->n), .dom = GROUP, .type = -1, .hyper = -1};
    PUSH(r->arena, r->state, r->nstate, r->state_cap) = s;
    PUSH(r->arena, x->own, x->n, x->own_cap) = graph_add(to, n);
    return all;
}

/* Marks the reductions that a value needs; done: by node. Operands precede users, so one walk
 * downwards suffices. */
static void needed(const Share *x, bool *node, bool *reduction)
{
    const Graph *g = &x->r->g;
    for (Ref i = g->len - 1; i >= 0; i--) {
        const Node *n = &g->n[i];
        if (!node[i])
            continue;
        for (int k = 0; k < n->nargs; k++)
            node[n->arg[k]] = true;
        if (n->op == OP_INPUT && n->sym >= x->input0)
            reduction[(n->sym - x->input0) / x->bindings] = true;
    }
}

/* A reduction's level is above those of the reductions that it needs. Its own value precedes its
 * users, so reductions are numbered in an order that allows one walk. */
static void find_levels(Share *x)
{
    Rule *r = x->r;
    x->level = NEWS(r->arena, int, x->n + 1);
    for (int k = 0; k < x->n; k++) {
        bool *node = NEWS(r->arena, bool, r->g.len + 1), *of = NEWS(r->arena, bool, x->n + 1);
        node[x->own[k]] = true;
        needed(x, node, of);
        for (int i = 0; i < k; i++)
            if (of[i] && x->level[i] >= x->level[k])
                x->level[k] = x->level[i] + 1;
    }
}

/* The reductions that an entry needs, also through others. */
static bool *entry_needs(const Share *x, int e)
{
    Rule *r = x->r;
    bool *node = NEWS(r->arena, bool, r->g.len + 1), *of = NEWS(r->arena, bool, x->n + 1);
    for (int v = 0; v < r->nvariant; v++)
        for (int i = 0; i < r->entry[e].body[v].n; i++)
            node[r->entry[e].body[v].w[i].val] = true;
    needed(x, node, of);
    for (int k = x->n - 1; k >= 0; k--)
        if (of[k]) {
            memset(node, 0, sizeof *node * (size_t)r->g.len);
            node[x->own[k]] = true;
            needed(x, node, of);
        }
    return of;
}

static bool add_entry(const Share *x, int e, int level, const bool *needs)
{
    Rule *r = x->r;
    const char *name = arena_printf(r->arena, SHARE_ENTRY "%s_%d", r->entry[e].name, level);
    Entry made = {name, NEWS(r->arena, Body, r->nvariant)};
    bool any = false;
    for (int k = 0; k < x->n; k++)
        for (int v = 0; v < r->nvariant && needs[k] && x->level[k] == level; v++) {
            Body *b = &made.body[v];
            PUSH(r->arena, b->w, b->n, b->cap) = (Write){x->state0 + k, x->own[k]};
            any = true;
        }
    if (any)
        PUSH(r->arena, r->entry, r->nentry, r->entry_cap) = made;
    return any;
}

/* the first state of pass_share; -1: none */
static int rule_shared(const Rule *r)
{
    for (int i = 0; i < r->nstate; i++)
        if (!strcmp(r->state[i].name, "shared.0"))
            return i;
    return -1;
}

int rule_shares(const Rule *r, int entry)
{
    const char *name = r->entry[entry].name;
    size_t n = strlen(SHARE_ENTRY);
    if (strncmp(name, SHARE_ENTRY, n) || rule_shared(r) < 0)
        return 0;
    for (int e = 0; e < r->nentry; e++) {
        size_t of = strlen(r->entry[e].name);
        if (!strncmp(name + n, r->entry[e].name, of) && name[n + of] == '_' &&
            strspn(name + n + of + 1, "0123456789") == strlen(name + n + of + 1))
            return e + 1;
    }
    return 0;
}

static bool name_taken(const Rule *r, int entries, Diag *d)
{
    for (int e = 0; e < entries; e++)
        for (int i = entries; i < r->nentry; i++)
            if (!strcmp(r->entry[e].name, r->entry[i].name)) {
                diag_set(d, NULL, 0, NULL,
                         "the entry '%s' has the name of one that shares values of all tensors "
                         "between bindings; rename it in the spec",
                         r->entry[e].name);
                return true;
            }
    return false;
}

bool pass_share(Rule *r, int bindings, Diag *d)
{
    Share x = {.r = r, .bindings = bindings, .state0 = r->nstate, .input0 = r->ninput};
    int entries = r->nentry;
    if (bindings < 0 || bindings > MOST_SHARED_BINDINGS) {
        diag_set(d, NULL, 0, NULL,
                 "bindings = %d: values of all tensors are shared by at most %d bindings", bindings,
                 MOST_SHARED_BINDINGS);
        return false;
    }
    if (bindings < 2)
        return true;
    rule_rewrite(r, joined, &x);
    find_levels(&x);
    for (int e = 0; e < entries; e++) {
        const bool *needs = entry_needs(&x, e);
        for (int level = 0; add_entry(&x, e, level, needs); level++) { }
    }
    if (r->nentry > MAX_ENTRIES) {
        diag_set(d, NULL, 0, NULL,
                 "rule %s: over %d entries, with those that share values of all tensors", r->name,
                 MAX_ENTRIES);
        return false;
    }
    return !name_taken(r, entries, d);
}

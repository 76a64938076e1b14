/* Keeps the bits of a parameter that its storage type rounds away, and writes a second copy of it:
 * for every entry and every variant of any rule. The pass adds states, replaces what reads p, and
 * adds to what writes p.
 *
 *   f32    state `master`: the parameter in f32. Reads take it; a write stores it and rounds it to
 *          p. With `edits` reads take p where it is not the rounded master: the caller wrote it
 *   low16  state `low`: the low half of the f32 number, p is the high half (templates/types.h).
 *          Exact
 *   low8   state `low`: the difference to p, in 127ths of half a step of bf16
 *   kahan  state `compensation`, in p's type: what the last writes rounded away, added to the next
 *          change of p
 *   copy   value `copy`: the new p in another type
 *   lost   value `lost_updates`: elements of the tensor that `step` leaves as they are although
 *          their update is not 0
 *
 * A write that leaves the number unchanged (a skipped step) leaves p and its state unchanged. Needs
 * nothing of the passes before it; leaves nodes that constant folding merges. */
#include "gen/ir/rule_passes.h"

#include <string.h>

typedef struct Keeper { Rule *r; Master how; int state; bool edits; } Keeper;

static const struct { const char *name, *state; int type; Init init; } keeps[NMASTER] = {
    [MASTER_F32] = {"f32", "master", T_F32, INIT_COPY_P},
    [MASTER_LOW16] = {"low16", "low", T_I16, INIT_FILL},
    [MASTER_LOW8] = {"low8", "low", T_I8, INIT_FILL},
    [MASTER_KAHAN] = {"kahan", "compensation", -1, INIT_FILL}};       /* -1: the type of p */

/* ---- what can be chosen ---- */
static bool refuse(Diag *d, const char *text)
{
    diag_set(d, NULL, 0, NULL, "types: %s", text);
    return false;
}

static bool misuse_of_integers(Diag *d)
{
    return refuse(
        d, "i16 and i8 hold only what bf16 parameters round away: use master=low16 or master=low8");
}

/* Types by name ("m=bf16,low=f32") choose no integers, and not the types of the states that this
 * pass adds. */
static bool check_named(Arena *a, const Types *t, Diag *d)
{
    for (const char *s = t->named ? t->named : ""; *s;) {
        size_t n = strcspn(s, "="), len = strcspn(s, ",");
        const char *name = arena_strndup(a, s, n), *type = arena_strndup(a, s + n + 1, len - n - 1);
        if (type_by_name(type) >= 0 && type_integer((Type)type_by_name(type)))
            return misuse_of_integers(d);
        if (t->master && !strcmp(name, keeps[t->master].state))
            return refuse(
                d, arena_printf(a, "%s=%s: the type of '%s' follows from master=%s; leave it out",
                                name, type, name, keeps[t->master].name));
        s += len + (s[len] == ',');
    }
    return true;
}

static bool check_plain(const Rule *r, const Types *t, Diag *d)
{
    bool pinned = false;
    for (int i = 0; i < r->nstate; i++)
        pinned = pinned || (r->state[i].type >= 0 && type_integer((Type)r->state[i].type) &&
                            !r->state[i].follows_p);
    if (pinned || type_integer(t->p) || type_integer(t->g) || type_integer(t->state))
        return misuse_of_integers(d);
    return check_named(r->arena, t, d);
}

static bool check_master(Arena *a, const Types *t, Diag *d)
{
    const TypeInfo *p = &type_info[t->p];
    const char *name = keeps[t->master].name;
    if (p->compute != T_F32 || t->p == T_F32)
        return refuse(
            d,
            arena_printf(a,
                         "master=%s: parameters in %s round nothing away; leave it out, or choose "
                         "param=bf16",
                         name, p->name));
    if (p->block != 1 || p->draws)
        return refuse(
            d, arena_printf(a, "master=%s: parameters in %s cannot have it; choose param=bf16",
                            name, p->name));
    if ((t->master == MASTER_LOW16 || t->master == MASTER_LOW8) && t->p != T_BF16)
        return refuse(
            d, arena_printf(
                   a,
                   "master=%s: the remainder belongs to parameters in bf16, not in %s; choose "
                   "master=f32 or master=kahan",
                   name, p->name));
    return true;
}

static bool check_edits(const Types *t, Diag *d)
{
    return t->master == MASTER_F32 || refuse(d, "edits=find compares parameters with master=f32, "
                                                "and other choices keep no number to compare; "
                                                "leave it out, or choose master=f32");
}

static bool check_copy(Arena *a, Type copy, Diag *d)
{
    if (type_coded(copy) || type_integer(copy) || type_info[copy].draws)
        return refuse(
            d, arena_printf(
                   a,
                   "copy=%s: a copy of the parameters needs a type that rounds each number by "
                   "itself, to nearest: bf16 or f16",
                   type_info[copy].name));
    return true;
}

/* what has this name in the spec; NULL: nothing */
static const char *holder(const Rule *r, const char *name)
{
    for (int i = 0; i < r->nstate; i++)
        if (!strcmp(r->state[i].name, name))
            return r->state[i].report ? "value" : "state";
    for (int i = 0; i < r->nhyper; i++)
        if (!strcmp(r->hyper[i].name, name))
            return "hyperparameter";
    for (int i = 0; i < r->ninput; i++)
        if (!strcmp(r->input[i].name, name))
            return "input";
    return NULL;
}

/* -1: refused */
static int add_state(Rule *r, State s, const char *key, const char *choice, Diag *d)
{
    const char *is = holder(r, s.name);
    if (is) {
        refuse(d, arena_printf(
                      r->arena,
                      "%s=%s needs a state '%s', but rule '%s' has a %s of that name; rename it in "
                      "the spec",
                      key, choice, s.name, r->name, is));
        return -1;
    }
    s.dom = ELEM;
    s.hyper = -1;
    s.follows_p = true;
    PUSH(r->arena, r->state, r->nstate, r->state_cap) = s;
    return r->nstate - 1;
}

/* ---- values ---- */
static Ref two(Graph *g, Op op, Ref a, Ref b) { return node_op(g, op, a, b, NONE); }
static Ref p_leaf(Graph *g) { return node_leaf(g, OP_P, ELEM, 0, 0); }

static Ref named(Graph *g, Ref r, const char *name)
{
    if (!is_leaf(&g->n[r]))
        graph_name(g, r, name);
    return r;
}

static Ref as_p(Graph *g, Ref x)               /* x as p's type stores it */
{
    Node n = {.op = OP_STORED, .dom = ELEM, .ty = NUM, .sym = TO_P, .nargs = 1, .arg = &x};
    return graph_add(g, n);
}

/* Joins p and its state: the value before p was rounded. */
static Ref whole_p(Graph *g, const Keeper *k)
{
    Ref p = p_leaf(g), s = k->how ? node_leaf(g, OP_STATE, ELEM, k->state, 0) : p;
    switch (k->how) {
    case MASTER_F32:
        return k->edits
                   ? named(g,
                           node_op(g, OP_WHERE,
                                   two(g, OP_EQ, named(g, as_p(g, s), "master_rounded"), p), s, p),
                           "p_whole")
                   : s;
    case MASTER_LOW16: return named(g, two(g, OP_JOIN16, p, s), "p_whole");
    case MASTER_LOW8:
        return named(g,
                     two(g, OP_ADD, p,
                         two(g, OP_MUL, two(g, OP_MUL, s, node_const(g, 1.0 / 127)),
                             node_op(g, OP_HALF_STEP, p, NONE, NONE))),
                     "p_whole");
    default: return p;
    }
}

/* stored "p" rounds to what holds p: with f32 or low16 that is f32. */
static Ref read_whole(Graph *to, Node n, void *ctx)
{
    const Keeper *k = ctx;
    bool exact = k->how == MASTER_F32 || k->how == MASTER_LOW16;
    if (n.op == OP_P)
        return whole_p(to, k);
    return exact && n.op == OP_STORED && n.sym == TO_P ? n.arg[0] : graph_add(to, n);
}

/* p and its state for the new number x. */
static void split(Graph *g, const Keeper *k, Ref x, Ref *p, Ref *s)
{
    Ref p0 = p_leaf(g), s0 = node_leaf(g, OP_STATE, ELEM, k->state, 0), u;
    *p = *s = x;
    switch (k->how) {
    case MASTER_LOW16:
        *p = node_op(g, OP_HIGH16, x, NONE, NONE);
        *s = node_op(g, OP_LOW16, x, NONE, NONE);
        return;
    case MASTER_LOW8:
        *p = as_p(g, x);
        *s = two(g, OP_MUL,
                 two(g, OP_DIV, two(g, OP_SUB, x, *p), node_op(g, OP_HALF_STEP, *p, NONE, NONE)),
                 node_const(g, 127));
        break;
    case MASTER_KAHAN:
        u = two(g, OP_ADD, two(g, OP_SUB, x, p0), s0);
        *p = as_p(g, two(g, OP_ADD, p0, u));
        *s = two(g, OP_SUB, u, two(g, OP_SUB, *p, p0));
        break;
    default: return;
    }
    /* with a name each side is a statement of its own; gcc does not vectorise selects between long
     * expressions */
    Ref moved = named(g, two(g, OP_NE, x, whole_p(g, k)), "moved");
    *p = node_op(g, OP_WHERE, moved, named(g, *p, "p_rounded"), p0);
    *s = node_op(g, OP_WHERE, moved, named(g, *s, "lost"), s0);
}

static void add_write(Rule *r, Body *b, int state, Ref val)
{
    PUSH(r->arena, b->w, b->n, b->cap) = (Write){state, val};
}

/* ---- lost updates ---- */
/* below this depth a value only counts as different or not */
enum { DEEP = 40 };

/* x is p with something added to it or scaled by something. */
static bool carries(const Graph *g, Ref x, Ref p, int depth)
{
    const Node *n = &g->n[x];
    if (x == p || depth == DEEP)
        return x == p;
    switch (n->op) {
    case OP_COPY: case OP_SUB: return carries(g, n->arg[0], p, depth + 1);
    case OP_ADD:
    case OP_MUL: return carries(g, n->arg[0], p, depth + 1) || carries(g, n->arg[1], p, depth + 1);
    case OP_WHERE:
        return carries(g, n->arg[1], p, depth + 1) || carries(g, n->arg[2], p, depth + 1);
    default: return false;
    }
}

static Ref either(Graph *g, Ref a, Ref b)
{
    return a == NONE ? b : b == NONE ? a : two(g, OP_EITHER, a, b);
}

/* Whether x differs from p, before f32 rounds the sum: p - u differs if u is not 0. NONE: it does
 * not. */
static Ref differs(Graph *g, Ref x, Ref p, int depth)
{
    const Node n = g->n[x];
    if (x == p)
        return NONE;
    if (n.op == OP_COPY && depth < DEEP)
        return differs(g, n.arg[0], p, depth + 1);
    if (n.op == OP_WHERE && depth < DEEP) {
        Ref test = n.arg[0], a = differs(g, n.arg[1], p, depth + 1),
            b = differs(g, n.arg[2], p, depth + 1);
        return either(g, a == NONE ? NONE : two(g, OP_BOTH, test, a),
                      b == NONE ? NONE : two(g, OP_BOTH, node_op(g, OP_ISNT, test, NONE, NONE), b));
    }
    for (int k = 0; k < 2 && depth < DEEP && (n.op == OP_ADD || (n.op == OP_SUB && !k)); k++)
        if (carries(g, n.arg[k], p, 0))
            return either(g, differs(g, n.arg[k], p, depth + 1),
                          two(g, OP_NE, n.arg[!k], node_const(g, 0)));
    return two(g, OP_NE, x, p);
}

/* The number of elements for which p and what is kept beside it stay as they are, although the
 * number x that was assigned differs. p: the new value of the array; kept: of the state, or
 * NONE. */
static Ref count_lost(Graph *g, const Keeper *k, Ref x, Ref p, Ref kept)
{
    bool exact = k->how == MASTER_F32 || k->how == MASTER_LOW16;
    Ref old = whole_p(g, k), moves = differs(g, x, old, 0);
    if (moves == NONE)
        return node_const(g, 0);
    Ref same = two(g, OP_EQ, exact ? x : as_p(g, p), old), lost;
    if (k->how == MASTER_LOW8 || k->how == MASTER_KAHAN) {
        Node n = {
            .op = OP_STORED, .dom = ELEM, .ty = NUM, .sym = k->state, .nargs = 1, .arg = &kept};
        same = two(g, OP_BOTH, two(g, OP_EQ, as_p(g, p), p_leaf(g)),
                   two(g, OP_EQ, graph_add(g, n), node_leaf(g, OP_STATE, ELEM, k->state, 0)));
    }
    lost = node_op(g, OP_WHERE, two(g, OP_BOTH, same, moves), node_const(g, 1), node_const(g, 0));
    return node_red(g, OP_SUM, g->n[lost].dom == ELEM ? lost : node_copy(g, lost, ELEM), TENSOR);
}

static int add_lost(Rule *r, const Types *t, Diag *d)          /* -1: refused */
{
    const char *is = holder(r, "lost_updates");
    if (type_info[t->p].draws) {
        refuse(d, arena_printf(
                      r->arena,
                      "lost=count: parameters in %s round up or down at random, so that no update "
                      "is lost on average; leave it out",
                      type_info[t->p].name));
        return -1;
    }
    if (is) {
        refuse(d, arena_printf(
                      r->arena,
                      "lost=count needs a value 'lost_updates', but rule '%s' has a %s of that "
                      "name; rename it in the spec",
                      r->name, is));
        return -1;
    }
    State s = {.name = "lost_updates",
               .dom = TENSOR,
               .type = -1,
               .init = INIT_FILL,
               .report = true,
               .hyper = -1};
    PUSH(r->arena, r->state, r->nstate, r->state_cap) = s;
    return r->nstate - 1;
}

/* ---- the pass ---- */
/* copy, lost: the states that take these values; -1: none */
static void extend_body(const Keeper *k, int copy, int lost, Body *b)
{
    Rule *r = k->r;
    Graph *g = &r->g;
    int at = 0;
    while (at < b->n && b->w[at].state != TO_P)
        at++;
    if (at == b->n)
        return;
    Ref x = b->w[at].val, kept = NONE;
    g->file = g->n[x].file;
    g->line = g->n[x].line;
    g->entry = g->n[x].entry;
    if (g->n[x].dom != ELEM)
        x = node_copy(g, x, ELEM);
    named(g, x, "p_next");
    if (k->how) {
        split(g, k, x, &b->w[at].val, &kept);
        add_write(r, b, k->state, kept);
    }
    /* with compensation only p itself has all earlier changes */
    if (copy >= 0)
        add_write(r, b, copy, k->how == MASTER_KAHAN ? b->w[at].val : x);
    if (lost >= 0)
        add_write(r, b, lost, count_lost(g, k, x, b->w[at].val, kept));
}

bool pass_master(Rule *r, const Types *types, const char *path, Diag *d)
{
    (void)path;                                    /* what it refuses is in no spec */
    Keeper k = {r, types->master, -1, types->edits};
    Type copied = (Type)(types->copy - 1);
    int copy = -1, lost = -1;
    if (!check_plain(r, types, d) || (k.how && !check_master(r->arena, types, d)) ||
        (types->copy && !check_copy(r->arena, copied, d)) ||
        (types->edits && !check_edits(types, d)))
        return false;
    if (k.how) {
        int type = keeps[k.how].type < 0 ? (int)types->p : keeps[k.how].type;
        State s = {.name = keeps[k.how].state, .type = type, .init = keeps[k.how].init};
        k.state = add_state(r, s, "master", keeps[k.how].name, d);
        if (k.state < 0)
            return false;
        rule_rewrite(r, read_whole, &k);
    }
    if (types->copy) {
        State s = {.name = "copy", .type = (int)copied, .init = INIT_COPY_P, .report = true};
        copy = add_state(r, s, "copy", type_info[copied].name, d);
        if (copy < 0)
            return false;
    }
    if (types->lost && (lost = add_lost(r, types, d)) < 0)
        return false;
    for (int e = 0; e < r->nentry && (k.how || types->copy || types->lost); e++)
        for (int v = 0; v < r->nvariant; v++)
            extend_body(&k, copy, strcmp(r->entry[e].name, "step") ? -1 : lost,
                        &r->entry[e].body[v]);
    return true;
}

/* Reductions: sum, mean, norm, rms, max, min and dot of a tensor, a matrix, all tensors, or along
 * one axis. */
#include "gen/front/matrix_values.h"

#include <stdio.h>

#define REDUCTIONS(X) \
    X(SUM, "sum") \
    X(MEAN, "mean") X(NORM, "norm") X(RMS, "rms") X(MAX, "max") X(MIN, "min") X(DOT, "dot")
#define REDUCTION_ID(ID, name) R_##ID,
#define REDUCTION_NAME(ID, name) name,
enum { REDUCTIONS(REDUCTION_ID) NRED };
static const char *const red_name[NRED] = {REDUCTIONS(REDUCTION_NAME)};

static Ref red_global(lua_State *L, Op op, Ref x)
{
    Trace *t = trace_of(L);
    Graph *g = trace_here(t);
    GlobalRed *next = NULL;
    for (int i = 0; i < t->ngred; i++) {
        GlobalRed *x0 = &t->gred[i];
        if (x0->entry != t->entry)
            continue;
        if (x0->op == op && x0->of[t->variant] == x)
            return x0->node;
        if (!next && x0->of[t->variant] == NONE)
            next = x0;
    }
    if (t->variant > 0) {
        /* Every variant must make the same global reductions in the same order: each is over the
         * tensors of all variants. */
        if (t->nerror)                         /* an error may have removed its partner */
            return (Ref)errors_raise(L);
        if (!next || next->op != op)
            return (Ref)spec_error(L, "%s", variants_no_partner(t, 0));
        next->of[t->variant] = x;
        return next->node;
    }
    Node n = {.op = op,
              .dom = GROUP,
              .ty = NUM,
              .from = TENSOR,
              .imm = t->ngred,
              .file = g->file,
              .line = g->line};
    GlobalRed made = {op, t->entry, g->file, g->line, graph_add(g, n), {0}};
    for (int v = 0; v < MAX_VARIANTS; v++)
        made.of[v] = v ? NONE : x;
    PUSH(t->arena, t->gred, t->ngred, t->gred_cap) = made;
    return made.node;
}

/* A reduction of a transposed value is computed on the value itself, over the other axis, so no
 * stage loads it transposed. */
static Ref fold(lua_State *L, Op op, Ref x, Dom to)
{
    Trace *t = trace_of(L);
    const Node *n = &t->rule->g.n[x];
    if (n->op != OP_TRANSPOSE)
        return node_red(trace_here(t), op, x, to);
    return matrix_transpose(L, node_red(trace_here(t), op, n->arg[0], dom_transposed(to)));
}

Ref trace_fold(lua_State *L, Op op, Ref x, Dom to)
{
    static const Op global_of[NOPS] = {
        [OP_SUM] = OP_GSUM, [OP_RMAX] = OP_GMAX, [OP_RMIN] = OP_GMIN};
    if (dom_of_block((Dom)trace_of(L)->rule->g.n[x].dom) && dom_inside(to))
        to = dom_blocked(to);
    if (to != GROUP)
        return fold(L, op, x, to);
    bool inside = dom_inside((Dom)trace_of(L)->rule->g.n[x].dom);
    return red_global(L, global_of[op], inside ? fold(L, op, x, TENSOR) : x);
}

/* The result's domain: rowsum and the like keep the axis down, colsum the axis across. */
static Dom fold_to(Dom asked, Dom from)
{
    const Axis *a = dom_info[from].axis;
    Scope scope = dom_info[from].scope;
    if (dom_square(from) && (asked == ROW || asked == COL))
        return asked == ROW ? dom_scoped(scope, a[0], AXIS_ONE) : dom_scoped(scope, AXIS_ONE, a[1]);
    return dom_of_block(from) ? dom_blocked(asked) : asked;
}

static void check_fold(lua_State *L, const char *what, Ref x, Dom to)
{
    static const char *const among[] = {[SCOPE_GROUP] = "between tensors",
                                        [SCOPE_TENSOR] = "inside a tensor",
                                        [SCOPE_MATRIX] = "inside a matrix",
                                        [SCOPE_BLOCK] = "inside a block"};
    Trace *t = trace_of(L);
    Dom from = (Dom)t->rule->g.n[x].dom;
    uint64_t of = 0;
    if (from != to && dom_spreads(to, from))
        return;
    for (int d = 0; d < NDOM; d++)
        of |= (uint64_t)(dom_named((Dom)d, t->rule->rank > 0, t->rule->block > 0) &&
                         dom_folds((Dom)d, to))
              << d;
    const char *needs = !dom_wide(to)
                            ? "varies by element, or along two axes"
                            : arena_printf(t->arena, "varies %s (%s)", among[dom_info[to].scope],
                                           dom_list(t->arena, of, "", ", "));
    spec_error(L, "%s needs a value that %s; %s does not", what, needs, describe(t, x));
}

/* The number of values of domain `from` that one value of domain `to` is reduced from. For a group
 * it is a sum over tensors, whose counts differ. */
static Ref fold_count(lua_State *L, Dom from, Dom to)
{
    Graph *g = &trace_of(L)->rule->g;
    if (from == ELEM_T)
        from = ELEM, to = dom_transposed(to);
    if (to == GROUP && from != ELEM && from != TENSOR)
        return red_global(L, OP_GSUM, node_count(g, from, TENSOR));
    if (from == ELEM || dom_wide(to))
        return node_count(g, from, to);
    Dom one = dom_product(dom_info[from].axis[dom_info[to].axis[0] != AXIS_ONE], AXIS_ONE);
    return dom_of_block(from) ? node_count(g, dom_blocked(one), BLOCK) : node_count(g, one, SLICE);
}

static Ref konst(lua_State *L, double x) { return node_const(&trace_of(L)->rule->g, x); }

/* A global norm sums the squares of the tensors' norms in f64. */
static Ref plain_norm(lua_State *L, Op op, Ref x, Dom to)
{
    if (to != GROUP)
        return trace_fold(L, op, x, to);
    Dom from = (Dom)trace_of(L)->rule->g.n[x].dom;
    Ref each = dom_inside(from) ? trace_fold(L, OP_NORM, x, TENSOR) : x;
    Ref sum = red_global(L, OP_GSUM, trace_op(L, OP_MUL, each, each));
    return trace_op(L, OP_SQRT,
                    op == OP_NORM ? sum : trace_op(L, OP_DIV, sum, fold_count(L, from, to)), NONE);
}

/* The square of an f64 value may underflow or overflow. An f64 rule therefore computes the norm at
 * three scales in one pass and selects the one in range. The scales are powers of two, so scaling
 * rounds nothing. Global norms that span bindings of other types have one scale, as those have: a
 * norm in f64 is then in range from 1e-154 to 1e154. */
Ref trace_norm(lua_State *L, Op op, Ref x, Dom to)
{
    const double up = 0x1p650, down = 0x1p-600, least = 0x1p-400, most = 0x1p450;
    Ref norm = plain_norm(L, op, x, to);
    if (trace_of(L)->params != T_F64 || (to == GROUP && trace_of(L)->shared))
        return norm;
    Ref tiny = plain_norm(L, op, trace_op(L, OP_MUL, konst(L, up), x), to);
    Ref huge = plain_norm(L, op, trace_op(L, OP_MUL, konst(L, down), x), to), plain = norm;
    tiny = trace_op(L, OP_MUL, konst(L, 1 / up), tiny);
    huge = trace_op(L, OP_MUL, konst(L, 1 / down), huge);
    norm = trace_op3(L, OP_WHERE, trace_op(L, OP_LT, konst(L, most), plain), huge, norm);
    return trace_op3(L, OP_WHERE, trace_op(L, OP_LT, plain, konst(L, least)), tiny, norm);
}

static int l_reduce(lua_State *L)
{
    Trace *t = trace_of(L);
    Graph *g = &t->rule->g;
    int kind = (int)lua_tointeger(L, lua_upvalueindex(1));
    Dom to = (Dom)lua_tointeger(L, lua_upvalueindex(2));
    const char *what = lua_tostring(L, lua_upvalueindex(3));
    int operands = kind == R_DOT ? 2 : 1;
    inside_entry(L, what);
    lang_count(L, what, operands, operands);
    Ref x = lang_num(L, 1, what, operands);
    if (kind == R_DOT)
        x = trace_op(L, OP_MUL, x, lang_num(L, 2, what, operands));
    /* a group value counts once per tensor */
    if (to == GROUP && g->n[x].dom == GROUP)
        x = trace_copy(t, x, TENSOR);
    Dom from = (Dom)g->n[x].dom;
    to = fold_to(to, from);
    check_fold(L, what, x, to);
    if (dom_inside(to))
        t->spec[t->at].uses_view = true;
    Ref r = kind == R_NORM  ? trace_norm(L, OP_NORM, x, to)
            : kind == R_RMS ? trace_norm(L, OP_RMS, x, to)
                            : trace_fold(L,
                                         kind == R_MAX   ? OP_RMAX
                                         : kind == R_MIN ? OP_RMIN
                                                         : OP_SUM,
                                         x, to);
    if (kind == R_MEAN)
        r = trace_op(L, OP_DIV, r, fold_count(L, from, to));
    push_value(L, r);
    return 1;
}

/* min and max: of one argument a reduction over the tensor, of several elementwise. */
static int l_minmax(lua_State *L)
{
    bool max = lua_toboolean(L, lua_upvalueindex(1));
    const char *what = max ? "max" : "min";
    int n = lua_gettop(L);
    if (n == 0)
        return spec_error(L, "%s takes one argument (over the tensor) or several (elementwise)",
                          what);
    if (n == 1) {
        if (lua_type(L, 1) == LUA_TNUMBER)
            return 1;
        lua_pushinteger(L, max ? R_MAX : R_MIN);
        lua_pushinteger(L, TENSOR);
        lua_pushstring(L, what);
        lua_pushcclosure(L, l_reduce, 3);
        lua_insert(L, 1);
        lua_call(L, 1, 1);
        return 1;
    }
    bool plain = true;
    for (int i = 1; i <= n; i++)
        plain = plain && lua_type(L, i) == LUA_TNUMBER;
    Op op = max ? OP_MAX : OP_MIN;
    if (plain) {
        double y = lua_tonumber(L, 1);
        for (int i = 2; i <= n; i++)
            y = op_eval(op, y, lua_tonumber(L, i), 0);
        lua_pushnumber(L, y);
        return 1;
    }
    Ref r = lang_num(L, 1, what, n);
    for (int i = 2; i <= n; i++)
        r = trace_op(L, op, r, lang_num(L, i, what, n));
    push_value(L, r);
    return 1;
}

static void add_to(lua_State *L, const char *prefix, Dom to)
{
    for (int k = 0; k < NRED; k++) {
        if (!*prefix && to == TENSOR && (k == R_MAX || k == R_MIN))
            continue;                                   /* l_minmax handles these */
        const char *dot = to == GROUP ? "global." : to == SLICE ? "slice." : prefix;
        lua_pushinteger(L, k);
        lua_pushinteger(L, to);
        lua_pushfstring(L, "%s%s", dot, red_name[k]);
        lua_pushcclosure(L, l_reduce, 3);
        char name[32];
        snprintf(name, sizeof name, "%s%s", prefix, red_name[k]);
        lua_setfield(L, -2, name);
    }
}

void reduce_open(lua_State *L)
{
    static const struct { const char *prefix; Dom to; } plain[] = {
        {"", TENSOR}, {"row", ROW}, {"col", COL}};
    static const struct { const char *table; Dom to; } under[] = {
        {"slice", SLICE}, {"global", GROUP}};
    for (int i = 0; i < 2; i++) {
        lua_pushboolean(L, i);
        lua_pushcclosure(L, l_minmax, 1);
        lua_setfield(L, -2, i ? "max" : "min");
    }
    for (int i = 0; i < 3; i++)
        add_to(L, plain[i].prefix, plain[i].to);
    for (int i = 0; i < 2; i++) {
        lua_newtable(L);
        add_to(L, "", under[i].to);
        errors_guard_all(L, false);
        sandbox_protect(L, under[i].table);
        lua_setfield(L, -2, under[i].table);
    }
}

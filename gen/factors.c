/* Factors of matrices: power, chol, qr. Each is a call of one operand (CALL in ops.def): its matrix lies in memory, and
 * so does the result. Of a symmetric matrix the lower triangle says all. */
#include "matrix.h"

#include <math.h>
#include <string.h>

static const Node *node_at(lua_State *L, Ref r) { return &trace_of(L)->rule->g.n[r]; }

static Ref factor(lua_State *L, Factor f)
{
    Trace *t = trace_of(L);
    f.flags |= t->rule->block > 0 ? BLOCKED : 0;
    return node_factor(trace_here(t), f);
}

/* A matrix that is neither elements nor turned: what is turned lies in memory turned. */
static Ref factor_arg(lua_State *L, const char *what, bool square)
{
    Trace *t = trace_of(L);
    inside_entry(L, what);
    Ref r = lang_num(L, 1, what, 1);
    Dom d = (Dom)node_at(L, r)->dom;
    const Axis *axis = dom_info[d].axis;
    bool right = dom_square(d) && (axis[0] == axis[1] || (!square && axis[1] == AXIS_RANK));
    if (!right)
        spec_error(L, "%s takes a square value, one over rows and rows, cols and cols or rank and rank%s; it got %s", what,
                   square ? "" : ", or one over rows and rank or cols and rank, which has no more columns than rows",
                   describe(t, r));
    t->spec[t->at].uses_view = true;
    return r;
}

/* x on the diagonal, beside what is there. */
static Ref lifted(lua_State *L, Ref a, Ref x)
{
    return trace_op(L, OP_ADD, a, matrix_eye(L, x, (Dom)node_at(L, a)->dom));
}

/* The largest sum of magnitudes in a row: no eigenvalue is larger. */
static Ref row_bound(lua_State *L, Ref a)
{
    Dom d = (Dom)node_at(L, a)->dom, row = dom_product(dom_info[d].axis[0], AXIS_ONE);
    Ref none = NONE, sums = trace_fold(L, OP_SUM, trace_op(L, OP_ABS, a, none), row);
    return trace_fold(L, OP_RMAX, sums, SLICE);
}

/* ---- options ---- */
typedef struct Options { Ref ridge, relative, floor, last; } Options;

/* The value of a key of the table at `i`; NONE: it has none. */
static Ref option(lua_State *L, int i, const char *key)
{
    Ref r = NONE;
    if (lua_getfield(L, i, key) != LUA_TNIL)
        r = lang_num(L, lua_gettop(L), key, 1);
    lua_pop(L, 1);
    return r;
}

/* One number a matrix, or fewer: it may be a hyperparameter, which is read where the rule runs. */
static Ref one_number(lua_State *L, int i, const char *what, const char *key)
{
    Ref r = option(L, i, key);
    if (r != NONE && !dom_wide((Dom)node_at(L, r)->dom))
        spec_error(L, "%s: %s is one number, not %s", what, key, describe(trace_of(L), r));
    return r;
}

/* known: the keys that this factor has, of which it says so. */
static Options options(lua_State *L, int i, const char *what, const char *const *known, const char *says)
{
    Options o = {NONE, NONE, NONE, NONE};
    if (lua_isnoneornil(L, i))
        return o;
    if (lua_type(L, i) != LUA_TTABLE)
        spec_error(L, "%s's options are a table: %s", what, says);
    Buf keys = {.arena = trace_of(L)->arena};
    for (int k = 0; known[k]; k++)
        buf_printf(&keys, "%s%s", !k ? "" : known[k + 1] ? ", " : " and ", known[k]);
    matrix_keys(L, i, arena_printf(trace_of(L)->arena, "%s knows %s", what, buf_text(&keys)), known);
    o.ridge = one_number(L, i, what, "ridge");
    o.relative = one_number(L, i, what, "relative");
    o.floor = one_number(L, i, what, "floor");
    o.last = option(L, i, "last");
    return o;
}

/* What takes a factor's place where there is none, in the factor's domain. */
static Ref place_of(lua_State *L, const char *what, Ref last, Dom d)
{
    if (last == NONE || (Dom)node_at(L, last)->dom == d)
        return last;
    if (!dom_spreads((Dom)node_at(L, last)->dom, d))
        spec_error(L, "%s: last is the result where there is no other, a value per %s: %s is not", what, dom_info[d].per,
                   describe(trace_of(L), last));
    return trace_copy(trace_of(L), last, d);
}

/* ---- power ---- */
/* ridge is added to every eigenvalue, and relative of the largest row's sum. */
static Ref with_ridge(lua_State *L, Ref a, const Options *o)
{
    Ref out = a;
    if (o->relative != NONE)
        out = lifted(L, out, trace_op(L, OP_MUL, o->relative, row_bound(L, a)));
    return o->ridge != NONE ? lifted(L, out, o->ridge) : out;
}

/* With relative = x no eigenvalue is below x of a bound, and none above 1 + x of it. Who says x may change it: a
 * hyperparameter does to a sixteenth. */
static double share(lua_State *L, Ref relative)
{
    const Node *n = relative == NONE ? NULL : node_at(L, relative);
    double x = n && n->op == OP_CONST ? n->imm : n && n->op == OP_HYPER ? trace_of(L)->rule->hyper[n->sym].def / 16 : 0;
    return x > 0 && x < 1e300 ? x / (1 + x) : USUAL_LOW;
}

/* One value a matrix, in memory where the callee finds it. */
static Ref floor_of(lua_State *L, Ref x)
{
    Trace *t = trace_of(L);
    Dom d = t->rule->block ? BLOCK : SLICE;
    Ref sizes = x != NONE && t->rule->block ? trace_sizes(t, x) : NONE;
    x = sizes != NONE ? sizes : x;
    if (x == NONE || (Dom)node_at(L, x)->dom == d)
        return x;
    if (!dom_spreads((Dom)node_at(L, x)->dom, d))
        spec_error(L, "power: floor is one number a block, not %s", describe(t, x));
    return trace_copy(t, x, d);
}

static int l_power(lua_State *L)
{
    static const char *const known[] = {"ridge", "relative", "floor", "last", NULL};
    lang_count(L, "power", 2, 3);
    Ref a = factor_arg(L, "power", true);
    Dom d = (Dom)node_at(L, a)->dom;
    double r = lua_type(L, 2) == LUA_TNUMBER ? lua_tonumber(L, 2) : 0;
    if (!isfinite(r) || r == 0)
        return spec_error(L, "power(A, r): r is a number other than 0 that is known when the rule is compiled; of elements "
                             "it is x ^ r");
    Options o = options(L, 3, "power", known, "power(A, -1/4, { ridge = 1e-6 })");
    push_value(L, factor(L, (Factor){.op = OP_POWER, .a = with_ridge(L, a, &o), .b = floor_of(L, o.floor),
                                     .c = place_of(L, "power", o.last, d), .imm = r, .low = share(L, o.relative),
                                     .dom = d}));
    return 1;
}

/* ---- chol, qr ---- */
static int one_factor(lua_State *L, Op op, bool square, const char *says)
{
    static const char *const known[] = {"last", NULL};
    const char *what = op_info[op].name;
    lang_count(L, what, 1, 2);
    Ref a = factor_arg(L, what, square);
    Dom d = (Dom)node_at(L, a)->dom;
    Options o = options(L, 2, what, known, says);
    push_value(L, factor(L, (Factor){.op = op, .a = a, .b = NONE, .c = place_of(L, what, o.last, d), .imm = 1, .dom = d}));
    return 1;
}

static int l_chol(lua_State *L) { return one_factor(L, OP_CHOL, true, "chol(A, { last = C })"); }
static int l_qr(lua_State *L) { return one_factor(L, OP_QR, false, "qr(X, { last = Q })"); }

void factors_open(lua_State *L)
{
    static const luaL_Reg own[] = {{"power", l_power}, {"chol", l_chol}, {"qr", l_qr}, {NULL, NULL}};
    luaL_setfuncs(L, own, 0);
}

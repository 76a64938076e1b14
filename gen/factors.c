/* Factors of matrices: power, chol, qr. Each is a call of one operand (CALL in ops.def): its matrix lies in memory, and
 * so does the result. Of a symmetric matrix the lower triangle says all. */
#include "matrix.h"

#include <math.h>
#include <string.h>

static const Node *node_at(lua_State *L, Ref r) { return &trace_of(L)->rule->g.n[r]; }

static Ref factor(lua_State *L, Op op, Ref x, double exponent)
{
    Trace *t = trace_of(L);
    return node_factor(trace_here(t), op, x, exponent, t->rule->block > 0);
}

/* A matrix that is neither elements nor turned: what is turned lies in memory turned. */
static Ref factor_arg(lua_State *L, const char *what, bool square)
{
    Trace *t = trace_of(L);
    inside_entry(L, what);
    Ref r = lang_num(L, 1, what, 1);
    Dom d = (Dom)node_at(L, r)->dom;
    const Axis *axis = dom_info[d].axis;
    bool right = dom_square(d) && d != ELEM && d != ELEM_T && (square ? axis[0] == axis[1] : axis[1] == AXIS_RANK);
    if (!right)
        spec_error(L, "%s takes %s; it got %s", what,
                   square ? "a square value, one over rows and rows, cols and cols or rank and rank"
                          : "values over rows and rank, or cols and rank, which have no more columns than rows",
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

/* ridge is added to every eigenvalue, and relative of the largest row's sum: both may be hyperparameters. */
static Ref with_ridge(lua_State *L, Ref a)
{
    static const char *const words[] = {"relative", "ridge"};
    Ref out = a;
    if (lua_isnoneornil(L, 3))
        return a;
    if (lua_type(L, 3) != LUA_TTABLE)
        spec_error(L, "power's options are a table: power(A, -1/4, { ridge = 1e-6 })");
    matrix_keys(L, 3, "power knows ridge and relative", (const char *const[]){"ridge", "relative", NULL});
    for (int i = 0; i < 2; i++) {
        if (lua_getfield(L, 3, words[i]) != LUA_TNIL) {
            Ref x = lang_num(L, lua_gettop(L), words[i], 1);
            if (!dom_wide((Dom)node_at(L, x)->dom))
                spec_error(L, "power: %s is one number, not %s", words[i], describe(trace_of(L), x));
            out = lifted(L, out, i ? x : trace_op(L, OP_MUL, x, row_bound(L, a)));
        }
        lua_pop(L, 1);
    }
    return out;
}

static int l_power(lua_State *L)
{
    lang_count(L, "power", 2, 3);
    Ref a = factor_arg(L, "power", true);
    double r = lua_type(L, 2) == LUA_TNUMBER ? lua_tonumber(L, 2) : 0;
    if (!isfinite(r) || r == 0)
        return spec_error(L, "power(A, r): r is a number other than 0 that is known when the rule is compiled; of elements "
                             "it is x ^ r");
    push_value(L, factor(L, OP_POWER, with_ridge(L, a), r));
    return 1;
}

static int l_chol(lua_State *L)
{
    lang_count(L, "chol", 1, 1);
    push_value(L, factor(L, OP_CHOL, factor_arg(L, "chol", true), 1));
    return 1;
}

static int l_qr(lua_State *L)
{
    lang_count(L, "qr", 1, 1);
    push_value(L, factor(L, OP_QR, factor_arg(L, "qr", false), 1));
    return 1;
}

void factors_open(lua_State *L)
{
    static const luaL_Reg own[] = {{"power", l_power}, {"chol", l_chol}, {"qr", l_qr}, {NULL, NULL}};
    luaL_setfuncs(L, own, 0);
}

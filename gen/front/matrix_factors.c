/* The Lua functions power, chol, qr, eigh, solve and sort. Each is a call (CALL in ops.def): its
 * operands and result are arrays in memory. Of a symmetric matrix only the lower triangle is
 * read. */
#include "gen/front/matrix_values.h"

#include <math.h>
#include <string.h>

static const Node *node_at(lua_State *L, Ref r) { return &trace_of(L)->rule->g.n[r]; }

Ref matrix_call(lua_State *L, Factor f)
{
    Trace *t = trace_of(L);
    f.flags |= t->rule->block > 0 ? BLOCKED : 0;
    f.imm = callee_facts[f.op - OP_MM].traits & EXPONENT ? f.imm : 1;
    return node_factor(trace_here(t), f);
}

/* The first argument: a square matrix other than the elements, or (square false) one with a rank
 * axis across. */
static Ref factor_arg(lua_State *L, const char *what, bool square)
{
    Trace *t = trace_of(L);
    inside_entry(L, what);
    Ref r = lang_num(L, 1, what, 1);
    Dom d = (Dom)node_at(L, r)->dom;
    const Axis *axis = dom_info[d].axis;
    bool right = dom_square(d) && (axis[0] == axis[1] || (!square && axis[1] == AXIS_RANK));
    if (!right)
        spec_error(L,
                   "%s takes a square value, one over rows and rows, cols and cols or rank and "
                   "rank%s; it got %s",
                   what,
                   square ? ""
                          : ", or one over rows and rank or cols and rank, which has no more "
                            "columns than rows",
                   describe(t, r));
    t->spec[t->at].uses_view = true;
    return r;
}

/* a + x I */
static Ref lifted(lua_State *L, Ref a, Ref x)
{
    return trace_op(L, OP_ADD, a, matrix_eye(L, x, (Dom)node_at(L, a)->dom));
}

/* The largest row sum of magnitudes: an upper bound of the eigenvalues. */
static Ref row_bound(lua_State *L, Ref a)
{
    Dom d = (Dom)node_at(L, a)->dom, row = dom_product(dom_info[d].axis[0], AXIS_ONE);
    Ref none = NONE, sums = trace_fold(L, OP_SUM, trace_op(L, OP_ABS, a, none), row);
    return trace_fold(L, OP_RMAX, sums, SLICE);
}

/* ---- options ---- */
typedef struct Options { Ref ridge, relative, floor, last; bool right, spd; } Options;

/* The value of a key of the table at index i; NONE: it is absent. */
static Ref option(lua_State *L, int i, const char *what, const char *key)
{
    Ref r = NONE;
    int type = lua_getfield(L, i, key), at = lua_gettop(L);
    if (type != LUA_TNIL && type != LUA_TNUMBER && !is_value(L, at))
        spec_error(L, "%s: %s is a value or a number, not a %s", what, key, lua_typename(L, type));
    if (type != LUA_TNIL)
        r = lang_num(L, at, key, 1);
    lua_pop(L, 1);
    return r;
}

/* An option with at most one number per matrix. It may be a hyperparameter, which is read when the
 * rule runs. */
static Ref one_number(lua_State *L, int i, const char *what, const char *key)
{
    Ref r = option(L, i, what, key);
    if (r != NONE && !dom_wide((Dom)node_at(L, r)->dom))
        spec_error(L, "%s: %s is one number, not %s", what, key, describe(trace_of(L), r));
    return r;
}

static bool choice(lua_State *L, int i, const char *what, const char *key)
{
    int type = lua_getfield(L, i, key);
    bool yes = lua_toboolean(L, -1);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        spec_error(L, "%s: %s is true or false, known when the rule is compiled", what, key);
    lua_pop(L, 1);
    return yes;
}

/* Reads the options table at index i. known: the keys of this factor; says: an example for
 * messages. */
static Options options(lua_State *L, int i, const char *what, const char *const *known,
                       const char *says)
{
    Options o = {.ridge = NONE, .relative = NONE, .floor = NONE, .last = NONE};
    if (lua_isnoneornil(L, i))
        return o;
    if (lua_type(L, i) != LUA_TTABLE)
        spec_error(L, "%s's options are a table: %s", what, says);
    Buf keys = {.arena = trace_of(L)->arena};
    for (int k = 0; known[k]; k++)
        buf_printf(&keys, "%s%s", !k ? "" : known[k + 1] ? ", " : " and ", known[k]);
    matrix_keys(L, i, arena_printf(trace_of(L)->arena, "%s knows %s", what, buf_text(&keys)),
                known);
    o.ridge = one_number(L, i, what, "ridge");
    o.relative = one_number(L, i, what, "relative");
    if (o.relative != NONE && node_at(L, o.relative)->op == OP_CONST &&
        !(node_at(L, o.relative)->imm >= 0))
        spec_error(L, "%s: relative is a share of the largest row sum, from 0, not %g", what,
                   node_at(L, o.relative)->imm);
    o.floor = one_number(L, i, what, "floor");
    o.last = option(L, i, what, "last");
    o.right = choice(L, i, what, "right");
    o.spd = choice(L, i, what, "spd");
    return o;
}

/* The fallback value `last` of a factor, broadcast to the factor's domain. */
static Ref last_value(lua_State *L, const char *what, Ref last, Dom d)
{
    if (last == NONE || (Dom)node_at(L, last)->dom == d)
        return last;
    if (!dom_spreads((Dom)node_at(L, last)->dom, d))
        spec_error(L, "%s: last is the result if the factor fails, one value per %s: %s is not",
                   what, dom_info[d].per, describe(trace_of(L), last));
    return trace_copy(trace_of(L), last, d);
}

/* ---- power ---- */
/* Adds to every eigenvalue: ridge, and relative times the largest row sum. */
static Ref with_ridge(lua_State *L, Ref a, const Options *o)
{
    Ref out = a;
    if (o->relative != NONE)
        out = lifted(L, out, trace_op(L, OP_MUL, o->relative, row_bound(L, a)));
    return o->ridge != NONE ? lifted(L, out, o->ridge) : out;
}

/* A lower bound of eigenvalue / norm (call_low). With relative = x every eigenvalue is between x
 * and 1 + x times the row bound. A hyperparameter x may change later: the bound holds down to a
 * sixteenth of its default. */
static double share(lua_State *L, Ref relative)
{
    const Node *n = relative == NONE ? NULL : node_at(L, relative);
    double x = n && n->op == OP_CONST   ? n->imm
               : n && n->op == OP_HYPER ? trace_of(L)->rule->hyper[n->sym].def / 16
                                        : 0;
    return x > 0 && x < 1e300 ? x / (1 + x) : USUAL_LOW;
}

/* The floor of eigenvalues as one value per matrix or block, which the callee reads from memory. */
static Ref floor_of(lua_State *L, Ref x)
{
    Trace *t = trace_of(L);
    Dom d = t->rule->block ? BLOCK : SLICE;
    Ref sizes = x != NONE && t->rule->block ? trace_sizes(t, x) : NONE;
    x = sizes != NONE ? sizes : x;
    if (x == NONE || (Dom)node_at(L, x)->dom == d)
        return x;
    if (!dom_spreads((Dom)node_at(L, x)->dom, d))
        spec_error(L, "power: floor must be one number per block, not %s", describe(t, x));
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
        return spec_error(
            L,
            "power(A, r): r is a number other than 0 that is known when the rule is compiled; of "
            "elements it is x ^ r");
    Options o = options(L, 3, "power", known, "power(A, -1/4, { ridge = 1e-6 })");
    push_value(L, matrix_call(L, (Factor){.op = OP_POWER,
                                          .a = with_ridge(L, a, &o),
                                          .b = floor_of(L, o.floor),
                                          .c = last_value(L, "power", o.last, d),
                                          .imm = r,
                                          .low = share(L, o.relative),
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
    if (dom_info[d].axis[1] == AXIS_RANK)
        matrix_rank_within(L, what, dom_info[d].axis[0]);
    Options o = options(L, 2, what, known, says);
    push_value(
        L, matrix_call(
               L, (Factor){
                      .op = op, .a = a, .b = NONE, .c = last_value(L, what, o.last, d), .dom = d}));
    return 1;
}

static int l_chol(lua_State *L) { return one_factor(L, OP_CHOL, true, "chol(A, { last = C })"); }
static int l_qr(lua_State *L) { return one_factor(L, OP_QR, false, "qr(X, { last = Q })"); }

/* ---- eigh ---- */
/* The domain of the eigenvectors: A's, or with a rank axis across for the first `rank` of them. */
static Dom vectors_over(lua_State *L, Ref a, bool first)
{
    Dom d = (Dom)node_at(L, a)->dom;
    Dom some = first ? dom_scoped(dom_info[d].scope, dom_info[d].axis[0], AXIS_RANK) : d;
    if (first) {
        matrix_rank(L, RANK2);
        matrix_rank_within(L, "eigh", dom_info[d].axis[0]);
    }
    return some;
}

/* The eigenvalues w cost a product and a sum if they are used, and nothing otherwise (dead code).
 * The product is in f64 if A is one in f64. */
MatrixEigen matrix_eigh(lua_State *L, Ref a, bool first, Ref last)
{
    Dom d = vectors_over(L, a, first);
    last = last_value(L, "eigh", last, d);
    Ref v = matrix_call(L, (Factor){.op = OP_EIGH, .a = a, .b = NONE, .c = last, .dom = d});
    Dom across = dom_scoped(dom_info[d].scope, AXIS_ONE, dom_info[d].axis[1]);
    unsigned precision = node_at(L, a)->op == OP_MM ? (unsigned)node_at(L, a)->sym & IN_F64 : 0;
    Ref w = trace_fold(L, OP_SUM,
                       trace_op(L, OP_MUL, v, matrix_product(L, "eigh", a, v, precision)), across);
    return (MatrixEigen){w, v};
}

/* Returns w, V. */
int l_eigh(lua_State *L)
{
    static const char *const known[] = {"last", NULL};
    bool first = lua_type(L, 2) == LUA_TSTRING && !strcmp(lua_tostring(L, 2), "rank");
    lang_count(L, "eigh", 1, 3);
    if (!lua_isnoneornil(L, 2) && !first && (lua_type(L, 2) != LUA_TTABLE || lua_gettop(L) > 2))
        return spec_error(L, "eigh(A) gives values and vectors, and eigh(A, \"rank\") the first "
                             "`rank` of them: local "
                             "w, V = eigh(A)");
    Ref a = factor_arg(L, "eigh", true);
    Options o = options(L, first ? 3 : 2, "eigh", known, "eigh(A, { last = V })");
    MatrixEigen e = matrix_eigh(L, a, first, o.last);
    push_value(L, dom_info[node_at(L, e.v)->dom].axis[1] == AXIS_COLS ? e.w
                                                                      : matrix_transpose(L, e.w));
    push_value(L, e.v);
    return 2;
}

/* ---- solve ---- */
MatrixPlain matrix_plain(lua_State *L, Ref r)
{
    const Node *n = node_at(L, r);
    MatrixPlain p = {n->op == OP_TRANSPOSE ? n->arg[0] : r, n->op == OP_TRANSPOSE};
    Dom d = (Dom)n->dom,
        upright = dom_square(d) ? d : dom_product(dom_info[d].axis[0], dom_info[d].axis[1]);
    if (!dom_square(d))
        p.transposed = d != (dom_of_block(d) ? dom_blocked(upright) : upright);
    return p;
}

Ref matrix_operand(lua_State *L, int i, const char *what, int n)
{
    Trace *t = trace_of(L);
    inside_entry(L, what);
    Ref r = lang_num(L, i, what, n);
    Dom d = (Dom)node_at(L, r)->dom;
    if (dom_wide(d))
        spec_error(L, "%s: argument %d is %s: it takes matrices, and values by row or column", what,
                   i, describe(t, r));
    if (t->rule->block && !dom_of_block(d) && d != ELEM && d != ELEM_T)
        spec_error(
            L, "%s: %s belongs to the whole matrix, but the rule works block by block (block = %d)",
            what, describe(t, r), t->rule->block);
    t->spec[t->at].uses_view = true;
    return r;
}

/* Solves with one triangle: T X = B, or X T = B (right). A transposed B is solved from the other
 * side. */
static Ref solved(lua_State *L, MatrixPlain t, Ref b, bool right, Ref last)
{
    MatrixPlain x = matrix_plain(L, b);
    Dom d = (Dom)node_at(L, x.x)->dom;
    bool other = right != x.transposed;
    Axis side = dom_info[node_at(L, t.x)->dom].axis[0];
    MatrixAxes m = dom_matrix(d, other);
    if (m.down != side || (other && !dom_square(d)))
        spec_error(L, "solve: %s x %s and %s do not fit%s", axis_name(side), axis_name(side),
                   describe(trace_of(L), b),
                   right ? ": in X T = B it is B's columns that count"
                         : ": in T X = B it is B's rows that count; a.T is the transpose");
    last = last_value(L, "solve", last, (Dom)node_at(L, b)->dom);
    if (last != NONE && x.transposed && dom_square(d))
        last = matrix_transpose(L, last);
    unsigned flags = (t.transposed != x.transposed ? TRANS_A : 0) | (other ? FROM_RIGHT : 0);
    Ref r = matrix_call(
        L, (Factor){.op = OP_SOLVE, .a = t.x, .b = x.x, .c = last, .flags = flags, .dom = d});
    return node_at(L, b)->op == OP_TRANSPOSE ? matrix_transpose(L, r) : r;
}

static int l_solve(lua_State *L)
{
    static const char *const known[] = {"right", "spd", "last", NULL};
    lang_count(L, "solve", 2, 3);
    Ref a = factor_arg(L, "solve", true), b = matrix_operand(L, 2, "solve", 2);
    Options o = options(L, 3, "solve", known, "solve(T, B, { right = true })");
    MatrixPlain t = matrix_plain(L, a);
    if (!o.spd) {
        push_value(L, solved(L, t, b, o.right, o.last));
        return 1;
    }
    /* A = C C.T: two triangular solves */
    Dom d = (Dom)node_at(L, t.x)->dom;
    Ref c = matrix_call(L, (Factor){.op = OP_CHOL, .a = t.x, .b = NONE, .c = NONE, .dom = d});
    MatrixPlain first = {c, o.right}, second = {c, !o.right};
    push_value(L, solved(L, second, solved(L, first, b, o.right, NONE), o.right, o.last));
    return 1;
}

/* ---- sort ---- */
static bool along_one(Dom d) { return !dom_wide(d) && !dom_square(d); }

static int l_sort(lua_State *L)
{
    lang_count(L, "sort", 1, 1);
    Ref v = matrix_operand(L, 1, "sort", 1);
    MatrixPlain x = matrix_plain(L, v);
    Dom d = (Dom)node_at(L, x.x)->dom;
    if (!along_one(d))
        return spec_error(
            L, "sort takes values along one axis, by row, column or direction; it got %s",
            describe(trace_of(L), v));
    Ref r = matrix_call(L, (Factor){.op = OP_SORT, .a = x.x, .b = NONE, .c = NONE, .dom = d});
    push_value(L, node_at(L, v)->op == OP_TRANSPOSE ? matrix_transpose(L, r) : r);
    return 1;
}

void factors_open(lua_State *L)
{
    static const luaL_Reg own[] = {{"power", l_power}, {"chol", l_chol},   {"qr", l_qr},
                                   {"eigh", l_eigh},   {"solve", l_solve}, {"sort", l_sort},
                                   {NULL, NULL}};
    luaL_setfuncs(L, own, 0);
    select_open(L);
    singular_open(L);
}

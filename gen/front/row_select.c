/* Selecting rows or columns: take(X, i), topk(v) and put(X, i, V). All are sort and take
 * (matrix_factors.c) and elementwise work:
 *
 *   topk(v)       the first `rank` indices of sort(v)
 *   put(X, i, V)  where(place < rank, take(V, place), X); place: the position of each row in the
 *                 order, sort(-sort(v)). If V is elementwise work on take(X, i), the same work on X
 *                 takes the place of take(V, place) */
#include "gen/front/matrix_values.h"

#include <string.h>

static const Node *node_at(lua_State *L, Ref r) { return &trace_of(L)->rule->g.n[r]; }
static Dom dom_at(lua_State *L, Ref r) { return (Dom)node_at(L, r)->dom; }
static bool along_one(Dom d) { return !dom_wide(d) && !dom_square(d); }
static Axis line_axis(Dom d) { return dom_matrix(d, false).down; }

/* The third (fourth) argument: "rows", "cols" or nothing. */
static bool of_columns(lua_State *L, const char *what, int i)
{
    const char *word = lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i) : NULL;
    bool cols = word && !strcmp(word, "cols");
    if (lua_gettop(L) >= i && !cols && !(word && !strcmp(word, "rows")))
        spec_error(L, strcmp(what, "put")
                          ? "take(X, order) takes rows of X, and take(X, order, \"cols\") columns"
                          : "put(X, i, V) replaces rows of X, and put(X, i, V, \"cols\") columns");
    return cols;
}

/* The domain of rows (across: columns) of X at indices along this axis; NDOM: there is none. */
static Dom taken_dom(Dom x, Axis index, bool across)
{
    const DomInfo *d = &dom_info[x];
    if (along_one(x) && index != line_axis(x)) {
        Dom line = dom_product(index, AXIS_ONE);
        return x == dom_product(d->axis[0], d->axis[1]) ? line : dom_transposed(line);
    }
    if (along_one(x) || index == d->axis[across])
        return x;
    return across ? dom_of_axes(d->axis[0], index) : dom_of_axes(index, d->axis[1]);
}

/* Rows of x (across: columns) at the indices `by`. x and by are not transposed. */
static Ref take_rows(lua_State *L, Ref x, Ref by, bool across)
{
    Factor f = {.op = OP_TAKE, .a = x, .b = by, .c = NONE, .flags = across ? OF_COLS : 0};
    f.dom = taken_dom(dom_at(L, x), line_axis(dom_at(L, by)), across);
    return matrix_call(L, f);
}

/* The indices of v by value, in domain d: all of them, or as many as the axis rank has. */
static Ref sorted(lua_State *L, Ref v, Dom d)
{
    return matrix_call(L, (Factor){.op = OP_SORT, .a = v, .b = NONE, .c = NONE, .dom = d});
}

static void refuse_blocks(lua_State *L, const char *what)
{
    if (trace_of(L)->rule->block)
        spec_error(L, "%s is not available in a rule that works block by block (block = %d)", what,
                   trace_of(L)->rule->block);
}

/* Takes rows of X, or columns; of a transposed X the other ones. */
static int l_take(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "take", 2, 3);
    Ref v = matrix_operand(L, 1, "take", 2), by = matrix_operand(L, 2, "take", 2);
    bool cols = of_columns(L, "take", 3);
    MatrixPlain x = matrix_plain(L, v), order = matrix_plain(L, by);
    Dom d = dom_at(L, x.x), o = dom_at(L, order.x);
    bool one = along_one(d), across = !one && cols != x.transposed;
    Axis own = dom_matrix(d, across).down;
    bool fits = along_one(o) && !(one && cols), same = fits && line_axis(o) == own;
    /* a selection along the axis rank, or back from it */
    fits = fits && (same || line_axis(o) == AXIS_RANK || own == AXIS_RANK);
    if (!fits || taken_dom(d, line_axis(o), across) == NDOM)
        return spec_error(L, "take: %s is not one index for each of the %s of %s", describe(t, by),
                          cols ? "columns" : "rows", describe(t, v));
    if (!same)
        refuse_blocks(L, "take of another number of rows");
    Ref r = take_rows(L, x.x, order.x, across);
    push_value(L, node_at(L, v)->op == OP_TRANSPOSE ? matrix_transpose(L, r) : r);
    return 1;
}

/* ---- topk, put ---- */
static int l_topk(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "topk", 1, 1);
    Ref v = matrix_operand(L, 1, "topk", 1);
    refuse_blocks(L, "topk");
    MatrixPlain x = matrix_plain(L, v);
    Dom d = dom_at(L, x.x);
    if (!along_one(d))
        return spec_error(L, "topk takes values along one axis, by row or column; it got %s",
                          describe(t, v));
    matrix_rank(L, RANK);
    matrix_rank_within(L, "topk", line_axis(d));
    push_value(L, sorted(L, x.x, RANK));
    return 1;
}

/* The values that topk sorted; NONE: i is not from topk. */
static Ref sorted_by(lua_State *L, Ref i)
{
    const Node *n = node_at(L, i);
    return n->op == OP_SORT && n->dom == RANK ? n->arg[0] : NONE;
}

enum { MOST_DEEP = 200 };

/* v as work on all rows, if it is elementwise work on take(X, i) and on values that do not vary
 * along rank; NONE: it is not. Elementwise work on taken rows equals the taken rows of that work,
 * bit by bit. */
static Ref untaken(lua_State *L, Ref v, Ref i, bool across, int depth)
{
    Node n = *node_at(L, v);
    OpKind k = op_info[n.op].kind;
    if (n.op == OP_TAKE && n.arg[1] == i &&
        (along_one((Dom)n.dom) || ((n.sym & OF_COLS) != 0) == across))
        return n.arg[0];
    if (dom_info[n.dom].axis[0] != AXIS_RANK && dom_info[n.dom].axis[1] != AXIS_RANK)
        return v;
    if ((k != K_NUM && k != K_CMP && k != K_LOGIC && k != K_SEL) || n.op == OP_STORED ||
        depth == MOST_DEEP)
        return NONE;
    Ref arg[3] = {NONE, NONE, NONE};
    for (int a = 0; a < n.nargs; a++)
        if ((arg[a] = untaken(L, n.arg[a], i, across, depth + 1)) == NONE)
            return NONE;
    return n.op == OP_COPY ? NONE : trace_op3(L, (Op)n.op, arg[0], arg[1], arg[2]);
}

/* put(X, i, V): X with the rows i (columns: "cols") replaced by V */
static int l_put(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "put", 3, 4);
    inside_entry(L, "put");
    refuse_blocks(L, "put");
    Ref x = lang_num(L, 1, "put", 3), i = lang_num(L, 2, "put", 3), v = lang_num(L, 3, "put", 3);
    bool cols = of_columns(L, "put", 4);
    Ref by = sorted_by(L, i);
    if (by == NONE)
        return spec_error(
            L, "put(X, i, V): the indices i come from topk: local i = topk(rowsum(abs(m))), not %s",
            describe(t, i));
    Dom whole = dom_at(L, by);
    Axis own = line_axis(whole), not_own = own == AXIS_ROWS ? AXIS_COLS : AXIS_ROWS;
    Ref place = sorted(L, trace_op(L, OP_NEG, sorted(L, by, whole), NONE), whole);
    Ref chosen = trace_op(L, OP_LT, place, node_count(trace_here(t), RANK, SLICE));
    Dom d = dom_at(L, v),
        want = cols ? dom_of_axes(not_own, AXIS_RANK) : dom_of_axes(AXIS_RANK, not_own);
    bool line = d == RANK || d == RANK_T, varies = line || d == want;
    if (cols == (own == AXIS_ROWS) && dom_square(d))
        return spec_error(L, "put: the indices are of %s: %s",
                          own == AXIS_ROWS ? "rows" : "columns",
                          own == AXIS_ROWS ? "leave out \"cols\"" : "put(X, i, V, \"cols\")");
    if (!varies && !dom_spreads(d, dom_at(L, x)) && !dom_wide(d))
        return spec_error(
            L,
            "put(X, i, V): V has one value for each of the rows or columns that topk chose, not %s",
            describe(t, v));
    Ref all = varies ? untaken(L, v, i, cols, 0) : v;
    if (all == NONE)
        all = take_rows(L, line ? matrix_plain(L, v).x : v, place, cols && !line);
    push_value(L, trace_op3(L, OP_WHERE, chosen, all, x));
    return 1;
}

void select_open(lua_State *L)
{
    static const luaL_Reg own[] = {
        {"take", l_take}, {"topk", l_topk}, {"put", l_put}, {NULL, NULL}};
    luaL_setfuncs(L, own, 0);
}

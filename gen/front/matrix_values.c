/* Products, transposes and functions built from them: mm, a.T, gram, outer, diag, trace, eye, triu,
 * tril.
 *
 * In a product, values along one axis are a matrix of one column, transposed one row. Only mm makes
 * calls: the other functions are elementwise operations and reductions that use DOWN and ACROSS, a
 * value's indices in its matrix. */
#include "gen/front/matrix_values.h"

#include <string.h>

static const Node *node_at(lua_State *L, Ref r) { return &trace_of(L)->rule->g.n[r]; }
static Ref konst(lua_State *L, double x) { return node_const(&trace_of(L)->rule->g, x); }
static bool narrow(const Node *n) { return !dom_wide((Dom)n->dom); }
static bool is_vector(Dom d) { return !dom_wide(d) && !dom_square(d); }
static bool equal_axes(Dom d)
{
    return dom_square(d) && dom_info[d].axis[0] == dom_info[d].axis[1];
}
/* The domain of transposed values along one axis (row_t, col_t …). */
static bool is_transposed(Dom d)
{
    Dom upright = is_vector(d) ? dom_product(dom_info[d].axis[0], dom_info[d].axis[1]) : d;
    return (dom_of_block(d) ? dom_blocked(upright) : upright) != d;
}

static bool is_symmetric(Trace *t, Ref r)
{
    const Graph *g = &t->rule->g;
    for (int i = t->nsymmetric; i <= r; i++) {
        bool yes = graph_symmetric(g, t->symmetric, i);
        PUSH(t->arena, t->symmetric, t->nsymmetric, t->symmetric_cap) = yes;
    }
    return t->symmetric[r];
}

/* Truth values are never stored, so they cannot be loaded transposed: transposes their operands
 * instead. */
static Ref transpose_truth(lua_State *L, Ref r)
{
    const Node *n = node_at(L, r);
    Ref arg[3] = {NONE, NONE, NONE};
    for (int i = 0; i < n->nargs && i < 3; i++)
        arg[i] = matrix_transpose(L, n->arg[i]);
    return node_op(trace_here(trace_of(L)), (Op)node_at(L, r)->op, arg[0], arg[1], arg[2]);
}

Ref matrix_transpose(lua_State *L, Ref r)
{
    Trace *t = trace_of(L);
    const Node *n = node_at(L, r);
    if (!narrow(n) || is_symmetric(t, r))
        return r;
    if (n->op == OP_TRANSPOSE)
        return n->arg[0];
    if (n->op == OP_DOWN || n->op == OP_ACROSS)
        return node_leaf(trace_here(t), n->op == OP_DOWN ? OP_ACROSS : OP_DOWN,
                         dom_transposed((Dom)n->dom), 0, 0);
    if (n->ty == BOOL && n->dom != ELEM && n->dom != ELEM_T && !is_leaf(n))
        return transpose_truth(L, r);
    return node_transpose(trace_here(t), r);
}

Ref matrix_lift(lua_State *L, Op op, const Ref *arg, Dom d)
{
    bool all = true, any = false;
    OpKind kind = op_info[op].kind;
    for (int i = 0; i < op_info[op].arity; i++) {
        const Node *n = node_at(L, arg[i]);
        all = all && (!narrow(n) || n->op == OP_TRANSPOSE);
        any = any || n->op == OP_TRANSPOSE;
    }
    if (d != ELEM_T && (d == ELEM || !all || !any || kind == K_CMP || kind == K_LOGIC))
        /* only products take transposed elements */
        return NONE;
    Ref to[3] = {NONE, NONE, NONE};
    for (int i = 0; i < op_info[op].arity; i++)
        to[i] = matrix_transpose(L, arg[i]);
    return matrix_transpose(L, trace_op3(L, op, to[0], to[1], to[2]));
}

/* ---- products ---- */
/* x: not transposed; the flag says whether the operand is */
typedef struct { Ref x; bool transposed; MatrixAxes axes; } Operand;

static Operand operand(lua_State *L, Ref r)
{
    const Node *n = node_at(L, r);
    Operand o = {.x = n->op == OP_TRANSPOSE ? n->arg[0] : r};
    o.transposed = is_vector((Dom)n->dom) ? is_transposed((Dom)n->dom) : n->op == OP_TRANSPOSE;
    o.axes = dom_matrix((Dom)node_at(L, o.x)->dom, o.transposed);
    return o;
}

static const char *axis_words(Trace *t, MatrixAxes m)
{
    return arena_printf(t->arena, "%s x %s", axis_name(m.down), axis_name(m.across));
}

static Ref matrix_arg(lua_State *L, int i, const char *what, int n)
{
    Trace *t = trace_of(L);
    inside_entry(L, what);
    Ref r = lang_num(L, i, what, n);
    if (!narrow(node_at(L, r)))
        spec_error(L, "%s: argument %d is %s: it takes matrices, and values by row or column", what,
                   i, describe(t, r));
    t->spec[t->at].uses_view = true;
    return r;
}

/* An outer product is a broadcast multiplication and needs no call: a varies down, b across. */
static Ref outer(lua_State *L, Ref a, Ref b)
{
    Dom da = (Dom)node_at(L, a)->dom, db = (Dom)node_at(L, b)->dom;
    return trace_op(L, OP_MUL, dom_info[da].axis[0] == AXIS_ONE ? matrix_transpose(L, a) : a,
                    dom_info[db].axis[1] == AXIS_ONE ? matrix_transpose(L, b) : b);
}

/* The inner product of two vectors: a sum, one value per matrix. */
static Ref inner(lua_State *L, Ref a, Ref b)
{
    if (node_at(L, a)->dom != node_at(L, b)->dom)
        b = matrix_transpose(L, b);
    return trace_fold(L, OP_SUM, trace_op(L, OP_MUL, a, b), SLICE);
}

/* In a rule with blocks, products take block values and elements only: for elements the position
 * determines the block, for other values of the whole matrix nothing does. */
static void check_blocks(lua_State *L, const char *what, Ref r)
{
    Trace *t = trace_of(L);
    Dom d = (Dom)node_at(L, r)->dom;
    if (!dom_of_block(d) && !dom_square(d))
        spec_error(L,
                   "%s: %s belongs to the whole matrix, but products work block by block (block = "
                   "%d): they take "
                   "elements and values of blocks",
                   what, describe(t, r), t->rule->block);
}

Ref matrix_product(lua_State *L, const char *what, Ref a, Ref b, unsigned with)
{
    Trace *t = trace_of(L);
    Operand x = operand(L, a), y = operand(L, b);
    if (x.axes.across != y.axes.down)
        spec_error(L, "%s: %s times %s does not fit: %s and %s%s", what, axis_words(t, x.axes),
                   axis_words(t, y.axes), describe(t, a), describe(t, b),
                   is_vector((Dom)node_at(L, a)->dom) || is_vector((Dom)node_at(L, b)->dom)
                       ? "; values by row or column are one column, and one row with .T"
                       : "; a.T is the transpose");
    if (x.axes.across == AXIS_ONE)
        return outer(L, a, b);
    if (x.axes.down == AXIS_ONE && y.axes.across == AXIS_ONE)
        return inner(L, x.x, y.x);
    bool square = x.axes.down == y.axes.across, same = x.x == y.x &&
        (x.transposed != y.transposed || is_symmetric(t, x.x));
    unsigned blocked = t->rule->block ? BLOCKED : 0, precision = with & OWN_PRECISION;
    unsigned flags = (x.transposed ? TRANS_A : 0) | (y.transposed ? TRANS_B : 0) |
                     (square && (with & SYMMETRIC || same) ? SYMMETRIC : 0) | blocked | precision;
    if (blocked)
        check_blocks(L, what, a), check_blocks(L, what, b);
    if (dom_product(x.axes.down, y.axes.across) != ELEM_T)
        return node_mm(trace_here(t), x.x, y.x, flags);
    /* (a b).T = b.T a.T */
    flags = (y.transposed ? 0 : TRANS_A) | (x.transposed ? 0 : TRANS_B) | blocked | precision;
    return matrix_transpose(L, node_mm(trace_here(t), y.x, x.x, flags));
}

void matrix_keys(lua_State *L, int table, const char *says, const char *const *known)
{
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        Near near = {.want = key};
        if (!key)
            spec_error(L, "%s, but an option has no name; write NAME = VALUE", says);
        bool found = false;
        for (int i = 0; known[i]; i++) {
            near_try(&near, known[i]);
            found = found || !strcmp(known[i], key);
        }
        if (!found)
            spec_error(L, "%s, not '%.40s'%s", says, key, near_text(&near, trace_of(L)->arena));
    }
}

static unsigned precision_flag(const char *word)
{
    static const struct { const char *name; unsigned flag; } own[] = {
        {"f32", IN_F32}, {"tf32", IN_TF32}, {"f64", IN_F64}};
    for (int i = 0; word && i < 3; i++)
        if (!strcmp(word, own[i].name))
            return own[i].flag;
    return 0;
}

/* The precision that argument i, { products = "tf32" }, names, as a flag; 0: that of the rule.
 * 16-bit types are not
 * possible: what else uses the operands would read rounded values. */
static unsigned own_precision(lua_State *L, int i, const char *what, const char *example)
{
    static const char *const known[] = {"products", NULL};
    Trace *t = trace_of(L);
    if (lua_isnoneornil(L, i))
        return 0;
    if (lua_type(L, i) != LUA_TTABLE)
        spec_error(L, "%s's options are a table: %s", what, example);
    matrix_keys(L, i, arena_printf(t->arena, "%s knows products", what), known);
    int type = lua_getfield(L, i, "products");
    /* the error of its option was reported */
    if (is_value(L, -1) && *value_at(L, -1) == UNKNOWN)
        return lua_pop(L, 1), 0;
    const char *word = type == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
    unsigned flag = precision_flag(word);
    int head = t->spec[t->at].product, of_rule = t->rule->product;
    const char *hint =
        word && product_by_name(word) >= 0
            ? "; only a whole rule can have that precision, by the field products at its head"
        : is_value(L, -1) ? "; an option may choose it"
                          : "";
    if (type != LUA_TNIL && !flag)
        spec_error(L, "%s: products is \"f32\", \"tf32\" or \"f64\", not %s%.40s%s%s", what,
                   word ? "\"" : "a ",
                   word              ? word
                   : is_value(L, -1) ? "value that varies"
                                     : luaL_typename(L, -1),
                   word ? "\"" : "", hint);
    if (flag & (IN_F32 | IN_TF32) && head >= 0 && !product_mixes((Product)head))
        spec_error(L,
                   "%s: products = \"%s\" is not possible in a rule whose products are \"%s\": it "
                   "stores their "
                   "operands in another type than f32",
                   what, word, product_info[head].name);
    lua_pop(L, 1);
    /* a fallback rule in such a rule */
    bool ignored = flag != IN_F64 && of_rule >= 0 && !product_mixes((Product)of_rule);
    return ignored || product_precision(PRODUCT_F32, flag) ==
                          (of_rule < 0 ? PRODUCT_F32 : (Product)of_rule)
               ? 0
               : flag;
}

static int l_mm(lua_State *L)
{
    lang_count(L, "mm", 2, 3);
    Ref a = matrix_arg(L, 1, "mm", 2), b = matrix_arg(L, 2, "mm", 2);
    push_value(L, matrix_product(L, "mm", a, b,
                                 own_precision(L, 3, "mm", "mm(a, b, { products = \"tf32\" })")));
    return 1;
}

static int l_gram(lua_State *L)
{
    lang_count(L, "gram", 1, 2);
    Ref x = matrix_arg(L, 1, "gram", 1);
    unsigned precision = own_precision(L, 2, "gram", "gram(x, { products = \"tf32\" })");
    push_value(L, matrix_product(L, "gram", x, matrix_transpose(L, x), SYMMETRIC | precision));
    return 1;
}

int matrix_field(lua_State *L)
{
    const Ref *r = value_at(L, 1);
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    const char *hint = hint_field(trace_of(L), key);
    if (!r || strcmp(key, "T"))
        return spec_error(
            L, "a symbolic value has no fields but T, which is its transpose%s%s",
            *hint ? ": " : "",
            *hint || *key ? hint
                          : ": single elements cannot be read; where(c, a, b) chooses among them");
    inside_entry(L, ".T");
    if (!narrow(node_at(L, *r)))
        return spec_error(L, ".T: %s is one number: it has no transpose",
                          describe(trace_of(L), *r));
    push_value(L, matrix_transpose(L, *r));
    return 1;
}

/* ---- values by their position in a matrix ---- */
static Ref place(lua_State *L, Op op, Dom d)
{
    return node_leaf(trace_here(trace_of(L)), op, d, 0, 0);
}

/* x where the comparison `op` of the two indices holds, 0 elsewhere */
static Ref where_places(lua_State *L, Op op, Op first, Op second, Ref x, Dom d)
{
    Ref holds = trace_op(L, op, place(L, first, d), place(L, second, d));
    return trace_op3(L, OP_WHERE, holds, x, konst(L, 0));
}

Ref matrix_eye(lua_State *L, Ref x, Dom d)
{
    return where_places(L, OP_EQ, OP_DOWN, OP_ACROSS, x, d);
}

void matrix_rank(lua_State *L, Dom d)
{
    if ((dom_info[d].axis[0] == AXIS_RANK || dom_info[d].axis[1] == AXIS_RANK) &&
        !trace_of(L)->rule->rank)
        spec_error(L, "the axis 'rank' has no length: say rank = 8, or rank = the name of an "
                      "option, at the head of the spec");
}

void matrix_rank_within(lua_State *L, const char *what, Axis axis)
{
    RankShare r = trace_of(L)->rule->share;
    if (r.share > 0 && r.of != AXIS_ONE && r.of != axis && axis != AXIS_RANK)
        spec_error(L,
                   "%s: rank is a share of the %s and may be more than there are %s: say of = "
                   "\"%s\" or \"side\"",
                   what, axis_name(r.of), axis_name(axis), axis_name(axis));
}

/* The domain with two equal axes that argument i of eye() names. */
static Dom square_named(lua_State *L, int i)
{
    Trace *t = trace_of(L);
    const char *word = lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i) : NULL;
    int d = word ? dom_by_words(word) : -1;
    if (d < 0 || !equal_axes((Dom)d))
        spec_error(L,
                   "eye \"rows\" is the unit matrix of rows x rows, and eye(x, \"rows\") has x on "
                   "its diagonal; the other "
                   "axes are \"cols\" and \"rank\", not %s",
                   word             ? word
                   : is_value(L, i) ? "a value"
                                    : luaL_typename(L, i));
    if (t->elem != ELEM)
        spec_error(L, "eye: not available in a rule that steps a projection: its values have no "
                      "rows and columns");
    matrix_rank(L, (Dom)d);
    t->spec[t->at].uses_view = true;
    return trace_dom(t, (Dom)d);
}

int l_eye(lua_State *L)
{
    int n = lua_gettop(L);
    lang_count(L, "eye", 1, 2);
    Ref x = n == 1 ? konst(L, 1) : lang_num(L, 1, "eye", 2);
    Dom d = square_named(L, n);
    if (dom_of_block(d) && trace_sizes(trace_of(L), x) != NONE)
        x = trace_sizes(trace_of(L), x);
    if (!dom_spreads((Dom)node_at(L, x)->dom, d))
        return spec_error(L, "eye: %s does not vary along %s x %s", describe(trace_of(L), x),
                          lua_tostring(L, n), lua_tostring(L, n));
    push_value(L, matrix_eye(L, x, d));
    return 1;
}

static Ref square_arg(lua_State *L, const char *what)
{
    lang_count(L, what, 1, 1);
    Ref x = matrix_arg(L, 1, what, 1);
    if (!equal_axes((Dom)node_at(L, x)->dom))
        spec_error(L,
                   "%s takes a square value, one over rows and rows, cols and cols or rank and "
                   "rank; it got %s",
                   what, describe(trace_of(L), x));
    return x;
}

static Ref diagonal_only(lua_State *L, Ref x) { return matrix_eye(L, x, (Dom)node_at(L, x)->dom); }

static int l_trace(lua_State *L)
{
    push_value(L, trace_fold(L, OP_SUM, diagonal_only(L, square_arg(L, "trace")), SLICE));
    return 1;
}

/* Values along an axis become a diagonal matrix; of a square matrix it returns the diagonal. */
static int l_diag(lua_State *L)
{
    lang_count(L, "diag", 1, 1);
    Ref x = matrix_arg(L, 1, "diag", 1);
    Dom d = (Dom)node_at(L, x)->dom;
    const Axis *axis = dom_info[d].axis;
    if (is_vector(d)) {
        Axis a = axis[axis[0] == AXIS_ONE];
        push_value(L, matrix_eye(L, x, trace_dom(trace_of(L), dom_of_axes(a, a))));
        return 1;
    }
    x = square_arg(L, "diag");
    push_value(L, trace_fold(L, OP_SUM, diagonal_only(L, x), dom_product(axis[0], AXIS_ONE)));
    return 1;
}

static int l_outer(lua_State *L)
{
    lang_count(L, "outer", 2, 2);
    Ref x[2];
    for (int i = 0; i < 2; i++) {
        x[i] = matrix_arg(L, i + 1, "outer", 2);
        if (!is_vector((Dom)node_at(L, x[i])->dom))
            return spec_error(L, "outer takes two values by row or column; argument %d is %s",
                              i + 1, describe(trace_of(L), x[i]));
    }
    push_value(L, outer(L, x[0], x[1]));
    return 1;
}

static int l_triangle(lua_State *L)      /* upvalue: true for triu */
{
    bool upper = lua_toboolean(L, lua_upvalueindex(1));
    Ref x = square_arg(L, upper ? "triu" : "tril");
    push_value(L, where_places(L, OP_LE, upper ? OP_DOWN : OP_ACROSS, upper ? OP_ACROSS : OP_DOWN,
                               x, (Dom)node_at(L, x)->dom));
    return 1;
}

void matrix_open(lua_State *L)
{
    static const luaL_Reg own[] = {{"mm", l_mm},       {"gram", l_gram}, {"outer", l_outer},
                                   {"trace", l_trace}, {"diag", l_diag}, {"polar", l_polar},
                                   {NULL, NULL}};
    luaL_setfuncs(L, own, 0);
    factors_open(L);
    for (int i = 0; i < 2; i++) {
        lua_pushboolean(L, i);
        lua_pushcclosure(L, l_triangle, 1);
        lua_setfield(L, -2, i ? "triu" : "tril");
    }
}

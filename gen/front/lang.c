/* The functions and operators of the spec language. Each checks its arguments, records nodes, and
 * returns a value. */
#include "gen/front/matrix_values.h"
#include "gen/front/rings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define VALUE "optc.value"

const Ref *value_at(lua_State *L, int i) { return luaL_testudata(L, i, VALUE); }
bool is_value(lua_State *L, int i) { return value_at(L, i) != NULL; }

void push_value(lua_State *L, Ref r)
{
    *(Ref *)lua_newuserdatauv(L, sizeof(Ref), 0) = r;
    luaL_setmetatable(L, VALUE);
}

/* The graph, set so that new nodes get the spec's current line. An existing equal node keeps its
 * position. */
Graph *trace_here(Trace *t)
{
    Graph *g = &t->rule->g;
    const char *path;
    if (g->len >= MAX_NODES)
        spec_error(t->L, "the rule has over %d values: is a loop unrolled too far?", MAX_NODES);
    sandbox_where(t->L, &path, &g->line);
    int s = spec_of_source(t, path);
    g->file = s >= 0 ? t->spec[s].file : 0;
    g->entry = (uint8_t)t->entry;
    return g;
}

Ref trace_node(Trace *t, Node n) { return graph_add(trace_here(t), n); }
Ref trace_copy(Trace *t, Ref r, Dom dom) { return node_copy(trace_here(t), r, dom); }

/* A spec uses its view as soon as it computes with values by row, column or matrix. A size times a
 * number does not
 * count: it may be part of a query, which has its own view. */
static void note_view(Trace *t, Op op, const Ref *arg, int n)
{
    const Graph *g = &t->rule->g;
    bool factor = op == OP_MUL && (g->n[arg[0]].op == OP_CONST || g->n[arg[1]].op == OP_CONST);
    for (int i = 0; i < n; i++) {
        const Node *x = &g->n[arg[i]];
        if (dom_inside((Dom)x->dom) && x->dom != ELEM && !(factor && x->op == OP_COUNT))
            t->spec[t->at].uses_view = true;
    }
}

/* ---- blocks ---- */
Dom trace_dom(const Trace *t, Dom d)
{
    return t->rule->block && dom_square(d) ? dom_blocked(d) : d;
}

/* The block's version of node r, if it is computed only from sizes of the matrix (which are the
 * same for every block); else NONE. Its operands' versions must be known. */
static Ref sizes_of(Trace *t, Ref r)
{
    Graph *g = trace_here(t);
    const Node n = g->n[r];
    Ref arg[3] = {NONE, NONE, NONE};
    if (!dom_inside((Dom)n.dom))
        return r;
    if (n.op == OP_COUNT && n.dom == SLICE)
        return node_count(g, (Dom)n.from, BLOCK);
    bool plain = !is_leaf(&n) && op_info[n.op].kind <= K_SEL && n.op != OP_STORED &&
                 n.dom == SLICE && n.nargs <= 3;
    for (int k = 0; k < n.nargs && plain; k++)
        plain = (arg[k] = t->sizes[n.arg[k]]) != NONE;
    return plain ? node_op(g, (Op)n.op, arg[0], arg[1], arg[2]) : NONE;
}

/* Computes each value's version once per trace, without recursion: it may be a chain of
 * thousands. */
Ref trace_sizes(Trace *t, Ref r)
{
    const Graph *g = &t->rule->g;
    Ref *stack = NULL;
    int n = 0, cap = 0;
    while (t->nsizes <= r)
        PUSH(t->arena, t->sizes, t->nsizes, t->sizes_cap) = UNKNOWN;
    if (t->sizes[r] == UNKNOWN)
        PUSH(t->arena, stack, n, cap) = r;
    while (n) {
        Ref x = stack[n - 1], open = NONE;
        for (int k = 0; k < g->n[x].nargs && g->n[x].dom == SLICE; k++)
            open = t->sizes[g->n[x].arg[k]] == UNKNOWN ? g->n[x].arg[k] : open;
        if (open != NONE) {
            PUSH(t->arena, stack, n, cap) = open;
            continue;
        }
        n--;
        t->sizes[x] = sizes_of(t, x);
    }
    return g->n[r].dom == SLICE ? t->sizes[r] : NONE;
}

static bool of_matrix(const Node *n) { return dom_info[n->dom].scope == SCOPE_MATRIX; }

/* Error: the operands vary along different axes, or one belongs to a block and the other to the
 * whole matrix. */
static int refuse_meeting(lua_State *L, Op op, Ref a, Ref b)
{
    Trace *t = trace_of(L);
    Dom x = (Dom)t->rule->g.n[a].dom, y = (Dom)t->rule->g.n[b].dom;
    const char *name = op_info[op].name;
    if (dom_of_block(x) == dom_of_block(y))
        return spec_error(L, "%s: %s and %s do not fit: they vary along different axes", name,
                          describe(t, a), describe(t, b));
    return spec_error(
        L,
        "%s: %s and %s do not fit: the first belongs to a block of the matrix (block = %d), the "
        "second "
        "to the whole matrix; a block's value reaches elements by a product, mm(L, g)",
        name, describe(t, dom_of_block(x) ? a : b), describe(t, dom_of_block(x) ? b : a),
        t->rule->block);
}

/* In a rule with blocks: if an operand belongs to a block, sizes of the matrix are replaced by the
 * block's version. */
static void fit_blocks(Trace *t, Ref *arg, int n)
{
    const Graph *g = &t->rule->g;
    bool any = false;
    for (int i = 0; i < n; i++)
        any = any || dom_of_block((Dom)g->n[arg[i]].dom);
    for (int i = 0; i < n && any; i++) {
        Ref sizes = of_matrix(&g->n[arg[i]]) ? trace_sizes(t, arg[i]) : NONE;
        arg[i] = sizes != NONE ? sizes : arg[i];
    }
}

/* Records an operation; error if the operands have no common domain. */
Ref trace_op3(lua_State *L, Op op, Ref a, Ref b, Ref c)
{
    Trace *t = trace_of(L);
    Graph *g = trace_here(t);
    Ref arg[] = {a, b, c};
    int n = op_info[op].arity;
    note_view(t, op, arg, n);
    if (t->rule->block)
        fit_blocks(t, arg, n);
    Dom d = (Dom)g->n[arg[0]].dom;
    for (int i = 1; i < n; i++) {
        Dom join = dom_join(d, (Dom)g->n[arg[i]].dom);
        /* finds the operand that it does not fit */
        for (int k = 0; k < i && join == NDOM; k++)
            if (k == i - 1 || dom_join((Dom)g->n[arg[k]].dom, (Dom)g->n[arg[i]].dom) == NDOM)
                refuse_meeting(L, op, arg[k], arg[i]);
        if (trace_dom(t, join) != join)
            spec_error(L,
                       "%s: %s and %s would vary over %s x %s, whose values belong to blocks "
                       "(block = %d), but both "
                       "belong to the whole matrix",
                       op_info[op].name, describe(t, arg[0]), describe(t, arg[i]),
                       axis_name(dom_info[join].axis[0]), axis_name(dom_info[join].axis[1]),
                       t->rule->block);
        d = join;
    }
    Ref lifted = matrix_lift(L, op, arg, d);
    return lifted != NONE ? lifted : node_op(g, op, arg[0], arg[1], arg[2]);
}

Ref trace_op(lua_State *L, Op op, Ref a, Ref b) { return trace_op3(L, op, a, b, NONE); }

static Ref konst(lua_State *L, double x) { return node_const(&trace_of(L)->rule->g, x); }

static const char *per_what(Trace *t, Dom d)
{
    return dom_named(d, true, dom_of_block(d)) || dom_fixed(d)
               ? dom_info[d].name
               : arena_printf(t->arena, "%s, transposed", dom_info[dom_transposed(d)].name);
}

/* A value in messages: "'u' (a value per tensor, made by add on line 9)". */
const char *describe(Trace *t, Ref r)
{
    const Node *n = &t->rule->g.n[r];
    char num[40];
    const char *what = n->name;
    switch (n->op) {
    case OP_P: what = "p"; break;
    case OP_G: what = "g"; break;
    case OP_STEP: what = "t"; break;
    case OP_HYPER: what = t->rule->hyper[n->sym].name; break;
    case OP_STATE: what = t->rule->state[n->sym].name; break;
    case OP_INPUT: what = t->rule->input[n->sym].name; break;
    case OP_CONST:
        snprintf(num, sizeof num, "%.9g", n->imm);
        return arena_printf(t->arena, n->ty == BOOL ? "a constant truth value" : "the number %s",
                            num);
    default: break;
    }
    const char *kind = n->ty == BOOL ? "truth value" : "value", *per = per_what(t, (Dom)n->dom);
    if (is_leaf(n))
        return arena_printf(t->arena, "'%s' (a %s per %s)", what ? what : op_info[n->op].name, kind,
                            per);
    if (!what && n->op == OP_TRANSPOSE)
        return arena_printf(t->arena, "the transpose of %s", describe(t, n->arg[0]));
    if (what)
        return arena_printf(t->arena, "'%s' (a %s per %s, made by %s on line %d)", what, kind, per,
                            op_info[n->op].name, n->line);
    return arena_printf(t->arena, "the result of %s on line %d (a %s per %s)", op_info[n->op].name,
                        n->line, kind, per);
}

Ref lang_arg(lua_State *L, int i, const char *what, int n)
{
    Trace *t = trace_of(L);
    Ref *r = luaL_testudata(L, i, VALUE);
    if (r && *r != NOTHING)
        return *r == UNKNOWN ? (Ref)errors_raise(L) : *r;
    switch (lua_type(L, i)) {
    case LUA_TNUMBER: return konst(L, lua_tonumber(L, i));
    case LUA_TBOOLEAN: {
        Node b = {.op = OP_CONST, .dom = CONST_, .ty = BOOL, .imm = lua_toboolean(L, i)};
        return trace_node(t, b);
    }
    case LUA_TNIL: case LUA_TNONE:
        return (Ref)spec_error(
            L,
            "%s: argument %d of %d is nil: it was never given a value outside of every() and "
            "when()",
            what, i, n);
    case LUA_TFUNCTION:
        return (Ref)spec_error(
            L, "%s: argument %d is a function, not a value or a number: call it, as in f(x)", what,
            i);
    case LUA_TUSERDATA:
        if (ring_is(L, i))
            return (Ref)spec_error(
                L, "%s: argument %d is a ring, not a value: s[1] is the newest value of a ring s",
                what, i);
        return (Ref)spec_error(
            L,
            "%s: argument %d is not a value: zeros, fill and copy declare states, state = { m = "
            "zeros }, and inner(), step(), every() and when() give none",
            what, i);
    default:
        return (Ref)spec_error(L, "%s: argument %d is a %s, not a value or a number", what, i,
                               luaL_typename(L, i));
    }
}

static Ref want_ty(lua_State *L, int i, const char *what, int n, Ty ty)
{
    Trace *t = trace_of(L);
    Ref r = lang_arg(L, i, what, n);
    if (t->rule->g.n[r].ty != ty)
        spec_error(L,
                   ty == NUM ? "%s: argument %d is %s; turn it into numbers with where(c, 1, 0)"
                             : "%s: argument %d is %s; it must be a truth value such as lt(a, b)",
                   what, i, describe(t, r));
    return r;
}

Ref lang_num(lua_State *L, int i, const char *what, int n) { return want_ty(L, i, what, n, NUM); }
Ref lang_truth(lua_State *L, int i, const char *what, int n)
{
    return want_ty(L, i, what, n, BOOL);
}

void lang_count(lua_State *L, const char *what, int lo, int hi)
{
    int n = lua_gettop(L);
    if (n >= lo && n <= hi)
        return;
    const char *hint = hint_count(trace_of(L), what, n), *sep = *hint ? "; " : "";
    if (lo == hi)
        spec_error(L, "%s takes %d argument%s, got %d%s%s", what, lo, lo == 1 ? "" : "s", n, sep,
                   hint);
    spec_error(L, "%s takes %d to %d arguments, got %d%s%s", what, lo, hi, n, sep, hint);
}

void inside_entry(lua_State *L, const char *what)
{
    if (trace_of(L)->at < 0)
        spec_error(L, "%s is for use inside an entry: outside of it there are no values", what);
}

static int give(lua_State *L, Ref r)
{
    push_value(L, r);
    return 1;
}

/* The Lua function of every row of ops.def that is a function. Plain numbers give a plain
 * number. */
static int l_op(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    const OpInfo *o = &op_info[op];
    lang_count(L, o->name, o->arity, o->arity);
    bool plain = o->kind == K_NUM || o->kind == K_CMP;
    double x[3] = {0};
    for (int i = 0; i < o->arity; i++) {
        plain = plain && lua_type(L, i + 1) == LUA_TNUMBER;
        x[i] = lua_tonumber(L, i + 1);
    }
    if (plain) {
        double y = op_eval(op, x[0], x[1], x[2]);
        if (o->kind == K_CMP)
            lua_pushboolean(L, y != 0);
        else
            lua_pushnumber(L, y);
        return 1;
    }
    Ref a[3] = {NONE, NONE, NONE};
    for (int i = 0; i < o->arity; i++)
        a[i] = want_ty(L, i + 1, o->name, o->arity,
                       o->kind == K_LOGIC || (o->kind == K_SEL && i == 0) ? BOOL : NUM);
    return give(L, trace_op3(L, op, a[0], a[1], a[2]));
}

static int l_binary(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    static const char *const sign[NOPS] = {
        [OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/"};
    const char *what = sign[op];
    Ref a = lang_num(L, 1, what, 2), b = lang_num(L, 2, what, 2);
    return give(L, trace_op3(L, op, a, b, NONE));
}

static int l_neg(lua_State *L)
{
    return give(L, trace_op3(L, OP_NEG, lang_num(L, 1, "-", 1), NONE, NONE));
}

/* x^n for a whole number n by squaring. The order of multiplications is fixed here for all
 * targets. */
static Ref int_power(lua_State *L, Ref x, double n)
{
    Ref r = NONE;
    for (double e = fabs(n); e >= 1; e = floor(e / 2)) {
        if (fmod(e, 2) == 1)
            r = r == NONE ? x : trace_op3(L, OP_MUL, r, x, NONE);
        if (e >= 2)
            x = trace_op3(L, OP_MUL, x, x, NONE);
    }
    if (r == NONE)
        return konst(L, 1);
    return n < 0 ? trace_op3(L, OP_DIV, konst(L, 1), r, NONE) : r;
}

static int l_pow(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "pow", 2, 2);
    if (lua_type(L, 1) == LUA_TNUMBER && lua_type(L, 2) == LUA_TNUMBER) {
        lua_pushnumber(L, pow(lua_tonumber(L, 1), lua_tonumber(L, 2)));
        return 1;
    }
    Ref x = lang_num(L, 1, "^", 2), y = lang_num(L, 2, "^", 2);
    const Node *e = &t->rule->g.n[y];
    Dom of = (Dom)t->rule->g.n[x].dom;
    if (lua_toboolean(L, lua_upvalueindex(1)) && dom_square(of) &&
        dom_info[of].axis[0] == dom_info[of].axis[1])
        return spec_error(L,
                          "^ on a square value: %s; power(x, n) is the matrix power, mm(x, x) the "
                          "product, and x * x or pow(x, n) "
                          "are of its elements",
                          describe(t, x));
    if (e->op == OP_CONST && e->whole && fabs(e->imm) <= 64)
        return give(L, int_power(L, x, e->imm));
    if (e->op == OP_CONST && fabs(e->imm) == 0.5) {
        Ref s = trace_op3(L, OP_SQRT, x, NONE, NONE);
        return give(L, e->imm > 0 ? s : trace_op3(L, OP_DIV, konst(L, 1), s, NONE));
    }
    return give(L, trace_op3(L, e->whole ? OP_POWI : OP_POW, x, y, NONE));
}

static int l_refuse(lua_State *L)       /* metamethods that values do not support */
{
    return spec_error(L, "%s", lua_tostring(L, lua_upvalueindex(1)));
}

static int l_rsqrt(lua_State *L)
{
    lang_count(L, "rsqrt", 1, 1);
    return give(L, trace_op3(L, OP_DIV, konst(L, 1),
                             trace_op3(L, OP_SQRT, lang_num(L, 1, "rsqrt", 1), NONE, NONE), NONE));
}

static int l_sigmoid(lua_State *L)
{
    lang_count(L, "sigmoid", 1, 1);
    Ref e = trace_op3(L, OP_EXP, trace_op3(L, OP_NEG, lang_num(L, 1, "sigmoid", 1), NONE, NONE),
                      NONE, NONE);
    return give(
        L, trace_op3(L, OP_DIV, konst(L, 1), trace_op3(L, OP_ADD, konst(L, 1), e, NONE), NONE));
}

static int l_lerp(lua_State *L)
{
    lang_count(L, "lerp", 3, 3);
    Ref a = lang_num(L, 1, "lerp", 3), b = lang_num(L, 2, "lerp", 3), w = lang_num(L, 3, "lerp", 3);
    return give(L,
                trace_op3(L, OP_ADD, a,
                          trace_op3(L, OP_MUL, w, trace_op3(L, OP_SUB, b, a, NONE), NONE), NONE));
}

static int l_clamp(lua_State *L)
{
    lang_count(L, "clamp", 3, 3);
    Ref x = lang_num(L, 1, "clamp", 3), lo = lang_num(L, 2, "clamp", 3),
        hi = lang_num(L, 3, "clamp", 3);
    return give(L, trace_op3(L, OP_MIN, trace_op3(L, OP_MAX, x, lo, NONE), hi, NONE));
}

static int l_swapped(lua_State *L)      /* gt and ge are lt and le with swapped operands */
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    const char *name = op == OP_LT ? "gt" : "ge";
    lang_count(L, name, 2, 2);
    if (lua_type(L, 1) == LUA_TNUMBER && lua_type(L, 2) == LUA_TNUMBER) {
        lua_pushboolean(L, op_eval(op, lua_tonumber(L, 2), lua_tonumber(L, 1), 0) != 0);
        return 1;
    }
    Ref a = lang_num(L, 1, name, 2), b = lang_num(L, 2, name, 2);
    return give(L, trace_op3(L, op, b, a, NONE));
}

static int l_isnan(lua_State *L)
{
    lang_count(L, "isnan", 1, 1);
    Ref x = lang_num(L, 1, "isnan", 1);
    return give(L, trace_op3(L, OP_NE, x, x, NONE));
}

static int l_isfinite(lua_State *L)
{
    lang_count(L, "isfinite", 1, 1);
    Ref x = lang_num(L, 1, "isfinite", 1);
    return give(L,
                trace_op3(L, OP_LT, trace_op3(L, OP_ABS, x, NONE, NONE), konst(L, INFINITY), NONE));
}

/* ---- random draws ---- */
int trace_seed(Trace *t)
{
    if (t->seed < 0) {
        t->seed = t->rule->nhyper;
        PUSH(t->arena, t->rule->hyper, t->rule->nhyper, t->rule->hyper_cap) = SEED_HYPER;
    }
    return t->seed;
}

int lang_draw(lua_State *L, Op op)
{
    Trace *t = trace_of(L);
    const char *what = op_info[op].name;
    lang_count(L, what, 0, 1);
    inside_entry(L, what);
    if (!lua_isnoneornil(L, 1) && lua_type(L, 1) != LUA_TSTRING)
        return spec_error(
            L,
            "%s takes the name of a domain, %s \"tensor\", or nothing: %s() draws one value per "
            "element",
            what, what, what);
    const char *dn = luaL_optstring(L, 1, "elem");
    int dom = dom_by_words(dn);
    uint64_t drawn = 0;
    for (int d = 0; d < NDOM; d++)
        drawn |= (uint64_t)(dom_info[d].scope >= SCOPE_TENSOR &&
                            dom_named((Dom)d, t->rule->rank > 0, t->rule->block > 0)) << d;
    if (dom >= 0 && t->elem != ELEM && dom_inside((Dom)dom) && dom != ELEM)
        return spec_error(L, "%s: a rule that steps a projection draws by element and by tensor",
                          what);
    if (dom >= 0) {
        dom = (int)project_dom(t, (Dom)dom);
        matrix_rank(L, (Dom)dom);
        dom = (int)trace_dom(t, (Dom)dom);
    }
    if (dom < 0 || !(drawn >> dom & 1))
        return spec_error(L, "%s: '%s' is not a domain to draw for (%s)", what, dn,
                          dom_list(t->arena, drawn, "", ", "));
    if (t->stream > 200)
        return spec_error(L, "over 200 random draws in one rule");
    if (dom_inside((Dom)dom) && dom != ELEM)
        t->spec[t->at].uses_view = true;
    int seed = trace_seed(t);
    return give(L, node_leaf(&t->rule->g, op, (Dom)dom, seed, t->stream++));
}

static int l_random(lua_State *L) { return lang_draw(L, OP_RANDOM); }

static void set_closure(lua_State *L, const char *name, lua_CFunction f, lua_Integer up)
{
    lua_pushinteger(L, up);
    lua_pushcclosure(L, f, 1);
    lua_setfield(L, -2, name);
}

static void value_metatable(lua_State *L)
{
    static const struct { const char *event, *why;
    } no[] = {
        {"__concat", "a symbolic value cannot become text: it is known only when the rule runs"},
        {"__len", "a symbolic value has no length: use numel, nrows or ncols"},
        {"__call", "a symbolic value is not a function: is a '*' missing? Sizes, t and "
                   "hyperparameters are written without ()"},
        {"__newindex", "a symbolic value has no fields and no elements to assign: assign the name, "
                       "as in p = where(c, a, b)"},
        {"__idiv", "// is not an operation on symbolic values: use floor(a / b)"},
        {"__mod", "% is not an operation on symbolic values: use a - b * floor(a / b)"},
        {"__tostring", "a symbolic value cannot become text: it is known only when the rule runs"},
    };
    /* by Relation */
    static const struct { const char *event, *why;
    } compare[IS_EQUAL + 1] = {
        {"__lt", "Lua's own < and > cannot compare symbolic values: use lt(a, b) or gt(a, b) and "
                 "where(c, x, y)"},
        {"__le", "Lua's own <= and >= cannot compare symbolic values: use le(a, b) or ge(a, b) and "
                 "where(c, x, y)"},
        {"__eq", "Lua's own == and ~= cannot compare symbolic values: use eq(a, b) or ne(a, b) and "
                 "where(c, x, y)"},
    };
    luaL_newmetatable(L, VALUE);
    for (int k = 0; k <= IS_EQUAL; k++) {
        lua_pushstring(L, compare[k].why);
        lua_pushinteger(L, k);
        lua_pushcclosure(L, l_query_sizes, 2);
        lua_setfield(L, -2, compare[k].event);
    }
    static const struct { const char *event; Op op; } binary[] = {
        {"__add", OP_ADD}, {"__sub", OP_SUB}, {"__mul", OP_MUL}, {"__div", OP_DIV}};
    for (size_t k = 0; k < sizeof binary / sizeof *binary; k++)
        set_closure(L, binary[k].event, l_binary, binary[k].op);
    set_closure(L, "__unm", l_neg, 0);
    lua_pushboolean(L, 1);
    lua_pushcclosure(L, l_pow, 1);
    lua_setfield(L, -2, "__pow");
    set_closure(L, "__index", matrix_field, 0);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        lua_pushstring(L, no[i].why);
        lua_pushcclosure(L, l_refuse, 1);
        lua_setfield(L, -2, no[i].event);
    }
    errors_guard_all(L, false);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

void lang_open(lua_State *L)
{
    value_metatable(L);
    lua_newtable(L);
    for (int op = 0; op < NOPS; op++) {
        OpKind k = op_info[op].kind;
        bool named =
            k == K_CMP || k == K_LOGIC || k == K_SEL ||
            (k == K_NUM && op != OP_ADD && op != OP_SUB && op != OP_MUL && op != OP_DIV &&
             op != OP_COPY && op != OP_STORED && (op < OP_JOIN16 || op > OP_HALF_STEP) &&
             op != OP_NEG && op != OP_POW && op != OP_POWI && op != OP_MIN && op != OP_MAX);
        if (named)
            set_closure(L, op_info[op].name, l_op, op);
    }
    lua_pushboolean(L, 0);
    lua_pushcclosure(L, l_pow, 1);
    lua_setfield(L, -2, "pow");
    set_closure(L, "rsqrt", l_rsqrt, 0);
    set_closure(L, "sigmoid", l_sigmoid, 0);
    set_closure(L, "lerp", l_lerp, 0);
    set_closure(L, "clamp", l_clamp, 0);
    set_closure(L, "gt", l_swapped, OP_LT);
    set_closure(L, "ge", l_swapped, OP_LE);
    set_closure(L, "isnan", l_isnan, 0);
    set_closure(L, "isfinite", l_isfinite, 0);
    set_closure(L, "random", l_random, 0);
    set_closure(L, "named", l_query_word, TEST_NAMED);
    set_closure(L, "tagged", l_query_word, TEST_TAGGED);
    set_closure(L, "divisible", l_query_divisible, 0);
    set_closure(L, "dims", l_query_dims, 0);
    reduce_open(L);
    matrix_open(L);
    lua_pushnumber(L, 3.141592653589793);
    lua_setfield(L, -2, "pi");
    lua_pushnumber(L, INFINITY);
    lua_setfield(L, -2, "inf");
}

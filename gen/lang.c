/* The functions and operators of the language. Each checks its arguments, records nodes, and returns a value. */
#include "trace.h"

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

/* The graph, with the spec's place for the nodes made next. An equal node that exists keeps its own. */
static Graph *here(Trace *t)
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

Ref trace_node(Trace *t, Node n) { return graph_add(here(t), n); }
Ref trace_copy(Trace *t, Ref r, Dom dom) { return node_copy(here(t), r, dom); }

/* A spec rests on its view once it computes with what varies by row, column or matrix. A size times a number may still
 * be a question, which has a view of its own. */
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

/* Operands that have no domain in common are refused where they meet. */
static Ref mk(lua_State *L, Op op, Ref a, Ref b, Ref c)
{
    Trace *t = trace_of(L);
    Graph *g = here(t);
    const Ref arg[] = {a, b, c};
    Dom d = (Dom)g->n[a].dom;
    note_view(t, op, arg, op_info[op].arity);
    for (int i = 1; i < op_info[op].arity; i++) {
        Dom join = dom_join(d, (Dom)g->n[arg[i]].dom);
        if (join == NDOM)
            spec_error(L, "%s: %s and %s do not fit: they vary along different axes", op_info[op].name, describe(t, a),
                       describe(t, arg[i]));
        d = join;
    }
    return node_op(g, op, a, b, c);
}

Ref trace_op(lua_State *L, Op op, Ref a, Ref b) { return mk(L, op, a, b, NONE); }

static Ref konst(lua_State *L, double x) { return node_const(&trace_of(L)->rule->g, x); }

/* "'u' (one per tensor, line 9)": how messages speak of a value. */
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
        return arena_printf(t->arena, n->ty == BOOL ? "a constant truth value" : "the number %s", num);
    default: break;
    }
    const char *kind = n->ty == BOOL ? "truth value" : "value";
    if (is_leaf(n))
        return arena_printf(t->arena, "'%s' (a %s per %s)", what ? what : op_info[n->op].name, kind,
                            dom_info[n->dom].name);
    if (what)
        return arena_printf(t->arena, "'%s' (a %s per %s, made by %s on line %d)", what, kind, dom_info[n->dom].name,
                            op_info[n->op].name, n->line);
    return arena_printf(t->arena, "the result of %s on line %d (a %s per %s)", op_info[n->op].name, n->line, kind,
                        dom_info[n->dom].name);
}

Ref lang_arg(lua_State *L, int i, const char *what, int n)
{
    Trace *t = trace_of(L);
    Ref *r = luaL_testudata(L, i, VALUE);
    if (r)
        return *r == UNKNOWN ? (Ref)errors_raise(L) : *r;
    switch (lua_type(L, i)) {
    case LUA_TNUMBER: return konst(L, lua_tonumber(L, i));
    case LUA_TBOOLEAN: {
        Node b = {.op = OP_CONST, .dom = CONST_, .ty = BOOL, .imm = lua_toboolean(L, i)};
        return trace_node(t, b);
    }
    case LUA_TNIL: case LUA_TNONE:
        return (Ref)spec_error(L, "%s: argument %d of %d is nil", what, i, n);
    default:
        return (Ref)spec_error(L, "%s: argument %d is a %s, not a value or a number", what, i, luaL_typename(L, i));
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

static Ref num(lua_State *L, int i, const char *what, int n) { return want_ty(L, i, what, n, NUM); }
Ref lang_truth(lua_State *L, int i, const char *what, int n) { return want_ty(L, i, what, n, BOOL); }

static void want_count(lua_State *L, const char *what, int lo, int hi)
{
    int n = lua_gettop(L);
    if (n < lo || n > hi) {
        if (lo == hi)
            spec_error(L, "%s takes %d argument%s, got %d", what, lo, lo == 1 ? "" : "s", n);
        spec_error(L, "%s takes %d to %d arguments, got %d", what, lo, hi, n);
    }
}

void inside_entry(lua_State *L, const char *what)
{
    if (trace_of(L)->at < 0)
        spec_error(L, "%s is for use inside an entry: there are no values before", what);
}

static int give(lua_State *L, Ref r)
{
    push_value(L, r);
    return 1;
}

/* One function for every row of the op table that is a function of its own. Plain numbers give a plain number. */
static int l_op(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    const OpInfo *o = &op_info[op];
    want_count(L, o->name, o->arity, o->arity);
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
        a[i] = want_ty(L, i + 1, o->name, o->arity, o->kind == K_LOGIC || (o->kind == K_SEL && i == 0) ? BOOL : NUM);
    return give(L, mk(L, op, a[0], a[1], a[2]));
}

static int l_binary(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    static const char *const sym[] = {"+", "-", "*", "/"};
    const char *what = sym[op - OP_ADD];
    Ref a = num(L, 1, what, 2), b = num(L, 2, what, 2);
    return give(L, mk(L, op, a, b, NONE));
}

static int l_neg(lua_State *L) { return give(L, mk(L, OP_NEG, num(L, 1, "-", 1), NONE, NONE)); }

/* x^n for a whole number n by squaring: the order of multiplications is fixed here, for both targets. */
static Ref int_power(lua_State *L, Ref x, double n)
{
    Ref r = NONE;
    for (double e = fabs(n); e >= 1; e = floor(e / 2)) {
        if (fmod(e, 2) == 1)
            r = r == NONE ? x : mk(L, OP_MUL, r, x, NONE);
        if (e >= 2)
            x = mk(L, OP_MUL, x, x, NONE);
    }
    if (r == NONE)
        return konst(L, 1);
    return n < 0 ? mk(L, OP_DIV, konst(L, 1), r, NONE) : r;
}

static int l_pow(lua_State *L)
{
    Trace *t = trace_of(L);
    want_count(L, "pow", 2, 2);
    if (lua_type(L, 1) == LUA_TNUMBER && lua_type(L, 2) == LUA_TNUMBER) {
        lua_pushnumber(L, pow(lua_tonumber(L, 1), lua_tonumber(L, 2)));
        return 1;
    }
    Ref x = num(L, 1, "^", 2), y = num(L, 2, "^", 2);
    const Node *e = &t->rule->g.n[y];
    if (e->op == OP_CONST && e->whole && fabs(e->imm) <= 64)
        return give(L, int_power(L, x, e->imm));
    if (e->op == OP_CONST && fabs(e->imm) == 0.5) {
        Ref s = mk(L, OP_SQRT, x, NONE, NONE);
        return give(L, e->imm > 0 ? s : mk(L, OP_DIV, konst(L, 1), s, NONE));
    }
    return give(L, mk(L, e->whole ? OP_POWI : OP_POW, x, y, NONE));
}

static int l_refuse(lua_State *L)       /* metamethods that must not be used on values */
{
    return spec_error(L, "%s", lua_tostring(L, lua_upvalueindex(1)));
}

static int l_rsqrt(lua_State *L)
{
    want_count(L, "rsqrt", 1, 1);
    return give(L, mk(L, OP_DIV, konst(L, 1), mk(L, OP_SQRT, num(L, 1, "rsqrt", 1), NONE, NONE), NONE));
}

static int l_sigmoid(lua_State *L)
{
    want_count(L, "sigmoid", 1, 1);
    Ref e = mk(L, OP_EXP, mk(L, OP_NEG, num(L, 1, "sigmoid", 1), NONE, NONE), NONE, NONE);
    return give(L, mk(L, OP_DIV, konst(L, 1), mk(L, OP_ADD, konst(L, 1), e, NONE), NONE));
}

static int l_lerp(lua_State *L)
{
    want_count(L, "lerp", 3, 3);
    Ref a = num(L, 1, "lerp", 3), b = num(L, 2, "lerp", 3), w = num(L, 3, "lerp", 3);
    return give(L, mk(L, OP_ADD, a, mk(L, OP_MUL, w, mk(L, OP_SUB, b, a, NONE), NONE), NONE));
}

static int l_clamp(lua_State *L)
{
    want_count(L, "clamp", 3, 3);
    Ref x = num(L, 1, "clamp", 3), lo = num(L, 2, "clamp", 3), hi = num(L, 3, "clamp", 3);
    return give(L, mk(L, OP_MIN, mk(L, OP_MAX, x, lo, NONE), hi, NONE));
}

static int l_swapped(lua_State *L)      /* gt and ge are lt and le with the operands changed over */
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    const char *name = op == OP_LT ? "gt" : "ge";
    want_count(L, name, 2, 2);
    if (lua_type(L, 1) == LUA_TNUMBER && lua_type(L, 2) == LUA_TNUMBER) {
        lua_pushboolean(L, op_eval(op, lua_tonumber(L, 2), lua_tonumber(L, 1), 0) != 0);
        return 1;
    }
    Ref a = num(L, 1, name, 2), b = num(L, 2, name, 2);
    return give(L, mk(L, op, b, a, NONE));
}

static int l_isnan(lua_State *L)
{
    want_count(L, "isnan", 1, 1);
    Ref x = num(L, 1, "isnan", 1);
    return give(L, mk(L, OP_NE, x, x, NONE));
}

static int l_isfinite(lua_State *L)
{
    want_count(L, "isfinite", 1, 1);
    Ref x = num(L, 1, "isfinite", 1);
    return give(L, mk(L, OP_LT, mk(L, OP_ABS, x, NONE, NONE), konst(L, INFINITY), NONE));
}

/* ---- reductions ---- */
enum { R_SUM, R_MEAN, R_NORM, R_RMS, R_MAX, R_MIN, R_DOT, NRED };
static const char *const red_name[NRED] = {"sum", "mean", "norm", "rms", "max", "min", "dot"};

static Ref red_global(lua_State *L, Op op, Ref x)
{
    Trace *t = trace_of(L);
    Graph *g = here(t);
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
        /* Every variant must ask for the same reductions in the same order: each is over all tensors, whichever they
         * take. */
        if (t->nerror)                         /* it may have lost its partner to one */
            return (Ref)errors_raise(L);
        if (!next || next->op != op)
            return (Ref)spec_error(L,
                                   "all ways through a rule must make the same global reductions in the same order: "
                                   "this one has no partner in '%s'",
                                   t->rule->variant[0].name);
        next->of[t->variant] = x;
        return next->node;
    }
    Node n = {.op = op, .dom = GROUP, .ty = NUM, .from = TENSOR, .imm = t->ngred, .file = g->file, .line = g->line};
    GlobalRed made = {op, t->entry, g->file, g->line, graph_add(g, n), {0}};
    for (int v = 0; v < MAX_VARIANTS; v++)
        made.of[v] = v ? NONE : x;
    PUSH(t->arena, t->gred, t->ngred, t->gred_cap) = made;
    return made.node;
}

static Ref reduce(lua_State *L, Op op, Ref x, Dom to)
{
    static const Op global_of[] = {
        [OP_SUM - OP_SUM] = OP_GSUM, [OP_RMAX - OP_SUM] = OP_GMAX, [OP_RMIN - OP_SUM] = OP_GMIN};
    Trace *t = trace_of(L);
    Graph *g = here(t);
    if (to != GROUP)
        return node_red(g, op, x, to);
    return red_global(L, global_of[op - OP_SUM], dom_inside((Dom)g->n[x].dom) ? node_red(g, op, x, TENSOR) : x);
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
    want_count(L, what, operands, operands);
    Ref x = num(L, 1, what, operands);
    if (kind == R_DOT)
        x = mk(L, OP_MUL, x, num(L, 2, what, operands), NONE);
    if (to == GROUP && g->n[x].dom == GROUP)               /* it counts for each tensor of its group */
        x = trace_copy(t, x, TENSOR);
    Dom from = g->n[x].dom;
    if (from == to || !dom_spreads(to, from)) {
        static const char *const among[] = {[SCOPE_GROUP] = "between tensors", [SCOPE_TENSOR] = "inside a tensor",
                                            [SCOPE_MATRIX] = "inside a matrix"};
        unsigned of = 0;
        for (int d = 0; d < NDOM; d++)
            of |= (unsigned)dom_folds((Dom)d, to) << d;
        const char *needs = !dom_wide(to) ? "varies by element"
                                          : arena_printf(t->arena, "varies %s (%s)", among[dom_info[to].scope],
                                                         dom_list(t->arena, of, "", ", "));
        spec_error(L, "%s needs a value that %s; %s does not", what, needs, describe(t, x));
    }
    if (!dom_folds(from, to))
        spec_error(L, "%s of a value per %s is not there yet: only elements fold along one of two axes", what,
                   dom_info[from].per);
    if (dom_inside(to))
        t->spec[t->at].uses_view = true;
    if (kind == R_NORM || kind == R_RMS)
        x = mk(L, OP_MUL, x, x, NONE);
    Ref r = reduce(L, kind == R_MAX ? OP_RMAX : kind == R_MIN ? OP_RMIN : OP_SUM, x, to);
    if (kind == R_MEAN || kind == R_RMS) {
        /* how many there are differs between tensors */
        bool summed = to == GROUP && from != ELEM && from != TENSOR;
        Ref n = summed ? red_global(L, OP_GSUM, node_count(g, from, TENSOR)) : node_count(g, from, to);
        r = mk(L, OP_DIV, r, n, NONE);
    }
    if (kind == R_NORM || kind == R_RMS)
        r = mk(L, OP_SQRT, r, NONE, NONE);
    return give(L, r);
}

/* min and max: of one argument a reduction over the tensor, of several elementwise. */
static int l_minmax(lua_State *L)
{
    bool max = lua_toboolean(L, lua_upvalueindex(1));
    const char *what = max ? "max" : "min";
    int n = lua_gettop(L);
    if (n == 0)
        return spec_error(L, "%s takes one argument (over the tensor) or several (elementwise)", what);
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
    Ref r = num(L, 1, what, n);
    for (int i = 2; i <= n; i++)
        r = mk(L, op, r, num(L, i, what, n), NONE);
    return give(L, r);
}

static void add_reductions(lua_State *L, const char *prefix, Dom to)
{
    for (int k = 0; k < NRED; k++) {
        if (!*prefix && to == TENSOR && (k == R_MAX || k == R_MIN))
            continue;                                   /* l_minmax serves these */
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

/* ---- random draws ---- */
static int l_random(lua_State *L)
{
    Trace *t = trace_of(L);
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    const char *what = op_info[op].name;
    want_count(L, what, 0, 1);
    inside_entry(L, what);
    const char *dn = luaL_optstring(L, 1, "elem");
    int dom = dom_by_name(dn);
    unsigned drawn = 0;
    for (int d = 0; d < NDOM; d++)
        drawn |= (unsigned)(dom_info[d].scope >= SCOPE_TENSOR) << d;
    if (dom < 0 || !(drawn >> dom & 1))
        return spec_error(L, "%s: '%s' is not a domain to draw for (%s)", what, dn,
                          dom_list(t->arena, drawn, "", ", "));
    if (t->stream > 200)
        return spec_error(L, "over 200 random draws in one rule");
    if (dom_inside((Dom)dom) && dom != ELEM)
        t->spec[t->at].uses_view = true;
    if (t->seed < 0) {
        t->seed = t->rule->nhyper;
        PUSH(t->arena, t->rule->hyper, t->rule->nhyper, t->rule->hyper_cap) =
            (Hyper){"seed", 0, -9007199254740992.0, 9007199254740992.0, false, false};
    }
    return give(L, node_leaf(&t->rule->g, op, (Dom)dom, t->seed, t->stream++));
}

static void set_closure(lua_State *L, const char *name, lua_CFunction f, lua_Integer up)
{
    lua_pushinteger(L, up);
    lua_pushcclosure(L, f, 1);
    lua_setfield(L, -2, name);
}

static void value_metatable(lua_State *L)
{
    static const struct { const char *event, *why; } no[] = {
        {"__concat", "a symbolic value cannot become text: it is known only when the rule runs"},
        {"__len", "a symbolic value has no length: use numel, nrows or ncols"},
        {"__call", "a symbolic value is not a function: is a '*' missing?"},
        {"__index", "a symbolic value has no fields"},
        {"__newindex", "a symbolic value has no fields"},
        {"__idiv", "// is not an operation on symbolic values: use floor(a / b)"},
        {"__mod", "% is not an operation on symbolic values: use a - b * floor(a / b)"},
        {"__tostring", "a symbolic value cannot become text: it is known only when the rule runs"},
    };
    static const struct { const char *event, *why; } compare[NRELATION] = {
        {"__lt", "Lua's own < and > cannot compare symbolic values: use lt(a, b) or gt(a, b) and where(c, x, y)"},
        {"__le", "Lua's own <= and >= cannot compare symbolic values: use le(a, b) or ge(a, b) and where(c, x, y)"},
        {"__eq", "Lua's own == and ~= cannot compare symbolic values: use eq(a, b) or ne(a, b) and where(c, x, y)"},
    };
    luaL_newmetatable(L, VALUE);
    for (int k = 0; k < NRELATION; k++) {
        lua_pushstring(L, compare[k].why);
        lua_pushinteger(L, k);
        lua_pushcclosure(L, l_compare, 2);
        lua_setfield(L, -2, compare[k].event);
    }
    for (Op op = OP_ADD; op <= OP_DIV; op++) {
        static const char *const ev[] = {"__add", "__sub", "__mul", "__div"};
        set_closure(L, ev[op - OP_ADD], l_binary, op);
    }
    set_closure(L, "__unm", l_neg, 0);
    set_closure(L, "__pow", l_pow, 0);
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
        bool named = k == K_CMP || k == K_LOGIC || k == K_SEL ||
                     (k == K_NUM && op != OP_ADD && op != OP_SUB && op != OP_MUL && op != OP_DIV && op != OP_COPY &&
                      op != OP_STORED &&
                      op != OP_NEG && op != OP_POW && op != OP_POWI && op != OP_MIN && op != OP_MAX);
        if (named)
            set_closure(L, op_info[op].name, l_op, op);
    }
    set_closure(L, "pow", l_pow, 0);
    set_closure(L, "rsqrt", l_rsqrt, 0);
    set_closure(L, "sigmoid", l_sigmoid, 0);
    set_closure(L, "lerp", l_lerp, 0);
    set_closure(L, "clamp", l_clamp, 0);
    set_closure(L, "gt", l_swapped, OP_LT);
    set_closure(L, "ge", l_swapped, OP_LE);
    set_closure(L, "isnan", l_isnan, 0);
    set_closure(L, "isfinite", l_isfinite, 0);
    set_closure(L, "random", l_random, OP_RANDOM);
    set_closure(L, "normal", l_random, OP_NORMAL);
    set_closure(L, "named", l_ask_word, TEST_NAMED);
    set_closure(L, "tagged", l_ask_word, TEST_TAGGED);
    for (int i = 0; i < 2; i++) {
        lua_pushboolean(L, i);
        lua_pushcclosure(L, l_minmax, 1);
        lua_setfield(L, -2, i ? "max" : "min");
    }
    add_reductions(L, "", TENSOR);
    add_reductions(L, "row", ROW);
    add_reductions(L, "col", COL);
    lua_newtable(L);
    add_reductions(L, "", SLICE);
    errors_guard_all(L, false);
    sandbox_protect(L, "slice");
    lua_setfield(L, -2, "slice");
    lua_newtable(L);
    add_reductions(L, "", GROUP);
    errors_guard_all(L, false);
    sandbox_protect(L, "global");
    lua_setfield(L, -2, "global");
    lua_pushnumber(L, 3.141592653589793);
    lua_setfield(L, -2, "pi");
    lua_pushnumber(L, INFINITY);
    lua_setfield(L, -2, "inf");
}

/* The names that a spec's code reads and assigns: its own hyperparameters, states and inputs, and
 * p, g, t and the words of the language. A table with these as metamethods is the environment of
 * the spec's functions. */
#include "gen/front/rings.h"

#include <string.h>

static char mark_p;                      /* the value of `p` in declarations: only copy(p) accepts
                                          * it */

/* find_hyper, find_state, find_input: the index in the rule of one of this spec's names, or -1. */
#define FIND(kind)                                                                                 \
    static int find_##kind(const Trace *t, const SpecFile *s, const char *name)                    \
    {                                                                                              \
        size_t skip = strlen(s->prefix);                                                           \
        for (int i = 0; i < s->n##kind; i++)                                                       \
            if (!strcmp(t->rule->kind[s->kind[i]].name + skip, name))                              \
                return s->kind[i];                                                                 \
        return -1;                                                                                 \
    }
FIND(hyper)
FIND(state)
FIND(input)

/* Specs name a ring, never one of its states. */
static int own_state(const Trace *t, const SpecFile *s, const char *name)
{
    int i = find_state(t, s, name);
    return i >= 0 && t->rule->state[i].ring ? -1 : i;
}

Ref trace_hyper(Trace *t, const SpecFile *s, const char *name)
{
    int i = find_hyper(t, s, name);
    return i < 0 ? NONE : leaf(t, OP_HYPER, GROUP, i);
}

/* A hint for a name that another spec of the composition declares: each spec sees only its own
 * names. */
static const char *hint_other(Trace *t, const SpecFile *s, const char *name)
{
    for (const SpecFile *o = t->spec; o < t->spec + t->nall; o++)
        if (o != s && (find_hyper(t, o, name) >= 0 || find_state(t, o, name) >= 0 ||
                       find_input(t, o, name) >= 0))
            return arena_printf(t->arena,
                                "it belongs to %s%s, and each spec sees its own names alone",
                                o->is_wrapper ? "the wrapper " : "the rule ", o->name);
    return "";
}

static int undeclared(lua_State *L, Trace *t, const SpecFile *s, const char *name, bool write)
{
    Near near = {.want = name};
    size_t skip = strlen(s->prefix);
    static const char *const fixed[] = {"p",      "g",       "t",       "numel",     "nrows",
                                        "ncols",  "nkernel", "every",   "when",      "inner",
                                        "stored", "shrink",  "descend", "separable", "add_inputs"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        near_try(&near, fixed[i]);
    for (int i = 0; i < s->nhyper; i++)
        near_try(&near, t->rule->hyper[s->hyper[i]].name + skip);
    for (int i = 0; i < s->nstate; i++)
        near_try(&near, t->rule->state[s->state[i]].name + skip);
    for (int i = 0; i < s->ninput; i++)
        near_try(&near, t->rule->input[s->input[i]].name + skip);
    lua_getfield(L, LUA_REGISTRYINDEX, "optc.builtins");
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        near_try(&near, arena_strdup(t->arena, lua_tostring(L, -2)));
    const char *hint = *hint_name(name) ? hint_name(name) : hint_other(t, s, name);
    if (*hint)
        return spec_error(L, "'%s' is not declared: %s", name, hint);
    const char *nearest = near_text(&near, t->arena);
    return spec_error(
        L,
        write ? "'%s' is not declared: write 'local %s = …' for an intermediate, or declare it in "
                "'state'%s"
        : *nearest
            ? "'%s' is not declared%.0s%s"
            : "'%s' is not declared: make it a hyperparameter, an option, a state, an input or a "
              "local%.0s%s",
        name, name, nearest);
}

static bool push_own(lua_State *L, Trace *t, SpecFile *s, const char *name)
{
    int i;
    if ((i = own_state(t, s, name)) >= 0) {
        i = project_state(L, i);
        t->read[i] = true;
        Dom d = t->rule->state[i].dom;
        if (t->rule->state[i].report && t->state[i] == leaf(t, OP_STATE, d, i))
            spec_error(L,
                       "'%s' is listed in 'values', which are not kept between steps: assign it "
                       "before reading it, "
                       "or make it a state",
                       name);
        s->uses_view = s->uses_view || (dom_inside(d) && d != ELEM);
        push_value(L, t->state[i]);
    } else if ((i = ring_find(t, s, name)) >= 0) {
        ring_push_value(L, i);
    } else if ((i = find_hyper(t, s, name)) >= 0) {
        push_value(L, leaf(t, OP_HYPER, GROUP, i));
    } else if ((i = find_input(t, s, name)) >= 0) {
        Dom d = t->rule->input[i].dom;
        if (t->elem != ELEM && dom_inside(d))
            spec_error(
                L, "'%s' has one value per %s of the tensor, and the rule steps a projection of it",
                name, dom_info[d].name);
        s->uses_view = s->uses_view || (dom_inside(d) && d != ELEM);
        push_value(L, input_value(t, i));
    } else {
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
        if (lua_getfield(L, -1, name) == LUA_TNIL) {
            lua_pop(L, 2);
            return false;
        }
        lua_remove(L, -2);
    }
    return true;
}

static int no_stored(lua_State *L, Trace *t, const SpecFile *s, const char *name)
{
    Near near = {.want = name};
    near_try(&near, "p");
    for (int i = 0; i < s->nstate; i++)
        near_try(&near, t->rule->state[s->state[i]].name + strlen(s->prefix));
    return spec_error(L, "stored \"%s\": there is no state of that name%s", name,
                      near_text(&near, t->arena));
}

/* stored "m": the current value of m, rounded to its storage type. */
static int l_stored(lua_State *L)
{
    Trace *t = trace_of(L);
    const SpecFile *s = &t->spec[t->at];
    const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    bool of_p = !strcmp(name, "p");
    int i = of_p ? TO_P : own_state(t, s, name);
    if (lua_gettop(L) != 1 || !*name)
        return spec_error(L, "stored takes the name of a state, or of p: stored \"p\"");
    if (i < 0 && !of_p)                            /* -1 is also TO_P */
        return no_stored(L, t, s, name);
    if (i == TO_P && t->elem != ELEM)
        return spec_error(L, "stored \"p\": a rule that steps a projection has no p in memory");
    i = i == TO_P ? i : project_state(L, i);
    Dom d = i == TO_P ? ELEM : t->rule->state[i].dom;
    Ref now = i == TO_P ? t->p : t->state[i];
    if (i != TO_P)
        t->read[i] = true;
    Node n = {.op = OP_STORED, .dom = (uint8_t)d, .ty = NUM, .sym = i, .nargs = 1, .arg = &now};
    bool unchanged = now == (i == TO_P ? leaf(t, OP_P, ELEM, 0) : leaf(t, OP_STATE, d, i));
    /* an unchanged value was just loaded */
    push_value(L, unchanged ? now : trace_node(t, n));
    return 1;
}

/* nkernel: the product of a tensor's dimensions after the second, which no stage has. It is a state
 * that binding fills and that nothing writes. */
static Ref kernel_size(lua_State *L)
{
    Trace *t = trace_of(L);
    Rule *r = t->rule;
    int i = 0;
    if (t->elem != ELEM)
        spec_error(L, "nkernel: a rule that steps a projection has no convolution kernels");
    while (i < r->nstate && r->state[i].init != INIT_KERNEL)
        i++;
    if (i == MAX_STATES)
        spec_error(L, "over %d states, with the sizes of kernels", MAX_STATES);
    if (i == r->nstate) {
        const Graph *g = trace_here(t);
        PUSH(t->arena, r->state, r->nstate, r->state_cap) = (State){.name = "nkernel",
                                                                    .dom = TENSOR,
                                                                    .type = T_F64,
                                                                    .hyper = -1,
                                                                    .file = g->file,
                                                                    .line = g->line,
                                                                    .init = INIT_KERNEL};
        t->state[i] = leaf(t, OP_STATE, TENSOR, i);
        t->read[i] = t->written[i] = true;
    }
    return t->state[i];
}

static bool push_fixed(lua_State *L, Trace *t, const char *name)
{
    Graph *g = &t->rule->g;
    if (!strcmp(name, "p"))
        parts_read_p(L), push_value(L, t->p);
    else if (!strcmp(name, "g"))
        push_value(L, t->g);
    else if (!strcmp(name, "t"))
        push_value(L, t->clock.t);
    else if (!strcmp(name, "numel"))
        push_value(L, node_count(g, t->elem, TENSOR));
    else if (!strcmp(name, "nrows"))
        push_value(L, node_count(g, dom_product(dom_info[t->elem].axis[0], AXIS_ONE), SLICE));
    else if (!strcmp(name, "ncols"))
        push_value(L, node_count(g, dom_product(dom_info[t->elem].axis[1], AXIS_ONE), SLICE));
    else if (!strcmp(name, "nkernel"))
        push_value(L, kernel_size(L));
    else if (!strcmp(name, "every"))
        lua_pushcfunction(L, l_every), errors_guard(L, NULL, false);
    else if (!strcmp(name, "stored"))
        lua_pushcfunction(L, l_stored), errors_guard(L, NULL, false);
    else if (!strcmp(name, "when"))
        lua_pushcfunction(L, l_when), errors_guard(L, NULL, false);
    else if (!strcmp(name, "shrink"))
        lua_pushcfunction(L, l_shrink), errors_guard(L, NULL, false);
    else if (!strcmp(name, "descend"))
        lua_pushcfunction(L, l_descend), errors_guard(L, NULL, false);
    else if (!strcmp(name, "separable"))
        lua_pushcfunction(L, l_separable), errors_guard(L, NULL, false);
    else if (!strcmp(name, "add_inputs"))
        lua_pushcfunction(L, l_add_inputs), errors_guard(L, NULL, false);
    else if (!strcmp(name, "inner"))
        lua_pushcfunction(L, l_inner), errors_guard(L, NULL, false);
    else if (!strcmp(name, "step") && t->matrix)
        lua_pushcfunction(L, l_step), errors_guard(L, NULL, false);
    else
        return false;
    return true;
}

static int l_env_read(lua_State *L)
{
    Trace *t = trace_of(L);
    SpecFile *s = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = lua_tostring(L, 2);
    if (!name)
        return spec_error(L, "a name was expected");
    lua_getfield(L, LUA_REGISTRYINDEX, "optc.builtins");
    if (lua_getfield(L, -1, name) != LUA_TNIL)
        return 1;
    if (t->at < 0) {
        if (!strcmp(name, "p"))
            return lua_pushlightuserdata(L, &mark_p), 1;
        const char *path;
        int line;
        sandbox_where(L, &path, &line);
        int in = spec_of_source(t, path);
        if (declare_named(L, in < 0 ? s : &t->spec[in], name, line))
            return 1;
        return undeclared(L, t, s, name, false);
    }
    if (push_own(L, t, s, name) || push_fixed(L, t, name))
        return 1;
    if (names_has(&s->failed, name, strlen(name)))
        return push_value(L, UNKNOWN), 1;
    return undeclared(L, t, s, name, false);
}

/* The value is made of t, which a wrapper makes differ between tensors. */
static bool of_own_t(Trace *t, Ref r)
{
    const Graph *g = &t->rule->g;
    if (!t->clock.by || g->n[t->clock.t].dom != TENSOR)
        return false;
    bool *of = NEWS(t->arena, bool, r + 1);
    for (Ref i = t->clock.t; i <= r; i++) {
        of[i] = i == t->clock.t;
        for (int k = 0; k < g->n[i].nargs && !of[i]; k++)
            of[i] = of[g->n[i].arg[k]];
    }
    return r >= t->clock.t && of[r];
}

void assign_value(lua_State *L, Trace *t, int i, const char *name, Ref *slot, Dom dom)
{
    const Rule *r = t->rule;
    if (is_value(L, i) && *value_at(L, i) == UNKNOWN) {
        *slot = UNKNOWN;
        return;
    }
    if (lua_isnoneornil(L, i))
        spec_error(
            L, "'%s' cannot take nil: that was never given a value outside of every() and when()",
            name);
    Ref v = lang_arg(L, i, name, 1);
    const Node *n = &r->g.n[v];
    if (n->ty == BOOL)
        spec_error(L, "'%s' cannot hold %s: turn it into numbers with where(c, 1, 0)", name,
                   describe(t, v));
    if (dom_of_block(dom) && trace_sizes(t, v) != NONE)
        n = &r->g.n[v = trace_sizes(t, v)];
    if (dom == GROUP && n->dom == TENSOR && of_own_t(t, v))
        spec_error(L,
                   "'%s' has one value per group, and the wrapper '%s' counts t for each tensor: "
                   "count the steps of "
                   "the group in a state, k = zeros \"group\" and k = k + 1 in step, and write k "
                   "in place of t",
                   name, t->clock.by);
    if (!dom_spreads((Dom)n->dom, dom))
        spec_error(L, "'%s' has one value per %s and cannot take %s: %s", name, dom_info[dom].name,
                   describe(t, v),
                   dom_spreads(dom_transposed((Dom)n->dom), dom) ? "transpose it with .T"
                   : dom_of_block((Dom)n->dom) ? "that belongs to a block of the matrix"
                                               : "reduce it first");
    t->spec[t->at].uses_view |= dom_inside((Dom)n->dom) && n->dom != ELEM;
    /* later reads see the declared domain */
    *slot = n->dom == dom ? v : trace_copy(t, v, dom);
}

static int l_env_write(lua_State *L)
{
    Trace *t = trace_of(L);
    SpecFile *s = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = lua_tostring(L, 2);
    if (!name)
        return spec_error(L, "a name was expected");
    if (t->at < 0)
        return spec_error(L, "'%s' is assigned outside an entry: use 'local' for helpers", name);
    int i = own_state(t, s, name);
    if (!strcmp(name, "p")) {
        Ref was = t->p;
        assign_value(L, t, 3, name, &t->p, t->elem);
        parts_write_p(L, was);
    } else if (!strcmp(name, "g")) {
        if (!s->is_wrapper)
            return spec_error(L, "a rule reads its gradient and does not change it: write 'local "
                                 "grad = …' (wrappers may assign g)");
        assign_value(L, t, 3, name, &t->g, t->elem);
        t->rule->changes_grad = t->spec[t->at].changes_grad = true;
    } else if (i >= 0) {
        i = project_state(L, i);
        assign_value(L, t, 3, name, &t->state[i], t->rule->state[i].dom);
        t->written[i] = true;
    } else if (ring_find(t, s, name) >= 0) {
        return spec_error(L,
                          "'%s' is a ring and cannot be assigned: %s:push(x) adds the newest value",
                          name, name);
    } else if (find_hyper(t, s, name) >= 0) {
        return spec_error(L,
                          "'%s' is a hyperparameter and cannot be assigned: keep what changes in a "
                          "state, such as %s = "
                          "fill(1, \"group\")",
                          name, name);
    } else if (find_input(t, s, name) >= 0 || !strcmp(name, "t")) {
        return spec_error(L, "'%s' is an input and cannot be assigned", name);
    } else if (!names_has(&s->failed, name, strlen(name))) {
        return undeclared(L, t, s, name, true);
    }
    return 0;
}

void make_env(lua_State *L, SpecFile *s)
{
    lua_newtable(L);
    lua_newtable(L);
    lua_pushlightuserdata(L, s);
    lua_pushcclosure(L, l_env_read, 1);
    errors_guard(L, NULL, true);
    lua_setfield(L, -2, "__index");
    lua_pushlightuserdata(L, s);
    lua_pushcclosure(L, l_env_write, 1);
    errors_guard(L, NULL, true);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}

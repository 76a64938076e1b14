/* States: initial values (zeros, fill(c), copy(p), eye(c), normal()), domain, type and least value;
 * and reports (`values`), which are stored like states. */
#include "gen/front/declare.h"
#include "gen/front/matrix_values.h"
#include "gen/front/rings.h"

#include <string.h>

#define INIT "optc.init"
#define NAMED "optc.named"

/* name: of the hyperparameter or option that is the initial value, or (ring < 0) the number of
 * values of a ring */
typedef struct {
    int init; double value; int dom, type; const char *name; bool eye, nonneg; int ring;
} InitValue;

static int push_init(lua_State *L, InitValue v)
{
    *(InitValue *)lua_newuserdatauv(L, sizeof v, 0) = v;
    luaL_setmetatable(L, INIT);
    return 1;
}

static int type_at(lua_State *L, int i)
{
    const char *ty = lua_tostring(L, i);
    int type = ty ? type_by_name(ty) : -1;
    if (type < 0)
        spec_error(L, "'%s' is not a storage type", ty ? ty : luaL_typename(L, i));
    return type;
}

/* { min = 0, type = "f32" } */
static InitValue with_fields(lua_State *L, InitValue v, int table)
{
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        if (!strcmp(key, "type")) {
            v.type = type_at(L, -1);
        } else if (!strcmp(key, "min")) {
            if (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) != 0)
                spec_error(L,
                           "the only least value that a state can declare is 0: zeros { min = 0 }");
            v.nonneg = true;
        } else {
            spec_error(L,
                       "a state has the fields min and type, as in zeros { min = 0, type = \"f32\" "
                       "}; not '%s'",
                       *key ? key : luaL_typename(L, -2));
        }
    }
    if (v.nonneg && (v.init == INIT_COPY_P || v.init == INIT_NORMAL || v.value < 0))
        spec_error(L, "a state that starts %s cannot have min = 0",
                   v.init == INIT_COPY_P   ? "as a copy of p"
                   : v.init == INIT_NORMAL ? "as random values"
                                           : "below 0");
    return v;
}

/* A domain, a storage type and a table of fields may follow, each of them optional. */
static InitValue with_place(lua_State *L, InitValue v, int arg)
{
    if (!lua_isnoneornil(L, arg) && !lua_istable(L, arg)) {
        const char *d = lua_tostring(L, arg);
        v.dom = d ? dom_by_words(d) : -1;
        uint64_t kept = 0;
        for (int k = 0; k < NDOM; k++)
            kept |= (uint64_t)dom_named((Dom)k, false, false) << k;
        if (v.dom < 0)
            spec_error(L, "a state's domain is %s, not %s%s%s",
                       dom_list(trace_of(L)->arena, kept, "\"", " or "), d ? "\"" : "",
                       d ? d : luaL_typename(L, arg), d ? "\"" : "");
    }
    if (!lua_isnoneornil(L, arg + 1) && !lua_istable(L, arg + 1))
        v.type = type_at(L, arg + 1);
    for (int k = arg; k <= arg + 2; k++)
        if (lua_istable(L, k))
            v = with_fields(L, v, k);
    return v;
}

static int l_init_call(lua_State *L)     /* zeros "row" */
{
    return push_init(L, with_place(L, *(InitValue *)luaL_checkudata(L, 1, INIT), 2));
}

/* fill(d0) gets a placeholder for d0: Lua evaluates the fields before d0 is known as a
 * hyperparameter. Arithmetic on the placeholder is an error. */
static const char *const no_sums[] = {"__add", "__sub",  "__mul", "__div", "__pow",
                                      "__unm", "__idiv", "__mod", NULL};

static int l_no_sum(lua_State *L)
{
    return spec_error(L, "a state starts as a number or as a hyperparameter: compute other values "
                         "where the state is "
                         "first read");
}

bool declare_named(lua_State *L, const SpecFile *s, const char *name, int line)
{
    for (const Tok *k = s->tok; k && k->kind != END; k++)
        if (k->line == line && tok_is(k, name) && k > s->tok + 1 && tok_is(k - 1, "(") &&
            (tok_is(k - 2, "fill") || tok_is(k - 2, "eye") || tok_is(k - 2, "ring"))) {
            *(const char **)lua_newuserdatauv(L, sizeof name, 0) =
                arena_strdup(trace_of(L)->arena, name);
            luaL_setmetatable(L, NAMED);
            return true;
        }
    return false;
}

static int l_fill(lua_State *L)
{
    const char **name = luaL_testudata(L, 1, NAMED);
    if (name)
        return push_init(
            L, with_place(L, (InitValue){INIT_HYPER, 0, ELEM, -1, *name, false, false, 0}, 2));
    if (lua_type(L, 1) != LUA_TNUMBER)
        return spec_error(
            L, "fill needs a number or a hyperparameter: fill(1), fill(1, \"tensor\") or fill(d0, "
               "\"group\")");
    return push_init(
        L, with_place(
               L, (InitValue){INIT_FILL, lua_tonumber(L, 1), ELEM, -1, NULL, false, false, 0}, 2));
}

/* eye(eps, "rows"): a state that starts as eps on its diagonal; inside an entry, a value. */
static int l_eye_state(lua_State *L)
{
    if (trace_of(L)->at >= 0)
        return l_eye(L);
    const char **name = luaL_testudata(L, 1, NAMED);
    InitValue v = {name ? INIT_HYPER : INIT_FILL,
                   lua_tonumber(L, 1),
                   ELEM,
                   -1,
                   name ? *name : NULL,
                   true,
                   false,
                   0};
    if (!name && lua_type(L, 1) != LUA_TNUMBER)
        return spec_error(
            L,
            "eye needs the diagonal value and its domain: eye(1, \"rows\") or eye(eps, \"cols\")");
    v = with_place(L, v, 2);
    const Axis *axis = dom_info[v.dom].axis;
    if (!dom_square((Dom)v.dom) || axis[0] != axis[1])
        return spec_error(L, "eye needs the domain of a square value: eye(1, \"rows\"), eye(1, "
                             "\"cols\") or eye(1, \"rank\")");
    return push_init(L, v);
}

/* normal(), normal "rows rank": a state that starts as standard normal draws; inside an entry, a
 * value. */
static int l_normal_state(lua_State *L)
{
    if (trace_of(L)->at >= 0)
        return lang_draw(L, OP_NORMAL);
    InitValue v = with_place(L, (InitValue){INIT_NORMAL, 0, ELEM, -1, NULL, false, false, 0}, 1);
    if (dom_info[v.dom].scope < SCOPE_TENSOR)
        return spec_error(
            L, "normal(\"%s\"): random values start states of tensors only, one draw per value",
            dom_info[v.dom].name);
    return push_init(L, v);
}

static int l_copy(lua_State *L)
{
    if (!lua_islightuserdata(L, 1))
        return spec_error(L, "copy takes p: a state can start as a copy of the parameter");
    return push_init(
        L, with_place(L, (InitValue){INIT_COPY_P, 0, ELEM, -1, NULL, false, false, 0}, 2));
}

/* ring(8), ring(window, "elem"): the number of values is a number or an option. */
static int l_ring(lua_State *L)
{
    const char **name = luaL_testudata(L, 1, NAMED);
    double k = lua_tonumber(L, 1);
    bool fits = k >= 1 && k <= MAX_RING;
    InitValue v = {INIT_FILL,           0,     ELEM,  -1,
                   name ? *name : NULL, false, false, name ? -1 : fits ? (int)k : 0};
    if (!name && (lua_type(L, 1) != LUA_TNUMBER || k != v.ring || !fits))
        return spec_error(L,
                          "ring takes the number of values, from 1 to %d, and a domain: ring(8), "
                          "ring(8, \"row\")",
                          MAX_RING);
    v = with_place(L, v, 2);
    if (v.nonneg)
        return spec_error(L, "a ring has no least value: leave out min = 0");
    const Axis *axis = dom_info[v.dom].axis;
    if (v.dom == GROUP || (dom_square((Dom)v.dom) && axis[0] == axis[1]))
        return spec_error(L,
                          "a ring keeps values of tensors, such as ring(8, \"tensor\") or ring(8): "
                          "not one per %s",
                          dom_info[v.dom].per);
    return push_init(L, v);
}

void state_init_open(lua_State *L)
{
    rings_open(L);
    luaL_newmetatable(L, INIT);
    lua_pushcfunction(L, l_init_call);
    lua_setfield(L, -2, "__call");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_newmetatable(L, NAMED);
    for (const char *const *n = no_sums; *n; n++) {
        lua_pushcfunction(L, l_no_sum);
        lua_setfield(L, -2, *n);
    }
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    push_init(L, (InitValue){INIT_FILL, 0, ELEM, -1, NULL, false, false, 0});
    lua_setfield(L, -2, "zeros");
    lua_pushcfunction(L, l_fill);
    lua_setfield(L, -2, "fill");
    lua_pushcfunction(L, l_copy);
    lua_setfield(L, -2, "copy");
    lua_pushcfunction(L, l_normal_state);
    lua_setfield(L, -2, "normal");
    lua_pushcfunction(L, l_ring);
    lua_setfield(L, -2, "ring");
    lua_pushcfunction(L, l_eye_state);
    lua_setfield(L, -2, "eye");
}

void need_axes(Trace *t, const SpecFile *s, const char *key, Dom d)
{
    if (dom_of_block(d) && !t->rule->block)
        declare_fail(t, s, key,
                     "'%s' has a value for each %s, and the rule has no blocks: say block = 1024, "
                     "or block = the name "
                     "of an option, at the head of the spec",
                     key, dom_info[d].per);
    if (!dom_named(d, t->rule->rank > 0, t->rule->block > 0))
        declare_fail(t, s, key,
                     "'%s' varies along the axis 'rank', which has no length: say rank = 8, or "
                     "rank = the name of an "
                     "option, at the head of the spec",
                     key);
}

/* The initial value is a hyperparameter of the spec, read when tensors are bound, or an option. */
static void start_from(Trace *t, const SpecFile *s, State *st, const char *key, const char *name)
{
    lua_State *L = t->L;
    size_t skip = strlen(s->prefix);
    for (int i = 0; i < s->nhyper; i++)
        if (!strcmp(t->rule->hyper[s->hyper[i]].name + skip, name)) {
            st->hyper = s->hyper[i];
            return;
        }
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
    bool option = lua_getfield(L, -1, name) == LUA_TNUMBER;
    st->init = INIT_FILL;
    st->value = lua_tonumber(L, -1);
    lua_pop(L, 2);
    Near near = {.want = name};
    for (int i = 0; i < s->nhyper && !option; i++)
        near_try(&near, t->rule->hyper[s->hyper[i]].name + skip);
    if (!option)
        declare_fail(t, s, key,
                     "state '%s' starts from '%s', which is no hyperparameter and no option that "
                     "is a number%s",
                     key, name, near_text(&near, t->arena));
}

static void add_state(Trace *t, SpecFile *s, const char *key, State st)
{
    if (t->rule->nstate >= MAX_STATES)
        declare_fail(t, s, st.report ? "values" : "state", "over %d states%s", MAX_STATES,
                     st.report ? " and values" : "");
    st.name = arena_printf(t->arena, "%s%s", s->prefix, key);
    st.file = s->file;
    st.line = field_line(s->text, key);
    s->state[s->nstate++] = t->rule->nstate;
    PUSH(t->arena, t->rule->state, t->rule->nstate, t->rule->state_cap) = st;
}

/* The states of a ring, s_0 … s_7; st: the first without name, ring and age. */
static void declare_ring(Trace *t, SpecFile *s, const char *key, const InitValue *v, State st)
{
    State from = st;
    if (v->name)
        start_from(t, s, &from, key, v->name);
    bool fits = from.value >= 1 && from.value <= MAX_RING;
    st.ring = !v->name ? v->ring : fits ? (int)from.value : 0;
    if (from.hyper >= 0)
        declare_fail(t, s, key,
                     "ring '%s': '%s' is a hyperparameter: the number of values must be an option",
                     key, v->name);
    if (v->name && st.ring != from.value)
        declare_fail(t, s, key,
                     "ring '%s': '%s' is %.9g: the number of values is a whole number from 1 to %d",
                     key, v->name, from.value, MAX_RING);
    for (st.age = 0; st.age < st.ring; st.age++) {
        const char *name = arena_printf(t->arena, "%s_%d", key, st.age);
        check_name(t, s, name, "state");
        add_state(t, s, name, st);
        t->rule->state[t->rule->nstate - 1].line = field_line(s->text, key);
    }
}

void declare_state(Trace *t, SpecFile *s, const char *key)
{
    check_name(t, s, key, "state");
    const InitValue *v = luaL_testudata(t->L, -1, INIT);
    if (!v)
        declare_fail(t, s, key,
                     "state '%s' must be zeros, fill(c), copy(p), normal(), ring(n) or eye(c, "
                     "\"rows\"), with a domain "
                     "where it is not per element: zeros \"row\"",
                     key);
    if (v->init == INIT_COPY_P && v->dom != ELEM)
        declare_fail(t, s, key, "state '%s': a copy of p has one value per element", key);
    Dom d = trace_dom(t, (Dom)v->dom);
    need_axes(t, s, key, d);
    State st = {.dom = d,
                .type = v->type,
                .init = (Init)v->init,
                .value = v->value,
                .hyper = -1,
                .eye = v->eye,
                .nonneg = v->nonneg};
    if (v->init == INIT_NORMAL)
        st.hyper = trace_seed(t);
    if (v->ring) {
        declare_ring(t, s, key, v, st);
        return;
    }
    if (v->name)
        start_from(t, s, &st, key, v->name);
    add_state(t, s, key, st);
}

/* A report: a state that the rule writes and never reads. */
void declare_value(Trace *t, SpecFile *s, const char *key)
{
    lua_State *L = t->L;
    check_name(t, s, key, "value");
    int dom = lua_type(L, -1) == LUA_TSTRING ? dom_by_words(lua_tostring(L, -1)) : -1;
    if (dom < 0)
        declare_fail(t, s, key,
                     "value '%s' must name the domain it is read by: %s = \"group\", or \"tensor\"",
                     key, key);
    dom = (int)trace_dom(t, (Dom)dom);
    need_axes(t, s, key, (Dom)dom);
    add_state(t, s, key,
              (State){.dom = (Dom)dom, .type = -1, .init = INIT_FILL, .report = true, .hyper = -1});
}

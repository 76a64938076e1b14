/* The fields of a spec become hyperparameters, options, states and inputs of the rule. */
#include "trace.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INIT "optc.init"
#define NAMED "optc.named"

typedef struct { int init; double value; int dom, type; const char *name; } InitValue;     /* name: of a hyperparameter or option */

static const char *const known_fields[] = {"name",   "cite",  "doc",  "hyper", "options", "args",
                                           "inputs", "state", "values", "view", "step", "matrix", NULL};
static const char *const reserved[] = {"p", "g", "t", "numel", "nrows", "ncols", "inner", "every", "when",
                                       "stored", "seed", NULL};

/* The line on which `key =` stands in the spec, so that a message about a field points at it; 1 when it is not found. */
static int field_line(const char *text, const char *key)
{
    size_t n = strlen(key);
    int line = 1;
    for (const char *s = text; *s; s++) {
        if (s[0] == '-' && s[1] == '-')                   /* a comment is not a field */
            s += strcspn(s, "\n");
        if (!*s)
            break;
        if (*s == '\n')
            line++;
        if (strncmp(s, key, n) || (s > text && (isalnum((unsigned char)s[-1]) || s[-1] == '_' || s[-1] == '.')))
            continue;
        const char *e = s + n;
        e += strspn(e, " \t");
        if (*e == '=' && e[1] != '=')
            return line;
    }
    return 1;
}

static void fail(Trace *t, const SpecFile *s, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void fail(Trace *t, const SpecFile *s, const char *key, const char *fmt, ...)
{
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    int line = key ? field_line(s->text, key) : 1;
    if (buf_text(&b))
        diag_set(t->diag, s->path, line, s->text, "%s", buf_text(&b));
    else
        diag_memory(t->diag);
    buf_free(&b);
    lua_pushliteral(t->L, "spec error");
    lua_error(t->L);
}

static int push_init(lua_State *L, InitValue v)
{
    *(InitValue *)lua_newuserdatauv(L, sizeof v, 0) = v;
    luaL_setmetatable(L, INIT);
    return 1;
}

static InitValue with_place(lua_State *L, InitValue v, int arg)
{
    if (!lua_isnoneornil(L, arg)) {
        const char *d = lua_tostring(L, arg);
        v.dom = d ? dom_by_name(d) : -1;
        unsigned kept = 0;
        for (int k = 0; k < NDOM; k++)
            kept |= (unsigned)!dom_fixed((Dom)k) << k;
        if (v.dom < 0 || !(kept >> v.dom & 1))
            spec_error(L, "a state's domain is %s, not %s%s%s", dom_list(trace_of(L)->arena, kept, "\"", " or "),
                       d ? "\"" : "", d ? d : luaL_typename(L, arg), d ? "\"" : "");
    }
    if (!lua_isnoneornil(L, arg + 1)) {
        const char *ty = lua_tostring(L, arg + 1);
        v.type = ty ? type_by_name(ty) : -1;
        if (v.type < 0)
            spec_error(L, "'%s' is not a storage type", ty ? ty : luaL_typename(L, arg + 1));
    }
    return v;
}

static int l_init_call(lua_State *L)     /* zeros "row" */
{
    return push_init(L, with_place(L, *(InitValue *)luaL_checkudata(L, 1, INIT), 2));
}

/* What fill(d0) is handed: the fields are read before anybody knows that d0 is a hyperparameter. */
static const char *const no_sums[] = {"__add", "__sub", "__mul", "__div", "__pow", "__unm", "__idiv", "__mod", NULL};

static int l_no_sum(lua_State *L)
{
    return spec_error(L, "a state starts as a number, or as a hyperparameter is: compute with it where it is first read");
}

bool declare_named(lua_State *L, const SpecFile *s, const char *name, int line)
{
    for (const Tok *k = s->tok; k && k->kind != END; k++)
        if (k->line == line && tok_is(k, name) && k > s->tok + 1 && tok_is(k - 1, "(") && tok_is(k - 2, "fill")) {
            *(const char **)lua_newuserdatauv(L, sizeof name, 0) = arena_strdup(trace_of(L)->arena, name);
            luaL_setmetatable(L, NAMED);
            return true;
        }
    return false;
}

static int l_fill(lua_State *L)
{
    const char **name = luaL_testudata(L, 1, NAMED);
    if (name)
        return push_init(L, with_place(L, (InitValue){INIT_HYPER, 0, ELEM, -1, *name}, 2));
    if (lua_type(L, 1) != LUA_TNUMBER)
        return spec_error(L, "fill needs a number or a hyperparameter: fill(1), fill(1, \"tensor\") or fill(d0, \"group\")");
    return push_init(L, with_place(L, (InitValue){INIT_FILL, lua_tonumber(L, 1), ELEM, -1, NULL}, 2));
}

static int l_copy(lua_State *L)
{
    if (!lua_islightuserdata(L, 1))
        return spec_error(L, "copy takes p: a state can start as a copy of the parameter");
    return push_init(L, with_place(L, (InitValue){INIT_COPY_P, 0, ELEM, -1, NULL}, 2));
}

static int l_spec(lua_State *L)          /* optimizer { … } and wrapper { … } */
{
    const char *kind = lua_tostring(L, lua_upvalueindex(1));
    if (lua_type(L, 1) != LUA_TTABLE || lua_gettop(L) != 1)
        return spec_error(L, "%s takes one table: return %s { name = …, step = function() … end }", kind, kind);
    lua_pushstring(L, kind);
    lua_rawsetp(L, 1, &known_fields);    /* a key no spec can write */
    return 1;
}

void declare_open(lua_State *L)
{
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
    push_init(L, (InitValue){INIT_FILL, 0, ELEM, -1, NULL});
    lua_setfield(L, -2, "zeros");
    lua_pushcfunction(L, l_fill);
    lua_setfield(L, -2, "fill");
    lua_pushcfunction(L, l_copy);
    lua_setfield(L, -2, "copy");
    static const char *const kinds[] = {"optimizer", "wrapper"};
    for (int i = 0; i < 2; i++) {
        lua_pushstring(L, kinds[i]);
        lua_pushcclosure(L, l_spec, 1);
        lua_setfield(L, -2, kinds[i]);
    }
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* String keys of the table on top, sorted: nothing downstream depends on the order of a Lua table. */
static const char **sorted_keys(Trace *t, const SpecFile *s, const char *field, int *n)
{
    lua_State *L = t->L;
    const char **v = NULL;
    int cap = 0;
    *n = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            fail(t, s, field, "'%s' holds an entry without a name: write %s = { name = value, … }", field, field);
        if (*n >= MAX_HYPERS)
            fail(t, s, field, "'%s' has over %d entries", field, MAX_HYPERS);
        PUSH(t->arena, v, *n, cap) = arena_strdup(t->arena, lua_tostring(L, -2));
    }
    if (*n)
        qsort(v, (size_t)*n, sizeof *v, by_name);
    return v;
}

static bool listed(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (!strcmp(*list, name))
            return true;
    return false;
}

static void check_name(Trace *t, const SpecFile *s, const char *name, const char *what)
{
    if (!is_ident(name))
        fail(t, s, name, "%s '%s' is not an identifier of at most 40 letters, digits and _", what, name);
    lua_getfield(t->L, LUA_REGISTRYINDEX, "optc.builtins");
    bool builtin = lua_getfield(t->L, -1, name) != LUA_TNIL;
    lua_pop(t->L, 2);
    if (builtin || listed(reserved, name))
        fail(t, s, name, "%s '%s' takes a name the language uses itself", what, name);
    const char *full = arena_printf(t->arena, "%s%s", s->prefix, name);
    const Rule *r = t->rule;
    bool taken = false;
    for (int i = 0; i < r->nhyper; i++)
        taken = taken || !strcmp(r->hyper[i].name, full);
    for (int i = 0; i < r->nstate; i++)
        taken = taken || !strcmp(r->state[i].name, full);
    for (int i = 0; i < r->ninput; i++)
        taken = taken || !strcmp(r->input[i].name, full);
    for (int i = 0; i < r->noption; i++)
        taken = taken || !strcmp(r->option[i].name, full);
    if (taken)
        fail(t, s, name, "%s '%s': the name is declared twice", what, name);
}

/* Opens a table field; false if it is absent. */
static bool open_field(Trace *t, const SpecFile *s, const char *field)
{
    int ty = lua_getfield(t->L, -1, field);
    if (ty == LUA_TNIL) {
        lua_pop(t->L, 1);
        return false;
    }
    if (ty != LUA_TTABLE)
        fail(t, s, field, "'%s' must be a table, not a %s", field, lua_typename(t->L, ty));
    return true;
}

static double number_field(Trace *t, const SpecFile *s, const char *name, const char *key, double def)
{
    lua_State *L = t->L;
    int ty = lua_getfield(L, -1, key);
    double x = def;
    if (ty == LUA_TNUMBER)
        x = lua_tonumber(L, -1);
    else if (ty != LUA_TNIL)
        fail(t, s, name, "hyperparameter '%s': %s must be a number, not a %s", name, key, lua_typename(L, ty));
    lua_pop(L, 1);
    return x;
}

static void declare_hyper(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    if (!open_field(t, s, "hyper"))
        return;
    int n;
    const char **key = sorted_keys(t, s, "hyper", &n);
    s->hyper = NEWS(t->arena, int, n + 1);
    for (int i = 0; i < n; i++) {
        check_name(t, s, key[i], "hyperparameter");
        Hyper h = {arena_printf(t->arena, "%s%s", s->prefix, key[i]), 0, -INFINITY, INFINITY, true, true};
        int ty = lua_getfield(L, -1, key[i]);
        if (ty == LUA_TNUMBER) {
            h.def = lua_tonumber(L, -1);
        } else if (ty == LUA_TTABLE) {
            lua_rawgeti(L, -1, 1);
            if (lua_type(L, -1) != LUA_TNUMBER)
                fail(t, s, key[i], "hyperparameter '%s' needs its default first: { 0.9, min = 0, max = 1 }", key[i]);
            h.def = lua_tonumber(L, -1);
            lua_pop(L, 1);
            for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
                static const char *const keys[] = {"min", "max", "above", "below", NULL};
                bool first = lua_isinteger(L, -2) && lua_tointeger(L, -2) == 1;
                if (!first && !(lua_type(L, -2) == LUA_TSTRING && listed(keys, lua_tostring(L, -2))))
                    fail(t, s, key[i], "hyperparameter '%s' knows min, max, above and below beside its default",
                         key[i]);
            }
            double above = number_field(t, s, key[i], "above", NAN), below = number_field(t, s, key[i], "below", NAN);
            bool twice = (!isnan(above) && !isnan(number_field(t, s, key[i], "min", NAN))) ||
                         (!isnan(below) && !isnan(number_field(t, s, key[i], "max", NAN)));
            if (twice)
                fail(t, s, key[i], "hyperparameter '%s' has two ends on one side: min or above, max or below", key[i]);
            double least = number_field(t, s, key[i], "min", NAN), most = number_field(t, s, key[i], "max", NAN);
            /* an end left out is an infinity that does not belong to the range; max = inf is one that does */
            h.lo_open = isnan(least);
            h.hi_open = isnan(most);
            h.lo = !isnan(above) ? above : h.lo_open ? -INFINITY : least;
            h.hi = !isnan(below) ? below : h.hi_open ? INFINITY : most;
        } else {
            fail(t, s, key[i], "hyperparameter '%s' must be a number or { default, min = …, max = … }", key[i]);
        }
        lua_pop(L, 1);
        if (!hyper_allows(&h, h.def))
            fail(t, s, key[i], "the default %g of hyperparameter '%s' lies outside its range %s", h.def, key[i],
                 hyper_range(&h, (char[64]){0}));
        s->hyper[s->nhyper++] = t->rule->nhyper;
        PUSH(t->arena, t->rule->hyper, t->rule->nhyper, t->rule->hyper_cap) = h;
    }
    lua_pop(L, 1);
}

/* A state that starts as a hyperparameter of its spec is when tensors are bound, or as an option. */
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
        fail(t, s, key, "state '%s' starts from '%s', which is no hyperparameter and no option that is a number%s", key,
             name, near_text(&near, t->arena));
}

static void declare_state(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    if (!open_field(t, s, "state"))
        return;
    int n;
    const char **key = sorted_keys(t, s, "state", &n);
    s->state = NEWS(t->arena, int, n + 1);
    if (t->rule->nstate + n > MAX_STATES)
        fail(t, s, "state", "over %d states", MAX_STATES);
    for (int i = 0; i < n; i++) {
        check_name(t, s, key[i], "state");
        lua_getfield(L, -1, key[i]);
        InitValue *v = luaL_testudata(L, -1, INIT);
        if (!v)
            fail(t, s, key[i],
                 "state '%s' must be zeros, fill(c) or copy(p), with a domain where it is not per element: zeros "
                 "\"row\"",
                 key[i]);
        if (v->init == INIT_COPY_P && v->dom != ELEM)
            fail(t, s, key[i], "state '%s': a copy of p has one value per element", key[i]);
        State st = {arena_printf(t->arena, "%s%s", s->prefix, key[i]), (Dom)v->dom, v->type, (Init)v->init, v->value,
                    s->file, field_line(s->text, key[i]), false, -1};
        if (v->name)
            start_from(t, s, &st, key[i], v->name);
        lua_pop(L, 1);
        s->state[s->nstate++] = t->rule->nstate;
        PUSH(t->arena, t->rule->state, t->rule->nstate, t->rule->state_cap) = st;
    }
    lua_pop(L, 1);
}

/* Values for the reader: states that nobody reads inside. */
static void declare_values(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    if (!open_field(t, s, "values"))
        return;
    int n;
    const char **key = sorted_keys(t, s, "values", &n);
    int *all = NEWS(t->arena, int, s->nstate + n + 1);
    for (int i = 0; i < s->nstate; i++)
        all[i] = s->state[i];
    s->state = all;
    if (t->rule->nstate + n > MAX_STATES)
        fail(t, s, "values", "over %d states and values", MAX_STATES);
    for (int i = 0; i < n; i++) {
        check_name(t, s, key[i], "value");
        lua_getfield(L, -1, key[i]);
        int dom = lua_type(L, -1) == LUA_TSTRING ? dom_by_name(lua_tostring(L, -1)) : -1;
        if (dom < 0 || dom_fixed((Dom)dom))
            fail(t, s, key[i], "value '%s' must name the domain it is read by: %s = \"group\", or \"tensor\"", key[i],
                 key[i]);
        lua_pop(L, 1);
        State st = {arena_printf(t->arena, "%s%s", s->prefix, key[i]), (Dom)dom, -1, INIT_FILL, 0, s->file,
                    field_line(s->text, key[i]), true, -1};
        s->state[s->nstate++] = t->rule->nstate;
        PUSH(t->arena, t->rule->state, t->rule->nstate, t->rule->state_cap) = st;
    }
    lua_pop(L, 1);
}

static void declare_inputs(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    if (!open_field(t, s, "inputs"))
        return;
    int n;
    const char **key = sorted_keys(t, s, "inputs", &n);
    s->input = NEWS(t->arena, int, n + 1);
    for (int i = 0; i < n; i++) {
        check_name(t, s, key[i], "input");
        int ty = lua_getfield(L, -1, key[i]);
        int dom = ty == LUA_TSTRING ? dom_by_name(lua_tostring(L, -1)) : -1;
        unsigned given = 0;
        for (int d = 0; d < NDOM; d++)
            given |= (unsigned)(!dom_fixed((Dom)d) && d != SLICE) << d;
        if (dom < 0 || !(given >> dom & 1))
            fail(t, s, key[i], "input '%s' must name its domain: %s", key[i],
                 dom_list(t->arena, given, "\"", " or "));
        lua_pop(L, 1);
        s->input[s->ninput++] = t->rule->ninput;
        PUSH(t->arena, t->rule->input, t->rule->ninput, t->rule->input_cap) =
            (Input){arena_printf(t->arena, "%s%s", s->prefix, key[i]), (Dom)dom};
    }
    lua_pop(L, 1);
}

/* Pushes the default of the option on top (a list of strings stands for its first). */
static void option_default(Trace *t, const SpecFile *s, const char *key)
{
    lua_State *L = t->L;
    if (lua_type(L, -1) == LUA_TTABLE) {
        lua_rawgeti(L, -1, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            fail(t, s, key, "option '%s': a list must hold strings, the default first", key);
        return;
    }
    int ty = lua_type(L, -1);
    if (ty != LUA_TBOOLEAN && ty != LUA_TNUMBER && ty != LUA_TSTRING)
        fail(t, s, key, "option '%s' must be true, false, a number, a string or a list of strings", key);
    lua_pushvalue(L, -1);
}

/* Replaces the default on top by what the user gave. The declared value lies below it. */
static void option_given(Trace *t, const SpecFile *s, const char *key, const char *text)
{
    lua_State *L = t->L;
    char *end;
    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
        if (strcmp(text, "true") && strcmp(text, "false"))
            fail(t, s, key, "option '%s' is true or false, not '%s'", key, text);
        lua_pushboolean(L, text[0] == 't');
        break;
    case LUA_TNUMBER: {
        double x = strtod(text, &end);
        if (end == text || *end || !isfinite(x))
            fail(t, s, key, "option '%s' is a number, not '%s'", key, text);
        if (lua_isinteger(L, -1) && x != floor(x))
            fail(t, s, key, "option '%s' is a whole number, not '%s'", key, text);
        if (x == floor(x) && fabs(x) < 1e15)
            lua_pushinteger(L, (lua_Integer)x);
        else
            lua_pushnumber(L, x);
        break;
    }
    default:
        if (lua_type(L, -2) == LUA_TTABLE) {
            Buf all = {.arena = t->arena};
            bool found = false;
            for (int i = 1; lua_rawgeti(L, -2, i) == LUA_TSTRING; i++, lua_pop(L, 1)) {
                found = found || !strcmp(lua_tostring(L, -1), text);
                buf_printf(&all, "%s%s", i > 1 ? ", " : "", lua_tostring(L, -1));
            }
            lua_pop(L, 1);
            if (!found)
                fail(t, s, key, "option '%s' is one of %s, not '%s'", key, buf_text(&all), text);
        }
        lua_pushstring(L, text);
    }
    lua_remove(L, -2);
}

static const char *given(const Arg *arg, int n, const char *key)
{
    for (int i = n - 1; i >= 0; i--)
        if (arg[i].key && !strcmp(arg[i].key, key))
            return arg[i].value;
    return NULL;
}

/* The option's value as text, for the rule's record and its hash. */
static const char *option_text(Trace *t)
{
    lua_State *L = t->L;
    if (lua_type(L, -1) == LUA_TBOOLEAN)
        return lua_toboolean(L, -1) ? "true" : "false";
    const char *text = arena_strdup(t->arena, luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    return strlen(text) > MAX_TEXT ? NULL : text;
}

static void declare_options(Trace *t, SpecFile *s, const Arg *arg, int narg)
{
    lua_State *L = t->L;
    lua_newtable(L);
    s->opts = luaL_ref(L, LUA_REGISTRYINDEX);
    if (!open_field(t, s, "options"))
        return;
    int n;
    const char **key = sorted_keys(t, s, "options", &n);
    for (int i = 0; i < n; i++) {
        check_name(t, s, key[i], "option");
        lua_getfield(L, -1, key[i]);                     /* … options declared */
        option_default(t, s, key[i]);                    /* … options declared value */
        const char *text = given(arg, narg, key[i]);
        if (text)
            option_given(t, s, key[i], text);
        const char *value = option_text(t);
        if (!value)
            fail(t, s, key[i], "option '%s' is over %d bytes long", key[i], MAX_TEXT);
        PUSH(t->arena, t->rule->option, t->rule->noption,
             t->rule->option_cap) = (Option){arena_printf(t->arena, "%s%s", s->prefix, key[i]), value};
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
        lua_insert(L, -2);
        lua_setfield(L, -2, key[i]);
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

/* Positional arguments get the names that `args` lists. */
static void name_args(Trace *t, const SpecFile *s, Arg *arg, int narg)
{
    lua_State *L = t->L;
    bool has = open_field(t, s, "args");
    int n = has ? (int)lua_rawlen(L, -1) : 0;
    for (int i = 0; i < narg; i++) {
        if (arg[i].key)
            continue;
        if (i >= n)
            fail(t, s, "args", "%s takes %d positional argument%s, got %d", s->name, n, n == 1 ? "" : "s", narg);
        if (lua_rawgeti(L, -1, i + 1) != LUA_TSTRING)
            fail(t, s, "args", "'args' must list names of hyperparameters and options");
        arg[i].key = arena_strdup(t->arena, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    if (has)
        lua_pop(L, 1);
}

/* Every argument must have found a hyperparameter or an option; hyperparameters take it as their default. */
static void apply_args(Trace *t, SpecFile *s, const Arg *arg, int narg)
{
    size_t skip = strlen(s->prefix);
    for (int i = 0; i < narg; i++) {
        Near near = {.want = arg[i].key};
        bool found = false;
        for (int k = 0; k < s->nhyper && !found; k++) {
            Hyper *h = &t->rule->hyper[s->hyper[k]];
            if (s->is_wrapper)
                near_try(&near, h->name + skip);
            if (strcmp(h->name + skip, arg[i].key))
                continue;
            if (!s->is_wrapper)
                fail(t, s, arg[i].key,
                     "'%s' is a hyperparameter, not an option: it is set when tensors are bound, and may change at "
                     "every step",
                     arg[i].key);
            char *end;
            h->def = strtod(arg[i].value, &end);
            if (end == arg[i].value || *end || isnan(h->def))
                fail(t, s, arg[i].key, "hyperparameter '%s' is a number, not '%s'", arg[i].key, arg[i].value);
            if (!hyper_allows(h, h->def))
                fail(t, s, arg[i].key, "%s = %s lies outside the range %s", h->name, arg[i].value,
                     hyper_range(h, (char[64]){0}));
            found = true;
        }
        lua_rawgeti(t->L, LUA_REGISTRYINDEX, s->opts);
        for (lua_pushnil(t->L); lua_next(t->L, -2); lua_pop(t->L, 1)) {
            const char *name = arena_strdup(t->arena, lua_tostring(t->L, -2));
            near_try(&near, name);
            found = found || !strcmp(name, arg[i].key);
        }
        lua_pop(t->L, 1);
        if (!found)
            fail(t, s, s->is_wrapper ? "hyper" : "options", "%s has no %s '%s'%s", s->name,
                 s->is_wrapper ? "hyperparameter or option" : "option", arg[i].key, near_text(&near, t->arena));
    }
}

static const char *text_field(Trace *t, const SpecFile *s, const char *key)
{
    int ty = lua_getfield(t->L, -1, key);
    if (ty != LUA_TNIL && ty != LUA_TSTRING)
        fail(t, s, key, "'%s' must be a string", key);
    const char *x = ty == LUA_TSTRING ? arena_strdup(t->arena, lua_tostring(t->L, -1)) : "";
    lua_pop(t->L, 1);
    if (strlen(x) > MAX_TEXT)
        fail(t, s, key, "'%s' is over %d bytes long", key, MAX_TEXT);
    return x;
}

static void check_fields(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    lua_rawgetp(L, -1, &known_fields);
    const char *kind = lua_tostring(L, -1);
    if (!kind)
        fail(t, s, NULL, "the spec must return optimizer { … } or wrapper { … }");
    bool wrapper = !strcmp(kind, "wrapper");
    lua_pop(L, 1);
    if (wrapper != s->is_wrapper) {
        const char *name = wrapper ? text_field(t, s, "name") : s->name;
        fail(t, s, "name",
             wrapper ? "this is a wrapper: put it around a rule with --with %s"
                     : "%s is an optimizer, not a wrapper: it cannot stand in --with",
             name);
    }
    lua_pushnil(L);
    lua_rawsetp(L, -2, &known_fields);
    int n;
    const char **key = sorted_keys(t, s, "optimizer", &n);
    for (int i = 0; i < n; i++) {
        bool fn = lua_getfield(L, -1, key[i]) == LUA_TFUNCTION;
        lua_pop(L, 1);
        bool entry = !strcmp(key[i], "step") || !strcmp(key[i], "matrix");
        if (entry && !fn)
            fail(t, s, key[i], "'%s' must be a function", key[i]);
        if (listed(known_fields, key[i]))
            continue;
        Near near = {.want = key[i]};
        for (const char *const *k = known_fields; *k; k++)
            near_try(&near, *k);
        if (!fn)
            fail(t, s, key[i], "a spec has no field '%s'%s", key[i], near_text(&near, t->arena));
        if (!is_ident(key[i]))
            fail(t, s, NULL, "'%s' cannot name an entry", key[i]);
    }
    if (lua_getfield(L, -1, "step") == LUA_TNIL)
        fail(t, s, NULL, "the spec has no 'step' function");
    lua_pop(L, 1);
}

/* ema. for the first wrapper of that name, ema2. for the second: inner ones are declared first. A name of the library is
 * what its file is called, a file by its path is known by the name it says. */
static void make_prefix(Trace *t, SpecFile *s)
{
    int same = 1;
    if (s->wrap->file) {
        s->wrap->name = s->name;
        s->wrap->file = false;
    }
    for (const SpecFile *in = s + 1; in < t->spec + t->nspec - 1; in++)
        same += !strcmp(in->wrap->name, s->wrap->name);
    s->prefix = same == 1 ? arena_printf(t->arena, "%s.", s->wrap->name)
                          : arena_printf(t->arena, "%s%d.", s->wrap->name, same);
}

void declare_spec(Trace *t, SpecFile *s, const char *options)
{
    lua_State *L = t->L;
    if (lua_type(L, -1) != LUA_TTABLE)
        fail(t, s, NULL, "the spec must return optimizer { … } or wrapper { … }, not a %s", luaL_typename(L, -1));
    check_fields(t, s);
    const char *name = text_field(t, s, "name");
    if (!is_ident(name))
        fail(t, s, "name", "'name' must be an identifier, such as name = \"adamw\"");
    s->name = name;
    if (s->wrap) {
        make_prefix(t, s);
    } else {
        t->rule->name = name;
        t->rule->cite = text_field(t, s, "cite");
        t->rule->doc = text_field(t, s, "doc");
    }
    const char *view = text_field(t, s, "view");
    s->view = !strcmp(view, "last") ? VIEW_LAST : VIEW_FIRST;
    if (*view && strcmp(view, "last") && strcmp(view, "first"))
        fail(t, s, "view", "'view' is \"first\" or \"last\", not \"%s\"", view);
    int narg = s->wrap ? s->wrap->narg : 0;
    Arg *arg = NEWS(t->arena, Arg, narg + 1);              /* they get names; what was asked for stays as it was said */
    if (narg)
        memcpy(arg, s->wrap->arg, sizeof *arg * (size_t)narg);
    if (options && !args_parse(t->arena, options, &arg, &narg, t->diag, "options")) {
        lua_pushliteral(L, "spec error");
        lua_error(L);
    }
    for (int i = 0; options && i < narg; i++)
        if (!arg[i].key)
            fail(t, s, "options", "options are given as name=value, not '%s'", arg[i].value);
    name_args(t, s, arg, narg);
    declare_options(t, s, arg, narg);
    declare_hyper(t, s);
    declare_state(t, s);
    declare_values(t, s);
    declare_inputs(t, s);
    apply_args(t, s, arg, narg);
    s->table = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* Options of a spec, their values from the user, and the arguments of a wrapper. */
#include "gen/front/declare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pushes the default of the option on top; the default of a list of strings is its first. */
static void option_default(Trace *t, const SpecFile *s, const char *key)
{
    lua_State *L = t->L;
    if (lua_type(L, -1) == LUA_TTABLE) {
        lua_rawgeti(L, -1, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            declare_fail(t, s, key, "option '%s': a list must hold strings, the default first",
                         key);
        return;
    }
    int ty = lua_type(L, -1);
    if (ty != LUA_TBOOLEAN && ty != LUA_TNUMBER && ty != LUA_TSTRING)
        declare_fail(t, s, key,
                     "option '%s' must be true, false, a number, a string or a list of strings",
                     key);
    lua_pushvalue(L, -1);
}

/* Replaces the default on top by the user's value. The declared value is below it on the stack. */
static void option_given(Trace *t, const SpecFile *s, const char *key, const char *text)
{
    lua_State *L = t->L;
    char *end;
    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
        if (strcmp(text, "true") && strcmp(text, "false"))
            declare_fail(t, s, key, "option '%s' is true or false, not '%s'", key, text);
        lua_pushboolean(L, text[0] == 't');
        break;
    case LUA_TNUMBER: {
        double x = strtod(text, &end);
        if (end == text || *end || !isfinite(x))
            declare_fail(t, s, key, "option '%s' is a number, not '%s'", key, text);
        if (lua_isinteger(L, -1) && x != floor(x))
            declare_fail(t, s, key, "option '%s' is a whole number, not '%s'", key, text);
        /* as the default: the same value then has the same text */
        if (lua_isinteger(L, -1) && fabs(x) < 1e15)
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
                declare_fail(t, s, key, "option '%s' is one of %s, not '%s'", key, buf_text(&all),
                             text);
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

/* The option's value as text, for the rule's record and its hash. Reading the text gives the same
 * value. */
static const char *option_text(Trace *t)
{
    lua_State *L = t->L;
    if (lua_type(L, -1) == LUA_TBOOLEAN)
        return lua_toboolean(L, -1) ? "true" : "false";
    const char *text = arena_strdup(t->arena, luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    /* Lua prints 14 digits */
    if (lua_type(L, -1) == LUA_TNUMBER && strtod(text, NULL) != lua_tonumber(L, -1))
        text = arena_printf(t->arena, "%.17g", lua_tonumber(L, -1));
    return strlen(text) > MAX_TEXT ? NULL : text;
}

/* The strings of a list, one per line; NULL: the declared value, below the default, is no list. */
static const char *option_choices(Trace *t)
{
    lua_State *L = t->L;
    if (lua_type(L, -2) != LUA_TTABLE)
        return NULL;
    Buf all = {.arena = t->arena};
    for (int i = 1; lua_rawgeti(L, -2, i) == LUA_TSTRING; i++, lua_pop(L, 1))
        buf_printf(&all, "%s%s", i > 1 ? "\n" : "", lua_tostring(L, -1));
    lua_pop(L, 1);
    return buf_text(&all);
}

void declare_option(Trace *t, SpecFile *s, const char *key)
{
    lua_State *L = t->L;
    check_name(t, s, key, "option");
    option_default(t, s, key);                             /* declared, value */
    int type = lua_type(L, -1);
    OptionKind kind = type == LUA_TBOOLEAN  ? OPTION_FLAG
                      : type == LUA_TNUMBER ? OPTION_NUMBER
                                            : OPTION_TEXT;
    const char *def = option_text(t), *choices = option_choices(t);
    const char *text = given(s->arg, s->narg, key);
    if (text)
        option_given(t, s, key, text);
    const char *value = option_text(t);
    if (!value)
        declare_fail(t, s, key, "option '%s' is over %d bytes long", key, MAX_TEXT);
    PUSH(t->arena, t->rule->option, t->rule->noption, t->rule->option_cap) =
        (Option){arena_printf(t->arena, "%s%s", s->prefix, key), value, def, choices, kind};
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
    lua_insert(L, -2);
    lua_setfield(L, -2, key);
}

/* Positional arguments get the names that `args` lists. */
void name_args(Trace *t, const SpecFile *s, Arg *arg, int narg)
{
    lua_State *L = t->L;
    bool has = open_field(t, s, "args");
    int n = has ? (int)lua_rawlen(L, -1) : 0;
    for (int i = 0; i < narg; i++) {
        if (arg[i].key)
            continue;
        if (i >= n)
            declare_fail(t, s, "args", "%s takes %d positional argument%s, got %d", s->name, n,
                         n == 1 ? "" : "s", narg);
        if (lua_rawgeti(L, -1, i + 1) != LUA_TSTRING)
            declare_fail(t, s, "args", "'args' must list names of hyperparameters and options");
        arg[i].key = arena_strdup(t->arena, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    if (has)
        lua_pop(L, 1);
}

/* Every argument must name a hyperparameter or an option. For a hyperparameter it becomes the
 * default. */
void apply_args(Trace *t, SpecFile *s, const Arg *arg, int narg)
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
                declare_fail(t, s, arg[i].key,
                             "'%s' is a hyperparameter, not an option: it is set when tensors are "
                             "bound, and may change at "
                             "every step",
                             arg[i].key);
            char *end;
            h->def = strtod(arg[i].value, &end);
            if (end == arg[i].value || *end || isnan(h->def))
                declare_fail(t, s, arg[i].key, "hyperparameter '%s' is a number, not '%s'",
                             arg[i].key, arg[i].value);
            if (!hyper_allows(h, h->def))
                declare_fail(t, s, arg[i].key, "%s = %s is outside the range %s", h->name,
                             arg[i].value, hyper_range(h, (char[64]){0}));
            found = true;
        }
        lua_rawgeti(t->L, LUA_REGISTRYINDEX, s->opts);
        for (lua_pushnil(t->L); lua_next(t->L, -2); lua_pop(t->L, 1)) {
            const char *name = arena_strdup(t->arena, lua_tostring(t->L, -2));
            near_try(&near, name);
            found = found || !strcmp(name, arg[i].key);
        }
        lua_pop(t->L, 1);
        if (!found && !names_has(&s->failed, arg[i].key, strlen(arg[i].key)))
            declare_fail(t, s, s->is_wrapper ? "hyper" : "options", "%s has no %s '%s'%s", s->name,
                         s->is_wrapper ? "hyperparameter or option" : "option", arg[i].key,
                         near_text(&near, t->arena));
    }
}


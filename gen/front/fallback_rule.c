/* Fallback rules: with step = rule "adamw", another rule of the library steps the tensors that are
 * no matrices. It is a separate spec beside the chain of wrappers: its hyperparameters, states and
 * options have its name as prefix, and its queries use its own view. If it has a `matrix` itself,
 * that function steps the matrices passed on with step(). */
#include "gen/front/declare.h"

#include <string.h>

#define RULE "optc.rule"

/* rule "adamw", the value of `step` in place of a function */
static int l_rule(lua_State *L)
{
    const char *name =
        lua_gettop(L) == 1 && lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    if (trace_of(L)->at >= 0)
        return spec_error(L, "rule is for the head of a spec: step = rule \"adamw\"");
    if (!is_ident(name))
        return spec_error(L, "rule takes the name of a rule of the library: step = rule \"adamw\"");
    *(const char **)lua_newuserdatauv(L, sizeof name, 0) = arena_strdup(trace_of(L)->arena, name);
    luaL_setmetatable(L, RULE);
    return 1;
}

const char *fallback_named(lua_State *L, int i)
{
    const char **name = luaL_testudata(L, i, RULE);
    return name ? *name : NULL;
}

void fallback_open(lua_State *L)
{
    luaL_newmetatable(L, RULE);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    lua_pushcfunction(L, l_rule);
    lua_setfield(L, -2, "rule");
}

void fallback_args(Trace *t, SpecFile *s)
{
    size_t n = s->fallback_name ? strlen(s->fallback_name) : 0;
    int own = 0;
    s->fallback_arg = NEWS(t->arena, Arg, s->narg + 1);
    for (int i = 0; i < s->narg; i++) {
        Arg x = s->arg[i];
        if (n && x.key && !strncmp(x.key, s->fallback_name, n) && x.key[n] == '.')
            s->fallback_arg[s->nfallback_arg++] = (Arg){x.key + n + 1, x.value};
        else
            s->arg[own++] = x;
    }
    s->narg = own;
}

void fallback_find(Trace *t, SpecFile *s)
{
    Source src = {NULL, NULL, 0};
    Diag why = {0};
    const char *name = arena_printf(t->arena, RULE_NAMED "%s", s->fallback_name);
    bool found =
        t->find && t->find(t->find_ctx, name, t->arena, &src, &why) && check_text(src, &why);
    const char *text = why.text ? arena_strdup(t->arena, why.text) : "there is no way to find it";
    diag_free(&why);
    if (!found)
        declare_fail(t, s, "step", "step = rule \"%s\": %s", s->fallback_name, text);
    if (t->nall == MAX_SPECS)
        declare_fail(t, s, "step", "over %d specs in one rule", MAX_SPECS - 1);
    s->fallback = t->nall;
    add_spec(t, t->nall, src, NULL);
    SpecFile *x = &t->spec[t->nall++];
    x->is_fallback = true;
    x->prefix = arena_printf(t->arena, "%s.", s->fallback_name);
    x->arg = s->fallback_arg;
    x->narg = s->nfallback_arg;
}

/* step() inside `matrix`: this matrix is stepped like the other tensors, for example because of its
 * name or shape. */
int l_step(lua_State *L)
{
    Trace *t = trace_of(L);
    const SpecFile *s = &t->spec[t->at];
    bool step = !strcmp(t->rule->entry[t->entry].name, "step"), found = false;
    if (!t->matrix || !step || s->is_wrapper || s->is_fallback || t->in_step)
        return spec_error(
            L, "step() is for use inside 'matrix': it steps a matrix as other tensors are stepped");
    if (lua_gettop(L))
        return spec_error(L, "step() takes no arguments");
    t->in_step = true;
    if (s->fallback) {
        found = push_body(L, t, s->fallback, "step");
    } else {
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->table);
        found = lua_getfield(L, -1, "step") == LUA_TFUNCTION;
        lua_remove(L, -2);
    }
    if (found)
        call_body(L, t, s->fallback ? s->fallback : t->at, "step");
    t->in_step = false;
    return push_nothing(L);
}

/* include "NAME": code that several specs share. The text shared/NAME.lua runs in the environment
 * of the spec that includes it, so its functions read and assign that spec's names. It returns a
 * function or a table of functions. Every spec runs the text once and gets its own result: one spec
 * cannot change the code of another. */
#include "gen/front/trace.h"

#include <string.h>

/* The index in Trace.spec of a shared text. A rule finds each of them once, whatever the number of
 * include(): reading a text takes memory that is freed with the rule. */
static int shared_find(lua_State *L, Trace *t, const char *name)
{
    for (int i = 0; i < t->nall; i++)
        if (t->spec[i].is_shared && !strcmp(t->spec[i].name, name))
            return i;
    Source src = {NULL, NULL, 0};
    Diag why = {0};
    const char *key = arena_printf(t->arena, SHARED_NAMED "%s", name);
    bool found =
        t->find && t->find(t->find_ctx, key, t->arena, &src, &why) && check_text(src, &why);
    const char *text = why.text ? arena_strdup(t->arena, why.text) : "there is no way to find it";
    diag_free(&why);
    if (!found)
        spec_error(L, "include \"%s\": %s", name, text);
    if (t->nall == MAX_SPECS)
        spec_error(L, "include \"%s\": the rule has over %d texts", name, MAX_SPECS - 1);
    add_spec(t, t->nall, src, NULL);
    t->spec[t->nall].is_shared = true;
    t->spec[t->nall].name = arena_strdup(t->arena, name);
    return t->nall++;
}

static void refuse_cycle(lua_State *L, Trace *t, int i, const char *name)
{
    for (int k = 0; k < t->nopen; k++)
        if (t->open[k] == i)
            spec_error(L, "include \"%s\": this text includes itself%s", name,
                       k < t->nopen - 1 ? " through another one" : "");
    if (t->nopen == MAX_INCLUDED)
        spec_error(L, "include \"%s\": over %d texts include each other", name, MAX_INCLUDED);
}

/* The top of the stack is what a shared text returned. Values other than functions would be
 * computed once, in the head, and not in the entry that reads them. */
static void check_result(lua_State *L, const char *name, const char *path)
{
    if (lua_type(L, -1) != LUA_TTABLE && lua_type(L, -1) != LUA_TFUNCTION)
        spec_error(L, "include \"%s\": %s must return a function or a table of functions, not a %s",
                   name, path, luaL_typename(L, -1));
    if (lua_type(L, -1) != LUA_TTABLE)
        return;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        bool is_name = lua_type(L, -2) == LUA_TSTRING;
        if (!is_name || lua_type(L, -1) != LUA_TFUNCTION)
            spec_error(
                L, "include \"%s\": %s must return a table of functions with names, and %s is a %s",
                name, path, is_name ? lua_tostring(L, -2) : "one of its keys",
                luaL_typename(L, is_name ? -1 : -2));
    }
}

static int l_include(lua_State *L)
{
    Trace *t = trace_of(L);
    const char *name =
        lua_gettop(L) == 1 && lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    if (t->at >= 0)
        return spec_error(L, "include is for the head of a spec: local shared = include \"NAME\"");
    if (!is_ident(name))
        return spec_error(
            L,
            "include takes the name of a shared text, without folder and .lua: include \"NAME\"");
    int i = shared_find(L, t, name);
    refuse_cycle(L, t, i, name);
    const char *result = lua_pushfstring(L, "optc.include %d %d", t->declaring, i);
    if (lua_getfield(L, LUA_REGISTRYINDEX, result) != LUA_TNIL)
        return 1;
    t->spec[t->declaring].includes |= (uint32_t)1 << i;
    if (!sandbox_load(t, &t->spec[i]))
        return lua_error(L);
    make_env(L, &t->spec[t->declaring]);
    lua_setupvalue(L, -2, 1);
    t->open[t->nopen++] = i;
    lua_call(L, 0, 1);
    t->nopen--;
    check_result(L, name, t->spec[i].path);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, result);
    return 1;
}

void shared_open(lua_State *L)
{
    lua_pushcfunction(L, l_include);
    lua_setfield(L, -2, "include");
}

/* The Lua state a spec runs in: a hand-picked set of functions, bounded instructions, bounded memory, text only. */
#include "trace.h"

#include <lualib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEM_CAP = 32 << 20, TICK = 1000 };
static const long long TICKS_CAP = 20 * 1000 * 1000;   /* about a quarter of a second of Lua; a spec needs thousands */

static void *bounded_alloc(void *ud, void *p, size_t old, size_t size)
{
    Trace *t = ud;
    if (!p)
        old = 0;
    if (size == 0) {
        free(p);
        t->mem -= old;
        return NULL;
    }
    if (size > old && t->mem + (size - old) > MEM_CAP)
        return NULL;
    void *q = realloc(p, size);
    if (q)
        t->mem = t->mem - old + size;
    return q;
}

/* Gives the spec's own names to the values they hold: the newest local of a name wins, a value keeps its first name. */
void name_locals(lua_State *L, lua_Debug *ar)
{
    Trace *t = trace_of(L);
    const char *name;
    for (int i = 1; (name = lua_getlocal(L, ar, i)); i++) {
        if (name[0] != '(' && is_value(L, -1)) {
            Node *n = &t->rule->g.n[*(Ref *)lua_touserdata(L, -1)];
            if (!n->name && !is_leaf(n))
                n->name = arena_strdup(t->arena, name);
        }
        lua_pop(L, 1);
    }
}

static void hook(lua_State *L, lua_Debug *ar)
{
    Trace *t = trace_of(L);
    if (ar->event == LUA_HOOKCOUNT) {
        t->ticks += TICK;
        if (t->ticks > TICKS_CAP)
            t->spent = true;
        if (t->spent)
            spec_error(L, "the spec runs too long (over %lld million instructions): is there an endless loop?", TICKS_CAP / 1000000);
    } else if (t->at >= 0 && lua_checkstack(L, 8)) {
        name_locals(L, ar);
    }
}

/* The innermost Lua function's place. */
void sandbox_where(lua_State *L, const char **path, int *line)
{
    lua_Debug ar;
    *path = NULL;
    *line = 0;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0) {
            Trace *t = trace_of(L);
            for (int i = 0; i < t->nspec; i++)
                if (ar.source[0] == '@' && !strcmp(ar.source + 1, t->spec[i].path))
                    *path = t->spec[i].path;
            *line = ar.currentline;
            return;
        }
    }
}

int spec_of_source(Trace *t, const char *path)
{
    for (int i = 0; i < t->nspec; i++)
        if (path && !strcmp(path, t->spec[i].path))
            return i;
    return -1;
}

int spec_error(lua_State *L, const char *fmt, ...)
{
    Trace *t = trace_of(L);
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    const char *path;
    int line;
    sandbox_where(L, &path, &line);
    int s = spec_of_source(t, path);
    diag_set(t->diag, path, line, s >= 0 ? t->spec[s].text : NULL, "%s", b.s ? b.s : "out of memory");
    buf_free(&b);
    lua_pushliteral(L, "spec error");
    return lua_error(L);
}

static int l_error(lua_State *L)
{
    const char *s = lua_tostring(L, 1);
    return spec_error(L, "%s", s ? s : "error() called by the spec");
}

static int l_assert(lua_State *L)
{
    if (is_value(L, 1))
        return spec_error(L, "assert cannot test a symbolic value: it is known only when the rule runs");
    if (lua_toboolean(L, 1))
        return lua_gettop(L);
    const char *s = lua_tostring(L, 2);
    return spec_error(L, "%s", s ? s : "assertion failed");
}

static int panic(lua_State *L)
{
    (void)L;
    return 0;   /* unreachable: every call into Lua is protected */
}

static const char *const base_allowed[] = {"ipairs", "tostring", "tonumber", "type", "select", NULL};
static const char *const math_allowed[] = {"abs", "ceil", "floor", "sqrt", "exp", "log", "sin", "cos", "max", "min", "pi", "huge",
                                           "tointeger", "fmod", "modf", "maxinteger", "mininteger", NULL};

/* Builtins that come from Lua itself, picked by name from the libraries, which are then dropped with the global table. */
static void open_picked(lua_State *L)
{
    luaL_requiref(L, "_G", luaopen_base, 0);
    for (const char *const *n = base_allowed; *n; n++) {
        lua_getfield(L, -1, *n);
        lua_setfield(L, -3, *n);
    }
    lua_pop(L, 1);
    luaL_requiref(L, "math", luaopen_math, 0);
    lua_newtable(L);
    for (const char *const *n = math_allowed; *n; n++) {
        lua_getfield(L, -2, *n);
        lua_setfield(L, -2, *n);
    }
    lua_setfield(L, -3, "math");
    lua_pop(L, 1);
    lua_pushcfunction(L, l_error);
    lua_setfield(L, -2, "error");
    lua_pushcfunction(L, l_assert);
    lua_setfield(L, -2, "assert");
}

static int open_all(lua_State *L)
{
    lang_open(L);
    open_picked(L);
    declare_open(L);
    lua_setfield(L, LUA_REGISTRYINDEX, "optc.builtins");
    /* Nothing of the loaded libraries stays within reach of a spec. */
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    return 0;
}

lua_State *sandbox_open(Trace *t)
{
    lua_State *L = lua_newstate(bounded_alloc, t);
    if (!L)
        return NULL;
    *(Trace **)lua_getextraspace(L) = t;
    lua_atpanic(L, panic);
    lua_pushcfunction(L, open_all);
    if (lua_pcall(L, 0, 0, 0) != LUA_OK) {
        lua_close(L);
        return NULL;
    }
    lua_sethook(L, hook, LUA_MASKCOUNT | LUA_MASKLINE | LUA_MASKRET, TICK);
    return L;
}

bool sandbox_load(Trace *t, SpecFile *s)
{
    const char *name = lua_pushfstring(t->L, "@%s", s->path);
    int rc = luaL_loadbufferx(t->L, s->text, strlen(s->text), name, "t");
    lua_remove(t->L, -2);
    return rc == LUA_OK;
}

/* The Lua state that a spec runs in: a fixed set of functions, bounded instructions, bounded
 * memory, no bytecode. */
#include "gen/front/trace.h"

#include <lualib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEM_CAP = 16 << 20, TICK = 100 };
static const long long TICKS_CAP = 5 * 1000 * 1000;    /* a spec needs thousands */
/* bytes allocated over the whole run: copying long strings is not free */
static const size_t CHURN_CAP = (size_t)512 << 20;
/* steps of Lua's parser: a tenth of a second; a spec needs thousands */
static const double PARSE_CAP = 2e7;
/* One instruction may read a whole string (a comparison, tonumber) or copy all variable arguments
 * (f(...)). So each counts as one more for every STRING_WORK bytes of the longest string so far and
 * for every ARGS_WORK arguments. */
enum { STRING_WORK = 256, ARGS_WORK = 128 };
/* Seconds of this thread. A last resort, far above what the counted limits allow: a verdict must
 * not depend on how busy the machine is. */
static const double CPU_CAP = 30;

static void *bounded_alloc(void *ud, void *p, size_t old, size_t size)
{
    Trace *t = ud;
    /* for a new block, Lua passes the type as the old size */
    bool string = !p && old == LUA_TSTRING;
    if (!p)
        old = 0;
    if (size == 0) {
        free(p);
        t->mem -= old;
        return NULL;
    }
    if (size > old && (t->mem + (size - old) > MEM_CAP || (t->churn += size - old) > CHURN_CAP)) {
        t->starved = false;
        return NULL;
    }
    void *q = realloc(p, size);
    t->starved = !q;
    if (q) {
        t->mem = t->mem - old + size;
        if (string && size > t->longest)
            t->longest = size;
    }
    return q;
}

/* Names values after the spec's locals: the newest local of a name wins, a value keeps its first
 * name. */
static void name_locals(lua_State *L, lua_Debug *ar)
{
    Trace *t = trace_of(L);
    const char *name;
    for (int i = 1; (name = lua_getlocal(L, ar, i)); i++) {
        t->ticks++;
        if (name[0] != '(' && is_value(L, -1)) {
            Ref r = *value_at(L, -1);
            const Node *n = r < 0 ? NULL : &t->rule->g.n[r];
            if (n && !n->name && !is_leaf(n) && is_ident(name))
                graph_name(&t->rule->g, r, arena_strdup(t->arena, name));
        }
        lua_pop(L, 1);
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Variable arguments of the running function, up to a factor of 2; below ARGS_WORK: 0. */
static long long many_args(lua_State *L, lua_Debug *ar)
{
    int n = 0;
    for (int k = ARGS_WORK; lua_getlocal(L, ar, -k); k *= 2) {
        n = k;
        lua_pop(L, 1);
    }
    return n;
}

static void hook(lua_State *L, lua_Debug *ar)
{
    Trace *t = trace_of(L);
    if (ar->event == LUA_HOOKCOUNT) {
        t->ticks +=
            TICK * (1 + (long long)(t->longest / STRING_WORK) + many_args(L, ar) / ARGS_WORK);
        if (t->spent || t->ticks > TICKS_CAP) {
            t->spent = true;
            spec_error(
                L,
                "the spec runs too long (over %lld million instructions; those on long strings and "
                "argument lists count as many): is there an endless loop?",
                TICKS_CAP / 1000000);
        }
        if (cpu_seconds() - t->started > CPU_CAP) {
            t->spent = true;
            spec_error(L, "the spec runs too long (over %g seconds): is there an endless loop?",
                       CPU_CAP);
        }
    } else if (t->at >= 0 && lua_checkstack(L, 8)) {
        name_locals(L, ar);
    }
}

/* The position of the innermost Lua function. */
void sandbox_where(lua_State *L, const char **path, int *line)
{
    lua_Debug ar;
    *path = NULL;
    *line = 0;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0) {
            Trace *t = trace_of(L);
            int i;
            if (sscanf(ar.source, "@spec%d", &i) == 1 && i >= 0 && i < t->nall)
                *path = t->spec[i].path;
            *line = ar.currentline;
            return;
        }
    }
}

int spec_of_source(Trace *t, const char *path)
{
    for (int i = 0; i < t->nall; i++)
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
    if (buf_text(&b))
        diag_set(t->diag, path, line, s >= 0 ? t->spec[s].text : NULL, "%s", buf_text(&b));
    else
        diag_memory(t->diag);
    buf_free(&b);
    return errors_raise(L);
}

static int l_error(lua_State *L)
{
    const char *s = lua_tostring(L, 1);
    return spec_error(L, "%s", s ? s : "error() called by the spec");
}

static int l_assert(lua_State *L)
{
    if (is_value(L, 1))
        return spec_error(
            L, "assert cannot test a symbolic value: it is known only when the rule runs");
    if (lua_toboolean(L, 1))
        return lua_gettop(L);
    const char *s = lua_tostring(L, 2);
    return spec_error(L, "%s", s ? s : "assertion failed");
}

/* Accepts plain values only: the address of a table would differ from run to run. */
static int l_tostring(lua_State *L)
{
    int ty = lua_type(L, 1);
    if (is_value(L, 1))
        return spec_error(
            L, "a symbolic value cannot become text: it is known only when the rule runs");
    if (ty != LUA_TNUMBER && ty != LUA_TSTRING && ty != LUA_TBOOLEAN && ty != LUA_TNIL)
        return spec_error(L, "tostring takes a number, a string or a truth value, not a %s",
                          luaL_typename(L, 1));
    luaL_tolstring(L, 1, NULL);
    return 1;
}

static int l_fixed(lua_State *L)
{
    return spec_error(L, "'%s' cannot be changed: it belongs to every spec",
                      lua_tostring(L, lua_upvalueindex(1)));
}

/* Replaces the table on top by a read-only proxy: one spec must not change the language of
 * another. */
void sandbox_protect(lua_State *L, const char *name)
{
    lua_newtable(L);
    lua_newtable(L);
    lua_rotate(L, -3, -1);                      /* proxy, metatable, table */
    lua_setfield(L, -2, "__index");
    lua_pushstring(L, name);
    lua_pushcclosure(L, l_fixed, 1);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}

static int panic(lua_State *L)
{
    (void)L;
    return 0;   /* unreachable: every call into Lua is protected */
}

static const char *const base_allowed[] = {"ipairs", "tonumber", "type", "select", NULL};
static const char *const math_allowed[] = {
    "abs", "ceil", "floor", "sqrt",      "exp",  "log",  "sin",        "cos",        "max",
    "min", "pi",   "huge",  "tointeger", "fmod", "modf", "maxinteger", "mininteger", NULL};

/* Copies the allowed functions of Lua's libraries by name; the libraries are then dropped with the
 * global table. */
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
    errors_guard_all(L, true);
    sandbox_protect(L, "math");
    lua_setfield(L, -3, "math");
    lua_pop(L, 1);
    lua_pushcfunction(L, l_tostring);
    lua_setfield(L, -2, "tostring");
}

static int open_all(lua_State *L)
{
    lang_open(L);
    open_picked(L);
    declare_open(L);
    errors_guard_all(L, false);
    /* error and assert are not guarded: they end the entry */
    lua_pushcfunction(L, l_error);
    lua_setfield(L, -2, "error");
    lua_pushcfunction(L, l_assert);
    lua_setfield(L, -2, "assert");
    lua_setfield(L, LUA_REGISTRYINDEX, "optc.builtins");
    /* A spec must not reach the loaded libraries. */
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    return 0;
}

bool sandbox_open(Trace *t)
{
    lua_State *L = t->L = lua_newstate(bounded_alloc, t);
    if (!L)
        return false;
    *(Trace **)lua_getextraspace(L) = t;
    t->started = cpu_seconds();
    lua_atpanic(L, panic);
    lua_pushcfunction(L, open_all);
    if (lua_pcall(L, 0, 0, 0) != LUA_OK) {
        lua_close(L);
        t->L = NULL;
        return false;
    }
    lua_sethook(L, hook, LUA_MASKCOUNT | LUA_MASKLINE | LUA_MASKRET, TICK);
    return true;
}

bool sandbox_load(Trace *t, SpecFile *s)
{
    s->tok = lex(t->arena, s->text, &s->ntok);
    /* Everything that reads a spec's strings ends at a zero byte: "adamw\0" would name the rule
     * adamw. */
    const Tok *zero = lex_zero(s->tok);
    if (zero) {
        diag_set(t->diag, s->path, zero->line, s->text, "a string has a zero byte; leave it out");
        lua_pushliteral(t->L, "spec error");
        return false;
    }
    /* Lua's parser has no limits: its cost is estimated first. */
    if (parse_price(t->arena, s->tok, s->ntok) > PARSE_CAP) {
        diag_set(t->diag, s->path, 0, NULL,
                 "the spec would take too long to read: too many functions inside each other, with "
                 "too many locals, or "
                 "too many of and, or, elseif, goto and labels");
        lua_pushliteral(t->L, "spec error");
        return false;
    }
    /* A short chunk name: Lua truncates long paths in its messages. */
    const char *name = lua_pushfstring(t->L, "@spec%d", (int)(s - t->spec));
    int rc = luaL_loadbufferx(t->L, s->text, strlen(s->text), name, "t");
    lua_remove(t->L, -2);
    return rc == LUA_OK;
}

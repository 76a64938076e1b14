/* Collects all errors of a spec, not only the first. An error in a field, a line or an entry is
 * recorded, and tracing
 * continues: a value that could not be computed is UNKNOWN, and so is every value computed from it,
 * without another error. Each line reports one error. Errors of Lua itself are reported only if the
 * entry had none before: they may follow from it. */
#include "gen/front/matrix_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOLD = 20, MOST_TRIES = 200 };

int errors_raise(lua_State *L)
{
    lua_pushliteral(L, "spec error");
    return lua_error(L);
}

void errors_keep(Trace *t)
{
    Diag *d = t->diag;
    bool known = !d->text;
    t->tries++;
    if (d->kind == DIAG_MEMORY) {              /* its message may be incomplete */
        t->no_memory = true;
        return;
    }
    for (int i = 0; i < t->nerror && !known; i++)
        known = t->error[i].line == d->line && !strcmp(t->error[i].file, d->file);
    if (!known)
        PUSH(t->arena, t->error, t->nerror, t->error_cap) =
            (SpecError){arena_strdup(t->arena, d->file), arena_strdup(t->arena, d->text), d->line};
    diag_free(d);
}

/* An error raised by Lua: "path:line: message" from the parser or the virtual machine. Functions of
 * Lua's libraries give no line; the line is then that of the innermost running Lua function. */
static void foreign_error(Trace *t, int rc)
{
    const char *m = lua_tostring(t->L, -1), *path;
    if (rc == LUA_ERRMEM && t->starved) {
        diag_memory(t->diag);
        return;
    }
    if (rc == LUA_ERRMEM)
        m = "the spec uses too much memory (the bound is 16 MiB)";
    if (!m)
        m = "the spec failed";
    int i, line, at = 0;
    if (sscanf(m, "spec%d:%d: %n", &i, &line, &at) == 2 && at && i >= 0 && i < t->nall) {
        const char *hint = hint_syntax(t, &t->spec[i], line, m + at);
        diag_set(t->diag, t->spec[i].path, line, t->spec[i].text, "%s%s%s", m + at,
                 *hint ? "; " : "", hint);
        return;
    }
    sandbox_where(t->L, &path, &line);
    i = spec_of_source(t, path);
    if (i < 0)
        i = t->nspec - 1, line = 0;
    diag_set(t->diag, t->spec[i].path, rc == LUA_ERRMEM ? 0 : line, t->spec[i].text, "%s", m);
}

void errors_caught(Trace *t, int rc)
{
    const char *m = lua_tostring(t->L, -1);
    bool ours = rc == LUA_ERRRUN && m && !strcmp(m, "spec error");
    t->no_memory = t->no_memory || rc == LUA_ERRMEM;
    if (!ours && !t->diag->text && t->diag->kind != DIAG_MEMORY &&
        (t->nerror == t->before || rc == LUA_ERRMEM))
        foreign_error(t, rc);
    errors_keep(t);
    lua_pop(t->L, 1);
}

bool errors_over(const Trace *t) { return t->spent || t->no_memory || t->tries > MOST_TRIES; }

bool errors_call(Trace *t, int nargs, int nresults)
{
    int rc = lua_pcall(t->L, nargs, nresults, 0);
    if (rc == LUA_OK)
        return true;
    errors_caught(t, rc);
    if (errors_over(t))
        errors_raise(t->L);
    return false;
}

/* ---- functions of the language ---- */
static bool any_is(lua_State *L, int n, Ref what)
{
    for (int i = 1; i <= n; i++) {
        const Ref *r = value_at(L, i);
        if (r && *r == what)
            return true;
    }
    return false;
}

int push_nothing(lua_State *L)
{
    push_value(L, NOTHING);
    return 1;
}

static int l_nothing(lua_State *L)
{
    return spec_error(
        L,
        "inner(), step(), every() and when() give no value: they change p and the states. For the "
        "change that the inner rule made, write local before = p  inner()  local d = p - before");
}

static void refuse_values(lua_State *L, int n, const char *name)
{
    for (int i = 1; i <= n; i++)
        if (is_value(L, i)) {
            lua_getfield(L, LUA_REGISTRYINDEX, "optc.builtins");
            bool own = lua_getfield(L, -1, name) == LUA_TFUNCTION;
            spec_error(L,
                       "math.%s works on plain numbers, when the spec is read, and argument %d is "
                       "a value of the "
                       "step%s%s%s",
                       name, i, own ? ": write " : "", own ? name : "", own ? "(…)" : "");
        }
}

/* Pushes as many UNKNOWN values as the function has results. */
static int push_unknown(lua_State *L)
{
    lua_CFunction f = lua_tocfunction(L, lua_upvalueindex(1));
    int n = f == l_svd ? 3 : f == l_eigh ? 2 : 1;
    for (int i = 0; i < n; i++)
        push_value(L, UNKNOWN);
    return n;
}

/* Calls a function and records its error. Upvalues: the function; its name if it is from `math`;
 * whether it accepts UNKNOWN arguments. */
static int l_guard(lua_State *L)
{
    Trace *t = trace_of(L);
    int n = lua_gettop(L), at = t->at, calls = t->inner_calls;
    Clock clock = t->clock;
    GuardedBlock block = t->block;
    StepParts parts = t->parts;
    if (!lua_toboolean(L, lua_upvalueindex(3)) && any_is(L, n, UNKNOWN))
        return push_unknown(L);
    if (lua_type(L, lua_upvalueindex(2)) == LUA_TSTRING)
        refuse_values(L, n, lua_tostring(L, lua_upvalueindex(2)));
    if (any_is(L, n, NOTHING))
        lua_pushcfunction(L, l_nothing);
    else
        lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    int rc = lua_pcall(L, n, LUA_MULTRET, 0);
    if (rc == LUA_OK)
        return lua_gettop(L);
    errors_caught(t, rc);
    t->at = at;
    t->inner_calls = calls;
    t->clock = clock;
    t->block = block;
    t->parts = parts;
    if (t->at < 0 || errors_over(t))           /* outside of entries tracing cannot continue */
        return errors_raise(L);
    return push_unknown(L);
}

void errors_guard(lua_State *L, const char *math, bool takes_unknown)
{
    if (math)
        lua_pushstring(L, math);
    else
        lua_pushnil(L);
    lua_pushboolean(L, takes_unknown);
    lua_pushcclosure(L, l_guard, 3);
}

void errors_guard_all(lua_State *L, bool math)
{
    int table = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, table);) {
        if (lua_type(L, -1) == LUA_TFUNCTION) {
            const char *name = lua_tostring(L, -2);
            errors_guard(L, math ? name : NULL, false);
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            /* replaces an existing field, which lua_next allows */
            lua_rawset(L, table);
        } else {
            lua_pop(L, 1);
        }
    }
}

/* ---- reporting ---- */
static int by_place(const void *a, const void *b)
{
    const SpecError *x = a, *y = b;
    int file = strcmp(x->file, y->file);
    return file ? file : (x->line > y->line) - (x->line < y->line);
}

void errors_tell(Trace *t, Diag *d)
{
    Buf b = {0};
    int n = t->nerror < MOST_TOLD ? t->nerror : MOST_TOLD;
    if (!n || d->kind == DIAG_MEMORY)
        return;
    qsort(t->error, (size_t)t->nerror, sizeof *t->error, by_place);
    for (int i = 0; i < n; i++)
        buf_printf(&b, "%s%s", i ? "\n" : "", t->error[i].text);
    if (t->nerror > n)
        buf_printf(&b, "\n… and %d more", t->nerror - n);
    diag_free(d);
    d->line = t->error[0].line;
    snprintf(d->file, sizeof d->file, "%s", t->error[0].file);
    d->text = buf_take(&b);
    if (!d->text)
        diag_memory(d);
}

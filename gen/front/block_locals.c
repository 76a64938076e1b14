/* Lua locals that a block of every() or when() assigns. The block is traced once, so Lua itself
 * would keep the new value at all steps. Each such local becomes a selection between the new value
 * and the one before the block, as states do. Found through the upvalues of the block's function,
 * and of Lua functions among them and in their tables; a table that the block changes is an error.
 * A local without a value before the block has none after it. */
#include "gen/front/trace.h"

#include <string.h>

enum { MOST_NESTED = 16 };               /* functions and tables in upvalues and fields of others */

/* Entry i of the list on top is a local, { function, number of the upvalue, its value }, or a
 * table: { nil, name of the local that leads to it, the table, a copy of its fields }. */
enum { AT_FUNCTION = 1, AT_NUMBER, AT_VALUE, AT_FIELDS, AT_NAME = AT_NUMBER };

/* Entries are appended to `list`; `seen` has the upvalues and tables in it. name: of the local that
 * leads there. */
typedef struct Reached { int list, seen; } Reached;

static void add_upvalues(lua_State *L, const Reached *w, int f, int depth);

static void append(lua_State *L, const Reached *w)            /* the table on top */
{
    lua_rawseti(L, w->list, (lua_Integer)lua_rawlen(L, w->list) + 1);
}

static bool seen_before(lua_State *L, const Reached *w, const void *key)
{
    bool known = lua_rawgetp(L, w->seen, key) != LUA_TNIL;
    lua_pop(L, 1);
    lua_pushboolean(L, 1);
    lua_rawsetp(L, w->seen, key);
    return known;
}

static void add_value(lua_State *L, const Reached *w, int value, const char *name, int depth)
{
    luaL_checkstack(L, 12, NULL);
    if (lua_type(L, value) == LUA_TFUNCTION)
        add_upvalues(L, w, value, depth);
    if (depth >= MOST_NESTED || lua_type(L, value) != LUA_TTABLE ||
        seen_before(L, w, lua_topointer(L, value)))
        return;
    lua_createtable(L, AT_FIELDS, 0);
    lua_pushstring(L, name);
    lua_rawseti(L, -2, AT_NAME);
    lua_pushvalue(L, value);
    lua_rawseti(L, -2, AT_VALUE);
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, value); lua_pop(L, 1)) {
        add_value(L, w, lua_gettop(L), name, depth + 1);
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, -5);
    }
    lua_rawseti(L, -2, AT_FIELDS);
    append(L, w);
}

/* Appends the upvalues of the function at index f, unless it is one of C. */
static void add_upvalues(lua_State *L, const Reached *w, int f, int depth)
{
    luaL_checkstack(L, 12, NULL);
    for (int n = 1;
         depth < MOST_NESTED && lua_type(L, f) == LUA_TFUNCTION && !lua_iscfunction(L, f); n++) {
        const char *name = lua_getupvalue(L, f, n);
        if (!name)
            return;
        int value = lua_gettop(L);
        if (!seen_before(L, w, lua_upvalueid(L, f, n))) {
            lua_createtable(L, AT_FIELDS, 0);
            lua_pushvalue(L, f);
            lua_rawseti(L, -2, AT_FUNCTION);
            lua_pushinteger(L, n);
            lua_rawseti(L, -2, AT_NUMBER);
            lua_pushvalue(L, value);
            lua_rawseti(L, -2, AT_VALUE);
            append(L, w);
            add_value(L, w, value, name, depth + 1);
        }
        lua_settop(L, value - 1);
    }
}

void locals_save(lua_State *L, int f)
{
    lua_newtable(L);
    int list = lua_gettop(L);
    lua_newtable(L);
    add_upvalues(L, &(Reached){list, list + 1}, f, 0);
    lua_settop(L, list);
}

/* The fields of the table differ from the copy; both have no metatable that counts. */
static bool fields_changed(lua_State *L, int table, int copy)
{
    for (int side = 0; side < 2; side++) {
        int a = side ? copy : table, b = side ? table : copy;
        for (lua_pushnil(L); lua_next(L, a); lua_pop(L, 1)) {
            lua_pushvalue(L, -2);
            lua_rawget(L, b);
            bool same = lua_rawequal(L, -1, -2);
            lua_pop(L, 1);
            if (!same)
                return true;
        }
    }
    return false;
}

static bool same_value(lua_State *L, int a, int b)
{
    const Ref *x = value_at(L, a), *y = value_at(L, b);
    return lua_rawequal(L, a, b) || (x && y && *x == *y);
}

/* A value or a number; an error for anything else. */
static Ref chosen(lua_State *L, int i, const char *name, const char *block)
{
    const Ref *r = value_at(L, i);
    if (!(r && *r != NOTHING) && lua_type(L, i) != LUA_TNUMBER)
        spec_error(L,
                   "the local '%s' is assigned in %s and is a %s: only values and numbers can "
                   "depend on the step; "
                   "use a state or where()",
                   name, block, r ? "call without a result" : luaL_typename(L, i));
    return r ? *r : node_const(&trace_of(L)->rule->g, lua_tonumber(L, i));
}

void locals_choose(lua_State *L, int list, const char *block, ChooseLocal choose, const void *guard)
{
    int n = (int)lua_rawlen(L, list), top = lua_gettop(L);
    for (int i = 1; i <= n; i++, lua_settop(L, top)) {
        lua_rawgeti(L, list, i);
        lua_rawgeti(L, top + 1, AT_FUNCTION);
        lua_rawgeti(L, top + 1, AT_NUMBER);
        lua_rawgeti(L, top + 1, AT_VALUE);
        lua_rawgeti(L, top + 1, AT_FIELDS);
        int f = top + 2, was = top + 4;
        if (lua_isnil(L, f)) {
            if (fields_changed(L, was, top + 5))
                spec_error(L,
                           "%s changes a field of the table '%s', which would apply at all steps: "
                           "use a state or a "
                           "local per value",
                           block, lua_tostring(L, top + 3));
            continue;
        }
        int up = (int)lua_tointeger(L, top + 3);
        const char *name = lua_getupvalue(L, f, up);
        int now = lua_gettop(L);
        if (same_value(L, now, was))
            continue;
        /* known inside of the block only; a use is an error */
        if (lua_isnil(L, was) || !strcmp(name, "_")) {
            lua_pushvalue(L, was);
            lua_setupvalue(L, f, up);
            continue;
        }
        Ref y = chosen(L, was, name, block), x = chosen(L, now, name, block);
        push_value(L, x == UNKNOWN || y == UNKNOWN ? UNKNOWN : choose(L, guard, name, x, y));
        lua_setupvalue(L, f, up);
    }
}

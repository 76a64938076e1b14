/* The field gradients = { "perturb", "step" }: the entries of one training step in order. The
 * caller computes a fresh gradient before each of them. { "perturb", every = 5, offset = 1 } runs
 * an entry only at steps 1, 6, 11, … */
#include "gen/front/declare.h"

#include <math.h>
#include <string.h>

static void fail_form(Trace *t, const SpecFile *s)
{
    declare_fail(t, s, "gradients",
                 "'gradients' lists the entries of a step in order, each after a fresh gradient: "
                 "gradients = { \"perturb\", \"step\" }, or { { \"perturb\", every = 5 }, "
                 "\"step\" }");
}

/* A whole number from lo to hi in a field of the table on top, or the name of an option that is
 * one. */
static int whole_field(Trace *t, const SpecFile *s, const char *key, int lo, int hi, int def)
{
    lua_State *L = t->L;
    if (lua_getfield(L, -1, key) == LUA_TSTRING) {
        const char *name = arena_strdup(t->arena, lua_tostring(L, -1));
        lua_pop(L, 1);
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
        lua_getfield(L, -1, name);
        lua_remove(L, -2);
    } else if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return def;
    }
    double x = lua_tonumber(L, -1);
    if (lua_type(L, -1) != LUA_TNUMBER || !(x >= lo && x <= hi && x == floor(x)))
        declare_fail(t, s, "gradients",
                     "gradients: '%s' must be a whole number from %d to %d, or the name of an "
                     "option that is one",
                     key, lo, hi);
    lua_pop(L, 1);
    return (int)x;
}

static Gradient read_gradient(Trace *t, const SpecFile *s)                 /* the item is on top */
{
    lua_State *L = t->L;
    Gradient g = {.at = {1, 0}};
    bool table = lua_type(L, -1) == LUA_TTABLE;
    if (table) {
        for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
            const char *k = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
            bool first = lua_isinteger(L, -2) && lua_tointeger(L, -2) == 1;
            if (!first && strcmp(k, "every") && strcmp(k, "offset"))
                fail_form(t, s);
        }
        g.at.every = whole_field(t, s, "every", 1, MAX_PERIOD, 1);
        g.at.offset = whole_field(t, s, "offset", 0, MAX_PERIOD - 1, 0) % g.at.every;
        lua_rawgeti(L, -1, 1);
    }
    if (lua_type(L, -1) != LUA_TSTRING)
        fail_form(t, s);
    g.entry = arena_strdup(t->arena, lua_tostring(L, -1));
    lua_pop(L, table ? 1 : 0);
    return g;
}

void declare_gradients(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    Rule *r = t->rule;
    int ty = lua_getfield(L, -1, "gradients");
    if (ty == LUA_TNIL) {
        lua_pop(L, 1);
        return;
    }
    if (ty != LUA_TTABLE || !lua_rawlen(L, -1) || lua_rawlen(L, -1) > MAX_ENTRIES)
        fail_form(t, s);
    if (r->ngradient)
        declare_fail(t, s, "gradients",
                     "'gradients' is given here and in another spec of the composition: only one "
                     "may ask for more gradients");
    int n = (int)lua_rawlen(L, -1), all = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        all++;
    if (all != n)
        fail_form(t, s);
    r->gradient = NEWS(t->arena, Gradient, n);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        r->gradient[i] = read_gradient(t, s);
        lua_pop(L, 1);
        const Gradient *g = &r->gradient[i];
        lua_getfield(L, -2, g->entry);
        bool entry = lua_type(L, -1) == LUA_TFUNCTION && strcmp(g->entry, "matrix");
        lua_pop(L, 1);
        if (!entry && strcmp(g->entry, "step"))
            declare_fail(t, s, "gradients", "gradients: the spec has no entry '%.40s'", g->entry);
        for (int k = 0; k < i; k++)
            if (!strcmp(r->gradient[k].entry, g->entry))
                declare_fail(t, s, "gradients", "gradients: '%s' is listed twice", g->entry);
    }
    lua_pop(L, 1);
    const Gradient *last = &r->gradient[n - 1];
    if (strcmp(last->entry, "step") || last->at.every != 1)
        declare_fail(t, s, "gradients",
                     "gradients: the last entry must be \"step\", at every step");
    r->ngradient = n;
    s->gradients = true;
}

void note_gradients(Trace *t)
{
    int asks = 0;
    while (asks < t->nspec && !t->spec[asks].gradients)
        asks++;
    for (int i = 0; i < asks && asks < t->nspec; i++)
        for (int k = 0; k < t->rule->ngradient && t->spec[i].changes_grad; k++) {
            const char *entry = t->rule->gradient[k].entry;
            if (strcmp(entry, "step") && !entry_line(t, &t->spec[i], entry)) {
                t->rule->note =
                    arena_printf(t->arena,
                                 "%s changes the gradient of 'step' only: '%s' of %s reads it as "
                                 "the caller computed it",
                                 t->spec[i].name, entry, t->spec[asks].name);
                return;
            }
        }
}

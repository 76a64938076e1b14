/* Blocks of an entry that are done at some steps only, and the rule inside a wrapper: every(), when(), inner(). A
 * block is run once; what it assigned is then chosen between the new value and the old one. */
#include "trace.h"

#include <math.h>
#include <string.h>

enum { MAX_PERIOD = 1000000000 };

/* ---- what a block assigned ---- */
static Ref *value_slot(Trace *t, int i)                    /* the states, then p, then g */
{
    int n = t->rule->nstate;
    return i < n ? &t->state[i] : i == n ? &t->p : &t->g;
}

static void choose(lua_State *L, Trace *t, int i, Ref cond, Ref was)
{
    const Rule *r = t->rule;
    const Graph *g = &r->g;
    Ref *now = value_slot(t, i);
    const char *name = i < r->nstate ? r->state[i].name : i == r->nstate ? "p" : "g";
    Dom dom = i < r->nstate ? r->state[i].dom : ELEM;
    if (*now == UNKNOWN || was == UNKNOWN)
        return;
    if (!dom_spreads((Dom)g->n[cond].dom, dom))
        spec_error(L, "'%s' has one value per %s and cannot be assigned where %s decides", name, dom_info[dom].name,
                   describe(t, cond));
    Node w = {.op = OP_WHERE, .ty = NUM, .nargs = 3, .arg = (Ref[]){cond, *now, was}};
    w.dom = dom_join(g->n[*now].dom, dom_join(g->n[cond].dom, g->n[was].dom));
    *now = trace_node(t, w);
}

/* Runs the function at `f` on the stack. What it assigned holds where `cond` does; NONE: everywhere. Values for the
 * reader tell what was computed, whatever became of it: `keep` leaves them. */
static void run_block(lua_State *L, int f, Ref cond, bool keep)
{
    Trace *t = trace_of(L);
    int n = t->rule->nstate + 2;
    Ref *was = lua_newuserdatauv(L, sizeof(Ref) * (size_t)n, 0);
    for (int i = 0; i < n; i++)
        was[i] = *value_slot(t, i);
    lua_pushvalue(L, f);
    lua_call(L, 0, 0);
    for (int i = 0; cond != NONE && i < n; i++)
        if (*value_slot(t, i) != was[i] && !(keep && i < n - 2 && t->rule->state[i].report))
            choose(L, t, i, cond, was[i]);
}

/* ---- every(k, { offset = o, first = true }, f) ---- */
/* Steps `in` of a clock whose own steps are `of` the binding's: the first of those is the clock's 1. */
static Steps steps_of(Steps of, Steps in)
{
    Steps s = {of.every * in.every, of.offset + of.every * (in.offset - (of.offset > 0))};
    s.offset -= s.every * floor(s.offset / s.every);
    return s;
}

typedef struct EveryOptions { double offset; bool first; } EveryOptions;

static EveryOptions read_every(lua_State *L, int i, double k)
{
    EveryOptions o = {0, false};
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        bool first = !strcmp(key, "first");
        if (!first && strcmp(key, "offset"))
            spec_error(L, "every(k, { … }, f) knows 'offset' and 'first': every(10, { offset = 1 }, function() … end)");
        if (first && lua_type(L, -1) != LUA_TBOOLEAN)
            spec_error(L, "every: first is true or false: whether step 1 is one of them too");
        o.first = first ? lua_toboolean(L, -1) : o.first;
        o.offset = first ? o.offset : lua_tonumber(L, -1);
        if (!first && (lua_type(L, -1) != LUA_TNUMBER || !(o.offset >= 0 && o.offset < k && o.offset == floor(o.offset))))
            spec_error(L, "every: the offset is a whole number from 0 and below the period");
    }
    o.first = o.first && o.offset != 1;                    /* the first step is one of them anyway */
    return o;
}

static Ref condition(lua_State *L, Trace *t, Steps at)
{
    if (at.every > MAX_PERIOD)
        spec_error(L, "every: with the period around the rule it comes to over %d steps", MAX_PERIOD);
    Ref cond = node_leaf(&t->rule->g, OP_EVERY, GROUP, (int)at.offset, at.every);
    int i = 0;
    while (i < t->nevery && t->every[i] != cond)
        i++;
    if (i == MAX_EVERY)
        spec_error(L, "over %d different periods in one rule", MAX_EVERY);
    if (i == t->nevery)
        t->every[t->nevery++] = cond;
    return cond;
}

/* A clock's first step, as a period that nobody sees the second step of. */
static Ref first_step(lua_State *L, Trace *t)
{
    Steps of = t->clock.at;
    return condition(L, t, (Steps){MAX_PERIOD, of.offset > 0 ? of.offset : of.every});
}

/* f's assignments hold at steps that leave the offset when divided by k; elsewhere values stay what they were. */
int l_every(lua_State *L)
{
    Trace *t = trace_of(L);
    int f = lua_type(L, 2) == LUA_TTABLE ? 3 : 2;
    if (is_value(L, 1))
        return spec_error(L, "every(k, …): k must be known at compile time: make it an option");
    double k = lua_tonumber(L, 1);
    if (lua_type(L, 1) != LUA_TNUMBER || k < 1 || k != floor(k) || k > MAX_PERIOD || lua_type(L, f) != LUA_TFUNCTION)
        return spec_error(L, "every takes a whole number from 1 and a function: every(10, function() … end), or "
                             "every(10, { offset = 1 }, function() … end)");
    Block was = t->block;
    EveryOptions o = f == 3 ? read_every(L, 2, k) : (EveryOptions){0, false};
    Steps at = {k, o.offset};
    Ref cond = k > 1 ? condition(L, t, steps_of(t->clock.at, at)) : NONE;
    if (k > 1)
        t->block = (Block){at, was.depth + 1, o.first};
    if (k > 1 && o.first)
        cond = trace_op(L, OP_EITHER, cond, first_step(L, t));
    run_block(L, f, cond, false);
    t->block = was;
    return 0;
}

/* ---- when(c, f) ---- */
/* f's assignments hold where c is true, which is known when the rule runs. */
int l_when(lua_State *L)
{
    if (lua_gettop(L) != 2 || lua_type(L, 2) != LUA_TFUNCTION)
        return spec_error(L, "when takes a truth value and a function: when(isfinite(norm), function() … end)");
    run_block(L, 2, lang_truth(L, 1, "when", 2), true);
    return 0;
}

/* ---- inner() ---- */
/* What the rule inside calls t: whole, so that powers of it stay products. */
static Ref given_t(lua_State *L, Trace *t)
{
    Ref r = NONE;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || strcmp(lua_tostring(L, -2), "t"))
            spec_error(L, "inner { … } knows 't' alone: inner { t = t - skipped }");
        r = lang_arg(L, lua_gettop(L), "t", 1);
        const Node *n = &t->rule->g.n[r];
        if (n->ty != NUM || !dom_spreads((Dom)n->dom, TENSOR))
            spec_error(L, "inner { t = … } takes one number per group or tensor, not %s", describe(t, r));
        r = n->whole ? r : trace_op(L, OP_ROUND, r, NONE);
    }
    return r;
}

static Clock inner_clock(lua_State *L, Trace *t)
{
    Clock c = t->clock;
    double k = t->block.at.every;
    Ref given = lua_type(L, 1) == LUA_TTABLE ? given_t(L, t) : NONE;
    if ((t->block.depth > 1 || t->block.first) && given == NONE)
        spec_error(L, "inner() inside %s: say what its t is: inner { t = … }",
                   t->block.first ? "every(k, { first = true }, …)" : "two blocks of every()");
    c.at = steps_of(c.at, t->block.at);
    /* the first step of a block is the rule's 1, whatever the offset */
    if (given != NONE)
        c.t = given;
    else if (k > 1)
        c.t = trace_op(L, OP_CEIL, trace_op(L, OP_DIV, c.t, node_const(&t->rule->g, k)), NONE);
    return c;
}

int l_inner(lua_State *L)
{
    Trace *t = trace_of(L);
    const char *name = t->rule->entry[t->entry].name;
    if (!t->spec[t->at].is_wrapper)
        return spec_error(L, "inner() is for wrappers: there is no rule inside this one");
    if (lua_gettop(L) > 1 || (lua_gettop(L) == 1 && lua_type(L, 1) != LUA_TTABLE))
        return spec_error(L, "inner takes nothing, or what the rule inside calls t: inner { t = t - skipped }");
    if (++t->inner_calls > 1)
        return spec_error(L, "inner() is called twice in one entry");
    int calls = t->inner_calls;
    Clock clock = t->clock;
    Block block = t->block;
    t->clock = inner_clock(L, t);
    t->block = (Block){{1, 0}, 0, false};
    if (!call_entry(L, t, t->at + 1, name))
        return spec_error(L, "the rule inside has no entry '%s'", name);
    t->inner_calls = calls;
    t->clock = clock;
    t->block = block;
    return 0;
}

/* Rings of past values: `s = ring(8)` in `state`; in an entry s:push(x), s[1] … s[8] (s[1] is the
 * newest) and s.count.
 *
 * A ring of K values is K states. Push n, counted by the rule's t, goes to array n mod K. There are
 * two forms:
 *   rotating  State.age: in an entry, state j stands for the array (t - j) mod K, the value of j
 *             pushes ago. Emitted code selects the array from t. The entry writes state 0 only, so
 *             a push costs one store.
 *   slots     if a wrapper gives the rule another t (inner { t = … }, every()), state j is array j,
 *             and selections by t find the array. A push then stores all arrays. */
#include "gen/front/rings.h"

#include <math.h>
#include <string.h>

#define RING "optc.ring"

int ring_find(const Trace *t, const SpecFile *s, const char *name)
{
    size_t skip = strlen(s->prefix), n = strlen(name);
    for (int i = 0; i < s->nstate; i++) {
        const State *x = &t->rule->state[s->state[i]];
        if (x->ring && !strncmp(x->name + skip, name, n) && !strcmp(x->name + skip + n, "_0"))
            return s->state[i];
    }
    return -1;
}

void ring_push_value(lua_State *L, int first)
{
    *(int *)lua_newuserdatauv(L, sizeof(int), 0) = first;
    luaL_setmetatable(L, RING);
}

bool ring_is(lua_State *L, int i) { return luaL_testudata(L, i, RING) != NULL; }

/* The ring at index 1, as states of the running rule. Decides its form at the first use. */
static int ring_at(lua_State *L, const char *what)
{
    Trace *t = trace_of(L);
    const int *ring = luaL_testudata(L, 1, RING);
    inside_entry(L, "a ring");
    if (!ring)
        spec_error(L, "%s: call it with a colon, as in s:push(x)", what);
    int first = project_state(L, *ring);
    State *s = &t->rule->state[first];
    bool rotates = t->clock.t == leaf(t, OP_STEP, GROUP, 0);
    if (strcmp(t->rule->entry[t->entry].name, "step"))
        spec_error(
            L, "the ring '%s' is for 'step' and 'matrix' only: other entries may run at any time",
            ring_name(t->arena, s));
    for (int i = 0; i < s->ring; i++) {
        if (t->read[first + i] && s[i].rotates != rotates)
            spec_error(L,
                       "the ring '%s' follows t in one variant and inner { t = … } in another: "
                       "both must agree",
                       ring_name(t->arena, s));
        s[i].rotates = rotates;
        t->read[first + i] = true;
    }
    t->spec[t->at].uses_view |= dom_inside(s->dom) && s->dom != ELEM;
    return first;
}

/* n mod K, of a whole number */
static Ref remainder_of(lua_State *L, Ref n, int k)
{
    Graph *g = &trace_of(L)->rule->g;
    Ref by = node_const(g, k), times = trace_op(L, OP_FLOOR, trace_op(L, OP_DIV, n, by), NONE);
    return trace_op(L, OP_SUB, n, trace_op(L, OP_MUL, by, times));
}

static Ref slot_is(lua_State *L, Ref slot, int i)
{
    return trace_op(L, OP_EQ, slot, node_const(&trace_of(L)->rule->g, i));
}

/* The value of `back` pushes ago; 0: this step's. */
static Ref ring_value(lua_State *L, int first, int back)
{
    Trace *t = trace_of(L);
    int k = t->rule->state[first].ring;
    if (t->rule->state[first].rotates)
        return t->state[first + back % k];
    Ref n = trace_op(L, OP_SUB, t->clock.t, node_const(&t->rule->g, back));
    Ref slot = remainder_of(L, n, k), v = t->state[first];
    for (int i = 1; i < k && v != UNKNOWN; i++)
        v = t->state[first + i] == UNKNOWN
                ? UNKNOWN
                : trace_op3(L, OP_WHERE, slot_is(L, slot, i), t->state[first + i], v);
    return v;
}

static int l_ring_push(lua_State *L)
{
    Trace *t = trace_of(L);
    int first = ring_at(L, "push");
    State *s = &t->rule->state[first];
    const char *name = ring_name(t->arena, s);
    int k = s->ring;
    if (lua_gettop(L) != 2)
        return spec_error(L, "push takes one value: %s:push(g)", name);
    if (t->block.depth || t->block.whens)
        return spec_error(L,
                          "%s:push(…) is in every() or when(): a ring takes one value at each "
                          "step; push where(c, "
                          "a, b), or what it had, %s:push(%s[1])",
                          name, name, name);
    if (t->pushed[first])
        return spec_error(
            L, "%s:push(…) is called twice in one step: a ring takes one value at each step", name);
    Ref x = NONE;
    assign_value(L, t, 2, name, &x, s->dom);
    Ref slot = s->rotates || x == UNKNOWN ? NONE : remainder_of(L, t->clock.t, k);
    for (int i = 0; i < (s->rotates ? 1 : k); i++)
        t->state[first + i] =
            slot == NONE ? x : trace_op3(L, OP_WHERE, slot_is(L, slot, i), x, t->state[first + i]);
    for (int i = 0; i < k; i++)
        t->written[first + i] = true;
    t->pushed[first] = true;
    return push_nothing(L);
}

static int l_ring_index(lua_State *L)
{
    Trace *t = trace_of(L);
    int first = ring_at(L, "a ring");
    const State *s = &t->rule->state[first];
    const char *name = ring_name(t->arena, s),
               *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    bool pushed = t->pushed[first];
    if (!strcmp(key, "push")) {
        lua_pushcfunction(L, l_ring_push);
        errors_guard(L, NULL, false);
        return 1;
    }
    if (!strcmp(key, "count")) {
        Ref n = pushed ? t->clock.t : trace_op(L, OP_SUB, t->clock.t, node_const(&t->rule->g, 1));
        push_value(L, trace_op(L, OP_MIN, n, node_const(&t->rule->g, s->ring)));
        return 1;
    }
    const Graph *at = trace_here(t);
    t->peeked[first].file = at->file;
    t->peeked[first].line = at->line;
    double j = lua_tonumber(L, 2);
    if (lua_type(L, 2) != LUA_TNUMBER || j != floor(j) || j < 1 || j > s->ring)
        return spec_error(
            L,
            "%s[…] takes a whole number from 1, the newest, to %d; a ring also has %s:push(x) and "
            "%s.count",
            name, s->ring, name, name);
    push_value(L, ring_value(L, first, pushed ? (int)j - 1 : (int)j));
    return 1;
}

static int l_ring_assign(lua_State *L)
{
    return spec_error(L, "a ring has no elements to assign: s:push(x) adds the newest value");
}

void rings_open(lua_State *L)
{
    luaL_newmetatable(L, RING);
    lua_pushcfunction(L, l_ring_index);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, l_ring_assign);
    lua_setfield(L, -2, "__newindex");
    errors_guard_all(L, false);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

void ring_start(Trace *t)
{
    memset(t->pushed, 0, sizeof *t->pushed * MAX_STATES);
    memset(t->peeked, 0, sizeof *t->peeked * MAX_STATES);
}

void ring_end(Trace *t)
{
    for (int i = 0; i < t->rule->nstate; i++)
        for (int k = 0; k < t->nall && t->peeked[i].line && !t->pushed[i]; k++)
            if (t->spec[k].file == t->peeked[i].file)
                warn_at(t, &t->spec[k], t->peeked[i].line,
                        "this reads the ring '%s', and %s: its tensors read zeros "
                        "at every step",
                        ring_name(t->arena, &t->rule->state[i]),
                        t->matrix ? "'matrix' has no push for these matrices"
                                  : "'step' has no push for these tensors");
}

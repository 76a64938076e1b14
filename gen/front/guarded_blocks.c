/* Guarded blocks and inner rules: every(), when(), inner(). A block is traced once; each of its
 * assignments then becomes a selection between the new value and the old one. */
#include "gen/front/rings.h"

#include <math.h>
#include <string.h>

/* ---- assignments of a block ---- */
enum { SLOT_P, SLOT_G, SLOT_X, SLOT_AMOUNT, SLOT_STATES };
static Ref *value_slot(Trace *t, int i)
{
    return i == SLOT_P        ? &t->p
           : i == SLOT_G      ? &t->g
           : i == SLOT_X      ? &t->parts.x
           : i == SLOT_AMOUNT ? &t->parts.amount
                              : &t->state[i - SLOT_STATES];
}

/* When the assignments of a block take effect: if `cond` holds (NONE: always), or in the slot of
 * the tensor or block. */
typedef struct Guard { Ref cond; Stagger staggered; } Guard;

static bool same_stagger(Stagger a, Stagger b)
{
    return a.every == b.every && a.of == b.of && a.ahead == b.ahead && a.first == b.first;
}

static bool name_taken(const Rule *r, int nstate, const char *name)
{
    for (int i = 0; i < nstate; i++)
        if (!strcmp(r->state[i].name, name))
            return true;
    return false;
}

/* The state that holds these slots in that domain; added if there is none. */
static int slots_of(lua_State *L, Trace *t, Stagger staggered, Dom dom)
{
    Rule *r = t->rule;
    int n = r->nstate, slots = 0;
    for (int i = 0; i < n; i++) {
        slots += r->state[i].slots.every > 0;
        if (r->state[i].slots.every && r->state[i].dom == dom &&
            same_stagger(r->state[i].slots, staggered))
            return i;
    }
    if (slots == MOST_SLOTS || n >= MAX_STATES)
        spec_error(L,
                   "over %d arrays of slots in one rule, or %d states with them: each different "
                   "staggered period takes "
                   "one, of tensors and of blocks",
                   MOST_SLOTS, MAX_STATES);
    const char *name =
        arena_printf(t->arena, "%sslot_%d", dom == BLOCK ? "block_" : "", staggered.every);
    while (name_taken(r, n, name))
        name = arena_printf(t->arena, "%s_", name);
    const Graph *g = trace_here(t);
    PUSH(t->arena, r->state, r->nstate, r->state_cap) = (State){.name = name,
                                                                .dom = dom,
                                                                .type = T_F64,
                                                                .hyper = -1,
                                                                .file = g->file,
                                                                .line = g->line,
                                                                .slots = staggered};
    t->state[n] = node_leaf(&r->g, OP_STATE, dom, n, 0);
    t->read[n] = t->written[n] = true;
    return n;
}

/* A truth value: the tensor or block that the state `name` belongs to runs in this step. */
static Ref slot_condition(lua_State *L, Trace *t, Stagger staggered, const char *name, Dom dom)
{
    if (dom_info[dom].scope < SCOPE_TENSOR)
        spec_error(L,
                   "'%s' has one value per %s and cannot be assigned in every(k, { stagger = true "
                   "}, …), which runs "
                   "at different steps for each %s",
                   name, dom_info[dom].per, t->rule->block ? "tensor or block" : "tensor");
    Dom owner = dom_of_block(dom) ? BLOCK : TENSOR;
    int s = slots_of(L, t, staggered, owner);
    Graph *g = trace_here(t);
    Ref now = node_leaf(g, OP_SLOT, GROUP, s, 0), own = node_leaf(g, OP_STATE, owner, s, 0);
    Ref in_slot = node_op(g, OP_EQ, own, now, NONE);
    /* in the owner's domain, although it varies by group, so that one stage computes the whole
     * condition */
    Node all = {.op = OP_LT,
                .dom = (uint8_t)owner,
                .ty = BOOL,
                .nargs = 2,
                .arg = (Ref[]){now, node_const(g, 0)}};
    return staggered.first ? node_op(g, OP_EITHER, in_slot, graph_add(g, all), NONE) : in_slot;
}

static void choose(lua_State *L, Trace *t, int i, const Guard *h, Ref was)
{
    const Rule *r = t->rule;
    const Graph *g = &r->g;
    Ref *now = value_slot(t, i);
    const char *name = i >= SLOT_STATES ? r->state[i - SLOT_STATES].name : i == SLOT_G ? "g" : "p";
    Dom dom = i >= SLOT_STATES ? r->state[i - SLOT_STATES].dom : t->elem;
    if (*now == UNKNOWN || was == UNKNOWN)
        return;
    if (i >= SLOT_STATES && r->state[i - SLOT_STATES].rotates)
        spec_error(L,
                   "the rule inside keeps a ring, '%s', and this block may skip it: say what its t "
                   "is, inner { t = "
                   "… }",
                   ring_name(t->arena, &r->state[i - SLOT_STATES]));
    Ref cond = h->staggered.every ? slot_condition(L, t, h->staggered, name, dom) : h->cond;
    if (!dom_spreads((Dom)g->n[cond].dom, dom))
        spec_error(L, "'%s' has one value per %s and cannot be assigned where %s decides", name,
                   dom_info[dom].name, describe(t, cond));
    Node w = {.op = OP_WHERE, .ty = NUM, .nargs = 3, .arg = (Ref[]){cond, *now, was}};
    w.dom = dom_join(g->n[*now].dom, dom_join(g->n[cond].dom, g->n[was].dom));
    *now = trace_node(t, w);
}

/* A local that the block assigned: its value where the block applies, and the one before it
 * elsewhere. */
static Ref choose_local(lua_State *L, const void *guard, const char *name, Ref now, Ref was)
{
    const Guard *h = guard;
    Trace *t = trace_of(L);
    const Graph *g = &t->rule->g;
    Dom dom = dom_join((Dom)g->n[now].dom, (Dom)g->n[was].dom);
    bool truth = g->n[now].ty == BOOL;
    if (dom == NDOM || truth != (g->n[was].ty == BOOL))
        spec_error(L,
                   "the local '%s' is %s where the block applies and %s elsewhere: they do not fit",
                   name, describe(t, now), describe(t, was));
    Ref cond = h->staggered.every ? slot_condition(L, t, h->staggered, name, dom) : h->cond;
    if (!truth)
        return trace_op3(L, OP_WHERE, cond, now, was);
    Ref other = trace_op(L, OP_BOTH, trace_op(L, OP_ISNT, cond, NONE), was);
    return trace_op(L, OP_EITHER, trace_op(L, OP_BOTH, cond, now), other);
}

/* Runs the function at index f. block: its word. keep: assignments to reports always take effect,
 * so that they show what was computed. */
static void run_block(lua_State *L, int f, const Guard *h, const char *block, bool keep)
{
    Trace *t = trace_of(L);
    int before = t->rule->nstate + SLOT_STATES;
    if (has_arguments(L, f))
        spec_error(
            L,
            "the function of every() and when() takes no arguments: names are known inside; write "
            "function() … end");
    Ref *was = lua_newuserdatauv(L, sizeof(Ref) * (MAX_STATES + SLOT_STATES), 0);
    for (int i = 0; i < before; i++)
        was[i] = *value_slot(t, i);
    locals_save(L, f);
    lua_pushvalue(L, f);
    lua_call(L, 0, 0);
    if (h->cond != NONE || h->staggered.every)
        locals_choose(L, lua_gettop(L), block, choose_local, h);
    int n = t->rule->nstate + SLOT_STATES;
    /* states of a projection that the block added */
    for (int i = before; i < n; i++)
        was[i] = node_leaf(&t->rule->g, OP_STATE, t->rule->state[i - SLOT_STATES].dom,
                           i - SLOT_STATES, 0);
    for (int i = 0; (h->cond != NONE || h->staggered.every) && i < n; i++)
        if (*value_slot(t, i) != was[i] &&
            !(keep && i >= SLOT_STATES && t->rule->state[i - SLOT_STATES].report))
            choose(L, t, i, h, was[i]);
}

/* ---- every(k, { offset = o, first = true, stagger = true }, f) ---- */
/* The binding's steps that correspond to the steps `in` of a clock that runs at the binding's steps
 * `of`. The first step of `of` is the clock's step 1. */
static Steps steps_of(Steps of, Steps in)
{
    Steps s = {of.every * in.every, of.offset + of.every * (in.offset - (of.offset > 0))};
    s.offset -= s.every * floor(s.offset / s.every);
    return s;
}

/* first: step 1 is added. but_first: step 1, the first of offset 1, is left out. */
typedef struct EveryOptions {
    double offset; bool first, but_first, stagger, says_offset;
} EveryOptions;

static bool read_flag(lua_State *L, const char *key, const char *what)
{
    if (lua_type(L, -1) != LUA_TBOOLEAN)
        spec_error(L, "every: %s is true or false: %s", key, what);
    return lua_toboolean(L, -1);
}

static void read_option(lua_State *L, const char *key, double k, EveryOptions *o)
{
    if (!strcmp(key, "first")) {
        o->first = read_flag(L, key, "whether step 1 is one of them too");
        o->but_first = !o->first;
    } else if (!strcmp(key, "stagger")) {
        o->stagger = read_flag(L, key, "whether each tensor has its own of k steps");
    } else if (!strcmp(key, "offset")) {
        o->says_offset = true;
        o->offset = lua_tonumber(L, -1);
        bool fits = o->offset >= 0 && o->offset < MAX_PERIOD && o->offset == floor(o->offset);
        if (lua_type(L, -1) != LUA_TNUMBER || !fits)
            spec_error(L, "every: the offset is a whole number from 0 to %d", MAX_PERIOD - 1);
        /* the period may be an option that is set to 1 */
        o->offset = fmod(o->offset, k);
    } else {
        spec_error(L, "every(k, { … }, f) knows 'offset', 'first' and 'stagger': every(10, { "
                      "offset = 1 }, function() "
                      "… end)");
    }
}

static EveryOptions read_every(lua_State *L, int i, double k)
{
    EveryOptions o = {.offset = 0};
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
        read_option(L, lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "", k, &o);
    if (o.stagger && o.says_offset)
        spec_error(L, "every: stagger = true gives each tensor its own offset, so offset = … is "
                      "not allowed with it");
    if (o.stagger && k > MAX_STAGGER)
        spec_error(L, "every: with stagger = true the period is at most %d", MAX_STAGGER);
    o.first = o.first && o.offset != 1;                    /* offset 1 includes the first step */
    /* others do not */
    o.but_first = o.but_first && (o.offset == 1 || (k == 1 && o.says_offset));
    return o;
}

static Ref condition(lua_State *L, Trace *t, Steps at)
{
    if (at.every > MAX_PERIOD)
        spec_error(L, "every: this period times the period around the rule is over %d steps",
                   MAX_PERIOD);
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

/* The first step of the clock, as a period so long that no run reaches it twice. */
static Ref first_step(lua_State *L, Trace *t)
{
    Steps of = t->clock.at;
    return condition(L, t, (Steps){MAX_PERIOD, of.offset > 0 ? of.offset : of.every});
}

/* The guard of a block of every(). */
static Guard holds_at(lua_State *L, Trace *t, double k, const EveryOptions *o)
{
    Steps of = t->clock.at;
    if (k == 1)
        return (Guard){.cond = NONE};
    if (o->stagger)
        return (Guard){
            NONE,
            {(int)k, (int)of.every, of.offset > 0 ? (int)(of.every - of.offset) : 0, o->first}};
    Steps at = steps_of(of, (Steps){k, o->offset});
    /* it means once, also inside of a wrapper's every() */
    if (k == MAX_PERIOD && at.offset < MAX_PERIOD)
        at.every = MAX_PERIOD;
    Ref cond = condition(L, t, at);
    if (o->but_first)
        return (Guard){
            .cond = trace_op(L, OP_BOTH, cond, trace_op(L, OP_ISNT, first_step(L, t), NONE))};
    return (Guard){.cond = o->first ? trace_op(L, OP_EITHER, cond, first_step(L, t)) : cond};
}

/* The assignments of f take effect at steps with t % k == offset; at other steps values are
 * unchanged. */
int l_every(lua_State *L)
{
    Trace *t = trace_of(L);
    int f = lua_type(L, 2) == LUA_TTABLE ? 3 : 2;
    if (is_value(L, 1))
        return spec_error(L, "every(k, …): k must be known at compile time: make it an option");
    double k = lua_tonumber(L, 1);
    if (lua_type(L, 1) == LUA_TNUMBER && (!(k >= 1 && k <= MAX_PERIOD) || k != floor(k)))
        return spec_error(L, "every: the period is a whole number from 1 to %d, not %.15g",
                          MAX_PERIOD, k);
    if (lua_type(L, 1) != LUA_TNUMBER || lua_type(L, f) != LUA_TFUNCTION)
        return spec_error(L, "every takes a number and a function: every(10, function() … end), or "
                             "every(10, { offset = 1 }, function() … end)");
    GuardedBlock was = t->block;
    EveryOptions o = f == 3 ? read_every(L, 2, k) : (EveryOptions){.offset = 0};
    Guard h = holds_at(L, t, k, &o);
    if (k > 1)
        t->block = (GuardedBlock){{k, o.offset},
                                  was.depth + 1,
                                  o.first || o.but_first,
                                  was.stagger || o.stagger,
                                  was.whens};
    run_block(L, f, &h, "every()", false);
    t->block = was;
    return push_nothing(L);
}

/* ---- when(c, f) ---- */
/* The assignments of f take effect where c is true; c is computed when the rule runs. */
int l_when(lua_State *L)
{
    if (lua_gettop(L) != 2 || lua_type(L, 2) != LUA_TFUNCTION)
        return spec_error(
            L, "when takes a truth value and a function: when(isfinite(norm), function() … end)");
    Guard h = {.cond = lang_truth(L, 1, "when", 2)};
    trace_of(L)->block.whens++;
    run_block(L, 2, &h, "when()", true);
    trace_of(L)->block.whens--;
    return push_nothing(L);
}

/* ---- inner() ---- */
/* The value of a key in inner's table; NONE: it is absent. */
static Ref inner_option(lua_State *L, const char *key)
{
    Ref r = NONE;
    if (lua_type(L, 1) != LUA_TTABLE)
        return r;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        const char *k = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        if (strcmp(k, "t") && strcmp(k, "g") && strcmp(k, "apart") && strcmp(k, "mean"))
            spec_error(L,
                       "inner { … } knows 't', 'g', 'apart' and 'mean': inner { t = t - skipped }, "
                       "inner { g = mm(P.T, g) }, inner { apart = true }, inner { mean = added }");
        if (!strcmp(k, key))
            r = lang_arg(L, lua_gettop(L), key, 1);
    }
    return r;
}

static bool inner_apart(lua_State *L)
{
    if (lua_type(L, 1) != LUA_TTABLE)
        return false;
    int is = lua_getfield(L, 1, "apart");
    if (is != LUA_TNIL && is != LUA_TBOOLEAN)
        spec_error(L, "inner { apart = … } is true or false: whether p stays as it is, and the "
                      "step, its rate and the "
                      "decay are returned");
    return lua_toboolean(L, -1);
}

/* The t of the inner rule. It is rounded to a whole number, so that powers of it become
 * products. */
static Ref inner_t(lua_State *L, Trace *t)
{
    Ref r = inner_option(L, "t");
    const Node *n = r == NONE ? NULL : &t->rule->g.n[r];
    if (n && (n->ty != NUM || !dom_spreads((Dom)n->dom, TENSOR)))
        spec_error(L, "inner { t = … } takes one number per group or tensor, not %s",
                   describe(t, r));
    return !n || n->whole ? r : trace_op(L, OP_ROUND, r, NONE);
}

static Clock inner_clock(lua_State *L, Trace *t)
{
    Clock c = t->clock;
    double k = t->block.at.every;
    Ref own = inner_t(L, t);
    if (t->block.stagger)
        spec_error(L, "inner() inside every(k, { stagger = true }, …): the inner rule would be at "
                      "a different step "
                      "for each tensor");
    if ((t->block.depth > 1 || t->block.first) && own == NONE)
        spec_error(L, "inner() inside %s: say what its t is: inner { t = … }",
                   t->block.first ? "every(k, { first = … }, …)" : "two blocks of every()");
    c.at = steps_of(c.at, t->block.at);
    /* the first step of the block is the inner rule's step 1, for any offset */
    if (own != NONE)
        c.t = own, c.by = t->spec[t->at].name;
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
        return spec_error(
            L,
            "inner takes no argument, or a table with t and g for the inner rule: inner { t = t - "
            "skipped }");
    if (++t->inner_calls > 1)
        return spec_error(L, "inner() is called twice in one entry");
    int calls = t->inner_calls;
    Clock clock = t->clock;
    GuardedBlock block = t->block;
    t->clock = inner_clock(L, t);
    t->block = (GuardedBlock){{1, 0}, 0, false, false, 0};
    bool apart = inner_apart(L);
    Ref p = t->p, g = t->g, low = inner_option(L, "g"), added = inner_option(L, "mean");
    if (added != NONE)
        inputs_mean(L, added);
    if (low != NONE) {
        project_open(L, low, apart);
        t->rule->changes_grad = t->spec[t->at].changes_grad = true;
    }
    StepParts parts = t->parts;
    if (apart)
        parts_open(t);
    if (!call_entry(L, t, t->at + 1, name))
        return spec_error(L, "the rule inside has no entry '%s'", name);
    t->inner_calls = calls;
    t->clock = clock;
    t->block = block;
    /* a rule without shrink() adds its decay to the gradient, where p is 0 */
    if (low != NONE && apart && t->rule->g.n[t->parts.amount].op == OP_CONST)
        forbid_decay(t);
    t->parts.stepped = true;
    if (low == NONE && !apart)
        return push_nothing(L);
    if (apart)
        parts_close(L, parts);
    else
        /* the change of p that the inner rule computed */
        push_value(L, t->p);
    if (low != NONE)
        t->elem = ELEM, t->p = p, t->g = g;
    return apart ? 3 : 1;
}
